"""Messages of the PostgreSQL protocol: byte for byte, and nothing but ProtocolError for what isn't one."""

import re
import struct

import pytest
from hypothesis import given, settings, strategies as st

from dither.server.pgwire.protocol import messages
from dither.server.pgwire.protocol.messages import Bind, Parse, ProtocolError

READERS = [
    messages.read_query,
    messages.read_parse,
    messages.read_bind,
    messages.read_named,
    messages.read_execute,
    messages.read_startup,
    messages.read_sasl_first,
]
BODIES = {
    messages.read_query: b"SELECT 1\0",
    messages.read_parse: b"s\0SELECT $1\0" + struct.pack("!hI", 1, 23),
    messages.read_bind: b"p\0s\0" + struct.pack("!hhhi", 1, 1, 2, 2) + b"ab" + struct.pack("!ihh", -1, 1, 0),
    messages.read_named: b"Pname\0",
    messages.read_execute: b"p\0" + struct.pack("!i", 7),
    messages.read_startup: b"user\0ana\0database\0shop\0\0",
    messages.read_sasl_first: b"SCRAM-SHA-256\0" + struct.pack("!i", 3) + b"n,,",
}
SENTENCES = {
    "a message is shorter than its fields",
    "a message is longer than its fields",
    "a text in a message has no end",
    "a text isn't UTF-N, the only encoding of this server",
    "a format is N (text) or N (binary)",
    "a value has a negative length",
    "there are N formats for N values",
    "only statements (S) and portals (P) have names",
}
names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)


def test_the_fields_of_clients_messages():
    assert messages.read_query(BODIES[messages.read_query]) == "SELECT 1"
    assert messages.read_parse(BODIES[messages.read_parse]) == Parse(name="s", sql="SELECT $1", types=(23,))
    assert messages.read_bind(BODIES[messages.read_bind]) == Bind(
        portal="p", statement="s", formats=(1,), values=(b"ab", None), results=(0,)
    )
    assert messages.read_named(BODIES[messages.read_named]) == (True, "name")
    assert messages.read_execute(BODIES[messages.read_execute]) == ("p", 7)
    assert messages.read_startup(BODIES[messages.read_startup]) == {"user": "ana", "database": "shop"}
    assert messages.read_sasl_first(BODIES[messages.read_sasl_first]) == ("SCRAM-SHA-256", b"n,,")


def test_types_are_unsigned_and_negative_row_numbers_mean_all():
    assert messages.read_parse(b"\0\0" + struct.pack("!hI", 1, 2**32 - 1)).types == (2**32 - 1,)
    assert messages.read_execute(b"\0" + struct.pack("!i", -1)) == ("", 0)


@pytest.mark.parametrize("reader", READERS)
def test_too_short_and_too_long_messages_are_refused(reader):
    body = BODIES[reader]
    for cut in range(len(body)):
        with pytest.raises(ProtocolError):
            reader(body[:cut])
    with pytest.raises(ProtocolError):
        reader(body + b"\0")


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(reader, body):
    said = ""
    try:
        reader(body)
    except ProtocolError as error:
        said = str(error)
    # one of the sentences, with nothing of the message but counts
    assert not said or re.sub(r"\d+", "N", said) in SENTENCES


def test_bind_refuses_unknown_formats_wrong_counts_and_negative_lengths():
    for body in (
        b"\0\0" + struct.pack("!hhhh", 1, 2, 0, 0),
        b"\0\0" + struct.pack("!hhhhih", 2, 0, 0, 1, -1, 0),
        b"\0\0" + struct.pack("!hhih", 0, 1, -2, 0),
    ):
        with pytest.raises(ProtocolError):
            messages.read_bind(body)


def test_text_that_isnt_utf8_is_refused():
    with pytest.raises(ProtocolError, match="UTF-8"):
        messages.read_query(b"\xff\0")


def test_messages_of_the_server_byte_for_byte():
    assert messages.ready(b"I") == b"Z\0\0\0\x05I"
    assert messages.complete("SELECT 1") == b"C\0\0\0\x0dSELECT 1\0"
    assert messages.AUTHENTICATION_OK == b"R\0\0\0\x08\0\0\0\0"
    assert messages.NO_DATA == b"n\0\0\0\x04"
    assert messages.parameter_description([20, 25]) == b"t\0\0\0\x0e\0\x02\0\0\0\x14\0\0\0\x19"
    assert messages.row_description([("n", 20, 8, 1)]) == (
        b"T\0\0\0\x1a\0\x01n\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\x01"
    )
    assert messages.row_body([b"ab", None], 2) == b"\0\x02\0\0\0\x02ab\xff\xff\xff\xff"
    assert messages.copy_out(2, 1) == b"H\0\0\0\x0b\x01\0\x02\0\x01\0\x01"
    # the newest version is 3.0, written whole
    assert messages.negotiate_version(["_pq_.x"]) == b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0"
    assert messages.key_data(1, 2**32 - 1) == b"K\0\0\0\x0c\0\0\0\x01\xff\xff\xff\xff"


def test_reports_leave_out_empty_fields_and_cant_be_cut_by_a_zero():
    assert messages.report(b"E", {"S": "ERROR", "H": "", "M": "a\0b"}) == messages.message(
        b"E", b"SERROR\0Ma\xef\xbf\xbdb\0\0"
    )


@settings(max_examples=200, deadline=None)
@given(name=names, sql=names, types=st.lists(st.integers(0, 2**32 - 1), max_size=5))
def test_parse_comes_back_as_it_was_sent(name, sql, types):
    body = messages.cstring(name) + messages.cstring(sql) + struct.pack(f"!h{len(types)}I", len(types), *types)
    assert messages.read_parse(body) == Parse(name=name, sql=sql, types=tuple(types))
