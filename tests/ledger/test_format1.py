"""Ledgers as dither 0.1.0 wrote them: read for ever, verified, and upgraded on request; what was paid stays paid.

The files under format1 were written by 0.1.0: the same questions, with a pure budget, with a δ, and with the unit
column changed between two questions; and one with an error for a column, and bounds that aren't multiples of the step.
"""

import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither as dp
from dither.curator.past import records
from dither.errors import LedgerCorrupt, LedgerMismatch, LedgerOutdated, LedgerRolledBack
from dither.ledger import Account, Amount
from dither.ledger.head import HeadFile, HeadMark
from dither.ledger.log.replay import Replay
from dither.policy import Policy
from dither.privacy.unit import Unit
from dither.privacy.zcdp import zcdp_epsilon

KEPT = Path(__file__).parent / "format1"
ASKED = [
    ("SELECT COUNT(*) AS n FROM shop", {"epsilon": 0.5}, "ana"),
    ("SELECT count(*) AS many FROM shop", {"epsilon": "1/2", "confidence": 0.9}, "ana"),
    ("SELECT city, COUNT(*) AS n FROM shop GROUP BY city", {"epsilon": "1/3"}, "ana"),
    ("SELECT COUNT(*) AS n, city FROM shop GROUP BY city ORDER BY n", {"epsilon": "1/3"}, "bob"),
    ("SELECT SUM(amount) AS s FROM shop WHERE city = 'Bern'", {"error": 5000}, "bob"),
    ("SELECT AVG(amount) AS m, COUNT(*) AS n FROM shop", {"epsilon": 0.25, "weights": {"n": 3}}, "ana"),
]


