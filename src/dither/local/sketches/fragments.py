"""Sequence fragments: words that nobody has listed, found from their pieces. Proof in ``sketches.md``.

The sequence fragment puzzle (Differential Privacy Team, Apple: Learning with Privacy at Scale, 2017). Everybody
sketches one fragment of their word, tagged with a short hash of the whole, and the word. Fragments that are frequent at
their position and have the same tag are put together; what they make is looked up in the sketch of words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.fragments import (
    Letters,
    check_domains,
    check_fragments,
    number_of,
    number_of_fragments,
    tag_of,
)
from dither.local.clients.sketch import seed_bytes
from dither.local.core.columns import column_of
from dither.local.core.protocol import (
    GIVEN,
    Aggregator,
    Counts,
    Field,
    Floats,
    Payloads,
    Protocol,
    check_counters,
    total,
)
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.sketch import (
    Discovered,
    HashedSketch,
    SketchAggregator,
    concentration,
    found_above_zero,
    shares_of_counts,
    smallest_seen,
)
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, positive, positive_int
from dither.privacy import PrivacyLoss, compose

LOWER_CASE = "abcdefghijklmnopqrstuvwxyz"
# Fragments that nobody has may be taken for frequent so often, for every tag and position: they seldom fit together,
# and words that don't have their tag, or aren't in the sketch of words, are dropped.
FALSE_FRAGMENTS = 0.25
# Bounds of what all fragments of a position depend on may fail so often: then more words are looked up, or fewer.
LOOSE = 0.01
# Number of words that are looked up, as detection limits assume it.
LOOKED_UP = 1000


def sketch_of(description: object) -> HashedSketch:
    """The sketch of a description within another one."""
    kinds: tuple[type[HashedSketch], ...] = (CountMeanSketch, HadamardSketch)
    if isinstance(description, Mapping):
        for kind in kinds:
            if description.get("protocol") == kind.name:
                return kind.from_description(description)
    raise InvalidParameter(f"the collections within this one must be one of {', '.join(kind.name for kind in kinds)}")


SKETCH = Field(lambda description, name: sketch_of(description.get(name)), lambda sketch: sketch.describe())


@dataclass(frozen=True, slots=True, init=False)
class SequenceFragments(
    Protocol,
    name="sequence_fragments",
    fields={
        "alphabet": GIVEN,
        "length": GIVEN,
        "fragment": GIVEN,
        "tag_bits": GIVEN,
        "fragments": SKETCH,
        "words": SKETCH,
    },
):
    """Collects words of at most ``length`` letters; longer ones are cut, letters not in the alphabet become one letter.

    Args:
        fragments: Sketch of tagged fragments; its domain is the number of them.
        words: Sketch of whole words, of an open domain.
        alphabet: Letters that values are written in; any other becomes one letter.
        length: Symbols of a value; what is longer is cut.
        fragment: Letters of a fragment; length is a multiple of it.
        tag_bits: Bits of the hash by which fragments of one word are recognised.

    Guarantee: both sketches are composed: their losses add, under REPLACE. The position is drawn without regard to the
        word, and costs nothing.
    Assumes: a public alphabet, and one report for each person.
    Accuracy: a word is found if its fragments stand out at all length/fragment positions, each seen by as many fewer
        people: ``detection_limit``.

    Example:
        >>> words = SequenceFragments.for_epsilon(6, length=8)
        >>> words.loss().pure() <= 6, words.positions, words.width
        (True, 4, 101)
        >>> f"{words.detection_limit(n=1_000_000):.3f}"
        '0.009'
    """

    alphabet: str
    length: int
    fragment: int
    tag_bits: int
    fragments: HashedSketch
    words: HashedSketch
    _letters: Letters = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        fragments: HashedSketch,
        words: HashedSketch,
        alphabet: str = LOWER_CASE,
        length: int = 10,
        fragment: int = 2,
        tag_bits: int = 8,
    ) -> None:
        letters = Letters(alphabet, length)
        put = object.__setattr__
        for name, value in (("fragment", fragment), ("tag_bits", tag_bits)):
            put(self, name, positive_int(value, name))
        check_fragments(letters, self.fragment, self.tag_bits)
        if not all(isinstance(part, HashedSketch) for part in (fragments, words)):
            raise InvalidParameter("fragments and words are sketches: CountMeanSketch or HadamardSketch")
        check_domains([fragments.domain, words.domain], number_of_fragments(letters, self.fragment, self.tag_bits))
        check_counters(length // self.fragment * fragments.hashes * fragments.buckets + words.hashes * words.buckets)
        for name, kept in (("alphabet", alphabet), ("length", length), ("fragments", fragments), ("words", words)):
            put(self, name, kept)
        put(self, "_letters", letters)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        alphabet: str = LOWER_CASE,
        length: int = 10,
        fragment: int = 2,
        tag_bits: int = 8,
        hashes: int = 512,
        buckets: int = 256,
    ) -> Self:
        """A collection whose loss is no more than ``epsilon``: half for the fragment, half for the word.

        Args:
            epsilon: Largest ε that one report may cost (REPLACE), half of it for each sketch.
            alphabet: Letters that values are written in; any other becomes one letter.
            length: Symbols of a value; what is longer is cut.
            fragment: Letters of a fragment; length is a multiple of it.
            tag_bits: Bits of the hash by which fragments of one word are recognised.
            hashes: Number of hash functions; more make collisions matter less, at no cost of privacy.
            buckets: Buckets of each function; each costs the count-mean sketch a bit of every report.
        """
        half = positive(epsilon, "epsilon") / 2
        letters = Letters(alphabet, length)
        check_fragments(letters, positive_int(fragment, "fragment"), positive_int(tag_bits, "tag_bits"))
        number = number_of_fragments(letters, fragment, tag_bits)
        return cls(
            fragments=CountMeanSketch.optimized(half, domain=number, hashes=hashes, buckets=buckets),
            words=CountMeanSketch.optimized(half, hashes=2 * hashes, buckets=2 * buckets),
            alphabet=alphabet,
            length=length,
            fragment=fragment,
            tag_bits=tag_bits,
        )

    @property
    def positions(self) -> int:
        """How many fragments a word has."""
        return self.length // self.fragment

    @property
    def letters(self) -> Letters:
        """How words are spelled."""
        return self._letters

    def loss(self) -> PrivacyLoss:
        """The fragment and the word, composed."""
        return compose([(self.fragments.loss(), 1), (self.words.loss(), 1)])

    @property
    def width(self) -> int:
        """The position, and the payloads of both sketches."""
        return 1 + self.fragments.width + self.words.width

    def inputs(self) -> list[str]:
        """A few words to try."""
        first = self.alphabet[0]
        return ["", first, first * self.length, self.alphabet[-1] + first * (self.length - 1)]

    def reduced(self) -> SequenceFragments:
        """The same coins with tables so small that the law of the client can be listed in full."""
        base = number_of_fragments(Letters(self.alphabet[:1], 2), 1, 1)
        small = {"hashes": 1, "buckets": 2}
        return SequenceFragments(
            fragments=self.fragments.resized(domain=base, **small),
            words=self.words.resized(domain=None, **small),
            alphabet=self.alphabet[:1],
            length=2,
            fragment=1,
            tag_bits=1,
        )

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, from a list of words."""
        known: dict[str, int] = {}
        plain = column_of(values, "a list of texts")
        codes = np.fromiter(
            (known.setdefault(self._letters.word(self._letters.digits(word)), len(known)) for word in plain),
            dtype=np.int64,
        )
        words = list(known)
        pieces = np.array([self.tagged(word) for word in words], dtype=np.int64).reshape(len(words), self.positions)
        positions = below_many(self.positions, codes.size, source)
        tagged = pieces[codes, positions]
        return np.concatenate(
            [
                positions.astype(np.uint8)[:, None],
                self.fragments.randomize(tagged, source=source),
                self.words.randomize_coded(words, codes, source),
            ],
            axis=1,
        )

    def tagged(self, word: str) -> list[int]:
        """The tagged fragments of a plain word at all its positions."""
        digits, base = self._letters.digits(word), self._letters.base
        tag = tag_of(word, seed=seed_bytes(self.fragments.seed), bits=self.tag_bits)
        starts = range(0, self.length, self.fragment)
        return [tag * base**self.fragment + number_of(digits[at : at + self.fragment], base) for at in starts]

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """A position that there is, and payloads of both sketches."""
        fragments, words = self.parts(payloads)
        return (payloads[:, 0] < self.positions) & self.fragments.valid(fragments) & self.words.valid(words)

    def parts(self, payloads: Payloads) -> tuple[Payloads, Payloads]:
        """What payloads hold for either sketch."""
        cut = 1 + self.fragments.width
        return np.ascontiguousarray(payloads[:, 1:cut]), np.ascontiguousarray(payloads[:, cut:])

    def detection_limit(
        self, n: int, confidence: Number = 0.95, *, squares: Number = "1/100", largest: Number = "1/10"
    ) -> float:
        """The share from which on a word is found with this confidence, from ``n`` reports; for planning.

        The larger of what fragments need at all positions and what the word needs, by normal approximations;
        ``squares`` and ``largest`` are the sum of squared shares and the largest share that one expects.

        The arguments are those of ``HeavyHitters.detection_limit``.
        """
        here = max(1, positive_int(n, "n") // self.positions)
        failure = failure_probability(confidence)
        all_pass = 1 - failure / (self.positions + 1)
        fragments = smallest_seen(
            self.fragments, here, each=self.fragment_failure, confidence=all_pass, squares=squares, largest=largest
        )
        words = smallest_seen(
            self.words, n, each=failure / LOOKED_UP, confidence=all_pass, squares=squares, largest=largest
        )
        return max(fragments, words)

    @property
    def fragment_failure(self) -> float:
        """How often a fragment that nobody has may be taken for frequent."""
        return float(FALSE_FRAGMENTS / self._letters.base**self.fragment)

    def aggregator(self) -> FragmentsAggregator:
        """An empty aggregate for this collection."""
        return FragmentsAggregator(self)


class FragmentsAggregator(Aggregator[Discovered]):
    """A sketch of fragments for each position, and one of words."""

    protocol: SequenceFragments

    def __init__(self, protocol: SequenceFragments) -> None:
        super().__init__(protocol)
        self.by_position: list[SketchAggregator] = [protocol.fragments.aggregator() for _ in range(protocol.positions)]
        self.words: SketchAggregator = protocol.words.aggregator()

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        fragments, words = self.protocol.parts(payloads)
        for position, aggregate in enumerate(self.by_position):
            aggregate.add(fragments[payloads[:, 0] == position])
        self.words.add(words)

    def state(self) -> dict[str, Counts]:
        """The counters of all sketches."""
        words = self.words.state()
        states = [aggregate.state() for aggregate in self.by_position]
        return {
            **{f"fragments {name}": np.stack([state[name] for state in states]) for name in words},
            **{f"words {name}": counts for name, counts in words.items()},
        }

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own."""
        parts = [*self.by_position, self.words]
        for number, aggregate in enumerate(parts):
            last = number == len(self.by_position)
            own = {
                name: state[f"words {name}"] if last else state[f"fragments {name}"][number]
                for name in aggregate.state()
            }
            aggregate.put(own)
            aggregate.reports = total(aggregate.function_reports)

    def sound(self) -> bool:
        """Whether every report is of one position, and has a word."""
        sums = sum(one.reports for one in self.by_position), self.words.reports
        return sums == (self.reports, self.reports) and all(one.sound() for one in (*self.by_position, self.words))

    def estimate(self, confidence: Number = 0.95, *, most: int = 100_000) -> Discovered:
        """The words that were found, with their shares among the people who reported.

        ``most`` bounds how many combinations of fragments are put together; the most frequent ones go first. The
        intervals hold for all words that were looked up together.
        """
        if not self.reports:
            raise InvalidData("there are no reports to estimate from")
        words = self.candidates(most=positive_int(most, "most"))
        return found_above_zero(self.words, words, words, confidence=confidence)

    def candidates(self, *, most: int = 100_000) -> list[str]:
        """The words that frequent fragments make, each with the tag of its fragments."""
        frequent = self._frequent()
        tags = sorted(set.intersection(*(set(found) for found in frequent)))
        each = max(1, most // max(1, len(tags)))
        letters, seed = self.protocol.letters, seed_bytes(self.protocol.fragments.seed)
        words = []
        for tag in tags:
            for digits in _spelled([found[tag] for found in frequent], self.protocol, each):
                word = letters.word(digits)
                if tag_of(word, seed=seed, bits=self.protocol.tag_bits) == tag:
                    words.append(word)
        return words

    def _frequent(self) -> list[dict[int, list[int]]]:
        """For every position and tag, the fragments that stand out, the most frequent first."""
        protocol = self.protocol
        sketch = protocol.fragments
        heard = [aggregate for aggregate in self.by_position if aggregate.reports]
        if len(heard) < protocol.positions:
            return [{} for _ in self.by_position]
        supports = [aggregate.supports() for aggregate in heard]
        # all positions have the same hash functions, so that every fragment is hashed once
        sums = sketch.functions.sums_over(supports, sketch.values(), keep=False)
        pieces = protocol.letters.base**protocol.fragment
        found = []
        for aggregate, table, line in zip(heard, supports, sums, strict=True):
            even = concentration(aggregate, failure=LOOSE, supports=table)
            counts = line if aggregate.unsigned else (aggregate.reports + line) // 2
            read = shares_of_counts(sketch, counts, aggregate.reports, even=even, each=protocol.fragment_failure)
            found.append(_by_tag(read[0], read[2], pieces))
        return found


def _by_tag(values: Floats, intervals: Floats, pieces: int) -> dict[int, list[int]]:
    seen = np.flatnonzero(intervals[:, 0] > 0)
    by_tag: dict[int, list[int]] = {}
    for place in seen[np.argsort(-values[seen], kind="stable")].tolist():
        by_tag.setdefault(place // pieces, []).append(place % pieces)
    return by_tag


def _spelled(pieces: Sequence[list[int]], protocol: SequenceFragments, most: int) -> Iterator[list[int]]:
    """The words, as numbers of letters, that fragments make: one for each position, at most ``most`` ways."""
    sizes = [len(found) for found in pieces]
    while prod(sizes) > most:
        sizes[sizes.index(max(sizes))] -= 1
    base, letters = protocol.letters.base, protocol.letters
    spelled = [
        [[piece // base**place % base for place in reversed(range(protocol.fragment))] for piece in found[:size]]
        for found, size in zip(pieces, sizes, strict=True)
    ]
    for chosen in product(*spelled):
        digits = [digit for piece in chosen for digit in piece]
        if letters.ends(digits):
            yield digits
