"""check_randomizer: does a protocol of local privacy keep the promises of its loss, its wire format and its estimates?

Where the client's coins can fall in few ways its law is computed exactly, by running it on all of them (``law_of``),
and compared with the loss as fractions: no sampling, no tolerance. What can't be enumerated is sampled, at α = 1e-9 for
each check, once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dither.checks import randomizer_law as exact
from dither.checks.mechanism import ALPHA, Finding, Report
from dither.checks.statistics import proportion_at_most, serial_dependence
from dither.errors import DitherError
from dither.local.clients.wire import VERSION, Dropped, pack, to_text, unpack
from dither.local.core.protocol import Aggregator, Payloads, Protocol, aggregator_of, protocol_of
from dither.local.frequency.oracle import FrequencyOracle
from dither.privacy import PrivacyLoss

# How many people each of the repeated surveys asks.
PEOPLE = 400
# So many values are answered once.
MOST_ANSWERED = 1000


def check_randomizer(
    protocol: Protocol,
    *,
    values: Sequence[Any] | None = None,
    draws: int = 200_000,
    most: int = 100_000,
    raises: bool = True,
) -> Report:
    """Hold a protocol to the contract of ``dither.local``; raises ConformanceFailed with all that failed.

    Args:
        protocol: What to check.
        values: Inputs whose laws are compared, if the protocol has no ``inputs()``.
        draws: How many reports the sampled checks draw: the more, the smaller the faults that are noticed.
        most: A client with more ways than this for its coins to fall is enumerated through ``reduced()``, if it has
            that: the same protocol for few values.
        raises: Whether a failed check raises; else the report alone says so.

    Example:
        >>> from dither.local.frequency.kary import Kary
        >>> check_randomizer(Kary.for_epsilon(3, epsilon=1), draws=20_000).passed
        True
    """
    inputs = exact.inputs_of(protocol, values)
    try:
        small, laws, numbers, note = exact.laws_of(protocol, values, most)
    except DitherError as problem:
        small, laws, numbers, note = protocol, [], [], f"the client can't be made or run: {problem}"
    checks: list[tuple[str, Callable[[], Finding | list[Finding]]]] = [
        ("description round trip", lambda: _description(protocol)),
        ("the loss has its JSON form", lambda: _loss(protocol)),
        ("the client says what it costs", lambda: _client_epsilon(protocol, small)),
        ("every value is answered", lambda: _answered(protocol, inputs)),
        ("more reports never cost less", lambda: _longitudinal(protocol)),
        ("exact law within the loss", lambda: exact.check_ratios(small, laws, note)),
        ("client and simulation agree", lambda: _both_sides(protocol, inputs)),
        ("reports are read back", lambda: _sampled_wire(protocol, inputs)),
        ("every report is fresh", lambda: _fresh(protocol, inputs)),
        ("merge, save and load", lambda: _merging(protocol, inputs)),
        ("strays are dropped with a reason", lambda: _strays(protocol, inputs)),
        ("estimates", lambda: _estimates(protocol, small, trials=max(100, min(1000, draws // 200)))),
    ]
    if laws:
        some = exact.inputs_of(small, values)
        checks += [
            ("exact law within the curve", lambda: exact.check_curve(small.loss(), laws)),
            ("as many coins whatever the value", lambda: exact.check_coins(numbers)),
            ("two reports of one client within their loss", lambda: exact.check_again(small, some, most)),
            ("valid payloads are those that clients send", lambda: exact.check_wire(small, laws)),
            ("many at once follow the same law", lambda: exact.check_simulation(small, some, laws, draws)),
        ]
    if isinstance(protocol, FrequencyOracle):
        checks.append(("hit and miss at full size", lambda: _sampled_support(protocol)))
    if laws and isinstance(small, FrequencyOracle):
        checks.append(("unbiased, exactly", lambda: exact.check_support(small, laws)))
    findings: list[Finding] = []
    for name, check in checks:
        try:
            found = check()
        except Exception as problem:  # noqa: BLE001 - a protocol that breaks a check has failed it
            found = Finding(name, passed=False, detail=f"raises {type(problem).__name__}: {problem}")
        findings += found if isinstance(found, list) else [found]
    return Report(repr(protocol), tuple(findings)).told(raises=raises)


# ------------------------------------------------------------------ descriptions and losses


def _description(protocol: Protocol) -> Finding:
    problems = []
    text = json.dumps(protocol.describe())
    try:
        again = protocol_of(json.loads(text))
        if again != protocol or again.describe() != protocol.describe():
            problems.append("the protocol that comes back from its description is another one")
        if again.fingerprint != protocol.fingerprint:
            problems.append("its fingerprint changes on the way")
        if protocol.client().width != protocol.width:
            problems.append("client and protocol disagree about the length of payloads")
    except DitherError as problem:
        problems.append(f"the description isn't understood: {problem}")
    if _has_floats(json.loads(text)):
        problems.append("a number of the description is a float, which isn't exact")
    return Finding("description round trip", not problems, "; ".join(problems) or f"{len(text)} characters")


def _has_floats(form: Any) -> bool:
    if isinstance(form, dict | list):
        return any(_has_floats(part) for part in (form.values() if isinstance(form, dict) else form))
    return isinstance(form, float)


def _loss(protocol: Protocol) -> Finding:
    loss = protocol.loss()
    again = PrivacyLoss.from_json(json.loads(json.dumps(loss.to_json())))
    return Finding("the loss has its JSON form", again == loss, f"{loss.kind}, ε = {loss.pure():.6g}")


def _client_epsilon(protocol: Protocol, small: Protocol) -> Finding:
    """What the client tells a person against the loss; and that for many values no less is claimed than for few."""
    name, problems = "the client says what it costs", []
    stated, told = protocol.loss().pure(), protocol.client().epsilon
    if not math.isclose(stated, told, rel_tol=1e-9):
        problems.append(f"the client says {told:.9g}, the loss {stated:.9g}")
    if small is not protocol and small.loss().pure() > stated * (1 + 1e-9):
        problems.append(f"with fewer values the loss is larger: {small.loss().pure():.9g} against {stated:.9g}")
    return Finding(name, not problems, "; ".join(problems) or f"ε = {told:.6g}", "one part in 10^9")


def _answered(protocol: Protocol, inputs: list[Any]) -> Finding:
    """Every value, or many of them, gets a payload of the stated length: an error, or silence, would tell the value."""
    client, step = protocol.client(), max(1, len(inputs) // MOST_ANSWERED)
    some = [*inputs[::step], inputs[-1]]
    lengths = {len(client.payload(value)) for value in some}
    return Finding("every value is answered", lengths == {protocol.width}, f"{len(some)} of {len(inputs)} tried")


def _longitudinal(protocol: Protocol) -> Finding:
    single = protocol.loss().pure()
    several = [protocol.longitudinal_loss(count, changes="public").pure() for count in (1, 2, 5)]
    rising = single * (1 - 1e-12) <= several[0] <= several[1] <= several[2]
    return Finding(
        "more reports never cost less",
        rising and several[2] <= 5 * several[0] * (1 + 1e-12) + 1e-300,
        f"one {single:.6g}; 1, 2, 5 of one person {', '.join(f'{pure:.6g}' for pure in several)}",
    )


# ------------------------------------------------------------------ at full size, by sampling


def _both_sides(protocol: Protocol, inputs: list[Any]) -> Finding:
    """Payloads of the client against those made many at once, byte by byte, for the first and the last value."""
    made, width = exact.clients_of(protocol), protocol.width
    number = max(50, min(2000, 200_000 // (8 * width)))
    worst = 1.0
    for value in (inputs[0], inputs[-1]):
        ones = exact.rows_of([made().payload(value) for _ in range(number)], width)
        many = protocol.randomize([value] * (10 * number))
        if many.shape != (10 * number, width):
            return Finding("client and simulation agree", passed=False, detail="payloads differ in length")
        tests = [_same(ones[:, column], many[:, column]) for column in range(width)] + _same_bits(ones, many)
        # coins that aren't independent show in the number of ones, wherever they stand
        tests.append(_same(*_ones(ones, many)))
        worst = min(worst, min(tests) * 2 * len(tests))
    return Finding(
        "client and simulation agree",
        worst > ALPHA,
        f"two-sample p = {worst:.3g} over all bytes and bits (Bonferroni), {number} of the client",
        "a bit of probability 1/2 that is 8% off (2000 of the client)",
    )


def _same_bits(first: Payloads, second: Payloads) -> list[float]:
    """The normal test of two proportions for every bit that is neither rare nor nearly certain."""
    sizes = first.shape[0], second.shape[0]
    sums = [np.unpackbits(some, axis=1).sum(axis=0, dtype=np.float64) for some in (first, second)]
    both = (sums[0] + sums[1]) / sum(sizes)
    usual = np.minimum(both, 1 - both) * min(sizes) >= 10
    if not usual.any():
        return [1.0]
    spread = np.sqrt(both * (1 - both) * (1 / sizes[0] + 1 / sizes[1]))[usual]
    gaps = (sums[0] / sizes[0] - sums[1] / sizes[1])[usual]
    return [float(p) for p in 2 * stats.norm.sf(np.abs(gaps) / spread)]


def _ones(*samples: Payloads) -> list[Payloads]:
    """How many bits are set in each row, as a byte whose middle stands for their mean."""
    counts = [np.unpackbits(rows, axis=1).sum(axis=1, dtype=np.int64) for rows in samples]
    middle = int(counts[-1].mean()) - 128
    return [np.clip(count - middle, 0, 255).astype(np.uint8) for count in counts]


def _same(first: Payloads, second: Payloads) -> float:
    table = np.array([np.bincount(some, minlength=256) for some in (first, second)]).astype(np.float64)
    order = np.argsort(-table.sum(axis=0))
    table = table[:, order]
    # columns with few are pooled, so that each expects at least ten of the smaller sample
    share = first.size / (first.size + second.size)
    large = max(1, int((table.sum(axis=0) * share >= 10).sum()))
    pooled = np.column_stack([table[:, :large], table[:, large:].sum(axis=1)])
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    if pooled.shape[1] > 1 and pooled[:, -1].sum() * share < 10:
        pooled[:, -2] += pooled[:, -1]
        pooled = pooled[:, :-1]
    if pooled.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(pooled, correction=False).pvalue)


def _sampled_support(oracle: FrequencyOracle) -> Finding:
    """How often people with the first value support it, and the last one, which they don't have; at full size."""
    number = max(500, min(20_000, 20_000_000 // oracle.size))
    supports = oracle.support(oracle.randomize(oracle.inputs()[:1] * number))
    worst = 1.0
    for count, claimed in ((int(supports[0]), oracle.hit), (int(supports[-1]), oracle.miss)):
        worst = min(worst, 2 * float(stats.binomtest(count, number, float(claimed)).pvalue))
    return Finding(
        "hit and miss at full size", worst > ALPHA, f"binomial p = {worst:.3g}, {number} people", "a fifth off"
    )


def _sampled_wire(protocol: Protocol, inputs: list[Any]) -> Finding:
    """Reports of either side are read back, and are counted."""
    problems = []
    client, some = protocol.client(), [inputs[i % len(inputs)] for i in range(50)]
    reports = [client.report(value) for value in some] + list(protocol.reports(some))
    if len({len(report) for report in reports}) != 1:
        problems.append("reports differ in length")
    read = [unpack(to_text(report), protocol.fingerprint, protocol.width) for report in reports]
    if any(isinstance(found, Dropped) for found in read):
        problems.append("a report isn't read back")
    elif [pack(protocol.fingerprint, bytes(found)) for found in read if isinstance(found, bytes)] != reports:
        problems.append("a report comes back as another one")
    aggregate = protocol.aggregator().add_reports(reports).add_reports(client.text(value) for value in some)
    if aggregate.reports != len(reports) + len(some) or aggregate.dropped:
        problems.append("a report of a client is dropped")
    return Finding("reports are read back", not problems, "; ".join(problems) or f"{len(reports[0])} bytes each")


def _fresh(protocol: Protocol, inputs: list[Any]) -> Finding:
    rows = protocol.randomize([inputs[0]] * 20_000)
    # a fixed random number for every byte string, so that neighbours that repeat each other show
    keys = (rows.astype(np.uint64) @ np.random.default_rng().integers(1, 2**40, rows.shape[1], dtype=np.uint64)) % 2**32
    p = serial_dependence(keys.astype(np.float64))
    again = protocol.randomize([inputs[0]] * 20_000)
    return Finding(
        "every report is fresh",
        p > ALPHA and not np.array_equal(rows, again),
        f"serial correlation p = {p:.3g}",
        "one report in ten sent twice",
    )


def _merging(protocol: Protocol, inputs: list[Any]) -> Finding:
    """Parts that are merged in any order, saved and read again equal the whole."""
    rows = protocol.randomize([inputs[i % len(inputs)] for i in range(3000)])
    whole = protocol.aggregator().add(rows)
    first, second, third = (protocol.aggregator().add(part) for part in np.array_split(rows, [500, 1700]))
    merged = [(first + second) + third, third + (first + second), third + second + first]
    saved = aggregator_of(json.loads(json.dumps(merged[0].to_json())))
    problems = []
    if not all(_equal(other, whole) for other in merged):
        problems.append("merged parts differ from the whole")
    if not _equal(saved, whole):
        problems.append("what is read again differs from what was saved")
    if not _equal(first, protocol.aggregator().add(rows[:500])):
        problems.append("merging changes a part")
    return Finding("merge, save and load", not problems, "; ".join(problems) or "in any order")


def _equal(one: Aggregator[Any], other: Aggregator[Any]) -> bool:
    states = one.state(), other.state()
    return (
        states[0].keys() == states[1].keys()
        and all(np.array_equal(counts, states[1][name]) for name, counts in states[0].items())
        and (one.reports, one.dropped) == (other.reports, other.dropped)
    )


def _strays(protocol: Protocol, inputs: list[Any]) -> Finding:
    """Whatever arrives is counted or dropped with its reason, and changes nothing else."""
    good = protocol.client().report(inputs[0])
    stray: list[tuple[Any, Dropped]] = [
        (b"", Dropped.NOT_A_REPORT),
        ("no report!", Dropped.NOT_A_REPORT),
        (None, Dropped.NOT_A_REPORT),
        (bytes([VERSION + 1]) + good[1:], Dropped.VERSION),
        (good[:1] + bytes(byte ^ 255 for byte in good[1:9]) + good[9:], Dropped.OTHER_COLLECTION),
        (good[:-1], Dropped.LENGTH),
        (good + b"\0", Dropped.LENGTH),
    ]
    full = pack(protocol.fingerprint, b"\xff" * protocol.width)
    if not protocol.valid(exact.rows_of([b"\xff" * protocol.width], protocol.width))[0]:
        stray.append((full, Dropped.OUT_OF_RANGE))
    expected: dict[Dropped, int] = {}
    for _, reason in stray:
        expected[reason] = expected.get(reason, 0) + 1
    aggregate = protocol.aggregator()
    try:
        aggregate.add_reports([good, *(report for report, _ in stray), good])
    except Exception as problem:  # noqa: BLE001 - whatever it is, it must not happen
        return Finding("strays are dropped with a reason", passed=False, detail=f"raises {type(problem).__name__}")
    right = aggregate.reports == 2 and aggregate.dropped == expected
    return Finding("strays are dropped with a reason", right, f"{len(stray)} of {len(stray) + 2} dropped")


def _estimates(protocol: Protocol, small: Protocol, *, trials: int) -> list[Finding]:
    """Repeated surveys of few people: centre, variance and intervals of the estimates."""
    oracle = protocol if isinstance(protocol, FrequencyOracle) and protocol.size <= 64 else small
    if not isinstance(oracle, FrequencyOracle):
        return [Finding("estimates", passed=True, detail="not checked: not a frequency oracle")]
    shares = np.array([1 / 2 ** (i + 1) for i in range(oracle.size)])
    shares[-1] += 1 - shares.sum()
    generator, inputs = np.random.default_rng(), oracle.inputs()
    truths = generator.choice(oracle.size, size=trials * PEOPLE, p=shares)
    rows = oracle.randomize([inputs[truth] for truth in truths]).reshape(trials, PEOPLE, oracle.width)
    found = [oracle.aggregator().add(trial).estimate(0.9) for trial in rows]
    values = np.array([estimate.values for estimate in found])
    predicted = np.array([oracle.variance(PEOPLE, share=float(share)) for share in shares])
    z = (values - shares) / np.sqrt(predicted)
    centre = float(np.abs(z.mean(axis=0)).max()) * math.sqrt(trials)
    # each category's sum of squares is nearly χ²
    sums = (z**2).sum(axis=0)
    tails = 2 * np.minimum(stats.chi2.sf(sums, trials), stats.chi2.cdf(sums, trials)) * oracle.size
    intervals = np.array([estimate.intervals for estimate in found])
    outside = ((intervals[:, :, 0] > shares) | (intervals[:, :, 1] < shares)).any(axis=1)
    misses = int(outside.sum())
    return [
        Finding(
            "estimates are unbiased",
            float(2 * stats.norm.sf(centre)) * oracle.size > ALPHA,
            f"furthest centre {centre:.2f} standard errors",
            "a bias of a fifth of the standard error",
        ),
        Finding(
            "estimates have the stated variance",
            float(tails.min()) > ALPHA,
            f"ratios {sums.min() / trials:.3f} to {sums.max() / trials:.3f}",
            "a variance 30% off",
        ),
        Finding(
            "intervals cover",
            proportion_at_most(misses, trials, 0.1) > ALPHA,
            f"{misses} of {trials} surveys have a value outside its 90% interval",
            "a confidence of 83%",
        ),
    ]
