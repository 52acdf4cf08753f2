"""Reading RAPPOR's counted bits against a list of candidates: who is there, how often, and how sure that is.

The share t of a cohort's people who have a bit set is, on average, Σ θ_v·x_v over the values v, x_v being 1 where v
sets that bit. Values that aren't candidates set every bit alike, with probability b, as far as anybody can say
beforehand. So

    t − b  =  Σ θ_v·(x_v − b)  +  noise,          over all bits of all cohorts and all candidates v,

and weighted least squares estimates every θ_v without bias. All candidates are estimated together and nothing is
selected beforehand, so that tests and intervals hold as they stand. With more candidates than bits can tell apart, one
half of the cohorts picks (a lasso) and the other half, people of their own, estimates and tests what was picked.
``rappor.md`` says what the errors account for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpocon
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import chdtrc, ndtr, ndtri

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.rappor import text_of
from dither.local.core.protocol import Floats
from dither.local.core.tables import MOST_ROWS, EstimateRow, EstimateTable, Shown, meaning, within
from dither.local.rappor.counting import CohortAggregator, Filters
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, as_fraction, positive_int

Matrix = csr_array

# Least squares with more unknowns than half of its equations would mostly fit noise.
MOST_UNKNOWNS = 2
# Expected number of false candidates that are picked for each equation of the half that tests.
PICKED_BY_CHANCE = 1 / 8
# Columns as alike as this can't be told apart.
SMALLEST_CONDITION = 1e-8
# The variance among cohorts says something about a candidate's error if there are this many.
ENOUGH_COHORTS = 16
# The joint law of a value's own bits is followed for this many of the most frequent candidates, and bounded for others.
FOLLOWED = 64
# Tests take sums over all reports to be normal. Of a single report one in twelve would find what isn't there.
FEWEST_REPORTS = 24
# A printed decoding warns of a misfit whose p-value is below this.
SUSPICIOUS = 1e-6
CHUNK = 1 << 22


class Control(Enum):
    """What is kept small among the candidates that are said to be there."""

    FAMILYWISE = "the probability that any of them isn't"
    FALSE_DISCOVERY = "the expected share of those that aren't"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCandidate:
    """One candidate that people have; the count is the share times the number of reports."""

    candidate: str
    share: float
    share_interval: tuple[float, float]
    count: float
    count_interval: tuple[float, float]
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Decoding(Shown):
    """What reports say about candidates; a table of those that are there when printed.

    ``candidates`` are those that were tested: all, unless there were too many (then ``unpicked`` says how many were
    left out). For each: an unbiased share (it may be negative), its standard error, the p-value of "nobody has it", an
    interval, and whether it is ``present`` as ``control`` decides at 1 − ``confidence``. The intervals hold for all
    tested candidates together. ``listed`` is the share of people whose value is among the tested candidates, unbiased
    like the others, with its own interval. ``misfit`` is the p-value of "tested candidates and thinly spread others
    explain the bits": if it is tiny, a frequent value is missing from the list, and errors, though larger for that, are
    to be read with care.
    """

    candidates: tuple[str, ...]
    shares: Floats
    standard_errors: Floats
    p_values: Floats
    intervals: Floats
    present: npt.NDArray[np.bool_]
    listed: float
    listed_interval: tuple[float, float]
    misfit: float
    unpicked: int
    reports: int
    confidence: float
    control: Control

    @property
    def counts(self) -> Floats:
        """The shares times the number of reports."""
        return self.shares * self.reports

    @property
    def explained(self) -> float:
        """The share of people that the candidates that were found account for."""
        return float(self.shares[self.present].sum())

    def table(self) -> EstimateTable:
        """The most frequent ones among those that are there."""
        found = self.found
        low, high = self.listed_interval
        listed = within(self.listed, self.listed_interval)
        notes = [
            meaning(self.confidence, simultaneous=True, reports=self.reports),
            f"found among {len(self.candidates):,} candidates that were tested; {self.unpicked:,} were left out",
            f"people whose value is a tested candidate: {listed:.3f} ({low:.3f} … {high:.3f})",
        ]
        if self.misfit < SUSPICIOUS:
            notes.append("the bits don't fit: a frequent value seems to be missing from the list of candidates")
        rows = [
            EstimateRow(name=one.candidate, value=one.share, interval=one.share_interval) for one in found[:MOST_ROWS]
        ]
        return EstimateTable(names="candidate", values="share", rows=rows, number=len(found), notes=notes)

    @property
    def found(self) -> list[FoundCandidate]:
        """The candidates that are there, the most frequent first."""
        order = [int(v) for v in np.argsort(-self.shares, kind="stable") if self.present[v]]
        ends = [(float(low), float(high)) for low, high in self.intervals]
        return [
            FoundCandidate(
                candidate=self.candidates[v],
                share=float(self.shares[v]),
                share_interval=ends[v],
                count=float(self.shares[v]) * self.reports,
                count_interval=(ends[v][0] * self.reports, ends[v][1] * self.reports),
                p_value=float(self.p_values[v]),
            )
            for v in order
        ]


def decode(
    aggregate: CohortAggregator,
    candidates: Sequence[str],
    *,
    confidence: Number = 0.95,
    control: Control = Control.FAMILYWISE,
) -> Decoding:
    """Which of the candidates people have, and how many of them.

    Assumes: the people who report are an independent sample; one report each; candidates chosen without looking at the
        reports; cohorts with enough reports (some dozens) for sums of them to be normal; values that aren't candidates
        are many, none of them much more frequent than what can be detected.
    """
    names = () if isinstance(candidates, str) else tuple(candidates)
    texts = [text_of(name) for name in names]
    if not texts or len(set(texts)) < len(texts):
        raise InvalidParameter("candidates are a list of different texts, at least one")
    if aggregate.reports < FEWEST_REPORTS:
        raise InvalidData(
            f"at least {FEWEST_REPORTS} reports are needed to decode: of fewer the errors aren't normal, and one lie "
            "could pass for a discovery"
        )
    failure = failure_probability(confidence)
    protocol = aggregate.protocol
    heard = np.flatnonzero(aggregate.cohort_reports)
    equations, unpicked = heard.size * protocol.bits, 0
    places = protocol.places(texts)
    tested = np.arange(len(texts))
    if _too_many(len(texts), equations):
        picking, heard = heard[::2], heard[1::2]
        if not heard.size:
            raise InvalidParameter(
                f"{len(texts)} candidates are too many for one cohort of {protocol.bits} bits: collect with more"
            )
        tested = _picked(_Equations(aggregate, picking, places), heard.size * protocol.bits)
        unpicked = len(texts) - tested.size
    if not tested.size:
        return _nothing(unpicked, aggregate, confidence, control)
    fit = _Fit(_Equations(aggregate, heard, places[:, tested]))
    errors = fit.standard_errors()
    tail = ndtr(-fit.shares / errors)
    reach = -float(ndtri(failure / 2 / tested.size)) * errors
    intervals = np.clip(np.stack([fit.shares - reach, fit.shares + reach], axis=1), 0.0, 1.0)
    total, total_reach = float(fit.shares.sum()), -float(ndtri(failure / 2)) * fit.error_of_sum()
    return Decoding(
        candidates=tuple(names[v] for v in tested),
        shares=fit.shares,
        standard_errors=errors,
        p_values=tail,
        intervals=intervals,
        present=_present(tail, failure, control),
        listed=total,
        listed_interval=(max(0.0, min(1.0, total - total_reach)), min(1.0, max(0.0, total + total_reach))),
        misfit=fit.misfit,
        unpicked=unpicked,
        reports=aggregate.reports,
        confidence=float(as_fraction(confidence)),
        control=control,
    )


def detection_limit(
    protocol: Filters, reports: int, candidates: int, *, confidence: Number = 0.95, power: Number = 0.5
) -> float:
    """The share that a candidate needs to be found with probability ``power``, about: it falls with √reports.

    ``candidates`` is the length of the list, for ``Control.FAMILYWISE`` at 1 − ``confidence``.

    Example:
        >>> from dither.local.rappor.protocol import Rappor
        >>> rappor = Rappor(f="1/2", p="1/2", q="3/4")
        >>> [f"{detection_limit(rappor, n, candidates=100):.4f}" for n in (10_000, 1_000_000)]
        ['0.0938', '0.0094']
    """
    n, m = positive_int(reports, "reports"), positive_int(candidates, "candidates")
    chance = float(as_fraction(power, "power"))
    if not 0 < chance < 1:
        raise InvalidParameter(f"power must lie between 0 and 1; got {power!r}")
    equations, people = protocol.bits * protocol.cohorts, float(n)
    if _too_many(m, equations):
        equations, people = equations // 2, n / 2
        m = min(m, max(1, int(equations * PICKED_BY_CHANCE)))
    hit, miss, background = float(protocol.hit), float(protocol.miss), _background(protocol)
    one = miss + (hit - miss) * background
    informative = people * protocol.bits * background * (1 - background)
    error = math.sqrt(one * (1 - one) / informative * equations / (equations - m)) / (hit - miss)
    return (-float(ndtri(failure_probability(confidence) / m)) + float(ndtri(chance))) * error


# ------------------------------------------------------------------ equations and their solution


class _Equations:
    """t − b = Σ θ_v(x_v − b) for the bits of some cohorts, with the variances of its sides."""

    def __init__(
        self, aggregate: CohortAggregator, cohorts: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> None:
        protocol = aggregate.protocol
        self.protocol, self.cohorts, self.unknowns = protocol, cohorts.size, places.shape[1]
        self.hit, self.miss = float(protocol.hit), float(protocol.miss)
        self.background = _background(protocol)
        people = aggregate.cohort_reports[cohorts].astype(np.float64)
        self.people = np.repeat(people, protocol.bits)
        shares = (aggregate.ones[cohorts] / people[:, None] - self.miss) / (self.hit - self.miss)
        self.targets: Floats = shares.ravel() - self.background
        rows = places[cohorts] + protocol.bits * np.arange(cohorts.size)[:, None, None]
        columns = np.broadcast_to(np.arange(self.unknowns)[None, :, None], rows.shape)
        where = np.unique(rows.ravel() * self.unknowns + columns.ravel())
        entries = (np.ones(where.size), (where // self.unknowns, where % self.unknowns))
        self.design: Matrix = csr_array(entries, shape=(self.targets.size, self.unknowns))

    def fitted(self, shares: Floats) -> Floats:
        """What the right-hand sides come to."""
        return np.asarray(self.design @ shares) - self.background * float(shares.sum())

    def scores(self, sides: Floats) -> Floats:
        """Σ (x_v − b)·side over all equations, for every candidate."""
        return np.asarray(self.design.T @ sides) - self.background * float(sides.sum())

    def weights(self, shares: Floats) -> Floats:
        """One over the variance of each target, if the shares are these."""
        one = self.miss + (self.hit - self.miss) * self.expected(shares)
        return np.asarray(self.people * (self.hit - self.miss) ** 2 / (one * (1 - one)))

    def expected(self, shares: Floats) -> Floats:
        """The shares of people who have each bit set, if the shares of candidates are these."""
        return np.clip(self.background + self.fitted(_possible(shares)), 0.0, 1.0)


class _Fit:
    """Weighted least squares, with errors that account for what is random.

    Weights come from a first solution; whatever they are, the second is linear in the targets, and the error is that of
    the linear combination Σ a·t that each share is.
    """

    def __init__(self, equations: _Equations) -> None:
        self._equations = equations
        first = self._solve(equations.weights(np.zeros(equations.unknowns)))
        self.shares = self._solve(equations.weights(first))
        self._left = equations.targets - equations.fitted(self.shares)
        self._freedom = equations.targets.size - equations.unknowns
        self._squares = float(self._weights @ self._left**2)

    @property
    def misfit(self) -> float:
        """The p-value of "the rest is noise", from the sum of weighted squares (chi-square)."""
        return float(chdtrc(self._freedom, self._squares))

    def _solve(self, weights: Floats) -> Floats:
        equations, b = self._equations, self._equations.background
        weighted = equations.design.multiply(weights[:, None]).tocsr()
        sums = np.asarray(weighted.sum(axis=0)).ravel()
        gram = np.asarray((weighted.T @ equations.design).todense())
        gram += b * b * float(weights.sum()) - b * (sums[:, None] + sums[None, :])
        scale = 1 / np.sqrt(np.maximum(np.diag(gram), 1e-300))
        gram *= scale[:, None] * scale[None, :]
        try:
            factor = cho_factor(gram, lower=False)
            condition, _ = dpocon(factor[0], float(np.abs(gram).sum(axis=0).max()))
        except np.linalg.LinAlgError:
            condition = 0.0
        if condition < SMALLEST_CONDITION:
            raise InvalidParameter(
                "some candidates set the same bits and can't be told apart: leave one of each such pair out, or "
                "collect with more bits or cohorts"
            )
        self._weights, self._factor, self._scale = weights, factor, scale
        return np.asarray(self._scaled(equations.scores(weights * equations.targets)))

    def _scaled(self, sides: Floats) -> Floats:
        scale = self._scale if sides.ndim == 1 else self._scale[:, None]
        return np.asarray(scale * cho_solve(self._factor, scale * sides))

    def _combinations(self, wanted: Floats) -> Floats:
        """The rows a with Σ a·t = wanted·shares, for rows ``wanted`` over the candidates."""
        equations = self._equations
        solved = self._scaled(np.ascontiguousarray(wanted.T)).T
        spread = np.asarray(equations.design @ solved.T).T - equations.background * solved.sum(axis=1)[:, None]
        return np.asarray(spread * self._weights)

    def standard_errors(self) -> Floats:
        """The standard error of every share."""
        unknowns, found = self._equations.unknowns, []
        step = max(1, CHUNK // self._equations.targets.size)
        for start in range(0, unknowns, step):
            wanted = np.zeros((min(step, unknowns - start), unknowns))
            wanted[np.arange(wanted.shape[0]), start + np.arange(wanted.shape[0])] = 1.0
            found.append(self._variances(self._combinations(wanted)))
        return np.sqrt(np.concatenate(found))

    def error_of_sum(self) -> float:
        """The standard error of the sum of all shares."""
        return math.sqrt(self._variances(self._combinations(np.ones((1, self._equations.unknowns))))[0])

    def _variances(self, rows: Floats) -> Floats:
        """The largest of the variance that the model implies, the one that is left over, and the one among cohorts.

        A frequent value that isn't a candidate makes all that is left over larger; and it sets the bits of some
        candidate in a few cohorts more often than by chance, so that the contributions of the cohorts disagree.
        """
        equations = self._equations
        model = self._model_variances(rows) * max(1.0, self._squares / self._freedom)
        if equations.cohorts < ENOUGH_COHORTS:
            return np.asarray(model)
        parts = (rows * self._left).reshape(rows.shape[0], equations.cohorts, -1).sum(axis=2)
        taken = equations.cohorts / (equations.cohorts - 1) * equations.targets.size / self._freedom
        return np.asarray(np.maximum(model, taken * (parts**2).sum(axis=1)))

    def _model_variances(self, rows: Floats) -> Floats:
        """Coins are independent; who has which value is a sample, and a value's own bits come together."""
        equations, b = self._equations, self._equations.background
        hit, miss, gap = equations.hit, equations.miss, equations.hit - equations.miss
        expected = equations.expected(self.shares)
        coins = (expected * hit * (1 - hit) + (1 - expected) * miss * (1 - miss)) / gap**2
        possible = _possible(self.shares)
        followed = np.argsort(-possible)[:FOLLOWED]
        others = max(0.0, 1.0 - float(possible[followed].sum()))
        # of a value whose bits aren't followed: (Σ a)² ≤ h·Σ a² over its h bits
        per_person = coins + others * b * equations.protocol.hashes
        variances = (rows**2) @ (per_person / equations.people)
        bits = equations.protocol.bits
        for cohort in range(equations.cohorts):
            part = slice(cohort * bits, (cohort + 1) * bits)
            sets = np.asarray(equations.design[part][:, followed].todense())
            told = rows[:, part] @ sets
            second = (told**2) @ possible[followed]
            mean = rows[:, part] @ expected[part]
            variances += np.maximum(second - mean**2, 0.0) / equations.people[cohort * bits]
        return np.asarray(variances)


