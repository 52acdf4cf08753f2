"""All aggregates: as they are written, as they are in a plan, and their recipes under the names in stored answers.

A new aggregate is a file beside this one and a line here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.query.aggregates import count, mean, mode, moments, quantile, sum as sums
from dither.query.aggregates.base import Chosen, Constant
from dither.query.aggregates.binding import Definition
from dither.query.kinds import Kind
from dither.query.plan.plan import Function

DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for module in (count, sums, mean, moments, quantile, mode)
    for definition in module.DEFINITIONS
}
"""By name."""

AGGREGATES: Mapping[str, str] = {
    **{spelling: each.name for each in DEFINITIONS.values() for spelling in each.spellings},
    **{extreme: extreme for extreme in quantile.EXTREMES},
}
"""Spellings of the aggregates, and the name that each stands for."""

BY_FUNCTION: Mapping[Function, Definition] = {
    function: definition for definition in DEFINITIONS.values() for function in definition.functions
}
"""The definition by which each aggregate of a plan is lowered."""

_CLASSES: Mapping[str, type[Any]] = {
    "constant": Constant,
    "linear": sums.Linear,
    "centred": mean.Centred,
    "product": moments.Product,
    "mean": mean.Mean,
    "moments": moments.Moments,
    "chosen": Chosen,
}
_TAGS = {made: tag for tag, made in _CLASSES.items()}
_ENUMS: Mapping[str, type[Enum]] = {"function": Function, "kind": Kind}


def to_json(value: Any) -> Any:
    """The JSON form of a recipe or of anything inside one: plain values as they are, the rest as [tag, content]."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, Fraction):
        return ["fraction", str(value)]
    if isinstance(value, dt.datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, dt.date):
        return ["date", value.isoformat()]
    if isinstance(value, tuple):
        return ["tuple", [to_json(item) for item in value]]
    for tag, enum in _ENUMS.items():
        if isinstance(value, enum):
            return [tag, value.value]
    return [_TAGS[type(value)], {field.name: to_json(getattr(value, field.name)) for field in fields(value)}]


def from_json(form: Any) -> Any:
    """The inverse of ``to_json``."""
    if form is None or isinstance(form, bool | int | str):
        return form
    if not isinstance(form, list) or len(form) != 2:
        raise InvalidParameter("expected the JSON form of a recipe: a plain value or [tag, content]")
    tag, content = form
    if tag == "float":
        return float.fromhex(content)
    if tag == "fraction":
        return Fraction(content)
    if tag == "datetime":
        return dt.datetime.fromisoformat(content)
    if tag == "date":
        return dt.date.fromisoformat(content)
    if tag == "tuple":
        return tuple(from_json(item) for item in content)
    if tag in _ENUMS:
        return _ENUMS[tag](content)
    if tag not in _CLASSES:
        raise InvalidParameter(f"unknown recipe {tag!r}; known: {', '.join(sorted(_CLASSES))}")
    return _CLASSES[tag](**{name: from_json(inner) for name, inner in content.items()})
