"""How answers, quotes, budgets and errors look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dither.curator import Answer, BudgetLine, Quote
from dither.curator.answer import cell, number
from dither.errors import DitherError, InvalidPolicy, Refused

BAR = 24
LONGEST = 100


def console() -> Console:
    """Where output goes; made anew each time, so that redirected output is seen."""
    return Console(highlight=False, soft_wrap=False)


def show_answer(answer: Answer, screen: Console) -> None:
    """The table with its error bars, then the cost."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    names = answer.table.column_names
    barred = next((name for name in names if name in answer.error and len(names) > 1), None)
    for name in names:
        table.add_column(Text(name), justify="right" if name in answer.bars else "left", no_wrap=True)
    if barred:
        table.add_column("", no_wrap=True)
    halves = answer.error
    shown = answer.table.slice(0, LONGEST)
    full = 0.0
    if barred:
        ends = answer.interval(barred)[1]
        full = max((float(end) for end in ends[:LONGEST] if end == end), default=0.0)
    for index, row in enumerate(zip(*(column.to_pylist() for column in shown.columns), strict=True)):
        cells = []
        for name, value in zip(names, row, strict=True):
            text = cell(value)
            if name in halves and value is not None:
                text += f" ± {number(float(halves[name][index]))}"
            cells.append(Text(printable(text)))
        if barred:
            low, high = (float(ends[index]) for ends in answer.interval(barred))
            cells.append(Text(bar(low, high, full), style="cyan"))
        table.add_row(*cells)
    screen.print(table)
    if answer.table.num_rows > LONGEST:
        screen.print(f"… {answer.table.num_rows - LONGEST} more rows (--format csv shows all)")
    for name, bars in answer.bars.items():
        if bars.low is None and bars.text:
            screen.print(f"[dim]{escape(name)}: {escape(bars.text)}[/dim]")
    for note in answer.notes:
        screen.print(f"[dim]{escape(note)}[/dim]")
    if answer.receipt is not None:
        screen.print(
            f"[dim]± at {100 * answer.confidence:g}%[/dim]  cost {escape(str(answer.cost))}  "
            f"[dim]receipt {answer.receipt.number}[/dim]"
        )


def show_quote(quote: Quote, screen: Console) -> None:
    """Cost, errors, what is left."""
    screen.print(Text(str(quote)))


def show_budget(lines: Sequence[BudgetLine], screen: Console) -> None:
    """A meter for each account."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("account", "spent", "of", "", "left"):
        table.add_column(title, no_wrap=True)
    for line in lines:
        meter, left = "", "not capped"
        if line.share is not None:
            filled = round(BAR * min(1.0, line.share))
            meter = "█" * filled + "░" * (BAR - filled)
            left = f"{100 * max(0.0, 1 - line.share):.3g}%"
        cap = "" if line.epsilon_budget is None else f"ε = {line.epsilon_budget:g}"
        table.add_row(Text(line.account), f"ε = {line.epsilon_spent:.4g}", cap, Text(meter, style="cyan"), left)
    screen.print(table)
    if lines and lines[0].delta:
        screen.print(f"[dim]ε at δ = {lines[0].delta:.2g}; left is the share of what can still be asked[/dim]")


def bar(low: float, high: float, full: float) -> str:
    """An interval as a bar with a light end."""
    if not full > 0 or low != low:
        return ""
    sure = max(0, min(BAR, round(BAR * low / full)))
    end = max(sure, min(BAR, round(BAR * high / full)))
    return "█" * sure + "▒" * max(1, end - sure)


def explain(problem: DitherError, arguments: Sequence[str], screen: Console | None = None) -> None:
    """An error as text: what, where, and what to do; on the error stream unless a screen is given."""
    screen = screen or Console(stderr=True, highlight=False)
    if isinstance(problem, InvalidPolicy):
        for line in problem.problems:
            screen.print(Text(f"dither: {line}"))
        return
    if isinstance(problem, Refused):
        screen.print(Text(f"dither: refused: {problem.reason}"), style="bold")
        sql = next((text for text in arguments if "select" in text.lower()), None)
        if problem.position and sql:
            row, column = problem.position
            lines = sql.splitlines() or [""]
            if row <= len(lines):
                text = lines[row - 1]
                start = max(0, column - 60)
                screen.print(Text("  " + text[start : start + 100]))
                screen.print(Text("  " + " " * (column - 1 - start) + "^"))
        if problem.hint:
            screen.print(Text(f"  {problem.hint}"))
        screen.print(Text(f"  [{problem.code}; nothing was charged]"), style="dim")
        return
    screen.print(Text(f"dither: {problem}"))


def printable(text: str) -> str:
    """No control characters: a key from the data must not steer the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
