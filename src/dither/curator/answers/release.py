"""Release: exact cells become noisy ones, keys are selected, choices are made. What comes out is safe, and is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace, GaussianThreshold
from dither.numeric import Number, as_fraction
from dither.query.aggregates.base import DEFAULT_CONFIDENCE, Estimate, Ints, Noisy, Recipe, array_of
from dither.query.aggregates.catalogue import from_json, to_json
from dither.query.aggregates.spread import Noise
from dither.query.aggregates.vicinity import Nearby, Vicinity, counted_in, ends_around
from dither.query.arrow import TYPES
from dither.query.kinds import Interval, Kind
from dither.query.measure.measures import BinCounts, Measured
from dither.query.plan.plan import Key
from dither.query.price.noise import Priced

VERSION = 1
METADATA = b"dither"
# stated, so that no variable of the environment changes what is stored, nor is looked up each time
WRITING = pa.ipc.IpcWriteOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What leaves: keys, noisy cells and choices, and how answers are read off them; free to show and compute with.

    Values and intervals aren't stored; they follow from the cells, the same every time.
    """

    keys: pa.Table
    size: int
    cells: tuple[Ints, ...]
    noise: tuple[Noise, ...]
    choices: tuple[npt.NDArray[Any], ...]
    recipes: tuple[Recipe, ...]
    nearby: tuple[Nearby, ...] = ()
    nearby_noise: tuple[Noise, ...] = ()

    @property
    def noisy(self) -> Noisy:
        """What recipes read."""
        return Noisy(
            size=self.size,
            cells=self.cells,
            noise=self.noise,
            choices=self.choices,
            nearby=self.nearby,
            nearby_noise=self.nearby_noise,
        )

    def estimates(self, confidence: Number = DEFAULT_CONFIDENCE) -> tuple[Estimate, ...]:
        """Each aggregate's values and intervals at this confidence."""
        exact = as_fraction(confidence, "confidence")
        noisy = self.noisy
        return tuple(recipe.estimate(noisy, exact) for recipe in self.recipes)

    @property
    def values(self) -> tuple[pa.Array[Any], ...]:
        """Each aggregate's value in each group."""
        return tuple(one.value for one in self.estimates())

    @property
    def low(self) -> tuple[pa.Array[Any], ...]:
        """The lower ends of the 95% intervals."""
        return tuple(one.low for one in self.estimates())

    @property
    def high(self) -> tuple[pa.Array[Any], ...]:
        """The upper ends of the 95% intervals."""
        return tuple(one.high for one in self.estimates())

    def to_bytes(self) -> bytes:
        """The permanent form that the ledger stores: an Arrow stream whose metadata says how to read it."""
        columns = {name: self.keys.column(name).combine_chunks() for name in self.keys.column_names}
        columns |= {f"c{i}": pa.array(cell) for i, cell in enumerate(self.cells)}
        columns |= {f"q{i}": pa.array(choice) for i, choice in enumerate(self.choices)}
        for place, one in enumerate(self.nearby):
            starts = pa.array(one.starts, pa.int32())
            for name, numbers in (("e", one.ends), ("n", one.counts)):
                columns[f"{name}{place}"] = pa.ListArray.from_arrays(starts, pa.array(numbers))
        form: dict[str, Any] = {
            "version": VERSION,
            "size": self.size,
            "noise": [[_law(noise), str(noise.scale)] for noise in self.noise],
            "recipes": [to_json(recipe) for recipe in self.recipes],
        }
        if self.nearby:
            form["nearby"] = [[_law(noise), str(noise.scale)] for noise in self.nearby_noise]
        table = pa.table(columns) if columns else pa.table({})
        table = table.replace_schema_metadata({METADATA: json.dumps(form, sort_keys=True).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=WRITING) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """The inverse of ``to_bytes``."""
        try:
            with pa.ipc.open_stream(pa.py_buffer(stored)) as reader:
                table = reader.read_all()
            form = json.loads((table.schema.metadata or {})[METADATA])
            if form["version"] != VERSION:
                raise InvalidData(f"a stored answer of version {form['version']} can't be read by this dither")
            noise = tuple(_noise_of(law, Fraction(scale)) for law, scale in form["noise"])
            nearby_noise = tuple(_noise_of(law, Fraction(scale)) for law, scale in form.get("nearby", ()))
            nearby = tuple(_nearby(table, place) for place in range(len(nearby_noise)))
            recipes = tuple(from_json(recipe) for recipe in form["recipes"])
        except (pa.ArrowException, KeyError, TypeError, ValueError):
            raise InvalidData("a stored answer is damaged: it isn't what Released.to_bytes wrote") from None
        names = table.column_names
        return cls(
            keys=table.select([name for name in names if name[0] == "k"]).replace_schema_metadata(None),
            size=int(form["size"]),
            cells=tuple(_numbers(table, name) for name in names if name[0] == "c"),
            noise=noise,
            choices=tuple(_numbers(table, name) for name in names if name[0] == "q"),
            recipes=recipes,
            nearby=nearby,
            nearby_noise=nearby_noise,
        )


def release(priced: Priced, measured: Measured, *, source: Source = SYSTEM) -> Released:
    """Noisy cells, selected keys and choices, for mechanisms that were priced and charged before.

    Guarantee: private as ``priced.loss`` states, given that the engine kept to the measurement: each cell gets its own
        fresh noise, of a size fixed before data was read. Public groups all get noise, whether they occur or not.
    """
    if priced.lowered.units is None:
        keys, size, places = _public(priced, measured)
    else:
        keys, size, places = _selected(priced, measured, source)
    exact_cells = (priced.measurement.numbers(cell.exact, measured) for cell in priced.lowered.cells)
    cells = tuple(
        mechanism.release(_placed(exact, places, size), source=source)
        for exact, mechanism in zip(exact_cells, priced.noise, strict=True)
    )
    choices = tuple(_choose(priced, measured, i, places, size, source) for i in range(len(priced.choosers)))
    around = zip(priced.lowered.vicinities, priced.nearby, strict=True)
    return Released(
        keys=keys,
        size=size,
        cells=cells,
        noise=priced.noise,
        choices=choices,
        recipes=priced.lowered.recipes,
        nearby=tuple(_counted(priced, measured, one, noise, choices, places, size, source) for one, noise in around),
        nearby_noise=priced.nearby,
    )


def _placed(exact: Ints, places: Ints, size: int) -> Ints:
    """Measured groups at their place among those that answer; groups that don't occur are 0."""
    out = np.zeros(size, dtype=np.int64)
    inside = places >= 0
    np.add.at(out, places[inside], np.asarray(exact, dtype=np.int64)[inside])
    return out


def public_groups(priced: Priced) -> Released:
    """The public groups of a question that asks nothing about them: no data is read."""
    values = [_public_values(key) for key in priced.aggregation.keys]
    return Released(
        keys=_combinations(values),
        size=math.prod(len(array) for array in values),
        cells=(),
        noise=(),
        choices=(),
        recipes=(),
    )


def _combinations(values: list[pa.Array[Any]]) -> pa.Table:
    """Every combination, ascending, NULL last."""
    repeat = size = math.prod(len(array) for array in values)
    columns: dict[str, pa.Array[Any]] = {}
    for index, array in enumerate(values):
        repeat //= len(array)
        columns[f"k{index}"] = array if len(values) == 1 else array.take(np.arange(size) // repeat % len(array))
    return pa.table(columns)


def _public(priced: Priced, measured: Measured) -> tuple[pa.Table, int, Ints]:
    """Every combination of the public values, ascending, NULL last; and the place of each measured group among them."""
    keys = priced.aggregation.keys
    if not keys:
        return pa.table({}), 1, np.zeros(measured.size, dtype=np.int64)
    values = [_public_values(key) for key in keys]
    size = math.prod(len(array) for array in values)
    places = np.zeros(measured.size, dtype=np.int64)
    inside = np.ones(measured.size, dtype=np.bool_)
    repeat = size
    for index, (key, array) in enumerate(zip(keys, values, strict=True)):
        repeat //= len(array)
        found: Any = pc.index_in(_canonical(measured.keys.column(f"k{index}"), key.kind), value_set=array)
        if found.null_count:
            inside &= ~found.is_null().to_numpy(zero_copy_only=False)
            found = found.fill_null(0)
        places += repeat * found.to_numpy(zero_copy_only=False).astype(np.int64)
    # drop keys outside the public set, whatever the engine says
    return _combinations(values), size, np.where(inside, places, -1)


def _public_values(key: Key) -> pa.Array[Any]:
    values = key.values or ()
    ordered = [value for value in values if value is not None] + [None] * (None in values)
    return array_of(ordered, key.kind)


def _selected(priced: Priced, measured: Measured, source: Source) -> tuple[pa.Table, int, Ints]:
    """The groups that enough units hold, by a noisy decision; in ascending order of keys whatever the engine's was."""
    assert priced.lowered.units is not None
    assert priced.selection is not None
    units = measured.totals[priced.lowered.units]
    mechanism = priced.selection.mechanism
    if isinstance(mechanism, GaussianThreshold):
        shown, _ = mechanism.release(units, source=source)
    else:
        shown = mechanism.release(units, source=source)
    kept = np.flatnonzero(shown)
    kinds = [key.kind for key in priced.aggregation.keys]
    columns = {f"k{i}": _canonical(measured.keys.column(f"k{i}").take(kept), k) for i, k in enumerate(kinds)}
    table = pa.table(columns)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    places = np.full(measured.size, -1, dtype=np.int64)
    places[kept[order.to_numpy()]] = np.arange(kept.size)
    return table.take(order), kept.size, places


def _canonical(column: pa.ChunkedArray[Any], kind: Kind) -> pa.Array[Any]:
    """A key column in the one type of its kind, −0.0 as 0.0."""
    whole: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array: pa.Array[Any] = whole if whole.type == TYPES[kind] else whole.cast(TYPES[kind], safe=False)
    return pc.add(array, 0.0) if kind is Kind.DOUBLE else array


def _choose(
    priced: Priced, measured: Measured, index: int, places: Ints, size: int, source: Source
) -> npt.NDArray[Any]:
    """One draw in every group, empty ones too."""
    choice, chooser = priced.lowered.choices[index], priced.choosers[index]
    bins, counts, ends = _by_group(measured.bins[choice.bins], places, size)
    drawn = np.empty(size, dtype=choice.drawn)
    for group in range(size):
        part = slice(ends[group], ends[group + 1])
        drawn[group] = choice.release(chooser, bins[part], counts[part], source)
    return drawn


def _counted(
    priced: Priced,
    measured: Measured,
    vicinity: Vicinity,
    noise: Noise,
    choices: tuple[npt.NDArray[Any], ...],
    places: Ints,
    size: int,
    source: Source,
) -> Nearby:
    """Noisy counts around what was drawn in each group, empty ones too: by the draws, never by what is exact."""
    bins, counts, ends = _by_group(measured.bins[vicinity.bins], places, size)
    drawn = [priced.lowered.choices[choice].places(choices[choice]) for choice in vicinity.choices]
    together = list(zip(*drawn, strict=True))
    made = {each: ends_around(each, vicinity.last) for each in set(together)}
    edges = [made[each] for each in together]
    starts = np.concatenate([[0], np.cumsum([each.size for each in edges])]).astype(np.int64)
    exact = np.zeros(starts[-1], dtype=np.int64)
    for group, each in enumerate(edges):
        part = slice(ends[group], ends[group + 1])
        exact[starts[group] : starts[group + 1]] = counted_in(each, bins[part], counts[part])
    listed = np.concatenate(edges) if edges else np.zeros(0, dtype=np.int64)
    return Nearby(starts=starts, ends=listed, counts=noise.release(exact, source=source))


def _by_group(histogram: BinCounts, places: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    """Bins and counts sorted by the place of their group, and where each group's part ends."""
    place = places[histogram.group]
    inside = np.flatnonzero(place >= 0)
    order = inside[np.argsort(place[inside], kind="stable")]
    ends = np.searchsorted(place[order], np.arange(size + 1))
    return histogram.bin[order], histogram.count[order], ends


def _law(noise: Noise) -> str:
    return "gaussian" if isinstance(noise, DiscreteGaussian) else "laplace"


def _noise_of(law: str, scale: Fraction) -> Noise:
    if law not in ("laplace", "gaussian"):
        raise ValueError(law)
    return DiscreteGaussian(scale) if law == "gaussian" else DiscreteLaplace(scale)


def _nearby(table: pa.Table, place: int) -> Nearby:
    ends, counts = (table.column(f"{name}{place}").combine_chunks() for name in ("e", "n"))
    starts = np.concatenate([[0], np.cumsum(pc.list_value_length(ends).to_numpy(zero_copy_only=False))])
    flat: list[Any] = [pc.list_flatten(each).to_numpy(zero_copy_only=False) for each in (ends, counts)]
    return Nearby(starts=starts.astype(np.int64), ends=flat[0], counts=flat[1])


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return numbers


# ---------------------------------------------------------------------------------------------- what is stored

HEADER = 4
LONGEST_CAUSE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the ledger keeps under a question: the bounds that were found, and what was released under them.

    ``released`` is None where something went wrong after noise had been drawn for the bounds: whether it does may
    depend on that noise, so that another try would be another answer that nobody paid for. Then there is no answer, for
    ever, and ``cause`` says why, to the owner. ``data`` is the fingerprint of the data that was read; None in answers
    that were stored before it was kept.
    """

    bounds: Mapping[tuple[str, str], Interval]
    released: bytes | None
    cause: str = ""
    data: str | None = None
    rows: int | None = None

    def seal(self) -> bytes:
        """The permanent form: a header in JSON, then the released bytes."""
        found = [[*place, str(b.low), str(b.high)] for place, b in self.bounds.items()]
        form: dict[str, Any] = {
            "bounds": found,
            "answered": self.released is not None,
            "cause": self.cause[:LONGEST_CAUSE],
        }
        if self.data is not None:
            form["data"] = self.data
        if self.rows is not None:
            form["rows"] = self.rows
        header = json.dumps(form).encode()
        return len(header).to_bytes(HEADER, "big") + header + (self.released or b"")

    @classmethod
    def unseal(cls, stored: bytes) -> Stored:
        """The inverse of ``seal``."""
        size = int.from_bytes(stored[:HEADER], "big")
        form = json.loads(stored[HEADER : HEADER + size])
        bounds = {(t, c): Interval(Fraction(low), Fraction(high)) for t, c, low, high in form["bounds"]}
        released = stored[HEADER + size :] if form["answered"] else None
        return cls(bounds=bounds, released=released, cause=form["cause"], data=form.get("data"), rows=form.get("rows"))
