"""What the page on k-anonymity says, held to numbers: five people, two releases, many columns."""

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.lattice.full_domain import full_domain
from dither.anonymize.models.catalogue import DistinctDiversity, KAnonymity
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.risks.report import Notice
from dither.anonymize.risks.risk import risk
from dither.anonymize.table.classes import Classes
from dither.anonymize.verifier.verify import verify

CONCEPTS = Path(__file__).resolve().parents[2] / "docs" / "concepts"


def beside_the_page(name):
    spec = importlib.util.spec_from_file_location(name, CONCEPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


many_columns = beside_the_page("many_columns")
curse, expected_loss = many_columns.curse, many_columns.expected_loss
intersect = beside_the_page("two_releases").intersect

FIVE = pa.table(
    {
        "name": ["Anna", "Ben", "Carla", "David", "Emil"],
        "birthday": ["2 March", "19 July", "5 November", "30 January", "11 May"],
        "height": [164, 181, 170, 178, 190],
        "weight": [58, 92, 71, 80, 84],
        "age": [31, 34, 47, 49, 55],
        "postcode": ["8001", "8004", "8037", "8032", "8050"],
        "profession": ["nurse", "baker", "teacher", "baker", "nurse"],
        "illness": ["depression", "asthma", "depression", "flu", "diabetes"],
    }
)
KNOWN = {"height": None, "weight": None, "age": None, "postcode": Hierarchy.prefixes(4), "profession": None}


# ------------------------------------------------------------------ five people


def test_without_names_all_five_are_still_alone():
    report = risk(FIVE.drop_columns(["name", "illness"]))
    alone = {column.name: column.alone.unique for column in report.columns if column.notice is Notice.IDENTIFIER}
    assert alone == dict.fromkeys(["birthday", "height", "weight", "age", "postcode"], 5)
    assert risk(FIVE, ["profession", "age"]).exposure.prosecutor.highest == 1


@pytest.mark.parametrize("made", [mondrian, full_domain])
def test_generalised_to_two_nobody_is_alone_and_nothing_untrue_is_said(made):
    release = made(FIVE, quasi=KNOWN, sensitive=["illness"], k=2)
    assert release.table.column_names == [*KNOWN, "illness"]
    assert release.classes.sizes.min() >= 2
    assert verify(release.table, release.configuration, original=FIVE).good
    assert risk(release.table, list(KNOWN), k=2).exposure.smallest >= 2


def illnesses(release):
    """What each person may have, to somebody who knows them."""
    values = FIVE["illness"].to_pylist()
    of_row = release.classes.of_row.tolist()
    sets = [{values[i] for i, other in enumerate(of_row) if other == mine} for mine in of_row]
    return dict(zip(FIVE["name"].to_pylist(), sets, strict=True))


def test_homogeneity_tells_anna_s_illness_though_two_rows_are_alike():
    told = illnesses(mondrian(FIVE, quasi=KNOWN, sensitive=["illness"], k=2))
    assert told["Anna"] == {"depression"}
    assert told["David"] == {"asthma", "diabetes", "flu"}
    # background knowledge: neither asthma nor diabetes
    assert told["David"] - {"asthma", "diabetes"} == {"flu"}


def test_diversity_answers_homogeneity_and_not_background_knowledge():
    release = mondrian(FIVE, quasi=KNOWN, sensitive=["illness"], k=2, models=[DistinctDiversity(2, "illness")])
    told = illnesses(release)
    assert min(map(len, told.values())) == 2
    assert told["Anna"] - {"asthma"} == {"depression"}


# ------------------------------------------------------------------ two releases


def sets_of(table, release, column):
    values, of_row = table[column].to_pylist(), release.classes.of_row.tolist()
    everything, by_class = set(values), {}
    for place, value in zip(of_row, values, strict=True):
        by_class.setdefault(place, set()).add(value)
    return [everything if place < 0 else by_class[place] for place in of_row]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_intersection_is_that_of_the_sets_of_values(number):
    rng = np.random.default_rng(number)
    n = 600
    table = pa.table(
        {**{f"q{i}": rng.integers(0, 50, n) for i in range(6)}, "value": rng.choice([*"abcdefghijklmnop", None], n)}
    )
    releases = [mondrian(table, quasi=[f"q{2 * i}", f"q{2 * i + 1}"], sensitive=["value"], k=8) for i in range(number)]
    both = intersect(releases, "value")
    sets = [sets_of(table, release, "value") for release in releases]
    assert [left.tolist() for left in both.alone] == [[len(one) for one in each] for each in sets]
    together = [set.intersection(*each) for each in zip(*sets, strict=True)]
    assert both.together.tolist() == [len(each) for each in together]
    assert both.exposed == sum(len(each) == 1 for each in together) / n
    assert all(value in each for value, each in zip(table["value"].to_pylist(), together, strict=True))


def test_a_release_that_suppressed_somebody_says_nothing_about_them():
    table = pa.table({"age": [20, 20, 20, 30, 30, 90], "value": list("abcdef")})
    levels = {"age": Hierarchy.intervals((10,))}
    one = full_domain(table, quasi=levels, sensitive=["value"], k=2, suppression="1/5", levels={"age": 1})
    assert one.classes.suppressed == 1
    both = intersect([one, one], "value")
    # the value of somebody whom no release shows is not even among those that were seen
    assert both.together.tolist() == [3, 3, 3, 2, 2, 5]


def test_two_diverse_releases_expose_most_people(tmp_path):
    rng = np.random.default_rng(1)
    n = 3_000
    table = pa.table({**{name: rng.integers(0, 100, n) for name in "abcd"}, "value": rng.integers(0, 500, n)})
    diverse = [DistinctDiversity(5, "value")]
    pair = [mondrian(table, quasi=list(q), sensitive=["value"], k=10, models=diverse) for q in ("ab", "cd")]
    both = intersect(pair, "value")
    assert min(left.min() for left in both.alone) >= 5
    assert both.exposed > 0.5
    both.draw(tmp_path / "both.svg")
    assert (tmp_path / "both.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")


# ------------------------------------------------------------------ many columns


def test_the_loss_grows_with_the_columns_as_theory_says():
    found = curse((2, 4, 8, 16), people=3_000, ks=(5, 20))
    for row in found.rows:
        for k in (5, 20):
            assert row.loss[k] == pytest.approx(row.theory[k], abs=0.02)
    for few, many in pairwise(found.rows):
        assert few.unique <= many.unique
        assert all(few.loss[k] < many.loss[k] < found.at_random[k] for k in (5, 20))
    assert found.rows[-1].unique == 1
    assert len(str(found).splitlines()) == 5


def test_the_loss_of_classes_drawn_by_lot_is_that_of_random_classes():
    rng = np.random.default_rng(0)
    # classes of 1024/64 = 16 people drawn by lot
    groups = rng.random((20_000, 16))
    spans = groups.max(1) - groups.min(1)
    found = curse((1,), people=1024, ks=(16,)).at_random[16]
    assert found == pytest.approx(15 / 17)
    assert spans.mean() == pytest.approx(found, abs=0.005)


def test_expected_loss_by_hand():
    # 64 people, k = 16: halved twice; in one column to quarters, in two to half of each, in four half of two
    shrink = 15 / 17
    assert expected_loss(1, people=64, k=16) == pytest.approx(shrink / 4)
    assert expected_loss(2, people=64, k=16) == pytest.approx(shrink / 2)
    assert expected_loss(4, people=64, k=16) == pytest.approx(shrink * 3 / 4)
    assert expected_loss(3, people=31, k=16) == pytest.approx(30 / 32)


def is_drawn_alike(name, drawn):
    """The same shapes and words at the same places, up to three pixels: a better Mondrian may move dots that far."""
    old, new = (CONCEPTS / name).read_text(encoding="utf-8"), drawn.read_text(encoding="utf-8")
    drawer, words = re.compile(r"Matplotlib v\d+\.\d+"), re.compile(r"<!-- (.*?) -->")
    assert words.findall(old) == words.findall(new)
    if drawer.findall(old) != drawer.findall(new):
        return  # other versions write the same shapes in other ways
    number = re.compile(r"-?\d+\.\d+")
    assert number.split(old) == number.split(new)
    places = zip(number.findall(old), number.findall(new), strict=True)
    assert all(abs(float(a) - float(b)) < 3 for a, b in places)


def test_the_picture_of_many_columns_is_the_one_that_is_drawn(tmp_path):
    found = curse()
    found.draw(tmp_path / "drawn.svg")
    is_drawn_alike("curse-of-dimensionality.svg", tmp_path / "drawn.svg")
    # what the page says of it
    loss = {row.columns: row.loss[10] for row in found.rows}
    assert (round(loss[25], 2), round(found.at_random[10], 2)) == (0.70, 0.86)
    assert next(row.unique for row in found.rows if row.columns == 3) > 0.98


def test_the_picture_of_two_releases_is_the_one_that_the_page_draws(tmp_path, monkeypatch):
    page = (CONCEPTS / "why-k-anonymity-is-not-enough.md").read_text(encoding="utf-8")
    section = page[page.index("## Two releases") : page.index("## Many columns")]
    known = {"np": np, "pa": pa, "mondrian": mondrian, "DistinctDiversity": DistinctDiversity}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CONCEPTS)
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        exec(compile(block, "page", "exec"), known)
    is_drawn_alike("two-releases.svg", tmp_path / "two-releases.svg")
    # the words beside it: nine or more by one release, by both mostly one
    assert min(left.min() for left in known["both"].alone) == 9
    assert (known["both"].together == 1).mean() > 0.5


