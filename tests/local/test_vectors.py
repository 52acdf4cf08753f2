"""Means of vectors: exact laws, unbiasedness, intervals, and the wire."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.checks import check_randomizer
from dither.checks.statistics import chi_square_counts, proportion_at_most
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.wire import Dropped
from dither.local.core.protocol import load, protocol_of
from dither.local.means.choose import HybridMean, LaplaceMean, OneBitMean, PiecewiseMean
from dither.local.means.vectors import OneBitVector, SampledVector, best_vector
from dither.privacy import Adjacency, PrivacyLoss
from support.sizes import at_night

ALPHA = 1e-9
UNIT = (0, 1)
BIT = OneBitMean(UNIT, keep="3/4")
CELLS = PiecewiseMean(UNIT, steps=2, window=2, keep="2/3")
SAMPLED = {
    "one of two": SampledVector(2, coordinates=1, mean=BIT),
    "two of two": SampledVector(2, coordinates=2, mean=BIT),
    "two of three": SampledVector(3, coordinates=2, mean=BIT),
    "cells": SampledVector(2, coordinates=1, mean=CELLS),
}


def law_for(protocol, value):
    client = protocol.client()
    return law_of(lambda coins: client.payload(value, coins))


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
def test_corners_have_the_stated_law(dimension):
    protocol = OneBitVector(dimension, (-1, 1), keep="3/4")
    loss, corners = protocol.loss(), list(itertools.product((-1, 1), repeat=dimension))
    laws = {corner: law_for(protocol, list(corner)) for corner in corners}
    assert loss.adjacency is Adjacency.REPLACE
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    ratios = {p[y] / q[y] for p, q in itertools.permutations(laws.values(), 2) for y in p}
    assert max(ratios) == 3
    assert loss.pure() == pytest.approx(math.log(3), rel=1e-12)
    for part in (0.0, 0.3, 0.5, 0.8):
        bound = math.exp(part * loss.pure())
        found = [
            sum(max(float(p[y]) - bound * float(q[y]), 0.0) for y in p)
            for p, q in itertools.permutations(laws.values(), 2)
        ]
        assert max(found) == pytest.approx(loss.delta(Fraction(part * loss.pure())), rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_corners_are_unbiased_exactly(dimension):
    protocol = OneBitVector(dimension, (0, 10), keep="2/3")
    value = [Fraction(10 * i + 3, 4 + 2 * i) for i in range(dimension)]
    law = law_for(protocol, value)
    assert sum(law.values()) == 1
    for place, truth in enumerate(value):
        ones = sum(p for y, p in law.items() if int.from_bytes(y, "little") >> place & 1)
        share = (ones - (1 - protocol.gap) / 2) / protocol.gap
        assert 10 * share == truth
        exact = 100 * ones * (1 - ones) / protocol.gap**2
        assert protocol.variance(5, truth) == pytest.approx(float(exact) / 5, rel=1e-12)


@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_sampled_coordinates_have_the_law_of_their_numbers(name):
    protocol = SAMPLED[name]
    d, k, mean = protocol.dimension, protocol.coordinates, protocol.mean
    value = [Fraction(i + 1, 4) for i in range(d)]
    law = law_for(protocol, value)
    each = 1 + mean.width
    wanted = {}
    for drawn in itertools.permutations(range(d), k):
        numbers = [law_of(lambda c, i=i: mean.client().payload(value[i], c)) for i in drawn]
        for reports in itertools.product(*numbers):
            payload = b"".join(bytes([i]) + report for i, report in zip(drawn, reports, strict=True))
            chance = math.prod(numbers[j][report] for j, report in enumerate(reports))
            wanted[payload] = chance / math.perm(d, k)
    assert law == wanted
    assert all(len(payload) == k * each for payload in law)
    corners = [law_for(protocol, list(corner)) for corner in itertools.product((0, 1), repeat=d)]
    largest = max(p[y] / q[y] for p, q in itertools.permutations(corners, 2) for y in p)
    assert math.log(largest) == pytest.approx(protocol.loss().pure(), rel=1e-12)
    assert protocol.loss().pure() >= math.log(largest)
    for part in (0.0, 0.4, 0.7):
        bound = math.exp(part * protocol.loss().pure())
        found = [
            sum(max(float(p[y]) - bound * float(q[y]), 0.0) for y in p) for p, q in itertools.permutations(corners, 2)
        ]
        assert max(found) <= protocol.loss().delta(Fraction(part * protocol.loss().pure())) + 1e-12


@pytest.mark.parametrize(
    "protocol",
    [
        OneBitVector.for_epsilon(20, (0, 5), 1),
        OneBitVector(2, UNIT, keep="3/4"),
        pytest.param(SampledVector.for_epsilon(20, (0, 5), 1), marks=at_night),
        SampledVector.for_epsilon(4, (0, 5), 6),
        SAMPLED["two of three"],
    ],
    ids=["corner", "small corner", "sampled", "several sampled", "two of three"],
)
def test_conformance(protocol):
    assert check_randomizer(protocol, draws=20_000, most=2000).passed


@pytest.mark.parametrize("epsilon", ["1/2", "1", "7"])
def test_losses_never_exceed_what_was_asked(epsilon):
    for protocol in (OneBitVector.for_epsilon(9, UNIT, epsilon), SampledVector.for_epsilon(9, UNIT, epsilon)):
        assert float(Fraction(epsilon)) * (1 - 1e-6) <= protocol.loss().pure() <= float(Fraction(epsilon)) * (1 + 1e-12)


def test_the_best_is_sampled_and_corners_follow_their_formula():
    assert isinstance(best_vector(1, 10), SampledVector)
    assert SampledVector.for_epsilon(10, UNIT, 6).coordinates == 2
    assert SampledVector.for_epsilon(10, UNIT, 1).coordinates == 1
    odds = math.e
    predicted = (math.pi / 2) * 1001 * ((odds + 1) / (odds - 1)) ** 2 / 4
    assert OneBitVector.for_epsilon(1001, UNIT, 1).variance(1) == pytest.approx(predicted, rel=0.002)


# ------------------------------------------------------------------ many at once


@pytest.mark.parametrize(
    "protocol",
    [OneBitVector(3, UNIT, keep="3/4"), OneBitVector(4, UNIT, keep="3/4"), *SAMPLED.values()],
    ids=["odd", "even", *SAMPLED],
)
def test_simulation_has_the_law_of_the_client(protocol):
    value = [0.25, 1.0, 0.5, 0.0][: protocol.dimension]
    rows = protocol.randomize([value] * 60_000, source=InsecureSeededSource(2))
    found, counts = np.unique(rows, axis=0, return_counts=True)
    seen = {row.tobytes(): count for row, count in zip(found, counts, strict=True)}

    def p_value(other):
        law = law_for(protocol, other)
        assert set(seen) <= set(law)
        counted = np.array([seen.get(payload, 0) for payload in law], dtype=float)
        return chi_square_counts(counted, np.array([float(p) for p in law.values()]))

    assert p_value(value) > ALPHA
    assert p_value([0.5, *value[1:]]) < ALPHA


def table(people, dimension):
    rng = np.random.default_rng(4)
    return rng.integers(0, 2, (people, dimension)) * rng.random((people, dimension))  # means 1/4


@pytest.mark.parametrize(
    "protocol",
    [
        OneBitVector.for_epsilon(6, UNIT, 2),
        SampledVector.for_epsilon(6, UNIT, 2),
        SampledVector.for_epsilon(6, UNIT, 8),
    ],
    ids=["corner", "one sampled", "three sampled"],
)
def test_estimates_are_unbiased_with_the_stated_variance_and_intervals_cover(protocol):
    surveys, people = 150, 600
    rows = protocol.randomize(table(surveys * people, 6), source=InsecureSeededSource(6))
    found = [protocol.aggregator().add(part).estimate(0.8) for part in rows.reshape(surveys, people, -1)]
    values = np.array([one.values for one in found])
    variances = np.array([one.variances for one in found])
    z = (values - 0.25) / np.sqrt(variances.mean(axis=0))
    # 900 squares: a standard error of 4.7%
    assert abs((z**2).mean() - 1) < 0.25
    assert stats.norm.sf(np.abs(z.mean(axis=0)).max() * math.sqrt(surveys)) * 12 > ALPHA
    ends = np.array([one.intervals for one in found])
    wrong = int(((ends[:, :, 0] > 0.25) | (ends[:, :, 1] < 0.25)).any(axis=1).sum())
    assert proportion_at_most(wrong, surveys, 0.2) > ALPHA
    middle = ends.mean(axis=2, keepdims=True)
    narrow = middle + (ends - middle) / 3
    wrong = int(((narrow[:, :, 0] > 0.25) | (narrow[:, :, 1] < 0.25)).any(axis=1).sum())
    assert proportion_at_most(wrong, surveys, 0.2) < ALPHA


def test_noise_alone_has_the_stated_variance():
    """Everybody has the same vector, so that nothing but noise varies; 24,000 squares have a standard error of 1%."""
    protocol, surveys, people = OneBitVector.for_epsilon(6, UNIT, 2), 4000, 50
    rows = protocol.randomize(np.full((surveys * people, 6), 0.3), source=InsecureSeededSource(1))
    bits = np.unpackbits(rows, axis=1, count=6, bitorder="little").reshape(surveys, people, 6)
    gap = float(protocol.gap)
    values = (bits.mean(axis=1) - (1 - gap) / 2) / gap
    assert abs(((values - 0.3) ** 2).mean() / protocol.variance(people, 0.3) - 1) < 0.05


# ------------------------------------------------------------------ the collection


@pytest.mark.parametrize("make", [OneBitVector.for_epsilon, SampledVector.for_epsilon], ids=["corner", "sampled"])
def test_clients_and_aggregate_meet(make, tmp_path):
    protocol = make(3, (0, 24), 6)
    client = client_of(json.loads(json.dumps(protocol.describe())))
    people = [[8, 0.5, Fraction(20)], [6, 1, 24]] * 200
    aggregate = protocol.aggregator().add_reports(client.text(who) for who in people[:100])
    aggregate += protocol.aggregator().add_reports(client.report(tuple(who)) for who in people[100:])
    aggregate.save(tmp_path / "kept.json")
    found = load(tmp_path / "kept.json").estimate(0.999)
    assert found.reports == 400
    assert found.intervals.shape == (3, 2)
    sigma = math.sqrt(protocol.variance(400)) + 3 / math.sqrt(400)
    assert np.abs(found.values - [7, 0.75, 22]).max() < 7 * sigma
    assert (protocol.aggregator().add_reports([]) + aggregate).reports == 400


def test_a_coordinate_that_nobody_was_asked_for_is_unknown():
    protocol = SampledVector(50, coordinates=1, mean=BIT)
    found = protocol.aggregator().add(protocol.randomize(np.zeros((3, 50)))).estimate()
    unknown = np.isinf(found.variances)
    assert unknown.sum() >= 47
    assert (found.intervals[unknown] == [0, 1]).all()
    with pytest.raises(InvalidData, match="no reports"):
        protocol.aggregator().estimate()
    with pytest.raises(InvalidData, match="no reports"):
        OneBitVector(2, UNIT, keep="3/4").aggregator().estimate()


def test_strays_are_dropped():
    protocol = SAMPLED["two of three"]
    rows = protocol.randomize(np.zeros((4, 3)))
    rows[0, 2] = rows[0, 0]  # the same coordinate twice
    rows[1, 0] = 3
    rows[2, 1] = 2
    aggregate = protocol.aggregator().add(rows)
    assert (aggregate.reports, aggregate.dropped) == (1, {Dropped.OUT_OF_RANGE: 3})
    corner = OneBitVector(3, UNIT, keep="3/4")
    assert corner.aggregator().add(np.array([[7], [8]], dtype=np.uint8)).dropped == {Dropped.OUT_OF_RANGE: 1}


@pytest.mark.parametrize(
    "protocol", [OneBitVector(3, UNIT, keep="3/4"), SAMPLED["two of three"]], ids=["corner", "sampled"]
)
def test_wrong_values_and_descriptions(protocol):
    client, form = protocol.client(), protocol.describe()
    for wrong in ([[31, 2]], [31, 2, 3], [[31, 2, float("nan")]], [["31", 2, 3]], 31, None):
        with pytest.raises(InvalidData, match="nothing was drawn") as error:
            protocol.randomize(wrong)
        assert "31" not in str(error.value)
    for wrong in ([31, 2], 31, "123", [31, 2, None], [31, 2, float("nan")], {0: 1, 1: 2, 2: 3}):
        with pytest.raises(InvalidData, match="nothing was drawn") as error:
            client.payload(wrong)
        assert "31" not in str(error.value)
    assert protocol.randomize(np.zeros((0, 3))).shape == (0, protocol.width)
    assert protocol_of(json.loads(json.dumps(form))) == protocol
    with pytest.raises(InvalidParameter):
        protocol_of({**form, "epsilon": "1"})
    for field in set(form) - {"protocol"}:
        for wrong in (None, 0, "2", 0.5, 10**6):
            for read in (protocol_of, client_of):
                with pytest.raises(InvalidParameter):
                    read({**form, field: wrong})


def test_wrong_parameters():
    for dimension in (0, 2**17, 2.0):
        with pytest.raises(InvalidParameter):
            OneBitVector(dimension, UNIT, keep="3/4")
    with pytest.raises(InvalidParameter, match="private"):
        OneBitVector(2, UNIT, keep=1)
    for coordinates in (0, 3):
        with pytest.raises(InvalidParameter):
            SampledVector(2, coordinates=coordinates, mean=BIT)
    with pytest.raises(InvalidParameter):
        SampledVector(2, coordinates=1, mean=OneBitVector(2, UNIT, keep="3/4"))
    other = {**SAMPLED["one of two"].describe(), "collection": {"protocol": "kary", "domain": 2, "keep": "3/4"}}
    for read in (protocol_of, client_of):
        with pytest.raises(InvalidParameter):
            read(other)


@pytest.mark.parametrize("mean", [LaplaceMean.for_epsilon(UNIT, 1), HybridMean.for_epsilon(UNIT, 1)])
def test_any_protocol_for_a_number_will_do(mean):
    protocol = SampledVector(4, coordinates=2, mean=mean)
    assert protocol_of(protocol.describe()) == protocol
    found = protocol.aggregator().add(protocol.randomize(np.full((20_000, 4), 0.5))).estimate()
    assert np.abs(found.values - 0.5).max() < 7 * math.sqrt(protocol.variance(20_000))


# Permanent: a change here means that reports on their way, and aggregates that were kept, can't be read any more.
def test_fingerprints_are_permanent():
    assert OneBitVector(3, UNIT, keep="3/4").fingerprint.hex() == "6fbb67b95e233995"
    assert SAMPLED["two of three"].fingerprint.hex() == "1ae1cf485f8776c1"
