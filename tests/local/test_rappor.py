"""RAPPOR: the client's exact laws against every claimed loss, and what it keeps."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from copy import copy
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import client_of
from dither.local.clients.coins import law_of
from dither.local.clients.rappor import RapporClient, bloom_places
from dither.local.core.protocol import protocol_of
from dither.local.rappor.protocol import Rappor
from dither.privacy import Adjacency, PrivacyLoss

ALPHA = 1e-9
PAPER = {"f": Fraction(1, 2), "p": Fraction(1, 2), "q": Fraction(3, 4)}
SYMMETRIC = {"f": Fraction(1, 4), "p": Fraction(1, 3), "q": Fraction(2, 3)}
ONE_TIME = {"f": Fraction(1, 2), "p": Fraction(0), "q": Fraction(1)}
HALF_OPEN = {"f": Fraction(1, 3), "p": Fraction(0), "q": Fraction(3, 5)}
SETTINGS = [PAPER, SYMMETRIC, ONE_TIME, HALF_OPEN]


def filter_of(protocol, value, cohort=0):
    return frozenset(bloom_places(str(value).encode(), cohort, bits=protocol.bits, hashes=protocol.hashes))


def values_by_filter(protocol, most=200):
    """One value for every filter that the first values show."""
    return list({filter_of(protocol, value): value for value in range(most)}.values())


@cache
def law(protocol, *history):
    """The exact law of a client's reports about these values, one after the other."""
    return law_of(lambda coins: reports_of(new_client(protocol), history, coins))


def new_client(protocol):
    client = copy(a_client(protocol))
    client._permanent = {}
    return client


@cache
def a_client(protocol):
    return protocol.client()


def reports_of(client, history, coins):
    return tuple(client.payload(value, coins) for value in history)


def largest_ratio(first, second):
    """The largest ratio of probabilities of any output, one way; None if infinite."""
    assert sum(first.values()) == sum(second.values()) == 1
    if not first.keys() <= second.keys():
        return None
    return max(first[output] / second[output] for output in first)


def one_report_odds(protocol):
    return protocol.hit * (1 - protocol.miss) / (protocol.miss * (1 - protocol.hit))


# ------------------------------------------------------------------ the wire: what others must re-implement


def test_places_are_those_of_the_documented_hash():
    digest = hashlib.sha256(b"dither-rappor" + bytes([0x2C, 0x01]) + "naïve".encode()).digest()
    expected = tuple(int.from_bytes(digest[4 * j : 4 * j + 4], "little") % 100 for j in range(8))
    assert bloom_places("naïve".encode(), 300, bits=100, hashes=8) == expected
    assert bloom_places(b"news.example", 3, bits=128, hashes=2) == (88, 39)


def test_description_is_permanent():
    protocol = Rappor(bits=128, hashes=2, cohorts=64, f="1/2", p="1/2", q="3/4")
    description = {
        "protocol": "rappor", "bits": 128, "hashes": 2, "cohorts": 64, "f": "1/2", "p": "1/2", "q": "3/4",
    }  # fmt: skip
    assert protocol.describe() == description
    assert protocol.fingerprint.hex() == "7ffaf2c1764e4a0b"
    assert protocol_of(description) == protocol
    assert protocol_of(json.loads(json.dumps(description))) == protocol
    assert client_of(description).width == protocol.width == 18


@pytest.mark.parametrize(
    "change",
    [
        {"f": "2/4"}, {"f": "0"}, {"f": "1"}, {"f": 0.5}, {"p": "3/4"}, {"p": "-1/2"}, {"q": "5/4"}, {"q": "x"},
        {"bits": 3}, {"bits": 128.0}, {"bits": 1 << 17}, {"hashes": 0}, {"hashes": 9}, {"hashes": True},
        {"cohorts": 0}, {"cohorts": 1 << 16, "bits": 512}, {"cohorts": 65537}, {"more": 1}, {"f": None},
    ],
)  # fmt: skip
def test_wrong_descriptions_are_refused_by_both_sides(change):
    description = Rappor(**PAPER).describe() | change
    for make in (client_of, protocol_of):
        with pytest.raises(InvalidParameter):
            make(description)


