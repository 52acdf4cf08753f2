"""Every kind of mistake in a policy: found at its line, under its key, with a remedy that works when it is followed."""

import re
from pathlib import Path

import pytest

from dither.errors import InvalidPolicy
from dither.policy.findings import Level
from dither.policy.policy import Policy, read

GOOD = """\
[source]
database = "shop.duckdb"
name = "shop"
ledger = "shop.ledger"

[budget]
epsilon_budget = 3.0
delta_budget = 1e-6
max_epsilon_per_query = 1.0
delta_per_query = 1e-8
default_epsilon = 0.1

[analysts.ana]
epsilon_budget = 1.0
delta_budget = 1e-7
max_epsilon_per_query = 0.5

[tables.orders]
private = true
privacy_unit_column = "user_id"
max_groups_contributed = 4
max_rows_contributed = 10

[tables.orders.columns]
user_id = { type = "integer" }
amount = { type = "double", between = [0, 100], step = 0.01 }
city = { type = "text", in = ["Basel", "Bern"] }
day = { type = "date", between = [2024-01-01, 2026-12-31] }
ok = { type = "boolean" }

[tables.shops]
public = true
unique = [["id"]]

[tables.shops.columns]
id = { type = "integer" }
"""
REPLACE, REMOVE, BELOW = "replace the line", "remove the line", "write it below"


def followed(text, found, remedy):
    """The text after the owner has done what the finding says."""
    lines = text.rstrip("\n").split("\n")
    at = found.line - 1
    middle = {REPLACE: [found.write], REMOVE: [], BELOW: [lines[at], found.write]}[remedy]
    return "\n".join([*lines[:at], *middle, *lines[at + 1 :]]) + "\n"


AMOUNT = 'amount = { type = "double", between = [0, 100], step = 0.01 }'
CITY = 'city = { type = "text", in = ["Basel", "Bern"] }'
DAY = 'day = { type = "date", between = [2024-01-01, 2026-12-31] }'
USER = 'user_id = { type = "integer" }'
UNIT = 'privacy_unit_column = "user_id"'
BUDGET = "epsilon_budget = 3.0"
# (the line that is changed, what it becomes, the key, words of the message, what to write, how to follow the advice)
MISTAKES = [
    ('database = "shop.duckdb"', "database = 3", "source.database", "found 3", 'database = "shop.duckdb"', REPLACE),
    ('database = "shop.duckdb"', None, "source", "where the data is", 'database = "shop.duckdb"', BELOW),
    ('database = "shop.duckdb"', 'database = "s3://b/shop"', "source.database", "on this machine",
     'database = "shop.duckdb"', REPLACE),
    ('name = "shop"', "name = 2026", "source.name", "found 2026", 'name = "2026"', REPLACE),
    ('name = "shop"', 'name = "a/b"', "source.name", 'no "/"', 'name = "shop"', REPLACE),
    ('name = "shop"', 'nmae = "shop"', "source.nmae", "did you mean name?", 'name = "shop"', REPLACE),
    ('name = "shop"', 'name = "shop"\nversion = 2026', "source.version", "found 2026", 'version = "2026"', REPLACE),
    ('ledger = "shop.ledger"', 'ledger = "shop.duckdb"', "source.ledger", "already used", 'ledger = "shop.ledger2"',
     REPLACE),
    ('ledger = "shop.ledger"', 'ledger = "l"\nledger_head = "./l"', "source.ledger_head", "already used",
     'ledger_head = "shop.head2"', REPLACE),
    ('ledger = "shop.ledger"', 'ledger = "shop.ledger"\nfiles = { orders = "o.csv" }', "source.files", "not both", "",
     REMOVE),
    ('ledger = "shop.ledger"', "ledger = true", "source.ledger", "found true", 'ledger = "shop.ledger"', REPLACE),
    (BUDGET, None, "budget", "epsilon_budget is missing", "epsilon_budget = 1.0", BELOW),
    (BUDGET, "epsilon_budget = 0", "budget.epsilon_budget", "above 0", "epsilon_budget = 1.0", REPLACE),
    (BUDGET, "epsilon_budget = inf", "budget.epsilon_budget", "found inf", "epsilon_budget = 1.0", REPLACE),
    (BUDGET, "epsilon_budget = nan", "budget.epsilon_budget", "found nan", "epsilon_budget = 1.0", REPLACE),
    (BUDGET, "epsilon_budget = 1e999999999", "budget.epsilon_budget", "found 1e9", "epsilon_budget = 1.0", REPLACE),
    (BUDGET, 'epsilon_budget = "3"', "budget.epsilon_budget", 'found "3"', "epsilon_budget = 1.0", REPLACE),
    (BUDGET, "epsilon_budget = true", "budget.epsilon_budget", "found true", "epsilon_budget = 1.0", REPLACE),
    (BUDGET, "epsilon = 3.0", "budget.epsilon", "did you mean epsilon_budget?", "epsilon_budget = 3", REPLACE),
    ("delta_budget = 1e-6", "delta_budget = 1", "budget.delta_budget", "below 1", "delta_budget = 1e-6", REPLACE),
    ("delta_budget = 1e-6", "delta_budget = -0.1", "budget.delta_budget", "below 1", "delta_budget = 1e-6", REPLACE),
    ("delta_budget = 1e-6", "delta_budget = 1e-16",
     "budget.delta_budget", "from 1e-15", "delta_budget = 1e-6", REPLACE),
    ("max_epsilon_per_query = 1.0", "max_epsilon_per_query = 4.0", "budget.max_epsilon_per_query",
     "at most the epsilon_budget, 3", "max_epsilon_per_query = 3", REPLACE),
    ("default_epsilon = 0.1", "default_epsilon = 1.5",
     "budget.default_epsilon", "at most the max_epsilon_per_query, 1;",
     "default_epsilon = 1", REPLACE),
    ("delta_per_query = 1e-8", "delta_per_query = 6e-7", "budget.delta_per_query", "at most half of delta_budget, 5e-7",
     "delta_per_query = 1e-8", REPLACE),
    ("delta_per_query = 1e-8", "delta_per_query = 0", "budget.delta_per_query", "more than 0", "delta_per_query = 1e-8",
     REPLACE),
    ("default_epsilon = 0.1", 'adjacency = "swap"', "budget.adjacency", '"add_remove" or "replace"',
     'adjacency = "add_remove"', REPLACE),
    ("default_epsilon = 0.1", 'analysts = "all"',
     "budget.analysts", '"listed" or "any"', 'analysts = "listed"', REPLACE),
    ("default_epsilon = 0.1", "round_answer_time_up_to = -1", "budget.round_answer_time_up_to", "from 0 to 86400",
     "round_answer_time_up_to = 0.5", REPLACE),
    ("default_epsilon = 0.1", "needs_approval_above = 0", "budget.needs_approval_above", "a number above 0",
     "needs_approval_above = 0.5", REPLACE),
    ("default_epsilon = 0.1", 'share_answers = "yes"', "budget.share_answers", "true or false",
     "share_answers = true", REPLACE),
    ("default_epsilon = 0.1", "private = true", "budget.private", "belongs under [tables.NAME]", "", REMOVE),
    ("default_epsilon = 0.1", "zzz = true",
     "budget.zzz", "unknown setting; expected one of epsilon_budget", "", REMOVE),
    ("[analysts.ana]", '[analysts."a/b"]', 'analysts."a/b"', 'no "/"', "[analysts.ana]", REPLACE),
    ("[analysts.ana]", '[analysts."a\\u0007"]',
     'analysts."a\\u0007"', "no control characters", "[analysts.ana]", REPLACE),
    ("max_epsilon_per_query = 0.5", "max_epsilon_per_query = 2", "analysts.ana.max_epsilon_per_query",
     "at most the analyst's epsilon_budget, 1", "max_epsilon_per_query = 1", REPLACE),
    ("delta_budget = 1e-7", "delta_budget = 0",
     "analysts.ana.delta_budget", "both 0 or both above", "delta_budget = 1e-6",
     REPLACE),
    ("epsilon_budget = 1.0", None, "analysts.ana", "epsilon_budget is missing", "epsilon_budget = 1.0", BELOW),
    ("private = true", None, "tables.orders", "private", "private = true", BELOW),
    ("private = true", "private = false", "tables.orders.private", "found false", "public = true", None),
    ("private = true", "private = true\npublic = true", "tables.orders.public", "not both", "", REMOVE),
    ("private = true", "privat = true", "tables.orders.privat", "did you mean private?", "private = true", REPLACE),
    (UNIT, None, "tables.orders", "who is protected", UNIT, BELOW),
    (UNIT, UNIT + '\nprivacy_unit = "row"', "tables.orders.privacy_unit", "not both", "", REMOVE),
    (UNIT, 'privacy_unit_column = "user"',
     "tables.orders.privacy_unit_column", 'did you mean "user_id"?', UNIT, REPLACE),
    (USER, None, "tables.orders.privacy_unit_column", "isn't declared", USER, None),
    ("max_groups_contributed = 4", "max_groups_contributed = 0", "tables.orders.max_groups_contributed", "from 1",
     "max_groups_contributed = 4", REPLACE),
    ("max_groups_contributed = 4", "max_groups_contributed = 4.0", "tables.orders.max_groups_contributed",
     "whole number", "max_groups_contributed = 4", REPLACE),
    ("max_rows_contributed = 10", "max_rows_contributed = -3", "tables.orders.max_rows_contributed", "from 1",
     "max_rows_contributed = 10", REPLACE),
    ("max_rows_contributed = 10", 'unique = [["id"]]', "tables.orders.unique[1]", '"id" isn\'t declared', "", None),
    ("max_rows_contributed = 10", "rows_per_unit_at_most = 0", "tables.orders.rows_per_unit_at_most", "from 1",
     "rows_per_unit_at_most = 366", REPLACE),
    ("max_rows_contributed = 10", "one_row_per_unit = false", "tables.orders.one_row_per_unit", "leave it out",
     "one_row_per_unit = true", REPLACE),
    ("max_rows_contributed = 10", "one_row_per_unit = true\nrows_per_unit_at_most = 3",
     "tables.orders.rows_per_unit_at_most", "Remove one of the two", "", REMOVE),
    ("public = true", "public = true\none_row_per_unit = true", "tables.shops.one_row_per_unit",
     "nobody is protected", "", REMOVE),
    (AMOUNT, "amount = 3", "tables.orders.columns.amount", "found 3", 'amount = { type = "text" }', REPLACE),
    (AMOUNT, 'amount = "DOUBLE"', "tables.orders.columns.amount", "at least a type", 'amount = { type = "double" }',
     REPLACE),
    (AMOUNT, "amount = { step = 1 }", "tables.orders.columns.amount", "type is missing",
     'amount = { type = "text", step = 1 }', None),
    (AMOUNT, 'amount = { type = "float", between = [0, 1] }', "tables.orders.columns.amount.type", '"double"',
     'amount = { type = "double", between = [0, 1] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", bounds = [0, 1] }', "tables.orders.columns.amount.bounds",
     "did you mean between?", 'amount = { type = "double", between = [0, 1] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [100, 0.5] }', "tables.orders.columns.amount.between",
     "lower bound first", 'amount = { type = "double", between = [0.5, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [7, 7.0] }', "tables.orders.columns.amount.between",
     "both different", 'amount = { type = "double", between = [0, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [0, inf] }', "tables.orders.columns.amount.between",
     "two finite numbers", 'amount = { type = "double", between = [0, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [0] }', "tables.orders.columns.amount.between",
     "found [0]", 'amount = { type = "double", between = [0, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [2024-01-01, 2025-01-01] }', "tables.orders.columns.amount.between",
     "as the type is double; found 2024-01-01", 'amount = { type = "double", between = [0, 100] }', REPLACE),
    (DAY, 'day = { type = "date", between = ["2024-01-01", "2024-12-31"] }', "tables.orders.columns.day.between",
     "dates without quotes", 'day = { type = "date", between = [2024-01-01, 2024-12-31] }', REPLACE),
    (DAY, 'day = { type = "date", between = ["1. 1. 2024", "today"] }', "tables.orders.columns.day.between",
     "dates without quotes", DAY, REPLACE),
    (DAY, 'day = { type = "timestamp", between = ["2024-06-01 12:00:00", "2024-01-01"] }',
     "tables.orders.columns.day.between", "dates without quotes",
     'day = { type = "timestamp", between = [2024-01-01T00:00:00, 2024-06-01T12:00:00] }', REPLACE),
    (DAY, 'day = { type = "timestamp", between = ["2024-06-01T12:00:00Z", "2024-07-01"] }',
     "tables.orders.columns.day.between", "dates without quotes",
     'day = { type = "timestamp", between = [2024-01-01T00:00:00, 2026-12-31T23:59:59] }', REPLACE),
    (AMOUNT, 'amount = { type = "integer", between = [0, 1.5] }', "tables.orders.columns.amount.between",
     "whole numbers", 'amount = { type = "integer", between = [0, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "integer", between = [0, 9223372036854775808] }',
     "tables.orders.columns.amount.between",
     "64 bits", 'amount = { type = "integer", between = [0, 100] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [0, 100], step = 0.03 }', "tables.orders.columns.amount.step",
     "multiples of the step 0.03", 'amount = { type = "double", between = [0, 100.02], step = 0.03 }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [0.5, 1.5], step = 1 }', "tables.orders.columns.amount.step",
     "multiples of the step 1", 'amount = { type = "double", between = [0, 2], step = 1 }', REPLACE),
    (AMOUNT, 'amount = { type = "double", between = [0.5, 2], step = 1 }', "tables.orders.columns.amount.step",
     "found [0.5, 2]", 'amount = { type = "double", between = [0, 2], step = 1 }', REPLACE),
    (AMOUNT, 'amount = { type = "double", step = 0 }', "tables.orders.columns.amount.step", "above 0",
     'amount = { type = "double", step = 0.01 }', REPLACE),
    (AMOUNT, 'amount = { type = "integer", step = 0.5 }', "tables.orders.columns.amount.step", "whole number",
     'amount = { type = "integer", step = 1 }', REPLACE),
    (AMOUNT, 'amount = { type = "integer", in = [1, "2"] }', "tables.orders.columns.amount.in[2]", 'found "2"',
     'amount = { type = "integer", in = [1, 2, 3] }', REPLACE),
    (AMOUNT, 'amount = { type = "integer", between = [0, 9], in = [1, 20] }', "tables.orders.columns.amount.in",
     "20 contradicts between", 'amount = { type = "integer", between = [0, 9], in = [1] }', REPLACE),
    (AMOUNT, 'amount = { type = "double", step = 0.5, in = [0.25, 1] }', "tables.orders.columns.amount.in",
     "0.25 contradicts", 'amount = { type = "double", step = 0.5, in = [1] }', REPLACE),
    (CITY, 'city = { type = "text", in = [] }', "tables.orders.columns.city.in", "isn't empty",
     'city = { type = "text", in = ["Basel", "Bern"] }', REPLACE),
    (CITY, 'city = { type = "text", in = ["a", "b", "a"] }', "tables.orders.columns.city.in[3]", "listed twice",
     'city = { type = "text", in = ["a", "b"] }', REPLACE),
    (CITY, 'city = { type = "text", between = [0, 1] }', "tables.orders.columns.city.between", "has no bounds",
     'city = { type = "text" }', REPLACE),
    (CITY, 'city = { type = "text", step = 1 }', "tables.orders.columns.city.step", "for numbers",
     'city = { type = "text" }', REPLACE),
    (CITY, 'city = { type = "text", hidden = "yes" }', "tables.orders.columns.city.hidden", "true or false",
     'city = { type = "text", hidden = true }', REPLACE),
    (CITY, CITY + '\nCITY = { type = "text" }', "tables.orders.columns.CITY", "upper and lower case", "", REMOVE),
    (CITY, CITY + "\nmax_rows_contributed = 5",
     "tables.orders.columns.max_rows_contributed", "above the columns' header", "", REMOVE),
    (DAY, 'day = { type = "date", between = "auto" }', "tables.orders.columns.day.between", "can't be searched",
     'day = { type = "date", between = [2024-01-01, 2026-12-31] }', REPLACE),
    (DAY, 'day = { type = "date", between = [2024-01-01T00:00:00, 2026-12-31] }', "tables.orders.columns.day.between",
     "dates such as", 'day = { type = "date", between = [2024-01-01, 2026-12-31] }', REPLACE),
    (DAY, 'day = { type = "timestamp", in = [2024-01-01] }', "tables.orders.columns.day.in[1]", "timestamps such as",
     'day = { type = "timestamp", in = [2026-01-31T12:00:00] }', REPLACE),
    ("public = true", "public = true\nmax_rows_contributed = 3", "tables.shops.max_rows_contributed",
     "nobody is protected", "", REMOVE),
    ("public = true", 'public = true\nprivacy_unit = "row"', "tables.shops.privacy_unit", "nobody is protected", "",
     REMOVE),
    ('unique = [["id"]]', 'unique = [["id", "place"]]',
     "tables.shops.unique[1]", '"place" isn\'t declared', "", REMOVE),
    ('unique = [["id"]]', 'unique = ["id"]', "tables.shops.unique", "a list of lists", 'unique = [["id"]]', REPLACE),
    ("[tables.shops]", "[tables.ORDERS]", "tables.ORDERS", "upper and lower case", "", None),
    ("[budget]", "[bugdet]", "bugdet", "did you mean budget?", "[budget]", REPLACE),
    ("[budget]", "[limits]", "limits", "unknown section; expected [source]", "", None),
    ("[source]", "epsilon_budget = 3\n[source]", "epsilon_budget", "belongs under [budget]", "", REMOVE),
]  # fmt: skip


