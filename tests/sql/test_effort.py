"""Short texts that stand for much work: public values are computed where they are needed, and no more than so many.

What is counted are steps, not seconds: how long they take depends on the machine.
"""

import pickle

import duckdb
import pytest

from dither.curator import Curator
from dither.errors import Refused
from dither.query.expressions import public_values
from dither.query.kinds import Call, Column, Facts, Interval, Kind, Later, Literal
from dither.query.plan import canonical
from dither.query.plan.canonical import Canonical, canonical_aggregation, normal
from dither.query.refusals import MOST_STEPS, limited, spend
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind, bind_with_form

VALUES = 10_000


def column(name, **facts):
    return ColumnFacts(name=name, kind=Kind.INTEGER, **facts)


@pytest.fixture(scope="module")
def schema():
    """One table with a column of ten thousand public values."""
    columns = {"unit": column("unit"), "number": column("number", between=Interval(0, VALUES - 1))}
    orders = TableFacts(name="orders", private=True, columns=columns, unit_column="unit", groups=2, rows=2)
    return Schema(tables={"orders": orders})


@pytest.fixture
def computed(monkeypatch):
    """How many values were computed one by one."""
    counted = []
    spend_before = public_values.spend

    def counting(steps):
        counted.append(steps)
        spend_before(steps)

    monkeypatch.setattr(public_values, "spend", counting)
    return counted


def test_values_that_nobody_looks_at_are_not_computed(schema, computed):
    sums = ", ".join(f"SUM(number + {n}) AS s{n}" for n in range(50))
    where = " OR ".join(f"number + {n} = 7" for n in range(50))
    bind(f"SELECT {sums} FROM orders WHERE {where}", schema)
    assert sum(computed) == 0
    (key,) = bind("SELECT number + 3 AS k, COUNT(*) AS n FROM orders GROUP BY k", schema).aggregation.keys
    assert key.values == tuple(range(3, VALUES + 3))
    assert sum(computed) == VALUES


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + ", ".join(f"MODE(number + {n}) AS m{n}" for n in range(60)) + " FROM orders",
        "SELECT number" + " + 1" * 100 + " AS k, COUNT(*) AS n FROM orders GROUP BY k",
        "SELECT COUNT(*) AS n FROM orders GROUP BY " + ", ".join(f"number + {n}" for n in range(50)),
        "SELECT CASE "
        + " ".join(f"WHEN number = {n} THEN number + {n}" for n in range(60))
        + " END AS k, COUNT(*) AS n FROM orders GROUP BY k",
        "SELECT COALESCE(" + ", ".join(["number"] * 60) + ") AS k, COUNT(*) AS n FROM orders GROUP BY k",
        "SELECT COUNT(*) AS n FROM ("
        + " UNION ALL ".join(["SELECT unit, number + 1 AS a, number + 2 AS b, number + 3 AS c FROM orders"] * 30)
        + ") GROUP BY a, b, c",
    ],
    ids=["modes", "deep", "keys", "case", "coalesce", "union"],
)
def test_what_computes_too_much_is_refused(schema, computed, sql):
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            bind(sql, schema)
        assert refused.value.code in ("too_long", "too_many_groups")
    assert sum(computed) <= 2 * (MOST_STEPS + 60 * VALUES)


