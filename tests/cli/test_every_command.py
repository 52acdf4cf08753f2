"""Every command as a stranger runs it: the installed ``dither``, in a process that has loaded nothing of it, doing its
work; at night, and some by day, in a new interpreter.

Most are run so by the documentation, whose commands tests/docs runs. The rest is run here. A command that neither does
has no test in a process of its own, and fails the first test.
"""

import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest

from dither.cli.commands import SUMMARIES, loaded
from support.sizes import NIGHTLY

ROOT = Path(__file__).resolve().parents[2]
FORMAT_1 = ROOT / "tests" / "ledger" / "format1" / "zcdp"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COUNT = "SELECT COUNT(*) AS n FROM orders"
# Keys that nobody listed are found in the data, which makes the price one of another kind.
FOUND = "SELECT amount, COUNT(*) AS n FROM orders GROUP BY amount"
NOISE = "import os\ndef coin(x):\n    return os.urandom(1)[0] < (192 if x else 64)\n"
# an audit of what is right calls it wrong, by chance, less often than once in a billion
SURE = ("--confidence", "0.999999999")
# What ends only when it is told to, or takes minutes, is started where it is also stopped.
STARTED = {
    "serve": ("test_serve.py", 'start("serve", '),
    "audit all": ("test_audit.py", 'start("audit", "all", '),
}


def commands():
    """The words of every command that does something: ``ledger verify``, not ``ledger``."""

    def below(command, words):
        inner = getattr(command, "commands", None) or {}
        if not inner:
            yield " ".join(words)
        for name, each in inner.items():
            yield from below(each, (*words, name))

    return {words for name in SUMMARIES for words in below(loaded(name), (name,))}


def documented():
    """The commands that pages run to a good end."""
    known, found = commands(), set()
    for page in (ROOT / "docs").rglob("*.md"):
        for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                typed, _, shown = part.partition("\n")
                if typed.startswith("dither ") and not re.search(r"^(dither|error): ", shown, re.MULTILINE):
                    first, second = typed.split()[1:3] if len(typed.split()) > 2 else (typed.split()[1], "")
                    # `dither anonymize FILE` is short for `dither anonymize table FILE`
                    found |= {first, f"{first} {second}", "anonymize table" if first == "anonymize" else ""}
    return found & known


def move(dither, shop):
    """A ledger that is moved to another machine, with its head left behind."""
    for sql in (COUNT, FOUND):
        dither("ask", sql, "-e", "0.5")
    assert COUNT in dither("ledger", "list").out
    (shop / "shop.head").unlink()
    assert "adopted; " in dither("ledger", "adopt", "--yes").out
    verified = dither("ledger", "verify").out
    assert "entries hold together" in verified
    assert "adopted 1 times" in verified
    assert "nothing (asked before" in dither("ask", COUNT, "-e", "0.5").out


def upgrade(dither, shop):
    """A ledger as dither 0.1.0 wrote it."""
    shutil.copytree(FORMAT_1, shop, dirs_exist_ok=True)
    for name in ("dither.toml", "head", "ledger.db"):
        (shop / name).chmod(0o600)
    assert "dither ledger upgrade" in dither("ledger", "verify").out
    assert "upgraded; " in dither("ledger", "upgrade").out
    assert "format 1" not in dither("ledger", "verify").out


def rebind(dither, shop):
    """The unit column has a new name, which only the owner knows to be the same people."""
    dither("ask", COUNT, "-e", "0.5")
    with duckdb.connect(str(shop / "shop.duckdb")) as database:
        database.execute("ALTER TABLE orders RENAME COLUMN customer TO client")
    policy = shop / "dither.toml"
    policy.write_text(policy.read_text(encoding="utf-8").replace("customer", "client"), encoding="utf-8")
    assert 'each "client" of table "orders"' in dither("ledger", "rebind", "--yes").out
    assert "bound 1 times" in dither("ledger", "verify").out


def revoke(dither, _):
    number = re.search(r"number (\w+)", dither("token", "create", "ana").err)[1]
    assert "is revoked" in dither("token", "revoke", number).out


def mechanism(dither, _):
    assert "No contradiction found." in dither("audit", "mechanism", "laplace", "--budget", "0.5s", *SURE).out


def zoo(dither, _):
    assert dither("audit", "zoo", "one-sided-answers").out.rstrip().endswith("caught")


def call(dither, shop):
    (shop / "my_noise.py").write_text(NOISE, encoding="utf-8")
    pair = ("--x", "1", "--neighbour", "0")
    said = dither("audit", "call", "my_noise:coin", *pair, "--claim", "1.1", "--budget", "1s", *SURE)
    assert "No contradiction found." in said.out


def survey(dither, shop):
    dither("local", "describe", "--protocol", "olh", "--domain", 9, "--epsilon", 4, "-o", "survey.json")
    (shop / "values.txt").write_text("4\n8\n0\n" * 20, encoding="utf-8")
    dither("local", "randomize", "survey.json", "values.txt", "-o", "reports.txt")
    said = dither("local", "aggregate", "survey.json", "reports.txt", "--format", "json")
    assert json.loads(said.out)["reports"] == 60


RUN_HERE = {
    "ledger list": move,
    "ledger adopt": move,
    "ledger rebind": rebind,
    "ledger upgrade": upgrade,
    "token revoke": revoke,
    "audit mechanism": mechanism,
    "audit zoo": zoo,
    "audit call": call,
    "local randomize": survey,
    "local aggregate": survey,
}

# by day in a new interpreter, too
ANEW = (rebind,)


def test_every_command_is_run_in_a_process_of_its_own():
    assert documented() | RUN_HERE.keys() | STARTED.keys() == commands()
    assert documented() >= {"init", "check", "price", "ask", "budget", "ledger verify", "demo"}
    for file, text in STARTED.values():
        assert text in (Path(__file__).parent / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("story", dict.fromkeys(RUN_HERE.values()), ids=lambda story: story.__name__)
def test_what_no_page_runs(story, shop, installed, fresh):
    run, ran = installed.run if NIGHTLY or story in ANEW else fresh, []

    def dither(*arguments):
        done = run(*arguments)
        assert done.status == 0, (arguments, done.err)
        ran.append(" ".join(map(str, arguments)))
        return done

    story(dither, shop)
    for words in (words for words, each in RUN_HERE.items() if each is story):
        assert [typed for typed in ran if typed.startswith(f"{words} ") or typed == words], words