def names(mistakes):
    return [f"{key}: {words}" for _, _, key, words, _, _ in mistakes]


@pytest.mark.parametrize(("old", "new", "key", "words", "write", "remedy"), MISTAKES, ids=names(MISTAKES))
def test_each_mistake_has_its_place_and_a_remedy_that_works(old, new, key, words, write, remedy):
    lines = GOOD.split("\n")
    at = lines.index(old)
    text = "\n".join([*lines[:at], *([] if new is None else new.split("\n")), *lines[at + 1 :]])
    found = [f for f in read(text, Path()).findings if f.level is Level.ERROR and f.key == key and words in str(f)]
    assert len(found) == 1, read(text, Path()).errors
    (problem,) = found
    assert problem.write == write
    # the line is the one that was changed, or the header of the section in which something is missing
    if new is not None and key.split(".")[-1].split("[")[0].strip('"') in new:
        assert problem.line in range(at + 1, at + 2 + new.count("\n"))
    with pytest.raises(InvalidPolicy) as refusal:
        Policy.parse(text)
    assert f"dither.toml, line {problem.line}, {key}: " in str(refusal.value)
    assert any(words in line for line in refusal.value.problems)
    if remedy is not None:
        Policy.parse(followed(text, problem, remedy))


def test_the_table_of_mistakes_would_notice_a_policy_that_accepts_everything():
    Policy.parse(GOOD)
    assert len({(old, new) for old, new, *_ in MISTAKES}) == len(MISTAKES) > 80


