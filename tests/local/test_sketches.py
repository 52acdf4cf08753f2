"""Sketches: exact laws of both clients against the claimed losses, many people at once, counting, the wire."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dither.checks import check_randomizer
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.sketch import CountMeanSketchClient, HadamardSketchClient
from dither.local.clients.wire import Dropped, pack
from dither.local.core.protocol import aggregator_of, load, protocol_of
from dither.local.sketches import hash_functions as sketch_hashing
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.hadamard import HadamardSketch, transform_rows
from dither.privacy import Adjacency, PrivacyLoss
from support.sizes import at_night, some

ALPHA = 1e-9
SEED = "00112233445566778899aabbccddeeff"
TINY = {"hashes": 3, "buckets": 4, "seed": SEED, "domain": 8}
SYMMETRIC = CountMeanSketch(keep="3/4", noise="1/4", **TINY)
OPTIMIZED = CountMeanSketch(keep="1/2", noise="1/5", **TINY)
HADAMARD = HadamardSketch(keep="3/4", **TINY)
TINY_ONES = [SYMMETRIC, OPTIMIZED, HADAMARD]


def names(protocol):
    return f"{protocol.name} {protocol.hit}"


def bucket(sketch, value, function):
    """As the documentation says, by itself."""
    digest = hashlib.shake_128(b"dither-sketch" + bytes.fromhex(sketch.seed) + str(value).encode()).digest(131072)
    return int.from_bytes(digest[2 * function : 2 * function + 2], "little") % sketch.buckets


def laws(sketch, client=None):
    made = sketch.client() if client is None else client(sketch.describe())
    return {v: law_of(lambda coins, v=v: made.payload(v, coins)) for v in sketch.inputs()}


def worst_ratio(found):
    """The largest ratio of probabilities over all pairs of values and outputs; infinite if one can't happen."""
    worst = Fraction(0)
    for first, second in product(found.values(), repeat=2):
        if not first.keys() <= second.keys():
            return math.inf
        worst = max(worst, *(first[output] / second[output] for output in first))
    return worst


def collisions(sketch, u, v):
    return sum(bucket(sketch, u, j) == bucket(sketch, v, j) for j in range(sketch.hashes))


# ------------------------------------------------------------------ the wire: what others must re-implement


def test_descriptions_are_permanent():
    count_mean = {
        "protocol": "count_mean_sketch", "domain": None, "hashes": 16, "buckets": 32, "seed": SEED,
        "keep": "3/4", "noise": "1/4",
    }  # fmt: skip
    hadamard = {
        "protocol": "hadamard_sketch", "domain": ["a", "b"], "hashes": 16, "buckets": 32, "seed": SEED, "keep": "3/4",
    }  # fmt: skip
    for description, width, name in ((count_mean, 5, "69db56210fd1cbf6"), (hadamard, 2, "8dff119cea9c099d")):
        protocol = protocol_of(json.loads(json.dumps(description)))
        assert protocol.describe() == description
        assert protocol_of(protocol.describe()) == protocol
        assert client_of(description).width == protocol.width == width
        assert protocol.fingerprint.hex() == name


class Fixed:
    """Coins that fall as listed."""

    def __init__(self, *numbers, coin):
        self.numbers, self.coin = list(numbers), coin

    def below(self, n):
        number = self.numbers.pop(0)
        assert number < n
        return number

    def chance(self, p):
        return self.coin(p)


def test_payloads_are_those_of_the_documentation():
    sketch = CountMeanSketch(keep="3/4", noise="1/4", hashes=300, buckets=16, seed=SEED)
    payload = sketch.client().payload("naïve", Fixed(258, coin=lambda p: p == Fraction(3, 4)))
    assert payload == bytes([2, 1]) + (1 << bucket(sketch, "naïve", 258)).to_bytes(2, "little")
    sketch = HadamardSketch(keep="3/4", hashes=300, buckets=512, seed=SEED)
    for honest in (True, False):
        payload = sketch.client().payload("naïve", Fixed(258, 387, coin=lambda p, honest=honest: honest))
        odd = bin(387 & bucket(sketch, "naïve", 258)).count("1") % 2
        assert payload == bytes([2, 1]) + (2 * 387 + (odd != (not honest))).to_bytes(2, "little")


