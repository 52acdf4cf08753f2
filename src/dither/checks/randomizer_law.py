"""The exact part of check_randomizer: a client's whole law, against the loss, the wire format and the estimates.

A client draws coins of rational probability and uniform numbers only, so its law is a list of fractions (``law_of``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from dither.checks.mechanism import ALPHA, Finding
from dither.checks.statistics import chi_square_counts
from dither.errors import InvalidParameter
from dither.local.clients import Client
from dither.local.clients.coins import Coins, law_of
from dither.local.core.protocol import Payloads, Protocol
from dither.local.frequency.oracle import FrequencyOracle
from dither.privacy import PrivacyLoss

Law = dict[bytes, Fraction]

# More values than these have laws that are compared by their first ones.
MOST_INPUTS = 12
# Pairs of reports are compared for so many of them.
FEW_INPUTS = 3
# Ratios are compared with e^ε to so many digits.
DIGITS = 100


def inputs_of(protocol: Protocol, values: Sequence[Any] | None) -> list[Any]:
    """What goes in: ``values``, or all that the protocol lists."""
    found = list(values) if values is not None else list(getattr(protocol, "inputs", list)())
    if len(found) < 2:
        raise InvalidParameter("the protocol doesn't list its inputs(): pass values=[…], two or more")
    return found


def laws_of(
    protocol: Protocol, values: Sequence[Any] | None, most: int
) -> tuple[Protocol, list[Law], list[dict[int, Fraction]], str]:
    """The protocol that is enumerated, the laws of payloads and of numbers of coins for its first inputs, and how.

    Or why there are none.
    """
    small: Protocol = protocol
    if _ways(protocol, inputs_of(protocol, values), most) > most and values is None and hasattr(protocol, "reduced"):
        small = protocol.reduced()
    inputs = inputs_of(small, values)[:MOST_INPUTS]
    if _ways(small, inputs, most) > most:
        return small, [], [], f"the coins can fall in more than {most} ways"
    laws: list[Law] = []
    numbers: list[dict[int, Fraction]] = []
    made = clients_of(small)
    for value in inputs:
        law: Law = {}
        number: dict[int, Fraction] = {}
        for (payload, coins), chance in law_of(partial(_counted, made, value), most=10 * most).items():
            law[payload] = law.get(payload, Fraction(0)) + chance
            number[coins] = number.get(coins, Fraction(0)) + chance
        laws.append(law)
        numbers.append(number)
    return small, laws, numbers, "" if small is protocol else "with fewer values"


def clients_of(protocol: Protocol) -> Callable[[], Client]:
    """A client for everybody: the same one, unless it keeps a memory, which is one person's."""
    client = protocol.client()
    return protocol.client if hasattr(client, "memory") else lambda: client


def _counted(made: Callable[[], Client], value: Any, coins: Coins) -> tuple[bytes, int]:
    """A payload, and how many coins were asked for."""
    passed = _Passing(coins)
    return made().payload(value, passed), passed.number


class _Passing:
    """Coins that are passed on and counted."""

    def __init__(self, coins: Coins) -> None:
        self.number, self._coins = 0, coins

    def chance(self, p: Fraction) -> bool:
        self.number += 1
        return self._coins.chance(p)

    def below(self, n: int) -> int:
        self.number += 1
        return self._coins.below(n)


def _ways(protocol: Protocol, inputs: list[Any], most: int) -> int:
    """In about how many ways the coins can fall for all inputs: the product of the choices along one of them."""
    coins = _Counting(most)
    try:
        protocol.client().payload(inputs[0], coins)
    except _TooManyWaysError:
        return most + 1
    return coins.ways * min(len(inputs), MOST_INPUTS)


class _TooManyWaysError(Exception):
    """Stops a client whose coins can't be listed, also one that draws until it likes what it has drawn."""


class _Counting:
    """Coins that count how many ways they might have fallen."""

    def __init__(self, most: int) -> None:
        self.ways, self._most = 1, most

    def chance(self, p: Fraction) -> bool:
        self._times(1 if p in (0, 1) else 2)
        return p == 1

    def below(self, n: int) -> int:
        self._times(n)
        return 0

    def _times(self, n: int) -> None:
        self.ways *= n
        if self.ways > self._most:
            raise _TooManyWaysError


