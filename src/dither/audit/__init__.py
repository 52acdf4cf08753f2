"""Audit: evidence, measured on running code, that what is claimed about privacy holds."""

from dither.audit.claims import Claim, claim_of
from dither.audit.everything import Part, Row, audit_everything
from dither.audit.lower_bound import lower_bound
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
from dither.audit.result import Assumption, LowerBound, Sketch, Verdict
from dither.audit.sampling import Batched
from dither.audit.search import neighbouring_tables, query_patterns, search, search_tables

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
]
