"""How answers, quotes, budgets and errors look on a terminal."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dither.brief import printable
from dither.errors import DitherError, InvalidPolicy, Refused

if TYPE_CHECKING:
    from dither.curator import Answer, BudgetLine, Quote

BAR = 24
LONGEST = 100
UNLIMITED = 100_000


def console() -> Console:
    """Where output goes; made anew each time, so that redirected output is seen.

    A file or a pipe has no width: nothing is cut or wrapped there, unless COLUMNS says so.
    """
    screen = Console(highlight=False, soft_wrap=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = UNLIMITED
    return screen


def grid(*titles: str, right: Collection[str] = (), wrapped: Collection[str] = (), header: bool = True) -> Table:
    """A table without lines, with columns of these titles; those that aren't wrapped keep their cells on one line."""
    made = Table(box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        made.add_column(Text(title), justify="right" if title in right else "left", no_wrap=title not in wrapped)
    return made


def show_answer(answer: Answer, screen: Console) -> None:
    """The table with its error bars, then the cost.

    Where the screen is too narrow, first the bars go, then each row becomes a list.
    """
    names = [printable(name) for name in answer.table.column_names]
    rows = _texts(answer)
    drawings = _bars(answer)
    widths = [max([cell_len(name), *(cell_len(row[i]) for row in rows)]) for i, name in enumerate(names)]
    width = sum(widths) + 2 * len(widths)
    if width - 2 > screen.width:
        for row in rows:
            for name, text in zip(names, row, strict=True):
                screen.print(Text(f"{name}: ", style="bold").append(text, style="not bold"))
            screen.print()
    else:
        drawn = bool(drawings) and width + BAR + 1 <= screen.width
        table = grid(*names, *([""] if drawn else []), right=[printable(name) for name in answer.bars])
        for index, row in enumerate(rows):
            table.add_row(*map(Text, row), *([Text(drawings[index], style="cyan")] if drawn else []))
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


def _texts(answer: Answer) -> list[list[str]]:
    """The values with their half widths, as far as they are shown."""
    columns = [answer.texts(name, LONGEST) for name in answer.table.column_names]
    return [[printable(str(text)) for text in row] for row in zip(*columns, strict=True)]


def _bars(answer: Answer) -> list[str]:
    """A bar for each row, of the first column that has intervals."""
    names = answer.table.column_names
    barred = next((name for name in names if name in answer.error and len(names) > 1), None)
    if barred is None:
        return []
    low, high = (ends[:LONGEST] for ends in answer.interval(barred))
    full = max((float(end) for end in high if end == end), default=0.0)
    return [bar(float(start), float(end), full) for start, end in zip(low, high, strict=True)]


def show_quote(quote: Quote, screen: Console) -> None:
    """Cost, errors, what is left."""
    screen.print(Text(str(quote)))


def show_choices(quotes: Sequence[Quote], screen: Console) -> None:
    """What each ε would buy: a line for each, with the error of every noisy column."""
    if len(quotes) == 1:
        show_quote(quotes[0], screen)
        return
    first = quotes[0]
    screen.print(Text(f"protects  {first.unit}\ngroups    {first.groups}\nleft      {first.left}\n"))
    noisy = [place for place, column in enumerate(first.columns) if column.mechanism]
    for quote in quotes:
        price = f"ε = {quote.epsilon:<7.4g}" + ("" if quote.fits else "  (more than is left)")
        errors = ", ".join(f"{quote.columns[place].name} {quote.columns[place].error}" for place in noisy)
        screen.print(Text(f"  {price}  {printable(errors)}"))
    for note in first.notes:
        screen.print(Text(f"\nnote      {note}"))
    screen.print(Text("\nAsk with --epsilon, or with --error for the smallest ε that reaches it."))


def show_budget(lines: Sequence[BudgetLine], screen: Console) -> None:
    """A meter for each account."""
    table = grid("account", "spent", "of", "", "left")
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
        others = (f", {escape(line.account)} at {line.delta:.2g}" for line in lines if line.delta != lines[0].delta)
        shown = f"{lines[0].delta:.2g}{''.join(others)}"
        screen.print(f"[dim]ε at δ = {shown}; left is the share of what can still be asked[/dim]")


def bar(low: float, high: float, full: float) -> str:
    """An interval as a bar with a light end."""
    if not full > 0 or low != low:
        return ""
    sure = max(0, min(BAR, round(BAR * low / full)))
    end = max(sure, min(BAR, round(BAR * high / full)))
    return "█" * sure + "▒" * max(1, end - sure)


def explain(problem: DitherError, sql: str | None = None, screen: Console | None = None) -> None:
    """An error as text: what, where, and what to do; on the error stream unless a screen is given."""
    screen = screen or _errors()
    if isinstance(problem, InvalidPolicy):
        for line in problem.problems:
            screen.print(Text(f"dither: {line}"))
        return
    if isinstance(problem, Refused):
        screen.print(Text(f"dither: refused: {problem.reason}"), style="bold")
        if problem.position and sql:
            _point(sql, problem.position, screen)
        if problem.hint:
            screen.print(Text(f"  {problem.hint}"))
        screen.print(Text(f"  [{problem.code}; nothing was charged]"), style="dim")
        return
    screen.print(Text(f"dither: {problem}"))


@contextmanager
def pointing(sql: str) -> Iterator[None]:
    """Refusals of this question are shown with the place in its text, and end the command."""
    try:
        yield
    except Refused as problem:
        explain(problem, sql)
        raise typer.Exit(1) from None


def say(text: str) -> None:
    """Something besides the answer, which goes where errors go, so that it isn't taken for a part of it."""
    _errors().print(Text(text))


def _errors() -> Console:
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = UNLIMITED
    return screen


def _point(sql: str, position: tuple[int, int], screen: Console) -> None:
    """The line of the question and a caret under the place, in a window that fits the screen."""
    row, column = position
    lines = sql.splitlines() or [""]
    if row > len(lines):
        return
    room = min(screen.width, 100) - 2
    start = max(0, column - 1 - 2 * room // 3)
    # a tab is one blank here, so that the caret stays in its column
    text = printable(lines[row - 1].replace("\t", " "))[start:]
    screen.print(Text("  " + text), no_wrap=True, overflow="crop", crop=True)
    screen.print(Text("  " + " " * cell_len(text[: column - 1 - start]) + "^"))
