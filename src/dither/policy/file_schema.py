"""The settings of a policy file: their names, what each may hold, and an example of a line.

A setting that is absent is None here; which ones are needed is decided where the whole file is seen, so that every
problem is found at once. ``docs/policy.md`` documents each of them; a test counts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from dither.errors import did_you_mean
from dither.policy.catalogue import kind_of
from dither.policy.findings import Notes, shown
from dither.policy.line_numbers import Place
from dither.policy.toml_text import Inexact, Verbatim, toml_line, toml_path
from dither.privacy import Adjacency
from dither.query.kinds import Auto, Kind

# the ledger's integers hold up to a million of ε, and count δ in units of 1e-18 (half of a question's δ finds keys)
LARGEST_EPSILON = 10**6
SMALLEST_DELTA_BUDGET = Fraction(1, 10**15)
SMALLEST_DELTA = Fraction(2, 10**18)
# one unit may add no more than this to a total, so that sums fit 64 bits (query.measures.LARGEST_PART)
LARGEST_CONTRIBUTION = 2**30
DAY = 86400
# what may stand between the fields of a CSV file
DELIMITERS = (",", ";", "\t", "|")
# bounds in an example line; numbers have [0, 100]
PLACEHOLDERS = {Kind.DATE: "[2024-01-01, 2026-12-31]", Kind.TIMESTAMP: "[2024-01-01T00:00:00, 2026-12-31T23:59:59]"}


def _unfit() -> PydanticCustomError:
    # what was expected is said by the setting's description, which the notes quote
    return PydanticCustomError("unfit", "unfit")


def _exact(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise _unfit()
    return Fraction(value)


def _number(fits: Callable[[Fraction], bool]) -> PlainValidator:
    def read(value: object) -> Fraction:
        if not fits(exact := _exact(value)):
            raise _unfit()
        return exact

    return PlainValidator(read)


def _contribution(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_CONTRIBUTION:
        raise _unfit()
    return value


def _rows(value: object) -> int | Auto:
    return Auto.AUTO if value == Auto.AUTO.value else _contribution(value)


def _name(value: object) -> str:
    # tables and columns may have any name; Inexact numbers are texts to Python but not to TOML
    if not isinstance(value, str) or isinstance(value, Inexact):
        raise _unfit()
    return value


def _text(value: object) -> str:
    if not _name(value).isprintable() or not value:
        raise _unfit()
    return _name(value)


def _delimiter(value: object) -> str:
    if _name(value) not in DELIMITERS:
        raise _unfit()
    return _name(value)


def _yes(value: object) -> bool:
    if value is not True:
        raise _unfit()
    return True


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _unfit()
    return value


def _copies(value: object) -> str | bool:
    # there are copies unless they are switched off, so true would say nothing
    return False if value is False else _text(value)


def _kind(value: object) -> Kind:
    return Kind(_text(value))


def _adjacency(value: object) -> Adjacency:
    return Adjacency(_text(value))


def _between(value: object) -> Auto | tuple[Any, Any]:
    if value == Auto.AUTO.value:
        return Auto.AUTO
    if not isinstance(value, list) or len(value) != 2 or not all(_bound(end) for end in value):
        raise _unfit()
    return value[0], value[1]


def _bound(value: object) -> bool:
    return isinstance(value, int | Fraction | dt.date) and not isinstance(value, bool)


def _keys(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise _unfit()
    for key in value:
        if isinstance(key, Inexact) or not isinstance(key, str | int | Fraction | dt.date):
            raise _unfit()
    return tuple(value)


def _column_sets(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value:
        raise _unfit()
    for columns in value:
        if not isinstance(columns, list) or not columns:
            raise _unfit()
    return tuple(tuple(_name(column) for column in columns) for columns in value)


def _files(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise _unfit()
    return {table: _text(path) for table, path in value.items()}


Epsilon = Annotated[Fraction, _number(lambda epsilon: 0 < epsilon <= LARGEST_EPSILON)]
DeltaBudget = Annotated[Fraction, _number(lambda delta: delta == 0 or SMALLEST_DELTA_BUDGET <= delta < 1)]
Delta = Annotated[Fraction, _number(lambda delta: delta == 0 or SMALLEST_DELTA <= delta < 1)]
Seconds = Annotated[Fraction, _number(lambda seconds: 0 <= seconds <= DAY)]
Step = Annotated[Fraction, _number(lambda step: step > 0)]
Share = Annotated[Fraction, _number(lambda share: 0 <= share <= 1)]
Count = Annotated[int, PlainValidator(_contribution)]
Text = Annotated[str, PlainValidator(_text)]
Name = Annotated[str, PlainValidator(_name)]
Delimiter = Annotated[str, PlainValidator(_delimiter)]
Yes = Annotated[bool, PlainValidator(_yes)]
Flag = Annotated[bool, PlainValidator(_flag)]

EPSILON = "a number above 0 and at most 1000000"
DELTA = "0, or a number from 2e-18 to below 1"
DELTA_BUDGET = "0, or a number from 1e-15 to below 1"
SHARE = "a number from 0 to 1: a share of the rows"
COUNT = "a whole number from 1 to 1073741824"
KINDS = "one of " + ", ".join(f'"{kind.value}"' for kind in Kind)


def setting(expected: str, example: str, *, alias: str | None = None) -> Any:
    """A setting that may be absent: what it holds, in words, and the value of an example line."""
    return Field(default=None, description=expected, examples=[example], alias=alias)


class Section(BaseModel):
    """A group of settings in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(Section):
    """``[source]``: where the data and the ledger are."""

    database: Text | None = setting("the path of a DuckDB file", '"shop.duckdb"')
    files: Annotated[dict[str, str], PlainValidator(_files)] | None = setting(
        "a table of Parquet or CSV files", '{ orders = "orders.parquet" }'
    )
    name: Text | None = setting("a text: the dataset's name in the ledger", '"shop"')
    version: Text | None = setting("a text: the version of the data", '"2026-11"')
    ledger: Text | None = setting("the path of a file", '"shop.ledger"')
    ledger_head: Text | None = setting("the path of a file, best on another disk", '"/var/lib/dither/shop.head"')
    copies: Annotated[str | bool, PlainValidator(_copies)] | None = setting(
        "the path of a directory, or false", "false"
    )
    delimiter: Delimiter | None = setting('one of ",", ";", "\\t", "|"', '";"')
    header: Flag | None = setting("true or false", "false")
    trim: Flag | None = setting("true or false", "true")
    unreadable_up_to: Share | None = setting(SHARE, "0.05")
    without_unit_up_to: Share | None = setting(SHARE, "0.05")
    unlisted_up_to: Share | None = setting(SHARE, "0.05")


