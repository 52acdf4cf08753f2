"""Dates and timestamps that a question writes as texts: each has one meaning, or it is refused.

Timestamps have no zone and are UTC. A text with a zone names an instant, so it becomes that instant in UTC: two texts
of one instant are one constant, and the question that holds it is the same question.
"""

from __future__ import annotations

import datetime as dt
import re
from types import MappingProxyType

from dither.errors import Refused
from dither.query.kinds import Kind

_DATE = re.compile(r"(?P<day>\d{4}-\d{2}-\d{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[ Tt](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?: ?(?P<zone>[Zz]|(?P<sign>[+-])(?P<hours>\d{2})(?::?(?P<minutes>\d{2}))?))?)?",
    re.ASCII,
)
# as PostgreSQL has it; clocks are set between −12 and +14 hours
_LARGEST_OFFSET = dt.timedelta(hours=16)

# What a format is made of, as PostgreSQL spells it, and with how many digits each part is written.
_CODES = MappingProxyType(
    {
        "YYYY": ("year", 4),
        "MM": ("month", 2),
        "DD": ("day", 2),
        "HH24": ("hour", 2),
        "MI": ("minute", 2),
        "SS": ("second", 2),
        "MS": ("microsecond", 3),
        "US": ("microsecond", 6),
    }
)
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")
_FORMAT = re.compile(rf'(?P<code>{"|".join(_CODES)})|"(?P<quoted>[^"]*)"|(?P<mark>[-/.,:; ])', re.ASCII | re.IGNORECASE)
_FORMAT_HINT = f"Formats are made of {', '.join(_CODES)}, marks between them and texts in double quotes"


def moment(text: str, kind: Kind, *, zoned: bool = True) -> dt.date | dt.datetime:
    """The date or timestamp of an ISO text; with a zone it is converted to UTC.

    ``zoned`` says whether the text may have an offset: where the type says that there is none, databases differ in
    whether it is used or ignored.

    Example:
        >>> moment("2024-01-31", Kind.DATE)
        datetime.date(2024, 1, 31)
        >>> moment("2024-01-31T00:30:00+02:00", Kind.TIMESTAMP)
        datetime.datetime(2024, 1, 30, 22, 30)
    """
    found = (_DATE if kind is Kind.DATE else _TIMESTAMP).fullmatch(text)
    local = None if found is None else _as_written(found)
    if found is not None and local is not None:
        return local.date() if kind is Kind.DATE else _in_utc(local, found, zoned=zoned)
    form = "YYYY-MM-DD" if kind is Kind.DATE else "YYYY-MM-DD hh:mm:ss, perhaps with a zone: Z, or like +02:00"
    raise _refused(f"a {kind.value} is expected here, and the text isn't one", f"Write it as {form}")


def _as_written(found: re.Match[str]) -> dt.datetime | None:
    """What calendar and clock say; None if they can't."""
    parts = found.groupdict()
    hour, minute, second = (int(parts.get(part) or 0) for part in ("hour", "minute", "second"))
    fraction = (parts.get("fraction") or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise _refused("this timestamp is finer than a microsecond", "Write at most six digits after the point")
    try:
        clock = dt.time(hour, minute, second, int(fraction[:6]))
        return dt.datetime.combine(dt.date.fromisoformat(found["day"]), clock)
    except ValueError:
        return None


def _in_utc(local: dt.datetime, found: re.Match[str], *, zoned: bool) -> dt.datetime:
    if found["sign"] is None:
        return local
    offset = dt.timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
    if int(found["minutes"] or 0) > 59 or offset >= _LARGEST_OFFSET:
        raise _refused("there is no time zone with this offset", "Write an offset like +02:00, or Z for UTC")
    if offset and not zoned:
        hint = "Write TIMESTAMPTZ '…' to convert it to UTC, or leave the offset out"
        raise _refused("a timestamp without time zone can't have an offset", hint)
    try:
        return local - offset if found["sign"] == "+" else local + offset
    except OverflowError:
        pass
    raise _refused("this timestamp is out of range in UTC", "Write a year between 1 and 9999")


def by_format(text: str, form: str, kind: Kind) -> dt.date | dt.datetime:
    """The date or timestamp of a text that is written as a format says: ``to_date`` and ``to_timestamp``.

    Databases skip, pad and guess where a text doesn't fit; here every digit and mark must be where the format has it.

    Example:
        >>> by_format("31.01.2024", "DD.MM.YYYY", Kind.DATE)
        datetime.date(2024, 1, 31)
    """
    pattern, parts = _pattern(form)
    most = _PARTS[:3] if kind is Kind.DATE else _PARTS
    # a part is known only if the larger ones are: there is no 31st without its month
    if sorted(parts, key=_PARTS.index) != list(_PARTS[: len(parts)]) or not parts:
        raise _refused("this format leaves out a part of the date", "Formats begin with the year: YYYY-MM-DD")
    if len(parts) > len(most):
        raise _refused("a date has no time of day", "Use to_timestamp, or a format without times")
    found = re.fullmatch(pattern, text, re.ASCII)
    try:
        if found is not None:
            values = {part: int(digits) for part, digits in found.groupdict().items()}
            if len(found.groupdict().get("microsecond") or "") == 3:
                values["microsecond"] *= 1000
            full = {"month": 1, "day": 1, **values}
            return dt.date(**full) if kind is Kind.DATE else dt.datetime(**full)  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        pass
    raise _refused(f"the text isn't a {kind.value} in this format", "Write every digit and mark as the format has it")


def _pattern(form: str) -> tuple[str, list[str]]:
    """A regular expression for texts of the format, and the parts that they state."""
    pattern, parts, place = "", list[str](), 0
    while place < len(form):
        found = _FORMAT.match(form, place)
        if found is None:
            raise _refused("this format has a part that isn't supported", _FORMAT_HINT)
        place = found.end()
        if found["code"] is None:
            pattern += re.escape(found["quoted"] if found["mark"] is None else found["mark"])
            continue
        part, digits = _CODES[found["code"].upper()]
        if part in parts:
            raise _refused("this format has a part twice", _FORMAT_HINT)
        parts.append(part)
        pattern += rf"(?P<{part}>\d{{{digits}}})"
    return pattern, parts


def _refused(reason: str, hint: str) -> Refused:
    return Refused(reason, code="literal", hint=hint)
