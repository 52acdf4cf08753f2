"""``dither audit`` as it is typed."""

import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dither.audit.suite import run as everything
from dither.audit.suite.mechanisms import subject
from dither.audit.zoo import specimens
from dither.query.aggregates import catalogue

ASKED = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
# an audit of what is right calls it wrong, by chance, less often than once in a billion
SURE = ("--confidence", "0.999999999")
HEADINGS = ["claimed ε", "δ", "ε is at least", "of the claim", "verdict", "seconds", "event"]
NOISE = """
import os
import numpy as np

def fair(x):
    return np.random.default_rng(int.from_bytes(os.urandom(8), "big")).random() < (0.75 if x else 0.25)

def unfair(x, n):
    return np.random.default_rng(int.from_bytes(os.urandom(8), "big")).random(n) < (0.95 if x else 0.05)

def told(table):
    return {"n": len(table), "names": sorted(table)}

number = 3
"""


@pytest.fixture
def mine(empty):
    """A module of the user's own in the directory where the command is typed."""
    (empty / "my_noise.py").write_text(NOISE, encoding="utf-8")


def test_help_is_enough_to_begin(run):
    shown = run("audit", "--help")
    assert shown.status == 0
    for command in ("query", "all", "mechanism", "zoo", "call"):
        assert f"dither audit {command}" in shown.out
        alone = run("audit", command, "--help")
        assert alone.status == 0
        assert f"dither audit {command}" in alone.out.replace("\n", " ")
    alone = run("audit")
    assert shown.out.strip() in alone.out + alone.err


# ------------------------------------------------------------------ questions


def test_a_question_of_a_policy(shop, run):
    (shop / "shop.duckdb").unlink()
    found = run("audit", "query", "dither.toml", ASKED, "--epsilon", "1", "--budget", "2s", "--pairs", "8", *SURE)
    assert found.status == 0, found.err
    assert "claim       ε = 1, δ = 1e-08" in found.out
    assert re.search(r"neighbours  \d+ pairs of tables; one unit moved something in \d+", found.out)
    assert "verdict     held." in found.out
    assert found.err == ""
    assert sorted(path.name for path in shop.iterdir()) == ["dither.toml"]


