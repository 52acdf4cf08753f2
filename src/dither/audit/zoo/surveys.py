"""Randomised answers that aren't random enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dither.audit.drawing.draws import Batched
from dither.audit.zoo.specimen import Specimen, batched, careless, released
from dither.mechanisms import KaryResponse, ParticipationResponse, RandomizedResponse
from dither.mechanisms.randomized_response import RandomizedResponseLoss
from dither.mechanisms.response_surveys import Slot
from dither.privacy import Adjacency

LIE = Fraction(1, 4)
CATEGORIES = 10
PRESENT: tuple[int, ...] = (1, 0, 1)


def one_answer() -> tuple[Specimen, ...]:
    """One yes/no answer by coins, claimed at ln 3."""
    fair = RandomizedResponse(LIE)
    twin = Specimen.right(
        "fair-coins",
        fair,
        None,
        (1, 0),
        draw=released(int, fair.release),
        family="one-answer",
        source="dither.RandomizedResponse; Warner 1965",
        remark="Heads: the truth; tails: a second coin answers, so that it lies in both directions.",
    )
    broken = twin.spoilt(
        name="one-sided-answers",
        mistake="With probability ½ it says yes, otherwise the truth: a no is always honest, so no finite ε holds.",
        source="lecture notes; compare Warner 1965",
        mechanism=batched(lambda truth, n: careless().integers(0, 2, n) | truth),
        typically="the answer no",
    )
    return broken, twin


def participation() -> tuple[Specimen, ...]:
    """Answers of a few people, at ln 3 each."""
    fair = RandomizedResponse(LIE)
    hidden = ParticipationResponse(keep="3/5")
    broken = Specimen(
        name="randomised-response-under-add-remove",
        family="participation",
        mistake="Every answer is randomised, but there is one for each participant: their number tells who took part.",
        source="lecture notes; compare Warner 1965",
        mechanism=_answers(fair),
        pairs=((PRESENT, PRESENT[:-1]),),
        claim=RandomizedResponseLoss(fair.loss().odds, Adjacency.ADD_REMOVE),
        typically="the number of answers",
        broken=True,
        seconds=10.0,
    )
    replaced = Specimen.right(
        "randomised-response-under-replace",
        fair,
        None,
        (PRESENT, (*PRESENT[:-1], 1 - PRESENT[-1])),
        draw=_answers(fair),
        family="participation",
        remark="The same answers under replace: the number of participants is public.",
    )
    slots = tuple(int(Slot.YES if answer else Slot.NO) for answer in PRESENT)
    invited = Specimen.right(
        "participation-response",
        hidden,
        None,
        (slots, (*slots[:-1], int(Slot.ABSENT))),
        draw=released(np.array, hidden.release),
        family="participation",
        remark="Under add_remove: absent invitees have a slot too, randomised like the others.",
    )
    return broken, replaced, invited


def _answers(response: RandomizedResponse) -> Batched:
    """A table of answers, as long as there are participants."""

    def draw(truths: Sequence[int], n: int) -> list[tuple[int, ...]]:
        table = response.release(np.tile(np.array(truths, dtype=np.int64), (n, 1)))
        return [tuple(row) for row in table.tolist()]

    return batched(draw)


def several_answers() -> tuple[Specimen, ...]:
    """One answer out of ten at ε = 1."""
    fair = KaryResponse.for_epsilon(CATEGORIES, epsilon=1)
    draw, source = released(int, fair.release), "dither.KaryResponse; Kairouz, Oh & Viswanath 2014"
    twin = Specimen.right("kary-response", fair, None, (0, 1), draw=draw, family="several-answers", source=source)
    broken = twin.spoilt(
        name="kary-response-10-percent-short",
        mistake="The truth is e^1.1 times as likely as each lie, where e was claimed.",
        source="Kairouz, Oh & Viswanath 2014",
        mechanism=_kary(1.1),
        typically="the answer that is true for one of the two",
    )
    return broken, twin


def _kary(epsilon: float) -> Batched:
    keep = math.exp(epsilon) / (math.exp(epsilon) + CATEGORIES - 1)

    def draw(truth: int, n: int) -> Any:
        generator = careless()
        lies = (truth + generator.integers(1, CATEGORIES, n)) % CATEGORIES
        return np.where(generator.random(n) < keep, truth, lies)

    return batched(draw)


def specimens() -> tuple[Specimen, ...]:
    """All of this file."""
    return (*one_answer(), *participation(), *several_answers())
