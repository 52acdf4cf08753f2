"""What arrives is a report of this collection, or is dropped for a reason; nothing crashes."""

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from dither.local.clients import wire
from dither.local.clients.wire import Dropped

PRINT = wire.fingerprint({"protocol": "kary", "domain": 5, "keep": "1/2"})
OTHER = wire.fingerprint({"protocol": "kary", "domain": 6, "keep": "1/2"})
REPORT = wire.pack(PRINT, b"\x03\x00")


def test_the_form_is_permanent():
    # stored reports must stay readable: a change here needs a new version number
    assert PRINT.hex() == "e0e4a52e1c4af4b4"
    assert REPORT == b"\x01" + PRINT + b"\x03\x00"


def test_a_report_comes_back_as_bytes_and_as_text():
    assert wire.unpack(REPORT, PRINT, 2) == b"\x03\x00"
    assert wire.unpack(wire.to_text(REPORT), PRINT, 2) == b"\x03\x00"
    assert wire.unpack(wire.to_text(REPORT) + "\n", PRINT, 2) == b"\x03\x00"


@pytest.mark.parametrize(
    ("arrived", "reason"),
    [
        (b"", Dropped.NOT_A_REPORT),
        ("", Dropped.NOT_A_REPORT),
        ("not base64!", Dropped.NOT_A_REPORT),
        (17, Dropped.NOT_A_REPORT),
        (None, Dropped.NOT_A_REPORT),
        (b"\x02" + REPORT[1:], Dropped.VERSION),
        (wire.pack(OTHER, b"\x03\x00"), Dropped.OTHER_COLLECTION),
        (REPORT[:5], Dropped.OTHER_COLLECTION),
        (REPORT[:-1], Dropped.LENGTH),
        (REPORT + b"\x00", Dropped.LENGTH),
    ],
)
def test_what_is_no_report_has_a_reason(arrived, reason):
    assert wire.unpack(arrived, PRINT, 2) is reason


@given(st.one_of(st.binary(max_size=40), st.text(max_size=60)))
def test_nothing_that_arrives_raises(arrived):
    found = wire.unpack(arrived, PRINT, 2)
    assert isinstance(found, Dropped) or len(found) == 2


@given(st.binary(max_size=40))
def test_a_report_has_one_text(report):
    text = wire.to_text(report)
    assert wire.from_text(text) == report
    assert "=" not in text


def test_a_second_text_of_the_same_bytes_is_refused():
    # "AB" and "AA" decode to the same byte if the spare bits aren't looked at
    assert wire.from_text("AA") == b"\x00"
    assert wire.from_text("AB") is None


def test_the_fingerprint_depends_on_every_parameter_but_not_on_their_order():
    one = {"protocol": "kary", "domain": ["a", "b"], "keep": "2/3"}
    assert wire.fingerprint(one) == wire.fingerprint(dict(reversed(one.items())))
    for changed in ({**one, "keep": "3/4"}, {**one, "domain": ["b", "a"]}, {**one, "more": 1}):
        assert wire.fingerprint(changed) != wire.fingerprint(one)


def test_clients_need_nothing_but_python():
    script = (
        "import sys, pkgutil, importlib, dither.local.clients as c\n"
        "for found in pkgutil.iter_modules(c.__path__): importlib.import_module('dither.local.clients.' + found.name)\n"
        "heavy = {'numpy', 'scipy', 'pyarrow', 'duckdb', 'sqlglot', 'pydantic', 'rich', 'typer'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
