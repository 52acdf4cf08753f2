"""ρ and ε of zCDP: what is read is the best order's bound, rounded up, and what an ε buys is the most that fits."""

import math
import random
from decimal import Context, Decimal, localcontext

import pytest
from hypothesis import example, given, strategies as st

from dither.privacy.renyi import best_order, epsilon_of_order
from dither.privacy.zcdp import zcdp_bought, zcdp_epsilon, zcdp_for_epsilon

# (ε, δ, the largest ρ that dither 0.1.0 found for it)
RECORDED = [
    (1e-09, 5e-09, "0x0.0p+0"),
    (1e-09, 1e-06, "0x1.7f073eb32fbc1p-40"),
    (1e-09, 1e-18, "0x0.0p+0"),
    (1e-09, 0.01, "0x1.1d0ba31340dbcp-13"),
    (0.0001234567890123, 5e-09, "0x1.41b18d699c1e4p-31"),
    (0.0001234567890123, 1e-06, "0x1.d6141de6a7259p-30"),
    (0.0001234567890123, 1e-18, "0x1.317063c63b25ap-33"),
    (0.0001234567890123, 0.01, "0x1.214975f9b20cfp-13"),
    (0.01, 5e-09, "0x1.4110ce8d09c3bp-19"),
    (0.01, 1e-06, "0x1.248698ffc6fb1p-18"),
    (0.01, 1e-18, "0x1.a78a62a92932dp-21"),
    (0.01, 0.01, "0x1.5147b81c5696ep-12"),
    (0.1, 5e-09, "0x1.9fa28b7e23d0ap-13"),
    (0.1, 1e-06, "0x1.50a49549b0c34p-12"),
    (0.1, 1e-18, "0x1.34b1bce158359p-14"),
    (0.1, 0.01, "0x1.bb6411fcbeb6ap-9"),
    (0.5, 5e-09, "0x1.1e7267c71d450p-8"),
    (0.5, 1e-06, "0x1.b34249e84db06p-8"),
    (0.5, 1e-18, "0x1.ca96bd2eeb929p-10"),
    (0.5, 0.01, "0x1.20973dc8aee29p-5"),
    (1.0, 5e-09, "0x1.0dd14709e5a1ep-6"),
    (1.0, 1e-06, "0x1.8f0c580a04984p-6"),
    (1.0, 1e-18, "0x1.bf1dc3447e1a7p-8"),
    (1.0, 0.01, "0x1.a794368fe5235p-4"),
    (3.0, 5e-09, "0x1.0cf9d3a234c03p-3"),
    (3.0, 1e-06, "0x1.7b05e588a8098p-3"),
    (3.0, 1e-18, "0x1.dc935f22542a2p-5"),
    (3.0, 0.01, "0x1.2416a1ae2155cp-1"),
    (10.0, 5e-09, "0x1.2ba07dedfcb7cp+0"),
    (10.0, 1e-06, "0x1.8a0e2c4e3ba27p+0"),
    (10.0, 1e-18, "0x1.28b2d3ad9bf04p-1"),
    (10.0, 0.01, "0x1.b312d5ca48689p+1"),
    (100.0, 5e-09, "0x1.5e870b8d3fa1ep+5"),
    (100.0, 1e-06, "0x1.8c5db8e2f6104p+5"),
    (100.0, 1e-18, "0x1.e5997ebad8b4dp+4"),
    (100.0, 0.01, "0x1.0d154f59fdf5dp+6"),
    (1000.0, 5e-09, "0x1.7cce5b349d63ap+9"),
    (1000.0, 1e-06, "0x1.8cd503d6006a4p+9"),
    (1000.0, 1e-18, "0x1.4eb0a16bbbc4bp+9"),
    (1000.0, 0.01, "0x1.b64ba7c9b4848p+9"),
]


@pytest.mark.parametrize(("epsilon", "delta", "rho"), RECORDED)
def test_an_epsilon_buys_what_it_bought_before(epsilon, delta, rho):
    found, recorded = zcdp_for_epsilon(epsilon, delta), float.fromhex(rho)
    # 0.1.0 looked at orders up to 2^20 alone, so that it found less for the smallest ε
    # the allowance of 1e-15 in ε is 1e-11 of the smallest ones
    assert found >= recorded * (1 - 1e-10)
    assert math.isclose(found, recorded, rel_tol=1e-10) or epsilon < 1e-3


def reading(divergence, gap, delta):
    """ε(δ) at one order, in sixty digits; D, α − 1 and δ are decimals."""
    return divergence - (1 + 1 / gap).ln() - (delta.ln() + (1 + gap).ln()) / gap


