"""A survey over a public list that hides both what somebody answers and whether they took part.

Everybody on the list sends a report; to be absent is one of the answers. Proof in ``frequencies.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import ValueDomain
from dither.local.core.columns import column_of
from dither.local.core.losses import response_loss
from dither.local.core.protocol import DOMAIN, Aggregator, Counts, Floats, Payloads, Protocol, collection_field
from dither.local.frequency.choose import best_oracle
from dither.local.frequency.oracle import (
    FrequencyAggregator,
    FrequencyOracle,
    Ints,
    Label,
    Shares,
    checked_domain,
    places,
    values_of,
)
from dither.mechanisms.response_estimates import Target
from dither.numeric import Number
from dither.privacy import Adjacency, PrivacyLoss


@dataclass(frozen=True, slots=True, init=False)
class Participation(
    Protocol, name="participation", fields={"domain": DOMAIN, "collection": collection_field("oracle")}
):
    """Asks everybody on a public list, and hides who of them took part: ``None`` is the answer of the absent.

    ``oracle`` has one value more than there are answers.

    Guarantee: that of the oracle, under ADD_REMOVE: a person who takes part or not changes one report between an answer
        and absent; and under REPLACE, where the report may change between any two answers.
    Assumes: the list is public and wasn't made from the answers, and everybody on it sends a report. A report that is
        missing tells what the noise was to hide.

    Example:
        >>> survey = Participation.for_epsilon(["no", "yes"], epsilon=1)
        >>> survey.loss().adjacency.value, survey.loss().pure() <= 1
        ('add_remove', True)
    """

    domain: int | tuple[Label, ...]
    oracle: FrequencyOracle
    _known: ValueDomain = field(init=False, repr=False, compare=False)

    def __init__(self, domain: Any, oracle: FrequencyOracle) -> None:
        known = checked_domain(domain)
        given: object = oracle
        if not isinstance(given, FrequencyOracle) or given.domain != known.size + 1:
            raise InvalidParameter(f"a frequency oracle is needed, of {known.size + 1} values: one for the absent")
        self._put(domain=values_of(known), oracle=oracle, _known=known)

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """With the oracle of the smallest variance at ``epsilon``."""
        return cls(domain, best_oracle(epsilon, checked_domain(domain).size + 1, tolerance=0).best)

    def loss(self, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> PrivacyLoss:
        """The exact pair of two answers, of which absent is one; for either adjacency."""
        return response_loss(self.oracle.odds, self.oracle.weight, adjacency)

    def variance(self, n: int, share: Number | None = None, *, target: Target = Target.RESPONDENTS) -> float:
        """The variance of the estimated share of one answer among ``n`` people on the list.

        Args:
            n: Number of people on the list.
            share: True share to state it for; by default the one where it is largest.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        return self.oracle.variance(n, share, target=target)

    @property
    def width(self) -> int:
        """The number of bytes of a payload."""
        return self.oracle.width

    def slots(self, answers: Any) -> Ints:
        """The index of every answer, one more than the last for ``None``."""
        listed = list(column_of(answers, "a list of answers, None for whoever doesn't take part"))
        present = np.array([answer is not None for answer in listed], dtype=np.bool_)
        found = np.full(present.size, self._known.size, dtype=np.int64)
        found[present] = places([answer for answer in listed if answer is not None], self._known)
        return found

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """One payload for everybody on the list, also for those whose answer is ``None``."""
        return self.oracle.randomize_places(self.slots(values), source)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Which rows a client could have sent."""
        return self.oracle.valid(payloads)

    def aggregator(self) -> ParticipationAggregator:
        """An empty aggregate for this collection."""
        return ParticipationAggregator(self)

    def reduced(self) -> Participation:
        """The same for few answers, so that the law of the client can be listed in full."""
        oracle = self.oracle.reduced()
        return Participation(oracle.size - 1, oracle)

    def inputs(self) -> list[Any]:
        """Every answer, and ``None``."""
        return [*self._known.values, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attendance:
    """What a survey that hides who took part says.

    ``slots`` are the shares of all answers, and of absent at the end, among everybody on the list. ``values`` and
    ``intervals`` are those of the answers among the people who took part; a ratio of estimates, so not quite unbiased.
    All intervals hold together, since they follow from those of ``slots``.
    """

    slots: Shares
    values: Floats
    intervals: Floats
    took_part: float
    took_part_interval: tuple[float, float]
    labels: tuple[Label, ...] | None


class ParticipationAggregator(Aggregator[Attendance]):
    """Counts the reports of a list."""

    protocol: Participation

    def __init__(self, protocol: Participation) -> None:
        super().__init__(protocol)
        self._inner: FrequencyAggregator = protocol.oracle.aggregator()

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        self._inner.count(payloads)
        self._inner.reports += payloads.shape[0]

    def state(self) -> dict[str, Counts]:
        """The state of the oracle's aggregate."""
        return {"reports": np.array([self._inner.reports], dtype=np.int64), **self._inner.state()}

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own."""
        self._inner.put(state)
        self._inner.reports = int(state["reports"][0])

    def sound(self) -> bool:
        """Whether the oracle's aggregate has all reports."""
        return self._inner.reports == self.reports and self._inner.sound()

    def estimate(self, confidence: Number = 0.95, *, target: Target = Target.RESPONDENTS) -> Attendance:
        """The shares of all answers: among the list (who are just these people, by default), and who took part.

        If θ lies between l and h, and absent between a and b, then θ/(1 − absent) lies between l/(1−a) and h/(1−b).
        """
        slots = self._inner.estimate(confidence, target=target)
        ends = np.clip(slots.intervals, 0.0, 1.0)
        absent = float(slots.values[-1])
        low, high = (float(end) for end in ends[-1])
        if high >= 1:
            intervals = np.tile([0.0, 1.0], (self.protocol.oracle.size - 1, 1))
        else:
            intervals = np.clip(ends[:-1] / np.array([1 - low, 1 - high]), 0.0, 1.0)
        present = max(1 - absent, np.finfo(np.float64).tiny)
        domain = self.protocol.domain
        return Attendance(
            slots=slots,
            values=np.clip(slots.values[:-1] / present, 0.0, 1.0),
            intervals=intervals,
            took_part=1 - absent,
            took_part_interval=(1 - high, 1 - low),
            labels=None if isinstance(domain, int) else domain,
        )


def answers_of(invitees: list[Any], answers: Mapping[Any, Any]) -> list[Any]:
    """One answer for everybody on the list, ``None`` for the absent; those who aren't on it are left out.

    To refuse them would tell that they took part.
    """
    if len(set(invitees)) != len(invitees):
        raise InvalidData("everybody must be on the list once")
    return [answers.get(invitee) for invitee in invitees]
