"""Expressions over the columns of one row: typed, from a whitelist, the same on every engine.

An analyst's text is bound to these; engines generate their own SQL from them. A name in an expression is one that the
plan gave out (``c0``, ``c1``, …), never the analyst's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dither.query.kinds import Kind, Value


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the relation that the expression is evaluated on."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL of the stated kind."""

    value: Value
    kind: Kind


@dataclass(frozen=True, slots=True)
class Call:
    """A function from the registry (functions.py) applied to arguments.

    Every function is deterministic, depends on its arguments alone and can't raise: where the engine would, the
    result is NULL.
    """

    function: str
    arguments: tuple[Expression, ...]
    kind: Kind


Expression: TypeAlias = Column | Literal | Call


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from walk(argument)


def columns(expression: Expression) -> frozenset[str]:
    """The names of the columns that it reads."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Column))


def substitute(expression: Expression, replacements: dict[str, Expression]) -> Expression:
    """The expression with columns replaced by other expressions."""
    if isinstance(expression, Column):
        return replacements.get(expression.name, expression)
    if isinstance(expression, Call):
        arguments = tuple(substitute(argument, replacements) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.kind)
    return expression


def canonical(expression: Expression, inner: Callable[[Expression], str] | None = None) -> str:
    """A text that two expressions share exactly if they are the same; part of the ledger's key, so it never changes.

    ``inner`` is what gives the texts of arguments, for those who remember them.
    """
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Literal):
        return f"{expression.kind.value}:{_literal(expression.value)}"
    arguments = " ".join(map(inner or canonical, expression.arguments))
    return f"({expression.function} {arguments})" if arguments else f"({expression.function})"


def _literal(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, int | Fraction):
        return str(value)
    # lengths in front, so that no text can imitate another expression
    return f"{len(value)}'{value}'"
