"""One noise for key and count: the exact law over all neighbours, the best chance of being shown, and the mutants."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms import PartitionSelection, TruncatedThreshold
from dither.mechanisms.truncated_threshold import edge_up
from dither.privacy import Adjacency, PrivacyLoss, Sensitivity

ALPHA = 1e-9
CASES = [(Fraction(1), 4), (Fraction(1, 3), 2), (Fraction(5, 2), 9), (Fraction(4), 1), (Fraction(10), 30)]


def held(keys: int, per_key: int = 1) -> Sensitivity:
    return Sensitivity.contribution(groups=keys, per_group=per_key)


def law(scale, reach, n, *, shown_from=None, clamped=False):
    """Chances of what is released about a key of n units, by the definition."""
    values = range(-reach, reach + 1)
    weights = [math.exp(-abs(z) / float(scale)) for z in values]
    if clamped:
        # the tails of the untruncated law are heaped on the ends
        t = math.exp(-1 / float(scale))
        weights[0] = weights[-1] = math.exp(-reach / float(scale)) / (1 - t)
    whole = math.fsum(weights)
    first = reach + 1 if shown_from is None else shown_from
    found: dict[object, float] = {}
    for z, weight in zip(values, weights, strict=True):
        told = n + z if n + z >= first and n > 0 else None
        found[told] = found.get(told, 0.0) + weight / whole
    return found


def worst(scale, reach, per_key, epsilon, **mutant):
    """The largest ∫(dP − e^ε dQ)₊ over neighbours n, n + j with j ≤ per_key, in both directions."""
    most = 0.0
    for n in range(3 * reach + 3):
        for j in range(1, per_key + 1):
            p, q = law(scale, reach, n, **mutant), law(scale, reach, n + j, **mutant)
            for a, b in ((p, q), (q, p)):
                most = max(most, math.fsum(max(0.0, x - math.exp(epsilon) * b.get(y, 0.0)) for y, x in a.items()))
    return most


@pytest.mark.parametrize("per_key", [1, 2, 3])
@pytest.mark.parametrize(("scale", "reach"), CASES)
def test_the_exact_law_keeps_to_the_curve_over_all_neighbours(scale, reach, per_key):
    loss = TruncatedThreshold(scale, reach).loss(held(1, per_key)) if per_key <= 2 * reach else None
    if loss is None:
        return
    for epsilon in (0.0, 0.1, 0.5, float(per_key / scale) * 0.999, float(per_key / scale), 5.0):
        assert worst(scale, reach, per_key, epsilon) <= loss.delta(epsilon) * (1 + 1e-9)
    # and the curve isn't loose: δ beyond the pure part is attained
    pure = float(per_key / scale)
    assert worst(scale, reach, per_key, pure) >= loss.delta(pure) * (1 - 1e-9)


@pytest.mark.parametrize(("scale", "reach"), CASES)
def test_mutants_break_the_curve(scale, reach):
    mechanism = TruncatedThreshold(scale, reach)
    one, two = mechanism.loss(held(1, 1)), mechanism.loss(held(1, 2))
    pure = float(1 / scale)
    assert worst(scale, reach, 1, pure, shown_from=reach) > 1.5 * one.delta(pure)
    assert worst(scale, reach, 1, pure, clamped=True) > 1.001 * one.delta(pure)
    # one edge of two forgotten
    assert worst(scale, reach, 2, 2 * pure) > 1.001 * one.delta(pure)
    assert worst(scale, reach, 2, 2 * pure) <= two.delta(2 * pure) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-3), (0.3, 1e-4), (2, 1e-5)])
def test_no_rule_shows_more(epsilon, delta):
    """At its own δ₁ it is the best selection there is, within the rounding of the ladder."""
    mechanism = TruncatedThreshold.for_guarantee(epsilon, delta)
    own = edge_up(mechanism.scale, mechanism.reach, 1)
    assert own <= Fraction(str(delta)) < edge_up(mechanism.scale, mechanism.reach - 1, 1)
    best = PartitionSelection(epsilon, own)
    for n in range(mechanism.certain + 2):
        assert mechanism.keep_probability(n) == pytest.approx(float(best.keep_probability(n)), rel=1e-9)


def test_several_keys_share_epsilon_and_delta():
    mechanism = TruncatedThreshold.for_guarantee(1, 1e-6, groups=4)
    loss = mechanism.loss(held(4))
    pure, delta = loss.decomposed()
    assert pure.pure() == 1.0
    assert delta <= Fraction(1, 10**6)
    assert delta > 3 * edge_up(mechanism.scale, mechanism.reach, 1)  # mutant: δ counted once
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert mechanism.loss_of(8, 1, Adjacency.REPLACE).adjacency is Adjacency.REPLACE


@pytest.mark.parametrize(("scale", "reach"), CASES)
def test_chances_of_being_shown(scale, reach):
    mechanism = TruncatedThreshold(scale, reach)
    ns = np.arange(2 * reach + 4)
    exact = [1 - law(scale, reach, int(n)).get(None, 0.0) for n in ns]
    assert [mechanism.keep_probability(int(n)) for n in ns] == pytest.approx(exact, rel=1e-9, abs=1e-15)
    assert mechanism.keep_chances(ns) == pytest.approx(exact, rel=1e-9, abs=1e-15)
    n = mechanism.threshold(0.95)
    assert mechanism.keep_probability(n) >= 0.95 > mechanism.keep_probability(n - 1)
    assert mechanism.threshold(1) == mechanism.certain
    assert mechanism.error(0.999999) <= reach


def sampled(mechanism, n, draws, source):
    shown, told = mechanism.release(np.full(draws, n), source=source)
    return Counter(zip(shown.tolist(), told.tolist(), strict=True))


def p_value(mechanism, n, draws, expected, source):
    counts, chances = sampled(mechanism, n, draws, source), expected
    outcomes = [o for o, p in zip(chances.outcomes, chances.probabilities, strict=True) if p * draws >= 5]
    if set(counts) - {o for o, p in zip(chances.outcomes, chances.probabilities, strict=True) if p > 0}:
        return 0.0
    p = np.array([chances.probabilities[chances.outcomes.index(o)] for o in outcomes])
    seen = np.array([counts[o] for o in outcomes])
    rest, left = draws - seen.sum(), 1 - p.sum()
    if left * draws >= 5:
        p, seen = np.append(p, left), np.append(seen, rest)
    else:
        p = p / p.sum()
    return stats.chisquare(seen, p * seen.sum()).pvalue


def test_releases_follow_the_law():
    """Catches a scale 5% too small."""
    from dither.entropy import SYSTEM

    right = TruncatedThreshold(3, 12)
    for n in (1, 8, 20, 40):
        assert p_value(right, n, 150_000, right.law(n), SYSTEM) > ALPHA
    wrong = TruncatedThreshold(Fraction(57, 20), 12)
    assert p_value(wrong, 40, 150_000, right.law(40), SYSTEM) < ALPHA


def test_nothing_of_hidden_keys_is_told_and_the_noise_has_an_end():
    mechanism = TruncatedThreshold(2, 5)
    counts = np.array([0, 1, 5, 11, 1000] * 4000)
    shown, told = mechanism.release(counts, source=InsecureSeededSource(1))
    assert not shown[counts == 0].any()
    assert (told[~shown] == 0).all()
    assert shown[counts >= mechanism.certain].all()
    assert (np.abs(told - counts)[shown] <= 5).all()
    assert (told[shown] > 5).all()


def test_bad_input_draws_nothing():
    for scale, reach in ((0, 5), (1, 0), (1, 2.5), (-1, 3)):
        with pytest.raises(InvalidParameter):
            TruncatedThreshold(scale, reach)
    for epsilon, delta in ((0, 0.1), (1, 0), (-1, 0.1)):
        with pytest.raises(InvalidParameter):
            TruncatedThreshold.for_guarantee(epsilon, delta)
    with pytest.raises(InvalidParameter, match="units to be shown"):
        TruncatedThreshold.for_guarantee("1e-13", "1e-20")
    mechanism = TruncatedThreshold(1, 5)
    for counts in ([-1], [1.5], ["x"], [True], [math.nan]):
        with pytest.raises(InvalidData):
            mechanism.release(np.array(counts))
    for bad in (
        Sensitivity.l1(1),
        held(1, 12),
        Sensitivity.contribution(groups=1, per_group=1, adjacency=Adjacency.REPLACE),
    ):
        with pytest.raises(InvalidSensitivity):
            mechanism.loss(bad)
