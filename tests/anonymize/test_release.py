"""What a release prints, what it leaves out, and what it writes."""

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.lattice.full_domain import full_domain
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.releases.printing import PrintedColumn, alone, inside
from dither.anonymize.releases.quasi_identifier_axis import Axis
from dither.anonymize.releases.release import Release
from dither.anonymize.table.classes import Classes
from dither.anonymize.table.row_keys import alike, keys_of, order_of
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter
from support.sizes import examples


def cells_of(values, of_row, **attribute):
    table = pa.table({"q": values})
    asked = Attribute(name="q", role=Role.QUASI, **attribute)
    of_row = np.array(of_row)
    return PrintedColumn.of(Axis.of(encode(table, asked), asked), of_row, int(of_row.max()) + 1)


@pytest.mark.parametrize(
    ("values", "of_row", "texts"),
    [
        ([23, 20, 29, 40], [0, 1, 1, 2], ["23", "20–29", "40"]),
        ([-5, -3, None, None], [0, 0, 1, 1], ["-5–-3", None]),
        ([1, 2, None, 7, None], [0, 0, 0, 1, 1], ["{1–2, NULL}", "{7, NULL}"]),
        ([0.5, 2.0, float("nan")], [0, 0, 1], ["0.5–2", None]),
        ([dt.date(2001, 1, 1), dt.date(2001, 12, 31)], [0, 0], ["2001-01-01–2001-12-31"]),
        (["b", "a", "b", "c"], [0, 0, 1, 1], ["{a, b}", "{b, c}"]),
        (["a", None, "a", None, None], [0, 0, 1, 2, 2], ["{a, NULL}", "a", None]),
        (["a, b", "c", "a, b"], [0, 0, 1], ['{"a, b", c}', "a, b"]),
        (["{a}", "*", "", '"', "x–y"], [0, 1, 2, 3, 4], ['"{a}"', '"*"', '""', '"\\""', '"x–y"']),
        (["NULL", "null", None], [0, 0, 0], ['{"NULL", null, NULL}']),
        ([True, False, True], [0, 0, 1], ["{false, true}", "true"]),
    ],
)
def test_cells_are_printed_by_the_grammar(values, of_row, texts):
    assert cells_of(values, of_row).texts.to_pylist() == texts


def test_ordered_values_are_ranges_and_their_ends_are_quoted_if_need_be():
    found = cells_of(["b–c", "a", "d"], [0, 0, 1], order=("a", "b–c", "d"))
    assert found.texts.to_pylist() == ['a–"b–c"', "d"]


def test_hierarchies_print_their_labels_as_they_spell_them():
    tree = Hierarchy.from_mapping({"a, b": ("{x}", "top"), "c": ("{x}", "top"), "d": ("y", "top")})
    found = cells_of(["a, b", "c", "d", "c", "d"], [0, 1, 1, 2, 3], hierarchy=tree)
    assert found.texts.to_pylist() == ["a, b", "top", "c", "d"]
    assert cells_of(["a, b", "c"], [0, 0], hierarchy=tree).texts.to_pylist() == ["{x}"]


def test_a_missing_value_under_a_hierarchy_meets_the_others_at_the_top():
    found = cells_of([3, None, None], [0, 0, 1], hierarchy=Hierarchy.intervals((5,)))
    assert found.texts.to_pylist() == ["*", None]
    assert found.or_missing.tolist() == [True, True]


@examples(40, 100)
@given(st.text(alphabet='ab{},"–* \\NUL', max_size=6))
def test_quoted_values_can_be_read_back(text):
    single = alone(text)
    assert (json.loads(single) if single.startswith('"') else single) == text
    assert single == text or single not in ("", "*")
    within = inside(text)
    assert (json.loads(within) if within.startswith('"') else within) == text
    if not within.startswith('"'):
        assert within not in ("", "*", "NULL")
        assert not set(within) & set('{},"–')


def rows_of(release):
    return [tuple(row.values()) for row in release.table.to_pylist()]


def test_classes_that_print_the_same_are_one():
    table = pa.table({"age": [1, 3, 1, 3], "ill": ["a", "b", "c", "d"]})
    configuration = Configuration.of(table, quasi=["age"], sensitive=["ill"], k=2)
    axis = Axis.of(encode(table, configuration.quasi[0]), configuration.quasi[0])
    of_row = np.array([0, 0, 1, 1])
    release = Release.of(table, configuration, Classes.of(of_row), [PrintedColumn.of(axis, of_row, 2)], how="by hand")
    assert release.classes.number == 1
    assert release.classes.sizes.tolist() == [4]
    assert release.quality().discernibility == 16
    assert repr(release) == "Release(by hand: 4 rows in 1 classes, 0 suppressed)"


