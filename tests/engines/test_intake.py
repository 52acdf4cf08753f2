"""Files are looked at when they are opened: what could fail a question fails there, and what is left out is counted."""

import datetime as dt
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.engines import DuckDBEngine, EngineFailure
from dither.engines.duckdb import intake as duckdb_intake, sources as duckdb_sources
from dither.engines.duckdb.spellings import missing, read_text
from dither.engines.files import copies as copies_module
from dither.engines.files.copies import Accepted, AcceptedRecord
from dither.errors import SourceError
from dither.query.intake import Intake, Limits, NotAccepted, TableReport
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, TableFacts
from support import duckdb_files
from support.sizes import short_or_full

make, measure, scan, schema, table, values, SALT = (
    getattr(duckdb_files, name) for name in ("make", "measure", "scan", "schema", "table", "values", "SALT")
)

ORDERS = table(who=Kind.INTEGER, n=Kind.INTEGER)
TEXT = "who,n\n1,1\n2,2\n"
ONE = Fraction(1, 100)
STRICT = Limits(unreadable=ONE, without_unit=ONE, unlisted=ONE)


@pytest.fixture
def intake(tmp_path):
    return Intake(copies=tmp_path / "orders.copies", record=tmp_path / "orders.accepted", limits=STRICT)


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text(TEXT, encoding="utf-8")
    return path


def opened(path, intake, facts=ORDERS):
    return DuckDBEngine.open({facts.name: path}, schema(facts), intake=intake)


def copies(intake):
    return sorted(intake.copies.iterdir()) if intake.copies.is_dir() else []


def accepted(intake):
    return json.loads(intake.record.read_bytes())["accepted"]


def count_checks(monkeypatch):
    """How often a file is read from end to end."""
    checked = []
    real = duckdb_intake.check_csv
    monkeypatch.setattr(duckdb_intake, "check_csv", lambda *given: checked.append(given) or real(*given))
    return checked


# ------------------------------------------------------------------ one line, everybody's rows


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("line", ['"12,1', '12,a"', '12,"a"b', "12,a\rb", "12", "12,1,1", "", "12,\0"])
def test_no_line_decides_about_the_rows_of_others(tmp_path, intake, kept, line):
    lines = [f"{i},{i}" for i in range(5000)]
    (tmp_path / "orders.csv").write_text("\n".join(["who,n", *lines[:9], line, *lines[10:]]) + "\n", newline="")
    with pytest.raises(SourceError, match=r"orders\.csv, line 11, column") as caught:
        opened(tmp_path / "orders.csv", intake if kept else Intake())
    assert "12" not in str(caught.value).replace(str(tmp_path), "")
    assert copies(intake) == []


# ------------------------------------------------------------------ typed copies


def test_a_copy_is_made_once_and_is_for_the_owner_alone(orders, intake, monkeypatch):
    checked = count_checks(monkeypatch)
    previous = os.umask(0)
    try:
        with opened(orders, intake) as engine:
            first = engine.version(), values(engine, ORDERS, 1)
    finally:
        os.umask(previous)
    (copy,) = copies(intake)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (copy, intake.copies, intake.record)] == [0o600, 0o700, 0o600]
    assert pq.read_schema(copy).types == [pa.int64(), pa.int64()]
    with opened(orders, intake) as engine:
        assert (engine.version(), values(engine, ORDERS, 1)) == first
    assert len(checked) == 1
    # the version is the file's own, with a copy or without
    with opened(orders, Intake()) as engine:
        assert (engine.version(), values(engine, ORDERS, 1)) == first


def test_columns_that_are_not_declared_are_not_copied(tmp_path, intake):
    (tmp_path / "orders.csv").write_text("who,n,name\n1,1,Ada\n", encoding="utf-8")
    opened(tmp_path / "orders.csv", intake).close()
    (copy,) = copies(intake)
    assert pq.read_schema(copy).names == ["who", "n"]


def test_a_changed_file_has_another_copy_and_the_old_one_goes(orders, intake):
    with opened(orders, intake) as engine:
        (old,) = copies(intake)
        orders.write_text(TEXT + "3,3\n", encoding="utf-8")
        assert not engine.unchanged()
        with opened(orders, intake) as later:
            assert values(later, ORDERS, 1) == {1: 1, 2: 1, 3: 1}
            # it is in use, so it stays
            assert len(copies(intake)) == 2
    opened(orders, intake).close()
    (new,) = copies(intake)
    assert new != old


