"""One noisy column as SVG text: bars, lines or dots with their intervals, in the width that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Literal, TypeAlias

from dither.drawings.svg_axes import COLOURS, FILL, LETTER, ChartAxis, Scale, cut, spread, width_of

ChartKind: TypeAlias = Literal["bar", "line", "dot"]

WIDTH, HEIGHT = 680, 280
RIGHT, TOP, BOTTOM = 14, 26, 28
LINE_HEIGHT, EDGE = 16, 8.0
# More rows than this aren't drawn as rows, since the table below would be out of sight.
MOST_ROWS, ROW, TALL_ROW, THICK = 24, 22, 36, 13
# Labels in a column of their own take at most this share of the width; longer ones stand above their bars.
LABELS = 0.42
MOST_MARKED, MOST_WHISKERS, THINNEST = 40, 120, 4.0
# Distances between labels that are easy to count on with.
EVERY_NUMBER = (1, 2, 5, 10, 20, 50, 100, 200)
EVERY_TIME = (1, 2, 3, 4, 6, 12, 24, 48, 96, 192)
TURN, LONGEST_SLANTED = 35.0, 150.0
SIN, COS = math.sin(math.radians(TURN)), math.cos(math.radians(TURN))
BAR_OPACITY = 0.85
# Neighbours that are further apart than so many times the closest ones have something unknown between them.
GAP = 1.5


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as SVG text; shows itself in a notebook, and ``str()`` is the text to put into a page.

    ``panels`` has the parts one by one, ``kind`` is how they were drawn, and ``kinds`` are the ways that suit the keys.
    """

    panels: tuple[str, ...] = ()
    kind: ChartKind | None = None
    kinds: tuple[ChartKind, ...] = ()

    @property
    def svg(self) -> str:
        """All parts, one below the other."""
        return "\n".join(self.panels)

    def __str__(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A value, its interval, and where it stands: at a ``place`` along an axis, or else in a slot."""

    label: str
    told: str
    place: float | None
    slot: int
    series: int
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What is drawn of one column; ``series`` are the values of a second key, if there is one."""

    name: str
    told: str
    notes: tuple[str, ...]
    series: tuple[str, ...]
    marks: tuple[Mark, ...]

    @property
    def slots(self) -> int:
        """How many keys have room beside each other."""
        return max(mark.slot for mark in self.marks) + 1

    @property
    def placed(self) -> bool:
        """Whether every key has a place of its own."""
        return all(mark.place is not None for mark in self.marks)

    @property
    def even(self) -> bool:
        """Whether no key is missing between others."""
        gaps = _gaps(self.marks)
        return bool(gaps) and max(gaps) <= GAP * min(gaps)


def draw_panel(panel: Panel, kind: ChartKind, width: int) -> str:
    """The column as a drawing of this width; long names lie beside their bars, so that they can be read."""
    labels = {mark.slot: mark.label for mark in panel.marks}
    if not panel.placed and not panel.series and len(labels) <= MOST_ROWS:
        room = (width - 60 - RIGHT) / len(labels)
        if max(map(width_of, labels.values())) + LETTER > room:
            return _lying(panel, kind, width)
    return _upright(panel, kind, width)


# ---------------------------------------------------------------------- keys beside each other


def _upright(panel: Panel, kind: ChartKind, width: int) -> str:
    axis = _axis(panel, kind, wanted=5)
    texts = axis.texts
    left = max(map(width_of, texts)) + 12
    head, top = _head(panel, width)
    bottom = top + HEIGHT - TOP - BOTTOM
    down = Scale(axis.low, axis.high, bottom, top)
    step = (width - RIGHT - left) / panel.slots
    thick = min(64.0, step * 0.6 / max(1, len(panel.series)))
    across = _across(panel, kind, Scale(0, panel.slots, left, width - RIGHT), thick)
    parts = []
    for tick, text in zip(axis.ticks, texts, strict=True):
        y = down(tick)
        parts.append(
            f'<line x1="{left:.1f}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-opacity="{0.45 if tick == 0 else 0.15}"/>'
            f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end" fill-opacity="0.7">{escape(text)}</text>'
        )
    for marks in _by_series(panel):
        if kind == "line":
            shade = 0.1 if panel.series else 0.18
            parts += _line(marks, across, down, closest=min(_gaps(panel.marks), default=0.0), shade=shade)
        if len(panel.marks) > MOST_WHISKERS * width / WIDTH:
            parts += _crowd(marks, kind, across, down, step)
        else:
            parts += [_mark(mark, kind, across(mark), down, thick, few=len(marks) <= MOST_MARKED) for mark in marks]
    labels, more = _labels(panel, across, width, bottom + 18)
    return _svg(panel, width, bottom + BOTTOM + more, [*head, *parts, *labels])


def _across(panel: Panel, kind: ChartKind, slots: Scale, thick: float) -> Callable[[Mark], float]:
    """Where a mark stands: lines and dots at the places of their keys, bars in slots, those of a key side by side."""
    middle = (max(1, len(panel.series)) - 1) / 2
    if kind == "bar" or not panel.placed:
        return lambda mark: slots(mark.slot + 0.5) + thick * (mark.series - middle)
    places = [mark.place or 0.0 for mark in panel.marks]
    scale = Scale(min(places), max(places), slots.start + EDGE, slots.end - EDGE)
    aside = min(5.0, thick) if kind == "dot" else 0.0
    return lambda mark: scale(mark.place or 0.0) + aside * (mark.series - middle)


def _mark(mark: Mark, kind: ChartKind, x: float, down: Scale, thick: float, *, few: bool) -> str:
    y, zero, colour = down(mark.value), down(0.0), COLOURS[mark.series]
    if kind == "bar":
        shape = (
            f'<rect x="{x - thick / 2:.1f}" width="{thick:.1f}" y="{min(y, zero):.1f}" height="{abs(zero - y):.1f}" '
            f'rx="{min(2.0, thick / 4):.1f}" fill="{colour}" fill-opacity="{BAR_OPACITY}"/>'
        )
    else:
        shape = _symbol(mark.series, x, y, 3.5 if few else 2.0)
    if mark.low is not None and mark.high is not None and kind != "line":
        cap, high, low = min(6.0, max(1.5, thick / 4)), down(mark.high), down(mark.low)
        shape += (
            f'<path class="interval" d="M{x - cap:.1f},{high:.1f}h{2 * cap:.1f}M{x:.1f},{high:.1f}V{low:.1f}'
            f'M{x - cap:.1f},{low:.1f}h{2 * cap:.1f}" fill="none" stroke="currentColor" stroke-width="1.4"/>'
        )
    return f'<g class="mark"><title>{escape(mark.told)}</title>{shape}</g>'


def _crowd(
    marks: Sequence[Mark], kind: ChartKind, across: Callable[[Mark], float], down: Scale, step: float
) -> list[str]:
    """More marks than can be told apart: their intervals become a band without ends."""
    if kind == "line" or not marks:
        return []
    colour, thick, zero = COLOURS[marks[0].series], max(1.0, min(6.0, step * 0.8)), down(0.0)
    whiskers = "".join(
        f"M{across(mark):.1f},{down(mark.high):.1f}V{down(mark.low):.1f}"
        for mark in marks
        if mark.low is not None and mark.high is not None
    )
    if kind == "bar":
        values = "".join(f"M{across(mark):.1f},{zero:.1f}V{down(mark.value):.1f}" for mark in marks)
        stroke = f'stroke-width="{thick:.1f}"'
        return [
            f'<path class="bars" d="{values}" stroke="{colour}" {stroke}/>',
            f'<path class="band" d="{whiskers}" stroke="currentColor" stroke-opacity="0.35" {stroke}/>',
        ]
    values = "".join(f"M{across(mark):.1f},{down(mark.value):.1f}h0" for mark in marks)
    return [
        f'<path class="band" d="{whiskers}" stroke="{colour}" stroke-width="{thick:.1f}" stroke-opacity="0.3"/>',
        f'<path class="dots" d="{values}" stroke="{colour}" stroke-width="3.5" stroke-linecap="round"/>',
    ]


def _line(
    marks: Sequence[Mark], across: Callable[[Mark], float], down: Scale, *, closest: float, shade: float
) -> list[str]:
    """A line with its intervals as an area; dashes say that between two keys nothing is known."""
    if not marks:
        return []
    runs, colour = [[marks[0]]], COLOURS[marks[0].series]
    for before, mark in pairwise(marks):
        if (mark.place or 0.0) - (before.place or 0.0) > GAP * closest:
            runs.append([])
        runs[-1].append(mark)
    parts = []
    for run in runs:
        upper = [f"{across(mark):.1f},{down(mark.high):.1f}" for mark in run if mark.high is not None]
        lower = [f"{across(mark):.1f},{down(mark.low):.1f}" for mark in reversed(run) if mark.low is not None]
        if len(upper) == len(lower) == len(run):
            area = f'd="M{"L".join([*upper, *lower])}Z" fill="{colour}" fill-opacity="{shade}"'
            if across(run[-1]) - across(run[0]) < THINNEST:
                # one key alone, or two that are very close, would be no area
                area += f' stroke="{colour}" stroke-opacity="0.3" stroke-width="3"'
            parts.append(f'<path class="band" {area}/>')
    points = [[f"{across(mark):.1f},{down(mark.value):.1f}" for mark in run] for run in runs]
    dashed = "".join(f"M{one[-1]}L{two[0]}" for one, two in pairwise(points))
    if dashed:
        parts.append(
            f'<path class="gap" d="{dashed}" fill="none" stroke="{colour}" stroke-opacity="0.7" '
            'stroke-dasharray="3 4"/>'
        )
    # a point of its own is a stroke of no length, which has round ends
    solid = "".join("M" + "L".join(run) + ("h0" if len(run) == 1 else "") for run in points)
    parts.append(
        f'<path class="line" d="{solid}" fill="none" stroke="{colour}" stroke-width="2" stroke-linecap="round"/>'
    )
    return parts


def _labels(panel: Panel, across: Callable[[Mark], float], width: int, y: float) -> tuple[list[str], float]:
    """As many labels as have room, and by how much the drawing grows for them.

    Keys in their order are read between two labels as well; others are slanted, so that more have room.
    """
    places: dict[int, list[float]] = {}
    texts = {mark.slot: mark.label for mark in panel.marks}
    for mark in panel.marks:
        places.setdefault(mark.slot, []).append(across(mark))
    slots = sorted(places, key=lambda slot: sum(places[slot]) / len(places[slot]))
    middles = [sum(places[slot]) / len(places[slot]) for slot in slots]
    shown = [cut(texts[slot], width / 3) for slot in slots]
    widths = [width_of(text) for text in shown]
    fitting = spread(middles, widths, 0, width)
    if panel.placed or len(fitting) == len(slots):
        kept = _regular(middles, shown, widths, width) if panel.even else fitting
        return [_text(shown[index], x, y, "middle") for index, x in kept], 0.0
    parts, last, deepest = [], -math.inf, 0.0
    for x, slot in zip(middles, slots, strict=True):
        if x - last >= LINE_HEIGHT / SIN:
            # what would begin left of the drawing is cut
            text, last = cut(texts[slot], min(LONGEST_SLANTED, (x - LINE_HEIGHT) / COS)), x
            deepest = max(deepest, width_of(text) * SIN)
            parts.append(_text(text, x, y, "end", turn=f' transform="rotate(-{TURN:g} {x:.1f} {y:.1f})"'))
    return parts, max(0.0, deepest - 6)


def _regular(
    middles: Sequence[float], texts: Sequence[str], widths: Sequence[float], width: int
) -> list[tuple[int, float]]:
    """Every second label, or every fifth, and so on: the first distance at which all have room."""
    counted = all(text.lstrip("-").isdigit() for text in texts)
    for every in EVERY_NUMBER if counted else EVERY_TIME:
        # 0, 5, 10 rather than 1, 6, 11
        first = next((i for i in range(min(every, len(texts))) if counted and int(texts[i]) % every == 0), 0)
        chosen = range(first, len(texts), every)
        found = spread([middles[i] for i in chosen], [widths[i] for i in chosen], 0, width)
        if len(found) == len(chosen):
            return [(chosen[place], x) for place, x in found]
    return [(0, middles[0])]


# ---------------------------------------------------------------------- keys below each other


def _lying(panel: Panel, kind: ChartKind, width: int) -> str:
    """A row for each key: its name, and a bar from left to right."""
    longest = max(width_of(mark.label) for mark in panel.marks)
    beside = longest <= LABELS * width or width >= WIDTH
    axis = _axis(panel, kind, wanted=4 if width < WIDTH else 5)
    texts = axis.texts
    edge = width_of(texts[0]) / 2
    left = max(edge, min(longest, LABELS * width) + 10 if beside else 2.0)
    head, top = _head(panel, width)
    across = Scale(axis.low, axis.high, left, width - max(RIGHT, width_of(texts[-1]) / 2 + 2))
    row = ROW if beside else TALL_ROW
    bottom = top + row * len(panel.marks)
    parts = []
    for tick in axis.ticks:
        x = across(tick)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="currentColor" '
            f'stroke-opacity="{0.45 if tick == 0 else 0.15}"/>'
        )
    ticks = [across(tick) for tick in axis.ticks]
    for index, x in spread(ticks, [width_of(text) for text in texts], 0, width):
        parts.append(_text(texts[index], x, bottom + 16, "middle"))
    for place, mark in enumerate(panel.marks):
        y = top + row * (place + 1) - ROW / 2
        if beside:
            parts.append(_text(cut(mark.label, left - 10), left - 8, y + 4, "end"))
        else:
            parts.append(_text(cut(mark.label, width - left), left, y - ROW / 2 - 1, "start"))
        parts.append(_lying_mark(mark, kind, across, y))
    return _svg(panel, width, bottom + BOTTOM, [*head, *parts])


