"""Format 2 has room for what later versions fill in: its tables can't be changed any more.

What this version doesn't do yet is tried on the tables themselves; what it does, on a ledger.
"""

import sqlite3

import pytest

from dither.errors import InvalidParameter, LedgerError, OutOfBudget
from dither.ledger import Account, Amount, Currency, Limit, MemoryLedger
from dither.ledger.store.one_writer import connect
from dither.ledger.store.schema import create
from dither.mechanisms import Gaussian
from dither.privacy import PureLoss, Sensitivity, ZcdpLoss
from dither.privacy.unit import Unit

SHOP, ANA, BOB = Account(("shop",)), Account(("shop", "ana")), Account(("shop", "bob"))
KEYS = [f"{n:08x}" * 2 for n in range(20)]


@pytest.fixture
def tables():
    db = connect(":memory:")
    create(db)
    yield db
    db.close()


@pytest.fixture
def book():
    with MemoryLedger(currency=Currency.ZCDP) as ledger:
        ledger.set_limits({SHOP: Limit.zcdp(1)})
        yield ledger


def asked(book, place=0, account=ANA, loss=None, **more):
    given = book.reserve(key=KEYS[place], account=account, loss=loss or ZcdpLoss("1/100"), note={}, **more)
    return book.record(given, b"42") if given.answer is None else given


def account_of(db, spent, others, *, limit="5", other_limits="[10,10]"):
    db.execute(
        "INSERT INTO account(path, place, main_limit, delta_limit, other_limits, count_limits, others_spent) "
        f"VALUES('a', '{'0' * 64}', {limit}, 0, '{other_limits}', '{{}}', '[0,0]')"
    )
    db.execute(f"UPDATE account SET main_spent = {spent}, others_spent = '{others}'")


# ------------------------------------------------------------------ several sums, of which any may hold


@pytest.mark.parametrize(
    ("spent", "others"), [("5", "[99,99]"), ("9", "[10,99]"), ("9", "[null,10]"), ("NULL", "[10,null]")]
)
def test_one_sum_within_its_cap_is_enough_for_the_tables(tables, spent, others):
    account_of(tables, spent, others)


@pytest.mark.parametrize(
    ("spent", "others"), [("6", "[11,11]"), ("6", "[null,null]"), ("NULL", "[11,null]"), ("6", "[]")]
)
def test_beyond_all_caps_is_refused_by_the_tables_too(tables, spent, others):
    with pytest.raises(sqlite3.IntegrityError, match="within the limit"):
        account_of(tables, spent, others)


def test_a_sum_that_a_loss_closed_stays_closed(tables):
    account_of(tables, "NULL", "[1,1]")
    with pytest.raises(sqlite3.IntegrityError):
        tables.execute("UPDATE account SET main_spent = 1")


def test_any_sum_of_a_price_may_be_none(tables):
    tables.execute("INSERT INTO entry VALUES(1, '', 'a later kind', '{}', ?, ?)", ("0" * 64, "1" * 64))
    row = "'00000000', NULL, 0, '[1,null]', '{}', 1, NULL, '[]', 'reserved', 1, '', NULL, NULL, NULL"
    tables.execute(f"INSERT INTO question VALUES({row})")


def test_gaussian_noise_closes_the_sum_of_epsilon_alone(book):
    asked(book, 0, loss=PureLoss("1/10"))
    assert None not in book.balance(ANA).spent.others
    asked(book, 1, loss=Gaussian(scale=20).loss(Sensitivity.l2(1)))
    asked(book, 2, loss=PureLoss("1/10"))
    epsilon, *orders = book.balance(ANA).spent.others
    assert epsilon is None
    assert None not in orders
    book.verify()


def test_a_question_fits_while_any_sum_does_and_is_charged_on_all(book):
    """ρ alone has room for two of these, ε for three more, order 16 for one more after that."""
    loss = PureLoss("1/2")
    price = book.price(loss)
    orders = [0] * 8
    orders[4] = 6 * price.others[5]
    book.set_limits(
        {
            ANA: Limit.zcdp(1),
            BOB: Limit.zcdp(1),
            SHOP: Limit(2 * price.main, 0, Currency.ZCDP, (5 * price.others[0], *orders)),
        }
    )
    for place in range(6):
        asked(book, place, loss=loss, account=(ANA, BOB)[place % 2])
        assert book.balance(SHOP).spent == (place + 1) * price
    before = book.balances()
    with pytest.raises(OutOfBudget):
        asked(book, 6, loss=loss)
    assert book.balances() == before
    assert book.verify().balances == before
    left = book.balance(SHOP).remaining
    assert (left.main, left.others) == (0, (0,) * 9)


