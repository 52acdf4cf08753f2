"""Worlds: made-up tables of a policy's shape and neighbours of them, in which one unit is missing or says other things.

In each world one unit is heavy: it has rows in more groups than it may count with, and more rows there, at the ends of
the bounds, since claims are tight there and a choice must be made. Another one that stays is as heavy, since its choice
must not change. Others are few and awkward: missing values, undeclared values, rows with a NULL
unit id. Where keys must be discovered, a crowd shares the heavy unit's rows, so that its groups are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TypeAlias

import pyarrow as pa

from dither.audit.queries.neighbours import Neighbours
from dither.audit.queries.synthetic import Made, Values, constants_of, key_columns, tables_of, unit_id, values_of
from dither.privacy import Adjacency
from dither.query.arrow import TYPES
from dither.query.plan.plan import Aggregation
from dither.query.schema import ColumnFacts, Schema, TableFacts

Row: TypeAlias = tuple[Made, ...]
Owned: TypeAlias = tuple[int | None, Row]

HEAVY, LIGHT, BUSY = 0, 1, 2
FEW_UNITS = 5
# A heavy unit has at most so many rows, and a crowd so many, whatever the policy allows.
MOST_HEAVY_ROWS = 600
MOST_CROWD_ROWS = 20_000


class Style(Enum):
    """How the values of one unit in one column are chosen."""

    HIGHEST = "the upper end of the bounds in every row"
    LOWEST = "the lower end of the bounds in every row"
    STEADY = "one declared value in every row"
    MENTIONED = "a value around a constant of the question in every row"
    ANY = "another value in every row, declared or not"


# How often a heavy unit takes which style, in columns that the question compares with constants and in others.
PLAIN = (Style.HIGHEST, Style.HIGHEST, Style.LOWEST, Style.STEADY)
MENTIONING = (Style.HIGHEST, Style.LOWEST, *[Style.MENTIONED] * 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Tables by name, and neighbours of them."""

    base: Mapping[str, pa.Table]
    others: tuple[Mapping[str, pa.Table], ...]
    adjacency: Adjacency

    def pairs(self) -> Iterator[Neighbours]:
        """The base with each of its neighbours."""
        for other in self.others:
            yield Neighbours(before=self.base, after=other, adjacency=self.adjacency)


def worlds(schema: Schema, aggregation: Aggregation, *, seed: int, crowd: int = 0) -> Iterator[World]:
    """Worlds without end for one question, the same for the same seed; each has two neighbours.

    ``crowd`` is how many units share a group with the heavy one in every second world.
    """
    random = Random(seed)  # noqa: S311  these are made-up tables; noise never comes from here
    asked = _WorldFacts(schema, aggregation)
    number = 0
    while True:
        yield asked.world(random, crowd=crowd if number % 2 == 0 else 0)
        number += 1


def empty_tables(schema: Schema) -> dict[str, pa.Table]:
    """Every table of a policy without rows."""
    return {name: _table(facts, []) for name, facts in schema.tables.items()}