class BudgetSettings(Section):
    """``[budget]``: what may be lost in all, and by one question."""

    epsilon_budget: Epsilon | None = setting(EPSILON, "1.0")
    delta_budget: DeltaBudget | None = setting(DELTA_BUDGET, "1e-6")
    max_epsilon_per_query: Epsilon | None = setting(EPSILON, "0.5")
    delta_per_query: Delta | None = setting(DELTA, "1e-8")
    default_epsilon: Epsilon | None = setting(EPSILON, "0.1")
    adjacency: Annotated[Adjacency, PlainValidator(_adjacency)] | None = setting(
        '"add_remove" or "replace"', '"add_remove"'
    )
    round_answer_time_up_to: Seconds | None = setting("a number of seconds from 0 to 86400", "0.5")
    analysts: Literal["listed", "any"] | None = setting('"listed" or "any"', '"listed"')
    needs_approval_above: Epsilon | None = setting(EPSILON, "0.5")
    share_answers: Flag | None = setting("true or false", "true")
    questions: Count | None = setting(COUNT, "20")
    noise: Literal["laplace", "gaussian", "any"] | None = setting('"laplace", "gaussian" or "any"', '"any"')


class AnalystSettings(Section):
    """``[analysts.NAME]``: what one analyst may lose."""

    epsilon_budget: Epsilon | None = setting(EPSILON, "1.0")
    delta_budget: DeltaBudget | None = setting(DELTA_BUDGET, "1e-7")
    max_epsilon_per_query: Epsilon | None = setting(EPSILON, "0.5")
    needs_approval_above: Epsilon | None = setting(EPSILON, "0.25")


class TableSettings(Section):
    """``[tables.NAME]``: whom a table is about, and how much of one of them an answer may use."""

    private: Yes | None = setting("true (a table that everybody may see has public = true)", "true")
    public: Yes | None = setting("true (a table with protected rows has private = true)", "true")
    privacy_unit_column: Name | None = setting("the name of a column", '"user_id"')
    privacy_unit: Literal["row"] | None = setting(
        '"row" (for people, name their column: privacy_unit_column = "user_id")', '"row"'
    )
    max_groups_contributed: Annotated[int | Auto, PlainValidator(_rows)] | None = setting(f'{COUNT}, or "auto"', "4")
    max_rows_contributed: Annotated[int | Auto, PlainValidator(_rows)] | None = setting(f'{COUNT}, or "auto"', "10")
    rows_per_unit_at_most: Count | None = setting(COUNT, "366")
    one_row_per_unit: Yes | None = setting("true (where a unit may have more rows, leave it out)", "true")
    unique: Annotated[tuple[tuple[str, ...], ...], PlainValidator(_column_sets)] | None = setting(
        "a list of lists of columns", '[["id"]]'
    )
    columns: dict[str, Any] | None = setting("a table of columns", '{ amount = { type = "double" } }')


class ColumnSettings(Section):
    """``[tables.NAME.columns]``, ``NAME = { … }``: the public facts about a column."""

    kind: Annotated[Kind, PlainValidator(_kind)] | None = setting(KINDS, '"double"', alias="type")
    between: Annotated[Auto | tuple[Any, Any], PlainValidator(_between)] | None = setting(
        'two finite numbers, or dates without quotes, or "auto"', "[0, 100]"
    )
    step: Step | None = setting("a number above 0", "0.01")
    keys: Annotated[tuple[Any, ...], PlainValidator(_keys)] | None = setting(
        "a list of texts, finite numbers, dates, or true and false, that isn't empty", '["Basel", "Bern"]', alias="in"
    )
    hidden: Flag | None = setting("true or false", "true")


