"""A policy means exactly what was typed, says who is protected, and no text makes reading it fail in another way."""

import datetime as dt
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from dither.errors import InvalidParameter, InvalidPolicy, Refused
from dither.ledger import Account
from dither.policy.columns import point
from dither.policy.findings import Level
from dither.policy.policy import Policy, read
from dither.privacy import Adjacency
from dither.query.kinds import Auto, Interval, Kind
from dither.query.schema import ColumnFacts, TableFacts

GOOD = """\
[source]
database = "shop.duckdb"
name = "shop"
version = "2026-11"
ledger = "books/dither.ledger"
ledger_head = "/elsewhere/shop.head"

[budget]
epsilon_budget = 3.1
delta_budget = 1e-6
max_epsilon_per_query = 1.0
delta_per_query = 2.5e-8
default_epsilon = 0.1
round_answer_time_up_to = 0.25
adjacency = "replace"
analysts = "listed"

[analysts.ana]
epsilon_budget = 0.7
delta_budget = 1e-7
max_epsilon_per_query = 0.3

[analysts."Zo\u00eb B."]
epsilon_budget = 0.2

[tables.orders]
private = true
privacy_unit_column = "user_id"
max_groups_contributed = 4
max_rows_contributed = 10

[tables.orders.columns]
user_id = { type = "integer" }
amount = { type = "double", between = [-0.1, 100], step = 0.01 }
city = { type = "text", in = ["Bern", "Basel", "Z\u00fcrich", "\u0041arau"] }
rating = { type = "double", between = "auto" }
note = { type = "text", hidden = true }
day = { type = "date", between = [1969-12-31, 2026-12-31] }
at = { type = "timestamp", between = [1970-01-01T00:00:00, 1970-01-01T02:00:00.5+01:00] }
half = { type = "double", in = [0.5, 0.1, 2] }
size = { type = "integer", in = [3, 1], between = [0, 5] }
ok = { type = "boolean", in = [true, false] }

[tables."my shops"]
public = true
unique = [["id"], ["place", "street"]]
columns.id = { type = "integer" }
columns.place = { type = "text" }
columns.street.type = "text"
"""


def column(name, kind, **facts):
    return ColumnFacts(name=name, kind=kind, **facts)


def test_a_policy_means_what_was_typed():
    policy = Policy.parse(GOOD, base=Path("data"))
    assert policy.warnings == ()
    source, budget = policy.source, policy.budget
    assert (source.name, source.version) == ("shop", "2026-11")
    assert source.database == source.location == Path("data/shop.duckdb")
    assert source.ledger == Path("data/books/dither.ledger")
    assert source.ledger_head == Path("/elsewhere/shop.head")
    assert budget.epsilon_budget == Fraction(31, 10)
    assert budget.delta_budget == Fraction(1, 10**6)
    assert budget.max_epsilon_per_query == 1
    assert budget.delta_per_query == Fraction(25, 10**9)
    assert budget.default_epsilon == Fraction(1, 10)
    assert budget.round_answer_time_up_to == Fraction(1, 4)
    assert policy.schema.adjacency is Adjacency.REPLACE
    ana, zoe = policy.analysts["ana"], policy.analysts["Zo\u00eb B."]
    assert (ana.epsilon_budget, ana.delta_budget, ana.max_epsilon_per_query) == (
        Fraction(7, 10),
        Fraction(1, 10**7),
        Fraction(3, 10),
    )
    # a question can't be allowed more than all questions together
    assert (zoe.delta_budget, zoe.max_epsilon_per_query) == (None, Fraction(1, 5))


