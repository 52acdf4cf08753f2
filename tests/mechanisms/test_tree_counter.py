"""The tree counter: what each block holds, what the stream costs, how its error grows, and the mutants."""

from __future__ import annotations

import copy
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import SYSTEM
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity, NotPrivate, OutOfBudget
from dither.mechanisms.gaussian import Gaussian, GaussianLoss
from dither.mechanisms.laplace import DiscreteLaplace
from dither.mechanisms.tree_counter import TreeCounter, _laplace_sum_quantile
from dither.privacy import Adjacency, Sensitivity

ALPHA = 1e-9
ONE = Sensitivity.contribution(groups=1, per_group=1)


class Recorder:
    """Stands in for the noise: remembers each block's exact sum and answers with prepared noise."""

    def __init__(self, noise=lambda i: 0):
        self.blocks, self.noise = [], noise

    def release(self, exact, *, source):
        self.blocks.append(exact)
        return exact + self.noise(len(self.blocks))


def recorded(horizon, noise=lambda i: 0, **options):
    session = TreeCounter(1, horizon, **options).start()
    session._mechanism = Recorder(noise)
    return session


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 8, 100, 1023])
def test_running_sums_are_exact_without_noise(horizon):
    increments = [(7 * i * i) % 23 - 5 for i in range(horizon)]
    session = recorded(horizon)
    assert [session.add(x) for x in increments] == np.cumsum(increments).tolist()
    with pytest.raises(OutOfBudget, match="horizon"):
        session.add(1)
    assert session.time == horizon


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 8, 13, 64, 100])
def test_one_increment_moves_at_most_levels_blocks(horizon):
    """Every neighbouring pair of streams: the l1 distance of all blocks is at most levels·Δ, and is attained."""
    levels = TreeCounter(1, horizon).levels
    assert levels == math.floor(math.log2(horizon)) + 1
    base = recorded(horizon)
    for _ in range(horizon):
        base.add(0)
    moved = []
    for t in range(horizon):
        other = recorded(horizon)
        for i in range(horizon):
            other.add(int(i == t))
        distance = [abs(a - b) for a, b in zip(base._mechanism.blocks, other._mechanism.blocks, strict=True)]
        assert set(distance) <= {0, 1}
        moved.append(sum(distance))
    # mutant: log₂ T levels without the + 1 would be exceeded
    assert max(moved) == levels


def test_noise_of_a_block_is_drawn_once():
    session = recorded(8, noise=lambda i: 10**i)
    answers = [session.add(0) for _ in range(8)]
    # block i (in order of time) has noise 10^i; the sums use the blocks of the binary digits
    expected = [10, 10**2, 10**2 + 10**3, 10**4, 10**4 + 10**5, 10**4 + 10**6, 10**4 + 10**6 + 10**7, 10**8]
    assert answers == expected
    assert len(session._mechanism.blocks) == 8


def test_loss_is_levels_laplace_losses():
    counter = TreeCounter(scale=16, horizon=1024)
    loss = counter.loss(ONE)
    one = DiscreteLaplace(16).loss(ONE)
    assert loss == 11 * one
    assert loss.pure() == 11 / 16
    assert (
        counter.loss(Sensitivity.contribution(groups=1, per_group=1, adjacency=Adjacency.REPLACE)).adjacency
        is Adjacency.REPLACE
    )
    assert counter.loss(Sensitivity.contribution(groups=3, per_group=2)).pure() == 11 * 6 / 16
    # the composed curve is below that of one draw moved eleven times as far
    single = DiscreteLaplace(16).loss(Sensitivity.l1(11))
    assert loss.epsilon(1e-3) < single.epsilon(1e-3)


def test_gaussian_loss():
    counter = TreeCounter(scale=20, horizon=1000, noise="gaussian")
    assert counter.loss(ONE) == GaussianLoss(Fraction(10, 400))
    # several increments of one unit may fall into one block: (gΔ)² a level, not gΔ²
    assert counter.loss(Sensitivity.contribution(groups=3, per_group=1)) == GaussianLoss(Fraction(90, 400))


