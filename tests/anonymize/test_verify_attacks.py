"""Right releases of every method pass the verifier; each way of spoiling one is caught; and it stands on its own."""

import ast
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, strategies as st

from dither.anonymize import verify as verifier
from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.lattice.full_domain import full_domain
from dither.anonymize.models.catalogue import DistinctDiversity, KMap, TCloseness
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.verifier.findings import Problem
from dither.anonymize.verifier.verify import verify
from support.sizes import examples

HOME = Path(verifier.__code__.co_filename).parent
OWN = ("verify", "truth", "matching", "parse", "grouping", "findings", "definitions")
# What says what is wanted, how files are read, and how a single value is spelled.
SHARED = {
    "dither.anonymize.attributes": {"Attribute", "Role"},
    "dither.anonymize.configuration": {"Configuration"},
    "dither.anonymize.hierarchy.hierarchies": {"TableHierarchy"},
    "dither.anonymize.models.catalogue": None,
    "dither.anonymize.table.read": {"as_table"},
    "dither.anonymize.table.values": {"ANYTHING", "Bools", "Counts", "AxisKind", "is_text", "kind_of", "plain"},
    "dither.errors": None,
}


@pytest.mark.parametrize("module", OWN)
def test_the_verifier_shares_no_code_with_what_makes_releases(module):
    tree = ast.parse((HOME / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Import) and any(name.name.startswith("dither") for name in node.names))
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("dither"):
            continue
        if node.module in {f"dither.anonymize.verifier.{own}" for own in OWN}:
            continue
        assert node.module in SHARED, node.module
        allowed = SHARED[node.module]
        assert allowed is None or {name.name for name in node.names} <= allowed, (node.module, ast.unparse(node))


# ------------------------------------------------------------------ a table with everything that is awkward

RNG = np.random.default_rng(7)
N = 160
TOWNS = ["Ulm", "20–29", "*", "{a, b}", "NULL", "", 'say "x"', "Kiel, Nord"]
TABLE = pa.table(
    {
        "name": [f"person {i}" for i in range(N)],
        "age": pa.array(
            [None if i % 23 == 0 else int(age) for i, age in enumerate(RNG.integers(20, 60, N))], pa.int8()
        ),
        "town": [None if i % 19 == 0 else TOWNS[int(t)] for i, t in enumerate(RNG.integers(0, len(TOWNS), N))],
        "wage": np.round(RNG.lognormal(3, 1, N), 1),
        "ill": RNG.choice(["flu", "cold", "gout"], N),
        "visits": RNG.integers(0, 4, N),
    }
)
ROLES = {"sensitive": ["ill"], "insensitive": ["visits"], "k": 4}
AGES = Hierarchy.intervals((10, 20, 40))
WAGES = Hierarchy.intervals((50, 100, 1000))
GROUPS = {town: "short" if len(town) < 5 else "long" for town in TOWNS}
TREE = Hierarchy.from_mapping({**GROUPS, "": "none"})


def made(how):
    if how == "lattice":
        quasi = {"age": AGES, "town": TREE, "wage": WAGES}
        return full_domain(TABLE, quasi=quasi, **ROLES, suppression="1/10")
    quasi = {"age": AGES, "town": None, "wage": None} if how == "labels" else ["age", "town", "wage"]
    return mondrian(TABLE, quasi=quasi, **ROLES, strict=how != "relaxed")


HOWS = ("strict", "relaxed", "labels", "lattice")
RELEASES = {how: made(how) for how in HOWS}


def problems(table, how, original=TABLE):
    return {finding.problem for finding in verify(table, RELEASES[how].configuration, original).findings}


def with_column(table, name, values):
    return table.set_column(table.column_names.index(name), name, pa.array(values, pa.string()))


def lists(table):
    return {name: table.column(name).to_pylist() for name in table.column_names}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("ending", ["parquet", "csv", None])
def test_right_releases_pass_in_every_form(how, ending, tmp_path):
    release = RELEASES[how]
    table = release.table
    if ending:
        table = tmp_path / f"out.{ending}"
        release.save(table)
    found = verify(table, release.configuration, TABLE)
    assert found.good, str(found)
    assert not found.notes
    assert found.smallest == release.classes.sizes.min()
    assert found.suppressed == release.classes.suppressed
    assert verify(table, release.configuration).good


@pytest.mark.parametrize("how", HOWS)
def test_the_order_of_rows_and_columns_says_nothing(how):
    table = RELEASES[how].table
    mixed = table.take(RNG.permutation(table.num_rows)).select(sorted(table.column_names))
    assert problems(mixed, how) == set()


