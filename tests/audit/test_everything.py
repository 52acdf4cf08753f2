"""Everything that dither claims, in a short form; nothing is forgotten; and what comes out as a report."""

import inspect
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dither import mechanisms
from dither.audit.queries.audit import audit_query
from dither.audit.report.write import write_report
from dither.audit.result import Verdict
from dither.audit.suite import run as everything
from dither.audit.suite.mechanisms import subject, subjects
from dither.audit.suite.questions import QUESTIONS, ShopBudget, shop
from dither.audit.suite.run import Part, Row, audit_everything, audit_named_specimen, audit_subject, rows_of
from dither.audit.zoo import specimens
from dither.cli.audit import show_rows
from dither.errors import InvalidParameter
from dither.mechanisms import Laplace
from dither.query.plan.plan import Function
from dither.query.sql import bind
from dither.query.sql.aggregates import AGGREGATES
from support.sizes import short_or_full, some

ROOT = Path(__file__).resolve().parents[2]
SURE = 1 - 1e-6
# One person's value: refused, so there is nothing to audit.
REFUSED = {"min", "max"}


# ------------------------------------------------------------------ nothing is forgotten


def test_every_mechanism_is_audited():
    exported = {
        name
        for name in mechanisms.__all__
        if inspect.isclass(getattr(mechanisms, name))
        and (hasattr(getattr(mechanisms, name), "release") or hasattr(getattr(mechanisms, name), "start"))
    }
    assert {each.name for each in subjects()} == exported
    # what is exported besides are losses and a formula, which release nothing
    assert set(mechanisms.__all__) - exported == {
        "BoundedRangeLoss",
        "GaussianLoss",
        "LaplaceLoss",
        "classical_gaussian_scale",
    }


def test_every_aggregate_is_audited():
    asked = {name for question in QUESTIONS for name in question.aggregates}
    assert asked == set(AGGREGATES.values()) - REFUSED
    bound = {
        aggregate.function
        for question in QUESTIONS
        for aggregate in bind(question.sql, shop(question.currency).schema).aggregation.aggregates
    }
    assert bound == set(Function)
    # the documentation's table of aggregates names no other
    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    table = text.partition("## Aggregates")[2].partition("\nAny of them")[0]
    written = {name.lower() for name in re.findall(r"`([A-Za-z_]+)[(`]", table)}
    assert written <= set(AGGREGATES) - REFUSED
    assert {AGGREGATES[name] for name in written} <= asked


def test_questions_are_what_they_are_there_for():
    for question in QUESTIONS:
        text = question.sql.lower()
        for name in question.aggregates:
            spellings = [spelling for spelling, meaning in AGGREGATES.items() if meaning == name]
            assert any(f"{spelling}(" in text for spelling in spellings), question.name
    assert {question.currency for question in QUESTIONS} == set(ShopBudget)
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)


def test_a_mechanism_is_found_by_its_name():
    assert subject("laplace").name == "Laplace"
    with pytest.raises(InvalidParameter, match="no mechanism of dither; known are DiscreteGaussian"):
        subject("Laplac")


# ------------------------------------------------------------------ the short form


@pytest.mark.parametrize("part", [Part.MECHANISMS, Part.QUESTIONS])
def test_all_claims_hold(part, monkeypatch):
    seen: list[Row] = []
    # a question costs half a second whatever its budget; tests/laws/neighbours has every aggregate by day
    questions = some(QUESTIONS, 10)
    monkeypatch.setattr(everything, "QUESTIONS", questions)
    rows = audit_everything(
        budget_each=short_or_full(0.1, 0.25), confidence=SURE, parts=[part], workers=1, found=seen.append
    )
    assert tuple(seen) == rows
    assert [row.name for row in rows if not row.expected] == []
    expected = subjects() if part is Part.MECHANISMS else questions
    assert [row.name for row in rows] == [each.name for each in expected]
    # a false alarm anywhere has a chance of a millionth
    for row in rows:
        # a question has two bounds, and a third one where a key may be one unit's alone
        most = 1 if part is Part.MECHANISMS else 3 if "discovered" in row.name else 2
        bounds = 1e-6 / len(rows) / (1 - row.bound.confidence)
        assert bounds == pytest.approx(round(bounds), rel=1e-6)
        assert min(most, 2) <= round(bounds) <= most
    if part is Part.QUESTIONS:
        assert all(row.neighbours.pairs >= 6 for row in rows)
        assert sum(row.neighbours.furthest == 1.0 for row in rows) >= len(rows) // 2


