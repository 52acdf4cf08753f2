"""What leaves the server: plain JSON forms of quotes, answers, budgets and records, and answers as CSV and Arrow.

The forms hold texts, finite numbers, truth values, lists and objects alone. A number that isn't finite becomes null, a
date or time its ISO 8601 text. Whole numbers stay whole, also those that a double can't hold. An answer as an Arrow
stream is exact: whatever isn't in the table travels in the schema's metadata, so that ``answer_from_arrow`` gives the
same answer back.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dither.curator import (
    Answer,
    AnswerPage,
    Bars,
    BudgetLine,
    Cost,
    Past,
    Policy,
    PublicReceipt,
    Quote,
    QuotedColumn,
    Record,
    Request,
    RequestKind,
    RequestState,
    Spending,
)
from dither.errors import InvalidParameter
from dither.ledger import Account, Amount, Balance, Currency, Limit, Verified
from dither.numeric import fraction_up
from dither.privacy import Guarantee, Json, PrivacyLoss
from dither.query.arrow import TYPES
from dither.query.kinds import Auto, Interval, Kind, Value
from dither.query.schema import ColumnFacts, TableFacts

METADATA = b"dither"
VERSION = 1
DAY_ZERO = dt.date(1970, 1, 1)
TIME_ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001  timestamps without a zone are read as UTC
_KIND_OF = {kind_type: kind.value for kind, kind_type in TYPES.items()}

# ---------------------------------------------------------------------- questions


def quote_form(quote: Quote) -> Json:
    """A price, with everything that is known about the answer before data is read."""
    return {
        "epsilon": finite(quote.epsilon),
        "delta": finite(quote.delta),
        "charge": quote.charge,
        "booked": quote.booked,
        "free": quote.free,
        "fits": quote.fits,
        "left": quote.left,
        "more": quote.more,
        "share": finite(quote.share),
        "needs_approval": quote.needs_approval,
        "groups": quote.groups,
        "unit": quote.unit,
        "columns": [
            {
                "name": column.name,
                "error": column.error,
                "half_width": finite(column.half_width),
                "mechanism": column.mechanism,
            }
            for column in quote.columns
        ],
        "schema": columns_form(quote.schema),
        "explains": quote.explains,
        "confidence": quote.confidence,
        "notes": list(quote.notes),
        "key": quote.key,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SentQuote(Quote):
    """A quote as a client gets it: without the plan and the noise behind its price, which stay with the curator."""

    sent_schema: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the answer's columns, exactly; known before data is read."""
        return self.sent_schema


def quote_from_form(form: Json) -> Quote:
    """The quote that ``quote_form`` wrote."""
    stays: Any = None
    return SentQuote(
        epsilon=float(form["epsilon"]),
        delta=float(form["delta"]),
        charge=form["charge"],
        booked=form["booked"],
        free=form["free"],
        fits=form["fits"],
        left=form["left"],
        more=form["more"],
        share=form["share"],
        needs_approval=form["needs_approval"],
        groups=form["groups"],
        unit=form["unit"],
        columns=tuple(QuotedColumn(**column) for column in form["columns"]),
        sent_schema=pa.schema([(column["name"], TYPES[Kind(column["type"])]) for column in form["schema"]]),
        explains=form["explains"],
        confidence=float(form["confidence"]),
        notes=tuple(form["notes"]),
        key=form["key"],
        priced=stays,
        shape=stays,
    )


def columns_form(schema: pa.Schema) -> list[Json]:
    """The columns of a table: their names and the kinds of their values."""
    return [{"name": field.name, "type": _KIND_OF.get(field.type, str(field.type))} for field in schema]


def answer_form(answer: Answer) -> Json:
    """An answer: rows in the order of its columns, and the interval of each noisy value."""
    return {"cost": cost_form(answer.cost), **lasting_form(answer)}


def lasting_form(answer: Answer) -> Json:
    """The part of an answer's form that is the same whenever the answer is given: all but what it costs now."""
    return {
        "columns": columns_form(answer.table.schema),
        "rows": [list(row) for row in zip(*map(_plain_column, answer.table.columns), strict=True)],
        "intervals": {name: _bars_form(bars) for name, bars in answer.bars.items()},
        "confidence": answer.confidence,
        "receipt": None if answer.receipt is None else _receipt_form(answer.receipt, _currency(answer.cost)),
        "notes": list(answer.notes),
        "older_than_data": answer.older_than_data,
    }


def cost_form(cost: Cost) -> Json:
    """What a question costs by itself, whether that was charged now, and what is left."""
    return {"epsilon": finite(cost.epsilon), "delta": finite(cost.delta), "charged": cost.charged, "left": cost.left}


