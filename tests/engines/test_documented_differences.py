"""Where a function means something else than in plain DuckDB, docs/sql.md says so; both are run here."""

from pathlib import Path

import duckdb
import pytest

from dither.curator import Curator

POLICY = """
[source]
database = "odd.duckdb"
[budget]
epsilon_budget = 1000000
max_epsilon_per_query = 10000
analysts = "any"
[tables.odd]
private = true
privacy_unit_column = "person"
[tables.odd.columns]
person = { type = "integer" }
large = { type = "integer" }
nan = { type = "double" }
spaced = { type = "text" }
"""
LARGE = 2**53 + 1
# a predicate, what plain DuckDB says of the row, what dither says of it, and where the reference says so
DIFFERENT = [
    ("sign(nan) = 0", True, None, "NULL for NaN, where DuckDB says 0"),
    ("length(trim(spaced)) = 1", True, False, "other spaces of Unicode stay, which DuckDB removes too"),
    ("length(ltrim(spaced)) = 3", True, False, "blanks, as for `trim`"),
    ("length(rtrim(spaced)) = 2", True, False, "blanks, as for `trim`"),
    (f"CAST(nullif(large, 1.5) AS BIGINT) = {LARGE}", True, False, "which in DuckDB keeps the kind of a"),
]


ROW = f"SELECT 1 AS person, {LARGE} AS large, 'NaN'::DOUBLE AS nan, chr(160) || 'a' || chr(160) || ' ' AS spaced"


@pytest.fixture(scope="module")
def curator(tmp_path_factory):
    directory = tmp_path_factory.mktemp("odd")
    with duckdb.connect(str(directory / "odd.duckdb")) as database:
        database.execute(f"CREATE TABLE odd AS {ROW}")
    (directory / "dither.toml").write_text(POLICY, encoding="utf-8")
    with Curator.open(directory / "dither.toml") as opened:
        yield opened


@pytest.mark.parametrize(("predicate", "plain", "ours", "said"), DIFFERENT)
def test_each_difference_is_there_and_documented(curator, predicate, plain, ours, said):
    with duckdb.connect() as database:
        assert database.execute(f"SELECT {predicate} FROM ({ROW})").fetchone() == (plain,)
    wanted = f"({predicate}) IS NULL" if ours is None else predicate if ours else f"NOT ({predicate})"
    # at this ε noise is 0
    assert curator.sql(f"SELECT COUNT(*) FROM odd WHERE {wanted}", epsilon=1000).scalar() == 1
    assert said in (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
