"""Places: nobody who isn't signed in takes one of those who are, and a crowd pushes out its own."""

import asyncio
import socket
from ipaddress import ip_network

import pytest

from dither.server.limits import ServerLimits
from dither.server.traffic.connection_slots import ConnectionPlaces, NoPlace
from dither.server.traffic.listening import Listener, bound


class Crowd:
    """Enters, and remembers who was pushed out."""

    def __init__(self, **limits):
        self.places, self.gone = ConnectionPlaces(ServerLimits(**limits)), []

    def enter(self, address, name=None):
        return self.places.enter((address, 4711), lambda: self.gone.append(address if name is None else name))


def test_a_crowd_from_one_address_pushes_out_its_own():
    crowd = Crowd(strangers=10, each_address=4)
    quiet = crowd.enter("192.0.2.1", "quiet")
    for number in range(100):
        crowd.enter("192.0.2.2", number)
    assert crowd.gone == list(range(96))
    assert crowd.places.strangers == 5
    crowd.places.sign_in(quiet, "ana")
    assert (crowd.places.strangers, crowd.places.signed_in) == (4, 1)


def test_several_addresses_leave_room_for_others():
    """Where all places are taken, the address that has most of them gives one."""
    crowd = Crowd(strangers=10, each_address=8)
    crowd.enter("192.0.2.1", "quiet")
    for number in range(9):
        crowd.enter("192.0.2.2" if number < 6 else "192.0.2.3", number)
    crowd.enter("192.0.2.4", "new")
    crowd.enter("192.0.2.5", "newer")
    assert crowd.gone == [0, 1]


def test_where_all_have_as_many_the_first_goes():
    crowd = Crowd(strangers=5, each_address=5)
    for number in range(8):
        crowd.enter(f"192.0.2.{number}")
    assert crowd.gone == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]


def test_strangers_never_take_places_of_those_who_sign_in():
    crowd = Crowd(strangers=3, each_address=3, connections=2)
    for number in range(50):
        crowd.enter("192.0.2.1", number)
    for name in ("ana", "bob"):
        crowd.places.sign_in(crowd.enter("192.0.2.1"), name)
    assert not crowd.places.room
    late = crowd.enter("192.0.2.1")
    with pytest.raises(NoPlace) as full:
        crowd.places.sign_in(late, "eve")
    assert not full.value.of_one
    # and those who are signed in are never pushed out
    for number in range(50):
        crowd.enter("192.0.2.1", number)
    assert crowd.places.signed_in == 2


def test_one_analyst_has_half_of_the_places():
    crowd = Crowd(connections=4)
    mine = [crowd.enter("192.0.2.1") for _ in range(3)]
    for visitor in mine[:2]:
        crowd.places.sign_in(visitor, "ana")
    with pytest.raises(NoPlace) as full:
        crowd.places.sign_in(mine[2], "ana")
    assert full.value.of_one
    crowd.places.leave(mine[0])
    crowd.places.sign_in(mine[2], "ana")
    # twice is as once, for whichever of them
    for visitor in (*mine, *mine):
        crowd.places.leave(visitor)
    assert (crowd.places.strangers, crowd.places.signed_in) == (0, 0)


def test_a_proxy_has_places_of_its_own_and_no_limit_for_its_address():
    crowd = Crowd(strangers=5, each_address=2, connections=8, proxies=(ip_network("10.0.0.0/8"), ip_network("::1")))
    crowd.enter("192.0.2.1", "direct")
    for number in range(7):
        crowd.enter("10.1.2.3" if number else "::1", number)
    assert crowd.gone == [0, 1]
    # one connection after the other is many analysts': none of them has too many
    for _ in range(6):
        crowd.places.sign_in(crowd.enter("10.1.2.3"), None)
    for _ in range(2):
        crowd.places.sign_in(crowd.enter("192.0.2.1"), "ana")
    late = crowd.enter("10.1.2.3")
    with pytest.raises(NoPlace):
        crowd.places.sign_in(late, None)
    assert "direct" not in crowd.gone


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("not an address", "nor this", True),
    ],
)
def test_what_counts_as_one_address(one, other, same):
    crowd = Crowd(each_address=1)
    crowd.enter(one, "one")
    crowd.enter(other, "other")
    assert crowd.gone == (["one"] if same else [])


def test_whoever_is_accepted_while_the_server_stops_is_hung_up_on():
    """Nothing of a task that is cancelled before it began is run: its socket would be left to the collector."""

    async def story():
        places = ConnectionPlaces(ServerLimits())
        links = bound("127.0.0.1", 0)
        listener = Listener(links, lambda _: asyncio.Protocol(), places=places, tls=None, handshake=1.0)
        listener.start()
        clients = [socket.create_connection(links[0].getsockname(), timeout=30) for _ in range(5)]
        listener._accept(links[0])
        accepted = set(listener._waiting)
        await listener.stop()
        await asyncio.sleep(0)
        return clients, accepted, listener

    clients, accepted, listener = asyncio.run(story())
    assert len(accepted) == 5
    assert {link.fileno() for link in accepted} == {-1}
    assert not listener._waiting
    for client in clients:
        assert client.recv(1) == b""
        client.close()
