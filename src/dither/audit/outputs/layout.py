"""Outputs of any shape as columns that events can be made of: numbers, and codes for everything else.

An array has a column for each coordinate. Anything else (texts, dictionaries, sets, tables, tuples of different
lengths) is taken apart by path: the number at ``output['total']``, whether ``'x' in output['keys']``, how long a list
is, which keys come in which order, and a code of the whole. Codes are BLAKE2 of a canonical encoding, the same in every
process.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.audit.outputs._flatten import OUTPUT, SHAPE, Leaves, canonical, code_of, taken_apart
from dither.errors import InvalidData
from dither.mechanisms.base import Floats

Codes: TypeAlias = npt.NDArray[np.uint64]
Block: TypeAlias = "npt.NDArray[Any] | list[Any]"

__all__ = ["SHAPE", "WHOLE", "Block", "Codes", "Columns", "Layout", "as_block", "canonical", "joined", "layout_of"]

WHOLE = "the whole output"
WEIGHTED = "a weighted sum of the output"
MOST_COLUMNS = 200
# Outputs that repeat are taken apart once.
MOST_KNOWN = 4096
NOT_A_NUMBER = np.uint64(0x7FF8_0000_0000_0000)
# A fair mechanism is refused about as often as a normal variable is eight standard deviations off: never.
STANDARD_ERRORS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A sample by column: numbers (NaN where there is none) and codes of what isn't a number.

    ``flags`` are the numbers that are 1 where something is in the output and 0 where it isn't.
    """

    size: int
    numbers: Mapping[str, Floats]
    kinds: Mapping[str, Codes]
    flags: frozenset[str] = frozenset()

    def head(self, size: int) -> Columns:
        """The first ones."""
        if size >= self.size:
            return self
        numbers = {name: column[:size] for name, column in self.numbers.items()}
        kinds = {name: column[:size] for name, column in self.kinds.items()}
        return Columns(size=size, numbers=numbers, kinds=kinds, flags=self.flags)


class Layout(Protocol):
    """How outputs become columns, settled on a first sample."""

    @property
    def width(self) -> int:
        """How many columns there are."""
        ...

    def read(self, block: Block) -> Columns:
        """The columns of a sample."""
        ...

    def words(self, kind: str, code: int) -> str | None:
        """What a code stands for, if it was seen in the first sample."""
        ...


# ------------------------------------------------------------------ samples


def as_block(outputs: Any, n: int) -> Block:
    """``n`` outputs as an array of numbers, (n,) or (n, d), or else as a list of objects."""
    if isinstance(outputs, np.ma.MaskedArray) or (isinstance(outputs, np.ndarray) and outputs.dtype.kind not in "biuf"):
        block = _of_odd_array(outputs)
    elif isinstance(outputs, np.ndarray):
        block = outputs
    else:
        try:
            block = _of_list(list(outputs))
        except TypeError:
            raise InvalidData(
                f"draw(x, n) must return an array or a list of n outputs; got {type(outputs).__name__}"
            ) from None
    count = len(block) if isinstance(block, list) else (block.shape[0] if block.ndim else 0)
    if count != n:
        raise InvalidData(f"draw(x, n) must return n = {n} outputs; got {count}")
    if isinstance(block, np.ndarray) and block.ndim > 2:
        block = block.reshape(n, -1)
    return block


def _of_odd_array(outputs: npt.NDArray[Any]) -> Block:
    if outputs.dtype.kind == "c":
        return np.ascontiguousarray(outputs).view(outputs.real.dtype).reshape(len(outputs), -1)
    return _of_list(list(outputs.tolist()))


def _of_list(outputs: list[Any]) -> Block:
    """Numbers of one type become an array, rows of them too; ints and floats differ, so mixtures stay as they are."""
    kinds = set(map(type, outputs))
    if len(kinds) != 1:
        return outputs
    kind = kinds.pop()
    if issubclass(kind, float | int | np.number | np.bool_) and not issubclass(kind, Enum):
        numbers = np.array(outputs)
        return (
            _of_odd_array(numbers)
            if numbers.dtype.kind == "c"
            else numbers
            if numbers.dtype.kind in "biuf"
            else outputs
        )
    if issubclass(kind, complex):
        return _of_odd_array(np.array(outputs))
    if kind is np.ndarray:
        _expect_apart(outputs)
        shapes = {(item.shape, item.dtype) for item in outputs}
        same = len(shapes) == 1 and outputs[0].dtype.kind in "biuf" and outputs[0].size
        return np.stack(outputs).reshape(len(outputs), -1) if same else outputs
    if kind in (tuple, list) and len({len(item) for item in outputs}) == 1 and len(outputs[0]):
        inner = {type(value) for item in outputs for value in item}
        if len(inner) == 1 and inner.pop() in (float, int, bool, np.float64, np.int64):
            rows = np.array(outputs)
            return rows if rows.dtype.kind in "biuf" else outputs
    return outputs


