"""A paid answer that is older than the data says so: where the owner fixes the version, the record answers for ever."""

import asyncio
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Terms
from dither.curator.answers.release import HEADER, Stored
from dither.curator.computation import OlderThanData, data_of, decode, encode
from dither.curator.results import OLDER
from dither.privacy import PureLoss
from dither.remote import reading
from dither.server.http.formats import Answers, MediaType
from dither.server.wire.answers import answer_form, answer_to_arrow

COUNT = "SELECT COUNT(*) AS n FROM orders"
ASKED = {"epsilon": "1/2", "analyst": "ana"}


@pytest.fixture
def grown(shop, tmp_path, opened, write_table, data):
    """Curators of one ledger, before and after the data grew: ``grown("1", "1")``, with the version that is stated."""

    def make(first, second):
        directory = tmp_path / "shop"
        directory.mkdir()
        shutil.copy(shop / "shop.duckdb", directory)
        before = opened(directory=directory, version=first)
        yield before
        more = data.set_column(0, "customer", pa.array(np.asarray(data.column(0)) + 10**6))
        ledger = before.ledger
        # what is kept in memory isn't closed with its curator
        before.curator._vault.ledger.close = lambda: None
        before.curator.close()
        write_table(directory / "shop.duckdb", pa.concat_tables([data, more]))
        yield opened(directory=directory, ledger=ledger, version=second)

    return make


def test_a_fixed_version_answers_from_the_record_and_says_so(grown):
    stages = grown("2026-11", "2026-11")
    before = next(stages)
    first = before.curator.sql(COUNT, **ASKED)
    assert first.older_than_data is False
    assert OLDER not in first.notes
    again = before.curator.sql(COUNT, **ASKED)
    assert (again.older_than_data, again.cost.charged) == (False, False)
    after = next(stages)
    old = after.curator.sql(COUNT, **ASKED)
    assert old.scalar() == first.scalar()
    assert old.cost.charged is False
    assert old.older_than_data is True
    assert OLDER in old.notes
    assert OLDER in str(old)
    assert OLDER in old._repr_html_()
    # asked again in the same process, by the receipt, and by who is entitled to it as well
    assert after.curator.analyst("ana").remembered(COUNT, Terms.of(epsilon="1/2")).older_than_data is True
    assert after.curator.answer(first.receipt.number, analyst="ana").older_than_data is True
    assert after.curator.answer(first.receipt.number).older_than_data is True
    # a question that wasn't asked before is of the new data
    fresh = after.curator.sql("SELECT COUNT(*) AS n FROM orders WHERE pieces >= 0", **ASKED)
    assert fresh.older_than_data is False
    assert fresh.scalar() > 1.5 * first.scalar()


def test_a_new_version_is_a_new_question_but_the_old_receipt_is_old(grown):
    stages = grown("1", "2")
    before = next(stages)
    first = before.curator.sql(COUNT, **ASKED)
    after = next(stages)
    fresh = after.curator.sql(COUNT, **ASKED)
    assert (fresh.older_than_data, fresh.cost.charged) == (False, True)
    looked_up = after.curator.answer(first.receipt.number, analyst="ana")
    assert looked_up.scalar() == first.scalar()
    assert looked_up.older_than_data is True


def test_answers_that_were_stored_before_are_of_unknown_data(opened, monkeypatch):
    made = opened()
    seal = Stored.seal

    def as_of_old(self):
        sealed = seal(self)
        size = int.from_bytes(sealed[:HEADER], "big")
        form = json.loads(sealed[HEADER : HEADER + size])
        del form["data"]
        header = json.dumps(form).encode()
        return len(header).to_bytes(HEADER, "big") + header + sealed[HEADER + size :]

    monkeypatch.setattr(Stored, "seal", as_of_old)
    answer = made.curator.sql(COUNT, **ASKED)
    assert answer.older_than_data is None
    assert OLDER not in answer.notes


def test_it_travels_on_the_wire(opened):
    answer = opened().curator.sql(COUNT, **ASKED)
    assert answer_form(answer)["older_than_data"] is False
    assert reading.answer(answer_to_arrow(answer)).older_than_data is False
    for form in MediaType:
        for older in (False, True):
            told = asyncio.run(Answers().response(replace(answer, older_than_data=older), form))
            assert told.headers.get("Dither-Older-Than-Data") == ("true" if older else None)


class Pieces:
    """A computation whose result is a number."""

    table, columns, rows = "orders", ("pieces",), 4

    def key(self):
        return "pieces"

    def loss(self):
        return PureLoss("1/100")

    def release(self, table):
        return table.num_rows // 100


def test_results_of_computations_warn(grown, recwarn):
    stages = grown("2026-11", "2026-11")
    before = next(stages)
    first = before.curator.run(Pieces(), analyst="ana")
    assert before.curator.run(Pieces(), analyst="ana") == first
    assert not recwarn.list
    after = next(stages)
    with pytest.warns(OlderThanData, match="has changed since"):
        assert after.curator.run(Pieces(), analyst="ana") == first


def test_results_keep_their_form():
    for result in (3, [1.5, "a"], np.arange(3), pa.table({"a": [1]})):
        with_data, without = encode(result, "abc"), encode(result)
        assert data_of(with_data) == "abc"
        assert data_of(without) is None
        for stored in (with_data, without):
            assert str(decode(stored)) == str(result)
