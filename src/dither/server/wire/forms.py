"""The forms of responses: what the OpenAPI document states, and what writes those that copy an object's fields.

``RecordForm.of(record)`` takes the fields of the form from the object. Answers, and what ``facts`` writes, are put
together by hand, and aren't validated when they are sent. The tests do that, on the document.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dither.privacy import Json
from dither.query.arrow import TYPES

ColumnType: TypeAlias = Literal["boolean", "integer", "double", "text", "date", "timestamp"]
Cell: TypeAlias = bool | int | float | str | None
_KIND_OF = {kind_type: kind.value for kind, kind_type in TYPES.items()}


def finite(value: float | None) -> float | None:
    """The number, or None where it isn't finite."""
    return value if value is not None and math.isfinite(value) else None


def columns_form(schema: pa.Schema) -> list[Json]:
    """The columns of a table: their names and the kinds of their values."""
    return [{"name": field.name, "type": _KIND_OF.get(field.type, str(field.type))} for field in schema]


def _word(value: object) -> object:
    """That of an enumeration, which older versions of pydantic don't take for the text that it is."""
    return value.value if isinstance(value, Enum) else value


Finite: TypeAlias = Annotated[float | None, BeforeValidator(finite)]
Word = BeforeValidator(_word)


class Form(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)

    @classmethod
    def of(cls, found: object) -> Json:
        """The JSON form of an object with these attributes."""
        return cls.model_validate(found).model_dump(by_alias=True)


class Place(Form):
    """A place in the question; both numbers begin at 1."""

    line: int = Field(ge=1)
    column: int = Field(ge=1)


class ProblemForm(Form):
    """A problem (RFC 9457). ``code`` is the permanent short name of the reason, ``hint`` says what to do."""

    type: str
    title: str
    status: int
    code: str
    hint: str = ""
    position: Place | None = None
    receipt: str | None = Field(default=None, description="the number of a charge that was made")


class Named(Form):
    """A column of an answer."""

    name: str
    type: ColumnType


class QuotedColumnForm(Form):
    """The error that a column would have; exact columns have no mechanism."""

    name: str
    error: str
    half_width: Finite
    mechanism: str


class QuoteForm(Form):
    """What a question would cost; computed from public facts alone."""

    epsilon: Finite
    delta: Finite
    charge: str
    booked: str
    free: bool = Field(description="already paid for: asking costs nothing")
    fits: bool
    left: str
    more: int | None = Field(description="how many questions of this price fit, this one included; null without a cap")
    share: Finite = Field(description="the share of the account's budget that it would take")
    needs_approval: bool = Field(description="the owner has to approve it before it can be asked")
    groups: str
    unit: str
    columns: list[QuotedColumnForm]
    schema_: Annotated[list[Named], BeforeValidator(columns_form)] = Field(
        alias="schema", description="names and types of the answer's columns"
    )
    explains: bool = Field(description="the question is EXPLAIN PRIVACY: its answer is the quote itself, free")
    confidence: float
    notes: list[str]
    key: str


class CostForm(Form):
    """The cost of a question by itself, and whether that was charged now."""

    epsilon: Finite
    delta: Finite
    charged: bool
    left: str


class AmountForm(Form):
    """What was charged: ``main`` counts 1e-12 of ε or ρ, ``delta`` 1e-18 of δ."""

    main: int
    delta: int


class ReceiptForm(Form):
    """The proof of a charge."""

    number: str
    at: str
    account: str
    amount: AmountForm
    amount_in_words: str
    loss: dict[str, Any]


class IntervalsForm(Form):
    """The interval of each value of a column, in the order of the rows; ``text`` says the error in words."""

    low: list[float | None] | None
    high: list[float | None] | None
    text: str


class AnswerForm(Form):
    """An answer: rows in the order of its columns, intervals at ``confidence``, the receipt.

    ``older_than_data``: whether the data has changed since it was answered; null where that isn't known.
    """

    columns: list[Named]
    rows: list[list[Cell]]
    intervals: dict[str, IntervalsForm]
    confidence: float
    cost: CostForm
    receipt: ReceiptForm | None
    notes: list[str]
    older_than_data: bool | None


