"""The accepted corpus as plain SQL: the analyst's text without dither's words, on tables in which nothing is cut."""

import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa

from dither.query.kinds import Interval
from dither.query.schema import Schema
from support.schemas import SHOP as SQL_SHOP

SQL = Path(__file__).resolve().parents[2] / "sql"
TYPES = {"boolean": "BOOLEAN", "integer": "BIGINT", "double": "DOUBLE", "text": "VARCHAR", "date": "DATE"}
# What the owner left to a search: bounds that hold.
FOUND = {("orders", "rating"): Interval(Fraction(1), Fraction(5))}


SHOP = Schema(
    {
        name: facts if facts.unit_column is None else replace(facts, groups=200, rows=200)
        for name, facts in SQL_SHOP.tables.items()
    }
)


def accepted():
    """(name, text) of every question of the corpus."""
    found = []
    for path in sorted((SQL / "accept").glob("*.sql")):
        for number, part in enumerate(path.read_text(encoding="utf-8").split("\n----\n")):
            found.append((f"{path.stem}-{number}", part.strip("\n").partition("\n")[2]))
    return found


def _row(random, table, number, unit):
    """Values by column; cities come unequally often, so that orders and modes have no ties."""
    cities = ("Bern",) * 12 + ("Graz",) * 7 + ("Lyon",) * 4 + ("Oslo",) * 2
    return {
        "order_id": number,
        "id": number,
        "city": random.choice(cities),
        "product": random.choice(("ax", "b", "x'y", " x'y ", "Toy", "x", "a1", None)),
        "day": date(2023, 12, 20) + timedelta(days=random.randint(0, 60)),
        "ts": datetime(2024, 1, 1) + timedelta(seconds=random.randint(0, 4_000_000)),  # noqa: DTZ001
        "amount": random.choice((random.randint(0, 10_000) / 100, 100.0, None)),
        "quantity": random.choice((random.randint(0, 20), None)),
        "coupon": random.choice((True, False, False, None)),
        "note": "x",
        "rating": random.choice((random.randint(4, 20) / 4, None)),
        "score": random.randint(-30, 60),
        "age_group": random.choice(("18-29", "30-49", "30-49", "50+", "50+", "50+")),
        "country": random.choice(("CH", "AT", None)),
        "birth": date(1980, 1, 1),
        "page": random.choice(("home", "shop", "shop", "other")),
        "seconds": float(random.randint(0, 60)),
        "since": date(2020, 1, 1),
        "region": ("north", "south")[unit % 2 if unit is not None else 0],
        "rooms": number % 10,
        "Mark": random.randint(1, 6),
        "Pupil": unit,
        "user_id": str(unit) if table == "members" else unit,
        "visitor": unit,
    }


def rows():
    """The rows of every table, always the same ones."""
    random = Random(15)
    made = {}
    for name, facts in SHOP.tables.items():
        if not facts.private:
            continue
        most = {"users": 1, "homes": 1, "clicks": 2}.get(name, 12)
        units = [unit for unit in (*range(40), None) for _ in range(random.randint(0 if most > 2 else 1, most))]
        made[name] = [_row(random, name, number, unit) for number, unit in enumerate(units)]
    products = ("ax", "b", "x'y", "Toy", "x", "unsold")
    made["products"] = [
        {"product": p, "category": random.choice(("book", "toy")), "price": float(random.randint(0, 50))}
        for p in products
    ]
    made["holidays"] = [
        {"day": date(2023, 12, 25), "name": "Noel"},
        {"day": date(2024, 1, 1), "name": "New Year"},
        {"day": date(2024, 1, 6), "name": "Kings"},
    ]
    return made


def write(connection, tables, *, nobody):
    """All tables; without rows that belong to nobody, if so."""
    for name, facts in SHOP.tables.items():
        kinds = {column: TYPES.get(c.kind.value, "TIMESTAMP") for column, c in facts.columns.items()}
        kept = [
            row for row in tables[name] if nobody or facts.unit_column is None or row[facts.unit_column] is not None
        ]
        columns = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        connection.register("made", pa.table({c: pa.array([row[c] for row in kept]) for c in kinds}))
        connection.execute(f'INSERT INTO "{name}" SELECT * FROM made')
        connection.unregister("made")


