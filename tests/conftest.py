"""Settings for all tests, and programs in processes of their own.

Hypothesis is deterministic, so that a red run can be repeated; with DITHER_NIGHTLY it draws anew, and prints what
repeats a failure. Tests that are marked ``nightly`` run only then, those that are marked ``oracle`` only by -m oracle.

No test asserts on a clock: how long work takes depends on what else the machine does. Work that must not grow counts
its steps (``steps_within``); work that must end at all has a deadline that only a hang misses (``no_hang``).

What is true in the process of the tests, where nearly all of dither is loaded, needn't be true in a stranger's. So
commands are run as they are installed, each in its own process: by ``installed`` in a new interpreter, by ``fresh`` in
a process that has the libraries but nothing of dither, which takes a third of the time, or by ``forked``, where by day
dither is loaded as well, which takes a sixth. Every command is run in one of the first two ways, too.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

import dither
from support import audit_time, cpu
from support.sizes import NIGHTLY

HANG = 300.0

# a shell that runs the tests in the background has them ignore interrupts, and some tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dither", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", parent=settings.get_profile("dither"), derandomize=False, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "dither")

HERE = Path(__file__).resolve().parent
# Old libraries beside new ones are told by those what is deprecated. None of it is ours: dither's modules, and the
# tests, still fail with any warning.
THIRD_PARTIES = ("matplotlib", "pyparsing", "starlette", "starlette_testclient")


def pytest_configure(config):
    config.pluginmanager.register(cpu.CpuByFolder(), "cpu")
    if os.environ.get("DITHER_LOWEST"):
        for name in THIRD_PARTIES:
            config.addinivalue_line("filterwarnings", rf"ignore::DeprecationWarning:{name}(\..*)?$")
        # starlette's old client for tests, by which schemathesis asks, leaves streams open; dither makes none of these
        config.addinivalue_line("filterwarnings", r"ignore:Unclosed <MemoryObject:ResourceWarning")
        # the last of them are found after all tests, when what was added here isn't asked any more
        warnings.filterwarnings("ignore", "Unclosed <MemoryObject", ResourceWarning)


def pytest_collection_modifyitems(config, items):
    for_oracles = config.option.markexpr == "oracle"
    left_out = [
        item
        for item in items
        if (item.get_closest_marker("nightly") and not NIGHTLY)
        or (item.get_closest_marker("oracle") and not for_oracles)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


SOURCE = Path(dither.__file__).resolve().parents[1]
# Seconds after which a command is taken to hang.
PATIENCE = 300


def environment():
    """That of the tests, as it is now; dither is found where the tests have it from, and compiled once."""
    now = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**now, "PYTHONPATH": path, "PYTHONUTF8": "1"}


def command():
    """The path of the ``dither`` that was installed beside the Python that runs the tests."""
    found = shutil.which("dither", path=Path(sys.executable).parent)
    assert found, f"dither isn't installed beside {sys.executable}: pip install -e '.[dev]'"
    return found


@pytest.fixture(scope="session")
def installed():
    """The installed command in a new interpreter.

    ``installed.run("budget")`` waits, and gives status, output and errors; ``installed.start("serve", …)`` is a Popen
    with pipes.
    """

    def start(*arguments, more=None, **options):
        return subprocess.Popen(
            [command(), *map(str, arguments)],
            env={**environment(), **(more or {})},
            text=True,
            encoding="utf-8",
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def run(*arguments, **options):
        with start(*arguments, **options) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE)
            except BaseException:
                process.kill()
                raise
        return SimpleNamespace(status=process.returncode, out=out, err=err)

    return SimpleNamespace(run=run, start=start, command=command, environment=environment)


@pytest.fixture(scope="session")
def fork_server():
    """The processes from which those of ``fresh`` and ``forked`` are forked, by what they load besides libraries."""
    servers = {}

    def started(*also):
        if also not in servers:
            servers[also] = subprocess.Popen(
                [sys.executable, str(HERE / "fork_server.py"), *also],
                # nothing that a fork can't take along: threads
                env={**environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        return servers[also]

    yield started
    for server in servers.values():
        server.stdin.close()
        server.wait(timeout=60)
        server.stdout.close()
    cpu.elsewhere.clear()


def runs(server, streams):
    """``run`` of the two fixtures below."""

    def run(*arguments, program=None, given="", seconds=PATIENCE, together=False):
        paths = {name: streams / name for name in ("input", "output", "errors")}
        for name, path in paths.items():
            path.write_text(given if name == "input" else "", encoding="utf-8")
        wanted = {
            "program": str(program or command()),
            "arguments": [str(argument) for argument in arguments],
            "directory": str(Path.cwd()),
            "environment": environment(),
            "seconds": seconds,
            **{name: str(path) for name, path in paths.items()},
            **({"errors": str(paths["output"])} if together else {}),
        }
        server.stdin.write(json.dumps(wanted) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the fork server has ended"
        status, spent = answer.split()
        cpu.elsewhere.append(float(spent))
        out, err = (paths[name].read_bytes().decode() for name in ("output", "errors"))
        return SimpleNamespace(status=int(status), out=out, err=err)

    return run


@pytest.fixture
def fresh(fork_server, tmp_path_factory):
    """A program in a process of its own that has loaded nothing of dither.

    ``fresh("budget")`` runs the installed command, and gives its status, output and errors; with ``together`` errors
    are in the output. ``program`` is another Python file to run, ``given`` what it reads.
    """
    return runs(fork_server(), tmp_path_factory.mktemp("streams"))


@pytest.fixture
def forked(fork_server, tmp_path_factory):
    """The same in a process of its own that has all of dither loaded; in the night, nothing."""
    return runs(fork_server(*([] if NIGHTLY else ["dither"])), tmp_path_factory.mktemp("streams"))


@contextlib.contextmanager
def _steps_within(limit):
    """Fails if this thread calls more functions than ``limit``, of Python or of C: the same count on every machine."""
    steps = [0]

    def tick(frame, event, argument):
        steps[0] += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        yield steps
    finally:
        sys.setprofile(before)
    assert steps[0] <= limit


@pytest.fixture
def steps_within():
    """``with steps_within(n):`` for work that must not take more steps than that."""
    return _steps_within


@pytest.fixture
def audits_by_processor_time(monkeypatch):
    """What an audit finds within its budget then doesn't depend on what else the machine does.

    Time is what the processor spent on this test, or a twentieth of the time that passed, whichever is more, and one
    process does all the work, as the time of copies isn't seen.
    """
    clock, bound = import_module("dither.audit.drawing.clock"), import_module("dither.audit.lower_bound")
    wall, used = time.perf_counter(), time.process_time()
    monkeypatch.setattr(bound, "cores", lambda: 1)
    monkeypatch.setattr(clock, "now", lambda: max(time.process_time() - used, (time.perf_counter() - wall) / 20))


@pytest.fixture
def counted_time(monkeypatch):
    """Audits find what they find within their budget on every machine: each draw has its price in time."""
    return audit_time.count(monkeypatch)


@pytest.fixture
def no_hang():
    """Ends a test that hangs: a deadline that nothing which works comes near to."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(number, frame):
        raise TimeoutError(f"still at it after {HANG:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
