"""Composition and repetition: written once, for every loss.

Guarantee: the product of dominating pairs dominates adaptive composition of mechanisms whose parameters are fixed
beforehand (Zhu, Dong & Wang 2022, Theorem 10). Where parameters are chosen adaptively too, use ``privacy.currency``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self

import numpy as np

from dither.brief import brief
from dither.errors import IncompatibleLosses, InvalidParameter
from dither.numeric import Number, as_fraction, down, fraction_down, fraction_up, positive_int, up
from dither.privacy.curve import ROUNDING, Array, Direction, at_least_nothing
from dither.privacy.distributions import fourier, merge
from dither.privacy.distributions.lattice import LARGEST_REACH, STEP, Lattice, spread, under, upper
from dither.privacy.distributions.pld import Pld
from dither.privacy.loss import Json, PrivacyLoss, expect_loss
from dither.privacy.renyi import check_order, renyi_epsilon
from dither.privacy.unit import Adjacency

# For losses without cells the bound from below is of first order in the step, so it needs a finer one.
FINE_STEP = 2e-3
LARGEST_LATTICE = 1 << 21
# The numeric composition leaves larger pure losses to their sum.
LARGEST_PART = 30.0
SHARP_DELTA = 1e-20
# Whole curves are seen through the tilts of these δ.
SEEN_AT = (0.5, 1e-3, 1e-8, 1e-14, 1e-22)


def compose(parts: Iterable[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    """The loss of running every part as often as its count says.

    Args:
        parts: Losses, each with how often it is run.

    Example:
        >>> from dither.privacy import PureLoss
        >>> compose([(PureLoss(1), 3), (PureLoss("1/2"), 2)]).pure()
        4.0
    """
    return Composed.of(parts)


@dataclass(frozen=True, slots=True)
class Composed(PrivacyLoss, kind="composed"):
    """Several losses together; made by ``+`` and ``n *``."""

    parts: tuple[tuple[PrivacyLoss, int], ...]
    adjacency: Adjacency

    __repr__ = brief

    @classmethod
    def of(cls, parts: Iterable[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
        """The loss of the parts together: merged where there is a closed form, and no composition if one is left."""
        flat: list[tuple[PrivacyLoss, int]] = []
        for loss, times in parts:
            expect_loss(loss)
            count = positive_int(times, "times")
            flat.extend((inner, count * n) for inner, n in loss.parts) if isinstance(loss, cls) else flat.append(
                (loss, count)
            )
        if not flat:
            raise InvalidParameter("nothing to compose: give at least one (loss, times)")
        adjacencies = {loss.adjacency for loss, _ in flat}
        if len(adjacencies) > 1:
            raise IncompatibleLosses(
                "these losses are stated for different adjacencies (add_remove and replace): state every sensitivity "
                "for one of them, or turn add_remove losses into replace losses with dither.as_replace(loss)"
            )
        by_type: dict[type[PrivacyLoss], dict[PrivacyLoss, int]] = {}
        for loss, count in flat:
            alike = by_type.setdefault(type(loss), {})
            alike[loss] = alike.get(loss, 0) + count
        merged: list[tuple[PrivacyLoss, int]] = []
        for kind, counted in by_type.items():
            # what costs nothing adds nothing
            costly = [(loss, count) for loss, count in counted.items() if loss.pure() > 0]
            merged.extend(kind.merge(costly) if costly else [])
        if not merged:
            return flat[0][0]
        if len(merged) == 1 and merged[0][1] == 1:
            return merged[0][0]
        return cls(tuple(merged), adjacencies.pop())

    @property
    def symmetric(self) -> bool:
        """Whether all parts are."""
        return all(loss.symmetric for loss, _ in self.parts)

    @property
    def steps(self) -> int:
        """How many mechanisms run in all."""
        return sum(count for _, count in self.parts)

    def pure(self) -> float:
        """Pure losses add (Dwork, McSherry, Nissim & Smith 2006)."""
        return fraction_up(self.pure_exactly()) if self._all_finite(lambda loss: loss.pure()) else math.inf

    def pure_exactly(self) -> Fraction:
        """The exact sum."""
        return sum((count * loss.pure_exactly() for loss, count in self.parts), Fraction(0))

    def zcdp(self) -> float:
        """ZCDP parameters add (Bun & Steinke 2016, Lemma 1.7)."""
        return fraction_up(self.zcdp_exactly()) if self._all_finite(lambda loss: loss.zcdp()) else math.inf

    def zcdp_exactly(self) -> Fraction:
        """The exact sum."""
        return sum((count * loss.zcdp_exactly() for loss, count in self.parts), Fraction(0))

    def _all_finite(self, view: Callable[[PrivacyLoss], float]) -> bool:
        return all(math.isfinite(view(loss)) for loss, _ in self.parts)

    def approximate_zcdp(self) -> tuple[float, float]:
        """Both parameters add (Bun & Steinke 2016, Lemma 8.2)."""
        pairs = [loss.approximate_zcdp() for loss, _ in self.parts]
        return self._sum([rho for rho, _ in pairs]), self._sum([delta for _, delta in pairs])

    def decomposed(self) -> tuple[PrivacyLoss, Fraction]:
        """What is left of each part, composed; the chances add (union bound)."""
        if not any(loss.decomposed()[1] for loss, _ in self.parts):
            return self, Fraction(0)
        left = [(*loss.decomposed(), count) for loss, count in self.parts]
        delta = sum((count * given for _, given, count in left), Fraction(0))
        return compose([(loss, count) for loss, _, count in left]), delta

    def renyi(self, order: float) -> float:
        """Rényi divergences add (Mironov 2017, Proposition 1)."""
        check_order(order)
        return self._sum([loss.renyi(order) for loss, _ in self.parts])

    def kl(self) -> float:
        """Expected losses add."""
        return self._sum([loss.kl() for loss, _ in self.parts])

    def gaussian(self) -> float:
        """Gaussian parameters add in squares (Dong, Roth & Su 2022, Corollary 3.3)."""
        return up(math.sqrt(math.fsum(count * loss.gaussian() ** 2 for loss, count in self.parts)))

    def _sum(self, values: list[float]) -> float:
        if any(math.isinf(value) for value in values):
            return math.inf
        exact = sum(Fraction(v) * count for v, (_, count) in zip(values, self.parts, strict=True))
        return fraction_up(Fraction(exact))

    def grouped(self, size: int) -> PrivacyLoss:
        """A group moves every part."""
        return compose([(loss.grouped(size), count) for loss, count in self.parts])

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """The composed curve from above: the smallest of several tilts at every point."""
        best = np.ones(np.shape(epsilon))
        for curve in _profile_curves(self, direction):
            best = np.minimum(best, curve.delta_up(epsilon))
        return best

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The composed curve from below: the largest of several tilts at every point."""
        best = np.zeros(np.shape(epsilon))
        for curve, moved, miss in _curves_down(self, direction):
            best = np.maximum(best, curve.delta_down(epsilon + moved) - miss)
        return at_least_nothing(best, epsilon)

    def __add__(self, other: object) -> PrivacyLoss:
        # adding one loss at a time to a long list, as sum() does, must not go through the whole list every time
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        if not isinstance(other, Composed) and other.adjacency is self.adjacency and other.pure() > 0:
            alike = [part for part in self.parts if type(part[0]) is type(other)]
            others = tuple(part for part in self.parts if type(part[0]) is not type(other))
            place = next((i for i, (loss, _) in enumerate(alike) if loss == other), None)
            if place is None:
                alike.append((other, 1))
            else:
                alike[place] = (other, alike[place][1] + 1)
            return Composed(others + tuple(type(other).merge(alike)), self.adjacency)
        return PrivacyLoss.__add__(self, other)

    def delta(self, epsilon: Number) -> float:
        """An upper bound of δ at ``epsilon``, with the tilt made for it."""
        value = fraction_down(as_fraction(epsilon, "epsilon"))
        if value >= self.pure():
            return 0.0
        return min(1.0, max(_delta_up(self, direction, value) for direction in self.directions))

    @property
    def tight(self) -> bool:
        """Whether all parts are."""
        return all(loss.tight for loss, _ in self.parts)

    def _epsilon_up(self, delta: float) -> float:
        numeric = max(_numeric_up(self, direction, delta) for direction in self.directions)
        # the exact composition beats every order, but not if a part knows itself by its orders only, nor so far out
        # that the tilt is hard to find
        sharp = self.tight and math.isfinite(numeric) and delta > SHARP_DELTA
        orders = math.inf if sharp else renyi_epsilon(self.renyi, delta)
        return min(self.pure(), orders, numeric)

    def _epsilon_down(self, delta: float) -> float:
        tops = {direction: _numeric_up(self, direction, delta) for direction in self.directions}
        worst = max(tops, key=lambda direction: tops[direction])
        return max(0.0, _numeric_down(self, worst, delta))  # rounds δ up itself

    def _pure_down(self) -> float:
        """The sum of the parts', unless one part is worst in one direction and one in the other."""
        if self.symmetric or len(self.parts) == 1:
            return down(self.pure(), ROUNDING)
        return self._epsilon_down(SHARP_DELTA) if math.isfinite(self.pure()) else self.pure()

    def reach(self, tail: float, direction: Direction) -> float:
        """Where the composed curve has fallen to ``tail``."""
        return min(self.pure(), _numeric_up(self, direction, tail))

    def pld(self, direction: Direction = Direction.REMOVE, step: float | None = None) -> Pld:
        """The privacy loss distribution on a grid of ``step``, or as fine as the narrowest part needs."""
        return Pld.composed(self.parts, direction, step)

    def parameters(self) -> Json:
        """The permanent fields."""
        return {"parts": [{"times": count, "loss": loss.to_json()} for loss, count in self.parts]}

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        parts = tuple(
            (PrivacyLoss.from_json(part["loss"]), positive_int(part["times"], "times")) for part in parameters["parts"]
        )
        adjacency = Adjacency(parameters["adjacency"])
        if not parts or any(loss.adjacency is not adjacency for loss, _ in parts):
            raise IncompatibleLosses("the JSON form of a composition needs parts, all of its own adjacency")
        return cls(parts, adjacency)


