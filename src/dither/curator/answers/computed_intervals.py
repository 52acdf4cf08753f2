"""Intervals of computed columns: those of the aggregates in them, carried through the expression.

An expression is cut where intervals are known: at aggregates, at linear forms in noisy cells and at ratios of two such
forms. With k different parts each gets 1 − β/k as its confidence, so that all of them hold at once with the stated one
(Bonferroni), whatever the dependence; then the expression lies in what interval arithmetic makes of them. For one part
and a monotone function that is: ends to ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dither.engines.duckdb.noisy_rows import compute
from dither.query.aggregates.affine import Affine, affine, affine_ends, ratio, ratio_ends
from dither.query.aggregates.base import Noisy, Recipe, is_aggregate
from dither.query.aggregates.spread import Floats
from dither.query.expressions.propagation import AnyValue, Numbers, Possible, Truths, propagated
from dither.query.kinds import Call, Column, Expression, Kind, Literal, columns

# Ends of a linear form in doubles are off by less than this share of what is added up.
ROUNDING = 1e-12


@dataclass(slots=True)
class _Parts:
    """The parts of an expression whose intervals are known, by what makes them miss, and the subtrees without noise."""

    recipes: tuple[Recipe, ...]
    misses: dict[Hashable, None] = field(default_factory=dict)
    forms: dict[Expression, Affine | tuple[Affine, Affine] | int] = field(default_factory=dict)
    exact: dict[Expression, None] = field(default_factory=dict)

    def cut(self, expression: Expression) -> None:
        if not any(is_aggregate(name) for name in columns(expression)):
            self.exact[expression] = None
            return
        form = affine(expression, self.recipes) if expression.kind.number else None
        if form is not None:
            self._part(expression, form, form.noise if form.weights else None)
            return
        quotient = ratio(expression, self.recipes)
        if quotient is not None:
            self._part(expression, quotient, quotient)
        elif isinstance(expression, Column):
            index = int(expression.name[1:])
            self._part(expression, index, index)
        elif isinstance(expression, Call):
            for argument in expression.arguments:
                self.cut(argument)

    def _part(
        self, expression: Expression, form: Affine | tuple[Affine, Affine] | int, misses: Hashable | None
    ) -> None:
        self.forms[expression] = form
        if misses is not None:
            self.misses[misses] = None


def computed_ends(
    expression: Expression, recipes: tuple[Recipe, ...], noisy: Noisy, base: pa.Table, confidence: Fraction
) -> tuple[Floats, Floats]:
    """The interval of an expression over released columns in each row; NaN where it has no two finite ends.

    ``base`` has the keys, and the ends of intervals that the expression names, which are known numbers here.
    """
    parts = _Parts(recipes)
    parts.cut(expression)
    each = 1 - (1 - confidence) / max(1, len(parts.misses))
    known = exact_columns(parts.exact, base)
    found = _possible(expression, parts, known, noisy, each)
    if not isinstance(found, Numbers):
        nothing = np.full(noisy.size, np.nan)
        return nothing, nothing
    low, high = found.low, found.high
    if expression.kind is Kind.INTEGER:
        low, high = _whole(low, high)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, low, np.nan), np.where(bounded, high, np.nan)


def _whole(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The whole numbers between two ends, with room for their rounding."""
    room = [ROUNDING * np.maximum(1.0, np.abs(end)) for end in (low, high)]
    with np.errstate(invalid="ignore"):
        return np.ceil(low - room[0]), np.floor(high + room[1])


def exact_columns(wanted: Iterable[Expression], base: pa.Table) -> dict[Expression, Possible]:
    """What has no noise in it: constants and columns as they are, the rest computed as the values of an answer are."""
    found = {one: _constant(one, base.num_rows) for one in wanted if isinstance(one, Literal)}
    given = {one: base.column(one.name) for one in wanted if isinstance(one, Column)}
    calls = [(f"e{place}", one) for place, one in enumerate(one for one in wanted if isinstance(one, Call))]
    computed = compute(base, calls) if calls else base
    columns_of = given | {one: computed.column(name) for name, one in calls}
    return found | {one: _exact(column, one.kind) for one, column in columns_of.items()}


def _constant(literal: Literal, size: int) -> Possible:
    null = np.full(size, literal.value is None)
    if literal.kind is Kind.BOOLEAN:
        return Truths(np.full(size, literal.value is True), np.full(size, literal.value is False), null)
    if not literal.kind.number:
        return AnyValue(size)
    if literal.value is None:
        return Numbers(np.full(size, np.inf), np.full(size, -np.inf), null)
    value = np.full(size, float(literal.value))  # type: ignore[arg-type] # a number, by its kind
    return Numbers(value, value, null)


def _exact(column: Any, kind: Kind) -> Possible:
    null = column.is_null().to_numpy()
    if kind is Kind.BOOLEAN:
        true = column.cast(pa.int8()).fill_null(0).to_numpy() == 1
        return Truths(true & ~null, ~true & ~null, null)
    if not kind.number:
        return AnyValue(len(column))
    values = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
    return Numbers(np.where(null, np.inf, values), np.where(null, -np.inf, values), null)


def _possible(
    expression: Expression, parts: _Parts, known: dict[Expression, Possible], noisy: Noisy, confidence: Fraction
) -> Possible:
    if expression in known:
        return known[expression]
    if expression in parts.forms:
        return _part(parts.forms[expression], parts.recipes, noisy, confidence)
    assert isinstance(expression, Call)
    arguments = [_possible(argument, parts, known, noisy, confidence) for argument in expression.arguments]
    return propagated(expression, arguments, noisy.size)


def _part(
    form: Affine | tuple[Affine, Affine] | int, recipes: tuple[Recipe, ...], noisy: Noisy, confidence: Fraction
) -> Numbers:
    never = np.zeros(noisy.size, dtype=np.bool_)
    if isinstance(form, Affine):
        low, high = affine_ends(form, noisy, confidence)
        return Numbers(low, high, never)
    if isinstance(form, tuple):
        low, high = ratio_ends(*form, noisy, confidence)
        divisor = affine_ends(form[1], noisy, confidence)
        return Numbers(low, high, (divisor[0] <= 0) & (divisor[1] >= 0))
    ends = recipes[form].ends(noisy, confidence)
    if ends is None:
        return Numbers(np.full(noisy.size, -np.inf), np.full(noisy.size, np.inf), ~never)
    return Numbers(*ends)
