"""Errors and notices as clients read them: severity, SQLSTATE, text, detail, hint and the place in their message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dither.errors import OutOfBudget, Refused
from dither.server.pgwire.protocol.messages import ProtocolError, message, report
from dither.server.pgwire.protocol.values import InvalidValue
from dither.server.problems import ServerProblem, ServerRefusal, problem_of

_PLACE = re.compile(rb"\0P([0-9]{1,9})\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReport:
    """One error or notice; ``offset`` is the place in the client's message, in characters from 0."""

    severity: str
    sqlstate: str
    title: str
    detail: str = ""
    hint: str = ""
    offset: int | None = None

    def message(self) -> bytes:
        """The message on the wire."""
        fields = {
            "S": self.severity,
            "V": self.severity,
            "C": self.sqlstate,
            "M": self.title,
            "D": self.detail,
            "H": self.hint,
            "P": "" if self.offset is None else str(self.offset + 1),
        }
        return report(b"E" if self.severity in ("ERROR", "FATAL") else b"N", fields)


class WireError(Exception):
    """An error that the client is told; ``report.severity`` FATAL ends the connection."""

    def __init__(self, told: WireReport) -> None:
        self.report = told
        super().__init__(told.sqlstate)


def failure(sqlstate: str, title: str, *, hint: str = "", detail: str = "", offset: int | None = None) -> WireError:
    """An error of the session itself, not of a question."""
    return WireError(
        WireReport(severity="ERROR", sqlstate=sqlstate, title=title, hint=hint, detail=detail, offset=offset)
    )


def fatal(sqlstate: str, title: str, *, hint: str = "") -> WireError:
    """An error after which the connection is closed."""
    return WireError(WireReport(severity="FATAL", sqlstate=sqlstate, title=title, hint=hint))


def notice(title: str, *, severity: str = "NOTICE", sqlstate: str = "00000") -> WireReport:
    """Something that a client is told besides its answer."""
    return WireReport(severity=severity, sqlstate=sqlstate, title=title)


def told(error: BaseException, offset: int | None = None, asking: HowAsked | None = None) -> WireReport:
    """What a client is told about an error; ``offset`` is its place in the message, if it has one.

    ``asking`` is how the question was asked, for hints.
    """
    if isinstance(error, WireError):
        return error.report
    if isinstance(error, ProtocolError):
        return WireReport(severity="FATAL", sqlstate="08P01", title=str(error))
    if isinstance(error, InvalidValue):
        return WireReport(severity="ERROR", sqlstate=error.sqlstate, title=str(error), offset=offset)
    problem = problem_of(error)
    hint = hint_of(problem.code, asking or HowAsked())
    return WireReport(
        severity="ERROR",
        sqlstate=problem.sqlstate,
        title=problem.title,
        detail=_detail(error, problem),
        hint=problem.hint if hint is None else hint,
        offset=offset,
    )


def moved(content: bytes, offset: int) -> bytes:
    """Messages of the shadow, with the places in its errors so many characters further on.

    It saw one statement of several; the client counts from the beginning of its message.
    """
    parts, at = [], 0
    while at < len(content):
        end = at + 1 + int.from_bytes(content[at + 1 : at + 5], "big")
        part = content[at:end]
        if part[:1] == b"E":
            part = message(b"E", _PLACE.sub(lambda place: b"\0P%d\0" % (int(place[1]) + offset), part[5:]))
        parts.append(part)
        at = end
    return b"".join(parts)


def _detail(error: BaseException, problem: ServerProblem) -> str:
    if problem.receipt:
        return f"Receipt {problem.receipt}."
    if isinstance(error, Refused | OutOfBudget):
        return f"Nothing was charged. The reason's short name is {problem.code}."
    return ""


def place_of(error: BaseException) -> tuple[int, int] | None:
    """The (line, column) in the question that an error is about."""
    if isinstance(error, Refused):
        return error.position
    return error.problem.position if isinstance(error, ServerRefusal) else None


# ---------------------------------------------------------------------- hints

# What to do about a refusal, in words of this protocol: settings of the session instead of arguments in Python. A
# refusal is known by its code, which is permanent. Hints that hold in every protocol stay as they are.
_EXAMPLE = Fraction(1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowAsked:
    """How a question was asked: ``for_error``, or for an ε, of which it may cost at most ``most`` if that is known."""

    for_error: bool = False
    most: Fraction | None = None


def hint_of(code: str, asking: HowAsked) -> str | None:
    """What this protocol says about a refusal; None where the refusal's own hint will do.

    Example:
        >>> hint_of("epsilon_too_large", HowAsked(most=Fraction(1, 2)))
        'SET dp.epsilon = 0.5 or less.'
        >>> hint_of("rows_shown", HowAsked()) is None
        True
    """
    hint = _HINTS.get(code)
    return hint(asking) if callable(hint) else hint


def _missing(asking: HowAsked) -> str:
    example = _EXAMPLE if asking.most is None else min(_EXAMPLE, asking.most)
    limit = "" if asking.most is None else f" (at most {float(asking.most):g})"
    return (
        f"SET dp.epsilon = {float(example):g}{limit}, or SET dp.error = 50 for an error; then EXPLAIN PRIVACY SELECT … "
        "shows what it buys."
    )


def _too_large(asking: HowAsked) -> str:
    if asking.for_error:
        return "SET dp.error to a larger error, or ask for fewer columns."
    return "SET dp.epsilon to less." if asking.most is None else f"SET dp.epsilon = {float(asking.most):g} or less."


def _needs_approval(asking: HowAsked) -> str:
    smaller = "SET dp.error to a larger error" if asking.for_error else "SET dp.epsilon to less"
    return f"Send it to the owner from the web page or over HTTP and ask it again once it is approved, or {smaller}."


_HINTS: Mapping[str, str | Callable[[HowAsked], str]] = {
    "epsilon_missing": _missing,
    "epsilon_too_large": _too_large,
    "epsilon_too_small": "SET dp.epsilon to more.",
    "budget_too_small": "SET dp.epsilon to more, or ask for fewer columns.",
    "error_unknown": (
        "SET dp.epsilon = 0.1 instead. An error can be asked for columns that are COUNT, or SUM of what has declared "
        "bounds: SET dp.error = 'n=50' names one."
    ),
    "error_unreachable": "SET dp.error to a larger error.",
    "unknown_weight": "Write SET dp.weights = 'n=1, total=3' with noisy columns of the answer, or RESET dp.weights.",
    "needs_approval": _needs_approval,
    "unknown_analyst": (
        "The owner of the data adds a section [analysts.NAME] to the policy and starts the server again: it reads the "
        "policy when it starts."
    ),
}
