"""Sequence fragments: the exact law of the client, words that nobody listed, and what arrives."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dither.checks import check_randomizer
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.fragments import Letters, SequenceFragmentsClient, tag_of
from dither.local.clients.wire import Dropped, pack
from dither.local.core.protocol import aggregator_of, protocol_of
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.fragments import LOWER_CASE, SequenceFragments, _spelled
from dither.local.sketches.hadamard import HadamardSketch
from support.sizes import at_night

SEED = "00112233445566778899aabbccddeeff"
OTHER_SEED = "ffeeddccbbaa99887766554433221100"
SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "ra", "te", "vo", "shi", "zo", "plo", "fra"]
TINY = SequenceFragments(
    fragments=HadamardSketch(keep="3/4", hashes=2, buckets=4, seed=SEED, domain=2 * 3),
    words=CountMeanSketch(keep="2/3", noise="1/3", hashes=1, buckets=2, seed=OTHER_SEED),
    alphabet="a",
    length=2,
    fragment=1,
    tag_bits=1,
)


def made_up_words(number, generator):
    words = {"".join(generator.choice(SYLLABLES, size=generator.integers(2, 5))) for _ in range(10 * number)}
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())[:number]


def laws(protocol, client=SequenceFragmentsClient):
    made = client(protocol.describe())
    return {v: law_of(lambda coins, v=v: made.payload(v, coins)) for v in ("", "a", "aa", "b", "ab")}


def worst_ratio(found):
    worst = Fraction(0)
    for first, second in product(found.values(), repeat=2):
        if not first.keys() <= second.keys():
            return math.inf
        worst = max(worst, *(first[output] / second[output] for output in first))
    return worst


# ------------------------------------------------------------------ the wire


def test_description_is_permanent():
    description = {
        "protocol": "sequence_fragments", "alphabet": "a", "length": 2, "fragment": 1, "tag_bits": 1,
        "fragments": {
            "protocol": "hadamard_sketch", "domain": 6, "hashes": 2, "buckets": 4, "seed": SEED, "keep": "3/4",
        },
        "words": {
            "protocol": "count_mean_sketch", "domain": None, "hashes": 1, "buckets": 2, "seed": OTHER_SEED,
            "keep": "2/3", "noise": "1/3",
        },
    }  # fmt: skip
    assert TINY.describe() == description
    assert protocol_of(json.loads(json.dumps(description))) == TINY
    assert client_of(description).width == TINY.width == 1 + 2 + 2


class Fixed:
    """Coins that fall as listed; every chance comes up if it is likelier than not."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def below(self, n):
        number = self.numbers.pop(0)
        assert number < n
        return number

    def chance(self, p):
        return p > Fraction(1, 2)


def test_payload_is_that_of_the_documentation():
    protocol = SequenceFragments(
        fragments=HadamardSketch(keep="3/4", hashes=3, buckets=512, seed=SEED, domain=256 * 28**2),
        words=HadamardSketch(keep="3/4", hashes=3, buckets=512, seed=OTHER_SEED),
        length=6,
    )
    plain = "na\N{REPLACEMENT CHARACTER}ve"
    digits = [14, 1, 27, 22, 5, 0]
    assert protocol.letters.digits("naïve") == digits
    tag = hashlib.shake_128(b"dither-tag" + bytes.fromhex(SEED) + plain.encode()).digest(2)[0]
    for position in range(3):
        value = tag * 28**2 + digits[2 * position] * 28 + digits[2 * position + 1]
        payload = protocol.client().payload("naïve", Fixed(position, 2, 100, 1, 200))
        parts = [
            protocol.fragments.client().payload(value, Fixed(2, 100)),
            protocol.words.client().payload(plain, Fixed(1, 200)),
        ]
        assert payload == bytes([position]) + parts[0] + parts[1]
        assert protocol.tagged(plain)[position] == value


def test_letters():
    letters = Letters("abc", 4)
    assert letters.digits("") == [0, 0, 0, 0]
    assert letters.digits("cabbage") == [3, 1, 2, 2]
    assert letters.digits("aXb") == [1, 4, 2, 0]
    assert letters.word([1, 4, 2, 0]) == "a\N{REPLACEMENT CHARACTER}b"
    assert letters.digits(letters.word([1, 4, 2, 0])) == [1, 4, 2, 0]
    assert letters.ends([1, 2, 0, 0])
    assert not letters.ends([1, 0, 2, 0])
    for wrong in ("", "aa", "a\N{REPLACEMENT CHARACTER}", None, "\ud800"):
        with pytest.raises(InvalidParameter):
            Letters(wrong, 4)
    for wrong in (17, None, b"a"):
        with pytest.raises(InvalidData, match="nothing was drawn"):
            letters.digits(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"alphabet": "aa"}, {"alphabet": ""}, {"length": 0}, {"length": 2.0}, {"fragment": 0}, {"tag_bits": 0},
        {"length": 3, "fragment": 2}, {"tag_bits": 2}, {"tag_bits": 17}, {"fragments": None},
        {"words": {"protocol": "kary"}},
        {"words": TINY.fragments.describe()}, {"fragments": TINY.words.describe()}, {"more": 1}, {"alphabet": "ab"},
    ],
)  # fmt: skip
def test_wrong_descriptions_are_refused_by_both_sides(change):
    for make in (client_of, protocol_of):
        with pytest.raises(InvalidParameter):
            make(TINY.describe() | change)


