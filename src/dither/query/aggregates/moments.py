"""Variances, covariances and correlations from noisy sums, with intervals that invert tests of their noise.

For a true mean m and a true variance v the sum of (x − m)² − v over all rows is zero. It is linear in the sums that
were measured, so what is left of it in noisy sums is their noise alone, of known spread: the values of v for which it
isn't too large are an interval that covers (as Fieller's set does for a mean). The mean isn't known either; it has an
interval of its own, to which a tenth of the failure goes, and v may be anything that fits some mean in it. As v errs
with the square of the mean's error, that costs little. Covariances are the same with (x − m)(y − k). Correlations test
a sum that is linear as well, given the ratio of the two spreads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dither.errors import InvalidParameter, Refused
from dither.query.aggregates.base import (
    DEFAULT_CONFIDENCE,
    PER_GROUP,
    PER_ROW,
    WEIGHT,
    Building,
    Constant,
    Definition,
    Estimate,
    Mechanisms,
    Noisy,
    PerRow,
    Prediction,
    Recipe,
    Unknown,
    Written,
    bounded_numbers,
)
from dither.query.aggregates.mean import Centred, OverCount, centred, times
from dither.query.aggregates.spread import (
    Box,
    Floats,
    Noise,
    half_width,
    hull,
    hull_of_correlations,
    hull_of_differences,
    hull_of_mean_squares,
    hull_of_products,
    inverted,
    largest_size,
    multiplier,
    ratios_of_spreads,
    reach_in_squares,
    standard_deviation,
)
from dither.query.kinds import Expression
from dither.query.measure.clamped_grids import WholeGrid, bounds_of, centred_grid
from dither.query.measure.measures import LARGEST_PART, Cap
from dither.query.plan.plan import Aggregate, Argument, Function

Cells: TypeAlias = Mapping[int, Floats]

# Variances below this share of the largest possible one count as none in a correlation.
SMALLEST_SHARE = 1e-12
# The part of the failure that the intervals of the means get.
FOR_MEANS = Fraction(1, 10)
# In a correlation, the part of those of the covariance and the variances, and how often its noise is bounded anew.
FOR_SPREADS = Fraction(1, 5)
PASSES = 3
# Values of this size, and one over it, are computed with as they are.
ORDINARY = Fraction(2) ** 64
SAMPLES = (Function.VAR_SAMP, Function.STDDEV_SAMP, Function.COVAR_SAMP)
ROOTS = (Function.STDDEV_POP, Function.STDDEV_SAMP)
COVARIANCES = (Function.COVAR_POP, Function.COVAR_SAMP)
PAIRS = (*COVARIANCES, Function.CORR)
# Where means lie between their bounds when ways to measure a moment are compared, and how much of what is possible for
# them a variance or covariance is; and correlations.
REFERENCE_MEANS = (0.0, 0.25, 0.5, 0.75, 1.0)
REFERENCE_SHARES_OF_MOST = (0.0, 1 / 3, 1.0)
REFERENCE_CORRELATIONS = (0.0, 0.5, 0.9)


def references(function: Function) -> list[tuple[float, float, float]]:
    """Means of both arguments and the moment for which errors are compared, of values whose bounds are 0 and 1."""
    if function is Function.CORR:
        means: Sequence[tuple[float, float]] = [(0.5, 0.5), (0.25, 0.25), (0.25, 0.75)]
        return [(m, k, r) for m, k in means for r in REFERENCE_CORRELATIONS]
    shares = REFERENCE_SHARES_OF_MOST
    if function not in COVARIANCES:
        return [(m, m, share * m * (1 - m)) for m in REFERENCE_MEANS for share in shares]
    several = itertools.product(REFERENCE_MEANS[::2], repeat=2)
    return [(m, k, share * min(m * (1 - k), k * (1 - m))) for m, k in several for share in shares]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A sum of products of two centred values: the mean product is area · cell / count around both centres."""

    cell: int
    area: Fraction
    centres: tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsRecipe(OverCount):
    """Variances, covariances and correlations: centred sums and sums of products over a count.

    ``half_x`` and ``half_y`` are half the widths of the bounds: no variance is larger than their squares.
    """

    function: Function
    count: int
    x: Centred
    y: Centred | None
    xx: Product | None
    yy: Product | None
    xy: Product | None
    half_x: Fraction
    half_y: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """Everything it is read off, each once."""
        parts = (self.x, self.y, self.xx, self.yy, self.xy)
        return tuple(dict.fromkeys((self.count, *(part.cell for part in parts if part is not None))))

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The aggregate in each group, and an interval that covers the exact one with this probability."""
        recipe, unit = _rescaled(self)
        floats, noise = _floats(recipe, noisy), noisy.noise
        value = _value(recipe, floats, noise)
        lowest, highest = _limits(recipe)
        low, high = _interval(recipe, floats, noise, confidence)
        low, high = np.clip(low, lowest, highest), np.clip(high, lowest, highest)
        found = value, np.minimum(low, value), np.maximum(high, value)
        if self.function in ROOTS:
            found, unit = (np.sqrt(found[0]), np.sqrt(found[1]), np.sqrt(found[2])), math.sqrt(unit)
        return Estimate.of(*(each * unit for each in found))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """The statistic of the noisy sums."""
        recipe, unit = _rescaled(self)
        found = _value(recipe, _floats(recipe, noisy), noisy.noise)
        return pa.array(np.sqrt(found) * math.sqrt(unit) if self.function in ROOTS else found * unit)

    def error(self, by: Mechanisms, confidence: Fraction) -> Prediction:
        """To first order, at its largest over all data within the bounds."""
        if self.function is Function.CORR:
            return Unknown("depends on the data")
        noise = by.noise
        # d(xy/n − (x/n)(y/n)) = dxy/n − ȳ·dx/n − x̄·dy/n + (2x̄ȳ − xy)·dn/n, with |x̄| ≤ half_x and so on
        hx, hy = float(self.half_x), float(self.half_y)
        product = self.xy or self.xx
        assert product is not None
        parts = [float(product.area) * standard_deviation(noise[product.cell])]
        if self.y is None:
            parts.append(2 * hx * float(self.x.step) * standard_deviation(noise[self.x.cell]))
        else:
            parts.append(hy * float(self.x.step) * standard_deviation(noise[self.x.cell]))
            parts.append(hx * float(self.y.step) * standard_deviation(noise[self.y.cell]))
        parts.append(hx * hy * standard_deviation(noise[self.count]))
        half = multiplier(noise[self.count], confidence) * math.hypot(*parts)
        return PerRow(over_rows=half, root=self.function in ROOTS, about=True)

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error times the rows, to first order, for some means and moments; in units of the bounds' widths."""
        found = []
        for m, k, value in references(self.function):
            weights: dict[int, float] = {self.count: 0.0}
            if self.function is Function.CORR:
                _add(weights, self._form(self.xy, self.x, self.y, (m, k), self.count), 1.0)
                _add(weights, self._form(self.xx, self.x, self.x, (m, m), self.count), -value / 2)
                _add(weights, self._form(self.yy, self.y, self.y, (k, k), self.count), -value / 2)
            else:
                _add(weights, self._form(self.xy or self.xx, self.x, self.y or self.x, (m, k), self.count), 1.0)
                weights[self.count] -= value
            off = math.hypot(*(weight * standard_deviation(by.noise[cell]) for cell, weight in weights.items()))
            found.append(multiplier(by.noise[self.count], DEFAULT_CONFIDENCE) * off)
        return tuple(found)

    def _form(
        self, product: Product | None, x: Centred | None, y: Centred | None, means: tuple[float, float], count: int
    ) -> list[tuple[int, float]]:
        """Σ(x − m)(y − k) as a form of cells, of values whose bounds are 0 and 1."""
        assert product is not None
        assert x is not None
        assert y is not None
        widths = [float(2 * (self.half_x if part is self.x else self.half_y)) for part in (x, y)]
        # from the centre of the product's grid, in units of the widths
        off = [
            mean - 0.5 - float(centre - part.centre) / width
            for mean, centre, part, width in zip(means, product.centres, (x, y), widths, strict=True)
        ]
        shifts = [
            float(part.centre - centre) / width
            for centre, part, width in zip(product.centres, (x, y), widths, strict=True)
        ]
        return [
            (product.cell, float(product.area) / (widths[0] * widths[1])),
            (x.cell, -off[1] * float(x.step) / widths[0]),
            (y.cell, -off[0] * float(y.step) / widths[1]),
            (count, off[0] * off[1] - off[1] * shifts[0] - off[0] * shifts[1]),
        ]


