"""Noisy columns with their intervals as SVG text, for pages and notebooks; budgets are drawn in meters.py.

Nothing here needs a library, a script or a style sheet: colours are see-through or the reader's own text colour, so
that a drawing reads well on light and dark pages. What is drawn was released before, so drawing is free.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dither.drawings.panels import WIDTH, ChartKind, Drawing, Mark, Panel, draw_panel
from dither.drawings.svg_axes import COLOURS, LARGEST
from dither.drawings.texts import ShownInterval, ValueText, cell, column_texts, plain

MOST_BARS, MOST_POINTS, MOST_TOGETHER, MOST_PANELS = 40, 400, 300, 8
# More rows than this aren't looked at.
MOST_ROWS = 20_000
LONGEST_NOTE = 60
MIDNIGHT = " 00:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowLabels:
    """What tells the rows apart: for each row its texts, its place along an axis if it has one, and its series."""

    rows: tuple[int, ...]
    labels: Sequence[str]
    told: Sequence[str]
    places: Sequence[float | None]
    slots: Sequence[int]
    lines: Sequence[int]
    series: tuple[str, ...]
    notes: tuple[str, ...]


def draw(
    table: pa.Table,
    intervals: Mapping[str, ShownInterval],
    *,
    confidence: float,
    kind: ChartKind | None = None,
    width: int = WIDTH,
) -> Drawing:
    """The noisy columns of a table, those that ``intervals`` names, as panels of this width; those with ends first.

    ``kind`` is chosen where it isn't given: a line over times and numbers, bars for a few keys, dots for many and
    where keys are missing between others. Two keys become a line for each value of one along the other.
    """
    keys = _keys(table, intervals)
    noisy = [name for name in table.column_names if name in intervals and _numeric(table, name)]
    noisy.sort(key=lambda name: intervals[name].low is None)
    columns = [(name, marks) for name in noisy if (marks := _marks(table.column(name), name, intervals[name], keys))]
    # one number is read more easily than drawn
    columns = [(name, marks) for name, marks in columns if len(marks) > 1 or kind is not None]
    more = len(columns) - MOST_PANELS
    panels = [
        _panel(name, intervals[name], marks, keys, confidence, more=more if place == MOST_PANELS - 1 else 0)
        for place, (name, marks) in enumerate(columns[:MOST_PANELS])
    ]
    if not panels:
        return Drawing()
    kinds: tuple[ChartKind, ...] = ("bar", "line", "dot") if all(panel.placed for panel in panels) else ("bar", "dot")
    drawn = _suitable(panels[0]) if kind is None else kind if kind in kinds else "dot"
    return Drawing(tuple(draw_panel(panel, drawn, width) for panel in panels), drawn, kinds)


def _suitable(panel: Panel) -> ChartKind:
    if panel.placed and panel.slots > 2:
        # a line through keys that aren't there would tell what nobody knows
        return "line" if panel.even else "dot"
    return "bar" if len(panel.marks) <= MOST_BARS else "dot"


def _panel(
    name: str, bars: ShownInterval, marks: tuple[Mark, ...], keys: _RowLabels, confidence: float, *, more: int
) -> Panel:
    notes = list(keys.notes)
    told = f"{cell(name)}: {len(marks)} noisy values"
    if bars.low is not None:
        told += f" with {100 * confidence:g}% intervals"
    else:
        notes.insert(0, f"no interval: {bars.text}" if 0 < len(bars.text) <= LONGEST_NOTE else "no interval")
    if more > 0:
        notes.append(f"{more} more column{'' if more == 1 else 's'} in the table only")
    return Panel(name=cell(name), told=told, notes=tuple(notes), series=keys.series, marks=marks)


# ---------------------------------------------------------------------- keys


def _keys(whole: pa.Table, noisy: Container[str]) -> _RowLabels:
    table = whole.slice(0, MOST_ROWS)
    columns = {name: table.column(name).to_pylist() for name in _telling(table, noisy)}
    texts = {name: _texts(values) for name, values in columns.items()}
    size = table.num_rows
    told = [" · ".join(parts) for parts in zip(*texts.values(), strict=True)] or [""] * size
    two = _axis_and_series(columns)
    if two is not None:
        return _two_keys(*two, columns, texts, told)
    rows = tuple(range(min(size, MOST_POINTS)))
    notes = () if whole.num_rows <= len(rows) else (f"first {len(rows):,} of {whole.num_rows:,} rows",)
    only = next(iter(columns.values())) if len(columns) == 1 else None
    places = [None] * size if only is None else [_place(value) for value in only]
    return _RowLabels(
        rows=rows, labels=told, told=told, places=places, slots=range(size), lines=[0] * size, series=(), notes=notes
    )


def _telling(table: pa.Table, noisy: Container[str]) -> list[str]:
    """The first columns without noise that tell all rows apart: what follows them adds nothing to a label."""
    found: list[str] = []
    seen: set[Any] = set()
    for name in table.column_names:
        if name in noisy:
            continue
        found.append(name)
        seen = set(zip(*(table.column(one).to_pylist() for one in found), strict=True))
        if len(seen) == table.num_rows:
            break
    return found


def _axis_and_series(columns: dict[str, list[Any]]) -> tuple[str, str] | None:
    """Of two keys, the one with places along which the other is drawn, in lines of their own."""
    if len(columns) != 2:
        return None
    sizes = {name: len(set(values)) for name, values in columns.items()}
    placed = [name for name, values in columns.items() if all(_place(value) is not None for value in values)]
    if not placed:
        return None
    axis = max(placed, key=lambda name: sizes[name])
    (series,) = (name for name in columns if name != axis)
    return (axis, series) if sizes[axis] > 2 and sizes[series] > 1 else None


def _two_keys(
    axis: str, series: str, columns: dict[str, list[Any]], texts: dict[str, list[str]], told: Sequence[str]
) -> _RowLabels:
    places = [_place(value) for value in columns[axis]]
    order = {place: slot for slot, place in enumerate(sorted({place for place in places if place is not None}))}
    names = list(dict.fromkeys(texts[series]))
    lines = [names.index(text) for text in texts[series]]
    slots = [order[place or 0.0] for place in places]
    # few enough that the lines can be told apart, and at least two, since they are there to be compared
    most = max(2, min(len(COLOURS), MOST_TOGETHER // len(order)))
    rows = tuple(
        row for row, (line, slot) in enumerate(zip(lines, slots, strict=True)) if line < most and slot < MOST_POINTS
    )
    notes = []
    if len(names) > most:
        notes.append(f"first {most} of {len(names):,} values of {cell(series)}")
    if len(order) > MOST_POINTS:
        notes.append(f"first {MOST_POINTS:,} of {len(order):,} values of {cell(axis)}")
    return _RowLabels(
        rows=rows,
        labels=texts[axis],
        told=told,
        places=places,
        slots=slots,
        lines=lines,
        series=tuple(names[:most]),
        notes=tuple(notes),
    )


def _texts(values: Sequence[Any]) -> list[str]:
    """Keys as texts; days that come as times are shown as days."""
    texts = [plain(value) for value in values]
    if all(isinstance(value, dt.datetime | None) for value in values) and all(
        text.endswith(MIDNIGHT) for text, value in zip(texts, values, strict=True) if value is not None
    ):
        return [text.removesuffix(MIDNIGHT) for text in texts]
    return texts


def _place(value: Any) -> float | None:
    """Where a key lies on a line, if it does."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC).timestamp() if value.tzinfo is None else value.timestamp()
    if isinstance(value, dt.date):
        return float(value.toordinal() * 86400)
    if isinstance(value, int | float) and not isinstance(value, bool) and _drawable(value):
        return float(value)
    return None


