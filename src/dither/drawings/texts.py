"""Values as people read them: a noisy one with the ends of its interval, in the digits that the noise leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

# Beyond this many decimals a power of ten is read more easily.
MOST_DECIMALS = 8


class ShownInterval(Protocol):
    """The ends of a noisy column's values; ``text`` says the error in words where there are none."""

    @property
    def low(self) -> npt.NDArray[np.float64] | None:
        """The lower ends."""

    @property
    def high(self) -> npt.NDArray[np.float64] | None:
        """The upper ends."""

    @property
    def text(self) -> str:
        """The error in words."""


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value as people read it; a noisy one with the ends of its interval, in the digits that the noise leaves.

    ``half`` is the distance to the end that is further away, so that what is said with ± is true, and ``around`` says
    whether the value is in the middle, as it isn't where the interval was cut at a bound.
    """

    value: str
    half: str = ""
    low: str = ""
    high: str = ""
    around: bool = False

    def __str__(self) -> str:
        return f"{self.value} ± {self.half}" if self.half else self.value


def column_texts(column: pa.ChunkedArray[Any], bars: ShownInterval | None, most: int | None = None) -> list[ValueText]:
    """The first values of a column as texts.

    A noisy column has the digits of its usual error: the others would be noise. The table keeps them. A value with a
    far smaller error has its own digits.
    """
    values = column.slice(0, most).to_pylist()
    if bars is None:
        return [ValueText(plain(value)) for value in values]
    if bars.low is None or bars.high is None:
        return [ValueText(cell(value)) for value in values]
    import pyarrow.types  # here: commands that show no column needn't wait for it

    whole = pyarrow.types.is_integer(column.type)
    ends = list(zip(bars.low.tolist(), bars.high.tolist(), strict=True))
    known = sorted(half for low, high in ends if 0 < (half := (high - low) / 2) < math.inf)
    usual = decimals(known[len(known) // 2]) if known else None
    return [
        ValueText(cell(value)) if value is None else _between(value, low, high, usual, whole=whole)
        for value, (low, high) in zip(values, ends, strict=False)
    ]


def _between(value: float, low: float, high: float, usual: int | None, *, whole: bool) -> ValueText:
    half = (high - low) / 2
    own = decimals(half)
    kept = own if usual is not None and own is not None and half < 10.0**-usual else usual
    around = abs(float(value) - low - half) <= 1e-9 * max(abs(low), abs(high))
    far = half if around else max(float(value) - low, high - float(value))
    shown, width, start, end = (rounded(one, kept, whole=whole) for one in (value, far, low, high))
    return ValueText(shown, width, start, end, around)


def decimals(half: float) -> int | None:
    """How many decimals are worth reading beside such an error, below 0 for tens and hundreds; None without one.

    Example:
        >>> [decimals(half) for half in (0.034, 4.491, 35, 511_718)]
        [3, 1, 0, -3]
    """
    if not 0 < half < math.inf:
        return None
    power = math.floor(math.log10(half))
    # two digits of the error, and three of a large one, whose value has more than enough anyway
    return 1 - power if power < 2 else 2 - power


def rounded(value: float, places: int | None, *, whole: bool = False) -> str:
    """A number with so many decimals; one of a column of ``whole`` numbers has none unless it needs them.

    Example:
        >>> rounded(818_905.26, -3), rounded(23.5, 2), rounded(-0.04, 1)
        ('819,000', '23.50', '0.0')
    """
    if places is None or places > MOST_DECIMALS or not math.isfinite(value):
        return cell(value)
    if whole and value == int(value):
        places = min(places, 0)
    # adding 0 takes the sign from a zero
    near = round(value, places) + 0
    return f"{near:,}" if isinstance(near, int) else f"{near:,.{max(places, 0)}f}"


def plain(value: object) -> str:
    """A key as text: a number as it is written elsewhere, without commas, since it may be a year.

    Example:
        >>> plain(2015), plain(2015.0), plain(0.25)
        ('2015', '2015', '0.25')
    """
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else number(value)
    return str(value) if isinstance(value, int) else cell(value)


def cell(value: object) -> str:
    """A value of a table as text."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    # a key from the data must not steer the terminal that shows it
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))


def number(value: float) -> str:
    """A number with as many digits as are worth reading."""
    if value != value or value in (float("inf"), float("-inf")):
        return "unknown"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 100 else f"{value:.4g}"
