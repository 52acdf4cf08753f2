"""What the curator hands out: answers with error bars and receipts, accounts, what was asked, entries, requests.

Data alone: a client at a distance loads these classes, and nothing of how a curator comes by them.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dither.brief import brief
from dither.drawings.panels import ChartKind, Drawing
from dither.drawings.texts import ValueText, column_texts
from dither.ledger import (
    Account as Account,
    Amount as Amount,
    Balance as Balance,
    Currency as Currency,
    Limit as Limit,
    Receipt,
    Verified as Verified,
)
from dither.numeric.rounding import percent
from dither.privacy import PrivacyLoss

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

# what an answer from the record says where the data isn't what it was
ROUNDED_INWARDS = (
    "dither 0.1.0 answered this, and rounded the stated bounds inwards to the step of the values: sums of large values "
    "are too small here. Ask the question again, which is charged, for one with these bounds"
)
OLDER = "the data has changed since this was answered: it is the answer of then, which was paid for"
LONGEST_HTML = 200
LONGEST_TEXT = 50
# see-through, so that text stays readable on light and dark pages
SURE, UNSURE = "rgba(49,130,189,0.45)", "rgba(49,130,189,0.2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The interval of each value of a column; ``text`` says the error in words where it isn't an interval of values."""

    low: npt.NDArray[np.float64] | None
    high: npt.NDArray[np.float64] | None
    text: str

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a question cost: its ε and δ by itself, and what was charged now (nothing, for one asked before)."""

    epsilon: float
    delta: float
    charged: bool
    left: str

    def __str__(self) -> str:
        price = f"ε = {self.epsilon:.4g}" + (f", δ = {self.delta:.2g}" if self.delta else "")
        if not self.charged and not self.epsilon:
            return "nothing"
        return price if self.charged else f"nothing (asked before; it had cost {price})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicReceipt:
    """The proof of a charge as an analyst may hold it; the owner finds the rest in the ledger under its number.

    The entry's place and hash would tell how much others have asked, so they stay there.
    """

    number: str
    at: str
    account: str
    amount: Amount
    amount_in_words: str
    loss: PrivacyLoss

    @classmethod
    def of(cls, receipt: Receipt, currency: Currency) -> PublicReceipt:
        """What an analyst gets of the receipt of a ledger that is kept in this currency."""
        return cls(
            number=receipt.number,
            at=receipt.at,
            account=str(receipt.account),
            amount=receipt.amount,
            amount_in_words=receipt.amount.in_words(currency),
            loss=receipt.loss,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A released table: safe to show, keep and compute with; nothing done with it costs any more.

    ``table`` is an Arrow table, ``bars`` has the intervals of its noisy columns at ``confidence``, ``receipt`` is the
    proof of the charge, ``notes`` say what the intervals don't: bounds that were found, and what bounding leaves out.
    ``older_than_data`` says that the data has changed since it was answered, which happens where the owner keeps the
    data's version, or where an old receipt is looked up; None where that isn't known.
    Anything that reads Arrow takes an answer as it is: ``pl.DataFrame(answer)``.
    """

    table: pa.Table
    bars: Mapping[str, Bars]
    confidence: float
    receipt: PublicReceipt | None
    cost: Cost
    notes: tuple[str, ...] = ()
    older_than_data: bool | None = None

    __repr__ = brief

    @property
    def error(self) -> dict[str, npt.NDArray[np.float64]]:
        """How far off each value may be, for the columns that have intervals: the distance to the end further away.

        Half of the interval's width where the value is in its middle, as for counts and sums.
        """
        import pyarrow as pa  # here: what only reads the ledger needn't wait for it

        halves = {}
        for name, bars in self.bars.items():
            if bars.low is not None and bars.high is not None:
                value = self.table.column(name).cast(pa.float64(), safe=False).to_numpy()
                halves[name] = np.maximum(value - bars.low, bars.high - value)
        return halves

    def interval(self, column: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(low, high) of each value of a column, at the answer's confidence.

        Args:
            column: The name of a column that has intervals.
        """
        bars = self.bars.get(column)
        if bars is None or bars.low is None or bars.high is None:
            known = ", ".join(self.error) or "none"
            raise KeyError(f"no interval for {column!r}; columns that have one: {known}")
        return bars.low, bars.high

    def to_arrow(self) -> pa.Table:
        """The released table."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """The released table as a pandas frame."""
        return self.table.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The released table as a polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """The released table as a list of rows."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def scalar(self) -> Any:
        """The only value of an answer with one row and one column."""
        if self.table.num_rows != 1 or self.table.num_columns != 1:
            raise ValueError(f"the answer has {self.table.num_rows} rows and {self.table.num_columns} columns, not one")
        return self.table.column(0)[0].as_py()

    def chart(self, kind: ChartKind | None = None, *, width: int = 680) -> Drawing:
        """The noisy columns with their intervals, drawn; the kind is chosen by the keys unless it is given.

        A line needs keys with places, such as times and numbers: others get dots.

        Args:
            kind: Which one, where it isn't left to the keys.
            width: In pixels.
        """
        from dither.drawings.charts import draw

        return draw(self.table, self.bars, confidence=self.confidence, kind=kind, width=width)

    def texts(self, column: str, most: int | None = None) -> list[ValueText]:
        """The first values of a column as people read them, in the digits that the noise leaves.

        Args:
            column: The name of a column.
            most: How many values; all by default.
        """
        return column_texts(self.table.column(column), self.bars.get(column), most)

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: object = self.table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __str__(self) -> str:
        names = self.table.column_names
        columns = [[str(text) for text in self.texts(name, LONGEST_TEXT)] for name in names]
        rows = list(zip(*columns, strict=True))
        widths = [max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(names)]
        lines = ["  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))]
        lines += ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        if self.table.num_rows > len(rows):
            lines.append(f"… {self.table.num_rows - len(rows)} more rows")
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *notes, f"cost: {self.cost}; {self.cost.left}"])

    def _repr_html_(self) -> str:
        """A table whose noisy columns are bars, with the interval as a lighter end; for notebooks."""
        shown = self.table.slice(0, LONGEST_HTML)
        names = shown.column_names
        head = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in names)
        scales = {name: _scale(shown.column(name), self.bars[name]) for name in names if name in self.bars}
        columns = [self.texts(name, LONGEST_HTML) for name in names]
        body = []
        for index, row in enumerate(zip(*columns, strict=True)):
            cells = []
            for name, one in zip(names, row, strict=True):
                text = html.escape(one.value)
                bars = self.bars.get(name)
                if one.half and bars is not None and bars.low is not None and bars.high is not None:
                    low, high = float(bars.low[index]), float(bars.high[index])
                    text = _html_bar(text, low, high, scales[name]) + f" <small>± {html.escape(one.half)}</small>"
                cells.append(f"<td style='text-align:left'>{text}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        more = shown.num_rows < self.table.num_rows
        rest = f"<p>… {self.table.num_rows - shown.num_rows} more rows</p>" if more else ""
        receipt = f" · receipt {html.escape(self.receipt.number)}" if self.receipt else ""
        foot = f"{100 * self.confidence:g}% intervals · cost: {html.escape(str(self.cost))} · "
        foot += html.escape(self.cost.left) + receipt
        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"<div>{table}{rest}<small>{foot}{notes}</small></div>"


def _scale(column: pa.ChunkedArray[Any], bars: Bars) -> float:
    """What a full bar stands for."""
    ends = [abs(float(value)) for value in column.to_pylist() if isinstance(value, int | float)]
    if bars.high is not None and bars.high.size:
        finite = bars.high[np.isfinite(bars.high)]
        ends += [float(np.abs(finite).max())] if finite.size else []
    return max(ends, default=1.0) or 1.0


def _html_bar(text: str, low: float, high: float, full: float) -> str:
    sure = max(0.0, min(100.0, 100 * low / full))
    end = max(sure, min(100.0, 100 * high / full))
    if sure != sure or end != end:
        return text
    stops = f"{SURE} {sure:.1f}%,{UNSURE} {sure:.1f}%,{UNSURE} {end:.1f}%,transparent {end:.1f}%"
    paint = f"linear-gradient(90deg,{stops})"
    return f"<span style='display:inline-block;min-width:12em;background:{paint}'>{text}</span>"


# --------------------------------------------------------------------------------------- accounts, the past, requests


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """An account as people read it: what was spent so far as ε at ``delta``, and the share of its cap that is used up.

    ``epsilon_spent`` may be read at any moment. In zCDP the two differ: half of ρ is more than half of ε. ``share`` is
    what decides how much more can be asked; an account without a cap of its own has none. ``told`` marks the account
    whose balance this user sees beside prices; it isn't compared.
    """

    account: str
    epsilon_spent: float
    epsilon_budget: float | None
    share: float | None
    delta: float
    exactly: str
    told: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        text = f"ε = {self.epsilon_spent:.4g} spent"
        if self.epsilon_budget is None or self.share is None:
            return f"{text} (not capped by a budget of its own)"
        return f"{text} of {self.epsilon_budget:g} ({percent(1 - self.share)} of the budget is left)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A question that was paid for: its receipt number, when, by whom, its text and its cost.

    ``mine`` says that this user's account paid for it; ``answered`` that its answer is on record. One that
    isn't answered, because something failed, is run by asking for it again, at no cost. ``epsilon`` is rounded for
    people; ``asked`` has exactly the ε or the error, the weights and the confidence, with which the same question is
    free. It is empty in what came from elsewhere than this ledger's own list, and isn't compared.
    """

    number: str
    at: str
    who: str
    sql: str
    epsilon: str
    cost: str
    mine: bool
    answered: bool
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPage:
    """Some of the questions that were paid for, newest first; ``next`` is where the page after this begins, if any."""

    items: tuple[Past, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What an account had spent in all by a moment, as ε and as the share of its cap as it is now (None without)."""

    at: str
    account: str
    epsilon_spent: float
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry of the ledger in words.

    ``question`` is what was asked, why it failed, or which limits were stated. ``epsilon`` is the price as the analyst
    saw it, and isn't compared: over HTTP it isn't sent.
    """

    number: int
    at: str
    what: str
    receipt: str
    who: str
    cost: str
    question: str
    epsilon: str = field(default="", compare=False)


class RequestKind(StrEnum):
    """What is asked for."""

    QUESTION = "question"
    BUDGET = "budget"


class RequestState(StrEnum):
    """What became of it."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that an analyst asks of the owner.

    ``epsilon`` is what the question would cost, rounded for people, or by how much the budget is to be raised; ``sql``
    is empty for a budget. ``asked`` says exactly for which ε or error the question would be asked: an approval is for
    that. ``answer_why`` is what the owner says to the decision.
    """

    number: str
    at: str
    analyst: str
    kind: RequestKind
    sql: str
    asked: Mapping[str, Any]
    epsilon: str
    why: str
    state: RequestState
    answer_why: str
