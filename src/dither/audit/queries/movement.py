"""Movement: how far one unit moved what a question measures, as a share of what its price assumed.

A share of 1 says that the claim is tight: a table exists in which one unit does all that it may.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dither.audit.queries.neighbours import Group, bin_changes, groups_of, moved_groups, numbers_of
from dither.mechanisms import DiscreteGaussian
from dither.privacy import Adjacency
from dither.query.aggregates.base import Cell
from dither.query.kinds import Column, columns
from dither.query.measure.measures import Measured, Total, WeightedTotals
from dither.query.plan.plan import BoundQuestion
from dither.query.price.noise import Priced


@dataclass(frozen=True, slots=True)
class Movement:
    """What moved, in words, and how far relative to its claim."""

    what: str
    share: float


def movements(
    priced: Priced, before: Measured, after: Measured, *, among: Collection[Group] | None = None
) -> tuple[float, ...]:
    """The share of its claim by which each block of cells, each histogram and the selection of keys moved, in order.

    Cells in the norm of their noise. ``among`` looks at some groups only.
    """

    def seen(group: Group) -> bool:
        return among is None or group in among

    shares = []
    for block in priced.lowered.blocks:
        changes = []
        for cell in (priced.lowered.cells[place] for place in block):
            old, new = numbers_of(priced, cell, before), numbers_of(priced, cell, after)
            moved = moved_groups(priced, old, new, before, after)
            changes += [change for group, change in moved.items() if seen(group)]
        reach = priced.reaches[block[0]]
        if isinstance(priced.noise[block[0]], DiscreteGaussian):
            shares.append(math.sqrt(sum(change**2 for change in changes) / reach.l2_squared))
        else:
            shares.append(sum(map(abs, changes)) / reach.l1)
    span, sides = priced.lowered.span, 1 if priced.adjacency is Adjacency.ADD_REMOVE else 2
    for place in range(len(priced.measurement.bins)):
        found = bin_changes(priced, before, after, place)
        rows = sum(abs(change) for group, bins in found.items() if seen(group) for change in bins.values())
        shares.append(rows / (sides * priced.measurement.rows * span.groups))
    if priced.lowered.units is not None:
        place = priced.lowered.units
        moved = moved_groups(priced, before.totals[place], after.totals[place], before, after)
        most = span.groups if sides == 1 else span.most_moved
        shares.append(sum(seen(group) for group in moved) / most)
    return tuple(shares)


def surely_shown(priced: Priced, before: Measured, after: Measured) -> set[Group] | None:
    """The groups that an answer shows on both sides; None where that is all of them, since they are public."""
    if priced.lowered.units is None or priced.selection is None:
        return None
    enough, place = priced.selection.enough, priced.lowered.units
    sides = []
    for measured in (before, after):
        counts = zip(groups_of(priced, measured), measured.totals[place].tolist(), strict=True)
        sides.append({group for group, count in counts if count >= enough})
    return sides[0] & sides[1]


def in_words(priced: Priced, question: BoundQuestion) -> tuple[str, ...]:
    """What each of the ``movements`` is about: the column of the answer, and what of it is counted or added up."""
    names = _columns_of_cells(priced, question)
    cells = [
        f"{', '.join(names.get(block[0], ['a cell']))}: {_sort([priced.lowered.cells[place] for place in block])}"
        for block in priced.lowered.blocks
    ]
    counted = {choice.bins: choice.counts for choice in priced.lowered.choices}
    bins = [counted[place] for place in range(len(priced.measurement.bins))]
    keys = ["the units of each discovered key"] if priced.lowered.units is not None else []
    return (*cells, *bins, *keys)


def _columns_of_cells(priced: Priced, question: BoundQuestion) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for output in question.shape.outputs:
        used = {name.partition(".")[0] for name in columns(output.expression) if name.startswith("a")}
        plain = isinstance(output.expression, Column)
        for name in sorted(used):
            for cell in priced.lowered.recipes[int(name[1:])].cells:
                label = output.name if plain else f"{output.name} (computed)"
                if label not in found.setdefault(cell, []):
                    found[cell].append(label)
    return found


def _sort(block: Sequence[Cell]) -> str:
    cell, *others = block
    if others:
        degree = (
            max(len(total.factors) for total, _ in cell.exact.parts) if isinstance(cell.exact, WeightedTotals) else 1
        )
        return f"sums of {'products of ' if degree > 1 else ''}the distances from both bounds"
    if not isinstance(cell.exact, Total):
        return "different values"
    return ("count", "sum", "sum of products")[min(len(cell.exact.factors), 2)]