def rows_of(payloads: Sequence[bytes], width: int) -> Payloads:
    """Payloads as the rows that aggregates take."""
    return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), width)


# ------------------------------------------------------------------ what the law is held against


def check_ratios(protocol: Protocol, laws: list[Law], note: str) -> Finding:
    """The largest ratio of probabilities, as a fraction, against proven bounds of e^ε."""
    if not laws:
        return Finding("exact law within the loss", passed=True, detail=f"not enumerated: {note}")
    check = "exact law within the loss" + (f" ({note})" if note else "")
    outcomes = [set(law) for law in laws]
    if any(found != outcomes[0] for found in outcomes) or any(sum(law.values()) != 1 for law in laws):
        return Finding(check, passed=False, detail="some payload is possible for one value and impossible for another")
    largest = max(first[y] / second[y] for first, second in permutations(laws, 2) for y in first)
    epsilon = protocol.loss().pure()
    if math.isinf(epsilon):
        return Finding(check, passed=True, detail="the loss claims no finite ε")
    share = math.log(largest) / epsilon if epsilon else 1.0
    return Finding(
        check,
        # what the client tells the person who answers has to hold as well
        largest <= min(_exp(epsilon), _exp(protocol.client().epsilon)),
        f"{len(outcomes[0])} payloads, {len(laws)} values: largest ratio {float(largest):.9g} = e^({share:.9f}·ε)",
        "any excess",
    )


def _exp(epsilon: float) -> Fraction:
    with localcontext() as context:
        context.prec = DIGITS  # decimal's exp is correctly rounded to as many digits
        return Fraction(Decimal(epsilon).exp())


def check_again(protocol: Protocol, inputs: list[Any], most: int) -> Finding:
    """Two reports of one client about one value, against the longitudinal loss: what it keeps may tell more."""
    check, some = "two reports of one client within their loss", inputs[:FEW_INPUTS]
    if sum(_ways(protocol, [value], most) ** 2 for value in some) > most // 5:
        return Finding(check, passed=True, detail="too many ways for the coins to fall twice: not listed")
    laws = [law_of(partial(_twice, protocol, value), most=10 * most) for value in some]
    if any(law.keys() != laws[0].keys() for law in laws):
        return Finding(check, passed=False, detail="two payloads are possible for one value, impossible for another")
    largest = max(first[y] / second[y] for first, second in permutations(laws, 2) for y in first)
    epsilon = protocol.longitudinal_loss(2, changes="public").pure()
    passed = math.isinf(epsilon) or largest <= _exp(epsilon)
    return Finding(check, passed, f"largest ratio {float(largest):.9g}, ε = {epsilon:.6g}", "any excess")


def _twice(protocol: Protocol, value: Any, coins: Coins) -> tuple[bytes, bytes]:
    client = protocol.client()
    return client.payload(value, coins), client.payload(value, coins)


def check_coins(numbers: list[dict[int, Fraction]]) -> Finding:
    """How many coins are drawn has one law for all values, for the time that a report takes shows it."""
    return Finding(
        "as many coins whatever the value",
        all(number == numbers[0] for number in numbers),
        f"{min(map(min, numbers))} to {max(map(max, numbers))}",
        "one coin",
    )


def check_curve(loss: PrivacyLoss, laws: list[Law]) -> Finding:
    """δ(ε) of every pair of laws at several ε, against the curve of the loss."""
    pure = loss.pure() if math.isfinite(loss.pure()) else loss.epsilon(1e-6)
    worst, at = -math.inf, 0.0
    order = sorted(laws[0])
    table = np.array([[float(law.get(y, 0)) for y in order] for law in laws])
    for part in (0.0, 0.25, 0.5, 0.75, 0.95):
        epsilon = part * pure
        claimed = loss.delta(Fraction(epsilon))
        for first, second in permutations(range(len(laws)), 2):
            found = float(np.maximum(table[first] - math.exp(epsilon) * table[second], 0.0).sum())
            if found - claimed > worst:
                worst, at = found - claimed, epsilon
    return Finding(
        "exact law within the curve",
        worst <= 1e-12,
        f"{'exceeds' if worst > 1e-12 else 'closest to'} δ at ε = {at:.4g}, by {worst:.3g}",
        "a curve 1e-12 too low",
    )