def _receipt_form(receipt: PublicReceipt, currency: Currency) -> Json:
    return {
        "number": receipt.number,
        "at": receipt.at,
        "account": receipt.account,
        "amount": receipt.amount.to_json(),
        "amount_in_words": receipt.amount.in_words(currency),
        "loss": receipt.loss.to_json(),
    }


def _currency(cost: Cost) -> Currency:
    # where ρ is added up, every question has a δ at which it is read as ε; where ε is added up, none has
    return Currency.ZCDP if cost.delta else Currency.PURE


def _receipt_from_form(form: Json) -> PublicReceipt:
    return PublicReceipt(
        number=form["number"],
        at=form["at"],
        account=form["account"],
        amount=Amount.from_json(form["amount"]),
        loss=PrivacyLoss.from_json(form["loss"]),
    )


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


def finite(value: float | None) -> float | None:
    """The number, or None where it isn't finite."""
    return value if value is not None and math.isfinite(value) else None


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
        "cost": cost_form(answer.cost),
        "receipt": None if answer.receipt is None else _receipt_form(answer.receipt, _currency(answer.cost)),
        "notes": list(answer.notes),
        "older_than_data": answer.older_than_data,
    }
    metadata = {**(answer.table.schema.metadata or {}), METADATA: json.dumps(rest).encode()}
    table = answer.table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def answer_from_arrow(data: bytes) -> Answer:
    """The answer that ``answer_to_arrow`` wrote."""
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
        receipt=None if rest["receipt"] is None else _receipt_from_form(rest["receipt"]),
        cost=Cost(**rest["cost"]),
        notes=tuple(rest["notes"]),
        older_than_data=rest.get("older_than_data"),  # a server of 0.1.0 doesn't tell
    )


def _packed(ends: npt.NDArray[np.float64] | None) -> str | None:
    """Doubles as base64 of their little-endian bytes: JSON's numbers have neither NaN nor infinity."""
    return None if ends is None else base64.b64encode(np.ascontiguousarray(ends, "<f8").tobytes()).decode("ascii")


def _unpacked(text: str | None) -> npt.NDArray[np.float64] | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)


# ---------------------------------------------------------------------- budgets and records


def budget_form(lines: Sequence[BudgetLine]) -> list[Json]:
    """Accounts as people read them."""
    return [
        {
            "account": line.account,
            "epsilon_spent": finite(line.epsilon_spent),
            "epsilon_budget": finite(line.epsilon_budget),
            "share": finite(line.share),
            "delta": line.delta,
            "exactly": line.exactly,
            "in_words": str(line),
        }
        for line in lines
    ]


def budget_from_form(form: Sequence[Json]) -> tuple[BudgetLine, ...]:
    """The lines that ``budget_form`` wrote."""
    return tuple(BudgetLine(**{name: value for name, value in line.items() if name != "in_words"}) for line in form)


def history_form(history: Sequence[Spending]) -> list[Json]:
    """How accounts were spent, in order."""
    return [
        {
            "at": point.at,
            "account": point.account,
            "epsilon_spent": finite(point.epsilon_spent),
            "share": finite(point.share),
        }
        for point in history
    ]


def history_from_form(form: Sequence[Json]) -> tuple[Spending, ...]:
    """The points that ``history_form`` wrote."""
    return tuple(Spending(**point) for point in form)


def guarantee_form(guarantee: Guarantee) -> Json:
    """A promise (ε, δ), rounded up for people and exactly, and what it means."""
    return {
        "epsilon": fraction_up(guarantee.epsilon),
        "delta": fraction_up(guarantee.delta),
        "exactly": {"epsilon": str(guarantee.epsilon), "delta": str(guarantee.delta)},
        "in_words": guarantee.sentence(),
    }


def guarantee_from_form(form: Json) -> Guarantee:
    """The guarantee that ``guarantee_form`` wrote."""
    return Guarantee(form["exactly"]["epsilon"], form["exactly"]["delta"])


def past_form(past: Past) -> Json:
    """A question that was paid for, as it is listed."""
    return {
        "number": past.number,
        "at": past.at,
        "who": past.who,
        "sql": past.sql,
        "epsilon": past.epsilon,
        "cost": past.cost,
        "mine": past.mine,
        "answered": past.answered,
    }


def page_form(page: AnswerPage) -> Json:
    """A page of what was paid for; ``next`` is the ``before`` of the next page."""
    return {"items": [past_form(past) for past in page.items], "next": page.next}


