"""Forms that are permanent: descriptions, their names in reports, payloads and saved aggregates of every protocol.

``permanent_forms.json`` has what was written once. Whoever kept a description, a report or a saved aggregate must be
able to read it for ever, so the file is added to and never changed.
"""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from dither.errors import InvalidParameter
from dither.local.clients import client_of
from dither.local.core.protocol import aggregator_of, protocol_of

FORMS = json.loads(Path(__file__).with_name("permanent_forms.json").read_text(encoding="utf-8"))
PROTOCOLS = 21


def plain(saved):
    """A saved aggregate with its counters as they are: how well they are compressed is no part of the form."""
    state = {
        name: {"shape": part["shape"], "data": zlib.decompress(base64.b64decode(part["data"])).hex()}
        for name, part in saved["state"].items()
    }
    return {**saved, "state": state}


@pytest.fixture(params=FORMS, ids=lambda form: form["description"]["protocol"])
def form(request):
    return request.param


def test_all_protocols_are_there():
    assert len({form["description"]["protocol"] for form in FORMS}) == PROTOCOLS


def test_descriptions_are_read_and_written_as_ever(form):
    made = protocol_of(form["description"])
    assert json.dumps(made.describe()) == json.dumps(form["description"])
    assert made.fingerprint.hex() == form["fingerprint"]
    assert client_of(form["description"]).width == made.width == form["width"]


def test_reports_are_counted_as_ever(form):
    made = protocol_of(form["description"])
    rows = np.frombuffer(bytes.fromhex(form["payloads"]), dtype=np.uint8).reshape(-1, made.width)
    saved = made.aggregator().add(rows).to_json()
    assert plain(saved) == form["saved"]


def test_saved_aggregates_are_read_as_ever(form):
    state = {
        name: {"shape": part["shape"], "data": base64.b64encode(zlib.compress(bytes.fromhex(part["data"]))).decode()}
        for name, part in form["saved"]["state"].items()
    }
    found = aggregator_of({**form["saved"], "state": state})
    assert plain(found.to_json()) == form["saved"]
    assert plain((found + found).to_json())["reports"] == 2 * form["saved"]["reports"]


def test_a_description_with_more_or_less_is_refused(form):
    description = form["description"]
    wrong = [{**description, "more": 1}, *({k: v for k, v in description.items() if k != name} for name in description)]
    for each in wrong:
        with pytest.raises(InvalidParameter):
            protocol_of(each)
        with pytest.raises(InvalidParameter):
            client_of(each)
