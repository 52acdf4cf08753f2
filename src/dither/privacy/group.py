"""Group privacy: what a loss stated for one unit says about several; written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dither.errors import IncompatibleLosses
from dither.numeric import positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy.composition import Composed, compose
from dither.privacy.curve import Array, Direction, at_least_nothing, mirrored
from dither.privacy.loss import Json, PrivacyLoss, expect_loss
from dither.privacy.renyi import pure_renyi
from dither.privacy.unit import Adjacency


def as_replace(loss: PrivacyLoss) -> PrivacyLoss:
    """An add_remove loss read for the replace adjacency: replacing is removing one unit and adding another.

    Args:
        loss: Stated for add_remove.

    Example:
        >>> from dither.privacy import PureLoss
        >>> as_replace(PureLoss(1)).pure(), as_replace(PureLoss(1)).adjacency.value
        (2.0, 'replace')
    """
    expect_loss(loss)
    if loss.adjacency is Adjacency.REPLACE:
        raise IncompatibleLosses("this loss is stated for the replace adjacency already")
    if isinstance(loss, Composed):
        # one replacement may move each part in a direction of its own: take the worse one before composing
        return compose([(as_replace(part), count) for part, count in loss.parts])
    return Replaced(loss.grouped(2))


@dataclass(frozen=True, slots=True)
class Grouped(PrivacyLoss, kind="grouped"):
    """``size`` neighbouring steps in a row.

    Guarantee: (ε, δ) becomes (kε, δ·(e^{kε}−1)/(e^ε−1)) (Dwork & Roth 2014, Theorem 2.2 for δ > 0); ρ becomes k²ρ
        (Bun & Steinke 2016, Proposition 1.9); μ becomes kμ (Dong, Roth & Su 2022, Theorem 2.14).
    """

    base: PrivacyLoss
    size: int
    adjacency: Adjacency

    tight = False  # a bound only

    @property
    def symmetric(self) -> bool:
        """As the base."""
        return self.base.symmetric

    def pure(self) -> float:
        """Multiplied."""
        return up(self.size * self.base.pure())

    def zcdp(self) -> float:
        """Multiplied by the square."""
        return up(self.size**2 * self.base.zcdp())

    def gaussian(self) -> float:
        """Multiplied."""
        return up(self.size * self.base.gaussian())

    def renyi(self, order: float) -> float:
        """Through the pure or the zCDP view."""
        return min(pure_renyi(self.pure(), order), up(order * self.zcdp()))

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """The group bound; below zero through the other direction."""
        distance = np.abs(epsilon)
        ahead = self._chain(distance, direction)
        back = ahead if self.symmetric else self._chain(distance, direction.reversed)
        return np.where(epsilon >= 0, ahead, mirrored(back, epsilon))

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The group bound of the base's curve from below: a bound from below of the bound."""
        distance = np.abs(epsilon)
        one = distance / self.size
        ahead = self._grown(self.base.profile_down(one * (1 + SLACK), direction), distance) * (1 - 2 * SLACK)
        back = self._grown(self.base.profile_down(one * (1 + SLACK), direction.reversed), distance) * (1 - 2 * SLACK)
        return at_least_nothing(np.where(epsilon >= 0, ahead, mirrored(back, epsilon) * (1 - 4 * SLACK)), epsilon)

    def _chain(self, distance: Array, direction: Direction) -> Array:
        return self._grown(self.base.profile(distance / self.size, direction), distance)

    def _grown(self, one_step: Array, distance: Array) -> Array:
        one = distance / self.size
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            growth = np.where(one > 0, np.expm1(distance) / np.expm1(one), float(self.size))
            grown = one_step * growth * (1 + SLACK)
        return np.minimum(np.where(np.isfinite(grown), grown, 1.0), 1.0)

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        base = PrivacyLoss.from_json(parameters["loss"])
        return cls(base, positive_int(parameters["size"], "size"), base.adjacency)


@dataclass(frozen=True, slots=True)
class Replaced(PrivacyLoss, kind="replaced"):
    """A loss towards two add_remove steps, which is one towards a replace step in either order."""

    base: PrivacyLoss
    adjacency: Adjacency = Adjacency.REPLACE

    symmetric = True  # a replace step can be read either way, and so can this bound
    tight = False  # a bound only

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The larger of both directions: removing then adding mixes them."""
        distance = np.abs(epsilon)
        worst = np.maximum.reduce([self.base.profile(distance, d) for d in self.base.directions])
        return mirrored(worst, epsilon)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The larger of both directions, from below."""
        distance = np.abs(epsilon)
        worst = np.maximum.reduce([self.base.profile_down(distance, d) for d in self.base.directions])
        return at_least_nothing(mirrored(worst, epsilon) * (1 - 4 * SLACK), epsilon)

    def pure(self) -> float:
        """As the base."""
        return self.base.pure()

    def zcdp(self) -> float:
        """As the base."""
        return self.base.zcdp()

    def gaussian(self) -> float:
        """As the base."""
        return self.base.gaussian()

    def renyi(self, order: float) -> float:
        """As the base."""
        return self.base.renyi(order)

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        return cls(PrivacyLoss.from_json(parameters["loss"]))
