"""Forms on the wire: an answer comes back as it was sent, and JSON holds nothing that JSON can't."""

import csv
import datetime as dt
import gc
import io
import itertools
import json
import math
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from dither.curator import Answer, Bars, BudgetLine, Cost, PublicReceipt
from dither.errors import InvalidParameter
from dither.ledger import Amount, Currency
from dither.numeric import as_fraction
from dither.policy import Policy
from dither.privacy import PureLoss
from dither.remote import reading
from dither.server.http.bodies import Question
from dither.server.wire.answers import answer_form, answer_to_arrow, answer_to_csv
from dither.server.wire.facts import budget_form, schema_form
from dither.server.wire.forms import QuoteForm

COLUMNS = {
    "key": (pa.string(), st.none() | st.text(max_size=5)),
    "n": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "x": (pa.float64(), st.none() | st.floats()),
    "day": (pa.date32(), st.none() | st.dates()),
    "at": (pa.timestamp("us"), st.none() | st.datetimes()),
    "yes": (pa.bool_(), st.none() | st.booleans()),
}


def answer_of(table, bars=None, *, delta=0.0, receipt=True, notes=(), currency=Currency.PURE):
    amount = Amount(333333333334, 7)
    return Answer(
        table=table,
        bars=bars or {},
        confidence=0.95,
        receipt=PublicReceipt(
            number="ab12",
            at="2026-01-01T00:00:00Z",
            account="shop/ana",
            amount=amount,
            amount_in_words=amount.in_words(currency),
            loss=PureLoss("1/3"),
        )
        if receipt
        else None,
        cost=Cost(epsilon=0.1, delta=delta, charged=True, left="much"),
        notes=notes,
    )


@st.composite
def answers(draw):
    size = draw(st.integers(0, 4))
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1))
    table = pa.table(
        {
            name: pa.array(draw(st.lists(COLUMNS[name][1], min_size=size, max_size=size)), COLUMNS[name][0])
            for name in names
        }
    )
    ends = st.lists(st.floats(), min_size=size, max_size=size).map(lambda values: np.array(values, np.float64))
    bars = {
        name: draw(
            st.builds(Bars, low=ends, high=ends, text=st.text(max_size=5))
            | st.builds(Bars, low=st.none(), high=st.none(), text=st.text(max_size=5))
        )
        for name in draw(st.lists(st.sampled_from(names), unique=True))
    }
    notes = tuple(draw(st.lists(st.text(max_size=8), max_size=2)))
    return answer_of(table, bars, delta=draw(st.floats(0, 1)), receipt=draw(st.booleans()), notes=notes)


def same_bits(one, other):
    return (one is None) == (other is None) and (one is None or one.tobytes() == other.tobytes())


@given(answers())
@settings(max_examples=80, deadline=None)
def test_an_arrow_stream_gives_the_same_answer_back(sent):
    got = reading.answer(answer_to_arrow(sent))
    assert got.table.schema.equals(sent.table.schema, check_metadata=True)
    for mine, theirs in zip(got.table.columns, sent.table.columns, strict=True):
        if pa.types.is_floating(mine.type):
            for a, b in zip(mine.to_pylist(), theirs.to_pylist(), strict=True):
                # which of the many NaNs it was isn't a fact about an answer
                assert a == b or (None not in (a, b) and math.isnan(a) and math.isnan(b))
        else:
            assert mine.to_pylist() == theirs.to_pylist()
    assert list(got.bars) == list(sent.bars)
    for name, bars in sent.bars.items():
        assert same_bits(got.bars[name].low, bars.low)
        assert same_bits(got.bars[name].high, bars.high)
        assert got.bars[name].text == bars.text
        assert got.bars[name].low is None or got.bars[name].low.dtype == np.float64
    assert (got.confidence, got.cost, got.receipt, got.notes) == (sent.confidence, sent.cost, sent.receipt, sent.notes)


