"""Differencing: two harmless questions whose answers differ by one person, who is thereby answered for.

"How many people in the database have the trait?" and "how many, not named X?" give away X, though both are about large
groups: the textbook's first example (Dwork & Roth 2014, section 1.1); trackers do the same where small groups are
refused (Denning, Denning & Schwartz 1979, ACM TODS). An average published before and after somebody leaves gives away
that person's salary: n·mean − (n−1)·mean'. Nothing was measured there because nothing is random: the published figure
is certainty.

Against a private release the attacker of this module does better than to subtract. It knows the law of the noise and
how often each vote and each salary occurs, weighs every answer by its likelihood, rewords questions to get fresh noise,
and finally gives up subtracting: it asks for one group per seat, which spends the whole budget on everybody at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit, ndtr

from dither.attacks.base import Attack, Outcome, Published, Release, Score
from dither.attacks.bayes import best_accuracy, best_accuracy_of_value, posterior
from dither.attacks.databases import ATTACKER, Ask, as_budget, column, curated_database, exact_database, noise_of
from dither.curator import Curator
from dither.errors import InvalidParameter, OutOfBudget
from dither.mechanisms import DiscreteLaplace
from dither.numeric import Number, positive_int, probability
from dither.pictures import EXACT, FAINT, LINE, MORE, PRIVATE
from dither.privacy import Guarantee
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats: TypeAlias = npt.NDArray[np.float64]
Bits: TypeAlias = npt.NDArray[np.bool_]

TABLES = """\
[tables.members]
private = true
privacy_unit_column = "member"

