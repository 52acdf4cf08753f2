"""Made-up film ratings with a long tail, and what somebody might know of one subscriber's.

The shape is that of the data published for the Netflix prize in 2006: 17,770 films, of which the best known were rated
by almost half of the subscribers and most by very few; half of the subscribers with fewer than a hundred ratings; six
years. There are 16 times fewer subscribers here. Films belong to genres, and half of what a subscriber rates is from a
few of them, so that records resemble each other; stars are a film's quality, a subscriber's mood and chance. Real
tastes have more structure than that: without dates, real records are harder to tell apart than these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dither.errors import InvalidParameter
from dither.mechanisms.base import Ints

FILMS = 17_770
DAYS = 2_190
FEWEST = 8
# Ratings per subscriber: lognormal, by mean and by the standard deviation of the logarithm, repeats not counted.
RECORD_SHAPE = (230.0, 1.2)
# Popularity falls with a power of the rank plus an offset.
POPULARITY = (1.7, 150)
RATED_ON_JOINING = 0.3
# Half of a subscriber's films are from so many favourite genres.
GENRES, FAVOURITES, FAITHFUL = 30, 2, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """A table of ratings without names, sorted by film: who rated, with how many stars (1 to 5), on which day."""

    subscribers: int
    films: int
    subscriber: Ints
    film: Ints
    stars: Ints
    day: Ints

    def __post_init__(self) -> None:
        columns = (self.subscriber, self.film, self.stars, self.day)
        if len({column.shape for column in columns}) != 1 or self.film.ndim != 1:
            raise InvalidParameter("a table of ratings has four columns of the same length")
        if not self.film.size:
            raise InvalidParameter("a table of ratings has at least one")
        if (np.diff(self.film) < 0).any():
            raise InvalidParameter("ratings must be sorted by film: sort all four columns by it")
        for column, most, what in (
            (self.film, self.films, "films"),
            (self.subscriber, self.subscribers, "subscribers"),
        ):
            if int(column.min()) < 0 or int(column.max()) >= most:
                raise InvalidParameter(f"{what} are numbered from 0 to below their number, {most}")
        if int(self.stars.min()) < 1 or int(self.stars.max()) > 5:
            raise InvalidParameter("stars are whole numbers from 1 to 5")

    @property
    def popularity(self) -> Ints:
        """How many subscribers rated each film."""
        return np.bincount(self.film, minlength=self.films)

    def among(self, chosen: npt.NDArray[np.bool_]) -> Ratings:
        """The ratings of some subscribers, who keep their numbers."""
        return self.at(np.flatnonzero(chosen[self.subscriber]))

    def at(self, rows: Ints) -> Ratings:
        """The ratings in these rows."""
        return replace(
            self, subscriber=self.subscriber[rows], film=self.film[rows], stars=self.stars[rows], day=self.day[rows]
        )


def rate(subscribers: int, maker: np.random.Generator, *, films: int = FILMS) -> Ratings:
    """Ratings of so many subscribers."""
    if subscribers < 2 or films < 100:
        raise InvalidParameter(f"there must be 2 subscribers and 100 films at least; got {subscribers} and {films}")
    mean, spread = RECORD_SHAPE
    tries = np.round(maker.lognormal(np.log(mean) - spread**2 / 2, spread, subscribers))
    drawn = np.repeat(np.arange(subscribers), np.clip(tries, FEWEST, films // 6).astype(np.int64))
    film = _films_of(drawn, subscribers, films, maker)
    # one number for each rating, so that repeats fall together and films stay in order
    both = np.sort(film * subscribers + drawn)
    film, subscriber = np.divmod(both[np.append(True, both[1:] != both[:-1])], subscribers)
    quality, mood = maker.normal(3.4, 0.5, films), maker.normal(0.0, 0.4, subscribers)
    stars = np.round(quality[film] + mood[subscriber] + maker.normal(0.0, 0.8, film.size)).clip(1, 5)
    joined = (DAYS * np.sqrt(maker.random(subscribers))).astype(np.int64)
    later = (maker.random(film.size) * (DAYS - joined[subscriber])).astype(np.int64)
    day = joined[subscriber] + np.where(maker.random(film.size) < RATED_ON_JOINING, 0, later)
    return Ratings(
        subscribers=subscribers, films=films, subscriber=subscriber, film=film, stars=stars.astype(np.int64), day=day
    )


def _films_of(drawn: Ints, subscribers: int, films: int, maker: np.random.Generator) -> Ints:
    """A film for each rating: by popularity among those of a favourite genre, or among all."""
    power, offset = POPULARITY
    popular = (np.arange(films) + float(offset)) ** -power
    genre = maker.choice(GENRES, size=films, p=(w := 1 / (np.arange(GENRES) + 3.0)) / w.sum())
    by_genre = np.argsort(genre, kind="stable")
    edges = np.concatenate([[0.0], np.cumsum(popular[by_genre])])
    first = np.searchsorted(genre[by_genre], np.arange(GENRES + 1))
    low, high = edges[first[:-1]], edges[first[1:]]
    favourite = maker.choice(GENRES, size=(subscribers, FAVOURITES), p=(high - low) / edges[-1])
    wanted = favourite[drawn, maker.integers(0, FAVOURITES, drawn.size)]
    faithful = maker.random(drawn.size) < FAITHFUL
    start, end = np.where(faithful, low[wanted], 0.0), np.where(faithful, high[wanted], edges[-1])
    found = np.searchsorted(edges, start + maker.random(drawn.size) * (end - start), side="right") - 1
    return np.asarray(by_genre[np.clip(found, 0, films - 1)], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an attacker knows of one person's ratings: films and stars, and days if those are known at all."""

    film: Ints
    stars: Ints
    day: Ints | None = None

    def __post_init__(self) -> None:
        columns = [column.shape for column in (self.film, self.stars, self.day) if column is not None]
        if len(set(columns)) != 1 or self.film.ndim != 1 or not self.film.size:
            raise InvalidParameter(
                "what is known are films, their stars and perhaps their days: as many of each, at least 1"
            )
        if np.unique(self.film).size != self.film.size:
            raise InvalidParameter("each film is known once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """How much an attacker knows: so many ratings, of which some are all wrong, with days that are a little off.

    ``days`` is how far a known day may be off, or None where days aren't known; ``outside_top`` leaves the best known
    films aside.
    """

    ratings: int
    wrong: int = 0
    days: int | None = None
    outside_top: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.wrong < self.ratings:
            raise InvalidParameter(f"at least one known rating must be right; got {self.wrong} wrong of {self.ratings}")
        if (self.days is not None and self.days < 0) or self.outside_top < 0:
            raise InvalidParameter("days and the number of films to leave aside are from 0 on")


def records(ratings: Ratings, subscribers: Ints) -> list[Ratings]:
    """The complete ratings of some subscribers, one table each."""
    chosen = np.zeros(ratings.subscribers, dtype=np.bool_)
    chosen[subscribers] = True
    theirs = ratings.among(chosen)
    order = np.argsort(theirs.subscriber, kind="stable")
    edges = np.searchsorted(theirs.subscriber[order], np.arange(ratings.subscribers + 1))
    parts = (order[edges[one] : edges[one + 1]] for one in subscribers.tolist())
    return [theirs.at(part) for part in parts]


class Informant:
    """Knows some of people's ratings, not all of them rightly; which films are popular is known to everybody."""

    def __init__(self, popularity: Ints, maker: np.random.Generator) -> None:
        self._maker = maker
        self._edges = np.cumsum(popularity.astype(np.float64))
        self._rank = np.empty(popularity.size, dtype=np.int64)
        self._rank[np.argsort(-popularity, kind="stable")] = np.arange(popularity.size)

    def tell(self, record: Ratings, how: Knowledge) -> Known | None:
        """What is known of a record, or None where it has too few ratings for that.

        Wrong ones are films that the person never rated, as popular as any, with arbitrary stars and days.
        """
        maker = self._maker
        usable = np.flatnonzero(self._rank[record.film] >= how.outside_top)
        if usable.size < how.ratings:
            return None
        right = how.ratings - how.wrong
        kept = maker.choice(usable, size=right, replace=False)
        false = self._never_rated(record, how)
        film = np.concatenate([record.film[kept], false])
        stars = np.concatenate([record.stars[kept], maker.integers(1, 6, how.wrong)])
        if how.days is None:
            return Known(film=film, stars=stars)
        near = record.day[kept] + maker.integers(-how.days, how.days + 1, right)
        return Known(film=film, stars=stars, day=np.concatenate([near, maker.integers(0, DAYS, how.wrong)]))

    def _never_rated(self, record: Ratings, how: Knowledge) -> Ints:
        found: list[int] = []
        while len(found) < how.wrong:
            film = int(np.searchsorted(self._edges, self._maker.random() * self._edges[-1], side="right"))
            if self._rank[film] >= how.outside_top and film not in found and not (record.film == film).any():
                found.append(film)
        return np.array(found, dtype=np.int64)
