"""The ledger against a simple model of its rules, and the conformance suite against mutants of that model."""

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dither.checks import check_ledger
from dither.errors import ConformanceFailed, IncompatibleLosses, LedgerBusy, LedgerError, OutOfBudget
from dither.ledger import (
    Account,
    Amount,
    Balance,
    Currency,
    Entry,
    EntryKind,
    Ledger,
    Limit,
    Receipt,
    Reservation,
    SqliteLedger,
    Verified,
)
from dither.privacy import Adjacency, PureLoss, ZcdpLoss
from support.sizes import short_or_full

# ------------------------------------------------------------------ the model


@dataclass
class Asked:
    receipt: Receipt
    claim: int
    owner: int
    state: str = "reserved"
    answer: bytes | None = None
    paid: dict = field(default_factory=dict)


@dataclass
class Store:
    """What would be on disk."""

    limits: dict = field(default_factory=dict)
    spent: dict = field(default_factory=dict)
    asked: dict = field(default_factory=dict)
    entries: list = field(default_factory=list)
    living: set = field(default_factory=set)
    restated: dict = field(default_factory=dict)
    first_delta: dict = field(default_factory=dict)


class SimpleLedger(Ledger):
    """The rules in their plainest form, in dictionaries; each small method is a place for a mutant."""

    currency, adjacency = Currency.PURE, Adjacency.ADD_REMOVE

    def __init__(self, store=None):
        self.store = store or Store()
        self.lock = threading.RLock()
        self.token = object()
        self.store.living.add(self.token)

    def log(self, kind, **body):
        previous = self.store.entries[-1].hash if self.store.entries else "0" * 64
        seq = len(self.store.entries) + 1
        text = json.dumps([seq, kind.value, body], sort_keys=True) + previous
        this = hashlib.sha256(text.encode()).hexdigest()
        self.store.entries.append(Entry(seq=seq, at="", kind=kind, body=body, previous=previous, hash=this))
        return self.store.entries[-1]

    @property
    def sums(self):
        return self.currency.sums

    def bind(self, units, *, rebind=False, note=True):
        raise NotImplementedError

    def set_limits(self, limits):
        with self.lock:
            if any(self.store.limits.get(account) != limit for account, limit in limits.items()):
                for account, limit in limits.items():
                    if self.store.spent.get(account) and self.store.limits.get(account) != limit:
                        self.store.restated[account] = self.store.restated.get(account, 0) + 1
                self.store.limits.update(limits)
                self.log(EntryKind.LIMITS)

    def reserve(self, *, key, account, loss, note, timeout=10.0, counts=None, continues=None):
        if loss.adjacency is not self.adjacency:
            raise IncompatibleLosses
        amount = self.price(loss)
        deadline = time.monotonic() + timeout
        while True:
            with self.lock:
                asked = self.store.asked.get(key)
                if asked is None or not self.at_work(asked):
                    return self.give(key, account, loss, amount, asked)
            if time.monotonic() > deadline:
                raise LedgerBusy
            time.sleep(0.001)

    def at_work(self, asked):
        return asked.state == "reserved" and asked.owner in self.store.living

    def give(self, key, account, loss, amount, asked):
        if asked is None:
            entry = self.charge(EntryKind.RESERVE, key, account, account.lineage, loss, amount)
            receipt = self.receipt_of(entry, key, account, loss, amount)
            asked = Asked(receipt, entry.seq, self.token, paid=dict.fromkeys(account.lineage, receipt))
            self.store.asked[key] = asked
            return Reservation(receipt=receipt, answer=None, replayed=False, charged=amount, claim=entry.seq)
        amount, loss, charged = asked.receipt.amount, asked.receipt.loss, Amount()
        unpaid = self.unpaid(asked, account)
        if unpaid:
            entry = self.charge(EntryKind.CHARGE, key, account, unpaid, loss, amount)
            asked.paid.update(dict.fromkeys(unpaid, self.receipt_of(entry, key, account, loss, amount)))
            charged = amount
        if asked.state != "answered":
            asked.claim = self.log(EntryKind.REDEEM, number=asked.receipt.number).seq
            asked.owner, asked.state = self.token, "reserved"
        return Reservation(
            receipt=replace(asked.paid[account], account=account),
            answer=asked.answer,
            replayed=asked.answer is not None,
            charged=charged,
            claim=asked.claim,
        )

    def unpaid(self, asked, account):
        return [payer for payer in account.lineage if payer not in asked.paid]

    def charge(self, kind, key, account, payers, loss, amount):
        for payer in reversed(payers):
            self.expect_fits(payer, amount)
        self.book(payers, amount)
        return self.log(kind, key=key, number=f"{len(self.store.entries):016x}", account=str(account))

    def expect_fits(self, payer, amount):
        limit = self.store.limits.get(payer)
        if limit is not None and not self.within(limit, self.store.spent.get(payer, Amount()) + amount):
            raise OutOfBudget("no")

    def within(self, limit, spent):
        """Any sum that isn't closed is within its limit, and so is what was given away."""
        both = zip((spent.main, *spent.others), (limit.main, *limit.others), strict=False)
        return spent.delta <= limit.delta and any(used is not None and used <= most for used, most in both)

    def book(self, payers, amount):
        for payer in payers:
            limits = self.store.limits
            limit = limits.get(payer) or limits.get(payer.lineage[0])
            self.store.first_delta.setdefault(payer, limit.delta)
            self.store.spent[payer] = self.store.spent.get(payer, Amount()) + amount

    def receipt_of(self, entry, key, account, loss, amount):
        return Receipt(
            number=entry.body["number"],
            key=key,
            account=account,
            amount=amount,
            loss=loss,
            at="",
            seq=entry.seq,
            hash=entry.hash,
        )

    def holds(self, reservation):
        asked = self.store.asked.get(reservation.receipt.key)
        return asked and asked.state == "reserved" and asked.claim == reservation.claim and asked.owner is self.token

    def record(self, reservation, answer):
        with self.lock:
            if not self.holds(reservation):
                raise LedgerError
            asked = self.store.asked[reservation.receipt.key]
            asked.state, asked.answer = "answered", answer
            self.log(EntryKind.ANSWER, number=asked.receipt.number)
            return replace(reservation, answer=asked.answer)

    def fail(self, reservation, cause):
        with self.lock:
            if self.holds(reservation):
                asked = self.store.asked[reservation.receipt.key]
                asked.state = "failed"
                self.log(EntryKind.FAILED, number=asked.receipt.number)

    def balances(self):
        with self.lock:
            accounts = sorted({*self.store.limits, *self.store.spent}, key=lambda account: account.path)
            return tuple(self.one(account) for account in accounts)

    def one(self, account):
        limit, spent = self.store.limits.get(account), self.store.spent.get(account, Amount())
        left, restated = limit and limit.after(spent), self.store.restated.get(account, 0)
        first = self.store.first_delta.get(account)
        return Balance(account=account, limit=limit, spent=spent, remaining=left, restated=restated, first_delta=first)

    def entries(self, *, after=0, number=None):
        found = [entry for entry in self.store.entries if entry.seq > after]
        return iter([entry for entry in found if number is None or entry.body.get("number") == number])

    def find(self, key, account=None):
        asked = self.store.asked.get(key)
        return None if asked is None else asked.receipt if account is None else asked.paid.get(account)

    def paid(self, key, account):
        return self.find(key, account) is not None

    def verify(self):
        entries = self.store.entries
        return Verified(entries=len(entries), balances=self.balances(), head=entries[-1].hash, adopted=0)

    def close(self):
        self.store.living.discard(self.token)


