"""Curves of privacy loss, before anything is known of mechanisms: two directions, cells, and bounds of a curve."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.numeric.rounding import SLACK

Array: TypeAlias = npt.NDArray[np.float64]

# By how much a curve in closed form may be off: of itself, and of the ε at which it is asked for.
ROUNDING = 2.0**-36
# Where curves are looked at to see how far they reach; e^600 still leaves room in a float for products.
REACHES = np.geomspace(1e-6, 600.0, 300)


class Direction(Enum):
    """Which neighbour the output came from: with the unit (P, then removed) or without it (P, then added).

    Under REPLACE the two are the two orders of the pair.
    """

    REMOVE = "remove"
    ADD = "add"

    @property
    def reversed(self) -> Direction:
        """The other one."""
        return Direction.ADD if self is Direction.REMOVE else Direction.REMOVE


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the privacy loss L = ln dP/dQ lies: masses between edges, and point masses apart.

    ``p`` and ``q`` hold P(e_i < L < e_{i+1}) and Q(…) without the point masses, each within the relative error
    ``relative``; ``p_above`` is the P-mass above the last edge.
    """

    p: Array
    q: Array
    p_above: float
    atom_losses: Array
    atom_masses: Array
    relative: float


class Curve(Protocol):
    """What a distribution is made from: the part of ``PrivacyLoss`` that is about the curve."""

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """H(ε), rounded up."""
        ...

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """H(ε), rounded down."""
        ...

    def cells(self, edges: Array, direction: Direction) -> Cells | None:
        """Masses of the loss between edges, where they are known."""
        ...

    def reach(self, tail: float, direction: Direction) -> float:
        """An ε at which the curve has fallen to ``tail``."""
        ...

    def pure(self) -> float:
        """The smallest known ε with δ = 0, or infinity."""
        ...


def mirrored(curve: Array, epsilon: Array) -> Array:
    """Extend a symmetric pair's curve, given at |ε|, to ε < 0: H(−x) = 1 − e^−x + e^−x·H(x), rounded up."""
    below = np.minimum(epsilon, 0.0)
    mirror = (-np.expm1(below) + np.exp(below) * curve) * (1 + SLACK)
    return np.where(epsilon >= 0, curve, np.minimum(mirror, 1.0))


def at_least_nothing(curve: Array, epsilon: Array) -> Array:
    """The larger of a bound from below and (1 − e^ε)₊, the curve of a pair that is one law twice."""
    same = -np.expm1(np.minimum(epsilon, 0.0)) * (1 - SLACK)
    return np.asarray(np.fmin(np.fmax(curve, same), 1.0))
