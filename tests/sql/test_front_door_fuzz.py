"""Whatever text comes in: a refusal, or a question whose plan mentions nothing but the schema. Nothing else, ever."""

import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dither.errors import Refused
from dither.query.expressions.functions import FUNCTIONS
from dither.query.kinds import Call, Column, Literal, walk
from dither.query.plan.canonical import canonical_aggregation
from dither.query.plan.plan import (
    BoundQuestion,
    Distinct,
    FilterRows,
    JoinKind,
    JoinRows,
    PerUnit,
    Project,
    Scan,
    Union,
    Window,
)
from dither.query.sql import CODES, bind
from dither.query.sql.queries import _bound
from support.schemas import SHOP
from support.sizes import examples

HERE = Path(__file__).resolve().parent


CORPUS = [
    part.strip("\n").partition("\n")[2]
    for path in sorted(HERE.glob("*/*.sql"))
    for part in path.read_text(encoding="utf-8").split("\n----\n")
]
LEAKS = [
    "read_csv('/etc/passwd')",
    "read_parquet('x')",
    "pg_read_file('/etc/passwd')",
    "glob('/**')",
    "duckdb_settings()",
    "information_schema.tables",
    "pragma_table_info('orders')",
    "sqlite_master",
    "current_setting('threads')",
    "getenv('HOME')",
    "error('x')",
    "random()",
    "(SELECT amount FROM orders LIMIT 1)",
    "LATERAL (SELECT 1)",
    "unnest([1])",
    '"a""b"',
    "'it''s -- not a comment'",
    "/* x */",
    "-- x\n",
    "; DROP TABLE orders",
    "; ATTACH 'x'",
    "COPY orders TO 'x'",
    "INSTALL httpfs",
    "$1",
    "?",
    "\u200b",
    "\u0430mount",
    "\u212aelvin",
    "\x00",
    "note",
    "user_id",
    "OVER ()",
    "OVER (PARTITION BY user_id)",
    "$$text$$",
    "E'\\n'",
    "COLUMNS(*)",
    "{'a': 1}",
    "x -> x + 1",
    "GROUP BY ALL",
    "EXCEPT SELECT * FROM users",
]
WORDS = sorted({word for text in CORPUS for word in re.findall(r"\w+|'[^']*'|[^\w\s]", text)})


def scans(relation):
    """Every relation below, checked on the way: what may stand where, and what its expressions may name."""
    available = set()
    if isinstance(relation, Scan):
        table = SHOP.tables[relation.table]
        assert relation.private == table.private
        assert relation.unit_column == (table.unit_column if table.private else None)
        for _, column in relation.columns:
            assert not table.columns[column].hidden
        yield relation
        return
    inputs = {
        FilterRows: lambda r: [r.input],
        Project: lambda r: [r.input],
        Distinct: lambda r: [r.input],
        PerUnit: lambda r: [r.input],
        Window: lambda r: [r.input],
        Union: lambda r: list(r.inputs),
        JoinRows: lambda r: [r.left, r.right],
    }[type(relation)](relation)
    for each in inputs:
        names = {field.name for field in each.fields}
        assert len(names) == len(each.fields)
        assert not names & available
        available |= names
        yield from scans(each)
    for expression in own_expressions(relation):
        check_expression(expression, available)


def own_expressions(relation):
    if isinstance(relation, FilterRows):
        return [relation.predicate]
    if isinstance(relation, Project):
        return relation.expressions
    if isinstance(relation, JoinRows):
        return [] if relation.condition is None else [relation.condition]
    if isinstance(relation, PerUnit):
        return [*relation.keys, *(a.argument for a in relation.aggregates if a.argument is not None)]
    if isinstance(relation, Window):
        return [e for item in relation.items for e in (*item.partition, *(o.expression for o in item.order))]
    return []


def check_expression(expression, available):
    for node in walk(expression):
        assert isinstance(node, Column | Literal | Call)
        if isinstance(node, Column):
            assert node.name in available, node.name
        if isinstance(node, Call):
            assert node.function in FUNCTIONS


def private_scans(relation):
    return [scan for scan in scans(relation) if scan.private]


def copies_no_row(relation):
    """At row level: no node can let one row of a table through twice."""
    if isinstance(relation, JoinRows):
        assert not relation.on_unit
        assert all(not scan.private for scan in scans(relation.right))
        if relation.kind in (JoinKind.INNER, JoinKind.LEFT):
            assert relation.condition is not None
        copies_no_row(relation.left)
        return
    assert not isinstance(relation, Distinct | PerUnit | Window)
    for each in getattr(relation, "inputs", [getattr(relation, "input", None)]):
        if each is not None:
            copies_no_row(each)


def check(question):
    assert isinstance(question, BoundQuestion)
    aggregation, shape = question.aggregation, question.shape
    found = private_scans(aggregation.relation)
    assert {scan.table for scan in found} == set(aggregation.tables)
    assert found
    levels = {scan.unit_column is None for scan in found}
    assert levels == {aggregation.units == "row"}
    if aggregation.units == "row":
        copies_no_row(aggregation.relation)
        assert len({scan.table for scan in found}) == len(found)
    available = {field.name for field in aggregation.relation.fields}
    units = {field.name for field in aggregation.relation.fields if field.unit}
    for key in aggregation.keys:
        check_expression(key.expression, available)
        assert not (isinstance(key.expression, Column) and key.expression.name in units)
    for aggregate in aggregation.aggregates:
        for argument in aggregate.arguments:
            check_expression(argument.expression, available)
    tables = [SHOP.tables[scan.table] for scan in found]
    assert 1 <= aggregation.groups <= math.prod(table.groups for table in tables)
    assert 1 <= aggregation.rows <= math.prod(table.rows for table in tables)
    assert aggregation.discover or all(key.values is not None for key in aggregation.keys)
    released = {f"k{i}" for i in range(len(aggregation.keys))}
    released |= {f"a{i}{end}" for i in range(len(aggregation.aggregates)) for end in ("", ".low", ".high")}
    later = [*(o.expression for o in shape.outputs), *(o.expression for o in shape.order)]
    for expression in [*later, *([] if shape.having is None else [shape.having])]:
        check_expression(expression, released)
    names = [output.name for output in shape.outputs]
    assert len(names) == len(set(names))
    assert canonical_aggregation(aggregation)


