"""Frequency oracles at full size: the error that theory predicts, the law that the client has, permanent bytes."""

import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.checks.statistics import chi_square_counts
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.wire import Dropped
from dither.local.core.protocol import aggregator_of, load, protocol_of
from dither.local.frequency.hadamard import HadamardResponse, hadamard_transform
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary

ALPHA = 1e-9
MAKERS = [
    Kary.for_epsilon,
    Unary.for_epsilon,
    Unary.symmetric,
    LocalHashing.for_epsilon,
    SubsetSelection.for_epsilon,
    HadamardResponse.for_epsilon,
    ProjectiveResponse.for_epsilon,
]
IDS = ["kary", "unary", "symmetric", "hashing", "subset", "hadamard", "projective"]


def squared_errors(oracle, *, surveys, people, source):
    """z² of every value in every survey, for a population that has all values but the last half alike."""
    half = oracle.size // 2
    shares = np.where(np.arange(oracle.size) < half, 1 / half, 0.0)
    truths = np.random.default_rng(3).integers(0, half, surveys * people)
    rows = oracle.randomize(truths, source=source).reshape(surveys, people, oracle.width)
    gap, miss = float(oracle.hit - oracle.miss), float(oracle.miss)
    found = np.array([(oracle.support(part) / people - miss) / gap for part in rows])
    predicted = np.array(
        [oracle.variance(people, share=Fraction(1, half) if v < half else 0) for v in range(oracle.size)]
    )
    return (found - shares) ** 2 / predicted, (found - shares) / np.sqrt(predicted)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_mean_squared_error_is_within_five_per_cent_of_theory(make):
    """100 values in 400 surveys: the mean of 40,000 z² has a standard error of 0.7%, so 5% is seven of them."""
    squares, z = squared_errors(make(100, 1), surveys=400, people=1000, source=InsecureSeededSource(11))
    assert abs(squares.mean() - 1) < 0.05
    centres = z.mean(axis=0) * math.sqrt(400)
    assert 2 * stats.norm.sf(np.abs(centres).max()) * 100 > ALPHA


def test_a_wrong_gap_is_noticed():
    right = Unary.for_epsilon(100, 1)
    rows = Unary(100, keep="47/100", noise=right.noise).randomize(
        np.arange(400_000) % 50, source=InsecureSeededSource(1)
    )
    found = (right.support(rows) / 400_000 - float(right.miss)) / float(right.hit - right.miss)
    z = (found[:50] - 1 / 50) / math.sqrt(right.variance(400_000, share=Fraction(1, 50)))
    assert 2 * stats.norm.sf(abs(z.mean()) * math.sqrt(50)) < ALPHA


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_simulation_has_the_law_of_the_client(make):
    oracle = make(100, "3/2").reduced()
    client = oracle.client()
    value = oracle.size - 1
    law = law_of(lambda coins: client.payload(value, coins))
    rows = oracle.randomize([value] * 100_000, source=InsecureSeededSource(5))
    found, counts = np.unique(rows, axis=0, return_counts=True)
    seen = {row.tobytes(): count for row, count in zip(found, counts, strict=True)}
    assert set(seen) <= set(law)
    counted = np.array([seen.get(payload, 0) for payload in law], dtype=float)
    assert chi_square_counts(counted, np.array([float(p) for p in law.values()])) > ALPHA
    other = law_of(lambda coins: client.payload(0, coins))
    assert chi_square_counts(counted, np.array([float(other[payload]) for payload in law])) < ALPHA


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_clients_and_aggregate_meet(make, tmp_path):
    labels = ["apple", "pear", "plum", "quince", "sloe"]
    oracle = make(labels, 4)
    client = client_of(json.loads(json.dumps(oracle.describe())))
    people = ["plum"] * 300 + ["apple"] * 100
    aggregate = oracle.aggregator().add_reports(client.text(who) for who in people[:200])
    aggregate += oracle.aggregator().add_reports(client.report(who) for who in people[200:])
    aggregate.save(tmp_path / "kept.json")
    again = load(tmp_path / "kept.json")
    assert again.protocol == oracle
    shares = again.estimate(0.999)
    assert shares.reports == 400
    assert shares.labels == tuple(labels)
    for place, truth in enumerate((0.25, 0, 0.75, 0, 0)):
        sigma = math.sqrt(oracle.variance(400, share=Fraction(truth)))
        assert (
            abs(shares.values[place] - truth) < 9 * sigma
        )  # nine: supports of few reports have the tails of Poisson's law
    assert shares.top(1)[0][0] == "plum"


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_wrong_values_are_refused_without_saying_which(make):
    oracle, labelled = make(10, 1), make(["secret-a", "secret-b", "secret-c"], 1)
    for wrong in ([10], [-1], [0.5], ["3"], [[1, 2]], 3, [2**70]):
        with pytest.raises(InvalidData, match="nothing was drawn"):
            oracle.randomize(wrong)
    for wrong in (["secret-d"], [None], "secret-a", [["secret-a"]]):
        with pytest.raises(InvalidData) as error:
            labelled.randomize(wrong)
        assert "secret" not in str(error.value)
    for client, wrong in ((oracle.client(), 10), (labelled.client(), "secret-d"), (labelled.client(), ["x"])):
        with pytest.raises(InvalidData) as error:
            client.payload(wrong)
        assert "secret" not in str(error.value)
    assert oracle.randomize([]).shape == (0, oracle.width)
    assert labelled.randomize(np.array(["secret-a", "secret-c"])).shape == (2, labelled.width)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_descriptions_say_everything_and_nothing_else(make):
    oracle = make(["a", "b", "c"], 1)
    form = oracle.describe()
    assert protocol_of(json.loads(json.dumps(form))) == oracle
    with pytest.raises(InvalidParameter):
        protocol_of({**form, "epsilon": "1"})
    for field in set(form) - {"protocol"}:
        less = {name: value for name, value in form.items() if name != field}
        for wrong in (less, {**form, field: None}, {**form, field: 0.5}, {**form, field: "2/1"}):
            with pytest.raises(InvalidParameter):
                protocol_of(wrong)
            with pytest.raises(InvalidParameter):
                client_of(wrong)
    for certain in ("1", "0"):
        with pytest.raises(InvalidParameter):
            protocol_of({**form, "keep": certain})
        with pytest.raises(InvalidParameter, match="private"):
            client_of({**form, "keep": certain})


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_rows_that_no_client_sends_are_counted_as_dropped(make):
    oracle = make(6, 1)
    rows = oracle.randomize([3] * 5)
    broken = np.concatenate([rows, np.full((2, oracle.width), 255, dtype=np.uint8)])
    aggregate = oracle.aggregator().add(broken)
    assert aggregate.reports == 5
    assert aggregate.dropped == {Dropped.OUT_OF_RANGE: 2}
    assert oracle.aggregator().add(rows[:, :0]).dropped == {Dropped.LENGTH: 5}
    assert aggregator_of(aggregate.to_json()).dropped == aggregate.dropped


