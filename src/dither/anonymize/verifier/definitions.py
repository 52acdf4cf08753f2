"""The privacy models a second time, word for word from their papers and one class at a time, for the verifier.

Slow and plain on purpose: nothing here is shared with the code that releases are made with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from dither.errors import InvalidParameter

WIDE = 1 << 62


def satisfies(
    model: Model, size: int, counts: dict[int, int], overall: Sequence[int], levels: Sequence[Sequence[int]] | None
) -> bool:
    """Whether one class satisfies a model.

    ``counts`` has the number of rows of each sensitive value of the class, by its place in ``overall``, which has that
    of the whole table, in order; ``levels`` the group of each value at each level of its hierarchy.
    """
    if isinstance(model, KAnonymity):
        return size >= model.k
    if isinstance(model, DistinctDiversity):
        return len(counts) >= model.l
    if isinstance(model, EntropyDiversity):
        return _entropy_reaches(list(counts.values()), size, model.l)
    if isinstance(model, RecursiveDiversity):
        r = sorted(counts.values(), reverse=True)
        return r[0] < model.c * sum(r[model.l - 1 :])
    if isinstance(model, TCloseness):
        return _distance(model.distance, size, counts, overall, levels) <= model.t
    if isinstance(model, DeltaDisclosure):
        return _little_disclosed(model, size, counts, overall)
    if isinstance(model, BetaLikeness):
        return _alike(model, size, counts, overall)
    raise InvalidParameter(f"the verifier has no definition of {model.sentence()}")


def _entropy_reaches(counts: list[int], size: int, least: Fraction) -> bool:
    """−Σ p ln p ≥ ln l, with sixty digits where floats can't tell."""
    entropy = -math.fsum(count / size * math.log(count / size) for count in counts)
    gap = entropy - math.log(least)
    if abs(gap) > 1e-8:
        return gap > 0
    with localcontext() as context:
        context.prec = 60
        shares = [Decimal(count) / Decimal(size) for count in counts]
        exact = -sum((share * share.ln() for share in shares), Decimal(0))
        return exact - (Decimal(least.numerator) / Decimal(least.denominator)).ln() > Decimal("-1e-50")


def _distance(
    distance: Distance,
    size: int,
    counts: dict[int, int],
    overall: Sequence[int],
    levels: Sequence[Sequence[int]] | None,
) -> Fraction:
    """The earth mover's distance between a class and the whole table (Li, Li & Venkatasubramanian 2007)."""
    total, values = sum(overall), len(overall)
    kind: Any = np.int64 if 4 * size * total * max(1, values) < WIDE else object
    p = np.zeros(values, kind)
    p[list(counts)] = list(counts.values())
    # p − q over the common denominator
    extra: npt.NDArray[Any] = p * total - np.array(overall, kind) * size
    if distance is Distance.EQUAL:
        return Fraction(int(np.abs(extra).sum()), 2 * size * total)
    if distance is Distance.ORDERED:
        return Fraction(int(np.abs(np.cumsum(extra)).sum()), size * total * max(1, values - 1))
    if levels is None:
        raise InvalidParameter("the hierarchical distance needs a hierarchy of the sensitive column")
    height, cost = len(levels) - 1, 0
    for level in range(1, height + 1):
        below, above = np.asarray(levels[level - 1]), np.asarray(levels[level])
        children = np.zeros(int(below.max()) + 1, kind)
        np.add.at(children, below, extra)
        parent = np.zeros(children.size, np.int64)
        parent[below] = above
        surplus, deficit = np.zeros(int(above.max()) + 1, kind), np.zeros(int(above.max()) + 1, kind)
        np.add.at(surplus, parent, np.maximum(children, 0))
        np.add.at(deficit, parent, np.maximum(-children, 0))
        cost += level * int(np.minimum(surplus, deficit).sum())
    return Fraction(cost, size * total * height)


def _little_disclosed(model: DeltaDisclosure, size: int, counts: dict[int, int], overall: Sequence[int]) -> bool:
    total = sum(overall)
    for value, whole in enumerate(overall):
        here = counts.get(value, 0)
        if not here:
            if whole and not model.ignore_absent:
                return False
            continue
        if not whole or abs(math.log(Fraction(here * total, size * whole))) >= model.delta:
            return False
    return True


def _alike(model: BetaLikeness, size: int, counts: dict[int, int], overall: Sequence[int]) -> bool:
    total = sum(overall)
    for value, here in counts.items():
        p, q = Fraction(here, size), Fraction(overall[value], total)
        if p <= q:
            continue
        if not q or (p - q) / q > model.beta:
            return False
        if model.enhanced and float((p - q) / q) > -math.log(q):
            return False
    return True