def _add(weights: dict[int, float], form: Sequence[tuple[int, float]], factor: float) -> None:
    for cell, weight in form:
        weights[cell] = weights.get(cell, 0.0) + factor * weight


def _floats(recipe: MomentsRecipe, noisy: Noisy) -> Cells:
    return {cell: noisy.cells[cell].astype(np.float64) for cell in recipe.cells}


def _rescaled(recipe: MomentsRecipe) -> tuple[MomentsRecipe, float]:
    """The same aggregate of values in other units, and what its result is to be multiplied by.

    Squares of squares of values are computed with, which doubles don't hold for the largest bounds there may be. The
    units are powers of two, so that no digit changes.
    """
    x, y = _unit(recipe.half_x), _unit(recipe.half_y)
    if x == y == 1:
        return recipe, 1.0
    squares = (Function.VAR_POP, Function.VAR_SAMP, *ROOTS)
    scaled = replace(
        recipe,
        x=replace(recipe.x, step=recipe.x.step / x),
        y=None if recipe.y is None else replace(recipe.y, step=recipe.y.step / y),
        xx=_in_units(recipe.xx, x, x),
        yy=_in_units(recipe.yy, y, y),
        xy=_in_units(recipe.xy, x, y),
        half_x=recipe.half_x / x,
        half_y=recipe.half_y / y,
    )
    return scaled, 1.0 if recipe.function is Function.CORR else float(x * x if recipe.function in squares else x * y)


