"""Outputs that an auditor can misread: shared memory, hidden contents, noise that is used twice, very large ones."""

import datetime as dt
import math
import sys
import threading
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from dither.audit import Batched, lower_bound
from dither.audit.certify.task import fingerprints
from dither.audit.drawing.draws import LARGEST_SAMPLE, Draws, batched, collect, settled
from dither.audit.outputs.layout import as_block, canonical, expect_independent, layout_of, whole_codes
from dither.errors import InvalidData

GENERATOR = np.random.default_rng(4)


def numbers(values):
    return {name: column.tolist() for name, column in layout_of(values, values).read(values).numbers.items()}


# ------------------------------------------------------------------ one place in memory for many outputs


def refilled(shape):
    """A mechanism that writes every output into the same array, as code that saves memory does."""
    place = np.zeros(3)

    def mechanism(x):
        place[:] = x + GENERATOR.normal(size=3)
        return {"array": place, "view": place[:2], "dict": {"w": place}, "list": [place], "set": (1, place)}[shape]

    return mechanism


@pytest.mark.parametrize("shape", ["array", "view", "dict", "list", "set"])
def test_outputs_in_one_array_are_separate_draws(shape):
    block = Draws(batched(refilled(shape)), 0.0, "x")(50)
    layout = layout_of(block, block)
    assert len(set(whole_codes(layout.read(block)).tolist())) == 50


@pytest.mark.usefixtures("counted_time")
def test_a_mechanism_that_refills_its_array_is_no_false_alarm():
    # the mutant, which keeps outputs as they are, finds ε > 2 in every run
    place = np.zeros(2)

    def mechanism(x):
        place[:] = np.round((x + GENERATOR.laplace(0, 2, 2)) * 2**20) / 2**20
        return place

    found = lower_bound(mechanism, 0.0, 1.0, claim=1, confidence=1 - 1e-9, budget="0.4s")
    assert found.epsilon < 1
    assert not found.broken


def test_an_array_that_draw_fills_again_is_copied():
    place = np.zeros(1 << 12)

    def draw(x, n):
        place[:n] = x
        return place[:n]

    pair = Draws(Batched(draw), 0.0, "x"), Draws(Batched(draw), 1.0, "x_neighbour")
    first, second = collect(pair, most=1000, seconds=5)
    assert (set(first.tolist()), set(second.tolist())) == ({0.0}, {1.0})


def test_one_array_in_several_places_is_refused():
    place = np.zeros(3)
    with pytest.raises(InvalidData, match="one array in several places"):
        as_block([place, place], 2)
    with pytest.raises(InvalidData, match="one array in several places"):
        as_block([place[:2], place[1:]], 2)
    assert as_block(list(np.zeros((4, 3))), 4).shape == (4, 3)  # rows of one array are apart
    assert as_block(list(np.zeros((3, 4)).T), 4).shape == (4, 3)


def test_what_is_settled_is_equal():
    for value in (1.5, "a", None, (1, [2, {"a": {3}}]), dt.date(2020, 1, 1), frozenset({1})):
        assert settled(value) == value
    lock = threading.Lock()  # can't be copied
    assert settled(lock) is lock


# ------------------------------------------------------------------ what can be seen


def test_keys_in_the_index_of_pandas_are_seen():
    series = [pd.Series([1.5, 2.5], index=["a", key]) for key in "bc"]
    assert numbers(series)["'b' in output"] == [1, 0]
    assert numbers(series)["output['a']"] == [1.5, 1.5]
    frames = [pd.DataFrame({"n": [1, 2]}, index=["a", key]) for key in "bc"]
    assert numbers(frames)["'c' in output['n']"] == [0, 1]
    repeated = pd.DataFrame({"n": [1, 2]}, index=["a", "a"])
    assert canonical(repeated) != canonical(pd.DataFrame({"n": [1, 2]}, index=["a", "b"]))
    assert canonical(pd.Series([1, 2], index=["a", "a"])) != canonical(pd.Series([1, 2]))
    assert canonical(pd.Index(["a"])) != canonical(pd.Index(["b"]))


class Model:
    def __init__(self, weight):
        self.weight = weight

    def __repr__(self):
        return "Model()"


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight


@pytest.mark.parametrize("kind", [Model, Slotted])
def test_objects_are_what_they_hold(kind):
    assert numbers([kind(1.5), kind(2.5)])["output['.weight']"] == [1.5, 2.5]
    assert canonical(kind(1)) != canonical(kind(2))
    assert canonical(ValueError("a")) != canonical(ValueError("b"))


def test_an_output_that_shows_nothing_yet_is_refused():
    with pytest.raises(InvalidData, match="return a list"):
        lower_bound(lambda x: (value for value in [x]), 0, 1, claim=1, budget="0.1s")


