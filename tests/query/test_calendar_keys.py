"""Public keys from calendars and ranges in WHERE: exactly what plain DuckDB finds on every moment."""

import datetime as dt
import functools
from fractions import Fraction

import duckdb
import pytest

from dither.query.expressions import calendar_keys
from dither.query.kinds import Interval, Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind, narrowed_keys

US = dt.timedelta(microseconds=1)


def at(text):
    return dt.datetime.fromisoformat(text)


def _place(value, kind):
    if kind is Kind.DATE:
        return (value.date() - dt.date(1970, 1, 1)).days
    return (value - dt.datetime(1970, 1, 1)) // US  # noqa: DTZ001


def facts(name, kind, low, high, **more):
    return ColumnFacts(name=name, kind=kind, between=Interval(Fraction(low), Fraction(high)), **more)


def dated(name, kind, low, high):
    return facts(name, kind, _place(at(low), kind), _place(at(high), kind))


def schema(*columns, **more):
    listed = (ColumnFacts(name="u", kind=Kind.INTEGER), *columns)
    table = TableFacts(
        name="t", private=True, columns={c.name: c for c in listed}, unit_column="u", groups=3, rows=3, **more
    )
    return Schema({"t": table})


def keys_of(key, where, tables, source="t"):
    text = f"SELECT {key} AS k, COUNT(*) FROM {source} {f'WHERE {where}' if where else ''} GROUP BY k"
    question = bind(text, tables)
    values = question.aggregation.keys[0].values
    return None if values is None else tuple(map(_plain, values)), question


def _plain(value):
    """Dates as timestamps: DuckDB truncates the one to the other."""
    day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return dt.datetime.combine(value, dt.time()) if day else value


@functools.cache
def _rows(made):
    """A database with these rows, and the one whose date is missing."""
    db = duckdb.connect()
    db.execute(f"SET threads = 1; CREATE TABLE t AS FROM ({made}); CREATE TABLE missing AS FROM t LIMIT 1")
    column = db.execute("DESCRIBE t").fetchone()[0]
    db.execute(f"UPDATE missing SET {column} = NULL")
    return db


def truth(key, where, made):
    """What plain DuckDB has in the groups of these rows, and of the missing date where something is made of it."""
    found = set()
    for table in ("t", "missing"):
        sql = f"SELECT DISTINCT {key} AS k FROM {table} {f'WHERE {where}' if where else ''}"
        values = {_plain(row[0]) for row in _rows(made).execute(sql).fetchall()}
        found |= values if table == "t" else values - {None}
    return (*sorted(value for value in found if value is not None), *([None] if None in found else []))


def days(low, high):
    return f"SELECT CAST(d AS DATE) AS d FROM range(DATE '{low}', DATE '{high}' + 1, INTERVAL 1 DAY) AS r(d)"


def moments(low, high, step="1 MINUTE", more=()):
    """Every minute between, with both ends, and one microsecond around what questions compare with."""
    ends = ", ".join(f"(TIMESTAMP '{each}')" for each in (low, high, *more))
    return (
        f"SELECT s FROM (SELECT r.s FROM range(TIMESTAMP '{low}', TIMESTAMP '{high}', INTERVAL {step}) AS r(s) "
        f"UNION ALL SELECT e.s + to_microseconds(o) FROM (VALUES {ends}) AS e(s), (VALUES (-1), (0), (1)) AS f(o)) "
        f"WHERE s BETWEEN TIMESTAMP '{low}' AND TIMESTAMP '{high}'"
    )