def test_the_schema_means_what_was_typed():
    tables = Policy.parse(GOOD).schema.tables
    assert tables["orders"] == TableFacts(
        name="orders",
        private=True,
        unit_column="user_id",
        groups=4,
        rows=10,
        columns={
            "user_id": column("user_id", Kind.INTEGER),
            "amount": column(
                "amount", Kind.DOUBLE, between=Interval(Fraction(-1, 10), Fraction(100)), step=Fraction(1, 100)
            ),
            "city": column("city", Kind.TEXT, keys=("Aarau", "Basel", "Bern", "Zürich")),
            "rating": column("rating", Kind.DOUBLE, between=Auto.AUTO),
            "note": column("note", Kind.TEXT, hidden=True),
            "day": column("day", Kind.DATE, between=Interval(Fraction(-1), Fraction(20818))),
            "at": column("at", Kind.TIMESTAMP, between=Interval(Fraction(0), Fraction(3_600_500_000))),
            "half": column("half", Kind.DOUBLE, keys=(0.1, 0.5, 2.0)),
            "size": column("size", Kind.INTEGER, keys=(1, 3), between=Interval(Fraction(0), Fraction(5))),
            "ok": column("ok", Kind.BOOLEAN, keys=(False, True)),
        },
    )
    assert tables["my shops"].unique == (frozenset({"id"}), frozenset({"place", "street"}))
    assert not tables["my shops"].private
    with pytest.raises(TypeError):
        tables["orders"].columns["x"] = column("x", Kind.TEXT)


def test_defaults_are_the_cautious_ones():
    policy = Policy.parse(
        '[source]\nfiles = { visits = "v/*.csv" }\n'
        '[budget]\nepsilon_budget = 2\ndelta_budget = 1e-5\nanalysts = "any"\n'
        '[tables.visits]\nprivate = true\nprivacy_unit_column = "id"\ncolumns.id.type = "text"\n',
        base="d",
    )
    assert policy.source.name == "visits"
    assert policy.source.location == {"visits": Path("d/v/*.csv")}
    assert policy.source.ledger == Path("d/visits.ledger")
    assert (policy.source.version, policy.source.ledger_head) == (None, None)
    assert policy.budget.max_epsilon_per_query == 2
    assert policy.budget.delta_per_query == Fraction(1, 10**7)
    assert policy.budget.default_epsilon is None
    assert policy.budget.round_answer_time_up_to == 0
    assert policy.schema.adjacency is Adjacency.ADD_REMOVE
    assert (policy.schema.tables["visits"].groups, policy.schema.tables["visits"].rows) == (1, 1)
    assert Policy.parse(GOOD.replace('name = "shop"\n', "")).source.name == "shop"
    pure = Policy.parse(re.sub(r"delta.*\n", "", GOOD))
    assert (pure.budget.delta_budget, pure.budget.delta_per_query) == (0, 0)
    assert re.sub('analysts = "listed"\n', "", GOOD) != GOOD
    assert Policy.parse(re.sub('analysts = "listed"\n', "", GOOD)).budget.analysts == "listed"


def test_what_waits_for_the_owner_and_what_is_shared():
    plain = Policy.parse(GOOD)
    assert (plain.budget.needs_approval_above, plain.budget.share_answers) == (None, False)
    assert plain.analyst("ana").needs_approval_above is None
    text = GOOD.replace('analysts = "listed"', 'analysts = "any"\nneeds_approval_above = 0.3\nshare_answers = true')
    text = text.replace("[analysts.ana]", "[analysts.ana]\nneeds_approval_above = 0.05")
    policy = Policy.parse(text)
    assert (policy.budget.needs_approval_above, policy.budget.share_answers) == (Fraction(3, 10), True)
    found = [policy.analyst(name).needs_approval_above for name in ("ana", "Zo\u00eb B.", "anybody")]
    assert found == [Fraction(1, 20), Fraction(3, 10), Fraction(3, 10)]
    # neither makes a recorded answer another one
    assert policy.fingerprint() == plain.fingerprint()


def test_several_files_need_a_name():
    text = GOOD.replace('database = "shop.duckdb"', 'files = { orders = "o.csv", "my shops" = "s.csv" }')
    assert Policy.parse(text).source.files["my shops"] == Path("s.csv")
    (found,) = read(text.replace('name = "shop"\n', ""), Path()).errors
    assert (found.key, found.write) == ("source", 'name = "shop"')


def test_a_file_is_read_with_its_directory_and_named_in_messages(tmp_path):
    (tmp_path / "my.toml").write_text("\ufeff" + GOOD, encoding="utf-8")
    assert Policy.load(tmp_path / "my.toml").source.database == tmp_path / "shop.duckdb"
    assert Policy.load(str(tmp_path / "my.toml")).schema == Policy.parse(GOOD).schema
    (tmp_path / "my.toml").write_text(GOOD.replace("epsilon_budget = 3.1", "epsilon_budget = 0"), encoding="utf-8")
    with pytest.raises(InvalidPolicy, match=r"^my\.toml, line 9, budget\.epsilon_budget: "):
        Policy.load(tmp_path / "my.toml")


