"""What a person can get wrong: every message says what to do, nothing is charged, and the exit status is right."""

import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

COUNT = "SELECT COUNT(*) AS n FROM orders"
TRACE = "Traceback"


def entries(shop):
    with closing(sqlite3.connect(f"file:{shop / 'shop.ledger'}?mode=ro", uri=True)) as database:
        return database.execute("SELECT count(*) FROM entry").fetchone()[0]


@pytest.mark.parametrize("command", [["check"], ["price", COUNT], ["ask", COUNT], ["budget"], ["ledger", "list"]])
def test_no_policy(empty, run, command):
    said = run(*command)
    assert said.status == 1
    assert "dither.toml" in said.err
    assert "dither init" in said.err
    assert list(empty.iterdir()) == []


def test_a_policy_with_mistakes_lists_them_all(shop, run):
    path = shop / "dither.toml"
    path.write_text(path.read_text().replace("epsilon_budget = 2", "epsilon_budget = -2").replace("private = true", ""))
    said = run("ask", COUNT, "-e", "1")
    assert said.status == 1
    assert said.err.count("line ") >= 2
    assert not (shop / "shop.ledger").exists()


def test_no_database(shop, run):
    (shop / "shop.duckdb").unlink()
    for command in (["check"], ["ask", COUNT, "-e", "1"], ["price", COUNT]):
        said = run(*command)
        assert (said.status, "shop.duckdb does not exist" in said.err) == (1, True)
        assert TRACE not in said.err
    said = run("init", "other.duckdb", "--policy", "new.toml")
    assert (said.status, "does not exist" in said.err) == (1, True)


def test_a_file_that_is_no_database(shop, run):
    (shop / "shop.duckdb").write_text("not a database, but quite long enough to look like a file of some kind" * 100)
    said = run("ask", COUNT, "-e", "1")
    assert said.status == 1
    assert "DuckDB database" in said.err


def test_init_writes_over_nothing(shop, run):
    before = (shop / "dither.toml").read_text()
    said = run("init", "shop.duckdb")
    assert said.status == 1
    assert "dither.toml" in said.err
    assert (shop / "dither.toml").read_text() == before
    mixed = run("init", "shop.duckdb", "orders.csv", "--policy", "x.toml")
    assert (mixed.status, "one DuckDB file" in mixed.err) == (1, True)


def test_a_corrupt_ledger_is_not_used(shop, run):
    run("ask", COUNT, "-e", "0.5")
    with closing(sqlite3.connect(shop / "shop.ledger")) as database, database:
        # triggers forbid this to everybody who doesn't mean harm
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE entry SET body = replace(body, 'owner', 'ghost')")
    for command in (["ledger", "verify"], ["ask", "SELECT COUNT(amount) AS n FROM orders", "-e", "0.5"]):
        said = run(*command)
        assert said.status == 1, command
        assert "ledger" in said.err
        assert TRACE not in said.err


OWN_LOSS = """
from dither.curator.past import records
from dither.policy import Policy
from dither.ledger import Account
from dither.privacy import PureLoss

class Mine(PureLoss, kind="mine"):
    pass

with records.open_ledger(Policy.load("dither.toml")) as ledger:
    ledger.reserve(key="ab" * 16, account=Account(("shop", "ana")), loss=Mine("1/10"), note={"sql": "a secret"})
    print(ledger.verify().entries)
"""


def test_an_entry_that_can_not_be_read_says_why(shop, run):
    """A loss of a class that only its author has: the ledger is whole, and isn't called anything else."""
    assert run("ask", COUNT, "-e", "0.5").status == 0
    (shop / "own.py").write_text(OWN_LOSS, encoding="utf-8")
    wrote = run(program=shop / "own.py")
    assert wrote.status == 0, wrote.err
    said = run("ledger", "verify")
    assert (said.status, said.out) == (1, "")
    number = int(wrote.out)
    assert f"entry {number} can't be read, though it is as it was written (its hash is right): its loss: " in said.err
    assert "unknown kind of loss 'mine'" in said.err
    assert "a secret" not in said.err
    assert TRACE not in said.err