# both edges inside of a year, leap years, centuries without one, ISO weeks that belong to the other year, one day
DAYS = [
    ("2023-12-30", "2025-01-02"),
    ("2024-02-28", "2024-03-01"),
    ("1899-12-25", "1904-03-02"),
    ("2020-12-31", "2021-01-03"),
    ("2024-06-14", "2024-06-15"),
    ("0001-01-01", "0002-02-01"),
    ("9996-02-27", "9998-12-31"),
]
OF_DAYS = [
    *("year(d)", "quarter(d)", "month(d)", "week(d)", "isodow(d)", "dayofyear(d)", "day(d)", "d"),
    *("extract(year FROM d)", "extract(quarter FROM d)", "date_trunc('year', d)", "date_trunc('quarter', d)"),
    *("date_trunc('month', d)", "date_trunc('week', d)", "date_trunc('day', d)", "year(d) * 100 + month(d)"),
    *("year(date_trunc('week', d))", "month(d) % 3", "isodow(d) >= 6"),
    "CASE WHEN isodow(d) >= 6 THEN 'weekend' ELSE 'week' END",
    "CASE WHEN month(d) < 3 THEN 'a' WHEN month(d) = 3 THEN 'b' END",
    "coalesce(nullif(quarter(d), 2), 0)",
    *("dayname(d)", "monthname(d)", "strftime(d, '%Y-%m')", "strftime(d, '%d.%m.%Y')", "strftime(d, '%j: %V/%u %%')"),
    *("strftime(d, '%a')", "strftime(d, 'in %b')", "strftime(d, '%A %d')", "strftime('%B', d)"),
]
# dates to compare with, among them both edges of the bounds of some, and their neighbours
CONDITIONS = [
    *(f"d {op} DATE '{day}'" for op in ("<", "<=", ">", ">=", "=", "<>") for day in ("2024-02-29", "2023-12-30")),
    *(f"DATE '{day}' {op} d" for op in ("<", "<=", ">", ">=") for day in ("2025-01-02", "2024-03-01")),
    "d >= DATE '2024-03-01' AND d < DATE '2024-06-01'",
    "d BETWEEN DATE '2024-02-10' AND DATE '2024-05-01'",
    "d NOT BETWEEN DATE '2024-02-10' AND DATE '2024-12-01'",
    "d IN (DATE '2024-01-31', DATE '2024-02-29')",
    "d < TIMESTAMP '2024-05-01 00:00:00.000001' AND d > TIMESTAMP '2024-04-29 23:59:59.999999'",
    "year(d) = 2024 AND month(d) <= 2",
    "isodow(d) IN (6, 7) AND NOT month(d) = 12",
    "date_trunc('month', d) = DATE '2024-02-01' OR d = DATE '2024-11-11'",
    "d IS NOT NULL AND (d < DATE '2024-01-03' OR d > DATE '2024-12-30')",
    "d + INTERVAL 1 MONTH > DATE '2024-03-29' AND d - INTERVAL 3 DAY < DATE '2024-03-29'",
]


@pytest.mark.parametrize(("low", "high"), DAYS)
def test_keys_of_a_date_are_those_of_every_day_between_its_bounds(low, high):
    tables = schema(dated("d", Kind.DATE, low, high))
    for key in OF_DAYS:
        found, question = keys_of(key, "", tables)
        assert found == truth(key, "", days(low, high)), key
        assert not question.aggregation.discover


def _differences(keys, conditions, low="2023-12-30", high="2025-01-02"):
    tables = schema(dated("d", Kind.DATE, low, high))
    for condition in conditions:
        for key in keys:
            wanted = truth(key, condition, days(low, high))
            if wanted and keys_of(key, condition, tables)[0] != wanted:
                yield key, condition


def test_conditions_on_a_date_narrow_its_keys_to_what_is_left():
    keys = ("d", "month(d)", "date_trunc('month', d)", "week(d)", "year(d)", "isodow(d)")
    assert list(_differences(keys, CONDITIONS)) == []


HOURS = ("2023-12-31 22:58:30.5", "2024-01-02 01:02:03")
OF_MOMENTS = [
    *("hour(s)", "minute(s)", "second(s) // 30", "CAST(s AS DATE)", "date_trunc('hour', s)", "date_trunc('minute', s)"),
    *("date_trunc('day', s)", "date_trunc('week', s)", "year(s)", "month(s)", "isodow(s)", "week(s)", "dayofyear(s)"),
    *("strftime(s, '%H:%M')", "strftime(s, '%Y-%m-%d %H')", "strftime(s, '%S') > '29'"),
    "year(s + INTERVAL 61 MINUTE)",
    "CAST(s - INTERVAL 6 HOUR AS DATE)",
    "CASE WHEN hour(s) BETWEEN 6 AND 17 THEN 'day' ELSE 'night' END",
    "CASE WHEN s < TIMESTAMP '2024-01-01 12:00:00.000001' THEN hour(s) ELSE -1 END",
]
AT = [
    "s < TIMESTAMP '2024-01-01 12:00:00'",
    "s <= TIMESTAMP '2024-01-01 12:00:00'",
    "s > TIMESTAMP '2024-01-01 11:59:59.999999'",
    "s >= DATE '2024-01-01' AND s < DATE '2024-01-02'",
    "s = TIMESTAMP '2024-01-01 12:00:00'",
    "s BETWEEN TIMESTAMP '2024-01-01 11:59:59.999999' AND TIMESTAMP '2024-01-01 12:00:00'",
    "hour(s) >= 20",
    "CAST(s AS DATE) = DATE '2024-01-01' AND minute(s) < 3",
    "s < TIMESTAMP '2024-01-01 00:00:00.000001' AND s > TIMESTAMP '2023-12-31 23:59:59.999999'",
]


