"""The curse of dimensionality, measured: what k-anonymity costs as more columns are quasi-identifiers (Aggarwal 2005).

People are spread evenly over d independent columns. A class of k of n people is log2(n/k) halvings away from the whole
table. Halvings are shared among the columns, so that each is cut about log2(n/k)/d times. Once d exceeds log2(n/k),
most columns aren't cut at all: whatever was in them is lost. Columns that depend on each other count as fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dither.anonymize.exposure import exposure
from dither.anonymize.mondrian import mondrian
from dither.errors import InvalidParameter
from dither.numeric import positive_int
from dither.pictures import EXACT, MORE, picture
from dither.progress import Watch, unwatched

COLUMNS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25)
KS = (2, 10, 50)
VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursed:
    """One table: how many columns, how many people are alone, and the information that each k loses (NCP)."""

    columns: int
    unique: float
    loss: dict[int, float]
    theory: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curse:
    """Information lost against the number of quasi-identifiers; a table when printed.

    ``at_random`` is what classes of people drawn by lot would lose: a release that loses as much has gained nothing by
    grouping people who are alike.
    """

    people: int
    rows: tuple[Cursed, ...]
    at_random: dict[int, float]

    def __str__(self) -> str:
        ks = list(self.rows[0].loss)
        lines = [f"{'columns':>7} {'alone':>7}" + "".join(f"{f'k = {k}':>9}" for k in ks)]
        lines += [
            f"{row.columns:>7} {row.unique:>7.1%}" + "".join(f"{row.loss[k]:>9.1%}" for k in ks) for row in self.rows
        ]
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Save the picture: who is alone before, and what is lost so that nobody is.

        Dots were measured, lines are theory; dashed, the loss of classes drawn by lot.
        """
        where = [row.columns for row in self.rows]
        with picture(path, width=9.0, height=4.0) as figure:
            before = figure.add_subplot(1, 2, 1)
            before.plot(where, [100 * row.unique for row in self.rows], "o-", color=EXACT)
            before.set(title=f"alone in a table of {self.people:,}", xlabel="columns known", ylabel="people, %")
            before.set(ylim=(-3, 103))
            after = figure.add_subplot(1, 2, 2)
            for place, k in enumerate(self.rows[0].loss):
                colour = MORE[place % len(MORE)]
                after.plot(where, [100 * row.theory[k] for row in self.rows], "-", color=colour, linewidth=1)
                after.plot(where, [100 * row.loss[k] for row in self.rows], "o", color=colour, label=f"k = {k}")
                after.axhline(100 * self.at_random[k], color=colour, linewidth=1, linestyle="--")
            after.set(title="detail lost so that k are alike", xlabel="quasi-identifiers", ylabel="information loss, %")
            after.set(ylim=(-3, 103))
            after.legend(loc="lower right")


def curse(
    columns: Sequence[int] = COLUMNS,
    *,
    people: int = 10_000,
    ks: Sequence[int] = KS,
    seed: int = 0,
    watch: Watch = unwatched,
) -> Curse:
    """Make tables of ever more columns k-anonymous with Mondrian, and measure what is lost.

    Everybody has a random whole number from 0 to 99 in each column. The loss is the mean share of a column's range that
    a cell of the release covers: 0 is the exact table, 1 says nothing.
    """
    rows, numbers = positive_int(people, "people", least=2), [positive_int(each, "columns") for each in columns]
    sizes = [positive_int(k, "k", least=2) for k in ks]
    if not numbers or not sizes or max(sizes) > rows:
        raise InvalidParameter("at least one number of columns and one k are needed, and no k above the people")
    made = np.random.default_rng(seed).integers(0, VALUES, (max(numbers), rows))
    found = []
    for place, number in enumerate(numbers):
        watch(place / len(numbers), f"{number} columns")
        table = pa.table({f"c{each}": made[each] for each in range(number)})
        names = table.column_names
        loss = {k: mondrian(table, quasi=names, k=k).quality().ncp for k in sizes}
        alone = exposure(table, names)
        theory = {k: expected_loss(number, people=rows, k=k) for k in sizes}
        found.append(Cursed(columns=number, unique=alone.unique / alone.rows, loss=loss, theory=theory))
    # with more columns than halvings almost every column is left whole
    at_random = {k: expected_loss(10**9, people=rows, k=k) for k in sizes}
    return Curse(people=rows, rows=tuple(found), at_random=at_random)


def expected_loss(columns: int, *, people: int, k: int) -> float:
    """What people lose who are spread evenly and continuously over independent columns.

    A part is halved while it has 2k people. After h halvings, shared among d columns as evenly as whole ones can be, a
    side is 2^−(h/d) of its column, and the m people who are left span (m − 1)/(m + 1) of a side on average.

    Example:
        >>> [round(expected_loss(d, people=10_240, k=10), 3) for d in (1, 5, 10, 20)]
        [0.001, 0.205, 0.409, 0.614]
    """
    lost, parts, halvings = 0.0, {people: 1}, 0
    while parts:
        each, more = divmod(halvings, columns)
        side = ((columns - more) * 2.0**-each + more * 2.0 ** -(each + 1)) / columns
        halves: dict[int, int] = {}
        for size, number in parts.items():
            if size < 2 * k:
                lost += number * size * side * (size - 1) / (size + 1)
                continue
            for half in (size // 2, size - size // 2):
                halves[half] = halves.get(half, 0) + number
        parts, halvings = halves, halvings + 1
    return lost / people
