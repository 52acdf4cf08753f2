"""A worker: the process that ``WorkerPool`` starts. It answers what it is sent until its socket is closed."""

from __future__ import annotations

import contextlib
import logging
import pickle
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from dither.curator import Answer, Curator
from dither.errors import DitherError, SourceError
from dither.server.question import AskedQuestion
from dither.server.workers.frames import LENGTH, Heartbeat, Log, Start, framed


class _Link:
    """The socket to the server."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._stream = link, link.makefile("rb")
        self._sending = threading.Lock()

    def said(self) -> Any:
        """The next thing that the server says; None when it has gone."""
        with contextlib.suppress(ConnectionError):
            head = self._stream.read(LENGTH.size)
            if len(head) == LENGTH.size:
                size = LENGTH.unpack(head)[0]
                body = self._stream.read(size)
                if len(body) == size:
                    return pickle.loads(body)  # noqa: S301 - from the server that started this process
        return None

    def say(self, what: object) -> None:
        """Send something; who has gone isn't told."""
        self.send(framed(what))

    def send(self, body: bytes) -> None:
        """Send what was framed."""
        with self._sending, contextlib.suppress(OSError):
            self._link.sendall(body)

    def hang_up(self) -> None:
        """Shut the socket down: the server sees that this worker leaves, and our reader that there is no more."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stream.close()


class _LogToServer(logging.Handler):
    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.say(Log(name=record.name, level=record.levelno, text=record.getMessage()))


def _answer(link: _Link, curator: Curator, number: int, analyst: str, wanted: AskedQuestion) -> None:
    outcome: Answer | Exception
    try:
        try:
            outcome = curator.analyst(analyst).sql(wanted.sql, wanted.terms)
        except DitherError as problem:
            outcome = problem
        body = framed((number, outcome))
    except BaseException as problem:  # noqa: BLE001 its text may quote data: the kind alone leaves this process
        # any error, also of pickling the answer, is reported to the caller
        body = framed((number, RuntimeError(type(problem).__name__)))
    link.send(body)
    if curator.broken:
        # whatever it is asked from here on it could only refuse: another member takes its place
        link.hang_up()


def _opened(start: Start) -> Curator:
    # changed data is accepted by the server's own curator, never here
    curator = Curator.open(start.policy, sharing=start.sharing, accepted=start.version)
    if start.version not in (None, curator.version):
        curator.close()
        raise SourceError("the data isn't what the server opened any more: start the server again")
    return curator


def _work(link: _Link) -> None:
    start = link.said()
    assert isinstance(start, Start)
    try:
        curator = _opened(start)
    except DitherError as problem:
        link.say(problem)
        return
    except Exception as problem:
        # nobody reads what this process prints; the text may quote data
        link.say(DitherError(f"a worker process could not start: {type(problem).__name__}"))
        raise
    # pyarrow looks for pandas at its first conversion: now, rather than in the first question
    pa.array([0]).to_numpy(zero_copy_only=False)
    own = logging.getLogger("dither")
    own.addHandler(_LogToServer(link))
    with ThreadPoolExecutor(start.threads, thread_name_prefix="dither-question") as pool:
        try:
            link.say(None)
            while (said := link.said()) is not None:
                if isinstance(said, Heartbeat):
                    link.say(said)
                    continue
                number, (analyst, wanted) = said
                pool.submit(_answer, link, curator, number, analyst, wanted)
        finally:
            # stops what is running; its charge is on disk and the same again is free
            pool.shutdown(wait=False, cancel_futures=True)
            curator.close()


def main() -> None:
    """Answer until the server closes the socket whose number is the argument."""
    # the server is told when to stop, and closes the socket then
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as given:
        link = _Link(given)
        try:
            _work(link)
        finally:
            link.close()


if __name__ == "__main__":
    main()
