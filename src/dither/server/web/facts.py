"""The public facts about the data: tables, who is protected, bounds and keys, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fastapi import Response

from dither.brief import printable
from dither.drawings.texts import number
from dither.policy import Policy
from dither.policy.advice.advice import advise
from dither.privacy import Adjacency
from dither.query.kinds import Auto, Interval, Kind, Value
from dither.query.schema import ColumnFacts, TableFacts
from dither.query.sql.scalars import column_facts
from dither.server.auth.identity import Scope
from dither.server.web.web_session import Visit
from dither.server.wire.facts import since_1970

MOST_KEYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFacts:
    """A column as the page shows it; ``brief`` says it in a word or two, ``to_do`` what a question has to bring."""

    name: str
    kind: str
    bounds: str
    keys: str
    to_do: str
    brief: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table as the page shows it."""

    name: str
    private: bool
    unit: str
    contribution: str
    columns: tuple[ShownFacts, ...]
    hidden: int


async def data(visit: Visit) -> Response:
    """Every table."""
    visit.service.admit(visit.identity, Scope.PRICE)
    policy = visit.service.curator.policy
    tables = [shown_table(table) for table in policy.schema.tables.values()]
    warnings = lacking(policy) if visit.identity.is_owner else []
    return visit.page("data.html", tables=tables, unit=protected(policy), warnings=warnings)


def lacking(policy: Policy) -> list[str]:
    """What the owner should know of the policy, as ``dither check`` says it; of tables only what the file tells."""
    known = list(policy.warnings)
    # without the catalogue, which isn't read here, nothing true can be said of tables
    known += [found for found in advise(policy, {}) if found.key.startswith("budget") and found not in known]
    return [str(finding) for finding in known]


def protected(policy: Policy) -> str:
    """Who is protected, and against what, in plain words."""
    units = []
    for table in policy.schema.tables.values():
        if table.private:
            whole = f"each {table.unit_column} of {table.name}, with all its rows"
            units.append(f"each row of {table.name}" if table.unit_column is None else whole)
    present = policy.schema.adjacency is Adjacency.ADD_REMOVE
    return "; ".join(units) + (", and even whether it is there" if present else ". How many there are is public")


def shown_table(table: TableFacts) -> ShownTable:
    """The public facts of one table; hidden columns are counted and not named."""
    shown = [column for column in table.columns.values() if not column.hidden]
    unit = "each row" if table.unit_column is None else f"each {table.unit_column}"
    rows, groups = _counted(table.rows, "row"), _counted(table.groups, "group")
    contribution = f"counts as at most {rows} in each of at most {groups}"
    if table.auto_groups:
        contribution = "counts in all groups; as how many rows in all of them, each question chooses"
    elif table.auto_rows:
        contribution = f"counts in at most {groups}; as how many rows, each question chooses"
    if table.most_rows is not None:
        contribution = f"{contribution}, and has at most {_counted(table.most_rows, 'row')}"
    if table.most_rows == 1:
        contribution = "has at most 1 row"
    return ShownTable(
        name=table.name,
        private=table.private,
        unit=unit if table.private else "",
        contribution=contribution if table.private and table.unit_column is not None else "",
        columns=tuple(_column(column, table) for column in shown),
        hidden=len(table.columns) - len(shown),
    )


def _column(column: ColumnFacts, table: TableFacts) -> ShownFacts:
    is_unit = table.private and column.name == table.unit_column
    bounds, keys, brief = _bounds(column), "", column.kind.value
    if column.keys is None and not is_unit and column_facts(table, column).keys is not None:
        # what follows from the type and the bounds is as public as what is listed
        keys = "false, true" if column.kind is Kind.BOOLEAN else "each whole number"
    if column.keys is not None:
        keys = ", ".join(_key(key) for key in column.keys[:MOST_KEYS])
        keys += f" and {len(column.keys) - MOST_KEYS} more" if len(column.keys) > MOST_KEYS else ""
        brief += f", {_counted(len(column.keys), 'key')}"
    elif isinstance(column.between, Interval):
        brief += f", {_end(column, column.between.low)} … {_end(column, column.between.high)}"
    if is_unit:
        brief += ", who is protected"
    return ShownFacts(
        name=column.name,
        kind=column.kind.value,
        bounds=bounds,
        keys=keys,
        to_do="" if not table.private else "Says who is protected." if is_unit else _to_do(column),
        brief=brief,
    )


def _key(value: Value) -> str:
    """A key as a question writes it: no separators in the digits of a year, and nothing that steers a screen."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "NULL"
    text = number(value).replace(",", "") if isinstance(value, float) else str(value)
    return printable(text)


def _bounds(column: ColumnFacts) -> str:
    if isinstance(column.between, Auto):
        return "found privately, for a part of the price"
    if column.between is None:
        return ""
    steps = "" if column.step is None else f", in steps of {number(float(column.step))}"
    return f"{_end(column, column.between.low)} to {_end(column, column.between.high)}{steps}"


def _end(column: ColumnFacts, value: Fraction) -> str:
    """A bound as people write it."""
    if column.kind.temporal:
        moment = since_1970(value, column.kind)
        return str(moment) if column.kind is Kind.DATE else f"{moment:%Y-%m-%d %H:%M:%S}"
    # as a question writes it: a bound may be a year
    return number(float(value)).replace(",", "")


def _to_do(column: ColumnFacts) -> str:
    """What is missing for a question, and what to write or do about it."""
    if column.kind.number and column.between is None:
        return f"No bounds. State them: SUM({column.name}, contribution_bounds_per_row => (0, 100))."
    if column.keys is None and column.kind.temporal:
        return f"No keys. Group by a part of it: EXTRACT(month FROM {column.name})."
    if column.keys is None and column.kind is Kind.TEXT:
        return "No keys. Groups are found privately and rare ones stay hidden; ask the owner to list the keys."
    return ""


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
