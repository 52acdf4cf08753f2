"""How fast and how tight privacy accounting is, beside other accountants, in one run.

Run with ``python benchmarks/accounting.py``. Bounds are certified: the true ε lies between
them. Caches are emptied before every measurement. Results go to ``benchmarks/results/accounting.json``.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np

from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import Laplace
from dither.privacy import Guarantee, PrivacyLoss, PureLoss, Sensitivity, calibrate, compose, composition, poisson
from measure import Row, Section, Work, interleaved, run
from peers import work as peer_work

warnings.simplefilter("ignore")
RESULTS = Path(__file__).parent / "results" / "accounting.json"
L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)
SIGMA, RATE, DELTA = "0.8", "0.004", 1e-5
TRUE = {1_000: 1.2840, 10_000: 3.5348, 100_000: 13.0703}


def forget() -> None:
    """Empty every cache of the accountant."""
    for name in ("_spread", "_upper_items", "_numeric_up", "_delta_up", "_profile_curves"):
        getattr(composition, name).cache_clear()


def bounds(loss: PrivacyLoss, delta: float) -> tuple[float, float]:
    forget()
    return loss.epsilon_bounds(delta)


def width(low: float, high: float) -> str:
    return f"{low:.5f} … {high:.5f}: {100 * (high - low) / high:.3f}% apart"


def sgd_rows(repeats: int) -> list[Row]:
    """ε of private SGD: upper and lower bound, against dp-accounting and prv-accountant."""
    rows = []
    for steps in TRUE:
        run_loss = steps * poisson(Gaussian(scale=SIGMA).loss(L2), RATE)
        name = f"ε bounds of {steps:g} sampled Gaussian steps"
        low, high = bounds(run_loss, DELTA)
        note = width(low, high)
        asked = {"sigma": float(SIGMA), "rate": float(RATE), "steps": steps, "delta": DELTA}
        theirs = peer_work("dp-accounting", "sampled_gaussians", **asked)
        optimistic = peer_work("dp-accounting", "sampled_gaussians", **asked, optimistic=True)
        ours = (lambda loss=run_loss: bounds(loss, DELTA), 1)
        if theirs is None or optimistic is None:
            (ours_ns,) = interleaved([ours], max(3, repeats // 3))
            rows.append(Row(name=name, ours_ns=ours_ns, other="dp-accounting", other_ns=None, note=note))
        else:
            ours_ns, theirs_ns = interleaved([ours, (theirs, 1)], max(3, repeats // 3))
            upper = Row(name=name, ours_ns=ours_ns, other="dp-accounting, upper only", other_ns=theirs_ns, note=note)
            low_ns, high_ns = interleaved([(optimistic, 1), (theirs, 1)], 1)
            both = Row(
                name=name,
                ours_ns=ours_ns,
                other="dp-accounting, both sides",
                other_ns=low_ns + high_ns,
                note=width(optimistic.value, theirs.value),
            )
            rows += [upper, both]
        rows += prv_rows(steps, name, ours_ns)
    return rows


def prv_rows(steps: int, name: str, ours_ns: float) -> list[Row]:
    theirs = peer_work(
        "prv-accountant",
        "sampled_gaussians",
        sigma=float(SIGMA),
        rate=float(RATE),
        steps=steps,
        delta=DELTA,
        error=0.01 * TRUE[steps],
    )
    if theirs is None:
        return [Row(name=name, ours_ns=ours_ns, other="prv-accountant")]
    if steps > 10_000:
        return []  # half a minute and more
    (taken,) = interleaved([(theirs, 1)], 1)
    return [Row(name=name, ours_ns=ours_ns, other="prv-accountant", other_ns=taken, note=width(*theirs.value))]


def gaussian_rows(repeats: int) -> list[Row]:
    """Ten thousand Gaussians: a closed form."""
    loss = 10_000 * Gaussian(scale=100).loss(L2)
    mu = 1.0
    epsilon = loss.epsilon(DELTA)
    # δ(ε) of the closed form in logarithms, evaluated apart
    from scipy.special import log_ndtr

    delta = math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    note = f"ε = {epsilon:.9f}, δ off by a relative {abs(delta / DELTA - 1):.1e}"
    works: list[tuple[Work, int]] = [(lambda: (10_000 * Gaussian(scale=100).loss(L2)).epsilon(DELTA), 1)]
    theirs = peer_work("dp-accounting", "gaussians", sigma=100.0, times=10_000, delta=DELTA)
    if theirs is not None:
        works.append((theirs, 1))
    times = interleaved(works, max(3, repeats // 3))
    other = times[1] if len(times) > 1 else None
    return [Row(name="ε of 10 000 Gaussians", ours_ns=times[0], other="dp-accounting", other_ns=other, note=note)]


def mixed() -> list[PrivacyLoss]:
    """A thousand different mechanisms: Laplace, Gaussian, randomised response."""
    rng = np.random.default_rng(0)
    losses: list[PrivacyLoss] = []
    for i in range(1000):
        epsilon = Fraction(int(rng.integers(10_000, 100_000)), 10**6)
        kinds = (Laplace, Gaussian)
        losses.append(
            PureLoss(epsilon) if i % 3 == 2 else kinds[i % 3](scale=1 / epsilon).loss(L1 if i % 3 == 0 else L2)
        )
    return losses


def mixed_rows(repeats: int) -> list[Row]:
    """A thousand different mechanisms composed, certified on both sides."""
    loss = compose([(one, 1) for one in mixed()])
    note = width(*bounds(loss, 1e-6))

    def upper_only() -> float:
        forget()
        return loss.epsilon(1e-6)

    times = interleaved([(lambda: bounds(loss, 1e-6), 1), (upper_only, 1)], max(3, repeats // 3))
    return [
        Row(name="1000 different mechanisms, both bounds", ours_ns=times[0], note=note),
        Row(name="1000 different mechanisms, upper bound", ours_ns=times[1]),
    ]


def calibration_rows(repeats: int) -> list[Row]:
    """The smallest σ for ε = 1, δ = 1e-5 over 10 000 sampled steps."""

    def work() -> Gaussian:
        forget()
        return calibrate(Gaussian, Guarantee(1, DELTA), L2, plan=lambda loss: 10_000 * poisson(loss, RATE))

    found = work()
    taken = interleaved([(work, 1)], max(3, repeats // 3))[0]
    return [Row(name="σ of 10 000 sampled steps for ε = 1", ours_ns=taken, note=f"σ = {float(found.scale):.5f}")]


SECTIONS: list[Section] = [sgd_rows, gaussian_rows, mixed_rows, calibration_rows]

if __name__ == "__main__":
    run(__doc__ or "", SECTIONS, RESULTS)
