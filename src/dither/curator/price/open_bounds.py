"""Bounds that the owner left open: what a question waits for, and the same question once bounds were found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from dither.query.expressions.expressions import Column, Expression
from dither.query.kinds import Interval, Kind
from dither.query.plan.plan import Aggregate, Aggregation, Question, Shape
from dither.query.schema import ColumnFacts, Schema
from dither.query.sql import bind

Place: TypeAlias = tuple[str, str]

# What a search may find, at its extremes; the last one stands in for what it will find.
TRIALS = (
    Interval(-(Fraction(2) ** 65), Fraction(2) ** 65),
    Interval(-(Fraction(2) ** 65), -(Fraction(2) ** 64)),
    Interval(Fraction(2) ** -64, Fraction(2) ** -63),
    Interval(Fraction(0), Fraction(2) ** -63),
    Interval(Fraction(1), Fraction(2)),
    Interval(Fraction(-1), Fraction(1)),
)
# How far bounds are widened where the found ones leave an argument a single value: to zero, then by powers of two.
WIDER = (Fraction(0), *(Fraction(2) ** exponent for exponent in (0, 4, 8, 16, 32, 48, 65)))


def searched(aggregation: Aggregation) -> tuple[Place, ...]:
    """The columns whose bounds must be found before the noise has a size."""
    found = {place for a in aggregation.aggregates for argument in a.arguments for place in argument.facts.auto}
    return tuple(sorted(found))


def bounded(sql: str, question: Question, schema: Schema, bounds: Mapping[Place, Interval]) -> Question:
    """The question with facts for the arguments that waited for bounds; its relation and groups stay as they are.

    Groups must not change: they were priced as public or discovered before the bounds were known.
    """
    known = bind(sql, with_bounds(schema, bounds))
    places = _places(question.shape, known.shape)
    others = known.aggregation.aggregates
    aggregates = tuple(
        _with_facts(one, others[places[index]] if index in places else _alike(one, others)) if _waits(one) else one
        for index, one in enumerate(question.aggregation.aggregates)
    )
    return replace(question, aggregation=replace(question.aggregation, aggregates=aggregates))


def widened(bounds: Mapping[Place, Interval]) -> Iterator[dict[Place, Interval]]:
    """The bounds that were found, then wider ones around them, and at last the widest that a search can find.

    Found bounds may leave an argument a single value (LEAST(x, 3) above 3), of which there is no correlation. Wider
    bounds are computed from the found ones alone, which are released, so this is post-processing.
    """
    yield dict(bounds)
    for reach in WIDER:
        yield {
            place: Interval(min(found.low, -reach), max(found.high, reach)) if reach else _with_zero(found)
            for place, found in bounds.items()
        }


def _with_zero(found: Interval) -> Interval:
    return Interval(min(found.low, Fraction(0)), max(found.high, Fraction(0)))


def _waits(aggregate: Aggregate) -> bool:
    return any(argument.facts.auto for argument in aggregate.arguments)


def _with_facts(waiting: Aggregate, known: Aggregate) -> Aggregate:
    arguments = tuple(
        replace(given, facts=replace(found.facts, auto=frozenset())) if given.facts.auto else given
        for given, found in zip(waiting.arguments, known.arguments, strict=True)
    )
    return replace(waiting, arguments=arguments)


def _places(waiting: Shape, known: Shape) -> dict[int, int]:
    """Where each aggregate of one bound question is in the other.

    Aggregates are put in the order of a text that has their bounds in it, so that other bounds may be another order.
    What the shapes compute from them doesn't change: walking both at once meets the same aggregate at the same step.
    """
    pairs = zip(_expressions(waiting), _expressions(known), strict=True)
    names = (zip(_leaves(one), _leaves(other), strict=True) for one, other in pairs)
    return {_index(name): _index(found) for part in names for name, found in part if name[0] == "a"}


def _alike(waiting: Aggregate, known: Sequence[Aggregate]) -> Aggregate:
    """For an aggregate of which the shape shows nothing: any that computes the same, whatever its bounds."""
    computed = [argument.expression for argument in waiting.arguments]
    return next(
        one
        for one in known
        if one.function is waiting.function and [argument.expression for argument in one.arguments] == computed
    )


def _expressions(shape: Shape) -> list[Expression]:
    having = [] if shape.having is None else [shape.having]
    return [
        *(output.expression for output in shape.outputs),
        *having,
        *(each.expression for each in shape.order),
    ]


def _leaves(expression: Expression) -> list[str]:
    """The columns that an expression reads, in the order of its text, repeats too."""
    if isinstance(expression, Column):
        return [expression.name]
    return [name for part in getattr(expression, "arguments", ()) for name in _leaves(part)]


def _index(name: str) -> int:
    return int(name[1:].partition(".")[0])


def with_bounds(schema: Schema, bounds: Mapping[Place, Interval]) -> Schema:
    """The schema with bounds where a search stood."""
    tables = dict(schema.tables)
    for (table, column), interval in bounds.items():
        facts = tables[table]
        known = facts.columns[column]
        changed = {**facts.columns, column: replace(known, between=on_step(interval, known), searched=True)}
        tables[table] = replace(facts, columns=changed)
    return Schema(tables, schema.adjacency)


def on_step(interval: Interval, column: ColumnFacts) -> Interval:
    """Bounds moved outward to multiples of the column's step, so that there are values between them."""
    step = column.step or (Fraction(1) if column.kind is Kind.INTEGER else None)
    if step is None:
        return interval
    return Interval(math.floor(interval.low / step) * step, math.ceil(interval.high / step) * step)
