"""Public constants of any size: whatever can be priced can be shaped, or it would be charged and never answered."""

import random
import warnings
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dither.curator.answers.post_processing import shape
from dither.curator.answers.release import Released
from dither.errors import DitherError, Refused
from dither.query.aggregates.mode import ModeChoice
from dither.query.aggregates.vicinity import Nearby, ends_around
from dither.query.sql import bind
from support.sizes import short_or_full

LEVEL = Fraction(19, 20)
TRIED = 100
CONSTANTS = (
    *("1e308", "-1e308", "1e-308", "4.9e-324", "0", "0.0", "-0.0", "1e200", "-1e200", "1e-200", "1e155", "3", "0.1"),
    *("1e19", "9223372036854775807", "-9223372036854775807", "170141183460469231731687303715884105727", "NULL"),
)
CELLS = (0, 1, -1, 2_400, 10**6, 2**60, -(2**60))
AGGREGATES = ("SUM", "AVG", "VAR_POP", "STDDEV_SAMP", "MEDIAN", "COVAR_POP", "CORR")
FUNCTIONS = ("EXP", "LN", "LOG10", "SQRT", "ABS", "FLOOR", "CEIL", "TRUNC", "SIGN", "-", "ROUND")
PAIRS = ("POWER({}, {})", "GREATEST({}, {})", "LEAST({}, {})", "NULLIF({}, {})", "COALESCE({}, {})")


