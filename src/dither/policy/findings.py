"""Findings: what is wrong, doubtful or missing in a policy, where it stands and what to write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dither.policy.line_numbers import Place, SettingPlaces
from dither.policy.toml_text import toml_path, toml_value

LONGEST_SHOWN = 60
# a list of a hundred thousand keys is mended in the file, not copied from a terminal
LONGEST_LINE = 2000


class Level(Enum):
    """How much a finding matters: a policy with an error can't be used; a warning may weaken privacy; a hint helps."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFinding:
    """One thing to know about a policy: its place, what it is, and the exact lines to write (perhaps none).

    Example:
        >>> print(PolicyFinding(level=Level.ERROR, file="dither.toml", line=3, key="budget", message="x is missing.",
        ...               write="x = 1"))
        dither.toml, line 3, budget: x is missing. Write:
            x = 1
    """

    level: Level
    file: str
    line: int
    key: str
    message: str
    write: str = ""

    def __str__(self) -> str:
        key = f", {self.key}" if self.key else ""
        text = f"{self.file}, line {self.line}{key}: {self.message}"
        if not self.write:
            return text
        return f"{text} Write:\n" + "\n".join(f"    {line}" for line in self.write.split("\n"))


class Notes:
    """Collects every finding about one file, so that the owner sees all of them at once."""

    __slots__ = ("file", "findings", "places")

    def __init__(self, file: str, places: SettingPlaces) -> None:
        self.file = file
        self.places = places
        self.findings: list[PolicyFinding] = []

    def note(self, level: Level, path: Place, message: str, *, write: str = "") -> None:
        """Add a finding about the setting at ``path``, once."""
        line, key = self.places.line(path), toml_path(path)
        copy = write if len(write) <= LONGEST_LINE else ""
        found = PolicyFinding(level=level, file=self.file, line=line, key=key, message=message, write=copy)
        if found not in self.findings:
            self.findings.append(found)

    def error(self, path: Place, message: str, *, write: str = "") -> None:
        """Add a finding that makes the policy unusable."""
        self.note(Level.ERROR, path, message, write=write)

    def warning(self, path: Place, message: str, *, write: str = "") -> None:
        """Add a finding about privacy or a contradiction that the owner should know."""
        self.note(Level.WARNING, path, message, write=write)

    def hint(self, path: Place, message: str, *, write: str = "") -> None:
        """Add a finding about what can't be asked so far."""
        self.note(Level.HINT, path, message, write=write)

    @property
    def errors(self) -> list[PolicyFinding]:
        """What must be mended, by line."""
        return [found for found in self.in_order() if found.level is Level.ERROR]

    def in_order(self) -> list[PolicyFinding]:
        """Everything, errors first, then by line."""
        order = list(Level)
        return sorted(self.findings, key=lambda found: (order.index(found.level), found.line))


def shown(value: object) -> str:
    """A value of the file as TOML, shortened, for a message."""
    text = toml_value(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
