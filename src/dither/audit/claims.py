"""What a mechanism claims, as the largest probability that the claim leaves to an event.

A claim is a loss: the curve δ(ε) of a guarantee that holds for every ε at once. An event that has probability q on one
input has at most e^ε·q + δ(ε) on a neighbour, whichever ε; the least of these is what the claim allows, and one event
above it is enough to refute the claim. Pure ε and (ε, δ) are claims with the worst curve that they permit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from dither.errors import InvalidParameter
from dither.mechanisms.base import Floats
from dither.numeric import Number, fraction_up
from dither.numeric.rounding import SLACK
from dither.privacy import ApproximateLoss, Guarantee, PrivacyLoss, PureLoss

Claimable: TypeAlias = "PrivacyLoss | Guarantee | Number"

# Beyond e^600 nothing that is drawn can tell; below this δ neither.
LARGEST_EPSILON = 600.0
SMALLEST_DELTA = 1e-14
POINTS = 2001
# Curves with corners (discrete mechanisms, compositions of stated guarantees) are looked at more closely around them.
CORNERS = 100
POINTS_AT_CORNER = 24
# A curve is named by the first of these δ at which it has a finite ε.
SHOWN_DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
# Where on a curve a bound says most: a pure ε above the first needs events so rare that few draws would show them, a
# stated δ below the second is too rare to be met, and of δ(0) events at the third part are frequent.
LARGEST_SEEN = 6.0
SMALLEST_SEEN = 1e-3
PART = 0.25


@dataclass(frozen=True, slots=True)
class Claim:
    """A loss that is claimed, ready to be compared with probabilities of events.

    Example:
        >>> claim = claim_of(1)
        >>> print(claim, claim.epsilon(0))
        ε = 1 1.0
        >>> round(float(claim.largest(np.array([0.1]))[0]), 6)
        0.271828
    """

    loss: PrivacyLoss
    epsilons: Floats = field(init=False, repr=False, compare=False)
    deltas: Floats = field(init=False, repr=False, compare=False)
    _slopes: Floats = field(init=False, repr=False, compare=False)
    _heights: Floats = field(init=False, repr=False, compare=False)
    _turns: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.loss, PrivacyLoss):
            raise InvalidParameter(f"a claim is a loss; got {type(self.loss).__name__}: use claim_of(…) for the rest")
        epsilons, deltas = _curve(self.loss)
        slopes, heights, turns = _lower_envelope(np.exp(epsilons) * (1 + SLACK), deltas)
        names = ("epsilons", "deltas", "_slopes", "_heights", "_turns")
        for name, value in zip(names, (epsilons, deltas, slopes, heights, turns), strict=True):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def largest(self, q: Floats) -> Floats:
        """The largest probability of an event that the claim allows where a neighbour has ``q``; rounded up.

        Every line e^ε·q + δ(ε) bounds it, so any choice of lines is sound; the lowest of them is taken.
        """
        place = np.searchsorted(self._turns, q)
        allowed = (self._slopes[place] * q + self._heights[place]) * (1 + SLACK)
        return np.asarray(np.minimum(allowed, 1.0))

    def epsilon(self, delta: float) -> float:
        """The ε that is claimed at this δ; infinity where none is."""
        return self.loss.epsilon(delta)

    def __str__(self) -> str:
        if isinstance(self.loss, ApproximateLoss) and self.loss.exact_delta:
            return f"ε = {float(self.loss.exact_epsilon):.6g} at δ = {float(self.loss.exact_delta):.3g}"
        if math.isfinite(self.loss.pure()):
            return f"ε = {self.loss.pure():.6g}"
        kind = self.loss.kind.replace("_", " ")
        for delta in SHOWN_DELTAS:
            epsilon = self.loss.epsilon(delta)
            if math.isfinite(epsilon):
                return f"the {kind} curve with ε = {epsilon:.6g} at δ = {delta:g}"
        return f"the {kind} curve, which is infinite at every small δ"


def claim_of(claim: Claimable | Claim) -> Claim:
    """The claim that somebody means by a loss, a guarantee (ε, δ), or a number, which is a pure ε.

    Args:
        claim: A loss, a guarantee, a number or a text such as "1/4"; a claim stays what it is.

    Example:
        >>> claim_of(Guarantee(epsilon=1, delta=1e-6)).epsilon(1e-6)
        1.0
        >>> claim_of(float("nan"))
        Traceback (most recent call last):
        dither.errors.InvalidParameter: claim must be a finite number, a Fraction or a string such as "1/4"; got nan
    """
    if isinstance(claim, Claim):
        return claim
    if isinstance(claim, PrivacyLoss):
        return Claim(claim)
    if isinstance(claim, Guarantee):
        stated = PureLoss(claim.epsilon) if claim.delta == 0 else ApproximateLoss(claim.epsilon, claim.delta)
        return Claim(stated)
    from dither.privacy.loss import nonnegative

    return Claim(PureLoss(nonnegative(claim, "claim")))


def telling_delta(loss: PrivacyLoss) -> float:
    """The δ at which to state a bound: 0 for a small pure ε, a claim's own δ if it can be met, else a quarter of δ(0).

    δ(0) is the largest difference between the probabilities of an event, so events at a quarter of it are frequent.
    The verdict is about the whole curve either way.
    """
    if loss.pure() <= LARGEST_SEEN:
        return 0.0
    if isinstance(loss, ApproximateLoss) and loss.exact_delta >= SMALLEST_SEEN:
        return float(loss.exact_delta)
    zero = np.zeros(1)
    most = max(float(np.asarray(loss.profile(zero, direction))[0]) for direction in loss.directions)
    return 0.0 if most <= 0 or not math.isfinite(most) else float(f"{PART * most:.1e}")


def _curve(loss: PrivacyLoss) -> tuple[Floats, Floats]:
    """Points (ε, δ(ε)) over both signs, the larger of both directions, among them every ε that was stated."""
    pure = loss.pure()
    reach = pure if math.isfinite(pure) else loss.epsilon(SMALLEST_DELTA)
    if not math.isfinite(reach):
        reach = max(loss.reach(SMALLEST_DELTA, direction) for direction in loss.directions)
    reach = min(max(reach, 1e-9), LARGEST_EPSILON)
    points = [0.0, reach]
    if isinstance(loss, ApproximateLoss):
        points.append(min(fraction_up(loss.exact_epsilon), LARGEST_EPSILON))
    stated = np.unique(np.concatenate([points, np.negative(points)]))
    between = np.linspace(-reach, reach, POINTS)
    # a point beside a stated one says nothing more, and slopes between the two would be noise
    apart = np.abs(between[:, None] - stated).min(axis=1) > 1e-6 * reach
    grid = np.unique(np.concatenate([between[apart], stated]))
    deltas = _worst(loss, grid, pure)
    finer = _around_corners(grid, deltas)
    return (grid, deltas) if finer.size == 0 else _merged(loss, grid, deltas, finer, pure)


def _merged(loss: PrivacyLoss, grid: Floats, deltas: Floats, finer: Floats, pure: float) -> tuple[Floats, Floats]:
    every = np.concatenate([grid, finer])
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate([deltas, _worst(loss, finer, pure)])[order]


def _worst(loss: PrivacyLoss, epsilons: Floats, pure: float) -> Floats:
    curves = [np.asarray(loss.profile(epsilons, direction), dtype=np.float64) for direction in loss.directions]
    worst = np.clip(np.nan_to_num(np.maximum.reduce(curves), nan=1.0, posinf=1.0), 0.0, 1.0)
    return np.where(epsilons >= pure, 0.0, worst)


def _around_corners(grid: Floats, deltas: Floats) -> Floats:
    """More points where the curve, convex in e^ε, bends most within one step."""
    odds = np.exp(grid)
    slopes = np.diff(deltas) / np.diff(odds)
    # how far the curve could hang below its chord: the bend times half the step, in parts of what is allowed there
    bend = np.abs(np.diff(slopes)) * np.minimum(np.diff(odds)[1:], np.diff(odds)[:-1])
    share = bend / np.maximum(deltas[1:-1] - slopes[1:] * odds[1:-1], 1e-300)
    worst = np.argsort(-share)[:CORNERS]
    worst = worst[share[worst] > 1e-5] + 1
    if worst.size == 0:
        return np.array([])
    inner = np.linspace(0.0, 1.0, POINTS_AT_CORNER + 2)[1:-1]
    left = grid[worst - 1, None] + (grid[worst] - grid[worst - 1])[:, None] * inner
    right = grid[worst, None] + (grid[worst + 1] - grid[worst])[:, None] * inner
    return np.unique(np.concatenate([left.ravel(), right.ravel()]))


def _lower_envelope(slopes: Floats, heights: Floats) -> tuple[Floats, Floats, Floats]:
    """The lines that are lowest somewhere on [0, 1], steepest first, and the places where the next one takes over."""
    kept: list[int] = []
    turns: list[float] = []
    for line in np.lexsort((heights, -slopes)).tolist():
        turn = 0.0
        while kept:
            steeper = float(slopes[kept[-1]] - slopes[line])
            turn = float(heights[line] - heights[kept[-1]]) / steeper if steeper > 0 else math.inf
            if turn > (turns[-1] if turns else 0.0):
                break
            # the flatter line is lower before the steeper one had its turn
            kept.pop()
            turns = turns[: max(0, len(kept) - 1)]
        if math.isinf(turn):
            continue  # as steep as the last one, and no lower
        if kept:
            turns.append(turn)
        kept.append(line)
    return slopes[kept], heights[kept], np.array(turns)
