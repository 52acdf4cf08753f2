"""Which discovered groups are shown: what a price predicts for units that are in more groups than they keep.

A unit counts in at most ``max_groups_contributed`` groups, so a group of n units is decided by fewer of them. What is
predicted must hold for the n units that an analyst means, those in the group.
"""

import math
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator import Curator
from dither.engines import DuckDBEngine
from dither.policy import Policy
from dither.privacy import Adjacency
from dither.query.price.key_selection import SHOWN, WIDE, select_keys, shown_chance

ADD = Adjacency.ADD_REMOVE
KEPT = 2
ASKED = {"epsilon": 1}
BY_ITEM = "SELECT item, COUNT(*) AS n FROM orders GROUP BY item"
FEW_DISCOVERED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (group_selection_strategy = LAPLACE_THRESHOLD{more}) "
    "city, COUNT(*) AS n FROM orders GROUP BY city"
)


@pytest.mark.parametrize(("rho", "delta"), [("1/2", "1e-6"), ("1/1000", "1/100"), ("1/50", "1e-9")])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("kept", "held"), [(1, 2), (4, 8), (3, 12)])
def test_enough_of_is_the_smallest_number_by_exact_sums(rho, delta, adjacency, kept, held):
    selection = select_keys(Fraction(rho), Fraction(delta), kept, adjacency)
    share = Fraction(kept, held)

    def exactly(units):
        law = ((m, float(math.comb(units, m) * share**m * (1 - share) ** (units - m))) for m in range(units + 1))
        return math.fsum(weight * float(selection.mechanism.keep_probability(m)) for m, weight in law if weight)

    needed = selection.enough_of(kept, held)
    assert exactly(needed) >= SHOWN - Fraction(1, 10**9) > exactly(needed - 1)
    assert needed >= selection.enough * held / kept
    assert shown_chance(selection.mechanism, needed, float(share)) == pytest.approx(exactly(needed), abs=1e-9)
    assert selection.enough_of(kept, kept) == selection.enough_of(kept, 1) == selection.enough


def test_wide_laws_are_read_as_normal_ones():
    selection = select_keys(Fraction(1, 10**8), Fraction(1, 10**9), 100, ADD)
    needed = selection.enough_of(100, 1000)
    mean, spread = needed / 10, math.sqrt(needed * 0.09)
    kept = np.arange(int(mean - 10 * spread), int(mean + 10 * spread))
    assert spread > WIDE
    exact = stats.binom.pmf(kept, needed, 0.1) @ selection.mechanism.keep_chances(kept)
    assert exact == pytest.approx(0.95, abs=1e-4)


@pytest.mark.parametrize("rho", ["1/2", "1/10000", "1/1000000000"])
def test_many_chances_at_once_are_those_of_one(rho):
    for mechanism in (
        select_keys(Fraction(rho), Fraction(1, 10**6), 4, ADD).mechanism,
        select_keys(Fraction(1, 1000), Fraction(1, 100), 1, ADD).mechanism,
    ):
        units = np.array([0, 1, 2, 5, 20, 40, 49, 60, 10**3, 10**5, 10**7])
        one = [float(mechanism.keep_probability(int(n))) for n in units]
        assert mechanism.keep_chances(units) == pytest.approx(one, abs=1e-6)


def predicted(text):
    """{groups that each unit is in: units that a group needs}."""
    found = re.search(r"a group of ([\d,]+) or more units is shown 19 times in 20 if each .* at most ([\d,]+)", text)
    more = re.findall(r"([\d,]+) if each is in ([\d,]+)", text)
    return {int(k.replace(",", "")): int(n.replace(",", "")) for n, k in [found.groups(), *more]}


