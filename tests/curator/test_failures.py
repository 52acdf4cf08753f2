"""What goes wrong after the charge, at once, or before anything is open: nothing is lost and nothing is told."""

import logging
import threading

import numpy as np
import pytest

from dither.curator import Curator
from dither.engines import DuckDBEngine
from dither.engines.base import EngineFailure
from dither.errors import (
    DitherError,
    Failed,
    IncompatibleLosses,
    InvalidParameter,
    LedgerMismatch,
    OutOfBudget,
    Refused,
    SourceError,
)
from dither.ledger import Account, Amount, Currency, MemoryLedger

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def spent(made, *path):
    found = made.ledger.balance(Account(path))
    return found.spent if found else Amount()


def causes(made):
    return [entry.body["cause"] for entry in made.ledger.entries() if entry.kind.value == "failed"]


# ---------------------------------------------------------------- failures after the charge


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (EngineFailure("Conversion Error: secret-value"), "Conversion Error: secret-value"),
        (ZeroDivisionError("secret-value"), "ZeroDivisionError: secret-value"),
        (MemoryError("secret-value"), "MemoryError: secret-value"),
    ],
)
def test_a_failure_keeps_the_receipt_tells_the_owner_and_is_redeemed(opened, problem, cause, caplog):
    made = opened()
    made.engine.fails_with = problem
    with caplog.at_level(logging.CRITICAL, "dither.curator"), pytest.raises(Failed) as failure:
        made.curator.sql(COUNTS, epsilon="1/2")
    assert "secret-value" not in str(failure.value)
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__
    assert causes(made) == [cause]
    paid = spent(made, "shop")
    assert paid.main > 0
    quote = made.curator.price(COUNTS, epsilon="1/2")
    assert quote.free
    made.engine.fails_with = None
    answer = made.curator.sql(COUNTS, epsilon="1/2")
    assert answer.receipt.number == failure.value.receipt
    assert not answer.cost.charged
    assert spent(made, "shop") == paid
    assert made.ledger.verify().balances == made.ledger.balances()


def test_an_interrupted_question_stays_paid_and_can_be_asked_again(opened):
    made = opened()
    made.engine.fails_with = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        made.curator.sql(COUNTS, epsilon="1/2")
    assert causes(made) == ["interrupted"]
    paid = spent(made, "shop")
    made.engine.fails_with = None
    assert len(made.curator.sql(COUNTS, epsilon="1/2")) == 3
    assert spent(made, "shop") == paid


def test_one_question_asked_by_many_threads_is_run_once(opened):
    made = opened()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(made.curator.sql(COUNTS, epsilon="1/2"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.engine.runs == 1
    assert len({str(answer.to_pylist()) for answer in answers}) == 1
    assert len(answers) == 8
    assert sum(answer.cost.charged for answer in answers) == 1


def test_many_threads_never_spend_more_than_the_budget(opened):
    made = opened(budget="1", delta="0", most="1")
    outcomes = []

    def ask(number):
        try:
            made.curator.sql(f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number}", epsilon="1/5")
            outcomes.append("answer")
        except OutOfBudget:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(-12, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("answer") == 5
    assert outcomes.count("refused") == 19
    assert spent(made, "shop").main == 10**12


# ---------------------------------------------------------------- opening, closing, time


def test_opening_closes_what_it_opened_when_the_rest_fails(policy_of, tmp_path, monkeypatch):
    closed = []
    real = DuckDBEngine.close
    monkeypatch.setattr(DuckDBEngine, "close", lambda self: (closed.append(True), real(self))[1])
    policy = policy_of()
    other = MemoryLedger(currency=Currency.PURE, dataset="shop", unit="each id")
    with pytest.raises((LedgerMismatch, InvalidParameter, IncompatibleLosses)):
        Curator.open(policy, ledger=other)
    assert closed == [True]
    other.close()


def test_a_missing_database_is_said_and_leaves_no_ledger(policy_of, tmp_path):
    with pytest.raises(SourceError, match="does not exist"):
        Curator.open(policy_of(directory=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_closed_curator_answers_nothing(policy_of, ledger_of):
    policy = policy_of()
    with Curator.open(policy, ledger=ledger_of(policy)) as curator:
        curator.sql(COUNTS, epsilon=1)
    with pytest.raises(DitherError):
        curator.sql(COUNTS, epsilon=1)


def test_answers_leave_at_multiples_of_the_step(opened, monkeypatch):
    made = opened(more="round_answer_time_up_to = 0.2")
    curator = made.curator
    # a clock that passes by itself, a little whenever it is looked at
    now = [0.0]

    def look():
        now[0] += 0.013
        return now[0]

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr("dither.curator.answer_time.time.monotonic", look)
    monkeypatch.setattr("dither.curator.answer_time.time.sleep", sleep)

    def taken(work):
        started = now[0]
        work()
        return now[0] - started

    def refused():
        with pytest.raises(Refused):
            curator.sql("SELECT * FROM orders", epsilon=1)

    for work in (lambda: curator.sql(COUNTS, epsilon=1), lambda: curator.sql(COUNTS, epsilon=1), refused):
        seconds = taken(work)
        assert seconds >= 0.2
        # the look at the clock that begins an answer isn't part of it
        steps = (seconds - 0.013) / 0.2
        assert steps == pytest.approx(round(steps), abs=1e-9)


def test_a_statistical_query_is_within_its_tolerance_and_shares_the_count(opened):
    made = opened()
    exact = np.asarray(made.engine.rows("orders", ["amount"], rows=4, salt=bytes(8)).column("amount")) > 30
    made.engine.runs = 0
    found = made.curator.statistical_query(
        "orders", "amount > 30", tolerance=0.05, confidence=1 - 1e-9, count_epsilon=2
    )
    assert abs(found.value - exact.mean()) <= 0.05
    assert found.confidence == 1 - 1e-9
    assert made.engine.runs == 2
    made.curator.statistical_query("orders", "amount > 31", tolerance=0.05, confidence=1 - 1e-9, count_epsilon=2)
    assert made.engine.runs == 3
    with pytest.raises(InvalidParameter, match="too few"):
        made.curator.statistical_query("orders", "amount > 30", tolerance="0.00001")
    with pytest.raises(InvalidParameter, match="share"):
        made.curator.statistical_query("orders", "amount > 30", tolerance=1)
    with pytest.raises(Refused):
        made.curator.statistical_query("orders", "note = 'x'", tolerance="0.1")
