"""Make the table of how sure the statistical tests are: python tests/power/measure.py [--runs 50] TEST…

Runs each test so often with the recorder and writes ``table.csv``: for every test that draws noise and compares
p-values, how many it compares (each is a false alarm with probability 1e-9), the fault it says it catches, and how far
its mutants' p-values are from being missed. A p-value is read as standard deviations z of a normal law; α = 1e-9 is z =
6. Under a fault a mutant's z has the standard deviation that the runs show; of fewer than five runs it is taken to be
√2, which it never exceeds for Pearson's χ² (√(2X) of a noncentral X) and hardly for counts: ``deviation by`` says "law"
then, and else "runs". The margin is z − 6 in those. Of 50 runs 6 or more are a chance to miss below 1e-6; of fewer with
the deviation of the law 4.8 + 6/√runs are, since their mean may have been lucky. Of other numbers that vary from run to
run, ``nearest`` is how many of their standard deviations they stay from their limits, in the comparison that comes
nearest (five runs or more). ``missed`` is the chance of a normal law beyond the margin. Where a suite of
``dither.checks`` does the comparing, its smallest p-value is the mutant's, or the gap that it surely found, in standard
deviations of five runs or more. Without tests given, those of the table are run; rows of other tests are kept.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from scipy import stats

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = HERE / "table.csv"
ALPHA = 1e-9
FIELDS = (
    "test", "alpha", "p-values", "mutants", "weakest z", "deviation", "deviation by", "margin", "missed", "nearest",
    "runs", "fault",
)  # fmt: skip
# a suite compares in its own files, and says what failed
SUITES = re.compile(r"\b(?:check_mechanism|check_randomizer|failed)\(")
# of Pearson's statistic; for counts it is smaller
LARGEST_DEVIATION = 2**0.5
FEW = 5


def record(tests: list[str], path: Path, runs: int) -> None:
    """Run the tests, each so often, and write what they compare to ``path``."""
    places = [str(ROOT / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as cache:
        # assertions are rewritten with the hook that the recorder needs, in a cache of their own
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONPYCACHEPREFIX": cache}
        # the table tells of the full form
        environment["DITHER_NIGHTLY"] = "1"
        options = ["-p", "recorder", "-o", "enable_assertion_pass_hook=true", "-p", "no:cacheprovider", "-q"]
        command = [sys.executable, "-m", "pytest", *options, f"--power={path}", f"--power-runs={runs}", *tests]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)


def faults(file: Path) -> dict[str, str]:
    """What each test of a file says that it catches: its comment or docstring, up to the first full stop."""
    source = file.read_text(encoding="utf-8")
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            text = ast.get_docstring(node) or ""
            said = [
                line.strip()[1:].strip() for line in lines[node.lineno : node.end_lineno] if line.strip()[:1] == "#"
            ]
            words = " ".join([*text.split(), *" ".join(said).split()])
            start = next((words.find(w) for w in ("Catches", "atches", "mutant", "Mutant") if w in words), 0)
            found[node.name] = words[max(start, 0) :][:160]
    return found


def asks_a_suite(name: str) -> bool:
    """Whether a test leaves the comparing to a suite of checks."""
    file, function = name.split("::")[:2]
    source = (ROOT / file).read_text(encoding="utf-8")
    found = (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == function)
    return any(SUITES.search(ast.get_source_segment(source, node) or "") for node in found)


def z_of(p: float) -> float:
    """Standard deviations; what is below every float counts as 37 of them."""
    return float(stats.norm.isf(max(p, 1e-300)))


def _varies(values: list[float]) -> bool:
    """Whether what was compared differs from run to run, and was seen often enough to tell by how much."""
    return len(values) >= FEW and max(values) > min(values) and max(map(abs, values)) < float("inf")


Seen = tuple[float, float, float, int]


def margin_of(values: list[float]) -> Seen:
    """(margin, mean, standard deviation, runs) of a mutant's z."""
    runs, mean = len(values), statistics.fmean(values)
    deviation = statistics.stdev(values) if runs >= FEW else LARGEST_DEVIATION
    # what is the same in every run, or below every float, isn't missed at all
    margin = (mean - z_of(ALPHA)) / deviation if deviation > 1e-6 else float("inf")
    return margin, mean, deviation, runs


