"""Reconstruction: a secret column from counts of random subsets, each of which is about half of the people.

Dinur & Nissim 2003 (PODS): whoever answers random subset counts with errors of o(√n) gives away all but o(n) of the
bits, so privacy needs errors of the order of √n. Dwork, McSherry & Talwar 2007 (STOC) decode by linear programming,
even if a share of the answers, up to 23.9% for sums with Gaussian weights, is arbitrarily wrong. Cohen & Nissim 2020
(Journal of Privacy and Confidentiality 10) did it to a production system: they chose subsets by arithmetic on an id, as
is done here, and found the secret bit of each of 455 records without a mistake (as told by Cohen, Nikolov, Schutzman &
Ullman 2020, differentialprivacy.org). Our people are made up and their bits are fair coins, the hardest case: nothing
can be guessed from anything else.

Against the curator the same questions are asked until the budget is used up, and least squares weighs the answers by
their known noise. Then the attacker gives up subsets and asks for one group per flat (``groups``): a count of the sick
in it finds e^ε/(1+e^ε) of the bits, and a sum of 1 for the sick and −1 for the others finds 1 − e^−ε/2, which is as
much as ε for a person's presence allows anybody to learn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.attacks.base import Attack, Bits, Outcome, Published, ReleaseKind, Score, chance_error
from dither.attacks.bayes import best_accuracy, best_accuracy_of_value
from dither.attacks.databases import ATTACKER, Ask, as_budget, column, curated_database, exact_database, noise_of
from dither.attacks.groups import bits_by_count, bits_by_sum
from dither.attacks.linear import reconstruct_least_squares, reconstruct_lp, variance_of
from dither.curator import Curator
from dither.errors import OutOfBudget
from dither.mechanisms import DiscreteLaplace
from dither.mechanisms.base import Floats
from dither.numeric import Number, positive_int
from dither.pictures import EXACT, FAINT, LINE, MORE, PRIVATE
from dither.privacy import Guarantee
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = """\
[tables.people]
private = true
privacy_unit_column = "person"

[tables.people.columns]
person = {{ type = "integer" }}
flat = {{ type = "integer", between = [1, {people}] }}
sick = {{ type = "boolean" }}
"""
PRIME = 1_000_003
SICK = 0.5
# Noise in units of √n, for the frontier; and how many questions for each person.
LEVELS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0)
RATIOS = (2, 4, 8)
SIZES = (64, 128, 256)
SHOWN = 1 / 8
# So many towns are asked about by flat: one alone would leave 5% to chance.
TOWNS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """Made-up people: an id and a flat, which everybody knows, and a secret bit."""

    person: npt.NDArray[np.int64]
    sick: Bits

    @classmethod
    def made_up(cls, people: int, maker: np.random.Generator) -> Town:
        """Ids of six digits; bits are fair coins."""
        return cls(
            person=100_000 + maker.permutation(900_000)[:people].astype(np.int64), sick=maker.random(people) < SICK
        )

    def table(self) -> pa.Table:
        """As it is in the database."""
        columns = {"person": self.person, "flat": np.arange(1, self.person.size + 1), "sick": self.sick}
        return pa.table({name: pa.array(values) for name, values in columns.items()})

    def policy(self) -> str:
        """What is public about it."""
        return TABLES.format(people=self.person.size)


@dataclass(frozen=True, slots=True)
class Subset:
    """About half of all people, chosen by arithmetic on their ids: one condition that any SQL system takes."""

    factor: int
    shift: int

    @property
    def sql(self) -> str:
        """The question: how many of these people are sick?"""
        return (
            "SELECT COUNT(*) AS n FROM people WHERE sick "  # noqa: S608
            f"AND (person * {self.factor} + {self.shift}) % {PRIME} < {PRIME // 2}"
        )

    def members(self, person: npt.NDArray[np.int64]) -> Bits:
        """Who is in it; the attacker knows all ids."""
        return np.asarray((person * self.factor + self.shift) % PRIME < PRIME // 2)

    @classmethod
    def several(cls, number: int, maker: np.random.Generator) -> list[Subset]:
        """Subsets with random factors, none of them twice."""
        factors = 1 + maker.permutation(PRIME - 1)[:number]
        return [
            cls(int(factor), int(shift))
            for factor, shift in zip(factors, maker.integers(0, PRIME, number), strict=True)
        ]


def matrix(subsets: Sequence[Subset], person: npt.NDArray[np.int64]) -> Floats:
    """The subsets as rows of ones and zeros, a column for each person."""
    return np.array([subset.members(person) for subset in subsets], dtype=np.float64)


def ask_exactly(ask: Ask, subsets: Sequence[Subset], watch: Watch = unwatched) -> Floats:
    """The answers of a database that doesn't protect anybody."""
    answers = []
    for place, subset in enumerate(subsets):
        if place % 16 == 0:
            watch(place / len(subsets), "counting subsets, exactly")
        answers.append(column(ask(subset.sql), "n")[0])
    return np.array(answers)