def _worthless(loss: Composed) -> bool:
    """Whether a part alone gives nearly everything away: e^30 is no promise, and no lattice resolves it cheaply."""
    return any(LARGEST_PART < part.pure() < math.inf for part, _ in loss.parts)


def _step(loss: Composed, direction: Direction, share: float) -> float:
    """A lattice fine enough for the typical item, and no finer than the transform can bear."""
    variance = math.fsum(count * _spread(part, direction) ** 2 for part, count in loss.parts)
    # few items don't smooth each other out, and cost little: take a finer lattice
    finer = min(1.0, max(0.1, math.sqrt(loss.steps / 1000)))
    step = finer * share * math.sqrt(variance / loss.steps)
    widest = max(min(part.reach(1e-15, d), LARGEST_REACH) for part, _ in loss.parts for d in Direction)
    step = max(step, 2 * widest / LARGEST_LATTICE, 20 * math.sqrt(variance) / LARGEST_LATTICE)
    if len(loss.parts) == 1 and (pure := loss.parts[0][0].pure()) < LARGEST_REACH:
        # put the point masses at ±ε on the lattice: the polygon then keeps them as they are
        step = pure / math.ceil(pure / step)
    return step


@lru_cache(maxsize=4096)
def _spread(loss: PrivacyLoss, direction: Direction) -> float:
    return spread(loss, direction)


