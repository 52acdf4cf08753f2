"""The ledger as the owner reads it: who asked what, when, and what it cost."""

from __future__ import annotations

from itertools import islice

from dither.curator.epsilon_to_currency import Exchange
from dither.curator.results import Record
from dither.errors import LedgerError, LedgerOutdated, LedgerRolledBack
from dither.ledger import Amount, Currency, Entry, Ledger, Limit, MemoryLedger, SqliteLedger, Verified
from dither.ledger.amount import DELTA_UNITS, MAIN_UNITS, in_words, units_from_json
from dither.ledger.sqlite import latest_of_format1, upgraded_copy, verify_format1
from dither.policy.policy import Policy
from dither.privacy import Json
from dither.privacy.zcdp import zcdp_epsilon


def open_ledger(
    policy: Policy, *, adopt: bool = False, create: bool = True, upgrade: bool = False, rebind: bool = False
) -> SqliteLedger:
    """The policy's ledger, made if it isn't there and ``create`` says so; see ``SqliteLedger.open`` for the rest."""
    return SqliteLedger.open(
        policy.source.ledger,
        upgrade=upgrade,
        same_people=policy.units() if rebind else None,
        currency=Exchange(policy.budget.delta_budget).currency,
        adjacency=policy.schema.adjacency,
        unit=policy.unit_level(),
        dataset=policy.source.name,
        head=policy.source.ledger_head,
        adopt=adopt,
        create=create,
    )


def is_begun(policy: Policy) -> bool:
    """Whether the policy's ledger is there: where it isn't, the first question begins one."""
    return policy.source.ledger.exists()


def ledger_to_look_at(policy: Policy) -> Ledger:
    """The policy's ledger for those who only look; where none was begun, one in memory in which nothing was spent.

    A ledger of format 1 is read into memory as upgrading it would make it. One that is missing although its head says
    that there was one is an error here too, and so is one that was kept for other units.
    """
    try:
        found: Ledger = open_ledger(policy, create=False)
    except LedgerOutdated:
        found = upgraded_copy(policy.source.ledger, policy.source.ledger_head)
    except LedgerError as problem:
        if is_begun(policy) or isinstance(problem, LedgerRolledBack):
            raise
        found = _empty(policy)
    try:
        found.bind(policy.units(), note=False)
    except LedgerError:
        found.close()
        raise
    return found


def _empty(policy: Policy) -> MemoryLedger:
    return MemoryLedger(
        currency=Exchange(policy.budget.delta_budget).currency,
        adjacency=policy.schema.adjacency,
        unit=policy.unit_level(),
        dataset=policy.source.name,
    )


def latest(policy: Policy, count: int) -> list[Record]:
    """The latest entries, oldest first; none where no ledger was begun.

    What was charged can be read whatever the policy says by now, and in whatever format it was written.
    """
    try:
        book = open_ledger(policy, create=False)
    except LedgerOutdated:
        found = latest_of_format1(policy.source.ledger, policy.source.ledger_head, count)
    except LedgerError as problem:
        if is_begun(policy) or isinstance(problem, LedgerRolledBack):
            raise
        return []
    else:
        with book:
            found = book.latest(count)
    return [_record(entry, policy) for entry in found]


def of_ledger(ledger: Ledger, policy: Policy, *, count: int, before: int | None = None) -> tuple[Record, ...]:
    """The latest entries, or those just before entry ``before``, newest first."""
    if before is None:
        found = ledger.latest(count)
    else:
        found = list(islice(ledger.entries(after=max(before - 1 - count, 0)), max(min(count, before - 1), 0)))
    return tuple(_record(entry, policy) for entry in reversed(found))


def verify(policy: Policy, *, adopt: bool = False) -> tuple[Verified, list[str]]:
    """Replay the whole ledger, which must be there; returns what was found and the balances in words."""
    try:
        book: Ledger = open_ledger(policy, adopt=adopt, create=False)
    except LedgerOutdated:
        found = verify_format1(policy.source.ledger, policy.source.ledger_head)
    else:
        with book:
            found = book.verify()
    words = Exchange(policy.budget.delta_budget).currency
    return found, [f"{balance.account}: {balance.spent.in_words(words)}" for balance in found.balances]


def upgrade(policy: Policy, *, rebind: bool = False) -> Verified | None:
    """Make format 2 out of a ledger of format 1; see ``SqliteLedger.open``. None if it has that format already."""
    try:
        open_ledger(policy, create=False).close()
    except LedgerOutdated:
        with open_ledger(policy, create=False, upgrade=True, rebind=rebind) as book:
            return book.verify()
    return None


def rebind(policy: Policy) -> None:
    """Record the owner's word that the policy's units name the same people as those that the ledger was kept for."""
    with open_ledger(policy, create=False) as book:
        book.bind(policy.units(), rebind=True)


def _record(entry: Entry, policy: Policy) -> Record:
    body = entry.body
    note = body.get("note")
    told = note if isinstance(note, dict) else {}
    exchange = Exchange(policy.budget.delta_budget)
    stated = "; ".join(_limit(one, exchange) for one in body.get("limits", ()))
    units = in_words(units_from_json(body["units"])) if "units" in body else ""
    question = told.get("sql") or told.get("computation") or body.get("cause") or stated or units
    amount = body.get("amount")
    return Record(
        number=entry.seq,
        at=entry.at[:19].replace("T", " "),
        what=entry.kind.value,
        receipt=str(body.get("number", "")),
        who="/".join(body.get("path", ())),
        cost=Amount.from_json(amount).in_words(exchange.currency) if isinstance(amount, dict) else "",
        question=" ".join(str(question).split()),
        epsilon=str(told.get("epsilon", "")),
    )


def _limit(stated: Json, exchange: Exchange) -> str:
    """What an account may spend since then, as the ε that the policy or a grant gave it."""
    limit = Limit.from_json(stated["limit"], exchange.currency)
    if limit.others and limit.others[0] is not None:
        epsilon = limit.others[0] / MAIN_UNITS
    elif exchange.currency is Currency.PURE:
        epsilon = limit.main / MAIN_UNITS
    else:
        # the limit's δ is the half that pays for discovered keys; the other half, in format 1 all of it, reads ρ as ε
        epsilon = zcdp_epsilon(limit.main / MAIN_UNITS, limit.delta / DELTA_UNITS)
    return f"{stated['account'][-1]}: at most ε = {epsilon:.4g}"