def _picked(equations: _Equations, testing: int) -> npt.NDArray[np.int64]:
    """The candidates that a lasso without negative coefficients keeps (Tibshirani 1996).

    Its penalty lets a candidate that nobody has through about as often as the half that tests can bear. For θ ≥ 0 the
    penalty is linear, so this is a smooth problem with bounds.
    """
    weights = equations.weights(np.zeros(equations.unknowns))
    squares = np.asarray(equations.design.multiply(weights[:, None]).sum(axis=0)).ravel()
    scale = 1 / np.sqrt(np.maximum(squares * (1 - equations.background), 1e-300))
    by_chance = min(0.1, testing * PICKED_BY_CHANCE / equations.unknowns)
    penalty = -float(ndtri(by_chance))

    def objective(scaled: Floats) -> tuple[float, Floats]:
        left = equations.targets - equations.fitted(scale * scaled)
        value = 0.5 * float(weights @ left**2) + penalty * float(scaled.sum())
        return value, penalty - scale * equations.scores(weights * left)

    start = np.zeros(equations.unknowns)
    solved = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * equations.unknowns)
    largest = np.argsort(-solved.x)[: testing // MOST_UNKNOWNS]
    return np.sort(largest[solved.x[largest] > 1e-6 * max(1.0, float(solved.x.max()))])


def _present(p_values: Floats, failure: float, control: Control) -> npt.NDArray[np.bool_]:
    """Bonferroni's rule, or the step-up of Benjamini & Hochberg (1995)."""
    m = p_values.size
    if control is Control.FAMILYWISE:
        return np.asarray(p_values <= failure / m)
    ordered = np.sort(p_values)
    passing = np.flatnonzero(ordered <= failure * np.arange(1, m + 1) / m)
    return np.asarray(p_values <= (ordered[passing[-1]] if passing.size else -1.0))


def _nothing(unpicked: int, aggregate: CohortAggregator, confidence: Number, control: Control) -> Decoding:
    nothing = np.zeros(0)
    return Decoding(
        candidates=(),
        shares=nothing,
        standard_errors=nothing.copy(),
        p_values=nothing.copy(),
        intervals=np.zeros((0, 2)),
        present=np.zeros(0, dtype=np.bool_),
        listed=0.0,
        listed_interval=(0.0, 1.0),
        misfit=1.0,
        unpicked=unpicked,
        reports=aggregate.reports,
        confidence=float(as_fraction(confidence)),
        control=control,
    )


def _background(protocol: Filters) -> float:
    """The probability that a value of which nothing is known sets a given bit."""
    return -math.expm1(protocol.hashes * math.log1p(-1 / protocol.bits))


def _possible(shares: Floats) -> Floats:
    """Shares that aren't negative and sum to at most 1."""
    positive = np.maximum(shares, 0.0)
    return np.asarray(positive / max(1.0, float(positive.sum())))


def _too_many(candidates: int, equations: int) -> bool:
    return MOST_UNKNOWNS * candidates > equations
