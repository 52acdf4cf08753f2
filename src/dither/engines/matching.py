"""Different values that units vouch for, each for so many at most: the size of a largest matching.

The exact number is a function of the table alone: the largest number of values that can be handed to units that have
them, at most so many to each. A unit that comes or goes moves it by no more than that many, since its values can be
taken away from any matching without it (Knop & Steinke 2023). That isn't so for a matching that is merely found, as
one that goes through units in an order which data decides: the largest is found, however long it takes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def vouched_for(unit: Ints, value: Ints, most: int) -> Bools:
    """For each number of a value, whether a largest matching hands it out; ``unit[i]`` has ``value[i]``, once.

    Which values they are is a matter of chance, how many isn't. Groups that have neither units nor values in common
    may be put together.

    Args:
        unit: Numbers of units from 0.
        value: Numbers of values from 0.
        most: How many values a unit may be handed.

    Example:
        >>> vouched_for(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 2]), 1).sum()
        np.int64(2)
    """
    found = np.zeros(int(value.max()) + 1 if value.size else 0, dtype=np.bool_)
    room = np.full(int(unit.max()) + 1 if unit.size else 0, most, dtype=np.int64)
    while unit.size:
        # whoever has no more than it may be handed takes all of it: another unit that has one of these takes others
        light = np.bincount(unit)[unit] <= room[unit]
        if light.any():
            found[value[light]] = True
            left = ~found[value]
        else:
            # a value of one unit alone is as good for it as any other
            single = np.flatnonzero(np.bincount(value)[value] == 1)
            if not single.size:
                return found | _flow(unit, value, room, found.size)
            single = single[np.argsort(unit[single], kind="stable")]
            owner = unit[single]
            taken = np.arange(owner.size) - np.searchsorted(owner, owner) < room[owner]
            found[value[single[taken]]] = True
            room -= np.bincount(owner[taken], minlength=room.size)
            left = room[unit] > 0
            left[single] = False
        unit, value = unit[left], value[left]
    return found


def _flow(unit: Ints, value: Ints, room: Ints, size: int) -> Bools:
    """From a source over units, each of which lets as many through as it has room for, and values, to a sink."""
    own, unit = np.unique(unit, return_inverse=True)
    values, value = np.unique(value, return_inverse=True)
    units, sink = own.size, own.size + values.size + 1
    first = units + 1
    start = np.concatenate([np.zeros(units, dtype=np.int64), 1 + unit, first + np.arange(values.size)])
    end = np.concatenate([1 + np.arange(units), first + value, np.full(values.size, sink)])
    most = np.ones(start.size, dtype=np.int32)
    most[:units] = np.minimum(room[own], values.size)
    flow = maximum_flow(csr_array((most, (start, end)), shape=(sink + 1, sink + 1)), 0, sink).flow.tocoo()
    taken = flow.row[(flow.col == sink) & (flow.data > 0)] - first
    found = np.zeros(size, dtype=np.bool_)
    found[values[taken]] = True
    return found
