"""Made-up tables in which a unit must choose, always: so the shipped neighbour test sees a wrong choice at once."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import pytest

from dither.audit import check_question
from dither.audit.queries.made_up_tables import worlds
from dither.audit.queries.synthetic import key_columns
from dither.engines.duckdb import engine as duckdb
from dither.query.kinds import Interval, Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind
from support.sizes import short_or_full

GROUPS, ROWS = 2, 4
COLUMNS = (
    ColumnFacts(name="customer", kind=Kind.INTEGER),
    ColumnFacts(name="city", kind=Kind.TEXT, keys=("Basel", "Bern")),
    ColumnFacts(name="product", kind=Kind.TEXT),
    ColumnFacts(name="day", kind=Kind.DATE),
    ColumnFacts(name="amount", kind=Kind.DOUBLE, between=Interval(Fraction(0), Fraction(50)), step=Fraction(1, 2)),
)
ORDERS = TableFacts(
    name="orders",
    private=True,
    columns={column.name: column for column in COLUMNS},
    unit_column="customer",
    groups=GROUPS,
    rows=ROWS,
)
SCHEMA = Schema({"orders": ORDERS})
INNER = "SELECT customer, day, MAX(amount) AS amount, MIN(product) AS p FROM orders GROUP BY customer, day"
LAGGED = "SELECT lag(product) OVER (PARTITION BY customer ORDER BY day) AS l FROM orders"
# a question, and the columns on which its groups depend
CHOOSING = (
    ("SELECT product, COUNT(*), MEDIAN(amount) FROM orders GROUP BY product", ("product",)),
    ("SELECT day, city, COUNT(*), MEDIAN(amount) FROM orders GROUP BY day, city", ("city", "day")),
    ("SELECT p, COUNT(*), MEDIAN(amount) FROM (SELECT amount, product AS p FROM orders) GROUP BY p", ("product",)),
)


def asked(sql):
    return bind(sql, SCHEMA).aggregation


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        *CHOOSING,
        ("SELECT COUNT(*) FROM orders", ()),
        ("SELECT upper(city) || product, COUNT(*) FROM orders GROUP BY 1", ("city", "product")),
        (f"SELECT p, COUNT(*) FROM ({INNER}) GROUP BY p", ("product",)),
        (
            "SELECT c, COUNT(*) FROM (SELECT product AS c FROM orders UNION ALL SELECT city FROM orders) GROUP BY c",
            None,
        ),
        (f"SELECT l, COUNT(*) FROM ({LAGGED}) GROUP BY l", ("product",)),
        (
            "SELECT b.day, COUNT(*) FROM orders AS a JOIN orders AS b ON a.customer = b.customer GROUP BY b.day",
            ("day",),
        ),
    ],
)
def test_the_columns_that_groups_depend_on_are_known(sql, columns):
    wanted = ("city", "product") if columns is None else columns
    assert key_columns(asked(sql)) == {("orders", column) for column in wanted}


@pytest.mark.parametrize(("sql", "columns"), CHOOSING)
def test_units_always_have_more_groups_and_rows_than_they_may(sql, columns):
    for world in islice(worlds(SCHEMA, asked(sql), seed=8), 20):
        groups = {}
        for row in world.base["orders"].to_pylist():
            groups.setdefault(row["customer"], Counter())[tuple(row[column] for column in columns)] += 1
        heavy = [own for own in groups.values() if len(own) > GROUPS and max(own.values()) > ROWS]
        assert len(heavy) >= 2, "the unit that goes, and one that stays"


def one_group_too_many(patch):
    keep = duckdb.keep_groups
    patch.setattr(duckdb, "keep_groups", lambda table, names, most: keep(table, names, most + 1))


def one_row_too_many(patch):
    sampling = duckdb.SAMPLING
    bins = sampling.bins
    more = replace(sampling, bins=lambda rows, own, most, salt: bins(rows, own, most + 1, salt))
    patch.setattr(duckdb, "SAMPLING", more)


def one_row_too_many_in_totals(patch):
    from dither.engines import bounding

    capped = bounding._Part.capped

    def higher(self, rows):
        return capped(replace(self, total=replace(self.total, high=self.total.high + 1)), rows + 1)

    patch.setattr(bounding._Part, "capped", higher)


@pytest.mark.parametrize("mutant", [None, one_group_too_many, one_row_too_many, one_row_too_many_in_totals])
def test_a_wrong_choice_is_a_breach_in_every_world(monkeypatch, mutant):
    """The heavy unit has what a mutant adds, in every world and whatever the salt: it is never missed."""
    if mutant is not None:
        mutant(monkeypatch)
    each = short_or_full(2, 4)
    found = [
        bool(check_question(sql, SCHEMA, next(world.pairs())))
        for sql, _ in CHOOSING[:2]
        for world in islice(worlds(SCHEMA, asked(sql), seed=8), each)
    ]
    assert found == [mutant is not None] * 2 * each


def choice_by_the_rows_of_others(patch):
    def rank(salt, columns):
        return f"hash(xor(hash({', '.join(columns)}), CAST({salt % 2**64} AS UBIGINT) + count(*) OVER ()))"

    patch.setattr(duckdb, "DUCKDB", replace(duckdb.DUCKDB, rank=rank))


def test_a_choice_that_others_sway_is_a_breach(monkeypatch):
    """A crowd of 30 choose again when the heavy unit goes; that no more than two groups move has no chance."""
    choice_by_the_rows_of_others(monkeypatch)
    sql, _ = CHOOSING[0]
    crowded = next(worlds(SCHEMA, asked(sql), seed=8, crowd=30))
    assert check_question(sql, SCHEMA, next(crowded.pairs()))