def test_another_file_with_the_same_size_and_time_is_read_again(orders, intake, tmp_path):
    opened(orders, intake).close()
    facts = orders.stat()
    (tmp_path / "new").write_text(TEXT.replace("2,2", "2,9"), encoding="utf-8")
    os.utime(tmp_path / "new", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (tmp_path / "new").replace(orders)
    with opened(orders, intake) as engine:
        assert values(engine, ORDERS, 1) == {1: 1, 9: 1}


def test_another_type_is_another_copy(orders, intake):
    opened(orders, intake).close()
    facts = table(who=Kind.INTEGER, n=Kind.TEXT)
    with opened(orders, intake, facts) as engine:
        assert values(engine, facts, 1) == {"1": 1, "2": 1}


@pytest.mark.parametrize("gone", ["file", "file, when names are read", "broken", "off"])
def test_copies_go_with_the_file(orders, intake, gone):
    opened(orders, intake).close()
    # what isn't ours stays
    (intake.copies / "own.parquet").write_bytes(b"own")
    if gone == "off":
        opened(orders, Intake(unwanted=intake.copies, record=intake.record)).close()
    else:
        orders.write_text('who,n\n1,"\n') if gone == "broken" else orders.unlink()
        with pytest.raises(SourceError):
            opened(orders, replace(intake, names_only="names" in gone))
    assert [path.name for path in copies(intake)] == ["own.parquet"]


@pytest.mark.parametrize("damage", ["cut", "empty", "turned"])
def test_a_damaged_copy_is_made_again(orders, intake, damage):
    orders.write_text(TEXT + "".join(f"{i},{i}\n" for i in range(3, 3000)), encoding="utf-8")
    with opened(orders, intake) as engine:
        whole = engine.version(), values(engine, ORDERS, 1)
    (copy,) = copies(intake)
    data = bytearray(copy.read_bytes())
    if damage == "turned":
        # in a page, behind the magic number and in front of the facts at the end
        for place in range(100, 140):
            data[place] ^= 255
    copy.write_bytes(data if damage == "turned" else data[:200] if damage == "cut" else b"")
    with opened(orders, intake) as engine:
        assert (engine.version(), values(engine, ORDERS, 1)) == whole
    assert len(copies(intake)) == 1


def test_what_is_read_of_a_copy_at_opening_is_its_bytes_once(orders, intake, monkeypatch):
    opened(orders, intake).close()
    checked, read = count_checks(monkeypatch), []
    real = copies_module._digest
    monkeypatch.setattr(copies_module, "_digest", lambda path: read.append(path) or real(path))
    opened(orders, intake).close()
    assert (checked, read) == ([], copies(intake))


@pytest.mark.parametrize("then", ["elsewhere", "off", "database"])
@pytest.mark.parametrize("first", ["usual", "named"])
def test_copies_stay_nowhere_but_where_the_policy_has_them(orders, intake, tmp_path, first, then):
    usual, named = tmp_path / "usual.copies", tmp_path / "named"
    before = replace(intake, copies=usual if first == "usual" else named, unwanted=None if first == "usual" else usual)
    opened(orders, before).close()
    assert len(copies(before)) == 1
    after = replace(intake, copies=tmp_path / "elsewhere" if then == "elsewhere" else None, unwanted=usual)
    if then == "database":
        path = make(tmp_path / "orders.duckdb", "CREATE TABLE orders AS SELECT 1::BIGINT AS who, 2::BIGINT AS n")
        DuckDBEngine.open(path, schema(ORDERS), intake=after).close()
    else:
        opened(orders, after).close()
    assert not before.copies.exists()
    assert then != "elsewhere" or len(copies(after)) == 1


def test_a_copy_in_use_is_removed_when_it_is_not_any_more(orders, intake, tmp_path):
    off = replace(intake, copies=None)
    with opened(orders, intake):
        opened(orders, off).close()
        assert len(copies(intake)) == 1
    opened(orders, off).close()
    assert copies(intake) == []
    assert json.loads(intake.record.read_bytes())["copies"] == []


def test_copies_move_with_the_ledger_and_go_all_the_same(orders, intake, tmp_path):
    folder = tmp_path / "before"
    first = replace(intake, copies=folder / "orders.copies", record=folder / "accepted")
    opened(orders, first).close()
    folder.rename(tmp_path / "after")
    folder = tmp_path / "after"
    opened(orders, replace(intake, copies=folder / "orders.copies", record=folder / "accepted")).close()
    assert len(list((folder / "orders.copies").iterdir())) == 1


@pytest.mark.parametrize("differ", ["name", "ledger"])
def test_datasets_in_one_directory_leave_each_others_copies_alone(orders, intake, tmp_path, monkeypatch, differ):
    first = replace(intake, dataset="a")
    second = replace(first, dataset="b") if differ == "name" else replace(first, record=tmp_path / "other.accepted")
    for one in (first, second):
        opened(orders, one).close()
    checked = count_checks(monkeypatch)
    for one in (first, second, first):
        opened(orders, one).close()
    assert (len(copies(intake)), checked) == (2, [])
    opened(orders, replace(second, copies=None)).close()
    opened(orders, first).close()
    assert (len(copies(intake)), checked[1:]) == (1, [])


def test_copies_of_an_older_form_go(orders, intake):
    intake.copies.mkdir()
    (intake.copies / f"orders-{'0' * 32}.copy.parquet").write_bytes(b"old")
    opened(orders, intake).close()
    (copy,) = copies(intake)
    assert copy.read_bytes() != b"old"


def test_a_copy_that_vanishes_is_a_change_and_is_made_again(orders, intake):
    with opened(orders, intake) as engine:
        before = engine.version()
        copies(intake)[0].unlink()
        assert engine.version() != before
    with opened(orders, intake) as engine:
        assert engine.version() == before


def test_what_was_left_half_done_is_removed(orders, intake):
    intake.copies.mkdir()
    (intake.copies / ".making-x").mkdir()
    (intake.copies / ".making-x" / "copy").write_bytes(b"half")
    opened(orders, intake).close()
    assert len(copies(intake)) == 1


def test_a_file_that_changes_while_it_is_copied_is_not_kept(orders, intake, monkeypatch):
    real = duckdb_intake._write_copy

    def slow(*given):
        real(*given)
        orders.write_text(TEXT + "3,3\n", encoding="utf-8")

    monkeypatch.setattr(duckdb_intake, "_write_copy", slow)
    with pytest.raises(SourceError, match="changed while it was being opened"):
        opened(orders, intake)
    assert (copies(intake), accepted(intake)) == ([], {})


def test_a_place_that_cannot_be_written_is_named(orders, intake, tmp_path):
    (tmp_path / "orders.copies").write_text("a file", encoding="utf-8")
    with pytest.raises(SourceError, match=r"can't be kept in .*orders\.copies .*copies = false"):
        opened(orders, intake)


OPEN = """
import sys
from pathlib import Path
from dither.engines import DuckDBEngine
from dither.query.intake import Intake
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
path = Path(sys.argv[1])
columns = {name: ColumnFacts(name=name, kind=Kind.INTEGER) for name in ("who", "n")}
schema = Schema({"orders": TableFacts(name="orders", private=True, columns=columns, unit_column="who")})
intake = Intake(copies=path.with_name("orders.copies"), record=path.with_name("orders.accepted"))
with DuckDBEngine.open({"orders": path}, schema, intake=intake) as engine:
    print(engine.version(), [report.new for report in engine.reports], flush=True)
    sys.stdin.read()
"""


def test_several_processes_make_one_copy(orders, intake):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OPEN, str(orders)]
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(short_or_full(2, 3))]
    said = [worker.stdout.readline().split(maxsplit=1) for worker in workers]
    held = copies(intake)
    for worker in workers:
        worker.communicate()
    assert len(held) == len({version for version, _ in said}) == 1
    assert {news.strip() for _, news in said} <= {"[True]", "[False]"}
    with opened(orders, intake) as engine:
        assert (engine.version(), copies(intake)) == (said[0][0], held)


