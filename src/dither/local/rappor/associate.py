"""Two variables that the same people report by RAPPOR: which values go together (Fanti, Pihur & Erlingsson 2016).

Each person sends two reports, one for each variable, with noise of their own. The joint shares are estimated by maximum
likelihood. The likelihood is concave in them; the EM algorithm climbs it, and how far the top still is at most is known
at every step. Whoever reports both pays for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.rappor import COHORT_BYTES, text_of
from dither.local.core.protocol import Floats, Payloads
from dither.local.core.tables import MOST_ROWS, EstimateRow, EstimateTable, Shown, meaning
from dither.local.rappor.counting import cohorts_of
from dither.local.rappor.protocol import Rappor
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, as_fraction

# The climb stops when the top is at most this much higher: then each estimate is within an eighth of its error of it.
ENOUGH = 0.01
LONGEST_CLIMB = 20_000
# Directions in which the reports say less than this, relative to the best known one, count as unknown.
SMALLEST_CONDITION = 1e-10
# More joint shares than this would need matrices beyond what one machine likes.
MOST_UNKNOWNS = 2000
CHUNK = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Association(Shown):
    """The joint shares of two variables; a table of the largest when printed.

    ``joint[i, j]`` is the share of people with value i of the first variable and j of the second; the last row and
    column, if ``unlisted``, stand for all values that aren't candidates. ``covariance`` is that of the joint shares,
    row by row, from the observed information; ``intervals`` hold for all of them together.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    unlisted: bool
    joint: Floats
    covariance: Floats
    intervals: Floats
    people: int
    confidence: float

    def __post_init__(self) -> None:
        for array in (self.joint, self.covariance, self.intervals):
            array.flags.writeable = False

    def table(self) -> EstimateTable:
        """The largest joint shares."""
        names = [[*part, *(["(not listed)"] if self.unlisted else [])] for part in (self.first, self.second)]
        places = np.argsort(-self.joint, axis=None, kind="stable")[:MOST_ROWS]
        rows = []
        for row, column in zip(*np.unravel_index(places, self.joint.shape), strict=True):
            low, high = self.intervals[row, column]
            name = f"{names[0][row]} × {names[1][column]}"
            rows.append(
                EstimateRow(name=name, value=float(self.joint[row, column]), interval=(float(low), float(high)))
            )
        notes = [
            meaning(self.confidence, simultaneous=True, reports=self.people),
            "intervals are those of large samples",
        ]
        return EstimateTable(names="both", values="share", rows=rows, number=self.joint.size, notes=notes)

    @property
    def standard_errors(self) -> Floats:
        """The standard error of every joint share."""
        return np.asarray(np.sqrt(np.diag(self.covariance)).reshape(self.joint.shape))

    @property
    def margins(self) -> tuple[Floats, Floats]:
        """The shares of the first variable's values, and of the second's."""
        return np.asarray(self.joint.sum(axis=1)), np.asarray(self.joint.sum(axis=0))

    def dependence(self, row: int, column: int) -> tuple[float, float]:
        """How much more often two values occur together than if independent: the difference, and its standard error.

        It is the joint share less the product of the margins; the error is that of the delta method.
        """
        rows, columns = self.margins
        slope = np.zeros_like(self.joint)
        slope[row, column] = 1.0
        slope[row, :] -= columns[column]
        slope[:, column] -= rows[row]
        value = float(self.joint[row, column] - rows[row] * columns[column])
        return value, math.sqrt(max(0.0, float(slope.ravel() @ self.covariance @ slope.ravel())))


def associate(
    first: tuple[Rappor, Payloads, Sequence[str]],
    second: tuple[Rappor, Payloads, Sequence[str]],
    *,
    unlisted: bool = True,
    confidence: Number = 0.95,
) -> Association:
    """The joint shares of two variables, each given as collection, payloads and candidates.

    Row i of both payloads is of the same person.

    Args:
        first: Reports about the first text, with its candidates.
        second: Reports of the same people about the second.
        unlisted: Whether values occur that are no candidates.
        confidence: Of all intervals together.

    Assumes: the people who report are an independent sample, one pair of reports each; candidates chosen without
        looking at the reports. A value that isn't a candidate sets bits as a random one would (``unlisted``), or there
        is none. Errors and intervals are those of large samples; of shares near 0 they are rough.
    """
    failure = failure_probability(confidence)
    names = [_names(candidates) for _, _, candidates in (first, second)]
    likelihoods = [_likelihoods(*part, unlisted=unlisted) for part in (first, second)]
    people = likelihoods[0].shape[0]
    if people != likelihoods[1].shape[0] or not people:
        raise InvalidData("both variables need payloads of the same people, a row for each, and at least one")
    rows, columns = likelihoods[0].shape[1], likelihoods[1].shape[1]
    if rows * columns > MOST_UNKNOWNS:
        raise InvalidParameter(f"at most {MOST_UNKNOWNS} pairs of values can be estimated; got {rows} × {columns}")
    if people < rows * columns:
        raise InvalidData(
            f"{rows} × {columns} joint shares need at least as many people, better some hundred times as many: use "
            "fewer candidates or wait for more reports"
        )
    joint = _climb(*likelihoods)
    covariance = _covariance(joint, *likelihoods)
    reach = -float(ndtri(failure / 2 / joint.size)) * np.sqrt(np.diag(covariance)).reshape(joint.shape)
    return Association(
        first=names[0],
        second=names[1],
        unlisted=unlisted,
        joint=joint,
        covariance=covariance,
        intervals=np.clip(np.stack([joint - reach, joint + reach], axis=2), 0.0, 1.0),
        people=people,
        confidence=float(as_fraction(confidence)),
    )


