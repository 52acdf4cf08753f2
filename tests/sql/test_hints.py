"""Hints are for whoever asks: over psql, the page or HTTP they have no files of the repository."""

import ast
import re
from pathlib import Path

import pytest

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