# ------------------------------------------------------------------ acceptance

CITIES = TableFacts(
    name="orders",
    private=True,
    unit_column="who",
    columns={
        "who": ColumnFacts(name="who", kind=Kind.INTEGER),
        "city": ColumnFacts(name="city", kind=Kind.TEXT, keys=("Basel", "Bern")),
        "day": ColumnFacts(name="day", kind=Kind.DATE),
    },
)
ROWS = [("1", "Basel", "2024-01-05")] * 90 + [
    *[("x", "Bern", "2024-01-05")] * 2,
    *[("", " Bern ", "NA")] * 3,
    *[("2", "Genf", "05/01/2024")] * 4,
    ("3", "", "2024-01-05"),
]


def write_rows(path, rows):
    path.write_text("\n".join(["who,city,day", *map(",".join, rows)]) + "\n", encoding="utf-8")


def left(engine):
    return {(one.why, one.column): (one.rows, one.of) for report in engine.reports for one in report.left}


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_left_out_is_counted(orders, intake, kept):
    write_rows(orders, ROWS)
    lax = Intake(copies=intake.copies if kept else None)
    with opened(orders, lax, CITIES) as engine:
        assert left(engine) == {
            ("unreadable", "who"): (2, 100),
            ("without_unit", "who"): (5, 100),
            ("unreadable", "day"): (4, 100),
            ("unlisted", "city"): (4, 100),
        }
        # blanks around a key that is listed aren't part of it
        assert values(engine, replace(CITIES, unit_column=None), 1) == {"Basel": 90, "Bern": 5, "Genf": 4, None: 1}