def _tail(loss: Composed, delta: float) -> float:
    return max(min(delta * 1e-5 / loss.steps, 1e-18), 1e-280)


@lru_cache(maxsize=64)
def _upper_items(loss: Composed, direction: Direction, step: float, tail: float) -> tuple[tuple[Lattice, int], ...]:
    return tuple((upper(part, direction, step, tail), count) for part, count in loss.parts)


@lru_cache(maxsize=256)
def _numeric_up(loss: Composed, direction: Direction, delta: float) -> float:
    if _worthless(loss):
        return math.inf
    step = _step(loss, direction, STEP)
    items = _upper_items(loss, direction, step, _tail(loss, delta))
    if fourier.infinite_mass(items) >= delta:
        return math.inf
    best = math.inf
    for curve in _curves(items, delta):
        found = curve.epsilon_up(delta)
        if found is not None and math.isfinite(found):
            return max(0.0, min(best, up(found)))
        if found is None:
            # every point of the window is fine, so its first one bounds; another tilt may do better
            best = min(best, max(0.0, up(float(curve.epsilons[0]))))
            if best == 0:
                break
    return best


def _curves(items: fourier.Items, delta: float) -> Iterable[fourier.Composition]:
    tilt = fourier.tilt_for_delta(items, delta)
    for theta in (tilt, tilt * 0.95, tilt * 0.85, tilt * 1.1, tilt / 4, 0.0):
        # without a curve there is no numeric bound; the caller has others
        with suppress(fourier.TooFineError):
            yield fourier.composed(items, theta)


def _numeric_down(loss: Composed, direction: Direction, delta: float) -> float:
    if _worthless(loss):
        return 0.0
    step = _step(loss, direction, STEP)
    tail = _tail(loss, delta)
    above = math.nextafter(delta, 1.0)  # the exact δ was rounded down
    found = 0.0
    items = _lower_items(loss, direction, step, tail)
    if items is not None:
        for curve in _curves(items, delta):
            low = curve.epsilon_down(above)
            if low is not None:
                found = max(found, low)
                break
    if found < 0.998 * _numeric_up(loss, direction, delta):
        found = max(found, _split_down(loss, direction, above))
    return found


