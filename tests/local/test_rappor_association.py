"""Two variables together: the top of the likelihood is reached, errors are those of its curvature, intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.rappor.associate import _climb, _likelihoods, associate
from dither.local.rappor.protocol import Rappor

ALPHA = 1e-9
FIRST, SECOND = ["a", "b", "c"], ["x", "y"]
JOINT = np.array([[0.3, 0.05], [0.05, 0.3], [0.1, 0.2]])
PROTOCOLS = (Rappor.for_epsilon(3, bits=32, cohorts=8), Rappor(bits=16, hashes=1, cohorts=4, f="1/4", p="1/8", q="7/8"))


def pairs(joint, n, rng, seed):
    codes = rng.choice(joint.size, n, p=joint.ravel())
    source = InsecureSeededSource(seed)
    rows, columns = np.divmod(codes, joint.shape[1])
    return (
        (PROTOCOLS[0], PROTOCOLS[0].randomize(rows, candidates=FIRST, source=source), FIRST),
        (PROTOCOLS[1], PROTOCOLS[1].randomize(columns, candidates=SECOND, source=source), SECOND),
    )


def test_likelihoods_are_those_of_the_bits():
    protocol = Rappor(bits=8, hashes=2, cohorts=3, f="1/4", p="1/8", q="7/8")
    rows = protocol.randomize(["a", "b", "c"] * 20, source=InsecureSeededSource(1))
    found = _likelihoods(protocol, rows, FIRST, unlisted=False)
    places, bits = protocol.places(FIRST), np.unpackbits(rows[:, 2:], axis=1, bitorder="little")
    for person in range(60):
        exact = []
        for v in range(3):
            one = np.full(8, float(protocol.miss))
            one[places[rows[person, 0], v]] = float(protocol.hit)
            exact.append(np.prod(np.where(bits[person], one, 1 - one)))
        assert np.allclose(found[person], np.array(exact) / max(exact))


def test_the_top_is_reached_and_errors_are_its_curvature():
    first, second = pairs(JOINT, 3000, np.random.default_rng(2), seed=3)
    result = associate(first, second, unlisted=False)
    likelihoods = [_likelihoods(*part, unlisted=False) for part in (first, second)]
    assert np.array_equal(_climb(*likelihoods), result.joint)
    assert result.joint.sum() == pytest.approx(1)

    def height(joint):
        return float(np.log(np.einsum("ui,ij,uj->u", likelihoods[0], joint, likelihoods[1])).sum())

    # no step towards any vertex, nor towards the truth, climbs by more than what the climb left
    top = height(result.joint)
    for toward in [*np.eye(6).reshape(6, 3, 2), JOINT]:
        for step in (1e-3, 1e-2, 0.3):
            assert height((1 - step) * result.joint + step * toward) < top + 0.01
    # minus the second difference along a direction of sum 0 is the information there
    covariance = result.covariance
    assert np.abs(covariance.sum(axis=0)).max() < 1e-12
    direction = np.array([1.0, -1, 0.5, 0.5, -2, 1])
    information = np.linalg.pinv(covariance, rcond=1e-9)
    step = 1e-4 * direction.reshape(3, 2)
    curvature = -(height(result.joint + step) - 2 * top + height(result.joint - step)) / 1e-8
    assert curvature == pytest.approx(direction @ information @ direction, rel=1e-3)


@pytest.mark.parametrize("unlisted", [False, True])
def test_intervals_cover(unlisted):
    """Catches intervals of a third of their width."""
    rng, rounds = np.random.default_rng(4), 60
    truth = np.pad(JOINT, ((0, int(unlisted)), (0, int(unlisted))))
    covered, halved, scores = 0, 0, []
    for i in range(rounds):
        result = associate(*pairs(JOINT, 3000, rng, seed=i), unlisted=unlisted)
        low, high = result.intervals[..., 0], result.intervals[..., 1]
        covered += bool(((low <= truth) & (truth <= high)).all())
        reach = stats.norm.isf(0.025 / truth.size) * result.standard_errors / 3
        halved += bool((np.abs(result.joint - truth) <= reach).all())
        scores.append(((result.joint - truth) / result.standard_errors)[:3, :2])
    assert stats.binom.cdf(covered, rounds, 0.95) > ALPHA
    if not unlisted:
        spread = np.var(scores, axis=0).mean()
        assert 0.7 < spread < 1.4
        assert np.abs(np.mean(scores, axis=0)).max() * np.sqrt(rounds) < 5
        assert stats.binom.cdf(halved, rounds, 0.95) < ALPHA  # a third of the width is noticed


def test_values_that_are_no_candidates_go_to_the_rest():
    rng = np.random.default_rng(5)
    first, second = pairs(JOINT, 30_000, rng, seed=6)
    listed = (first[0], first[1], ["a"]), second
    result = associate(*listed)
    assert result.joint.shape == (2, 3)
    # "b" and "c" are the rest of the first variable
    truth = np.array([[0.3, 0.05, 0.0], [0.15, 0.5, 0.0]])
    assert np.all(np.abs(result.joint - truth) < 5 * result.standard_errors + 0.02)
    assert result.margins[0][1] == pytest.approx(0.65, abs=0.06)


def test_dependence_tells_independent_values_from_others():
    rng = np.random.default_rng(7)
    together = associate(*pairs(JOINT, 10_000, rng, seed=8), unlisted=False)
    value, error = together.dependence(0, 0)
    assert abs(value - (0.3 - 0.35 * 0.45)) < 5 * error
    assert value > 5 * error
    rows, columns = together.margins
    assert value == pytest.approx(together.joint[0, 0] - rows[0] * columns[0])
    apart = np.outer([0.5, 0.3, 0.2], [0.6, 0.4])
    scores = []
    for i in range(40):
        result = associate(*pairs(apart, 2000, rng, seed=20 + i), unlisted=False)
        value, error = result.dependence(0, 0)
        scores.append(value / error)
    assert 0.4 < np.var(scores) < 2.2
    assert abs(np.mean(scores)) * np.sqrt(40) < 5


def test_wrong_input_is_refused():
    first, second = pairs(JOINT, 50, np.random.default_rng(9), seed=10)
    with pytest.raises(InvalidData, match="same people"):
        associate((first[0], first[1][:-1], FIRST), second)
    with pytest.raises(InvalidData):
        associate((first[0], first[1][:0], FIRST), (second[0], second[1][:0], SECOND))
    with pytest.raises(InvalidData, match="bytes"):
        associate((first[0], first[1][:, :-1], FIRST), second)
    damaged = second[1].copy()
    damaged[3, 0] = 77
    with pytest.raises(InvalidData, match="client"):
        associate(first, (second[0], damaged, SECOND))
    for wrong in ([], ["a", "a"], "ab"):
        with pytest.raises(InvalidParameter):
            associate((first[0], first[1], wrong), second)
    with pytest.raises(InvalidParameter, match="pairs"):
        associate(
            (first[0], first[1], [str(i) for i in range(100)]), (second[0], second[1], [str(i) for i in range(50)])
        )
    tiny = Rappor(bits=2, hashes=1, cohorts=1, f="1/2")
    rows = tiny.randomize([0] * 50, source=InsecureSeededSource(1))
    with pytest.raises(InvalidParameter, match="told apart"):
        associate((tiny, rows, ["0", "1", "2"]), second, unlisted=False)


def test_fewer_people_than_joint_shares_are_told_so():
    # not that their candidates can't be told apart, which is what the singular information looks like
    first, second = pairs(JOINT, 5, np.random.default_rng(11), seed=12)
    with pytest.raises(InvalidData, match="at least as many people"):
        associate(first, second)


def test_it_prints():
    result = associate(*pairs(JOINT, 2000, np.random.default_rng(13), seed=14))
    lines = str(result).splitlines()
    assert lines[0].split() == ["both", "share", "interval"]
    assert len(lines) == 1 + result.joint.size + 2
    assert f"{FIRST[0]} × {SECOND[0]}" in str(result)
    assert "(not listed)" in str(result)
