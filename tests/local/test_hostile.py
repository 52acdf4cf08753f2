"""Descriptions and saved aggregates made by somebody who means harm; and what a person can know before answering."""

import base64
import contextlib
import copy
import itertools
import json
import math
import zlib
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import DitherError, InvalidData, InvalidParameter
from dither.local.clients import client_of
from dither.local.clients.base import PROTOCOLS as NAMES, Client, epsilon_up, sum_up
from dither.local.clients.coins import law_of
from dither.local.clients.heavy import Spelling
from dither.local.core.protocol import aggregator_of, load, protocol_of
from dither.local.frequency.attributes import Attributes
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.participation import Participation
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.local.means.choose import HybridMean, LaplaceMean, OneBitMean, PiecewiseMean
from dither.local.means.vectors import OneBitVector, SampledVector
from dither.local.ranges.hierarchical import HierarchicalRanges, WaveletRanges
from dither.local.rappor.protocol import Rappor
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.fragments import SequenceFragments
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.heavy_hitters import HeavyHitters
from dither.mechanisms.response_surveys import Strategy

SEED = "00" * 16


def bits(domain=None, hashes=2):
    return CountMeanSketch(keep="9/10", noise="1/5", hashes=hashes, buckets=4, seed=SEED, domain=domain)


SIGNS = HadamardSketch(keep="3/4", hashes=2, buckets=4, seed=SEED)
UNEVEN = {"a": Kary(2, keep="9/10"), "b": Unary(3, keep="1/2", noise="1/50"), "c": HadamardResponse(2, keep="3/4")}
PIECEWISE = PiecewiseMean((0, 1), steps=4, window=2, keep="9/10")
PROTOCOLS = [
    Kary(["no", "yes"], keep="9/10"),
    Kary.for_epsilon(1000, epsilon="1/1000"),
    Unary(20, keep="9/10", noise="1/100"),
    LocalHashing.for_epsilon(300, epsilon=20),
    SubsetSelection(5, subset=4, keep="99/100"),
    HadamardResponse(8, keep="501/1000"),
    ProjectiveResponse(7, prime=2, keep="9/10"),
    Participation(["x", "y"], Kary(3, keep="3/4")),
    Attributes(UNEVEN, Strategy.SPLIT),
    Attributes(UNEVEN, Strategy.SAMPLE),
    Attributes.joint({"a": ["x", 1], "b": 3}, keep="9/10"),
    bits(),
    bits(["", "a", 5]),
    SIGNS,
    OneBitMean((0, 1), "9/10"),
    LaplaceMean((-1, "7/2"), steps=5, decay="1/3"),
    LaplaceMean.for_epsilon((0, 1), 20),
    PIECEWISE,
    HybridMean(share="1/3", piecewise=PIECEWISE, bit=OneBitMean((0, 1), "2/3")),
    HybridMean(share="1/3", piecewise=PIECEWISE, bit=OneBitMean((0, 1), "999/1000")),
    OneBitVector(9, (0, 1), "9/10"),
    SampledVector(9, coordinates=3, mean=OneBitMean((0, 1), "2/3")),
    HierarchicalRanges(3, branching=2, oracles=(Kary(2, keep="9/10"), Unary(4, keep="1/2", noise="1/5"))),
    WaveletRanges(["low", "middle", "high"], keep="9/10"),
    HeavyHitters(sketch=SIGNS, values=Spelling.UTF8, length=3, step=1),
    HeavyHitters(sketch=bits(), values=Spelling.LETTERS, length=3, step=2, alphabet="ab"),
    SequenceFragments(fragments=bits(6), words=bits(), alphabet="a", length=2, fragment=1, tag_bits=1),
    Rappor(bits=8, hashes=2, cohorts=3, f="1/5", p="1/10", q="3/4"),
    Rappor(bits=8, hashes=1, cohorts=1, f="1/2"),
]
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)

# ------------------------------------------------------------------ what a person can know


def test_every_protocol_is_here():
    assert {protocol.name for protocol in PROTOCOLS} == set(NAMES)


@each_protocol
def test_the_client_says_what_a_report_costs(protocol):
    assert protocol.client().epsilon == pytest.approx(protocol.loss().pure(), rel=1e-14)


