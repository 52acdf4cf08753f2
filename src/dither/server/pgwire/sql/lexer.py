"""PostgreSQL's words: where a text's strings, comments, names and statements begin and end.

What a statement is about is decided on these words, so they must be those that PostgreSQL would read: nested comments,
dollar quotes, escape strings and names in quotes included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

LONGEST_NAME = 63

_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_LINE_COMMENT = re.compile(r"--[^\n\r]*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*")
_QUOTED = re.compile(r'"([^"]*(?:""[^"]*)*)"')
_PLAIN = re.compile(r"'([^']*(?:''[^']*)*)'")
_ESCAPED = re.compile(r"'([^'\\]*(?:(?:''|\\.)[^'\\]*)*)'", re.DOTALL)
# A string goes on in the next line: 'a'<end of line>'b' is 'ab', and read as the first part is.
_GOES_ON = re.compile(r"[ \t\f\v]*(?:--[^\n\r]*)?[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*[\n\r])*(?=')")
_DOLLAR = re.compile(r"\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$")
_PARAMETER = re.compile(r"\$([0-9]+)")
_NUMBER = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
# What a word of a text is.
WordKind = Enum("WordKind", "WORD QUOTED ENCODED STRING NUMBER PARAMETER SYMBOL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of a text, and the places where it begins and ends.

    ``value`` is a name folded as PostgreSQL folds it, the inside of a plain string or the number of a parameter.
    ``ENCODED`` is a name with Unicode escapes (``U&"…"``), which isn't decoded.
    """

    kind: WordKind
    value: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in capitals if it can be a keyword, else nothing."""
        return self.value.upper() if self.kind is WordKind.WORD else ""

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind in (WordKind.WORD, WordKind.QUOTED, WordKind.ENCODED)

    def is_symbol(self, symbol: str) -> bool:
        """Whether it is this symbol."""
        return self.kind is WordKind.SYMBOL and self.value == symbol


class Unclosed(Exception):  # noqa: N818
    """A quote or comment that the text opens and doesn't close."""

    def __init__(self, place: int, what: str) -> None:
        self.place, self.what = place, what
        super().__init__(what)


class TooManyWords(Exception):  # noqa: N818
    """A text of more words than are read."""


def cut(name: str) -> str:
    """A name as PostgreSQL keeps it: no longer than 63 bytes."""
    return name.encode("utf-8", "surrogatepass")[:LONGEST_NAME].decode("utf-8", "ignore")


def folded(name: str) -> str:
    """A name without quotes as PostgreSQL reads it: in lower case, as far as ASCII goes.

    Example:
        >>> folded("Orders"), folded("Über")
        ('orders', 'Über')
    """
    return name.translate(_LOWER)


def words(text: str, *, most: int | None = None) -> list[Word]:
    """The words of a text, comments and blanks left out.

    Raises:
        Unclosed: If a quote or comment isn't closed.
        TooManyWords: If there are more than ``most``; a word takes a hundred times the memory of its text.

    Example:
        >>> [word.value for word in words('SELECT "A""b", Total /* x /* y */ */ FROM t -- end')]
        ['select', 'A"b', ',', 'total', 'from', 't']
    """
    found: list[Word] = []
    place = 0
    while place < len(text):
        skipped = _skipped(text, place)
        if skipped != place:
            place = skipped
            continue
        word = _word(text, place)
        if len(found) == most:
            raise TooManyWords
        found.append(word)
        place = word.end
    return found


def statements(text: str, *, most: int | None = None) -> list[list[Word]]:
    """The words of each statement of a text; an empty statement has none.

    Example:
        >>> [len(each) for each in statements("SELECT ';'; COMMIT;")]
        [2, 1]
    """
    parts: list[list[Word]] = [[]]
    for word in words(text, most=most):
        if word.is_symbol(";"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _skipped(text: str, place: int) -> int:
    if text.startswith("/*", place):
        return _after_comment(text, place)
    found = _SPACE.match(text, place) or _LINE_COMMENT.match(text, place)
    return place if found is None else found.end()


def _after_comment(text: str, place: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, place):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise Unclosed(place, "a comment isn't closed")


def _word(text: str, place: int) -> Word:
    first = text[place]
    if first == "'":
        return _string(text, place, place, _PLAIN)
    if first == '"':
        return _quoted(text, place, place, WordKind.QUOTED)
    prefix = text[place : place + 3].lower()
    if prefix[:2] in ("e'", "b'", "x'", "n'"):
        return _string(text, place, place + 1, _ESCAPED if prefix[0] == "e" else _PLAIN)
    if prefix == "u&'":
        return _string(text, place, place + 2, _PLAIN)
    if prefix == 'u&"':
        return _quoted(text, place, place + 2, WordKind.ENCODED)
    found = _WORD.match(text, place)
    if found:
        return Word(kind=WordKind.WORD, value=cut(folded(found.group())), start=place, end=found.end())
    if first == "$":
        return _dollar(text, place)
    found = _NUMBER.match(text, place)
    if found:
        return Word(kind=WordKind.NUMBER, value=found.group(), start=place, end=found.end())
    return Word(kind=WordKind.SYMBOL, value=first, start=place, end=place + 1)


def _string(text: str, start: int, quote: int, pattern: re.Pattern[str]) -> Word:
    value, place = "", quote
    while True:
        found = pattern.match(text, place)
        if found is None:
            raise Unclosed(start, "a string isn't closed")
        value += found.group(1).replace("''", "'")
        further = _GOES_ON.match(text, found.end())
        if further is None:
            return Word(kind=WordKind.STRING, value=value, start=start, end=found.end())
        place = further.end()


def _quoted(text: str, start: int, quote: int, kind: WordKind) -> Word:
    found = _QUOTED.match(text, quote)
    if found is None:
        raise Unclosed(start, "a name in quotes isn't closed")
    return Word(kind=kind, value=cut(found.group(1).replace('""', '"')), start=start, end=found.end())


def _dollar(text: str, place: int) -> Word:
    number = _PARAMETER.match(text, place)
    if number:
        return Word(kind=WordKind.PARAMETER, value=number.group(1), start=place, end=number.end())
    opened = _DOLLAR.match(text, place)
    if opened is None:
        return Word(kind=WordKind.SYMBOL, value="$", start=place, end=place + 1)
    closed = text.find(opened.group(), opened.end())
    if closed < 0:
        raise Unclosed(place, "a string isn't closed")
    return Word(kind=WordKind.STRING, value=text[opened.end() : closed], start=place, end=closed + len(opened.group()))