def _unit(half: Fraction) -> Fraction:
    """A power of two near half the width of the bounds; 1 for widths that do no harm."""
    if half == 0 or 1 / ORDINARY <= half <= ORDINARY:
        return Fraction(1)
    return Fraction(2) ** (half.numerator.bit_length() - half.denominator.bit_length())


def _in_units(product: Product | None, first: Fraction, second: Fraction) -> Product | None:
    if product is None:
        return None
    centres = product.centres[0] / first, product.centres[1] / second
    return replace(product, area=product.area / (first * second), centres=centres)


def _value(recipe: MomentsRecipe, floats: Cells, noise: Sequence[Noise]) -> Floats:
    """The statistic of the noisy sums, and the middle where the count isn't clear of its noise."""
    lowest, highest = _limits(recipe)
    clear = floats[recipe.count] > half_width(noise[recipe.count], DEFAULT_CONFIDENCE)
    middle = 0.0 if lowest < 0 else (lowest + highest) / 2
    return np.where(clear, np.clip(_statistic(recipe)(floats), lowest, highest), middle)


def _limits(recipe: MomentsRecipe) -> tuple[float, float]:
    """What the bounds allow: a variance is at most the square of half their width, twice that for samples of two."""
    if recipe.function is Function.CORR:
        return -1.0, 1.0
    largest = float(recipe.half_x * recipe.half_y) * (2 if recipe.function in SAMPLES else 1)
    return (-largest if recipe.function in COVARIANCES else 0.0), largest


# ---------------------------------------------------------------------------------------------- intervals


def _interval(recipe: MomentsRecipe, floats: Cells, noise: Sequence[Noise], confidence: Fraction) -> Box:
    """The interval before it is cut to what is possible; the variance where the aggregate is its root."""
    failure = 1 - confidence
    parts = (recipe.x, recipe.y or recipe.x)
    several = 1 if parts[0].cell == parts[1].cell else 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = [
            _mean_ends(recipe, part, half, floats, noise, 1 - FOR_MEANS * failure / several)
            for part, half in zip(parts, (recipe.half_x, recipe.half_y), strict=True)
        ]

        def pair(first: int, second: int, product: Product | None) -> _Pair:
            assert product is not None
            return _pair((parts[first], parts[second]), (means[first], means[second]), product, floats, recipe.count)

        if recipe.function is not Function.CORR:
            wanted = pair(0, several - 1, recipe.xy or recipe.xx)
            return _inverted(recipe, wanted, floats, noise, 1 - (1 - FOR_MEANS) * failure)
        pairs = pair(0, several - 1, recipe.xy), pair(0, 0, recipe.xx), pair(several - 1, several - 1, recipe.yy)
        level = 1 - FOR_SPREADS * failure / 3
        spreads = [_inverted(recipe, one, floats, noise, level) for one in pairs]
        return _correlation(recipe, pairs, spreads, floats, noise, 1 - (1 - FOR_MEANS - FOR_SPREADS) * failure)


def _mean_ends(
    recipe: MomentsRecipe, part: Centred, half: Fraction, floats: Cells, noise: Sequence[Noise], confidence: Fraction
) -> Box:
    """Where the mean lies, from its grid's zero: Fieller's set, with spreads added in squares; else all the bounds."""
    a, b = (reach_in_squares(noise[cell], confidence) for cell in (part.cell, recipe.count))
    total, n = floats[part.cell], floats[recipe.count]
    square = n**2 - b**2
    root = np.sqrt(np.maximum((a * n) ** 2 + (b * total) ** 2 - (a * b) ** 2, 0.0))
    step, most = float(part.step), float(half + part.step)
    known = n > b
    low = np.where(known, step * (total * n - root) / square, -most)
    high = np.where(known, step * (total * n + root) / square, most)
    # the grid's zero may be a step away from the middle of the bounds
    return np.clip(low, -most, most), np.clip(high, -most, most)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The sum of (x − m)(y − k) for means in their intervals, around the centres of the product's grid.

    With sums A of products, B and C of values and the count n it is G = A − k·B − m·C + m·k·n. ``of_count`` is what the
    count is multiplied by in it, with what B and C have of the count by the grids' different centres.
    """

    parts: tuple[Centred, Centred]
    product: Product
    means: tuple[Box, Box]
    total: Box
    of_count: Box


def _pair(parts: tuple[Centred, Centred], means: tuple[Box, Box], product: Product, floats: Cells, count: int) -> _Pair:
    """G and the count's coefficient are linear in m and in k, so the corners of the box of means have their extremes.

    For a variance m = k, and both are parabolas, with bottoms at the noisy mean and at the shift of the centre.
    """
    n = floats[count]
    shifts = [float(part.centre - centre) for part, centre in zip(parts, product.centres, strict=True)]
    first, last = (float(part.step) * floats[part.cell] + shift * n for part, shift in zip(parts, shifts, strict=True))
    boxes = tuple((low + shift, high + shift) for (low, high), shift in zip(means, shifts, strict=True))
    products = float(product.area) * floats[product.cell]

    def total(m: Floats, k: Floats) -> Floats:
        return products - k * first - m * last + m * k * n

    def of_count(m: Floats, k: Floats) -> Floats:
        return m * k - k * shifts[0] - m * shifts[1]

    if parts[0].cell == parts[1].cell:
        low, high = boxes[0]
        bottom = np.clip(np.where(n > 0, first / n, 0.0), low, high)
        totals = [total(m, m) for m in (low, high, bottom)]
        counts = [of_count(m, m) for m in (low, high, np.clip(np.full_like(n, shifts[0]), low, high))]
    else:
        corners = list(itertools.product(*boxes))
        totals, counts = [total(m, k) for m, k in corners], [of_count(m, k) for m, k in corners]
    return _Pair(parts, product, (boxes[0], boxes[1]), hull(totals), hull(counts))


def _inverted(recipe: MomentsRecipe, pair: _Pair, floats: Cells, noise: Sequence[Noise], confidence: Fraction) -> Box:
    """All v for which G(m, k) − v·N is no larger than its noise, for some means m, k in their intervals.

    N is the count, or one less for samples. For exact sums and the true m, k, v the difference is zero, so for noisy
    ones |G − v·N| ≤ q with the stated probability, q² = P + (κ − v)²·h² from the spreads of all cells, h that of the
    count. For fixed m, k the solutions are an interval (N > h), whose ends grow with G, and which widens with P and
    |κ − v|. So the extremes of G, κ and P over the box of means bound the union over it.
    """

    def spread(cell: int) -> float:
        return reach_in_squares(noise[cell], confidence)

    (m, k), (x, y) = pair.means, pair.parts
    if x.cell == y.cell:
        sums = (2 * float(x.step) * spread(x.cell) * largest_size(m)) ** 2
    else:
        sums = (float(x.step) * spread(x.cell) * largest_size(k)) ** 2 + (
            float(y.step) * spread(y.cell) * largest_size(m)
        ) ** 2
    noises = (float(pair.product.area) * spread(pair.product.cell)) ** 2 + sums
    h = spread(recipe.count)
    size = floats[recipe.count] - (1 if recipe.function in SAMPLES else 0)
    return inverted(pair.total, pair.of_count, noises, size, h)


def _correlation(
    recipe: MomentsRecipe,
    pairs: tuple[_Pair, _Pair, _Pair],
    spreads: Sequence[Box],
    floats: Cells,
    noise: Sequence[Noise],
    confidence: Fraction,
) -> Box:
    """All r for which Gxy − r·(s·Gxx + Gyy/s)/2 is no larger than its noise, s = √(var y / var x) and means as known.

    For exact sums and true parameters that is zero, as (s·var x + var y/s)/2 = √(var x · var y); it is flat in s there,
    so that an error of s costs little. The noise is bounded by the largest coefficient of each cell over what s, the
    means and r can be: at first what the intervals of covariance and variances leave of r, then what was found.
    """
    across, first, second = pairs
    count = floats[recipe.count]
    known, s, inverse = ratios_of_spreads(*spreads[1:])
    below = hull_of_mean_squares(first.total, second.total, s)
    r = hull_of_correlations(*spreads)
    for _ in range(PASSES):
        rs, over = hull_of_products(r, s), hull_of_products(r, inverse)
        halves = hull_of_products(rs, first.of_count), hull_of_products(over, second.of_count)
        moved = hull_of_differences(
            across.of_count, ((halves[0][0] + halves[1][0]) / 2, (halves[0][1] + halves[1][1]) / 2)
        )
        of_x = hull_of_differences(hull_of_products(rs, first.means[0]), across.means[1])
        of_y = hull_of_differences(hull_of_products(over, second.means[0]), across.means[0])
        weights: dict[int, Floats] = {}
        for cell, weight in (
            (across.product.cell, np.full_like(count, float(across.product.area))),
            (first.product.cell, float(first.product.area) / 2 * largest_size(rs)),
            (second.product.cell, float(second.product.area) / 2 * largest_size(over)),
            (recipe.x.cell, float(recipe.x.step) * largest_size(of_x)),
            ((recipe.y or recipe.x).cell, float((recipe.y or recipe.x).step) * largest_size(of_y)),
            (recipe.count, largest_size(moved)),
        ):
            weights[cell] = weights.get(cell, 0.0) + weight
        q = np.sqrt(sum((weight * reach_in_squares(noise[cell], confidence)) ** 2 for cell, weight in weights.items()))
        top, bottom = across.total[1] + q, across.total[0] - q
        high = top / np.where(top > 0, below[0], below[1])
        low = bottom / np.where(bottom < 0, below[0], below[1])
        fits = known & ~np.isnan(low) & ~np.isnan(high)
        r = np.where(fits, np.clip(low, r[0], r[1]), r[0]), np.where(fits, np.clip(high, r[0], r[1]), r[1])
    return r


# ---------------------------------------------------------------------------------------------- values


def _statistic(recipe: MomentsRecipe) -> Callable[[Cells], Floats]:
    """The variance (of which the root is taken last), covariance or correlation as a function of the sums."""
    x, y = recipe.x, recipe.y or recipe.x

    def covariance(cells: Cells, left: Centred, right: Centred, product: Product) -> Floats:
        n = np.maximum(cells[recipe.count], 1.0)
        mean = float(product.area) * cells[product.cell] / n
        return mean - _off(cells, left, product.centres[0], n) * _off(cells, right, product.centres[1], n)

    def plain(cells: Cells) -> Floats:
        product = recipe.xy or recipe.xx
        assert product is not None
        found = covariance(cells, x, y, product)
        if recipe.function in SAMPLES:
            n = np.maximum(cells[recipe.count], 2.0)
            found = found * (n / (n - 1))
        return found

    def correlation(cells: Cells) -> Floats:
        assert recipe.xx is not None
        assert recipe.yy is not None
        assert recipe.xy is not None
        across = covariance(cells, x, y, recipe.xy)
        variances = [covariance(cells, x, x, recipe.xx), covariance(cells, y, y, recipe.yy)]
        least = [SMALLEST_SHARE * float(half**2) for half in (recipe.half_x, recipe.half_y)]
        scale = np.sqrt(np.maximum(variances[0], least[0])) * np.sqrt(np.maximum(variances[1], least[1]))
        # a variance lost in noise says nothing
        nothing = (variances[0] <= least[0]) | (variances[1] <= least[1])
        return np.where(nothing, 0.0, across / scale)

    return correlation if recipe.function is Function.CORR else plain


def _off(cells: Cells, part: Centred, centre: Fraction, n: Floats) -> Floats:
    """The mean, from the centre of a product's grid."""
    return float(part.centre - centre) + float(part.step) * cells[part.cell] / n


