"""Tables of a policy: whom each one protects, and how much of one unit an answer may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dither.errors import did_you_mean
from dither.policy.columns import read_columns
from dither.policy.draft.units import person_column
from dither.policy.file_schema import TableSettings, shaped
from dither.policy.findings import Notes, shown
from dither.policy.line_numbers import Place
from dither.policy.toml_text import toml_key, toml_line, toml_path
from dither.query.kinds import Auto, Kind
from dither.query.plan.profile import MOST_CHOSEN
from dither.query.schema import ColumnFacts, TableFacts

# with fewer ids than this, an id is a group of people rather than a person
FEW_UNITS = 100
PER_UNIT = ("max_groups_contributed", "max_rows_contributed", "rows_per_unit_at_most", "one_row_per_unit")
PRIVATE_ONLY = ("privacy_unit_column", "privacy_unit", *PER_UNIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """What could be read of a table; ``facts`` is None where it isn't clear whom the table protects."""

    settings: TableSettings
    columns: Mapping[str, ColumnFacts]
    facts: TableFacts | None


def read_tables(raw: object, notes: Notes) -> Mapping[str, TableReading]:
    """Every table that could be read; whatever is wrong with any of them goes to the notes."""
    if raw is None or raw == {}:
        notes.error(
            ("tables",),
            "no table is declared, so nothing can be asked.",
            write='[tables.orders]\nprivate = true\nprivacy_unit_column = "user_id"',
        )
        return MappingProxyType({})
    if not isinstance(raw, Mapping):
        notes.error(("tables",), f"expected one section for each table, found {shown(raw)}.", write="[tables.orders]")
        return MappingProxyType({})
    tables: dict[str, TableReading] = {}
    seen: dict[str, str] = {}
    for name, settings in raw.items():
        path = ("tables", name)
        twin = seen.setdefault(name.casefold(), name)
        if twin != name:
            notes.error(
                path,
                f"differs from the table {shown(twin)} only in upper and lower case, which SQL doesn't tell apart. "
                "Remove one of the two.",
            )
            continue
        tables[name] = _TableReader(name, settings, path, notes).read()
    _across(tables, notes)
    return MappingProxyType(tables)


class _TableReader:
    """Reads the settings of one table; whatever is wrong with it goes to the notes."""

    def __init__(self, name: str, raw: object, path: Place, notes: Notes) -> None:
        self._name, self._path, self._notes = name, path, notes
        self._settings, self._broken = shaped(TableSettings, raw, path, notes)
        self._declared = self._settings.columns or {}
        self._columns = MappingProxyType(read_columns(self._declared, (*path, "columns"), notes))

    def read(self) -> TableReading:
        """All that is said of the table."""
        return TableReading(settings=self._settings, columns=self._columns, facts=self._facts())

    def _wrong(self, setting: str, message: str, write: str = "") -> None:
        self._notes.error((*self._path, setting), message, write=write)

    def _none_of(self, settings: tuple[str, ...], message: str) -> None:
        for setting in settings:
            if getattr(self._settings, setting) is not None:
                self._wrong(setting, message)

    def _facts(self) -> TableFacts | None:
        settings = self._settings
        if settings.private and settings.public:
            self._wrong("public", "a table is private or public, not both. Remove one of the two lines.")
        elif settings.private:
            return self._private()
        elif settings.public:
            return self._public()
        elif not {"private", "public"} & self._broken:
            self._notes.error(
                self._path,
                "it isn't said whether the table is private (its rows are protected) or public (everybody may know "
                "them).",
                write="private = true",
            )
        return None

    def _private(self) -> TableFacts | None:
        settings = self._settings
        if settings.privacy_unit_column is not None and settings.privacy_unit is not None:
            self._wrong("privacy_unit", "the unit is a column or the row, not both. Remove one of the two lines.")
        elif settings.privacy_unit is not None:
            return self._row_level()
        elif settings.privacy_unit_column is not None:
            return self._user_level(settings.privacy_unit_column)
        elif not {"privacy_unit_column", "privacy_unit"} & self._broken:
            self._notes.error(
                self._path,
                "it isn't said who is protected: name the column that identifies a person (privacy_unit_column), or "
                'say privacy_unit = "row" if no two rows are about the same person.',
                write=toml_line("privacy_unit_column", person_column(self._columns)),
            )
        return None

    def _row_level(self) -> TableFacts:
        self._none_of(
            PER_UNIT,
            "every row is a unit of its own, so it is one row in one group and there is nothing to bound. Remove "
            "the line, or name the column of the people: privacy_unit_column.",
        )
        return TableFacts(name=self._name, private=True, columns=self._columns, unique=self._unique())

    def _user_level(self, unit: str) -> TableFacts | None:
        if unit not in self._declared:
            if "columns" not in self._broken:
                self._undeclared_unit(unit)
            return None
        if unit not in self._columns:
            return None
        _doubtful_unit(self._columns[unit], (*self._path, "columns", unit), self._notes)
        most = self._rows_at_most()
        stated, groups = self._settings.max_rows_contributed, self._settings.max_groups_contributed
        if isinstance(groups, Auto) and not isinstance(stated, Auto):
            self._wrong(
                "max_groups_contributed",
                'it can be "auto" only where max_rows_contributed is: then one bound is chosen for all rows of a unit, '
                "in all groups together.",
                'max_rows_contributed = "auto"',
            )
        return TableFacts(
            name=self._name,
            private=True,
            columns=self._columns,
            unit_column=unit,
            groups=1 if isinstance(groups, Auto) else groups or 1,
            auto_groups=isinstance(groups, Auto),
            # unique keys never make it more: what somebody could have isn't what most people have
            rows=MOST_CHOSEN if isinstance(stated, Auto) else stated or most or 1,
            auto_rows=isinstance(stated, Auto),
            unique=self._unique(),
            rows_at_most=most,
        )

    def _rows_at_most(self) -> int | None:
        """The public maximum that is stated, in one of two ways."""
        most = self._settings.rows_per_unit_at_most
        if not self._settings.one_row_per_unit:
            return most
        if most not in (None, 1):
            self._wrong("rows_per_unit_at_most", "one_row_per_unit says that it is 1. Remove one of the two lines.")
        return 1

    def _undeclared_unit(self, unit: str) -> None:
        meant = did_you_mean(unit, self._declared)
        message = f"the column {shown(unit)} isn't declared"
        if meant is not None:
            message += f"; did you mean {shown(meant)}?"
            self._wrong("privacy_unit_column", message, toml_line("privacy_unit_column", meant))
        else:
            message += f". Declare it under [{toml_path((*self._path, 'columns'))}], with its type."
            self._wrong("privacy_unit_column", message, toml_line(unit, {"type": "integer"}))

    def _public(self) -> TableFacts:
        self._none_of(
            PRIVATE_ONLY,
            "nobody is protected in a public table. Remove the line, or make the table private: private = true.",
        )
        return TableFacts(name=self._name, private=False, columns=self._columns, unique=self._unique())

    def _unique(self) -> tuple[frozenset[str], ...]:
        """Sets of columns of which every combination occurs once, as stated."""
        unique = []
        for number, names in enumerate(self._settings.unique or ()):
            missing = next((column for column in names if column not in self._declared), None)
            if missing is None:
                unique.append(frozenset(names))
                continue
            meant = did_you_mean(missing, self._declared)
            hint = f"; did you mean {shown(meant)}?" if meant else f". Declare it: {toml_key(missing)} = {{ type = … }}"
            self._notes.error((*self._path, "unique", number), f"the column {shown(missing)} isn't declared{hint}")
        return tuple(dict.fromkeys(unique))


