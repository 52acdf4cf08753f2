"""The rules of payment, with exact values, and what threads share."""

import hashlib
import threading
from fractions import Fraction

import pytest

from dither.errors import (
    IncompatibleLosses,
    InvalidParameter,
    LedgerBusy,
    LedgerError,
    LedgerMismatch,
    OutOfBudget,
)
from dither.ledger import Account, Amount, Currency, EntryKind, Limit, MemoryLedger, SqliteLedger
from dither.privacy import Adjacency, ApproximateLoss, PureLoss, ZcdpLoss

SHOP = Account(("shop",))
ANA, BOB = Account(("shop", "ana")), Account(("shop", "bob"))
EVE = Account(("shop", "team", "eve"))


def key(question):
    return hashlib.sha256(str(question).encode()).hexdigest()


@pytest.fixture
def ledger():
    with MemoryLedger() as opened:
        opened.set_limits({SHOP: Limit.pure(1)})
        yield opened


@pytest.fixture
def on_disk(tmp_path):
    with SqliteLedger.open(
        tmp_path / "ledger.db",
        currency=Currency.PURE,
        adjacency=Adjacency.ADD_REMOVE,
        unit="each row",
        dataset="shop",
        head=tmp_path / "head",
    ) as opened:
        opened.set_limits({SHOP: Limit.pure(1)})
        yield opened


def ask(ledger, question, account=ANA, epsilon="1/4", timeout=10.0):
    return ledger.reserve(key=key(question), account=account, loss=PureLoss(epsilon), note={}, timeout=timeout)


def spent(ledger):
    return {str(b.account): Fraction(b.spent.main, 10**12) for b in ledger.balances()}


# ------------------------------------------------------------------ payment


def test_every_account_on_the_path_pays(ledger):
    reservation = ask(ledger, 1, EVE)
    assert reservation.charged == Amount(250_000_000_000, 0)
    assert spent(ledger) == {"shop": Fraction(1, 4), "shop/team": Fraction(1, 4), "shop/team/eve": Fraction(1, 4)}
    assert ledger.record(reservation, b"\x00bytes").answer == b"\x00bytes"
    # another member of the team: team and dataset have paid
    other = ask(ledger, 1, Account(("shop", "team", "zoe")))
    assert other.charged == Amount(250_000_000_000, 0)
    assert spent(ledger)["shop/team"] == Fraction(1, 4)
    # another team: the dataset has paid, the team hasn't
    ask(ledger, 1, Account(("shop", "second", "max")))
    assert spent(ledger)["shop/second"] == Fraction(1, 4)
    assert spent(ledger)["shop"] == Fraction(1, 4)
    # the team itself has paid, through its member
    assert ask(ledger, 1, Account(("shop", "team"))).charged == Amount()


def test_a_failed_question_is_redeemed_by_another_analyst_who_pays_for_himself(ledger):
    ledger.fail(ask(ledger, 1, ANA), "cause")
    redeemed = ask(ledger, 1, BOB)
    assert redeemed.answer is None
    assert redeemed.receipt.account == BOB
    assert spent(ledger) == {"shop": Fraction(1, 4), "shop/ana": Fraction(1, 4), "shop/bob": Fraction(1, 4)}
    ledger.record(redeemed, b"x")
    assert ask(ledger, 1, ANA).charged == Amount()
    kinds = [entry.kind for entry in ledger.entries()]
    assert kinds[2:] == [EntryKind.RESERVE, EntryKind.FAILED, EntryKind.CHARGE, EntryKind.REDEEM, EntryKind.ANSWER]


def test_redeeming_at_a_higher_price_is_refused(ledger):
    ledger.fail(ask(ledger, 1), "cause")
    before = list(ledger.entries())
    with pytest.raises(LedgerError, match="lower price"):
        ask(ledger, 1, epsilon="1/2")
    assert list(ledger.entries()) == before
    assert ask(ledger, 1, epsilon="1/5").charged == Amount()


