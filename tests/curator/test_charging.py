"""The ways in which a question can end: with a record, a receipt or an interrupt, and never with a stuck claim."""

import io
import itertools
import logging
import sqlite3
import subprocess
import sys
import textwrap
import threading
import traceback

import duckdb
import pytest

from dither.curator import Curator
from dither.curator.epsilon_to_currency import Exchange
from dither.engines.base import EngineFailure
from dither.engines.duckdb import noisy_rows
from dither.errors import DitherError, Failed, LedgerBusy, LedgerError, Refused, SourceError
from dither.ledger import Account, Amount, SqliteLedger
from dither.privacy import PureLoss

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def spent(made, *path):
    found = made.ledger.balance(Account(path))
    return found.spent if found else Amount()


def causes(made):
    return [entry.body["cause"] for entry in made.ledger.entries() if entry.kind.value == "failed"]


def kept(policy, directory, **options):
    """A ledger on disk for a policy."""
    return SqliteLedger.open(
        directory / "shop.ledger",
        currency=Exchange(policy.budget.delta_budget).currency,
        adjacency=policy.schema.adjacency,
        unit=policy.unit_level(),
        dataset="shop",
        head=directory / "shop.head",
        **options,
    )


class Stop(BaseException):
    """What libraries for timeouts and tasks raise."""


# ---------------------------------------------------------------- interrupts


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Stop])
@pytest.mark.parametrize("redeemed", [False, True])
def test_an_interrupt_as_the_reservation_returns_leaves_no_claim(opened, monkeypatch, stop, redeemed):
    made = opened()
    if redeemed:
        made.engine.fails_with = EngineFailure("first")
        with pytest.raises(Failed):
            made.curator.sql(COUNTS, epsilon="1/2")
        made.engine.fails_with = None
    real = made.ledger.reserve

    def interrupted(**asked):
        real(**asked)
        raise stop

    monkeypatch.setattr(made.ledger, "reserve", interrupted)
    with pytest.raises(stop):
        made.curator.sql(COUNTS, epsilon="1/2")
    monkeypatch.setattr(made.ledger, "reserve", lambda **asked: real(**asked, timeout=1))
    assert not made.curator.sql(COUNTS, epsilon="1/2").cost.charged


