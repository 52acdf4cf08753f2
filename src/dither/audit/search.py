"""Search over neighbouring inputs: which pair shows most, found with few draws and certified with many others.

A mechanism may be private for most inputs and not for some. The search looks at many pairs with small samples, which
prove nothing and cost little, and hands the most telling one to ``lower_bound``; only what that counts makes the bound,
so it needs no correction for the number of pairs that were tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dither.audit.claims import Claim, Claimable
from dither.audit.drawing import clock
from dither.audit.drawing.draws import Batched, Draws, batched, collect
from dither.audit.events.choose import choose, objectives
from dither.audit.lower_bound import Budget, claimed, lower_bound, seconds_of
from dither.audit.outputs.layout import layout_of
from dither.audit.result import Assumption, LowerBound
from dither.errors import InvalidParameter, MissingLibrary
from dither.numeric import Number, fraction_up, positive_int
from dither.numeric.rounding import as_fraction
from dither.privacy import Adjacency, Sensitivity
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Table: TypeAlias = dict[str, list[Any]]
Pair: TypeAlias = tuple[Any, Any]

# Part of the budget for looking around, and draws of each input for one pair.
SCREENING = 0.3
MOST_SCREENED = 8_000


def search(
    mechanism: Any,
    pairs: Iterable[Pair],
    *,
    delta: Number = 0,
    confidence: Number = 0.99,
    budget: Budget = "60s",
    claim: Claimable | Claim | None = None,
    sensitivity: Sensitivity | None = None,
    assuming: Assumption | None = None,
    workers: int | None = None,
    watch: Watch = unwatched,
    stop_when_broken: bool = True,
) -> LowerBound:
    """A lower bound on ε over many pairs of neighbouring inputs: the most telling one is audited with fresh draws.

    Args:
        mechanism: A function of the input, an object with ``release(input)``, or ``Batched``.
        pairs: Pairs of neighbouring inputs, perhaps without end: as many are looked at as the time allows.
        delta: The δ at which the bound on ε is stated.
        confidence: The probability with which the whole result is right.
        budget: For everything; a third goes to looking at pairs.
        claim: A loss, a guarantee or a pure ε; else what the mechanism's own ``loss`` says.
        sensitivity: What that ``loss`` is asked with, if it takes one.
        assuming: As for ``lower_bound``.
        workers: How many processes count at once, as for ``lower_bound``.
        watch: Called with the share that is done and a few words; it may raise to stop.
        stop_when_broken: Whether to end once the claim is refuted.

    Example:
        >>> import numpy as np
        >>> flip = np.random.default_rng()
        >>> louder = Batched(lambda x, n: (flip.random(n) < 0.5) | (x > 2))  # whoever is above 2 always says yes
        >>> found = search(louder, [(0, 1), (1, 2), (2, 3)], claim="1/2", budget="2s", confidence=0.999999)
        >>> found.pair, found.broken
        ((2, 3), True)
    """
    start = clock.now()
    seconds = seconds_of(budget)
    tested = claimed(mechanism, claim, sensitivity)
    screen = _Screen(batched(mechanism), fraction_up(as_fraction(delta, "delta")), tested)
    listed = list(pairs) if isinstance(pairs, Sequence) else None
    if listed is not None and not listed:
        raise InvalidParameter("the search needs at least one pair of neighbouring inputs")
    end = start + SCREENING * seconds
    each = SCREENING * seconds / len(listed) if listed else 0.02 * seconds
    looking = part_of(watch, 0.0, SCREENING)
    if listed is None or len(listed) > 1:
        for number, pair in enumerate(listed if listed is not None else pairs):
            screen.look(pair, each)
            looking((clock.now() - start) / (SCREENING * seconds), f"pair {number + 1}")
            if clock.now() >= end:
                break
    elif listed:
        screen.best = (0.0, listed[0])
    if screen.best is None:
        raise InvalidParameter("the search needs at least one pair of neighbouring inputs")
    return lower_bound(
        mechanism,
        *screen.best[1],
        delta=delta,
        confidence=confidence,
        budget=max(0.1 * seconds, seconds - (clock.now() - start)),
        claim=tested,
        assuming=assuming,
        workers=workers,
        watch=part_of(watch, SCREENING, 1.0),
        stop_when_broken=stop_when_broken,
    )


@dataclass(slots=True)
class _Screen:
    """Small samples of many pairs; the pair that looks most telling so far."""

    mechanism: Batched
    delta: float
    claim: Claim | None
    best: tuple[float, Pair] | None = None

    def look(self, pair: Pair, seconds: float) -> float:
        """How telling a pair looks: standard errors beyond the claim, or the likely bound on ε without one."""
        draws = Draws(self.mechanism, pair[0], "x"), Draws(self.mechanism, pair[1], "x_neighbour")
        raw = collect(draws, most=2 * MOST_SCREENED, seconds=0.6 * seconds)
        half = max(1, len(raw[0]) // 2)
        layout = layout_of(raw[0][:half], raw[1][:half])
        fit = layout.read(raw[0][:half]), layout.read(raw[1][:half])
        rest = half if len(raw[0]) > 1 else 0
        sample = layout.read(raw[0][rest:]), layout.read(raw[1][rest:])
        choice = choose(layout, fit, sample, objectives(self.delta, self.claim), 0.4 * seconds)
        merit = choice.bound.merit if choice.contradiction is None else choice.contradiction.merit
        if self.best is None or merit > self.best[0]:
            self.best = (merit, pair)
        return merit


def query_patterns(length: int, *, change: float = 1.0) -> list[tuple[list[float], list[float]]]:
    """Answers of ``length`` queries on two neighbours, each of which moves by at most ``change``.

    The patterns of Ding et al. (2018), which bring out the known faults of noisy maxima and sparse vectors: one query
    moves, all do, half of them go up and half down, one goes against all others.

    Args:
        length: How many queries.
        change: By how much one unit moves each.

    Returns:
        Pairs of exact answers on two neighbours.

    Example:
        >>> query_patterns(2)[0]
        ([1.0, 1.0], [2.0, 1.0])
    """
    n, step = positive_int(length, "length"), float(change)
    if not 0 < step < float("inf"):
        raise InvalidParameter(f"change must be a finite number above 0; got {change!r}")
    flat = [step] * n
    half = n // 2
    moved = [
        [2 * step, *flat[1:]],  # one above
        [0.0, *flat[1:]],  # one below
        [2 * step] + [0.0] * (n - 1),  # one above, the rest below
        [0.0] + [2 * step] * (n - 1),  # one below, the rest above
        [2 * step] * half + [0.0] * (n - half),  # half and half
        [2 * step] * n,  # all above
        [0.0] * n,  # all below
    ]
    crossed = ([step] * half + [0.0] * (n - half), [0.0] * half + [step] * (n - half))
    pairs = [(list(flat), list(other)) for other in moved] + [(list(crossed[0]), list(crossed[1]))]
    return [pair for place, pair in enumerate(pairs) if pair not in pairs[:place]]


# ------------------------------------------------------------------ tables


def search_tables(
    mechanism: Any,
    strategy: SearchStrategy[Pair],
    *,
    examples: int = 200,
    delta: Number = 0,
    confidence: Number = 0.99,
    budget: Budget = "60s",
    claim: Claimable | Claim | None = None,
    sensitivity: Sensitivity | None = None,
    assuming: Assumption | None = None,
    workers: int | None = None,
    watch: Watch = unwatched,
    stop_when_broken: bool = True,
) -> LowerBound:
    """A lower bound on ε over pairs of tables that hypothesis makes, led towards pairs that tell more.

    Args:
        mechanism: A function of the input, an object with ``release(input)``, or ``Batched``.
        strategy: Makes pairs of neighbouring inputs, such as ``neighbouring_tables``.
        examples: How many are looked at, at most.
        delta: The δ at which the bound on ε is stated.
        confidence: The probability with which the whole result is right.
        budget: For everything; a third goes to looking at pairs.
        claim: A loss, a guarantee or a pure ε; else what the mechanism's own ``loss`` says.
        sensitivity: What that ``loss`` is asked with, if it takes one.
        assuming: As for ``lower_bound``.
        workers: How many processes count at once, as for ``lower_bound``.
        watch: Called with the share that is done and a few words; it may raise to stop.
        stop_when_broken: Whether to end once the claim is refuted.

    Raises:
        MissingLibrary: Where hypothesis isn't installed.
    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings, target
    except ImportError:
        raise MissingLibrary("the search over tables needs hypothesis: pip install 'dither[search]'") from None
    start = clock.now()
    seconds = seconds_of(budget)
    count = positive_int(examples, "examples")
    tested = claimed(mechanism, claim, sensitivity)
    screen = _Screen(batched(mechanism), fraction_up(as_fraction(delta, "delta")), tested)
    end = start + SCREENING * seconds
    numbers = itertools.count(1)

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.target),
    )
    @given(strategy)
    def look(pair: Pair) -> None:
        # hypothesis can't be stopped halfway: when the time is over, what it still makes isn't looked at
        if clock.now() < end or screen.best is None:
            target(max(-1e6, min(1e6, screen.look(pair, SCREENING * seconds / count))), label="how telling")
            watch(SCREENING * next(numbers) / count, "looking at pairs of tables")

    look()
    assert screen.best is not None
    return lower_bound(
        mechanism,
        *screen.best[1],
        delta=delta,
        confidence=confidence,
        budget=max(0.1 * seconds, seconds - (clock.now() - start)),
        claim=tested,
        assuming=assuming,
        workers=workers,
        watch=part_of(watch, SCREENING, 1.0),
        stop_when_broken=stop_when_broken,
    )


