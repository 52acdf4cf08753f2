"""How often intervals hold the exact answer: every aggregate and form of expression, on groups of any size and shape.

Run with ``python benchmarks/coverage.py [--runs 20000] [--quick] [--part units|hidden]``. The exact cells of a question
come from the engine once, noise is drawn ``runs`` times by the mechanisms of its price, and the bars are those that
answers have; the exact answer is what plain DuckDB says. A rate is found too low if so few hits, or fewer, have a
chance below 10⁻⁶ at the stated confidence. Rows that are chosen (ORDER BY … LIMIT, HAVING, a column that noise makes
NULL in the others) and statistical queries have their own tables, and a sample of questions is asked end to end.
Results go to ``benchmarks/results/coverage.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from coverage_data import FORMS, GROUPS, SHAPES, UNIT_FORMS, World, rows_of, world
from dither.curator.answers.post_processing import alone, level_of_chosen, shape
from dither.curator.answers.release import Released

RESULTS = Path(__file__).parent / "results" / "coverage.json"
ALPHA = 1e-6
LEVELS = (Fraction(19, 20), Fraction(99, 100))
SIZES = (3, 10, 30, 100, 300, 1_000, 10_000)
EPSILONS = ("0.1", "0.3", "1", "3")
LAWS = {"Laplace": "0", "Gaussian": "1e-6"}
# units in each group of the table that has a unit column
UNIT_SIZE = 40
# beside what DuckDB says in doubles
ROUNDING = 1e-9


# ---------------------------------------------------------------------------------------------- rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often a form's interval held the exact answer; ``width`` is the median of its half widths, NaN for none."""

    form: str
    data: str
    size: int
    epsilon: str
    law: str
    stated: float
    runs: int
    covered: int
    width: float

    @property
    def rate(self) -> float:
        return self.covered / self.runs

    @property
    def low(self) -> bool:
        """Whether so few are too few."""
        return too_few(self.covered, self.runs, self.stated)


def too_few(covered: int, runs: int, stated: float, alpha: float = ALPHA) -> bool:
    """Whether a rate that is at least the stated one would be seen as low as this less often than ``alpha``."""
    return bool(stats.binom.cdf(covered, runs, stated) < alpha)


def exact_cells(place: World, priced: Any) -> list[np.ndarray]:
    """The engine's cells, in the order of the noise, one array with a number for each group."""
    measured = place.engine.run(priced.measurement, salt=bytes(16))
    return [priced.measurement.numbers(cell.exact, measured) for cell in priced.lowered.cells]


def repeated(place: World, quote: Any, runs: int) -> Released:
    """The same question answered so many times, each a row of one answer."""
    priced = quote.priced
    cells = [
        noise.release(np.full(runs, int(exact[0]), dtype=np.int64))
        for noise, exact in zip(priced.noise, exact_cells(place, priced), strict=True)
    ]
    return Released(
        keys=pa.table({}),
        size=runs,
        cells=tuple(cells),
        noise=priced.noise,
        choices=(),
        recipes=priced.lowered.recipes,
    )


def covering(low: Any, high: Any, truth: Any) -> int:
    """How many intervals hold the truth; one without ends says nothing, and nothing false."""
    room = ROUNDING * np.maximum(1.0, np.abs(truth))
    return int(np.sum(~np.greater(low, truth + room) & ~np.less(high, truth - room)))


def rates(
    place: World, forms: Sequence[str], epsilon: str, runs: int, *, mutant: float = 1.0, **names: Any
) -> Iterator[Rate]:
    """The rate of each form at both levels; a ``mutant`` has bars of so much of their width."""
    for form in forms:
        truth = place.truth(FORMS[form])
        if truth is None:
            continue
        quote = place.curator.price(f"SELECT {FORMS[form]} AS v FROM t", epsilon=epsilon)
        released = repeated(place, quote, runs)
        for level in LEVELS:
            # each run is an answer by itself: a row that is NULL hides among no others
            table, bars = alone(released, quote.shape, quote.priced.errors(level), level)
            low, high = bars["v"].low, bars["v"].high
            assert low is not None
            assert high is not None
            if mutant != 1.0:
                value = table.column("v").to_numpy().astype(np.float64)
                low, high = value - mutant * (value - low), value + mutant * (high - value)
            half = (high - low) / 2
            yield Rate(
                form=form,
                epsilon=epsilon,
                stated=float(level),
                runs=runs,
                covered=covering(low, high, truth),
                width=float(np.nanmedian(half)) if np.isfinite(half).any() else math.nan,
                **names,
            )