def _doubtful_unit(column: ColumnFacts, path: Place, notes: Notes) -> None:
    if column.keys is not None:
        few = f", and only {len(column.keys)} of them exist" if len(column.keys) < FEW_UNITS else ""
        notes.warning(
            path,
            f"this column says who is protected, and its values are declared public{few}: rows of other units are left "
            "out of answers grouped by it. Is it a person's id? Otherwise leave in out.",
            write=toml_line(column.name, {"type": column.kind.value}),
        )
    if column.kind is Kind.BOOLEAN:
        notes.warning(
            path, "this column says who is protected and has two values only: half of the table would be one unit."
        )
    if column.kind is Kind.DOUBLE:
        notes.warning(
            path,
            "this column says who is protected and holds doubles: ids that round to the same number become one unit.",
            write=toml_line(column.name, {"type": "integer"}),
        )


def _across(tables: Mapping[str, TableReading], notes: Notes) -> None:
    """What concerns several tables: one kind of id, and what different units mean together."""
    private = {name: reading for name, reading in tables.items() if reading.settings.private}
    if not private:
        if not any(reading.settings.public is None for reading in tables.values()):
            notes.error(
                ("tables",),
                "every table is public, so there is nothing to protect. Make at least one of them private.",
                write="private = true",
            )
        return
    facts = [reading.facts for reading in private.values() if reading.facts is not None]
    by_row = [table for table in facts if table.unit_column is None]
    by_column = [table for table in facts if table.unit_column is not None]
    for table in by_column[1:]:
        first = by_column[0]
        assert table.unit_column is not None
        assert first.unit_column is not None
        one, other = first.columns[first.unit_column], table.columns[table.unit_column]
        if one.kind is not other.kind:
            notes.error(
                ("tables", table.name, "columns", other.name),
                f"people are identified by a column of type {other.kind.value} here and of type {one.kind.value} in "
                f"{toml_path(('tables', first.name))}: one person must have one id in all tables.",
                write=toml_line(other.name, {"type": one.kind.value}),
            )
    if by_row and by_column:
        rows, people = by_row[0], by_column[0]
        notes.warning(
            ("tables", rows.name),
            f"rows are protected here and people in {toml_path(('tables', people.name))}: the two can't be combined in "
            "one question, and each table's guarantee is for its own unit only. A person with several rows here is "
            "protected row by row.",
        )
