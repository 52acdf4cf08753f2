"""The shape of an answer: columns, filter, order and limit over what was released, with the interval of each value.

All of it is post-processing of released numbers: it reads no data, draws no noise, and is free.

Rows that were chosen by their noise need wider intervals: among many groups those on top are the ones whose noise was
large. Two rules, both for m candidates and noises that are independent from group to group:

- cut by ORDER BY … LIMIT: each interval is at 1 − β/m, so that those of all groups hold at once, and so do those shown,
  the one on top among them (Bonferroni). A LIMIT that leaves all groups is one as well: how many there are needn't be
  known to whoever asks. An order without LIMIT shows everything, so each interval holds at its rate over all rows, but
  the one on top doesn't by itself: answers say so in a note;
- filtered by HAVING: with R rows shown each is at 1 − β·R/m, so that on average no more than a share of β of the rows
  shown miss (Benjamini & Yekutieli 2005, theorem 1; the filter is "simple": whoever is shown, R depends on the others).

A value that is NULL hides its row as a filter does. A column of which noise makes some NULL (CASE without ELSE, NULLIF,
LN of what may be negative) has the second rule for itself: R is how many of its values are shown, m is how many could
have been. A value that is NULL whatever the noise, as CASE over a key makes it, is no candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dither.curator.answers.computed_intervals import computed_ends, exact_columns
from dither.curator.answers.release import Released
from dither.curator.results import Bars
from dither.engines.duckdb.noisy_rows import compute
from dither.query.aggregates.base import DEFAULT_CONFIDENCE, Ints, Noisy, Prediction, Recipe, is_aggregate
from dither.query.aggregates.vicinity import Nearby
from dither.query.arrow import TYPES
from dither.query.expressions.propagation import Numbers, Possible, everything, propagated
from dither.query.kinds import Call, Column, Expression, Kind, Literal, columns, walk
from dither.query.plan.plan import Output, Shape
from dither.query.price.noise import Priced

ROW = "row"
# No whole number that is released is larger, and doubles of this size are below 2⁶³.
WIDEST = 2.0**63 - 2.0**11
SORTED = (
    "sorted by noisy values, so chance helps to put rows first: the intervals of the first rows hold less often than "
    "stated; those that a LIMIT leaves allow for it"
)
COMPUTED, NO_INTERVAL = "from the intervals of its parts", "computed from noisy values"


def shape(
    released: Released, wanted: Shape, errors: Sequence[Prediction], confidence: Fraction
) -> tuple[pa.Table, dict[str, Bars]]:
    """The answer's table, and the bars of its noisy columns."""
    rows = _shown(_base(released), wanted, confidence)
    made: dict[str, Any] = {}
    bars = {}
    for place, output in enumerate(wanted.outputs):
        column, level = _of_values(output, rows.table.column(place), rows, confidence)
        made[str(place)] = column
        found = _bars(output, column, rows.shown, errors, level)
        if found is not None:
            bars[output.name] = found
    return pa.table(made).rename_columns([output.name for output in wanted.outputs]), bars


def alone(
    released: Released, wanted: Shape, errors: Sequence[Prediction], confidence: Fraction
) -> tuple[pa.Table, dict[str, Bars]]:
    """As ``shape``, where each row is an answer by itself, as in a simulation: none is chosen among the others."""
    if wanted != Shape(outputs=wanted.outputs):
        raise ValueError("a filter, an order or a limit is one of rows among others")
    base = _base(released)
    table = base.shaped(wanted, confidence).select(range(len(wanted.outputs)))
    bars = {
        output.name: found
        for place, output in enumerate(wanted.outputs)
        if (found := _bars(output, table.column(place), base, errors, confidence)) is not None
    }
    return table.rename_columns([output.name for output in wanted.outputs]), bars


