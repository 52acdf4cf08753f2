"""``dither local``: from a description to estimates, trials, and what is typed wrong."""

import json
import signal
import time
from pathlib import Path

import pytest

from dither.cli.local_lines import estimated, reader_of
from dither.errors import InvalidData
from dither.local.clients.wire import Dropped
from dither.local.core.protocol import protocol_of
from dither.local.frequency.attributes import Attributes
from dither.local.lab.catalogue import PROTOCOLS, Wanted


@pytest.fixture(autouse=True)
def _here(empty):
    """All files are in a directory of its own."""


def described(run, *more, name="survey.json", protocol="kary", epsilon=4):
    done = run("local", "describe", "--protocol", protocol, "--epsilon", epsilon, "-o", name, *more)
    assert done.status == 0, done.err
    return json.loads(Path(name).read_text(encoding="utf-8"))


def written(name, lines):
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


# ------------------------------------------------------------------ the whole way


def test_from_a_survey_to_its_estimates(run):
    form = described(run, "--labels", "no, yes,perhaps")
    assert form["protocol"] == "kary"
    assert form["domain"] == ["no", "yes", "perhaps"]
    answers = written("answers.txt", ["no"] * 700 + ["yes"] * 250 + [""] + ["perhaps"] * 50)
    assert run("local", "randomize", "survey.json", answers, "-o", "reports.txt").status == 0
    reports = Path("reports.txt").read_text(encoding="utf-8").splitlines()
    assert len(reports) == 1000
    assert not Path("reports.txt.part").exists()
    done = run("local", "aggregate", "survey.json", "reports.txt")
    assert done.status == 0
    assert done.err == ""
    assert done.out.split()[:3] == ["value", "estimate", "interval"]
    assert done.out.splitlines()[1].startswith("no ")
    assert "1,000 reports, ε = 4 each; intervals at 95%" in done.out
    found = json.loads(run("local", "aggregate", "survey.json", "reports.txt", "--format", "json").out)
    assert [row["value"] for row in found["estimates"]] == ["no", "yes", "perhaps"]
    assert all(
        row["low"] <= truth <= row["high"] for row, truth in zip(found["estimates"], (0.7, 0.25, 0.05), strict=True)
    )
    again = run("local", "aggregate", "survey.json", "reports.txt", "--format", "csv", "--confidence", "0.9")
    rows = [line.split(",") for line in again.out.splitlines()]
    assert rows[0] == ["value", "estimate", "low", "high"]
    assert float(rows[1][1]) == found["estimates"][0]["estimate"]
    assert float(rows[1][2]) > found["estimates"][0]["low"]


def test_reports_are_those_of_the_client_and_stray_ones_are_dropped_by_reason(run):
    form = described(run, "--domain", 5)
    other = described(run, "--domain", 6, name="other.json")
    protocol = protocol_of(form)
    good = [protocol.client().text(3) for _ in range(40)]
    strays = [protocol_of(other).client().text(3), "not base64!", "AAAA", good[0] + "AAAA"]
    written("reports.txt", [*good, "", *strays])
    done = run("local", "aggregate", "survey.json", "reports.txt", "--format", "json")
    assert done.status == 0
    found = json.loads(done.out)
    assert found["reports"] == 40
    assert found["dropped"] == {"other_collection": 1, "not_a_report": 1, "version": 1, "length": 1}
    assert all(f"dropped 1: {reason.value}" in done.err for reason in Dropped if reason is not Dropped.OUT_OF_RANGE)


def test_aggregates_are_saved_and_merged(run):
    described(run, "--domain", 3)
    values = written("values.txt", [0, 1, 2, 1] * 25)
    for day in ("monday", "tuesday"):
        assert run("local", "randomize", "survey.json", values, "-o", f"{day}.txt").status == 0
        done = run("local", "aggregate", "survey.json", f"{day}.txt", "--save", f"{day}.json")
        assert done.status == 0
        assert f"saved 100 reports in {day}.json" in done.err
    files = run("local", "aggregate", "survey.json", "monday.txt", "tuesday.txt", "--format", "csv").out
    merged = run(
        "local", "aggregate", "survey.json", "--merge", "monday.json", "--merge", "tuesday.json", "--format", "csv"
    )
    both = run("local", "aggregate", "survey.json", "monday.txt", "--merge", "tuesday.json", "--format", "csv")
    assert files == merged.out == both.out
    described(run, "--domain", 4, name="other.json")
    wrong = run("local", "aggregate", "other.json", "--merge", "monday.json")
    assert wrong.status == 1
    assert "aggregates of different collections can't be merged" in wrong.err