def test_an_interrupt_takes_no_claim_from_another_thread(opened, monkeypatch):
    made = opened()
    running, go_on, answers = threading.Event(), threading.Event(), []
    real_run, real_reserve = made.engine.run, made.ledger.reserve

    def slow(measurement, *, salt):
        running.set()
        assert go_on.wait(30)
        return real_run(measurement, salt=salt)

    made.engine.run = slow
    worker = threading.Thread(target=lambda: answers.append(made.curator.sql(COUNTS, epsilon="1/2")))
    worker.start()
    assert running.wait(30)

    def interrupted(**asked):
        with pytest.raises(LedgerBusy):
            real_reserve(**asked, timeout=0)
        raise KeyboardInterrupt

    monkeypatch.setattr(made.ledger, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.curator.sql(COUNTS, epsilon="1/2")
    go_on.set()
    worker.join(30)
    assert len(answers) == 1


@pytest.mark.parametrize("stop", [Stop, SystemExit, KeyboardInterrupt])
def test_whatever_stops_a_question_leaves_it_to_be_redeemed(opened, stop):
    made = opened()
    made.engine.fails_with = stop()
    with pytest.raises(stop):
        made.curator.sql(COUNTS, epsilon="1/2")
    assert len(causes(made)) == 1
    made.engine.fails_with = None
    assert not made.curator.sql(COUNTS, epsilon="1/2").cost.charged


def test_an_interrupt_stays_one_when_the_ledger_can_not_be_written(opened, monkeypatch):
    made = opened()
    made.engine.fails_with = KeyboardInterrupt()

    def broken(*_):
        raise LedgerError("the disk is full; nothing was charged")

    monkeypatch.setattr(made.ledger, "fail", broken)
    with pytest.raises(KeyboardInterrupt):
        made.curator.sql(COUNTS, epsilon="1/2")


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("Query interrupted"),
        duckdb.InvalidInputException("reading the object registered as 'released' failed: KeyboardInterrupt: "),
    ],
)
def test_an_interrupt_of_released_tables_is_an_interrupt(monkeypatch, problem):
    import pyarrow as pa

    from dither.query.kinds import Column, Kind

    class Interrupted:
        def register(self, *_): ...

        def close(self): ...

        def sql(self, _):
            raise problem

    monkeypatch.setattr(noisy_rows, "_connection", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        noisy_rows.compute(pa.table({"x": [1]}), [("y", Column("x", Kind.INTEGER))])


def test_an_interrupt_does_not_wait_for_the_step(opened, monkeypatch):
    made = opened(more="round_answer_time_up_to = 60")
    slept = []
    monkeypatch.setattr("dither.curator.answer_time.time.sleep", slept.append)
    made.curator.sql(COUNTS, epsilon="1/4")
    assert len(slept) == 1
    made.engine.fails_with = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        made.curator.sql(COUNTS, epsilon="1/2")
    assert len(slept) == 1


# ---------------------------------------------------------------- a ledger that can't be written


@pytest.mark.parametrize("lasting", [False, True])
def test_a_ledger_that_is_busy_when_the_answer_is_there(opened, policy_of, tmp_path, lasting):
    policy = policy_of(delta="0")
    book = kept(policy, tmp_path, lock_timeout=0.2)
    made = opened(ledger=book, delta="0")
    real, other = made.engine.run, sqlite3.connect(tmp_path / "shop.ledger", isolation_level=None)

    def run(measurement, *, salt):
        found = real(measurement, salt=salt)
        other.execute("BEGIN IMMEDIATE")
        return found

    made.engine.run = run
    with pytest.raises(Failed) as failure:
        made.curator.sql(COUNTS, epsilon="1/2")
    assert "was charged" in str(failure.value)
    assert "nothing was charged" not in str(failure.value)
    assert failure.value.__context__ is None
    if lasting:
        # whoever asks while the ledger is held is told so, before anything is charged
        with pytest.raises(LedgerBusy, match="charged nothing"):
            made.curator.sql(COUNTS + " HAVING COUNT(*) > 1", epsilon="1/4")
    other.execute("ROLLBACK")
    other.close()
    made.engine.run = real
    answer = made.curator.sql(COUNTS, epsilon="1/2")
    assert answer.receipt.number == failure.value.receipt
    assert not answer.cost.charged


# ---------------------------------------------------------------- nothing about the data escapes


class Telling:
    """A computation whose failure quotes the data."""

    table, columns, rows = "orders", ("amount",), 4

    def loss(self):
        return PureLoss("1/10")

    def key(self):
        return "telling"

    def release(self, table):
        return float("secret-value-of-" + str(table.column("amount")[0].as_py()))


def test_a_failure_tells_nothing_to_its_caller_nor_to_the_log(opened, caplog):
    made = opened()
    with caplog.at_level(logging.DEBUG), pytest.raises(Failed) as failure:
        made.curator.run(Telling())
    assert failure.value.__context__ is None
    assert failure.value.__cause__ is None
    assert "secret-value" not in "".join(traceback.format_exception(failure.value))
    logged = "".join(record.getMessage() + str(record.exc_info) for record in caplog.records)
    assert "ValueError" in logged
    assert failure.value.receipt in logged
    assert "secret-value" not in logged
    assert "secret-value" in causes(made)[0]


def test_nothing_is_printed_where_nobody_set_up_logging():
    script = """
        import logging, dither.curator
        logging.getLogger("dither.curator").error("a failure")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_an_owner_who_sets_up_logging_sees_receipts(opened):
    made, shown = opened(), io.StringIO()
    handler = logging.StreamHandler(shown)
    logging.getLogger("dither").addHandler(handler)
    try:
        made.engine.fails_with = EngineFailure("secret-value")
        with pytest.raises(Failed) as failure:
            made.curator.sql(COUNTS, epsilon="1/2")
    finally:
        logging.getLogger("dither").removeHandler(handler)
    assert failure.value.receipt in shown.getvalue()
    assert "secret-value" not in shown.getvalue()


class FullDisk(io.StringIO):
    def write(self, _text):
        raise OSError(28, "no space left on device")


@pytest.mark.parametrize("cause", [EngineFailure("secret-value"), ValueError("secret-value")])
def test_a_log_that_can_not_be_written_shows_no_data(opened, capfd, cause):
    """Python's logging then prints to stderr what was being handled, with all causes and their texts."""
    made = opened()
    handler = logging.StreamHandler(FullDisk())
    logging.getLogger("dither").addHandler(handler)
    try:
        made.engine.fails_with = cause
        with pytest.raises(Failed):
            made.curator.sql(COUNTS, epsilon="1/2")
    finally:
        logging.getLogger("dither").removeHandler(handler)
    shown = capfd.readouterr().err
    assert "no space left" in shown  # or nothing was tried
    assert "secret-value" not in shown
    assert "secret-value" in causes(made)[0]


# ---------------------------------------------------------------- data that changes while it is open


CSV = """
[source]
files = {{ orders = "orders.csv" }}
name = "shop"
ledger_head = "shop.head"
{version}
[budget]
epsilon_budget = 100
[tables.orders]
private = true
privacy_unit_column = "uid"
max_rows_contributed = 8
[tables.orders.columns]
uid = {{ type = "integer" }}
amount = {{ type = "double", between = [0, 100], step = 1 }}
"""


class Rows:
    """A computation that is never to see changed rows."""

    table, columns, rows = "orders", ("amount",), 4

    def loss(self):
        return PureLoss("1/10")

    def key(self):
        return "rows"

    def release(self, table):
        raise AssertionError("rows of changed data were handed over")


@pytest.mark.parametrize("version", ["", 'version = "1"'], ids=["fingerprint", "stated"])
def test_changed_files_are_noticed_before_the_charge_and_after_the_run(tmp_path, version):
    data = tmp_path / "orders.csv"
    data.write_text("uid,amount\n" + "".join(f"{i % 50},{i % 100}\n" for i in range(500)))
    (tmp_path / "dither.toml").write_text(CSV.format(version=version))
    count = "SELECT COUNT(*) AS n FROM orders"
    with Curator.open(tmp_path / "dither.toml") as curator:
        curator.sql(count, epsilon=1)
        book = curator.ledger
        paid = book.balance(Account(("shop",))).spent
        real = curator._vault.engine.run

        def run(measurement, *, salt):
            found = real(measurement, salt=salt)
            # the columns change places: rows would be charged to the wrong unit
            data.write_text("amount,uid\n" + "".join(f"{i % 100},7\n" for i in range(600)))
            return found

        curator._vault.engine.run = run
        with pytest.raises(Failed):
            curator.sql(count + " WHERE amount < 50", epsilon=1)
        assert [e.kind.value for e in book.entries()].count("answer") == 1
        paid = book.balance(Account(("shop",))).spent
        for ask in (
            lambda: curator.sql(count + " WHERE amount < 60", epsilon=1),
            lambda: curator.sql(count, epsilon=1),
            lambda: curator.run(Rows()),
        ):
            with pytest.raises(Refused, match="the data isn't open") as refused:
                ask()
            assert refused.value.code == "not_open"
        assert book.balance(Account(("shop",))).spent == paid
    with Curator.open(tmp_path / "dither.toml") as curator:
        # one person with 600 rows, of which 8 count; the noise of ε = 50 stays below 20 but for a chance of e^-125
        assert abs(curator.sql(count, epsilon=50).scalar() - 8) < 20


def test_rows_that_change_while_they_are_read_are_not_handed_over(tmp_path):
    data = tmp_path / "orders.csv"
    data.write_text("uid,amount\n1,2\n3,4\n")
    (tmp_path / "dither.toml").write_text(CSV.format(version=""))
    with Curator.open(tmp_path / "dither.toml") as curator:
        real = curator._vault.engine.rows

        def rows(*what, **how):
            found = real(*what, **how)
            data.write_text("uid,amount\n1,2\n3,4\n5,6\n")
            return found

        curator._vault.engine.rows = rows
        with pytest.raises(Failed):
            curator.run(Rows())
        cause = [e.body["cause"] for e in curator.ledger.entries() if e.kind.value == "failed"]
    assert "changed" in cause[0]


# ---------------------------------------------------------------- closing


def test_closing_stops_what_runs_waits_for_it_and_leaves_a_whole_ledger(policy_of, tmp_path):
    policy = policy_of(delta="0")
    book = kept(policy, tmp_path)
    curator = Curator.open(policy, ledger=book)
    outcomes, answered = [], [threading.Event() for _ in range(4)]

    def ask(number):
        for step in itertools.count():
            try:
                curator.sql(f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number + step / 7}", epsilon="0.000001")
            except BaseException as problem:  # noqa: BLE001
                outcomes.append(problem)
                return
            answered[number].set()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for each in answered:
        assert each.wait(300)
    curator.close()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == 4
    assert all(isinstance(problem, Failed | SourceError) for problem in outcomes), outcomes
    with pytest.raises(DitherError):
        curator.sql(COUNTS, epsilon="0.000001")
    curator.close()
    with kept(policy, tmp_path) as again:
        assert again.verify().entries > 2


def test_a_computation_may_close_the_curator_that_runs_it(policy_of, ledger_of):
    policy = policy_of(delta="0")
    curator = Curator.open(policy, ledger=ledger_of(policy))

    class Closing(Rows):
        def release(self, table):
            curator.close()
            return 1

    with pytest.raises(Failed):
        curator.run(Closing())


def test_the_ledger_is_closed_even_if_the_engine_can_not_be(opened, monkeypatch):
    made = opened()

    def broken():
        raise OSError("no")

    monkeypatch.setattr(made.engine, "close", broken, raising=False)
    with pytest.raises(OSError, match="no"):
        made.curator.close()
    with pytest.raises(LedgerError, match="closed"):
        made.ledger.balances()
    monkeypatch.undo()


# ---------------------------------------------------------------- what is left behind


def test_questions_that_ended_are_held_by_nobody(opened):
    """However they end: a server that runs for months sees millions of keys."""
    made = opened()

    def ask(number):
        made.curator.sql(COUNTS, epsilon=f"0.01{number}", analyst="ana")
        with pytest.raises(DitherError):
            made.curator.sql(COUNTS, epsilon=10**6, analyst="ana")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charging = made.curator._vault.charging
    assert (len(charging._claimed), len(made.curator._vault.running._threads)) == (0, 0)
