"""Expressions that are linear in noisy cells, and ratios of two of them: their intervals have a closed form.

A difference of counts has the noise of both in it, whose spread is known and far smaller than the sum of both errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dither.query.aggregates.base import Noisy, Recipe, is_aggregate
from dither.query.aggregates.spread import Floats, quantile_of_sum, reach_in_squares
from dither.query.kinds import Call, Column, Expression, Literal, constant, number

Ends: TypeAlias = tuple[Floats, Floats]

# Coefficients beyond this aren't worth a closed form, and their squares and products with cells must stay doubles.
LARGEST = Fraction(2) ** 200
# A constant so many times a coefficient takes the digits of cells away in doubles: what is left isn't the linear form.
MOST_TIMES = Fraction(2) ** 53


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + Σ weight · cell; ``weights`` by ascending cell, none of them zero."""

    weights: tuple[tuple[int, Fraction], ...]
    constant: Fraction

    @property
    def noise(self) -> tuple[tuple[int, Fraction], ...]:
        """What decides how far off it is: forms that differ in a factor or a constant are off together."""
        return tuple((cell, weight / self.weights[0][1]) for cell, weight in self.weights)

    def times(self, factor: Fraction) -> Affine:
        """A multiple."""
        return combined((self, factor))


def combined(*parts: tuple[Affine, Fraction]) -> Affine:
    """A sum of multiples."""
    weights: dict[int, Fraction] = {}
    total = Fraction(0)
    for form, factor in parts:
        total += form.constant * factor
        for cell, weight in form.weights:
            weights[cell] = weights.get(cell, Fraction(0)) + weight * factor
    return Affine(tuple(sorted((cell, weight) for cell, weight in weights.items() if weight)), total)


def affine(expression: Expression, recipes: Sequence[Recipe]) -> Affine | None:
    """The expression as a linear form in cells; None if it isn't one, or if it isn't one in doubles.

    Every part of it has to be one: what a huge constant took from a part doesn't come back when it is taken away again.
    """
    found = _affine(expression, recipes)
    return found if found is not None and _fits(found) else None


def _fits(form: Affine) -> bool:
    """Whether doubles hold the form, and what is computed from it."""
    sizes = [abs(weight) for _, weight in form.weights]
    if abs(form.constant) > LARGEST or any(not 1 / LARGEST < size < LARGEST for size in sizes):
        return False
    return not sizes or abs(form.constant) <= MOST_TIMES * max(sizes)


def _affine(expression: Expression, recipes: Sequence[Recipe]) -> Affine | None:
    if isinstance(expression, Literal):
        value = number(constant(expression))
        return None if value is None else Affine((), value)
    if isinstance(expression, Column):
        if not is_aggregate(expression.name):
            return None
        linear = recipes[int(expression.name[1:])].affine
        return None if linear is None else Affine(*linear)
    return _affine_call(expression, recipes)


def _affine_call(call: Call, recipes: Sequence[Recipe]) -> Affine | None:
    if call.function not in ("add", "subtract", "negate", "multiply", "divide", "to_double"):
        return None
    forms = [affine(argument, recipes) for argument in call.arguments]
    known = [form for form in forms if form is not None]
    if len(known) < len(forms):
        return None
    first, last, one = known[0], known[-1], Fraction(1)
    if call.function == "to_double":
        return first if call.arguments[0].kind.number else None
    if call.function == "negate":
        return first.times(-one)
    if call.function in ("add", "subtract"):
        return combined((first, one), (last, one if call.function == "add" else -one))
    if call.function == "divide":
        return None if last.weights or not last.constant else first.times(1 / last.constant)
    if first.weights and last.weights:
        return None
    return first.times(last.constant) if first.weights else last.times(first.constant)


def ratio(expression: Expression, recipes: Sequence[Recipe]) -> tuple[Affine, Affine] | None:
    """Numerator and denominator of a quotient of linear forms; None if it isn't one.

    a / NULLIF(b, 0) is a / b: a division by zero is NULL anyway.
    """
    if not isinstance(expression, Call) or expression.function != "divide":
        return None
    above, below = expression.arguments
    if isinstance(below, Call) and below.function == "nullif" and number(constant(below.arguments[1])) == 0:
        below = below.arguments[0]
    forms = affine(above, recipes), affine(below, recipes)
    if forms[0] is None or forms[1] is None or not forms[1].weights:
        return None
    return forms[0], forms[1]


def affine_ends(form: Affine, noisy: Noisy, confidence: Fraction) -> Ends:
    """The interval of a linear form in each group."""
    middle = _middle(form, noisy)
    half = quantile_of_sum([(float(weight), noisy.noise[cell]) for cell, weight in form.weights], confidence)
    return middle - half, middle + half


def _middle(form: Affine, noisy: Noisy) -> Floats:
    middle = np.full(noisy.size, float(form.constant))
    for cell, weight in form.weights:
        middle += float(weight) * noisy.cells[cell]
    return middle


def ratio_ends(above: Affine, below: Affine, noisy: Noisy, confidence: Fraction) -> Ends:
    """All t for which A − t·B is no larger than its noise (Fieller 1954); unbounded where B isn't clear of its own.

    For the true t it is the noise of both alone, whose coefficients are linear in t. With spreads added in squares the
    set is that of a quadratic inequality, an interval wherever B exceeds its spread; t = A/B is always in it.
    """
    a, b = _middle(above, noisy), _middle(below, noisy)
    weights = dict(above.weights), dict(below.weights)
    aa = ab = bb = 0.0
    for cell in weights[0].keys() | weights[1].keys():
        over, under = (float(each.get(cell, 0)) * reach_in_squares(noisy.noise[cell], confidence) for each in weights)
        aa, ab, bb = aa + over * over, ab + over * under, bb + under * under
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        square = b**2 - bb
        middle = a * b - ab
        # middle² − square·(a² − aa), written so that nothing large cancels
        root = np.sqrt(np.maximum(aa * b**2 - 2 * ab * a * b + bb * a**2 - (aa * bb - ab**2), 0.0))
        low, high = (middle - root) / square, (middle + root) / square
    known = (square > 0) & np.isfinite(low) & np.isfinite(high)
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)
