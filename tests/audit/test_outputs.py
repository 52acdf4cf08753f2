"""Outputs of every shape become columns; codes are the same in every process."""

import dataclasses
import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from enum import Enum
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dither.audit.outputs.layout import SHAPE, WHOLE, as_block, canonical, joined, layout_of
from dither.errors import InvalidData


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Record:
    total: float
    label: str


def numbers(values):
    return {name: column.tolist() for name, column in layout_of(values, values).read(values).numbers.items()}


def test_arrays_stay_arrays():
    assert as_block(np.arange(3), 3).tolist() == [0, 1, 2]
    assert as_block(np.zeros((3, 2, 2)), 3).shape == (3, 4)
    assert as_block([1.0, 2.0], 2).dtype == np.float64
    assert as_block([True, False], 2).dtype == np.bool_
    assert as_block([(1, 2), (3, 4)], 2).shape == (2, 2)
    assert as_block([np.zeros(3), np.ones(3)], 2).shape == (2, 3)
    assert as_block(np.array([1 + 2j, 3j]), 2).tolist() == [[1, 2], [0, 3]]
    assert as_block(iter([1.0]), 1).tolist() == [1.0]
    assert as_block(pd.Series([1.5, 2.5]), 2).tolist() == [1.5, 2.5]


def test_what_is_not_of_one_kind_stays_as_it_is():
    assert as_block([1, 1.0], 2) == [1, 1.0]  # an int tells itself from a float
    assert as_block([1, None], 2) == [1, None]
    assert as_block([10**400, 1], 2) == [10**400, 1]
    assert as_block([(1, 2), (3,)], 2) == [(1, 2), (3,)]
    assert as_block(np.array(["a", "b"]), 2) == ["a", "b"]
    assert as_block([Colour.RED, Colour.BLUE], 2) == [Colour.RED, Colour.BLUE]


@pytest.mark.parametrize("wrong", [np.zeros(3), [1, 2, 3], [], np.array(1.0)])
def test_the_number_of_outputs_is_checked(wrong):
    with pytest.raises(InvalidData, match="n = 2 outputs"):
        as_block(wrong, 2)


def test_one_number_is_no_sample():
    with pytest.raises(InvalidData, match="an array or a list"):
        as_block(3.0, 1)


def test_samples_join():
    assert joined([np.zeros(2), np.ones(1)]).tolist() == [0, 0, 1]
    assert joined([np.zeros(1), [None]]) == [0.0, None]
    assert joined([np.zeros((1, 2)), np.zeros((1, 3))]) == [[0.0, 0.0], [0.0, 0.0, 0.0]]


def test_coordinates_are_columns():
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert numbers(rows) == {"output[0]": [1, 3], "output[1]": [2, 4]}


def test_long_rows_keep_what_differs():
    first, second = np.zeros((5, 300)), np.zeros((5, 300))
    first[:, 0] = [0, 1, 2, 3, 4]
    second[:, 0] = first[:, 0]
    first[:, 250], second[:, 250] = [1, 2, 3, 4, 5], [0, 1, 2, 3, 4]
    layout = layout_of(first, second)
    columns = layout.read(first)
    assert "output[250]" in columns.numbers
    assert len(columns.numbers) <= 101
    weighted = columns.numbers["a weighted sum of the output"]
    assert np.diff(weighted).tolist() == pytest.approx([1 / 2.25] * 4)
    assert layout.width == 300  # what an output takes in memory


def test_rows_that_repeat_have_codes_with_names():
    rows = np.array([[0.0, 1.0], [0.0, 1.0], [np.nan, 1.0], [-np.nan, 1.0]] * 3)
    layout = layout_of(rows, rows)
    codes = layout.read(rows).kinds[WHOLE]
    assert len(set(codes.tolist())) == 2  # all NaNs are one
    assert layout.words(WHOLE, int(codes[0])) == "(0.0, 1.0)"


def test_whole_numbers_beyond_floats_are_told_apart():
    big = np.array([2**60, 2**60 + 1] * 4)
    codes = layout_of(big, big).read(big).kinds[WHOLE]
    assert codes[0] != codes[1]
    assert float(big[0]) == float(big[1])


