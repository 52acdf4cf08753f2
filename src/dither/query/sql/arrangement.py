"""Keys and aggregates in an order that doesn't depend on the text, so that the same question has the same answer.

A stored answer is a table of keys and aggregates. Two texts with the same canonical form must find their columns at the
same places of it.
"""

from __future__ import annotations

from dataclasses import replace

from dither.query.canonical import Canonical
from dither.query.expressions import Column, Expression, columns, substitute
from dither.query.kinds import Kind
from dither.query.plan import Question


def arranged(question: Question) -> tuple[Question, str]:
    """The same question with keys and aggregates in canonical order, and its canonical form, which has no other."""
    aggregation, shape = question.aggregation, question.shape
    form = Canonical.of(aggregation)
    keys, aggregates = form.keys, form.aggregates
    if keys == tuple(range(len(keys))) and aggregates == tuple(range(len(aggregates))):
        return question, form.text
    names = {f"k{old}": f"k{new}" for new, old in enumerate(keys)}
    names |= {f"a{old}": f"a{new}" for new, old in enumerate(aggregates)}

    def renamed(expression: Expression) -> Expression:
        kinds = _kinds(expression)
        replacements: dict[str, Expression] = {}
        for name in columns(expression):
            stem, dot, end = name.partition(".")
            replacements[name] = Column(names[stem] + dot + end, kinds[name])
        return substitute(expression, replacements)

    ordered = replace(
        question,
        aggregation=replace(
            aggregation,
            keys=tuple(aggregation.keys[i] for i in keys),
            aggregates=tuple(aggregation.aggregates[i] for i in aggregates),
        ),
        shape=replace(
            shape,
            outputs=tuple(replace(output, expression=renamed(output.expression)) for output in shape.outputs),
            having=None if shape.having is None else renamed(shape.having),
            order=tuple(replace(each, expression=renamed(each.expression)) for each in shape.order),
        ),
    )
    return ordered, form.text


def _kinds(expression: Expression) -> dict[str, Kind]:
    if isinstance(expression, Column):
        return {expression.name: expression.kind}
    result: dict[str, Kind] = {}
    for argument in getattr(expression, "arguments", ()):
        result |= _kinds(argument)
    return result
