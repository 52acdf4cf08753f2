"""Hints are for whoever asks: over psql, the page or HTTP they have no files of the repository."""

import ast
import difflib
import re
from pathlib import Path

import pytest
from tests.support.schemas import SHOP

from dither.errors import Refused, did_you_mean, near_names
from dither.query.sql.queries import bind
from dither.query.sql.scalars import unknown_function

SOURCE = Path(__file__).resolve().parents[2] / "src" / "dither"
FILES = re.compile(r"docs/|\.md\b|\.toml\b|\.py\b")


def hints(folder):
    """Every text that a refusal or a problem is made with, with its place."""
    for path in sorted((SOURCE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("refused", "Refused", "Problem", "failure", "mistyped", "SettingProblem"):
                for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    for text in ast.walk(part):
                        if isinstance(text, ast.Constant) and isinstance(text.value, str):
                            yield f"{path.name}:{text.lineno}", text.value


@pytest.mark.parametrize("folder", ["query", "curator", "server"])
def test_no_hint_names_a_file(folder):
    found = list(hints(folder))
    assert len(found) > 10
    assert [place for place, text in found if FILES.search(text)] == []


def test_an_unknown_function_is_told_its_neighbours():
    assert "upper" in unknown_function("uper").hint
    assert "coalesce" in unknown_function("x" * 5000).hint


COLUMNS = "Columns are: user_id, order_id, city, product, day, ts, amount, quantity, coupon, rating, score"
TABLES = "Tables are: " + ", ".join(sorted(SHOP.tables))
MISSPELT = {
    "SELECT AVG(ratng) FROM orders": f"Did you mean “rating”? {COLUMNS}",
    "SELECT AVG(orders.RATNG) FROM orders": f"Did you mean “rating”? {COLUMNS}",
    'SELECT COUNT(*) FROM orders WHERE "Rating" > 1': f"Did you mean “rating”? {COLUMNS}",
    'SELECT COUNT(*) FROM orders WHERE "ratng" > 1': f"Did you mean “rating”? {COLUMNS}",
    # “note” is the nearest, and hidden
    "SELECT COUNT(*) FROM orders WHERE noet = 'x'": COLUMNS,
    'SELECT COUNT(*) FROM orders WHERE "Note" = 1': COLUMNS,
    "SELECT COUNT(*) FROM orders WHERE qqqqqq = 1": COLUMNS,
    "SELECT COUNT(*) FROM ordres": f"Did you mean “orders”? {TABLES}",
    'SELECT COUNT(*) FROM "Orders"': f"Did you mean “orders”? {TABLES}",
    "SELECT COUNT(*) FROM qqqqqq": TABLES,
    "SELECT COUNT(ordres.city) FROM orders": "Did you mean “orders”?",
    "SELECT COUNT(*) FROM (SELECT ordres.* FROM orders) t": "Did you mean “orders”?",
    "SELECT COUNT(x.city) FROM orders": "",
    "SELECT cty FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t": (
        "Did you mean “city”? Columns are: city, n"
    ),
    "SELECT tt.n FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) ttt": "Did you mean “ttt”?",
}


def refusal(text):
    with pytest.raises(Refused) as caught:
        bind(text, SHOP)
    return caught.value


@pytest.mark.parametrize("text", MISSPELT)
def test_a_misspelt_name_is_told_the_nearest_that_may_be_told(text):
    error = refusal(text)
    assert error.code in ("unknown_column", "unknown_table")
    assert error.hint == MISSPELT[text]


@pytest.fixture
def compared(monkeypatch):
    """What was compared: (what was written, what with)."""
    found = []
    match = difflib.get_close_matches

    def watched(word, possibilities, *args, **kwargs):
        found.append((word, list(possibilities)))
        return match(word, possibilities, *args, **kwargs)

    monkeypatch.setattr(difflib, "get_close_matches", watched)
    return found


def test_of_names_of_any_length_a_bounded_part_is_compared(compared):
    error = refusal(f"SELECT COUNT(*) FROM orders WHERE {'x' * 60_000} = 1")
    assert error.hint == COLUMNS
    long = "y" * 150
    error = refusal(f"SELECT COUNT({'y' * 50}) FROM (SELECT amount AS {long} FROM orders) t")
    assert error.hint.startswith(f"Did you mean “{'y' * 60}”…?")
    many = [f"column_{number}" for number in range(20_000)]
    assert near_names("colunm_17", many, most=1) == ["column_17"]
    assert len(compared) == 3
    assert all(len(word) <= 60 and len(known) <= 1000 for word, known in compared)
    assert all(len(name) <= 60 for _, known in compared for name in known)


def test_a_name_in_another_case_is_found_among_any_number():
    assert did_you_mean("COLUMN_19999", [f"column_{number}" for number in range(20_000)]) == "column_19999"


def test_the_nearest_come_first():
    assert near_names("rating", ["grating", "RATING", "ratio", "city"]) == ["RATING", "grating", "ratio"]
    assert near_names("rating", ["grating", "RATING", "ratio", "city"], most=2) == ["RATING", "grating"]
    assert did_you_mean("rating", ["city"]) is None
    assert did_you_mean("rating", []) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT amount AS amuont, COUNT(*) FROM orders GROUP BY amuont ORDER BY amuont + 0",
        "SELECT city, COUNT(*) AS ciyt FROM orders GROUP BY city HAVING ciyt > 1 ORDER BY ciyt, ciyt + 1",
        "SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY user_id) AS dya FROM orders QUALIFY dya = 1) t",
    ],
)
def test_a_name_that_is_known_is_compared_with_no_other(text, compared):
    """An alias is tried after the columns: thousands of them must not cost thousands of searches."""
    bind(text, SHOP)
    assert compared == []
