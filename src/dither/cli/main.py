"""The ``dither`` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dither import __version__
from dither.cli import anonymize, ask, attack, audit, budget, check, demo, init, ledger, local, price, serve, token
from dither.cli.screen import explain
from dither.errors import DitherError

app = typer.Typer(
    name="dither",
    help="Answers about sensitive tables: exact noise, error bars, and a budget that can't be overspent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001
    if wanted:
        print(f"dither {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """What can be said before a command."""


app.command("init")(init.init)
app.command("check")(check.check)
app.command("price")(price.price)
app.command("ask")(ask.ask)
app.command("budget")(budget.budget)
app.add_typer(ledger.app, name="ledger")
app.command("serve")(serve.serve)
app.add_typer(token.app, name="token")
app.command("attack")(attack.attack)
app.add_typer(audit.app, name="audit")
app.add_typer(local.app, name="local")
app.add_typer(anonymize.app, name="anonymize")
app.command("demo")(demo.demo)


STOPPED = 130
# Whatever is wrong with what was typed: typer may bring its own copy of click, so the class is found through typer.
MISTYPED: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 for an error that is explained, 2 for bad usage, 130 if stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = app(given, standalone_mode=False, prog_name="dither")
    except MISTYPED as problem:
        problem.show()
        return int(problem.exit_code)
    except DitherError as problem:
        explain(problem, _question(given))
        return 1
    except (KeyboardInterrupt, typer.Abort):
        result = STOPPED
    except BrokenPipeError:
        # whoever read the output has gone; closing it must not fail a second time
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    if result == STOPPED:
        # some versions of typer make an exit status of an interrupt by themselves
        told = ". If the question was charged already, the same question again is free" if given[0] == "ask" else ""
        print(f"dither: stopped{told}", file=sys.stderr)
    return result if isinstance(result, int) else 0


def _question(arguments: Sequence[str]) -> str | None:
    """The SQL among the arguments: the first behind the command that isn't an option or its value."""
    if not arguments or arguments[0] not in ("ask", "price"):
        return None
    rest = iter(arguments[1:])
    for text in rest:
        if text == "--":
            return next(rest, None)
        if not text.startswith("-"):
            return text
        if "=" not in text and not (len(text) > 2 and text[1] != "-"):
            next(rest, None)
    return None


if __name__ == "__main__":
    sys.exit(main())
