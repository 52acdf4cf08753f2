"""Interval arithmetic over columns: whatever the arguments are in their intervals, the result is in the one found."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from dither.engines.duckdb.noisy_rows import compute
from dither.query.expressions.functions import FUNCTIONS
from dither.query.expressions.propagation import RULES, AnyValue, Numbers, Truths, propagated
from dither.query.kinds import Call, Column, Kind, Literal

B, W, D, T = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT
SIZE = 3_000
# what numbers are made of: zeros, ties and halves, ends that are points, both signs, far apart
PLACES = np.array([-1e6, -57.0, -10.0, -2.5, -1.0, -0.5, -0.125, 0.0, 0.005, 0.5, 1.0, 2.5, 3.0, 10.0, 57.0, 1e6])


def boxes(kind, rng):
    """Random intervals, some of them points, and a value in each; NULL where it may be one."""
    ends = np.sort(rng.choice(PLACES, (SIZE, 2)) + rng.choice([0.0, 0.0, rng.normal()], (SIZE, 2)), axis=1)
    if kind is W:
        ends = np.rint(ends)
    ends[::5, 1] = ends[::5, 0]
    where = rng.choice([0.0, 0.5, 1.0, rng.random()], SIZE)
    value = np.clip(ends[:, 0] + where * (ends[:, 1] - ends[:, 0]), ends[:, 0], ends[:, 1])
    # zero is where most rules have an edge
    value = np.where((ends[:, 0] <= 0) & (ends[:, 1] >= 0) & (rng.random(SIZE) < 0.3), 0.0, value)
    value = np.rint(value) if kind is W else value
    null = rng.random(SIZE) < 0.1
    missing = null & (rng.random(SIZE) < 0.5)
    array = pa.array(value.astype(np.int64 if kind is W else np.float64), mask=missing)
    return Numbers(ends[:, 0], ends[:, 1], null), array


def truths(rng):
    may = rng.random((3, SIZE)) < 0.5
    may[0] |= ~may.any(axis=0)
    order = rng.permuted(np.tile(np.arange(3), (SIZE, 1)), axis=1)
    picked = np.array([next(i for i in row if may[i, at]) for at, row in enumerate(order)])
    return Truths(*may), pa.array(picked == 0, mask=picked == 2)


def holds(possible, values, kind):
    """Where the set holds the value that DuckDB computed."""
    null = values.is_null().to_numpy(zero_copy_only=False)
    if kind is B:
        true = values.fill_null(False).to_numpy(zero_copy_only=False)
        return np.where(null, possible.null, np.where(true, possible.true, possible.false))
    number = values.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False)
    inside = (possible.low <= number) & (number <= possible.high)
    return np.where(null, possible.null, np.isnan(number) | inside)


def check(call, arguments, columns):
    table = pa.table({f"c{i}": column for i, column in enumerate(columns)})
    values = compute(table, [("x", call)]).column("x")
    found = propagated(call, arguments, SIZE)
    ok = holds(found, values, call.kind)
    wrong = np.flatnonzero(~ok)[:3]
    assert ok.all(), [(call.function, [c[int(i)].as_py() for c in columns], values[int(i)].as_py()) for i in wrong]
    return found


NUMBER_CALLS = [
    *((name, kinds) for name in ("add", "subtract", "multiply") for kinds in ((W, W), (D, D), (W, D))),
    *(("divide", kinds) for kinds in ((W, W), (D, D), (D, W), (W, D))),
    ("integer_divide", (W, W)),
    ("modulo", (W, W)),
    *(
        (name, (kind,))
        for name in ("negate", "abs", "floor", "ceil", "trunc", "round", "sign", "sqrt", "exp", "ln", "log10", "log2")
        for kind in (W, D)
    ),
    *((name, (kind,)) for name in ("to_integer", "to_double") for kind in (W, D)),
    *((name, (kind,) * number) for name in ("greatest", "least") for kind in (W, D) for number in (2, 3)),
    *((name, (kind,) * number) for name in ("coalesce",) for kind in (W, D) for number in (2, 3)),
    *(("nullif", (kind, kind)) for kind in (W, D)),
    *(("power", kinds) for kinds in ((D, D), (W, W))),
]
DOUBLES = ("divide", "sqrt", "exp", "ln", "log10", "log2", "power", "to_double")
WHOLES = ("integer_divide", "modulo", "sign", "to_integer")


@pytest.mark.parametrize(
    ("name", "kinds"), NUMBER_CALLS, ids=lambda one: one if isinstance(one, str) else "".join(k.value[0] for k in one)
)
def test_numbers_stay_in_what_is_found(name, kinds):
    rng = np.random.default_rng(len(name) + len(kinds))
    made = [boxes(kind, rng) for kind in kinds]
    kind = D if name in DOUBLES else W if name in WHOLES else D if D in kinds else W
    call = Call(name, tuple(Column(f"c{i}", k) for i, k in enumerate(kinds)), kind)
    found = check(call, [one for one, _ in made], [column for _, column in made])
    assert isinstance(found, Numbers)
    # and says something: of points alone it is a point, but for the slack of real functions
    sure = np.logical_and.reduce([one.points & ~one.null for one, _ in made]) & ~found.null & ~found.none
    if name in ("modulo",):
        return
    assert sure.sum() > 20
    assert (
        found.high[sure] - found.low[sure]
        <= 1e-9 * np.maximum(1, np.abs(found.high[sure])) + (name in WHOLES or name == "round")
    ).all()


@pytest.mark.parametrize("digits", [-3, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("kind", [W, D])
def test_rounding_to_digits(digits, kind):
    rng = np.random.default_rng(digits + 10)
    box, column = boxes(kind, rng)
    places = Literal(digits, W)
    constant = Numbers(np.full(SIZE, float(digits)), np.full(SIZE, float(digits)), np.zeros(SIZE, bool))
    check(Call("round", (Column("c0", kind), places), kind), [box, constant], [column])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, 1.5, -0.5])
def test_powers_with_a_constant(exponent):
    rng = np.random.default_rng(int(10 * exponent) + 100)
    box, column = boxes(D, rng)
    kind = W if isinstance(exponent, int) else D
    constant = Numbers(np.full(SIZE, float(exponent)), np.full(SIZE, float(exponent)), np.zeros(SIZE, bool))
    found = check(Call("power", (Column("c0", D), Literal(exponent, kind)), D), [box, constant], [column])
    assert (np.isfinite(found.low) & np.isfinite(found.high)).any()


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "distinct_from")


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("kinds", list(itertools.product((W, D), (W, D))), ids=str)
def test_comparisons(name, kinds):
    rng = np.random.default_rng(3)
    made = [boxes(kind, rng) for kind in kinds]
    call = Call(name, tuple(Column(f"c{i}", k) for i, k in enumerate(kinds)), B)
    found = check(call, [one for one, _ in made], [column for _, column in made])
    # both are possible in some rows, and one alone in others
    assert (found.true & ~found.false).any()
    assert (found.false & ~found.true).any()


@pytest.mark.parametrize("name", ["is_null", "is_not_null", "in", "to_boolean"])
def test_other_questions_about_numbers(name):
    rng = np.random.default_rng(4)
    made = [boxes(W, rng) for _ in range(3 if name == "in" else 1)]
    call = Call(name, tuple(Column(f"c{i}", W) for i in range(len(made))), B)
    check(call, [one for one, _ in made], [column for _, column in made])


@pytest.mark.parametrize("name", ["and", "or", "not", "is_null", "coalesce", "case"])
def test_truth_values(name):
    rng = np.random.default_rng(5)
    made = [truths(rng) for _ in range({"not": 1, "is_null": 1, "case": 5}.get(name, 2))]
    call = Call(name, tuple(Column(f"c{i}", B) for i in range(len(made))), B)
    check(call, [one for one, _ in made], [column for _, column in made])


@pytest.mark.parametrize("kind", [W, D])
def test_case_reaches_what_its_conditions_allow(kind):
    rng = np.random.default_rng(6)
    made = [truths(rng), boxes(kind, rng), truths(rng), boxes(kind, rng), boxes(kind, rng)]
    call = Call("case", tuple(Column(f"c{i}", B if i in (0, 2) else kind) for i in range(5)), kind)
    check(call, [one for one, _ in made], [column for _, column in made])


@pytest.mark.parametrize("name", ["to_text", "is_nan", "greatest", "nullif"])
def test_what_has_no_rule_may_be_anything(name):
    rng = np.random.default_rng(7)
    one, _ = boxes(D, rng)
    kind = {"to_text": T, "is_nan": B}.get(name, B)
    arguments = [truths(rng)[0], truths(rng)[0]] if name in ("greatest", "nullif") else [one]
    found = propagated(Call(name, (Column("c0", D),) * len(arguments), kind), arguments, SIZE)
    assert isinstance(found, AnyValue) if kind is T else (found.true & found.false & found.null).all()


def test_every_rule_is_tried_here():
    tried = {name for name, _ in NUMBER_CALLS} | {*COMPARISONS, "is_null", "is_not_null", "in", "to_boolean"}
    assert tried | {"and", "or", "not", "case", "coalesce"} == set(RULES)
    assert set(RULES) <= set(FUNCTIONS)


def test_mutants_are_caught():
    """Rules as they are often written wrong: each must leave out some value that DuckDB computes."""
    rng = np.random.default_rng(8)
    (a, x), (b, y) = boxes(D, rng), boxes(D, rng)
    table, columns = pa.table({"c0": x, "c1": y}), (Column("c0", D), Column("c1", D))

    def missed(name, low, high, null, arguments=columns):
        values = compute(table, [("x", Call(name, arguments, D))]).column("x")
        return int((~holds(Numbers(low, high, null), values, D)).sum())

    null = a.null | b.null
    with np.errstate(all="ignore"):
        assert missed("subtract", a.low - b.low, a.high - b.high, null)
        assert missed("multiply", a.low * b.low, a.high * b.high, null)
        assert missed("divide", a.low / b.high, a.high / b.low, null)
        assert missed("abs", np.abs(a.low), np.abs(a.high), a.null, columns[:1])
        assert missed("greatest", np.maximum(a.low, b.low), np.maximum(a.high, b.high), a.null & b.null)
        assert missed("round", np.rint(a.low) + 0.5, np.rint(a.high), a.null, columns[:1])
