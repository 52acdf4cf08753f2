"""Who asks: the account that pays, what one question may cost, and what may be read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # a command that needs no more than the owner's name loads no ledger
    from dither.ledger import Account

# bound by the dataset's budget alone
OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """An analyst or the owner under one policy, looked up once for each thing that is asked.

    ``told`` is the account that they may know: their own; for an owner without a cap of their own, the dataset's.
    ``reads_all`` says whether they may read what others paid for; only the owner reads by whom it was.
    """

    name: str
    owner: bool
    account: Account
    told: Account
    most_epsilon: Fraction
    approval_above: Fraction | None
    reads_all: bool
