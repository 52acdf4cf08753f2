"""Made-up values of a policy's shape: what a column may hold, and what it may hold although the owner didn't say so.

Everything comes from public facts: kinds, bounds, steps, public keys, and the constants of the question itself, so that
its conditions are met by some rows and missed by others. The owner's data is never opened.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from random import Random
from typing import Any, TypeAlias

from dither.query.kinds import Expression, Interval, Kind, Literal, columns
from dither.query.plan import plan
from dither.query.schema import ColumnFacts

Made: TypeAlias = bool | int | float | str | dt.date | dt.datetime | None
Origins: TypeAlias = Mapping[str, frozenset[tuple[str, str]]]

DAY_ZERO = dt.date(1970, 1, 1)
TIME_ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001  timestamps without a zone are read as UTC
FIRST_MOMENT, LAST_MOMENT = (dt.datetime.combine(day, dt.time()) for day in (dt.date.min, dt.date.max))
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# How often a value is undeclared: missing, not a number, infinite, beyond the bounds.
AWKWARD_SHARE = 0.2
LONG = 40
ODD_IDS = ("", " ", "a", "A", "é", "É")

USUAL: dict[Kind, tuple[Made, ...]] = {
    Kind.BOOLEAN: (True, False),
    Kind.INTEGER: (0, 1, 2, 3, 5, 8),
    Kind.DOUBLE: (0.0, 0.1, 0.5, 1.0, 2.5, 50.0),
    Kind.TEXT: ("a", "b", "c", "d"),
    Kind.DATE: (dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(2024, 6, 15), dt.date(2025, 12, 31)),
    Kind.TIMESTAMP: tuple(
        TIME_ZERO + dt.timedelta(days=days, seconds=seconds)
        for days, seconds in ((19_753, 0), (19_782, 86_399), (19_889, 45_000), (20_453, 60))
    ),
}
AWKWARD: dict[Kind, tuple[Made, ...]] = {
    Kind.BOOLEAN: (None,),
    Kind.INTEGER: (None, SMALLEST_INTEGER, LARGEST_INTEGER, -1, 2**53 + 1),
    Kind.DOUBLE: (None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308, -1.7e308, 1e16, -0.1),
    Kind.TEXT: (None, "", " ", "O'Brien", "É", "%", "NULL", "1e5", "x" * LONG),
    Kind.DATE: (None, dt.date.min, dt.date.max, DAY_ZERO),
    Kind.TIMESTAMP: (None, FIRST_MOMENT, LAST_MOMENT, TIME_ZERO - dt.timedelta(microseconds=1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What is put in a column: declared values, others, and the two ends that move sums furthest.

    ``mentioned`` are values around the question's constants. ``endless`` says that there are more values than those,
    since nobody declared any.
    """

    usual: tuple[Made, ...]
    awkward: tuple[Made, ...]
    lowest: Made
    highest: Made
    mentioned: tuple[Made, ...] = ()
    endless: bool = False

    def any(self, random: Random) -> Made:
        """A value, now and then one that nobody declared."""
        return random.choice(self.awkward if random.random() < AWKWARD_SHARE else self.usual)

    def another(self, random: Random, number: int) -> Made:
        """A usual value, another one for every number where there are enough."""
        first: Any = random.choice(self.mentioned or self.usual) if self.endless else None
        match first:
            case str():
                return f"{first}{number}"
            case dt.date():
                return _moved(first, number)
            case int() | float() if not isinstance(first, bool):
                return first + number
        return self.usual[number % len(self.usual)]

    def series(self, random: Random) -> tuple[int, Callable[[int], Made]]:
        """How many different values there are (0: no end), and a value for each number: what groups are told apart by.

        Where nobody declared values they go on without end, close together or so far apart that months and tens
        differ too; else the declared ones come in any order, those that the question mentions first.
        """
        if not self.endless or (self.mentioned and random.random() < 1 / 2):
            known = dict.fromkeys(self.usual)
            first = [value for value in self.mentioned if value in known or self.endless]
            ordered = list(dict.fromkeys([*first, *random.sample(list(known), len(known))]))
            return len(ordered), lambda number: ordered[number % len(ordered)]
        first_of_all: Any = random.choice(self.mentioned or self.usual)
        step = random.choice((1, 1, 11, 32, 400))
        match first_of_all:
            case str():
                return 0, lambda number: f"{number}{first_of_all}"
            case dt.date():
                return 0, lambda number: _moved(first_of_all, step * number)
            case int() | float() if not isinstance(first_of_all, bool):
                return 0, lambda number: first_of_all + step * number
        return len(self.usual), lambda number: self.usual[number % len(self.usual)]


