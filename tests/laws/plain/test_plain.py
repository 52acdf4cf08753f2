"""With noise that is nothing and nothing cut, every answer is that of plain DuckDB on clamped values.

``harness.py`` says how to run it for longer.
"""

from datetime import date, datetime, time
from random import Random

import duckdb
import pytest

from dither.engines import DuckDBEngine
from dither.query.aggregates.bernstein import BernsteinMoments
from dither.query.aggregates.mean import Ends, UnitEnds
from dither.query.aggregates.moments import MomentsRecipe
from dither.query.aggregates.quantile import Located
from dither.query.kinds import Column, Kind
from support.sizes import short_or_full

from .corpus import FOUND, ONE_ROW, SHOP, accepted, moved_quantiles, plain_database, plain_text, rows, uncut, write
from .harness import Tally, answer, run_tables
from .mutants import MUTANTS
from .tables import SCHEMA, TYPES, tables

SETS = 12
PARTS = 4


# by day a quarter of the tables: wrong edits are looked for in all
@pytest.mark.parametrize("part", range(short_or_full(1, PARTS)))
def test_answers_are_those_of_plain_duckdb(part):
    tally = Tally()
    for seed in range(part, SETS, PARTS):
        run_tables(seed, tally)
    assert not tally.problems, "\n".join(tally.problems[:5])
    # a test of nothing would pass too
    assert tally.questions >= 95
    assert tally.filled >= 1200
    assert min(tally.aggregates.values()) >= 8
    assert len(tally.aggregates) == 14
    assert sum(tally.refused.values()) <= tally.questions // 8