def test_the_same_is_counted_in_other_sources(tmp_path):
    rows = pa.table({name: [row[i] or None for row in ROWS] for i, name in enumerate(CITIES.columns)})
    pq.write_table(rows, tmp_path / "orders.parquet")
    duckdb_files.write(tmp_path / "orders.duckdb", {"orders": rows})
    expected = {("unreadable", "who"): (2, 100), ("without_unit", "who"): (5, 100), ("unreadable", "day"): (4, 100)}
    for source in ({"orders": tmp_path / "orders.parquet"}, tmp_path / "orders.duckdb"):
        # only CSV is refused for it: the types of others were the owner's choice
        with DuckDBEngine.open(source, schema(CITIES), intake=Intake(limits=STRICT)) as engine:
            # blanks are part of a text there
            assert left(engine) == {**expected, ("unlisted", "city"): (7, 100)}


def test_too_much_that_is_left_out_is_refused_until_the_owner_says_so(orders, intake):
    write_rows(orders, ROWS)
    with pytest.raises(NotAccepted, match=r"2 of 100 rows \(2%\) can't be read as integer in column who") as caught:
        opened(orders, intake, CITIES)
    assert "unreadable_up_to = 0.05, without_unit_up_to = 0.05, unlisted_up_to = 0.05" in str(caught.value)
    assert accepted(intake) == {}
    five = Fraction(5, 100)
    lax = Limits(unreadable=five, without_unit=five, unlisted=five)
    opened(orders, Intake(copies=intake.copies, record=intake.record, limits=lax), CITIES).close()
    # once accepted it stays so, whatever the policy says later
    with opened(orders, intake, CITIES) as engine:
        assert [report.new for report in engine.reports] == [False]
    # and another version isn't
    write_rows(orders, [*ROWS, ("4", "Basel", "")])
    with pytest.raises(NotAccepted):
        opened(orders, intake, CITIES)


def test_other_permissions_are_looked_at_again_and_accepted(orders, intake):
    write_rows(orders, ROWS)
    five = Fraction(5, 100)
    opened(orders, replace(intake, limits=Limits(unreadable=five, without_unit=five, unlisted=five)), CITIES).close()
    orders.chmod(0o600)
    looked = []
    with pytest.MonkeyPatch.context() as patched:
        real = duckdb_sources.look_at
        patched.setattr(duckdb_sources, "look_at", lambda *given: looked.append(given) or real(*given))
        for _ in range(2):
            with opened(orders, intake, CITIES) as engine:
                # as it was found before, so there is nothing to tell
                assert [(report.new, report.accepted) for report in engine.reports] == [(False, True)]
    assert len(looked) == 1


def test_no_table_makes_the_acceptance_of_another_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(copies_module, "MOST_VERSIONS", 2)
    record = AcceptedRecord(tmp_path / "accepted")
    keys = [f"{name}{version}" for version in range(3) for name in "abcdefgh"]
    for key in keys:
        record.add({key: Accepted(TableReport(table=key[0], rows=1, left=(), csv=True), "seen")})
    assert [key for key in keys if record.found(key) is None] == keys[:8]


