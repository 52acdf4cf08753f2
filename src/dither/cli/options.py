"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dither.errors import InvalidParameter

PolicyFile = Annotated[Path, typer.Option("--policy", "-p", metavar="FILE", help="The policy file.")]
Analyst = Annotated[str, typer.Option("--as", metavar="NAME", help="Who asks: an analyst of the policy, or its owner.")]
Epsilon = Annotated[
    str | None, typer.Option("--epsilon", "-e", metavar="NUMBER", help="How much of the budget to spend, such as 0.5.")
]
Wanted = Annotated[
    list[str] | None,
    typer.Option(
        "--error",
        metavar="[COLUMN=]NUMBER",
        help="The error to reach at 95%, as 50 or n=50, instead of an ε: the smallest ε that does it is used.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight", metavar="COLUMN=NUMBER", help="The column's share of the ε, relative to the others' 1, as n=2."
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        "--noise", metavar="LAW", help="laplace or gaussian, in a budget with a δ; the policy chooses by default."
    ),
]
Question = Annotated[str, typer.Argument(metavar="SQL", help="The question, in quotes.", show_default=False)]
DEFAULT_POLICY = Path("dither.toml")


def named(values: list[str] | None, option: str) -> dict[str, str]:
    """column=value pairs."""
    pairs = {}
    for value in values or []:
        name, equals, number = value.rpartition("=")
        if not equals or not name:
            raise InvalidParameter(f"{option} takes column=value; got {value!r}")
        pairs[name] = number
    return pairs


def wanted_error(values: list[str] | None) -> str | dict[str, str] | None:
    """One error for all columns, or one for each that is named."""
    if not values:
        return None
    if len(values) == 1 and "=" not in values[0]:
        return values[0]
    return named(values, "--error")
