"""Training with and without privacy: gradient descent on linear models over fixed features, exact or noisy.

The private form clips each person's gradient in l2, adds them up exactly, adds Gaussian noise and takes a step (Song,
Chaudhuri & Sarwate 2013; Bassily, Smith & Thakurta 2014; Abadi et al. 2016); its loss is known before data is seen,
and covers an attacker who watches every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms import Gaussian
from dither.mechanisms.base import Floats
from dither.numeric import Number, fraction_down, positive, positive_int
from dither.privacy import Guarantee, PrivacyLoss, Sensitivity, calibrate, compose

# What is added up: takes the exact sum and returns what is released. Attacks and tests put other things in its place.
Publish: TypeAlias = Callable[[Floats], Floats]

# Gradients are whole multiples of 2^-30 clipping lengths: sums of up to 2^22 of them are exact in a float.
UNIT = 2.0**30
MOST_PEOPLE, MOST_FEATURES = 2**22, 2**20
# The length is computed in floats, within 2^20·2^-53 of itself: rows are shortened by more than that.
SHORTER = 1 - 2.0**-30


class Objective(Enum):
    """What is minimised: ``LOGISTIC`` for targets −1 and 1, ``SQUARED`` for numbers."""

    LOGISTIC = "logistic"
    SQUARED = "squared"

    def slope(self, prediction: Floats, target: Floats) -> Floats:
        """The derivative of each person's loss by the prediction."""
        if self is Objective.LOGISTIC:
            return np.asarray(-target * expit(-target * prediction), dtype=np.float64)
        return prediction - target


def clipped(gradients: Floats, clip: float) -> Floats:
    """Each row shortened to length ``clip`` at most, in units of clip·2^-30, rounded towards zero.

    The rows hold whole numbers, and their exact lengths are at most 2^30: rounding towards zero shortens, and the
    margin covers the floats in between. A row with no finite length counts as zero.

    Example:
        >>> (clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), clip=1.0) / 2**30).round(6).tolist()
        [[0.6, 0.8], [0.3, 0.4]]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # in units of the clipping length first: what is lost where squares underflow is then far below one unit
        rows = gradients / clip
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        factors = np.where(np.isfinite(lengths), SHORTER * UNIT / np.maximum(lengths, 1.0), 0.0)
        rows = rows * factors[:, None]
    return np.trunc(np.where(np.isfinite(rows), rows, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model, and all that an attacker who watched its training has seen: the weights before each step, the sums."""

    weights: Floats
    states: Floats
    sums: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyDescent:
    """Noisy full-batch gradient descent on a linear model over fixed features.

    Guarantee: ``steps`` Gaussian releases of a sum whose rows have l2 length 1 in units of ``clip``, towards adding or
        removing one row; the learning rate doesn't depend on the number of rows, which stays hidden.
    Assumes: one row is one person; the features of a person are made from that person's row alone.

    Example:
        >>> plan = NoisyDescent(objective=Objective.LOGISTIC, steps=10, noise="12", clip=1, rate=0.01)
        >>> round(plan.loss().epsilon(delta=1e-5), 3)
        0.981
    """

    objective: Objective
    steps: int
    noise: Number
    clip: float
    rate: float
    _mechanism: Gaussian = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive_int(self.steps, "steps")
        positive(self.clip, "clip")
        positive(self.rate, "rate")
        object.__setattr__(self, "noise", positive(self.noise, "noise"))
        object.__setattr__(self, "_mechanism", Gaussian(self.noise))

    @classmethod
    def calibrated(
        cls, guarantee: Guarantee, *, objective: Objective, steps: int, clip: float, rate: float
    ) -> NoisyDescent:
        """The least noise with which all steps together meet the guarantee."""
        found = calibrate(Gaussian, guarantee, Sensitivity.l2(1), plan=lambda loss: compose([(loss, steps)]))
        return cls(objective=objective, steps=steps, noise=found.scale, clip=clip, rate=rate)

    def loss(self) -> PrivacyLoss:
        """What training costs, before any data is seen."""
        return compose([(self._mechanism.loss(Sensitivity.l2(1)), self.steps)])

    @property
    def scale(self) -> float:
        """The standard deviation of the noise, in units of the clipping length."""
        return fraction_down(self._mechanism.scale)

    def gradients(self, weights: Floats, features: Floats, targets: Floats) -> Floats:
        """Everybody's clipped gradient, in units of the clipping length."""
        slopes = self.objective.slope(features @ weights, targets)
        return clipped(slopes[:, None] * features, self.clip) / UNIT

    def train(self, features: Floats, targets: Floats, *, publish: Publish | None = None) -> Trained:
        """Train from zero weights; ``publish`` takes the place of the noise, for attacks on trainers that have none."""
        x, y = _checked(features, targets)
        release = self._mechanism.release if publish is None else publish
        weights = np.zeros(x.shape[1])
        states, sums = np.empty((self.steps, weights.size)), np.empty((self.steps, weights.size))
        for step in range(self.steps):
            states[step] = weights
            sums[step] = release(self.gradients(weights, x, y).sum(axis=0))
            weights = weights - self.rate * self.clip * sums[step]
        return Trained(weights=weights, states=states, sums=sums)


def fitted(
    features: Floats, targets: Floats, *, objective: Objective, steps: int, rate: float, shrink: float = 0.0
) -> Floats:
    """Weights by exact gradient descent with momentum; ``shrink`` is the weight of the l2 penalty."""
    x, y = _checked(features, targets)
    weights, speed = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for _ in range(positive_int(steps, "steps")):
        slopes = objective.slope(x @ weights, y)
        speed = 0.9 * speed - rate * (x.T @ slopes + shrink * weights)
        weights = weights + speed
    return weights


def watched_ratio(
    plan: NoisyDescent, trained: Trained, features: Floats, targets: Floats, members: npt.NDArray[np.bool_]
) -> Floats:
    """The log likelihood ratio of everybody's membership, for whoever watched each step and knows all the others.

    No attacker does better: take away the gradients of all other members, and what is left is noise, or noise around
    this person's gradient (Nasr et al. 2021). ``members`` says who took part.
    """
    x, y = _checked(features, targets)
    inside = np.asarray(members, dtype=bool)
    if inside.shape != y.shape:
        raise InvalidData("members needs one entry for each row of the features")
    ratio = np.zeros(y.size)
    for state, released in zip(trained.states, trained.sums, strict=True):
        rows = plan.gradients(state, x, y)
        squares = np.einsum("ij,ij->i", rows, rows)
        left = rows @ (released - rows[inside].sum(axis=0)) + np.where(inside, squares, 0.0)
        ratio += (left - squares / 2) / plan.scale**2
    return ratio


def _checked(features: Floats, targets: Floats) -> tuple[Floats, Floats]:
    x, y = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if x.ndim != 2 or y.shape != (x.shape[0],):
        raise InvalidData("features must be a table with one row for each target")
    if x.shape[0] > MOST_PEOPLE or x.shape[1] > MOST_FEATURES:
        raise InvalidParameter(f"at most {MOST_PEOPLE} rows of {MOST_FEATURES} features can be added up exactly")
    return x, y
