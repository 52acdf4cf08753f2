"""Every command as the issue types it, on every sort of file, and what it shows."""

import csv
import io
import json
import os
import pty
import re
import select

import duckdb
import pytest

from support.sizes import at_night

ASKED = "SELECT city, COUNT(*) AS n, AVG(amount) AS avg_amount FROM orders GROUP BY city"


@pytest.mark.parametrize("kind", ["csv", *(pytest.param(kind, marks=at_night) for kind in ("duckdb", "parquet"))])
def test_from_a_file_to_an_answer(empty, written, run, kind):
    written.data(empty, kind)
    file = "shop.duckdb" if kind == "duckdb" else f"orders.{kind}"
    made = run("init", file)
    assert made.status == 0
    assert "dither check" in made.out
    draft = (empty / "dither.toml").read_text(encoding="utf-8")
    assert all(word in draft for word in ("orders", "customer", "city", "amount", "TODO"))
    assert "Basel" not in draft

    unfinished = run("check")
    assert unfinished.status == 1
    assert "to mend before questions can be asked" in unfinished.out

    source = written.database if kind == "duckdb" else f'files = {{ orders = "{file}" }}'
    written.policy(empty, source)
    ready = run("check")
    assert ready.status == 0
    assert "has no mistakes. Its data was not looked at" in ready.out
    looked = run("check", "--data")
    assert looked.status == 0
    assert "table orders: 900 rows were read" in looked.out
    assert "is ready, and so is the data" in looked.out

    priced = run("price", ASKED)
    assert priced.status == 0
    assert len(re.findall(r"^  ε = ", priced.out, re.M)) == 5
    assert "each customer of orders" in priced.out
    assert "counts as at most 3 rows in each of at most 2 groups" in priced.out
    assert not (empty / "shop.ledger").exists()

    asked = run("ask", ASKED, "--epsilon", "0.5")
    assert asked.status == 0
    assert re.search(r"Bern +[\d,]+ ± [\d,]+ +[\d.]+ ± [\d.]+", asked.out)
    assert "cost ε = 0.5" in asked.out
    assert "receipt" in asked.out
    assert "counts as at most 3 rows in each of at most 2 groups" in asked.out

    again = run("ask", ASKED, "--epsilon", "0.5")
    assert "nothing (asked before" in again.out
    assert again.out.splitlines()[:3] == asked.out.splitlines()[:3]

    spent = run("budget")
    assert spent.status == 0
    assert re.search(r"shop +ε = 0\.\d+ +ε = 2", spent.out)
    assert "shop/owner" in spent.out

    listed = run("ledger", "list")
    assert listed.status == 0
    assert ASKED in listed.out
    assert "shop/owner" in listed.out
    assert run("ledger", "list", "--last", "1").out.count("\n") <= 2

    verified = run("ledger", "verify")
    assert verified.status == 0
    assert "entries hold together" in verified.out


def test_error_instead_of_epsilon(shop, run):
    quoted = run("price", "SELECT COUNT(*) AS n FROM orders", "--error", "50")
    assert quoted.status == 0
    assert re.search(r"n +±50", quoted.out)
    asked = run("ask", "SELECT COUNT(*) AS n FROM orders", "--error", "n=50", "--format", "json")
    (row,) = json.loads(asked.out)["rows"]
    assert row["n_high"] - row["n"] <= 50
    weighed = run("price", "SELECT COUNT(*) AS n, SUM(amount) AS s FROM orders", "-e", "1", "--weight", "n=9")
    assert weighed.status == 0


def test_the_law_of_the_noise_can_be_chosen(shop, run):
    priced = run("price", "SELECT COUNT(*) AS n FROM orders", "-e", "0.5", "--noise", "laplace")
    assert priced.status == 0
    assert "Laplace noise, as the question asks: it leaves the sum of ε open" in " ".join(priced.out.split())
    asked = run("ask", "SELECT COUNT(*) AS n FROM orders", "-e", "0.5", "--noise", "gaussian")
    assert asked.status == 0
    wrong = run("price", "SELECT COUNT(*) AS n FROM orders", "-e", "0.5", "--noise", "pink")
    assert wrong.status != 0
    assert "laplace" in wrong.out + wrong.err


def test_the_same_answer_in_every_format(shop, run):
    table = run("ask", ASKED, "-e", "0.5").out
    rows = list(csv.DictReader(io.StringIO(run("ask", ASKED, "-e", "0.5", "--format", "csv").out)))
    told = json.loads(run("ask", ASKED, "-e", "0.5", "--format", "json").out)
    assert [row["city"] for row in rows] == [row["city"] for row in told["rows"]] == ["Basel", "Bern"]
    for found, row in zip(rows, told["rows"], strict=True):
        assert set(found) == {"city", "n", "n_low", "n_high", "avg_amount", "avg_amount_low", "avg_amount_high"}
        assert int(found["n"]) == row["n"]
        assert f"{row['n']:,} ±" in table
        assert float(found["avg_amount_low"]) <= row["avg_amount"] <= float(found["avg_amount_high"])
    assert told["charged"] is False
    assert told["confidence"] == 0.95
    assert told["receipt"] in table


def test_an_answer_that_is_older_than_the_data_says_so_in_every_format(shop, run, written):
    written.policy(shop, f'{written.database}\nversion = "1"')
    run("ask", ASKED, "-e", "0.5")
    with duckdb.connect(str(shop / "shop.duckdb")) as database:
        database.execute("INSERT INTO orders SELECT customer + 1000, city, amount FROM orders")
    for form in ("table", "csv", "json"):
        told = run("ask", ASKED, "-e", "0.5", "--format", form)
        assert told.status == 0
        # a table of numbers has no place for notes
        assert "the data has changed since this was answered" in " ".join(
            (told.err if form == "csv" else told.out).split()
        )


