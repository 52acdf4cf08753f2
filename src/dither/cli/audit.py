"""``dither audit``: does what is claimed about privacy hold? Measured on running code."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from dither.brief import printable
from dither.cli.options import Analyst, Epsilon
from dither.cli.progress_bar import bar
from dither.cli.screen import console, explain, grid, say
from dither.curator import OWNER
from dither.errors import InvalidParameter, MissingLibrary, Refused

if TYPE_CHECKING:
    from dither.audit.suite.run import Row

HELP = """Test what is claimed about privacy, on running code.

Draws outputs on neighbouring inputs and looks for an event that tells them apart: a lower bound on ε that holds
whatever the code says about itself. Exits with 1 if a claim is false. Never opens the owner's data or ledger.

\b
  dither audit query dither.toml "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
      one question of a policy, on made-up tables of its shape
  dither audit all
      every mechanism and aggregate of dither, and a zoo of broken ones that must be caught
  dither audit mechanism Laplace
      one mechanism of dither
  dither audit zoo laplace-in-floats
      one broken mechanism being caught; without a name, the list
  dither audit call mypackage.noise:add_noise --x 0 --neighbour 1 --claim 1.0
      any function of yours: add_noise(0) and add_noise(1) are called many times
"""
LONG = "20s"
ROOMY = 108
# The columns of the table, and from which width of the screen on there is room for each.
HEADINGS = {
    "": 0,
    "claimed ε": 0,
    "δ": 0,
    "ε is at least": 0,
    "of the claim": ROOMY,
    "verdict": 0,
    "seconds": ROOMY,
    "event": 120,
}

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

BudgetOf = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long to try, such as 30s or 5m.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="DIRECTORY", help="Write report.md and report.html with plots there."),
]
Confidence = Annotated[
    float,
    typer.Option("--confidence", metavar="NUMBER", help="How sure a verdict that something is broken must be."),
]


@app.command("query")
def query(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="The policy file.", show_default=False)],
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The question, in quotes.", show_default=False)],
    epsilon: Epsilon = None,
    analyst: Analyst = OWNER,
    budget: BudgetOf = "60s",
    pairs: Annotated[
        int, typer.Option("--pairs", metavar="NUMBER", min=1, help="How many pairs of made-up tables to measure.")
    ] = 40,
    confidence: Confidence = 0.99,
    report: Report = None,
) -> None:
    """Audit one question of a policy.

    On made-up tables of the policy's shape: the owner's data isn't opened, nothing is charged. First, pairs of tables
    that differ in one unit are measured exactly, and nothing may move further than the price assumed. Then noisy
    answers on the pair that moved furthest are told apart as well as possible. Without --epsilon, with the policy's
    default, or the most that a question may cost.

    Example:  dither audit query dither.toml "SELECT city, COUNT(*) AS n FROM orders GROUP BY city" --budget 20s
    """
    from dither.audit.queries.audit import audit_query
    from dither.audit.suite.run import rows_of

    try:
        with bar() as watch:
            audit = audit_query(
                policy,
                sql,
                epsilon=epsilon,
                analyst=analyst,
                pairs=pairs,
                confidence=confidence,
                budget=budget,
                watch=watch,
            )
    except Refused as refusal:
        explain(refusal, sql)
        raise typer.Exit(1) from None
    _show_titled((title, printable_lines(text)) for title, text in audit.parts)
    if report is not None:
        _write(rows_of(audit), report, confidence, f"Audit of a question to {policy.name}")
    if audit.broken:
        raise typer.Exit(1)


@app.command("all")
def everything(
    budget_each: Annotated[str, typer.Option("--budget-each", metavar="TIME", help="How long to try each.")] = "2s",
    *,
    long: Annotated[
        bool, typer.Option("--long", help=f"Take {LONG} for each, for bounds closer to the claims.")
    ] = False,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="NUMBER", help="Of the whole table: no false alarm anywhere.")
    ] = 0.99,
    report: Report = None,
) -> None:
    """Audit everything that dither claims.

    Every mechanism, every aggregate of SQL, and the zoo: broken mechanisms, which must be caught, and right ones beside
    them, which must not be. Exits with 1 if anything comes out otherwise.

    Example:  dither audit all --budget-each 1s --report audit-report
    """
    from dither.audit.suite.run import audit_everything

    rows: list[Row] = []
    try:
        with bar() as watch:
            audit_everything(
                budget_each=LONG if long else budget_each, confidence=confidence, watch=watch, found=rows.append
            )
    except KeyboardInterrupt:
        show_rows(rows, console(), confidence)
        say(f"stopped after {len(rows)} audits")
        raise
    show_rows(rows, console(), confidence)
    if report is not None:
        _write(rows, report, confidence)
    if not all(row.expected for row in rows):
        raise typer.Exit(1)


@app.command("mechanism")
def mechanism(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which one; without a name, the list.")] = None,
    budget: BudgetOf = "20s",
    confidence: Confidence = 0.99,
) -> None:
    """Audit one mechanism of dither against its own claim.

    Example:  dither audit mechanism Laplace --budget 10s
    """
    from dither.audit.suite.mechanisms import subject, subjects
    from dither.audit.suite.run import audit_subject

    if name is None:
        _list([(each.name, each.about) for each in subjects()], "mechanism")
        return
    chosen = subject(name)
    with bar() as watch:
        bound = audit_subject(chosen, budget=budget, confidence=confidence, watch=watch)
    console().print(Text(f"{chosen.name}: {chosen.about}\n{bound}"))
    if bound.broken:
        raise typer.Exit(1)


@app.command("zoo")
def zoo(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which one; without a name, the list.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Audit the whole zoo.")] = False,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="How long to try [what its entry states, fourfold].")
    ] = None,
    confidence: Confidence = 0.99,
) -> None:
    """Watch broken mechanisms being caught.

    Each is broken as found in papers, notes and code, and has a right twin that must be left alone. Exits with 1 if a
    broken one isn't caught, or a right one is.

    Examples:  dither audit zoo   ·   dither audit zoo sparse-vector-5   ·   dither audit zoo --all
    """
    from dither.audit.suite.run import Part, audit_everything, audit_named_specimen
    from dither.audit.zoo import specimens

    if every:
        rows: list[Row] = []
        with bar() as watch:
            audit_everything(
                budget_each=budget or "2s",
                confidence=confidence,
                parts=(Part.RIGHT, Part.BROKEN),
                watch=watch,
                found=rows.append,
            )
        show_rows(rows, console(), confidence)
        if not all(row.expected for row in rows):
            raise typer.Exit(1)
        return
    if name is None:
        _list([(each.name, each.mistake or "(right)") for each in specimens()], "zoo")
        return
    with bar() as watch:
        row = audit_named_specimen(name, budget=budget, confidence=confidence, watch=watch)
    console().print(Text(f"{row.name}: {row.about}\n{row.bound}\n{row.verdict}"))
    if not row.expected:
        raise typer.Exit(1)


@app.command("call")
def call(
    function: Annotated[
        str, typer.Argument(metavar="PACKAGE.MODULE:FUNCTION", help="What to call.", show_default=False)
    ],
    x: Annotated[str, typer.Option("--x", metavar="VALUE", help="The input, as JSON or a Python literal.")],
    neighbour: Annotated[str, typer.Option("--neighbour", metavar="VALUE", help="A neighbouring input.")],
    claim: Annotated[
        str | None, typer.Option("--claim", metavar="NUMBER", help="The ε that is claimed; else only a bound is given.")
    ] = None,
    delta: Annotated[str, typer.Option("--delta", metavar="NUMBER", help="The δ that goes with the claim.")] = "0",
    *,
    batched: Annotated[
        bool, typer.Option("--batched", help="The function takes (input, n) and returns n outputs: much quicker.")
    ] = False,
    budget: BudgetOf = "60s",
    confidence: Confidence = 0.99,
) -> None:
    """Audit any function.

    It is called with --x and with --neighbour, many times each; outputs may be numbers, arrays, texts, lists or
    dictionaries. The function is looked for in this directory too.

    Example:  dither audit call mypackage.noise:add_noise --x 0 --neighbour 1 --claim 1.0 --budget 20s
    """
    from dither.audit.drawing.draws import Batched
    from dither.audit.lower_bound import lower_bound
    from dither.numeric import as_fraction
    from dither.privacy import Guarantee

    drawn = _loaded(function)
    stated = (
        None if claim is None else Guarantee(epsilon=as_fraction(claim, "claim"), delta=as_fraction(delta, "delta"))
    )
    with bar() as watch:
        bound = lower_bound(
            Batched(drawn) if batched else drawn,
            _value(x, "--x"),
            _value(neighbour, "--neighbour"),
            claim=stated,
            delta=delta,
            confidence=confidence,
            budget=budget,
            watch=watch,
        )
    console().print(Text(printable_lines(str(bound))))
    if bound.broken:
        raise typer.Exit(1)


def show_rows(rows: Sequence[Row], screen: Console, confidence: float) -> None:
    """The table: what is claimed, what was found, and whether that is as it should be."""
    headings = [heading for heading, least in HEADINGS.items() if screen.width >= least]
    shown = ["ε ≥" if heading == "ε is at least" and screen.width < ROOMY else heading for heading in headings]
    table = grid(*shown, right={*shown} - {"", "verdict", "event"})
    part, room = None, screen.width - ROOMY
    for row in rows:
        if row.part is not part:
            part = row.part
            table.add_row(Text(part.value, style="bold cyan"))
        event = printable(row.bound.event)
        cells: dict[str, Text | str] = {
            "": Text(row.name),
            "claimed ε": f"{row.claimed:.4g}",
            "δ": f"{row.bound.delta:g}",
            "ε is at least": f"{row.bound.epsilon:.3f}",
            "of the claim": f"{100 * row.share:.0f}%",
            "verdict": Text(row.verdict, style="" if row.expected else "bold red"),
            "seconds": f"{row.seconds:.1f}",
            "event": Text(event if len(event) <= room else f"{event[: room - 1]}…"),
        }
        table.add_row(*(cells[heading] for heading in headings))
    screen.print(table)
    wrong = [row.name for row in rows if not row.expected]
    told = f"not as expected: {', '.join(wrong)}" if wrong else "all as expected"
    screen.print(
        Text(f"{len(rows)} audits, {told}. A false alarm anywhere in this table has a chance of at most "
             f"{100 * (1 - confidence):.2g}%.")
    )  # fmt: skip


def _list(entries: Sequence[tuple[str, str]], command: str) -> None:
    _show_titled(entries)
    console().print(f"\nAudit one:  dither audit {command} NAME")


def _show_titled(entries: Iterable[tuple[str, str]]) -> None:
    """Titles and texts in two columns, of which the second is wrapped."""
    table = grid("title", "text", wrapped=["text"], header=False)
    for title, text in entries:
        table.add_row(Text(title, style="bold"), Text(text))
    console().print(table)


def _write(rows: Sequence[Row], folder: Path, confidence: float, title: str | None = None) -> None:
    from dither.audit.report.write import TITLE, write_report

    try:
        page = write_report(rows, folder, confidence=confidence, title=title or TITLE)
    except MissingLibrary as missing:
        say(str(missing))
        return
    console().print(Text(f"report: {page}"))


def _loaded(path: str) -> Any:
    """The function under a dotted path, from installed packages or this directory."""
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise InvalidParameter(f"name a function as package.module:function; got {path!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as problem:
        raise InvalidParameter(f"{module} can't be imported: {problem}") from None
    except AttributeError:
        raise InvalidParameter(f"{module} has no {name}: check the spelling") from None
    if not callable(found) and not hasattr(found, "release"):
        raise InvalidParameter(f"{path} isn't a function: name something that can be called with one input")
    return found


def _value(text: str, option: str) -> Any:
    """JSON, a Python literal, or nothing."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise InvalidParameter(
            f"{option} takes JSON or a Python literal, such as 0, [1, 2], 'text' or {{\"a\": 1}}; got {text!r}"
        ) from None


def printable_lines(text: str) -> str:
    """No control characters but the ends of lines."""
    return "\n".join(printable(line) for line in text.splitlines())
