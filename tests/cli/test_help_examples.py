"""The examples of `dither … --help` work as they stand, one after the other, each in a process of its own."""

import csv
import random
import re
import shlex

import pytest

from dither.cli import anonymize, local

EXAMPLE = re.compile(r"Example:  dither (.*?)(?:\n\s*\n|\Z)", re.DOTALL)


@pytest.fixture
def run(forked):
    def typed(arguments):
        done = forked(*arguments)
        assert done.status == 0, (arguments, done.out, done.err)
        return done.out

    return typed


def example(function):
    """The example of a command's help."""
    return shlex.split(" ".join(EXAMPLE.search(function.__doc__ + "\n\n")[1].split()))


def listed(text):
    """The commands of a list in a group's help; lines that end with a backslash go on."""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(r"^  (dither .*)$", joined, re.MULTILINE)]


@pytest.fixture
def patients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = tmp_path
    maker = random.Random(1)
    with (directory / "patients.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "age", "postcode", "sex", "disease"])
        for number in range(2000):
            disease = maker.choice(["flu", "cold", "none"])
            rows.writerow([number, maker.randint(0, 99), maker.randint(1000, 1099), maker.choice("fm"), disease])
    return directory


def test_what_anonymize_writes_is_what_it_verifies(patients, run):
    """The group's list and each command's own help show the same table, so that any of them fits any other."""
    group = listed(anonymize.HELP)
    assert [each[1] for each in group] == ["risk", "patients.csv", "verify"]
    for one, other in ((group[1], example(anonymize.table)), (group[2], example(anonymize.verify))):
        assert one == other
    run(group[1])
    assert "every check passed" in run(group[2])
    run(example(anonymize.risk))
    assert (patients / "risk.html").exists()


def test_local_examples_follow_each_other(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.txt").write_text("no\nyes\nperhaps\n" * 100, encoding="utf-8")
    run(example(local.describe))
    run(example(local.randomize))
    run(["local", "aggregate", "survey.json", "reports.txt", "--save", "monday.json"])
    assert "perhaps" in run(example(local.aggregate))
