"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierReport:
    """What the verifier found; ``good`` if nothing is wrong.

    ``suppressed`` counts rows that are missing against the original, or printed as ``*`` throughout; ``notes`` say what
    could not be checked, and ``undecided`` that rows could not be matched with those of the original.
    """

    rows: int
    classes: int
    smallest: int
    suppressed: int
    undecided: bool = False
    findings: tuple[Flaw, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        head = f"{self.rows} rows in {self.classes} classes, the smallest of {self.smallest}"
        if self.suppressed:
            head += f"; {self.suppressed} rows suppressed"
        passed = "every check passed" if not self.undecided else "every check that could be made passed"
        verdict = passed if self.good else f"{len(self.findings)} problem{'s' * (len(self.findings) > 1)}"
        lines = [f"{head}: {verdict}", *(f"- {found.text}" for found in self.findings)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One thing that is wrong: what, in which column, in how many classes, cells or rows, and in words."""

    problem: Problem
    text: str
    column: str | None = None
    count: int = 1


class Problem(Enum):
    """What can be wrong with a release."""

    COLUMN_MISSING = "column missing"
    """The configuration names a column that the release doesn't have."""
    IDENTIFYING_COLUMN = "identifying column"
    """A column that names people was left in."""
    UNKNOWN_COLUMN = "unknown column"
    """The release has a column that the configuration doesn't speak of."""
    MODEL_VIOLATED = "model violated"
    """A class of rows doesn't satisfy a model."""
    TOO_MANY_SUPPRESSED = "too many suppressed"
    """More rows are left out than the configuration allows."""
    TOO_MANY_ROWS = "too many rows"
    """There are more rows than in the original."""
    NOT_IN_HIERARCHY = "not in hierarchy"
    """A printed label is at no level of its column's hierarchy."""
    NOT_FROM_ORIGINAL = "not from original"
    """A row or a value stands for nothing in the original."""
