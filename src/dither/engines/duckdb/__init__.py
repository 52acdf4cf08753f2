"""DuckDB as an engine: in the process, read-only, locked."""
