"""A ledger is bound to the units that were charged for: another unit is refused, unless the owner rebinds."""

import pytest

import dither as dp
from dither.curator import drafts
from dither.curator.past import records
from dither.errors import LedgerMismatch
from dither.ledger import Limit, MemoryLedger
from dither.ledger.amount import units_in_note
from dither.policy import Policy
from dither.privacy.unit import Unit

from .files import SHOP, answer, opened

USER, FILM, ROW = Unit(("userId",)), Unit(("movieId",)), Unit()


def test_a_ledger_is_bound_once_and_for_all(place):
    with opened(place) as ledger:
        ledger.bind({"ratings": USER})
        ledger.set_limits({SHOP: Limit.pure(1)})
        answer(ledger, 1)
        # the same again, and one that only looks, write nothing
        entries = len(list(ledger.entries()))
        ledger.bind({"ratings": USER})
        ledger.bind({"tags": USER}, note=False)
        assert len(list(ledger.entries())) == entries
        for other in ({"ratings": FILM}, {"ratings": ROW}, {"ratings": Unit(("userId", "movieId"))}, {"films": FILM}):
            for note in (True, False):
                with pytest.raises(LedgerMismatch, match="rebind"):
                    ledger.bind(other, note=note)
        assert len(list(ledger.entries())) == entries
    with opened(place) as ledger:
        assert ledger.units == {"ratings": USER}


def test_a_further_table_of_the_same_unit_is_no_change(place):
    with opened(place) as ledger:
        ledger.bind({"ratings": USER})
        ledger.bind({"ratings": USER, "tags": USER})
        ledger.bind({"tags": USER})  # a table that is left out of the policy stays bound
        assert ledger.units == {"ratings": USER, "tags": USER}
        with pytest.raises(LedgerMismatch):
            ledger.bind({"ratings": FILM, "tags": USER})
        assert ledger.verify().rebound == 0


def test_rebinding_is_the_owners_word_and_is_counted(place):
    with opened(place) as ledger:
        ledger.bind({"ratings": FILM})
        ledger.bind({"ratings": USER}, rebind=True)
        assert ledger.units == {"ratings": USER}
        assert ledger.verify().rebound == 1
    with opened(place) as ledger:
        assert ledger.units == {"ratings": USER}
        assert ledger.verify().rebound == 1


def test_units_of_notes_are_read_as_they_were_written():
    note = {"units": 'each "user \\"id\\"" of table "or, ders", each row of table "x"; against adding (add_remove)'}
    assert units_in_note(note) == {"or, ders": Unit(('user "id"',)), "x": Unit()}
    assert units_in_note({}) == units_in_note(None) == {}


# ------------------------------------------------------------------ through the curator

POLICY = """
[source]
database = "ratings.duckdb"
[budget]
epsilon_budget = 5.0
{delta}
[tables.ratings]
private = true
privacy_unit_column = "{unit}"
max_rows_contributed = 5
columns.userId = {{ type = "integer" }}
columns.movieId = {{ type = "integer" }}
"""


@pytest.fixture
def policy(tmp_path):
    import duckdb

    with duckdb.connect(str(tmp_path / "ratings.duckdb")) as db:
        db.execute("CREATE TABLE ratings AS SELECT i % 50 AS userId, i % 7 AS movieId FROM range(200) t(i)")
    place = tmp_path / "dither.toml"

    def write(unit, delta="delta_budget = 1e-6"):
        place.write_text(POLICY.format(unit=unit, delta=delta))
        return place

    return write


@pytest.mark.parametrize("delta", ["", "delta_budget = 1e-6"])
def test_what_was_spent_on_films_is_not_told_for_people(policy, delta):
    with dp.Curator.open(policy("movieId", delta)) as curator:
        curator.sql("SELECT COUNT(*) AS n FROM ratings", epsilon=1)
    place = policy("userId", delta)
    with pytest.raises(LedgerMismatch, match='each "movieId" of table'):
        dp.Curator.open(place)
    with pytest.raises(LedgerMismatch):
        records.ledger_to_look_at(Policy.load(place))
    with pytest.raises(LedgerMismatch):
        drafts.check(place)
    records.rebind(Policy.load(place))
    drafts.check(place)
    with dp.Curator.open(place) as curator:
        assert curator.guarantee().epsilon > 0.5
        curator.verify()


def test_until_something_is_charged_the_unit_may_be_changed(policy):
    with dp.Curator.open(policy("movieId")) as curator:
        curator.price("SELECT COUNT(*) AS n FROM ratings", epsilon=1)
    with dp.Curator.open(policy("userId")) as curator:
        curator.sql("SELECT COUNT(*) AS n FROM ratings", epsilon=1)
        assert curator.ledger.units == {"ratings": USER}


def test_a_curator_that_was_opened_before_tells_no_others_spending(policy):
    with dp.Curator.open(policy("movieId")) as early:
        assert early.guarantee().epsilon < 1e-6
        with dp.Curator.open(policy("userId")) as later:
            later.sql("SELECT COUNT(*) AS n FROM ratings", epsilon=1)
        for told in (early.guarantee, early.budget, lambda: early.sql("SELECT COUNT(*) AS n FROM ratings", epsilon=1)):
            with pytest.raises(LedgerMismatch, match='each "userId" of table'):
                told()


def test_a_ledger_that_is_given_is_bound_too(policy):
    ledger = MemoryLedger(currency=dp.ledger.Currency.ZCDP, unit="each id", dataset="ratings")
    ledger.bind({"ratings": FILM})
    with pytest.raises(LedgerMismatch):
        dp.Curator.open(policy("userId"), ledger=ledger)
