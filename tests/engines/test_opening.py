"""One place chooses which engine is opened."""

import re
from pathlib import Path

import pytest

from dither.curator import salt
from dither.engines import DuckDBEngine, opening
from dither.errors import InvalidParameter
from dither.query.schema import Schema

SOURCE = Path(opening.__file__).resolve().parents[1]


def test_an_engine_is_found_in_the_table(monkeypatch):
    asked = []

    def opens(*given, **named):
        asked.append((given, named))
        return "opened"

    monkeypatch.setattr(opening, "ENGINES", {**opening.ENGINES, "other": opens})
    schema = Schema({})
    assert opening.open_engine("tables", schema, engine="other", threads=2) == "opened"
    assert asked == [(("tables", schema), {"threads": 2, "memory_limit": None, "intake": None})]


def test_duckdb_is_the_default(tmp_path):
    with opening.open_engine({}, Schema({})) as engine:
        assert isinstance(engine, DuckDBEngine)
        assert isinstance(engine, opening.OpenedEngine)
        assert engine.reports == ()


def test_an_engine_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(InvalidParameter, match="there is no engine 'spark'; engines are duckdb"):
        opening.open_engine({}, Schema({}), engine="spark")


def test_nobody_else_opens_an_engine():
    opens = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bDuckDBEngine\b", path.read_text(encoding="utf-8"))
    }
    assert opens == {"engines/opening.py", "engines/duckdb/engine.py"}


def test_each_salt_is_fresh_and_long_enough_for_every_engine():
    made = {salt.new_salt() for _ in range(100)}
    assert len(made) == 100
    assert {len(one) for one in made} == {16}
