"""The way of one question through the ledger: charge, record, and how each failure in between is reported.

From the moment at which a charge may be on disk nothing escapes but the recorded answer, ``Failed`` with the receipt,
or the interrupt that stopped it; whatever else was raised may quote data, and goes to the ledger alone.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dither.curator.charge.accounts import Accounts
from dither.curator.who import Asker
from dither.errors import DitherError, Failed, LedgerCorrupt, OutOfBudget, SourceError
from dither.ledger import Account, Amount, EntryKind, Ledger, Limit, Reservation
from dither.ledger.amount import Units
from dither.privacy import PrivacyLoss

LOG = logging.getLogger("dither.curator")
PATIENCE = 0.05


class Charging:
    """Charges for questions and sees each to its end; knows which are under way, so that closing can wait for them."""

    def __init__(
        self, ledger: Ledger, accounts: Accounts, units: Units, *, protected: Mapping[str, str], step: float = 0.0
    ) -> None:
        self.ledger, self.accounts, self._units, self._step = ledger, accounts, units, step
        self._protected = protected
        self._stated: Mapping[Account, Limit] | None = None
        self._change = threading.Condition()
        self._threads: Counter[int] = Counter()
        self._claimed: set[Claim] = set()
        self.closing = False

    # ------------------------------------------------------------------ one question

    def note(self, analyst: str, **about: object) -> dict[str, object]:
        """What the owner finds in the ledger beside a charge."""
        return {**about, "analyst": analyst, **self._protected}

    def reserve(self, *, key: str, account: Account, loss: PrivacyLoss, note: Mapping[str, Any]) -> Reservation:
        """Charge, or find what was charged before; OutOfBudget if it doesn't fit in the caps as they are now."""
        self.state_limits()
        try:
            return self.ledger.reserve(key=key, account=account, loss=loss, note=note)
        except OutOfBudget:
            # another process may have stated caps that it read before the owner raised them
            self._stated = None
        self.state_limits()
        return self.ledger.reserve(key=key, account=account, loss=loss, note=note)

    def stored(self, *, key: str, account: Account, loss: PrivacyLoss) -> Reservation:
        """The recorded answer of a question that this account paid for; payments last, so nothing is charged."""
        reservation = self.ledger.reserve(key=key, account=account, loss=loss, note={})
        if reservation.answer is None:
            self.ledger.give_up(reservation)
            raise LedgerCorrupt("an answer that the log speaks of isn't stored")
        return reservation

    def begin(self, claim: Claim) -> None:
        """Count what was charged as worked on; refused once the curator is being closed."""
        with self._change:
            self._claimed.add(claim)
            if self.closing:
                raise SourceError("the curator was closed before the question could run")

    def finished(self, claim: Claim) -> None:
        """No longer worked on; idempotent."""
        with self._change:
            self._claimed.discard(claim)

    def at_work(self, key: str) -> bool:
        """Whether a thread of this process works on the question of this key."""
        with self._change:
            return any(claim.key == key for claim in self._claimed)

    def state_limits(self) -> None:
        """Units and caps, before the first question that may spend and after each change of a cap.

        Who only looks changes nothing: until something is charged, the ledger isn't bound to any unit.
        """
        limits = self.accounts.limits()
        if limits is not self._stated:
            self.ledger.bind(self._units)
            self.ledger.set_limits(limits)
            self._stated = limits

    # ------------------------------------------------------------------ all questions

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a question as running; refused once the curator is being closed."""
        here = threading.get_ident()
        with self._change:
            if self.closing and not self._threads[here]:
                raise SourceError("the curator was closed: open it again")
            self._threads[here] += 1
        try:
            yield
        finally:
            with self._change:
                self._threads[here] -= 1
                if not self._threads[here]:
                    del self._threads[here]
                self._change.notify_all()

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Leave at a multiple of the policy's step after entering; an interrupt leaves at once.

        So the time of an answer says less about the data (Haeberlen, Pierce & Narayan 2011).
        """
        started = time.monotonic()
        with self.under_way():
            try:
                yield
            except Exception:
                self._wait(started)
                raise
            self._wait(started)

    def _wait(self, started: float) -> None:
        if self._step > 0:
            passed = time.monotonic() - started
            time.sleep(self._step - passed % self._step)

    def finish(self, interrupt: Callable[[], None]) -> None:
        """Let no new question begin, stop what runs in other threads, and wait until all of it has ended."""
        here = threading.get_ident()
        with self._change:
            self.closing = True
        while True:
            with self._change:
                if not any(count for thread, count in self._threads.items() if thread != here):
                    return
            interrupt()
            with self._change:
                self._change.wait(PATIENCE)


