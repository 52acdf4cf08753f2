"""How much a server takes on: sizes, times and numbers of requests. None of it can change what is private."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, and all together, may ask of the machine.

    ``rate`` is how many requests a second one analyst may make in the long run, and ``burst`` how many at once; the
    catalogue over the PostgreSQL protocol has five times as much, apart, and so has reading what its clients send, of
    which each thousand characters count.
    ``waiting`` is how many questions may be under way or waiting, ``workers`` how many are worked on at once.
    ``processes`` is how many processes of their own answer new questions, each with as many workers; with 0 the
    server's own does.
    ``patience`` is how many seconds a client waits for an answer; the question goes on after that, and asking again
    is free. ``slowest`` is how many seconds a client may take to send a request over HTTP, or to take its answer.
    ``largest_request`` is in bytes, ``longest_message`` is the same for one message on the wire.
    """

    rate: float = 200.0
    burst: int = 2000
    workers: int = 8
    processes: int = 0
    waiting: int = 256
    patience: float = 60.0
    slowest: float = 30.0
    connections: int = 500
    largest_request: int = 1_000_000
    longest_message: int = 4_000_000
