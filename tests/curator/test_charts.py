"""Drawings: what is drawn is what was released, at its place, whatever the keys say."""

import datetime as dt
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Answer, Bars, Cost
from dither.curator.charts import BOTTOM, HEIGHT, TOP, WIDTH, answer_chart, burn_down, meter

SVG = "{http://www.w3.org/2000/svg}"


def answer(keys, values, half=1.0, *, name="n", key="city"):
    values = np.asarray(values, dtype=np.float64)
    table = pa.table({key: keys, name: values} if keys is not None else {name: values})
    bars = {name: Bars(low=values - half, high=values + half, text="")} if half is not None else {}
    if half is None:
        bars = {name: Bars(low=None, high=None, text="a rank")}
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="")
    return Answer(table=table, bars=bars, confidence=0.95, receipt=None, cost=cost)


def parsed(text):
    # as a file of its own, an SVG names its namespace
    return ET.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def test_bars_are_as_high_as_their_values():
    drawing = parsed(answer_chart(answer(["a", "b", "c"], [10.0, 20.0, 40.0], half=2.0)))
    heights = [float(rect.get("height")) for rect in drawing.iter(f"{SVG}rect")]
    # the axis runs from 0 to 50: the next round number above 42
    assert heights == pytest.approx([(HEIGHT - TOP - BOTTOM) * v / 50 for v in (10, 20, 40)], abs=0.2)
    ends = [re.findall(r"[\d.]+", path.get("d")) for path in drawing.iter(f"{SVG}path")]
    tops = [float(end[1]) for end in ends]
    bottoms = [float(end[5]) for end in ends]
    unit = (HEIGHT - TOP - BOTTOM) / 50
    assert [b - t for t, b in zip(tops, bottoms, strict=True)] == pytest.approx([4 * unit] * 3, abs=0.3)


def test_negative_values_hang_below_zero():
    drawing = parsed(answer_chart(answer(["a", "b"], [-10.0, 10.0], half=0.5)))
    first, second = (rect for rect in drawing.iter(f"{SVG}rect"))
    assert float(first.get("y")) == pytest.approx(float(second.get("y")) + float(second.get("height")), abs=0.2)


def test_the_kind_follows_the_keys():
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(5)]
    assert 'class="line"' in answer_chart(answer(days, range(5), key="day"))
    assert 'class="band"' in answer_chart(answer(days, range(5), key="day"))
    assert 'class="line"' in answer_chart(answer([3, 1, 2], [1, 2, 3], key="month"))
    assert "<rect" in answer_chart(answer(["a", "b", "c"], [1, 2, 3]))
    assert "<circle" in answer_chart(answer([f"k{i}" for i in range(80)], range(80)))
    assert "<circle" in answer_chart(answer(["a", "b", "c"], [1, 2, 3]), kind="dot")
    # texts have no place on a line
    assert 'class="line"' not in answer_chart(answer(["a", "b", "c"], [1, 2, 3]), kind="line")


def test_a_line_goes_from_left_to_right():
    drawing = parsed(answer_chart(answer([30, 10, 20], [1.0, 2.0, 3.0], key="age")))
    path = next(p for p in drawing.iter(f"{SVG}path") if p.get("class") == "line").get("d")
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", path)]
    assert xs == sorted(xs)
    assert len(xs) == 3


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x>', "a&b", "\u202eevil", "x" * 500])
def test_keys_can_not_write_markup(hostile):
    text = answer_chart(answer([hostile, "b"], [1.0, 2.0], name=hostile))
    assert "<script" not in text
    assert "<img" not in text
    for drawing in text.split("\n"):
        parsed(drawing)


def test_nothing_inline_that_a_strict_page_forbids():
    text = answer_chart(answer(["a", "b"], [1, 2])) + meter(0.5, 0.1)
    assert "style=" not in text
    assert "<style" not in text
    assert "href" not in text
    assert not re.search(r"\son\w+=", text)


def test_missing_and_infinite_values_are_left_out():
    drawn = answer(["a", "b", "c", "d"], [1.0, float("nan"), float("inf"), 2.0])
    drawing = parsed(answer_chart(drawn))
    assert len(list(drawing.iter(f"{SVG}rect"))) == 2


def test_intervals_are_drawn_only_where_there_are_some():
    text = answer_chart(answer(["a", "b"], [1.0, 2.0], half=None))
    assert 'class="interval"' not in text
    assert "<rect" in text


