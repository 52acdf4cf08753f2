"""The error of an aggregate before data is read, as data; ``str`` makes of it the sentence that people read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


class Prediction(ABC):
    """What public facts tell of an aggregate's error in one group."""

    __slots__ = ()

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, if no data has a say in it."""
        return self.at(None)

    def at(self, rows: int | None) -> float | None:
        """Half the width in a group of so many rows, by the sentence's own digits; None if that doesn't tell it."""
        del rows
        return None

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fixed(Prediction):
    """The same whatever the data: that of a count or a sum, or, without ``noise``, of what public bounds decide."""

    half: float
    noise: bool = True

    def at(self, rows: int | None) -> float:
        """That of the noise."""
        del rows
        return self.half

    def __str__(self) -> str:
        return f"±{short(self.half)}" if self.noise else "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRow(Prediction):
    """A number over the rows of the group, or the ``root`` of that; ``about`` if it is a bound to first order.

    ``counted`` says what stands for rows where that is another number.

    Example:
        >>> error = PerRow(over_rows=11_951.2)
        >>> str(error), error.at(1000)
        ('±(11,952 / rows in the group)', 11.952)
    """

    over_rows: float
    root: bool = False
    about: bool = False
    counted: str = "rows"

    def at(self, rows: int | None) -> float | None:
        """The formula for so many rows."""
        if rows is None:
            return None
        half = _rounded_up(self.over_rows) / rows
        return math.sqrt(half) if self.root else half

    def __str__(self) -> str:
        before = ("at most about " if self.about else "") + ("±√" if self.root else "±")
        return f"{before}({short(self.over_rows)} / {self.counted} in the group)"


@dataclass(frozen=True, slots=True)
class Ranks(Prediction):
    """How many ranks a quantile may be off."""

    ranks: float

    def __str__(self) -> str:
        return f"±{short(self.ranks)} ranks"


@dataclass(frozen=True, slots=True)
class Rarer(Prediction):
    """By how many rows a mode may be rarer than the most frequent value."""

    rows: float

    def __str__(self) -> str:
        return f"a value that occurs at most {short(self.rows)} times less often than the most frequent one"


@dataclass(frozen=True, slots=True)
class Unknown(Prediction):
    """Nothing is known but why."""

    why: str

    def __str__(self) -> str:
        return self.why


def short(value: float) -> str:
    """Rounded up to three digits, or to a whole number above 1000."""
    text = f"{_rounded_up(value):,.{_decimals(value)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimals(value: float) -> int:
    return max(0, 2 - math.floor(math.log10(value))) if value else 0


def _rounded_up(value: float) -> float:
    scale = 10.0 ** _decimals(value)
    # what is a short number already must not be pushed to the next one by its last bit
    return math.ceil(value * scale * (1 - 1e-12)) / scale
