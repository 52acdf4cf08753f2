"""All protocols of local privacy by a short name: what each is for, and how to make one from a few choices.

The command line and the comparison are made from this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Self

from dither.errors import InvalidParameter, did_you_mean
from dither.local.clients.heavy import Spelling
from dither.local.core.protocol import Protocol
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.participation import Participation
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.local.means.noisy import LaplaceMean, OneBitMean
from dither.local.means.piecewise import HybridMean, PiecewiseMean
from dither.local.means.vectors import OneBitVector, SampledVector
from dither.local.ranges.hierarchical import HierarchicalRanges
from dither.local.ranges.wavelet import WaveletRanges
from dither.local.rappor.protocol import Rappor
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.fragments import SequenceFragments
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.heavy_hitters import HeavyHitters
from dither.numeric import Number, as_fraction, positive


class Purpose(Enum):
    """What reports are collected for, and what of a ``Wanted`` the protocols for it are made from."""

    SHARES = "shares of listed values", ("domain", "epsilon")
    TEXTS = "shares of texts", ()
    MEAN = "mean of a number", ("bounds", "epsilon")
    VECTOR = "mean of a vector", ("size", "bounds", "epsilon")
    RANGES = "ranges and quantiles", ("domain", "epsilon")
    DISCOVERY = "frequent values of an unknown list", ()

    _value_: str
    choices: tuple[str, ...]

    def __new__(cls, value: Any, choices: tuple[str, ...] = ()) -> Self:
        """A member; without choices, a maker is given the whole of what is wanted."""
        made = object.__new__(cls)
        made._value_, made.choices = value, choices
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What somebody wants to collect; each protocol takes what it needs.

    ``domain`` is the number of values (or coordinates) or their labels, ``bounds`` those of a number, ``permanent``
    the ε of all reports about one value under RAPPOR, ``length`` the letters of a text or bits of a number that isn't
    listed.
    """

    epsilon: Fraction
    domain: int | tuple[str | int, ...] = 100
    bounds: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1))
    permanent: Fraction | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        positive(self.epsilon, "epsilon")

    @classmethod
    def of(cls, epsilon: Number, domain: Any = 100) -> Wanted:
        """The usual choices."""
        return cls(epsilon=as_fraction(epsilon, "epsilon"), domain=domain)

    @property
    def size(self) -> int:
        """The number of values."""
        return self.domain if isinstance(self.domain, int) else len(self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued:
    """A protocol of the list."""

    name: str
    title: str
    purpose: Purpose
    about: str
    maker: Callable[..., Protocol]

    def make(self, wanted: Wanted) -> Protocol:
        """The protocol for what is wanted."""
        choices = self.purpose.choices
        return self.maker(*(getattr(wanted, choice) for choice in choices)) if choices else self.maker(wanted)


def _rappor(wanted: Wanted) -> Protocol:
    return Rappor.for_epsilon(wanted.epsilon, permanent=wanted.permanent)


def _count_mean(wanted: Wanted) -> Protocol:
    return CountMeanSketch.for_epsilon(wanted.epsilon, domain=wanted.domain)


def _hadamard(wanted: Wanted) -> Protocol:
    return HadamardSketch.for_epsilon(wanted.epsilon, domain=wanted.domain)


def _numbers(wanted: Wanted) -> Protocol:
    return HeavyHitters.for_epsilon(wanted.epsilon, values=Spelling.INTEGERS, length=wanted.length or 32, step=8)


def _texts(wanted: Wanted) -> Protocol:
    return HeavyHitters.for_epsilon(wanted.epsilon, values=Spelling.UTF8, length=wanted.length or 12)


def _fragments(wanted: Wanted) -> Protocol:
    return SequenceFragments.for_epsilon(wanted.epsilon, length=wanted.length or 8)


# By purpose: name, title, what it is good for, how it is made.
_ALL: dict[Purpose, tuple[tuple[str, str, str, Callable[..., Protocol]], ...]] = {
    Purpose.SHARES: (
        ("kary", "k-ary response", "few values or a large ε; with two values Warner's survey", Kary.for_epsilon),
        ("sue", "unary, symmetric", "basic RAPPOR: one bit for each value, for comparison", Unary.symmetric),
        ("oue", "unary, optimised", "many values, when long reports don't matter", Unary.for_epsilon),
        ("olh", "local hashing", "many values in short reports; counting takes time", LocalHashing.for_epsilon),
        (
            "subset",
            "subset selection",
            "the least error there is for a middling number of values",
            SubsetSelection.for_epsilon,
        ),
        (
            "hadamard",
            "Hadamard response",
            "many values and a small ε; short reports, quick to count",
            HadamardResponse.for_epsilon,
        ),
        (
            "projective",
            "projective geometry",
            "many values: short reports, nearly the least error, quick",
            ProjectiveResponse.for_epsilon,
        ),
        (
            "participation",
            "hidden participation",
            "a public list of people, of whom nobody shall know who answered",
            Participation.for_epsilon,
        ),
    ),
    Purpose.TEXTS: (
        ("rappor", "RAPPOR", "texts reported again and again, read against a list of candidates", _rappor),
        ("cms", "count-mean sketch", "texts of an open list, counted in a small table", _count_mean),
        ("hcms", "Hadamard sketch", "the same from reports of a few bytes", _hadamard),
    ),
    Purpose.MEAN: (
        ("one-bit", "one bit", "a mean from one bit of everybody; best for a small ε", OneBitMean.for_epsilon),
        ("laplace", "Laplace noise", "a mean, and the numbers themselves with noise", LaplaceMean.for_epsilon),
        ("piecewise", "piecewise", "a mean at a large ε", PiecewiseMean.for_epsilon),
        ("hybrid", "hybrid", "piecewise or one bit by chance: the smallest worst case", HybridMean.for_epsilon),
    ),
    Purpose.VECTOR: (
        ("bit-vector", "one-bit vector", "the means of many numbers at once, at a small ε", OneBitVector.for_epsilon),
        ("sampled-vector", "sampled vector", "the same, a few coordinates of everybody", SampledVector.for_epsilon),
    ),
    Purpose.RANGES: (
        (
            "ranges",
            "hierarchy",
            "ranges, distribution and quantiles of an ordered list",
            HierarchicalRanges.for_epsilon,
        ),
        ("wavelet", "wavelet", "the same from reports of a few bytes", WaveletRanges.for_epsilon),
    ),
    Purpose.DISCOVERY: (
        ("heavy", "heavy hitters, numbers", "frequent numbers among 2^32 or more", _numbers),
        ("heavy-text", "heavy hitters, texts", "frequent texts that nobody has listed", _texts),
        ("fragments", "sequence fragments", "new words, put together from their fragments", _fragments),
    ),
}
PROTOCOLS: dict[str, Catalogued] = {
    name: Catalogued(name=name, title=title, purpose=purpose, about=about, maker=maker)
    for purpose, rows in _ALL.items()
    for name, title, about, maker in rows
}


def known_protocol(name: str) -> Catalogued:
    """The protocol of this name. Raises InvalidParameter with a suggestion if there is none.

    Example:
        >>> known_protocol("oue").title
        'unary, optimised'
        >>> known_protocol("rapor")
        Traceback (most recent call last):
        dither.errors.InvalidParameter: there is no protocol 'rapor': did you mean rappor?
    """
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    close = did_you_mean(name, PROTOCOLS)
    hint = f"did you mean {close}?" if close is not None else f"there are {', '.join(PROTOCOLS)}"
    raise InvalidParameter(f"there is no protocol {name!r}: {hint}")
