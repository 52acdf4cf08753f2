"""The price of trusting nobody: local and central error on the same task, by theory and measured.

With a curator who is trusted one noise is added to the answer: the error of a mean is of order 1/(εn). Where everybody
adds noise of their own, n noises are averaged: 1/(ε√n). On the same task, at the same ε under REPLACE, the local error
is √n times as large.

    python local_and_central.py local-and-central.svg
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np

from dither import Adjacency, DiscreteLaplace, Laplace, Sensitivity
from dither.entropy import SYSTEM
from dither.local import best_mean, best_oracle
from dither.mechanisms.response_estimates import Target
from dither.pictures import EXACT, LINE, PRIVATE, picture

PEOPLE = (100, 1_000, 10_000, 100_000)


class Task(Enum):
    """What is asked."""

    MEAN = "mean of a number between 0 and 1"
    HISTOGRAM = "share of each category"


class Trust(Enum):
    """Who sees the exact values."""

    CENTRAL = "central"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One method on one task: the standard error that theory states, and the root mean square error of many runs."""

    task: Task
    trust: Trust
    method: str
    epsilon: float
    people: int
    theory: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Local and central error side by side; a table when printed."""

    rows: tuple

    def __str__(self):
        lines = [f"{'task':<10} {'trust':<8} {'method':<22} {'people':>9} {'theory':>10} {'measured':>10}"]
        lines += [
            f"{row.task.name.lower():<10} {row.trust.value:<8} {row.method:<22} {row.people:>9,} "
            f"{row.theory:>10.3g} {row.measured:>10.3g}"
            for row in self.rows
        ]
        return "\n".join(lines)

    def of(self, task, trust):
        """The rows of a task and a side, in their order."""
        return [row for row in self.rows if row.task is task and row.trust is trust]

    def draw(self, path):
        """Save the picture: lines are theory, dots were measured; both axes in powers of ten."""
        with picture(path, width=9.0, height=4.2) as figure:
            for place, task in enumerate(Task):
                axes = figure.add_subplot(1, 2, place + 1)
                axes.set(xscale="log", yscale="log", title=task.value, xlabel="people")
                if place == 0:
                    axes.set_ylabel("standard error")
                # by theory alone, so that the same lines are drawn whatever was measured
                people, errors = zip(*((row.people, row.theory) for row in self.rows if row.task is task), strict=True)
                axes.set(xlim=(min(people) / 1.5, max(people) * 1.5), ylim=(min(errors) / 2, max(errors) * 2))
                for trust, colour in ((Trust.LOCAL, EXACT), (Trust.CENTRAL, PRIVATE)):
                    rows = self.of(task, trust)
                    for number, method in enumerate(dict.fromkeys(row.method for row in rows)):
                        mine = [row for row in rows if row.method == method]
                        style, where = ("-", "--")[number % 2], [row.people for row in mine]
                        label = f"{trust.value}: {method}"
                        axes.plot(where, [row.theory for row in mine], style, color=colour, label=label)
                        fill = "white" if number else colour
                        dots = [row.measured for row in mine]
                        axes.plot(where, dots, "o", color=colour, markersize=5, markerfacecolor=fill)
                _mark_gap(axes, self.of(task, Trust.LOCAL), self.of(task, Trust.CENTRAL))
                axes.legend(loc="lower left")


def compare(epsilon=1, people=PEOPLE, *, categories=16, trials=100, source=SYSTEM):
    """Local and central error at one ε for several numbers of people, by theory and measured over ``trials`` runs.

    The population is made up and the same for all methods: squares of evenly spaced numbers for the mean, categories
    of which the j-th is as common as 1/j for the histogram. Errors are those of noise alone.
    """
    exact = Fraction(epsilon)
    rows = []
    for mean in (_local_noise, _local_best, _central_noise):
        rows += [_measure(Task.MEAN, mean(exact, _numbers(n), source), n, trials) for n in people]
    for histogram in (_local_oracle, _central_counts):
        rows += [_measure(Task.HISTOGRAM, histogram(exact, _members(n, categories), source), n, trials) for n in people]
    return Comparison(rows=tuple(rows))


@dataclass(frozen=True, kw_only=True)
class _Method:
    """A method on a population: what it costs, its variance, and one run's errors."""

    trust: Trust
    name: str
    epsilon: float
    variance: float
    run: Callable