class BudgetLineForm(Form):
    """An account: spending as ε at its δ, and the share of its cap that is used up."""

    account: str
    epsilon_spent: float | None
    epsilon_budget: float | None
    share: float | None
    delta: float
    exactly: str
    in_words: str


class SpendingForm(Form):
    """What an account had spent at a time."""

    at: str
    account: str
    epsilon_spent: Finite
    share: Finite


class ExactGuaranteeForm(Form):
    """ε and δ as quotients."""

    epsilon: str
    delta: str


class GuaranteeForm(Form):
    """What answers can tell about one person: ε and δ, rounded up and exactly, and in words."""

    epsilon: float
    delta: float
    exactly: ExactGuaranteeForm
    in_words: str


class PastForm(Form):
    """A question that was paid for."""

    number: str
    at: str
    who: str
    sql: str
    epsilon: str
    cost: str
    mine: bool
    answered: bool


class AnswerPageForm(Form):
    """Past questions, newest first; ``next`` is the ``before`` of the next page."""

    items: list[PastForm]
    next: str | None


class ColumnForm(Form):
    """What is public about a column."""

    name: str
    type: ColumnType
    between: list[int | float | str] | Literal["auto"] | None
    step: int | float | None
    keys: list[Cell] | None
    hidden: bool


class TableForm(Form):
    """What is public about a table."""

    name: str
    private: bool
    unit_column: str | None
    max_groups_contributed: int | Literal["auto"] | None
    max_rows_contributed: int | Literal["auto"] | None
    rows_per_unit_at_most: int | None
    unique: list[list[str]]
    columns: list[ColumnForm]


class BinForm(Form):
    """So many units have this many rows: from, to; above, where there is no end."""

    rows_from: int
    rows_to: int | None
    units: int


class ProfileForm(Form):
    """A profile of this version of the data that was paid for: noisy numbers, each within ``error`` at 95%."""

    question: str
    epsilon: str
    at: str
    units: list[BinForm]
    error: float


class SchemaForm(Form):
    """The public facts."""

    dataset: str
    protects: str
    adjacency: str
    tables: list[TableForm]
    profiles: list[ProfileForm]


class RecordForm(Form):
    """One entry of the ledger."""

    number: int
    at: str
    what: str
    receipt: str
    who: str
    cost: str
    question: str


class BalanceForm(Form):
    """What an account has spent in all: in words, and exactly, as its limit is stated in the ledger."""

    account: str
    path: list[str]
    spent: str
    amount: AmountForm
    limit: AmountForm | None = Field(description="null for an account without a limit of its own")
    restated: int = Field(description="how often its limit was changed after something had been spent")
    first_delta: int | None = Field(
        description="in 1e-18, half of the δ at which what it spent is read; null for nothing"
    )
    counts: dict[str, int]


class VerifiedForm(Form):
    """What a replay of the whole ledger found to hold."""

    entries: int
    head: str
    adopted: int
    rebound: int = Field(description="how often the owner said that another unit names the same people")
    format: int
    currency: Literal["pure", "zcdp"] = Field(description="what the ledger adds up: ε, or ρ with δ apart")
    balances: list[BalanceForm]


class RequestForm(Form):
    """Something that waits, or waited, for the owner's decision."""

    number: str
    at: str
    analyst: str
    kind: Annotated[Literal["question", "budget"], Word]
    sql: str
    asked: dict[str, Any]
    epsilon: str
    why: str
    state: Annotated[Literal["waiting", "approved", "refused"], Word]
    answer_why: str


class WhoForm(Form):
    """Whose token this is, and what it allows."""

    analyst: str
    scope: Literal["price", "ask", "owner"]


class HealthForm(Form):
    """The server is up."""

    status: Literal["ok"]
