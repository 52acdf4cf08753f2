"""Intervals cover at their stated rate: the short form of benchmarks/coverage.py, and the old ways, which must fail.

α is 10⁻⁹ a rate here, of 20,000 runs each: caught is a rate of 93% for 95%, or of 98% for 99%, with a chance to miss
it below 10⁻⁶.
"""

import importlib.util
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator.answers.post_processing import alone, shape
from dither.curator.answers.release import Released
from dither.engines.duckdb.noisy_rows import compute
from dither.mechanisms import DiscreteGaussian
from dither.query.aggregates.base import Noisy
from dither.query.aggregates.moments import _limits, _statistic
from dither.query.aggregates.spread import multiplier, standard_deviation
from dither.query.price import noise as pricing
from support.sizes import at_night, some

ALPHA, RUNS = 1e-9, 20_000


@pytest.fixture(scope="module")
def bench():
    path = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("benchmark_coverage", path)
    module = importlib.util.module_from_spec(spec)
    # as Python does for a script: its own folder comes first
    sys.path.insert(0, str(path.parent))
    sys.modules["benchmark_coverage"] = module
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    yield module
    del sys.modules["benchmark_coverage"]


@pytest.fixture(scope="module")
def world(bench, tmp_path_factory):
    """Worlds by what they are made of: prices and draws charge nothing, so that tests share them."""
    opened = {}

    def make(data="log-normal", size=100, law="Laplace"):
        if (data, size, law) not in opened:
            place = tmp_path_factory.mktemp("world") / "here"
            opened[data, size, law] = bench.world(place, bench.rows_of(data, size), bench.LAWS[law])
        return opened[data, size, law]

    yield make
    for one in opened.values():
        one.close()


def enough(covered, runs, stated):
    return stats.binom.cdf(covered, runs, stated) >= ALPHA


def test_a_fault_of_two_hundredths_is_caught():
    """The power of every rate here: what is covered so seldom passes with a chance below 10⁻⁶."""
    for stated, fault in ((0.95, 0.93), (0.99, 0.98)):
        least = next(n for n in range(int(0.9 * RUNS), RUNS) if enough(n, RUNS, stated))
        assert stats.binom.sf(least - 1, RUNS, fault) < 1e-6


# ---------------------------------------------------------------------------------------------- every form

CELLS = [
    ("log-normal", 3, "1"),
    ("1% of rows", 30, "3"),
    ("at the bounds", 100, "3"),
    ("constant", 300, "0.3"),
    ("log-normal", 1_000, "1"),
    ("at the bounds", 10_000, "0.1"),
]


# by day three of them, each with one of the two laws
LAWS = [
    pytest.param(*cell, law, marks=[at_night] if (place + turn) % 4 else [])
    for place, cell in enumerate(CELLS)
    for turn, law in enumerate(("Laplace", "Gaussian"))
]


@pytest.mark.parametrize(("data", "size", "epsilon", "law"), LAWS)
def test_every_form_covers_at_its_stated_rate(bench, world, data, size, epsilon, law):
    names = {"data": data, "size": size, "law": law}
    found = list(bench.rates(world(data, size, law), tuple(bench.FORMS), epsilon, RUNS, **names))
    assert len(found) >= 2 * (len(bench.FORMS) - 4)
    low = [(rate.form, rate.stated, rate.rate) for rate in found if not enough(rate.covered, RUNS, rate.stated)]
    assert not low


