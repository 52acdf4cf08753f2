"""Drawings: what is drawn is what was released, at its place, whatever the keys say."""

import datetime as dt
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Answer, Bars, Cost
from dither.drawings.meters import meter
from dither.drawings.panels import BOTTOM, HEIGHT, TOP, WIDTH
from dither.drawings.svg_axes import COLOURS, width_of

SVG = "{http://www.w3.org/2000/svg}"


def chart_of(drawn, kind=None):
    return drawn.chart(kind).svg


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
    drawing = parsed(chart_of(answer(["a", "b", "c"], [10.0, 20.0, 40.0], half=2.0)))
    heights = [float(rect.get("height")) for rect in drawing.iter(f"{SVG}rect")]
    # the axis runs from 0 to 50: the next round number above 42
    assert heights == pytest.approx([(HEIGHT - TOP - BOTTOM) * v / 50 for v in (10, 20, 40)], abs=0.2)
    ends = [re.findall(r"[\d.]+", path.get("d")) for path in drawing.iter(f"{SVG}path")]
    tops = [float(end[1]) for end in ends]
    bottoms = [float(end[5]) for end in ends]
    unit = (HEIGHT - TOP - BOTTOM) / 50
    assert [b - t for t, b in zip(tops, bottoms, strict=True)] == pytest.approx([4 * unit] * 3, abs=0.3)


def test_negative_values_hang_below_zero():
    drawing = parsed(chart_of(answer(["a", "b"], [-10.0, 10.0], half=0.5)))
    first, second = (rect for rect in drawing.iter(f"{SVG}rect"))
    assert float(first.get("y")) == pytest.approx(float(second.get("y")) + float(second.get("height")), abs=0.2)


def test_the_kind_follows_the_keys():
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(5)]
    assert 'class="line"' in chart_of(answer(days, range(5), key="day"))
    assert 'class="band"' in chart_of(answer(days, range(5), key="day"))
    assert 'class="line"' in chart_of(answer([3, 1, 2], [1, 2, 3], key="month"))
    assert "<rect" in chart_of(answer(["a", "b", "c"], [1, 2, 3]))
    assert "<circle" in chart_of(answer([f"k{i}" for i in range(80)], range(80)))
    assert "<circle" in chart_of(answer(["a", "b", "c"], [1, 2, 3]), kind="dot")
    # texts have no place on a line
    assert 'class="line"' not in chart_of(answer(["a", "b", "c"], [1, 2, 3]), kind="line")


def test_a_line_goes_from_left_to_right():
    drawing = parsed(chart_of(answer([30, 10, 20], [1.0, 2.0, 3.0], key="age")))
    path = next(p for p in drawing.iter(f"{SVG}path") if p.get("class") == "line").get("d")
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", path)]
    assert xs == sorted(xs)
    assert len(xs) == 3


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x>', "a&b", "\u202eevil", "x" * 500])
def test_keys_can_not_write_markup(hostile):
    text = chart_of(answer([hostile, "b"], [1.0, 2.0], name=hostile))
    assert "<script" not in text
    assert "<img" not in text
    for drawing in text.split("\n"):
        parsed(drawing)


def test_nothing_inline_that_a_strict_page_forbids():
    text = chart_of(answer(["a", "b"], [1, 2])) + meter(0.5, 0.1)
    assert "style=" not in text
    assert "<style" not in text
    assert "href" not in text
    assert not re.search(r"\son\w+=", text)


def test_missing_and_infinite_values_are_left_out():
    drawn = answer(["a", "b", "c", "d"], [1.0, float("nan"), float("inf"), 2.0])
    drawing = parsed(chart_of(drawn))
    assert len(list(drawing.iter(f"{SVG}rect"))) == 2


def test_intervals_are_drawn_only_where_there_are_some():
    text = chart_of(answer(["a", "b"], [1.0, 2.0], half=None))
    assert 'class="interval"' not in text
    assert "<rect" in text


def test_what_can_not_be_drawn():
    assert chart_of(answer(None, [5.0])) == ""
    assert "<rect" in chart_of(answer(None, [5.0]), kind="bar")
    assert chart_of(answer([], [])) == ""
    table = pa.table({"city": ["a", "b"]})
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="")
    assert chart_of(Answer(table=table, bars={}, confidence=0.95, receipt=None, cost=cost)) == ""


def test_all_values_alike_and_all_zero_are_drawn():
    for value in (0.0, 7.0, -3.0, 1e299, 1e-300, 5e-324):
        parsed(chart_of(answer(["a", "b"], [value, value], half=0.0)))


