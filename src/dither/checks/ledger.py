"""check_ledger: does a ledger keep the rules of payment, whatever it is built on?

The suite uses a ledger as a curator would. It can't pull the plug: that crashes lose nothing is for the ledger's own
tests to show; what is checked here is that closing and opening again loses nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise

from dither.checks.mechanism import Finding, Report
from dither.errors import IncompatibleLosses, LedgerBusy, LedgerError, OutOfBudget
from dither.ledger import Account, Amount, Currency, Ledger, Limit, Reservation
from dither.privacy import Adjacency, ApproximateLoss, PrivacyLoss, PureLoss, ZcdpLoss

DATASET = Account(("checked",))
ANA, BOB = Account(("checked", "ana")), Account(("checked", "bob"))
TEAM_MEMBER = Account(("checked", "team", "eve"))
# no whole number of units, so that a ledger which rounds down is noticed
EPSILON = Fraction(1, 7)

Open = Callable[[str], Ledger]
Spent = dict[Account, Amount]


class _Broken(Exception):  # noqa: N818
    """A rule that didn't hold."""


def check_ledger(open_ledger: Open, *, durable: bool = True, raises: bool = True) -> Report:
    """Hold a ledger to the contract; raises ConformanceFailed with all that failed.

    Args:
        open_ledger: Opens the ledger of a name, making it if there is none: the same name again, after ``close``, is
            the same ledger.
        durable: Whether a ledger outlives its object; if not, what only such a ledger can do is left out.
        raises: Whether a failed check raises; else the report alone says so.

    Example:
        >>> from dither.ledger import MemoryLedger
        >>> check_ledger(lambda name: MemoryLedger(dataset=name), durable=False).passed
        True
    """
    checks = (*CHECKS, *DURABLE_CHECKS) if durable else CHECKS
    findings = [_finding(check, title, fault, open_ledger) for check, title, fault in checks]
    return Report(getattr(open_ledger, "__qualname__", repr(open_ledger)), tuple(findings)).told(raises=raises)


def _finding(check: Callable[[Open, str], None], title: str, fault: str, open_ledger: Open) -> Finding:
    try:
        check(open_ledger, check.__name__.strip("_"))
    except _Broken as problem:
        return Finding(title, passed=False, detail=str(problem), smallest_fault=fault)
    except Exception as problem:  # noqa: BLE001 whatever a stranger's ledger raises is a finding
        return Finding(title, passed=False, detail=f"raised {type(problem).__name__}", smallest_fault=fault)
    return Finding(title, passed=True, detail="holds", smallest_fault=fault)


# ------------------------------------------------------------------ what the checks are made of


@contextmanager
def _ledger(
    open_ledger: Open, name: str, *, questions: int, limits: dict[Account, int] | None = None
) -> Iterator[Ledger]:
    """A ledger whose dataset can pay for so many questions, exactly."""
    with open_ledger(name) as ledger:
        counts = {DATASET: questions, **(limits or {})}
        ledger.set_limits({account: _limit(ledger, count) for account, count in counts.items()})
        yield ledger


def _loss(ledger: Ledger) -> PrivacyLoss:
    return PureLoss(EPSILON, ledger.adjacency)


def _price(ledger: Ledger) -> Amount:
    return ledger.price(_loss(ledger))


def _limit(ledger: Ledger, questions: int) -> Limit:
    price = _price(ledger)
    return Limit(questions * (price.main or 0), questions * price.delta, ledger.currency)


def _key(question: object) -> str:
    return hashlib.sha256(repr(question).encode()).hexdigest()


def _ask(ledger: Ledger, question: object, account: Account = ANA, timeout: float = 10.0) -> Reservation:
    return ledger.reserve(key=_key(question), account=account, loss=_loss(ledger), note={}, timeout=timeout)


def _spent(ledger: Ledger) -> Spent:
    return {balance.account: balance.spent for balance in ledger.balances() if balance.spent != Amount()}


def _times(ledger: Ledger, **questions: int) -> Spent:
    """So many questions paid by each of these accounts."""
    names = {"dataset": DATASET, "ana": ANA, "bob": BOB}
    price = _price(ledger)
    return {names[name]: n * price for name, n in questions.items()}


def _state(ledger: Ledger) -> tuple[object, ...]:
    return ledger.balances(), tuple(ledger.entries())


def _expect(held: object, otherwise: str) -> None:
    if not held:
        raise _Broken(otherwise)


def _expect_raises(kind: type[Exception], act: Callable[[], object], otherwise: str) -> str:
    try:
        act()
    except kind as problem:
        return str(problem)
    raise _Broken(otherwise)


