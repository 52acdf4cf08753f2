"""The client of sequence fragments: a piece of a word, tagged with a hash of the whole, and the word, both sketched.

To write such a client in another language:

- *Spelling*: the word is cut to ``length`` characters. The letters of ``alphabet`` have the numbers 1, 2, …; any other
  character has the number after the last letter's; what is missing to ``length`` is 0. The base is the number of
  letters plus 2. The *plain word* is the cut word with U+FFFD for characters that aren't in the alphabet.
- *Tag*: SHAKE128 of the 10 bytes ``dither-tag``, the 16 bytes of the seed of ``fragments``, and the plain word in
  UTF-8; the first two bytes, the lowest first, modulo 2 to the power ``tag_bits``.
- *Fragment*: a position p uniform below ``length``/``fragment``; the letters p·``fragment`` … as digits, the highest
  first, make a number f below base^``fragment``. The value is tag·base^``fragment`` + f.
- *Payload*: the position as one byte, the payload of the collection ``fragments`` for that value, and the payload of
  the collection ``words`` for the plain word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, client_of, sum_up, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.sketch import SketchClient

PREFIX = b"dither-tag"
OTHER = "\N{REPLACEMENT CHARACTER}"
LARGEST_LENGTH = 256
LARGEST_TAG_BITS = 16
# A decoder looks at every tagged fragment of every position.
LARGEST_FRAGMENTS = 1 << 24


class Letters:
    """Words of at most ``length`` letters of a public alphabet, as numbers: 0 is the end, the last is any other."""

    def __init__(self, alphabet: Any, length: Any) -> None:
        texts = isinstance(alphabet, str) and len(alphabet) >= 1 and len(set(alphabet)) == len(alphabet)
        if not texts or OTHER in alphabet or any("\ud800" <= letter <= "\udfff" for letter in alphabet):
            raise InvalidParameter("alphabet must be a text of different letters, without U+FFFD")
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= LARGEST_LENGTH:
            raise InvalidParameter(f"length must be a whole number from 1 to {LARGEST_LENGTH}; got {length!r}")
        self.alphabet, self.length = alphabet, length
        self.base = len(alphabet) + 2
        self._places = {letter: place for place, letter in enumerate(alphabet, start=1)}

    def digits(self, word: Any) -> list[int]:
        """The numbers of a word's letters, as many whatever the word; the message of the error doesn't repeat it."""
        if not isinstance(word, str):
            raise InvalidData("the value must be a text; nothing was drawn")
        found = [self._places.get(letter, self.base - 1) for letter in word[: self.length]]
        return found + [0] * (self.length - len(found))

    def word(self, digits: Iterable[int]) -> str:
        """The plain word of its numbers: what the word is to the collection."""
        letters = f"{self.alphabet}{OTHER}"
        return "".join(letters[digit - 1] for digit in digits if digit)

    def ends(self, digits: Iterable[int]) -> bool:
        """Whether nothing follows an end."""
        ended = False
        for digit in digits:
            if ended and digit:
                return False
            ended = ended or not digit
        return True


class SequenceFragmentsClient(
    Client, protocol="sequence_fragments", fields=("alphabet", "length", "fragment", "tag_bits", "fragments", "words")
):
    """Sends where a fragment stands, the sketched fragment with its tag, and the sketched word."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.letters = Letters(description.get("alphabet"), description.get("length"))
        self.fragment = whole(description, "fragment", least=1, most=self.letters.length)
        self.tag_bits = whole(description, "tag_bits", least=1, most=LARGEST_TAG_BITS)
        self.fragments, self.words = (sketch_client(description.get(name)) for name in ("fragments", "words"))
        check_fragments(self.letters, self.fragment, self.tag_bits)
        domains = [
            None if client.domain is None else client.domain.to_json() for client in (self.fragments, self.words)
        ]
        check_domains(domains, number_of_fragments(self.letters, self.fragment, self.tag_bits))

    @property
    def width(self) -> int:
        """The position, and the payloads of both sketches."""
        return 1 + self.fragments.width + self.words.width

    @property
    def epsilon(self) -> float:
        """Both sketches, composed."""
        return sum_up((self.fragments.epsilon, self.words.epsilon))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The position, the fragment and the word."""
        digits = self.letters.digits(value)
        word = self.letters.word(digits)
        tag = tag_of(word, seed=self.fragments.seed, bits=self.tag_bits)
        position = coins.below(self.letters.length // self.fragment)
        piece = number_of(digits[position * self.fragment : (position + 1) * self.fragment], self.letters.base)
        tagged = tag * self.letters.base**self.fragment + piece
        return bytes([position]) + self.fragments.payload(tagged, coins) + self.words.payload(word, coins)


def sketch_client(description: object) -> SketchClient:
    """The client of a sketch within another collection."""
    found = client_of(description)
    if not isinstance(found, SketchClient):
        raise InvalidParameter("the collections within this one must be sketches, such as count_mean_sketch")
    return found


def tag_of(word: str, *, seed: bytes, bits: int) -> int:
    """The tag of a plain word.

    Example:
        >>> tag_of("dither", seed=bytes(16), bits=8)
        203
    """
    digest = hashlib.shake_128(PREFIX + seed + word.encode()).digest(2)
    return int.from_bytes(digest, "little") % (1 << bits)


def number_of(digits: Iterable[int], base: int) -> int:
    """The number that digits spell, the highest first."""
    found = 0
    for digit in digits:
        found = found * base + digit
    return found


def number_of_fragments(letters: Letters, fragment: int, tag_bits: int) -> int:
    """How many tagged fragments there are."""
    return int(letters.base**fragment) << tag_bits


def check_fragments(letters: Letters, fragment: int, tag_bits: int) -> None:
    """Refuse fragments that don't make up a word, or that are too many to look at."""
    if letters.length % fragment:
        raise InvalidParameter(f"length must be a multiple of fragment; got {letters.length} and {fragment}")
    if number_of_fragments(letters, fragment, tag_bits) > LARGEST_FRAGMENTS:
        raise InvalidParameter(
            f"(letters + 2)^fragment × 2^tag_bits must be at most {LARGEST_FRAGMENTS}, for all are looked at: take "
            "shorter fragments or tags"
        )


def check_domains(domains: list[Any], number: int) -> None:
    """Refuse sketches of anything else."""
    if domains != [number, None]:
        raise InvalidParameter(
            f"the collection of fragments must have the domain {number}, one value for each tagged fragment, and that "
            "of words an open one"
        )