@pytest.mark.parametrize(
    "values", [[0.0, 5e-324], [-1.7e308, 1.7e308, 1.0, 2.0], [1e16, 1e16 + 2], [-9e299, 9e299], [1e-310, 2e-310]]
)
def test_values_at_the_ends_of_doubles_are_drawn_or_left_out(values):
    drawing = parsed(chart_of(answer([f"k{i}" for i in range(len(values))], values, half=0.0)))
    for rect in drawing.iter(f"{SVG}rect"):
        assert 0 <= float(rect.get("y")) <= HEIGHT
        assert 0 <= float(rect.get("height")) <= HEIGHT


def test_a_name_can_not_hold_what_no_drawing_may():
    # XML takes no control characters
    parsed(chart_of(answer(["a", "b"], [1.0, 2.0], name="n\x00\x07")))


def test_an_answer_draws_itself_in_a_notebook():
    drawn = answer(["a", "b"], [1.0, 2.0])
    drawing = drawn.chart("dot")
    assert str(drawing) == drawing._repr_html_() == chart_of(drawn, kind="dot")
    assert "<svg" in drawn.chart().svg


# ---------------------------------------------------------------------- labels


CLINICS = ["Universitätsspital Zürich, Klinik für Kardiologie", "Hôpital cantonal de Fribourg", "Ospedale di Lugano"]
TOO_LONG = [f"Diagnosis {i:03d} – chronic condition of unspecified origin" for i in range(60)]
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(400)]


def texts_of(text):
    """Every label of a drawing, about where it is: left, right and lowest point."""
    found = []
    for one in parsed(text).iter(f"{SVG}text"):
        x, y, width = float(one.get("x")), float(one.get("y")), width_of(one.text)
        turn = re.match(r"rotate\(-([\d.]+)", one.get("transform", ""))
        angle = math.radians(float(turn.group(1))) if turn else 0.0
        anchor = {"middle": 0.5, "end": 1.0}.get(one.get("text-anchor"), 0.0)
        start, end = x - anchor * width * math.cos(angle), x + (1 - anchor) * width * math.cos(angle)
        found.append((one.text, start, end, y + anchor * width * math.sin(angle), turn is not None))
    return found


@pytest.mark.parametrize("width", [WIDTH, 340])
@pytest.mark.parametrize("kind", ["bar", "line", "dot", None])
@pytest.mark.parametrize("keys", [CLINICS, TOO_LONG, DAYS, DAYS[:13], ["a", "b"], list(range(111)), ["漢字" * 9, "b"]])
def test_labels_are_within_the_drawing_and_apart(keys, kind, width):
    (text,) = answer(keys, [1000.0 * i for i in range(len(keys))], half=50.0).chart(kind=kind, width=width).panels
    _, _, right, bottom = map(float, parsed(text).get("viewBox").split())
    assert right == width
    placed = texts_of(text)
    assert len(placed) > 5
    for label, start, end, low, _ in placed:
        assert start >= -1, label
        assert end <= width + 1, label
        assert low <= bottom, label
    # those beside each other
    rows = {}
    for label, start, end, low, turned in placed:
        if not turned:
            rows.setdefault(round(low), []).append((start, end, label))
    for row in rows.values():
        for (_, end, one), (start, _, two) in pairwise(sorted(row)):
            assert start >= end - 1, (one, two)


def test_long_names_are_read_beside_their_bars():
    wide, thin = (answer(CLINICS, [10.0, 20.0, 30.0]).chart(width=width).svg for width in (WIDTH, 340))
    for text in (wide, thin):
        assert "Hôpital cantonal de Fribourg<" in text
        assert "rotate" not in text
    assert "Klinik für Ka" in thin
    widths = [float(rect.get("width")) for rect in parsed(wide).iter(f"{SVG}rect")]
    assert widths == pytest.approx([widths[2] / 3, 2 * widths[2] / 3, widths[2]], abs=0.2)
    intervals = [re.findall(r"[\d.]+", path.get("d")) for path in parsed(wide).iter(f"{SVG}path")]
    # from low to high, on the bars' own scale
    assert [float(one[5]) - float(one[0]) for one in intervals] == pytest.approx([2 * widths[2] / 30] * 3, abs=0.3)


