"""The auditor audited: never above the truth, wrong no more often than it says, and right about what is broken."""

import math
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.audit import Assumption, Batched, LowerBound, Sketch, Verdict, claim_of, lower_bound
from dither.audit.counting import Look, epsilon_down, event_intervals
from dither.audit.events.choose import choose, objectives
from dither.audit.lower_bound import seconds_of
from dither.audit.outputs.layout import layout_of
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms import (
    DiscreteLaplace,
    Gaussian,
    GaussianLoss,
    Laplace,
    PartitionSelection,
    RandomizedResponse,
)
from dither.privacy import Guarantee, Sensitivity, calibrate
from support.sizes import at_night, short_or_full

# what is found in its time is found by as many draws on every machine
pytestmark = pytest.mark.usefixtures("counted_time")

SURE = 1 - 1e-9
# where more time would only say the same more often
BRIEF = short_or_full("0.3s", "1s")
ONE = Sensitivity.l1(1)
GENERATOR = np.random.default_rng()


def grid_laplace(scale):
    """Laplace noise in floats, rounded so that low bits tell nothing."""

    def draw(x, n):
        return np.round((x + np.random.default_rng().laplace(0, scale, n)) * 2**20) / 2**20

    return Batched(draw, copies=True)


# ------------------------------------------------------------------ never above the truth


@pytest.mark.parametrize(
    ("mechanism", "pair", "truth"),
    [
        (Laplace(scale=1), (0.0, 1.0), 1.0),
        (DiscreteLaplace(scale=2), (0, 1), 0.5),
        (grid_laplace(0.5), (0.0, 1.0), 2.0),
        (RandomizedResponse("1/4"), (True, False), math.log(3)),
    ],
    ids=["laplace", "discrete", "floats", "response"],
)
def test_the_bound_is_below_the_truth_and_near_it(mechanism, pair, truth):
    found = lower_bound(mechanism, *pair, confidence=SURE, budget="1.5s", stop_when_broken=False, claim=truth)
    assert found.verdict is Verdict.HELD
    assert 0.9 * truth < found.epsilon <= truth
    assert found.epsilon == pytest.approx(math.log(found.p[0] / found.q[1]), rel=1e-9)


def test_a_delta_is_taken_off():
    # reveals with probability 1/10, else randomised response with ε = 1
    keep = math.e / (1 + math.e)

    def draw(x, n):
        rng = np.random.default_rng()
        answer = np.where(rng.random(n) < keep, x, 1 - x)
        return np.where(rng.random(n) < 0.1, 2 + x, answer)

    found = lower_bound(Batched(draw), 0, 1, delta=0.1, confidence=SURE, budget="1s", claim=Guarantee(1, 0.1))
    assert found.verdict is Verdict.HELD
    assert 0.9 < found.epsilon <= 1
    without = lower_bound(Batched(draw), 0, 1, confidence=SURE, budget="1s", claim=Guarantee(1, 0.1))
    assert without.verdict is Verdict.HELD
    assert without.epsilon > 5  # at δ = 0 there is no finite ε


def test_a_mechanism_that_ignores_its_input_has_no_loss():
    found = lower_bound(
        Batched(lambda x, n: np.random.default_rng().normal(size=n)), 0, 1, confidence=SURE, budget=BRIEF
    )
    assert found.verdict is Verdict.UNCLAIMED
    assert found.epsilon < 0.05


def test_a_mechanism_without_randomness_loses_much():
    found = lower_bound(lambda x: x, 0, 1, claim=3, confidence=SURE, budget="0.5s", stop_when_broken=False)
    assert found.broken
    assert 5 < found.epsilon < math.inf
    same = lower_bound(lambda x: 7, 0, 1, claim=3, confidence=SURE, budget="0.3s")
    assert same.epsilon == 0
    assert same.verdict is Verdict.HELD


# ------------------------------------------------------------------ wrong no more often than it says


