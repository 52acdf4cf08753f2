"""The HTTP API: questions, prices, budgets and records as JSON, CSV and Arrow."""

from dither.errors import MissingLibrary

try:
    import fastapi as _fastapi  # noqa: F401
    import orjson as _orjson  # noqa: F401
except ImportError as problem:
    raise MissingLibrary("the HTTP server needs more libraries: pip install 'dither[server]'") from problem
