"""Engines: bounded plans to exact whole numbers; no noise, no analyst text."""

from dither.engines.base import SHORTEST_SALT, Engine, EngineFailure
from dither.engines.duckdb import DuckDBEngine
from dither.engines.reference import ReferenceEngine

__all__ = ["SHORTEST_SALT", "DuckDBEngine", "Engine", "EngineFailure", "ReferenceEngine"]
