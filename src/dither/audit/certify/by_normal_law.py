"""The audit under the assumption that outputs are normal with one variance: what follows for tails that nobody draws.

Means and variance have exact intervals (Student's t and χ²), and the whole curve of two normal laws follows from their
distance in standard deviations, μ (Balle & Wang 2018, Theorem 5). The assumption is checked on draws of their own, and
the audit is refused where it is plainly false; it can't be proven, so the result says what it rests on.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit
from scipy.stats import chi2, f

from dither.audit.certify.by_sampling import LONGEST_STEP, PATIENCE, PLANNED
from dither.audit.certify.task import Certified, Task, fingerprints, probed
from dither.audit.counting import Enclosure, epsilon_down
from dither.audit.drawing import clock
from dither.audit.drawing.draws import LARGEST_BLOCK, Draws, collect
from dither.audit.drawing.workers import blocks, totals
from dither.audit.outputs.layout import Columns, Layout, expect_independent, layout_of
from dither.audit.result import Sketch
from dither.errors import InvalidData
from dither.mechanisms.base import Floats
from dither.mechanisms.gaussian import gaussian_profile
from dither.numeric import largest_true

CHECKED = 20_000
# Each of the three checks refuses a normal mechanism with this probability.
CHECK_FAILURE = 1e-9
# Relative errors of sums and of the library's quantiles, and more.
SLACK = 1e-9
FEWEST = 8
LARGEST_EPSILON = 600.0
BARS = 60


@dataclass(frozen=True, slots=True, eq=False)
class NormalAxis:
    """A number made of the output on which the two inputs differ most: the output itself, or a weighted sum.

    A weighted sum of a normal vector is normal, and what it shows the whole output shows at least.
    """

    names: tuple[str, ...]
    weights: Floats
    centre: float
    spread: float

    @classmethod
    def fitted(cls, first: Columns, second: Columns) -> NormalAxis:
        """Fisher's (1936) direction, and units in which sums lose no digits."""
        names = tuple(first.numbers)
        a, b = (np.column_stack([side.numbers[name] for name in names]) for side in (first, second))
        _expect_numbers(a, b)
        weights = np.ones(1)
        if len(names) > 1:
            centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
            within = centred.T @ centred / len(centred)
            ridge = 1e-9 * max(float(np.trace(within)) / len(names), 1e-300)
            weights = np.linalg.solve(within + ridge * np.eye(len(names)), a.mean(axis=0) - b.mean(axis=0))
        both = np.concatenate([a, b]) @ weights
        spread = float(both.std())
        if not 0 < spread < math.inf:
            raise InvalidData("outputs don't vary, so they aren't normal: audit without the assumption")
        return cls(names, weights, float(both.mean()), spread)

    def of(self, columns: Columns) -> Floats:
        """The number, in its own units."""
        rows = np.column_stack([columns.numbers[name] for name in self.names])
        return np.asarray((rows @ self.weights - self.centre) / self.spread)

    def outwards(self, place: float) -> float:
        """A place in the mechanism's units."""
        return self.centre + self.spread * place

    @property
    def words(self) -> str:
        """What the number is."""
        return self.names[0] if len(self.names) == 1 else f"a weighted sum of {len(self.names)} numbers of the output"


def by_normal_law(task: Task) -> list[Certified]:
    """All that follows from the two means and the variance, at every look."""
    pair = task.draws()
    task.tell("looking at outputs")
    for draws in pair:
        draws(1)
    raw = collect(pair, most=CHECKED, seconds=0.1 * task.left)
    layout = layout_of(*raw)
    first, second = layout.read(raw[0]), layout.read(raw[1])
    if first.kinds and not first.numbers:
        raise InvalidData("outputs that aren't numbers can't be normal: audit without the assumption")
    # before the clock is looked at: what is plainly not normal is refused however slowly it was read
    axis = NormalAxis.fitted(first, second)
    if task.left <= 0:
        return []
    raw = collect(pair, most=CHECKED, seconds=0.15 * task.left)
    read = (layout.read(raw[0]), layout.read(raw[1]))
    for side in read:
        expect_independent(side)
    sample = (axis.of(read[0]), axis.of(read[1]))
    _expect_normal(*sample)
    if task.left <= 0:
        return []
    moments, each = _sized(task, pair, layout, axis)
    planned = max(1, int(PLANNED * task.left * task.workers / max(each, 1e-9)))
    findings = []
    patience = min(PATIENCE, task.left / 2)
    with closing(blocks(moments, moments.probe, task.workers, patience=patience)) as arriving:
        for look, total in totals(arriving, planned, task.until):
            task.tell("measuring means and variance")
            found = _finding(task, axis, _box(total, task.failure * look.share), sample, int(total[:, 0].sum()))
            findings.append(found)
            if task.stop and found.refutes:
                break
    return findings


