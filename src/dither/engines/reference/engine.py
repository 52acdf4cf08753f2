"""The reference engine: measurements in plain Python on lists of dictionaries, slow and obviously right.

Engines are held to it by ``dither.checks.check_engine``. It shares no code with their SQL, sums with Python's unbounded
integers, and makes every step of a measurement a step of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cmp_to_key
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dither.engines.reference.functions import Row, evaluate, in_kind, order_key, parsed, plain
from dither.errors import InvalidParameter, SourceError
from dither.query.arrow import TYPES
from dither.query.kinds import NOTHING, Expression, Kind
from dither.query.measure.measures import BinCounts, Cap, Measured, Measurement, Total
from dither.query.plan.plan import (
    Distinct,
    FilterRows,
    Gridded,
    Inner,
    InnerAggregate,
    JoinKind,
    JoinRows,
    Ordering,
    PerUnit,
    PlanField,
    Project,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
)
from dither.query.schema import Schema

Owned: TypeAlias = tuple[Any, Row]
"""The unit's id (None: there is none) and the row."""

Pick: TypeAlias = Callable[[bytes, str, Any, Sequence[Any], int], Sequence[Any]]
"""Chooses at most so many items: (salt, purpose, whose, items in ascending order, how many)."""

LARGEST_CELL = 2**62


def pick_by_hash(salt: bytes, purpose: str, whose: Any, items: Sequence[Any], most: int) -> Sequence[Any]:
    """The items with the smallest SHA-256 of salt, purpose, whose, the item and how often it came before."""
    seen: Counter[str] = Counter()
    ranked = []
    for place, item in enumerate(items):
        text = repr(item)
        digest = hashlib.sha256(salt + repr((purpose, whose, text, seen[text])).encode()).digest()
        seen[text] += 1
        ranked.append((digest, place))
    return [items[place] for _, place in sorted(ranked)[:most]]


