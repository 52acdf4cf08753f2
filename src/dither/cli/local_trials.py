"""``dither local simulate`` and ``dither local compare``: protocols tried on people who don't exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from dither.brief import printable
from dither.cli.progress_bar import bar
from dither.cli.screen import console, grid, say
from dither.errors import InvalidParameter, MissingLibrary

if TYPE_CHECKING:
    from dither.local.lab.catalogue import Catalogued
    from dither.local.lab.comparison import ProtocolTable
    from dither.local.lab.simulation import Simulation
from dither.local.core.tables import within

Epsilon = Annotated[str, typer.Option("--epsilon", "-e", metavar="NUMBER", help="The ε of one report.")]
Users = Annotated[int, typer.Option("--users", "-n", metavar="NUMBER", min=2, help="How many people there are.")]
DomainSize = Annotated[int, typer.Option("--domain", metavar="NUMBER", min=2, help="How many values there are.")]
Seed = Annotated[int, typer.Option("--seed", metavar="NUMBER", min=0, help="Makes the people; reports are fresh.")]
Delta = Annotated[float, typer.Option("--delta", metavar="NUMBER", help="The δ of the ε after shuffling.")]
ROWS = 12
DRAWN = 24


def simulate(
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help="Which; dither local compare lists them.")
    ],
    epsilon: Epsilon = "1",
    users: Users = 100_000,
    domain: DomainSize = 100,
    *,
    delta: Delta = 1e-6,
    seed: Seed = 0,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="A picture: .svg or .png.")] = None,
) -> None:
    """Try a protocol on made-up people: what it would have said, and how wrong that is.

    Values follow Zipf's law. Shows truth and estimate, the error beside what theory states, and what a report costs:
    to whoever collects it, and to whoever sees only shuffled reports.

    Example:  dither local simulate --protocol rappor --epsilon 2 --users 200000 --domain 100 --plot rappor.svg
    """
    from dither.local.lab.catalogue import Wanted, known_protocol
    from dither.local.lab.simulation import simulate as run

    known = known_protocol(protocol)
    if plot is not None and plot.suffix not in (".svg", ".png"):
        raise InvalidParameter(f"--plot takes a file that ends in .svg or .png; got {plot.name!r}")
    wanted = Wanted.of(epsilon, domain)
    with bar() as watch:
        tried = run(known, wanted, users, seed=seed, watch=watch)
    screen = console()
    _show(known, tried, screen)
    _show_cost(tried, delta, screen)
    if plot is not None:
        try:
            _draw(known, tried, plot)
        except MissingLibrary as missing:
            say(str(missing))
        else:
            screen.print(Text(f"picture: {plot}"))


def _show(known: Catalogued, tried: Simulation, screen: Console) -> None:
    screen.print(Text(f"{known.title}: {known.about}", style="bold"))
    table = grid("value", "true", "estimated", "interval", "", right=("true", "estimated", "interval"))
    places = list(range(min(ROWS, len(tried.labels))))
    if places and tried.labels[0].startswith("up to "):
        places = np.unique(np.linspace(0, len(tried.labels) - 1, ROWS).astype(np.int64)).tolist()
    for place in places:
        low, high = tried.intervals[place]
        held = low <= tried.truth[place] <= high
        table.add_row(
            Text(printable(tried.labels[place])),
            f"{tried.truth[place]:.4f}",
            f"{within(float(tried.values[place]), (low, high)):.4f}",
            Text(f"{low:.4f} … {high:.4f}", style="dim"),
            "" if held else Text("outside", style="red"),
        )
    screen.print(table)
    left = len(tried.labels) - len(places)
    if left > 0:
        screen.print(f"… {left} more")
    if not tried.labels:
        screen.print("nothing stands out: more people, or a larger ε, would show the most frequent values")
        return
    theory = "" if tried.theory is None else f", by theory {tried.theory:.2g}"
    screen.print(
        Text(
            f"\nerror (root mean square) {tried.measured:.2g}{theory}; {tried.inside} of {len(tried.labels)} intervals "
            "hold the truth (95% that all do)"
        )
    )


def _show_cost(tried: Simulation, delta: float, screen: Console) -> None:
    from dither.local.clients.wire import HEADER
    from dither.local.lab.comparison import central_epsilon

    local = tried.protocol.loss().pure()
    central = central_epsilon(tried.protocol, tried.people, delta)
    screen.print(
        Text(
            f"a report of {HEADER + tried.protocol.width} bytes costs ε = {local:.4g}; shuffled among "
            f"{tried.people:,}, ε = {central:.3g} at δ = {delta:g}\n"
            f"{tried.people / tried.seconds:,.0f} people a second, randomised and counted"
        )
    )


def _draw(known: Catalogued, tried: Simulation, path: Path) -> None:
    from dither.pictures import EXACT, LINE, PRIVATE, picture

    shown = min(len(tried.labels), DRAWN)
    with picture(path, width=7.5, height=4.0) as figure:
        axes = figure.subplots()
        at = np.arange(shown)
        low, high = tried.intervals[:shown].T
        middle = tried.values[:shown]
        axes.vlines(at, low, high, color=PRIVATE, linewidth=3, alpha=0.35, label="interval")
        axes.plot(at, middle, "o", color=PRIVATE, markersize=4, label="estimated")
        axes.plot(at, tried.truth[:shown], "_", color=EXACT, markersize=12, markeredgewidth=2, label="true")
        axes.axhline(0, color=LINE, linewidth=0.8)
        axes.set_xticks(
            at, tried.labels[:shown], rotation=60 if max(map(len, tried.labels[:shown]), default=0) > 3 else 0
        )
        axes.set_ylabel("share" if known.purpose.value.startswith("shares") else "estimate")
        axes.set_title(f"{known.title}, ε = {tried.protocol.loss().pure():.3g}, {tried.people:,} people")
        axes.legend()


def compare(
    epsilon: Epsilon = "1",
    users: Users = 100_000,
    domain: DomainSize = 100,
    *,
    delta: Delta = 1e-6,
    only: Annotated[str | None, typer.Option("--only", metavar="NAMES", help="Some, as kary,oue.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A table for a page.")] = False,
    seed: Seed = 0,
) -> None:
    """All protocols in one table: ε, size of reports, error by theory and measured, and what each is for.

    Example:  dither local compare --epsilon 1 --domain 100 --users 100000
    """
    from dither.local.lab.comparison import compare as run

    names = None if only is None else [name.strip() for name in only.split(",")]
    with bar() as watch:
        table = run(epsilon, domain=domain, users=users, delta=delta, names=names, seed=seed, watch=watch)
    if markdown:
        print(table.markdown())
        print(f"\n{table.sentence}.")
        return
    _show_table(table, console())


def _show_table(found: ProtocolTable, screen: Console) -> None:
    from dither.local.lab.catalogue import Purpose
    from dither.local.lab.comparison import HEADINGS

    table = grid(*HEADINGS, right=HEADINGS[1:-1], wrapped=HEADINGS[-1:])
    for purpose in Purpose:
        rows = [row for row in found.rows if row.purpose is purpose]
        if rows:
            table.add_row(Text(purpose.value, style="bold cyan"))
        for row in rows:
            table.add_row(*map(Text, row.cells()))
    screen.print(table)
    screen.print(Text(found.sentence, style="dim"))
