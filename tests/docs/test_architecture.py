"""ARCHITECTURE.md tells the truth: its tree and picture are those of the code, and the files that it names exist."""

import re
import runpy
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


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/README.md"])
def test_who_reads_on_finds_the_map(page):
    assert "ARCHITECTURE.md)" in (ROOT / page).read_text(encoding="utf-8")
