"""What ``Curator.run`` accepts: anything that states its loss before it sees data."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dither.curator.results import OLDER
from dither.errors import InvalidParameter, Refused, did_you_mean
from dither.numeric import positive_int
from dither.privacy import PrivacyLoss
from dither.query.schema import Schema


@runtime_checkable
class Computation(Protocol):
    """A private computation over one table.

    ``loss()`` is what it costs, for one unit of the table with at most ``rows`` rows, under the policy's adjacency; it
    is asked for before any data is read and charged in full. ``release(table)`` gets an Arrow table with ``columns``
    and returns what may leave: an Arrow table, a numpy array or anything that JSON can hold. ``key()`` names the
    computation with all its parameters: the same key again is answered from the record.

    The curator believes the loss, as it can't know what ``release`` does. What it enforces: at most ``rows`` rows
    of a unit are handed over (all rows where each row is a unit), in an order that says nothing, and the loss was
    charged before. So the sensitivity must be stated for ``rows`` rows of one unit, values must be clamped by the
    computation itself, and nothing else may leave it: no file, no log, no error message. It must not fail by its own
    noise either: what failed is run again at no cost, and each try would show fresh noise.

    Example:
        The number of rows above a limit, with Laplace noise for units of at most four rows:

        >>> from dither import DiscreteLaplace, Sensitivity
        >>> class RowsAbove:
        ...     table, columns, rows = "orders", ("amount",), 4
        ...     noise = DiscreteLaplace(8)
        ...     def loss(self):
        ...         return self.noise.loss(Sensitivity.l1(self.rows))
        ...     def key(self):
        ...         return "rows above 30, Laplace noise of scale 8"
        ...     def release(self, table):
        ...         amounts = table.column("amount").to_numpy()
        ...         return int(self.noise.release(int((amounts > 30).sum())))
        >>> isinstance(RowsAbove(), Computation), RowsAbove().loss().pure()
        (True, 0.5)
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


def expect_runnable(computation: Computation, loss: PrivacyLoss, schema: Schema) -> None:
    """Refused if a computation's loss is stated for another adjacency, or if it wants what the policy doesn't give."""
    if loss.adjacency is not schema.adjacency:
        raise Refused(
            f"the computation's loss is stated for {loss.adjacency.value} and this policy protects against "
            f"{schema.adjacency.value}",
            code="adjacency",
            hint="State its loss for the policy's adjacency, or convert it with dither.as_replace.",
        )
    table = schema.tables.get(computation.table)
    if table is None or not table.private:
        known = [name for name, facts in schema.tables.items() if facts.private]
        raise Refused(
            f"{computation.table!r} is not a private table of this policy",
            code="unknown_table",
            hint=f"{_meant([computation.table], known)}Private tables are: {', '.join(known)}.",
        )
    given = [name for name, facts in table.columns.items() if not facts.hidden]
    missing = [name for name in computation.columns if name not in given]
    if missing:
        raise Refused(
            f"the policy doesn't give out the columns {', '.join(missing)}",
            code="unknown_column",
            hint=f"{_meant(missing, given)}Use columns that the policy declares and doesn't hide.",
        )
    if not computation.columns:
        raise Refused("the computation names no columns", code="unknown_column", hint="Name at least one.")
    positive_int(computation.rows, "rows")


def _meant(names: Sequence[str], known: Sequence[str]) -> str:
    near = [near for name in names if (near := did_you_mean(name, known)) is not None]
    return f"Did you mean {', '.join(near)}? " if near else ""


class OlderThanData(UserWarning):
    """A recorded result was given, and the data has changed since it was made."""


def encode(result: Any, data: str | None = None) -> bytes:
    """A result as bytes, with a letter in front that says how to read it; before that, of which ``data`` it is."""
    if data is not None:
        return b"D" + len(data).to_bytes(1, "big") + data.encode() + encode(result)
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
        return b"J" + json.dumps(result, allow_nan=True, default=_plain).encode()
    except (TypeError, ValueError):
        raise InvalidParameter(
            "a computation must release an Arrow table, a numpy array or what JSON can hold (numbers, texts, lists)"
        ) from None


def _plain(value: object) -> object:
    if isinstance(value, np.generic) and value.ndim == 0:
        return value.item()
    raise TypeError(type(value).__name__)


def decode(stored: bytes) -> Any:
    """The inverse of ``encode``."""
    kind, body = stored[:1], stored[1:]
    if kind == b"D":
        return decode(body[1 + body[0] :])
    if kind == b"A":
        return pa.ipc.open_stream(body).read_all()
    if kind == b"N":
        return np.load(io.BytesIO(body), allow_pickle=False)
    return json.loads(body)


def given(stored: bytes, *, older: bool | None) -> Any:
    """A result from the record; a warning says if the data has changed, since it has no notes of its own."""
    if older:
        warnings.warn(f"a result from the record: {OLDER}", OlderThanData, stacklevel=5)
    return decode(stored)


def data_of(stored: bytes) -> str | None:
    """Of which data a result is; None if it was stored before that was kept."""
    return stored[2 : 2 + stored[1]].decode() if stored[:1] == b"D" else None