def test_both_parts_of_the_zoo_are_in_the_table(monkeypatch):
    chosen = [each for each in specimens() if each.name in ("laplace", "laplace-20-percent-short")]
    monkeypatch.setattr(everything, "specimens", lambda: chosen)
    heard = []
    rows = audit_everything(
        budget_each=0.5,
        confidence=SURE,
        parts=(Part.RIGHT, Part.BROKEN),
        watch=lambda share, doing: heard.append((share, doing)),
    )
    assert [(row.name, row.verdict, row.expected) for row in rows] == [
        ("laplace", "held", True),
        ("laplace-20-percent-short", "caught", True),
    ]
    assert rows[1].share > 1 > rows[0].share > 0.5
    assert "20%" in rows[1].about or rows[1].about
    shares = [share for share, _ in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(doing.startswith("laplace-20-percent-short: ") for _, doing in heard)


def test_the_whole_table_has_all_parts():
    works = {part: len(list(everything._works(part))) for part in Part}
    assert works[Part.MECHANISMS] == len(subjects())
    assert works[Part.QUESTIONS] == len(QUESTIONS)
    assert works[Part.RIGHT] + works[Part.BROKEN] == len(specimens())
    assert inspect.signature(audit_everything).parameters["parts"].default == tuple(Part)


def test_a_mechanism_with_too_little_noise_is_not_as_expected(monkeypatch):
    short = replace(subject("Laplace"), mechanism=Laplace("4/5"))
    assert audit_subject(short, budget=2, confidence=SURE).verdict is Verdict.BROKEN
    monkeypatch.setattr(everything, "subjects", lambda: (short,))
    (row,) = audit_everything(budget_each=2, confidence=SURE, parts=[Part.MECHANISMS])
    assert (row.verdict, row.expected) == ("BROKEN", False)


def test_one_specimen_by_its_name():
    row = audit_named_specimen("one-sided-answers", confidence=SURE)
    assert (row.part, row.verdict) == (Part.BROKEN, "caught")
    with pytest.raises(InvalidParameter, match="did you mean one-sided-answers"):
        audit_named_specimen("one-sided-answer")


# ------------------------------------------------------------------ the report


@pytest.fixture(scope="module")
def rows():
    right = audit_everything_of(("Laplace", "DiscreteLaplace", "KaryResponse"))
    caught = audit_named_specimen("laplace-in-floats", budget=2)
    question = audit_query(
        shop(ShopBudget.PURE), "SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=2, budget=0.5, pairs=6
    )
    return (*right, *rows_of(question), caught)


def audit_everything_of(names):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(everything, "subjects", lambda: [subject(name) for name in names])
        return audit_everything(budget_each=0.2, parts=[Part.MECHANISMS])


@pytest.mark.nightly
def test_the_report_needs_nothing_else(rows, tmp_path):
    page = write_report(rows, tmp_path / "new" / "report", confidence=0.99)
    assert page.name == "report.html"
    text = page.read_text(encoding="utf-8")
    # nothing is loaded and nothing is run
    assert set(re.findall(r"https?://[^\"'<> )]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for word in ("<script", "<link", "<img", "src=", "@import"):
        assert word not in text
    assert '<meta name="viewport"' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert wanted <= set(ids)
    # a plot for each row, and one of the bounds for each part
    drawn = sum(row.bound.sketch is not None for row in rows)
    assert text.count("<svg") == drawn + 3
    for row in rows:
        assert f"<h3>{row.name}" in text
    assert "All as expected: 5 claims held, 1 of 1 broken mechanisms were caught." in text
    assert "at least 99%" in text


def test_the_markdown_shows_the_same_with_pictures_beside_it(rows, tmp_path):
    write_report(rows, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert len(pictures) == len(set(pictures))
    assert {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "pictures").iterdir()} == set(pictures)
    for row in rows:
        assert f"### {row.name}" in text
        assert f"| {row.verdict} |" in text
    table = [line for line in text.splitlines() if line.startswith("| Laplace |")]
    assert len(table) == 1
    assert len(re.split(r"(?<!\\)\|", table[0])) == 8


def test_the_report_says_what_is_not_as_expected(rows, tmp_path):
    wrong = replace(rows[0], broken=True)
    page = write_report((wrong, *rows[1:]), tmp_path, title="Mine <b>")
    text = page.read_text(encoding="utf-8")
    assert "NOT as expected: Laplace" in text
    assert '<span class="bad">BROKEN</span>' in text
    assert "<title>Mine &lt;b&gt;</title>" in text
    with pytest.raises(InvalidParameter, match="nothing to report"):
        write_report((), tmp_path)


@pytest.mark.parametrize("width", [80, 100, 108, 120, 160])
def test_the_table_fits_the_screen(rows, width):
    """Longest names, verdicts and events: nothing that decides is cut, every audit has one line."""
    told = io.StringIO()
    long = replace(rows[0], name="randomised-response-under-add-remove", part=Part.BROKEN, broken=False)
    long = replace(long, bound=replace(long.bound, event="output is " + "one of many " * 20, delta=0.094))
    show_rows([long], Console(file=told, width=width), 0.99)
    heading, _, line, *_ = told.getvalue().splitlines()
    assert "verdict" in heading
    assert "claimed ε" in heading
    assert "randomised-response-under-add-remove " in line
    assert " 0.094 " in line
    assert "NOT CAUGHT" in line
    assert (" output is" in line) == (width >= 120)
    assert ("seconds" in heading) == (width >= 108)