def test_json_has_no_numbers_that_are_none(shop, run):
    asked = run("ask", "SELECT COUNT(*) / 0 AS x FROM orders", "-e", "0.5", "--format", "json")
    assert json.loads(asked.out, parse_constant=pytest.fail)["rows"] == [{"x": None, "x_low": None, "x_high": None}]


def test_analysts_ask_under_their_names(shop, run):
    assert run("ask", ASKED, "-e", "0.25", "--as", "ana").status == 0
    own = run("budget", "--as", "ana")
    assert "shop/ana" in own.out
    assert "shop/owner" not in own.out
    assert "shop/ana" in run("ledger", "list").out


def test_explain_privacy_and_intervals_in_sql(shop, run):
    explained = run("ask", "EXPLAIN PRIVACY " + ASKED, "-e", "0.5")
    assert explained.status == 0
    assert "Gaussian noise" in explained.out or "Laplace noise" in explained.out
    assert "nothing spent" not in explained.err
    ends = run("ask", "SELECT COUNT(*) AS n, DP_INTERVAL_LOW(n) AS lo FROM orders", "-e", "0.5", "--format", "csv").out
    (row,) = csv.DictReader(io.StringIO(ends))
    assert int(row["lo"]) == int(float(row["n_low"]))


def test_adopt_makes_a_moved_ledger_usable(shop, run):
    run("ask", ASKED, "-e", "0.5")
    # the head stays behind when only the ledger is moved
    kept = (shop / "shop.head").read_bytes()
    run("ask", "SELECT COUNT(*) AS n FROM orders", "-e", "0.5")
    assert (shop / "shop.head").read_bytes() != kept
    adopted = run("ledger", "adopt", "--yes")
    assert adopted.status == 0
    assert "adopted" in adopted.out
    assert "hold together" in run("ledger", "verify").out


def test_the_demo_tells_the_whole_story(empty, run):
    told = run("demo", "--keep", "kept")
    assert told.status == 0
    for number in range(1, 6):
        assert f"{number}. " in told.out
    assert "nothing (asked before" in told.out
    assert "refused" in told.out
    assert "hold together" in told.out
    assert "shop/ana" in told.out
    assert {path.name for path in (empty / "kept").iterdir()} >= {"shop.duckdb", "dither.toml", "shop.ledger"}
    again = run("demo", "--keep", "kept")
    assert again.status == 1
    assert "not empty" in again.err


@pytest.mark.parametrize(
    "arguments", [["--help"], *([c, "--help"] for c in ("init", "check", "price", "ask", "budget", "ledger", "demo"))]
)
def test_help_reads_well(run, arguments):
    said = run(*arguments)
    assert said.status == 0
    assert said.out.startswith("Usage: dither")
    assert max(len(line) for line in said.out.splitlines()) <= 80
    # no sentence is cut in a list of commands, and no Python type is shown for an option
    assert "..." not in re.sub(r"(COMMAND \[ARGS\]|FILE\}?)\.\.\.", "", said.out)
    assert "list[" not in said.out.partition("Options:")[2]


def test_no_command_shows_the_help_and_the_version_is_known(run):
    assert "Commands:" in (run().out + run().err)
    assert re.fullmatch(r"dither \d+\.\d+\.\d+\n", run("--version").out)


# ---------------------------------------------------------------- terminals


def on_terminal(start, arguments, cwd, columns, **environment):
    """What a terminal of so many columns gets."""
    leader, follower = pty.openpty()
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    process = start(*arguments, cwd=cwd, more=terminal, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    said = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 60)
        assert ready, "the command hangs"
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert process.wait(timeout=60) == 0
    return said.decode().replace("\r\n", "\n")


@pytest.fixture
def no_colour_is_forced(monkeypatch):
    """Whoever runs the tests may have wishes of their own."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)


WIDE = (
    "SELECT city, COUNT(*) AS number_of_orders, SUM(amount) AS sum_of_amounts, AVG(amount) AS mean_amount "
    "FROM orders GROUP BY city"
)


@pytest.mark.usefixtures("no_colour_is_forced")
@pytest.mark.nightly
def test_narrow_terminals_lose_no_value(shop, run, start):
    told = json.loads(run("ask", WIDE, "-e", "0.5", "--format", "json").out)["rows"]
    for columns in (40, 100):
        text = plain(on_terminal(start, ["ask", WIDE, "-e", "0.5"], shop, columns))
        for row in told:
            assert f"{row['number_of_orders']:,} ±" in text, columns
            assert "mean_amount" in text
        assert "…" not in text.replace("asking …", "")
        assert ("▒" in text) == (columns >= 100)


@pytest.mark.usefixtures("no_colour_is_forced")
@pytest.mark.nightly
def test_colour_is_for_terminals_that_want_it(shop, run, start):
    coloured = on_terminal(start, ["ask", ASKED, "-e", "0.5"], shop, 120)
    assert "\x1b[36m" in coloured
    assert "\x1b[36m" not in on_terminal(start, ["ask", ASKED, "-e", "0.5"], shop, 120, NO_COLOR="1")
    assert "\x1b" not in run("ask", ASKED, "-e", "0.5").out


def test_redirected_output_is_neither_cut_nor_wrapped(shop, run):
    said = run("ask", WIDE, "-e", "0.5").out
    header = said.splitlines()[0]
    assert header.split() == ["city", "number_of_orders", "sum_of_amounts", "mean_amount"]
    long = "SELECT COUNT(*) AS n FROM orders WHERE city IN (" + ", ".join(["'Bern'"] * 60) + ")"
    run("ask", long, "-e", "0.1")
    assert long in run("ledger", "list").out