def test_every_problem_is_said_at_once():
    text = GOOD.replace("epsilon_budget = 3.0", "epsilon_budget = -1").replace('"Bern"', '"Basel"')
    text = text.replace("max_groups_contributed = 4", "max_groups_contributed = 0").replace("name =", "nam =")
    text = text.replace("delta_per_query = 1e-8", "delta_per_query = 1e-2").replace("[0, 100]", "[100, 0]")
    with pytest.raises(InvalidPolicy) as refusal:
        Policy.parse(text)
    keys = [re.search(r", line \d+, (\S+):", problem).group(1) for problem in refusal.value.problems]
    assert keys == [
        "source.nam",
        "budget.epsilon_budget",
        "budget.delta_per_query",
        "tables.orders.max_groups_contributed",
        "tables.orders.columns.amount.between",
        "tables.orders.columns.city.in[2]",
    ]


def test_settings_of_a_column_on_lines_of_their_own_get_lines_of_their_own():
    text = GOOD + '\n[tables.shops.columns.size]\ntype = "double"\nbetween = [9, 0]\n'
    (problem,) = read(text, Path()).errors
    assert (problem.line, problem.write) == (text[: text.index("between = [9")].count("\n") + 1, "between = [0, 9]")
    Policy.parse(followed(text, problem, REPLACE))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", {"[source]\n", "[budget]\n", "[tables.orders]\n"}),
        ("[tables]\n[source]\n[budget]\n", {"database =", "epsilon_budget =", "[tables.orders]\n"}),
        ("source = 1\nbudget = []\ntables = 'x'\nanalysts = 3",
         {"[source]\n", "[budget]\n", "[tables.orders]", "[analysts.ana]"}),
    ],
)  # fmt: skip
def test_what_is_missing_altogether_is_named_with_the_section_to_write(text, missing):
    errors = read(text, Path()).errors
    assert all(any(found.write.startswith(start) for found in errors) for start in missing), errors
    assert len(errors) == len(missing)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[source]\nname = "a\n', 2, "this isn't TOML"),
        ("[source]\n\nname = shop\n", 3, "this isn't TOML"),
        ('a = 1\n[source]\nname = "x"\nname = "y"\n', 4, "overwrite"),
        ('[source\nname = "a"', 1, "this isn't TOML"),
        ("a = [1,\n2,\n", 3, "this isn't TOML"),
        ("\n\na = " + "9" * 5000, 3, "thousands of digits"),
        ("a = " + "[" * 5000 + "]" * 5000, 1, "nested too deeply"),
    ],
)
def test_what_isnt_toml_is_reported_with_its_line(text, line, words):
    (found,) = read(text, Path()).findings
    assert (found.level, found.line) == (Level.ERROR, line)
    assert words in found.message
    with pytest.raises(InvalidPolicy, match=f"line {line}"):
        Policy.parse(text)


