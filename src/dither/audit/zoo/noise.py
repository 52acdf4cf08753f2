"""Additive noise that is too small, made of floats, or calibrated with the wrong formula.

Also printed, and private though wasteful: σ = 2·ln(1.25/δ)·Δ/ε, from which a square root is missing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dither.audit.drawing.draws import Batched
from dither.audit.result import Assumption
from dither.audit.zoo.specimen import Specimen, batched, careless, laplace_of, rounded
from dither.mechanisms import DiscreteLaplace, Gaussian, Laplace
from dither.mechanisms.base import Floats
from dither.numeric import log_up
from dither.privacy import ApproximateLoss, Guarantee, Sensitivity, calibrate

EPSILON, DELTA = 12, Fraction(1, 100_000)


def laplace() -> tuple[Specimen, ...]:
    """Laplace noise at ε = 1 on a number that one person moves by 1."""
    twin = Specimen.right("laplace", Laplace(1), Sensitivity.l1(1), (0.0, 1.0))
    return (
        *(_short(twin, percent, seconds) for percent, seconds in ((20, 10.0), (10, 10.0), (2, 30.0))),
        twin.spoilt(
            name="laplace-in-floats",
            mistake="The noise is a float added to a float: which numbers can come out, and how fine their last bits "
            "are, depends on the answer that was to be hidden.",
            source="Mironov 2012; Haney et al. 2022",
            mechanism=batched(lambda x, n: x + careless().laplace(0.0, 1.0, n)),
            typically="the lowest set bit of the output",
        ),
        twin.spoilt(
            name="laplace-with-one-seed",
            mistake="Every call seeds the generator alike, so the noise is one number that anybody can subtract.",
            source="Garfinkel & Leclerc 2020",
            mechanism=batched(_one_seed),
            typically="the one output that this input has, which the other never gives",
        ),
        twin,
    )


def _short(twin: Specimen, percent: int, seconds: float) -> Specimen:
    share = 1 - percent / 100
    return twin.spoilt(
        name=f"laplace-{percent}-percent-short",
        mistake=f"The scale is {percent}% below sensitivity/ε, so the true ε is {1 / share:.4g} times the claimed one.",
        source="Dwork, McSherry, Nissim & Smith 2006",
        mechanism=laplace_of(float, share),
        typically="an output beyond one of the two answers",
        seconds=seconds,
    )


def _one_seed(x: float, n: int) -> Floats:
    # a generator made anew for each of the n calls would draw this number n times
    return rounded(np.full(n, x + np.random.default_rng(42).laplace(0.0, 1.0)))


def factor() -> tuple[Specimen, ...]:
    """(ε, δ)-privacy printed as P ≤ ε·Q + δ; the factor is e^ε."""
    likelier = 2
    twin = Specimen.right(
        "laplace-at-most-twice",
        Laplace(1 / Fraction(log_up(Fraction(likelier)))),
        Sensitivity.l1(1),
        (0.0, 1.0),
        family="factor",
        remark="Scale 1/ln 2: no output is more than twice as likely.",
    )
    broken = twin.spoilt(
        name="epsilon-read-as-a-factor",
        mistake="Privacy was read as P ≤ ε·Q: with ε = 2 outputs should be at most twice as likely, but the noise of "
        "scale 1/ε allows e^ε = 7.4 times.",
        source="lecture notes; compare Dwork, Kenthapadi, McSherry, Mironov & Naor 2006",
        mechanism=laplace_of(float, 1 / likelier),
        typically="an output beyond one of the two answers",
    )
    return broken, twin


def geometric() -> tuple[Specimen, ...]:
    """Whole-number noise at ε = 1 on a count."""
    twin = Specimen.right("geometric", DiscreteLaplace(1), Sensitivity.l1(1), (0, 1))
    broken = twin.spoilt(
        name="geometric-10-percent-short",
        mistake="The ratio of the geometric noise is e^−1.1 where e^−1 was claimed.",
        source="Ghosh, Roughgarden & Sundararajan 2009",
        mechanism=_two_geometric(1.1),
        typically="an output beyond one of the two answers",
    )
    return broken, twin


def _two_geometric(epsilon: float) -> Batched:
    def draw(x: int, n: int) -> Any:
        generator, success = careless(), -math.expm1(-epsilon)
        return x + generator.geometric(success, n) - generator.geometric(success, n)

    return batched(draw)


def _normal(scale: float) -> Batched:
    return batched(lambda x, n: rounded(x + careless().normal(0.0, scale, n)))


def gaussian() -> tuple[Specimen, ...]:
    """Gaussian noise against its own curve."""
    twin = Specimen.right("gaussian", Gaussian(1), Sensitivity.l2(1), (0.0, 1.0), delta=1e-3)
    broken = twin.spoilt(
        name="gaussian-10-percent-short",
        mistake="σ is 10% below the one whose curve is claimed.",
        source="Balle & Wang 2018",
        mechanism=_normal(0.9),
        typically="an output on the far side of one of the two answers",
    )
    return broken, twin


def gaussian_calibration() -> tuple[Specimen, ...]:
    """Gaussian noise calibrated to (12, 1e-5).

    At that δ the telling event has probability 1.5e-4 under one input and 6e-10 under the other: no number of draws
    that fits in a minute reaches it, so these three are audited on the assumption that outputs are normal.
    """
    exact = calibrate(Gaussian, Guarantee(EPSILON, DELTA), Sensitivity.l2(1))
    square = 2 * math.log(1.25 / DELTA)
    twin = Specimen(
        name="gaussian-calibrated-exactly",
        family="gaussian-calibration",
        source="dither.calibrate; Balle & Wang 2018",
        mechanism=exact,
        pairs=((0.0, 1.0),),
        claim=ApproximateLoss(EPSILON, DELTA),
        delta=float(DELTA),
        assuming=Assumption.NORMAL,
        remark="σ = 0.4316: the smallest that is (12, 1e-5)-private.",
    )
    wasteful = replace(
        twin,
        name="gaussian-without-the-root",
        source="lecture notes; compare Dwork & Roth 2014, theorem A.1",
        mechanism=_normal(square / EPSILON),
        remark="σ = 2·ln(1.25/δ)/ε, a square root missing: printed wrong, private all the same, and far too noisy.",
    )
    broken = twin.spoilt(
        name="gaussian-classical-constant",
        mistake="σ = √(2·ln(1.25/δ))/ε is proven for ε ≤ 1 only; at δ = 1e-5 it fails from about ε = 9, and at ε = 12 "
        "the true ε is 13.05.",
        source="Dwork & Roth 2014, theorem A.1; Balle & Wang 2018",
        mechanism=_normal(math.sqrt(square) / EPSILON),
        typically="the ratio of shift to standard deviation, assuming normal outputs",
    )
    return broken, twin, wasteful


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*laplace(), *factor(), *geometric(), *gaussian(), *gaussian_calibration())
