"""The process of a peer: makes the works of a script and does them, one line of JSON for each.

Runs in the peer's environment, which has nothing of dither: ``python worker.py opendp_works.py``.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
import warnings

warnings.simplefilter("ignore")


def is_short(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 16


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints mustn't be taken for an answer
    works = runpy.run_path(sys.argv[1])
    made = []
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            if "make" in wanted:
                made.append(works[wanted["make"]](**wanted["arguments"]))
                told = {"number": len(made) - 1}
            else:
                start = time.perf_counter_ns()
                value = made[wanted["do"]]()
                taken = time.perf_counter_ns() - start
                # numbers are told; a million draws stay here
                told = {"nanoseconds": taken, "value": value if isinstance(value, float) or is_short(value) else None}
        except Exception as problem:  # noqa: BLE001 - whatever a library raises is told, and the others go on
            told = {"problem": f"{type(problem).__name__}: {problem}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


main()
