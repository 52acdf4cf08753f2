"""What follows for the bounds and the step of a result from those of the arguments: interval arithmetic.

Nothing here is needed for privacy: values are clamped to the bounds that come out, whatever they are. A bound that is
too narrow would bias answers, so each rule gives an interval that holds for every value of the arguments' intervals.
Ends of doubles are rounded to the nearest double: correctly rounded operations are monotone, so an engine that computes
with IEEE doubles stays inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from dither.query.kinds import Call, Expression, Interval, Kind, Value, constant, is_null, literal_step, number

# A list of public values is no longer than this.
MOST_VALUES = 10_000
# Whole doubles up to this are exact.
EXACT_DOUBLE = 2**53

Known: TypeAlias = Sequence[Interval | None]
BoundsRule: TypeAlias = Callable[[Known, Sequence[Expression]], Interval | None]


def rounded(interval: Interval | None, kind: Kind) -> Interval | None:
    """Ends as doubles where the result is one; None if an end is out of a double's range."""
    if interval is None or kind is not Kind.DOUBLE:
        return interval
    try:
        low, high = Fraction(float(interval.low)), Fraction(float(interval.high))
    except OverflowError:
        return None
    return Interval(low, high)


def hull(intervals: Sequence[Interval]) -> Interval:
    """The smallest interval that holds all of them."""
    return Interval(min(i.low for i in intervals), max(i.high for i in intervals))


