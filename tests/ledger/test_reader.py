"""Looking something up doesn't wait for commits, sees what was committed, and stops with the ledger."""

import os
import threading

import pytest

from dither.errors import LedgerError
from dither.ledger import Account, Currency, Limit, MemoryLedger, SqliteLedger
from dither.privacy import Adjacency, PureLoss

SHOP, ANA = Account(("shop",)), Account(("shop", "ana"))


@pytest.fixture
def opened(tmp_path):
    books = []

    def make():
        book = SqliteLedger.open(
            tmp_path / "l",
            currency=Currency.PURE,
            adjacency=Adjacency.ADD_REMOVE,
            unit="each id",
            dataset="shop",
            head=tmp_path / "h",
        )
        books.append(book)
        return book

    yield make
    for book in books:
        book.close()


def ask(book, key):
    return book.record(book.reserve(key=key, account=ANA, loss=PureLoss("1/8"), note={}), b"x")


def test_a_look_needs_no_turn_of_the_writer(opened):
    book = opened()
    book.set_limits({SHOP: Limit.pure(1)})
    ask(book, "c0ffee00")
    found = []

    def look():
        found.append((book.balance(ANA).spent.main, book.paid("c0ffee00", ANA), book.find("c0ffee01"), book.version()))

    with book._writer.turn:
        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(30)
        assert not looking.is_alive()
    assert found[0][:3] == (10**12 // 8, True, None)


def test_the_version_changes_with_every_change_by_whoever(opened):
    one, two = opened(), opened()
    one.set_limits({SHOP: Limit.pure(1)})
    seen = [one.version()]
    assert one.version() == seen[0]
    ask(one, "c0ffee00")
    seen.append(one.version())
    ask(two, "c0ffee01")
    seen.append(one.version())
    two.set_limits({ANA: Limit.pure("1/2")})
    seen.append(one.version())
    assert len(set(seen)) == len(seen)
    assert (one.balance(ANA).spent.main, one.balance(ANA).limit) == (10**12 // 4, Limit.pure("1/2"))
    # replaying an answer changes nothing
    assert ask_again(one, "c0ffee01") == b"x"
    assert one.version() == seen[-1]


def ask_again(book, key):
    return book.reserve(key=key, account=ANA, loss=PureLoss("1/8"), note={}).answer


def test_in_memory_too():
    with MemoryLedger(dataset="shop") as book:
        book.set_limits({SHOP: Limit.pure(1)})
        before = book.version()
        assert book.version() == before
        ask(book, "c0ffee00")
        assert book.version() != before


def test_nothing_is_looked_up_in_a_closed_ledger_or_a_forked_child(opened):
    book = opened()
    book.set_limits({SHOP: Limit.pure(1)})
    assert book.balance(SHOP).spent.main == 0
    child = os.fork()
    if child == 0:
        try:
            book.balance(SHOP)
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ask(book, "c0ffee00")
    assert book.balance(ANA).spent.main == 10**12 // 8
    book.close()
    book.close()
    for look in (lambda: book.balance(SHOP), lambda: book.paid("c0ffee00", ANA), book.version):
        with pytest.raises(LedgerError):
            look()
