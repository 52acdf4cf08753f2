"""How the ε and δ that people read become the currency that the ledger adds up, and back.

With ``delta_budget = 0`` pure ε are added. Otherwise a question of (ε, δ) buys ρ of zero-concentrated privacy, the
largest whose ε at the question's δ is no more than asked, and the ledger adds ρ and, apart, the δ of discovered keys:
both sums are valid filters for analysts who choose adaptively (Feldman & Zrnic 2021; Whitehouse et al. 2023). Half of a
δ pays for reading ρ as ε, the other half for key selection; a question with public keys uses all of its δ for reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dither.errors import Refused
from dither.ledger import Amount, Currency, Limit
from dither.ledger.amount import DELTA_UNITS, MAIN_UNITS
from dither.numeric import fraction_down, fraction_up
from dither.privacy.renyi import zcdp_bought, zcdp_epsilon, zcdp_for_epsilon

if TYPE_CHECKING:
    from dither.query.price import QueryBudget

HALF = Fraction(1, 2)


# for caps, which owners set: what analysts ask for is kept by analyst, in Pricing
@lru_cache(maxsize=4096)
def _rho_of_cap(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ, rounded down, whose ε(δ) is at most ``epsilon``."""
    return Fraction(zcdp_for_epsilon(fraction_down(epsilon), fraction_down(delta)))


@lru_cache(maxsize=4096)
def _balance_as_epsilon(rho: Fraction, delta: Fraction) -> float:
    """Balances are read far more often than they change."""
    return _read_as_epsilon(rho, delta)


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

    @property
    def currency(self) -> Currency:
        """What is added up."""
        return Currency.ZCDP if self.delta_budget else Currency.PURE

    def limit(self, epsilon: Fraction, delta: Fraction | None = None) -> Limit:
        """A cap of (ε, δ) in the ledger's currency, rounded down; at the dataset's δ where none is stated."""
        if self.currency is Currency.PURE:
            return Limit.pure(epsilon)
        half = (delta or self.delta_budget) * HALF
        return Limit.zcdp(_rho_of_cap(epsilon, half), half)

    def for_question(self, epsilon: Fraction, delta: Fraction, *, discover: bool) -> QueryBudget:
        """What a question of (ε, δ) may use."""
        return self.bought(epsilon, delta, discover=discover)[0]

    def bought(self, epsilon: Fraction, delta: Fraction, *, discover: bool) -> tuple[QueryBudget, float]:
        """What a question of (ε, δ) may use, and the ε of that by itself, as ``epsilon_of_question`` reads it."""
        from dither.query.price import QueryBudget  # slow to import, and records don't need it

        if self.currency is Currency.PURE:
            return QueryBudget(kind="pure", main=epsilon, delta=Fraction(0)), fraction_up(epsilon)
        keys = delta * HALF if discover else Fraction(0)
        rho, read = zcdp_bought(fraction_down(epsilon), fraction_down(delta - keys))
        if rho <= 0:
            raise Refused(
                f"ε = {float(epsilon):.3g} is too little to buy any answer at δ = {float(delta):.3g}",
                code="epsilon_too_small",
                hint="Ask with a larger epsilon.",
            )
        return QueryBudget(kind="zcdp", main=Fraction(rho), delta=keys), read

    def epsilon_of_question(self, budget: QueryBudget, delta: Fraction) -> float:
        """The ε of a question by itself, at its δ; rounded up."""
        if self.currency is Currency.PURE:
            return fraction_up(budget.main)
        return _read_as_epsilon(budget.main, delta - budget.delta)

    def epsilon_of(self, spent: Amount, delta: Fraction | None = None) -> float:
        """What was spent in all, read as ε at this δ, or at the dataset's; rounded up."""
        main = Fraction(spent.main, MAIN_UNITS)
        if self.currency is Currency.PURE:
            return fraction_up(main)
        return _balance_as_epsilon(main, (delta or self.delta_budget) * HALF)

    def in_words(self, amount: Amount) -> str:
        """What the ledger adds up for a question, said so that its δ isn't taken for the δ of the question."""
        if self.currency is Currency.PURE:
            return f"charged as {amount.in_words(self.currency)}"
        main = Amount(amount.main, 0).in_words(self.currency).partition(",")[0]
        keys = Fraction(amount.delta, DELTA_UNITS)
        return f"charged as {main}" + (f", and δ = {float(keys):.2g} for discovering keys" if keys else "")
