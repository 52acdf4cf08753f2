"""Values on the wire: exact text and binary forms of results, and what is read of parameters."""

import datetime as dt
import math
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.types import columns_of, encoded_column, float_text, oid_of, timestamp_text
from dither.server.pgwire.protocol.values import NAMES, InvalidValue, Null, read_value
from dither.server.pgwire.sql.parameters import made_up


def moment(*parts):
    return dt.datetime(*parts)  # noqa: DTZ001 - timestamps of answers have no time zone


TABLE = pa.table(
    {
        "b": pa.array([True, False, None]),
        "i": pa.array([1, -(2**63), None], pa.int64()),
        "d": pa.array([1.5, math.nan, None], pa.float64()),
        "s": pa.array(["é", "", None]),
        "day": pa.array([dt.date(2000, 1, 2), dt.date(1, 1, 1), None]),
        "at": pa.array([moment(2000, 1, 1, 0, 0, 1), moment(1999, 12, 31, 23, 59, 59, 500000), None]),
    }
)


def read(raw, oid, form=0):
    return read_value(raw, oid, form=form, number=1)


def test_arrow_types_and_their_sizes():
    found = [(column.name, column.oid, column.size) for column in columns_of(TABLE.schema)]
    assert found == [
        ("b", 16, 1),
        ("i", 20, 8),
        ("d", 701, 8),
        ("s", 25, -1),
        ("day", 1082, 4),
        ("at", 1114, 8),
    ]
    assert oid_of(pa.int32()) == 20
    assert oid_of(pa.float32()) == 701
    assert oid_of(pa.null()) == 25


def test_every_form_of_every_type():
    text = [encoded_column(TABLE.column(i), c.oid, 0) for i, c in enumerate(columns_of(TABLE.schema))]
    assert text == [
        [b"t", b"f", None],
        [b"1", b"-9223372036854775808", None],
        [b"1.5", b"NaN", None],
        ["é".encode(), b"", None],
        [b"2000-01-02", b"0001-01-01", None],
        [b"2000-01-01 00:00:01", b"1999-12-31 23:59:59.5", None],
    ]
    binary = [encoded_column(TABLE.column(i), c.oid, 1) for i, c in enumerate(columns_of(TABLE.schema))]
    assert binary == [
        [b"\x01", b"\x00", None],
        [struct.pack("!q", 1), struct.pack("!q", -(2**63)), None],
        [struct.pack("!d", 1.5), struct.pack("!d", math.nan), None],
        ["é".encode(), b"", None],
        [struct.pack("!i", 1), struct.pack("!i", -730119), None],
        [struct.pack("!q", 1_000_000), struct.pack("!q", -500_000), None],
    ]


