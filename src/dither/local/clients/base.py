"""A client randomises one person's value on that person's own device; it needs nothing but Python.

Whoever collects publishes a *description*: the protocol and its parameters as JSON, every probability as an exact
fraction. A client is made from it, so a person (or their app) can read what will happen to an answer before giving it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar

from dither.errors import InvalidData, InvalidParameter
from dither.local import wire
from dither.local.coins import SYSTEM, Coins

# How an exact probability is written.
PLAIN = re.compile(r"[0-9]{1,2000}(/[0-9]{1,2000})?")
# Where the client of each protocol lives; loaded when one is made.
MODULES: dict[str, str] = {
    "attributes": "dither.local.clients.attributes",
    "count_mean_sketch": "dither.local.clients.sketch",
    "hadamard": "dither.local.clients.hadamard",
    "hadamard_sketch": "dither.local.clients.sketch",
    "heavy_hitters": "dither.local.clients.heavy",
    "hierarchical_ranges": "dither.local.clients.ranges",
    "hybrid_mean": "dither.local.clients.means",
    "kary": "dither.local.clients.kary",
    "laplace_mean": "dither.local.clients.means",
    "local_hashing": "dither.local.clients.hashing",
    "one_bit_mean": "dither.local.clients.means",
    "one_bit_vector": "dither.local.clients.vectors",
    "participation": "dither.local.clients.participation",
    "piecewise_mean": "dither.local.clients.means",
    "projective": "dither.local.clients.projective",
    "rappor": "dither.local.clients.rappor",
    "sampled_vector": "dither.local.clients.vectors",
    "sequence_fragments": "dither.local.clients.fragments",
    "subset_selection": "dither.local.clients.subset",
    "unary": "dither.local.clients.unary",
    "wavelet_ranges": "dither.local.clients.ranges",
}


class Client(ABC):
    """Randomises values for one collection. Subclasses say how a payload is drawn."""

    protocol: ClassVar[str]
    known: ClassVar[dict[str, type[Client]]] = {}

    def __init_subclass__(cls, *, protocol: str = "", **extra: Any) -> None:
        """A subclass names its protocol, as it stands in descriptions: ``class Mine(Client, protocol="mine")``."""
        super().__init_subclass__(**extra)
        if protocol:
            cls.protocol = protocol
            Client.known[protocol] = cls

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = dict(description)
        self._print = wire.fingerprint(self.description)

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of bytes of every payload."""

    @abstractmethod
    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The randomised value; drawn with ``coins`` alone, of fixed length."""

    def report(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """What to send."""
        return wire.pack(self._print, self.payload(value, coins))

    def text(self, value: Any, coins: Coins = SYSTEM) -> str:
        """What to send, as text."""
        return wire.to_text(self.report(value, coins))


def client_of(description: object) -> Client:
    """The client of a collection's description.

    Raises InvalidParameter for a protocol that isn't known or parameters that can't be right.
    """
    name = description.get("protocol") if isinstance(description, Mapping) else None
    if not isinstance(description, Mapping) or not isinstance(name, str):
        raise InvalidParameter('a description of a collection is a JSON object with a "protocol"')
    if name not in Client.known and name in MODULES:
        import_module(MODULES[name])
    if name not in Client.known:
        known = ", ".join(sorted({*Client.known, *MODULES}))
        raise InvalidParameter(f"the protocol {name!r} isn't known; this version knows {known}")
    return Client.known[name](description)


# ------------------------------------------------------------------ reading descriptions


def fraction(description: Mapping[str, Any], name: str) -> Fraction:
    """A probability of a description, written as "3/4"."""
    value = description.get(name)
    try:
        # digits only: Fraction would read "1e999999999" too, a number that fills the memory
        exact = Fraction(value) if isinstance(value, str) and PLAIN.fullmatch(value) else None
    except (ValueError, ZeroDivisionError):
        exact = None
    if exact is None or not 0 <= exact <= 1:
        raise InvalidParameter(f'{name} must be a probability written as a text such as "3/4"; got {value!r}')
    return exact


def whole(description: Mapping[str, Any], name: str, *, least: int, most: int = 2**62) -> int:
    """A whole number of a description."""
    value = description.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidParameter(f"{name} must be a whole number from {least} to {most}; got {value!r}")
    return value


class Domain:
    """The possible values of a question: 0 … k−1, or a list of labels (texts or numbers), in their order."""

    def __init__(self, given: Any) -> None:
        if isinstance(given, int) and not isinstance(given, bool) and 2 <= given <= 2**62:
            self.size: int = given
            self.labels: tuple[str | int, ...] | None = None
            return
        labels = tuple(given) if isinstance(given, list | tuple) else ()
        texts = all(isinstance(label, str | int) and not isinstance(label, bool) for label in labels)
        if texts and len(set(labels)) == len(labels) >= 2:
            self.size, self.labels = len(labels), labels
            self._places: dict[Hashable, int] = {label: place for place, label in enumerate(labels)}
            return
        raise InvalidParameter(
            "a domain is a number of values from 2 to 2^62, or a list of two or more different labels"
        )

    def place(self, value: Any) -> int:
        """The index of a value; the message of the error doesn't repeat it."""
        if self.labels is None:
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self.size:
                return value
            raise InvalidData(f"the value must be a whole number from 0 to {self.size - 1}; nothing was drawn")
        try:
            return self._places[value]
        except (KeyError, TypeError):
            raise InvalidData(f"the value must be one of the {self.size} labels; nothing was drawn") from None

    def to_json(self) -> int | list[str | int]:
        """As it stands in a description."""
        return self.size if self.labels is None else list(self.labels)


def bytes_for(size: int) -> int:
    """How many bytes hold a number below ``size``."""
    return max(1, ((size - 1).bit_length() + 7) // 8)