def test_a_ledger_that_is_no_ledger(shop, run):
    (shop / "shop.ledger").write_text("something else entirely\n" * 500)
    said = run("ask", COUNT, "-e", "0.5")
    assert said.status == 1
    assert "ledger" in said.err
    assert TRACE not in said.err


def test_an_old_copy_of_the_ledger_is_refused_with_the_way_out(shop, run):
    run("ask", COUNT, "-e", "0.5")
    copies = {path.name: path.read_bytes() for path in shop.glob("shop.ledger*") if path.is_file()}
    run("ask", "SELECT COUNT(amount) AS n FROM orders", "-e", "0.5")
    for path in filter(Path.is_file, shop.glob("shop.ledger*")):
        path.unlink()
    for name, content in copies.items():
        (shop / name).write_bytes(content)
    said = run("ask", COUNT, "-e", "0.5")
    assert said.status == 1
    assert "old copy" in said.err
    assert "adopt" in said.err
    assert run("ledger", "adopt", "--yes").status == 0
    assert run("ledger", "verify").status == 0


@pytest.mark.parametrize(
    "command",
    [["price", COUNT], ["price", COUNT, "-e", "0.5"], ["budget"], ["budget", "--as", "ana"], ["ledger", "list"]],
)
def test_looking_makes_no_ledger(shop, run, command):
    before = {path.name for path in shop.iterdir()}
    said = run(*command)
    assert said.status == 0
    assert {path.name for path in shop.iterdir()} == before
    if command[0] != "price":
        assert "nothing was asked yet" in said.out


@pytest.mark.parametrize("command", [["ledger", "verify"], ["ledger", "adopt", "--yes"]])
def test_what_needs_a_ledger_says_that_there_is_none(shop, run, command):
    before = {path.name for path in shop.iterdir()}
    said = run(*command)
    assert said.status == 1
    assert "there is no ledger" in said.err
    assert {path.name for path in shop.iterdir()} == before


def test_looking_writes_nothing_into_a_ledger(shop, run):
    run("ask", COUNT, "-e", "0.5")
    before = entries(shop)
    path = shop / "dither.toml"
    path.write_text(path.read_text().replace("epsilon_budget = 2", "epsilon_budget = 3"))
    for command in (["price", COUNT, "-e", "0.5"], ["ledger", "list"], ["ledger", "verify"]):
        assert run(*command).status == 0
    assert re.search(r"shop +ε = 0\.\d+ +ε = 3", run("budget").out)
    assert entries(shop) == before


def test_a_ledger_that_is_gone_is_not_taken_for_a_new_one(shop, run):
    run("ask", COUNT, "-e", "0.5")
    for path in filter(Path.is_file, shop.glob("shop.ledger*")):
        path.unlink()
    for command in (
        ["budget"],
        ["price", COUNT],
        ["ledger", "list"],
        ["ledger", "verify"],
        ["ask", COUNT, "-e", "0.5"],
    ):
        said = run(*command)
        assert (command, said.status) == (command, 1)
        assert "latest copy" in said.err
    adopted = run("ledger", "adopt", "--yes")
    assert adopted.status == 1
    assert "no ledger" in adopted.err
    assert not (shop / "shop.ledger").exists()


def test_a_new_ledger_is_announced_once(shop, run):
    first = run("ask", COUNT, "-e", "0.5", "--format", "json")
    assert "a new ledger was begun" in first.err
    assert "shop.ledger" in first.err
    assert first.out.startswith("{")
    assert run("ask", COUNT, "-e", "0.5").err == ""


def test_out_of_budget_is_told_in_epsilon(shop, run):
    run("ask", COUNT, "-e", "0.5", "--as", "ana")
    said = run("ask", "SELECT SUM(amount) AS s FROM orders", "-e", "0.5", "--as", "ana")
    assert said.status == 1
    assert "costs ε = 0.5" in said.err
    assert "of 0.5" in said.err
    assert "smaller ε" in said.err


