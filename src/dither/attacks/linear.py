"""Reconstruction of a column of bits from noisy counts of subsets: linear programming and least squares.

The attacker's algorithms by themselves, for any release of counts: ``answers`` has one number for each row of
``subsets``, and that row has a 1 for everybody who was counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array, csr_array, eye_array, hstack
from scipy.sparse.linalg import lsmr

from dither.attacks.base import Bits
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms import DiscreteLaplace
from dither.mechanisms.base import Floats
from dither.numeric import Number, probability

# Of the residual, relative: bits are rounded at a half, so this is far more than is needed.
TOLERANCE = 1e-9


def reconstruct_lp(answers: Any, subsets: Any) -> Bits:
    """The bits whose counts are nearest to the answers in the sum of absolute differences, by linear programming.

    It finds the fractions in [0, 1] that are nearest and rounds them (Dwork, McSherry & Talwar 2007). Answers that are
    altogether wrong hardly disturb it, as long as there are few of them: below 23.9% if subsets are weighted by
    Gaussians and there are enough.

    Example:
        >>> reconstruct_lp([1, 1, 2], [[1, 1, 0], [0, 1, 1], [1, 0, 1]]).astype(int)
        array([1, 0, 1])
    """
    right, left = _system(answers, subsets)
    questions, people = left.shape
    # answers = subsets·x + too much − too little
    both = hstack([csc_array(left), eye_array(questions), -eye_array(questions)], format="csc")
    found = linprog(
        np.concatenate([np.zeros(people), np.ones(2 * questions)]),
        A_eq=both,
        b_eq=right,
        bounds=[(0.0, 1.0)] * people + [(0.0, math.inf)] * (2 * questions),
        method="highs",
    )
    if found.x is None:
        raise InvalidData("the linear program has no solution: answers and subsets must be finite numbers")
    return np.asarray(found.x[:people] > 0.5)


def reconstruct_least_squares(answers: Any, subsets: Any, *, variance: Any = 0.0, prior: Number = 0.5) -> Bits:
    """The bits that are likelier than not, by least squares with everything that is known about noise and bits.

    ``variance`` is that of the noise, one for all answers or one for each; ``prior`` is the share of bits that are set.
    This is the best linear estimate of the bits (the posterior mean, were they Gaussian with mean ``prior`` and
    variance prior·(1 − prior)), rounded at a half. Where noise is large, nothing does noticeably better; where it is
    small, it doesn't matter.

    Example:
        >>> reconstruct_least_squares([2, 3, 0], [[1, 1, 0], [1, 1, 1], [0, 0, 0]], variance=0.1).astype(int)
        array([1, 1, 1])
    """
    right, left = _system(answers, subsets)
    share = float(probability(prior, "prior"))
    if not 0 < share < 1:
        raise InvalidParameter(f"prior must lie strictly between 0 and 1, or every bit is known; got {prior!r}")
    spread = np.broadcast_to(np.asarray(variance, dtype=np.float64), right.shape)
    if not (np.isfinite(spread).all() and (spread >= 0).all()):
        raise InvalidParameter("variance must be a number of at least 0, or one for each answer")
    # exact answers weigh as if they had a little noise: a thousandth of a person
    weights = 1 / np.sqrt(np.maximum(spread, 1e-6))
    # By products of matrix and vector alone: threads of a dense solver get into each other's way on busy machines.
    found = lsmr(
        csr_array(left * weights[:, np.newaxis]),
        weights * (right - left.sum(axis=1) * share),
        damp=1 / math.sqrt(share * (1 - share)),
        atol=TOLERANCE,
        btol=TOLERANCE,
        conlim=0.0,
        maxiter=20 * max(left.shape),
    )
    return np.asarray(share + found[0] > 0.5)


def _system(answers: Any, subsets: Any) -> tuple[Floats, Floats]:
    right, left = np.asarray(answers, dtype=np.float64), np.asarray(subsets, dtype=np.float64)
    if left.ndim != 2 or right.shape != left.shape[:1] or left.size == 0:
        raise InvalidData("give one answer for each row of subsets, which has a column for each person")
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        raise InvalidData("answers and subsets must be finite numbers")
    return right, left


def variance_of(noise: DiscreteLaplace) -> float:
    """The variance of discrete Laplace noise, 2q/(1−q)² with q = e^{−1/scale}.

    Example:
        >>> f"{variance_of(DiscreteLaplace(scale=10)):.2f}"
        '199.83'
    """
    # 2q/(1−q)² = 1/(2·sinh²(1/(2·scale)))
    return float(1 / (2 * math.sinh(1 / (2 * float(noise.scale))) ** 2))
