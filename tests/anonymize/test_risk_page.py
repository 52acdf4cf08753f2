"""The page and the text of a risk report: names that come with the data, small tables, words that fit the numbers."""

import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from dither.anonymize import risk
from dither.anonymize.risks.report import FOR_THE_OWNER

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></svg></table>",
    "\x1b[31mred\x1b[0m",
    "two\nlines\r",
    "\u202eturned",
    "$x_1$ \\frac{1",
    "年齢",
    "",
    "a name that is longer than any name should be, as tools for questionnaires make them: question 17b",
]


class Read(HTMLParser):
    """Every element with its attributes, and the text outside of style sheets and pictures."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.inside = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("style", "svg"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.text.append(data)


@pytest.fixture(scope="module")
def hostile():
    rng = np.random.default_rng(0)
    return risk(pa.table({name: rng.integers(0, 3 + 7 * place, 300) for place, name in enumerate(HOSTILE)}), most=2)


def test_names_of_columns_are_only_ever_text(hostile):
    page = hostile.to_html()
    read = Read(page)
    plain = Read(risk(pa.table({"a": [1, 1, 2], "b": [1, 2, 2]})).to_html())
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in plain.elements} | {"small"}
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    told = "".join(read.text)
    for name in HOSTILE[:4] + HOSTILE[7:9] + HOSTILE[10:]:
        assert name in told
    assert "(no name)" in told
    assert FOR_THE_OWNER in told


def test_nothing_is_loaded_and_nothing_runs(hostile):
    read = Read(hostile.to_html())
    assert not {"script", "link", "iframe", "img", "object", "embed", "form", "base"} & {
        tag for tag, _ in read.elements
    }
    places = [value for _, given in read.elements for name, value in given.items() if name.endswith(("href", "src"))]
    assert all(value.startswith("#") for value in places)
    style = "".join(re.findall(r"<style.*?</style>", hostile.to_html(), re.DOTALL))
    assert "url(" not in style.replace("url(#", "")
    assert "@import" not in style


@pytest.mark.parametrize("form", [str, lambda report: report.to_html()], ids=["text", "page"])
def test_no_name_steers_a_terminal_or_turns_a_line(hostile, form):
    written = form(hostile)
    assert all(letter.isprintable() or letter == "\n" for letter in written)
    assert "�[31mred�[0m" in written
    assert "two�lines�" in written


def test_a_note_can_t_steer_either():
    table = pa.table({"a": [1, 1, 2], "\x1b]0;x\x07": [[1], [2], [3]]})
    for written in (str(risk(table)), risk(table).to_html()):
        assert "\x1b" not in written
        assert "lists or records: �]0;x�" in written


def test_the_page_is_readable_in_the_dark(hostile):
    page = hostile.to_html()
    assert "prefers-color-scheme: dark" in page
    assert "color-scheme: light dark" in page


def test_bars_are_as_long_as_what_columns_add(hostile):
    bars = re.findall(r"\* ([\d.]+)\)\"></span>(-?[\d.]+)", hostile.to_html())
    combined = [each for each in hostile.columns if each.gain is not None]
    assert len(bars) == len(combined)
    most = max(each.gain for each in combined)
    for (length, number), column in zip(bars, combined, strict=True):
        assert float(length) == pytest.approx(column.gain / most, abs=0.001)
        assert float(number) == pytest.approx(100 * column.gain, abs=0.006)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"a": [1], "b": ["x"]}, "No other column tells people apart."),
        ({"a": [1] * 5, "b": ["x"] * 5}, "No column tells people apart."),
        ({"a": range(9), "b": range(9)}, "As good as names, and not combined with others: a, b."),
        ({"a": range(9), "b": [1] * 9}, "No other column tells people apart."),
    ],
    ids=["one row", "constant", "names", "a name"],
)
def test_where_nothing_can_be_combined_the_report_says_so(columns, told):
    report = risk(pa.table(columns))
    assert told in str(report).splitlines()
    assert "known " not in str(report)
    page = report.to_html()
    assert told in page
    assert page.count("<svg") == 1
    assert "How many are alone" not in page


def test_one_of_a_thing_is_written_as_one():
    text = str(risk(pa.table({"a": [1]})))
    assert text.startswith("1 row, 1 column. ")
    assert "meets 1 class; the smallest has 1 row" in text
    assert "5 rows, 1 column. " in str(risk(pa.table({"a": [1, 1, 1, 2, 2]})))


def test_without_a_population_the_marketer_is_bounded_and_with_one_known():
    table = pa.table({"a": [1, 1, 2]})
    alone, known = risk(table, ["a"]), risk(table, ["a"], population=pa.concat_tables([table, table]))
    assert "Marketer (matches everybody): at most 67% of the rows are expected to be identified." in str(alone)
    assert "Marketer (matches everybody): 33% of the rows are expected to be identified." in str(known)
    assert "≤ 67%" in alone.to_html()
    assert "≤" not in known.to_html()
