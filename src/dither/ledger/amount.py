"""What is spent, in whole numbers: a cost is rounded up, what may be spent down; who pays it, and who is protected.

Every charge is booked on all sums. Each is a filter of its own for adaptively chosen questions: sums of ε need no δ
(Rogers, Roth, Ullman & Vadhan 2016), sums of ρ and of Rényi divergences at a fixed order are read as ε at their share
of δ (Feldman & Zrnic 2021; Whitehouse, Ramdas, Rogers & Wu 2023). A question fits while any of them is within its
limit; that too is a filter, for the δ of all shares together (``privacy/filters.md``). The shares add up to one, and
are fixed with the first entry: whoever could change them after answers were seen could count one δ twice.

What was spent was spent on these units. Told for others, the same sums are an untrue claim: a total for orders says
nothing about customers. So a ledger keeps the unit of every table it was used for. A further table of a unit that it
knows changes nothing; another unit for a known table does, unless the owner says that both name the same people.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from dither.errors import IncompatibleLosses, InvalidParameter, LedgerMismatch
from dither.numeric import Number, as_fraction, ceil_div
from dither.privacy import Json, PrivacyLoss
from dither.privacy.unit import Unit, account_name

# Enough for budgets of ε = 1 to 10 (4 to 24), and for small beginnings of them (48, 96).
ORDERS = (4, 6, 8, 11, 16, 24, 48, 96)
SHARE_OF_RHO = Fraction(9, 10)


class Quantity(Enum):
    """What is added up."""

    EPSILON = "epsilon"
    RHO = "rho"
    RENYI = "renyi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One quantity, and the share of the reading's δ at which its sum is read as ε."""

    quantity: Quantity
    share: Fraction
    order: int | None = None

    def __post_init__(self) -> None:
        if (self.quantity is Quantity.RENYI) != (self.order is not None) or not 0 <= self.share <= 1:
            raise InvalidParameter("a sum has a share of at most 1, and an order just where it adds Rényi divergences")
        if self.order is not None and self.order <= 1:
            raise InvalidParameter("a Rényi order is above 1")

    def of(self, loss: PrivacyLoss) -> Fraction | None:
        """What a loss adds to the sum, exactly or rounded up; None where it has no such view."""
        if self.order is not None:
            divergence = loss.renyi(self.order)
            return Fraction(divergence) if math.isfinite(divergence) else None
        if self.quantity is Quantity.RHO:
            return loss.zcdp_exactly() if math.isfinite(loss.zcdp()) else None
        return loss.pure_exactly() if math.isfinite(loss.pure()) else None

    @property
    def symbol(self) -> str:
        """The letter of what is added up."""
        if self.order is not None:
            return f"D({self.order})"
        return "ε" if self.quantity is Quantity.EPSILON else "ρ"

    def to_json(self) -> Json:
        """The permanent form in the first entry."""
        form: Json = {"quantity": self.quantity.value, "share": str(self.share)}
        return form if self.order is None else {**form, "order": self.order}

    @classmethod
    def from_json(cls, form: Json) -> Sum:
        """The inverse of ``to_json``."""
        return cls(quantity=Quantity(form["quantity"]), share=Fraction(form["share"]), order=form.get("order"))


PURE_SUMS = (Sum(quantity=Quantity.EPSILON, share=Fraction(0)),)
# What a ledger of format 1 added: all of the reading's δ belongs to ρ, so none is left for orders.
FIRST_ZCDP_SUMS = (Sum(quantity=Quantity.RHO, share=Fraction(1)), Sum(quantity=Quantity.EPSILON, share=Fraction(0)))
# The first is the one that amounts are told in.
ZCDP_SUMS = (
    Sum(quantity=Quantity.RHO, share=SHARE_OF_RHO),
    Sum(quantity=Quantity.EPSILON, share=Fraction(0)),
    *(Sum(quantity=Quantity.RENYI, share=(1 - SHARE_OF_RHO) / len(ORDERS), order=order) for order in ORDERS),
)


# ---------------------------------------------------------------------------------------------- amounts and limits


MAIN_UNITS = 10**12
DELTA_UNITS = 10**18
# ε or ρ of a million promises nothing; below it, every sum fits SQLite's 64-bit integers with room to spare
LARGEST = 10**18


