"""The neighbour test of one question: many made-up tables, and nothing may move further than its price assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from dither.audit.drawing import clock
from dither.audit.queries.made_up_tables import worlds
from dither.audit.queries.movement import Movement, in_words, movements, surely_shown
from dither.audit.queries.neighbours import Breach, Fault, Group, breaches, difference, groups_of
from dither.audit.queries.rehearsal import measured_worlds
from dither.curator.execution import find_bounds
from dither.curator.price.pricing import Prepared
from dither.privacy import Adjacency
from dither.progress import Watch
from dither.query.measure.measures import BinCounts, Measured, Measurement
from dither.query.price.noise import Priced
from dither.query.schema import Schema

NEIGHBOURS_OF_A_WORLD = 2
# A group is shown surely enough if a quarter more units are in it than it takes 19 times in 20.
CROWD_MARGIN = 1.25
SALT_BYTES = 16
# However little time there is: one world alone is seldom a hard one.
FEWEST_PAIRS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A claim that didn't hold: the worst breach of its sort, and in how many pairs of tables there was one."""

    what: str
    breach: Breach
    pairs: int

    def __str__(self) -> str:
        breach = self.breach
        return (
            f"{self.what}: {breach.fault.value}: {breach.found:,} where {breach.claimed:,} was claimed, in "
            f"{self.pairs} of the pairs"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourTest:
    """What one unit moved: in how many pairs of tables, how far at most relative to each claim, and what was broken."""

    pairs: int
    moved: int
    movements: tuple[Movement, ...]
    broken: tuple[Broken, ...]

    @property
    def furthest(self) -> float:
        """The largest share of a claim that one unit used up."""
        return max((each.share for each in self.movements), default=0.0)

    def __str__(self) -> str:
        lines = [f"{self.pairs} pairs of tables; one unit moved something in {self.moved}, and at most"]
        lines += [f"  {100 * each.share:4.0f}% of what is claimed: {each.what}" for each in self.movements]
        return "\n".join([*lines, *(f"  BROKEN {each}" for each in self.broken)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two neighbouring databases, and what the engine measured on them."""

    priced: Priced
    tables: tuple[Mapping[str, pa.Table], Mapping[str, pa.Table]]
    measured: tuple[Measured, Measured]


def measure_neighbours(
    schema: Schema,
    prepared: Prepared,
    prices: Sequence[Priced],
    folder: Path,
    *,
    pairs: int,
    seconds: float,
    seed: int,
    watch: Watch,
) -> tuple[NeighbourTest, Pair, Pair | None]:
    """Measure so many pairs of made-up tables, or as many as the time allows; and the pair that moved furthest.

    Last comes the pair in which most discovered keys are held by the one unit alone, if there is such a pair: whether
    these are shown tells of the unit, and in tables where cells move far others hold the same keys.

    ``prices`` has one price, or several where bounds must be searched for: on bounds that a search might find.
    """
    started = clock.now()
    aggregation = prepared.question.aggregation
    searches = _search_measurements(schema, prepared)
    selection = prices[0].selection
    crowd = 0 if selection is None else int(CROWD_MARGIN * selection.enough) + 1
    random = Random(seed)  # noqa: S311  salts of made-up tables, the same for the same seed
    tally = _Tally(prepared, prices)
    for world, sides in measured_worlds(
        worlds(schema, aggregation, seed=seed, crowd=crowd),
        schema,
        [*(priced.measurement for priced in prices), *searches.values()],
        folder,
        count=-(-pairs // NEIGHBOURS_OF_A_WORLD),
        salts=iter(lambda: random.randbytes(SALT_BYTES), b""),
    ):
        before = sides[0]
        for other, after in zip(world.others, sides[1:], strict=True):
            tally.add((world.base, other), before, after)
            for place, name in enumerate(searches, start=len(prices)):
                tally.add_search(name, before[place], after[place], searches[name].rows)
        passed = clock.now() - started
        watch(max(tally.pairs / pairs, passed / seconds), f"{tally.pairs} pairs of tables")
        if passed > seconds and tally.pairs >= FEWEST_PAIRS:
            break
    assert tally.furthest is not None
    return tally.result(), tally.furthest, tally.alone


@dataclass(slots=True)
class _Tally:
    prepared: Prepared
    prices: Sequence[Priced]
    pairs: int = 0
    moved: int = 0
    shares: dict[tuple[int, str], float] = field(default_factory=dict)
    broken: dict[tuple[str, Fault], tuple[Breach, int]] = field(default_factory=dict)
    furthest: Pair | None = None
    alone: Pair | None = None
    _best: float = -1.0
    _most_alone: int = 0

    def add(
        self,
        tables: tuple[Mapping[str, pa.Table], Mapping[str, pa.Table]],
        before: Sequence[Measured],
        after: Sequence[Measured],
    ) -> None:
        """Both sides, measured for each price."""
        self.pairs += 1
        self.moved += any(
            difference(old, new, priced) for priced, old, new in zip(self.prices, before, after, strict=False)
        )
        for priced, old, new in zip(self.prices, before, after, strict=False):
            names = in_words(priced, self.prepared.question)
            for place, (name, share) in enumerate(zip(names, movements(priced, old, new), strict=True)):
                self._share(place, name, share)
            for breach in breaches(priced, old, new):
                self._breach(_where(breach, names, priced), breach)
            shown = movements(priced, old, new, among=surely_shown(priced, old, new))
            if sum(shown) > self._best:
                self._best = sum(shown)
                self.furthest = Pair(priced=priced, tables=tables, measured=(old, new))
            alone = 0 if priced.lowered.units is None else len(_held(priced, old) ^ _held(priced, new))
            if alone > self._most_alone:
                self._most_alone, self.alone = alone, Pair(priced=priced, tables=tables, measured=(old, new))

    def add_search(self, name: str, before: Measured, after: Measured, rows: int) -> None:
        """The counts by which bounds are searched for: one unit moves them by its rows, a replacement by twice that."""
        adjacency = self.prices[0].adjacency
        most = rows if adjacency is Adjacency.ADD_REMOVE else 2 * rows
        found = _changed(before.bins[0], after.bins[0])
        self._share(len(self.shares), name, found / most, by_name=True)
        if found > most:
            self._breach(name, Breach(fault=Fault.HISTOGRAM, place=0, claimed=most, found=found))

    def _share(self, place: int, name: str, share: float, *, by_name: bool = False) -> None:
        key = (-1, name) if by_name else (place, name)
        self.shares[key] = max(share, self.shares.get(key, 0.0))

    def _breach(self, what: str, breach: Breach) -> None:
        worst, pairs = self.broken.get((what, breach.fault), (breach, 0))
        self.broken[what, breach.fault] = (worst if worst.found >= breach.found else breach, pairs + 1)

    def result(self) -> NeighbourTest:
        return NeighbourTest(
            pairs=self.pairs,
            moved=self.moved,
            movements=tuple(Movement(name, share) for (_, name), share in self.shares.items()),
            broken=tuple(Broken(what=what, breach=worst, pairs=n) for (what, _), (worst, n) in self.broken.items()),
        )


def _held(priced: Priced, measured: Measured) -> set[Group]:
    """The groups that some unit is in."""
    place = priced.lowered.units
    assert place is not None
    counts = zip(groups_of(priced, measured), measured.totals[place].tolist(), strict=True)
    return {group for group, count in counts if count}


def _where(breach: Breach, names: Sequence[str], priced: Priced) -> str:
    """Which of the movements a breach is about."""
    match breach.fault:
        case Fault.CELL | Fault.L1 | Fault.L2:
            blocks = priced.lowered.blocks
            return names[next(i for i, block in enumerate(blocks) if breach.place in block)]
        case Fault.HISTOGRAM:
            return names[len(priced.lowered.blocks) + breach.place]
        case Fault.SELECTION:
            return names[-1]
        case Fault.ONE_WAY:
            return "a count"
        case _:
            return "groups"


def _changed(before: BinCounts, after: BinCounts) -> int:
    counts: dict[int, int] = {}
    for sign, side in ((-1, before), (1, after)):
        for place, count in zip(side.bin.tolist(), side.count.tolist(), strict=True):
            counts[place] = counts.get(place, 0) + sign * count
    return sum(map(abs, counts.values()))


class _Recorder:
    """Stands in for an engine, to learn what the search for bounds would measure: on no data at all."""

    def __init__(self) -> None:
        self.asked: list[Measurement] = []

    def run(self, measurement: Measurement, *, salt: bytes) -> Measured:  # noqa: ARG002
        self.asked.append(measurement)
        none = np.zeros(0, dtype=np.int64)
        return Measured(keys=pa.table({}), size=1, totals=(), bins=(BinCounts(group=none, bin=none, count=none),))


def _search_measurements(schema: Schema, prepared: Prepared) -> dict[str, Measurement]:
    """What is measured to find bounds that the owner left open, by column."""
    if prepared.search_budget is None:
        return {}
    recorder: Any = _Recorder()
    find_bounds(recorder, schema, prepared.searched, prepared.search_budget, b"no data here")
    names = (f"search for the bounds of {table}.{column}" for table, column in prepared.searched)
    return dict(zip(names, recorder.asked, strict=True))
