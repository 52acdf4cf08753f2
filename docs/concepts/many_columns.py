"""The curse of dimensionality, measured: what k-anonymity costs as more columns are quasi-identifiers (Aggarwal 2005).

People are spread evenly over d independent columns. A class of k of n people is log2(n/k) halvings away from the whole
table. Halvings are shared among the columns, so that each is cut about log2(n/k)/d times. Once d exceeds log2(n/k),
most columns aren't cut at all: whatever was in them is lost. Columns that depend on each other count as fewer.

    python many_columns.py curse-of-dimensionality.svg
"""

import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dither.anonymize import mondrian
from dither.anonymize.risks.attackers import exposure
from dither.pictures import EXACT, MORE, picture

VALUES = 100


@dataclass(frozen=True)
class Cursed:
    """One table: how many columns, how many people are alone, and the information that each k loses (NCP)."""

    columns: int
    unique: float
    loss: dict
    theory: dict


@dataclass(frozen=True)
class Curse:
    """Information lost against the number of quasi-identifiers; a table when printed.

    ``at_random`` is what classes of people drawn by lot would lose: a release that loses as much has gained nothing by
    grouping people who are alike.
    """

    people: int
    rows: list
    at_random: dict

    def __str__(self):
        ks = list(self.rows[0].loss)
        lines = [f"{'columns':>7} {'alone':>7}" + "".join(f"{f'k = {k}':>9}" for k in ks)]
        lines += [
            f"{row.columns:>7} {row.unique:>7.1%}" + "".join(f"{row.loss[k]:>9.1%}" for k in ks) for row in self.rows
        ]
        return "\n".join(lines)

    def draw(self, path):
        """Who is alone before, and what is lost so that nobody is: dots were measured, lines are theory."""
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


def curse(columns=(1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25), *, people=10_000, ks=(2, 10, 50), seed=0):
    """Make tables of ever more columns k-anonymous with Mondrian, and measure what is lost.

    Everybody has a random whole number from 0 to 99 in each column. The loss is the mean share of a column's range that
    a cell of the release covers: 0 is the exact table, 1 says nothing.
    """
    made = np.random.default_rng(seed).integers(0, VALUES, (max(columns), people))
    found = []
    for number in columns:
        table = pa.table({f"c{each}": made[each] for each in range(number)})
        names = table.column_names
        loss = {k: mondrian(table, quasi=names, k=k).quality().ncp for k in ks}
        alone = exposure(table, names)
        theory = {k: expected_loss(number, people=people, k=k) for k in ks}
        found.append(Cursed(number, alone.unique / alone.rows, loss, theory))
    # with more columns than halvings almost every column is left whole
    at_random = {k: expected_loss(10**9, people=people, k=k) for k in ks}
    return Curse(people, found, at_random)


def expected_loss(columns, *, people, k):
    """What people lose who are spread evenly and continuously over independent columns.

    A part is halved while it has 2k people. After h halvings, shared among d columns as evenly as whole ones can be, a
    side is 2^−(h/d) of its column, and the m people who are left span (m − 1)/(m + 1) of a side on average.
    """
    lost, parts, halvings = 0.0, {people: 1}, 0
    while parts:
        each, more = divmod(halvings, columns)
        side = ((columns - more) * 2.0**-each + more * 2.0 ** -(each + 1)) / columns
        halves = {}
        for size, number in parts.items():
            if size < 2 * k:
                lost += number * size * side * (size - 1) / (size + 1)
                continue
            for half in (size // 2, size - size // 2):
                halves[half] = halves.get(half, 0) + number
        parts, halvings = halves, halvings + 1
    return lost / people


if __name__ == "__main__":
    curse().draw(sys.argv[1])