def test_rappor_says_what_all_reports_of_a_value_cost():
    protocol = Rappor(bits=8, hashes=2, cohorts=3, f="1/5", p="1/10", q="3/4")
    assert protocol.client().permanent_epsilon == pytest.approx(protocol.permanent_loss().pure(), rel=1e-14)


@pytest.mark.parametrize(
    "odds", [Fraction(3), Fraction(10**50 + 1, 10**50), Fraction(10**300), 1 + Fraction(1, 10**1990)]
)
def test_epsilon_is_rounded_up(odds):
    found = epsilon_up(odds)
    exact = odds - 1 if odds < Fraction(3, 2) else Fraction(math.log(odds.numerator / odds.denominator))
    assert found > 0
    if odds < Fraction(3, 2):
        assert exact - exact**2 < Fraction(found)  # ln(1 + x) > x − x²
    assert float(exact) == 0 or found >= float(exact) * (1 - 1e-15)
    assert epsilon_up(odds, 7) >= 7 * found * (1 - 1e-15)
    assert Fraction(sum_up([0.1, 0.2, 0.3])) >= Fraction(0.1) + Fraction(0.2) + Fraction(0.3)


# ------------------------------------------------------------------ descriptions

KARY = {"protocol": "kary", "domain": 3, "keep": "1/2"}
SKETCH = {"protocol": "count_mean_sketch", "keep": "1/2", "noise": "1/4", "hashes": 1, "buckets": 2, "seed": SEED}
LAPLACE = {"protocol": "laplace_mean", "bounds": ["0", "1"], "steps": 4, "decay": "1/2"}


def joint(size, *sizes):
    listed = [{"name": str(place), "domain": one} for place, one in enumerate(sizes)]
    return {"protocol": "attributes", "strategy": "joint", "attributes": listed, "joint": {**KARY, "domain": size}}


def nested(depth):
    found = {**KARY, "domain": 2 + depth}
    for place in range(depth):
        found = {"protocol": "participation", "domain": 1 + depth - place, "collection": found}
    return found


