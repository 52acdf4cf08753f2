"""Mutants of the choice: what a unit keeps, broken in one way each. A mutant patches names where they are looked up."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from dither.engines import bounding, relations
from dither.engines.duckdb import engine as duckdb, functions as duckdb_functions, group_choice
from dither.query.kinds import NOTHING, Call, Column as Named, Kind, Literal
from dither.query.plan.plan import FilterRows, JoinRows, Ordering, PlanField, Scan, Window, Windowed

from . import choice

_DUCKDB = duckdb_functions.DUCKDB


def one_group_too_many(patch):
    """A unit stays in one group more than it may."""
    keep = duckdb.keep_groups
    patch.setattr(duckdb, "keep_groups", lambda table, keys, most: keep(table, keys, most + 1))


def one_group_too_few(patch):
    """Units that may be in several groups are in one less: no promise is broken, but answers are."""
    keep = duckdb.keep_groups
    patch.setattr(duckdb, "keep_groups", lambda table, keys, most: keep(table, keys, max(1, most - 1)))


def one_row_too_many_in_histograms(patch):
    """A sample of a unit's rows in a group has one row more."""
    bins, alone = group_choice.bins, duckdb.sample_bins
    more = replace(duckdb.SAMPLING, bins=lambda rows, own, most, salt: bins(rows, own, most + 1, salt))
    patch.setattr(duckdb, "SAMPLING", more)
    patch.setattr(
        duckdb, "sample_bins", lambda unit, value, width, most, rank: alone(unit, value, width, most + 1, rank)
    )


def one_value_too_many(patch):
    """A unit vouches for one more of its different values in a group."""
    vouched = duckdb._vouched
    patch.setattr(duckdb, "_vouched", lambda cursor, cells, place, most: vouched(cursor, cells, place, most + 1))


def one_row_too_many_in_totals(patch):
    """What a unit adds to a count or a sum is capped one too high."""
    capped = bounding._Part.capped

    def higher(self, rows):
        return capped(replace(self, total=replace(self.total, high=self.total.high + 1)), rows + 1)

    patch.setattr(bounding._Part, "capped", higher)


def choice_by_the_rows_of_others(patch):
    """The hash takes in how many rows there are of everybody."""

    def rank(salt, columns):
        return f"hash(xor(hash({', '.join(columns)}), CAST({salt % 2**64} AS UBIGINT) + count(*) OVER ()))"

    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, rank=rank))


def choice_by_the_size_of_groups(patch):
    """Units prefer groups in which there are many others."""

    def rank(salt, columns):
        return f"hash(xor(CAST({salt % 2**64} AS UBIGINT), count(*) OVER (PARTITION BY {', '.join(columns[1:])})))"

    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, rank=rank))


def salt_that_is_not_per_unit(patch):
    """The hash leaves the unit out: all choose the same groups."""
    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, rank=lambda salt, columns: _DUCKDB.rank(salt, columns[1:])))


def choice_without_a_salt(patch):
    """Every question makes the same choice."""
    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, rank=lambda _, columns: _DUCKDB.rank(0, columns)))


def ties_by_the_order_of_rows(patch):
    """The first groups that are met are kept."""

    def first(table, keys, most):
        seen, kept = {}, []
        for unit in table.column(relations.UNIT).to_pylist():
            seen[unit] = seen.get(unit, 0) + 1
            kept.append(seen[unit] <= most)
        return table.drop_columns([relations.UNIT, "_h"]).filter(pa.array(np.array(kept, dtype=bool)))

    patch.setattr(duckdb, "keep_groups", first)


def hashes_that_tie(patch):
    """Four bits of the hash are left, and of groups that tie the one that is met first is kept."""
    keep = duckdb.keep_groups

    def short(table, keys, most):
        place = table.column_names.index("_h")
        few = table.column("_h").to_numpy() >> np.uint64(60)
        packed = (few << np.uint64(32)) + np.arange(table.num_rows, dtype=np.uint64)
        return keep(table.set_column(place, "_h", pa.array(packed)), keys, most)

    patch.setattr(duckdb, "keep_groups", short)


