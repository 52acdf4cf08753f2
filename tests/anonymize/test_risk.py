"""The risk report against counting by hand: every combination, every attacker, and what it says about columns."""

import math
from collections import Counter
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.risks import combinations as search
from dither.anonymize.risks.attackers import Attacker, Band, exposure
from dither.anonymize.risks.report import FOR_THE_OWNER, Notice, percent
from dither.anonymize.risks.risk import risk
from dither.anonymize.table.row_keys import alike, order_of
from dither.errors import InvalidData, InvalidParameter
from support.sizes import examples


def by_hand(table, columns):
    """The size of the class of each row."""
    rows = [
        tuple("missing" if v is None or v != v else v for v in row.values())
        for row in table.select(columns).to_pylist()
    ]
    sizes = Counter(rows)
    return [sizes[row] for row in rows], sizes


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 30))
    table = {}
    for place in range(draw(st.integers(1, 5))):
        values = draw(
            st.sampled_from(
                [
                    st.integers(0, 3),
                    st.one_of(st.none(), st.sampled_from("abc")),
                    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
                    st.booleans(),
                    st.just("same"),
                    st.integers(0, 1000),
                ]
            )
        )
        table[f"c{place}"] = draw(st.lists(values, min_size=rows, max_size=rows))
    # a column that another one determines, so that branches are copied
    if draw(st.booleans()):
        table["copy"] = [str(value) if value == value else None for value in table["c0"]]
        table["copy"] = [
            None if v is None or v != v else f"x{abs(v) if isinstance(v, float) else v}" for v in table["c0"]
        ]
    return pa.table(table)


@examples(40, 100)
@given(table=tables(), most=st.integers(1, 4), k=st.integers(1, 6))
def test_every_combination_is_counted_as_by_hand(table, most, k):
    report = risk(table, most=most, k=k)
    left_out = {each.name for each in report.columns if each.notice in (Notice.IDENTIFIER, Notice.CONSTANT)}
    usual = [name for name in table.column_names if name not in left_out]
    expected = {(name,) for name in table.column_names}
    expected |= {names for size in range(1, most + 1) for names in combinations(usual, size)}
    assert {found.columns for found in report.combinations} == expected
    for found in report.combinations:
        of_row, sizes = by_hand(table, list(found.columns))
        assert found.rows == table.num_rows
        assert found.classes == len(sizes)
        assert found.unique == sum(size == 1 for size in of_row)
        assert found.smallest == min(of_row)
        assert found.small == sum(size < k for size in of_row)
        assert found.expected == pytest.approx(sum(1 / size for size in of_row) / table.num_rows)
    order = [(-found.unique, -found.classes) for found in report.combinations]
    assert order == sorted(order)


