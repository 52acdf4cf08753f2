"""What an analyst holds: an answer with its error bars and receipt."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.brief import brief
from dither.ledger import Amount, Receipt
from dither.privacy import PrivacyLoss

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ChartKind: TypeAlias = Literal["bar", "line", "dot"]

# what an answer from the record says where the data isn't what it was
ROUNDED_INWARDS = (
    "dither 0.1.0 answered this, and rounded the stated bounds inwards to the step of the values: sums of large values "
    "are too small here. Ask the question again, which is charged, for one with these bounds"
)
OLDER = "the data has changed since this was answered: it is the answer of then, which was paid for"
LONGEST_HTML = 200
LONGEST_TEXT = 50
# Beyond this many decimals a power of ten is read more easily.
MOST_DECIMALS = 8
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
    loss: PrivacyLoss

    @classmethod
    def of(cls, receipt: Receipt) -> PublicReceipt:
        """What an analyst gets of the ledger's receipt."""
        return cls(
            number=receipt.number,
            at=receipt.at,
            account=str(receipt.account),
            amount=receipt.amount,
            loss=receipt.loss,
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as SVG text; shows itself in a notebook, and ``str()`` is the text to put into a page.

    ``panels`` has the parts one by one, ``kind`` is how they were drawn, and ``kinds`` are the ways that suit the keys.
    """

    panels: tuple[str, ...] = ()
    kind: ChartKind | None = None
    kinds: tuple[ChartKind, ...] = ()

    @property
    def svg(self) -> str:
        """All parts, one below the other."""
        return "\n".join(self.panels)

    def __str__(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg


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
        halves = {}
        for name, bars in self.bars.items():
            if bars.low is not None and bars.high is not None:
                value = self.table.column(name).cast(pa.float64(), safe=False).to_numpy()
                halves[name] = np.maximum(value - bars.low, bars.high - value)
        return halves

    def interval(self, column: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(low, high) of each value of a column, at the answer's confidence."""
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

        A line needs keys with places, such as times and numbers: others get dots. ``width`` is in pixels.
        """
        from dither.curator.charts import draw

        return draw(self, kind=kind, width=width)

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: object = self.table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __str__(self) -> str:
        names = self.table.column_names
        columns = [[str(text) for text in column_texts(self, name, LONGEST_TEXT)] for name in names]
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
        columns = [column_texts(self, name, LONGEST_HTML) for name in names]
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


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value as people read it; a noisy one with the ends of its interval, in the digits that the noise leaves.

    ``half`` is the distance to the end that is further away, so that what is said with ± is true, and ``around`` says
    whether the value is in the middle, as it isn't where the interval was cut at a bound.
    """

    value: str
    half: str = ""
    low: str = ""
    high: str = ""
    around: bool = False

    def __str__(self) -> str:
        return f"{self.value} ± {self.half}" if self.half else self.value


def column_texts(answer: Answer, name: str, most: int | None = None) -> list[ValueText]:
    """The first values of a column as texts.

    A noisy column has the digits of its usual error: the others would be noise. The table keeps them. A value with a
    far smaller error has its own digits.
    """
    values = answer.table.column(name).slice(0, most).to_pylist()
    bars = answer.bars.get(name)
    if bars is None:
        return [ValueText(plain(value)) for value in values]
    if bars.low is None or bars.high is None:
        return [ValueText(cell(value)) for value in values]
    whole = pa.types.is_integer(answer.table.schema.field(name).type)
    ends = list(zip(bars.low.tolist(), bars.high.tolist(), strict=True))
    known = sorted(half for low, high in ends if 0 < (half := (high - low) / 2) < math.inf)
    usual = decimals(known[len(known) // 2]) if known else None
    return [
        ValueText(cell(value)) if value is None else _between(value, low, high, usual, whole=whole)
        for value, (low, high) in zip(values, ends, strict=False)
    ]


def _between(value: float, low: float, high: float, usual: int | None, *, whole: bool) -> ValueText:
    half = (high - low) / 2
    own = decimals(half)
    kept = own if usual is not None and own is not None and half < 10.0**-usual else usual
    around = abs(float(value) - low - half) <= 1e-9 * max(abs(low), abs(high))
    far = half if around else max(float(value) - low, high - float(value))
    shown, width, start, end = (rounded(one, kept, whole=whole) for one in (value, far, low, high))
    return ValueText(shown, width, start, end, around)


def decimals(half: float) -> int | None:
    """How many decimals are worth reading beside such an error, below 0 for tens and hundreds; None without one.

    Example:
        >>> [decimals(half) for half in (0.034, 4.491, 35, 511_718)]
        [3, 1, 0, -3]
    """
    if not 0 < half < math.inf:
        return None
    power = math.floor(math.log10(half))
    # two digits of the error, and three of a large one, whose value has more than enough anyway
    return 1 - power if power < 2 else 2 - power


def rounded(value: float, places: int | None, *, whole: bool = False) -> str:
    """A number with so many decimals; one of a column of ``whole`` numbers has none unless it needs them.

    Example:
        >>> rounded(818_905.26, -3), rounded(23.5, 2), rounded(-0.04, 1)
        ('819,000', '23.50', '0.0')
    """
    if places is None or places > MOST_DECIMALS or not math.isfinite(value):
        return cell(value)
    if whole and value == int(value):
        places = min(places, 0)
    # adding 0 takes the sign from a zero
    near = round(value, places) + 0
    return f"{near:,}" if isinstance(near, int) else f"{near:,.{max(places, 0)}f}"


def plain(value: object) -> str:
    """A key as text: a number as it is written elsewhere, without commas, since it may be a year.

    Example:
        >>> plain(2015), plain(2015.0), plain(0.25)
        ('2015', '2015', '0.25')
    """
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else number(value)
    return str(value) if isinstance(value, int) else cell(value)


def cell(value: object) -> str:
    """A value of a table as text."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    # a key from the data must not steer the terminal that shows it
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))


def number(value: float) -> str:
    """A number with as many digits as are worth reading."""
    if value != value or value in (float("inf"), float("-inf")):
        return "unknown"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 100 else f"{value:.4g}"


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
