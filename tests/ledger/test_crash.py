"""SIGKILL anywhere: balances stay exact, no answer without a spend, no two answers to one question."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.sizes import at_night, short_or_full

SCRIPT = Path(__file__).with_name("crash.py")
# every so many steps; odd, so that it is before some and after others
EVERY = short_or_full(7, 1)


def command(*arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )


def run(*arguments):
    done = command(*arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stderr, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_death_at_every_step(tmp_path):
    result = run("points", tmp_path, EVERY)
    names = " ".join(result["names"])
    assert sum(result["steps"].values()) >= 100
    for step in (
        "BEGIN IMMEDIATE",
        "COMMIT",
        "INSERT INTO entry",
        "UPDATE account",
        "INSERT OR REPLACE INTO seal",
        "pwrite",
        "fdatasync",
    ):
        assert f"before {step}" in names
        assert f"after {step}" in names
    # making the ledger, limits, reserving, recording: each has its own commit and its own head
    assert result["steps"]["after COMMIT"] >= 4
    assert result["steps"]["before fdatasync"] >= 4


@pytest.mark.parametrize(
    ("mutant", "noticed"),
    [
        ("charge_late", "ran without a charge"),
        ("release_early", "released something else than is on record"),
        ("head_first", "LedgerRolledBack"),
    ],
)
def test_death_tells_the_mutants(tmp_path, mutant, noticed):
    done = command("points", tmp_path, EVERY, mutant)
    assert done.returncode != 0
    assert noticed in done.stderr


@at_night
def test_death_at_random_moments(tmp_path):
    result = run("fuzz", tmp_path, short_or_full(70, 200))
    # it was worth looking: questions were shared, failed, left open by the dead and taken over
    assert result["released"] > result["distinct"] > 50
    assert min(result["kinds"][kind] for kind in ("reserve", "answer", "charge", "failed", "redeem")) >= 3


def test_a_rush_of_processes(tmp_path):
    result = run("rush", tmp_path)
    assert result == {"ended": [0] * 4, "spent": {"shop": 10}, "answered": 10, "refused": 190}


def test_a_forked_child_may_not_use_the_ledger_nor_keep_its_parent_alive(tmp_path):
    result = run("inherited", tmp_path)
    assert "open it again" in result["said"]
    assert result["ran"]
    assert result["charged"] == 0
