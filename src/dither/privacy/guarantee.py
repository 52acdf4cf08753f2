"""A guarantee: the promise made to a person, and what it means for somebody who suspects something."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, exp_up, fraction_down, fraction_up, positive, up
from dither.privacy.loss import PrivacyLoss, checked_delta, expect_loss


@dataclass(frozen=True, slots=True, init=False)
class Guarantee:
    """(ε, δ)-differential privacy as a target for calibration and as a sentence.

    Example:
        >>> low, high = Guarantee(epsilon=1).posterior(prior=0.1)
        >>> print(f"{low:.4f} {high:.4f}")
        0.0393 0.2320
        >>> print(Guarantee(epsilon=1).sentence(prior=0.1))
        With ε = 1, a suspicion of 10% about one person becomes at least 3.9% and at most 23.2% after any answer.
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number = 0) -> None:
        exact = checked_delta(delta)
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "delta", exact)

    def met_by(self, loss: PrivacyLoss) -> bool:
        """Whether a loss is surely no worse than this guarantee.

        Args:
            loss: Of what is to be released.
        """
        expect_loss(loss)
        if self.delta == 0:
            return math.isfinite(loss.pure()) and loss.pure_exactly() <= self.epsilon
        cost = loss.epsilon(self.delta)
        return math.isfinite(cost) and Fraction(cost) <= self.epsilon

    def posterior(self, prior: Number, *, failure: Number | None = None) -> tuple[float, float]:
        """Bounds on what a suspicion of ``prior`` can become, for any answer and any side knowledge.

        What is suspected and its opposite must be neighbours: that somebody is in the data or not, under add_remove;
        that it says this or that of them, under replace. What it says of somebody who may also be absent takes two
        changes under add_remove, so twice the ε.

        Guarantee: prior odds change by a factor within e^{±ε} (Dwork et al. 2006). With δ > 0 this can
            fail: outside an event of probability ``failure`` > δ (default 2δ) the odds change by at most e^{±(ε+t)}
            with e^t = (failure + δe^−ε)/(failure − δ). For Pr[loss > ε+t]·(1 − e^−t) ≤ δ in either direction, and odds
            that fall as far have the likelihood of the other direction times e^{−(ε+t)}.

        Args:
            prior: How likely it was held to be before, from 0 to 1.
            failure: The probability of the event outside of which the bounds hold, above δ; 2δ by default.

        Returns:
            The least and the most that it may be held to be afterwards.
        """
        exact = as_fraction(prior, "prior")
        if not 0 <= exact <= 1:
            raise InvalidParameter(f"prior must lie between 0 and 1; got {prior!r}")
        worst = self._worst_loss(failure)
        if exact in (0, 1):
            return float(exact), float(exact)
        odds = exp_up(worst)
        if math.isinf(odds):
            return 0.0, 1.0
        factor = Fraction(odds)
        low, high = exact / (exact + factor * (1 - exact)), exact * factor / (exact * factor + 1 - exact)
        return fraction_down(low), fraction_up(high)

    def _worst_loss(self, failure: Number | None) -> float:
        epsilon = float(self.epsilon)
        if self.delta == 0:
            return epsilon
        chance = 2 * self.delta if failure is None else as_fraction(failure, "failure")
        if not self.delta < chance <= 1:
            raise InvalidParameter(
                f"failure must be above delta ({float(self.delta)}) and at most 1; got {float(chance)}"
            )
        share = float(self.delta) * math.exp(-epsilon)
        return up(epsilon + math.log((float(chance) + share) / float(chance - self.delta)))

    def sentence(self, prior: Number = Fraction(1, 10)) -> str:
        """The guarantee in plain words, for a given suspicion; rounded outwards to a tenth of a per cent.

        The suspicion is about what the adjacency hides: that somebody is in the data (add_remove), or what it says of
        them (replace). With δ it may fail with a chance of 100 δ: there the bounds are nearly those of ε alone.

        Args:
            prior: How likely it was held to be before.
        """
        failure = min(100 * self.delta, Fraction(1)) if self.delta else None
        low, high = self.posterior(prior, failure=failure)
        belief = float(as_fraction(prior))
        least, most = math.floor(1000 * Fraction(low)) / 10, math.ceil(1000 * Fraction(high)) / 10
        text = (
            f"With ε = {float(self.epsilon):.3g}, a suspicion of {100 * belief:.3g}% about one person becomes "
            f"at least {least:.1f}% and at most {most:.1f}% after any answer"
        )
        if failure is not None:
            text += f", but for a chance of {float(failure):.2g}"
        return text + "."

    def __str__(self) -> str:
        return self.sentence()
