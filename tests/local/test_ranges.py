"""Ranges, distribution functions and quantiles: exact laws, exact reconstruction, intervals that cover."""

import itertools
import json
import math
import subprocess
import sys
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
from dither.local.frequency.kary import Kary
from dither.local.frequency.unary import Unary
from dither.local.means.vectors import OneBitVector, SampledVector
from dither.local.ranges.hierarchical import (
    HierarchicalRanges,
    WaveletRanges,
    _coin_proxy,
    _decompose,
    _prefixes,
    make_tree_consistent,
)
from dither.privacy import Adjacency, PrivacyLoss
from support.sizes import at_night

ALPHA = 1e-9
TREE = HierarchicalRanges(4, branching=2, oracles=(Kary(2, "3/4"), Unary(4, keep="1/2", noise="1/4")))


def laws_of(protocol, values):
    client = protocol.client()
    return [law_of(lambda coins, value=value: client.payload(value, coins)) for value in values]


def signed(payload):
    """Level, row and sign of a wavelet report."""
    number = int.from_bytes(payload[1:], "little")
    return payload[0], number >> 1, 1 - 2 * (number & 1)


# ------------------------------------------------------------------ exact


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16])
def test_wavelet_law_is_that_of_the_loss(size):
    protocol = WaveletRanges(size, keep="3/4")
    laws, loss = laws_of(protocol, range(size)), protocol.loss()
    assert all(sum(law.values()) == 1 and set(law) == set(laws[0]) for law in laws)
    assert max(p[y] / q[y] for p, q in itertools.permutations(laws, 2) for y in p) == 3
    assert loss.adjacency is Adjacency.REPLACE
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    bounds = [Fraction(1), Fraction(3, 2), Fraction(2), Fraction(14, 5)]
    for bound in bounds:
        found = max(sum(max(p[y] - bound * q[y], 0) for y in p) for p, q in itertools.permutations(laws, 2))
        weight = Fraction(protocol.levels + 1, 8 * protocol.levels)
        assert found == weight * (3 - bound)
        assert loss.delta(Fraction(math.log(bound))) == pytest.approx(float(found), rel=1e-9)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_wavelet_coefficients_are_unbiased_exactly(size):
    protocol = WaveletRanges(size, keep="2/3")
    levels = protocol.levels
    for value, law in enumerate(laws_of(protocol, range(size))):
        for level in range(levels):
            at = {y: p * levels for y, p in law.items() if y[0] == level}
            assert sum(at.values()) == 1
            half = value >> (levels - 1 - level)
            for node in range(2**level):
                sent = sum(p * signed(y)[2] * (-1) ** (signed(y)[1] & node).bit_count() for y, p in at.items())
                assert sent / protocol.gap == (1 - 2 * (half & 1)) * (half >> 1 == node)


@pytest.mark.parametrize("size", [2, 6, 8, 13])
def test_coefficients_make_up_every_share(size):
    protocol = WaveletRanges(size, keep="3/4")
    levels, rng = protocol.levels, np.random.default_rng(size)
    shares = np.zeros(2**levels)
    shares[:size] = rng.dirichlet(np.ones(size))
    weights = protocol.weights(np.arange(size))
    for stop in range(size):
        total = stop / 2**levels
        for level in range(levels):
            halves = shares.reshape(2 ** (level + 1), -1).sum(axis=1).reshape(-1, 2)
            total += weights[level, stop] * (halves[:, 0] - halves[:, 1])[stop >> (levels - level)]
        assert total == pytest.approx(shares[:stop].sum(), abs=1e-12)


def test_an_aggregate_of_the_exact_law_gives_back_the_shares():
    """Counts in proportion to the law of a population: the estimates are its shares, to the last digits."""
    protocol = WaveletRanges(8, keep="3/4")
    shares = [Fraction(k, 36) for k in (1, 2, 3, 4, 5, 6, 7, 8)]
    law = {}
    for share, one in zip(shares, laws_of(protocol, range(8)), strict=True):
        for y, p in one.items():
            law[y] = law.get(y, 0) + share * p
    unit = math.lcm(*(p.denominator for p in law.values()))
    rows = np.concatenate([np.repeat(np.frombuffer(y, np.uint8)[None], int(p * unit), axis=0) for y, p in law.items()])
    found = protocol.aggregator().add(rows).estimate()
    assert found.shares() == pytest.approx([float(share) for share in shares], abs=1e-12)
    assert found.quantile("1/2").value == 5
    assert found.share(2, 4).value == pytest.approx(12 / 36)
    assert found.share(0, 7).value == pytest.approx(1)
    assert found.share(0, 7).interval == (1.0, 1.0)


