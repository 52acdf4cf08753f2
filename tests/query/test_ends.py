"""Averages from both ends: what one unit moves of both sums together, what is read off them, and that it errs less."""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.privacy import Adjacency, Sensitivity
from dither.query.aggregates.base import Noisy
from dither.query.aggregates.catalogue import from_json, to_json
from dither.query.aggregates.mean import Ends, Mean
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.measures import Span, basis_reach
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan
from dither.query.price import noise
from dither.query.price.noise import QueryBudget, price

SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())
RECIPE = Ends(above=0, below=1, step=F(1, 2), first=-4, size=20, low=F(-2), high=F(8))


def asked(*functions, groups=1, rows=1, keys=3):
    x = Argument(expression=Column("x", Kind.DOUBLE), facts=Facts(bounds=Interval(F(-2), F(8)), step=F(1, 2)))
    values = Key(expression=Column("k", Kind.INTEGER), kind=Kind.INTEGER, values=tuple(range(keys)))
    return Aggregation(
        relation=SCAN,
        units="column",
        keys=(values,) if keys else (),
        aggregates=tuple(Aggregate(function=function, arguments=(x,)) for function in functions),
        groups=groups,
        rows=rows,
        discover=False,
        tables=("t",),
    )


# ---------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("groups", "keys"), [(1, 1), (1, 2), (2, 2), (2, 3), (2, None)])
def test_the_reach_of_a_basis_is_the_largest_distance_there_is(adjacency, groups, keys):
    """Over all vectors of one unit: in each of at most ``groups`` groups two parts that add up to 2 at the most."""
    most, places = 2, keys or 2 * groups
    part = [(u, v) for u in range(most + 1) for v in range(most + 1 - u)]
    vectors = itertools.product(part, repeat=places)
    units = [np.array(v).ravel() for v in vectors if sum(each != (0, 0) for each in v) <= groups]
    nothing = [np.zeros(2 * places, dtype=int)]
    pairs = itertools.product(units, nothing if adjacency is Adjacency.ADD_REMOVE else units)
    moved = [a - b for a, b in pairs]
    reach = basis_reach(2, most, Span.of(groups, keys), adjacency)
    assert max(int(abs(each).sum()) for each in moved) == reach.l1
    assert max(int((each**2).sum()) for each in moved) == reach.l2_squared


def test_both_sums_cost_no_more_than_one_and_the_curve_of_a_single_movement_is_not_claimed():
    pure = price(asked(Function.AVG), QueryBudget(kind="pure", main=F(1)), Adjacency.ADD_REMOVE)
    assert [len(block) for block in pure.lowered.blocks] == [2]
    assert pure.loss.pure_exactly() <= 1
    assert pure.loss.pure_exactly() > F(99, 100)
    assert len(pure.losses) == 1
    assert {noise.scale for noise in pure.noise} == {pure.noise[0].scale}
    # mutant: each sum at its own share costs twice as much noise
    assert pure.noise[0].scale < F(101, 100) * pure.lowered.cells[0].high
    gaussian = price(
        asked(Function.AVG, groups=40, keys=60), QueryBudget(kind="zcdp", main=F(1, 10)), Adjacency.REPLACE
    )
    assert isinstance(gaussian.noise[0], DiscreteGaussian)
    assert gaussian.loss.zcdp_exactly() <= F(1, 10)
    add = price(asked(Function.AVG, groups=40, keys=60), QueryBudget(kind="zcdp", main=F(1, 10)), Adjacency.ADD_REMOVE)
    once = add.noise[0].loss(Sensitivity.contribution(groups=40, per_group=add.lowered.cells[0].high))
    # a movement that is spread over both sums isn't that of one: its curve isn't stated, its ρ is
    assert add.loss.delta(1.0) >= once.delta(1.0)


def test_whoever_asks_for_the_count_too_has_it_from_a_cell_that_is_shared():
    """Of two ends a count has the noise of both, 4.1/ε; today it has three quarters of the budget, 3.0/(0.75·ε)."""
    beside = price(asked(Function.AVG, Function.COUNT), QueryBudget(kind="pure", main=F(1)), Adjacency.ADD_REMOVE)
    assert isinstance(beside.lowered.recipes[0], Mean)
    assert all(len(block) == 1 for block in beside.lowered.blocks)