SECTIONS: Mapping[str, type[Section]] = {
    "source": SourceSettings,
    "budget": BudgetSettings,
    "analysts": AnalystSettings,
    "tables": TableSettings,
    "columns": ColumnSettings,
}
HEADERS = {
    "source": "[source]",
    "budget": "[budget]",
    "analysts": "[analysts.NAME]",
    "tables": "[tables.NAME]",
    "columns": "a column of [tables.NAME.columns]",
}
# for people who know another name
SYNONYMS = {
    "epsilon": "epsilon_budget",
    "delta": "delta_budget",
    "bounds": "between",
    "range": "between",
    "values": "in",
    "keys": "in",
    "kind": "type",
    "path": "database",
    "file": "files",
    "unit": "privacy_unit_column",
    "privacy_unit_id": "privacy_unit_column",
    "granularity": "step",
}

S = TypeVar("S", bound=Section)
# the line that gives a setting a value, once another key (perhaps the same) is gone
Rewrite: TypeAlias = Callable[[str, str, object], str]


def names_of(section: type[Section]) -> dict[str, str]:
    """The settings of a section as they are written, each with an example of its value."""
    return {field.alias or name: str((field.examples or [""])[0]) for name, field in section.model_fields.items()}


def own_line(_gone: str, name: str, value: object) -> str:
    """A setting on a line of its own."""
    return toml_line(name, value)


def shaped(
    section: type[S], raw: object, path: Place, notes: Notes, *, rewrite: Rewrite = own_line
) -> tuple[S, frozenset[str]]:
    """The settings that could be read, and the names of those that are there but wrong; problems go to the notes."""
    if not isinstance(raw, Mapping):
        notes.error(path, f"expected a table of settings, found {shown(raw)}.", write=_example(section, path))
        return section(), frozenset(names_of(section))
    broken: set[str] = set()
    try:
        return section.model_validate(dict(raw)), frozenset()
    except ValidationError as problem:
        for detail in problem.errors(include_url=False):
            name = str(detail["loc"][0])
            if name in broken:
                continue
            broken.add(name)
            if detail["type"] == "extra_forbidden":
                _unknown(section, name, raw[name], path, notes, rewrite)
            else:
                _wrong(section, name, raw, path, notes, rewrite)
    rest = {name: value for name, value in raw.items() if name not in broken}
    return section.model_validate(rest), frozenset(broken)


def _example(section: type[Section], path: Place) -> str:
    name, example = next(iter(names_of(section).items()))
    return f"[{toml_path(path)}]\n{toml_line(name, Verbatim(example))}"


def _unknown(section: type[Section], name: str, value: object, path: Place, notes: Notes, rewrite: Rewrite) -> None:
    known = names_of(section)
    meant = SYNONYMS.get(name) if SYNONYMS.get(name) in known else did_you_mean(name, known)
    if meant is not None:
        notes.error((*path, name), f"unknown setting; did you mean {meant}?", write=rewrite(name, meant, value))
        return
    homes = [HEADERS[home] for home, other in SECTIONS.items() if name in names_of(other)]
    if homes:
        notes.error((*path, name), f"this setting belongs under {' or '.join(homes)}; move it there.")
        return
    notes.error((*path, name), f"unknown setting; expected one of {', '.join(known)}. Remove it.")


def _wrong(
    section: type[Section], name: str, raw: Mapping[str, object], path: Place, notes: Notes, rewrite: Rewrite
) -> None:
    value = raw[name]
    field = next(field for key, field in section.model_fields.items() if (field.alias or key) == name)
    example: object = Verbatim((field.examples or [""])[0])
    meant = name
    if name in ("private", "public") and value is False:
        meant = "public" if name == "private" else "private"
    elif name in ("name", "version") and isinstance(value, int | Fraction | dt.date) and not isinstance(value, bool):
        example = shown(value)
    elif name == "type" and isinstance(value, str) and (meaning := kind_of(value)) is not None:
        example = meaning.value
    elif name == "between":
        kind = kind_of(str(raw.get("type"))) or Kind.DOUBLE
        example = _quoted_dates(value, kind) or Verbatim(PLACEHOLDERS.get(kind, "[0, 100]"))
    write = rewrite(name, meant, example)
    notes.error((*path, name), f"expected {field.description}, found {shown(value)}.", write=write)


def _quoted_dates(value: object, kind: Kind) -> list[dt.date] | None:
    """The bounds of a column of dates or timestamps that were written as texts."""
    read = {Kind.DATE: dt.date.fromisoformat, Kind.TIMESTAMP: dt.datetime.fromisoformat}.get(kind)
    if read is None or not isinstance(value, list) or not all(isinstance(end, str) for end in value):
        return None
    try:
        low, high = sorted(read(end) for end in value)
    except (ValueError, TypeError):
        # no dates, not two, or one of them with a zone
        return None
    return [low, high] if low < high and getattr(low, "tzinfo", None) is None else None