# ---------------------------------------------------------------------------------------------- binding and lowering


def _bind(function: Function) -> Callable[[Written], Aggregate]:
    count = 2 if function in PAIRS else 1
    return lambda call: Aggregate(function=function, arguments=bounded_numbers(call, count))


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    """Sums of values and products around the middle of the bounds, over rows where no argument is missing."""
    function, arguments = aggregate.function, aggregate.arguments
    two = function in PAIRS
    if len(arguments) != (2 if two else 1):
        raise InvalidParameter(f"{function.value} takes {'two arguments' if two else 'one argument'}")
    widths = [bounds_of(argument).width for argument in arguments]
    if not all(widths):
        if function is Function.CORR:
            raise Refused(
                "the bounds of an argument of CORR leave it one value, and a constant has no correlation",
                code="constant_argument",
                hint="Leave the column out, or have the owner declare wider bounds.",
            )
        return Constant(Fraction(0))
    x, y = arguments[0], arguments[-1]
    both = tuple(argument.expression for argument in arguments)
    squares = not two or function is Function.CORR
    return MomentsRecipe(
        function=function,
        count=building.count(*both),
        x=centred(building, x, _others(both, x)),
        y=centred(building, y, _others(both, y)) if two else None,
        xx=_product(building, x, x, both) if squares else None,
        yy=_product(building, y, y, both) if two and squares else None,
        xy=_product(building, x, y, both) if two else None,
        half_x=widths[0] / 2,
        half_y=widths[-1] / 2,
    )


