"""Shares read off a sketch: unbiased, with the noise of the reports and that of collisions in every interval.

Given the hash functions, the number of reports that support a value is binomial, with the mean that belongs to u = θ +
B: the value's share, and the mass of other values that fall into its buckets, averaged over the functions. An interval
of u is that of Clopper & Pearson (1934). Over the hash functions B is a sum of independent parts, one for each other
value and function, with mean (1−θ)/m; how far it strays depends on two numbers that are themselves read off the sketch:
the largest share of any value, and the sum of all squared shares. ``sketches.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from dither.errors import InvalidData, InvalidParameter
from dither.local.frequencies import Label, Shares
from dither.local.protocol import Counts, Floats
from dither.local.shown import Shown, Table
from dither.mechanisms.base import failure_probability
from dither.mechanisms.response_estimates import Target, clopper_pearson, share_variance
from dither.numeric import Number, as_fraction, positive_int

if TYPE_CHECKING:
    from dither.local.sketches import Sketch, SketchAggregator

# Relative allowance for the inverse of the incomplete beta function, always taken towards wider intervals.
TAIL_SLACK = 1e-8
# How a probability of failure is shared out: by value, of which a part for coins and one for collisions on either side;
# and for the two bounds that all collisions depend on.
EACH, ALL = 0.875, 0.125
COINS, COLLISIONS = 6 / 7, 1 / 14
# With fewer functions their spread isn't known well enough, and squared shares are bounded by the largest share.
FEWEST_FUNCTIONS = 30
# So many standard errors above the truth a bound of squared shares is expected to be, for planning.
PLANNED = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Concentration:
    """How unevenly values are spread, as far as a sketch tells: what collisions depend on.

    ``squares`` is an unbiased estimate of the sum of all squared shares; ``most_squares`` and ``largest`` bound that
    sum and the largest share from above, with the confidence that was asked for.
    """

    squares: float
    most_squares: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Discovered(Shown):
    """Values that were found, the most frequent first, with their shares; ``tested`` is how many were looked at.

    The intervals hold for all values that were looked at in the last step together, found or not: with the stated
    confidence, no value is listed that nobody among those who reported has.
    """

    shares: Shares
    tested: int

    @property
    def values(self) -> tuple[Label, ...]:
        """What was found."""
        return self.shares.labels or ()

    def table(self) -> Table:
        """The most frequent ones."""
        shares = self.shares.table()
        rest = f"found among {self.tested:,} that were looked up; rarer values aren't found: see detection_limit"
        return replace(shares, notes=[*shares.notes, rest])

    def items(self) -> list[tuple[Label, float, tuple[float, float]]]:
        """Value, share and interval of everything that was found."""
        return self.shares.top(len(self.values)) if self.values else []


def concentration(aggregate: SketchAggregator, *, failure: float, supports: Counts | None = None) -> Concentration:
    """What a sketch says about the largest share and the sum of squared shares of all values, known or not.

    Each bound fails with probability at most ``failure``. That of the largest share is exact: no value has more support
    than the best bucket of every function has. That of the squares takes the mean over functions, which are
    independent, to be normal (with Student's law for its spread); the largest share bounds them too.
    """
    sketch, n = aggregate.protocol, aggregate.reports
    if not n:
        raise InvalidData("there are no reports to estimate from")
    best = int((aggregate.supports() if supports is None else supports).max(axis=1).sum())
    count = best if aggregate.unsigned else (n + best) // 2
    gap = float(sketch.hit - sketch.other)
    largest = (clopper_pearson(count, n, 2 * failure)[1] - float(sketch.other)) / gap
    largest = min(1.0, max(0.0, largest))
    sums, pairs = aggregate.pair_sums()
    total = float(pairs.sum())
    if not total:
        return Concentration(squares=largest, most_squares=largest, largest=largest)
    mean = float(sums.sum()) / total
    m = sketch.buckets
    # two values share a bucket of a function with probability 1/m
    squares = (mean - 1 / m) / (1 - 1 / m)
    if sketch.hashes < FEWEST_FUNCTIONS:
        return Concentration(squares=squares, most_squares=largest, largest=largest)
    spread = math.sqrt(float(((sums - mean * pairs) ** 2).sum())) / total
    quantile = -float(stdtrit(sketch.hashes - 1, failure))
    most = min(largest, max(0.0, squares + quantile * spread / (1 - 1 / m)))
    return Concentration(squares=squares, most_squares=most, largest=largest)


def read(
    aggregate: SketchAggregator, values: Sequence[Label], *, each: float, all_values: float
) -> tuple[Floats, Floats, Floats]:
    """Values, variances and intervals of some shares, as read_shares gives them.

    An interval fails with probability at most ``each``, unless what bounds all collisions fails, with ``all_values``.
    """
    sketch, n = aggregate.protocol, aggregate.reports
    supports = aggregate.supports()
    even = concentration(aggregate, failure=all_values / 2, supports=supports)
    sums = sketch.functions.sums_over([supports], values, keep=sketch.domain is not None)[0]
    counts = sums if aggregate.unsigned else (n + sums) // 2
    return shares_of_counts(sketch, counts, n, even=even, each=each)


def shares_of_counts(
    sketch: Sketch, counts: Counts, n: int, *, even: Concentration, each: float
) -> tuple[Floats, Floats, Floats]:
    """The same from the numbers of reports that support the values."""
    m = sketch.buckets
    shrink = 1 - 1 / m
    gap = float(sketch.hit - sketch.miss)
    values = np.asarray((counts / n - float(sketch.miss)) / gap, dtype=np.float64)
    observed = counts / n
    spread = 0.25 if n == 1 else observed * (1 - observed) * n / (n - 1)
    coins = np.broadcast_to(spread / n / gap**2, values.shape)
    # what estimates the square of the value's own share is taken from the sum of all squares
    others = np.maximum(even.squares - (values**2 - coins), 0.0)
    variances = coins + others * (1 - 1 / n) / (sketch.hashes * (m - 1))
    low, high = _binomial_ends(counts, n, each * COINS)
    below, above = strays(sketch, even, failure=each * COLLISIONS)
    # θ(1 − 1/m) = u − 1/m − what B strays from its mean
    scale = float(sketch.hit - sketch.other)
    ends = [(np.asarray(end) - float(sketch.other)) / scale - 1 / m for end in (low, high)]
    intervals = np.stack([(ends[0] - above) / shrink, (ends[1] + below) / shrink], axis=-1)
    return values, np.array(variances), intervals


def strays(sketch: Sketch, even: Concentration, *, failure: float) -> tuple[float, float]:
    """How far the mass of collisions strays below and above its mean, each but for probability ``failure``.

    Above: Bernstein's inequality for independent parts of at most ``largest``/k. Below: parts that aren't negative
    stray no further down than a normal variable with the sum of their second moments.
    """
    log = math.log(1 / failure)
    middle = math.sqrt(2 * log * even.most_squares / (sketch.hashes * sketch.buckets))
    return middle, middle + even.largest * log / (3 * sketch.hashes)


def read_shares(
    aggregate: SketchAggregator, values: Sequence[Label] | None, *, confidence: Number, simultaneous: bool
) -> Shares:
    """The shares of some values, with intervals that hold all together if ``simultaneous``, else each by itself.

    The intervals cover the shares in the population that people are an independent sample of, and as well those among
    the people themselves. They count the hash functions, drawn once for the collection, among what is random.
    """
    sketch = aggregate.protocol
    if not aggregate.reports:
        raise InvalidData("there are no reports to estimate from")
    asked = sketch.values() if values is None else list(values)
    if not len(asked):
        raise InvalidParameter("values must list at least one value")
    failure = failure_probability(confidence)
    each = failure * EACH / (len(asked) if simultaneous else 1)
    found = read(aggregate, asked, each=each, all_values=failure * ALL)
    return Shares(
        values=found[0],
        variances=found[1],
        intervals=found[2],
        confidence=float(as_fraction(confidence)),
        simultaneous=simultaneous,
        reports=aggregate.reports,
        target=Target.POPULATION,
        labels=None if isinstance(asked, range) else tuple(asked),
    )


def found_above_zero(
    aggregate: SketchAggregator, values: Sequence[Label], labels: Sequence[Label], *, confidence: Number
) -> Discovered:
    """Those of some values that somebody has, at this confidence for all together; ``labels`` are their names."""
    failure = failure_probability(confidence)
    number = max(1, len(values))
    each = failure * EACH / number
    found = read(aggregate, values, each=each, all_values=failure * ALL)
    seen = np.flatnonzero(found[2][:, 0] > 0)
    order = seen[np.argsort(-found[0][seen], kind="stable")]
    shares = Shares(
        values=found[0][order],
        variances=found[1][order],
        intervals=found[2][order],
        confidence=float(as_fraction(confidence)),
        simultaneous=True,
        reports=aggregate.reports,
        target=Target.RESPONDENTS,
        labels=tuple(labels[int(place)] for place in order),
    )
    return Discovered(shares=shares, tested=len(values))


def smallest_seen(
    sketch: Sketch, n: int, *, each: float, confidence: Number, squares: Number, largest: Number
) -> float:
    """The share from which on a value is shown, with this confidence, to have one above 0; for planning.

    Uses normal approximations. ``squares`` and ``largest`` are those of the other values, as one expects them.
    """
    people, m = positive_int(n, "n"), sketch.buckets
    doubt = failure_probability(confidence)
    alone = float(share_variance(people, Fraction(0), sketch.hit, sketch.miss, Target.POPULATION))
    # one function has few reports: the best of its buckets, and its pairs, say more than is true by this much
    noise = alone * sketch.hashes
    top = min(1.0, float(as_fraction(largest)) + math.sqrt(2 * math.log(m) * noise))
    sure = float(as_fraction(squares)) + PLANNED * math.sqrt(2 * m / sketch.hashes) * noise
    even = Concentration(squares=float(as_fraction(squares)), most_squares=min(top, sure), largest=top)
    above = strays(sketch, even, failure=each * COLLISIONS)[1] / (1 - 1 / m)
    collided = even.squares / (sketch.hashes * (m - 1))
    share = 0.0
    for _ in range(30):
        # a value that is there has more spread than one that isn't
        theta = Fraction(min(1.0, share))
        own = float(share_variance(people, theta, sketch.hit, sketch.miss, Target.POPULATION))
        share = (
            above - float(ndtri(each * COINS / 2)) * math.sqrt(own) - float(ndtri(doubt)) * math.sqrt(own + collided)
        )
    return share


def _binomial_ends(counts: Counts, n: int, failure: float) -> tuple[Floats, Floats]:
    """The ends of Clopper & Pearson's interval, half of the failure on each side, for many counts at once."""
    different, places = np.unique(np.clip(counts, 0, n), return_inverse=True)
    half = failure / 2 * (1 - TAIL_SLACK)
    inner = different.astype(np.float64)
    low, high = np.zeros(inner.size), np.ones(inner.size)
    some, rest = inner > 0, inner < n
    low[some] = betaincinv(inner[some], n - inner[some] + 1, half) * (1 - TAIL_SLACK)
    high[rest] = 1.0 - betaincinv(n - inner[rest], inner[rest] + 1, half) * (1 - TAIL_SLACK)
    return low[places], high[places]
