"""Tables from wherever they are: Arrow, pandas, polars, mappings of columns, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pyarrow.types as types

from dither.errors import InvalidParameter, SourceError

TEXT_FILES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
SEPARATORS = (",", ";", "\t", "|")
LEADING_ZERO = "^[+-]?0[0-9]"


def as_table(data: Any, *, separator: str | None = None) -> pa.Table:
    """An Arrow table from Arrow, pandas, polars, a mapping of columns, or the path of a CSV or Parquet file.

    Numbers with leading zeros in a CSV file (postcodes) stay text. ``separator`` is found in the first line if it isn't
    given.

    Example:
        >>> as_table({"age": [31, 47], "town": ["Ulm", None]}).num_rows
        2
    """
    table = _read(Path(data), separator) if isinstance(data, str | Path) else _converted(data)
    _expect_different(table.column_names)
    return table


def _expect_different(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidParameter(f"column names must differ; these occur more than once: {', '.join(map(repr, twice))}")


def _converted(data: Any) -> pa.Table:
    home = type(data).__module__.partition(".")[0]
    try:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if home == "pandas" and hasattr(data, "columns"):
            _expect_different([str(name) for name in data.columns])
            return pa.Table.from_pandas(_with_text_names(data), preserve_index=False).replace_schema_metadata(None)
        if home == "polars" and hasattr(data, "collect"):
            data = data.collect()
        if isinstance(data, dict) or hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except InvalidParameter:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Arrow's message would quote the value that it stumbled over
        raise InvalidParameter(
            "the table can't be made into an Arrow table: each column needs values of one type, and all the same length"
        ) from None
    raise InvalidParameter(
        f"expected an Arrow table, a pandas or polars frame, a dict of columns or the path of a file; got a "
        f"{type(data).__name__}"
    )


def _with_text_names(frame: Any) -> Any:
    """A pandas frame whose column names are text; a name that isn't text has no place in a release."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    raise InvalidParameter("every column needs a name that is text; rename the others: frame.columns = [...]")


def _read(path: Path, separator: str | None) -> pa.Table:
    name = path.name.lower()
    if not path.is_file():
        raise SourceError(f"{str(path)!r} is not a file")
    try:
        if name.endswith((".parquet", ".pq")):
            return parquet.read_table(path)
        if name.endswith(TEXT_FILES):
            return _read_text(path, separator)
    except (pa.ArrowException, UnicodeDecodeError, OSError):
        raise SourceError(
            f"{str(path)!r} can't be read: see that it is what its ending says, and that all lines of a text file have "
            "the same number of fields"
        ) from None
    raise SourceError(f"{str(path)!r} must end in .parquet or in one of {', '.join(TEXT_FILES)}")


def _read_text(path: Path, separator: str | None) -> pa.Table:
    mark = separator if separator is not None else _separator_of(path)
    parse = arrow_csv.ParseOptions(delimiter=mark)
    table = arrow_csv.read_csv(path, parse_options=parse)
    names = table.column_names
    whole = [name for name, column in zip(names, table.columns, strict=True) if types.is_integer(column.type)]
    if not whole or len(set(names)) != len(names):
        return table
    again = arrow_csv.ConvertOptions(column_types=dict.fromkeys(whole, pa.string()), include_columns=whole)
    texts = arrow_csv.read_csv(path, parse_options=parse, convert_options=again)
    for name in whole:
        column = texts.column(name)
        if pc.any(pc.match_substring_regex(column, LEADING_ZERO)).as_py():
            table = table.set_column(names.index(name), name, _with_nulls(column, table.column(name)))
    return table


def _with_nulls(texts: Any, as_numbers: Any) -> Any:
    return pc.if_else(pc.is_null(as_numbers), pa.scalar(None, pa.string()), texts)


def _separator_of(path: Path) -> str:
    with pa.input_stream(path, compression="detect") as file:
        head: bytes = file.read(1 << 16)
    line = head.splitlines()[0].decode("utf-8", "replace") if head else ""
    return max(SEPARATORS, key=line.count)