def test_tree_law_is_within_the_loss():
    laws = laws_of(TREE, range(4))
    assert all(sum(law.values()) == 1 for law in laws)
    largest = max(p[y] / q[y] for p, q in itertools.permutations(laws, 2) for y in p)
    assert largest == 3
    assert TREE.loss().pure() == pytest.approx(math.log(3), rel=1e-12)
    for bound in (1, Fraction(3, 2), Fraction(5, 2)):
        found = max(sum(max(p[y] - bound * q[y], 0) for y in p) for p, q in itertools.permutations(laws, 2))
        assert TREE.loss().delta(Fraction(math.log(bound))) == pytest.approx(float(found), rel=1e-9)


@pytest.mark.parametrize("branching", [2, 3])
def test_consistency_is_weighted_least_squares(branching):
    rng = np.random.default_rng(1)
    levels = [rng.normal(size=branching ** (level + 1)) for level in range(3)]
    precisions = [2.0, 0.5, 1.5]
    leaves = branching**3
    rows, goals, weights = [], [], []
    for level, (estimates, precision) in enumerate(zip(levels, precisions, strict=True)):
        span = branching ** (2 - level)
        for node, estimate in enumerate(estimates):
            rows.append((np.arange(leaves) // span == node).astype(float))
            goals.append(estimate)
            weights.append(precision)
    matrix, goal, weight = np.array(rows), np.array(goals), np.array(weights)
    normal = matrix.T @ (weight[:, None] * matrix)
    # Lagrange: leaves sum to 1
    system = np.block([[normal, np.ones((leaves, 1))], [np.ones((1, leaves)), np.zeros((1, 1))]])
    wanted = np.linalg.solve(system, np.append(matrix.T @ (weight * goal), 1.0))[:leaves]
    found = make_tree_consistent(levels, precisions, branching)
    assert found == pytest.approx(wanted, abs=1e-9)
    assert make_tree_consistent(levels, [0.0, 0.0, 1.0], branching).sum() == pytest.approx(1)


@pytest.mark.parametrize("branching", [2, 3, 4])
def test_ranges_are_sums_of_the_fewest_nodes(branching):
    rng = np.random.default_rng(2)
    size = branching**3
    shares = rng.dirichlet(np.ones(size))
    levels = [shares.reshape(branching ** (level + 1), -1).sum(axis=1) for level in range(3)]
    totals, counts = _prefixes(levels, branching, np.arange(size))
    assert totals == pytest.approx(np.concatenate([[0], np.cumsum(shares)])[:-1], abs=1e-12)
    assert max(int(count.max()) for count in counts) == branching - 1
    for start, end in itertools.combinations(range(size + 1), 2):
        total, used = _decompose(levels, branching, start, end)
        assert total == pytest.approx(shares[start:end].sum(), abs=1e-12)
        assert used.max() <= max(branching, 2 * (branching - 1))


def test_the_proxy_of_a_coin_is_enough_and_not_too_much():
    """E[e^{s(X−p)}] ≤ e^{s²·proxy/2} for all s, with equality nearly reached (Kearns & Saul 1998)."""
    s = np.linspace(-20, 20, 4001)
    for p in (0.01, 0.2, 0.4):
        proxy = _coin_proxy(Fraction(p), Fraction(p) / 2)
        for chance in (p / 2, p * 0.9, p):
            logs = np.log1p(chance * np.expm1(s)) - s * chance
            assert (logs <= s**2 * proxy / 2 + 1e-12).all()
        logs = np.log1p(p * np.expm1(s)) - s * p
        inner = np.abs(s) > 1e-6
        assert (logs[inner] / (s[inner] ** 2 * proxy / 2)).max() > 0.999
    assert _coin_proxy(Fraction(3, 4), Fraction(1, 4)) == 0.25


@pytest.mark.parametrize(
    "protocol",
    [
        WaveletRanges.for_epsilon(100, 1),
        WaveletRanges(["low", "middle", "high"], keep="3/4"),
        HierarchicalRanges.for_epsilon(100, 1),
        pytest.param(HierarchicalRanges.for_epsilon(30, 1, branching=5), marks=at_night),
        TREE,
    ],
    ids=["wavelet", "labels", "binary tree", "tree of five", "small tree"],
)
def test_conformance(protocol):
    assert check_randomizer(protocol, draws=20_000, most=2000).passed


@pytest.mark.parametrize("epsilon", ["1/5", "1", "4"])
def test_losses_never_exceed_what_was_asked(epsilon):
    for make in (WaveletRanges.for_epsilon, HierarchicalRanges.for_epsilon):
        assert float(Fraction(epsilon)) * (1 - 1e-6) <= make(50, epsilon).loss().pure() <= Fraction(epsilon)


# ------------------------------------------------------------------ many at once


@pytest.mark.parametrize("protocol", [WaveletRanges(6, keep="3/4"), TREE], ids=["wavelet", "tree"])
def test_simulation_has_the_law_of_the_client(protocol):
    rows = protocol.randomize([3] * 60_000, source=InsecureSeededSource(5))
    found, counts = np.unique(rows, axis=0, return_counts=True)
    seen = {row.tobytes(): count for row, count in zip(found, counts, strict=True)}
    right, wrong = laws_of(protocol, (3, 2))
    for law, fits in ((right, True), (wrong, False)):
        assert set(seen) <= set(law)
        counted = np.array([seen.get(payload, 0) for payload in law], dtype=float)
        assert (chi_square_counts(counted, np.array([float(p) for p in law.values()])) > ALPHA) is fits


def population(people, size):
    rng = np.random.default_rng(7)
    return np.minimum((rng.beta(2, 4, people) * size).astype(np.int64), size - 1)


def true_cdf(size):
    return stats.beta.cdf(np.arange(size + 1) / size, 2, 4)


@pytest.fixture(
    scope="module",
    params=[
        (WaveletRanges.for_epsilon, {}),
        (HierarchicalRanges.for_epsilon, {"branching": 2}),
        (HierarchicalRanges.for_epsilon, {"branching": 4}),
    ],
    ids=["wavelet", "binary tree", "tree of four"],
)
def surveys(request):
    make, options = request.param
    size, people, number = 50, 1500, 200
    protocol = make(size, 2, **options)
    rows = protocol.randomize(population(people * number, size), source=InsecureSeededSource(3))
    return protocol, [protocol.aggregator().add(part).estimate(0.8) for part in rows.reshape(number, people, -1)]


def test_distribution_functions_are_unbiased(surveys):
    _, found = surveys
    truth = true_cdf(50)
    for values in (np.array([one.cumulative for one in found]), np.array([one.centres for one in found])):
        spread = values[:, 1:-1].std(axis=0)
        z = (values.mean(axis=0) - truth)[1:-1] / spread * math.sqrt(len(found))
        assert 2 * stats.norm.sf(np.abs(z).max()) * 49 > ALPHA
        assert (values[:, 0] == 0).all()
        assert (values[:, -1] == 1).all()


def test_intervals_of_prefixes_ranges_and_quantiles_cover(surveys):
    _, found = surveys
    truth, number = true_cdf(50), len(found)
    ends = np.array([one.cdf_intervals() for one in found])
    outside = (ends[:, :, 0] > truth[1:]) | (ends[:, :, 1] < truth[1:])
    for place in (3, 12, 24, 40):
        assert proportion_at_most(int(outside[:, place].sum()), number, 0.2) > ALPHA
    for first, last in ((5, 20), (0, 24), (25, 49), (13, 14)):
        share = truth[last + 1] - truth[first]
        wrong = sum(
            not one.share(first, last).interval[0] <= share <= one.share(first, last).interval[1] for one in found
        )
        assert proportion_at_most(wrong, number, 0.2) > ALPHA
    for q in (0.25, 0.5, 0.9):
        exact = int(np.searchsorted(truth[1:], q))
        spans = [one.quantile(q).interval for one in found]
        assert proportion_at_most(sum(not low <= exact <= high for low, high in spans), number, 0.2) > ALPHA


def test_narrow_intervals_are_noticed(surveys):
    protocol, found = surveys
    truth = true_cdf(50)
    # those of trees are wider than they need be
    part = 3 if isinstance(protocol, WaveletRanges) else 8
    wrong = sum(abs(one.centres[15] - truth[15]) > one.errors[15] / part for one in found)
    assert proportion_at_most(wrong, len(found), 0.2) < ALPHA


def test_simultaneous_intervals_hold_together():
    protocol = WaveletRanges.for_epsilon(50, 2)
    rows = protocol.randomize(population(1500 * 100, 50), source=InsecureSeededSource(4)).reshape(100, 1500, -1)
    wrong = 0
    for part in rows:
        found = protocol.aggregator().add(part).estimate(0.8, simultaneous=True)
        ends, truth = found.cdf_intervals(), true_cdf(50)[1:]
        wrong += bool(((ends[:, 0] > truth) | (ends[:, 1] < truth)).any())
        each = protocol.aggregator().add(part).estimate(0.8)
        assert (found.errors[1:-1] > each.errors[1:-1]).all()
    assert proportion_at_most(wrong, 100, 0.2) > ALPHA


def test_wavelet_variance_is_that_of_theory():
    """Everybody has the same value, so the variance is known exactly; two of 4,000 surveys have an error of 1.6%."""
    protocol, people, number = WaveletRanges(16, keep="3/4"), 200, 4000
    rows = protocol.randomize(np.full(people * number, 5), source=InsecureSeededSource(8)).reshape(number, people, -1)
    cuts, values = np.array([3, 11]), np.empty((number, 2))
    for trial, part in enumerate(rows):
        values[trial] = protocol.aggregator().add(part).estimate().cumulative[cuts]
    weights = protocol.weights(cuts)
    gap, ratios = float(protocol.gap), []
    for j, cut in enumerate(cuts):
        exact = 0.0
        for level in range(4):
            node, half = 5 >> (4 - level), 5 >> (3 - level) & 1
            mean = (1 - 2 * half) * (node == cut >> (4 - level))
            exact += weights[level, j] ** 2 * (gap**-2 - mean**2)
        exact *= 4 / people
        assert exact <= protocol.variance(people) * (1 + 1e-12)
        # levels have a quarter of the people only on average: E[1/n] is larger by (1 − 1/4)/(people/4)
        ratios.append(values[:, j].var() / (exact * (1 + 0.75 * 4 / people)))
    assert abs(np.mean(ratios) - 1) < 0.05
    assert protocol.variance(people, 0, 10) == pytest.approx((weights[:, 1] ** 2).sum() / gap**2 * 4 / people)


def test_errors_are_predicted():
    for protocol in (WaveletRanges.for_epsilon(64, 1), HierarchicalRanges.for_epsilon(64, 1)):
        rows = protocol.randomize(population(60_000, 64), source=InsecureSeededSource(2))
        found = protocol.aggregator().add(rows).estimate()
        assert found.errors.max() == pytest.approx(protocol.error(n=60_000), rel=0.05)
        low, high = found.quantile("1/2").interval
        assert low <= int(np.searchsorted(true_cdf(64)[1:], 0.5)) <= high <= low + 16


# ------------------------------------------------------------------ the collection


@pytest.mark.parametrize("make", [WaveletRanges.for_epsilon, HierarchicalRanges.for_epsilon], ids=["wavelet", "tree"])
def test_clients_and_aggregate_meet(make, tmp_path):
    labels = ["never", "monthly", "weekly", "daily", "hourly"]
    protocol = make(labels, 8)
    client = client_of(json.loads(json.dumps(protocol.describe())))
    people = ["monthly"] * 300 + ["daily"] * 300
    aggregate = protocol.aggregator().add_reports(client.text(who) for who in people[:200])
    aggregate += protocol.aggregator().add_reports(client.report(who) for who in people[200:])
    aggregate.save(tmp_path / "kept.json")
    found = load(tmp_path / "kept.json").estimate()
    assert found.reports == 600
    assert found.share("never", "weekly").value == pytest.approx(0.5, abs=0.35)
    assert found.quantile("3/10").interval[0] in labels
    assert found.quantile(1).value in labels
    with pytest.raises(InvalidParameter, match="after the last"):
        found.share("daily", "never")
    with pytest.raises(InvalidData):
        found.share("often", "daily")
    for q in (0, "11/10"):
        with pytest.raises(InvalidParameter):
            found.quantile(q)


@pytest.mark.parametrize("protocol", [WaveletRanges(6, keep="3/4"), TREE], ids=["wavelet", "tree"])
def test_wrong_values_and_descriptions(protocol):
    form = protocol.describe()
    for wrong in ([31], [-1], [0.5], ["3"]):
        with pytest.raises(InvalidData, match="nothing was drawn") as error:
            protocol.randomize(wrong)
        assert "31" not in str(error.value)
        with pytest.raises(InvalidData):
            protocol.client().payload(wrong[0])
    assert protocol.randomize([]).shape == (0, protocol.width)
    assert protocol_of(json.loads(json.dumps(form))) == protocol
    with pytest.raises(InvalidParameter):
        protocol_of({**form, "epsilon": "1"})
    for field in set(form) - {"protocol"}:
        for wrong in (None, 0, "2", 0.5, 2**40, {}, []):
            for read in (protocol_of, client_of):
                with pytest.raises(InvalidParameter):
                    read({**form, field: wrong})
    with pytest.raises(InvalidData, match="no reports"):
        protocol.aggregator().estimate()


def test_trees_take_only_collections_that_fit():
    form = TREE.describe()
    other = {**form["collection"], "strategy": "split"}
    for read in (protocol_of, client_of):
        with pytest.raises(InvalidParameter):
            read({**form, "collection": other})
        with pytest.raises(InvalidParameter):
            read({**form, "collection": Kary(2, "3/4").describe()})
        with pytest.raises(InvalidParameter):
            read({**form, "domain": 5})
    with pytest.raises(InvalidParameter, match="2, 4"):
        HierarchicalRanges(4, branching=2, oracles=(Kary(2, "3/4"),))
    for branching in (1, 2**30):
        with pytest.raises(InvalidParameter):
            HierarchicalRanges.for_epsilon(10, 1, branching=branching)


def test_strays_are_dropped():
    protocol = WaveletRanges(16, keep="3/4")
    rows = np.array([[0, 1], [0, 2], [3, 15], [3, 16], [4, 0], [255, 0]], dtype=np.uint8)
    aggregate = protocol.aggregator().add(rows)
    assert (aggregate.reports, aggregate.dropped) == (2, {Dropped.OUT_OF_RANGE: 4})


def test_levels_without_reports_say_nothing():
    protocol = WaveletRanges(16, keep="3/4")
    found = protocol.aggregator().add(np.array([[0, 1]], dtype=np.uint8)).estimate()
    assert found.share(3, 5).interval == (0.0, 1.0)
    assert found.quantile("1/2").interval == (0, 15)
    rows = TREE.randomize([0, 1, 2, 3])
    alone = TREE.aggregator().add(rows[:1]).estimate()
    assert alone.share(1, 2).interval == (0.0, 1.0)
    assert np.isfinite(alone.cumulative).all()


# Permanent: a change here means that reports on their way, and aggregates that were kept, can't be read any more.
def test_fingerprints_are_permanent():
    assert WaveletRanges(6, keep="3/4").fingerprint.hex() == "f7bd5b275fcb8eb5"
    assert TREE.fingerprint.hex() == "2e36e99f12d83e48"


def test_clients_need_nothing_but_python():
    wavelet = WaveletRanges(6, keep="3/4")
    vectors = OneBitVector(3, (0, 1), keep="3/4"), SampledVector.for_epsilon(3, (0, 1), 5)
    forms = json.dumps(
        [(one.describe(), 3) for one in (wavelet, TREE)] + [(v.describe(), [0, 0.5, 1]) for v in vectors]
    )
    script = (
        "import json, sys\n"
        "from dither.local.clients import client_of\n"
        f"for form, value in json.loads({forms!r}):\n"
        "    client = client_of(form)\n"
        "    assert len(client.payload(value)) == client.width\n"
        "heavy = {'numpy', 'scipy', 'dither.entropy', 'dither.numeric'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