def test_values_and_reports_are_streamed(run, start, empty):
    described(run, "--domain", 9)
    process = start("local", "randomize", "survey.json", "-", cwd=empty, stdin=-1)
    out, _ = process.communicate("4\n8\n0\n", timeout=60)
    assert len(out.split()) == 3
    process = start("local", "aggregate", "survey.json", "--format", "json", cwd=empty, stdin=-1)
    out, _ = process.communicate(out, timeout=60)
    assert json.loads(out)["reports"] == 3


def test_stopping_leaves_no_half_written_file(run, start, empty):
    described(run, "--domain", 9)
    process = start("local", "randomize", "survey.json", "-", "-o", "reports.txt", cwd=empty, stdin=-1)
    process.stdin.write("4\n" * 1000)
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not Path("reports.txt.part").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "dither: stopped\n"
    assert not list(empty.glob("reports.txt*"))


VALUES = {
    "one-bit": ["0.25", "1", "0.5"],
    "laplace": ["0.25", "1/3", "7"],
    "piecewise": ["0.25"] * 3,
    "hybrid": ["0.25"] * 3,
    "bit-vector": ["0.1,0.2,0.3", "[0, 1, 0.5]"],
    "sampled-vector": ["0.1,0.2,0.3"],
    "participation": ["0", "", "2"],
    "heavy": ["1234", "99"] * 50,  # enough that somebody reports at every level
    "heavy-text": ["ant", "bee"] * 50,
    "fragments": ["ant", "bee"],
    "rappor": ["ant", "bee"] * 20,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_goes_the_whole_way(protocol, run):
    length = {"heavy": ["--length", 16], "heavy-text": ["--length", 3]}.get(protocol, [])
    described(run, "--domain", 3, *length, protocol=protocol)
    values = written("values.txt", VALUES.get(protocol, ["0", "1", "2"]))
    assert run("local", "randomize", "survey.json", values, "-o", "reports.txt").status == 0
    written("list.txt", ["ant", "bee", "cat"])
    done = run("local", "aggregate", "survey.json", "reports.txt", "--candidates", "list.txt", "--format", "json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["dropped"] == {}
    assert found["reports"] == len(VALUES.get(protocol, "012"))


def test_several_attributes_are_records():
    survey = Attributes.for_epsilon({"smokes": ["no", "yes"], "decade": 10}, 8)
    read = reader_of(survey.describe())
    record = read('{"smokes": "yes", "decade": 3}')
    aggregate = survey.aggregator().add_reports([survey.client().report(record) for _ in range(50)])
    lines, _ = estimated(aggregate, confidence=0.95)
    assert [line.label for line in lines][:2] == ["smokes = no", "smokes = yes"]
    with pytest.raises(InvalidData, match="JSON object"):
        read("smokes=yes")


def test_every_person_has_a_rappor_client_of_their_own(run):
    """One client would report one cohort, and the same permanent bits for the same text."""
    described(run, protocol="rappor", epsilon=1)
    run("local", "randomize", "survey.json", written("values.txt", ["ant"] * 60), "-o", "reports.txt")
    reports = Path("reports.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(reports)) > 50


def test_rappor_names_those_that_are_there(run):
    described(run, "--permanent", 20, protocol="rappor", epsilon=14)
    values = written("values.txt", ["ant"] * 400 + ["bee"] * 200)
    run("local", "randomize", "survey.json", values, "-o", "reports.txt")
    missing = run("local", "aggregate", "survey.json", "reports.txt")
    assert missing.status == 1
    assert "--candidates" in missing.err
    written("list.txt", ["ant", "bee", "cat", "dog"])
    done = run("local", "aggregate", "survey.json", "reports.txt", "--candidates", "list.txt")
    assert "2 of 4 candidates are there" in done.out
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["ant", "bee"]


def test_consistent_shares_are_not_negative_and_sum_to_one(run):
    described(run, "--domain", 30, epsilon=1)
    run("local", "randomize", "survey.json", written("values.txt", [0] * 300), "-o", "reports.txt")
    plain = json.loads(run("local", "aggregate", "survey.json", "reports.txt", "--format", "json").out)
    done = run("local", "aggregate", "survey.json", "reports.txt", "--format", "json", "--consistent", "norm-sub")
    found = json.loads(done.out)
    assert min(row["estimate"] for row in plain["estimates"]) < 0
    assert min(row["estimate"] for row in found["estimates"]) >= 0
    assert sum(row["estimate"] for row in found["estimates"]) == pytest.approx(1)
    assert "sums to 1" in found["notes"][0]
    described(run, protocol="one-bit", name="mean.json")
    run("local", "randomize", "mean.json", written("numbers.txt", ["0.5"] * 5), "-o", "numbers.reports")
    wrong = run("local", "aggregate", "mean.json", "numbers.reports", "--consistent", "clip")
    assert wrong.status == 1
    assert "--consistent is for shares" in wrong.err


# ------------------------------------------------------------------ trials


def test_a_trial_shows_truth_error_and_cost(run):
    done = run("local", "simulate", "--protocol", "kary", "-e", 3, "-n", 5000, "--domain", 20, "--plot", "seen.svg")
    assert done.status == 0, done.err
    assert "true  estimated" in done.out
    assert "… 8 more" in done.out
    assert "by theory" in done.out
    assert "shuffled among 5,000, ε = " in done.out
    assert done.out.endswith("picture: seen.svg\n")
    assert Path("seen.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.parametrize("protocol", ["ranges", "heavy", "bit-vector"])
def test_trials_of_other_purposes(protocol, run):
    done = run("local", "simulate", "--protocol", protocol, "-e", 2, "-n", 2000, "--domain", 8, "--plot", "seen.png")
    assert done.status == 0, done.err
    assert "people a second" in done.out
    assert Path("seen.png").stat().st_size > 1000


def test_the_comparison_has_a_line_for_each(run):
    done = run("local", "compare", "-n", 1000, "--domain", 4, "--only", "kary,oue,one-bit")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines if "e+" in line] == ["kary", "oue", "one-bit"]
    assert "shares of listed values" in done.out
    assert "mean of a number" in done.out
    page = run("local", "compare", "-n", 1000, "--domain", 4, "--only", "kary", "--markdown").out
    assert page.startswith("| protocol | ε |")
    assert "\n| kary | 1 |" in page


# ------------------------------------------------------------------ what is typed wrong


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["describe", "--protocol", "kry", "-e", "1"], "there is no protocol 'kry': did you mean kary?"),
        (["describe", "--protocol", "xyz", "-e", "1"], "there are kary, sue, oue"),
        (["describe", "--protocol", "kary", "-e", "0"], "epsilon must be greater than 0"),
        (["describe", "--protocol", "kary", "-e", "one"], "--epsilon must be a finite number"),
        (["describe", "--protocol", "kary", "-e", "1", "--domain", "1"], "a domain is a number of values from 2"),
        (["describe", "--protocol", "kary", "-e", "1", "--labels", "a,a"], "two or more different labels"),
        (["describe", "--protocol", "kary", "-e", "1", "--domain", "3", "--labels", "a,b"], "give one of --domain"),
        (["describe", "--protocol", "kary", "-e", "1", "--labels-file", "none.txt"], "none.txt can't be read"),
        (["describe", "--protocol", "one-bit", "-e", "1", "--bounds", "3"], "--bounds takes two numbers"),
        (["describe", "--protocol", "one-bit", "-e", "1", "--bounds", "3,1"], "bounds must be two numbers"),
        (["describe", "--protocol", "kary", "-e", "1", "-o", "none/x.json"], "can't be written"),
        (["randomize", "none.json"], "none.json can't be read: the description of a collection was expected there"),
        (["randomize", "text.json"], "text.json isn't JSON"),
        (["randomize", "list.json"], 'has no "protocol"'),
        (["randomize", "unknown.json"], "the protocol 'telepathy' isn't known"),
        (["randomize", "damaged.json", "text.json"], "keep must be a probability"),
        (["randomize", "good.json", "none.txt"], "none.txt can't be read"),
        (["randomize", "good.json", "text.json", "-o", "none/x.txt"], "can't be written"),
        (["aggregate", "good.json", "none.txt"], "none.txt can't be read"),
        (["aggregate", "good.json", "text.json"], "there are no reports of this collection"),
        (["aggregate", "good.json", "--merge", "none.json"], "none.json can't be read as a saved aggregate"),
        (["aggregate", "good.json", "--merge", "list.json"], "damaged"),
        (["aggregate", "damaged.json", "text.json"], "keep must be a probability"),
        (["simulate", "--protocol", "kary", "-e", "-1"], "epsilon must be greater than 0"),
        (["simulate", "--protocol", "kary", "--plot", "x.pdf"], "--plot takes a file that ends in .svg or .png"),
        (["compare", "--only", "kary,kry"], "did you mean kary?"),
    ],
)
def test_mistakes_are_explained(arguments, told, run):
    good = {"protocol": "kary", "domain": 3, "keep": "3/4"}
    forms = {"good": good, "damaged": {**good, "keep": 0.75}, "unknown": {"protocol": "telepathy"}, "list": [1]}
    for name, form in forms.items():
        Path(f"{name}.json").write_text(json.dumps(form), encoding="utf-8")
    written("text.json", ["{"])
    done = run("local", *arguments)
    assert done.status == 1
    assert told in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("protocol", "more", "bad"),
    [
        ("kary", ["--domain", "5"], "secret"),
        ("kary", ["--domain", "5"], "77777"),
        ("kary", ["--domain", "5"], "9" * 5000),
        ("oue", ["--labels", "no,yes"], "secret"),
        ("one-bit", [], "secret"),
        ("one-bit", [], "1e999999999"),
        ("bit-vector", ["--domain", "3"], "0.1,0.77777"),
        ("heavy", [], "secret"),
        ("participation", ["--domain", "5"], "77777"),
    ],
)
def test_a_value_outside_is_told_by_its_line_and_never_repeated(protocol, more, bad, run):
    described(run, *more, protocol=protocol)
    good = {"oue": "no", "one-bit": "0.5", "bit-vector": "0,0,1"}.get(protocol, "2")
    done = run("local", "randomize", "survey.json", written("values.txt", [good, good, bad]), "-o", "reports.txt")
    assert done.status == 1
    assert "line 3 of values.txt: the value" in done.err or "line 3 of values.txt: a vector" in done.err
    assert bad not in done.err
    assert "77777" not in done.err
    assert not Path("reports.txt").exists()


