"""``dither ledger``: the record of everything that was spent."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from dither.brief import printable
from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console
from dither.errors import LedgerError

SAME_PEOPLE = "If these units aren't the same people as before, what was spent is told for the wrong ones. Are they?"
app = typer.Typer(help="The record of everything that was spent.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_entries(
    policy: PolicyFile = DEFAULT_POLICY,
    last: Annotated[
        int, typer.Option("--last", min=1, metavar="NUMBER", help="How many of the latest entries to show.")
    ] = 50,
) -> None:
    """Show who asked what, and what it cost.

    Times are in UTC. A question has an entry when it is charged (reserve, charge) and one when its answer is on record.
    """
    from dither.curator.past import records
    from dither.policy import Policy

    screen = console()
    rules = Policy.load(policy)
    if not (found := records.latest(rules, last)):
        screen.print("nothing was asked yet: there is no ledger")
    for entry in found:
        parts = (f"{entry.number:>5}", entry.at, entry.what, entry.receipt, entry.who, entry.cost)
        screen.print(Text("  ".join(printable(part) for part in parts if part)))
        if entry.question:
            screen.print(Text(f"       {printable(entry.question)}", style="dim"))


@app.command("verify")
def verify(policy: PolicyFile = DEFAULT_POLICY) -> None:
    """Check the whole ledger.

    Replays every entry and checks balances, losses and answers.
    """
    from dither.curator.past import records
    from dither.policy import Policy

    found, balances = records.verify(Policy.load(policy))
    screen = console()
    screen.print(f"{found.entries} entries hold together; head {found.head[:16]}…")
    for text in balances:
        screen.print(Text(f"  {text}"))
    if found.format == 1:
        screen.print("  format 1, of dither 0.1.0: to go on charging, run dither ledger upgrade")
    if found.rebound:
        screen.print(
            f"  bound {found.rebound} times to another unit, by the owner's word that it names the same people"
        )
    if found.adopted:
        screen.print(f"  adopted {found.adopted} times without proof that it was the latest copy")


@app.command("adopt")
def adopt(
    policy: PolicyFile = DEFAULT_POLICY,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """Declare this copy to be the latest.

    Needed after moving the ledger to another machine, or after its head was lost. Spending that this copy doesn't know
    of is forgotten, so it is recorded for ever that this was done.
    """
    from dither.curator.past import records
    from dither.policy import Policy

    rules = Policy.load(policy)
    if not records.is_begun(rules):
        raise LedgerError(
            f"there is no ledger at {rules.source.ledger} to adopt: put its latest copy there. Without one, say "
            "another name or ledger in [source], and take what was spent off the budget"
        )
    if not yes:
        typer.confirm(
            "Spending that this copy doesn't know of would be forgotten. Is it surely the latest copy?", abort=True
        )
    found, _ = records.verify(rules, adopt=True)
    console().print(f"adopted; {found.entries} entries hold together")


@app.command("upgrade")
def upgrade(
    policy: PolicyFile = DEFAULT_POLICY,
    rebind: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--rebind", help="State that every unit it was charged for names the same people as the policy's unit."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """Bring a ledger of dither 0.1.0 to the present format.

    Everything is verified first, and kept: entries, answers, what was spent. End all processes that use the ledger
    before, and keep no copy that could be put back.
    """
    from dither.curator.past import records
    from dither.policy import Policy

    rules = Policy.load(policy)
    if rebind and not yes:
        typer.confirm(SAME_PEOPLE, abort=True)
    found = records.upgrade(rules, rebind=rebind)
    console().print(
        "this ledger has the present format already; nothing was changed"
        if found is None
        else f"upgraded; {found.entries} entries hold together"
    )


@app.command("rebind")
def rebind(
    policy: PolicyFile = DEFAULT_POLICY,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """State that the policy's units name the same people.

    A ledger is kept for the units that it was charged for. After a unit column was renamed, or for a table whose unit
    column has another name, only the owner knows whether these are the same people. The word is recorded for ever.
    """
    from dither.curator.past import records
    from dither.policy import Policy

    rules = Policy.load(policy)
    if not yes:
        typer.confirm(SAME_PEOPLE, abort=True)
    records.rebind(rules)
    console().print(f"bound to {rules.unit_statement()}")
