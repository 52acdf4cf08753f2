"""Drafts parse whatever the catalogue holds, never guess who is protected, and get advice that completes them."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dither.errors import InvalidParameter, InvalidPolicy
from dither.policy.advice.advice import advise
from dither.policy.catalogue import KINDS, decimal_step, fits, kind_of, type_name
from dither.policy.draft.draft import draft, write_new
from dither.policy.findings import Level
from dither.policy.policy import Policy, read
from dither.query.kinds import Kind

SHOP = {
    "orders": {
        "order_id": "BIGINT",
        "user_id": "INTEGER",
        "amount": "DECIMAL(10,2)",
        "weight": "DOUBLE",
        "city": "VARCHAR",
        "day": "DATE",
        "at": "TIMESTAMP WITH TIME ZONE",
        "paid": "BOOLEAN",
        "photo": "BLOB",
        "tags": "VARCHAR[]",
        "mood": "ENUM('very private', 'x')",
    },
    "shops": {"id": "INTEGER", "place": "VARCHAR"},
}


def findings(text, description, level=None):
    found = advise(read(text, Path()), description)
    return [one for one in found if level is None or one.level is level]


def place(lines, text, found):
    """The text with the lines of a finding put where the owner would put them: below the place, or instead of it."""
    split = text.split("\n")
    return "\n".join([*split[: found.line - 1 + (lines == "below")], found.write, *split[found.line :]])


def test_a_draft_has_every_table_and_column_with_its_type():
    raw = tomllib.loads(draft(SHOP, "data/shop.duckdb"))
    assert raw["source"] == {"database": "data/shop.duckdb", "name": "shop"}
    assert {table: list(part["columns"]) for table, part in raw["tables"].items()} == {
        table: list(columns) for table, columns in SHOP.items()
    }
    types = {name: column["type"] for name, column in raw["tables"]["orders"]["columns"].items()}
    assert types == {
        "order_id": "integer",
        "user_id": "integer",
        "amount": "double",
        "weight": "double",
        "city": "text",
        "day": "date",
        "at": "timestamp",
        "paid": "boolean",
        "photo": "text",
        "tags": "text",
        "mood": "text",
    }
    hidden = [name for name, column in raw["tables"]["orders"]["columns"].items() if column.get("hidden")]
    assert hidden == ["photo", "tags"]


def test_a_draft_is_cautious():
    text = draft(SHOP, "shop.duckdb")
    raw = tomllib.loads(text)
    assert all(table["private"] is True for table in raw["tables"].values())
    assert not any("privacy_unit" in key for table in raw["tables"].values() for key in table)
    with pytest.raises(InvalidPolicy, match="who is protected"):
        Policy.parse(text)
    # the values of an enumeration are data, though they stand in the catalogue
    assert "very private" not in text
    assert '# privacy_unit_column = "user_id"' in text
    assert text.index('"user_id"') < text.index('# privacy_unit_column = "order_id"')
    assert "# TODO: amount = { type = \"double\", between = [LOW, HIGH], step = 0.01 }" in text  # fmt: skip


def test_a_draft_completed_by_its_advice_loads():
    text = draft(SHOP, "shop.duckdb")
    errors = findings(text, SHOP, Level.ERROR)
    assert [(one.key, one.write) for one in errors] == [
        ("tables.orders", 'privacy_unit_column = "user_id"'),
        # nothing there says who is a person: the placeholder fails loudly, "row" would not
        ("tables.shops", 'privacy_unit_column = "COLUMN"'),
    ]
    text = place("below", text, replace(errors[1], write='privacy_unit = "row"'))
    text = place("below", text, errors[0])
    policy = Policy.parse(text)
    assert policy.schema.tables["orders"].unit_column == "user_id"
    hints = findings(text, SHOP, Level.HINT)
    assert {(one.key, one.write) for one in hints} == {
        ("tables.orders", "one_row_per_unit = true"),
        ("tables.orders.columns.amount", 'amount = { type = "double", between = [LOW, HIGH], step = 0.01 }'),
        ("tables.orders.columns.weight", 'weight = { type = "double", between = [LOW, HIGH] }'),
        ("tables.orders.columns.city", 'city = { type = "text", in = ["A", "B"] }'),
        ("tables.orders.columns.mood", 'mood = { type = "text", in = ["A", "B"] }'),
        ("tables.shops.columns.place", 'place = { type = "text", in = ["A", "B"] }'),
    }
    for hint in hints:
        kind = "below" if hint.write.startswith("one_") else "instead"
        done = place(kind, text, hint).replace("LOW", "0").replace("HIGH", "9")
        left = [(one.key, one.message) for one in findings(done, SHOP, Level.HINT)]
        assert (hint.key, hint.message) not in left
        assert len(left) == len(hints) - 1


names = st.text(max_size=6) | st.sampled_from(
    ["user id", 'a"b', "a'b", "ü", "a.b", "a\nb", "\u2028", "[x]", "# x", "id"]
)
types = st.sampled_from(
    [*KINDS, "DECIMAL(18,3)", "BLOB", "INTEGER[]", "STRUCT(a INTEGER)", "ENUM('a\n', ')')", "", "\n"]
)
catalogues = st.dictionaries(names, st.dictionaries(names, types | st.text(max_size=6), max_size=4), max_size=3)


@given(catalogues, st.text(max_size=8))
def test_a_draft_of_any_catalogue_parses_and_gets_advice(description, source):
    text = draft(description, source)
    raw = tomllib.loads(text)
    assert {table: list(part["columns"]) for table, part in raw.get("tables", {}).items()} == {
        table: list(columns) for table, columns in description.items()
    }
    assert raw["source"]["database"] == source
    found = findings(text, description)
    unclear = {one.key for one in found if "who is protected" in one.message}
    twins = {one.key for one in found if "upper and lower case" in one.message}
    tables = [key for key in twins if key.count(".") == 1 and ".columns" not in key]
    assert len(unclear) + len(tables) >= len({name.casefold() for name in description})
    assert all(one.line <= text.count("\n") + 1 for one in found)
    # a draft differs from its own catalogue in nothing
    assert not [one for one in found if "no such" in one.message or "isn't declared" in one.message]
    assert not [one for one in found if "declared as" in one.message]


@given(catalogues)
def test_files_are_drafted_by_table(description):
    files = {name: f"{number}.parquet" for number, name in enumerate(description)}
    if files:
        raw = tomllib.loads(draft(description, files))
        assert raw["source"]["files"] == files
        assert raw["source"]["name"]


def test_csv_files_have_no_types_to_contradict():
    description = {"visits": {"when": "VARCHAR", "n": "VARCHAR", "b": "BLOB"}}
    text = draft(description, {"visits": "visits.CSV.gz"})
    assert "a CSV file has no types" in text
    text = text.replace('n = { type = "text" }', 'n = { type = "integer" }').replace(", hidden = true", "")
    assert [one.key for one in findings(text, description, Level.ERROR)] == [
        "tables.visits",
        "tables.visits.columns.b",
    ]
    parquet = text.replace("visits.CSV.gz", "visits.parquet")
    assert "tables.visits.columns.n" in [one.key for one in findings(parquet, description, Level.ERROR)]


def test_an_existing_file_is_never_overwritten(tmp_path):
    path = tmp_path / "dither.toml"
    assert write_new(path, "# ü\n").read_bytes() == "# ü\n".encode()
    with pytest.raises(InvalidParameter, match="exists already"):
        write_new(path, "other")
    assert path.read_text(encoding="utf-8") == "# ü\n"
    with pytest.raises(InvalidParameter, match="directory that exists"):
        write_new(tmp_path / "none" / "dither.toml", "")


GOOD = """\
[source]
database = "shop.duckdb"
[budget]
epsilon_budget = 1
delta_budget = 1e-6
analysts = "any"
[tables.orders]
private = true
privacy_unit_column = "user_id"
max_groups_contributed = 1
max_rows_contributed = 1
[tables.orders.columns]
user_id = { type = "integer" }
amount = { type = "double", between = [0, 100], step = 0.01 }
city = { type = "text", in = ["Basel", "Bern"] }
"""
CATALOGUE = {"orders": {"user_id": "BIGINT", "amount": "DECIMAL(10,2)", "city": "VARCHAR"}}


def test_a_complete_policy_needs_no_advice():
    assert findings(GOOD, CATALOGUE) == []
    assert advise(Policy.parse(GOOD), CATALOGUE) == []


# (what is changed, what it becomes, the catalogue, level, key, words, what to write)
ADVICE = [
    ("", "", {}, Level.ERROR, "tables.orders", "it has no tables", ""),
    ("", "", {"Orders": CATALOGUE["orders"]}, Level.ERROR, "tables.orders", 'did you mean "Orders"?',
     "[tables.Orders]"),
    ("", "", {"orders": {**CATALOGUE["orders"], "x": "DATE"}}, Level.HINT, "tables.orders.columns", '"x" of the source',
     'x = { type = "date" }'),
    ("", "", {**CATALOGUE, "log": {"user": "UUID"}}, Level.HINT, "tables", '"log" of the source',
     '[tables.log]\nprivate = true\nprivacy_unit_column = "user"\n[tables.log.columns]\nuser = { type = "text" }'),
    ("city =", "cty =", CATALOGUE, Level.ERROR, "tables.orders.columns.cty", 'did you mean "city"?',
     'city = { type = "text", in = ["Basel", "Bern"] }'),
    ("city =", "zzz =", CATALOGUE, Level.ERROR, "tables.orders.columns.zzz", "Remove the line", ""),
    ("", "", {"orders": {**CATALOGUE["orders"], "city": "INTEGER"}}, Level.ERROR, "tables.orders.columns.city",
     "declared as text, but the column is of type INTEGER", 'city = { type = "integer", in = ["Basel", "Bern"] }'),
    ("", "", {"orders": {**CATALOGUE["orders"], "city": "JSON"}}, Level.ERROR, "tables.orders.columns.city",
     "JSON, which questions can't use", 'city = { type = "text", in = ["Basel", "Bern"], hidden = true }'),
    (", step = 0.01", "", CATALOGUE, Level.HINT, "tables.orders.columns.amount", "no step",
     'amount = { type = "double", between = [0, 100], step = 0.01 }'),
    (', in = ["Basel", "Bern"]', "", CATALOGUE, Level.HINT, "tables.orders.columns.city", "costs δ",
     'city = { type = "text", in = ["A", "B"] }'),
    ("epsilon_budget = 1", "epsilon_budget = 11", CATALOGUE, Level.WARNING, "budget.epsilon_budget",
     "a suspicion of 10% about one person becomes at least 0.0% and at most 100.0%", "epsilon_budget = 1.0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "catalogue", "level", "key", "words", "write"), ADVICE, ids=[a[5] for a in ADVICE]
)
def test_each_piece_of_advice_has_its_place_and_line(old, new, catalogue, level, key, words, write):
    text = GOOD.replace(old, new, 1) if old else GOOD
    found = [one for one in findings(text, catalogue, level) if one.key == key and words in one.message]
    assert len(found) == 1, findings(text, catalogue)
    assert found[0].write == write


def test_without_a_delta_keys_cant_be_discovered():
    text = GOOD.replace("delta_budget = 1e-6\n", "").replace(', in = ["Basel", "Bern"]', "")
    (found,) = findings(text, CATALOGUE)
    assert "can't be grouped by" in found.message


def test_a_budget_up_to_ten_is_not_large_and_absurd_ones_have_words():
    assert findings(GOOD.replace("epsilon_budget = 1", "epsilon_budget = 10"), CATALOGUE) == []
    text = GOOD.replace("epsilon_budget = 1", "epsilon_budget = 1000000").replace("1e-6", "0.7")
    assert {one.key for one in findings(text, CATALOGUE, Level.WARNING)} == {
        "budget.epsilon_budget",
        "budget.delta_budget",
    }


def test_what_isnt_toml_gets_one_finding():
    (found,) = findings("[source", CATALOGUE)
    assert found.level is Level.ERROR


def test_advice_comes_in_order_errors_first():
    text = draft(SHOP, "shop.duckdb").replace("epsilon_budget = 1.0", "epsilon_budget = 20")
    found = findings(text, {**SHOP, "new": {}})
    order = [Level.ERROR, Level.WARNING, Level.HINT]
    assert [one.level for one in found] == sorted((one.level for one in found), key=order.index)
    assert {one.level for one in found} == set(order)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("engine_type", "kind"),
    [
        ("INTEGER", Kind.INTEGER),
        ("uhugeint", Kind.INTEGER),
        ("DECIMAL(18,3)", Kind.DOUBLE),
        ("NUMERIC", Kind.DOUBLE),
        ("VARCHAR(10)", Kind.TEXT),
        ("character varying(3)", Kind.TEXT),
        ("UUID", Kind.TEXT),
        ("TIMESTAMP_NS", Kind.TIMESTAMP),
        ("TIMESTAMP(6) WITH TIME ZONE", Kind.TIMESTAMP),
        ("TIMESTAMP WITH TIME ZONE", Kind.TIMESTAMP),
        ("TIME", None),
        ("INTERVAL", None),
        ("DECIMAL(3,1)[]", None),
        ("STRUCT(a INTEGER)", None),
        ("MAP(VARCHAR, INTEGER)", None),
        ("ENUM('a')[]", None),
        ("", None),
    ],
)
def test_types_of_engines_have_kinds(engine_type, kind):
    assert kind_of(engine_type) is kind


def test_a_type_is_named_without_its_arguments():
    assert type_name("ENUM('INTEGER')") == "ENUM"
    assert type_name("STRUCT(ssn VARCHAR)") == "STRUCT"
    assert decimal_step("NUMERIC(4)") == 1
    assert decimal_step("DECIMAL(38, 10)") * 10**10 == 1


def test_only_what_loses_nothing_fits():
    assert fits(Kind.DOUBLE, "BIGINT")
    assert fits(Kind.INTEGER, "DECIMAL(10,0)")
    assert fits(Kind.TIMESTAMP, "DATE")
    for declared, engine_type in (
        (Kind.INTEGER, "DOUBLE"),
        (Kind.INTEGER, "DECIMAL(10,2)"),
        (Kind.DATE, "TIMESTAMP"),
        (Kind.TEXT, "BIGINT"),
        (Kind.BOOLEAN, "INTEGER"),
        (Kind.TEXT, "BLOB"),
    ):
        assert not fits(declared, engine_type)
