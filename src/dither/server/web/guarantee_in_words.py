"""What a guarantee means for one person: how far a suspicion can move, in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dither.privacy import Adjacency, Guarantee

# With δ the bounds hold but for a small chance: the larger it may be, the closer they are to those of ε alone.
TIMES_DELTA = 100
PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """How strong a suspicion was, and what it can become."""

    before: str
    low: str
    high: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A guarantee as people read it.

    ``suspects`` says of what somebody is suspected: the bounds hold for the change that the adjacency protects. Where
    that is being there or not, ``besides`` says what holds for what is written about somebody (two such changes).
    """

    epsilon: str
    suspects: str
    besides: str
    suspicions: tuple[Suspicion, ...]
    but_for: str

    @property
    def sentence(self) -> str:
        """The middle suspicion in one sentence."""
        one = self.suspicions[len(self.suspicions) // 2]
        return (
            f"A suspicion of {one.before} {self.suspects} becomes at least {one.low} and at most {one.high} by this "
            f"answer{self.but_for}."
        )


def meaning_of(guarantee: Guarantee, adjacency: Adjacency) -> Meaning:
    """What the guarantee means, with bounds rounded outwards.

    Example:
        >>> print(meaning_of(Guarantee(epsilon=1), Adjacency.ADD_REMOVE).sentence)
        A suspicion of 10% that somebody is in the data becomes at least 3.92% and at most 23.20% by this answer.
    """
    failure = min(guarantee.delta * TIMES_DELTA, Fraction(1))
    present = adjacency is Adjacency.ADD_REMOVE
    twice = "twice the ε and a larger δ" if guarantee.delta else "twice the ε"
    return Meaning(
        epsilon=f"{float(guarantee.epsilon):.3g}",
        suspects="that somebody is in the data" if present else "about what the data says of somebody",
        besides=f"For a suspicion about what the data says of somebody, count {twice}." if present else "",
        suspicions=tuple(_suspicion(guarantee, prior, failure) for prior in PRIORS),
        but_for=f", but for a chance of {_one_in(failure)}" if failure else "",
    )


def _one_in(chance: Fraction) -> str:
    """A small chance as people say it, never made smaller: two digits of the other number, rounded down."""
    number = math.floor(1 / chance)
    step = 10 ** max(0, len(str(number)) - 2)
    return f"1 in {number // step * step:,}"


def _suspicion(guarantee: Guarantee, prior: Fraction, failure: Fraction) -> Suspicion:
    low, high = guarantee.posterior(prior, failure=failure or None)
    # outwards, to a hundredth of a per cent
    least, most = math.floor(1e4 * low) / 100, math.ceil(1e4 * high) / 100
    return Suspicion(f"{100 * float(prior):g}%", f"{least:.2f}%", f"{most:.2f}%")
