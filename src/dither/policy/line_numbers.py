"""Where each setting stands: from key paths to the lines of a TOML file, which tomllib doesn't tell."""

from __future__ import annotations

import bisect
import re
import tomllib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]

BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
PLAIN_VALUE = re.compile(r"[^,\]}#\n]*")
# the closing quotes of a long string may be preceded by two more of them
LONG_STRING = re.compile(r'"""(?:\\[\s\S]|[^\\])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}')
SHORT_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')


class SettingPlaces:
    r"""The line of every key and array item of a TOML text that tomllib accepts.

    Items of arrays have their number (from 0) in the path.

    Example:
        >>> places = SettingPlaces('[tables."my orders"]\nprivate = true\nunique = [\n  ["id"],\n]')
        >>> places.line(("tables", "my orders", "private")), places.line(("tables", "my orders", "unique", 0))
        (2, 4)
        >>> places.line(("tables", "my orders", "missing")), places.line(("nothing",))
        (1, 1)
    """

    __slots__ = ("lines",)

    lines: Mapping[Place, int]

    def __init__(self, text: str) -> None:
        self.lines = MappingProxyType(_Scanner(text).scan())

    def line(self, path: Place) -> int:
        """The line of the setting or, where it isn't written, of the innermost thing around it that is."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


class _Scanner:
    """Reads valid TOML once from left to right and notes where keys and items begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Place, int] = {}
        self.lengths: dict[Place, int] = {}
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def scan(self) -> dict[Place, int]:
        prefix: Place = ()
        while True:
            self._skip(BLANK)
            if self.at >= len(self.text):
                return self.found
            if self.text[self.at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)

    def _line(self) -> int:
        return bisect.bisect_left(self.ends, self.at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError("the scanner was given text that isn't TOML")
        self.at = match.end()
        return match.group()

    def _header(self) -> Place:
        """``[a.b]``, or ``[[a.b]]`` for one more item of an array of tables."""
        line, many = self._line(), self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        keys = self._keys()
        self.at += 2 if many else 1
        path: Place = ()
        for key in keys[:-1]:
            path = (*path, key)
            self.found.setdefault(path, line)
            if path in self.lengths:
                path = (*path, self.lengths[path] - 1)
        path = (*path, keys[-1])
        if not many:
            self.found[path] = line
            return path
        self.found.setdefault(path, line)
        item = (*path, self.lengths.get(path, 0))
        self.lengths[path] = self.lengths.get(path, 0) + 1
        self.found[item] = line
        return item

    def _keys(self) -> list[str]:
        """A dotted key; blanks around it and its dots are passed over."""
        keys: list[str] = []
        while True:
            self._skip(SPACE)
            if self.text[self.at] in "\"'":
                quoted = self._skip(SHORT_STRING)
                keys.extend(tomllib.loads(f"{quoted} = 0"))
            else:
                keys.append(self._skip(BARE_KEY))
            self._skip(SPACE)
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def _pair(self, prefix: Place) -> None:
        line = self._line()
        path = prefix
        keys = self._keys()
        for key in keys:
            path = (*path, key)
            self.found.setdefault(path, line)
        self.at += 1
        self._skip(SPACE)
        self._value(path)

    def _value(self, path: Place) -> None:
        start = self.text[self.at]
        if self.text.startswith(('"""', "'''"), self.at):
            self._skip(LONG_STRING)
        elif start in "\"'":
            self._skip(SHORT_STRING)
        elif start == "[":
            self._items(path)
        elif start == "{":
            self._inline_table(path)
        else:
            self._skip(PLAIN_VALUE)

    def _items(self, path: Place) -> None:
        self.at += 1
        number = 0
        while not self._closed("]"):
            self.found[(*path, number)] = self._line()
            self._value((*path, number))
            number += 1

    def _inline_table(self, path: Place) -> None:
        self.at += 1
        while not self._closed("}"):
            self._pair(path)

    def _closed(self, bracket: str) -> bool:
        self._skip(BLANK)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(BLANK)
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        return True