@pytest.mark.parametrize("how", HOWS)
def test_rows_added_doubled_or_taken_from_another_class(how):
    table = RELEASES[how].table
    one = table.slice(0, 1)
    assert Problem.NOT_FROM_ORIGINAL in problems(pa.concat_tables([table, one]), how)
    if how != "lattice":
        assert Problem.TOO_MANY_ROWS in problems(pa.concat_tables([table, one]), how)
    # as many rows as before, one of them twice in place of another
    doubled = pa.concat_tables([table.slice(0, table.num_rows - 1), one])
    assert Problem.NOT_FROM_ORIGINAL in problems(doubled, how)
    # one class given away, and another one doubled
    sizes = RELEASES[how].classes.sizes
    first, last = int(sizes[0]), int(sizes[-1])
    twice = pa.concat_tables([table.slice(0, first), table.slice(0, table.num_rows - last)])
    assert Problem.NOT_FROM_ORIGINAL in problems(twice, how)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("column", ["ill", "visits"])
def test_what_is_kept_stays_in_its_class(how, column):
    release = RELEASES[how]
    table = release.table
    of_row = release.classes.of_row[release.rows]
    values = table.column(column).to_pylist()
    # the first row of the first class against one of the last class that says something else
    other = next(row for row in range(len(values) - 1, -1, -1) if values[row] != values[0] and of_row[row] != of_row[0])
    swapped = list(values)
    swapped[0], swapped[other] = values[other], values[0]
    changed = table.set_column(table.column_names.index(column), column, pa.array(swapped))
    assert problems(changed, how) == {Problem.NOT_FROM_ORIGINAL}
    strange = pa.array([99 if column == "visits" else "plague", *values[1:]])
    assert problems(table.set_column(table.column_names.index(column), column, strange), how) == {
        Problem.NOT_FROM_ORIGINAL
    }
    none = pa.array([None, *values[1:]])
    assert problems(table.set_column(table.column_names.index(column), column, none), how) == {
        Problem.NOT_FROM_ORIGINAL
    }


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("column", ["age", "town", "wage"])
@pytest.mark.parametrize(
    "cell", ["7", "1–2", "{Oslo}", "nan", "nan–nan", "inf", "", None, "NULL", "—", "{", '"', "-inf–0"]
)
def test_a_class_with_a_cell_that_stands_for_something_else(how, column, cell):
    """The whole class has it, so that only the original can tell; a cell that is read as anything would pass."""
    release = RELEASES[how]
    columns = lists(release.table)
    of_row = release.classes.of_row[release.rows]
    # a class without the missing value and without the value that the cell names
    numbers = np.array(TABLE.column(column).is_null())[release.rows]
    group = next(g for g in range(release.classes.number) if not numbers[of_row == g].any())
    for row in np.flatnonzero(of_row == group).tolist():
        columns[column][row] = cell
    before = {town for town, place in zip(TABLE.column("town").to_pylist(), release.classes.of_row, strict=True)
              if place == group}  # fmt: skip
    if column == "town" and cell in before:
        return
    spoilt = pa.table({name: pa.array(values) for name, values in columns.items()})
    assert problems(spoilt, how) & {Problem.NOT_FROM_ORIGINAL, Problem.NOT_IN_HIERARCHY}


@pytest.mark.parametrize("how", HOWS)
def test_a_class_that_is_split_or_too_small(how):
    release = RELEASES[how]
    cells = release.table.column("age").to_pylist()
    split = with_column(release.table, "age", [f"{cells[0]} ", *cells[1:]])
    assert Problem.MODEL_VIOLATED in problems(split, how)
    assert Problem.MODEL_VIOLATED in problems(split, how, None)
    # true, and alone
    own = TABLE.column("age")[int(release.rows[0])].as_py()
    exact = with_column(release.table, "age", [None if own is None else str(own), *cells[1:]])
    assert Problem.MODEL_VIOLATED in problems(exact, how, None)


@pytest.mark.parametrize("how", HOWS)
def test_rows_left_out_beyond_what_is_allowed(how):
    table = RELEASES[how].table
    fewer = table.slice(int(RELEASES[how].classes.sizes[0]))
    for _ in range(4):
        fewer = fewer.slice(4)
    found = verify(fewer, RELEASES[how].configuration, TABLE)
    assert Problem.TOO_MANY_SUPPRESSED in {finding.problem for finding in found.findings}
    assert found.suppressed == N - fewer.num_rows