def test_a_stray_output_counts_as_missing():
    layout = layout_of(np.zeros(4), np.ones(4))
    assert np.isnan(layout.read([None, "x", (1, 2)]).numbers["output"]).all()
    assert layout.read([None, 2.0]).numbers["output"][1] == 2
    rows = layout_of(np.zeros((4, 2)), np.ones((4, 2)))
    assert np.isnan(rows.read([None, (1, 2, 3)]).numbers["output[1]"]).all()
    assert np.isnan(rows.read(np.zeros(3)).numbers["output[0]"]).all()
    objects = layout_of([1, None], [1, None])
    assert objects.read(np.array([5, 6])).numbers["output"].tolist() == [5, 6]


def test_dictionaries_are_taken_apart_by_path():
    values = [{"a": 1, "b": {"c": [2.5, 3]}}, {"a": 4}]
    found = numbers(values)
    assert found["output['a']"] == [1, 4]
    assert found["output['b']['c'][0]"][0] == 2.5
    assert np.isnan(found["output['b']['c'][0]"][1])
    assert found["'b' in output"] == [1, 0]
    assert "'a' in output" not in found  # always there
    assert found["the length of output['b']['c']"][0] == 2
    assert found["the sum of output['b']['c']"][0] == 5.5


def test_the_order_of_keys_is_a_column():
    values = [{"a": 1, "b": 2}, {"b": 2, "a": 1}] * 2
    layout = layout_of(values, values)
    codes = layout.read(values).kinds["the keys of output"]
    assert codes[0] != codes[1]
    assert layout.words("the keys of output", int(codes[1])) == "'b', 'a'"


def test_sets_are_members():
    found = numbers([{"x", "y"}, {"y"}])
    assert found["'x' in output"] == [1, 0]
    assert found["the length of output"] == [2, 1]


def test_lists_of_texts_are_members_too():
    assert numbers([["a", "x"], ["a"]])["'x' in output"] == [1, 0]


def test_shapes_tell_types_apart():
    values = [(1, None), (1.0, None), (float("nan"), None), (2, None)]
    codes = layout_of(values, values).read(values).kinds[SHAPE].tolist()
    assert codes[0] == codes[3]
    assert len(set(codes)) == 3


TABLE = {"key": ["a", "b"], "n": [1, 2]}


@pytest.mark.parametrize("table", [pa.table(TABLE), pd.DataFrame(TABLE), pl.DataFrame(TABLE)], ids=["pa", "pd", "pl"])
def test_tables_of_every_library_are_the_same_columns(table):
    found = numbers([table, table])
    assert found["output['n'][1]"] == [2, 2]
    assert found["the length of output['key']"] == [2, 2]
    assert canonical(table) == canonical(TABLE)


def test_other_values():
    assert numbers([Record(1.5, "x")] * 2)["output['total']"] == [1.5, 1.5]
    assert numbers([Fraction(1, 2), Decimal("0.25"), None])["output"][:2] == [0.5, 0.25]
    assert (
        canonical(pa.array([1, 2])) == canonical([1, 2]) == canonical(np.array([1, 2])) == canonical(pl.Series([1, 2]))
    )
    assert canonical(np.float64(1)) == canonical(1.0)
    assert canonical(dt.date(2020, 1, 1)) != canonical(dt.date(2020, 1, 2))
    assert canonical(object()) == canonical(object())  # an address is no output


def test_what_differs_has_another_code():
    values = [
        1,
        1.0,
        True,
        "1",
        b"1",
        None,
        (1,),
        ((1,),),
        (1, 1),
        [],
        {},
        {1},
        {1: 1},
        -0.0,
        0.0,
        Colour.RED,
        float("nan"),
    ]
    codes = [canonical(value) for value in values]
    assert len(set(codes)) == len(values)
    assert canonical(float("nan")) == canonical(-float("nan"))
    assert canonical(["ab", "c"]) != canonical(["a", "bc"])


def test_deep_values_end():
    value = []
    for _ in range(50):
        value = [value]
    assert canonical(value) == canonical(value)
    numbers([value, value])


def test_codes_are_the_same_in_every_process():
    program = (
        "from dither.audit.outputs.layout import layout_of\n"
        "v = [{'x', 'y', 'z'}, {'k': (1, 2.5, None, 'é')}]\n"
        "c = layout_of(v, v).read(v)\n"
        "print({name: column.tolist() for name, column in sorted(c.kinds.items())})"
    )
    seen = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
