"""How (ε, δ) and what a question costs are exchanged with the ledger's currency, and read back as ε.

With ``delta_budget = 0`` pure ε are added. Otherwise a question of (ε, δ) buys ρ of zero-concentrated privacy, the
largest whose ε at the question's δ is no more than asked. The ledger adds ρ, ε, Rényi divergences and, apart, the δ of
discovered keys, and lets a question through while any of the sums is within its cap, which is a valid filter for
analysts who choose adaptively (``privacy/filters.md``). Half of a δ pays for reading sums as ε, the other half for key
selection; a question with public keys uses all of its δ for reading.

What was spent *so far* is read off the ledger's other sums, of ε and of Rényi divergences, which have their own shares
of the reading's δ: a filter's reading of ρ holds for whoever is stopped by the budget, and not at a moment that the
answers chose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dither.errors import Refused
from dither.ledger import Amount, Currency, Limit, Quantity, Sum
from dither.ledger.amount import DELTA_UNITS, MAIN_UNITS
from dither.numeric import down, fraction_down, fraction_up
from dither.privacy.filters import zcdp_epsilon_so_far
from dither.privacy.renyi import epsilon_of_order, epsilon_so_far
from dither.privacy.zcdp import zcdp_bought, zcdp_epsilon, zcdp_for_epsilon

if TYPE_CHECKING:
    from dither.query.price.noise import QueryBudget

HALF = Fraction(1, 2)


# for caps, which owners set: what analysts ask for is kept by analyst, in Pricing
@lru_cache(maxsize=4096)
def _rho_of_cap(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ, rounded down, whose ε(δ) is at most ``epsilon``."""
    return Fraction(zcdp_for_epsilon(fraction_down(epsilon), fraction_down(delta)))


# balances are read far more often than they change
_by_levels = lru_cache(maxsize=4096)(zcdp_epsilon_so_far)


def _read_as_epsilon(rho: Fraction, delta: Fraction) -> float:
    """ρ as ε at δ, rounded up."""
    return zcdp_epsilon(fraction_up(rho), fraction_down(delta))


