"""Worlds of hard choices: every unit has more groups than it may be in, and more rows in each than may count, always.

Random tables seldom make a unit choose, and then a wrong choice is seldom seen. Here each pair of neighbours shows it.
"""

import tempfile
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa

from dither.audit import breaches, difference, reading
from dither.audit.queries.neighbours import BUDGET, groups_of
from dither.engines import DuckDBEngine, EngineFailure
from dither.privacy import Adjacency
from dither.query.kinds import Interval, Kind
from dither.query.price.noise import price
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind

UNITS = 16
LISTED = tuple("abcdefgh")
ELSEWHERE = tuple("stuvwxyz")
SIDES = ("base", "shuffled", "alike", "removed", "replaced", "removed too")

COLUMNS = (
    ColumnFacts(name="u", kind=Kind.INTEGER),
    ColumnFacts(name="k", kind=Kind.TEXT, keys=LISTED),
    ColumnFacts(name="g", kind=Kind.TEXT),
    ColumnFacts(name="i", kind=Kind.INTEGER, between=Interval(Fraction(0), Fraction(9))),
    ColumnFacts(name="n", kind=Kind.INTEGER),
    ColumnFacts(name="x", kind=Kind.DOUBLE, between=Interval(Fraction(1), Fraction(5))),
    ColumnFacts(name="kept", kind=Kind.BOOLEAN),
)
# g is one of a unit's groups, k the same group where it is a listed one; i, x and n differ in each row of a group, and
# n is nobody else's
QUESTIONS = (
    "SELECT g, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY g",
    "SELECT k, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k",
    "SELECT k, SUM(x), COUNT(DISTINCT u), AVG(x) FROM t GROUP BY k",
    "SELECT g, MEDIAN(x), COUNT(DISTINCT u) FROM t GROUP BY g",
    "SELECT k, MODE(i), COUNT(DISTINCT u) FROM t GROUP BY k",
    "SELECT g, COUNT(DISTINCT n), COUNT(DISTINCT u) FROM t GROUP BY g",
    "SELECT g, COUNT(*), COUNT(DISTINCT u) FROM t WHERE kept GROUP BY g",
    "SELECT k, MEDIAN(x), COUNT(DISTINCT u) FROM t WHERE kept GROUP BY k",
    "SELECT a.g, COUNT(*), COUNT(DISTINCT a.u), MEDIAN(a.x) FROM t a JOIN v b ON a.u = b.u AND b.kept GROUP BY a.g",
    "SELECT b.k, COUNT(DISTINCT a.n), COUNT(DISTINCT a.u) FROM t AS a JOIN v AS b ON a.u = b.u GROUP BY b.k",
    "SELECT a.g, b.g, COUNT(*), COUNT(DISTINCT a.u) FROM t AS a JOIN v AS b ON a.u = b.u GROUP BY a.g, b.g",
    "SELECT q.g, SUM(q.x), COUNT(DISTINCT q.u) FROM (SELECT * FROM t UNION ALL SELECT * FROM v) AS q GROUP BY q.g",
    "SELECT k, kept, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k, kept",
    "SELECT MEDIAN(x), COUNT(*), COUNT(DISTINCT n), COUNT(DISTINCT u) FROM t",
)


def schema(groups, rows):
    """Both tables, with little that a unit may add."""
    facts = {column.name: column for column in COLUMNS}
    return Schema(
        {
            name: TableFacts(name=name, private=True, columns=facts, unit_column="u", groups=groups, rows=rows)
            for name in ("t", "v", *(f"{name}~{side}" for name in ("t", "v") for side in SIDES))
        }
    )


def rows_of(random, unit, groups, rows, *, alike=False):
    """One unit's rows: in three more groups than allowed that a filter keeps, and in as many that it doesn't.

    In each of them it has two or three more rows than allowed, all with different values. Units that are ``alike`` have
    the same groups.
    """
    places = range(groups + 3) if alike else random.sample(range(8), groups + 3)
    made = []
    for kept in (True, False):
        for place in places:
            # rows that a filter drops are in groups of their own
            group = f"{LISTED[place]}{'' if kept else '-'}"
            values = random.sample(range(10), min(rows + 2 + random.randrange(2), 10))
            listed = LISTED[place] if kept else ELSEWHERE[place]
            made += [
                (unit, listed, group, i, 1000 * unit + 10 * place + i, 1.0 + i * 0.25 + unit / 512, kept)
                for i in values
            ]
    return made