def ask_until_refused(
    curator: Curator, subsets: Sequence[Subset], *, epsilon: Number, watch: Watch = unwatched
) -> tuple[Floats, DiscreteLaplace]:
    """The answers of a curator to one subset after the other until its budget is used up, and their noise."""
    noise = noise_of(curator, subsets[0].sql, epsilon)
    answers: list[float] = []
    for subset in subsets:
        if len(answers) % 4 == 0:
            watch(len(answers) / len(subsets), "asking the curator until its budget is used up")
        try:
            answer = curator.sql(subset.sql, epsilon=epsilon, analyst=ATTACKER)
        except OutOfBudget:
            break
        answers.append(float(column(answer.table, "n")[0]))
    return np.array(answers), noise


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFlat:
    """Shares of bits found with a group for each flat: from counts of the sick, and from sums of ±1."""

    counts: float
    sums: float
    people: int


def bits_by_flat(town: Town, *, epsilon: Fraction) -> ByFlat:
    """Ask for one group per flat in both ways, each on a budget of its own."""
    shares = []
    for ask in (bits_by_count, bits_by_sum):
        with curated_database("people", town.table(), tables=town.policy(), epsilon=epsilon) as curator:
            beliefs = ask(curator, table="people", key="flat", bit="sick", epsilon=epsilon, prior=SICK)
        shares.append(float(np.mean((beliefs > 0.5) == town.sick)))
    return ByFlat(counts=shares[0], sums=shares[1], people=town.sick.size)