def test_too_many_fragments_are_refused():
    with pytest.raises(InvalidParameter, match="shorter fragments"):
        SequenceFragments.for_epsilon(4, length=12, fragment=4)


# ------------------------------------------------------------------ privacy


def test_loss_is_the_largest_ratio():
    found = laws(TINY)
    odds = TINY.fragments.odds * TINY.words.odds
    assert worst_ratio(found) == odds
    assert math.log(odds) <= TINY.loss().pure() <= math.log(odds) + 1e-12
    for first, second in product(found.values(), repeat=2):
        for epsilon in (0.0, 0.5, 1.2, 2.0):
            exact = sum(max(0.0, float(first[y]) - math.exp(epsilon) * float(second[y])) for y in first)
            assert exact <= TINY.loss().delta(epsilon) + 1e-9
    # the loss of one of the two sketches wouldn't hold
    assert worst_ratio(found) > max(TINY.fragments.odds, TINY.words.odds)


def test_law_of_the_client():
    position = Fraction(1, TINY.positions)
    fragments, words = TINY.fragments.client(), TINY.words.client()
    for word, found in laws(TINY).items():
        plain = TINY.letters.word(TINY.letters.digits(word))
        expected = {}
        of_word = law_of(lambda coins, plain=plain: words.payload(plain, coins))
        for at, value in enumerate(TINY.tagged(plain)):
            of_fragment = law_of(lambda coins, value=value: fragments.payload(value, coins))
            for (a, p), (b, q) in product(of_fragment.items(), of_word.items()):
                expected[bytes([at]) + a + b] = position * p * q
        assert found == expected


class ChosenPosition(SequenceFragmentsClient):
    """Sends the last letter that there is."""

    def payload(self, value, coins):
        whole = super().payload(value, coins)
        return bytes([len(value) % 2]) + whole[1:]


def test_a_position_that_tells_is_noticed():
    assert worst_ratio(laws(TINY, ChosenPosition)) == math.inf


@pytest.mark.parametrize("epsilon", [1, "7/2", 8])
def test_for_epsilon_is_just_below(epsilon):
    goal = float(Fraction(epsilon))
    protocol = SequenceFragments.for_epsilon(epsilon)
    assert goal * (1 - 1e-9) < protocol.loss().pure() <= goal
    assert protocol.longitudinal_loss(2).pure() == pytest.approx(2 * goal, rel=1e-6)


@at_night
def test_the_suite_for_all_randomisers_passes():
    assert check_randomizer(SequenceFragments.for_epsilon(4), draws=40_000).passed


# ------------------------------------------------------------------ words that nobody listed


def test_words_are_found():
    generator = np.random.default_rng(11)
    words = made_up_words(60, generator)
    shares = 1 / np.arange(1, 61) ** 1.2
    shares /= shares.sum()
    n = 300_000
    drawn = generator.choice(60, size=n, p=shares)
    true = np.bincount(drawn, minlength=60) / n
    protocol = SequenceFragments.for_epsilon(8, length=8, hashes=256)
    kept = {word[:8]: float(true[[other[:8] == word[:8] for other in words]].sum()) for word in words}
    aggregate = protocol.aggregator().add(protocol.randomize([words[place] for place in drawn]))
    found = aggregate.estimate("0.999999")
    assert found.tested >= len(found.values) >= 5
    squares, largest = float((shares**2).sum()), float(shares[0])
    limit = protocol.detection_limit(n, confidence="0.999999", squares=squares, largest=largest)
    assert 0.005 < limit < 0.03
    assert {word for word, share in kept.items() if share > limit} <= set(found.values)
    for word, share, (low, high) in found.items():
        assert low <= kept[word] <= high  # none is made up
        assert share == pytest.approx(kept[word], abs=0.01)
    assert list(found.shares.values) == sorted(found.shares.values, reverse=True)


