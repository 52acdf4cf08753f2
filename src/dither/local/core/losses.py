"""The loss of a report that speaks about one pair of values only now and then.

Seen by two values u and v, a report of every frequency oracle here is one of three things: it speaks for u (with
probability odds·w if u is the truth, w if v is), it speaks for v (the other way round), or it says nothing about which
of the two is true. So the pair has the curve H(ε) = w·(odds − e^ε)₊, whatever the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss, check_odds
from dither.numeric import as_fraction
from dither.privacy import Adjacency, PrivacyLoss


@dataclass(frozen=True, slots=True)
class ThinnedResponseLoss(KaryResponseLoss, kind="thinned_response"):
    """A response among k categories where k needn't be whole: what k-ary response generalises to.

    Guarantee: with w = 1/(odds + k − 1) the loss is ±ln(odds) with masses odds·w and w, and 0 otherwise. All views of
        KaryResponseLoss are functions of odds and w, and hold for every w ≤ 1/(odds + 1), that is for every k ≥ 2.

    Example:
        >>> loss = ThinnedResponseLoss(Fraction(3), Fraction(11, 2))
        >>> loss.weight, f"{loss.delta(0):.6f}"
        (Fraction(2, 15), '0.266667')
    """

    categories: Fraction  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", check_odds(self.odds))
        object.__setattr__(self, "categories", as_fraction(self.categories, "categories"))
        if self.categories < 2:
            raise InvalidParameter(f"a response tells at least 2 categories apart; got {self.categories}")


def response_loss(odds: Fraction, weight: Fraction, adjacency: Adjacency = Adjacency.REPLACE) -> PrivacyLoss:
    """The loss whose curve is weight·(odds − e^ε)₊, in its simplest form.

    Example:
        >>> response_loss(Fraction(3), Fraction(1, 4)), response_loss(Fraction(2), Fraction(1, 6)).categories
        (RandomizedResponseLoss(odds=Fraction(3, 1), adjacency=<Adjacency.REPLACE: 'replace'>), 5)
    """
    categories = 1 / weight + 1 - odds
    if categories == 2:
        return RandomizedResponseLoss(odds, adjacency)
    if categories.denominator == 1:
        return KaryResponseLoss(odds, int(categories), adjacency)
    return ThinnedResponseLoss(odds, categories, adjacency)
