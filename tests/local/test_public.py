"""The table by which protocols and clients are found by name is complete; test_stored_forms.py uses them afresh."""

import importlib
import pkgutil

import pytest

import dither.local
from dither.errors import InvalidParameter
from dither.local import clients
from dither.local.clients import Client, client_of
from dither.local.clients.base import PROTOCOLS
from dither.local.core.protocol import Protocol, protocol_of


def import_all(package):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)


def test_every_protocol_and_every_client_is_in_its_table():
    import_all(dither.local)
    import_all(clients)
    of_dither = {name for name, kind in Protocol.known.items() if kind.__module__.startswith("dither.")}
    assert of_dither == PROTOCOLS.keys()
    served = {name for name, kind in Client.known.items() if kind.__module__.startswith("dither.")}
    assert served == PROTOCOLS.keys()
    homes = {name: (Client.known[name].__module__, Protocol.known[name].__module__) for name in PROTOCOLS}
    assert homes == PROTOCOLS


def test_public_names_exist():
    assert all(getattr(dither.local, name) is not None for name in dither.local.__all__)
    assert set(dither.local.__all__) <= set(dir(dither.local))
    with pytest.raises(AttributeError, match="Kry"):
        _ = dither.local.Kry


@pytest.mark.parametrize("make", [protocol_of, client_of])
@pytest.mark.parametrize("wrong", [None, [], {}, {"protocol": "unheard-of"}, {"protocol": 3}])
def test_a_description_of_nothing_known_is_refused(make, wrong):
    with pytest.raises(InvalidParameter):
        make(wrong)
