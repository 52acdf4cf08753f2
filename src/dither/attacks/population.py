"""A made-up population, and how many people are alone with what is known about them.

Postcode areas are about as unequal as the ZIP code areas of the United States (most are small, most people live in
large ones, none has more than 115,000 people), and counties as its counties; towns are a guess. Ages are those of its
census of 2000. Births follow the seasons and, since hospitals plan them, avoid weekends. Areas differ in size only:
there are no student towns and no garrisons, where many people of one age live together, so that uniqueness comes out a
little too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.errors import InvalidParameter
from dither.mechanisms.base import Floats, Ints
from dither.progress import Watch, unwatched

# Per cent of the population by age, from the first number to below the second (United States, census of 2000).
PYRAMID = (
    *((0, 5, 6.8), (5, 10, 7.3), (10, 15, 7.3), (15, 20, 7.2), (20, 25, 6.7), (25, 35, 14.2), (35, 45, 16.0)),
    *((45, 55, 13.4), (55, 60, 4.8), (60, 65, 3.8), (65, 75, 6.5), (75, 85, 4.4), (85, 101, 1.5)),
)
OLDEST = 101
CENSUS_DAY = np.datetime64("2000-04-01")
LARGEST_POSTCODE = 115_000
# Beta(0.33, 4.12) of the largest: a mean of 8,500 people, half of the areas with fewer than 2,800.
POSTCODE_SHAPE = (0.33, 4.12)
POSTCODES_PER_PREFIX = 37
# The age bands of Sweeney (2000).
THRESHOLD_BANDS = (0, 12, 19, 25, 35, 45, 55, 65, 101)
# Postcodes per county and per town: lognormal, by mean and by the standard deviation of the logarithm.
COUNTY_SHAPE = (10.5, 1.6)
TOWN_SHAPE = (2.2, 1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Where people live: the size of each postcode area, and the town and county in which it lies."""

    sizes: Ints
    town: Ints
    county: Ints

    @property
    def prefix(self) -> Ints:
        """The 3-digit area of each postcode area."""
        return np.arange(self.sizes.size, dtype=np.int64) // POSTCODES_PER_PREFIX

    def merged(self, groups: Ints) -> Ints:
        """The number of people in each group of postcode areas."""
        return np.bincount(groups, weights=self.sizes.astype(np.float64)).astype(np.int64)


def areas(people: int, maker: np.random.Generator) -> Areas:
    """Postcode areas with about so many people in all; at least that many, unless the last area is cut."""
    if people < 1:
        raise InvalidParameter(f"a population has at least one person; got {people}")
    sizes = np.zeros(0, dtype=np.int64)
    while sizes.sum() < people:
        drawn = LARGEST_POSTCODE * maker.beta(*POSTCODE_SHAPE, size=max(16, people // 8_000))
        sizes = np.concatenate([sizes, np.maximum(1, np.round(drawn)).astype(np.int64)])
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), people)) + 1]
    return Areas(sizes=sizes, town=_runs(sizes.size, TOWN_SHAPE, maker), county=_runs(sizes.size, COUNTY_SHAPE, maker))