# ---------------------------------------------------------------------------------------------- estimates


def noisy(above, below, law):
    return Noisy(size=len(above), cells=(np.array(above), np.array(below)), noise=(law, law), choices=())


def test_without_noise_to_speak_of_it_is_the_mean():
    values = np.array([[-2.0, 8.0, 3.5], [8.0, 8.0, 8.0], [-2.0, -2.0, -2.0]])
    above = ((values + 2) * 2).sum(axis=1).astype(int) * 10**9
    below = ((8 - values) * 2).sum(axis=1).astype(int) * 10**9
    found = RECIPE.estimate(noisy(above, below, DiscreteLaplace(1)))
    for column in (found.value, found.low, found.high):
        assert np.allclose(column.to_numpy(), values.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_the_set_holds_all_means_that_fit_and_no_others(law):
    """Against a search on a fine grid of means, by the definition."""
    drawn = law(30)
    cells = [(400, 100), (100, 400), (900, 5), (5, 900), (60, 60), (-40, 300), (-80, -90), (0, 0), (20, 2000)]
    found = RECIPE.estimate(noisy(*zip(*cells, strict=True), drawn), F(19, 20))
    grid = np.linspace(0, 1, 20_001)
    q = RECIPE._reaches((drawn, drawn), F(19, 20), grid)
    for place, (u, v) in enumerate(cells):
        fits = grid[np.abs((1 - grid) * u - grid * v) <= q]
        low, high = (-2 + 10 * end for end in ((fits[0], fits[-1]) if fits.size else (0.0, 1.0)))
        assert found.low[place].as_py() <= low + 1e-3
        assert found.high[place].as_py() >= high - 1e-3
        if fits.size and u > 200 and v > 4:
            assert found.low[place].as_py() == pytest.approx(low, abs=2e-3)
            assert found.high[place].as_py() == pytest.approx(high, abs=2e-3)


def test_of_nothing_nothing_is_known():
    found = RECIPE.estimate(noisy([3], [-2], DiscreteLaplace(30)))
    assert (found.low[0].as_py(), found.value[0].as_py(), found.high[0].as_py()) == (-2.0, 3.0, 8.0)


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("groups", "keys"), [(1, 0), (1, 5), (3, 5), (40, 60)])
def test_it_errs_no_more_than_a_centred_sum_over_a_count(kind, adjacency, groups, keys, monkeypatch):
    """To first order, for every mean: (1 − t)·N − t·M against N′ − (t − ½)·size·M′, all over the number of rows."""
    new = price(asked(Function.AVG, groups=groups, keys=keys), QueryBudget(kind=kind, main=F(1)), adjacency)
    monkeypatch.setattr(noise, "ways", lambda _: ())
    old = price(
        asked(Function.AVG, Function.VAR_POP, groups=groups, keys=keys), QueryBudget(kind=kind, main=F(5, 2)), adjacency
    )
    deviation = 1 if isinstance(new.noise[0], DiscreteGaussian) else 2**0.5
    ends, mean = new.lowered.recipes[0], old.lowered.recipes[0]
    # AVG alone has half of the budget for each of its two cells; VAR_POP beside it has three: ½ + ⅓ of half of 5/2
    share = 1 if kind == "pure" else 0.5
    factor = ((F(5, 2) / 2) * (F(1, 2) + F(1, 3)) / F(1, 2)) ** share
    fall = 2**0.5 if isinstance(old.noise[0], DiscreteLaplace) else 1
    for t in np.linspace(0, 1, 11):
        one = deviation * float(new.noise[0].scale) * float(ends.step) * np.hypot(1 - t, t)
        size = float((mean.high - mean.low) / mean.x.step)
        parts = (float(old.noise[mean.x.cell].scale), (t - 0.5) * size * float(old.noise[mean.count].scale))
        other = fall * float(factor) * float(mean.x.step) * np.hypot(*parts)
        assert one <= other * 1.02


def test_the_permanent_form():
    assert from_json(to_json(RECIPE)) == RECIPE
    assert to_json(RECIPE)[0] == "ends"
