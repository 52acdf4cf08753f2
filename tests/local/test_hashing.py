"""The hash of local hashing: pairwise independence by counting all seeds, and counts that agree with the definition."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import InvalidParameter
from dither.local.clients.hashing import bucket_of
from dither.local.frequency.hashing import LONG_WORD, SHORT_WORD, LocalHashing

OVER = [(4, 4), (4, 3), (4, 2), (6, 8), (6, 5), (6, 7), (6, 2)]


@pytest.mark.parametrize(("word", "buckets"), OVER)
def test_two_values_share_a_bucket_as_often_as_stated(word, buckets):
    """All seeds, all pairs: the joint law of two buckets is the product of its margins, so c is exact for each pair."""
    half = 2 ** (word // 2)
    oracle = LocalHashing(half, buckets=buckets, keep="99/100", word=word)
    seeds = list(itertools.product(range(2**word), repeat=2))
    table = {x: [bucket_of(x, a, b, word=word, buckets=buckets) for a, b in seeds] for x in range(half)}
    sizes = Counter((mixed * buckets) // half for mixed in range(half))
    for x, y in itertools.combinations(range(half), 2):
        joint = Counter(zip(table[x], table[y], strict=True))
        for first, second in itertools.product(range(buckets), repeat=2):
            assert Fraction(joint[first, second], len(seeds)) == Fraction(sizes[first] * sizes[second], half**2)
        shared = sum(joint[bucket, bucket] for bucket in range(buckets))
        assert Fraction(shared, len(seeds)) == oracle.collision


def test_collisions_are_never_rarer_than_one_in_g_and_hardly_more_frequent():
    for buckets in (2, 3, 4, 5, 21, 55, 148, 1000):
        collision = LocalHashing(100, buckets=buckets, keep="1023/1024").collision
        assert 0 <= collision - Fraction(1, buckets) <= Fraction(buckets, 4 * 2**32)
    assert LocalHashing(100, buckets=8, keep="1/2").collision == Fraction(1, 8)


def test_a_plain_multiplier_would_not_do():
    """Without the offset, value 0 is always in bucket 0: the mutant whose collisions depend on the values."""
    shared = Counter()
    for factor in range(64):
        found = [bucket_of(x, factor, 0, word=6, buckets=4) for x in range(8)]
        shared.update((x, y) for x, y in itertools.combinations(range(8), 2) if found[x] == found[y])
    assert len({shared[pair] for pair in itertools.combinations(range(8), 2)}) > 1


@pytest.mark.parametrize(
    ("size", "buckets", "word"),
    [
        (4, 3, 4),
        (8, 5, 6),
        (16, 3, 8),
        (60, 7, 12),
        (700, 4, None),
        (65_536, 21, None),
        (70_000, 4, None),
        (50, 70_000, None),
    ],
)
def test_supports_are_those_of_the_definition(size, buckets, word):
    oracle = LocalHashing(size, buckets=buckets, keep=Fraction(buckets, buckets + 1), word=word)
    assert oracle.word == word or oracle.word in (SHORT_WORD, LONG_WORD)
    truths = np.random.default_rng(4).integers(0, size, 40)
    rows = oracle.randomize(truths)
    assert oracle.valid(rows).all()
    each = -(-oracle.word // 8)
    checked = np.unique(np.linspace(0, size - 1, 60).astype(int))
    wanted = np.zeros(checked.size, dtype=int)
    kept = 0
    for row, truth in zip(rows, truths, strict=True):
        numbers = [
            int.from_bytes(row[i : i + n].tobytes(), "little") for i, n in ((0, each), (each, each), (2 * each, 9))
        ]
        seed = {"factor": numbers[0], "offset": numbers[1], "word": oracle.word, "buckets": buckets}
        wanted += [bucket_of(int(x), **seed) == numbers[2] for x in checked]
        kept += bucket_of(int(truth), **seed) == numbers[2]
    assert oracle.support_of(rows, checked).tolist() == wanted.tolist()
    assert oracle.support(rows)[checked].tolist() == wanted.tolist()
    assert kept > 40 * float(oracle.keep) - 25


def test_consecutive_values_anywhere():
    oracle = LocalHashing(5000, buckets=4, keep="1/2")
    rows = oracle.randomize(np.arange(600) % 5000)
    whole = oracle.support(rows)
    assert oracle.support_of(rows, np.arange(1234, 3456)).tolist() == whole[1234:3456].tolist()
    assert oracle.support_of(rows, np.array([], dtype=int)).tolist() == []
    assert oracle.support(rows[:0]).tolist() == [0] * 5000


def test_the_word_follows_from_the_domain():
    assert LocalHashing.for_epsilon(65_536, 1).word == 32
    assert LocalHashing.for_epsilon(65_537, 1).word == 64
    assert LocalHashing.for_epsilon(10, 12).word == 64
    for wrong in ({"word": 5}, {"word": 2}, {"word": 66}, {"word": 4}, {"buckets": 1}, {"buckets": 2**32}):
        with pytest.raises(InvalidParameter):
            LocalHashing(**{"domain": 100, "buckets": 4, "keep": "1/2", **wrong})
    for keep in ("1/4", 1, "1/5"):
        with pytest.raises(InvalidParameter, match="keep"):
            LocalHashing(100, buckets=4, keep=keep)
