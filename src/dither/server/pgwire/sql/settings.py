"""The settings of one session that change what a question costs, and those of PostgreSQL that clients may not change.

The latter would change how words are read, how values are written, or how much of the machine a statement may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dither.curator import Terms
from dither.errors import InvalidParameter
from dither.numeric import as_fraction, positive
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.protocol.types import float_text
from dither.server.pgwire.sql.commands import Setting
from dither.server.question import AS_USUAL, AskedQuestion

NAMES = ("epsilon", "error", "weights", "confidence")
NOT_SET = "not set"
# PostgreSQL's own setting of which notices a client wants, and what is kept back by its values.
LEAST = "client_min_messages"
_KEPT_BACK = {"warning": ("NOTICE",), "error": ("NOTICE", "WARNING")}
_EITHER_OR = {"epsilon": "error", "error": "epsilon"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """The terms on which every question of a session is asked; ``texts`` are the settings as they were written.

    ``least`` is how grave a notice must be for the client to be told.
    """

    terms: Terms = AS_USUAL
    texts: Mapping[str, str] = field(default_factory=dict)
    least: str = "notice"

    def hears(self, severity: str) -> bool:
        """Whether the client wants notices of this severity."""
        return severity not in _KEPT_BACK.get(self.least.lower(), ())

    def wanted(self, sql: str) -> AskedQuestion:
        """The question, asked with these options."""
        return AskedQuestion(sql=sql, terms=self.terms)

    def shown(self, name: str, *, default_epsilon: Fraction | None = None) -> str:
        """A setting's value as SHOW shows it: what was written, else what applies; SET takes it back.

        ``default_epsilon`` is what questions cost that say neither ε nor an error; None if they are refused.

        Example:
            >>> QuestionOptions().shown("epsilon", default_epsilon=Fraction(1, 10)), QuestionOptions().shown("error")
            ('0.1', 'not set')
        """
        expect_known(name)
        if name in self.texts:
            return self.texts[name]
        if name == "confidence":
            return float_text(float(AS_USUAL.confidence))
        if name == "epsilon" and default_epsilon is not None and self.terms.error is None:
            return float_text(float(default_epsilon))
        return NOT_SET

    def with_setting(self, name: str, text: str, *, start: QuestionOptions | None = None) -> QuestionOptions:
        """These options with one changed; an empty text or DEFAULT is what the session started with.

        What SHOW says of a setting without a value takes its value away.

        Example:
            >>> QuestionOptions().with_setting("epsilon", "0.1").terms.epsilon
            Fraction(1, 10)
            >>> QuestionOptions().with_setting("epsilon", "0.1").with_setting("error", "50").terms.epsilon is None
            True
        """
        expect_known(name)
        value = text.strip()
        if value.lower() in ("", "default"):
            return self._reset(name, start or QuestionOptions())
        if value.lower() == NOT_SET:
            return self._without(name)
        texts = dict(self._without(name).texts)
        try:
            changed: dict[str, Any] = {name: _read(name, value)}
        except InvalidParameter:
            changed = {}
        if not changed:
            raise failure("22023", f"dp.{name} can't have this value", hint=_HINTS[name])
        # a question is asked for an ε or for an error: the later word counts
        other = _EITHER_OR.get(name)
        if other is not None:
            changed[other] = None
            texts.pop(other, None)
        return replace(self, terms=replace(self.terms, **changed), texts={**texts, name: value})

    def _without(self, name: str) -> QuestionOptions:
        texts = {other: kept for other, kept in self.texts.items() if other != name}
        usual = replace(self.terms, **{name: getattr(AS_USUAL, name)})
        return replace(self, terms=usual, texts=texts)

    def _reset(self, name: str, start: QuestionOptions) -> QuestionOptions:
        if name in start.texts:
            return self.with_setting(name, start.texts[name])
        left = self._without(name)
        other = _EITHER_OR.get(name)
        if other is not None and other in start.texts and left.terms.epsilon is None and left.terms.error is None:
            # it had taken the place of the other, which the session started with
            return left.with_setting(other, start.texts[other])
        return left


_HINTS = {
    "epsilon": "Give a number above 0, such as SET dp.epsilon = 0.1.",
    "error": "Give a number above 0, or one for each column: SET dp.error = 'n=10, total=500'.",
    "weights": "Give a number above 0 for each column: SET dp.weights = 'n=1, total=3'.",
    "confidence": "Give a number between 0 and 1, such as SET dp.confidence = 0.95.",
}


def expect_known(name: str) -> None:
    """Refuse a setting that there isn't."""
    if name not in NAMES:
        known = ", ".join(f"dp.{each}" for each in NAMES)
        raise failure("42704", "there is no such setting of dither", hint=f"Settings are {known}.")


