"""The error that was promised is the error that is made: for every aggregate, currency, unit level and adjacency.

Data lies within the declared bounds, so that noise is all that separates answers from the truth. Each repeat is a
release of its own, of cells measured once; three groups give three independent errors.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither import DiscreteGaussian, DiscreteLaplace
from dither.curator.answers.release import release
from dither.query.aggregates.bernstein import Combined
from dither.query.aggregates.count import Different
from dither.query.sql import bind
from support.sizes import NIGHTLY

ALPHA = 1e-9
HALF, MOST = Fraction(1, 2), Fraction(19, 20)
# draws of noise that is too quiet
QUIET = 80_000
# by day half of them: each currency with each unit level, each of both with each adjacency
WORLDS = [
    pytest.param(delta, unit, adjacency, id=f"{'pure' if delta == '0' else 'zcdp'}-{unit}-{adjacency}")
    for delta in ("0", "1e-6")
    for unit in ("customer", "row")
    for adjacency in ("add_remove", "replace")
    # by day each of them once
    if NIGHTLY or (delta == "0") == (unit == "customer") == (adjacency == "add_remove")
]
COUNTS = (
    "SELECT city, COUNT(*) AS n, COUNT(pieces) AS p, SUM(amount) AS s{} FROM orders GROUP BY city",
    ", COUNT(DISTINCT customer) AS c, COUNT(DISTINCT item) AS i",
    ", COUNT(DISTINCT item) AS i",
)


def world(opened, delta, unit, adjacency):
    by_row = {"unit": 'privacy_unit = "row"'} if unit == "row" else {}
    return opened(delta=delta, adjacency=adjacency, budget="1000", most="1000", **by_row)


def places(made, sql):
    """Where the aggregate of each column stands: aggregates have an order of their own."""
    outputs = bind(sql, made.policy.schema).shape.outputs
    return {one.name: int(one.expression.name[1:]) for one in outputs if one.expression.name[0] == "a"}


def by_city(data, function):
    cities = np.array(data.column("city").to_pylist())
    columns = {name: np.array(data.column(name).to_pylist()) for name in ("customer", "item", "amount", "pieces")}
    return [function(*({k: v[cities == city] for k, v in columns.items()},)) for city in ("Basel", "Bern", "Zug")]


def repeated(made, priced, repeats):
    """Cells and choices of many releases, one behind the other, as a single release of more groups."""
    measured = made.engine.run(priced.measurement, salt=bytes(16))
    found = [release(priced, measured) for _ in range(repeats)]
    cells = tuple(np.concatenate(parts) for parts in zip(*(one.cells for one in found), strict=True))
    choices = tuple(np.concatenate(parts) for parts in zip(*(one.choices for one in found), strict=True))
    return replace(found[0], keys=pa.table({}), size=3 * repeats, cells=cells, choices=choices)


def tail(noise, most):
    """Pr[|Z| > most], from the definition of the law and not from the code under test."""
    scale = float(noise.scale)
    if isinstance(noise, DiscreteLaplace):
        ratio = math.exp(-1 / scale)
        return 2 * ratio ** (most + 1) / (1 + ratio)
    assert isinstance(noise, DiscreteGaussian)
    values = np.arange(0, int(most + 60 * scale) + 2)
    weights = np.exp(-(values**2) / (2 * scale**2))
    return float(2 * weights[values > most].sum() / (2 * weights[1:].sum() + weights[0]))


def quieter(noise):
    """The mutant."""
    return type(noise)(noise.scale * Fraction(9, 10))


def exceeding(errors, half, chance):
    beyond = int((np.abs(errors) > half * (1 + 1e-12)).sum())
    return stats.binomtest(beyond, errors.size, chance).pvalue


def step_of(recipe):
    """What one step of the only cell is worth."""
    ((_, step),), _ = recipe.linear
    return float(step)


def check_combined(errors, priced, place, confidence):
    """A form of several cells errs as independent noises of its weights do, and no more than predicted."""
    half = priced.errors(confidence)[place].half_width
    weights, _ = priced.lowered.recipes[place].linear

    def drawn(times):
        parts = [
            float(weight) * type(law)(law.scale * times).release(np.zeros(80_000, dtype=np.int64))
            for weight, law in ((weight, priced.noise[cell]) for cell, weight in weights)
        ]
        return sum(parts)

    beyond = int((np.abs(errors) > half + 0.5).sum())
    assert stats.binomtest(beyond, errors.size, 1 - float(confidence), alternative="greater").pvalue > ALPHA
    # a count is rounded, which moves it by half of one at most
    same = stats.ks_2samp(errors + np.random.default_rng(1).uniform(-0.5, 0.5, errors.size), drawn(Fraction(1)))
    moved = stats.ks_2samp(errors, drawn(Fraction(8, 10)))
    assert same.statistic < moved.statistic
    assert moved.pvalue < ALPHA


@pytest.mark.parametrize(("delta", "unit", "adjacency"), WORLDS)
def test_counts_and_sums_err_exactly_as_predicted(opened, data, delta, unit, adjacency):
    """At 50% and at 95%, two-sided; noise of nine tenths of the scale must fail for each aggregate."""
    made = world(opened, delta, unit, adjacency)
    sql = COUNTS[0].format(COUNTS[1] if unit == "customer" else COUNTS[2])
    quote = made.curator.price(sql, epsilon=2)
    truth = {
        "n": by_city(data, lambda t: t["pieces"].size),
        "p": by_city(data, lambda t: t["pieces"].size),
        "s": by_city(data, lambda t: t["amount"].sum()),
        "c": by_city(data, lambda t: np.unique(t["customer"]).size),
        "i": by_city(data, lambda t: np.unique(t["item"]).size),
    }
    repeats = 4_000
    released = repeated(made, quote.priced, repeats)
    found = released.estimates(MOST)
    for name, place in places(made, sql).items():
        recipe = quote.priced.lowered.recipes[place]
        exact = np.tile(np.array(truth[name], dtype=float), repeats)
        errors = found[place].value.to_numpy() - exact
        if isinstance(recipe, Different):
            # its noise, before what can't be is cut off
            uncut = released.cells[recipe.cell]
            assert (found[place].value.to_numpy() == np.clip(uncut, 0, recipe.most)).all()
            errors = uncut - exact
        if isinstance(recipe, Combined):
            for confidence in (HALF, MOST):
                check_combined(errors, quote.priced, place, confidence)
            continue
        noise, step = quote.priced.noise[recipe.cell], step_of(recipe)
        mutant = quieter(noise).release(np.zeros(QUIET, dtype=np.int64)) * step
        honest, quiet = [], []
        for confidence in (HALF, MOST):
            half = quote.priced.errors(confidence)[place].half_width
            chance = tail(noise, round(half / step))
            honest.append(exceeding(errors, half, chance))
            quiet.append(exceeding(mutant, half, chance))
        assert quote.error[name] == half
        assert min(honest) > ALPHA, name
        assert min(quiet) < ALPHA, name


@pytest.mark.parametrize(("delta", "unit", "adjacency"), WORLDS)
def test_quieter_noise_is_hardly_ever_missed(opened, delta, unit, adjacency):
    """By its law: how many of the mutant's errors are beyond is binomial."""
    made = world(opened, delta, unit, adjacency)
    sql = COUNTS[0].format(COUNTS[1] if unit == "customer" else COUNTS[2])
    priced = made.curator.price(sql, epsilon=2).priced
    for name, place in places(made, sql).items():
        recipe = priced.lowered.recipes[place]
        noise, missed = priced.noise[recipe.cell], []
        for confidence in (HALF, MOST):
            most = round(priced.errors(confidence)[place].half_width / step_of(recipe))
            chance = tail(noise, most)
            # the most errors beyond that are so few that they are noticed
            few, enough = 0, int(QUIET * chance)
            while enough - few > 1:
                middle = (few + enough) // 2
                noticed = stats.binomtest(middle, QUIET, chance).pvalue < ALPHA
                few, enough = (middle, enough) if noticed else (few, middle)
            missed.append(stats.binom.sf(few, QUIET, tail(quieter(noise), most)))
        assert min(missed) < 1e-9, name


