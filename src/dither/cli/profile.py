"""``dither profile``: how many people have how many rows; paid for once, then public."""

from __future__ import annotations

from typing import Annotated

import typer

from dither.cli import options
from dither.cli.ask import ask
from dither.cli.read_only_curator import looking
from dither.cli.screen import console, grid
from dither.curator import OWNER


def profile(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A private table; without one, what is known is listed.")
    ] = "",
    epsilon: options.Epsilon = None,
    where: Annotated[str, typer.Option("--where", metavar="CONDITION", help="Only of rows like that, as in SQL.")] = "",
    noise: options.Noise = None,
    analyst: options.Analyst = OWNER,
    policy: options.PolicyFile = options.DEFAULT_POLICY,
) -> None:
    """Count people by their number of rows.

    A noisy histogram, paid for once. From then on it is public for this version of the data: answers say how many
    people a bound on rows cuts, free. Without a table it lists the profiles that are known.

    Example:  dither profile orders --epsilon 0.5
    """
    from dither.curator import profile_text

    if table:
        ask(profile_text(table, where), epsilon=epsilon, noise=noise, analyst=analyst, policy=policy)
        return
    with looking(policy) as curator:
        known = curator.profiles()
    screen = console()
    if not known:
        screen.print("no profile of this version of the data was paid for yet: dither profile TABLE --epsilon 0.5")
        return
    listed = grid("question", "ε", "units", "paid for", right=("ε", "units"), wrapped=("question",))
    for one in known:
        listed.add_row(one.sql, one.epsilon, f"{one.profile.units:,}", one.at[:10])
    screen.print(listed)
