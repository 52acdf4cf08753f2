"""The right noise for the wrong sensitivity: sums, means and regularised minimisers.

Also printed, and private though wasteful: the sensitivity 4G/(nλ) of a regularised minimiser, twice the tight one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dither.audit.zoo.specimen import Specimen, batched, careless, laplace_of, released, rounded
from dither.mechanisms import Laplace
from dither.mechanisms.base import Floats
from dither.privacy import Adjacency, Sensitivity

Values = tuple[float, ...]
REPLACE, ADD_REMOVE = Adjacency.REPLACE, Adjacency.ADD_REMOVE
# Regularised minimisation: public number of people, largest gradient, weight of the penalty.
PEOPLE, LARGEST, PENALTY = 4, 1, Fraction(1, 2)


def _right(
    name: str,
    family: str,
    sensitivity: Sensitivity,
    *pairs: tuple[Values, Values],
    remark: str,
    exact: Callable[[Any], Any] = math.fsum,
    wider: int = 1,
) -> Specimen:
    """Laplace noise at ε = 1 for a sensitivity that holds."""
    width = sensitivity.l1_bound()
    draw = released(exact, Laplace(wider * width).release)
    return Specimen.right(name, Laplace(width), sensitivity, *pairs, draw=draw, family=family, remark=remark)


def far_from_zero() -> tuple[Specimen, ...]:
    """A sum over [10, 12]: replacing somebody moves it by 2, adding or removing them by 12."""
    added = _right(
        "sum-far-from-zero-under-add-remove",
        "sum-far-from-zero",
        Sensitivity.l1(12),
        ((10.0, 12.0), (10.0, 12.0, 12.0)),
        remark="Values in [10, 12]: somebody who comes or goes takes up to 12 along.",
    )
    replaced = _right(
        "sum-far-from-zero-under-replace",
        "sum-far-from-zero",
        Sensitivity.l1(2, adjacency=REPLACE),
        ((10.0, 12.0), (12.0, 12.0)),
        remark="Values in [10, 12]: somebody else's value differs by at most 2.",
    )
    broken = added.spoilt(
        name="replace-sensitivity-under-add-remove",
        mistake="The noise of a sum over [10, 12] was set for the width 2, by which replacing somebody moves it; "
        "adding them moves it by 12, so the true ε is 6.",
        source="Kifer & Machanavajjhala 2011, on the two kinds of neighbours",
        mechanism=laplace_of(math.fsum, 2.0),
        typically="an output beyond one of the two sums",
    )
    return broken, added, replaced


def around_zero() -> tuple[Specimen, ...]:
    """A sum over [−1, 1]: adding or removing somebody moves it by 1, replacing them by 2."""
    replaced = _right(
        "sum-around-zero-under-replace",
        "sum-around-zero",
        Sensitivity.l1(2, adjacency=REPLACE),
        ((-1.0, 0.5), (1.0, 0.5)),
        remark="Values in [−1, 1]: from one end to the other is 2.",
    )
    added = _right(
        "sum-around-zero-under-add-remove",
        "sum-around-zero",
        Sensitivity.l1(1),
        ((0.5,), (0.5, 1.0)),
        remark="Values in [−1, 1]: somebody who comes or goes takes up to 1 along.",
    )
    broken = replaced.spoilt(
        name="add-remove-sensitivity-under-replace",
        mistake="The noise of a sum over [−1, 1] was set for the 1 by which adding somebody moves it; replacing them "
        "moves it by 2, so the true ε is 2.",
        source="Kifer & Machanavajjhala 2011, on the two kinds of neighbours",
        mechanism=laplace_of(math.fsum, 1.0),
        typically="an output beyond one of the two sums",
    )
    return broken, replaced, added


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def means() -> tuple[Specimen, ...]:
    """A mean over [0, 1]."""
    half = Laplace(2)
    both = Specimen(
        name="sum-and-count",
        family="mean",
        source="dither.Laplace",
        mechanism=released(lambda values: np.array([math.fsum(values), len(values)]), half.release),
        pairs=(((1.0,), (1.0, 1.0)),),
        claim=2 * half.loss(Sensitivity.l1(1)),
        remark="Under add_remove the sum and the count each get half of ε; their quotient is post-processing.",
    )
    public = _right(
        "mean-of-a-public-number",
        "mean",
        Sensitivity.l1("1/4", adjacency=REPLACE),
        ((0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)),
        remark="Under replace the number m of values is public, and the mean moves by at most b/m.",
        exact=_mean,
    )
    broken = both.spoilt(
        name="mean-of-a-private-number",
        mistake="A mean over [0, b] got noise of scale b/(m·ε), but under add_remove m is private: the scale tells it, "
        "and no finite ε holds.",
        source="lecture notes",
        mechanism=batched(_noisy_mean),
        pairs=(((1.0,), (1.0, 0.0)), ((1.0, 1.0, 1.0), (1.0, 1.0))),
        typically="an output far out",
    )
    return broken, both, public


def _noisy_mean(values: Sequence[float], n: int) -> Floats:
    return rounded(_mean(values) + careless().laplace(0.0, 1 / len(values), n))


def minimisers() -> tuple[Specimen, ...]:
    """The minimiser of (1/n)·Σ −xᵢ·w + (λ/2)·w², |xᵢ| ≤ G, which is Σxᵢ/(nλ) and moves by 2G/(nλ) under replace."""
    share = 1 / (PEOPLE * PENALTY)
    turned = ((-1.0, 0.5, 0.5, 0.0), (1.0, 0.5, 0.5, 0.0))
    tight = Sensitivity.l1(2 * LARGEST * share, adjacency=REPLACE)

    def minimiser(values: Sequence[float]) -> float:
        return math.fsum(values) * float(share)

    twin = _right(
        "regularised-minimiser",
        "regularised-minimiser",
        tight,
        turned,
        exact=minimiser,
        remark="With the penalty (λ/2)·w² the tight sensitivity is 2G/(nλ).",
    )
    wasteful = _right(
        "regularised-minimiser-with-4g",
        "regularised-minimiser",
        tight,
        turned,
        exact=minimiser,
        wider=2,
        remark="The printed 4G/(nλ) is an upper bound, so this is private, with twice the noise that is needed.",
    )
    broken = twin.spoilt(
        name="penalty-of-the-other-convention",
        mistake="The sensitivity G/(nλ) belongs to the penalty λ·w²; with (λ/2)·w² the minimiser moves twice as far.",
        source="folklore; compare Chaudhuri, Monteleoni & Sarwate 2011, who have λ/2",
        mechanism=laplace_of(minimiser, float(LARGEST * share)),
        typically="an output beyond one of the two minimisers",
    )
    return broken, twin, wasteful


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*far_from_zero(), *around_zero(), *means(), *minimisers())
