"""Ledgers in files, and questions to put to them, for all tests of this directory."""

import hashlib

from dither.ledger import Account, Currency, SqliteLedger
from dither.privacy import Adjacency, PureLoss

SHOP, ANA, BOB = Account(("shop",)), Account(("shop", "ana")), Account(("shop", "bob"))
KEPT_FOR = {"currency": Currency.PURE, "adjacency": Adjacency.ADD_REMOVE, "unit": "each user_id", "dataset": "shop"}


def opened(place, **other):
    return SqliteLedger.open(place, **{**KEPT_FOR, "lock_timeout": 0.2, **other})


def key(question):
    return hashlib.sha256(str(question).encode()).hexdigest()


def ask(ledger, question, account=ANA, **more):
    return ledger.reserve(key=key(question), account=account, loss=PureLoss("1/8"), note={}, **more)


def answer(ledger, question, account=ANA):
    reservation = ask(ledger, question, account)
    return reservation if reservation.answer is not None else ledger.record(reservation, f"answer {question}".encode())
