"""The commands: their names and what they are for. The code of each is loaded when it is run.

Listing them needs none of the libraries that answers need, which take longer to load than most commands to run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dither import __version__

# In the module of its name each has a function of that name or, if it has commands of its own, a typer app.
SUMMARIES = {
    "init": "Write a policy to be completed.",
    "check": "Say what is wrong in the policy.",
    "price": "Say what a question would cost.",
    "ask": "Answer a question.",
    "profile": "Count people by their number of rows.",
    "budget": "Show what was spent and what is left.",
    "serve": "Answer a whole team.",
    "attack": "Attack a release of made-up data, then a private one.",
    "demo": "Show it all on a made-up shop.",
    "ledger": "The record of everything that was spent.",
    "token": "Make, list and revoke the tokens of the server.",
    "audit": "Test what is claimed about privacy, on running code.",
    "local": "Collect from people who needn't trust anybody.",
    "anonymize": "Anonymise a table, check one, or see who stands out in it.",
}


def _typer(**more: Any) -> typer.Typer:
    return typer.Typer(
        name="dither",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        **more,
    )


class Commands(TyperGroup):
    """A group whose commands stand in for themselves until one of them is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that was typed, with its code."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name in SUMMARIES else stand_in, rest


def loaded(name: str) -> Any:
    """A command with its arguments, options and code."""
    module = import_module(f"dither.cli.{name}")
    # typer makes a group of a command only if there is something to say before it
    whole = _typer()
    whole.callback()(_nothing)
    if hasattr(module, "app"):
        whole.add_typer(module.app, name=name)
    else:
        whole.command(name)(getattr(module, name))
    made: Any = typer.main.get_command(whole)
    return made.commands[name]


def _nothing() -> None:
    """What stands where a command will."""


def _show_version(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        print(f"dither {__version__}")
        raise typer.Exit


app = _typer(
    help="Answers about sensitive tables: exact noise, error bars, and a budget that can't be overspent.",
    cls=Commands,
)


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """What can be said before a command."""


for _name, _summary in SUMMARIES.items():
    app.command(_name, help=_summary)(_nothing)

# Whatever is wrong with what was typed: typer may bring its own copy of click, so the class is found through typer.
MISTYPED: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
