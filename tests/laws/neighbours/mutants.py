"""Mutants: rules of the engine, the binder and the price, each broken in one way that the neighbour test must notice.

A mutant patches names where they are looked up, so that everything else runs as it is.
"""

from dataclasses import replace

from dither.engines import bounding, relations
from dither.engines.duckdb import (
    engine as duckdb,
    functions as duckdb_functions,
    sources as duckdb_sources,
)
from dither.privacy import Adjacency
from dither.query.aggregates import catalogue
from dither.query.kinds import Kind
from dither.query.plan.plan import Distinct, Inner
from dither.query.sql import joins

_DUCKDB = duckdb_functions.DUCKDB


def _dialect(patch, **parts):
    patch.setattr(duckdb, "DUCKDB", replace(_DUCKDB, **parts))


def no_clamp(patch):
    """Values go on the grid as they are."""

    def grid(text, kind, gridded):
        number = text if kind is Kind.DOUBLE else f"CAST({text} AS DOUBLE)"
        step = f"CAST('{float(gridded.step)!r}' AS DOUBLE)"
        return f"(TRY_CAST(round({number} / {step}) AS BIGINT) - CAST({gridded.offset} AS HUGEINT))"

    _dialect(patch, grid=grid)


def no_cap(patch):
    """What a unit adds to a group isn't cut down."""

    def capped(self, rows):
        return f"CAST(r.{self.name if self.total.factors else self._counter} AS HUGEINT)"

    patch.setattr(bounding._Part, "capped", capped)


def _everything(rows, own, _most, _salt):
    by, known = ", ".join(own), "list(r.v) FILTER (WHERE r.v IS NOT NULL)"
    return f"SELECT {by}, coalesce({known}, [NULL]) AS l FROM ({rows}) AS r GROUP BY {by}"


def no_bound_on_rows_in_histograms(patch):
    """All of a unit's rows count in a histogram."""

    patch.setattr(duckdb, "SAMPLING", replace(duckdb.SAMPLING, bins=_everything))


def no_bound_on_values(patch):
    """All of a unit's values count as different ones."""

    vouched = duckdb._vouched
    patch.setattr(duckdb, "_vouched", lambda cursor, cells, place, most: vouched(cursor, cells, place, 10 * most))


def no_bound_on_groups(patch):
    """A unit stays in all its groups."""
    patch.setattr(duckdb, "keep_groups", lambda table, _keys, _most: table.drop_columns([relations.UNIT, "_h"]))


def units_of_nobody(patch):
    """Rows without a unit are read like others."""
    scan = relations.Relations._scan

    def kept(self, node, used):
        rendered = scan(self, node, used)
        return replace(rendered, select=replace(rendered.select, where=()))

    patch.setattr(relations.Relations, "_scan", kept)


def join_of_strangers(patch):
    """Two private tables are joined, but not on the unit."""
    join = relations.Relations._join

    def loose(self, node, used):
        rendered = join(self, node, used)
        if not node.on_unit:
            return rendered
        relation = rendered.select.relation
        for equal in ("l.u = r.u", f"CAST(l.u AS {self_text}) = CAST(r.u AS {self_text})"):
            relation = _last_replaced(relation, equal, "TRUE")
        return replace(rendered, select=replace(rendered.select, relation=relation))

    self_text = _DUCKDB.types[Kind.TEXT]
    patch.setattr(relations.Relations, "_join", loose)


def _last_replaced(text, old, new):
    head, found, tail = text.rpartition(old)
    return head + new + tail if found else text


def join_that_copies_rows(patch):
    """At row level a public table may match many times."""
    patch.setattr(joins, "_check_unique", lambda _public, _conditions: None)


def keys_not_filtered(patch):
    """Keys that aren't public take part when units choose their groups."""
    patch.setattr(bounding.CellsSql, "_where", lambda _self, _names: ())


def ties_by_storage(patch):
    """Rows that a window's order leaves tied come as they are stored."""
    patch.setattr(relations, "_TIED", ())


def float_sums(patch):
    """Doubles of one unit are added up as doubles."""
    aggregate = relations.Relations.aggregate

    def floating(self, spec, text, kind, over=""):
        if spec.function is Inner.SUM and kind is Kind.DOUBLE:
            return f"sum({text}){over}"
        return aggregate(self, spec, text, kind, over)

    patch.setattr(relations.Relations, "aggregate", floating)


