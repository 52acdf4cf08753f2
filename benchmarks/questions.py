"""Everyday questions on real data: how many answers are of use, and what becomes of the others.

Run with ``python benchmarks/questions.py --adult adult.data --ratings ratings.csv [--epsilon 0.3] [--runs 1]``. These
are UCI's Adult (32,561 rows, one for each person) and MovieLens latest-small (100,836 ratings of 610 people), which
aren't shipped. ``questions.sql`` has the questions, ``questions.toml`` the policy that a new owner wrote; ``--policy``
takes another one. The truth is what plain DuckDB says to the same text, without bounds that a question names.

An answer is *useful* if it isn't empty, the half width of the noise is below a third of the value in nine of ten of the
larger half of the groups, and it says the truth: its interval holds the truth in each group or, where bounding cuts, an
"at least" that does lies above two thirds of it. It is *false* where an interval that doesn't say that something was
cut misses the truth in more groups than it may (so many have a chance below 10⁻⁶ at the stated rate), or in any by five
half widths. Results go to
``benchmarks/results/questions.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from scipy import stats

from dither.curator import Curator
from dither.errors import DitherError, Refused

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "questions.json"
ALPHA = 1e-6
NUMBERS = itertools.count()
ENOUGH = 0.9
ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)
# rightly refused: they would show rows, one person, or what has no bound
RIGHTLY = {"extreme", "rows_shown", "unit_shown", "clock", "bounds_missing"}
NAMED = re.compile(r",\s*contribution_bounds_per_\w+\s*=>\s*\([^)]*\)")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one question; ``why`` says it for people."""

    sql: str
    verdict: str
    why: str = ""
    groups: int = 0
    wide: float = math.nan
    missed: int = 0
    notes: list[str] = field(default_factory=list)


def make_database(path: Path, adult: Path, ratings: Path) -> None:
    """The tables as an analyst meets them."""
    with duckdb.connect(str(path)) as db:
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in ADULT)
        texts = ", ".join(
            f"TRY_CAST(trim({c}) AS INTEGER) AS {c}"
            if c in {"age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"}
            else f"nullif(trim({c}), '?') AS {c}"
            for c in ADULT
        )
        db.execute(
            f"CREATE TABLE adult AS SELECT row_number() OVER ()::INTEGER AS person_id, {texts} FROM "
            f"read_csv(?, header = false, columns = {{{columns}}}) WHERE age IS NOT NULL",
            [str(adult)],
        )
        db.execute(
            "CREATE TABLE ratings AS SELECT userId::INTEGER AS userId, movieId::INTEGER AS movieId, rating, "
            "make_timestamp(timestamp * 1000000) AS rated_at FROM read_csv(?)",
            [str(ratings)],
        )
        db.execute(
            "CREATE TABLE movies AS SELECT DISTINCT movieId, 'genre ' || movieId % 12 AS genre FROM ratings ORDER BY 1"
        )


