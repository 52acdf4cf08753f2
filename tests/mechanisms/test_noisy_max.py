"""Report noisy max: exact laws over all neighbours on a coarse grid, ties, exact comparison, accuracy."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.checks import check_mechanism
from dither.checks.statistics import chi_square_counts, proportion_at_most
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity, NotPrivate
from dither.mechanisms.noisy_max import CLAMP, NoisyMax, largest, noisy_words
from dither.privacy import Adjacency, Guarantee, PureLoss, Sensitivity, calibrate
from support.sizes import at_night

ALPHA = 1e-9
CANDIDATES = 3
# smaller ones may vanish when they are put in units of the grid
FLOATS = st.floats(-1e30, 1e30).filter(lambda v: v == 0 or abs(v) > 1e-200)


def at_most(k: int, z: Fraction) -> Fraction:
    """Pr[Z ≤ k] for Pr[Z = k] ∝ z^|k|."""
    return 1 - z ** (k + 1) / (1 + z) if k >= 0 else z**-k / (1 + z)


@cache
def exact_law(scores: tuple[int, ...], z: Fraction, first_wins: tuple[int, ...]) -> tuple[Fraction, ...]:
    """Σ over all noise, in closed form beyond the gaps; ties go to whoever comes first in ``first_wins``."""
    unit = (1 - z) / (1 + z)
    reach = max(scores) - min(scores) + 2
    law = []
    for i in range(len(scores)):
        # i wins at noise k iff every other noise is at most k + shift
        shifts = [
            scores[i] - scores[j] - (first_wins.index(j) < first_wins.index(i)) for j in range(len(scores)) if j != i
        ]
        middle = sum(
            unit * z ** abs(k) * math.prod(at_most(k + d, z) for d in shifts) for k in range(-reach + 1, reach)
        )
        above = Fraction(0)
        for chosen in itertools.product((0, 1), repeat=len(shifts)):
            size = sum(chosen)
            tails = math.prod(z ** (d + 1) / (1 + z) for d, c in zip(shifts, chosen, strict=True) if c)
            above += (-1) ** size * tails * z ** (reach * (1 + size)) / (1 - z ** (1 + size))
        m = len(shifts)
        below = math.prod(z**-d / (1 + z) for d in shifts) * z ** (reach * (m + 1)) / (1 - z ** (m + 1))
        law.append(middle + unit * (above + below))
    return tuple(law)


def random_ties(scores: tuple[int, ...], z: Fraction) -> list[Fraction]:
    orders = list(itertools.permutations(range(len(scores))))
    return [sum(row) / len(orders) for row in zip(*(exact_law(scores, z, o) for o in orders), strict=True)]


def lowest_index(scores: tuple[int, ...], z: Fraction) -> list[Fraction]:
    return list(exact_law(scores, z, tuple(range(len(scores)))))


def worst_ratios(law, z: Fraction) -> tuple[Fraction, Fraction]:
    """The largest ratio over all neighbours with Δ = 1: for any moves, and for moves that all go one way."""
    laws = {scores: law(scores, z) for scores in itertools.product(range(-1, 5), repeat=CANDIDATES)}
    general = monotone = Fraction(0)
    for scores in itertools.product(range(4), repeat=CANDIDATES):
        for move in itertools.product((-1, 0, 1), repeat=CANDIDATES):
            other = laws[tuple(s + m for s, m in zip(scores, move, strict=True))]
            worst = max(max(a / b, b / a) for a, b in zip(laws[scores], other, strict=True))
            general = max(general, worst)
            if -1 not in move:
                monotone = max(monotone, worst)
    return general, monotone


def test_exact_law_is_a_law():
    z = Fraction(1, 2)
    assert sum(exact_law((3, 0, 1), z, (0, 1, 2))) == 1
    assert random_ties((2, 2, 2), z) == [Fraction(1, 3)] * 3
    assert lowest_index((2, 2, 2), z)[0] > Fraction(1, 3)


@pytest.mark.parametrize("ties", [random_ties, lowest_index])
@pytest.mark.parametrize("z", [Fraction(1, 2), Fraction(4, 5)])
def test_all_neighbours_exactly(ties, z):
    # noise of scale b = 1/ln(1/z) on the whole numbers: e^{2/b} = z^−2 in general, e^{1/b} = z^−1 one way
    general, monotone = worst_ratios(ties, z)
    assert general <= z**-2
    assert monotone <= z**-1
    # the textbook mistake: Lap(1/ε), right for counts, is not ε-private for arbitrary queries of sensitivity 1
    assert general > z**-1


def test_costs():
    one = Sensitivity.linf(1)
    assert NoisyMax(scale=2).loss(one) == PureLoss(1)
    assert NoisyMax(scale=2, monotone=True).loss(one) == PureLoss("1/2")
    replace = Sensitivity.linf(1, adjacency=Adjacency.REPLACE)
    assert NoisyMax(scale=2, monotone=True).loss(replace) == PureLoss(1, Adjacency.REPLACE)
    # a tiny sensitivity is charged as 2^-16 scales
    assert NoisyMax(scale=1).loss(Sensitivity.linf("1e-9")) == PureLoss(Fraction(2, 2**16))
    assert NoisyMax(scale=1, monotone=True).loss(Sensitivity.linf("1e-9")) == PureLoss(Fraction(1, 2**16))
    with pytest.raises(InvalidSensitivity):
        NoisyMax(scale=2).loss(Sensitivity.l1(1))


@pytest.mark.parametrize(
    "scale", [Fraction(1), Fraction(1, 3), Fraction(10**9, 7), Fraction(2) ** -40, Fraction(3, 2**70)]
)
@pytest.mark.parametrize("sensitivity", ["1/65536", "1/3", "1", "1000"])
def test_widening_pays_for_flooring(scale, sensitivity):
    # on the grid a score moves by at most ⌈Δ/g⌉ steps, two scores apart by twice that; in exact numbers
    mechanism = NoisyMax(scale)
    step = Fraction(2) ** mechanism._exponent
    move = Fraction(sensitivity) * scale
    drawn = mechanism._noise.scale * step
    assert 2 * math.ceil(move / step) * step / drawn <= mechanism.loss(Sensitivity.linf(move)).exact_epsilon
    # without the widening it would fail where Δ isn't on the grid
    off_grid = move + step / 2
    assert 2 * math.ceil(off_grid / step) * step / scale > 2 * off_grid / scale


@given(
    st.lists(st.tuples(FLOATS, st.integers(-(2**58), 2**58)), min_size=1, max_size=8),
    st.integers(-60, 60),
)
def test_sums_are_exact(entries, exponent):
    values = np.array([v for v, _ in entries])
    noise = np.array([n for _, n in entries])
    high, low = noisy_words(values, noise, exponent)
    bound = int(CLAMP)
    sums = []
    for value, draw in entries:
        units = Fraction(value) / Fraction(2) ** exponent
        sums.append(math.floor(min(max(units, -bound), bound)) + draw)
    assert [(int(h) << 32) + int(w) for h, w in zip(high, low, strict=True)] == sums
    assert largest(high, low).tolist() == [i for i, s in enumerate(sums) if s == max(sums)]


def test_rounded_sums_would_not_do():
    # Two sums that differ by one step in 2^90 are told apart; their floats are equal.
    values = np.array([2.0**40, 2.0**40])
    high, low = noisy_words(values, np.array([0, 1]), -50)
    assert largest(high, low).tolist() == [1]


def continuous_law(scores, scale: float) -> np.ndarray:
    x = np.linspace(min(scores) - 40 * scale, max(scores) + 40 * scale, 400_001)
    law = []
    for i, s in enumerate(scores):
        density = np.exp(-np.abs(x - s) / scale) / (2 * scale)
        for j, other in enumerate(scores):
            if j != i:
                tail = 0.5 * np.exp(-np.abs(x - other) / scale)
                density = density * np.where(x < other, tail, 1 - tail)
        law.append(density.sum() * (x[1] - x[0]))
    return np.array(law)


@at_night
def test_releases_have_the_law():
    # Catches a scale a third too small, and one draw shared by all scores.
    scores = [0.0, 1.0, 1.7]
    law = continuous_law(scores, 2.0)
    assert law.sum() == pytest.approx(1, abs=1e-6)
    n = 12_000

    def p_value(mechanism: NoisyMax) -> float:
        counts = np.bincount([mechanism.release(scores) for _ in range(n)], minlength=3).astype(float)
        return chi_square_counts(counts, law)

    assert p_value(NoisyMax(scale=2)) > ALPHA
    assert p_value(NoisyMax(scale="1.3")) < ALPHA
    shared = NoisyMax(scale=2)

    class Shared:
        def into(self, out, source):
            out[:] = 7

    object.__setattr__(shared, "_noise", Shared())
    assert p_value(shared) < ALPHA


def test_ties_are_broken_evenly():
    # with the noise switched off all equal scores are tied; always taking the first would show
    mechanism = NoisyMax(scale=1)

    class Silent:
        def into(self, out, source):
            out[:] = 0

    object.__setattr__(mechanism, "_noise", Silent())
    drawn = [mechanism.release([1.0, 1.0, 0.0, 1.0]) for _ in range(3000)]
    even = np.array([1, 1, 0, 1]) / 3
    assert chi_square_counts(np.bincount(drawn, minlength=4).astype(float), even) > ALPHA
    assert chi_square_counts(np.array([3000.0, 0, 0, 0]), even) < ALPHA


@pytest.mark.parametrize("others", [1, 9, 200])
@pytest.mark.parametrize("confidence", ["1/2", "0.99"])
def test_error_holds_in_the_worst_case(others, confidence):
    # all others just this far behind: floats here, the law of one against the largest of the rest
    mechanism = NoisyMax(scale=2)
    error = mechanism.error(confidence, candidates=others + 1)
    x = np.linspace(-80 - error, 80, 400_001)
    density = np.exp(-np.abs(x) / 2) / 4
    tail = 0.5 * np.exp(-np.abs(x + error) / 2)
    lower = np.where(x < -error, tail, 1 - tail)
    best = float((density * lower**others).sum() * (x[1] - x[0]))
    assert 1 - best <= float(1 - Fraction(confidence)) + 1e-6
    assert error < 4 * math.log((others + 1) / float(1 - Fraction(confidence)))
    if confidence == "0.99":
        assert 1 - best > 0.002  # not absurdly careful


def test_error_on_real_releases():
    scores = np.array([0.0, -8.0, -9.0, -20.0, -8.5])
    mechanism = NoisyMax(scale=2)
    bound = mechanism.error(0.9, candidates=5)

    def p_value(tried: NoisyMax) -> float:
        missed = sum(-scores[tried.release(scores)] > bound for _ in range(2000))
        return proportion_at_most(missed, 2000, 0.1)

    assert p_value(mechanism) > ALPHA
    # Catches noise of four times the scale: the bound is meant for any scores, and generous for these.
    assert p_value(NoisyMax(scale=8)) < ALPHA
    assert mechanism.error(candidates=5, optimal=5) == 0


def test_never_chooses_minus_infinity_and_takes_huge_scores():
    mechanism = NoisyMax(scale=1)
    assert {mechanism.release([-math.inf, 0.0, -math.inf]) for _ in range(50)} == {1}
    assert mechanism.release([1.7e308, -1.7e308, 0.0]) == 0
    assert mechanism.release([5]) == 0
    assert NoisyMax(scale="1e-10").release(np.array([0, 3, 2])) == 1
    assert NoisyMax(scale=10**30).release([0.0, 1.0]) in (0, 1)


def test_calibration():
    assert calibrate(NoisyMax, Guarantee(epsilon=1), Sensitivity.linf(1)).scale == 2
    assert NoisyMax.calibrated(Guarantee(1), Sensitivity.linf(1), monotone=True).scale == 1
    mechanism = NoisyMax.calibrated(Guarantee(1, "1/1000"), Sensitivity.linf(1))
    assert mechanism.loss(Sensitivity.linf(1)).epsilon("1/1000") <= 1
    with pytest.raises(NotPrivate, match="PermuteAndFlip"):
        NoisyMax.calibrated(Guarantee("1e-6"), Sensitivity.linf(1))


def test_conformance():
    check_mechanism(NoisyMax(scale=2), sensitivity=Sensitivity.linf(1), draws=2000)
    check_mechanism(NoisyMax(scale=1, monotone=True), sensitivity=Sensitivity.linf(1), draws=2000)


@pytest.mark.parametrize("bad", [[math.nan, 1], [math.inf], [], [[1.0]], ["a"], [True], [-math.inf]])
def test_bad_input_is_refused(bad):
    with pytest.raises(InvalidData):
        NoisyMax(scale=1).release(bad)
    with pytest.raises(InvalidParameter):
        NoisyMax(scale=0)
