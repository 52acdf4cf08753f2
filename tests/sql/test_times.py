"""Time ranges and lists as clients write them: one constant for one meaning, folded into the question's normal form."""

import datetime as dt

import duckdb
import pytest
from hypothesis import given, strategies as st

from dither.engines.duckdb.functions import DUCKDB
from dither.engines.reference.functions import evaluate
from dither.errors import Refused
from dither.query.expressions.dates import by_format, moment
from dither.query.kinds import Kind, Literal, columns, walk
from dither.query.plan.canonical import canonical_aggregation
from dither.query.plan.plan import FilterRows
from dither.query.sql import bind
from dither.query.sql.queries import _bound
from support.schemas import SHOP


def at(text):
    return dt.datetime.fromisoformat(text)


def condition(text):
    """The condition of a question over orders."""
    relation = _bound(f"SELECT COUNT(*) FROM orders WHERE {text}", SHOP).aggregation.relation
    while not isinstance(relation, FilterRows):
        relation = relation.input
    return relation.predicate


def constants(text):
    return {node.value for node in walk(condition(text)) if isinstance(node, Literal)}


def form(text):
    return canonical_aggregation(bind(f"SELECT COUNT(*) FROM orders WHERE {text}", SHOP).aggregation)


def refusal(text):
    with pytest.raises(Refused) as caught:
        bind(f"SELECT COUNT(*) FROM orders WHERE {text}", SHOP)
    return caught.value


# Each list has texts of one meaning.
SAME = [
    [
        "ts >= TIMESTAMP '2024-01-31 10:00:00'",
        "ts >= '2024-01-31 10:00'",
        "ts >= '2024-01-31T10:00:00Z'",
        "ts >= '2024-01-31t10:00:00.000000000z'",
        "ts >= '2024-01-31 12:00:00+02'",
        "ts >= '2024-01-31T12:00:00+0200'",
        "ts >= '2024-01-31T12:00:00 +02:00'",
        "ts >= '2024-01-30T18:30:00-15:30'",
        "ts >= '2024-01-31T10:00:00-00:00'",
        "ts >= TIMESTAMP '2024-01-31T10:00:00Z'",
        "ts >= timestamp without time zone '2024-01-31 10:00:00+00'",
        "ts >= timestamp with time zone '2024-01-31 12:00:00.000+02:00'",
        "ts >= TIMESTAMPTZ '2024-01-31 10:00:00'",
        "ts >= '2024-01-31T11:00:00+01:00'::timestamptz",
        "ts >= CAST('2024-01-31T10:00:00Z' AS TIMESTAMP WITH TIME ZONE)",
        "ts >= TIMESTAMP '2024-01-31 10:00:00'::timestamptz",
        "ts >= to_timestamp('2024-01-31 10:00:00', 'YYYY-MM-DD HH24:MI:SS')",
        "ts >= TO_TIMESTAMP('2024-01-31 10:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')",
        "ts >= to_timestamp('2024-01-31 10:00:00.000', 'yyyy-mm-dd hh24:mi:ss.ms')",
        "ts >= to_timestamp('31.01.2024, 10', 'DD.MM.YYYY, HH24')",
    ],
    [
        "day >= DATE '2024-01-01'",
        "day >= '2024-01-01'",
        "day >= TO_DATE('2024-01-01', 'YYYY-MM-DD')",
        "day >= to_date('20240101', 'YYYYMMDD')",
        "day >= to_date('2024-01', 'YYYY-MM')",
        "day >= to_date('2024', 'YYYY')",
    ],
    [
        "day >= TIMESTAMP '2024-01-01 00:00:00'",
        "day >= '2024-01-01T00:00:00Z'",
        "day >= '2024-01-01T01:00:00+01:00'",
        "day >= timestamp with time zone '2024-01-01 00:00:00.000Z'",
        "day >= to_timestamp('2024-01-01', 'YYYY-MM-DD')",
    ],
    [
        "city IN ('Bern', 'Oslo')",
        "city = ANY(ARRAY['Oslo', 'Bern'])",
        "city = ANY (ARRAY['Bern', 'Oslo', 'Bern']::text[])",
        "city = SOME(['Bern', 'Oslo'])",
        "city = ANY('{Bern,Oslo}')",
        """city = ANY(' { "Oslo" , Bern } '::varchar[])""",
        "city = ANY(CAST('{Bern,Oslo}' AS text[]))",
    ],
    [
        "quantity IN (1, -2)",
        "quantity = ANY(ARRAY[1, -2])",
        "quantity = ANY('{1,-2}')",
        "quantity = ANY('{-2,1}'::int[])",
    ],
    ["city NOT IN ('Bern', 'Oslo')", "city <> ALL('{Bern,Oslo}')", "NOT city = ANY(ARRAY['Bern', 'Oslo'])"],
    ["amount IN (1.5, 20.0)", "amount = ANY('{1.5,2e1}')", "amount = ANY(ARRAY[1.5, 20]::float8[])"],
    ["day IN ('2024-01-31', '2024-02-01')", "day = ANY('{2024-01-31,2024-02-01}')"],
    ["coupon IN (true, false)", "coupon = ANY('{t,false}')", "coupon = ANY(ARRAY[true, false])"],
    ["city = 'Bern'", "city = ANY('{Bern}')", "city IN ('Bern')"],
]