@pytest.mark.parametrize("condition", ["", *AT])
def test_keys_of_a_timestamp_are_those_of_every_moment_between_its_bounds(condition):
    tables = schema(dated("s", Kind.TIMESTAMP, *HOURS))
    noon = ("2024-01-01 12:00:00", "2024-01-01 00:00:00", "2024-01-02 00:00:00")
    made = moments(*HOURS, step="10 SECOND", more=noon)
    for key in OF_MOMENTS:
        assert keys_of(key, condition, tables)[0] == truth(key, condition, made), key


def test_long_spans_are_listed_by_their_years_and_not_by_their_hours():
    tables = schema(dated("s", Kind.TIMESTAMP, "0001-01-01 00:00:00", "9998-12-31 23:59:59.999999"))
    assert keys_of("year(s)", "", tables)[0] == tuple(range(1, 9999))
    for key, size in (("month(s)", 12), ("hour(s)", 24), ("minute(s)", 60), ("dayofyear(s)", 366), ("week(s)", 53)):
        assert len(keys_of(key, "", tables)[0]) == size
    # more than there may be public groups of one key: discovered as before
    for key in ("date_trunc('month', s)", "CAST(s AS DATE)", "s", "date_trunc('minute', s)"):
        values, question = keys_of(key, "", tables)
        assert values is None
        assert question.aggregation.discover
        assert question.former is None
    # and public again where a range leaves few enough
    where = "s >= TIMESTAMP '2024-02-29 00:00:00' AND s < TIMESTAMP '2024-03-01 00:00:00'"
    assert len(keys_of("date_trunc('minute', s)", where, tables)[0]) == 1440


def test_ten_thousand_days_are_public_and_one_more_is_not():
    first = dt.date(1990, 1, 1)
    for extra, listed in ((0, True), (1, False)):
        last = first + dt.timedelta(days=9_999 + extra)
        found, _ = keys_of("d", "", schema(dated("d", Kind.DATE, first.isoformat(), last.isoformat())))
        assert (found is not None) is listed


def test_years_that_python_or_engines_may_not_write_are_left_as_before():
    # the policy's own end of time, which databases use for "never"
    tables = schema(dated("d", Kind.DATE, "2020-01-01", "9999-12-31"))
    values, question = keys_of("year(d)", "", tables)
    assert values is None
    assert question.aggregation.discover
    assert keys_of("month(d)", "", tables)[0] == tuple(range(1, 13))


def test_where_nothing_is_left_all_values_stay():
    tables = schema(dated("d", Kind.DATE, "2024-01-01", "2024-12-31"))
    assert keys_of("month(d)", "d > DATE '2030-01-01'", tables)[0] == tuple(range(1, 13))
    assert len(keys_of("d", "d > DATE '2030-01-01'", tables)[0] or ()) in (0, 366)


def test_only_keys_that_are_all_public_are_read_anew():
    tables = schema(dated("d", Kind.DATE, "2024-01-01", "2024-03-31"), ColumnFacts(name="c", kind=Kind.TEXT))
    question = bind("SELECT month(d), c, COUNT(*) FROM t GROUP BY 1, 2", tables)
    assert question.aggregation.discover
    assert question.former is None
    months = next(key for key in question.aggregation.keys if key.values is not None)
    assert months.values == tuple(range(1, 13))
    stated = "WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=LAPLACE_THRESHOLD)"
    assert bind(f"SELECT {stated} year(d), COUNT(*) FROM t GROUP BY 1", tables).aggregation.discover
    public = "WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS)"
    assert not bind(f"SELECT {public} year(d), COUNT(*) FROM t GROUP BY 1", tables).aggregation.discover


def test_more_than_a_million_groups_are_discovered_as_before():
    tables = schema(
        dated("d", Kind.DATE, "2000-01-01", "2010-01-01"), dated("e", Kind.DATE, "2000-01-01", "2010-01-01")
    )
    question = bind("SELECT d, e, COUNT(*) FROM t GROUP BY 1, 2", tables)
    assert question.aggregation.discover
    assert question.former is None