def _lying_mark(mark: Mark, kind: ChartKind, across: Scale, y: float) -> str:
    x, zero = across(mark.value), across(0.0)
    if kind == "bar":
        shape = (
            f'<rect x="{min(x, zero):.1f}" width="{abs(x - zero):.1f}" y="{y - THICK / 2:.1f}" height="{THICK}" rx="2" '
            f'fill="{FILL}" fill-opacity="{BAR_OPACITY}"/>'
        )
    else:
        shape = _symbol(mark.series, x, y, 3.5)
    if mark.low is not None and mark.high is not None:
        low, high = across(mark.low), across(mark.high)
        shape += (
            f'<path class="interval" d="M{low:.1f},{y - 3.5:.1f}v7M{low:.1f},{y:.1f}H{high:.1f}'
            f'M{high:.1f},{y - 3.5:.1f}v7" fill="none" stroke="currentColor" stroke-width="1.4"/>'
        )
    return f'<g class="mark"><title>{escape(mark.told)}</title>{shape}</g>'


# ---------------------------------------------------------------------- both


def _axis(panel: Panel, kind: ChartKind, *, wanted: int) -> ChartAxis:
    ends = [end for mark in panel.marks for end in (mark.value, mark.low, mark.high) if end is not None]
    low, high = min(ends), max(ends)
    if kind == "bar" or (low > 0 and low < 0.5 * high):
        low, high = min(0.0, low), max(0.0, high)
    return ChartAxis.over(low, high, wanted=wanted)


