"""``dither ledger``: the record of everything that was spent."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console, printable
from dither.curator import Policy, records

app = typer.Typer(help="The record of everything that was spent.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_entries(
    policy: PolicyFile = DEFAULT_POLICY,
    last: Annotated[int, typer.Option("--last", min=1, help="How many of the latest entries to show.")] = 50,
) -> None:
    """Show the latest entries: who asked what, and what it cost."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("#", "when", "what", "receipt", "who", "cost", "question"):
        table.add_column(title, no_wrap=title != "question", overflow="fold")
    for entry in records.latest(Policy.load(policy), last):
        cells = (str(entry.number), entry.at, entry.what, entry.receipt, entry.who, entry.cost, entry.question)
        table.add_row(*(Text(printable(text)) for text in cells))
    console().print(table)


@app.command("verify")
def verify(policy: PolicyFile = DEFAULT_POLICY) -> None:
    """Replay the whole ledger and check every entry, balance, loss and answer."""
    found, balances = records.verify(Policy.load(policy))
    screen = console()
    screen.print(f"{found.entries} entries hold together; head {found.head[:16]}…")
    for text in balances:
        screen.print(Text(f"  {text}"))
    if found.adopted:
        screen.print(f"  adopted {found.adopted} times without proof that it was the latest copy")


@app.command("adopt")
def adopt(
    policy: PolicyFile = DEFAULT_POLICY,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """Declare this copy of the ledger to be the latest, after moving it to another machine. Recorded for ever."""
    rules = Policy.load(policy)
    if not yes:
        typer.confirm(
            "Spending that this copy doesn't know of would be forgotten. Is it surely the latest copy?", abort=True
        )
    found, _ = records.verify(rules, adopt=True)
    console().print(f"adopted; {found.entries} entries hold together")
