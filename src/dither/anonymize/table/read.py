"""Tables from wherever they are: Arrow, pandas, polars, mappings of columns, and files.

**Text files.** The first line names the columns; the separator is found in it. Text is UTF-8, with or without a
byte-order mark. In a column of text an empty field is a missing value and ``""`` is an empty text, as PostgreSQL and
Arrow write them; words such as NA are text there. In a column of numbers, dates or truth values, empty fields, quoted
or not, and NA, NULL, NaN and their kin are missing. Numbers with leading zeros (postcodes) stay text. In a file of one
column an empty line is a missing value; elsewhere it is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pyarrow.types as types

from dither.anonymize.table.arrow_layouts import plain_layout
from dither.anonymize.table.values import is_text
from dither.errors import InvalidParameter, SourceError

TEXT_FILES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
SEPARATORS = (",", ";", "\t", "|")
LEADING_ZERO = "^[+-]?0[0-9]"


def as_table(data: Any, *, separator: str | None = None, wanted: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """An Arrow table from Arrow, pandas, polars, a mapping of columns, or the path of a CSV or Parquet file.

    Numbers with leading zeros in a CSV file (postcodes) stay text. ``separator`` is found in the first line if it isn't
    given. ``wanted`` says as what columns of a text file are read, where their content allows it; it is for those only,
    since other tables know their types.

    Example:
        >>> as_table({"age": [31, 47], "town": ["Ulm", None]}).num_rows
        2
    """
    table = _read(Path(data), separator, wanted or {}) if isinstance(data, str | Path) else _converted(data)
    _expect_different(table.column_names)
    return plain_layout(table)


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


def _read(path: Path, separator: str | None, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    name = path.name.lower()
    if not path.is_file():
        raise SourceError(f"{str(path)!r} is not a file" + ("" if path.exists() else ": there is nothing of that name"))
    try:
        if name.endswith((".parquet", ".pq")):
            # metadata of pandas (its index, where the file came from) isn't for readers of a release
            return parquet.read_table(path).replace_schema_metadata(None)
        if name.endswith(TEXT_FILES):
            return _read_text(path, separator, wanted)
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except PermissionError:
        raise SourceError(f"{str(path)!r} can't be read: there is no right to") from None
    except (pa.ArrowException, UnicodeDecodeError, OSError):
        raise SourceError(
            f"{str(path)!r} can't be read: see that it is what its ending says, and that all lines of a text file have "
            "the same number of fields"
        ) from None
    raise SourceError(f"{str(path)!r} must end in .parquet or in one of {', '.join(TEXT_FILES)}")


def _read_text(path: Path, separator: str | None, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    head = _head(path)
    if not head.strip():
        raise SourceError(f"{str(path)!r} is empty: its first line must name the columns")
    parse = arrow_csv.ParseOptions(delimiter=separator or _separator_of(head), newlines_in_values=True)
    table = _typed(path, parse, wanted)
    names = table.column_names
    _expect_different(names)
    if any(types.is_binary(field.type) for field in table.schema if field.name not in wanted):
        raise SourceError(f"{str(path)!r} is not UTF-8 text: save it as UTF-8")
    if len(names) == 1:
        parse.ignore_empty_lines = False
        table = _typed(path, parse, wanted)
    for name, column in zip(*_as_text(path, parse, table, wanted), strict=True):
        if types.is_integer(table.field(name).type):
            if not pc.any(pc.match_substring_regex(column, LEADING_ZERO)).as_py():
                continue
            column = _with_nulls(column, table.column(name))
        table = table.set_column(names.index(name), name, column)
    return table


def _typed(path: Path, parse: arrow_csv.ParseOptions, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """Every column with the type that is wanted, or else with the one that its content looks like."""
    try:
        given = arrow_csv.ConvertOptions(column_types=dict(wanted))
        return arrow_csv.read_csv(path, parse_options=parse, convert_options=given)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not wanted:
            raise
    table = arrow_csv.read_csv(path, parse_options=parse)
    for place, name in enumerate(table.column_names):
        if name in wanted:
            given = arrow_csv.ConvertOptions(column_types={name: wanted[name]}, include_columns=[name])
            try:
                column = arrow_csv.read_csv(path, parse_options=parse, convert_options=given).column(0)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            table = table.set_column(place, name, column)
    return table


def _as_text(
    path: Path, parse: arrow_csv.ParseOptions, table: pa.Table, wanted: Mapping[str, pa.DataType]
) -> tuple[list[str], list[Any]]:
    """Columns of text once more, with missing and empty told apart; whole numbers too, as they may be codes."""
    names = [
        field.name
        for field in table.schema
        if is_text(field.type) or (types.is_integer(field.type) and field.name not in wanted)
    ]
    if not names:
        return [], []
    given = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=names,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return names, arrow_csv.read_csv(path, parse_options=parse, convert_options=given).columns


def _with_nulls(texts: Any, as_numbers: Any) -> Any:
    return pc.if_else(pc.is_null(as_numbers), pa.scalar(None, pa.string()), texts)


def _head(path: Path) -> bytes:
    with pa.input_stream(path, compression="detect") as file:
        found: bytes = file.read(1 << 16)
    return found.removeprefix(b"\xef\xbb\xbf")


def _separator_of(head: bytes) -> str:
    line = head.splitlines()[0].decode("utf-8", "replace")
    return max(SEPARATORS, key=line.count)
