"""Recipes: how each aggregate is read off released cells and choices; kept with an answer, so they have a JSON form."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from dither.errors import InvalidParameter
from dither.query.kinds import Kind, Value
from dither.query.plan import Function

Choice: TypeAlias = Literal["quantile", "mode"]


@dataclass(frozen=True, slots=True)
class Constant:
    """An aggregate that its public bounds alone decide: no unit can move it, so it is exact and free."""

    value: Fraction
    whole: bool = False

    @property
    def cells(self) -> tuple[int, ...]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """step · cell: counts and sums. ``whole`` answers are integers."""

    cell: int
    step: Fraction
    whole: bool

    @property
    def cells(self) -> tuple[int, ...]:
        """The one it is read off."""
        return (self.cell,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred:
    """A sum of values from which ``offset`` steps were taken: the mean is step · (offset + cell / count)."""

    cell: int
    step: Fraction
    offset: int

    @property
    def centre(self) -> Fraction:
        """Where the grid's zero lies."""
        return self.step * self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A sum of products of two centred values: the mean product is area · cell / count around both centres."""

    cell: int
    area: Fraction
    centres: tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """AVG: a centred sum over a count, within [low, high]."""

    count: int
    x: Centred
    low: Fraction
    high: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """Sum and count."""
        return (self.x.cell, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Variances, covariances and correlations: centred sums and sums of products over a count.

    ``half_x`` and ``half_y`` are half the widths of the bounds: no variance is larger than their squares.
    """

    function: Function
    count: int
    x: Centred
    y: Centred | None
    xx: Product | None
    yy: Product | None
    xy: Product | None
    half_x: Fraction
    half_y: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """Everything it is read off, each once."""
        parts = (self.x, self.y, self.xx, self.yy, self.xy)
        return tuple(dict.fromkeys((self.count, *(part.cell for part in parts if part is not None))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A quantile or a mode: what a mechanism chose, as it is or, for a mode, by its place among the public values."""

    choice: int
    values: tuple[Value, ...] | None = None
    kind: Kind = Kind.DOUBLE

    @property
    def cells(self) -> tuple[int, ...]:
        """None: choices aren't noisy cells."""
        return ()


Recipe: TypeAlias = Constant | Linear | Mean | Moments | Chosen

_CLASSES: dict[str, type[Any]] = {
    c.__name__.lower(): c for c in (Constant, Linear, Centred, Product, Mean, Moments, Chosen)
}
_ENUMS: dict[str, type[Enum]] = {"function": Function, "kind": Kind}


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
    tag = type(value).__name__.lower()
    return [tag, {field.name: to_json(getattr(value, field.name)) for field in fields(_CLASSES[tag])}]


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
