"""``dither anonymize``: tables in which nobody is alone, how far that is from private, and who stands out before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from dither.brief import printable
from dither.cli import anonymity as typed
from dither.cli.progress_bar import bar
from dither.cli.screen import console, grid, say
from dither.errors import InvalidParameter, MissingLibrary, did_you_mean

if TYPE_CHECKING:
    from dither.anonymize.releases.release import Release
    from dither.anonymize.risks.report import RiskReport

DEFAULT = "table"
HELP = """Anonymise a table, check one, or see who stands out in it.

k-anonymity and its kin claim no privacy loss: they say nothing about what somebody knows besides, nor about two
releases of the same people. To answer questions about a table with a guarantee, keep it and use dither ask.

\b
  dither anonymize risk patients.csv
      which columns single people out
  dither anonymize patients.csv --k 10 --quasi age,postcode,sex \\
      --sensitive disease -o out.parquet
      write a table in which at least ten rows look alike; the same as
      dither anonymize table patients.csv …
  dither anonymize verify out.parquet --k 10 --quasi age,postcode,sex \\
      --sensitive disease
      check it, independently of what made it
"""
BARS = 20
# Column names that are listed in a message.
LISTED = 20


class Method(Enum):
    """How rows are made alike."""

    MONDRIAN = "mondrian"
    RELAXED = "relaxed"
    LATTICE = "lattice"


class _Anonymize(TyperGroup):
    """``dither anonymize FILE …`` means ``dither anonymize table FILE …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_Anonymize, help=HELP, no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A CSV or Parquet file.", show_default=False)]


@app.command("risk")
def risk(
    file: File,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="COLUMNS", help="What somebody might know, as age,sex [all columns]."),
    ] = None,
    most: Annotated[int, typer.Option("--most", metavar="NUMBER", min=1, help="How many columns to combine.")] = 3,
    k: Annotated[
        int, typer.Option("--k", metavar="NUMBER", min=1, help="Fewer rows than this are a small class.")
    ] = 10,
    population: Annotated[
        Path | None,
        typer.Option("--population", metavar="FILE", help="A table of everybody, for the journalist's risk."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page with pictures.")
    ] = None,
) -> None:
    """See which columns of a table single people out.

    Counts, for every combination of columns up to a size, how many rows are alone with their values. The report holds
    exact facts about the data, without noise: it is for the owner of the data only.

    Example:  dither anonymize risk patients.csv --most 2 --html risk.html
    """
    from dither.anonymize.risks.risk import risk as found_in

    if html is not None:
        _expect_place(html, (".html",), "--html")
    with bar() as watch:
        watch(0.0, "reading")
        named = typed.listed(columns) if columns else None
        report = found_in(str(file), named, most, k=k, population=_path(population), watch=watch)
    show_risk(report, console())
    if html is not None:
        try:
            html.parent.mkdir(parents=True, exist_ok=True)
            console().print(Text(f"report: {report.save(html)}"))
        except MissingLibrary as missing:
            say(str(missing))


