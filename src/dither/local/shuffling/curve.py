"""The hockey-stick curve of a report hidden among the reports of others, summed term by term and rounded up.

``shuffle.md`` derives the pair of laws. Of the reports that could be anybody's, a binomial number C speaks for one of
the two values. With S(C, k) = Pr[Bin(C, ½) ≥ k] and b(C, k) = Pr[Bin(C, ½) = k] the curve is a sum over C of
Pr[C]·(b(C, k−1)·x − S(C, k)·y), with a threshold k for each C. Nothing cancels much in it: x·b is at most about z²
times the difference, z being the threshold in standard deviations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dither.numeric import fraction_up, log_up
from dither.numeric.rounding import SLACK
from dither.privacy import Array

# Numbers of clones outside of the windows have a probability below this on each side, which is added to δ.
TAIL = 1e-30
# e^−FAR is below every tail: a curve that small isn't summed.
FAR = 105.0
# Allowance for b(C, k), from that of its logarithm, and for a sum of them.
RELATIVE = 1e-12
# By how much the sums may overstate δ, measured against exact ones: a share of it, besides what is cut off.
OVERSTATED = 1e-7
# Sums of b are begun anew after C has grown by one in so many, or by so many times its root: before S changes by more
# than a factor of e, or more than 200 times its value was added up.
FRESH_SHARE, FRESH_ROOTS = 100, 16
# Beyond twelve standard deviations from the threshold nothing is left to add.
TERMS_PER_ROOT = 6
# More users than this are counted as so many: more can only hide better, and the window stays within memory.
MOST_USERS = 10**10
# Beyond, no crowd hides anything, and products of odds might exceed a float.
LARGEST_ODDS = Fraction(10**150)
# The number of reports that could be anybody's is taken in steps, each counted as its lower end: one by one if there
# are few, else between these parts of its law, fewer where one step takes long.
FEW_SIZES = 24
STEPS = (0.0, 1e-12, 1e-8, 1e-5, 1e-3, 0.01, 0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 0.99)
LONG, LONG_STEPS = 10_000, (0.0, 1e-8, 1e-3, 0.1, 0.35, 0.65)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomiser:
    """What is known of a local randomiser, for every two values and everybody else's.

    The user's report is drawn from a first law with probability odds·weight and from a second with probability weight
    (the other way round if they have the other value), and from a third with probability ``silent``; with what is left
    it is known to be the user's, and says nothing about the two values. Whatever somebody else's value is, theirs is
    drawn from the first two laws with probability ``clones`` each and from the third with probability ``common``.
    """

    odds: Fraction
    weight: Fraction
    clones: Fraction
    silent: Fraction = Fraction(0)
    common: Fraction = Fraction(0)


class ShuffledCurve:
    """The curve for one local randomiser and one number of users; the laws of the clones are worked out once."""

    def __init__(self, known: Randomiser, users: int) -> None:
        odds, weight, others = known.odds, known.weight, min(users, MOST_USERS) - 1
        self.pure = log_up(odds)
        self.gain = fraction_up(odds - 1)
        self.local = fraction_up(odds * weight) * (1 + SLACK)
        self.weight = fraction_up(weight)
        self.others, self.clone = others, float(2 * known.clones)
        alike = 2 * known.clones + known.common
        # how much more a silent report may be the user's than one of the second law
        more = float(known.silent * known.clones / (known.common * weight)) if known.common else 0.0
        # without a third law only clones could be anybody's: they are the crowd, and are summed over below
        lowest, chances, cut = _binomial_window(others, alike if known.common else Fraction(1))
        self.crowds: list[tuple[float, Crowd]] = []
        # of fewer clones more can be made by drawing them: a step counted as its lower end is never too low
        share = 2 * known.clones / alike if known.common else 2 * known.clones
        first = Crowd.of(lowest, share, silent=more)
        edges = _steps(chances, long=first.masses.size > LONG)
        self._largest: list[tuple[float, int]] = []
        for start, end in itertools.pairwise([*edges, chances.size]):
            chance = float(chances[start:end].sum()) * (1 + chances.size * 2.0**-50)
            self.crowds.append((chance, Crowd.of(lowest + start, share, silent=more) if start else first))
            self._largest.append((chance, lowest + end - 1))
        self._share, self._more, self._counted = share, more, users <= MOST_USERS
        self.outside = 6 * TAIL if cut or any(crowd.cut for _, crowd in self.crowds) else 0.0

    @property
    def work(self) -> int:
        """How many terms one point of the curve takes."""
        return sum(crowd.masses.size for _, crowd in self.crowds)

    def delta_up(self, epsilon: float) -> float:
        """An upper bound of the curve at ε ≥ 0."""
        if epsilon >= self.pure:
            return 0.0
        local = -math.expm1(epsilon - self.pure) * self.local
        more = math.expm1(epsilon)
        # p − t, from two numbers that may be equal but for their rounding
        lead = self.gain * (1 + SLACK) - more * (1 - SLACK)
        total = sum(chance * crowd.sum_up(epsilon, self.gain, lead, more) for chance, crowd in self.crowds)
        return min(local, total * self.weight * (1 + SLACK) + self.outside * local)

    @cached_property
    def _larger_crowds(self) -> list[tuple[float, Crowd]]:
        """Each step counted as its upper end, which is never too high; none where users weren't counted."""
        if not self._counted:
            return []
        return [
            (chance, crowd if crowd.size == size else Crowd.of(size, self._share, silent=self._more))
            for (chance, size), (_, crowd) in zip(self._largest, self.crowds, strict=True)
        ]

    def delta_down(self, epsilon: float) -> float:
        """A lower bound of the curve at ε ≥ 0: what is cut off is left out, the rest may be off by ``OVERSTATED``."""
        if epsilon >= self.pure:
            return 0.0
        more = math.expm1(epsilon) * (1 + SLACK)
        lead = self.gain * (1 - SLACK) - more
        if lead <= 0:
            return 0.0
        total = sum(chance * crowd.sum_up(epsilon, self.gain, lead, more) for chance, crowd in self._larger_crowds)
        return max(0.0, total * self.weight * (1 - OVERSTATED) - 2 * TAIL)

    def log_up(self, epsilon: float) -> float:
        """A simpler bound of the curve's logarithm at 0 < ε < the pure one, however low it is.

        What P has above the threshold is at most S(C, k−1) ≤ 2·Pr[Bin(C+1, ½) ≥ s·(C+1)] ≤ 2·exp(−(C+1)·g) with
        g = KL(s, ½) (Chernoff), and the mean of e^{−Cg} is (1 − 2·clones·(1 − e^{−g}))^others.
        """
        share = min(1.0, 1 / (1 + math.exp(-epsilon)) + math.tanh(epsilon / 2) / self.gain)
        g = math.log(2) + share * math.log(share) + ((1 - share) * math.log1p(-share) if share < 1 else 0.0)
        g = max(0.0, g * (1 - 1e-9) - 1e-15)
        hidden = self.others * math.log1p(math.expm1(-g) * self.clone)
        local = -math.expm1(epsilon - self.pure) * self.local
        return math.log(local) + min(0.0, math.log(2) - g + hidden * (1 - SLACK)) + SLACK


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """``size`` reports besides the user's, of which some number C speaks for one of the two values.

    The rest says nothing, and each of it is ``silent`` times as likely to be the user's as a report for the other value
    is; 0 if it is known not to be the user's.
    """

    size: int
    silent: float
    first: int
    masses: Array
    cut: bool

    @classmethod
    def of(cls, size: int, share: Fraction, *, silent: float) -> Crowd:
        """A crowd whose reports speak with probability ``share`` each."""
        return cls(size, silent, *_binomial_window(size, share))

    def sum_up(self, epsilon: float, gain: float, lead: float, more: float) -> float:
        """The curve over the weight, from above; ``gain`` is odds − 1, ``lead`` odds − e^ε and ``more`` e^ε − 1."""
        if self._out_of_sight(epsilon, gain):
            return 0.0
        clones = self.first + np.arange(self.masses.size)
        at, above = _tails(clones, self._thresholds(clones + 1, epsilon, gain))
        silent = self.silent * (self.size - clones) / (clones + 1)
        upper = at * (lead * (1 + RELATIVE))
        lower = (at * silent + above * (gain + 2 + 2 * silent)) * (more * (1 - RELATIVE))
        total = float(np.sum(np.maximum(upper - lower, 0.0) * self.masses))
        return total * (1 + clones.size * 2.0**-50) * (1 + SLACK)

    def _line(self, epsilon: float, gain: float) -> tuple[float, float]:
        """The real threshold is the first times the number of reports that speak, the user's included, + the second."""
        even, half = 1 / (1 + math.exp(-epsilon)), math.tanh(epsilon / 2) / gain
        return even + half * (1 - self.silent), half * self.silent * (self.size + 1)

    def _thresholds(self, counts: Ints, epsilon: float, gain: float) -> Ints:
        """From how many reports for the one value, of so many for either, P is above e^ε·Q."""
        slope, start = self._line(epsilon, gain)
        k = np.ceil(counts * slope + start).astype(np.int64)
        # the real threshold rises by 0 to 1 at every step; rounding must not make 2 of it, on which the sums rely
        steps = np.arange(k.size)
        return np.asarray(np.maximum.accumulate(np.minimum.accumulate(k - steps) + steps))

    def _out_of_sight(self, epsilon: float, gain: float) -> bool:
        """Whether b(C, k−1) ≤ exp(−(2(k−1) − C)²/2C) (Hoeffding 1963) is below all tails for all C of the window."""
        if self.first == 0:
            return False
        slope, start = self._line(epsilon, gain)
        excess, fixed = 2 * slope - 1, 2 * slope + 2 * start - 2
        # (excess·C + fixed)²/2C is lowest where C = fixed/excess, or at an end
        turn = 0.0 if fixed <= 0 else fixed / excess if excess > 0 else math.inf
        lowest = min(float(self.first + self.masses.size - 1), max(float(self.first), turn))
        distance = excess * lowest + fixed
        return distance > 0 and distance**2 / (2 * lowest) > FAR


