"""Drawing and counting in blocks: every draw counts once, shared streams are noticed, nobody is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing

import numpy as np
import pytest

from dither.audit import Batched, lower_bound
from dither.audit.certify.task import fingerprints
from dither.audit.drawing import clock
from dither.audit.drawing.draws import Draws, batched, collect
from dither.audit.drawing.workers import blocks, totals
from dither.audit.outputs.layout import layout_of
from dither.errors import DitherError, InvalidData, InvalidParameter
from dither.mechanisms import DiscreteLaplace, Exponential, Laplace

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="copies of a process are made by fork")


# ------------------------------------------------------------------ mechanisms of every kind


def test_noise_mechanisms_draw_in_arrays():
    drawn = batched(Laplace(scale=1))
    assert drawn.copies
    assert drawn.draw(0.5, 100_000).shape == (100_000,)
    assert drawn.draw([1.0, 2.0, 3.0], 10).shape == (10, 3)
    assert np.unique(drawn.draw(0.0, 100_000)).size > 99_990
    whole = batched(DiscreteLaplace(scale=1)).draw(7, 1000)
    assert whole.dtype == np.int64
    assert abs(float(whole.mean()) - 7) < 1


def test_arrays_are_so_short_that_the_scale_is_the_stated_one(monkeypatch):
    sizes = []
    released = Laplace.release
    monkeypatch.setattr(Laplace, "release", lambda self, x: sizes.append(x.size) or released(self, x))
    batched(Laplace(scale=1)).draw(np.zeros(3), 100_000)
    assert sum(sizes) == 300_000
    assert max(sizes) <= 1 << 16


def test_other_mechanisms_draw_one_by_one():
    assert batched(Exponential(scale=1)).copies
    assert len(batched(Exponential(scale=1)).draw([0, 1], 5)) == 5
    assert not batched(lambda x: x).copies
    assert batched(lambda x: x).draw(3, 2) == [3, 3]

    class Theirs:
        def release(self, x):
            return x + 1

    assert batched(Theirs()).draw(1, 2) == [2, 2]
    assert not batched(Theirs()).copies


@pytest.mark.parametrize("wrong", [3, None, Laplace, "laplace"])
def test_what_is_no_mechanism_is_refused(wrong):
    with pytest.raises(InvalidParameter, match="a mechanism is"):
        batched(wrong)
    with pytest.raises(InvalidParameter):
        Batched(3)


def test_the_mechanisms_own_failure_is_told_with_its_cause():
    draws = Draws(batched(lambda x: 1 / x), 0, "x_neighbour")
    with pytest.raises(InvalidData, match="failed on x_neighbour: ZeroDivisionError: division by zero") as caught:
        draws(3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_interrupts_pass():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Draws(batched(interrupted), 0, "x")(1)


def test_collecting_stops_at_the_time_or_the_number():
    quick = Batched(lambda x, n: np.zeros(n))
    pair = Draws(quick, 0, "x"), Draws(quick, 1, "x_neighbour")
    first, second = collect(pair, most=1000, seconds=10)
    assert len(first) == len(second) == 1000


def test_collecting_from_a_slow_mechanism_stops_at_the_time(own_clock):
    def draw(x):
        own_clock.passed += 0.01

    slow = Draws(batched(draw), 0, "x")
    first, _ = collect((slow, slow), most=10**6, seconds=0.2)
    assert 1 <= len(first) <= 11
    assert own_clock.passed < 0.4


def test_collecting_counts_the_time_for_reading():
    quick = Batched(lambda x, n: np.zeros(n))
    pair = Draws(quick, 0, "x"), Draws(quick, 1, "x_neighbour")
    first, _ = collect(pair, most=10**6, seconds=0.1, later=1e-3)  # reading takes most of the time
    assert len(first) <= 100


# ------------------------------------------------------------------ blocks


def no_probe():
    return frozenset({os.urandom(16)})


def test_looks_see_exactly_their_blocks():
    arriving = iter(
        [(1, np.array([1.0])), None, (0, np.array([10.0])), (3, np.array([1000.0])), (2, np.array([100.0]))]
    )
    seen = [(look.blocks, float(total[0])) for look, total in totals(arriving, 2, clock.now() + 60)]
    assert seen == [(1, 10.0), (2, 11.0), (3, 111.0), (4, 1111.0)]


def test_time_ends_the_looks():
    arriving = ((number, np.ones(1)) for number in range(1000))
    assert len(list(totals(arriving, 1000, clock.now() - 1))) == 0
    assert next(arriving)[0] == 1  # one block was done


def test_one_process_works_in_order():
    with closing(blocks(lambda: np.ones(1), no_probe, 1, patience=1)) as arriving:
        assert [next(arriving)[0] for _ in range(4)] == [0, 1, 2, 3]


@needs_fork
def test_copies_do_each_block_once_and_end():
    work = lambda: np.array([float(os.getpid())])  # noqa: E731
    with closing(blocks(work, no_probe, 3, patience=60)) as arriving:
        found = {}
        while len(found) < 30 or len(set(found.values())) < 3:
            arrival = next(arriving)
            if arrival is not None:
                assert arrival[0] not in found
                found[arrival[0]] = int(arrival[1][0])
    for number, process in found.items():
        assert process != os.getpid()
        assert process == next(p for n, p in found.items() if n % 3 == number % 3)
    assert len(set(found.values())) == 3
    for process in set(found.values()):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def probe_of(draw):
    def probe():
        sample = draw(64)
        return fingerprints(layout_of(sample, sample).read(sample))

    return probe


@needs_fork
def test_a_shared_stream_is_noticed():
    generator = np.random.default_rng(5)
    probe = probe_of(lambda n: generator.normal(size=n))
    with closing(blocks(lambda: np.array([float(os.getpid())]), probe, 2, patience=60)) as arriving:
        assert all(next(arriving)[1][0] == os.getpid() for _ in range(3))


@needs_fork
def test_a_stream_that_is_shared_in_part_is_noticed():
    generator = np.random.default_rng(5)
    draw = lambda n: np.column_stack([generator.normal(size=n), np.random.default_rng().normal(size=n)])  # noqa: E731
    with closing(blocks(lambda: np.array([float(os.getpid())]), probe_of(draw), 2, patience=60)) as arriving:
        assert next(arriving)[1][0] == os.getpid()


@needs_fork
@pytest.mark.parametrize("kind", ["numpy", "python", "system"])
def test_streams_that_are_seeded_anew_are_independent(kind):
    import random

    draws = {
        "numpy": lambda n: np.random.normal(size=n),  # noqa: NPY002
        "python": lambda n: np.array([random.random() for _ in range(n)]),
        "system": lambda n: Laplace(scale=1).release(np.zeros(n)),
    }
    with closing(blocks(lambda: np.array([float(os.getpid())]), probe_of(draws[kind]), 2, patience=60)) as arriving:
        arrival = None
        while arrival is None:
            arrival = next(arriving)
        assert arrival[1][0] != os.getpid()


@needs_fork
def test_copies_that_never_begin_are_given_up():
    parent = os.getpid()

    def probe():
        if os.getpid() != parent:
            time.sleep(600)
        return no_probe()

    with closing(blocks(lambda: np.array([float(os.getpid())]), probe, 2, patience=0.2)) as arriving:
        assert next(arriving)[1][0] == parent


@needs_fork
def test_a_failure_in_a_copy_is_raised_here_once(wall_clock):
    parent = os.getpid()

    def failing(x):
        if os.getpid() != parent:
            raise LookupError("no such drawer")
        return os.urandom(1)[0]

    with pytest.raises(InvalidData, match="LookupError: no such drawer") as caught:
        lower_bound(failing, 0, 1, workers=2, budget="2s")
    assert isinstance(caught.value.__cause__, LookupError)


@needs_fork
def test_a_copy_that_dies_is_told(wall_clock):
    parent = os.getpid()

    def dying(x):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.urandom(1)[0]

    with pytest.raises(DitherError, match="workers=1"):
        lower_bound(dying, 0, 1, workers=2, budget="2s")


def test_fingerprints_tell_streams_apart():
    sample = np.arange(64.0)
    layout = layout_of(sample, sample)
    assert fingerprints(layout.read(sample)) == fingerprints(layout.read(sample.copy()))
    assert not fingerprints(layout.read(sample)) & fingerprints(layout.read(sample + 1))
    # a number of few values repeats by chance: only everything together counts
    rows = np.column_stack([np.zeros(64), np.arange(64.0)])
    other = np.column_stack([np.zeros(64), np.arange(64.0) + 1])
    layout = layout_of(rows, other)
    assert not fingerprints(layout.read(rows)) & fingerprints(layout.read(other))


@needs_fork
def test_draws_of_a_shared_stream_are_not_counted_twice(wall_clock):
    """With a generator that both copies would repeat, an explicit number of workers does no harm."""
    generator = np.random.default_rng(1)
    coin = Batched(lambda x, n: generator.random(n) < 0.5)
    # two copies share what the machine has left: until they had time for draws that count
    for seconds in (1, 8, 64):
        found = lower_bound(coin, 0, 1, workers=2, budget=f"{seconds}s", confidence=1 - 1e-9)
        assert found.epsilon < 0.05
        if found.draws:
            break
    assert found.draws > 0


INTERRUPTED = """
    import os, sys, time
    import numpy as np
    from dither.audit import lower_bound

    def slow(x):
        time.sleep(0.002)
        return np.random.random() + x

    def watch(share, doing):
        if doing == "counting":
            print("counting", flush=True)

    try:
        lower_bound(slow, 0.0, 0.1, workers=2, budget="5s", watch=watch)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
"""


@needs_fork
@pytest.mark.parametrize("everybody", [False, True], ids=["one", "group"])
def test_an_interrupt_leaves_no_process_behind(everybody):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for line in program.stdout:
            if line.strip() == "counting" and len(_group(program.pid)) == 3:
                break
        os.killpg(program.pid, signal.SIGINT) if everybody else os.kill(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=20)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 130
    assert out.strip().endswith("interrupted")
    assert err == ""
    with pytest.raises(ProcessLookupError):
        os.killpg(program.pid, 0)


def _group(leader):
    """The processes of a group, from the system's list."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid, group in map(str.split, listed.splitlines()) if int(group) == leader]