MEANS = (
    "SELECT city, AVG(amount) AS a, VARIANCE(pieces) AS v, STDDEV(amount) AS d, COVAR_SAMP(amount, pieces) AS k, "
    "CORR(amount, pieces) AS r, VAR_POP(amount) AS w, COVAR_POP(amount, pieces) AS q FROM orders GROUP BY city"
)


@pytest.mark.parametrize(("delta", "unit", "adjacency"), WORLDS)
def test_intervals_of_means_and_moments_cover(opened, data, delta, unit, adjacency):
    """At least at the stated rate, at 50% and 95%; bars of six tenths of an average's width are noticed."""
    made = world(opened, delta, unit, adjacency)
    priced = made.curator.price(MEANS, epsilon=60).priced
    truth = {
        "a": by_city(data, lambda t: t["amount"].mean()),
        "v": by_city(data, lambda t: t["pieces"].var(ddof=1)),
        "d": by_city(data, lambda t: t["amount"].std(ddof=1)),
        "k": by_city(data, lambda t: np.cov(t["amount"], t["pieces"])[0, 1]),
        "r": by_city(data, lambda t: np.corrcoef(t["amount"], t["pieces"])[0, 1]),
        "w": by_city(data, lambda t: t["amount"].var()),
        "q": by_city(data, lambda t: np.cov(t["amount"], t["pieces"], ddof=0)[0, 1]),
    }
    repeats = 800
    found = repeated(made, priced, repeats)
    where = places(made, MEANS)
    for confidence in (HALF, MOST):
        estimates = found.estimates(confidence)
        for name, values in truth.items():
            exact = np.tile(np.array(values, dtype=float), repeats)
            low, high = (end.to_numpy() for end in (estimates[where[name]].low, estimates[where[name]].high))
            inside = int(((low <= exact + 1e-9) & (exact <= high + 1e-9)).sum())
            assert stats.binomtest(inside, exact.size, float(confidence), alternative="less").pvalue > ALPHA, name
            if name == "a" and confidence == MOST:
                middle, half = (high + low) / 2, 0.6 * (high - low) / 2
                fewer = int((np.abs(middle - exact) <= half).sum())
                assert stats.binomtest(fewer, exact.size, float(confidence), alternative="less").pvalue < ALPHA


