"""What a catalogue says about a column: from the type names of engines to the kinds of dither."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from dither.query.kinds import Kind

Description: TypeAlias = Mapping[str, Mapping[str, str]]
Keys: TypeAlias = tuple[tuple[str, ...], ...]
"""Sets of columns of one table, in the order in which the catalogue lists them."""

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("BOOLEAN", "BOOL", "LOGICAL"), Kind.BOOLEAN),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "LONG", "SHORT"), Kind.INTEGER),
    **dict.fromkeys(("INT1", "INT2", "INT4", "INT8", "INT16", "INT32", "INT64", "INT128"), Kind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE", "DOUBLE PRECISION", "FLOAT4", "FLOAT8"), Kind.DOUBLE),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC", "NUMBER"), Kind.DOUBLE),
    **dict.fromkeys(("VARCHAR", "CHAR", "BPCHAR", "TEXT", "STRING", "CHARACTER VARYING", "CHARACTER"), Kind.TEXT),
    # engines show these as text, and compare them as text once they are cast
    **dict.fromkeys(("UUID", "ENUM"), Kind.TEXT),
    "DATE": Kind.DATE,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_US", "TIMESTAMP_NS"), Kind.TIMESTAMP),
    **dict.fromkeys(("DATETIME", "TIMESTAMPTZ", "TIMESTAMP_TZ"), Kind.TIMESTAMP),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITHOUT TIME ZONE"), Kind.TIMESTAMP),
}
NAME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_ ]*?)\s*(?:\(.*?\)\s*([A-Za-z ]*?)\s*)?", re.DOTALL)
DECIMAL = re.compile(r"\s*(?:DECIMAL|NUMERIC|DEC)\s*\(\s*\d+\s*(?:,\s*(\d{1,3})\s*)?\)\s*", re.IGNORECASE)


def type_name(engine_type: str) -> str:
    """The name of an engine's type without its arguments, which for an ENUM are values of the data.

    Example:
        >>> type_name("DECIMAL(10,2)"), type_name("ENUM('Ada', 'Bob')"), type_name("INTEGER[]")
        ('DECIMAL', 'ENUM', 'other')
    """
    match = NAME.fullmatch(engine_type)
    if match is None:
        return "other"
    return " ".join(f"{match.group(1)} {match.group(2) or ''}".upper().split())


def kind_of(engine_type: str) -> Kind | None:
    """The kind that a column of this type has; None for types that questions can't use.

    Example:
        >>> kind_of("DECIMAL(10,2)"), kind_of("timestamp with time zone"), kind_of("BLOB"), kind_of("INTEGER[]")
        (<Kind.DOUBLE: 'double'>, <Kind.TIMESTAMP: 'timestamp'>, None, None)
    """
    return KINDS.get(type_name(engine_type))


def decimal_step(engine_type: str) -> Fraction | None:
    """The step of a decimal type, which is part of the type and so public.

    Example:
        >>> decimal_step("DECIMAL(10,2)"), decimal_step("DOUBLE")
        (Fraction(1, 100), None)
    """
    match = DECIMAL.fullmatch(engine_type)
    return None if match is None else Fraction(1, 10 ** int(match.group(1) or 0))


def fits(declared: Kind, engine_type: str) -> bool:
    """Whether a column of this type can be read as the declared kind without losing anything."""
    actual = kind_of(engine_type)
    if actual is declared:
        return True
    if declared is Kind.INTEGER:
        return decimal_step(engine_type) == 1
    return (declared, actual) in ((Kind.DOUBLE, Kind.INTEGER), (Kind.TIMESTAMP, Kind.DATE))
