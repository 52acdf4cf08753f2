"""Makes DuckDB files of Arrow tables, and engines on them."""

import tempfile
from pathlib import Path

import duckdb

from dither.engines import DuckDBEngine


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
