"""Structured logs: one JSON object a line with what happened and how long it took; no questions, values or tokens."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

LOG = logging.getLogger("dither.server.requests")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, where, what, and the fields given with ``extra={"fields": …}``.

    Of an exception the kind alone is written, and of what libraries report only that they do: their texts may quote
    requests, data or files.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        form: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage() if _own(record) else "a library reported a problem",
        }
        form |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            form["kind"] = record.exc_info[0].__name__
        return json.dumps(form, ensure_ascii=True, default=str)


def _own(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] == "dither"


def _worth_writing(record: logging.LogRecord) -> bool:
    """Everything of ours; of libraries, warnings and worse.

    Not uvicorn's warnings: it warns of each malformed request, so any stranger could fill the disk with them.
    """
    least = logging.ERROR if record.name.startswith("uvicorn") else logging.WARNING
    return _own(record) or record.levelno >= least


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, and says nothing where that can't be done.

    Python's own handler prints what was being handled then, with the texts of all exceptions, to stderr.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A full disk, or a stream that was closed: the line is lost, and the server goes on."""


@contextmanager
def writing_logs(stream: TextIO, level: int = logging.INFO) -> Iterator[None]:
    """Send what the server logs to a stream, for as long as the block lasts."""
    handler = _Lines(stream)
    handler.setFormatter(JsonLines())
    handler.addFilter(_worth_writing)
    root, own = logging.getLogger(), logging.getLogger("dither")
    before = root.level, own.level
    root.addHandler(handler)
    root.setLevel(min(level, root.level) if root.level else level)
    own.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        own.setLevel(before[1])
        handler.close()


class RequestLog:
    """Logs each HTTP request: method, path without its query, status and time. Whatever is in a body stays out."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on and log how it ended."""
        if scope["type"] != "http" or not LOG.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            spent = round(1000 * (time.monotonic() - began), 1)
            # the path as it was routed: one that isn't known may hold anything
            route = scope.get("route")
            path = getattr(route, "path", "unknown")
            LOG.info(
                "request", extra={"fields": {"method": scope["method"], "path": path, "status": status, "ms": spent}}
            )
