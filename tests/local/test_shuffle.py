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

from dither.local.clients.coins import law_of
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.kary import Kary
from dither.local.frequency.participation import Participation
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.local.rappor.protocol import Rappor
from dither.local.shuffling.curve import Randomiser, ShuffledCurve, half_binomial
from dither.local.shuffling.shuffle import ShuffledLoss, shuffled
from support.sizes import at_night

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


@pytest.mark.parametrize("odds", [Fraction(6, 5), pytest.param(Fraction(3), marks=at_night), Fraction(30)])
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


@pytest.mark.parametrize(("users", "epsilon"), [(1_000, 0.1), (20_000, 0.02), (20_000, 0.03), (40_000, 0.015)])
@pytest.mark.parametrize("categories", [2, pytest.param(20, marks=at_night)])
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
