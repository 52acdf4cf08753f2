"""Differencing: the answer before and after one person leaves, thousands of times, with and without dither.

Without noise the difference of two answers is the person. With it, whoever guesses from an answer whether the person
is there is right in at most e^ε times as many cases as wrong, but for δ: TPR ≤ e^ε·FPR + δ (Kairouz, Oh & Viswanath
2015), for the best of many thresholds, with Clopper–Pearson bounds that hold together at α = 1e-9.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dither.checks.statistics import largest_gap
from dither.curator.answers.release import Released, release
from support.sizes import some

ALPHA = 1e-9
REPEATS = 40_000
# Where the privacy loss says how much of an advantage is left: δ(ε), along its curve.
EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 1.0])
PERSON = 0
QUESTIONS = {
    "count": "SELECT COUNT(*) AS x FROM orders",
    "sum": "SELECT SUM(amount) AS x FROM orders",
    "average": "SELECT AVG(amount) AS x FROM orders",
    "a ratio": "SELECT COUNT(*) AS n, SUM(amount) AS s FROM orders",
}


@pytest.fixture(scope="module")
def people(data):
    """Few orders in all, and the person's are as large as they may be: the attack at its easiest."""
    few = data.filter(pc.less(data.column("customer"), 40))
    amounts = np.where(np.array(few.column("customer")) == PERSON, 50.0, np.array(few.column("amount")))
    return few.set_column(few.column_names.index("amount"), "amount", pa.array(amounts))


@pytest.fixture
def worlds(opened, people, tmp_path, write_table):
    """Curators of the same policy, with the person and without."""

    def make(**settings):
        made = []
        for name, table in (
            ("with", people),
            ("without", people.filter(pc.not_equal(people.column("customer"), PERSON))),
        ):
            directory = tmp_path / name
            directory.mkdir()
            write_table(directory / "shop.duckdb", table)
            made.append(opened(directory=directory, budget="1000", most="100", **settings))
        return made

    return make


def test_without_noise_the_difference_is_the_person(people):
    amounts = np.array(people.column("amount"))
    left = amounts[np.array(people.column("customer")) != PERSON]
    own = amounts[np.array(people.column("customer")) == PERSON]
    assert amounts.size * amounts.mean() - left.size * left.mean() == pytest.approx(own.sum(), abs=1e-9)
    assert amounts.size - left.size == own.size == 4
    assert amounts.sum() - left.sum() == own.sum() == 200


def outputs(made, priced, *, quieter=1):
    """What an analyst sees in many independent releases of cells that were measured once."""
    measured = made.engine.run(priced.measurement, salt=bytes(16))
    noise = tuple(type(one)(one.scale / quieter) for one in priced.noise)
    exact = [priced.measurement.numbers(cell.exact, measured)[0] for cell in priced.lowered.cells]
    cells = tuple(one.release(np.full(REPEATS, value)) for one, value in zip(noise, exact, strict=True))
    found = Released(
        keys=pa.table({}), size=REPEATS, cells=cells, noise=priced.noise, choices=(), recipes=priced.lowered.recipes
    )
    if len(found.recipes) > 1:
        # the sum of both columns in units of their noise: what leaves with the person moves both the same way
        return sum(cell / float(one.scale) for cell, one in zip(cells, priced.noise, strict=True))
    return found.estimates()[0].value.to_numpy().astype(float)


@pytest.mark.parametrize(
    ("delta", "unit", "question"), some(list(product(["0", "1e-6"], ["customer", "row"], QUESTIONS)), 3)
)
def test_the_best_threshold_attack_is_bounded_by_epsilon(worlds, delta, unit, question):
    by_row = {"unit": 'privacy_unit = "row"'} if unit == "row" else {}
    present, absent = worlds(delta=delta, **by_row)
    sql = QUESTIONS[question]
    quote = present.curator.price(sql, epsilon=1)
    assert absent.curator.price(sql, epsilon=1).charge == quote.charge
    # a row-level unit is one of the person's four rows: the group of four is protected at four times the loss
    epsilon = quote.epsilon * (4 if unit == "row" else 1)
    claimed = quote.delta * (4 * np.exp(4) if unit == "row" else 1)
    first, second = (outputs(made, quote.priced) for made in (present, absent))
    excess, witness = largest_gap(first, second, lambda _: claimed, np.array([epsilon]), ALPHA)
    assert excess <= 0, witness
    if unit == "customer":
        excess, witness = largest_gap(first, second, quote.priced.loss.delta, EPSILONS, ALPHA)
        assert excess <= 0, witness


@pytest.mark.parametrize("question", ["count", "sum"])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_curator_with_too_little_noise_is_caught(worlds, delta, question):
    present, absent = worlds(delta=delta)
    quote = present.curator.price(QUESTIONS[question], epsilon=1)
    first, second = (outputs(made, quote.priced, quieter=4) for made in (present, absent))
    excess, _ = largest_gap(first, second, quote.priced.loss.delta, EPSILONS, ALPHA)
    assert excess > 0


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_what_is_released_by_the_curator_itself_is_bounded_too(worlds, delta):
    """The same through ``release``, as the curator calls it; and its noise divided by four is caught there."""
    present, absent = worlds(delta=delta)
    quote = present.curator.price(QUESTIONS["count"], epsilon=1)
    repeats = 3_000

    def seen(made, priced):
        measured = made.engine.run(priced.measurement, salt=bytes(16))
        return np.array([release(priced, measured).cells[0][0] for _ in range(repeats)])

    quiet = replace(quote.priced, noise=tuple(type(n)(n.scale / Fraction(4)) for n in quote.priced.noise))
    for priced, honest in ((quote.priced, True), (quiet, False)):
        first, second = seen(present, priced), seen(absent, priced)
        excess, witness = largest_gap(first, second, quote.priced.loss.delta, EPSILONS, ALPHA)
        assert (excess <= 0) == honest, witness


def test_asking_before_and_after_costs_twice_and_gives_two_noises(worlds):
    """The attack as it would be made: two versions of the data, two charges, and bars that say how little it tells."""
    present, absent = worlds(delta="0")
    before = present.curator.sql(QUESTIONS["average"], epsilon="1/2")
    after = absent.curator.sql(QUESTIONS["average"], epsilon="1/2")
    low, high = (before.interval("x")[i] - after.interval("x")[1 - i] for i in (0, 1))
    assert (high - low)[0] > 50 * 4 / 160
    assert before.cost.charged
    assert after.cost.charged
