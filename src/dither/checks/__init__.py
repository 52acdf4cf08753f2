"""Public conformance suites: hold your own mechanism, protocol or ledger to the contract that dither's are held to."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "dither.checks.engine": ("check_engine",),
    "dither.checks.ledger": ("check_ledger",),
    "dither.checks.mechanism": ("Finding", "Report", "check_mechanism"),
    "dither.checks.randomizer": ("check_randomizer",),
    "dither.checks.statistics": ("chi_square", "largest_gap", "proportion_at_most"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.checks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