# ---------------------------------------------------------------------------------------------- relations


def test_keys_stay_exact_through_subqueries_and_joins():
    tables = schema(dated("d", Kind.DATE, "2023-12-30", "2025-01-02"))
    inner = "(SELECT d, month(d) AS m FROM t WHERE d >= DATE '2024-03-01')"
    assert keys_of("m", "d < DATE '2024-06-01'", tables, inner)[0] == (3, 4, 5)
    assert keys_of("m", "m < 5", tables, inner)[0] == (1, 3, 4)
    joined = "t LEFT JOIN (SELECT u, d AS e FROM t WHERE d < DATE '2024-01-02') r ON t.u = r.u"
    # without a match the other date is missing, which is a group of its own
    assert keys_of("year(e)", "", tables, joined)[0] == (2023, 2024, None)
    both = "(SELECT d FROM t WHERE d < DATE '2024-02-02' UNION ALL SELECT d FROM t WHERE d > DATE '2025-01-01')"
    assert len(keys_of("d", "", tables, both)[0]) == 370
    assert keys_of("month(d)", "d < DATE '2024-03-01'", tables, both)[0] == (1, 2, 12)
    both = "(SELECT d FROM t WHERE d < DATE '2024-01-02' UNION ALL SELECT CAST(NULL AS DATE) FROM t)"
    assert keys_of("year(d)", "", tables, both)[0] == (2023, 2024, None)


def test_a_date_of_another_row_says_nothing_of_this_one():
    tables = schema(dated("d", Kind.DATE, "2024-01-01", "2024-12-31"))
    latest = "(SELECT u, d, MAX(d) OVER (PARTITION BY u) AS e FROM t)"
    assert keys_of("month(d)", "e < DATE '2024-03-01'", tables, latest)[0] == tuple(range(1, 13))
    assert keys_of("month(e)", "e < DATE '2024-03-01'", tables, latest)[0] == (1, 2)
    assert keys_of("d < e", "", tables, latest)[0] == (False, True)
    before = "(SELECT u, d, lag(d) OVER (PARTITION BY u ORDER BY d) AS e FROM t)"
    assert keys_of("date_trunc('quarter', e)", "month(d) > 11", tables, before)[0] == (
        *(at(f"2024-{month:02}-01") for month in (1, 4, 7, 10)),
        None,
    )


# ---------------------------------------------------------------------------------------------- numbers

NUMBERS = [
    *(f"n {op} {n}" for op in ("<", "<=", ">", ">=", "=") for n in (-3, 0, 4, 4.5, 10)),
    *(f"{n} {op} n" for op in ("<", "<=", ">", ">=") for n in (-3, 9.5)),
    "n BETWEEN -1 AND 7",
    "n IN (2, 3, 5)",
    "n > 2 AND n >= 2 AND n < 8 AND n <= 8",
    "n >= 2 AND n > 2 AND n <= 8 AND n < 8",
]


def test_conditions_on_a_whole_number_narrow_its_keys():
    tables = schema(facts("n", Kind.INTEGER, -3, 10))
    made = "SELECT CAST(n AS BIGINT) AS n FROM range(-3, 11) AS r(n)"
    for condition in NUMBERS:
        wanted = truth("n", condition, made)
        found = keys_of("n", condition, tables)[0]
        if condition == "n IN (2, 3, 5)":
            # a list is read as the range around it
            assert set(wanted) <= set(found) == {2, 3, 4, 5}
        else:
            assert found == (wanted or tuple(range(-3, 11))), condition


def test_multiples_of_a_step_are_public_and_narrowed():
    tables = schema(facts("x", Kind.DOUBLE, 0, 1, step=Fraction(1, 10)))
    tenths = tuple(n / 10 for n in range(11))
    assert keys_of("x", "", tables)[0] == tenths
    assert keys_of("x", "x > 0.3", tables)[0] == tenths[4:]
    assert keys_of("x", "x >= 0.3 AND x < 0.9", tables)[0] == tenths[3:9]
    assert keys_of("x", "x >= 0.1 AND x <= 0.7", tables)[0] == tenths[1:8]
    assert keys_of("x * 3", "", tables)[0] == tuple(n / 10 * 3 for n in range(11))
    wide = schema(facts("n", Kind.INTEGER, 0, 10**6))
    assert keys_of("n", "", wide)[0] is None
    assert keys_of("n", "n >= 500 AND n < 510", wide)[0] == tuple(range(500, 510))
    assert keys_of("floor(n / 100) * 100", "n >= 500 AND n < 710", wide)[0] == (500, 600, 700)


