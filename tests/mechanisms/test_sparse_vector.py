"""The sparse vector: exact laws on small grids, the broken published variants, and the real sessions."""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity, NotPrivate, OutOfBudget
from dither.mechanisms import sparse_vector
from dither.mechanisms.sparse_vector import SparseVector
from dither.privacy import Adjacency, Sensitivity

ALPHA = 1e-9
ONE = Sensitivity.linf(1)
REACH = 400
Z = np.arange(-REACH, REACH + 1)


def pmf(scale: float) -> np.ndarray:
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(Z)


def below(scale: float, gap: np.ndarray) -> np.ndarray:
    """Pr[ν < gap] for whole gaps."""
    q = math.exp(-1 / scale)
    return np.where(gap <= 0, q ** (1 - np.minimum(gap, 1)) / (1 + q), 1 - q ** np.maximum(gap, 1) / (1 + q))


def transcript_law(answers, transcript, rho, nu, *, threshold=0) -> float:
    """Pr[transcript]: Σ_z Pr[ρ = z] Π Pr[ν < T + z − q] Π Pr[ν ≥ T + z − q]; no noise where a scale is 0."""
    weights = pmf(rho) if rho else (Z == 0).astype(float)
    for answer, above in zip(answers, transcript, strict=True):
        gap = threshold + Z - answer
        low = below(nu, gap) if nu else (gap > 0).astype(float)
        weights = weights * ((1 - low) if above else low)
    return float(weights.sum())


def transcripts(length: int, count: int):
    """All transcripts of a session: it ends with the count-th hit."""
    for bits in itertools.product((False, True), repeat=length):
        hits = [i for i, bit in enumerate(bits) if bit]
        if len(hits) <= count and (len(hits) < count or hits[-1] == length - 1):
            yield bits


def worst_ratio(rho, nu, count, *, moves, length=4, values=(-2, 0, 1)) -> float:
    """The largest log ratio over streams, neighbours and transcripts."""
    worst = 0.0
    for n in range(1, length + 1):
        for base in itertools.product(values, repeat=n):
            for move in moves(n):
                other = tuple(a + b for a, b in zip(base, move, strict=True))
                for t in transcripts(n, count):
                    p, q = transcript_law(base, t, rho, nu), transcript_law(other, t, rho, nu)
                    if p > 1e-12:
                        worst = max(worst, math.log(p / q) if q > 0 else math.inf)
    return worst


def general(n):
    return itertools.product((-1, 1), repeat=n)


def same_way(n):
    return ((1,) * n, (-1,) * n, (1,) + (0,) * (n - 1), (0,) * (n - 1) + (-1,))


@pytest.mark.parametrize("count", [1, 2])
def test_exact_law_meets_the_claim_for_all_small_streams(count):
    rho, nu = 2.0, 4.0 * count
    assert worst_ratio(rho, nu, count, moves=general, length=3) <= 1 / rho + 2 * count / nu + 1e-9
    assert worst_ratio(rho, nu / 2, count, moves=same_way, length=4) <= 1 / rho + count / (nu / 2) + 1e-9


def test_the_claim_is_nearly_attained():
    # ten answers far below, one hit: the loss comes close to ε₁ + ε₂, so no smaller claim is true
    base, move = (0,) * 40 + (-9,), (1,) * 40 + (-1,)
    other = tuple(a + b for a, b in zip(base, move, strict=True))
    t = (False,) * 40 + (True,)
    ratio = math.log(transcript_law(base, t, 2, 4, threshold=4) / transcript_law(other, t, 2, 4, threshold=4))
    assert 0.85 < ratio <= 1.0


def test_monotone_claim_fails_for_other_queries():
    # mutant: the factor 2 left out for queries that move both ways
    rho, nu, claim = 2.0, 2.0, 1 / 2 + 1 / 2
    base, other = (0,) * 40 + (-9,), (1,) * 40 + (-10,)
    t = (False,) * 40 + (True,)
    p, q = (transcript_law(x, t, rho, nu, threshold=4) for x in (base, other))
    assert math.log(p / q) > claim + 0.1