WARNINGS = [
    ("delta_budget = 1e-6", "delta_budget = 0.01", "budget.delta_budget", "table of 100 people", "delta_budget = 1e-6"),
    ("epsilon_budget = 1.0", "epsilon_budget = 4.0",
     "analysts.ana.epsilon_budget", "dataset's, 3", "epsilon_budget = 3"),
    ("delta_budget = 1e-7", "delta_budget = 1e-5", "analysts.ana.delta_budget", "dataset's, 1e-6",
     "delta_budget = 1e-6"),
    (USER, 'user_id = { type = "integer", in = [1, 2] }', "tables.orders.columns.user_id", "only 2 of them", USER),
    (USER, 'user_id = { type = "boolean" }', "tables.orders.columns.user_id", "two values only", ""),
    (USER, 'user_id = { type = "double" }', "tables.orders.columns.user_id", "become one unit", USER),
    ('public = true\nunique = [["id"]]', 'private = true\nprivacy_unit = "row"', "tables.shops",
     "can't be combined in one question", ""),
    ("[analysts.ana]\nepsilon_budget = 1.0\ndelta_budget = 1e-7\nmax_epsilon_per_query = 0.5\n", "", "budget",
     "only the owner may ask", 'analysts = "any"'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "words", "write"), WARNINGS, ids=[w[3] for w in WARNINGS])
