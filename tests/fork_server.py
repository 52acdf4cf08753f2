"""Runs programs in processes of their own, without waiting for imports each time; see ``fresh`` and ``forked`` in
conftest.py.

    fork_server.py [dither]

The libraries that dither needs are loaded here, once; dither isn't. A process that is forked from here imports dither
as a new interpreter does, so that nothing that a program needs can have been left behind by another one. The libraries
are all that it finds loaded. With ``dither``, all of its modules are loaded as well, which takes half as long again.
"""

import atexit
import contextlib
import gc
import json
import math
import os
import pkgutil
import runpy
import signal
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path

LIBRARIES = (
    *("duckdb", "hypothesis.strategies", "multiprocessing.connection", "numpy.typing", "pyarrow.compute"),
    *("pyarrow.csv", "pyarrow.parquet", "pydantic.json_schema", "pydantic.type_adapter", "rich.console"),
    *("rich.progress", "rich.table", "rich.text", "scipy.special", "scipy.stats", "sqlglot"),
    *("sqlglot.dialects.duckdb", "sqlglot.dialects.postgres", "sqlite3", "tomllib", "typer", "zoneinfo"),
)
# output and errors may be one file
ADD = os.O_WRONLY | os.O_APPEND
# what the others load where they find it
OPTIONAL = ("matplotlib.figure", "pandas", "pyarrow.pandas_compat")


def load(also):
    """Import the libraries, and all modules of what else is named."""
    for library in LIBRARIES:
        import_module(library)
    for library in OPTIONAL:
        with contextlib.suppress(ImportError):
            import_module(library)
    for package in map(import_module, also):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):
                import_module(module.name)


def serve(also):
    """Fork for each line of the input; answer with status and processor seconds when that process has ended."""
    load(also)
    # what the collector looks at in a fork would be copied for it
    gc.freeze()
    assert also or not [name for name in sys.modules if name.partition(".")[0] == "dither"]
    while line := sys.stdin.readline():
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            become(wanted)
            return
        print(*ended(child, wanted["seconds"]), flush=True)
    # or the libraries complain at the end that they were left behind
    gc.unfreeze()


def ended(child, seconds):
    """The status of a process, negative for a signal, and what it spent; one that takes too long is killed with all
    that it started.
    """
    deadline = time.monotonic() + seconds
    found = 0
    while not found:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            deadline = math.inf
        found, status, used = os.wait4(child, os.WNOHANG)
        if not found:
            time.sleep(0.005)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def become(wanted):
    """Be the program from here on: its directory, its environment, its files, its arguments."""
    os.setsid()
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for number, (path, mode) in enumerate(
        [(wanted["input"], os.O_RDONLY), (wanted["output"], ADD), (wanted["errors"], ADD)]
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
    serve(sys.argv[1:])