def _measure(task, method, people, trials):
    squares = np.array([np.mean(method.run() ** 2) for _ in range(trials)])
    return Compared(
        task=task,
        trust=method.trust,
        method=method.name,
        epsilon=method.epsilon,
        people=people,
        theory=math.sqrt(method.variance),
        measured=math.sqrt(squares.mean()),
    )


# ------------------------------------------------------------------ populations


def _numbers(n):
    return ((np.arange(n) + 0.5) / n) ** 2


def _members(n, categories):
    weights = 1 / np.arange(1, categories + 1)
    ends = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(ends, (np.arange(n) + 0.5) / n), categories - 1)


# ------------------------------------------------------------------ means


def _central_noise(epsilon, values, source):
    sensitivity = Sensitivity.l1(Fraction(1, values.size), adjacency=Adjacency.REPLACE)
    noise, mean = Laplace(scale=1 / (epsilon * values.size)), float(values.mean())
    return _Method(
        trust=Trust.CENTRAL,
        name="Laplace noise",
        epsilon=noise.loss(sensitivity).pure(),
        variance=2 * float(noise.scale) ** 2,
        run=lambda: np.array([noise.release(mean, source=source) - mean]),
    )


def _local_noise(epsilon, values, source):
    """Everybody adds the noise that the curator would add to the answer about them alone."""
    sensitivity = Sensitivity.l1(1, adjacency=Adjacency.REPLACE)
    noise, mean = Laplace(scale=1 / epsilon), float(values.mean())
    return _Method(
        trust=Trust.LOCAL,
        name="Laplace noise",
        epsilon=noise.loss(sensitivity).pure(),
        variance=2 * float(noise.scale) ** 2 / values.size,
        run=lambda: np.array([noise.release(values, source=source).mean() - mean]),
    )


def _local_best(epsilon, values, source):
    protocol, mean = best_mean(epsilon).best, float(values.mean())
    moments = protocol.second_moments()
    squares = np.interp(values, np.linspace(0, 1, moments.size), moments)

    def run():
        found = protocol.aggregator().add(protocol.randomize(values, source=source))
        return np.array([found.estimate().value - mean])

    return _Method(
        trust=Trust.LOCAL,
        name=protocol.name.removesuffix("_mean").replace("_", " "),
        epsilon=protocol.loss().pure(),
        variance=float((squares - values**2).mean()) / values.size,
        run=run,
    )


# ------------------------------------------------------------------ histograms


def _central_counts(epsilon, members, source):
    """Somebody who changes their mind moves two counts by one."""
    noise = DiscreteLaplace(scale=2 / epsilon)
    counts, decay = np.bincount(members), math.exp(-1 / float(noise.scale))
    return _Method(
        trust=Trust.CENTRAL,
        name="Laplace noise",
        epsilon=noise.loss(Sensitivity.l1(2, adjacency=Adjacency.REPLACE)).pure(),
        variance=2 * decay / (1 - decay) ** 2 / members.size**2,
        run=lambda: (noise.release(counts, source=source) - counts) / members.size,
    )


def _local_oracle(epsilon, members, source):
    size = int(members.max()) + 1
    oracle = best_oracle(epsilon, size, members.size).best
    shares = np.bincount(members, minlength=size) / members.size
    each = [oracle.variance(members.size, share=float(share), target=Target.RESPONDENTS) for share in shares]
    scale = float(oracle.hit - oracle.miss)

    def run():
        supports = oracle.support(oracle.randomize(members, source=source))
        return np.asarray((supports / members.size - float(oracle.miss)) / scale - shares)

    return _Method(
        trust=Trust.LOCAL,
        name=oracle.name.replace("_", " "),
        epsilon=oracle.loss().pure(),
        variance=float(np.mean(each)),
        run=run,
    )


def _mark_gap(axes, local, central):
    """How far the two sides are apart for the most people."""
    far = max(row.people for row in central)
    low = min(row.theory for row in central if row.people == far)
    high = min(row.theory for row in local if row.people == far)
    axes.annotate(
        "",
        xy=(far, low),
        xytext=(far, high),
        arrowprops={"arrowstyle": "<->", "color": LINE, "shrinkA": 4, "shrinkB": 4},
    )
    axes.annotate(
        f"{high / low:,.0f} ×",
        xy=(far, math.sqrt(low * high)),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        color=LINE,
    )


if __name__ == "__main__":
    compare().draw(sys.argv[1])