@lru_cache(maxsize=64)
def curve_of(known: Randomiser, users: int) -> ShuffledCurve:
    """The curve, remembered for the next ε."""
    return ShuffledCurve(known, users)


def _steps(chances: Array, *, long: bool) -> list[int]:
    """Where each step begins."""
    if chances.size <= FEW_SIZES:
        return list(range(chances.size))
    levels = np.searchsorted(np.cumsum(chances), LONG_STEPS if long else STEPS)
    return sorted({0, *(min(int(place), chances.size - 1) for place in levels)})


def _binomial_window(n: int, p: Fraction) -> tuple[int, Array, bool]:
    """Binomial probabilities from above, but for tails below TAIL on each side.

    The first number, the masses, and whether anything is left out. Masses are products of exact quotients from the mode
    on; divided by their sum over the window they are no smaller than the true ones, so no gamma function is needed.
    """
    if p == 1:
        return n, np.ones(1), False
    middle = min(n, int((n + 1) * p))
    first, last = _edge(n, p, middle, -1), _edge(n, p, middle, 1)
    odds = float(p / (1 - p))
    rising = np.arange(middle, last, dtype=np.float64)
    falling = np.arange(middle, first, -1, dtype=np.float64)
    right = np.cumprod((n - rising) / (rising + 1) * odds)
    left = np.cumprod(falling / (n - falling + 1) / odds)
    masses = np.concatenate([left[::-1], [1.0], right])
    return first, masses / masses.sum(), masses.size <= n


