"""Texts of the owner's files that are read as values of another kind: the usual spellings, where the value is clear.

Files come from pandas (12.0 for an integer that may be missing), R (1e+05, NA), spreadsheets (2024/1/5) and other
databases (times with a zone). What has two readings (01/02/2024, 1,234) isn't guessed: it is NULL, and counted for the
owner. Questions of analysts have fewer forms (``duckdb_functions.parsed``), which are the same on every engine.

``docs/policy.md`` lists all of them. Nothing here raises: every text gives a value or NULL.
"""

from __future__ import annotations

from dither.engines.duckdb.functions import DOUBLE_TEXT, FIRST_MOMENT, LAST_MOMENT, parsed
from dither.engines.relations import text_literal
from dither.query.kinds import Kind

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY = _YEAR + "-[0-9]{1,2}-[0-9]{1,2}"
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,9})?)?"
_UTC = "(?: ?(?:Z|UTC|GMT|[+]00(?::?00)?))?"
_ZONE = " ?([+-])((?:0[0-9]|1[0-5]))(?::?([0-5][0-9]))?"
_TRUE = ("true", "t", "1", "1.0", "yes", "y", "on")
_FALSE = ("false", "f", "0", "0.0", "no", "n", "off")
# below, doubles count every whole number, and none is what a larger one was rounded to
_EXACT = 2**53
# an empty field, and what pandas, R and databases write for a value that isn't there
_NOTHING = ("", "na", "n/a", "nan", "null", "none")
_LONGEST_NOTHING = max(map(len, _NOTHING))
_MISSING = f"(?i) *(?:{'|'.join(_NOTHING[1:])})? *"
_AROUND_IDS = " \t\n\v\f\r\u00a0\ufeff"


def read_text(sql: str, kind: Kind) -> str:
    """A text of the owner's data as a value of a kind; NULL where it isn't clearly one."""
    match kind:
        case Kind.BOOLEAN:
            pairs = [(text, "TRUE") for text in _TRUE] + [(text, "FALSE") for text in _FALSE]
            return f"CASE lower(trim({sql}, ' ')) " + " ".join(f"WHEN '{t}' THEN {v}" for t, v in pairs) + " END"
        case Kind.INTEGER:
            plain = f"TRY_CAST({_part(sql, '([+-]?[0-9]+)(?:[.]0*)?')} AS BIGINT)"
            double = f"TRY_CAST({_part(sql, f'({_with_exponent()})')} AS DOUBLE)"
            whole = f"CASE WHEN abs({double}) < {_EXACT} AND {double} = trunc({double}) THEN {double} END"
            return f"coalesce({plain}, TRY_CAST({whole} AS BIGINT))"
        case Kind.DATE:
            day = f"TRY_CAST({_part(sql, f'({_DAY})(?:[ T]{_TIME}{_UTC})?')} AS DATE)"
            slashes = f"TRY_CAST(replace({_part(sql, f'({_DAY})'.replace('-[0-9]{1', '/[0-9]{1'))}, '/', '-') AS DATE)"
            digits = f"CAST(try_strptime({_part(sql, f'({_YEAR}[0-9]{{4}})')}, '%Y%m%d') AS DATE)"
            return f"coalesce({day}, {slashes}, {digits})"
        case Kind.TIMESTAMP:
            utc = f"TRY_CAST({_part(sql, f'({_DAY}(?:[ T]{_TIME})?){_UTC}')} AS TIMESTAMP)"
            return f"coalesce({utc}, {_zoned(sql)})"
        case Kind.DOUBLE:
            double = parsed(sql, kind)
            return f"CASE WHEN isfinite({double}) THEN {double} END"
    return parsed(sql, kind)


def missing(sql: str) -> str:
    """Whether a text says that there is no value, in a column of another kind than text."""
    return f"({sql} IS NULL OR regexp_full_match({sql}, '{_MISSING}'))"


def id_of(sql: str) -> str:
    """A text that identifies a unit, without blanks around it; NULL where it says that there is no value.

    'u1' and 'u1 ' are one person, and making two units one is always safe. Most ids are seen at once to be as they
    should: taking blanks off costs ten times as much as everything else that is done with an id.
    """
    plain = f"strlen({sql}) > {_LONGEST_NOTHING} AND NOT ({sql} LIKE ' %' OR {sql} LIKE '% ')"
    trimmed = f"trim({sql}, ' ')"
    return f"CASE WHEN {plain} THEN {sql} ELSE {_known(trimmed)} END"


def read_id(sql: str) -> str:
    """An id as ``id_of`` has it, and without tabs, line breaks and no-break spaces around it: in CSV files."""
    return _known(f"trim({sql}, {text_literal(_AROUND_IDS)})")


def _known(trimmed: str) -> str:
    nothing = ", ".join(text_literal(one) for one in _NOTHING)
    return f"CASE WHEN lower({trimmed}) NOT IN ({nothing}) THEN {trimmed} END"


def _part(sql: str, pattern: str, group: int = 1) -> str:
    """A part of a text that has a form; empty for others, which no cast makes a value of."""
    return f"regexp_extract({sql}, '^ *{pattern} *$', {group})"


def _with_exponent() -> str:
    return DOUBLE_TEXT.removesuffix("(?:[eE][+-]?[0-9]+)?") + "[eE][+-]?[0-9]{1,3}"


def _zoned(sql: str) -> str:
    """A moment with the distance of its zone from UTC, in UTC; NULL where that is outside of the years 1 to 9999."""
    pattern = f"({_DAY}[ T]{_TIME}){_ZONE}"
    sign, hours, minutes = (_part(sql, pattern, group) for group in (2, 3, 4))
    ahead = f"TRY_CAST({sign} || {hours} AS BIGINT) * 60 + coalesce(TRY_CAST({sign} || {minutes} AS BIGINT), 0)"
    moment = f"(TRY_CAST({_part(sql, pattern)} AS TIMESTAMP) - to_minutes({ahead}))"
    return f"CASE WHEN {moment} BETWEEN {FIRST_MOMENT} AND {LAST_MOMENT} THEN {moment} END"