def values_of(column: ColumnFacts, constants: Iterable[Literal], random: Random) -> Values:
    """The values for a column: from what is declared, or a few of its kind, and the question's constants."""
    kind = column.kind
    fitting = tuple(v for constant in constants for v in _around(constant, kind) if v is not None)
    if column.keys is not None:
        keys = tuple(_plain(key, kind) for key in column.keys)
        known = tuple(key for key in keys if key is not None) or USUAL[kind]
        others = (*AWKWARD[kind], *fitting, *(value for value in USUAL[kind] if value not in known))
        return Values(usual=keys, awkward=others, lowest=known[0], highest=known[-1], mentioned=fitting)
    if isinstance(column.between, Interval):
        inside = tuple(_at(point, kind) for point in _points(column.between, column.step, random))
        beyond = tuple(_at(point, kind) for point in _outside(column.between))
        awkward = (*AWKWARD[kind], *beyond)
        usual = (*inside, *fitting)
        return Values(usual=usual, awkward=awkward, lowest=inside[0], highest=inside[1], mentioned=fitting)
    ordered = sorted((*USUAL[kind], *fitting))  # type: ignore[type-var]
    return Values(
        usual=(*USUAL[kind], *fitting),
        awkward=AWKWARD[kind],
        lowest=ordered[0],
        highest=ordered[-1],
        mentioned=fitting,
        endless=True,
    )


def unit_id(number: int, kind: Kind, *, odd: bool) -> Made:
    """The id of the unit with this number, in the kind of its column; of booleans there are two, and then nobody.

    ``odd`` ids are texts that a careless comparison takes for one another; the others are the same in every kind, for
    tables whose unit columns have different ones.
    """
    match kind:
        case Kind.BOOLEAN:
            return number == 1 if number < 2 else None
        case Kind.INTEGER:
            return number - 1
        case Kind.DOUBLE:
            return float(number - 1)
        case Kind.TEXT:
            return ODD_IDS[number] if odd and number < len(ODD_IDS) else str(number - 1)
        case Kind.DATE:
            return DAY_ZERO + dt.timedelta(days=number)
        case Kind.TIMESTAMP:
            return TIME_ZERO + dt.timedelta(seconds=number)


def constants_of(aggregation: plan.Aggregation) -> tuple[Literal, ...]:
    """The constants that a question mentions, each once, and the ends of the bounds that it states."""
    bounds = (argument.facts.bounds for aggregate in aggregation.aggregates for argument in aggregate.arguments)
    ends = [Literal(end, Kind.DOUBLE) for stated in bounds if stated is not None for end in (stated.low, stated.high)]
    mentioned = [part for part in _parts(aggregation) if isinstance(part, Literal)]
    return tuple({(part.kind, part.value): part for part in (*mentioned, *ends)}.values())


def tables_of(aggregation: plan.Aggregation) -> tuple[str, ...]:
    """The tables that a question reads, public ones too."""
    return tuple(sorted({part.table for part in _parts(aggregation) if isinstance(part, plan.Scan)}))


def key_columns(aggregation: plan.Aggregation) -> frozenset[tuple[str, str]]:
    """The columns of tables, as (table, column), on which the keys of the groups depend."""
    origins = _origins(aggregation.relation)
    return frozenset(place for key in aggregation.keys for place in _of(key.expression, origins))


def _of(expression: Expression | None, origins: Origins) -> frozenset[tuple[str, str]]:
    names = () if expression is None else columns(expression)
    return frozenset(place for name in names for place in origins.get(name, ()))


