"""Questions of the accept corpus are bound as their headers say; those of the other refused for their reason."""

import re
from pathlib import Path

import pytest

from dither.errors import Refused
from dither.query.expressions.functions import FUNCTIONS
from dither.query.sql import CODES, bind
from dither.query.sql.aggregates import AGGREGATES, NAMED
from dither.query.sql.clause import NAMES
from dither.query.sql.queries import _bound
from support.schemas import SHOP

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def corpus(folder):
    found = []
    for path in sorted((HERE / folder).glob("*.sql")):
        for number, part in enumerate(path.read_text(encoding="utf-8").split("\n----\n")):
            header, _, text = part.strip("\n").partition("\n")
            assert header.startswith("-- "), (path.name, number)
            found.append(pytest.param(header[3:], text, id=f"{path.stem}-{number}"))
    return found


def facts(question):
    aggregation, shape = question.aggregation, question.shape
    keys = aggregation.keys
    arguments = [argument for aggregate in aggregation.aggregates for argument in aggregate.arguments]
    bounds = [f"{a.facts.bounds.low}:{a.facts.bounds.high}" for a in arguments if a.facts.bounds is not None]
    autos = sorted({".".join(pair) for argument in arguments for pair in argument.facts.auto})
    size = 1
    for key in keys:
        size *= len(key.values or ())
    return {
        "keys": "none" if not keys else "discovered" if aggregation.discover else "public",
        "groups": str(aggregation.groups),
        "rows": str(aggregation.rows),
        "units": aggregation.units,
        "aggs": sorted(aggregate.function.value for aggregate in aggregation.aggregates),
        "arguments": str(len(arguments)),
        "bounds": bounds[0] if bounds else "",
        "auto": ",".join(autos),
        "quantile": ",".join(str(a.quantile) for a in aggregation.aggregates if a.quantile is not None),
        "values": ",".join(str(value) for key in keys for value in key.values or ("?",)),
        "size": str(size),
        "tables": ",".join(aggregation.tables),
        "columns": ",".join(output.name for output in shape.outputs),
        "limit": str(shape.limit),
        "offset": str(shape.offset),
        "epsilon": str(question.options.epsilon),
        "delta": str(question.options.delta),
        "explain": str(question.explain),
    }


@pytest.mark.parametrize(("header", "text"), corpus("accept"))
def test_accepted(header, text):
    found = facts(_bound(text, SHOP))
    for item in header.split():
        name, _, expected = item.partition("=")
        wanted = sorted(part for part in expected.split(",") if part) if name == "aggs" else expected
        assert found[name] == wanted, (name, found[name])


@pytest.mark.parametrize(("header", "text"), corpus("refuse"))
def test_refused(header, text):
    code, _, fragment = header.partition(" | ")
    with pytest.raises(Refused) as caught:
        bind(text, SHOP)
    error = caught.value
    assert error.code == code, str(error)
    assert fragment.lower() in f"{error.reason} {error.hint}".lower(), str(error)
    # whoever asks over psql or the page has no files of the repository, and can't edit the policy
    assert not re.search(r"docs/|\.md\b|\.toml\b", f"{error.reason} {error.hint}")
    assert not re.search(r"(^|, or )(Declare|Add between)|in the policy", error.hint)
    lines = text.split("\n")
    if error.position is not None:
        line, column = error.position
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1


def test_the_corpora_are_large_and_use_every_code():
    assert len(corpus("accept")) >= 90
    refusals = corpus("refuse")
    assert len(refusals) >= 90
    used = {parameters.values[0].partition(" | ")[0] for parameters in refusals}
    assert used == set(CODES) - {"too_long", "too_deep"}, "those two are tested by size"


def test_positions_point_at_the_place():
    with pytest.raises(Refused) as caught:
        bind("SELECT COUNT(*)\nFROM orders\nWHERE nothing = 1", SHOP)
    assert caught.value.position == (3, 7)
    with pytest.raises(Refused) as caught:
        bind("SELECT city,\n  MAX(amount) FROM orders GROUP BY city", SHOP)
    assert caught.value.position == (2, 3)


def test_the_reference_lists_every_function_code_and_option():
    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    spelled = [spelling for scalar in FUNCTIONS.values() for spelling in (scalar.syntax, *scalar.spellings)]
    assert set(FUNCTIONS) <= rows
    assert set(CODES) <= rows
    assert [name for name in spelled if name.replace("|", "\\|") not in text] == []
    assert [name for name in (*AGGREGATES, *NAMED, *NAMES) if name not in text.lower()] == []
