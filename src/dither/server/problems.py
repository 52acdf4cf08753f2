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

# The codes of problems by their HTTP status and SQLSTATE; all others are 400 and 0A000 (not supported).
_CODES: dict[tuple[int, str], tuple[str, ...]] = {
    (400, "42601"): ("syntax",),
    (400, "08P01"): ("protocol",),
    (400, "22023"): ("not_json", "no_approval_needed", "no_budget_to_raise"),
    (400, "22000"): ("refused",),
    (400, "54001"): ("too_deep",),
    (400, "42P01"): ("unknown_table",),
    (400, "42703"): ("unknown_column",),
    (400, "42883"): ("unknown_function",),
    (400, "53400"): ("epsilon_too_large",),
    (401, "28P01"): ("unknown_token",),
    (402, "53400"): ("out_of_budget",),
    (403, "42501"): ("forbidden", "unknown_analyst", "needs_approval", "stale_form"),
    (404, "02000"): ("unknown_receipt", "unknown_request"),
    (404, "22023"): ("not_found",),
    (405, "22023"): ("method",),
    (406, "22023"): ("not_acceptable",),
    (409, "55000"): ("already_decided", "not_answered", "not_agreed"),
    (410, "02000"): ("answer_outdated",),
    (413, "54000"): ("too_large", "too_much"),
    (422, "22023"): ("invalid",),
    (429, "53400"): ("too_many", "too_many_requests"),
    (499, "57014"): ("cancelled",),
    (500, "58000"): ("failed", "failed_for_good"),
    (500, "XX000"): ("internal",),
    (503, "53300"): ("busy",),
    (503, "55P03"): ("ledger_busy",),
    (503, "58030"): ("not_open", "unavailable"),
    (503, "XX000"): ("shadow",),
    (503, "57P01"): ("shadow_gone",),
    (504, "57014"): ("took_too_long",),
}
KINDS = {code: kind for kind, codes in _CODES.items() for code in codes}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProblem:
    """An error as clients see it.

    ``code`` is the permanent short name of the reason, ``hint`` says what to do, ``position`` is the place in the
    question (line, column; both from 1), ``receipt`` the number of a charge that was made. ``retry_after`` is in
    seconds. ``status`` and ``sqlstate`` are those of the code unless others are given.
    """

    code: str
    title: str
    hint: str = ""
    position: tuple[int, int] | None = None
    receipt: str | None = None
    retry_after: int | None = None
    status: int = 0
    sqlstate: str = ""

    def __post_init__(self) -> None:
        status, sqlstate = KINDS.get(self.code, (400, "0A000"))
        object.__setattr__(self, "status", self.status or status)
        object.__setattr__(self, "sqlstate", self.sqlstate or sqlstate)


class ServerRefusal(Exception):  # noqa: N818
    """Something that the server itself refuses, before the curator is asked: no charge was made."""

    def __init__(self, problem: ServerProblem) -> None:
        self.problem = problem
        super().__init__(problem.title)


UNKNOWN_TOKEN = ServerProblem(
    code="unknown_token",
    title="the token is unknown or has expired",
    hint="Ask the owner of the data for a token (dither token create NAME).",
)
INTERNAL = ServerProblem(
    code="internal",
    title="something went wrong in the server",
    hint="If the question was charged, the same again is free. Tell the owner of the data if it happens again.",
)
# what the curator says of such a name is true of the policy that the server has read
READ_AT_THE_START = (
    "The server read the policy when it was started: if the name was added since, the owner of the data has to start "
    "the server again. Else ask the owner to add it, as a section [analysts.NAME]."
)
STOPPED_WAITING = ServerProblem(
    code="took_too_long",
    title="the answer isn't there yet",
    hint="The question goes on. Ask the same again later: it isn't charged twice.",
)


def forbidden(wanted: str) -> ServerRefusal:
    """The token is valid but doesn't allow this."""
    title = f"this token doesn't allow it: it needs the scope {wanted}"
    return ServerRefusal(
        ServerProblem(code="forbidden", title=title, hint="Ask the owner of the data for another token.")
    )


def too_many(seconds: int) -> ServerRefusal:
    """Somebody asks more often than the server lets them."""
    hint = f"Wait {seconds} s and ask again; nothing was charged."
    return ServerRefusal(ServerProblem(code="too_many", title="too many requests", hint=hint, retry_after=seconds))


def busy() -> ServerRefusal:
    """More questions wait than the server holds."""
    hint = "Ask again in a moment; nothing was charged."
    return ServerRefusal(ServerProblem(code="busy", title="the server has too much to do", hint=hint, retry_after=1))


def problem_of(error: BaseException) -> ServerProblem:
    """What a client is told about an error."""
    if isinstance(error, ServerRefusal):
        return error.problem
    if isinstance(error, Refused):
        hint = READ_AT_THE_START if error.code == "unknown_analyst" else error.hint
        return ServerProblem(code=error.code, title=error.reason, hint=hint, position=error.position)
    if isinstance(error, OutOfBudget):
        return ServerProblem(code="out_of_budget", title=str(error))
    if isinstance(error, InvalidParameter):
        return ServerProblem(code="invalid", title=str(error))
    if isinstance(error, Failed):
        return ServerProblem(
            code="failed_for_good" if error.final else "failed", title=str(error), receipt=error.receipt
        )
    if isinstance(error, LedgerBusy | LedgerUncertain):
        hint = "Ask the same again: it isn't charged twice."
        return ServerProblem(code="ledger_busy", title="the ledger is busy", hint=hint, retry_after=1)
    if isinstance(error, LedgerError | SourceError):
        # their texts name files, which are the owner's to know
        hint = "Tell the owner of the data; the server's log says why."
        return ServerProblem(code="unavailable", title="the data can't be asked about at the moment", hint=hint)
    if isinstance(error, TimeoutError):
        return STOPPED_WAITING
    if isinstance(error, DitherError):
        return ServerProblem(code="refused", title="this can't be done")
    return INTERNAL
