"""The neighbour test: no unit moves exact cells further than the price assumed, whatever the tables and the question.

``harness.py`` says how to run it for longer.
"""

from fractions import Fraction
from random import Random

import duckdb
import pyarrow as pa
import pytest

from dither.audit import Breach, Fault, breaches, check_question, difference, neighbour_of, reading
from dither.audit.queries.neighbours import BUDGET
from dither.engines import DuckDBEngine
from dither.errors import InvalidParameter, Refused, SourceError
from dither.privacy import Adjacency
from dither.query.expressions.functions import FUNCTIONS
from dither.query.kinds import Interval, Kind
from dither.query.plan.plan import Function, JoinKind
from dither.query.price.noise import price
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind
from support.sizes import NIGHTLY, short_or_full

from .harness import QUESTIONS, SALT, Tally, parts_of, run_world
from .mutants import MUTANTS, statistics_without_nan
from .questions import question
from .worlds import world

ALL = range(32)
# by day a few of them, in which every broken rule shows
WORLDS = ALL if NIGHTLY else (3, 2, 25, 27, 6, 26, 24)
PARTS = short_or_full(2, 8)


# by day every other one of them: rules that are broken are looked for in all
@pytest.mark.parametrize("part", range(short_or_full(1, PARTS)))
def test_no_unit_moves_more_than_was_claimed(part):
    tally = Tally()
    for seed in WORLDS[part::PARTS]:
        run_world(seed, tally)
    assert not tally.problems, "\n".join(map(str, tally.problems[:5]))
    # a test of nothing would pass too
    assert tally.cases >= 150
    assert tally.moved >= tally.cases // 4
    assert tally.questions >= sum(tally.refused.values())


