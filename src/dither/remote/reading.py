"""Reads what a server of dither sends, into the classes that the curator has.

What a later server says beside the known fields is left out; what an older one doesn't say has its default.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.curator import (
    Account,
    Amount,
    Answer,
    AnswerPage,
    Balance,
    Bars,
    Cost,
    Currency,
    Limit,
    Past,
    PublicReceipt,
    Quote,
    QuotedColumn,
    Request,
    RequestKind,
    RequestState,
    Verified,
)
from dither.errors import InvalidParameter
from dither.privacy import Guarantee, Json, PrivacyLoss
from dither.query.arrow import TYPES
from dither.query.kinds import Kind

T = TypeVar("T")
# where in an Arrow stream's metadata all is that isn't in the table, and the version of that
METADATA = b"dither"
VERSION = 1


def read(kind: type[T], form: Json) -> T:
    """An object of a kind whose fields have the names of the form's."""
    return kind(**{field.name: form[field.name] for field in fields(kind) if field.name in form})  # type: ignore[arg-type]


def read_all(kind: type[T], form: Sequence[Json]) -> tuple[T, ...]:
    """A list of such objects."""
    return tuple(read(kind, one) for one in form)


def page(form: Json) -> AnswerPage:
    """Questions that were paid for."""
    return AnswerPage(items=read_all(Past, form["items"]), next=form["next"])


def request(form: Json) -> Request:
    """Something that was asked of the owner."""
    return read(Request, form | {"kind": RequestKind(form["kind"]), "state": RequestState(form["state"])})


def guarantee(form: Json) -> Guarantee:
    """A guarantee, exactly."""
    return Guarantee(form["exactly"]["epsilon"], form["exactly"]["delta"])


def verified(form: Json) -> Verified:
    """What a replay of the ledger found to hold."""
    currency = Currency(form["currency"])
    return read(Verified, form | {"balances": tuple(_balance(line, currency) for line in form["balances"])})


def _balance(form: Json, currency: Currency) -> Balance:
    limit = None if form["limit"] is None else Limit.from_json(form["limit"], currency)
    spent = Amount.from_json(form["amount"])
    exact = {
        "account": Account(tuple(form["path"])),
        "limit": limit,
        "spent": spent,
        "remaining": limit.after(spent) if limit else None,
    }
    return read(Balance, form | exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentQuote(Quote):
    """A quote as a client gets it: without the plan and the noise behind its price, which stay with the curator."""

    sent_schema: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the answer's columns, exactly; known before data is read."""
        return self.sent_schema


def quote(form: Json) -> Quote:
    """A quote, but for what stays with the curator."""
    kept = {
        "epsilon": float(form["epsilon"]),
        "delta": float(form["delta"]),
        "confidence": float(form["confidence"]),
        "columns": read_all(QuotedColumn, form["columns"]),
        "sent_schema": pa.schema([(column["name"], TYPES[Kind(column["type"])]) for column in form["schema"]]),
        "notes": tuple(form["notes"]),
        "priced": None,
        "shape": None,
    }
    return read(SentQuote, form | kept)


def _receipt(form: Json) -> PublicReceipt:
    exact = {"amount": Amount.from_json(form["amount"]), "loss": PrivacyLoss.from_json(form["loss"])}
    return read(PublicReceipt, form | exact)


def answer(data: bytes) -> Answer:
    """An answer that was sent as an Arrow stream."""
    with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
        table = stream.read_all()
    metadata = dict(table.schema.metadata or {})
    rest = json.loads(metadata.pop(METADATA, b"{}"))
    if rest.get("version") != VERSION:
        raise InvalidParameter(f"expected an answer of dither, version {VERSION}, as an Arrow stream")
    return Answer(
        table=table.replace_schema_metadata(metadata or None),
        bars={
            bars["name"]: Bars(low=_unpacked(bars["low"]), high=_unpacked(bars["high"]), text=bars["text"])
            for bars in rest["bars"]
        },
        confidence=rest["confidence"],
        receipt=None if rest["receipt"] is None else _receipt(rest["receipt"]),
        cost=Cost(**rest["cost"]),
        notes=tuple(rest["notes"]),
        older_than_data=rest.get("older_than_data"),  # a server of 0.1.0 doesn't tell
    )


def _unpacked(text: str | None) -> npt.NDArray[np.float64] | None:
    """Doubles from base64 of their little-endian bytes: JSON's numbers have neither NaN nor infinity."""
    return None if text is None else np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)