def test_algorithm_3_released_the_compared_value():
    # Roth's notes: q + ν leaves with the hit; m answers below then say that ρ is small, for free
    eps, m = 1.0, 20
    rho, nu, value = 2 / eps, 2 / eps, 0

    def law(answers, last):
        # all of (⊥, …, ⊥, value)
        weights = pmf(rho) * below(nu, Z - answers) ** m * (value >= Z)
        return float((weights * pmf(nu)[REACH + value - last]).sum())

    assert math.log(law(0, 0) / law(1, -1)) > 2 * eps


def test_algorithm_4_noise_not_scaled_with_c():
    # Lee & Clifton: ε₁ = ε/4, ν ~ Lap(Δ/ε₂) with ε₂ = 3ε/4, whatever c; really (1 + 6c)/4·ε
    eps, c = 1.0, 4
    rho, nu = 4 / eps, 4 / (3 * eps)
    base, other = (0,) * 20 + (-8,) * c, (1,) * 20 + (-9,) * c
    t = (False,) * 20 + (True,) * c
    p, q = (transcript_law(x, t, rho, nu, threshold=2) for x in (base, other))
    assert math.log(p / q) > 2 * eps
    # scaled with 2c the same stream is within ε
    p, q = (transcript_law(x, t, rho, 2 * c * nu, threshold=2) for x in (base, other))
    assert math.log(p / q) <= eps


def test_algorithm_5_no_noise_on_queries():
    # Stoddard et al.: (0, 1) against (1, 0) with answers (below, above) is possible in one world only
    assert transcript_law((0, 1), (False, True), 2, 0) > 0
    assert transcript_law((1, 0), (False, True), 2, 0) == 0


def test_algorithm_6_no_limit_on_hits():
    # Chen et al.: ν ~ Lap(2Δ/ε₂) and no limit: loss grows with the number of hits
    eps = 1.0
    rho, nu = 2 / eps, 4 / eps
    for hits, least in ((4, 1.2), (16, 4.0)):
        base, other = (0,) * hits + (0,) * hits, (1,) * hits + (-1,) * hits
        t = (False,) * hits + (True,) * hits
        p, q = (transcript_law(x, t, rho, nu) for x in (base, other))
        assert math.log(p / q) > least * eps


def test_no_threshold_noise():
    # mutant: without ρ every answer below costs something
    base, other = (0,) * 20, (1,) * 20
    p, q = (transcript_law(x, (False,) * 20, 0, 4) for x in (base, other))
    assert math.log(p / q) > 2 * (1 / 2 + 2 / 4)


def test_costs_are_exact():
    mechanism = SparseVector(threshold_scale=4, query_scale=16, count=2)
    assert mechanism.loss(ONE).exact_epsilon == Fraction(1, 4) + Fraction(4, 16)
    monotone = SparseVector(threshold_scale=4, query_scale=16, count=2, monotone=True)
    assert monotone.loss(ONE).exact_epsilon == Fraction(1, 4) + Fraction(2, 16)
    numeric = SparseVector(threshold_scale=4, query_scale=16, count=2, numeric_scale=8)
    assert numeric.loss(ONE).pure() == 0.5 + 2 / 8
    assert numeric.loss(ONE).epsilon(1e-6) <= 0.75
    replace = Sensitivity.linf(1, adjacency=Adjacency.REPLACE)
    assert mechanism.loss(replace).adjacency is Adjacency.REPLACE


@pytest.mark.parametrize("bound", ["1", "0.3", "1e-9", "12345.678", "1e-13"])
def test_flooring_is_paid_for_at_every_sensitivity(bound):
    delta = Fraction(bound)
    mechanism = SparseVector(threshold_scale=3, query_scale="7/2")
    step = Fraction(2) ** mechanism._exponent
    steps = math.ceil(delta / step)
    drawn_rho, drawn_nu = mechanism._threshold_noise.scale, mechanism._query_noise.scale
    charged = mechanism.loss(Sensitivity.linf(delta)).exact_epsilon
    assert steps / drawn_rho + 2 * steps / drawn_nu <= charged
    assert charged <= (delta / 3 + 2 * delta / Fraction(7, 2)) * (1 + Fraction(1, 2))
    if delta > Fraction(1, 10**4):
        assert charged == delta / 3 + 2 * delta / Fraction(7, 2)


