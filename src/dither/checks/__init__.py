"""Public conformance suites: hold your own mechanism, protocol or ledger to the contract that dither's are held to."""

from dither.checks.engine import check_engine
from dither.checks.ledger import check_ledger
from dither.checks.mechanism import Finding, Report, check_mechanism
from dither.checks.randomizer import check_randomizer
from dither.checks.statistics import chi_square, largest_gap, proportion_at_most

__all__ = [
    "Finding",
    "Report",
    "check_engine",
    "check_ledger",
    "check_mechanism",
    "check_randomizer",
    "chi_square",
    "largest_gap",
    "proportion_at_most",
]