@pytest.fixture
def answered(opened):
    """Price a question and shape what might be released for it; None where it is refused before the charge."""
    made = opened(budget="1000000", most="1000000")
    maker = random.Random(1)

    def answer(sql, epsilon="1/2"):
        try:
            priced = made.curator.price(sql, epsilon=epsilon).priced
        except DitherError:
            return None
        cells = [np.array([maker.choice(CELLS) for _ in range(3)], dtype=np.int64) for _ in priced.noise]
        choices = [
            np.zeros(3, dtype=np.int64) if isinstance(choice, ModeChoice) else np.array([0.0, 1e77, -1e77])
            for choice in priced.lowered.choices
        ]
        nearby = []
        for vicinity in priced.lowered.vicinities:
            ends = [ends_around([place], vicinity.last) for place in (0, vicinity.last // 2, vicinity.last)]
            starts = np.cumsum([0, *(each.size for each in ends)])
            counts = np.array([maker.choice(CELLS) for _ in range(starts[-1])], dtype=np.int64)
            nearby.append(Nearby(starts=starts, ends=np.concatenate(ends), counts=counts))
        found = Released(
            keys=pa.table({}),
            size=3,
            cells=tuple(cells),
            noise=priced.noise,
            choices=tuple(choices),
            recipes=priced.lowered.recipes,
            nearby=tuple(nearby),
            nearby_noise=priced.nearby,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return shape(found, bind(sql, made.policy.schema).shape, priced.errors(LEVEL), LEVEL)

    return answer


def expression(maker, depth):
    """A random computation over aggregates and constants."""
    if depth == 0:
        return maker.choice(CONSTANTS) if maker.random() < 0.5 else aggregate(maker)
    parts = [expression(maker, depth - 1) for _ in range(4)]
    kind = maker.random()
    if kind < 0.65:
        return f"({parts[0]} {maker.choice('+-*/')} {parts[1]})"
    if kind < 0.8:
        return f"{maker.choice(FUNCTIONS)}({parts[0]})"
    if kind < 0.95:
        return maker.choice(PAIRS).format(*parts)
    return "CASE WHEN {} > {} THEN {} ELSE {} END".format(*parts)


def aggregate(maker):
    if maker.random() < 0.4:
        return maker.choice(("COUNT(*)", "SUM(amount)", "COUNT(pieces)", "AVG(pieces)"))
    function = maker.choice(AGGREGATES)
    low, high = sorted(maker.sample(("-1e77", "-1e60", "-1e-77", "0", "1e-76", "1", "1e30", "1e77"), 2), key=float)
    bounds = f", contribution_bounds_per_row => ({low}, {high})"
    argument = maker.choice(("rating", "rating * 2", "stars"))
    both = f"{argument}, rating" if function in ("COVAR_POP", "CORR") else argument
    return f"{function}({both}{bounds})"


@pytest.mark.parametrize("seed", range(short_or_full(1, 4)))
def test_what_can_be_priced_can_be_shaped_whatever_its_constants(answered, seed):
    maker, shaped = random.Random(seed), 0
    for _ in range(TRIED):
        sql = f"SELECT COUNT(*) AS n, {expression(maker, maker.randint(1, 4))} AS x FROM orders"
        if maker.random() < 0.2:
            sql += f" HAVING {expression(maker, 1)} > {expression(maker, 1)}"
        try:
            shaped += answered(sql, maker.choice(("1/2", "1/100", "100000"))) is not None
        except Exception as problem:
            raise AssertionError(sql) from problem
    assert shaped > TRIED / 10


@pytest.mark.parametrize("bounds", ["(1e30, 1e77)", "(9223372036854775808, 1e19)", "(-1e77, -9223372036854775809)"])
def test_bounds_that_no_integer_has_are_refused_before_the_charge(opened, bounds):
    curator = opened(budget="1000000", most="1000000").curator
    with pytest.raises(Refused, match="no integer lies within"):
        curator.price(f"SELECT SUM(stars, contribution_bounds_per_row => {bounds}) AS s FROM orders", epsilon=1)
    doubles = f"SELECT SUM(stars * 1.0, contribution_bounds_per_row => {bounds}) AS s FROM orders"
    assert curator.price(doubles, epsilon=1)


@pytest.mark.parametrize(
    "computed",
    [
        "COUNT(*) - 1e200*1e200",
        "COUNT(*) + 1e200*1e200",
        "(COUNT(*) - 1e250*1e250) / COUNT(pieces)",
        "-(1e300*1e300) + COUNT(*) - COUNT(pieces)",
        "COUNT(*) - 170141183460469231731687303715884105727 / 1e-308",
    ],
)
def test_a_constant_that_is_no_double_leaves_no_interval(answered, computed):
    _, bars = answered(f"SELECT {computed} AS x FROM orders")
    assert np.isnan(bars["x"].low).all()
    assert np.isnan(bars["x"].high).all()


@pytest.mark.parametrize("constant", ["1e30", "1e100", "1e300"])
def test_digits_that_a_constant_took_away_are_in_no_interval(answered, constant):
    """In doubles COUNT(*) + 1e30 − 1e30 is 0: an interval around the count would not have that value in it."""
    table, bars = answered(f"SELECT COUNT(*) + {constant} - {constant} AS x FROM orders")
    for value, low, high in zip(table.column("x").to_pylist(), bars["x"].low, bars["x"].high, strict=True):
        assert np.isnan(low) or low <= value <= high


@pytest.mark.parametrize("low", ["-1e77", "0", "1e70"])
@pytest.mark.parametrize("function", ["VAR_POP", "STDDEV_SAMP", "COVAR_POP", "CORR"])
def test_moments_have_intervals_within_the_largest_bounds_there_may_be(answered, function, low):
    both = "rating, rating + 1.5" if function in ("COVAR_POP", "CORR") else "rating"
    found = answered(f"SELECT {function}({both}, contribution_bounds_per_row => ({low}, 1e77)) AS x FROM orders")
    assert found is not None
    low_end, high_end = found[1]["x"].low, found[1]["x"].high
    assert np.isfinite(low_end).all()
    assert (low_end <= high_end).all()


@pytest.mark.parametrize("function", ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "COVAR_SAMP", "CORR"])
def test_moments_in_other_units_are_the_same_moments(opened, function):
    """Bounds of 2^70 and of 1 with the same cells: every end is that of the other, times the unit."""
    made = opened(budget="1000000", most="1000000")
    ends = []
    for high in (1, 2**70):
        both = "rating, rating * 1.0" if function in ("COVAR_SAMP", "CORR") else "rating"
        sql = f"SELECT {function}({both}, contribution_bounds_per_row => (0, {high})) AS x FROM orders"
        priced = made.curator.price(sql, epsilon=1).priced
        cells = tuple(np.array([place * 977 + 40_000], dtype=np.int64) for place, _ in enumerate(priced.noise))
        found = Released(
            keys=pa.table({}), size=1, cells=cells, noise=priced.noise, choices=(), recipes=priced.lowered.recipes
        )
        table, bars = shape(found, bind(sql, made.policy.schema).shape, priced.errors(LEVEL), LEVEL)
        ends.append((table.column("x")[0].as_py(), bars["x"].low[0], bars["x"].high[0]))
    unit = 1.0 if function == "CORR" else 2.0**70 if function == "STDDEV_POP" else 2.0**140
    assert np.allclose([one * unit for one in ends[0]], ends[1], rtol=1e-12)
