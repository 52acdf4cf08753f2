"""Intervals of quantiles in values cover at their stated rate, each end by itself, whatever the data.

α is 10⁻⁹ a rate of 20,000 runs: an end that misses in 4% in place of 2.5% passes with a chance below 10⁻⁶.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator.answers.release import Released, release
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace, Quantile
from dither.privacy import Adjacency
from dither.query.aggregates import vicinity
from dither.query.aggregates.vicinity import Nearby, counted_in, ends_around, interval
from dither.query.kinds import Column, Facts, Interval as Bounds, Kind
from dither.query.measure.measures import BinCounts, Measured
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan
from dither.query.price.noise import QueryBudget, price

F = Fraction
ALPHA, DRAWS, EACH = 1e-9, 40, 500
RUNS = DRAWS * EACH
CONFIDENCE = F(19, 20)
LAST = 100
DATA = {
    "two values": {40: 500, 41: 500},
    "a gap": {10: 300, 90: 300},
    "a constant": {37: 200},
    "at a bound": {0: 900, 1: 100},
    "small": {20: 1, 30: 1, 80: 1},
    "skewed": {place: round(4000 * 0.9**place) for place in range(LAST)},
    "even": dict.fromkeys(range(LAST + 1), 3),
}


def missed(data, q, noise, scale, *, edges=ends_around):
    """How many of the lower and of the upper ends miss the exact quantile, the middle of its possible values."""
    places, counts = np.array(list(data)), np.array(list(data.values()))
    exact = float(np.quantile(np.repeat(places, counts), float(q)))
    mechanism = Quantile(scale, bounds=(0, LAST), step=1, q=q)
    below = above = 0
    for _ in range(DRAWS):
        drawn = int(mechanism.release_counts(places, counts))
        ends = edges([drawn], LAST)
        noisy = noise.release(np.tile(counted_in(ends, places, counts), EACH))
        starts = np.arange(EACH + 1) * ends.size
        low, high = interval(Nearby(starts=starts, ends=np.tile(ends, EACH), counts=noisy), q, noise, CONFIDENCE)
        # as an answer shows it: the draw is inside
        below += int((np.minimum(low, drawn) > exact).sum())
        above += int((np.maximum(high, drawn) < exact).sum())
    return below, above


def enough(misses):
    return stats.binom.sf(misses - 1, RUNS, 0.025) >= ALPHA


def test_a_fault_of_one_and_a_half_hundredths_is_caught():
    most = next(n for n in range(RUNS // 40, RUNS) if not enough(n))
    assert stats.binom.cdf(most - 1, RUNS, 0.04) < 1e-6


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
@pytest.mark.parametrize("name", DATA)
def test_each_end_misses_no_more_often_than_stated(name, law):
    for q, scale in ((F(1, 2), 30), (F(9, 10), 6)):
        assert all(map(enough, missed(DATA[name], q, law(scale), scale))), q


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_ends_that_take_less_noise_into_account_are_noticed(law, monkeypatch):
    """Six tenths of it, on the data where nothing else makes an interval wide; draws are on either side of the gap."""
    full = vicinity.off_by
    monkeypatch.setattr(vicinity, "off_by", lambda *given: 0.6 * full(*given))
    # the draw at one end covers that one by itself, so that the other is what counts
    assert not all(map(enough, missed(DATA["two values"], F(1, 2), law(30), 1)))


def question(size, budget):
    argument = Argument(expression=Column("c0", Kind.INTEGER), facts=Facts(bounds=Bounds(F(0), F(LAST))))
    asked = [Aggregate(function=Function.QUANTILE, arguments=(argument,), quantile=q) for q in (F(1, 4), F(1, 2))]
    key = Key(expression=Column("c1", Kind.INTEGER), kind=Kind.INTEGER, values=tuple(range(size)))
    aggregation = Aggregation(
        relation=Scan(table="t", private=True, unit_column="u", columns=(), fields=()),
        units="column",
        keys=(key,),
        aggregates=tuple(asked),
        groups=1,
        rows=1,
        discover=False,
        tables=("t",),
    )
    return price(aggregation, budget, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
def test_a_release_counts_around_its_draws_alone(kind):
    """Two tables that differ far from what is drawn have the same bins; stored and read it is the same answer."""
    size = 60
    priced = question(size, QueryBudget(kind=kind, main=F(2)))
    group = np.repeat(np.arange(size), 3)
    bins, counts = np.tile([20, 40, 70], size), np.tile([300, 400, 300], size)
    bins[:90] += 9  # other data in half of the groups
    histogram = BinCounts(group=group, bin=bins, count=counts)
    exact = Measured(keys=pa.table({"k0": np.arange(size)}), size=size, totals=(), bins=(histogram,))
    released = release(priced, exact)
    (nearby,) = released.nearby
    assert len(released.choices) == 2
    for place in range(size):
        drawn = [int(each[place]) for each in released.choices]
        part = slice(nearby.starts[place], nearby.starts[place + 1])
        assert nearby.ends[part].tolist() == ends_around(drawn, LAST).tolist()
    again = Released.from_bytes(released.to_bytes())
    for one, other in zip(released.estimates(), again.estimates(), strict=True):
        assert one == other
        low, value, high = (each.to_numpy() for each in (one.low, one.value, one.high))
        assert (low <= value).all()
        assert (value <= high).all()
    assert again.nearby_noise == priced.nearby
    # the exact quartile and median of a group, but for a chance of 5% each: so many miss with one of 1e-9
    for found, truths in zip(released.estimates(), ((20, 29), (40, 49)), strict=True):
        truth = np.repeat(truths[::-1], size // 2)
        out = (found.low.to_numpy() > truth) | (found.high.to_numpy() < truth)
        assert stats.binom.sf(out.sum() - 1, size, 0.05) > ALPHA
    # a mutant: the bins of another draw aren't these
    assert ends_around([drawn[0] + 1], LAST).tolist() != ends_around([drawn[0]], LAST).tolist()