def test_who_may_ask():
    policy = Policy.parse(GOOD)
    assert policy.analyst("ana").epsilon_budget == Fraction(7, 10)
    assert policy.analyst("Zoe\u0308 B.") is policy.analysts["Zo\u00eb B."]
    for name in ("eve", "owner", "Ana", "ana ", "ana/", ""):
        with pytest.raises(Refused) as refusal:
            policy.analyst(name)
        assert refusal.value.code == "unknown_analyst"
    public = Policy.parse(GOOD.replace('analysts = "listed"', 'analysts = "any"'))
    eve = public.analyst("eve")
    assert (eve.name, eve.epsilon_budget, eve.delta_budget, eve.max_epsilon_per_query) == ("eve", None, None, 1)
    assert public.analyst("ana").max_epsilon_per_query == Fraction(3, 10)
    for name in ("a/b", "", " eve", "e\nve"):
        with pytest.raises(Refused):
            public.analyst(name)


@given(st.text(max_size=5))
def test_a_name_that_may_ask_is_a_name_that_the_ledger_can_book(name):
    policy = Policy.parse(GOOD.replace('analysts = "listed"', 'analysts = "any"'))
    try:
        booked = Account(("shop", name)).path[1]
    except InvalidParameter:
        with pytest.raises(Refused):
            policy.analyst(name)
    else:
        assert policy.analyst(name).name == booked


def test_the_statement_names_every_unit_and_the_adjacency():
    policy = Policy.parse(GOOD + '\n[tables.log]\nprivate = true\nprivacy_unit = "row"\n')
    assert policy.unit_statement() == (
        'each row of table "log", each "user_id" of table "orders"; against changing everything that one unit\'s rows '
        "say, the number of units being public (replace)"
    )


def test_the_level_of_units_stays_when_tables_are_added():
    policy = Policy.parse(GOOD)
    with_users = Policy.parse(
        GOOD + '\n[tables.log]\nprivate = true\nprivacy_unit_column = "id"\ncolumns.id = { type = "integer" }\n'
    )
    with_rows = Policy.parse(GOOD + '\n[tables.log]\nprivate = true\nprivacy_unit = "row"\n')
    assert policy.unit_level() == with_users.unit_level() == "each id"
    assert with_rows.unit_level() == "each id or row"


# (what is changed, what it becomes): each of these gives another answer or another promise
AFFECTING = [
    ('adjacency = "replace"', 'adjacency = "add_remove"'),
    ("round_answer_time_up_to = 0.25", "round_answer_time_up_to = 0.5"),
    ("max_groups_contributed = 4", "max_groups_contributed = 5"),
    ("max_rows_contributed = 10", "max_rows_contributed = 11"),
    ('privacy_unit_column = "user_id"', 'privacy_unit_column = "size"'),
    ("between = [-0.1, 100]", "between = [-0.1, 100.01]"),
    ("step = 0.01", "step = 0.02"),
    ('"Bern", ', ""),
    ('between = "auto"', "between = [0, 5]"),
    (", hidden = true", ""),
    ("1969-12-31", "1969-12-30"),
    ("in = [0.5, 0.1, 2]", "in = [0.5, 0.1, 2.5]"),
    ("in = [true, false]", "in = [true]"),
    ('["id"], ', ""),
    ("[tables.orders]", "[tables.sales]"),
    ("columns.id", "columns.number"),
]
HARMLESS = [
    ("epsilon_budget = 3.1", "epsilon_budget = 9"),
    ("delta_per_query = 2.5e-8", "delta_per_query = 1e-8"),
    ('analysts = "listed"', 'analysts = "any"'),
    ("[analysts.ana]", "[analysts.bob]"),
    ('version = "2026-11"', 'version = "2026-12"'),
    ('database = "shop.duckdb"', 'database = "other.duckdb"'),
    ('["Bern", "Basel", ', '["Basel", "Bern", '),
    ("step = 0.01", "step = 0.0100"),
    ("[-0.1, 100]", "[-0.1, 1e2]"),
    ("# nothing", "# comment"),
]