def test_what_is_doubtful_is_a_warning_and_loads(old, new, key, words, write):
    assert old in GOOD
    policy = Policy.parse(GOOD.replace(old, new, 1))
    (found,) = policy.warnings
    assert (found.level, found.key, found.write) == (Level.WARNING, key, write)
    assert words in found.message


def test_people_have_one_kind_of_id():
    text = GOOD + '\n[tables.users]\nprivate = true\nprivacy_unit_column = "id"\ncolumns.id = { type = "text" }\n'
    (found,) = read(text, Path()).errors
    assert (found.key, found.write) == ("tables.users.columns.id", 'id = { type = "integer" }')
    Policy.parse(text.replace('columns.id = { type = "text" }', 'columns.id = { type = "integer" }'))


def test_a_row_has_no_contribution_to_bound():
    text = GOOD.replace(UNIT, 'privacy_unit = "row"')
    assert [found.key for found in read(text, Path()).errors] == [
        "tables.orders.max_groups_contributed",
        "tables.orders.max_rows_contributed",
    ]
    assert all("one row in one group" in found.message for found in read(text, Path()).errors)


def test_a_policy_without_a_private_table_is_refused():
    text = GOOD[: GOOD.index("[tables.orders]")] + GOOD[GOOD.index("[tables.shops]") :]
    (found,) = read(text, Path()).errors
    assert "nothing to protect" in found.message


