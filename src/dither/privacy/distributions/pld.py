"""The privacy loss distribution as a value to look at, plot or hand to another accountant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dither.privacy.curve import Array, Curve, Direction
from dither.privacy.distributions import fourier
from dither.privacy.distributions.lattice import STEP, spread, upper


@dataclass(frozen=True, slots=True)
class Pld:
    """Probabilities of losses on a grid, and of an infinite loss; rounded towards more loss.

    Moments and orders must not be read off it: it is cut off at both ends.

    Example:
        >>> from dither.privacy import PureLoss
        >>> pld = PureLoss(1).pld()
        >>> round(pld.mean(), 4), round(pld.delta(0.0), 4)  # tanh(1/2), (e−1)/(e+1)
        (0.4621, 0.4621)
    """

    direction: Direction
    losses: Array
    probabilities: Array
    infinite: float

    @classmethod
    def of(cls, loss: Curve, direction: Direction, step: float | None = None) -> Self:
        """The distribution of ``loss``, on a grid of ``step`` or a fiftieth of its spread."""
        width = step or STEP * spread(loss, direction)
        if (pure := loss.pure()) < math.inf:
            width = pure / math.ceil(pure / width) if pure > 0 else 1.0
        lattice = upper(loss, direction, width, 1e-20)
        return cls(direction, lattice.losses(), lattice.masses, lattice.infinite)

    @classmethod
    def composed(cls, parts: Iterable[tuple[Curve, int]], direction: Direction, step: float | None = None) -> Self:
        """The distribution of the parts together, each as often as its count says."""
        known = list(parts)
        width = step or STEP * min(spread(part, direction) for part, _ in known)
        items = [(upper(part, direction, width, 1e-20), count) for part, count in known]
        curve = fourier.composed(items, 0.0)
        above = np.maximum(curve.p_above, 0.0)
        probabilities = np.maximum(-np.diff(above, prepend=1.0), 0.0)
        return cls(direction, curve.epsilons, probabilities, curve.infinite + float(curve.error[0]))

    def delta(self, epsilon: float) -> float:
        """δ at ``epsilon``."""
        over = self.losses > epsilon
        gain = self.probabilities[over] * -np.expm1(epsilon - self.losses[over])
        return float(gain.sum()) + self.infinite

    def mean(self) -> float:
        """The expected finite loss."""
        return float((self.losses * self.probabilities).sum())
