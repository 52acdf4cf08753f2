"""Makes DuckDB files, engines on them, schemas and measurements."""

import tempfile
from pathlib import Path

import duckdb

from dither.engines import DuckDBEngine
from dither.query.kinds import NOTHING, Column, Kind
from dither.query.measure.measures import Cap, Measurement, Total
from dither.query.plan.plan import Key, PlanField, Scan
from dither.query.schema import ColumnFacts, Schema, TableFacts

SALT = b"0123456789abcdef"
COUNT = Total(factors=(), present=(), low=0, high=5, cap=Cap.CLAMP)


def table(name="orders", unit="who", **kinds):
    columns = {column: ColumnFacts(name=column, kind=kind) for column, kind in kinds.items()}
    return TableFacts(name=name, private=True, unit_column=unit, columns=columns)


def schema(*tables):
    return Schema({facts.name: facts for facts in tables})


def scan(facts, *, unit=True):
    names = tuple((f"c{i}", column) for i, column in enumerate(facts.columns))
    fields = tuple(PlanField(name=n, kind=facts.columns[c].kind, facts=NOTHING) for n, c in names)
    return Scan(
        table=facts.name, private=True, unit_column=facts.unit_column if unit else None, columns=names, fields=fields
    )


def measure(relation, *keys, units="column", groups=100, rows=5, totals=(COUNT,), **more):
    found = tuple(Key(expression=column, kind=column.kind, values=None) for column in keys)
    return Measurement(relation=relation, units=units, keys=found, groups=groups, rows=rows, totals=totals, **more)


def values(engine, facts, place, units="row"):
    """The values of a column, as the engine reads them, with how often each occurs."""
    column = Column(f"c{place}", list(facts.columns.values())[place].kind)
    found = engine.run(measure(scan(facts, unit=units == "column"), column, units=units), salt=SALT)
    return dict(zip(found.keys.column("k0").to_pylist(), found.totals[0].tolist(), strict=True))


def make(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


ORDERS = table(who=Kind.INTEGER, place=Kind.TEXT, amount=Kind.DOUBLE)


def write(path, tables):
    with duckdb.connect(str(path)) as connection:
        for name, table in tables.items():
            connection.register("loaded", table)
            connection.execute(f'CREATE TABLE "{name.replace(chr(34), chr(34) * 2)}" AS SELECT * FROM loaded')
            connection.unregister("loaded")


class Engine(DuckDBEngine):
    """An engine on a file of its own, which goes with it."""

    folder = None

    def close(self):
        super().close()
        if self.folder is not None:
            self.folder.cleanup()


def factory(tables, schema, threads, engine=Engine):
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "data.duckdb"
    write(path, tables)
    opened = engine.open(path, schema, threads=threads)
    opened.folder = folder
    return opened
