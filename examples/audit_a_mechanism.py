"""Audit a claim: noise that is a tenth too small is caught, with the event that shows it; the right one holds.

Run it: python examples/audit_a_mechanism.py
"""

import numpy as np

import dither as dp
from dither import audit

rng = np.random.default_rng()


def count_with_too_little_noise(count: int, n: int) -> np.ndarray:
    """Claims ε = 1, has the noise of ε = 1.1."""
    success = 1 - np.exp(-1.1)
    return count + rng.geometric(success, n) - rng.geometric(success, n)


wrong = audit.lower_bound(audit.Batched(count_with_too_little_noise), 100, 101, claim=1, budget="10s")
print(wrong, end="\n\n")

right = audit.lower_bound(dp.DiscreteLaplace(scale=1), 100, 101, sensitivity=dp.Sensitivity.l1(1), budget="2s")
print(right)
