"""How much detail a release lost: five figures.

None of them says anything about privacy; they say what was paid for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.table.classes import Classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What was lost; everything but the average class size and discernibility lies between 0 and 1, and less is better.

    ``ncp`` is the normalised certainty penalty (Xu et al. 2006): the mean share of its axis that a cell covers, a
    suppressed cell covering all, columns weighted as the configuration says. A range covers its length over that of
    the column; a set of s of the column's m values, or a hierarchy's label that stands for s of them, (s − 1)/(m − 1).
    ``by_column`` has it for each quasi-identifier. ``discernibility`` is the number of pairs of rows that can't be told
    apart, each row with itself included, suppressed rows with all rows (Bayardo & Agrawal 2005).
    ``entropy_loss`` is the non-uniform entropy (Gionis & Tassa 2009): the bits needed to tell the original values from
    what is printed, by the column's frequencies, over those needed if nothing were printed. ``average_class_size`` is
    the mean number of rows of the released classes; suppressed rows count in none.
    """

    ncp: float
    by_column: dict[str, float]
    discernibility: int
    classes: int
    average_class_size: float
    smallest_class: int
    entropy_loss: float
    suppressed: float

    def __str__(self) -> str:
        return (
            f"{100 * self.ncp:.3g}% of detail lost (NCP), {100 * self.entropy_loss:.3g}% by entropy; {self.classes:,} "
            f"classes of {self.average_class_size:,.1f} rows on average, the smallest has {self.smallest_class:,}; "
            f"{100 * self.suppressed:.3g}% of rows suppressed"
        )


def quality_of(classes: Classes, cells: Sequence[PrintedColumn]) -> Quality:
    """The figures of a release, of its classes and of the cells of each quasi-identifier."""
    sizes, suppressed, rows, number = classes.sizes, classes.suppressed, classes.of_row.size, classes.number
    by_column = {one.axis.name: _ncp(one, sizes, suppressed, rows) for one in cells}
    heaviest = max(one.axis.weight for one in cells)
    # over the heaviest: a sum of huge weights would not be finite
    weights = [one.axis.weight / heaviest if heaviest else 1.0 for one in cells]
    total = math.fsum(weight * share for weight, share in zip(weights, by_column.values(), strict=True))
    return Quality(
        ncp=total / math.fsum(weights),
        by_column=by_column,
        # Python's numbers: squares of a billion rows don't fit 64 bits
        discernibility=sum(size * size * times for size, times in _tally(sizes)) + suppressed * rows,
        classes=number,
        average_class_size=(rows - suppressed) / number if number else 0.0,
        smallest_class=int(sizes.min()) if number else 0,
        entropy_loss=_entropy_loss(cells, sizes, suppressed),
        suppressed=suppressed / rows if rows else 0.0,
    )


def _tally(sizes: Any) -> list[tuple[int, int]]:
    values, times = np.unique(sizes, return_counts=True)
    return [(int(value), int(count)) for value, count in zip(values, times, strict=True)]


def _ncp(one: PrintedColumn, sizes: Any, suppressed: int, rows: int) -> float:
    if not rows or one.axis.size < 2:
        return 0.0
    return float((one.shares @ sizes + suppressed) / rows)


def _entropy_loss(cells: Sequence[PrintedColumn], sizes: Any, suppressed: int) -> float:
    """Bits that the printed cells leave open, over the bits of the original columns."""
    left = whole = 0.0
    for one in cells:
        counts = one.axis.counts[one.axis.counts > 0]
        rows = int(counts.sum())
        known = float(counts @ np.log2(counts))
        # a value with c rows inside a cell that stands for s rows needs log2(s / c) bits
        left += float(sizes @ np.log2(np.maximum(one.spread, 1))) + suppressed * math.log2(rows) - known
        whole += rows * math.log2(rows) - known
    return max(0.0, left / whole) if whole > 0 else 0.0