@app.command(DEFAULT)
def table(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where it goes: .parquet or .csv.")],
    quasi: typed.Quasi,
    sensitive: typed.Sensitive = None,
    keep: typed.Keep = None,
    k: typed.K = None,
    method: Annotated[
        Method,
        typer.Option(
            "--method", help="mondrian; relaxed (may split equal values); or lattice (one level for each column)."
        ),
    ] = Method.MONDRIAN,
    hierarchies: typed.Hierarchies = None,
    suppress: typed.Suppress = "0",
    diversity: typed.Diversity = None,
    closeness: typed.Closeness = None,
    disclosure: typed.Disclosure = None,
    likeness: typed.Likeness = None,
) -> None:
    """Write an anonymised table.

    Columns that aren't named are removed. Quasi-identifiers are made coarser until every class of rows that look alike
    satisfies all that is asked; sensitive columns stay as they are. What was written is read again and verified; a
    table that fails isn't left behind.

    Example:  dither anonymize patients.csv --k 10 --quasi age,postcode,sex --sensitive disease -o out.parquet
    """
    from dither.anonymize.lattice.full_domain import full_domain
    from dither.anonymize.partition.mondrian import mondrian
    from dither.anonymize.table.read import as_table
    from dither.anonymize.verifier.verify import verify as verified
    from dither.progress import part_of

    _expect_place(out, (".parquet", ".csv"), "-o")
    if out.exists() and file.exists() and out.samefile(file):
        raise InvalidParameter("-o is the table itself, which would be lost: choose another file")
    with bar() as watch:
        watch(0.0, "reading")
        data = as_table(str(file))
        _expect_columns((*typed.listed(quasi), *typed.listed(sensitive), *typed.listed(keep)), data.column_names)
        configuration = typed.configured(
            data,
            quasi=quasi,
            sensitive=sensitive,
            keep=keep,
            k=k,
            hierarchies=hierarchies,
            suppress=suppress,
            diversity=diversity,
            closeness=closeness,
            disclosure=disclosure,
            likeness=likeness,
        )
        working = part_of(watch, 0.1, 0.75)
        if method is Method.LATTICE:
            release = full_domain(data, configuration, watch=working)
        else:
            release = mondrian(data, configuration, strict=method is Method.MONDRIAN, watch=working)
        watch(0.75, "writing")
        out.parent.mkdir(parents=True, exist_ok=True)
        # under a temporary name until it is verified
        draft = out.with_name(f".{out.stem}.{os.getpid()}.unverified{out.suffix}")
        try:
            release.save(draft)
            watch(0.8, "verifying what was written")
            checked = verified(str(draft), configuration, original=data)
            if checked.good:
                draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    show_release(release, data.num_rows, console())
    _show_verified(checked, console(), removed="nothing was written. This is a mistake in dither, please report it")
    console().print(Text(f"written: {printable(str(out))}"))


@app.command("verify")
def verify(
    file: File,
    quasi: typed.Quasi,
    sensitive: typed.Sensitive = None,
    keep: typed.Keep = None,
    k: typed.K = None,
    hierarchies: typed.Hierarchies = None,
    suppress: typed.Suppress = "0",
    diversity: typed.Diversity = None,
    closeness: typed.Closeness = None,
    disclosure: typed.Disclosure = None,
    likeness: typed.Likeness = None,
    original: Annotated[
        Path | None, typer.Option("--original", metavar="FILE", help="The table it was made from, to compare with.")
    ] = None,
) -> None:
    """Check an anonymised table, independently of what made it.

    Groups rows by the printed text of their quasi-identifiers and counts again. With the original, also whether every
    row is still what it was, only coarser. Exits with 1 if anything is wrong.

    Example:  dither anonymize verify out.parquet --k 10 --quasi age,postcode,sex --sensitive disease
    """
    from dither.anonymize.verifier.verify import verify as verified

    configuration = typed.configured(
        None,
        quasi=quasi,
        sensitive=sensitive,
        keep=keep,
        k=k,
        hierarchies=hierarchies,
        suppress=suppress,
        diversity=diversity,
        closeness=closeness,
        disclosure=disclosure,
        likeness=likeness,
    )
    with bar() as watch:
        watch(0.0, "verifying")
        checked = verified(str(file), configuration, original=_path(original))
    _show_verified(checked, console())


