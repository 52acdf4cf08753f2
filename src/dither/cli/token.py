"""``dither token``: who may use the server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console, say
from dither.curator.owner import OWNER
from dither.server.identity import Scope

if TYPE_CHECKING:
    from dither.server.tokens import Token

app = typer.Typer(help="Make, list and revoke the tokens of the server.", no_args_is_help=True)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="For whom: an analyst of the policy, or owner.")],
    scope: Annotated[
        Scope | None,
        typer.Option("--scope", metavar="SCOPE", help="What it allows: price (look only), ask, or owner."),
    ] = None,
    days: Annotated[float, typer.Option("--days", metavar="NUMBER", help="For how many days it is valid.")] = 90,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for, for your list.")] = "",
    policy: PolicyFile = DEFAULT_POLICY,
) -> None:
    """Make a token and show it once.

    The token is the password on the web page, in psql (with the name as user), and for the HTTP API.
    """
    from dither.curator import Policy
    from dither.server.tokens import TokenFile, access_path

    rules = Policy.load(policy)
    chosen = scope or (Scope.OWNER if name == OWNER else Scope.ASK)
    if name != OWNER:
        # says what to do if the policy doesn't let this name ask
        rules.analyst(name)
    with TokenFile.open(access_path(rules)) as tokens:
        token, secret = tokens.create(name, chosen, days=days, note=note)
    console().print(Text(secret))
    # beside the token, so that TOKEN=$(dither token create NAME) holds it alone
    say(f"for {token.analyst}, scope {token.scope}, until {token.expires}; number {token.number}")
    say("shown once: only a hash of it is kept")


@app.command("list")
def show(policy: PolicyFile = DEFAULT_POLICY) -> None:
    """List the tokens that were made."""
    from dither.curator import Policy
    from dither.server.tokens import TokenFile, access_path

    with TokenFile.open(access_path(Policy.load(policy))) as tokens:
        known = tokens.list()
    now = datetime.now(UTC)
    if not known:
        console().print("no tokens yet: dither token create NAME")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("number", "for", "scope", "made", "until", "state", "note"):
        table.add_column(title, no_wrap=True)
    for token in known:
        until = token.expires or "for ever"
        row = (token.number, token.analyst, token.scope, token.made, until, _state(token, now), token.note)
        table.add_row(*map(Text, row))
    console().print(table)


def _state(token: Token, now: datetime) -> str:
    if token.valid:
        return "valid"
    expired = token.expires is not None and datetime.fromisoformat(token.expires) <= now
    return "expired" if expired else "revoked"


@app.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="Which one, as `dither token list` shows it.")],
    policy: PolicyFile = DEFAULT_POLICY,
) -> None:
    """Make a token worthless at once, also in a server that runs."""
    from dither.curator import Policy
    from dither.server.tokens import TokenFile, access_path

    with TokenFile.open(access_path(Policy.load(policy))) as tokens:
        token = tokens.revoke(number)
    console().print(Text(f"{token.number} of {token.analyst} is revoked"))