def test_each_account_of_a_lineage_accepts_by_its_own_sums(book):
    """The analyst's ρ has room and the dataset's ε has: neither has both."""
    book.set_limits({SHOP: Limit.zcdp(0, 0, (10**12,)), ANA: Limit.zcdp(1, 0, (0,)), BOB: Limit.zcdp(0, 0, (0,))})
    asked(book, 0, loss=PureLoss("1/2"))
    for account, loss in [(ANA, ZcdpLoss("1/100")), (ANA, PureLoss("2/3")), (BOB, PureLoss("1/9"))]:
        before = book.balances()
        with pytest.raises(OutOfBudget):
            asked(book, 1, account=account, loss=loss)
        assert book.balances() == before
    asked(book, 1, loss=PureLoss("1/2"))
    book.verify()


def test_a_raised_limit_opens_the_sum_of_epsilon_again_unless_noise_closed_it(book):
    book.set_limits({SHOP: Limit.zcdp(1, 0, (10**12,))})
    asked(book, 0, loss=PureLoss(1))
    asked(book, 1, loss=ZcdpLoss("1/10"), account=BOB)
    with pytest.raises(OutOfBudget):
        asked(book, 2, loss=PureLoss(1))
    book.set_limits({SHOP: Limit.zcdp(1, 0, (9 * 10**12,))})
    with pytest.raises(OutOfBudget):
        asked(book, 2, loss=PureLoss(1))


def test_a_refusal_tells_the_sum_that_leaves_most(book):
    book.set_limits({ANA: Limit.zcdp("1/100", 0, (10**12,))})
    asked(book, 0, loss=PureLoss("3/4"))
    with pytest.raises(OutOfBudget, match=r"it costs ε = 0\.5, δ = 0 and ε = 0\.25, δ = 0 is left"):
        asked(book, 1, loss=PureLoss("1/2"))
    with pytest.raises(OutOfBudget, match=r"it costs ρ = 0\.02, δ = 0 and ρ = 0, δ = 0 is left"):
        asked(book, 1, loss=ZcdpLoss("1/50"))


def test_what_is_beyond_all_numbers_is_refused_whichever_sum_has_room(book):
    book.set_limits({SHOP: Limit.zcdp(1, 0, (0, 10**18))})
    huge = Amount(10**18 + 1, 0, (0, 1))
    assert not book.balance(SHOP).limit.allows(huge)


# ------------------------------------------------------------------ limits that answers may have chosen


def test_a_limit_that_is_changed_after_spending_is_counted_up_or_down(book):
    for restated, rho in [(0, "1"), (0, "2"), (0, "1/2")]:
        book.set_limits({SHOP: Limit.zcdp(rho)})
        assert (book.balance(SHOP).restated, book.balance(SHOP).limit) == (restated, Limit.zcdp(rho))
    asked(book)
    for restated, rho in [(0, "1/2"), (1, "1/4"), (2, "1/2"), (3, "3")]:
        book.set_limits({SHOP: Limit.zcdp(rho)})
        assert (book.balance(SHOP).restated, book.balance(SHOP).limit) == (restated, Limit.zcdp(rho))
    book.set_limits({ANA: Limit.zcdp(1)})
    assert book.balance(ANA).restated == 1
    book.verify()


def test_the_last_places_of_a_limit_are_those_of_a_platform(book):
    limit = Limit.zcdp("0.175696284735", "1e-7", (3 * 10**12,))
    book.set_limits({SHOP: limit})
    asked(book)
    entries = len(list(book.entries()))
    book.set_limits({SHOP: Limit(limit.main + 1, limit.delta, Currency.ZCDP, (3 * 10**12 + 2,))})
    assert len(list(book.entries())) == entries
    assert book.balance(SHOP).limit == limit
    for restated, other in [
        (1, Limit(limit.main + 2, limit.delta, Currency.ZCDP, limit.others)),
        (2, Limit(limit.main + 2, limit.delta + 1, Currency.ZCDP, limit.others)),
        (3, Limit(limit.main + 2, limit.delta + 1, Currency.ZCDP, (3 * 10**12 + 9,))),
    ]:
        book.set_limits({SHOP: other})
        assert book.balance(SHOP).restated == restated