# ---------------------------------------------------------------------- values


def _numeric(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _marks(column: pa.ChunkedArray[Any], name: str, bars: ShownInterval, keys: _RowLabels) -> tuple[Mark, ...]:
    values, texts = column.slice(0, MOST_ROWS).to_pylist(), column_texts(column, bars, MOST_ROWS)
    marks: list[Mark] = []
    for row in keys.rows:
        value = values[row]
        if value is None or not _drawable(value):
            continue
        low = high = None
        if bars.low is not None and bars.high is not None:
            low, high = float(bars.low[row]), float(bars.high[row])
        drawable = low is not None and high is not None and _drawable(low) and _drawable(high)
        marks.append(
            Mark(
                label=keys.labels[row] or cell(name),
                told=_told(keys.told[row] or cell(name), texts[row]),
                place=keys.places[row],
                # a key alone leaves no room empty for a value that can't be drawn
                slot=keys.slots[row] if keys.series else len(marks),
                series=keys.lines[row],
                value=float(value),
                low=low if drawable else None,
                high=high if drawable else None,
            )
        )
    return tuple(marks)


def _told(label: str, text: ValueText) -> str:
    return f"{label}: {text.value}" + (f" ({text.low} to {text.high})" if text.low else "")


def _drawable(value: float) -> bool:
    # NaN is below nothing; beyond this, differences of two values overflow
    return abs(value) < LARGEST