@pytest.mark.parametrize("how", HOWS)
def test_columns_that_should_not_be_there(how):
    table = RELEASES[how].table
    named = table.append_column("name", TABLE.column("name").take(RELEASES[how].rows))
    assert problems(named, how) == {Problem.IDENTIFYING_COLUMN}
    for extra in ("age_mid", "town_high ", "__index_level_0__", "Age"):
        assert problems(table.append_column(extra, pa.array(RELEASES[how].rows)), how) == {Problem.UNKNOWN_COLUMN}
    # ends of ranges are no place to hide a row's number
    hidden = table.append_column("age_low", pa.array(RELEASES[how].rows))
    assert Problem.MODEL_VIOLATED in problems(hidden, how)


def test_a_missing_column_names_the_one_that_may_be_meant():
    plan = Configuration.of(quasi=["agee"], k=2)
    found = verify(pa.table({"age": ["1–2"] * 2}), plan)
    assert "the column 'agee' is missing; did you mean 'age'?" in str(found)


# ------------------------------------------------------------------ rows of stars

STARS = Configuration.of(quasi=["age"], sensitive=["ill"], insensitive=["visits"], k=3, suppression="1/2")
KNOWN = pa.table({"age": [21, 22, 23, 24], "ill": ["a", "b", "a", "c"], "visits": [1, 2, 3, 4]})


def starred(**more):
    row = {"age": "*", "ill": None, "visits": None, **more}
    columns = {
        "age": ["21–23"] * 3 + [row["age"]],
        "ill": ["a", "b", "a", row["ill"]],
        "visits": [1, 2, 3, row["visits"]],
    }
    columns |= {name: [21, 21, 21, row[name]] for name in more if name == "age_low"}
    columns |= {name: [23, 23, 23, row[name]] for name in more if name == "age_high"}
    return pa.table(columns)


def test_a_row_that_tells_nothing_is_suppressed():
    for table in (starred(), starred(ill=""), starred(ill="*"), starred(age_low=None, age_high=None)):
        found = verify(table, STARS, KNOWN)
        assert found.good, str(found)
        assert found.suppressed == 1


@pytest.mark.parametrize(
    "more",
    [{"ill": "c"}, {"visits": 4}, {"age_low": 24, "age_high": 24}, {"age_low": None, "age_high": 24}, {"age": None}],
)
def test_a_row_of_stars_that_tells_something_is_a_class_of_its_own(more):
    """Its exact age in the columns of ends, or a column that is kept: such a row is neither hidden nor exempt."""
    for original in (None, KNOWN):
        found = verify(starred(**more), STARS, original)
        assert Problem.MODEL_VIOLATED in {finding.problem for finding in found.findings}, more


# ------------------------------------------------------------------ types


def test_a_moment_is_no_day():
    """Arrow would cut off the hour without a word, and the row would look unchanged."""
    days = pa.table({"x": [1, 2], "seen": pa.array([10, 20], pa.date32())})
    plan = Configuration.of(days, quasi=["x"], sensitive=["seen"], k=2)
    same = pa.table({"x": ["1–2"] * 2, "seen": pa.array([10 * 86400, 20 * 86400], pa.timestamp("s"))})
    assert verify(same, plan, days).good
    hours = pa.table({"x": ["1–2"] * 2, "seen": pa.array([10 * 86400 + 3600, 20 * 86400], pa.timestamp("s"))})
    found = verify(hours, plan, days)
    assert {finding.problem for finding in found.findings} == {Problem.NOT_FROM_ORIGINAL}
    assert "can't be read with the original's type" in found.notes[0]


def test_spellings_of_a_number_in_a_text_file_are_different_texts(tmp_path):
    """1.5 and 1.50 are one number to whoever computes, and two classes to whoever looks."""
    (tmp_path / "r.csv").write_text("x,s\n1.5,a\n1.50,b\n", encoding="utf-8")
    found = verify(tmp_path / "r.csv", Configuration.of(quasi=["x"], sensitive=["s"], k=2))
    assert (found.classes, found.smallest) == (2, 1)
    original = pa.table({"x": ["1.50", "1.5"], "s": ["1.0", "1.00"]})
    release = mondrian(original, quasi=["x"], sensitive=["s"], k=2)
    release.save(tmp_path / "r.csv")
    assert verify(tmp_path / "r.csv", release.configuration, original).good
    (tmp_path / "s.csv").write_text('"x","s"\n"{1.5, 1.50}","1.0"\n"{1.5, 1.50}","1.0"\n', encoding="utf-8")
    assert not verify(tmp_path / "s.csv", release.configuration, original).good


