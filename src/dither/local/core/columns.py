"""One value for each person, from whatever holds a column: lists, numpy, pandas, polars, Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.errors import InvalidData


def column_of(values: Any, wanted: str = "a list of texts or whole numbers") -> list[Any] | npt.NDArray[Any]:
    """The values as Python's own, or an array if they are whole numbers already; the error repeats none of them.

    Refuses what would be read as other people than were meant: a table or a mapping is iterated by the names of its
    columns, a set forgets how many have a value, and a masked array forgets whose value was to stay hidden.

    Example:
        >>> column_of(np.array(["cat", "dog"]))
        ['cat', 'dog']
    """
    refused = isinstance(values, str | bytes | int | Mapping | Set | np.ma.MaskedArray)
    if refused or column_names(values) is not None or getattr(values, "ndim", 1) != 1:
        raise InvalidData(f"values must be {wanted}, one for each person; nothing was drawn")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    try:
        return [_plain(value) for value in values]
    except TypeError:
        raise InvalidData(f"values must be {wanted}, one for each person; nothing was drawn") from None


def column_names(values: Any) -> list[str] | None:
    """The names of the columns of a table, or None if it isn't one."""
    if isinstance(values, Mapping):
        return list(values)
    # Arrow, whose ``columns`` are the columns themselves; then pandas and polars
    for name in ("column_names", "columns"):
        if hasattr(values, name):
            return list(getattr(values, name))
    return None


def _plain(value: Any) -> Any:
    """Numpy's own numbers, and Arrow's, aren't labels."""
    if isinstance(value, np.generic):
        return value.item()
    return value.as_py() if hasattr(value, "as_py") else value
