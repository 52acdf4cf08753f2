"""Scores: functions of an output that are large where one input is more likely, fitted on draws of their own.

An event is a score above or below a cut. What a score is may be anything, and may be fitted badly: the bound that
follows is certified on other draws, so a bad score makes it low and never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dither.audit.outputs.layout import Columns, Layout
from dither.mechanisms.base import Floats

BINS = 200
MOST_ATOMS = 100_000
MOST_SINGLE = 16
MOST_LEARNED = 60
# With no more numbers than this, differences and products of two are looked at as well.
MOST_PAIRED = 6
# What a learned score is fitted on.
MOST_DRAWS = 20_000
PIECE = 512
FIRST_LOOK = 4000
FEW_VALUES = 64
# Codes of bins that aren't between edges, and of the lowest bit of what has none.
MISSING, NEGATIVE_INFINITY, INFINITY = -1, -2, -3
NO_BIT, NEGATIVE_ZERO = 9999, 9998
Keys = npt.NDArray[Any]


class OutputScore(Protocol):
    """Large where the first input is more likely, or just a number of the output."""

    def of(self, columns: Columns) -> Floats:
        """The score of each output; never NaN."""
        ...

    def above(self, cut: float) -> str:
        """The event "score ≥ cut", in words."""
        ...

    def below(self, cut: float) -> str:
        """The event "score < cut", in words."""
        ...

    @property
    def axis(self) -> Feature | None:
        """The column that a plot of this event would show, if the score is a function of one."""
        return None


# ------------------------------------------------------------------ numbers of an output


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """A number of the output: a column, the difference of two, or the sum of several; or a flag, 1 or 0."""

    name: str
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    flag: bool = False

    def of(self, columns: Columns) -> Floats:
        """The sum of the columns in ``plus`` less those in ``minus``, for each output."""
        if len(self.plus) == 1 and not self.minus:
            return columns.numbers[self.plus[0]]
        with np.errstate(invalid="ignore", over="ignore"):
            total: Floats = np.sum([columns.numbers[name] for name in self.plus], axis=0)
            for name in self.minus:
                total = total - columns.numbers[name]
        return total


@dataclass(frozen=True, slots=True, eq=False)
class OfFeature:
    """What is about one number of the output, and shows in its plot."""

    column: Feature

    @property
    def axis(self) -> Feature:
        """The number that it is about."""
        return self.column


@dataclass(frozen=True, slots=True, eq=False)
class Value(OfFeature):
    """The number itself: its two tails are the oldest events of all. NaN lies below everything."""

    missing: bool

    def of(self, columns: Columns) -> Floats:
        """The number of each output, −∞ where it is NaN."""
        numbers = self.column.of(columns)
        return np.where(np.isnan(numbers), -np.inf, numbers) if self.missing or np.isnan(numbers).any() else numbers

    def above(self, cut: float) -> str:
        """A half line, or that something is there."""
        if self.column.flag and 0 < cut <= 1:
            return self.column.name
        return f"{self.column.name} ≥ {cut:.6g}"

    def below(self, cut: float) -> str:
        """The other half line, or that it isn't there."""
        if self.column.flag and 0 < cut <= 1:
            return f"not {self.column.name}"
        return f"{self.column.name} < {cut:.6g}" + (" or missing" if self.missing else "")


# ------------------------------------------------------------------ likelihood ratios of codes