@pytest.mark.parametrize("texts", SAME, ids=lambda texts: texts[0])
def test_one_meaning_has_one_normal_form(texts):
    assert len({form(text) for text in texts}) == 1


def test_other_instants_and_lists_have_other_normal_forms():
    texts = [texts[0] for texts in SAME] + [
        "ts >= '2024-01-31T10:00:00.000001Z'",
        "ts >= '2024-01-31T10:00:00+00:01'",
        "ts >= '2024-01-31T10:00:00-00:01'",
        "ts > '2024-01-31T10:00:00Z'",
        "ts >= to_timestamp('2024-01-31 10:00:00.100', 'YYYY-MM-DD HH24:MI:SS.MS')",
        "ts >= to_timestamp('2024-01-31 10:00:00.000100', 'YYYY-MM-DD HH24:MI:SS.US')",
        "day >= '2024-01-01T00:00:00+01:00'",
        "city = ANY('{\"Bern,Oslo\"}')",
        "city = ANY('{bern,Oslo}')",
        "city = ANY('{\"NULL\",Oslo}')",
        "city = ANY('{\"Bern \",Oslo}')",
    ]
    assert len({form(text) for text in texts}) == len(texts)


def test_the_constant_of_the_question_is_in_utc():
    assert constants("ts >= '2024-03-31T01:30:00+02:00'") == {at("2024-03-30 23:30:00")}
    assert constants("ts >= '2024-12-31T23:00:00-05:30'::timestamptz") == {at("2025-01-01 04:30:00")}
    assert constants("ts >= TIMESTAMPTZ '2024-02-29 00:00:00.5'") == {at("2024-02-29 00:00:00.500000")}
    assert constants("ts = to_timestamp('2024-02-29 07:08:09.010', 'YYYY-MM-DD HH24:MI:SS.MS')") == {
        at("2024-02-29 07:08:09.010000")
    }
    assert constants("ts IN ('2024-01-01T00:00:00Z', '2024-01-01')") == {at("2024-01-01 00:00:00")}


MOMENTS = st.datetimes(min_value=at("0002-01-01 00:00:00"), max_value=at("9998-12-31 00:00:00"))
OFFSETS = st.integers(min_value=-959, max_value=959)


@given(MOMENTS, OFFSETS)
def test_an_instant_is_the_same_in_every_zone(instant, minutes):
    local = instant + dt.timedelta(minutes=minutes)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    assert moment(f"{local.isoformat()}{zone}", Kind.TIMESTAMP) == instant
    # as the standard library has it
    aware = local.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    assert aware.astimezone(dt.UTC).replace(tzinfo=None) == instant


@given(MOMENTS)
def test_formats_read_what_they_write(instant):
    written = instant.strftime("%d/%m/") + f"{instant.year:04} " + instant.strftime("%H.%M.%S.%f")
    assert by_format(written, "DD/MM/YYYY HH24.MI.SS.US", Kind.TIMESTAMP) == instant
    assert by_format(written[:10], "DD/MM/YYYY", Kind.DATE) == instant.date()


