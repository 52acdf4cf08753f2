"""Several attributes, and surveys that hide who took part: exact laws, round trips, estimates, the choice of a way."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dither.checks import check_randomizer
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import client_of
from dither.local.clients.coins import law_of
from dither.local.core.protocol import load, protocol_of
from dither.local.frequency.attributes import Attributes
from dither.local.frequency.choose import MAKERS, best_oracle
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.kary import Kary
from dither.local.frequency.participation import Participation, answers_of
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.unary import Unary
from dither.mechanisms.response_estimates import Target
from dither.mechanisms.response_surveys import SeveralResponses, Strategy
from dither.privacy import Adjacency

DOMAINS = {"smokes": ["no", "yes"], "colour": ["red", "green", "blue"], "rooms": 4}


def made(strategy):
    return Attributes.for_epsilon(DOMAINS, 2, strategy)


def people(n, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "smokes": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
        "colour": rng.choice(["red", "green", "blue"], n, p=[0.5, 0.4, 0.1]),
        "rooms": rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1]),
    }


SHARES = {"smokes": [0.7, 0.3], "colour": [0.5, 0.4, 0.1], "rooms": [0.4, 0.3, 0.2, 0.1]}


@pytest.mark.parametrize("strategy", Strategy)
def test_conformance(strategy):
    survey = Attributes.for_epsilon({"a": ["x", "y", "z"], "b": 2}, 1, strategy)
    assert check_randomizer(survey, draws=60_000).passed


def test_conformance_of_hidden_participation():
    assert check_randomizer(Participation.for_epsilon(["no", "yes"], 1), draws=60_000).passed


@pytest.mark.parametrize("strategy", Strategy)
def test_the_law_of_a_record(strategy):
    """All pairs of records: the largest ratio is e^ε and is reached where every attribute differs."""
    survey = Attributes.for_epsilon({"a": 2, "b": 3}, "3/2", strategy)
    client = survey.client()
    records = survey.inputs()
    assert len(records) == 6
    laws = {record: law_of(lambda coins, record=record: client.payload(record, coins)) for record in records}
    worst = max(laws[u][y] / laws[v][y] for u, v in itertools.permutations(records, 2) for y in laws[u])
    assert math.log(worst) <= 1.5
    assert math.log(worst) == pytest.approx(1.5, rel=1e-12)
    assert survey.loss().pure() <= 1.5
    for epsilon in (0.0, 0.5, 1.2):
        claimed = survey.loss().delta(Fraction(epsilon))
        found = max(
            float(sum(max(p - Fraction(math.exp(epsilon)) * laws[v][y], 0) for y, p in laws[u].items()))
            for u, v in itertools.permutations(records, 2)
        )
        assert found <= claimed + 1e-12
        if strategy is not Strategy.SPLIT:
            assert claimed == pytest.approx(found, rel=1e-6)


def test_every_attribute_at_the_whole_epsilon_is_noticed():
    class Mutant(Attributes):
        def loss(self):
            return self.oracles[0].loss()

    survey = Mutant({"a": Kary.for_epsilon(2, 1), "b": Kary.for_epsilon(2, 1)})
    report = check_randomizer(survey, raises=False, draws=2000)
    assert not next(f for f in report.findings if f.check == "exact law within the loss").passed


def test_sampled_attributes_of_different_odds():
    survey = Attributes({"a": Kary(2, keep="3/4"), "b": Kary(3, keep="3/4")}, Strategy.SAMPLE)
    client = survey.client()
    law, other = (law_of(lambda coins, record=record: client.payload(record, coins)) for record in ((0, 0), (1, 1)))
    assert max(law[y] / other[y] for y in law) == 6
    assert survey.loss().pure() == pytest.approx(math.log(6))
    for epsilon in (0.0, 0.4, 1.0, 1.5):
        found = float(sum(max(p - Fraction(math.exp(epsilon)) * other[y], 0) for y, p in law.items()))
        assert found <= survey.loss().delta(Fraction(epsilon)) + 1e-12
    assert survey.loss().delta(0) == pytest.approx(float((Fraction(1, 2) + Fraction(5, 8)) / 2), rel=1e-9)


@pytest.mark.parametrize("strategy", Strategy)
def test_estimates(strategy, tmp_path):
    survey = made(strategy)
    aggregate = survey.aggregator().add(survey.randomize(people(30_000), source=InsecureSeededSource(2)))
    aggregate += survey.aggregator().add(survey.randomize(people(10_000, seed=3), source=InsecureSeededSource(4)))
    aggregate.save(tmp_path / "kept.json")
    found = load(tmp_path / "kept.json").estimate(0.95)
    assert set(found) == set(DOMAINS)
    predicted = survey.variance(40_000)
    for name, shares in found.items():
        distance = ((shares.values - SHARES[name]) ** 2).sum()
        # a sum of at most three squares of normals of this variance exceeds it 25 times in 10^-11 of all cases
        assert distance < 50 * predicted[name]
        assert distance > 0
    assert found["colour"].labels == ("red", "green", "blue")


@pytest.mark.parametrize("strategy", Strategy)
def test_variance_is_that_of_repeated_surveys(strategy):
    survey = Attributes.for_epsilon({"a": 2, "b": 4}, 2, strategy)
    rng = np.random.default_rng(5)
    records = np.stack([rng.integers(0, 2, 600_000), rng.integers(0, 4, 600_000)], axis=1)
    rows = survey.randomize(records, source=InsecureSeededSource(5)).reshape(1500, 400, survey.width)
    found = [survey.aggregator().add(part).estimate() for part in rows]
    for name, size in (("a", 2), ("b", 4)):
        errors = np.array([shares[name].values - 1 / size for shares in found])
        # the sum of squares over 1500 surveys: 5% is about four standard errors with one free value, more with three
        assert (errors**2).sum(axis=1).mean() == pytest.approx(
            survey.variance(400)[name], rel=0.16 if size == 2 else 0.1
        )


def test_records_by_name_or_in_order():
    for strategy in Strategy:
        survey = made(strategy)
        table = np.array([["yes", "blue", 3], ["no", "red", 0]], dtype=object)
        assert survey.randomize(table).shape == (2, survey.width)
        assert survey.randomize([("yes", "blue", 3)]).shape == (1, survey.width)
        client = client_of(json.loads(json.dumps(survey.describe())))
        assert len(client.payload({"smokes": "yes", "rooms": 3, "colour": "blue"})) == survey.width
        assert len(client.payload(("yes", "blue", 3))) == survey.width
        for wrong in (("yes", "blue"), {"smokes": "yes"}, "yes", ("yes", "secret", 3), ("yes", "blue", 4)):
            with pytest.raises(InvalidData) as error:
                client.payload(wrong)
            assert "secret" not in str(error.value)
        for wrong in ({"smokes": ["yes"]}, [("yes", "blue")], [["yes", "secret", 3]], {**people(5), "rooms": [1]}):
            with pytest.raises(InvalidData) as error:
                survey.randomize(wrong)
            assert "secret" not in str(error.value)


def test_descriptions():
    for strategy in Strategy:
        form = made(strategy).describe()
        assert protocol_of(json.loads(json.dumps(form))) == made(strategy)
        first, *rest = form["attributes"]
        for wrong in (
            {**form, "strategy": "all"},
            {**form, "attributes": []},
            {**form, "attributes": [first, first, *rest]},
            {**form, "attributes": [{**first, "name": 3}, *rest]},
            {**form, "attributes": ["smokes"]},
            {"protocol": "attributes"},
        ):
            with pytest.raises(InvalidParameter):
                protocol_of(wrong)
            with pytest.raises(InvalidParameter):
                client_of(wrong)
        with pytest.raises(InvalidParameter):
            protocol_of({**form, "more": 1})


def test_the_order_of_attributes_is_part_of_the_collection():
    one, other = Kary.for_epsilon(2, 1), Kary.for_epsilon(3, 1)
    assert Attributes({"a": one, "b": other}).fingerprint != Attributes({"b": other, "a": one}).fingerprint


def test_a_sampled_report_says_nothing_beyond_its_attribute():
    survey = Attributes({"a": Kary.for_epsilon(2, 1), "b": Unary.for_epsilon(40, 1)}, Strategy.SAMPLE)
    rows = survey.randomize([(1, 7)] * 200)
    short = rows[rows[:, 0] == 0]
    assert 50 < len(short) < 150
    assert not short[:, 2:].any()
    spoilt = short.copy()
    spoilt[0, 3] = 1
    assert survey.valid(spoilt).tolist() == [False] + [True] * (len(short) - 1)
    spoilt[1, 0] = 2
    assert survey.valid(spoilt)[1] == np.False_


def test_the_best_way_has_the_smallest_variance():
    for domains, epsilon in (({"a": 2, "b": 2}, 1), ({"a": 2, "b": 3}, 6), ({"a": 100, "b": 50, "c": 9}, 1)):
        best = Attributes.best(domains, epsilon)
        totals = {
            strategy: sum(Attributes.for_epsilon(domains, epsilon, strategy).variance(1000).values())
            for strategy in Strategy
        }
        assert sum(best.variance(1000).values()) == min(totals.values())
    assert Attributes.best({"a": 2, "b": 2, "c": 2, "d": 2}, 1).strategy is Strategy.SAMPLE
    assert Attributes.best({"a": 2, "b": 2}, 6).strategy is not Strategy.SAMPLE
    huge = Attributes.best({"a": 10_000, "b": 10_000}, 1)
    assert huge.strategy is Strategy.SAMPLE


def test_variances_agree_with_the_mechanism():
    for strategy in Strategy:
        ours = Attributes.for_epsilon({"a": 2, "b": 2}, 1, strategy).variance(1000)
        assert tuple(ours.values()) == pytest.approx(SeveralResponses((2, 2), 1, strategy).variance(1000))


def test_mistakes():
    with pytest.raises(InvalidParameter, match=r"Attributes\.joint"):
        Attributes({"a": Kary(2, keep="3/4")}, Strategy.JOINT)
    with pytest.raises(InvalidParameter, match="frequency oracle"):
        Attributes({"a": 2})
    with pytest.raises(InvalidParameter):
        Attributes({})
    with pytest.raises(InvalidData, match="no reports"):
        Attributes.joint({"a": 2, "b": 2}, "1/2").aggregator().estimate()


# ------------------------------------------------------------------ hidden participation


def test_absence_is_one_of_the_answers():
    survey = Participation.for_epsilon(["no", "yes"], "3/2")
    client = survey.client()
    laws = [law_of(lambda coins, answer=answer: client.payload(answer, coins)) for answer in ("no", "yes", None)]
    worst = max(first[y] / second[y] for first, second in itertools.permutations(laws, 2) for y in first)
    assert math.log(worst) == pytest.approx(1.5, rel=1e-12)
    assert math.log(worst) <= 1.5
    assert survey.loss().adjacency is Adjacency.ADD_REMOVE
    assert survey.loss(adjacency=Adjacency.REPLACE).adjacency is Adjacency.REPLACE
    assert survey.longitudinal_loss(2).pure() == pytest.approx(3)


def test_everybody_on_the_list_reports():
    invitees = [f"person {i}" for i in range(40_000)]
    answers = {who: ("yes" if i % 4 == 0 else "no") for i, who in enumerate(invitees[:20_000])}
    survey = Participation.for_epsilon(["no", "yes"], 1)
    rows = survey.randomize(answers_of(invitees, answers), source=InsecureSeededSource(3))
    assert rows.shape[0] == 40_000  # whether they took part or not
    found = survey.aggregator().add(rows).estimate(0.99)
    assert found.labels == ("no", "yes")
    assert found.took_part == pytest.approx(0.5, abs=0.05)
    assert found.took_part_interval[0] < 0.5 < found.took_part_interval[1]
    assert found.values[1] == pytest.approx(0.25, abs=0.06)
    assert (found.intervals[:, 0] < [0.75, 0.25]).all()
    assert (found.intervals[:, 1] > [0.75, 0.25]).all()
    assert found.slots.target is Target.RESPONDENTS


def test_nobody_may_have_taken_part():
    survey = Participation.for_epsilon(["no", "yes"], 1)
    # the interval of who took part misses 0 once in a billion runs
    found = survey.aggregator().add(survey.randomize([None] * 20)).estimate(confidence=1 - 1e-9)
    assert found.intervals.tolist() == [[0, 1], [0, 1]]
    seen = survey.aggregator().add(survey.randomize(["yes"] * 20_000)).estimate(confidence=1 - 1e-9)
    assert seen.intervals[1, 0] > 0.5


def test_lists_and_descriptions():
    assert answers_of(["a", "b"], {"b": "yes", "stranger": "no"}) == [None, "yes"]
    with pytest.raises(InvalidData, match="once"):
        answers_of(["a", "a"], {})
    survey = Participation(["no", "yes"], HadamardResponse(3, keep="3/4"))
    form = survey.describe()
    assert protocol_of(json.loads(json.dumps(form))) == survey
    for wrong in ({**form, "domain": 5}, {**form, "collection": {}}, {**form, "domain": None}):
        with pytest.raises(InvalidParameter):
            protocol_of(wrong)
        with pytest.raises(InvalidParameter):
            client_of(wrong)
    with pytest.raises(InvalidParameter, match="no others"):
        protocol_of({**form, "more": 1})
    with pytest.raises(InvalidParameter, match="3 values"):
        Participation(["no", "yes"], Kary(2, keep="3/4"))
    with pytest.raises(InvalidData):
        survey.client().payload("maybe")


# ------------------------------------------------------------------ the choice of an oracle


def test_the_choice_is_explained():
    choice = best_oracle(1, 10_000, n=1_000_000)
    assert isinstance(choice.best, ProjectiveResponse)
    assert len(choice.candidates) == len(MAKERS)
    assert [c.variance for c in choice.candidates] == sorted(c.variance for c in choice.candidates)
    assert choice.why in str(choice)
    assert sum(line.endswith("*") for line in str(choice).splitlines()) == 1
    for candidate in choice.candidates:
        assert candidate.oracle.loss().pure() <= 1
        assert candidate.variance == pytest.approx(candidate.oracle.variance(1_000_000, share=Fraction(1, 10_000)))
        assert candidate.width == candidate.oracle.width


def test_the_choice_by_size_and_epsilon():
    assert isinstance(best_oracle(1, 2).best, Kary)
    assert isinstance(best_oracle(5, 10).best, Kary | type(best_oracle(5, 10, tolerance=0).best))
    assert best_oracle("1/2", 5000).best.width <= 16
    for epsilon, size in (("1/10", 50), (1, 30), (3, 2000), (8, 100)):
        choice = best_oracle(epsilon, size)
        chosen = next(c for c in choice.candidates if c.oracle is choice.best)
        assert chosen.variance <= 1.05 * choice.candidates[0].variance
    exact = best_oracle(1, 500, tolerance=0)
    assert exact.best is exact.candidates[0].oracle
    with pytest.raises(InvalidParameter, match="tolerance"):
        best_oracle(1, 10, tolerance=-1)
    assert best_oracle(1, ["a", "b", "c"]).best.labels == ("a", "b", "c")
