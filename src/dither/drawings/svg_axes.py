"""What drawings share: colours, scales, round numbers along an axis, and how much room a text takes."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

FILL = "#3182bd"
# Each has a contrast of 3 or more, on light and on dark pages.
COLOURS = (FILL, "#d1651a", "#2e8b6f", "#b8559b", "#8a7a1f", "#7a6fd0")
# Values from here on can't be drawn; values that differ by less than this share are drawn as alike.
LARGEST, SMALLEST_SPAN = 1e300, 1e-12
# About as wide as letters of 12 pixels get in the fonts of common systems.
LETTER, WIDE_LETTER, BOLD = 6.8, 12.5, 1.1
LONGEST_TICK = 10
# From where on an axis counts in which unit.
UNITS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is; in the middle, if all are alike."""
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.5)


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """From where to where values are drawn, and the round numbers between."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, low: float, high: float, *, wanted: int = 5) -> ChartAxis:
        """An axis that holds both. An end that only just passes 0 gets no tick of its own."""
        ticks = round_numbers(low, high, wanted)
        step = ticks[1] - ticks[0]
        if -step / 2 < low < 0 < high:
            return cls(low, ticks[-1], tuple(ticks[1:]))
        if low < 0 < high < step / 2:
            return cls(ticks[0], high, tuple(ticks[:-1]))
        return cls(ticks[0], ticks[-1], tuple(ticks))

    @property
    def texts(self) -> list[str]:
        """The ticks as people read them, all in one unit.

        Example:
            >>> ChartAxis.over(0, 7_000).texts, ChartAxis.over(0, 14_000).texts
            (['0', '2,000', '4,000', '6,000', '8,000'], ['0', '5k', '10k', '15k'])
        """
        largest = max(abs(tick) for tick in self.ticks)
        unit, name = next(((unit, name) for least, unit, name in UNITS if largest >= least), (1.0, ""))
        step = (self.ticks[1] - self.ticks[0]) / unit if len(self.ticks) > 1 else 1.0
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        texts = [f"{tick / unit:,.{places}f}{name}" if tick else "0" for tick in self.ticks]
        # far from 0 and close together, or very small
        return texts if max(map(len, texts)) <= LONGEST_TICK else [f"{tick:g}" for tick in self.ticks]


def round_numbers(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers around an interval, about as many as wanted.

    Example:
        >>> round_numbers(0, 97), round_numbers(-3, 4)
        ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [-4.0, -2.0, 0.0, 2.0, 4.0])
    """
    span, size = high - low, max(abs(low), abs(high))
    if span <= size * SMALLEST_SPAN or span < 1 / LARGEST:
        span = size if size > 1 / LARGEST else 1.0
        low, high = low - span / 2, high + span / 2
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, last + 1)]


def width_of(text: str, *, bold: bool = False) -> float:
    """About how many pixels a text takes."""
    room = sum(WIDE_LETTER if unicodedata.east_asian_width(letter) in "WF" else LETTER for letter in text)
    return room * BOLD if bold else room


def cut(text: str, room: float, *, bold: bool = False) -> str:
    """As much of a text as has room."""
    if width_of(text, bold=bold) <= room:
        return text
    kept = text
    while len(kept) > 1 and width_of(kept + "…", bold=bold) > room:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def spread(wanted: Sequence[float], widths: Sequence[float], low: float, high: float) -> list[tuple[int, float]]:
    """Which of several texts have room beside each other, and the middle of each, moved to stay between the ends."""
    shown: list[tuple[int, float]] = []
    end = -math.inf
    for index, (x, width) in enumerate(zip(wanted, widths, strict=True)):
        middle = min(max(x, low + width / 2), high - width / 2)
        if middle - width / 2 >= end:
            shown.append((index, middle))
            end = middle + width / 2 + LETTER * 1.5
    return shown
