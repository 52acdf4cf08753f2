"""Every mechanism of dither as something to audit: a small instance, inputs that are hard on it, and its claim.

Instances are chosen so that what they claim can be seen: ε around 1, and a δ that isn't too rare to be met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dither import mechanisms as dm
from dither.audit.drawing.draws import Batched
from dither.errors import InvalidParameter
from dither.mechanisms.elastic_sensitivity import Join, Table
from dither.privacy import Adjacency, PrivacyLoss, Sensitivity

SEEN_DELTA = Fraction(1, 20)
ONCE = Sensitivity.contribution(groups=1, per_group=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A mechanism to audit: ``mechanism`` and ``pairs`` are what ``search`` takes, ``claim`` is its own loss."""

    name: str
    about: str
    mechanism: Any
    pairs: tuple[tuple[Any, Any], ...]
    claim: PrivacyLoss


def subjects() -> tuple[Subject, ...]:
    """Every mechanism that ``dither.mechanisms`` exports, in the order of their names.

    Where keys are selected, on a key that others hold too: there ε shows. On a key of one unit alone δ does, for which
    mechanisms have exact tests.
    """
    every = (
        *(*_noise_and_choices(), *_answers(), _several_responses()),
        *(_partition_selection(), *_thresholds()),
        *(_smooth_laplace(), _smooth_median(), _elastic_count()),
        *(_sparse_vector(), _tree_counter(), _subsampled(), _without_replacement()),
    )
    return tuple(sorted(every, key=lambda subject: subject.name))


def subject(name: str) -> Subject:
    """One of them, by the name of its class in any letter case."""
    every = subjects()
    for each in every:
        if each.name.casefold() == name.casefold():
            return each
    known = ", ".join(each.name for each in every)
    raise InvalidParameter(f"{name!r} is no mechanism of dither; known are {known}")


def _many(release: Callable[[Any], Any]) -> Batched:
    """Of a mechanism that takes an array of separate units' answers: many releases of the same one."""
    return Batched(lambda x, n: release(np.full(n, x)), copies=True)


def _one_by_one(release: Callable[[Any], Any]) -> Batched:
    return Batched(lambda x, n: [release(x) for _ in range(n)], copies=True)


def _of(
    mechanism: Any,
    *pairs: tuple[Any, Any],
    about: str,
    moved: Sensitivity | None = None,
    draw: Batched | None = None,
) -> Subject:
    """A mechanism with what it claims itself, for a sensitivity where its loss takes one."""
    claim = mechanism.loss() if moved is None else mechanism.loss(moved)
    return Subject(name=type(mechanism).__name__, about=about, mechanism=draw or mechanism, pairs=pairs, claim=claim)


def _noise_and_choices() -> tuple[Subject, ...]:
    """Those that name the worst pair for a sensitivity."""
    scores, change = Sensitivity.linf(1), "scale 2, two candidates whose scores change places"
    known: tuple[tuple[Any, Sensitivity, str], ...] = (
        (dm.Laplace(1), Sensitivity.l1(1), "noise of scale 1 on 0 and on 1"),
        (dm.DiscreteLaplace(2), Sensitivity.l1(2), "noise of scale 2 on 0 and on 2"),
        (dm.Gaussian(1), Sensitivity.l2(1), "noise of σ = 1 on 0 and on 1"),
        # the curve of one number's movement: in l2 alone a movement may be spread over many, and the claim is larger
        (dm.DiscreteGaussian(2), Sensitivity.contribution(groups=1, per_group=2), "noise of σ = 2 on 0 and on 2"),
        *((make(2), scores, change) for make in (dm.Exponential, dm.PermuteAndFlip, dm.NoisyMax)),
    )
    return tuple(
        _of(mechanism, mechanism.worst_pair(moved), moved=moved, about=about) for mechanism, moved, about in known
    )


def _answers() -> tuple[Subject, ...]:
    """Those whose sensitivity is fixed, and which name their worst pair."""
    median = dm.Quantile(1, bounds=(0, 10), step=1)
    about = "scale 1, the median on a grid of 11 points, without and with one value"
    responses: tuple[tuple[Any, str], ...] = (
        (dm.RandomizedResponse("1/4"), "a lie with probability 1/4, on no and on yes"),
        (dm.KaryResponse.for_epsilon(4, 1), "four categories at ε = 1, on two of them"),
        (dm.ParticipationResponse.for_epsilon(1), "ε = 1, on somebody who says yes and on the same person absent"),
    )
    return (
        _of(median, median.worst_pair(), about=about),
        *(_of(each, each.worst_pair(), draw=_many(each.release), about=about) for each, about in responses),
    )


def _several_responses() -> Subject:
    mechanism = dm.SeveralResponses((2, 3), 1)
    draw = Batched(lambda x, n: mechanism.release(np.tile(x, (n, 1))), copies=True)
    return _of(
        mechanism,
        ((0, 0), (1, 1)),
        draw=draw,
        about="two questions at ε = 1 together, on people who differ in both",
    )


def _partition_selection() -> Subject:
    mechanism = dm.PartitionSelection(1, SEEN_DELTA)
    return _of(
        mechanism,
        (1, 2),
        (4, 5),
        draw=_many(mechanism.release),
        about="ε = 1 and δ = 0.05, on a key with one unit more or less",
    )