def test_it_counts_less_than_it_reports(monkeypatch):
    """Branches that can't tell anything new are copied: their columns are never split."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 40, 2_000)
    table = pa.table({"a": codes, "b": codes % 8, "c": codes % 4, "d": rng.integers(0, 3, 2_000)})
    splits = []
    whole = search._split
    monkeypatch.setattr(search, "_split", lambda *given, **how: splits.append(1) or whole(*given, **how))
    report = risk(table, most=4)
    assert len(report.combinations) == 15
    assert len(splits) < 15
    assert {each.name: each.determined_by for each in report.columns} == {"a": None, "b": "a", "c": "a", "d": None}
    assert report.quasi_identifiers[:2] == ("a", "d")


@pytest.mark.parametrize("least", [1, 1 << 62])
def test_keys_that_are_too_long_to_pack_are_sorted_otherwise(least, monkeypatch):
    # with a large bound keys have no room for the place and are sorted the other way
    monkeypatch.setattr(search, "order_of", lambda keys, bound: order_of(keys, max(bound, least)))
    rng = np.random.default_rng(1)
    table = pa.table({name: rng.integers(0, 300, 3_000) for name in "abc"})
    for found in risk(table).combinations:
        of_row, sizes = by_hand(table, list(found.columns))
        assert (found.classes, found.unique) == (len(sizes), of_row.count(1))


@pytest.mark.parametrize("sizes", [(3, 4, 5), (3, 400, 450), (1 << 20, 1 << 21, 1 << 22)])
def test_rows_that_are_alike_are_one_class(sizes):
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, size, 500).astype(np.int32) for size in sizes]
    first, classes, counts = alike(columns, sizes)
    rows = list(zip(*(codes.tolist() for codes in columns), strict=True))
    number = first.size
    assert number == len(set(rows)) == len(set(classes.tolist()))
    assert counts.tolist() == np.bincount(classes).tolist()
    assert len(set(zip(classes.tolist(), rows, strict=True))) == number


def test_columns_are_noticed_and_ranked():
    rng = np.random.default_rng(3)
    n = 1_000
    names = [f"person {i}" for i in range(n)]
    names[:20] = ["?"] * 20
    table = pa.table(
        {
            "country": ["CH"] * n,
            "sex": rng.integers(0, 2, n),
            "name": names,
            "age": rng.integers(0, 90, n),
            "postcode": pa.array(rng.integers(8000, 8400, n)).dictionary_encode(),
            "weight": [None if i % 10 == 0 else float(i % 50) for i in range(n)],
        }
    )
    report = risk(table)
    assert [each.name for each in report.columns] == ["name", "postcode", "age", "weight", "sex", "country"]
    noticed = {each.name: each.notice for each in report.columns}
    assert noticed == {**dict.fromkeys(table.column_names), "name": Notice.IDENTIFIER, "country": Notice.CONSTANT}
    assert report.quasi_identifiers == ("postcode", "age", "weight", "sex")
    by_name = {each.name: each for each in report.columns}
    assert by_name["weight"].missing == 100
    assert by_name["name"].gain is None
    shares = np.bincount(table["sex"].to_numpy()) / n
    assert by_name["sex"].bits == pytest.approx(-(shares * np.log2(shares)).sum())
    assert by_name["country"].bits == 0
    # what a column adds, by hand: the mean over every combination with it of classes per row, less those without it
    gains = []
    for size in range(3):
        for others in combinations(["postcode", "age", "weight"], size):
            without = len(by_hand(table, list(others))[1]) if others else 1
            gains.append((len(by_hand(table, [*others, "sex"])[1]) - without) / n)
    assert by_name["sex"].gain == pytest.approx(math.fsum(gains) / len(gains))
    assert report.minimal_sets(0.5)[0].columns == ("name",)
    assert report.minimal_sets(1.1) == ()
    assert report.exposure.columns == report.of_size(3)[0].columns == ("age", "postcode", "weight")


def test_too_many_combinations_are_searched_among_the_most_telling_columns():
    rng = np.random.default_rng(4)
    table = pa.table({f"c{i}": rng.integers(0, 2 + i, 200) for i in range(10)})
    every = {found.columns: found for found in risk(table).combinations}
    report = risk(table, limit=60)
    assert len(every) == 10 + 45 + 120
    assert len(report.of_size(2)) == 45
    assert 0 < len(report.of_size(3)) <= 60
    assert all(found == every[found.columns] for found in report.combinations)
    assert report.of_size(3)[0] == risk(table).of_size(3)[0]
    assert "among the 6 most telling columns only, of 10" in report.notes[0]
    few = risk(table, limit=1)
    assert len(few.of_size(1)) == 10
    assert len(few.combinations) == 10
    assert few.notes == ("combinations of 2 columns or more weren't searched: limit allows for 1 in all",)


def test_work_is_watched():
    rng = np.random.default_rng(5)
    seen = []
    risk(pa.table({f"c{i}": rng.integers(0, 9, 100) for i in range(8)}), watch=lambda share, doing: seen.append(share))
    assert seen == sorted(seen)
    assert seen[-1] <= 1
    assert len(seen) > 5


# ------------------------------------------------------------------ attackers

SAMPLE = pa.table({"sex": ["f", "f", "m", "m", "m"], "town": ["Bern", "Bern", "Bern", "Chur", "Chur"]})
EVERYBODY = pa.table(
    {"town": ["Bern"] * 6 + ["Chur"] * 4, "sex": ["f"] * 4 + ["m"] * 2 + ["m"] * 3 + ["f"], "more": list(range(10))}
)


def test_the_three_attackers_by_hand():
    alone = exposure(SAMPLE, ["sex", "town"], k=2)
    assert (alone.rows, alone.classes, alone.smallest, alone.unique) == (5, 3, 1, 1)
    assert alone.prosecutor == Attacker(at_risk=1 / 5, highest=1.0, success=3 / 5)
    assert alone.journalist is None
    assert alone.marketer == 3 / 5
    assert alone.bands == (Band(low=1, high=1, classes=1, rows=1), Band(low=2, high=2, classes=2, rows=4))
    # classes of 2, 1 and 2 rows have 4, 2 and 3 people alike in the population
    known = exposure(SAMPLE, ["sex", "town"], k=4, population=EVERYBODY)
    assert known.prosecutor == Attacker(at_risk=1.0, highest=1.0, success=3 / 5)
    assert known.journalist.at_risk == 3 / 5
    assert known.journalist.highest == 1 / 2
    assert known.journalist.success == pytest.approx((2 / 4 + 1 / 2 + 2 / 3) / 5)
    assert known.marketer == known.journalist.success
    assert known.absent == 0


def test_people_whom_the_population_lacks_are_said():
    known = exposure(SAMPLE, ["sex", "town"], population=EVERYBODY.slice(2))
    assert known.absent == 0
    known = exposure(SAMPLE, ["sex", "town"], population=EVERYBODY.slice(3))
    assert known.absent == 1
    assert known.journalist.highest == 1 / 2
    report = risk(SAMPLE, ["sex", "town"], population=EVERYBODY.slice(3))
    assert "1 row has no counterpart in the population" in str(report)


@examples(40, 100)
@given(table=tables(), extra=st.integers(0, 3))
def test_the_journalist_is_never_worse_off_with_fewer_people(table, extra):
    """The table itself as the population: the prosecutor's risk; more people: no more risk."""
    same = exposure(table, table.column_names, population=table)
    assert same.journalist == same.prosecutor
    assert same.absent == 0
    more = exposure(table, table.column_names, population=pa.concat_tables([table] * (1 + extra)))
    assert more.journalist.success == pytest.approx(same.prosecutor.success / (1 + extra))


