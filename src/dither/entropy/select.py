"""Exact selection: the exponential mechanism and permute-and-flip without a floating-point law.

Index i is wanted with probability ∝ w_i·e^(s_i/scale), for scores s_i that are taken as the exact
binary values of their floats. Adding Gumbel noise in floats, or normalising float exponentials, has
another law. Here floats only *propose*:

1. Every index gets an integer P_i that is provably at least 2^(b-E)·w_i·e^-x_i, where x_i is its
   gap to the best score over the scale, and at most about 0.02 % more. E puts the largest near 2^b.
2. An index is drawn with probability exactly P_i / ΣP: a uniform integer below ΣP, located in the
   running sums.
3. It is accepted with probability exactly 2^(b-E)·w_i·e^-x_i / P_i, from integer bounds of e^-x_i
   for the exact rational x_i (see ``bernoulli.less_than_exp``); otherwise step 2 is repeated.

The product of steps 2 and 3 is 2^(b-E)·w_i·e^-x_i / ΣP, so what is accepted has the wanted law,
exactly, whatever the P_i are. Tight P_i only make acceptance likely (above 99.9 %).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.entropy import intervals
from dither.entropy.bernoulli import flip, less_than_exp
from dither.entropy.source import SYSTEM, Source
from dither.entropy.uniform import below, below_many
from dither.errors import InvalidData, InvalidParameter

Weights: TypeAlias = "NDArray[Any] | Sequence[int] | None"

_BITS = 40
_COIN_BITS = 64
_CHUNK = 1 << 15
_STEP_BITS = intervals.STEPS.bit_length() - 1
# Proposals of at least this size carry a rounding of at most one part in a million.
_LARGE = 1 << 20
_QUICK_COIN = int(intervals.TIGHTNESS * 2**_COIN_BITS)


def select(scores: NDArray[np.float64], scale: Fraction, source: Source = SYSTEM, weights: Weights = None) -> int:
    """An index drawn with probability exactly ∝ weights[i]·e^(scores[i]/scale).

    A score of −∞ or a weight of 0 is never selected. Weights are whole numbers of any size, 1 if
    not given.
    """
    return int(select_many(scores, scale, 1, source, weights)[0])


def select_many(
    scores: NDArray[np.float64], scale: Fraction, count: int, source: Source = SYSTEM, weights: Weights = None
) -> NDArray[np.int64]:
    """``count`` independent draws, with replacement, of what :func:`select` draws."""
    proposal = _propose(_checked_scores(scores), Fraction(scale), weights)
    out = np.empty(count, np.int64)
    pending = np.arange(count)
    while pending.size:
        drawn = proposal.draw(pending.size, source)
        accepted = proposal.accept(drawn, source)
        out[pending[accepted]] = drawn[accepted]
        pending = pending[~accepted]
    return out


def permute_and_flip(scores: NDArray[np.float64], scale: Fraction, source: Source = SYSTEM) -> int:
    """An index by permute-and-flip (McKenna & Sheldon 2020), exactly.

    The mechanism visits the indices in uniform random order, flips for each a coin that shows heads
    with probability e^((score - best)/scale), and returns the first that shows heads. The coins
    don't depend on the order; so flip all of them first, and the first head in a uniform order is a
    uniform choice among the heads. The best score always shows heads, so there is one.
    """
    scores = _checked_scores(scores)
    best = float(scores.max())

    def exact(i: int) -> Fraction | None:
        score = float(scores[i])
        return None if score == -np.inf else Fraction(best) - Fraction(score)

    heads = np.flatnonzero(flip(_gaps(best, scores), exact, Fraction(scale), source))
    return int(heads[below(heads.size, source)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposal:
    """Running sums of the P_i of steps 1 and 2, and what step 3 needs to correct them."""

    scores: NDArray[np.float64]
    best: float
    scale: Fraction
    rate: float
    sums: NDArray[np.uint64]
    weights: NDArray[Any] | None
    exponent: int
    """b − E in the module's docstring."""

    def draw(self, count: int, source: Source) -> NDArray[np.int64]:
        """Step 2: indices with probability exactly P_i / ΣP."""
        total = int(self.sums[-1])
        places = below_many(total, count, source).astype(np.uint64)
        return np.searchsorted(self.sums, places, side="right").astype(np.int64)

    def accept(self, drawn: NDArray[np.int64], source: Source) -> NDArray[np.bool_]:
        """Step 3: coins with the exact acceptance probabilities of the indices drawn."""
        sizes = self.sums[drawn] - np.where(drawn > 0, self.sums[drawn - 1], np.uint64(0))
        coins = source.u64(drawn.size)
        n = intervals.steps(_gaps(self.best, self.scores[drawn]), self.rate)
        # For these the acceptance probability is above TIGHTNESS, so such a coin implies
        # acceptance.
        accepted: NDArray[np.bool_] = (coins < _QUICK_COIN) & (sizes >= _LARGE) & (n <= intervals.TRUSTED_STEPS)
        for k in np.flatnonzero(~accepted):
            i = int(drawn[k])
            gap = Fraction(self.best) - Fraction(float(self.scores[i]))
            weight = 1 if self.weights is None else int(self.weights[i])
            factor = weight * Fraction(2) ** self.exponent / int(sizes[k])
            accepted[k] = less_than_exp(int(coins[k]), _COIN_BITS, gap / self.scale, source, factor)
        return accepted


