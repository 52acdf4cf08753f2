"""What privacy costs on SQL: the engine beside the same aggregation in raw DuckDB, and everything around the engine.

Run with ``python benchmarks/sql.py``; ``--part`` chooses one of the parts below. A question and what it is compared
with take turns in one process on one buffer pool, so that a busy machine slows both; ratios are medians of the repeats'
ratios, of wall time and of the process's CPU time. Every repeat is a new question with a charge of its own, in a ledger
on disk. Results go to ``benchmarks/results/sql.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from dither.curator import Curator
from dither.curator.answers.release import Released, release
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.past.records import open_ledger
from dither.engines import DuckDBEngine
from dither.ledger import Account, Ledger
from dither.privacy import ZcdpLoss
from dither.query.measure.measures import Measured
from sql_accuracy import accuracy
from sql_data import make
from sql_questions import QUESTIONS, Level, Question, policy

RESULTS = Path(__file__).parent / "results" / "sql.json"
EPSILON = Fraction(1, 2)
DIRECTORY = Path(tempfile.gettempdir()) / "dither-benchmarks"
MIB = 2**20
LARGE_LIMIT = "4GiB"
Table = list[tuple[str, ...]]


@dataclass(slots=True)
class Clock:
    """Wall and CPU seconds by name, of one question."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
            self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall


class Timed:
    """An engine or ledger of which some calls are measured; everything else is passed on."""

    def __init__(self, inner: Any, clock: Clock, calls: Sequence[str]) -> None:
        self._inner, self._clock, self._calls = inner, clock, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._calls:
            return found

        def measured(*args: Any, **options: Any) -> Any:
            with self._clock.measuring(name):
                return found(*args, **options)

        return measured


@dataclass(slots=True)
class Shop:
    """The benchmark's data under a policy, with a measured engine and ledger, and a raw connection to the same data."""

    database: Path
    ledger_path: Path
    level: Level
    engine: Any
    ledger: Any
    raw: duckdb.DuckDBPyConnection
    clock: Clock
    asked: int = 0

    def curator(self) -> Curator:
        """A curator to whom every question is new: it takes the data for a version that was never seen before."""
        self.asked += 1
        return Curator(policy(self.database, self.ledger_path, self.level, self.asked), self.engine, self.ledger)

    def ask(self, question: Question, epsilon: Fraction = EPSILON) -> None:
        curator = self.curator()
        with self.clock.measuring("all"):
            curator.sql(question.sql, epsilon=epsilon)

    def compute(self, sql: str) -> None:
        with self.clock.measuring("raw"):
            self.raw.sql(sql).to_arrow_table()

    def turn(self) -> Clock:
        """What was measured since the last turn."""
        done = Clock(self.clock.wall.copy(), self.clock.cpu.copy())
        self.clock.wall.clear()
        self.clock.cpu.clear()
        return done


@contextmanager
def opened(database: Path, level: Level, memory_limit: str | None = None) -> Iterator[Shop]:
    with tempfile.TemporaryDirectory(dir=database.parent) as directory:
        path = Path(directory) / "ledger"
        rules = policy(database, path, level)
        clock = Clock()
        with (
            DuckDBEngine.open(rules.source.location, rules.schema, memory_limit=memory_limit) as engine,
            open_ledger(rules) as book,
            # the same database, so that raw queries find the same pages in memory
            engine._opened.connection.cursor() as raw,  # noqa: SLF001
        ):
            measured = Timed(engine, clock, ("run",)), Timed(book, clock, ("reserve", "record"))
            yield Shop(database, path, level, *measured, raw, clock)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio(turns: Sequence[Clock], kind: str) -> float:
    return median([getattr(turn, kind)["run"] / getattr(turn, kind)["raw"] for turn in turns])


def outside(turn: Clock, kind: str) -> float:
    """All of a question besides the engine and the two durable commits."""
    spent: Mapping[str, float] = getattr(turn, kind)
    return spent["all"] - spent["run"] - spent["reserve"] - spent["record"]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def interleaved(shop: Shop, level: Level, repeats: int, questions: Sequence[Question]) -> Iterator[list[Clock]]:
    for question in questions:
        turns = []
        for repeat in range(repeats + 1):
            shop.compute(question.beside(level))
            shop.ask(question)
            turn = shop.turn()
            if repeat:  # the first one warms up
                turns.append(turn)
        yield turns