@pytest.mark.parametrize(("mutant", "only"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_wrong_edit_is_noticed(mutant, only, monkeypatch):
    """Tables, questions and salt are the same in every run and noise is nothing, so that none is ever missed."""
    mutant(monkeypatch)
    tally = Tally()
    for seed in range(SETS):
        run_tables(seed, tally, only=only)
        if tally.problems:
            return
    pytest.fail("the differential test doesn't see it")


@pytest.mark.parametrize(
    "condition",
    [
        "x > 0 AND x / 0 IS NULL",
        "h = 0 AND ln(h) IS NULL",
        "isnan(x) AND x ^ 2 IS NULL",
        "isnan(x) AND sign(x) IS NULL",
        "isnan(x) AND CAST(x AS VARCHAR) IS NULL",
        "CAST('nan' AS DOUBLE) IS NULL",
        "trim(g) = '\u00a0a'",
        "date_diff('week', d, d + INTERVAL 1 DAY) = 1",
        "i = 7 AND d <> '2024-02-01 12:00:00' AND d = DATE '2024-02-01'",
        "g NOT IN (SELECT CASE WHEN h >= 0 THEN g END FROM p WHERE h IS NULL OR g = 'Bern')",
    ],
)
def test_where_a_text_means_something_else_than_in_duckdb(condition, tmp_path):
    """Each is in docs/sql.md: true for some rows, and for none in DuckDB, which below 2 raises for a logarithm of 0."""
    here = tables(Random(1))
    row = list(next(row for row in here.rows["t"] if row[1] is not None))
    row[list(TYPES).index("i")], row[list(TYPES).index("d")] = 7, date(2024, 2, 1)
    here.rows["t"].append(tuple(row))
    here.write(tmp_path / "t.duckdb")
    asked = f"SELECT COUNT(*) FROM t WHERE {condition}"
    with DuckDBEngine.open(tmp_path / "t.duckdb", SCHEMA, threads=1) as engine, here.plain() as plain:
        if "ln(" in condition and int(duckdb.__version__.split(".")[0]) < 2:
            with pytest.raises(duckdb.OutOfRangeException, match="cannot take logarithm of zero"):
                plain.execute(asked).fetchone()
        else:
            assert plain.execute(asked).fetchone() == (0,)
        assert answer(asked, SCHEMA, engine)[0].column(0).to_pylist()[0] > 0


# ------------------------------------------------------------------ the accepted corpus


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    tables = rows()
    path = tmp_path_factory.mktemp("shop") / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        write(connection, tables, nobody=True)
    with DuckDBEngine.open(path, SHOP, threads=1) as engine, plain_database(tables) as plain:
        often = plain.execute("SELECT count(*) FROM orders GROUP BY city").fetchall()
        assert len(set(often)) == 4, "modes and orders must have no ties, which noise would break either way"
        yield engine, plain


def _split(row, places):
    """The keys of a row, at most once each, and the rest."""
    keys = tuple(value for value, place in zip(row, places, strict=True) if place is not None)
    return tuple(map(_plain_day, keys)), [value for value, place in zip(row, places, strict=True) if place is None]


def _plain_day(key):
    """A date cut to its month is a date, and in DuckDB the midnight that begins it."""
    return key.date() if isinstance(key, datetime) and key.time() == time() else key


def _spread(rows):
    """DuckDB's list of several quantiles as the columns that dither gives; of no values, it is one NULL."""
    lengths = [
        max((len(value) for value in column if isinstance(value, list)), default=None)
        for column in zip(*rows, strict=True)
    ]
    return [
        tuple(
            part
            for value, length in zip(row, lengths, strict=True)
            for part in ([value] if length is None else [None] * length if value is None else value)
        )
        for row in rows
    ]


@pytest.mark.parametrize(("name", "sql"), [pytest.param(name, sql, id=name) for name, sql in accepted()])
def test_the_accepted_corpus(shop, name, sql):
    engine, plain = shop
    table, question, priced = answer(uncut(sql), SHOP, engine, FOUND)
    places = [
        int(e.name[1:]) if isinstance(e := o.expression, Column) and e.name[0] == "k" else None
        for o in question.shape.outputs
    ]
    ours = dict(_split(row, places) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))

    def rows_of(text):
        return dict(_split(row, places) for row in _spread(plain.execute(text).fetchall()))

    theirs = rows_of(plain_text(sql))
    assert len(ours) == table.num_rows
    assert theirs
    public = [priced.aggregation.keys[place].values for place in places if place is not None]
    public = [None if values is None else tuple(map(_plain_day, values)) for values in public]
    arguments = [a for aggregate in priced.aggregation.aggregates for a in aggregate.arguments]
    chosen = any(isinstance(recipe, Located) for recipe in priced.lowered.recipes)
    spread = any(isinstance(recipe, MomentsRecipe | BernsteinMoments) for recipe in priced.lowered.recipes)
    rounded = any(a.expression.kind is Kind.DOUBLE and a.facts.step is None for a in arguments)
    # a mean of what was rounded to the nearest step is off by half of one
    half_steps = [float(recipe.step) / 2 for recipe in priced.lowered.recipes if rounded and isinstance(recipe, Ends)]
    # each unit's own mean is rounded down to a step
    half_steps += [float(recipe.step) for recipe in priced.lowered.recipes if isinstance(recipe, UnitEnds)]
    names = [o.expression.name if isinstance(o.expression, Column) else "" for o in question.shape.outputs]
    sides = [name.partition(".")[2] for name, place in zip(names, places, strict=True) if place is None]
    # a quantile lies anywhere between the values on either side of it, which are near to each other among many
    grouped = any(place is not None for place in places)
    beside = [rows_of(moved_quantiles(plain_text(sql), by)) for by in (-ONE_ROW, ONE_ROW)] if chosen and grouped else []
    for group, numbers in theirs.items():
        if any(values is not None and value not in values for value, values in zip(group, public, strict=True)):
            assert group not in ours
            continue
        for place, (value, truth) in enumerate(zip(ours[group], numbers, strict=True)):
            if truth is None or isinstance(truth, str | bool):
                # the mean of nothing is NULL in DuckDB, and what the bounds allow for dither
                assert value == truth or (truth is None and isinstance(value, float))
                continue
            if chosen and sides[place]:
                # bins get wider away from what was drawn, and one row more or less is another definition
                assert truth - 5 <= value <= truth if sides[place] == "low" else truth <= value <= truth + 5
                continue
            if beside:
                ends = [float(rows[group][place]) for rows in beside]
                assert min(ends) - 1e-6 <= value <= max(ends) + 1e-6, plain_text(sql)
                continue
            # products of centred values are on a coarser grid; what has no step is rounded to one of 2^30 / rows
            slack = 1.5 if chosen else abs(truth) / 100 + 0.01 if spread else max([1e-9, *half_steps])
            assert value == pytest.approx(float(truth), rel=1e-7 if rounded else 1e-12, abs=slack), plain_text(sql)
    if not public or None in public:
        assert ours.keys() == {group for group in theirs if group in ours}
