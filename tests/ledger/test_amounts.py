"""Amounts round up, limits round down, and an account has one spelling."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dither.errors import IncompatibleLosses, InvalidParameter
from dither.ledger import Account, Amount, Currency, Limit
from dither.mechanisms import Gaussian, Laplace
from dither.privacy import ApproximateLoss, PureLoss, Sensitivity, ZcdpLoss

# ------------------------------------------------------------------ amounts


def test_amounts_round_up_and_limits_down():
    assert Amount.of(PureLoss("1/3"), Currency.PURE) == Amount(333_333_333_334, 0)
    assert Limit.pure("1/3").main == 333_333_333_333
    assert Amount.of(PureLoss("1e-13"), Currency.PURE) == Amount(1, 0)
    assert Amount.of(PureLoss(0), Currency.PURE) == Amount(0, 0)
    # ρ = ε·tanh(ε/2), not ε²/2
    assert Amount.of(PureLoss("1/2"), Currency.ZCDP) == Amount(122_459_331_202, 0)
    assert Amount.of(ZcdpLoss("1/8"), Currency.ZCDP) == Amount(125_000_000_000, 0)
    assert Limit.zcdp("1/8", "1e-6") == Limit(125_000_000_000, 10**12, Currency.ZCDP)
    assert Limit.zcdp(1, "1e-19").delta == 0


def test_amounts_of_mechanisms():
    laplace = Laplace(scale=2).loss(Sensitivity.l1(1))
    assert Amount.of(laplace, Currency.PURE) == Amount(5 * 10**11, 0)
    gaussian = Gaussian(scale=2).loss(Sensitivity.l2(1))
    assert Amount.of(gaussian, Currency.ZCDP) == Amount(125_000_000_000, 0)
    with pytest.raises(IncompatibleLosses, match="pure"):
        Amount.of(gaussian, Currency.PURE)


def test_the_delta_of_approximate_losses_is_kept_apart():
    loss = ApproximateLoss("1/2", "1/1000000")
    rho, delta = loss.approximate_zcdp()
    amount = Amount.of(loss, Currency.ZCDP)
    assert Fraction(amount.main, 10**12) >= Fraction(rho) > Fraction(amount.main - 1, 10**12)
    assert Fraction(amount.delta, 10**18) == loss.exact_delta <= Fraction(delta)
    assert amount.delta >= 10**12


class Everything(PureLoss, kind="everything_for_the_ledger_tests"):
    """A loss that no currency can hold."""

    __slots__ = ()

    def pure(self):
        return float("inf")

    def zcdp(self):
        return float("inf")

    def approximate_zcdp(self):
        return float("nan"), 0.0


@pytest.mark.parametrize("currency", Currency)
def test_losses_without_a_view_have_no_amount(currency):
    with pytest.raises(IncompatibleLosses):
        Amount.of(Everything(1), currency)


@given(st.fractions(0, 1000), st.fractions(0, 1000))
def test_what_is_charged_is_never_less_than_the_loss(first, second):
    amounts = [Amount.of(PureLoss(epsilon), Currency.PURE) for epsilon in (first, second)]
    total = amounts[0] + amounts[1]
    assert Fraction(total.main, 10**12) >= first + second
    if Limit.pure(first + second).allows(total):
        assert Fraction(Limit.pure(first + second).main, 10**12) >= first + second


@given(st.integers(0, 10**20), st.integers(0, 10**18 - 1))
def test_amounts_read_back(main, delta):
    amount = Amount(main, delta)
    assert Amount.from_json(amount.to_json()) == amount
    assert Fraction(amount.in_words(Currency.PURE).removeprefix("ε = ")) == Fraction(main, 10**12)


def test_a_price_on_another_platform_is_covered_and_a_higher_one_is_not():
    charged = Amount(10**11, 10**9)
    assert charged.covers(charged)
    assert charged.covers(Amount(10**11 + 1, 10**9 + 1))
    assert not charged.covers(Amount(10**11 + 2, 10**9))
    assert not charged.covers(Amount(10**11, 10**9 + 2))
    assert not Amount().covers(Amount(2, 0))


def test_amounts_are_ordered_part_by_part():
    assert Amount(1, 1) <= Amount(1, 2)
    assert not Amount(1, 2) <= Amount(2, 1)
    assert not Amount(2, 1) <= Amount(1, 2)
    assert Limit.zcdp(1).after(Amount(5 * 10**12, 7)) == Amount(0, 0)


def test_the_first_sum_is_closed_for_good_as_any_other():
    without, one = Amount(None, 1, (None, 2)), Amount(1, 1, (1, 1))
    assert without + one == one + without == Amount(None, 2, (None, 3))
    assert 3 * without == Amount(None, 3, (None, 6))
    assert one <= without
    assert not without <= one
    assert without.covers(one)
    assert not one.covers(without)
    assert Amount.from_json(json.loads(json.dumps(without.to_json()))) == without
    assert without.in_words(Currency.ZCDP).startswith("no ρ, δ")
    limit = Limit(100, 100, Currency.ZCDP, (100, 5))
    assert [limit.allows(times * without) for times in (1, 2, 3)] == [True, True, False]
    assert limit.room(Amount(), without) == 2
    assert limit.after(without) == Amount(None, 99, (None, 3))
    # what fits in the sums that were closed doesn't fit any more
    assert limit.allows(one + Amount(90, 0, (90, 90)))
    assert not limit.allows(without + one + Amount(90, 0, (90, 90)))
    with pytest.raises(InvalidParameter):
        Amount(None)
    with pytest.raises(InvalidParameter):
        Limit.from_json({"main": None, "delta": 0, "others": [None, 2]}, Currency.ZCDP)


SPENT, MOST = st.integers(1, 40), st.integers(1, 40)
PARTS = st.lists(st.none() | SPENT, min_size=3, max_size=3).map(tuple)
AMOUNTS = st.builds(Amount, SPENT, SPENT, PARTS)
CLOSING = st.builds(Amount, st.none(), SPENT, PARTS)


@given(MOST, MOST, st.tuples(*[st.integers(0, 40)] * 3), AMOUNTS, AMOUNTS)
def test_what_fits_is_what_is_allowed_one_after_the_other(main, delta, others, spent, price):
    """Also of sums that are closed, or in which nothing fits: an order whose part of δ is too small for the cap."""
    limit = Limit(main, delta, Currency.ZCDP, others)
    fit, total = 0, spent + price
    while limit.allows(total):
        fit, total = fit + 1, total + price
    assert limit.room(spent, price) == fit
    assert (limit.used(spent) <= 1) == limit.allows(spent)
    assert limit.used(spent) <= limit.used(spent + price)
    assert [part is None for part in limit.after(spent).others] == [part is None for part in spent.others]


@given(MOST, MOST, st.tuples(*[st.integers(0, 40)] * 3), AMOUNTS | CLOSING, AMOUNTS | CLOSING)
def test_the_same_holds_once_the_first_sum_is_closed(main, delta, others, spent, price):
    limit = Limit(main, delta, Currency.ZCDP, others)
    fit, total = 0, spent + price
    while limit.allows(total):
        fit, total = fit + 1, total + price
    assert limit.room(spent, price) == fit
    assert (limit.used(spent) <= 1) == limit.allows(spent)
    if limit.allows(spent):
        assert limit.used(spent) <= limit.used(spent + price)
    left = limit.after(spent)
    assert [part is None for part in (left.main, *left.others)] == [
        part is None for part in (spent.main, *spent.others)
    ]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1", None])
def test_amounts_are_whole(wrong):
    with pytest.raises(InvalidParameter):
        Amount(wrong, 0)
    with pytest.raises(InvalidParameter):
        Amount(0, wrong)
    with pytest.raises(InvalidParameter):
        Amount.from_json({"main": wrong, "delta": 0})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit.pure(-1),
        lambda: Limit.pure("1000001"),
        lambda: Limit.pure(float("nan")),
        lambda: Limit.zcdp(1, 1),
        lambda: Limit(1, 1, Currency.PURE),
        lambda: Amount.from_json({"main": 1}),
        lambda: Amount.from_json([1, 2]),
    ],
)
def test_wrong_limits_are_refused(make):
    with pytest.raises(InvalidParameter):
        make()


# ------------------------------------------------------------------ accounts


@pytest.mark.parametrize(
    "path", [(), "shop", ("",), ("a/b",), (" a",), ("a\n",), (1,), ("x" * 201,), ("a",) * 17, None]
)
def test_wrong_accounts_are_refused(path):
    with pytest.raises(InvalidParameter):
        Account(path)


def test_two_spellings_are_one_account():
    assert Account(("shop", "Ren\u00e9")) == Account(("shop", "Rene\u0301"))
