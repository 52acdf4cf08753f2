"""The report of an audit as two files: Markdown for the documentation, and one HTML page that needs nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from dither.audit.report._pictures import by_part, draw_bounds, draw_histograms
from dither.audit.suite.run import Part, Row
from dither.errors import InvalidParameter
from dither.pages import page, table
from dither.pictures import inlined

PICTURES = "pictures"
TITLE = "Audit of dither"
HEADINGS = ("what", "claimed ε", "lower bound", "of the claim", "verdict", "event")
METHOD = (
    "An audit draws outputs on two neighbouring inputs, looks for an event that tells them apart, and counts it on "
    "fresh draws. That gives a lower bound on ε, whatever is claimed. A bound above the claimed ε refutes the claim. A "
    "bound just below it says that the claim is tight, and that the audit would have refuted a smaller one. A bound "
    "far below it says that the time was too short, or that no input tried was the worst."
)
CONFIDENCE = (
    "With probability at least {:g}% no claim on this page is called broken that holds: the failure is divided among "
    "all rows."
)

# As the columns of HEADINGS are set.
COLUMNS = tuple(zip(HEADINGS, ("", "n", "n", "n", "", "event"), strict=True))

STYLE = """
body { max-width: 52rem; } h3 { font-size: 1.05rem; margin: 0 0 .3rem; } a { color: inherit; }
.wide { overflow-x: auto; }
article { border-top: 1px solid var(--line); padding: 1rem 0; }
article p { margin: .2rem 0; overflow-wrap: anywhere; }
code { font-size: .85em; overflow-wrap: anywhere; }
.held { color: var(--held); } .bad { color: var(--broken); font-weight: 600; }
@media (max-width: 40rem) { .event { display: none; } body { padding: .7rem; } }
"""


def write_report(rows: Sequence[Row], folder: str | Path, *, confidence: float = 0.99, title: str = TITLE) -> Path:
    """Write report.md with pictures beside it, and report.html, which holds them.

    Args:
        rows: What was found, a row for each audit.
        folder: Where to write; made if it isn't there.
        confidence: That of all rows together.
        title: The head of the report.

    Returns:
        The path of the HTML file.

    Raises:
        MissingLibrary: Where matplotlib isn't installed.
    """
    if not rows:
        raise InvalidParameter("there is nothing to report: audit something first")
    place = Path(folder)
    pictures = place / PICTURES
    names = _names(rows)
    charts: dict[Part, Path] = {}
    for part, some in by_part(rows).items():
        charts[part] = pictures / f"bounds-{part.name.lower()}.svg"
        draw_bounds(some, charts[part])
    plots: dict[str, Path] = {}
    for name, row in names.items():
        if row.bound.sketch is not None:
            plots[name] = pictures / f"{name}.svg"
            draw_histograms(row.bound.sketch, plots[name])
    intro = _intro(rows, confidence)
    (place / "report.md").write_text(_markdown(title, intro, names, charts, plots), encoding="utf-8")
    written = place / "report.html"
    written.write_text(_html(title, intro, names, charts, plots), encoding="utf-8")
    return written


def _names(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by a name that files and links can have."""
    named: dict[str, Row] = {}
    for row in rows:
        plain = re.sub(r"[^a-z0-9]+", "-", f"{row.part.name}-{row.name}".lower()).strip("-")
        while plain in named:
            plain += "-more"
        named[plain] = row
    return named


def _intro(rows: Sequence[Row], confidence: float) -> list[str]:
    unexpected = [row for row in rows if not row.expected]
    caught = sum(row.part is Part.BROKEN and row.broken for row in rows)
    broken = sum(row.part is Part.BROKEN for row in rows)
    held = sum(row.part is not Part.BROKEN and not row.broken for row in rows)
    seconds = sum(row.seconds for row in rows)
    return [
        f"{len(rows)} audits in {seconds / 60:.1f} minutes. "
        + (
            f"All as expected: {held} claims held"
            if not unexpected
            else f"NOT as expected: {', '.join(row.name for row in unexpected)}. {held} claims held"
        )
        + (f", {caught} of {broken} broken mechanisms were caught." if broken else "."),
        METHOD,
        CONFIDENCE.format(100 * confidence),
    ]


