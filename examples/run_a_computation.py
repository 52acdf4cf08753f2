"""The curator runs anything that states its loss before it sees data: here, the best-selling day of the week."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dither as dp
from dither.cli.shop import POLICY, make_shop

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class BestDay:
    """The weekday with the most orders, by the exponential mechanism.

    One customer has at most ``rows`` rows, so adding or removing one moves each day's count by at most ``rows``: the
    linf sensitivity. The curator sees to it that there are no more.
    """

    choice: dp.Exponential
    rows: int = 8
    table: str = "orders"
    columns: Sequence[str] = ("day",)

    def loss(self) -> dp.PrivacyLoss:
        """What it costs, known before the data."""
        return self.choice.loss(dp.Sensitivity.linf(self.rows))

    def key(self) -> str:
        """Its name with every parameter; the same key again is answered from the record."""
        return f"best day of the week, version 1, scale {self.choice.scale}"

    def release(self, table: pa.Table) -> str:
        """Gets at most ``rows`` rows of each customer; returns what may leave."""
        weekday = pc.day_of_week(table.column("day")).drop_null().to_numpy()
        counts = np.bincount(weekday, minlength=len(DAYS))
        return DAYS[self.choice.release(counts)]


with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    make_shop(folder)
    policy = POLICY.replace("[source]", '[source]\nledger_head = "shop.head"')
    (folder / "dither.toml").write_text(policy, encoding="utf-8")
    with dp.Curator.open(folder / "dither.toml") as curator:
        best = BestDay(dp.Exponential(scale=100))
        print("It will cost:", curator.price_run(best, analyst="ana").booking)
        print("The best day:", curator.run(best, analyst="ana"))
        print("Asked again, from the record:", curator.run(best, analyst="ana"))
        for line in curator.budget("ana"):
            print(f"{line.account}: {line}")
