"""Bounds of e^-x against a hundred decimal digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dither.entropy import exp_neg_bounds, intervals
from dither.errors import InvalidParameter

rationals = st.builds(Fraction, st.integers(0, 10**12), st.integers(1, 10**12) | st.sampled_from([1, 2, 10**11]))


def exp_neg(x: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 120
        return (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()


@given(rationals, st.integers(0, 200))
@settings(max_examples=300, deadline=None)
def test_integer_bounds_hold_and_are_tight(x, precision):
    lo, hi = exp_neg_bounds(x, precision)
    with localcontext() as context:
        context.prec = 100
        truth = exp_neg(x) * 2**precision
        error = Decimal(10) ** -30
        assert lo <= truth + error
        assert hi >= truth - error
    assert 0 <= lo <= hi <= 1 << precision
    assert hi - lo <= 2


def test_integer_bounds_at_the_extremes():
    assert exp_neg_bounds(Fraction(0), 64) == (1 << 64, 1 << 64)
    assert exp_neg_bounds(Fraction(10**4000), 10_000) == (0, 1)
    lo, hi = exp_neg_bounds(Fraction(1, 10**400), 64)
    assert lo >= (1 << 64) - 2
    assert hi == 1 << 64
    with pytest.raises(InvalidParameter, match="at least 0"):
        exp_neg_bounds(Fraction(-1), 8)


def test_the_constant_below_log2_e():
    with localcontext() as context:
        context.prec = 60
        log2_e = 1 / Decimal(2).ln()
        constant = intervals._LOG2_E_DOWN
        difference = log2_e - Decimal(constant.numerator) / Decimal(constant.denominator)
    assert 0 < difference < Decimal(10) ** -37


def test_mantissas_are_the_next_floats_above():
    # 4096th powers of floats are exact fractions: no other library is trusted here.
    table = intervals._mantissa_table()
    for j in [1, 2, 3, 777, 2048, 4000, 4095]:
        entry = float(table[j])
        assert Fraction(entry) ** 4096 >= Fraction(1, 2**j)
        assert Fraction(math.nextafter(entry, 0.0)) ** 4096 < Fraction(1, 2**j)
    assert table[0] == 1.0
    assert (np.diff(table) < 0).all()


@given(
    st.floats(0, 1e6, allow_nan=False) | st.floats(0, 1e-300) | st.floats(0, 50),
    st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**6)),
)
@settings(max_examples=300, deadline=None)
def test_float_upper_bounds_hold_and_are_tight(gap, scale):
    n = intervals.steps(np.array([gap]), intervals.step_rate(scale))
    upper = Fraction(float(intervals.exp_neg_upper(n)[0]))
    x = Fraction(gap) / scale
    with localcontext() as context:
        context.prec = 60
        truth = exp_neg(x) if x < 10**6 else Decimal(0)
        bound = Decimal(upper.numerator) / Decimal(upper.denominator)
        assert truth <= bound
        if n[0] < 4096 * intervals._SMALLEST_POWER:
            assert truth >= bound * Decimal(intervals.TIGHTNESS)
            assert truth >= bound * Decimal("0.99982"), "tightness as derived in steps()"


@pytest.mark.parametrize("scale", [Fraction(2) ** 900, Fraction(2) ** -900])
def test_float_bounds_at_extreme_scales_and_gaps(scale):
    gaps = np.array([0.0, 5e-324, 1e-300, 1.0, 1.7e308, np.inf])
    n = intervals.steps(gaps, intervals.step_rate(scale))
    assert n[0] == 0
    assert (np.diff(n) >= 0).all()
    assert n[-1] == intervals.MAX_STEPS
    with pytest.raises(InvalidParameter, match="between"):
        intervals.step_rate(scale * scale)


def test_polynomial_error():
    x = np.concatenate([np.linspace(0, 0.0625, 500), [2.0**-40, 2.0**-1000]])
    for point, value in zip(x, intervals.exp_neg_polynomial(x), strict=True):
        # The stated error allows for a relative 2^-49 in x; without it the polynomial is closer.
        assert abs(Decimal(float(value)) - exp_neg(Fraction(float(point)))) < Decimal(2) ** -50


def test_power_error():
    x = np.concatenate([np.linspace(0, 1, 2000), [2.0**-40, 2.0**-1000]])
    # x itself may be off by a relative 2^-49
    for moved in (x * (1 - 2.0**-49), x, np.minimum(x * (1 + 2.0**-49), 1.0)):
        for point, value in zip(x, intervals.exp_neg_power(moved), strict=True):
            off = abs(Decimal(float(value)) - exp_neg(Fraction(float(point))))
            assert off < Decimal(intervals.POWER_ERROR)
