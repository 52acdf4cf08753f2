"""The scanner knows the line of every key and item: a law against tomllib, and against TOML whose lines are known."""

import tomllib
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dither.policy.line_numbers import SettingPlaces
from dither.policy.toml_text import Inexact, exact_number, toml_key, toml_number, toml_path, toml_value

TRICKY = """\
# [not.a.header]
bare = 1
"quoted key" = "[x]\\nnot = 1 # no comment"  # comment = 2
'literal \\ key' = '{a = 1, "'
a . b."c.d" = { x = [1, { y = 2 }], z.w = "}" }
long = \"\"\"
[also.not.a.header]
k = 1 \\\"\"\"
\"\"\"\"\"
raw = '''
k = 2''''
list = [
  # one
  "a", "b", # two ]
  [
    2024-01-01 10:00:00,
  ],
]
empty = []
none = {}

[tables . "my table".columns]
x = { type = "integer" }

[tables."my table"]
private = true

[[shop]]
n = 1
[[shop.item]]
k = 1
[[shop.item]]
k = 2
[[shop]]
[shop.owner]
name = ""
"""


def paths(value, path=()):
    """Every path in what tomllib read."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for part, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, part))


def test_every_kind_of_toml_has_its_line():
    places = SettingPlaces(TRICKY)
    lines = TRICKY.split("\n")

    def number(start):
        return next(i for i, line in enumerate(lines, 1) if line.startswith(start))

    assert set(places.lines) == set(paths(tomllib.loads(TRICKY)))
    expected = {
        ("bare",): number("bare"),
        ("quoted key",): number('"quoted'),
        ("literal \\ key",): number("'literal"),
        ("a", "b", "c.d", "x", 1, "y"): number("a . b"),
        ("a", "b", "c.d", "z", "w"): number("a . b"),
        ("long",): number("long"),
        ("raw",): number("raw"),
        ("list", 0): number('  "a"'),
        ("list", 1): number('  "a"'),
        ("list", 2): number("  ["),
        ("list", 2, 0): number("    2024"),
        ("none",): number("none"),
        ("tables",): number("[tables . "),
        ("tables", "my table"): number('[tables."my'),
        ("tables", "my table", "columns", "x", "type"): number("x = {"),
        ("tables", "my table", "private"): number("private"),
        ("shop", 0, "n"): number("n = 1"),
        ("shop", 0, "item", 1, "k"): number("k = 2"),
        ("shop", 1, "owner", "name"): number("name"),
    }
    # k = 2 also stands inside the raw string
    expected["shop", 0, "item", 1, "k"] = len(lines) - lines[::-1].index("k = 2")
    assert {path: places.lines[path] for path in expected} == expected


def test_lines_are_the_same_with_windows_line_ends():
    assert SettingPlaces(TRICKY.replace("\n", "\r\n")).lines == SettingPlaces(TRICKY).lines


def test_what_isnt_written_is_at_the_innermost_thing_around_it():
    places = SettingPlaces('[a]\n[a.b]\nx = [\n  1,\n]\n["c d"]\n')
    assert places.line(("a", "b", "missing")) == 2
    assert places.line(("a", "b", "x", 7)) == 3
    assert places.line(("c d", "missing", "deeper")) == 6
    assert places.line(("missing",)) == 1
    assert places.line(()) == 1


scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-(10**6), 10**6).map(lambda n: Fraction(n, 1024)),
    st.text(max_size=8),
    st.dates(),
    st.datetimes(),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


class Writer:
    """Writes a document in the style that hypothesis draws, and notes on which line each key comes to stand."""

    def __init__(self, draw):
        self.draw, self.text, self.lines = draw, "", {}

    @property
    def line(self):
        return self.text.count("\n") + 1

    def space(self):
        self.text += self.draw(st.sampled_from(["", " ", "\t "]))

    def gap(self):
        self.text += self.draw(st.sampled_from(["", " ", "\n", ' # a = [ "\n', "\n\n  "]))

    def key(self, name):
        styles = [toml_value(name)]
        if name and "'" not in name and name.isprintable():
            styles.append(f"'{name}'")
        if toml_key(name) == name:
            styles.append(name)
        self.text += self.draw(st.sampled_from(styles))

    def value(self, value, path):
        if isinstance(value, list):
            self.text += "["
            for number, item in enumerate(value):
                self.gap()
                self.lines[(*path, number)] = self.line
                self.value(item, (*path, number))
                self.gap()
                self.text += ","
            self.gap()
            self.text += "]"
        elif isinstance(value, dict):
            self.text += "{"
            for number, (name, item) in enumerate(value.items()):
                self.text += ", " if number else " "
                self.pair(name, item, path)
            self.text += " }"
        elif isinstance(value, str) and self.draw(st.booleans()):
            # a long string, broken after a backslash and with quotes inside
            inner = toml_value(value)[1:-1].replace(
                '\\"', '"' if '""' not in value and not value.endswith('"') else '\\"'
            )
            self.text += f'"""\n{inner}\\\n  """'
        else:
            self.text += toml_value(value)

    def pair(self, name, value, path):
        self.lines[(*path, name)] = self.line
        self.key(name)
        self.space()
        self.text += "="
        self.space()
        self.value(value, (*path, name))

    def section(self, content, path):
        tables = {name: part for name, part in content.items() if isinstance(part, dict) and self.draw(st.booleans())}
        for name, part in content.items():
            if name not in tables:
                self.pair(name, part, path)
                self.text += self.draw(st.sampled_from(["\n", " # [x]\n", "\n\n"]))
        for name, part in tables.items():
            self.lines[(*path, name)] = self.line
            self.text += "["
            for number, key in enumerate((*path, name)):
                self.text += "." if number else ""
                self.space()
                self.key(key)
                self.space()
            self.text += "]\n"
            self.section(part, (*path, name))


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.data())
def test_the_scanner_finds_the_lines_that_the_writer_wrote(content, data):
    writer = Writer(data.draw)
    writer.section(content, ())
    assert tomllib.loads(writer.text, parse_float=exact_number) == content
    assert dict(SettingPlaces(writer.text).lines) == writer.lines


def test_the_law_would_notice_a_scanner_that_is_one_line_off():
    text = "a = [\n1,\n2]\nb = 1"
    assert dict(SettingPlaces(text).lines) == {("a",): 1, ("a", 0): 2, ("a", 1): 3, ("b",): 4}
    assert dict(SettingPlaces("\n" + text).lines) != dict(SettingPlaces(text).lines)


@given(values)
def test_values_are_written_so_that_they_are_read_again(value):
    text = f"x = {toml_value(value)}"
    assert "\n" not in text
    assert tomllib.loads(text, parse_float=exact_number)["x"] == value


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_paths_are_written_as_headers(names):
    found = tomllib.loads(f"[{toml_path(tuple(names))}]")
    for name in names:
        assert list(found) == [name]
        found = found[name]


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("0.1", Fraction(1, 10)),
        ("1e-6", Fraction(1, 10**6)),
        ("+1_000.5", Fraction(2001, 2)),
        ("-0.0", Fraction(0)),
        ("1e308", Fraction(10**308)),
        ("6.02E23", Fraction(602 * 10**21)),
    ],
)
def test_numbers_are_the_decimals_that_were_typed(typed, number):
    assert exact_number(typed) == number
    assert tomllib.loads(f"x = {typed}", parse_float=exact_number)["x"] == number


@pytest.mark.parametrize(
    "typed", ["inf", "-inf", "nan", "+nan", "1e309", "1e999999999999999999999", "1e-999999", "0e9999"]
)
def test_what_isnt_a_finite_double_stays_text_and_is_quick(typed):
    assert isinstance(tomllib.loads(f"x = {typed}", parse_float=exact_number)["x"], Inexact)


def test_numbers_are_shown_as_people_write_them():
    shown = [toml_number(Fraction(n)) for n in ("3", "100", "-0.5", "0.0001", "0.00001", "1e-8", "2.5e-7", "123.456")]
    assert shown == ["3", "100", "-0.5", "0.0001", "1e-5", "1e-8", "2.5e-7", "123.456"]