def test_texts_and_numbers_are_hashed_alike():
    for sketch in (CountMeanSketch.for_epsilon(1), HadamardSketch.for_epsilon(1)):
        client = sketch.client()
        assert client.digest(17) == client.digest("17") != client.digest("17 ")
        table = sketch.functions.table(["17", 17, "x"])
        assert np.array_equal(table[0], table[1])
        assert table[2, 5] == bucket(sketch, "x", 5) == client.bucket(client.digest("x"), 5)


@pytest.mark.parametrize(
    "change",
    [
        {"hashes": 0}, {"hashes": 65537}, {"hashes": True}, {"hashes": "3"}, {"buckets": 3}, {"buckets": 1},
        {"buckets": 1 << 17}, {"hashes": 1 << 16, "buckets": 1 << 16}, {"seed": SEED[:-1]}, {"seed": SEED.upper()},
        {"seed": 17}, {"seed": None}, {"domain": 1}, {"domain": ["a", "a"]}, {"domain": [17, "17"]}, {"domain": "ab"},
        {"keep": "1"}, {"keep": "6/8"}, {"keep": 0.75}, {"keep": "1/8"}, {"more": 1},
    ],
)  # fmt: skip
def test_wrong_descriptions_are_refused_by_both_sides(change):
    for protocol in (SYMMETRIC, HADAMARD):
        for make in (client_of, protocol_of):
            with pytest.raises(InvalidParameter):
                make(protocol.describe() | change)


def test_fields_can_not_be_left_out():
    for protocol in (SYMMETRIC, HADAMARD):
        for name in protocol.describe():
            less = {key: value for key, value in protocol.describe().items() if key != name}
            for make in (client_of, protocol_of):
                with pytest.raises(InvalidParameter):
                    make(less)


# ------------------------------------------------------------------ exact laws


def test_law_of_the_count_mean_client():
    for sketch in (SYMMETRIC, OPTIMIZED):
        for value, found in laws(sketch).items():
            expected = {}
            for j, bits in product(range(sketch.hashes), range(1 << sketch.buckets)):
                p = Fraction(1, sketch.hashes)
                for place in range(sketch.buckets):
                    one = sketch.keep if place == bucket(sketch, value, j) else sketch.noise
                    p *= one if bits >> place & 1 else 1 - one
                expected[bytes([j, bits])] = p
            assert found == expected


def test_law_of_the_hadamard_client():
    for value, found in laws(HADAMARD).items():
        expected = {}
        for j, row, negative in product(range(3), range(4), range(2)):
            odd = bin(row & bucket(HADAMARD, value, j)).count("1") % 2
            p = HADAMARD.keep if negative == odd else 1 - HADAMARD.keep
            expected[bytes([j, 2 * row + negative])] = p / (3 * 4)
        assert found == expected


@pytest.mark.parametrize("sketch", TINY_ONES, ids=names)
def test_loss_is_the_largest_ratio_of_all_values(sketch):
    odds = worst_ratio(laws(sketch))
    assert odds == sketch.odds
    pure = sketch.loss().pure()
    assert math.log(odds) <= pure <= math.log(odds) + 1e-12
    assert sketch.loss().adjacency is Adjacency.REPLACE
    assert PrivacyLoss.from_json(sketch.loss().to_json()) == sketch.loss()
    assert sketch.longitudinal_loss(3).pure() == pytest.approx(3 * pure, rel=1e-12)


