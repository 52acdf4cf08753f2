"""Surveys built on randomised response: several attributes of each person, and hiding who took part."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.brief import SentenceEnum, brief
from dither.entropy import SYSTEM, Source, permutation
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, Ints
from dither.mechanisms.kary_response import LARGEST_CATEGORIES, KaryResponse, KaryResponseLoss
from dither.mechanisms.response_estimates import SharesEstimate, Target
from dither.numeric import Number, positive, positive_int
from dither.privacy import Adjacency, PrivacyLoss, compose

NOT_ASKED = -1


class Strategy(SentenceEnum):
    """How one budget covers several attributes."""

    SPLIT = "split", "every attribute by itself, each with an equal part of ε"
    SAMPLE = "sample", "one attribute, picked by public coins, with the whole ε"
    JOINT = "joint", "all attributes as one answer among all their combinations"


@dataclass(frozen=True, slots=True, init=False)
class SeveralResponses:
    """Randomises several attributes of every respondent within one ε, in one of three ways.

    ``sizes`` are the numbers of categories; records are rows of whole numbers, one column for each attribute.

    Guarantee: ε-private under REPLACE of a whole record, however many of its attributes change. SPLIT composes the
        responses of its d attributes at ε/d each; SAMPLE and JOINT give one answer with the whole ε.
    Assumes: every record belongs to a different unit.
    Accuracy: ``variance(n)``, per attribute, summed over its categories, for the shares where it is largest.

    Example:
        >>> for strategy in Strategy:
        ...     survey = SeveralResponses((2, 2, 2, 2), epsilon=1, strategy=strategy)
        ...     print(strategy.value, f"{survey.loss().pure():.6f} {survey.variance(n=1000)[0]:.5f}")
        split 1.000000 0.03233
        sample 1.000000 0.00937
        joint 1.000000 0.05316
        >>> SeveralResponses.best((2, 2, 2, 2), epsilon=1).strategy
        <Strategy.SAMPLE: 'sample'>
    """

    sizes: tuple[int, ...]
    epsilon: Fraction
    strategy: Strategy
    _asked: tuple[KaryResponse, ...] = field(init=False, repr=False, compare=False)

    def __init__(self, sizes: Sequence[int], epsilon: Number, strategy: Strategy = Strategy.SPLIT) -> None:
        checked = tuple(positive_int(size, "every attribute's number of categories", least=2) for size in sizes)
        if not checked:
            raise InvalidParameter("at least one attribute is needed")
        if not isinstance(strategy, Strategy):
            raise InvalidParameter(f"strategy must be a Strategy, such as Strategy.SPLIT; got {strategy!r}")
        exact = positive(epsilon, "epsilon")
        each = exact / len(checked) if strategy is Strategy.SPLIT else exact
        asked = (math.prod(checked),) if strategy is Strategy.JOINT else checked
        object.__setattr__(self, "sizes", checked)
        object.__setattr__(self, "epsilon", exact)
        object.__setattr__(self, "strategy", strategy)
        object.__setattr__(self, "_asked", tuple(KaryResponse.for_epsilon(size, each) for size in asked))

    @classmethod
    def best(cls, sizes: Sequence[int], epsilon: Number) -> Self:
        """The strategy with the smallest variance, summed over attributes and categories, in its worst case."""
        surveys = [cls(sizes, epsilon, strategy) for strategy in (Strategy.SPLIT, Strategy.SAMPLE)]
        if math.prod(sizes) <= LARGEST_CATEGORIES:
            surveys.append(cls(sizes, epsilon, Strategy.JOINT))
        # the number of records doesn't matter, if sampling can divide it evenly
        return min(surveys, key=lambda survey: sum(survey.variance(n=len(sizes))))

    @property
    def responses(self) -> tuple[KaryResponse, ...]:
        """What each attribute goes through, seen by itself.

        An attribute of a joint answer keeps its value if the answer is kept or is one of the other combinations
        with the same value; the rest is spread evenly. That is a k-ary response too.
        """
        if self.strategy is not Strategy.JOINT:
            return self._asked
        joint = self._asked[0]
        return tuple(KaryResponse(size, joint.keep + (joint.size // size - 1) * joint.other) for size in self.sizes)

    def loss(self) -> PrivacyLoss:
        """The loss towards one record.

        The curve of SAMPLE is the mean of its attributes' curves, which is at most that of the smallest domain.
        """
        if self.strategy is Strategy.SAMPLE:
            return min(self._asked, key=lambda response: response.size).loss()
        return compose([(response.loss(), 1) for response in self._asked])

    def release(self, records: Any, *, source: Source = SYSTEM) -> Ints:
        """Randomised records of the same shape; ``NOT_ASKED`` marks attributes that a sampled survey left out."""
        array = self._checked(records)
        if self.strategy is Strategy.JOINT:
            joint = self._asked[0].release(np.ravel_multi_index(tuple(array.T), self.sizes), source=source)
            return np.stack(np.unravel_index(joint, self.sizes), axis=1).astype(np.int64)
        answers = np.full(array.shape, NOT_ASKED, dtype=np.int64)
        everybody = np.ones(len(array), dtype=np.bool_)
        # public coins: as many people for each attribute as for any other, give or take one
        asked = permutation(len(array), source) % len(self.sizes) if self.strategy is Strategy.SAMPLE else None
        for column, response in enumerate(self._asked):
            rows = everybody if asked is None else asked == column
            answers[rows, column] = response.release(array[rows, column], source=source)
        return answers

    def _checked(self, records: Any, least: int = 0) -> Ints:
        array = np.asarray(records)
        if array.ndim != 2 or array.shape[1] != len(self.sizes) or array.dtype.kind not in "iu":
            raise InvalidData(f"records must be a table of whole numbers with {len(self.sizes)} columns")
        if ((array < least) | (array >= np.array(self.sizes))).any():
            raise InvalidData("every attribute must be a whole number from 0 to its number of categories less 1")
        return array.astype(np.int64)

    def _answers(self, n: int) -> int:
        """How many answers each attribute surely gets out of ``n`` records."""
        return positive_int(n, "n") // (len(self.sizes) if self.strategy is Strategy.SAMPLE else 1)

    def variance(self, n: int) -> tuple[float, ...]:
        """For every attribute the sum of its shares' variances, POPULATION, where it is largest: equal shares.

        Σλ(1−λ) = 1 − Σλ² ≤ 1 − 1/k.
        """
        count = positive_int(self._answers(n), "the number of answers for each attribute")
        return tuple(float((1 - Fraction(1, r.size)) / (count * (r.keep - r.other) ** 2)) for r in self.responses)

    def error(self, confidence: Number = 0.95, *, n: int) -> tuple[float, ...]:
        """For every attribute the error that none of its shares exceeds with this confidence, POPULATION."""
        count = positive_int(self._answers(n), "the number of answers for each attribute")
        return tuple(response.error(confidence, n=count) for response in self.responses)

    def estimate(self, answers: Any, *, confidence: Number = 0.95, clip: bool = False) -> tuple[SharesEstimate, ...]:
        """The shares of every attribute's categories in the POPULATION; intervals hold together within an attribute."""
        array = self._checked(answers, least=NOT_ASKED)
        return tuple(
            response.estimate(column[column != NOT_ASKED], confidence=confidence, clip=clip)
            for response, column in zip(self.responses, array.T, strict=True)
        )


