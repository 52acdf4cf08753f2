from .base import (
    SHORTEST_SALT as SHORTEST_SALT,
    Engine as Engine,
    EngineBroken as EngineBroken,
    EngineFailure as EngineFailure,
)
from .duckdb.engine import DuckDBEngine as DuckDBEngine, share_of_memory as share_of_memory
from .reference.engine import ReferenceEngine as ReferenceEngine