@pytest.mark.parametrize("sketch", some(TINY_ONES, 2), ids=names)
def test_curve_is_that_of_values_that_never_collide_and_bounds_all(sketch):
    found = laws(sketch)
    tight = 0
    for u, v in product(found, repeat=2):
        for epsilon in (0.0, 0.3, 0.9, 1.5):
            exact = sum(max(0.0, float(found[u][y]) - math.exp(epsilon) * float(found[v][y])) for y in found[u])
            claimed = sketch.loss().delta(epsilon)
            assert exact <= claimed + 1e-12
            if not collisions(sketch, u, v):
                tight += 1
                assert claimed <= exact + 1e-9
    assert tight


@pytest.mark.parametrize("epsilon", [0.1, 1, "7/3", 8])
@pytest.mark.parametrize("make", [CountMeanSketch.for_epsilon, CountMeanSketch.optimized, HadamardSketch.for_epsilon])
def test_for_epsilon_is_just_below(make, epsilon):
    goal = float(Fraction(epsilon))
    assert goal * (1 - 1e-9) < make(epsilon).loss().pure() <= goal


class ChosenByTheValue(CountMeanSketchClient):
    def payload(self, value, coins):
        digest = self.digest(value)
        function = value % self.hashes
        bits = 0
        for place in range(self.buckets):
            truth = place == self.bucket(digest, function)
            bits |= coins.chance(self.keep if truth else self.noise) << place
        return bytes([function, bits])


class OneBitTurned(CountMeanSketchClient):
    """Lies about the bucket of the value only: the others are certain."""

    def payload(self, value, coins):
        function = coins.below(self.hashes)
        return bytes([function, coins.chance(self.keep) << self.bucket(self.digest(value), function)])


class NoRow(HadamardSketchClient):
    """Sends the bucket itself for a row, with a noisy sign."""

    def payload(self, value, coins):
        function = coins.below(self.hashes)
        row = self.bucket(self.digest(value), function)
        return bytes([function, 2 * row + coins.chance(self.keep)])


@pytest.mark.parametrize(
    ("sketch", "client"), [(SYMMETRIC, ChosenByTheValue), (SYMMETRIC, OneBitTurned), (HADAMARD, NoRow)]
)
def test_mutant_clients_break_the_claim(sketch, client):
    assert worst_ratio(laws(sketch, client)) > sketch.odds


def test_a_claim_for_one_bit_is_too_low():
    assert worst_ratio(laws(SYMMETRIC)) > SYMMETRIC.keep / SYMMETRIC.noise
    assert SYMMETRIC.odds == (SYMMETRIC.keep / SYMMETRIC.noise) ** 2


