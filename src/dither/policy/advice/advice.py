"""Advice on a policy: what is wrong, doubtful or missing, compared with the catalogue; for ``dither check``."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dither.errors import did_you_mean
from dither.policy.budget import Budget
from dither.policy.catalogue import Description, Keys, decimal_step, fits, kind_of, type_name
from dither.policy.columns import ColumnLine
from dither.policy.draft.draft import column_settings, completed, is_csv
from dither.policy.draft.units import is_id, person_column
from dither.policy.findings import Notes, PolicyFinding, shown
from dither.policy.line_numbers import Place
from dither.policy.policy import Policy
from dither.policy.reading import PolicyReading
from dither.policy.tables import TableReading
from dither.policy.toml_text import toml_line, toml_path
from dither.privacy import Guarantee
from dither.query.intake import like_values
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, TableFacts

LARGE_EPSILON = 10


def advise(
    policy: Policy | PolicyReading, description: Description, unique: Mapping[str, Keys] | None = None
) -> list[PolicyFinding]:
    """Everything the owner should know, errors first: from the file, and from comparing it with the catalogue.

    ``unique`` are the keys of its tables of which the catalogue says that every combination occurs once. Takes what
    could be read, so that a draft gets advice although it can't be used yet. Reads no data.
    """
    reading = policy.reading if isinstance(policy, Policy) else policy
    notes = Notes(reading.file, reading.places)
    notes.findings.extend(reading.findings)
    if reading.budget is not None:
        _large_budget(reading.budget, notes)
    for name, table in reading.tables.items():
        if name in description:
            _table(name, table, description[name], (unique or {}).get(name, ()), reading, notes)
        else:
            _unknown_table(name, description, notes)
    for name in description:
        if name not in reading.tables and reading.tables:
            _undeclared_table(name, description[name], notes)
    return notes.in_order()


def _large_budget(budget: Budget, notes: Notes) -> None:
    if budget.epsilon_budget <= LARGE_EPSILON:
        return
    # δ of a half and more leaves no sentence to say
    delta = budget.delta_budget if budget.delta_budget < Fraction(1, 2) else Fraction(0)
    sentence = Guarantee(budget.epsilon_budget, delta).sentence()
    notes.warning(
        ("budget", "epsilon_budget"),
        f"this is a large budget. {sentence} Take less, unless that is what you want to promise.",
        write="epsilon_budget = 1.0",
    )


def _unknown_table(name: str, description: Description, notes: Notes) -> None:
    meant = did_you_mean(name, description)
    if meant is None:
        known = ", ".join(shown(table) for table in list(description)[:5])
        tables = f"it has {known}" if known else "it has no tables"
        notes.error(("tables", name), f"the source has no such table; {tables}. Remove the section, or name another.")
        return
    notes.error(
        ("tables", name),
        f"the source has no such table; did you mean {shown(meant)}?",
        write=f"[{toml_path(('tables', meant))}]",
    )


def _undeclared_table(name: str, columns: Mapping[str, str], notes: Notes) -> None:
    lines = [f"[{toml_path(('tables', name))}]", "private = true"]
    lines.append(toml_line("privacy_unit_column", person_column(columns)))
    lines.append(f"[{toml_path(('tables', name, 'columns'))}]")
    lines.extend(toml_line(column, column_settings(engine_type)) for column, engine_type in columns.items())
    notes.hint(
        ("tables",),
        f"the table {shown(name)} of the source isn't declared, so it can't be asked about.",
        write="\n".join(lines),
    )


def _table(
    name: str, table: TableReading, catalogue: Mapping[str, str], keys: Keys, reading: PolicyReading, notes: Notes
) -> None:
    path: Place = ("tables", name)
    declared = table.settings.columns or {}
    unit = table.settings.privacy_unit_column
    file = reading.source.files.get(name) if reading.source is not None else None
    untyped = file is not None and is_csv(str(file))
    if untyped and reading.source is not None and reading.source.header and like_values(catalogue):
        notes.warning(
            path,
            "the first line of the file looks like values, not like names of columns: those would be somebody's, in a "
            "file that is public. If there is no line of names, say so under [source].",
            write="header = false",
        )
    for column in declared:
        place = (*path, "columns", column)
        if column not in catalogue:
            _unknown_column(column, declared[column], catalogue, place, notes)
        elif column in table.columns:
            facts = table.columns[column]
            line = ColumnLine(column, declared[column], place, notes)
            _type(facts, catalogue[column], line, place, notes, untyped=untyped)
            if column != unit and not facts.hidden and not is_id(column):
                _missing_facts(facts, catalogue[column], line, place, reading, notes)
    for column, engine_type in catalogue.items():
        if column not in declared:
            notes.hint(
                (*path, "columns"),
                f"the column {shown(column)} of the source isn't declared, so it can't be asked about.",
                write=toml_line(column, column_settings(engine_type)),
            )
    _unique(table, keys, path, notes)
    if table.facts is not None and table.facts.unit_column is not None:
        names = ("max_groups_contributed", "max_rows_contributed")
        _contribution(table.facts, path, notes, stated={name: getattr(table.settings, name) for name in names})


def _unknown_column(name: str, raw: object, catalogue: Mapping[str, str], path: Place, notes: Notes) -> None:
    meant = did_you_mean(name, catalogue)
    if meant is None:
        notes.error(path, "the table has no such column. Remove the line.")
        return
    notes.error(path, f"the table has no such column; did you mean {shown(meant)}?", write=toml_line(meant, raw))


def _type(facts: ColumnFacts, engine_type: str, line: ColumnLine, path: Place, notes: Notes, *, untyped: bool) -> None:
    actual = kind_of(engine_type)
    # text of a CSV file is read as whatever is declared
    if fits(facts.kind, engine_type) or (untyped and actual is Kind.TEXT):
        return
    if actual is None:
        if not facts.hidden:
            notes.error(
                path,
                f"the column is of type {type_name(engine_type)}, which questions can't use. Hide it, or make a view "
                "that casts it.",
                write=line.having("hidden", value=True),
            )
        return
    notes.error(
        path,
        f"declared as {facts.kind.value}, but the column is of type {type_name(engine_type)}.",
        write=line.having("type", actual.value),
    )


def _missing_facts(
    facts: ColumnFacts, engine_type: str, line: ColumnLine, path: Place, reading: PolicyReading, notes: Notes
) -> None:
    """What can't be asked for want of public facts."""
    full = completed(line.raw, engine_type)
    if facts.kind.number and facts.between is None and facts.keys is None:
        notes.hint(
            path,
            "no bounds: the column can be counted and filtered, but not summed or averaged. State bounds that are "
            'public knowledge, not looked up in the data; or between = "auto" to have them searched, at a price.',
            write=line.having("between", full["between"]) if "step" not in full else toml_line(facts.name, full),
        )
    elif facts.kind is Kind.DOUBLE and facts.step is None and decimal_step(engine_type) is not None:
        notes.hint(
            path, "no step: the column holds decimals, and with their step sums are exact.",
            write=line.having("step", decimal_step(engine_type)),
        )  # fmt: skip
    if facts.kind is Kind.TEXT and facts.keys is None:
        pure = reading.budget is not None and reading.budget.delta_budget == 0
        found = (
            "and with delta_budget = 0 none can be discovered, so it can't be grouped by"
            if pure
            else "so groups by it must be discovered, which costs δ and shows only groups of enough units"
        )
        notes.hint(path, f"no public keys, {found}.", write=line.having("in", full["in"]))