@pytest.mark.parametrize("share", [0, 1, 2, 100])
def test_the_limit_is_a_share_of_the_rows(orders, intake, share):
    write_rows(orders, [("x", "Basel", "")] * share + [("1", "Basel", "")] * (100 - share))
    if share > 1:
        with pytest.raises(NotAccepted):
            opened(orders, intake, CITIES)
    else:
        opened(orders, intake, CITIES).close()


def test_another_process_takes_what_was_accepted_and_nothing_else(orders, intake):
    write_rows(orders, ROWS)
    with opened(orders, Intake(), CITIES) as engine:
        version = engine.version()
    member = Intake(copies=intake.copies, limits=STRICT, accepted=version)
    opened(orders, member, CITIES).close()
    write_rows(orders, ROWS[:90])
    with pytest.raises(SourceError, match="isn't what was opened before"):
        opened(orders, member, CITIES)


def test_a_record_that_is_damaged_is_as_none(orders, intake, monkeypatch):
    for damaged in (b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "accepted": 3}', b"\xff"):
        intake.record.write_bytes(damaged)
        opened(orders, intake).close()
        assert b'"format": 1' in intake.record.read_bytes()


def test_for_names_alone_nothing_is_read_or_written(tmp_path, intake, monkeypatch):
    checked = count_checks(monkeypatch)
    (tmp_path / "orders.csv").write_text('who,n\r\n1,"\r\n', newline="")
    names = Intake(copies=intake.copies, record=intake.record, names_only=True)
    with opened(tmp_path / "orders.csv", names) as engine:
        assert engine.describe() == {"orders": {"who": "BIGINT", "n": "BIGINT"}}
        with pytest.raises(EngineFailure):
            engine.run(measure(scan(ORDERS)), salt=SALT)
    assert (checked, [path.name for path in tmp_path.iterdir()]) == ([], ["orders.csv"])


# ------------------------------------------------------------------ other files


def test_a_text_in_parquet_that_is_not_utf8_is_told_on_opening(tmp_path):
    facts = table(who=Kind.INTEGER, place=Kind.TEXT)
    place = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"who": [1, 2], "place": place}), tmp_path / "orders.parquet")
    with pytest.raises(SourceError, match=r"column orders\.place holds text that isn't UTF-8"):
        opened(tmp_path / "orders.parquet", Intake(), facts)
    # a column that isn't declared is never read
    opened(tmp_path / "orders.parquet", Intake(), table(who=Kind.INTEGER)).close()


@pytest.mark.parametrize("damage", ["cut", "footer", "pages"])
def test_a_damaged_parquet_file_is_told_on_opening(tmp_path, damage):
    path = tmp_path / "orders.parquet"
    rows = pa.table({"who": list(range(5000)), "n": [i * i % 9973 for i in range(5000)]})
    pq.write_table(rows, path, compression="snappy", use_dictionary=False)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "footer":
        data[-400:-350] = bytes(50)
    else:
        data[200:400] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="can't be read"):
        opened(path, Intake())


def test_a_view_that_fails_on_a_row_is_told_on_opening(tmp_path):
    path = make(
        tmp_path / "data.duckdb",
        "CREATE TABLE t AS SELECT 1 AS who, '1' AS n UNION ALL SELECT 2, 'x'",
        "CREATE VIEW orders AS SELECT who, CAST(n AS INTEGER) AS n FROM t",
    )
    with pytest.raises(SourceError, match=r"column orders\.n can't be read to the end"):
        DuckDBEngine.open(path, schema(ORDERS))


def test_what_was_looked_at_once_is_not_read_again(tmp_path, monkeypatch):
    path = make(tmp_path / "data.duckdb", "CREATE TABLE orders AS SELECT 1 AS who, 2 AS n")
    looked, real = [], duckdb_intake.look_at
    monkeypatch.setattr("dither.engines.duckdb.sources.look_at", lambda *given: looked.append(1) or real(*given))
    for _ in range(2):
        DuckDBEngine.open(path, schema(ORDERS), intake=Intake(record=tmp_path / "record")).close()
    assert looked == [1]


