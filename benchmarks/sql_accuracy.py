"""How far private answers are off, beside other libraries: ε = 1 and δ = 1e-7 for one question alone, a million rows.

Run with ``python benchmarks/sql.py --part accuracy --rows 1000000``. Each line has a ledger of its own. Errors
are relative, against the truth of clamped values: the median over groups shown, and of that the median over repeats.
At user level a unit counts in so many groups with so many rows. Other libraries don't bound what a unit adds by
themselves: they get rows of which each unit has no more, drawn at random, and do what their documentation shows for
one release: a Laplace sum and count of half of ε each, a count that is shown if it exceeds a threshold.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dither.curator import Curator
from dither.policy import Policy
from peers import PeerError, work
from sql_data import AGE_GROUPS, CITIES, make

EPSILON, DELTA = 1, 1e-7
ROWS, USERS = 1_000_000, 200_000
PEERS = ("opendp", "python-dp", "diffprivlib")
Values = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One question: what is asked, of which key, for which units; ``kind`` is what peers are asked for."""

    name: str
    sql: str
    key: str
    kind: str
    public: bool = True
    groups: int | None = None
    rows: int | None = None

    @property
    def by_row(self) -> bool:
        return self.groups is None


BY_CITY = "SELECT city AS k, SUM(amount) AS a, AVG(amount) AS b FROM orders GROUP BY city"
BY_PRODUCT = "SELECT product AS k, COUNT(*) AS a FROM orders GROUP BY product"
BY_AGE = "SELECT age_group AS k, SUM(amount) AS a FROM orders JOIN users USING (user_id) GROUP BY age_group"
LINES = (
    Line(name="row: SUM, AVG by city", sql=BY_CITY, key="city", kind="mean"),
    Line(name="row: COUNT by discovered product", sql=BY_PRODUCT, key="product", kind="discovered", public=False),
    Line(
        name="row: COUNT(*), SUM, AVG by city",
        sql=BY_CITY.replace(" FROM", ", COUNT(*) AS c FROM"),
        key="city",
        kind="three",
    ),
    Line(name="row: STDDEV", sql="SELECT '' AS k, STDDEV(amount) AS a FROM orders", key="''", kind="deviation"),
    Line(
        name="row: COUNT by day", sql="SELECT day AS k, COUNT(*) AS a FROM orders GROUP BY day", key="day", kind="count"
    ),
    Line(name="user, 4 × 4: SUM, AVG by city", sql=BY_CITY, key="city", kind="mean", groups=4, rows=4),
    Line(
        name="user, 4 × 1: COUNT by product",
        sql=BY_PRODUCT,
        key="product",
        kind="discovered",
        public=False,
        groups=4,
        rows=1,
    ),
    Line(name="user, 1 × 16: SUM by age group", sql=BY_AGE, key="age_group", kind="sum", groups=1, rows=16),
)

_POLICY = """
[source]
database = "{database}"
name = "shop"
ledger = "{ledger}"
ledger_head = "{ledger}.head"

[budget]
epsilon_budget = 1
delta_budget = 1e-7
max_epsilon_per_query = 1
questions = 1

[tables.orders]
private = true
{unit}

[tables.orders.columns]
user_id = {{ type = "integer" }}
city = {{ type = "text", in = [{cities}] }}
product = {{ type = "text" }}
day = {{ type = "date", between = [2025-01-01, 2025-12-31] }}
amount = {{ type = "double", between = [0, 100], step = 0.01 }}

[tables.users]
{users}

[tables.users.columns]
user_id = {{ type = "integer" }}
age_group = {{ type = "text", in = [{ages}] }}
"""


def ours(database: Path, line: Line, ledger: Path) -> tuple[Values, str]:
    """One answer of dither, and what it was released by."""
    own = f'privacy_unit_column = "user_id"\nmax_groups_contributed = {line.groups}\nmax_rows_contributed = {line.rows}'
    text = _POLICY.format(
        database=database,
        ledger=ledger,
        unit='privacy_unit = "row"' if line.by_row else own,
        users='public = true\nunique = [["user_id"]]' if line.by_row else f"private = true\n{own}",
        cities=", ".join(f'"city {i:02}"' for i in range(CITIES)),
        ages=", ".join(f'"{age}"' for age in AGE_GROUPS),
    )
    sql = line.sql.replace("'' AS k, ", "")
    with Curator.open(Policy.parse(text, base=database.parent)) as curator:
        quote = curator.price(sql, epsilon=Fraction(EPSILON))
        answer = curator.sql(sql, epsilon=Fraction(EPSILON))
    found = {}
    for row in answer.to_arrow().to_pylist():
        key = str(row.pop("k", ""))
        found[key] = [float(value) for value in row.values()]
    return found, "; ".join(dict.fromkeys(quote.priced.mechanisms))


