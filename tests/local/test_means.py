"""Means of numbers: the exact law of every client against all that is stated, and estimates at full size."""

import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.checks import check_randomizer
from dither.checks.statistics import chi_square_counts, proportion_at_most
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.wire import Dropped
from dither.local.core.protocol import load, protocol_of
from dither.local.means.choose import HybridMean, LaplaceMean, OneBitMean, PiecewiseMean, best_mean
from dither.local.means.mean import chernoff_error, chernoff_interval, normal_factors
from dither.privacy import Adjacency, PrivacyLoss
from support.sizes import at_night, some

ALPHA = 1e-9
UNIT = (0, 1)
MAKERS = [OneBitMean.for_epsilon, LaplaceMean.for_epsilon, PiecewiseMean.for_epsilon, HybridMean.for_epsilon]
IDS = ["one bit", "laplace", "piecewise", "hybrid"]
PIECES = PiecewiseMean(UNIT, steps=6, window=3, keep="2/3")

SMALL = {
    "one bit": OneBitMean((-3, 5), keep="3/4"),
    "laplace, one step": LaplaceMean(UNIT, steps=1, decay="1/3"),
    "laplace, five steps": LaplaceMean((0, 10), steps=5, decay="2/3"),
    "laplace, eight steps": LaplaceMean(UNIT, steps=8, decay="4/5"),
    "piecewise": PIECES,
    "piecewise, wide window": PiecewiseMean((10, 11), steps=2, window=5, keep="4/5"),
    "piecewise, one cell": PiecewiseMean(UNIT, steps=4, window=1, keep="1/2"),
    "hybrid": HybridMean(share="2/5", piecewise=PIECES, bit=OneBitMean(UNIT, keep="4/5")),
    **{f"{name}, ε = 2": make(("-1/3", 7), 2).reduced() for name, make in zip(IDS, MAKERS, strict=True)},
}


def law_for(protocol, value):
    client = protocol.client()
    return law_of(lambda coins: int.from_bytes(client.payload(value, coins), "little"))


@pytest.fixture(scope="module", params=sorted(SMALL))
def known(request):
    protocol = SMALL[request.param]
    low, high = protocol.bounds
    values = [low + (high - low) * part for part in (0, Fraction(1, 7), Fraction(1, 2), Fraction(5, 6), 1)]
    return protocol, {value: law_for(protocol, value) for value in [*values, low - 3, high + 1]}


def position(protocol, value):
    low, high = protocol.bounds
    return (min(max(value, low), high) - low) / (high - low)


def test_client_has_the_stated_law_and_is_unbiased_exactly(known):
    protocol, laws = known
    outputs = range(protocol.outputs)
    for value, law in laws.items():
        place = position(protocol, value)
        below, rest = divmod(place * protocol.steps, 1)
        near = protocol.law(int(below))
        next_up = protocol.law(min(int(below) + 1, protocol.steps))
        assert [law[y] for y in outputs] == [(1 - rest) * near[y] + rest * next_up[y] for y in outputs]
        assert sum(law.values()) == 1
        assert sum(p * protocol.decode(y) for y, p in law.items()) == place
        square = sum(p * protocol.decode(y) ** 2 for y, p in law.items()) - place**2
        variance = float(square * protocol.spread**2)
        assert protocol.variance(1, value) == pytest.approx(variance, rel=1e-9)
        assert protocol.variance(7, value) == pytest.approx(variance / 7, rel=1e-9)
        assert protocol.variance(1) >= variance * (1 - 1e-12)
    assert protocol.decoded() == pytest.approx([float(protocol.decode(y)) for y in outputs], rel=1e-12)
    for law, end in zip(protocol.end_laws(), (0, protocol.steps), strict=True):
        assert law == pytest.approx([float(p) for p in protocol.law(end)], rel=1e-12)