def _expect_apart(outputs: list[npt.NDArray[Any]]) -> None:
    """Refuse one array in several places: the last output would be counted many times."""
    if any(np.shares_memory(one, other) for one, other in itertools.pairwise(outputs[:3]) if one.size):
        raise InvalidData(
            "draw(x, n) returned one array in several places, which holds the last output only: return n separate "
            "outputs, such as copies"
        )


def joined(parts: list[Block]) -> Block:
    """Several samples as one."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({(part.shape[1:], part.dtype) for part in arrays}) == 1:
        return np.concatenate(arrays)
    if len(parts) == 1:
        return parts[0]
    return [value for part in parts for value in as_objects(part)]


def layout_of(first: Block, second: Block) -> Layout:
    """How to read outputs, from a sample of each input."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.shape[1:] == second.shape[1:]:
        return ArrayLayout.of(first, second)
    return ObjectLayout.of([value for part in (first, second) for value in as_objects(part)])


def as_objects(block: Block) -> list[Any]:
    """Outputs as Python's own values."""
    return list(block.tolist()) if isinstance(block, np.ndarray) else block


# ------------------------------------------------------------------ arrays of numbers


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One column for each coordinate; rows that repeat have a code too.

    Of very long rows only the coordinates that differ most are columns, with a sum of all, weighted by how they differ.
    """

    coordinates: int | None
    rows: Mapping[int, str] = field(default_factory=dict)
    kept: tuple[int, ...] = ()
    weights: Floats | None = None

    @property
    def width(self) -> int:
        """The coordinates, and a code of the row where it has one."""
        return (self.coordinates or 1) + bool(self.rows)

    @classmethod
    def of(cls, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> ArrayLayout:
        """The layout of arrays like these."""
        both = np.concatenate([first, second])
        if both.ndim == 1:
            # the number itself says it all, unless it is a whole number that no float holds
            short = both.dtype.kind in "bf" or np.abs(both.astype(np.float64)).max(initial=0) < 2.0**53
            return cls(None) if short else cls(None, _repeated(both))
        wide = both.shape[1]
        if wide <= MOST_COLUMNS:
            return cls(wide, _repeated(both), tuple(range(wide)))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            difference = first.mean(axis=0, dtype=np.float64) - second.mean(axis=0, dtype=np.float64)
            weights = np.nan_to_num(difference / both.var(axis=0, dtype=np.float64), posinf=0.0, neginf=0.0)
            telling = np.nan_to_num(np.abs(difference * weights))
        kept = np.sort(np.argsort(-telling, kind="stable")[: MOST_COLUMNS // 2])
        return cls(wide, _repeated(both), tuple(kept.tolist()), weights)

    def read(self, block: Block) -> Columns:
        """The columns of a sample; what isn't of this shape counts as NaN."""
        if isinstance(block, list):
            block = np.array([_as_row(value, self.coordinates) for value in block], dtype=np.float64)
        shape = (len(block),) if self.coordinates is None else (len(block), self.coordinates)
        if block.shape != shape:
            block = np.full(shape, np.nan)
        numbers = np.asarray(block, dtype=np.float64)
        kinds = {WHOLE: _row_codes(block)} if self.rows else {}
        if self.coordinates is None:
            return Columns(size=len(numbers), numbers={OUTPUT: numbers}, kinds=kinds)
        named = {f"{OUTPUT}[{place}]": numbers[:, place] for place in self.kept}
        if self.weights is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                named[WEIGHTED] = numbers @ self.weights
        return Columns(size=len(numbers), numbers=named, kinds=kinds)

    def words(self, kind: str, code: int) -> str | None:
        """The row."""
        return self.rows.get(code) if kind == WHOLE else None


def _repeated(sample: npt.NDArray[Any]) -> Mapping[int, str]:
    """Codes of rows with the rows, where many repeat."""
    codes, places, counts = np.unique(_row_codes(sample), return_index=True, return_counts=True)
    if codes.size > sample.shape[0] // 2:
        return {}
    often = np.argsort(-counts)[:1000]
    return {int(codes[i]): str(tuple(np.atleast_1d(sample[places[i]]).tolist())) for i in often}