@pytest.mark.parametrize(("mutant", "only"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_broken_rule_is_noticed(mutant, only, monkeypatch):
    mutant(monkeypatch)
    tally = Tally()
    for seed in WORLDS:
        run_world(seed, tally, only=only)
        if any(problem.variant not in ("raised", "binding") for problem in tally.problems):
            return
    pytest.fail("the neighbour test doesn't see it")


def test_questions_use_everything_that_is_supported():
    """Over all worlds: every function, aggregate, join, window and kind of relation."""
    seen = set()
    for seed in ALL:
        random = Random(seed)
        here = world(random)
        for _ in range(QUESTIONS):
            try:
                seen |= parts_of(
                    price(bind(question(random, here), here.schema).aggregation, BUDGET, Adjacency.REPLACE)
                )
            except Refused:
                continue
    relations = {
        "Scan",
        "FilterRows",
        "Project",
        "JoinRows",
        "Union",
        "Distinct",
        "PerUnit",
        "Window",
        "Bins",
        "DistinctValues",
    }
    windows = {"row_number", "rank", "dense_rank", "lag", "lead", "first_value", "aggregate"}
    wanted = {*relations, *windows, *FUNCTIONS, *(f.name for f in Function), *(kind.value for kind in JoinKind)}
    assert wanted - seen == set()


# ------------------------------------------------------------------ the audit by itself


def column(name, kind, **facts):
    return ColumnFacts(name=name, kind=kind, **facts)


def between(low, high):
    return Interval(Fraction(low), Fraction(high))


def shop(*, groups=2, rows=3):
    columns = (
        column("user", Kind.INTEGER),
        column("city", Kind.TEXT),
        column("amount", Kind.DOUBLE, between=between(0, 5)),
    )
    facts = {c.name: c for c in columns}
    table = TableFacts(name="orders", private=True, columns=facts, unit_column="user", groups=groups, rows=rows)
    return Schema({"orders": table})


ORDERS = pa.table(
    {
        "user": pa.array([1, 1, 1, 1, 2, 3, None], pa.int64()),
        "city": ["a", "b", "c", "a", "a", "b", "a"],
        "amount": [5.0, 9.0, 1e300, None, 2.0, float("nan"), 4.0],
    }
)
ASKED = "SELECT city, COUNT(*), SUM(amount), MEDIAN(amount), COUNT(DISTINCT amount) FROM orders GROUP BY city"


def test_a_sound_question_has_no_breach():
    schema = shop()
    assert check_question(ASKED, schema, neighbour_of({"orders": ORDERS}, schema, 1)) == ()
    other = {"orders": pa.table({"user": [1, 1], "city": ["x", "y"], "amount": [3.0, None]})}
    replaced = neighbour_of({"orders": ORDERS}, schema, 1, replacement=other)
    assert replaced.adjacency is Adjacency.REPLACE
    assert replaced.after["orders"].num_rows == 5
    assert check_question(ASKED, schema, replaced) == ()


def test_a_claim_that_is_too_small_is_a_breach():
    """The measurement allows three rows in two groups; the claims compared with are those of one row in one group."""
    schema, small = shop(), shop(groups=1, rows=1)
    tables = neighbour_of({"orders": ORDERS}, schema, 1)
    honest, boastful = (price(bind(ASKED, s).aggregation, BUDGET, Adjacency.ADD_REMOVE) for s in (schema, small))
    before, after = _measured(honest, schema, tables.before), _measured(honest, schema, tables.after)
    assert breaches(honest, before, after) == ()
    assert {breach.fault for breach in breaches(boastful, before, after)} >= {
        Fault.CELL,
        Fault.L1,
        Fault.L2,
        Fault.GROUPS,
    }
    # a unit that appears where one should leave makes counts larger
    assert Fault.ONE_WAY in {breach.fault for breach in breaches(honest, after, before)}
    assert difference(before, after, honest)
    assert not difference(before, before, honest)


def _measured(priced, schema, tables):
    found = []
    with pytest.MonkeyPatch.context() as patch:
        from dither.audit.queries import neighbours

        patch.setattr(neighbours, "price", lambda *_: priced)
        patch.setattr(neighbours, "breaches", lambda _, before, __: found.append(before) or ())
        check_question(
            ASKED, schema, neighbours.Neighbours(before=tables, after=tables, adjacency=Adjacency.ADD_REMOVE)
        )
    return found[0]


def test_a_unit_that_does_not_occur_has_no_neighbour():
    with pytest.raises(InvalidParameter, match="no rows of this unit"):
        neighbour_of({"orders": ORDERS}, shop(), 99)


def test_at_row_level_a_row_is_the_unit():
    facts = {"x": column("x", Kind.INTEGER, between=between(0, 3))}
    schema = Schema({"t": TableFacts(name="t", private=True, columns=facts)})
    tables = neighbour_of({"t": pa.table({"x": [1, 2**60, None]})}, schema, ("t", 1))
    assert tables.after["t"].column("x").to_pylist() == [1, None]
    assert check_question("SELECT SUM(x), COUNT(*) FROM t", schema, tables) == ()


def test_reading_replaces_the_tables_of_every_part():
    sql = (
        "SELECT COUNT(*) FROM (SELECT DISTINCT user FROM orders UNION ALL SELECT user FROM orders GROUP BY user) AS a "
        "JOIN (SELECT user, row_number() OVER (PARTITION BY user ORDER BY city) AS n FROM orders WHERE city = '') AS b "
        "ON a.user = b.user WHERE a.user IN (SELECT user FROM orders)"
    )
    relation = reading(bind(sql, shop()).aggregation.relation, {"orders": "others"})
    assert "others" in repr(relation)
    assert "'orders'" not in repr(relation)


# ------------------------------------------------------------------ what it found, and what was looked for


def database(folder, *statements):
    path = folder / "data.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def run(path, schema, sql):
    priced = price(bind(sql, schema).aggregation, BUDGET, Adjacency.ADD_REMOVE)
    with DuckDBEngine.open(path, schema, threads=1) as engine:
        return engine.run(priced.measurement, salt=SALT)


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT user, SUM(a * b) AS z FROM t GROUP BY user",
        "SELECT SUM(a * b) OVER (PARTITION BY user ORDER BY a) AS z FROM t",
    ],
)
def test_a_sum_of_one_unit_beyond_128_bits_is_missing_and_raises_nothing(tmp_path, inner):
    """Rows below declared bounds are clamped up to 2^120, and 128 of them don't fit: an error would tell of them."""
    wide = between(2**60, 2**62)
    columns = (
        column("user", Kind.INTEGER),
        column("a", Kind.INTEGER, between=wide),
        column("b", Kind.INTEGER, between=wide),
    )
    table = TableFacts(name="t", private=True, columns={c.name: c for c in columns}, unit_column="user", rows=3)
    path = database(tmp_path, "CREATE TABLE t AS SELECT 1 AS user, 0 AS a, 5 AS b FROM range(300)")
    measured = run(path, Schema({"t": table}), f"SELECT COUNT(z), COUNT(*) FROM ({inner})")
    assert sorted(total.tolist()[0] for total in measured.totals)[0] == 0


