"""Whom a row is about: one person is one unit however the id is written, and nobody is called NA or NaN."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.engines import DuckDBEngine
from dither.engines.reference.engine import ReferenceEngine
from dither.errors import SourceError
from dither.query.intake import Intake
from dither.query.kinds import Column, Kind
from dither.query.plan.plan import JoinKind, JoinRows
from support import duckdb_files
from support.sizes import some

make, measure, scan, schema, table, write, SALT = (
    getattr(duckdb_files, name) for name in ("make", "measure", "scan", "schema", "table", "write", "SALT")
)

NOTHING = ["", "  ", "NA", "na", "N/A", "NaN", "null", " NULL ", "None"]
FORMS = ["csv", "csv, copied", "parquet", "duckdb", "reference"]


def opened(form, folder, facts, ids):
    """An engine on a table of these ids; without ids of their own, rows have them as they are."""
    rows = {"who": ids, "n": list(range(len(ids)))}
    tables = {facts.name: pa.table(rows)}
    if form == "reference":
        made = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        return ReferenceEngine({facts.name: made}, schema(facts))
    if form == "duckdb":
        write(folder / "data.duckdb", tables)
        return DuckDBEngine.open(folder / "data.duckdb", schema(facts))
    if form == "parquet":
        pq.write_table(tables[facts.name], folder / "data.parquet")
        return DuckDBEngine.open({facts.name: folder / "data.parquet"}, schema(facts))
    text = "".join(f'"{who}",{n}\n' for who, n in zip(*rows.values(), strict=True))
    (folder / "data.csv").write_text("who,n\n" + text, encoding="utf-8", newline="")
    intake = Intake(copies=folder / "copies" if "copied" in form else None)
    return DuckDBEngine.open({facts.name: folder / "data.csv"}, schema(facts), intake=intake)


def units(engine, facts):
    """How many units there are: each counts as one row."""
    one = measure(scan(facts), rows=1, totals=(replace(duckdb_files.COUNT, high=1),))
    return int(engine.run(one, salt=SALT).totals[0][0])


IDS = [
    (Kind.TEXT, ["u1", "u1 ", " u1", "u2"], 2),
    (Kind.TEXT, ["a long name", "a long name ", " a long name", "a  long name"], 2),
    (Kind.TEXT, ["NA", "nan", "u1", "none", "nobody", "nil", "0", "-"], 5),
    (Kind.TEXT, NOTHING, 0),
    (Kind.TEXT, ["é", "é ", "É"], 2),
    (Kind.INTEGER, ["7", "07", " 7 ", "8", "x", "NA"], 2),
    (Kind.DOUBLE, ["7", "7.0", "7e0", " 7", "-0", "0.0", "NaN", "x", "1e999"], 2),
    (Kind.DATE, ["2024-01-05", "2024-01-05 ", "2024-01-06", "x"], 2),
    (Kind.TIMESTAMP, ["2024-01-05", "2024-01-05 00:00", "2024-01-05T00:00:00", "NA"], 1),
    (Kind.BOOLEAN, ["true", "TRUE", "false", "NA"], 2),
]


# by day every second of them: each form with half of the ids, and each ids in half of the forms
@pytest.mark.parametrize(("kind", "ids", "people", "form"), some([(*ids, form) for ids in IDS for form in FORMS], 2))
def test_one_person_is_one_unit_however_the_id_is_written(tmp_path, form, kind, ids, people):
    facts = table(who=kind, n=Kind.INTEGER)
    with_engine = opened(form, tmp_path, facts, ids)
    try:
        assert units(with_engine, facts) == people
    finally:
        with_engine.close()


@pytest.mark.parametrize("form", ["csv", "csv, copied"])
def test_an_id_in_a_csv_file_has_nothing_invisible_around_it(tmp_path, form):
    facts = table(who=Kind.TEXT, n=Kind.INTEGER)
    ids = ["u1", "u1\t", "\u00a0u1", "u1\n", "\ufeffu1", "u1\u00a0 "]
    with opened(form, tmp_path, facts, ids) as engine:
        assert units(engine, facts) == 1
        assert duckdb_files.values(engine, facts, 0) == {"u1": len(ids)}


@pytest.mark.parametrize("form", [form for form in FORMS if form != "reference"])
def test_ids_that_are_missing_are_counted_as_rows_without_a_unit(tmp_path, form):
    facts = table(who=Kind.TEXT, n=Kind.INTEGER)
    with opened(form, tmp_path, facts, ["u1", *NOTHING]) as engine:
        (report,) = engine.reports
    left = {one.why: one.rows for one in report.left}
    assert left == {"without_unit": len(NOTHING)}


@pytest.mark.parametrize("form", ["parquet", "duckdb", "reference"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_nobody(tmp_path, form, kind):
    facts = table(who=Kind.DOUBLE, n=Kind.INTEGER)
    ids = pa.array([float("nan"), 1.0, float("nan"), 2.0, 2.0], kind)
    engine = opened(form, tmp_path, facts, ids.to_pylist() if form == "reference" else ids)
    try:
        assert units(engine, facts) == 2
        if form != "reference":
            assert [(one.why, one.rows) for one in engine.reports[0].left] == [("without_unit", 2)]
    finally:
        engine.close()


def test_texts_that_are_read_as_numbers_are_not_the_ids_of_texts(tmp_path):
    """7.0 in the one table and 7 in the other would be two people."""
    write(tmp_path / "a.duckdb", {name: pa.table({"who": ["7"], "n": [1]}) for name in ("orders", "people")})
    kinds = {"orders": Kind.DOUBLE, "people": Kind.TEXT}
    both = [table(name=name, who=kind, n=Kind.INTEGER) for name, kind in kinds.items()]
    with pytest.raises(SourceError, match="must have one type"):
        DuckDBEngine.open(tmp_path / "a.duckdb", schema(*both))
    DuckDBEngine.open(tmp_path / "a.duckdb", schema(both[0], table(name="people", who=Kind.DOUBLE))).close()


def test_tables_are_joined_on_ids_without_their_blanks(tmp_path):
    """In the one table 'u1 ', in the other 'u1': the same person, in CSV files and in Parquet."""
    orders, people = table(who=Kind.TEXT, n=Kind.INTEGER), table(name="people", who=Kind.TEXT, age=Kind.INTEGER)
    (tmp_path / "orders.csv").write_text("who,n\nu1 ,1\nu2,2\nNA,3\n", encoding="utf-8")
    pq.write_table(pa.table({"who": ["u1", " u2 ", "NA"], "age": [1, 2, 3]}), tmp_path / "people.parquet")
    files = {"orders": tmp_path / "orders.csv", "people": tmp_path / "people.parquet"}
    left, right = scan(orders), scan(people)
    right = replace(
        right,
        columns=(("d0", "who"), ("d1", "age")),
        fields=tuple(replace(field, name=f"d{place}") for place, field in enumerate(right.fields)),
    )
    joined = JoinRows(kind=JoinKind.INNER, left=left, right=right, condition=None, on_unit=True)
    with DuckDBEngine.open(files, schema(orders, people), intake=Intake(copies=tmp_path / "copies")) as engine:
        found = engine.run(measure(joined, Column("c0", Kind.TEXT)), salt=SALT)
    assert found.keys.column("k0").to_pylist() == ["u1", "u2"]
    assert found.totals[0].tolist() == [1, 1]