def _propose(scores: NDArray[np.float64], scale: Fraction, weights: Weights) -> _Proposal:
    """Step 1. Only indices with a positive weight count for the best score."""
    rate = intervals.step_rate(scale)
    exact, mantissas, exponents = _split(weights, scores.size)
    possible = scores if exact is None else np.where(exact > 0, scores, -np.inf)
    best = float(possible.max())
    if best == -np.inf:
        raise InvalidParameter("nothing can be selected: every score is -inf or has weight 0")
    bits = min(_BITS, 61 - scores.size.bit_length())
    top = 0
    if exponents is not None:
        top = _largest_exponent(possible, best, rate, exponents)
    sizes = np.empty(scores.size, np.uint64)
    for start in range(0, scores.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        n = intervals.steps(_gaps(best, possible[part]), rate)
        size = intervals.mantissas(n)
        halvings = n >> _STEP_BITS
        if mantissas is not None and exponents is not None:
            size *= mantissas[part]
            halvings += top - exponents[part]
        size *= intervals.powers(halvings)
        # Two roundings so far, each below 2^-53; then down to an integer, and up by one.
        size *= 2.0**bits * (1 + 2.0**-50)
        whole = size.astype(np.uint64)
        whole += np.uint64(1)
        whole[possible[part] == -np.inf] = 0
        sizes[part] = whole
    np.cumsum(sizes, out=sizes)  # below 2^63: each is at most 2^bits + 2
    return _Proposal(scores=scores, best=best, scale=scale, rate=rate, sums=sizes, weights=exact, exponent=bits - top)


def _largest_exponent(possible: NDArray[np.float64], best: float, rate: float, exponents: NDArray[np.int64]) -> int:
    """E: with it no proposal exceeds 2^b, and the largest is at least 2^(b-2)."""
    net = exponents - (intervals.steps(_gaps(best, possible), rate) >> _STEP_BITS)
    return int(net[possible > -np.inf].max())


def _gaps(best: float, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # a gap beyond the largest float is infinite, as steps() expects
        return best - scores


def _checked_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise InvalidParameter("scores must be a one-dimensional array of at least one number")
    # max() is NaN if any score is; one pass over the data.
    best = float(scores.max())
    if np.isnan(best) or best == np.inf:
        raise InvalidData("scores must be finite")
    if best == -np.inf:
        raise InvalidParameter("nothing can be selected: every score is -inf or has weight 0")
    return scores


def _split(
    weights: Weights, size: int
) -> tuple[NDArray[Any] | None, NDArray[np.float64] | None, NDArray[np.int64] | None]:
    """Weights as exact integers and as mantissa · 2^exponent, rounded at most once."""
    if weights is None:
        return None, None, None
    exact = np.asarray(weights)
    if exact.shape != (size,):
        raise InvalidParameter("weights must be as many as the scores")
    if exact.dtype.kind in "iu":
        if exact.min() < 0:
            raise InvalidParameter("weights must be at least 0")
        mantissas, exponents = np.frexp(exact.astype(np.float64))
        return exact, mantissas, exponents.astype(np.int64)
    try:
        whole = [operator.index(weight) for weight in exact.tolist()]
    except TypeError:
        raise InvalidParameter("weights must be whole numbers") from None
    if min(whole) < 0:
        raise InvalidParameter("weights must be at least 0")
    # Integers beyond 64 bits: the leading 53 bits, rounded up.
    lengths = [weight.bit_length() for weight in whole]
    leading = [-(-weight << 53 >> length) for weight, length in zip(whole, lengths, strict=True)]
    return (np.array(whole, object), np.array(leading, np.float64) * 2.0**-53, np.array(lengths, np.int64))