# ------------------------------------------------------------------ the suite and its mutants


def opener(kind, currency=None):
    stores = {}

    def open_ledger(name):
        ledger = kind(stores.setdefault(name, Store()))
        ledger.currency = currency or kind.currency
        return ledger

    return open_ledger


@pytest.mark.parametrize("currency", Currency)
def test_the_model_conforms(currency):
    assert check_ledger(opener(SimpleLedger, currency)).passed


class ChargesAfterAnswering(SimpleLedger):
    """Books when the answer is recorded, as two well-known libraries do."""

    def charge(self, kind, key, account, payers, loss, amount):
        if kind is EntryKind.CHARGE:
            return super().charge(kind, key, account, payers, loss, amount)
        for payer in payers:
            self.expect_fits(payer, amount)
        return self.log(kind, key=key, number=f"{len(self.store.entries):016x}")

    def record(self, reservation, answer):
        recorded = super().record(reservation, answer)
        self.book(reservation.receipt.account.lineage, reservation.receipt.amount)
        return recorded


class RefundsFailures(SimpleLedger):
    def fail(self, reservation, cause):
        super().fail(reservation, cause)
        amount = reservation.receipt.amount
        for payer in reservation.receipt.account.lineage:
            spent = self.store.spent[payer]
            self.store.spent[payer] = Amount(spent.main - amount.main, spent.delta - amount.delta)