@pytest.mark.parametrize("epsilon", [1, "0.1", 10, "1e-9"])
@pytest.mark.parametrize(("count", "monotone", "share"), [(1, False, 0), (5, True, "1/2"), (100_000, False, 0)])
def test_for_epsilon_spends_no_more(epsilon, count, monotone, share):
    bound = Sensitivity.linf("2.5")
    if share and epsilon == "1e-9":
        with pytest.raises(InvalidParameter, match="numeric answers need"):
            SparseVector.for_epsilon(epsilon, bound, count=count, monotone=monotone, numeric_share=share)
        return
    mechanism = SparseVector.for_epsilon(epsilon, bound, count=count, monotone=monotone, numeric_share=share)
    spent = sum(mechanism._costs(bound))
    assert spent <= Fraction(epsilon)
    assert spent >= Fraction(epsilon) * Fraction(999, 1000)
    assert mechanism.monotone is monotone


def test_split_is_the_best_one():
    c = 4
    mechanism = SparseVector.for_epsilon(1, ONE, count=c)
    best = float(mechanism.threshold_scale) ** 2 + float(mechanism.query_scale) ** 2
    for first in np.linspace(0.02, 0.9, 89):
        assert best <= (1 / first) ** 2 + (2 * c / (1 - first)) ** 2 + 1e-3
    assert float(mechanism.query_scale / mechanism.threshold_scale) == pytest.approx((2 * c) ** (1 / 3), rel=1e-4)


class Scripted:
    """A sampler that deals prepared noise and remembers the scales it was asked for."""

    def __init__(self, draws):
        self.draws = list(draws)

    def one(self, source=None):
        return self.draws.pop(0)


def test_session_compares_and_counts(monkeypatch):
    mechanism = SparseVector(threshold_scale=2**60, query_scale=2**60, count=2)
    unit = 2**mechanism._exponent  # a coarse grid, so that floors show
    assert unit > 1
    object.__setattr__(mechanism, "_threshold_noise", Scripted([3]))
    object.__setattr__(mechanism, "_query_noise", Scripted([0, 1, -4, 0, 99]))
    session = mechanism.start(threshold=7 * unit)
    assert not session.ask(9.0 * unit)  # 9 + 0 < 7 + 3
    assert session.ask(9.0 * unit)  # 9 + 1 ≥ 10
    assert not session.ask(13.999 * unit)  # floored to 13
    assert session.ask(10.0 * unit)
    assert session.remaining == 0
    with pytest.raises(OutOfBudget, match="nothing more is answered"):
        session.ask(100.0 * unit)
    assert mechanism._query_noise.draws == [99]  # nothing was drawn


def test_numeric_value_is_fresh():
    mechanism = SparseVector(threshold_scale=1, query_scale=1, numeric_scale="1e-6")
    answer = mechanism.start(0).ask(1000)
    assert answer
    # the compared value has noise of scale 1, the released one of 1e-6
    assert abs(answer.value - 1000) < 1e-3


def test_sessions_cant_be_copied_or_forked(monkeypatch):
    session = SparseVector(threshold_scale=1, query_scale=1).start(0)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(NotPrivate, match="secret noise"):
            copied(session)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(NotPrivate, match="process"):
        session.ask(0)
    assert "level" not in repr(session)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "x", None, [1.0, 2.0], True])
def test_bad_answers_are_refused_before_drawing(bad):
    mechanism = SparseVector(threshold_scale=1, query_scale=1)
    object.__setattr__(mechanism, "_query_noise", Scripted([]))
    session = mechanism.start(0)
    with pytest.raises(InvalidData):
        session.ask(bad)
    assert session.remaining == 1