def _names(candidates: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(candidates, str) else tuple(candidates)
    if not names or len({text_of(name) for name in names}) < len(names):
        raise InvalidParameter("candidates are a list of different texts, at least one")
    return names


def _likelihoods(protocol: Rappor, payloads: Payloads, candidates: Sequence[str], *, unlisted: bool) -> Floats:
    """How likely each report is for each candidate; every row in a unit of its own, which cancels."""
    reports = np.asarray(payloads)
    if reports.dtype != np.uint8 or reports.ndim != 2 or reports.shape[1] != protocol.width:
        raise InvalidData(f"payloads are rows of {protocol.width} bytes (uint8), as Rappor.randomize makes them")
    if not protocol.valid(reports).all():
        raise InvalidData("some payloads are none that a client of this collection sends: leave those people out")
    hit, miss = float(protocol.hit), float(protocol.miss)
    one, zero = math.log(hit / miss), math.log((1 - hit) / (1 - miss))
    places = protocol.places([text_of(name) for name in candidates])
    cohorts = cohorts_of(reports)
    logs = np.empty((reports.shape[0], len(candidates) + unlisted))
    for cohort in np.unique(cohorts):
        people = np.flatnonzero(cohorts == cohort)
        bits = np.unpackbits(reports[people, COHORT_BYTES:], axis=1, count=protocol.bits, bitorder="little")
        for v, where in enumerate(places[cohort]):
            own = np.unique(where)
            ones = bits[:, own].sum(axis=1, dtype=np.int64)
            logs[people, v] = ones * one + (own.size - ones) * zero
        if unlisted:
            # a random value's bits, as if they were independent: exact but for the few that come together
            share = -math.expm1(protocol.hashes * math.log1p(-1 / protocol.bits))
            often = miss + (hit - miss) * share
            total = bits.sum(axis=1, dtype=np.int64)
            shift = math.log(often / miss), math.log((1 - often) / (1 - miss))
            logs[people, -1] = total * shift[0] + (protocol.bits - total) * shift[1]
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _climb(first: Floats, second: Floats) -> Floats:
    """The joint shares that make the reports likeliest.

    EM replaces each share by its average posterior, share × gain. At the top no gain exceeds 1; anywhere the top is
    higher by at most people × (largest gain − 1), the likelihood being concave (Lindsay 1983). Every third step goes
    further along the line of the two before, if that is higher (Varadhan & Roland 2008).
    """
    people = first.shape[0]

    def step(joint: Floats) -> tuple[Floats, float, float]:
        heights = np.einsum("ui,ui->u", first @ joint, second)
        gains = first.T @ (second / heights[:, None]) / people
        return joint * gains, float(np.log(heights).sum()), float(gains.max()) - 1

    joint = np.full((first.shape[1], second.shape[1]), 1 / (first.shape[1] * second.shape[1]))
    for _ in range(LONGEST_CLIMB // 3):
        once, _, short = step(joint)
        if people * short < ENOUGH:
            return joint
        twice, _, _ = step(once)
        here, there = once - joint, twice - 2 * once + joint
        length = math.sqrt(float((here**2).sum()) / max(float((there**2).sum()), 1e-300))
        far = np.maximum(joint + 2 * length * here + length**2 * there, 1e-2 * twice)
        far /= far.sum()
        stepped, height, _ = step(far)
        _, safe, _ = step(twice)
        joint = stepped if height > safe else twice
    raise InvalidData("the reports say too little about these candidates for the estimate to settle: use fewer")


def _covariance(joint: Floats, first: Floats, second: Floats) -> Floats:
    """The inverse of the observed information, within shares that sum to 1."""
    size = joint.size
    information = np.zeros((size, size))
    heights = np.einsum("ui,ui->u", first @ joint, second)
    step = max(1, CHUNK // size)
    for start in range(0, first.shape[0], step):
        part = slice(start, start + step)
        gains = (first[part, :, None] * second[part, None, :]).reshape(-1, size) / heights[part, None]
        information += gains.T @ gains
    # directions in which the sum stays 1
    within = _sum_zero(size)
    inner = within.T @ information @ within
    known = np.linalg.eigvalsh(inner)
    if size > 1 and known[0] < SMALLEST_CONDITION * known[-1]:
        raise InvalidParameter(
            "some candidates set the same bits and can't be told apart: leave one of each such pair out, or collect "
            "with more bits or cohorts"
        )
    return np.asarray(within @ np.linalg.solve(inner, within.T))


def _sum_zero(size: int) -> npt.NDArray[np.float64]:
    """Orthonormal columns whose entries sum to 0."""
    full, _ = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, : size - 1]]))
    return np.asarray(full[:, 1:])
