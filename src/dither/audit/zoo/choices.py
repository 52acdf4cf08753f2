"""Choosing one of several candidates: the exponential mechanism and the noisy maximum, with half the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dither.audit.drawing.draws import Batched
from dither.audit.zoo.specimen import Specimen, batched, careless, one_by_one, rounded
from dither.mechanisms import Exponential, NoisyMax
from dither.privacy import Sensitivity

ONE = Sensitivity.linf(1)


def _one_against(others: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One score falls by 1 while all others rise by 1: with many others this comes near the worst case."""
    return (1.0, *[0.0] * others), (0.0, *[1.0] * others)


def exponential() -> tuple[Specimen, ...]:
    """The exponential mechanism at ε = 1 for scores that move by up to 1, either way."""
    exact, source = Exponential(scale=2), "dither.Exponential; McSherry & Talwar 2007"
    pairs, draw = (_one_against(1), _one_against(9)), one_by_one(exact.release)
    twin = Specimen.right("exponential", exact, ONE, *pairs, draw=draw, source=source, seconds=10.0)
    broken = twin.spoilt(
        name="exponential-without-the-two",
        mistake="Candidates are drawn in proportion to e^{ε·score/Δ}; one score may rise while the others fall, so "
        "for a general score that is 2ε-private, and ε needs e^{ε·score/2Δ}.",
        source="lecture notes; compare McSherry & Talwar 2007",
        mechanism=batched(_by_weight),
        pairs=(_one_against(9),),
        typically="one candidate is chosen",
    )
    return broken, twin


def _by_weight(scores: Sequence[float], n: int) -> Any:
    weights = np.exp(np.asarray(scores))
    chances = np.cumsum(weights / weights.sum())
    return np.minimum(np.searchsorted(chances, careless().random(n), side="right"), len(scores) - 1)


def _noisy(scores: Sequence[float], n: int, scale: float) -> Any:
    return np.asarray(scores) + careless().laplace(0.0, scale, (n, len(scores)))


def _largest(scale: float) -> Batched:
    return batched(lambda scores, n: _noisy(scores, n, scale).argmax(axis=1))


def noisy_max() -> tuple[Specimen, ...]:
    """Report noisy max at ε = 1."""
    anyhow, monotone = NoisyMax(scale=2), NoisyMax(scale=1, monotone=True)
    twin = Specimen.right(
        "noisy-max",
        anyhow,
        ONE,
        _one_against(9),
        draw=one_by_one(anyhow.release),
        source="dither.NoisyMax; Dwork & Roth 2014, claim 3.9",
        seconds=10.0,
        remark="Lap(2/ε) for queries that move either way.",
    )
    counts = replace(
        twin,
        name="noisy-max-of-counts",
        mechanism=one_by_one(monotone.release),
        pairs=(((0.0,) * 10, (0.0, *[1.0] * 9)),),
        claim=monotone.loss(ONE),
        remark="Lap(1/ε) is right for counts: a person who is added lowers none of them.",
    )
    halved = twin.spoilt(
        name="noisy-max-with-half-the-noise",
        mistake="Lap(1/ε) is right for counts, which all move the same way; these queries don't, so it is 2ε-private.",
        source="lecture notes; compare Dwork & Roth 2014, claim 3.9",
        mechanism=_largest(1.0),
        pairs=(_one_against(9), ((3.0, 0.0), (2.0, 1.0))),
        typically="one candidate wins",
    )
    told = twin.spoilt(
        name="noisy-max-that-tells-the-value",
        mistake="The largest noisy value is returned in place of its index: every query has moved, and a low maximum "
        "tells about all of them at once.",
        source="Ding, Wang, Wang, Zhang & Kifer 2018",
        mechanism=batched(lambda scores, n: rounded(_noisy(scores, n, 2.0).max(axis=1))),
        pairs=(((0.0,) * 10, (1.0,) * 10),),
        typically="a low maximum",
    )
    return halved, told, twin, counts


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*exponential(), *noisy_max())
