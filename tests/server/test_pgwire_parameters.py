"""Parameters in the text of a question: always values, never anything else, and their types as drivers need them."""

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st
from sqlglot import exp

from dither.errors import Refused
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql.parse import parse
from dither.query.sql.scalars import Scalars
from dither.server.pgwire.protocol.values import NAMES, Null
from dither.server.pgwire.sql.parameter_types import guess_types
from dither.server.pgwire.sql.parameters import BoundText, bind_text, placeholders
from dither.server.problems import ServerRefusal

NUMBERS = {"a": Kind.INTEGER, "x": Kind.DOUBLE, "s": Kind.TEXT, "d": Kind.DATE, "at": Kind.TIMESTAMP, "b": Kind.BOOLEAN}
SCHEMA = Schema(
    {
        "t": TableFacts(
            name="t", private=True, columns={name: ColumnFacts(name=name, kind=kind) for name, kind in NUMBERS.items()}
        ),
        "u": TableFacts(name="u", private=True, columns={"a": ColumnFacts(name="a", kind=Kind.TEXT)}),
    }
)
VALUES = st.one_of(
    st.sampled_from(sorted(NAMES)).map(Null),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12),
    st.dates(),
    st.datetimes(),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.sampled_from(["'", "''", "\\'", "\\", "--", "/*", "$$", "$1", '"', "'; DROP TABLE t; --", "E'\\''", "\n", ";"]),
)


def read_back(text):
    """The value of the one item that a question selects, as the curator reads it."""
    tree, _ = parse(text)
    (item,) = tree.expressions
    found = Scalars(text, column=None, special=lambda node: None).bind(item)
    return found.expression.value


@settings(max_examples=150, deadline=None)
@given(value=VALUES)
def test_the_curator_reads_the_value_that_was_given(value):
    if isinstance(value, str) and any(letter < " " and letter not in "\t\n\r\f" for letter in value):
        # control characters are refused by the curator, wherever they stand
        with pytest.raises(Refused):
            parse(bind_text("SELECT $1 FROM t", [value]).text)
        return
    found = read_back(bind_text("SELECT $1 FROM t", [value]).text)
    if isinstance(value, Null):
        assert found is None
    elif isinstance(value, Decimal):
        assert found == float(value)
    else:
        assert found == value
        assert type(found) is type(value)


@settings(max_examples=80, deadline=None)
@given(value=VALUES, other=VALUES)
def test_a_value_is_one_value_wherever_it_stands(value, other):
    """Whatever is put in: the tree has the same nodes as with stand-ins, with literals in their places."""
    question = "SELECT COUNT(*) FROM t WHERE a-$1<x AND s=$2--$1\n OR '$1'=s AND $1=$1 GROUP BY \"$2\" LIMIT $2"
    if any(isinstance(each, str) and any(letter < " " for letter in each) for each in (value, other)):
        return
    tree, _ = parse(bind_text(question, [value, other]).text)
    where = tree.args["where"].this
    assert isinstance(where, exp.Or)
    assert isinstance(where.this, exp.And)
    assert isinstance(where.expression, exp.And)
    assert tree.args["group"].sql() == 'GROUP BY "$2"'
    assert len(list(tree.find_all(exp.Column))) == 5


def test_only_placeholders_are_replaced():
    text = "SELECT '$1', $$ $1 $$, a$1, \"$1\", E'\\'$1' /* $1 /* */ $1 */, $1 -- $1"
    assert [place.start for place in placeholders(text)] == [text.rindex("$1 --")]
    assert placeholders("SELECT 'open") == ()


def test_a_minus_before_a_negative_number_is_no_comment():
    assert bind_text("SELECT a -$1 FROM t", [-5]).text == "SELECT a - ( - 5 )  FROM t"


def test_numbers_of_a_type_with_fractions_stay_so():
    assert bind_text("$1 $2 $3", [2.0, Decimal(2), 1e300]).text == " 2.0   2.0   1e+300 "
    assert math.copysign(1, read_back(bind_text("SELECT $1 FROM t", [5e-324]).text)) == 1


@pytest.mark.parametrize("text", ["SELECT $1x FROM t", "SELECT $1e5 FROM t", "SELECT $1_ FROM t"])
def test_placeholders_with_letters_after_them_are_refused(text):
    with pytest.raises(ServerRefusal):
        guess_types(text, placeholders(text), (), SCHEMA)


@pytest.mark.parametrize("text", ["SELECT x$1 FROM t WHERE $3 = 1", "SELECT $0", "SELECT $99999999999999999999"])
def test_placeholders_without_a_value_are_refused(text):
    with pytest.raises(ServerRefusal) as caught:
        bind_text(text, ["v", "w"])
    assert caught.value.problem.sqlstate == "42P02"


def test_a_text_in_which_the_curator_reads_otherwise_isnt_asked():
    """The curator's reader takes this for a comment; PostgreSQL doesn't."""
    with pytest.raises(ServerRefusal) as caught:
        bind_text("SELECT 1 {# $1 #} FROM t", ["v"])
    assert caught.value.problem.sqlstate == "42601"


