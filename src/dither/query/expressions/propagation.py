"""What an expression can be if its arguments lie in stated intervals: interval arithmetic over columns of numbers.

Each rule gives a set that holds the result for every value of the arguments in theirs, with the meaning that functions
have here: NULL outside of a domain, NULL for a division by zero. A rule that isn't known gives everything. Ends of
doubles are moved outward by more than rounding can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dither.query.kinds import Call, Kind, constant

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

# What the libraries of two engines may differ by in a real function, as a share.
SLACK = 2.0**-40
# Beyond, whole numbers don't fit 64 bits: the result is NULL.
LARGEST_INTEGER = 2.0**63


@dataclass(frozen=True, slots=True)
class Numbers:
    """For each row all numbers from ``low`` to ``high``, none if low > high; ``null`` where it may be NULL."""

    low: Floats
    high: Floats
    null: Bools

    @property
    def none(self) -> Bools:
        """Where it is no number at all."""
        return np.greater(self.low, self.high)

    @property
    def points(self) -> Bools:
        """Where it is one number."""
        return np.equal(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Truths:
    """For each row whether it may be true, false, NULL."""

    true: Bools
    false: Bools
    null: Bools


@dataclass(frozen=True, slots=True)
class AnyValue:
    """A value about which nothing is known here: a text or a date."""

    size: int


Possible: TypeAlias = Numbers | Truths | AnyValue
Rule: TypeAlias = Callable[[Call, Sequence[Possible]], Possible]


def everything(size: int, kind: Kind) -> Possible:
    """All values of a kind, and NULL."""
    always = np.ones(size, dtype=np.bool_)
    if kind is Kind.BOOLEAN:
        return Truths(always, always, always)
    if kind.number:
        return Numbers(np.full(size, -np.inf), np.full(size, np.inf), always)
    return AnyValue(size)


def numbers(low: Floats, high: Floats, null: Bools) -> Numbers:
    """Numbers between two ends, everything where an end can't be told."""
    return Numbers(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high), null)


def propagated(call: Call, arguments: Sequence[Possible], size: int) -> Possible:
    """What a call can be."""
    rule = RULES.get(call.function)
    if rule is None:
        return everything(size, call.kind)
    with np.errstate(all="ignore"):
        try:
            found = rule(call, arguments)
        except _Unknown:
            return everything(size, call.kind)
    if not isinstance(found, Truths if call.kind is Kind.BOOLEAN else Numbers if call.kind.number else AnyValue):
        return everything(size, call.kind)
    if isinstance(found, Numbers) and call.kind is Kind.INTEGER:
        beyond = (found.high >= LARGEST_INTEGER) | (found.low < -LARGEST_INTEGER)
        return Numbers(found.low, found.high, found.null | (beyond & ~found.none))
    return found


class _Unknown(Exception):  # noqa: N818 - never leaves this module
    """A rule doesn't apply to these arguments."""


def _number(one: Possible) -> Numbers:
    if isinstance(one, Numbers):
        return one
    if isinstance(one, Truths):
        low = np.where(one.false, 0.0, np.where(one.true, 1.0, np.inf))
        return Numbers(low, np.where(one.true, 1.0, np.where(one.false, 0.0, -np.inf)), one.null)
    raise _Unknown


def _truth(one: Possible) -> Truths:
    if isinstance(one, Truths):
        return one
    raise _Unknown


def _result(call: Call, low: Floats, high: Floats, used: Sequence[Numbers], null: Bools | None = None) -> Numbers:
    """Ends as a result: moved outward where doubles may be rounded, nothing where an argument is no number."""
    missing = np.logical_or.reduce([one.null for one in used])
    nothing = np.logical_or.reduce([one.none for one in used])
    if call.kind is Kind.DOUBLE:
        # of points it is what the engine computes, and a zero isn't rounded
        exact = np.logical_and.reduce([one.points for one in used])
        low = np.where(exact | (low == 0), low, np.nextafter(low, -np.inf))
        high = np.where(exact | (high == 0), high, np.nextafter(high, np.inf))
    found = numbers(low, high, missing if null is None else missing | null)
    return Numbers(np.where(nothing, np.inf, found.low), np.where(nothing, -np.inf, found.high), found.null | nothing)


