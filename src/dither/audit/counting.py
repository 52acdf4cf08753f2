"""What counts of an event say about its probabilities, and how the allowed failure is shared among several statements.

Nothing here is an approximation, except ``likely_bounds``, which only ever helps to choose what is counted later on
other draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dither.mechanisms.base import Floats
from dither.numeric import down
from dither.numeric.binomial import at_least_down, at_most_up

# Of the failure that an event may have: what decides (p from below, q from above) and what is only shown beside it.
DECIDING = 0.45
SHOWN = 0.05


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Between which two numbers a probability lies."""

    low: float
    high: float

    @property
    def complement(self) -> Enclosure:
        """The same about the complement of the event; moved outward by what the subtraction rounds."""
        return Enclosure(max(0.0, down(1 - self.high, 2.0**-50)), min(1.0, (1 - self.low) * (1 + 2.0**-50)))


def event_intervals(in_p: int, p_draws: int, in_q: int, q_draws: int, failure: float) -> tuple[Enclosure, Enclosure]:
    """Intervals of an event's probability under both inputs; all four ends hold together but for ``failure``.

    The ends that decide, p from below and q from above, get nine tenths of it.
    """
    p = Enclosure(at_least_down(in_p, p_draws, failure * DECIDING), at_most_up(in_p, p_draws, failure * SHOWN))
    q = Enclosure(at_least_down(in_q, q_draws, failure * SHOWN), at_most_up(in_q, q_draws, failure * DECIDING))
    return p, q


def epsilon_down(p_low: float, q_high: float, delta: float) -> float:
    """The ε ≥ 0 that P(S) ≥ p_low and Q(S) ≤ q_high force at this δ: ln((p − δ)/q), rounded down."""
    excess = down(p_low - delta, 2.0**-50)
    if excess <= 0 or q_high <= 0 or excess <= q_high:
        return 0.0
    return max(0.0, down(math.log(excess / q_high), 2.0**-48) - 2.0**-50)


# ------------------------------------------------------------------ looks

# Shares of the planned draws at which the counts are looked at before they are complete.
EARLY = (*(Fraction(1, 2**power) for power in range(7, 0, -1)), Fraction(3, 4))


@dataclass(frozen=True, slots=True)
class Look:
    """When the counts are looked at: after so many blocks, with this share of the allowed failure."""

    blocks: int
    share: float


def looks(planned: int) -> Iterator[Look]:
    """All looks, fixed before the first draw that counts: some early, the planned one, and later ones without end.

    Shares add up to at most 1, so what is concluded at any of them, whenever one stops, holds together (the union
    bound). Half belongs to the planned look, a quarter to the early ones, a quarter to the later ones.
    """
    early = sorted({math.floor(planned * part) for part in EARLY} - {0, planned})
    for blocks in early:
        yield Look(blocks, 0.25 / len(EARLY))
    yield Look(planned, 0.5)
    blocks, share = planned, 0.25
    while True:
        blocks, share = blocks + max(1, blocks // 4), share / 2
        yield Look(blocks, share)


# ------------------------------------------------------------------ for choosing only


def likely_bounds(inside: Floats, draws: int, z: float) -> tuple[Floats, Floats]:
    """Wilson's (1927) interval at z standard errors: quick, and good enough to choose an event by."""
    share = inside / draws
    width = 1 + z * z / draws
    middle = share + z * z / (2 * draws)
    half = z * np.sqrt(share * (1 - share) / draws + z * z / (4 * draws * draws))
    return np.clip((middle - half) / width, 0.0, 1.0), np.clip((middle + half) / width, 0.0, 1.0)
