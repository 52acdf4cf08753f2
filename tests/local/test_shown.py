"""Estimates as a person reads them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dither.local import Consistency, HeavyHitters, Kary, LaplaceMean, OneBitVector, Spelling, WaveletRanges
from dither.local.core.tables import BEYOND, MOST_ROWS, EstimateRow, EstimateTable, meaning
from dither.local.frequency.oracle import Shares, shares_from_supports
from dither.local.means.mean import MeanEstimate
from dither.local.rappor.decode import Control, Decoding
from dither.mechanisms.response_estimates import Target


def test_shares_are_a_table_of_the_largest():
    pets = Kary.for_epsilon(["cat", "dog", "fish"], 1)
    supports = np.array([300, 500, 200])
    found = shares_from_supports(
        supports, 1000, hit=pets.hit, miss=pets.miss, confidence=0.95, comparisons=3, simultaneous=True,
        labels=("cat", "dog", "fish"),
    )  # fmt: skip
    lines = str(found).splitlines()
    assert lines[0].split() == ["value", "share", "interval"]
    assert [line.split()[0] for line in lines[1:4]] == ["dog", "cat", "fish"]
    low, high = found.intervals[1]
    assert lines[1].split() == ["dog", f"{found.values[1]:.2f}", f"{low:.2f}", "…", f"{high:.2f}"]
    assert lines[4] == "95% intervals, which hold all together; 1,000 reports"
    assert "population" in lines[5]
    assert repr(found) == str(found)
    assert "norm-sub" in str(found.made_consistent(Consistency.NORM_SUB))


def test_a_large_domain_is_cut_and_says_so():
    oracle = Kary.for_epsilon(1000, 5)
    found = oracle.aggregator().add(oracle.randomize(np.arange(1000))).estimate(simultaneous=False)
    lines = str(found).splitlines()
    assert len(lines) == 1 + MOST_ROWS + 3
    assert lines[1 + MOST_ROWS] == f"… {1000 - MOST_ROWS} more"
    assert "each by itself" in lines[2 + MOST_ROWS]


def test_other_estimates():
    ages = WaveletRanges.for_epsilon(100, 1)
    shown = str(ages.aggregator().add(ages.randomize(np.arange(100))).estimate()).splitlines()
    assert [line.split()[0] for line in shown[1:11]] == [str(9 + 10 * tenth) for tenth in range(10)]
    # with as many digits as the noise of the other rows leaves
    share, low, dots, high = shown[10].split()[1:]
    assert (float(share), float(low), dots, float(high)) == (1, 1, "…", 1)
    few = WaveletRanges.for_epsilon(["low", "middle", "high"], 1)
    shown = str(few.aggregator().add(few.randomize(["low"])).estimate()).splitlines()
    assert [line.split()[0] for line in shown[1:4]] == ["low", "middle", "high"]
    week = OneBitVector.for_epsilon(7, (0, 24), 1)
    shown = str(week.aggregator().add(week.randomize(np.zeros((50, 7)))).estimate()).splitlines()
    assert [line.split()[0] for line in shown[1:8]] == [str(day) for day in range(7)]
    mean = LaplaceMean.for_epsilon((0, 10), 1)
    assert "95% interval" in str(mean.aggregator().add(mean.randomize([3, 4])).estimate())
    tree = HeavyHitters.for_epsilon(8, values=Spelling.INTEGERS, length=4, step=4, hashes=64, buckets=64)
    found = tree.aggregator().add(tree.randomize(np.full(2000, 7))).estimate()
    assert str(found).splitlines()[1].split()[0] == "7"
    assert "16 that were looked up" in str(found)
    empty = tree.aggregator().add(tree.randomize(np.arange(16))).estimate()
    assert str(empty).splitlines()[0].split() == ["value", "share", "interval"]


def test_names_steer_neither_terminal_nor_page():
    row = EstimateRow(name="\x1b[2J<script>", value=0.25, interval=(0.0, 0.5))
    table = EstimateTable(names="value", values="share", rows=[row], number=1, notes=["a < b"])
    assert "\x1b" not in table.text()
    assert "<script>" not in table.markup()
    assert "a &lt; b" in table.markup()


@pytest.mark.parametrize(
    ("width", "shown"),
    [(0.5, "0.33"), (0.05, "0.333"), (5.0, "0.3"), (500.0, "0"), (0.0, "0.3333"), (1e-12, "0.3333333")],
)
def test_as_many_digits_as_the_interval_is_worth(width: float, shown: str):
    row = EstimateRow(name="x", value=1 / 3, interval=(1 / 3 - width / 2, 1 / 3 + width / 2))
    table = EstimateTable(names="value", values="share", rows=[row], number=1, notes=[])
    assert table.cells()[0][1] == shown
    assert meaning(0.9, simultaneous=False, reports=1) == "90% intervals, each by itself; 1 report"


def numbers(text):
    """(estimate, low, high) of every line that has all three, as they are printed."""
    found = re.findall(r"(-?[\d.]+)%?  ?\(?([\d.]+)(?: …|% to) ([\d.]+)", text)
    return [tuple(map(float, each)) for each in found]


def test_nothing_is_shown_that_cant_be():
    """Unbiased estimates may leave what is possible, and their intervals don't: 1.677 (0.686 … 1.000) was printed."""
    decoding = Decoding(
        candidates=("a", "b"), shares=np.array([1.677, -0.2]), standard_errors=np.array([0.5, 0.5]),
        p_values=np.array([0.001, 0.6]), intervals=np.array([[0.686, 1.0], [0.0, 0.8]]), present=np.array([True, True]),
        listed=1.477, listed_interval=(0.5, 1.0), misfit=0.5, unpicked=0, reports=100, confidence=0.95,
        control=Control.FAMILYWISE,
    )  # fmt: skip
    assert numbers(str(decoding)) == [(1.0, 0.69, 1.0), (0.0, 0.0, 0.8), (1.0, 0.5, 1.0)]
    assert str(decoding).endswith(BEYOND)
    # what is computed with stays unbiased
    assert (decoding.found[0].share, decoding.listed) == (1.677, 1.477)
    mean = MeanEstimate(value=-3.0, variance=4.0, interval=(0.0, 2.0), confidence=0.95, reports=9)
    few = OneBitVector.for_epsilon(3, (0, 24), "1/10")
    for text in (
        *(str(few.aggregator().add(few.randomize(np.zeros((40, 3)))).estimate()) for _ in range(5)),
        str(mean).replace("95% interval ", ""),
    ):
        assert numbers(text)
        assert all(low <= value <= high for value, low, high in numbers(text))
    # what a rule moved is possible: it is shown as it is, beside the interval of what it was
    one = Shares(
        values=np.array([1.0, 0.0]), variances=np.ones(2), intervals=np.array([[0.2, 0.9], [0.1, 0.3]]),
        confidence=0.95, simultaneous=True, reports=10, target=Target.POPULATION, rule=Consistency.NORM_SUB,
    )  # fmt: skip
    assert numbers(str(one)) == [(1.0, 0.2, 0.9), (0.0, 0.1, 0.3)]