def questions(database: Path, repeats: int) -> Table:
    """Engine time beside the raw query, and the time around the engine."""
    table: Table = [
        ("question", "unit", "raw", "engine", "ratio (wall)", "ratio (CPU)", "besides", "of it CPU", "two commits")
    ]
    for level in Level:
        with opened(database, level) as shop:
            for question, turns in zip(QUESTIONS, interleaved(shop, level, repeats, QUESTIONS), strict=True):
                table.append(
                    (
                        question.name,
                        level.value,
                        milliseconds(median([turn.wall["raw"] for turn in turns])),
                        milliseconds(median([turn.wall["run"] for turn in turns])),
                        f"{ratio(turns, 'wall'):.2f} ×",
                        f"{ratio(turns, 'cpu'):.2f} ×",
                        milliseconds(median([outside(turn, "wall") for turn in turns])),
                        milliseconds(median([outside(turn, "cpu") for turn in turns])),
                        milliseconds(median([turn.wall["reserve"] + turn.wall["record"] for turn in turns])),
                    )
                )
                print("…", *table[-1], file=sys.stderr)
    return table


def around(database: Path, repeats: int) -> Table:
    """The time around the engine, over all questions: with an ε that was used before, and with one that never was."""
    del database
    small = make(DIRECTORY, rows=100_000)
    table: Table = [("around the engine, of all questions", "p50", "p90", "p50 (CPU)", "two commits, p50")]
    for name, new in (("an ε that was used before", 0), ("an ε that was never used before", 1)):
        turns = []
        for level in Level:
            with opened(small, level) as shop:
                for question in QUESTIONS * (4 * repeats):
                    shop.ask(question, EPSILON + new * Fraction(shop.asked, 10**9))
                    turns.append(shop.turn())
        wall, cpu = ([outside(turn, kind) for turn in turns] for kind in ("wall", "cpu"))
        commits = median([turn.wall["reserve"] + turn.wall["record"] for turn in turns])
        shown = median(wall), statistics.quantiles(wall, n=10)[-1], median(cpu), commits
        table.append((name, *map(milliseconds, shown)))
    return table


def groups(database: Path, repeats: int) -> Table:
    """A million discovered groups: selection of keys and noise, and the way of the answer to and from its bytes."""
    size = 1_000_000
    with opened(database, Level.USER) as shop:
        priced = shop.curator().price(QUESTIONS[2].sql, epsilon=EPSILON).priced
    counts = np.random.default_rng(1).integers(1, 2000, size)
    measured = Measured(
        keys=pa.table({"k0": [f"product {i:07}" for i in range(size)]}),
        size=size,
        totals=(counts,) * len(priced.measurement.totals),
    )
    steps: dict[str, Callable[[], object]] = {}
    released = release(priced, measured)
    stored = released.to_bytes()
    steps["selection and noise"] = lambda: release(priced, measured)
    steps["to bytes"] = released.to_bytes
    steps["from bytes, with intervals"] = lambda: Released.from_bytes(stored).estimates()
    table: Table = [(f"{size:,} discovered groups", "time", "CPU")]
    for name, work in steps.items():
        clocks = []
        for _ in range(repeats):
            clock = Clock()
            with clock.measuring("all"):
                work()
            clocks.append(clock)
        wall, cpu = (median([getattr(clock, kind)["all"] for clock in clocks]) for kind in ("wall", "cpu"))
        table.append((name, milliseconds(wall), milliseconds(cpu)))
    return [*table, (f"{released.size:,} groups are shown", "", "")]


def peak_of(arguments: Sequence[str]) -> int:
    """The peak memory, in bytes, of this script run with such arguments."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True, env={**os.environ}
    )
    return int(done.stdout.split()[-1])


def one(database: Path, name: str, level: Level, *, raw: bool, memory_limit: str | None) -> None:
    """Run one question, or what it is compared with, and print the peak memory of the process."""
    question = next(q for q in QUESTIONS if q.name.startswith(name))
    with opened(database, level, memory_limit) as shop:
        if raw:
            shop.compute(question.beside(level))
        else:
            shop.ask(question)
    print(peak_memory())


def peak_memory() -> int:
    """The most memory, in bytes, that this process has had; Linux's ru_maxrss would count that of its parent too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def memory(database: Path, repeats: int) -> Table:
    """Peak memory of a process that asks a question, and of one that runs the raw query."""
    del repeats
    table: Table = [("question", "unit", "raw DuckDB", "dither", "more")]
    for level in Level:
        for question in QUESTIONS:
            arguments = ["--one", question.name[:2], level.value, str(database)]
            raw, ours = peak_of([*arguments, "raw"]), peak_of([*arguments, "private"])
            sizes = (f"{size / MIB:,.0f} MiB" for size in (raw, ours, ours - raw))
            table.append((question.name, level.value, *sizes))
            print("…", *table[-1], file=sys.stderr)
    return table