def test_the_price_of_an_answer_is_that_of_its_reservation(ledger):
    ledger.record(ask(ledger, 1), b"x")
    other = ask(ledger, 1, BOB, epsilon="1/100")
    assert other.receipt.loss == PureLoss("1/4")
    assert other.charged == Amount(250_000_000_000, 0)


def test_a_budget_is_spent_to_the_last_unit(ledger):
    third = PureLoss("1/3")
    ledger.set_limits({SHOP: Limit(3 * 333_333_333_334, 0, Currency.PURE)})
    for question in range(3):
        ledger.reserve(key=key(question), account=ANA, loss=third, note={})
    with pytest.raises(OutOfBudget):
        ledger.reserve(key=key(3), account=ANA, loss=PureLoss("1e-12"), note={})
    ledger.reserve(key=key(4), account=ANA, loss=PureLoss(0), note={})


def test_three_thirds_dont_fit_in_one(ledger):
    for question in range(2):
        ask(ledger, question, epsilon="1/3")
    with pytest.raises(OutOfBudget):
        ask(ledger, 2, epsilon="1/3")


def test_delta_is_a_budget_of_its_own():
    with MemoryLedger(currency=Currency.ZCDP) as ledger:
        ledger.set_limits({SHOP: Limit.zcdp(100, "1e-6")})
        selection = ApproximateLoss("1/10", "6e-7")
        ledger.reserve(key=key(1), account=ANA, loss=selection, note={})
        with pytest.raises(OutOfBudget, match="doesn't allow"):
            ledger.reserve(key=key(2), account=ANA, loss=selection, note={})
        ledger.reserve(key=key(3), account=ANA, loss=ZcdpLoss(1), note={})


def test_a_refusal_tells_the_asking_account_its_own_sums_only(ledger):
    ledger.set_limits({ANA: Limit.pure("0.3")})
    ask(ledger, 1, BOB, epsilon="0.55")
    with pytest.raises(OutOfBudget) as refused:
        ask(ledger, 2, epsilon="0.4")
    assert str(refused.value) == (
        "the budget of shop/ana doesn't allow this: it costs ε = 0.4 and ε = 0.3 is left; nothing was spent"
    )
    ledger.set_limits({ANA: Limit.pure(9)})
    with pytest.raises(OutOfBudget) as refused:
        ask(ledger, 2, epsilon="0.5")
    assert str(refused.value) == "the budget of shop doesn't allow this; nothing was spent"


def test_a_dataset_without_a_limit_answers_nothing():
    with MemoryLedger() as ledger:
        ledger.set_limits({ANA: Limit.pure(1)})
        with pytest.raises(LedgerError, match="no limit"):
            ask(ledger, 1)
        assert spent(ledger) == {"shop/ana": 0}


