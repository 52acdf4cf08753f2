"""The owner's commands on files as people have them."""

import json
from fractions import Fraction

import pytest

from dither.curator import Curator
from dither.errors import Refused
from dither.policy import Policy
from dither.query.intake import Limits
from dither.server.problems import problem_of

ONE = Fraction(1, 100)
CSV = 'files = { orders = "orders.csv" }'
COUNT = "SELECT COUNT(*) AS n FROM orders"


@pytest.fixture
def apart(start, tmp_path):
    """Type a command in a process of its own; lines that a terminal breaks are joined."""

    def command(*arguments):
        process = start(*arguments, cwd=tmp_path, more={"COLUMNS": "10000"})
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    return command


@pytest.fixture
def typed(run, tmp_path, monkeypatch):
    """The same, quicker, in this process."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        said = run(*arguments)
        return said.status, said.out, said.err

    return command


def rows(path, *lines, count=1000, ending=""):
    """People of whom each has one order, of three groups of amounts."""
    made = [f"{i}{ending},{('Basel', 'Bern')[i % 2]},{i % 50}" for i in range(count)]
    path.write_text("\n".join(["customer,city,amount", *made, *lines]) + "\n", encoding="utf-8")


def answer(said):
    status, out, err = said
    assert status == 0, err
    return json.loads(out)["rows"][0]["n"]


def test_ids_as_pandas_writes_them_count(tmp_path, apart, written):
    # ε = 1 on a count of one row each: the noise of 3 rows at most is below 100 but for a chance of e^-33
    written.policy(tmp_path, CSV)
    rows(tmp_path / "orders.csv", ending=".0")
    assert abs(answer(apart("ask", COUNT, "--epsilon", "1", "--format", "json")) - 1000) < 100


def test_a_line_with_an_open_quote_is_told_and_nothing_is_charged(tmp_path, apart, typed, written):
    written.policy(tmp_path, CSV)
    rows(tmp_path / "orders.csv", '"1,Basel,3', "2,Bern,4")
    for command in (("check", "--data"), ("ask", COUNT, "--epsilon", "1")):
        status, _, err = apart(*command)
        assert status == 1
        assert "orders.csv, line 1002, column 1: the quote that is opened here is never closed" in err
    assert not (tmp_path / "shop.ledger").exists()
    # names and prices need no values
    assert typed("check")[0] == 0
    assert typed("price", COUNT, "--epsilon", "1")[0] == 0


def test_blanks_around_texts_are_told_and_cut_off_where_the_policy_says_so(tmp_path, typed, written):
    columns = ("[tables.orders.columns]", '[tables.orders.columns]\nnote = { type = "text" }')
    lines = "".join(f"{i},Basel,1, a\n" for i in range(1000))
    (tmp_path / "orders.csv").write_text("customer,city,amount,note\n" + lines, encoding="utf-8")
    asked = ("ask", COUNT + " WHERE note = 'a'", "--epsilon", "1", "--format", "json")
    for trim, expected in (("", 0), ("\ntrim = true", 1000)):
        written.policy(tmp_path, CSV + trim)
        policy = tmp_path / "dither.toml"
        policy.write_text(policy.read_text(encoding="utf-8").replace(*columns), encoding="utf-8")
        status, out, _ = typed("check", "--data")
        assert status == 0
        told = "1,000 of 1,000 rows (100%) have blanks around the text in column note" in out
        assert told is (not trim)
        assert abs(answer(typed(*asked)) - expected) < 100


def test_too_much_that_is_left_out_is_an_error_until_the_policy_says_so(tmp_path, typed, written):
    written.policy(tmp_path, CSV)
    rows(tmp_path / "orders.csv", *["x,Genf,3"] * 30)
    status, out, _ = typed("check", "--data")
    assert status == 1
    assert "error: dither.toml, line 23, tables.orders.columns.customer: 30 of 1,030 rows (2.91%) can't be read" in out
    assert "30 of 1,030 rows (2.91%) have no customer, and count in no answer" in out
    assert "30 of 1,030 rows (2.91%) have a value of city that isn't listed" in out
    assert "unlisted_up_to = 0.05" in out
    status, out, err = typed("ask", COUNT, "--epsilon", "1")
    assert (status, out, "the data isn't opened" in err) == (1, "", True)
    assert not (tmp_path / "shop.ledger").exists()
    said = "\nunreadable_up_to = 0.05\nwithout_unit_up_to = 0.05\nunlisted_up_to = 0.05"
    written.policy(tmp_path, CSV + said)
    status, out, err = typed("ask", COUNT, "--epsilon", "1", "--format", "json")
    assert "new data: table orders: 30 of 1,030 rows (2.91%) have no customer" in err
    # the answer has nothing of it
    assert "1,030" not in out
    # told once
    assert "new data" not in typed("ask", COUNT, "--epsilon", "1")[2]
    # a version that was accepted stays open, and check says what it would say of another
    written.policy(tmp_path, CSV)
    assert typed("ask", COUNT, "--epsilon", "1")[0] == 0
    status, out, _ = typed("check", "--data")
    assert (status, out.count("warning: dither.toml, line 23")) == (0, 2)


def test_typed_sources_are_reported_too(tmp_path, typed, written):
    written.data(tmp_path)
    written.policy(tmp_path)
    policy = (tmp_path / "dither.toml").read_text(encoding="utf-8").replace('["Basel", "Bern"]', '["Basel"]')
    (tmp_path / "dither.toml").write_text(policy, encoding="utf-8")
    status, out, _ = typed("check", "--data")
    assert status == 1
    assert "600 of 900 rows (66.7%) have a value of city that isn't listed under in" in out
    # it was asked about before, and still is
    assert typed("ask", COUNT, "--epsilon", "1")[0] == 0


def test_a_changed_file_is_not_open_whatever_is_in_it(tmp_path, written):
    written.policy(tmp_path, CSV)
    rows(tmp_path / "orders.csv")
    told = []
    for lines in ((), ('"1,Basel,3',), ["x,Genf,3"] * 500):
        rows(tmp_path / "orders.csv", count=900)
        with Curator.open(tmp_path / "dither.toml") as curator:
            curator.sql(COUNT, epsilon="0.1", analyst="ana")
            spent = curator.budget("ana")
            rows(tmp_path / "orders.csv", *lines)
            with pytest.raises(Refused) as refused:
                curator.sql(COUNT + " WHERE amount > 3", epsilon="0.1", analyst="ana")
            assert curator.budget("ana") == spent
            told.append((str(refused.value), refused.value.code, problem_of(refused.value)))
    assert len(set(map(str, told))) == 1
    assert (told[0][1], told[0][2].status) == ("not_open", 503)


def test_what_was_paid_for_stays_paid_with_copies_and_without(tmp_path, typed, written):
    rows(tmp_path / "orders.csv")
    found = []
    for more in ("", "\ncopies = false", '\ncopies = "elsewhere/kept"'):
        written.policy(tmp_path, CSV + more)
        status, out, err = typed("ask", COUNT, "--epsilon", "0.5", "--format", "json")
        assert status == 0, err
        found.append(json.loads(out))
        kept = sorted(path.parent.name for path in tmp_path.rglob("*.copy.parquet"))
        assert kept == {"": ["shop.copies"], "\ncopies = false": []}.get(more, ["kept"])
    assert [one["charged"] for one in found] == [True, False, False]
    assert len({one["receipt"] for one in found}) == 1


def test_semicolons_are_seen_and_other_delimiters_can_be_named(tmp_path, typed, written):
    rows(tmp_path / "orders.csv")
    text = (tmp_path / "orders.csv").read_text(encoding="utf-8")
    (tmp_path / "orders.csv").write_text(text.replace(",", ";"), encoding="utf-8")
    status, out, _ = typed("init", "orders.csv", "--policy", "first.toml")
    assert status == 0, out
    assert "\ncustomer = " in (tmp_path / "first.toml").read_text(encoding="utf-8")
    written.policy(tmp_path, CSV)
    assert typed("check", "--data")[0] == 0
    written.policy(tmp_path, CSV + '\ndelimiter = "|"')
    assert typed("check")[0] == 1


ADULT = "39, State-gov, 77516, Bachelors, <=50K\n50, Self-emp, 83311, Bachelors, <=50K\n"


def test_a_first_line_that_looks_like_values_is_asked_about(tmp_path, typed):
    (tmp_path / "adult.csv").write_text(ADULT, encoding="utf-8")
    status, _, err = typed("init", "adult.csv")
    assert status == 1
    assert "the first line of adult.csv looks like values" in err
    assert "--no-header" in err
    assert "State-gov" not in err
    assert not (tmp_path / "dither.toml").exists()
    assert typed("init", "adult.csv", "--no-header")[0] == 0
    draft = (tmp_path / "dither.toml").read_text(encoding="utf-8")
    assert "header = false" in draft
    assert "column_5 = " in draft
    assert "State-gov" not in draft
    assert typed("init", "adult.csv", "--header", "--policy", "other.toml")[0] == 0
    # a policy that was written by hand, or before
    assert "looks like values, not like names" in typed("check", "--policy", "other.toml")[1]
    assert "looks like values" not in typed("check")[1]


def test_commands_that_only_look_write_nothing(tmp_path, typed, written):
    written.policy(tmp_path, CSV)
    rows(tmp_path / "orders.csv")
    for command in (("check",), ("price", COUNT, "--epsilon", "1"), ("budget",)):
        assert typed(*command)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dither.toml", "orders.csv"]


def test_the_settings_of_a_source(tmp_path, written):
    written.policy(tmp_path, CSV)
    source = Policy.load(tmp_path / "dither.toml").source
    assert (source.copies, source.header, source.delimiter) == (tmp_path / "shop.copies", True, None)
    assert source.limits == Limits(unreadable=ONE, without_unit=ONE, unlisted=ONE)
    written.policy(tmp_path)
    assert Policy.load(tmp_path / "dither.toml").source.copies is None
