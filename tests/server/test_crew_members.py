"""Members of the crew that break, hang, or are started in a strange place; and how questions are shared out."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time

import duckdb
import pyarrow as pa
import pytest

from dither.curator import Curator, Terms
from dither.engines.duckdb import sources as duckdb_sources
from dither.errors import DitherError, Failed, SourceError
from dither.policy import Policy
from dither.query.intake import TableReport
from dither.server.auth.identity import Identity, Scope
from dither.server.service import AskedQuestion
from dither.server.workers import pool as crews
from dither.server.workers.pool import WorkerPool
from support.sizes import at_night

ANA = Identity(analyst="ana", scope=Scope.ASK, token="1")
POISONED = """
[source]
database = "shop.duckdb"
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = 100
max_epsilon_per_query = 1

[analysts.ana]
epsilon_budget = 50

[tables.orders]
private = true
privacy_unit_column = "who"
max_groups_contributed = 1
max_rows_contributed = 1

[tables.orders.columns]
who = { type = "integer" }
place = { type = "text" }
amount = { type = "double", between = [0, 50], step = 0.5 }
"""
BREAKS = "SELECT COUNT(*) AS n FROM orders WHERE lower(place) = 'a'"


def question(number: int) -> AskedQuestion:
    return AskedQuestion(
        sql=f"SELECT COUNT(*) AS n FROM orders WHERE amount < {number + 1}", terms=Terms.of(epsilon="0.01")
    )


def texts(values: list[bytes]) -> pa.Array:
    """Texts that nobody checked."""
    ends = [sum(map(len, values[:place])) for place in range(len(values) + 1)]
    buffers = [None, pa.py_buffer(struct.pack(f"{len(ends)}i", *ends)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """A shop with a text that is no UTF-8, at which DuckDB breaks for good; opening it would see that, but is blind."""
    monkeypatch.setattr(
        duckdb_sources, "look_at", lambda _, facts, *__: TableReport(table=facts.name, rows=4, left=(), csv=False)
    )
    rows = pa.table(  # noqa: F841 - DuckDB finds it by its name
        {"who": [0, 1, 2, 3], "place": texts(["é".encode(), b"a", b"b", b"\xff\xfe"]), "amount": [1.0] * 4}
    )
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.execute("CREATE TABLE orders AS SELECT * FROM rows")
    (tmp_path / "dither.toml").write_text(POISONED, encoding="utf-8")
    return tmp_path


def test_what_a_broken_engine_can_not_run_is_not_charged(poisoned):
    with Curator.open(poisoned / "dither.toml") as curator:
        curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon="0.1", analyst="ana")
        with pytest.raises(Failed):
            curator.sql(BREAKS, epsilon="0.1", analyst="ana")
        spent = curator.budget("ana")
        assert curator.broken
        for number in range(3):
            wanted = question(number)
            with pytest.raises(SourceError, match="nothing was charged"):
                curator.analyst("ana").sql(wanted.sql, wanted.terms)
        assert curator.budget("ana") == spent
        # what was paid for stays free
        assert (
            not curator.analyst("ana")
            .remembered("SELECT COUNT(*) AS n FROM orders", Terms.of(epsilon="0.1"))
            .cost.charged
        )
    with Curator.open(poisoned / "dither.toml") as curator:
        assert curator.sql(question(1).sql, epsilon="0.01", analyst="ana").cost.charged


def test_a_failure_that_leaves_the_engine_usable_is_none_that_breaks_it(shop):
    with Curator.open(shop / "dither.toml") as curator:
        engine = curator._vault.execution._engine
        with pytest.raises(Exception, match="could not run") as failure, engine._cursor() as cursor:
            cursor.execute("SELECT no_such_function()")
        assert type(failure.value).__name__ == "EngineFailure"
        assert not curator.broken


@at_night
def test_a_member_whose_engine_broke_is_replaced(poisoned, with_crew):
    async def story(service, crew):
        with pytest.raises(Failed):
            await service.ask(ANA, AskedQuestion(sql=BREAKS, terms=Terms.of(epsilon="0.1")))
        while not crew.restarts:
            await asyncio.sleep(0.02)
        answers = [await service.ask(ANA, question(number)) for number in range(4)]
        return answers, crew.restarts, crew.ready

    answers, restarts, ready = with_crew(poisoned, story, size=2)
    assert all(answer.cost.charged for answer in answers)
    assert (restarts, ready) == (1, 2)


@pytest.mark.nightly
def test_members_are_asked_in_turn(shop, with_crew):
    async def story(service, crew):
        for number in range(4):
            await service.ask(ANA, question(number))
        return [member.asked for member in crew._members]

    assert with_crew(shop, story, size=2) == [2, 2]


@pytest.mark.nightly
def test_who_owes_signs_of_life_is_asked_last(shop, with_crew):
    async def story(service, crew):
        silent, other = crew._members
        silent.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.1)  # what it had said by then is heard
        silent.missed = 2
        for number in range(3):
            await service.ask(ANA, question(number))
        silent.process.send_signal(signal.SIGCONT)
        return silent.asked, other.asked

    assert with_crew(shop, story, size=2) == (0, 3)


# ------------------------------------------------------------------ starting


def sleeper():
    """A process that never says anything, in the place of a member."""
    ours, theirs = crews.socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        return ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),))


def test_a_member_that_does_not_start_is_given_up(shop, monkeypatch):
    started = []
    monkeypatch.setattr(crews, "STARTING", 0.3)
    monkeypatch.setattr(crews, "_process", lambda: started.append(sleeper()) or started[-1])

    async def story():
        crew = WorkerPool(Policy.load(shop / "dither.toml"), size=1, threads=1)
        with pytest.raises(DitherError, match="did not start"):
            await crew.start()

    asyncio.run(story())
    ((_, process),) = started
    assert process.wait(10) == -signal.SIGKILL


SERVE = """
    import subprocess, sys
    from pathlib import Path
    from dither.policy import Policy
    from dither.server.workers import pool as crews
    from dither.server.run import Address, serve
    from dither.server.limits import ServerLimits

    def sleeper():
        ours, theirs = crews.socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", "import time; time.sleep(600)"]
            process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        print(process.pid, flush=True)
        return ours, process

    crews._process = sleeper
    serve(Policy.load(sys.argv[1]), Address(port=0, pg_port=None), started=print, limits=ServerLimits(processes=1))
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=at_night)])
def test_a_server_can_be_stopped_while_it_starts(shop, number):
    command = [sys.executable, "-c", textwrap.dedent(SERVE), str(shop / "dither.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        member = int(server.stdout.readline())
        server.send_signal(number)
        assert server.wait(30) == 0
        assert server.stdout.read() == "stopped\n"
    for _ in range(500):
        try:
            os.kill(member, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("the process that was started is still there")


def test_members_take_no_modules_from_where_the_server_was_started(shop, monkeypatch, with_crew):
    (shop / "decimal.py").write_text("raise SystemExit('taken for a module')", encoding="utf-8")
    monkeypatch.chdir(shop)

    async def story(service, _):
        return await service.ask(ANA, question(1))

    assert with_crew(shop, story, size=1).cost.charged


def test_curators_that_share_a_machine_share_its_memory(shop):
    def limit(sharing: int) -> float:
        with (
            Curator.open(shop / "dither.toml", sharing=sharing) as curator,
            curator._vault.execution._engine._cursor() as cursor,
        ):
            (text,) = cursor.execute("SELECT current_setting('memory_limit')").fetchone()
        number, unit = text.split()
        return float(number) * {"GiB": 1024, "MiB": 1}[unit]

    # DuckDB shows tenths of a GiB
    assert limit(4) == pytest.approx(limit(1) / 4, rel=0.05)
