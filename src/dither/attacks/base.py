"""What every attack reports: its success on an unprotected and on a private release, beside the published figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.errors import InvalidParameter
from dither.pictures import picture
from dither.progress import Watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bits: TypeAlias = npt.NDArray[np.bool_]


class ReleaseKind(Enum):
    """What the attacker holds."""

    UNPROTECTED = "unprotected"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True)
class Published:
    """A figure from the literature to compare with, as printed there: "87%", and where."""

    figure: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One success figure: what was counted, against which release, and how well somebody without it would do.

    ``value`` and ``guessing`` are shares between 0 and 1; ``guessing`` is the success of the same attacker without the
    release, so that a private score is good when it is close to it, and not merely when it is small.
    """

    release: ReleaseKind
    what: str
    value: float
    guessing: float | None = None
    published: Published | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        for share in (self.value, self.guessing):
            if share is not None and not (math.isfinite(share) and 0 <= share <= 1):
                raise InvalidParameter(f"a score is a share between 0 and 1; got {share!r}")


def percent(share: float) -> str:
    """A share as it is printed: with one decimal, and with more below 1%, so that small rates can be compared.

    Example:
        >>> percent(0.731), percent(0.0027), percent(1 / 30_000), percent(0.0)
        ('73.1%', '0.27%', '0.003%', '0.0%')
    """
    if share == 0 or share >= 0.00995:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.2f}%" if share >= 0.0001 else f"{100 * share:.1g}%"


def chance_error(share: float, people: int) -> float:
    """How far chance moves a share of so many people: two standard deviations, exceeded in one run out of twenty.

    Example:
        >>> chance_error(0.5, 10_000)
        0.01
    """
    return 2 * math.sqrt(share * (1 - share) / people)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out of an attack: the scores, a sentence or two in plain words, and its picture (size in inches)."""

    attack: str
    scores: tuple[Score, ...]
    summary: str
    draw: Callable[[Figure], None]
    size: tuple[float, float] = (7.0, 4.0)

    def score(self, release: ReleaseKind) -> float:
        """The first (main) score against a release."""
        return next(score.value for score in self.scores if score.release is release)

    def plot(self, path: str | Path) -> Path:
        """Save the picture as .svg or .png; returns where."""
        place = Path(path)
        with picture(place, width=self.size[0], height=self.size[1]) as figure:
            self.draw(figure)
        return place

    def __str__(self) -> str:
        rows = []
        for score in self.scores:
            row = f"{score.release.value:<12}{score.what}: {percent(score.value)}"
            if score.guessing is not None:
                row += f" (without the release {percent(score.guessing)})"
            if score.published is not None:
                row += f"; published: {score.published.figure}, {score.published.source}"
            if score.detail:
                row += f"; {score.detail}"
            rows.append(row)
        return "\n".join([*rows, "", self.summary])


class Run(Protocol):
    """An attack as a function: everything has a default, data is made from ``seed``, noise is always fresh."""

    def __call__(self, *, seed: int = ..., watch: Watch = ...) -> Outcome:
        """Make data, attack both releases, report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An attack by name, for the command line and the index of the guides."""

    name: str
    title: str
    question: str
    run: Run
