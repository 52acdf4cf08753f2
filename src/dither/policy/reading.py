"""Reading a policy file as far as it goes: every part that is clear, and a finding for every one that isn't."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dither.errors import did_you_mean
from dither.policy.budget import Analyst, Budget, read_analysts, read_budget
from dither.policy.file_schema import HEADERS, SECTIONS, names_of
from dither.policy.findings import Level, Notes, PolicyFinding
from dither.policy.line_numbers import SettingPlaces
from dither.policy.source import PolicySource, read_source, read_twice
from dither.policy.tables import TableReading, read_tables
from dither.policy.toml_text import exact_number
from dither.privacy import Adjacency

TOP = ("source", "budget", "analysts", "tables")
FILE = "dither.toml"
AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReading:
    """What could be read of a policy file. It is usable if no finding is an error.

    ``source`` and ``budget`` are None, and tables without facts, where something in them is wrong or missing. ``text``
    and ``base`` are what was read.
    """

    text: str
    base: Path
    file: str
    places: SettingPlaces
    findings: tuple[PolicyFinding, ...]
    tables: Mapping[str, TableReading]
    source: PolicySource | None = None
    budget: Budget | None = None
    analysts: Mapping[str, Analyst]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @property
    def errors(self) -> tuple[PolicyFinding, ...]:
        """Everything that must be mended before the policy can be used."""
        return tuple(found for found in self.findings if found.level is Level.ERROR)


def read(text: str, base: Path, file: str = FILE) -> PolicyReading:
    """Read the text of a policy whose paths are relative to ``base``; never raises on account of the text."""
    raw, problem = _toml(text, file)
    if problem is not None:
        return PolicyReading(
            text=text, base=base, file=file, places=SettingPlaces(""), findings=(problem,), tables={}, analysts={}
        )
    places = SettingPlaces(text)
    notes = Notes(file, places)
    for name in raw:
        if name not in TOP:
            _unknown_section(name, raw, notes)
    tables = read_tables(raw.get("tables"), notes)
    source = read_source(raw.get("source"), base, tables, notes)
    budget, adjacency = read_budget(raw.get("budget"), notes)
    analysts = read_analysts(raw.get("analysts"), budget, notes)
    if source is not None:
        private = [name for name, table in tables.items() if table.settings.private]
        read_twice(source, private, [name for name, table in tables.items() if table.settings.public], notes)
    return PolicyReading(
        text=text,
        base=base,
        file=file,
        places=places,
        findings=tuple(notes.in_order()),
        tables=tables,
        source=source,
        budget=budget,
        analysts=analysts,
        adjacency=adjacency,
    )


def _toml(text: str, file: str) -> tuple[dict[str, Any], PolicyFinding | None]:
    try:
        return tomllib.loads(text, parse_float=exact_number), None
    except tomllib.TOMLDecodeError as problem:
        found = AT_LINE.search(str(problem))
        line = int(found.group(1)) if found else text.count("\n") + 1
        reason = AT_LINE.sub("", str(problem)).removesuffix(" (at end of document)").strip()
        message = f"this isn't TOML: {reason[:1].lower()}{reason[1:]}. Mend this line; strings need quotes."
    except RecursionError:
        line, message = 1, "the values are nested too deeply. Write one level of brackets for each list."
    except ValueError:
        # Python refuses to read integers of thousands of digits
        digits = re.search(r"\d{1000,}|(?:\d_?){1000,}", text)
        line = text.count("\n", 0, digits.start() if digits else 0) + 1
        message = "a number has thousands of digits. Write one of at most 64 bits."
    return {}, PolicyFinding(level=Level.ERROR, file=file, line=line, key="", message=message)


def _unknown_section(name: str, raw: Mapping[str, Any], notes: Notes) -> None:
    homes = [HEADERS[home] for home, section in SECTIONS.items() if name in names_of(section)]
    if homes:
        notes.error((name,), f"this setting belongs under {' or '.join(homes)}; move it there.")
        return
    meant = did_you_mean(name, TOP)
    if meant is None:
        sections = ", ".join(HEADERS[section] for section in TOP)
        notes.error((name,), f"unknown section; expected {sections}. Remove it.")
        return
    named = meant in ("analysts", "tables") and isinstance(raw[name], Mapping) and bool(raw[name])
    header = f"[{meant}.NAME]" if named else f"[{meant}]"
    notes.error((name,), f"unknown section; did you mean {meant}?", write=header)
