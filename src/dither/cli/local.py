"""``dither local``: collections that nobody has to be trusted with, from the description to the estimate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.text import Text

from dither.cli.ask import Format
from dither.cli.local_trials import compare, simulate
from dither.cli.progress_bar import bar
from dither.cli.screen import console, say
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, client_of
from dither.local.core.consistent import Consistency
from dither.progress import Watch

STDIN = "-"

app = typer.Typer(
    help="Collect from people who needn't trust anybody.\n\nValues are randomised before they leave their owner.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("simulate")(simulate)
app.command("compare")(compare)

Collection = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="The description of the collection.", show_default=False)
]
# A bar can't know how long a stream is: it moves by this many lines at a time.
LOOK = 10_000


@app.command("describe")
def describe(
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help="Which; dither local compare lists them.")
    ],
    epsilon: Annotated[str, typer.Option("--epsilon", "-e", metavar="NUMBER", help="The ε of one report, such as 1.")],
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain", metavar="NUMBER|A,B,C", help="How many values there are, 0, 1, 2, …, or their labels."
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="A,B,C", help="The labels, also if they are numbers.")
    ] = None,
    labels_file: Annotated[
        str | None, typer.Option("--labels-file", metavar="FILE", help="The same, one on each line.")
    ] = None,
    bounds: Annotated[
        str | None, typer.Option("--bounds", metavar="LOW,HIGH", help="The bounds of a number [0,1].")
    ] = None,
    permanent: Annotated[
        str | None,
        typer.Option("--permanent", metavar="NUMBER", help="rappor: the ε of all reports about one value."),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", metavar="NUMBER", help="heavy, fragments: letters of a text, or bits.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it goes.")] = None,
) -> None:
    """Make a collection: the protocol with all its parameters, as JSON to be published.

    A description is permanent: reports belong to it alone, so a file that exists isn't overwritten.

    Example:  dither local describe --protocol oue --epsilon 1 --labels no,yes,perhaps -o survey.json
    """
    # loaded here: the other commands start without it
    from dither.cli.local_lines import lines_of
    from dither.local.clients.wire import HEADER
    from dither.local.lab.catalogue import Wanted, known_protocol
    from dither.numeric import as_fraction

    known = known_protocol(protocol)
    given = [value for value in (domain, labels, labels_file) if value is not None]
    if len(given) > 1:
        raise InvalidParameter("give one of --domain, --labels and --labels-file")
    listed: int | tuple[str, ...] = 100
    if domain is not None and domain.strip().isdecimal():
        listed = int(domain[:20])
    elif domain is not None or labels is not None:
        listed = tuple(label.strip() for label in (domain or labels or "").split(","))
    elif labels_file is not None:
        listed = tuple(line for line in lines_of(labels_file) if line)
    wanted = Wanted(
        epsilon=as_fraction(epsilon, "--epsilon"),
        domain=listed,
        bounds=_bounds(bounds),
        permanent=None if permanent is None else as_fraction(permanent, "--permanent"),
        length=length,
    )
    made = known.make(wanted)
    text = json.dumps(made.describe(), indent=1, ensure_ascii=False) + "\n"
    if output is None:
        print(text, end="")
    else:
        _write_new(output, text)
        console().print(Text(f"wrote {output}: publish it, and randomise with  dither local randomize {output}"))
    loss = made.loss()
    say(f"one report: ε = {loss.pure():.6g} ({loss.adjacency.value}), {HEADER + made.width} bytes; {known.about}")


@app.command("randomize")
def randomize(
    collection: Collection,
    values: Annotated[
        str, typer.Argument(metavar="[VALUES]", help="A file with one value on each line, or -.")
    ] = STDIN,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where reports go.")] = None,
) -> None:
    """Randomise values: a report on each line, one for each person.

    Blank lines are skipped (under "participation" they are people who didn't answer). A value that the collection
    doesn't know stops everything, with its line and without repeating it.

    Example:  dither local randomize survey.json answers.txt -o reports.txt
    """
    from dither.cli.local_lines import lines_of, reader_of, takes_blank_lines

    description = _description(collection)
    read, blank = reader_of(description), takes_blank_lines(description)
    client = client_of(description)
    # one that remembers what it reported belongs to one person
    remembers = hasattr(client, "memory")
    with bar() as watch, _written(output) as stream:
        for number, line in enumerate(lines_of(values), start=1):
            if line or blank:
                one: Client = client_of(description) if remembers else client
                try:
                    report = one.text(read(line))
                except InvalidData as problem:
                    where = "the input" if values == STDIN else values
                    raise InvalidData(f"line {number} of {where}: {problem}") from None
                stream.write(report + "\n")
            _tell(watch, number, "randomising")


@app.command("aggregate")
def aggregate(
    collection: Collection,
    reports: Annotated[
        list[str] | None, typer.Argument(metavar="[REPORTS]...", help="Files with one report on each line, or -.")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option("--merge", metavar="FILE", help="A saved aggregate to add; may be repeated.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Keep the aggregate in a file.")] = None,
    candidates: Annotated[
        str | None,
        typer.Option("--candidates", metavar="FILE", help="Texts to look for, one on each line, if none are listed."),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="NUMBER", min=0.5, max=0.999999, help="Of the intervals.")
    ] = 0.95,
    consistent: Annotated[
        Consistency | None, typer.Option("--consistent", help="Make shares not negative, and so on; biases them.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="NUMBER", min=1, help="How many lines the table has.")] = 20,
    form: Annotated[
        Format, typer.Option("--format", metavar="FORMAT", help="How to write it: table, csv or json.")
    ] = Format.TABLE,
) -> None:
    """Count reports and estimate, with intervals that hold together at the stated confidence.

    Whatever isn't a report of this collection is dropped, and counted by reason on the error stream.

    Example:  dither local aggregate survey.json reports.txt --merge monday.json --save tuesday.json
    """
    from dither.cli.local_lines import estimated, lines_of, show_lines, write_csv
    from dither.local.core.protocol import load, protocol_of

    made = protocol_of(_description(collection))
    counted = made.aggregator()
    listed = list(reports or ([] if merge else [STDIN]))
    with bar() as watch:
        for path in listed:
            counted.add_reports(_watched(path, watch))
        for saved in merge or []:
            counted = counted + load(saved)
    for reason, number in counted.dropped.items():
        say(f"dropped {number:,}: {reason.value}")
    if save is not None:
        counted.save(save)
        say(f"saved {counted.reports:,} reports in {save}")
    wanted = None if candidates is None else [line for line in lines_of(candidates) if line]
    lines, notes = estimated(counted, confidence=confidence, candidates=wanted, consistent=consistent)
    if form is Format.CSV:
        write_csv(lines, sys.stdout)
        return
    if form is Format.JSON:
        estimates = [{"value": one.label, "estimate": one.value, "low": one.low, "high": one.high} for one in lines]
        document = {
            "protocol": made.name,
            "reports": counted.reports,
            "dropped": {reason.name.lower(): number for reason, number in counted.dropped.items()},
            "confidence": confidence,
            "estimates": estimates,
            "notes": notes,
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    screen = console()
    show_lines(lines, top, screen)
    loss = made.loss()
    screen.print(
        Text(
            f"{counted.reports:,} reports, ε = {loss.pure():.4g} each; intervals at {100 * confidence:g}%", style="dim"
        )
    )
    for note in notes:
        screen.print(Text(note, style="dim"))


# ------------------------------------------------------------------ files


def _description(path: Path) -> Mapping[str, Any]:
    from dither.cli.local_lines import read_json

    found = read_json(path, "the description of a collection")
    if not isinstance(found, Mapping) or not isinstance(found.get("protocol"), str):
        raise InvalidData(f'{path} isn\'t the description of a collection: it has no "protocol"')
    return found


def _bounds(text: str | None) -> tuple[Fraction, Fraction]:
    from dither.numeric import as_fraction

    if text is None:
        return Fraction(0), Fraction(1)
    parts = text.split(",")
    if len(parts) != 2:
        raise InvalidParameter(f"--bounds takes two numbers, as 0,100; got {text!r}")
    low, high = (as_fraction(part, "--bounds") for part in parts)
    return low, high


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InvalidParameter(
            f"{path} exists: reports may belong to it, so it isn't overwritten; choose another name"
        ) from None
    except OSError:
        raise InvalidParameter(f"{path} can't be written: is there such a directory?") from None


@contextmanager
def _written(path: Path | None) -> Iterator[IO[str]]:
    """The standard output, or a file that is there whole or not at all."""
    if path is None:
        yield sys.stdout
        return
    draft = path.with_name(path.name + ".part")
    try:
        stream = draft.open("w", encoding="utf-8")
    except OSError:
        raise InvalidParameter(f"{path} can't be written: is there such a directory?") from None
    try:
        with stream:
            yield stream
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _watched(path: str, watch: Watch) -> Iterator[str]:
    from dither.cli.local_lines import lines_of

    for number, line in enumerate(lines_of(path), start=1):
        if line:
            yield line
        _tell(watch, number, "counting")


def _tell(watch: Watch, number: int, doing: str) -> None:
    if number % LOOK == 0:
        watch((number // LOOK % 100) / 100, f"{doing}: {number:,} lines")
