"""Statements that are about the session, its cursors and what it prepared: what each of them says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dither.server.pgwire.protocol import types
from dither.server.pgwire.sql.lexer import Word, WordKind

Direction: TypeAlias = Literal["forward", "backward", "absolute", "relative"]
Format: TypeAlias = Literal["text", "csv", "binary"]
# What FETCH says in one word.
_STEPS: dict[str, tuple[Direction, int | None]] = {
    "NEXT": ("forward", 1),
    "PRIOR": ("backward", 1),
    "FIRST": ("absolute", 1),
    "LAST": ("absolute", -1),
    "ALL": ("forward", None),
}
# What may be said of a transaction that begins, word by word.
_MODES = (
    *(("ISOLATION", "LEVEL", *level) for level in (("SERIALIZABLE",), ("REPEATABLE", "READ"))),
    *(("ISOLATION", "LEVEL", "READ", level) for level in ("COMMITTED", "UNCOMMITTED")),
    *(("READ", "ONLY"), ("READ", "WRITE"), ("DEFERRABLE",), ("NOT", "DEFERRABLE")),
)
_LONGEST_MODE = max(map(len, _MODES))


class UnreadableStatement(Exception):  # noqa: N818
    """A statement that PostgreSQL couldn't read either; ``word`` is where it goes wrong."""

    def __init__(self, what: str, hint: str = "", word: Word | None = None) -> None:
        self.what, self.hint, self.word = what, hint, word
        super().__init__(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Begins or ends a transaction, or a part of one."""

    action: Literal["begin", "commit", "rollback", "savepoint", "release", "rollback_to"]
    name: str = ""
    chain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Sets, resets or shows a setting; ``name`` is without ``dp.`` where ``ours`` says that it is one of dither's.

    No ``value`` is the default's.
    """

    action: Literal["set", "reset", "show"]
    name: str
    value: str = ""
    local: bool = False
    ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOut:
    """How the rows of a COPY are written; None is the format's own default."""

    format: Format = "text"
    header: bool = False
    delimiter: str | None = None
    null: str | None = None
    quote: str | None = None
    escape: str | None = None
    force_quote_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A cursor as it is declared."""

    name: str
    hold: bool = False
    binary: bool = False
    scroll: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Rows that are wanted of a cursor, or skipped if ``move`` says so; ``count`` None is all."""

    name: str
    move: bool
    direction: Direction
    count: int | None


@dataclass(frozen=True, slots=True)
class ByName:
    """Something that is done away with, by its name; None is all."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAs:
    """What is prepared under which name; a type of 0 is guessed. No ``types`` at all where the shadow prepares it."""

    name: str
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteNamed:
    """What is run by its name; ``arguments`` are texts of literals, and None if any of them is something else."""

    name: str
    arguments: tuple[bytes | None, ...] | None


# A command that was understood: the tag that tells the client so, and what it says.
Command: TypeAlias = tuple[str, Transaction | Setting | Fetch | ByName | None]


class Words:
    """The words of a statement, read from left to right."""

    def __init__(self, words: list[Word]) -> None:
        self._words, self._at = words, 0

    @property
    def rest(self) -> list[Word]:
        """What wasn't read yet."""
        return self._words[self._at :]

    @property
    def next(self) -> Word | None:
        """The next word, not taken."""
        return self._words[self._at] if self._at < len(self._words) else None

    def coming(self, count: int) -> tuple[str, ...]:
        """The next words in capitals, not taken."""
        return tuple(word.keyword for word in self._words[self._at : self._at + count])

    def take(self, *keywords: str) -> str:
        """The next word in capitals if it is one of these, which it then goes past; else nothing."""
        word = self.next
        if word is None or word.keyword not in keywords or not word.keyword:
            return ""
        self._at += 1
        return word.keyword

    def take_symbol(self, symbol: str) -> bool:
        """Whether the next word is this symbol, which it then goes past."""
        word = self.next
        if word is None or not word.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def expect(self, keyword: str, hint: str, *, where: str = "here") -> None:
        """Go past this word, which must be the next one."""
        if not self.take(keyword):
            raise UnreadableStatement(f"{keyword} was expected {where}", hint, self.next)

    def query_after(self, keyword: str, hint: str) -> list[Word]:
        """The query that follows this word, up to the end."""
        if not self.take(keyword) or not self.rest:
            raise UnreadableStatement(f"{keyword} and a query were expected here", hint, self.next)
        return self.rest

    def any(self) -> Word:
        """The next word, whatever it is."""
        word = self.next
        if word is None:
            raise UnreadableStatement("the statement ends too early", "Complete it.")
        self._at += 1
        return word

    def name(self) -> str:
        """The next word, which must be a name."""
        word = self.any()
        if word.kind not in (WordKind.WORD, WordKind.QUOTED):
            raise UnreadableStatement("a name was expected here", "Put a name here.", word)
        return word.value

    def inside(self) -> list[Word]:
        """What is between parentheses, which it goes past; nothing where there are none."""
        if self.next is None or not self.next.is_symbol("("):
            return []
        found, depth = [], 0
        while True:
            word = self.any()
            depth += 1 if word.is_symbol("(") else -1 if word.is_symbol(")") else 0
            found.append(word)
            if not depth:
                return found[1:-1]

    def end(self) -> None:
        """Nothing may follow."""
        word = self.next
        if word is not None:
            raise UnreadableStatement("nothing was expected after this", "Remove it.", word)


# ---------------------------------------------------------------------- commands, read behind their first word (head)


def read_transaction(head: str, words: Words) -> Command | None:
    """BEGIN, COMMIT, ROLLBACK and savepoints; None for what isn't one of them (COMMIT PREPARED)."""
    if head in ("BEGIN", "START"):
        if head == "BEGIN":
            words.take("WORK", "TRANSACTION")
        else:
            words.expect("TRANSACTION", "Write START TRANSACTION.")
        _expect_modes(words)
        # modes go along in the text; the shadow reads them
        return "BEGIN" if head == "BEGIN" else "START TRANSACTION", Transaction(action="begin")
    if head == "SAVEPOINT":
        return head, Transaction(action="savepoint", name=_last_name(words))
    if head == "RELEASE":
        words.take("SAVEPOINT")
        return head, Transaction(action="release", name=_last_name(words))
    if words.take("PREPARED"):
        return None
    words.take("WORK", "TRANSACTION")
    if head in ("COMMIT", "END"):
        return "COMMIT", Transaction(action="commit", chain=_chain(words))
    if words.take("TO"):
        words.take("SAVEPOINT")
        return "ROLLBACK", Transaction(action="rollback_to", name=_last_name(words))
    return "ROLLBACK", Transaction(action="rollback", chain=_chain(words))


def _expect_modes(words: Words) -> None:
    wanted = False
    while words.next is not None or wanted:
        said = words.coming(_LONGEST_MODE)
        mode = next((mode for mode in _MODES if said[: len(mode)] == mode), None)
        if mode is None:
            raise UnreadableStatement("this isn't a mode of transactions", "Write BEGIN alone.", words.next)
        for _ in mode:
            words.any()
        # a comma between modes may be left out
        wanted = words.take_symbol(",")


def _last_name(words: Words) -> str:
    name = words.name()
    words.end()
    return name


def _chain(words: Words) -> bool:
    if not words.take("AND"):
        words.end()
        return False
    chain = not words.take("NO")
    words.expect("CHAIN", "Write AND CHAIN or leave AND out.", where="after AND")
    words.end()
    return chain


def read_setting(head: str, words: Words) -> Command | None:
    """SET, RESET and SHOW; None for those that aren't about one setting (SET TRANSACTION, SHOW ALL)."""
    local = head == "SET" and words.take("SESSION", "LOCAL") == "LOCAL"
    first = words.next
    if first is None or first.kind not in (WordKind.WORD, WordKind.QUOTED):
        return None
    if head == "RESET" and words.take("ALL"):
        words.end()
        return head, None
    name = words.name().lower()
    while words.take_symbol("."):
        name += "." + words.name().lower()
    ours = name.startswith("dp.")
    own_name = name.removeprefix("dp.")
    if head == "SHOW":
        setting = Setting(action="show", name=own_name, ours=ours)
    elif head == "RESET":
        setting = Setting(action="reset", name=own_name, ours=ours)
    elif words.take_symbol("=") or words.take("TO"):
        value = _one_value(words) if ours else _value(words.rest)
        setting = Setting(action="set", name=own_name, value=value, local=local, ours=ours)
    elif name in ("names", "role", "time"):
        # SET NAMES 'utf8', SET ROLE x, SET TIME ZONE 'utc'
        setting = Setting(action="set", name=name, value=_value(words.rest), local=local, ours=False)
    else:
        return None
    if ours and head != "SET":
        words.end()
    return head, setting


def _one_value(words: Words) -> str:
    """The value of a setting of dither's: a number, a text or a word, and nothing else."""
    sign = "-" if words.take_symbol("-") else ""
    signed = bool(sign) or words.take_symbol("+")
    word = words.any()
    if word.kind not in (
        (WordKind.NUMBER,) if signed else (WordKind.NUMBER, WordKind.STRING, WordKind.WORD, WordKind.QUOTED)
    ):
        raise UnreadableStatement("a value was expected here", "Write one number, or a text in quotes.", word)
    words.end()
    return "" if word.keyword == "DEFAULT" else sign + word.value


def _value(words: list[Word]) -> str:
    if len(words) == 1 and words[0].kind is WordKind.WORD and words[0].value == "default":
        return ""
    return "".join(", " if word.is_symbol(",") else word.value for word in words)


def read_fetch(head: str, words: Words) -> Command:
    """FETCH and MOVE."""
    direction, count = _direction(words)
    words.take("FROM", "IN")
    fetch = Fetch(name=words.name(), move=head == "MOVE", direction=direction, count=count)
    words.end()
    return head, fetch


def _direction(words: Words) -> tuple[Direction, int | None]:
    if len(words.rest) == 1:
        # a lone word is the cursor's name, even if it is called "next"
        return "forward", 1
    word = words.take("NEXT", "PRIOR", "FIRST", "LAST", "ALL", "FORWARD", "BACKWARD", "ABSOLUTE", "RELATIVE")
    if word in _STEPS:
        return _STEPS[word]
    if word in ("ABSOLUTE", "RELATIVE"):
        number = _integer(words)
        if number is None:
            raise UnreadableStatement(f"{word} needs a number", "Write the number of a row.", words.next)
        return ("absolute" if word == "ABSOLUTE" else "relative"), number
    direction: Direction = "backward" if word == "BACKWARD" else "forward"
    if word and words.take("ALL"):
        return direction, None
    number = _integer(words)
    return direction, 1 if number is None else number


def _integer(words: Words) -> int | None:
    negative = words.take_symbol("-")
    if not negative:
        words.take_symbol("+")
    word = words.next
    if word is None or word.kind is not WordKind.NUMBER or not word.value.isdigit():
        if negative:
            raise UnreadableStatement("a number was expected here", "Write how many rows.", word)
        return None
    words.any()
    number = int(word.value[:18])
    return -number if negative else number


def read_close(_head: str, words: Words) -> Command:
    """CLOSE name, CLOSE ALL."""
    return _dropped("CLOSE CURSOR", words)


def read_deallocate(head: str, words: Words) -> Command:
    """DEALLOCATE name, DEALLOCATE ALL."""
    if len(words.rest) > 1:
        words.take("PREPARE")
    return _dropped(head, words)


def _dropped(tag: str, words: Words) -> Command:
    everything = bool(words.take("ALL"))
    dropped = ByName(None if everything else words.name())
    words.end()
    return f"{tag} ALL" if everything else tag, dropped


def read_discard(head: str, words: Words) -> Command:
    """DISCARD ALL and its parts."""
    what = words.take("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY")
    if not what:
        raise UnreadableStatement("DISCARD needs to know what", "Write DISCARD ALL.", words.next)
    words.end()
    return f"{head} TEMP" if what == "TEMPORARY" else f"{head} {what}", None


def read_declare(words: Words) -> tuple[Cursor, list[Word]]:
    """DECLARE name CURSOR FOR a query: the cursor and its question."""
    name = words.name()
    binary, scroll, hold = False, None, False
    while word := words.take("BINARY", "INSENSITIVE", "ASENSITIVE", "SCROLL", "NO"):
        if word == "NO":
            words.take("SCROLL")
            scroll = False
        binary, scroll = binary or word == "BINARY", True if word == "SCROLL" else scroll
    hint = "Write DECLARE name CURSOR FOR SELECT …"
    words.expect("CURSOR", hint)
    if word := words.take("WITH", "WITHOUT"):
        hold = word == "WITH"
        words.take("HOLD")
    return Cursor(name=name, hold=hold, binary=binary, scroll=scroll), words.query_after("FOR", hint)


# ---------------------------------------------------------------------- PREPARE and EXECUTE

_TYPES = {
    **dict.fromkeys(("boolean", "bool"), types.BOOL),
    **dict.fromkeys(("smallint", "int2"), types.INT2),
    **dict.fromkeys(("integer", "int", "int4"), types.INT4),
    **dict.fromkeys(("bigint", "int8"), types.INT8),
    **dict.fromkeys(("real", "float4"), types.FLOAT4),
    **dict.fromkeys(("double precision", "float", "float8"), types.FLOAT8),
    **dict.fromkeys(("numeric", "decimal"), types.NUMERIC),
    "text": types.TEXT,
    **dict.fromkeys(("varchar", "character varying"), types.VARCHAR),
    "date": types.DATE,
    **dict.fromkeys(("timestamp", "timestamp without time zone"), types.TIMESTAMP),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), types.TIMESTAMPTZ),
    "unknown": 0,
}


