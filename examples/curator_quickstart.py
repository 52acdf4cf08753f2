"""Protect a table and ask about it: a price, an answer with error bars, a free repeat, a refusal, the budget."""

import tempfile
from pathlib import Path

import dither as dp
from dither.cli.shop import POLICY, make_shop

QUESTION = "SELECT city, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY city"

with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    make_shop(folder)
    # the ledger's head stays here too, so that nothing is left behind in the user's directories
    policy = POLICY.replace("[source]", '[source]\nledger_head = "shop.head"')
    (folder / "dither.toml").write_text(policy, encoding="utf-8")

    with dp.Curator.open(folder / "dither.toml") as curator:
        print("A price reads no data and costs nothing:")
        print(curator.price(QUESTION, epsilon=0.5, analyst="ana"))

        print("\nThe charge is on disk before the first row is read:")
        print(curator.sql(QUESTION, epsilon=0.5, analyst="ana"))

        again = curator.sql(QUESTION + " ORDER BY mean DESC LIMIT 2", epsilon=0.5, analyst="ana")
        print(f"\nThe same again, ordered and cut: {again.cost}")
        print(again)

        print("\nRefused, and free:")
        try:
            curator.sql("SELECT customer, amount FROM orders", epsilon=0.5, analyst="ana")
        except dp.Refused as refusal:
            print(f"  {refusal}  [{refusal.code}]")

        print("\nThe budget:")
        for line in curator.budget():
            print(f"  {line.account}: {line}")