def _corners(a: Numbers, b: Numbers, operation: Callable[[Floats, Floats], Floats]) -> tuple[Floats, Floats]:
    ends = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _add(call: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    return _result(call, a.low + b.low, a.high + b.high, (a, b))


def _subtract(call: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    return _result(call, a.low - b.high, a.high - b.low, (a, b))


def _multiply(call: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)

    def times(x: Floats, y: Floats) -> Floats:
        # numbers are finite, however large: zero times any of them is zero
        return np.where((x == 0) | (y == 0), 0.0, x * y)

    return _result(call, *_corners(a, b, times), (a, b))


def _divided(call: Call, arguments: Sequence[Possible]) -> tuple[Floats, Floats, Bools, Numbers, Numbers]:
    """The ends of a quotient, and where it may be NULL because the divisor may be zero."""
    a, b = map(_number, arguments)
    zero = (b.low <= 0) & (b.high >= 0)
    low, high = b.low, b.high
    if call.arguments[1].kind is Kind.INTEGER:
        # a whole number that isn't zero is at least 1 away from it
        low, high = np.where(low == 0, 1.0, low), np.where(high == 0, -1.0, high)
    nothing = (b.low == 0) & (b.high == 0)
    through = (low < 0) & (high > 0)
    low, high = np.where(through | nothing, 1.0, low), np.where(through | nothing, 1.0, high)

    def over(x: Floats, y: Floats) -> Floats:
        return np.where(y == 0, np.where(x == 0, 0.0, np.inf * np.sign(x) * side), x / np.where(y == 0, 1.0, y))

    # an end at zero is approached from the inside
    side = np.where(high <= 0, -1.0, 1.0)
    ends = _corners(a, Numbers(low, high, b.null), over)
    start = np.where(nothing, np.inf, np.where(through, -np.inf, ends[0]))
    end = np.where(nothing, -np.inf, np.where(through, np.inf, ends[1]))
    return start, end, zero, a, b


def _divide(call: Call, arguments: Sequence[Possible]) -> Possible:
    low, high, zero, a, b = _divided(call, arguments)
    return _result(call, low, high, (a, b), zero)


def _integer_divide(call: Call, arguments: Sequence[Possible]) -> Possible:
    low, high, zero, a, b = _divided(call, arguments)
    # the quotient of two ends may be rounded up to a whole number that it doesn't reach
    slack = [SLACK * np.maximum(1.0, np.abs(end)) for end in (low, high)]
    return _result(call, np.trunc(low - slack[0]), np.trunc(high + slack[1]), (a, b), zero)


def _modulo(call: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    most = np.maximum(np.maximum(np.abs(b.low), np.abs(b.high)) - 1, 0.0)
    # a truncating remainder has the sign of the dividend
    low = np.where(a.low >= 0, 0.0, np.maximum(-most, a.low))
    high = np.where(a.high <= 0, 0.0, np.minimum(most, a.high))
    return _result(call, low, high, (a, b), (b.low <= 0) & (b.high >= 0))


def _negate(_: Call, arguments: Sequence[Possible]) -> Possible:
    a = _number(arguments[0])
    return Numbers(-a.high, -a.low, a.null)


def _abs(_: Call, arguments: Sequence[Possible]) -> Possible:
    a = _number(arguments[0])
    ends = np.abs(a.low), np.abs(a.high)
    low = np.where((a.low <= 0) & (a.high >= 0), 0.0, np.minimum(*ends))
    return Numbers(np.where(a.none, np.inf, low), np.where(a.none, -np.inf, np.maximum(*ends)), a.null)


def _power(call: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    exponent = constant(call.arguments[1])
    if isinstance(exponent, int | float) and float(exponent).is_integer() and 0 <= exponent <= 1024:
        ends = [a.low ** float(exponent), a.high ** float(exponent)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        if exponent % 2 == 0:
            low = np.where((a.low <= 0) & (a.high >= 0), 0.0 if exponent else 1.0, low)
        negative = np.zeros_like(a.null)
    else:
        # b·ln(a) is linear in both, so corners have its extremes; of a below zero nothing is said
        negative = a.low < 0
        low, high = _corners(Numbers(np.maximum(a.low, 0.0), a.high, a.null), b, np.power)
        low, high = np.where(negative, -np.inf, low), np.where(negative, np.inf, high)
    return _result(call, *_widened(low, high), (a, b), negative)


def _widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    return low - np.abs(low) * SLACK, high + np.abs(high) * SLACK


def _real(operation: Callable[[Floats], Floats], *, above: float, closed: bool = False) -> Rule:
    """A real function that grows on the numbers above ``above`` (or from it on); elsewhere it is NULL."""

    def rule(call: Call, arguments: Sequence[Possible]) -> Possible:
        a = _number(arguments[0])
        outside = a.low < above if closed else a.low <= above
        least = 1.0 if call.arguments[0].kind is Kind.INTEGER and not closed else above
        nothing = a.high < above if closed else a.high <= above
        start = np.where(outside, least if np.isfinite(above) else a.low, a.low)
        low, high = _widened(operation(start), operation(a.high))
        low = np.where(np.isnan(low), -np.inf, low)
        found = _result(call, low, np.where(nothing, 0.0, high), (a,), outside)
        return Numbers(
            np.where(nothing, np.inf, found.low), np.where(nothing, -np.inf, found.high), found.null | nothing
        )

    return rule


def _monotone(operation: Callable[[Floats], Floats]) -> Rule:
    """Ends to ends; what has none stays without."""

    def rule(_: Call, arguments: Sequence[Possible]) -> Possible:
        a = _number(arguments[0])
        return Numbers(np.where(a.none, np.inf, operation(a.low)), np.where(a.none, -np.inf, operation(a.high)), a.null)

    return rule


def _rounded(low: Floats, high: Floats, digits: int) -> tuple[Floats, Floats]:
    """To so many decimals; engines differ at ties, so both neighbours are inside."""
    unit = 10.0 ** abs(digits)
    if digits < 0:
        return np.ceil(low / unit - 0.5) * unit, np.floor(high / unit + 0.5) * unit
    return np.ceil(low * unit - 0.5) / unit, np.floor(high * unit + 0.5) / unit


def _round(call: Call, arguments: Sequence[Possible]) -> Possible:
    a = _number(arguments[0])
    digits = constant(call.arguments[1]) if len(call.arguments) > 1 else 0
    if not isinstance(digits, int) or abs(digits) > 30:
        raise _Unknown
    low, high = _rounded(a.low, a.high, digits)
    # what is too large to be rounded stays as it is
    low, high = np.where(np.isfinite(low), low, a.low), np.where(np.isfinite(high), high, a.high)
    return Numbers(
        np.where(a.none, np.inf, np.minimum(low, high)), np.where(a.none, -np.inf, np.maximum(low, high)), a.null
    )


def _to_integer(_: Call, arguments: Sequence[Possible]) -> Possible:
    a = _number(arguments[0])
    low, high = _rounded(a.low, a.high, 0)
    return Numbers(np.where(a.none, np.inf, low), np.where(a.none, -np.inf, high), a.null)


def _same(_: Call, arguments: Sequence[Possible]) -> Possible:
    return _number(arguments[0])


def _extreme(*, greatest: bool) -> Rule:
    """GREATEST and LEAST, which leave NULLs out: only what can't be one is sure to take part."""

    def rule(_: Call, arguments: Sequence[Possible]) -> Possible:
        given = [_number(one) for one in arguments]
        turned = given if greatest else [Numbers(-one.high, -one.low, one.null) for one in given]
        sure = np.maximum.reduce([np.where(one.null | one.none, -np.inf, one.low) for one in turned])
        lowest = np.minimum.reduce([one.low for one in turned])
        low = np.maximum(sure, lowest)
        high = np.maximum.reduce([one.high for one in turned])
        null = np.logical_and.reduce([one.null for one in turned])
        low = np.where(high == -np.inf, np.inf, low)
        return Numbers(low, high, null) if greatest else Numbers(-high, -low, null)

    return rule


# ---------------------------------------------------------------------------------------------- truth values


def _compare(*, true: Callable[[Numbers, Numbers], Bools], false: Callable[[Numbers, Numbers], Bools]) -> Rule:
    def rule(_: Call, arguments: Sequence[Possible]) -> Possible:
        a, b = map(_number, arguments)
        some = ~a.none & ~b.none
        return Truths(true(a, b) & some, false(a, b) & some, a.null | b.null)

    return rule


def _overlap(a: Numbers, b: Numbers) -> Bools:
    return (a.low <= b.high) & (b.low <= a.high)


def _differ(a: Numbers, b: Numbers) -> Bools:
    same = a.points & b.points & np.equal(a.low, b.low)
    return np.logical_not(same)


def _less(a: Numbers, b: Numbers) -> Bools:
    return a.low < b.high


def _less_equal(a: Numbers, b: Numbers) -> Bools:
    return a.low <= b.high


def _greater(a: Numbers, b: Numbers) -> Bools:
    return a.high > b.low


def _greater_equal(a: Numbers, b: Numbers) -> Bools:
    return a.high >= b.low


def _distinct(_: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    some = ~a.none & ~b.none
    true = (_differ(a, b) & some) | (a.null & ~b.none) | (b.null & ~a.none)
    return Truths(true, (_overlap(a, b) & some) | (a.null & b.null), np.zeros_like(true))


def _in(_: Call, arguments: Sequence[Possible]) -> Possible:
    first, *others = map(_number, arguments)
    true = np.logical_or.reduce([_overlap(first, one) & ~first.none & ~one.none for one in others])
    false = np.logical_and.reduce([_differ(first, one) for one in others]) & ~first.none
    return Truths(true, false, first.null | np.logical_or.reduce([one.null for one in others]))


def _is_null(_: Call, arguments: Sequence[Possible]) -> Possible:
    (a,) = arguments
    if isinstance(a, AnyValue):
        raise _Unknown
    some = a.true | a.false if isinstance(a, Truths) else ~a.none
    return Truths(a.null, some, np.zeros_like(some))


def _not(_: Call, arguments: Sequence[Possible]) -> Possible:
    a = _truth(arguments[0])
    return Truths(a.false, a.true, a.null)


def _is_not_null(call: Call, arguments: Sequence[Possible]) -> Possible:
    return _not(call, [_is_null(call, arguments)])


def _and(_: Call, arguments: Sequence[Possible]) -> Possible:
    given = [_truth(one) for one in arguments]
    true = np.logical_and.reduce([one.true for one in given])
    false = np.logical_or.reduce([one.false for one in given])
    unfalse = np.logical_and.reduce([one.true | one.null for one in given])
    return Truths(true, false, unfalse & np.logical_or.reduce([one.null for one in given]))


def _or(call: Call, arguments: Sequence[Possible]) -> Possible:
    return _not(call, [_and(call, [_not(call, [one]) for one in arguments])])


def _to_boolean(_: Call, arguments: Sequence[Possible]) -> Possible:
    a = _number(arguments[0])
    holds = (a.low <= 0) & (a.high >= 0)
    return Truths(~a.none & ((a.low != 0) | (a.high != 0)), holds & ~a.none, a.null)


# ---------------------------------------------------------------------------------------------- choices


def either(one: Possible, here: Bools, other: Possible | None) -> Possible:
    """What holds all of ``one`` in the rows that are ``here``, and all of the other."""
    if isinstance(one, Truths):
        assert other is None or isinstance(other, Truths)
        rest = other or Truths(*(np.zeros_like(here),) * 3)
        return Truths((one.true & here) | rest.true, (one.false & here) | rest.false, (one.null & here) | rest.null)
    number = _number(one)
    low, high = np.where(here, number.low, np.inf), np.where(here, number.high, -np.inf)
    null = number.null & here
    if other is None:
        return Numbers(low, high, null)
    rest_of = _number(other)
    return Numbers(np.minimum(low, rest_of.low), np.maximum(high, rest_of.high), null | rest_of.null)


def _case(_: Call, arguments: Sequence[Possible]) -> Possible:
    found: Possible | None = None
    reached: Bools | None = None
    for condition, result in zip(arguments[:-1:2], arguments[1::2], strict=True):
        when = _truth(condition)
        reached = np.ones_like(when.true) if reached is None else reached
        found = either(result, reached & when.true, found)
        reached = reached & (when.false | when.null)
    assert reached is not None
    return either(arguments[-1], reached, found)


def _coalesce(_: Call, arguments: Sequence[Possible]) -> Possible:
    found: Possible | None = None
    reached: Bools | None = None
    for one in arguments:
        if isinstance(one, AnyValue):
            raise _Unknown
        reached = np.ones_like(one.null) if reached is None else reached
        found = either(one, reached, found)
        reached = reached & one.null
    assert found is not None
    assert reached is not None
    if isinstance(found, Truths):
        return Truths(found.true, found.false, reached)
    return Numbers(found.low, found.high, reached) if isinstance(found, Numbers) else found


def _nullif(_: Call, arguments: Sequence[Possible]) -> Possible:
    a, b = map(_number, arguments)
    equal = ~_differ(a, b) & ~b.null
    maybe = _overlap(a, b) & ~b.none
    low, high = np.where(equal, np.inf, a.low), np.where(equal, -np.inf, a.high)
    return Numbers(low, high, a.null | maybe)


RULES: dict[str, Rule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "integer_divide": _integer_divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": _abs,
    "power": _power,
    "sqrt": _real(np.sqrt, above=0.0, closed=True),
    "exp": _real(np.exp, above=-np.inf, closed=True),
    "ln": _real(np.log, above=0.0),
    "log10": _real(np.log10, above=0.0),
    "log2": _real(np.log2, above=0.0),
    "floor": _monotone(np.floor),
    "ceil": _monotone(np.ceil),
    "trunc": _monotone(np.trunc),
    "round": _round,
    "sign": _monotone(np.sign),
    "greatest": _extreme(greatest=True),
    "least": _extreme(greatest=False),
    "equal": _compare(true=_overlap, false=_differ),
    "not_equal": _compare(true=_differ, false=_overlap),
    "less": _compare(true=_less, false=_greater_equal),
    "less_equal": _compare(true=_less_equal, false=_greater),
    "greater": _compare(true=_greater, false=_less_equal),
    "greater_equal": _compare(true=_greater_equal, false=_less),
    "distinct_from": _distinct,
    "in": _in,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "and": _and,
    "or": _or,
    "not": _not,
    "to_boolean": _to_boolean,
    "case": _case,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "to_double": _same,
    "to_integer": _to_integer,
}