def test_where_a_few_diagnoses_are_common_two_releases_expose_far_fewer():
    rng = np.random.default_rng(2)
    n = 3_000
    columns = {name: rng.integers(0, 100, n) for name in "abcd"}
    exposed = []
    for value in (rng.integers(0, 500, n), rng.zipf(1.5, n) % 500):
        table = pa.table({**columns, "value": value})
        diverse = [DistinctDiversity(5, "value")]
        pair = [mondrian(table, quasi=list(q), sensitive=["value"], k=10, models=diverse) for q in ("ab", "cd")]
        exposed.append(intersect(pair, "value").exposed)
    assert exposed[0] > 0.5
    assert 0 < exposed[1] < 0.1


def test_classes_and_models_agree_with_the_risk_report():
    """The report counts what k-anonymity checks, by other code."""
    rng = np.random.default_rng(3)
    table = pa.table({"a": rng.integers(0, 9, 300), "b": rng.integers(0, 9, 300)})
    found = risk(table, ["a", "b"], k=4).exposure
    codes = table["a"].to_numpy() * 9 + table["b"].to_numpy()
    classes = Classes.of(np.unique(codes, return_inverse=True)[1].astype(np.int64))
    holds = KAnonymity(4).holds(classes)
    assert found.prosecutor.at_risk == classes.sizes[~holds].sum() / 300
    assert Configuration.of(table, quasi=["a", "b"], k=4).least == 4
