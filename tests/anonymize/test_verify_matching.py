"""How the verifier finds what texts stand for and which rows fit which classes, against the definitions one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.verifier import matching, truth
from dither.anonymize.verifier.grouping import Coded, Sorts
from dither.anonymize.verifier.matching import Fit, fitting
from dither.anonymize.verifier.parse import read_cells
from dither.anonymize.verifier.verify import verify
from support.sizes import examples

texts_ = st.sampled_from(
    ["*", None, "3", "{1, 4}", "0–2", "2–9", "{2–3, NULL}", "{1, 2–3, 7, NULL}", "5–4", "{NULL}", "?"]
)
numbers_ = st.one_of(st.none(), st.integers(0, 9))


@examples(50, 150)
@given(
    st.lists(st.tuples(numbers_, st.sampled_from("abc")), min_size=1, max_size=30, unique=True),
    st.lists(st.tuples(texts_, st.sampled_from(["a", "{a, b}", "*", "{b, c}"])), min_size=1, max_size=12),
    st.integers(1, 200),
)
def test_pairs_found_by_halving_are_all_pairs(rows, classes, few):
    """Against the definition, one by one; a low limit forces cuts."""
    columns, expected = [], None
    for place, kind in ((0, pa.int8()), (1, pa.string())):
        coded = Coded.of(pa.array([row[place] for row in rows], kind))
        cells = Coded.of(pa.array([texts[place] for texts in classes], pa.string()))
        reading = read_cells(cells.texts(), Attribute(name="x", role=Role.QUASI), coded.values)
        table = reading.stands_for(np.arange(reading.domain))[coded.codes][:, cells.codes]
        expected = table if expected is None else expected & table
        merged, became = reading.merged()
        assert (
            merged.stands_for(np.arange(merged.domain))[became] == reading.stands_for(np.arange(reading.domain))
        ).all()
        lowest, highest = merged.extent()
        held = merged.stands_for(np.arange(merged.domain))
        for text in range(held.shape[1]):
            told = np.flatnonzero(held[:, text])
            assert not told.size or (lowest[text] <= told[0] and told[-1] <= highest[text])
        pairs = np.indices(held.shape).reshape(2, -1)
        assert (merged.contains(*pairs, merged.listed()) == held[pairs[0], pairs[1]]).all()
        columns.append((Fit(merged, cells.codes), became[coded.codes]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "FEW_PAIRS", few)
        patch.setattr(matching, "MANY_PAIRS", 7)
        patch.setattr(matching, "SAMPLED", 5)
        patch.setattr(matching, "KEPT", 0 if few % 2 else 1 << 20)
        found = {
            (int(r), int(g)) for row, group in fitting(columns, len(classes)) for r, g in zip(row, group, strict=True)
        }
    assert found == {(int(r), int(g)) for r, g in zip(*np.nonzero(expected), strict=True)}


@examples(40, 100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**61 - 1), st.integers(0, 2**61 - 1)), max_size=20))
def test_sorts_are_the_distinct_lines(lines):
    columns = [
        (np.array([line[place] for line in lines], np.int64), bound) for place, bound in enumerate((4, 2**61, 2**61))
    ]
    found = Sorts.of(columns, len(lines))
    assert [lines[found.first[sort]] for sort in found.of_row] == lines
    assert [lines[first] for first in found.first] == list(dict.fromkeys(lines))
    assert found.rows.tolist() == [lines.count(line) for line in dict.fromkeys(lines)]


def test_too_many_pairs_are_said_and_what_can_be_told_is_told(monkeypatch):
    original = pa.table({"x": [1, 2, 3, 4], "s": list("abab")})
    plan = Configuration.of(original, quasi=["x"], sensitive=["s"], k=2)
    overlapping = pa.table({"x": ["1–4"] * 2 + ["1–3"] * 2, "s": list("baab")})
    monkeypatch.setattr(matching, "MOST_PAIRS", 2)
    found = verify(overlapping, plan, original)
    assert found.good
    assert "not matched" in found.notes[0]
    assert "every check that could be made passed" in str(found)
    wrong = pa.table({"x": ["1–4"] * 2 + ["1–3"] * 2, "s": list("bbbb")})
    assert not verify(wrong, plan, original).good
    monkeypatch.setattr(truth, "MOST_FITTING", 2)
    assert "not matched" in verify(overlapping, plan, original).notes[0]


MANY = [
    "*",
    None,
    "a",
    "{a, b}",
    "{a, NULL}",
    "{b}",
    "{a, b",
    "{a,b}",
    '{"a", b}',
    "{}",
    "{NULL}",
    "a–b",
    "{a, , b}",
    "c",
]
SPELLED = [
    "3",
    "2–3",
    "03",
    "3.0",
    "+3",
    "1e0",
    "{2, 3}",
    "{1–2, NULL}",
    "nan",
    "2–nan",
    "inf",
    "",
    " 3",
    "3–1",
    "–",
    "x",
    "*",
    None,
]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (MANY, pa.array(["a", "b", "{a, b}", "NULL", None, "{b}", "a–b"])),
        (MANY, pa.array(["b", "NULL"])),
        (SPELLED, pa.array([1, 2, 3, None], pa.int8())),
        (SPELLED, pa.array([1, 2, 3], pa.uint64())),
        (SPELLED, pa.array([1.0, 2.5, 3.0, None], pa.float32())),
        (
            ["1970-01-02", "1970-01-02–1970-02-01", "{1970-01-03, NULL}", "1970"],
            pa.array([1, 2, 40, None], pa.date32()),
        ),
    ],
)
def test_texts_read_together_are_read_as_one_by_one(texts, values):
    """A text that can't be read sends its column to the slow way; alone or among others it means the same."""
    one = Attribute(name="x", role=Role.QUASI)
    together = read_cells(texts, one, values).stands_for(np.arange(len(values)))
    for number, text in enumerate(texts):
        alone = read_cells([text, "{"], one, values)
        assert alone.stands_for(np.arange(len(values)))[:, 0].tolist() == together[:, number].tolist(), text


def test_what_texts_stand_for_by_hand():
    one = Attribute(name="x", role=Role.QUASI)
    words = pa.array(["a", "b", "{a, b}", "NULL", None])
    for text, places in [
        ("{a, b}", [0, 1, 2]),
        ("{a, NULL}", [0, 4]),
        ("NULL", [3]),
        ('{"NULL", b}', [1, 3]),
        ("*", range(5)),
    ]:
        found = read_cells([text], one, words).stands_for(np.arange(5))[:, 0]
        assert np.flatnonzero(found).tolist() == list(places), text
    numbers = pa.array([1, 2, 3, None], pa.int8())
    for text, places in [
        ("2–300", [1, 2]),
        ("{1, 3, NULL}", [0, 2, 3]),
        ("2", [1]),
        ("nan", []),
        ("3–1", []),
        ("*", range(4)),
    ]:
        found = read_cells([text], one, numbers).stands_for(np.arange(4))[:, 0]
        assert np.flatnonzero(found).tolist() == list(places), text