def test_groups_are_shown_as_often_as_predicted(tmp_path, policy_of, ledger_of, write_table):
    """α = 1e-9. The fault: predicting by the units that keep a group; it is then shown in a few percent of cases.

    Many crowds, each of as many units as the price says, all in the same 4 (20) groups of their own; each unit keeps 2.
    Of each crowd one group is looked at, so that the looks are independent.
    """
    unit = f'privacy_unit_column = "customer"\nmax_groups_contributed = {KEPT}\nmax_rows_contributed = 1'
    policy = policy_of(directory=tmp_path, unit=unit, delta="1e-3")
    write_table(tmp_path / "shop.duckdb", crowds(1, 1, 1))
    with curator_of(policy, ledger_of) as curator:
        needed = predicted(curator.price(BY_ITEM, **ASKED).groups)
        selection = curator.price(BY_ITEM, **ASKED).priced.selection
    assert list(needed) == [KEPT, 2 * KEPT, 10 * KEPT]
    for held, number in ((2 * KEPT, 300), (10 * KEPT, 60)):
        share = KEPT / held
        assert shown_chance(selection.mechanism, selection.enough, share) < 0.6  # what was said before
        for units in (needed[held], selection.enough):
            write_table(tmp_path / "shop.duckdb", crowds(number, units, held))
            with curator_of(policy, ledger_of) as curator:
                items = curator.sql(BY_ITEM, **ASKED).table.column("item").to_pylist()
            shown = sum(item.endswith("/0") for item in items)
            chance = shown_chance(selection.mechanism, units, share)
            least, most = stats.binom.ppf([0.5e-9, 1 - 0.5e-9], number, chance)
            assert least <= shown <= most
            if units == selection.enough:  # the mutant fails by far more than six standard deviations
                assert shown < 0.95 * number - 6 * math.sqrt(number * 0.95 * 0.05)


def crowds(number, units, held):
    """``number`` crowds of ``units`` customers, each of whom has one order of each of the crowd's ``held`` items."""
    customer = np.repeat(np.arange(number * units), held)
    items = np.char.add(
        np.char.add((customer // units).astype(str), "/"), np.tile(np.arange(held), number * units).astype(str)
    )
    size = customer.size
    return pa.table(
        {
            "customer": customer,
            "city": ["Bern"] * size,
            "item": items,
            "amount": np.zeros(size),
            "pieces": np.zeros(size, dtype=np.int64),
            "rating": np.zeros(size),
            "stars": np.zeros(size, dtype=np.int64),
            "note": ["secret"] * size,
        }
    )


def curator_of(policy: Policy, ledger_of) -> Curator:
    engine = DuckDBEngine.open(policy.source.location, policy.schema, threads=1)
    return Curator(policy, engine, ledger_of(policy))


def test_where_no_unit_chooses_the_number_is_that_of_units(opened):
    by_row = opened(unit='privacy_unit = "row"').curator
    assert re.fullmatch(
        r"discovered: a group of \d+ or more rows is shown 19 times in 20", by_row.price(BY_ITEM, **ASKED).groups
    )
    alone = "a group of \\d+ or more units is shown 19 times in 20"
    curator = opened().curator
    one_row = "SELECT c, COUNT(*) AS n FROM (SELECT customer, COUNT(*) AS c FROM orders GROUP BY customer) GROUP BY c"
    assert re.fullmatch(f"discovered: {alone}", curator.price(one_row, **ASKED).groups)
    # three public groups, discovered all the same: no unit is in more than three
    several = opened(unit='privacy_unit_column = "customer"\nmax_groups_contributed = 3').curator
    assert re.fullmatch(f"discovered: {alone}", several.price(FEW_DISCOVERED.format(more=""), **ASKED).groups)
    fewer = several.price(FEW_DISCOVERED.format(more=", max_groups_contributed = 2"), **ASKED).groups
    assert list(predicted(fewer)) == [2, 3]
    fewest = several.price(FEW_DISCOVERED.format(more=", max_groups_contributed = 1"), **ASKED).groups
    assert list(predicted(fewest)) == [1, 2, 3]


def test_explain_privacy_tells_the_groups(opened):
    made = opened()
    answer = made.curator.sql(f"EXPLAIN PRIVACY {BY_ITEM}", **ASKED)
    assert f"groups: {made.curator.price(BY_ITEM, **ASKED).groups}" in answer.notes
