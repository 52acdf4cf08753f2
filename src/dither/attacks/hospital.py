"""A made-up hospital and a voter list of the people around it: two tables to join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dither.attacks.population import Population, age_of
from dither.errors import InvalidParameter
from dither.mechanisms.base import Floats, Ints

ADULT = 18
# The bands in which the curator counts.
AGE_BANDS = (0, 18, 35, 50, 65, 80, 101)
DIAGNOSES = (
    *("heart disease", "cancer", "fracture", "infection", "diabetes"),
    *("depression", "asthma", "stroke", "addiction", "HIV"),
)
# How common each is, and the age around which it is most common.
COMMON = (0.20, 0.15, 0.13, 0.12, 0.10, 0.09, 0.08, 0.06, 0.04, 0.03)
AROUND = (75, 70, 60, 30, 60, 40, 15, 80, 35, 40)
# One adult in so many isn't a voter; of those who are, some have moved and some dates are mistyped.
REGISTERED, MOVED, MISTYPED = 0.7, 0.04, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Patients:
    """The hospital's table: the row number in the population, which it doesn't show, and what it shows.

    ``chances`` are the probabilities from which each diagnosis was drawn: the most that could be known without it.
    """

    person: Ints
    postcode: Ints
    days: Ints
    sex: Ints
    diagnosis: Ints
    chances: Floats

    @property
    def age_band(self) -> Ints:
        """The band of ``AGE_BANDS`` that a patient's age lies in."""
        return band_of(self.days)


def band_of(days: Ints) -> Ints:
    """The age band of who was born so many days before the census."""
    return np.searchsorted(np.array(AGE_BANDS[1:]), age_of(days), side="right").astype(np.int64)


def diagnosis_rates() -> Floats:
    """How common each diagnosis is by age band and sex: public knowledge, and what an attacker guesses by."""
    middle = (np.array(AGE_BANDS[:-1]) + np.array(AGE_BANDS[1:])) / 2
    near = np.exp(-(((middle[:, None] - np.array(AROUND)) / 45) ** 2))
    tilt = np.array([1.0, 1.3])[:, None] ** np.array([-1, 1, 1, 0, 0, 1, 0, 0, -1, -1])
    rates = np.array(COMMON) * near[:, None, :] * tilt[None, :, :]
    return np.asarray(rates / rates.sum(axis=2, keepdims=True))


def admit(people: Population, patients: int, maker: np.random.Generator) -> Patients:
    """A sample of patients: the old come more often, and each 3-digit area has its own mix of diagnoses."""
    if not 0 < patients <= len(people):
        raise InvalidParameter(f"there must be between 1 and {len(people)} patients; got {patients}")
    drawn = maker.exponential(size=len(people)) / (0.3 + age_of(people.days) / 50)
    person = np.sort(np.argpartition(drawn, patients - 1)[:patients])
    days, sex, prefix = people.days[person], people.sex[person], people.areas.prefix[people.postcode[person]]
    local = maker.lognormal(0.0, 0.2, size=(int(prefix.max()) + 1, len(DIAGNOSES)))
    weights = diagnosis_rates()[band_of(days), sex] * local[prefix]
    chances = weights / weights.sum(axis=1, keepdims=True)
    diagnosis = (maker.random((patients, 1)) >= np.cumsum(chances, axis=1)).sum(axis=1)
    return Patients(
        person=person,
        postcode=people.postcode[person],
        days=days,
        sex=sex,
        diagnosis=np.minimum(diagnosis, len(DIAGNOSES) - 1),
        chances=chances,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Voters:
    """The voter list: the row number in the population stands for the name."""

    person: Ints
    postcode: Ints
    days: Ints
    sex: Ints


def register(people: Population, maker: np.random.Generator) -> Voters:
    """A list of seven in ten adults, with old addresses and mistyped dates."""
    chosen = np.flatnonzero((age_of(people.days) >= ADULT) & (maker.random(len(people)) < REGISTERED))
    postcode, days = people.postcode[chosen].copy(), people.days[chosen].copy()
    moved, mistyped = maker.random(chosen.size) < MOVED, maker.random(chosen.size) < MISTYPED
    postcode[moved] = maker.choice(people.postcode, size=int(moved.sum()))
    days[mistyped] = maker.choice(people.days, size=int(mistyped.sum()))
    return Voters(person=chosen, postcode=postcode, days=days, sex=people.sex[chosen])


def counts_of(patients: Patients, postcodes: int) -> Ints:
    """The exact counts behind the curator's answer: by postcode, age band, sex and diagnosis."""
    shape = (postcodes, len(AGE_BANDS) - 1, 2, len(DIAGNOSES))
    counts = np.zeros(shape, dtype=np.int64)
    np.add.at(counts, (patients.postcode, patients.age_band, patients.sex, patients.diagnosis), 1)
    return counts
