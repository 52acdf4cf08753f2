"""Calibration: the least noise that meets a guarantee, or the most that meets an error target."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, TypeVar

from dither.errors import InvalidParameter, NotPrivate
from dither.numeric import DEFAULT_CONFIDENCE, Number, fraction_up, largest_true, positive, probability
from dither.privacy.guarantee import Guarantee
from dither.privacy.loss import PrivacyLoss
from dither.privacy.sensitivity import Sensitivity

SMALLEST_SCALE, LARGEST_SCALE = 1e-12, 1e18


class Scaled(Protocol):
    """A mechanism whose noise is described by its size."""

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The cost of one release."""
        ...

    def error(self, confidence: Number) -> float:
        """The error not exceeded with this confidence."""
        ...


M = TypeVar("M", bound=Scaled)
Plan = Callable[[PrivacyLoss], PrivacyLoss]


def calibrate(
    mechanism: Callable[..., M],
    guarantee: Guarantee | None = None,
    sensitivity: Sensitivity | None = None,
    *,
    plan: Plan | None = None,
    error: Number | None = None,
    confidence: Number = DEFAULT_CONFIDENCE,
    tolerance: float = 1e-5,
) -> M:
    """The mechanism with the least noise that meets ``guarantee``, or the most noise that meets ``error``.

    ``plan`` turns the loss of one release into that of the whole run, for instance
    ``lambda loss: 1000 * dp.poisson(loss, rate=0.01)``. The result meets the target, and a scale smaller (larger)
    by ``tolerance`` would not.

    Args:
        mechanism: Class, or function of ``scale``, that makes the mechanism.
        guarantee: Target, with ``sensitivity``; or give an error.
        sensitivity: How far one unit moves the answer, with its norm.
        plan: What becomes of the loss of one release: repetition, sampling; by default nothing.
        error: Largest absolute error, in place of a guarantee; says nothing about the cost.
        confidence: Probability with which the error holds.
        tolerance: Relative excess of a scale that is searched for; it is never too small.

    Returns:
        The mechanism with the least noise that meets the guarantee, or the most that meets the error.

    Raises:
        NotPrivate: No scale meets the guarantee.

    Example:
        >>> from dither.mechanisms import Laplace
        >>> calibrate(Laplace, Guarantee(epsilon=1), Sensitivity.l1(1))
        Laplace(scale=Fraction(1, 1))
        >>> calibrate(Laplace, error=50).error(confidence=0.95) <= 50
        True
    """
    if (guarantee is None) == (error is None):
        raise InvalidParameter("give either a guarantee (with a sensitivity) or an error target, not both")
    if error is not None:
        return _for_error(mechanism, positive(error, "error"), confidence)
    if guarantee is None or sensitivity is None:
        raise InvalidParameter(
            "a guarantee needs the sensitivity of the answer too: calibrate(mechanism, guarantee, sensitivity)"
        )
    if plan is None:
        closed = getattr(mechanism, "calibrated", None)
        if closed is not None and (exact := closed(guarantee, sensitivity)) is not None:
            # losses answer in floats that are rounded up: the exact solution may miss by that much
            for nudge in (0, 2**-44, 2**-36, 2**-28, 2**-20):
                nudged = mechanism(scale=exact.scale * (1 + Fraction(nudge))) if nudge else exact
                if guarantee.met_by(nudged.loss(sensitivity)):
                    return nudged
            raise NotPrivate(
                f"ε = {float(guarantee.epsilon):g}, δ = {float(guarantee.delta):g} is less than one release of "
                "this mechanism can be charged (a sensitivity below 2^-16 scales is charged as that): allow more, "
                "or use a whole-number mechanism"
            )
    return _for_guarantee(mechanism, guarantee, sensitivity, plan, tolerance)


def _for_guarantee(
    mechanism: Callable[..., M], guarantee: Guarantee, sensitivity: Sensitivity, plan: Plan | None, tolerance: float
) -> M:
    from scipy.optimize import brentq  # slow to import, and closed forms don't need it

    target = float(guarantee.epsilon)

    def run(scale: float) -> PrivacyLoss:
        loss = mechanism(scale=scale).loss(sensitivity)
        return plan(loss) if plan is not None else loss

    def excess(log_scale: float) -> float:
        value = run(math.exp(log_scale)).epsilon(guarantee.delta)
        if value == 0.0:
            return -50.0
        return min(50.0, math.log(value / target)) if math.isfinite(value) else 50.0

    low = high = math.log(_typical(sensitivity))
    value = excess(low)
    step = math.log(2)
    while value > 0:
        low, high = high, high + step
        step *= 1.5
        if high > math.log(LARGEST_SCALE):
            raise NotPrivate(
                f"no scale up to {LARGEST_SCALE:g} meets ε = {target:g}, δ = {float(guarantee.delta):g}: "
                "this mechanism needs a larger δ, or the plan costs more than any noise can hide"
            )
        value = excess(high)
    if low == high:
        step = math.log(2)
        while value <= 0:
            low, high = low - step, low
            step *= 1.5
            if low < math.log(SMALLEST_SCALE):
                break
            value = excess(low)
    if excess(low) > 0:
        high = float(brentq(excess, low, high, xtol=tolerance / 4))
    # the root may lie on either side: step up until the target is surely met
    scale = math.exp(high)
    while not guarantee.met_by(run(scale)):
        scale *= 1 + tolerance / 2
    return mechanism(scale=scale)


def _typical(sensitivity: Sensitivity) -> float:
    return max(fraction_up(sensitivity.bound) * math.sqrt(sensitivity.groups or 1), 1e-9)


def _for_error(mechanism: Callable[..., M], error: Fraction, confidence: Number) -> M:
    probability(confidence, "confidence")
    target = float(error)

    def size(scale: float) -> float:
        return mechanism(scale=scale).error(confidence)

    low = high = target
    while size(low) > target:
        low, high = low / 2, low
        if low < SMALLEST_SCALE:
            raise InvalidParameter(f"no scale has an error as small as {target:g}")
    while size(high) <= target:
        low, high = high, high * 2
    return mechanism(scale=largest_true(lambda scale: size(scale) <= target, low, high, relative=1e-13))