def suite_of(parts: dict[str, dict[str, dict[int, list[float]]]]) -> tuple[int, list[Seen]]:
    """(p-values of what is right, margins of mutants) of a test that asks a suite, by its parameters."""
    right, wrong = 0, []
    for found in parts.values():
        seen = []
        z = [z_of(min(1.0, min(each))) for each in found["p"].values()]
        if z and min(z) > z_of(ALPHA):
            seen.append(margin_of(z))
        gaps = [max(each) for each in found["gap"].values()]
        if _varies(gaps) and min(gaps) > 0:
            # it shows at all above 0, where α is spent already
            deviation = statistics.stdev(gaps)
            seen.append((statistics.fmean(gaps) / deviation, statistics.fmean(gaps), deviation, len(gaps)))
        if seen:
            wrong.append(max(seen))
        else:
            right += max(len(each) for kind in found.values() for each in kind.values())
    return right, wrong


def rows_of(recordings: list[Path]) -> list[dict[str, Any]]:
    """One row for each test function."""
    suites: dict[str, dict[str, dict[str, dict[int, list[float]]]]] = defaultdict(
        lambda: defaultdict(lambda: {"p": defaultdict(list), "gap": defaultdict(list)})
    )
    right: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    wrong: dict[str, dict[tuple[str, int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    other: dict[str, dict[tuple[str, int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in recordings:
        counts: dict[tuple[str, int, str, int], int] = defaultdict(int)
        for line in path.read_text(encoding="utf-8").splitlines():
            test, place, what, value, limit, _, *run = json.loads(line)
            name = test.split("[")[0]
            if what in ("p", "gap"):
                suites[name][test][what][run[0] if run else 0].append(value)
            if what not in ("<", "<=", ">", ">="):
                continue
            which = (test, place, what, run[0] if run else 0)
            counts[which] += 1
            key = (test, place, counts[which])
            if abs(limit - ALPHA) > 1e-12:
                other[name][key].append(value - limit if what[0] == ">" else limit - value)
            elif value > limit:
                right[name].add(key)
            else:
                wrong[name][key].append(z_of(value))
    table = []
    for name in sorted({*right, *wrong, *other, *suites}):
        seen, p_values = [margin_of(values) for values in wrong[name].values()], len(right[name])
        if not seen and not p_values and name in suites and asks_a_suite(name):
            p_values, seen = suite_of(suites[name])
        weakest = min(seen, default=None)
        nearest = min(
            (statistics.fmean(far) / statistics.stdev(far) for far in other[name].values() if _varies(far)),
            default=None,
        )
        if not p_values and not seen and nearest is None:
            continue
        file, function = name.split("::")[:2]
        table.append(
            {
                "test": name,
                "alpha": f"{ALPHA:.0e}" if p_values or seen else "",
                "p-values": p_values,
                "mutants": len(seen),
                "weakest z": f"{weakest[1]:.1f}" if weakest else "",
                "deviation": f"{weakest[2]:.2f}" if weakest else "",
                "deviation by": ("runs" if weakest[3] >= FEW else "law") if weakest else "",
                "margin": f"{weakest[0]:.1f}" if weakest else "",
                "missed": f"{stats.norm.sf(weakest[0]):.0e}" if weakest else "",
                "nearest": "" if nearest is None else f"{nearest:.1f}",
                "runs": max([weakest[3]] if weakest else [len(far) for far in other[name].values()], default="") or "",
                "fault": faults(ROOT / file).get(function, ""),
            }
        )
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tests", nargs="*")
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--from", dest="recordings", nargs="*", type=Path, help="recordings made before")
    chosen = options.parse_args()
    old: dict[str, dict[str, Any]] = {}
    if TABLE.exists():
        with TABLE.open(encoding="utf-8", newline="") as lines:
            old = {row["test"]: dict(row) for row in csv.DictReader(lines)}
    with tempfile.TemporaryDirectory() as place:
        recordings = list(chosen.recordings or [])
        if not recordings:
            recordings = [Path(place) / "recording"]
            record(chosen.tests or sorted(old), recordings[0], chosen.runs)
        old.update({row["test"]: row for row in rows_of(recordings)})
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(old[name] for name in sorted(old))


if __name__ == "__main__":
    main()