[tables.members.columns]
member = {{ type = "integer" }}
seat = {{ type = "integer", between = [1, {members}] }}
yes = {{ type = "boolean" }}
salary = {{ type = "integer", between = [0, {largest}], step = {step} }}
"""
LARGEST, STEP, BAND = 200_000, 100, 5_000
# Salaries are made lognormal; the attacker knows that, as somebody who has seen the statistics of the country does.
MEDIAN, SPREAD = 60_000.0, 0.35
TOLERANCE = 0.05
YES = 0.5
SWEEP = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
TIMES = (1, 4, 16, 64, 256, 1024, 4096)
EVERYONE = "SELECT COUNT(*) AS n FROM members WHERE yes"
BY_SEAT = "SELECT seat, COUNT(*) AS n FROM members WHERE yes GROUP BY seat"
BY_BAND = f"SELECT seat, floor(salary / {BAND}) AS band, COUNT(*) AS n FROM members GROUP BY seat, band"  # noqa: S608


def salary_from_averages(before: tuple[int, float], after: tuple[int, float]) -> float:
    """What the person earns who left between two published averages, each given as (people, mean).

    Means that were rounded to d give it away to within n·d all the same.

    Example:
        >>> salary_from_averages((435, 61_010.0), (434, 60_875.0))
        119600.0
    """
    (n, mean), (left, other) = before, after
    if positive_int(n, "people before", least=2) - positive_int(left, "people after") != 1:
        raise InvalidParameter(f"one person leaves between the two averages; got {n} people before and {left} after")
    return n * float(mean) - left * float(other)


def posterior_of_bit(differences: Any, noise: DiscreteLaplace | None = None, *, prior: Number = 0.5) -> Floats:
    """The probability that somebody's bit is set, from counts with minus counts without them.

    ``differences`` has one entry for each pair of questions along its last axis; each of the two counts has independent
    ``noise``, or none. The difference of two such noises has Pr[d] ∝ q^|d|·(|d| + (1+q²)/(1−q²)) with q = e^{−1/scale}.

    Example:
        >>> float(posterior_of_bit([1]))
        1.0
        >>> f"{float(posterior_of_bit([3, 0, 2], DiscreteLaplace(scale=2))):.3f}"
        '0.596'
    """
    seen, belief = np.asarray(differences, dtype=np.float64), float(probability(prior, "prior"))
    if seen.ndim == 0:
        raise InvalidParameter("give a list of differences, one for each pair of questions")
    if noise is None:
        if not np.all((seen == seen[..., :1]) & ((seen == 0) | (seen == 1))):
            raise InvalidParameter("exact counts with and without one person differ by 0 or 1, always by the same")
        return np.asarray(seen[..., 0])
    if belief in (0.0, 1.0):
        return np.full(seen.shape[:-1], belief)
    weight = (_log_of_difference(seen - 1, noise) - _log_of_difference(seen, noise)).sum(axis=-1)
    return np.asarray(expit(math.log(belief) - math.log1p(-belief) + weight))


def _log_of_difference(distance: Floats, noise: DiscreteLaplace) -> Floats:
    scale = float(noise.scale)
    # (1+q²)/(1−q²) = coth(1/scale)
    return np.asarray(-np.abs(distance) / scale + np.log(np.abs(distance) + 1 / math.tanh(1 / scale)))


@dataclass(frozen=True, slots=True)
class Salaries:
    """What somebody believes about salaries: the weight of each whole multiple of the step; rows are people."""

    weights: Floats

    @property
    def values(self) -> Floats:
        """The salaries that the weights are of."""
        return STEP * np.arange(self.weights.shape[-1], dtype=np.float64)

    @classmethod
    def prior(cls) -> Salaries:
        """How salaries are distributed among everybody."""
        edges = STEP * (np.arange(LARGEST // STEP + 2) - 0.5)
        edges[-1] = math.inf
        with np.errstate(divide="ignore"):
            shares = ndtr(np.log(np.maximum(edges, 0.0) / MEDIAN) / SPREAD)
        return cls(np.diff(shares))

    def after(self, log_likelihood: Floats) -> Salaries:
        """The beliefs after evidence; a row of it for each person."""
        weights = self.weights * np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
        return Salaries(weights / weights.sum(axis=-1, keepdims=True))

    def best_guess(self, tolerance: float = TOLERANCE) -> tuple[Floats, Floats]:
        """The salary that is most probably within the tolerance of the truth, and that probability."""
        values = self.values
        # v is within the tolerance of a guess g if g/(1+t) ≤ v ≤ g/(1−t)
        low = np.searchsorted(values, values / (1 + tolerance) - 1e-9)
        high = np.searchsorted(values, values / (1 - tolerance) + 1e-9)
        sums = np.concatenate([np.zeros((*self.weights.shape[:-1], 1)), np.cumsum(self.weights, axis=-1)], axis=-1)
        mass = sums[..., high] - sums[..., low]
        best = mass.argmax(axis=-1)
        return np.asarray(values[best]), np.asarray(mass.max(axis=-1))


def _close(guesses: Floats | float, salaries: Floats) -> float:
    return float(np.mean(np.abs(guesses - salaries) <= TOLERANCE * salaries + 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A made-up parliament: who sits where, how they voted in secret, what they earn."""

    member: npt.NDArray[np.int64]
    yes: Bits
    salary: npt.NDArray[np.int64]

    @classmethod
    def made_up(cls, members: int, maker: np.random.Generator) -> House:
        """Votes are fair coins, salaries lognormal on multiples of the step; seats are numbered."""
        raw = MEDIAN * np.exp(SPREAD * maker.standard_normal(members))
        return cls(
            member=1000 + maker.permutation(9 * members)[:members].astype(np.int64),
            yes=maker.random(members) < YES,
            salary=STEP * np.clip(np.round(raw / STEP), 0, LARGEST // STEP).astype(np.int64),
        )

    def table(self) -> pa.Table:
        """As it is in the database."""
        seats = np.arange(1, self.member.size + 1)
        columns = {"member": self.member, "seat": seats, "yes": self.yes, "salary": self.salary}
        return pa.table({name: pa.array(values) for name, values in columns.items()})

    def policy(self) -> str:
        """What is public about it."""
        return TABLES.format(members=self.member.size, largest=LARGEST, step=STEP)


def _but(member: int) -> str:
    return f"{EVERYONE} AND member <> {member}"


def _exactly(ask: Ask, house: House, watch: Watch) -> tuple[float, float]:
    """Both attacks on everybody, one after the other: the shares of votes and of salaries found."""
    votes, salaries = [], []
    means = "SELECT COUNT(*) AS n, AVG(salary) AS mean FROM members"
    all_yes, everyone = column(ask(EVERYONE), "n")[0], ask(means)
    before = int(column(everyone, "n")[0]), float(column(everyone, "mean")[0])
    for place, member in enumerate(house.member):
        if place % 32 == 0:
            watch(place / house.member.size, "subtracting exact answers")
        votes.append(float(posterior_of_bit([all_yes - column(ask(_but(member)), "n")[0]])))
        left = ask(f"{means} WHERE member <> {member}")
        after = int(column(left, "n")[0]), float(column(left, "mean")[0])
        salaries.append(salary_from_averages(before, after))
    return float(np.mean((np.array(votes) > 0.5) == house.yes)), _close(np.array(salaries), house.salary.astype(float))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How an attack on one person through rewordings went: what was answered, and what was free and the same."""

    repeats: int
    pairs: int
    differences: tuple[float, ...]
    noise: DiscreteLaplace


def reword_until_refused(curator: Curator, member: int, *, pairs: int) -> Refusal:
    """Ask the two questions again and again, first in the same words, then in others, until the budget stops it.

    A question in the same or equivalent words is the same question, and has the same answer, so averaging brings
    nothing. ``member + 3 <> 20`` isn't seen to mean ``member <> 17``: it gets fresh noise, and is charged.
    """
    epsilon = curator.policy.budget.epsilon_budget / (2 * pairs)
    noise = noise_of(curator, EVERYONE, epsilon)

    def ask(sql: str) -> tuple[float, bool]:
        answer = curator.sql(sql, epsilon=epsilon, analyst=ATTACKER)
        return float(column(answer.table, "n")[0]), answer.cost.charged

    first, repeats, found = ask(EVERYONE), 0, []
    for sql in (
        EVERYONE,
        "SELECT COUNT(*) AS again FROM members WHERE yes",
        "select count(*) from members m where m.yes",
    ):
        answer = curator.sql(sql, epsilon=epsilon, analyst=ATTACKER)
        repeats += not answer.cost.charged and float(answer.table.column(0)[0].as_py()) == first[0]
    for turn in range(2 * pairs):
        shift = f"member + {turn}"
        try:
            everyone = first[0] if turn == 0 else ask(f"{EVERYONE} AND {shift} <> -1")[0]
            found.append(everyone - ask(f"{EVERYONE} AND {shift} <> {member + turn}")[0])
        except OutOfBudget:
            break
    return Refusal(repeats=repeats, pairs=len(found), differences=tuple(found), noise=noise)


def found_by_differencing(noise: DiscreteLaplace, times: int, *, worlds: int, maker: np.random.Generator) -> float:
    """The share of votes found from ``times`` pairs of counts, each with fresh noise of its own; many worlds."""
    bits = maker.random(worlds) < YES
    right = 0
    step = max(1, 200_000 // times)
    for start in range(0, worlds, step):
        some = bits[start : start + step]
        rest = maker.integers(100, 300, some.size)[:, np.newaxis]
        shape = np.zeros((some.size, times), dtype=np.int64)
        with_them = noise.release(rest + some[:, np.newaxis] + shape)
        right += int(
            np.sum((posterior_of_bit(with_them - noise.release(rest + shape), noise, prior=YES) > 0.5) == some)
        )
    return right / worlds


def votes_by_seat(curator: Curator) -> Floats:
    """What to believe of every member's vote after one question with a group for each seat.

    Nothing does better with counts of yeses: noise on a group of one reaches the bound of ``best_accuracy``.
    """
    budget = curator.policy.budget.epsilon_budget
    answer = curator.sql(BY_SEAT, epsilon=budget, analyst=ATTACKER)
    order = np.argsort(column(answer.table, "seat"))
    return posterior(noise_of(curator, BY_SEAT, budget), column(answer.table, "n")[order], prior=YES)


def salaries_by_band(curator: Curator, members: int) -> Salaries:
    """What to believe of every member's salary after one question with a group for each seat and band of salaries."""
    budget = curator.policy.budget.epsilon_budget
    answer = curator.sql(BY_BAND, epsilon=budget, analyst=ATTACKER)
    noise = noise_of(curator, BY_BAND, budget)
    counts = np.zeros((members, LARGEST // BAND + 1))
    seats, bands = column(answer.table, "seat").astype(int), column(answer.table, "band").astype(int)
    counts[seats - 1, bands] = column(answer.table, "n")
    scale = float(noise.scale)
    weights = (np.abs(counts) - np.abs(counts - 1)) / scale
    place = np.arange(LARGEST // STEP + 1) * STEP // BAND
    return Salaries.prior().after(weights[:, place])


def salaries_by_sums(house: House, noise: DiscreteLaplace) -> Salaries:
    """The same from two sums, with each member and without, in a world for each: the textbook way."""
    whole = house.salary // STEP
    rest = int(whole.sum()) - whole
    seen = noise.release(rest + whole) - noise.release(rest)
    grid = np.arange(LARGEST // STEP + 1, dtype=np.float64)
    return Salaries.prior().after(_log_of_difference(seen[:, np.newaxis] - grid, noise))


def differencing(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    members: int = 435,
    epsilon: Number = 0.5,
    pairs: int = 8,
    worlds: int = 1000,
) -> Outcome:
    """Find how each member of a parliament voted and what they earn, from counts and averages with and without them.

    Each private attack spends a budget of ``epsilon`` of its own; ``pairs`` is how many times the two questions are
    reworded, ``worlds`` in how many made-up worlds the textbook attack is repeated.
    """
    positive_int(members, "members", least=10)
    positive_int(pairs, "pairs")
    positive_int(worlds, "worlds", least=10)
    budget = as_budget(epsilon)
    maker = np.random.default_rng(seed)
    house = House.made_up(members, maker)
    with exact_database("members", house.table()) as ask:
        exact = _exactly(ask, house, part_of(watch, 0.0, 0.35))
    watch(0.35, "rewording questions to the curator")
    with curated_database("members", house.table(), tables=house.policy(), epsilon=budget) as curator:
        refusal = reword_until_refused(curator, int(house.member[0]), pairs=pairs)
        noise = noise_of(curator, "SELECT SUM(salary) AS s FROM members", budget / 2)
    sums = salaries_by_sums(house, noise).best_guess()[0]
    by_epsilon = {}
    for place, one in enumerate(sorted({*map(as_budget, SWEEP), budget})):
        watch(0.45 + 0.04 * place, "one group for each seat")
        with curated_database("members", house.table(), tables=house.policy(), epsilon=one) as curator:
            by_epsilon[one] = float(np.mean((votes_by_seat(curator) > 0.5) == house.yes))
    watch(0.75, "one group for each seat and band of salaries")
    with curated_database("members", house.table(), tables=house.policy(), epsilon=budget) as curator:
        bands = salaries_by_band(curator, members).best_guess()[0]
    reworded, unlimited = [], []
    for place, times in enumerate(TIMES):
        watch(0.8 + 0.2 * place / len(TIMES), "averaging noise, with a budget and without")
        reworded.append(found_by_differencing(DiscreteLaplace(2 * times / budget), times, worlds=worlds, maker=maker))
        unlimited.append(found_by_differencing(DiscreteLaplace(2 / budget), times, worlds=worlds, maker=maker))
    watch(1.0, "done")
    textbook = found_by_differencing(refusal.noise, refusal.pairs, worlds=worlds, maker=maker)
    salary = house.salary.astype(np.float64)
    guess, mass = Salaries.prior().best_guess()
    scores = _scores(
        members=members,
        epsilon=budget,
        exact=exact,
        private=(by_epsilon[budget], textbook, _close(bands, salary), _close(sums, salary)),
        guessing=(float(max(house.yes.mean(), 1 - house.yes.mean())), _close(guess, salary)),
        refusal=refusal,
        most=min(1.0, math.exp(budget) * float(mass)),
    )
    return Outcome(
        attack="differencing",
        scores=scores,
        summary=_summary(refusal, budget, scores),
        draw=lambda figure: _draw(figure, budget, reworded, unlimited, by_epsilon),
        size=(9.5, 4.2),
    )


def _scores(
    *,
    members: int,
    epsilon: Fraction,
    exact: tuple[float, float],
    private: tuple[float, float, float, float],
    guessing: tuple[float, float],
    refusal: Refusal,
    most: float,
) -> tuple[Score, ...]:
    cost, certain = f"ε = {float(epsilon):g}", Published(figure="certainty", source="Dwork & Roth 2014, section 1.1")
    bound, any_question = best_accuracy(YES, Guarantee(epsilon)), best_accuracy_of_value(YES, epsilon)
    vote, salary = guessing
    chance = 2 * math.sqrt(bound * (1 - bound) / members)
    rows: Sequence[tuple[Release, str, float, float, Published | None, str]] = (
        (Release.UNPROTECTED, "votes found from two exact counts", exact[0], vote, certain, ""),
        (Release.UNPROTECTED, "salaries found (±5%) from two exact averages", exact[1], salary, None, ""),
        (
            Release.PRIVATE,
            f"votes found from one group per seat, {cost}",
            private[0],
            vote,
            None,
            (
                f"±{100 * chance:.1f}% by chance; on average nobody exceeds {100 * bound:.1f}% with such counts, or "
                f"{100 * any_question:.1f}% with others"
            ),
        ),
        (
            Release.PRIVATE,
            f"votes found from {refusal.pairs} reworded pairs of counts, {cost} in all",
            private[1],
            vote,
            None,
            "then the budget refuses",
        ),
        (
            Release.PRIVATE,
            f"salaries found (±5%) from one group per seat and band, {cost}",
            private[2],
            salary,
            None,
            f"on average nobody exceeds e^ε times guessing, {100 * most:.1f}%",
        ),
        (Release.PRIVATE, f"salaries found (±5%) from two sums, {cost} in all", private[3], salary, None, ""),
    )
    return tuple(
        Score(release=release, what=what, value=value, guessing=guess, published=published, detail=detail)
        for release, what, value, guess, published, detail in rows
    )


def _summary(refusal: Refusal, epsilon: Fraction, scores: Sequence[Score]) -> str:
    low, high = Guarantee(epsilon).posterior(YES)
    return (
        f"Exact answers gave everybody away. The curator gave the same number, free, to {refusal.repeats} repeats of a "
        f"question; {refusal.pairs} rewordings of both questions used up its budget of ε = {float(epsilon):g}, and the "
        f"next was refused. The best attack found {100 * scores[2].value:.1f}% of the votes, where a coin finds 50%: "
        f"counts of yeses that cost ε = {float(epsilon):g} in all leave a suspicion of 50% between {100 * low:.1f}% "
        f"and {100 * high:.1f}%."
    )


def _draw(
    figure: Figure,
    epsilon: Fraction,
    reworded: Sequence[float],
    unlimited: Sequence[float],
    by_epsilon: dict[Fraction, float],
) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    left.axhline(100, color=EXACT, label="exact answers")
    left.plot(TIMES, [100 * v for v in unlimited], "s--", color=MORE[4], ms=5, label="fresh noise each time, no budget")
    left.plot(TIMES, [100 * v for v in reworded], "o-", color=PRIVATE, ms=5, label=f"ε = {float(epsilon):g} in all")
    left.axhline(50, color=FAINT, ls="--", label="guessing")
    left.set(xscale="log", xlabel="how often the pair of questions is asked", ylabel="votes found (%)", ylim=(40, 104))
    left.set(title="With minus without, again and again")
    fine = np.geomspace(0.08, 5.0, 80)
    right.axhline(100, color=EXACT)
    right.plot(fine, 100 * expit(fine), color=LINE, label=r"bound $e^\varepsilon/(1+e^\varepsilon)$")
    places = [float(one) for one in by_epsilon]
    right.plot(places, [100 * v for v in by_epsilon.values()], "o", color=PRIVATE, label="one group per seat")
    right.axhline(50, color=FAINT, ls="--")
    right.set(xscale="log", xlabel="budget ε", title="The best attack")
    right.set_xticks(SWEEP, [f"{one:g}" for one in SWEEP])
    right.minorticks_off()
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


ATTACK = Attack(
    name="differencing",
    title="Differencing: answers with and without one person",
    question="How did one person vote, and what do they earn, if only questions about large groups are answered?",
    run=differencing,
)
