"""A protocol of local privacy: what it costs each person, how many are randomised at once, how reports are counted.

The same collection has two sides. ``Protocol.client()`` (and any client made from its description) randomises one value
with nothing but Python. ``Protocol.randomize`` draws the same law for millions of values at once, for simulations. An
``Aggregator`` reads payloads, whichever side made them.
"""

from __future__ import annotations

import base64
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dither.brief import brief
from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import wire
from dither.local.clients.base import PROTOCOLS, Client, client_of, fraction, whole
from dither.local.clients.wire import Dropped, Json
from dither.numeric import positive_int
from dither.privacy import PrivacyLoss

# One row of bytes for each person.
Payloads: TypeAlias = npt.NDArray[np.uint8]
Counts: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
E_co = TypeVar("E_co", covariant=True)

SAVED = "dither local aggregate"
SAVED_VERSION = 1
BLOCK = 8192
# More reports than these aren't exact as floats, nor has anybody that many.
MOST_REPORTS = 2**53
# An aggregate of more counters than these, eight bytes each, doesn't fit into the memory of most machines.
MOST_COUNTERS = 2**28


# Whether it is known when somebody's value changes, and whether an old one came back.
Changes: TypeAlias = Literal["public", "secret"]


def expect_changes(changes: Changes) -> None:
    """Raise unless it is one of the two words."""
    if changes not in ("public", "secret"):
        raise InvalidParameter(
            'changes must be "public" (when a value changes, or an old one comes back, is known) or "secret"; '
            f"got {changes!r}"
        )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a description: how it is read, and how it is written from the protocol's ``parameter``.

    That is the name of an attribute and of an argument of the constructor; by default the field's own.
    """

    read: Callable[[Mapping[str, Any], str], Any]
    write: Callable[[Any], Any]
    parameter: str = ""


def _same(value: Any) -> Any:
    return value


def _given(description: Mapping[str, Any], name: str) -> Any:
    """Left to the constructor to check."""
    return description.get(name)


GIVEN = Field(_given, _same)
DOMAIN = Field(_given, lambda domain: list(domain) if isinstance(domain, tuple) else domain)
FRACTION = Field(fraction, str)


def number_field(least: int, most: int = 2**62) -> Field:
    """A whole number."""
    return Field(lambda description, name: whole(description, name, least=least, most=most), _same)


def collection_field(parameter: str) -> Field:
    """A collection within another one."""
    return Field(
        lambda description, name: protocol_of(description.get(name)), lambda inner: inner.describe(), parameter
    )


class Protocol(ABC):
    """One collection: a protocol with all its public parameters. Subclasses are frozen dataclasses.

    Guarantee: a report is private as ``loss()`` states, under REPLACE: what somebody says could as well have been said
        by a person with any other value. That somebody took part at all is not hidden, unless the protocol says so.
    """

    name: ClassVar[str]
    fields: ClassVar[Mapping[str, Field]] = {}
    known: ClassVar[dict[str, type[Protocol]]] = {}

    def __init_subclass__(cls, *, name: str = "", fields: Mapping[str, Field] | None = None, **extra: Any) -> None:
        """A subclass has the name that stands in descriptions, and their fields, unless it writes them by itself.

        ``class Mine(Protocol, name="mine", fields={"domain": DOMAIN, "keep": FRACTION})``.
        """
        super().__init_subclass__(**extra)
        if "__repr__" not in cls.__dict__:  # before the dataclass gives it one that lists all labels
            cls.__repr__ = brief  # type: ignore[method-assign]
        # dataclass(slots=True) makes the class a second time, without the keyword
        name = name or cls.__dict__.get("name", "")
        if fields is not None:
            cls.fields = fields
        if name:
            cls.name = name
            Protocol.known[name] = cls

    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """What one report costs the person who sends it (REPLACE)."""

    def longitudinal_loss(self, reports: int, *, changes: Changes = "secret") -> PrivacyLoss:
        """What ``reports`` reports of one person cost together, about values that may change each time.

        ``changes`` says whether it is "public" or "secret" when the value changes. Fresh coins for every report, as
        most protocols draw them, hide that as well: both cost the same. A protocol with a memory needs it to be said.
        """
        expect_changes(changes)
        return positive_int(reports, "reports") * self.loss()

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of bytes of a payload."""

    def describe(self) -> Json:
        """The description: {"protocol": name, …}, with exact fractions as texts. Permanent, like the wire format."""
        parts = {name: field.write(getattr(self, field.parameter or name)) for name, field in self.fields.items()}
        return {"protocol": self.name, **parts}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The inverse of ``describe``; checks everything."""
        parts = {field.parameter or name: field.read(description, name) for name, field in cls.fields.items()}
        return cls._exactly(description, **parts)

    @classmethod
    def _exactly(cls, description: Mapping[str, Any], **parts: Any) -> Self:
        """What is made of the parts of a description, refused if the description also says something else."""
        make: Any = cls
        found: Self = make(**parts)
        if found.describe() != dict(description):
            raise InvalidParameter(
                f"a description of {cls.name!r} has the fields {', '.join(found.describe())} and no others, with "
                "fractions in lowest terms"
            )
        return found

    def _put(self, **values: Any) -> None:
        """Set fields while a frozen subclass is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, of the same law as the client's."""

    @abstractmethod
    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Which rows a client of this protocol could have sent."""

    @abstractmethod
    def aggregator(self) -> Aggregator[Any]:
        """An empty aggregate for this collection."""

    @property
    def fingerprint(self) -> bytes:
        """The name of the collection in its reports."""
        return wire.fingerprint(self.describe())

    def client(self) -> Client:
        """The client side, made from the description as anybody would make it."""
        return client_of(self.describe())

    def reports(self, values: Any, *, source: Source = SYSTEM) -> Iterator[bytes]:
        """Reports of many people as they would arrive."""
        head = bytes([wire.VERSION]) + self.fingerprint
        return (head + row.tobytes() for row in self.randomize(values, source=source))


def protocol_of(description: object) -> Protocol:
    """The protocol of a description. Raises InvalidParameter if it isn't known or can't be right.

    Args:
        description: As ``Protocol.describe`` made it, also where it was read from JSON.
    """
    name = description.get("protocol") if isinstance(description, Mapping) else None
    if not isinstance(description, Mapping) or not isinstance(name, str):
        raise InvalidParameter('a description of a collection is a JSON object with a "protocol"')
    if name not in Protocol.known and name in PROTOCOLS:
        import_module(PROTOCOLS[name][1])
    found = Protocol.known.get(name)
    if found is None:
        known = ", ".join(sorted({*Protocol.known, *PROTOCOLS}))
        raise InvalidParameter(f"the protocol {name!r} isn't known; this version knows {known}")
    try:
        return found.from_description(description)
    except RecursionError:
        raise InvalidParameter("this description has collections within collections, too deep to follow") from None


class Aggregator(ABC, Generic[E_co]):
    """Counts reports of one collection; never fails because of what arrives.

    Its whole state is whole numbers that add up: aggregates of parts merge by ``a + b`` in any order, and can be saved.
    """

    once: ClassVar[str] = ""
    """The counters in which every report is counted once, if there are such."""

    def __init__(self, protocol: Protocol, **counters: Counts) -> None:
        self.protocol = protocol
        self.counters = counters
        self.reports = 0
        self.dropped: dict[Dropped, int] = {}

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def count(self, payloads: Payloads) -> None:
        """Add valid payloads to the state."""

    @abstractmethod
    def estimate(self, confidence: float = 0.95) -> E_co:
        """What the reports say about the population, with intervals at this confidence."""

    def expect_reports(self) -> None:
        """Raise InvalidData if there is nothing to estimate from."""
        if not self.reports:
            raise InvalidData("there are no reports to estimate from")

    def state(self) -> dict[str, Counts]:
        """The state by name: integer arrays that add up."""
        return dict(self.counters)

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own; shapes are those of ``state``."""
        self.counters = {name: np.array(state[name], dtype=np.int64) for name in self.counters}

    def sound(self) -> bool:
        """Whether as many reports can have left this state; asked of what was saved, which may have been changed."""
        inside = all(bool(((counts >= 0) & (counts <= self.reports)).all()) for counts in self.state().values())
        return inside and (not self.once or total(self.counters[self.once]) == self.reports)

    # ------------------------------------------------------------------ taking in

    def add(self, payloads: Payloads) -> Self:
        """Count payloads, one row each; rows that no client sends are dropped and counted by reason."""
        rows = np.asarray(payloads)
        if rows.dtype != np.uint8 or rows.ndim != 2:
            raise InvalidData("payloads are rows of bytes (uint8), as Protocol.randomize makes them")
        if rows.shape[1] != self.protocol.width:
            self._drop(Dropped.LENGTH, rows.shape[0])
            return self
        good = self.protocol.valid(rows)
        wrong = rows.shape[0] - int(good.sum())
        if wrong:
            self._drop(Dropped.OUT_OF_RANGE, wrong)
            rows = rows[good]
        if rows.shape[0]:
            self.count(rows)
            self.reports += rows.shape[0]
        return self

    def add_reports(self, reports: Iterable[bytes | str]) -> Self:
        """Count reports as they arrive, as bytes or text; whatever isn't one is dropped and counted by reason."""
        name, width = self.protocol.fingerprint, self.protocol.width
        block: list[bytes] = []
        for report in reports:
            found = wire.unpack(report, name, width)
            if isinstance(found, Dropped):
                self._drop(found, 1)
                continue
            block.append(found)
            if len(block) == BLOCK:
                self._add_block(block)
                block = []
        self._add_block(block)
        return self

    def _add_block(self, block: list[bytes]) -> None:
        if block:
            self.add(np.frombuffer(b"".join(block), dtype=np.uint8).reshape(len(block), self.protocol.width))

    def _drop(self, reason: Dropped, number: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + number

    # ------------------------------------------------------------------ merging and keeping

    def __add__(self, other: Self) -> Self:
        """Both together. Raises InvalidParameter unless they are of the same collection."""
        if not isinstance(other, Aggregator):
            return NotImplemented
        if other.protocol != self.protocol:
            raise InvalidParameter(
                "aggregates of different collections can't be merged: protocol and parameters differ"
            )
        merged = self.__class__(self.protocol)
        theirs = other.state()
        merged.put({name: counts + theirs[name] for name, counts in self.state().items()})
        merged.reports = self.reports + other.reports
        for part in (self.dropped, other.dropped):
            for reason, number in part.items():
                merged._drop(reason, number)
        return merged

    def to_json(self) -> Json:
        """The aggregate as JSON, with the description of its collection."""
        return {
            "kind": SAVED,
            "version": SAVED_VERSION,
            "collection": self.protocol.describe(),
            "reports": self.reports,
            "dropped": {reason.name: number for reason, number in self.dropped.items()},
            "state": {
                name: {"shape": list(counts.shape), "data": base64.b64encode(zlib.compress(_plain(counts))).decode()}
                for name, counts in self.state().items()
            },
        }

    def save(self, path: str | Path) -> None:
        """Write the aggregate to a file, whole or not at all."""
        place = Path(path)
        draft = place.with_name(place.name + ".part")
        draft.write_text(json.dumps(self.to_json()), encoding="utf-8")
        draft.replace(place)


def aggregator_of(saved: Mapping[str, Any]) -> Aggregator[Any]:
    """The aggregate of its JSON. Raises InvalidData if it is damaged."""
    try:
        if saved["kind"] != SAVED or saved["version"] != SAVED_VERSION:
            raise InvalidData(f"not a saved aggregate of version {SAVED_VERSION}")
        aggregate = _collection_of(saved).aggregator()
        shapes = {name: counts.shape for name, counts in aggregate.state().items()}
        state = {name: _array(saved["state"][name], shape) for name, shape in shapes.items()}
        aggregate.put(state)
        aggregate.reports = positive_int(saved["reports"], "reports", least=0)
        aggregate.dropped = {
            Dropped[name]: positive_int(number, "dropped", least=1) for name, number in saved["dropped"].items()
        }
        if aggregate.reports > MOST_REPORTS or saved["state"].keys() != shapes.keys() or not aggregate.sound():
            raise InvalidData("a saved aggregate is damaged: no reports leave the counters that it has")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, zlib.error) as problem:
        if isinstance(problem, InvalidData):
            raise
        raise InvalidData("a saved aggregate is damaged: it isn't what Aggregator.to_json wrote") from None
    return aggregate


