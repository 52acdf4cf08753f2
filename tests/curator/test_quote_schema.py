"""The types of an answer are known with its price: for every question of the accept corpus and all kinds of keys."""

import dataclasses
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dither.curator import Curator
from dither.curator.answers.post_processing import _computed
from dither.engines import DuckDBEngine
from dither.engines.duckdb.noisy_rows import compute
from dither.errors import Failed
from dither.policy import Policy
from dither.query.aggregates.base import array_of
from dither.query.arrow import TYPES
from dither.query.kinds import Column, Kind
from dither.query.plan.plan import Output, Shape
from support.schemas import SHOP
from support.sizes import some

CORPUS = Path(__file__).resolve().parents[1] / "sql"
SQL_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}
POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
version = "1"
[budget]
epsilon_budget = 100000
delta_budget = 0.1
delta_per_query = 1e-4
default_epsilon = 1
[tables.orders]
private = true
privacy_unit_column = "user_id"
columns.user_id = { type = "integer" }
"""


def questions():
    for path in sorted((CORPUS / "accept").glob("*.sql")):
        for number, part in enumerate(path.read_text(encoding="utf-8").split("\n----\n")):
            yield pytest.param(part.strip("\n").partition("\n")[2], id=f"{path.stem}-{number}")


@pytest.fixture(scope="module")
def curator(tmp_path_factory, ledger_of):
    directory = tmp_path_factory.mktemp("empty")
    with duckdb.connect(str(directory / "shop.duckdb")) as database:
        for table in SHOP.tables.values():
            columns = ", ".join(f'"{c.name}" {SQL_TYPES[c.kind]}' for c in table.columns.values())
            database.execute(f'CREATE TABLE "{table.name}" ({columns})')
    policy = dataclasses.replace(Policy.parse(POLICY, base=directory), schema=SHOP)
    engine = DuckDBEngine.open(policy.source.location, policy.schema, threads=1)
    with Curator(policy, engine, ledger_of(policy)) as opened:
        yield opened


@pytest.mark.parametrize("sql", some(list(questions()), 3))
def test_the_quote_has_the_names_and_types_of_the_answer(curator, sql):
    quote = curator.price(sql)
    runs = len(list(curator.ledger.entries()))
    schema = quote.schema
    assert len(list(curator.ledger.entries())) == runs
    try:
        answer = curator.sql(sql)
    except Failed:
        pytest.fail("an accepted question can be answered on empty tables")
    assert schema.equals(answer.table.schema), (schema, answer.table.schema)
    assert schema.names == answer.table.column_names


def test_what_needs_no_computing_is_what_would_be_computed():
    values = {
        Kind.BOOLEAN: [True, None, False],
        Kind.INTEGER: [3, -1, None],
        Kind.DOUBLE: [0.5, float("nan"), None],
        Kind.TEXT: ["b", "", None],
        Kind.DATE: [None, None, None],
        Kind.TIMESTAMP: [None, None, None],
    }
    for kind in Kind:
        base = pa.table({"k0": array_of(values[kind], kind), "row": pa.array([0, 1, 2], pa.int64())})
        assert base.schema.field("k0").type == TYPES[kind]
        for limit, offset in ((None, 0), (2, 0), (5, 1), (0, 0), (1, 7)):
            outputs = (Output(name="x", expression=Column("k0", kind)), Output(name="y", expression=Column("k0", kind)))
            wanted = Shape(outputs=outputs, limit=limit, offset=offset)
            quick = _computed(base, wanted)
            named = [("0", outputs[0].expression), ("1", outputs[1].expression), ("2", Column("row", Kind.INTEGER))]
            slow = compute(base, named, limit=limit, offset=offset)
            assert quick.schema.types == slow.schema.types
            # as text, in which two NaN are the same
            assert str(quick.to_pylist()) == str(slow.rename_columns(quick.column_names).to_pylist())