def test_years_are_years_and_days_are_days():
    text = chart_of(answer([2015, 2016, 2017], [1, 2, 3], key="year"))
    assert "2015" in text
    assert "2,015" not in text
    midnights = [dt.datetime.fromisoformat(f"2024-0{month}-01") for month in (1, 2, 3)]
    text = chart_of(answer(midnights, [1, 2, 3], key="month"))
    assert "2024-01-01" in text
    assert "00:00" not in text
    assert "00:00" in chart_of(
        answer([*midnights, dt.datetime.fromisoformat("2024-04-01T12:00")], [1, 2, 3, 4], key="month")
    )


def test_labels_come_at_even_distances():
    shown = [label for label, *_ in texts_of(chart_of(answer(list(range(111)), range(111), key="age")))]
    ages = [int(label) for label in shown if label.isdigit()][-12:]
    assert [b - a for a, b in pairwise(ages)] == [10] * 11


# ---------------------------------------------------------------------- axes


def ticks_of(text):
    left = [one for one in parsed(text).iter(f"{SVG}text") if one.get("text-anchor") == "end"]
    return [one.text for one in left]


def test_an_axis_has_one_unit():
    assert ticks_of(chart_of(answer(["a", "b"], [4000.0, 14000.0]))) == ["0", "5k", "10k", "15k"]
    assert ticks_of(chart_of(answer(["a", "b"], [400.0, 1400.0]))) == ["0", "500", "1,000", "1,500"]
    millions = ticks_of(chart_of(answer(["a", "b"], [4e5, 1.4e6])))
    assert millions == ["0", "0.5M", "1.0M", "1.5M"]
    # far from 0 and close together, they still differ
    close = ticks_of(chart_of(answer(["a", "b"], [1_000_000.0, 1_000_020.0]), kind="dot"))
    assert len(set(close)) == len(close)


def test_an_interval_that_just_passes_zero_does_not_stretch_the_axis():
    values = [100.0, 9000.0]
    drawn = Bars(low=np.array([-84.0, 8900.0]), high=np.array([284.0, 9100.0]), text="")
    made = replace(answer(["a", "b"], values), bars={"n": drawn})
    text = chart_of(made)
    assert ticks_of(text)[0] == "0"
    lowest = max(float(path.get("d").split("V")[1].split("M")[0]) for path in parsed(text).iter(f"{SVG}path"))
    height = float(parsed(text).get("viewBox").split()[3])
    assert lowest <= height - BOTTOM + 0.1


# ---------------------------------------------------------------------- kinds


def test_the_kind_that_was_drawn_is_told():
    cities = answer(["a", "b", "c"], [1.0, 2.0, 3.0])
    assert (cities.chart().kind, cities.chart().kinds) == ("bar", ("bar", "dot"))
    # names have no places on a line
    assert cities.chart("line").kind == "dot"
    ages = answer([10, 20, 30], [1.0, 2.0, 3.0], key="age")
    assert (ages.chart().kind, ages.chart().kinds) == ("line", ("bar", "line", "dot"))
    assert ages.chart("bar").kind == "bar"
    nothing = answer([], []).chart()
    assert (nothing.panels, nothing.kind, nothing.svg) == ((), None, "")


