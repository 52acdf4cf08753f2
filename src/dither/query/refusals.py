"""Every reason for which a question is refused, where in the text it went wrong, and how much work it may make.

What is counted are steps whose number a text can multiply: public values that are computed one by one, and written out.
Whoever binds or prices a question does so in ``limited``; the count depends on the text and on public facts alone, so
the same question is always refused or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from sqlglot import exp

from dither.errors import Refused

CODES: Mapping[str, str] = MappingProxyType(
    {
        "syntax": "the text isn't SQL that dither reads",
        "too_long": "the text is too long, or has too many parts",
        "too_deep": "parentheses, subqueries or expressions are nested too deeply",
        "statement": "only one SELECT can be asked at a time",
        "unsupported": "a clause or operator that dither doesn't support",
        "unknown_table": "no such table in the policy",
        "unknown_column": "no such column here",
        "ambiguous": "a name that more than one thing has",
        "hidden_column": "the owner hides this column",
        "unknown_function": "a function that isn't on the list, or whose value would not depend on the row alone",
        "types": "arguments of the wrong kind or number",
        "literal": "a constant that can't be read",
        "parameter": "a placeholder for a value",
        "subquery": "a subquery where none can be answered",
        "table_function": "something other than a table of the policy after FROM",
        "public_only": "the question reads no private table",
        "rows_shown": "rows of a private table would be shown",
        "nothing_to_ask": "no aggregate and no group",
        "not_grouped": "a column that is neither a group key nor inside an aggregate",
        "aggregate": "an aggregate that can't be answered privately, or not here",
        "bounds_missing": "an aggregate needs bounds that nobody stated",
        "bounds_wider": "the question states wider bounds than the policy allows",
        "unit_shown": "the privacy unit as a group or inside an aggregate",
        "second_aggregation": "an aggregation of released numbers, or a second private aggregation",
        "post_processing": "something that can't be done to the released table",
        "join": "a join in which a row could belong to several units or to none",
        "row_level": "a row of a table protected row by row could count more than once",
        "units_mixed": "tables with different privacy units",
        "union": "parts of a UNION that don't fit together",
        "window": "a window that reaches over several units",
        "limit": "LIMIT or ORDER BY where it would choose among private rows",
        "public_groups": "PUBLIC_GROUPS with a key that isn't public",
        "too_many_groups": "more public groups than an answer may have",
        "options": "an option that is unknown, wrong, or looser than the policy",
        "auto": "a bound on rows that is to be chosen where none can be",
        "profile": "a profile of something that has none, or with more than tables and WHERE",
        "interval": "the error bars of something that has none",
    }
)
"""The permanent short name of each reason, and what it means."""


def refused(code: str, reason: str, hint: str = "") -> Refused:
    """A refusal with a code from the list; the caller that knows the place adds it."""
    assert code in CODES, code
    return Refused(reason, code=code, hint=hint)


def name_shown(name: str) -> str:
    """A name from the text, fit to be shown: short and printable."""
    clean = "".join(c if c.isprintable() else "?" for c in name[:60])
    return f"“{clean}”" + ("…" if len(name) > 60 else "")


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that has any part besides the known ones: nothing is dropped in silence."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, [], ""):
            raise refused("unsupported", f"this use of {name_shown(_word(name))} isn't supported")


def _word(name: str) -> str:
    return name.strip("_").upper()


def placed(error: Refused, node: object, text: str) -> Refused:
    """The same refusal with the place of a node, unless it has a place already."""
    if error.position is None and isinstance(node, exp.Expression | exp.Expr):
        start = first_offset(node)
        if start is not None:
            error.position = line_and_column(text, start)
    return error


def first_offset(node: exp.Expr) -> int | None:
    """Where the first part of a node that has a place begins in the text."""
    starts = [
        part.meta["start"]
        for part, _ in zip(node.walk(bfs=True), range(200), strict=False)
        if "start" in (part._meta or {})  # noqa: SLF001 - `meta` would create a dictionary for every node
    ]
    return min(starts, default=None)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


# ---------------------------------------------------------------------------------------------- effort


# about a second of a processor
MOST_STEPS = 500_000


class Effort:
    """The steps that were made so far."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


_COUNTED: ContextVar[Effort | None] = ContextVar("dither_effort", default=None)


@contextmanager
def limited() -> Iterator[Effort]:
    """Count what is spent in this block, from nothing, and refuse what is too much.

    Example:
        >>> with limited() as effort:
        ...     spend(1000)
        >>> effort.steps
        1000
    """
    effort = Effort()
    before = _COUNTED.set(effort)
    try:
        yield effort
    finally:
        _COUNTED.reset(before)


def spend(steps: int) -> None:
    """Count so many steps, before they are made.

    Raises:
        Refused: If the question has made too many; nothing was charged.
    """
    effort = _COUNTED.get()
    if effort is None:
        return
    effort.steps += steps
    if effort.steps > MOST_STEPS:
        raise Refused(
            "this question computes too many public values, one by one",
            code="too_long",
            hint="Compute with fewer columns of many public values at once, or ask in several questions.",
        )
