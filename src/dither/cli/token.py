"""``dither token``: who may use the server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console, say
from dither.curator import OWNER
from dither.errors import InvalidParameter, Refused
from dither.server.auth.identity import Scope

if TYPE_CHECKING:
    from dither.policy import Policy
    from dither.server.auth.tokens import Token

# of a time of ISO 8601, the date
DATE = 10

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
    from dither.policy import Policy
    from dither.server.auth.tokens import TokenFile, access_path

    rules = Policy.load(policy)
    chosen = scope or (Scope.OWNER if name == OWNER else Scope.ASK)
    if name != OWNER:
        _expect_listed(name, rules)
    with TokenFile.open(access_path(rules)) as tokens:
        token, secret = tokens.create(name, chosen, days=days, note=note)
    console().print(Text(secret))
    # beside the token, so that TOKEN=$(dither token create NAME) holds it alone
    say(f"for {token.analyst}, scope {token.scope}, until {token.expires}; number {token.number}")
    say("shown once: only a hash of it is kept")


@app.command("list")
def show(policy: PolicyFile = DEFAULT_POLICY) -> None:
    """List the tokens that were made."""
    from dither.policy import Policy
    from dither.server.auth.tokens import TokenFile, access_path

    with TokenFile.open(access_path(Policy.load(policy))) as tokens:
        known = tokens.list()
    now = datetime.now(UTC)
    if not known:
        console().print("no tokens yet: dither token create NAME")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("number", "for", "scope", "made", "until", "state", "note"):
        # what `dither token revoke` needs is whole on the narrowest screen; names and notes go on in the next line
        folds = title in ("for", "note")
        table.add_column(title, no_wrap=not folds, overflow="fold", min_width=4 if folds else None)
    for token in known:
        made, until = token.made[:DATE], (token.expires or "for ever")[:DATE]
        row = (token.number, token.analyst, token.scope, made, until, _state(token, now), token.note)
        table.add_row(*map(Text, row))
    console().print(table)


def _expect_listed(name: str, rules: Policy) -> None:
    """Refuse a name that the policy doesn't let ask, in words for the owner, who can change that."""
    try:
        rules.analyst(name)
    except Refused:
        # the name was typed, and may hold anything
        typed = json.dumps(name, ensure_ascii=False) if name.isprintable() else "this name"
        listed = ", ".join(rules.analysts) or "nobody"
        raise InvalidParameter(
            f"the policy doesn't list {typed}. It lists: {listed}. Take one of these, or add a section "
            "[analysts.NAME] to the policy and start the server again"
        ) from None


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
    from dither.policy import Policy
    from dither.server.auth.tokens import TokenFile, access_path

    with TokenFile.open(access_path(Policy.load(policy))) as tokens:
        token = tokens.revoke(number)
    console().print(Text(f"{token.number} of {token.analyst} is revoked"))
