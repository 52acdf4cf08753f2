"""What one output holds: numbers, words and flags by path, and one code for the whole, whatever it is made of."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from dither.errors import InvalidData
from dither.numeric.rounding import near_float

OUTPUT = "output"
SHAPE = "the shape of the output"
LONGEST_LIST = 32
DEEPEST = 8
# So many numbers are looked for in a text, if it isn't longer than this.
MOST_IN_A_TEXT = 8
LONGEST_TEXT = 10_000
WRITTEN_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
NUMBERS = bool | int | float | Decimal | Fraction
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(slots=True)
class Leaves:
    """What one output holds: numbers and words by path, and flags that are 1 where they are there."""

    numbers: dict[str, float]
    words: dict[str, str]
    flags: set[str]


def code_of(encoded: bytes) -> int:
    """A code that is the same in every process; never 0, which stands for what isn't there."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little") | 1


def taken_apart(value: Any) -> Leaves:
    """All that one output holds."""
    leaves = Leaves({}, {}, set())
    _take(value, OUTPUT, leaves, 0)
    leaves.words[SHAPE] = _shape(value, 0)
    return leaves


def _take(value: Any, path: str, leaves: Leaves, depth: int) -> None:
    value = _plain(value)
    if isinstance(value, NUMBERS):
        leaves.numbers[path] = near_float(value)
        if isinstance(value, Decimal | Fraction):
            # how many digits are written, or how large the denominator is, may tell what the number doesn't
            leaves.numbers[f"the length of {path}"] = float(len(str(value)))
    elif isinstance(value, dt.date | dt.time | dt.timedelta):
        leaves.words[path] = _brief(value)
        leaves.numbers[path] = _on_the_clock(value)
    elif isinstance(value, str | bytes):
        leaves.words[path] = repr(value)
        leaves.numbers[f"the length of {path}"] = float(len(value))
        for place, number in enumerate(_written(value), start=1):
            leaves.numbers[f"number {place} in {path}"] = number
    elif isinstance(value, Mapping) and depth < DEEPEST:
        leaves.numbers[f"the length of {path}"] = float(len(value))
        leaves.words[f"the keys of {path}"] = ", ".join(repr(key) for key in value)
        for key, inner in value.items():
            leaves.flags.add(f"{key!r} in {path}")
            _take(inner, f"{path}[{key!r}]", leaves, depth + 1)
    elif isinstance(value, frozenset) and depth < DEEPEST:
        leaves.numbers[f"the length of {path}"] = float(len(value))
        leaves.flags.update(f"{_brief(item)} in {path}" for item in value)
    elif isinstance(value, tuple) and depth < DEEPEST:
        _take_list(value, path, leaves, depth)
    else:
        leaves.words[path] = _brief(value)


def _take_list(value: tuple[Any, ...], path: str, leaves: Leaves, depth: int) -> None:
    leaves.numbers[f"the length of {path}"] = float(len(value))
    numbers = [near_float(item) for item in map(_plain, value) if isinstance(item, NUMBERS)]
    if numbers:
        # infinities of both signs have no sum; NaN says so
        leaves.numbers[f"the sum of {path}"] = float(np.sum(numbers)) if np.isfinite(numbers).all() else math.nan
    for place, item in enumerate(value[:LONGEST_LIST]):
        if isinstance(item, str | bytes):
            leaves.flags.add(f"{item!r} in {path}")
        _take(item, f"{path}[{place}]", leaves, depth + 1)