def test_bounds_are_wrong_no_more_often_than_stated():
    """Many hurried audits at 90%: at most the binomial number of them may be above the truth."""
    runs, allowed = 120, stats.binom.isf(1e-9, 120, 0.1)
    honest = 1 / (1 + math.exp(-1))
    response = Batched(lambda x, n: (np.random.default_rng().random(n) < honest) ^ x)
    kinds = [(grid_laplace(1.0), (0.0, 1.0)), (response, (False, True))]
    wrong = sum(
        lower_bound(mechanism, *pair, confidence=0.9, budget=0.02).epsilon > 1
        for mechanism, pair in kinds
        for _ in range(runs // 2)
    )
    assert wrong <= allowed


def test_an_auditor_that_certifies_on_the_draws_that_chose_is_caught():
    """The mutant of the test above: one sample fits, chooses and makes the bound."""
    runs, allowed = 120, stats.binom.isf(1e-9, 120, 0.1)
    mechanism = grid_laplace(1.0)
    wrong = 0
    for _ in range(runs):
        sample = [mechanism.draw(x, 400) for x in (0.0, 1.0)]
        layout = layout_of(*sample)
        columns = tuple(layout.read(side) for side in sample)
        event = choose(layout, columns, columns, objectives(0.0, None), 1.0).bound.event
        inside = [int(event.inside(side).sum()) for side in columns]
        p, q = event_intervals(*[n for side in (inside if event.first else inside[::-1]) for n in (side, 400)], 0.1)
        wrong += epsilon_down(p.low, q.high, 0.0) > 1
    assert wrong > allowed


def recorded(monkeypatch, **arguments):
    """The failures of all statements that an audit makes."""
    spent = []

    def recording(in_p, p_draws, in_q, q_draws, failure):
        spent.append(failure)
        return event_intervals(in_p, p_draws, in_q, q_draws, failure)

    monkeypatch.setattr("dither.audit.certify.by_sampling.event_intervals", recording)
    noisy = Batched(lambda x, n: np.round(np.random.default_rng().normal(x, 1, n), 3))
    lower_bound(noisy, 0.0, 1.0, claim=GaussianLoss(Fraction(1)), confidence=0.9, budget=BRIEF, **arguments)
    return spent


@pytest.mark.parametrize("stop", [True, False])
def test_all_statements_together_spend_no_more_than_the_failure(monkeypatch, stop):
    """Every look at every event in every round is a statement: their failures add up to at most what was allowed."""
    spent = recorded(monkeypatch, stop_when_broken=stop)
    assert len(spent) > 5
    assert sum(spent) <= 0.1 * (1 + 1e-9)


@pytest.mark.parametrize("stop", [True, False])
def test_looks_that_spend_everything_spend_no_more(monkeypatch, stop):
    """With one look that has the whole share, all is spent, however many events and rounds there are."""
    monkeypatch.setattr("dither.audit.drawing.workers.looks", lambda planned: iter([Look(1, 1.0), Look(10**18, 0.0)]))
    assert sum(recorded(monkeypatch, stop_when_broken=stop)) == pytest.approx(0.1, rel=1e-9)


def test_normal_statements_spend_no_more_than_the_failure(monkeypatch):
    from dither.audit.certify import by_normal_law as normal

    spent, box = [], normal._box
    monkeypatch.setattr(normal, "_box", lambda total, failure: spent.append(failure) or box(total, failure))
    noisy = Batched(lambda x, n: np.random.default_rng().normal(x, 1, n))
    lower_bound(noisy, 0.0, 1.0, confidence=0.9, budget="0.5s", assuming=Assumption.NORMAL)
    assert len(spent) > 3
    assert sum(spent) <= 0.1 * (1 + 1e-9)


def test_no_draw_has_two_uses(monkeypatch):
    """What fits, what chooses and what is counted are different draws, also over several rounds."""
    from dither.audit.certify import by_sampling as certify

    drawn, counted, uses = iter(range(10**12)), [], []
    chosen, called = certify.choose, certify.Tally.__call__

    def numbered(x, n):
        return np.array([next(drawn) for _ in range(n)])

    def choosing(layout, fit, sample, *rest):
        uses.extend(side.numbers["output"] for part in (fit, sample) for side in part)
        return chosen(layout, fit, sample, *rest)

    def counting(tally):
        first = next(drawn)
        found = called(tally)
        counted.append(np.arange(first, next(drawn)))
        return found

    monkeypatch.setattr(certify, "choose", choosing)
    monkeypatch.setattr(certify.Tally, "__call__", counting)
    lower_bound(Batched(numbered), 0, 1, claim=100, budget="0.2s")
    everything = np.concatenate([*uses, *counted])
    assert len(uses) >= 4
    assert counted
    assert np.unique(everything).size == everything.size


# ------------------------------------------------------------------ what is broken


def test_noise_two_per_cent_short_is_caught():
    found = lower_bound(Laplace(scale="0.98"), 0.0, 1.0, claim=1, confidence=1 - 1e-6, budget="20s")
    assert found.broken
    assert found.epsilon > 1
    assert found.event.startswith("output")


def test_float_noise_is_caught_by_its_low_bits():
    found = lower_bound(lambda x: x + GENERATOR.laplace(), 0.0, 1.0, claim=1, confidence=SURE, budget="10s")
    assert found.broken
    assert "lowest bit" in found.event
    naive = Batched(lambda x, n: x + np.random.default_rng().laplace(size=n), copies=True)
    best = lower_bound(naive, 0.0, 1.0, claim=1, confidence=SURE, budget="1s", stop_when_broken=False)
    assert best.epsilon > 5


def test_gaussian_noise_ten_per_cent_short_is_caught_by_its_curve():
    claim = GaussianLoss(Fraction(1))
    short = Gaussian(scale="0.9")
    assert lower_bound(short, 0.0, 1.0, claim=claim, confidence=1 - 1e-6, budget="20s").broken
    right = lower_bound(Gaussian(scale=1), 0.0, 1.0, sensitivity=Sensitivity.l2(1), confidence=SURE, budget=BRIEF)
    assert right.verdict is Verdict.HELD
    assert right.claim == claim_of(claim)


def test_vectors_are_audited_as_a_whole():
    # noise for one coordinate on two that both move
    found = lower_bound(Laplace(scale=1), [0.0, 0.0], [1.0, 1.0], claim=1, confidence=SURE, budget="20s")
    assert found.broken
    assert 1 < found.epsilon <= 2


def test_long_vectors_are_audited_by_a_weighted_sum():
    """Each of a thousand coordinates moves a little: no single one tells."""
    noisy = Batched(lambda x, n: np.random.default_rng().normal(0.1 * x, 1, (n, 1000)))
    found = lower_bound(noisy, 0.0, 1.0, claim=1, confidence=SURE, budget="20s")
    assert found.broken
    assert "weighted sum" in found.event


def test_missing_and_infinite_outputs_are_outputs():
    def poisoned(x, n):
        noise = np.random.default_rng().laplace(size=n)
        noise[: n // 4] = np.nan if x else np.inf
        np.random.default_rng().shuffle(noise)
        return noise

    found = lower_bound(Batched(poisoned), 0, 1, claim=1, confidence=SURE, budget="5s")
    assert found.broken
    everything = lower_bound(Batched(lambda x, n: np.full(n, np.nan)), 0, 1, claim=1, confidence=SURE, budget="0.3s")
    assert everything.epsilon == 0
    nothing = lower_bound(lambda x: None, 0, 1, budget="0.3s")
    assert nothing.epsilon == 0


@pytest.mark.parametrize(
    ("leak", "word"),
    [
        (lambda x: {"a": 1.0, "c" if x else "b": 2.0}, "in output"),
        (lambda x: ["k"] * (2 + x), "length"),
        (lambda x: "yes" if x else "no", "output"),
        (lambda x: {"n": [1, 2] if x else [2, 1]}, "output"),
        (lambda x: 1 if x else 1.0, "shape"),
        (lambda x: {"s": {"m"} if x else {"n"}}, "in output['s']"),
    ],
    ids=["keys", "length", "text", "order", "type", "set"],
)
def test_structured_outputs_give_away(leak, word):
    def half(x):
        return leak(x) if GENERATOR.random() < 0.5 else leak(0)

    found = lower_bound(half, 0, 1, claim="1/2", confidence=SURE, budget="4s")
    assert found.broken
    assert word in found.event


def test_selected_keys_are_audited():
    keys = PartitionSelection(1, 0.05)
    counts = [np.array([5, 1]), np.array([5, 0])]
    mechanism = lambda x: tuple(np.flatnonzero(keys.release(x)).tolist())  # noqa: E731
    found = lower_bound(mechanism, *counts, claim=Guarantee(1, 0.05), confidence=SURE, budget=BRIEF)
    assert found.verdict is Verdict.HELD
    assert lower_bound(mechanism, *counts, claim=1, confidence=SURE, budget="10s").broken


# ------------------------------------------------------------------ normal outputs


def classical(epsilon, delta):
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_the_classical_constant_is_caught_beyond_where_it_is_proven():
    claim = Guarantee(12, 1e-5)
    found = lower_bound(
        Gaussian(scale=classical(12, 1e-5)),
        0.0,
        1.0,
        claim=claim,
        delta=1e-5,
        assuming=Assumption.NORMAL,
        confidence=SURE,
        budget="3s",
    )
    assert found.broken
    assert found.assumption is Assumption.NORMAL
    assert 12 < found.epsilon < GaussianLoss(1 / Fraction(classical(12, 1e-5)) ** 2).epsilon(1e-5)
    assert "assumption" in str(found)
    assert found.q[1] < 1e-8
    exact = calibrate(Gaussian, claim, Sensitivity.l2(1))
    right = lower_bound(
        exact,
        0.0,
        1.0,
        claim=claim,
        delta=1e-5,
        assuming=Assumption.NORMAL,
        confidence=SURE,
        budget=short_or_full("0.5s", "1s"),
    )
    assert right.verdict is Verdict.HELD
    assert 11.7 < right.epsilon <= 12


def test_normal_bounds_without_a_delta_or_a_claim_are_finite():
    found = lower_bound(
        Gaussian(scale=1),
        0.0,
        1.0,
        assuming=Assumption.NORMAL,
        claim=None,
        sensitivity=Sensitivity.l2(1),
        budget="0.5s",
    )
    assert 1 < found.epsilon < math.inf
    assert found.epsilon == pytest.approx(math.log(found.p[0] / found.q[1]), rel=1e-6)


def test_normal_vectors_are_projected():
    # three coordinates that move by one each are at distance √3
    moved = Gaussian(scale=1)
    found = lower_bound(
        moved,
        [0.0] * 3,
        [1.0] * 3,
        claim=GaussianLoss(Fraction(3)),
        delta=1e-6,
        assuming=Assumption.NORMAL,
        budget=short_or_full("0.5s", "1s"),
    )
    truth = GaussianLoss(Fraction(3)).epsilon(1e-6)
    assert found.verdict is Verdict.HELD
    assert 0.97 * truth < found.epsilon <= truth


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (lambda x, n: Laplace(scale=1).release(np.full(n, x)), "plainly not normal"),
        (lambda x, n: np.random.default_rng().normal(x, 1 + x, n), "different variances"),
        (lambda x, n: np.full(n, x), "plainly not normal|don't vary"),
        (lambda x, n: np.where(np.random.default_rng().random(n) < 0.1, np.nan, 1.0), "finite"),
        (lambda x, n: ["a"] * n, "numbers|don't vary"),
    ],
    ids=["laplace", "variances", "constant", "missing", "texts"],
)
def test_what_is_plainly_not_normal_is_refused(draw, reason):
    with pytest.raises(InvalidData, match=reason):
        lower_bound(Batched(draw), 0.0, 1.0, assuming=Assumption.NORMAL, budget="1s")


