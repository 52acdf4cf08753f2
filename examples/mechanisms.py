"""Four mechanisms and a survey on a hospital that is made up, with costs and error bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import dither as dp

if TYPE_CHECKING:
    from dither.mechanisms.base import Floats

WARDS = ("cardiology", "maternity", "oncology", "surgery", "paediatrics")
PATIENTS = 5000
BAR = 40


def main() -> None:
    """Make a hospital up, release five facts about it, and say what they cost together."""
    # the data is made up, so a plain generator does; noise never comes from it
    maker = np.random.default_rng(2026)
    ward = maker.choice(len(WARDS), size=PATIENTS, p=(0.3, 0.1, 0.15, 0.35, 0.1))
    stay = np.minimum(maker.gamma(2.0, 3.0, size=PATIENTS), 60.0)
    smoker = maker.random(PATIENTS) < 0.23
    print(f"A hospital of {PATIENTS} patients, made up for this tour. Every patient is one privacy unit.\n")
    spent = [_count(), _histogram(ward), _total_stay(stay), _median_stay(stay)]
    total = dp.compose([(loss, 1) for loss in spent])
    _summary(total)
    _survey(smoker)


def _count() -> dp.PrivacyLoss:
    """One number, calibrated to a guarantee."""
    mechanism = dp.calibrate(dp.DiscreteLaplace, dp.Guarantee(epsilon=0.5), dp.Sensitivity.l1(1))
    loss = mechanism.loss(dp.Sensitivity.l1(1))
    error = mechanism.error(confidence=0.95)
    print(f"1. How many patients?   ε = {loss.pure():g}, and it will be within ±{error:g} with 95% confidence:")
    print(f"   {mechanism.release(PATIENTS)} ± {error:g}      (truth: {PATIENTS})\n")
    return loss


def _histogram(ward: Any) -> dp.PrivacyLoss:
    """Counts by group: one patient is in one group, so all counts cost as much as one."""
    mechanism = dp.calibrate(dp.DiscreteLaplace, error=20, confidence=0.95)
    loss = mechanism.loss(dp.Sensitivity.l1(1))
    error = mechanism.error(confidence=0.95)
    print(f"2. Patients by ward, wanted within ±20: the smallest ε that does it is {loss.pure():.3f}.")
    exact = np.bincount(ward, minlength=len(WARDS))
    noisy = mechanism.release(exact)
    for name, count, truth in zip(WARDS, noisy, exact, strict=True):
        print(f"   {name:<12} {_bar(count, error, float(exact.max()))} {count:>5} ± {error:g}   (truth: {truth})")
    print()
    return loss


def _total_stay(stay: Floats) -> dp.PrivacyLoss:
    """A sum: values clamped to public bounds and added up as whole tenths, so that no float sum can leak."""
    tenths = int(np.rint(10 * np.clip(stay, 0, 60)).astype(np.int64).sum())
    sensitivity = dp.Sensitivity.l2(600)
    mechanism = dp.calibrate(dp.Gaussian, dp.Guarantee(epsilon=0.5, delta=1e-6), sensitivity)
    error = mechanism.error(confidence=0.95) / 10
    answer = mechanism.release(tenths) / 10
    print(f"3. Days in hospital altogether, stays clamped to 60 days: ε = 0.5, δ = 1e-6, within ±{error:.0f}:")
    print(f"   {answer:.1f} ± {error:.0f}      (truth: {tenths / 10:.1f})\n")
    return mechanism.loss(sensitivity)


def _median_stay(stay: Floats) -> dp.PrivacyLoss:
    """A median by the exponential mechanism, with an error in ranks."""
    mechanism = dp.Quantile(scale=4, bounds=(0, 60), step="0.1")
    loss = mechanism.loss()
    ranks = mechanism.error(0.95)
    print(f"4. The median stay in days: ε = {loss.pure():g}, off by at most {ranks:.0f} of {PATIENTS} ranks:")
    print(f"   {mechanism.release(stay):.1f}      (truth: {np.median(stay):.1f})\n")
    return loss


def _summary(total: dp.PrivacyLoss) -> None:
    low, high = total.epsilon_bounds(delta=1e-6)
    guarantee = dp.Guarantee(epsilon=high, delta=1e-6)
    print(f"Together these cost ε = {high:.3f} at δ = 1e-6 (certified: no less than {low:.3f}). In words:")
    print(f"   {guarantee.sentence(prior=0.1)}\n")


def _survey(smoker: Any) -> None:
    """Nobody trusted: every patient randomises their own answer."""
    mechanism = dp.RandomizedResponse(lie="1/4")
    answers = mechanism.release(smoker)
    estimate = mechanism.estimate(answers, confidence=0.95)
    low, high = estimate.interval
    cost = mechanism.loss().pure()
    print(f"5. A survey where nobody is trusted: every patient lies with probability 1/4, ε = {cost:.3f}.")
    print(f"   smokers: {100 * estimate.value:.1f}%, between {100 * low:.1f}% and {100 * high:.1f}%", end="")
    print(f"      (truth: {100 * smoker.mean():.1f}%)")


def _bar(count: float, error: float, most: float) -> str:
    """The count as a bar whose light end is the error."""
    sure = max(0, round(BAR * (count - error) / (most * 1.1)))
    end = max(sure, min(BAR, round(BAR * (count + error) / (most * 1.1))))
    return "█" * sure + "▒" * max(1, end - sure) + " " * (BAR - max(end, sure + 1))


if __name__ == "__main__":
    main()
