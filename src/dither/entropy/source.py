"""Where random bits come from: the system's generator through OpenSSL, or a seed for teaching.

Every sampler in this package takes its source as an argument and reads nothing else, so that the
law of a draw follows from one assumption: the bytes of the source are independent and uniform.
There is no global switch that turns secure noise into reproducible noise.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dither.errors import InvalidParameter

try:
    import ssl
except ImportError:  # a Python built without OpenSSL
    ssl = None  # type: ignore[assignment]

# One request to OpenSSL: small enough to stay in the second-level cache while it is copied, large
# enough that the cost of a call (1 µs) doesn't show.
_BLOCK = 1 << 19


class Source(ABC):
    """Independent uniform bytes; a subclass supplies :meth:`fill`.

    Bytes are handed out once. Arrays are fresh; they may be read-only, so that no copy is needed.
    """

    __slots__ = ()

    @abstractmethod
    def fill(self, nbytes: int) -> NDArray[np.uint8]:
        """A fresh array of ``nbytes`` uniform bytes."""

    def u16(self, n: int) -> NDArray[np.uint16]:
        """``n`` uniform 16-bit words."""
        return self.fill(2 * n).view(np.uint16)

    def u32(self, n: int) -> NDArray[np.uint32]:
        """``n`` uniform 32-bit words."""
        return self.fill(4 * n).view(np.uint32)

    def u64(self, n: int) -> NDArray[np.uint64]:
        """``n`` uniform 64-bit words."""
        return self.fill(8 * n).view(np.uint64)

    def bits(self, k: int) -> int:
        """A uniform integer of ``k`` bits, that is from 0 to 2^k − 1."""
        return int.from_bytes(self.fill((k + 7) // 8).tobytes(), "little") & ((1 << k) - 1)


class SystemSource(Source):
    """Cryptographic randomness, without state of its own.

    Bytes come from OpenSSL's AES-256-CTR generator (NIST SP 800-90A), which the operating system
    seeds. It keeps one state per thread, replaces that state after each request (so that a later
    compromise doesn't reveal earlier noise) and reseeds in a forked child. Where Python lacks
    OpenSSL, bytes come from ``os.urandom``, more slowly.

    No byte is buffered here: a request costs a microsecond whatever its size, and what isn't kept
    can't be handed out twice, by a second thread or after a fork.
    """

    __slots__ = ()

    def fill(self, nbytes: int) -> NDArray[np.uint8]:
        """A fresh array of ``nbytes`` uniform bytes."""
        if nbytes <= _BLOCK:
            return np.frombuffer(_system_bytes(nbytes), np.uint8)
        out = np.empty(nbytes, np.uint8)
        for start in range(0, nbytes, _BLOCK):
            block = _system_bytes(min(_BLOCK, nbytes - start))
            out[start : start + len(block)] = np.frombuffer(block, np.uint8)
        return out

    def bits(self, k: int) -> int:
        """A uniform integer of ``k`` bits, that is from 0 to 2^k − 1."""
        return int.from_bytes(_system_bytes((k + 7) // 8), "little") & ((1 << k) - 1)

    def __repr__(self) -> str:
        return "SystemSource()"


class InsecureSeededSource(Source):
    """NOT PRIVATE. Reproducible bytes for TESTS AND TEACHING ONLY.

    Whoever knows or guesses the seed can subtract the noise from every release; whoever sees a few
    draws can recover the state of this generator (PCG64) and predict the rest. NEVER use it on data
    about people.

    Example:
        >>> InsecureSeededSource(7).bits(16) == InsecureSeededSource(7).bits(16)
        True
    """

    __slots__ = ("_generator",)

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise InvalidParameter("seed must be a whole number of at least 0")
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fill(self, nbytes: int) -> NDArray[np.uint8]:
        """The next ``nbytes`` bytes of the seed's sequence."""
        return np.frombuffer(bytearray(self._generator.bytes(nbytes)), np.uint8)

    def __repr__(self) -> str:
        return "InsecureSeededSource(...)"


if ssl is not None:
    _system_bytes = ssl.RAND_bytes

    def _stir_child() -> None:
        # OpenSSL notices a fork by itself; this holds even for builds whose detection is switched
        # off. Entropy is credited as zero so that nothing is ever trusted on its account.
        ssl.RAND_add(os.urandom(32), 0.0)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_stir_child)
else:  # pragma: no cover - depends on how Python was built
    _system_bytes = os.urandom

SYSTEM = SystemSource()
"""The source that every mechanism uses unless told otherwise."""
