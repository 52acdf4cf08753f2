"""Hierarchies: files as ARX writes them, rules, automatic ones; and everything that can be wrong with a file."""

import datetime as dt
import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.hierarchy.hierarchies import Hierarchy, TableHierarchy, hierarchies_in
from dither.errors import InvalidData, InvalidParameter, SourceError
from support.sizes import examples

SCHOOLS = """Bachelors;Undergraduate;Higher education;*
Preschool;Primary School;Primary education;*
Masters;Graduate;Higher education;*
5th-6th;Primary School;Primary education;*
Some-college;Undergraduate;Higher education;*
"""


def written(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "hierarchy.csv"
    path.write_bytes(text.encode(encoding))
    return path


def labels(hierarchy, level, values):
    codes, names = hierarchy.level_codes(level, pa.array(values))
    return [names[code] for code in codes]


def nested(hierarchy, values):
    """Groups only merge, the top is one group, and level 0 keeps all values apart."""
    levels = hierarchy.levels(values)
    assert len(levels) == hierarchy.height + 1
    assert len(set(levels[0].tolist())) == len(values)
    assert set(levels[-1].tolist()) <= {0}
    for fine, coarse in itertools.pairwise(levels):
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == len(set(fine.tolist()))
    order = hierarchy.order(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    for codes in levels:
        along = codes[order]
        changes = int(np.count_nonzero(np.diff(along)))
        assert changes + 1 == len(set(along.tolist()))
    return levels


def test_files_in_the_format_of_arx(tmp_path):
    schools = Hierarchy.from_csv(written(tmp_path, SCHOOLS))
    assert schools.height == 3
    values = ["Masters", "Preschool", "Bachelors", "5th-6th"]
    assert labels(schools, 0, values) == values
    assert labels(schools, 1, values) == ["Graduate", "Primary School", "Undergraduate", "Primary School"]
    assert labels(schools, 3, values) == ["*"] * 4
    nested(schools, pa.array(values))
    assert [line[0] for line in schools.lines] == ["Bachelors", "Some-college", "Masters", "Preschool", "5th-6th"]


def test_what_is_written_is_read_again(tmp_path):
    lines = [('with "quotes"', "a;b", "*"), ("line\nbreak", "a;b", "*"), ("", "nothing", "*"), (" space ", "c", "*")]
    hierarchy = TableHierarchy.of(lines)
    hierarchy.to_csv(tmp_path / "again.csv")
    assert Hierarchy.from_csv(tmp_path / "again.csv") == hierarchy


@pytest.mark.parametrize(
    "text", ["\ufeffa;x;*\nb;x;*\n", '"a";"x";"*"\r\n"b";"x";"*"\r\n', "a;x;*\n\nb;x;*", "a;x;*\nb;x;*\na;x;*"]
)
def test_marks_quotes_and_line_ends_are_understood(tmp_path, text):
    assert Hierarchy.from_csv(written(tmp_path, text)).lines == (("a", "x", "*"), ("b", "x", "*"))


def test_a_top_of_several_groups_gets_one_above():
    assert TableHierarchy.of([("a", "x"), ("b", "y")]).lines == (("a", "x", "*"), ("b", "y", "*"))
    assert TableHierarchy.of([("a", "Any"), ("b", "Any")]).top == "Any"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no lines"),
        ("a;x;*\nb;x\n", r"line 2 \('b'\) has 2 fields and the first has 3"),
        ("a,x,*\nb,x,*\n", r"one column when lines are split at ';'.*separator were ','"),
        ("a\tx\t*\n", r"separator were '\\t'"),
        ("a\nb\n", "one column"),
        ("a;x;p;*\nb;x;q;*\n", r"'a' and 'b' are both 'x' at level 1, but at level 2 one is 'p' and the other 'q'"),
        ("a;x;*\na;y;*\n", "the value 'a' has two lines that say different things: leave one"),
        ("a;x;*\na;x;*\nb;x\n", r"line 3 \('b'\) has 2 fields"),
        ("a;x;*;\nb;x;*;\n", r"line 1 \('a'\) has no label at level 3: .* don't end in a separator"),
        ("a;x;*\nb;;*\n", r"line 2 \('b'\) has no label at level 1"),
        (";;\n", "the last level needs a label for everything"),
        ("value;group;all\na;x;*\nb;y;*\n", r"line 1 \('value'\) ends in 'all' and others in '\*': .* header=True"),
        ("a;x;*\nb;y;y\n", r"line 2 \('b'\) ends in 'y' and others in '\*': the last level must be one label for"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    with pytest.raises(InvalidParameter, match=message):
        Hierarchy.from_csv(written(tmp_path, text))


def test_a_line_of_names_is_left_out_if_it_is_said_to_be_there(tmp_path):
    named = Hierarchy.from_csv(written(tmp_path, "value;group;all\na;x;*\nb;y;*\n"), header=True)
    assert named.lines == (("a", "x", "*"), ("b", "y", "*"))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "has no lines"),
        ((("a", "x"), ("b", "y")), r"end in one label for everything: TableHierarchy\.of"),
        ((("a",), ("b",)), "end in one label for everything"),
        ((("a", "x", "*"), ("b", "y", "*"), ("c", "x", "*")), "must be in order"),
        ((("a", "x", "*"), ("b",)), "has 1 fields"),
        (((1, "x", "*"),), "must be texts"),
    ],
)
def test_lines_that_are_no_tree_make_no_hierarchy(lines, message):
    with pytest.raises(InvalidParameter, match=message):
        TableHierarchy(lines)


