"""Every function of the registry on the values that break engines: NULL, NaN, infinities, extremes, ends of time."""

import datetime as dt
import re

import duckdb
import numpy as np
import pytest

from dither import Curator
from dither.query.expressions.functions import FUNCTIONS

MOST, LEAST = 2**63 - 1, -(2**63)
INTEGERS = [None, 0, 1, -1, 7, MOST, LEAST, 2**53 + 1]
DOUBLES = [None, "nan", "inf", "-inf", 0.0, -0.0, 1.7976931348623157e308, 5e-324, -1.5, 9.3e18]
TEXTS = [
    None,
    "",
    " ",
    "a",
    "é" * 3000,
    "👩‍👩‍👧",
    "1e400",
    "nan",
    "9999-12-31",
    "'; DROP TABLE x; --",
    "%_\\",
    "ẞß\u0130",
    "\t\n",
]
DATES = [None, "0001-01-01", "9999-12-31", "infinity", "-infinity", "5881580-07-10", "5877642-06-25 (BC)", "1970-01-01"]
MOMENTS = [
    None,
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "infinity",
    "-infinity",
    "294247-01-10 04:00:54",
    "290308-12-22 (BC) 00:00:00",
    "1969-12-31 23:59:59.999999",
]
BOOLEANS = [None, True, False]
KINDS = {
    "p": ("BOOLEAN", BOOLEANS),
    "q": ("BOOLEAN", BOOLEANS),
    "i": ("BIGINT", INTEGERS),
    "j": ("BIGINT", INTEGERS),
    "d": ("DOUBLE", DOUBLES),
    "e": ("DOUBLE", DOUBLES),
    "t": ("VARCHAR", TEXTS),
    "u": ("VARCHAR", TEXTS),
    "a": ("DATE", DATES),
    "b": ("DATE", DATES),
    "s": ("TIMESTAMP", MOMENTS),
    "r": ("TIMESTAMP", MOMENTS),
}
TYPES = {
    "BOOLEAN": "boolean",
    "BIGINT": "integer",
    "DOUBLE": "double",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
BOTH = ("add", "subtract", "multiply")
OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "distinct_from": "IS DISTINCT FROM",
}
NUMBERS = [("i", "j"), ("d", "e"), ("i", "d")]
PAIRS = [*NUMBERS, ("t", "u"), ("a", "b"), ("s", "r"), ("p", "q"), ("a", "s")]
PARTS = ["year", "quarter", "month", "day", "isodow", "dayofyear", "week"]
UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
CALLS = {
    **{name: [f"{x} {OPERATORS[name]} {y}" for x, y in NUMBERS] for name in BOTH},
    **{name: [f"{x} {sign} {y}" for x, y in PAIRS] for name, sign in OPERATORS.items() if name not in BOTH},
    "negate": ["-i", "-d"],
    **{name: [f"{name}(i)", f"{name}(d)"] for name in ("abs", "floor", "ceil", "trunc", "sign", "sqrt", "exp", "ln")},
    **{name: [f"{name}(i)", f"{name}(d)"] for name in ("log10", "log2")},
    "divide": ["i / j", "d / e", "i / d"],
    "integer_divide": ["i // j"],
    "modulo": ["i % j"],
    "power": ["i ^ j", "d ^ e", "power(d, i)"],
    "round": ["round(i)", "round(d)", "round(d, 15)", "round(i, -15)", "round(d, -3)"],
    **{name: [f"{name}({x}, {y})" for x, y in PAIRS] for name in ("greatest", "least", "nullif")},
    "is_nan": ["isnan(d)"],
    "in": ["i IN (1, 2)", "d IN (0.5, 0)", "t IN ('a', '')", "a IN (DATE '1970-01-01')"],
    "is_null": [f"{x} IS NULL" for x in KINDS],
    "is_not_null": [f"{x} IS NOT NULL" for x in KINDS],
    "and": ["p AND q"],
    "or": ["p OR q"],
    "not": ["NOT p"],
    "case": ["CASE WHEN p THEN i ELSE j END", "CASE WHEN q THEN t END", "CASE WHEN p THEN s ELSE r END"],
    "coalesce": [f"coalesce({x}, {y})" for x, y in PAIRS],
    **{name: [f"{name}(t)"] for name in ("lower", "upper", "trim", "ltrim", "rtrim", "length")},
    "substring": ["substring(t, 1, 2)", "substring(t, 2147483647, 2147483647)", "substring(t, 3)"],
    "left": ["left(t, 1)", "left(t, 2147483647)"],
    "right": ["right(t, 1)", "right(t, 2147483647)"],
    "concat": ["t || u", "t || 'x'"],
    "replace": ["replace(t, '', 'x')", "replace(t, 'a', 'bb')"],
    **{name: [f"{name}(t, u)"] for name in ("starts_with", "ends_with", "contains")},
    "like": ["t LIKE '%'", "t LIKE '\\%_'", "t LIKE ''"],
    "ilike": ["t ILIKE '%SS%'"],
    "position": ["position('a' IN t)", "position('' IN t)"],
    **{
        name: [f"{part}(a)", f"{part}(s)"]
        for name, part in zip(
            ["year", "quarter", "month", "day", "day_of_week", "day_of_year", "week"], PARTS, strict=True
        )
    },
    **{name: [f"{name}(s)"] for name in ("hour", "minute", "second")},
    "date_trunc": [f"date_trunc('{unit}', {x})" for unit in UNITS[:-1] for x in "as"],
    "date_add": [
        f"{x} {sign} INTERVAL {n} {unit}"
        for x in "as"
        for sign in "+-"
        for n, unit in [(1, "SECOND"), (1, "DAY"), (9999, "YEAR"), (100000, "MONTH"), (1000000, "WEEK")]
    ],
    "date_diff": [f"date_diff('{unit}', {x})" for unit in UNITS for x in ("a, b", "s, r")],
    "to_boolean": ["CAST(i AS BOOLEAN)", "CAST(t AS BOOLEAN)"],
    "to_integer": ["CAST(p AS INTEGER)", "CAST(d AS BIGINT)", "CAST(t AS INTEGER)"],
    "to_double": ["CAST(i AS DOUBLE)", "CAST(t AS DOUBLE)", "CAST(d AS DECIMAL(18, 3))"],
    "to_text": [f"CAST({x} AS VARCHAR)" for x in "pidtas"],
    "to_date": ["CAST(s AS DATE)", "CAST(t AS DATE)"],
    "to_timestamp": ["CAST(a AS TIMESTAMP)", "CAST(t AS TIMESTAMP)"],
}
# COUNT leaves out NaN as it leaves out NULL.
NAN = {call for calls in CALLS.values() for call in calls if re.search(r"\b[de]\b|AS DOUBLE|AS DECIMAL", call)}
ROWS = 240
COPIES = 4


