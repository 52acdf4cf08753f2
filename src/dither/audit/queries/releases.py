"""Releases drawn many times: the noise, the selection of keys and the choices of one question on one measurement.

``dither.curator.answers.release`` is asked for many copies at once: each group is there n times, told apart by one more
public key, the number of the copy. Every copy has fresh noise, so n copies are n independent releases, made by the very
code that makes one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.audit.drawing.draws import Batched
from dither.audit.queries.neighbours import Group, bin_changes, groups_of, moved_groups, numbers_of
from dither.audit.result import LowerBound
from dither.curator.answers.release import Released, release
from dither.mechanisms import DiscreteGaussian
from dither.mechanisms.base import Floats
from dither.query.aggregates.vicinity import Nearby
from dither.query.kinds import Column, Kind
from dither.query.measure.measures import BinCounts, Measured
from dither.query.plan.plan import Key
from dither.query.price.noise import Priced

# The score looks at so many groups, those that moved furthest; outputs have columns for some of these besides.
MOST_SCORED = 64
MOST_SHOWN = 4
SCORE = "the score"
OUTPUT_COLUMN = re.compile(r"output\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The exact cells of one of two neighbours; what lower_bound calls an input."""

    name: str
    measured: Measured

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """A question's release on two neighbours, as a mechanism to audit.

    An output is a row of numbers about the groups that moved furthest: first the score, then whether each group is
    shown (where that isn't public), its noisy cells and its choices. The score adds up, over noisy cells, how much
    likelier each is on the first side than on the second under the noise that was priced, counts around choices among
    them: any function of an output is fair, and under that noise this one tells most.
    """

    priced: Priced
    sides: tuple[Side, Side]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, priced: Priced, before: Measured, after: Measured, names: tuple[str, str]) -> Releases:
        """The release of a question on two neighbours."""
        return cls(
            priced=priced,
            sides=(Side(name=names[0], measured=before), Side(name=names[1], measured=after)),
            groups=_furthest(priced, before, after),
        )

    @property
    def mechanism(self) -> Batched:
        """What lower_bound takes: ``draw(side, n)``."""
        return Batched(draw=self.draw, copies=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the columns of an output are."""
        groups = range(min(len(self.groups), MOST_SHOWN))
        shown = [f"group {g} shown" for g in groups] if self.priced.lowered.units is not None else []
        cells = [f"cell {c} of group {g}" for c in range(len(self.priced.noise)) for g in groups]
        choices = [f"choice {c} of group {g}" for c in range(len(self.priced.choosers)) for g in groups]
        return (SCORE, *shown, *cells, *choices)

    def in_words(self, found: LowerBound) -> LowerBound:
        """What was found, with the names of columns in the place of their numbers."""

        def named(text: str) -> str:
            return OUTPUT_COLUMN.sub(lambda match: self.columns[int(match[1])], text)

        sketch = None if found.sketch is None else replace(found.sketch, label=named(found.sketch.label))
        return replace(found, event=named(found.event), sketch=sketch)

    def draw(self, side: Side, n: int) -> Floats:
        """So many releases, each a row."""
        released = release(*self._copies(side.measured, n))
        size = len(self.groups)
        copy, group = (np.asarray(released.keys.column(name).to_numpy()) for name in ("k0", "k1"))
        parts: list[Floats] = []
        if self.priced.lowered.units is not None:
            parts.append(_spread(np.ones(released.size), copy, group, (n, size)))
        cells = [_spread(cell, copy, group, (n, size)) for cell in released.cells]
        choices = [_spread(choice, copy, group, (n, size)) for choice in released.choices]
        score = self._score(released, copy, group, n)
        return np.column_stack([score, *parts, *cells, *choices])

    def _score(self, released: Released, copy: Any, group: Any, n: int) -> Floats:
        score = np.zeros(n)
        for cell, noisy, noise in zip(self.priced.lowered.cells, released.cells, self.priced.noise, strict=True):
            here, there = (
                self._exact(side.measured, numbers_of(self.priced, cell, side.measured))[group] for side in self.sides
            )
            scale = float(noise.scale)
            if isinstance(noise, DiscreteGaussian):
                gain = (here - there) * (noisy - (here + there) / 2) / scale**2
            else:
                gain = (np.abs(noisy - there) - np.abs(noisy - here)) / scale
            np.add.at(score, copy, gain)
        return score + self._nearby_score(released, copy, group, n)

    def _nearby_score(self, released: Released, copy: Any, group: Any, n: int) -> Floats:
        """The same for what was counted around choices."""
        score = np.zeros(n)
        around = zip(self.priced.lowered.vicinities, released.nearby, released.nearby_noise, strict=True)
        for vicinity, nearby, noise in around:
            row = np.repeat(np.arange(released.size), np.diff(nearby.starts))
            here, there = (self._counts(side.measured, vicinity.bins, nearby, group[row]) for side in self.sides)
            scale = float(noise.scale)
            if isinstance(noise, DiscreteGaussian):
                gain = (here - there) * (nearby.counts - (here + there) / 2) / scale**2
            else:
                gain = (np.abs(nearby.counts - there) - np.abs(nearby.counts - here)) / scale
            np.add.at(score, copy[row], gain)
        return score

    def _counts(self, measured: Measured, bins: int, nearby: Nearby, group: Any) -> Floats:
        """What is exactly in each bin, of the group that the bin is about."""
        histogram = measured.bins[bins]
        known = {name: row for row, name in enumerate(groups_of(self.priced, measured))}
        upto = np.zeros(nearby.ends.size)
        for place, name in enumerate(self.groups):
            own = np.flatnonzero(histogram.group == known.get(name, -1))
            own = own[np.argsort(histogram.bin[own])]
            added = np.concatenate([[0], np.cumsum(histogram.count[own])])
            at = group == place
            upto[at] = added[np.searchsorted(histogram.bin[own], nearby.ends[at], side="right")]
        counts = np.diff(upto, prepend=0.0)
        counts[nearby.starts[:-1]] = upto[nearby.starts[:-1]]
        return counts

    def _exact(self, measured: Measured, numbers: npt.NDArray[np.int64]) -> Floats:
        known = dict(zip(groups_of(self.priced, measured), numbers.tolist(), strict=True))
        return np.array([known.get(group, 0) for group in self.groups], dtype=np.float64)

    def _copies(self, measured: Measured, n: int) -> tuple[Priced, Measured]:
        """The same question on the groups looked at, n times over."""
        place = {group: index for index, group in enumerate(self.groups)}
        known = groups_of(self.priced, measured)
        kept = np.array([row for row, group in enumerate(known) if group in place], dtype=np.int64)
        names = np.array([place[known[row]] for row in kept], dtype=np.int64)
        keys = tuple(
            Key(expression=Column(name, Kind.INTEGER), kind=Kind.INTEGER, values=tuple(range(count)))
            for name, count in (("copy", n), ("group", len(self.groups)))
        )
        table = pa.table({"k0": pa.array(np.repeat(np.arange(n), kept.size)), "k1": pa.array(np.tile(names, n))})
        many = Measured(
            keys=table,
            size=n * kept.size,
            totals=tuple(np.tile(total[kept], n) for total in measured.totals),
            bins=tuple(_tiled(histogram, kept, n) for histogram in measured.bins),
            distinct=tuple(np.tile(count[kept], n) for count in measured.distinct),
        )
        return replace(self.priced, aggregation=replace(self.priced.aggregation, keys=keys)), many


def _tiled(histogram: BinCounts, kept: npt.NDArray[np.int64], n: int) -> BinCounts:
    inside = np.flatnonzero(np.isin(histogram.group, kept))
    group = np.searchsorted(kept, histogram.group[inside])
    return BinCounts(
        group=(np.arange(n)[:, np.newaxis] * kept.size + group).ravel(),
        bin=np.tile(histogram.bin[inside], n),
        count=np.tile(histogram.count[inside], n),
    )


def _spread(values: Any, copy: Any, group: Any, shape: tuple[int, int]) -> Floats:
    """Values at their copy and group, of the first few groups; 0 where a group isn't shown."""
    out = np.zeros(shape)
    out[copy, group] = values
    return out[:, :MOST_SHOWN]


def _furthest(priced: Priced, before: Measured, after: Measured) -> tuple[Group, ...]:
    """The groups that moved furthest relative to their noise; any group where nothing moved."""
    far: dict[Group, float] = {}
    for cell, noise in zip(priced.lowered.cells, priced.noise, strict=True):
        moved = moved_groups(priced, numbers_of(priced, cell, before), numbers_of(priced, cell, after), before, after)
        for group, change in moved.items():
            far[group] = far.get(group, 0.0) + abs(change) / float(noise.scale)
    for place in range(len(priced.measurement.bins)):
        for group, bins in bin_changes(priced, before, after, place).items():
            far[group] = far.get(group, 0.0) + sum(map(abs, bins.values())) / priced.measurement.rows
    known: Sequence[Group] = groups_of(priced, before)
    chosen = sorted(far, key=lambda group: -far[group])[:MOST_SCORED]
    return tuple(chosen or known[:1] or [()])
