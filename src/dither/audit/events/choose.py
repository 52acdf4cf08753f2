"""Events: which one to certify is chosen here, on draws that neither fitted the scores nor certify the bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dither.audit.claims import Claim
from dither.audit.counting import likely_bounds
from dither.audit.drawing import clock
from dither.audit.events.scores import Between, LikelihoodRatio, OutputScore, Recipe, Value, recipes
from dither.audit.outputs.layout import Columns, Layout
from dither.audit.result import Sketch
from dither.mechanisms.base import Floats

# By how many standard errors an event must look good before it is preferred: so many events are tried on one sample
# that a rare lucky one would win otherwise.
PESSIMISM = 4.0
FEW_CUTS = 4000
CUTS = np.concatenate([np.geomspace(1e-5, 2e-3, 30), np.linspace(0, 1, 401), 1 - np.geomspace(1e-5, 2e-3, 30)])
BARS = 60
# Draws of each input on which every kind of score is tried first, and how many kinds go on.
FIRST_TRY = 30_000
LEADING = 6
# Events of different sizes are kept apart.
SIZES = np.array([1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.4, 0.7])


@dataclass(frozen=True, slots=True)
class Event:
    """A set of outputs: those whose score reaches a cut, or with ``below`` the others.

    ``first`` says under which input it is expected to be more likely: the first (x) or the second (x_neighbour).
    """

    score: OutputScore
    cut: float
    below: bool
    first: bool

    def inside(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Which outputs belong to it."""
        return self.holds(self.score.of(columns))

    def holds(self, scores: Floats) -> npt.NDArray[np.bool_]:
        """Which scores belong to it."""
        return np.asarray(scores < self.cut if self.below else scores >= self.cut)

    @property
    def complement(self) -> Event:
        """All other outputs, more likely under the other input."""
        return Event(self.score, self.cut, not self.below, not self.first)

    def __str__(self) -> str:
        return self.score.below(self.cut) if self.below else self.score.above(self.cut)


@dataclass(frozen=True, slots=True)
class ChosenEvent:
    """An event, the objective that it was best for, and how often it happened in the draws that chose it."""

    event: Event
    merit: float
    p: float
    q: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the choosing sample says: the best event for the bound, and the best one against the claim.

    ``finalists`` are the good ones for each objective, of all sizes: a larger sample may prefer another one of them.
    """

    bound: ChosenEvent
    contradiction: ChosenEvent | None
    finalists: tuple[tuple[Event, ...], ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """One or two events to certify."""
        if self.contradiction is None or self.contradiction.event == self.bound.event:
            return (self.bound.event,)
        return (self.bound.event, self.contradiction.event)

    @property
    def share_of_first(self) -> float:
        """The share of draws that the first input should get, so that the ratio p/q is known best."""
        shares = []
        for chosen in (self.bound, self.contradiction):
            if chosen is not None:
                # the variance of ln p − ln q is (1−p)/(p·m) + (1−q)/(q·n)
                p, q = (min(max(value, 1e-6), 1 - 1e-6) for value in (chosen.p, chosen.q))
                mine, others = math.sqrt((1 - p) / p), math.sqrt((1 - q) / q)
                share = mine / (mine + others)
                shares.append(share if chosen.event.first else 1 - share)
        return min(0.8, max(0.2, sum(shares) / len(shares)))


class Merit(Protocol):
    """How good events are for an objective, from counts in a sample."""

    def __call__(self, in_p: Floats, in_q: Floats, draws: int) -> Floats:
        """Of so many draws of each input: in the sample where the event is likelier, and in the other one."""
        ...

    def beaten(self, merit: float) -> float:
        """What a more complicated event must reach to be preferred."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound on ε that the counts would give, seen with pessimism."""

    delta: float

    def __call__(self, in_p: Floats, in_q: Floats, draws: int) -> Floats:
        """A likely lower bound."""
        low, high = likely_bounds(in_p, draws, PESSIMISM)[0], likely_bounds(in_q, draws, PESSIMISM)[1]
        return np.log(np.maximum(low - self.delta, 1e-300) / np.maximum(high, 1e-300))

    def beaten(self, merit: float) -> float:
        """A hundredth more."""
        return merit + 0.01 * abs(merit)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """By how many standard errors the event's probability exceeds what the claim allows."""

    claim: Claim

    def __call__(self, in_p: Floats, in_q: Floats, draws: int) -> Floats:
        """In standard errors, with half a draw added."""
        p, q = (in_p + 0.5) / (draws + 1), (in_q + 1) / (draws + 2)
        allowed = self.claim.largest(q)
        step = np.sqrt(q * (1 - q) / draws)
        other = self.claim.largest(np.minimum(q + step, 1.0)) - allowed
        return np.asarray((p - allowed) / np.sqrt(p * (1 - p) / draws + other**2 + 1 / draws**2))

    def beaten(self, merit: float) -> float:
        """Half a standard error more, which luck gives easily, and a hundredth."""
        return merit + 0.5 + 0.01 * abs(merit)