def _told(row: Row) -> list[str]:
    """What is said about a row besides its numbers."""
    bound = row.bound
    other = "x" if bound.more_likely == "x_neighbour" else "its neighbour"
    first = "x" if bound.more_likely == "x" else "its neighbour"
    told = [
        f"Claim: {row.claim}. Lower bound: {_bound(row)} with confidence {_percent(bound.confidence)}.",
        f"Event: {bound.event}. Probability {_between(bound.p)} under {first}, {_between(bound.q)} under {other}.",
        f"{bound.draws:,} draws, {row.seconds:.1f} s.",
        *bound.caveats,
    ]
    if row.neighbours is not None:
        test = row.neighbours
        moved = "; ".join(f"{each.what} {100 * each.share:.0f}%" for each in test.movements)
        told.append(
            f"Neighbours: {test.pairs} pairs of tables, one unit moved something in {test.moved}; largest movement of "
            f"what was claimed: {moved}."
        )
        told += [f"BROKEN {each}" for each in test.broken]
    return told


def _bound(row: Row) -> str:
    delta = f" at δ = {row.bound.delta:g}" if row.bound.delta else ""
    return f"ε ≥ {row.bound.epsilon:.3f}{delta}"


def _cells(row: Row) -> tuple[str, ...]:
    delta = f" (δ = {row.bound.delta:g})" if row.bound.delta else ""
    share = f"{100 * row.share:.0f}%"
    return (f"{row.claimed:.3f}{delta}", f"{row.bound.epsilon:.3f}", share, row.verdict, row.bound.event)


def _between(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3g} to {interval[1]:.3g}"


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.6g}%"


# ------------------------------------------------------------------ Markdown


def _markdown(
    title: str, intro: Sequence[str], names: dict[str, Row], charts: dict[Part, Path], plots: dict[str, Path]
) -> str:
    lines = [f"# {title}", ""]
    for text in intro:
        lines += [_escaped(text), ""]
    for part, chart in charts.items():
        lines += [f"## {_title(part)}", "", f"![lower bounds]({PICTURES}/{chart.name})", ""]
        lines += [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
        for row in names.values():
            if row.part is part:
                lines.append(f"| {' | '.join(_escaped(cell) for cell in (row.name, *_cells(row)))} |")
        lines.append("")
        for name, row in names.items():
            if row.part is not part:
                continue
            lines += [f"### {_escaped(row.name)}", "", f"{_about(row)}", ""]
            lines += [part_of_it for told in _told(row) for part_of_it in (_escaped(told), "")]
            if name in plots:
                lines += [f"![{_escaped(row.name)}]({PICTURES}/{plots[name].name})", ""]
    return "\n".join(lines).rstrip() + "\n"


def _about(row: Row) -> str:
    return f"`{row.about}`" if row.part is Part.QUESTIONS else _escaped(row.about)


def _escaped(text: str) -> str:
    return re.sub(r"([|<>\[\]*_`])", r"\\\1", text)


def _title(part: Part) -> str:
    return part.value[0].upper() + part.value[1:]


# ------------------------------------------------------------------ HTML


def _html(
    title: str, intro: Sequence[str], names: dict[str, Row], charts: dict[Part, Path], plots: dict[str, Path]
) -> str:
    body = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(text)}</p>" for text in intro)]
    for part, chart in charts.items():
        own = {name: row for name, row in names.items() if row.part is part}
        body += [f"<h2>{html.escape(_title(part))}</h2>", inlined(chart, f"chart-{part.name.lower()}")]
        body.append(_table(own))
        body += [_article(name, row, plots.get(name)) for name, row in own.items()]
    return page(title, body, style=STYLE)


def _table(rows: dict[str, Row]) -> str:
    lines = []
    for name, row in rows.items():
        claimed, bound, share, verdict, event = map(html.escape, _cells(row))
        link = f'<a href="#{name}">{html.escape(row.name)}</a>'
        lines.append((link, claimed, bound, share, f'<span class="{_class(row)}">{verdict}</span>', event))
    return f'<div class="wide">{table(COLUMNS, lines)}</div>'


def _class(row: Row) -> str:
    return "held" if row.expected else "bad"


def _article(name: str, row: Row, plot: Path | None) -> str:
    about = f"<code>{html.escape(row.about)}</code>" if row.part is Part.QUESTIONS else html.escape(row.about)
    lines = [
        f'<article id="{name}"><h3>{html.escape(row.name)} <span class="{_class(row)}">{row.verdict}</span></h3>',
        f'<p class="faint small">{about}</p>',
        *(f'<p class="small">{html.escape(told)}</p>' for told in _told(row)),
        "" if plot is None else inlined(plot, name),
        "</article>",
    ]
    return "\n".join(line for line in lines if line)
