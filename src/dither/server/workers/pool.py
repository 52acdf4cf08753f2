"""More processes for new questions: each has a curator of its own on the same data and the same ledger.

Python runs one thread at a time in a process, so one process answers new questions on about one core. Workers
are processes of this machine and user, started by the server, which sends them questions over a socket that
nobody else has. They decide nothing that the curator of one process wouldn't: the ledger's file keeps their charges
apart. A worker that dies takes no charge with it: what it had charged is on disk, and the same question again is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import pickle
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from dither.curator import Answer
from dither.errors import DitherError, LedgerUncertain
from dither.policy import Policy
from dither.server.question import AskedQuestion
from dither.server.workers.frames import LENGTH, Heartbeat, Log, Start, framed

LOG = logging.getLogger("dither.server")
# seconds: to start, to leave by itself, and between attempts to start one that died
STARTING = 600.0
PATIENCE = 10.0
PAUSES = (0.1, 0.5, 2.0, 10.0)
# seconds between heartbeats that a member is asked for, and how many it may miss before it is ended
HEARTBEAT, MOST_MISSED = 10.0, 6
# larger answers are read in a thread, so that others don't wait
LARGE = 200_000


@dataclass(slots=True, eq=False)
class _Member:
    """One process, and who waits for it."""

    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    waiting: dict[int, asyncio.Future[Answer]] = field(default_factory=dict)
    asked: int = 0
    missed: int = 0

    @property
    def busy(self) -> tuple[bool, int, int]:
        """The smaller, the sooner it will answer: one that owes heartbeats may be stuck; then in turn."""
        return self.missed > 1, len(self.waiting), self.asked

    def ask(self, number: int, question: tuple[str, AskedQuestion]) -> asyncio.Future[Answer]:
        body = framed((number, question))
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        self.asked += 1
        self.writer.write(body)
        return future

    def abandon(self) -> None:
        """Fail all calls that wait for this member."""
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    LedgerUncertain(
                        "the process that worked on this question ended; ask the same again, at no further cost if "
                        "it was charged"
                    )
                )


class WorkerPool:
    """Processes that answer new questions for one server."""

    def __init__(self, policy: Policy, *, size: int, threads: int, version: str | None = None) -> None:
        # the server has a curator too
        self._start_with = Start(policy=policy, version=version, threads=threads, sharing=size + 1)
        self._size = size
        self._members: list[_Member] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self.restarts = 0

    @property
    def ready(self) -> int:
        """How many members can be asked now."""
        return len(self._members)

    async def start(self) -> None:
        """Start all; returns when each has opened the data, or raises what kept the first one from it."""
        started = await asyncio.gather(*(self._begin() for _ in range(self._size)), return_exceptions=True)
        self._members = [member for member in started if isinstance(member, _Member)]
        problem = next((found for found in started if isinstance(found, BaseException)), None)
        if problem is not None:
            await self.stop()
            raise problem
        self._keepers = [asyncio.create_task(self._keep(member)) for member in self._members]

    def ask(self, analyst: str, wanted: AskedQuestion) -> asyncio.Future[Answer] | None:
        """The answer of the member that has least to do; None where there is no member."""
        # one whose socket was lost is gone, though its keeper may not have heard of it yet
        there = [member for member in self._members if not member.writer.is_closing()]
        if not there or self._stopping:
            return None
        member = min(there, key=lambda one: one.busy)
        return member.ask(next(self._numbers), (analyst, wanted))

    async def stop(self) -> None:
        """Let all members go: what they are doing is stopped, and recorded as that."""
        self._stopping = True
        members, self._members = self._members, []
        for member in members:
            member.writer.close()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for member in members:
            member.abandon()
        await asyncio.gather(*(_ended(member.process) for member in members))

    async def _begin(self) -> _Member:
        ours, process = _process()
        writer: asyncio.StreamWriter | None = None
        problem: BaseException | None
        try:
            ours.setblocking(False)  # noqa: FBT003
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            writer.write(framed(self._start_with))
            async with asyncio.timeout(STARTING):
                problem = await _frame(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            problem = DitherError("a worker process could not start")
        except BaseException as stopped:
            (writer or ours).close()
            _end(process)
            if isinstance(stopped, TimeoutError):
                raise DitherError(f"a worker process did not start within {STARTING:.0f} s") from None
            raise
        if problem is None:
            assert writer is not None
            return _Member(process, reader, writer)
        (writer or ours).close()
        await _ended(process)
        raise problem

    async def _keep(self, member: _Member) -> None:
        """Hand on what a member says, for as long as it lives; then start another in its place."""
        while True:
            watching, kind = asyncio.create_task(_watch(member)), ""
            try:
                await self._listen(member)
            except Exception as problem:  # noqa: BLE001 - its text may quote data
                # without a listener, calls to this member would wait for ever
                kind = type(problem).__name__
            finally:
                watching.cancel()
            if kind:
                LOG.error("a worker process said what can't be read: %s", kind)
            member.writer.close()
            if self._stopping:
                return
            # no new calls go to it from here on
            self._members.remove(member)
            member.abandon()
            await _ended(member.process)
            LOG.error("a worker process ended with code %s; another is started", member.process.returncode)
            member = await self._begin_again()
            self.restarts += 1
            self._members.append(member)

    async def _begin_again(self) -> _Member:
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            await asyncio.sleep(pause)
            try:
                return await self._begin()
            except Exception as problem:  # noqa: BLE001 - the system may have no process or file to give, for now
                kind = type(problem).__name__
            # not while it is handled: a log that can't be written prints that
            LOG.error("a worker process could not start: %s", kind)
        raise AssertionError

    async def _listen(self, member: _Member) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                said = await _frame(member.reader)
                member.missed = 0
                if isinstance(said, Heartbeat):
                    continue
                if isinstance(said, Log):
                    logging.getLogger(said.name).log(said.level, "%s", said.text)
                    continue
                number, outcome = said
                future = member.waiting.pop(number)
                if future.done():
                    continue
                if isinstance(outcome, BaseException):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)


def _process() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A new process, and our end of the socket to it."""
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as undo, theirs:
        undo.callback(ours.close)
        # -P: a file beside the policy that has the name of a module isn't taken for it
        command = [sys.executable, "-P", "-m", "dither.server.workers.worker", str(theirs.fileno())]
        nothing = subprocess.DEVNULL
        # what a process prints when it crashes may quote data, so that nobody gets it
        process = subprocess.Popen(  # noqa: S603
            command, pass_fds=(theirs.fileno(),), stdin=nothing, stdout=nothing, stderr=nothing
        )
        undo.pop_all()
    return ours, process


