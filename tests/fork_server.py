"""Runs programs in processes of their own, without waiting for the libraries each time; see ``fresh`` in conftest.py.

The libraries that dither needs are loaded here, once; dither never is. A process that is forked from here imports
dither as a new interpreter does, so that nothing that a program needs can have been left behind by another one. The
libraries are all that it finds loaded.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path

LIBRARIES = (
    *("duckdb", "numpy.typing", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pydantic", "rich.console"),
    *("rich.progress", "rich.table", "rich.text", "scipy.special", "sqlglot", "sqlglot.dialects.duckdb"),
    *("sqlglot.dialects.postgres", "typer"),
)


def serve():
    """Fork for each line of the input; answer with the status when that process has ended."""
    for library in LIBRARIES:
        import_module(library)
    # what the collector looks at in a fork would be copied for it
    gc.freeze()
    assert not [name for name in sys.modules if name.partition(".")[0] == "dither"]
    while line := sys.stdin.readline():
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            become(wanted)
            return
        print(ended(child, wanted["seconds"]), flush=True)
    # or the libraries complain at the end that they were left behind
    gc.unfreeze()


def ended(child, seconds):
    """The status of a process, negative for a signal; one that takes too long is killed with all that it started."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(0.005)


def become(wanted):
    """Be the program from here on: its directory, its environment, its files, its arguments."""
    os.setsid()
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for number, (path, mode) in enumerate(
        [(wanted["input"], os.O_RDONLY), (wanted["output"], os.O_WRONLY), (wanted["errors"], os.O_WRONLY)]
    ):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = [wanted["program"], *wanted["arguments"]]
    sys.path[0] = str(Path(wanted["program"]).parent)
    end(status_of(wanted["program"]))


def status_of(program):
    """Run it, and tell what an interpreter would end with."""
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    return 0


def end(status):
    """End as an interpreter does, but for taking the libraries apart, which takes as long as a command."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