def _plain(value: Any) -> Any:
    """Numbers as Python's, sequences as tuples, sets as frozensets, records and tables as dictionaries."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, bool | int | float | str | bytes | tuple | frozenset) or value is None:
        return value
    if isinstance(value, np.generic):
        return _plain(value.item()) if not isinstance(value.item(), np.generic) else repr(value)
    if isinstance(value, Fraction | Decimal | dt.date | dt.time | dt.timedelta):
        return value
    if isinstance(value, complex):
        return {"the real part": value.real, "the imaginary part": value.imag}
    if isinstance(value, np.ndarray):
        return _plain(value.item()) if value.ndim == 0 else tuple(value.tolist())
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Iterator):
        raise InvalidData(
            f"an output is a {type(value).__name__}, which shows nothing until somebody goes through it: "
            "let the mechanism return a list"
        )
    return _plain_table(value)


def _plain_table(value: Any) -> Any:
    """Arrow, pandas and polars, none of which has to be installed."""
    library = type(value).__module__.split(".")[0]
    if library == "pyarrow":
        if hasattr(value, "to_pydict"):
            return value.to_pydict()
        return tuple(value.to_pylist()) if hasattr(value, "to_pylist") else value.as_py()
    if library == "pandas":
        return _plain_pandas(value)
    if library == "polars" and hasattr(value, "to_dict"):
        return value.to_dict(as_series=False)
    if library == "polars" and hasattr(value, "to_list"):
        return tuple(value.to_list())
    return _attributes(value) or value


def _plain_pandas(value: Any) -> Any:
    """Tables and series with their index, which often holds the keys of groups, unless it only numbers the rows."""
    index = getattr(value, "index", None)
    if index is None or callable(index):
        return tuple(value.tolist()) if hasattr(value, "tolist") else value
    numbered = type(index).__name__ == "RangeIndex"
    if hasattr(value, "columns"):
        if numbered:
            return value.to_dict(orient="list")
        return value.to_dict() if index.is_unique else {"the index": index.tolist(), **value.to_dict(orient="list")}
    if numbered:
        return tuple(value.tolist())
    pairs = tuple(zip(index.tolist(), value.tolist(), strict=True))
    return dict(pairs) if index.is_unique else pairs


def _attributes(value: Any) -> dict[str, Any]:
    """What an object of an unknown class holds: who gets the object can look at all of it."""
    if isinstance(value, type | ModuleType | FunctionType | BaseException):
        return {}
    found = dict(getattr(value, "__dict__", {}))
    told: Any = type(value).__repr__
    if told is object.__repr__:
        slots = [name for base in type(value).__mro__ for name in _listed(getattr(base, "__slots__", ()))]
        found.update({name: getattr(value, name) for name in slots if hasattr(value, name)})
    return {f".{name}": held for name, held in found.items()}


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _on_the_clock(value: dt.date | dt.time | dt.timedelta) -> float:
    """Seconds, from the beginning of the calendar or of the day."""
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, dt.time):
        return value.hour * 3600.0 + value.minute * 60 + value.second + value.microsecond / 1e6
    if not isinstance(value, dt.datetime):
        return value.toordinal() * 86_400.0
    if value != value:  # pandas has moments that are none
        return math.nan
    return value.toordinal() * 86_400.0 + _on_the_clock(value.time())


def _written(text: str | bytes) -> list[float]:
    """The first numbers in a text."""
    if isinstance(text, bytes) or len(text) > LONGEST_TEXT:
        return []
    found = WRITTEN_NUMBER.finditer(text)
    return [float(match[0]) for match, _ in zip(found, range(MOST_IN_A_TEXT), strict=False)]


def _brief(value: Any) -> str:
    """A value in words, without the address that Python shows for objects."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return ADDRESS.sub("", repr(value))


def _shape(value: Any, depth: int) -> str:
    """The structure without the numbers: which types stand where, under which keys."""
    value = _plain(value)
    if isinstance(value, Mapping) and depth < DEEPEST:
        return "{" + ", ".join(f"{key!r}: {_shape(inner, depth + 1)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple) and depth < DEEPEST:
        return "(" + ", ".join(_shape(inner, depth + 1) for inner in value) + ")"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return type(value).__name__


def canonical(value: Any, depth: int = 0) -> bytes:
    """One encoding for one value: equal bytes for what nobody can tell apart, in every process."""
    value = _plain(value)
    name = type(value).__name__.encode()
    if isinstance(value, float):
        return b"f" + struct.pack("<d", math.nan if math.isnan(value) else value)
    if isinstance(value, str | bytes):
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return name + b"%d:" % len(raw) + raw
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            parts = [canonical(part, depth + 1) for item in value.items() for part in item]
            return b"{%d:" % len(parts) + b"".join(b"%d:" % len(part) + part for part in parts)
        if isinstance(value, tuple | frozenset):
            parts = [canonical(part, depth + 1) for part in value]
            parts = sorted(parts) if isinstance(value, frozenset) else parts
            return name + b"(%d:" % len(parts) + b"".join(b"%d:" % len(part) + part for part in parts)
    return name + b"=" + _brief(value).encode("utf-8", "surrogatepass")