def _origins(relation: plan.Relation) -> Origins:
    """For each name of a relation, the columns of tables that it is computed from."""
    match relation:
        case plan.Scan():
            return {name: frozenset({(relation.table, column)}) for name, column in relation.columns}
        case plan.FilterRows() | plan.Distinct():
            return _origins(relation.input)
        case plan.JoinRows():
            return {**_origins(relation.left), **_origins(relation.right)}
        case plan.Union():
            found: dict[str, frozenset[tuple[str, str]]] = {}
            for part in relation.inputs:
                below = _origins(part)
                for given, field in zip(part.fields, relation.fields, strict=True):
                    found[field.name] = found.get(field.name, frozenset()) | below.get(given.name, frozenset())
            return found
        case plan.Project():
            below = _origins(relation.input)
            return {f.name: _of(e, below) for f, e in zip(relation.fields, relation.expressions, strict=True)}
        case plan.PerUnit():
            below = _origins(relation.input)
            parts = (*relation.keys, *(aggregate.argument for aggregate in relation.aggregates))
            return {f.name: _of(e, below) for f, e in zip(relation.fields, parts, strict=True)}
        case plan.Window():
            below = _origins(relation.input)
            added = relation.fields[len(relation.input.fields) :]
            arguments = (i.argument if i.aggregate is None else i.aggregate.argument for i in relation.items)
            return {**below, **{f.name: _of(e, below) for f, e in zip(added, arguments, strict=True)}}


def _parts(node: object) -> Iterator[object]:
    yield node
    if isinstance(node, tuple):
        for part in node:
            yield from _parts(part)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _parts(getattr(node, field.name))


def _around(constant: Literal, kind: Kind) -> tuple[Made, ...]:
    """A constant as a value of the kind, and the nearest ones on both sides: where a comparison turns."""
    value: Any = constant.value
    if value is None or isinstance(value, bool):
        return (value,) if kind is Kind.BOOLEAN else ()
    if constant.kind.number and kind.number:
        if not math.isfinite(value):
            return ()
        exact = Fraction(value)
        nearby = (exact, exact - 1, exact + 1)
        return tuple(_at(point, kind) for point in nearby)
    if isinstance(value, dt.date) and kind.temporal:
        moment = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
        return tuple(
            near if kind is Kind.TIMESTAMP else near.date()
            for step in (-1, 0, 1)
            if isinstance(near := _moved(moment, step), dt.datetime)
        )
    # a pattern of LIKE, or text that is searched for, is met by the text itself without its wildcards
    return (value, value.replace("%", "").replace("_", "a"), f"{value}x") if kind is constant.kind is Kind.TEXT else ()


def _moved(moment: dt.date, days: int) -> dt.date | None:
    try:
        return moment + dt.timedelta(days=days)
    except OverflowError:
        return None


def _points(between: Interval, step: Fraction | None, random: Random) -> list[Fraction]:
    """The lower end, the upper end, and some points between them, on the grid of the step where there is one."""
    parts = [Fraction(0), Fraction(1), Fraction(1, 2), *(Fraction(random.randrange(1001), 1000) for _ in range(8))]
    found = [between.low + part * between.width for part in parts]
    if step is not None:
        found[2:] = [min(max(round(point / step) * step, between.low), between.high) for point in found[2:]]
    return found


def _outside(between: Interval) -> tuple[Fraction, ...]:
    far = 10 * between.width + 1
    return between.low - 1, between.high + 1, between.low - far, between.high + far


def _at(point: Fraction, kind: Kind) -> Made:
    """The value at a place on the line of numbers; dates count days, timestamps microseconds from 1970."""
    if kind is Kind.INTEGER:
        return min(max(round(point), SMALLEST_INTEGER), LARGEST_INTEGER)
    if kind is Kind.DOUBLE:
        try:
            return float(point)
        except OverflowError:
            return math.inf if point > 0 else -math.inf
    try:
        if kind is Kind.DATE:
            return DAY_ZERO + dt.timedelta(days=round(point))
        if kind is Kind.TIMESTAMP:
            return TIME_ZERO + dt.timedelta(microseconds=round(point))
    except OverflowError:
        return None
    return None


def _plain(key: Any, kind: Kind) -> Made:
    """A declared key as a value: exact numbers become floats where the column holds those."""
    if key is None or isinstance(key, bool):
        return key
    if kind is Kind.DOUBLE:
        return float(key)
    plain: Made = int(key) if kind is Kind.INTEGER else key
    return plain