def _product(building: Building, x: Argument, y: Argument, present: tuple[Expression, ...]) -> Product:
    """Each factor is so small that the product of ``rows`` rows is no larger than any other part."""
    most = math.isqrt(LARGEST_PART // building.rows)
    left, right = (centred_grid(argument, bounds_of(argument), most) for argument in (x, y))
    factors = (left.of(x.expression), right.of(y.expression))
    missing = tuple(e for e in present if e not in (x.expression, y.expression))
    cell = building.total(factors, missing, times(building.rows, _corners(left, right, same=x == y)), Cap.MEAN)
    return Product(
        cell=cell,
        area=left.step * right.step,
        centres=(left.step * left.offset, right.step * right.offset),
    )


def _corners(left: WholeGrid, right: WholeGrid, *, same: bool) -> tuple[int, int]:
    """The smallest and the largest product."""
    products = [a * b for a in left.centred for b in right.centred]
    return (0 if same else min(products)), max(products)


def _others(expressions: tuple[Expression, ...], argument: Argument) -> tuple[Expression, ...]:
    return tuple(e for e in expressions if e != argument.expression)


def _definition(function: Function, example: str, *spellings: str) -> Definition:
    return Definition(
        name=function.value,
        spellings=(function.value, *spellings),
        bind=_bind(function),
        functions=(function,),
        lower=_lower,
        arguments=("number",) * (2 if function in PAIRS else 1),
        examples=(f"{function.name}({example})",),
        named=(PER_ROW, PER_GROUP, WEIGHT),
    )


DEFINITIONS = (
    _definition(Function.VAR_POP, "amount"),
    _definition(Function.VAR_SAMP, "rating", "variance"),
    _definition(Function.STDDEV_POP, "amount"),
    _definition(Function.STDDEV_SAMP, "rating", "stddev"),
    _definition(Function.COVAR_POP, "amount, rating"),
    _definition(Function.COVAR_SAMP, "amount, rating"),
    _definition(Function.CORR, "amount, rating"),
)
