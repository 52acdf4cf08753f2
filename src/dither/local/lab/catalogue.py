"""All protocols of local privacy by a short name: what each is for, and how to make one from a few choices.

The command line and the comparison are made from this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
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
    """What reports are collected for."""

    SHARES = "shares of listed values"
    TEXTS = "shares of texts"
    MEAN = "mean of a number"
    VECTOR = "mean of a vector"
    RANGES = "ranges and quantiles"
    DISCOVERY = "frequent values of an unknown list"


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
class Known:
    """A protocol of the list."""

    name: str
    title: str
    purpose: Purpose
    about: str
    make: Callable[[Wanted], Protocol]


def _vector(wanted: Wanted) -> Protocol:
    return OneBitVector.for_epsilon(wanted.size, wanted.bounds, wanted.epsilon)


def _numbers(wanted: Wanted) -> Protocol:
    return HeavyHitters.for_epsilon(wanted.epsilon, values=Spelling.INTEGERS, length=wanted.length or 32, step=8)


def _texts(wanted: Wanted) -> Protocol:
    return HeavyHitters.for_epsilon(wanted.epsilon, values=Spelling.UTF8, length=wanted.length or 12)


_ALL = (
    Known(
        name="kary",
        title="k-ary response",
        purpose=Purpose.SHARES,
        about="few values or a large ε; with two values Warner's survey",
        make=lambda w: Kary.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="sue",
        title="unary, symmetric",
        purpose=Purpose.SHARES,
        about="basic RAPPOR: one bit for each value, for comparison",
        make=lambda w: Unary.symmetric(w.domain, w.epsilon),
    ),
    Known(
        name="oue",
        title="unary, optimised",
        purpose=Purpose.SHARES,
        about="many values, when long reports don't matter",
        make=lambda w: Unary.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="olh",
        title="local hashing",
        purpose=Purpose.SHARES,
        about="many values in short reports; counting takes time",
        make=lambda w: LocalHashing.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="subset",
        title="subset selection",
        purpose=Purpose.SHARES,
        about="the least error there is for a middling number of values",
        make=lambda w: SubsetSelection.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="hadamard",
        title="Hadamard response",
        purpose=Purpose.SHARES,
        about="many values and a small ε; short reports, quick to count",
        make=lambda w: HadamardResponse.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="projective",
        title="projective geometry",
        purpose=Purpose.SHARES,
        about="many values: short reports, nearly the least error, quick",
        make=lambda w: ProjectiveResponse.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="participation",
        title="hidden participation",
        purpose=Purpose.SHARES,
        about="a public list of people, of whom nobody shall know who answered",
        make=lambda w: Participation.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="rappor",
        title="RAPPOR",
        purpose=Purpose.TEXTS,
        about="texts reported again and again, read against a list of candidates",
        make=lambda w: Rappor.for_epsilon(w.epsilon, permanent=w.permanent),
    ),
    Known(
        name="cms",
        title="count-mean sketch",
        purpose=Purpose.TEXTS,
        about="texts of an open list, counted in a small table",
        make=lambda w: CountMeanSketch.for_epsilon(w.epsilon, domain=w.domain),
    ),
    Known(
        name="hcms",
        title="Hadamard sketch",
        purpose=Purpose.TEXTS,
        about="the same from reports of a few bytes",
        make=lambda w: HadamardSketch.for_epsilon(w.epsilon, domain=w.domain),
    ),
    Known(
        name="one-bit",
        title="one bit",
        purpose=Purpose.MEAN,
        about="a mean from one bit of everybody; best for a small ε",
        make=lambda w: OneBitMean.for_epsilon(w.bounds, w.epsilon),
    ),
    Known(
        name="laplace",
        title="Laplace noise",
        purpose=Purpose.MEAN,
        about="a mean, and the numbers themselves with noise",
        make=lambda w: LaplaceMean.for_epsilon(w.bounds, w.epsilon),
    ),
    Known(
        name="piecewise",
        title="piecewise",
        purpose=Purpose.MEAN,
        about="a mean at a large ε",
        make=lambda w: PiecewiseMean.for_epsilon(w.bounds, w.epsilon),
    ),
    Known(
        name="hybrid",
        title="hybrid",
        purpose=Purpose.MEAN,
        about="piecewise or one bit by chance: the smallest worst case",
        make=lambda w: HybridMean.for_epsilon(w.bounds, w.epsilon),
    ),
    Known(
        name="bit-vector",
        title="one-bit vector",
        purpose=Purpose.VECTOR,
        about="the means of many numbers at once, at a small ε",
        make=_vector,
    ),
    Known(
        name="sampled-vector",
        title="sampled vector",
        purpose=Purpose.VECTOR,
        about="the same, a few coordinates of everybody",
        make=lambda w: SampledVector.for_epsilon(w.size, w.bounds, w.epsilon),
    ),
    Known(
        name="ranges",
        title="hierarchy",
        purpose=Purpose.RANGES,
        about="ranges, distribution and quantiles of an ordered list",
        make=lambda w: HierarchicalRanges.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="wavelet",
        title="wavelet",
        purpose=Purpose.RANGES,
        about="the same from reports of a few bytes",
        make=lambda w: WaveletRanges.for_epsilon(w.domain, w.epsilon),
    ),
    Known(
        name="heavy",
        title="heavy hitters, numbers",
        purpose=Purpose.DISCOVERY,
        about="frequent numbers among 2^32 or more",
        make=_numbers,
    ),
    Known(
        name="heavy-text",
        title="heavy hitters, texts",
        purpose=Purpose.DISCOVERY,
        about="frequent texts that nobody has listed",
        make=_texts,
    ),
    Known(
        name="fragments",
        title="sequence fragments",
        purpose=Purpose.DISCOVERY,
        about="new words, put together from their fragments",
        make=lambda w: SequenceFragments.for_epsilon(w.epsilon, length=w.length or 8),
    ),
)
PROTOCOLS: dict[str, Known] = {known.name: known for known in _ALL}


def known_protocol(name: str) -> Known:
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
    close = get_close_matches(name, PROTOCOLS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PROTOCOLS)}"
    raise InvalidParameter(f"there is no protocol {name!r}: {hint}")