def test_a_mode_is_priced_within_the_same_bound(tmp_path):
    """The candidates of MODE are written out once more when it is priced."""
    policy = tmp_path / "dither.toml"
    with duckdb.connect(str(tmp_path / "orders.duckdb")) as database:
        database.execute("CREATE TABLE orders AS SELECT i::BIGINT AS unit, i::BIGINT AS number FROM range(10) t(i)")
    policy.write_text(
        '[source]\ndatabase = "orders.duckdb"\nname = "orders"\n'
        '[budget]\nepsilon_budget = 10\ndefault_epsilon = 0.1\nanalysts = "any"\n'
        '[tables.orders]\nprivate = true\nprivacy_unit_column = "unit"\n'
        "max_groups_contributed = 1\nmax_rows_contributed = 1\n"
        '[tables.orders.columns]\nunit = { type = "integer" }\n'
        f'number = {{ type = "integer", between = [0, {VALUES - 1}] }}\n'
    )

    def modes(count):
        return "SELECT " + ", ".join(f"MODE(number + {n}) AS m{n}" for n in range(count)) + " FROM orders"

    with Curator.open(policy) as curator:
        assert curator.price(modes(5), analyst="ana").epsilon
        with pytest.raises(Refused) as refused:
            curator.price(modes(15), analyst="ana")
        assert refused.value.code == "too_long"


def test_effort_is_counted_for_each_question_alone():
    for _ in range(3):
        with limited() as outer:
            spend(MOST_STEPS)
            with limited() as inner:
                spend(MOST_STEPS)
            assert (outer.steps, inner.steps) == (MOST_STEPS, MOST_STEPS)
            with pytest.raises(Refused):
                spend(1)
    # what runs after the charge is never refused
    spend(10 * MOST_STEPS)


# ---------------------------------------------------------------------- later


def test_values_are_computed_once_and_in_order():
    seen = []
    deepest = facts = Facts(keys=Later([], lambda: seen.append(0) or (0,)))
    for level in range(1, 5000):
        facts = Facts(keys=Later([facts, facts], lambda level=level: seen.append(level) or (level,)))
    assert seen == []
    assert facts.keys == (4999,)
    assert facts.keys == (4999,)
    assert deepest.keys == (0,)
    assert seen == list(range(5000))


def test_facts_are_values_still():
    later = Facts(step=1, keys=Later([], lambda: (1, 2)))
    now = Facts(step=1, keys=(1, 2))
    assert later == now
    assert hash(later) == hash(now)
    assert pickle.loads(pickle.dumps(Facts(keys=Later([], lambda: (3,))))).keys == (3,)
    assert Facts().keys is None
    with pytest.raises(AttributeError):
        now.keys = ()


# ---------------------------------------------------------------------- forms


def test_the_form_that_comes_with_a_question_is_its_own(schema):
    for sql in (
        "SELECT COUNT(*) AS n FROM orders",
        "SELECT SUM(number) AS b, COUNT(*) AS a, number % 7 AS k FROM orders GROUP BY k, number % 3",
        "SELECT COUNT(*) AS n, SUM(number) AS s FROM orders WHERE number = 1 OR (number = 2 AND unit > 3)",
    ):
        question, form = bind_with_form(sql, schema)
        assert form == canonical_aggregation(question.aggregation)
        assert Canonical.of(question.aggregation).keys == tuple(range(len(question.aggregation.keys)))


def test_ors_are_ordered_once(monkeypatch):
    """However they are nested: the work grows with their number, not with the nesting."""
    calls = []
    before = canonical._Forms._sort_key

    def counting(forms, expression):
        calls.append(1)
        return before(forms, expression)

    monkeypatch.setattr(canonical._Forms, "_sort_key", counting)
    parts = [Call("less", (Column("c", Kind.INTEGER), Literal(n, Kind.INTEGER)), Kind.BOOLEAN) for n in range(1024)]
    found = []
    for fold in (_balanced, _one_sided):
        calls.clear()
        found.append(normal(fold(parts)))
        assert len(calls) == len(parts)
    assert found[0] == found[1]
    assert len(found[0].arguments) == len(parts)


def _balanced(parts):
    while len(parts) > 1:
        parts = [Call("or", tuple(parts[i : i + 2]), Kind.BOOLEAN) for i in range(0, len(parts), 2)]
    return parts[0]


def _one_sided(parts):
    whole = parts[0]
    for part in parts[1:]:
        whole = Call("or", (whole, part), Kind.BOOLEAN)
    return whole
