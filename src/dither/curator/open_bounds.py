"""Bounds that the owner left open: what a question waits for, and the same question once bounds were found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from dither.query.kinds import Interval, Kind
from dither.query.plan import Aggregation, Question
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


def searched(aggregation: Aggregation) -> tuple[Place, ...]:
    """The columns whose bounds must be found before the noise has a size."""
    found = {place for a in aggregation.aggregates for argument in a.arguments for place in argument.facts.auto}
    return tuple(sorted(found))


def bounded(sql: str, question: Question, schema: Schema, bounds: Mapping[Place, Interval]) -> Question:
    """The question with facts for the arguments that waited for bounds; its relation and groups stay as they are.

    Groups must not change: they were priced as public or discovered before the bounds were known.
    """
    known = bind(sql, with_bounds(schema, bounds)).aggregation.aggregates
    aggregates = tuple(
        replace(
            one,
            arguments=tuple(
                replace(given, facts=replace(found.facts, auto=frozenset())) if given.facts.auto else given
                for given, found in zip(one.arguments, other.arguments, strict=True)
            ),
        )
        for one, other in zip(question.aggregation.aggregates, known, strict=True)
    )
    return replace(question, aggregation=replace(question.aggregation, aggregates=aggregates))


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