def neighbouring_tables(
    columns: Mapping[str, Sequence[Any]],
    *,
    rows: tuple[int, int] = (0, 20),
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> SearchStrategy[tuple[Table, Table]]:
    """A hypothesis strategy of two tables that differ in one row: dictionaries of lists, a list for each column.

    For Arrow: ``strategy.map(lambda pair: tuple(map(pyarrow.table, pair)))``.

    Args:
        columns: For each the pair of its smallest and largest number, ``"age": (0, 120)``, or the values to choose
            from, ``"sex": ("f", "m")`` or ``"stars": [1, 2, 3]``.
        rows: The least and the most rows of a table.
        adjacency: With ADD_REMOVE the second table has a row less or more, with REPLACE one row says something else.

    Raises:
        MissingLibrary: Where hypothesis isn't installed.

    Example:
        >>> tables = neighbouring_tables({"age": (0, 120), "sex": ("f", "m")}, rows=(1, 5))
    """
    try:
        from hypothesis import strategies as st
    except ImportError:
        raise MissingLibrary("the search over tables needs hypothesis: pip install 'dither[search]'") from None
    if not columns:
        raise InvalidParameter('a table needs at least one column, such as columns={"age": (0, 120)}')
    least, most = rows
    positive_int(least, "rows", least=0)
    positive_int(most, "rows", least=max(1, least))
    row = st.tuples(*(_values(name, values) for name, values in columns.items()))

    @st.composite
    def pair(draw: Any) -> tuple[Table, Table]:
        one = draw(row)
        if adjacency is Adjacency.ADD_REMOVE:
            rest = draw(st.lists(row, min_size=least, max_size=max(least, most - 1)))
            place = draw(st.integers(0, len(rest)))
            with_it, without = [*rest[:place], one, *rest[place:]], rest
            both = (with_it, without) if draw(st.booleans()) else (without, with_it)
        else:
            rest = draw(st.lists(row, min_size=max(0, least - 1), max_size=most - 1))
            place = draw(st.integers(0, len(rest)))
            both = ([*rest[:place], one, *rest[place:]], [*rest[:place], draw(row), *rest[place:]])
        return _table(columns, both[0]), _table(columns, both[1])

    return pair()


def _values(name: str, values: Sequence[Any]) -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if isinstance(values, str) or not values:
        raise InvalidParameter(f"column {name!r} needs (smallest, largest) or a list of values")
    if isinstance(values, tuple) and len(values) == 2 and len(numbers) == 2:
        low, high = values
        if not low <= high:
            raise InvalidParameter(f"the range of column {name!r} is empty: ({low}, {high})")
        if isinstance(low, int) and isinstance(high, int):
            return st.integers(low, high)
        return st.floats(float(low), float(high), allow_nan=False)
    return st.sampled_from(list(values))


def _table(columns: Mapping[str, Sequence[Any]], rows: list[tuple[Any, ...]]) -> Table:
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}
