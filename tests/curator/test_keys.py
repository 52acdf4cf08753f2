"""The key of a question holds exact terms alone: the same question has the same name whatever the machine computes."""

import math

import pytest

import dither.curator.epsilon_to_currency as exchange
from dither.privacy.zcdp import zcdp_bought, zcdp_epsilon

QUESTIONS = [
    ("SELECT COUNT(*) AS n FROM orders", {"epsilon": 0.5}),
    ("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", {"epsilon": "1/3"}),
    ("SELECT SUM(amount) AS s FROM orders", {"error": 900}),
    ("SELECT SUM(amount) AS s, COUNT(*) AS n FROM orders", {"error": {"n": 50}, "confidence": 0.9}),
    ("SELECT AVG(amount) AS m, COUNT(*) AS n FROM orders", {"epsilon": 0.25, "weights": {"n": 3}}),
]


@pytest.mark.parametrize(("sql", "terms"), QUESTIONS)
def test_another_libm_finds_the_same_question(opened, monkeypatch, sql, terms):
    here = opened()
    first = here.curator.sql(sql, **terms)
    assert first.cost.charged
    # the last places of exp and log differ
    monkeypatch.setattr(exchange, "zcdp_bought", lambda e, d: (math.nextafter(zcdp_bought(e, d)[0], 0), e))
    monkeypatch.setattr(exchange, "zcdp_epsilon", lambda rho, d: math.nextafter(zcdp_epsilon(rho, d), 1e9))
    there = opened(ledger=here.ledger).curator
    again = there.sql(sql, **terms)
    assert not again.cost.charged
    assert again.table.equals(first.table)
    assert there.answer(first.receipt.number).table.equals(first.table)


def test_every_term_that_changes_the_noise_is_in_the_key(opened):
    sql = "SELECT AVG(amount) AS m, COUNT(*) AS n FROM orders"
    curator = opened().curator
    asked = [{"epsilon": 0.25}, {"epsilon": 0.26}]
    asked += [{"epsilon": 0.25, "weights": {"n": 3}}, {"epsilon": 0.25, "weights": {"n": 2}}]
    asked += [{"error": {"n": 50}}, {"error": {"n": 51}}, {"error": {"n": 50}, "confidence": 0.9}]
    keys = [curator.price(sql, **terms).key for terms in asked]
    keys.append(curator.price(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(delta = 1e-9) {sql[7:]}", epsilon=0.25).key)
    assert len(set(keys)) == len(keys)


def test_the_confidence_of_a_question_that_was_asked_by_epsilon_is_no_term(opened):
    curator = opened().curator
    sql = "SELECT COUNT(*) AS n FROM orders"
    one, other = (curator.price(sql, epsilon=0.5, confidence=confidence).key for confidence in (0.9, 0.99))
    assert one == other
    assert curator.price("SELECT count(*) AS total FROM orders ORDER BY total", epsilon="1/2").key == one
