"""COUNT(DISTINCT x): what public facts leave of a noisy number, its interval and what is computed from it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dither.curator.answers.computed_intervals import computed_ends
from dither.mechanisms import DiscreteLaplace
from dither.privacy import Adjacency
from dither.query.aggregates.base import Noisy
from dither.query.aggregates.count import Different
from dither.query.price.noise import QueryBudget, price, price_for_error
from dither.query.sql import bind, bind_with_form
from support.schemas import SHOP

F = Fraction
CONFIDENCE = F(19, 20)


def noisy(*numbers, scale=16):
    return Noisy(size=len(numbers), cells=(np.array(numbers),), noise=(DiscreteLaplace(scale),), choices=())


def recipe_of(sql):
    aggregation = bind(sql, SHOP).aggregation
    return price(aggregation, QueryBudget(kind="pure", main=F(1)), Adjacency.ADD_REMOVE).lowered.recipes[0]


def test_values_and_ends_are_cut_at_what_is_public():
    half = DiscreteLaplace(16).error(CONFIDENCE)
    found = Different(cell=0, most=5).estimate(noisy(7, -3, 2, 90, -90), CONFIDENCE)
    assert found.value.to_pylist() == [5, 0, 2, 5, 0]
    assert found.low.to_pylist() == [0, 0, 0, 5, 0]
    assert found.high.to_pylist() == [5, 5, 5, 5, 0]
    endless = Different(cell=0, most=None).estimate(noisy(7, 100), CONFIDENCE)
    assert endless.low.to_pylist() == [0, 100 - half]
    assert endless.high.to_pylist() == [7 + half, 100 + half]


def test_cut_intervals_cover_as_the_noise_does():
    """Every exact number from 0 to five, by the law of the noise: cutting takes no truth away, and adds none."""
    noise, recipe = DiscreteLaplace(2), Different(cell=0, most=5)
    off = np.arange(-60, 61)
    law = np.exp(-np.abs(off) / 2)
    law /= law.sum()
    for exact in range(6):
        found = recipe.estimate(noisy(*(exact + off), scale=2), CONFIDENCE)
        inside = (found.low.to_numpy() <= exact) & (exact <= found.high.to_numpy())
        stated = law[np.abs(off) <= noise.error(CONFIDENCE)].sum()
        # at an end of what can be, noise that goes beyond it does no harm
        assert law[inside].sum() == (pytest.approx(stated) if 0 < exact < 5 else pytest.approx((1 + stated) / 2))
    # a mutant, or a wrong fact: one value less than there are is never told
    found = Different(cell=0, most=4).estimate(noisy(*(5 + off), scale=2), CONFIDENCE)
    assert max(found.high.to_pylist()) < 5


@pytest.mark.parametrize(
    ("argument", "most"),
    [
        ("city", 4),
        ("coupon", 2),
        ("CASE WHEN coupon THEN city END", 4),
        ("quantity", 21),
        ("product", None),
        ("amount", 10_001),
    ],
)
def test_how_many_values_there_can_be(argument, most):
    found = recipe_of(f"SELECT COUNT(DISTINCT {argument}) AS n FROM orders")
    assert isinstance(found, Different)
    assert found.most == most


def test_the_question_is_the_one_that_it_was():
    """What is public of the values is no part of its form."""
    orders = SHOP.tables["orders"]
    secret = {**orders.columns, "city": replace(orders.columns["city"], keys=None)}
    other = replace(SHOP, tables={**SHOP.tables, "orders": replace(orders, columns=secret)})
    text = "SELECT COUNT(DISTINCT city) AS n FROM orders"
    assert bind_with_form(text, SHOP)[1] == bind_with_form(text, other)[1]


def test_an_error_is_asked_for_by_the_noise():
    aggregation = bind("SELECT COUNT(DISTINCT city) AS n FROM orders", SHOP).aggregation
    found = price_for_error(aggregation, {0: F(100)}, kind="pure", delta=F(0), adjacency=Adjacency.ADD_REMOVE)
    assert found.noise[0].error(CONFIDENCE) <= 100
    assert found.errors()[0].half_width == 4


def test_what_is_computed_lies_in_its_interval():
    question = bind("SELECT 2 * COUNT(DISTINCT city) + 1 AS n FROM orders", SHOP)
    recipe = Different(cell=0, most=3)
    base = pa.table({"row": [0, 1, 2]})
    low, high = computed_ends(question.shape.outputs[0].expression, (recipe,), noisy(90, -90, 1), base, CONFIDENCE)
    assert low.tolist() == [7, 1, 1]
    assert high.tolist() == [7, 1, 7]