def test_bands_hold_everybody_once():
    sizes = [1, 2, 3, 4, 5, 9, 10, 120]
    table = pa.table({"group": [place for place, size in enumerate(sizes) for _ in range(size)]})
    bands = exposure(table, ["group"]).bands
    assert sum(band.rows for band in bands) == sum(sizes)
    assert [(str(band), band.classes, band.rows) for band in bands if band.classes] == [
        ("1", 1, 1),
        ("2", 1, 2),
        ("3–4", 2, 7),
        ("5–9", 2, 14),
        ("10–19", 1, 10),
        ("100–999", 1, 120),
    ]


def test_a_population_of_another_type_is_read_alike_or_refused():
    table = pa.table({"age": pa.array([1, 2], pa.int32())})
    assert exposure(table, ["age"], population=pa.table({"age": ["1", "2", "2"]})).journalist.success == 0.75
    with pytest.raises(InvalidParameter, match="'age' of the population has another type"):
        exposure(table, ["age"], population=pa.table({"age": ["young"]}))
    with pytest.raises(InvalidParameter, match="the population has no column 'age'"):
        exposure(table, ["age"], population=pa.table({"years": [1]}))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"columns": ["sex", "height"]}, "the table has no column 'height'; it has sex, town"),
        ({"columns": []}, "at least one column"),
        ({"columns": ["sex", "sex"]}, "named twice"),
        ({"columns": "sex"}, "list of names"),
        ({"most": 0}, "most"),
        ({"k": 0}, "k"),
    ],
)
def test_what_is_asked_wrong_is_explained(arguments, told):
    with pytest.raises(InvalidParameter, match=told):
        risk(SAMPLE, **arguments)


