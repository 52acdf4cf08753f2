"""A risk report: what it holds, and how it prints: as text, and as one HTML page that can be read on a phone."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dither.anonymize.risks.attackers import Attacker, Exposure
from dither.anonymize.risks.combinations import Combination
from dither.brief import printable
from dither.errors import InvalidParameter
from dither.pages import page, table
from dither.pictures import EXACT, FAINT, LINE, PRIVATE, inlined, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Who can be singled out"
FOR_THE_OWNER = "Exact facts about the data, without noise: for its owner only, not for publication."
SHOWN = 5
LONGEST_NAME = 28
WIDTH = 4.5

DOTS = (
    "Each dot is a combination of columns; the line joins the worst of each size. Whoever is alone with their values "
    "can be found by anybody who knows them."
)
BARS = (
    "Bars: by how many points of a hundred the expected share of identified people grows when the column is known "
    "besides others, on average over the combinations."
)
ATTACKERS = (
    "The prosecutor knows that a person is in the table. The journalist has to tell the person from everybody in the "
    "population who is alike. The marketer matches every row with a list of the population, and counts the right ones."
)
LIMITS = (
    "Risks follow El Emam & Dankar (2008) and Dankar & El Emam (2010). They are right if one row is one person, "
    "and if an attacker knows these columns and nothing else. Who knows what is a guess, and a table that looks safe "
    "here can be broken by knowledge nobody thought of, or by a second release about the same people. Only noise with "
    "a proven loss holds whatever is known."
)

STYLE = """
.owner { border-left: 4px solid var(--warm); padding: .4rem .8rem; background: var(--warmer); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.fact { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; min-width: 0; }
.fact b { display: block; font-size: 1.5rem; line-height: 1.2; }
.fact span { color: var(--faint); font-size: .85rem; }
svg { width: 100%; max-width: 34rem; }
td:first-child { overflow-wrap: anywhere; }
td.adds, th.adds { width: 34%; min-width: 6.5rem; } td small { display: block; color: var(--faint); }
.bar { display: inline-block; height: .8em; background: var(--bar); margin-right: .4em; }
@media (max-width: 34rem) { .extra { display: none; } body { padding: .7rem; } }
@media print { svg, table, .facts { break-inside: avoid; } }
"""


class Notice(Enum):
    """What a column is noticed for."""

    IDENTIFIER = "as good as a name: remove or coarsen it"
    """By itself it leaves nearly all rows alone, so it isn't combined with others."""
    CONSTANT = "the same for everybody: tells nothing"
    """It has one value, and isn't combined either."""
    DETERMINED = "told by another column already"
    """Equal values of another column always come with equal values of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRisk:
    """What one column gives away, alone and together with others.

    ``bits`` is its entropy: log2 of the number of rows would be needed to tell everybody apart. ``gain`` is how much
    the share of people who are expected to be identified grows when the column is known besides others, on average over
    the combinations of every size that was searched among all columns; None if it wasn't combined.
    """

    name: str
    distinct: int
    missing: int
    bits: float
    alone: Combination
    gain: float | None = None
    notice: Notice | None = None
    determined_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskReport:
    """Which columns single people out: prints as text, and saves itself as a page with pictures.

    ``columns`` begins with those that add most; ``combinations`` with those that tell most apart. ``exposure`` is about
    the columns that were asked for, or about the worst combination.
    """

    rows: int
    k: int
    most: int
    columns: tuple[ColumnRisk, ...]
    combinations: tuple[Combination, ...]
    exposure: Exposure
    notes: tuple[str, ...]

    def of_size(self, size: int) -> tuple[Combination, ...]:
        """The combinations of so many columns, worst first."""
        return tuple(each for each in self.combinations if len(each.columns) == size)

    @property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """The columns that tell people apart together with others, most telling first, without near-identifiers."""
        return tuple(each.name for each in self.columns if each.notice in (None, Notice.DETERMINED))

    def minimal_sets(self, share: float = 0.5) -> tuple[Combination, ...]:
        """Every combination that leaves at least this share of the rows alone, if it doesn't with a column less.

        The quasi-identifiers in the sense of Motwani & Xu (2007), smallest first. A column that does it by itself is
        one, so near-identifiers are too.
        """
        enough = {each.columns: each for each in self.combinations if each.unique_share >= share}
        minimal = [
            each
            for names, each in enough.items()
            if not any(tuple(other for other in names if other != name) in enough for name in names)
        ]
        return tuple(sorted(minimal, key=lambda each: len(each.columns)))

    def __str__(self) -> str:
        return as_text(self)

    def to_html(self) -> str:
        """One page that needs nothing else; raises MissingLibrary where matplotlib isn't installed."""
        return as_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file that ends in .html."""
        place = Path(path)
        if place.suffix != ".html":
            raise InvalidParameter(f"a risk report is saved as .html; got {place.name!r}")
        page = self.to_html()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(page, encoding="utf-8")
        except OSError:
            raise InvalidParameter(f"the report can't be written to {str(place)!r}: choose another place") from None
        return place


def percent(share: float) -> str:
    """A share as people read it; what isn't none never becomes 0%, what isn't all never becomes 100%."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f}%"
    if share < 0.0001:
        return "< 0.01%"
    if share > 0.9999:
        return "> 99.99%"
    for digits in (0, 1, 2):
        text = f"{100 * share:.{digits}f}"
        enough = share >= 0.1 if digits == 0 else share >= 0.01 if digits == 1 else True
        if enough and float(text) not in (0.0, 100.0):
            return f"{text}%"
    return f"{100 * share:.2f}%"


def shown(name: str) -> str:
    """A column's name as it may be printed: names come with the data, and must not steer a terminal or turn a line."""
    return printable(name) or "(no name)"


def joined(names: Sequence[str]) -> str:
    """Column names as one text."""
    return " + ".join(map(shown, names))


def counted(number: int, one: str, many: str) -> str:
    """A number of things."""
    return f"{number:,} {one if number == 1 else many}"


# ------------------------------------------------------------------ text


def as_text(report: RiskReport) -> str:
    """The report for a terminal or a log."""
    lines = [f"{size_of(report)}. {FOR_THE_OWNER}", ""]
    lines.append(f"{'column':<{LONGEST_NAME}} {'distinct':>10} {'alone':>9} {'bits':>6} {'adds':>8}  notice")
    lines += [
        f"{_short(column.name):<{LONGEST_NAME}} {column.distinct:>10,} "
        f"{percent(column.alone.unique_share):>9} {column.bits:>6.1f} {gain(column):>8}  {notice(column)}".rstrip()
        for column in report.columns
    ]
    combined = [
        f"{joined(found.columns):<50} {percent(found.unique_share):>9} {percent(found.small_share):>9} "
        f"{found.smallest:>9,} {percent(found.expected):>9}"
        for size in range(1, report.most + 1)
        for found in worst(report, size)
    ]
    if combined:
        lines += ["", f"{'known':<50} {'alone':>9} {f'in < {report.k}':>9} {'smallest':>9} {'expected':>9}", *combined]
    lines += ["", *summary(report), *(f"note: {shown(note)}" for note in report.notes)]
    return "\n".join(lines)


def _short(name: str) -> str:
    name = shown(name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def size_of(report: RiskReport) -> str:
    """How many rows and columns were looked at."""
    return f"{counted(report.rows, 'row', 'rows')}, {counted(len(report.columns), 'column', 'columns')}"


def worst(report: RiskReport, size: int, shown: int = SHOWN) -> tuple[Combination, ...]:
    """The worst combinations of one size, without columns that are noticed for being names or constant."""
    left_out = {each.name for each in report.columns if each.notice in (Notice.IDENTIFIER, Notice.CONSTANT)}
    return tuple(each for each in report.of_size(size) if not left_out.intersection(each.columns))[:shown]


def gain(column: ColumnRisk) -> str:
    """What the column adds to others, in points of a hundred."""
    return "" if column.gain is None else f"{100 * column.gain:.2f}"


def notice(column: ColumnRisk) -> str:
    """What the column is noticed for."""
    if column.notice is None:
        return ""
    return column.notice.value if column.determined_by is None else f"told by {shown(column.determined_by)}"


def summary(report: RiskReport) -> list[str]:
    """The findings in sentences."""
    found = []
    names = [each.name for each in report.columns if each.notice is Notice.IDENTIFIER]
    if names:
        found.append(f"As good as names, and not combined with others: {', '.join(map(shown, names))}.")
    half = next(
        (each for size in range(1, report.most + 1) for each in worst(report, size, 1) if each.unique_share >= 0.5),
        None,
    )
    if half is not None:
        found.append(
            f"{joined(half.columns)} {'is' if len(half.columns) == 1 else 'are'} enough to single out "
            f"{percent(half.unique_share)} of the rows."
        )
    elif not worst(report, 1):
        found.append(f"No {'other ' if names else ''}column tells people apart.")
    else:
        sizes = "one column" if report.most == 1 else f"up to {report.most} columns"
        found.append(f"No {'other ' if names else ''}combination of {sizes} leaves half of the rows alone.")
    return [*found, *told(report.exposure)]


def told(known: Exposure) -> list[str]:
    """What the three attackers can do, in sentences."""
    prosecutor, alone = known.prosecutor, percent(known.unique / known.rows)
    classes = counted(known.classes, "class", "classes")
    classes += f"; the smallest has {counted(known.smallest, 'row', 'rows')}"
    lines = [
        f"Whoever knows {joined(known.columns)} meets {classes}, and {alone} of the rows are alone.",
        f"Prosecutor (knows that somebody is in the table): {_risk_of(prosecutor, known.k)}",
    ]
    if known.journalist is None:
        lines.append("Journalist (doesn't know it): at most the prosecutor's; give a population to know it better.")
    else:
        lines.append(f"Journalist (doesn't know it): {_risk_of(known.journalist, known.k)}")
    most = "at most " if known.journalist is None else ""
    lines.append(
        f"Marketer (matches everybody): {most}{percent(known.marketer)} of the rows are expected to be identified."
    )
    if known.absent:
        lines.append(
            f"{counted(known.absent, 'row has', 'rows have')} no counterpart in the population: is it really "
            "everybody, written the same way? What it lacks was counted as if it were there."
        )
    return lines


def _risk_of(attacker: Attacker, k: int) -> str:
    at_risk, highest, success = _risks(attacker)
    return f"risk up to {highest}, {success} on average; above 1/{k} for {at_risk} of the rows."


# ------------------------------------------------------------------ page


def as_page(report: RiskReport) -> str:
    """The report as one HTML page with its pictures in it."""
    known = report.exposure
    these = "it" if len(known.columns) == 1 else "all of these"
    body = [
        f"<h1>{TITLE}</h1>",
        f'<p class="owner">{html.escape(FOR_THE_OWNER)}</p>',
        _facts(report),
        *(f"<p>{html.escape(line)}</p>" for line in summary(report)),
        *(f'<p class="faint small">{html.escape(shown(note))}</p>' for note in report.notes),
        *_by_size(report),
        "<h2>Which columns do it</h2>",
        f"<p>{BARS}</p>",
        _columns(report),
        f"<h2>{html.escape(joined(known.columns))}</h2>",
        f"<p>How many rows are alike in {these}? Rows in classes of fewer than {known.k} are orange.</p>",
        _drawn(lambda figure: _draw_bands(figure, known), "bands", 2.9),
        _attackers(known),
        *(f'<p class="faint small">{html.escape(text)}</p>' for text in (ATTACKERS, LIMITS)),
    ]
    return page(TITLE, body, style=STYLE)


def _by_size(report: RiskReport) -> list[str]:
    """What combinations of each size tell; nothing if there is nothing to combine."""
    if not worst(report, 1):
        return []
    return [
        "<h2>How many are alone, by how much is known</h2>",
        f"<p>{DOTS}</p>",
        _drawn(lambda figure: _draw_sizes(figure, report), "sizes", 2.9),
        _combinations(report),
    ]


def _facts(report: RiskReport) -> str:
    known = report.exposure
    most = ", at most" if known.journalist is None else ""
    facts = [
        (f"{report.rows:,}", "row" if report.rows == 1 else "rows"),
        (percent(known.unique / known.rows), f"are alone by {joined(known.columns)}"),
        (f"{known.smallest:,}", f"{'row' if known.smallest == 1 else 'rows'} in the smallest class"),
        (percent(known.marketer), f"expected to be identified{most}"),
    ]
    cells = "".join(f'<div class="fact"><b>{html.escape(a)}</b><span>{html.escape(b)}</span></div>' for a, b in facts)
    return f'<div class="facts">{cells}</div>'


def _combinations(report: RiskReport) -> str:
    head = (("known", ""), ("alone", "n"), (f"in < {report.k}", "n"), ("smallest", "n extra"), ("expected", "n extra"))
    rows, sizes = [], []
    for size in range(1, report.most + 1):
        for found in worst(report, size):
            shares = (percent(found.unique_share), percent(found.small_share))
            rows.append((joined(found.columns), *shares, f"{found.smallest:,}", percent(found.expected)))
            sizes.append(size)
    return table(head, [tuple(map(html.escape, row)) for row in rows], sizes)


def _columns(report: RiskReport) -> str:
    head = (("column", ""), ("adds", "adds"), ("distinct", "n extra"), ("alone", "n"), ("bits", "n extra"),
            ("missing", "n extra"))  # fmt: skip
    most = max((column.gain or 0.0 for column in report.columns), default=0.0)
    rows = [
        (
            html.escape(shown(column.name))
            + (f"<small>{html.escape(notice(column))}</small>" if column.notice else ""),
            _bar(column, most),
            f"{column.distinct:,}",
            html.escape(percent(column.alone.unique_share)),
            f"{column.bits:.1f}",
            html.escape(percent(column.missing / report.rows)),
        )
        for column in report.columns
    ]
    return table(head, rows)


def _bar(column: ColumnRisk, most: float) -> str:
    """What a column adds as a bar, and as a number; drawn by the page, which has letters for every language."""
    if column.gain is None:
        return ""
    part = max(0.0, column.gain) / most if most else 0.0
    return f'<span class="bar" style="width: calc((100% - 3.4rem) * {part:.3f})"></span>{gain(column)}'


def _attackers(known: Exposure) -> str:
    head = (("attacker", ""), (f"above 1/{known.k}", "n"), ("highest", "n"), ("on average", "n"))
    rows: list[tuple[str, ...]] = [("prosecutor", *_risks(known.prosecutor))]
    if known.journalist is not None:
        rows.append(("journalist", *_risks(known.journalist)))
    else:
        rows.append(("journalist", *(f"≤ {each}" for each in _risks(known.prosecutor))))
    most = "≤ " if known.journalist is None else ""
    rows.append(("marketer", "", "", f"{most}{percent(known.marketer)}"))
    return table(head, [tuple(map(html.escape, row)) for row in rows])


def _risks(attacker: Attacker) -> tuple[str, str, str]:
    return percent(attacker.at_risk), percent(attacker.highest), percent(attacker.success)


# ------------------------------------------------------------------ pictures


def _drawn(draw: Callable[[Figure], None], name: str, height: float) -> str:
    """A picture as part of the page; its names get a prefix, since a page has each name once."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{name}.svg"
        with picture(place, width=WIDTH, height=height) as figure:
            draw(figure)
        return inlined(place, name)


def _draw_sizes(figure: Figure, report: RiskReport) -> None:
    axes = figure.add_subplot()
    sizes = range(1, report.most + 1)
    tops = []
    for size in sizes:
        found = worst(report, size, len(report.combinations))
        shares = [100 * each.unique_share for each in found]
        spread = [size + 0.24 * ((7 * place + 5) % 11 / 5 - 1) for place in range(len(shares))]
        axes.plot(spread, shares, "o", color=PRIVATE, markersize=4, alpha=0.45, markeredgewidth=0)
        if found:
            tops.append((size, shares[0]))
    axes.plot([size for size, _ in tops], [share for _, share in tops], "-", color=EXACT)
    for size, share in tops:
        axes.annotate(
            percent(share / 100), xy=(size, share), xytext=(-4, 4), textcoords="offset points", ha="right", color=EXACT
        )
    last = max((size for size, _ in tops), default=1)
    axes.set(xlabel="columns known", ylabel="rows alone, %", xticks=range(1, last + 1), xlim=(0.5, last + 0.5))
    top = max([1.0, *(share for _, share in tops)])
    axes.set_ylim(-0.04 * top, 1.15 * top)
    axes.grid(visible=False, axis="x")


def _draw_bands(figure: Figure, known: Exposure) -> None:
    axes = figure.add_subplot()
    shares = [100 * band.rows / known.rows for band in known.bands]
    colours = [EXACT if band.low < known.k else PRIVATE for band in known.bands]
    axes.bar(range(len(shares)), shares, color=colours, width=0.75)
    for place, (share, band) in enumerate(zip(shares, known.bands, strict=True)):
        text, colour = (percent(share / 100), LINE) if band.rows else ("0", FAINT)
        axes.annotate(text, (place, share), (0, 2), textcoords="offset points", ha="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(shares)), [str(band) for band in known.bands], rotation=35, ha="right")
    axes.set(xlabel="size of the class", ylabel="rows, %")
    axes.margins(y=0.15)
    axes.grid(visible=False, axis="x")