# ------------------------------------------------------------------ the checks


def _charges_first(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=5) as ledger:
        asked = _ask(ledger, 1)
        _expect(asked.answer is None, "a question that nobody ran has an answer")
        _expect(asked.charged == _price(ledger), "the reservation doesn't say what it charged")
        _expect(
            _spent(ledger) == _times(ledger, dataset=1, ana=1), "the reservation is out and the charge isn't booked"
        )
        ledger.record(asked, b"1")
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "recording the answer changed what was spent")


def _pays_once(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=1) as ledger:
        ledger.record(_ask(ledger, 1), b"first")
        for _ in range(3):
            again = _ask(ledger, 1)
            _expect(again.replayed and again.answer == b"first", "the same question isn't answered from the record")
            _expect(again.charged == Amount(), "the same account pays twice for one question")
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "replays changed what was spent")
        _expect(ledger.paid(_key(1), ANA) and not ledger.paid(_key(1), BOB), "paid() doesn't know who paid")
        other = _ask(ledger, 1, BOB)
        _expect(
            other.answer == b"first" and other.charged == _price(ledger), "another analyst isn't charged, or runs again"
        )
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1, bob=1), "the dataset pays twice for one question")
        _expect(other.receipt.account == BOB and other.receipt.number != again.receipt.number, "receipts are mixed up")


def _refuses_without_trace(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=3) as ledger:
        for question in range(3):
            ledger.record(_ask(ledger, question), b"x")
        before = _state(ledger)
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 3), "a budget for three questions let a fourth through")
        _expect(_state(ledger) == before, "refusing left a trace")
        _expect(_ask(ledger, 0).answer == b"x", "an exhausted budget forgets its answers")


def _all_or_nothing(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=2, limits={ANA: 1}) as ledger:
        ledger.record(_ask(ledger, 1), b"x")
        before = _state(ledger)
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 2), "an analyst's own limit doesn't bind")
        _expect(_state(ledger) == before, "the dataset was charged for a question that the analyst couldn't pay")
        ledger.record(_ask(ledger, 2, BOB), b"y")
        before = _state(ledger)
        said = _expect_raises(OutOfBudget, lambda: _ask(ledger, 3, TEAM_MEMBER), "the dataset's limit doesn't bind")
        _expect(_state(ledger) == before, "an analyst was charged for a question that the dataset couldn't pay")
        _expect(not any(digit in said for digit in "0123456789"), "a refusal tells what others have spent")


def _never_refunds(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=1) as ledger:
        ledger.fail(_ask(ledger, 1), "the engine stopped")
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "a failure was refunded")
        again = _ask(ledger, 1)
        _expect(again.answer is None and again.charged == Amount(), "a failed question can't be redeemed at no cost")
        _expect(ledger.record(again, b"late").answer == b"late", "a redeemed question can't be answered")
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "redeeming changed what was spent")


def _lets_go(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=1) as ledger:
        first = _ask(ledger, 1)
        ledger.give_up(first)
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "a question that was given up was refunded")
        again = _ask(ledger, 1, timeout=0.0)
        _expect(again.answer is None and again.charged == Amount(), "a question that was given up can't be redeemed")
        _expect_raises(
            LedgerError, lambda: ledger.record(first, b"stale"), "a claim that was given up can still answer"
        )
        _expect(ledger.record(again, b"late").answer == b"late", "a question that was given up can't be answered")
        ledger.give_up(again)
        _expect(_ask(ledger, 1).answer == b"late", "giving up took back an answer")


def _answers_once(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=1) as ledger:
        first = _ask(ledger, 1)
        ledger.fail(first, "gave up")
        second = _ask(ledger, 1)
        _expect_raises(
            LedgerError, lambda: ledger.record(first, b"stale"), "a claim that was taken over can still answer"
        )
        _expect(ledger.record(second, b"good").answer == b"good", "the stored bytes aren't those of the answer")
        _expect_raises(LedgerError, lambda: ledger.record(second, b"two"), "one question has two answers")
        ledger.fail(second, "too late")
        _expect(_ask(ledger, 1).answer == b"good", "the recorded answer changed")


def _waits_for_the_living(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=2) as ledger:
        first = _ask(ledger, 1)
        before = _state(ledger)
        _expect_raises(
            LedgerBusy, lambda: _ask(ledger, 1, BOB, timeout=0.05), "a question that is being run is given out again"
        )
        _expect(_state(ledger) == before, "waiting left a trace")
        timer = threading.Timer(0.05, lambda: ledger.record(first, b"x"))
        timer.start()
        _expect(_ask(ledger, 1, BOB).answer == b"x", "who waited doesn't get the answer")
        timer.join()