def _contribution(facts: TableFacts, path: Place, notes: Notes, *, stated: Mapping[str, object]) -> None:
    """What counts of one unit. No line to write here makes noise larger: only the owner knows what units have."""
    one = facts.most_rows == 1
    for name, number in stated.items():
        if one and number not in (None, 1):
            notes.hint(
                (*path, name),
                f"each {facts.unit_column} has one row, as the policy says, so this has no effect. Remove the line.",
            )
    if not one and all(number is None for number in stated.values()) and facts.rows_at_most is None:
        notes.hint(
            path,
            f"each {facts.unit_column} counts as one row in one group, and its other rows are left out. Is there one "
            "row for each anyway? Then say so, and nothing is cut. If not, say how many groups and rows of one count: "
            "max_groups_contributed and max_rows_contributed. More of them mean as much more noise.",
            write="one_row_per_unit = true",
        )


def _unique(table: TableReading, keys: Keys, path: Place, notes: Notes) -> None:
    """Unique keys of the catalogue that the policy doesn't have."""
    if table.facts is None:
        return
    stated = table.facts.unique
    declared = table.settings.columns or {}
    missing = [key for key in keys if frozenset(key) not in stated and all(column in declared for column in key)]
    if missing:
        listed = [list(key) for key in (*(table.settings.unique or ()), *missing)]
        notes.hint(
            path,
            "the source holds every combination of "
            + " and of ".join(", ".join(map(shown, key)) for key in missing)
            + " once. As a public fact that makes noise smaller where one unit can't have more rows.",
            write=toml_line("unique", listed),
        )
