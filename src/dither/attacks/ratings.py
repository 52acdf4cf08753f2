"""Sparse ratings: a few films that somebody rated identify their whole record in a table without names.

Narayanan & Shmatikov ("Robust De-anonymization of Large Sparse Datasets", IEEE Symposium on Security and Privacy 2008)
showed it on the ratings that were published for the Netflix prize: "With 8 movie ratings (of which 2 may be completely
wrong) and dates that may have a 14-day error, 99% of records can be uniquely identified in the dataset. For 68%, two
ratings and dates (with a 3-day error) are sufficient"; without dates 84%, if 6 out of 8 films outside the 500 best
known are right. Their data has about 480,000 subscribers. Here are 30,000, made up (see ``films``), among whom
fewer resemble each other: with little knowledge the attack does better here than on the real data.

A record scores by the films that agree with what is known, each weighted by 1/log(subscribers who rated it), with
e^(−|difference|/1.5) for stars and e^(−|difference|/30) for days. The best record is claimed only if it stands out: if
it is at least 1.5 standard deviations of all scores ahead of the second (its eccentricity).

Against it stands what such data is wanted for: how often each film was rated and how well, as counts and sums with
noise, for whole subscribers, with ε and δ. There are no records in it to find. What is left is to tell whether
somebody's ratings are in it, and the attacker there knows everything but that: the complete record, all others', and
the law of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dither.attacks.base import Attack, Bits, Outcome, Published, ReleaseKind, Score
from dither.attacks.detection import RATES, detected, most_detected
from dither.attacks.films import Informant, Knowledge, Known, Ratings, rate, records
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteGaussian
from dither.mechanisms.base import Floats, Ints
from dither.numeric import Number
from dither.pictures import EXACT, FAINT, LINE, MORE, PRIVATE
from dither.privacy import Guarantee, PrivacyLoss, Sensitivity, calibrate
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "Narayanan & Shmatikov 2008"
STARS_SCALE, DAYS_SCALE = 1.5, 30.0
ECCENTRICITY, SURER = 1.5, 3.0
NEUTRAL = 3
# The knowledge of the published figures, and those beside it that are drawn.
DATED = Knowledge(ratings=8, wrong=2, days=14)
TWO = Knowledge(ratings=2, days=3)
UNDATED = Knowledge(ratings=8, wrong=2, outside_top=500)
CURVES: tuple[tuple[str, tuple[Knowledge, ...], tuple[float, float]], ...] = (
    ("all right, days ±3", tuple(Knowledge(ratings=n, days=3) for n in (2, 3, 4, 6, 8)), (2, 0.68)),
    (
        "up to a quarter wrong, days ±14",
        tuple(Knowledge(ratings=n, wrong=n // 4, days=14) for n in (2, 4, 6, 8)),
        (8, 0.99),
    ),
    (
        "up to a quarter wrong, no days,\noutside the top 500",
        tuple(Knowledge(ratings=n, wrong=n // 4, outside_top=500) for n in (2, 4, 6, 8)),
        (8, 0.84),
    ),
)


class Scoreboard:
    """A table of ratings, ready to be searched for a record that agrees with what is known."""

    def __init__(self, ratings: Ratings) -> None:
        self._ratings = ratings
        self._edges = np.searchsorted(ratings.film, np.arange(ratings.films + 1))
        # a film that one person rated identifies that person; log 1 = 0 would give it infinite weight
        self._weight = 1 / np.log(np.maximum(ratings.popularity, 2))
        self._stars = np.exp(-np.arange(5) / STARS_SCALE)
        self._days = np.exp(-np.arange(10_000) / DAYS_SCALE)

    def scores(self, known: Known) -> Floats:
        """How well each subscriber's record agrees with what is known: more for rare films."""
        if int(known.film.min()) < 0 or int(known.film.max()) >= self._ratings.films:
            raise InvalidParameter(f"films are numbered from 0 to {self._ratings.films - 1}")
        found = np.zeros(self._ratings.subscribers)
        for index, film in enumerate(known.film.tolist()):
            part = slice(self._edges[film], self._edges[film + 1])
            alike = self._stars[np.minimum(np.abs(self._ratings.stars[part] - known.stars[index]), 4)]
            if known.day is not None:
                apart = np.abs(self._ratings.day[part] - known.day[index])
                alike = alike + self._days[np.minimum(apart, self._days.size - 1)]
            # nobody rates a film twice, so each subscriber is met once
            found[self._ratings.subscriber[part]] += self._weight[film] * alike
        return found

    def find(self, known: Known, *, eccentricity: float = ECCENTRICITY) -> Match:
        """The record that agrees best, and whether it stands out enough to be claimed."""
        return match(self.scores(known), eccentricity=eccentricity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The best record, by how many standard deviations it leads, and whether the attacker claims it."""

    subscriber: int
    eccentricity: float
    claimed: bool


def match(scores: Floats, *, eccentricity: float = ECCENTRICITY) -> Match:
    """The best of the scores, claimed if it leads by so many standard deviations of all scores.

    Example:
        >>> match(np.array([0.0, 3.0, 0.0, 1.0]), eccentricity=1.5)
        Match(subscriber=1, eccentricity=1.63..., claimed=True)
    """
    if scores.ndim != 1 or scores.size < 2 or not np.isfinite(scores).all():
        raise InvalidParameter("a match is the best of at least two scores, which are finite numbers")
    best = int(scores.argmax())
    spread = float(scores.std())
    second = float(np.delete(scores, best).max())
    lead = (float(scores[best]) - second) / spread if spread > 0 else 0.0
    return Match(subscriber=best, eccentricity=lead, claimed=lead >= eccentricity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How a search went: for each target the lead of the best record, and whether it was the target's."""

    lead: Floats
    own: Bits

    def right(self, eccentricity: float = ECCENTRICITY) -> float:
        """The share of targets whose record is claimed."""
        return float((self.own & (self.lead >= eccentricity)).mean())

    def wrong(self, eccentricity: float = ECCENTRICITY) -> float:
        """The share of targets for whom another record is claimed."""
        return float((~self.own & (self.lead >= eccentricity)).mean())


def search(
    board: Scoreboard, people: Sequence[Ratings], how: Knowledge, informant: Informant, watch: Watch = unwatched
) -> Searched:
    """Look for people with so much knowledge of each; who has too few ratings for it is left out."""
    leads, own = [], []
    for index, record in enumerate(people):
        if index % 25 == 0:
            watch(index / len(people), "looking for subscribers")
        known = informant.tell(record, how)
        if known is not None:
            found = board.find(known)
            leads.append(found.eccentricity)
            own.append(found.subscriber == record.subscriber[0])
    if not leads:
        raise InvalidParameter(f"nobody has {how.ratings} ratings to know: search with more people")
    return Searched(lead=np.array(leads), own=np.array(own, dtype=np.bool_))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmTotals:
    """Counts and sums of stars of each film with noise, for subscribers who count with at most so many ratings.

    The vector that is released holds twice the number of ratings of each film, and the sum of stars above 3: a
    subscriber moves each of them by at most 2, for at most ``kept`` films.

    Guarantee: ``loss()`` for all ratings of one subscriber, added or removed (discrete Gaussian noise on a contribution
        of 2·kept coordinates by at most 2; Canonne, Kamath & Steinke 2020).
    """

    kept: int
    noise: DiscreteGaussian

    @classmethod
    def for_guarantee(cls, guarantee: Guarantee, *, kept: int) -> FilmTotals:
        """The least noise that meets the guarantee."""
        return cls(kept=kept, noise=calibrate(DiscreteGaussian, guarantee, _moved(kept)))

    def loss(self) -> PrivacyLoss:
        """What one release costs."""
        return self.noise.loss(_moved(self.kept))

    def bounded(self, ratings: Ratings, maker: np.random.Generator) -> Ratings:
        """At most ``kept`` ratings of each subscriber, chosen at random."""
        order = np.argsort(ratings.subscriber + maker.random(ratings.film.size))
        first = np.searchsorted(ratings.subscriber[order], np.arange(ratings.subscribers))
        rank = np.arange(order.size) - first[ratings.subscriber[order]]
        kept = np.sort(order[rank < self.kept])
        return ratings.at(kept)

    def exact(self, bounded: Ratings) -> Ints:
        """What noise is added to: a row of twice the counts and a row of the sums of stars above 3."""
        counts = np.bincount(bounded.film, minlength=bounded.films)
        sums = np.bincount(bounded.film, weights=bounded.stars - float(NEUTRAL), minlength=bounded.films)
        return np.stack([2 * counts, sums.astype(np.int64)])

    def release(self, bounded: Ratings) -> Ints:
        """The totals with noise; refuses records that weren't cut down, which it was not made for."""
        if int(np.bincount(bounded.subscriber).max(initial=0)) > self.kept:
            raise InvalidParameter(f"a subscriber has more than {self.kept} ratings: cut the records down first")
        return np.asarray(self.noise.release(self.exact(bounded)), dtype=np.int64)


def _moved(kept: int) -> Sensitivity:
    return Sensitivity.contribution(groups=2 * kept, per_group=2)


def evidence(rest: npt.NDArray[np.number], record: Ratings, totals: FilmTotals) -> float:
    """How much the totals speak for a record being among them, to somebody who knows all others': log likelihood ratio.

    ``rest`` are the released totals less those of all others. Nothing tells more than this ratio (Neyman & Pearson
    1933); above 0 the record is more likely there than not.
    """
    moved = np.stack([np.full(record.film.size, 2.0), record.stars - float(NEUTRAL)])
    return float((moved * (rest[:, record.film] - moved / 2)).sum() / float(totals.noise.scale) ** 2)


def tell_members(released: npt.NDArray[np.number], everybody: Ratings, members: Bits, totals: FilmTotals) -> Floats:
    """The evidence for each record being in the release, to somebody who knows all others': ``evidence`` at once.

    ``everybody`` has the records of members and others, cut down. About each of them in turn the attacker knows all but
    whether they are a member.
    """
    rest = released - totals.exact(everybody.among(members))
    above = everybody.stars - float(NEUTRAL)
    noise = 2 * (rest[0, everybody.film] - 1) + above * (rest[1, everybody.film] - above / 2)
    # the rest after all others is noise, and for a member what they moved themselves
    own = np.where(members[everybody.subscriber], 4 + above**2, 0.0)
    summed = np.bincount(everybody.subscriber, weights=noise + own, minlength=everybody.subscribers)
    return np.asarray(summed / float(totals.noise.scale) ** 2)


def tell_members_from_outside(
    released: npt.NDArray[np.number], reference: Ints, people: Sequence[Known], totals: FilmTotals, *, share: float
) -> Floats:
    """The evidence for people of whom a few ratings are known, to somebody who has similar totals from elsewhere.

    ``reference`` are exact totals of other subscribers, ``share`` how many times as many are in the release. The films
    that are known are weighted by how far chance alone moves their counts.
    """
    expected = share * reference[0]
    chance = np.maximum(4 * (share + share**2) * reference[0] / 2, 1) + float(totals.noise.scale) ** 2
    gain = 2 * (released[0] - expected - 1) / chance
    return np.array([float(gain[known.film].sum()) for known in people])


def right_share(evidences: Floats, members: Bits) -> float:
    """The share of right answers, members and others weighing the same, where evidence above 0 means a member."""
    if members.all() or not members.any():
        raise InvalidParameter("there must be members and others to tell apart")
    return float(((evidences[members] > 0).mean() + (evidences[~members] <= 0).mean()) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Evidence about members and others from totals without noise and with it; and how often outsiders are right."""

    inside: Bits
    unprotected: Floats
    private: Floats
    from_outside: float
    guarantee: Guarantee

    def right(self, evidences: Floats) -> float:
        """The share of right answers."""
        return right_share(evidences, self.inside)


def ratings(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    subscribers: int = 30_000,
    targets: int = 400,
    epsilon: Number = 1,
    delta: Number = "1e-6",
    kept: int = 20,
) -> Outcome:
    """Find subscribers in a table of ratings without names, then try to find them in totals with (ε, δ).

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        subscribers: How many there are.
        targets: How many of them are looked for.
        epsilon: Of the private totals.
        delta: Of the private totals.
        kept: How many ratings of one subscriber count in them.
    """
    if not 20 <= targets <= subscribers // 4:
        raise InvalidParameter(f"there must be between 20 targets and a quarter of the subscribers; got {targets}")
    maker = np.random.default_rng(seed)
    watch(0.0, "making ratings")
    table = rate(subscribers + targets, maker)
    inside = np.arange(table.subscribers) < subscribers
    shown = table.among(inside)
    board, informant = Scoreboard(shown), Informant(shown.popularity, maker)
    people = records(table, maker.choice(subscribers, size=targets, replace=False))
    absent = records(table, np.arange(subscribers, table.subscribers))

    def look(group: Sequence[Ratings], how: Knowledge, start: float, end: float) -> Searched:
        return search(board, group, how, informant, part_of(watch, start, end))

    main = {how: look(people, how, 0.15 + 0.1 * i, 0.25 + 0.1 * i) for i, how in enumerate((DATED, TWO, UNDATED))}
    strangers = look(absent, DATED, 0.45, 0.55)
    few = people[: max(20, targets // 2)]
    wanted = sorted({how for _, curve, _ in CURVES for how in curve} - set(main), key=str)
    steps = np.linspace(0.55, 0.85, len(wanted) + 1)
    curves = main | {how: look(few, how, steps[i], steps[i + 1]) for i, how in enumerate(wanted)}
    guarantee = Guarantee(epsilon, delta)
    told = _attack_totals(
        table, guarantee, kept=kept, targets=10 * targets, maker=maker, watch=part_of(watch, 0.85, 1.0)
    )
    watch(1.0, "done")
    return _outcome(curves, strangers, told, subscribers=subscribers)


def _attack_totals(
    table: Ratings, guarantee: Guarantee, *, kept: int, targets: int, maker: np.random.Generator, watch: Watch
) -> Membership:
    totals = FilmTotals.for_guarantee(guarantee, kept=kept)
    everybody = totals.bounded(table, maker)
    # two in five are in the release and two in five aren't; of the rest somebody else has totals
    role = maker.integers(0, 5, table.subscribers)
    members, elsewhere = role < 2, role == 4
    watch(0.4, "releasing totals with noise")
    theirs = everybody.among(members)
    exact, private = totals.exact(theirs), totals.release(theirs)
    watch(0.6, "telling members from others")
    chosen = maker.permutation(np.flatnonzero(~elsewhere))[:targets]
    informant = Informant(everybody.popularity, maker)
    known = [informant.tell(record, Knowledge(ratings=6)) for record in records(everybody, chosen)]
    usable = np.array([one is not None for one in known])
    from_outside = tell_members_from_outside(
        private,
        totals.exact(everybody.among(elsewhere)),
        [one for one in known if one is not None],
        totals,
        share=float(members.sum() / elsewhere.sum()),
    )
    return Membership(
        inside=members[~elsewhere],
        unprotected=tell_members(exact, everybody, members, totals)[~elsewhere],
        private=tell_members(private, everybody, members, totals)[~elsewhere],
        from_outside=right_share(from_outside, members[chosen[usable]]),
        guarantee=guarantee,
    )


def _words(how: Knowledge) -> str:
    wrong = f", {how.wrong} of them wrong," if how.wrong else ""
    dates = "without days" if how.days is None else f"with days ±{how.days}"
    top = f", outside the top {how.outside_top}" if how.outside_top else ""
    return f"records found by {how.ratings} ratings{wrong} {dates}{top}"


def _outcome(curves: dict[Knowledge, Searched], strangers: Searched, told: Membership, *, subscribers: int) -> Outcome:
    scores = [
        Score(
            release=ReleaseKind.UNPROTECTED,
            what=_words(how),
            value=curves[how].right(),
            guessing=1 / subscribers,
            published=Published(figure, SOURCE),
            detail=f"{100 * curves[how].wrong():.1f}% were taken for somebody else",
        )
        for how, figure in ((DATED, "99%"), (TWO, "68%"), (UNDATED, "84%"))
    ]
    epsilon, delta = float(told.guarantee.epsilon), float(told.guarantee.delta)
    bound = 0.5 + float(np.max(most_detected(np.linspace(0, 1, 1001), told.guarantee) - np.linspace(0, 1, 1001))) / 2
    promise = f"ε = {epsilon:g}, δ = {delta:g}"
    scores += [
        Score(
            release=ReleaseKind.UNPROTECTED,
            what="people who aren't in the table, claimed to be somebody in it",
            value=strangers.wrong(),
            detail=(
                f"with the knowledge of the first line; {100 * strangers.wrong(SURER):.1f}% at an eccentricity of "
                f"{SURER:g}, where {100 * curves[DATED].right(SURER):.1f}% of those who are in it are found"
            ),
        ),
        Score(
            release=ReleaseKind.UNPROTECTED,
            what="members told from others by exact totals of each film, knowing all other records",
            value=told.right(told.unprotected),
            guessing=0.5,
        ),
        Score(
            release=ReleaseKind.PRIVATE,
            what=f"members told from others by totals with {promise}, knowing all other records",
            value=told.right(told.private),
            guessing=0.5,
            detail=f"nobody can reach more than {100 * bound:.1f}%",
        ),
        Score(
            release=ReleaseKind.PRIVATE,
            what=f"the same with {promise}, knowing 6 ratings and totals from elsewhere",
            value=told.from_outside,
            guessing=0.5,
        ),
    ]
    found, told_right = f"{100 * curves[DATED].right():.1f}%", f"{100 * told.right(told.private):.1f}%"
    summary = (
        f"With 8 ratings, 2 of them wrong, and rough dates, {found} of the records are found. Totals with {promise} "
        f"hold no records. Who knows everything else tells in {told_right} of the cases whether somebody's ratings "
        f"are in them; a coin does so in 50%."
    )

    return Outcome(
        attack="ratings",
        scores=tuple(scores),
        summary=summary,
        draw=lambda figure: _draw(figure, curves, told),
        size=(10.0, 4.2),
    )


def _draw(figure: Figure, curves: dict[Knowledge, Searched], told: Membership) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    for (name, curve, (count, figure_published)), colour in zip(CURVES, (MORE[1], MORE[4], MORE[3]), strict=True):
        left.plot(
            [how.ratings for how in curve], [100 * curves[how].right() for how in curve], "o-", color=colour, label=name
        )
        left.plot(
            count, 100 * figure_published, "D", color=colour, markersize=9, markerfacecolor="none", markeredgewidth=2
        )
    left.plot([], [], "D", color=LINE, markersize=9, markerfacecolor="none", markeredgewidth=2, label="published")
    left.set_xlabel("ratings known")
    left.set_ylabel("records found, %")
    left.set_xticks(range(2, 9))
    left.set_ylim(0, 104)
    left.set_title("Records found in the table without names")
    left.legend(loc="lower right")

    exact, private = told.unprotected, told.private
    for evidences, colour, name in ((exact, EXACT, "exact totals"), (private, PRIVATE, "totals with ε and δ")):
        found = detected(evidences[told.inside], evidences[~told.inside], RATES)
        right.plot(100 * RATES, 100 * found, color=colour, label=name)
    bound = most_detected(RATES, told.guarantee)
    right.plot(100 * RATES, 100 * bound, ":", color=PRIVATE, label="the most that ε and δ allow")
    right.plot(100 * RATES, 100 * RATES, "--", color=FAINT, label="guessing")
    right.set_xscale("log")
    right.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    right.set_xlabel("others called members, %")
    right.set_ylabel("members found, %")
    right.set_ylim(0, 104)
    right.set_title("Members found in totals, knowing all others")
    right.legend(loc="center left")


ATTACK = Attack(
    name="ratings",
    title="A record found by a few film ratings",
    question="Whose record is it, given a few ratings of which some are wrong?",
    run=ratings,
)