@dataclass(frozen=True, slots=True)
class ReferenceEngine:
    """Tables held in memory; ``pick`` chooses what a unit keeps."""

    tables: Mapping[str, Sequence[Row]]
    schema: Schema
    pick: Pick = pick_by_hash

    def describe(self) -> Mapping[str, Mapping[str, str]]:
        """Tables and columns with the names of their kinds."""
        return {
            name: {column: facts.kind.value for column, facts in table.columns.items()}
            for name, table in self.schema.tables.items()
        }

    def version(self) -> str:
        """A fingerprint of the rows."""
        return hashlib.sha256(repr({name: list(rows) for name, rows in self.tables.items()}).encode()).hexdigest()

    def interrupt(self) -> None:
        """Nothing runs in the background."""

    def close(self) -> None:
        """Nothing is held."""

    # ------------------------------------------------------------------ measurements

    def run(self, measurement: Measurement, *, salt: bytes) -> Measured:
        """The cells, step by step."""
        by_unit = measurement.units == "column"
        groups: dict[Any, dict[tuple[Any, ...], list[Row]]] = defaultdict(lambda: defaultdict(list))
        for number, (unit, row) in enumerate(self.owned(measurement.relation, by_unit=by_unit)):
            keys = tuple(evaluate(key.expression, row) for key in measurement.keys)
            public = zip(keys, measurement.keys, strict=True)
            if all(key.values is None or _among(value, key.values, key.kind) for value, key in public):
                groups[unit if by_unit else number][tuple(map(plain, keys))].append(row)
        if by_unit:
            groups = {unit: self._kept(unit, own, measurement, salt) for unit, own in groups.items()}
        present = sorted({key for own in groups.values() for key in own}, key=_keys_order)
        if not measurement.keys:
            present = [()]
        place = {key: i for i, key in enumerate(present)}
        totals = tuple(_total(total, groups, place, measurement, by_unit=by_unit) for total in measurement.totals)
        bins = tuple(
            self._bins(b.grid, f"bins {i}", groups, place, measurement, salt) for i, b in enumerate(measurement.bins)
        )
        distinct = tuple(_distinct(d.expression, groups, place, measurement) for d in measurement.distinct)
        columns = {
            f"k{i}": pa.array(
                [math.nan if key[i] == "NaN" and k.kind is Kind.DOUBLE else key[i] for key in present]
            ).cast(TYPES[k.kind])
            for i, k in enumerate(measurement.keys)
        }
        return Measured(keys=pa.table(columns), size=len(present), totals=totals, bins=bins, distinct=distinct)

    def _kept(
        self, unit: Any, own: Mapping[tuple[Any, ...], list[Row]], measurement: Measurement, salt: bytes
    ) -> dict[tuple[Any, ...], list[Row]]:
        chosen = list(own)
        if len(own) > measurement.groups:
            ordered = sorted(own, key=_keys_order)
            chosen = list(self.pick(salt, "groups", unit, ordered, measurement.groups))
        return {key: own[key] for key in chosen}

    def _bins(
        self,
        grid: Gridded,
        purpose: str,
        groups: Mapping[Any, Mapping[tuple[Any, ...], list[Row]]],
        place: Mapping[tuple[Any, ...], int],
        measurement: Measurement,
        salt: bytes,
    ) -> BinCounts:
        counts: Counter[tuple[int, int]] = Counter()
        for unit, own in groups.items():
            for key, rows in own.items():
                found = sorted(value for row in rows if (value := on_grid(grid, row)) is not None)
                if measurement.units == "column" and len(found) > measurement.rows:
                    found = list(self.pick(salt, purpose, (unit, key), found, measurement.rows))
                counts.update((place[key], value) for value in found)
        cells = sorted(counts.items())
        return BinCounts(
            group=np.array([cell[0][0] for cell in cells], dtype=np.int64),
            bin=np.array([cell[0][1] for cell in cells], dtype=np.int64),
            count=np.array([cell[1] for cell in cells], dtype=np.int64),
        )

    def rows(self, table: str, columns: Sequence[str], *, rows: int, salt: bytes) -> pa.Table:
        """At most ``rows`` rows of each unit, sorted by all columns."""
        facts = self.schema.tables[table]
        by_unit = facts.unit_column is not None
        fields = tuple(PlanField(name=name, kind=facts.columns[name].kind, facts=NOTHING) for name in columns)
        listed = tuple((name, name) for name in columns)
        scan = Scan(table=table, private=True, unit_column=facts.unit_column, columns=listed, fields=fields)
        own: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        for number, (unit, row) in enumerate(self.owned(scan, by_unit=by_unit)):
            own[unit if by_unit else number].append(tuple(plain(row[name]) for name in columns))
        kept: list[tuple[Any, ...]] = []
        for unit, found in own.items():
            kept += self.pick(salt, "rows", unit, sorted(found, key=_keys_order), rows)
        kept.sort(key=_keys_order)
        arrays = {
            name: pa.array([math.nan if f.kind is Kind.DOUBLE and row[i] == "NaN" else row[i] for row in kept])
            for i, (name, f) in enumerate(zip(columns, fields, strict=True))
        }
        return pa.table({name: arrays[name].cast(TYPES[f.kind]) for name, f in zip(columns, fields, strict=True)})

    # ------------------------------------------------------------------ relations

    def owned(self, relation: Relation, *, by_unit: bool) -> list[Owned]:
        """Every row of a relation with its unit."""
        match relation:
            case Scan():
                return self._scan(relation, by_unit=by_unit)
            case FilterRows():
                inner = self.owned(relation.input, by_unit=by_unit)
                return [(unit, row) for unit, row in inner if evaluate(relation.predicate, row) is True]
            case Project():
                pairs = list(zip(relation.expressions, relation.fields, strict=True))
                return [
                    (unit, {f.name: in_kind(evaluate(e, row), f.kind) for e, f in pairs})
                    for unit, row in self.owned(relation.input, by_unit=by_unit)
                ]
            case JoinRows():
                return self._join(relation, by_unit=by_unit)
            case Union():
                return [
                    (unit, {f.name: in_kind(row[given.name], f.kind) for given, f in _paired(part, relation)})
                    for part in relation.inputs
                    for unit, row in self.owned(part, by_unit=by_unit)
                ]
            case Distinct():
                once: dict[Any, Owned] = {}
                for unit, row in self.owned(relation.input, by_unit=by_unit):
                    once.setdefault((unit, tuple(plain(v) for v in row.values())), (unit, row))
                return list(once.values())
            case PerUnit():
                return self._per_unit(relation, by_unit=by_unit)
            case Window():
                return self._window(relation, by_unit=by_unit)

    def _scan(self, scan: Scan, *, by_unit: bool) -> list[Owned]:
        if scan.table not in self.tables:
            raise SourceError(f"there is no table {scan.table}")
        kinds = {name: facts.kind for name, facts in self.schema.tables[scan.table].columns.items()}
        result: list[Owned] = []
        for row in self.tables[scan.table]:
            unit = None
            if by_unit and scan.private and scan.unit_column:
                unit = unit_id(row[scan.unit_column], kinds.get(scan.unit_column, Kind.TEXT))
            if by_unit and scan.private and unit is None:
                continue
            values = {name: _read(row[original], kinds[original]) for name, original in scan.columns}
            result.append((plain(unit), values))
        return result

    def _join(self, join: JoinRows, *, by_unit: bool) -> list[Owned]:
        left, right = self.owned(join.left, by_unit=by_unit), self.owned(join.right, by_unit=by_unit)
        nothing = {field.name: None for field in join.right.fields}
        result: list[Owned] = []
        for unit, row in left:
            matches = [
                other
                for owner, other in right
                if (not join.on_unit or owner == unit)
                and (join.condition is None or evaluate(join.condition, {**row, **other}) is True)
            ]
            match join.kind:
                case JoinKind.INNER:
                    result += [(unit, {**row, **other}) for other in matches]
                case JoinKind.LEFT:
                    result += [(unit, {**row, **other}) for other in matches or [nothing]]
                case JoinKind.SEMI:
                    result += [(unit, row)] if matches else []
                case JoinKind.ANTI:
                    result += [] if matches else [(unit, row)]
        return result

    def _per_unit(self, node: PerUnit, *, by_unit: bool) -> list[Owned]:
        groups: dict[Any, list[Owned]] = defaultdict(list)
        for unit, row in self.owned(node.input, by_unit=by_unit):
            groups[unit, tuple(plain(evaluate(key, row)) for key in node.keys)].append((unit, row))
        result: list[Owned] = []
        for owned in groups.values():
            unit, first = owned[0]
            values = [evaluate(key, first) for key in node.keys]
            rows = [row for _, row in owned]
            fields = node.fields[len(node.keys) :]
            values += [aggregate(a, rows, f.kind) for a, f in zip(node.aggregates, fields, strict=True)]
            result.append((unit, {f.name: v for f, v in zip(node.fields, values, strict=True)}))
        return result

    def _window(self, node: Window, *, by_unit: bool) -> list[Owned]:
        owned = self.owned(node.input, by_unit=by_unit)
        result = [(unit, dict(row)) for unit, row in owned]
        for item, field in zip(node.items, node.fields[len(node.input.fields) :], strict=True):
            partitions: dict[Any, list[int]] = defaultdict(list)
            for i, (unit, row) in enumerate(owned):
                partitions[unit, tuple(plain(evaluate(p, row)) for p in item.partition)].append(i)
            for places in partitions.values():
                rows = [owned[i][1] for i in places]
                for i, value in zip(places, windowed(item, rows, field.kind), strict=True):
                    result[i][1][field.name] = value
        return list(result)


