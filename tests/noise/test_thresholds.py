"""The tables' integer bounds against sums of exact fractions, computed in another way."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dither.entropy import gaussian, laplace
from dither.entropy.blocks import LazyTable

_BITS = 400


@cache
def exp_neg(x: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of e^-x by 1/Σ x^k/k!, all terms rounded down to 400 bits after the point."""
    unit = Fraction(1, 2**_BITS)
    term = total = Fraction(1)
    k = 0
    while term or k < 2 * x:
        k += 1
        term = down(term * x / k)
        total += term
    # A unit lost in one term is at most 3^x units in all later ones; once the computed terms are 0
    # the true ones are that small and at least halve each time.
    lost = (k + 4) * unit * 3 ** (int(x) + 1)
    return down(1 / (total + lost)), down(1 / total) + unit


def down(x: Fraction) -> Fraction:
    return Fraction((x.numerator << _BITS) // x.denominator, 2**_BITS)


def cumulative(weights: list[tuple[Fraction, Fraction]], rest: Fraction) -> list[tuple]:
    """Bounds of the normalised running sums of weights given by bounds."""
    low_total = sum(low for low, _ in weights)
    high_total = sum(high for _, high in weights) + rest
    low = high = Fraction(0)
    out = []
    for a, b in weights:
        out.append((down(low / high_total), down(high / low_total) + Fraction(1, 2**_BITS)))
        low += a
        high += b
    return out


def assert_brackets(bounds, precision: int, truth: list[tuple], count: int) -> None:
    for low, (least, most) in list(zip(bounds.lows, truth, strict=False))[:count]:
        assert low <= most * 2**precision
        assert low + bounds.slack >= least * 2**precision
        # The truth is known far better than the slack, so a bound that is off by one slack fails.
        assert (most - least) * 2**precision < Fraction(1, 2**20)


@pytest.mark.parametrize("precision", [25, 80, 144])
@pytest.mark.parametrize(("scale", "width"), [("0.3", 1), ("1", 1), ("37/10", 1), ("777.25", 8)])
def test_laplace_thresholds(precision, scale, width):
    rate = 1 / Fraction(scale)
    law = laplace._LaplaceBlocks(rate, width)
    bounds = law.thresholds(precision)
    weights = []
    for h in range(int(130 * Fraction(scale) / width) + 2):
        weights.append(exp_neg(rate * h * width))
        weights.append(exp_neg(rate * (h * width + 1)))
        if h > 60 and width > 1:
            break
    if width > 1:  # normalise by the closed form instead of thousands of terms
        q, Q = exp_neg(rate), exp_neg(rate * width)
        total = ((1 + q[0]) / (1 - Q[0]), (1 + q[1]) / (1 - Q[1]))
        low = high = Fraction(0)
        truth = []
        for a, b in weights:
            truth.append((low / total[1], high / total[0]))
            low, high = low + a, high + b
    else:
        truth = cumulative(weights, 4 * weights[-1][1] * (1 + Fraction(scale)))
    assert bounds.slack < 1 << 16
    assert_brackets(bounds, precision, truth, 100)


@pytest.mark.parametrize("precision", [25, 80, 144])
@pytest.mark.parametrize("variance", ["1/100", "1", "1369/100"])
@pytest.mark.parametrize("copies", [1, 2])
def test_gaussian_thresholds(precision, variance, copies):
    exact = Fraction(variance)
    law = (gaussian._Points if copies == 1 else gaussian._GaussianBlocks)(exact)
    bounds = law.thresholds(precision)
    count = int(18 * float(exact) ** 0.5) + 3
    # Weights below 2^-233 are left out; the rest bounds them.
    sizes = [exp_neg(Fraction(h * h) / (2 * exact)) for h in range(count)]
    weights = [sizes[0]] * copies + [w for w in sizes[1:] for _ in (0, 1)]
    rest = 64 * sizes[-1][1]
    assert bounds.slack < 1 << 16
    assert_brackets(bounds, precision, cumulative(weights, rest), 2 * count)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_threshold_is_noticed(change):
    # The mutant moves every bound by twice its slack.
    law = gaussian._Points(Fraction(1))
    bounds = law.thresholds(80)
    sizes = [exp_neg(Fraction(h * h, 2)) for h in range(21)]
    truth = cumulative([sizes[0]] + [w for w in sizes[1:] for _ in (0, 1)], 64 * sizes[-1][1])
    moved = type(bounds)([low + change * 2 * bounds.slack for low in bounds.lows], bounds.slack)
    with pytest.raises(AssertionError):
        assert_brackets(moved, 80, truth, 20)


@pytest.mark.parametrize(
    "law",
    [
        laplace._LaplaceBlocks(Fraction(1, 100), 1),
        laplace._LaplaceBlocks(Fraction(10**6), 1),
        gaussian._Points(Fraction(400)),
        gaussian._GaussianBlocks(Fraction(16384)),
    ],
)
def test_first_stage_answers_only_what_all_its_numbers_share(law):
    # Every cell of stage 1 that names a code must have that code at its first and last 64-bit
    # point, at least one point away from the thresholds on either side.
    table = LazyTable(law)._stages
    cells = np.flatnonzero(table.cells != -32768)
    first = cells.astype(np.uint64) << np.uint64(48)
    last = first | np.uint64((1 << 48) - 1)
    at_first = np.searchsorted(table.floors, first, side="right") - 1
    at_last = np.searchsorted(table.floors, last, side="right") - 1
    assert (at_first == at_last).all()
    assert (table.codes[at_first] == table.cells[cells]).all()
    inner = at_first > 0
    assert (first[inner] - table.floors[at_first[inner]] >= 2).all()
    assert cells.size > 0.9 * table.cells.size
