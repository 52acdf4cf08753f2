"""The tables by which protocols, clients and losses are found by name are complete."""

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

import dither.local
from dither.errors import InvalidParameter
from dither.local import clients
from dither.local.clients import Client, base, client_of
from dither.local.protocol import MODULES, Protocol, protocol_of


def import_all(package):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")


def test_every_protocol_and_every_client_is_in_its_table():
    import_all(dither.local)
    import_all(clients)
    of_dither = {name for name, kind in Protocol.known.items() if kind.__module__.startswith("dither.")}
    assert of_dither == MODULES.keys()
    assert all(Protocol.known[name].__module__ == home for name, home in MODULES.items())
    served = {name for name, kind in Client.known.items() if kind.__module__.startswith("dither.")}
    assert served == base.MODULES.keys() == MODULES.keys()
    assert all(Client.known[name].__module__ == home for name, home in base.MODULES.items())


def test_public_names_exist():
    assert all(getattr(dither.local, name) is not None for name in dither.local.__all__)
    assert set(dither.local.__all__) <= set(dir(dither.local))
    with pytest.raises(AttributeError, match="no attribute 'Kry'"):
        _ = dither.local.Kry


@pytest.mark.parametrize("make", [protocol_of, client_of])
@pytest.mark.parametrize("wrong", [None, [], {}, {"protocol": "unheard-of"}, {"protocol": 3}])
def test_a_description_of_nothing_known_is_refused(make, wrong):
    with pytest.raises(InvalidParameter):
        make(wrong)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("from dither.local.protocol import protocol_of as of", "Kary"),
        ("from dither.local.clients import client_of as of", "KaryClient"),
    ],
)
def test_a_fresh_process_finds_them_by_name(script, shown):
    description = dither.local.Kary(3, "1/2").describe()
    code = f"import json, sys\n{script}\nprint(type(of(json.loads(sys.argv[1]))).__name__)"
    done = subprocess.run([sys.executable, "-c", code, json.dumps(description)], capture_output=True, text=True)
    assert done.stdout.strip() == shown, done.stderr


def test_a_fresh_process_reads_the_losses_of_every_layer():
    forms = [
        dither.local.Kary(3, "1/2").loss().to_json(),
        dither.local.LocalHashing.for_epsilon(100, 1).loss().to_json(),
        dither.local.shuffled(1, 1000).to_json(),
    ]
    code = (
        "import json, sys\nfrom dither.privacy import PrivacyLoss\n"
        "for form in json.loads(sys.argv[1]): print(PrivacyLoss.from_json(form).to_json() == form)"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(forms)], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * len(forms), done.stderr