def test_no_line_goes_over_what_nobody_knows():
    """Where keys are discovered, rare ones are missing between the others."""
    found = [day for i, day in enumerate(DAYS[:30]) if i % 7 not in (2, 3)]
    drawn = answer(found, range(len(found)), key="day")
    assert drawn.chart().kind == "dot"
    assert 'class="line"' not in drawn.chart().svg
    chosen = parsed(drawn.chart("line").svg)
    paths = {path.get("class"): path for path in chosen.iter(f"{SVG}path")}
    assert paths["line"].get("d").count("M") == 5
    assert paths["gap"].get("d").count("M") == 4
    assert paths["gap"].get("stroke-dasharray")
    assert sum(path.get("class") == "band" for path in chosen.iter(f"{SVG}path")) == 5
    # months are of different length, and none is missing
    months = [dt.date(2024 + i // 12, 1 + i % 12, 1) for i in range(24)]
    assert answer(months, range(24), key="month").chart().kind == "line"
    # dots are where their days are
    across = [float(dot.get("cx")) for dot in parsed(drawn.chart().svg).iter(f"{SVG}circle")]
    gaps = [b - a for a, b in pairwise(across)]
    assert max(gaps) == pytest.approx(3 * min(gaps), rel=0.03)


def two_keys(first, second, *, names=("quarter", "clinic")):
    rows = [(a, b) for a in first for b in second]
    values = np.arange(len(rows), dtype=np.float64) * 10
    table = pa.table({names[0]: [a for a, _ in rows], names[1]: [b for _, b in rows], "n": values})
    bars = {"n": Bars(low=values - 5, high=values + 5, text="")}
    return Answer(table=table, bars=bars, confidence=0.95, receipt=None, cost=answer(["a"], [1.0]).cost)


def test_two_keys_are_a_line_for_each_value_of_one():
    made = two_keys(DAYS[:8], CLINICS)
    drawing = parsed(made.chart().svg)
    assert made.chart().kind == "line"
    lines = [path for path in drawing.iter(f"{SVG}path") if path.get("class") == "line"]
    assert len(lines) == 3
    assert len({line.get("stroke") for line in lines}) == 3
    for line in lines:
        xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", line.get("d"))]
        assert xs == sorted(xs)
        assert len(xs) == 8
    legend = "".join(drawing.itertext())
    assert all(clinic[:15] in legend for clinic in CLINICS)
    # whichever key comes first
    other = two_keys(CLINICS, DAYS[:8], names=("clinic", "quarter"))
    assert other.chart().svg.count('class="line"') == 3
    # bars of one day stand beside each other, in the colours of their lines
    bars = list(parsed(made.chart("bar").svg).iter(f"{SVG}rect"))
    assert len(bars) == 24
    assert len({bar.get("fill") for bar in bars}) == 3
    # texts alone have no axis: each pair is a row
    assert "b · x" in two_keys(["a", "b"], ["x", "y"]).chart().svg


def test_what_is_not_drawn_is_said():
    assert "first 400 of 1,221 rows" in answer([f"k{i}" for i in range(1221)], range(1221)).chart().svg
    assert "of 400 rows" not in answer([f"k{i}" for i in range(400)], range(400)).chart().svg
    ages = two_keys(list(range(111)), list(range(2015, 2026)), names=("age", "year")).chart()
    assert "first 2 of 11 values of year" in ages.svg
    assert ages.svg.count('class="line"') == 2
    names = [f"c{i}" for i in range(11)]
    values = np.array([1.0, 2.0])
    table = pa.table({"city": ["a", "b"], **dict.fromkeys(names, values)})
    bars = {name: Bars(low=values, high=values, text="") for name in names}
    panels = replace(answer(["a"], [1.0]), table=table, bars=bars).chart().panels
    assert len(panels) == 8
    assert "3 more columns in the table only" in panels[-1]


def test_many_intervals_are_a_band_without_ends():
    many = answer([f"k{i}" for i in range(150)], range(150)).chart()
    assert many.kind == "dot"
    assert 'class="interval"' not in many.svg
    assert 'class="band"' in many.svg
    few = answer([f"k{i}" for i in range(100)], range(100))
    assert few.chart().svg.count('class="interval"') == 100
    assert 'class="interval"' not in few.chart(width=340).svg
    assert len(answer([f"k{i}" for i in range(400)], range(400)).chart().svg) < 25_000


def test_only_what_tells_the_rows_apart_is_in_their_labels():
    values = np.array([1.0, 2.0])
    table = pa.table({"city": ["a", "b"], "n": values, "lo": values - 1, "hi": values + 1})
    made = replace(answer(["a"], [1.0]), table=table, bars={"n": Bars(low=values - 1, high=values + 1, text="")})
    assert "a: 1.0 (0.0 to 2.0)" in made.chart().svg
    assert " · " not in made.chart().svg


def test_a_drawing_without_intervals_says_so():
    assert "no interval: a rank" in answer(["a", "b"], [1.0, 2.0], half=None).chart().svg
    assert "no interval" not in answer(["a", "b"], [1.0, 2.0]).chart().svg


@pytest.mark.parametrize("card", ["#ffffff", "#18202a"])
def test_colours_are_seen_on_light_and_dark_pages(card):
    text = answer(["a", "b"], [1.0, 2.0]).chart().svg
    (opacity,) = set(re.findall(r'<rect[^>]*fill-opacity="([\d.]+)"', text))
    for colour in COLOURS:
        parts = [[int(one[place : place + 2], 16) for place in (1, 3, 5)] for one in (colour, card)]
        mixed = [float(opacity) * a + (1 - float(opacity)) * b for a, b in zip(*parts, strict=True)]
        light = []
        for one in (mixed, parts[1]):
            linear = [
                part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in np.array(one) / 255
            ]
            light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
        assert max(light) / min(light) >= 3, colour
