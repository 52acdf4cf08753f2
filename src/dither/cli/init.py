"""``dither init``: a policy to complete, from the catalogue alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console
from dither.errors import InvalidParameter

Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="A DuckDB file, or Parquet and CSV files (one table each).", show_default=False
    ),
]
FILES = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


def init(
    sources: Sources,
    policy: PolicyFile = DEFAULT_POLICY,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether CSV files begin with a line of names; asked for if that line looks like values.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a policy to be completed.

    It has every table and column of the data. Reads their names and types, no values.

    Example:  dither init shop.duckdb
    """
    from dither.curator import drafts

    source = _source(sources)
    if header is None and sys.stdin.isatty() and (doubt := drafts.like_values(source)) is not None:
        header = typer.confirm(f"{doubt}. Are these the names of the columns?")
    written = drafts.write_new(policy, drafts.draft_for(source, base=policy.parent, header=header))
    screen = console()
    screen.print(Text(f"wrote {written}: complete the lines marked TODO, then run  dither check"))


def _source(sources: list[Path]) -> Path | Mapping[str, Path]:
    files = [path for path in sources if path.name.endswith(FILES)]
    if len(files) == len(sources):
        tables: dict[str, Path] = {}
        for path in files:
            name = path.name.partition(".")[0]
            if name in tables:
                raise InvalidParameter(f"two files would be the table {name!r}: name them apart, or edit the policy")
            tables[name] = path
        return tables
    if len(sources) == 1:
        return sources[0]
    raise InvalidParameter("give one DuckDB file, or only Parquet and CSV files")
