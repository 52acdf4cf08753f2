"""The clients of the two sketches: a value of an open domain is hashed to one of few buckets, then randomised.

To write such a client in another language:

- *Text*: a text in UTF-8; a whole number stands for its decimal text.
- *Hash functions*: SHAKE128 (FIPS 202) of the 13 bytes ``dither-sketch``, the 16 bytes that ``seed`` writes in
  hexadecimal, and the text. Bytes 2j and 2j + 1 of its output, the lowest first, modulo ``buckets`` (a power of two),
  are the bucket of hash function j, for j below ``hashes``.
- *Count-mean sketch*: j uniform below ``hashes``; one bit for each bucket, 1 with probability ``keep`` for the bucket
  of function j and ``noise`` for all others. Payload: j, the lowest byte first, in as many bytes as the largest j
  needs; then the bits, bit i in bit i mod 8, from the lowest, of byte i div 8; what is left of the last byte is 0.
- *Hadamard sketch*: j uniform below ``hashes``, row uniform below ``buckets``; the sign is −1 if row and bucket have an
  odd number of binary ones in common, and is turned round with probability 1 − ``keep``. Payload: j as above; then
  2·row, plus 1 if the sign is −1, the lowest byte first, in as many bytes as 2·``buckets`` − 1 needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, epsilon_up, fraction, packed, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.rappor import text_of
from dither.local.clients.unary import unary_odds

PREFIX = b"dither-sketch"
# The fields that the descriptions of both sketches have.
TABLE = ("domain", "hashes", "buckets", "seed")
SEED_BYTES = 16
# Two bytes of a digest make a bucket.
LARGEST_BUCKETS = 1 << 16
LARGEST_HASHES = 1 << 16
# An aggregate holds one counter for every bucket of every function.
LARGEST_COUNTERS = 1 << 26


class SketchClient(Client):
    """What the clients of both sketches share: the values, and the hash functions."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.hashes = whole(description, "hashes", least=1, most=LARGEST_HASHES)
        self.buckets = whole(description, "buckets", least=2, most=LARGEST_BUCKETS)
        self.seed = seed_bytes(description.get("seed"))
        self.keep = fraction(description, "keep")
        self.domain = None if description.get("domain") is None else ValueDomain(description["domain"])
        check_sizes(self.hashes, self.buckets)
        check_texts(self.domain)

    def digest(self, value: Any) -> bytes:
        """The buckets of a value by all functions; done before a coin is drawn, whichever of them is then needed."""
        if self.domain is not None:
            self.domain.place(value)
        return digest_of(text_of(value), seed=self.seed, hashes=self.hashes)

    def bucket(self, digest: bytes, function: int) -> int:
        """The bucket by one function."""
        return int.from_bytes(digest[2 * function : 2 * function + 2], "little") % self.buckets


class CountMeanSketchClient(SketchClient, protocol="count_mean_sketch", fields=(*TABLE, "keep", "noise")):
    """Sends a noisy bit for each bucket of a hash function that is drawn for the report."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.noise = fraction(description, "noise")
        check_bits(self.keep, self.noise)

    @property
    def width(self) -> int:
        """The function, and the bits."""
        return bytes_for(self.hashes) + -(-self.buckets // 8)

    @property
    def epsilon(self) -> float:
        """A unary encoding of the bucket, whatever the hash function."""
        return epsilon_up(unary_odds(self.keep, self.noise))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The function that was drawn, and the bits."""
        digest = self.digest(value)
        function = coins.below(self.hashes)
        truth = self.bucket(digest, function)
        chances = (self.noise, self.keep)
        bits = (coins.chance(chances[place == truth]) for place in range(self.buckets))
        return function.to_bytes(bytes_for(self.hashes), "little") + packed(bits, self.buckets)


class HadamardSketchClient(SketchClient, protocol="hadamard_sketch", fields=(*TABLE, "keep")):
    """Sends one noisy entry of a row of the Hadamard matrix: the one in the column of the value's bucket."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        check_sign(self.keep)

    @property
    def width(self) -> int:
        """The function, and the row with its sign."""
        return bytes_for(self.hashes) + bytes_for(2 * self.buckets)

    @property
    def epsilon(self) -> float:
        """The true sign against the other."""
        return epsilon_up(self.keep / (1 - self.keep))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The function and the row that were drawn, and the sign."""
        digest = self.digest(value)
        function, row = coins.below(self.hashes), coins.below(self.buckets)
        odd = (row & self.bucket(digest, function)).bit_count() % 2
        negative = odd ^ (not coins.chance(self.keep))
        numbers = ((function, self.hashes), (2 * row + negative, 2 * self.buckets))
        return b"".join(number.to_bytes(bytes_for(below), "little") for number, below in numbers)


def digest_of(text: bytes, *, seed: bytes, hashes: int) -> bytes:
    """The buckets of a text by all functions, two bytes each.

    Example:
        >>> digest_of("naïve".encode(), seed=bytes(16), hashes=3).hex()
        '35a9a5236adc'
    """
    return hashlib.shake_128(PREFIX + seed + text).digest(2 * hashes)


def seed_bytes(seed: Any) -> bytes:
    """The bytes of a seed's text."""
    try:
        found = bytes.fromhex(seed) if isinstance(seed, str) else b""
    except ValueError:
        found = b""
    if len(found) != SEED_BYTES or found.hex() != seed:
        raise InvalidParameter(f"seed must be a text of {2 * SEED_BYTES} hexadecimal digits in lower case")
    return found


def check_sizes(hashes: int, buckets: int) -> None:
    """Refuse sketches whose buckets aren't alike, or that no aggregate could count."""
    if buckets & (buckets - 1):
        raise InvalidParameter(f"buckets must be a power of two, so that all are equally likely; got {buckets}")
    if hashes * buckets > LARGEST_COUNTERS:
        raise InvalidParameter(
            f"hashes × buckets must be at most {LARGEST_COUNTERS}, for all are counted; got {hashes} × {buckets}"
        )


def check_texts(domain: ValueDomain | None) -> None:
    """Refuse labels that are hashed alike, such as 17 and "17"."""
    if domain is not None and domain.labels is not None:
        try:
            texts = {text_of(label) for label in domain.labels}
        except InvalidData:
            raise InvalidParameter("every label of a domain must be a text that UTF-8 can write, or a number") from None
        if len(texts) != domain.size:
            raise InvalidParameter(
                "two labels of a domain have the same text, such as 17 and '17': a sketch can't tell"
            )


def check_bits(keep: Fraction, noise: Fraction) -> None:
    """Refuse bits that hide nothing."""
    if not 0 < noise < keep < 1:
        raise InvalidParameter("0 < noise < keep < 1 is needed: a bit that is certain isn't private")


def check_sign(keep: Fraction) -> None:
    """Refuse a sign that hides nothing."""
    if not Fraction(1, 2) < keep < 1:
        raise InvalidParameter("keep must lie above 1/2 and below 1: an honest answer isn't private")
