"""Runs worlds: every question on every neighbour, through the real engine, and says what went wrong.

A longer run than the tests': in tests/laws, ``python -m neighbours.harness 2000 [first seed]``: so many worlds.
"""

import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from dither.audit import breaches, difference, reading
from dither.audit.queries.neighbours import BUDGET
from dither.engines import DuckDBEngine, EngineFailure, ReferenceEngine
from dither.errors import Refused
from dither.privacy import Adjacency
from dither.query.price.noise import QueryBudget, price
from dither.query.sql.queries import _bound

from .questions import question
from .worlds import world

SALT = b"a salt for everything"
QUESTIONS = 24
PURE = QueryBudget(kind="pure", main=1)


@dataclass(frozen=True)
class Problem:
    """Where something went wrong: the world's seed, the question, which variant, and what."""

    seed: int
    sql: str
    variant: str
    what: str

    def __str__(self):
        return f"seed {self.seed}, {self.variant}: {self.what}\n    {self.sql}"


@dataclass
class Tally:
    """What was done, so that tests can see that it was much."""

    cases: int = 0
    questions: int = 0
    compared: int = 0
    moved: int = 0
    refused: Counter = field(default_factory=Counter)
    problems: list = field(default_factory=list)
    seen: set = field(default_factory=set)


class _Chosen(Exception):
    """The reference engine would have to choose, and its choice isn't DuckDB's."""


def _no_choice(_salt, _purpose, _whose, _items, _most):
    raise _Chosen


def run_world(seed, tally, *, questions=QUESTIONS, only=None):
    """One world with so many questions; problems are added to the tally.

    With ``only`` it asks what that says of (world, sql) and stops at the first problem that isn't an error.
    """
    random = Random(seed)
    here = world(random)
    asked = [question(random, here) for _ in range(questions)]
    if only is not None and not any(only(here, sql) for sql in asked):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.duckdb"
        here.write(path)
        plain = all(table.plain for table in here.tables.values())
        origin = here.parquet(path, Path(folder)) if plain and seed % 2 else path
        with DuckDBEngine.open(origin, here.whole(), threads=1) as engine:
            for number, sql in enumerate(asked):
                if only is not None and not only(here, sql):
                    continue
                _ask(here, engine, sql, seed, number, tally)
                if only is not None and any(problem.variant != "raised" for problem in tally.problems):
                    return


def _priced(sql, here, tally, number):
    """At two prices: with Laplace noise more is read off one basis."""
    try:
        asked = _bound(sql, here.schema)
        budget = PURE if number % 2 and not asked.aggregation.discover else BUDGET
        return {adjacency: price(asked.aggregation, budget, adjacency) for adjacency in Adjacency}
    except Refused as refusal:
        tally.refused[refusal.code] += 1
        return None


def _ask(here, engine, sql, seed, number, tally):
    def problem(variant, what):
        tally.problems.append(Problem(seed, sql, variant, what))

    try:
        both = _priced(sql, here, tally, number)
    except Exception:  # noqa: BLE001 - nothing may raise, and the seed must be known
        problem("binding", traceback.format_exc(limit=-3))
        return
    if both is None:
        return
    one, other_one = both[Adjacency.ADD_REMOVE], both[Adjacency.REPLACE]
    tally.questions += 1
    tally.seen |= parts_of(one)

    def measured(variant, priced=one):
        relation = reading(priced.measurement.relation, here.names(variant))
        return engine.run(replace(priced.measurement, relation=relation), salt=SALT)

    wanted = [*here.removed, *here.replaced]
    wanted += ["shuffled"]
    wanted += ["nobody"] if number % 2 == 1 and "nobody" in here.variants else []
    try:
        base = measured("base")
        # what is measured may depend on adjacency
        same = one.measurement == other_one.measurement
        base_of_replaced = base if same else measured("base", other_one)
        for variant in wanted:
            priced, left = (other_one, base_of_replaced) if variant in here.replaced else (one, base)
            other = measured(variant, priced)
            if variant in ("shuffled", "nobody"):
                if difference(base, other, one):
                    problem(variant, "the result depends on where rows are stored, or on rows of nobody")
                continue
            tally.cases += 1
            tally.moved += difference(left, other, priced)
            for breach in breaches(priced, left, other):
                problem(variant, f"{breach.fault.name} at {breach.place}: {breach.found} > {breach.claimed}")
    except EngineFailure as failure:
        problem("raised", failure.cause[:300])
        return
    except Exception:  # noqa: BLE001
        problem("raised", traceback.format_exc(limit=-3))
        return
    if number % 4 == 2:
        _compare(here, one, base, problem, tally)


def _compare(here, one, base, problem, tally):
    rows = here.python("base")
    if rows is None:
        return
    try:
        slow = ReferenceEngine(rows, here.schema, pick=_no_choice).run(one.measurement, salt=SALT)
    except _Chosen:
        return
    tally.compared += 1
    if difference(base, slow, one):
        problem("reference", "DuckDB and the reference engine differ")


def parts_of(priced):
    """Names of everything that a question is made of."""
    found = set()

    def walk(part):
        if hasattr(part, "__dataclass_fields__"):
            found.add(type(part).__name__)
            for name in part.__dataclass_fields__:
                value = getattr(part, name)
                if name in ("function", "kind") and not hasattr(value, "__dataclass_fields__"):
                    found.add(str(getattr(value, "value", value)))
                if name not in ("facts", "values"):
                    walk(value)
        elif isinstance(part, tuple):
            for each in part:
                walk(each)

    walk(priced.measurement)
    found.update(aggregate.function.name for aggregate in priced.aggregation.aggregates)
    return found


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    tally = Tally()
    for seed in range(first, first + count):
        before = len(tally.problems)
        run_world(seed, tally)
        for problem in tally.problems[before:]:
            print(problem, flush=True)
    print(f"{tally.cases} cases, {tally.questions} questions, {tally.compared} compared, {tally.moved} moved")
    print(f"refused {sum(tally.refused.values())}: {dict(tally.refused.most_common(12))}")
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
