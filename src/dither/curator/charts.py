"""Drawings as SVG text: answers with their error bars, budgets that burn down, and a meter; for pages and notebooks.

Nothing here needs a library, a script or a style sheet: colours are see-through or the reader's own text colour, so
that a drawing reads well on light and dark pages. What is drawn was released before, so drawing is free.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from dither.curator.answer import Answer, cell, number

ChartKind: TypeAlias = Literal["bar", "line", "dot"]

WIDTH, HEIGHT = 680, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 26, 46
MOST_BARS, MOST_LABELS, LONGEST_LABEL = 40, 14, 16
MOST_POINTS, MOST_PANELS = 400, 4
FILL, LINE = "#3182bd", "#3182bd"
PENDING = "#e6a23c"
# Values from here on can't be drawn; values that differ by less than this share are drawn as alike.
LARGEST, SMALLEST_SPAN = 1e300, 1e-12


class Spent(Protocol):
    """A point of a burn-down: when, whose account, and which share of its budget was used up."""

    @property
    def at(self) -> str:
        """The time, ISO 8601."""

    @property
    def account(self) -> str:
        """The account's path."""

    @property
    def share(self) -> float | None:
        """The share of the budget that was used up; None without a budget."""


@dataclass(frozen=True, slots=True)
class _Point:
    label: str
    place: float | None
    value: float
    low: float | None
    high: float | None


def answer_chart(answer: Answer, *, kind: ChartKind | None = None) -> str:
    """An answer's noisy columns with their intervals, one drawing below the other; empty if there is none to draw.

    ``kind`` is chosen where it isn't given: a line over times and numbers, bars for a few keys, dots for many.
    """
    noisy = [name for name in answer.table.column_names if name in answer.bars and _numeric(answer.table, name)]
    keys = [name for name in answer.table.column_names if name not in answer.bars]
    drawn = []
    for name in noisy[:MOST_PANELS]:
        points = _points(answer, name, keys)
        # one number is read more easily than drawn
        if len(points) > 1 or (points and kind is not None):
            drawn.append(_panel(cell(name), points, answer.confidence, kind or _suitable(points)))
    return "\n".join(drawn)


def burn_down(history: Sequence[Spent]) -> str:
    """What is left of each budget over time, one drawing for each account; empty if nothing was spent."""
    accounts: dict[str, list[Spent]] = {}
    for point in history:
        if point.share is not None:
            accounts.setdefault(point.account, []).append(point)
    return "\n".join(_burning(account, points) for account, points in accounts.items())


def meter(share: float, pending: float = 0.0) -> str:
    """A budget as a bar: the used part full, what a question would take hatched, the rest empty."""
    used = min(1.0, max(0.0, share))
    more = min(1.0 - used, max(0.0, pending))
    width, height = 240, 12
    over = pending > 1.0 - used + 1e-9
    told = f"{_percent(used)} of the budget is used up"
    if pending > 0:
        told += f"; this question would take {_percent(pending)}" + (", which is more than is left" if over else "")
    parts = [
        f'<svg class="meter" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(told)}">',
        f"<title>{escape(told)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{FILL}" fill-opacity="0.15"/>',
        f'<rect class="used" width="{width * used:.2f}" height="{height}" rx="6" fill="{FILL}" fill-opacity="0.75"/>',
    ]
    if pending > 0:
        # only where it is used: an id may be on a page once
        parts.append(
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{PENDING}" fill-opacity="0.35"/>'
            f'<rect width="3" height="6" fill="{PENDING}"/></pattern></defs>'
            f'<rect class="pending" x="{width * used:.2f}" width="{width * more:.2f}" height="{height}" '
            'fill="url(#hatch)"/>'
        )
    return "".join(parts) + "</svg>"


# ---------------------------------------------------------------------- what to draw


