"""A question fits while any sum is within its cap, and is charged on all: backward induction over all who ask.

P and Q are the laws of the transcript for two neighbours, L = ln dP/dQ. Whoever asks looks at every answer and chooses
the next question from a menu, as long as the account accepts it. The largest ∫(dP − e^ε dQ)₊ that anyone can reach, at
the ε of the cap, must not exceed the δ that is promised with it: all shares of the reading's half, once, and what was
given away. Losses lie on a lattice, so that everything is computed exactly (up to floats); what is cut off at its upper
end counts as told.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dither.curator.epsilon_to_currency import Exchange
from dither.errors import InvalidParameter
from dither.ledger import Amount, Currency, Quantity, Sum
from dither.ledger.amount import DELTA_UNITS, FIRST_ZCDP_SUMS, MAIN_UNITS, ZCDP_SUMS
from dither.ledger.entry import Opening
from dither.mechanisms import DiscreteGaussian
from dither.privacy import Adjacency, ApproximateLoss, PrivacyLoss, PureLoss, Sensitivity
from dither.privacy.renyi import epsilon_of_order
from dither.privacy.zcdp import zcdp_epsilon

# of the lattice; discrete Gaussian noise of σ = 3 has losses on it: (1 − 2y)/(2σ²)
STEP = Fraction(1, 18)
REACH = 260
LOSSES = float(STEP) * np.arange(-REACH, REACH + 1)


@dataclass(frozen=True)
class Small:
    """A mechanism with its law: (chance under P, what it adds to L in steps; None where all is told)."""

    loss: PrivacyLoss
    law: tuple


def response(steps):
    """Randomised response, of ε = steps on the lattice."""
    chance = 1 / (1 + math.exp(-steps * STEP))
    return Small(PureLoss(steps * STEP), ((chance, steps), (1 - chance, -steps)))


def leaking(steps, given):
    """Randomised response that tells everything with this chance."""
    law = ((chance * (1 - given), move) for chance, move in response(steps).law)
    return Small(ApproximateLoss(steps * STEP, str(given)), (*law, (given, None)))


def gaussian():
    """Discrete Gaussian noise on a count: no ε at all."""
    noise = np.arange(-60, 61)
    weights = np.exp(-(noise**2) * float(STEP))
    chances = weights / weights.sum()
    law = tuple((float(chance), int(1 - 2 * y)) for y, chance in zip(noise, chances, strict=True) if chance > 1e-30)
    return Small(DiscreteGaussian(3).loss(Sensitivity.l2(1)), law)


def from_curve(given):
    """The same, booked as the (ε, δ) of its curve at this δ."""
    noise = gaussian()
    epsilon = math.ceil(noise.loss.epsilon(given) * 10**6)
    return Small(ApproximateLoss(Fraction(epsilon, 10**6), str(given)), noise.law)


def shifted(values, move):
    """What is ahead after a step of the loss; beyond the upper end as if all were told."""
    if move is None:
        return np.ones_like(values)
    ahead = np.empty_like(values)
    if move >= 0:
        ahead[: len(values) - move], ahead[len(values) - move :] = values[move:], 1.0
    else:
        ahead[-move:], ahead[:-move] = values[:move], values[0]
    return ahead


def worst(menu, most, accepts, epsilon):
    """The largest δ at ε that an adaptive analyst reaches; ``accepts(counts)`` says what may have been asked in all."""
    stopped = -np.expm1(np.minimum(epsilon - LOSSES, 0.0))
    values = {}
    for counts in sorted(product(*(range(count + 1) for count in most)), key=sum, reverse=True):
        if not accepts(counts):
            continue
        value = stopped
        for place, mechanism in enumerate(menu):
            after = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if after in values:
                ahead = sum(chance * shifted(values[after], move) for chance, move in mechanism.law)
                value = np.maximum(value, ahead)
        values[counts] = value
    return float(values[(0,) * len(menu)][REACH])


def total(prices, counts):
    """What all of them cost together."""
    spent = Amount()
    for price, count in zip(prices, counts, strict=True):
        if count:
            spent += count * price
    return spent


def priced(menu, exchange):
    return [Amount.of(one.loss, Currency.ZCDP, exchange.sums) for one in menu]


MENUS = {
    "responses": ((response(2), response(5), response(9)), (12, 7, 5)),
    "responses and Gaussian noise": ((response(5), response(11), gaussian()), (8, 5, 8)),
    "few and large": ((response(9), response(18)), (8, 4)),
    "booked from curves": ((from_curve(0.001), from_curve(0.003), response(5), gaussian()), (4, 3, 4, 4)),
    "with keys": ((leaking(4, 0.003), leaking(10, 0.003), gaussian()), (4, 4, 6)),
}
BUDGETS = [(Fraction(1), Fraction(1, 25)), (Fraction(1), Fraction(1, 5)), (Fraction(3, 2), Fraction(1, 100))]
OPENINGS = {"new": ZCDP_SUMS, "upgraded": FIRST_ZCDP_SUMS}


@pytest.mark.parametrize("sums", OPENINGS)
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("name", MENUS)
def test_whoever_asks_reaches_no_more_than_the_cap_promises(name, epsilon, delta, sums):
    menu, most = MENUS[name]
    exchange = Exchange(delta, OPENINGS[sums])
    limit, prices = exchange.limit(epsilon), priced(menu, exchange)

    def accepts(counts):
        return limit.allows(total(prices, counts))

    given = max(Fraction(total(prices, counts).delta, DELTA_UNITS) for counts in all_of(most) if accepts(counts))
    assert given <= delta / 2
    reached = worst(menu, most, accepts, float(epsilon))
    assert reached <= float(exchange.delta_so_far(Amount()) + given)


def all_of(most):
    return product(*(range(count + 1) for count in most))


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("name", MENUS)
def test_whatever_one_sum_accepts_the_union_accepts_and_nothing_else(name, epsilon, delta):
    menu, most = MENUS[name]
    exchange = Exchange(delta)
    limit, prices = exchange.limit(epsilon), priced(menu, exchange)
    accepted = [0] * len(exchange.sums)
    for counts in all_of(most):
        spent = total(prices, counts)
        parts = spent.others or (0,) * len(limit.others)
        within = [
            spent.main <= limit.main,
            *(a is not None and a <= b for a, b in zip(parts, limit.others, strict=True)),
        ]
        accepted = [known + one for known, one in zip(accepted, within, strict=True)]
        assert limit.allows(spent) == (any(within) and spent.delta <= limit.delta)
    assert min(accepted[:2]) > 1


# ------------------------------------------------------------------ a mechanism made for the cap


def test_the_share_of_rho_can_be_used_up():
    """One question whose law is the worst for its ρ: the promise isn't far from the truth, so the tests have power.

    It tells with a small chance p, and then L = ε − ln(1 − 1/α), where order α reads ρ best.
    """
    epsilon, delta = 3.0, Fraction(1, 10**6)
    exchange = Exchange(delta)
    limit, share = exchange.limit(Fraction(epsilon)), float(delta / 2 * exchange.sums[0].share)
    rho = limit.main / MAIN_UNITS
    order = min(np.linspace(2, 40, 100_000), key=lambda one: epsilon_of_order(rho * one, one, share))
    told = epsilon - math.log1p(-1 / order)
    chance = share * order * (1 - 1e-4)

    def divergence(orders):
        moved = chance * (np.expm1((orders - 1) * told) + math.exp(-told) * np.expm1((1 - orders) * told))
        return np.log1p(moved) / (orders - 1)

    orders = 1 + np.exp(np.linspace(-12, 8, 200_000))
    orders = orders[(orders - 1) * told < 600]
    assert (divergence(orders) / orders).max() <= rho
    reached = chance * -math.expm1(epsilon - told)
    assert 0.99 * share < reached < share


# ------------------------------------------------------------------ what the shares promise


def promised(exchange, epsilon):
    """The δ at which each cap reads as ε, together: found from the numbers of the limit alone."""
    limit, found = exchange.limit(epsilon), 0.0
    parts = [(exchange.sums[0], limit.main), *zip(exchange.sums[1:], limit.others, strict=True)]
    for one, most in parts:
        reading = Fraction(most, MAIN_UNITS)
        if one.quantity is Quantity.EPSILON:
            assert reading <= epsilon
            continue
        if most == 0:
            continue
        low, high = 1e-15, 0.5
        for _ in range(100):
            middle = math.sqrt(low * high)
            if one.order is None:
                told = zcdp_epsilon(float(reading), middle)
            else:
                told = epsilon_of_order(float(reading), one.order, middle)
            low, high = (middle, high) if told > epsilon else (low, middle)
        found += high
    return found


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("sums", OPENINGS)
def test_all_caps_together_promise_the_delta_that_is_told(sums, epsilon):
    exchange = Exchange(Fraction(1, 10**6), OPENINGS[sums])
    assert promised(exchange, epsilon) <= float(exchange.delta_so_far(Amount())) * (1 + 1e-6)


ORDERS_LATER = (*FIRST_ZCDP_SUMS, *(one for one in ZCDP_SUMS if one.order is not None))


def test_a_share_that_is_taken_after_the_opening_promises_too_much():
    exchange = Exchange(Fraction(1, 10**6), ORDERS_LATER)
    assert promised(exchange, Fraction(20)) > 1.09 * float(exchange.delta_so_far(Amount()))
    with pytest.raises(InvalidParameter, match="shares"):
        Opening(
            ledger="0" * 32,
            currency=Currency.ZCDP,
            adjacency=Adjacency.ADD_REMOVE,
            unit="each row",
            dataset="shop",
            sums=ORDERS_LATER,
        )


def test_shares_are_those_of_one_delta():
    for sums in (*OPENINGS.values(), Currency.PURE.sums):
        assert sum(one.share for one in sums) in (0, 1)
        assert [one.share for one in sums if one.quantity is Quantity.EPSILON] == [0]
    with pytest.raises(InvalidParameter):
        Sum(quantity=Quantity.RHO, share=Fraction(11, 10))


# ------------------------------------------------------------------ what must fail


@pytest.mark.parametrize("name", ["responses", "few and large"])
def test_two_purses_are_broken(name):
    """Each question charged on the sum that accepted it, and on no other."""
    (epsilon, delta), (menu, most) = BUDGETS[0], MENUS[name]
    exchange = Exchange(delta, FIRST_ZCDP_SUMS)
    limit, prices = exchange.limit(epsilon), priced(menu, exchange)
    once, size = [min(count, 4) for count in most], len(menu)

    def accepts(counts):
        by_epsilon, by_rho = total(prices, counts[:size]), total(prices, counts[size:])
        pure = by_epsilon.others[0] if by_epsilon.others else 0
        return pure <= limit.others[0] and by_rho.main <= limit.main

    reached = worst((*menu, *menu), (*once, *once), accepts, float(epsilon))
    assert reached > 1.5 * float(exchange.delta_so_far(Amount()))


def test_a_loss_without_epsilon_that_leaves_its_sum_open_is_broken():
    """Gaussian noise taken for ε = 0."""
    epsilon, delta = BUDGETS[0]
    menu, most = (response(6), response(18), gaussian()), (3, 1, 12)
    exchange = Exchange(delta, FIRST_ZCDP_SUMS)
    limit, prices = exchange.limit(epsilon), priced(menu, exchange)

    def accepts(counts):
        spent, pure = total(prices, counts), total(prices[:2], counts[:2])
        return spent.main <= limit.main or (pure.others or (0,))[0] <= limit.others[0]

    assert worst(menu, most, accepts, float(epsilon)) > 1.5 * float(exchange.delta_so_far(Amount()))
    held = worst(menu, most, lambda counts: limit.allows(total(prices, counts)), float(epsilon))
    assert held <= float(exchange.delta_so_far(Amount()))


def test_a_curve_without_its_delta_is_broken():
    """ε of the curve at a δ that isn't booked: each of them gives it away."""
    epsilon, delta = BUDGETS[1]
    noise, given = gaussian(), 0.1
    exchange = Exchange(delta)
    limit, most = exchange.limit(epsilon), (24,)
    for booked, holds in [(PureLoss(str(noise.loss.epsilon(given))), False), (from_curve(given).loss, True)]:
        prices = priced((Small(booked, noise.law),), exchange)

        def accepts(counts, prices=prices):
            return limit.allows(total(prices, counts))

        reached = worst((noise,), most, accepts, float(epsilon))
        assert (reached <= float(exchange.delta_so_far(Amount()) + delta / 2)) == holds


def test_the_exact_composition_is_no_filter():
    """Accepting while what was asked so far would be within δ, had it been fixed beforehand (a sum of PLDs)."""
    epsilon, delta = 1.0, 0.02
    menu, most = (response(2), response(5), response(9)), (10, 6, 4)

    def accepts(counts):
        law = np.zeros_like(LOSSES)
        law[REACH] = 1.0
        for mechanism, count in zip(menu, counts, strict=True):
            for _ in range(count):
                law = sum(chance * np.roll(law, move) for chance, move in mechanism.law)
        return float(law @ -np.expm1(np.minimum(epsilon - LOSSES, 0.0))) <= delta

    assert worst(menu, most, accepts, epsilon) > 1.25 * delta