def page_from_form(form: Json) -> AnswerPage:
    """The page that ``page_form`` wrote."""
    return AnswerPage(items=tuple(Past(**item) for item in form["items"]), next=form["next"])


def request_form(request: Request) -> Json:
    """Something that waits, or waited, for the owner's decision."""
    return {
        "number": request.number,
        "at": request.at,
        "analyst": request.analyst,
        "kind": request.kind.value,
        "sql": request.sql,
        "asked": dict(request.asked),
        "epsilon": request.epsilon,
        "why": request.why,
        "state": request.state.value,
        "answer_why": request.answer_why,
    }


def request_from_form(form: Json) -> Request:
    """The request that ``request_form`` wrote."""
    return Request(**form | {"kind": RequestKind(form["kind"]), "state": RequestState(form["state"])})


def record_form(record: Record) -> Json:
    """One entry of the ledger, for the owner."""
    return {
        "number": record.number,
        "at": record.at,
        "what": record.what,
        "receipt": record.receipt,
        "who": record.who,
        "cost": record.cost,
        "question": record.question,
    }


def verified_form(found: Verified, currency: Currency) -> Json:
    """What a replay of the whole ledger found to hold, for the owner."""
    return {
        "entries": found.entries,
        "head": found.head,
        "adopted": found.adopted,
        "rebound": found.rebound,
        "format": found.format,
        "currency": currency.value,
        "balances": [
            {
                "account": str(balance.account),
                "path": list(balance.account.path),
                "spent": balance.spent.in_words(currency),
                "amount": balance.spent.to_json(),
                "limit": None if balance.limit is None else balance.limit.to_json(),
                "restated": balance.restated,
                "first_delta": balance.first_delta,
                "counts": dict(balance.counts),
            }
            for balance in found.balances
        ],
    }


def verified_from_form(form: Json) -> Verified:
    """What ``verified_form`` wrote."""
    balances = tuple(_balance(line, Currency(form["currency"])) for line in form["balances"])
    # a server of 0.1.0 doesn't tell all of it
    more = {name: form[name] for name in ("rebound", "format") if name in form}
    return Verified(entries=form["entries"], balances=balances, head=form["head"], adopted=form["adopted"], **more)


def _balance(form: Json, currency: Currency) -> Balance:
    limit = None if form["limit"] is None else Limit.from_json(form["limit"], currency)
    account, spent = Account(tuple(form["path"])), Amount.from_json(form["amount"])
    return Balance(
        account=account,
        limit=limit,
        spent=spent,
        remaining=limit.after(spent) if limit else None,
        restated=form.get("restated", 0),
        first_delta=form.get("first_delta"),
        counts=form.get("counts", {}),
    )


# ---------------------------------------------------------------------- public facts


def schema_form(policy: Policy) -> Json:
    """The public facts: which tables and columns there are, who is protected, and what is declared about values."""
    return {
        "dataset": policy.source.name,
        "protects": policy.unit_statement(),
        "adjacency": policy.schema.adjacency.value,
        "tables": [_table_form(table) for table in policy.schema.tables.values()],
    }


def _table_form(table: TableFacts) -> Json:
    return {
        "name": table.name,
        "private": table.private,
        "unit_column": table.unit_column,
        "max_groups_contributed": table.groups if table.private else None,
        "max_rows_contributed": table.rows if table.private else None,
        "unique": [sorted(columns) for columns in table.unique],
        "columns": [_column_form(column) for column in table.columns.values()],
    }


def _column_form(column: ColumnFacts) -> Json:
    between: Any = None
    if isinstance(column.between, Interval):
        between = [_bound_form(column.between.low, column.kind), _bound_form(column.between.high, column.kind)]
    elif isinstance(column.between, Auto):
        between = column.between.value
    return {
        "name": column.name,
        "type": column.kind.value,
        "between": between,
        "step": None if column.step is None else _value_form(column.step),
        "keys": None if column.keys is None else [_value_form(key) for key in column.keys],
        "hidden": column.hidden,
    }


def _bound_form(bound: Fraction, kind: Kind) -> int | float | str:
    """Bounds of dates count days, and those of timestamps microseconds, since the beginning of 1970."""
    if kind is Kind.DATE:
        return (DAY_ZERO + dt.timedelta(days=int(bound))).isoformat()
    if kind is Kind.TIMESTAMP:
        return (TIME_ZERO + dt.timedelta(microseconds=int(bound))).isoformat()
    return int(bound) if bound.denominator == 1 else float(bound)


def _value_form(value: Value) -> bool | int | float | str | None:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    return finite(value) if isinstance(value, float) else value