def test_a_locked_ledger_is_waited_for(shop, run, start):
    run("ask", COUNT, "-e", "0.5")
    holder = sqlite3.connect(shop / "shop.ledger", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    process = start("ask", "SELECT COUNT(amount) AS n FROM orders", "-e", "0.5", cwd=shop)
    try:
        time.sleep(2)
        waits = process.poll() is None
        holder.execute("ROLLBACK")
        out, err = process.communicate(timeout=60)
    finally:
        holder.close()
    # it waits for its turn, or says that somebody else has it
    assert (waits and process.returncode == 0 and "receipt" in out) or (process.returncode == 1 and "ask again" in err)
    assert TRACE not in err


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT city, CONT(*) FROM orders GROUP BY city", "CONT"),
        ("SELECT COUNT(*) FROM ordres", "ordres"),
        ("SELECT COUNT(*) FROM orders WHERE amont > 3", "amont"),
        ("SELECT city,\n       MAX(amount)\nFROM orders GROUP BY city", "MAX"),
        ("SELECT 'größer', COUNT(*) FROM orders WHERE 'größer' = amont", "amont"),
        ("SELECT\tCOUNT(*) FROM\tordres", "ordres"),
        ("SELECT " + ", ".join(f"COUNT(*) + {i}" for i in range(60)) + ", nothing(3) FROM orders", "nothing"),
    ],
)
def test_the_caret_stands_under_the_mistake(shop, run, sql, word):
    for command in ("price", "ask"):
        said = run(command, sql, "-e", "0.5")
        assert said.status == 1
        lines = said.err.splitlines()
        place = next(i for i, line in enumerate(lines) if line.strip() == "^")
        column = lines[place].index("^")
        assert lines[place - 1][column:].startswith(word)
        assert "nothing was charged" in said.err
    assert not (shop / "shop.ledger").exists()


def test_the_question_is_found_wherever_it_stands(shop, run):
    for arguments in (
        ["-e", "0.5", "SELEC 1"],
        ["--epsilon=0.5", "SELEC 1"],
        ["-e0.5", "--as", "ana", "--", "SELEC 1"],
    ):
        said = run("ask", *arguments)
        assert "  SELEC 1\n  ^" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ask", COUNT], ["neither how much ε", "epsilon"]),
        (["ask", COUNT, "-e", "0.5", "--as", "eve"], ["may not ask", "[analysts.NAME]"]),
        (["budget", "--as", "eve"], ["may not ask", "[analysts.NAME]"]),
        (["ask", COUNT, "-e", "0.9", "--as", "ana"], ["at most 0.5"]),
        (["ask", COUNT, "-e", "7"], ["at most 1", "Ask with ε = 1 or less"]),
        (["ask", COUNT, "--epsilon", "abc"], ["epsilon", "abc"]),
        (["ask", COUNT, "--epsilon", "-1"], ["epsilon", "greater than 0"]),
        (["ask", COUNT, "--epsilon", "nan"], ["epsilon"]),
        (["ask", COUNT, "--epsilon", "1e99999999"], ["epsilon", "exponent"]),
        (["ask", COUNT, "--epsilon", "1e-99999999"], ["epsilon", "exponent"]),
        (["ask", COUNT, "--error", "1e9999999999"], ["error", "exponent"]),
        (["price", COUNT, "--epsilon", "1e-9"], ["too little", "larger epsilon"]),
        (["ask", COUNT, "--error", "abc"], ["error", "abc"]),
        (["ask", COUNT, "--error", "m=5"], ["'m'"]),
        (["ask", COUNT, "--error", "5", "--error", "6"], ["--error takes column=value"]),
        (["ask", COUNT, "-e", "1", "--error", "5"], ["not both"]),
        (["ask", COUNT, "-e", "1", "--weight", "n"], ["--weight takes column=value"]),
        (["ask", COUNT, "-e", "1", "--weight", "m=2"], ["'m'"]),
        (
            ["ask", "SELECT SUM(amount) / COUNT(*) AS r FROM orders", "--error", "r=1"],
            ["plain aggregates", "COUNT or SUM"],
        ),
        (["ask", "SELECT AVG(amount) AS r FROM orders", "--error", "1"], ["depends on the data", "epsilon"]),
        (["ask", COUNT, "--error", "0.001"], ["would cost", "larger error"]),
        (["ask", COUNT, "-e", "1", "-p", "other.toml"], ["other.toml", "dither init"]),
    ],
)
def test_what_is_said_about_a_mistake(shop, run, arguments, says):
    said = run(*arguments)
    assert said.status == 1
    for text in says:
        assert text in said.err
    assert TRACE not in said.err
    assert said.out == ""
    assert not (shop / "shop.ledger").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["nothing"],
        ["ask", COUNT, "--nothing"],
        ["ask", COUNT, "--format", "xml"],
        ["ledger", "list", "--last", "0"],
    ],
)
def test_what_was_mistyped_is_bad_usage(shop, run, arguments):
    said = run(*arguments)
    assert said.status == 2
    assert "Usage: dither" in said.err
    assert "--help" in said.err