def test_a_published_description_is_not_overwritten(run):
    described(run, "--domain", 3)
    before = Path("survey.json").read_bytes()
    done = run("local", "describe", "--protocol", "oue", "-e", "1", "-o", "survey.json")
    assert done.status == 1
    assert "survey.json exists: reports may belong to it" in done.err
    assert Path("survey.json").read_bytes() == before


def test_a_description_is_said_on_the_output_and_its_price_beside_it(run):
    done = run("local", "describe", "--protocol", "laplace", "-e", "1/2", "--bounds", "0,24")
    assert json.loads(done.out)["bounds"] == ["0", "24"]
    assert "one report: ε = 0.5 (replace), 10 bytes" in done.err


def test_a_domain_is_a_number_or_labels(run):
    assert described(run, "--domain", "3", name="number.json")["domain"] == 3
    assert described(run, "--domain", "cat, dog", name="pets.json")["domain"] == ["cat", "dog"]
    assert described(run, "--labels", "1,2", name="digits.json")["domain"] == ["1", "2"]


def test_labels_come_from_a_file_too(run):
    form = described(run, "--labels-file", written("labels.txt", ["ant", "bee", "", "cat"]))
    assert form["domain"] == ["ant", "bee", "cat"]


def test_everything_that_can_be_described_has_a_reader():
    for known in PROTOCOLS.values():
        assert callable(reader_of(known.make(Wanted.of(1, domain=3)).describe()))
