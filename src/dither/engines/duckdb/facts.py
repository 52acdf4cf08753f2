"""Facts that the policy states of private tables, held against the data: for the owner alone, and for no answer."""

# ruff: noqa: S608 (names are quoted, numbers are the policy's)

from __future__ import annotations

import duckdb

from dither.engines.relations import UNIT, TableSource, quoted
from dither.query.intake import Beyond
from dither.query.schema import TableFacts


def beyond(connection: duckdb.DuckDBPyConnection, table: TableFacts, source: TableSource) -> tuple[Beyond, ...]:
    """The facts that don't hold, with the exact numbers of units, or of combinations that occur several times.

    In the kinds in which columns are read. A combination in which something is missing counts like any other.

    Args:
        connection: To the owner's data.
        table: As the policy declares it.
        source: As it is read.

    Returns:
        One for each stated fact that is wrong; none for a public table, which isn't opened with wrong ones.
    """
    if not table.private:
        return ()
    found = []
    if table.unit_column is not None and table.rows_at_most is not None:
        units = f"SELECT {source.unit} AS {UNIT} FROM {source.relation} AS r"
        counted = f"SELECT count(*) AS n FROM ({units}) AS r WHERE r.{UNIT} IS NOT NULL GROUP BY r.{UNIT}"
        number, of = _counted(connection, counted, table.rows_at_most)
        if number:
            found.append(
                Beyond(columns=(table.unit_column,), rows=table.rows_at_most, number=number, of=of, units=True)
            )
    for key in table.unique:
        names = tuple(name for name in table.columns if name in key)
        listed = ", ".join(f"{_read(source, table, name)} AS {quoted(name)}" for name in names)
        by = ", ".join(f"r.{quoted(name)}" for name in names)
        counted = f"SELECT count(*) AS n FROM (SELECT {listed} FROM {source.relation} AS r) AS r GROUP BY {by}"
        number, of = _counted(connection, counted, 1)
        if number:
            found.append(Beyond(columns=names, rows=1, number=number, of=of, units=names == (table.unit_column,)))
    return tuple(found)


def _read(source: TableSource, table: TableFacts, name: str) -> str:
    # the id as units are told apart by it
    return source.unit if name == table.unit_column and source.unit is not None else source.columns[name]


def _counted(connection: duckdb.DuckDBPyConnection, sql: str, most: int) -> tuple[int, int]:
    row = connection.execute(f"SELECT count(*) FILTER (WHERE r.n > {most}), count(*) FROM ({sql}) AS r").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