def test_moments_are_numbers():
    day = dt.datetime(2020, 5, 17, 12, 0, 1)  # noqa: DTZ001
    assert np.diff(numbers([day, day + dt.timedelta(seconds=90)])["output"]).tolist() == [90]
    assert np.diff(numbers([day.date(), day.date() + dt.timedelta(days=1)])["output"]).tolist() == [86_400]
    assert numbers([dt.timedelta(minutes=1), None])["output"][0] == 60
    assert numbers([dt.time(1, 0, 2), None])["output"][0] == 3602
    assert math.isnan(numbers([pd.NaT, None])["output"][0])


def test_numbers_in_texts_are_numbers():
    found = numbers(['{"n": -1.5e3, "m": 7}', "nothing"])
    assert found["number 1 in output"][0] == -1500
    assert found["number 2 in output"][0] == 7
    assert math.isnan(found["number 1 in output"][1])


def test_complex_numbers_are_two():
    assert as_block([1 + 2j, 3j], 2).tolist() == [[1, 2], [0, 3]]
    assert as_block([np.complex64(1 + 2j)], 1).tolist() == [[1, 2]]
    assert numbers([1 + 2j, None])["output['the imaginary part']"][0] == 2


def test_digits_that_make_no_difference_to_the_number_are_seen():
    assert canonical(Decimal("1.0")) != canonical(Decimal("1.00"))
    assert numbers([Decimal("1.0"), Decimal("1.00")])["the length of output"] == [3, 4]
    assert math.isnan(numbers([Decimal("sNaN"), None])["output"][0])


def test_the_sign_of_zero_is_seen():
    found = lower_bound(Batched(lambda x, n: np.full(n, -0.0 if x else 0.0)), 0, 1, claim=1, budget="0.5s")
    assert found.broken


def test_a_mechanism_that_ends_the_process_is_no_pass():
    with pytest.raises(InvalidData, match="failed on x: SystemExit"):
        lower_bound(lambda x: sys.exit(0), 0, 1, claim=1, budget="0.1s")


# ------------------------------------------------------------------ draws that depend on each other


def columns_of(values):
    return layout_of(values, values).read(values)


def test_noise_that_is_used_twice_is_refused():
    noise = GENERATOR.normal(size=5000)
    with pytest.raises(InvalidData, match="aren't independent"):
        expect_independent(columns_of(np.repeat(noise, 2)))
    with pytest.raises(InvalidData, match="aren't independent"):
        expect_independent(columns_of([str(value) for value in np.repeat(noise, 2)]))
    state = {"calls": 0, "noise": 0.0}

    def every_second_time(x):
        state["calls"] += 1
        if state["calls"] % 2:
            state["noise"] = float(GENERATOR.laplace())
        return x + state["noise"]

    with pytest.raises(InvalidData, match="audit that"):
        lower_bound(every_second_time, 0.0, 1.0, claim=1, budget="1s")


@pytest.mark.parametrize("chance", [0.5, 0.02, 0.999, 1.0])
def test_outputs_that_repeat_by_chance_are_left_alone(chance):
    for _ in range(50):
        expect_independent(columns_of(GENERATOR.random(2000) < chance))
    expect_independent(columns_of(GENERATOR.integers(0, 40, (5000, 2))))
    expect_independent(columns_of(GENERATOR.normal(size=3)))


def test_a_stream_is_known_by_a_column_of_few_values():
    shared = GENERATOR.random(256) < 0.3
    one, other = (
        fingerprints(columns_of(np.column_stack([shared, np.random.default_rng().random(256) < 0.5]).astype(int)))
        for _ in range(2)
    )
    assert one & other
    apart = [fingerprints(columns_of(np.random.default_rng().random((256, 2)) < 0.3)) for _ in range(2)]
    assert not apart[0] & apart[1]


# ------------------------------------------------------------------ large outputs


def test_large_outputs_fit_into_memory():
    width = LARGEST_SAMPLE // 20
    drawn = Batched(lambda x, n: np.broadcast_to(np.float64(x), (n, width)))
    pair = Draws(drawn, 0.0, "x"), Draws(drawn, 1.0, "x_neighbour")
    first, _ = collect(pair, most=1000, seconds=60)
    assert first.shape == (20, width)
    several = batched(lambda x: {"w": np.zeros(width), "n": 1})
    first, _ = collect((Draws(several, 0, "x"), Draws(several, 1, "x_neighbour")), most=100, seconds=60)
    assert len(first) <= 20


def test_codes_of_rows_tell_places_apart():
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    codes = whole_codes(columns_of(rows)).tolist()
    assert codes[0] == codes[2]
    assert len(set(codes)) == 3
    every = np.stack(np.meshgrid(*[np.arange(32)] * 3), axis=-1).reshape(-1, 3)
    assert np.unique(whole_codes(columns_of(every))).size == 32**3
