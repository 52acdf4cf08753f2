"""Bounds that the owner leaves open: a private search over powers of two, whose cost is known beforehand.

Values are counted by sign and ⌊log₂|x|⌋ from −64 to 64, with zero apart: 259 bins, whatever the data. Noisy counts that
no empty bin would reach mark where values are; the outer edges of the lowest and the highest of them are the bounds.
They are released, so they are public from then on, and everything computed with them is paid for by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal as OneOf, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.numeric import positive_int
from dither.privacy import Adjacency, PrivacyLoss, Sensitivity, ZcdpLoss
from dither.query.kinds import Call, Expression, Interval, Kind, Literal
from dither.query.measure.measures import MARGIN, Bins, Measured, Measurement, expect_scale, short_up, sqrt_up
from dither.query.plan.plan import Gridded, Relation
from dither.query.price.noise import QueryBudget

Ints: TypeAlias = npt.NDArray[np.int64]

SMALLEST, LARGEST = -64, 64
# One bin for each exponent and sign, and one for zero.
SIDE = LARGEST - SMALLEST + 1
BINS = 2 * SIDE + 1
# The chance that any of all bins is taken to hold values though it is empty.
FALSE_ALARM = Fraction(1, 10**9)
# What is assumed where no bin, or zero alone, holds enough values to be seen.
NOTHING_FOUND = Interval(Fraction(-1), Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsSearch:
    """A priced search: its noise, what it costs, and the count above which a bin surely holds values.

    Guarantee: a unit with at most ``rows`` values moves all counts by at most ``rows`` in l1, and in l2 by no more
        than that; a replacement moves them by twice as much in l1, and by √2 as much in l2 (what leaves and what comes
        are vectors of non-negative entries, so the square of their difference is at most the sum of their squares).
    """

    mechanism: DiscreteLaplace | DiscreteGaussian
    loss: PrivacyLoss
    threshold: int

    def bounds(self, noisy: Ints) -> Interval:
        """The bounds that noisy counts show; reads nothing else."""
        found = np.flatnonzero(np.asarray(noisy) > self.threshold)
        if found.size == 0 or (found.size == 1 and int(found[0]) == SIDE):
            return NOTHING_FOUND
        return Interval(edges(int(found[0]))[0], edges(int(found[-1]))[1])


def edges(index: int) -> tuple[Fraction, Fraction]:
    """The smallest and the largest value that a bin stands for.

    Example:
        >>> edges(SIDE), edges(SIDE + 65)
        ((Fraction(0, 1), Fraction(0, 1)), (Fraction(1, 1), Fraction(2, 1)))
    """
    if index == SIDE:
        return Fraction(0), Fraction(0)
    exponent = abs(index - SIDE) - 1 + SMALLEST
    low, high = Fraction(2) ** exponent, Fraction(2) ** (exponent + 1)
    return (low, high) if index > SIDE else (-high, -low)


def search_measurement(
    relation: Relation, expression: Expression, units: OneOf["row", "column"], rows: int
) -> Measurement:
    """The counts of all bins, with at most ``rows`` values of a unit; NULL and NaN are left out."""
    grid = Gridded(expression=bin_of(expression), step=Fraction(1), low=-SIDE, high=SIDE, offset=-SIDE)
    return Measurement(
        relation=relation,
        units=units,
        keys=(),
        groups=1,
        rows=positive_int(rows, "rows"),
        totals=(),
        bins=(Bins(grid=grid),),
    )


def bin_of(expression: Expression) -> Expression:
    """sign(x) · (⌊log₂|x|⌋ + 65) with the exponent kept within −64 … 64; 0 for zero.

    The logarithm of a power of two may be rounded to either side: harmless, as it is a fixed function of the row.
    """

    def number(value: float) -> Literal:
        return Literal(value, Kind.DOUBLE)

    x = Call("to_double", (expression,), Kind.DOUBLE)
    size = Call("abs", (x,), Kind.DOUBLE)
    exponent = Call("floor", (Call("log2", (size,), Kind.DOUBLE),), Kind.DOUBLE)
    kept = Call("greatest", (exponent, number(float(SMALLEST))), Kind.DOUBLE)
    kept = Call("least", (kept, number(float(LARGEST))), Kind.DOUBLE)
    place = Call("add", (kept, number(float(1 - SMALLEST))), Kind.DOUBLE)
    negative = Call("less", (x, number(0.0)), Kind.BOOLEAN)
    zero = Call("equal", (x, number(0.0)), Kind.BOOLEAN)
    missing = Call("or", (Call("is_null", (x,), Kind.BOOLEAN), Call("is_nan", (x,), Kind.BOOLEAN)), Kind.BOOLEAN)
    return Call(
        "case",
        (
            *(missing, Literal(None, Kind.DOUBLE)),
            *(zero, number(0.0)),
            *(negative, Call("negate", (place,), Kind.DOUBLE)),
            place,
        ),
        Kind.DOUBLE,
    )


def price_search(budget: QueryBudget, rows: int, adjacency: Adjacency) -> BoundsSearch:
    """The noise that a budget pays for in a search for one column's bounds."""
    most = positive_int(rows, "rows")
    replaced = adjacency is Adjacency.REPLACE
    l1, l2_squared = most * (1 + replaced), most**2 * (1 + replaced)
    mechanism: DiscreteLaplace | DiscreteGaussian
    loss: PrivacyLoss
    if budget.kind != "zcdp":
        mechanism = DiscreteLaplace(expect_scale(short_up(l1 / budget.main)))
        loss = mechanism.loss(Sensitivity.l1(l1, adjacency=adjacency))
    else:
        mechanism = DiscreteGaussian(expect_scale(sqrt_up(l2_squared / (2 * budget.main * MARGIN))))
        loss = ZcdpLoss(l2_squared / (2 * mechanism.scale**2), adjacency)
    # Pr[|z| > m] is twice Pr[z > m]
    threshold = int(mechanism.error(1 - 2 * FALSE_ALARM / BINS))
    return BoundsSearch(mechanism=mechanism, loss=loss, threshold=threshold)


def bounds_from(search: BoundsSearch, measured: Measured) -> Interval:
    """Noise on every bin's count, empty ones too, and the bounds that are seen through it."""
    exact = np.zeros(BINS, dtype=np.int64)
    histogram = measured.bins[0]
    np.add.at(exact, np.clip(histogram.bin, 0, BINS - 1), histogram.count)
    return search.bounds(search.mechanism.release(exact))
