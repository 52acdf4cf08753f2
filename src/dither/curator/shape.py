"""The shape of an answer: columns, filter, order and limit over what was released, with the interval of each value.

All of it is post-processing of released numbers: it reads no data, draws no noise that protects anybody, and is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.curator.answer import Bars
from dither.curator.release import Released
from dither.engines.released import compute
from dither.mechanisms import DiscreteGaussian
from dither.query.arrow import TYPES
from dither.query.estimates import DEFAULT_CONFIDENCE, Noisy, values
from dither.query.expressions import Column, Expression, columns
from dither.query.kinds import Kind
from dither.query.lower import ModeChoice
from dither.query.plan import Output, Shape
from dither.query.predict import PredictedError
from dither.query.price import Priced
from dither.query.recipes import Chosen, Moments

Floats: TypeAlias = npt.NDArray[np.float64]

# Computed columns get their intervals by simulation, for at most so many simulated rows.
DRAWS = 1000
MOST_SIMULATED = 200_000
ROW = "row"


def shape(
    released: Released, wanted: Shape, errors: Sequence[PredictedError], confidence: Fraction
) -> tuple[pa.Table, dict[str, Bars]]:
    """The answer's table, and the bars of its noisy columns."""
    base = _base(released, confidence)
    table = _computed(base, wanted)
    rows = table.column(len(wanted.outputs)).to_numpy()
    bars = {}
    for output in wanted.outputs:
        found = _bars(output, released, base, errors, rows, confidence)
        if found is not None:
            bars[output.name] = found
    names = [output.name for output in wanted.outputs]
    return pa.Table.from_arrays(table.columns[:-1], names=names), bars


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
    found = list(_computed(_base(empty, DEFAULT_CONFIDENCE), wanted).schema)[:-1]
    return pa.schema([pa.field(o.name, field.type) for o, field in zip(wanted.outputs, found, strict=True)])


def _computed(base: pa.Table, wanted: Shape) -> pa.Table:
    """The columns of the answer in their order, unnamed, and behind them the place that each row had before."""
    plain = [output.expression.name for output in wanted.outputs if isinstance(output.expression, Column)]
    if wanted.having is None and not wanted.order and len(plain) == len(wanted.outputs):
        # nothing to compute: most questions, and a tenth of the time
        columns = [base.column(name) for name in (*plain, ROW)]
        picked = pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])
        return picked.slice(wanted.offset, wanted.limit)
    named = [(f"o{place}", output.expression) for place, output in enumerate(wanted.outputs)]
    return compute(
        base,
        [*named, (ROW, Column(ROW, Kind.INTEGER))],
        having=wanted.having,
        order=wanted.order,
        limit=wanted.limit,
        offset=wanted.offset,
    )


def _base(released: Released, confidence: Fraction) -> pa.Table:
    """Keys, values and interval ends under the names that outputs use."""
    found: dict[str, Any] = {name: released.keys.column(name) for name in released.keys.column_names}
    for index, one in enumerate(released.estimates(confidence)):
        found |= {f"a{index}": one.value, f"a{index}.low": one.low, f"a{index}.high": one.high}
    found[ROW] = pa.array(np.arange(released.size, dtype=np.int64))
    return pa.table(found)


def _bars(
    output: Output,
    released: Released,
    base: pa.Table,
    errors: Sequence[PredictedError],
    rows: npt.NDArray[np.int64],
    confidence: Fraction,
) -> Bars | None:
    used = sorted({int(name[1:]) for name in columns(output.expression) if name[0] == "a" and "." not in name})
    if not used:
        return None
    if isinstance(output.expression, Column):
        index = used[0]
        if isinstance(released.recipes[index], Chosen):
            return Bars(low=None, high=None, text=errors[index].text)
        low, high = (base.column(f"a{index}.{end}").to_numpy().astype(np.float64) for end in ("low", "high"))
        return Bars(low=low[rows], high=high[rows], text=errors[index].text)
    kinds = {type(released.recipes[index]) for index in used}
    draws = min(DRAWS, MOST_SIMULATED // max(1, released.size))
    if kinds & {Chosen, Moments} or draws < DRAWS // 10 or output.expression.kind not in (Kind.INTEGER, Kind.DOUBLE):
        return Bars(low=None, high=None, text="computed from noisy values")
    ends = _simulated(output.expression, released, base, draws, confidence)
    return Bars(low=ends[0][rows], high=ends[1][rows], text="simulated")


def _simulated(
    expression: Expression, released: Released, base: pa.Table, draws: int, confidence: Fraction
) -> tuple[Floats, Floats]:
    """The middle part of what the expression could be if the noise had been other: released cells minus fresh noise.

    A fixed seed makes it a function of what was released; the draws protect nobody.
    """
    maker = np.random.default_rng(20_26)
    size = released.size
    cells = []
    for cell, noise in zip(released.cells, released.noise, strict=True):
        scale = float(noise.scale)
        drawn = (
            maker.normal(0.0, scale, size * draws)
            if isinstance(noise, DiscreteGaussian)
            else maker.laplace(0.0, scale, size * draws)
        )
        cells.append(np.tile(cell, draws) - np.rint(drawn).astype(np.int64))
    choices = tuple(np.tile(choice, draws) for choice in released.choices)
    imagined = Noisy(size=size * draws, cells=cells, noise=released.noise, choices=choices)
    needed = columns(expression)
    index = np.tile(np.arange(size), draws)
    table: dict[str, Any] = {name: base.column(name).take(index) for name in needed if name[0] != "a"}
    for place in sorted({int(name[1:].partition(".")[0]) for name in needed if name[0] == "a"}):
        table[f"a{place}"] = values(released.recipes[place], imagined)
        for end in ("low", "high"):
            table[f"a{place}.{end}"] = base.column(f"a{place}.{end}").take(index)
    computed = compute(pa.table(table), [("x", expression)]).column("x").cast(pa.float64())
    numbers = computed.to_numpy().reshape(draws, size)
    return _middle(numbers, confidence)


def _middle(numbers: Floats, confidence: Fraction) -> tuple[Floats, Floats]:
    """The ends of the middle part of each column, rounded outward; NaN (which sorts last) is left out."""
    if numbers.size == 0:
        return np.zeros(0), np.zeros(0)
    ordered = np.sort(numbers, axis=0)
    last = np.maximum((~np.isnan(ordered)).sum(axis=0) - 1, 0)
    tail = float(1 - confidence) / 2
    low = np.floor(tail * last).astype(np.int64)
    ends = [np.take_along_axis(ordered, place[np.newaxis], axis=0)[0] for place in (low, last - low)]
    return ends[0], ends[1]