@at_night
def test_nothing_is_found_where_everybody_has_another_word():
    generator = np.random.default_rng(3)
    protocol = SequenceFragments.for_epsilon(8, alphabet="abcdef", length=8, hashes=128)
    words = ["".join(letters) for letters in generator.choice(list("abcdef"), size=(20_000, 8))]
    aggregate = protocol.aggregator().add(protocol.randomize(words))
    found = aggregate.estimate("0.999999")
    assert found.values == ()
    assert found.items() == []
    # what chance makes stand out seldom fits together, and has the right tag once in 256
    assert found.tested < 100


def test_fragments_are_put_together():
    protocol = SequenceFragments.for_epsilon(4, alphabet="ab", length=4)
    base = 4

    def piece(text):
        first, second = protocol.letters.digits(text)[:2]
        return first * base + second

    spelled = list(_spelled([[piece("ab"), piece("a"), piece("")], [piece("ba"), piece("")]], protocol, 100))
    assert [protocol.letters.word(digits) for digits in spelled] == ["abba", "ab", "a", ""]
    assert len(list(_spelled([list(range(1, 9)), list(range(1, 9))], protocol, 10))) <= 10


def test_hadamard_sketches_do_too():
    protocol = SequenceFragments(
        fragments=HadamardSketch.for_epsilon(4, domain=256 * 28**2, hashes=128, buckets=256),
        words=HadamardSketch.for_epsilon(4, hashes=256, buckets=512),
        length=4,
    )
    assert protocol_of(protocol.describe()) == protocol
    rows = protocol.randomize(["tea", "milk", "rice"] * 5000)
    found = protocol.aggregator().add(rows).estimate()
    assert set(found.values) == {"tea", "milk", "rice"}


def test_tags_are_those_of_plain_words():
    assert tag_of("dither", seed=bytes(16), bits=8) == 203
    counts = np.bincount([tag_of(str(number), seed=bytes(16), bits=4) for number in range(8000)], minlength=16)
    assert counts.min() > 350


# ------------------------------------------------------------------ what arrives


def test_reports_merge_and_come_back():
    protocol = SequenceFragments.for_epsilon(4, alphabet="abc", length=4, hashes=8, buckets=16)
    client = protocol.client()
    words = ["ab", "abca", "", "zzz", "cabcab"] * 8
    aggregate = protocol.aggregator().add_reports([client.text(word) for word in words])
    assert (aggregate.reports, aggregate.dropped) == (40, {})
    assert sum(part.reports for part in aggregate.by_position) == aggregate.words.reports == 40
    rows = protocol.randomize(words)
    parts = [protocol.aggregator().add(rows[:13]), protocol.aggregator().add(rows[13:])]
    whole = protocol.aggregator().add(rows)
    merged = parts[1] + parts[0]
    assert merged.to_json() == whole.to_json()
    again = aggregator_of(json.loads(json.dumps(whole.to_json())))
    assert again.to_json() == whole.to_json()
    assert again.estimate().tested == whole.estimate().tested
    assert again.words.reports == 40
    lone = protocol.aggregator().add(rows[:1])
    assert lone.estimate().values == ()
    with pytest.raises(InvalidData, match="no reports"):
        protocol.aggregator().estimate()


def test_strays_are_dropped_with_their_reason():
    protocol = SequenceFragments.for_epsilon(4, alphabet="abc", length=4, hashes=100, buckets=16)
    good = protocol.client().payload("ab")
    wrong = [
        b"\x02" + good[1:],  # a position too far
        good[:1] + b"\x64" + good[2:],  # a function of fragments that there isn't
        good[: 1 + protocol.fragments.width] + b"\xff" + good[2 + protocol.fragments.width :],
    ]
    aggregate = protocol.aggregator().add_reports([pack(protocol.fingerprint, payload) for payload in wrong])
    aggregate.add_reports([pack(protocol.fingerprint, good), pack(protocol.fingerprint, good[:-1]), 17])
    assert aggregate.reports == 1
    assert aggregate.dropped == {Dropped.OUT_OF_RANGE: 3, Dropped.LENGTH: 1, Dropped.NOT_A_REPORT: 1}


def test_wrong_values_are_refused():
    protocol = SequenceFragments.for_epsilon(4, alphabet=LOWER_CASE, length=4)
    for wrong in ("word", b"word", [17], [None], [b"x"]):
        with pytest.raises(InvalidData):
            protocol.randomize(wrong)
    assert protocol.randomize([]).shape == (0, protocol.width)
    assert protocol.randomize(np.array(["ab", "cd"])).shape == (2, protocol.width)
    with pytest.raises(InvalidParameter, match="sketches"):
        SequenceFragments(fragments=None, words=None)