def check_refusal(error):
    assert error.code in CODES
    assert "Traceback" not in str(error)
    assert error.position is None or min(error.position) >= 1


def ask(text):
    """The question, or None; anything but Refused is a failure (too deep is a RecursionError without the net)."""
    try:
        question = _bound(text, SHOP)
    except Refused as error:
        return check_refusal(error)
    except RecursionError:
        with pytest.raises(Refused):
            bind(text, SHOP)
        return None
    check(question)
    return question


@pytest.mark.parametrize("number", range(len(CORPUS)))
def test_corpus_plans_hold_together(number):
    ask(CORPUS[number])


@given(st.text(max_size=300))
@examples(50, 150)
def test_any_text(text):
    ask(text)


@given(st.lists(st.sampled_from([*WORDS, *LEAKS]), min_size=1, max_size=40))
@examples(100, 300)
def test_any_words(words):
    ask(" ".join(words))
    ask("SELECT " + " ".join(words) + " FROM orders")


@given(st.integers(0, 2**32), st.sampled_from(CORPUS))
@examples(200, 600)
def test_mutated_questions(seed, text):
    chance = random.Random(seed)
    parts = re.findall(r"\s+|\w+|'[^']*'|[^\w\s]", text)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(parts))
        what = chance.randrange(5)
        if what == 0:
            parts[place] = chance.choice(WORDS)
        elif what == 1:
            parts.insert(place, " " + chance.choice(LEAKS) + " ")
        elif what == 2 and len(parts) > 1:
            del parts[place]
        elif what == 3:
            other = chance.randrange(len(parts))
            parts[place], parts[other] = parts[other], parts[place]
        else:
            parts[place] = chance.choice(LEAKS)
    ask("".join(parts))


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize(
    "frame",
    [
        "SELECT COUNT(*) FROM {}",
        "SELECT COUNT(*) FROM orders, {}",
        "SELECT COUNT(*) FROM orders WHERE {} = 1",
        "SELECT {}, COUNT(*) FROM orders GROUP BY 1",
        "SELECT SUM({}) FROM orders",
        "SELECT COUNT(*) FROM orders {}",
        "WITH t AS (SELECT * FROM {}) SELECT COUNT(*) FROM t",
        "SELECT * FROM (SELECT COUNT(*) AS n FROM orders) t WHERE n > {}",
    ],
)
def test_known_leak_paths(frame, leak):
    ask(frame.format(leak))


DEEP = 4000


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * DEEP + "1" + ")" * DEEP,
        "SELECT COUNT(*) FROM orders WHERE " + "NOT " * DEEP + "coupon",
        "SELECT COUNT(*) FROM orders WHERE amount > " + "- " * DEEP + "1",
        "SELECT COUNT(*) FROM orders WHERE amount > " + "1 + " * DEEP + "1",
        "SELECT COUNT(*) FROM orders WHERE " + "abs(" * 50 + "amount" + ")" * 50 + " > 1",
        "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 50 + "orders" + ")" * 50,
        "SELECT COUNT(*) FROM orders WHERE " + "CASE WHEN coupon THEN " * 500 + "TRUE" + " END" * 500,
        "SELECT COUNT(*) FROM orders WHERE product IN (" + "SELECT product FROM products WHERE product IN (" * 20,
        "SELECT COUNT(*) FROM orders" + " -- x" * 30_000,
        "SELECT COUNT(*) FROM orders WHERE city IN (" + "'x', " * 9000 + "'y')",
        "SELECT COUNT(*) FROM orders WHERE " + "amount > 1 AND " * 3000 + "coupon",
        "SELECT " + "amount, " * 9000 + "COUNT(*) FROM orders",
        "WITH t0 AS (SELECT * FROM orders)"
        + "".join(f", t{i + 1} AS (SELECT * FROM t{i} UNION ALL SELECT * FROM t{i})" for i in range(40))
        + " SELECT COUNT(*) FROM t40",
        "[" * DEEP,
        "SELECT " + "{'a': " * 50 + "1" + "}" * 50,
        "x" * 200_000,
        "SELECT COUNT(*) FROM orders WHERE amount > " + "9" * 5000,
        "SELECT COUNT(*) FROM orders WHERE amount > 1e" + "9" * 50,
    ],
    ids=range(18),
)
def test_huge_and_deep(text, no_hang, steps_within):
    with steps_within(200 * len(text) + 50_000):
        try:
            question = bind(text, SHOP)
        except Refused:
            pass
        else:
            check(question)


@pytest.mark.parametrize(
    "text", ["", " ", ";", ";;;", "\n", "()", "SELECT", "WITH", "'", '"', "/*", "EXPLAIN PRIVACY", "\ud800"]
)
def test_scraps(text):
    assert ask(text) is None


def test_a_mutant_plan_is_noticed():
    """The checks above can fail: a plan that reads a hidden column doesn't pass."""
    question = _bound("SELECT COUNT(*) FROM orders", SHOP)
    scan = question.aggregation.relation
    object.__setattr__(scan, "columns", (*scan.columns, ("c99", "note")))
    with pytest.raises(AssertionError):
        check(question)