def test_a_missing_value_may_stay_missing_for_some_levels(tmp_path):
    kept = Hierarchy.from_csv(written(tmp_path, "a;x;*\nb;x;*\n;;*\n"))
    values = pa.array(["a", None, "b", ""])
    assert kept.level_codes(0, values)[1] == ("a", "b", "", None)
    codes, labels = kept.level_codes(1, values)
    assert (codes.tolist(), labels) == ([0, 2, 0, 1], ("x", "", None))
    assert kept.level_codes(2, values)[1] == ("*",)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SourceError, match="no such file"):
        Hierarchy.from_csv(tmp_path / "nowhere.csv")
    with pytest.raises(SourceError, match="not UTF-8"):
        Hierarchy.from_csv(written(tmp_path, "Zürich;CH;*\n", "latin-1"))
    with pytest.raises(SourceError, match="quote"):
        Hierarchy.from_csv(written(tmp_path, '"a;x;*\nb;x;*\n'))
    with pytest.raises(InvalidParameter, match="separator must be one character"):
        Hierarchy.from_csv(written(tmp_path, SCHOOLS), separator="::")
    with pytest.raises(InvalidParameter, match="separator must be one character"):
        Hierarchy.from_csv(written(tmp_path, SCHOOLS), separator='"')


def test_values_that_a_hierarchy_lacks_are_counted_not_shown():
    schools = TableHierarchy.of([("a", "x"), ("b", "y")])
    with pytest.raises(
        InvalidParameter, match="2 of the 4 distinct values of 'school' are not in its hierarchy"
    ) as found:
        schools.check(pa.array(["a", "secret", "b", "other"]), "school")
    assert "secret" not in str(found.value)
    assert schools.unknown(pa.array(["a", "secret", None])) == ["secret"]
    with pytest.raises(InvalidParameter, match="not in its hierarchy"):
        schools.level_codes(1, pa.array(["secret"]))


def test_numbers_booleans_and_dates_are_found_by_their_text():
    ages = TableHierarchy.of([("30", "30s"), ("31", "30s"), ("40", "40s")])
    assert labels(ages, 1, [31, 40]) == labels(ages, 1, [31.0, 40.0]) == ["30s", "40s"]
    assert labels(Hierarchy.from_mapping({True: "yes", False: "no"}), 1, [False, True]) == ["no", "yes"]
    day = dt.date(2020, 2, 29)
    assert labels(Hierarchy.from_mapping({day: "leap", dt.date(2020, 2, 28): "plain"}), 1, [day]) == ["leap"]


def test_missing_values_stand_apart_below_the_top():
    places = TableHierarchy.of([("a", "x"), ("b", "x"), ("c", "y")])
    assert labels(places, 0, ["a", None]) == ["a", None]
    assert labels(places, 1, ["b", None, "c"]) == ["x", None, "y"]
    assert labels(places, 2, ["a", None]) == ["*", "*"]
    nested(places, pa.array(["c", None, "a"]))


def test_a_line_for_missing_values():
    places = TableHierarchy.of([("a", "x"), ("", "x"), ("c", "y")])
    assert labels(places, 0, ["a", None]) == ["a", None]
    assert labels(places, 1, ["a", None, "c"]) == ["x", "x", "y"]
    nested(places, pa.array(["c", None, "a"]))


def test_intervals_of_whole_numbers():
    tens = Hierarchy.intervals((5, 10, 20))
    assert tens.height == 4
    assert labels(tens, 1, [0, 4, 5, -1, 39]) == ["0–4", "0–4", "5–9", "-5–-1", "35–39"]
    assert labels(tens, 3, [39, None]) == ["20–39", None]
    assert labels(tens, 4, [39, None]) == ["*", "*"]
    assert labels(Hierarchy.intervals((10,), origin=5), 1, [5, 14, 15, 4]) == ["5–14", "5–14", "15–24", "-5–4"]
    assert labels(Hierarchy.intervals((1, 2)), 1, [7]) == ["7"]
    codes, names = tens.level_codes(1, pa.array([25, 3, 100]))
    assert (codes.tolist(), names) == ([1, 0, 2], ("0–4", "25–29", "100–104"))