class ForgetsSpending(SimpleLedger):
    """Opens with an empty table of balances."""

    def __init__(self, store):
        store.spent.clear()
        super().__init__(store)


class ForgetsAnswers(SimpleLedger):
    def __init__(self, store):
        store.asked.clear()
        super().__init__(store)


class PaysPerRequest(SimpleLedger):
    def unpaid(self, asked, account):
        return account.lineage


class PaysForOthers(SimpleLedger):
    """Whoever comes second gets the answer free of charge."""

    def unpaid(self, asked, account):
        asked.paid.update({payer: asked.receipt for payer in account.lineage if payer not in asked.paid})
        return []


class DatasetPaysTwice(SimpleLedger):
    def unpaid(self, asked, account):
        return account.lineage if account not in asked.paid else []


class AnswersTwice(SimpleLedger):
    """Whoever once held the right to answer keeps it."""

    def holds(self, reservation):
        asked = self.store.asked.get(reservation.receipt.key)
        return asked and asked.state == "reserved"


class OverwritesAnswers(SimpleLedger):
    def holds(self, reservation):
        return self.store.asked.get(reservation.receipt.key)


class RunsTwice(SimpleLedger):
    """Doesn't wait for who is at work."""

    def at_work(self, asked):
        return False


class ChargesTheLeafFirst(SimpleLedger):
    """Books account by account, and stops in the middle."""

    def charge(self, kind, key, account, payers, loss, amount):
        for payer in reversed(payers):
            self.expect_fits(payer, amount)
            self.book([payer], amount)
        return self.log(kind, key=key, number=f"{len(self.store.entries):016x}")


class ChargesTheDatasetOnly(SimpleLedger):
    def book(self, payers, amount):
        super().book(payers[:1], amount)


class RoundsDown(SimpleLedger):
    def book(self, payers, amount):
        super().book(payers, Amount(amount.main - 1, amount.delta))


class OneUnitTooMany(SimpleLedger):
    def expect_fits(self, payer, amount):
        super().expect_fits(payer, Amount(0, amount.delta))


class OneSumDecides(SimpleLedger):
    """Accepts by the first sum alone, as format 1 did."""

    currency = Currency.ZCDP

    def within(self, limit, spent):
        return spent.main <= limit.main


class AllSumsDecide(SimpleLedger):
    currency = Currency.ZCDP

    def within(self, limit, spent):
        others = zip(spent.others, limit.others, strict=False)
        return super().within(limit, spent) and all(used is None or used <= most for used, most in others)


class TwoPurses(SimpleLedger):
    """Charges the sum that has room, and no other."""

    currency = Currency.ZCDP

    def book(self, payers, amount):
        for payer in payers:
            limit, spent = self.store.limits.get(payer), self.store.spent.get(payer, Amount())
            others = tuple(0 for _ in amount.others)
            paid = Amount(amount.main, amount.delta, others)
            if limit is not None and spent.main + amount.main > limit.main:
                paid = Amount(0, amount.delta, amount.others)
            super().book([payer], paid)


class OpensClosedSums(SimpleLedger):
    """Takes a loss without ε for ε = 0."""

    currency = Currency.ZCDP

    def price(self, loss):
        found = super().price(loss)
        return replace(found, others=tuple(part or 0 for part in found.others))


class ResetsWithLimits(SimpleLedger):
    def set_limits(self, limits):
        for account in limits:
            self.store.spent.pop(account, None)
        super().set_limits(limits)


class Tells(SimpleLedger):
    def expect_fits(self, payer, amount):
        limit = self.store.limits.get(payer)
        if limit is not None and not limit.allows(self.store.spent.get(payer, Amount()) + amount):
            raise OutOfBudget(f"{limit.after(self.store.spent[payer])} is left of {payer}")


class LogsRefusals(SimpleLedger):
    def expect_fits(self, payer, amount):
        try:
            super().expect_fits(payer, amount)
        except OutOfBudget:
            self.log(EntryKind.FAILED)
            raise


class TakesAnyAdjacency(SimpleLedger):
    def reserve(self, *, key, account, loss, note, timeout=10.0):
        known = PureLoss(loss.pure_exactly()) if loss.pure() < 1e9 else loss
        return super().reserve(key=key, account=account, loss=known, note=note, timeout=timeout)


class Races(SimpleLedger):
    """Looks, waits, and books without looking again."""

    def book(self, payers, amount):
        read = {payer: self.store.spent.get(payer, Amount()) for payer in payers}
        self.lock.release()
        time.sleep(0.002)
        self.lock.acquire()
        self.store.spent.update({payer: spent + amount for payer, spent in read.items()})