def _head(panel: Panel, width: int) -> tuple[list[str], float]:
    """The column's name, what there is to say about it, and which colour is whose; and where it ends."""
    name = cut(panel.name, width - 4, bold=True)
    parts = [f'<text x="0" y="15" font-weight="600">{escape(name)}</text>']
    y, x = 15, width_of(name, bold=True) + 12
    for note in panel.notes:
        if x + width_of(note) > width:
            x, y = 0.0, y + LINE_HEIGHT
        parts.append(_text(cut(note, width - x), x, y, "start"))
        x += width_of(note) + 12
    x = width + 1.0
    for series, text in enumerate(panel.series):
        shown = cut(text, min(260.0, width - 24))
        if x + 16 + width_of(shown) > width:
            x, y = 0.0, y + LINE_HEIGHT + 1
        parts.append(_symbol(series, x + 5, y - 4.0, 4.0))
        parts.append(_text(shown, x + 15, y, "start"))
        x += 15 + width_of(shown) + 14
    return parts, y - 15.0 + TOP + (4.0 if panel.series else 0.0)


def _svg(panel: Panel, width: int, height: float, parts: Iterable[str]) -> str:
    told = escape(panel.told)
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{told}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"><title>{told}</title>'
        + "".join(parts)
        + "</svg>"
    )


