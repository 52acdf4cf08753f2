"""The budget check: whether everybody who pays for a question can, or nobody is charged and OutOfBudget says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dither.errors import LedgerError, OutOfBudget
from dither.ledger.amount import Account, Amount, Sum
from dither.ledger.store.rows import AccountRow


def expect_fits(
    rows: Mapping[Account, AccountRow],
    path: Sequence[Account],
    payers: Sequence[Account],
    amount: Amount,
    counts: Mapping[str, int],
    sums: Sequence[Sum],
) -> tuple[AccountRow, ...]:
    """The rows of those who pay: all or nothing.

    What others have spent isn't told, so a sum is given for the asking account only: the one that leaves most.

    ``rows`` has those of the payers and of the dataset, with which ``path`` begins; it ends with who asks.
    """
    dataset, asking = path[0], path[-1]
    if rows[dataset].limit is None:
        raise LedgerError(f"the dataset {dataset} has no limit yet: state one before anything is spent")
    for payer in reversed(payers):
        limit, spent = rows[payer].limit, rows[payer].spent
        if limit is None or not rows[payer].charged(amount, counts, rows[dataset]).exceeds():
            continue
        if payer == asking and limit.allows(spent + amount):
            beyond = ", ".join(limit.exceeded(rows[payer].counted(counts)))
            raise OutOfBudget(f"the budget of {payer} has too little left of: {beyond}; nothing was spent")
        if payer == asking:
            place = limit.widest(spent, amount)
            raise OutOfBudget(
                f"the budget of {payer} doesn't allow this: it costs {amount.of_sum_in_words(place, sums)} and "
                f"{limit.after(spent).of_sum_in_words(place, sums)} is left; nothing was spent"
            )
        raise OutOfBudget(f"the budget of {payer} doesn't allow this; nothing was spent")
    return tuple(rows[payer] for payer in payers)