class NeverLetsGo(SimpleLedger):
    def give_up(self, reservation): ...


class ForgetsTheEnd(SimpleLedger):
    def latest(self, count):
        return list(self.entries())[:count]


MUTANTS = SimpleLedger.__subclasses__()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_fail(mutant):
    report = check_ledger(opener(mutant), raises=False)
    assert not report.passed
    with pytest.raises(ConformanceFailed, match="FAILED"):
        check_ledger(opener(mutant))


# ------------------------------------------------------------------ any sequence of calls

NAMES = st.sampled_from([("d",), ("d", "ana"), ("d", "bob"), ("d", "team", "eve")]).map(Account)
KEYS = st.sampled_from([f"{n:08x}" for n in range(5)])
LOSSES = {f"{n:08x}": (PureLoss, ZcdpLoss)[n % 2](f"{n + 1}/7") for n in range(5)}
# of ρ, ε and eight orders, in sevenths
LIMITS = st.lists(st.integers(0, 30), min_size=10, max_size=10).map(
    lambda sevenths: Limit.zcdp(f"{sevenths[0]}/7", 0, tuple(part * 10**12 // 7 for part in sevenths[1:]))
)


class Comparison(RuleBasedStateMachine):
    """Every call on both; the same result, the same balances, the same kinds of entries."""

    directory = None
    count = 0

    @initialize(limit=LIMITS)
    def begin(self, limit):
        type(self).count += 1
        self.path = self.directory / str(self.count)
        self.real = self.open()
        self.model = SimpleLedger()
        self.model.currency = Currency.ZCDP
        self.model.log(EntryKind.OPENED)
        self.pending = []
        self.both(lambda ledger: ledger.set_limits({Account(("d",)): limit}))

    def open(self):
        return SqliteLedger.open(
            self.path,
            currency=Currency.ZCDP,
            adjacency=Adjacency.ADD_REMOVE,
            unit="each row",
            dataset="d",
            head=self.path.with_suffix(".head"),
        )

    def both(self, act):
        outcomes = []
        for ledger in (self.real, self.model):
            try:
                outcomes.append(act(ledger))
            except (OutOfBudget, LedgerError) as problem:
                outcomes.append(type(problem))
        return outcomes

    @rule(account=NAMES, limit=LIMITS)
    def limit(self, account, limit):
        self.both(lambda ledger: ledger.set_limits({account: limit}))

    @rule(key=KEYS, account=NAMES)
    def reserve(self, key, account):
        real, model = self.both(
            lambda ledger: ledger.reserve(key=key, account=account, loss=LOSSES[key], note={}, timeout=0)
        )
        if isinstance(real, type) or isinstance(model, type):
            assert real is model
            return
        assert (real.answer, real.replayed, real.charged) == (model.answer, model.replayed, model.charged)
        assert (real.receipt.account, real.receipt.amount) == (model.receipt.account, model.receipt.amount)
        assert (real.receipt.seq, real.claim) == (model.receipt.seq, model.claim)
        if real.answer is None:
            self.pending.append((real, model))

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), answer=st.binary(max_size=8))
    def record(self, data, answer):
        real, model = data.draw(st.sampled_from(self.pending))
        outcomes = []
        for ledger, reservation in ((self.real, real), (self.model, model)):
            try:
                outcomes.append(ledger.record(reservation, answer).answer)
            except LedgerError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def fail(self, data):
        real, model = data.draw(st.sampled_from(self.pending))
        self.real.fail(real, "cause")
        self.model.fail(model, "cause")

    @rule()
    def reopen(self):
        self.real.close()
        self.model.close()
        self.real = self.open()
        store = self.model.store
        self.model = SimpleLedger(store)
        self.model.currency = Currency.ZCDP

    @invariant()
    def same(self):
        if not hasattr(self, "real"):
            return
        assert self.real.balances() == self.model.balances()
        kinds = [entry.kind for entry in self.real.entries()]
        assert kinds == [entry.kind for entry in self.model.entries()]
        for key in LOSSES:
            for account in (Account(("d",)), Account(("d", "bob"))):
                assert self.real.paid(key, account) == self.model.paid(key, account)

    def teardown(self):
        if hasattr(self, "real"):
            assert self.real.verify().balances == self.model.balances()
            self.real.close()


def test_any_sequence_of_calls_agrees_with_the_model(tmp_path):
    Comparison.directory = tmp_path
    run_state_machine_as_test(Comparison, settings=settings(max_examples=short_or_full(20, 40), stateful_step_count=30))
