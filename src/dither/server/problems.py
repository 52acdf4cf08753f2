"""What went wrong, in the words of each protocol: one table from errors to HTTP statuses and SQLSTATEs.

Texts come from errors of dither, which are built from public facts alone. Whatever else is raised becomes a sentence
that says nothing: neither data nor paths nor traces leave the server.
"""

from __future__ import annotations

from dataclasses import dataclass

from dither.errors import (
    DitherError,
    Failed,
    InvalidParameter,
    LedgerBusy,
    LedgerError,
    LedgerUncertain,
    OutOfBudget,
    Refused,
    SourceError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as clients see it.

    ``code`` is the permanent short name of the reason, ``hint`` says what to do, ``position`` is the place in the
    question (line, column; both from 1), ``receipt`` the number of a charge that was made. ``retry_after`` is in
    seconds.
    """

    status: int
    sqlstate: str
    code: str
    title: str
    hint: str = ""
    position: tuple[int, int] | None = None
    receipt: str | None = None
    retry_after: int | None = None


class ServerRefusal(Exception):  # noqa: N818
    """Something that the server itself refuses, before the curator is asked: no charge was made."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.title)


UNKNOWN_TOKEN = Problem(
    status=401,
    sqlstate="28P01",
    code="unknown_token",
    title="the token is unknown or has expired",
    hint="Ask the owner of the data for a token (dither token create NAME).",
)
INTERNAL = Problem(
    status=500,
    sqlstate="XX000",
    code="internal",
    title="something went wrong in the server",
    hint="If the question was charged, the same again is free. Tell the owner of the data if it happens again.",
)
# what the curator says of such a name is true of the policy that the server has read
READ_AT_THE_START = (
    "The server read the policy when it was started: if the name was added since, the owner of the data has to start "
    "the server again. Else ask the owner to add it, as a section [analysts.NAME]."
)
STOPPED_WAITING = Problem(
    status=504,
    sqlstate="57014",
    code="took_too_long",
    title="the answer isn't there yet",
    hint="The question goes on. Ask the same again later: it isn't charged twice.",
)


def forbidden(wanted: str) -> ServerRefusal:
    """The token is valid but doesn't allow this."""
    return ServerRefusal(
        Problem(
            status=403,
            sqlstate="42501",
            code="forbidden",
            title=f"this token doesn't allow it: it needs the scope {wanted}",
            hint="Ask the owner of the data for another token.",
        )
    )


def too_many(seconds: int) -> ServerRefusal:
    """Somebody asks more often than the server lets them."""
    return ServerRefusal(
        Problem(
            status=429,
            sqlstate="53400",
            code="too_many",
            title="too many requests",
            hint=f"Wait {seconds} s and ask again; nothing was charged.",
            retry_after=seconds,
        )
    )


def busy() -> ServerRefusal:
    """More questions wait than the server holds."""
    return ServerRefusal(
        Problem(
            status=503,
            sqlstate="53300",
            code="busy",
            title="the server has too much to do",
            hint="Ask again in a moment; nothing was charged.",
            retry_after=1,
        )
    )


def problem_of(error: BaseException) -> Problem:
    """What a client is told about an error."""
    if isinstance(error, ServerRefusal):
        return error.problem
    if isinstance(error, Refused):
        return _refused(error)
    if isinstance(error, OutOfBudget):
        return Problem(status=402, sqlstate="53400", code="out_of_budget", title=str(error))
    if isinstance(error, InvalidParameter):
        return Problem(status=422, sqlstate="22023", code="invalid", title=str(error))
    if isinstance(error, Failed):
        code = "failed_for_good" if error.final else "failed"
        return Problem(status=500, sqlstate="58000", code=code, title=str(error), receipt=error.receipt)
    if isinstance(error, LedgerBusy | LedgerUncertain):
        return Problem(
            status=503,
            sqlstate="55P03",
            code="ledger_busy",
            title="the ledger is busy",
            hint="Ask the same again: it isn't charged twice.",
            retry_after=1,
        )
    if isinstance(error, LedgerError | SourceError):
        # their texts name files, which are the owner's to know
        return Problem(
            status=503,
            sqlstate="58030",
            code="unavailable",
            title="the data can't be asked about at the moment",
            hint="Tell the owner of the data; the server's log says why.",
        )
    if isinstance(error, TimeoutError):
        return STOPPED_WAITING
    if isinstance(error, DitherError):
        return Problem(status=400, sqlstate="22000", code="refused", title="this can't be done")
    return INTERNAL


def _refused(error: Refused) -> Problem:
    status, sqlstate = REFUSALS.get(error.code, (400, "0A000"))
    hint = READ_AT_THE_START if error.code == "unknown_analyst" else error.hint
    return Problem(
        status=status,
        sqlstate=sqlstate,
        code=error.code,
        title=error.reason,
        hint=hint,
        position=error.position,
    )


# (HTTP status, SQLSTATE) of the refusals that have better ones than "bad request" and "not supported".
REFUSALS: dict[str, tuple[int, str]] = {
    "syntax": (400, "42601"),
    "too_deep": (400, "54001"),
    "unknown_table": (400, "42P01"),
    "unknown_column": (400, "42703"),
    "unknown_function": (400, "42883"),
    "unknown_analyst": (403, "42501"),
    "not_open": (503, "58030"),
    "unknown_receipt": (404, "02000"),
    "unknown_request": (404, "02000"),
    "too_many_requests": (429, "53400"),
    "epsilon_too_large": (400, "53400"),
    "needs_approval": (403, "42501"),
    "already_decided": (409, "55000"),
    "answer_outdated": (410, "02000"),
    "not_answered": (409, "55000"),
    "no_approval_needed": (400, "22023"),
    "no_budget_to_raise": (400, "22023"),
}
