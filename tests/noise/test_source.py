"""Sources and pools: uniform, fresh, never handed out twice across threads and forks."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import dither.errors
from dither.entropy import (
    SYSTEM,
    DiscreteGaussianSampler,
    InsecureSeededSource,
    SystemSource,
    laplace_sampler,
)
from dither.entropy.blocks import Pool
from dither.errors import InvalidParameter


@pytest.mark.parametrize("nbytes", [0, 1, 7, 100, 1 << 17, (1 << 20) + 3])
def test_arrays_are_fresh(nbytes):
    first, second = SYSTEM.fill(nbytes), SYSTEM.fill(nbytes)
    assert first.size == second.size == nbytes
    if nbytes >= 16:
        assert (first != second).any()
        assert not np.shares_memory(first, second)


def test_system_bytes_are_uniform(statistics):
    # Catches a source whose top bit is stuck in one block of fifty.
    data = SYSTEM.fill(1 << 22).copy()
    even = np.full(256, 1 / 256)
    assert statistics.chi_square(np.bincount(data, minlength=256), even) > statistics.alpha
    data[: data.size // 50] &= 127
    assert statistics.chi_square(np.bincount(data, minlength=256), even) < statistics.alpha


def test_words_and_bits():
    for source in (SYSTEM, InsecureSeededSource(1)):
        assert source.u16(5).dtype == np.uint16
        assert source.u32(5).dtype == np.uint32
        assert source.u64(5).dtype == np.uint64
        assert source.bits(0) == 0
        drawn = [source.bits(13) for _ in range(3000)]
        assert 0 <= min(drawn) <= max(drawn) < 1 << 13
        assert max(drawn) >= 1 << 12
        assert source.bits(1000).bit_length() > 900
    assert "System" in repr(SystemSource())


def test_seeded_source_repeats_and_hides_its_seed():
    draws = [laplace_sampler(Fraction(10**6)).sample(5000, InsecureSeededSource(42)) for _ in "ab"]
    assert (draws[0] == draws[1]).all()
    other = laplace_sampler(Fraction(10**6)).sample(5000, InsecureSeededSource(43))
    assert (draws[0] != other).mean() > 0.99
    sampler = DiscreteGaussianSampler(Fraction(10**12))
    assert sampler.one(InsecureSeededSource(5)) == sampler.one(InsecureSeededSource(5))
    assert "42" not in repr(InsecureSeededSource(42))
    with pytest.raises(InvalidParameter, match="seed"):
        InsecureSeededSource(-1)


def drain(take, threads: int = 8, each: int = 5000) -> list[int]:
    """What threads get that take at the same time."""
    taken: list[list[int]] = [[] for _ in range(threads)]
    barrier = threading.Barrier(threads)

    def run(mine: list[int]) -> None:
        barrier.wait()
        mine.extend(take() for _ in range(each))

    workers = [threading.Thread(target=run, args=(mine,)) for mine in taken]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    return [value for mine in taken for value in mine]


def test_threads_never_share_a_draw():
    # A pool over a known sequence: what was handed out and what is left must be all that was drawn,
    # each once.
    numbers = count()
    lock = threading.Lock()
    drawn = []

    def draw(n: int):
        with lock:
            batch = [next(numbers) for _ in range(n)]
            drawn.extend(batch)
        return np.array(batch)

    pool = Pool()
    taken = drain(lambda: pool.pop(draw))
    assert len(set(taken)) == len(taken) == 40_000
    assert sorted(taken + pool._values) == sorted(drawn)


def test_a_pool_that_forgets_to_remove_is_noticed():
    class Peeking(Pool):
        def pop(self, draw):
            value = super().pop(draw)
            self._values.append(value)
            return value

    numbers = count()
    pool = Peeking()
    taken = drain(lambda: pool.pop(lambda n: np.array([next(numbers) for _ in range(n)])), 2, 50)
    assert len(set(taken)) < len(taken)


def test_threads_drawing_from_one_sampler_get_different_noise():
    # Of 40,000 draws at scale 2^54 two agree with a probability of 4e-8, so a second pair is a
    # fault.
    sampler = laplace_sampler(Fraction(2**54))
    taken = drain(sampler.one)
    assert len(taken) - len(set(taken)) <= 1


def test_pools_start_small_grow_and_are_freed():
    sampler = DiscreteGaussianSampler(Fraction(400))
    sampler.one()
    assert len(sampler._pool) < 100
    for _ in range(20_000):
        sampler.one()
    assert len(sampler._pool) <= 4096
    pool = weakref.ref(sampler._pool)
    del sampler
    gc.collect()
    assert pool() is None


def test_without_openssl_bytes_come_from_the_system():
    script = (
        "import sys; sys.modules['ssl'] = None\n"
        "from dither.entropy import SYSTEM, source\n"
        "import os; assert source._system_bytes is os.urandom\n"
        "print(SYSTEM.bits(64) != SYSTEM.bits(64), SYSTEM.fill(300_000).size)"
    )
    path = str(Path(dither.errors.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.split() == ["True", "300000"]


# Forks run in a process of their own, without threads, as Python warns about forking with threads.
FORKS = """
import json, os, sys
from fractions import Fraction
from dither.entropy import SYSTEM, InsecureSeededSource, blocks, laplace_sampler

fault = sys.argv[1]
sampler = laplace_sampler(Fraction(2**54))
source = InsecureSeededSource(1) if fault == "source" else SYSTEM
for _ in range(40):
    sampler.one()
source.bits(64)
assert len(sampler._pool) > 10
if fault == "pool":
    blocks._POOLS.clear()

def draws():
    return [sampler.one() for _ in range(100)] + [source.bits(64) for _ in range(100)] + (
        source.u64(20).tolist())

def child():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(draws(), out)
        os._exit(0)
    os.close(writing)
    return os.fdopen(reading)

ends = [child() for _ in range(3)]
everything = draws()
for end in ends:
    everything += json.load(end)
    end.close()
    os.wait()
print(len(everything), len(set(everything)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("fault", ["none", "pool", "source"])
def test_forked_children_never_share_a_draw(fault):
    # The mutants keep the pool in the child, or use a source that a fork copies.
    path = str(Path(dither.errors.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS, fault],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    drawn, different = json.loads("[" + ran.stdout.replace(" ", ",") + "]")
    assert drawn == 4 * 220
    assert (different == drawn) == (fault == "none")
