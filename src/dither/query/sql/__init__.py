"""The front door: SQL text becomes a bound question, or is refused for public reasons.

``bind`` reads no data and raises nothing but ``Refused``. Analyst text ends here: names are resolved against the
schema, relations and expressions are rebuilt in the plan's own language, and of the text only typed literals survive.
"""

from __future__ import annotations

from dither.errors import Refused
from dither.query.effort import limited
from dither.query.plan.canonical import arranged
from dither.query.plan.plan import Question
from dither.query.refusals import CODES, refused
from dither.query.schema import Schema
from dither.query.sql.parser.grammar import expect_known
from dither.query.sql.parser.parse import parse
from dither.query.sql.queries import Queries

__all__ = ["CODES", "bind", "bind_with_form"]


def bind(text: str, schema: Schema) -> Question:
    """The question that an analyst's text asks about the tables of the schema; ``Refused`` if it can't be answered.

    Same texts give same questions, whatever the data: nothing is read, and every refusal depends on the text and the
    public facts alone.
    """
    return bind_with_form(text, schema)[0]


def bind_with_form(text: str, schema: Schema) -> tuple[Question, str]:
    """The question, and the canonical form of its aggregation (``query.canonical``)."""
    code = "syntax"
    try:
        with limited():
            return _with_form(text, schema)
    except Refused:
        raise
    except RecursionError:
        code = "too_deep"
    except Exception:  # noqa: BLE001, S110 - closed to what nobody foresaw; tests ask _bound, which has no net
        pass
    if code == "too_deep":
        raise refused(code, "the question is nested too deeply", "Split it into named subqueries (WITH … AS)")
    raise refused(
        code,
        "the text can't be understood",
        "Write one SELECT with aggregates, as in SELECT city, COUNT(*) FROM orders GROUP BY city",
    )


def _bound(text: str, schema: Schema) -> Question:
    return _with_form(text, schema)[0]


def _with_form(text: str, schema: Schema) -> tuple[Question, str]:
    query, explain = parse(text)
    question = Queries(text, schema).question(query, explain=explain)
    expect_known(query, text)
    return arranged(question)