def plain_database(tables):
    """A DuckDB that reads timestamps as dither does: in UTC."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    write(connection, tables, nobody=False)
    return connection


_CLAMP = r"CASE WHEN \2 IS NOT NULL THEN least(greatest(\2, \3), \4) END"
_OF_ORDERS = "SELECT user_id, {} AS part FROM orders GROUP BY user_id"
_SUMMED = r"sum(CASE WHEN \1 IS NOT NULL THEN least(greatest(\1, \2), \3) END)"
_CLAMPED_PART = r"CASE WHEN part IS NOT NULL THEN least(greatest(part, \2), \3) END"
# dither's words, and what stands for them where noise is nothing and nothing is cut
WORDS = (
    (r"WITH DIFFERENTIAL_PRIVACY( OPTIONS ?\([^)]*\))?", ""),
    (r"^EXPLAIN PRIVACY ", ""),
    (r", weight => \d+", ""),
    (r"DP_INTERVAL_(?:LOW|HIGH)\((\w+)\)", r"\1"),
    (r"DP_INTERVAL_(?:LOW|HIGH)\((SUM\(amount\))\)", r"\1"),
    (r"(\w+)\((\w+), contribution_bounds_per_row => \(([^,]+), ([^)]+)\)\)", rf"\1({_CLAMP})"),
    (r"(AVG)\((\w+), contribution_bounds_per_group => \(([^,]+), ([^)]+)\)\)", rf"\1({_CLAMP})"),
    (r"SUM\((CASE product .* END), contribution_bounds_per_row := \(0, 5\)\)", r"SUM(least(greatest(\1, 0), 5))"),
    (r"AS both\b", 'AS "both"'),  # a reserved word of DuckDB's
    (r"approx_count_distinct\((.*?\))\)", r"COUNT(DISTINCT \1)"),
    (r"TO_TIMESTAMP\('(\d{4}-\d\d-\d\d [\d:.]+)', '[^']*'\)", r"TIMESTAMP '\1'"),
    (r"TO_DATE\('(\d{4}-\d\d-\d\d)', '[^']*'\)", r"DATE '\1'"),
    (r"to_date\('20240131', 'YYYYMMDD'\)", "DATE '2024-01-31'"),
    (r"to_date\('2025', 'YYYY'\)", "DATE '2025-01-01'"),
    (r"to_timestamp\('31/01/2024 at 10', '[^']*'\)", "TIMESTAMP '2024-01-31 10:00:00'"),
    (r"to_timestamp\('2024-01-31T10:00:00.123', '[^']*'\)", "TIMESTAMP '2024-01-31 10:00:00.123'"),
    (r"""ANY\('\{a, "b \\" c"\}'::text\[\]\)""", "ANY(['a', 'b \" c'])"),
    (r"ANY\('\{1,2\}'\)", "ANY([1, 2])"),
    (r"ANY\('\{1.5,-2e1,3\}'\)", "ANY([1.5, -20, 3])"),
    (r"ANY\('\{t,false\}'\)", "ANY([TRUE, FALSE])"),
    (r"""ANY\('\{"2024-01-31T00:00:00\+02:00"\}'::timestamptz\[\]\)""", "ANY([TIMESTAMP '2024-01-30 22:00:00'])"),
    (r"ANY\('\{2024-01-31\}'\)", "ANY([DATE '2024-01-31'])"),
    (r"CAST\('2024-01-31T00:00:00.0000000-0530' AS TIMESTAMP WITH TIME ZONE\)", "TIMESTAMP '2024-01-31 05:30:00'"),
    # a date is the midnight that begins it, also where a text has a time
    (r"day = '2024-01-31 12:00:00'", "day = TIMESTAMP '2024-01-31 12:00:00'"),
    (r"(SUM|AVG)\(coupon\)", r"\1(CAST(coupon AS INTEGER))"),
    # what one unit adds to the only group, clamped
    (
        r"SELECT SUM\((\w+), contribution_bounds_per_group => \((-?\d+), (\d+)\)\) FROM orders",
        rf"SELECT sum({_CLAMPED_PART}) FROM ({_OF_ORDERS.format(_SUMMED)})",
    ),
    (
        r"SELECT COUNT\(\*, contribution_bounds_per_group => \(0, 5\)\) FROM orders",
        f"SELECT sum(least(part, 5)) FROM ({_OF_ORDERS.format('count(*)')})",
    ),
    # the mean of each unit's own mean
    (
        r"AVG_PER_UNIT\(amount\) AS b FROM orders",
        f"(SELECT avg(part) FROM ({_OF_ORDERS.format('avg(amount)')})) AS b FROM orders",
    ),
    (
        r"AVG_PER_UNIT\(quantity\) FILTER \(WHERE coupon\), 1\) AS m FROM orders",
        (
            "avg(part), 1) AS m "
            "FROM (SELECT city, avg(quantity) FILTER (WHERE coupon) AS part FROM orders GROUP BY city, user_id)"
        ),
    ),
    # how many units have so many rows
    (
        r"(?i)(?:EXPLAIN PRIVACY )?PROFILE (.*?);?$",
        r"SELECT f AS rows_from, t AS rows_to, (SELECT count(*) FROM (SELECT count(*) AS n FROM \1 GROUP BY user_id) "
        r"WHERE n BETWEEN f AND coalesce(t, n)) AS units FROM (VALUES (1, 1), "
        + "".join(f"({2**power + 1}, {2 ** (power + 1)}), " for power in range(14))
        + "(16385, NULL)) AS ends(f, t)",
    ),
    # a combination counts once for each unit
    (r"SELECT DISTINCT city, product FROM orders\)", "SELECT DISTINCT user_id, city, product FROM orders)"),
)


def uncut(sql):
    """The question without options that cut what one unit adds."""
    return re.sub(r",? ?max_(?:groups|rows)_contributed=\d+", "", sql)


def plain_text(sql):
    """The question in DuckDB's own words."""
    for pattern, words in WORDS:
        sql = re.sub(pattern, words, sql)
    return sql


# one row more or less as a share of the smallest group of which a quantile is asked
ONE_ROW = 1 / 9
_FRACTIONS = re.compile(r"(QUANTILE_CONT\(\w+, |PERCENTILE_CONT\()(?:ARRAY)?(\[[^\]]*\]|[\d.]+)")


def moved_quantiles(sql, by):
    """The question for quantiles of other fractions, so much higher."""

    def moved(found):
        listed = [min(max(float(each) + by, 0.0), 1.0) for each in found[2].strip("[]").split(",")]
        return found[1] + (str(listed) if found[2].startswith("[") else str(listed[0]))

    return _FRACTIONS.sub(moved, re.sub(r"MEDIAN\((\w+)\)", r"QUANTILE_CONT(\1, 0.5)", sql))