def test_intervals_of_other_numbers_contain_them_exactly():
    """0.3/0.1 is below 3 in floats, and 0.3 is not in [0.2, 0.3)."""
    tenths = Hierarchy.intervals(("0.1", "0.5"))
    assert labels(tenths, 1, [0.3, 0.29, -0.1, 0.7]) == ["[0.3, 0.4)", "[0.2, 0.3)", "[-0.1, 0)", "[0.7, 0.8)"]
    assert labels(tenths, 2, [0.3, 0.5]) == ["[0, 0.5)", "[0.5, 1)"]
    assert labels(tenths, 1, [Decimal("0.30"), Decimal("0.40")]) == ["[0.3, 0.4)", "[0.4, 0.5)"]
    assert labels(Hierarchy.intervals((10,)), 1, [9.999]) == ["[0, 10)"]
    assert labels(Hierarchy.intervals(("1/3",)), 1, [1]) == ["[1, 4/3)"]
    big = 2**62 + 1
    assert labels(Hierarchy.intervals((2,)), 1, [big]) == [f"{big - 1}–{big}"]
    with pytest.raises(InvalidData, match="finite"):
        tenths.level_codes(1, pa.array([float("inf")]))
    with pytest.raises(InvalidParameter, match="intervals are for numbers"):
        tenths.level_codes(1, pa.array(["a"]))


@examples(40, 100)
@given(
    st.lists(st.decimals(-1000, 1000, places=3, allow_nan=False), min_size=1, unique=True),
    st.sampled_from(["0.1", "0.3", "0.7", "1", "2.5"]),
    st.sampled_from(["0", "0.1", "-3.7"]),
)
def test_intervals_contain_what_they_print(numbers, width, origin):
    floats = sorted({float(number) for number in numbers})
    for values, exact in ((floats, [Decimal(repr(value)) for value in floats]), (numbers, numbers)):
        hierarchy = Hierarchy.intervals((width, str(Decimal(width) * 3)), origin)
        nested(hierarchy, pa.array(values))
        for level in (1, 2):
            for value, label in zip(exact, labels(hierarchy, level, values), strict=True):
                low, high = (Decimal(end) for end in label[1:-1].split(", "))
                assert low <= value < high


@pytest.mark.parametrize("widths", [(), (5, 12), (10, 5), (5, 5), (0,), (-1,)])
def test_widths_that_would_not_merge(widths):
    with pytest.raises(InvalidParameter):
        Hierarchy.intervals(widths)


def test_intervals_far_from_nought_contain_what_they_print():
    """Floats near 1e9 are a ten-millionth apart, so that quotients alone put numbers below their intervals."""
    exact = [Fraction("1000000000.1") + place * Fraction("0.1") for place in range(40)]
    tenths = Hierarchy.intervals(("0.1",), "1000000000.1")
    assert tenths.level_codes(1, pa.array([float(value) for value in exact]))[0].tolist() == list(range(40))


def test_prefixes_of_postcodes():
    codes = Hierarchy.prefixes(5)
    assert codes.height == 5
    values = ["02139", "02142", "90210"]
    assert labels(codes, 0, values) == values
    assert labels(codes, 2, values) == ["021**", "021**", "902**"]
    assert labels(codes, 5, values) == ["*"] * 3
    assert labels(codes, 1, [2139, 90210]) == ["0213*", "9021*"]
    nested(codes, pa.array(["02139", "0214", "", "02", None, "90210"]))
    with pytest.raises(InvalidParameter, match="1 of the 2 distinct values"):
        codes.check(pa.array(["12345", "123456"]), "postcode")
    with pytest.raises(InvalidParameter, match="length"):
        Hierarchy.prefixes(0)


