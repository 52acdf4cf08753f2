"""Apple's sketches: how often texts of an open domain occur, counted in a small table. Proof in ``sketches.md``.

Count-mean sketch and Hadamard count-mean sketch (Differential Privacy Team, Apple: Learning with Privacy at Scale,
2017). A value is hashed to one of m buckets by one of k functions, and the bucket is reported with noise. A report
*supports* all values of the buckets that it speaks for.

Shares are read off a sketch without bias, with the noise of the reports and that of collisions in every interval.
Given the hash functions, the number of reports that support a value is binomial, with the mean that belongs to u = θ +
B: the value's share, and the mass of other values that fall into its buckets, averaged over the functions. An interval
of u is that of Clopper & Pearson (1934). Over the hash functions B is a sum of independent parts, one for each other
value and function, with mean (1−θ)/m; how far it strays depends on two numbers that are themselves read off the sketch:
the largest share of any value, and the sum of all squared shares.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from dither.entropy import SYSTEM, Source, below_many
from dither.errors import InvalidParameter
from dither.local.clients.base import ValueDomain, bytes_for
from dither.local.clients.sketch import (
    LARGEST_BUCKETS,
    LARGEST_HASHES,
    SEED_BYTES,
    check_sizes,
    check_texts,
    seed_bytes,
)
from dither.local.core.consistent import Consistency
from dither.local.core.protocol import DOMAIN, GIVEN, Aggregator, Counts, Field, Floats, Payloads, total
from dither.local.core.tables import EstimateTable, Shown
from dither.local.frequency.oracle import (
    BLOCK_PEOPLE,
    FEW,
    Ints,
    Label,
    Shares,
    Supporting,
    checked_domain,
    number_rows,
    row_numbers,
    values_of,
)
from dither.local.sketches.hash_functions import Functions, coded
from dither.mechanisms.base import failure_probability
from dither.mechanisms.response_estimates import Target, share_variance, worst_share
from dither.numeric import Number, as_fraction, positive_int, probability
from dither.numeric.binomial import clopper_pearson, clopper_pearson_of_each

# How a probability of failure is shared out: by value, of which a part for coins and one for collisions on either side;
# and for the two bounds that all collisions depend on.
EACH, ALL = 0.875, 0.125
COINS, COLLISIONS = 6 / 7, 1 / 14
# With fewer functions their spread isn't known well enough, and squared shares are bounded by the largest share.
FEWEST_FUNCTIONS = 30
# Standard errors by which a bound of squared shares is expected to exceed the truth, for planning.
PLANNED = 2.5


def _seed(description: Mapping[str, Any], name: str) -> Any:
    if description.get(name) is None:
        raise InvalidParameter("a description of a sketch has a seed, which chooses its hash functions")
    return description[name]


# The fields of every sketch's description.
TABLE = {"domain": DOMAIN, "hashes": GIVEN, "buckets": GIVEN, "seed": Field(_seed, str)}


@dataclass(frozen=True, slots=True, init=False)
class HashedSketch(Supporting):
    """Estimates the shares of any values that are asked for, from a table of ``hashes`` × ``buckets`` counters.

    A subclass is a frozen dataclass with these fields. ``domain`` is a public list of values (their number, or labels),
    or None for an open one. ``seed`` chooses the hash functions; by default it is drawn, and published with the
    description.

    Guarantee: the curve of one report is at most weight·(odds − e^ε)₊ for every two values, so ε = ln(odds) under
        REPLACE, whatever the hash functions; no less for two values that no function takes to one bucket.
    Assumes: every report is of another person; r reports of one cost r times as much.
    Accuracy: unbiased over the hash functions; ``variance`` has the noise of the reports and that of collisions, which
        all reports share: it doesn't shrink with their number, only with the size of the table.
    """

    domain: int | tuple[Label, ...] | None
    hashes: int
    buckets: int
    seed: str
    _known: ValueDomain | None = field(init=False, repr=False, compare=False)

    # ------------------------------------------------------------------ what a subclass says

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """The probability that a report supports a given value in another bucket."""

    @abstractmethod
    def randomize_buckets(self, truths: npt.NDArray[Any], source: Source) -> Payloads:
        """What payloads say after the function, for people whose values it takes to these buckets."""

    @abstractmethod
    def aggregator(self) -> SketchAggregator:
        """An empty aggregate for this collection."""

    # ------------------------------------------------------------------ what follows for both

    def _set(self, domain: Any, hashes: int, buckets: int, seed: str | None) -> None:
        known = None if domain is None else checked_domain(domain)
        check_texts(known)
        self._put(_known=known, domain=None if known is None else values_of(known))
        for name, value, most in (("hashes", hashes, LARGEST_HASHES), ("buckets", buckets, LARGEST_BUCKETS)):
            least = 1 if name == "hashes" else 2
            if positive_int(value, name, least=least) > most:
                raise InvalidParameter(f"{name} must be a whole number from {least} to {most}; got {value!r}")
            self._put(**{name: int(value)})
        check_sizes(self.hashes, self.buckets)
        drawn = SYSTEM.bits(8 * SEED_BYTES).to_bytes(SEED_BYTES, "little").hex() if seed is None else seed
        self._put(seed=drawn)
        seed_bytes(self.seed)

    @property
    def functions(self) -> Functions:
        """The hash functions."""
        return Functions(seed_bytes(self.seed), self.hashes, self.buckets)

    @property
    def miss(self) -> Fraction:
        """The probability, over the hash functions too, that a report supports a given other value."""
        return self.other + (self.hit - self.other) / self.buckets

    def variance(self, n: int, share: Number | None = None, *, concentration: Number | None = None) -> float:
        """The variance of one value's estimate from ``n`` reports, over coins, people and hash functions.

        ``share`` is by default the worst. ``concentration`` is the sum of the squared shares of all other values: the
        more of them are alike, the less do collisions matter. By default one of them has all the rest, which is the
        worst.
        """
        people = positive_int(n, "n")
        theta = worst_share(self.hit, self.miss, Target.POPULATION) if share is None else probability(share, "share")
        most = (1 - theta) ** 2
        squares = most if concentration is None else probability(concentration, "concentration", most=most)
        coins = share_variance(people, theta, self.hit, self.miss, Target.POPULATION)
        return float(coins + (1 - Fraction(1, people)) * squares / (self.hashes * (self.buckets - 1)))

    def inputs(self) -> list[Label]:
        """All values of the domain, or a few of an open one."""
        return list(range(FEW) if self._known is None else self._known.values)

    def values(self) -> Sequence[Label]:
        """All values of the domain. Raises InvalidParameter if it is open."""
        if self._known is None:
            raise InvalidParameter("this collection has no list of values: say which to estimate, with values=[…]")
        return self._known.values

    def reduced(self) -> Self:
        """The same coins with so small a table that the law of the client can be listed in full."""
        return self.resized(domain=FEW, hashes=2, buckets=4)

    def resized(self, *, domain: Any, hashes: int, buckets: int) -> Self:
        """The same coins for another domain and table."""
        return replace(self, domain=domain, hashes=hashes, buckets=buckets)

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each: texts or whole numbers, of the domain if there is one."""
        different, codes = coded(values, self._known)
        return self.randomize_coded(different, codes, source)

    def randomize_coded(self, different: Sequence[Label], codes: Ints, source: Source) -> Payloads:
        """The same for values given as places in a list of different ones."""
        drawn = below_many(self.hashes, codes.size, source)
        truths = self.functions.buckets_of_people(different, codes, drawn, keep=self._known is not None)
        rows = np.empty((codes.size, self.width), dtype=np.uint8)
        head = bytes_for(self.hashes)
        for start in range(0, codes.size, BLOCK_PEOPLE):
            some = slice(start, start + BLOCK_PEOPLE)
            rows[some, :head] = number_rows(drawn[some], head)
            rows[some, head:] = self.randomize_buckets(truths[some], source)
        return rows

    def drawn_functions(self, payloads: Payloads) -> npt.NDArray[Any]:
        """The functions that payloads name."""
        return row_numbers(payloads[:, : bytes_for(self.hashes)])