@dataclass(frozen=True, slots=True)
class MomentTally:
    """One block: how many draws of each input, their sum and the sum of their squares."""

    pair: tuple[Draws, Draws]
    layout: Layout
    axis: NormalAxis
    size: int

    def __call__(self) -> Floats:
        """A row for each input."""
        found = np.empty((2, 3))
        for side, draws in enumerate(self.pair):
            numbers = self.axis.of(self.layout.read(draws(self.size)))
            found[side] = numbers.size, numbers.sum(), (numbers**2).sum()
        return found

    def probe(self) -> frozenset[bytes]:
        """Fingerprints of the next draws."""
        return fingerprints(self.layout.read(self.pair[0](probed(self.pair[0].each))))


def _sized(task: Task, pair: tuple[Draws, Draws], layout: Layout, axis: NormalAxis) -> tuple[MomentTally, float]:
    trial = max(1, min(1 << 14, int(0.01 * task.left / max(pair[0].each + pair[1].each, 1e-9))))
    start = clock.now()
    MomentTally(pair, layout, axis, trial)()
    each = (clock.now() - start) / trial
    step = min(LONGEST_STEP, task.left / 100)
    size = max(2, min(LARGEST_BLOCK // len(axis.names), int(step / max(each, 1e-10))))
    return MomentTally(pair, layout, axis, size), each * size


# ------------------------------------------------------------------ what the moments say


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where the parameters lie, all at once: both means, the standard deviation, and the distance in its units.

    ``first`` says whether the first input's mean is the larger one.
    """

    means: tuple[Enclosure, Enclosure]
    deviation: Enclosure
    distance_down: float
    first: bool
    guess: tuple[float, float, float]


def _box(total: Floats, failure: float) -> Box:
    """Student's and the χ² intervals, moved outward by what sums of floats lose.

    Three tenths of the failure each for what decides (the distance of the means from below, the deviation from above),
    the rest for what is shown beside it.
    """
    (n, sum_a, squares_a), (m, sum_b, squares_b) = total.tolist()
    freedom = n + m - 2
    if min(n, m) < FEWEST:
        anywhere = Enclosure(-math.inf, math.inf)
        guess, deviates = (0.0, 0.0, 1.0), Enclosure(0.0, math.inf)
        return Box(means=(anywhere, anywhere), deviation=deviates, distance_down=0.0, first=True, guess=guess)
    a, b = sum_a / n, sum_b / m
    variance = max((squares_a - n * a * a) + (squares_b - m * b * b), 0.0) / freedom
    deviation = math.sqrt(variance)
    high = math.sqrt(freedom / float(chi2.ppf(0.3 * failure, freedom))) * deviation * (1 + SLACK)
    low = math.sqrt(freedom / float(chi2.isf(0.1 * failure, freedom))) * deviation * (1 - SLACK)
    # the sign of the difference is seen in the same draws, so the quantile is that of both tails
    reach = -float(stdtrit(freedom, 0.15 * failure)) * deviation * math.sqrt(1 / n + 1 / m)
    difference = abs(a - b) * (1 - SLACK) - reach * (1 + SLACK) - SLACK * deviation
    tail = -float(stdtrit(freedom, 0.05 * failure)) * deviation * (1 + SLACK)
    means = tuple(
        Enclosure(mean - tail / math.sqrt(size) - SLACK * deviation, mean + tail / math.sqrt(size) + SLACK * deviation)
        for mean, size in ((a, n), (b, m))
    )
    return Box(
        means=(means[0], means[1]),
        deviation=Enclosure(low, high),
        distance_down=max(0.0, difference / high) if high > 0 else 0.0,
        first=a > b,
        guess=(a, b, deviation),
    )


def _finding(task: Task, axis: NormalAxis, box: Box, sample: tuple[Floats, Floats], draws: int) -> Certified:
    mu = box.distance_down
    refutes, witness = _contradiction(task, mu)
    bound = _epsilon_down(mu, task.delta) if task.delta > 0 else None
    a, b, deviation = box.guess
    upper, lower = (a, b) if box.first else (b, a)
    gap = max(upper - lower, 1e-12)
    if witness is None:
        witness = bound if bound else None
    # the best event for ε is where the likelihood ratio is e^ε; without an ε, seven deviations beyond the lower mean
    cut = (a + b) / 2 + witness * deviation**2 / gap if witness is not None else lower + 7 * deviation
    p_side, q_side = (0, 1) if box.first else (1, 0)
    p, q = (_above(cut, box.means[side], box.deviation) for side in (p_side, q_side))
    return Certified(
        epsilon=epsilon_down(p.low, q.high, 0.0) if bound is None else bound,
        refutes=refutes,
        event=f"{axis.words} ≥ {axis.outwards(cut):.6g}",
        first=box.first,
        p=p,
        q=q,
        draws=draws,
        sketch=lambda: _sketch(axis, sample, cut),
    )


def _contradiction(task: Task, mu: float) -> tuple[bool, float | None]:
    """Whether two normal laws at distance μ exceed the claimed δ(ε) somewhere, and the ε where they do so most."""
    if task.claim is None or mu <= 0:
        return False, None
    positive = task.claim.epsilons >= 0
    epsilons, claimed = task.claim.epsilons[positive], task.claim.deltas[positive]
    true = gaussian_profile(mu, epsilons) * (1 - 2.0**-36) - 2e-300
    excess = np.log(np.maximum(true, 1e-320)) - np.log(np.maximum(claimed, 1e-320))
    place = int(np.argmax(np.where(true > claimed, excess, -np.inf)))
    return bool((true > claimed).any()), float(epsilons[place]) if (true > claimed).any() else None


def _epsilon_down(mu: float, delta: float) -> float:
    """The largest ε at which two normal laws at distance μ still exceed δ."""

    def exceeds(epsilon: float) -> bool:
        return float(gaussian_profile(mu, np.array([epsilon]))[0]) * (1 - 2.0**-36) > delta

    if mu <= 0 or not exceeds(0.0):
        return 0.0
    return largest_true(exceeds, 0.0, LARGEST_EPSILON, relative=1e-12)


def _above(cut: float, mean: Enclosure, deviation: Enclosure) -> Enclosure:
    """The probability of a half line, over all means and deviations of the box."""
    if not (math.isfinite(mean.low) and deviation.low > 0 and math.isfinite(deviation.high)):
        return Enclosure(0.0, 1.0)
    corners = [float(ndtr((m - cut) / s)) for m in (mean.low, mean.high) for s in (deviation.low, deviation.high)]
    return Enclosure(min(corners) * (1 - SLACK), min(1.0, max(corners) * (1 + SLACK)))


# ------------------------------------------------------------------ is the assumption plainly false?


def _expect_numbers(*samples: Floats) -> None:
    if not all(np.isfinite(sample).all() for sample in samples):
        raise InvalidData("some outputs aren't finite numbers, so they aren't normal: audit without the assumption")


def _expect_normal(first: Floats, second: Floats) -> None:
    """Refuse outputs that normal laws with one variance hardly ever give."""
    _expect_numbers(first, second)
    if min(first.size, second.size) < FEWEST:
        return
    for numbers in (first, second):
        if numbers.std() == 0 or anderson_darling(numbers) < CHECK_FAILURE:
            raise InvalidData("outputs are plainly not normal: audit without the assumption")
    ratio = float(first.var(ddof=1) / second.var(ddof=1))
    larger = max(ratio, 1 / ratio)
    if 2 * float(f.sf(larger, first.size - 1, second.size - 1)) < CHECK_FAILURE:
        raise InvalidData("the two inputs plainly have different variances: audit without the assumption")


def anderson_darling(numbers: Floats) -> float:
    """The p-value of Anderson & Darling's test for a normal law, parameters unknown (D'Agostino & Stephens 1986)."""
    n = numbers.size
    z = np.sort((numbers - numbers.mean()) / numbers.std(ddof=1))
    rank = np.arange(1, n + 1)
    logs = np.log(np.maximum(ndtr(z), 1e-300)) + np.log(np.maximum(ndtr(-z[::-1]), 1e-300))
    statistic = (-n - float(((2 * rank - 1) * logs).sum()) / n) * (1 + 0.75 / n + 2.25 / n**2)
    if statistic < 0.6:
        return 1.0  # nothing to see, and the formula is another one
    return min(1.0, math.exp(min(0.0, 1.2937 - 5.709 * statistic + 0.0186 * min(statistic, 100.0) ** 2)))


def _sketch(axis: NormalAxis, sample: tuple[Floats, Floats], cut: float) -> Sketch:
    both = np.concatenate(sample)
    edges = np.linspace(float(both.min()), max(float(both.max()), cut), BARS + 1)
    x, other = (np.histogram(side, edges)[0].astype(np.float64) for side in sample)
    return Sketch(
        label=axis.words,
        edges=axis.centre + axis.spread * edges,
        x=x,
        x_neighbour=other,
        inside=edges[:-1] >= cut,
        cut=axis.outwards(cut),
    )
