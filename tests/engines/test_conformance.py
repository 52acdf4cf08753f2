"""DuckDB and the reference keep the contract of engines; engines with one fault each don't."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from dither.checks import check_engine, engine, engine_tables
from dither.engines import ReferenceEngine
from dither.engines.reference import engine as reference
from dither.errors import ConformanceFailed
from dither.query.measure.measures import Measured
from support import duckdb_files


def load(tables, schema, threads, make=ReferenceEngine):
    return make({name: engine_tables.readable(table) for name, table in tables.items()}, schema)


def test_duckdb_keeps_the_contract():
    report = check_engine(duckdb_files.factory)
    assert report.passed
    assert len(report.findings) == 9


def test_the_reference_keeps_the_contract():
    assert check_engine(load, rows=500).passed


class Mutant(ReferenceEngine):
    """The reference with a measurement that is changed on its way in."""

    __slots__ = ()

    def change(self, measurement):
        return measurement

    def run(self, measurement, *, salt):
        return super().run(self.change(measurement), salt=salt)


class NoClamp(Mutant):
    """A unit adds whatever its rows add up to."""

    __slots__ = ()

    def change(self, measurement):
        wide = [dataclasses.replace(total, low=-(2**61), high=2**61) for total in measurement.totals]
        return dataclasses.replace(measurement, totals=tuple(wide))


class OneTooHigh(Mutant):
    """A bound is off by one."""

    __slots__ = ()

    def change(self, measurement):
        wide = [dataclasses.replace(total, high=total.high + 1) for total in measurement.totals]
        return dataclasses.replace(measurement, totals=tuple(wide))


class NoGroupBound(Mutant):
    __slots__ = ()

    def change(self, measurement):
        return dataclasses.replace(measurement, groups=10**6)


class OneGroupMore(Mutant):
    __slots__ = ()

    def change(self, measurement):
        return dataclasses.replace(measurement, groups=measurement.groups + 1)


class OneRowMore(Mutant):
    __slots__ = ()

    def change(self, measurement):
        return dataclasses.replace(measurement, rows=measurement.rows + 1)


class KeysNotFiltered(Mutant):
    __slots__ = ()

    def change(self, measurement):
        keys = tuple(dataclasses.replace(key, values=None) for key in measurement.keys)
        return dataclasses.replace(measurement, keys=keys)


class UnitOfNobody(Mutant):
    """Rows without a unit are one unit more."""

    __slots__ = ()

    def _scan(self, scan, *, by_unit):
        if by_unit and scan.private:
            rows = [
                {**row, scan.unit_column: -1 if row[scan.unit_column] is None else row[scan.unit_column]}
                for row in self.tables[scan.table]
            ]
            return ReferenceEngine({scan.table: rows}, self.schema)._scan(scan, by_unit=by_unit)
        return super()._scan(scan, by_unit=by_unit)


class FirstGroups(Mutant):
    """A unit keeps the groups that come first in the table."""

    __slots__ = ()

    def _kept(self, unit, own, measurement, salt):
        return dict(list(own.items())[: measurement.groups])


class SmallestGroups(Mutant):
    """A unit keeps its smallest keys: bounded, but the same for every salt."""

    __slots__ = ()

    def _kept(self, unit, own, measurement, salt):
        chosen = sorted(own, key=reference._keys_order)[: measurement.groups]
        return {key: own[key] for key in chosen}


class ChoiceOfOthers(Mutant):
    """What a unit keeps depends on how many rows there are."""

    __slots__ = ()

    def _kept(self, unit, own, measurement, salt):
        size = str(sum(map(len, self.tables.values()))).encode()
        return super()._kept(unit, own, measurement, salt + size)


class FloatSums(Mutant):
    """Sums pass through doubles of single precision."""

    __slots__ = ()

    def run(self, measurement, *, salt):
        found = super().run(measurement, salt=salt)
        return dataclasses.replace(
            found, totals=tuple(total.astype(np.float32).astype(np.int64) for total in found.totals)
        )


class LowestRows(Mutant):
    """Of a unit's rows those with the smallest values are kept."""

    __slots__ = ()

    def run(self, measurement, *, salt):
        def pick(salt, purpose, whose, items, most):
            return (
                items[:most]
                if purpose.startswith("bins")
                else reference.pick_by_hash(salt, purpose, whose, items, most)
            )

        return ReferenceEngine(self.tables, self.schema, pick).run(measurement, salt=salt)


class BinsOfEveryRow(Mutant):
    __slots__ = ()

    def run(self, measurement, *, salt):
        found = super().run(measurement, salt=salt)
        if not measurement.bins:
            return found
        everything = super().run(dataclasses.replace(measurement, rows=10**6, totals=()), salt=salt)
        return dataclasses.replace(found, bins=everything.bins)


class Raises(Mutant):
    """A query fails where an integer overflows."""

    __slots__ = ()

    def run(self, measurement, *, salt):
        if any("multiply" in str(key) for key in measurement.keys):
            raise OverflowError
        return super().run(measurement, salt=salt)


class UnsortedKeys(Mutant):
    __slots__ = ()

    def run(self, measurement, *, salt):
        found = super().run(measurement, salt=salt)
        if found.bins or found.distinct or found.size < 2:
            return found
        order = list(range(found.size))[::-1]
        totals = tuple(total[order] for total in found.totals)
        return Measured(keys=found.keys.take(order), size=found.size, totals=totals)


STEPS = {
    "functions": ("functions",),
    "units": ("equal_to_reference",),
    "neighbours": ("equal_to_reference", "neighbours"),
    "rows without a unit": ("equal_to_reference", "null_units"),
    "order and threads": ("equal_to_reference", "order_and_threads"),
    "choice of groups is fair": ("fair_groups",),
    "choice of rows is fair": ("fair_rows",),
}


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (NoClamp, "neighbours"),
        (OneTooHigh, "units"),
        (NoGroupBound, "neighbours"),
        (OneGroupMore, "neighbours"),
        (OneRowMore, "units"),
        (KeysNotFiltered, "units"),
        (UnitOfNobody, "rows without a unit"),
        (FirstGroups, "order and threads"),
        (SmallestGroups, "choice of groups is fair"),
        (ChoiceOfOthers, "neighbours"),
        (FloatSums, "units"),
        (LowestRows, "choice of rows is fair"),
        (BinsOfEveryRow, "neighbours"),
        (Raises, "functions"),
        (UnsortedKeys, "units"),
    ],
)
def test_a_mutant_is_caught(mutant, check):
    suite = engine._Suite(partial(load, make=mutant), 200)
    findings = [getattr(suite, step)() for step in STEPS[check]]
    assert check in {finding.check for finding in findings if not finding.passed}


def test_failures_are_raised_with_the_whole_report():
    with pytest.raises(ConformanceFailed, match="FAILED"):
        check_engine(partial(load, make=NoGroupBound), rows=200)