class SketchAggregator(Aggregator[Shares]):
    """Counts for every function its reports, and something for each of its buckets or rows."""

    protocol: HashedSketch
    unsigned: ClassVar[bool]

    def __init__(self, protocol: HashedSketch) -> None:
        sums = np.zeros((protocol.hashes, protocol.buckets), dtype=np.int64)
        super().__init__(protocol, sums=sums, function_reports=np.zeros(protocol.hashes, dtype=np.int64))

    @property
    def sums(self) -> Counts:
        """What each bucket or row of each function has counted."""
        return self.counters["sums"]

    @property
    def function_reports(self) -> Counts:
        """How many reports each function has."""
        return self.counters["function_reports"]

    @abstractmethod
    def supports(self) -> Counts:
        """For every function and bucket, how many reports support it; less those that don't, unless ``unsigned``."""

    @abstractmethod
    def pair_sums(self) -> tuple[Floats, Floats]:
        """For every function, an unbiased sum over all its pairs of reports of whether they are of one bucket.

        And the number of its pairs.
        """

    def sound(self) -> bool:
        """Whether every report is of one function, whose counters don't exceed its reports; signs may be negative."""
        sums, reports = self.sums, self.function_reports[:, None]
        least = 0 if self.unsigned else -reports
        # not by their absolute values: that of the least word is itself
        inside = bool((reports >= 0).all() and (sums <= reports).all() and (sums >= least).all())
        return inside and total(self.function_reports) == self.reports

    def estimate(
        self,
        confidence: Number = 0.95,
        *,
        values: Sequence[Label] | None = None,
        simultaneous: bool = True,
        consistent: Consistency | None = None,
    ) -> Shares:
        """The shares of ``values``, by default of all of the domain; see ``read_shares``.

        Unbiased, so a share may be negative, unless ``consistent`` names a rule. All intervals hold together
        (Bonferroni) if ``simultaneous``, else each by itself.
        """
        found = read_shares(self, values, confidence=confidence, simultaneous=simultaneous)
        return found if consistent is None else found.made_consistent(consistent)


