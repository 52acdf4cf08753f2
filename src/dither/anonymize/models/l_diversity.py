"""l-diversity: a class whose people all share a sensitive value gives it away (Machanavajjhala et al. 2007).

A missing sensitive value counts as a value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dither.anonymize.models.base import ColumnModel, Seen, at_most, counted, said
from dither.anonymize.table.values import Bools, Counts
from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, ceil_div, positive, positive_int

# Float entropies of n rows err by parts in 1e16 for each value; closer calls are decided by integers.
DOUBT = 1e-10
# The largest class, reduced by the common divisor of its counts, whose powers are computed; larger ones fail in doubt.
LARGEST_POWER = 100_000


@dataclass(frozen=True, slots=True)
class DistinctDiversity(ColumnModel):
    """Every class has at least l different sensitive values."""

    name: ClassVar[str] = "distinct l-diversity"

    l: int  # noqa: E741
    column: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "l", positive_int(self.l, "l"))

    @property
    def asks_nothing(self) -> bool:
        """Whether l is 1: every class has a value."""
        return self.l == 1

    def needs(self) -> int:
        """The fewest rows of a class: l."""
        return self.l

    def least_values(self) -> int:
        """The fewest different values of a class: l."""
        return self.l

    def _good(self, seen: Seen) -> Bools:
        return np.asarray(np.diff(counted(self, seen).starts) >= self.l)

    def sentence(self) -> str:
        """What the model asks, in words."""
        return f"distinct l-diversity: every class has at least {self.l} different values of {self.column!r}"


@dataclass(frozen=True, slots=True, init=False)
class EntropyDiversity(ColumnModel):
    """The entropy of the sensitive values of every class is at least that of l equally frequent ones, log l.

    Equality is decided exactly: H ≥ log l means n^n ≥ l^n · Π c^c for counts c that add up to n.
    """

    name: ClassVar[str] = "entropy l-diversity"

    l: Fraction  # noqa: E741
    column: str

    def __init__(self, l: Number, column: str) -> None:  # noqa: E741
        exact = as_fraction(l, "l")
        if exact < 1:
            raise InvalidParameter(f"l must be at least 1; got {l!r}")
        object.__setattr__(self, "l", exact)
        object.__setattr__(self, "column", column)

    @property
    def asks_nothing(self) -> bool:
        """Whether l is 1: no entropy is below 0."""
        return self.l == 1

    def needs(self) -> int:
        """The fewest rows of a class: l, rounded up."""
        return ceil_div(self.l.numerator, self.l.denominator)

    def least_values(self) -> int:
        """The fewest different values of a class: l, rounded up."""
        return self.needs()

    def _good(self, seen: Seen) -> Bools:
        found, sizes = counted(self, seen), seen.sizes
        filled = np.flatnonzero(sizes > 0)
        good = np.zeros(sizes.size, bool)
        if not filled.size:
            return good
        shares = found.counts / sizes[found.class_of_entry]
        # entries of classes without rows don't exist, so the stretches of the others adjoin
        entropy = np.add.reduceat(-shares * np.log(shares), found.starts[:-1][filled])
        # the quotient first: a fraction of large integers need not fit a float
        excess = entropy - (math.log(self.l.numerator) - math.log(self.l.denominator))
        good[filled] = excess > DOUBT
        for place in filled[np.abs(excess) <= DOUBT].tolist():
            good[place] = self._reached(found.counts[found.starts[place] : found.starts[place + 1]])
        return good

    def _reached(self, counts: Counts) -> bool:
        whole = [int(count) for count in counts]
        divisor = math.gcd(*whole)
        whole = [count // divisor for count in whole]
        n = sum(whole)
        if n > LARGEST_POWER:
            return False
        product = math.prod(count**count for count in whole)
        return bool((n * self.l.denominator) ** n >= self.l.numerator**n * product)

    def sentence(self) -> str:
        """What the model asks, in words."""
        return f"entropy l-diversity: the entropy of {self.column!r} in every class is at least log {said(self.l)}"


@dataclass(frozen=True, slots=True, init=False)
class RecursiveDiversity(ColumnModel):
    """The most frequent value of every class is less than c times as frequent as all from the l-th on together.

    With counts r₁ ≥ r₂ ≥ …: r₁ < c·(r_l + r_{l+1} + …).
    """

    name: ClassVar[str] = "recursive (c,l)-diversity"

    c: Fraction
    l: int  # noqa: E741
    column: str

    def __init__(self, c: Number, l: int, column: str) -> None:  # noqa: E741
        object.__setattr__(self, "c", positive(c, "c"))
        object.__setattr__(self, "l", positive_int(l, "l"))
        object.__setattr__(self, "column", column)

    @property
    def asks_nothing(self) -> bool:
        """Whether l is 1 and c above 1: no value is more frequent than all together."""
        return self.l == 1 and self.c > 1

    def needs(self) -> int:
        """The fewest rows of a class: one for each of l values."""
        return self.l

    def least_values(self) -> int:
        """The fewest different values of a class: l, or none are left to add up."""
        return self.l

    def _good(self, seen: Seen) -> Bools:
        found = counted(self, seen)
        home = found.class_of_entry
        order = np.lexsort((-found.counts, home))
        falling = found.counts[order]
        rank = np.arange(falling.size) - found.starts[:-1][home]
        tail = found.sums(np.where(rank >= self.l - 1, falling, 0))
        top = found.sums(np.where(rank == 0, falling, 0))
        # r₁ < c·tail is the opposite of c·tail ≤ r₁
        return ~at_most(tail, top, 1 / self.c)

    def sentence(self) -> str:
        """What the model asks, in words."""
        return (
            f"recursive (c,l)-diversity: the most frequent value of {self.column!r} in every class is less than "
            f"{said(self.c)} times as frequent as all from the {self.l}th on together"
        )
