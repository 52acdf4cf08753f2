"""Coins, integers, orders and samples against their exact probabilities."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from importlib import import_module
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy import stats

from dither.entropy import (
    SYSTEM,
    Source,
    below,
    below_many,
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_many,
    bernoulli_many,
    less_than_exp,
    permutation,
    poisson_mask,
    sample_without_replacement,
)
from dither.errors import InvalidParameter

# The package exports a function of the same name.
bernoulli_module = import_module("dither.entropy.bernoulli")


class Scripted(Source):
    """Hands out given bytes, then fails: shows which bits decide and that no more are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fill(self, nbytes):
        taken, self.data = self.data[:nbytes], self.data[nbytes:]
        assert len(taken) == nbytes, "read more bits than the answer needs"
        return np.frombuffer(bytearray(taken), np.uint8)


def share(hits: int, n: int, p: float) -> float:
    return stats.binomtest(hits, n, p).pvalue


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 2), Fraction(99, 100), Fraction(1, 97)])
def test_rational_coins(statistics, p):
    # Catches a probability off by 10 % of its smaller side: 2 million coins.
    n = 2_000_000
    hits = int(bernoulli_many(p, n).sum())
    assert share(hits, n, float(p)) > statistics.alpha
    smaller = min(p, 1 - p)
    mutant = int(bernoulli_many(p - smaller / 10, n).sum())
    assert share(mutant, n, float(p)) < statistics.alpha
    singles = sum(bernoulli(p) for _ in range(20_000))
    assert share(singles, 20_000, float(p)) > statistics.alpha


def test_every_16_bit_word_counts_once():
    # All words in order: exactly floor(p·2^16) are below p, and the tie goes on to further bits,
    # here zeros, which are below any remainder that is not 0.
    words = np.arange(65536, dtype=np.uint16).tobytes()
    p = Fraction(3, 7)
    assert bernoulli_many(p, 65536, Scripted(words + bytes(2))).sum() == (p * 65536).__floor__() + 1
    assert bernoulli_many(p, 65536, Scripted(words + b"\xff" * 2)).sum() == (p * 65536).__floor__()
    # A dyadic probability needs no further bits.
    assert bernoulli_many(Fraction(5, 16), 65536, Scripted(words)).sum() == 5 * 4096


