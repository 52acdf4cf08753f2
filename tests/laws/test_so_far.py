"""What was spent so far, read at a moment that the answers chose: backward induction over all who ask and stop.

P and Q are the laws of the transcript for two neighbours, L = ln dP/dQ. Whoever asks looks at every answer, chooses the
next question from a menu, and stops when they like. The largest ∫(dP − e^ε̂ dQ)₊ = E_P[(1 − e^(ε̂ − L))₊] that anyone can
reach, where ε̂ is what is told at the moment of stopping, must not exceed the δ that is told with it. The menus are
randomised response, whose losses lie on a lattice, so that everything is computed exactly (up to floats).
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dither.curator.epsilon_to_currency import Exchange
from dither.ledger import Amount, Currency
from dither.privacy import PureLoss, ZcdpLoss
from dither.privacy.filters import zcdp_epsilon_so_far
from dither.privacy.renyi import epsilon_of_order, pure_renyi, pure_zcdp
from dither.privacy.zcdp import zcdp_epsilon
from support.sizes import some


def worst(menu, most, told):
    """The largest δ that an adaptive analyst reaches: ``menu`` are losses in units of the lattice's ``step``.

    ``most[i]`` is how often mechanism i may be asked at the most, ``told(counts)`` is ε̂, or None where that may not be
    reached (a filter refuses).
    """
    step, sizes = menu
    reach = sum(size * count for size, count in zip(sizes, most, strict=True))
    losses = step * np.arange(-reach, reach + 1)
    values = {}
    for counts in sorted(product(*(range(count + 1) for count in most)), key=sum, reverse=True):
        epsilon = told(counts)
        if epsilon is None:
            continue
        value = -np.expm1(np.minimum(epsilon - losses, 0.0))
        for place, size in enumerate(sizes):
            after = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if after in values:
                chance = 1 / (1 + np.exp(-step * size))
                ahead, next_value = np.zeros_like(value), values[after]
                ahead[size:-size] = chance * next_value[2 * size :] + (1 - chance) * next_value[: -2 * size]
                value = np.maximum(value, ahead)
        values[counts] = value
    return float(values[(0,) * len(sizes)][reach])


def summed(exchange, step, sizes, counts, *, pure=False):
    """What the ledger adds up for so many of each; without the sum of ε, as after Gaussian noise."""
    total = Amount()
    for size, count in zip(sizes, counts, strict=True):
        if count:
            total += count * Amount.of(
                PureLoss(Fraction(step).limit_denominator(1000) * size), Currency.ZCDP, exchange.sums
            )
    if total == Amount():
        return total
    return total if pure else Amount(total.main, total.delta, (None, *total.others[1:]))


MENUS = {
    "many small": ((0.05, (1,)), (400,)),
    "two sizes": ((0.1, (1, 3)), (40, 12)),
    "three sizes": ((0.2, (1, 2, 3)), (9, 7, 5)),
}
DELTAS = [Fraction(1, 50), Fraction(1, 1000), Fraction(1, 10**6)]


def so_far(exchange, menu, cap=None, *, pure=False):
    step, sizes = menu
    limit = None if cap is None else exchange.limit(cap)

    def told(counts):
        spent = summed(exchange, step, sizes, counts, pure=pure)
        if limit is not None and not limit.allows(spent):
            return None
        return exchange.epsilon_so_far(spent, cap=cap)

    return told


@pytest.mark.parametrize(
    ("name", "delta", "cap", "pure"),
    some(list(product(MENUS, DELTAS, (None, Fraction(1), Fraction(3)), (False, True))), 5),
)
def test_what_is_told_so_far_holds_for_whoever_stops_when(name, delta, cap, pure):
    menu, most = MENUS[name]
    exchange = Exchange(delta)
    reached = worst(menu, most, so_far(exchange, menu, cap, pure=pure))
    assert reached <= float(exchange.delta_so_far(Amount()))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("name", MENUS)
def test_levels_hold_for_a_delta_of_their_own(name, delta):
    (step, sizes), most = MENUS[name]

    def told(counts):
        rho = sum(
            (count * Fraction(pure_zcdp(step * size)) for size, count in zip(sizes, counts, strict=True)), Fraction(0)
        )
        return zcdp_epsilon_so_far(rho, delta)

    assert worst((step, sizes), most, told) <= float(delta)


@pytest.mark.parametrize(
    ("epsilon", "part", "least", "most"),
    [(3, 100, 1.15, 1.28), (10, 100, 1.10, 1.27), (1, 10, 1.15, 1.28), (1, 100, 1.15, 1.9)],
)
def test_how_far_it_is_above_the_reading_of_the_filter(epsilon, part, least, most):
    """The numbers of docs/concepts/the-ledger.md, for sums of ρ alone, from that part of the budget on."""
    exchange = Exchange(Fraction(1, 10**6))
    whole = Fraction(exchange.limit(Fraction(epsilon)).main, 10**12)
    ratios = []
    for step in range(101):
        rho = whole * Fraction(part ** (step / 100 - 1))
        told = exchange.epsilon_so_far(Amount.of(ZcdpLoss(rho), Currency.ZCDP, exchange.sums))
        ratios.append(told / zcdp_epsilon(float(rho), 5e-7))
    assert least <= min(ratios) < least + 0.05
    assert most - 0.05 < max(ratios) <= most


# ------------------------------------------------------------------ what must fail


@pytest.mark.parametrize(("delta", "at_least"), [(1e-3, 1.5), (1e-6, 1.2)])
def test_reading_rho_as_the_filter_does_is_no_odometer(delta, at_least):
    """As balances were told by 0.1.0."""
    (step, sizes), most = MENUS["many small"]
    reached = worst((step, sizes), most, lambda counts: zcdp_epsilon(counts[0] * pure_zcdp(step), delta))
    assert reached > at_least * delta


def test_two_readings_at_one_delta_are_broken():
    """Each order alone may be read at every moment for δ; the smaller of two needs the δ of both."""
    (step, sizes), most = MENUS["many small"]
    delta = 0.02

    def at(*orders):
        return lambda counts: min(
            epsilon_of_order(counts[0] * pure_renyi(step, order), order, delta) for order in orders
        )

    for order in (4, 16):
        assert worst((step, sizes), most, at(order)) <= delta
    assert worst((step, sizes), most, at(4, 16)) > 1.05 * delta


def test_caps_that_answers_chose_are_no_reading():
    """Caps stated after answers were seen, each told while it was in force: raised when reached, or lowered to fit."""
    (step, sizes), most = MENUS["many small"]
    delta = Fraction(1, 500)
    exchange = Exchange(delta)
    price = summed(exchange, step, sizes, (1,))
    epsilons = [Fraction(k, 10) for k in range(4, 44)]
    limits = [exchange.limit(epsilon) for epsilon in epsilons]

    def raised(counts):
        spent = counts[0] * price if counts[0] else Amount()
        inside = [epsilon for epsilon, limit in zip(epsilons, limits, strict=True) if limit.allows(spent)]
        return float(inside[0]) if inside else None

    share = float(exchange.delta_so_far(Amount()) * exchange.sums[0].share)

    def lowered(counts):
        return zcdp_epsilon(counts[0] * pure_zcdp(step), share)

    for told in (raised, lowered):
        assert worst((step, sizes), most, told) > 1.3 * float(exchange.delta_so_far(Amount()))


def test_an_odometer_beside_the_cap_needs_the_delta_of_both():
    """Cap and order hold at δ each; the least of both doesn't."""
    (step, sizes), most = MENUS["many small"]
    delta, order = 0.02, 11
    cap = zcdp_epsilon(most[0] * pure_zcdp(step), delta)

    def odometer(counts):
        return epsilon_of_order(counts[0] * pure_renyi(step, order), order, delta)

    assert worst((step, sizes), most, lambda _: cap) <= delta
    assert worst((step, sizes), most, odometer) <= delta
    assert worst((step, sizes), most, lambda counts: min(cap, odometer(counts))) > 1.1 * delta
