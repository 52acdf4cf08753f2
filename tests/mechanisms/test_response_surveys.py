"""Several attributes within one ε, and hiding who took part: exact laws over all neighbours, estimates that cover.

Statistical tests use α = 1e-9 without retries; each states the smallest fault it catches and runs on a mutant.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource, Source
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.kary_response import KaryResponse
from dither.mechanisms.response_surveys import (
    NOT_ASKED,
    ParticipationResponse,
    SeveralResponses,
    Slot,
    Strategy,
)
from dither.numeric import exp_up
from dither.privacy import Adjacency, Guarantee, PureLoss, as_replace

ALPHA = 1e-9
F = Fraction


class NoSource(Source):
    """Fails the test if anything is drawn."""

    def fill(self, nbytes: int) -> np.ndarray:
        raise AssertionError("something was drawn")


def product_law(laws):
    """The exact law over tuples of independent answers."""
    out = {}
    for outcome in itertools.product(*(range(len(law)) for law in laws)):
        out[outcome] = math.prod(law[i] for law, i in zip(laws, outcome, strict=True))
    return out


def largest_ratio(p, q):
    """sup p/q over all outcomes, exact; infinity where q misses something that p can give."""
    return max(math.inf if not q.get(o) else p[o] / q[o] for o in p if p[o])


# ---------------------------------------------------------------------- several attributes


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (3, 2, 2)])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_several_attributes_law_over_all_pairs_of_records(sizes, strategy):
    """The exact law of one record's answer: sup ratio, curve, and the marginals that the estimates rely on."""
    survey = SeveralResponses(sizes, "1.2", strategy)
    records = list(itertools.product(*map(range, sizes)))

    def law(record):
        if strategy is Strategy.SPLIT:
            return product_law([r.probabilities(v) for r, v in zip(survey.responses, record, strict=True)])
        if strategy is Strategy.SAMPLE:
            return {
                (j, a): p / len(sizes)
                for j, r in enumerate(survey.responses)
                for a, p in enumerate(r.probabilities(record[j]))
            }
        joint = KaryResponse.for_epsilon(math.prod(sizes), "1.2").probabilities(records.index(record))
        return dict(zip(records, joint, strict=True))

    laws = {record: law(record) for record in records}
    worst, curve = F(0), F(0)
    t = F(3, 2)
    for a, b in itertools.permutations(records, 2):
        worst = max(worst, largest_ratio(laws[a], laws[b]))
        curve = max(curve, sum((max(F(0), laws[a][o] - t * laws[b][o]) for o in laws[a]), F(0)))
    assert worst <= F(exp_up(1.2))
    assert float(worst) == pytest.approx(math.exp(1.2), rel=1e-9)
    assert survey.loss().pure() <= 1.2
    stated = survey.loss().delta(math.log(t))
    assert stated >= float(curve) * (1 - 1e-9)
    if strategy is not Strategy.SAMPLE or len(set(sizes)) == 1:
        assert stated == pytest.approx(float(curve), rel=3e-2)  # unequal steps share one lattice
    if strategy is not Strategy.SAMPLE:
        for record in records:
            for j, response in enumerate(survey.responses):
                marginal = [sum(p for o, p in laws[record].items() if o[j] == v) for v in range(sizes[j])]
                assert tuple(marginal) == response.probabilities(record[j])


def test_each_attribute_at_the_whole_epsilon_is_too_much():
    mutant = sum(KaryResponse.for_epsilon(2, 1).loss() for _ in range(3))
    assert mutant.pure() > 2.9
    assert not Guarantee(1).met_by(mutant)


