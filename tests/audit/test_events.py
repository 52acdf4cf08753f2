"""Scores and events: what they are exactly, what they say in words, and that the best kind is found."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from dither.audit.claims import claim_of
from dither.audit.events.choose import Bound, Contradiction, Event, choose, decided, objectives, simplified, sketch_of
from dither.audit.events.scores import (
    NO_BIT,
    Atoms,
    Between,
    CodeColumn,
    Feature,
    Learned,
    LikelihoodRatio,
    LowestBit,
    Value,
    lowest_bit,
)
from dither.audit.outputs.layout import layout_of

OUTPUT = Feature("output", ("output",))


def columns_of(*samples):
    layout = layout_of(*samples)
    return layout, *(layout.read(sample) for sample in samples)


def chosen(first, second, *, claim=None, delta=0.0):
    """The event that is chosen from samples of both inputs; half fits, half chooses."""
    cut = len(first) // 2
    layout, *fit = columns_of(first[:cut], second[:cut])
    sample = layout.read(first[cut:]), layout.read(second[cut:])
    merits = objectives(delta, None if claim is None else claim_of(claim))
    return choose(layout, tuple(fit), sample, merits, 10.0), sample


def test_lowest_bits_are_exact():
    numbers = np.array([1.0, 3.0, 0.5, 6.0, -0.75, 2.0**-1074, 1 + 2.0**-52, 0.0, -0.0, np.inf, np.nan])
    assert lowest_bit(numbers).tolist() == [0, 0, -1, 1, -2, -1074, -52, *[NO_BIT] * 4]


@given(st.integers(-(2**52), 2**52).filter(bool), st.integers(-500, 500))
def test_lowest_bits_of_all_floats(whole, exponent):
    trailing = (abs(whole) & -abs(whole)).bit_length() - 1
    assert lowest_bit(np.array([math.ldexp(whole, exponent)])).tolist() == [exponent + trailing]


def test_ratios_are_those_of_the_counts():
    _, first, second = columns_of(np.array([1, 1, 1, 2]), np.array([1, 2, 2, 3]))
    ratio = LikelihoodRatio.fitted(Atoms(OUTPUT, np.array([1.0, 2.0])), first, second)
    # kinds: not an atom (0 and 1 draws), 1 (3 and 1), 2 (1 and 2); half a draw is added to each
    expected = [math.log(0.5 / 5.5) - math.log(1.5 / 5.5), math.log(3.5 / 1.5), math.log(1.5 / 2.5)]
    assert ratio.ratios.tolist() == pytest.approx(expected)
    assert ratio.of(first).tolist() == pytest.approx([expected[1]] * 3 + [expected[2]])
    assert ratio.above(0.1) == "output is 1"
    assert ratio.below(0.1) == "output is 2 or none of the values that repeat"


def test_bins_keep_what_is_not_finite_apart():
    _, first, second = columns_of(np.array([0.0, 1, np.nan, np.inf, -np.inf]), np.arange(5.0))
    coding = Between.of(OUTPUT, first, second)
    codes = coding.codes(first)
    assert codes[2:].tolist() == [-1, -3, -2]
    assert coding.words([-1, -2]) == "output is missing or not a number or −∞"
    assert Between(OUTPUT, np.array([0.5, 1.5])).words([0, 2]) == "output is below 0.5 or from 1.5 up"
    assert Between(OUTPUT, np.array([0.5, 1.5])).words([1]) == "output is from 0.5 to 1.5"


def test_low_bits_in_words():
    bits = LowestBit(OUTPUT, magnitude=False)
    assert bits.words([-55, -54, -50, NO_BIT]) == (
        "the lowest bit of output is 2^-55 to 2^-54 or 2^-50 or output is 0 or not finite"
    )
    paired = LowestBit(OUTPUT, magnitude=True)
    _, first, _ = columns_of(np.array([0.75]), np.array([0.75]))
    assert paired.words(paired.codes(first).tolist()) == "the lowest bit of output is 2^-2 while it is below 2^0"


NUMBERS = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-4, 4) | st.sampled_from([0.0, 1.0]))


@given(fit=st.tuples(NUMBERS, NUMBERS), fresh=NUMBERS, cut=st.integers(0, 10), below=st.booleans())
def test_a_simpler_event_is_the_same_event(fit, fresh, cut, below):
    layout, first, second = columns_of(*fit)
    score = LikelihoodRatio.fitted(Between.of(OUTPUT, first, second), first, second)
    event = Event(score, float(score.ratios[cut % score.ratios.size]), below, first=True)
    sample = layout.read(fresh)
    assert simplified(event).inside(sample).tolist() == event.inside(sample).tolist()


@given(numbers=NUMBERS, cut=st.floats(-4, 4), below=st.booleans())
def test_an_event_and_its_complement_are_everything(numbers, cut, below):
    numbers[0] = np.nan
    _, sample, _ = columns_of(numbers, numbers)
    event = Event(Value(OUTPUT, missing=True), cut, below, first=True)
    assert (event.inside(sample) ^ event.complement.inside(sample)).all()
    assert event.complement.complement == event
    assert event.complement.first is False


def test_half_lines_in_words():
    event = Event(Value(OUTPUT, missing=False), 0.731, below=False, first=True)
    assert str(event) == "output ≥ 0.731"
    assert str(event.complement) == "output < 0.731"
    assert str(Event(Value(OUTPUT, missing=True), 0.5, below=True, first=True)) == "output < 0.5 or missing"


def test_learned_scores_find_an_interaction_of_two_columns():
    rng = np.random.default_rng(3)
    a = rng.choice([-1.0, 1.0], (4000, 2))
    b = a.copy()
    b[:, 1] = b[:, 0]  # equal signs always, where a has them half of the time
    _, first, second = columns_of(a, b)
    score = Learned.fitted(("output[0]", "output[1]"), first, second)
    assert (score.of(first)[a[:, 0] != a[:, 1]] > 0).all()
    assert (score.of(second) < 0).all()
    assert "2 numbers" in score.above(0.0)


def test_learned_scores_bear_columns_without_numbers():
    rows = np.column_stack([np.full(50, np.nan), np.arange(50.0), np.full(50, np.inf)])
    _, first, second = columns_of(rows, rows)
    assert np.isfinite(Learned.fitted(tuple(first.numbers), first, second).of(first)).all()


RNG = np.random.default_rng(11)


def on_a_grid(numbers):
    """Without the low bits that tell floats apart."""
    return np.round(numbers * 1024) / 1024


def test_the_tail_is_chosen_for_noise_that_is_short():
    found, sample = chosen(on_a_grid(RNG.laplace(0, 0.5, 40_000)), on_a_grid(RNG.laplace(1, 0.5, 40_000)), claim=1)
    assert isinstance(found.bound.event.score, Value)
    assert found.contradiction.merit > 10
    sketch = sketch_of(found.bound.event, sample)
    assert sketch.x.sum() == sketch.x_neighbour.sum() == 20_000
    assert sketch.cut == found.bound.event.cut
    assert sketch.inside.any()
    assert not sketch.inside.all()


def test_low_bits_are_chosen_for_noise_in_floating_point():
    found, _ = chosen(RNG.laplace(0, 1, 40_000), 1 + RNG.laplace(0, 1, 40_000), claim=1)
    assert "lowest bit" in str(found.bound.event)


def test_the_difference_is_chosen_where_noise_is_used_twice():
    def twice(x):
        noise = RNG.laplace(0, 2, 5000)
        return np.column_stack([x + noise, noise])

    found, _ = chosen(on_a_grid(twice(0.0)), on_a_grid(twice(1.0)), claim=1)
    assert "−" in str(found.bound.event)


def test_missing_outputs_are_chosen_where_they_give_away():
    first = np.where(RNG.random(5000) < 0.3, np.nan, RNG.normal(size=5000))
    found, _ = chosen(first, RNG.normal(size=5000))
    assert "missing" in str(found.bound.event)
    assert found.bound.event.first


def test_the_whole_output_is_chosen_where_only_it_tells():
    a = RNG.integers(0, 2, (6000, 6)).astype(float)
    b = RNG.integers(0, 2, (6000, 6)).astype(float)
    b[:, 5] = b[:, :5].sum(axis=1) % 2  # parity: each coordinate alone, and each pair, is the same in both
    found, _ = chosen(a, b)
    assert "the whole output" in str(found.bound.event)


def test_a_simple_event_is_preferred():
    found, _ = chosen(RNG.integers(0, 2, 4000), np.ones(4000, dtype=int))
    assert isinstance(found.bound.event.score, Value)


def test_finalists_are_decided_by_the_larger_sample():
    found, _ = chosen(on_a_grid(RNG.laplace(0, 0.5, 20_000)), on_a_grid(RNG.laplace(1, 0.5, 20_000)))
    (events,) = found.finalists
    assert len(events) > 1
    inside = dict.fromkeys(events, (10, 10))
    inside[events[1]] = (90, 10) if events[1].first else (10, 90)
    assert decided(found, inside, 100, (Bound(0.0),)).bound.event == events[1]


def test_draws_go_where_they_tell_more():
    # a rare event in x_neighbour needs more draws there
    found, _ = chosen(on_a_grid(RNG.laplace(0, 0.2, 20_000)), on_a_grid(RNG.laplace(1, 0.2, 20_000)))
    share = found.share_of_first
    assert 0.2 <= share < 0.5 if found.bound.event.first else 0.5 < share <= 0.8


def test_merits_prefer_what_they_should():
    bound = Bound(0.0)(np.array([500.0, 5.0]), np.array([100.0, 0.0]), 1000)
    assert bound[0] > bound[1]
    against = Contradiction(claim_of(1))(np.array([500.0, 271.8]), np.array([100.0, 100.0]), 1000)
    assert against[0] > 5
    assert abs(against[1]) < 0.2


def test_kinds_are_named_by_what_was_seen():
    layout, first, second = columns_of(["a", "b"] * 20, ["a", "c"] * 20)
    score = LikelihoodRatio.fitted(CodeColumn("output", layout), first, second)
    assert score.above(0.5) == "output is 'b'"
    assert score.below(-0.5) == "output is 'c'"