def test_c13_every_function_is_attacked():
    """C13: a function that is added to the registry must be added here."""
    assert set(CALLS) == set(FUNCTIONS)
    assert all(CALLS.values())


@pytest.fixture(scope="module")
def curator(tmp_path_factory):
    directory = tmp_path_factory.mktemp("functions")
    maker = np.random.default_rng(13)
    with duckdb.connect(directory / "nasty.duckdb") as database:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
        database.execute(f"CREATE TABLE once (n BIGINT, {columns})")
        slots = ", ".join(f"CAST(? AS {kind})" for kind, _ in KINDS.values())
        rows = [[n, *(values[maker.integers(len(values))] for _, values in KINDS.values())] for n in range(ROWS)]
        database.executemany(f"INSERT INTO once VALUES (?, {slots})", rows)
        database.execute(
            f"CREATE TABLE nasty AS SELECT n * {COPIES} + c AS person, once.* FROM once, range({COPIES}) AS x(c)"
        )
    declared = "\n".join(f'{name} = {{ type = "{TYPES[kind]}" }}' for name, (kind, _) in KINDS.items())
    (directory / "dither.toml").write_text(
        f"""
        [source]
        database = "nasty.duckdb"
        version = "1"
        ledger_head = "nasty.head"
        [budget]
        epsilon_budget = 900000
        delta_budget = 0.1
        delta_per_query = 1e-4
        [tables.nasty]
        private = true
        privacy_unit_column = "person"
        [tables.nasty.columns]
        person = {{ type = "integer" }}
        {declared}
        """
    )
    with Curator.open(directory / "dither.toml") as opened:
        yield opened


@pytest.mark.parametrize("name", CALLS)
def test_c13_no_input_makes_a_function_fail(curator, name):
    """C10, C13: an answer for every call; the parts with and without a value add up to everybody."""
    counts = [
        f"COUNT_IF(({call}) IS NULL) AS missing_{n}, COUNT(({call})) AS known_{n}" for n, call in enumerate(CALLS[name])
    ]
    row = curator.sql(f"SELECT COUNT(*) AS n, {', '.join(counts)} FROM nasty", epsilon=3000).to_pylist()[0]
    assert row["n"] == ROWS * COPIES
    for n, call in enumerate(CALLS[name]):
        assert row[f"missing_{n}"] + row[f"known_{n}"] <= row["n"], call
        assert row[f"missing_{n}"] + row[f"known_{n}"] == row["n"] or call in NAN, call


@pytest.mark.parametrize("name", CALLS)
def test_c13_every_value_can_be_a_key_and_leave(curator, name):
    """C13: as a key of an answer, every value gets through Arrow, Python and text; no date is out of reach."""
    call = CALLS[name][-1]
    answer = curator.sql(f"SELECT {call} AS k, COUNT(*) AS n FROM nasty GROUP BY 1", epsilon=3000)
    rows = answer.to_pylist()
    assert 0 < len(rows) <= max(ROWS, 366)
    assert sum(row["n"] for row in rows) <= ROWS * COPIES
    keys = [row["k"] for row in rows]
    assert len(set(map(repr, keys))) == len(keys)
    for key in keys:
        assert key is None or isinstance(key, bool | int | float | str | dt.date)
        if isinstance(key, int) and not isinstance(key, bool):
            assert LEAST <= key <= MOST
    assert str(answer)
    assert answer._repr_html_()
    assert len(answer.to_pandas()) == len(rows)