def ledger(database: Path, repeats: int) -> Table:
    """Durable commits a second: a reservation and a record are one each; threads share flushes."""
    table: Table = [("ledger on disk", "commits a second", "a commit")]
    for threads in (1, 8):
        rates = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(dir=database.parent) as directory:
                rules = policy(database, Path(directory) / "ledger", Level.USER)
                exchange = Exchange(rules.budget.delta_budget)
                with open_ledger(rules) as book:
                    book.set_limits({Account(("shop",)): exchange.limit(rules.budget.epsilon_budget)})
                    rates.append(commits_per_second(book, threads, pairs=400 // threads))
        rate = median(rates)
        table.append((f"{threads} thread{'s' * (threads > 1)}", f"{rate:,.0f}", milliseconds(threads / rate)))
    return table


def commits_per_second(book: Ledger, threads: int, pairs: int) -> float:
    def work() -> None:
        for _ in range(pairs):
            held = book.reserve(
                key=secrets.token_hex(32),
                account=Account(("shop", "owner")),
                loss=ZcdpLoss(Fraction(1, 10**9), book.adjacency),
                note={"sql": QUESTIONS[1].sql},
            )
            book.record(held, b"an answer of a few bytes" * 100)

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
    return 2 * pairs * threads / (time.perf_counter() - start)


def large(database: Path, repeats: int) -> Table:
    """Ten times the rows with at most 4 GiB, Q1 to Q3 at row level: linear if ten times the time."""
    rows = 100_000_000
    # a new file of about a gigabyte is made and removed again
    with tempfile.TemporaryDirectory(dir=database.parent) as directory:
        big = make(directory, rows=rows, users=500_000)
        table: Table = [(f"{rows:,} rows, memory_limit 4 GiB", "10 M rows", "100 M rows", "ratio", "ratio (CPU)")]
        found = {}
        for path in (database, big):
            with opened(path, Level.ROW, memory_limit=LARGE_LIMIT) as shop:
                found[path] = list(interleaved(shop, Level.ROW, min(3, repeats), QUESTIONS[:3]))
        for question, small, more in zip(QUESTIONS, found[database], found[big], strict=False):
            wall = [median([turn.wall["run"] for turn in turns]) for turns in (small, more)]
            cpu = [median([turn.cpu["run"] for turn in turns]) for turns in (small, more)]
            ratios = f"{wall[1] / wall[0]:.1f} ×", f"{cpu[1] / cpu[0]:.1f} ×"
            table.append((question.name, *map(milliseconds, wall), *ratios))
        for question in QUESTIONS[:3]:
            limited = ["--memory-limit", LARGE_LIMIT, "--one", question.name[:2], "row", str(big), "private"]
            peak = f"{peak_of(limited) / MIB:,.0f} MiB"
            table.append((f"peak memory of a process that asks {question.name[:2]}", "", peak, "", ""))
    return table


PARTS: dict[str, Callable[[Path, int], Table]] = {
    "questions": questions,
    "around": around,
    "groups": groups,
    "memory": memory,
    "ledger": ledger,
    "large": large,
    "accuracy": accuracy,
}
# of the last ones one needs gigabytes of disk and minutes, the other `make peers`: they are run when asked for
DEFAULT = ("questions", "around", "groups", "memory", "ledger")


def show(table: Table) -> None:
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for place, line in enumerate(table):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
        if place == 0:
            print("| " + " | ".join("-" * width for width in widths) + " |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--memory-limit", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        name, level, path, what = chosen.one
        one(Path(path), name, Level(level), raw=what == "raw", memory_limit=chosen.memory_limit)
        return
    database = make(chosen.directory, rows=chosen.rows)
    found = {}
    for part in chosen.part or DEFAULT:
        print(f"… {part}", file=sys.stderr)
        found[part] = PARTS[part](database, chosen.repeats)
        show(found[part])
    document = {
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "rows": chosen.rows,
        "repeats": chosen.repeats,
        "tables": found,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