def rows_of(database: Path, line: Line) -> tuple[list[str], dict[str, Any]]:
    """The public keys, and the rows that peers get: the key's place and the amount, bounded for each unit."""
    with duckdb.connect(str(database), read_only=True) as connection:
        source = "orders JOIN users USING (user_id)" if line.key == "age_group" else "orders"
        everything = f"SELECT user_id, CAST({line.key} AS VARCHAR) AS k, amount FROM {source}"
        if not line.by_row:
            everything = f"""
                SELECT * FROM (SELECT *, dense_rank() OVER (PARTITION BY user_id ORDER BY hash(k, user_id, 7)) AS g
                    FROM (SELECT *, row_number() OVER (PARTITION BY user_id, k ORDER BY hash(amount, k, user_id)) AS r
                        FROM ({everything})) WHERE r <= {line.rows}) WHERE g <= {line.groups}"""
        table = connection.execute(f"SELECT k, amount FROM ({everything})").fetchnumpy()
    keys, codes = np.unique(np.asarray(table["k"], dtype=str), return_inverse=True)
    return keys.tolist(), {"codes": codes.astype(np.int64), "amounts": np.asarray(table["amount"], dtype=np.float64)}


def truth_of(database: Path, line: Line) -> Values:
    with duckdb.connect(str(database), read_only=True) as connection:
        clamped = line.sql.replace("amount", "least(greatest(amount, 0), 100)")
        rows = connection.execute(clamped).fetchall()
    return {str(row[0]): [float(value) for value in row[1:]] for row in rows}


def errors(found: Values, truth: Values) -> list[float]:
    """The median relative error of each column over the groups that are shown and occur."""
    both = [(found[key], truth[key]) for key in truth if key in found]
    if not both:
        return []
    columns = range(len(both[0][1]))
    return [statistics.median(abs(one[i] - other[i]) / abs(other[i]) for one, other in both) for i in columns]


def accuracy(database: Path, repeats: int) -> list[tuple[str, ...]]:
    """A line for each question: what dither and each peer are off by, and how many groups they show."""
    database = make(database.parent, ROWS, USERS)
    table = [("question, ε = 1, δ = 1e-7", "dither", *PEERS, "dither's noise")]
    with tempfile.TemporaryDirectory() as place:
        for number, line in enumerate(LINES):
            truth, said = truth_of(database, line), ""
            keys, rows = rows_of(database, line)
            path = Path(place) / "rows.npz"
            np.savez(path, **rows)
            found: dict[str, list[Values]] = {name: [] for name in ("dither", *PEERS)}
            for turn in range(repeats):
                answer, said = ours(database, line, Path(place) / f"{number}-{turn}.ledger")
                found["dither"].append(answer)
                for peer in PEERS:
                    try:
                        answered = _of_peer(peer, line, path, len(keys), Path(place) / "answer.json")
                    except PeerError as problem:
                        print(f"{line.name}: {problem}")
                        continue
                    if answered is not None:
                        found[peer].append({keys[int(place)]: value for place, value in answered.items()})
            table.append((line.name, *(_cell(found[name], truth, line) for name in found), said))
    return table


def _of_peer(peer: str, line: Line, rows: Path, keys: int, answer: Path) -> Values | None:
    wanted = {"groups": line.groups or 1, "rows": line.rows or 1, "keys": keys, "epsilon": EPSILON, "delta": DELTA}
    doing = work(peer, "accuracy", kind=line.kind, rows_of=str(rows), answer=str(answer), **wanted)
    if doing is None or not doing():
        return None
    told: Values = json.loads(answer.read_text())
    return told


def _cell(found: list[Values], truth: Values, line: Line) -> str:
    if not found:
        return "—"
    columns = zip(*(errors(one, truth) for one in found), strict=True)
    text = ", ".join(f"{statistics.median(column):.3%}" for column in columns)
    shown = statistics.median(sum(key in truth for key in one) for one in found)
    return text if line.public else f"{text}, {shown:,.0f} shown"