@at_night
def test_answers_about_units_by_group_cover(bench):
    """COUNT(DISTINCT unit) and the rest on a table with a unit column; bars of three quarters of their width fail."""
    found = list(bench.by_units(RUNS // 2, epsilons=["1"]))
    assert len(found) == 2 * 2 * len(bench.UNIT_FORMS)
    assert not [rate for rate in found if not enough(rate.covered, rate.runs, rate.stated)]
    narrow = list(bench.by_units(RUNS // 2, epsilons=["1"], forms=["SUM of units' rows"], mutant=0.75))
    assert not [rate for rate in narrow if enough(rate.covered, rate.runs, rate.stated)]


@pytest.mark.parametrize("law", ["Laplace", "Gaussian"])
def test_narrower_bars_are_noticed(bench, world, law):
    """Bars of three quarters of their width: caught where the construction isn't wide by itself."""
    forms = ("COUNT", "SUM", "AVG", "ROUND of AVG", "EXP", "a share", "SUM − 10·COUNT", "a sum of three", "a power")
    names = {"data": "log-normal", "size": 1_000, "law": law}
    # the nearest to its limit is a sum of three Laplace noises, which covers 98.1% for 99%
    found = list(bench.rates(world("log-normal", 1_000, law), forms, "1", 2 * RUNS, mutant=0.75, **names))
    assert len(found) == 2 * len(forms)
    assert not [rate for rate in found if enough(rate.covered, rate.runs, rate.stated)]


# ---------------------------------------------------------------------------------------------- the old ways


def simulated(quote, released, draws=200):
    """As 0.1.0 did: the middle part of the expression on released cells minus fresh noise."""
    maker, size = np.random.default_rng(1), released.size
    cells = []
    for cell, noise in zip(released.cells, released.noise, strict=True):
        law = maker.normal if isinstance(noise, DiscreteGaussian) else maker.laplace
        drawn = np.rint(law(0.0, float(noise.scale), size * draws)).astype(np.int64)
        cells.append(np.tile(cell, draws) - drawn)
    noisy = Noisy(size=size * draws, cells=cells, noise=released.noise, choices=())
    table = pa.table({f"a{i}": recipe.points(noisy) for i, recipe in enumerate(released.recipes)})
    found = compute(table, [("x", quote.shape.outputs[0].expression)]).column("x").cast(pa.float64()).to_numpy()
    ordered = np.sort(found.reshape(draws, size), axis=0)
    return ordered[draws // 40], ordered[-1 - draws // 40]


@pytest.mark.parametrize(
    ("form", "size", "most"),
    [
        ("ROUND of AVG", 3, 0.9),
        ("AVG − AVG", 3, 0.9),
        ("ABS of a difference", 10, 0.9),
        ("GREATEST of four", 100, 0.9),
    ],
)
def test_simulated_intervals_of_expressions_failed(bench, world, form, size, most):
    """The fault that was: 2%, 3%, 38% and 53% for 95%. What is told now covers the very same draws."""
    runs, here = 2_000, world("1% of rows", size)
    quote = here.curator.price(f"SELECT {bench.FORMS[form]} AS v FROM t", epsilon="0.1")
    released, truth = bench.repeated(here, quote, runs), here.truth(bench.FORMS[form])
    assert bench.covering(*simulated(quote, released), truth) < most * runs
    _, bars = shape(released, quote.shape, quote.priced.errors(), Fraction(19, 20))
    assert enough(bench.covering(bars["v"].low, bars["v"].high, truth), runs, 0.95)


def first_order(recipe, released, confidence):
    """As 0.1.0 did for variances: each sum moved by its own spread, the changes added in squares."""
    cells = {cell: released.cells[cell].astype(np.float64) for cell in recipe.cells}
    statistic, (lowest, highest) = _statistic(recipe), _limits(recipe)
    raw = statistic(cells)
    up, down = np.zeros_like(raw), np.zeros_like(raw)
    for cell in recipe.cells:
        noise = released.noise[cell]
        move = multiplier(noise, confidence) * standard_deviation(noise)
        ends = [statistic({**cells, cell: cells[cell] + side * move}) - raw for side in (-1.0, 1.0)]
        up += np.maximum(np.maximum(*ends), 0.0) ** 2
        down += np.minimum(np.minimum(*ends), 0.0) ** 2
    return np.clip(raw - np.sqrt(down), lowest, highest), np.clip(raw + np.sqrt(up), lowest, highest)


@pytest.mark.parametrize("form", ["VAR_POP", "VAR_SAMP"])
def test_first_order_intervals_of_variances_failed(bench, world, form, monkeypatch):
    """The fault that was: 92% for 95%, and 96% for 99%. Then each sum was measured apart."""
    monkeypatch.setattr(pricing, "ways", lambda _: ())
    here = world("at the bounds", 30, "Gaussian")
    quote = here.curator.price(f"SELECT {bench.FORMS[form]} AS v FROM t", epsilon="1")
    released, truth = bench.repeated(here, quote, RUNS), here.truth(bench.FORMS[form])
    for level in bench.LEVELS:
        old = first_order(released.recipes[0], released, level)
        assert not enough(bench.covering(*old, truth), RUNS, float(level))
        _, bars = shape(released, quote.shape, quote.priced.errors(level), level)
        assert enough(bench.covering(bars["v"].low, bars["v"].high, truth), RUNS, float(level))


# ---------------------------------------------------------------------------------------------- chosen rows


def test_chosen_rows_hold(bench):
    found = list(bench.choices(RUNS, data=("alike", "spread")))
    assert len(found) == 2 * 2 * len(bench.QUESTIONS) * len(bench.LEVELS)
    for one in found:
        for rate in (one.share, one.first):
            assert enough(int(rate * RUNS), RUNS, one.stated), one


def test_chosen_rows_as_if_nobody_had_chosen_failed(bench):
    """The fault that was: 52% of the rows of a LIMIT, 31% of those on top of 50 groups, 77% of a HAVING."""
    found = list(bench.choices(RUNS, adjusted=False, data=("alike",)))
    # of groups that are alike more than half pass n > 400, and most of these would be shown anyway
    failed = {one.question for one in found if not enough(int(one.share * RUNS), RUNS, one.stated)}
    assert failed >= {"LIMIT 1", "LIMIT 10", "HAVING n > 410", "HAVING n > 410, LIMIT 5"}


# mean shares vary no more than single rows would: of so many runs 82% pass where 95% is stated
HIDDEN_RUNS = 150


@at_night
@pytest.mark.parametrize("law", ["Laplace", pytest.param("Gaussian", marks=at_night)])
def test_values_that_noise_did_not_hide_hold(bench, law):
    forms = some(list(bench.HIDING), 2)
    found = list(bench.hidden(HIDDEN_RUNS, data=("alike",), laws=[law], forms=forms))
    assert len(found) == len(forms) * len(bench.LEVELS)
    for one in found:
        assert enough(int(one.share * HIDDEN_RUNS), HIDDEN_RUNS, one.stated), one
        # some are shown, or nothing was asked
        assert one.shown > 0


def test_values_that_noise_did_not_hide_as_if_nobody_had_chosen_failed(bench):
    """The fault that was: three tenths of them, for 95%."""
    found = list(bench.hidden(HIDDEN_RUNS, way=alone, data=("alike",), laws=["Laplace"], forms=["CASE without ELSE"]))
    (old,) = (one for one in found if one.stated == 0.95)
    assert not enough(int(old.share * HIDDEN_RUNS), HIDDEN_RUNS, 0.95)


@pytest.mark.parametrize(
    ("expression", "shown", "candidates"),
    [
        ("CASE WHEN COUNT(*) > 100 THEN COUNT(*) END", 40, 50),
        ("CASE WHEN COUNT(*) > 100 THEN COUNT(*) ELSE NULL END", 40, 50),
        ("NULLIF(COUNT(*), 5)", 40, 50),
        ("COUNT(*) + CASE WHEN COUNT(*) > 100 THEN 0 END", 40, 50),
        # a key decides, and no noise
        ("CASE WHEN k < 20 THEN COUNT(*) END", 20, 20),
        ("NULLIF(k, 3) + COUNT(*)", 49, 49),
        # of twenty groups that a key leaves, ten are hidden by noise
        ("CASE WHEN k < 20 AND COUNT(*) > 100 THEN COUNT(*) END", 10, 20),
        ("COALESCE(CASE WHEN COUNT(*) > 100 THEN COUNT(*) END, COUNT(*))", 50, 50),
        ("CASE WHEN COUNT(*) > 1000000 THEN COUNT(*) END", 0, 50),
    ],
)
def test_a_column_that_noise_makes_null_allows_for_the_choice(bench, world, expression, shown, candidates):
    """Ten groups of 5 and forty of 5,000: so many of the candidates are left, and the others' intervals are wider."""
    quote = world().curator.price(f"SELECT k, {expression} AS v, COUNT(*) AS n FROM t GROUP BY k", epsilon="1")
    (noise,), level = quote.priced.noise, Fraction(19, 20)
    table, bars = bench.answered(quote, [np.where(np.arange(bench.GROUPS) < 10, 5, 5_000)], level)
    there = ~table.column("v").is_null().to_numpy()
    assert there.sum() == shown
    assert np.isnan(bars["v"].low[~there]).all()
    half = noise.error(1 - Fraction(1, 20) * Fraction(max(shown, 1), candidates))
    assert set(bars["v"].high[there] - bars["v"].low[there]) <= {2 * half}
    # the other column is shown as a whole
    assert set(bars["n"].high - bars["n"].low) == {2 * noise.error(level)}


def test_ends_that_noise_hides_are_those_of_the_bars(bench, world):
    """DP_INTERVAL_LOW in a CASE: the shown ends are at the level of what is shown, also where they decide it."""
    low = "DP_INTERVAL_LOW(COUNT(*))"
    level = Fraction(19, 20)
    for condition in ("COUNT(*) > 100", f"{low} > 100"):
        ends = f"CASE WHEN {condition} THEN {low} END AS lo, CASE WHEN {condition} THEN COUNT(*) END AS v"
        quote = world().curator.price(f"SELECT k, {ends} FROM t GROUP BY k", epsilon="1")
        (noise,) = quote.priced.noise
        # at 95% five of these are above 100 by more than their error, at 99.5% one of them isn't any more
        near = 100 + int(noise.error(level)) + 2
        cells = np.select([np.arange(bench.GROUPS) < 4, np.arange(bench.GROUPS) == 4], [5_000, near], 5)
        table, bars = bench.answered(quote, [cells], level)
        there = ~table.column("lo").is_null().to_numpy()
        assert there.sum() == (5 if condition == "COUNT(*) > 100" else 4)
        assert (table.column("lo").drop_null().to_numpy() == bars["v"].low[there]).all()
        half = noise.error(1 - Fraction(1, 20) * Fraction(int(there.sum()), bench.GROUPS))
        assert (cells[there] - half == bars["v"].low[there]).all()


@pytest.mark.parametrize(
    ("ending", "shown", "candidates"),
    [("HAVING k < 30", 20, 30), ("HAVING COUNT(*) > 100", 40, 50), ("ORDER BY n DESC LIMIT 45", 1, 50)],
)
def test_hidden_values_of_chosen_rows_allow_for_both(bench, world, ending, shown, candidates):
    sql = f"SELECT CASE WHEN COUNT(*) > 100 THEN COUNT(*) END AS v, COUNT(*) AS n FROM t GROUP BY k {ending}"
    quote = world().curator.price(sql, epsilon="1")
    table, bars = bench.answered(quote, [np.where(np.arange(bench.GROUPS) < 10, 5, 5_000)], Fraction(19, 20))
    there = ~table.column("v").is_null().to_numpy()
    half = quote.priced.noise[0].error(1 - Fraction(1, 20) * Fraction(shown, candidates))
    assert set(bars["v"].high[there] - bars["v"].low[there]) == {2 * half}


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("CASE WHEN COUNT(*) > 100 THEN COUNT(*) END", True),
        ("NULLIF(COUNT(*), 5)", True),
        ("CASE WHEN COUNT(*) > 100 THEN COUNT(*) ELSE 0 END", False),
        ("CASE WHEN k > 3 THEN COUNT(*) END", False),
        ("COALESCE(CASE WHEN COUNT(*) > 100 THEN COUNT(*) END, 0)", False),
        ("SUM(x) / NULLIF(COUNT(*), 0)", False),
    ],
)
def test_an_answer_says_that_noise_hides_values(world, expression, said):
    quote = world().curator.price(f"SELECT k, {expression} AS v FROM t GROUP BY k", epsilon="1")
    assert any("noise decides where v is NULL" in note for note in quote.notes) is said


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("LIMIT 1", "ORDER BY n DESC LIMIT 1"),
        ("LIMIT 10", "ORDER BY n DESC LIMIT 10"),
        ("HAVING n > 410", "HAVING COUNT(*) > 410 ORDER BY n DESC"),
        ("HAVING n > 410, LIMIT 5", "HAVING n > 410 ORDER BY n DESC LIMIT 5"),
    ],
)
def test_answers_choose_as_the_rates_do(bench, world, name, ending):
    quote = world().curator.price(f"SELECT k, COUNT(*) AS n FROM t GROUP BY k {ending}", epsilon="0.1")
    (noise,) = quote.priced.noise
    level, seen = Fraction(19, 20), set()
    drawn = noise.release(np.tile(bench.TRUTHS["spread"], (40, 1)))
    orders, passing, halves = bench.choose(drawn, noise, level, **bench.QUESTIONS[name])
    for cells, order, shown, half in zip(drawn, orders, passing, halves, strict=True):
        found = Released(
            keys=pa.table({"k0": np.arange(bench.GROUPS)}),
            size=bench.GROUPS,
            cells=(cells,),
            noise=quote.priced.noise,
            choices=(),
            recipes=quote.priced.lowered.recipes,
        )
        table, bars = shape(found, quote.shape, quote.priced.errors(level), level)
        assert table.column("k").to_pylist() == order[shown].tolist()
        assert (cells[order[shown]] - bars["n"].low == half).all()
        assert (bars["n"].high - cells[order[shown]] == half).all()
        seen.add(half)
    assert min(seen) > noise.error(level)


@pytest.mark.parametrize(
    ("ending", "wider"),
    [
        ("", False),
        ("ORDER BY k LIMIT 3", False),
        ("ORDER BY n", False),
        ("HAVING k > 3", False),
        # it leaves all of them, and is asked by who reads the first ones
        ("ORDER BY n LIMIT 50", True),
        ("ORDER BY n LIMIT 49", True),
        ("HAVING COUNT(*) > 0", False),
        ("HAVING COUNT(*) > 10", True),
        ("HAVING DP_INTERVAL_LOW(n) > 100", True),
        ("ORDER BY DP_INTERVAL_HIGH(n) DESC LIMIT 3", True),
        ("ORDER BY n OFFSET 2", True),
    ],
)
def test_only_rows_that_noise_chose_are_wider(bench, world, ending, wider):
    quote = world().curator.price(f"SELECT k, COUNT(*) AS n FROM t GROUP BY k {ending}", epsilon="0.01")
    cells = np.where(np.arange(bench.GROUPS) < 10, 5, 5_000)
    found = Released(
        keys=pa.table({"k0": np.arange(bench.GROUPS)}),
        size=bench.GROUPS,
        cells=(cells,),
        noise=quote.priced.noise,
        choices=(),
        recipes=quote.priced.lowered.recipes,
    )
    _, bars = shape(found, quote.shape, quote.priced.errors(), Fraction(19, 20))
    half = quote.priced.errors()[0].half_width
    assert bool((bars["n"].high - bars["n"].low > 2 * half).all()) is wider
    assert wider or (bars["n"].high - bars["n"].low == 2 * half).all()


def test_candidates_are_those_that_pass_what_has_no_noise(bench, world):
    """HAVING k < 10 AND n > 10: of ten groups, not of fifty."""
    here = world()
    widths = []
    for condition in ("k < 10 AND COUNT(*) > 10", "k < 50 AND COUNT(*) > 10"):
        quote = here.curator.price(f"SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING {condition} ", epsilon="1")
        found = Released(
            keys=pa.table({"k0": np.arange(bench.GROUPS)}),
            size=bench.GROUPS,
            cells=(np.where(np.arange(bench.GROUPS) == 0, 500, 0),),
            noise=quote.priced.noise,
            choices=(),
            recipes=quote.priced.lowered.recipes,
        )
        _, bars = shape(found, quote.shape, quote.priced.errors(), Fraction(19, 20))
        widths.append(bars["n"].high[0] - bars["n"].low[0])
        noise = quote.priced.noise[0]
    assert widths == [2 * noise.error(1 - Fraction(1, 20 * many)) for many in (10, 50)]


# ---------------------------------------------------------------------------------------------- end to end


# by day the curator's test_accuracy.py asks
@at_night
def test_asked_and_charged_they_cover_too(bench, monkeypatch):
    monkeypatch.setattr(bench, "LAWS", {"Laplace": "0"})
    (rate,) = bench.end_to_end(100, ("AVG − AVG",))
    assert enough(rate.covered, rate.runs, 0.95)
    # a mutant: of nothing but the value no interval covers
    assert not enough(bench.covering(*[np.zeros(100)] * 2, 1.0), 100, 0.95)
    assert replace(rate, covered=60).low