@pytest.fixture
def shop(tmp_path):
    def make(name):
        place = tmp_path / name
        shutil.copytree(KEPT / name, place)
        for file in place.iterdir():
            file.chmod(0o600)
        count = range(400)
        columns = {
            "user_id": [i // 2 for i in count],
            "film_id": [i % 37 for i in count],
            "pieces": [i % 5 for i in count],
            "city": [("Bern", "Basel")[i % 2] for i in count],
            "tag": [("a", "b")[i % 2] for i in count],
            "amount": [float(i % 90) for i in count],
        }
        pq.write_table(pa.table(columns), place / "shop.parquet")
        return place / "dither.toml"

    return make


def spent_in(place):
    db = sqlite3.connect(place.parent / "ledger.db")
    try:
        return dict(db.execute("SELECT path, main_spent FROM account"))
    finally:
        db.close()


@pytest.mark.parametrize("name", ["pure", "zcdp"])
def test_it_is_read_without_being_changed(shop, name):
    place = shop(name)
    before = (place.parent / "ledger.db").read_bytes()
    policy = Policy.load(place)
    found, words = records.verify(policy)
    assert found.format == 1
    assert len(words) == 3
    assert [record.what for record in records.latest(policy, 2)] == ["reserve", "answer"]
    # the rest as it would be after upgrading
    with records.ledger_to_look_at(policy) as book:
        assert {balance.account: balance.spent.main for balance in book.balances()} == {
            Account(tuple(eval(path))): main for path, main in spent_in(place).items()
        }
    with pytest.raises(LedgerOutdated, match="dither ledger upgrade"):
        dp.Curator.open(place)
    assert (place.parent / "ledger.db").read_bytes() == before


@pytest.mark.parametrize("name", ["pure", "zcdp"])
def test_what_was_paid_stays_paid(shop, name):
    place = shop(name)
    before = spent_in(place)
    found = records.upgrade(Policy.load(place))
    assert found.format == 2
    assert spent_in(place) == before
    asked = [
        *ASKED,
        *([("SELECT tag, COUNT(*) AS n FROM shop GROUP BY tag", {"epsilon": 1}, "bob")] if "z" in name else []),
    ]
    with dp.Curator.open(place) as curator:
        for sql, terms, analyst in asked:
            assert curator.price(sql, analyst=analyst, **terms).free, sql
            answer = curator.sql(sql, analyst=analyst, **terms)
            assert not answer.cost.charged, sql
        for past in curator.answers().items:
            assert curator.answer(past.number).receipt.number == past.number
        assert spent_in(place) == before
        # what wasn't asked costs, and goes on in the same ledger
        assert curator.sql("SELECT COUNT(*) AS n FROM shop", epsilon=0.6, analyst="ana").cost.charged
        curator.verify()
    assert spent_in(place) != before


def test_all_sums_are_recomputed_from_the_losses(shop):
    place = shop("zcdp")
    records.upgrade(Policy.load(place))
    with dp.Curator.open(place) as curator:
        assert [one.quantity.value for one in curator.ledger.sums] == ["rho", "epsilon"]
        assert [one.share for one in curator.ledger.sums] == [1, 0]
        # Gaussian noise has no pure ε, which closes that sum for good
        assert all(balance.spent.others == (None,) for balance in curator.ledger.balances())
        # no orders to read what was spent so far by, so the guarantee is that of the cap
        assert curator.guarantee("ana").epsilon == 4
        (line,) = curator.budget("ana")
        assert 0 < line.epsilon_spent < 4


def test_an_upgraded_ledger_goes_on_by_rho_and_where_no_loss_closed_it_by_epsilon(shop):
    """All of δ stays ρ's; the sum of ε takes none of it."""
    place = shop("zcdp")
    records.upgrade(Policy.load(place))
    with dp.Curator.open(place) as curator:
        curator.sql("SELECT COUNT(*) AS n FROM shop WHERE amount > 7", epsilon=0.1, analyst="bob")
        whole, ana = curator.ledger.balance(Account(("shop",))), curator.ledger.balance(Account(("shop", "ana")))
        assert (len(whole.limit.others), whole.limit.others[0]) == (1, 8 * 10**12)
        assert whole.spent.others == ana.spent.others == (None,)
        assert whole.restated == 0
        # for ε of 8 the whole half of δ, not nine tenths of it
        assert zcdp_epsilon(whole.limit.main / 1e12, 5e-7) == pytest.approx(8, abs=1e-6)
        zoe = curator.ledger.balance(Account(("shop", "zoe")))
        assert zoe is None
        curator.verify()


class Training:
    """A sampled training run: ε = 2.12 at 1e-6, and a ρ of 500."""

    table, columns, rows = "shop", ("amount",), 2

    def __init__(self, scale=1):
        self.scale = scale

    def loss(self):
        return 1000 * dp.poisson(dp.Gaussian(self.scale).loss(dp.Sensitivity.l2(1)), rate=0.01)

    def key(self):
        return f"a training run, noise {self.scale}"

    def release(self, table):
        return {"rows": 0}


def test_an_upgraded_ledger_books_computations_on_the_sums_that_it_has(shop):
    """It has no orders, which are all that the run's own sums would leave; from its curve it fits by ε or ρ."""
    place = shop("zcdp")
    place.write_text(place.read_text(encoding="utf-8").replace("[budget]", "[budget]\nmax_epsilon_per_query = 4"))
    records.upgrade(Policy.load(place))
    with dp.Curator.open(place) as curator:
        quote = curator.price_run(Training())
        own, curve = quote.bookings
        assert quote.booking is curve
        assert (own.closes, own.fills, own.open, own.fits) == (("ε",), ("ρ",), (), False)
        # the questions of 0.1.0 had Gaussian noise, which closed the sum of ε before
        assert (curve.closes, curve.fills, curve.open, curve.fits) == ((), ("ρ",), (), False)
        for delta in (None, 0):
            with pytest.raises(dp.OutOfBudget):
                curator.run(Training(), delta=delta)
        small = Training(scale=8)
        quote = curator.price_run(small)
        own, curve = quote.bookings
        assert (own.fits, own.fills, curve.fits, curve.open) == (False, ("ρ",), True, ("ρ",))
        before = curator.ledger.balance(Account(("shop",))).spent
        curator.run(small)
        after = curator.ledger.balance(Account(("shop",))).spent
        assert after.delta - before.delta == round(quote.delta * 10**18)
        assert (after.main - before.main) / 1e12 == pytest.approx(curve.rho)
        curator.verify()


def test_it_is_bound_to_the_unit_that_its_charges_state(shop):
    place = shop("zcdp")
    records.upgrade(Policy.load(place))
    with dp.Curator.open(place) as curator:
        assert curator.ledger.units == {"shop": Unit(("user_id",))}
    place.write_text(place.read_text().replace('privacy_unit_column = "user_id"', 'privacy_unit_column = "film_id"'))
    with pytest.raises(LedgerMismatch, match="rebind"):
        dp.Curator.open(place)


def test_a_unit_that_was_changed_under_it_is_told(shop):
    place = shop("unit_changed")
    policy = Policy.load(place)
    with pytest.raises(LedgerMismatch, match=r'entry 3 was charged for each "film_id", entry 14 for each "user_id"'):
        records.upgrade(policy)
    with pytest.raises(LedgerMismatch, match="neither of them"):
        records.ledger_to_look_at(policy)
    # what was charged can still be read
    assert len(records.latest(policy, 100)) == records.verify(policy)[0].entries
    assert records.upgrade(policy, rebind=True).rebound == 1
    with dp.Curator.open(place) as curator:
        assert curator.ledger.units == {"shop": Unit(("user_id",))}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET main_spent = 0",
        "UPDATE question SET state = 'failed', answered = NULL, answer = NULL",
        "UPDATE question SET answer = x'00'",
        "DELETE FROM payment",
    ],
)
def test_one_that_was_edited_is_not_upgraded(shop, statement):
    place = shop("zcdp")
    db = sqlite3.connect(place.parent / "ledger.db", isolation_level=None)
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(statement)
    for _, sql in triggers:
        db.execute(sql)
    db.close()
    policy = Policy.load(place)
    with pytest.raises(LedgerCorrupt):
        records.verify(policy)
    with pytest.raises(LedgerCorrupt):
        records.upgrade(policy)