@given(answers())
@settings(max_examples=80, deadline=None)
def test_json_is_strict_and_whole(sent):
    form = json.loads(json.dumps(answer_form(sent), allow_nan=False))
    assert [column["name"] for column in form["columns"]] == sent.table.column_names
    assert len(form["rows"]) == len(sent)
    for place, name in enumerate(sent.table.column_names):
        for shown, value in zip((row[place] for row in form["rows"]), sent.table.column(name).to_pylist(), strict=True):
            if isinstance(value, float) and not math.isfinite(value):
                assert shown is None
            elif isinstance(value, dt.date):
                assert type(value).fromisoformat(shown) == value
            else:
                assert shown == value
                assert type(shown) is type(value)


def test_whole_numbers_beyond_doubles_stay_whole():
    form = answer_form(answer_of(pa.table({"n": [2**53 + 1, -(2**63)]})))
    assert json.dumps(form["rows"]) == "[[9007199254740993], [-9223372036854775808]]"


def test_a_receipt_says_its_amount_in_the_currency_of_its_ledger():
    table = pa.table({"n": [1]})
    words = {Currency.PURE: "ε = 0.333333333334", Currency.ZCDP: "ρ = 0.333333333334, δ = 0.000000000000000007"}
    for currency, delta in itertools.product(Currency, (0.0, 1e-8)):
        form = answer_form(answer_of(table, delta=delta, currency=currency))["receipt"]
        assert (form["amount_in_words"], form["loss"]) == (words[currency], PureLoss("1/3").to_json())


def test_csv_has_intervals_beside_their_columns():
    table = pa.table({"city": ["a,b", None, 'q"q'], "n": [1, 2, None], "n_low": [7, 8, 9], "x": [0.1, math.nan, 2.0]})
    ends = {"low": np.array([0.5, -math.inf, math.nan]), "high": np.array([1.5, math.inf, 3.0])}
    sent = answer_of(table, {"n": Bars(**ends, text=""), "x": Bars(low=None, high=None, text="some")})
    written = answer_to_csv(sent).decode()
    assert written.splitlines()[0] == '"city","n","n_low_","n_high","n_low","x"'
    rows = list(csv.reader(io.StringIO(written)))[1:]
    assert rows == [
        ["a,b", "1", "0.5", "1.5", "7", "0.1"],
        ["", "2", "", "", "8", ""],
        ['q"q', "", "", "3", "9", "2"],
    ]


def test_csv_tells_a_missing_text_from_an_empty_one():
    assert answer_to_csv(answer_of(pa.table({"t": ["", None]}))) == b'"t"\n""\n\n'


def test_dates_and_times_are_iso_in_every_form():
    table = pa.table(
        {
            "day": pa.array([dt.date(2025, 2, 3)]),
            "at": pa.array([dt.datetime.fromisoformat("2025-02-03T04:05:06.000007")], pa.timestamp("us")),
        }
    )
    assert answer_form(answer_of(table))["rows"] == [["2025-02-03", "2025-02-03T04:05:06.000007"]]
    assert answer_to_csv(answer_of(table)).decode().splitlines()[1] == "2025-02-03,2025-02-03 04:05:06.000007"


def test_other_arrow_streams_are_refused():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])):
        pass
    with pytest.raises(InvalidParameter, match="expected an answer of dither"):
        reading.answer(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT city, COUNT(*) AS n, AVG(amount) AS a FROM orders GROUP BY city",
        "SELECT COUNT(*) > 3 AS many, MEDIAN(amount) AS middle FROM orders",
        "EXPLAIN PRIVACY SELECT COUNT(*) AS n FROM orders",
        "SELECT day, COUNT(*) AS n FROM orders GROUP BY day",
    ],
)
def test_a_quote_comes_back_but_for_its_internals(curator, sql):
    quote = curator.price(sql, epsilon=0.25, analyst="ana")
    form = json.loads(json.dumps(QuoteForm.of(quote), allow_nan=False))
    got = reading.quote(form)
    assert isinstance(got, type(quote))
    assert str(got) == str(quote)
    assert got.error == quote.error
    assert got.schema == quote.schema
    assert got.to_arrow() == quote.to_arrow()
    for name in ("epsilon", "delta", "free", "fits", "left", "more", "share", "needs_approval", "key", "notes"):
        assert getattr(got, name) == getattr(quote, name), name