@pytest.mark.parametrize(("epsilon", "horizon"), [(1, 1000), ("0.1", 7), (3, 1)])
def test_for_epsilon(epsilon, horizon):
    counter = TreeCounter.for_epsilon(epsilon, Sensitivity.contribution(groups=1, per_group=2), horizon=horizon)
    spent = counter.levels * 2 / counter.scale
    assert Fraction(epsilon) * Fraction(999_999, 1_000_000) <= spent <= Fraction(epsilon)
    assert counter.loss(Sensitivity.contribution(groups=1, per_group=2)).pure() <= float(Fraction(epsilon))


def test_real_increments_are_floored_to_the_grid():
    session = recorded(8, step="0.25", bound=2)
    assert session.add(0.6) == 0.5
    assert session.add(-0.1) == 0.25  # floored to −0.25
    assert session.add(100.0) == 2.25  # clamped to 2
    assert session.add(-100) == 0.25
    assert session.add(Fraction(1, 3)) == 0.5
    assert session.add(np.float32(0.25)) == 0.75
    assert session.add(np.int64(1)) == 1.75
    counter = TreeCounter(scale=1, horizon=8, step="0.25")
    # an increment that moves by 0.3 may move by two steps
    assert counter.loss(Sensitivity.contribution(groups=1, per_group="0.3")).pure() == 4 * 0.5
    assert counter.loss(Sensitivity.contribution(groups=1, per_group="0.25")).pure() == 4 * 0.25


def test_sums_beyond_floats_stay_exact():
    session = recorded(4)
    answers = [session.add(x) for x in (2**53, 1, 1, -(2**53))]
    assert answers == [2**53, 2**53 + 1, 2**53 + 2, 2]  # floats would give 2^53 twice


def test_bad_input():
    for arguments, options in (
        ((0, 8), {}),
        ((-1, 8), {}),
        ((1, 0), {}),
        ((1, 2.5), {}),
        ((1, 8), {"step": 0}),
        ((1, 8), {"bound": 0}),
        ((1, 8), {"noise": "cauchy"}),
        ((2**50, 8), {"noise": "gaussian"}),
        ((math.nan, 8), {}),
    ):
        with pytest.raises(InvalidParameter):
            TreeCounter(*arguments, **options)
    session = recorded(4)
    for bad in (math.nan, math.inf, "x", None, True, [1]):
        with pytest.raises(InvalidData):
            session.add(bad)
    assert session.time == 0
    assert session._mechanism.blocks == []
    counter = TreeCounter(1, 8)
    for time in (0, 9):
        with pytest.raises(InvalidParameter):
            counter.error(time=time)


def test_sessions_cant_be_copied_or_forked(monkeypatch):
    session = TreeCounter(1, 8).start()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(NotPrivate):
            copied(session)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(NotPrivate):
        session.add(1)
    assert "exact" not in repr(session)


def sums(scale: Fraction, ones: int, n: int) -> np.ndarray:
    draws = DiscreteLaplace(scale).release(np.zeros((n, ones), dtype=np.int64), source=SYSTEM)
    return np.abs(draws.sum(axis=1))


@pytest.mark.parametrize("scale", ["1/2", "11", "3000"])
@pytest.mark.parametrize("time", [512, 1023, 5])
def test_error_is_the_quantile(scale, time):
    # both sides: not exceeded more often than stated, and a value 10 % (at least 2) lower would be
    counter = TreeCounter(scale, 1024)
    n, confidence = 100_000, 0.9
    error = counter.error(confidence, time=time)
    errors = sums(Fraction(scale), time.bit_count(), n)
    assert (errors > error).sum() <= stats.binom.isf(ALPHA, n, 1 - confidence)
    lower = error - max(2.0, 0.1 * error)
    assert (errors > lower).sum() > stats.binom.isf(ALPHA, n, 1 - confidence)