def test_client_needs_nothing_but_python():
    code = (
        "import sys, json; from dither.local.clients.base import client_of; "
        "client = client_of(json.loads(sys.argv[1])); client.report('x'); "
        "print(sorted({'numpy', 'scipy', 'dither.privacy', 'dither.entropy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(Rappor(**PAPER).describe())], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------ one report


@pytest.mark.parametrize(
    ("setting", "bits", "hashes"), [(s, 3, 1) for s in SETTINGS] + [(ONE_TIME, 4, 2), (HALF_OPEN, 4, 2)]
)
def test_loss_of_one_report_is_the_largest_ratio_of_all_values(setting, bits, hashes):
    """Theorem 2 of Erlingsson et al.: h pairs of bits, tight for two values with no bit in common."""
    protocol = Rappor(bits=bits, hashes=hashes, cohorts=1, **setting)
    laws = {value: law(protocol, value) for value in values_by_filter(protocol)}
    assert len(laws) == bits + (bits * (bits - 1) // 2 if hashes == 2 else 0)  # every filter there is
    worst = max(largest_ratio(laws[v], laws[w]) for v in laws for w in laws)
    odds = one_report_odds(protocol) ** hashes
    assert worst == odds
    pure = protocol.loss().pure()
    assert math.log(odds) <= pure <= math.log(odds) + 1e-12
    assert protocol.loss().adjacency is Adjacency.REPLACE
    # a claim with half the bits would not hold
    assert worst > one_report_odds(protocol) ** Fraction(hashes, 2)


@pytest.mark.parametrize("setting", SETTINGS)
def test_whole_curve_of_one_report_is_tight(setting):
    protocol = Rappor(bits=4, hashes=2, cohorts=1, **setting)
    values = values_by_filter(protocol)
    v, w = next(
        (v, w) for v in values for w in values if not filter_of(protocol, v) & filter_of(protocol, w)
        and len(filter_of(protocol, v)) == len(filter_of(protocol, w)) == 2
    )  # fmt: skip
    first, second = law(protocol, v), law(protocol, w)
    assert largest_ratio(first, second) == one_report_odds(protocol) ** 2
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        exact = sum(max(0.0, float(first[o]) - math.exp(epsilon) * float(second[o])) for o in first)
        claimed = protocol.loss().delta(epsilon)
        assert exact <= claimed + 1e-12
        assert claimed <= exact * 1.05 + 1e-9
    # a loss survives its permanent form
    assert PrivacyLoss.from_json(protocol.loss().to_json()).pure() == protocol.loss().pure()


# ------------------------------------------------------------------ many reports


def repeated_odds(protocol, reports):
    """What so many reports of one value can say, by one bit of each of two values."""
    lie, (p, q) = protocol.f / 2, (protocol.p, protocol.q)
    worst = Fraction(0)
    for ones in range(reports + 1):
        chances = [x**ones * (1 - x) ** (reports - ones) for x in (q, p)]
        up, low = (1 - lie) * chances[0] + lie * chances[1], lie * chances[0] + (1 - lie) * chances[1]
        if low:
            worst = max(worst, up / low)
    other = max(
        (lie * a + (1 - lie) * b) / ((1 - lie) * a + lie * b)
        for ones in range(reports + 1)
        for a, b in [[x**ones * (1 - x) ** (reports - ones) for x in (q, p)]]
        if a or b
    )
    return worst * other


@pytest.mark.parametrize(("setting", "reports"), [(PAPER, 2), (SYMMETRIC, 2), (ONE_TIME, 3), (HALF_OPEN, 3)])
def test_reports_of_one_value_cost_what_enumeration_says(setting, reports):
    protocol = Rappor(bits=2, hashes=1, cohorts=1, **setting)
    v, w = values_by_filter(protocol)
    worst = largest_ratio(law(protocol, *[v] * reports), law(protocol, *[w] * reports))
    assert worst == repeated_odds(protocol, reports)
    claimed = protocol.longitudinal_loss(reports, changes="public", values=1)
    assert math.log(worst) <= claimed.pure() <= math.log(worst) + 1e-12
    assert claimed.pure() <= protocol.permanent_loss().pure()
    assert claimed.pure() <= reports * protocol.loss().pure() + 1e-12
    first, second = law(protocol, *[v] * reports), law(protocol, *[w] * reports)
    for epsilon in (0.0, 0.5, 1.0):
        exact = sum(max(0.0, float(first[o]) - math.exp(epsilon) * float(second.get(o, 0))) for o in first)
        assert exact <= claimed.delta(epsilon) + 1e-12


def test_permanent_loss_is_the_limit_and_tight():
    protocol = Rappor(bits=4, hashes=2, cohorts=1, **ONE_TIME)
    odds = (1 - protocol.f / 2) / (protocol.f / 2)
    values = values_by_filter(protocol)
    laws = {value: law(protocol, value, value) for value in values}
    assert max(largest_ratio(laws[v], laws[w]) for v in values for w in values) == odds ** (2 * 2)
    assert math.log(odds) * 4 <= protocol.permanent_loss().pure() <= math.log(odds) * 4 + 1e-12
    noisy = Rappor(bits=4, hashes=2, cohorts=1, **PAPER)
    growth = [
        noisy.longitudinal_loss(k, changes="public", values=1).pure() for k in (1, 2, 3, 10, 100, 256, 257, 10**6)
    ]
    assert growth == sorted(growth)
    assert growth[-1] == noisy.permanent_loss().pure() > growth[3]
    assert growth[0] == noisy.loss().pure()


def test_several_values_at_known_times_cost_at_most_the_sum():
    for setting in (ONE_TIME, HALF_OPEN):
        protocol = Rappor(bits=2, hashes=1, cohorts=1, **setting)
        v, w = values_by_filter(protocol)
        worst = largest_ratio(law(protocol, v, w, v), law(protocol, w, v, w))
        assert math.log(worst) <= protocol.longitudinal_loss(3, changes="public", values=2).pure() + 1e-12
        assert worst == repeated_odds(protocol, 2) * repeated_odds(protocol, 1)
    protocol = Rappor(**PAPER)
    losses = [protocol.longitudinal_loss(12, changes="public", values=m).pure() for m in (1, 2, 3, 5, 12, 40)]
    assert losses == sorted(losses)
    assert (
        losses[-1]
        == losses[-2]
        == protocol.longitudinal_loss(12, changes="public").pure()
        == (12 * protocol.loss()).pure()
    )
    assert losses[1] == 2 * protocol.longitudinal_loss(6, changes="public", values=1).pure()


@pytest.mark.parametrize("setting", [ONE_TIME, PAPER])
def test_values_that_share_a_filter_have_permanent_bits_of_their_own(setting):
    """Kept by filter, they would share them, and a history of other values wouldn't: an infinite ratio without p, q."""
    protocol = Rappor(bits=2, hashes=1, cohorts=1, **setting)
    v, w = values_by_filter(protocol)
    twin = next(x for x in range(1000, 1100) if filter_of(protocol, x) == filter_of(protocol, v))
    alike, unlike = law(protocol, v, twin), law(protocol, v, w)
    odds = one_report_odds(protocol)
    assert largest_ratio(alike, unlike) == largest_ratio(unlike, alike) == odds
    assert math.log(odds) <= protocol.longitudinal_loss(2, changes="public", values=2).pure()


def test_times_of_change_are_not_hidden():
    """Two reports of one value share permanent bits in every place; those of two values don't."""
    protocol = Rappor(bits=2, hashes=1, cohorts=1, f="1/2", p="1/100", q="99/100")
    v, w = values_by_filter(protocol)
    pairs = [((v, v), (v, w)), ((v, w), (v, v)), ((w, w), (v, w)), ((v, w), (w, w))]
    worst = max(largest_ratio(law(protocol, *one), law(protocol, *other)) for one, other in pairs)
    # more than twice what one report costs, which bounds histories that change at the same times
    assert (
        protocol.longitudinal_loss(2, changes="public").pure() + 1
        < math.log(worst)
        <= protocol.secret_changes_loss(2).pure()
    )
    once = Rappor(bits=2, hashes=1, cohorts=1, **ONE_TIME)
    assert largest_ratio(law(once, v, w), law(once, v, v)) is None  # two different reports: the value has changed
    assert once.secret_changes_loss(2).pure() == math.inf
    assert once.secret_changes_loss(1) == once.loss()
    assert once.longitudinal_loss(2, changes="public").pure() < math.inf
    # what is asked for by name is what enumeration needs
    assert once.longitudinal_loss(2, changes="secret").pure() == math.inf
    assert math.log(worst) <= protocol.longitudinal_loss(2, changes="secret").pure()
    assert protocol.longitudinal_loss(2, changes="secret") == protocol.secret_changes_loss(2)
    # one value throughout, which both histories have, never changes
    for changes in ("public", "secret"):
        assert once.longitudinal_loss(5, changes=changes, values=1) == once.permanent_loss()
        assert once.longitudinal_loss(1, changes=changes) == once.loss()


def test_whether_changes_are_public_must_be_said():
    protocol = Rappor(**PAPER)
    with pytest.raises(TypeError, match="changes"):
        protocol.longitudinal_loss(2)
    with pytest.raises(TypeError, match="changes"):
        protocol.longitudinal_loss(2, values=1)
    for wrong in (True, None, "hidden", ""):
        with pytest.raises(InvalidParameter, match=r'"public" .* or "secret"'):
            protocol.longitudinal_loss(2, changes=wrong)


def test_without_memory_reports_cost_as_many_times():
    protocol = Rappor(bits=2, hashes=1, cohorts=1, **PAPER)
    v, w = values_by_filter(protocol)
    odds = largest_ratio(law(protocol, v), law(protocol, w))

    def forgetful(value):
        return law_of(lambda coins: tuple(new_client(protocol).payload(value, coins) for _ in range(2)))

    assert largest_ratio(forgetful(v), forgetful(w)) == odds**2 > repeated_odds(protocol, 2)
    assert protocol.longitudinal_loss(2, changes="public").pure() == (2 * protocol.loss()).pure() >= math.log(odds**2)


@pytest.mark.parametrize("hashes", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.1, 1, "7/3", 10])
def test_for_epsilon_is_just_below(hashes, epsilon):
    goal = float(Fraction(epsilon))
    once = Rappor.for_epsilon(epsilon, hashes=hashes)
    assert (once.p, once.q) == (0, 1)
    assert goal * (1 - 1e-9) < once.loss().pure() <= goal
    assert once.permanent_loss().pure() == once.loss().pure()
    both = Rappor.for_epsilon(epsilon, permanent=3 * Fraction(epsilon), hashes=hashes)
    assert goal * (1 - 1e-9) < both.loss().pure() <= goal
    assert 3 * goal * (1 - 1e-9) < both.permanent_loss().pure() <= 3 * goal
    less = Rappor.for_epsilon(epsilon, permanent=Fraction(epsilon) / 2, hashes=hashes)
    assert less.loss().pure() <= goal / 2
    assert less.q == 1


# ------------------------------------------------------------------ memory


def test_a_restored_client_gives_the_same_permanent_bits():
    protocol = Rappor(**ONE_TIME)
    client = protocol.client()
    first = {value: client.payload(value) for value in ("news", "mail", 17)}
    kept = json.loads(json.dumps(client.memory))
    assert "news" not in json.dumps(kept)
    restored = RapporClient(protocol.describe(), memory=kept)
    assert {value: restored.payload(value) for value in first} == first
    assert restored.memory == kept
    assert restored.payload("17") == first[17]
    fresh = protocol.client()
    assert fresh.memory["cohort"] is None
    assert any(fresh.payload(value)[2:] != first[value][2:] for value in first)
    assert RapporClient(protocol.describe(), memory=protocol.client().memory).memory["permanent"] == {}


def test_instantaneous_noise_is_fresh_and_permanent_noise_is_not():
    protocol = Rappor(bits=512, hashes=2, cohorts=4, f="1/2", p="1/4", q="3/4")
    client = protocol.client()
    reports = np.array([np.frombuffer(client.payload("x"), np.uint8) for _ in range(240)])
    assert len(set(reports[:, 0])) == 1  # one cohort
    means = np.unpackbits(reports[:, 2:], axis=1, bitorder="little").mean(axis=0)
    ones = np.array(
        [int.from_bytes(bytes.fromhex(kept), "little") for kept in client.memory["permanent"].values()], dtype=object
    )
    permanent = np.array([int(ones[0]) >> place & 1 for place in range(512)])
    assert np.array_equal(means > 0.5, permanent == 1)  # 8.9 standard deviations


@pytest.mark.parametrize(
    "change",
    [
        {"cohort": 4}, {"cohort": -1}, {"cohort": True}, {"cohort": None}, {"cohort": "1"}, {"kind": "x"},
        {"version": 2}, {"collection": "00" * 8}, {"permanent": {"00": "ff0f"}},
        {"permanent": {"0x" * 32: "ff0f"}}, {"permanent": {"00" * 32: "y"}}, {"permanent": []}, {"permanent": None},
        {"permanent": {"00" * 32: "ff1f"}}, {"permanent": {"00" * 32: "ff0f00"}},
        {"permanent": {"FF" * 32: "ff0f"}}, {"permanent": {"00" * 32: 3}},
    ],
)  # fmt: skip
def test_damaged_memory_is_refused(change):
    protocol = Rappor(bits=12, hashes=2, cohorts=4, **PAPER)
    client = protocol.client()
    client.payload("x")
    with pytest.raises(InvalidData):
        RapporClient(protocol.describe(), memory=client.memory | change)
    for broken in ([], 3, {}):
        with pytest.raises(InvalidData):
            RapporClient(protocol.describe(), memory=broken)


@pytest.mark.parametrize("value", [True, 1.5, b"x", None, "secret\ud800", ["x"]])
def test_values_that_are_no_texts_are_refused_before_anything_is_drawn(value):
    client = Rappor(**PAPER).client()
    with pytest.raises(InvalidData) as caught:
        client.payload(value)
    assert "secret" not in str(caught.value)
    assert client.memory["cohort"] is None
    with pytest.raises(InvalidData):
        Rappor(**PAPER).randomize(["x", value])


def test_parameters_are_checked():
    half = {"f": "1/2"}
    for wrong in ({"f": 0}, {"f": 1}, {"f": float("nan")}, half | {"p": "1/2", "q": "1/2"}, half | {"bits": 3},
                  half | {"hashes": 9}, half | {"cohorts": 0}, half | {"cohorts": 1 << 18}):  # fmt: skip
        with pytest.raises(InvalidParameter):
            Rappor(**wrong)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidParameter):
            Rappor(**PAPER).longitudinal_loss(wrong, changes="public")