def test_merged_classes_are_as_wide_as_the_widest_of_them():
    # the label "x" stands for one value at level 0 and for two at level 1
    tree = Hierarchy.from_mapping({"x": "x", "y": "x", "z": "z"})
    table = pa.table({"q": ["x", "x", "x", "y", "z", "z"]})
    configuration = Configuration.of(table, quasi={"q": tree}, k=2)
    axis = Axis.of(encode(table, configuration.quasi[0]), configuration.quasi[0])
    of_row = np.array([0, 0, 1, 1, 2, 2])
    release = Release.of(table, configuration, Classes.of(of_row), [PrintedColumn.of(axis, of_row, 3)], how="by hand")
    assert release.classes.sizes.tolist() == [4, 2]
    assert release.cells[0].shares.tolist() == [0.5, 0.0]
    assert release.cells[0].spread.tolist() == [4, 2]


def test_suppressed_rows_and_identifying_columns_are_left_out():
    table = pa.table({"name": list("ABCDE"), "age": [1, 2, 3, 4, 99], "ill": list("vwxyz")})
    configuration = Configuration.of(table, quasi=["age"], sensitive=["ill"], k=2, suppression="1/5")
    axis = Axis.of(encode(table, configuration.quasi[0]), configuration.quasi[0])
    of_row = np.array([0, 0, 1, 1, -1])
    release = Release.of(table, configuration, Classes.of(of_row), [PrintedColumn.of(axis, of_row, 2)], how="by hand")
    assert rows_of(release) == [("1–2", "v"), ("1–2", "w"), ("3–4", "x"), ("3–4", "y")]
    assert release.classes.suppressed == 1
    assert release.rows.tolist() == [0, 1, 2, 3]
    assert verify(release.table, configuration, table).good


def test_rows_stand_by_what_they_say_and_not_as_they_came():
    table = pa.table({"age": [2, 1, 2, 1], "ill": ["b", "z", "a", None], "wage": [1, 1, 1, 1]})
    release = mondrian(table, quasi=["age"], sensitive=["ill"], insensitive=["wage"], k=2)
    assert rows_of(release) == [("1", "z", 1), ("1", None, 1), ("2", "a", 1), ("2", "b", 1)]
    assert release.rows.tolist() == [1, 3, 2, 0]


def test_nested_columns_may_be_kept():
    table = pa.table({"age": [1, 1, 1], "seen": [[3], [1, 2], None]})
    release = mondrian(table, quasi=["age"], insensitive=["seen"], k=2)
    # by their text: "None", "[1, 2]" and "[3]"
    assert [row[1] for row in rows_of(release)] == [None, [1, 2], [3]]


def test_nothing_of_other_rows_hides_in_dictionaries_or_metadata():
    ill = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 1]), pa.array(["flu", "secret"]))
    age = pa.field("age", pa.int64(), metadata={"source": "register of Ulm"})
    table = pa.Table.from_arrays(
        [pa.array([1, 1, 1, 99]), ill], schema=pa.schema([age, pa.field("ill", ill.type)], metadata={"owner": "Ulm"})
    )
    configuration = Configuration.of(table, quasi=["age"], sensitive=["ill"], k=2, suppression="1/4")
    axis = Axis.of(encode(table, configuration.quasi[0]), configuration.quasi[0])
    of_row = np.array([0, 0, 0, -1])
    released = Release.of(
        table, configuration, Classes.of(of_row), [PrintedColumn.of(axis, of_row, 1)], how="by hand"
    ).table
    assert released.schema.metadata is None
    assert all(field.metadata is None for field in released.schema)
    assert released.column("age").combine_chunks().dictionary.to_pylist() == ["1"]
    assert released.column("ill").type == pa.string()
    buffers = b"".join(
        bytes(part) for column in released.columns for chunk in column.chunks for part in chunk.buffers() if part
    )
    assert b"secret" not in buffers
    assert b"99" not in buffers


@pytest.fixture
def release():
    table = pa.table(
        {
            "age": [21, 25, 29, 34, None, 38],
            "day": pa.array([1, 2, 3, 4, 5, 6], pa.date32()),
            "town": ["Ulm", "Bonn", "Ulm", "Kiel, Nord", "", None],
            "ill": ["flu", "cold", "flu", "cold", None, "flu"],
        }
    )
    return table, mondrian(table, quasi=["age", "day", "town"], sensitive=["ill"], k=2)


