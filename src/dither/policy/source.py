"""The source of a policy: where the data and the ledger are, and under which name spending is booked."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from dither.errors import InvalidParameter
from dither.policy.file_schema import SourceSettings, shaped
from dither.policy.findings import Notes, shown
from dither.policy.toml_text import toml_line
from dither.privacy.unit import account_name
from dither.query.intake import Intake, Limits

UP_TO = Fraction(1, 100)
"""The share of a table's rows that may be left out, if the policy says nothing."""
EXAMPLE = '[source]\ndatabase = "shop.duckdb"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySource:
    """Where the data and the ledger are; paths are relative to the policy's directory no more.

    ``database`` is a DuckDB file; without one, ``files`` has a path or pattern for each table. ``version`` is the
    owner's name for the state of the data, None if the files' fingerprint is to be used. ``copies`` is the directory
    for typed copies of CSV files, None for no copies. ``delimiter``, ``header`` and ``trim`` are about CSV files too;
    ``limits`` are the shares of a table that may be left out.
    """

    name: str
    ledger: Path
    database: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    version: str | None = None
    ledger_head: Path | None = None
    copies: Path | None = None
    delimiter: str | None = None
    header: bool = True
    trim: bool = False
    limits: Limits = field(default_factory=lambda: Limits(unreadable=UP_TO, without_unit=UP_TO, unlisted=UP_TO))

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(self.files)))
        if (self.database is None) == (not self.files):
            raise InvalidParameter("a source is a database or files, exactly one of the two")

    @property
    def location(self) -> Path | Mapping[str, Path]:
        """What an engine opens: the database, or the files by table."""
        return self.database if self.database is not None else self.files

    def intake(self, *, names_only: bool = False, accepted: str | None = None) -> Intake:
        """How an engine takes the files in; that they were is remembered beside the ledger."""
        usual = self.ledger.with_name(copies_of(self.name))
        return Intake(
            copies=self.copies,
            unwanted=usual if self.copies != usual else None,
            dataset=self.name,
            record=self.ledger.with_name(self.ledger.name + ".accepted"),
            delimiter=self.delimiter,
            header=self.header,
            trim=self.trim,
            limits=self.limits,
            names_only=names_only,
            accepted=accepted,
        )


def copies_of(name: str) -> str:
    """The directory of a dataset's copies, where the policy doesn't name one."""
    return f"{name}.copies"


def read_source(raw: object, base: Path, tables: Mapping[str, object], notes: Notes) -> PolicySource | None:
    """The source, or None if it can't be read; ``tables`` are the declared ones, with what is said of each."""
    if raw is None:
        notes.error((), "the section [source] is missing: where is the data?", write=EXAMPLE)
        return None
    settings, broken = shaped(SourceSettings, raw, ("source",), notes)
    if settings.database is not None and settings.files is not None:
        notes.error(
            ("source", "files"), "the data is in a database or in files, not both. Remove one of the two lines."
        )
        return None
    if settings.database is None and settings.files is None:
        if not {"database", "files"} & broken:
            notes.error(
                ("source",),
                "it isn't said where the data is: a DuckDB file (database), or Parquet or CSV files (files).",
                write='database = "shop.duckdb"',
            )
        return None
    name = _name(settings, broken, notes)
    _local(settings, notes)
    if settings.files is not None:
        _every_table_has_a_file(settings.files, tables, notes)
    if name is None or {"ledger", "ledger_head", "copies"} & broken:
        return None
    ledger = _path(base, settings.ledger or f"{name}.ledger")
    source = PolicySource(
        name=name,
        ledger=ledger,
        database=None if settings.database is None else _path(base, settings.database),
        files={table: _path(base, path) for table, path in (settings.files or {}).items()},
        version=settings.version,
        ledger_head=None if settings.ledger_head is None else _path(base, settings.ledger_head),
        copies=_copies(settings, ledger, name, base),
        delimiter=settings.delimiter,
        header=settings.header is not False,
        trim=settings.trim is True,
        limits=Limits(
            unreadable=_share(settings.unreadable_up_to),
            without_unit=_share(settings.without_unit_up_to),
            unlisted=_share(settings.unlisted_up_to),
        ),
    )
    _different_files(source, notes)
    return source


def _share(given: Fraction | None) -> Fraction:
    return UP_TO if given is None else given


def _copies(settings: SourceSettings, ledger: Path, name: str, base: Path) -> Path | None:
    if settings.files is None or settings.copies is False:
        return None
    return ledger.with_name(copies_of(name)) if settings.copies is None else _path(base, str(settings.copies))


def name_problem(name: str) -> str | None:
    """What is wrong with a name in the ledger, if anything."""
    try:
        account_name(name)
    except InvalidParameter as problem:
        return str(problem)
    return None


def _name(settings: SourceSettings, broken: frozenset[str], notes: Notes) -> str | None:
    if "name" in broken:
        return None
    if settings.name is not None:
        problem = name_problem(settings.name)
        if problem is not None:
            notes.error(("source", "name"), f"{problem}.", write='name = "shop"')
        return None if problem else account_name(settings.name)
    stem = Path(settings.database).stem if settings.database is not None else ""
    if settings.files is not None and len(settings.files) == 1:
        stem = next(iter(settings.files))
    if name_problem(stem) is not None:
        notes.error(
            ("source",), "the dataset needs a name, under which the ledger books what is spent.", write='name = "shop"'
        )
        return None
    return account_name(stem)


def _path(base: Path, path: str) -> Path:
    # not resolved: a link may point elsewhere tomorrow, and nothing is read here
    return Path(os.path.normpath(base / Path(path)))


def _local(settings: SourceSettings, notes: Notes) -> None:
    for setting in ("database", "ledger", "ledger_head", "copies"):
        path = getattr(settings, setting)
        if isinstance(path, str) and "://" in path:
            notes.error(
                ("source", setting),
                f"expected a path on this machine, found {shown(path)}.",
                write=toml_line(setting, f"shop.{'duckdb' if setting == 'database' else setting.rpartition('_')[2]}"),
            )
    for table, path in (settings.files or {}).items():
        if "://" in path:
            notes.error(("source", "files", table), f"expected a path on this machine, found {shown(path)}.")


def _every_table_has_a_file(files: Mapping[str, str], tables: Mapping[str, object], notes: Notes) -> None:
    for table in tables:
        if table not in files:
            notes.error(
                ("tables", table),
                "this table has no file under source.files.",
                write=toml_line("files", {**files, table: f"{table}.parquet"}),
            )


def _different_files(source: PolicySource, notes: Notes) -> None:
    data = [source.database] if source.database is not None else list(source.files.values())
    taken = {*data}
    for setting, path in (("ledger", source.ledger), ("ledger_head", source.ledger_head)):
        if path in taken:
            write = toml_line(setting, f"{source.name}.{setting.rpartition('_')[2]}2")
            notes.error(("source", setting), "this file is already used for something else in [source].", write=write)
        if path is not None:
            taken.add(path)


def read_twice(source: PolicySource, private: Iterable[str], public: Iterable[str], notes: Notes) -> None:
    """A file can't be private under one name and public under another: that would give its rows away."""
    secret = {source.files[table]: table for table in private if table in source.files}
    for table in public:
        if table in source.files and source.files[table] in secret:
            notes.error(
                ("tables", table, "public"),
                f"the same file is the private table {shown(secret[source.files[table]])}. Remove this table, or make "
                "it private.",
                write="private = true",
            )
