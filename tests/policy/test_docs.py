"""The policy reference is complete: every setting is in it, everything in it is a setting, every example is right."""

import re
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from dither.policy.file_schema import SECTIONS, names_of, shaped
from dither.policy.findings import Notes
from dither.policy.line_numbers import SettingPlaces
from dither.policy.policy import Policy
from dither.policy.toml_text import exact_number

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| `(.+)` \|$", re.MULTILINE)


def documented(section):
    """The rows of the table under a section's heading."""
    part = TEXT.split(f"\n## {section.capitalize()}\n", 1)[1].split("\n## ", 1)[0]
    rows = ROW.findall(part)
    assert len(rows) == part.count("\n| ") - 2, "a row has another form"
    return rows


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_documented_and_everything_documented_is_a_setting(section):
    listed = [name for name, *_ in documented(section)]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(names_of(SECTIONS[section]))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_example_is_right(section):
    for name, _, _, _, example in documented(section):
        raw = tomllib.loads(example, parse_float=exact_number)
        assert list(raw) == [name]
        notes = Notes("docs", SettingPlaces(example))
        _, broken = shaped(SECTIONS[section], raw, (), notes)
        assert (broken, notes.findings) == (frozenset(), [])


@pytest.mark.parametrize("section", SECTIONS)
def test_the_examples_in_messages_are_right_too(section):
    for name, value in names_of(SECTIONS[section]).items():
        text = f"{name} = {value}"
        notes = Notes("messages", SettingPlaces(text))
        shaped(SECTIONS[section], tomllib.loads(text, parse_float=exact_number), (), notes)
        assert notes.findings == []


def test_no_section_is_left_out():
    headings = re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)
    assert [heading.lower() for heading in headings] == list(SECTIONS)


def test_the_whole_example_loads_without_a_warning():
    (example,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    policy = Policy.parse(example)
    assert policy.warnings == ()
    assert policy.budget.epsilon_budget == 3
    # the stated defaults
    assert policy.source.name == "shop"
    assert policy.source.ledger == Path("shop.ledger")
    assert policy.budget.delta_per_query == policy.budget.delta_budget / 100 == Fraction(1, 10**8)
    assert policy.budget.analysts == "listed"
    assert policy.analyst("ana").delta_budget is None