class Slot(IntEnum):
    """What an invitee's place on the list says."""

    NO = 0
    YES = 1
    ABSENT = 2


@dataclass(frozen=True, slots=True, init=False)
class ParticipationResponse:
    """Asks a public list of invitees a yes/no question and hides both their answers and who of them took part.

    Every invitee's slot (yes, no or absent) is kept with probability ``keep`` and is one of the other two otherwise,
    also the slots of those who never answered: the number of reports is that of the invitees.

    Guarantee: ln(2·keep/(1−keep))-private under ADD_REMOVE, since adding or removing a person moves one slot between
        absent and an answer; under REPLACE too, where one invitee's slot may change to anything. (To replace one
        invitee by another is to remove one and add one: as_replace(loss()).)
    Assumes: the list is public, was not made from the answers, and every invitee is a different unit.
    Accuracy: unbiased shares of no, yes and absent among the invitees.

    Example:
        >>> survey = ParticipationResponse.for_epsilon(1)
        >>> survey.loss().adjacency.value, survey.loss().pure() <= 1
        ('add_remove', True)
        >>> slots = survey.slots({"ann": True, "bob": False}, invitees=["ann", "bob", "cat"])
        >>> [Slot(s).name for s in slots]
        ['YES', 'NO', 'ABSENT']
    """

    keep: Fraction
    _response: KaryResponse = field(init=False, repr=False, compare=False)

    __repr__ = brief

    def __init__(self, keep: Number) -> None:
        response = KaryResponse(len(Slot), keep)
        object.__setattr__(self, "keep", response.keep)
        object.__setattr__(self, "_response", response)

    @classmethod
    def for_epsilon(cls, epsilon: Number) -> Self:
        """The most honest response whose loss is no more than ``epsilon``: ``keep`` is rounded down.

        Args:
            epsilon: The most that one report may cost.
        """
        return cls(KaryResponse.for_epsilon(len(Slot), epsilon).keep)

    def loss(self, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> KaryResponseLoss:
        """The exact pair of two slots, for either adjacency.

        Args:
            adjacency: Which databases are neighbours.
        """
        return KaryResponseLoss(self._response.loss().odds, len(Slot), adjacency)

    @staticmethod
    def slots(answers: Mapping[Any, bool], invitees: Sequence[Hashable]) -> Ints:
        """One slot for every invitee, in the order of the list.

        Answers of people who are not on the list are left out: to refuse them would tell that they took part.

        Args:
            answers: What those said who took part, by the name on the list.
            invitees: The public list.
        """
        if len(set(invitees)) != len(invitees):
            raise InvalidParameter("every invitee must be on the list once")
        found = [answers.get(invitee) for invitee in invitees]
        if any(answer is not None and not isinstance(answer, bool | np.bool_) for answer in found):
            raise InvalidData("an answer must be True or False")
        return np.array([Slot.ABSENT if a is None else Slot.YES if a else Slot.NO for a in found], dtype=np.int64)

    def release(self, slots: Any, *, source: Source = SYSTEM) -> Any:
        """The randomised slots: one for every slot passed in, which must be one for every invitee.

        Args:
            slots: As ``slots`` makes them.
            source: Source of randomness; anything but the default is for tests.
        """
        return self._response.release(slots, source=source)

    def probabilities(self, slot: int) -> tuple[Fraction, ...]:
        """The exact law of one report: Pr[no], Pr[yes], Pr[absent].

        Args:
            slot: The true slot.
        """
        return self._response.probabilities(int(slot))

    def law(self, exact: int) -> FiniteLaw:
        """The law of one report as floats.

        Args:
            exact: The true slot.
        """
        return self._response.law(int(exact))

    def worst_pair(self) -> tuple[int, int]:
        """Somebody who took part, and the same person absent."""
        return int(Slot.YES), int(Slot.ABSENT)

    def variance(self, n: int, share: Number | None = None, *, target: Target = Target.RESPONDENTS) -> float:
        """The variance of the estimated share of one kind of slot among ``n`` invitees.

        Args:
            n: Number of answers.
            share: True share to state it for; by default the one where it is largest.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        return self._response.variance(n, share, target=target)

    def error(self, confidence: Number = 0.95, *, n: int, target: Target = Target.RESPONDENTS) -> float:
        """The error that none of the three shares exceeds with this confidence.

        Args:
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            n: Number of answers.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        return self._response.error(confidence, n=n, target=target)

    def estimate(
        self,
        reports: Any = None,
        *,
        counts: Any = None,
        confidence: Number = 0.95,
        target: Target = Target.RESPONDENTS,
        clip: bool = False,
    ) -> SharesEstimate:
        """The shares of no, yes and absent among the invitees (who are a list, so RESPONDENTS by default).

        Args:
            reports: What everybody on the list reported; give these or counts.
            counts: How often each answer occurred, in place of the answers.
            confidence: Of all intervals together.
            target: Whether the share in the population is meant, or that among those who answered.
            clip: Cut estimates and intervals to [0, 1]: no longer unbiased, as good for privacy.
        """
        return self._response.estimate(reports, counts=counts, confidence=confidence, target=target, clip=clip)

    def yes_share(self, reports: Any = None, *, counts: Any = None, confidence: Number = 0.95) -> tuple[float, float]:
        """An interval for the share of yes among those invitees who took part; (0, 1) if nobody may have.

        Follows from the intervals of yes and no, which hold together.

        Args:
            reports: What everybody on the list reported; give these or counts.
            counts: How often each answer occurred, in place of the answers.
            confidence: Probability with which the bound holds, strictly between 0 and 1.

        Returns:
            Interval of the share of yes among those who took part.
        """
        intervals = self.estimate(reports, counts=counts, confidence=confidence, clip=True).intervals
        (no_low, no_high), (yes_low, yes_high) = (tuple(map(float, intervals[slot])) for slot in (Slot.NO, Slot.YES))
        if no_low + yes_low <= 0:
            return 0.0, 1.0
        return yes_low / (yes_low + no_high), yes_high / (yes_high + no_low)