def test_lists_are_left_out_and_empty_tables_refused():
    table = SAMPLE.append_column("seen", pa.array([[1], [2], [3], [4], [5]]))
    assert risk(table).notes == ("left out, since they hold lists or records: seen",)
    with pytest.raises(InvalidParameter, match="'seen' holds lists or records"):
        risk(table, ["seen"])
    with pytest.raises(InvalidParameter, match="no column has plain values"):
        risk(table.select(["seen"]))
    with pytest.raises(InvalidData, match="no rows"):
        risk(SAMPLE.slice(0, 0))


def test_one_row_is_alone():
    report = risk(SAMPLE.slice(0, 1))
    assert {each.notice for each in report.columns} == {Notice.IDENTIFIER}
    assert report.exposure.prosecutor.highest == 1


# ------------------------------------------------------------------ how it looks


class Page(HTMLParser):
    """Notices what is left open, and whatever a page loads from elsewhere."""

    EMPTY = frozenset({"meta", "path", "use", "rect", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.names = [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.names += [given["id"]] if "id" in given else []
        self.loaded += [v for k, v in attributes if k in ("src", "href", "xlink:href") and not v.startswith("#")]
        if tag in ("script", "link", "iframe", "object"):
            self.loaded.append(tag)

    def handle_startendtag(self, tag, attributes):
        given = dict(attributes)
        self.names += [given["id"]] if "id" in given else []

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path):
    columns = {"<b>sex</b> $x_1$": ["f", "f", "m", "m"], "town & more": ["a", "b", "a", "a"]}
    report = risk(pa.table(columns))
    page = report.save(tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    reader = Page()
    reader.feed(page)
    assert reader.open == []
    assert reader.loaded == []
    assert len(set(reader.names)) == len(reader.names)
    assert FOR_THE_OWNER in page
    assert page.count("<svg") == 2
    assert page.count('<span class="bar"') == 2
    assert "<b>sex" not in page
    assert "&lt;b&gt;sex&lt;/b&gt; $x_1$ + town &amp; more" in page
    assert 'name="viewport"' in page
    with pytest.raises(InvalidParameter, match=r"saved as \.html"):
        report.save(tmp_path / "report.pdf")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParameter, match="can't be written"):
        report.save(tmp_path / "file" / "report.html")


def test_the_page_shows_no_value_of_the_data():
    secret = ["Zaphod", "Zaphod", "Ford", "Trillian"]
    report = risk(pa.table({"name": secret, "age": [4711, 4711, 4712, 4711]}))
    for text in (report.to_html(), str(report)):
        assert FOR_THE_OWNER in text
        assert not any(value in text for value in ("Zaphod", "Ford", "Trillian", "4711"))


def test_the_text_says_what_was_found():
    table = pa.table({"id": range(40), "age": [i % 20 for i in range(40)], "sex": [i // 20 for i in range(40)]})
    lines = str(risk(table, k=3)).splitlines()
    assert "As good as names, and not combined with others: id." in lines
    assert "age + sex are enough to single out 100% of the rows." in lines
    assert any(line.startswith("age + sex ") and line.split()[3:] == ["100%", "100%", "1", "100%"] for line in lines)
    flat = str(risk(table.select(["sex"])))
    assert "No combination of up to 3 columns leaves half of the rows alone." in flat
    one = pa.table({"a": [1, 1, 2], "b": [1, 1, 1]})
    assert "No combination of one column leaves half" in str(risk(one, most=1))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (1e-9, "< 0.01%"),
        (0.99999, "> 99.99%"),
        (0.996, "99.6%"),
        (0.9996, "99.96%"),
        (0.5, "50%"),
        (0.034, "3.4%"),
        (0.0034, "0.34%"),
    ],
)
def test_shares_are_never_rounded_to_none_or_all(share, text):
    assert percent(share) == text
