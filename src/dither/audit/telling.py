"""Where on a claim's curve a bound on ε says most: at δ = 0 for pure claims, at a δ that samples can see for others."""

from __future__ import annotations

import math

import numpy as np

from dither.privacy import ApproximateLoss, PrivacyLoss

# A pure ε above this needs events so rare that few draws would show them.
LARGEST_SEEN = 6.0
# A stated δ below this is too rare to be met.
SMALLEST_SEEN = 1e-3
PART = 0.25


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
