"""Questions for public values alone are free, and answers without a group say how large one would have to be."""

import pytest

from dither.curator.terms import Terms
from dither.errors import Refused

CITIES = [{"city": "Basel"}, {"city": "Bern"}, {"city": "Zug"}]


@pytest.mark.parametrize("delta", ["0", "1e-6"])
@pytest.mark.parametrize("sql", ["SELECT DISTINCT city FROM orders", "SELECT city FROM orders GROUP BY city"])
def test_public_values_are_listed_free_and_without_terms(opened, sql, delta):
    here = opened(delta=delta)
    entries = len(list(here.ledger.entries()))
    for terms in ({}, {"epsilon": 0.5}):
        quote = here.curator.price(sql, **terms)
        assert quote.free
        assert quote.fits
        assert (quote.epsilon, quote.delta) == (0, 0)
        assert "nothing" in str(quote)
        answer = here.curator.sql(sql, **terms)
        assert answer.to_pylist() == CITIES
        assert answer.receipt is None
        assert str(answer.cost) == "nothing"
        assert any("free" in note for note in answer.notes)
        assert quote.schema == answer.table.schema
    assert here.engine.runs == 0
    assert len(list(here.ledger.entries())) == entries


def test_a_list_has_order_limit_and_expressions(opened):
    curator = opened().curator
    rows = curator.sql(
        "SELECT DISTINCT upper(city) AS c, pieces FROM orders WHERE pieces > 6 ORDER BY c DESC, 2 LIMIT 3"
    ).to_pylist()
    assert rows == [{"c": "ZUG", "pieces": 7}, {"c": "ZUG", "pieces": 8}, {"c": "BERN", "pieces": 7}]
    assert curator.sql("EXPLAIN PRIVACY SELECT DISTINCT city FROM orders").table.num_rows == 1


def test_a_list_needs_no_budget_and_no_approval(opened):
    here = opened(budget="0.5", most="0.25", more="needs_approval_above = 0.01")
    ana = here.curator.analyst("ana")
    assert ana.sql("SELECT DISTINCT city FROM orders", Terms.of(epsilon=0.2)).to_pylist() == CITIES


def test_values_that_come_from_the_data_have_a_price(opened):
    curator = opened().curator
    with pytest.raises(Refused, match="how much ε"):
        curator.sql("SELECT DISTINCT item FROM orders")
    assert curator.sql("SELECT DISTINCT item FROM orders", epsilon=5).receipt is not None


def test_where_no_group_is_shown_the_answer_says_how_large_one_must_be(opened):
    curator = opened().curator
    sql = "SELECT item, amount, COUNT(*) AS n FROM orders GROUP BY ALL"
    answer = curator.sql(sql, epsilon=0.05)
    assert answer.table.num_rows == 0
    enough = curator.price(sql, epsilon=0.05).priced.selection.enough
    note = next(note for note in answer.notes if note.startswith("no group reached"))
    assert f"about {enough:,} people" in note
    for way in ("coarser keys", "larger ε", "in = [...]"):
        assert way in note
    assert note in curator.answer(answer.receipt.number).notes
    shown = curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city HAVING COUNT(*) > 1e9", epsilon=0.5)
    assert shown.table.num_rows == 0
    assert not any("no group reached" in note for note in shown.notes)