def objectives(delta: float, claim: Claim | None) -> tuple[Merit, ...]:
    """What events are chosen for: the bound, and the contradiction of the claim if there is one."""
    return (Bound(delta),) if claim is None else (Bound(delta), Contradiction(claim))


def choose(
    layout: Layout,
    fit: tuple[Columns, Columns],
    sample: tuple[Columns, Columns],
    merits: tuple[Merit, ...],
    seconds: float,
) -> Choice:
    """Fit scores on one sample, and take the score, side and cut that do best on the other, within the time.

    All kinds of scores are tried on small parts of both samples; those that do best there get the whole.
    """
    end = clock.now() + seconds
    offered = recipes(layout, *(part.head(FIRST_TRY) for part in fit))
    tried = _tried(offered, fit, sample, merits, FIRST_TRY, clock.now() + 0.5 * seconds)
    largest = max(fit[0].size, sample[0].size)
    if largest > FIRST_TRY:
        # the most promising first, should the time not last; then the simple ones first again
        ranks = zip(*(_leading(tried, place) for place in range(len(merits))), strict=True)
        promising = list(dict.fromkeys(tried.index(one) for rank in ranks for one in rank))
        again = _tried((tried[place].recipe for place in promising), fit, sample, merits, largest, end)
        tried = [one for _, one in sorted(zip(promising, again, strict=False), key=lambda pair: pair[0])]
    places = range(len(merits))
    best = [_preferred([one.best[place][0] for one in tried], merits[place]) for place in places]
    finalists = tuple(_finalists(tried, best[place], place) for place in places)
    return Choice(bound=best[0], contradiction=best[1] if len(best) > 1 else None, finalists=finalists)


def decided(choice: Choice, inside: Mapping[Event, tuple[int, int]], draws: int, merits: tuple[Merit, ...]) -> Choice:
    """The finalist that does best for each objective on a further sample, counted as (under x, under x_neighbour)."""
    best = []
    for merit, finalists in zip(merits, choice.finalists, strict=True):
        found = []
        for event in finalists:
            p, q = inside[event] if event.first else inside[event][::-1]
            worth = float(merit(np.array([float(p)]), np.array([float(q)]), draws)[0])
            found.append(ChosenEvent(event, worth, p / draws, q / draws))
        best.append(_preferred(found, merit))
    return Choice(bound=best[0], contradiction=best[1] if len(best) > 1 else None, finalists=choice.finalists)


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """A kind of score, and the events that it makes for each objective, best first."""

    recipe: Recipe
    best: tuple[list[ChosenEvent], ...]


def _tried(
    offered: Iterator[Recipe],
    fit: tuple[Columns, Columns],
    sample: tuple[Columns, Columns],
    merits: tuple[Merit, ...],
    size: int,
    end: float,
) -> list[_Tried]:
    """The events of each score, fitted and tried on so many draws of each; at least of one, else until the end."""
    tried = []
    for recipe in offered:
        score = recipe(fit[0].head(size), fit[1].head(size))
        if score is not None:
            counted = _counted(score, (sample[0].head(size), sample[1].head(size)))
            tried.append(_Tried(recipe, tuple(_best_cuts(score, counted, merit) for merit in merits)))
        if tried and clock.now() > end:
            break
    return tried


def _leading(tried: list[_Tried], place: int) -> list[_Tried]:
    """The best few for an objective, best first."""
    return sorted(tried, key=lambda one: -one.best[place][0].merit)[:LEADING]


def _preferred(found: list[ChosenEvent], merit: Merit) -> ChosenEvent:
    """The best, where a later one of another score is more complicated and must be better by more than a trifle."""
    best = found[0]
    for one in found[1:]:
        if one.merit > (best.merit if one.event.score is best.event.score else merit.beaten(best.merit)):
            best = one
    return best


