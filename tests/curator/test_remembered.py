"""Answers kept in memory, and prices kept until the question is asked: nothing changes but how long it takes."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import OWNER, Answer, Bars, Cost, Curator, Terms
from dither.curator.answers.in_memory_cache import MOST_ANSWERS, Memory, delivered
from dither.errors import Failed, OutOfBudget, Refused
from dither.ledger import Account, Amount, EntryKind

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def counting(number):
    return f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number}"


@pytest.fixture
def on_disk(policy_of, tmp_path):
    def make(**settings):
        policy = policy_of(**settings)
        source = dataclasses.replace(policy.source, ledger=tmp_path / "l", ledger_head=tmp_path / "h")
        return Curator.open(dataclasses.replace(policy, source=source))

    return make


# ---------------------------------------------------------------- answers


def test_what_was_delivered_is_remembered_as_free(opened):
    made = opened()
    assert made.curator.analyst("ana").remembered(COUNTS, Terms.of(epsilon="1/2")) is None
    first = made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    runs, entries = made.engine.runs, len(list(made.ledger.entries()))
    for epsilon in ("1/2", 0.5, Fraction(1, 2), "0.50"):
        again = made.curator.analyst("ana").remembered(COUNTS, Terms.of(epsilon=epsilon, weights={}, confidence=0.95))
        assert again.table is first.table
        assert str(again.bars["n"]) == str(first.bars["n"])
        assert (again.receipt, again.notes, again.confidence) == (first.receipt, first.notes, first.confidence)
        assert (again.cost.charged, again.cost.epsilon) == (False, first.cost.epsilon)
    assert first.cost.charged
    assert (made.engine.runs, len(list(made.ledger.entries()))) == (runs, entries)


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (COUNTS + " ", {"epsilon": "1/2", "analyst": "ana"}),
        (COUNTS, {"epsilon": "1/3", "analyst": "ana"}),
        # a float of another value, though Python takes the two for equal
        (COUNTS, {"epsilon": Fraction(0.1), "analyst": "ana"}),
        (COUNTS, {"epsilon": "1/2", "analyst": "bob"}),
        (COUNTS, {"epsilon": "1/2"}),
        (COUNTS, {"epsilon": "1/2", "analyst": "ana", "confidence": "1/2"}),
        (COUNTS, {"epsilon": "1/2", "analyst": "ana", "weights": {"n": 2}}),
        (COUNTS, {"error": 100, "analyst": "ana"}),
        (COUNTS, {"analyst": "ana"}),
    ],
)
def test_anything_else_is_not_remembered(opened, sql, options):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    made.curator.sql(COUNTS, epsilon=0.1, analyst="ana")
    analyst = options.pop("analyst", OWNER)
    assert made.curator.analyst(analyst).remembered(sql, Terms.of(**options)) is None


def test_what_is_left_is_fresh(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    made.curator.sql(counting(1), epsilon="1/4", analyst="bob")
    left = str(made.curator.budget("bob")[0])
    assert made.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")).cost.left == left


def test_what_is_left_is_fresh_though_others_charge_and_grant(on_disk):
    with on_disk() as one, on_disk() as two:
        one.sql(COUNTS, epsilon="1/10", analyst="bob")
        before = one.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/10")).cost.left
        assert before == one.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/10")).cost.left
        two.sql(counting(1), epsilon="1/10", analyst="bob")
        after = one.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/10")).cost.left
        assert after == str(two.budget("bob")[0]) != before
        two.decide(two.request_budget("bob", epsilon=1, why="").number, approve=True)
        assert "of 1.5" in one.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/10")).cost.left


def test_nothing_is_remembered_where_times_are_rounded_or_nothing_was_delivered(opened):
    slow = opened(more="round_answer_time_up_to = 0.01")
    slow.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    assert slow.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")) is None
    made = opened()
    made.engine.fails_with = RuntimeError("no")
    with pytest.raises(Failed):
        made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    assert made.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")) is None
    with pytest.raises(Refused):
        made.curator.sql("SELECT 1", epsilon="1/4", analyst="bob")
    made.curator.sql(f"EXPLAIN PRIVACY {COUNTS}", epsilon="1/4", analyst="bob")
    assert len(made.curator._vault.memory) == 0


def test_changed_data_and_a_closed_curator_are_not_answered_from_memory(opened, monkeypatch):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    with monkeypatch.context() as changed:
        changed.setattr(made.engine, "version", lambda: "another", raising=False)
        assert made.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")) is None
    assert made.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")) is not None
    made.curator.close()
    assert made.curator.analyst("bob").remembered(COUNTS, Terms.of(epsilon="1/4")) is None


def test_who_changes_their_answer_changes_nobody_else_s(opened):
    made = opened()
    first = made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    kept = first.bars["n"].low.copy()
    first.bars["n"].low[:] = 0
    first.bars.clear()
    again = made.curator.analyst("ana").remembered(COUNTS, Terms.of(epsilon="1/2"))
    assert again.bars["n"].low.tolist() == kept.tolist()
    with pytest.raises(ValueError, match="read-only"):
        again.bars["n"].low[:] = 0


def answer_of(size):
    ends = np.zeros(size)
    return Answer(
        table=pa.table({"n": pa.array(np.zeros(size))}),
        bars={"n": Bars(low=ends, high=ends, text="")},
        confidence=0.95,
        receipt=None,
        cost=Cost(epsilon=1.0, delta=0.0, charged=True, left=""),
    )


def test_memory_is_bounded_by_number_and_by_size():
    memory = delivered(answers=3, room=10**6)
    for place in range(5):
        memory.keep("ana", place, answer_of(10))
        assert memory.get("ana", 2 if place > 2 else place) is not None
    assert [memory.get("ana", place) is None for place in range(5)] == [True, True, False, False, False]
    # three quarters of the bytes in three answers, then two more
    large = delivered(answers=100, room=10**6)
    for place in range(5):
        large.keep("ana", place, answer_of(10_000))
    assert [large.get("ana", place) is None for place in range(5)] == [True, False, False, False, False]
    large.keep("ana", "too large", answer_of(20_000))
    assert large.get("ana", "too large") is None
    large.keep("ana", 4, answer_of(10))
    large.keep("ana", 5, answer_of(9_000))
    assert [large.get("ana", place) is None for place in range(1, 6)] == [False] * 5
    large.forget()
    assert len(large) == 0
    # ordinary answers fill it soon, and take little
    many = delivered()
    for place in range(5000):
        many.keep("ana", place, answer_of(3))
    assert len(many) == MOST_ANSWERS
    assert many.bytes < 3 * 2**20


# ---------------------------------------------------------------- prices


SAMPLES = (
    COUNTS,
    f"{COUNTS} ORDER BY n DESC LIMIT 2",
    "SELECT AVG(amount) AS m, SUM(pieces) AS s FROM orders",
    "SELECT MEDIAN(amount) AS m, MODE(city) AS c FROM orders",
    "SELECT AVG(rating) AS m FROM orders",
    "SELECT item, COUNT(*) AS n FROM orders GROUP BY item",
    "SELECT SUM(pieces) / COUNT(*) AS r FROM orders HAVING COUNT(*) > 3",
    f"EXPLAIN PRIVACY {COUNTS}",
)


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_prices_that_were_kept_are_those_made_anew(opened, delta, monkeypatch):
    made = opened(delta=delta, more="default_epsilon = 0.3")
    fresh = opened(delta=delta, more="default_epsilon = 0.3", ledger=made.ledger)
    monkeypatch.setattr(
        fresh.curator._vault.pricing, "prepare", lambda *asked, again=None: fresh_price(fresh, *asked, again)
    )
    for sql in SAMPLES:
        if delta == "0" and "item" in sql:
            continue
        for options in ({}, {"epsilon": "1/5"}, {"epsilon": "1/5", "confidence": "1/2"}):
            kept = [made.curator.price(sql, analyst="bob", **options) for _ in range(3)]
            anew = fresh.curator.price(sql, analyst="bob", **options)
            assert kept[0].priced is kept[2].priced
            for quote in kept:
                assert str(quote) == str(anew)
                assert (quote.key, quote.schema, quote.more, quote.share) == (
                    anew.key, anew.schema, anew.more, anew.share,
                )  # fmt: skip


def fresh_price(made, *asked):
    made.curator._vault.pricing._bound.forget()
    return made.curator._vault.pricing._prepared(*asked)[0]


def test_a_kept_price_speaks_of_the_budget_as_it_is_now(opened):
    made = opened(delta="0")
    quotes = [made.curator.price(counting(1), epsilon="1/4", analyst="bob")]
    made.curator.sql(counting(0), epsilon="1/4", analyst="bob")
    quotes.append(made.curator.price(counting(1), epsilon="1/4", analyst="bob"))
    made.curator.sql(counting(1), epsilon="1/4", analyst="bob")
    quotes.append(made.curator.price(counting(1), epsilon="1/4", analyst="bob"))
    assert [(q.more, q.share, q.free, q.fits) for q in quotes] == [
        (2, 0.5, False, True),
        (1, 0.5, False, True),
        (0, 0.0, True, True),
    ]
    assert made.curator.price(counting(2), epsilon="1/4", analyst="bob").fits is False


def test_more_counts_both_parts_of_a_budget(opened):
    made = opened(more="[analysts.eve]\nepsilon_budget = 5\ndelta_budget = 2.5e-8")
    quote = made.curator.price(SAMPLES[5], epsilon="1/100", analyst="eve")
    amount = Amount.of(quote.priced.loss, made.ledger.currency)
    limit = made.curator._vault.accounts.limits()[Account(("shop", "eve"))]
    assert quote.more == limit.delta // amount.delta == 2 < limit.main // amount.main
    assert quote.share == amount.delta / limit.delta
    anybody = opened(more='analysts = "any"')
    loose = anybody.curator.price(COUNTS, epsilon=1, analyst="zoe")
    assert (loose.more, loose.share) == (None, None)
    assert anybody.curator.price(COUNTS, epsilon=1).more is not None


def test_kept_results_are_bounded_and_errors_are_not_kept():
    kept, made = Memory(2), []

    def make(value):
        made.append(value)
        return value

    for name in (1, 2, 1, 3, 1, 2):
        assert kept.made("ana", name, lambda name=name: make(name)) == name
    assert made == [1, 2, 3, 2]
    with pytest.raises(ZeroDivisionError):
        kept.made("ana", "x", lambda: 1 // 0)
    assert kept.made("ana", "x", lambda: make("x")) == "x"


# ---------------------------------------------------------------- many at once


def test_many_threads_at_once_leave_exact_balances(on_disk):
    with on_disk(delta="0", budget="100", most="100") as curator:
        problems, asked = [], []
        begin = threading.Barrier(8)

        def work(place):
            choose = Random(place)
            name = ("ana", "bob")[place % 2]
            begin.wait()
            for _ in range(12):
                number = choose.randrange(6)
                act = choose.choice(["sql", "sql", "price", "answers", "budget", "remembered", "again", "history"])
                try:
                    if act == "sql":
                        answer = curator.sql(counting(number), epsilon="1/20", analyst=name)
                        asked.append((name, number, answer.table.to_pylist()[0]["n"]))
                    elif act == "price":
                        curator.price(counting(number), epsilon="1/20", analyst=name)
                    elif act == "answers":
                        assert all(item.who == name for item in curator.answers(name).items)
                    elif act == "budget":
                        curator.budget(name)
                    elif act == "remembered":
                        found = curator.analyst(name).remembered(counting(number), Terms.of(epsilon="1/20"))
                        if found is not None:
                            asked.append((name, number, found.table.to_pylist()[0]["n"]))
                    elif act == "again":
                        for item in curator.answers(name, count=1).items:
                            assert not curator.answer(item.number, analyst=name).cost.charged
                    else:
                        curator.history(name)
                except OutOfBudget as problem:
                    problems.append(problem)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, place) for place in range(8)]:
                done.result()
        assert problems == []
        # one question has one answer, whoever asked, and each account paid for it once
        answers = {number: n for _, number, n in asked}
        assert all(answers[number] == n for _, number, n in asked)
        price = 10**12 // 20
        paid = {name: {number for who, number, _ in asked if who == name} for name in ("ana", "bob")}
        for name, numbers in paid.items():
            assert curator.ledger.balance(Account(("shop", name))).spent == Amount(price * len(numbers), 0)
        everybody = paid["ana"] | paid["bob"]
        assert curator.ledger.balance(Account(("shop",))).spent == Amount(price * len(everybody), 0)
        receipts = [e for e in curator.ledger.entries() if e.kind in (EntryKind.RESERVE, EntryKind.CHARGE)]
        assert len(receipts) == sum(len(numbers) for numbers in paid.values())
        curator.verify()
