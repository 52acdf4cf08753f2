"""Lines of several codes as one number each, so that they are compared, sorted and counted as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.anonymize.table.values import Counts

_MOST = 1 << 62


def keys_of(columns: Sequence[npt.NDArray[Any]], sizes: Sequence[int]) -> tuple[Counts, int]:
    """A number for each line, the same for the same codes, in the order of the first column, then the second, ….

    Each column has codes from 0 below its size. The second result is a bound: all numbers are below it.

    Example:
        >>> keys, bound = keys_of([np.array([1, 0, 1]), np.array([2, 2, 0])], [2, 3])
        >>> keys.tolist(), bound
        ([5, 2, 3], 6)
    """
    key = columns[0].astype(np.int64)
    bound = max(1, sizes[0])
    for codes, size in zip(columns[1:], sizes[1:], strict=True):
        if bound * size >= _MOST:
            # ranks among the different keys keep their order and need fewer bits
            _, key = np.unique(key, return_inverse=True)
            key = key.reshape(-1).astype(np.int64)
            bound = int(key.max(initial=0)) + 1
        key *= size
        key += codes
        bound *= max(1, size)
    return key, bound


def order_of(keys: npt.NDArray[Any], bound: int) -> Counts:
    """The order that sorts numbers from 0 below a bound; equal ones stay as they are.

    Example:
        >>> order_of(np.array([2, 0, 2, 1]), 3).tolist()
        [1, 3, 0, 2]
    """
    bits = keys.size.bit_length()
    if (bound - 1).bit_length() + bits > 63:
        return np.argsort(keys, kind="stable")
    # the place goes along in the lower bits: sorting one array of words is several times faster than argsort
    packed = keys.astype(np.int64) << bits
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def alike(columns: Sequence[npt.NDArray[Any]], sizes: Sequence[int]) -> tuple[Counts, Counts, Counts]:
    """Lines that agree as one: the first of each, which one each line became, and how many there were of each.

    They are numbered in the order of their codes.
    """
    keys, bound = keys_of(columns, sizes)
    order = order_of(keys, bound)
    keys = keys[order]
    begins = np.flatnonzero(np.concatenate((np.ones(min(1, keys.size), np.bool_), keys[1:] != keys[:-1])))
    counts = np.diff(begins, append=keys.size)
    became = np.empty(keys.size, np.int64)
    became[order] = np.repeat(np.arange(begins.size), counts)
    return order[begins], became, counts