def simplified(event: Event) -> Event:
    """The same event as a half line, where the bins that it is made of are one."""
    score = event.score
    if not isinstance(score, LikelihoodRatio) or not isinstance(score.coding, Between) or score.coding.edges.size == 0:
        return event
    bins = np.arange(score.coding.edges.size + 1)
    place = np.minimum(np.searchsorted(score.keys, bins), score.keys.size - 1)
    inside = event.holds(np.where(score.keys[place] == bins, score.ratios[place], 0.0))
    turns = np.flatnonzero(np.diff(inside))
    if turns.size != 1 or int(score.keys[0]) < 0:
        return event  # several intervals, or something that isn't finite
    cut = float(score.coding.edges[turns[0]])
    return Event(Value(score.coding.column, missing=False), cut, bool(inside[0]), event.first)


def _finalists(tried: list[_Tried], best: ChosenEvent, place: int) -> tuple[Event, ...]:
    """The best one, those of other sizes by the same score, and the best ones by a few other scores."""
    same = next(one.best[place] for one in tried if one.best[place][0] is best)
    others = [one.best[place][0] for one in _leading(tried, place)[:3]]
    return tuple(dict.fromkeys(chosen.event for chosen in (best, *same[:8], *others)))


@dataclass(frozen=True, slots=True)
class _Counted:
    """For each cut, how many outputs of each sample reach it."""

    cuts: Floats
    first: Floats
    second: Floats
    draws: int


def _counted(score: OutputScore, sample: tuple[Columns, Columns]) -> _Counted:
    a, b = (np.sort(score.of(columns)) for columns in sample)
    both = np.concatenate([a, b])
    both = both[both > -np.inf]
    if isinstance(score, LikelihoodRatio):
        cuts = np.unique(score.ratios)
        cuts = cuts if cuts.size <= FEW_CUTS else cuts[:: cuts.size // FEW_CUTS]
    elif both.size <= FEW_CUTS:
        cuts = np.unique(both)
    else:
        # of draws themselves, so that values that repeat are cut exactly there
        cuts = np.unique(np.quantile(both, CUTS, method="higher"))
    if cuts.size == 0:
        cuts = np.array([0.0])
    return _Counted(
        cuts,
        (a.size - np.searchsorted(a, cuts)).astype(np.float64),
        (b.size - np.searchsorted(b, cuts)).astype(np.float64),
        min(a.size, b.size),
    )


def _best_cuts(score: OutputScore, counted: _Counted, merit: Merit) -> list[ChosenEvent]:
    """Over both sides of each cut and both orders of the inputs: the best of each size, best first.

    Small samples can't tell well how large the best event is, so one of each size is kept.
    """
    n = counted.draws
    best: dict[int, ChosenEvent] = {}
    for below in (False, True):
        a, b = (n - counted.first, n - counted.second) if below else (counted.first, counted.second)
        for first in (True, False):
            p, q = (a, b) if first else (b, a)
            merits = np.nan_to_num(merit(p, q, n), nan=-np.inf)
            sizes = np.searchsorted(SIZES, p / n)
            for size in np.unique(sizes).tolist():
                here = np.flatnonzero(sizes == size)
                place = int(here[np.argmax(merits[here])])
                if size not in best or merits[place] > best[size].merit:
                    event = simplified(Event(score, float(counted.cuts[place]), below, first))
                    best[size] = ChosenEvent(event, float(merits[place]), float(p[place]) / n, float(q[place]) / n)
    return sorted(best.values(), key=lambda chosen: -chosen.merit)


def sketch_of(event: Event, sample: tuple[Columns, Columns]) -> Sketch:
    """Histograms of the number that the event is about, or of its score, under both inputs."""
    axis = event.score.axis
    values = [event.score.of(columns) if axis is None else axis.of(columns) for columns in sample]
    inside = np.concatenate([event.inside(columns) for columns in sample])
    both = np.concatenate(values)
    finite = np.isfinite(both)
    seen = both[finite] if finite.any() else np.array([0.0])
    low, high = (float(v) for v in np.quantile(seen, [0.001, 0.999]))
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BARS + 1)
    x, other = (np.histogram(np.clip(v[np.isfinite(v)], low, high), edges)[0].astype(np.float64) for v in values)
    hits = np.histogram(np.clip(both[finite & inside], low, high), edges)[0]
    half_line = axis is None or not isinstance(event.score, LikelihoodRatio)
    return Sketch(
        label="score of the event" if axis is None else axis.name,
        edges=edges,
        x=x,
        x_neighbour=other,
        inside=hits * 2 > x + other,
        cut=event.cut if half_line and np.isfinite(event.cut) else None,
    )
