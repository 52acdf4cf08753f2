"""What ``Curator.run`` accepts: anything that states its loss before it sees data."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dither.errors import InvalidParameter
from dither.privacy import PrivacyLoss


@runtime_checkable
class Computation(Protocol):
    """A private computation over one table.

    ``loss()`` is what it costs, for one unit of the table with at most ``rows`` rows, under the policy's adjacency; it
    is asked for before any data is read and charged in full. ``release(table)`` gets an Arrow table with ``columns``
    and returns what may leave: an Arrow table, a numpy array or anything that JSON can hold. ``key()`` names the
    computation with all its parameters: the same key again is answered from the record.
    """

    table: str
    columns: Sequence[str]
    rows: int

    def loss(self) -> PrivacyLoss:
        """What it costs."""
        ...

    def key(self) -> str:
        """Its permanent name with every parameter."""
        ...

    def release(self, table: pa.Table) -> Any:
        """What may leave."""
        ...


def encode(result: Any) -> bytes:
    """A result as bytes, with a letter in front that says how to read it."""
    if isinstance(result, pa.Table):
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, result.schema) as writer:
            writer.write_table(result)
        return b"A" + sink.getvalue()
    if isinstance(result, np.ndarray):
        if result.dtype.hasobject:
            raise InvalidParameter("a computation may release arrays of numbers, not of objects")
        sink = io.BytesIO()
        np.save(sink, result, allow_pickle=False)
        return b"N" + sink.getvalue()
    try:
        return b"J" + json.dumps(result, allow_nan=True).encode()
    except (TypeError, ValueError):
        raise InvalidParameter(
            "a computation must release an Arrow table, a numpy array or what JSON can hold (numbers, texts, lists)"
        ) from None


def decode(stored: bytes) -> Any:
    """The inverse of ``encode``."""
    kind, body = stored[:1], stored[1:]
    if kind == b"A":
        return pa.ipc.open_stream(body).read_all()
    if kind == b"N":
        return np.load(io.BytesIO(body), allow_pickle=False)
    return json.loads(body)