def test_ratios_and_curve_are_those_of_the_loss(known):
    protocol, laws = known
    loss = protocol.loss()
    assert loss.adjacency is Adjacency.REPLACE
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    largest = max(p[y] / q[y] for p, q in itertools.permutations(laws.values(), 2) for y in p)
    assert math.log(largest) <= loss.pure() <= math.log(largest) * (1 + 1e-12)
    for part in (0.0, 0.2, 0.5, 0.9):
        epsilon = part * loss.pure()
        bound = Fraction(math.exp(epsilon))
        found = max(
            float(sum(max(p[y] - bound * q[y], 0) for y in p)) for p, q in itertools.permutations(laws.values(), 2)
        )
        assert found <= loss.delta(Fraction(epsilon)) + 1e-14
        assert loss.delta(Fraction(epsilon)) == pytest.approx(found, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
@pytest.mark.parametrize("epsilon", ["13/20", "1", "3", "10"])
def test_losses_never_exceed_what_was_asked(make, epsilon):
    protocol = make((0, 100), epsilon)
    assert float(Fraction(epsilon)) * (1 - 1e-6) <= protocol.loss().pure() <= Fraction(epsilon)
    assert protocol.longitudinal_loss(3).pure() == pytest.approx(3 * float(Fraction(epsilon)), rel=1e-6)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_conformance(make):
    assert check_randomizer(make((0, 100), 1), draws=40_000, most=5000).passed


def test_laplace_on_one_step_is_one_bit():
    noise, bit = LaplaceMean(UNIT, steps=1, decay="1/3"), OneBitMean(UNIT, keep="3/4")
    assert [noise.law(k) for k in (0, 1)] == [bit.law(k) for k in (0, 1)]
    assert [noise.decode(y) for y in (0, 1)] == [bit.decode(y) for y in (0, 1)]


@pytest.mark.parametrize("epsilon", [1, 2, 4, 8])
def test_variances_are_those_of_the_continuous_mechanisms(epsilon):
    """Closed forms of Duchi et al. and Wang et al. for [−1, 1], brought to [0, 1]; the grid adds at most 2%."""
    root, whole = math.exp(epsilon / 2), math.exp(epsilon)
    one_bit = ((whole + 1) / (whole - 1)) ** 2 / 4
    piecewise = 4 * root / (3 * (root - 1) ** 2) / 4
    hybrid = ((root + 3) / (3 * root * (root - 1)) + (whole + 1) ** 2 / (root * (whole - 1) ** 2)) / 4
    assert OneBitMean.for_epsilon(UNIT, epsilon).variance(1) == pytest.approx(one_bit, rel=1e-9)
    assert PiecewiseMean.for_epsilon(UNIT, epsilon).variance(1) == pytest.approx(piecewise, rel=0.02)
    assert PiecewiseMean.for_epsilon(UNIT, epsilon, steps=4096).variance(1) == pytest.approx(piecewise, rel=0.002)
    assert HybridMean.for_epsilon(UNIT, epsilon).variance(1) == pytest.approx(hybrid, rel=0.02)
    middle = (root + 3) / (3 * (root - 1) ** 2) / 4
    assert PiecewiseMean.for_epsilon(UNIT, epsilon, steps=4096).variance(1, "1/2") == pytest.approx(middle, rel=0.002)
    # what leaves the grid stands for its mean, which takes variance away from plain Laplace noise
    assert LaplaceMean.for_epsilon(UNIT, epsilon).variance(1) < 2 / epsilon**2


def test_the_best_has_the_smallest_variance():
    assert isinstance(best_mean("1/2").best, OneBitMean)
    assert isinstance(best_mean(2).best, HybridMean)
    for epsilon in ("1/10", 1, 5):
        choice = best_mean(epsilon, 10_000, bounds=(0, 50))
        variances = [variance for _, _, variance in choice.candidates]
        assert variances == sorted(variances)
        assert choice.best.variance(10_000) == variances[0]
        assert choice.candidates[0][0] in str(choice)


# ------------------------------------------------------------------ many at once


def p_value(protocol, law, value, people=100_000):
    rows = protocol.randomize([value] * people, source=InsecureSeededSource(5))
    counted = np.bincount(rows.view("<u1").reshape(people, -1)[:, 0], minlength=protocol.outputs)
    return chi_square_counts(counted.astype(float), np.array([float(law[y]) for y in range(protocol.outputs)]))


@pytest.mark.parametrize("name", some(sorted(SMALL), 2))
def test_simulation_has_the_law_of_the_client(name):
    """Catches a value that is a twentieth of the range off; drawn from a seed."""
    protocol = SMALL[name]
    low, high = protocol.bounds
    for part in (0, Fraction(1, 3), 1):
        value = low + (high - low) * part
        assert p_value(protocol, law_for(protocol, value), value) > ALPHA
    assert p_value(protocol, law_for(protocol, high - (high - low) / 20), high) < ALPHA


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_mean_squared_error_is_within_five_per_cent_of_theory(make):
    """20,000 surveys: the mean of z² has a standard error of 1%."""
    protocol, people, surveys = make((-1, 3), 2), 50, 20_000
    value = 0.25
    rows = protocol.randomize(np.full(people * surveys, value), source=InsecureSeededSource(3))
    outputs = rows[:, 0].astype(np.int64) + (256 * rows[:, 1].astype(np.int64) if protocol.width == 2 else 0)
    means = -1 + 4 * protocol.decoded()[outputs].reshape(surveys, people).mean(axis=1)
    z = (means - value) / math.sqrt(protocol.variance(people, value))
    assert abs((z**2).mean() - 1) < 0.05
    assert 2 * stats.norm.sf(abs(z.mean()) * math.sqrt(surveys)) > ALPHA
    # a decay or window that is 5% off would show
    assert 2 * stats.norm.sf(abs((z + 0.05).mean()) * math.sqrt(surveys)) < 1e-6


# ------------------------------------------------------------------ intervals


@pytest.mark.parametrize("name", ["laplace, one step", "piecewise, one cell", "hybrid", "laplace, five steps"])
def test_chernoff_intervals_cover_exactly(name):
    """All outcomes of three reports, for populations at points of the grid: the coverage as a sum of probabilities."""
    protocol = SMALL[name]
    found, laws = protocol.decoded(), protocol.end_laws()
    confidence = 0.6
    for points in ((0, 0, 0), (0, protocol.steps, protocol.steps), (0, protocol.steps // 2, protocol.steps)):
        truth = sum(points) / 3 / protocol.steps
        covered = 0.0
        rows = [[float(p) for p in protocol.law(k)] for k in points]
        for outcome in itertools.combinations_with_replacement(range(protocol.outputs), 3):
            low, high = chernoff_interval(found, laws, float(found[list(outcome)].mean()), 3, 1 - confidence)
            if low <= truth <= high:
                orders = set(itertools.permutations(outcome))
                covered += sum(rows[0][a] * rows[1][b] * rows[2][c] for a, b, c in orders)
        assert covered >= confidence


def misses(protocol, *, people, surveys, confidence, shrink=1.0):
    rng = np.random.default_rng(8)
    values = rng.integers(0, 2, people * surveys) * rng.random(people * surveys)  # mean 1/4
    rows = protocol.randomize(values, source=InsecureSeededSource(9)).reshape(surveys, people, -1)
    found = [protocol.aggregator().add(part).estimate(confidence) for part in rows]
    ends = np.array([one.interval for one in found])
    centres = np.array([one.value for one in found])
    low, high = centres + (ends.T - centres) * shrink
    return int(((low > 0.25) | (high < 0.25)).sum())


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
@pytest.mark.parametrize(("people", "surveys"), [(60, 300), pytest.param(4000, 300, marks=at_night)])
def test_intervals_cover(make, people, surveys):
    protocol = make(UNIT, 2)
    assert proportion_at_most(misses(protocol, people=people, surveys=surveys, confidence=0.8), surveys, 0.2) > ALPHA


def test_intervals_of_a_third_of_the_width_are_noticed():
    """Catches intervals of a third of their width; drawn from a seed."""
    protocol = HybridMean.for_epsilon(UNIT, 2)
    wrong = misses(protocol, people=4000, surveys=300, confidence=0.8, shrink=1 / 3)
    assert proportion_at_most(wrong, 300, 0.2) < ALPHA


def test_the_normal_law_is_used_where_its_error_is_known_to_be_small():
    protocol = HybridMean.for_epsilon(UNIT, 1)
    found, least = protocol.decoded(), 0.8
    assert normal_factors(found, least, 100, 0.05) is None
    z, more = normal_factors(found, least, 1_000_000, 0.05)
    assert 1.96 < z < 2.2
    assert more < 0.02
    wide = chernoff_error(found, protocol.end_laws(), 1_000_000, 0.05)
    assert z * (1 + more) * 1.05 / 1000 < wide < 3.5 / 1000
    assert protocol.error(n=1_000_000) == pytest.approx(wide, rel=1e-6)
    assert protocol.error(n=100) < 10.5 * protocol.error(n=10_000)


def test_one_report_and_none():
    protocol = PiecewiseMean.for_epsilon((0, 10), 1)
    with pytest.raises(InvalidData, match="no reports"):
        protocol.aggregator().estimate()
    single = protocol.aggregator().add(protocol.randomize([3])).estimate()
    assert single.interval[0] >= 0
    assert single.interval[1] <= 10
    assert single.variance == pytest.approx(protocol.variance(1) + 25)


# ------------------------------------------------------------------ the collection


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_clients_and_aggregate_meet(make, tmp_path):
    protocol = make((0, 100), 8)
    client = client_of(json.loads(json.dumps(protocol.describe())))
    ages = [Fraction(70)] * 200 + [20] * 100 + [45.5] * 100
    aggregate = protocol.aggregator().add_reports(client.text(age) for age in ages[:150])
    aggregate += protocol.aggregator().add_reports(client.report(age) for age in ages[150:])
    aggregate.save(tmp_path / "kept.json")
    again = load(tmp_path / "kept.json")
    assert again.protocol == protocol
    truth = float(sum(ages) / 400)
    assert abs(again.estimate().value - truth) < 7 * math.sqrt(protocol.variance(400))
    assert aggregate.reports == 400


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_descriptions_say_everything_and_nothing_else(make):
    protocol = make(("-1/2", "7/3"), 2)
    form = protocol.describe()
    assert protocol_of(json.loads(json.dumps(form))) == protocol
    with pytest.raises(InvalidParameter):
        protocol_of({**form, "epsilon": "1"})
    for field in set(form) - {"protocol"}:
        less = {name: value for name, value in form.items() if name != field}
        for wrong in (less, {**form, field: None}, {**form, field: 0.5}, {**form, field: "2/1"}, {**form, field: 0}):
            with pytest.raises(InvalidParameter):
                protocol_of(wrong)
            with pytest.raises(InvalidParameter):
                client_of(wrong)
    for bounds in (["1", "0"], ["0", "0"], ["0"], "01", ["0", "1e9999999"], ["nan", "1"], [0, 1], ["1/0", "2"]):
        for read in (protocol_of, client_of):
            with pytest.raises(InvalidParameter, match="bounds"):
                read({**form, "bounds": bounds})
    for certain in ("1", "0"):
        for field in {"keep", "decay", "bit_keep"} & set(form):
            for read in (protocol_of, client_of):
                with pytest.raises(InvalidParameter, match="private"):
                    read({**form, field: certain if field != "decay" else "0"})


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_wrong_values_are_refused_and_far_ones_clamped(make):
    protocol = make((0, 100), 2)
    client = protocol.client()
    for wrong in ([float("nan")], ["31"], [[1, 2]], 31, [None], [True], [2 + 1j]):
        with pytest.raises(InvalidData, match="nothing was drawn") as error:
            protocol.randomize(wrong)
        assert "31" not in str(error.value)
    for wrong in (float("nan"), "31", None, True, [1]):
        with pytest.raises(InvalidData, match="nothing was drawn") as error:
            client.payload(wrong)
        assert "31" not in str(error.value)
    assert protocol.randomize([]).shape == (0, protocol.width)
    for far in (float("inf"), -float("inf"), 10**400, 1e300):
        assert len(client.payload(far)) == protocol.width
    assert protocol.randomize([float("inf"), -1e300, 3]).shape == (3, protocol.width)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_rows_that_no_client_sends_are_dropped(make):
    protocol = make(UNIT, 2)
    rows = np.concatenate([protocol.randomize([1, 0, 0.5]), np.full((2, protocol.width), 255, dtype=np.uint8)])
    aggregate = protocol.aggregator().add(rows)
    assert (aggregate.reports, aggregate.dropped) == (3, {Dropped.OUT_OF_RANGE: 2})


def test_wrong_parameters():
    for wrong in ((1, 0), (0,), ("a", 1), (0, float("inf")), (1e16, Fraction(10**16) + Fraction(1, 3)), None):
        with pytest.raises(InvalidParameter):
            OneBitMean(wrong, keep="3/4")
    for keep in ("1/2", 1, "1/3"):
        with pytest.raises(InvalidParameter):
            OneBitMean(UNIT, keep=keep)
    for steps, decay in ((0, "1/2"), (2000, "1/2"), (4, 1), (4, 0)):
        with pytest.raises(InvalidParameter):
            LaplaceMean(UNIT, steps=steps, decay=decay)
    for steps, window, keep in ((4, 0, "1/2"), (4, 4, "1/2"), (4, 4, 1), (2**17, 4, "1/2")):
        with pytest.raises(InvalidParameter):
            PiecewiseMean(UNIT, steps=steps, window=window, keep=keep)
    with pytest.raises(InvalidParameter, match="OneBitMean"):
        HybridMean.for_epsilon(UNIT, "1/2")
    with pytest.raises(InvalidParameter, match="same bounds"):
        HybridMean(share="1/2", piecewise=PIECES, bit=OneBitMean((0, 2), keep="3/4"))


class Marching:
    """Coins that fall true, false, false …; numbers that march through what is possible."""

    def __init__(self):
        self.steps = 0

    def chance(self, p):
        self.steps += 1
        return self.steps % 3 == 0

    def below(self, n):
        self.steps += 1
        return 0x9E3779B97F4A7C15 * self.steps % n


# Permanent: a change here means that reports on their way, and aggregates that were kept, can't be read any more.
GOLDEN = {
    "one bit": ("10ded81ad408ec02", "01"),
    "laplace, five steps": ("92cac967b0b06e97", "05"),
    "piecewise": ("1a618eb32707a9f1", "07"),
    "hybrid": ("cc40dc87e45ed067", "09"),
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_fingerprints_and_payloads_are_permanent(name):
    protocol = SMALL[name]
    assert (protocol.fingerprint.hex(), protocol.client().payload(Fraction(2, 5), Marching()).hex()) == GOLDEN[name]


def test_clients_need_nothing_but_python():
    forms = json.dumps([SMALL[name].describe() for name in GOLDEN])
    script = (
        "import json, sys\n"
        "from dither.local.clients import client_of\n"
        f"for form in json.loads({forms!r}):\n"
        "    client = client_of(form)\n"
        "    assert len(client.payload(0.3)) == client.width\n"
        "heavy = {'numpy', 'scipy', 'dither.entropy', 'dither.numeric'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
