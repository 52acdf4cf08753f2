"""Two releases of the same people, read together: k-anonymity and its kin don't compose.

Whoever knows somebody's quasi-identifiers finds their class in each release; the sensitive value is in all of these
classes, so it is in their intersection (Ganta, Kasiviswanathan & Smith 2008). Each release may be as diverse as one
likes: the intersection needn't be.
"""

from dataclasses import dataclass

import numpy as np

from dither.pictures import EXACT, PRIVATE, picture


@dataclass(frozen=True, eq=False)
class Intersection:
    """How many sensitive values are still possible for each person: by each release alone, and by all together."""

    alone: list
    together: np.ndarray

    @property
    def exposed(self):
        """The share of people whose value is known for sure once all releases are read together."""
        return float((self.together == 1).mean())

    def draw(self, path):
        """Save the picture: how many values are left, by the first release and by all."""
        most = max(int(left.max()) for left in (*self.alone, self.together))
        with picture(path, width=7.0, height=3.4) as figure:
            axes = figure.add_subplot()
            for left, colour, label, shift in (
                (self.alone[0], PRIVATE, "one release", 0.2),
                (self.together, EXACT, f"{len(self.alone)} releases read together", -0.2),
            ):
                shares = 100 * np.bincount(left, minlength=most + 1) / left.size
                axes.bar(np.arange(1, most + 1) + shift, shares[1:], width=0.4, color=colour, label=label)
            axes.set(xlabel="values that are still possible for a person", ylabel="people, %")
            axes.set_xticks(range(1, most + 1) if most <= 12 else [1, *range(5, most + 1, 5)])
            axes.grid(visible=False, axis="x")
            axes.legend(loc="upper right")


def intersect(releases, column):
    """Read releases of one table together, as somebody does who knows everybody's quasi-identifiers.

    A release that suppressed somebody says nothing about them: any value that was seen may be theirs.
    """
    told = [possible(release, column) for release in releases]
    seen = set().union(*(values for each in told for values in each.values()))
    sets = [
        [each.get(place, seen) for place in release.classes.of_row.tolist()]
        for release, each in zip(releases, told, strict=True)
    ]
    together = [len(set.intersection(*each)) for each in zip(*sets, strict=True)]
    return Intersection([np.array([len(one) for one in each]) for each in sets], np.array(together))


def possible(release, column):
    """The values of each class of a release."""
    found = {}
    for place, value in zip(
        release.classes.of_row[release.rows].tolist(), release.table[column].to_pylist(), strict=True
    ):
        found.setdefault(place, set()).add(value)
    return found
