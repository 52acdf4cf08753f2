"""``dither anonymize``: risk, table and verify as they are typed, and what is typed wrong."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from dither.anonymize.verifier.findings import Flaw, Problem, VerifierReport
from dither.cli.anonymity import listed, models, share
from dither.errors import InvalidParameter

QUASI = ["--quasi", "age,postcode,sex"]
WANTED = ["--k", "5", *QUASI, "--sensitive", "disease"]


@pytest.fixture
def patients(empty):
    rng = np.random.default_rng(0)
    n = 400
    table = pa.table(
        {
            "name": [f"person {i}" for i in range(n)],
            "age": rng.integers(20, 80, n),
            "postcode": [f"0{code}" for code in rng.integers(100, 130, n)],
            "sex": rng.choice(["f", "m"], n),
            "disease": rng.choice(["flu", "asthma", "cold"], n),
            "visits": rng.integers(1, 9, n),
        }
    )
    arrow_csv.write_csv(table, empty / "patients.csv")
    return table


# ------------------------------------------------------------------ table


@pytest.mark.parametrize("bare", [True, False])
def test_a_table_is_anonymised_with_and_without_the_word(patients, bare, run):
    done = run("anonymize", *([] if bare else ["table"]), "patients.csv", *WANTED, "-o", "out.parquet")
    assert done.status == 0, done.err
    assert "every check passed" in done.out
    assert "no privacy guarantee" in done.out
    assert done.out.endswith("written: out.parquet\n")
    table = pq.read_table("out.parquet")
    assert table.column_names == ["age", "postcode", "sex", "disease"]
    assert table.num_rows == 400
    sizes = table.group_by(["age", "postcode", "sex"]).aggregate([([], "count_all")]).column("count_all").to_pylist()
    assert min(sizes) >= 5
    assert not list(Path().glob("*unverified*"))


def test_options_may_come_before_the_file(patients, run):
    done = run("anonymize", *WANTED, "-o", "out.csv", "patients.csv")
    assert done.status == 0, done.err
    assert Path("out.csv").read_text(encoding="utf-8").startswith('"age","postcode","sex","disease"\n')


def test_the_rest_of_the_table_is_left_out_unless_it_is_kept(patients, run):
    assert run("anonymize", "patients.csv", *WANTED, "--keep", "visits", "-o", "out.parquet").status == 0
    released = pq.read_table("out.parquet")
    assert "name" not in released.column_names
    assert sorted(released["visits"].to_pylist()) == sorted(patients["visits"].to_pylist())


@pytest.mark.parametrize("method", ["mondrian", "relaxed", "lattice"])
def test_every_method_satisfies_every_model(patients, method, run):
    more = ["--l-diversity", "2", "--t-closeness", "disease=0.4", "--suppress", "10%"]
    done = run("anonymize", "patients.csv", *WANTED, *more, "--method", method, "-o", "out.parquet")
    assert done.status == 0, done.out + done.err
    assert ("lattice" if method == "lattice" else f"mondrian {method.replace('mondrian', 'strict')}") in done.out
    again = run("anonymize", "verify", "out.parquet", *WANTED, *more, "--original", "patients.csv")
    assert again.status == 0, again.out
    assert "every check passed" in again.out


def test_hierarchies_are_found_by_the_names_of_files(patients, run):
    Path("levels").mkdir()
    ages = [f"{age};{age // 20 * 20}-{age // 20 * 20 + 19};*" for age in range(20, 80)]
    Path("levels/patients_hierarchy_age.csv").write_text("\n".join(ages), encoding="utf-8")
    Path("levels/sex.csv").write_text("f;*\nm;*\n", encoding="utf-8")
    method = ["--method", "lattice", "--hierarchies", "levels", "-o", "out.parquet"]
    done = run("anonymize", "patients.csv", "--k", "5", "--quasi", "age,sex", *method)
    assert done.status == 0, done.err
    assert set(pq.read_table("out.parquet")["age"].to_pylist()) <= {"20-39", "40-59", "60-79"}
    Path("levels/age.csv").write_text("\n".join(ages), encoding="utf-8")
    done = run("anonymize", "patients.csv", "--k", "5", "--quasi", "age,sex", *method)
    assert done.status == 1
    assert "several hierarchies for 'age': age.csv, patients_hierarchy_age.csv" in done.err


def test_a_table_that_fails_its_verification_is_not_left_behind(patients, inside, monkeypatch):
    wrong = VerifierReport(rows=1, classes=1, smallest=1, suppressed=0,
                     findings=(Flaw(problem=Problem.MODEL_VIOLATED, text="broken"),))  # fmt: skip
    monkeypatch.setattr(import_module("dither.anonymize.verifier.verify"), "verify", lambda *given, **more: wrong)
    done = inside("anonymize", "patients.csv", *WANTED, "-o", "out.parquet")
    assert done.status == 1
    assert "- broken" in done.out
    assert "written" not in done.out
    assert not list(Path().glob("*.parquet"))


def test_what_is_typed_wrong_costs_no_work(patients, inside, monkeypatch):
    monkeypatch.setattr(import_module("dither.anonymize.partition.mondrian"), "mondrian", None)
    Path("file").touch()
    Path("folder.csv").mkdir()
    Path("levels").mkdir()
    for arguments, told in [
        ([*WANTED, "-o", "out.xlsx"], "-o takes a file that ends in .parquet or .csv; got 'out.xlsx'"),
        ([*WANTED, "-o", "file/out.csv"], "'file/out.csv' can't be written: choose another -o"),
        ([*WANTED, "-o", "folder.csv"], "'folder.csv' can't be written"),
        ([*QUASI, "-o", "out.csv"], "say what the release must satisfy: --k 10"),
        ([*WANTED, "--quasi", "height", "-o", "out.csv"], "there is no column 'height'"),
        ([*WANTED, "--suppress", "many", "-o", "out.csv"], "--suppress must be"),
        ([*WANTED, "--suppress", "200%", "-o", "out.csv"], "suppression"),
        ([*WANTED, "--l-diversity", "most:3", "-o", "out.csv"], "--l-diversity takes 3, entropy:3 or recursive:2:3"),
        ([*WANTED, "--l-diversity", "few", "-o", "out.csv"], "--l-diversity takes a whole number"),
        ([*WANTED, "--t-closeness", "far:0.1", "-o", "out.csv"], "--t-closeness takes 0.2, equal:0.2, ordered:0.2"),
        ([*WANTED, "--t-closeness", "2", "-o", "out.csv"], "t must lie between 0 and 1"),
        ([*WANTED, "--t-closeness", "age=0.2", "-o", "out.csv"], "'age', which is not among the sensitive columns"),
        ([*QUASI, "--l-diversity", "2", "-o", "out.csv"], "name them with --sensitive"),
        ([*WANTED, "--hierarchies", "nowhere", "-o", "out.csv"], "--hierarchies takes a directory"),
        ([*WANTED, "--hierarchies", "levels", "-o", "out.csv"], "has no hierarchy for age, postcode, sex"),
        (["--k", "1000", *QUASI, "-o", "out.csv"], "the table has 400"),
    ]:
        done = inside("anonymize", "patients.csv", *arguments)
        assert done.status == 1, arguments
        assert told in done.err, (arguments, done.err)
        assert "person" not in done.err
    assert inside("anonymize", "nobody.csv", *WANTED, "-o", "out.csv").status == 1
    assert inside("anonymize", "patients.csv", "--k", "5", "-o", "out.csv").status == 2
    assert inside("anonymize", "patients.csv", *WANTED).status == 2


def test_misspelt_columns_are_met_with_what_may_be_meant(patients, run):
    done = run("anonymize", "patients.csv", "--k", "5", "--quasi", "agee,Sex", "--sensitive", "diseese", "-o", "o.csv")
    assert done.status == 1
    assert "there is no column 'agee', 'Sex', 'diseese'" in done.err
    assert "did you mean 'age' for 'agee', 'sex' for 'Sex', 'disease' for 'diseese'?" in done.err
    one = run("anonymize", "patients.csv", "--k", "5", "--quasi", "AGE", "-o", "o.csv")
    assert "there is no column 'AGE'; did you mean 'age'? The table has 'name', 'age'" in one.err
    both = run("anonymize", "patients.csv", "--k", "5", "--quasi", "age", "--keep", "age", "-o", "o.csv")
    assert "every column has one role; these have several: 'age'" in both.err
    assert not Path("o.csv").exists()


def test_many_columns_are_not_all_listed(empty, run):
    arrow_csv.write_csv(pa.table({f"column {i}": [1, 2] for i in range(50)}), "wide.csv")
    done = run("anonymize", "wide.csv", "--k", "2", "--quasi", "zzz", "-o", "o.csv")
    assert "there is no column 'zzz'. The table has 'column 0'" in done.err
    assert "and 30 more" in done.err


@pytest.mark.parametrize("k", ["0", "-3", "ten"])
def test_a_k_that_is_no_k_is_bad_usage(patients, run, k):
    done = run("anonymize", "patients.csv", "--k", k, *QUASI, "-o", "out.csv")
    assert done.status == 2
    assert "--k" in done.err
    assert run("anonymize", "patients.csv", "--k", "1", *QUASI, "-o", "out.csv").status == 1


def test_the_table_itself_is_not_overwritten(patients, run):
    before = Path("patients.csv").read_bytes()
    Path("link.csv").symlink_to("patients.csv")
    for out in ("patients.csv", "./patients.csv", "link.csv"):
        done = run("anonymize", "patients.csv", *WANTED, "-o", out)
        assert done.status == 1
        assert "-o is the table itself, which would be lost" in done.err
    assert Path("patients.csv").read_bytes() == before


def test_directories_are_made_for_a_result_and_not_for_a_mistake(patients, run):
    assert run("anonymize", "patients.csv", "--k", "999", *QUASI, "-o", "new/deep/out.csv").status == 1
    assert not Path("new").exists()
    assert run("anonymize", "patients.csv", *WANTED, "-o", "new/deep/out.csv").status == 0
    assert [place.name for place in Path("new/deep").iterdir()] == ["out.csv"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_with_gaps_is_released_in_either_form(empty, run, ending):
    """Missing and empty text, numbers and dates: what is written is read again and compared with the original."""
    towns, illnesses = ("", "x", '""'), ("", "flu", '""')
    rows = [
        ";".join(
            (
                "" if i % 7 == 0 else str(20 + i % 9),
                towns[i % 3],
                "" if i % 5 else f"2020-01-0{1 + i % 9}",
                illnesses[i % 3],
            )
        )
        for i in range(60)
    ]
    Path("gaps.csv").write_text("age;town;day;ill\n" + "\n".join(rows) + "\n", encoding="utf-8-sig")
    wanted = ["--k", "4", "--quasi", "age,town", "--sensitive", "ill", "--keep", "day"]
    done = run("anonymize", "gaps.csv", *wanted, "-o", f"out.{ending}")
    assert done.status == 0, done.out + done.err
    again = run("anonymize", "verify", f"out.{ending}", *wanted, "--original", "gaps.csv")
    assert again.status == 0, again.out


@pytest.mark.parametrize("moment", ["partition.mondrian", "verifier.verify"])
def test_a_command_that_is_stopped_leaves_nothing(patients, inside, monkeypatch, moment):
    Path("out.parquet").write_bytes(b"before")

    def stopped(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module(f"dither.anonymize.{moment}"), moment.rpartition(".")[2], stopped)
    done = inside("anonymize", "patients.csv", *WANTED, "-o", "out.parquet")
    assert done.status == 130
    assert "stopped" in done.err
    assert sorted(place.name for place in Path().iterdir()) == ["out.parquet", "patients.csv"]
    assert Path("out.parquet").read_bytes() == b"before"


def test_work_is_watched_to_the_end(patients, inside, monkeypatch):
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def bar():
        yield lambda share, doing: seen.append((share, doing))

    monkeypatch.setattr("dither.cli.anonymize.bar", bar)
    assert inside("anonymize", "patients.csv", *WANTED, "-o", "out.parquet").status == 0
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    words = [doing for _, doing in seen]
    assert words[0] == "reading"
    assert words[-2:] == ["writing", "verifying what was written"]
    assert len(set(words)) > 3


def test_help_shows_the_three_commands(run):
    done = run("anonymize", "--help")
    assert done.status == 0
    assert all(f"\n  {command} " in done.out for command in ("risk", "table", "verify"))
    assert "claim no privacy loss" in done.out


# ------------------------------------------------------------------ verify


def test_verify_finds_what_is_wrong(patients, run):
    assert run("anonymize", "patients.csv", *WANTED, "-o", "out.parquet").status == 0
    assert run("anonymize", "verify", "out.parquet", *WANTED).status == 0
    more = run("anonymize", "verify", "out.parquet", "--k", "50", *QUASI, "--sensitive", "disease")
    assert more.status == 1
    assert "every class has at least 50 rows" in more.out
    pq.write_table(pq.read_table("out.parquet").append_column("name", patients["name"]), "named.parquet")
    named = run("anonymize", "verify", "named.parquet", *WANTED)
    assert named.status == 1
    assert "'name'" in named.out
    changed = pq.read_table("out.parquet")
    changed = changed.set_column(3, "disease", pa.array(["flu"] * changed.num_rows))
    pq.write_table(changed, "changed.parquet")
    assert run("anonymize", "verify", "changed.parquet", *WANTED).status == 0
    assert run("anonymize", "verify", "changed.parquet", *WANTED, "--original", "patients.csv").status == 1


# ------------------------------------------------------------------ risk


def test_risk_names_the_columns_and_writes_a_page(patients, run):
    done = run("anonymize", "risk", "patients.csv", "--html", "report/risk.html", "--most", "2")
    assert done.status == 0, done.err
    assert "for its owner only" in done.out
    lines = [line.split() for line in done.out.splitlines()]
    assert ["name", "400", "100%", "8.6", "as", "good", "as", "a", "name:", "remove", "or", "coarsen", "it"] in lines
    assert any(line[:3] == ["age", "+", "postcode"] for line in lines)
    assert "person" not in done.out.replace("(knows that somebody", "")
    assert done.out.endswith("report: report/risk.html\n")
    assert Path("report/risk.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_risk_of_columns_against_a_population(patients, run):
    pq.write_table(pa.concat_tables([patients] * 3), "everybody.parquet")
    done = run("anonymize", "risk", "patients.csv", "--columns", "age,sex", "--population", "everybody.parquet")
    assert done.status == 0, done.err
    assert "Whoever knows age + sex" in done.out
    assert "Journalist (doesn't know it): risk up to" in done.out


def test_risk_explains_what_is_typed_wrong(patients, run):
    assert "has no column 'height'" in run("anonymize", "risk", "patients.csv", "--columns", "height").err
    assert "--html takes a file that ends in .html" in run("anonymize", "risk", "patients.csv", "--html", "a.pdf").err
    assert run("anonymize", "risk", "patients.csv", "--most", "0").status == 2


def test_without_matplotlib_the_numbers_are_there(patients, inside, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = inside("anonymize", "risk", "patients.csv", "--html", "risk.html")
    assert done.status == 0
    assert "Marketer" in done.out
    assert "pip install 'dither[plots]'" in done.err
    assert not Path("risk.html").exists()


def test_control_characters_of_a_header_don_t_reach_the_terminal(empty, run):
    Path("odd.csv").write_text('"a\x1b[31m",b\n1,2\n1,3\n2,3\n', encoding="utf-8")
    done = run("anonymize", "risk", "odd.csv")
    assert done.status == 0
    assert "\x1b" not in done.out


# ------------------------------------------------------------------ what is typed


def test_lists_and_shares_are_read_as_people_write_them():
    assert listed(["age, sex", "postcode"]) == ["age", "sex", "postcode"]
    assert listed(None) == []
    assert share("5%") == share("0.05") == share("1/20")
    with pytest.raises(InvalidParameter):
        share("%")


def test_models_are_read_with_and_without_a_column():
    found = models(["a", "b"], ["3", "a=entropy:2", "b=recursive:2.5:3"], ["b=ordered:0.2"], ["1.5"], ["a=2"])
    assert [(type(each).__name__, each.column) for each in found] == [
        ("DistinctDiversity", "a"),
        ("DistinctDiversity", "b"),
        ("EntropyDiversity", "a"),
        ("RecursiveDiversity", "b"),
        ("TCloseness", "b"),
        ("DeltaDisclosure", "a"),
        ("DeltaDisclosure", "b"),
        ("BetaLikeness", "a"),
    ]
    assert (found[3].c, found[3].l) == (share("2.5"), 3)
    assert found[4].distance.value == "ordered"
