"""A privacy loss distribution on a lattice h·ℤ, never below the curve it stands for.

Connect the dots (Doroshenko et al. 2022): the curve H is convex in t = e^ε, so the polygon through its values at
the lattice points lies above it, and a polygon with corners on the lattice is the curve of a distribution on the
lattice. Whatever the floating-point arithmetic did to the masses is undone by measuring: the polygon of the masses
as they are is evaluated by sums of positive terms and everything is scaled up until it covers the curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dither.privacy.loss import REACHES, Array, Direction, PrivacyLoss

# A loss beyond is booked as infinite.
LARGEST_REACH = float(REACHES[-1])
# The rounding allowance that a curve may contain, as a factor; used where a bound from below is wanted.
PROFILE_ALLOWANCE = 2.0**-36


@dataclass(frozen=True, slots=True)
class Lattice:
    """Point masses of P at the losses offset + step·(first + i), and at infinity.

    ``inflation`` bounds the factor by which the masses overstate the exact polygon;
    ``shift`` is how much lower the losses have to be read for a bound from below.
    """

    step: float
    first: int
    masses: Array
    infinite: float = 0.0
    offset: float = 0.0
    shift: float = 0.0
    inflation: float = 1.0

    def losses(self) -> Array:
        """The losses at which the masses sit."""
        return np.asarray(self.offset + self.step * (self.first + np.arange(self.masses.size)), dtype=np.float64)

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the finite part."""
        at = self.losses()
        total = float(self.masses.sum())
        if total == 0:
            return 0.0, 0.0
        mean = float((self.masses * at).sum()) / total
        return mean, max(0.0, float((self.masses * (at - mean) ** 2).sum()) / total)


def dots(loss: PrivacyLoss, direction: Direction, right: Array, left: Array) -> tuple[Array, Array, float]:
    """Masses of the polygon whose corners are at ``right`` (0 … up) and −``left`` (0 … up).

    Returns the masses at −left[:0:-1] ∪ right, the curve at the same points, and the mass at infinity. The left half
    is read off the other direction's curve, H(−x) = 1 − e^−x + e^−x·G(x), where small values keep their digits.
    """
    up = np.minimum.accumulate(np.minimum(loss.profile(right, direction), 1.0))
    down = np.minimum.accumulate(np.minimum(loss.profile(left, direction.reversed), 1.0))
    up[0] = down[0] = max(up[0], down[0])
    rise, fall = np.diff(right), np.diff(left)
    drop = -np.diff(up)
    stays = drop / np.expm1(rise)  # t_j · Q(L > e_j) on each piece, seen from its lower end
    arrives = drop / -np.expm1(-rise)  # the same, seen from its upper end
    above = arrives - np.append(stays[1:], 0.0)
    drop = -np.diff(down)
    leaves = drop / np.expm1(fall)
    comes = drop / -np.expm1(-fall)
    below = np.exp(-left[1:]) * (comes - np.append(leaves[1:], 0.0))
    middle = 1.0 - up[0] - stays[0] - leaves[0]
    masses = np.maximum(np.concatenate([below[::-1], [middle], above]), 0.0)
    tail = left[:0:-1]
    curve = np.concatenate([-np.expm1(-tail) + np.exp(-tail) * down[:0:-1], up])
    return masses, curve, float(up[-1])


def upper(loss: PrivacyLoss, direction: Direction, step: float, tail: float) -> Lattice:
    """The polygon of a loss on the lattice step·ℤ: a bound from above, for every ε.

    ``tail`` is the height at which the curve is cut off; what is above the cut is booked as infinite loss.
    """
    right = _points(loss.reach(tail, direction), step)
    left = _points(loss.reach(tail, direction.reversed), step)
    masses, curve, infinite = dots(loss, direction, right, left)
    losses = np.concatenate([-left[:0:-1], right])
    polygon = polygon_of(losses, masses, infinite)
    seen = curve > 1e-290
    # the sums of positive terms in polygon_of are good to a relative 4n units in the last place
    allowance = 1 + 8 * masses.size * 2.0**-53
    lift = max(1.0, float(np.max(curve[seen] / polygon[seen], initial=1.0))) * allowance
    excess = float(np.max(polygon[seen] / curve[seen], initial=1.0)) * lift
    kept = np.flatnonzero(masses)
    first, last = (int(kept[0]), int(kept[-1])) if kept.size else (0, 0)
    return Lattice(
        step=step,
        first=first - (left.size - 1),
        masses=masses[first : last + 1] * lift,
        infinite=infinite * lift,
        inflation=excess * allowance * (1 + PROFILE_ALLOWANCE),
    )


def polygon_of(losses: Array, masses: Array, infinite: float) -> Array:
    """The hockey-stick curve of masses at sorted losses, evaluated at those losses."""
    q_above = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1][1:], 0.0)
    pieces = np.exp(losses) * np.append(np.expm1(np.diff(losses)), 0.0) * q_above
    return np.asarray(np.cumsum(pieces[::-1])[::-1] + infinite)


def spread(loss: PrivacyLoss, direction: Direction, tail: float = 1e-12) -> float:
    """The standard deviation of the loss, from a coarse polygon: sets the lattice, proves nothing."""
    right = _coarse(min(loss.reach(tail, direction), LARGEST_REACH))
    left = _coarse(min(loss.reach(tail, direction.reversed), LARGEST_REACH))
    masses, _, _ = dots(loss, direction, right, left)
    losses = np.concatenate([-left[:0:-1], right])
    total = float(masses.sum())
    if total == 0:  # everything is given away
        return 1.0
    mean = float((masses * losses).sum()) / total
    return math.sqrt(max(float((masses * (losses - mean) ** 2).sum()) / total, 1e-30))


def _coarse(reach: float) -> Array:
    reach = max(reach, 1e-9)
    return np.concatenate([[0.0], np.geomspace(reach * 1e-6, reach, 160)])


def _points(reach: float, step: float) -> Array:
    """0, step, … up to the reach. One that is a multiple of the step but for rounding must not add a point."""
    steps = max(1, math.ceil(min(reach, LARGEST_REACH) / step - 1e-9))
    return np.asarray(step * np.arange(steps + 1), dtype=np.float64)
