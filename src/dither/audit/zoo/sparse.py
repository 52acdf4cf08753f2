"""The sparse vector technique in six published variants, of which four aren't private.

Numbered as in figure 1 of Lyu, Su & Li 2017, at ε = 1, sensitivity 1 and threshold 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.audit.drawing.draws import Batched
from dither.audit.zoo.specimen import Pair, Specimen, batched, careless, rounded
from dither.mechanisms import SparseVector
from dither.privacy import PureLoss, Sensitivity

BELOW, ABOVE, SILENT = 0, 1, -1
ONE = Sensitivity.linf(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The scales of one variant: how often it says above before it stops (None: never stops), and fresh thresholds."""

    threshold_scale: float
    query_scale: float
    count: int | None = 1
    fresh_threshold: bool = False

    def transcripts(self, queries: Sequence[float], n: int) -> npt.NDArray[np.int8]:
        """One row for each run: above or below for every query, silence after the end."""
        generator, length = careless(), len(queries)
        noisy = np.asarray(queries) + (
            generator.laplace(0.0, self.query_scale, (n, length)) if self.query_scale else np.zeros((n, length))
        )
        level = generator.laplace(0.0, self.threshold_scale, n)
        said = np.full((n, length), SILENT, dtype=np.int8)
        left = np.full(n, length if self.count is None else self.count)
        for place in range(length):
            running, above = left > 0, noisy[:, place] >= level
            said[running, place] = np.where(above[running], ABOVE, BELOW)
            left -= running & above
            if self.fresh_threshold:
                level = np.where(running & above, generator.laplace(0.0, self.threshold_scale, n), level)
        return said

    def values(self, queries: Sequence[float], n: int) -> npt.NDArray[np.float64]:
        """One row for each run: the very number that was compared, for the first query above; else no number."""
        generator, length = careless(), len(queries)
        noisy = np.asarray(queries) + generator.laplace(0.0, self.query_scale, (n, length))
        above = noisy >= generator.laplace(0.0, self.threshold_scale, n)[:, None]
        first = above & (np.cumsum(above, axis=1) == 1)
        return np.where(first, rounded(noisy), np.nan)


def _turned(first: int, second: int, times: int = 1) -> Pair:
    """Some queries rise by 1 where others fall by 1: below at the former and above at the latter tells most."""
    low, high = (0.0,) * first + (1.0,) * second, (1.0,) * first + (0.0,) * second
    return low * times, high * times


def _dither(mechanism: SparseVector) -> Batched:
    def draw(queries: Sequence[float], n: int) -> Any:
        exact = np.asarray(queries)
        said = np.full((n, exact.size), SILENT, dtype=np.int8)
        for row in said:
            answers = mechanism.release(exact, 0)
            row[: answers.size] = answers
        return said

    return batched(draw)


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    exact = SparseVector(threshold_scale=2, query_scale=4)
    source = "dither.SparseVector; Lyu, Su & Li 2017, algorithm 7"
    twin = Specimen.right("sparse-vector", exact, ONE, _turned(6, 1), draw=_dither(exact), source=source, seconds=10.0)
    first = Specimen(
        name="sparse-vector-1",
        family="sparse-vector",
        source="Lyu, Su & Li 2017, algorithm 1",
        mechanism=batched(Variant(threshold_scale=2, query_scale=4).transcripts),
        pairs=twin.pairs,
        claim=PureLoss(1),
    )
    second = replace(
        first,
        name="sparse-vector-2",
        source="Lyu, Su & Li 2017, algorithm 2; Dwork & Roth 2014",
        mechanism=batched(Variant(threshold_scale=4, query_scale=8, count=2, fresh_threshold=True).transcripts),
        pairs=(_turned(4, 1, times=2),),
        remark="A fresh threshold after every hit costs noise and isn't needed.",
    )
    third = first.spoilt(
        name="sparse-vector-3",
        mistake="The noisy number that passed the threshold is told: it shows how low the threshold was that all "
        "queries before stayed under, so no finite ε holds.",
        source="Lyu, Su & Li 2017, algorithm 3; Roth 2011",
        mechanism=batched(Variant(threshold_scale=2, query_scale=2).values),
        pairs=(_turned(4, 1),),
        typically="a low value at the last query",
        seconds=20.0,
    )
    fourth = first.spoilt(
        name="sparse-vector-4",
        mistake="The noise of the queries doesn't grow with the number c of hits, so it is only (1 + 6c)/4·ε-private.",
        source="Lyu, Su & Li 2017, algorithm 4; Lee & Clifton 2014",
        mechanism=batched(Variant(threshold_scale=4, query_scale=4 / 3, count=3).transcripts),
        pairs=(_turned(4, 4), _turned(3, 3)),
        typically="some queries below, then as many above as are allowed",
        seconds=20.0,
    )
    fifth = first.spoilt(
        name="sparse-vector-5",
        mistake="The queries carry no noise: two that change places across one threshold can't give the same "
        "transcript, so no finite ε holds.",
        source="Lyu, Su & Li 2017, algorithm 5; Stoddard, Chen & Machanavajjhala 2014",
        mechanism=batched(Variant(threshold_scale=2, query_scale=0, count=None).transcripts),
        pairs=(_turned(1, 1),),
        typically="the first query below and the second above",
        seconds=20.0,
    )
    sixth = first.spoilt(
        name="sparse-vector-6",
        mistake="It never stops: every query above the threshold tells more, so no finite ε holds.",
        source="Lyu, Su & Li 2017, algorithm 6; Chen, Xiao, Zhang & Xu 2015",
        mechanism=batched(Variant(threshold_scale=2, query_scale=2, count=None).transcripts),
        pairs=(_turned(4, 4), _turned(3, 3)),
        typically="one half of the queries below and the other above",
        seconds=20.0,
    )
    return third, fourth, fifth, sixth, twin, first, second