@pytest.mark.parametrize("oracle", [Unary(9, keep="1/2", noise="1/4"), SubsetSelection(9, subset=2, keep="1/2")])
def test_no_description_fills_a_device_with_bits(oracle):
    with pytest.raises(InvalidParameter, match="a bit for each value"):
        client_of({**oracle.describe(), "domain": 2**40})


def test_merging_needs_one_collection():
    with pytest.raises(InvalidParameter, match="different collections"):
        Kary(3, keep="1/2").aggregator() + Kary(3, keep="2/3").aggregator()


# Permanent: a change here means that reports on their way, and aggregates that were kept, can't be read any more.
GOLDEN = {
    "kary": (Kary(1000, keep="1/2"), "cf8167c281807782", "9103"),
    "unary": (Unary(10, keep="1/2", noise="1/4"), "6dd2bfc5bff497d3", "2401"),
    "local_hashing": (LocalHashing(1000, buckets=5, keep="1/2"), "b49c788e5d68f6e8", "157c4a7f2af894fe02"),
    "subset_selection": (SubsetSelection(10, subset=3, keep="1/2"), "18162ba8f1162f7a", "3002"),
    "hadamard": (HadamardResponse(1000, keep="3/4"), "323630a1eac9b6bd", "2a00"),
    "projective": (ProjectiveResponse(100, prime=5, keep="1/2"), "413114dba6fc2149", "5b"),
}


class Marching:
    """Coins that fall true, false, true …; numbers that march through what is possible."""

    def __init__(self):
        self.steps = 0

    def chance(self, p):
        self.steps += 1
        return self.steps % 3 == 0

    def below(self, n):
        self.steps += 1
        return 0x9E3779B97F4A7C15 * self.steps % n


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_fingerprints_and_payloads_are_permanent(name):
    oracle, fingerprint, payload = GOLDEN[name]
    assert (oracle.fingerprint.hex(), oracle.client().payload(7, Marching()).hex()) == (fingerprint, payload)


def test_clients_need_nothing_but_python():
    forms = json.dumps([oracle.describe() for oracle, _, _ in GOLDEN.values()])
    script = (
        "import json, sys\n"
        "from dither.local.clients import client_of\n"
        f"for form in json.loads({forms!r}):\n"
        "    client = client_of(form)\n"
        "    assert len(client.payload(3)) == client.width\n"
        "heavy = {'numpy', 'scipy', 'dither.entropy', 'dither.numeric'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_transform_is_that_of_the_matrix():
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 10**12, 64)
    signs = [[(-1) ** (row & column).bit_count() for row in range(64)] for column in range(64)]
    assert hadamard_transform(counts).tolist() == (np.array(signs) @ counts).tolist()


@pytest.mark.parametrize(("size", "prime"), [(13, 3), (30, 5), (50, 7), (100, 2)])
def test_projective_supports_are_counted_one_by_one(size, prime):
    from dither.local.clients.projective import point

    oracle = ProjectiveResponse(size, prime=prime, keep="9/10")
    rows = oracle.randomize(np.arange(200) % size)
    numbers = [int.from_bytes(row.tobytes(), "little") for row in rows]
    sent = [point(number, prime, oracle.dimension) for number in numbers]
    wanted = [
        sum(
            sum(a * b for a, b in zip(report, point(v, prime, oracle.dimension), strict=True)) % prime == 0
            for report in sent
        )
        for v in range(size)
    ]
    assert oracle.support(rows).tolist() == wanted
