"""``dither attack``: what somebody could learn from a release, and from a private one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dither.attacks import Attack, Outcome, ReleaseKind
from dither.attacks.base import percent
from dither.cli.progress_bar import bar
from dither.cli.screen import console, grid, say
from dither.errors import InvalidParameter, MissingLibrary

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which attack; --list shows all.")]
Seed = Annotated[int, typer.Option("--seed", metavar="NUMBER", min=0, help="Makes the data; noise is fresh each time.")]
Picture = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Where the picture goes: .svg or .png [attack-NAME.svg].")
]


def attack(
    name: Name = None,
    *,
    every: Annotated[bool, typer.Option("--list", help="Say which attacks there are.")] = False,
    seed: Seed = 0,
    plot: Picture = None,
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help="Whether to save a picture.")] = True,
) -> None:
    """Attack a release of made-up data, then a private one.

    Makes its own data, attacks the exact release, prints its success beside the published figure, then attacks a
    private release of the same data as well as it can, and saves a picture of both.

    Examples:  dither attack --list   ·   dither attack linkage   ·   dither attack ratings --plot ratings.png
    """
    # loaded here: the other commands start without it
    from dither.attacks.registry import ATTACKS, attack_named

    screen = console()
    if every or name is None:
        _list(ATTACKS.values(), screen)
        return
    chosen = attack_named(name)
    place = plot or Path(f"attack-{name}.svg")
    if picture:
        _check_place(place)
    with bar() as watch:
        outcome = chosen.run(seed=seed, watch=watch)
    show_outcome(chosen.title, outcome, screen)
    if picture:
        try:
            screen.print(Text(f"picture: {outcome.plot(place)}"))
        except MissingLibrary as missing:
            say(str(missing))
        except OSError:
            raise _cannot_be_written(place) from None


def _check_place(place: Path) -> None:
    """Before an attack is run, which takes a while: whether its picture can be saved."""
    if place.suffix not in (".svg", ".png"):
        raise InvalidParameter(f"--plot takes a file that ends in .svg or .png; got {place.name!r}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise _cannot_be_written(place) from None
    if place.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
        raise _cannot_be_written(place)


def _cannot_be_written(place: Path) -> InvalidParameter:
    return InvalidParameter(f"the picture can't be saved as {str(place)!r}: choose another --plot, or --no-picture")


def _list(attacks: Iterable[Attack], screen: Console) -> None:
    table = grid("attack", "what it shows", wrapped=["what it shows"])
    for one in attacks:
        table.add_row(one.name, Text(one.question))
    screen.print(table)
    screen.print("\nRun one:  dither attack NAME")


def show_outcome(title: str, outcome: Outcome, screen: Console) -> None:
    """The scores as a table, remarks and what was published as numbered notes below, then the summary."""
    screen.print(Text(title, style="bold"))
    titles = ("release", "what the attacker gets", "success", "without it", "note")
    table = grid(*titles, right=titles[2:4], wrapped=titles)
    notes: list[str] = []
    for score in outcome.scores:
        style = "red" if score.release is ReleaseKind.UNPROTECTED else "cyan"
        guessing = "" if score.guessing is None else percent(score.guessing)
        published = f"published: {score.published.figure}, {score.published.source}" if score.published else ""
        remarks = [remark for remark in (published, score.detail) if remark]
        if remarks:
            notes.append("; ".join(remarks))
        table.add_row(
            Text(score.release.value, style=style),
            Text(score.what),
            Text(percent(score.value)),
            guessing,
            f"{len(notes)}" if remarks else "",
        )
    screen.print(table)
    below = Table(box=None, pad_edge=False, show_header=False, style="dim", padding=(0, 2, 0, 0))
    for number, note in enumerate(notes, start=1):
        below.add_row(f"{number:>3}", Text(note))
    screen.print(below)
    screen.print()
    screen.print(Text(outcome.summary))