def _edge(n: int, p: Fraction, middle: int, side: int) -> int:
    """The number on this side of the mode beyond which less than TAIL lies, by Chernoff's bound."""
    near, far = middle, 0 if side < 0 else n
    mean, rest, enough = float(n * p), float(n * (1 - p)), -math.log(TAIL)

    def beyond(x: int) -> bool:
        # Pr[C ≤ x] or Pr[C ≥ x] is at most exp(−n·KL(x/n, p))
        if side * (x - mean) <= 0:
            return False
        inner = x * math.log(x / mean) if x else 0.0
        outer = (n - x) * math.log((n - x) / rest) if n - x else 0.0
        return inner + outer - 1e-13 * (abs(inner) + abs(outer)) - 1e-9 > enough

    if not beyond(far):
        return far
    while abs(far - near) > 1:
        between = (near + far) // 2
        near, far = (near, between) if beyond(between) else (between, far)
    return far


def _tails(clones: Ints, k: Ints) -> tuple[Array, Array]:
    """b(C, k−1) and, from below, S(C, k) along a path on which C rises by 1 and k by 0 or 1.

    S(C+1, k) = S(C, k) + ½·b(C, k−1) and S(C+1, k+1) = S(C, k) − ½·b(C, k).
    """
    at = half_binomial(clones, k - 1)
    following = at * np.maximum(clones - k + 1, 0) / k
    moves = np.where(np.diff(k, append=k[-1]) > 0, -0.5 * following, 0.5 * at)
    size, lowest = clones.size, int(clones[0])
    length = max(1, min(lowest // FRESH_SHARE, int(FRESH_ROOTS * math.sqrt(lowest)), size))
    heads = np.arange(0, size, length)
    sums = _upper_sums(clones[heads], k[heads])
    # one line for each sum that is begun anew: its value, then what moves it
    lines = np.zeros((heads.size, length))
    lines.ravel()[1:size] = moves[: size - 1]
    lines[:, 0] = sums
    doubt = np.cumsum(np.abs(lines), axis=1) * (RELATIVE + length * 2.0**-52)
    above = (np.cumsum(lines, axis=1) - doubt).ravel()[:size]
    return at, np.maximum(above, 0.0)


def _upper_sums(clones: Ints, k: Ints) -> Array:
    """S(C, k) from below, by its own sum: each term is the one before it times (C − j)/(j + 1)."""
    terms = int(min(np.max(clones - k, initial=0), TERMS_PER_ROOT * math.sqrt(int(clones.max()) + 1) + 60))
    first = half_binomial(clones, k)
    if terms <= 0:
        return first * (1 - RELATIVE)
    j = k[:, None] + np.arange(terms)
    ratios = np.maximum(clones[:, None] - j, 0) / (j + 1)
    total = first * (1.0 + np.cumprod(ratios, axis=1).sum(axis=1))
    return np.asarray(total * (1 - RELATIVE - terms * 2.0**-51))


# ------------------------------------------------------------------ one binomial probability


# ln n! − (n + ½)·ln n + n − ½·ln 2π for small n, where Stirling's series is not exact enough
_SMALL = np.array(
    [0.0, *(math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi) for n in range(1, 16))]
)


def _stirling(n: Array) -> Array:
    """What Stirling's formula leaves out of ln n!; the series is good to 1e-16 from 16 on."""
    large = np.maximum(n, 16.0)
    inverse = 1 / (large * large)
    terms = 1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))
    return np.where(n < 16, _SMALL[np.minimum(n, 15).astype(np.int64)], terms / large)


