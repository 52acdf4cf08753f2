"""A quote: what a question would cost and how accurate it would be, before anything is spent or read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dither.brief import brief
from dither.curator.results import Answer, Cost

if TYPE_CHECKING:
    from dither.query.aggregates.base import Prediction
    from dither.query.plan.plan import Shape
    from dither.query.price.noise import Priced


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedColumn:
    """A column of the answer and the error it would have; keys have none.

    ``error`` says for people what ``predicted`` is, which a client at a distance isn't sent.
    """

    name: str
    error: str
    half_width: float | None
    mechanism: str
    predicted: Prediction | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Cost, error of every column and what is left afterwards. Computed from public facts alone; free.

    ``epsilon`` and ``delta`` are those of the question by itself; ``charge`` is what the ledger would add now, as a
    text in its currency, and ``booked`` says it in words; ``free`` says that this analyst has already paid for the same
    question. ``fits`` and ``left`` speak of the analyst's own account (of the dataset's too for the owner), so a
    question that fits may still be more than the dataset's budget has left. ``key`` is the question's name in the
    ledger: under a secret of that ledger, so that nothing can be guessed from it.

    ``more`` is how many questions of this price, this one included, fit in what is left of the account that the analyst
    may know, and ``share`` which share of its budget this question would take (0 if it is free); None without a cap.
    ``needs_approval`` says that the owner has to approve it before it can be asked.
    """

    epsilon: float
    delta: float
    charge: str
    booked: str
    free: bool
    fits: bool
    left: str
    groups: str
    unit: str
    columns: tuple[QuotedColumn, ...]
    confidence: float
    notes: tuple[str, ...]
    key: str
    priced: Priced
    shape: Shape
    explains: bool
    more: int | None
    share: float | None
    needs_approval: bool

    __repr__ = brief

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the answer's columns, exactly; known before data is read."""
        # a client at a distance has quotes without these, and nothing of what prices questions is loaded there
        from dither.curator.answers.post_processing import schema_of

        return self.to_arrow().schema if self.explains else schema_of(self.priced, self.shape)

    @property
    def error(self) -> dict[str, float | None]:
        """The half width of each noisy column's interval, where it is known before the data is read."""
        return {column.name: column.half_width for column in self.columns if column.mechanism}

    def to_arrow(self) -> pa.Table:
        """The quote as a table: one row for each column of the answer; what EXPLAIN PRIVACY shows."""
        return pa.table(
            {
                "column": [column.name for column in self.columns],
                "error": [column.error for column in self.columns],
                "mechanism": [column.mechanism for column in self.columns],
                "epsilon": pa.array([self.epsilon] * len(self.columns), pa.float64()),
                "delta": pa.array([self.delta] * len(self.columns), pa.float64()),
                "charge": [self.charge] * len(self.columns),
            }
        )

    def __str__(self) -> str:
        price = f"ε = {self.epsilon:.4g}" + (f", δ = {self.delta:.2g}" if self.delta else "")
        lines = [f"cost      {price}" + (" (already paid for: free)" if self.free else f" ({self.booked})")]
        if self.free and not self.epsilon:
            lines = ["cost      nothing"]
        lines += [f"protects  {self.unit}", f"groups    {self.groups}", f"left      {self.left}"]
        width = max((len(column.name) for column in self.columns), default=0)
        for column in self.columns:
            detail = f"{column.error}   [{column.mechanism}]" if column.mechanism else "exact"
            lines.append(f"  {column.name.ljust(width)}  {detail}")
        lines += [f"note      {note}" for note in self.notes]
        if not self.fits:
            lines.append("refused   this doesn't fit in the budget any more: ask with a smaller ε")
        return "\n".join(lines)


def explained(quote: Quote) -> Answer:
    """A quote as the answer to EXPLAIN PRIVACY: no data, no charge. Its table has no place for the groups."""
    return Answer(
        table=quote.to_arrow(),
        bars={},
        confidence=quote.confidence,
        receipt=None,
        cost=Cost(epsilon=0.0, delta=0.0, charged=True, left=quote.left),
        notes=(f"groups: {quote.groups}", *quote.notes),
    )