def recovered(
    people: int, questions: int, noise: float, *, maker: np.random.Generator, repeats: int = 1, linear: bool = False
) -> float:
    """The share of bits recovered from random subset counts with Gaussian noise; by linear programming if asked."""
    shares = []
    for _ in range(repeats):
        bits = maker.random(people) < SICK
        subsets = maker.integers(0, 2, (questions, people)).astype(np.float64)
        answers = subsets @ bits + noise * maker.standard_normal(questions)
        if linear:
            found = reconstruct_lp(answers, subsets)
        else:
            found = reconstruct_least_squares(answers, subsets, variance=noise**2, prior=SICK)
        shares.append(float(np.mean(found == bits)))
    return float(np.mean(shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontier:
    """Shares recovered by noise: for each (people, questions per person), and by linear programming."""

    squares: dict[tuple[int, int], list[float]]
    programme: list[float]


def _frontier(maker: np.random.Generator, watch: Watch) -> _Frontier:
    runs = [(size, 4) for size in SIZES] + [(128, ratio) for ratio in RATIOS if ratio != 4]
    squares: dict[tuple[int, int], list[float]] = {}
    for place, (size, ratio) in enumerate(runs):
        watch(place / (len(runs) + 1), "the frontier of noise")
        squares[size, ratio] = [
            recovered(size, ratio * size, level * math.sqrt(size), maker=maker, repeats=512 // size) for level in LEVELS
        ]
    watch(len(runs) / (len(runs) + 1), "the frontier of noise, by linear programming")
    programme = [recovered(64, 4 * 64, level * math.sqrt(64), maker=maker, repeats=4, linear=True) for level in LEVELS]
    return _Frontier(squares=squares, programme=programme)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Shares recovered by how many questions were asked; and by linear programming from the most that were paid for."""

    exact: dict[int, float]
    noisy: dict[int, float]
    curated: dict[int, float]
    programme: float


def reconstruction(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    people: int = 256,
    questions: int = 128,
    epsilon: Number = 1,
) -> Outcome:
    """Reconstruct a secret column from subset counts, without protection and through a curator until it refuses.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        people: How many, each with a secret bit.
        questions: On how many questions the budget is spent evenly; more are tried.
        epsilon: The curator's budget.
    """
    positive_int(people, "people", least=16)
    positive_int(questions, "questions", least=16)
    budget = as_budget(epsilon)
    maker = np.random.default_rng(seed)
    town = Town.made_up(people, maker)
    bits = town.sick
    counts = [max(1, people * part // 16) for part in (1, 2, 4, 8, 16, 32, 64)]
    subsets = Subset.several(max(*counts, questions + 1), maker)
    rows = matrix(subsets, town.person)

    with exact_database("people", town.table()) as ask:
        answers = ask_exactly(ask, subsets[: counts[-1]], part_of(watch, 0.0, 0.1))
    level = SHOWN * math.sqrt(people)
    disturbed = answers + np.round(level * maker.standard_normal(answers.size))
    exact, noisy = {}, {}
    for place, count in enumerate(counts):
        watch(0.1 + 0.01 * place, "solving")
        exact[count] = float(np.mean(reconstruct_lp(answers[:count], rows[:count]) == bits))
        found = reconstruct_least_squares(disturbed[:count], rows[:count], variance=level**2, prior=SICK)
        noisy[count] = float(np.mean(found == bits))

    curated, programme = {}, 0.0
    steps = sorted({max(4, questions // 16), max(4, questions // 4), questions})
    answered = 0
    for place, number in enumerate(steps):
        start = 0.2 + 0.5 * sum(steps[:place]) / sum(steps)
        part = part_of(watch, start, start + 0.5 * number / sum(steps))
        with curated_database("people", town.table(), tables=town.policy(), epsilon=budget) as curator:
            seen, noise = ask_until_refused(curator, subsets[: number + 1], epsilon=budget / number, watch=part)
        answered = seen.size
        found = reconstruct_least_squares(seen, rows[: seen.size], variance=variance_of(noise), prior=SICK)
        curated[number] = float(np.mean(found == bits))
        programme = float(np.mean(reconstruct_lp(seen, rows[: seen.size]) == bits))
    watch(0.7, "one group for each flat")
    by_flat = bits_by_flat(Town.made_up(TOWNS * people, maker), epsilon=budget)
    frontier = _frontier(maker, part_of(watch, 0.75, 1.0))
    watch(1.0, "done")
    asked = _Asked(exact=exact, noisy=noisy, curated=curated, programme=programme)
    return Outcome(
        attack="reconstruction",
        scores=_scores(asked, by_flat, people=people, answered=answered, epsilon=budget),
        summary=_summary(asked, by_flat, answered=answered, epsilon=budget),
        draw=lambda figure: _draw(figure, frontier, asked, by_flat, budget),
        size=(9.5, 4.4),
    )


def _scores(asked: _Asked, by_flat: ByFlat, *, people: int, answered: int, epsilon: Fraction) -> tuple[Score, ...]:
    cost = f"ε = {float(epsilon):g}"
    by_count, by_sum = best_accuracy(SICK, Guarantee(epsilon)), best_accuracy_of_value(SICK, epsilon)
    counts = f"on average counts of the sick don't exceed {100 * by_count:.1f}%"
    twice, most = 2 * people, 4 * people
    # what the attacker knows beforehand is the law of the bits
    guessing = max(SICK, 1 - SICK)

    def chance(share: float, number: int) -> str:
        return f"{number:,} people, ±{100 * chance_error(share, number):.1f}% by chance"

    def bits(
        release: ReleaseKind, how: str, share: float, detail: str = "", published: Published | None = None
    ) -> Score:
        what = f"bits recovered from {how}"
        return Score(release=release, what=what, value=share, guessing=guessing, published=published, detail=detail)

    theorem = Published("all but o(n) if noise is o(√n)", "Dinur & Nissim 2003, a theorem")
    system = Published("all of 455 records", "Cohen & Nissim 2020, of a production system")
    exact, private = ReleaseKind.UNPROTECTED, ReleaseKind.PRIVATE
    return (
        bits(exact, f"{twice} exact counts (linear programming)", asked.exact[twice], published=system),
        bits(
            exact, f"{most} counts with noise √n/8 and no budget (least squares)", asked.noisy[most], published=theorem
        ),
        bits(
            private,
            f"one sum per flat (sick 1, others −1), {cost}",
            by_flat.sums,
            f"{chance(by_sum, by_flat.people)}; on average no question exceeds {100 * by_sum:.1f}%",
        ),
        bits(private, f"one count per flat, {cost}", by_flat.counts, f"{chance(by_count, by_flat.people)}; {counts}"),
        bits(
            private,
            f"{answered} counts of subsets, {cost} in all (least squares)",
            asked.curated[max(asked.curated)],
            f"then the budget refuses; {chance(SICK, people)}; by linear programming {100 * asked.programme:.1f}%; "
            f"{counts}",
        ),
    )


def _summary(asked: _Asked, by_flat: ByFlat, *, answered: int, epsilon: Fraction) -> str:
    whole = next((count for count, share in asked.exact.items() if share == 1.0), None)
    exactly = f"{whole} exact counts gave away every bit" if whole else "Exact counts gave away most bits"
    most = best_accuracy_of_value(SICK, epsilon)
    return (
        f"{exactly}. The curator answered {answered} such questions for ε = {float(epsilon):g} and refused the next: "
        f"{100 * asked.curated[max(asked.curated)]:.1f}% of the bits were right, where a coin is right about 50%. The "
        f"best attack asks one question with a sum for each flat, and found {100 * by_flat.sums:.1f}% "
        f"(±{100 * chance_error(most, by_flat.people):.1f}% by chance): with ε = {float(epsilon):g} for a person's "
        f"presence, nobody finds more than {100 * most:.1f}% on average."
    )


def _draw(figure: Figure, frontier: _Frontier, asked: _Asked, by_flat: ByFlat, epsilon: Fraction) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    colours = {2: MORE[5], 4: MORE[0], 8: MORE[2]}
    marks = {64: "v", 128: "o", 256: "s"}
    for (size, ratio), shares in sorted(frontier.squares.items(), key=lambda one: (one[0][1], one[0][0])):
        left.plot(
            LEVELS,
            [100 * share for share in shares],
            marks[size] + "-",
            color=colours[ratio],
            ms=4,
            lw=1,
            label=f"n = {size}, {ratio}n counts",
        )
    left.plot(LEVELS, [100 * share for share in frontier.programme], "x", color=LINE, ms=5, label="n = 64, 4n, by LP")
    left.axvline(1.0, color=LINE, lw=0.8)
    left.text(1.08, 99, "noise = √n", fontsize=8, va="top")
    left.axhline(50, color=FAINT, ls="--")
    left.set(xscale="log", xlabel="noise on each count, in √n", ylabel="bits recovered (%)", ylim=(40, 104))
    left.set(title="The frontier of noise", xticks=(0.1, 1, 10), xticklabels=("0.1", "1", "10"))
    for by_count, style, colour, label in (
        (asked.exact, "o-", EXACT, "exact counts"),
        (asked.noisy, "s--", MORE[4], "noise √n/8, no budget"),
        (asked.curated, "o-", PRIVATE, f"curator, ε = {float(epsilon):g} in all"),
    ):
        right.plot(list(by_count), [100 * share for share in by_count.values()], style, color=colour, ms=5, label=label)
    most, counted = best_accuracy_of_value(SICK, epsilon), best_accuracy(SICK, Guarantee(epsilon))
    for found, bound, mark, colour, label in (
        (by_flat.sums, most, "D", PRIVATE, "a sum of ±1 per flat, and bound"),
        (by_flat.counts, counted, "o", LINE, "a count per flat, and bound"),
    ):
        right.axhline(100 * bound, color=colour, lw=0.8)
        right.plot([1], [100 * found], mark + "-", color=colour, lw=0.8, ms=6, mfc="none", label=label)
    right.axhline(50, color=FAINT, ls="--", label="guessing")
    right.set(xscale="log", xlabel="questions asked", title="Through SQL, until the budget stops it")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


ATTACK = Attack(
    name="reconstruction",
    title="Reconstruction of a secret column from counts of subsets",
    question="How much of a secret column do counts of random halves of the people give away?",
    run=reconstruction,
)