class Coding(Protocol):
    """Sorts outputs into finitely many kinds."""

    def codes(self, columns: Columns) -> Keys:
        """The kind of each output."""
        ...

    def words(self, codes: list[int]) -> str:
        """That the output is of one of these kinds."""
        ...

    @property
    def axis(self) -> Feature | None:
        """The column that decides, if one does."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class LikelihoodRatio:
    """The logarithm of how much more often a kind of output was seen under the first input."""

    coding: Coding
    keys: Keys
    ratios: Floats

    @classmethod
    def fitted(cls, coding: Coding, first: Columns, second: Columns) -> LikelihoodRatio:
        """Counted on a sample of each input, with half a draw added to each kind."""
        mine, others = coding.codes(first), coding.codes(second)
        keys, places = np.unique(np.concatenate([mine, others]), return_inverse=True)
        a = np.bincount(places[: mine.size], minlength=keys.size) + 0.5
        b = np.bincount(places[mine.size :], minlength=keys.size) + 0.5
        return cls(coding, keys, np.log(a / a.sum()) - np.log(b / b.sum()))

    def of(self, columns: Columns) -> Floats:
        """The ratio of each output's kind; 0 for a kind that wasn't seen."""
        codes = self.coding.codes(columns)
        place = np.minimum(np.searchsorted(self.keys, codes), self.keys.size - 1)
        return np.where(self.keys[place] == codes, self.ratios[place], 0.0)

    def above(self, cut: float) -> str:
        """That the output is of a kind whose ratio reaches the cut."""
        return self.coding.words(self.keys[self.ratios >= cut].tolist())

    def below(self, cut: float) -> str:
        """That the output is of a kind seen whose ratio is below the cut."""
        return self.coding.words(self.keys[self.ratios < cut].tolist())

    @property
    def axis(self) -> Feature | None:
        """The column that decides the kind, if one does."""
        return self.coding.axis


@dataclass(frozen=True, slots=True, eq=False)
class Between(OfFeature):
    """Quantile bins of a number; NaN and the infinities are kinds of their own."""

    edges: Floats

    @classmethod
    def of(cls, column: Feature, first: Columns, second: Columns) -> Between | None:
        """Edges at the quantiles of both samples together."""
        both = np.concatenate([column.of(first), column.of(second)])
        finite = both[np.isfinite(both)]
        if finite.size == 0:
            return cls(column, np.array([])) if both.size else None
        return cls(column, np.unique(np.quantile(finite, np.linspace(0, 1, BINS + 1)[1:-1])))

    def codes(self, columns: Columns) -> Keys:
        """The bin of each output, or a code of its own for NaN and the infinities."""
        numbers = self.column.of(columns)
        codes = np.searchsorted(self.edges, numbers, side="right")
        if not np.isfinite(numbers).all():
            codes = np.where(np.isnan(numbers), MISSING, codes)
            codes = np.where(numbers == -np.inf, NEGATIVE_INFINITY, np.where(numbers == np.inf, INFINITY, codes))
        return codes

    def words(self, codes: list[int]) -> str:
        """Intervals, merged where they touch."""
        odd = {MISSING: "missing or not a number", NEGATIVE_INFINITY: "−∞", INFINITY: "∞"}
        parts = [words for code, words in odd.items() if code in codes]
        runs = list(_runs(sorted(code for code in codes if code >= 0)))
        for low, high in runs[:4]:
            begin = None if low == 0 else f"{self.edges[low - 1]:.6g}"
            end = None if high >= self.edges.size else f"{self.edges[high]:.6g}"
            if begin is None and end is None:
                parts.append("finite")
            else:
                parts.append(f"below {end}" if begin is None else f"from {begin} " + (f"to {end}" if end else "up"))
        if len(runs) > 4:
            parts.append(f"in one of {len(runs) - 4} more intervals")
        return f"{self.column.name} is " + " or ".join(parts)


def _runs(codes: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(codes) + 1):
        if place == len(codes) or codes[place] != codes[place - 1] + 1:
            yield codes[start], codes[place - 1]
            start = place


@dataclass(frozen=True, slots=True, eq=False)
class Atoms(OfFeature):
    """Values that were drawn more than once; all others are one kind."""

    values: Floats

    @classmethod
    def of(cls, column: Feature, first: Columns, second: Columns) -> Atoms | None:
        """The values that repeat in the samples, if there are any and not too many."""
        both = np.concatenate([column.of(first), column.of(second)])
        values, counts = np.unique(both[np.isfinite(both)], return_counts=True)
        again = values[counts > 1]
        return cls(column, again) if 0 < again.size <= MOST_ATOMS else None

    def codes(self, columns: Columns) -> Keys:
        """The place among the values, or −1."""
        numbers = self.column.of(columns)
        place = np.minimum(np.searchsorted(self.values, numbers), self.values.size - 1)
        return np.where(self.values[place] == numbers, place, -1)

    def words(self, codes: list[int]) -> str:
        """That the number is one of these values; a few are named."""
        named = [f"{self.values[code]:.10g}" for code in codes if code >= 0]
        few = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        rest = "none of the values that repeat" if -1 in codes else ""
        some = (f"{few}" if len(named) == 1 else f"one of {few}") if named else ""
        return f"{self.column.name} is " + " or ".join(part for part in (some, rest) if part)


def lowest_bit(numbers: Floats) -> npt.NDArray[np.int64]:
    """The exponent of the lowest bit that is set in each float; NO_BIT for 0, NaN and the infinities.

    Noise added in floating point rounds to the grid of the sum's magnitude, and which sums can occur depends on the
    exact answer (Mironov 2012).
    """
    proper = np.isfinite(numbers) & (numbers != 0)
    fractions, exponents = np.frexp(np.where(proper, numbers, 1.0))
    whole = np.abs(np.ldexp(fractions, 53)).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(proper, exponents.astype(np.int64) - 53 + lowest, NO_BIT)


@dataclass(frozen=True, slots=True, eq=False)
class LowestBit(Coding):
    """Where the lowest bit of a number is, and with ``magnitude`` also between which powers of two the number lies."""

    column: Feature
    magnitude: bool

    def codes(self, columns: Columns) -> Keys:
        """The exponent, or both exponents in one number."""
        numbers = self.column.of(columns)
        bits = np.where((numbers == 0) & np.signbit(numbers), NEGATIVE_ZERO, lowest_bit(numbers))
        if not self.magnitude:
            return bits
        size = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))[1].astype(np.int64)
        return (size + 5000) * 20_000 + bits

    def words(self, codes: list[int]) -> str:
        """That the lowest bit is one of these; few enough are listed."""
        what = f"the lowest bit of {self.column.name}"
        if self.magnitude:
            if len(codes) > 3:
                return f"{what} is one of {len(codes)} that were found for its magnitude"
            pairs = [divmod(code + 1500, 20_000) for code in codes]
            parts = [f"2^{bit - 1500} while it is below 2^{size - 5000}" for size, bit in pairs]
            return f"{what} is " + " or ".join(parts)
        odd = {NO_BIT: "0 or not finite", NEGATIVE_ZERO: "−0"}
        parts = [f"{self.column.name} is {words}" for code, words in odd.items() if code in codes]
        runs = list(_runs([code for code in codes if code not in odd]))
        if runs:
            spans = [f"2^{low}" if low == high else f"2^{low} to 2^{high}" for low, high in runs[:4]]
            spans += [f"{len(runs) - 4} more ranges"] if len(runs) > 4 else []
            parts.insert(0, f"{what} is " + " or ".join(spans))
        return " or ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class CodeColumn(Coding):
    """A column of codes: texts, keys, shapes, the whole output."""

    name: str
    layout: Layout

    def codes(self, columns: Columns) -> Keys:
        """The codes that the layout gave."""
        return columns.kinds[self.name]

    def words(self, codes: list[int]) -> str:
        """Those that are known by a text."""
        texts = [text for text in (self.layout.words(self.name, int(code)) for code in codes) if text is not None]
        few = " or ".join(text if len(text) <= 60 else f"{text[:57]}…" for text in texts[:3])
        more = len(codes) - len(texts[:3])
        if not few:
            return f"{self.name} is one of {len(codes)} that were found"
        return f"{self.name} is {few}" + (f" or one of {more} more" if more else "")


@dataclass(frozen=True, slots=True, eq=False)
class Anything(OutputScore):
    """The score of outputs that are all alike."""

    def of(self, columns: Columns) -> Floats:
        """Always 0."""
        return np.zeros(columns.size)

    def above(self, cut: float) -> str:
        """Every output scores 0, so all belong to the event or none."""
        return "any output" if cut <= 0 else "no output"

    def below(self, cut: float) -> str:
        """The complement: none or all."""
        return "any output" if cut > 0 else "no output"


# ------------------------------------------------------------------ learned from all numbers


@dataclass(frozen=True, slots=True, eq=False)
class Learned(OutputScore):
    """For what no single number shows: logistic regression on all of them, their sizes, and products where few."""

    columns: tuple[str, ...]
    centre: Floats
    spread: Floats
    weights: Floats
    products: bool
    gaps: bool

    @classmethod
    def fitted(cls, names: tuple[str, ...], first: Columns, second: Columns) -> Learned:
        """By Newton's method with a small ridge, on at most 20,000 draws of each input."""
        rows = [np.column_stack([sample.numbers[name][:MOST_DRAWS] for name in names]) for sample in (first, second)]
        both = np.where(np.isfinite(np.concatenate(rows)), np.concatenate(rows), np.nan)
        known = np.isfinite(both).any(axis=0)
        both[:, ~known] = 0.0
        centre, spread = np.nanmedian(both, axis=0), np.nanstd(both, axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        products, gaps = len(names) <= MOST_PAIRED, not bool(np.isfinite(both).all())
        model = cls(names, centre, spread, np.array([]), products, gaps)
        design = np.concatenate([model._features(part) for part in rows])
        truth = np.concatenate([np.ones(len(rows[0])), np.zeros(len(rows[1]))])
        weights = np.zeros(design.shape[1])
        # where the inputs can be told apart without error there is no end, and a few steps find the direction
        for _ in range(12):
            chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
            curve = _squares(design, chance * (1 - chance)) + 1e-2 * np.eye(weights.size)
            step = np.linalg.solve(curve, design.T @ (truth - chance) - 1e-2 * weights)
            weights = weights + step
            if np.abs(step).max() < 1e-4:
                break
        return cls(names, centre, spread, weights, products, gaps)

    def _features(self, rows: Floats) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip((rows - self.centre) / self.spread, -8.0, 8.0)
        missing = np.isnan(scaled)
        scaled = np.where(missing, 0.0, scaled)
        parts = [np.ones((len(rows), 1)), scaled, np.abs(scaled)]
        if self.gaps:
            parts.append(missing.astype(np.float64))
        if self.products:
            width = scaled.shape[1]
            parts += [scaled[:, [i]] * scaled[:, [j]] for i in range(width) for j in range(i)]
        return np.concatenate(parts, axis=1)

    def of(self, columns: Columns) -> Floats:
        """The logarithm of the odds."""
        return np.asarray(self._features(np.column_stack([columns.numbers[n] for n in self.columns])) @ self.weights)

    def _words(self) -> str:
        width = len(self.columns)
        weight = np.abs(self.weights[1 : 1 + width]) + np.abs(self.weights[1 + width : 1 + 2 * width])
        most = ", ".join(self.columns[i] for i in np.argsort(-weight)[:3])
        return f"a learned score of {width} numbers (mostly {most})"

    def above(self, cut: float) -> str:
        """That the learned score reaches the cut, or doesn't, with the columns that weigh most."""
        return f"{self._words()} is at least {cut:.4g}"

    def below(self, cut: float) -> str:
        """That the learned score reaches the cut, or doesn't, with the columns that weigh most."""
        return f"{self._words()} is below {cut:.4g}"


def _squares(design: Floats, weights: Floats) -> Floats:
    """The sum of the outer squares of all rows, each with its weight.

    In short pieces: a longer product is shared among threads, and on a busy machine all wait for the slowest.
    """
    weighted, width = design * weights[:, None], design.shape[1]
    whole = len(design) // PIECE * PIECE
    left, right = (rows[:whole].reshape(-1, PIECE, width) for rows in (weighted, design))
    return np.asarray((left.transpose(0, 2, 1) @ right).sum(axis=0) + weighted[whole:].T @ design[whole:])


# ------------------------------------------------------------------ all of them


# How to fit a score on a sample of each input; None where the sample has nothing of the kind.
Recipe = Callable[[Columns, Columns], "OutputScore | None"]


def recipes(layout: Layout, first: Columns, second: Columns) -> Iterator[Recipe]:
    """Scores worth fitting on samples like these, the simple and promising ones first."""
    names = _promising(first, second)
    single = [Feature(name, (name,), flag=name in first.flags) for name in names[:MOST_SINGLE]]
    derived = []
    if len(names) > 1:
        few = names[:MOST_PAIRED]
        derived = [Feature(f"{a} − {b}", (a,), (b,)) for place, a in enumerate(few) for b in few[:place]]
        derived.append(Feature("the sum of all numbers", tuple(first.numbers)))
    for column in single:
        yield partial(_value, column)
    for name in first.kinds:
        yield partial(_ratio, CodeColumn(name, layout))
    for column in derived:
        yield partial(_value, column)
    for column in single:
        yield from _shapes(column, first, second)
    if len(names) > 1:
        yield partial(Learned.fitted, tuple(names[:MOST_LEARNED]))
    for column in single:
        if not _few_values(column, first, second):
            yield partial(_ratio, LowestBit(column, magnitude=True))
    for column in derived:
        yield from _shapes(column, first, second)
    if not names:
        yield _anything


def _shapes(column: Feature, first: Columns, second: Columns) -> Iterator[Recipe]:
    """Scores of a number beyond its half lines; where it has few values, how often each occurs says it all."""
    if not _few_values(column, first, second):
        yield partial(_of, Between, column)
        yield partial(_ratio, LowestBit(column, magnitude=False))
    yield partial(_of, Atoms, column)


def _few_values(column: Feature, first: Columns, second: Columns) -> bool:
    """Whether a number is one of a few, all finite and none of them −0."""
    both = np.concatenate([column.of(sample.head(FIRST_LOOK)) for sample in (first, second)])
    if not np.isfinite(both).all() or np.any((both == 0) & np.signbit(both)):
        return False
    return np.unique(both).size <= FEW_VALUES


def _anything(first: Columns, second: Columns) -> Anything:  # noqa: ARG001
    return Anything()


def _value(column: Feature, first: Columns, second: Columns) -> Value:
    return Value(column, bool(np.isnan(column.of(first)).any() or np.isnan(column.of(second)).any()))


def _ratio(coding: Coding, first: Columns, second: Columns) -> LikelihoodRatio | None:
    ratio = LikelihoodRatio.fitted(coding, first, second)
    return ratio if ratio.keys.size > 1 else None


def _of(kind: type[Between | Atoms], column: Feature, first: Columns, second: Columns) -> LikelihoodRatio | None:
    coding = kind.of(column, first, second)
    return None if coding is None else _ratio(coding, first, second)


def _promising(first: Columns, second: Columns) -> list[str]:
    """The numbers, those that differ most between the samples first (by the largest distance of distribution)."""
    names = list(first.numbers)
    if len(names) <= 1:
        return names
    gaps = []
    for place, name in enumerate(names):
        a, b = (np.sort(np.nan_to_num(s.numbers[name][:FIRST_LOOK], nan=-math.inf)) for s in (first, second))
        both = np.concatenate([a, b])
        gap = np.searchsorted(a, both, side="right") / a.size - np.searchsorted(b, both, side="right") / b.size
        gaps.append((-round(float(np.abs(gap).max()), 2), place))
    return [names[place] for _, place in sorted(gaps)]