def test_places_come_back_to_the_clients_text():
    text = "SELECT\n$1, nope\nFROM t WHERE $2 = wrong"
    bound = bind_text(text, ["a long value\nwith lines", 5])

    def place_of(word):
        before = bound.text[: bound.text.index(word)]
        return before.count("\n") + 1, len(before) - before.rfind("\n")

    assert bound.origin(place_of("nope")) == text.index("nope")
    assert bound.origin(place_of("wrong")) == text.index("wrong")
    assert bound.origin(place_of("value")) == text.index("$1")
    assert bound.origin((1, 1)) == 0
    assert bound.origin(None) is None
    assert BoundText(text="a\nb").origin((2, 1)) == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a > $1", [20]),
        ("$1 < x", [701]),
        ("s = $1 AND d >= $2", [25, 1082]),
        ("at BETWEEN $1 AND $2", [1114, 1114]),
        ("s IN ($1,$2)", [25, 25]),
        ("b = $1 OR $2", [16, 16]),
        ("a + $1 > 3", [20]),
        ("x * 2 < $1", [701]),
        ("a = -($1)", [20]),
        ("$1::date < d", [1082]),
        ("CAST($1 AS DOUBLE) < 3", [701]),
        ("extract(year FROM d) = $1", [20]),
        ("length(s) > $1", [20]),
        ("lower(s) = $1", [25]),
        ("s LIKE $1", [25]),
        ("$1 = $1", [25]),
        ("d < d + INTERVAL $1 DAY", [20]),
        ("$1 = $1 AND a = $2", [25, 20]),
        ("nope = $1", [25]),
        ("date_trunc($1, d) = $2", [25, 1082]),
        ("substring(s, $1, $2) = left(s, $3)", [20, 20, 20]),
        ("substring(s FROM $1 FOR $2) = 'x'", [20, 20]),
        ("coalesce(x, $1) > round(x, $2)", [701, 20]),
        ("greatest(d, $1) = least(at, $2)", [1082, 1114]),
    ],
)
def test_types_are_guessed_from_what_stands_beside(where, expected):
    text = f"SELECT COUNT(*) AS n FROM t WHERE {where}"
    assert list(guess_types(text, placeholders(text), (), SCHEMA)) == expected


def test_types_of_the_released_table_and_of_tables_that_differ():
    text = "SELECT s, COUNT(*) AS n FROM t GROUP BY s HAVING COUNT(*) > $1 AND n < $2 LIMIT $3 OFFSET $4"
    assert guess_types(text, placeholders(text), (), SCHEMA) == (20, 20, 20, 20)
    text = "SELECT COUNT(*) FROM t JOIN u ON t.a = u.a WHERE a = $1"
    assert guess_types(text, placeholders(text), (), SCHEMA) == (25,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT approx_quantile(x, $1) FROM t", (701,)),
        ("SELECT percentile_cont($1) WITHIN GROUP (ORDER BY x) FROM t", (701,)),
        ("SELECT SUM(x, contribution_bounds_per_row => ($1, $2)) FROM t", (701, 701)),
        ("SELECT AVG(x, weight => $1) FROM t", (701,)),
        (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = $1, max_groups_contributed = $2) COUNT(*) FROM t",
            (701, 20),
        ),
    ],
)
def test_types_of_the_arguments_of_aggregates_and_options(text, expected):
    assert guess_types(text, placeholders(text), (), SCHEMA) == expected


def test_declared_types_are_kept_and_unknown_is_guessed():
    text = "SELECT COUNT(*) FROM t WHERE a = $1 AND x = $2"
    assert guess_types(text, placeholders(text), (23, 705), SCHEMA) == (23, 701)
    assert guess_types(text, placeholders(text), (0, 0, 0), SCHEMA) == (20, 701, 25)
    assert guess_types("SELECT COUNT(*) FROM t", (), (), SCHEMA) == ()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS $1 FROM t",
        "SELECT COUNT(*) $1 FROM t",
        "SELECT COUNT(*) FROM $1",
        "SELECT COUNT(*) FROM t WHERE t.$1 = 3",
        "SELECT COUNT(*) FROM t WHERE DATE $1 = d",
        "SELECT COUNT(*) FROM t WHERE extract($1 FROM d) = 3",
    ],
)
def test_a_value_cant_be_a_name(text):
    with pytest.raises((ServerRefusal, Refused)):
        guess_types(text, placeholders(text), (), SCHEMA)


def test_a_syntax_error_has_its_place_in_the_clients_text():
    text = "SELECT COUNT(*) FROM t WHERE a = $1 AND AND s = $2"
    with pytest.raises(Refused) as caught:
        guess_types(text, placeholders(text), (), SCHEMA)
    assert caught.value.code == "syntax"
    line, column = caught.value.position
    assert (line, text[column - 1 :][:3]) == (1, "AND")


def test_dates_and_times_keep_their_parts():
    value = dt.datetime(2024, 2, 29, 1, 2, 3, 450000)  # noqa: DTZ001 - timestamps have no time zone here
    assert bind_text("$1", [value]).text == " TIMESTAMP '2024-02-29 01:02:03.45' "
