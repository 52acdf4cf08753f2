"""A first policy from the catalogue alone: every table and column, to be completed by the owner; no value is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath

from dither.errors import InvalidParameter
from dither.policy.catalogue import Description, Keys, decimal_step, kind_of, type_name
from dither.policy.draft.units import is_id, unit_candidates
from dither.policy.source import name_problem
from dither.policy.toml_text import Verbatim, toml_line, toml_path
from dither.query.kinds import Kind

CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".csv.zst", ".tsv.zst")
MOST_CANDIDATES = 3
HEAD = """\
# The policy of dither: public facts about the data, and how much may be lost.
# Complete what is marked TODO, then run: dither check
"""
BUDGET = """\
[budget]
# TODO: the most that all answers together may lose, for ever. With ε = 1 and this δ a suspicion of 10% about somebody
# becomes at most 23.5%, but for a chance of 1 in ten thousand.
epsilon_budget = 1.0
# The chance that the promise fails; far below one over the number of people. 0: no keys can be discovered.
delta_budget = 1e-6
max_epsilon_per_query = 0.5
default_epsilon = 0.1
adjacency = "add_remove"
# Besides the owner only names with a section [analysts.NAME] may ask; "any" lets every name ask.
analysts = "listed"
"""


def draft(
    description: Description,
    source: str | Mapping[str, str],
    *,
    header: bool | None = None,
    unique: Mapping[str, Keys] | None = None,
) -> str:
    """The text of a new policy for a database file, or for files by table; built from the catalogue alone.

    ``header`` False is written down: CSV files without a line of names. ``unique`` are the keys of tables that the
    catalogue holds to be unique.
    Every table is private and has no unit yet, so that the policy can't be used before the owner says who is protected.

    Example:
        >>> text = draft({"orders": {"user_id": "BIGINT", "amount": "DECIMAL(10,2)"}}, "shop.duckdb")
        >>> [line for line in text.splitlines() if line.startswith(("user_id", "amount", "# privacy_unit_column"))]
        ['# privacy_unit_column = "user_id"', 'user_id = { type = "integer" }', 'amount = { type = "double" }']
    """
    parts = [HEAD, _source(source, header), BUDGET]
    for table, columns in description.items():
        file = source.get(table, "") if isinstance(source, Mapping) else ""
        parts.append(_table(table, columns, (unique or {}).get(table, ()), untyped=is_csv(file)))
    if not description:
        parts.append("# TODO: the source has no tables. Add a section [tables.NAME] for each once it has.\n")
    return "\n".join(parts)


def write_new(path: str | Path, text: str) -> Path:
    """Write a new file; a policy that is already there is never overwritten."""
    place = Path(path)
    try:
        with place.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidParameter(
            f"{place} exists already and is left as it is: move it away, or give the new policy another name"
        ) from None
    except (OSError, ValueError):
        raise InvalidParameter(f"{place} can't be written: expected a new file in a directory that exists") from None
    return place


def column_settings(engine_type: str) -> dict[str, object]:
    """What a catalogue says about a column, as settings; a type that questions can't use is hidden.

    Example:
        >>> column_settings("VARCHAR"), column_settings("BLOB")
        ({'type': 'text'}, {'type': 'text', 'hidden': True})
    """
    kind = kind_of(engine_type)
    return {"type": Kind.TEXT.value, "hidden": True} if kind is None else {"type": kind.value}


def completed(settings: Mapping[str, object], engine_type: str) -> dict[str, object]:
    """The settings with places for bounds or keys to fill in, as far as the column's kind has any."""
    full = dict(settings)
    kind = settings.get("type")
    if settings.get("hidden"):
        return full
    if kind in (Kind.INTEGER.value, Kind.DOUBLE.value):
        full.setdefault("between", Verbatim("[LOW, HIGH]"))
        step = decimal_step(engine_type)
        if step is not None and kind == Kind.DOUBLE.value:
            full.setdefault("step", step)
    elif kind == Kind.TEXT.value:
        full.setdefault("in", Verbatim('["A", "B"]'))
    elif kind in (Kind.DATE.value, Kind.TIMESTAMP.value):
        full.setdefault("between", Verbatim("[FIRST, LAST]"))
    return full


def is_csv(path: str) -> bool:
    """Whether a file's columns have names but no types."""
    return path.lower().endswith(CSV)


def _source(source: str | Mapping[str, str], header: bool | None) -> str:  # noqa: FBT001
    lines = ["[source]"]
    if isinstance(source, Mapping):
        name = next(iter(source)) if len(source) == 1 else ""
        lines.append(toml_line("files", source))
    else:
        name = PurePath(source).stem
        lines.append(toml_line("database", source))
    if name_problem(name) is not None or not name.isprintable():
        lines.append("# TODO: under this name the ledger books what is spent; it should never change")
        name = "data"
    lines.append(toml_line("name", name))
    if header is not None:
        lines.append("# The CSV files have no line of names: columns are called column_1, column_2 and so on")
        lines.append(toml_line("header", value=header))
    return "\n".join(lines) + "\n"


def _table(table: str, columns: Mapping[str, str], unique: Keys, *, untyped: bool) -> str:
    candidates = unit_candidates(columns)[:MOST_CANDIDATES] or ["COLUMN"]
    units = [f"# {toml_line('privacy_unit_column', name)}" for name in candidates]
    lines = [
        f"[{toml_path(('tables', table))}]",
        "# TODO: or public = true, if everybody may know every row",
        "private = true",
        "# TODO: who is protected? Take the # off one of these lines.",
        *units,
        '# privacy_unit = "row"',
        "# TODO: with a unit column: does everybody have one row at most? Then nothing is cut.",
        "# one_row_per_unit = true",
        "# If not, max_groups_contributed says how many groups one unit counts in, max_rows_contributed as how many",
        "# rows in each. The rest is left out; more of either means as much more noise. Both are 1 if nothing is said.",
        *([f"{toml_line('unique', [list(key) for key in unique])}  # as the catalogue says"] if unique else []),
        "",
        f"[{toml_path(('tables', table, 'columns'))}]",
    ]
    if untyped:
        lines.append("# TODO: a CSV file has no types; write integer, double, date, timestamp or boolean where it fits")
    for name, engine_type in columns.items():
        lines.extend(_column(name, engine_type))
    return "\n".join(lines) + "\n"


def _column(name: str, engine_type: str) -> list[str]:
    settings = column_settings(engine_type)
    line = toml_line(name, settings)
    if "hidden" in settings:
        return [f"{line}  # {type_name(engine_type)}: questions can't use this type"]
    full = completed(settings, engine_type)
    return [line] if full == settings or is_id(name) else [line, f"# TODO: {toml_line(name, full)}"]
