"""Private training with the steps in the wrong order, or priced by a formula that holds for small ε only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dither.audit.zoo.specimen import Specimen, batched, careless, one_by_one, released, rounded
from dither.mechanisms import Gaussian, Laplace, Subsampled
from dither.mechanisms.base import Floats
from dither.privacy import PureLoss, Sensitivity

# One training step: gradients are clipped to this length, the noise is as large, the sum is divided by a public number.
CLIP, NOISE, LOT = 1.0, 1.0, 4
EPSILON, RATE = 3, "1/10"

Example = tuple[tuple[float, float], float]
ORDINARY: tuple[Example, ...] = (((1.0, 0.5), 0.25), ((0.5, 1.0), -0.25), ((-0.5, 0.25), 0.125))
OUTLIER: Example = ((64.0, 0.0), -64.0)


def _gradients(batch: Sequence[Example]) -> Floats:
    """Of the squared error of a linear model that starts at zero: −2·target·features."""
    features = np.array([x for x, _ in batch])
    targets = np.array([y for _, y in batch])
    return np.asarray(-2 * targets[:, None] * features)


def _clipped(gradients: Floats) -> Floats:
    lengths = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return np.asarray(gradients / np.maximum(1.0, lengths / CLIP))


def clipping() -> tuple[Specimen, ...]:
    """One step on a batch of a few examples with one outlier, against the curve of Gaussian noise as large as the clip.

    The batch isn't sampled, so the loss is that of the noise alone.
    """
    noise = Gaussian(NOISE * CLIP)

    def step(sums: Floats) -> Floats:
        return np.asarray(noise.release(sums) / LOT)

    twin = Specimen(
        name="clipping-each-gradient",
        family="clipping",
        source="dither.Gaussian; Abadi et al. 2016",
        mechanism=released(lambda batch: _clipped(_gradients(batch)).sum(axis=0), step),
        pairs=(((*ORDINARY, OUTLIER), ORDINARY),),
        claim=noise.loss(Sensitivity.l2(CLIP)),
        delta=1e-3,
        remark="Clip each gradient, add them up, add noise, divide by a public number.",
    )

    def late(batch: Sequence[Example], n: int) -> Floats:
        average = _gradients(batch).sum(axis=0) / LOT
        return rounded(_clipped(average) + careless().normal(0.0, NOISE * CLIP / LOT, (n, average.size)))

    broken = twin.spoilt(
        name="clipping-after-averaging",
        mistake="The average gradient is clipped in place of each one: a single outlier turns it by up to twice the "
        "clip, while the noise is for the clip over the size of the batch.",
        source="folklore; compare Abadi et al. 2016, algorithm 1",
        mechanism=batched(late),
        typically="the direction of the noisy gradient",
    )
    return broken, twin


def sampling() -> tuple[Specimen, ...]:
    """One step on a secret sample of a tenth of the rows, with noise that costs ε = 3 without the sampling."""
    step = Subsampled(Laplace(f"1/{EPSILON}"), RATE)

    def sampled(rows: Sequence[float]) -> Any:
        return step.release(np.array(rows, dtype=np.float64), math.fsum)

    twin = Specimen(
        name="sampled-step",
        family="sampled-step",
        source="dither.Subsampled; Zhu, Dong & Wang 2022",
        mechanism=one_by_one(sampled),
        pairs=(((1.0,), ()),),
        claim=step.loss(Sensitivity.l1(1)),
        seconds=10.0,
        remark="Priced exactly: ln(1 + q(e^ε − 1)) = 1.07 for one step.",
    )

    def draw(rows: Sequence[float], n: int) -> Floats:
        generator = careless()
        taken = generator.random((n, len(rows))) < float(1 / 10)
        return rounded((taken * np.array(rows)).sum(axis=1) + generator.laplace(0.0, 1 / EPSILON, n))

    broken = twin.spoilt(
        name="sampled-step-priced-in-proportion",
        mistake="A step on a tenth of the rows was priced at qε = 0.3; it costs ln(1 + q(e^ε − 1)) = 1.07, which is "
        "about qε for small ε only.",
        source="lecture notes; compare Balle, Barthe & Gaboardi 2018",
        mechanism=batched(draw),
        claim=PureLoss("3/10"),
        typically="an output that only a sampled row explains",
    )
    return broken, twin


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*clipping(), *sampling())
