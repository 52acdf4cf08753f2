"""Databases of one process: shared by engines, closed once and in peace, left alone by children."""

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.engines import DuckDBEngine, EngineFailure
from dither.engines.duckdb import connections as duckdb_connections
from dither.errors import SourceError
from dither.query.intake import Intake
from dither.query.kinds import Column, Kind
from support import duckdb_files
from support.sizes import at_night

ORDERS, SALT = duckdb_files.ORDERS, duckdb_files.SALT
make, measure, scan, schema = duckdb_files.make, duckdb_files.measure, duckdb_files.scan, duckdb_files.schema

BY_PLACE = measure(scan(ORDERS), Column("c1", Kind.TEXT), groups=2)


@pytest.fixture
def path(tmp_path):
    return make(
        tmp_path / "shop.duckdb",
        "CREATE TABLE orders AS SELECT i % 500 AS who, 'p' || (i % 7) AS place, 1.0 AS amount FROM range(20000) t(i)",
    )


def opened(source, **settings):
    return DuckDBEngine.open(source, schema(ORDERS), **settings)


def scratch(engine):
    return engine._opened.database.scratch


# ------------------------------------------------------------------ sharing


def test_engines_on_one_file_share_its_database_until_the_last_is_closed(path, tmp_path):
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    first, second, third = opened(path), opened(path), opened(link)
    folder = scratch(first)
    assert first._opened.database is second._opened.database is third._opened.database
    wanted = first.run(BY_PLACE, salt=SALT).totals[0].tolist()
    first.close()
    assert folder.exists()
    with pytest.raises(EngineFailure):
        first.run(BY_PLACE, salt=SALT)
    assert second.run(BY_PLACE, salt=SALT).totals[0].tolist() == wanted
    second.close()
    second.close()  # a second time takes nothing from the third
    assert third.run(BY_PLACE, salt=SALT).totals[0].tolist() == wanted
    third.close()
    assert not folder.exists()
    make(path, "DELETE FROM orders")  # nobody holds the file any more


def test_an_engine_that_nobody_closes_goes_with_its_last_reference(path):
    # answers are shaped on one that lives as long as the process, and other tests may keep their own
    before, files = set(duckdb_connections._handles), dict(duckdb_connections._by_file)
    engine = opened(path)
    folder = scratch(engine)
    engine = opened(path)  # as a cell of a notebook that is run again
    assert scratch(engine) == folder
    del engine
    assert not folder.exists()
    assert duckdb_connections._handles == before
    assert duckdb_connections._by_file == files