def _collection_of(saved: Mapping[str, Any]) -> Protocol:
    """The protocol of a saved aggregate; an unknown protocol isn't damage, so the error says why."""
    try:
        return protocol_of(saved["collection"])
    except InvalidParameter as problem:
        raise InvalidData(f"a saved aggregate can't be read: {problem}") from problem


def load(path: str | Path) -> Aggregator[Any]:
    """The aggregate that was saved in a file.

    Args:
        path: Where ``save`` wrote it.
    """
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InvalidData(f"{path} can't be read as a saved aggregate") from None
    return aggregator_of(saved)


def total(counts: Counts) -> int:
    """The sum of counters, however large: the upper halves of words and the lower ones can't overflow."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFFFFFF).sum())


def check_counters(number: int) -> None:
    """Refuse collections whose aggregates would fill the memory."""
    if number > MOST_COUNTERS:
        raise InvalidParameter(f"an aggregate of this collection would have {number} counters; at most {MOST_COUNTERS}")


def _plain(counts: Counts) -> bytes:
    return np.ascontiguousarray(counts, dtype="<i8").tobytes()


def _array(saved: Mapping[str, Any], shape: tuple[int, ...]) -> Counts:
    if tuple(saved["shape"]) != shape:
        raise InvalidData("a saved aggregate doesn't have the size that its collection says")
    most = 8 * int(np.prod(shape, dtype=np.int64))
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(saved["data"], validate=True), most + 1)
    # the end of the stream holds its checksum
    if len(data) != most or not stream.eof or stream.unused_data:
        raise InvalidData("a saved aggregate doesn't have the size that its collection says")
    return np.frombuffer(data, dtype="<i8").reshape(shape).astype(np.int64)