def _read(name: str, text: str) -> Fraction | Mapping[str, Fraction]:
    if name == "confidence":
        value = as_fraction(text, name)
        if not 0 < value < 1:
            raise InvalidParameter(name)
        return value
    if name == "epsilon" or (name == "error" and "=" not in text):
        return positive(text, name)
    pairs: dict[str, Fraction] = {}
    for part in text.split(","):
        column, equals, number = part.partition("=")
        if not equals or not column.strip() or column.strip() in pairs:
            raise InvalidParameter(name)
        pairs[column.strip()] = positive(number.strip(), name)
    return pairs


class SessionOptions:
    """The options as they change with SET, SET LOCAL and the end of transactions; RESET goes back to the start."""

    def __init__(self) -> None:
        self.current = self._session = self._before = self._start = QuestionOptions()
        self._marks: list[tuple[QuestionOptions, QuestionOptions]] = []

    def start_with(self, settings: Mapping[str, str]) -> None:
        """Take those of dither's settings that a client's connection string has."""
        for name, text in settings.items():
            if name.startswith("dp."):
                self.change(name.removeprefix("dp."), text, local=False)
            elif name.lower() == LEAST:
                self.change_least(text, local=False)
        self._start = self._before = self._session

    def change(self, name: str, text: str, *, local: bool) -> None:
        """Change a setting, until the end of the transaction if it is local."""
        self.current = self.current.with_setting(name, text, start=self._start)
        if not local:
            self._session = self._session.with_setting(name, text, start=self._start)

    def change_least(self, text: str, *, local: bool) -> None:
        """Change which notices are told; no text is what the session started with."""
        least = text.strip() or self._start.least
        self.current = replace(self.current, least=least)
        if not local:
            self._session = replace(self._session, least=least)

    def reset(self) -> None:
        """All settings as they were at the start."""
        self.current = self._session = self._start

    # ------------------------------------------------------------------ transactions

    def mark(self) -> None:
        """A savepoint is set."""
        self._marks.append((self.current, self._session))

    def release(self, left: int) -> None:
        """Savepoints are gone, but for so many."""
        del self._marks[left:]

    def back_to(self, left: int) -> None:
        """Everything is as it was at the last of so many savepoints."""
        self.release(left)
        self.current, self._session = self._marks[-1]

    def end(self, *, kept: bool) -> None:
        """A transaction ends and its settings are kept or not; what is set from now on belongs to the next one."""
        if not kept:
            self._session = self._before
        self.current = self._before = self._session
        self._marks.clear()


# ---------------------------------------------------------------------- PostgreSQL's own settings

_UTF8 = ("", "utf8", "utf-8", "unicode")
_MACHINE = frozenset(
    {
        *("work_mem", "maintenance_work_mem", "logical_decoding_work_mem", "hash_mem_multiplier", "temp_buffers"),
        *("max_parallel_workers", "max_parallel_workers_per_gather", "max_parallel_maintenance_workers"),
        *("effective_io_concurrency", "maintenance_io_concurrency", "io_combine_limit", "max_stack_depth"),
    }
)
# Values of a client's StartupMessage that are passed on to the shadow; others, and options, are left out.
PASSED_ON = frozenset(
    {
        *("application_name", "timezone", "extra_float_digits", "intervalstyle", "bytea_output"),
        *("search_path", "client_min_messages"),
    }
)


def setting_problem(setting: Setting) -> tuple[str, str] | None:
    """Why this can't be set, and a hint; None if it can. Reading a setting is never a problem."""
    value = setting.value.strip().lower()
    if setting.action != "set":
        return None
    if setting.name in ("client_encoding", "names") and value not in _UTF8:
        return "texts are sent in UTF-8", "Set client_encoding to UTF8."
    if setting.name == "standard_conforming_strings" and value not in ("", "on", "true", "1", "yes"):
        return "standard_conforming_strings stays on", "Write E'…' where escapes are meant."
    if setting.name == "datestyle" and not is_iso(value):
        return "dates are written as ISO 8601 says", "SET datestyle = ISO."
    if setting.name in _MACHINE or setting.name.startswith("dither_views."):
        return f"{setting.name} can't be changed", "Leave it out."
    return None


def is_iso(date_style: str) -> bool:
    """Whether a date style writes dates as ISO 8601 does, whatever order it reads them in."""
    parts = {part.strip() for part in date_style.lower().split(",")}
    return parts <= {"", "iso", "mdy", "dmy", "ymd", "us", "european", "euro", "noneuro"}
