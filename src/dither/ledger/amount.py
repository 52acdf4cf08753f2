"""Spending in whole numbers: what a question costs (rounded up) and what may be spent (rounded down)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from dither.errors import IncompatibleLosses, InvalidParameter
from dither.numeric import Number, as_fraction, ceil_div
from dither.privacy import Json, PrivacyLoss

MAIN_UNITS = 10**12
DELTA_UNITS = 10**18
# ε or ρ of a million promises nothing; below it, every sum fits SQLite's 64-bit integers with room to spare
LARGEST = 10**18


class Currency(Enum):
    """What a ledger adds up: its sums are filters that hold for adaptively chosen questions.

    ``PURE`` adds ε (Rogers, Roth, Ullman & Vadhan 2016). ``ZCDP`` adds ρ, and apart from it the δ of approximate
    releases such as key selection (Feldman & Zrnic 2021; Whitehouse, Ramdas, Rogers & Wu 2023).
    """

    PURE = "pure"
    ZCDP = "zcdp"

    @property
    def symbol(self) -> str:
        """The letter of the main part."""
        return "ε" if self is Currency.PURE else "ρ"


@dataclass(frozen=True, slots=True)
class Amount:
    """What was or would be spent: ``main`` counts 1e-12 of ε or ρ, ``delta`` counts 1e-18 of δ.

    Amounts are ordered part by part: ``a <= b`` holds if both parts do.

    Example:
        >>> from dither.privacy import PureLoss
        >>> Amount.of(PureLoss("1/3"), Currency.PURE)
        Amount(main=333333333334, delta=0)
    """

    main: int = 0
    delta: int = 0

    def __post_init__(self) -> None:
        _expect_whole(self.main, "main")
        _expect_whole(self.delta, "delta")

    @classmethod
    def of(cls, loss: PrivacyLoss, currency: Currency) -> Amount:
        """The loss in the currency, rounded up; raises IncompatibleLosses where it has no such view."""
        if currency is Currency.PURE:
            if not math.isfinite(loss.pure()):
                raise IncompatibleLosses(
                    "this budget adds pure ε and this loss has none: ask for Laplace noise and public keys, "
                    "or keep the budget with a δ (zCDP)"
                )
            return cls(_units_up(loss.pure_exactly(), MAIN_UNITS), 0)
        # as ZcdpFilter books it: exactly as stated where the loss is plain zCDP
        if math.isfinite(loss.zcdp()):
            return cls(_units_up(loss.zcdp_exactly(), MAIN_UNITS), 0)
        rho, delta = loss.approximate_zcdp()
        if not (math.isfinite(rho) and math.isfinite(delta)):
            raise IncompatibleLosses("this budget adds zCDP and this loss has no such view, nor an approximate one")
        return cls(_units_up(Fraction(rho), MAIN_UNITS), _units_up(Fraction(delta), DELTA_UNITS))

    def __add__(self, other: Amount) -> Amount:
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(self.main + other.main, self.delta + other.delta)

    def __le__(self, other: Amount) -> bool:
        if not isinstance(other, Amount):
            return NotImplemented
        return self.main <= other.main and self.delta <= other.delta

    def __ge__(self, other: Amount) -> bool:
        return other <= self

    def covers(self, price: Amount) -> bool:
        """Whether a price computed elsewhere is no higher than this one, which was charged.

        Platforms differ in the last places of exp and log. Every price that rests on them carries an allowance of
        2^-44 for that (``dither.numeric``), so what is within 2^-48 and one unit of rounding is covered.
        """
        return self + Amount(1 + (self.main >> 48), 1 + (self.delta >> 48)) >= price

    def to_json(self) -> Json:
        """The permanent form in the log."""
        return {"main": self.main, "delta": self.delta}

    @classmethod
    def from_json(cls, form: object) -> Amount:
        """The inverse of ``to_json``."""
        return cls(*_two_parts(form))

    def in_words(self, currency: Currency) -> str:
        """The exact amount, in decimals.

        Example:
            >>> Amount(1_500_000_000_000, 1_000_000_000).in_words(Currency.ZCDP)
            'ρ = 1.5, δ = 0.000000001'
        """
        main = f"{currency.symbol} = {_decimal(self.main, 12)}"
        return main if currency is Currency.PURE else f"{main}, δ = {_decimal(self.delta, 18)}"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that an account may spend, in the units of Amount, rounded down.

    Example:
        >>> Limit.pure("1/3").main, Limit.zcdp(0.5, 1e-6).delta
        (333333333333, 1000000000000)
    """

    main: int
    delta: int
    currency: Currency

    def __post_init__(self) -> None:
        _expect_whole(self.main, "main")
        _expect_whole(self.delta, "delta")
        if self.main > LARGEST or self.delta >= DELTA_UNITS:
            raise InvalidParameter("a limit must be at most a million of ε or ρ, and its δ below 1")
        if self.currency is Currency.PURE and self.delta:
            raise InvalidParameter("a pure limit has no δ; use Limit.zcdp(rho, delta)")

    @classmethod
    def pure(cls, epsilon: Number) -> Limit:
        """At most ε in all."""
        return cls(_units_down(epsilon, "epsilon", MAIN_UNITS), 0, Currency.PURE)

    @classmethod
    def zcdp(cls, rho: Number, delta: Number = 0) -> Limit:
        """At most ρ, and at most δ for what is released approximately."""
        return cls(
            _units_down(rho, "rho", MAIN_UNITS), _units_down(delta, "delta", DELTA_UNITS), currency=Currency.ZCDP
        )

    def allows(self, spent: Amount) -> bool:
        """Whether so much may have been spent in all."""
        return spent.main <= self.main and spent.delta <= self.delta

    def after(self, spent: Amount) -> Amount:
        """What is left; nothing, not less, where the limit was lowered below what had been spent."""
        return Amount(max(self.main - spent.main, 0), max(self.delta - spent.delta, 0))

    def to_json(self) -> Json:
        """The permanent form in the log; the currency is that of the ledger."""
        return {"main": self.main, "delta": self.delta}

    @classmethod
    def from_json(cls, form: object, currency: Currency) -> Limit:
        """The inverse of ``to_json``."""
        return cls(*_two_parts(form), currency)


def _units_up(value: Fraction, units: int) -> int:
    return ceil_div(value.numerator * units, value.denominator)


def _units_down(value: Number, name: str, units: int) -> int:
    exact = as_fraction(value, name)
    if exact < 0:
        raise InvalidParameter(f"{name} must not be negative; got {value!r}")
    return exact.numerator * units // exact.denominator


def _expect_whole(value: object, name: str) -> None:
    if type(value) is int and value >= 0:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidParameter(f"{name} must be a whole number of at least 0; got {value!r}")


def _two_parts(form: object) -> tuple[int, int]:
    if not isinstance(form, dict) or set(form) != {"main", "delta"}:
        raise InvalidParameter("expected an object with the whole numbers main and delta")
    return form["main"], form["delta"]


def _decimal(units: int, places: int) -> str:
    whole, rest = divmod(units, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")