def test_dates_by_calendar():
    calendar = Hierarchy.dates()
    days = [dt.date(2020, 3, 31), dt.date(2019, 12, 1), None]
    assert [labels(calendar, level, days) for level in range(6)] == [
        ["2020-03-31", "2019-12-01", None],
        ["2020-03", "2019-12", None],
        ["2020-Q1", "2019-Q4", None],
        ["2020", "2019", None],
        ["2020s", "2010s", None],
        ["*", "*", "*"],
    ]
    months = [dt.date(2020, month, 1) for month in range(1, 13)]
    assert labels(Hierarchy.dates(("quarter",)), 1, months) == [f"2020-Q{quarter}" for quarter in "111222333444"]
    moments = Hierarchy.dates(("day", "year"))
    assert moments.level_codes(1, pa.array([-60], pa.timestamp("s")))[1] == ("1969-12-31",)
    assert moments.level_codes(1, pa.array([-60], pa.timestamp("s", tz="Europe/Paris")))[1] == ("1970-01-01",)
    exact = pa.array([1, 86_400 * 10**9], pa.timestamp("ns"))
    assert moments.level_codes(1, exact)[1] == ("1970-01-01", "1970-01-02")
    for steps in ((), ("year", "month"), ("week",), ("month", "month")):
        with pytest.raises(InvalidParameter, match="steps must"):
            Hierarchy.dates(steps)
    with pytest.raises(InvalidParameter, match="for dates and timestamps"):
        calendar.level_codes(1, pa.array([1]))


@examples(40, 100)
@given(st.lists(st.one_of(st.none(), st.dates()), min_size=1, max_size=20, unique=True))
def test_calendars_merge(days):
    nested(Hierarchy.dates(), pa.array(days, pa.date32()))


@examples(40, 100)
@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True),
    st.integers(2, 4),
    st.randoms(use_true_random=False),
)
def test_automatic_hierarchies_of_numbers(values, fanout, chance):
    counts = [chance.randrange(100) for _ in values]
    hierarchy = Hierarchy.automatic(values, counts, fanout=fanout)
    nested(hierarchy, pa.array(values))
    for level in range(1, hierarchy.height):
        groups = {}
        for value, label in zip(values, labels(hierarchy, level, values), strict=True):
            ends = [int(end) for end in label.split("–")]
            assert ends[0] <= value <= ends[-1]
            groups.setdefault(label, []).append(value)
        stretches = sorted((min(group), max(group)) for group in groups.values())
        assert all(a[1] < b[0] for a, b in itertools.pairwise(stretches))


def test_automatic_hierarchies_of_categories():
    hierarchy = Hierarchy.automatic(["often", "rare", "a, b", "seldom"], [100, 1, 2, 3])
    assert labels(hierarchy, 1, ["rare", "a, b"]) == ['{"a, b", rare}'] * 2
    assert labels(hierarchy, 1, ["seldom", "often"]) == ["{often, seldom}"] * 2
    assert hierarchy.top == "*"
    assert Hierarchy.automatic(["alone"]).height == 1


@pytest.mark.parametrize(
    ("values", "counts", "fanout"),
    [
        ([], None, 2),
        ([None], None, 2),
        (["a", "a"], None, 2),
        (["a"], [1, 2], 2),
        (["a"], [-1], 2),
        (["a", "b"], None, 1),
    ],
)
def test_automatic_hierarchies_that_cannot_be(values, counts, fanout):
    with pytest.raises(InvalidParameter):
        Hierarchy.automatic(pa.array(values, pa.string()), counts, fanout=fanout)


def test_distances_are_levels_over_height():
    places = Hierarchy.from_mapping({"Paris": ("France",), "Lyon": ("France",), "Rome": ("Italy",)})
    assert places.distances(pa.array(["Paris", "Lyon", "Rome"])).tolist() == [[0, 0.5, 1], [0.5, 0, 1], [1, 1, 0]]


def test_levels_out_of_range():
    with pytest.raises(InvalidParameter, match="level must lie between 0 and 2"):
        Hierarchy.intervals((5,)).level_codes(3, pa.array([1]))


def test_hierarchies_of_a_folder_by_name(tmp_path):
    ages = "".join(f"{age};{age // 10 * 10}-{age // 10 * 10 + 9};*\n" for age in range(20, 40))
    sexes = "f;*\nm;*\n"
    (tmp_path / "adult_hierarchy_age.csv").write_text(ages)
    (tmp_path / "sex.csv").write_text(sexes)
    (tmp_path / "marriage.csv").write_text(sexes)
    found = hierarchies_in(tmp_path, ["age", "sex", "ill"])
    assert {name: one.height for name, one in found.items()} == {"age": 2, "sex": 1}
    # the file of another column that ends alike is not this one's
    (tmp_path / "other_hierarchy_page.csv").write_text(sexes)
    assert set(hierarchies_in(tmp_path, ["age"])) == {"age"}
    (tmp_path / "age.csv").write_text(ages)
    with pytest.raises(
        InvalidParameter, match=r"several hierarchies for 'age': adult_hierarchy_age\.csv, age\.csv; leave one"
    ):
        hierarchies_in(tmp_path, ["age"])
    with pytest.raises(SourceError, match="is not a folder"):
        hierarchies_in(tmp_path / "none", ["age"])