def reach_of_the_other_adjacency(patch):
    """A replacement is priced as if a unit only came or went."""
    for name in ("reach_of", "basis_reach"):
        reach = getattr(catalogue, name)

        def smaller(*facts, reach=reach):
            return replace(reach(*facts[:-1], Adjacency.ADD_REMOVE), adjacency=facts[-1])

        patch.setattr(catalogue, name, smaller)


def one_end_alone(patch):
    """All cells of a basis are priced as if a unit moved half of what it may have in them."""
    reach = catalogue.basis_reach
    patch.setattr(catalogue, "basis_reach", lambda cells, most, *facts: reach(cells, most // 2, *facts))


def both_from_below(patch):
    """What should be counted from the upper end is counted from the lower one."""

    def grid(text, kind, gridded):
        upwards = replace(gridded, down=False, offset=gridded.low) if gridded.down else gridded
        return _DUCKDB.grid(text, kind, upwards)

    _dialect(patch, grid=grid)


def rows_of_products(patch):
    """A product of all of a unit's rows counts, however many there are."""
    capped = bounding._Part.capped

    def whole(self, rows):
        if self.total.divisor == 1:
            return capped(self, rows)
        return f"CAST(r.{self.name} // {self.total.divisor} AS HUGEINT)"

    patch.setattr(bounding._Part, "capped", whole)


def statistics_without_nan(patch):
    """Parquet's statistics are believed, which don't tell of NaN."""
    reader_of = duckdb_sources.reader_of

    def believing(*given):
        reader = reader_of(*given)
        assert "can_have_nan = true" in reader.sql
        return replace(reader, sql=reader.sql.replace("can_have_nan = true", "can_have_nan = false"))

    patch.setattr(duckdb_sources, "reader_of", believing)


def salt_of_row_order(patch):
    """Choices depend on where a row stands among all others."""
    _dialect(patch, rank=lambda salt, _: f"hash(row_number() OVER () + {salt % 1000})")


def distinct_of_everybody(patch):
    """DISTINCT keeps one row for all units."""
    render = relations.Relations.render

    def shared(self, node, used):
        rendered = render(self, node, used)
        if not isinstance(node, Distinct) or rendered.unit_type is None:
            return rendered
        names = ", ".join(f"r.{relations.quoted(field.name)}" for field in node.fields)
        alone = f"SELECT DISTINCT ON ({names}) r.* FROM ({rendered.select.sql}) AS r ORDER BY r.u"
        return replace(rendered, select=relations.closed(alone, rendered.select.columns))

    patch.setattr(relations.Relations, "render", shared)


def _by_unit(*words):
    return lambda here, text: here.by_unit and any(word in text for word in words)


def _by_row(*words):
    return lambda here, text: not here.by_unit and any(word in text for word in words)


# Each with the questions that could show it: the same as without the mutant, but not all of them.
MUTANTS = (
    (no_clamp, _by_row("SUM(", "AVG(")),
    (no_cap, _by_unit("COUNT(", "SUM(")),
    (no_bound_on_rows_in_histograms, _by_unit("MODE(", "MEDIAN(", "QUANTILE_CONT(")),
    (no_bound_on_values, _by_unit("SELECT COUNT(DISTINCT", ", COUNT(DISTINCT")),
    (no_bound_on_groups, _by_unit("GROUP BY")),
    (units_of_nobody, lambda here, text: here.by_unit and "GROUP BY" not in text and "COUNT(" in text),
    (join_of_strangers, _by_unit("JOIN t")),
    (join_that_copies_rows, _by_row("JOIN")),
    (keys_not_filtered, _by_unit("GROUP BY")),
    (ties_by_storage, _by_unit("row_number() OVER", "first_value(", "lag(", "lead(")),
    (float_sums, _by_unit(" SUM(LEAST")),
    (reach_of_the_other_adjacency, _by_unit("GROUP BY")),
    (one_end_alone, _by_row("AVG(", "VAR_")),
    (both_from_below, lambda _, text: "VAR_" in text or "STDDEV" in text),
    (rows_of_products, _by_unit("VAR_", "STDDEV")),
    (salt_of_row_order, _by_unit("GROUP BY")),
    (distinct_of_everybody, _by_unit("SELECT DISTINCT")),
)
