"""Asks both sides the same, and says where they differ.

A longer run than the tests': in tests/laws, ``python -m plain.harness 200 [first seed]``: so many sets of tables.
"""

import math
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np

from dither.curator.answers.post_processing import shape
from dither.curator.answers.release import release
from dither.curator.price.pricing import bounded, searched
from dither.engines import DuckDBEngine
from dither.errors import Refused
from dither.privacy import Adjacency
from dither.query.price.noise import QueryBudget, price
from dither.query.sql.queries import _bound

from .questions import question
from .tables import ROWS, SCHEMA, tables

# So much that noise on 2^30 steps of 64 groups is zero but for a chance below 10^-1000.
BUDGET = QueryBudget(kind="zcdp", main=Fraction(10**30), delta=Fraction(1, 2))
SALT = b"nothing is cut, so nothing is chosen"
QUESTIONS = 40


class _Everything:
    """Shows each key that a unit holds: what selection hides isn't what is tested here."""

    def release(self, units, *, source=None):
        return np.asarray(units) > 0


@dataclass
class Tally:
    """What was compared."""

    questions: int = 0
    cells: int = 0
    filled: int = 0
    aggregates: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    problems: list = field(default_factory=list)


def answer(sql, schema, engine, found=()):
    """dither's answer with noise that is nothing; ``found`` are bounds where the owner left them to a search."""
    bound = _bound(sql, schema)
    if searched(bound.aggregation):
        bound = bounded(sql, bound, schema, found)
    priced = price(bound.aggregation, BUDGET, Adjacency.ADD_REMOVE)
    if priced.selection is not None:
        priced = replace(priced, selection=replace(priced.selection, mechanism=_Everything()))
    released = release(priced, engine.run(priced.measurement, salt=SALT))
    table, _ = shape(released, bound.shape, priced.errors(), Fraction(19, 20))
    return table, bound, priced


def run_tables(seed, tally, *, questions=QUESTIONS, only=None):
    """One set of tables with so many questions; with ``only``, those in whose text it is, up to the first problem."""
    random = Random(seed)
    here = tables(random)
    asked = [question(random) for _ in range(questions)]
    if only is not None and not any(only in one.sql for one in asked):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        here.write(path)
        with DuckDBEngine.open(path, SCHEMA, threads=1) as engine, here.plain() as plain:
            for one in asked:
                if only is None or only in one.sql:
                    _ask(one, engine, plain, seed, tally)
                if only is not None and tally.problems:
                    return


def _ask(one, engine, plain, seed, tally):
    try:
        table, bound, _ = answer(one.sql, SCHEMA, engine)
    except Refused as refusal:
        tally.refused[f"{refusal.code}: {refusal.reason}"] += 1
        return
    # what can't be cast is an error in DuckDB, and NULL for dither
    expected = plain.execute(re.sub(r"\bCAST\((a\.)?x AS INTEGER", r"TRY_CAST(\1x AS BIGINT", one.plain)).fetchall()
    tally.questions += 1
    found = compared(one, [tuple(row.values()) for row in table.to_pylist()], expected, tally, bound.aggregation.rows)
    if found:
        tally.problems.append(f"seed {seed}, {len(found)} of them: {found[0]}\n    {one.sql}\n    {one.plain}")
    assert len(bound.shape.outputs) == len(one.keys) + len(one.checks)


def compared(one, found, expected, tally, rows=ROWS):
    """The differences of two lists of rows: keys first, then a column for each check."""
    width = len(one.keys)
    ours = {tuple(map(_key, row[:width])): row[width:] for row in found}
    theirs = {tuple(map(_key, row[:width])): row[width:] for row in expected}
    if len(ours) != len(found):
        return ["a group is answered twice"]
    public = all(values is not None for values in one.keys)
    problems = []
    for group in ours.keys() | theirs.keys():
        listed = all(values is None or value in values for value, values in zip(group, one.keys, strict=True))
        # every public group answers; a discovered one if it is there; and never one that a list leaves out
        wanted = listed and (public or group in theirs)
        if (group in ours) != wanted and not (one.filtered and public and group not in theirs):
            problems.append(f"the group {group} is {'answered' if group in ours else 'missing'}")
            continue
        if group not in ours:
            continue
        for check, value, truth in zip(
            one.checks, ours[group], theirs.get(group, (None,) * len(one.checks)), strict=True
        ):
            tally.cells += 1
            tally.filled += truth not in (None, 0, [])
            tally.aggregates[check.name] += 1
            if not check.holds(value, truth, rows):
                problems.append(f"{check.name} of {group or 'all'} is {value!r}, and {_short(truth)} in DuckDB")
    return problems


def _key(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    # a date cut to its month is a date, and in DuckDB the midnight that begins it
    return value.date() if isinstance(value, datetime) and value.time() == time() else value


def _short(value):
    return repr(value) if len(repr(value)) < 200 else f"{repr(value)[:200]}…"


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    tally = Tally()
    for seed in range(first, first + count):
        before = len(tally.problems)
        run_tables(seed, tally)
        for problem in tally.problems[before:]:
            print(problem, flush=True)
    print(f"{tally.questions} questions, {tally.cells} cells ({tally.filled} of groups with rows)")
    print(f"{dict(tally.aggregates)}\nrefused: {dict(tally.refused.most_common(12))}")
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
