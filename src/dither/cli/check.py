"""``dither check``: is the policy right and complete?"""

from __future__ import annotations

import typer
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console, printable

STYLES = {"error": "bold red", "warning": "yellow", "hint": "dim"}


def check(policy: PolicyFile = DEFAULT_POLICY) -> None:
    """Say what is wrong in the policy.

    Every mistake with its line, what is missing with the exact line to add, and what is unwise. Reads the names and
    types of the data, no values. Exits with 1 if questions can't be asked yet.
    """
    from dither.curator import drafts

    found = drafts.check(policy)
    screen = console()
    for finding in found:
        first, *rest = str(finding).splitlines()
        screen.print(Text(f"{finding.level.value}: ", style=STYLES[finding.level.value]).append(printable(first)))
        for line in rest:
            screen.print(Text(printable(line)))
    errors = sum(finding.level is drafts.Level.ERROR for finding in found)
    if errors:
        screen.print(f"{errors} to mend before questions can be asked")
        raise typer.Exit(1)
    screen.print(f"{policy} is ready. See what a question would cost:  dither price")