def test_certain_coins_and_refusals():
    assert bernoulli_many(Fraction(1), 1000).all()
    assert not bernoulli_many(Fraction(0), 1000).any()
    assert bernoulli(Fraction(1))
    assert not bernoulli(Fraction(0))
    assert bernoulli_exp(Fraction(0))
    assert not bernoulli_exp(Fraction(10**9))
    for p in (Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(InvalidParameter, match="between 0 and 1"):
            bernoulli(p)
        with pytest.raises(InvalidParameter, match="between 0 and 1"):
            bernoulli_many(p, 3)
    for gaps in (np.array([-1.0]), np.array([np.nan]), np.zeros((2, 2))):
        with pytest.raises(InvalidParameter, match="gaps"):
            bernoulli_exp_many(gaps, Fraction(1))


def test_exponential_coin(statistics):
    # Catches an exponent off by 20 %.
    n, x = 40_000, Fraction(3, 7)
    hits = sum(bernoulli_exp(x) for _ in range(n))
    assert share(hits, n, math.exp(-3 / 7)) > statistics.alpha
    mutant = sum(bernoulli_exp(x * Fraction(6, 5)) for _ in range(n))
    assert share(mutant, n, math.exp(-3 / 7)) < statistics.alpha


def _coin_p_values(scale: Fraction) -> tuple[float, np.ndarray]:
    distinct = np.array([0.0, 1e-9, 0.01, 0.3, 1.0, 2.5, 7.0, 30.0, 1e9, np.inf])
    gaps = np.repeat(distinct, 200_000)
    heads = bernoulli_exp_many(gaps, scale).reshape(distinct.size, -1).sum(axis=1)
    p = np.exp(-distinct / 1.7)
    values = [share(int(h), 200_000, float(q)) for h, q in zip(heads, p, strict=True)]
    return min(values), heads


def test_exponential_coins(statistics):
    # Catches an exponent off by 5 %: among 200,000 coins of each gap.
    worst, heads = _coin_p_values(Fraction(17, 10))
    assert worst > statistics.alpha
    assert heads[0] == 200_000
    assert heads[-1] == heads[-2] == 0
    assert _coin_p_values(Fraction(17, 10) * Fraction(95, 100))[0] < statistics.alpha


def test_exponential_coins_do_not_depend_on_the_float_bounds(statistics, monkeypatch):
    # Any valid bounds must give the same law: here the lower bound is half the truth and the upper
    # one loose, so that most coins are decided by integers. A mutant takes the upper bound for the
    # truth.
    rate = bernoulli_module.intervals.step_rate
    monkeypatch.setattr(bernoulli_module.intervals, "step_rate", lambda scale: 0.8 * rate(scale))
    monkeypatch.setattr(bernoulli_module.intervals, "TIGHTNESS", 0.5)
    gaps = np.full(30_000, 1.0)
    p = math.exp(-1)
    assert share(int(bernoulli_exp_many(gaps, Fraction(1)).sum()), 30_000, p) > statistics.alpha
    monkeypatch.setattr(bernoulli_module, "less_than_exp", lambda *_: True)
    assert share(int(bernoulli_exp_many(gaps, Fraction(1)).sum()), 30_000, p) < statistics.alpha


def test_lazy_comparison_reads_only_what_it_needs():
    none = Scripted(b"")
    assert less_than_exp(0, 8, Fraction(1), none)
    assert not less_than_exp(255, 8, Fraction(1), none)
    # 256/e = 94.18: a prefix of 94 is undecided; the next bits decide.
    assert less_than_exp(94, 8, Fraction(1), Scripted(bytes(8)))
    assert not less_than_exp(94, 8, Fraction(1), Scripted(b"\xff" * 8))
    # factor · e^-x = 1 - tiny, with e^-x itself far below one unit of the prefix.
    assert less_than_exp(200, 8, Fraction(100), none, factor=Fraction(2**144))


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 65536, 65537, 3 * 2**40, 2**63])
def test_uniform_integers(statistics, n):
    # Catches reduction modulo n, which makes 0 twice as likely at n = 7 and the lowest third at
    # n = 3·2^40.
    draws = below_many(n, 300_000)
    assert draws.min() >= 0
    assert int(draws.max()) < n
    if n == 1:
        assert not draws.any()
        return
    cells = min(n, 21)
    edges = [n * k // cells for k in range(cells + 1)]
    observed = np.bincount(np.searchsorted(edges[1:-1], draws, side="right"), minlength=cells)
    probabilities = np.array([float(Fraction(b - a, n)) for a, b in pairwise(edges)])
    assert statistics.chi_square(observed, probabilities) > statistics.alpha
    if n in (7, 3 * 2**40):
        words = SYSTEM.u64(300_000) & np.uint64((1 << (n - 1).bit_length()) - 1)
        mutant = (words % np.uint64(n)).astype(np.int64)
        observed = np.bincount(np.searchsorted(edges[1:-1], mutant, side="right"), minlength=cells)
        assert statistics.chi_square(observed, probabilities) < statistics.alpha


def test_uniform_big_integers(statistics):
    # Catches reduction modulo n, which makes the lower half nearly twice as likely.
    n = 3 * 10**40
    draws = [below(n) for _ in range(30_000)]
    assert 0 <= min(draws) <= max(draws) < n
    observed = np.bincount([d * 10 // n for d in draws], minlength=10)
    assert statistics.chi_square(observed, np.full(10, 0.1)) > statistics.alpha
    reduced = [SYSTEM.bits(n.bit_length()) % n for _ in range(30_000)]
    observed = np.bincount([d * 10 // n for d in reduced], minlength=10)
    assert statistics.chi_square(observed, np.full(10, 0.1)) < statistics.alpha
    with pytest.raises(InvalidParameter, match="at least one"):
        below(0)
    for wrong in (0, 2**63 + 1):
        with pytest.raises(InvalidParameter, match="between 1 and"):
            below_many(wrong, 1)


def _orders(draw) -> np.ndarray:
    seen = Counter(tuple(draw().tolist()) for _ in range(60_000))
    return np.array([seen[order] for order in permutations(range(4))])


def test_all_orders_of_four_are_equally_likely(statistics):
    # Catches the shuffle that swaps each place with any place (orders between 8/256 and 15/256).
    assert statistics.chi_square(_orders(lambda: permutation(4)), np.full(24, 1 / 24)) > 1e-9

    def naive():
        order = np.arange(4)
        for i, j in enumerate(below_many(4, 4)):
            order[[i, j]] = order[[j, i]]
        return order

    assert statistics.chi_square(_orders(naive), np.full(24, 1 / 24)) < statistics.alpha


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 2**20 + 5])
def test_permutations_contain_everything_once(n):
    order = permutation(n)
    assert order.dtype == np.int64
    assert (np.sort(order) == np.arange(n)).all()


def test_equal_keys_are_drawn_again():
    # Four equal keys, then four different ones: the answer must come from the second set.
    keys = np.array([9, 9, 9, 9, 40, 30, 20, 10], np.uint64) << np.uint64(32)
    assert permutation(4, Scripted(keys.tobytes())).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(("n", "k"), [(6, 2), (12, 2), (5, 5), (4, 0)])
def test_samples_without_replacement(statistics, n, k):
    # Ordered pairs; the mutant repeats a record with probability 1/n.
    drawn = [tuple(sample_without_replacement(n, k).tolist()) for _ in range(20_000)]
    assert all(len(set(sample)) == k for sample in drawn)
    if k == 2:
        possible = list(permutations(range(n), 2))
        seen = Counter(drawn)
        observed = np.array([seen[pair] for pair in possible])
        even = np.full(len(possible), 1 / len(possible))
        assert statistics.chi_square(observed, even) > statistics.alpha
        # mutant: sorted samples, which forget the order
        seen = Counter(tuple(sorted(sample)) for sample in drawn)
        assert statistics.chi_square(np.array([seen[p] for p in possible]), even) < 1e-9


def test_large_samples_without_replacement():
    drawn = sample_without_replacement(10**6, 10**5)
    assert np.unique(drawn).size == 10**5
    assert sample_without_replacement(2**60, 1000).size == 1000
    with pytest.raises(InvalidParameter, match="larger"):
        sample_without_replacement(3, 4)


def test_poisson_mask(statistics):
    # Catches a rate 15 % off.
    mask = poisson_mask(Fraction(1, 50), 1_000_000)
    assert share(int(mask.sum()), mask.size, 0.02) > statistics.alpha
    assert share(int(mask.sum()), mask.size, 0.023) < statistics.alpha
