"""The client of local hashing: a value is hashed to one of few buckets by a hash of one's own, then randomised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, epsilon_up, fraction, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.kary import check_keep, kary_odds, respond


class LocalHashingClient(Client, protocol="local_hashing", fields=("domain", "buckets", "keep", "word")):
    """Draws a hash, and names the bucket of the true value with probability ``keep``, else any other bucket alike."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.word = whole(description, "word", least=4, most=64)
        half = self.word // 2
        self.buckets = whole(description, "buckets", least=2, most=min(2**half, 2**31))
        self.keep = fraction(description, "keep")
        check_keep(self.keep, self.buckets)
        if self.word % 2 or self.domain.size > 2**half:
            raise InvalidParameter(
                f"word must be even, and hashes words of half its length: up to {2**half} values; got a domain of "
                f"{self.domain.size}"
            )

    @property
    def width(self) -> int:
        """Two words for the hash, and the bucket."""
        return 2 * bytes_for(2**self.word) + bytes_for(self.buckets)

    @property
    def epsilon(self) -> float:
        """Given the hash, the true bucket against one given other."""
        return epsilon_up(kary_odds(self.keep, self.buckets))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The two numbers of the hash, and the bucket that is named."""
        truth = self.domain.place(value)
        factor, offset = coins.below(2**self.word), coins.below(2**self.word)
        bucket = bucket_of(truth, factor, offset, word=self.word, buckets=self.buckets)
        named = respond(bucket, self.buckets, self.keep, coins)
        each = bytes_for(2**self.word)
        numbers = ((factor, each), (offset, each), (named, bytes_for(self.buckets)))
        return b"".join(number.to_bytes(size, "little") for number, size in numbers)


def bucket_of(value: int, factor: int, offset: int, *, word: int, buckets: int) -> int:
    """The bucket of a value: the upper half of (factor·value + offset) mod 2^word, brought down to the buckets."""
    half = word // 2
    mixed = ((factor * value + offset) % (1 << word)) >> half
    return (mixed * buckets) >> half
