"""Errors to expect: what each aggregate's error will be, as far as that is known before data is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip, Quantile
from dither.query.lower import Lowered, ModeChoice
from dither.query.plan import Function
from dither.query.recipes import Chosen, Constant, Linear, Mean, Moments, Recipe
from dither.query.spread import multiplier, standard_deviation, widest

Noise: TypeAlias = DiscreteLaplace | DiscreteGaussian
Chooser: TypeAlias = Quantile | PermuteAndFlip | Exponential


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """The error of one aggregate in a group. ``half_width`` is None where the data has a say in it.

    ``text`` says it for people, ``mechanism`` what it comes from; it holds with probability ``confidence``.
    """

    half_width: float | None
    text: str
    confidence: Fraction
    mechanism: str


def predict(
    lowered: Lowered, noise: Sequence[Noise], choosers: Sequence[Chooser], confidence: Fraction
) -> tuple[PredictedError, ...]:
    """The error of each aggregate."""

    def one(recipe: Recipe) -> PredictedError:
        half, text = _error(recipe, lowered, noise, choosers, confidence)
        return PredictedError(
            half_width=half, text=text, confidence=confidence, mechanism=_mechanism(recipe, noise, choosers)
        )

    return tuple(one(recipe) for recipe in lowered.recipes)


def _error(
    recipe: Recipe, lowered: Lowered, noise: Sequence[Noise], choosers: Sequence[Chooser], confidence: Fraction
) -> tuple[float | None, str]:
    if isinstance(recipe, Constant):
        return 0.0, "exact"
    if isinstance(recipe, Linear):
        half = float(recipe.step) * noise[recipe.cell].error(confidence)
        return half, f"±{_short(half)}"
    if isinstance(recipe, Mean):
        # the noise of the count weighs most where the mean is at an end of the bounds
        top = float(max(recipe.high - recipe.x.centre, recipe.x.centre - recipe.low) / recipe.x.step)
        half = float(recipe.x.step) * widest(noise[recipe.x.cell], noise[recipe.count], top, confidence)
        return None, f"±({_short(half)} / rows in the group)"
    if isinstance(recipe, Moments):
        return None, _moments_text(recipe, noise, confidence)
    chooser, choice = choosers[recipe.choice], lowered.choices[recipe.choice]
    if isinstance(chooser, Quantile):
        return None, f"±{_short(chooser.error(confidence))} ranks"
    assert isinstance(choice, ModeChoice)
    fewer = chooser.error(confidence, candidates=choice.candidates)
    return None, f"a value that occurs at most {_short(fewer)} times less often than the most frequent one"


def _moments_text(recipe: Moments, noise: Sequence[Noise], confidence: Fraction) -> str:
    """To first order, at its largest over all data within the bounds."""
    if recipe.function is Function.CORR:
        return "depends on the data"
    # d(xy/n − (x/n)(y/n)) = dxy/n − ȳ·dx/n − x̄·dy/n + (2x̄ȳ − xy)·dn/n, with |x̄| ≤ half_x and so on
    hx, hy = float(recipe.half_x), float(recipe.half_y)
    product = recipe.xy or recipe.xx
    assert product is not None
    parts = [float(product.area) * standard_deviation(noise[product.cell])]
    if recipe.y is None:
        parts.append(2 * hx * float(recipe.x.step) * standard_deviation(noise[recipe.x.cell]))
    else:
        parts.append(hy * float(recipe.x.step) * standard_deviation(noise[recipe.x.cell]))
        parts.append(hx * float(recipe.y.step) * standard_deviation(noise[recipe.y.cell]))
    parts.append(hx * hy * standard_deviation(noise[recipe.count]))
    half = multiplier(noise[recipe.count], confidence) * math.hypot(*parts)
    if recipe.function in (Function.STDDEV_POP, Function.STDDEV_SAMP):
        return f"at most about ±√({_short(half)} / rows in the group)"
    return f"at most about ±({_short(half)} / rows in the group)"


def _mechanism(recipe: Recipe, noise: Sequence[Noise], choosers: Sequence[Chooser]) -> str:
    if isinstance(recipe, Constant):
        return "decided by public bounds"
    if isinstance(recipe, Chosen):
        chooser = choosers[recipe.choice]
        name = "permute-and-flip" if isinstance(chooser, PermuteAndFlip) else "exponential mechanism"
        return f"{name}, scale {float(chooser.scale):.4g}"
    names = []
    for cell in recipe.cells:
        step = recipe.step if isinstance(recipe, Linear) else 1
        if isinstance(noise[cell], DiscreteGaussian):
            names.append(f"Gaussian noise, σ = {float(step * noise[cell].scale):.4g}")
        else:
            names.append(f"Laplace noise, scale {float(step * noise[cell].scale):.4g}")
    if len(names) == 1:
        return names[0]
    law = "Gaussian" if isinstance(noise[recipe.cells[0]], DiscreteGaussian) else "Laplace"
    return f"{law} noise on {len(names)} sums"


def _short(value: float) -> str:
    """Rounded up to three digits, or to a whole number above 1000."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(value)))
    scale = 10.0**digits
    # what is a short number already must not be pushed to the next one by its last bit
    text = f"{math.ceil(value * scale * (1 - 1e-12)) / scale:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
