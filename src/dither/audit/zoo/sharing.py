"""Noise that is shared where it should be fresh, or missing where it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dither.audit.drawing.draws import Batched
from dither.audit.zoo.specimen import Specimen, batched, careless, released, rounded
from dither.mechanisms import DiscreteLaplace, Laplace, PartitionSelection
from dither.privacy import Sensitivity

DELTA = "1/1000"


def two_queries() -> tuple[Specimen, ...]:
    """Two queries of one person each, at ε = ½ each."""
    half = Laplace(2)
    twin = Specimen(
        name="noise-for-each-query",
        family="two-queries",
        source="dither.Laplace",
        mechanism=released(np.array, half.release),
        pairs=(((0.0, 0.0), (1.0, 1.0)),),
        claim=2 * half.loss(Sensitivity.l1(1)),
    )

    def draw(answers: tuple[float, float], n: int) -> Any:
        return rounded(np.array(answers) + careless().laplace(0.0, 2.0, (n, 1)))

    broken = twin.spoilt(
        name="one-noise-for-two-queries",
        mistake="Both answers carry the same noise: their difference carries none.",
        source="folklore: composition needs independent noise",
        mechanism=batched(draw),
        pairs=(((0.0, 0.0), (1.0, 0.0)), ((0.0, 0.0), (1.0, 1.0))),
        typically="the difference of the two outputs",
    )
    return broken, twin


def discovered_keys() -> tuple[Specimen, ...]:
    """Which keys a table holds, when nobody has listed them: (1, 0.001) for people who hold one key each."""
    selection = PartitionSelection(epsilon=1, delta=DELTA)
    alone = ({"common": 5, "rare": 1}, {"common": 5})
    twin = Specimen(
        name="selected-keys",
        family="discovered-keys",
        source="dither.PartitionSelection; Desfontaines, Voss, Gipson & Mandayam 2022",
        mechanism=_selected(selection),
        pairs=(alone, ({"common": 5}, {"common": 4})),
        claim=selection.loss(),
        delta=1e-3,
        remark="A key that one person alone holds is shown with probability δ.",
    )
    broken = twin.spoilt(
        name="keys-without-noise",
        mistake="Counts are noisy, but every key that occurs has one: a key that one person alone holds tells of them.",
        source="Korolova, Kenthapadi, Mishra & Ntoulas 2009",
        mechanism=batched(_counted),
        pairs=(alone,),
        typically="the key is listed",
    )
    return broken, twin


def _selected(selection: PartitionSelection) -> Batched:
    def draw(table: Mapping[str, int], n: int) -> list[tuple[str, ...]]:
        keys = sorted(table)
        shown = selection.release(np.tile([table[key] for key in keys], (n, 1)))
        return [tuple(key for key, kept in zip(keys, row, strict=True) if kept) for row in shown.tolist()]

    return batched(draw)


def _counted(table: Mapping[str, int], n: int) -> list[tuple[tuple[str, int], ...]]:
    keys = sorted(table)
    counts = DiscreteLaplace(1).release(np.tile([table[key] for key in keys], (n, 1)))
    return [tuple(zip(keys, row, strict=True)) for row in counts.tolist()]


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*two_queries(), *discovered_keys())
