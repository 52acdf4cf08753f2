"""No draw is ever used twice: not by a copy, not by another process, not after pickling."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import dither as dp
from dither.entropy import gaussian_sampler, laplace_sampler

MECHANISMS = [
    dp.Laplace(scale=1000),
    dp.Gaussian(scale=1000),
    dp.DiscreteLaplace(scale=10**9),
    dp.DiscreteGaussian(scale=10**9),
]


def draws(mechanism, n=8):
    return [mechanism.release(0) for _ in range(n)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_share_no_draws(mechanism, duplicate):
    draws(mechanism, 3)  # fills the pool
    twin = duplicate(mechanism)
    assert twin == mechanism
    seen = draws(twin, 20) + draws(mechanism, 20)
    assert len(set(seen)) == len(seen)


def test_sampler_copies_share_no_draws():
    from fractions import Fraction

    for sampler in (laplace_sampler(Fraction(10**9)), gaussian_sampler(Fraction(10**18))):
        sampler.one()
        for twin in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
            seen = [s.one() for _ in range(20) for s in (twin, sampler)]
            assert len(set(seen)) == len(seen)


SCRIPT = """
import multiprocessing
import dither as dp

def work(pair):
    mechanism, exact = pair
    return mechanism.release(exact) - exact

if __name__ == "__main__":
    mechanism = dp.Laplace(scale=1000)
    mechanism.release(0.0)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        noise = pool.map(work, [(mechanism, 0.0), (mechanism, 1.0), (mechanism, 5.0)])
    print(*sorted([*noise, mechanism.release(0.0)]))
"""


def test_worker_processes_share_no_draws(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=True)
    noise = [float(text) for text in done.stdout.split()]
    assert len(noise) == 4
    # at this scale two noises closer than a millionth are one noise
    assert min(np.diff(noise)) > 1e-6


def test_subsampled_and_counters_do_not_reuse_noise_after_pickling():
    counter = dp.TreeCounter(scale=10**9, horizon=64)
    counter.start().add(0)
    twin = pickle.loads(pickle.dumps(counter))
    first, second = counter.start(), twin.start()
    assert len({first.add(0), second.add(0), first.add(0), second.add(0)}) == 4
