"""How much a server takes on: sizes, times and numbers of requests. None of it can change what is private."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network
# seconds of a processor that a new question of a usual kind takes
WORK_EACH = 0.0025


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one client, and all together, may ask of the machine.

    ``rate`` is how many requests a second one analyst may make in the long run, and ``burst`` how many at once; the
    catalogue over the PostgreSQL protocol has five times as much, apart, and so has reading what its clients send. Of
    long texts each thousand characters count. What requests take besides is measured: in the long run one analyst has
    ``work`` seconds of a processor a second, and ``work_at_once`` before that.
    ``waiting`` is how many questions may be under way or waiting, ``workers`` how many are worked on at once; neither
    can be taken by one analyst alone.
    ``processes`` is how many processes of their own answer new questions, each with as many workers; with 0 the
    server's own does.
    ``patience`` is how many seconds a client waits for an answer; the question goes on after that, and asking again
    is free. ``slowest`` is how many seconds a client may take to send a request over HTTP, or to take its answer.
    ``largest_request`` is in bytes, ``longest_message`` is the same for one message on the wire.

    Of each protocol's connections, ``connections`` are for those who signed in; half of them at most for one analyst.
    ``strangers`` are for those who haven't yet, which they have ``sign_in`` seconds for, and ``each_address`` of these
    for one address. Connections from ``proxies`` stand for many clients: what is for each address isn't for them.
    """

    rate: float = 200.0
    burst: int = 2000
    workers: int = 8
    processes: int = 0
    waiting: int = 256
    patience: float = 60.0
    slowest: float = 30.0
    connections: int = 500
    strangers: int = 500
    each_address: int = 200
    sign_in: float = 5.0
    proxies: tuple[Network, ...] = ()
    largest_request: int = 1_000_000
    longest_message: int = 4_000_000

    @property
    def work(self) -> float:
        """Half a processor, or what so many requests of a usual kind take."""
        return max(0.5, WORK_EACH * self.rate)

    @property
    def work_at_once(self) -> float:
        """Seconds of a processor that one analyst may take before ``work`` counts."""
        return max(20.0, WORK_EACH * self.burst)
