"""Audit: evidence, measured on running code, that what is claimed about privacy holds.

What needs a database is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.audit.claims import Claim, claim_of
from dither.audit.lower_bound import lower_bound
from dither.audit.result import Assumption, LowerBound, Sketch, Verdict
from dither.audit.sampling import Batched
from dither.audit.search import neighbouring_tables, query_patterns, search, search_tables

if TYPE_CHECKING:
    from dither.audit import zoo
    from dither.audit.everything import Part, Row, audit_everything
    from dither.audit.neighbours import (
        Breach,
        Fault,
        Neighbours,
        breaches,
        check_question,
        difference,
        neighbour_of,
        reading,
    )
    from dither.audit.queries import QueryAudit, audit_query
    from dither.audit.query_neighbours import NeighbourTest
    from dither.audit.report import write_report

__all__ = [
    "Assumption",
    "Batched",
    "Breach",
    "Claim",
    "Fault",
    "LowerBound",
    "NeighbourTest",
    "Neighbours",
    "Part",
    "QueryAudit",
    "Row",
    "Sketch",
    "Verdict",
    "audit_everything",
    "audit_query",
    "breaches",
    "check_question",
    "claim_of",
    "difference",
    "lower_bound",
    "neighbour_of",
    "neighbouring_tables",
    "query_patterns",
    "reading",
    "search",
    "search_tables",
    "write_report",
    "zoo",
]

_HOMES = {
    "dither.audit.everything": (
        "Part",
        "Row",
        "audit_everything",
    ),
    "dither.audit.neighbours": (
        "Breach",
        "Fault",
        "Neighbours",
        "breaches",
        "check_question",
        "difference",
        "neighbour_of",
        "reading",
    ),
    "dither.audit.queries": (
        "QueryAudit",
        "audit_query",
    ),
    "dither.audit.query_neighbours": ("NeighbourTest",),
    "dither.audit.report": ("write_report",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name == "zoo":
            return import_module("dither.audit.zoo")
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.audit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