def least_reading(rho, delta):
    """The least of ε(α) in sixty digits, where its derivative ρ + ln(δα)/(α − 1)² changes its sign."""
    with localcontext(Context(prec=60, Emin=-(10**6), Emax=10**6)):
        rho, delta = Decimal(rho), Decimal(delta)

        def slope(gap):
            return rho * gap * gap + delta.ln() + (1 + gap).ln()

        high = (-delta.ln() / rho).sqrt()
        gap = high
        # the slope is concave at first and convex later on, so steps are kept between the ends of the sign's change
        low = Decimal(0)
        for _ in range(400):
            height = slope(gap)
            low, high = (low, gap) if height > 0 else (gap, high)
            following = gap - height / (2 * rho * gap + 1 / (1 + gap))
            gap = following if low <= following <= high else (low + high) / 2
            if high - low <= gap * Decimal("1e-40") or abs(height) < Decimal("1e-50"):
                break
        return reading(rho * (1 + gap), gap, delta)


RHOS = st.floats(1e-200, 1e200) | st.floats(1e-12, 1e3) | st.floats(-12, 3).map(lambda power: 10.0**power)
DELTAS = st.floats(1e-30, 0.999) | st.sampled_from([1e-6, 5e-9]) | st.floats(-30, -0.001).map(lambda power: 10.0**power)


@given(rho=RHOS, delta=DELTAS)
@example(rho=1e-100, delta=0.5)
@example(rho=0.05, delta=0.99)
# readings of dither 0.1.0 that were too low, by up to 5e-11 of ε
@example(rho=1.5e-05, delta=0.02)
@example(rho=2.1e-12, delta=0.999)
def test_reading_is_the_best_order_rounded_up(rho, delta):
    exact, read = least_reading(rho, delta), Decimal(zcdp_epsilon(rho, delta))
    assert read >= max(exact, 0)
    assert read <= max(exact, Decimal(0)) * Decimal("1.000000000001") + Decimal(rho) * Decimal("1e-12") + Decimal(
        "4e-15"
    )


def test_no_reading_of_thousands_is_too_low():
    draw = random.Random(7)
    for _ in range(2_000):
        rho, delta = 10 ** draw.uniform(-12, 3), 10 ** draw.uniform(-18, -0.01)
        assert Decimal(zcdp_epsilon(rho, delta)) >= least_reading(rho, delta), (rho, delta)


def test_reading_at_an_order_is_rounded_up():
    draw = random.Random(8)
    for _ in range(4_000):
        order, delta = 1 + 10 ** draw.uniform(-3, 6), 10 ** draw.uniform(-30, -0.001)
        toll = -math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
        # a divergence that the other terms nearly cancel is where digits are lost
        divergence = max(0.0, toll) + 10 ** draw.uniform(-16, 3)
        with localcontext(Context(prec=60)):
            exact = reading(Decimal(divergence), Decimal(order) - 1, Decimal(delta))
            read = Decimal(epsilon_of_order(divergence, order, delta))
            size = Decimal(divergence) - Decimal(delta).ln() / (Decimal(order) - 1) + 1
            assert max(exact, 0) <= read <= max(exact, 0) + size * Decimal("1e-13"), (divergence, order, delta)


@given(rho=st.floats(1e-12, 1e3), delta=st.floats(1e-30, 0.9))
@example(rho=1e308, delta=1e-6)
@example(rho=math.inf, delta=1e-6)
def test_reading_is_no_worse_than_the_listed_orders(rho, delta):
    listed = best_order(lambda order: epsilon_of_order(rho * order, order, delta))
    assert zcdp_epsilon(rho, delta) <= listed * (1 + 1e-9) + 1e-14


def wanted(number, draw):
    """(ε, δ) as policies and analysts state them, and now and then where nobody would."""
    if number % 100 == 0:
        return 10 ** draw.uniform(-300, 200), 10 ** draw.uniform(-300, -1e-9)
    if number % 100 == 1:
        return 10 ** draw.uniform(-3, 2), 1 - 10 ** draw.uniform(-15, -1)
    if number % 10 == 2:
        return 10 ** draw.uniform(-5, 5), 10 ** draw.uniform(-30, -1)
    return 10 ** draw.uniform(-4, 1.5), 10 ** draw.uniform(-18, -4)


@pytest.mark.parametrize("seed", range(2))
def test_what_an_epsilon_buys_fits_and_more_doesnt(seed):
    draw = random.Random(seed)
    for number in range(700):
        epsilon, delta = wanted(number, draw)
        found, back = zcdp_bought(epsilon, delta)
        assert found == zcdp_for_epsilon(epsilon, delta)
        assert back == zcdp_epsilon(found, delta) <= epsilon, (epsilon, delta)
        assert found == 0 or zcdp_epsilon(found * (1 + 1e-9), delta) > epsilon * (1 - 1e-9), (epsilon, delta)


def test_nothing_spent_is_nothing_at_any_delta():
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_epsilon(0.0, 0.0) == 0.0
