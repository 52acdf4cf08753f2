"""Answers as they leave the server: as JSON, CSV and Arrow.

JSON holds texts, finite numbers, truth values, lists and objects alone. A number that isn't finite becomes null, a date
or time its ISO 8601 text. Whole numbers stay whole, also those that a double can't hold. An answer as an Arrow stream
is exact: whatever isn't in the table travels in the schema's metadata, so that ``dither.remote`` reads the same answer.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dither.curator import Answer, Bars
from dither.privacy import Json
from dither.remote.reading import METADATA, VERSION
from dither.server.wire.forms import CostForm, columns_form, finite


def answer_form(answer: Answer) -> Json:
    """An answer: rows in the order of its columns, and the interval of each noisy value."""
    return {"cost": CostForm.of(answer.cost), **lasting_form(answer)}


def lasting_form(answer: Answer) -> Json:
    """The part of an answer's form that is the same whenever the answer is given: all but what it costs now."""
    return {
        "columns": columns_form(answer.table.schema),
        "rows": [list(row) for row in zip(*map(_plain_column, answer.table.columns), strict=True)],
        "intervals": {name: _bars_form(bars) for name, bars in answer.bars.items()},
        "confidence": answer.confidence,
        "receipt": _receipt_form(answer),
        "notes": list(answer.notes),
        "older_than_data": answer.older_than_data,
    }


def _receipt_form(answer: Answer) -> Json | None:
    receipt = answer.receipt
    if receipt is None:
        return None
    return {
        "number": receipt.number,
        "at": receipt.at,
        "account": receipt.account,
        "amount": receipt.amount.to_json(),
        "amount_in_words": receipt.amount_in_words,
        "loss": receipt.loss.to_json(),
    }


def _bars_form(bars: Bars) -> Json:
    return {
        "low": None if bars.low is None else [finite(end) for end in bars.low.tolist()],
        "high": None if bars.high is None else [finite(end) for end in bars.high.tolist()],
        "text": bars.text,
    }


def _plain_column(column: pa.ChunkedArray[Any]) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [finite(value) for value in values]
    if pa.types.is_temporal(column.type):
        return [None if value is None else value.isoformat() for value in values]
    return values


# ---------------------------------------------------------------------- answers as CSV and Arrow


def answer_to_csv(answer: Answer) -> bytes:
    """The table with a header; a noisy column ``n`` has its interval in ``n_low`` and ``n_high`` beside it.

    A value that is missing, or isn't finite, is empty; an empty text is ``""``.
    """
    taken = set(answer.table.column_names)
    columns: list[tuple[str, Any]] = []
    for name, column in zip(answer.table.column_names, answer.table.columns, strict=True):
        columns.append((name, _finite_or_null(column)))
        bars = answer.bars.get(name)
        if bars is not None and bars.low is not None and bars.high is not None:
            for end, values in (("low", bars.low), ("high", bars.high)):
                columns.append((_free_name(f"{name}_{end}", taken), _finite_or_null(pa.array(values))))
    table = pa.Table.from_arrays([column for _, column in columns], names=[name for name, _ in columns])
    written = io.BytesIO()
    pa_csv.write_csv(table, written)
    return written.getvalue()


def _free_name(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def _finite_or_null(column: Any) -> Any:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def answer_to_arrow(answer: Answer) -> bytes:
    """The answer as an Arrow IPC stream: its table, and all the rest as JSON in the schema's metadata."""
    rest = {
        "version": VERSION,
        "bars": [
            {"name": name, "low": _packed(bars.low), "high": _packed(bars.high), "text": bars.text}
            for name, bars in answer.bars.items()
        ],
        "confidence": answer.confidence,
        "cost": CostForm.of(answer.cost),
        "receipt": _receipt_form(answer),
        "notes": list(answer.notes),
        "older_than_data": answer.older_than_data,
    }
    metadata = {**(answer.table.schema.metadata or {}), METADATA: json.dumps(rest).encode()}
    table = answer.table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _packed(ends: npt.NDArray[np.float64] | None) -> str | None:
    """Doubles as base64 of their little-endian bytes: JSON's numbers have neither NaN nor infinity."""
    return None if ends is None else base64.b64encode(np.ascontiguousarray(ends, "<f8").tobytes()).decode("ascii")