def test_sessions_have_the_stated_error():
    # real sessions: the noise at time 7 is the sum of three draws; mutants use one draw or redraw
    counter = TreeCounter(4, 7)
    n = 6000
    errors = np.empty(n)
    for i in range(n):
        session = counter.start(source=SYSTEM)
        errors[i] = [session.add(0) for _ in range(7)][-1]
    q = math.exp(-1 / 4)
    variance = 3 * 2 * q / (1 - q) ** 2
    # the variance of n sums to 16 %: between those of two and of four draws; α = 1e-9 by the kurtosis of 4
    spread = 6.2 * math.sqrt((4 + 0.1) / n)
    assert abs(errors.var() / variance - 1) < spread
    assert abs(2 / 3 - 1) > spread
    assert abs(4 / 3 - 1) > spread


def test_error_grows_with_the_logarithm_of_time():
    errors = {T: TreeCounter.for_epsilon(1, ONE, horizon=T).error(0.95) for T in (2**5, 2**10, 2**20, 2**40)}
    for T, error in errors.items():
        levels = T.bit_length()
        assert error <= 4 * levels**1.5
    # doubling log T multiplies the error by about 2^1.5, not by √T or T
    assert 2 < errors[2**20] / errors[2**10] < 3.5
    assert 2 < errors[2**40] / errors[2**20] < 3.5
    # T separate answers with the same budget
    separate = DiscreteLaplace(2**20).error(0.95)
    assert separate > 1000 * errors[2**20]
    assert TreeCounter(1, 1000).error() == max(TreeCounter(1, 1000).error(time=t) for t in (511, 991, 1000))


def test_gaussian_sessions():
    counter = TreeCounter(3, 16, noise="gaussian")
    session = counter.start()
    answers = [session.add(10**6) for _ in range(16)]
    limit = counter.error(1 - 1e-10)
    assert all(abs(a - 10**6 * (i + 1)) < limit for i, a in enumerate(answers))
    assert counter.error(0.95, time=15) == pytest.approx(3 * 2 * 1.959964, rel=1e-5)


def test_a_norm_does_not_say_how_many_increments_move():
    """Ten increments of 0.9 against 1.0 are l1 distance 1, and ten steps apart once floored."""
    for norm in (Sensitivity.l1, Sensitivity.l2, Sensitivity.linf):
        with pytest.raises(InvalidSensitivity, match="contribution"):
            TreeCounter(1, 16).loss(norm(1))
    assert TreeCounter(16, 1024).error("0.9999999999999999999") > TreeCounter(16, 1024).error("0.999999")
    with pytest.raises(InvalidData):
        TreeCounter(1, 16).start().add(np.longdouble(1))


def test_where_adding_up_fresh_increments_errs_less():
    """What choose-a-mechanism.md and tree_counter.md say: the rival is a sum of T noises of the scale of one loss."""
    one = Sensitivity.contribution(groups=1, per_group=1)

    def tree(horizon):
        return round(TreeCounter.for_epsilon(1, one, horizon=horizon).error(0.95))

    def added_up(increments):
        return round(_laplace_sum_quantile(1.0, increments, 0.05))

    assert [(tree(t), added_up(t)) for t in (31, 365, 1000)] == [(32, 15), (71, 51), (84, 84)]
    # the error of a tree stays while its levels and the ones of its worst time do, that of the sum grows
    assert all(tree(t) >= added_up(t) for t in (2, 63, 255, 512, 1009, 1023, 1024, 1343))
    assert all(tree(t) < added_up(t) for t in (1010, 1022, 1344, 2047, 2048, 4096))

    def gaussian(horizon):
        """The two at one ρ, in units of the noise of one increment."""
        levels = horizon.bit_length()
        tree = TreeCounter(scale=Fraction(math.sqrt(levels)), horizon=horizon, noise="gaussian")
        assert tree.loss(one).zcdp() == pytest.approx(0.5)
        return tree.error(0.95), Gaussian(1).error(0.95) * math.sqrt(horizon)

    assert all(tree >= rival * (1 - 1e-6) for tree, rival in map(gaussian, (2, 8, 12, 15, 16, 20)))
    assert all(tree < rival for tree, rival in map(gaussian, (21, 31, 32, 63, 64, 128, 365)))
    worst, rival = gaussian(365)
    assert rival / worst == pytest.approx(2.25, abs=0.01)
