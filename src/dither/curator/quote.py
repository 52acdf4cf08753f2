"""A quote: what a question would cost and how accurate it would be, before anything is spent or read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from dither.query.price import Priced


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedColumn:
    """A column of the answer and the error it would have; keys have none."""

    name: str
    error: str
    half_width: float | None
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Cost, error of every column and what is left afterwards. Computed from public facts alone; free.

    ``epsilon`` and ``delta`` are those of the question by itself; ``charge`` is what the ledger would add now, as a
    text in its currency, and ``booked`` says it in words; ``free`` says that this analyst has already paid for the same
    question. ``fits`` and ``left`` speak of the analyst's own account (of the dataset's too for the owner), so a
    question that fits may still be more than the dataset's budget has left. ``key`` is the question's name in the
    ledger: under a secret of that ledger, so that nothing can be guessed from it.
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
        lines += [f"protects  {self.unit}", f"groups    {self.groups}", f"left      {self.left}"]
        width = max((len(column.name) for column in self.columns), default=0)
        for column in self.columns:
            detail = f"{column.error}   [{column.mechanism}]" if column.mechanism else "exact"
            lines.append(f"  {column.name.ljust(width)}  {detail}")
        lines += [f"note      {note}" for note in self.notes]
        if not self.fits:
            lines.append("refused   this doesn't fit in the budget any more: ask with a smaller ε")
        return "\n".join(lines)