def _thresholds() -> tuple[Subject, ...]:
    known: tuple[tuple[Any, str], ...] = (
        (dm.LaplaceThreshold.for_guarantee(1, SEEN_DELTA), "ε = 1 and δ = 0.05, on a key of 5 and of 6 units"),
        (dm.GaussianThreshold(1, 4), "σ = 1 and a threshold of 4, on a key of 5 and of 6 units"),
        (dm.TruncatedThreshold.for_guarantee(1, SEEN_DELTA), "ε = 1 and δ = 0.05, on a key of 5 and of 6 units"),
    )
    return tuple(
        _of(each, (5, 6), moved=ONCE, draw=_many(partial(_columns, each)), about=about) for each, about in known
    )


def _columns(mechanism: Any, units: Any) -> Any:
    return np.column_stack(mechanism.release(units))


def _smooth_laplace() -> Subject:
    """A number that moves by its smooth bound, which grows as fast as it may."""
    mechanism = dm.SmoothLaplace(1, SEEN_DELTA)
    bound = 20
    grown = float(np.nextafter(bound * np.exp(mechanism.smoothness), 0))
    draw = _one_by_one(lambda x: mechanism.release(*x))
    return _of(
        mechanism,
        ((0, bound), (bound, bound)),
        ((0, bound), (bound, grown)),
        draw=draw,
        about="ε = 1 and δ = 0.05, on numbers as far apart as their smooth bound",
    )


def _smooth_median() -> Subject:
    """Nine values of which the middle one, or an outer one, is another."""
    mechanism = dm.SmoothMedian(1, SEEN_DELTA, 0, 10)
    split, level = [0.0] * 5 + [10.0] * 4, [0.0] * 4 + [10.0] * 5
    return _of(
        mechanism,
        (split, level),
        ([5.0] * 9, [5.0] * 8 + [10.0]),
        about="ε = 1 and δ = 0.05, on nine values of which one is another",
    )


def _elastic_count() -> Subject:
    """Trips joined with drivers: a driver with as many trips as anybody comes or goes; or one more trip does."""
    mechanism = dm.ElasticCount(1, SEEN_DELTA)

    def joined(trips: int, drivers: int) -> Join:
        return Join(Table("trips", {"driver": trips}), Table("drivers", {"id": drivers}), "trips.driver", "drivers.id")

    draw = _one_by_one(lambda x: mechanism.release(*x))
    driver = ((20, joined(20, 1)), (0, joined(20, 0)))
    trip = ((20, joined(20, 1)), (21, joined(21, 1)))
    return _of(
        mechanism,
        driver,
        trip,
        draw=draw,
        about="ε = 1 and δ = 0.05, on a join that gains or loses a row of either table",
    )


def _sparse_vector() -> Subject:
    """Queries that all move, the last one against the others (Lyu, Su & Li 2017, section 3)."""
    moved = Sensitivity.linf(1)
    mechanism = dm.SparseVector.for_epsilon(1, moved)

    def run(answers: list[float]) -> tuple[bool, ...]:
        session = mechanism.start(threshold=0)
        told: list[bool] = []
        for answer in answers:
            told.append(bool(session.ask(answer)))
            if session.remaining == 0:
                break
        return tuple(told)

    pairs = (([0.0] * 5 + [1.0], [1.0] * 5 + [0.0]), ([0.0, 0.0, 1.0], [-1.0, -1.0, 2.0]))
    return _of(
        mechanism,
        *pairs,
        moved=moved,
        draw=_one_by_one(run),
        about="ε = 1, on streams of queries that all move, the last one against the others",
    )


def _tree_counter() -> Subject:
    mechanism = dm.TreeCounter(3, 4)

    def run(increments: tuple[int, ...]) -> tuple[int | float, ...]:
        session = mechanism.start()
        return tuple(session.add(increment) for increment in increments)

    return _of(
        mechanism,
        ((0, 0, 0, 0), (1, 0, 0, 0)),
        moved=ONCE,
        draw=_one_by_one(run),
        about="scale 3, on a stream of four whose first increment is 0 or 1",
    )


def _subsampled() -> Subject:
    mechanism = dm.Subsampled(dm.Laplace(1), "1/2")
    draw = _one_by_one(lambda rows: mechanism.release(rows, np.sum))
    return _of(
        mechanism,
        (np.zeros(0), np.ones(1)),
        moved=Sensitivity.l1(1),
        draw=draw,
        about="Laplace noise of scale 1 on a sample at rate 1/2, without and with a row",
    )


def _without_replacement() -> Subject:
    moved = Sensitivity.l1(1, adjacency=Adjacency.REPLACE)
    mechanism = dm.SubsampledWithoutReplacement(dm.Laplace(1), 1, 2)
    draw = _one_by_one(lambda rows: mechanism.release(rows, np.sum))
    return _of(
        mechanism,
        (np.zeros(2), np.array([0.0, 1.0])),
        moved=moved,
        draw=draw,
        about="Laplace noise of scale 1 on one of two rows, of which one is 0 or 1",
    )