def test_an_error_is_the_same_under_every_spelling(shop):
    place = shop("terms")
    records.upgrade(Policy.load(place))
    with dp.Curator.open(place) as curator:
        for sql, error in [("COUNT(*) AS n", {"n": 200}), ("count(*) AS m", {"m": "200.0"}), ("COUNT(*) AS n", 200)]:
            found = curator.sql(f"SELECT {sql} FROM shop", error=error, analyst="ana")
            assert not found.cost.charged
            assert found.table.column(0).to_pylist() == [463]
        assert curator.price("SELECT COUNT(*) AS n FROM shop", error=201, analyst="ana").free is False


def test_what_was_answered_on_other_bounds_is_not_todays_answer(shop):
    """0.1.0 rounded stated bounds inwards to the step: its answer is kept under its receipt, and says so."""
    place = shop("terms")
    records.upgrade(Policy.load(place))
    summed = "SELECT SUM(pieces * 60, contribution_bounds_per_row => (0, {})) AS s FROM shop"
    with dp.Curator.open(place) as curator:
        assert curator.price(summed.format(120), epsilon=0.5, analyst="ana").free
        assert not curator.price(summed.format(100), epsilon=0.5, analyst="ana").free
        found = {past.sql: curator.answer(past.number) for past in curator.answers().items}
        old = found[summed.format(100)]
        assert old.table.column("s").to_pylist() == [19380]
        assert "inwards" in old.notes[0]
        assert not any("inwards" in note for note in found[summed.format(120)].notes)
        # the truth is 27,200 on these bounds, and 19,200 on those of then
        new = curator.sql(summed.format(100), epsilon=0.5, analyst="ana")
        assert new.cost.charged
        assert not any("inwards" in note for note in new.notes)


def rolled_back(place, at):
    """The ledger as it was, with a head that knows of an entry more than it has."""
    head = HeadFile(place.parent / "head")
    known = head.read()
    head.replace(HeadMark(known.ledger, known.seq + at, "0" * 64))


@pytest.mark.parametrize("spoil", ["behind", "missing"])
def test_one_that_its_head_knows_better_is_adopted_or_left_alone(shop, spoil):
    """As it is neither read nor upgraded; adopting upgrades it, and says in the log that there was no proof."""
    place = shop("zcdp")
    if spoil == "missing":
        (place.parent / "head").unlink()
    else:
        rolled_back(place, 2)
    policy, before = Policy.load(place), (place.parent / "ledger.db").read_bytes()
    for attempt in (records.upgrade, records.ledger_to_look_at, records.verify, lambda rules: records.latest(rules, 5)):
        with pytest.raises(LedgerRolledBack, match="adopt"):
            attempt(policy)
    assert (place.parent / "ledger.db").read_bytes() == before
    found, _ = records.verify(policy, adopt=True)
    assert (found.adopted, found.format) == (1, 2)
    with dp.Curator.open(place) as curator:
        sql, terms, analyst = ASKED[0]
        assert not curator.sql(sql, analyst=analyst, **terms).cost.charged


def test_one_that_has_the_present_format_is_left_alone(shop):
    policy = Policy.load(shop("zcdp"))
    assert records.upgrade(policy).entries > 1
    assert records.upgrade(policy) is None


def test_prices_that_were_computed_elsewhere_stay_those_of_the_upgrade(shop, monkeypatch):
    """Another mathematical library may round the last places of a loss otherwise."""
    policy, price = Policy.load(shop("zcdp")), Replay._price

    def on_a_machine(epsilon):
        def priced(self, entry):
            found = price(self, entry)
            return Amount(found.main, found.delta, (epsilon,))

        return priced

    monkeypatch.setattr(Replay, "_price", on_a_machine(10**12))
    upgraded = records.upgrade(policy)
    assert upgraded.balances[0].spent.others == (5 * 10**12,)
    monkeypatch.setattr(Replay, "_price", on_a_machine(10**12 - 1))
    assert records.verify(policy)[0] == upgraded
    # what is more than a last place is noticed
    monkeypatch.setattr(Replay, "_price", on_a_machine(10**12 + 10))
    with pytest.raises(LedgerCorrupt, match="charges less than its loss"):
        records.verify(policy)


def test_the_cap_and_what_was_spent_so_far_are_named(shop, fresh, monkeypatch):
    place = shop("zcdp")
    monkeypatch.chdir(place.parent)
    assert fresh("ledger", "upgrade").status == 0
    told = " ".join(fresh("budget").out.split())
    assert "by levels, for a δ of its own" in told
    again = fresh("ledger", "upgrade")
    assert "has the present format already" in again.out


def test_a_ledger_that_began_in_format_2_has_no_levels(tmp_path, shop, fresh, monkeypatch):
    place = shop("zcdp")
    monkeypatch.chdir(place.parent)
    for name in ("ledger.db", "head"):
        (place.parent / name).unlink()
    assert fresh("ask", "SELECT COUNT(*) AS n FROM shop", "--epsilon", "0.5").status == 0
    assert "levels" not in fresh("budget").out
