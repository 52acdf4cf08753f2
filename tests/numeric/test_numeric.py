import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.errors import InvalidParameter
from dither.numeric import (
    as_fraction,
    ceil_div,
    down,
    exp_up,
    fraction_down,
    fraction_up,
    largest_true,
    log_up,
    positive_int,
    probability,
    smallest_true,
    up,
)


@pytest.mark.parametrize(
    ("entered", "meant"),
    [
        (0.1, Fraction(1, 10)),
        ("1/4", Fraction(1, 4)),
        (" 2.5 ", Fraction(5, 2)),
        (3, Fraction(3)),
        (Decimal("0.3"), Fraction(3, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(7), Fraction(7)),
        (1e-6, Fraction(1, 10**6)),
    ],
)
def test_numbers_enter_as_they_are_written(entered, meant):
    assert as_fraction(entered) == meant


@pytest.mark.parametrize("entered", [float("nan"), math.inf, "x", None, True, [1], "1/0", Decimal("NaN"), 1j])
def test_what_is_no_number_is_refused(entered):
    with pytest.raises(InvalidParameter, match="scale must be"):
        as_fraction(entered, "scale")


@given(st.fractions(min_value=-(10**9), max_value=10**9))
def test_fractions_round_outward_and_tightly(value):
    above, below = fraction_up(value), fraction_down(value)
    assert Fraction(below) <= value <= Fraction(above)
    assert above == below or math.nextafter(below, math.inf) == above


def test_fractions_beyond_floats_are_infinite():
    assert fraction_up(Fraction(10) ** 400) == math.inf
    assert fraction_down(-(Fraction(10) ** 400)) == -math.inf


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
def test_log_up_is_above_and_close(value):
    from decimal import getcontext, localcontext

    assert getcontext() is not None
    with localcontext() as context:
        context.prec = 60
        exact = (Decimal(value.numerator) / Decimal(value.denominator)).ln()
    found = log_up(value)
    assert Decimal(found) >= exact
    assert abs(Decimal(found) - exact) <= Decimal(8) * Decimal(math.ulp(max(abs(found), 1e-300))) + Decimal("1e-14")


def test_outward_rounding_moves_outward():
    assert up(1.0) > 1.0 > down(1.0)
    assert up(-1.0) > -1.0 > down(-1.0)
    assert up(0.0) == down(0.0) == 0.0
    assert up(math.inf) == math.inf
    assert exp_up(1.0) > math.e
    assert exp_up(1000.0) == math.inf


@given(st.floats(1e-9, 1e9))
def test_search_returns_the_safe_end(threshold):
    found = smallest_true(lambda x: x >= threshold, 0.0, 2e9)
    assert found >= threshold
    assert found <= threshold * (1 + 1e-11)
    other = largest_true(lambda x: x <= threshold, 0.0, 2e9)
    assert other <= threshold
    assert other >= threshold * (1 - 1e-11)


def test_search_over_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="empty"):
        smallest_true(lambda x: True, 2.0, 1.0)


def test_small_checks():
    assert ceil_div(7, 2) == 4
    assert ceil_div(-7, 2) == -3
    assert positive_int(np.int32(3), "n") == 3
    for bad in (0, -1, 1.5, True, "3"):
        with pytest.raises(InvalidParameter, match="n must be a whole number"):
            positive_int(bad, "n")
    with pytest.raises(InvalidParameter, match="between 0 and 1/2"):
        probability("0.6", "p", most="1/2")


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, float])
def test_numpy_floats_mean_their_shortest_decimal(kind):
    assert as_fraction(kind(0.1)) == Fraction(1, 10)