def test_what_can_not_be_drawn():
    assert answer_chart(answer(None, [5.0])) == ""
    assert "<rect" in answer_chart(answer(None, [5.0]), kind="bar")
    assert answer_chart(answer([], [])) == ""
    table = pa.table({"city": ["a", "b"]})
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="")
    assert answer_chart(Answer(table=table, bars={}, confidence=0.95, receipt=None, cost=cost)) == ""


def test_all_values_alike_and_all_zero_are_drawn():
    for value in (0.0, 7.0, -3.0, 1e299, 1e-300, 5e-324):
        parsed(answer_chart(answer(["a", "b"], [value, value], half=0.0)))


def test_a_burn_down_ends_at_what_is_left():
    points = [
        SimpleNamespace(at=f"2026-11-{day:02d}T08:00:00.000Z", account="shop/ana", share=share)
        for day, share in ((1, 0.1), (2, 0.25), (3, 0.75))
    ]
    points.append(SimpleNamespace(at="2026-11-03T09:00:00.000Z", account="shop", share=None))
    text = burn_down(points)
    assert text.count("<svg") == 1
    assert "shop/ana: 25% of the budget is left" in text
    last = re.findall(r"V([\d.]+)H" + str(WIDTH - 14), text)[-1]
    assert float(last) == pytest.approx(150 - 28 - 0.25 * (150 - 28 - TOP), abs=0.1)
    assert burn_down([]) == ""


def test_a_meter_shows_what_a_question_would_take():
    drawing = parsed(meter(0.5, 0.1))
    parts = {rect.get("class"): rect for rect in drawing.iter(f"{SVG}rect")}
    assert float(parts["used"].get("width")) == pytest.approx(120)
    assert float(parts["pending"].get("x")) == pytest.approx(120)
    assert float(parts["pending"].get("width")) == pytest.approx(24)
    assert "more than is left" in meter(0.95, 0.2)
    over = {rect.get("class"): rect for rect in parsed(meter(0.95, 0.2)).iter(f"{SVG}rect")}
    assert float(over["pending"].get("width")) == pytest.approx(12)
    assert "pending" not in meter(0.3).replace("pattern", "")


@pytest.mark.parametrize(
    "values", [[0.0, 5e-324], [-1.7e308, 1.7e308, 1.0, 2.0], [1e16, 1e16 + 2], [-9e299, 9e299], [1e-310, 2e-310]]
)
def test_values_at_the_ends_of_doubles_are_drawn_or_left_out(values):
    drawing = parsed(answer_chart(answer([f"k{i}" for i in range(len(values))], values, half=0.0)))
    for rect in drawing.iter(f"{SVG}rect"):
        assert 0 <= float(rect.get("y")) <= HEIGHT
        assert 0 <= float(rect.get("height")) <= HEIGHT


def test_steps_of_a_burn_down_are_clear_of_its_edges():
    point = SimpleNamespace(at="2026-11-01T08:00:00.000Z", account="shop", share=0.5)
    (place,) = set(re.findall(r"M66,[\d.]+H([\d.]+)V", burn_down([point])))
    assert float(place) == pytest.approx((66 + WIDTH - 14) / 2)
    later = SimpleNamespace(at="2026-11-02T08:00:00.000Z", account="shop", share=0.75)
    text = burn_down([point, later])
    places = [float(x) for x in re.findall(r"H([\d.]+)V", text)]
    assert min(places) > 66
    assert max(places[:2]) < WIDTH - 14
    assert text.count("2026-11-01 08:00") == 1
    assert text.count("2026-11-02 08:00") == 1


def test_several_meters_on_a_page_share_no_id():
    assert "id=" not in meter(0.5)
    assert (meter(0.5) + meter(0.5, 0.1)).count('id="hatch"') == 1


def test_a_name_can_not_hold_what_no_drawing_may():
    # XML takes no control characters
    parsed(answer_chart(answer(["a", "b"], [1.0, 2.0], name="n\x00\x07")))


def test_an_answer_draws_itself_in_a_notebook():
    drawn = answer(["a", "b"], [1.0, 2.0])
    drawing = drawn.chart("dot")
    assert str(drawing) == drawing._repr_html_() == answer_chart(drawn, kind="dot")
    assert "<svg" in drawn.chart().svg