@pytest.mark.parametrize(("delta", "unit", "adjacency"), WORLDS)
def test_quantiles_and_modes_miss_by_no_more_than_predicted(opened, data, delta, unit, adjacency):
    """Ranks of quantiles, and how much rarer a mode is than the most frequent value, at 95%."""
    made = world(opened, delta, unit, adjacency)
    sql = "SELECT MEDIAN(amount) AS m, QUANTILE_CONT(amount, 0.9) AS q, MODE(city) AS c FROM orders"
    priced = made.curator.price(sql, epsilon=1).priced
    measured = made.engine.run(priced.measurement, salt=bytes(16))
    repeats, where = 300, places(made, sql)
    drawn = [[one.value[0].as_py() for one in release(priced, measured).estimates()] for _ in range(repeats)]
    choosers = [priced.choosers[priced.lowered.recipes[where[name]].choice] for name in ("m", "q", "c")]
    amounts = np.sort(np.array(data.column("amount").to_pylist()))
    for place, share in ((0, 0.5), (1, 0.9)):
        most = choosers[place].error(MOST)
        wanted, values = share * amounts.size, np.array([row[where["mq"[place]]] for row in drawn])
        # a value stands for all ranks that it holds
        below, upto = (np.searchsorted(amounts, values + move, side="right") for move in (-0.25, 0.0))
        missed = np.maximum(np.maximum(below - wanted, wanted - upto), 0)
        assert stats.binomtest(int((missed <= most).sum()), repeats, 0.95, alternative="less").pvalue > ALPHA
        # a mutant: what was drawn for another quantile misses
        elsewhere = np.maximum(np.maximum(below - 0.2 * amounts.size, 0.2 * amounts.size - upto), 0)
        assert stats.binomtest(int((elsewhere <= most).sum()), repeats, 0.95, alternative="less").pvalue < ALPHA
    cities, counts = np.unique(data.column("city").to_pylist(), return_counts=True)
    often = dict(zip(cities.tolist(), counts.tolist(), strict=True))
    fewer = choosers[2].error(MOST, candidates=3)
    rarer = np.array([max(often.values()) - often[row[where["c"]]] for row in drawn])
    assert stats.binomtest(int((rarer <= fewer).sum()), repeats, 0.95, alternative="less").pvalue > ALPHA


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_whole_path_gives_fresh_noise_within_its_bars(opened, data, delta):
    """Every version of the data is a new question; the bars are those of a chance of one in ten thousand million."""
    made = opened(delta=delta, budget="1000", most="10")
    sql = "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city"
    truth = {
        "n": by_city(data, lambda t: t["pieces"].size),
        "s": by_city(data, lambda t: t["amount"].sum()),
    }
    errors = []
    for version in range(12):
        curator = opened(
            delta=delta, budget="1000", most="10", version=str(version), ledger=made.ledger, engine=made.engine
        ).curator
        answer = curator.sql(sql, epsilon=1, confidence=1 - Fraction(1, 10**10))
        for name, exact in truth.items():
            low, high = answer.interval(name)
            assert (low <= exact).all()
            assert (exact <= high).all()
        errors += (np.array(answer.table.column("n").to_pylist()) - truth["n"]).tolist()
    assert len(set(errors)) > 18
    assert min(errors) < 0 < max(errors)
