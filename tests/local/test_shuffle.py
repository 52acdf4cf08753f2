"""Amplification by shuffling: the pair against exact sums, and against the shuffled reports of real clients."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dither.errors import InvalidParameter
from dither.local.coins import law_of
from dither.local.hadamard import HadamardResponse
from dither.local.kary import Kary
from dither.local.participation import Participation
from dither.local.rappor import Rappor
from dither.local.shuffle import OVERSTATED, ShuffledLoss, local_epsilon_for, shuffled
from dither.local.shuffle_curve import Randomiser, ShuffledCurve, half_binomial
from dither.local.subset import SubsetSelection
from dither.local.unary import Unary
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss
from dither.privacy import Adjacency, ApproximateLoss, Direction, PrivacyLoss, PureLoss

THREE, QUARTER = Fraction(3), Fraction(1, 4)


# ------------------------------------------------------------------ exact laws, as fractions


def known(odds, weight, clones=None, silent=0, common=0):
    clones = weight if clones is None else clones
    exact = {"clones": Fraction(clones), "silent": Fraction(silent), "common": Fraction(common)}
    return Randomiser(odds=Fraction(odds), weight=Fraction(weight), **exact)


def pair(local, users):
    """Both laws of the pair: reports of the first, second and third law, of the user and the clones."""
    law = {}
    w, left = local.weight, 1 - (local.odds + 1) * local.weight - local.silent
    for sizes in itertools.product(range(users), repeat=3):
        strangers = users - 1 - sum(sizes)
        if strangers < 0:
            continue
        ways = math.factorial(users - 1) // math.prod(math.factorial(x) for x in (*sizes, strangers))
        chance = ways * local.clones ** (sizes[0] + sizes[1]) * local.common ** sizes[2]
        chance *= (1 - 2 * local.clones - local.common) ** strangers
        for step, one, other in (
            ((1, 0, 0), local.odds * w, w),
            ((0, 1, 0), w, local.odds * w),
            ((0, 0, 1), local.silent, local.silent),
            ("known", left, left),
        ):
            key = (sizes, step) if step == "known" else tuple(x + y for x, y in zip(sizes, step, strict=True))
            p, q = law.get(key, (0, 0))
            law[key] = (p + chance * one, q + chance * other)
    return [(p, q) for p, q in law.values() if p or q]


def hockey_stick(law, t):
    return sum(max(0, p - t * q) for p, q in law)


def shuffled_law(laws):
    """The exact law of the multiset of reports drawn from these laws."""
    found = {(): 1}
    for law in laws:
        step = Counter()
        for reports, chance in found.items():
            for report, p in law.items():
                step[tuple(sorted((*reports, report)))] += chance * p
        found = step
    return found


def worst_curve(laws, users, points):
    """The largest hockey stick of shuffled reports over neighbours and over everything the others may report about."""
    worst = dict.fromkeys(points, 0)
    for others in itertools.combinations_with_replacement(range(len(laws)), users - 1):
        crowd = shuffled_law([laws[value] for value in others])
        both = {}
        for value in range(len(laws)):
            law = Counter()
            for reports, chance in crowd.items():
                for report, p in laws[value].items():
                    law[tuple(sorted((*reports, report)))] += chance * p
            both[value] = law
        for one, other in itertools.permutations(range(len(laws)), 2):
            joined = [(p, both[other][key]) for key, p in both[one].items()]
            for t in points:
                worst[t] = max(worst[t], hockey_stick(joined, t))
    return worst


def client_laws(protocol):
    """A new client for each draw: some keep what they have drawn."""
    inputs = protocol.inputs() if hasattr(protocol, "inputs") else ["a", "b", "c"]
    return [law_of(lambda coins, value=value: protocol.client().payload(value, coins)) for value in inputs]


def points_of(odds):
    """Rational t = e^ε from 1 to a little below the odds."""
    return [1 + (odds - 1) * Fraction(share, 40) for share in (0, 1, 2, 4, 8, 14, 20, 28, 36, 39)]


def claimed(loss, t):
    """The claim at the largest float ε with e^ε ≤ t surely, which is no smaller than the claim at t."""
    return Fraction(loss.delta(math.log(t) * (1 - 1e-12))) if t > 1 else Fraction(loss.delta(0))


SHAPES = [
    known(odds, weight, clones, silent, common)
    for odds in (Fraction(3), Fraction(3, 2), Fraction(20))
    for weight in (1 / (odds + 1), 1 / (odds + 9), 1 / (odds + 99))
    for rest in (1 - (odds + 1) * weight,)
    for clones, silent, common in (
        (weight, 0, 0),
        (min(weight, 1 / (2 * odds)), 0, 0),
        (weight, rest, rest),
        (weight, rest / 3, rest / 3),
        (weight, rest, rest / odds),
        (weight / 2, rest, rest / 2),
    )
]


@pytest.mark.parametrize("local", list(dict.fromkeys(SHAPES)))
def test_the_curve_is_that_of_the_pair(local):
    for users in (1, 2, 3, 6):
        law, curve = pair(local, users), ShuffledCurve(local, users)
        assert sum(p for p, _ in law) == sum(q for _, q in law) == 1
        for epsilon in np.linspace(0, 0.98 * math.log(local.odds), 7):
            exact = hockey_stick(law, Fraction(math.exp(epsilon)))
            found = curve.delta_up(float(epsilon))
            assert found >= exact * (1 - Fraction(1, 10**14))  # e^ε itself is rounded
            assert found <= float(exact) * (1 + 1e-9) + 1e-29


TYPICAL = known(3, "1/8", "1/10", "1/2", "1/5")


@pytest.mark.parametrize(
    ("mutant", "users"),
    [
        (TYPICAL, 8),  # one more clone
        (replace(TYPICAL, weight=Fraction(101, 800)), 7),
        (replace(TYPICAL, clones=Fraction(101, 1000)), 7),
        (replace(TYPICAL, common=Fraction(101, 500)), 7),
        (replace(TYPICAL, silent=Fraction(49, 100)), 7),
        (replace(TYPICAL, silent=Fraction(0), common=Fraction(0)), 7),
    ],
)
def test_the_exact_sum_tells_the_curve_from_its_mutants(mutant, users):
    exact, found = hockey_stick(pair(TYPICAL, 7), Fraction(5, 4)), ShuffledCurve(mutant, users).delta_up(math.log(1.25))
    assert not exact * (1 - Fraction(1, 10**12)) <= found <= exact * (1 + Fraction(1, 10**9))
    assert ShuffledCurve(TYPICAL, 7).delta_up(math.log(1.25)) == pytest.approx(float(exact), rel=1e-9)


# ------------------------------------------------------------------ against reports of real clients


RANDOMISERS = {
    "binary": (Kary(2, keep="3/4"), (2, 3, 5, 8)),
    "binary, cautious": (Kary(2, keep="11/20"), (2, 8)),
    "binary, honest": (Kary(2, keep="19/20"), (2, 8)),
    "ternary": (Kary(3, keep="3/5"), (2, 3, 5)),
    "ternary, honest": (Kary(3, keep="9/10"), (2, 4)),
    "five values": (Kary(5, keep="1/2"), (2, 3)),
    "unary": (Unary(2, keep="1/2", noise="1/4"), (2, 4)),
    "subsets": (SubsetSelection(4, subset=2, keep="3/4"), (2, 3)),
    "hadamard": (HadamardResponse(3, keep="3/4"), (2, 3)),
    "participation": (Participation(2, Kary(3, keep="3/5")), (2, 4)),
    "rappor": (Rappor(bits=2, hashes=1, cohorts=1, f="1/2", p="1/4", q="3/4"), (2, 4)),
    "rappor, uneven": (Rappor(bits=2, hashes=1, cohorts=1, f="1/2", p="1/2", q="3/4"), (2, 3)),
}


@pytest.mark.parametrize("name", RANDOMISERS)
def test_shuffled_reports_are_never_further_apart_than_claimed(name):
    protocol, sizes = RANDOMISERS[name]
    laws = client_laws(protocol)
    odds = Fraction(math.exp(protocol.loss().pure()))
    for users in sizes:
        loss = shuffled(protocol, users)
        for t, exact in worst_curve(laws, users, points_of(odds)).items():
            assert claimed(loss, t) >= exact
            # and what is claimed without knowing the protocol is no less
            assert claimed(shuffled(protocol.loss().pure(), users), t) >= exact


def test_how_close_the_claim_is_for_binary_answers():
    """The others' honest answers hide a little too, which the pair doesn't count: that is all that it gives away."""
    loss, laws = shuffled(Kary(2, keep="3/4"), 8), client_laws(Kary(2, keep="3/4"))
    exact = worst_curve(laws, 8, points_of(THREE))
    shares = [float(claimed(loss, t) / true) for t, true in exact.items() if true]
    assert min(shares) >= 1
    assert shares[0] < 1.15
    assert min(shares) < 1.001
    assert max(shares) < 1.5


def of(odds, weight, users, **more):
    return ShuffledLoss(known(odds, weight, **more), users)


@pytest.mark.parametrize(
    "mutant",
    [
        of(THREE, QUARTER, 12),  # counts four who aren't there
        of(THREE, Fraction(1, 6), 8),  # takes two answers for four
        of(Fraction(5, 2), Fraction(2, 7), 8),  # a smaller local ε
    ],
)
def test_mutants_of_the_claim_are_contradicted_by_real_reports(mutant):
    exact = worst_curve(client_laws(Kary(2, keep="3/4")), 8, points_of(THREE))
    assert any(claimed(mutant, t) < true for t, true in exact.items())


def test_silent_reports_are_not_hidden_by_people_who_send_none():
    """A published pair takes all that aren't clones for reports that may be the user's: two people contradict it.

    Ternary answers, keep 3/5: the user has a or b, the other a. Both say a with probability 9/25 or 3/25. In that pair
    the user's silent report (1/5) hides among all that aren't clones (3/5 of the other's), which here say a as well.
    """
    keep, lie, t = Fraction(3, 5), Fraction(1, 5), Fraction(12, 5)
    exact = worst_curve(client_laws(Kary(3, keep=keep)), 2, [t])[t]
    assert exact == (keep - t * lie) * keep
    wrong = ShuffledCurve(known(3, lie, lie, lie, 1 - 2 * lie), 2).delta_up(math.log(t))
    assert wrong < 0.6 * float(exact)
    assert claimed(shuffled(Kary(3, keep=keep), 2), t) >= exact


# Reports by which of three people's values they support: all, some or none of them.
TYPES = [frozenset(s) for size in range(4) for s in itertools.combinations(range(3), size)]


def any_randomiser(odds, seed):
    """The laws of three values under a local randomiser of these odds, at random among the extreme ones or between."""
    rng = np.random.default_rng(seed)
    table = np.array([[float(odds) if value in kind else 1.0 for kind in TYPES] for value in range(3)])
    corners = [
        linprog(rng.normal(size=len(TYPES)), A_eq=table, b_eq=np.ones(3), bounds=(0, None)).x
        for _ in range(1 + seed % 2)
    ]
    least = np.average(corners, axis=0, weights=rng.dirichlet(np.ones(len(corners))))
    return [dict(enumerate(row)) for row in table * np.maximum(least, 0)]


@pytest.mark.parametrize("odds", [Fraction(6, 5), Fraction(3), Fraction(30)])
def test_no_randomiser_of_an_epsilon_is_further_apart_than_claimed_for_it(odds):
    """Every local randomiser is made from those whose reports have one of two probabilities for each value."""
    for seed in range(8):
        laws = any_randomiser(odds, seed)
        for users in (2, 3):
            loss = shuffled(float(math.log(odds)) * (1 + 1e-12), users)
            for t, exact in worst_curve(laws, users, points_of(odds)).items():
                assert float(claimed(loss, t)) >= exact * (1 - 1e-9) - 1e-12


# ------------------------------------------------------------------ many users


def summed(odds, weight, users, epsilon):
    """The pair without a third law by scipy's binomials, without thresholds or any other formula."""
    m, t = users - 1, math.exp(epsilon)
    odds, weight = float(odds), float(weight)
    centre, spread = m * 2 * weight, math.sqrt(m * 2 * weight * (1 - 2 * weight))
    total = 0.0
    for clones in range(max(0, int(centre - 9 * spread)), min(m, int(centre + 9 * spread)) + 1):
        a = np.arange(int(clones / 2), min(clones + 1, int(clones / 2 + 8 * math.sqrt(clones) + 40)) + 1)
        first, second = binom.pmf(a - 1, clones, 0.5), binom.pmf(a, clones, 0.5)
        told = np.maximum((odds - t) * first + (1 - t * odds) * second, 0.0).sum()
        total += weight * float(told) * float(binom.pmf(clones, m, 2 * weight))
    return total


@pytest.mark.parametrize(("users", "epsilon"), [(1_000, 0.1), (20_000, 0.02), (20_000, 0.03), (100_000, 0.01)])
@pytest.mark.parametrize("categories", [2, 20])
def test_many_users_against_a_plain_sum(users, epsilon, categories):
    odds = Fraction(math.e)
    weight = 1 / (odds + categories - 1)
    found = ShuffledCurve(known(odds, weight), users).delta_up(epsilon)
    assert found == pytest.approx(summed(odds, weight, users, epsilon), rel=1e-7)


def drawn(local, users, epsilon, draws=400_000):
    """The curve of the pair by chance: E_P[(1 − e^ε·Q/P)₊] and its standard error, from draws of P."""
    rng = np.random.default_rng(7)
    p, w, r, own, s = (float(getattr(local, name)) for name in ("odds", "weight", "clones", "silent", "common"))
    counts = rng.multinomial(users - 1, [r, r, s, 1 - 2 * r - s], size=draws)[:, :3]
    state = rng.choice(4, size=draws, p=[p * w, w, own, 1 - (p + 1) * w - own])
    for place in range(3):
        counts[state == place, place] += 1
    a, b, silent = counts.T
    speak, rest = w / r, own / s * silent
    ratio = (speak * (a + p * b) + rest) / (speak * (p * a + b) + rest)
    told = np.where(state == 3, 0.0, np.maximum(0.0, 1 - math.exp(epsilon) * ratio))
    return told.mean(), told.std() / math.sqrt(draws)


@pytest.mark.parametrize(("users", "epsilon"), [(1_000, 0.02), (30_000, 0.003)])
@pytest.mark.parametrize("thin", [1, 3])
def test_many_users_with_a_third_law_against_chance(users, epsilon, thin):
    """Within 6.2 standard errors (α = 1e-9); the steps in which the crowd is taken may cost 5%."""
    odds = Fraction(math.e)
    local = known(odds, 1 / (odds + 19), None, 18 / (odds + 19), 18 / (odds + 19) / thin)
    mean, error = drawn(local, users, epsilon)
    assert error < 0.01 * mean
    found = ShuffledCurve(local, users).delta_up(epsilon)
    assert mean - 6.2 * error <= found <= (mean + 6.2 * error) * 1.05
    # a mutant: a third more users than there are
    assert ShuffledCurve(local, users * 4 // 3).delta_up(epsilon) < mean - 6.2 * error


def test_probabilities_of_fair_coins_are_exact():
    n, k = np.array([0, 1, 7, 40, 500, 1_000, 1_000]), np.array([0, 1, 2, 20, 230, 600, 390])
    exact = [Fraction(math.comb(int(a), int(b)), 2 ** int(a)) for a, b in zip(n, k, strict=True)]
    for found, true in zip(half_binomial(n, k), exact, strict=True):
        assert abs(Fraction(float(found)) / true - 1) < Fraction(1, 10**13)
    assert half_binomial(np.array([3, 3]), np.array([-1, 4])).tolist() == [0, 0]
    # of a hundred million coins, through the quotient of neighbours
    n = np.full(2, 10**8)
    near = half_binomial(n, np.array([50_020_000, 50_020_001]))
    assert near[1] / near[0] == pytest.approx((10**8 - 50_020_000) / 50_020_001, rel=1e-12)


def closed_form(epsilon, delta, users):
    """Feldman, McMillan & Talwar 2021, Theorem 3.1."""
    odds = math.exp(epsilon)
    assert epsilon <= math.log(users / (16 * math.log(2 / delta)))
    root = 8 * math.sqrt(odds * math.log(4 / delta)) / math.sqrt(users) + 8 * odds / users
    return math.log1p((odds - 1) / (odds + 1) * root)


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [
        (1_000, 0.1, 1e-5),
        (1_000, 1.0, 1e-5),
        (100_000, 1.0, 1e-10),
        (100_000, 4.0, 1e-10),
        (1_000_000, 0.1, 1e-10),
        (1_000_000, 4.0, 1e-5),
    ],
)
def test_it_is_far_below_the_closed_form(users, epsilon, delta):
    found = shuffled(epsilon, users).epsilon(delta)
    assert 0 < found < 0.7 * closed_form(epsilon, delta, users)


def test_epsilon_falls_like_one_over_the_root_of_the_users():
    few, many = (shuffled(1, n).epsilon(1e-8) for n in (10**6, 10**8))
    assert 9 < few / many < 14


def test_a_hundred_million_users_are_no_trouble():
    assert 0 < shuffled(1, 10**8).epsilon(1e-9) < 0.001
    assert ShuffledCurve(known(3, QUARTER), 10**12).others == 10**10 - 1  # more are counted as so many


# ------------------------------------------------------------------ the loss and its views


def test_more_users_and_more_in_common_hide_better_and_larger_odds_worse():
    def at(odds=3, users=50, common="1/4"):
        local = known(odds, Fraction(1, 8), None, "1/4", common)
        return [ShuffledCurve(local, users).delta_up(e) for e in (0.0, 0.1, 0.3)]

    middle = at()
    assert all(a < b for a, b in zip(at(users=60), middle, strict=True))
    assert all(a > b for a, b in zip(at(odds=4), middle, strict=True))
    assert all(a > b for a, b in zip(at(common="1/5"), middle, strict=True))
    assert all(a > b for a, b in zip((shuffled(e, 50).delta(0.1) for e in (1, 2)), (0, middle[1]), strict=True))


def test_one_user_is_hidden_by_nobody():
    for local in (RandomizedResponseLoss(THREE), KaryResponseLoss(THREE, 7)):
        alone = shuffled(local, 1)
        for epsilon in (0, 0.3, 1):
            assert alone.delta(epsilon) == pytest.approx(local.delta(epsilon), rel=1e-12)


def test_the_views_of_a_few_users_are_those_of_the_exact_pair():
    law = [(float(p), float(q)) for p, q in pair(TYPICAL, 7)]
    loss = ShuffledLoss(TYPICAL, 7)
    kl = sum(p * math.log(p / q) for p, q in law)
    assert kl <= loss.kl() <= kl * 1.01
    for order in (1.01, 1.5, 2.0, 5.0, 20.0, 100.0):
        exact = math.log(sum(q * (p / q) ** order for p, q in law)) / (order - 1)
        assert exact <= loss.renyi(order) <= exact * 1.02 + 1e-6
        assert loss.renyi(order) <= loss.zcdp() * order * (1 + 1e-12)
    assert loss.zcdp() < 1.1 * max(kl, loss.renyi(5.0) / 5)
    assert loss.renyi(1e9) <= loss.pure() == pytest.approx(math.log(3))


def test_zcdp_of_a_crowd_is_near_its_expected_loss():
    loss = shuffled(1, 10_000)
    assert loss.kl() < loss.zcdp() < 1.3 * loss.kl()
    # orders beyond those that any δ asks for
    assert loss.renyi(2**20) < loss.pure() * (1 + 1e-12)


def test_many_points_lie_on_chords_above_single_ones():
    loss = shuffled(1, 2_000)
    epsilons = np.linspace(-0.3, 0.3, 301)
    many = loss.profile(epsilons, Direction.REMOVE)
    single = np.array([float(loss.profile(np.array([e]), Direction.ADD)[0]) for e in epsilons])
    assert (many >= single * (1 - 1e-12)).all()
    seen = (single > 1e-12) & (epsilons >= 0)
    assert (many[seen] <= single[seen] * 1.01).all()
    assert loss.profile(np.linspace(1.001, 3.0, 100), Direction.REMOVE).max() == 0


def test_below_zero_the_curve_is_mirrored():
    loss, x = shuffled(1, 100), 0.2
    there, back = (float(loss.profile(np.array([e]), Direction.REMOVE)[0]) for e in (x, -x))
    assert back == pytest.approx(1 - math.exp(-x) + math.exp(-x) * there)


def test_rounds_compose_as_exact_products():
    """Two rounds of three people each: the composed claim against the product of the exact laws."""
    law = pair(known(3, QUARTER), 3)
    product = [(p * r, q * s) for (p, q), (r, s) in itertools.product(law, repeat=2)]
    twice = 2 * of(3, QUARTER, 3)
    for epsilon in (0.0, 0.4, 1.0):
        exact = float(hockey_stick(product, Fraction(math.exp(epsilon))))
        assert exact * (1 - 1e-12) <= twice.delta(epsilon) <= exact * 1.02


def test_bounds_of_epsilon_are_close_and_the_curve_is_kept():
    loss = shuffled(Kary.for_epsilon(2, 2), 5_000)
    for delta in (1e-4, 1e-8, 1e-15):
        low, high = loss.epsilon_bounds(delta)
        assert 0 < low <= high <= low * (1 + 10 * OVERSTATED)
        assert loss.delta(high) <= delta
        assert loss.delta(low * (1 - 1e-6)) > delta
    assert loss.epsilon(0) == loss.pure()
    assert loss.epsilon(0.9) == 0


def test_json_is_permanent():
    loss = of(3, "1/10", 1_000, clones="1/12", silent="1/3", common="1/4")
    form = loss.to_json()
    assert form == {
        "version": 1,
        "kind": "shuffled",
        "adjacency": "replace",
        "odds": "3",
        "weight": "1/10",
        "clones": "1/12",
        "silent": "1/3",
        "common": "1/4",
        "users": 1_000,
    }
    assert PrivacyLoss.from_json(form) == loss
    with pytest.raises(InvalidParameter, match="users"):
        PrivacyLoss.from_json({**form, "users": 0})


# ------------------------------------------------------------------ what can be shuffled


def test_every_kind_of_local_loss():
    oracle = Kary.for_epsilon(10, 1)
    rest = 8 * oracle.miss
    assert shuffled(oracle, 100) == of(oracle.odds, oracle.weight, 100, silent=rest, common=rest)
    assert shuffled(Kary(2, keep="3/4"), 100) == of(3, QUARTER, 100)
    # of a loss it is known that everybody's report has at least a third of anybody's probability
    assert shuffled(RandomizedResponseLoss(THREE), 100) == of(3, QUARTER, 100, clones="1/6")
    assert shuffled(KaryResponseLoss(THREE, 18), 100) == of(
        3, "1/20", 100, clones="1/20", silent="7/10", common=Fraction(1, 3) - Fraction(1, 10)
    )
    stated = shuffled(PureLoss(math.log(3), Adjacency.REPLACE), 100)
    assert stated.delta(0.1) == pytest.approx(shuffled(RandomizedResponseLoss(THREE), 100).delta(0.1), rel=1e-9)
    # of a composition two numbers are kept, which is less than all but more than its ε
    several = shuffled(Rappor.for_epsilon(2), 10_000).epsilon(1e-6)
    assert several < 0.8 * shuffled(2, 10_000).epsilon(1e-6)
    survey = shuffled(Participation.for_epsilon(["no", "yes"], 1), 50)
    assert survey.adjacency is Adjacency.ADD_REMOVE
    assert survey.local == shuffled(Kary.for_epsilon(3, 1), 50).local
    nothing = PureLoss(0, Adjacency.REPLACE)
    assert shuffled(nothing, 10) is nothing
    hopeless = PureLoss(900, Adjacency.REPLACE)
    assert shuffled(hopeless, 10) is hopeless


def test_the_better_of_two_readings_of_an_oracle_is_taken():
    bits, rows = (
        shuffled(Unary.for_epsilon(100, 3), 100).local,
        shuffled(HadamardResponse.for_epsilon(100, 1), 100).local,
    )
    assert bits.silent == bits.common
    assert rows.silent == rows.odds * rows.common
    for oracle, known in ((Unary.for_epsilon(100, 3), bits), (HadamardResponse.for_epsilon(100, 1), rows)):
        other = oracle.loss()
        assert ShuffledLoss(known, 100).epsilon(1e-6) < shuffled(other, 100).epsilon(1e-6)


def test_odds_of_one_cost_nothing():
    free = of(1, "1/2", 10)
    assert (free.pure(), free.delta(0), free.epsilon(1e-9), free.kl(), free.zcdp(), free.renyi(2.0)) == (0,) * 6
    assert float(free.profile(np.array([0.0]), Direction.ADD)[0]) == 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: shuffled(1, 0), "users must be a whole number of at least 1"),
        (lambda: shuffled(0, 10), "epsilon must be greater than 0"),
        (lambda: shuffled(ApproximateLoss(1, 1e-6, Adjacency.REPLACE), 10), "has no finite ε at δ = 0"),
        (lambda: of(3, "1/3", 10), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, silent="3/5", common="3/5"), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, silent="-1/5"), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, clones="1/7"), "at most weight"),
        (lambda: of(3, "1/8", 10, common="4/5"), r"2·clones \+ common at most 1"),
        (lambda: of(3, "1/8", 10, silent="1/2", common="1/10"), "isn't hidden by anybody"),
        (lambda: of("1/2", "1/3", 10), "odds of truth to lie must be at least 1"),
        (lambda: of(Fraction(10) ** 200, Fraction(1, 10**300), 10), "odds must be at most"),
        (lambda: local_epsilon_for(1, 0, 10), "delta must be greater than 0"),
        (lambda: local_epsilon_for(1, 1, 10), "delta must be above 0 and below 1"),
        (lambda: local_epsilon_for(1, 1e-6, 10, make=lambda e: 2 * e), "no more than what it is given"),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InvalidParameter, match=told):
        make()


@pytest.mark.parametrize(("epsilon", "delta", "users"), [(1, 1e-6, 10_000), ("1/10", 1e-8, 10**6), (3, 1e-5, 1)])
@pytest.mark.parametrize("make", [None, lambda e: Kary.for_epsilon(50, e)])
def test_the_largest_local_epsilon_fits_and_a_little_more_does_not(epsilon, delta, users, make):
    found = local_epsilon_for(epsilon, delta, users, make=make)
    build = make or (lambda e: e)
    assert shuffled(build(found), users).epsilon(delta) <= Fraction(epsilon) * (1 + Fraction(1, 10**9))
    assert shuffled(build(found * 1.0001), users).epsilon(delta) > Fraction(epsilon)


def test_a_crowd_without_end_lets_people_speak_openly():
    assert local_epsilon_for(100, 0.5, 10**9) == 50
