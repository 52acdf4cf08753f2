"""``dither check``: is the policy right and complete?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dither.brief import printable
from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console

if TYPE_CHECKING:
    from rich.console import Console

    from dither.curator.drafts import PolicyFinding

STYLES = {"error": "bold red", "warning": "yellow", "hint": "dim"}


def check(
    *,
    policy: PolicyFile = DEFAULT_POLICY,
    data: Annotated[
        bool,
        typer.Option("--data", help="Look at the data itself too: what can't be read, who has no id. For the owner."),
    ] = False,
) -> None:
    """Say what is wrong in the policy.

    Every mistake with its line, what is missing with the exact line to add, and what is unwise. Reads the names and
    types of the data, no values, unless --data says so. Exits with 1 if questions can't be asked yet.

    With --data every row is read. What it tells are exact counts of the data, for the owner alone: values that can't
    be read and are NULL, rows without a unit, keys that aren't listed, texts with blanks around them. It is an error
    where what is left out is more than the policy lets be. New files that pass are accepted.
    """
    from dither.curator import drafts

    found = drafts.check(policy)
    screen = console()
    _show(found, screen)
    errors = sum(finding.level is drafts.Level.ERROR for finding in found)
    if not errors and data:
        about, reports = drafts.check_data(policy)
        _show(about, screen)
        errors = sum(finding.level is drafts.Level.ERROR for finding in about)
        for report in reports:
            screen.print(Text(printable(f"table {report.table}: {report.rows:,} rows were read")))
    if errors:
        screen.print(f"{errors} to mend before questions can be asked")
        raise typer.Exit(1)
    if data:
        screen.print(f"{policy} is ready, and so is the data. See what a question would cost:  dither price")
    else:
        screen.print(f"{policy} has no mistakes. Its data was not looked at: dither check --data reads it.")


def _show(found: Sequence[PolicyFinding], screen: Console) -> None:
    for finding in found:
        first, *rest = str(finding).splitlines()
        screen.print(Text(f"{finding.level.value}: ", style=STYLES[finding.level.value]).append(printable(first)))
        for line in rest:
            screen.print(Text(printable(line)))