def half_binomial(n: Ints, k: Ints) -> Array:
    """Pr[Bin(n, ½) = k] to a relative 1e-12, for values above e^−FAR; by the deviance, as Loader (2000) does it.

    Example:
        >>> [float(round(b, 6)) for b in half_binomial(np.array([4, 4, 4]), np.array([0, 2, 5]))]
        [0.0625, 0.375, 0.0]
    """
    size = np.maximum(n, 1).astype(np.float64)
    inside = (k >= 0) & (k <= n)
    edge = (k <= 0) | (k >= n)
    middle = np.where(edge, size / 2, k.astype(np.float64))
    other = size - middle
    u = (middle - other) / size
    square = u * u
    series = np.zeros_like(u)
    for i in range(9, 0, -1):
        series = square * (series + 1 / (i * (2 * i - 1)))
    far = np.abs(u) > 0.1
    if far.any():
        v = np.where(far, u, 0.0)
        series = np.where(far, (1 + v) * np.log1p(v) + (1 - v) * np.log1p(-v), series)
    inner = _stirling(size) - _stirling(middle) - _stirling(other) - 0.5 * size * series
    found = np.exp(inner) * np.sqrt(size / (2 * math.pi * middle * other))
    ends = np.exp(-np.where(n > 0, size, 0.0) * math.log(2))
    return np.where(inside, np.where(edge, ends, found), 0.0)
