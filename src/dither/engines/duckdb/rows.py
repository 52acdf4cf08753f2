"""Rows for computations that state their loss by themselves: so many of each unit, in an order that says nothing."""

# ruff: noqa: S608 (generated from the schema: names are quoted, expressions come from the sources)

from __future__ import annotations

from collections.abc import Sequence

from dither.engines.bounding import salt_number
from dither.engines.relations import UNIT, Dialect, TableSource, quoted
from dither.errors import InvalidParameter
from dither.numeric import positive_int
from dither.query.schema import TableFacts


def rows_sql(
    table: TableFacts, source: TableSource, columns: Sequence[str], *, rows: int, salt: bytes, dialect: Dialect
) -> str:
    """At most ``rows`` rows of each unit, all rows where each is a unit of its own, with columns ``c0``, ``c1`` and on.

    Guarantee: a unit's rows are chosen by the salted hash from its own rows alone, so one unit more or less changes
        only its own rows of the result, of which there are at most ``rows``. The result is sorted by every column,
        so that the order of rows is a function of which rows there are.

    Equal rows of a unit are numbered, so that each has a chance of its own; which of them has which number can't be
    seen in the result.
    """
    expect_columns(table, columns)
    positive_int(rows, "rows")
    names = [f"c{place}" for place in range(len(columns))]
    read = ", ".join(f"{source.columns[name]} AS {quoted(c)}" for c, name in zip(names, columns, strict=True))
    values = [
        f"{dialect.plain(f'r.{c}', table.columns[name].kind)} AS {c}" for c, name in zip(names, columns, strict=True)
    ]
    order = ", ".join(f"r.{c} ASC NULLS LAST" for c in names)
    if table.unit_column is None:
        inner = f"SELECT {', '.join(values)} FROM (SELECT {read} FROM {source.relation} AS r) AS r"
        return f"SELECT * FROM ({inner}) AS r ORDER BY {order}"
    # rows with a NULL unit id belong to no unit, so no bound would hold for them
    owned = f"SELECT {source.unit} AS {UNIT}, {read} FROM {source.relation} AS r WHERE {source.unit} IS NOT NULL"
    inner = f"SELECT r.{UNIT}, {', '.join(values)} FROM ({owned}) AS r"
    own = [f"r.{UNIT}", *(f"r.{c}" for c in names)]
    counted = f"SELECT {', '.join(own)}, row_number() OVER (PARTITION BY {', '.join(own)}) AS _n FROM ({inner}) AS r"
    rank = dialect.rank(salt_number(salt, "rows"), [*own, "r._n"])
    ranked = f"SELECT {', '.join(own)}, r._n, {rank} AS _h FROM ({counted}) AS r"
    place = f"row_number() OVER (PARTITION BY r.{UNIT} ORDER BY r._h, {order}, r._n)"
    kept = f"SELECT {', '.join(own[1:])}, {place} AS _place FROM ({ranked}) AS r"
    return f"SELECT {', '.join(own[1:])} FROM ({kept}) AS r WHERE r._place <= {int(rows)} ORDER BY {order}"


def expect_columns(table: TableFacts, columns: Sequence[str]) -> None:
    """A private table, and columns that it has, each once."""
    if not table.private:
        raise InvalidParameter(f"{table.name} is public: only rows of private tables belong to units")
    if not columns or len(set(columns)) < len(columns) or any(name not in table.columns for name in columns):
        raise InvalidParameter(f"name at least one column of {table.name}, each once: {', '.join(table.columns)}")
