"""ρ and ε to the last bit: the ρ that an ε buys is part of a question's permanent name, so it may never change."""

import math
import platform
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dither.numeric import largest_true
from dither.privacy.renyi import (
    ORDERS,
    best_order,
    epsilon_of_order,
    zcdp_bought,
    zcdp_epsilon,
    zcdp_for_epsilon,
)

# (ε, δ, the largest ρ for it): as first computed, order by order
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
def test_what_an_epsilon_buys_stays_the_same(epsilon, delta, rho):
    found, recorded = zcdp_for_epsilon(epsilon, delta), float.fromhex(rho)
    # C libraries differ in the last places of exp and log; the values were recorded with this one
    assert found == recorded if platform.libc_ver()[0] == "glibc" else math.isclose(found, recorded, rel_tol=1e-11)


@given(
    rho=st.floats(1e-300, 1e300) | st.floats(1e-12, 1e3),
    delta=st.floats(1e-30, 0.999) | st.sampled_from([1e-6, 5e-9]),
)
@example(rho=1e308, delta=1e-6)
@example(rho=math.inf, delta=1e-6)
@example(rho=5e-324, delta=0.5)
def test_reading_at_once_is_reading_order_by_order(rho, delta):
    one_by_one = best_order(lambda order: epsilon_of_order(rho * order, order, delta))
    assert zcdp_epsilon(rho, delta).hex() == one_by_one.hex()


# ------------------------------------------------------------------ as it was computed first


class FirstReader:
    """ρ ↦ ε(δ) as questions were first named by it: all listed orders, then a golden section around the best."""

    def __init__(self, delta):
        self.delta, self.log_delta = delta, math.log(delta)
        self.orders = np.array(ORDERS, dtype=np.float64)
        self.log = np.array([math.log(order) for order in ORDERS])
        self.log1p = np.array([math.log1p(-1 / order) for order in ORDERS])
        self.seen = {}

    def at(self, place, rho):
        if place not in self.seen:
            order = 1 + math.exp(place)
            shift = (self.log_delta + math.log(order)) / (order - 1)
            self.seen[place] = order, math.log1p(-1 / order), shift
        order, log, shift = self.seen[place]
        value = rho * order + log - shift
        value = value + abs(value) * 2.0**-44 + 1e-15
        return value if value > 0 else 0.0

    def __call__(self, rho):
        if rho == 0:
            return 0.0
        if rho > 1e300:
            return best_order(lambda order: epsilon_of_order(rho * order, order, self.delta))
        listed = rho * self.orders + self.log1p - (self.log_delta + self.log) / (self.orders - 1)
        listed = np.maximum(listed + np.abs(listed) * 2.0**-44 + 1e-15, 0.0)
        best = int(listed.argmin())
        smallest = float(listed[best])
        low = math.log(ORDERS[max(best - 1, 0)] - 1)
        high = math.log(ORDERS[min(best + 1, len(ORDERS) - 1)] - 1)
        golden = (math.sqrt(5) - 1) / 2
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = self.at(left, rho), self.at(right, rho)
        for _ in range(40):
            smallest = min(smallest, at_left, at_right)
            if at_left <= at_right:
                high, right, at_right = right, left, at_left
                left = high - golden * (high - low)
                at_left = self.at(left, rho)
            else:
                low, left, at_left = left, right, at_right
                right = low + golden * (high - low)
                at_right = self.at(right, rho)
            if high - low < 1e-9:
                break
        return smallest


def first_zcdp_for_epsilon(epsilon, delta):
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    read = FirstReader(delta)
    last, rho = root * root, 1.25 * root * root
    before, error = read(last) - epsilon, read(rho) - epsilon
    for _ in range(50):
        if abs(rho - last) <= 1e-13 * rho or error == before:
            break
        step = error * (rho - last) / (error - before)
        last, before, rho = rho, error, max(rho - step, rho / 4)
        error = read(rho) - epsilon
    found = rho * (1 - 2e-13)
    if read(found) <= epsilon < read(found * (1 + 1e-11)):
        return found
    top = max(root * root, 1e-300)
    while read(top) <= epsilon:
        top *= 2
    return largest_true(lambda value: read(value) <= epsilon, 0.0, top, relative=1e-12)


def wanted(number, draw):
    """(ε, δ) as policies and analysts state them, and now and then where nobody would."""
    if number % 100 == 0:
        return 10 ** draw.uniform(-300, 200), 10 ** draw.uniform(-300, -1e-9)
    if number % 100 == 1:
        return 10 ** draw.uniform(-3, 2), 1 - 10 ** draw.uniform(-15, -1)
    if number % 10 == 2:
        return 10 ** draw.uniform(-5, 5), 10 ** draw.uniform(-30, -1)
    return 10 ** draw.uniform(-4, 1.5), 10 ** draw.uniform(-18, -4)


@pytest.mark.parametrize("seed", range(4))
def test_what_an_epsilon_buys_is_what_it_bought_first(seed):
    draw = random.Random(seed)
    for number in range(700):
        epsilon, delta = wanted(number, draw)
        found, back = zcdp_bought(epsilon, delta)
        assert found.hex() == first_zcdp_for_epsilon(epsilon, delta).hex(), (epsilon, delta)
        assert found == zcdp_for_epsilon(epsilon, delta)
        assert back.hex() == zcdp_epsilon(found, delta).hex(), (epsilon, delta)


@pytest.mark.parametrize("seed", range(2))
def test_what_was_spent_reads_as_it_read_first(seed):
    draw = random.Random(seed)
    for number in range(2000):
        _, delta = wanted(number, draw)
        rho = 10 ** (draw.uniform(-300, 301) if number % 5 == 0 else draw.uniform(-12, 4))
        assert zcdp_epsilon(rho, delta).hex() == FirstReader(delta)(rho).hex(), (rho, delta)


def test_nothing_spent_is_nothing_at_any_delta():
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_epsilon(0.0, 0.0) == 0.0
