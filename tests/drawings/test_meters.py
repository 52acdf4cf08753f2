"""Budgets, drawn: a meter in which every price is seen, and a burn-down that ends where the budget does."""

import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from dither.drawings.meters import BURN_HEIGHT, BURN_WIDTH, LEAST_SEEN, PENDING, burn_down, meter

SVG = "{http://www.w3.org/2000/svg}"
# the page's card and its text, light and dark
PAGES = {"light": ("#ffffff", "#111827"), "dark": ("#18202a", "#e6e9ee")}


def parsed(text):
    return ET.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def parts_of(text):
    return {rect.get("class"): rect for rect in parsed(text).iter(f"{SVG}rect")}


def point(at, share, account="shop"):
    return SimpleNamespace(at=f"2026-11-{at}T08:00:00.000Z", account=account, share=share)


def mixed(colour, below, opacity):
    parts = [[int(one[place : place + 2], 16) for place in (1, 3, 5)] for one in (colour, below)]
    return "#" + "".join(f"{round(opacity * a + (1 - opacity) * b):02x}" for a, b in zip(*parts, strict=True))


def contrast(one, two):
    """As WCAG defines it."""

    def light(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05

    return max(light(one), light(two)) / min(light(one), light(two))


def test_a_meter_shows_what_a_question_would_take():
    parts = parts_of(meter(0.5, 0.1))
    assert float(parts["used"].get("width")) == pytest.approx(120)
    assert float(parts["pending"].get("x")) == pytest.approx(120)
    assert float(parts["pending"].get("width")) == pytest.approx(24)
    assert "pending" not in meter(0.3)


@pytest.mark.parametrize("used", [0.0, 0.4, 0.999, 1.0])
def test_the_smallest_price_is_seen(used):
    for pending in (1e-9, 0.0003, 0.01):
        pending = min(pending, 1 - used) or pending
        rect = parts_of(meter(used, pending))["pending"]
        assert float(rect.get("width")) >= LEAST_SEEN >= 5
        assert float(rect.get("x")) + float(rect.get("width")) <= 240.001


def test_a_meter_says_how_much_is_missing():
    text = meter(0.98, 0.16)
    assert "more than is left" in text
    assert "needs 8× what is left" in "".join(parsed(text).itertext())
    over = parts_of(text)["pending"]
    # not hatched as a price that fits
    assert "hatch" not in over.get("fill")
    assert float(parts_of(meter(0.95, 0.2))["pending"].get("width")) == pytest.approx(12)
    assert "needs 25× what is left" in meter(0.96, 1.0)
    assert ">next to nothing is left<" in meter(0.99999, 0.5)
    assert ">nothing is left<" in meter(1.0, 0.5)
    assert "what is left" not in meter(0.3, 0.1)


def test_a_meter_never_calls_all_what_is_not():
    assert "over 99.9% of the budget is used up" in meter(0.99996)
    assert "under 0.01% of the budget is used up" in meter(0.00001)


@pytest.mark.parametrize("page", PAGES)
def test_the_parts_of_a_meter_can_be_told_apart(page):
    card, ink = PAGES[page]
    text = meter(0.5, 0.1)
    rects = list(parsed(text).iter(f"{SVG}rect"))
    track = mixed(rects[0].get("fill"), card, float(rects[0].get("fill-opacity")))
    used = mixed(rects[1].get("fill"), track, float(rects[1].get("fill-opacity", 1)))
    assert contrast(used, track) >= 3
    assert f'fill="{PENDING}"' in text
    assert contrast(PENDING, track) >= 3
    # the stripes have the colour of the text
    assert 'fill="currentColor"/></pattern>' in text
    assert contrast(ink, used) >= 3
    assert contrast(ink, PENDING) >= 3


def test_several_meters_on_a_page_share_no_id():
    assert "id=" not in meter(0.5)
    assert (meter(0.5) + meter(0.5, 0.1)).count('id="hatch"') == 1


def test_a_burn_down_ends_at_what_is_left():
    points = [point(at, share, "shop/ana") for at, share in (("01", 0.1), ("02", 0.25), ("03", 0.75))]
    text = burn_down([*points, point("03", None)])
    assert text.count('class="chart burn"') == 1
    assert "shop/ana: 25% of the budget is left" in text
    (line,) = (path for path in parsed(text).iter(f"{SVG}path") if path.get("class") == "left")
    last = re.findall(rf"V([\d.]+)H{BURN_WIDTH}$", line.get("d"))
    assert float(*last) == pytest.approx(0.75 * BURN_HEIGHT, abs=0.1)
    assert burn_down([]) == ""


def test_a_burn_down_is_as_wide_as_its_page():
    """What is stretched is the line alone: all of it is seen at any width, and texts stay as large as they are."""
    drawing = parsed(burn_down([point("01", 0.5)]))
    assert drawing.get("viewBox") is None
    assert drawing.get("width") == "100%"
    (inner,) = drawing.iter(f"{SVG}svg") if drawing.tag != f"{SVG}svg" else [*drawing.iter(f"{SVG}svg")][1:]
    assert inner.get("preserveAspectRatio") == "none"
    assert not list(inner.iter(f"{SVG}text"))
    # a long name leaves at the right, what is left never
    title = next(drawing.iter(f"{SVG}text"))
    assert "".join(title.itertext()).startswith("50% left")


def test_steps_of_a_burn_down_are_clear_of_its_edges():
    (place,) = set(re.findall(r"M0,[\d.]+H([\d.]+)V", burn_down([point("01", 0.5)])))
    assert float(place) == pytest.approx(BURN_WIDTH / 2)
    text = burn_down([point("01", 0.5), point("02", 0.75)])
    places = [float(x) for x in re.findall(r"H([\d.]+)V", text)]
    assert min(places[:2]) > 0
    assert max(places[:2]) < BURN_WIDTH
    assert text.count("2026-11-01 08:00 UTC") == 1
    assert text.count("2026-11-02 08:00 UTC") == 1