def test_sums_that_are_stated_for_the_first_time_change_no_limit(book):
    asked(book)
    book.set_limits({SHOP: Limit.zcdp(1, 0, (10**12,))})
    assert (book.balance(SHOP).restated, book.balance(SHOP).limit.others) == (0, (10**12,))
    book.set_limits({SHOP: Limit.zcdp(1, 0, (2 * 10**12,))})
    assert book.balance(SHOP).restated == 1


# ------------------------------------------------------------------ counts without an ε


def test_counts_are_added_up_and_limited(book):
    book.set_limits({ANA: Limit(10**12, 0, Currency.ZCDP, counts={"hits": 3})})
    nothing = PureLoss(0)
    for place in range(3):
        asked(book, place, loss=nothing, counts={"hits": 1, "epochs": 2})
    before = book.balance(ANA)
    assert (before.counts, before.spent.main) == ({"hits": 3, "epochs": 6}, 0)
    with pytest.raises(OutOfBudget, match="hits"):
        asked(book, 3, loss=nothing, counts={"hits": 1})
    assert book.balance(ANA) == before
    asked(book, 4, loss=nothing, counts={"epochs": 1})
    assert asked(book, 0, loss=nothing, counts={"hits": 1}).replayed
    assert book.balance(ANA).counts == {"hits": 3, "epochs": 7}
    book.verify()


def test_whoever_pays_later_counts_what_the_question_does(book):
    book.set_limits({BOB: Limit(10**12, 0, Currency.ZCDP, counts={"hits": 1})})
    for place in range(2):
        asked(book, place, counts={"hits": 1})
    asked(book, 0, account=BOB)
    assert (book.balance(BOB).counts, book.balance(SHOP).counts) == ({"hits": 1}, {"hits": 2})
    with pytest.raises(OutOfBudget, match="hits"):
        asked(book, 1, account=BOB)
    book.verify()


@pytest.mark.parametrize("counts", [{"hits": 0}, {"hits": -1}, {"hits": True}, {"hits": 1.0}, {1: 1}, ["hits"]])
def test_counts_are_whole(book, counts):
    with pytest.raises(InvalidParameter):
        asked(book, counts=counts)


# ------------------------------------------------------------------ entries that continue a receipt


def test_an_answered_question_can_be_continued_by_whoever_paid(book):
    first = asked(book).receipt
    second = asked(book, 1, continues=first.seq).receipt
    asked(book, 2, continues=second.seq)
    of_bob = asked(book, 0, account=BOB).receipt
    asked(book, 3, account=BOB, continues=of_bob.seq)
    open_one = book.reserve(key=KEYS[4], account=ANA, loss=ZcdpLoss("1/100"), note={})
    for account, seq in [(BOB, first.seq), (ANA, of_bob.seq), (ANA, open_one.receipt.seq), (ANA, 1), (ANA, 10**6)]:
        with pytest.raises(LedgerError, match="continued"):
            asked(book, 9, account=account, continues=seq)
    continued = [entry.body.get("continues") for entry in book.entries() if entry.kind.value == "reserve"]
    assert continued == [None, first.seq, second.seq, of_bob.seq, None]
    book.verify()


def test_what_is_continued_and_by_what_is_looked_up_however_long_the_log_is(tables):
    for query in ("SELECT * FROM entry WHERE seq = 1", "SELECT * FROM question WHERE continues = 1"):
        plan = " ".join(row[-1] for row in tables.execute(f"EXPLAIN QUERY PLAN {query}"))
        assert plan.startswith("SEARCH"), plan


@pytest.mark.parametrize("table", ["account", "question", "seal"])
def test_every_reference_has_an_index(tables, table):
    """References are deferred; without an index each new entry is looked for in all rows: 140 ms for half a million."""
    indexed = {
        tables.execute(f"PRAGMA index_info({index[1]})").fetchone()[2]
        for index in tables.execute(f"PRAGMA index_list({table})").fetchall()
    }
    assert {reference[3] for reference in tables.execute(f"PRAGMA foreign_key_list({table})")} <= indexed


# ------------------------------------------------------------------ units


def test_a_unit_may_have_several_columns_and_later_ways_are_named(book):
    book.bind({"orders": Unit(("shop", "customer"))})
    assert book.units == {"orders": Unit(("shop", "customer"))}
    for later in ({"columns": [], "expression": "lower(mail)"}, {"columns": ["id"], "path": [["orders", "customer"]]}):
        with pytest.raises(InvalidParameter, match="later version"):
            Unit.from_json(later)