def truth_of(db: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """What plain DuckDB says, of all groups: without LIMIT and HAVING, which noise may decide otherwise."""
    plain = NAMED.sub("", sql)
    plain = re.sub(r"\s+(?:LIMIT \d+|HAVING [^)]*)$", "", plain.rstrip(";"))
    return db.execute(plain).fetchall()


def number(value: Any) -> float:
    return math.nan if value is None or isinstance(value, str) else float(value)


def judged(answer: Any, truth: Sequence[tuple[Any, ...]], sql: str) -> Outcome:
    """Whether an answer is of use."""
    outcome = Outcome(sql=sql, verdict="useful", groups=answer.table.num_rows, notes=list(answer.notes))
    if not answer.table.num_rows:
        outcome.verdict, outcome.why = "empty", "no group was shown"
        return outcome
    names = answer.table.column_names
    noisy = [name for name in names if name in answer.bars]
    keys = [i for i, name in enumerate(names) if name not in noisy]
    exact = {tuple(str(row[i]) for i in keys): row for row in truth}
    rows = [tuple(row[name] for name in names) for row in answer.table.to_pylist()]
    whole = getattr(answer, "whole", None) or {}
    for name in noisy:
        place, bars = names.index(name), answer.bars[name]
        if bars.low is None or bars.high is None:
            outcome.verdict, outcome.why = "no interval", f"{name}: {bars.text}"
            return outcome
        said = []
        for row, low, high in zip(rows, bars.low, bars.high, strict=True):
            found = exact.get(tuple(str(row[i]) for i in keys))
            said.append((number(row[place]), low, high, 0.0 if found is None else number(found[place])))
        large = sorted(said, key=lambda each: -abs(each[3]))[: max(1, math.ceil(len(said) / 2))]
        fine = [(high - low) / 2 < abs(value) / 3 for value, low, high, _ in large]
        outcome.wide = max(1 - sum(fine) / len(fine), 0.0 if math.isnan(outcome.wide) else outcome.wide)
        known = [each for each in said if not math.isnan(each[3])]
        slack = [1e-9 * max(1.0, abs(exactly)) for _, _, _, exactly in known]
        missed = sum(not low - s <= t <= high + s for (_, low, high, t), s in zip(known, slack, strict=True))
        allowed = int(stats.binom.isf(ALPHA, len(known), 1 - answer.confidence))
        # no law of noise that is used here misses by five half widths with a chance of 10⁻⁶
        if any(abs(v - t) > 2.5 * (high - low) + s for (v, low, high, t), s in zip(known, slack, strict=True)):
            allowed = 0
        outcome.missed = max(outcome.missed, missed)
        told = whole.get(name)
        if missed > allowed and told is None:
            outcome.verdict = "false"
            outcome.why = f"{name}: {missed} of {len(known)} intervals miss the truth"
        elif missed > allowed and told is not None:
            least = [number(each) for each in told.at_least]
            held = [a <= t + 1e-9 * abs(t) for a, (_, _, _, t) in zip(least, said, strict=True)]
            high_enough = [
                a >= 2 / 3 * t for a, t in sorted(zip(least, (s[3] for s in said), strict=True))[-len(large) :]
            ]
            if len(held) - sum(held) > int(stats.binom.isf(ALPHA, len(held), 0.05)):
                outcome.verdict, outcome.why = "false", f"{name}: at least isn't"
            elif sum(high_enough) < ENOUGH * len(high_enough) and outcome.verdict == "useful":
                outcome.verdict, outcome.why = "cut", f"{name}: at least is below two thirds of the truth"
        if sum(fine) < ENOUGH * len(fine) and outcome.verdict == "useful":
            outcome.verdict, outcome.why = "noise", f"{name}: too wide in {len(fine) - sum(fine)} of {len(fine)} groups"
    return outcome


def asked(folder: Path, sql: str, truth: Sequence[tuple[Any, ...]], epsilon: float) -> Outcome:
    """One question to a curator with a budget of its own."""
    # a ledger that is gone is noticed, so each has a name of its own
    text = (folder / "policy.toml").read_text(encoding="utf-8")
    source = f'[source]\nledger = "{next(NUMBERS)}.ledger"'
    (folder / "dither.toml").write_text(text.replace("[source]", source, 1), encoding="utf-8")
    with Curator.open(folder / "dither.toml") as curator:
        try:
            return judged(curator.sql(sql, epsilon=epsilon, analyst="ana"), truth, sql)
        except Refused as problem:
            right = problem.code in RIGHTLY
            return Outcome(sql=sql, verdict="rightly refused" if right else "refused", why=f"{problem.code}: {problem}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adult", type=Path, required=True, help="UCI's adult.data")
    parser.add_argument("--ratings", type=Path, required=True, help="MovieLens' ratings.csv")
    parser.add_argument("--policy", type=Path, default=HERE / "questions.toml")
    parser.add_argument("--epsilon", type=float, default=0.3)
    parser.add_argument("--runs", type=int, default=1, help="how often each question is asked anew")
    parser.add_argument("--only", type=int, action="append", help="a question by its number, from 1")
    options = parser.parse_args(arguments)
    questions = [line.rstrip(";") for line in (HERE / "questions.sql").read_text(encoding="utf-8").splitlines()]
    questions = [line for line in questions if line and not line.startswith("--")]
    outcomes: dict[int, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_database(folder / "site.duckdb", options.adult, options.ratings)
        shutil.copy(options.policy, folder / "policy.toml")
        for place, sql in enumerate(questions, 1):
            if options.only and place not in options.only:
                continue
            with duckdb.connect(str(folder / "site.duckdb"), read_only=True) as db:
                try:
                    truth = truth_of(db, sql)
                except duckdb.Error:
                    truth = []
            try:
                outcomes[place] = [asked(folder, sql, truth, options.epsilon) for _ in range(options.runs)]
            except DitherError as problem:
                outcomes[place] = [Outcome(sql=sql, verdict="failed", why=str(problem))]
            worst = outcomes[place][0]
            print(f"{place:>3} {worst.verdict:<16} {sql[:70]:<70} {worst.why[:110]}", flush=True)
    counts = Counter(each.verdict for found in outcomes.values() for each in found[:1])
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(_forms(outcomes), indent=1, ensure_ascii=False), encoding="utf-8")
    return int(counts["false"] > 0 or counts["failed"] > 0)


def _forms(outcomes: Mapping[int, Sequence[Outcome]]) -> dict[str, Any]:
    return {str(place): [asdict(each) for each in found] for place, found in outcomes.items()}


if __name__ == "__main__":
    sys.exit(main())