def _parts(words: Sequence[Word]) -> list[list[Word]]:
    """Split on commas; no words give no parts."""
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.is_symbol(","):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts if words else []


def types_of(words: Sequence[Word]) -> tuple[int, ...]:
    """The types of a PREPARE's parameters."""
    found = []
    for part in _parts(words):
        oid = _TYPES.get(" ".join(word.value for word in part))
        if oid is None:
            hint = "Use names such as integer, float8, text or date without a length, or leave the types out."
            raise UnreadableStatement("questions can't use this type", hint, part[0] if part else words[0])
        found.append(oid)
    return tuple(found)


def literals_of(words: Sequence[Word], message: str) -> tuple[bytes | None, ...] | None:
    """The texts of literals, as a client would send them for parameters; None if anything else is among them."""
    found: list[bytes | None] = []
    for part in _parts(words):
        signed = len(part) == 2 and part[0].kind is WordKind.SYMBOL and part[0].value in "+-"
        word = part[-1] if len(part) == 1 or signed else None
        if word is not None and word.kind is WordKind.NUMBER:
            found.append(((part[0].value if signed else "") + word.value).encode())
        elif word is None or signed:
            return None
        elif word.keyword == "NULL":
            found.append(None)
        elif word.keyword in ("TRUE", "FALSE"):
            found.append(word.value.encode())
        elif word.kind is WordKind.STRING and message[word.start] in "'$":
            # others, such as E'…', would have to be decoded first
            found.append(word.value.encode("utf-8", "replace"))
        else:
            return None
    return tuple(found)