def test_text_keeps_no_zero_and_no_broken_letters():
    assert encoded_column(pa.chunked_array([["a\0b"]]), 25, 1) == ["a\N{REPLACEMENT CHARACTER}b".encode()]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-12.25, "-12.25"),
        (100000.0, "100000"),
        (123456789012345.0, "123456789012345"),
        (999999999999999.9, "999999999999999.9"),
        (1e15, "1e+15"),
        (1234567890123456.0, "1.234567890123456e+15"),
        (1e100, "1e+100"),
        (0.0001, "0.0001"),
        (0.00012, "0.00012"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (5e-324, "5e-324"),
        (0.1, "0.1"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_floats_as_postgresql_prints_them(value, expected):
    assert float_text(value) == expected


@given(value=st.floats(allow_nan=False))
def test_floats_come_back_from_their_text(value):
    assert float(float_text(value)) == value


@given(value=st.datetimes())
def test_timestamps_come_back_from_their_text_and_binary(value):
    assert read(timestamp_text(value).encode(), types.TIMESTAMP) == value
    assert read(types.encoder(types.TIMESTAMP, 1)(value), types.TIMESTAMP, 1) == value


@given(value=st.dates())
def test_dates_come_back(value):
    assert read(value.isoformat().encode(), types.DATE) == value
    assert read(types.encoder(types.DATE, 1)(value), types.DATE, 1) == value


@pytest.mark.parametrize(
    ("raw", "oid", "expected"),
    [
        (b"t", 16, True),
        (b" OFF ", 16, False),
        (b"-32768", 21, -32768),
        (b" +7 ", 23, 7),
        (b"9223372036854775807", 20, 2**63 - 1),
        (b"0.1", 700, 0.1),
        (b"1e3", 701, 1000.0),
        (b".5", 701, 0.5),
        (b"1.50", 1700, Decimal("1.50")),
        (b"it's", 25, "it's"),
        (b"x", 1043, "x"),
        (b"x", 705, "x"),
        (b"2024-02-29", 1082, dt.date(2024, 2, 29)),
        # a driver for Java sends dates so
        (b"2024-02-29 +01", 1082, dt.date(2024, 2, 29)),
        (b"2024-02-29 10:00:00", 1082, dt.date(2024, 2, 29)),
        (b"2024-02-29", 1114, moment(2024, 2, 29)),
        (b"2024-02-29T10:00", 1114, moment(2024, 2, 29, 10)),
        (b"2024-02-29 10:00:00.25+02", 1114, moment(2024, 2, 29, 10, 0, 0, 250000)),
        (b"2024-02-29 10:00:00.25+02", 1184, moment(2024, 2, 29, 8, 0, 0, 250000)),
        (b"2024-02-29 10:00:00-03:30", 1184, moment(2024, 2, 29, 13, 30)),
        (b"2024-02-29 10:00:00Z", 1184, moment(2024, 2, 29, 10)),
        (None, 25, Null(25)),
        (None, 1082, Null(1082)),
    ],
)
def test_texts_of_parameters(raw, oid, expected):
    found = read(raw, oid)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("raw", "oid", "expected"),
    [
        (b"\x01", 16, True),
        (struct.pack("!h", -5), 21, -5),
        (struct.pack("!i", 7), 23, 7),
        (struct.pack("!q", -(2**63)), 20, -(2**63)),
        (struct.pack("!I", 2**32 - 1), 26, 2**32 - 1),
        (struct.pack("!f", 0.1), 700, 0.1),
        (struct.pack("!d", 0.1), 701, 0.1),
        ("é".encode(), 25, "é"),
        (struct.pack("!q", 0), 1184, moment(2000, 1, 1)),
        # 12345.678: groups 1 2345 6780, the first of weight 1
        (struct.pack("!hhHH3H", 3, 1, 0, 3, 1, 2345, 6780), 1700, Decimal("12345.6780")),
        (struct.pack("!hhHH1H", 1, -1, 0x4000, 4, 5), 1700, Decimal("-0.0005")),
        (struct.pack("!hhHH1H", 1, 2, 0, 0, 7), 1700, Decimal("700000000")),
        (struct.pack("!hhHH", 0, 0, 0, 0), 1700, Decimal(0)),
    ],
)
def test_binary_parameters(raw, oid, expected):
    found = read(raw, oid, 1)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("raw", "oid", "form", "sqlstate"),
    [
        (b"maybe", 16, 0, "22P02"),
        (b"32768", 21, 0, "22P02"),
        (b"1.5", 23, 0, "22P02"),
        (b"", 23, 0, "22P02"),
        (b"1_000", 23, 0, "22P02"),
        ("\N{ARABIC-INDIC DIGIT THREE}".encode(), 23, 0, "22P02"),
        (b"9" * 5000, 20, 0, "22P02"),
        (b"1e99999999", 1700, 0, "22P02"),
        (b"0x10", 701, 0, "22P02"),
        (b"NaN", 701, 0, "22003"),
        (b"-Infinity", 701, 0, "22003"),
        (b"1e999", 701, 0, "22003"),
        (b"nan", 1700, 0, "22003"),
        (b"2024-02-30", 1082, 0, "22P02"),
        (b"infinity", 1082, 0, "22P02"),
        (b"today", 1082, 0, "22P02"),
        (b"2024-01-01 25:00", 1114, 0, "22P02"),
        (b"\xff", 25, 0, "22021"),
        (b"1\xff", 23, 0, "22021"),
        (b"a\0b", 25, 0, "22021"),
        (b"\x02", 16, 1, "22P03"),
        (b"\0\0\0\x01", 20, 1, "22P03"),
        (struct.pack("!d", math.nan), 701, 1, "22003"),
        (struct.pack("!f", math.inf), 700, 1, "22003"),
        (struct.pack("!i", 2**31 - 1), 1082, 1, "22P03"),
        (struct.pack("!q", 2**63 - 1), 1114, 1, "22P03"),
        (struct.pack("!hhHH", 0, 0, 0xC000, 0), 1700, 1, "22003"),
        (struct.pack("!hhHH1H", 1, 0, 0, 0, 10000), 1700, 1, "22P03"),
        (struct.pack("!hhHH", 5, 0, 0, 0), 1700, 1, "22P03"),
        (b"", 1700, 1, "22P03"),
        (b"{1,2}", 1007, 0, "0A000"),
        (None, 1007, 0, "0A000"),
    ],
)
def test_parameters_that_cant_be_read(raw, oid, form, sqlstate):
    with pytest.raises(InvalidValue) as caught:
        read_value(raw, oid, form=form, number=3)
    assert caught.value.sqlstate == sqlstate
    assert str(caught.value).startswith("parameter $3 ")
    assert raw is None or len(raw) < 2 or raw.decode("latin-1") not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=40), oid=st.sampled_from(sorted(NAMES)), form=st.integers(0, 1))
def test_any_bytes_are_a_value_or_refused(raw, oid, form):
    try:
        value = read(raw, oid, form)
    except InvalidValue:
        return
    assert not isinstance(value, float | Decimal) or math.isfinite(value)


def test_every_type_that_is_read_can_be_described_without_a_value():
    kinds = sorted(NAMES)
    likely, *_, empty = made_up(kinds)
    assert empty == tuple(map(Null, kinds))
    # of the type's own kind, and growing with the number
    for kind, value in zip(kinds, likely, strict=True):
        word = value if isinstance(value, str) else ("t" if value is True else str(value))
        assert isinstance(read(word.encode(), kind), type(value))
    assert made_up([701, 701])[0][0] < made_up([701, 701])[0][1] < 1