def test_bad_parameters():
    for arguments in (
        {"threshold_scale": 0, "query_scale": 1},
        {"threshold_scale": 1, "query_scale": -1},
        {"threshold_scale": 1, "query_scale": 1, "count": 0},
        {"threshold_scale": 1, "query_scale": 1, "numeric_scale": 0},
        {"threshold_scale": 1, "query_scale": 1, "monotone": 1},
        {"threshold_scale": 1, "query_scale": 1000},
        {"threshold_scale": math.nan, "query_scale": 1},
    ):
        with pytest.raises(InvalidParameter):
            SparseVector(**arguments)
    with pytest.raises(InvalidSensitivity, match="replaced"):
        SparseVector(threshold_scale=1, query_scale=1, monotone=True).loss(
            Sensitivity.linf(1, adjacency=Adjacency.REPLACE)
        )
    with pytest.raises(InvalidParameter):
        SparseVector.for_epsilon(0, ONE)
    with pytest.raises(InvalidParameter):
        SparseVector.for_epsilon(1, ONE, numeric_share=1)
    with pytest.raises(InvalidParameter, match="numeric_scale"):
        SparseVector(threshold_scale=1, query_scale=1).numeric_error()


ANSWERS, RHO, NU = (0.0, 0.5, -0.3), 1.0, 2.0
OUTCOMES = [*transcripts(3, 2), (True, True)]


def outcome_law() -> np.ndarray:
    """The same by quadrature over a fine grid of ρ."""
    z = np.linspace(-40, 40, 400_001)
    rho = np.exp(-np.abs(z) / RHO) / (2 * RHO) * (z[1] - z[0])
    law = []
    for t in OUTCOMES:
        weights = rho.copy()
        for answer, above in zip(ANSWERS, t, strict=False):
            gap = z - answer
            low = np.where(gap < 0, 0.5 * np.exp(-np.abs(gap) / NU), 1 - 0.5 * np.exp(-np.abs(gap) / NU))
            weights = weights * ((1 - low) if above else low)
        law.append(weights.sum())
    return np.array(law)


def p_value(mechanism, source, n=60_000) -> float:
    index = {t: i for i, t in enumerate(OUTCOMES)}
    counts = np.zeros(len(OUTCOMES))
    for _ in range(n):
        counts[index[tuple(mechanism.release(np.array(ANSWERS), 0, source=source).tolist())]] += 1
    expected = outcome_law() * n
    assert expected.sum() == pytest.approx(n, rel=1e-3)
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(OUTCOMES) - 1))


def test_sessions_have_the_stated_law(monkeypatch):
    # 60,000 sessions reveal a query scale 20 % off; the finer faults are caught exactly above
    source = sparse_vector.SYSTEM
    assert p_value(SparseVector(threshold_scale=RHO, query_scale=NU, count=2), source) > ALPHA
    assert p_value(SparseVector(threshold_scale=RHO, query_scale=0.75 * NU, count=2), source) < ALPHA

    class Constant:
        def one(self, source):
            return 0

    mutant = SparseVector(threshold_scale=RHO, query_scale=NU, count=2)
    object.__setattr__(mutant, "_threshold_noise", Constant())
    assert p_value(mutant, source) < ALPHA


def test_accuracy_theorem_covers():
    k, confidence = 50, 0.9
    mechanism = SparseVector(threshold_scale=2, query_scale=4, count=1)
    alpha = mechanism.error(confidence, queries=k)
    source = InsecureSeededSource(5)
    n, wrong, halved = 2000, 0, 0
    # ρ and the νᵢ as the session draws them; a session errs if some query within reach is misjudged
    step = 2.0**mechanism._exponent
    rho = mechanism._threshold_noise.sample(n, source) * step
    nu = mechanism._query_noise.sample(n * k, source).reshape(n, k) * step
    off = np.abs(nu - rho[:, None]).max(axis=1)
    wrong, halved = int((off > alpha).sum()), int((off > alpha / 2).sum())
    limit = stats.binom.isf(ALPHA, n, 1 - confidence)
    assert wrong <= limit < halved
    # no worse than the textbook's 8(ln k + ln(2/β))/ε for c = 1 (Dwork & Roth 2014, Theorem 3.24)
    best = SparseVector.for_epsilon(1, ONE)
    assert best.error(confidence, queries=k) < 8 * (math.log(k) + math.log(2 / (1 - confidence)))


def test_released_stream_ends_with_the_last_hit():
    mechanism = SparseVector(threshold_scale="1e-3", query_scale="1e-3", count=2)
    assert mechanism.release([0, 9, 0, 9, 0, 9], 5).tolist() == [False, True, False, True]
    assert mechanism.release([], 5).size == 0
    assert mechanism.numeric_scale is None