# ------------------------------------------------------------------ spellings

moment = partial(dt.datetime, tzinfo=None)
SPELLINGS = {
    Kind.INTEGER: {
        "12": 12, "12.0": 12, "12.": 12, " 12 ": 12, "007": 7, "+5": 5, "-5.00": -5, "1e3": 1000, "1E+05": 100_000,
        "1.5e3": 1500, "9223372036854775807.0": 2**63 - 1, "9223372036854775808": None, "1e16": None, "12.5": None,
        "9007199254740991e0": 2**53 - 1,
        "9007199254740992e0": None, "9007199254740993e0": None, "-9007199254740993e0": None,
        "1.5e0": None, "1e-1": None, "1e400": None, "1,000": None, "0x1f": None, "12 3": None, "1_000": None, "x": None,
    },
    Kind.DOUBLE: {"1": 1.0, ".5": 0.5, "5.": 5.0, "+5": 5.0, "-1E-3": -0.001, " 2 ": 2.0, "1,5": None, "inf": None,
        "1e999": None, "-1e999": None, "1e308": 1e308, "1e-999": 0.0},
    Kind.BOOLEAN: {
        "yes": True, "No": False, " TRUE ": True, "f": False, "Y": True, "n": False, "1": True, "0": False, "1.0": True,
        "0.0": False, "on": True, "OFF": False, "2": None, "oui": None, "yesterday": None,
    },
    Kind.DATE: {
        "2024-01-05": dt.date(2024, 1, 5), "2024-1-5": dt.date(2024, 1, 5), "2024/01/05": dt.date(2024, 1, 5),
        "20240105": dt.date(2024, 1, 5), "2024-01-05 00:00:00": dt.date(2024, 1, 5),
        "2024-01-05T23:30:00.123456789Z": dt.date(2024, 1, 5), "2024-01-05 23:59 UTC": dt.date(2024, 1, 5),
        "2024-01-05T23:30:00+02:00": None, "05.01.2024": None, "01/05/2024": None, "2024-02-30": None,
        "20240230": None, "0000-01-01": None, "infinity": None, "2024-01-05 (BC)": None, "2024-01-05 24:00": None,
    },
    Kind.TIMESTAMP: {
        "2024-01-05": moment(2024, 1, 5), "2024-01-05 10:30": moment(2024, 1, 5, 10, 30),
        "2024-01-05T10:30:05.5Z": moment(2024, 1, 5, 10, 30, 5, 500_000),
        "2024-01-05 10:30:05.123456789": moment(2024, 1, 5, 10, 30, 5, 123_456),
        "2024-01-05T10:30:00+02:00": moment(2024, 1, 5, 8, 30),
        "2024-01-05 10:30:00 +0530": moment(2024, 1, 5, 5), "2024-01-05T10:30-08": moment(2024, 1, 5, 18, 30),
        "0001-01-01T00:00:00+02:00": None, "9999-12-31T23:59:59-02:00": None, "1700000000": None, "10:30": None,
        "2024-01-05123": None, "2024-01-05 10:3012": None, "2024-02-30T10:00+01:00": None, "2024-01-05T10:30:60": None,
    },
    Kind.TEXT: {"yes": "yes", " a ": " a ", "12.0": "12.0", "NA": "NA"},
}  # fmt: skip


@pytest.mark.parametrize("kind", SPELLINGS)
def test_the_usual_spellings_are_read_and_others_are_null(kind):
    sql = f"SELECT {read_text('r.x', kind)} FROM (SELECT CAST(? AS VARCHAR) AS x) AS r"
    assert {text: duckdb.execute(sql, [text]).fetchone()[0] for text in SPELLINGS[kind]} == SPELLINGS[kind]


@pytest.mark.parametrize("text", ["", "  ", "NA", "n/a", " NaN ", "NULL", "None"])
def test_what_says_that_there_is_no_value_is_not_unreadable(text):
    sql = f"SELECT {missing('r.x')} FROM (SELECT CAST(? AS VARCHAR) AS x) AS r"
    assert duckdb.execute(sql, [text]).fetchone()[0]
    for other in ("0", "nanny", "-", "?", "NA NA"):
        assert not duckdb.execute(sql, [other]).fetchone()[0]