def tables(random, groups, rows):
    """Every side: all units; in another order; with the same groups; without one, or with its like; without another."""
    found = {}
    for name in ("t", "v"):
        own = {unit: rows_of(random, unit, groups, rows) for unit in range(UNITS)}
        base = [row for unit in own for row in own[unit]]
        random.shuffle(base)
        found[f"{name}~base"] = base
        found[f"{name}~shuffled"] = random.sample(base, len(base))
        found[f"{name}~alike"] = [r for unit in range(UNITS) for r in rows_of(random, unit, groups, rows, alike=True)]
        found[f"{name}~removed"] = [row for row in base if row[0] != 0]
        found[f"{name}~replaced"] = [*found[f"{name}~removed"], *rows_of(random, 0, groups, rows)]
        found[f"{name}~removed too"] = [row for row in base if row[0] != 1]
        found[name] = []
    return found


@dataclass
class Seen:
    """How many pairs of neighbours there were, how many of them broke a claim, and what else was wrong."""

    pairs: int = 0
    broken: int = 0
    wrong: list = field(default_factory=list)

    @property
    def noticed(self):
        return bool(self.broken or self.wrong)


def check(seed, seen, *, questions=QUESTIONS, only=None, first=False):
    """One world: all questions on all sides; with ``only``, those in whose text it is; ``first`` stops if noticed."""
    random = Random(seed)
    groups, rows = 1 + seed % 3, 1 + seed // 3 % 3
    facts = schema(groups, rows)
    salt = random.randbytes(16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "choice.duckdb"
        _write(path, tables(random, groups, rows))
        with DuckDBEngine.open(path, facts, threads=1) as engine:
            for sql in questions:
                if only is not None and only not in sql:
                    continue
                try:
                    _ask(sql, facts, engine, salt, seen)
                except EngineFailure as failure:
                    seen.wrong.append(f"the engine fails: {failure.cause}: {sql}")
                if first and seen.noticed:
                    return


def _ask(sql, facts, engine, salt, seen):
    aggregation = bind(sql, facts).aggregation
    priced = {adjacency: price(aggregation, BUDGET, adjacency) for adjacency in Adjacency}
    one = priced[Adjacency.ADD_REMOVE]

    def measured(side, salt=salt, claimed=one, **more):
        names, asked = {name: f"{name}~{side}" for name in ("t", "v")}, claimed.measurement
        return engine.run(replace(asked, **{"relation": reading(asked.relation, names), **more}), salt=salt)

    base = measured("base")
    if difference(base, measured("shuffled"), one):
        seen.wrong.append(f"the order of rows decides: {sql}")
    for side in SIDES[3:]:
        claimed = priced[Adjacency.REPLACE if side == "replaced" else Adjacency.ADD_REMOVE]
        seen.pairs += 1
        # what is measured may depend on adjacency too
        seen.broken += bool(breaches(claimed, measured("base", claimed=claimed), measured(side, claimed=claimed)))
    _laws(sql, one, base, measured, salt, seen)


def _laws(sql, priced, base, measured, salt, seen):
    """What an honest choice keeps: all that is allowed, by each unit for itself, and other groups with another salt."""
    units = next(i for i, total in enumerate(priced.measurement.totals) if not total.factors and total.high == 1)
    most = priced.measurement.most_groups
    wanted = UNITS * (1 if most is None else most)
    kept = int(base.totals[units].sum())
    if kept != wanted:
        seen.wrong.append(f"units are in {kept} groups together, and may be in {wanted}: {sql}")
    for histogram in base.bins:
        if int(histogram.count.sum()) != wanted * priced.measurement.rows:
            seen.wrong.append(f"a histogram holds {int(histogram.count.sum())} rows of {wanted} choices: {sql}")
    for distinct in base.distinct:
        if int(distinct.sum()) != wanted * priced.measurement.rows:
            seen.wrong.append(f"there are {int(distinct.sum())} different values of {wanted} choices: {sql}")
    if most is None:
        return
    # 16 units with the same groups all choose the same ones with a chance of 4^-15 at most, as with another salt
    if len(groups_of(priced, measured("alike"))) <= most:
        seen.wrong.append(f"units don't choose by themselves: {sql}")
    if not difference(base, measured("base", salt=salt[::-1]), priced):
        seen.wrong.append(f"the salt decides nothing: {sql}")


def _write(path, rows):
    kinds = {Kind.INTEGER: pa.int64(), Kind.TEXT: pa.string(), Kind.DOUBLE: pa.float64(), Kind.BOOLEAN: pa.bool_()}
    types = {column.name: kinds[column.kind] for column in COLUMNS}
    with duckdb.connect(str(path)) as connection:
        for name, own in rows.items():
            arrays = [pa.array([row[place] for row in own], kind) for place, kind in enumerate(types.values())]
            connection.register("made", pa.Table.from_arrays(arrays, names=list(types)))
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM made')
            connection.unregister("made")