def schema_of(priced: Priced, wanted: Shape) -> pa.Schema:
    """Names and types of the answer to a priced question: those of the same answer without rows."""
    kinds = [key.kind for key in priced.aggregation.keys]
    empty = Released(
        keys=pa.table({f"k{place}": pa.array([], TYPES[kind]) for place, kind in enumerate(kinds)}),
        size=0,
        cells=tuple(np.zeros(0, dtype=np.int64) for _ in priced.noise),
        noise=priced.noise,
        choices=tuple(np.zeros(0, dtype=choice.drawn) for choice in priced.lowered.choices),
        recipes=priced.lowered.recipes,
        nearby=tuple(Nearby.none() for _ in priced.nearby),
        nearby_noise=priced.nearby,
    )
    found = list(_shown(_base(empty), wanted, DEFAULT_CONFIDENCE).table.schema)
    return pa.schema([pa.field(o.name, field.type) for o, field in zip(wanted.outputs, found, strict=True)])


def chosen_by_noise(wanted: Shape) -> bool:
    """Whether noisy values have a say in which rows are shown, so that intervals must allow for the choice."""
    return _cut(wanted) or (wanted.having is not None and _noisy(wanted.having))


def choice_note(wanted: Shape) -> tuple[str, ...]:
    """What is said with an answer whose rows were chosen or sorted by noisy values; nothing of others."""
    notes = []
    hiding = ", ".join(output.name for output in wanted.outputs if _hides(output.expression))
    if chosen_by_noise(wanted):
        notes.append("rows are chosen by noisy values, so their intervals are wider: they allow for the choice")
    elif hiding:
        notes.append(
            f"noise decides where {hiding} is NULL, so its intervals are wider elsewhere: they allow for the choice"
        )
    if _noisy_order(wanted) and not _cut(wanted):
        notes.append(SORTED)
    return tuple(notes)


def level_of_chosen(confidence: Fraction, *, shown: int, candidates: int, cut: bool) -> Fraction:
    """The confidence of each interval where so many of the candidates are shown, ``cut`` off in a noisy order."""
    share = Fraction(1 if cut else max(1, shown), max(1, candidates))
    return 1 - (1 - confidence) * min(share, Fraction(1))


# ---------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class _Base:
    """Released groups, or those of them that are shown: keys, cells, and the value of each aggregate."""

    keys: pa.Table
    noisy: Noisy
    recipes: tuple[Recipe, ...]
    values: tuple[pa.Array[Any], ...]

    def of(self, rows: Ints) -> _Base:
        """Some of the rows."""
        noisy = self.noisy
        return _Base(
            self.keys.take(rows),
            Noisy(
                size=rows.size,
                cells=[cell[rows] for cell in noisy.cells],
                noise=noisy.noise,
                choices=[choice[rows] for choice in noisy.choices],
                nearby=[each.take(rows) for each in noisy.nearby],
                nearby_noise=noisy.nearby_noise,
            ),
            self.recipes,
            tuple(value.take(rows) for value in self.values),
        )

    def table(self, expressions: Iterable[Expression | None], confidence: Fraction) -> pa.Table:
        """Keys and values under the names that expressions use, and the ends of intervals that these name."""
        found: dict[str, Any] = {name: self.keys.column(name) for name in self.keys.column_names}
        found |= {f"a{index}": value for index, value in enumerate(self.values)}
        named = {name for one in expressions if one is not None for name in columns(one) if "." in name}
        for index in sorted({int(name[1:].partition(".")[0]) for name in named}):
            ends = self.recipes[index].estimate(self.noisy, confidence)
            found |= {f"a{index}.low": ends.low, f"a{index}.high": ends.high}
        found[ROW] = pa.array(np.arange(self.noisy.size, dtype=np.int64))
        return pa.table(found)

    def shaped(self, wanted: Shape, confidence: Fraction) -> pa.Table:
        """The columns of an answer, unnamed, and the place of each row; ends of intervals at this confidence."""
        every = [output.expression for output in wanted.outputs]
        return _computed(
            self.table([*every, wanted.having, *(item.expression for item in wanted.order)], confidence), wanted
        )


