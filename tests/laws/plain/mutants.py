"""Mutants: wrong edits that keep every promise about privacy, so that only an outside truth can notice them.

A mutant patches names where they are looked up. Each goes with a part of the questions' text: those that could show it.
"""

import math
from dataclasses import replace
from fractions import Fraction

from dither.engines import bounding, relations
from dither.engines.duckdb import engine as duckdb, functions as duckdb_functions
from dither.query.aggregates import mean, quantile, sum as sums
from dither.query.expressions import functions
from dither.query.measure import clamped_grids
from dither.query.plan.plan import JoinKind

_DUCKDB = duckdb_functions.DUCKDB


def _functions(patch, **parts):
    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, functions={**_DUCKDB.functions, **parts}))


def bounds_rounded_inwards(patch):
    """The fault of 0.1.0: bounds go to the next multiple of the step between them."""

    def inwards(ends, step):
        low, high = math.ceil(ends[0] / step), math.floor(ends[1] / step)
        return (low, high) if low <= high else (low, low)

    patch.setattr(clamped_grids, "common_step", lambda numbers: numbers[0])
    patch.setattr(clamped_grids, "places_of", inwards)
    patch.setattr(sums, "places_of", inwards)


def grid_without_the_bounds_of_a_group(patch):
    """The bounds of one unit's sum in a group aren't on the grid."""
    made = sums.sum_grid
    patch.setattr(sums, "sum_grid", lambda argument, bounds, most, _: made(argument, bounds, most))


def grid_one_step_too_high(patch):
    """Values may be a step above the upper bound."""
    near = clamped_grids._near

    def higher(bounds, step):
        grid = near(bounds, step)
        return replace(grid, high=grid.high + 1)

    patch.setattr(clamped_grids, "_near", higher)


def grid_that_is_too_coarse(patch):
    """Values of no declared step go on a grid of 64 points."""
    patch.setattr(
        clamped_grids,
        "_power_of_two",
        lambda bounds, most, *, centred, made=clamped_grids._power_of_two: made(bounds, 64, centred=centred),
    )


def mean_off_by_a_step(patch):
    """What is measured from the lower end is added to a place a declared step too low."""
    scale = mean.Ends._on_scale
    patch.setattr(mean.Ends, "_on_scale", lambda recipe, t: scale(replace(recipe, first=recipe.first - 1024), t))


def missing_values_count(patch):
    """COUNT(x) counts rows where x is NULL."""
    patch.setattr(bounding._Part, "_count", property(lambda _: "count(*)"))


def nan_is_the_largest_number(patch):
    """NaN is clamped to the upper bound."""
    grid = _DUCKDB.grid

    def clamped(text, kind, gridded):
        return grid(text, kind, gridded).replace("<= CAST('inf' AS DOUBLE)", "IS NOT NULL")

    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, grid=clamped))


def filter_with_its_ends(patch):
    """WHERE a > b keeps equals."""
    _functions(patch, greater=_DUCKDB.functions["greater_equal"])


def unknown_is_not_false(patch):
    """NOT NULL is true."""
    _functions(patch, **{"not": lambda _, arguments: f"coalesce(NOT {arguments[0]}, TRUE)"})


def filter_lost(patch):
    """FILTER (WHERE p) is read and forgotten."""
    from dither.query.sql import aggregates

    patch.setattr(aggregates, "over_condition", lambda _scalars, _condition, value: value)


def left_join_that_drops_rows(patch):
    """LEFT JOIN keeps matched rows only."""
    join = relations.Relations._join

    def inner(self, node, used):
        return join(self, replace(node, kind=JoinKind.INNER) if node.kind is JoinKind.LEFT else node, used)

    patch.setattr(relations.Relations, "_join", inner)


def rows_of_nobody(patch):
    """Rows without a unit count."""
    scan = relations.Relations._scan

    def kept(self, node, used):
        rendered = scan(self, node, used)
        return replace(rendered, select=replace(rendered.select, where=()))

    patch.setattr(relations.Relations, "_scan", kept)


def window_in_the_other_direction(patch):
    """DESC is read and forgotten."""
    from dither.query.sql import per_unit

    orderings = per_unit.orderings

    def ascending(node, scalars):
        return tuple(replace(each, descending=False) for each in orderings(node, scalars))

    patch.setattr(per_unit, "orderings", ascending)


def range_that_is_too_narrow(patch):
    """The bounds of a product are those of its first factor."""
    from dither.query.expressions import ranges

    patch.setitem(ranges.RULES, "multiply", lambda known, _: known[0])
    assert functions.RULES is ranges.RULES


def quantile_of_the_other_end(patch):
    """0.9 is read as 0.1."""
    chosen = quantile.QuantileChoice
    patch.setattr(
        quantile,
        "QuantileChoice",
        lambda *, bins, grid, quantile: chosen(bins=bins, grid=grid, quantile=Fraction(1) - quantile),
    )


MUTANTS = (
    (bounds_rounded_inwards, "contribution_bounds_per_row"),
    (grid_without_the_bounds_of_a_group, "contribution_bounds_per_group"),
    (grid_one_step_too_high, "contribution_bounds_per_row"),
    (grid_that_is_too_coarse, "SUM("),
    (mean_off_by_a_step, "AVG("),
    (missing_values_count, "COUNT("),
    (nan_is_the_largest_number, "SUM("),
    (filter_with_its_ends, " > "),
    (unknown_is_not_false, "NOT ("),
    (filter_lost, "FILTER ("),
    (left_join_that_drops_rows, "LEFT JOIN"),
    (rows_of_nobody, "FROM t AS a"),
    (window_in_the_other_direction, " DESC"),
    (range_that_is_too_narrow, " * "),
    (quantile_of_the_other_end, "QUANTILE_CONT("),
)