def test_a_saved_release_passes_the_verifier(release, tmp_path):
    table, made = release
    made.save(tmp_path / "released.parquet")
    found = verify(tmp_path / "released.parquet", made.configuration, table)
    assert found.good, str(found)
    assert parquet.read_table(tmp_path / "released.parquet").cast(made.table.schema).equals(made.table)


def test_a_release_saved_as_text_passes_the_verifier(release, tmp_path):
    table, _ = release
    # readers of text files take a missing text for an empty one: nothing may be missing in columns that are kept
    table = table.set_column(3, "ill", table.column("ill").fill_null("well"))
    made = mondrian(table, quasi=["age", "day", "town"], sensitive=["ill"], k=2)
    made.save(tmp_path / "released.csv")
    found = verify(tmp_path / "released.csv", made.configuration, table)
    assert found.good, str(found)
    single = mondrian(table.select(["town", "ill"]).slice(3, 2), quasi=["town"], sensitive=["ill"], k=2)
    single.save(tmp_path / "released.csv")
    lines = (tmp_path / "released.csv").read_text().splitlines()
    assert lines == ['"town","ill"', '"{"""", ""Kiel, Nord""}","cold"', '"{"""", ""Kiel, Nord""}","well"']


def test_other_files_are_refused(release, tmp_path):
    with pytest.raises(InvalidParameter, match=r"saved as .parquet or .csv; got 'released.xls'"):
        release[1].save(tmp_path / "released.xls")


def test_frames_say_the_same(release):
    made = release[1]
    assert made.to_arrow() is made.table
    assert made.to_polars().rows() == rows_of(made)
    frame = made.to_pandas()
    assert frame["age"].astype(object).where(frame["age"].notna(), None).tolist() == [row[0] for row in rows_of(made)]


def test_the_ends_of_ranges_come_as_values_too(release):
    table, made = release
    wide = made.with_bounds()
    assert wide.column_names == ["age", "day", "town", "ill", "age_low", "age_high", "day_low", "day_high"]
    assert wide.column("day_low").type == pa.date32()
    for row, place in zip(wide.to_pylist(), made.rows.tolist(), strict=True):
        age = table.column("age")[place].as_py()
        assert age is None or row["age_low"] <= age <= row["age_high"]
    assert verify(wide, made.configuration, table).good
    only = mondrian(pa.table({"age": pa.array([None, None], pa.int8())}), quasi=["age"], k=2).with_bounds()
    assert only.to_pylist() == [{"age": None, "age_low": None, "age_high": None}] * 2


def test_bounds_do_not_overwrite_a_column():
    table = pa.table({"age": [1, 2], "age_low": [5, 6]})
    with pytest.raises(InvalidParameter, match="already has a column 'age_low'"):
        mondrian(table, quasi=["age"], sensitive=["age_low"], k=2).with_bounds()


def test_parts_that_do_not_fit_together_are_refused():
    table = pa.table({"age": [1, 2]})
    configuration = Configuration.of(table, quasi=["age"], k=2)
    axis = Axis.of(encode(table, configuration.quasi[0]), configuration.quasi[0])
    of_row = np.array([0, 0])
    cells = PrintedColumn.of(axis, of_row, 1)
    with pytest.raises(InvalidParameter, match="for each row"):
        Release.of(table, configuration, Classes.of(np.array([0])), [cells], how="")
    with pytest.raises(InvalidParameter, match="each of 'age'"):
        Release.of(table, configuration, Classes.of(of_row), [], how="")
    with pytest.raises(InvalidParameter, match="every class must have a row"):
        Release.of(table, configuration, Classes.of(of_row, 2), [cells.take(np.array([0, 0]))], how="")


@examples(40, 100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=30))
def test_lines_are_ordered_and_counted_as_tuples(lines):
    columns = [np.array([line[place] for line in lines], np.int64) for place in range(3)]
    keys, bound = keys_of(columns, [4, 2**40 + 1, 2**40 + 1])
    assert not keys.size or keys.max() < bound
    order = order_of(keys, bound)
    assert [lines[place] for place in order] == sorted(lines)
    first, became, counts = alike(columns, [4, 2**40 + 1, 2**40 + 1])
    distinct = sorted(set(lines))
    assert [lines[place] for place in first] == distinct
    assert [distinct[place] for place in became] == lines
    assert counts.tolist() == [lines.count(line) for line in distinct]


NAMES = [f"Zebedee{i:03}" for i in range(40)]