def changed(old, new):
    text = GOOD.replace(old, new)
    if old == "[tables.orders]":
        text = text.replace("[tables.orders.", "[tables.sales.")
    if old == "columns.id":
        text = text.replace('["id"]', '["number"]')
    if old == "step = 0.01" and new == "step = 0.02":
        text = text.replace("-0.1, 100]", "-0.1, 100.00]")
    return text


@pytest.mark.parametrize(("old", "new"), AFFECTING, ids=[new for _, new in AFFECTING])
def test_the_fingerprint_changes_with_everything_that_affects_answers(old, new):
    assert Policy.parse(changed(old, new)).fingerprint() != Policy.parse(GOOD).fingerprint()


@pytest.mark.parametrize(("old", "new"), HARMLESS, ids=[new for _, new in HARMLESS])
def test_the_fingerprint_is_the_same_if_answers_are(old, new):
    assert Policy.parse(changed(old, new)).fingerprint() == Policy.parse(GOOD).fingerprint()


def test_the_fingerprint_is_permanent():
    # the ledger stores it: another value here would make every recorded question a new one
    assert Policy.parse(GOOD).fingerprint() == "b6bf74c048202af479d63818fc296ad9d55245cdb7b9e00ea36fc2b7c3339f61"


def test_a_point_in_time_is_a_number():
    assert point(dt.date(2000, 1, 1)) == 10957
    assert point(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)) == -1  # noqa: DTZ001


# --- no text makes reading a policy fail in another way than InvalidPolicy with a line

PIECES = [
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    ",",
    "=",
    "\n",
    "#",
    ".",
    "0",
    "-1",
    "1e400",
    "nan",
    "inf",
    "true",
    "false",
    '""',
]
PIECES += ["[[x]]", "auto", '"auto"', "2024-01-01", "07:32:00", "\\", "\u00e9", "'''", "[]", "{}", "9" * 30, "_"]
PIECES += [
    "private",
    "public = true\n",
    'privacy_unit = "row"\n',
    "tables",
    "columns",
    "in",
    "between",
    "\x00",
    "\ud7ff",
]


@st.composite
def mutated(draw):
    """A good policy with a few pieces put in, left out, doubled or exchanged."""
    text = GOOD
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        what = draw(st.integers(0, 3))
        if what == 0:
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[end:]
        elif what == 1:
            text = text[:at] + text[end:]
        else:
            lines = text.split("\n")
            one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            if what == 2:
                lines[one], lines[other] = lines[other], lines[one]
            else:
                name, equals, _ = lines[one].partition("=")
                lines[one] = name + equals + (lines[other].partition("=")[2] or draw(st.sampled_from(PIECES)))
            text = "\n".join(lines)
    return text


@settings(max_examples=400)
@given(mutated())
def test_a_mutated_policy_loads_or_is_refused_with_a_line(text):
    policy, problems = outcome(text)
    if policy is None:
        assert problems
        for problem in problems:
            line = re.match(r"dither\.toml, line (\d+)[,:]", problem)
            assert line is not None, problem
            assert 1 <= int(line.group(1)) <= text.count("\n") + 1
    else:
        assert len(policy.fingerprint()) == 64
        assert all(found.level is not Level.ERROR for found in policy.warnings)
        assert any(table.private for table in policy.schema.tables.values())


def outcome(text):
    try:
        return Policy.parse(text), []
    except InvalidPolicy as refusal:
        return None, refusal.problems


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["x", "auto", "row", "any", 1.5, "1e500", "inf"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(
        ["source", "budget", "tables", "analysts", "columns", "type", "in", "between", "private", "files", "unique", ""]
    ), inner, max_size=3),
    max_leaves=10,
))  # fmt: skip
def test_settings_of_any_shape_are_refused_with_a_line(shape):
    def toml(value):
        if isinstance(value, dict):
            return "{ " + ", ".join(f'"{k}" = {toml(v)}' for k, v in value.items()) + " }"
        if isinstance(value, list):
            return "[" + ", ".join(map(toml, value)) + "]"
        if isinstance(value, bool):
            return str(value).lower()
        return "2024-01-01" if value is None else str(value) if value in ("1e500", "inf") else repr(value)

    content = shape if isinstance(shape, dict) else {"tables": shape}
    text = "\n".join(f'"{name}" = {toml(value)}' for name, value in content.items())
    with pytest.raises(InvalidPolicy, match=r"line \d+"):
        Policy.parse(text)
