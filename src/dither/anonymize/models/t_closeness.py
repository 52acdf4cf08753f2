"""Models that compare each class with the whole table: t-closeness, δ-disclosure privacy, β-likeness."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dither.anonymize.models.base import ColumnModel, Overall, Seen, at_most, compared, integers, said
from dither.anonymize.table.classes import Histogram
from dither.anonymize.table.values import Bools, Counts, Floats
from dither.errors import InvalidParameter
from dither.numeric import Number, positive, probability

# Logarithms err by parts in 1e16; a ratio this near to its limit counts as beyond it.
DOUBT = 1e-12


class Distance(Enum):
    """How far apart two sensitive values are (Li, Li & Venkatasubramanian 2007)."""

    EQUAL = "equal"
    """Any two values are 1 apart."""
    ORDERED = "ordered"
    """Values i and j of m in order are |i−j|/(m−1) apart."""
    HIERARCHICAL = "hierarchical"
    """The level at which two values meet in the hierarchy, over its height."""


@dataclass(frozen=True, slots=True, init=False)
class TCloseness(ColumnModel):
    """The sensitive values of every class are distributed as in the whole table, up to an earth mover's distance of t.

    With class counts c of n rows and table counts q of N rows (Li, Li & Venkatasubramanian 2007):

    - EQUAL: Σ max(0, c/n − q/N), half the sum of differences.
    - ORDERED: Σᵢ |Σ_{j≤i} (cⱼ/n − qⱼ/N)| / (m−1).
    - HIERARCHICAL: each node costs height/H times the smaller of its children's surplus and deficit. At a node that is
      surplus − max(0, the node's own extra), so costs telescope to Σ_{h<H} Eₕ / H, where Eₕ adds up the positive
      extras of the nodes at level h.

    All are fractions with the common denominator nN and are compared with t exactly, over values that occur only. A
    missing value is a value: the last one of an order, and in a hierarchy apart from all others below the top.
    """

    name: ClassVar[str] = "t-closeness"

    t: Fraction
    column: str
    distance: Distance

    def __init__(self, t: Number, column: str, distance: Distance = Distance.EQUAL) -> None:
        if not isinstance(distance, Distance):
            raise InvalidParameter(f"distance must be a Distance, such as Distance.ORDERED; got {distance!r}")
        object.__setattr__(self, "t", probability(t, "t"))
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "distance", distance)

    @property
    def asks_nothing(self) -> bool:
        """Whether t is 1: no two distributions are farther apart."""
        return self.t >= 1

    def _good(self, seen: Seen) -> Bools:
        moved, units = self._moved(seen.sizes, *compared(self, seen))
        return at_most(moved, units, self.t)

    def distances(self, sizes: Counts, histogram: Histogram, overall: Overall) -> Floats:
        """How far each class is from the whole table."""
        moved, units = self._moved(sizes, histogram, overall)
        return np.array([int(m) / int(u) if u else 0.0 for m, u in zip(moved, units, strict=True)])

    def _moved(
        self, sizes: Counts, histogram: Histogram, overall: Overall
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The distance as a quotient of whole numbers."""
        self.expect(overall.name, ordered=overall.ordered, hierarchy=overall.levels is not None)
        total = int(overall.counts.sum())
        largest = int(sizes.max()) if sizes.size else 0
        steps = max(1, histogram.size - 1)
        if self.distance is Distance.EQUAL:
            kind = integers(2 * largest * total)
            return _surplus(sizes, histogram, overall.counts, kind), sizes.astype(kind) * total
        if self.distance is Distance.ORDERED:
            kind = integers(4 * largest * total * steps)
            return _ordered(sizes, histogram, overall.counts, kind), sizes.astype(kind) * (total * steps)
        assert overall.levels is not None
        height = len(overall.levels) - 1
        kind = integers(2 * largest * total * height)
        moved = np.zeros(sizes.size, kind)
        for groups in overall.levels[:-1]:
            number = int(groups.max()) + 1 if groups.size else 0
            above = np.zeros(number, np.int64)
            np.add.at(above, groups, overall.counts)
            moved = moved + _surplus(sizes, histogram.recoded(groups, number), above, kind)
        return moved, sizes.astype(kind) * (total * height)

    def expect(self, column: str, *, ordered: bool, hierarchy: bool) -> None:
        """Raise if the column lacks the order or the hierarchy that the distance is measured in."""
        if self.distance is Distance.ORDERED and not ordered:
            raise InvalidParameter(
                f"the ordered distance needs numbers, dates or an order of {column!r}: "
                f"Attribute(name={column!r}, role=Role.SENSITIVE, order=(…)); or use another distance"
            )
        if self.distance is Distance.HIERARCHICAL and not hierarchy:
            raise InvalidParameter(
                f"the hierarchical distance needs a hierarchy of {column!r}: sensitive={{{column!r}: hierarchy}}"
            )

    def sentence(self) -> str:
        """What the model asks, in words."""
        return (
            f"t-closeness: {self.column!r} is distributed in every class as in the whole table, up to "
            f"{said(self.t)} ({self.distance.value} distance)"
        )


def _surplus(sizes: Counts, histogram: Histogram, whole: Counts, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Σ max(0, N·c − n·q) over the values of each class; a value that doesn't occur in a class has no surplus."""
    home, total = histogram.class_of_entry, int(whole.sum())
    more = histogram.counts.astype(kind) * total - sizes.astype(kind)[home] * whole.astype(kind)[histogram.codes]
    return histogram.sums(np.maximum(more, 0))


def _ordered(sizes: Counts, histogram: Histogram, whole: Counts, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Σᵢ |N·Cᵢ − n·Qᵢ| for running sums C of the class and Q of the table.

    C changes at the values of the class only. Between two of them Q rises, so the sign changes at most once, at a place
    that a binary search finds: the cost is that of the values that occur, not of all values.
    """
    home, total, values = histogram.class_of_entry, int(whole.sum()), histogram.size
    n = sizes.astype(kind)[home]
    rising = np.cumsum(whole)
    # below[i] = Q₀ + … + Q_{i−1}
    below = np.concatenate((np.zeros(1, kind), np.cumsum(rising.astype(kind))))
    running = np.cumsum(histogram.counts)
    before = np.concatenate((np.zeros(1, np.int64), running))[histogram.starts[:-1]]
    reached = (running - before[home]).astype(kind) * total
    start = histogram.codes.astype(np.int64)
    end = np.append(start[1:], values)
    last = histogram.starts[1:][np.diff(histogram.starts) > 0] - 1
    end[last] = values
    # the first place where n·Q ≥ N·C, that is Q ≥ ⌈N·C/n⌉
    needed = (-(-reached // n)).astype(np.int64) if reached.size else start
    turn = np.clip(np.searchsorted(rising, needed), start, end)
    rising_part = reached * (turn - start) - n * (below[turn] - below[start])
    falling_part = n * (below[end] - below[turn]) - reached * (end - turn)
    moved = histogram.sums(rising_part + falling_part)
    first = histogram.starts[:-1]
    filled = np.diff(histogram.starts) > 0
    moved[filled] += sizes.astype(kind)[filled] * below[start[first[filled]]]
    return moved


@dataclass(frozen=True, slots=True, init=False)
class DeltaDisclosure(ColumnModel):
    """Every sensitive value of the table has in every class a share p with |ln(p/q)| < δ, where q is its share overall.

    As Brickell & Shmatikov 2008 define it, a value that a class lacks violates it (p = 0). With ``ignore_absent`` such
    values are passed over, as some software does; the model is then not monotone, and tells those who aren't ill.
    """

    name: ClassVar[str] = "delta-disclosure privacy"

    delta: Fraction
    column: str
    ignore_absent: bool

    def __init__(self, delta: Number, column: str, *, ignore_absent: bool = False) -> None:
        object.__setattr__(self, "delta", positive(delta, "delta"))
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "ignore_absent", ignore_absent)

    @property
    def monotone(self) -> bool:
        """Whether classes that satisfy the model still do after merging: not if absent values are passed over."""
        return not self.ignore_absent

    def _good(self, seen: Seen) -> Bools:
        (found, whole), sizes = compared(self, seen), seen.sizes
        home, total = found.class_of_entry, int(whole.counts.sum())
        q = whole.counts[found.codes]
        ratio = np.full(found.counts.size, np.inf)
        # whole numbers below 2^53 are exact in floats, so the error is that of a few operations
        ratio[q > 0] = np.log((found.counts[q > 0] / sizes[home[q > 0]]) / (q[q > 0] / total))
        bad = np.abs(ratio) >= float(self.delta) - DOUBT
        good: Bools = found.sums(bad.astype(np.int64)) == 0
        if not self.ignore_absent:
            good &= np.diff(found.starts) >= np.count_nonzero(whole.counts)
        return good

    def sentence(self) -> str:
        """What the model asks, in words."""
        which = "that a class has" if self.ignore_absent else "of the table"
        return (
            f"δ-disclosure privacy: the share of every value of {self.column!r} {which} differs from that in the whole "
            f"table by less than a factor of e^{said(self.delta)}"
        )


@dataclass(frozen=True, slots=True, init=False)
class BetaLikeness(ColumnModel):
    """No sensitive value is more frequent in a class than overall by more than a share β of that (Cao & Karras 2012).

    (p − q)/q ≤ β for every value; ``enhanced`` bounds it by min(β, −ln q), so that frequent values don't reach all of
    a class.
    """

    name: ClassVar[str] = "beta-likeness"

    beta: Fraction
    column: str
    enhanced: bool

    def __init__(self, beta: Number, column: str, *, enhanced: bool = False) -> None:
        object.__setattr__(self, "beta", positive(beta, "beta"))
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "enhanced", enhanced)

    def _good(self, seen: Seen) -> Bools:
        (found, whole), sizes = compared(self, seen), seen.sizes
        home, total = found.class_of_entry, int(whole.counts.sum())
        q = whole.counts[found.codes]
        kind = integers((int(sizes.max()) if sizes.size else 0) * total)
        shares = found.counts.astype(kind) * total
        good = at_most(shares, sizes.astype(kind)[home] * q.astype(kind), self.beta + 1)
        if self.enhanced:
            good &= self._below_logarithm(found.counts / sizes[home], q / max(1, total))
        return np.asarray(found.sums((~good).astype(np.int64)) == 0)

    @staticmethod
    def _below_logarithm(p: Floats, q: Floats) -> Bools:
        """Whether p ≤ q·(1 − ln q), or p ≤ q: then there is no gain to bound."""
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = q * (1 - np.log(q))
        return np.asarray((p <= q) | (p <= limit - DOUBT))

    def sentence(self) -> str:
        """What the model asks, in words."""
        limit = f"min({said(self.beta)}, −ln q)" if self.enhanced else said(self.beta)
        return (
            f"β-likeness: the share of no value of {self.column!r} grows from q in the whole table to more than "
            f"(1 + {limit})·q in a class"
        )