def _limits_bind(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=2) as ledger:
        ledger.record(_ask(ledger, 1), b"x")
        before = len(tuple(ledger.entries()))
        ledger.set_limits({DATASET: _limit(ledger, 2)})
        _expect(len(tuple(ledger.entries())) == before, "limits that didn't change were logged")
        ledger.set_limits({DATASET: _limit(ledger, 0)})
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "changing a limit changed what was spent")
        _expect(len(tuple(ledger.entries())) == before + 1, "a changed limit isn't logged")
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 2), "a lowered limit doesn't bind")
        ledger.set_limits({DATASET: _limit(ledger, 2)})
        ledger.record(_ask(ledger, 2), b"y")
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 3), "raising a limit gave back what was spent")


def _any_sum_will_do(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=100) as ledger:
        for place in range(1 + len(_price(ledger).others)):
            payer = Account((*DATASET.path, f"of sum {place}"))
            ledger.set_limits({payer: _only(ledger, place, 2)})
            for question in range(2):
                try:
                    ledger.record(_ask(ledger, (place, question), payer), b"x")
                except OutOfBudget:
                    raise _Broken(f"sum {place} has room and lets nothing through") from None
            before = _state(ledger)
            _expect_raises(OutOfBudget, lambda: _ask(ledger, (place, 2), payer), f"sum {place} is overspent")  # noqa: B023
            _expect(_state(ledger) == before, "refusing left a trace")
            _expect(_spent(ledger)[payer] == 2 * _price(ledger), "a question isn't charged on every sum")


def _only(ledger: Ledger, place: int, questions: int) -> Limit:
    """A limit with room for so many questions on one of the sums, and for none on the others."""
    price = _price(ledger)
    first, *others = (
        questions * (part or 0) if place == one else 0 for one, part in enumerate((price.main, *price.others))
    )
    return Limit(first, questions * price.delta, ledger.currency, tuple(others))


def _closes_a_sum(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=100) as ledger:
        without = ZcdpLoss(EPSILON, ledger.adjacency)
        if ledger.currency is Currency.PURE:
            return  # every loss that it takes has a view for its one sum
        dear, price = Amount.of(without, ledger.currency, ledger.sums), _price(ledger)
        # the first sum has room for the loss that lacks another, and all others for a hundred questions
        both = zip(price.others, dear.others, strict=True)
        most = tuple(100 * (part or 0) if lacks is None else 0 for part, lacks in both)
        ledger.set_limits({ANA: Limit(dear.main or 0, 0, ledger.currency, most)})
        ledger.record(ledger.reserve(key=_key("without"), account=ANA, loss=without, note={}), b"x")
        _expect(_spent(ledger)[ANA] == dear, "a loss that has no view for a sum is booked on it")
        before = _state(ledger)
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 1), "a loss that has no view for a sum left that sum open")
        _expect(_state(ledger) == before, "refusing left a trace")


def _refuses_other_losses(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=2) as ledger:
        other = Adjacency.REPLACE if ledger.adjacency is Adjacency.ADD_REMOVE else Adjacency.ADD_REMOVE
        before = _state(ledger)

        def ask(loss: PrivacyLoss) -> Reservation:
            return ledger.reserve(key=_key(1), account=ANA, loss=loss, note={})

        _expect_raises(IncompatibleLosses, lambda: ask(PureLoss(0, other)), "a loss for another adjacency was taken")
        if ledger.currency.value == "pure":
            given_away = ApproximateLoss(0, "1/1000000", ledger.adjacency)
            _expect_raises(IncompatibleLosses, lambda: ask(given_away), "a loss without a pure ε was taken")
        _expect(_state(ledger) == before, "a loss that was refused left a trace")


def _many_at_once(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=10) as ledger:
        answered: list[object] = []

        def work(worker: int) -> None:
            for question in range(5):
                with contextlib.suppress(OutOfBudget):
                    ledger.record(_ask(ledger, (worker, question)), b"x")
                    answered.append((worker, question))

        _together(work, 8)
        _expect(len(answered) == 10, f"40 requests against a budget for 10 got {len(answered)} answers")
        _expect(_spent(ledger) == _times(ledger, dataset=10, ana=10), "requests at the same time are not all booked")


def _one_at_once(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=10) as ledger:
        ran: list[int] = []
        answers: list[bytes | None] = []

        def work(worker: int) -> None:
            asked = _ask(ledger, 1)
            if asked.answer is None:
                ran.append(worker)
                asked = ledger.record(asked, str(worker).encode())
            answers.append(asked.answer)

        _together(work, 8)
        _expect(
            len(ran) == 1 and len(answers) == 8, "one question asked by many at once was run more than once, or lost"
        )
        _expect(len(set(answers)) == 1, "one question asked by many at once has several answers")
        _expect(_spent(ledger) == _times(ledger, dataset=1, ana=1), "one question asked by many at once was paid twice")


