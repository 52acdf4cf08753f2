"""The client at a distance starts at once: it loads none of what answers questions."""

import subprocess
import sys

# what takes long to load, or has no business with a client
HEAVY = ("duckdb", "sqlite3", "pydantic", "scipy", "sqlglot", "fastapi", "rich", "typer", "pandas", "matplotlib")
WITHIN = ("engines", "policy", "server", "cli", "mechanisms", "ledger.sqlite", "curator.curator", "query.sql")
PROGRAM = f"""
import sys
import dither as dp
from dither.remote import reading
from dither.curator import AnswerPage, BudgetLine, Past, Record, Request, Spending, Verified

with dp.client("http://127.0.0.1:1", "token") as client:
    assert repr(client) == "<dither client of http://127.0.0.1:1>"
print(*sorted(name for name in sys.modules if name.partition(".")[0] in {HEAVY!r}))
print(*sorted(name for name in sys.modules if name.startswith(tuple("dither." + one for one in {WITHIN!r}))))
"""


def test_a_client_loads_nothing_of_what_answers(installed):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=installed.environment(), capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == []
