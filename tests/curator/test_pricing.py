"""Prices as people read them: rates of exchange, quotes, budget lines, and what an analyst may ask for."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dither.curator import Terms
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.price.pricing import TRIALS, on_step, with_bounds
from dither.errors import InvalidParameter, Refused
from dither.ledger import Amount, Currency
from dither.privacy import PureLoss, ZcdpLoss
from dither.privacy.zcdp import zcdp_epsilon
from dither.query.kinds import Interval, Kind
from dither.query.price.auto_bounds import BINS, NOTHING_FOUND, edges
from dither.query.schema import ColumnFacts

SQL = "SELECT city, COUNT(*) AS n, AVG(amount) AS m, 2 * COUNT(*) AS twice, 'x' AS c FROM orders GROUP BY city"


def asked(**changes):
    return Terms.of(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": 1, "error": 2}, "not both"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "x"}, "epsilon"),
        ({"error": -1}, "error"),
        ({"error": {"n": 0}}, "error of n"),
        ({"weights": {"n": -1}}, "weight of n"),
        ({"confidence": 0}, "confidence"),
        ({"confidence": 1}, "confidence"),
    ],
)
def test_wishes_are_checked(changes, says):
    with pytest.raises(InvalidParameter, match=says):
        asked(**changes)


def test_a_float_is_the_decimal_that_was_typed():
    assert asked(epsilon=0.1).epsilon == Fraction(1, 10)
    assert asked(error={"n": 0.3}).error == {"n": Fraction(3, 10)}


@given(
    epsilon=st.fractions(Fraction(1, 1000), 20, max_denominator=10_000),
    delta=st.sampled_from([Fraction(1, 10**6), Fraction(1, 10**9), Fraction(1, 10**12)]),
    discover=st.booleans(),
)
def test_what_a_question_buys_reads_back_as_no_more_than_its_epsilon(epsilon, delta, discover):
    rates = Exchange(delta * 100)
    bought = rates.for_question(epsilon, delta, discover=discover)
    back = rates.epsilon_of_question(bought, delta)
    assert back <= float(epsilon) * (1 + 1e-9)
    assert back >= float(epsilon) * (1 - 1e-6)
    assert bought.delta == (delta / 2 if discover else 0)
    assert rates.bought(epsilon, delta, discover=discover) == (bought, back)
    without = Exchange(Fraction(0))
    pure = without.for_question(epsilon, Fraction(0), discover=False)
    assert (pure.kind, pure.main) == ("pure", epsilon)
    read = without.epsilon_of_question(pure, Fraction(0))
    assert without.bought(epsilon, Fraction(0), discover=False) == (pure, read)


def ledger_price(rates, limit):
    """An account that is full to the last unit."""
    kind = PureLoss if rates.currency is Currency.PURE else ZcdpLoss
    loss = kind(Fraction(limit.main, 10**12))
    return Amount.of(loss, rates.currency, rates.sums)


@given(epsilon=st.fractions(Fraction(1, 100), 20, max_denominator=1000))
def test_a_full_account_reads_as_no_more_than_its_budget(epsilon):
    for delta in (Fraction(0), Fraction(1, 10**6)):
        rates = Exchange(delta)
        limit = rates.limit(epsilon)
        spent = ledger_price(rates, limit)
        assert limit.allows(spent)
        assert rates.epsilon_so_far(spent, cap=epsilon) <= float(epsilon) * (1 + 1e-9)
        if delta:
            # what the filter promises, at the share of δ that belongs to ρ
            assert zcdp_epsilon(limit.main / 10**12, 0.9 * 5e-7) <= float(epsilon) * (1 + 1e-9)
        assert rates.currency is (Currency.ZCDP if delta else Currency.PURE)


def test_a_quote_names_every_column(opened):
    quote = opened().curator.price(SQL, epsilon=1)
    assert [column.name for column in quote.columns] == ["city", "n", "m", "twice", "c"]
    told = {column.name: column.error for column in quote.columns}
    assert told["n"].startswith("±")
    assert told["m"].endswith("rows in the group)")
    assert told["twice"] == "computed from the noisy values"
    assert (told["city"], told["c"]) == ("", "")
    assert str(quote).count("exact") == 2
    assert quote.error.keys() == {"n", "m", "twice"}
    ends = opened_ends(quote)
    assert ends == ["city", "n", "m", "twice", "c"]


def opened_ends(quote):
    return quote.to_arrow().column("column").to_pylist()


def test_the_ends_of_an_interval_have_no_error_of_their_own(opened):
    sql = "SELECT COUNT(*) AS n, DP_INTERVAL_LOW(n) AS low FROM orders"
    quote = opened().curator.price(sql, epsilon=1)
    assert {column.name: column.error for column in quote.columns}["low"] == "the end of an interval"
    assert quote.error["low"] is None


def test_half_of_rho_is_more_than_half_of_epsilon_and_the_share_says_which(opened):
    made = opened(budget="2", most="2")
    made.curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon=1)
    line = made.curator.budget()[0]
    assert line.epsilon_budget == 2
    assert 0 < line.share < line.epsilon_spent / line.epsilon_budget
    assert f"ε = {line.epsilon_spent:.4g} spent of 2" in str(line)
    assert made.curator.price(SQL, epsilon=1).left == str(line)


def test_delta_can_only_be_made_smaller(opened):
    curator = opened().curator
    sql = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta={}) COUNT(*) AS n FROM orders"
    stricter = curator.price(sql.format("1e-9"))
    assert stricter.delta == 1e-9
    assert stricter.error["n"] > curator.price(sql.format("1e-8")).error["n"]
    with pytest.raises(Refused) as refusal:
        curator.price(sql.format("1e-3"))
    assert refusal.value.code == "delta_too_large"


def test_a_default_epsilon_is_used_where_nothing_is_said(opened):
    assert opened(delta="0", more="default_epsilon = 0.25").curator.price(SQL).epsilon == 0.25


# ---------------------------------------------------------------- bounds left open


def test_the_trials_are_the_extremes_of_what_a_search_finds():
    ends = [edges(index) for index in range(BINS)]
    widest = Interval(min(low for low, _ in ends), max(high for _, high in ends))
    assert TRIALS[0] == widest
    assert TRIALS[-1] == NOTHING_FOUND
    smallest = min(high for _, high in ends if high > 0)
    assert smallest in {trial.high for trial in TRIALS}


@given(
    low=st.fractions(-1000, 1000, max_denominator=64),
    width=st.fractions(Fraction(1, 64), 100, max_denominator=64),
    step=st.sampled_from([None, Fraction(1, 4), Fraction(1, 100), Fraction(3)]),
    kind=st.sampled_from([Kind.INTEGER, Kind.DOUBLE]),
)
def test_found_bounds_are_moved_outward_to_the_step(low, width, step, kind):
    found = on_step(Interval(low, low + width), ColumnFacts(name="x", kind=kind, step=step))
    assert found.low <= low
    assert found.high >= low + width
    grid = step or (1 if kind is Kind.INTEGER else None)
    if grid is None:
        assert found == Interval(low, low + width)
    else:
        assert found.low % grid == found.high % grid == 0
        assert found.low > low - grid
        assert found.high < low + width + grid


def test_found_bounds_are_marked_as_found(policy_of):
    schema = policy_of().schema
    found = with_bounds(schema, {("orders", "rating"): Interval(Fraction(1), Fraction(8))})
    assert found.tables["orders"].columns["rating"].searched
    assert found.tables["orders"].columns["rating"].between == Interval(Fraction(1), Fraction(8))
    assert not found.tables["orders"].columns["amount"].searched
