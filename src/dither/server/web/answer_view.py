"""An answer as the page shows it: rows with intervals, and how to draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dither.curator import Answer
from dither.drawings.panels import ChartKind
from dither.drawings.texts import ValueText

MOST_ROWS = 500
KINDS: tuple[ChartKind, ...] = ("bar", "line", "dot")
# An error in words that is longer stands below the table only.
LONGEST_ERROR = 32
SHORT = 12
RANKS = (
    "Ranks are places when all rows of a group are sorted by the value: the one shown is at most so many places away "
    "from the one that was asked for."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    """A column's name, whether it has noise and intervals, and whether it holds numbers, which stand to the right.

    ``short`` values aren't broken, as dates would be at their dashes. ``twice`` says that every interval is also said
    with ±, so that a narrow page can do without.
    """

    name: str
    noisy: bool
    intervals: bool
    number: bool
    short: bool
    twice: bool


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A value as text; a noisy one with its interval, and half of its width where the value is in the middle.

    ``interval`` says the error in words where it isn't an interval. ``drowned`` says that the interval holds 0, so that
    the value can't be told from nothing.
    """

    text: str
    half: str = ""
    interval: str = ""
    drowned: bool = False


def shown_answer(answer: Answer, *, kind: ChartKind | None = None) -> dict[str, Any]:
    """What the templates need of an answer; ``kind`` is how to draw it, if somebody chose."""
    table = answer.table.slice(0, MOST_ROWS)
    columns = [_cells(answer, name) for name in table.column_names]
    names = [_column(answer, name, cells) for name, cells in zip(table.column_names, columns, strict=True)]
    return {
        "answer": answer,
        "names": names,
        "rows": list(zip(*columns, strict=True)),
        "more_rows": answer.table.num_rows - table.num_rows,
        "kind": kind,
        "mostly_noise": _mostly_noise(answer, columns),
        "texts": [(name, _words(bars.text)) for name, bars in answer.bars.items() if bars.low is None and bars.text],
    }


def _column(answer: Answer, name: str, cells: list[ShownCell]) -> ShownColumn:
    bars, kind = answer.bars.get(name), answer.table.schema.field(name).type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return ShownColumn(
        name=name,
        noisy=bars is not None,
        intervals=bars is not None and bars.low is not None,
        # keys stand to the left, as names do
        number=bars is not None and number,
        short=all(len(one.text) <= SHORT for one in cells),
        twice=any(one.half for one in cells) and all(one.half or not one.interval for one in cells),
    )


def _cells(answer: Answer, name: str) -> list[ShownCell]:
    bars, texts = answer.bars.get(name), answer.texts(name, MOST_ROWS)
    if bars is None:
        return [ShownCell(text.value) for text in texts]
    if bars.low is None or bars.high is None:
        words = bars.text if len(bars.text) <= LONGEST_ERROR else "see below"
        return [ShownCell(text.value, interval=words) for text in texts]
    return [_noisy(text, drowned=low <= 0 <= high) for text, low, high in zip(texts, bars.low, bars.high, strict=False)]


def _noisy(text: ValueText, *, drowned: bool) -> ShownCell:
    if not text.low:
        return ShownCell(text.value)
    # ± would say another interval than the one beside it, where the value isn't in the middle
    return ShownCell(text.value, text.half if text.around else "", f"{text.low} … {text.high}", bool(drowned))


def _words(text: str) -> str:
    return f"{text}. {RANKS}" if text.endswith(" ranks") else f"{text}."


def _mostly_noise(answer: Answer, columns: list[list[ShownCell]]) -> bool:
    """Whether more than half of the values with intervals can't be told from nothing."""
    named = zip(answer.table.column_names, columns, strict=True)
    told = [one.drowned for name, cells in named if name in answer.error for one in cells if one.interval]
    return 2 * sum(told) > len(told)