# ------------------------------------------------------------------ reading shares


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

    def table(self) -> EstimateTable:
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
    aggregate.expect_reports()
    best = int((aggregate.supports() if supports is None else supports).max(axis=1).sum())
    count = best if aggregate.unsigned else (n + best) // 2
    gap = float(sketch.hit - sketch.other)
    largest = (clopper_pearson(count, n, 2 * failure)[1] - float(sketch.other)) / gap
    largest = min(1.0, max(0.0, largest))
    sums, pairs = aggregate.pair_sums()
    number = float(pairs.sum())
    if not number:
        return Concentration(squares=largest, most_squares=largest, largest=largest)
    mean = float(sums.sum()) / number
    m = sketch.buckets
    # two values share a bucket of a function with probability 1/m
    squares = (mean - 1 / m) / (1 - 1 / m)
    if sketch.hashes < FEWEST_FUNCTIONS:
        return Concentration(squares=squares, most_squares=largest, largest=largest)
    spread = math.sqrt(float(((sums - mean * pairs) ** 2).sum())) / number
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
    sketch: HashedSketch, counts: Counts, n: int, *, even: Concentration, each: float
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
    low, high = clopper_pearson_of_each(counts, n, each * COINS)
    below, above = strays(sketch, even, failure=each * COLLISIONS)
    # θ(1 − 1/m) = u − 1/m − what B strays from its mean
    scale = float(sketch.hit - sketch.other)
    ends = [(np.asarray(end) - float(sketch.other)) / scale - 1 / m for end in (low, high)]
    intervals = np.stack([(ends[0] - above) / shrink, (ends[1] + below) / shrink], axis=-1)
    return values, np.array(variances), intervals


def strays(sketch: HashedSketch, even: Concentration, *, failure: float) -> tuple[float, float]:
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
    aggregate.expect_reports()
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
    sketch: HashedSketch, n: int, *, each: float, confidence: Number, squares: Number, largest: Number
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
