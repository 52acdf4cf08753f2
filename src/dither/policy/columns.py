"""Columns of a policy: bounds, steps and keys checked against the column's type."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import did_you_mean
from dither.policy.catalogue import kind_of
from dither.policy.file_schema import PLACEHOLDERS, ColumnSettings, TableSettings, names_of, own_line, shaped
from dither.policy.findings import Notes, shown
from dither.policy.line_numbers import Place
from dither.policy.toml_text import Verbatim, toml_line, toml_number, toml_value
from dither.query.kinds import Auto, Interval, Kind, Value
from dither.query.schema import ColumnFacts

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
LARGEST_DOUBLE = Fraction(2**1024 - 2**970)
EXPECTED = {
    Kind.BOOLEAN: "true and false",
    Kind.INTEGER: "whole numbers of 64 bits",
    Kind.DOUBLE: "finite numbers",
    Kind.TEXT: "texts",
    Kind.DATE: "dates such as 2026-01-31",
    Kind.TIMESTAMP: "timestamps such as 2026-01-31T12:00:00",
}
_DAY_ZERO = dt.date(1970, 1, 1)
_TIME_ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001  timestamps without a zone are read as UTC


def read_columns(raw: Mapping[str, object], path: Place, notes: Notes) -> dict[str, ColumnFacts]:
    """Every column that could be read; whatever is wrong with any of them goes to the notes."""
    columns = {}
    seen: dict[str, str] = {}
    for name, settings in raw.items():
        twin = seen.setdefault(name.casefold(), name)
        if twin != name:
            notes.error(
                (*path, name),
                f"differs from the column {shown(twin)} only in upper and lower case, which SQL doesn't tell apart. "
                "Remove one of the two lines.",
            )
            continue
        facts = read_column(name, settings, (*path, name), notes)
        if facts is not None:
            columns[name] = facts
    return columns


def read_column(name: str, raw: object, path: Place, notes: Notes) -> ColumnFacts | None:
    """The facts about one column, or None if its type can't be read."""
    if not isinstance(raw, Mapping):
        _not_a_column(name, raw, path, notes)
        return None
    line = ColumnLine(name, raw, path, notes)
    settings, broken = shaped(ColumnSettings, raw, path, notes, rewrite=line.rewrite)
    kind = settings.kind
    if kind is None:
        if "type" not in broken:
            names = ", ".join(f'"{k.value}"' for k in Kind)
            notes.error(path, f"the type is missing; expected one of {names}.", write=line.having("type", "text"))
        return None
    return _ColumnReader(settings, kind, line, path, notes).facts()


class ColumnLine:
    """The line of a column with one setting changed, in the style in which the owner wrote it."""

    def __init__(self, name: str, raw: Mapping[str, object], path: Place, notes: Notes) -> None:
        self.name, self.raw = name, raw
        lines = {notes.places.line((*path, key)) for key in raw} | {notes.places.line(path)}
        # several lines: a header [tables.t.columns.c], with each setting on its own
        self.inline = len(lines) == 1

    def rewrite(self, gone: str, name: str, value: object) -> str:
        """The line in which ``name`` has the value and the key ``gone`` isn't there any more."""
        if not self.inline:
            return own_line(gone, name, value)
        changed = {key: part for key, part in self.raw.items() if key not in (gone, name)}
        order = list(names_of(ColumnSettings))
        changed[name] = value
        known = {key: changed.pop(key) for key in order if key in changed}
        return toml_line(self.name, {**known, **changed})

    def having(self, name: str, value: object) -> str:
        """The line with one setting more, or another value of it."""
        return self.rewrite("", name, value)

    def without(self, name: str) -> str:
        """The line with one setting less."""
        if not self.inline:
            return ""
        return toml_line(self.name, {key: part for key, part in self.raw.items() if key != name})