def test_best_strategy_depends_on_epsilon_and_sizes():
    for sizes, epsilon in (((2, 2, 2, 2), 1), ((2, 2), 5), ((5, 5), 8), ((2, 50), 1), ((2,), 1)):
        variances = {s: sum(SeveralResponses(sizes, epsilon, s).variance(n=1200)) for s in Strategy}
        best = SeveralResponses.best(sizes, epsilon)
        assert variances[best.strategy] == pytest.approx(min(variances.values()))
    assert SeveralResponses.best((2, 2, 2, 2), 1).strategy is Strategy.SAMPLE
    assert SeveralResponses.best((2, 2), 5).strategy is Strategy.JOINT
    assert SeveralResponses.best((2**40, 2**40), 1).strategy is not Strategy.JOINT
    with pytest.raises(InvalidParameter):
        SeveralResponses((2**40, 2**40), 1, Strategy.JOINT)
    for sizes in ((), (1, 2), (2.5,)):
        with pytest.raises(InvalidParameter):
            SeveralResponses(sizes, 1)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_several_attributes_estimates(strategy):
    """20,000 records: the sum of squared errors is what ``variance`` predicts, within what 60 repetitions allow."""
    sizes, n, runs = (2, 3), 3_000, 60
    survey, source = SeveralResponses(sizes, 3, strategy), InsecureSeededSource(31)
    generator = np.random.default_rng(1)
    squares = np.zeros(2)
    for _ in range(runs):
        records = np.stack([generator.integers(size, size=n) for size in sizes], axis=1)
        answers = survey.release(records, source=source)
        asked = (answers != NOT_ASKED).sum(axis=0)
        assert (asked == (n // 2 if strategy is Strategy.SAMPLE else n)).all()
        for j, found in enumerate(survey.estimate(answers)):
            squares[j] += ((found.values - 1 / sizes[j]) ** 2).sum() / runs
            assert found.values.sum() == pytest.approx(1)
    ratio = squares / survey.variance(n)
    # Σ of squares is about χ² with (k−1) degrees of freedom a run
    for j, size in enumerate(sizes):
        freedom = runs * (size - 1)
        assert ALPHA < stats.chi2.cdf(ratio[j] * freedom, freedom) < 1 - ALPHA
        assert stats.chi2.cdf(3 * ratio[j] * freedom, freedom) > 1 - ALPHA  # a variance too small by 3 is noticed
    assert all(e > 0 for e in survey.error(n=n))
    assert survey.release(np.zeros((0, 2), int)).shape == (0, 2)


# ---------------------------------------------------------------------- hiding participation


@pytest.mark.parametrize("keep", [F(1, 2), F(4, 5)])
def test_participation_law_over_all_add_remove_and_replace_neighbours(keep):
    survey, invitees = ParticipationResponse(keep), ("ann", "bob", "cat")
    databases = [
        {name: answer for name, answer in zip(invitees, answers, strict=True) if answer is not None}
        for answers in itertools.product([None, False, True], repeat=3)
    ]

    def law(database):
        return product_law([survey.probabilities(s) for s in survey.slots(database, invitees)])

    laws = [law(database) for database in databases]
    worst = {Adjacency.ADD_REMOVE: F(0), Adjacency.REPLACE: F(0)}
    for (a, law_a), (b, law_b) in itertools.permutations(zip(databases, laws, strict=True), 2):
        differ = [name for name in invitees if a.get(name) is not b.get(name)]
        if len(differ) == 1:
            kind = Adjacency.ADD_REMOVE if (differ[0] in a) != (differ[0] in b) else Adjacency.REPLACE
            worst[kind] = max(worst[kind], largest_ratio(law_a, law_b))
    for adjacency, ratio in worst.items():
        loss = survey.loss(adjacency=adjacency)
        assert loss.adjacency is adjacency
        assert ratio == loss.odds == 2 * keep / (1 - keep)
    # one invitee leaves and another comes: two slots
    a, b = law({"ann": True}), law({"bob": True})
    assert largest_ratio(a, b) == survey.loss().odds ** 2
    assert as_replace(survey.loss()).pure() == pytest.approx(2 * survey.loss().pure())
    # mutant: only those who took part are reported
    here, gone = (product_law([survey.probabilities(s) for s in slots]) for slots in ((1, 0), (1,)))
    assert largest_ratio(here, gone) == math.inf


def test_participation_slots_and_reports():
    survey = ParticipationResponse.for_epsilon(2)
    assert survey.loss().pure() <= 2
    slots = survey.slots({"bob": False, "zoe": True, "ann": np.True_}, ["ann", "bob", "cat"])
    assert list(slots) == [Slot.YES, Slot.NO, Slot.ABSENT]  # zoe was not invited
    assert survey.release(slots).shape == (3,)
    assert survey.release(Slot.ABSENT) in set(Slot)
    with pytest.raises(InvalidParameter):
        survey.slots({}, ["ann", "ann"])
    with pytest.raises(InvalidData):
        survey.slots({"ann": "yes"}, ["ann"])
    with pytest.raises(InvalidData):
        survey.release([0, 3], source=NoSource())
    assert survey.worst_pair() == (Slot.YES, Slot.ABSENT)
    assert survey.law(2).probabilities[2] == float(survey.keep)
    (survey.loss() + PureLoss(1)).pure()  # add_remove composes with add_remove


def test_participation_estimates_cover():
    """150 surveys of 600 invitees; catches joint coverage of 82 % instead of 95 %; half the width covers far less."""
    survey, source, runs = ParticipationResponse("3/5"), InsecureSeededSource(37), 150
    slots = np.repeat([Slot.NO, Slot.YES, Slot.ABSENT], [150, 250, 200])
    shares = np.array([150, 250, 200]) / 600
    joint = ratio = halved = 0
    values = np.zeros(3)
    for _ in range(runs):
        reports = survey.release(slots, source=source)
        found = survey.estimate(reports)
        values += found.values / runs
        low, high = found.intervals[:, 0], found.intervals[:, 1]
        joint += bool(((low <= shares) & (shares <= high)).all())
        halved += bool(((0.75 * low + 0.25 * high <= shares) & (shares <= 0.25 * low + 0.75 * high)).all())
        ends = survey.yes_share(reports)
        ratio += ends[0] <= 250 / 400 <= ends[1]
    assert stats.binomtest(joint, runs, 0.95, alternative="less").pvalue > ALPHA
    assert stats.binomtest(ratio, runs, 0.95, alternative="less").pvalue > ALPHA
    assert stats.binomtest(halved, runs, 0.95, alternative="less").pvalue < ALPHA
    deviation = math.sqrt(survey.variance(600) / runs)
    assert np.abs(values - shares).max() < 6.1 * deviation  # two-sided 1e-9 of the normal law
    assert survey.yes_share(counts=(0, 0, 50)) == (0.0, 1.0)
    assert survey.error(n=600) > 0