def test_budgets_come_back(curator):
    curator.sql("SELECT COUNT(*) FROM orders", epsilon=0.5, analyst="bob")
    lines = curator.budget()
    assert reading.read_all(BudgetLine, json.loads(json.dumps(budget_form(lines)))) == lines


def test_public_facts_are_said_as_the_owner_wrote_them():
    policy = Policy.parse(
        """
        [source]
        database = "shop.duckdb"
        name = "shop"
        [budget]
        epsilon_budget = 3.0
        analysts = "any"
        [tables.orders]
        private = true
        privacy_unit_column = "who"
        max_groups_contributed = 4
        [tables.orders.columns]
        who = { type = "integer" }
        day = { type = "date", between = [2024-01-31, 2026-12-31] }
        at = { type = "timestamp", between = [2024-01-01T00:00:00, 2024-01-01T12:30:00.5] }
        amount = { type = "double", between = [0, 0.5], step = 0.1 }
        found = { type = "double", between = "auto" }
        name = { type = "text", hidden = true }
        grade = { type = "integer", in = [1, 2] }
        [tables.cities]
        public = true
        unique = [["city"]]
        columns.city = { type = "text" }
        """,
        base=Path(),
    )
    form = schema_form(policy)
    json.dumps(form, allow_nan=False)
    assert (form["dataset"], form["adjacency"], form["protects"]) == ("shop", "add_remove", policy.unit_statement())
    orders, cities = form["tables"]
    facts = {column["name"]: column for column in orders["columns"]}
    assert facts["day"]["between"] == ["2024-01-31", "2026-12-31"]
    assert facts["at"]["between"] == ["2024-01-01T00:00:00", "2024-01-01T12:30:00.500000"]
    assert (facts["amount"]["between"], facts["amount"]["step"]) == ([0, 0.5], 0.1)
    assert facts["found"]["between"] == "auto"
    assert facts["name"]["hidden"]
    assert facts["grade"]["keys"] == [1, 2]
    assert (orders["max_groups_contributed"], orders["max_rows_contributed"]) == (4, 1)
    assert (cities["private"], cities["unique"], cities["max_rows_contributed"]) == (False, [["city"]], None)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_json_number_enters_by_its_shortest_decimal(number):
    body = Question.model_validate_json(json.dumps({"sql": "SELECT 1", "epsilon": number}))
    assert as_fraction(body.wanted().terms.epsilon) == Fraction(repr(number))


@given(st.integers(1, 10**20), st.integers(0, 20))
def test_a_decimal_text_is_exact(digits, places):
    text = f"{digits // 10**places}.{digits % 10**places:0{places}d}" if places else str(digits)
    body = Question.model_validate_json(json.dumps({"sql": "SELECT 1", "error": {"n": text}, "weights": {"n": text}}))
    wanted = body.wanted().terms
    assert as_fraction(wanted.error["n"]) == as_fraction(wanted.weights["n"]) == Fraction(digits, 10**places)


def test_one_tenth_has_many_names_and_one_value():
    for text in ("0.1", '"0.1"', '"1/10"', "1e-1", '"1e-1"', "0.10000000000000000000"):
        body = Question.model_validate_json('{"sql": "SELECT 1", "epsilon": ' + text + "}")
        assert as_fraction(body.wanted().terms.epsilon) == Fraction(1, 10), text
    assert as_fraction(Question(sql="SELECT 1").wanted().terms.confidence) == Fraction(19, 20)


def test_texts_that_clients_send_are_not_kept():
    """The library that reads JSON would keep texts of up to 63 letters, 16,384 of them."""

    def read(number):
        Question.model_validate_json(json.dumps({"sql": f"SELECT {number}", "epsilon": f"0.{number + 1:012d}"}))

    read(0)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2000):
            read(number)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # each would take more than fifty
    assert held < 10_000