def _numeric(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _points(answer: Answer, name: str, keys: Sequence[str]) -> list[_Point]:
    table = answer.table.slice(0, MOST_POINTS)
    bars = answer.bars[name]
    rows = list(zip(*(table.column(key).to_pylist() for key in keys), strict=True)) or [()] * table.num_rows
    points = []
    for index, (row, value) in enumerate(zip(rows, table.column(name).to_pylist(), strict=True)):
        if value is None or not _drawable(value):
            continue
        low = high = None
        if bars.low is not None and bars.high is not None:
            low, high = float(bars.low[index]), float(bars.high[index])
        label = " · ".join(cell(part) for part in row) or name
        drawable = low is not None and high is not None and _drawable(low) and _drawable(high)
        points.append(
            _Point(
                label,
                _place(row[0]) if len(row) == 1 else None,
                float(value),
                low if drawable else None,
                high if drawable else None,
            )
        )
    return points


def _drawable(value: float) -> bool:
    # NaN is below nothing; beyond this, differences of two values overflow
    return abs(value) < LARGEST


def _place(value: Any) -> float | None:
    """Where a key lies on a line, if it does."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC).timestamp() if value.tzinfo is None else value.timestamp()
    if isinstance(value, dt.date):
        return float(value.toordinal() * 86400)
    if isinstance(value, int | float) and not isinstance(value, bool) and _drawable(value):
        return float(value)
    return None


def _suitable(points: Sequence[_Point]) -> ChartKind:
    if len(points) > 2 and all(point.place is not None for point in points):
        return "line"
    return "bar" if len(points) <= MOST_BARS else "dot"


# ---------------------------------------------------------------------- drawing


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.5)


def _panel(name: str, points: Sequence[_Point], confidence: float, kind: ChartKind) -> str:
    if kind == "line" and any(point.place is None for point in points):
        kind = "dot"
    if kind == "line":
        points = sorted(points, key=lambda point: point.place or 0.0)
    ends = [end for point in points for end in (point.value, point.low, point.high) if end is not None]
    low, high = min(ends), max(ends)
    if kind == "bar" or (low > 0 and low < 0.5 * high):
        low, high = min(0.0, low), max(0.0, high)
    ticks = _ticks(low, high)
    down = _Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    across = _across(points, kind)
    told = f"{name}: {len(points)} noisy values"
    if any(point.low is not None for point in points):
        told += f" with {100 * confidence:g}% intervals"
    parts = [
        (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}" '
            'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        ),
        f"<title>{escape(told)}</title>",
        f'<text x="{LEFT}" y="15" font-weight="600">{escape(name)}</text>',
        *_grid(ticks, down),
    ]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    if kind == "line":
        parts.append(_band(points, across, down))
        path = "L".join(f"{x:.1f},{down(point.value):.1f}" for point, x in zip(points, across, strict=True))
        parts.append(f'<path class="line" d="M{path}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    for point, x in zip(points, across, strict=True):
        parts.append(_mark(point, x, down, kind, width=min(64.0, step * 0.6), many=len(points) > MOST_BARS))
    parts += _labels(points, across)
    return "".join(parts) + "</svg>"


def _across(points: Sequence[_Point], kind: ChartKind) -> list[float]:
    if kind == "line":
        places = [point.place or 0.0 for point in points]
        scale = _Scale(min(places), max(places), LEFT + 8, WIDTH - RIGHT - 8)
        return [scale(place) for place in places]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    return [LEFT + step * (index + 0.5) for index in range(len(points))]


def _grid(ticks: Sequence[float], down: _Scale) -> list[str]:
    parts = []
    for tick in ticks:
        y = down(tick)
        weight = "0.45" if tick == 0 else "0.15"
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-opacity="{weight}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill-opacity="0.7">{escape(_tick(tick))}</text>'
        )
    return parts


def _band(points: Sequence[_Point], across: Sequence[float], down: _Scale) -> str:
    """The intervals of a line as one area, where every point has one."""
    if any(point.low is None or point.high is None for point in points):
        return ""
    upper = [f"{x:.1f},{down(point.high or 0.0):.1f}" for point, x in zip(points, across, strict=True)]
    lower = [f"{x:.1f},{down(point.low or 0.0):.1f}" for point, x in zip(points, across, strict=True)]
    return f'<path class="band" d="M{"L".join([*upper, *reversed(lower)])}Z" fill="{FILL}" fill-opacity="0.18"/>'


def _mark(point: _Point, x: float, down: _Scale, kind: ChartKind, *, width: float, many: bool) -> str:
    told = f"{point.label}: {number(point.value)}"
    if point.low is not None and point.high is not None:
        told += f" ({number(point.low)} to {number(point.high)})"
    y = down(point.value)
    parts = [f'<g class="mark"><title>{escape(told)}</title>']
    if kind == "bar":
        zero = down(0.0)
        parts.append(
            f'<rect x="{x - width / 2:.1f}" width="{width:.1f}" y="{min(y, zero):.1f}" height="{abs(zero - y):.1f}" '
            f'rx="2" fill="{FILL}" fill-opacity="0.55"/>'
        )
    elif kind == "dot" or not many:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 if many else 3.5}" fill="{LINE}"/>')
    if point.low is not None and point.high is not None and (kind != "line"):
        cap = min(6.0, max(1.5, width / 4))
        parts.append(
            f'<path class="interval" d="M{x - cap:.1f},{down(point.high):.1f}h{2 * cap:.1f}M{x:.1f},'
            f'{down(point.high):.1f}V{down(point.low):.1f}M{x - cap:.1f},{down(point.low):.1f}h{2 * cap:.1f}" '
            'fill="none" stroke="currentColor" stroke-width="1.4"/>'
        )
    return "".join(parts) + "</g>"


def _labels(points: Sequence[_Point], across: Sequence[float]) -> list[str]:
    """As many labels as have room, slanted where they are long."""
    every = max(1, math.ceil(len(points) / MOST_LABELS))
    shown = [
        (point.label, x) for index, (point, x) in enumerate(zip(points, across, strict=True)) if index % every == 0
    ]
    room = (WIDTH - LEFT - RIGHT) / max(1, len(shown))
    slanted = any(7 * len(label) > room for label, _ in shown)
    parts = []
    for label, x in shown:
        text = escape(label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…")
        y = HEIGHT - BOTTOM + 18
        turn = f' transform="rotate(-22 {x:.1f} {y})" text-anchor="end"' if slanted else ' text-anchor="middle"'
        parts.append(f'<text x="{x:.1f}" y="{y}"{turn} fill-opacity="0.8">{text}</text>')
    return parts


def _burning(account: str, points: Sequence[Spent]) -> str:
    times = [dt.datetime.fromisoformat(point.at).timestamp() for point in points]
    left = [max(0.0, 1.0 - (point.share or 0.0)) for point in points]
    height = 150
    # the first and the last step stay clear of the edges; one alone is in the middle
    across = _Scale(times[0], times[-1], LEFT + 36, WIDTH - RIGHT - 36)
    down = _Scale(0.0, 1.0, height - 28, TOP)
    path = f"M{LEFT},{down(1.0):.1f}" + "".join(
        f"H{across(time):.1f}V{down(rest):.1f}" for time, rest in zip(times, left, strict=True)
    )
    told = f"{account}: {_percent(left[-1])} of the budget is left"
    parts = [
        (
            f'<svg class="chart burn" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}" '
            'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        ),
        f"<title>{escape(told)}</title>",
        (
            f'<text x="{LEFT}" y="15"><tspan font-weight="600">{escape(account)}</tspan>'
            f'<tspan dx="8" fill-opacity="0.7">{_percent(left[-1])} left</tspan></text>'
        ),
    ]
    for part in (0.0, 0.5, 1.0):
        y = down(part)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-opacity="0.15"/><text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill-opacity="0.7">'
            f"{_percent(part)}</text>"
        )
    end = WIDTH - RIGHT
    parts.append(f'<path d="{path}H{end}V{down(0.0):.1f}H{LEFT}Z" fill="{FILL}" fill-opacity="0.18"/>')
    parts.append(f'<path d="{path}H{end}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    first, last = (escape(point.at[:16].replace("T", " ")) for point in (points[0], points[-1]))
    ends = [("start", LEFT, first), ("end", end, last)] if first != last else [("middle", (LEFT + end) / 2, first)]
    for anchor, x, shown in ends:
        parts.append(f'<text x="{x:g}" y="{height - 8}" text-anchor="{anchor}" fill-opacity="0.7">{shown}</text>')
    return "".join(parts) + "</svg>"


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers around an interval, about five of them.

    Example:
        >>> _ticks(0, 97), _ticks(-3, 4)
        ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [-4.0, -2.0, 0.0, 2.0, 4.0])
    """
    span, size = high - low, max(abs(low), abs(high))
    if span <= size * SMALLEST_SPAN or span < 1 / LARGEST:
        span = size if size > 1 / LARGEST else 1.0
        low, high = low - span / 2, high + span / 2
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, last + 1)]


def _tick(value: float) -> str:
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            divisor = unit / 10 if name == "k" else unit
            return f"{value / divisor:g}{name}"
    return f"{round(value, 10):g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