BYTES = pa.array([b"\xff\x00", b"a", None, b"a"])
KEPT = {
    "bytes": BYTES,
    "intervals": pa.array([(1, 2, 3), (0, 0, 1), None, (1, 2, 3)], pa.month_day_nano_interval()),
    "map": pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "half": pa.array([np.float16(0.1), np.float16(0.2), None, np.float16(0.1)], pa.float16()),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["x", "y"])),
    "view": pa.array(["a", "b", None, "a"], pa.string_view()),
    "nothing": pa.nulls(4),
    "time": pa.array([1, 2, 3, None], pa.time64("ns")),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("role", ["sensitive", "insensitive"])
def test_every_type_may_be_kept(name, role):
    original = pa.table({"age": [1, 2, 3, 4], "x": KEPT[name]})
    release = mondrian(original, quasi=["age"], k=2, **{role: ["x"]})
    assert verify(release.table, release.configuration, original).good
    turned = release.table.set_column(1, "x", release.table.column("x").take([3, 2, 1, 0]))
    assert verify(turned, release.configuration, original).good is (name == "nothing")


def test_a_population_with_counts_and_missing_values():
    everybody = pa.table({"age": [20, 25, None, 31], "n": [2, 0, 5, 1]})
    released = pa.table({"age": ["20–29"] * 2 + ["{31, NULL}"]})
    for k, good in ((2, True), (3, False)):
        plan = Configuration.of(quasi=["age"], models=(KMap(k, everybody, count="n"),))
        assert verify(released, plan).good is good


# ------------------------------------------------------------------ laws

people = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 30)),
        st.one_of(st.none(), st.sampled_from(["a", "b", "*", "{a, b}", "1–2", ""])),
        st.sampled_from("xyz"),
        st.one_of(st.none(), st.sampled_from(["", "u", "NA"])),
    ),
    min_size=2,
    max_size=40,
)


@examples(20, 60)
@given(people, st.integers(2, 5), st.booleans(), st.booleans(), st.sampled_from([".csv", ".parquet"]))
def test_what_is_made_always_passes_also_from_files(tmp_path_factory, rows, k, strict, lattice, ending):
    kinds = (pa.int16(), pa.string(), pa.string(), pa.string())
    table = pa.table(
        {name: pa.array([row[i] for row in rows], kinds[i]) for i, name in enumerate(("n", "c", "s", "kept"))}
    )
    k = min(k, len(rows))
    if k < 2:
        return
    asked = {"sensitive": ["s"], "insensitive": ["kept"], "k": k}
    models = [DistinctDiversity(min(2, len({row[2] for row in rows})), "s"), TCloseness("0.9", "s")]
    if lattice:
        tree = Hierarchy.from_mapping(dict.fromkeys(["a", "b", "*", "{a, b}", "1–2", ""], "text"))
        made = full_domain(table, quasi={"n": Hierarchy.intervals((5, 10)), "c": tree}, **asked, suppression="1/4")
    else:
        made = mondrian(table, quasi=["n", "c"], **asked, models=models, strict=strict)
    place = tmp_path_factory.mktemp("law") / f"out{ending}"
    made.save(place)
    found = verify(place, made.configuration, table)
    assert found.good, str(found)
    assert not found.notes
    assert found.rows <= len(rows)
    assert found.smallest >= k or not found.rows


def test_a_category_of_numbers_is_read_by_its_spelling():
    original = pa.table({"x": [1, 2, 3]})
    code = Attribute(name="x", role=Role.QUASI, kind=AxisKind.CATEGORY)
    plan = Configuration.of(original, quasi=[code], k=3)
    assert verify(pa.table({"x": ["{1, 2, 3}"] * 3}), plan, original).good
    assert not verify(pa.table({"x": ["1–3"] * 3}), plan, original).good


def test_a_file_that_pandas_wrote_passes(tmp_path):
    frame = RELEASES["strict"].to_pandas()
    frame.to_parquet(tmp_path / "p.parquet", index=False)
    assert problems(tmp_path / "p.parquet", "strict") == set()
    frame.index = frame.index + 5
    frame.to_parquet(tmp_path / "i.parquet", index=True)
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "i.parquet").names
    assert problems(tmp_path / "i.parquet", "strict") == {Problem.UNKNOWN_COLUMN}
