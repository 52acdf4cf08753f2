"""The versions that are required are those that are tested: bounds, what `make lowest` installs, what is running."""

import importlib.util
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dither.engines.duckdb.behaviour import LOWEST_VERSION

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("lowest_versions", ROOT / "tests" / "lowest.py")
lowest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lowest)

PARTS = [lowest.taken_apart(each) for each in lowest.stated(hard=False)]
RUNNING = os.environ.get("DITHER_LOWEST", "")


def applies(marker):
    return not marker or Marker(marker.lstrip("; ")).evaluate()


@pytest.mark.parametrize(("name", "extras", "bounds", "marker"), PARTS, ids=[part[0] for part in PARTS])
def test_every_requirement_has_a_lower_bound_that_is_met(name, extras, bounds, marker):
    assert lowest.lower_bound(bounds), f"{name} needs a lower bound on which the tests were run"
    if applies(marker) and (RUNNING != "hard" or name in lowest.lowest(hard=True)):
        assert SpecifierSet(bounds).contains(version(name), prereleases=True)


def test_a_requirement_that_is_stated_twice_has_one_bound():
    dev = [lowest.taken_apart(each) for each in lowest.project()["optional-dependencies"]["dev"]]
    bounds = {}
    for name, _, stated, _ in [*PARTS, *dev]:
        if name != "dither":
            assert bounds.setdefault(name, stated) == stated, name


def test_the_parser_is_pinned_to_tested_versions():
    # its trees change with minor versions; see dither.query.sql.parse
    (bounds,) = [SpecifierSet(bounds) for name, _, bounds, _ in PARTS if name == "sqlglot"]
    newest = max(Version(each.version) for each in bounds if each.operator == "<")
    assert newest.major == 30
    assert (newest.major, newest.minor - 1) >= Version(version("sqlglot")).release[:2]


def test_the_engine_is_refused_below_its_bound():
    assert lowest.lowest()["duckdb"] == ".".join(map(str, LOWEST_VERSION))


def test_pins_are_made_of_every_bound():
    lines = lowest.requirements()
    for name, extras, bounds, marker in PARTS:
        assert f"{name}{extras}=={lowest.lower_bound(bounds)}{marker}" in lines
    tools = {re.split(r"[\[<>=!]", line)[0].lower() for line in lines if "==" not in line}
    assert {"pytest", "pytest-xdist"} <= tools
    assert not tools & {*lowest.lowest(), *lowest.READERS, "dither"}
    names = [re.split(r"[\[<>=!]", line)[0] for line in lowest.requirements(few=True)]
    assert names == [*lowest.lowest(hard=True), *lowest.RUNNERS]


@pytest.mark.skipif(not RUNNING, reason="make lowest and make lowest-few set DITHER_LOWEST")
def test_the_lowest_versions_are_running():
    wanted = lowest.lowest(hard=RUNNING == "hard")
    markers = {name: marker for name, _, _, marker in PARTS}
    assert {n: Version(version(n)) for n in wanted if applies(markers[n])} == {
        n: Version(v) for n, v in wanted.items() if applies(markers[n])
    }
    assert sys.version_info[:2] >= (3, 11)


@pytest.mark.parametrize(
    ("target", "needs"),
    [("test", "lowest-few"), ("nightly", "lowest"), ("lowest", ".lowest"), ("lowest-few", ".few")],
)
def test_make_runs_them(target, needs):
    rule = re.search(rf"^{target}:(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert rule, target
    assert re.search(rf"(?:^|[\s/]){re.escape(needs)}(?:\s|$)", rule[1]), rule[1]