class _ColumnReader:
    """Reads the settings of one column whose type is known; what contradicts it goes to the notes."""

    def __init__(self, settings: ColumnSettings, kind: Kind, line: ColumnLine, path: Place, notes: Notes) -> None:
        self._settings, self._kind, self._line, self._path, self._notes = settings, kind, line, path, notes

    def facts(self) -> ColumnFacts:
        """All that is said of the column."""
        between, step, keys = self._between(), self._step(), self._keys()
        if isinstance(between, Interval) and step is not None:
            self._agree_on_step(between, step)
        if keys is not None:
            self._agree_on_keys(between, step)
        hidden = self._settings.hidden or False
        return ColumnFacts(name=self._line.name, kind=self._kind, between=between, step=step, keys=keys, hidden=hidden)

    def _wrong(self, setting: str, message: str, write: str) -> None:
        self._notes.error((*self._path, setting), message, write=write)

    def _between(self) -> Interval | Auto | None:
        kind, stated = self._kind, self._settings.between
        if stated is None:
            return None
        if kind in (Kind.TEXT, Kind.BOOLEAN):
            message = f"a column of type {kind.value} has no bounds. Remove between."
            self._wrong("between", message, self._line.without("between"))
            return None
        example: object = Verbatim(PLACEHOLDERS.get(kind, "[0, 100]"))
        if isinstance(stated, Auto):
            if kind.number:
                return stated
            message = f"bounds of a {kind.value} can't be searched for; expected two {EXPECTED[kind]}."
            self._wrong("between", message, self._line.having("between", example))
            return None
        low, high = (typed(end, kind) for end in stated)
        if low is not None and high is not None and low < high:
            return Interval(point(low), point(high))
        if low is None or high is None:
            wrong = shown(stated[0 if low is None else 1])
            message = f"expected two {EXPECTED[kind]}, as the type is {kind.value}; found {wrong}."
        else:
            message = f"expected the lower bound first and both different, found {shown(list(stated))}."
            example = [stated[1], stated[0]] if low > high else example
        self._wrong("between", message, self._line.having("between", example))
        return None

    def _step(self) -> Fraction | None:
        kind, step = self._kind, self._settings.step
        if step is None:
            return None
        if not kind.number:
            message = f"a step is for numbers, and the type is {kind.value}. Remove step."
            self._wrong("step", message, self._line.without("step"))
            return None
        if kind is Kind.INTEGER and step.denominator != 1:
            message = f"integers are multiples of a whole number, found {shown(step)}."
            self._wrong("step", message, self._line.having("step", 1))
            return None
        return step

    def _agree_on_step(self, between: Interval, step: Fraction) -> None:
        """Values lie on the multiples of the step, so both bounds must too."""
        if (between.low / step).denominator == 1 and (between.high / step).denominator == 1:
            return
        ends = math.floor(between.low / step) * step, math.ceil(between.high / step) * step
        wanted = [typed(end, self._kind) for end in ends]
        message = f"both bounds must be whole multiples of the step {toml_number(step)}, "
        message += f"found {toml_value([between.low, between.high])}."
        self._wrong("step", message, self._line.having("between", wanted) if None not in wanted else "")

    def _keys(self) -> tuple[Value, ...] | None:
        kind, listed = self._kind, self._settings.keys
        if listed is None:
            return None
        values: set[Any] = set()
        for number, written in enumerate(listed):
            value = _key(written, kind)
            if value is None:
                message = f"expected {EXPECTED[kind]}, as the type is {kind.value}; found {shown(written)}."
                instead: list[object] = [_EXAMPLE_KEYS[kind]]
            elif value in values:
                message = f"{shown(written)} is listed twice. Leave one out."
                instead = _without_twins(listed, kind)
            else:
                values.add(value)
                continue
            self._notes.error((*self._path, "in", number), message, write=self._line.having("in", instead))
            return None
        return tuple(sorted(values))

    def _agree_on_keys(self, between: Interval | Auto | None, step: Fraction | None) -> None:
        """A key outside the bounds or between two steps would be clamped or rounded away and never be met."""

        def met(written: object) -> bool:
            place = point(typed(written, self._kind))
            inside = not isinstance(between, Interval) or between.low <= place <= between.high
            return inside and (step is None or (place / step).denominator == 1)

        keys = self._settings.keys or ()
        if not isinstance(between, Interval) and step is None:
            return
        kept = [key for key in keys if met(key)]
        if len(kept) < len(keys):
            lost = shown(next(key for key in keys if not met(key)))
            message = f"{lost} contradicts between or step: it lies outside the bounds or between two steps. "
            message += "Leave it out, or change the others."
            self._wrong("in", message, self._line.having("in", kept or [_EXAMPLE_KEYS[self._kind]]))


_EXAMPLE_KEYS = {
    Kind.BOOLEAN: Verbatim("false, true"),
    Kind.INTEGER: Verbatim("1, 2, 3"),
    Kind.DOUBLE: Verbatim("0.5, 1.0"),
    Kind.TEXT: Verbatim('"A", "B"'),
    Kind.DATE: Verbatim("2026-01-31"),
    Kind.TIMESTAMP: Verbatim("2026-01-31T12:00:00"),
}


def _key(written: object, kind: Kind) -> Any:
    """A listed value: two decimals that are the same double are one key, as the column holds doubles."""
    value = typed(written, kind)
    return float(value) if kind is Kind.DOUBLE and value is not None else value


def _without_twins(keys: tuple[Any, ...], kind: Kind) -> list[object]:
    kept: dict[Any, object] = {}
    for written in keys:
        value = _key(written, kind)
        if value is not None:
            kept.setdefault(value, written)
    return list(kept.values())


def point(value: Any) -> Fraction:
    """A value on the line of numbers: itself; for dates days, for timestamps microseconds since 1970-01-01 (UTC).

    Example:
        >>> point(dt.date(1970, 1, 2)), point(Fraction(1, 2))
        (Fraction(1, 1), Fraction(1, 2))
    """
    if isinstance(value, dt.datetime):
        return Fraction((value - _TIME_ZERO) // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return Fraction((value - _DAY_ZERO).days)
    return Fraction(value)


def typed(value: object, kind: Kind) -> Any:
    """The value as one of the kind, None if it isn't: numbers stay exact, timestamps become UTC."""
    match value:
        case bool():
            return value if kind is Kind.BOOLEAN else None
        case int() | Fraction():
            return _number(value, kind)
        case str():
            return value if kind is Kind.TEXT else None
        case dt.datetime():
            return _utc(value) if kind is Kind.TIMESTAMP else None
        case dt.date():
            return value if kind is Kind.DATE else None
    return None


def _number(value: int | Fraction, kind: Kind) -> int | Fraction | None:
    exact = Fraction(value)
    if kind is Kind.INTEGER:
        return int(exact) if exact.denominator == 1 and SMALLEST_INTEGER <= exact <= LARGEST_INTEGER else None
    return exact if kind is Kind.DOUBLE and abs(exact) <= LARGEST_DOUBLE else None


def _utc(value: dt.datetime) -> dt.datetime | None:
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:
        return None


def _not_a_column(name: str, raw: object, path: Place, notes: Notes) -> None:
    """Settings of a table that stand below its columns are a common slip: TOML gives them to the columns."""
    known = names_of(TableSettings)
    if name in known or (not isinstance(raw, str | list) and did_you_mean(name, known)):
        notes.error(
            path, "this is a setting of the table and stands among its columns. Move it above the columns' header."
        )
        return
    kind = (kind_of(raw) if isinstance(raw, str) else None) or Kind.TEXT
    write = toml_line(name, {"type": kind.value})
    notes.error(path, f"a column is a table with at least a type, found {shown(raw)}.", write=write)
