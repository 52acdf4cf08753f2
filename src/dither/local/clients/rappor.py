"""RAPPOR on a person's own device: a Bloom filter, noise that is drawn once and kept, and fresh noise for every report.

To write such a client in another language:

- *Cohort*: a uniform number below ``cohorts``, drawn once and kept.
- *Filter*: SHA-256 of the 13 bytes ``dither-rappor``, the cohort as two bytes, the lowest first, and the value in
  UTF-8. Bytes 4j … 4j+3 of the digest, the lowest first, modulo ``bits``, are the place of hash j, for j below
  ``hashes``. Those bits are 1, the others 0.
- *Permanent bits*: every bit of the filter is turned round with probability f/2. Drawn once for each value and kept, by
  the digest. (Not by the filter: two values that happen to share one would show it.)
- *Report*: where the permanent bit is 1 a bit is 1 with probability q, else with probability p. Drawn for every report.
- *Payload*: the cohort as two bytes, the lowest first; then the bits, bit i in bit i mod 8, from the lowest, of byte
  i div 8; what is left of the last byte is 0.

What is kept can be saved (``memory``) and put back. A client that forgets draws fresh permanent bits, and everything
about longitudinal privacy is lost: then k reports cost k times what one does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, epsilon_up, fraction, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.wire import Json

COHORT_BYTES = 2
LARGEST_COHORTS = 1 << (8 * COHORT_BYTES)
LARGEST_BITS = 1 << 16
# One digest of 32 bytes gives eight places of four bytes each.
LARGEST_HASHES = 8
# An aggregate counts every bit of every cohort.
LARGEST_COUNTERS = 1 << 24
PREFIX = b"dither-rappor"
MEMORY = "dither rappor memory"
MEMORY_VERSION = 1


class RapporClient(Client, protocol="rappor", fields=("bits", "hashes", "cohorts", "f", "p", "q")):
    """Reports texts of an open domain; whole numbers stand for their decimal text.

    ``memory`` is what an earlier client of the same collection kept. It tells what was reported to whoever reads it, so
    it has to stay on the device.
    """

    def __init__(self, description: Mapping[str, Any], *, memory: object = None) -> None:
        super().__init__(description)
        self.hashes = whole(description, "hashes", least=1, most=LARGEST_HASHES)
        self.bits = whole(description, "bits", least=2 * self.hashes, most=LARGEST_BITS)
        self.cohorts = whole(description, "cohorts", least=1, most=LARGEST_COHORTS)
        self.f, self.p, self.q = (fraction(description, name) for name in "fpq")
        check_sizes(self.bits, self.cohorts)
        check_probabilities(self.f, self.p, self.q)
        self._cohort: int | None = None
        self._permanent: dict[str, int] = {}
        if memory is not None:
            self._restore(memory)

    @property
    def width(self) -> int:
        """Two bytes for the cohort, and the bits."""
        return COHORT_BYTES + (self.bits + 7) // 8

    @property
    def epsilon(self) -> float:
        """What one report costs: of two values, each sets at most as many bits as there are hashes."""
        lie = self.f / 2
        hit, miss = self.q * (1 - lie) + self.p * lie, self.p * (1 - lie) + self.q * lie
        return epsilon_up(hit * (1 - miss) / (miss * (1 - hit)), self.hashes)

    @property
    def permanent_epsilon(self) -> float:
        """What all reports about one value cost together, however many, if the memory is kept."""
        return epsilon_up((1 - self.f / 2) / (self.f / 2), 2 * self.hashes)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The cohort and the noisy bits of a value; the permanent ones are drawn at its first report and then kept.

        Every report draws the same coins, whatever the value and whether it was reported before. Only hashing takes
        longer for a text of more than a few dozen bytes.
        """
        text = text_of(value)
        if self._cohort is None:
            self._cohort = coins.below(self.cohorts)
        truth = 0
        for place in bloom_places(text, self._cohort, bits=self.bits, hashes=self.hashes):
            truth |= 1 << place
        lies = sum(coins.chance(self.f / 2) << place for place in range(self.bits))
        permanent = self._permanent.setdefault(digest_of(text, self._cohort).hex(), truth ^ lies)
        report = 0
        for place in range(self.bits):
            # both coins are drawn, so that the time taken doesn't depend on the bit
            answers = (coins.chance(self.p), coins.chance(self.q))
            report |= answers[permanent >> place & 1] << place
        return self._cohort.to_bytes(COHORT_BYTES, "little") + self._bytes(report)

    @property
    def memory(self) -> Json:
        """What to keep between reports, as JSON: the cohort, and the permanent bits of every value, by its digest.

        Save it before the report is sent: a crash in between then costs nothing.
        """
        return {
            "kind": MEMORY,
            "version": MEMORY_VERSION,
            "collection": self._print.hex(),
            "cohort": self._cohort,
            "permanent": {digest: self._bytes(kept).hex() for digest, kept in self._permanent.items()},
        }

    def _restore(self, memory: object) -> None:
        """Take a memory, whole or not at all; one that can't be right is refused, since forgetting costs privacy."""
        try:
            if not isinstance(memory, Mapping) or (memory["kind"], memory["version"]) != (MEMORY, MEMORY_VERSION):
                raise InvalidData(f"not a memory of a RAPPOR client of version {MEMORY_VERSION}")
            if memory["collection"] != self._print.hex():
                raise InvalidData("this memory was kept for another collection: its parameters differ")
            cohort = memory["cohort"]
            permanent = {_digest(text): self._number(kept) for text, kept in memory["permanent"].items()}
            fits = isinstance(cohort, int) and not isinstance(cohort, bool) and 0 <= cohort < self.cohorts
            if not fits and (cohort is not None or permanent):
                raise InvalidData("a memory holds the cohort of the client")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
            if isinstance(problem, InvalidData):
                raise
            raise InvalidData("a memory is damaged: it isn't what RapporClient.memory gave") from None
        self._cohort, self._permanent = cohort, permanent

    def _bytes(self, bits: int) -> bytes:
        return bits.to_bytes((self.bits + 7) // 8, "little")

    def _number(self, text: str) -> int:
        bits = int.from_bytes(bytes.fromhex(text), "little")
        if self._bytes(bits).hex() != text or bits >> self.bits:
            raise InvalidData("a memory holds as many bits as its collection says")
        return bits


def bloom_places(text: bytes, cohort: int, *, bits: int, hashes: int) -> tuple[int, ...]:
    """The places of a value's bits in the filter of a cohort; two of them may coincide.

    Example:
        >>> bloom_places(b"news.example", 3, bits=128, hashes=2)
        (88, 39)
    """
    digest = digest_of(text, cohort)
    return tuple(int.from_bytes(digest[4 * j : 4 * j + 4], "little") % bits for j in range(hashes))


def digest_of(text: bytes, cohort: int) -> bytes:
    """The hash of a value in a cohort, from which its places come."""
    return hashlib.sha256(PREFIX + cohort.to_bytes(COHORT_BYTES, "little") + text).digest()


def _digest(text: str) -> str:
    if len(text) != 2 * hashlib.sha256().digest_size or bytes.fromhex(text).hex() != text:
        raise InvalidData("a memory names values by their digests")
    return text


def text_of(value: Any) -> bytes:
    """A value as the bytes that are hashed; the message of the error doesn't repeat it."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value).encode()
    except ValueError:  # half of a surrogate pair, or a number of more digits than Python writes
        pass
    raise InvalidData("the value must be a text that UTF-8 can write, or a whole number; nothing was drawn") from None


def check_sizes(bits: int, cohorts: int) -> None:
    """Refuse collections that no aggregate could count."""
    if bits * cohorts > LARGEST_COUNTERS:
        raise InvalidParameter(
            f"bits × cohorts must be at most {LARGEST_COUNTERS}, for every bit of every cohort is counted; "
            f"got {bits} × {cohorts}"
        )


def check_probabilities(f: Fraction, p: Fraction, q: Fraction) -> None:
    """Refuse noise that hides nothing or everything."""
    if not 0 < f < 1:
        raise InvalidParameter(
            "f must be above 0 (permanent bits that never lie protect nobody who reports often) and below 1 "
            f"(bits that don't depend on the value say nothing); got {f}"
        )
    if not 0 <= p < q <= 1:
        raise InvalidParameter(
            f"p must be below q, both probabilities: a permanent 1 is reported as 1 more often; got p={p}, q={q}"
        )