@dataclass(frozen=True, slots=True)
class Exchange:
    """The rates of one dataset, fixed by its ``delta_budget``.

    Example:
        >>> Exchange(Fraction(0)).for_question(Fraction(1, 2), Fraction(0), discover=False).main
        Fraction(1, 2)
        >>> rates = Exchange(Fraction(1, 10**6))
        >>> bought = rates.for_question(Fraction(1, 2), Fraction(1, 10**8), discover=False)
        >>> bought.kind, 0.49 < rates.epsilon_of_question(bought, Fraction(1, 10**8)) <= 0.5
        ('zcdp', True)
    """

    delta_budget: Fraction
    kept: tuple[Sum, ...] | None = None

    @property
    def currency(self) -> Currency:
        """What amounts are told in."""
        return Currency.ZCDP if self.delta_budget else Currency.PURE

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What the ledger adds up; a new one's, where none was given."""
        return self.kept or self.currency.sums

    def limit(self, epsilon: Fraction, delta: Fraction | None = None) -> Limit:
        """A cap of (ε, δ) on every sum, rounded down; at the dataset's δ where none is stated."""
        if self.currency is Currency.PURE:
            return Limit.pure(epsilon)
        half = (delta or self.delta_budget) * HALF
        first, *further = self.sums
        others = tuple(_cap_of(one, epsilon, half) for one in further)
        return Limit.zcdp(_rho_of_cap(epsilon, half * first.share), half, others)

    def for_question(self, epsilon: Fraction, delta: Fraction, *, discover: bool) -> QueryBudget:
        """What a question of (ε, δ) may use."""
        return self.bought(epsilon, delta, discover=discover)[0]

    def bought(self, epsilon: Fraction, delta: Fraction, *, discover: bool) -> tuple[QueryBudget, float]:
        """What a question of (ε, δ) may use, and the ε of that by itself, as ``epsilon_of_question`` reads it."""
        from dither.query.price.noise import QueryBudget  # slow to import, and records don't need it

        if self.currency is Currency.PURE:
            return QueryBudget(kind="pure", main=epsilon, delta=Fraction(0)), fraction_up(epsilon)
        keys = delta * HALF if discover else Fraction(0)
        rho, read = zcdp_bought(fraction_down(epsilon), fraction_down(delta - keys))
        if rho * MAIN_UNITS < 1:  # less than what a ledger can book
            raise Refused(
                f"ε = {float(epsilon):.3g} is too little to buy any answer at δ = {float(delta):.3g}",
                code="epsilon_too_small",
                hint="Ask with a larger epsilon.",
            )
        return QueryBudget(kind="zcdp", main=Fraction(rho), delta=keys), read

    def epsilon_of_question(self, budget: QueryBudget, delta: Fraction) -> float:
        """The ε of a question by itself, at its δ; rounded up."""
        if budget.kind != "zcdp":
            return fraction_up(budget.main)
        return _read_as_epsilon(budget.main, delta - budget.delta)

    @property
    def has_orders(self) -> bool:
        """Whether what was spent so far can be read off Rényi orders; ledgers of format 1 have none."""
        return any(one.order is not None for one in self.sums)

    def epsilon_so_far(self, spent: Amount, delta: Fraction | None = None, cap: Fraction | None = None) -> float:
        """What was spent by now, as ε at this δ, or at the dataset's; it may be read at any moment, and rounds up.

        ``cap`` is the ε of the account's limit, if what was spent is within it and it was stated before anything was
        spent: one that the answers may have chosen is a reading of ρ at a moment of one's choice. A ledger without
        orders is read by levels, for a δ of its own: the cap, whose δ that isn't, can't lower it. The sum of ε can,
        for it needs no δ.
        """
        main = None if spent.main is None else Fraction(spent.main, MAIN_UNITS)
        if self.currency is Currency.PURE:
            assert main is not None
            return fraction_up(main)
        half = (delta or self.delta_budget) * HALF
        pure, divergences = None, []
        for one, units in zip(self.sums[1:], spent.others or (0,) * len(self.sums[1:]), strict=True):
            total = None if units is None else Fraction(units, MAIN_UNITS)
            if one.order is not None:
                divergences.append((one.order, total, half * one.share))
            else:
                pure = total
        if not self.has_orders:
            levels = math.inf if main is None else _by_levels(main, half)
            return levels if pure is None else min(levels, fraction_up(pure))
        return epsilon_so_far(pure=pure, divergences=divergences, cap=cap)

    def delta_so_far(self, spent: Amount, delta: Fraction | None = None) -> Fraction:
        """The δ that belongs to ``epsilon_so_far``: all shares of the reading's half, and what keys took."""
        if self.currency is Currency.PURE:
            return Fraction(0)
        return (delta or self.delta_budget) * HALF + Fraction(spent.delta, DELTA_UNITS)

    def in_words(self, amount: Amount) -> str:
        """What the ledger adds up for a question, said so that its δ isn't taken for the δ of the question."""
        if self.currency is Currency.PURE:
            return f"charged as {amount.in_words(self.currency)}"
        main = amount.main_in_words(self.currency)
        keys = Fraction(amount.delta, DELTA_UNITS)
        return f"charged as {main}" + (f", and δ = {float(keys):.2g} for discovering keys" if keys else "")


def _cap_of(one: Sum, epsilon: Fraction, delta: Fraction) -> int:
    """The most that a sum may reach within (ε, δ), in the ledger's units."""
    if one.quantity is Quantity.EPSILON:
        return int(epsilon * MAIN_UNITS)
    assert one.order is not None
    toll = epsilon_of_order(0.0, one.order, fraction_down(delta * one.share))
    return max(0, int(Fraction(down(fraction_down(epsilon) - toll)) * MAIN_UNITS))