class _WorldFacts:
    """What worlds for one question have in common."""

    def __init__(self, schema: Schema, aggregation: Aggregation) -> None:
        self.schema = schema
        self.groups, self.rows = aggregation.groups, aggregation.rows
        self.constants = constants_of(aggregation)
        self.tables = {name: schema.tables[name] for name in tables_of(aggregation)}
        self.keys = key_columns(aggregation)
        self.by_row = aggregation.units == "row"
        kinds = {facts.columns[facts.unit_column].kind for facts in self.tables.values() if facts.unit_column}
        self.odd_ids = len(kinds) == 1

    def world(self, random: Random, *, crowd: int) -> World:
        values = {
            name: {column: values_of(known, self.constants, random) for column, known in facts.columns.items()}
            for name, facts in self.tables.items()
        }
        pool: dict[str, list[Owned]] = {}
        instead: dict[str, list[Owned]] = {name: [] for name in self.tables}
        # what stands in the heavy unit's place is as heavy, or nothing: either may be further away
        contrary = random.random() < 2 / 3
        public: dict[str, pa.Table] = {}
        for name, facts in self.tables.items():
            if not facts.private:
                public[name] = _public_table(facts, values[name], random)
                continue
            keys = frozenset(column for table, column in self.keys if table == name)
            make = _MadeUpRows(facts, values[name], random, keys)
            heavy = make.heavy(self.groups, self.rows)
            pool[name] = [(HEAVY, row) for row in heavy]
            for unit in range(LIGHT, FEW_UNITS):
                pool[name] += [
                    (unit, row) for row in make.light(random.choice((1, 2, 4) if unit == LIGHT else (0, 1, 4)))
                ]
            pool[name] += [] if self.by_row else [(BUSY, row) for row in make.heavy(self.groups, self.rows)]
            pool[name] += [(None, row) for row in make.light(random.choice((0, 0, 3)))]
            pool[name] += self._crowd(random, heavy, crowd)
            if contrary or self.by_row:
                instead[name] = [(HEAVY, row) for row in make.heavy(self.groups, self.rows)]
            instead[name] += [(LIGHT, row) for row in make.light(random.choice((0, 1, 4)))]
            if not self.by_row:
                random.shuffle(pool[name])
        sides = self._by_row(random, pool, instead) if self.by_row else self._by_unit(pool, instead)
        base, *others = ({**public, **self._tables(side)} for side in sides)
        return World(base=base, others=tuple(others), adjacency=self.schema.adjacency)

    def _crowd(self, random: Random, heavy: Sequence[Row], crowd: int) -> list[Owned]:
        """Units that are in the heavy one's groups, each with a few of its rows."""
        if self.by_row:
            return [(None, row) for row in heavy[:1] for _ in range(crowd)]
        few = min(len(heavy), self.groups + 1)
        most = MOST_CROWD_ROWS // max(1, few)
        return [
            (FEW_UNITS + number, row) for number in range(min(crowd, most)) for row in random.sample(list(heavy), few)
        ]

    def _by_unit(
        self, pool: Mapping[str, list[Owned]], instead: Mapping[str, list[Owned]]
    ) -> list[Mapping[str, list[Owned]]]:
        sides: list[Mapping[str, list[Owned]]] = [pool]
        for gone in (HEAVY, LIGHT):
            rest = {name: [owned for owned in rows if owned[0] != gone] for name, rows in pool.items()}
            if self.schema.adjacency is Adjacency.REPLACE:
                rest = {name: [*rows, *(o for o in instead[name] if o[0] == gone)] for name, rows in rest.items()}
            sides.append(rest)
        return sides

    def _by_row(
        self, random: Random, pool: Mapping[str, list[Owned]], instead: Mapping[str, list[Owned]]
    ) -> list[Mapping[str, list[Owned]]]:
        """A row goes, or another stands in its place: one of the heavy ones, and any other."""
        sides: list[Mapping[str, list[Owned]]] = [pool]
        for heavy in (True, False):
            name = random.choice(sorted(pool))
            rows = pool[name]
            gone = random.choice([n for n, owned in enumerate(rows) if not heavy or owned[0] == HEAVY])
            other = [random.choice(instead[name])] if self.schema.adjacency is Adjacency.REPLACE else []
            sides.append({**pool, name: [*rows[:gone], *rows[gone + 1 :], *other]})
        return sides

    def _tables(self, side: Mapping[str, list[Owned]]) -> dict[str, pa.Table]:
        return {name: _table(self.tables[name], rows, odd_ids=self.odd_ids) for name, rows in side.items()}


