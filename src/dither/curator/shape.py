"""The shape of an answer: columns, filter, order and limit over what was released, with the interval of each value.

All of it is post-processing of released numbers: it reads no data, draws no noise, and is free.

Rows that were chosen by their noise need wider intervals: among many groups those on top are the ones whose noise was
large. Two rules, both for m candidates and noises that are independent from group to group:

- cut by ORDER BY … LIMIT: each interval is at 1 − β/m, so that those of all groups hold at once, and so do those shown,
  the one on top among them (Bonferroni);
- filtered by HAVING: with R rows shown each is at 1 − β·R/m, so that on average no more than a share of β of the rows
  shown miss (Benjamini & Yekutieli 2005, theorem 1; the filter is "simple": whoever is shown, R depends on the others).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.curator.answer import Bars
from dither.curator.computed import computed_ends
from dither.curator.release import Released
from dither.engines.released import compute
from dither.query.affine import is_aggregate
from dither.query.arrow import TYPES
from dither.query.estimates import DEFAULT_CONFIDENCE, Noisy, estimate, values
from dither.query.expressions import Call, Column, Expression, columns
from dither.query.kinds import Kind
from dither.query.lower import ModeChoice
from dither.query.plan import Output, Shape
from dither.query.predict import PredictedError
from dither.query.price import Priced
from dither.query.recipes import Chosen, Recipe

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

ROW = "row"
COMPUTED, NO_INTERVAL = "from the intervals of its parts", "computed from noisy values"


def shape(
    released: Released, wanted: Shape, errors: Sequence[PredictedError], confidence: Fraction
) -> tuple[pa.Table, dict[str, Bars]]:
    """The answer's table, and the bars of its noisy columns."""
    table, shown, level = _shown(_base(released), wanted, confidence)
    bars = {}
    for place, output in enumerate(wanted.outputs):
        found = _bars(output, table.column(place), shown, errors, level)
        if found is not None:
            bars[output.name] = found
    return table.rename_columns([output.name for output in wanted.outputs]), bars


def schema_of(priced: Priced, wanted: Shape) -> pa.Schema:
    """Names and types of the answer to a priced question: those of the same answer without rows."""
    kinds = [key.kind for key in priced.aggregation.keys]
    empty = Released(
        keys=pa.table({f"k{place}": pa.array([], TYPES[kind]) for place, kind in enumerate(kinds)}),
        size=0,
        cells=tuple(np.zeros(0, dtype=np.int64) for _ in priced.noise),
        noise=priced.noise,
        choices=tuple(
            np.zeros(0, dtype=np.int64 if isinstance(choice, ModeChoice) else np.float64)
            for choice in priced.lowered.choices
        ),
        recipes=priced.lowered.recipes,
    )
    found = list(_shown(_base(empty), wanted, DEFAULT_CONFIDENCE)[0].schema)
    return pa.schema([pa.field(o.name, field.type) for o, field in zip(wanted.outputs, found, strict=True)])


def chosen_by_noise(wanted: Shape) -> bool:
    """Whether noisy values have a say in which rows are shown, so that intervals must allow for the choice."""
    by_order = (wanted.limit is not None or wanted.offset > 0) and _noisy_order(wanted)
    return by_order or (wanted.having is not None and _noisy(wanted.having))


def choice_note(wanted: Shape) -> tuple[str, ...]:
    """What is said with an answer whose rows were chosen by noisy values; nothing of others."""
    if not chosen_by_noise(wanted):
        return ()
    return ("rows are chosen by noisy values, so their intervals are wider: they allow for the choice",)


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
            ends = estimate(self.recipes[index], self.noisy, confidence)
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
    noisy = Noisy(size=released.size, cells=released.cells, noise=released.noise, choices=released.choices)
    return _Base(released.keys, noisy, released.recipes, tuple(values(recipe, noisy) for recipe in released.recipes))


def _shown(base: _Base, wanted: Shape, confidence: Fraction) -> tuple[pa.Table, _Base, Fraction]:
    """The columns of the answer, unnamed; the groups in its rows; and the confidence that their intervals need."""
    if not chosen_by_noise(wanted):
        table = base.shaped(wanted, confidence)
        rows = table.column(len(wanted.outputs)).to_numpy()
        plain = wanted.having is None and not wanted.order and wanted.limit is None and not wanted.offset
        return table.select(range(len(wanted.outputs))), base if plain else base.of(rows), confidence
    picked = base.shaped(replace(wanted, outputs=()), confidence)
    shown = base.of(picked.column(0).to_numpy())
    level = level_of_chosen(
        confidence, shown=shown.noisy.size, candidates=_candidates(base, wanted), cut=_cut(base, shown, wanted)
    )
    table = shown.shaped(Shape(outputs=wanted.outputs), level)
    return table.select(range(len(wanted.outputs))), shown, level


def _cut(base: _Base, shown: _Base, wanted: Shape) -> bool:
    """Whether a noisy order decided which rows are left; where that can't be told, yes."""
    full = wanted.limit is not None and shown.noisy.size >= wanted.limit and base.noisy.size > wanted.limit
    return _noisy_order(wanted) and (full or wanted.offset > 0)


def _candidates(base: _Base, wanted: Shape) -> int:
    """How many groups could have been shown, had their noise been other: those that pass what has no noise in it."""
    exact = [each for each in _conjuncts(wanted.having) if not _noisy(each)]
    if not exact:
        return base.noisy.size
    having = exact[0]
    for each in exact[1:]:
        having = Call("and", (having, each), Kind.BOOLEAN)
    return base.shaped(Shape(outputs=(), having=having), DEFAULT_CONFIDENCE).num_rows


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
    errors: Sequence[PredictedError],
    confidence: Fraction,
) -> Bars | None:
    expression = output.expression
    used = sorted({int(name[1:]) for name in columns(expression) if is_aggregate(name)})
    if not used:
        return None
    chosen = any(isinstance(shown.recipes[index], Chosen) for index in used)
    if isinstance(expression, Column):
        text = errors[used[0]].text
        if chosen:
            return Bars(low=None, high=None, text=text)
        ends = estimate(shown.recipes[used[0]], shown.noisy, confidence)
        low, high = (end.to_numpy().astype(np.float64) for end in (ends.low, ends.high))
        return Bars(low=low, high=high, text=text)
    if chosen or not expression.kind.number:
        return Bars(low=None, high=None, text=NO_INTERVAL)
    table = shown.table([expression], confidence)
    low, high = computed_ends(expression, shown.recipes, shown.noisy, table, confidence)
    missing = column.is_null().to_numpy()
    return Bars(low=np.where(missing, np.nan, low), high=np.where(missing, np.nan, high), text=COMPUTED)