class Claim:
    """One charge, from before it is on disk until its answer or its failure is recorded.

    Whatever is raised from ``reserve`` to ``record`` goes to ``problem``, and ``settled`` is called behind the except
    block: neither what it raises, nor what logging prints when a log can't be written, has it as its context.
    """

    def __init__(
        self,
        charging: Charging,
        *,
        key: str,
        who: Asker,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        epsilon: float | None = None,
    ) -> None:
        self._charging, self._ledger, self.key, self._who = charging, charging.ledger, key, who
        self._loss, self._note, self._epsilon = loss, note, epsilon
        self._reservation: Reservation | None = None
        self.problem: BaseException | None = None

    def reserve(self) -> None:
        """Charge, durably, or find what was charged before; OutOfBudget if it doesn't fit."""
        self._reservation = self._charging.reserve(
            key=self.key, account=self._who.account, loss=self._loss, note=self._note
        )
        if self.stored is None:
            self._charging.begin(self)

    @property
    def stored(self) -> bytes | None:
        """The recorded answer."""
        return None if self._reservation is None else self._reservation.answer

    def record(self, answer: bytes) -> None:
        """Keep the answer, durably; it may be delivered then."""
        assert self._reservation is not None
        self._reservation = self._ledger.record(self._reservation, answer)

    def settled(self) -> Reservation:
        """The reservation with its recorded answer; else what the analyst may see of the problem is raised."""
        problem, self.problem = self.problem, None
        self._charging.finished(self)
        if problem is None:
            assert self._reservation is not None
            return self._reservation
        try:
            if self._reservation is None and isinstance(problem, OutOfBudget):
                amount = Amount.of(self._loss, self._ledger.currency)
                raise self._charging.accounts.out_of_budget(amount, self._epsilon, self._who)
            if self._reservation is None and isinstance(problem, Exception):
                raise problem  # in the ledger's own words: it says whether anything was charged
            held = self._reservation or self._lost()
            if held is not None:
                self._fail(held, problem)
            if not isinstance(problem, Exception):
                raise problem
        finally:
            del problem
        assert self._reservation is not None
        raise Failed(self._reservation.receipt.number) from None

    def _fail(self, reservation: Reservation, problem: BaseException) -> None:
        """Say in the ledger why there is no answer; if that can't be written, at least let others redeem the claim."""
        number, kind = reservation.receipt.number, type(problem).__name__
        LOG.error("receipt %s failed: %s; the cause is in the ledger", number, kind)
        with contextlib.suppress(Exception):
            try:
                self._ledger.fail(reservation, cause_of(problem))
            except DitherError:
                LOG.error("receipt %s: the failure can't be written to the ledger", number)  # noqa: TRY400
                self._ledger.give_up(reservation)

    def _lost(self) -> Reservation | None:
        """What an interrupt inside ``reserve`` may have left: charged and claimed by us, and nobody at work on it."""
        with contextlib.suppress(Exception):
            first, own = self._ledger.find(self.key), self._ledger.find(self.key, self._who.account)
            if first is None or own is None or self._charging.at_work(self.key):
                return None
            entries = self._ledger.entries(number=first.number)
            claim = max(entry.seq for entry in entries if entry.kind in (EntryKind.RESERVE, EntryKind.REDEEM))
            return Reservation(receipt=own, answer=None, replayed=False, charged=Amount(), claim=claim)
        return None


def cause_of(problem: BaseException) -> str:
    """Why there is no answer; for the owner alone, as it may quote data."""
    if isinstance(problem, KeyboardInterrupt | SystemExit):
        return "interrupted"
    try:
        return str(getattr(problem, "cause", "")) or f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - an error that can't even be shown
        return type(problem).__name__