def check_wire(protocol: Protocol, laws: list[Law]) -> Finding:
    """Valid are just the payloads that the client sends: all byte strings if they are short, else many others."""
    sent = sorted(set().union(*laws))
    width, problems = protocol.width, []
    if any(len(payload) != width for payload in sent):
        return Finding("valid payloads are those that clients send", passed=False, detail="payloads differ in length")
    rows = rows_of(sent, width)
    if not protocol.valid(rows).all():
        problems.append("a payload of the client isn't valid")
    if width <= 2:
        others = np.indices((256,) * width).reshape(width, -1).T.astype(np.uint8)
    else:
        generator = np.random.default_rng()
        near = rows[generator.integers(0, rows.shape[0], 20_000)].copy()
        near[np.arange(20_000), generator.integers(0, width, 20_000)] ^= np.uint8(1) << generator.integers(
            0, 8, 20_000, dtype=np.uint8
        )
        others = np.concatenate([near, generator.integers(0, 256, (20_000, width), dtype=np.uint8)])
    known = set(sent)
    good = protocol.valid(others)
    extra = sum(bool(valid) and row.tobytes() not in known for valid, row in zip(good, others, strict=True))
    if extra:
        problems.append(f"{extra} byte strings that no client sends are valid")
    return Finding(
        "valid payloads are those that clients send",
        not problems,
        "; ".join(problems) or f"{len(sent)} payloads, {others.shape[0]} byte strings",
        "one byte string",
    )


def check_simulation(protocol: Protocol, inputs: list[Any], laws: list[Law], draws: int) -> Finding:
    """The law of ``randomize`` against the exact law of the client, by Pearson's test for each value."""
    worst, each = 1.0, max(1000, draws // len(laws))
    for i, law in enumerate(laws):
        payloads = protocol.randomize([inputs[i]] * each)
        found, counts = np.unique(payloads, axis=0, return_counts=True)
        place = {payload: number for number, payload in enumerate(sorted(law))}
        counted = np.zeros(len(place) + 1)
        for row, count in zip(found, counts, strict=True):
            counted[place.get(row.tobytes(), len(place))] += count
        expected = np.array([float(law[payload]) for payload in place] + [0.0])
        worst = min(worst, chi_square_counts(counted, expected) * len(laws))
    return Finding(
        "many at once follow the same law",
        worst > ALPHA,
        f"χ² p = {worst:.3g} (Bonferroni)",
        "a probability of 1/2 that is 2% off (50 000 draws)",
    )


def check_support(oracle: FrequencyOracle, laws: list[Law]) -> Finding:
    """Hit and miss, summed over the exact law: the estimates then are unbiased, with the variance that is stated."""
    payloads = sorted(set().union(*laws))
    supports = np.array([oracle.support(rows_of([payload], oracle.width)) for payload in payloads])
    problems = set()
    for truth, law in enumerate(laws):
        # payloads of one probability are counted together: whole numbers are quicker to add than fractions
        found = [Fraction(0)] * oracle.size
        chances = np.array([law.get(payload, Fraction(0)) for payload in payloads], dtype=object)
        for chance in set(law.values()):
            counts = supports[chances == chance].sum(axis=0)
            found = [so_far + chance * int(count) for so_far, count in zip(found, counts, strict=True)]
        for value, total in enumerate(found):
            name, claimed = ("hit", oracle.hit) if truth == value else ("miss", oracle.miss)
            if total != claimed:
                problems.add(f"{name} is {float(total):.9g} and stated as {float(claimed):.9g}")
    return Finding(
        "unbiased, exactly", not problems, "; ".join(sorted(problems)) or "hit and miss are as stated", "any bias"
    )
