"""A collection tried out on people who don't exist: what it would have said, and how wrong that is.

Populations are made up from a seed, so that a run can be repeated; the reports are drawn anew each time, from the
operating system's randomness.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betainc, betaincinv

from dither.errors import InvalidData, InvalidParameter
from dither.local.core.protocol import Aggregator, Floats, Protocol
from dither.local.frequency.oracle import FrequencyOracle
from dither.local.frequency.participation import Participation
from dither.local.lab.catalogue import Catalogued, Purpose, Wanted
from dither.local.means.mean import LocalMean
from dither.local.means.vectors import LocalVector
from dither.local.ranges.wavelet import WaveletRanges
from dither.local.rappor.decode import MOST_UNKNOWNS
from dither.local.rappor.protocol import Rappor, RapporAggregator
from dither.local.sketches.sketch import HashedSketch
from dither.numeric import positive_int
from dither.progress import Watch, unwatched

# People who are randomised and counted between two readings of the clock.
CHUNK = 100_000
# Repetitions of the estimate of a single number, and people in all, for its error to be measured.
REPEATS, REPEATED_PEOPLE = 25, 2_000_000
# Numbers and ordered values follow a beta distribution with these parameters: lopsided, like most things.
SHAPE = (2.0, 5.0)
# Number of values that a variance is averaged over.
AVERAGED = 64
LARGEST_DIMENSION = 16
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """One try.

    ``theory`` is the standard error that the protocol states, ``measured`` the root mean square of the errors; None
    where nothing is stated, or nothing was found. ``inside`` is how many of the intervals hold the truth. ``seconds``
    is what randomising and counting took, without making up the people.
    """

    protocol: Protocol
    people: int
    labels: tuple[str, ...]
    truth: Floats
    values: Floats
    intervals: Floats
    theory: float | None
    measured: float | None
    seconds: float

    @property
    def inside(self) -> int:
        """How many of the intervals hold the truth."""
        low, high = self.intervals.T
        return int(((low <= self.truth) & (self.truth <= high)).sum())


def simulate(
    known: Catalogued, wanted: Wanted, users: int, *, seed: int = 0, confidence: float = 0.95, watch: Watch = unwatched
) -> Simulation:
    """Try a protocol on ``users`` made-up people: values by Zipf's law, numbers lopsided between their bounds.

    Example:
        >>> from dither.local.lab.catalogue import known_protocol
        >>> tried = simulate(known_protocol("kary"), Wanted.of(2, domain=5), users=2000)
        >>> tried.people, tried.labels, tried.inside >= 4
        (2000, ('0', '1', '2', '3', '4'), True)
    """
    people = positive_int(users, "users", least=2)
    if known.purpose is Purpose.VECTOR and wanted.size > LARGEST_DIMENSION:
        wanted = Wanted(epsilon=wanted.epsilon, domain=LARGEST_DIMENSION, bounds=wanted.bounds)
    run = _Run(known.make(wanted), wanted, people, np.random.default_rng(seed), confidence, watch)
    return {
        Purpose.SHARES: run.shares,
        Purpose.TEXTS: run.shares,
        Purpose.MEAN: run.numbers,
        Purpose.VECTOR: run.numbers,
        Purpose.RANGES: run.ranges,
        Purpose.DISCOVERY: run.discovery,
    }[known.purpose]()


def zipf_shares(size: int) -> Floats:
    """Shares by Zipf's law: the second value is half as common as the first, and so on.

    Example:
        >>> zipf_shares(3).round(3).tolist()
        [0.545, 0.273, 0.182]
    """
    falling = 1 / np.arange(1, size + 1)
    return np.asarray(falling / falling.sum())


@dataclass(frozen=True, slots=True)
class _Run:
    protocol: Protocol
    wanted: Wanted
    people: int
    rng: np.random.Generator
    confidence: float
    watch: Watch

    def collected(self, draw: Callable[[int], Any]) -> tuple[Aggregator[Any], float]:
        """An aggregate of everybody's reports, and the seconds that it took; ``draw`` makes people's values."""
        aggregate, taken = self.protocol.aggregator(), 0.0
        for start in range(0, self.people, CHUNK):
            values = draw(min(CHUNK, self.people - start))
            begun = time.perf_counter()
            aggregate.add(self.protocol.randomize(values))
            taken += time.perf_counter() - begun
            self.watch(min(1.0, (start + CHUNK) / self.people), "randomising and counting")
        return aggregate, taken

    # ------------------------------------------------------------------ shares of values and texts

    def shares(self) -> Simulation:
        size = self.wanted.size
        truth = zipf_shares(size)
        listed = self.wanted.domain
        labels = tuple(map(str, range(size) if isinstance(listed, int) else listed))
        names = None if isinstance(listed, int) else np.array(listed, dtype=object)

        def draw(count: int) -> Any:
            places = self.rng.choice(size, size=count, p=truth)
            return places if names is None else names[places].tolist()

        if isinstance(self.protocol, Rappor):
            most = self.protocol.bits * self.protocol.cohorts // MOST_UNKNOWNS
            if size > most:
                raise InvalidParameter(
                    f"{size} candidates are more than RAPPOR tells apart all at once: try at most {most}, or more "
                    "cohorts with Rappor(cohorts=…) in Python"
                )
        aggregate, seconds = self.collected(draw)
        if isinstance(aggregate, RapporAggregator):
            decoded = aggregate.decode(labels, confidence=self.confidence)
            values, intervals = decoded.shares, decoded.intervals
            theory: float | None = _root_mean(decoded.standard_errors**2)
        else:
            found = aggregate.estimate(self.confidence)
            found = found.slots if isinstance(self.protocol, Participation) else found
            values, intervals = found.values[:size], found.intervals[:size]
            theory = _theory_of_shares(self.protocol, truth, self.people)
        return self._done(labels, truth, values, intervals, theory, seconds)

    # ------------------------------------------------------------------ numbers and vectors

    def numbers(self) -> Simulation:
        vector = isinstance(self.protocol, LocalVector)
        size = self.wanted.size if vector else 1
        low, high = (float(end) for end in self.wanted.bounds)
        # the coordinates of a vector get more lopsided one after the other
        shapes = [(SHAPE[0], SHAPE[1] + place) for place in range(size)]
        truth = np.array([low + (high - low) * a / (a + b) for a, b in shapes])

        def draw(count: int) -> Any:
            columns = [low + (high - low) * self.rng.beta(a, b, size=count) for a, b in shapes]
            return np.stack(columns, axis=1) if vector else columns[0]

        repeats = max(1, min(REPEATS, REPEATED_PEOPLE // self.people))
        errors, taken = [], 0.0
        for _ in range(repeats):
            aggregate, seconds = self.collected(draw)
            found = aggregate.estimate(self.confidence)
            values = np.atleast_1d(np.asarray(found.values if vector else found.value, dtype=np.float64))
            ends = np.asarray(found.intervals if vector else [found.interval], dtype=np.float64)
            errors.append(values - truth)
            taken += seconds
        variances = [
            np.mean([self.protocol.variance(self.people, float(value)) for value in _sample(shape, low, high)])
            + _variance(shape, high - low) / self.people
            for shape in shapes
            if isinstance(self.protocol, LocalMean | LocalVector)
        ]
        labels = tuple(str(place) for place in range(size)) if vector else ("mean",)
        done = self._done(labels, truth, values, ends, _root_mean(variances), taken / repeats)
        return replace(done, measured=_root_mean(np.square(errors)))

    # ------------------------------------------------------------------ ordered values

    def ranges(self) -> Simulation:
        size = self.wanted.size
        names = None if isinstance(self.wanted.domain, int) else np.array(self.wanted.domain, dtype=object)

        def draw(count: int) -> Any:
            places = np.minimum((size * self.rng.beta(*SHAPE, size=count)).astype(np.int64), size - 1)
            return places if names is None else names[places].tolist()

        aggregate, seconds = self.collected(draw)
        reader: Any = aggregate
        found = reader.estimate(self.confidence, simultaneous=True)
        truth = np.asarray(betainc(*SHAPE, np.arange(1, size + 1) / size))
        theory = None
        if isinstance(self.protocol, WaveletRanges):
            labels = self.protocol.ordered.labels or range(size)
            theory = _root_mean([self.protocol.variance(self.people, labels[0], last) for last in labels])
        listed = range(size) if names is None else names
        shown = tuple(f"up to {label}" for label in listed)
        return self._done(shown, truth, found.cumulative[1:], found.cdf_intervals(), theory, seconds)

    # ------------------------------------------------------------------ values that nobody listed

    def discovery(self) -> Simulation:
        truth = zipf_shares(self.wanted.size)
        made_up = self._made_up(truth.size)

        def draw(count: int) -> Any:
            return [made_up[place] for place in self.rng.choice(truth.size, size=count, p=truth)]

        aggregate, seconds = self.collected(draw)
        try:
            found = aggregate.estimate(self.confidence).items()
        except InvalidData:  # nothing stands out
            found = []
        shares = dict(zip(made_up, truth, strict=True))
        labels = tuple(str(value) for value, _, _ in found)
        true = np.array([shares.get(value, 0.0) for value, _, _ in found])
        values = np.array([share for _, share, _ in found])
        intervals = np.array([ends for _, _, ends in found]).reshape(len(found), 2)
        return self._done(labels, true, values, intervals, None, seconds)

    def _made_up(self, size: int) -> list[Any]:
        """Different numbers or words, at random, of the length that the protocol takes."""
        made: dict[Any, None] = {}
        spelling = getattr(self.protocol, "values", None)
        while len(made) < size:
            if spelling is not None and spelling.value == "integers":
                made[int(self.rng.integers(0, 1 << min(32, self.protocol.length)))] = None  # type: ignore[attr-defined]
            else:
                letters = self.rng.integers(0, len(LETTERS), size=int(self.rng.integers(3, 8)))
                made["".join(LETTERS[place] for place in letters)] = None
        return list(made)

    def _done(
        self,
        labels: tuple[str, ...],
        truth: Floats,
        values: Floats,
        intervals: Floats,
        theory: float | None,
        seconds: float,
    ) -> Simulation:
        return Simulation(
            protocol=self.protocol,
            people=self.people,
            labels=labels,
            truth=truth,
            values=np.asarray(values),
            intervals=np.asarray(intervals),
            theory=theory,
            measured=_root_mean(np.square(values - truth)) if len(labels) else None,
            seconds=seconds,
        )


def _root_mean(squares: Any) -> float:
    return math.sqrt(float(np.mean(squares)))


def _theory_of_shares(protocol: Protocol, truth: Floats, people: int) -> float | None:
    """The root of the mean variance over all values."""
    oracle = protocol.oracle if isinstance(protocol, Participation) else protocol
    if isinstance(oracle, FrequencyOracle):
        hit, miss = float(oracle.hit), float(oracle.miss)
        reported = miss + (hit - miss) * truth
        return _root_mean(reported * (1 - reported) / (people * (hit - miss) ** 2))
    if isinstance(oracle, HashedSketch):
        squares = float(np.sum(truth**2))
        return _root_mean([oracle.variance(people, x, concentration=squares - x * x) for x in truth.tolist()])
    return None


def _sample(shape: tuple[float, float], low: float, high: float) -> Floats:
    """Values in the middle of equally likely parts of a beta distribution."""
    return low + (high - low) * np.asarray(betaincinv(*shape, (np.arange(AVERAGED) + 0.5) / AVERAGED))


def _variance(shape: tuple[float, float], spread: float) -> float:
    a, b = shape
    return spread**2 * a * b / ((a + b) ** 2 * (a + b + 1))
