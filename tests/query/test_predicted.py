"""Errors before data is read: what is computed with is what the sentence says."""

import math
import re

import pytest
from hypothesis import given, strategies as st

from dither.query.aggregates.base import Fixed, PerRow, Ranks, Rarer, Unknown, short

NUMBERS = st.floats(1e-20, 1e20)


@given(NUMBERS, st.booleans(), st.integers(1, 10**9))
def test_a_formula_is_evaluated_in_the_digits_that_are_shown(number, root, rows):
    for about in (False, True):
        error = PerRow(over_rows=number, root=root, about=about)
        said = re.fullmatch(r"(at most about )?±(√?)\(([0-9.,]+) / rows in the group\)", str(error))
        assert (bool(said[1]), bool(said[2]), error.half_width) == (about, root, None)
        half = float(said[3].replace(",", "")) / rows
        assert error.at(rows) == (math.sqrt(half) if root else half)


@given(st.floats(1e-20, 1e10))
def test_short_numbers_are_rounded_up_once(number):
    shown = float(short(number).replace(",", ""))
    assert number * (1 - 1e-11) <= shown <= number * 1.01 + (number > 100)
    assert short(shown) == short(number)


@pytest.mark.parametrize(
    ("error", "words", "half"),
    [
        (Fixed(0.0, noise=False), "exact", 0.0),
        (Fixed(0.0), "±0", 0.0),
        (Fixed(1234.1), "±1,235", 1234.1),
        (Ranks(12.34), "±12.4 ranks", None),
        (Rarer(7.0), "a value that occurs at most 7 times less often than the most frequent one", None),
        (Unknown("depends on the data"), "depends on the data", None),
    ],
)
def test_only_what_no_data_has_a_say_in_has_a_width(error, words, half):
    assert (str(error), error.half_width, error.at(1000)) == (words, half, half)
