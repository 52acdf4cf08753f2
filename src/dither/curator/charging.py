"""The way of one question through the ledger: charge, work, record; and how every other end of it is told.

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
from typing import Any, TypeVar

from dither.curator.accounts import Accounts
from dither.errors import DitherError, Failed, LedgerCorrupt, OutOfBudget, SourceError
from dither.ledger import Account, Amount, Kind, Ledger, Limit, Reservation
from dither.ledger.units import Units
from dither.privacy import PrivacyLoss

T = TypeVar("T")
LOG = logging.getLogger("dither.curator")
PATIENCE = 0.05


class Charging:
    """Charges for questions and sees each to its end; knows which are under way, so that closing can wait for them."""

    def __init__(self, ledger: Ledger, accounts: Accounts, units: Units, *, step: float = 0.0) -> None:
        self._ledger, self._accounts, self._units, self._step = ledger, accounts, units, step
        self._stated: Mapping[Account, Limit] | None = None
        self._change = threading.Condition()
        self._threads: Counter[int] = Counter()
        self._claimed: Counter[str] = Counter()
        self.closing = False

    # ------------------------------------------------------------------ one question

    def answered(
        self,
        *,
        key: str,
        analyst: str,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        epsilon: float | None,
        work: Callable[[], bytes],
    ) -> Reservation:
        """The reservation with its recorded answer, from the record or from ``work``, which runs after the charge."""
        account = self._accounts.account(analyst)
        reservation: Reservation | None = None
        try:
            reservation = self._reserved(key=key, account=account, loss=loss, note=note)
            if reservation.answer is not None:
                return reservation
            with self._claim(key):
                return self._ledger.record(reservation, work())
        except BaseException as problem:  # whatever it is may depend on the data: the analyst must not see it
            if reservation is None and isinstance(problem, OutOfBudget):
                raise self._out_of_budget(loss, epsilon, analyst) from None
            if reservation is None and isinstance(problem, Exception):
                raise  # in the ledger's own words: it says whether anything was charged
            ended = problem
        # behind the except block: neither what is raised from here on, nor what logging prints when a log can't be
        # written, has it as its context
        try:
            held = reservation or self._claim_of(key, account)
            if held is not None:
                self._end(held, ended)
            if not isinstance(ended, Exception):
                raise ended
        finally:
            del ended
        assert reservation is not None
        raise Failed(reservation.receipt.number) from None

    def _reserved(self, *, key: str, account: Account, loss: PrivacyLoss, note: Mapping[str, Any]) -> Reservation:
        self.state_limits()
        try:
            return self._ledger.reserve(key=key, account=account, loss=loss, note=note)
        except OutOfBudget:
            # another process may have stated caps that it read before the owner raised them
            self._stated = None
        self.state_limits()
        return self._ledger.reserve(key=key, account=account, loss=loss, note=note)

    def stored(self, *, key: str, account: Account, loss: PrivacyLoss) -> Reservation:
        """The recorded answer of a question that this account paid for; payments last, so nothing is charged."""
        reservation = self._ledger.reserve(key=key, account=account, loss=loss, note={})
        if reservation.answer is None:
            self._ledger.give_up(reservation)
            raise LedgerCorrupt("an answer that the log speaks of isn't stored")
        return reservation

    def _end(self, reservation: Reservation, problem: BaseException) -> None:
        """Say in the ledger why there is no answer; if that can't be written, at least let others redeem the claim."""
        number, kind = reservation.receipt.number, type(problem).__name__
        LOG.error("receipt %s failed: %s; the cause is in the ledger", number, kind)
        with contextlib.suppress(Exception):
            try:
                self._ledger.fail(reservation, cause_of(problem))
            except DitherError:
                LOG.error("receipt %s: the failure can't be written to the ledger", number)  # noqa: TRY400
                self._ledger.give_up(reservation)

    def _claim_of(self, key: str, account: Account) -> Reservation | None:
        """What an interrupt inside ``reserve`` may have left: charged and claimed by us, and nobody at work on it."""
        with contextlib.suppress(Exception):
            first, own = self._ledger.find(key), self._ledger.find(key, account)
            if first is None or own is None or self._claimed[key]:
                return None
            entries = self._ledger.entries(number=first.number)
            claim = max(entry.seq for entry in entries if entry.kind in (Kind.RESERVE, Kind.REDEEM))
            return Reservation(receipt=own, answer=None, replayed=False, charged=Amount(), claim=claim)
        return None

    @contextmanager
    def _claim(self, key: str) -> Iterator[None]:
        with self._change:
            self._claimed[key] += 1
        try:
            if self.closing:
                raise SourceError("the curator was closed before the question could run")
            yield
        finally:
            with self._change:
                self._claimed[key] -= 1
                if not self._claimed[key]:
                    # a server that runs for long sees a great many keys
                    del self._claimed[key]

    def state_limits(self) -> None:
        """Units and caps, before the first question that may spend and after each change of a cap.

        Who only looks changes nothing: until something is charged, the ledger isn't bound to any unit.
        """
        limits = self._accounts.limits()
        if limits is not self._stated:
            self._ledger.bind(self._units)
            self._ledger.set_limits(limits)
            self._stated = limits

    def _out_of_budget(self, loss: PrivacyLoss, epsilon: float | None, analyst: str) -> OutOfBudget:
        return self._accounts.out_of_budget(Amount.of(loss, self._ledger.currency), epsilon, analyst)

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

    def paced(self, started: float, work: Callable[[], T]) -> T:
        """Do the work and leave at a multiple of the policy's step; an interrupt leaves at once.

        So the time of an answer says less about the data (Haeberlen, Pierce & Narayan 2011).
        """
        with self.under_way():
            try:
                result = work()
            except Exception:
                self._wait(started)
                raise
            self._wait(started)
            return result

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


def cause_of(problem: BaseException) -> str:
    """Why there is no answer; for the owner alone, as it may quote data."""
    if isinstance(problem, KeyboardInterrupt | SystemExit):
        return "interrupted"
    try:
        return str(getattr(problem, "cause", "")) or f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - an error that can't even be shown
        return type(problem).__name__