def test_one_file_is_not_private_and_public_at_once():
    text = GOOD.replace('database = "shop.duckdb"', 'files = { orders = "a/../o.csv", shops = "o.csv" }')
    (found,) = read(text, Path()).errors
    assert (found.key, found.write) == ("tables.shops.public", "private = true")
    assert "same file" in found.message


def test_every_table_needs_a_file():
    text = GOOD.replace('database = "shop.duckdb"', 'files = { orders = "o.csv" }')
    (found,) = read(text, Path()).errors
    assert (found.key, found.write) == ("tables.shops", 'files = { orders = "o.csv", shops = "shops.parquet" }')


def test_two_spellings_of_a_name_are_not_two_budgets():
    text = GOOD + '\n[analysts."zo\\u00eb"]\nepsilon_budget = 1\n[analysts."zoe\\u0308"]\nepsilon_budget = 1\n'
    (found,) = read(text, Path()).errors
    assert "another spelling" in found.message


def test_messages_are_short_even_if_values_are_long():
    (found,) = read(GOOD.replace("epsilon_budget = 3.0", f'epsilon_budget = "{"x" * 5000}"'), Path()).errors
    assert len(str(found)) < 300
    (found,) = read(GOOD.replace("epsilon_budget = 3.0", "epsilon_budget = 0x" + "f" * 5000), Path()).errors
    assert len(str(found)) < 300


def test_files_that_cant_be_read_are_said_without_a_trace(tmp_path):
    with pytest.raises(InvalidPolicy, match="dither init"):
        Policy.load(tmp_path / "none.toml")
    with pytest.raises(InvalidPolicy, match="dither init"):
        Policy.load(tmp_path)
    with pytest.raises(InvalidPolicy, match="dither init"):
        Policy.load("a\0b")
    (tmp_path / "latin.toml").write_bytes(b"[source]\n# caf\xe9\n")
    with pytest.raises(InvalidPolicy, match=r"latin\.toml, line 2: this isn't UTF-8"):
        Policy.load(tmp_path / "latin.toml")
