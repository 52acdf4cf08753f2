"""A place for a ledger, a state directory of its own, and a ledger that was used."""

import pytest

from dither.ledger import Limit

from .files import BOB, SHOP, answer, ask, opened


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dither"


@pytest.fixture
def place(tmp_path):
    directory = tmp_path / "kept"
    directory.mkdir()
    return directory / "ledger.db"


@pytest.fixture
def used(place):
    """A ledger with something of everything in it, closed."""
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(2), BOB: Limit.pure(1)})
        answer(ledger, 1)
        answer(ledger, 1, BOB)
        ledger.fail(ask(ledger, 2), "cause")
        ask(ledger, 3)
        answer(ledger, 4)
    return place