@pytest.mark.parametrize("sketch", TINY_ONES, ids=names)
def test_support_is_unbiased_exactly(sketch):
    """Over coins and functions drawn: hit for one's own value, else in between as often as values collide."""
    found = laws(sketch)
    payloads = sorted(found[0])
    rows = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), sketch.width)
    supports = []
    for row in rows:
        aggregate = sketch.aggregator().add(row[None, :])
        sums = sketch.functions.sums_over([aggregate.supports()], sketch.inputs(), keep=False)[0]
        supports.append(sums if aggregate.unsigned else (1 + sums) // 2)
    for u, x in product(found, repeat=2):
        mean = sum(found[u][y] * int(s[x]) for y, s in zip(payloads, supports, strict=True))
        share = Fraction(collisions(sketch, u, x), sketch.hashes)
        if sketch is HADAMARD:
            # values in other buckets of a function are supported in half of its rows
            assert mean == sketch.other + (sketch.hit - sketch.other) * share
        else:
            assert mean == sketch.other * (1 - share) + sketch.hit * share
    assert sketch.miss == sketch.other + (sketch.hit - sketch.other) / sketch.buckets


# ------------------------------------------------------------------ many people at once


def chi_square(sketch, payloads, law):
    keys = sorted(law)
    found, counts = np.unique(payloads, axis=0, return_counts=True)
    place = {key: number for number, key in enumerate(keys)}
    observed = np.zeros(len(keys))
    for row, count in zip(found, counts, strict=True):
        observed[place[row.tobytes()]] += count
    expected = np.array([float(law[key]) for key in keys]) * payloads.shape[0]
    large = expected >= 10
    pooled = [np.append(x[large], x[~large].sum()) for x in (observed, expected)]
    if pooled[1][-1] == 0:
        pooled = [x[:-1] for x in pooled]
    return stats.chisquare(*pooled).pvalue


@pytest.mark.parametrize("sketch", some(TINY_ONES, 2), ids=names)
def test_many_at_once_follow_the_law_of_the_client(sketch):
    # Catches a coin 5 % off: noncentral χ² with λ of 500 or more, which is missed with a chance of 2e-35 (3 %: 5e-5).
    for value in (0, 5):
        law = laws(sketch)[value]
        assert chi_square(sketch, sketch.randomize(np.full(200_000, value)), law) > ALPHA
        options = {"keep": sketch.keep * Fraction(95, 100)}
        if sketch is not HADAMARD:
            options["noise"] = sketch.noise
        wrong = type(sketch)(**TINY, **options)
        assert chi_square(sketch, wrong.randomize(np.full(200_000, value)), law) < ALPHA


@pytest.mark.parametrize("domain", [None, 50, [f"w{i}" for i in range(50)]], ids=["open", "numbers", "labels"])
def test_hashing_in_parts_is_hashing_at_once(domain, monkeypatch):
    sketch = HadamardSketch.for_epsilon(2, domain=domain, hashes=16, buckets=8, seed=SEED)
    values = np.arange(200) % 50 if isinstance(domain, int) else [f"w{i % 50}" for i in range(200)]
    once = sketch.randomize(values, source=InsecureSeededSource(3))
    monkeypatch.setattr(sketch_hashing, "TABLE", 16 * 7)
    assert np.array_equal(sketch.randomize(values, source=InsecureSeededSource(3)), once)
    asked = sketch.inputs() if domain is not None else [f"w{i}" for i in range(50)]
    tables = [np.arange(128).reshape(16, 8), np.full((16, 8), 2**40)]
    sums = sketch.functions.sums_over(tables, asked, keep=False)
    expected = [sum(8 * j + bucket(sketch, v, j) for j in range(16)) for v in asked]
    assert sums[0].tolist() == expected
    assert (sums[1] == 16 * 2**40).all()


def test_values_of_an_open_domain():
    sketch = CountMeanSketch.for_epsilon(6, hashes=4, buckets=64)
    for values in ([5, "5", np.int64(5)], np.array([5, 5, 5]), np.array(["5", "5", "5"]), iter(["5", 5, "5"])):
        rows = sketch.randomize(values)
        assert rows.shape == (3, sketch.width)
        assert sketch.valid(rows).all()
    for wrong in ("text", b"text", 5, np.zeros((2, 2), dtype=int), [1.5], [None], [True], ["\ud800"]):
        with pytest.raises(InvalidData):
            sketch.randomize(wrong)
    with pytest.raises(InvalidData, match="nothing was drawn"):
        sketch.client().payload(1.5, Fixed(coin=None))
    closed = HadamardSketch.for_epsilon(1, domain=["a", "b"])
    for wrong in (["c"], [0], "ab"):
        with pytest.raises(InvalidData):
            closed.randomize(wrong)
    with pytest.raises(InvalidData, match="one of the 2 labels"):
        closed.client().payload("c")
    assert closed.randomize([]).shape == (0, closed.width)


# ------------------------------------------------------------------ counting


def test_transform_is_that_of_the_matrix():
    generator = np.random.default_rng(1)
    for rows, columns in ((1, 2), (5, 16), (70, 64)):
        sums = generator.integers(-9, 9, (rows, columns))
        matrix = np.array([[(-1) ** bin(a & b).count("1") for a in range(columns)] for b in range(columns)])
        assert np.array_equal(transform_rows(sums), sums @ matrix)


@pytest.mark.parametrize("sketch", [*TINY_ONES, HadamardSketch.for_epsilon(1, hashes=300, buckets=1024)], ids=names)
def test_reports_of_clients_are_counted_like_payloads(sketch, tmp_path):
    client, values = sketch.client(), [v % 8 for v in range(60)]
    reports = [client.report(v) for v in values[:30]] + [client.text(v) for v in values[30:]]
    aggregate = sketch.aggregator().add_reports(reports)
    assert (aggregate.reports, aggregate.dropped) == (60, {})
    assert aggregate.function_reports.sum() == 60
    rows = sketch.randomize(values)
    first, second = sketch.aggregator().add(rows[:20]), sketch.aggregator().add(rows[20:])
    whole = sketch.aggregator().add(rows)
    for merged in (first + second, second + first):
        assert merged.to_json() == whole.to_json()
    whole.save(tmp_path / "sketch.json")
    again = load(tmp_path / "sketch.json")
    assert again.to_json() == whole.to_json()
    assert again.protocol == sketch
    empty = sketch.aggregator().add(rows[:0])
    assert empty.reports == 0
    with pytest.raises(InvalidData, match="no reports"):
        empty.estimate(values=[1])


def test_strays_are_dropped_with_their_reason():
    for sketch, wrong in (
        (CountMeanSketch.for_epsilon(1, hashes=300, buckets=4), [b"\x2c\x01\x01", b"\x00\x00\x10", b"\xff\xff\x00"]),
        (HadamardSketch.for_epsilon(1, hashes=300, buckets=64), [b"\x2c\x01\x01", b"\x00\x00\x80", b"\xff\xff\x00"]),
    ):
        good = sketch.client().report("x")
        aggregate = sketch.aggregator().add_reports([pack(sketch.fingerprint, payload) for payload in wrong])
        assert (aggregate.reports, aggregate.dropped) == (0, {Dropped.OUT_OF_RANGE: 3})
        aggregate.add_reports([good, good[:-1], good + b"\0", b"", "?", bytes([2]) + good[1:], b"\x01" + bytes(12)])
        assert aggregate.reports == 1
        assert aggregate.dropped == {
            Dropped.OUT_OF_RANGE: 3, Dropped.LENGTH: 2, Dropped.NOT_A_REPORT: 2, Dropped.VERSION: 1,
            Dropped.OTHER_COLLECTION: 1,
        }  # fmt: skip
        other = type(sketch).for_epsilon(1, hashes=300, buckets=sketch.buckets)
        assert other.seed != sketch.seed
        assert other.fingerprint != sketch.fingerprint
        with pytest.raises(InvalidParameter, match="different collections"):
            aggregate + other.aggregator()


def test_damaged_states_are_refused():
    aggregate = HADAMARD.aggregator().add(HADAMARD.randomize(np.arange(8)))
    saved = aggregate.to_json()
    more = HADAMARD.aggregator()
    more.sums[:] = 9
    with pytest.raises(InvalidData, match="damaged"):
        aggregator_of(saved | {"state": saved["state"] | {"sums": more.to_json()["state"]["sums"]}})
    with pytest.raises(InvalidData):
        aggregator_of(saved | {"state": {"sums": saved["state"]["sums"]}})


@pytest.mark.parametrize(
    "protocol",
    [
        CountMeanSketch.for_epsilon(2, hashes=64, buckets=64),
        pytest.param(CountMeanSketch.optimized(1, domain=["a", "b", "c"], hashes=8, buckets=16), marks=at_night),
        HadamardSketch.for_epsilon(1),
    ],
    ids=names,
)
def test_the_suite_for_all_randomisers_passes(protocol):
    assert check_randomizer(protocol, draws=60_000).passed