class Currency(Enum):
    """What amounts are told in, and so which sums a new ledger keeps.

    ``PURE`` adds ε alone (Rogers, Roth, Ullman & Vadhan 2016). ``ZCDP`` adds ρ, beside it ε and Rényi divergences, and
    apart from them the δ of approximate releases such as key selection (Feldman & Zrnic 2021; Whitehouse, Ramdas,
    Rogers & Wu 2023).
    """

    PURE = "pure"
    ZCDP = "zcdp"

    @property
    def symbol(self) -> str:
        """The letter of the main part."""
        return "ε" if self is Currency.PURE else "ρ"

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What a new ledger keeps, the sum that amounts are told in first."""
        return PURE_SUMS if self is Currency.PURE else ZCDP_SUMS

    @property
    def first_sums(self) -> tuple[Sum, ...]:
        """What a ledger of format 1 keeps."""
        return PURE_SUMS if self is Currency.PURE else FIRST_ZCDP_SUMS


@dataclass(frozen=True, slots=True)
class Amount:
    """What was or would be spent: ``main`` counts 1e-12 of ε or ρ, ``delta`` counts 1e-18 of δ.

    ``others`` are the further sums of the ledger, in their order and in 1e-12; None, there or in ``main``, is a loss
    without such a view, which closes that sum for good. Amounts are ordered part by part: ``a <= b`` holds if every
    part does.

    Example:
        >>> from dither.privacy import PureLoss
        >>> Amount.of(PureLoss("1/3"), Currency.PURE)
        Amount(main=333333333334, delta=0, others=())
        >>> Amount(1, others=(None, 2)) + Amount(1, others=(1, 2))
        Amount(main=2, delta=0, others=(None, 4))
    """

    main: int | None = 0
    delta: int = 0
    others: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if self.main is not None or not self.others:
            _expect_whole(self.main, "main")
        _expect_whole(self.delta, "delta")
        for other in self.others:
            if other is not None:
                _expect_whole(other, "others")

    @classmethod
    def of(cls, loss: PrivacyLoss, currency: Currency, sums: Sequence[Sum] | None = None) -> Amount:
        """The loss on every sum, rounded up; raises IncompatibleLosses where it has no view for any of them.

        All sums are read off one decomposition of the loss, so that what is given away (δ) counts once. Without
        ``sums`` only the first is computed.
        """
        first, *further = sums or currency.sums[:1]
        if currency is Currency.PURE:
            left, given = loss, Fraction(0)
        else:
            left, given = loss.decomposed()
        main = first.of(left)
        parts = [one.of(left) for one in further]
        if main is None and all(part is None for part in parts):
            if currency is Currency.PURE:
                raise IncompatibleLosses(
                    "this budget adds pure ε and this loss has none: ask for Laplace noise and public keys, "
                    "or keep the budget with a δ (zCDP)"
                )
            raise IncompatibleLosses("this budget adds zCDP and this loss has no such view, nor an approximate one")
        units, *others = (None if part is None else _units_up(part, MAIN_UNITS) for part in (main, *parts))
        return cls(units, _units_up(given, DELTA_UNITS), tuple(others))

    def __add__(self, other: Amount) -> Amount:
        if not isinstance(other, Amount):
            return NotImplemented
        if self == NOTHING or other == NOTHING:
            return other if self == NOTHING else self
        both = zip(self.others, other.others, strict=True)
        main, *others = (None if a is None or b is None else a + b for a, b in ((self.main, other.main), *both))
        return Amount(main, self.delta + other.delta, tuple(others))

    def __rmul__(self, times: int) -> Amount:
        main, *others = (None if one is None else times * one for one in (self.main, *self.others))
        return Amount(main, times * self.delta, tuple(others))

    def __le__(self, other: Amount) -> bool:
        if not isinstance(other, Amount):
            return NotImplemented
        if self.delta > other.delta:
            return False
        if self == NOTHING:
            return True
        both = ((self.main, other.main), *zip(self.others, other.others, strict=True))
        return all(b is None or (a is not None and a <= b) for a, b in both)

    def __ge__(self, other: Amount) -> bool:
        return other <= self

    def covers(self, price: Amount) -> bool:
        """Whether a price computed elsewhere is no higher than this one, which was charged.

        Platforms differ in the last places of exp and log. Every price that rests on them carries an allowance of
        2^-44 for that (``dither.numeric``), so what is within 2^-48 and one unit of rounding is covered.
        """
        main, *others = (None if one is None else one + 1 + (one >> 48) for one in (self.main, *self.others))
        return Amount(main, self.delta + 1 + (self.delta >> 48), tuple(others)) >= price

    def to_json(self) -> Json:
        """The permanent form in the log; format 1 had no others."""
        return _form(self.main, self.delta, self.others)

    @classmethod
    def from_json(cls, form: object) -> Amount:
        """The inverse of ``to_json``."""
        return cls(*_parts(form))

    def in_words(self, currency: Currency) -> str:
        """The exact amount, in decimals.

        Example:
            >>> Amount(1_500_000_000_000, 1_000_000_000).in_words(Currency.ZCDP)
            'ρ = 1.5, δ = 0.000000001'
        """
        main = self.main_in_words(currency)
        return main if currency is Currency.PURE else f"{main}, δ = {_decimal(self.delta, 18)}"

    def main_in_words(self, currency: Currency) -> str:
        """The same without δ."""
        return f"no {currency.symbol}" if self.main is None else f"{currency.symbol} = {_decimal(self.main, 12)}"

    def of_sum_in_words(self, place: int, sums: Sequence[Sum]) -> str:
        """The amount on one of the sums, where it has that, and its δ.

        Example:
            >>> Amount(1_500_000_000_000, 0, (None, 10**12)).of_sum_in_words(2, ZCDP_SUMS)
            'D(4) = 1, δ = 0'
        """
        units = (self.main, *self.others)[place]
        what = f"no {sums[place].symbol}" if units is None else f"{sums[place].symbol} = {_decimal(units, 12)}"
        return what if len(sums) == 1 else f"{what}, δ = {_decimal(self.delta, 18)}"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that an account may spend, in the units of Amount, rounded down.

    An account is within it if its δ is, and *any* of its sums: ``main``, or one of ``others``, where a sum that isn't
    named, or is None, is one that nothing fits in. ``counts`` are the most of what is counted beside the sums; what
    isn't named there isn't limited.

    Guarantee: if each limit is what (ε, δ_j) allows on its sum, at δ_j which add up to δ, what is accepted is together
        (ε, δ + ``delta``)-private, for adaptively chosen questions that are charged on all sums (the union of filters,
        ``privacy/filters.md``).

    Example:
        >>> Limit.pure("1/3").main, Limit.zcdp(0.5, 1e-6).delta
        (333333333333, 1000000000000)
        >>> either = Limit.zcdp(1, others=(10**12,))
        >>> [either.allows(Amount(rho * 10**12, 0, (epsilon,))) for rho, epsilon in ((1, None), (2, 10**12), (2, None))]
        [True, True, False]
    """

    main: int
    delta: int
    currency: Currency
    others: tuple[int | None, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _expect_whole(self.main, "main")
        _expect_whole(self.delta, "delta")
        expect_counts(self.counts)
        if self.main > LARGEST or self.delta >= DELTA_UNITS:
            raise InvalidParameter("a limit must be at most a million of ε or ρ, and its δ below 1")
        if self.currency is Currency.PURE and self.delta:
            raise InvalidParameter("a pure limit has no δ; use Limit.zcdp(rho, delta)")

    @classmethod
    def pure(cls, epsilon: Number) -> Limit:
        """At most ε in all."""
        return cls(_units_down(epsilon, "epsilon", MAIN_UNITS), 0, Currency.PURE)

    @classmethod
    def zcdp(cls, rho: Number, delta: Number = 0, others: tuple[int | None, ...] = ()) -> Limit:
        """At most ρ, and at most δ for what is released approximately."""
        main, given = _units_down(rho, "rho", MAIN_UNITS), _units_down(delta, "delta", DELTA_UNITS)
        return cls(main, given, Currency.ZCDP, others)

    def allows(self, spent: Amount) -> bool:
        """Whether so much may have been spent in all: what was given away, and any of the sums, must be within."""
        # beyond the largest limit nothing can be booked, whichever sum has room
        if spent.delta > self.delta or (spent.main is not None and spent.main > LARGEST):
            return False
        return any(used <= most for used, most in self._sums(spent))

    def _sums(self, spent: Amount) -> Iterator[tuple[int, int]]:
        """(spent, most) on each sum that isn't closed."""
        if spent.main is not None:
            yield spent.main, self.main
        for used, most in self._others(spent):
            if used is not None and most is not None:
                yield used, most

    def _others(self, spent: Amount) -> Iterator[tuple[int | None, int | None]]:
        missing = 0 if spent == NOTHING else None
        known = (*spent.others, *(missing,) * (len(self.others) - len(spent.others)))
        return zip(known, self.others, strict=False)

    def exceeded(self, counts: Mapping[str, int]) -> list[str]:
        """Of what too much would have been counted."""
        return sorted(name for name, most in self.counts.items() if counts.get(name, 0) > most)

    def after(self, spent: Amount) -> Amount:
        """What is left of each sum; nothing, not less, where more was spent, and None where a sum was closed."""
        both = ((spent.main, self.main), *self._others(spent))
        main, *others = (None if used is None or most is None else max(most - used, 0) for used, most in both)
        return Amount(main, max(self.delta - spent.delta, 0), tuple(others))

    def used(self, spent: Amount) -> Fraction:
        """The share that is used up: of the sum that leaves most, or of δ where that leaves less; 2 if none is open.

        Example:
            >>> Limit.zcdp(1, others=(10**12,)).used(Amount(9 * 10**11, 0, (10**11,)))
            Fraction(1, 10)
        """
        shares = [Fraction(used, most) for used, most in self._sums(spent) if most]
        given = Fraction(spent.delta, self.delta) if self.delta else Fraction(spent.delta > 0)
        closed = Fraction(2 if spent.main is None else spent.main > 0)
        return max(given, min(shares, default=closed))

    def room(self, spent: Amount, price: Amount) -> int:
        """How many more questions of this price fit, asked one after the other; 0 for what costs nothing.

        Example:
            >>> Limit.zcdp(1, others=(10**12,)).room(NOTHING, Amount(2 * 10**11, 0, (10**11,)))
            10
        """
        left = self.after(spent)
        parts = [max(_fits(left, price), default=0)] if price.main != 0 else []
        parts += [left.delta // price.delta] if price.delta else []
        return min(parts, default=0)

    def widest(self, spent: Amount, price: Amount) -> int:
        """The place of the sum in which most questions of this price would fit by now, the first among equals."""
        left = self.after(spent)
        shares = [
            Fraction(have, cost) if have is not None and cost else Fraction(-1)
            for have, cost in zip((left.main, *left.others), (price.main, *price.others), strict=False)
        ]
        return shares.index(max(shares))

    def to_json(self) -> Json:
        """The permanent form in the log; the currency is that of the ledger."""
        form = _form(self.main, self.delta, self.others)
        return {**form, "counts": dict(self.counts)} if self.counts else form

    @classmethod
    def from_json(cls, form: object, currency: Currency) -> Limit:
        """The inverse of ``to_json``."""
        counts = form.get("counts", {}) if isinstance(form, dict) else {}
        main, delta, others = _parts(form, {"counts"})
        if main is None:
            raise InvalidParameter("a limit states the most of the first sum")
        return cls(main, delta, currency, others, counts)

    def is_that_of(self, other: Limit) -> bool:
        """Whether both state the same: what only one of them states, and the last places of a logarithm, don't count.

        Platforms differ in those places (see ``Amount.covers``). Each rounds down, so either limit may be kept.
        """
        parts = [(self.main, other.main), *zip(self.others, other.others, strict=False)]
        same = all(a == b if a is None or b is None else abs(a - b) <= 1 + (a >> 40) for a, b in parts)
        return same and self.delta == other.delta


def _fits(left: Amount, price: Amount) -> Iterator[int]:
    """How often a price fits in what is left of each sum that is open for it."""
    for have, cost in zip((left.main, *left.others), (price.main, *price.others), strict=False):
        if have is not None and cost:
            yield have // cost


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


def expect_counts(counts: object, least: int = 0) -> None:
    """Refuse what isn't a mapping from texts to whole numbers."""
    if not isinstance(counts, Mapping):
        raise InvalidParameter("counts are a mapping from texts to whole numbers")
    for name, count in counts.items():
        if not isinstance(name, str) or isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise InvalidParameter(f"counts are a mapping from texts to whole numbers of at least {least}")


def _form(main: int | None, delta: int, others: tuple[int | None, ...]) -> Json:
    form: Json = {"main": main, "delta": delta}
    return {**form, "others": list(others)} if others else form


def _parts(form: object, further: Set[str] = frozenset()) -> tuple[int | None, int, tuple[int | None, ...]]:
    if not isinstance(form, dict) or set(form) - {"others"} - further != {"main", "delta"}:
        raise InvalidParameter("expected an object with the whole numbers main and delta")
    return form["main"], form["delta"], tuple(form.get("others", ()))


def _decimal(units: int, places: int) -> str:
    whole, rest = divmod(units, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


NOTHING = Amount()


# ---------------------------------------------------------------------------------------------- account


# ---------------------------------------------------------------------------------------------- who pays


DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a path of names from the dataset down.

    Whoever asks pays from every account on the path, so a limit on the dataset binds all analysts together.

    Example:
        >>> print(Account(("shop", "ana"))), [str(a) for a in Account(("shop", "ana")).lineage]
        shop/ana
        (None, ['shop', 'shop/ana'])
    """

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        path: object = self.path
        if not isinstance(path, tuple | list) or not 1 <= len(path) <= DEEPEST:
            raise InvalidParameter(f'an account is a tuple of 1 to {DEEPEST} names, such as ("shop", "ana")')
        # two spellings of one accented letter must not be two budgets
        object.__setattr__(self, "path", tuple(account_name(name) for name in path))

    @property
    def lineage(self) -> tuple[Account, ...]:
        """Every account that pays when this one asks, the dataset first."""
        above = (Account(self.path[:depth]) for depth in range(1, len(self.path)))
        return (*above, self)

    def __str__(self) -> str:
        return "/".join(self.path)


# ---------------------------------------------------------------------------------------------- who is protected


# as the notes of format 1 state it: each "user_id" of table "orders", each row of table "visits"; against …
_STATED = re.compile(r'each (row|"(?:[^"\\]|\\.)*") of table ("(?:[^"\\]|\\.)*")')


Units: TypeAlias = Mapping[str, Unit]
NO_UNITS: Units = MappingProxyType({})


def units_to_json(units: Units) -> Json:
    """The permanent form of the units of several tables."""
    return {table: unit.to_json() for table, unit in units.items()}


def units_from_json(form: Json) -> Units:
    """The inverse of ``units_to_json``."""
    return {str(table): Unit.from_json(unit) for table, unit in form.items()}


def units_in_note(note: object) -> Units:
    """The units that the note of a charge of format 1 states."""
    stated = note.get("units") if isinstance(note, dict) else None
    if not isinstance(stated, str):
        return NO_UNITS
    found = _STATED.findall(stated)
    return {json.loads(table): Unit(() if unit == "row" else (json.loads(unit),)) for unit, table in found}


def with_further_tables(kept: Units, wanted: Units) -> Units:
    """What a ledger that was kept for ``kept`` is kept for from now on; LedgerMismatch if that isn't the same."""
    for table, unit in wanted.items():
        known = kept.get(table)
        if known is not None and known != unit:
            raise LedgerMismatch(
                f"this ledger was kept for {known} of table {table!r}, and now {unit} is to be protected. What was "
                "spent was spent on other units, and can't be converted. If these are other people, give them a ledger "
                "of their own (`ledger` in [source]); if both name the same people, say so: dither ledger rebind"
            )
        if known is None and kept and unit not in kept.values():
            raise LedgerMismatch(
                f"this ledger was kept for {in_words(kept)}, and table {table!r} has another unit: {unit}. If its "
                "units are other people, give them a ledger of their own (`ledger` in [source]); if they are the same "
                "people, say so: dither ledger rebind"
            )
    return {**kept, **wanted}


def in_words(units: Units) -> str:
    """Every table with its unit."""
    return ", ".join(f"{unit} of table {table!r}" for table, unit in sorted(units.items()))
