"""Which format a client gets, and that what is kept of an answer is never given for another."""

import asyncio
import dataclasses

import orjson
import pyarrow as pa
import pytest

from dither.curator import Answer, Cost, PublicReceipt
from dither.ledger import Amount
from dither.privacy import PureLoss
from dither.server.http.formats import (
    MOST_ANSWERS_KEPT,
    MOST_CELLS_AT_ONCE,
    Answers,
    EncodedAnswers,
    MediaType,
    expect_format,
    format_for,
)
from dither.server.problems import ServerRefusal
from dither.server.wire.answers import answer_form


def answer_of(values, *, left="much", charged=True):
    cost = Cost(epsilon=0.1, delta=0.0, charged=charged, left=left)
    return Answer(table=pa.table({"n": values}), bars={}, confidence=0.95, receipt=None, cost=cost)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", MediaType.JSON),
        ("*/*", MediaType.JSON),
        ("application/*", MediaType.JSON),
        ("text/*", MediaType.CSV),
        ("text/csv", MediaType.CSV),
        ("TEXT/CSV; charset=utf-8", MediaType.CSV),
        ("application/vnd.apache.arrow.stream", MediaType.ARROW),
        ("application/vnd.apache.arrow.stream, application/json;q=0.9", MediaType.ARROW),
        ("application/json;q=0.2, text/csv;q=0.8", MediaType.CSV),
        ("application/json;q=0, */*", MediaType.CSV),
        ("text/html, */*;q=0.1", MediaType.JSON),
        ("text/*;q=0.9, text/csv;q=0", None),
        ("text/csv;q=2", None),
        ("text/csv;q=oops", None),
        ("text/csv;q=nan", None),
        ("image/png", None),
        (",,", None),
    ],
)
def test_accept_decides_the_format(accept, expected):
    assert format_for(accept) is expected
    if expected is None:
        with pytest.raises(ServerRefusal) as refused:
            expect_format(accept)
        assert refused.value.problem.status == 406
        assert "text/csv" in refused.value.problem.hint


def body_of(writer, answer, wanted=MediaType.JSON):
    return bytes(asyncio.run(writer.response(answer, wanted)).body)


def test_what_is_kept_is_the_same_and_the_cost_is_fresh():
    writer, first = Answers(), answer_of([1, 2])
    again = dataclasses.replace(first, cost=dataclasses.replace(first.cost, charged=False, left="less"))
    assert orjson.loads(body_of(writer, first)) == answer_form(first)
    assert len(writer.kept) == 1
    assert orjson.loads(body_of(writer, again)) == answer_form(again)
    assert orjson.loads(body_of(writer, again))["cost"] == {
        "epsilon": 0.1,
        "delta": 0.0,
        "charged": False,
        "left": "less",
    }
    assert len(writer.kept) == 1


def test_another_answer_with_the_same_table_is_encoded_anew():
    first, loss = answer_of([1, 2]), PureLoss(1)
    receipt = PublicReceipt(number="ab12", at="", account="a", amount=Amount(1), amount_in_words="little", loss=loss)
    for change in ({"confidence": 0.5}, {"notes": ("found",)}, {"bars": {}}, {"receipt": receipt}):
        writer, other = Answers(), dataclasses.replace(first, **change)
        body_of(writer, first)
        assert writer.kept.get(first) is not None
        assert writer.kept.get(other) is None, change
        assert orjson.loads(body_of(writer, other)) == answer_form(other)


def test_equal_tables_are_not_the_same_table():
    writer, first = Answers(), answer_of([1, 2])
    body_of(writer, first)
    assert writer.kept.get(answer_of([1, 2])) is None


def test_little_is_kept():
    kept = EncodedAnswers(largest=10, most=25)
    some = [answer_of([number]) for number in range(4)]
    for one in some[:3]:
        kept.keep(one, b"0123456789")
    assert [kept.get(one) is not None for one in some] == [False, True, True, False]
    kept.get(some[1])
    kept.keep(some[3], b"0123456789")
    assert [kept.get(one) is not None for one in some] == [False, True, False, True]
    kept.keep(some[3], b"0")
    kept.keep(some[2], b"0123456789")
    assert len(kept) == 3
    kept.keep(some[0], b"0123456789+")
    assert kept.get(some[0]) is None


def test_what_is_kept_holds_answers_so_that_they_are_counted_too():
    """However short their texts are: each of them holds a table, which takes ten times as much."""
    writer = Answers()
    first = [answer_of([number]) for number in range(MOST_ANSWERS_KEPT + 100)]
    for one in first:
        body_of(writer, one)
    assert len(writer.kept) == MOST_ANSWERS_KEPT
    assert [writer.kept.get(one) is not None for one in (first[99], first[100], first[-1])] == [False, True, True]


def test_large_answers_are_encoded_elsewhere(monkeypatch):
    sent = []

    async def elsewhere(function, *arguments):
        sent.append(function)
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", elsewhere)
    large = answer_of(list(range(MOST_CELLS_AT_ONCE + 1)))
    for wanted in MediaType:
        body_of(Answers(), large, wanted)
        body_of(Answers(), answer_of([1]), wanted)
    assert len(sent) == len(MediaType)
