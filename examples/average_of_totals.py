"""What people spend in all: an aggregate for each person first, then a private one over people."""

import tempfile
from pathlib import Path

import dither as dp
from dither.cli.shop import POLICY, make_shop

TOTALS = "WITH totals AS (SELECT customer, SUM(amount) AS spent, COUNT(*) AS orders FROM orders GROUP BY customer)"
QUESTIONS = {
    "The mean of their totals, each total clamped to [0, 500]": (
        "SELECT AVG(spent, contribution_bounds_per_row => (0, 500)) AS mean FROM totals"
    ),
    "How many customers have ten orders or more": "SELECT COUNT(*) AS regulars FROM totals WHERE orders >= 10",
    "How many orders customers have; the rare numbers stay hidden": (
        "SELECT orders, COUNT(*) AS customers FROM totals GROUP BY orders ORDER BY orders LIMIT 8"
    ),
}

with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    make_shop(folder)
    policy = POLICY.replace("[source]", '[source]\nledger_head = "shop.head"')
    (folder / "dither.toml").write_text(policy, encoding="utf-8")
    with dp.Curator.open(folder / "dither.toml") as curator:
        for title, sql in QUESTIONS.items():
            answer = curator.sql(f"{TOTALS} {sql}", epsilon=0.3, analyst="ana")
            print(f"{title}:\n{answer}\n")