def with_names():
    """Forty people; the last one is so old that he has to be left out, and every row names its person somewhere."""
    age = [20 + i % 4 for i in range(39)] + [99]
    illness = ["flu", "cold", "gout"]
    codes = pa.array([i % 3 for i in range(39)] + [3], pa.int32())
    ill = pa.DictionaryArray.from_arrays(codes, pa.array([*illness, "SecretIllness", "UnusedIllness"]))
    where = pa.StructArray.from_arrays([ill], ["at"])
    seen = pa.ListArray.from_arrays(pa.array(range(41), pa.int32()), ill)
    fields = [
        pa.field("name", pa.string(), metadata={"note": "Zebedee000 was the first"}),
        pa.field("age", pa.int64()),
        pa.field("ill", ill.type),
        pa.field("where", where.type),
        pa.field("seen", seen.type),
    ]
    schema = pa.schema(fields, metadata={"pandas": '{"index": "Zebedee001"}', "file": "Zebedee002.csv"})
    return pa.Table.from_arrays([pa.array(NAMES), pa.array(age), ill, where, seen], schema=schema)


def test_files_hold_no_byte_of_what_was_removed(tmp_path):
    """Names, metadata, values of suppressed rows, and values of a dictionary that no row has, at any depth."""
    table = with_names()
    quasi = {"age": Hierarchy.intervals((5,))}
    release = full_domain(table, quasi=quasi, sensitive=["ill"], insensitive=["where", "seen"], k=5, suppression="1/20")
    assert release.classes.suppressed == 1
    release.save(tmp_path / "out.parquet")
    flat = full_domain(table, quasi=quasi, sensitive=["ill"], k=5, suppression="1/20")
    flat.save(tmp_path / "out.csv")
    with pa.OSFile(str(tmp_path / "out.arrow"), "wb") as sink, pa.ipc.new_file(sink, release.table.schema) as file:
        file.write_table(release.to_arrow())
    release.to_pandas().to_pickle(tmp_path / "out.pickle")
    parquet.write_table(release.table, tmp_path / "plain.parquet", compression="none")
    for place in sorted(tmp_path.iterdir()):
        content = place.read_bytes()
        for told in ("Zebedee", "SecretIllness", "UnusedIllness", "95–99", "99.0"):
            assert told.encode() not in content, (place.name, told)
    described = parquet.ParquetFile(tmp_path / "out.parquet")
    assert set(described.metadata.metadata) <= {b"ARROW:schema"}
    for name in ("age", "ill"):
        column = described.metadata.row_group(0).column(described.schema_arrow.names.index(name))
        values = release.table.column(name).cast(pa.string()).to_pylist()
        assert (column.statistics.min, column.statistics.max) == (min(values), max(values))


def test_a_file_is_a_function_of_what_it_says(tmp_path):
    """The order in which people came can't be seen: a table in another order gives the same bytes."""
    table = with_names()
    files = []
    for turn, order in enumerate((np.arange(40), np.random.default_rng(0).permutation(40))):
        made = full_domain(
            table.take(order), quasi={"age": Hierarchy.intervals((5,))}, sensitive=["ill"], k=5, suppression="1/20"
        )
        made.save(tmp_path / f"{turn}.parquet")
        made.save(tmp_path / f"{turn}.csv")
        files.append(((tmp_path / f"{turn}.parquet").read_bytes(), (tmp_path / f"{turn}.csv").read_bytes()))
    assert files[0] == files[1]


def test_nothing_half_written_is_left(release, tmp_path, monkeypatch):
    made = release[1]
    with pytest.raises(InvalidParameter, match="can't be written: is there such a directory"):
        made.save(tmp_path / "nowhere" / "out.csv")
    (tmp_path / "out.csv").write_text("before")

    def stopped(table, place):
        place.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("dither.anonymize.releases.release.arrow_csv.write_csv", stopped)
    with pytest.raises(KeyboardInterrupt):
        made.save(tmp_path / "out.csv")
    assert [place.name for place in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "before"


def test_columns_that_text_files_cannot_hold_are_refused(tmp_path):
    table = pa.table({"age": [1, 1], "seen": [["secret"], ["b"]]})
    made = mondrian(table, quasi=["age"], insensitive=["seen"], k=2)
    with pytest.raises(InvalidParameter, match=r"a .csv file can't hold a column of one of the types list") as raised:
        made.save(tmp_path / "out.csv")
    assert "secret" not in str(raised.value)
    assert not list(tmp_path.iterdir())
    made.save(tmp_path / "out.parquet")
    assert verify(tmp_path / "out.parquet", made.configuration, table).good