@pytest.mark.parametrize(
    "call", ["AVG({})", "VAR_SAMP({})", "CORR({}, user + 0.5, contribution_bounds_per_row => (-3, 3))"]
)
def test_bounds_within_one_step_have_a_price(call):
    """A step of 10 and bounds of (-3, 3) leave 0 alone; a cell that can't move has no noise that fits it."""
    value = call.format(
        "round(user, -1), contribution_bounds_per_row => (-3, 3)" if "CORR" not in call else "round(user, -1)"
    )
    priced = price(bind(f"SELECT {value} FROM orders", shop()).aggregation, BUDGET, Adjacency.ADD_REMOVE)
    assert all(reach.l1 > 0 for reach in priced.reaches)


def test_a_public_key_that_repeats_as_its_kind_is_refused(tmp_path):
    """'1' and '01' are different texts and one integer: at row level a join would count a row twice."""
    codes = TableFacts(
        name="codes",
        private=False,
        columns={"code": column("code", Kind.INTEGER)},
        unique=(frozenset({"code"}),),
    )
    visits = TableFacts(name="visits", private=True, columns={"code": column("code", Kind.INTEGER)})
    schema = Schema({"codes": codes, "visits": visits})
    make = "CREATE TABLE visits AS SELECT 1 AS code"
    path = database(
        tmp_path, make, "CREATE TABLE codes AS SELECT * FROM (VALUES ('1'), ('01'), (NULL), (NULL)) AS t(code)"
    )
    with pytest.raises(SourceError, match="codes holds some values of code more than once"):
        DuckDBEngine.open(path, schema)
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM codes WHERE code = '01'")
    measured = run(path, schema, "SELECT COUNT(*) FROM visits v JOIN codes c ON v.code = c.code")
    assert measured.totals[0].tolist() == [1]


def test_one_unit_does_not_decide_what_the_nan_of_others_count(monkeypatch):
    """Found by this test: a Parquet file's statistics leave NaN out, so a comparison that they seem to settle was
    settled for NaN too, and one unit's 50.0 changed that for everybody."""
    columns = {"user": column("user", Kind.INTEGER), "x": column("x", Kind.DOUBLE, between=between(0, 5))}
    schema = Schema({"t": TableFacts(name="t", private=True, columns=columns, unit_column="user")})
    nan = float("nan")
    tables = {"t": pa.table({"user": list(range(40)), "x": [50.0, *[nan] * 38, 4.0]})}
    for sql in ("SELECT COUNT(*) FROM t WHERE x > 10", "SELECT SUM(x) FROM t", "SELECT COUNT(*) FROM t WHERE x < 60"):
        assert check_question(sql, schema, neighbour_of(tables, schema, 0)) == (), sql
    statistics_without_nan(monkeypatch)
    found = check_question("SELECT COUNT(*) FROM t WHERE x > 10", schema, neighbour_of(tables, schema, 0))
    assert Breach(fault=Fault.CELL, place=0, claimed=1, found=39) in found


def test_threads_make_no_difference(tmp_path):
    random = Random(3)
    here = world(random)
    # one process opens a file with one setting only
    paths = [tmp_path / "one.duckdb", tmp_path / "two.duckdb"]
    for path in paths:
        here.write(path)
    with (
        DuckDBEngine.open(paths[0], here.whole(), threads=1) as one,
        DuckDBEngine.open(paths[1], here.whole(), threads=2) as two,
    ):
        for _ in range(QUESTIONS):
            try:
                priced = price(bind(question(random, here), here.schema).aggregation, BUDGET, Adjacency.ADD_REMOVE)
            except Refused:
                continue
            left, right = (engine.run(priced.measurement, salt=SALT) for engine in (one, two))
            assert not difference(left, right, priced)