def test_a_shared_database_stays_locked_and_read_only(path, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n", encoding="utf-8")
    with opened(path), opened(path) as engine:
        connection = engine._opened.connection
        for attempt in (
            f"SELECT * FROM read_csv('{secret}')",
            "DELETE FROM orders",
            "CREATE TABLE main.t (a INTEGER)",
            "SET threads = 1",
            "SET lock_configuration = false",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(attempt)


def test_a_file_that_is_open_with_other_settings_is_said_to_be(path):
    with opened(path, threads=1), pytest.raises(SourceError, match="already open in this process with other settings"):
        opened(path, threads=2)
    for read_only in (False, True):
        with (
            duckdb.connect(str(path), read_only=read_only),
            pytest.raises(SourceError, match="already open in this process with other settings: close it first"),
        ):
            opened(path)
    elsewhere = duckdb.connect(":memory:")
    elsewhere.execute(f"ATTACH '{path}' AS mine")
    with elsewhere, pytest.raises(SourceError, match="already open in this process"):
        opened(path)
    with opened(path) as engine:
        assert engine.run(BY_PLACE, salt=SALT).size == 7


def test_a_file_that_does_not_fit_leaves_nothing_open(path):
    other = duckdb_files.table("nowhere", who=Kind.INTEGER)
    before = set(duckdb_connections._handles)
    with opened(path) as engine:
        handles = len(duckdb_connections._handles)
        with pytest.raises(SourceError, match="no table nowhere"):
            DuckDBEngine.open(path, schema(other))
        opened(path)
        assert len(duckdb_connections._handles) == handles
        assert engine.run(BY_PLACE, salt=SALT).size == 7
    with pytest.raises(SourceError, match="no table nowhere"):
        DuckDBEngine.open(path, schema(other))
    assert duckdb_connections._handles == before
    make(path, "DELETE FROM orders")


# ------------------------------------------------------------------ closing


def test_close_waits_for_what_is_running(path):
    for _ in range(3):
        engine = opened(path)
        folder, problems, started = scratch(engine), [], threading.Barrier(5)

        def work(engine=engine, problems=problems, started=started):
            started.wait()
            while True:
                try:
                    engine.run(BY_PLACE, salt=SALT)
                except BaseException as problem:  # noqa: BLE001
                    problems.append(type(problem))
                    return

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        time.sleep(0.1)
        closers = [threading.Thread(target=engine.close) for _ in range(2)]
        for thread in closers:
            thread.start()
        engine.close()
        assert not folder.exists()
        assert not engine._running
        for thread in (*closers, *threads):
            thread.join(20)
            assert not thread.is_alive()
        assert problems == [EngineFailure] * 4
        engine.close()


def test_close_stops_a_long_query(tmp_path, no_hang):
    path = make(
        tmp_path / "slow.duckdb",
        "CREATE VIEW orders AS SELECT a.i % 5 AS who, 'p' AS place, CAST(a.i * b.i AS DOUBLE) AS amount "
        "FROM range(1000000) a(i), range(1000000) b(i)",
    )
    with opened(path, intake=Intake(names_only=True)) as names:
        version = names.version()
    # reading all of it on opening would take days, too
    engine = opened(path, threads=1, intake=Intake(accepted=version))
    problems = []

    def work():
        try:
            engine.run(BY_PLACE, salt=SALT)
        except EngineFailure as problem:
            problems.append(problem.cause)

    thread = threading.Thread(target=work)
    thread.start()
    while not engine._running:
        time.sleep(0.01)
    # nothing else computes here: what the processor does now is the query
    used = time.process_time()
    while time.process_time() - used < 0.3:
        time.sleep(0.01)
    engine.close()  # the query itself would take days
    thread.join()
    assert len(problems) == 1
    assert "nterrupt" in problems[0]


def test_close_in_a_handler_of_the_same_thread_closes_when_the_query_ends(path):
    engine = opened(path)
    folder = scratch(engine)
    with engine._cursor() as cursor:
        engine.close()
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    assert not folder.exists()
    with pytest.raises(EngineFailure):
        engine.run(BY_PLACE, salt=SALT)


# ------------------------------------------------------------------ forks

FORK = """
    import gc, os, sys, threading, time, importlib.util
    import duckdb
    from dither.engines import DuckDBEngine
    from dither.errors import SourceError
    spec = importlib.util.spec_from_file_location("duckdb_files", sys.argv[2])
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    source = sys.argv[1] if sys.argv[1].endswith("duckdb") else {"orders": sys.argv[1]}
    engine = DuckDBEngine.open(source, made.schema(made.ORDERS), threads=2)
    question = made.measure(made.scan(made.ORDERS))
    wanted = engine.run(question, salt=made.SALT).totals[0].tolist()
    scratch, stop = engine._opened.database.scratch, threading.Event()

    def work():
        while not stop.is_set():
            engine.run(question, salt=made.SALT)

    def said(call):
        try:
            call()
        except SourceError as problem:
            return "fork" in str(problem)
        return False

    def child(how):
        global engine
        if how == "use":
            calls = [lambda: engine.run(question, salt=made.SALT), engine.version, engine.unchanged]
            if not all(map(said, calls)):
                sys.exit(3)
        if how == "close":
            engine.interrupt()
            engine.close()
        if how == "drop":
            del engine
            gc.collect()
        if how == "open":
            # Below version 2 DuckDB's threads in a child crash the interpreter when it ends, whoever started them, if
            # Arrow had threads in the parent. Children of multiprocessing end like this.
            leave = os._exit if int(duckdb.__version__.split(".")[0]) < 2 else sys.exit
            if isinstance(source, str):
                leave(0 if said(lambda: DuckDBEngine.open(source, made.schema(made.ORDERS))) else 4)
            with DuckDBEngine.open(source, made.schema(made.ORDERS)) as other:
                if other.run(question, salt=made.SALT).totals[0].tolist() != wanted:
                    leave(5)
            leave(0)
        sys.exit(0)

    results = []
    for busy in (False, True):
        stop.clear()
        threads = [threading.Thread(target=work) for _ in range(2 * busy)]
        for thread in threads:
            thread.start()
        for how in ("exit", "use") if busy else ("exit", "use", "close", "drop", "open"):
            time.sleep(0.05)
            pid = os.fork()
            if pid == 0:
                child(how)
            ended, status = 0, None
            for _ in range(400):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    break
                time.sleep(0.025)
            else:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            results.append((how, busy, status if ended else "hangs", scratch.exists()))
        stop.set()
        for thread in threads:
            thread.join()
    bad = [result for result in results if result[2:] != (0, True)]
    same = engine.run(question, salt=made.SALT).totals[0].tolist() == wanted
    engine.close()
    print(len(results), bad, same, scratch.exists(), flush=True)
"""


@pytest.mark.parametrize("kind", ["duckdb", pytest.param("parquet", marks=at_night)])
def test_a_forked_child_leaves_the_parents_database_alone(path, tmp_path, kind):
    if kind == "parquet":
        path = tmp_path / "orders.parquet"
        pq.write_table(pa.table({"who": [1, 2], "place": ["a", "b"], "amount": [1.0, 2.0]}), path)
    helper = str(Path(__file__).parents[1] / "support" / "duckdb_files.py")
    command = [sys.executable, "-c", textwrap.dedent(FORK), str(path), helper]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert done.stdout == "7 [] True False\n", done.stderr[-2000:]
    assert done.returncode == 0
