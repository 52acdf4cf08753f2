"""The ``dither`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer

from dither import __version__
from dither.cli import ask, budget, check, demo, init, ledger, price
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


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,  # noqa: FBT002
) -> None:
    if version:
        print(f"dither {__version__}")
        raise typer.Exit


app.command("init")(init.init)
app.command("check")(check.check)
app.command("price")(price.price)
app.command("ask")(ask.ask)
app.command("budget")(budget.budget)
app.add_typer(ledger.app, name="ledger")
app.command("demo")(demo.demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 for an error that is explained, 2 for bad usage, 130 if stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = app(given, standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except DitherError as problem:
        explain(problem, given)
        return 1
    except (KeyboardInterrupt, click.Abort):
        print("dither: stopped", file=sys.stderr)
        return 130
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