async def _watch(member: _Member) -> None:
    """End a member without a heartbeat: it may hold the ledger, and its calls wait in vain."""
    # counted, not timed: when a server that was stopped itself goes on, its members have missed nothing
    while member.missed < MOST_MISSED:
        if member.writer.is_closing():
            return
        member.missed += 1
        member.writer.write(framed(Heartbeat()))
        await asyncio.sleep(HEARTBEAT)
    LOG.error("a worker process gives no sign of life, and is ended")
    member.process.kill()
    # one that the system doesn't end at once would keep its socket
    member.writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> Any:
    size = LENGTH.unpack(await reader.readexactly(LENGTH.size))[0]
    body = await reader.readexactly(size)
    # from a process of our own, over a socket that only it has
    if size > LARGE:
        return await asyncio.get_running_loop().run_in_executor(None, pickle.loads, body)
    return pickle.loads(body)  # noqa: S301


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process whose socket was closed; one that doesn't leave is ended, at once if we may not wait."""
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, process.wait, PATIENCE)
    except BaseException as problem:
        _end(process)
        if not isinstance(problem, subprocess.TimeoutExpired):
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and let a thread wait for it: one with much memory takes seconds to go."""
    process.kill()
    threading.Thread(target=process.wait, name="dither-crew-end", daemon=True).start()
