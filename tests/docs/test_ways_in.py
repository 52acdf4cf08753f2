"""The table of ways in is complete: every attack has a test that exists, or is listed among the known weaknesses."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "ways-in.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (C\d+) \|(.*)\|$", re.MULTILINE)
OPEN = "not closed: "


def names_of_all_tests():
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)}


def test_every_attack_is_listed_once_in_order():
    assert [number for number, _ in ROW.findall(TEXT)] == [f"C{n}" for n in range(1, 30)]


def test_every_attack_has_a_test_or_is_a_known_weakness():
    there = names_of_all_tests()
    weaknesses = (ROOT / "docs" / "known-weaknesses.md").read_text(encoding="utf-8")
    for number, rest in ROW.findall(TEXT):
        last = rest.split(" | ")[-1].strip()
        if last.startswith(OPEN):
            assert f"\n### {last.removeprefix(OPEN)}\n" in weaknesses, number
        else:
            assert re.findall(r"`(\w+)`", last), number
    named = re.findall(r"`(test_\w+)`", TEXT)
    assert set(named) <= there


def test_every_test_says_which_attack_it_is():
    """A test of tests/ways_in has the number of its attack in its docstring, or "Besides" where it has none."""
    for path in (ROOT / "tests" / "ways_in").glob("test_*.py"):
        for name, said in re.findall(r'^def (test_\w+)\([^)]*\):\n    """(.*)', path.read_text(encoding="utf-8"), re.M):
            assert re.match(r"(C\d+|Besides)", said), f"{path.name}: {name}"
            assert set(re.findall(r"_(c\d+)", name)) <= {number.lower() for number in re.findall(r"C\d+", said)}, name