def _paired(part: Relation, union: Union) -> list[tuple[PlanField, PlanField]]:
    return list(zip(part.fields, union.fields, strict=True))


def _read(value: Any, kind: Kind) -> Any:
    if not isinstance(value, str) or kind is Kind.TEXT:
        return in_kind(value, kind)
    found = parsed(value, kind)
    return None if isinstance(found, float) and not math.isfinite(found) else found


def unit_id(value: Any, kind: Kind) -> Any:
    """Whom a row is about: texts without blanks around them and in the declared kind; nobody is called NaN or NA."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if not isinstance(value, str):
        return value
    text = value.strip(" ")
    if text.lower() in ("", "na", "n/a", "nan", "null", "none"):
        return None
    return text if kind is Kind.TEXT else _read(text, kind)


def _among(value: Any, values: Sequence[Any], kind: Kind) -> bool:
    return any(plain(value) == (None if v is None else plain(in_kind(v, kind))) for v in values)


def _keys_order(keys: tuple[Any, ...]) -> Any:
    """Ascending, NaN after numbers, NULL last."""
    return [(key is None, key == "NaN", None if key is None or key == "NaN" else order_key(key)) for key in keys]


# ------------------------------------------------------------------ values of rows and units


def on_grid(grid: Gridded, row: Row) -> int | None:
    """clamp(round(x / step), low, high) − offset, rounding half to even as engines do; None where x is missing."""
    if grid.down:
        upwards = on_grid(replace(grid, down=False), row)
        return None if upwards is None else grid.high - upwards
    x = evaluate(grid.expression, row)
    if x is None or x != x:
        return None
    if isinstance(x, int) and grid.step == 1:
        return max(grid.low, min(grid.high, x)) - grid.offset
    scaled = float(x)
    if grid.step.denominator != 1:
        scaled *= float(grid.step.denominator)
    if grid.step.numerator != 1:
        scaled /= float(grid.step.numerator)
    if math.isinf(scaled):
        return (grid.high if scaled > 0 else grid.low) - grid.offset
    return max(grid.low, min(grid.high, round(scaled))) - grid.offset


def _counting(total: Total, rows: Sequence[Row]) -> list[int]:
    """The values of the rows that count."""
    values = []
    for row in rows:
        factors = [on_grid(factor, row) for factor in total.factors]
        present = [evaluate(expression, row) for expression in total.present]
        if all(v is not None and v == v for v in (*factors, *present)):
            values.append(math.prod(factor for factor in factors if factor is not None))
    return values


def part_of(total: Total, rows: Sequence[Row], most: int) -> int:
    """What a unit adds to a group: nothing if none of its rows counts, else its capped sum."""
    values = _counting(total, rows)
    if not values:
        return 0
    summed, most = sum(values), total.cap.rows(most)
    if total.cap.averages and len(values) > most:
        summed = math.floor(Fraction(summed * most, len(values)))
    summed //= total.divisor
    return max(total.low, min(total.high, summed))


def scaled(total: Total, own: Mapping[tuple[Any, ...], list[Row]]) -> dict[tuple[Any, ...], int]:
    """What a unit adds to each of its groups, where its parts in all of them are bounded together."""
    sums = {key: sum(_counting(total, rows)) for key, rows in own.items()}
    if total.once:
        sums = {key: min(1, each) for key, each in sums.items()}
    size, most = sum(map(abs, sums.values())), max(-total.low, total.high)
    if size * total.fine <= most:
        return {key: each * total.fine for key, each in sums.items()}
    return {key: (1 if each > 0 else -1) * (abs(each) * most // size) for key, each in sums.items()}


def _total(
    total: Total,
    groups: Mapping[Any, Mapping[tuple[Any, ...], list[Row]]],
    place: Mapping[tuple[Any, ...], int],
    measurement: Measurement,
    *,
    by_unit: bool,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    sums = [0] * len(place)
    for own in groups.values():
        if total.cap is Cap.SCALE:
            for key, part in scaled(total, own).items():
                sums[place[key]] += part
            continue
        for key, rows in own.items():
            parts = [part_of(total, rows, measurement.rows)] if by_unit else [part_of(total, [r], 1) for r in rows]
            sums[place[key]] += sum(parts)
    return np.array([max(-LARGEST_CELL, min(LARGEST_CELL, value)) for value in sums], dtype=np.int64)


def aggregate(spec: InnerAggregate, rows: Sequence[Row], kind: Kind) -> Any:
    """An aggregate over rows of one unit."""
    if spec.argument is None:
        return len(rows)
    argument = spec.argument
    values = [value for row in rows if (value := evaluate(argument, row)) is not None]
    match spec.function:
        case Inner.COUNT:
            return len(values)
        case Inner.COUNT_DISTINCT:
            return len({plain(value) for value in values})
        case Inner.MIN:
            return min(values, key=order_key, default=None)
        case Inner.MAX:
            return max(values, key=order_key, default=None)
    step = Fraction(1) if spec.grid is None else spec.grid.step
    if spec.grid is None and argument.kind is not Kind.INTEGER:
        raise InvalidParameter("sums and means of doubles need a grid")
    grid = spec.grid
    whole = values if grid is None else [g for row in rows if (g := on_grid(grid, row)) is not None]
    summed = sum(whole)
    if not whole:
        return None
    if kind is Kind.INTEGER and spec.function is Inner.SUM:
        return in_kind(summed * step.numerator, Kind.INTEGER)
    if in_kind(summed, Kind.INTEGER) is None:
        return None
    double = float(summed)
    if step.numerator != 1:
        double *= float(step.numerator)
    if step.denominator != 1:
        double /= float(step.denominator)
    return double if spec.function is Inner.SUM else double / len(whole)


def windowed(item: Windowed, rows: Sequence[Row], kind: Kind) -> list[Any]:
    """A window function over one partition: a value for each row, in the order given."""

    def by_order(i: int, j: int) -> int:
        return next((c for o in item.order if (c := _compared(o, rows[i], rows[j]))), 0)

    def by_all(i: int, j: int) -> int:
        if c := by_order(i, j):
            return c
        a, b = (_keys_order(tuple(plain(v) for v in rows[k].values())) for k in (i, j))
        return -1 if a < b else int(a > b)

    everything = range(len(rows))
    if item.function in ("rank", "dense_rank", "aggregate"):
        smaller = [[j for j in everything if by_order(j, i) < 0] for i in everything]
        if item.function == "rank":
            return [1 + len(before) for before in smaller]
        if item.function == "dense_rank":
            ordered = sorted(everything, key=cmp_to_key(by_order))
            firsts = [i for n, i in enumerate(ordered) if n == 0 or by_order(ordered[n - 1], i) != 0]
            return [sum(by_order(f, i) <= 0 for f in firsts) for i in everything]
        assert item.aggregate is not None
        frames = [[rows[j] for j in everything if not item.order or by_order(j, i) <= 0] for i in everything]
        return [aggregate(item.aggregate, frame, kind) for frame in frames]
    ordered = sorted(everything, key=cmp_to_key(by_all))
    result: list[Any] = [None] * len(rows)
    for n, i in enumerate(ordered):
        if item.function == "row_number":
            result[i] = n + 1
            continue
        assert item.argument is not None
        other = {"lag": n - item.offset, "lead": n + item.offset, "first_value": 0}[item.function]
        result[i] = evaluate(item.argument, rows[ordered[other]]) if 0 <= other < len(rows) else None
    return result


def _compared(ordering: Ordering, a: Row, b: Row) -> int:
    left, right = evaluate(ordering.expression, a), evaluate(ordering.expression, b)
    if left is None or right is None:
        if (left is None) == (right is None):
            return 0
        return -1 if (left is None) == ordering.nulls_first else 1
    x, y = order_key(left), order_key(right)
    c = -1 if x < y else int(x > y)
    return -c if ordering.descending else c


def _distinct(
    expression: Expression,
    groups: Mapping[Any, Mapping[tuple[Any, ...], list[Row]]],
    place: Mapping[tuple[Any, ...], int],
    measurement: Measurement,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many values can be handed to units that have them, at most ``rows`` to each; at row level a row has one."""
    having: dict[tuple[Any, ...], dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for unit, own in groups.items():
        for key, rows in own.items():
            for value in {plain(v) for row in rows if (v := evaluate(expression, row)) is not None}:
                having[key][value].append(unit)
    return np.array([_handed_out(having[key], measurement.rows) for key in place], dtype=np.int64)


def _handed_out(units_of: Mapping[Any, Sequence[Any]], most: int) -> int:
    """One value after the other, each with an augmenting path: where there is none there never will be (Berge)."""
    held: dict[Any, list[Any]] = defaultdict(list)

    def hand(value: Any, asked: set[Any]) -> bool:
        for unit in units_of[value]:
            if unit in asked:
                continue
            asked.add(unit)
            if len(held[unit]) < most:
                held[unit].append(value)
                return True
            for place, other in enumerate(held[unit]):
                if hand(other, asked):
                    held[unit][place] = value
                    return True
        return False

    return sum(hand(value, set()) for value in units_of)
