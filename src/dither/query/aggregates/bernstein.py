"""Counts, sums, means and moments read off sums of Bernstein polynomials, which share one sensitivity.

For x in [a, b] and t = (x − a)/(b − a) the polynomials (1 − t)², 2t(1 − t), t² are nowhere negative and add up to 1; so
do (1 − t) and t, and so do all products of those of two arguments. A row adds their values to as many cells: whatever
it holds, it moves all of them together as far as it could move one of them alone, in ℓ1 and, since Σb² ≤ (Σb)², in ℓ2.
So each cell gets the whole budget, and every polynomial of the degree is a linear form of cells: Σ(t − m)² − v, say,
has the coefficients m² − v, m² − m − v, (1 − m)² − v. The proof with whole numbers, units of several rows and
replacement is in ``measure/measures.py``.

Intervals invert tests as those of ``moments.py`` do: for the true mean m and variance v that form is zero for exact
cells, so of noisy ones it is the noise alone, each cell's times its coefficient. Cells of one basis have noise of one
scale, so what it may be, in squares, is P + (κ − v)²·h² with κ the mean coefficient, P the rest, h that of all cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dither.query.aggregates.affine import Affine, ratio_ends
from dither.query.aggregates.base import (
    DEFAULT_CONFIDENCE,
    LARGEST_WHOLE,
    Bools,
    Estimate,
    Fixed,
    Linear,
    Mechanisms,
    Noisy,
    PerRow,
    Prediction,
    Recipe,
    Unknown,
)
from dither.query.aggregates.mean import REFERENCE_SHARES
from dither.query.aggregates.moments import (
    COVARIANCES,
    FOR_MEANS,
    FOR_SPREADS,
    PASSES,
    ROOTS,
    SAMPLES,
    SMALLEST_SHARE,
    references,
)
from dither.query.aggregates.spread import (
    Box,
    Floats,
    Noise,
    hull,
    hull_of_correlations,
    hull_of_differences,
    hull_of_mean_squares,
    hull_of_products,
    inverted,
    multiplier,
    quantile_of_sum,
    ratios_of_spreads,
    reach_in_squares,
    spread_of_sum,
    standard_deviation,
)
from dither.query.plan.plan import Function

# What is read off cells in doubles is off by less than this share of itself.
ROUNDING = 1e-12
Forms: TypeAlias = list[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined(Recipe):
    """COUNT and SUM as a linear form of cells that have noise of one law; ``whole`` answers are integers."""

    weights: tuple[tuple[int, Fraction], ...]
    whole: bool

    @property
    def cells(self) -> tuple[int, ...]:
        """Those with a weight."""
        return tuple(cell for cell, _ in self.weights)

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
        """The form itself."""
        return self.weights, Fraction(0)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The form plus and minus a quantile of its noise; of whole numbers, those in between."""
        middle, half = self._middle(noisy), self._half(noisy.noise, confidence)
        if not self.whole:
            return Estimate.of(middle, middle - half, middle + half)
        room = np.abs(middle) * ROUNDING
        value = np.rint(middle)
        low, high = np.ceil(middle - half - room), np.floor(middle + half + room)
        found = (value, np.minimum(low, value), np.maximum(high, value))
        return Estimate.of(*(np.clip(each, -LARGEST_WHOLE, LARGEST_WHOLE).astype(np.int64) for each in found))

    def error(self, by: Mechanisms, confidence: Fraction) -> Fixed:
        """That of the noise, whatever the data."""
        return Fixed(self._half(by.noise, confidence))

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error."""
        weights = [(float(weight), by.noise[cell]) for cell, weight in self.weights]
        return (spread_of_sum(weights, DEFAULT_CONFIDENCE),)

    def mechanism(self, by: Mechanisms) -> str:
        """The noise, in units of the answer where it is that of one cell."""
        if len(self.weights) > 1:
            return Recipe.mechanism(self, by)
        ((cell, weight),) = self.weights
        return Linear(cell=cell, step=abs(weight), whole=self.whole).mechanism(by)

    def _middle(self, noisy: Noisy) -> Floats:
        middle = np.zeros(noisy.size)
        for cell, weight in self.weights:
            middle += float(weight) * noisy.cells[cell]
        return middle

    def _half(self, noise: Sequence[Noise], confidence: Fraction) -> float:
        return quantile_of_sum([(float(weight), noise[cell]) for cell, weight in self.weights], confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class BernsteinMean(Recipe):
    """AVG from the cells of one argument, ``parts`` upwards: first + width · t, t = Σ (j / degree) · cell / Σ cell.

    A row adds ``unit`` to all cells together.
    """

    parts: tuple[int, ...]
    unit: Fraction
    first: Fraction
    width: Fraction
    low: Fraction
    high: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """All of the argument's."""
        return self.parts

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The share t, with the set of all t for which Σ (j / degree − t)·cell is no larger than its noise."""
        above, below = _mean_forms(self.parts)
        low, high = ratio_ends(above, below, noisy, confidence)
        value, bottom, top = (
            self._on_scale(t) for t in (self._share(noisy), np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0))
        )
        return Estimate.of(value, np.minimum(bottom, value), np.maximum(top, value))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """The mean of the noisy sums."""
        return pa.array(self._on_scale(self._share(noisy)))

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; of no rows there is no mean."""
        found = self.estimate(noisy, confidence)
        few = _total(self.parts, noisy) <= _reach_of_all(self.parts, noisy.noise, confidence) + float(self.unit)
        return found.low.to_numpy(), found.high.to_numpy(), few

    def error(self, by: Mechanisms, confidence: Fraction) -> PerRow:
        """Known up to the number of rows: the noise weighs most where the mean is at an end of the bounds."""
        return PerRow(over_rows=self._a_row * quantile_of_sum(self._weights(by.noise, 0.0), confidence))

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error times the rows, for some means."""
        shares = ((self._weights(by.noise, t), DEFAULT_CONFIDENCE) for t in REFERENCE_SHARES)
        return tuple(self._a_row * spread_of_sum(*each) for each in shares)

    @property
    def _a_row(self) -> float:
        return float(self.width / self.unit)

    def _weights(self, noise: Sequence[Noise], t: float) -> list[tuple[float, Noise]]:
        degree = len(self.parts) - 1
        return [(j / degree - t, noise[cell]) for j, cell in enumerate(self.parts)]

    def _share(self, noisy: Noisy) -> Floats:
        """The middle where the cells together aren't clear of their noise."""
        total, degree = _total(self.parts, noisy), len(self.parts) - 1
        above = sum(j / degree * noisy.cells[cell] for j, cell in enumerate(self.parts))
        clear = total > _reach_of_all(self.parts, noisy.noise, DEFAULT_CONFIDENCE)
        return np.where(clear, np.clip(above / np.maximum(total, 1.0), 0.0, 1.0), 0.5)

    def _on_scale(self, t: Floats) -> Floats:
        return np.clip(float(self.first) + float(self.width) * t, float(self.low), float(self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class BernsteinMoments(Recipe):
    """Variances, covariances and correlations, from cells whose polynomials add up to one.

    Variances: three cells, those of degree 2. Covariances: four, x lower and y lower, x lower and y upper, and so on.
    Correlations: nine, those of degree 2 of x, in each the three of y. ``width_x`` and ``width_y`` are what t = 1
    stands for; a row adds ``unit`` to all cells together.
    """

    function: Function
    parts: tuple[int, ...]
    unit: Fraction
    width_x: Fraction
    width_y: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """All of the basis."""
        return self.parts

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The aggregate in each group, and an interval that covers the exact one with this probability."""
        value = self._value(noisy)
        lowest, highest = self._limits
        low, high = (np.clip(end, lowest, highest) for end in self._interval(noisy, confidence))
        found = value, np.minimum(low, value), np.maximum(high, value)
        return Estimate.of(*(self._on_scale(each) for each in found))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """The statistic of the noisy sums."""
        return pa.array(self._on_scale(self._value(noisy)))

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; of no rows, and for samples of one, there is no variance."""
        found = self.estimate(noisy, confidence)
        few = _total(self.parts, noisy) <= _reach_of_all(self.parts, noisy.noise, confidence) + float(self.unit)
        return found.low.to_numpy(), found.high.to_numpy(), few

    def error(self, by: Mechanisms, confidence: Fraction) -> Prediction:
        """To first order, at its largest over all data within the bounds: there the mean is at an end of them.

        A coefficient is 1 there, and the others are 0; of nine cells, three and two of x or y have ½.
        """
        if self.function is Function.CORR:
            return Unknown("depends on the data")
        off = max(multiplier(by.noise[cell], confidence) * standard_deviation(by.noise[cell]) for cell in self.parts)
        most = 1.25 if len(self.parts) == 9 else 1.0
        half = most * float(self.width_x * self.width_y / self.unit) * off
        return PerRow(over_rows=half, root=self.function in ROOTS, about=True)

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error times the rows, to first order, for some means and variances; in units of the widths."""
        noise = by.noise[self.parts[0]]
        off = multiplier(noise, DEFAULT_CONFIDENCE) * standard_deviation(noise) / float(self.unit)
        return tuple(off * norm for norm in _reference_norms(self.function, len(self.parts)))

    @property
    def _limits(self) -> tuple[float, float]:
        if self.function is Function.CORR:
            return -1.0, 1.0
        largest = 0.25 * (2 if self.function in SAMPLES else 1)
        return (-largest if self.function in COVARIANCES else 0.0), largest

    def _on_scale(self, found: Floats) -> Floats:
        if self.function is Function.CORR:
            return found
        if self.function in ROOTS:
            return np.sqrt(found) * float(self.width_x)
        return found * float(self.width_x) * float(self.width_y)

    def _value(self, noisy: Noisy) -> Floats:
        """The statistic of the noisy sums, and the middle where all cells together aren't clear of their noise."""
        lowest, highest = self._limits
        total = _total(self.parts, noisy)
        clear = total > _reach_of_all(self.parts, noisy.noise, DEFAULT_CONFIDENCE)
        middle = 0.0 if lowest < 0 else (lowest + highest) / 2
        return np.where(clear, np.clip(self._statistic(noisy, np.maximum(total, 1.0)), lowest, highest), middle)

    def _statistic(self, noisy: Noisy, total: Floats) -> Floats:
        sums = _Sums(self.parts, noisy)
        x, y = sums.first[0] / total, sums.first[-1] / total
        if self.function is Function.CORR:
            variances = [np.maximum(sums.second[i] / total - mean * mean, 0.0) for i, mean in ((0, x), (1, y))]
            nothing = (variances[0] <= SMALLEST_SHARE) | (variances[1] <= SMALLEST_SHARE)
            scale = np.sqrt(np.where(nothing, 1.0, variances[0] * variances[1]))
            return np.where(nothing, 0.0, (sums.across / total - x * y) / scale)
        found = (sums.second[0] if len(self.parts) == 3 else sums.across) / total - x * y
        if self.function in SAMPLES:
            unit = float(self.unit)
            found = found * (total / np.maximum(total - unit, unit))
        return found

    # ------------------------------------------------------------------------------------------ intervals

    def _interval(self, noisy: Noisy, confidence: Fraction) -> Box:
        """The interval before it is cut to what is possible, of values whose bounds are 0 and 1."""
        failure, sums = 1 - confidence, _Sums(self.parts, noisy)
        several = len(sums.first)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            means = [
                tuple(
                    np.clip(end, 0.0, 1.0)
                    for end in ratio_ends(form, sums.whole, noisy, 1 - FOR_MEANS * failure / several)
                )
                for form in sums.first_forms
            ]
            boxes: list[Box] = [(low, high) for low, high in means]
            m, k = boxes[0], boxes[-1]
            if self.function is not Function.CORR:
                test = _square_test(sums, 0, m) if several == 1 else _product_test(sums, m, k)
                return self._inverted(test, noisy, 1 - (1 - FOR_MEANS) * failure, sums.total)
            level = 1 - FOR_SPREADS * failure / 3
            tests = _product_test(sums, m, k), _square_test(sums, 0, m), _square_test(sums, 1, k)
            spreads = [self._inverted(test, noisy, level, sums.total) for test in tests]
            return self._correlation(tests, spreads, (m, k), noisy, 1 - (1 - FOR_MEANS - FOR_SPREADS) * failure)

    def _inverted(self, test: _Test, noisy: Noisy, confidence: Fraction, total: Floats) -> Box:
        reach = _reach(self.parts, noisy.noise, confidence)
        size = total - (float(self.unit) if self.function in SAMPLES else 0.0)
        return inverted(test.total, test.mean, reach**2 * test.rest, size, reach * math.sqrt(len(self.parts)))

    def _correlation(
        self, tests: Sequence[_Test], spreads: Sequence[Box], means: tuple[Box, Box], noisy: Noisy, confidence: Fraction
    ) -> Box:
        """All r for which Gxy − r·(s·Gxx + Gyy/s)/2 is no larger than its noise, as in ``moments.py``.

        A cell's coefficient is a(m)·a(k) − (r·s·e(m) + (r/s)·e(k))/2: bounded over what r, s and the means can be.
        """
        across, first, second = tests
        known, s, inverse = ratios_of_spreads(*spreads[1:])
        below = hull_of_mean_squares(first.total, second.total, s)
        reach = _reach(self.parts, noisy.noise, confidence)
        of_x, of_y = ((_boxes_of_firsts(mean), _boxes_of_squares(mean)) for mean in means)
        r = hull_of_correlations(*spreads)
        for _ in range(PASSES):
            rs, over = hull_of_products(r, s), hull_of_products(r, inverse)
            squares = np.zeros(known.shape)
            for i, j in itertools.product(range(3), repeat=2):
                taken = [hull_of_products(one, box) for one, box in ((rs, of_x[1][i]), (over, of_y[1][j]))]
                halves = (taken[0][0] + taken[1][0]) / 2, (taken[0][1] + taken[1][1]) / 2
                low, high = hull_of_differences(hull_of_products(of_x[0][i], of_y[0][j]), halves)
                squares = squares + np.maximum(np.abs(low), np.abs(high)) ** 2
            q = reach * np.sqrt(squares)
            top, bottom = across.total[1] + q, across.total[0] - q
            high = top / np.where(top > 0, below[0], below[1])
            low = bottom / np.where(bottom < 0, below[0], below[1])
            fits = known & ~np.isnan(low) & ~np.isnan(high)
            r = (
                np.where(fits, np.clip(low, r[0], r[1]), r[0]),
                np.where(fits, np.clip(high, r[0], r[1]), r[1]),
            )
        return r


# ---------------------------------------------------------------------------------------------- forms of cells


def _total(parts: Sequence[int], noisy: Noisy) -> Floats:
    total = np.zeros(noisy.size)
    for cell in parts:
        total += noisy.cells[cell]
    return total


def _reach(parts: Sequence[int], noise: Sequence[Noise], confidence: Fraction) -> float:
    """That of one cell, added in squares; cells of a basis have the same."""
    return max(reach_in_squares(noise[cell], confidence) for cell in parts)


def _reach_of_all(parts: Sequence[int], noise: Sequence[Noise], confidence: Fraction) -> float:
    return math.sqrt(len(parts)) * _reach(parts, noise, confidence)


def _form(parts: Sequence[int], weights: Sequence[Fraction]) -> Affine:
    pairs = sorted((cell, weight) for cell, weight in zip(parts, weights, strict=True) if weight)
    return Affine(tuple(pairs), Fraction(0))


def _mean_forms(parts: Sequence[int]) -> tuple[Affine, Affine]:
    """Σ t and Σ 1."""
    degree = len(parts) - 1
    return (
        _form(parts, [Fraction(j, degree) for j in range(degree + 1)]),
        _form(parts, [Fraction(1)] * (degree + 1)),
    )


class _Sums:
    """Σ1, Σx, Σy, Σx², Σy² and Σxy, in units of a row, read off the cells of a basis: of one argument, or of two."""

    def __init__(self, parts: tuple[int, ...], noisy: Noisy) -> None:
        two = len(parts) != 3
        degree = 1 if len(parts) == 4 else 2
        nodes = [Fraction(j, degree) for j in range(degree + 1)]
        places = list(itertools.product(range(degree + 1), repeat=2 if two else 1))
        self.whole = _form(parts, [Fraction(1)] * len(parts))
        self.first_forms = [_form(parts, [nodes[place[i]] for place in places]) for i in range(2 if two else 1)]
        cells = [noisy.cells[cell].astype(np.float64) for cell in parts]

        def summed(weights: Sequence[Fraction]) -> Floats:
            found = np.zeros(noisy.size)
            for cell, weight in zip(cells, weights, strict=True):
                found += float(weight) * cell
            return found

        self.total = summed([Fraction(1)] * len(parts))
        self.first = [summed([nodes[place[i]] for place in places]) for i in range(2 if two else 1)]
        # t² is the last polynomial of degree 2 alone
        tops = [[Fraction(place[i] == 2) for place in places] for i in range(2 if two else 1)]
        self.second = [summed(weights) for weights in tops] if degree == 2 else []
        self.across = summed([nodes[place[0]] * nodes[place[1]] for place in places]) if two else self.total


def _firsts(m: float) -> list[float]:
    """The form of t − m, of degree 2."""
    return [-m, 0.5 - m, 1 - m]


def _squares(m: float) -> list[float]:
    """The form of (t − m)², of degree 2."""
    return [m * m, m * m - m, (1 - m) * (1 - m)]


@lru_cache(maxsize=64)
def _reference_norms(function: Function, cells: int) -> tuple[float, ...]:
    """The lengths of the coefficients that errors are compared by."""
    found = []
    for m, k, v in references(function):
        if cells == 3:
            form = [square - v for square in _squares(m)]
        elif cells == 4:
            form = [(i - m) * (j - k) - v for i, j in itertools.product((0, 1), repeat=2)]
        else:
            x, y = (list(zip(_firsts(mean), _squares(mean), strict=True)) for mean in (m, k))
            both = [(a * b, (c + d) / 2) for (a, c), (b, d) in itertools.product(x, y)]
            alone = function is not Function.CORR
            form = [first - v * (1.0 if alone else second) for first, second in both]
        found.append(math.sqrt(sum(c * c for c in form)))
    return tuple(found)


def _boxes_of_firsts(m: Box) -> list[Box]:
    return [(node - m[1], node - m[0]) for node in (0.0, 0.5, 1.0)]


def _boxes_of_squares(m: Box) -> list[Box]:
    low, high = m
    bottom = np.clip(0.5, low, high)
    return [
        (low * low, high * high),
        hull([low * low - low, high * high - high, bottom * bottom - bottom]),
        ((1 - high) ** 2, (1 - low) ** 2),
    ]


# ---------------------------------------------------------------------------------------------- tests


@dataclass(frozen=True, slots=True)
class _Test:
    """The form of a sum of squares or products around means in their boxes, of cells.

    ``total`` is where its value lies, ``mean`` the mean of its coefficients, ``rest`` the largest sum of squares of
    what is left of them when the mean is taken away.
    """

    total: Box
    mean: Box
    rest: Floats


def _square_test(sums: _Sums, which: int, m: Box) -> _Test:
    """Σ(t − m)²: a parabola in m, as is the mean coefficient m² − m + 1/3; the rest is convex.

    Of nine cells each coefficient stands three times.
    """
    second, first, total = sums.second[which], sums.first[which], sums.total
    times = 1 if len(sums.first) == 1 else 3
    low, high = m
    bottom = np.clip(np.where(total > 0, first / total, 0.0), low, high)
    middle = np.clip(0.5, low, high)
    values = [second - 2 * t * first + t * t * total for t in (low, high, bottom)]
    means = [t * t - t + 1 / 3 for t in (low, high, middle)]
    rests = [times * ((t - 1 / 3) ** 2 + 1 / 9 + (2 / 3 - t) ** 2) for t in (low, high)]
    return _Test(hull(values), hull(means), np.maximum(*rests))


def _product_test(sums: _Sums, m: Box, k: Box) -> _Test:
    """Σ(x − m)(y − k): linear in m and in k, so the corners of the box have its extremes; the rest is convex.

    With p = ½ − m and q = ½ − k the n coefficients of x have the mean p and squares that add up to n·p² + ½.
    """
    count = 3 if sums.second else 2
    corners = list(itertools.product(m, k))
    values = [sums.across - y * sums.first[0] - x * sums.first[1] + x * y * sums.total for x, y in corners]
    around = [(0.5 - x, 0.5 - y) for x, y in corners]
    rests = [0.25 + count / 2 * (p * p + q * q) for p, q in around]
    return _Test(hull(values), hull([p * q for p, q in around]), np.maximum.reduce(rests))
