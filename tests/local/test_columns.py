"""One value for each person from whatever holds a column; refused where it would be read as other people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dither.errors import InvalidData
from dither.local import (
    Attributes,
    HadamardSketch,
    HeavyHitters,
    Kary,
    Participation,
    Protocol,
    Rappor,
    SequenceFragments,
    Spelling,
)
from dither.local.core.columns import column_of

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

PETS = ["cat", "dog", "dog"]
SECRET = "weasel"
OF_TEXTS: dict[str, Protocol] = {
    "labels": Kary.for_epsilon(["cat", "dog"], 1),
    "sketch": HadamardSketch.for_epsilon(2, hashes=8, buckets=8),
    "rappor": Rappor(bits=16, hashes=1, cohorts=2, f="1/2", p="1/4", q="3/4"),
    "heavy hitters": HeavyHitters.for_epsilon(2, values=Spelling.UTF8, length=4, hashes=8, buckets=8),
    "fragments": SequenceFragments.for_epsilon(2, length=4, hashes=8, buckets=8),
    "participation": Participation.for_epsilon(["cat", "dog"], 1),
}
COLUMNS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda texts: (text for text in texts),
    "numpy": np.array,
    "numpy objects": lambda texts: np.array(texts, dtype=object),
    "numpy texts in a list": lambda texts: [np.str_(text) for text in texts],
    "pandas": lambda texts: pandas.Series(texts, index=range(5, 5 + len(texts))),
    "pandas categories": lambda texts: pandas.Series(texts, dtype="category"),
    "polars": polars.Series,
    "Arrow": pyarrow.array,
    "Arrow in chunks": lambda texts: pyarrow.chunked_array([texts[:1], texts[1:]]),
    "Arrow dictionary": lambda texts: pyarrow.array(texts).dictionary_encode(),
}
NO_COLUMNS: dict[str, Any] = {
    "one text": SECRET,
    "bytes": SECRET.encode(),
    "nothing": None,
    "a number": 7,
    "a mapping": {"cat": SECRET},
    "a set, which forgets how many": {"cat", "dog"},
    "a table of pandas": pandas.DataFrame({"cat": PETS}),
    "a table of polars": polars.DataFrame({"cat": PETS}),
    "a table of Arrow": pyarrow.table({"cat": PETS}),
    "two dimensions": np.array([PETS]),
    "masked": np.ma.masked_array(PETS, mask=[False, True, False]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_is_read_alike(kind: str) -> None:
    assert column_of(COLUMNS[kind](PETS)) == PETS
    for protocol in OF_TEXTS.values():
        assert protocol.randomize(COLUMNS[kind](PETS)).shape[0] == 3


@pytest.mark.parametrize("kind", NO_COLUMNS)
@pytest.mark.parametrize("name", OF_TEXTS)
def test_what_would_be_other_people_is_refused(name: str, kind: str) -> None:
    with pytest.raises(InvalidData, match="one for each person; nothing was drawn") as error:
        OF_TEXTS[name].randomize(NO_COLUMNS[kind])
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("name", [name for name in OF_TEXTS if name != "participation"])
@pytest.mark.parametrize("missing", [None, float("nan"), b"cat", 1.5, pandas.NA])
def test_a_missing_value_is_nobody(name: str, missing: object) -> None:
    with pytest.raises(InvalidData, match="nothing was drawn"):
        OF_TEXTS[name].randomize(["cat", missing])


def test_a_masked_value_is_never_used() -> None:
    masked = np.ma.masked_array([1, 2], mask=[False, True])
    with pytest.raises(InvalidData, match="whole numbers from 0 to 3"):
        Kary.for_epsilon(4, 1).randomize(masked)
    rappor = Rappor(bits=16, hashes=1, cohorts=2, f="1/2", p="1/4", q="3/4")
    with pytest.raises(InvalidData, match="places"):
        rappor.randomize(masked, candidates=["a", "b", "c"])


def test_whole_numbers_stay_an_array() -> None:
    numbers = np.array([3, 1])
    assert column_of(numbers) is numbers


@pytest.mark.parametrize(
    "table",
    [
        pandas.DataFrame({"second": [1] * 500, "first": [0] * 500}),
        polars.DataFrame({"second": [1] * 500, "first": [0] * 500}),
        pyarrow.table({"second": [1] * 500, "first": [0] * 500}),
        {"second": [1] * 500, "first": [0] * 500},
    ],
    ids=["pandas", "polars", "arrow", "mapping"],
)
def test_columns_of_a_table_are_taken_by_name(table: Any) -> None:
    several = Attributes.best({"first": 2, "second": 2}, epsilon=8)
    found = several.aggregator().add(several.randomize(table)).estimate()
    # by place the two would be swapped; at ε = 8 that is 1 instead of 0
    assert found["first"].values[0] > 0.5 > found["second"].values[0]


def test_a_table_with_other_columns_is_refused() -> None:
    with pytest.raises(InvalidData, match="a column for each of first, second"):
        Attributes.best({"first": 2, "second": 2}, epsilon=8).randomize(pandas.DataFrame({"a": [1], "b": [0]}))


def test_an_attribute_that_nobody_was_asked_about_is_named() -> None:
    several = Attributes.best({"first": 2, "second": 2}, epsilon=1)
    one = several.aggregator().add(several.randomize({"first": [0], "second": [0]}))
    with pytest.raises(InvalidData, match=r"nobody was asked about (first|second) yet"):
        one.estimate()
