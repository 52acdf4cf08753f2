"""A privacy loss distribution on a lattice h·ℤ, never below the curve it stands for.

Connect the dots (Doroshenko et al. 2022): the curve H is convex in t = e^ε, so the polygon through its values at
the lattice points lies above it, and a polygon with corners on the lattice is the curve of a distribution on the
lattice. Whatever the floating-point arithmetic did to the masses is undone by measuring: the polygon of the masses
as they are is evaluated by sums of positive terms and everything is scaled up until it covers the curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dither.privacy.curve import REACHES, Array, Curve, Direction

# The lattice step, as a share of one item's standard deviation: the variance grows by about its square over six.
STEP = 0.04
# A loss beyond is booked as infinite.
LARGEST_REACH = float(REACHES[-1])
# Rounds in which all dents of a curve are taken out at once; what is left then goes point by point.
HULL_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Lattice:
    """Point masses of P at the losses offset + step·(first + i), and at infinity.

    ``shift`` is how much lower the losses have to be read for a bound from below.
    """

    step: float
    first: int
    masses: Array
    infinite: float = 0.0
    offset: float = 0.0
    shift: float = 0.0

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


def dots(loss: Curve, direction: Direction, right: Array, left: Array) -> tuple[Array, Array, float]:
    """Masses of the polygon whose corners are at ``right`` (0 … up) and −``left`` (0 … up).

    Returns the masses at −left[:0:-1] ∪ right, the curve at the same points, and the mass at infinity. The left half
    is read off the other direction's curve, H(−x) = 1 − e^−x + e^−x·G(x), where small values keep their digits.
    """
    up = np.minimum.accumulate(np.minimum(loss.profile(right, direction), 1.0))
    down = np.minimum.accumulate(np.minimum(loss.profile(left, direction.reversed), 1.0))
    up[0] = down[0] = max(up[0], down[0])
    above, stays = _corners(right, up)
    below, leaves = _corners(left, down)
    masses = np.concatenate([(np.exp(-left[1:]) * below)[::-1], [1.0 - up[0] - stays - leaves], above])
    return np.maximum(masses, 0.0), _joined(left, down, up), float(up[-1])


def _corners(points: Array, heights: Array) -> tuple[Array, float]:
    """The masses at the corners of a half, without its first, and t·Q(L > e) on its first piece.

    A corner's mass is what the slope loses there; both are seen from the corner, so that nothing grows large.
    """
    width, drop = np.diff(points), -np.diff(heights)
    stays = drop / np.expm1(width)  # t_j · Q(L > e_j) on each piece, seen from its lower end
    arrives = drop / -np.expm1(-width)  # the same, seen from its upper end
    return arrives - np.append(stays[1:], 0.0), float(stays[0])


def _joined(left: Array, down: Array, up: Array) -> Array:
    """The whole curve, from the far left to the far right."""
    tail = left[:0:-1]
    return np.concatenate([-np.expm1(-tail) + np.exp(-tail) * down[:0:-1], up])


def upper(loss: Curve, direction: Direction, step: float, tail: float) -> Lattice:
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
    kept = np.flatnonzero(masses)
    first, last = (int(kept[0]), int(kept[-1])) if kept.size else (0, 0)
    return Lattice(
        step=step, first=first - (left.size - 1), masses=masses[first : last + 1] * lift, infinite=infinite * lift
    )


def under(loss: Curve, direction: Direction, step: float, tail: float) -> Lattice | None:
    """The largest polygon on the lattice step·ℤ that lies nowhere above the curve's own polygon; None if none is found.

    The curve is known from below at the lattice points (``profile_down``), and the convex hull of those values is a
    polygon with corners on the lattice. At every lattice point it is at most the curve, so everywhere at most the
    polygon through the curve's values there. Curves of composed pairs are mixtures of the parts' curves with positive
    weights, Σ_k g_k·H(t/t_k), so what is composed of lower curves is lower. The polygon through the curve itself is
    above the curve: ``composition`` says what of a bound from below that leaves.
    """
    # one point further on each side nothing is claimed, but what is left at e^600 (there something is given away)
    right = _points(loss.reach(tail, direction) + step, step)
    left = _points(loss.reach(tail, direction.reversed) + step, step)
    up, down = _heights(loss, right, direction), _heights(loss, left, direction.reversed)
    up[0] = down[0] = max(up[0], down[0])
    curve = _joined(left, down, up)
    hull = _convex(right, up, left, down)
    if hull is None:
        return None
    masses = np.zeros(curve.size)
    middle = left.size - 1
    (kept, above, stays), (also, below, leaves), top = hull
    masses[middle + kept[1:]] = above
    masses[middle - also[1:]] = np.exp(-left[also[1:]]) * below
    masses[middle] = 1.0 - top - stays - leaves
    masses = np.maximum(masses, 0.0)
    losses = np.concatenate([-left[:0:-1], right])
    polygon = polygon_of(losses, masses, float(up[-1]))
    # whatever the arithmetic did: scaled down until it is below the curve at all lattice points
    seen = polygon > 0
    share = float(np.min(curve[seen] / polygon[seen], initial=1.0)) * (1 - 8 * masses.size * 2.0**-53)
    places = np.flatnonzero(masses)
    if share <= 0 or not places.size:
        return None
    first, last = int(places[0]), int(places[-1])
    return Lattice(
        step=step, first=first - middle, masses=masses[first : last + 1] * share, infinite=float(up[-1]) * share
    )


def _heights(loss: Curve, points: Array, direction: Direction) -> Array:
    """The curve from below; a bound further out holds nearer by as well, since curves fall."""
    far = loss.profile_down(np.array([LARGEST_REACH]), direction)[0]
    heights = np.append(loss.profile_down(points[:-1], direction), far)
    return np.asarray(np.maximum.accumulate(np.clip(heights, 0.0, 1.0)[::-1])[::-1])


Places: TypeAlias = npt.NDArray[np.intp]
_Half: TypeAlias = tuple[Places, Array, float]


def _convex(right: Array, up: Array, left: Array, down: Array) -> tuple[_Half, _Half, float] | None:
    """The lower hull in t = e^ε of both halves: for each the corners that stay and their masses; and the value at 0."""
    top = float(up[0])
    for _ in range(HULL_ROUNDS):
        first, second = _hull(right, np.append(top, up[1:])), _hull(left, np.append(top, down[1:]))
        over = first[2] + second[2] + top - 1.0
        if over <= 2.0**-50:
            return first, second, top
        # the halves meet in a dent: lower their common end until they don't, or until the next corners do
        steep = 1.0 + sum(1 / math.expm1(float(x[half[0][1]])) for x, half in ((right, first), (left, second)))
        # near by corners are so steep that what is over may be less than the next float takes away
        top = min(top - over / steep, math.nextafter(top, 0.0))
    return None


def _hull(points: Array, heights: Array) -> _Half:
    """The corners of one half that the lower hull keeps: a point above the chord of its neighbours isn't one."""
    kept = np.arange(points.size)
    for _ in range(HULL_ROUNDS):
        masses, stays = _corners(points[kept], heights[kept])
        dents = np.flatnonzero(masses[:-1] < 0) + 1
        if not dents.size:
            return kept, masses, stays
        # of neighbours every other one may go: without it the next may be a corner
        run = np.concatenate([[0], np.cumsum(np.diff(dents) > 1)])
        place = np.arange(dents.size) - np.searchsorted(run, run)
        kept = np.delete(kept, dents[place % 2 == 0])
    kept = _chain(points, heights, kept)
    masses, stays = _corners(points[kept], heights[kept])
    return kept, masses, stays


def _chain(points: Array, heights: Array, kept: Places) -> Places:
    """The same one point after the other (Andrew 1979), for curves with wide dents."""
    at, height = points.tolist(), heights.tolist()
    stack: list[int] = []
    for i in kept.tolist():
        while len(stack) > 1:
            a, b = stack[-2], stack[-1]
            if (height[a] - height[b]) / math.expm1(at[b] - at[a]) > (height[a] - height[i]) / math.expm1(
                at[i] - at[a]
            ):
                break
            stack.pop()
        stack.append(i)
    return np.array(stack)


def polygon_of(losses: Array, masses: Array, infinite: float) -> Array:
    """The hockey-stick curve of masses at sorted losses, evaluated at those losses."""
    q_above = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1][1:], 0.0)
    pieces = np.exp(losses) * np.append(np.expm1(np.diff(losses)), 0.0) * q_above
    return np.asarray(np.cumsum(pieces[::-1])[::-1] + infinite)


def spread(loss: Curve, direction: Direction, tail: float = 1e-12) -> float:
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