def test_refusals_change_nothing_on_disk(on_disk):
    ledger = on_disk
    ledger.set_limits({BOB: Limit.pure("1/8")})
    ledger.record(ask(ledger, 1), b"x")
    waiting = ask(ledger, 2)

    def dump():
        return list(ledger._db.iterdump())

    before = dump()
    refusals = [
        (OutOfBudget, lambda: ask(ledger, 3, epsilon=2)),
        (OutOfBudget, lambda: ask(ledger, 1, BOB)),
        (LedgerBusy, lambda: ask(ledger, 2, timeout=0)),
        (LedgerError, lambda: ledger.record(ask(ledger, 1), b"y")),
        (IncompatibleLosses, lambda: ledger.reserve(key=key(5), account=ANA, loss=ZcdpLoss(1), note={})),
        (
            IncompatibleLosses,
            lambda: ledger.reserve(key=key(5), account=ANA, loss=PureLoss(0, Adjacency.REPLACE), note={}),
        ),
        (LedgerMismatch, lambda: ledger.set_limits({SHOP: Limit.zcdp(1)})),
        (InvalidParameter, lambda: ledger.set_limits({"shop": Limit.pure(1)})),
        (InvalidParameter, lambda: ledger.reserve(key="no digest", account=ANA, loss=PureLoss(0), note={})),
        (InvalidParameter, lambda: ledger.reserve(key=key(5), account="ana", loss=PureLoss(0), note={})),
        (InvalidParameter, lambda: ledger.reserve(key=key(5), account=ANA, loss=0.5, note={})),
        (InvalidParameter, lambda: ledger.reserve(key=key(5), account=ANA, loss=PureLoss(0), note={"x": float("nan")})),
        (InvalidParameter, lambda: ledger.reserve(key=key(5), account=ANA, loss=PureLoss(0), note={"x": object()})),
        (InvalidParameter, lambda: ledger.reserve(key=key(5), account=ANA, loss=PureLoss(0), note={1: "x"})),
        (InvalidParameter, lambda: ledger.record(waiting, "text")),
        (LedgerError, lambda: ledger.record(ledger.reserve(key=key(1), account=ANA, loss=PureLoss(0), note={}), b"")),
    ]
    for kind, act in refusals:
        with pytest.raises(kind):
            act()
        assert dump() == before
    ledger.set_limits({SHOP: Limit.pure(1)})
    assert ask(ledger, 1).charged == Amount()
    assert dump() == before


class Shrinks(PureLoss, kind="shrinks_for_the_ledger_tests"):
    """Reads back dearer than it was priced."""

    __slots__ = ()

    def parameters(self):
        return {"epsilon": str(2 * self.exact_epsilon)}


def test_a_loss_that_reads_back_dearer_is_refused(ledger):
    with pytest.raises(InvalidParameter, match="read back"):
        ledger.reserve(key=key(1), account=ANA, loss=Shrinks("1/4"), note={})
    assert spent(ledger) == {"shop": 0}


def test_receipts_and_the_log_tell_the_story(ledger):
    asked = ledger.reserve(key=key(1), account=ANA, loss=PureLoss("1/4"), note={"sql": "SELECT ü"})
    ledger.fail(asked, "out of memory")
    again = ask(ledger, 1)
    ledger.record(again, b"x")
    assert again.receipt == asked.receipt
    assert ledger.find(key(1)) == ledger.find(key(1), ANA) == asked.receipt
    assert ledger.find(key(1), BOB) is None
    assert ledger.find(key(2)) is None
    story = list(ledger.entries(number=asked.receipt.number))
    assert [entry.kind for entry in story] == [EntryKind.RESERVE, EntryKind.FAILED, EntryKind.REDEEM, EntryKind.ANSWER]
    assert story[0].body["note"] == {"sql": "SELECT ü"}
    assert story[1].body["cause"] == "out of memory"
    assert story[0].hash == asked.receipt.hash
    assert len(list(ledger.entries(after=2))) == 4
    assert ledger.verify().entries == 6


def test_entries_come_page_by_page(ledger):
    ledger.set_limits({SHOP: Limit.pure(1000)})
    for question in range(300):
        ledger.record(ask(ledger, question), b"x")
    assert [entry.seq for entry in ledger.entries()] == list(range(1, 604))


def test_clocks_dont_matter(ledger, monkeypatch):
    times = iter(["2030-01-01T00:00:00.000Z", "1999-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z"] * 10)
    monkeypatch.setattr("dither.ledger.store.charge_or_replay.now", lambda: next(times))
    for question in range(3):
        ledger.record(ask(ledger, question), b"x")
    entries = list(ledger.entries())
    assert [entry.seq for entry in entries] == list(range(1, 9))
    assert entries[3].at < entries[2].at
    assert ledger.verify().entries == 8


def test_a_closed_ledger_says_so(ledger):
    ledger.close()
    ledger.close()
    for act in (ledger.balances, ledger.verify, lambda: ask(ledger, 1), lambda: list(ledger.entries())):
        with pytest.raises(LedgerError, match="closed"):
            act()


