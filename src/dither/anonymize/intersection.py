"""Two releases of the same people, read together: k-anonymity and its kin don't compose.

Whoever knows somebody's quasi-identifiers finds their class in each release; the sensitive value is in all of these
classes, so it is in their intersection (Ganta, Kasiviswanathan & Smith 2008). Each release may be as diverse as one
likes: the intersection needn't be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dither.anonymize.combinations import codes_of
from dither.anonymize.release import Release
from dither.errors import InvalidParameter
from dither.pictures import EXACT, PRIVATE, picture

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Intersection:
    """How many sensitive values are still possible for each person: by each release alone, and by all together."""

    alone: tuple[Longs, ...]
    together: Longs

    @property
    def exposed(self) -> float:
        """The share of people whose value is known for sure once all releases are read together."""
        return float((self.together == 1).mean())

    def draw(self, path: Path) -> None:
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


def intersect(releases: Sequence[Release], column: str) -> Intersection:
    """Read releases of one table together, as somebody does who knows everybody's quasi-identifiers.

    ``column`` is the sensitive column, which all of them must hold. A release that suppressed somebody says nothing
    about them.
    """
    if not releases:
        raise InvalidParameter("at least one release is needed")
    people = releases[0].classes.of_row.size
    if any(release.classes.of_row.size != people for release in releases):
        raise InvalidParameter("the releases must be of one table: they have different numbers of rows")
    if any(column not in release.table.column_names for release in releases):
        raise InvalidParameter(f"every release must hold the column {column!r}")
    values, size = _values(releases, column, people)
    told = [_told(release, values, size) for release in releases]
    person, value = _possible(releases[0], told[0], size)
    for release, pairs in zip(releases[1:], told[1:], strict=True):
        of_row = release.classes.of_row[person].astype(np.int64)
        kept = (of_row < 0) | np.isin(of_row * size + value, pairs)
        person, value = person[kept], value[kept]
    return Intersection(
        alone=tuple(
            np.bincount(_possible(release, pairs, size)[0], minlength=people)
            for release, pairs in zip(releases, told, strict=True)
        ),
        together=np.bincount(person, minlength=people),
    )


def _values(releases: Sequence[Release], column: str, people: int) -> tuple[Longs, int]:
    """The sensitive value of each original row as a code, as far as any release shows it."""
    shown = [release.table.column(column) for release in releases]
    if any(each.type != shown[0].type for each in shown):
        raise InvalidParameter(f"the releases must be of one table: {column!r} has another type in some of them")
    codes, size = codes_of(pa.chunked_array([chunk for each in shown for chunk in each.chunks]))
    values, start = np.full(people, -1, np.int64), 0
    for release in releases:
        own = codes[start : start + release.rows.size]
        start += own.size
        if (values[release.rows] >= 0).any() and (values[release.rows] != own)[values[release.rows] >= 0].any():
            raise InvalidParameter(f"the releases must be of one table: they differ in {column!r}")
        values[release.rows] = own
    return values, size


def _told(release: Release, values: Longs, size: int) -> Longs:
    """Which values occur in which class, as sorted keys."""
    of_row = release.classes.of_row.astype(np.int64)
    kept = of_row >= 0
    return np.unique(of_row[kept] * size + values[kept])


def _possible(release: Release, pairs: Longs, size: int) -> tuple[Longs, Longs]:
    """Every person with every value that the release leaves possible for them."""
    of_row = release.classes.of_row.astype(np.int64)
    starts = np.searchsorted(pairs, np.arange(release.classes.number + 1) * size)
    numbers = np.where(of_row >= 0, np.diff(starts)[of_row] if starts.size > 1 else 0, size)
    person = np.repeat(np.arange(of_row.size), numbers)
    within = np.arange(person.size) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    inside = of_row[person] >= 0
    value = within.copy()
    value[inside] = pairs[starts[of_row[person[inside]]] + within[inside]] % size
    return person, value
