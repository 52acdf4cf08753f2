"""check_engine: does an engine compute exactly what a measurement says, and no more of anybody than it allows?

The suite loads small tables full of difficult values and compares with the reference engine; takes units away one by
one; shuffles rows and changes threads. Nothing but ``run`` is called, so a mutant can't hide behind its own words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from dither.checks import _engine_cases as cases, engine_tables as tables
from dither.checks.mechanism import ALPHA, Finding, Report
from dither.checks.statistics import chi_square_counts
from dither.engines import Engine, ReferenceEngine
from dither.query.kinds import Call, Column, Kind
from dither.query.measure.measures import Bins, Measured, Measurement
from dither.query.plan.plan import Gridded
from dither.query.schema import Schema

SALT = b"a salt that is public"


class Factory(Protocol):
    """Makes an engine that holds these tables, running on so many threads."""

    def __call__(self, tables: Mapping[str, pa.Table], schema: Schema, threads: int) -> Engine:
        """The engine."""
        ...


Cells: TypeAlias = dict[tuple[Any, ...], tuple[list[int], list[Counter[int]], list[int]]]
"""By group: totals, bins with counts, numbers of distinct values."""


def check_engine(factory: Factory, *, rows: int = 150_000, raises: bool = True) -> Report:
    """Hold an engine to the contract; raises ConformanceFailed with all that failed.

    Args:
        factory: Loads Arrow tables into a new engine: ``factory(tables, schema, threads)``.
        rows: The size of the one table that is large enough for several threads to share it.
        raises: Whether a failed check raises; else the report alone says so.
    """
    suite = _Suite(factory, rows)
    # in this order: later ones compare with what earlier ones saw
    findings = (
        *(suite.functions(), suite.equal_to_reference(), suite.rows_equal_to_reference()),
        *(suite.neighbours(), suite.rows_as_neighbours(), suite.null_units()),
        *(suite.order_and_threads(), suite.fair_groups(), suite.fair_rows()),
    )
    return Report(getattr(factory, "__name__", "engine"), findings).told(raises=raises)


@contextmanager
def _loaded(factory: Factory, rows: tables.Tables, threads: int = 1) -> Iterator[Engine]:
    engine = factory(tables.as_arrow(rows), tables.schema(), threads)
    try:
        yield engine
    finally:
        engine.close()


def _finding(check: str, problems: Iterable[str], detail: str, smallest_fault: str) -> Finding:
    listed = list(problems)
    shown = "; ".join(listed[:4]) + (f"; and {len(listed) - 4} more" if len(listed) > 4 else "")
    return Finding(check, not listed, shown or detail, smallest_fault)


@dataclass(slots=True)
class _Suite:
    """The engine under test with its tables, and what single units get when they are alone."""

    factory: Factory
    large: int
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=tables.tables)
    alone: dict[Any, dict[str, Cells]] = field(default_factory=dict)
    whole: dict[str, Measured] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def _units(self) -> list[Any]:
        found = {row[column]: None for table, column in tables.UNITS.items() for row in self.rows[table]}
        return [unit for unit in found if unit is not None]

    def _run(self, engine: Engine, name: str, measurement: Measurement, salt: bytes = SALT) -> Measured | None:
        """What the engine says; None, and a problem noted, if it raises."""
        try:
            return engine.run(measurement, salt=salt)
        except Exception as problem:  # noqa: BLE001 - whatever an engine raises is the finding
            self.problems.append(f"{name} raises {type(problem).__name__}")
            return None

    def _taken(self) -> list[str]:
        problems, self.problems = self.problems, []
        return problems

    # ------------------------------------------------------------------ equality with the reference

    def functions(self) -> Finding:
        """Every function as a key: the groups are its values, the totals how often each occurs."""
        reference = ReferenceEngine(tables.as_known(self.rows), tables.schema())
        calls = sorted(cases.functions().items(), key=lambda pair: pair[1].kind.value)
        with _loaded(self.factory, self.rows) as engine:

            def differ(part: Sequence[tuple[str, Call]]) -> bool:
                keys = tuple(cases.key(expression) for _, expression in part)
                measurement = cases.measure(cases.VISITS, keys, units="row")
                found = self._run(engine, " and ".join(name for name, _ in part), measurement)
                if found is None:
                    return True
                exact = all(expression.kind is not Kind.DOUBLE for _, expression in part)
                return not _same(found, reference.run(measurement, salt=SALT), exact=exact)

            for start in range(0, len(calls), 8):
                part = calls[start : start + 8]
                if differ(part):
                    # one by one, to name it
                    self._taken()
                    found = [f"{name} differs" for name, expression in part if differ([(name, expression)])]
                    self.problems += found or [f"{part[0][0]} and the next {len(part) - 1} differ together"]
        detail = f"{len(calls)} calls equal the reference and raise nothing"
        return _finding("functions", self._taken(), detail, "one value of one function")

    def equal_to_reference(self) -> Finding:
        """Every relation and cap; where a unit must choose, the reference chooses what the engine gave it alone."""
        measurements = cases.relations()
        for unit in self._units():
            with _loaded(self.factory, tables.of_unit(self.rows, unit, kept=True)) as engine:
                found = {name: self._run(engine, name, m) for name, m in measurements.items() if _concerns(m, unit)}
            self.alone[unit] = {name: _cells(result) for name, result in found.items() if result is not None}
        with _loaded(self.factory, self.rows) as engine:
            for name, measurement in measurements.items():
                result = self._run(engine, name, measurement)
                if result is None:
                    continue
                self.whole[name] = result
                again = self._run(engine, name, measurement)
                if again is None or not _same(result, again):
                    self.problems.append(f"{name} differs when it is run again")
                self._compare(name, measurement, result)
        detail = f"{len(measurements)} measurements equal the reference"
        return _finding("units", self._taken(), detail, "one cell off by one")

    def _compare(self, name: str, measurement: Measurement, result: Measured) -> None:
        unsure = False

        def pick(_: bytes, purpose: str, whose: Any, items: Sequence[Any], most: int) -> Sequence[Any]:
            nonlocal unsure
            unit, group = (whose, ()) if purpose == "groups" else whose
            own = self.alone[unit].get(name, {})
            if purpose.startswith("values"):
                unsure = True
                return items[:most]
            chosen: list[Any] = list(own)
            if purpose != "groups":
                bins = own[group][1][int(purpose.split()[1])] if group in own else Counter[int]()
                chosen = list(bins.elements())
            if len(chosen) != most or Counter(chosen) - Counter(items):
                self.problems.append(f"{name}: a unit keeps {len(chosen)} of its {len(items)} {purpose}, not {most}")
            return chosen

        reference = ReferenceEngine(tables.as_known(self.rows), tables.schema(), pick)
        try:
            wanted = reference.run(measurement, salt=SALT)
        except KeyError:
            self.problems.append(f"{name} keeps groups that a unit doesn't have")
            return
        if not _same(result, wanted, distinct=not unsure):
            self.problems.append(f"{name} differs")

    def rows_equal_to_reference(self) -> Finding:
        """Measurements in which rows are units."""
        reference = ReferenceEngine(tables.as_known(self.rows), tables.schema())
        with _loaded(self.factory, self.rows) as engine:
            for name, measurement in cases.of_rows().items():
                found = self._run(engine, name, measurement)
                if found is not None and not _same(found, reference.run(measurement, salt=SALT)):
                    self.problems.append(f"{name} differs")
        return _finding("rows", self._taken(), "equal the reference", "one cell off by one")

    # ------------------------------------------------------------------ neighbours

    def neighbours(self) -> Finding:
        """Take each unit away: what changes is what it had alone, which is within its bounds."""
        measurements = cases.relations()
        for unit in self._units():
            with _loaded(self.factory, tables.of_unit(self.rows, unit, kept=False)) as engine:
                for name, measurement in measurements.items():
                    without = self._run(engine, name, measurement) if name in self.alone[unit] else None
                    if without is not None and name in self.whole:
                        with_unit, own = _cells(self.whole[name]), self.alone[unit][name]
                        self.problems += _moved(name, measurement, with_unit, _cells(without), own)
        detail = f"{len(self._units())} units taken away in turn"
        return _finding(
            "neighbours", self._taken(), detail, "a bound exceeded by one, or another unit's choice changed"
        )

    def rows_as_neighbours(self) -> Finding:
        """Take single rows away: one group changes, by no more than one row's bound."""
        measurements = cases.of_rows()
        with _loaded(self.factory, self.rows) as engine:
            whole = {name: self._run(engine, name, m) for name, m in measurements.items()}
        for place in range(0, len(self.rows['vis"its']), 3):
            visits = [row for i, row in enumerate(self.rows['vis"its']) if i != place]
            with _loaded(self.factory, {**self.rows, 'vis"its': visits}) as engine:
                for name, measurement in measurements.items():
                    without, result = self._run(engine, name, measurement), whole[name]
                    if without is None or result is None:
                        continue
                    single = _one_row(measurement)
                    self.problems += _within(name, single, _difference(_cells(result), _cells(without)))
        return _finding("neighbours (rows)", self._taken(), "rows taken away in turn", "a bound exceeded by one")

    def null_units(self) -> Finding:
        """Rows whose unit is NULL change nothing at user level."""
        with _loaded(self.factory, tables.of_unit(self.rows, None, kept=False)) as engine:
            for name, measurement in cases.relations().items():
                without = self._run(engine, name, measurement)
                if without is not None and name in self.whole and not _same(self.whole[name], without):
                    self.problems.append(f"{name} counts rows without a unit")
        return _finding("rows without a unit", self._taken(), "change nothing", "one such row")

    # ------------------------------------------------------------------ order and threads

    def order_and_threads(self) -> Finding:
        """Other orders of rows and numbers of threads give the same bits."""
        for seed in (1, 2):
            with _loaded(self.factory, tables.shuffled(self.rows, seed), threads=seed) as engine:
                for name, measurement in cases.relations().items():
                    found = self._run(engine, name, measurement)
                    if found is not None and name in self.whole and not _same(self.whole[name], found):
                        self.problems.append(f"{name} depends on the order of rows")
        rows = _many_rows(self.large)
        results: list[dict[str, Measured | None]] = []
        for seed, threads in ((0, 1), (1, 4)):
            order = np.random.default_rng(seed).permutation(self.large) if seed else np.arange(self.large)
            arrow = {**tables.as_arrow(self.rows), 'vis"its': rows.take(order)}
            engine = self.factory(arrow, tables.schema(), threads)
            try:
                results.append({name: self._run(engine, name, m) for name, m in _large_cases().items()})
            finally:
                engine.close()
        for name in _large_cases():
            one, other = results[0][name], results[1][name]
            if one is None or other is None or not _same(one, other):
                self.problems.append(f"{name} of many rows depends on order or threads")
        return _finding("order and threads", self._taken(), "bit-identical", "the last bit of a sum")

    # ------------------------------------------------------------------ fairness

    def fair_groups(self) -> Finding:
        """Every pair of a unit's groups is kept as often as every other."""
        units, groups, salts = 60, 6, 40
        rows = [_visit(unit, f"p{place}", 0) for unit in range(units) for place in range(groups)]
        measurement = cases.measure(cases.VISITS, (cases.key(cases.WHO), cases.key(cases.PLACE)), groups=2)
        pairs: Counter[tuple[str, ...]] = Counter()
        with _loaded(self.factory, {**self.rows, 'vis"its': rows}) as engine:
            for salt in range(salts):
                found = self._run(engine, "groups", measurement, salt.to_bytes(16, "big"))
                kept: dict[int, list[str]] = {}
                for row in found.keys.to_pylist() if found is not None else []:
                    kept.setdefault(row["k0"], []).append(row["k1"])
                pairs.update(tuple(sorted(own)) for own in kept.values())
        counted = [pairs[pair] for pair in combinations([f"p{place}" for place in range(groups)], 2)]
        if sum(counted) != units * salts:
            self.problems.append("units don't keep two of their six groups")
            p = 0.0
        else:
            p = chi_square_counts(np.array(counted, dtype=np.float64), np.full(len(counted), 1 / len(counted)))
        problems = [*self._taken(), *(["some groups are kept more often than others"] if p <= ALPHA else [])]
        return _finding("choice of groups is fair", problems, f"χ² p = {p:.3g}", "a group kept 15% too often")

    def fair_rows(self) -> Finding:
        """Every row is kept as often as every other, also where many share a bin."""
        units, salts, most = 60, 40, 2
        values = [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
        rows = [_visit(unit, "p", value) for unit in range(units) for value in values]
        grid = Gridded(expression=Column("c2", Kind.INTEGER), step=Fraction(1), low=0, high=9)
        plain = cases.measure(cases.VISITS, totals=(), rows=most, bins=(Bins(grid=grid),))
        keyed = cases.measure(cases.VISITS, (cases.key(cases.PLACE),), totals=(), rows=most, bins=(Bins(grid=grid),))
        details = []
        with _loaded(self.factory, {**self.rows, 'vis"its': rows}) as engine:
            for name, measurement in (("without keys", plain), ("by key", keyed)):
                counted: Counter[int] = Counter()
                for salt in range(salts):
                    found = self._run(engine, name, measurement, salt.to_bytes(16, "big"))
                    if found is not None:
                        counted.update(dict(zip(found.bins[0].bin.tolist(), found.bins[0].count.tolist(), strict=True)))
                seen = np.array([counted[value] for value in range(6)], dtype=np.float64)
                p = (
                    0.0
                    if seen.sum() != units * salts * most
                    else chi_square_counts(seen, np.array([5, 1, 1, 1, 1, 1]) / 10)
                )
                details.append(f"χ² p = {p:.3g} {name}")
                if p <= ALPHA:
                    self.problems.append(f"some rows are kept more often than others {name}")
        return _finding("choice of rows is fair", self._taken(), ", ".join(details), "a row kept 15% too often")


def _concerns(measurement: Measurement, unit: Any) -> bool:
    """Whether a unit can have rows in it: units of one table are texts, and integers elsewhere."""
    return isinstance(unit, str) == (measurement.relation is cases.NOTES)


# ------------------------------------------------------------------ comparing results


def _keys(measured: Measured) -> list[tuple[Any, ...]]:
    columns = [measured.keys.column(name).to_pylist() for name in measured.keys.column_names]
    if not columns:
        return [()] * measured.size
    return [tuple("NaN" if v != v else v for v in row) for row in zip(*columns, strict=True)]


def _cells(measured: Measured) -> Cells:
    result: Cells = {}
    bins: list[dict[int, Counter[int]]] = []
    for histogram in measured.bins:
        by_group: dict[int, Counter[int]] = {}
        for group, value, count in zip(histogram.group, histogram.bin, histogram.count, strict=True):
            by_group.setdefault(int(group), Counter())[int(value)] += int(count)
        bins.append(by_group)
    for place, group in enumerate(_keys(measured)):
        totals = [int(total[place]) for total in measured.totals]
        values = [int(numbers[place]) for numbers in measured.distinct]
        result[group] = (totals, [by_group.get(place, Counter()) for by_group in bins], values)
    return result


def _same(one: Measured, other: Measured, *, exact: bool = True, distinct: bool = True) -> bool:
    """Whether two results are the same; without ``exact``, doubles among keys may differ in their last digits."""
    if one.keys.schema.types != other.keys.schema.types or one.size != other.size:
        return False
    keys = zip(_keys(one), _keys(other), strict=True)
    if not all(_equal(a, b, exact=exact) for left, right in keys for a, b in zip(left, right, strict=True)):
        return False
    arrays = [*zip(one.totals, other.totals, strict=True)]
    arrays += [*zip(one.distinct, other.distinct, strict=True)] if distinct else []
    if any(a.dtype != np.int64 or b.dtype != np.int64 or not np.array_equal(a, b) for a, b in arrays):
        return False
    found, wanted = list(_cells(one).values()), list(_cells(other).values())
    return all(a[1] == b[1] for a, b in zip(found, wanted, strict=True))


def _equal(a: Any, b: Any, *, exact: bool) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        same_zero = math.copysign(1, a) == math.copysign(1, b)
        return (a == b and same_zero) or (not exact and math.isclose(a, b, rel_tol=1e-14))
    return type(a) is type(b) and a == b


def _difference(more: Cells, less: Cells) -> Cells:
    """What has to be added to the one to get the other; groups in which nothing differs are left out."""
    changed: Cells = {}
    for group in [*more, *(group for group in less if group not in more)]:
        width = more.get(group) or less[group]
        nothing: tuple[list[int], list[Counter[int]], list[int]]
        nothing = ([0] * len(width[0]), [Counter()] * len(width[1]), [0] * len(width[2]))
        a, b = more.get(group, nothing), less.get(group, nothing)
        totals = [x - y for x, y in zip(a[0], b[0], strict=True)]
        bins = [_minus(x, y) for x, y in zip(a[1], b[1], strict=True)]
        values = [x - y for x, y in zip(a[2], b[2], strict=True)]
        if any(totals) or any(bins) or any(values):
            changed[group] = (totals, bins, values)
    return changed


def _minus(a: Counter[int], b: Counter[int]) -> Counter[int]:
    return Counter({value: a[value] - b[value] for value in {*a, *b} if a[value] != b[value]})


def _within(name: str, measurement: Measurement, change: Cells) -> Iterator[str]:
    """What one unit changes against what the measurement allows."""
    most = measurement.groups
    if measurement.keys and len(change) > most:
        yield f"{name}: one unit changes {len(change)} groups, more than {most}"
    for totals, bins, values in change.values():
        for moved, total in zip(totals, measurement.totals, strict=True):
            if not min(0, total.low) <= moved <= max(0, total.high):
                yield f"{name}: one unit moves a total beyond its bounds"
        if any(sum(map(abs, counter.values())) > measurement.rows for counter in bins):
            yield f"{name}: one unit moves bins by more than its rows"
        if any(abs(number) > measurement.rows for number in values):
            yield f"{name}: one unit moves distinct values by more than its rows"


def _moved(name: str, measurement: Measurement, whole: Cells, without: Cells, own: Cells) -> Iterator[str]:
    """The unit's own part must be within its bounds, and be all that changes."""
    change = _difference(whole, without)
    yield from _within(name, measurement, change)
    if len(own) > max(1, measurement.groups):
        yield f"{name}: a unit alone has more groups than it may keep"
    nothing = _difference(own, {})
    alike = {group: cells[:2] for group, cells in change.items() if any(cells[0]) or any(cells[1])}
    if alike != {group: cells[:2] for group, cells in nothing.items() if any(cells[0]) or any(cells[1])}:
        yield f"{name}: taking a unit away changes more than its own part"


def _one_row(measurement: Measurement) -> Measurement:
    """The same measurement with what one row may change."""
    settings = {
        name: getattr(measurement, name) for name in ("relation", "units", "keys", "totals", "bins", "distinct")
    }
    return Measurement(groups=1, rows=1, **settings)


# ------------------------------------------------------------------ larger tables


def _visit(who: int, place: str, n: int) -> dict[str, Any]:
    return {"who": who, "pl'ace": place, "n": n, "x": None, "ok": None, "day": None, "at": None}


def _many_rows(size: int) -> pa.Table:
    """Enough rows that several threads share them, with doubles whose float sum depends on the order."""
    rng = np.random.default_rng(7)
    places = rng.integers(0, 40, size)
    return pa.table(
        {
            "who": pa.array(rng.integers(0, size // 20, size)),
            "pl'ace": pa.array([f"p{place}" for place in places.tolist()]),
            "n": pa.array(rng.integers(-(2**62), 2**62, size)),
            "x": pa.array(rng.normal(size=size) * 10.0 ** rng.integers(-12, 12, size)),
            "ok": pa.array(rng.random(size) < 0.5),
            "day": pa.array(rng.integers(0, 20000, size).astype(np.int32)).cast(pa.date32()),
            "at": pa.array(rng.integers(0, 10**15, size)).cast(pa.timestamp("us")),
        }
    )


def _large_cases() -> dict[str, Measurement]:
    place = (cases.key(cases.PLACE),)
    names = ("totals", "bins")
    settings: list[Callable[[], dict[str, Any]]] = [
        lambda: {"totals": cases.ALL_TOTALS},
        lambda: {"totals": (), "bins": (Bins(grid=cases.CENTRED),)},
    ]
    result = {}
    for name, make in zip(names, settings, strict=True):
        result[name] = cases.measure(cases.VISITS, **make())
        result[f"{name} by key"] = cases.measure(cases.VISITS, place, **make())
    result["rows"] = cases.measure(cases.VISITS, place, units="row", totals=cases.ALL_TOTALS)
    return result