def _lower_items(loss: Composed, direction: Direction, step: float, tail: float) -> list[tuple[Lattice, int]] | None:
    """Merged lattices, or None if a part has no cells or has point masses that can't all lie on one lattice."""
    items: list[tuple[Lattice, int]] = []
    for part, count in loss.parts:
        probe = part.cells(np.array([-step, 0.0, step]), direction)
        if probe is None or (probe.atom_losses.size and len(loss.parts) > 1):
            return None
        lattice = merge.lower(part, direction, step, tail)
        if lattice is None:
            return None
        items.append((lattice, count))
    return items


def _moved(loss: Composed, step: float, miss: float) -> float:
    """How much lower the losses of a polygon have to be read for a bound from below: undo the splitting.

    The polygon through a curve's values at the lattice points splits every loss L between two neighbouring points,
    L̂ = L + D; given L, D takes two values a step h apart whose mean is at most h²/8 (it is the divergence of a
    two-point split of width h). Over n steps Pr[ΣD > n·h²/8 + h·√(n·ln(1/η)/2)] ≤ η (Hoeffding), so
    δ(ε) ≥ δ̂(ε + that) − η.
    """
    n = loss.steps
    return n * step**2 / 8 + step * math.sqrt(n * math.log(1 / miss) / 2)


@lru_cache(maxsize=64)
def _under_items(
    loss: Composed, direction: Direction, step: float, tail: float
) -> tuple[tuple[Lattice, int], ...] | None:
    """The parts' polygons from below, or None if one has none."""
    items = [(under(part, direction, step, tail), count) for part, count in loss.parts]
    known = tuple((lattice, count) for lattice, count in items if lattice is not None)
    return known if len(known) == len(items) else None


def _split_down(loss: Composed, direction: Direction, delta: float) -> float:
    """A bound from below for any curve: polygons that are nowhere above those through the curves, read lower."""
    step = _step(loss, direction, FINE_STEP)
    items = _under_items(loss, direction, step, _tail(loss, delta))
    miss = delta * 1e-3
    for curve in _curves(items, delta) if items else ():
        low = curve.epsilon_down(delta + miss)
        if low is not None:
            return max(0.0, low - _moved(loss, step, miss))
    return 0.0


@lru_cache(maxsize=16)
def _curves_down(loss: Composed, direction: Direction) -> tuple[tuple[fourier.Composition, float, float], ...]:
    """Curves from below through several tilts, each with how much further it has to be asked and what it may miss."""
    if _worthless(loss):
        return ()
    curves = []
    coarse, fine = _step(loss, direction, STEP), _step(loss, direction, FINE_STEP)
    merged, split = _lower_items(loss, direction, coarse, 1e-30), _under_items(loss, direction, fine, 1e-30)
    for delta in SEEN_AT:
        if merged is not None:
            with suppress(fourier.TooFineError):
                curves.append((fourier.composed(merged, fourier.tilt_for_delta(merged, delta)), 0.0, 0.0))
        if split is not None:
            with suppress(fourier.TooFineError):
                curve = fourier.composed(split, fourier.tilt_for_delta(split, delta))
                curves.extend((curve, _moved(loss, fine, miss), miss) for miss in (delta * 1e-3, delta * 1e-6))
    return tuple(curves)


@lru_cache(maxsize=256)
def _delta_up(loss: Composed, direction: Direction, epsilon: float) -> float:
    if _worthless(loss):
        return 1.0
    step = _step(loss, direction, STEP)
    items = _upper_items(loss, direction, step, 1e-30)
    if fourier.infinite_mass(items) >= 1:
        return 1.0
    best = 1.0
    for theta in (fourier.tilt_for_epsilon(items, epsilon), 0.0):
        with suppress(fourier.TooFineError):
            best = min(best, float(fourier.composed(items, theta).delta_up(np.array([epsilon]))[0]))
    return best


@lru_cache(maxsize=16)
def _profile_curves(loss: Composed, direction: Direction) -> tuple[fourier.Composition, ...]:
    """Curves seen through several tilts: each is sharp around its own δ. None if everything is given away."""
    if _worthless(loss):
        return ()
    step = _step(loss, direction, STEP)
    items = _upper_items(loss, direction, step, 1e-30)
    if fourier.infinite_mass(items) >= 1:
        return ()
    tilts = {fourier.tilt_for_delta(items, delta) for delta in SEEN_AT}
    curves = []
    for theta in (0.0, *sorted(tilts)):
        with suppress(fourier.TooFineError):
            curves.append(fourier.composed(items, theta))
    return tuple(curves)