class _MadeUpRows:
    """Makes the rows of units in one table."""

    def __init__(
        self, facts: TableFacts, values: Mapping[str, Values], random: Random, keys: Collection[str] = ()
    ) -> None:
        self.random = random
        self.columns = [(name, values[name]) for name in _told(facts)]
        self.keys = [name in keys for name, _ in self.columns]

    def heavy(self, groups: int, rows: int) -> list[Row]:
        """Rows in more groups than a unit may be in, each with more rows than may count in it.

        Where that would be too many rows, the first group has them and the others fewer.
        """
        random = self.random
        different = min(groups + random.choice((1, 2, groups)), MOST_HEAVY_ROWS)
        deep = min(rows + random.choice((1, 2, rows)), MOST_HEAVY_ROWS)
        each = min(deep, max(1, (MOST_HEAVY_ROWS - deep) // different))
        styles = [random.choice(MENTIONING if values.mentioned else PLAIN) for _, values in self.columns]
        spread = [random.random() < 1 / 2 for _ in self.columns]
        within = [not key and random.random() < 1 / 4 for key in self.keys]
        told = self._told_apart()
        made: list[Row] = []
        steady = [self._value(values, style) for (_, values), style in zip(self.columns, styles, strict=True)]
        for group in range(different):
            first = [
                self._value(values, style if style is Style.MENTIONED else Style.STEADY) if varies else value
                for (_, values), style, varies, value in zip(self.columns, styles, spread, steady, strict=True)
            ]
            for place, value_of in told:
                first[place] = value_of(group)
            for number in range(deep if group == 0 else each):
                row = [
                    values.another(random, number) if varies else value
                    for (_, values), varies, value in zip(self.columns, within, first, strict=True)
                ]
                made.append(tuple(row))
        return made

    def _told_apart(self) -> list[tuple[int, Callable[[int], Made]]]:
        """For each column that keys depend on its value in each group: no two groups have the same in all of them.

        As long as there are values: like the digits of a number, of which the last one changes first.
        """
        found: list[tuple[int, Callable[[int], Made]]] = []
        before = 1
        for place in (place for place, key in enumerate(self.keys) if key):
            size, value_of = self.columns[place][1].series(self.random)
            found.append((place, lambda group, value_of=value_of, before=before: value_of(group // before)))  # type: ignore[misc]
            before *= size or MOST_HEAVY_ROWS
        return found

    def light(self, count: int) -> list[Row]:
        """A few rows of any values; some columns say the same in all of them."""
        styles = [self.random.choice((Style.ANY, Style.ANY, Style.STEADY, Style.HIGHEST)) for _ in self.columns]
        fixed = [self._value(values, style) for (_, values), style in zip(self.columns, styles, strict=True)]
        return [
            tuple(
                values.any(self.random) if style is Style.ANY else value
                for (_, values), style, value in zip(self.columns, styles, fixed, strict=True)
            )
            for _ in range(count)
        ]

    def _value(self, values: Values, style: Style) -> Made:
        match style:
            case Style.HIGHEST:
                return values.highest
            case Style.LOWEST:
                return values.lowest
            case Style.MENTIONED:
                return self.random.choice(values.mentioned or values.usual)
            case _:
                return self.random.choice(values.usual)


def _told(facts: TableFacts) -> list[str]:
    """The columns of a row besides its unit."""
    return [name for name in facts.columns if name != facts.unit_column]


def _public_table(facts: TableFacts, values: Mapping[str, Values], random: Random) -> pa.Table:
    """A few rows, in which every combination that is declared as unique occurs once."""
    names = list(facts.columns)
    rows = [tuple(values[name].any(random) for name in names) for _ in range(random.choice((0, 4, 8, 12)))]
    for unique in facts.unique:
        places = [names.index(name) for name in names if name in unique]
        once = {tuple(_known(row[place]) for place in places): row for row in rows}
        rows = list(once.values())
    return _arrow(facts.columns, names, rows)


def _known(value: Made) -> object:
    """Equal where an engine takes values for equal: one NaN, one zero."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def _table(facts: TableFacts, owned: Sequence[Owned], *, odd_ids: bool = False) -> pa.Table:
    names = _told(facts)
    table = _arrow(facts.columns, names, [row for _, row in owned])
    if facts.unit_column is None:
        return table.select(list(facts.columns))
    kind = facts.columns[facts.unit_column].kind
    ids = [None if unit is None else unit_id(unit, kind, odd=odd_ids) for unit, _ in owned]
    return table.append_column(facts.unit_column, pa.array(ids, TYPES[kind])).select(list(facts.columns))


def _arrow(columns: Mapping[str, ColumnFacts], names: Sequence[str], rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[place] for row in rows], TYPES[columns[name].kind]) for place, name in enumerate(names)]
    return pa.Table.from_arrays(arrays, names=list(names))