def _add(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    return None if a is None or b is None else Interval(a.low + b.low, a.high + b.high)


def _subtract(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    return None if a is None or b is None else Interval(a.low - b.high, a.high - b.low)


def _corners(a: Interval, b: Interval, operation: Callable[[Fraction, Fraction], Fraction]) -> Interval:
    ends = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(ends), max(ends))


def _multiply(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    return None if a is None or b is None else _corners(a, b, lambda x, y: x * y)


def _divide(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    if a is None or b is None or b.low <= 0 <= b.high:
        return None
    return _corners(a, b, lambda x, y: x / y)


def _integer_divide(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    if a is None or b is None or b.low <= 0 <= b.high:
        return None
    return _corners(a, b, lambda x, y: Fraction(math.trunc(x / y)))


def _modulo(known: Known, _: Sequence[Expression]) -> Interval | None:
    a, b = known
    if b is None:
        return None
    most = max(b.magnitude - 1, Fraction(0))
    # a truncating remainder has the sign of the dividend
    low = Fraction(0) if a is not None and a.low >= 0 else -most
    high = Fraction(0) if a is not None and a.high <= 0 else most
    return Interval(low, high)


def _negate(known: Known, _: Sequence[Expression]) -> Interval | None:
    (a,) = known
    return None if a is None else Interval(-a.high, -a.low)


def _abs(known: Known, _: Sequence[Expression]) -> Interval | None:
    (a,) = known
    if a is None:
        return None
    return Interval(Fraction(0) if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), a.magnitude)


def _monotone(operation: Callable[[Fraction], int]) -> BoundsRule:
    def rule(known: Known, _: Sequence[Expression]) -> Interval | None:
        a = known[0]
        return None if a is None else Interval(Fraction(operation(a.low)), Fraction(operation(a.high)))

    return rule


def _round(known: Known, arguments: Sequence[Expression]) -> Interval | None:
    a = known[0]
    digits = constant(arguments[1]) if len(arguments) > 1 else 0
    if a is None or not isinstance(digits, int) or abs(digits) > 30:
        return None
    unit = Fraction(10) ** -digits
    # engines differ at ties; both neighbours are inside
    half = Fraction(1, 2)
    return Interval(math.ceil(a.low / unit - half) * unit, math.floor(a.high / unit + half) * unit)


def _to_integer(known: Known, _: Sequence[Expression]) -> Interval | None:
    (a,) = known
    half = Fraction(1, 2)
    return None if a is None else Interval(Fraction(math.ceil(a.low - half)), Fraction(math.floor(a.high + half)))


def _real(operation: Callable[[float], float], *, above: float) -> BoundsRule:
    """For a real function that grows on the numbers above ``above``; results elsewhere are NULL."""

    def rule(known: Known, _: Sequence[Expression]) -> Interval | None:
        (a,) = known
        if a is None or a.high <= above:
            return None
        try:
            low, high = operation(float(a.low)) if a.low > above else None, operation(float(a.high))
        except (OverflowError, ValueError):
            return None
        if low is None or not math.isfinite(low) or not math.isfinite(high):
            return None
        # the libraries of two engines may differ in the last digits
        slack = Fraction(1, 2**40)
        return Interval(Fraction(low) - abs(Fraction(low)) * slack, Fraction(high) + abs(Fraction(high)) * slack)

    return rule


def _sqrt(known: Known, _: Sequence[Expression]) -> Interval | None:
    (a,) = known
    if a is None or a.high > Fraction(10) ** 300:
        return None
    if a.high < 0:  # NULL everywhere
        return Interval(Fraction(0), Fraction(0))
    # the root of an IEEE double is correctly rounded, hence monotone
    return Interval(Fraction(math.sqrt(float(max(a.low, Fraction(0))))), Fraction(math.sqrt(float(a.high))))


def _power(known: Known, arguments: Sequence[Expression]) -> Interval | None:
    a, exponent = known[0], constant(arguments[1])
    if a is None or not isinstance(exponent, int) or not 0 <= exponent <= 64:
        return None
    ends = [a.low**exponent, a.high**exponent]
    if exponent % 2 == 0 and a.low <= 0 <= a.high:
        ends.append(Fraction(0 if exponent else 1))
    return Interval(min(ends), max(ends))


def _fixed(low: int, high: int) -> BoundsRule:
    return lambda _known, _arguments: Interval(Fraction(low), Fraction(high))


def _any_of(known: Known, arguments: Sequence[Expression]) -> Interval | None:
    present = [interval for interval, argument in zip(known, arguments, strict=True) if not is_null(argument)]
    if not present or any(interval is None for interval in present):
        return None
    return hull([interval for interval in present if interval is not None])


def _case(known: Known, arguments: Sequence[Expression]) -> Interval | None:
    results = [*range(1, len(arguments) - 1, 2), len(arguments) - 1]
    return _any_of([known[i] for i in results], [arguments[i] for i in results])


def _ends(interval: Interval | None, expression: Expression) -> tuple[Fraction | None, Fraction | None]:
    """What is known of the two ends by themselves: GREATEST(x, 0) has a lower one even if x has none."""
    if interval is not None:
        return interval.low, interval.high
    if isinstance(expression, Call) and expression.function in ("greatest", "least"):
        constants = [v for a in expression.arguments if (v := number(constant(a))) is not None]
        if constants:
            return (max(constants), None) if expression.function == "greatest" else (None, min(constants))
    return None, None


def _extreme(*, greatest: bool) -> BoundsRule:
    def rule(known: Known, arguments: Sequence[Expression]) -> Interval | None:
        pairs = [(_ends(i, a), a) for i, a in zip(known, arguments, strict=True) if not is_null(a)]
        lows, highs = [low for (low, _), _ in pairs], [high for (_, high), _ in pairs]
        # NULLs are ignored, so only a constant is sure to take part
        constants = [v for _, a in pairs if (v := number(constant(a))) is not None]
        low = min((v for v in lows if v is not None), default=None) if None not in lows else None
        high = max((v for v in highs if v is not None), default=None) if None not in highs else None
        if constants and greatest:
            low = max(constants) if low is None else max(low, *constants)
        if constants and not greatest:
            high = min(constants) if high is None else min(high, *constants)
        return None if low is None or high is None or low > high else Interval(low, high)

    return rule


RULES: dict[str, BoundsRule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "integer_divide": _integer_divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": _abs,
    "power": _power,
    "sqrt": _sqrt,
    "exp": _real(math.exp, above=-math.inf),
    "ln": _real(math.log, above=0.0),
    "log10": _real(math.log10, above=0.0),
    "log2": _real(math.log2, above=0.0),
    "floor": _monotone(math.floor),
    "ceil": _monotone(math.ceil),
    "trunc": _monotone(math.trunc),
    "round": _round,
    "sign": _fixed(-1, 1),
    "greatest": _extreme(greatest=True),
    "least": _extreme(greatest=False),
    "case": _case,
    "coalesce": _any_of,
    "nullif": lambda known, _: known[0],
    "to_double": lambda known, _: known[0],
    "to_integer": _to_integer,
    "quarter": _fixed(1, 4),
    "month": _fixed(1, 12),
    "day": _fixed(1, 31),
    "day_of_week": _fixed(1, 7),
    "day_of_year": _fixed(1, 366),
    "week": _fixed(1, 53),
    "hour": _fixed(0, 23),
    "minute": _fixed(0, 59),
    "second": _fixed(0, 59),
}


def _common(steps: Sequence[Fraction | None]) -> Fraction | None:
    """The largest step of which all are multiples; zero takes part in any."""
    result = Fraction(0)
    for step in steps:
        if step is None:
            return None
        denominator = result.denominator * step.denominator
        result = Fraction(
            math.gcd(result.numerator * step.denominator, step.numerator * result.denominator), denominator
        )
    return result


def step_of(
    name: str, steps: Sequence[Fraction | None], arguments: Sequence[Expression], kind: Kind
) -> Fraction | None:
    """The step of a result; None where values aren't multiples of anything known."""
    step: Fraction | None = None
    if name in ("add", "subtract", "greatest", "least"):
        step = _common(steps)
    elif name in ("negate", "abs", "nullif", "to_double"):
        step = steps[0]
    elif name in ("case", "coalesce"):
        results = [*range(1, len(arguments) - 1, 2), len(arguments) - 1] if name == "case" else range(len(arguments))
        step = _common([steps[i] for i in results if not is_null(arguments[i])])
    elif name == "multiply" and steps[0] is not None and steps[1] is not None:
        step = steps[0] * steps[1]
    elif name == "divide" and steps[0] is not None and (divisor := literal_step(constant(arguments[1]))):
        step = steps[0] / divisor
    elif name in ("floor", "ceil", "trunc", "sign"):
        step = Fraction(1)
    elif name == "round":
        digits = constant(arguments[1]) if len(arguments) > 1 else 0
        step = Fraction(10) ** -digits if isinstance(digits, int) and abs(digits) <= 30 else None
    if kind is Kind.INTEGER:
        return step if step is not None and step > 0 and step.denominator == 1 else Fraction(1)
    return step if step else None


def whole_numbers(bounds: Interval | None, step: Fraction | None, kind: Kind) -> tuple[Value, ...] | None:
    """The multiples of a whole step between the bounds, if they are few."""
    if bounds is None or step is None or step.denominator != 1 or step <= 0:
        return None
    low, high = math.ceil(bounds.low / step), math.floor(bounds.high / step)
    size = high - low + 1
    if not 0 < size <= MOST_VALUES or max(abs(low), abs(high)) * step > EXACT_DOUBLE:
        return None
    numbers = range(low * int(step), high * int(step) + 1, int(step))
    return tuple(float(n) for n in numbers) if kind is Kind.DOUBLE else tuple(numbers)


# what a policy declares is asked for with every question
@lru_cache(maxsize=64)
def steps_between(bounds: Interval | None, step: Fraction | None) -> tuple[Value, ...] | None:
    """The doubles next to the multiples of any step between the bounds, if they are few."""
    if bounds is None or step is None or step <= 0:
        return None
    low, high = math.ceil(bounds.low / step), math.floor(bounds.high / step)
    if not 0 < high - low + 1 <= MOST_VALUES or max(abs(low), abs(high)) > EXACT_DOUBLE:
        return None
    found = tuple(place * step.numerator / step.denominator for place in range(low, high + 1))
    return found if len(set(found)) == len(found) else None