# ------------------------------------------------------------------ threads


def test_a_thousand_requests_of_threads_share_commits(on_disk):
    ledger = on_disk
    ledger.set_limits({SHOP: Limit.pure("2.5")})  # ten questions
    answered, refused, problems = [], [], []

    def work(worker):
        for request in range(50):
            try:
                answered.append(ledger.record(ask(ledger, (worker, request)), b"x").answer)
            except OutOfBudget:
                refused.append(request)
            except Exception as problem:  # noqa: BLE001 told below
                problems.append(problem)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert (len(answered), len(refused)) == (10, 990)
    assert spent(ledger)["shop"] == Fraction(5, 2)
    ledger.verify()


def test_group_commit_needs_fewer_commits_than_requests(on_disk):
    ledger = on_disk
    ledger.set_limits({SHOP: Limit.pure(1000)})
    before = ledger.commits
    begin = threading.Barrier(16)

    def work(worker):
        for request in range(10):
            begin.wait()
            ledger.record(ask(ledger, (worker, request)), b"x")

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(ledger)["shop"] == 40
    assert ledger.commits - before < 320
    ledger.verify()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_rolls_back_and_leaves_the_ledger_usable(on_disk, interrupt):
    before = list(on_disk._db.iterdump())

    def work():
        on_disk._books.set_limits({ANA: Limit.pure(1)})
        raise interrupt

    with pytest.raises(interrupt):
        on_disk._writer.run(work)
    assert list(on_disk._db.iterdump()) == before
    assert on_disk.record(ask(on_disk, 1), b"x").answer == b"x"


def test_whoever_is_refused_half_way_leaves_nothing(on_disk):
    before = list(on_disk._db.iterdump())

    def work():
        on_disk._books.set_limits({ANA: Limit.pure(1)})
        raise OutOfBudget

    with pytest.raises(OutOfBudget):
        on_disk._writer.run(work)
    assert list(on_disk._db.iterdump()) == before


def test_an_interrupt_after_the_commit_costs_nothing_more(on_disk, monkeypatch):
    """Nobody was told, so nobody may go on; what was charged is redeemed by asking again, at once."""

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(on_disk._guard, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask(on_disk, 1)
    assert on_disk.head.read().seq == 2
    redeemed = ask(on_disk, 1, timeout=0)
    assert (redeemed.answer, redeemed.charged) == (None, Amount())
    assert spent(on_disk)["shop"] == Fraction(1, 4)
    assert on_disk.record(redeemed, b"x").answer == b"x"
    assert on_disk.head.read().seq == len(list(on_disk.entries()))
    on_disk.verify()


def test_one_bad_request_doesnt_spoil_the_batch(ledger):
    """Savepoints: in one transaction, who is refused loses nothing for who isn't."""
    held = threading.Event()
    inside = threading.Event()

    def hold():
        inside.set()
        held.wait(10)

    holder = threading.Thread(target=lambda: ledger._writer.run(hold))
    holder.start()
    inside.wait(10)
    outcomes = {}

    def work(question, epsilon):
        try:
            outcomes[question] = ask(ledger, question, epsilon=epsilon).charged.main
        except OutOfBudget:
            outcomes[question] = None

    threads = [threading.Thread(target=work, args=(q, e)) for q, e in ((1, "1/4"), (2, 5), (3, "1/2"), (4, 7))]
    for thread in threads:
        thread.start()
    while len(ledger._writer._queue) < 4:
        pass
    before = ledger.commits
    held.set()
    for thread in [holder, *threads]:
        thread.join()
    assert outcomes == {1: 250_000_000_000, 2: None, 3: 500_000_000_000, 4: None}
    assert ledger.commits - before == 1
    assert spent(ledger) == {"shop": Fraction(3, 4), "shop/ana": Fraction(3, 4)}
    ledger.verify()
