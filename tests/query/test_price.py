"""Prices: sensitivities against all neighbours of tiny tables, budgets that are never exceeded, errors that are met."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from dither.errors import InvalidParameter, Refused
from dither.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    GaussianThreshold,
    PartitionSelection,
    PermuteAndFlip,
    Quantile,
)
from dither.mechanisms.exponential import BoundedRangeLoss
from dither.privacy import Adjacency, PrivacyLoss
from dither.privacy.composition import Composed
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.measures import Span, choice_reach, reach_of, short_up, sqrt_up
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan
from dither.query.price import key_selection
from dither.query.price.key_selection import select_keys, select_keys_without_gaussian
from dither.query.price.noise import (
    QueryBudget,
    _advantage,
    _gaussian_errs_less,
    _laplace_epsilon,
    _near_laplace_epsilon,
    laplace_errs_less,
    price,
    price_for_error,
)

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())
X = Argument(expression=Column("c0", Kind.DOUBLE), facts=Facts(bounds=Interval(F(0), F(100)), step=F(1, 100)))
N = Argument(expression=Column("c1", Kind.INTEGER), facts=Facts(bounds=Interval(F(-3), F(20))))
Y = Argument(expression=Column("c2", Kind.DOUBLE), facts=Facts(bounds=Interval(F(-1), F(2))))


def ask(function, *arguments, **more):
    return Aggregate(function=function, arguments=arguments, **more)


def key(*values):
    return Key(expression=Column("c9", Kind.INTEGER), kind=Kind.INTEGER, values=values or None)


def aggregation(*aggregates, keys=(), groups=1, rows=1, discover=False, units="column"):
    return Aggregation(
        relation=SCAN, units=units, keys=keys, aggregates=aggregates, groups=groups, rows=rows, discover=discover,
        tables=("t",),
    )  # fmt: skip


def pure(epsilon):
    return QueryBudget(kind="pure", main=F(epsilon))


def zcdp(rho, delta=0):
    return QueryBudget(kind="zcdp", main=F(rho), delta=F(delta))


# ---------------------------------------------------------------------------------------------- sensitivity


def vectors(groups, cells, low, high):
    """Everything one unit can add: a number of [low, high] in at most ``groups`` of the cells, nothing elsewhere."""
    for vector in itertools.product({0, *range(low, high + 1)}, repeat=cells):
        if sum(v != 0 for v in vector) <= groups:
            yield vector


@pytest.mark.parametrize(("groups", "cells"), [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4)])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 2), (-1, 1), (-1, 2), (-2, 0), (1, 2)])
def test_the_reach_is_the_largest_over_all_neighbours(groups, cells, low, high):
    units = list(vectors(groups, cells, low, high))
    pairs = {ADD: [(u, (0,) * cells) for u in units], REPLACE: itertools.product(units, units)}
    for adjacency, neighbours in pairs.items():
        reach = reach_of(low, high, Span.of(groups, cells), adjacency)
        moved = [[a - b for a, b in zip(u, v, strict=True)] for u, v in neighbours]
        assert max(sum(map(abs, m)) for m in moved) == reach.l1
        assert max(sum(x * x for x in m) for m in moved) == reach.l2_squared
        assert max(sum(x != 0 for x in m) for m in moved) <= reach.groups
        assert max(max(map(abs, m)) for m in moved) <= reach.per_group


def test_unknown_numbers_of_groups_are_the_worst():
    for adjacency in Adjacency:
        unknown = reach_of(-1, 2, Span.of(2, None), adjacency)
        assert unknown == reach_of(-1, 2, Span.of(2, 4), adjacency)
        assert unknown.l1 >= reach_of(-1, 2, Span.of(2, 3), adjacency).l1


@pytest.mark.parametrize(("groups", "cells"), [(1, 1), (1, 2), (2, 2), (2, 3), (2, 5), (3, 4)])
@pytest.mark.parametrize(("alone", "moved"), [(F(1), F(2)), (F(1), F(1)), (F(9, 5), F(2))])
def test_the_reach_of_choices_is_the_largest_over_all_neighbours(groups, cells, alone, moved):
    held = [set(s) for n in range(groups + 1) for s in itertools.combinations(range(cells), n)]
    span = Span.of(groups, cells)
    for power in (1, 2):
        added = max(len(s) * alone**power for s in held)
        replaced = max(len(s & t) * moved**power + len(s ^ t) * alone**power for s in held for t in held)
        for adjacency, most in ((ADD, added), (REPLACE, replaced)):
            reach = choice_reach(alone, moved, span, adjacency)
            assert (reach.total, reach.squares)[power - 1] == most


@pytest.mark.parametrize(("kind", "mechanism"), [("pure", PermuteAndFlip), ("zcdp", Exponential)])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_mode_moves_no_further_than_charged(kind, mechanism, adjacency):
    # all histograms of up to 2 values of a unit, on top of all small ones of other units
    rows, candidates = 2, 3
    asked = ask(Function.MODE, Argument(expression=Column("c1", Kind.INTEGER), facts=Facts(keys=(1, 2, 3))))
    priced = price(aggregation(asked, rows=rows), QueryBudget(kind=kind, main=F(1)), adjacency)
    chooser = priced.choosers[0]
    assert isinstance(chooser, mechanism)
    units = [u for u in itertools.product(range(rows + 1), repeat=candidates) if sum(u) <= rows]
    others = [np.array(o) for o in itertools.product(range(3), repeat=candidates)]
    worst = 0.0
    for other in others:
        laws = np.log([chooser.law(other + np.array(u)).probabilities for u in units])
        near = laws[:1] if adjacency is ADD else laws
        for law in near:
            ratios = laws - law
            wide = ratios.max(1) - ratios.min(1) if kind == "zcdp" else np.abs(ratios).max(1)
            worst = max(worst, float(wide.max()))
    range_charged = 1.0 if kind == "pure" else math.sqrt(8)  # ρ = range²/8
    assert worst <= range_charged * (1 + 1e-9)
    assert worst > range_charged * (0.9 if kind == "zcdp" else 0.6)  # else the noise would be wasted


# ---------------------------------------------------------------------------------------------- exact prices


def test_a_count_costs_what_it_was_given():
    priced = price(aggregation(ask(Function.COUNT), keys=(key(1, 2, 3),), groups=2, rows=3), pure("1/2"), ADD)
    assert priced.noise == (DiscreteLaplace(12),)
    assert priced.loss.pure_exactly() == F(1, 2)
    replaced = price(aggregation(ask(Function.COUNT), keys=(key(1, 2, 3),), groups=2, rows=3), pure("1/2"), REPLACE)
    assert replaced.noise == (DiscreteLaplace(18),)  # both in 2 of 3 groups: one is shared
    assert replaced.loss.pure_exactly() == F(1, 2)


def test_gaussian_noise_by_the_euclidean_norm():
    priced = price(aggregation(ask(Function.SUM, N), keys=(key(*range(9)),), groups=4), zcdp("1/2"), ADD)
    (noise,) = priced.noise
    assert isinstance(noise, DiscreteGaussian)
    assert noise.scale**2 >= 4 * 20**2
    assert noise.scale**2 < 4 * 20**2 * (1 + F(1, 2**30))
    replaced = price(aggregation(ask(Function.SUM, N), keys=(key(*range(9)),), groups=4), zcdp("1/2"), REPLACE)
    assert 2 * 4 * 20**2 <= replaced.noise[0].scale ** 2 < 2 * 4 * 20**2 * (1 + F(1, 2**30))


def test_weights_divide_the_budget():
    priced = price(aggregation(ask(Function.COUNT, weight=F(3)), ask(Function.SUM, N)), pure(1), ADD)
    assert [loss.pure_exactly() for loss in priced.losses] == [F(3, 4), F(1, 4)]


def test_shared_cells_get_what_all_their_owners_give():
    # COUNT(x) 1/2 and half of AVG's 1/2
    priced = price(aggregation(ask(Function.COUNT, X), ask(Function.AVG, X)), pure(1), ADD)
    assert [loss.pure_exactly() for loss in priced.losses] == [F(3, 4), F(1, 4)]
    # the same aggregate twice is one, with all of the budget
    twice = price(aggregation(ask(Function.COUNT), ask(Function.COUNT)), pure(1), ADD)
    assert [loss.pure_exactly() for loss in twice.losses] == [1]


def test_what_is_decided_by_bounds_is_free():
    same = Argument(expression=Column("c0", Kind.DOUBLE), facts=Facts(bounds=Interval(F(7), F(7))))
    free = price(aggregation(ask(Function.AVG, same)), pure(1), ADD)
    assert free.loss.pure() == 0
    assert free.errors()[0].half_width == 0
    beside = price(aggregation(ask(Function.AVG, same), ask(Function.COUNT)), pure(1), ADD)
    assert beside.losses[0].pure_exactly() == 1


def test_quantiles_and_modes():
    asked = (
        ask(Function.QUANTILE, X, quantile=F(1, 2)),
        ask(Function.QUANTILE, X, quantile=F(9, 10)),
        ask(Function.MODE, N),
        ask(Function.COUNT),
    )
    for adjacency in Adjacency:
        both = aggregation(*asked, keys=(key(1, 2, 3, 4),), groups=2, rows=3)
        priced = price(both, pure(4), adjacency)
        assert [type(c) for c in priced.choosers] == [Quantile, Quantile, PermuteAndFlip]
        # half of a quantile's quarter is for what is counted around it, which two quantiles of one column share
        assert [loss.pure_exactly() for loss in priced.choice_losses] == [F(1, 2), F(1, 2), 1]
        assert [loss.pure_exactly() for loss in priced.nearby_losses] == [1]
        cheaper = price(both, zcdp(4), adjacency)
        assert [type(c) for c in cheaper.choosers] == [Quantile, Quantile, Exponential]
        found = [loss.zcdp_exactly() for loss in (*cheaper.choice_losses, *cheaper.nearby_losses)]
        assert all(
            (1 - F(1, 2**30)) * share < rho <= share for rho, share in zip(found, [F(1, 2), F(1, 2), 1, 1], strict=True)
        )
    median = price(both, pure(4), ADD).choosers[0]
    assert median.scale == 2 * 2 * 3  # half of the share, two groups, range 2·3·½ in each
    assert median.loss(ADD, rows=3).pure_exactly() * 2 == F(1, 2)
    assert price(both, pure(4), REPLACE).choosers[0].scale == 24


def test_what_is_counted_around_a_quantile_moves_by_what_rows_do():
    """However many bins: a unit has three rows in each of two groups, and replaced it has six there."""
    asked = aggregation(ask(Function.QUANTILE, X, quantile=F(1, 2)), keys=(key(1, 2, 3, 4),), groups=2, rows=3)
    for adjacency, l1, l2_squared in ((ADD, 6, 18), (REPLACE, 12, 36)):
        (noise,) = price(asked, pure(2), adjacency).nearby
        assert noise == DiscreteLaplace(l1)
        # an interval alone doesn't close the sum of ε
        alone = price(asked, zcdp("1/1000"), adjacency)
        assert isinstance(alone.nearby[0], DiscreteLaplace)
        assert math.isfinite(alone.loss.pure()) is (adjacency is ADD)  # of a choice under replace ρ alone is stated
        beside = replace(asked, aggregates=(*asked.aggregates, ask(Function.COUNT)))
        (noise,) = price(beside, zcdp("1/500"), adjacency).nearby
        assert isinstance(noise, DiscreteGaussian)
        assert float(noise.scale) ** 2 == pytest.approx(l2_squared / (2 * 0.0005), rel=1e-9)
    both = aggregation(ask(Function.QUANTILE, X, quantile=F(1, 2)), ask(Function.COUNT), groups=1, rows=1)
    for main in ("1/1000", "30"):
        priced = price(both, zcdp(main), ADD)
        assert type(priced.nearby[0]) is type(priced.noise[0])


def test_the_smaller_error_decides_the_law():
    for rho in ("1/1000", "1/10", "2", "20", "200"):
        for groups in (1, 4):
            wide = aggregation(ask(Function.SUM, X), keys=(key(*range(9)),), groups=groups)
            priced = price(wide, zcdp(rho), ADD)
            gaussian = DiscreteGaussian(sqrt_up(priced.reaches[0].l2_squared / (2 * F(rho))))
            laplace = DiscreteLaplace(short_up(priced.reaches[0].l1 / _laplace_epsilon(F(rho))))
            best = min((gaussian, laplace), key=lambda m: m.error())
            assert type(priced.noise[0]) is type(best)
    assert isinstance(price(aggregation(ask(Function.SUM, X)), zcdp(20), ADD).noise[0], DiscreteLaplace)


@given(
    st.lists(st.tuples(st.floats(1e-9, 1e4), st.integers(1, 50), st.integers(1, 60)), min_size=1, max_size=4),
)
def test_the_law_is_decided_as_by_the_exact_epsilon(cells):
    shares = [F(rho) for rho, _, _ in cells]
    reaches = [reach_of(0, part, Span.of(groups, None), ADD) for _, part, groups in cells]
    exact = sum(_advantage(r, rho, _laplace_epsilon(rho)) for r, rho in zip(reaches, shares, strict=True))
    assert _gaussian_errs_less(reaches, shares) is (exact >= 0)
    for rho in shares:
        assert math.isclose(_near_laplace_epsilon(float(rho)), _laplace_epsilon(rho), rel_tol=1e-8)


def test_a_tie_of_both_laws_is_decided_by_the_exact_epsilon(monkeypatch):
    """Where what stands in for ε leaves it open, a tie is Gaussian, and a hair less is not."""
    reach, rho = reach_of(0, 1, Span.of(1, None), ADD), F(20)
    even = _advantage(reach, rho, 1)
    monkeypatch.setattr("dither.query.price.noise._near_laplace_epsilon", lambda _: math.exp(even))
    for epsilon, gaussian in ((math.exp(even) * (1 - 1e-9), True), (math.exp(even) * (1 + 1e-9), False)):
        monkeypatch.setattr("dither.query.price.noise._laplace_epsilon", lambda _, epsilon=epsilon: F(epsilon))
        assert _gaussian_errs_less([reach], [rho]) is gaussian


@pytest.mark.parametrize("weight", ["1e-350", "1e350"])
def test_a_share_that_no_float_holds_is_refused(weight):
    lopsided = aggregation(ask(Function.COUNT, weight=F(weight)), ask(Function.SUM, N))
    with pytest.raises(Refused) as caught:
        price(lopsided, zcdp("1/10"), ADD)
    assert caught.value.code == "budget_too_small"


# ---------------------------------------------------------------------------------------------- never too much

ARGUMENTS = {
    Function.COUNT: (),
    Function.COUNT_UNITS: (),
    Function.COUNT_DISTINCT: (X,),
    Function.SUM: (N,),
    Function.AVG: (X,),
    Function.AVG_PER_UNIT: (X,),
    Function.VAR_POP: (X,),
    Function.STDDEV_SAMP: (Y,),
    Function.COVAR_SAMP: (X, Y),
    Function.CORR: (X, N),
    Function.QUANTILE: (X,),
    Function.MODE: (N,),
}


@st.composite
def aggregations(draw):
    functions = draw(st.lists(st.sampled_from(list(ARGUMENTS)), max_size=5))
    asked = [
        ask(
            f,
            *ARGUMENTS[f],
            quantile=draw(st.sampled_from([F(1, 4), F(1, 2), F(9, 10)])) if f is Function.QUANTILE else None,
            weight=draw(st.fractions("1/100", 10)),
        )
        for f in functions
    ]
    discover = draw(st.booleans())
    keys = (key(),) if discover else draw(st.sampled_from([(), (key(1, 2, 3),), (key(1, 2), key(3, 4, 5))]))
    row = draw(st.booleans())
    groups, rows = (1, 1) if row else (draw(st.integers(1, 40)), draw(st.integers(1, 30)))
    return aggregation(*asked, keys=keys, groups=groups, rows=rows, discover=discover, units="row" if row else "column")


def by_formula(loss):
    """ρ by the formula that shares are divided by: from 8 on what a choice loses is known to be less."""
    if isinstance(loss, Composed):
        return sum(times * by_formula(part) for part, times in loss.parts)
    return float(loss.exact_range) ** 2 / 8 if isinstance(loss, BoundedRangeLoss) else loss.zcdp()


def test_what_a_choice_loses_is_less_than_the_formula_says_where_it_is_large():
    choice = price(aggregation(ask(Function.QUANTILE, X, quantile=F(1, 2))), QueryBudget(kind="zcdp", main=F(40)), ADD)
    (loss,) = choice.choice_losses
    assert loss.zcdp() < 0.95 * by_formula(loss)
    assert by_formula(loss) == pytest.approx(20, rel=1e-9)


@given(aggregations(), st.sampled_from(["pure", "zcdp"]), st.fractions("1/1000", 20), st.sampled_from(list(Adjacency)))
def test_no_price_exceeds_its_budget(asked, kind, main, adjacency):
    assume(not (asked.discover and kind == "pure"))
    budget = QueryBudget(kind=kind, main=main, delta=F(1, 10**6) if asked.discover else F(0))
    priced = price(asked, budget, adjacency)
    parts = [*priced.losses, *priced.choice_losses, *priced.nearby_losses]
    assert priced.loss.adjacency is adjacency or not parts
    if kind == "pure":
        # each mechanism says itself what it costs; nothing is lost on the way either
        assert sum(loss.pure_exactly() for loss in parts) == priced.loss.pure_exactly() <= main
        assert priced.loss.pure_exactly() >= main * (1 - F(1, 10**9)) or not parts
        return
    rho, delta = priced.loss.approximate_zcdp()
    assert rho <= main
    assert delta <= budget.delta
    if parts and not priced.selection:
        divided = sum(map(by_formula, parts))
        assert rho <= divided * (1 + 1e-9)
        assert divided >= float(main) * (1 - 1e-6)
    assert PrivacyLoss.from_json(priced.loss.to_json()).approximate_zcdp() == (rho, delta)
    for mechanism, reach in zip(priced.noise, priced.reaches, strict=True):
        cost = reach.l2_squared / (2 * mechanism.scale**2) if isinstance(mechanism, DiscreteGaussian) else 0
        assert cost <= main


@given(aggregations(), st.fractions("1/100", 5), st.fractions("101/100", 3))
def test_a_larger_budget_has_smaller_errors(asked, main, more):
    discover = replace(asked, discover=False, keys=()) if asked.discover else asked
    for kind in ("pure", "zcdp"):
        small = price(discover, QueryBudget(kind=kind, main=main), ADD)
        large = price(discover, QueryBudget(kind=kind, main=main * more), ADD)
        # with more, Laplace noise may err less than Gaussian noise, and then other cells may be measured
        if small.lowered == large.lowered:
            for less, same in zip(small.noise, large.noise, strict=True):
                if type(less) is type(same):
                    assert less.scale > same.scale
                    assert less.error() >= same.error()
        assert all(a.scale > b.scale for a, b in zip(small.choosers, large.choosers, strict=True))


def test_budgets_are_checked():
    for wrong in (
        {"kind": "zcpd", "main": F(1)},
        {"kind": "pure", "main": F(0)},
        {"kind": "zcdp", "main": 1, "delta": 1},
    ):
        with pytest.raises(InvalidParameter):
            QueryBudget(**wrong)
    with pytest.raises(Refused) as refused:
        price(aggregation(ask(Function.SUM, X)), pure(F(1, 10**15)), ADD)
    assert refused.value.code == "budget_too_small"
    with pytest.raises(InvalidParameter, match="weight"):
        price(aggregation(ask(Function.COUNT, weight=F(0))), pure(1), ADD)


# ---------------------------------------------------------------------------------------------- errors


def test_errors_in_words():
    asked = [ask(f, *a, quantile=F(1, 2) if f is Function.QUANTILE else None) for f, a in ARGUMENTS.items()]
    for budget in (pure(5), zcdp(1)):
        priced = price(aggregation(*asked), budget, ADD)
        by_function = dict(zip(ARGUMENTS, priced.errors(), strict=True))
        for function in (Function.COUNT, Function.COUNT_UNITS, Function.COUNT_DISTINCT, Function.SUM):
            assert str(by_function[function]) == f"±{by_function[function].half_width:.0f}"
        assert all(e.half_width is None for e in by_function.values() if "±(" in str(e) or "ranks" in str(e))
        assert str(by_function[Function.AVG]).endswith(" / rows in the group)")
        assert str(by_function[Function.QUANTILE]).endswith(" ranks")
        assert all(priced.mechanisms)


def test_the_error_of_a_sum_is_in_its_own_units():
    priced = price(aggregation(ask(Function.SUM, X)), pure(1), ADD)
    (error,) = priced.errors(F(9, 10))
    assert error.half_width == pytest.approx(100 * math.log(10), rel=1e-3)


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("discover", [False, True])
def test_the_smallest_budget_for_an_error(kind, adjacency, discover):
    if discover and kind == "pure":
        return
    asked = aggregation(
        ask(Function.COUNT), ask(Function.SUM, X), ask(Function.AVG, X),
        keys=(key() if discover else key(1, 2, 3, 4, 5),), groups=2, rows=2, discover=discover,
    )  # fmt: skip
    delta = F(1, 10**6) if discover else F(0)
    targets = {0: F(50), 1: F(4000)}
    found = price_for_error(asked, targets, kind=kind, delta=delta, adjacency=adjacency, confidence=F(9, 10))

    def met(priced):
        errors = priced.errors(F(9, 10))
        return all(errors[i].half_width <= most for i, most in targets.items())

    assert met(found)
    less = replace(found.budget, main=found.budget.main * (1 - F(1, 10**5)))
    assert not met(price(asked, less, adjacency))


def test_errors_that_depend_on_data_can_not_be_asked_for():
    for function in (Function.AVG, Function.VAR_POP, Function.CORR, Function.QUANTILE, Function.MODE):
        q = F(1, 2) if function is Function.QUANTILE else None
        asked = aggregation(ask(function, *ARGUMENTS[function], quantile=q))
        with pytest.raises(Refused) as refused:
            price_for_error(asked, {0: F(1)}, kind="pure", delta=F(0), adjacency=ADD)
        assert refused.value.code == "error_unknown"


# ---------------------------------------------------------------------------------------------- keys from the data


def test_keys_need_a_delta():
    asked = aggregation(ask(Function.COUNT), keys=(key(),), discover=True)
    for budget in (pure(1), QueryBudget(kind="pure", main=F(1), delta=F(1, 10**6)), zcdp(1)):
        with pytest.raises(Refused) as refused:
            price(asked, budget, ADD)
        assert refused.value.code == "keys_need_delta"
        assert "in = [...]" in refused.value.hint


def test_selection_gets_the_share_of_one_aggregate_or_all():
    alone = price(aggregation(keys=(key(),), discover=True), zcdp(1, "1/1000000"), ADD)
    beside = price(aggregation(ask(Function.COUNT), keys=(key(),), discover=True), zcdp(1, "1/1000000"), ADD)
    assert alone.selection.loss.approximate_zcdp()[0] == pytest.approx(1, rel=1e-9)
    assert beside.selection.loss.approximate_zcdp()[0] == pytest.approx(0.5, rel=1e-9)
    assert f"{beside.selection.enough}" in beside.selection_in_words()


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("rho", "delta"), [("1/100", "1e-6"), ("1/2", "1e-9"), ("4", "1e-3"), ("40", "1e-5")])
def test_both_ways_of_selecting_cost_no_more_than_given(groups, adjacency, rho, delta):
    exact, chance = F(rho), F(delta)
    ways = [
        key_selection._threshold(exact, chance, groups, adjacency),
        key_selection._ladder(exact, chance, groups, adjacency, 10**6),
    ]
    for way in ways:
        cost, given_away = way.loss.approximate_zcdp()
        assert cost <= exact * (1 + F(1, 2**41))
        assert given_away <= chance
        assert way.loss.adjacency is adjacency
        assert way.mechanism.keep_probability(1) * groups <= chance
        assert way.mechanism.keep_probability(way.enough) >= 0.95 > way.mechanism.keep_probability(way.enough - 1)
    assert select_keys(exact, chance, groups, adjacency).enough == min(way.enough for way in ways)


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("epsilon", "delta"), [("1/3", "1e-6"), ("2", "1e-9"), ("1/10", "1e-2")])
def test_keys_without_gaussian_noise_lose_their_epsilon_but_for_delta(groups, adjacency, epsilon, delta):
    """Exactly: over one unit more or less in each key that it moves, and no more than is charged."""
    exact, chance = F(epsilon), F(delta)
    found = select_keys_without_gaussian(exact, chance, groups, adjacency)
    moved = groups if adjacency is ADD else 2 * groups
    left, given_away = found.loss.decomposed()
    assert 0 < left.pure_exactly() <= exact
    assert 0 < given_away <= chance
    each, part = math.exp(left.pure() / moved), float(given_away / moved)
    shown = [float(found.mechanism.keep_probability(units)) for units in range(found.mechanism.certain + 2)]
    for fewer, more in itertools.pairwise(shown):
        for p, q in ((more, fewer), (fewer, more)):
            assert p <= each * q + part + 1e-12
            assert 1 - p <= each * (1 - q) + part + 1e-12
    # a larger ε, or a larger δ, would be broken: no more is charged than it takes
    assert shown[1] == pytest.approx(part, rel=1e-6)


@pytest.mark.parametrize("more", [{}, {"keys": (key(),), "discover": True}])
@pytest.mark.parametrize("functions", [(Function.COUNT,), (Function.COUNT, Function.SUM), (Function.VAR_POP,)])
def test_a_question_with_laplace_noise_and_keys_is_within_epsilon_and_delta(functions, more):
    asked = aggregation(*(ask(one, *(() if one is Function.COUNT else (X,))) for one in functions), groups=3, **more)
    found = price(asked, QueryBudget(kind="approximate", main=F(1, 2), delta=F(1, 10**8)), ADD)
    left, given_away = found.loss.decomposed()
    assert F(1, 2) * F(999, 1000) < left.pure_exactly() <= F(1, 2)
    assert (given_away > 0) == bool(more)
    assert given_away <= F(1, 10**8)
    assert all(isinstance(one, DiscreteLaplace) for one in found.noise)


@pytest.mark.parametrize("groups", [1, 2, 7, 40])
def test_which_law_errs_less_is_a_matter_of_groups_and_budget(groups):
    """3.0·G/ε against 1.96·√(G/2ρ), for one count with one row in each group."""
    asked = aggregation(ask(Function.COUNT), keys=(key(*range(100)),) if groups > 1 else (), groups=groups)
    for epsilon in (F(1, 10), F(1), F(3)):
        equal = epsilon**2 / (2 * groups) * F(0.42805)
        assert not laplace_errs_less(asked, epsilon=epsilon, rho=equal * F(101, 100), adjacency=ADD)
        assert laplace_errs_less(asked, epsilon=epsilon, rho=equal * F(99, 100), adjacency=ADD)


def test_each_way_of_selecting_wins_somewhere():
    assert isinstance(select_keys(F(1, 100), F(1, 10**6), 4, ADD).mechanism, GaussianThreshold)
    assert isinstance(select_keys(F(1, 1000), F(1, 100), 1, ADD).mechanism, PartitionSelection)


def shown_law(threshold, sigma, count, reach=60):
    """Pr[what is seen of one key]: index 0 is nothing, the rest the noisy count."""
    noise = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    noise /= noise.sum()
    law = np.zeros(2 * reach + 1)
    for value, chance in zip(range(-reach, reach + 1), noise, strict=True):
        seen = count + value
        law[seen if count and seen >= threshold else 0] += chance
    return law


@pytest.mark.parametrize("pair", [((1, 0), (0, 1)), ((9, 8), (8, 9)), ((4, 0), (3, 1)), ((1, 3), (0, 4))])
def test_a_replaced_unit_is_hidden_by_a_noisy_threshold(pair):
    # two keys, one unit in one of them: before and after, with other units or alone; all outputs listed
    way = key_selection._threshold(F(1, 2), F(1, 20), 1, REPLACE)
    threshold, sigma = way.mechanism.threshold, float(way.mechanism.scale)
    assert threshold < 10
    laws = [np.multiply.outer(*(shown_law(threshold, sigma, c) for c in counts)).ravel() for counts in pair]
    for epsilon in np.linspace(0, 3, 16):
        claimed = way.loss.delta(F(epsilon))
        for p, q in (laws, laws[::-1]):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= claimed * (1 + 1e-9)


def test_what_hides_one_unit_more_or_less_does_not_hide_a_replacement():
    way = key_selection._threshold(F(1, 2), F(1, 20), 1, ADD)
    threshold, sigma = way.mechanism.threshold, float(way.mechanism.scale)
    p, q = (np.multiply.outer(*(shown_law(threshold, sigma, c) for c in x)).ravel() for x in ((19, 18), (18, 19)))
    lost = {epsilon: np.maximum(p - math.exp(epsilon) * q, 0).sum() for epsilon in (1.0, 1.5, 2.0, 2.5)}
    assert any(delta > way.loss.delta(F(epsilon)) for epsilon, delta in lost.items())


@pytest.mark.parametrize("pair", [((1, 0), (0, 1)), ((4, 3), (3, 4)), ((6, 0), (5, 1))])
def test_a_replaced_unit_is_hidden_by_independent_decisions(pair):
    way = key_selection._ladder(F(1, 2), F(1, 50), 1, REPLACE, 10**6)
    laws = []
    for counts in pair:
        kept = [float(way.mechanism.keep_probability(c)) for c in counts]
        laws.append(np.multiply.outer(*[[1 - k, k] for k in kept]).ravel())
    for epsilon in np.linspace(0, 2, 11):
        for p, q in (laws, laws[::-1]):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= way.loss.delta(F(epsilon)) * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------- rounding


@given(st.fractions("1/1000000000000", 10**30))
def test_scales_round_up_and_stay_short(value):
    root = sqrt_up(value)
    assert value <= root**2 < value * (1 + F(1, 2**37))
    short = short_up(value)
    assert value <= short < value * (1 + F(1, 2**38))
    for rounded in (root, short):
        assert max(rounded.numerator, rounded.denominator).bit_length() < 170