def _base(released: Released) -> _Base:
    noisy = released.noisy
    return _Base(released.keys, noisy, released.recipes, tuple(recipe.points(noisy) for recipe in released.recipes))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of an answer: columns, unnamed; the groups in them; those that could have been; what intervals need."""

    table: pa.Table
    shown: _Base
    candidates: _Base
    cut: bool
    level: Fraction


def _shown(base: _Base, wanted: Shape, confidence: Fraction) -> _Rows:
    """What is shown of the released groups, and the confidence that the intervals of shown rows need."""
    outputs = range(len(wanted.outputs))
    if not chosen_by_noise(wanted):
        table = base.shaped(wanted, confidence)
        rows = table.column(len(wanted.outputs)).to_numpy()
        plain = wanted.having is None and not wanted.order and wanted.limit is None and not wanted.offset
        shown = base if plain else base.of(rows)
        return _Rows(table.select(outputs), shown, shown, cut=False, level=confidence)
    picked = base.shaped(replace(wanted, outputs=()), confidence)
    shown = base.of(picked.column(0).to_numpy())
    candidates, cut = _candidates(base, wanted), _cut(wanted)
    level = level_of_chosen(confidence, shown=shown.noisy.size, candidates=candidates.noisy.size, cut=cut)
    table = shown.shaped(Shape(outputs=wanted.outputs), level)
    return _Rows(table.select(outputs), shown, candidates, cut=cut, level=level)


def _of_values(
    output: Output, column: pa.ChunkedArray[Any], rows: _Rows, confidence: Fraction
) -> tuple[pa.ChunkedArray[Any], Fraction]:
    """A column of the answer, and the confidence that its intervals need if noise made some of its values NULL."""
    expression = output.expression
    if rows.cut or not column.null_count or not expression.kind.number or not _noisy(expression):
        # those of a cut hold all at once, and so do any of them
        return column, rows.level
    never = _whatever_the_noise(expression, rows.candidates.noisy.size, rows.candidates.keys)
    candidates = int((~never.none).sum()) if isinstance(never, Numbers) else rows.candidates.noisy.size
    last, level = rows.candidates.noisy.size, rows.level
    while (shown := len(column) - column.null_count) < last:
        last, level = shown, level_of_chosen(confidence, shown=shown, candidates=max(shown, candidates), cut=False)
        if not any("." in name for name in columns(expression)):
            break
        # Ends of intervals are at this level too. Where they decide what is NULL, fewer may be left, which need a
        # higher one: the step-up of Benjamini & Hochberg, from all candidates down to as many as pass at their own.
        column = rows.shown.shaped(Shape(outputs=(output,)), level).column(0)
    return column, level


def _hides(expression: Expression) -> bool:
    """Whether it is written to be NULL where noisy values say so; not where a division by zero alone would."""
    if not expression.kind.number or not any(_hiding(node) for node in walk(expression)):
        return False
    found = _whatever_the_noise(expression, 1)
    return isinstance(found, Numbers) and bool(found.null.any())


def _hiding(node: Expression) -> bool:
    if not isinstance(node, Call) or not _noisy(node):
        return False
    if node.function == "case":
        *conditions, other = node.arguments
        results = [*conditions[1::2], other]
        nothing = any(isinstance(one, Literal) and one.value is None for one in results)
        return nothing and any(_noisy(condition) for condition in conditions[::2])
    last = node.arguments[-1]
    return node.function == "nullif" and not (isinstance(last, Literal) and last.value == 0)


def _whatever_the_noise(expression: Expression, size: int, keys: pa.Table | None = None) -> Possible:
    """What an expression can be in so many rows if nothing is known of noisy values, nor of keys if none are given."""
    exact: dict[Expression, None] = {}
    _noiseless(expression, exact, known=keys is not None)
    # a table needs a column to have rows
    base = keys if keys is not None and keys.column_names else pa.table({"row": pa.nulls(size)})
    return _unknown(expression, exact_columns(exact, base), size)


def _noiseless(expression: Expression, exact: dict[Expression, None], *, known: bool) -> None:
    """The largest subtrees without an aggregate or an end of its interval, and without a key unless these are known."""
    names = list(columns(expression))
    if not any(name[0] == "a" for name in names) and (known or not names):
        exact[expression] = None
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            _noiseless(argument, exact, known=known)


def _unknown(expression: Expression, known: dict[Expression, Possible], size: int) -> Possible:
    if expression in known:
        return known[expression]
    if not isinstance(expression, Call):
        found = everything(size, expression.kind)
        # an aggregate that is a whole number fits 64 bits; what is made of it may not, and is NULL then
        if isinstance(found, Numbers) and expression.kind is Kind.INTEGER:
            return Numbers(np.full(size, -WIDEST), np.full(size, WIDEST), found.null)
        return found
    return propagated(expression, [_unknown(argument, known, size) for argument in expression.arguments], size)


def _cut(wanted: Shape) -> bool:
    """Whether a noisy order says which rows are left, even if it left all: who asks for the first ones reads these."""
    return _noisy_order(wanted) and (wanted.limit is not None or wanted.offset > 0)


def _candidates(base: _Base, wanted: Shape) -> _Base:
    """The groups that could have been shown, had their noise been other: those that pass what has no noise in it."""
    exact = [each for each in _conjuncts(wanted.having) if not _noisy(each)]
    if not exact:
        return base
    having = exact[0]
    for each in exact[1:]:
        having = Call("and", (having, each), Kind.BOOLEAN)
    return base.of(base.shaped(Shape(outputs=(), having=having), DEFAULT_CONFIDENCE).column(0).to_numpy())


def _conjuncts(condition: Expression | None) -> Iterator[Expression]:
    if isinstance(condition, Call) and condition.function == "and":
        for argument in condition.arguments:
            yield from _conjuncts(argument)
    elif condition is not None:
        yield condition


def _noisy(expression: Expression) -> bool:
    """Whether it reads an aggregate, or an end of its interval."""
    return any(name[0] == "a" for name in columns(expression))


def _noisy_order(wanted: Shape) -> bool:
    return any(_noisy(item.expression) for item in wanted.order)


def _computed(table: pa.Table, wanted: Shape) -> pa.Table:
    """The columns of the answer in their order, unnamed, and behind them the place that each row had before."""
    plain = [output.expression.name for output in wanted.outputs if isinstance(output.expression, Column)]
    if wanted.having is None and not wanted.order and len(plain) == len(wanted.outputs):
        # nothing to compute: most questions, and a tenth of the time
        picked = [table.column(name) for name in (*plain, ROW)]
        unnamed = pa.Table.from_arrays(picked, names=[str(place) for place in range(len(picked))])
        return unnamed.slice(wanted.offset, wanted.limit)
    named = [(f"o{place}", output.expression) for place, output in enumerate(wanted.outputs)]
    return compute(
        table,
        [*named, (ROW, Column(ROW, Kind.INTEGER))],
        having=wanted.having,
        order=wanted.order,
        limit=wanted.limit,
        offset=wanted.offset,
    )


# ---------------------------------------------------------------------------------------------- intervals


def _bars(
    output: Output,
    column: pa.ChunkedArray[Any],
    shown: _Base,
    errors: Sequence[Prediction],
    confidence: Fraction,
) -> Bars | None:
    expression = output.expression
    used = sorted({int(name[1:]) for name in columns(expression) if is_aggregate(name)})
    if not used:
        return None
    bare = any(shown.recipes[index].bare for index in used)
    if isinstance(expression, Column):
        text = str(errors[used[0]])
        if bare:
            return Bars(low=None, high=None, text=text)
        ends = shown.recipes[used[0]].estimate(shown.noisy, confidence)
        low, high = (end.to_numpy().astype(np.float64) for end in (ends.low, ends.high))
        return Bars(low=low, high=high, text=text)
    if bare or not expression.kind.number:
        return Bars(low=None, high=None, text=NO_INTERVAL)
    table = shown.table([expression], confidence)
    low, high = computed_ends(expression, shown.recipes, shown.noisy, table, confidence)
    missing = column.is_null().to_numpy()
    return Bars(low=np.where(missing, np.nan, low), high=np.where(missing, np.nan, high), text=COMPUTED)