def _runs(count: int, shape: tuple[float, float], maker: np.random.Generator) -> Ints:
    """A group for each of ``count`` neighbours: runs of lognormal length."""
    mean, spread = shape
    lengths = np.zeros(0, dtype=np.int64)
    while lengths.sum() < count:
        drawn = maker.lognormal(np.log(mean) - spread**2 / 2, spread, size=count)
        lengths = np.concatenate([lengths, np.maximum(1, np.round(drawn)).astype(np.int64)])
    return np.repeat(np.arange(lengths.size), lengths)[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Births:
    """Which birth dates and sexes people have: a probability for each day before the census and each sex.

    ``probabilities`` has a row for men and one for women, and a column for each day, the census day first.
    """

    probabilities: Floats

    @property
    def ages(self) -> Ints:
        """The age in whole years of who was born so many days before the census."""
        return age_of(np.arange(self.probabilities.shape[1]))

    def by(self, coarser: Ints) -> Floats:
        """The probabilities of sexes and groups of days, such as months or years."""
        return np.stack([np.bincount(coarser, weights=row) for row in self.probabilities])


def births() -> Births:
    """The birth dates and sexes of the population on the census day."""
    days = np.arange(round(365.2425 * OLDEST))
    dates = CENSUS_DAY - days
    age = age_of(days)
    weight = np.zeros(OLDEST)
    for low, high, share in PYRAMID:
        weight[low:high] = share / (high - low)
    of_year = (dates - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    season = 1 + 0.05 * np.cos(2 * np.pi * (of_year - 240) / 365.25)
    weekend = (dates.astype("datetime64[D]").astype(np.int64) + 4) % 7 >= 5
    planned = np.clip((40 - age) / 40, 0, 1)
    day = weight[age] * season * np.where(weekend, 1 - 0.3 * planned, 1 + 0.12 * planned)
    women = 0.488 + 0.02 * np.clip(age / 60, 0, 1) + 0.2 * np.clip((age - 60) / 35, 0, 1)
    both = np.stack([day * (1 - women), day * women])
    return Births(probabilities=both / both.sum())


def age_of(days: npt.NDArray[Any]) -> Ints:
    """Whole years, from the days between birth and census."""
    return np.minimum(np.floor(days / 365.2425), OLDEST - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """A row for each person: postcode area, days between birth and census, sex (1 for women)."""

    areas: Areas
    births: Births
    postcode: Ints
    days: Ints
    sex: Ints

    def __len__(self) -> int:
        return self.postcode.size


def populate(where: Areas, maker: np.random.Generator) -> Population:
    """People for every postcode area, with independent birth dates and sexes."""
    law = births()
    edges = np.cumsum(law.probabilities.ravel())
    drawn = np.searchsorted(edges, maker.random(int(where.sizes.sum())) * edges[-1], side="right")
    sex, days = np.divmod(np.minimum(drawn, edges.size - 1), law.probabilities.shape[1])
    postcode = np.repeat(np.arange(where.sizes.size, dtype=np.int64), where.sizes)
    return Population(areas=where, births=law, postcode=postcode, days=days, sex=sex)


def keys(*columns: npt.ArrayLike) -> Ints:
    """One whole number for each combination of values: the same for two rows just if they agree in all columns.

    Values are whole numbers from 0 on. To compare two tables, make the keys of both together.

    Example:
        >>> keys([0, 0, 7], [1, 1, 0]).tolist()
        [1, 1, 14]
    """
    made = np.zeros(0, dtype=np.int64)
    room = 1
    for index, column in enumerate(columns):
        values = np.asarray(column)
        if values.dtype.kind not in "iub" or (values.size and int(values.min()) < 0):
            raise InvalidParameter("keys are made of whole numbers from 0 on: number the values first")
        width = int(values.max(initial=0)) + 1
        room *= width
        if room >= 2**63:
            raise InvalidParameter("there are too many combinations of values for one key: use fewer columns")
        made = values.astype(np.int64) if index == 0 else made * width + values
    return made


def unique_share(*columns: npt.ArrayLike) -> float:
    """The share of rows that nobody shares: counted, for a table that is there.

    Example:
        >>> unique_share([4, 4, 4, 5], [1, 1, 2, 1])
        0.5
    """
    made = keys(*columns)
    if not made.size:
        raise InvalidParameter("uniqueness is a share of the rows: there must be at least one")
    _, counts = np.unique(made, return_counts=True)
    return float((counts == 1).sum() / made.size)


def uniqueness(sizes: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """The expected share of people whom nobody in their area resembles: in closed form (Golle 2006).

    In an area of n people, each of whom has the values c with probability p(c), that is Σ p(c)·(1 − p(c))^(n − 1);
    areas count by their people.

    Example:
        Of two people with one of two birthdays each, half are alone; a person who lives alone is unique:

        >>> uniqueness([2], [0.5, 0.5]), uniqueness([2, 1], [0.5, 0.5])
        (0.5, 0.6666666666666666)
    """
    people, p = np.asarray(sizes, dtype=np.int64).ravel(), np.asarray(probabilities, dtype=np.float64).ravel()
    if not people.size or int(people.min()) < 0 or not people.sum():
        raise InvalidParameter("sizes are numbers of people from 0 on, and at least one of them is above 0")
    if not p.size or not (p >= 0).all() or abs(float(p.sum()) - 1) > 1e-6:
        raise InvalidParameter("probabilities are from 0 on and sum to 1")
    different, counts = np.unique(people[people > 0], return_counts=True)
    # Probabilities within a thousandth of each other are replaced by their mean, so that the result moves by less than
    # 10^-6 (the first-order terms cancel) and a country is done in a second.
    group = np.unique(np.floor(np.log(p[p > 0]) * 1000), return_inverse=True)[1]
    held = np.bincount(group, weights=p[p > 0])
    mean = held / np.bincount(group)
    expected = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.log1p(-np.minimum(mean, 1.0))
        for part in np.array_split(np.arange(different.size), 1 + different.size * mean.size // 4_000_000):
            others = different[part, None] - 1.0
            # where nobody else lives everybody is unique, even if the logarithm is −∞
            alone = np.where(others == 0, 1.0, np.exp(others * rate)) @ held
            expected += float((alone * different[part] * counts[part]).sum())
    return min(1.0, expected / float(people.sum()))


def uniqueness_by_threshold(sizes: npt.ArrayLike, bands: Sequence[float], values: Sequence[int]) -> float:
    """The share of people called unique because there are no more of them than values: how Sweeney (2000) counted.

    ``bands`` are the shares of the age bands in every area, ``values`` the numbers of birth dates and sexes that people
    of each band can have. All people of a band and area are called unique if there are at most as many of them. This
    counts too many: of 365 people with random birthdays, about 37% are alone with theirs.

    Example:
        >>> uniqueness_by_threshold([300, 1000], [0.5, 0.5], [365, 365])
        0.23076923076923078
    """
    people = np.asarray(sizes, dtype=np.float64).ravel()
    if not people.size or float(people.min()) < 0 or not people.sum():
        raise InvalidParameter("sizes are numbers of people from 0 on, and at least one of them is above 0")
    if len(bands) != len(values):
        raise InvalidParameter("each age band has a share and a number of values")
    called = [
        float((people * share)[people * share <= count].sum()) for share, count in zip(bands, values, strict=True)
    ]
    return sum(called) / float(people.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """Who is alone with what is known in a whole country: expected, and as Sweeney counted; and what was published."""

    known: str
    alone: float
    by_threshold: float | None = None
    sweeney: float | None = None
    golle: float | None = None


def uniqueness_table(country: Areas, law: Births, watch: Watch = unwatched) -> tuple[Uniqueness, ...]:
    """Uniqueness in a country by the place that is known and how exactly the birth date is."""
    age, month = law.ages, np.arange(law.probabilities.shape[1]) * 12 // 365
    days, months, years = law.probabilities, law.by(month), law.by(age)
    edges = THRESHOLD_BANDS
    bands = [float(days[:, (age >= low) & (age < high)].sum()) for low, high in pairwise(edges)]
    values = [2 * 365 * (high - low) for low, high in pairwise(edges)]
    postcodes, towns = country.sizes, country.merged(country.town)
    counties, prefixes = country.merged(country.county), country.merged(country.prefix)
    rows: tuple[tuple[str, Ints, Floats, float | None, float | None], ...] = (
        ("postcode, birth date, sex", postcodes, days, 0.87, 0.63),
        ("town, birth date, sex", towns, days, 0.53, None),
        ("county, birth date, sex", counties, days, 0.18, None),
        ("3-digit postcode, birth date, sex", prefixes, days, None, None),
        ("postcode, birth month, sex", postcodes, months, None, None),
        ("postcode, birth year, sex", postcodes, years, None, None),
        ("3-digit postcode, birth year, sex", prefixes, years, None, None),
    )
    table = []
    for index, (known, sizes, law_of, sweeney, golle) in enumerate(rows):
        watch(index / len(rows), "counting who is unique")
        called = uniqueness_by_threshold(sizes, bands, values) if law_of is days else None
        alone = uniqueness(sizes, law_of)
        table.append(Uniqueness(known=known, alone=alone, by_threshold=called, sweeney=sweeney, golle=golle))
    return tuple(table)
