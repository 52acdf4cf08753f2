"""How fast Mondrian is and how much detail it keeps, beside other implementations, in one run.

Run with ``python benchmarks/anonymize.py [--repeats 3]``. Data: Adult (30,162 rows) from ``../shared/data/adult-arx``,
or wherever the environment variable ``ADULT_CSV`` says. The million is made from it: rows drawn with replacement, and
each value then replaced, with probability 1/10, by that of another row; so marginals stay, combinations become rarer
than by mere copying, and about a tenth of the rows have one that nobody else has. *Copied* is the same without
replacing anything. *All different* are two columns of random numbers and one of eight letters.

Peers: anonypy, where it is installed, on a part of Adult (it needs minutes for all of it); and ``one_at_a_time``, a
plain version of ours that cuts one part after the other, as in the paper, each with numpy. NCP is by the same measure
for all. Peak memory is that of the resident set beyond what the process had before, in a process of its own, over the
size of the Arrow table. Results go to ``benchmarks/results/anonymize.json``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import DistinctDiversity, TCloseness
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.releases.quality import Quality
from dither.anonymize.releases.quasi_identifier_axis import Axis
from dither.anonymize.releases.release import Release
from dither.anonymize.table.classes import Classes
from measure import Row, Section, interleaved, run

RESULTS = Path(__file__).parent / "results" / "anonymize.json"
ADULT = Path(os.environ.get("ADULT_CSV", Path(__file__).parents[2] / "shared" / "data" / "adult-arx" / "adult.csv"))
TARGET = "salary-class"
MILLION = 1_000_000
# The reference implementation's NCP in percent for each k, as recorded when the project was planned; it took between
# 109 and 196 s for a million rows. Neither was measured in this run, and which million rows they were isn't recorded.
REFERENCE = {2: 4.3, 10: 4.5, 50: 6.3}


@cache
def adult() -> pa.Table:
    return arrow_csv.read_csv(ADULT, parse_options=arrow_csv.ParseOptions(delimiter=";")).combine_chunks()


@cache
def perturbed(rows: int, share: float = 0.1, seed: int = 7) -> pa.Table:
    """Adult with more rows: see above."""
    source, rng = adult(), np.random.default_rng(seed)
    drawn = rng.integers(0, source.num_rows, rows)
    columns: dict[str, Any] = {}
    for name in source.column_names:
        other, replaced = rng.integers(0, source.num_rows, rows), rng.random(rows) < share
        columns[name] = source.column(name).take(pa.array(np.where(replaced, other, drawn)))
    return pa.table(columns).combine_chunks()


def quasi() -> list[str]:
    return [name for name in adult().column_names if name != TARGET]


@cache
def different(rows: int, seed: int = 8) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {
        "a": rng.integers(0, 10**9, rows),
        "b": rng.integers(0, 10**6, rows),
        "c": rng.choice(list("abcdefgh"), rows),
        TARGET: rng.integers(0, 20, rows),
    }
    return pa.table(columns)


def asked(table: pa.Table, k: int) -> Configuration:
    names = [name for name in table.column_names if name != TARGET]
    return Configuration.of(table, quasi=names, sensitive=[TARGET], k=k)


def hierarchies() -> dict[str, Hierarchy | None]:
    return {name: Hierarchy.from_csv(ADULT.parent / f"adult_hierarchy_{name}.csv") for name in quasi()}


def quality_of(table: pa.Table, k: int, of_row: Any, number: int) -> Quality:
    """The quality of classes that somebody else made."""
    configuration = asked(table, k)
    axes = [Axis.of(encode(table, attribute), attribute) for attribute in configuration.quasi]
    cells = [PrintedColumn.of(axis, of_row, number) for axis in axes]
    return Release.of(table, configuration, Classes.of(of_row, number), cells, how="a peer").quality()


def said(quality: Quality) -> str:
    return f"NCP {100 * quality.ncp:.3f}%, {quality.classes} classes"


def one_at_a_time(table: pa.Table, k: int) -> tuple[Any, int]:
    """Strict Mondrian on one part after the other: the plain version."""
    axes = [Axis.of(encode(table, attribute), attribute) for attribute in asked(table, k).quasi]
    columns = [axis.positions.astype(np.int64) for axis in axes]
    of_row, number = np.empty(table.num_rows, np.int64), 0
    start = np.zeros(1, np.int64)
    waiting = [np.arange(table.num_rows)]
    while waiting:
        part = waiting.pop()
        halves = None
        if part.size >= 2 * k:
            widths = [float(axis.share(column[part], start)[0]) for axis, column in zip(axes, columns, strict=True)]
            for axis in sorted(range(len(axes)), key=lambda axis: -widths[axis]):
                if widths[axis] <= 0 or halves is not None:
                    break
                values = columns[axis][part]
                median = np.partition(values, part.size // 2 - 1)[part.size // 2 - 1]
                sides = (values <= median, values < median)
                for left in sorted(sides, key=lambda left: abs(int(left.sum()) - part.size // 2)):
                    if k <= int(left.sum()) <= part.size - k:
                        halves = part[left], part[~left]
                        break
        if halves is None:
            of_row[part] = number
            number += 1
        else:
            waiting += halves
    return of_row, number


def anonypy_classes(table: pa.Table, k: int) -> Callable[[], tuple[Any, int]] | None:
    """Strict Mondrian by anonypy."""
    try:
        from anonypy.mondrian import Mondrian
    except ImportError:
        return None
    frame = table.to_pandas()
    for name in quasi():
        if name != "age":
            frame[name] = frame[name].astype("category")

    def classes() -> tuple[Any, int]:
        parts = Mondrian(frame, quasi(), TARGET).partition(k)
        of_row = np.empty(table.num_rows, np.int64)
        for number, part in enumerate(parts):
            of_row[part] = number
        return of_row, len(parts)

    return classes


def once(work: Callable[[], Any]) -> tuple[float, Any]:
    """The nanoseconds of one call, for work that is too slow to repeat, and its result."""
    start = time.perf_counter_ns()
    result = work()
    return time.perf_counter_ns() - start, result


def adult_rows(repeats: int) -> list[Row]:
    """All of Adult, with and without hierarchies; a part of it beside anonypy."""
    rows = []
    table = adult()
    works: dict[str, Callable[[], Release]] = {
        "strict": partial(mondrian, table, asked(table, 10)),
        "relaxed": partial(mondrian, table, asked(table, 10), strict=False),
        "strict, with hierarchies": partial(mondrian, table, quasi=hierarchies(), sensitive=[TARGET], k=10),
    }
    times = interleaved([(work, 1) for work in works.values()], repeats)
    for (name, work), taken in zip(works.items(), times, strict=True):
        rows.append(Row(name=f"Adult, 30162 rows, k = 10, {name}", ours_ns=taken, note=said(work().quality())))
    some = table.slice(0, 2000)
    ours = interleaved([(partial(mondrian, some, asked(some, 10)), 1)], repeats)[0]
    kept = said(mondrian(some, asked(some, 10)).quality())
    peer = anonypy_classes(some, 10)
    taken, note = None, kept
    if peer is not None:
        taken, (of_row, number) = once(peer)
        note = f"{kept}; anonypy {said(quality_of(some, 10, of_row, number))}"
    rows.append(Row(name="Adult, 2000 rows, k = 10, strict", ours_ns=ours, other="anonypy", other_ns=taken, note=note))
    return rows


def million_rows(repeats: int) -> list[Row]:
    """The million, strict, for three k."""
    rows = []
    table = perturbed(MILLION)
    peaks = memory_of(table, *REFERENCE)
    for k, percent in REFERENCE.items():
        work = partial(mondrian, table, asked(table, k))
        ours = interleaved([(work, 1)], repeats)[0]
        slow, (of_row, number) = once(partial(one_at_a_time, table, k))
        note = (
            f"{said(work().quality())}; one at a time {said(quality_of(table, k, of_row, number))}; reference "
            f"(recorded) 109–196 s, NCP {percent}%; memory {peaks[k]} × table"
        )
        rows.append(
            Row(
                name=f"{MILLION} rows, k = {k}, strict",
                ours_ns=ours,
                other="one at a time (ours, plain)",
                other_ns=slow,
                note=note,
            )
        )
    return rows


def other_million_rows(repeats: int) -> list[Row]:
    """A million copies of rows of Adult, and a million rows that are all different."""
    rows = []
    for name, table in (("copied", perturbed(MILLION, share=0.0)), ("all different", different(MILLION))):
        peaks = memory_of(table, *REFERENCE)
        works = {k: partial(mondrian, table, asked(table, k)) for k in REFERENCE}
        times = interleaved([(work, 1) for work in works.values()], repeats)
        for (k, work), taken in zip(works.items(), times, strict=True):
            note = f"{said(work().quality())}; memory {peaks[k]} × table"
            rows.append(Row(name=f"{MILLION} rows, {name}, k = {k}, strict", ours_ns=taken, note=note))
    return rows


def harder_rows(repeats: int) -> list[Row]:
    """The million with other wishes."""
    table = perturbed(MILLION)
    rest = [name for name in quasi() if name != "occupation"]
    sensitive = ["occupation"]
    works: dict[str, Callable[..., Release]] = {
        "k = 10, relaxed": partial(mondrian, table, asked(table, 10), strict=False),
        "k = 10, with hierarchies": partial(mondrian, table, quasi=hierarchies(), sensitive=[TARGET], k=10),
        "k = 10, 3 distinct occupations": partial(
            mondrian, table, quasi=rest, sensitive=sensitive, k=10, models=[DistinctDiversity(3, "occupation")]
        ),
        "k = 10, 0.2-close occupations": partial(
            mondrian, table, quasi=rest, sensitive=sensitive, k=10, models=[TCloseness("1/5", "occupation")]
        ),
    }
    times = interleaved([(work, 1) for work in works.values()], max(1, repeats // 2))
    return [
        Row(name=f"{MILLION} rows, {name}", ours_ns=taken, note=said(work().quality()))
        for (name, work), taken in zip(works.items(), times, strict=True)
    ]


def memory_of(table: pa.Table, *ks: int) -> dict[int, str]:
    """The peak of memory for each k, in processes of their own, over the size of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        parquet.write_table(table, path)
        commands = {k: [sys.executable, __file__, "--memory", str(path), str(k)] for k in ks}
        return {
            k: subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            for k, command in commands.items()
        }


def memory(path: str, k: int) -> None:
    """Print the peak of memory while a table is anonymised, over the size of the table."""
    table = parquet.read_table(path)
    mondrian(table.slice(0, 1000), asked(table.slice(0, 1000), k))
    # from here on the peak counts anew (Linux)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    mondrian(table, asked(table, k))
    print(f"{(resident('VmHWM') - before) / table.nbytes:.2f}")


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this needs Linux")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        memory(sys.argv[2], int(sys.argv[3]))
    elif not ADULT.exists():
        sys.exit(f"there is no {ADULT}: set ADULT_CSV to Adult as a file with ';' between fields")
    else:
        sections: list[Section] = [adult_rows, million_rows, other_million_rows, harder_rows]
        run("Mondrian: seconds and detail", sections, RESULTS, repeats=3)
