"""Blocks of work, done here or by copies of this process; each block counts once, in an order fixed beforehand.

Copies are made by fork, so that any function can be worked on without being sent anywhere. Two copies of a random
generator draw the same, and counting its draws twice would make every interval too narrow. So the generators of Python
and numpy are seeded anew in each copy, the first draws of all copies are compared with each other and with those made
here, and if any are the same the copies are ended and the work is done here alone.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn, TypeAlias

import numpy as np

from dither.audit.counting import Look, looks
from dither.audit.drawing import clock
from dither.errors import DitherError, InvalidData
from dither.mechanisms.base import Floats

# One block: statistics that add up over blocks.
Work: TypeAlias = Callable[[], Floats]
# What identifies a random stream: fingerprints of its next draws.
Probe: TypeAlias = Callable[[], frozenset[bytes]]
# The number of a block with its statistics; None when there is nothing new yet.
Arrival: TypeAlias = "tuple[int, Floats] | None"

PAUSE = 0.05
LAST_BLOCK = 1 << 62


def blocks(work: Work, probe: Probe, workers: int, *, patience: float) -> Generator[Arrival, None, None]:
    """Block after block without end, by so many processes; close it to end them.

    ``patience`` is how many seconds copies may take to begin; if they don't, the work is done here.
    """
    if workers > 1 and hasattr(os, "fork"):
        pool = _Pool()
        try:
            pool.start(work, probe, workers)
            if pool.independent(probe, clock.now() + patience):
                yield from pool.arrivals()
        finally:
            pool.end()
    for number in itertools.count():
        yield number, work()


def totals(arriving: Iterator[Arrival], planned: int, until: float) -> Iterator[tuple[Look, Floats]]:
    """The statistics at each look, of exactly the blocks that belong to it, until the time is over.

    Which blocks these are doesn't depend on what was drawn, or on how long that took: only then are counts binomial.
    """
    schedule = looks(planned)
    look = next(schedule)
    early: dict[int, Floats] = {}
    total, used = None, 0
    for arrival in arriving:
        if arrival is not None:
            early[arrival[0]] = arrival[1]
        while used in early:
            block = early.pop(used)
            total = block if total is None else total + block
            used += 1
            if used == look.blocks:
                yield look, total
                look = next(schedule)
        if clock.now() >= until:
            return


@dataclass(frozen=True, slots=True)
class _Copy:
    process: int
    results: Connection[Any, Any]


class _Pool:
    """Copies of this process, each at its own share of the blocks."""

    def __init__(self) -> None:
        self._members: list[_Copy] = []

    def start(self, work: Work, probe: Probe, size: int) -> None:
        """Make so many copies, or none."""
        # an interrupt between a fork and its entry in the list would leave a process behind
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for number in range(size):
                receiver, sender = Pipe(duplex=False)
                process = _forked()
                if process == 0:
                    listening = [*(member.results for member in self._members), receiver]
                    _serve(work, probe, range(number, LAST_BLOCK, size), sender, listening, mask)
                sender.close()
                self._members.append(_Copy(process, receiver))
        except OSError:
            # no more processes to be had: those that exist would leave blocks out
            self.end()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def independent(self, probe: Probe, until: float) -> bool:
        """Whether all copies began, with draws that nobody else has."""
        if not self._members:
            return False
        streams = [probe()]
        for member in self._members:
            if not member.results.poll(max(0.0, until - clock.now())):
                return False
            streams.append(_received(member))
        everything = [mark for stream in streams for mark in stream]
        return len(everything) == len(set(everything))

    def arrivals(self) -> Iterator[Arrival]:
        """Blocks as they come; None at least every few hundredths of a second."""
        by_results = {member.results: member for member in self._members}
        while True:
            ready = wait(list(by_results), timeout=PAUSE)
            for results in ready:
                yield _received(by_results[results])  # type: ignore[index]
            if not ready:
                yield None

    def end(self) -> None:
        """End all copies and wait until they are gone."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for member in self._members:
                with suppress(ProcessLookupError):
                    os.kill(member.process, signal.SIGKILL)
            for member in self._members:
                with suppress(ChildProcessError):
                    os.waitpid(member.process, 0)
                member.results.close()
            self._members = []
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked() -> int:
    with warnings.catch_warnings():
        # newer Pythons warn where there are threads; those of numpy's libraries are made for forks
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _received(member: _Copy) -> Any:
    try:
        said = member.results.recv()
    except (EOFError, OSError):
        raise DitherError(
            "a copy of this process ended by itself (out of memory?): run the audit with workers=1"
        ) from None
    if isinstance(said, _Failure):
        cause = pickle.loads(said.cause) if said.cause is not None else RuntimeError(said.text)  # noqa: S301
        raise InvalidData(said.text) from cause
    return said


@dataclass(frozen=True, slots=True)
class _Failure:
    """What went wrong in a copy: the message, and the exception if it can travel."""

    text: str
    cause: bytes | None


def _serve(
    work: Work,
    probe: Probe,
    numbers: Iterable[int],
    results: Connection[Any, Any],
    others: list[Connection[Any, Any]],
    mask: Any,
) -> NoReturn:
    """The main loop of a worker process: never returns, never prints, ends when the pipe is closed."""
    try:
        # read ends of the other pipes: while they are open here, writers don't see that the reader is gone
        for other in others:
            other.close()
        # interrupts are for the process that started this one, which then ends it
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        random.seed(os.urandom(32))
        np.random.seed()  # noqa: NPY002  the mechanism may use it
        results.send(probe())
        for number in numbers:
            results.send((number, work()))
    except BaseException as problem:  # noqa: BLE001  whatever it is, it is told to the process that waits
        with suppress(BaseException):
            results.send(_failure(problem))
    finally:
        os._exit(0)


def _failure(problem: BaseException) -> _Failure:
    cause = problem.__cause__ or problem
    try:
        sent = pickle.dumps(cause)
        pickle.loads(sent)  # noqa: S301  some exceptions can be sent but not received
    except Exception:  # noqa: BLE001
        sent = None
    text = str(problem) if isinstance(problem, InvalidData) else f"{type(problem).__name__}: {problem}"
    return _Failure(text, sent)