def _as_row(value: Any, width: int | None) -> Any:
    """A stray output in the place of a number or a row of numbers."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array(np.nan)
    if width is None:
        return float(found) if found.ndim == 0 else math.nan
    return found if found.shape == (width,) else np.full(width, np.nan)


def _row_codes(block: npt.NDArray[Any]) -> Codes:
    """A code for each row, the same for the same bits (of NaNs there is one)."""
    rows = _bits(block.reshape(len(block), -1))
    # each number is mixed with its place before all are added up (the finaliser of SplitMix64, Steele et al. 2014)
    with np.errstate(over="ignore"):
        places = np.arange(1, rows.shape[1] + 1, dtype=np.uint64)
        mixed = np.add(rows, places * np.uint64(0x9E37_79B9_7F4A_7C15), dtype=np.uint64)
        for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)):
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return np.asarray(mixed.sum(axis=1, dtype=np.uint64))


def _bits(rows: npt.NDArray[Any]) -> Codes:
    if rows.dtype.kind in "iub":
        return rows.astype(np.int64).view(np.uint64) if rows.dtype.kind != "u" else rows.astype(np.uint64)
    numbers = np.ascontiguousarray(rows, dtype=np.float64)
    return np.where(np.isnan(numbers), NOT_A_NUMBER, numbers.view(np.uint64))


def whole_codes(columns: Columns) -> Codes:
    """A code for each output as a whole, as far as its columns show it."""
    numbers = [_row_codes(np.column_stack(list(columns.numbers.values())))] if columns.numbers else []
    parts = [*numbers, *columns.kinds.values()]
    return parts[0] if len(parts) == 1 else _row_codes(np.column_stack(parts))


# ------------------------------------------------------------------ everything else


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Columns by path, as many as the most frequent ones of a first sample."""

    numbers: tuple[str, ...]
    flags: tuple[str, ...]
    texts: tuple[str, ...]
    seen: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(cls, sample: list[Any]) -> ObjectLayout:
        """The layout of objects like these."""
        numbers: Counter[str] = Counter()
        flags: Counter[str] = Counter()
        texts: dict[str, Counter[str]] = {}
        for value in sample:
            leaves = taken_apart(value)
            numbers.update(leaves.numbers.keys())
            flags.update(leaves.flags)
            for name, word in leaves.words.items():
                texts.setdefault(name, Counter())[word] += 1
        kept = sorted(texts, key=lambda name: (-texts[name].total(), name))[:MOST_COLUMNS]
        seen = {
            name: {code_of(word.encode()): word for word, count in texts[name].most_common(1000) if count > 1}
            for name in kept
        }
        # what is always there says nothing
        varying = {name: count for name, count in flags.items() if count < len(sample)}
        return cls(_most(numbers), _most(varying), tuple(kept), seen)

    @property
    def width(self) -> int:
        """Numbers, flags, texts and the whole."""
        return len(self.numbers) + len(self.flags) + len(self.texts) + 1

    def read(self, block: Block) -> Columns:
        """The columns of a sample."""
        values = as_objects(block)
        size = len(values)
        numbers = {name: np.full(size, np.nan) for name in self.numbers}
        flags = {name: np.zeros(size) for name in self.flags}
        kinds = {name: np.zeros(size, dtype=np.uint64) for name in (*self.texts, WHOLE)}
        known: dict[bytes, Leaves] = {}
        for row, value in enumerate(values):
            encoded = canonical(value)
            leaves = known.get(encoded) or taken_apart(value)
            if len(known) < MOST_KNOWN:
                known[encoded] = leaves
            for name, number in leaves.numbers.items():
                if name in numbers:
                    numbers[name][row] = number
            for name in leaves.flags:
                if name in flags:
                    flags[name][row] = 1.0
            for name, word in leaves.words.items():
                if name in kinds:
                    kinds[name][row] = code_of(word.encode())
            kinds[WHOLE][row] = code_of(encoded)
        return Columns(size=size, numbers={**flags, **numbers}, kinds=kinds, flags=frozenset(flags))

    def words(self, kind: str, code: int) -> str | None:
        """The text, or the keys, that a code stands for."""
        return self.seen.get(kind, {}).get(code, "missing" if code == 0 else None)


def _most(counted: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counted, key=lambda name: (-counted[name], name))[:MOST_COLUMNS])


# ------------------------------------------------------------------ independence


def expect_independent(columns: Columns) -> None:
    """Refuse outputs that repeat the one before more often than they repeat one long ago: noise that is used twice.

    If outputs are independent, two neighbours in a sample are equal as often as two that lie far apart. Each of the two
    shares has a variance of at most 3s/n, where s is the chance of a repetition, since pairs that overlap have a part
    in common (Σp³ ≤ Σp²).
    """
    codes = whole_codes(columns)
    n = codes.size
    if n < 4:
        return
    after = float(np.mean(codes[1:] == codes[:-1]))
    apart = float(np.mean(codes[n // 2 :] == codes[: n - n // 2]))
    if after - apart > STANDARD_ERRORS * math.sqrt(6 * max(after, apart) / n):
        raise InvalidData(
            "outputs repeat the one before more often than chance allows, so noise is used more than once and draws "
            "aren't independent: let one output hold all that is released with the same noise, and audit that"
        )