@at_night
def test_normal_bounds_are_wrong_no_more_often_than_stated():
    runs, allowed = 150, stats.binom.isf(1e-9, 150, 0.1)
    noisy = Batched(lambda x, n: np.random.default_rng().normal(x, 1, n))
    truth = GaussianLoss(Fraction(1)).epsilon(1e-3)
    found = [
        lower_bound(noisy, 0.0, 1.0, delta=1e-3, confidence=0.9, budget=0.02, assuming=Assumption.NORMAL).epsilon
        for _ in range(runs)
    ]
    assert sum(epsilon > truth for epsilon in found) <= allowed
    assert np.median(found) > 0.5 * truth


# ------------------------------------------------------------------ time, words, mistakes


@pytest.mark.parametrize("pause", [0.0002, 0.02], ids=["quick", "slow"])
def test_the_budget_is_kept(pause, own_clock):
    def mechanism(x):
        own_clock.passed += pause
        return GENERATOR.random() + 0.1 * x

    found = lower_bound(mechanism, 0, 1, budget="1s", stop_when_broken=False)
    assert own_clock.passed <= 1.2  # a tenth more, and a block
    assert found.seconds == own_clock.passed
    assert found.draws > 0


def test_a_mechanism_slower_than_the_budget_ends(own_clock):
    def slow(x):
        own_clock.passed += 0.4
        return x

    found = lower_bound(slow, 0, 1, claim=1, budget="0.5s")
    assert own_clock.passed < 3
    assert (found.epsilon, found.draws, found.verdict) == (0.0, 0, Verdict.HELD)
    assert "none was counted" in str(found)


