"""Connection slots of a protocol: those of signed-in clients can't be taken by clients that haven't signed in.

Anybody can open sockets and send nothing. So each connection starts as a stranger, with a slot among the strangers and
a short timeout; a valid token moves it to the slots for signed-in clients. Strangers are never refused: where there are
too many, the oldest connection of the address with the most is dropped. So a crowd from one address evicts its own, and
a client that signs in at once gets in, also from that very address.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from dither.server.limits import ServerLimits

# of an IPv6 address, what one client can't choose
PREFIX = 64
# the entry in the scope of an HTTP request that is called with the name of the analyst who signed in
SIGNED_IN = "dither.signed_in"


class NoPlace(Exception):  # noqa: N818
    """There is no place for one more who is signed in; ``of_one`` if it is this analyst who has too many."""

    def __init__(self, *, of_one: bool) -> None:
        self.of_one = of_one
        super().__init__("too many connections")


class Visitor:
    """One connection: where it comes from, and whether it is signed in."""

    __slots__ = ("address", "analyst", "drop", "proxied", "signed_in")

    def __init__(self, address: str, drop: Callable[[], None], *, proxied: bool) -> None:
        self.address, self.drop, self.proxied = address, drop, proxied
        self.signed_in, self.analyst = False, ""


class ConnectionPlaces:
    """The places of one protocol. Not for several threads: it belongs to an event loop.

    Example:
        >>> pushed = []
        >>> places = ConnectionPlaces(ServerLimits(strangers=3, each_address=2, connections=2))
        >>> first, second, third = [places.enter("192.0.2.1", lambda n=n: pushed.append(n)) for n in (1, 2, 3)]
        >>> other = places.enter("192.0.2.2", lambda: pushed.append("other"))
        >>> pushed
        [1]
        >>> places.sign_in(other, "ana")
        >>> (places.strangers, places.signed_in)
        (2, 1)
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        # by address, and in each of them in the order in which they came
        self._direct: dict[str, OrderedDict[Visitor, None]] = {}
        self._proxied: OrderedDict[Visitor, None] = OrderedDict()
        self._waiting = 0
        self._signed_in = 0
        self._of_each: Counter[str] = Counter()

    @property
    def strangers(self) -> int:
        """How many are there that haven't signed in."""
        return self._waiting + len(self._proxied)

    @property
    def signed_in(self) -> int:
        """How many are signed in."""
        return self._signed_in

    @property
    def room(self) -> bool:
        """Whether one more can sign in."""
        return self._signed_in < self._limits.connections

    def enter(self, peer: object, drop: Callable[[], None]) -> Visitor:
        """A stranger's place for a connection from there; ``drop`` is called when another needs it more."""
        address, proxied = self._address(peer)
        visitor = Visitor(address, drop, proxied=proxied)
        gone = self._too_many(visitor)
        if gone is not None:
            self.leave(gone)
        if proxied:
            self._proxied[visitor] = None
        else:
            self._direct.setdefault(address, OrderedDict())[visitor] = None
            self._waiting += 1
        if gone is not None:
            gone.drop()
        return visitor

    def sign_in(self, visitor: Visitor, analyst: str | None) -> None:
        """Give a stranger a place of those who are signed in; None is for a connection that many share.

        Raises:
            NoPlace: If there is none; then nothing has changed.
        """
        if visitor.signed_in:
            return
        if not self.room:
            raise NoPlace(of_one=False)
        # so that nobody can take all places and leave none to others
        if analyst is not None and self._of_each[analyst] >= max(1, self._limits.connections // 2):
            raise NoPlace(of_one=True)
        self.leave(visitor)
        visitor.signed_in, visitor.analyst = True, analyst or ""
        self._signed_in += 1
        self._of_each[visitor.analyst] += 1

    def leave(self, visitor: Visitor) -> None:
        """The connection has ended. Idempotent."""
        if visitor.signed_in:
            visitor.signed_in = False
            self._signed_in -= 1
            self._of_each[visitor.analyst] -= 1
            if not self._of_each[visitor.analyst]:
                del self._of_each[visitor.analyst]
        elif visitor.proxied:
            self._proxied.pop(visitor, None)
        else:
            there = self._direct.get(visitor.address, OrderedDict())
            if visitor in there:
                del there[visitor]
                self._waiting -= 1
                if not there:
                    del self._direct[visitor.address]

    def _too_many(self, visitor: Visitor) -> Visitor | None:
        """Who has to go so that this one can come."""
        if visitor.proxied:
            return next(iter(self._proxied)) if len(self._proxied) >= self._limits.strangers else None
        there = self._direct.get(visitor.address, ())
        if len(there) >= self._limits.each_address:
            return next(iter(there))
        if self._waiting < self._limits.strangers:
            return None
        # of several that have as many, the one that has been there for longest: dictionaries keep the order
        most = max(self._direct.values(), key=lambda crowd: len(crowd))
        return next(iter(most))

    def _address(self, peer: object) -> tuple[str, bool]:
        """What counts as one address, and whether it is a proxy's."""
        try:
            address = ip_address(str(peer[0]).partition("%")[0] if isinstance(peer, tuple) else str(peer))
        except ValueError:
            return "", False
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        proxied = any(address in network for network in self._limits.proxies)
        if isinstance(address, IPv6Address):
            return str(int(address) >> (address.max_prefixlen - PREFIX)), proxied
        return str(address), proxied