@given(
    st.one_of(st.text(max_size=30), st.from_regex(r"[0-9 T:.+Zz-]{1,30}", fullmatch=True)),
    st.one_of(st.text(max_size=20), st.from_regex(r'(YYYY|MM|DD|HH24|MI|SS|MS|US|"|[-/ :.]){1,9}', fullmatch=True)),
)
def test_whatever_is_written_is_read_or_refused(text, form):
    for kind in (Kind.DATE, Kind.TIMESTAMP):
        for read in (lambda kind=kind: moment(text, kind), lambda kind=kind: by_format(text, form, kind)):
            try:
                assert type(read()) is (dt.date if kind is Kind.DATE else dt.datetime)
            except Refused as error:
                assert error.code == "literal"  # noqa: PT017 - either is right


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8), min_size=1, max_size=5))
def test_lists_hold_the_texts_that_were_put_in(texts):
    quoted = ",".join('"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in texts)
    found = condition("product = ANY('{" + quoted.replace("'", "''") + "}')")
    assert {node.value for node in walk(found) if isinstance(node, Literal)} == set(texts)


@given(st.text(alphabet='{}",\\ aN1é\t', max_size=12))
def test_lists_are_read_or_refused(text):
    try:
        condition("product = ANY('{" + text + "}')")
    except Refused as error:
        assert error.code == "literal"  # noqa: PT017 - either is right


def test_long_lists_are_read_in_no_time_or_refused(no_hang, steps_within):
    with steps_within(2_000_000):  # a few for each character
        assert refusal("product = ANY('{" + "a," * 40_000 + "a}')").code == "too_long"
        assert refusal("product = ANY('{" + '"' * 90_000 + "}')").code == "literal"
        assert refusal("product = ANY('{" + "a" + " " * 90_000 + "')").code == "literal"
        assert refusal("product = ANY('{" + "\\\\" * 45_000 + "}')").code == "literal"
        assert refusal("ts > '" + "2024-01-31 " * 9_000 + "'").code == "literal"
        assert refusal("day = to_date('x', '" + "YYYY-" * 18_000 + "')").code == "literal"


PLACES = {
    "ts >= '2024-01-31T10:00:00+99'": "'2024",
    "'2024-13-01T00:00:00Z' <= ts": "'2024-13",
    "ts BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-32T00:00:00Z'": "'2024-01-32",
    "day IN ('2024-01-31', '2024-02-30')": "'2024-02-30",
    "day = ANY(ARRAY['2024-01-31', '2024-02-30'])": "'2024-02-30",
    "quantity = 1 AND score = ANY('{1,x}')": "'{1,x}",
    "city = ANY('{Bern')": "'{Bern",
    "day > to_date('2024-02-30', 'YYYY-MM-DD')": "'2024-02-30",
    "ts > '2024-02-30'::timestamptz": "'2024-02-30",
    "quantity = 1 AND ts > CURRENT_TIMESTAMP": "CURRENT",
    "quantity = 1 AND ts > Now()": "Now",
    "quantity = 1 AND day = current_date": "current_date",
}


@pytest.mark.parametrize("text", PLACES)
def test_what_is_refused_has_its_place(text):
    error = refusal(text)
    assert error.position == (1, len("SELECT COUNT(*) FROM orders WHERE ") + text.index(PLACES[text]) + 1)


def test_clocks_are_refused_in_the_spelling_of_the_text():
    for written in ("NOW()", "Now()", "CURRENT_DATE", "current_date", "Current_Date()", "LOCALTIMESTAMP", "getdate()"):
        error = refusal(f"ts > {written}")
        assert error.code == "unknown_function"
        assert f"“{written.removesuffix('()')}” depends on the clock" in error.reason
        assert "stored answer" in error.reason
        assert error.hint == "Write the date as a literal, like DATE '2024-01-31'"


def test_names_of_clocks_are_names_where_they_are_quoted_or_given():
    question = bind('SELECT city AS "current_date", COUNT(*) AS localtime FROM orders GROUP BY 1', SHOP)
    assert [output.name for output in question.shape.outputs] == ["current_date", "localtime"]
    assert refusal('"current_date" > 1').code == "unknown_column"


DAYS = [dt.date(2024, 1, 30), dt.date(2024, 1, 31), dt.date(2024, 2, 1), None]
# A date is the midnight that begins it, where it is compared with a timestamp.
DATES_AND_TIMESTAMPS = {
    "day >= TIMESTAMP '2024-01-31 00:00:00'": [False, True, True, None],
    "day >= TIMESTAMP '2024-01-31 12:00:00'": [False, False, True, None],
    "day <= '2024-01-31T12:00:00Z'": [True, True, False, None],
    "day < TIMESTAMPTZ '2024-01-31 00:00:00Z'": [True, False, False, None],
    "day >= '2024-01-31T00:00:00+02:00'": [False, True, True, None],
    "day < '2024-01-30T23:00:00-02:00'": [True, True, False, None],
    "day = to_timestamp('2024-01-31 00', 'YYYY-MM-DD HH24')": [False, True, False, None],
    "day = to_timestamp('2024-01-31 01', 'YYYY-MM-DD HH24')": [False, False, False, None],
    "day BETWEEN '2024-01-30T12:00:00Z' AND '2024-01-31T00:00:00Z'": [False, True, False, None],
    "day = ANY('{2024-01-31T00:00:00Z,2024-01-30}')": [True, True, False, None],
    "day = ANY('{\"2024-01-31 00:00:00+01\"}'::timestamptz[])": [False, False, False, None],
    "day <> ALL(ARRAY['2024-01-31']::date[])": [True, False, True, None],
}


@pytest.mark.parametrize("text", DATES_AND_TIMESTAMPS)
def test_dates_are_compared_with_timestamps_as_sql_does_it(text):
    expected = DATES_AND_TIMESTAMPS[text]
    predicate = condition(text)
    (name,) = columns(predicate)
    assert [evaluate(predicate, {name: day}) for day in DAYS] == expected
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (n INTEGER, d DATE)")
        database.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(DAYS)))
        found = database.execute(f"SELECT {DUCKDB.expression(predicate, {name: 't.d'})} FROM t ORDER BY n").fetchall()
    assert [value for (value,) in found] == expected