def test_what_the_owner_lists_is_not_narrowed():
    listed = schema(ColumnFacts(name="n", kind=Kind.INTEGER, keys=(1, 2, 4)), ColumnFacts(name="b", kind=Kind.BOOLEAN))
    assert keys_of("n", "n > 1", listed)[0] == (1, 2, 4)
    assert keys_of("b", "b", listed)[0] == (False, True)


def test_conditions_on_the_unit_say_nothing():
    table = schema(facts("n", Kind.INTEGER, 0, 5)).tables["t"]
    columns = {**table.columns, "u": facts("u", Kind.INTEGER, 0, 5)}
    tables = Schema({"t": TableFacts(name="t", private=True, columns=columns, unit_column="u", groups=3, rows=3)})
    assert keys_of("u * 2", "u < 3", tables)[0] == keys_of("u * 2", "", tables)[0]


# ---------------------------------------------------------------------------------------------- mutants


def _open_ends(monkeypatch):
    known = narrowed_keys._Ends
    monkeypatch.setattr(
        narrowed_keys, "_Ends", lambda **stated: known(**{**stated, "low_open": False, "high_open": False})
    )


def _closed_ends(monkeypatch):
    known = narrowed_keys._Ends
    monkeypatch.setattr(
        narrowed_keys,
        "_Ends",
        lambda **s: known(**{**s, "low_open": s.get("low") is not None, "high_open": s.get("high") is not None}),
    )


def _unmirrored(monkeypatch):
    monkeypatch.setattr(narrowed_keys, "_MIRRORED", {})


def test_an_end_that_is_off_by_one_is_noticed_among_numbers(monkeypatch):
    for mutant in (_open_ends, _closed_ends, _unmirrored):
        with monkeypatch.context() as patched:
            mutant(patched)
            with pytest.raises(AssertionError):
                test_conditions_on_a_whole_number_narrow_its_keys()


def _shortened_too_far(name, change):
    """A mutant that takes one comparison for another where the calendar is cut."""

    def mutant(patched):
        known = calendar_keys._shortened

        def other(calendar, conditions):
            swapped = [
                type(each)(change, each.arguments, each.kind) if getattr(each, "function", "") == name else each
                for each in conditions
            ]
            return known(calendar, swapped)

        patched.setattr(calendar_keys, "_shortened", other)

    mutant.__name__ = f"{name}_as_{change}"
    return mutant


def _late_midnights(patched):
    patched.setattr(calendar_keys, "_next_day", lambda when: when.replace(hour=0, minute=0, second=0, microsecond=0)
                    + dt.timedelta(days=1))  # fmt: skip


def _unmirrored_dates(patched):
    patched.setattr(calendar_keys, "_MIRRORED", {name: name for name in calendar_keys._MIRRORED})


def _units_from_the_second(patched):
    known = calendar_keys._starts

    def starts(unit, first):
        found = known(unit, first)
        next(found)
        return found

    patched.setattr(calendar_keys, "_starts", starts)


def _without_the_last(patched):
    known = calendar_keys.calendar_of

    def shorter(bounds, kind):
        return known(Interval(bounds.low, bounds.high - 1), kind)

    patched.setattr("dither.query.sql.scalars.calendar_of", shorter)


def _without_the_first(patched):
    known = calendar_keys.calendar_of
    patched.setattr(
        "dither.query.sql.scalars.calendar_of",
        lambda bounds, kind: known(Interval(bounds.low + 1, bounds.high), kind),
    )


def _blind_to_conditions(patched):
    patched.setattr(calendar_keys, "where", lambda facts, _: facts)
    patched.setattr(narrowed_keys, "where", lambda facts, _: facts)


MUTANTS = [
    _shortened_too_far("less_equal", "less"),
    _shortened_too_far("greater_equal", "greater"),
    _shortened_too_far("not_equal", "equal"),
    _late_midnights,
    _unmirrored_dates,
    _units_from_the_second,
    _without_the_last,
    _without_the_first,
    _blind_to_conditions,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_an_edge_that_is_off_by_one_is_noticed_among_dates(mutant, monkeypatch):
    mutant(monkeypatch)
    assert any(_differences(("d", "month(d)"), [*CONDITIONS, ""]))
