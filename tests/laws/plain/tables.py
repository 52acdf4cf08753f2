"""Random tables full of what real ones hold, their schema, and the same tables in a plain DuckDB."""

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

import duckdb
import pyarrow as pa

from dither.query.kinds import Interval, Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts

B, I, D, T, DATE, TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP  # noqa: E741

# A unit has at most so many rows in all, so that nothing is ever cut.
ROWS, GROUPS = 80, 64
LISTED = ("O'Brien", '"q"', "%_", "\U0001f600", "é", "Bern")
TEXTS = (*LISTED, "", " ", " a ", "É", "ß", "\\", "NULL", "1", "x;--", "a\tb", "e\u0301", "Bern ", "\u00a0a")
DAYS = date(2023, 12, 10), date(2024, 1, 20)
MOMENTS = datetime(2024, 2, 28), datetime(2024, 3, 1, 11)  # noqa: DTZ001
EPOCH, MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)  # noqa: DTZ001
TYPES = {
    "id": "BIGINT",
    "u": "BIGINT",
    "k": "VARCHAR",
    "g": "VARCHAR",
    "b": "BOOLEAN",
    "i": "INTEGER",
    "j": "BIGINT",
    "h": "SMALLINT",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "z": "DOUBLE",
    "w": "DOUBLE",
    "m": "DECIMAL(9,2)",
    "n": "BIGINT",
    "d": "DATE",
    "s": "TIMESTAMP",
}


def _between(low, high):
    return Interval(Fraction(low), Fraction(high))


COLUMNS = {
    column.name: column
    for column in (
        ColumnFacts(name="id", kind=I),
        ColumnFacts(name="u", kind=I),
        ColumnFacts(name="k", kind=T, keys=LISTED),
        ColumnFacts(name="g", kind=T),
        ColumnFacts(name="b", kind=B),
        ColumnFacts(name="i", kind=I, between=_between(-20, 20)),
        ColumnFacts(name="j", kind=I, between=_between(0, 1000), step=Fraction(5)),
        ColumnFacts(name="h", kind=I, between=_between(0, 24)),
        ColumnFacts(name="x", kind=D, between=_between(-10, 10), step=Fraction(1, 100)),
        ColumnFacts(name="y", kind=D, between=_between(0, 8)),
        # its values go beyond its bounds
        ColumnFacts(name="z", kind=D, between=_between(-1, 5), step=Fraction(1, 4)),
        ColumnFacts(name="w", kind=D),
        ColumnFacts(name="m", kind=D, between=_between(0, 500), step=Fraction(1, 100)),
        ColumnFacts(name="n", kind=I),
        # the values of both go beyond their bounds
        ColumnFacts(name="d", kind=DATE, between=_between(*((day - date(1970, 1, 1)).days for day in DAYS))),
        ColumnFacts(
            name="s", kind=TS, between=_between(*((at - EPOCH) // timedelta(microseconds=1) for at in MOMENTS))
        ),
    )
}
# t and v belong to units, r to nobody but its rows, p is public
PRIVATE = {"t": "u", "v": "u", "r": None}


def schema():
    """What an owner would declare about these tables, with generous limits."""
    own = {
        name: TableFacts(name=name, private=True, columns=COLUMNS, unit_column=unit, groups=GROUPS, rows=ROWS)
        for name, unit in PRIVATE.items()
    }
    public = {c: COLUMNS[c] for c in ("g", "h", "x")}
    own["p"] = TableFacts(name="p", private=False, columns=public, unique=(frozenset({"g"}),))
    return Schema(own)


SCHEMA = schema()


def _row(random, number, unit):
    def perhaps(value, missing=0.08):
        return None if random.random() < missing else value

    x = random.choice((random.randint(-1000, 1000) / 100, random.choice((-10.0, 10.0, 0.0, 0.29))))
    w = random.choice(
        (random.randint(-400, 400) / 4, random.choice((math.inf, -math.inf, math.nan, -0.0, 1e300, 7.25)))
    )
    day = date(2023, 11, 25) + timedelta(days=random.randint(0, 150))
    moment = datetime(2024, 2, 27) + timedelta(seconds=random.randint(0, 300_000))  # noqa: DTZ001
    return (
        number,
        unit,
        perhaps(random.choice((*LISTED, *LISTED, "elsewhere"))),
        perhaps(random.choice(TEXTS)),
        perhaps(random.random() < 0.4),
        perhaps(random.randint(-20, 20)),
        perhaps(5 * random.randint(0, 200)),
        perhaps(random.randint(0, 24)),
        perhaps(math.nan if random.random() < 0.05 else x),
        perhaps(random.randint(0, 512) / 64),
        perhaps(random.randint(-40, 40) / 4),
        perhaps(w),
        perhaps(random.randint(0, 50_000) / 100),
        perhaps(random.choice((random.randint(-500, 500), 2**62, -(2**62), 60, 61))),
        perhaps(day),
        perhaps(moment),
    )


@dataclass(frozen=True)
class Tables:
    """Rows by table, each in the order of ``TYPES``."""

    rows: dict

    def write(self, path):
        """A database as an owner has it."""
        with duckdb.connect(str(path)) as connection:
            for name, rows in self.rows.items():
                _fill(connection, name, rows)

    def plain(self):
        """A plain DuckDB with the same rows, but for those that belong to nobody."""
        connection = duckdb.connect(":memory:", config={"threads": 1})
        for name, rows in self.rows.items():
            _fill(connection, name, [row for row in rows if PRIVATE.get(name) is None or row[1] is not None])
        return connection


def _fill(connection, name, rows):
    listed = TYPES if name in PRIVATE else {column: TYPES[column] for column in ("g", "h", "x")}
    connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {kind}' for c, kind in listed.items())})")
    if rows:
        names = list(TYPES)
        made = pa.table({column: pa.array([row[names.index(column)] for row in rows]) for column in listed})
        connection.register("made", made)
        connection.execute(f"INSERT INTO {name} SELECT * FROM made")
        connection.unregister("made")


def tables(random):
    """Some thirty people with up to a dozen rows each, rows of nobody, repeated rows; empty tables now and then."""
    rows = {}
    for name in PRIVATE:
        made = []
        for unit in (*range(-3, 27), None):
            for _ in range(random.choice((0, 1, 2, 2) if name == "v" else (0, 1, 1, 2, 5, 9))):
                row = _row(random, len(made), unit)
                made += [row] * (2 if random.random() < 0.08 else 1)
        random.shuffle(made)
        rows[name] = made if random.random() > 0.02 else []
    once = {text: _row(random, place, None) for place, text in enumerate(TEXTS) if random.random() < 0.7}
    rows["p"] = [(*row[:3], text, *row[4:]) for text, row in once.items()]
    return Tables(rows)