def test_out_of_budget_says_so_and_costs_nothing(shop, run):
    for number in range(12):
        said = run("ask", f"SELECT COUNT(*) AS n FROM orders WHERE amount > {number}", "-e", "1")
        if said.status:
            break
    assert said.status == 1
    assert "budget" in said.err
    before = entries(shop)
    again = run("ask", f"SELECT COUNT(*) AS n FROM orders WHERE amount > {number}", "-e", "1")
    assert again.status == 1
    assert entries(shop) == before
    assert "more than is left" in run("price", "SELECT COUNT(*) AS n FROM orders WHERE amount > 40").out
    assert "doesn't fit" in run("price", "SELECT COUNT(*) AS n FROM orders WHERE amount > 40", "-e", "1").out
    assert run("ask", "SELECT COUNT(*) AS n FROM orders WHERE amount > 0", "-e", "1").status == 0


@pytest.mark.parametrize("word", ["", "n\n"])
def test_saying_no_to_adopt_changes_nothing(shop, run, word):
    run("ask", COUNT, "-e", "0.5")
    before = entries(shop)
    said = run("ledger", "adopt", given=word)
    assert said.status == 130
    assert entries(shop) == before
    assert run("ledger", "adopt", given="y\n").status == 0


SLOW = """
import sys, time
from dither.engines import DuckDBEngine
real = DuckDBEngine.run
def slow(self, measurement, *, salt):
    print("running", flush=True)
    time.sleep(30)
    return real(self, measurement, salt=salt)
DuckDBEngine.run = slow
from dither.cli.main import main
sys.exit(main())
"""


def test_ctrl_c_leaves_a_ledger_that_holds_together(shop, run):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "ask", COUNT, "-e", "0.5"],
        cwd=shop,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert "again is free" in err
    assert TRACE not in err
    assert "hold together" in run("ledger", "verify").out
    listed = run("ledger", "list").out
    assert "interrupted" in listed
    redeemed = run("ask", COUNT, "-e", "0.5")
    assert redeemed.status == 0
    assert "cost nothing" in redeemed.out


def test_a_reader_that_goes_away_is_no_error(shop, start):
    process = start("ledger", "list", cwd=shop)
    process.stdout.close()
    err = process.stderr.read()
    process.wait(timeout=60)
    assert TRACE not in err


def test_keys_from_the_data_can_not_steer_the_terminal(empty, written, run):
    with duckdb.connect(str(empty / "shop.duckdb")) as database:
        database.execute(
            "CREATE TABLE orders AS SELECT i AS customer, chr(27) || '[2J' || chr(7) AS city, 1.0 AS amount "
            "FROM range(3000) AS t(i)"
        )
    written.policy(empty)
    path = empty / "dither.toml"
    path.write_text(re.sub(r", in = \[.*?\]", "", path.read_text()))
    said = run("ask", "SELECT city, COUNT(*) AS n FROM orders GROUP BY city", "-e", "1")
    assert said.status == 0
    assert "\x1b" not in said.out
    assert "\x07" not in said.out
    assert "[2J" in said.out