def _text(text: str, x: float, y: float, anchor: str, *, turn: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill-opacity="0.8"{turn}>{escape(text)}</text>'


def _symbol(series: int, x: float, y: float, r: float) -> str:
    """A shape and a colour for each series, since not everybody can tell the colours apart."""
    colour = f'fill="{COLOURS[series]}"'
    if series == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" {colour}/>'
    long, arm = 1.3 * r, r / 1.5
    around = {
        1: f"M{x - r:.1f},{y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}z",
        2: f"M{x:.1f},{y - r:.1f}l{r:.1f},{2 * r:.1f}h{-2 * r:.1f}z",
        3: f"M{x:.1f},{y - long:.1f}l{long:.1f},{long:.1f}l{-long:.1f},{long:.1f}l{-long:.1f},{-long:.1f}z",
        4: f"M{x:.1f},{y + r:.1f}l{r:.1f},{-2 * r:.1f}h{-2 * r:.1f}z",
        5: (
            f"M{x - r:.1f},{y - arm / 2:.1f}h{2 * r:.1f}v{arm:.1f}h{-2 * r:.1f}z"
            f"M{x - arm / 2:.1f},{y - r:.1f}h{arm:.1f}v{2 * r:.1f}h{-arm:.1f}z"
        ),
    }
    return f'<path d="{around[series]}" {colour}/>'


def _by_series(panel: Panel) -> list[list[Mark]]:
    """The marks of each series; those with places in their order."""
    marks = sorted(panel.marks, key=lambda mark: mark.place or 0.0) if panel.placed else panel.marks
    return [[mark for mark in marks if mark.series == one] for one in range(max(1, len(panel.series)))]


def _gaps(marks: Iterable[Mark]) -> list[float]:
    places = sorted({mark.place for mark in marks if mark.place is not None})
    return [after - before for before, after in pairwise(places)]
