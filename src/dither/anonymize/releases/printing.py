"""What is printed for one quasi-identifier in every class, and how much it hides.

The grammar of the texts is in :mod:`dither.anonymize.releases.release`. Texts are made for all classes at once, in
Arrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.anonymize.releases.quasi_identifier_axis import Axis, AxisShape, Positions, narrow_for, ranks_of_texts
from dither.anonymize.table.row_keys import keys_of, order_of
from dither.anonymize.table.values import Bools, Counts, Floats, is_text, plain

_DASH = "–"
_NULL = "NULL"
# Classes whose texts are made at once, so that memory stays near that of the texts.
_STRETCH = 1 << 16
_UNCLEAR_ALONE = r'^$|^\*$|^[{"]|–'
_UNCLEAR_INSIDE = r'^$|^\*$|^NULL$|^ | $|[{},"–]'


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrintedColumn:
    """One quasi-identifier in every class: its text, and which values the text stands for.

    ``texts`` has a text for each class, NULL for a missing value. ``shares`` says how much of the axis it covers (0:
    one value, 1: all). It stands for the positions from ``low`` to ``high`` of the axis (``high < low``: for none of
    them), for those in ``members`` if the axis is a set, and for the missing value where ``or_missing`` says so.
    """

    axis: Axis
    texts: pa.Array[Any]
    shares: Floats
    low: Positions
    high: Positions
    or_missing: Bools
    members: tuple[Positions, Positions] | None = None

    @classmethod
    def of(cls, axis: Axis, of_row: npt.NDArray[Any], number: int) -> PrintedColumn:
        """The tightest cells around the rows of each class; rows of class −1 are left out, and no class is empty."""
        # suppressed rows come first and are left out
        order = order_of(of_row + 1, number + 1)
        sizes = np.bincount(of_row[of_row >= 0], minlength=number)
        return cls.of_sorted(axis, axis.positions[order[order.size - int(sizes.sum()) :]], np.cumsum(sizes) - sizes)

    @classmethod
    def of_sorted(cls, axis: Axis, positions: npt.NDArray[Any], starts: Counts) -> PrintedColumn:
        """The tightest cells around stretches of positions."""
        if not starts.size:
            return _none(axis)
        low = np.minimum.reduceat(positions, starts).astype(np.int32)
        high = np.maximum.reduceat(positions, starts).astype(np.int32)
        if axis.shape is AxisShape.TREE:
            return cls.under(axis, axis.meeting_level(low, high), low)
        shares = axis.share(positions, starts)
        if axis.shape is AxisShape.SET:
            return _sets(axis, low, high, shares, axis.members(positions, starts))
        return _ranges(axis, low, high, shares, positions, starts)

    @classmethod
    def under(cls, axis: Axis, level: npt.NDArray[Any], position: npt.NDArray[Any]) -> PrintedColumn:
        """The cells of a tree at a level, one level for each class, around any position of the class.

        This is what full-domain generalisation prints: there the level is the same for all classes.
        """
        low, high = np.empty(level.size, np.int32), np.empty(level.size, np.int32)
        spelled: list[str | None] = []
        which = np.empty(level.size, np.int64)
        for k in np.unique(level):
            here = level == k
            group = axis.groups[k][position[here]]
            low[here], high[here] = axis.bounds[k][0][group], axis.bounds[k][1][group]
            which[here] = len(spelled) + group
            spelled += axis.labels[k]
        shares = (high - low) / max(1.0, axis.size - 1.0)
        or_missing = (low <= axis.missing) & (axis.missing <= high)
        texts = pa.array(spelled, pa.string()).take(which)
        return cls(axis=axis, texts=texts, shares=shares, low=low, high=high, or_missing=or_missing)

    @property
    def spread(self) -> Counts:
        """How many rows of the original table have one of the values that the text stands for."""
        counts = self.axis.counts
        if self.members is not None:
            part, position = self.members
            return np.bincount(part, weights=counts[position], minlength=len(self.texts)).astype(np.int64)
        summed = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        spread: Counts = summed[self.high + 1] - summed[self.low]
        if self.axis.missing >= 0:
            outside = self.or_missing & ((self.axis.missing < self.low) | (self.axis.missing > self.high))
            spread = spread + np.where(outside, counts[self.axis.missing], 0)
        return spread

    def take(self, classes: npt.NDArray[Any]) -> PrintedColumn:
        """The cells of some of the classes, in the order given."""
        members = self.members
        if members is not None:
            part, position = members
            begin = np.searchsorted(part, classes)
            counts = np.searchsorted(part, classes, side="right") - begin
            inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            owner = np.arange(classes.size, dtype=narrow_for(classes.size))
            members = np.repeat(owner, counts), position[np.repeat(begin, counts) + inside]
        return PrintedColumn(
            axis=self.axis,
            texts=self.texts.take(classes),
            shares=self.shares[classes],
            low=self.low[classes],
            high=self.high[classes],
            or_missing=self.or_missing[classes],
            members=members,
        )


def alone(text: str) -> str:
    """A value that is printed by itself.

    Example:
        >>> alone("a, b"), alone("{a}"), alone("*")
        ('a, b', '"{a}"', '"*"')
    """
    return json.dumps(text, ensure_ascii=False) if re.search(_UNCLEAR_ALONE, text) else text


def inside(text: str) -> str:
    """A value that is printed as a member of a set or as the end of a range.

    Example:
        >>> inside("a"), inside("a, b"), inside("NULL")
        ('a', '"a, b"', '"NULL"')
    """
    return json.dumps(text, ensure_ascii=False) if re.search(_UNCLEAR_INSIDE, text) else text


class _Spelling:
    """The texts of those positions of an axis that are printed: alone, and inside a set or range.

    The missing value is NULL alone and ``NULL`` inside.
    """

    def __init__(self, axis: Axis, *positions: Positions) -> None:
        # where every value differs, only few of them are the end of a range
        used = np.zeros(axis.size, np.bool_)
        for some in positions:
            used[some] = True
        texts = plain(axis.values.take(np.flatnonzero(used)))
        self._rank = np.cumsum(used, dtype=np.int32)
        self._rank -= 1
        self._alone, self._inside = texts, texts
        if is_text(axis.values.type):
            self._alone, self._inside = _quoted(texts, _UNCLEAR_ALONE, alone), _quoted(texts, _UNCLEAR_INSIDE, inside)
        self._inside = pc.fill_null(self._inside, _NULL)

    def alone(self, positions: Positions) -> Any:
        return self._alone.take(pa.array(self._rank[positions]))

    def inside(self, positions: Positions) -> Any:
        return self._inside.take(pa.array(self._rank[positions]))


def _quoted(texts: Any, unclear: str, quote: Callable[[str], str]) -> Any:
    """The texts, those that match a pattern quoted."""
    matched = pc.match_substring_regex(pc.fill_null(texts, _NULL), unclear)
    if not pc.any(matched).as_py():
        return texts
    marked = matched.to_pylist()
    return pa.array(
        [
            quote(text) if mark and text is not None else text
            for text, mark in zip(texts.to_pylist(), marked, strict=True)
        ],
        pa.string(),
    )


def _none(axis: Axis) -> PrintedColumn:
    nothing = np.zeros(0, np.int32)
    return PrintedColumn(
        axis=axis,
        texts=pa.array([], pa.string()),
        shares=np.zeros(0),
        low=nothing,
        high=nothing,
        or_missing=np.zeros(0, np.bool_),
        members=(nothing, nothing) if axis.shape is AxisShape.SET else None,
    )


def _sets(
    axis: Axis, low: Positions, high: Positions, shares: Floats, members: tuple[Positions, Positions]
) -> PrintedColumn:
    part, position = members
    spelling = _Spelling(axis, position)
    offsets = np.searchsorted(part, np.arange(low.size + 1))
    ranks = ranks_of_texts(axis.values)
    keys, _ = keys_of([part, ranks[position]], [low.size, axis.size])
    keys.sort()
    alphabetical = np.argsort(ranks)[keys % axis.size]
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), spelling.inside(alphabetical))
    joined: Any = pc.binary_join(lists, ", ")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    texts = pc.if_else(pa.array(low == high), spelling.alone(low), braced)
    or_missing = np.zeros(low.size, np.bool_)
    or_missing[part[position == axis.missing]] = True
    return PrintedColumn(
        axis=axis, texts=texts, shares=shares, low=low, high=high, or_missing=or_missing, members=members
    )


def _ranges(
    axis: Axis, low: Positions, high: Positions, shares: Floats, positions: npt.NDArray[Any], starts: Counts
) -> PrintedColumn:
    or_missing = high == axis.missing
    if axis.missing >= 0 and or_missing.any():
        # the missing value comes last on the axis: without it, the highest is that of the others
        known = np.where(positions == axis.missing, -1, positions.astype(np.int32))
        high = np.maximum.reduceat(known, starts)
        low = np.where(high < 0, 0, low)
    spelling = _Spelling(axis, low, np.maximum(high, 0))
    # some classes at a time: a text goes through several forms
    stretches = [slice(begin, begin + _STRETCH) for begin in range(0, low.size, _STRETCH)]
    texts = pa.concat_arrays([_spelled(spelling, low[some], high[some], or_missing[some]) for some in stretches])
    return PrintedColumn(axis=axis, texts=texts, shares=shares, low=low, high=high, or_missing=or_missing)


def _spelled(spelling: _Spelling, low: Positions, high: Positions, or_missing: Bools) -> Any:
    """The texts of ranges."""
    single, begin = pa.array(low == high), spelling.inside(low)
    between: Any = pc.binary_join_element_wise(begin, spelling.inside(np.maximum(high, 0)), _DASH)
    texts = pc.if_else(single, spelling.alone(low), between)
    if or_missing.any():
        also = pc.binary_join_element_wise("{", pc.if_else(single, begin, between), ", NULL}", "")
        texts = pc.if_else(pa.array(or_missing), also, texts)
        texts = pc.if_else(pa.array(high < 0), pa.scalar(None, pa.string()), texts)
    return texts
