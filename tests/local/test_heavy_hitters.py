"""Heavy hitters: the exact law of the client, frequent values of large domains, and what arrives."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dither.checks import check_randomizer
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.heavy import HeavyHittersClient, Symbols
from dither.local.clients.wire import Dropped, pack
from dither.local.core.protocol import aggregator_of, protocol_of
from dither.local.sketches import sketch as sketch_reading
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.heavy_hitters import HeavyHitters, Spelling

ALPHA = 1e-9
SEED = "00112233445566778899aabbccddeeff"
TINY = HeavyHitters(
    sketch=HadamardSketch(keep="3/4", hashes=2, buckets=4, seed=SEED), values=Spelling.INTEGERS, length=3, step=2
)


def laws(protocol, client=HeavyHittersClient):
    made = client(protocol.describe())
    return {v: law_of(lambda coins, v=v: made.payload(v, coins)) for v in range(8)}


def worst_ratio(found):
    worst = Fraction(0)
    for first, second in product(found.values(), repeat=2):
        if not first.keys() <= second.keys():
            return math.inf
        worst = max(worst, *(first[output] / second[output] for output in first))
    return worst


# ------------------------------------------------------------------ how values are written


def test_integers_are_written_as_bits():
    symbols = Symbols(Spelling.INTEGERS, length=10, step=4)
    assert (symbols.base, symbols.levels) == (2, 3)
    number = symbols.number(0b1011001110)
    assert [symbols.beginning(number, level) for level in range(3)] == [0b1011, 0b10110011, 0b1011001110]
    assert [symbols.text(symbols.beginning(number, level), level) for level in range(3)] == ["4:b", "8:b3", "10:2ce"]
    assert symbols.text(1, 2) == "10:001"
    assert symbols.children(None, 0) == list(range(16))
    assert symbols.children(0b1011, 1) == list(range(0b10110000, 0b11000000))
    assert symbols.children(0b10110011, 2) == [0b1011001100 + i for i in range(4)]
    for wrong in (-1, 1 << 10, True, "5", 5.0, None):
        with pytest.raises(InvalidData, match="nothing was drawn"):
            symbols.number(wrong)


def test_texts_are_written_as_bytes():
    symbols = Symbols(Spelling.UTF8, length=4, step=1)
    assert symbols.number("é!") == int.from_bytes(b"\xc3\xa9!\0", "big")
    assert symbols.number("abcdef") == symbols.number("abcd")
    assert symbols.number("a\0b") == symbols.number("a")
    assert [symbols.value(symbols.number(text)) for text in ("é!", "", "abc", "abcé")] == ["é!", "", "abc", "abc�"]
    assert symbols.children(0x61, 1) == list(range(0x6100, 0x6200))
    assert symbols.children(0x6100, 2) == [0x610000]  # nothing follows an end
    for wrong in (17, None, b"a", "\ud800"):
        with pytest.raises(InvalidData, match="nothing was drawn"):
            symbols.number(wrong)


def test_letters_are_written_as_their_numbers():
    symbols = Symbols(Spelling.LETTERS, length=4, step=2, alphabet="ab")
    assert symbols.base == 4
    assert symbols.number("ba?") == 2 * 64 + 1 * 16 + 3 * 4
    assert symbols.value(symbols.number("ba?")) == "ba�"
    first = symbols.children(None, 0)
    assert first == [0, *range(4, 16)]  # an end, or a letter with anything after it
    assert symbols.children(4, 1) == [4 * 16]
    assert symbols.children(5, 1) == [5 * 16, *range(5 * 16 + 4, 6 * 16)]
    words = ["", "a", "ab", "aba", "bb?b"]
    assert all(symbols.beginning(symbols.number(word), 0) in first for word in words)
    for word in words:
        number = symbols.number(word)
        assert number in symbols.children(symbols.beginning(number, 0), 1)


@pytest.mark.parametrize(
    "options",
    [
        {"length": 0, "step": 1}, {"length": 8, "step": 9}, {"length": 8, "step": 0}, {"length": 64, "step": 17},
        {"length": 1024, "step": 1}, {"length": 8.0, "step": 1}, {"length": 8, "step": 1, "alphabet": "ab"},
    ],
)  # fmt: skip
def test_wrong_sizes_are_refused(options):
    with pytest.raises(InvalidParameter):
        HeavyHitters.for_epsilon(1, values=Spelling.INTEGERS, **options)


# ------------------------------------------------------------------ the wire


def test_description_is_permanent():
    sketch = {"protocol": "hadamard_sketch", "domain": None, "hashes": 2, "buckets": 4, "seed": SEED, "keep": "3/4"}
    description = {"protocol": "heavy_hitters", "values": "integers", "length": 3, "step": 2, "sketch": sketch}
    assert TINY.describe() == description
    letters = description | {"values": "letters", "alphabet": "ab"}
    for some in (description, letters, description | {"values": "utf-8"}):
        protocol = protocol_of(json.loads(json.dumps(some)))
        assert protocol.describe() == some
        assert client_of(some).width == protocol.width == 3


@pytest.mark.parametrize(
    "change",
    [
        {"values": "bits"}, {"values": None}, {"values": "letters"}, {"alphabet": "ab"}, {"length": 0}, {"step": 4},
        {"sketch": None}, {"sketch": {"protocol": "kary", "domain": 3, "keep": "1/2"}}, {"more": 1}, {"alphabet": None},
        {"sketch": TINY.sketch.describe() | {"domain": 8}}, {"length": "3"},
    ],
)  # fmt: skip
def test_wrong_descriptions_are_refused_by_both_sides(change):
    for make in (client_of, protocol_of):
        with pytest.raises(InvalidParameter):
            make(TINY.describe() | change)


# ------------------------------------------------------------------ privacy


def test_law_of_the_client_and_its_loss():
    found, sketch = laws(TINY), TINY.sketch.client()
    for value, law in found.items():
        expected = {}
        for level, text in enumerate([f"2:{value >> 1:x}", f"3:{value:x}"]):
            for payload, p in law_of(lambda coins, text=text: sketch.payload(text, coins)).items():
                expected[bytes([level]) + payload] = p / 2
        assert law == expected
    assert worst_ratio(found) == TINY.sketch.odds == 3
    assert math.log(3) <= TINY.loss().pure() <= math.log(3) + 1e-12
    for first, second in product(found.values(), repeat=2):
        for epsilon in (0.0, 0.5, 1.0):
            exact = sum(max(0.0, float(first[y]) - math.exp(epsilon) * float(second[y])) for y in first)
            assert exact <= TINY.loss().delta(epsilon) + 1e-12


class ChosenLevel(HeavyHittersClient):
    def payload(self, value, coins):
        level = value % 2
        text = self.symbols.text(self.symbols.beginning(value, level), level)
        return bytes([level]) + self.sketch.payload(text, coins)


class EveryLevel(HeavyHittersClient):
    def payload(self, value, coins):
        texts = [self.symbols.text(self.symbols.beginning(value, level), level) for level in range(2)]
        return b"".join(self.sketch.payload(text, coins) for text in texts)


@pytest.mark.parametrize("client", [ChosenLevel, EveryLevel])
def test_mutant_clients_break_the_claim(client):
    assert worst_ratio(laws(TINY, client)) > TINY.sketch.odds


def test_many_at_once_follow_the_law_of_the_client():
    """Catches coins of 29/40 for 3/4."""
    law = laws(TINY)[5]
    keys = sorted(law)
    for coins, right in (("3/4", True), ("29/40", False)):
        sketch = HadamardSketch(keep=coins, hashes=2, buckets=4, seed=SEED)
        protocol = HeavyHitters(sketch=sketch, values=Spelling.INTEGERS, length=3, step=2)
        found, counts = np.unique(protocol.randomize([5] * 200_000), axis=0, return_counts=True)
        observed = dict(zip((row.tobytes() for row in found), counts, strict=True))
        pvalue = stats.chisquare([observed[key] for key in keys], [float(law[key]) * 200_000 for key in keys]).pvalue
        assert (pvalue > ALPHA) == right


@pytest.mark.parametrize("epsilon", [1, "7/2", 8])
def test_for_epsilon_is_just_below(epsilon):
    goal = float(Fraction(epsilon))
    protocol = HeavyHitters.for_epsilon(epsilon, values=Spelling.UTF8, length=8)
    assert goal * (1 - 1e-9) < protocol.loss().pure() <= goal


def test_the_suite_for_all_randomisers_passes():
    protocol = HeavyHitters.for_epsilon(2, values=Spelling.UTF8, length=3, hashes=64, buckets=64)
    assert check_randomizer(protocol, draws=40_000).passed


# ------------------------------------------------------------------ what is found


def test_frequent_numbers_are_found_among_many():
    """Of 2^40 numbers, thirty that some have in common; everybody else has one of their own."""
    generator = np.random.default_rng(7)
    n, known = 200_000, generator.integers(0, 2**40, 30)
    shares = 1 / np.arange(1, 31)
    shares *= 0.6 / shares.sum()
    drawn = generator.choice(31, size=n, p=np.append(shares, 1 - shares.sum()))
    values = np.where(drawn < 30, known[drawn % 30], generator.integers(0, 2**40, n))
    protocol = HeavyHitters.for_epsilon(5, values=Spelling.INTEGERS, length=40, step=8, hashes=512)
    aggregate = protocol.aggregator().add(protocol.randomize(values))
    found = aggregate.estimate("0.999999")
    true = {int(value): float((values == value).mean()) for value in known}
    squares, largest = float((shares**2).sum()), float(shares[0])
    limit = protocol.detection_limit(n, "0.999999", squares=squares, largest=largest)
    assert 0.005 < limit < 0.05
    assert {value for value, share in true.items() if share > limit} <= set(found.values)
    assert 3 <= len(found.values) <= 30
    for value, share, (low, high) in found.items():
        # the people of the last level are a sample of all: five standard deviations of that are 0.01
        assert low - 0.01 <= true[value] <= high + 0.01
        assert share == pytest.approx(true[value], abs=0.03)


def test_frequent_texts_are_found():
    generator = np.random.default_rng(8)
    words = ["tea", "milk", "coffee", "ü", ""]
    drawn = generator.choice(5, size=60_000, p=[0.35, 0.25, 0.2, 0.1, 0.1])
    for protocol in (
        HeavyHitters.for_epsilon(6, values=Spelling.UTF8, length=6, step=1, hashes=256),
        HeavyHitters(
            sketch=HadamardSketch.for_epsilon(6, hashes=256, buckets=256),
            values=Spelling.LETTERS,
            alphabet="abcdefghijklmnopqrstuvwxyzü",
            length=6,
            step=2,
        ),
    ):
        aggregate = protocol.aggregator().add(protocol.randomize([words[place] for place in drawn]))
        found = aggregate.estimate()
        assert set(found.values) == set(words)
        assert found.values[0] == "tea"


def test_nobody_is_made_up(monkeypatch):
    """At 80% confidence, one survey in five at most lists what nobody has; not if each is tested as if alone."""
    trials, wrong = 100, {1: 0, 128: 0}
    generator = np.random.default_rng()
    for _ in range(trials):
        protocol = HeavyHitters.for_epsilon(2, values=Spelling.INTEGERS, length=12, step=6, hashes=1024, buckets=64)
        values = generator.choice([5, 4001], size=3000, p=[0.6, 0.4])
        aggregate = protocol.aggregator().add(protocol.randomize(values))
        for times in wrong:
            # two beginnings go on, with 64 values each
            monkeypatch.setattr(sketch_reading, "EACH", 0.875 * times)
            wrong[times] += not set(aggregate.estimate(0.8).values) <= {5, 4001}
    assert stats.binomtest(wrong[1], trials, 0.2, alternative="greater").pvalue > ALPHA
    assert stats.binomtest(wrong[128], trials, 0.2, alternative="greater").pvalue < ALPHA


def test_nothing_is_found_where_everybody_has_another_number():
    protocol = HeavyHitters.for_epsilon(4, values=Spelling.INTEGERS, length=32, step=8, hashes=128)
    values = np.random.default_rng().integers(0, 2**32, 20_000)
    found = protocol.aggregator().add(protocol.randomize(values)).estimate("0.999999")
    assert found.values == ()
    assert found.items() == []


def test_larger_epsilon_and_more_people_find_more():
    def limit(epsilon, n):
        return HeavyHitters.for_epsilon(epsilon, values=Spelling.INTEGERS, length=64, step=8).detection_limit(n)

    assert limit(4, 10**7) < limit(4, 10**6) < limit(2, 10**6)
    protocol = HeavyHitters.for_epsilon(4, values=Spelling.INTEGERS, length=64, step=8)
    assert protocol.variance(80_000, 0, concentration=0) == protocol.sketch.variance(10_000, 0, concentration=0)


# ------------------------------------------------------------------ what arrives


def test_reports_merge_and_come_back():
    protocol = HeavyHitters.for_epsilon(4, values=Spelling.UTF8, length=3, hashes=8, buckets=16)
    client = protocol.client()
    words = ["ab", "abca", "", "ü"] * 10
    aggregate = protocol.aggregator().add_reports([client.text(word) for word in words])
    assert (aggregate.reports, aggregate.dropped) == (40, {})
    assert sum(part.reports for part in aggregate.by_level) == 40
    rows = protocol.randomize(words)
    parts = [protocol.aggregator().add(rows[:13]), protocol.aggregator().add(rows[13:])]
    whole = protocol.aggregator().add(rows)
    assert (parts[1] + parts[0]).to_json() == whole.to_json()
    again = aggregator_of(json.loads(json.dumps(whole.to_json())))
    assert again.to_json() == whole.to_json()
    assert again.estimate().tested == whole.estimate().tested
    with pytest.raises(InvalidData, match="too few reports"):
        protocol.aggregator().add(rows[:1]).estimate()


def test_strays_are_dropped_with_their_reason():
    protocol = HeavyHitters.for_epsilon(4, values=Spelling.UTF8, length=3, hashes=100, buckets=16)
    good = protocol.client().payload("ab")
    wrong = [b"\x03" + good[1:], good[:1] + b"\x64" + good[2:]]
    aggregate = protocol.aggregator().add_reports([pack(protocol.fingerprint, payload) for payload in wrong])
    aggregate.add_reports([pack(protocol.fingerprint, good), pack(protocol.fingerprint, good + b"\0"), ""])
    assert aggregate.reports == 1
    assert aggregate.dropped == {Dropped.OUT_OF_RANGE: 2, Dropped.LENGTH: 1, Dropped.NOT_A_REPORT: 1}


def test_values_are_taken_in_any_list_and_refused_otherwise():
    protocol = HeavyHitters.for_epsilon(4, values=Spelling.INTEGERS, length=100, step=10, hashes=8, buckets=16)
    assert protocol.randomize([2**99, 5, np.int64(5)]).shape == (3, protocol.width)
    assert protocol.randomize(np.array([5, 6], dtype=np.uint64)).shape == (2, protocol.width)
    assert protocol.randomize([]).shape == (0, protocol.width)
    for wrong in (5, "5", [2**100], [-1], [True], [None], ["5"], np.array([-1])):
        with pytest.raises(InvalidData):
            protocol.randomize(wrong)
    texts = HeavyHitters.for_epsilon(4, values=Spelling.UTF8, length=4, hashes=8, buckets=16)
    for wrong in ("word", [5], [b"x"], ["\ud800"]):
        with pytest.raises(InvalidData):
            texts.randomize(wrong)
    with pytest.raises(InvalidParameter, match="open domain"):
        HeavyHitters(sketch=CountMeanSketch.optimized(1, domain=5), values=Spelling.INTEGERS, length=8, step=2)
    with pytest.raises(InvalidParameter, match="Spelling"):
        HeavyHitters.for_epsilon(1, values="integers", length=8)