@pytest.mark.usefixtures("counted_time")
def test_a_broken_question_has_status_1_and_a_report(shop, inside, monkeypatch):
    whole = catalogue.reach_of

    def half(low, high, span, adjacency):
        return whole(low // 3, high // 3, span, adjacency)

    monkeypatch.setattr(catalogue, "reach_of", half)
    found = inside("audit", "query", "dither.toml", ASKED, "--budget", "2s", "--pairs", "8", "--report", "found")
    assert found.status == 1
    assert "BROKEN n: count" in found.out
    assert "verdict     BROKEN." in found.out
    assert "report: found/report.html" in found.out
    assert "BROKEN" in (shop / "found" / "report.html").read_text(encoding="utf-8")
    assert (shop / "found" / "report.md").exists()


def test_a_refused_question_is_refused_as_its_price_is(shop, run):
    sql = "SELECT MAX(amount) FROM orders"
    found, priced = run("audit", "query", "dither.toml", sql), run("price", sql, "--epsilon", "1")
    assert found.status == priced.status == 1
    assert found.err == priced.err
    assert "nothing was charged" in found.err


def test_a_policy_that_is_not_there(empty, run):
    found = run("audit", "query", "none.toml", ASKED)
    assert found.status == 1
    assert "none.toml: this file can't be read" in found.err


# ------------------------------------------------------------------ mechanisms, the zoo, everything


def test_one_mechanism(run):
    found = run("audit", "mechanism", "laplace", "--budget", "0.5s", *SURE)
    assert found.status == 0
    assert "No contradiction found. ε ≥ 0." in found.out
    listed = run("audit", "mechanism")
    assert "DiscreteGaussian" in listed.out
    assert "dither audit mechanism NAME" in listed.out
    unknown = run("audit", "mechanism", "Laplac")
    assert unknown.status == 1
    assert "known are" in unknown.err


def test_one_specimen_is_caught(run):
    found = run("audit", "zoo", "one-sided-answers")
    assert found.status == 0
    assert "The claim is false." in found.out
    assert found.out.rstrip().endswith("caught")
    listed = run("audit", "zoo")
    assert all(each.name in listed.out for each in specimens())
    assert run("audit", "zoo", "nobody").status == 1


@pytest.fixture
def small(monkeypatch):
    """A table of three rows in the place of all."""
    chosen = tuple(each for each in specimens() if each.name in ("fair-coins", "one-sided-answers"))
    monkeypatch.setattr(everything, "specimens", lambda: chosen)
    monkeypatch.setattr(everything, "subjects", lambda: (subject("RandomizedResponse"),))
    monkeypatch.setattr(everything, "QUESTIONS", ())


@pytest.mark.usefixtures("counted_time")
def test_everything_as_a_table_and_a_report(empty, inside, small):
    found = inside("audit", "all", "--budget-each", "0.3s", "--report", "audit", *SURE)
    assert found.status == 0, found.out
    lines = found.out.splitlines()
    assert re.split(r" {2,}", lines[0].strip()) == HEADINGS
    assert any(re.match(r"RandomizedResponse +1\.099 +0 +1\.0\d+ +\d+% +held", line) for line in lines)
    assert any(re.match(r"one-sided-answers .* caught ", line) for line in lines)
    assert (
        "3 audits, all as expected. A false alarm anywhere in this table has a chance of at most 1e-07%." in found.out
    )
    assert (empty / "audit" / "report.html").exists()
    assert found.err == ""


@pytest.mark.usefixtures("counted_time")
def test_everything_has_status_1_if_a_row_is_not_as_expected(inside, small, monkeypatch):
    (wrong,) = (each for each in specimens() if each.name == "one-sided-answers")
    monkeypatch.setattr(everything, "specimens", lambda: (replace(wrong, broken=False, mistake="", typically=""),))
    found = inside("audit", "all", "--budget-each", "0.3s", *SURE)
    assert found.status == 1
    assert "not as expected: one-sided-answers" in found.out
    assert inside("audit", "zoo", "--all", "--budget", "0.3s").status == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_an_interrupt_stops_at_once_and_leaves_nothing_running(empty, start):
    process = start("audit", "all", "--budget-each", "30s", cwd=empty, start_new_session=True)
    group = process.pid
    # it works for a while, with processes of its own
    waited = time.monotonic() + 120
    while len(_members(group)) < 2 and time.monotonic() < waited:
        time.sleep(0.05)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped after 0 audits" in err
    assert "dither: stopped" in err
    assert "Traceback" not in err
    until = time.monotonic() + 120
    while _members(group) and time.monotonic() < until:
        time.sleep(0.05)
    assert _members(group) == []


def _members(group):
    """The processes of a session, from /proc; the zombie that its parent hasn't waited for yet doesn't count."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parts = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if int(parts[3]) == group and parts[0] != "Z":
                found.append(entry.name)
    return found


# ------------------------------------------------------------------ anything that can be called


def test_a_function_of_ones_own(mine, run):
    held = run(
        *("audit", "call", "my_noise:fair", "--x", "true", "--neighbour", "false"),
        *("--claim", "1.0986123", "--budget", "1s", *SURE),
    )
    assert held.status == 0, held.err
    assert "No contradiction found." in held.out
    broken = run(
        *("audit", "call", "my_noise:unfair", "--x", "true", "--neighbour", "false"),
        *("--claim", "1", "--batched", "--budget", "60s"),
    )
    assert broken.status == 1
    assert "The claim is false." in broken.out
    assert "output" in broken.out


def test_inputs_are_json_or_python(mine, run):
    bound = run(
        *("audit", "call", "my_noise:told", "--x", '["ann", "bob"]', "--neighbour", "('ann',)", "--budget", "1s"),
    )
    assert bound.status == 0, bound.err
    assert "Nothing was claimed. ε ≥ " in bound.out
    unread = run("audit", "call", "my_noise:told", "--x", "ann bob", "--neighbour", "0")
    assert unread.status == 1
    assert "--x takes JSON or a Python literal" in unread.err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("my_noise", "package.module:function"),
        ("no_such_module:f", "can't be imported"),
        ("my_noise:none", "my_noise has no none"),
        ("my_noise:number", "isn't a function"),
    ],
)
def test_a_function_that_is_not_there(mine, run, path, said):
    found = run("audit", "call", path, "--x", "0", "--neighbour", "1")
    assert found.status == 1
    assert said in found.err
