"""An answer as the page shows it: rows with intervals, a drawing, and where to download it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dither.curator import Answer
from dither.curator.answer import cell, number
from dither.curator.charts import ChartKind, answer_chart

MOST_ROWS = 500
KINDS: tuple[ChartKind, ...] = ("bar", "line", "dot")


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A value as text; a noisy one with its interval, and half of its width where the value is in the middle.

    ``drowned`` says that the interval holds 0, so that the value can't be told from nothing.
    """

    text: str
    half: str = ""
    interval: str = ""
    noisy: bool = False
    drowned: bool = False


def shown_answer(answer: Answer, *, kind: ChartKind | None = None) -> dict[str, Any]:
    """What the templates need of an answer; ``kind`` is how to draw it, if somebody chose."""
    table = answer.table.slice(0, MOST_ROWS)
    columns = [_cells(answer, name, table.column(name).to_pylist()) for name in table.column_names]
    return {
        "answer": answer,
        "names": [(name, name in answer.bars) for name in table.column_names],
        "rows": list(zip(*columns, strict=True)),
        "more_rows": answer.table.num_rows - table.num_rows,
        "drawing": answer_chart(answer, kind=kind),
        "kind": kind,
        "kinds": KINDS,
        "mostly_noise": _mostly_noise(columns),
        "texts": [(name, bars.text) for name, bars in answer.bars.items() if bars.low is None and bars.text],
    }


def _cells(answer: Answer, name: str, values: list[Any]) -> list[ShownCell]:
    bars = answer.bars.get(name)
    cells = []
    for index, value in enumerate(values):
        if bars is None:
            cells.append(ShownCell(cell(value)))
        elif bars.low is None or bars.high is None or value is None:
            cells.append(ShownCell(cell(value), noisy=True))
        else:
            low, high = float(bars.low[index]), float(bars.high[index])
            half = (high - low) / 2
            # an interval that was cut at a bound isn't around its value: ± would say another one
            around = abs(float(value) - low - half) <= 1e-9 * max(abs(low), abs(high))
            between = f"{number(low)} … {number(high)}"
            drowned = low <= 0 <= high
            cells.append(ShownCell(cell(value), number(half) if around else "", between, noisy=True, drowned=drowned))
    return cells


def _mostly_noise(columns: list[list[ShownCell]]) -> bool:
    """Whether more than half of the values with intervals can't be told from nothing."""
    told = [one.drowned for cells in columns for one in cells if one.interval]
    return 2 * sum(told) > len(told)
