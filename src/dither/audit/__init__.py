"""Audit: evidence, measured on running code, that what is claimed about privacy holds."""

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

__all__ = [
    "Breach",
    "Fault",
    "Neighbours",
    "breaches",
    "check_question",
    "difference",
    "neighbour_of",
    "reading",
]
