"""A client randomises one person's value on that person's own device; it needs nothing but Python.

The collector publishes a *description*: the protocol and its parameters as JSON, every probability as an exact
fraction. A client is made from it, so a person (or their app) can read what will happen to an answer before giving it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import wire
from dither.local.clients.coins import SYSTEM, Coins

# How an exact probability is written.
PLAIN = re.compile(r"[0-9]{1,2000}(/[0-9]{1,2000})?")
# Digits that logarithms of odds are computed to, before they are rounded up to a float.
DIGITS = 60
# Where the client of each protocol lives, and the protocol; loaded when a description names it.
PROTOCOLS = {
    "attributes": ("dither.local.clients.attributes", "dither.local.frequency.attributes"),
    "count_mean_sketch": ("dither.local.clients.sketch", "dither.local.sketches.count_mean"),
    "hadamard": ("dither.local.clients.hadamard", "dither.local.frequency.hadamard"),
    "hadamard_sketch": ("dither.local.clients.sketch", "dither.local.sketches.hadamard"),
    "heavy_hitters": ("dither.local.clients.heavy", "dither.local.sketches.heavy_hitters"),
    "hierarchical_ranges": ("dither.local.clients.ranges", "dither.local.ranges.hierarchical"),
    "hybrid_mean": ("dither.local.clients.means", "dither.local.means.piecewise"),
    "kary": ("dither.local.clients.kary", "dither.local.frequency.kary"),
    "laplace_mean": ("dither.local.clients.means", "dither.local.means.noisy"),
    "local_hashing": ("dither.local.clients.hashing", "dither.local.frequency.hashing"),
    "one_bit_mean": ("dither.local.clients.means", "dither.local.means.noisy"),
    "one_bit_vector": ("dither.local.clients.vectors", "dither.local.means.vectors"),
    "participation": ("dither.local.clients.participation", "dither.local.frequency.participation"),
    "piecewise_mean": ("dither.local.clients.means", "dither.local.means.piecewise"),
    "projective": ("dither.local.clients.projective", "dither.local.frequency.projective"),
    "rappor": ("dither.local.clients.rappor", "dither.local.rappor.protocol"),
    "sampled_vector": ("dither.local.clients.vectors", "dither.local.means.vectors"),
    "sequence_fragments": ("dither.local.clients.fragments", "dither.local.sketches.fragments"),
    "subset_selection": ("dither.local.clients.subset", "dither.local.frequency.subset"),
    "unary": ("dither.local.clients.unary", "dither.local.frequency.unary"),
    "wavelet_ranges": ("dither.local.clients.ranges", "dither.local.ranges.wavelet"),
}


class Client(ABC):
    """Randomises values for one collection. Subclasses say how a payload is drawn, and what it costs.

    Guarantee: ``epsilon`` is what a report costs the person who sends it, whatever the description says: read it before
        answering. A description that can't be kept to for every value is refused when the client is made.
    """

    protocol: ClassVar[str]
    fields: ClassVar[tuple[str, ...] | None] = None
    known: ClassVar[dict[str, type[Client]]] = {}

    def __init_subclass__(cls, *, protocol: str = "", fields: tuple[str, ...] | None = None, **extra: Any) -> None:
        """A subclass names its protocol and the fields of its descriptions, unless it checks these by itself.

        ``class Mine(Client, protocol="mine", fields=("domain", "keep"))``.
        """
        super().__init_subclass__(**extra)
        if fields is not None:
            cls.fields = fields
        if protocol:
            cls.protocol = protocol
            Client.known[protocol] = cls

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = dict(description)
        if self.fields is not None:
            expect_fields(self.description, "protocol", *self.fields)
        self._print = wire.fingerprint(self.description)

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of bytes of every payload."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """What one report costs the person who sends it: ε under REPLACE, rounded up."""

    @abstractmethod
    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The randomised value; drawn with ``coins`` alone, of fixed length."""

    def report(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """What to send."""
        return wire.pack(self._print, self.payload(value, coins))

    def text(self, value: Any, coins: Coins = SYSTEM) -> str:
        """What to send, as text."""
        return wire.to_text(self.report(value, coins))


class InnerClient(Client):
    """A client whose payloads are those of another collection, ``inner``: it only says what that one is asked."""

    inner: Client

    @property
    def width(self) -> int:
        """As the inner one."""
        return self.inner.width

    @property
    def epsilon(self) -> float:
        """As the inner one: what it is asked depends on the value alone."""
        return self.inner.epsilon


def client_of(description: object) -> Client:
    """The client of a collection's description.

    Raises InvalidParameter for a protocol that isn't known or parameters that can't be right.

    Args:
        description: As ``Protocol.describe`` made it, also where it was read from JSON.
    """
    name = description.get("protocol") if isinstance(description, Mapping) else None
    if not isinstance(description, Mapping) or not isinstance(name, str):
        raise InvalidParameter('a description of a collection is a JSON object with a "protocol"')
    if name not in Client.known and name in PROTOCOLS:
        import_module(PROTOCOLS[name][0])
    if name not in Client.known:
        known = ", ".join(sorted({*Client.known, *PROTOCOLS}))
        raise InvalidParameter(f"the protocol {name!r} isn't known; this version knows {known}")
    try:
        return Client.known[name](description)
    except RecursionError:
        raise InvalidParameter("this description has collections within collections, too deep to follow") from None


def oracle_of(description: object) -> Client:
    """The client of one question within another collection: it has a domain, and no collection within it."""
    parts = description.values() if isinstance(description, Mapping) else ()
    if any(isinstance(part, Mapping) for part in parts):
        raise InvalidParameter("the collection of one question has no other collection within it")
    return client_of(description)


# ------------------------------------------------------------------ what a report costs


def epsilon_up(odds: Fraction, times: int = 1) -> float:
    """ε = times·ln(odds), rounded up.

    Example:
        >>> epsilon_up(Fraction(3)), epsilon_up(Fraction(3), 2)
        (1.0986122886681098, 2.1972245773362196)
    """
    with localcontext() as context:
        context.prec, context.rounding = DIGITS, ROUND_CEILING
        # Decimal's logarithm is the nearest to the true one, so the next number isn't below it
        each = (Decimal(odds.numerator) / Decimal(odds.denominator)).ln().next_plus()
        return _float_up(Fraction(each * times))


def sum_up(epsilons: Iterable[float]) -> float:
    """The sum of losses, rounded up."""
    return _float_up(sum((Fraction(one) for one in epsilons), Fraction(0)))


def _float_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


# ------------------------------------------------------------------ reading descriptions


def expect_fields(description: Mapping[str, Any], *fields: str) -> None:
    """Refuse a description with anything else in it: nobody could read the reports of such a collection."""
    if description.keys() != set(fields):
        raise InvalidParameter(
            f"a description of {description.get('protocol', 'a part')!r} has the fields {', '.join(sorted(fields))} "
            "and no others"
        )


def fraction(description: Mapping[str, Any], name: str) -> Fraction:
    """A probability of a description, written as "3/4"."""
    value = description.get(name)
    try:
        # digits only: Fraction would read "1e999999999" too, a number that fills the memory
        exact = Fraction(value) if isinstance(value, str) and PLAIN.fullmatch(value) else None
    except (ValueError, ZeroDivisionError):
        exact = None
    # one number has one text: a second one would make the same collection another
    if exact is None or not 0 <= exact <= 1 or str(exact) != value:
        raise InvalidParameter(f'{name} must be a probability in lowest terms, written as a text such as "3/4"')
    return exact


def whole(description: Mapping[str, Any], name: str, *, least: int, most: int = 2**62) -> int:
    """A whole number of a description."""
    value = description.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidParameter(f"{name} must be a whole number from {least} to {most}")
    return value


class ValueDomain:
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
        # True and 1.0 equal the label 1 and would be found; whether they are refused must not depend on the labels
        place = self._places.get(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        if place is None:
            raise InvalidData(f"the value must be one of the {self.size} labels; nothing was drawn")
        return place

    @property
    def values(self) -> Sequence[str | int]:
        """All values, in order."""
        return range(self.size) if self.labels is None else self.labels

    def to_json(self) -> int | list[str | int]:
        """As it stands in a description."""
        return self.size if self.labels is None else list(self.labels)


# ------------------------------------------------------------------ payloads


def bytes_for(size: int) -> int:
    """How many bytes hold a number below ``size``."""
    return max(1, ((size - 1).bit_length() + 7) // 8)


def packed(bits: Iterable[bool], size: int) -> bytes:
    """Bits as bytes: bit i in bit i mod 8, from the lowest, of byte i div 8."""
    out = bytearray(-(-size // 8))
    for place, bit in enumerate(bits):
        out[place >> 3] |= bit << (place & 7)
    return bytes(out)