def show_risk(report: RiskReport, screen: Console) -> None:
    """Columns, the worst combinations of each size, the classes of the worst, and what that means."""
    from dither.anonymize.risks.report import FOR_THE_OWNER, gain, joined, notice, percent, size_of, summary, worst

    screen.print(Text(f"{size_of(report)}. {FOR_THE_OWNER}", style="bold"))
    screen.print()
    columns = _numbers("column", "distinct", "alone", "bits", "adds", "")
    for each in report.columns:
        cells = (f"{each.distinct:,}", percent(each.alone.unique_share), f"{each.bits:.1f}", gain(each))
        columns.add_row(Text(printable(each.name)), *cells, Text(printable(notice(each)), style="yellow"))
    screen.print(columns)
    screen.print()
    known = _numbers("known", "alone", f"in < {report.k}", "smallest", "expected", "")
    for size in range(1, report.most + 1):
        for found in worst(report, size):
            known.add_row(
                Text(printable(joined(found.columns))),
                percent(found.unique_share),
                percent(found.small_share),
                f"{found.smallest:,}",
                percent(found.expected),
                Text("█" * round(BARS * found.unique_share), style="red"),
            )
    if known.row_count:
        screen.print(known)
        screen.print()
    classes = _numbers(f"rows alike in {printable(joined(report.exposure.columns))}", "classes", "rows", "")
    for band in report.exposure.bands:
        part = band.rows / report.rows
        drawn = Text("█" * round(BARS * part), style="red" if band.low < report.k else "cyan")
        classes.add_row(str(band), f"{band.classes:,}", percent(part), drawn)
    screen.print(classes)
    screen.print()
    for line in summary(report):
        screen.print(Text(printable(line)))
    for note in report.notes:
        screen.print(Text(f"note: {printable(note)}"), style="dim")


def _numbers(first: str, *rest: str) -> Table:
    """A table of names, numbers, and a drawing or a remark last; only numbers aren't wrapped."""
    return grid(first, *rest, right=rest[:-1], wrapped=(first, rest[-1]))


def show_release(release: Release, rows: int, screen: Console) -> None:
    """What became of the table."""
    from dither.anonymize.risks.report import percent

    quality = release.quality()
    facts = grid("", "", wrapped=[""], header=False)
    facts.add_row("how", Text(release.how))
    facts.add_row("rows", f"{release.table.num_rows:,} of {rows:,}")
    average = f"{quality.average_class_size:,.1f} on average"
    facts.add_row("classes", f"{quality.classes:,}, of {quality.smallest_class:,} rows or more, {average}")
    facts.add_row("detail lost", f"{percent(quality.ncp)} (NCP), {percent(quality.entropy_loss)} by entropy")
    for name, lost in quality.by_column.items():
        facts.add_row("", Text(f"{printable(name)} {percent(lost)}"))
    screen.print(facts)


def _show_verified(checked: Any, screen: Console, *, removed: str = "") -> None:
    for line in str(checked).splitlines():
        screen.print(Text(printable(line)))
    if not checked.good:
        say("dither: the table doesn't hold what it should" + (f": {removed}" if removed else ""))
        raise typer.Exit(1)
    screen.print(Text("This is no privacy guarantee: it doesn't protect against background knowledge.", style="dim"))


def _path(place: Path | None) -> str | None:
    return None if place is None else str(place)


def _expect_columns(names: Sequence[str], have: Sequence[str]) -> None:
    """Names that were typed, before anything else is said about them."""
    lacking = [name for name in dict.fromkeys(names) if name not in have]
    if not lacking:
        return
    meant = {name: did_you_mean(name, have) for name in lacking}
    hints = [f"{near!r} for {name!r}" if len(lacking) > 1 else repr(near) for name, near in meant.items() if near]
    hint = f"; did you mean {', '.join(hints)}?" if hints else "."
    shown = ", ".join(map(repr, have[:LISTED])) + (f" and {len(have) - LISTED} more" if len(have) > LISTED else "")
    raise InvalidParameter(f"there is no column {', '.join(map(repr, lacking))}{hint} The table has {shown}")


def _expect_place(place: Path, endings: tuple[str, ...], option: str) -> None:
    """Before the work, which may take a while: whether its result can be written."""
    if place.suffix not in endings:
        raise InvalidParameter(f"{option} takes a file that ends in {' or '.join(endings)}; got {place.name!r}")
    above = next((folder for folder in place.absolute().parents if folder.exists()), Path(place.anchor or "."))
    writable = above.is_dir() and os.access(place if place.exists() else above, os.W_OK)
    if place.is_dir() or not writable:
        raise InvalidParameter(f"{str(place)!r} can't be written: choose another {option}")
