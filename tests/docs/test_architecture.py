"""ARCHITECTURE.md tells the truth: its tree and picture are those of the code, and the files that it names exist."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
drawn = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
# a file or a folder of the repository, in backticks
NAMED = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+|[\w/]+\.(?:py|md|toml))`")


def test_the_tree_is_that_of_the_code():
    assert drawn["BEGIN"] + drawn["tree"]() + drawn["END"] in MAP, "run docs/architecture.py"


def test_the_picture_is_that_of_the_contract():
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["picture"](), "run docs/architecture.py"


def test_the_lines_of_the_tree_can_be_read_at_a_glance():
    assert [line for line in drawn["tree"]().splitlines() if len(line) > 130] == []


def test_every_named_file_exists():
    names = NAMED.findall(MAP)
    assert len(names) > 60
    source = ROOT / "src" / "dither"
    missing = [name for name in names if not (ROOT / name).exists() and not (source / name).exists()]
    assert missing == []


# packages whose tests stand elsewhere, and why
TESTED_IN = {
    "entropy": "noise",  # draws are held to their laws there
    "remote": "server",  # a client needs one to talk to
}


def test_tests_mirror_the_source():
    packages = {path.parent.name for path in (ROOT / "src" / "dither").glob("*/__init__.py")}
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))}
    assert packages - folders == set(TESTED_IN)
    assert set(TESTED_IN.values()) <= folders
    # the front door of questions, what goes through all layers, and the tests of tests
    assert folders - packages == {"docs", "laws", "noise", "power", "sql", "ways_in"}


PARTS = ("core", "local", "anonymize", "lab")


def test_the_parts_of_make_test_are_all_of_it():
    taken = []
    for part in PARTS:
        planned = subprocess.run(
            ["make", "-n", "test", f"PART={part}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        (line,) = (line for line in planned.splitlines() if "/pytest " in line)
        taken += re.findall(r"\b(?:tests|src)/\S+", line)
    assert len(taken) == len(set(taken))
    assert all((ROOT / path).is_dir() or path.endswith(".py") for path in taken)
    with_tests = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    with_tests |= {path.relative_to(ROOT) for path in (ROOT / "src").rglob("*.py")}
    covered = [Path(path) for path in taken]
    assert [path for path in sorted(with_tests) if not any(path.is_relative_to(one) for one in covered)] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/README.md"])
def test_who_reads_on_finds_the_map(page):
    assert "ARCHITECTURE.md)" in (ROOT / page).read_text(encoding="utf-8")