def choice_of_each_aggregate(patch):
    """A histogram chooses other groups than the totals."""
    made = bounding.CellsSql._steps

    def own(self, units, payload, final):
        other = bounding.CellsSql(
            self._relations, self._sampling, self._measurement, self._salt + repr(list(payload)).encode()
        )
        return made(other, units, payload, final)

    patch.setattr(bounding.CellsSql, "_steps", own)


def choice_before_keys_are_filtered(patch):
    """Units lose groups to keys that nobody sees: the list of public keys is applied after the choice."""
    made = bounding.CellsSql._steps

    def later(self, units, payload, final):
        return made(self, replace(units, where=()), payload, lambda kept: final(replace(kept, where=units.where)))

    patch.setattr(bounding.CellsSql, "_steps", later)
    patch.setattr(duckdb, "add_up", lambda *_: None)


def _limited(relation, most):
    """The rows of a table in the first so many groups of each unit, by the order of g."""
    field = PlanField(name="place", kind=Kind.INTEGER, facts=NOTHING)
    g = next(name for name, column in relation.columns if column == "g")
    ranked = Windowed(
        function="dense_rank",
        argument=None,
        aggregate=None,
        offset=0,
        partition=(),
        order=(Ordering(expression=Named(g, Kind.TEXT)),),
    )
    wide = Window(input=relation, items=(ranked,), fields=(*relation.fields, replace(field, name=f"place of {g}")))
    place = Named(f"place of {g}", Kind.INTEGER)
    return FilterRows(input=wide, predicate=Call("less_equal", (place, Literal(most, Kind.INTEGER)), Kind.BOOLEAN))


def _rewritten(patch, change, **more):
    price = choice.price

    def changed(aggregation, budget, adjacency):
        priced = price(aggregation, budget, adjacency)
        measurement = priced.measurement
        measurement = replace(measurement, relation=change(measurement.relation, measurement.groups), **more)
        return replace(priced, lowered=replace(priced.lowered, measurement=measurement))

    patch.setattr(choice, "price", changed)


def choice_before_rows_are_filtered(patch):
    """Units choose among the groups of all their rows, and WHERE comes after it."""

    def change(relation, most):
        if isinstance(relation, Scan):
            return _limited(relation, most)
        if isinstance(relation, FilterRows):
            return replace(relation, input=change(relation.input, most))
        return relation

    _rewritten(patch, change)


def choice_of_each_table(patch):
    """Units choose their groups in each table by itself, and not once more after the join."""

    def change(relation, most):
        if isinstance(relation, Scan):
            return _limited(relation, most)
        if isinstance(relation, JoinRows):
            return replace(relation, left=change(relation.left, most), right=change(relation.right, most))
        if isinstance(relation, FilterRows):
            return replace(relation, input=change(relation.input, most))
        return relation

    _rewritten(patch, change)
    patch.setattr(duckdb, "keep_groups", lambda table, _keys, _most: table.drop_columns([relations.UNIT, "_h"]))


# Each with the part of the questions' text that could show it, and whether it must break a claim in most pairs of
# neighbours (taking a unit away shows it whatever the salt), rather than one of the other laws.
MUTANTS = (
    (one_group_too_many, "GROUP BY", True),
    (one_group_too_few, "GROUP BY", False),
    (one_row_too_many_in_histograms, "MEDIAN(", True),
    (one_value_too_many, "COUNT(DISTINCT n)", True),
    (one_row_too_many_in_totals, "COUNT(*)", True),
    (choice_by_the_rows_of_others, "GROUP BY", True),
    (choice_by_the_size_of_groups, "GROUP BY", True),
    (salt_that_is_not_per_unit, "GROUP BY", False),
    (choice_without_a_salt, "GROUP BY", False),
    (ties_by_the_order_of_rows, "GROUP BY", False),
    (hashes_that_tie, "GROUP BY", False),
    (choice_of_each_aggregate, "GROUP BY", False),
    (choice_before_keys_are_filtered, "SELECT k, COUNT(*)", False),
    (choice_before_rows_are_filtered, "WHERE kept", False),
    (choice_of_each_table, "GROUP BY a.g, b.g", True),
)
