"""Engines: bounded plans to exact whole numbers; no noise, no analyst text."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.engines.base import SHORTEST_SALT, Engine, EngineBroken, EngineFailure
    from dither.engines.duckdb import DuckDBEngine, share_of_memory
    from dither.engines.reference import ReferenceEngine

__all__ = [
    "SHORTEST_SALT",
    "DuckDBEngine",
    "Engine",
    "EngineBroken",
    "EngineFailure",
    "ReferenceEngine",
    "share_of_memory",
]

_HOMES = {
    "dither.engines.base": ("Engine", "EngineBroken", "EngineFailure", "SHORTEST_SALT"),
    "dither.engines.duckdb": ("DuckDBEngine", "share_of_memory"),
    "dither.engines.reference": ("ReferenceEngine",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.engines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
