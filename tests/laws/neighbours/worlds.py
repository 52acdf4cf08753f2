"""Worlds: a schema, tables full of awkward values, and neighbours of them, all in one database.

A cell is a pair of texts: what DuckDB is told, and the same value in Python where there is one.
"""

import datetime as dt
import math
from dataclasses import dataclass, field
from fractions import Fraction

import duckdb
import pyarrow.parquet as pq

from dither.query.kinds import Interval, Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts

NO_VALUE = object()  # beyond what Python has: dates after 9999, infinite ones
B, I, D, T, DATE, TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP  # noqa: E741


def _double(value):
    return f"CAST('{value!r}' AS DOUBLE)", value


def _text(value):
    return "'" + value.replace("'", "''") + "'", value


def _day(text):
    return f"CAST('{text}' AS DATE)", dt.date.fromisoformat(text)


def _moment(text):
    return f"CAST('{text}' AS TIMESTAMP)", dt.datetime.fromisoformat(text)


def _beyond(text, kind):
    return f"CAST('{text}' AS {kind})", NO_VALUE


COMMON = {
    B: [("TRUE", True), ("FALSE", False)],
    I: [(str(n), n) for n in (0, 1, 2, 3, 4, 5, 7, 20)],
    D: [_double(x) for x in (0.0, 0.1, 0.2, 0.3, 0.7, 1.5, 2.5, 50.0, 99.99)],
    T: [_text(t) for t in ("a", "b", "c", "d", "A")],
    DATE: [_day(t) for t in ("2024-01-31", "2024-02-29", "2023-12-31", "2024-06-15")],
    TS: [_moment(t) for t in ("2024-01-31 00:00:00", "2024-02-29 23:59:59.999999", "2023-07-01 12:30:00")],
}
AWKWARD = {
    B: [("NULL", None)],
    I: [("NULL", None), *((f"({n})", n) for n in (2**63 - 1, -(2**63), -1, -7, 2**31, 2**53 + 1, 10**18))],
    D: [
        ("NULL", None),
        ("(-CAST('nan' AS DOUBLE))", math.nan),
        *(_double(x) for x in (math.nan, math.inf, -math.inf, -0.0, 1e16, -1e16, 1.7e308, -1.7e308, 5e-324, -3.25)),
        *(_double(x) for x in (1e-300, 9007199254740993.0, -0.1, 1e100)),
    ],
    T: [
        ("NULL", None),
        *map(_text, ("", " ", "O'Brien", '"q"', "é", "É", "ß", "%", "_", "a%", "\\", "NULL", "1", " 2 ", "1e5")),
        *map(_text, ("2024-02-30", "2024-01-31", "true", "99999999999999999999", "nan", "\U0001f600", "a" * 40)),
    ],
    DATE: [
        ("NULL", None),
        *(_day(t) for t in ("0001-01-01", "9999-12-31", "1970-01-01", "9998-12-31", "0001-12-31")),
        *(_beyond(t, "DATE") for t in ("infinity", "-infinity", "5000000-01-01", "4713-01-01 (BC)")),
    ],
    TS: [
        ("NULL", None),
        *(_moment(t) for t in ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999")),
        *(_beyond(t, "TIMESTAMP") for t in ("infinity", "-infinity", "290000-01-01 00:00:00", "0044-03-15 (BC)")),
    ],
}
PLAIN = {B: "BOOLEAN", I: "BIGINT", D: "DOUBLE", T: "VARCHAR", DATE: "DATE", TS: "TIMESTAMP"}
OTHER = {
    B: ("INTEGER", "VARCHAR"),
    I: ("HUGEINT", "SMALLINT", "VARCHAR", "DOUBLE", "DECIMAL(18,0)", "UBIGINT"),
    D: ("FLOAT", "VARCHAR", "DECIMAL(18,3)", "BIGINT"),
    T: ("BOOLEAN", "DATE", "BIGINT", "UUID"),
    DATE: ("TIMESTAMP", "VARCHAR", "TIMESTAMP_S"),
    TS: ("DATE", "VARCHAR", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
}
# Ids of units: each list is one unit, in all its spellings; a kind, DuckDB's type.
UNITS = (
    (I, "BIGINT", [[str(n)] for n in (1, 2, 3, 4, 5, 6, -1, 2**63 - 1)]),
    (I, "INTEGER", [[str(n)] for n in range(1, 9)]),
    (I, "VARCHAR", [["'7'", "'07'", "' +7'"], *([f"'{n}'"] for n in range(1, 7))]),
    (T, "VARCHAR", [["''"], ["' '"], ["'a'"], ["'A'"], ["'O''Brien'"], ["'é'"], ["'1'"]]),
    (T, "UUID", [[f"'00000000-0000-0000-0000-00000000000{n}'"] for n in range(1, 8)]),
    (
        D,
        "DOUBLE",
        [["0.0", "CAST('-0.0' AS DOUBLE)"], ["CAST('nan' AS DOUBLE)", "-CAST('nan' AS DOUBLE)"], ["1.5"], ["2"]],
    ),
)


@dataclass
class Table:
    """A table's facts, its types in DuckDB and a pool of rows; ``owner`` is the unit's number, None for nobody."""

    facts: TableFacts
    types: dict
    rows: list = field(default_factory=list)
    owners: list = field(default_factory=list)
    plain: bool = True


@dataclass
class World:
    """A schema over tables, and the rows of every variant: ``{"base": {table: row numbers}}`` and neighbours."""

    schema: Schema
    tables: dict
    by_unit: bool
    variants: dict
    replaced: tuple
    removed: tuple

    def whole(self):
        """The schema with every variant of every private table, for one engine."""
        found = dict(self.schema.tables)
        for variant in self.variants:
            for name, facts in self.schema.tables.items():
                if facts.private and variant != "base":
                    found[f"{name}~{variant}"] = TableFacts(
                        name=f"{name}~{variant}", private=True, columns=facts.columns, unit_column=facts.unit_column
                    )
        return Schema(found)

    def names(self, variant):
        """Which table of the database stands for which in a variant."""
        if variant == "base":
            return {}
        return {name: f"{name}~{variant}" for name, facts in self.schema.tables.items() if facts.private}

    def write(self, path):
        """All variants as tables of a new database."""
        connection = duckdb.connect(str(path))
        connection.execute("BEGIN")
        for name, table in self.tables.items():
            columns = ", ".join(f'"{c}" {kind}' for c, kind in table.types.items())
            connection.execute(f'CREATE TEMP TABLE "{name}~pool" ({columns}, "~n" BIGINT)')
            if table.rows:
                values = ", ".join(
                    "(" + ", ".join([*(cell[0] for cell in row), str(number)]) + ")"
                    for number, row in enumerate(table.rows)
                )
                types = ", ".join(f'TRY_CAST("{c}" AS {kind})' for c, kind in table.types.items())
                names = ", ".join([*(f'"{c}"' for c in table.types), '"~n"'])
                connection.execute(
                    f'INSERT INTO "{name}~pool" SELECT {types}, "~n" FROM (VALUES {values}) AS v({names})'
                )
            for variant, chosen in self.variants.items():
                if not table.facts.private and variant != "base":
                    continue
                numbers = chosen.get(name, list(range(len(table.rows))))
                own = self.names(variant).get(name, name)
                order = ", ".join(f"({number}, {place})" for place, number in enumerate(numbers)) or "(-1, 0)"
                connection.execute(
                    f'CREATE TABLE "{own}" AS SELECT p.* EXCLUDE ("~n") FROM "{name}~pool" AS p JOIN (VALUES {order}) '
                    'AS o(n, place) ON p."~n" = o.n ORDER BY o.place'
                )
        connection.execute("COMMIT")
        connection.close()

    def parquet(self, path, folder):
        """All variants as Parquet files, written by another hand than DuckDB's: other statistics, no NaN in them."""
        files = {}
        with duckdb.connect(str(path), read_only=True) as connection:
            for place, name in enumerate(self.whole().tables):
                files[name] = folder / f"{place}.parquet"
                pq.write_table(connection.sql(f'SELECT * FROM "{name}"').to_arrow_table(), files[name])
        return files

    def python(self, variant):
        """The rows of a variant for the reference engine; None where some value isn't Python's."""
        if not all(table.plain for table in self.tables.values()):
            return None
        result = {}
        for name, table in self.tables.items():
            numbers = self.variants[variant].get(name, range(len(table.rows)))
            rows = [table.rows[number] for number in numbers]
            if any(cell[1] is NO_VALUE for row in rows for cell in row):
                return None
            result[name] = [dict(zip(table.types, (cell[1] for cell in row), strict=True)) for row in rows]
        return result


def _between(low, high):
    return Interval(Fraction(low), Fraction(high))


def _facts(random, kind):
    """What the owner may declare about a column."""
    if kind is I:
        return random.choice(
            [
                {"between": _between(0, 20)},
                {"between": _between(-5, 5)},
                {"between": _between(3, 9)},
                {"keys": (1, 2, 3)},
                {"keys": (0, 5, None)},
                {"between": _between(-(2**63), 2**63 - 1)},
                {"between": _between(2**60, 2**62)},
                {},
            ]
        )
    if kind is D:
        return random.choice(
            [
                {"between": _between(0, 100), "step": Fraction(1, 100)},
                {"between": _between(0, 1)},
                {"between": _between(-3, 3)},
                {"between": _between(1, 2**40)},
                {"between": _between(Fraction(-1, 8), Fraction(10) ** 30)},
                {"keys": (0.0, 1.5, 2.5)},
                {"between": _between(2, 2)},
                {},
            ]
        )
    if kind is T:
        return random.choice([{"keys": ("a", "b", "c")}, {"keys": ("a", None)}, {"keys": ("", "A", "O'Brien")}, {}])
    if kind is DATE:
        return random.choice([{}, {"keys": (dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(2023, 12, 31))}])
    return {}


def _cell(random, kind, *, plain):
    awkward = [cell for cell in AWKWARD[kind] if not plain or cell[1] is not NO_VALUE]
    return random.choice(COMMON[kind] if random.random() < 0.72 else awkward)


def _table(random, name, kinds, *, unit=None, plain=False, **facts):
    columns, types = {}, {}
    if unit is not None:
        columns[unit[0]] = ColumnFacts(name=unit[0], kind=unit[1])
        types[unit[0]] = unit[2]
    for column, kind in kinds:
        columns[column] = ColumnFacts(name=column, kind=kind, **_facts(random, kind))
        types[column] = PLAIN[kind] if plain or random.random() < 0.8 else random.choice(OTHER[kind])
    unit_column = None if unit is None else unit[0]
    table = Table(TableFacts(name=name, columns=columns, unit_column=unit_column, **facts), types)
    table.plain = plain
    return table


_KINDS = (("k", T), ("b", B), ("i", I), ("j", I), ("x", D), ("y", D), ("d", DATE), ("s", TS), ("t", T))


def _some(random, least):
    return [pair for pair in _KINDS if random.random() < 0.75 or pair[0] in least]


def _fill(random, table, owner, spellings, count):
    """Rows of one unit; some units always say the same, some something else in every row."""
    same = random.random() < 0.2
    first = None
    for _ in range(count):
        kinds = [facts.kind for name, facts in table.facts.columns.items() if name != table.facts.unit_column]
        row = [_cell(random, kind, plain=table.plain) for kind in kinds]
        first = first or row
        row = list(first) if same else row
        if table.facts.unit_column is not None:
            spelling = random.choice(spellings)
            row.insert(0, (spelling, None if spelling == "NULL" else _id(spelling)))
        table.rows.append(row)
        table.owners.append(owner)


def _choose(random, table, owner, spellings):
    """Rows of a unit that must choose: two more groups than allowed, by whatever column, and two more rows in each.

    All columns differ from group to group as far as there are common values; some differ within a group too.
    """
    columns = [facts.kind for name, facts in table.facts.columns.items() if name != table.facts.unit_column]
    series = [random.sample(COMMON[kind], len(COMMON[kind])) for kind in columns]
    # a column that differs within the groups would be no key of them, but is one of its own
    within = [random.random() < 0.25 for _ in columns]
    for group in range(table.facts.groups + 2):
        # joins multiply rows, so of many only the first group has too many
        deep = group == 0 or table.facts.rows < 5
        for place in range(table.facts.rows + 2 if deep else 1):
            row = [values[(group + place * inner) % len(values)] for values, inner in zip(series, within, strict=True)]
            spelling = random.choice(spellings)
            table.rows.append([(spelling, _id(spelling)), *row])
            table.owners.append(owner)


def _id(text):
    return (
        text[1:-1].replace("''", "'") if text.startswith("'") else int(text) if text.lstrip("-").isdigit() else NO_VALUE
    )


def world(random):
    """A random world with the variants ``base``, ``removed0``, …, ``replaced0``, …, ``nobody`` and ``shuffled``."""
    by_unit = random.random() < 0.7
    plain = random.random() < 0.4
    kind, engine_type, ids = random.choice(UNITS[:4] if plain else UNITS)
    if plain:
        ids = [each[:1] for each in ids]
    tables = {}
    for place in range(random.choice((1, 2, 2, 3))):
        unit = (("uid", "uid", "who")[place], kind, engine_type) if by_unit else None
        bounds = {"groups": random.choice((1, 1, 2, 3)), "rows": random.choice((1, 1, 2, 3, 20))}
        name = f"t{place}"
        tables[name] = _table(random, name, _some(random, "kix"), unit=unit, plain=plain, private=True, **bounds)
    for place in range(random.choice((0, 1, 1, 2))):
        name, unique = f"p{place}", random.random() < 0.5
        keyed = (frozenset({"k"}),) if unique else ()
        tables[name] = _table(
            random, name, [("k", T), *_some(random, "i")[1:]], plain=True, private=False, unique=keyed
        )
        _fill(random, tables[name], None, (), random.choice((0, 4, 8)))
        if unique:
            once = {row[0][1]: row for row in tables[name].rows}
            tables[name].rows = list(once.values())
    variants = _by_unit(random, tables, ids) if by_unit else _by_row(random, tables)
    schema = Schema({name: table.facts for name, table in tables.items()})
    removed = tuple(v for v in variants if v.startswith("removed"))
    replaced = tuple(v for v in variants if v.startswith("replaced"))
    return World(schema, tables, by_unit, variants, replaced, removed)


def _private(tables):
    return {name: table for name, table in tables.items() if table.facts.private}


def _numbers(tables, keep):
    return {
        name: [n for n, owner in enumerate(table.owners) if keep(owner, name, n)]
        for name, table in _private(tables).items()
    }


def _by_unit(random, tables, ids):
    for table in _private(tables).values():
        for owner, spellings in enumerate(ids):
            most = random.choice((0, 1, 1, 2, 3)) if owner else random.choice((0, 6))
            _fill(random, table, owner, spellings, most)
            if owner < 4:
                _choose(random, table, owner, spellings)
        _fill(random, table, None, ["NULL"], random.choice((0, 2)))
        # what the first two units might say instead
        for owner in (0, 1):
            for place in range(2):
                _fill(random, table, ("instead", place, owner), ids[owner], random.choice((0, 1, 6, 20)))
                _choose(random, table, ("instead", place, owner), ids[owner])
    present = _numbers(tables, lambda owner, *_: not isinstance(owner, tuple))
    for numbers in present.values():
        random.shuffle(numbers)
    variants = {"base": present}
    variants["removed2"] = _without(tables, present, lambda owner: owner == 2)
    for place, gone in enumerate((0, 1)):
        variants[f"removed{place}"] = _without(tables, present, lambda owner, gone=gone: owner == gone)
        rest = _without(tables, present, lambda owner, gone=gone: owner == gone)
        instead = _numbers(tables, lambda owner, *_, gone=gone, place=place: owner == ("instead", place, gone))
        variants[f"replaced{place}"] = {name: rest[name] + instead[name] for name in rest}
    variants["nobody"] = _without(tables, present, lambda owner: owner is None)
    variants["shuffled"] = {name: random.sample(numbers, len(numbers)) for name, numbers in present.items()}
    return variants


def _without(tables, present, gone):
    return {name: [n for n in numbers if not gone(tables[name].owners[n])] for name, numbers in present.items()}


def _by_row(random, tables):
    for table in _private(tables).values():
        _fill(random, table, 0, (), random.choice((2, 10, 30)))
        _fill(random, table, 1, (), 3)
    present = _numbers(tables, lambda owner, *_: owner == 0)
    variants = {"base": present}
    for place in range(3):
        table = random.choice(list(present))
        gone = random.choice(present[table])
        rest = {name: [n for n in numbers if (name, n) != (table, gone)] for name, numbers in present.items()}
        spare = next(n for n, owner in enumerate(tables[table].owners) if owner == 1) + place
        variants[f"removed{place}"] = rest
        variants[f"replaced{place}"] = {**rest, table: [*rest[table], spare]}
    variants["shuffled"] = {name: random.sample(numbers, len(numbers)) for name, numbers in present.items()}
    return variants
