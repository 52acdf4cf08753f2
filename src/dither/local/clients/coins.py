"""Coins for one person's report: exact, from the operating system, and countable.

A client uses two kinds of chance only: a coin of a rational probability and a uniform whole number. So the law of what
it sends can be computed exactly by running the client itself on every outcome of its coins (``law_of``), instead of
trusting a formula about it. This module needs nothing but Python.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Protocol, TypeVar

from dither.errors import InvalidParameter

T = TypeVar("T", bound=Hashable)


class Coins(Protocol):
    """Where a client's chance comes from."""

    def chance(self, p: Fraction) -> bool:
        """True with probability exactly ``p``."""

    def below(self, n: int) -> int:
        """A uniform whole number from 0 to n − 1."""


class SystemCoins:
    """The operating system's generator; every number is uniform without bias, so every probability is exact."""

    def chance(self, p: Fraction) -> bool:
        """True with probability exactly ``p``: a uniform number below the denominator against the numerator."""
        # whole numbers are compared in a fraction of the time that fractions take
        top, bottom = p.numerator, p.denominator
        if not 0 <= top <= bottom:
            raise InvalidParameter(f"a probability lies between 0 and 1; got {p}")
        return secrets.randbelow(bottom) < top

    def below(self, n: int) -> int:
        """A uniform whole number from 0 to n − 1."""
        return secrets.randbelow(n)


SYSTEM = SystemCoins()


def law_of(draw: Callable[[Coins], T], *, most: int = 1_000_000) -> dict[T, Fraction]:
    """The exact law of what ``draw`` returns, by running it once for every way that its coins can fall.

    ``draw`` must use its coins alone. Raises InvalidParameter if there are more than ``most`` ways.

    Example:
        >>> law = law_of(lambda coins: coins.chance(Fraction(1, 3)) or coins.below(2))
        >>> {outcome: str(p) for outcome, p in law.items()}
        {True: '2/3', 0: '1/3'}
    """
    law: dict[T, Fraction] = {}
    todo: list[tuple[int, ...]] = [()]
    ways = 0
    while todo:
        ways += 1
        if ways > most:
            raise InvalidParameter(f"more than {most} ways for the coins to fall: use a smaller domain")
        coins = _Scripted(todo.pop())
        outcome = draw(coins)
        law[outcome] = law.get(outcome, Fraction(0)) + coins.probability
        todo.extend(coins.others)
    return law


class _Scripted:
    """Coins that fall as a script says and, beyond its end, the first way; the other ways are kept for later."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.others: list[tuple[int, ...]] = []
        # the probability of what fell so far, not yet reduced
        self._top = self._bottom = 1
        self._script = script
        self._fallen: tuple[int, ...] = ()

    @property
    def probability(self) -> Fraction:
        return Fraction(self._top, self._bottom)

    def chance(self, p: Fraction) -> bool:
        top, bottom = p.numerator, p.denominator
        if top in (0, bottom):
            return top == bottom
        fell = self._next(2) == 0
        self._top *= top if fell else bottom - top
        self._bottom *= bottom
        return fell

    def below(self, n: int) -> int:
        if n < 1:
            raise InvalidParameter(f"a uniform number needs at least one value; got {n}")
        fell = self._next(n)
        self._bottom *= n
        return fell

    def _next(self, ways: int) -> int:
        place = len(self._fallen)
        if place < len(self._script):
            way = self._script[place]
        else:
            way = 0
            self.others += [(*self._fallen, other) for other in range(1, ways)]
        self._fallen += (way,)
        return way