HOSTILE = {
    "no object": [],
    "no name": {"protocol": []},
    "a number of five thousand digits": {**KARY, "domain": 10**5000},
    "such a label": {**KARY, "domain": [10**5000, 1]},
    "such a label of a sketch": {**SKETCH, "domain": [10**5000, 1]},
    "half a surrogate pair": {**SKETCH, "domain": ["\ud800", 1]},
    "not JSON": {**KARY, "domain": {1, 2}},
    "NaN": {**KARY, "domain": math.nan},
    "keys that aren't texts": {**KARY, 3: 4},
    "something more": {**KARY, "note": "trust me"},
    "something more within": {"protocol": "participation", "domain": 2, "collection": {**KARY, "note": 1}},
    "something more in a part": {
        "protocol": "attributes",
        "strategy": "split",
        "attributes": [{"name": "a", "collection": KARY, "note": 1}],
    },
    "a second text of a number": {**KARY, "keep": "2/4"},
    "a second text of a bound": {**LAPLACE, "bounds": ["-0", "1"]},
    "digits of another script": {**KARY, "keep": "١/٢"},
    "nothing but the truth": {**KARY, "keep": "1"},
    "labels that are equal": {**KARY, "domain": [1, True, 2]},
    "too few joint values": joint(3, 2, 2),
    "too many joint values": joint(5, 2, 2),
    "joint values with labels": joint(["a", "b", "c", "d"], 2, 2),
    "a domain that isn't used": {
        "protocol": "attributes",
        "strategy": "split",
        "attributes": [{"name": "a", "collection": {**LAPLACE, "domain": ["x", 1]}}],
    },
    "fractions that take minutes": {**LAPLACE, "steps": 1024, "decay": f"{10**1000 + 7}/{3 * 10**1000}"},
    "a payload of gigabytes": {"protocol": "unary", "domain": 2**40, "keep": "1/2", "noise": "1/4"},
    "deep": nested(400),
    "deeper": nested(3000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_kept_to_is_refused(name, no_hang, steps_within):
    with steps_within(50_000):
        for make in (client_of, protocol_of):
            with pytest.raises(InvalidParameter):
                make(HOSTILE[name])


@each_protocol
def test_another_field_is_refused_by_both_sides(protocol):
    for make in (client_of, protocol_of):
        with pytest.raises(DitherError):
            make({**protocol.describe(), "note": 1})
        for field in protocol.describe():
            with pytest.raises(DitherError):
                make({key: value for key, value in protocol.describe().items() if key != field})


def test_a_record_of_a_joint_answer_is_never_refused():
    client = client_of(joint(6, 2, 3))
    assert {len(client.payload(record)) for record in itertools.product(range(2), range(3))} == {1}


@pytest.mark.parametrize("stranger", [True, 1.0, Fraction(1), [1], None, "1"])
def test_what_only_equals_a_label_is_no_label(stranger):
    for description in ({**KARY, "domain": [1, 2, 3]}, {**SKETCH, "domain": [1, 2, 3]}):
        with pytest.raises(InvalidData, match="nothing was drawn"):
            client_of(description).payload(stranger)


def test_labels_of_records_keep_their_kind():
    survey = Attributes({"a": Kary(["x", 1, "1", "x\0"], keep="9/10"), "b": Kary(2, keep="9/10")})
    columns = survey._columns([["x", 0], [1, 1], ["1", 0], ["x\0", 1]])
    assert [column.tolist() for column in columns] == [[0, 1, 2, 3], [0, 1, 0, 1]]


def test_a_long_report_takes_time_in_proportion(steps_within):
    client = client_of({"protocol": "unary", "domain": 200_000, "keep": "1/2", "noise": "1/4"})
    with steps_within(50 * 200_000):
        assert len(client.payload(5)) == 25_000


def test_a_client_without_epsilon_cannot_be_made():
    class Silent(Client):
        width = 1

        def payload(self, value, coins=None):
            return b"\0"

    with pytest.raises(TypeError, match="epsilon"):
        Silent(KARY)


# ------------------------------------------------------------------ many reports by RAPPOR


def one_value(n, f, p, q):
    """The laws of n reports about one value, of two that have one bit each: how many ones each bit has."""
    lie = f / 2
    one, zero = (
        np.array(
            [math.comb(n, k) * (a * q**k * (1 - q) ** (n - k) + b * p**k * (1 - p) ** (n - k)) for k in range(n + 1)]
        )
        for a, b in ((1 - lie, lie), (lie, 1 - lie))
    )
    return np.outer(one, zero).ravel(), np.outer(zero, one).ravel()


@pytest.mark.parametrize(("f", "p", "q"), [(0.9, 0, 0.2), (0.9, 0.8, 1), (0.5, 0.25, 0.75), (0.1, 0.1, 0.9)])
@pytest.mark.parametrize("split", [(3, 1), (5, 1), (7, 1), (4, 1, 1), (2, 2), (3, 3), (4, 0), (6, 0)])
def test_no_split_of_reports_over_values_tells_more_than_the_loss(f, p, q, split):
    protocol = Rappor(bits=2, hashes=1, cohorts=1, f=str(f), p=str(p), q=str(q))
    loss = protocol.longitudinal_loss(sum(split), changes="public", values=len(split))
    laws = [one_value(n, f, p, q) for n in split]
    first, second = laws[0]
    for law in laws[1:]:
        first, second = np.outer(first, law[0]).ravel(), np.outer(second, law[1]).ravel()
    for part in (0, 0.1, 0.25, 0.5, 0.75):
        epsilon = part * loss.pure()
        assert np.maximum(first - math.exp(epsilon) * second, 0).sum() <= loss.delta(Fraction(epsilon)) + 1e-12


def test_a_value_that_returns_shows():
    # both histories change before the second and the third report; only one of them returns to an old value
    protocol = Rappor(bits=2, hashes=1, cohorts=1, f="1/2")

    def history(values):
        def draw(coins):
            client = protocol.client()
            return b"".join(client.payload(value, coins) for value in values)

        return set(law_of(draw))

    assert history(["b", "a", "b"]) < history(["b", "a", "c"])
    assert math.isinf(protocol.longitudinal_loss(3, changes="secret").pure())


# ------------------------------------------------------------------ saved aggregates


def saved_of(protocol, people=40):
    values = (protocol.inputs() * people)[:people]
    return protocol.aggregator().add(protocol.randomize(values)).to_json()


def written(counts):
    return base64.b64encode(zlib.compress(np.ascontiguousarray(counts, dtype="<i8").tobytes())).decode()


@each_protocol
def test_changed_counters_are_noticed(protocol):
    saved = saved_of(protocol)
    assert aggregator_of(saved).reports == 40
    for name, held in saved["state"].items():
        counts = np.frombuffer(zlib.decompress(base64.b64decode(held["data"])), dtype="<i8")
        for change in (-1000, 1000, 2**62, -(2**63)):
            changed = copy.deepcopy(saved)
            other = counts.copy()
            other[0] = change
            changed["state"][name]["data"] = written(other)
            with pytest.raises(InvalidData):
                aggregator_of(changed)


@each_protocol
def test_a_damaged_aggregate_is_invalid_data(protocol):
    saved = saved_of(protocol)
    (name, held), *_ = saved["state"].items()
    bomb = base64.b64encode(zlib.compress(bytes(1 << 24))).decode()
    changes = [
        {"reports": 10**30},
        {"reports": -1},
        {"reports": 40.0},
        {"reports": True},
        {"dropped": [1]},
        {"dropped": {"LENGTH": -1}},
        {"dropped": {"NO_SUCH": 1}},
        {"state": None},
        {"state": {}},
        {"state": {**saved["state"], "more": held}},
        {"state": {**saved["state"], name: {**held, "data": bomb}}},
        {"state": {**saved["state"], name: {**held, "data": held["data"][:-8]}}},
        {"state": {**saved["state"], name: {**held, "data": 5}}},
        {"state": {**saved["state"], name: {**held, "shape": [2**40]}}},
        {"state": {**saved["state"], name: {**held, "shape": None}}},
        {"collection": None},
        {"collection": {**protocol.describe(), "note": 1}},
        {"version": 2},
    ]
    for change in changes:
        with pytest.raises(InvalidData):
            aggregator_of({**saved, **change})
    for nothing in (None, [], "text", 5):
        with pytest.raises(InvalidData):
            aggregator_of(nothing)


def test_counters_that_overflow_don_t_add_up_by_chance():
    protocol = HadamardResponse(3, keep="3/4")
    saved = saved_of(protocol)
    # the sum is 40 modulo 2^64
    saved["state"]["named"]["data"] = written(np.array([2**62, 2**62, 2**62, 2**62 + 40], dtype=np.int64))
    saved["reports"] = 2**53
    with pytest.raises(InvalidData):
        aggregator_of(saved)


def test_a_deep_file_is_refused(tmp_path):
    path = tmp_path / "aggregate.json"
    path.write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(InvalidData):
        load(path)


def test_an_aggregate_that_fills_the_memory_is_refused():
    sketch = CountMeanSketch(keep="3/4", noise="1/4", hashes=1024, buckets=2**16, seed=SEED)
    with pytest.raises(InvalidParameter, match="counters"):
        HeavyHitters(sketch=sketch, values=Spelling.INTEGERS, length=256, step=1)
    with pytest.raises(InvalidParameter, match="counters"):
        Attributes({str(place): HadamardResponse(2**24, keep="3/4") for place in range(20)})


@each_protocol
def test_few_reports_never_break_an_estimate(protocol):
    aggregate = protocol.aggregator()
    aggregate.add_reports([b"", "no report", None, b"\x01" + protocol.fingerprint])
    aggregate.add(np.full((3, protocol.width + 1), 255, dtype=np.uint8))
    aggregate.add(np.zeros((0, protocol.width), dtype=np.uint8))
    options = {"values": ["a", "b"]} if getattr(protocol, "domain", "") is None else {}
    with pytest.raises(InvalidData):
        aggregate.estimate(**options)
    aggregate.add_reports([protocol.client().report(protocol.inputs()[-1])])
    assert aggregate.reports == 1
    again = aggregator_of(json.loads(json.dumps(aggregate.to_json())))
    assert (again.reports, again.dropped) == (1, aggregate.dropped)
    # some can't be asked of one person
    with contextlib.suppress(InvalidData):
        again.estimate(**options)