def grid(
    runs: int, *, forms: Sequence[str], sizes: Sequence[int], epsilons: Sequence[str], mutant: float = 1.0
) -> Iterator[Rate]:
    """All combinations, one table at a time."""
    with tempfile.TemporaryDirectory() as place:
        for kind in SHAPES:
            for size in sizes:
                for law, delta in LAWS.items():
                    here = world(Path(place) / f"{size}-{law}-{kind}".replace("%", ""), rows_of(kind, size), delta)
                    for epsilon in epsilons:
                        yield from rates(here, forms, epsilon, runs, mutant=mutant, data=kind, size=size, law=law)
                    here.close()


def by_units(
    runs: int, *, forms: Sequence[str] = tuple(UNIT_FORMS), epsilons: Sequence[str] = EPSILONS, mutant: float = 1.0
) -> Iterator[Rate]:
    """Each form on a table with a unit column, by group: so many runs of fifty groups, with the share over all rows.

    Groups are independent of each other, so their rows are as many answers: ``runs`` is rounded to whole ones.
    """
    times = max(1, runs // GROUPS)
    with tempfile.TemporaryDirectory() as place:
        for law, delta in LAWS.items():
            here = world(Path(place) / law, rows_of("constant", 3), delta)
            for form, epsilon in ((form, epsilon) for form in forms for epsilon in epsilons):
                sql = f"SELECT k, {UNIT_FORMS[form]} AS v FROM units GROUP BY k"
                truth = np.array(here.plain.execute(f"{sql} ORDER BY k").fetchnumpy()["v"], dtype=np.float64)
                quote = here.curator.price(sql, epsilon=epsilon)
                exact = exact_cells(here, quote.priced)
                drawn = [
                    [
                        noise.release(cell.astype(np.int64))
                        for noise, cell in zip(quote.priced.noise, exact, strict=True)
                    ]
                    for _ in range(times)
                ]
                for level in LEVELS:
                    covered, halves = 0, []
                    for cells in drawn:
                        table, bars = answered(quote, cells, level)
                        value, low, high = (
                            np.asarray(one, dtype=np.float64)
                            for one in (table.column("v").to_numpy(), bars["v"].low, bars["v"].high)
                        )
                        low, high = value - mutant * (value - low), value + mutant * (high - value)
                        covered += covering(low, high, truth)
                        halves += ((high - low) / 2).tolist()
                    yield Rate(
                        form=f"{form}, by group",
                        data="log-normal",
                        size=UNIT_SIZE,
                        epsilon=epsilon,
                        law=law,
                        stated=float(level),
                        runs=times * GROUPS,
                        covered=covered,
                        width=float(np.median(halves)),
                    )
            here.close()


# ---------------------------------------------------------------------------------------------- chosen rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Rows of fifty groups, chosen by their noise: the share of runs or rows that hold."""

    question: str
    data: str
    law: str
    stated: float
    runs: int
    shown: float
    share: float
    first: float
    width: float

    @property
    def low(self) -> bool:
        """Whether the mean share of rows that hold, or that of the row on top, is too low."""
        return any(too_few(math.floor(one * self.runs), self.runs, self.stated) for one in (self.share, self.first))


TRUTHS = {
    "alike": np.full(GROUPS, 400),
    "spread": 380 + np.arange(GROUPS),
    "falling": (2_000 / (1 + np.arange(GROUPS))).astype(int),
}


def choose(
    values: np.ndarray, noise: Any, level: Fraction, *, limit: int | None, above: int | None, adjusted: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each run the groups from the largest down, which of them are shown, and the half width of their intervals.

    As ORDER BY n DESC LIMIT and HAVING n > … choose, for all runs at once; a test compares it with answers.
    """
    order = np.argsort(-values, axis=1, kind="stable")
    passing = np.ones(values.shape, dtype=bool) if above is None else np.take_along_axis(values > above, order, axis=1)
    if limit is not None:
        passing &= np.cumsum(passing, axis=1) <= limit
    shown = passing.sum(axis=1)
    halves = np.empty(len(values))
    for number in np.unique(shown):
        cut = limit is not None
        wanted = level_of_chosen(level, shown=int(number), candidates=values.shape[1], cut=cut) if adjusted else level
        halves[shown == number] = noise.error(wanted)
    return order, passing, halves


def chosen_rows(
    truth: np.ndarray, noise: Any, level: Fraction, runs: int, **asked: Any
) -> tuple[float, float, float, float]:
    """(rows shown, mean share that holds, share of runs whose first row holds, median half width)."""
    values = noise.release(np.tile(truth, (runs, 1)).astype(np.int64))
    order, passing, halves = choose(values, noise, level, **asked)
    holds = np.take_along_axis(np.abs(values - truth), order, axis=1) <= halves[:, np.newaxis]
    shown = passing.sum(axis=1)
    # of no rows none misses
    share = np.where(shown > 0, (holds & passing).sum(axis=1) / np.maximum(shown, 1), 1.0)
    first = np.where(shown > 0, np.take_along_axis(holds, passing.argmax(axis=1)[:, np.newaxis], axis=1)[:, 0], 1.0)
    return float(shown.mean()), float(share.mean()), float(first.mean()), float(np.median(halves))


QUESTIONS: dict[str, dict[str, int | None]] = {
    "LIMIT 1": {"limit": 1, "above": None},
    "LIMIT 10": {"limit": 10, "above": None},
    "HAVING n > 400": {"limit": None, "above": 400},
    "HAVING n > 410": {"limit": None, "above": 410},
    "HAVING n > 410, LIMIT 5": {"limit": 5, "above": 410},
}


def choices(
    runs: int,
    *,
    adjusted: bool = True,
    questions: Sequence[str] = tuple(QUESTIONS),
    data: Sequence[str] = tuple(TRUTHS),
) -> Iterator[Choice]:
    """Every question on every kind of data; the first row of a HAVING without LIMIT is told, and not promised."""
    with tempfile.TemporaryDirectory() as place:
        for law, delta in LAWS.items():
            here = world(Path(place) / law, rows_of("constant", 100), delta)
            quote = here.curator.price("SELECT k, COUNT(*) AS n FROM t GROUP BY k", epsilon="0.1")
            (noise,) = quote.priced.noise
            for groups in data:
                for name in questions:
                    asked = QUESTIONS[name]
                    for level in LEVELS:
                        shown, share, first, half = chosen_rows(
                            TRUTHS[groups], noise, level, runs, adjusted=adjusted, **asked
                        )
                        promised = first if asked["limit"] is not None else 1.0
                        yield Choice(
                            question=name,
                            data=groups,
                            law=law,
                            stated=float(level),
                            runs=runs,
                            shown=shown,
                            share=share,
                            first=promised,
                            width=half,
                        )
            here.close()


# What hides a row by being NULL, the same where it doesn't, and a filter: the first is measured by the second.
HIDING = {
    "CASE without ELSE": ("CASE WHEN COUNT(*) > 430 THEN COUNT(*) END", "COUNT(*)", ""),
    "CASE … ELSE NULL, HAVING": ("CASE WHEN COUNT(*) > 430 THEN COUNT(*) ELSE NULL END", "COUNT(*)", "HAVING k < 40"),
    "NULLIF of GREATEST": ("NULLIF(GREATEST(COUNT(*), 430), 430)", "GREATEST(COUNT(*), 430)", ""),
    "CASE of a share": (
        "CASE WHEN COUNT_IF(g = 0) > 430 THEN 1.0 * COUNT_IF(g = 0) / COUNT(*) END",
        "1.0 * COUNT_IF(g = 0) / COUNT(*)",
        "",
    ),
}


def answered(quote: Any, cells: Sequence[np.ndarray], level: Fraction, way: Any = shape) -> tuple[Any, Any]:
    """The table and the bars of an answer about fifty groups with these cells."""
    found = Released(
        keys=pa.table({"k0": np.arange(GROUPS)}),
        size=GROUPS,
        cells=tuple(cells),
        noise=quote.priced.noise,
        choices=(),
        recipes=quote.priced.lowered.recipes,
    )
    table, bars = way(found, quote.shape, quote.priced.errors(level), level)
    return table, bars


def hidden(
    runs: int,
    *,
    way: Any = shape,
    forms: Sequence[str] = tuple(HIDING),
    data: Sequence[str] = tuple(TRUTHS),
    laws: Sequence[str] = tuple(LAWS),
) -> Iterator[Choice]:
    """Values that are shown because their noise didn't make them NULL: the mean share of those that hold."""
    with tempfile.TemporaryDirectory() as place:
        for law in laws:
            here = world(Path(place) / law, rows_of("constant", 100), LAWS[law])
            for name in forms:
                hides, plain, ending = HIDING[name]
                sql = f"SELECT k, {hides} AS v, {plain} AS w FROM t GROUP BY k {ending}"
                quote = here.curator.price(sql, epsilon="0.1")
                for groups in data:
                    exact = [TRUTHS[groups] * (1 + 2 * cell) for cell in range(len(quote.priced.noise))]
                    truth = answered(quote, exact, LEVELS[0])[0].column("w").to_numpy().astype(np.float64)
                    for level in LEVELS:
                        shares, shown, halves = [], [], []
                        for _ in range(runs):
                            noise = zip(quote.priced.noise, exact, strict=True)
                            cells = [each.release(cell.astype(np.int64)) for each, cell in noise]
                            table, bars = answered(quote, cells, level, way)
                            there = ~table.column("v").is_null().to_numpy()
                            ends = bars["v"].low[there], bars["v"].high[there]
                            shown.append(int(there.sum()))
                            hits = covering(*ends, truth[there])
                            # of no values none misses
                            shares.append(hits / shown[-1] if shown[-1] else 1.0)
                            halves += ((ends[1] - ends[0]) / 2).tolist()
                        yield Choice(
                            question=name,
                            data=groups,
                            law=law,
                            stated=float(level),
                            runs=runs,
                            shown=float(np.mean(shown)),
                            share=float(np.mean(shares)),
                            first=1.0,
                            width=float(np.nanmedian(halves)) if np.isfinite(halves).any() else math.nan,
                        )
            here.close()


# ---------------------------------------------------------------------------------------------- end to end


SAMPLE = ("AVG", "VAR_SAMP", "ROUND of AVG", "AVG − AVG", "GREATEST of four", "a share")


def end_to_end(runs: int, forms: Sequence[str] = SAMPLE) -> Iterator[Rate]:
    """Charged questions through the whole path; each has another constant in WHERE, so that each is a new question."""
    with tempfile.TemporaryDirectory() as place:
        for law, delta in LAWS.items():
            here = world(Path(place) / law, rows_of("log-normal", 100), delta)
            for place_of, form in enumerate(forms):
                truth = here.truth(FORMS[form])
                assert truth is not None
                covered, halves = 0, []
                for run in range(runs):
                    # ROUND(AVG(x)) would be the question AVG(x) again, paid for and free
                    sql = f"SELECT {FORMS[form]} AS v FROM t WHERE x > {-1 - run - place_of * runs}"
                    answer = here.curator.sql(sql, epsilon="1")
                    low, high = answer.interval("v")
                    covered += covering(low, high, truth)
                    halves.append(float(answer.error["v"][0]))
                yield Rate(
                    form=form,
                    data="log-normal",
                    size=100,
                    epsilon="1",
                    law=law,
                    stated=0.95,
                    runs=runs,
                    covered=covered,
                    width=float(np.nanmedian(halves)),
                )
            here.close()


def statistical(runs: int, *, tolerance: str = "0.02") -> tuple[int, int]:
    """How many statistical queries are within their tolerance, and hold an exact 0.1 in their interval."""
    within = inside = 0
    with tempfile.TemporaryDirectory() as place:
        for run in range(runs):
            here = world(Path(place) / str(run), rows_of("constant", 10), "1e-6", version=str(run))
            found = here.curator.statistical_query("visits", "x = 1", tolerance=tolerance)
            within += abs(found.value - 0.1) <= found.tolerance
            inside += found.low <= 0.1 <= found.high
            here.close()
    return within, inside


# ---------------------------------------------------------------------------------------------- printed


def summary(found: Sequence[Rate]) -> list[str]:
    """One line for each form: its lowest rate at both levels with the place of it, and how many are too low."""
    lines = [
        "| form | cells | lowest at 95% | lowest at 99% | where | too low |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for form in dict.fromkeys(rate.form for rate in found):
        own = [rate for rate in found if rate.form == form]
        least = [min((r for r in own if r.stated == float(level)), key=lambda r: r.rate) for level in LEVELS]
        where = f"{least[0].data}, {least[0].size:,}, ε = {least[0].epsilon}, {least[0].law}"
        rates_of = " | ".join(f"{100 * one.rate:.2f}%" for one in least)
        lines.append(f"| {form} | {len(own)} | {rates_of} | {where} | {sum(r.low for r in own)} |")
    return lines


def by_size(found: Sequence[Rate]) -> list[str]:
    """The lowest rate at 95% by form and size of the group."""
    sizes = sorted({rate.size for rate in found})
    lines = ["| form | " + " | ".join(f"{size:,}" for size in sizes) + " |", "| --- " * (len(sizes) + 1) + "|"]
    for form in dict.fromkeys(rate.form for rate in found):
        cells = []
        for size in sizes:
            own = [r.rate for r in found if (r.form, r.size, r.stated) == (form, size, float(LEVELS[0]))]
            cells.append(f"{100 * min(own):.1f}%" if own else "")
        lines.append(f"| {form} | " + " | ".join(cells) + " |")
    return lines


def choice_lines(found: Sequence[Choice]) -> list[str]:
    lines = ["| question | groups | law | stated | rows | rows that hold | first row | ± |", "| --- " * 8 + "|"]
    for c in found:
        first = f"{100 * c.first:.2f}%" if "LIMIT" in c.question else ""
        lines.append(
            f"| {c.question} | {c.data} | {c.law} | {100 * c.stated:g}% | {c.shown:.1f} | {100 * c.share:.2f}% | "
            f"{first} | {c.width:.0f} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="noisy answers for each rate")
    parser.add_argument("--asked", type=int, default=400, help="questions end to end for each form and law")
    parser.add_argument("--quick", action="store_true", help="three sizes, two ε, and no questions end to end")
    parser.add_argument("--part", choices=("all", "units", "hidden"), default="all", help="only some of the forms")
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    sizes, epsilons = (SIZES, EPSILONS) if not given.quick else (SIZES[::3], EPSILONS[::3])
    if given.part == "hidden":
        kept = list(hidden(max(100, given.runs // 50)))
        print("\n".join(choice_lines(kept)))
        return any(one.low for one in kept)
    if given.part == "units":
        only = list(by_units(given.runs, epsilons=epsilons))
        print("\n".join(summary(only)))
        return any(one.low for one in only)
    found = list(grid(given.runs, forms=tuple(FORMS), sizes=sizes, epsilons=epsilons))
    found += by_units(given.runs, epsilons=epsilons)
    picked = [*choices(given.runs), *hidden(max(100, given.runs // 50))]
    asked = [] if given.quick else list(end_to_end(given.asked))
    print("\n".join([*summary(found), "", *by_size(found), "", *choice_lines(picked)]))
    if asked:
        print("\n".join(["", "end to end:", *summary_of_asked(asked)]))
        number = max(20, given.asked // 10)
        within, inside = statistical(number)
        print(f"\nstatistical queries: {within} of {number} within the tolerance, {inside} hold the exact share")
    bad = [*(one for one in found if one.low), *(one for one in picked if one.low), *(one for one in asked if one.low)]
    print(
        f"\n{len(found):,} rates of {given.runs:,} runs each; {len(bad)} too low; {time.perf_counter() - started:.0f} s"
    )
    for one in bad:
        print(f"too low: {one}")
    RESULTS.parent.mkdir(exist_ok=True)
    form = {
        "rates": [asdict(r) for r in found],
        "chosen": [asdict(c) for c in picked],
        "asked": [asdict(r) for r in asked],
    }
    RESULTS.write_text(json.dumps(form, indent=1))
    return bool(bad)


def summary_of_asked(found: Sequence[Rate]) -> list[str]:
    lines = ["| form | law | questions | rate | ± |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.form} | {r.law} | {r.runs:,} | {100 * r.rate:.1f}% | {r.width:.3g} |" for r in found]
    return lines


if __name__ == "__main__":
    sys.exit(main())