@pytest.mark.parametrize("pause", [1e-4, 1e-3])
def test_objects_that_are_slow_to_read_keep_the_budget_too(own_clock, monkeypatch, pause):
    """Making columns of what was drawn takes ten times as long as drawing it."""
    rows = [{"key": str(i), "n": i} for i in range(5)]
    kind = type(layout_of([rows], [rows]))
    read = kind.read

    def slowly(layout, block):
        own_clock.passed += pause * len(block)
        return read(layout, block)

    def draw(_, n):
        own_clock.passed += pause / 10 * n
        return [rows] * n

    monkeypatch.setattr(kind, "read", slowly)
    found = lower_bound(Batched(draw), 0, 1, budget="1s", stop_when_broken=False)
    assert own_clock.passed < 1.3
    assert found.draws > 0


def test_progress_is_told():
    told = []
    lower_bound(grid_laplace(1), 0.0, 1.0, budget="0.3s", watch=lambda share, doing: told.append((share, doing)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert {"fitting scores of outputs", "choosing an event", "counting"} <= {doing for _, doing in told}


def test_the_result_says_it_in_words():
    found = lower_bound(lambda x: x, 0, 1, claim=1, budget="0.3s")
    assert str(found).startswith("The claim is false. ε ≥ ")
    assert "claimed: ε = 1." in str(found)
    assert "Event: output" in str(found)
    assert found.pair == (0, 1)
    assert isinstance(found.sketch, Sketch)
    unclaimed = lower_bound(lambda x: x, 0, 1, budget="0.3s", confidence="0.999999999")
    assert str(unclaimed).startswith("Nothing was claimed. ε ≥ ")
    assert "1 − 1e-09" in str(unclaimed)


def test_times_as_people_write_them():
    assert seconds_of("90") == 90
    assert seconds_of(" 1.5 m ") == 90
    assert seconds_of("500ms") == 0.5
    assert seconds_of(timedelta(seconds=3)) == 3
    assert seconds_of("1h") == 3600


@pytest.mark.parametrize("budget", [-1, 0, "60x", "", "abc", float("nan"), float("inf"), None, "-5s", True])
def test_budgets_that_are_no_time(budget):
    with pytest.raises(InvalidParameter):
        lower_bound(lambda x: x, 0, 1, budget=budget)


@pytest.mark.parametrize(
    "wrong",
    [
        {"confidence": 1},
        {"confidence": 0},
        {"confidence": 1.5},
        {"delta": -0.1},
        {"delta": 1},
        {"delta": float("nan")},
        {"claim": float("nan")},
        {"claim": -1},
        {"claim": 1, "sensitivity": ONE},
        {"sensitivity": ONE},
        {"workers": 0},
        {"workers": 1.5},
        {"assuming": "normal"},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        lower_bound(lambda x: x, 0, 1, **{"budget": "1s", **wrong})


def test_the_claim_comes_from_the_mechanism():
    found = lower_bound(RandomizedResponse("1/4"), True, False, budget="0.3s")
    assert found.claim == claim_of(RandomizedResponse("1/4").loss())
    with pytest.raises(InvalidParameter, match="needs a sensitivity"):
        lower_bound(Laplace(scale=1), 0.0, 1.0)
    with pytest.raises(InvalidParameter, match="takes no sensitivity"):
        lower_bound(RandomizedResponse("1/4"), True, False, sensitivity=ONE)


def test_two_inputs_are_needed():
    with pytest.raises(TypeError):
        lower_bound(lambda x: x, 0)
    assert LowerBound.__dataclass_params__.frozen
