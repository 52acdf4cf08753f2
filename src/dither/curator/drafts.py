"""New policies and advice on existing ones: for ``dither init`` and ``dither check``.

Names and types alone, unless the owner asks for the data itself to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dither.curator.past import records
from dither.engines.files.strict_csv import head_of
from dither.engines.opening import OpenedEngine, open_engine
from dither.errors import InvalidParameter
from dither.policy.advice.advice import advise
from dither.policy.advice.data import about_data
from dither.policy.draft.draft import draft, is_csv, write_new
from dither.policy.findings import Level, PolicyFinding
from dither.policy.policy import Policy, read_file
from dither.policy.source import PolicySource
from dither.query.intake import Beyond, Intake, NotAccepted, TableReport, news
from dither.query.schema import Schema

__all__ = [
    "Level",
    "PolicyFinding",
    "TableReport",
    "check",
    "check_data",
    "draft_for",
    "like_values",
    "names_of",
    "news",
    "write_new",
]

NAMES = Intake(names_only=True)


def draft_for(source: Path | Mapping[str, Path], *, base: Path, header: bool | None = None) -> str:
    """The text of a policy for a database, or for files by table, with paths relative to where it will stand.

    ``header`` says whether CSV files have a line of names; if it isn't said, a first line that looks like values raises
    InvalidParameter: the names of columns are public, and somebody's values aren't.
    """
    doubt = like_values(source) if header is None else None
    if doubt is not None:
        raise InvalidParameter(f"{doubt}: say --no-header if there are no names, or --header if these are the names")
    csv = _csv(source)
    intake = replace(NAMES, header=header is not False)
    with open_engine(source, Schema({}), intake=intake) as engine:
        description, unique = engine.describe(), engine.unique_keys()
    if isinstance(source, Mapping):
        return draft(
            description,
            {name: _relative(path, base) for name, path in source.items()},
            header=False if csv and header is False else None,
            unique=unique,
        )
    return draft(description, _relative(source, base), unique=unique)


def like_values(source: Path | Mapping[str, Path]) -> str | None:
    """Which CSV file begins with a line that looks like values rather than names, if one does; quotes none of them."""
    for path in _csv(source):
        found = head_of(path, delimiter=None, header=True).like_data if path.is_file() else ()
        if found:
            columns = ", ".join(map(str, found[:5]))
            return f"the first line of {path} looks like values, not like names of columns (in column {columns})"
    return None


def _csv(source: Path | Mapping[str, Path]) -> list[Path]:
    return [path for path in source.values() if is_csv(path.name)] if isinstance(source, Mapping) else []


def check(path: Path) -> list[PolicyFinding]:
    """Everything to know about a policy file, errors first; opens the data's catalogue if the file says where it is."""
    reading = read_file(path)
    if reading.source is None:
        return list(reading.errors)
    with _names(reading.source, Schema({})) as engine:
        found = advise(reading, engine.describe(), engine.unique_keys())
    if any(one.level is Level.ERROR for one in found):
        return found
    # everything that could still be wrong is between the schema and the engine: let it say so
    policy = Policy.of(reading)
    _names(policy.source, policy.schema).close()
    if records.is_begun(policy):
        # and between the policy and what its ledger is kept for
        with records.open_ledger(policy, create=False) as book:
            book.bind(policy.units(), note=False)
    return found


def check_data(path: Path) -> tuple[list[PolicyFinding], tuple[TableReport, ...]]:
    """Look at the data itself: what no answer will have, with errors where that is more than the policy says.

    A version of the data that passes is accepted: it can be opened from then on. For the owner alone.
    """
    policy = Policy.load(path)
    beyond: Mapping[str, tuple[Beyond, ...]] = {}
    try:
        with open_engine(policy.source.location, policy.schema, intake=policy.source.intake()) as engine:
            reports, beyond = engine.reports, engine.beyond_facts()
    except NotAccepted as problem:
        reports = problem.reports
    return about_data(policy, reports, beyond), reports


def names_of(policy: Policy) -> OpenedEngine:
    """The policy's data for those who only look: its names are there, and no question can be asked."""
    return _names(policy.source, policy.schema)


def _names(source: PolicySource, schema: Schema) -> OpenedEngine:
    return open_engine(source.location, schema, intake=source.intake(names_only=True))


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path, base)).as_posix()
