"""Selection against the closed forms of the exponential mechanism and permute-and-flip."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from itertools import product

import numpy as np
import pytest

from dither.entropy import SYSTEM, permute_and_flip, select, select_many
from dither.errors import InvalidData, InvalidParameter

# The package exports a function of the same name.
_MODULE = import_module("dither.entropy.select")
SCORES = np.array([0.0, 1.0, -2.0, 3.5, 3.5, -40.0, 2.25])
DRAWS = 600_000


def probabilities(scores, scale: float, weights=None) -> np.ndarray:
    logs = np.asarray(scores, float) / scale
    finite = logs[np.isfinite(logs)].max()
    out = np.exp(logs - finite)
    if weights is not None:
        out = out * np.array([float(w) for w in weights])
    return out / out.sum()


def fit(statistics, drawn, law) -> float:
    return statistics.chi_square(np.bincount(drawn, minlength=law.size), law)


@pytest.mark.parametrize("scale", ["1", "1/3", "2.7", "1000"])
def test_exponential_mechanism(statistics, scale):
    # Catches a scale 6 % too small. (At scale 1000 all choices are nearly even and there is nothing
    # to tell apart, so the mutant there ignores the scores' order altogether.)
    exact = Fraction(scale)
    law = probabilities(SCORES, float(exact))
    assert fit(statistics, select_many(SCORES, exact, DRAWS), law) > statistics.alpha
    wrong = exact * Fraction(94, 100) if exact < 100 else exact / 100
    mutant = select_many(SCORES, wrong, DRAWS)
    assert fit(statistics, mutant, law) < statistics.alpha


@pytest.mark.parametrize("kind", ["int64", "uint64", "object", "list", "huge"])
def test_weights(statistics, kind):
    # Catches weights that are ignored, and weight 0 that is selected.
    weights = [5, 1, 0, 2, 3, 10**6, 7]
    given: object = {
        "int64": np.array(weights),
        "uint64": np.array(weights, np.uint64),
        "object": np.array(weights, object),
        "list": weights,
        "huge": [w * 10**400 for w in weights],
    }[kind]
    law = probabilities(SCORES, 1.5, weights)
    drawn = select_many(SCORES, Fraction(3, 2), DRAWS, weights=given)  # type: ignore[arg-type]
    assert fit(statistics, drawn, law) > statistics.alpha
    assert not (drawn == 2).any()
    mutant = select_many(SCORES, Fraction(3, 2), DRAWS)
    assert fit(statistics, mutant, law) < statistics.alpha


def test_weights_that_outweigh_huge_gaps(statistics):
    # e^-3000 · 2^4328 = 1.09: the weight of the worst score makes up for its gap. Floats can't even
    # represent the two factors. A mutant weighs 2^4327.
    scores = np.array([3000.0, 0.0])
    law = np.array([1.0, 2.0 ** (4328 - 3000 * 1.4426950408889634074)])
    law /= law.sum()
    drawn = select_many(scores, Fraction(1), 50_000, weights=[1, 2**4328])
    assert fit(statistics, drawn, law) > statistics.alpha
    mutant = select_many(scores, Fraction(1), 50_000, weights=[1, 2**4327])
    assert fit(statistics, mutant, law) < statistics.alpha


def test_any_upper_bound_proposes_and_acceptance_makes_it_exact(statistics, monkeypatch):
    # With the real proposals, off by at most 0.03 %, a missing acceptance step would need 10^9
    # draws to be seen. Here proposals are loose on purpose; acceptance must restore the law, and
    # the mutant that accepts everything must fail.
    rate = _MODULE.intervals.step_rate
    monkeypatch.setattr(_MODULE.intervals, "step_rate", lambda scale: 0.8 * rate(scale))
    monkeypatch.setattr(_MODULE, "_QUICK_COIN", 0)
    law = probabilities(SCORES, 1.0)
    drawn = select_many(SCORES, Fraction(1), 30_000)
    assert fit(statistics, drawn, law) > statistics.alpha
    monkeypatch.setattr(_MODULE, "less_than_exp", lambda *_: True)
    mutant = select_many(SCORES, Fraction(1), 30_000)
    assert fit(statistics, mutant, law) < statistics.alpha


def test_proposals_are_upper_bounds_and_tight():
    # Every acceptance probability lies in [0.9997, 1] where the proposal is large.
    rng = np.random.default_rng(1)
    scores = rng.normal(size=200) * 10
    weights = rng.integers(1, 2**40, size=200)
    for given in (None, weights):
        proposal = _MODULE._propose(scores, Fraction(7, 3), given)
        sizes = np.diff(proposal.sums, prepend=np.uint64(0))
        for i in range(200):
            x = (Fraction(proposal.best) - Fraction(scores[i])) / Fraction(7, 3)
            lo, hi = _MODULE.intervals.exp_neg_bounds(x, 200)
            weight = 1 if given is None else int(weights[i])
            target = weight * Fraction(2) ** (proposal.exponent - 200)
            assert hi * target <= int(sizes[i])
            if sizes[i] >= 1 << 20:
                assert lo * target >= Fraction("0.9997") * int(sizes[i])


def test_equal_scores_are_chosen_evenly(statistics):
    # Catches a choice that never takes the last one.
    drawn = select_many(np.full(64, 1e300), Fraction(1), 100_000)
    even = np.full(64, 1 / 64)
    assert fit(statistics, drawn, even) > statistics.alpha
    assert fit(statistics, np.minimum(drawn, 62), even) < statistics.alpha


def test_huge_gaps_and_minus_infinity():
    scores = np.array([-np.inf, -1.7e308, 1.7e308, -np.inf, 0.0])
    assert set(select_many(scores, Fraction(1), 2000).tolist()) == {2}
    assert {permute_and_flip(scores, Fraction(1)) for _ in range(100)} == {2}
    assert select(np.array([5.0]), Fraction(1)) == 0
    # With positive weight only where the score is -inf, or no score at all, nothing is possible.
    with pytest.raises(InvalidParameter, match="nothing can be selected"):
        select(scores, Fraction(1), weights=[1, 0, 0, 1, 0])
    with pytest.raises(InvalidParameter, match="nothing can be selected"):
        select(np.array([-np.inf]), Fraction(1))
    with pytest.raises(InvalidParameter, match="at least one"):
        select(np.array([]), Fraction(1))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_messages_do_not_contain_scores(bad):
    for choose in (select, permute_and_flip):
        with pytest.raises(InvalidData) as caught:
            choose(np.array([123.456, bad, 1.0]), Fraction(1))
        assert str(caught.value) == "scores must be finite"


@pytest.mark.parametrize("weights", [[1, 2], [1, -1, 1], [1.5, 1, 1], np.array([1, -1, 2])])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(InvalidParameter, match="weights"):
        select(np.zeros(3), Fraction(1), weights=weights)


def test_exact_gaps_decide_not_float_differences(monkeypatch):
    # The gap 2^53 + 1 is no float. No feasible number of draws could tell, so this looks at what
    # the comparison is asked.
    scores = np.array([2.0**53 + 2, 1.0])
    assert int(scores[0] - scores[1]) != 2**53 + 1
    asked = []
    monkeypatch.setattr(_MODULE, "less_than_exp", lambda u, n, x, *_: asked.append(x) or True)
    proposal = _MODULE._propose(scores, Fraction(1, 3), None)
    proposal.accept(np.array([1]), SYSTEM)
    assert asked == [Fraction(3 * (2**53 + 1))]


def permute_and_flip_law(p: np.ndarray) -> np.ndarray:
    """By enumeration of all outcomes of the coins: the first head is uniform among the heads."""
    law = np.zeros(p.size)
    for heads in product([False, True], repeat=p.size):
        shown = np.array(heads)
        if shown.any():
            law[shown] += np.prod(np.where(shown, p, 1 - p)) / shown.sum()
    return law


def literal_permute_and_flip(p: np.ndarray, rng: np.random.Generator) -> int:
    """The mechanism as its authors state it, in floats: an oracle for the enumeration."""
    for i in rng.permutation(p.size):
        if rng.random() < p[i]:
            return int(i)
    raise AssertionError("the best score always shows heads")


def test_permute_and_flip(statistics):
    # Catches a scale 25 % too small, and the exponential mechanism in its place.
    scores = np.array([0.0, 1.0, -2.0, 1.5, 1.5, 0.3])
    p = np.exp((scores - 1.5) / 2)
    law = permute_and_flip_law(p)
    n = 25_000
    rng = np.random.default_rng(3)
    literal = np.array([literal_permute_and_flip(p, rng) for _ in range(n)])
    assert fit(statistics, literal, law) > statistics.alpha
    drawn = np.array([permute_and_flip(scores, Fraction(2)) for _ in range(n)])
    assert fit(statistics, drawn, law) > statistics.alpha
    mutant = np.array([permute_and_flip(scores, Fraction(3, 2)) for _ in range(n)])
    assert fit(statistics, mutant, law) < statistics.alpha
    assert fit(statistics, select_many(scores, Fraction(2), 4 * n), law) < statistics.alpha