def _keeps_a_record(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=5) as ledger:
        asked = ledger.reserve(key=_key(1), account=ANA, loss=_loss(ledger), note={"sql": "SELECT 1"})
        ledger.record(asked, b"x")
        ledger.fail(_ask(ledger, 2, BOB), "cause")
        entries = tuple(ledger.entries())
        _expect([entry.seq for entry in entries] == list(range(1, len(entries) + 1)), "entries aren't numbered from 1")
        linked = all(entry.previous == last.hash for last, entry in pairwise(entries))
        _expect(linked and len({entry.hash for entry in entries}) == len(entries), "entries don't form a chain")
        receipt = ledger.find(_key(1))
        _expect(receipt == asked.receipt and receipt is not None, "a receipt can't be found by its question")
        _expect(
            asked.receipt.loss.to_json() == _loss(ledger).to_json(), "the loss on the receipt isn't the one charged"
        )
        told = [entry.kind.value for entry in ledger.entries(number=asked.receipt.number)]
        _expect(told == ["reserve", "answer"], "the log doesn't tell the story of a receipt")
        _expect(ledger.latest(3) == list(entries[-3:]), "the latest entries aren't the end of the log")
        alone = tuple(ledger.balance(balance.account) for balance in ledger.balances())
        _expect(alone == ledger.balances(), "a balance looked up alone is another than among all")
        _expect(ledger.balance(TEAM_MEMBER) is None, "an account that never paid has a balance")
        verified = ledger.verify()
        _expect(verified.balances == ledger.balances(), "the entries don't add up to the balances")
        _expect(verified.entries == len(entries) and verified.head == entries[-1].hash, "verify saw another log")


def _remembers(open_ledger: Open, name: str) -> None:
    with _ledger(open_ledger, name, questions=3) as ledger:
        ledger.record(_ask(ledger, 1), b"kept")
        _ask(ledger, 2)
        before = _state(ledger)
    with open_ledger(name) as ledger:
        _expect(_state(ledger) == before, "balances, limits or entries were forgotten when the ledger was closed")
        again = _ask(ledger, 1)
        _expect(
            again.answer == b"kept" and again.charged == Amount(), "an answer was forgotten when the ledger was closed"
        )
        left = _ask(ledger, 2)
        _expect(left.answer is None and left.charged == Amount(), "what was left open can't be redeemed at no cost")
        ledger.record(left, b"late")
        ledger.record(_ask(ledger, 3), b"x")
        _expect_raises(OutOfBudget, lambda: _ask(ledger, 4), "opening again gave back what was spent")
        ledger.verify()


def _together(work: Callable[[int], None], workers: int) -> None:
    problems: list[Exception] = []

    def guarded(worker: int) -> None:
        try:
            work(worker)
        except Exception as problem:  # noqa: BLE001 told by the thread that checks
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


Check = tuple[Callable[[Open, str], None], str, str]

CHECKS: tuple[Check, ...] = (
    (_charges_first, "charges before anything is run", "a charge booked with the answer"),
    (_pays_once, "each account pays once per question", "one payment too many or too few"),
    (_refuses_without_trace, "refusing changes nothing", "one unit beyond the limit, one entry more"),
    (_all_or_nothing, "all accounts pay or none", "one account charged alone, one digit told"),
    (_never_refunds, "nothing is refunded", "one failure given back"),
    (_lets_go, "a question that was given up is redeemed, not refunded", "one question stuck, one charge given back"),
    (_answers_once, "one question has one answer", "a second record of one question"),
    (_waits_for_the_living, "waits for who is at work", "one question given out twice"),
    (_limits_bind, "limits bind and reset nothing", "one unit given back"),
    (_any_sum_will_do, "any sum within its limit is enough, and all are charged", "one question more or fewer"),
    (_closes_a_sum, "a loss without a view closes that sum", "one question after it"),
    (_refuses_other_losses, "refuses losses it can't add", "one loss of another adjacency"),
    (_many_at_once, "many at once spend exactly", "eleven answers for ten"),
    (_one_at_once, "many at once get one answer", "one question run twice"),
    (_keeps_a_record, "keeps a record that adds up", "one entry missing or unlinked"),
)
DURABLE_CHECKS: tuple[Check, ...] = (
    (_remembers, "remembers everything when opened again", "one balance, limit or answer forgotten"),
)
