"""Differencing: two harmless questions whose answers differ by one person, who is thereby answered for.

"How many people in the database have the trait?" and "how many, not named X?" give away X, though both are about large
groups: the textbook's first example (Dwork & Roth 2014, section 1.1); trackers do the same where small groups are
refused (Denning, Denning & Schwartz 1979, ACM TODS). An average published before and after somebody leaves gives away
that person's salary: n·mean − (n−1)·mean'. Nothing was measured there because nothing is random: the published figure
is certainty.

Against a private release the attacker of this module does better than to subtract. It knows the law of the noise and
how often each vote and each salary occurs, weighs every answer by its likelihood, rewords questions to get fresh noise,
and finally gives up subtracting: it asks for one group per seat, which spends the whole budget on everybody at once
(``groups``). Where the budget is for adding or removing a member, the strongest such question sums 1 for a yes and −1
for a no: it costs as much as a count of yeses and finds a share 1 − e^−ε/2 of fair votes, which nothing exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit

from dither.attacks import salaries
from dither.attacks.base import Attack, Bits, Outcome, Published, ReleaseKind, Score, chance_error
from dither.attacks.bayes import best_accuracy, best_accuracy_of_value
from dither.attacks.databases import ATTACKER, Ask, as_budget, column, curated_database, exact_database, noise_of
from dither.attacks.groups import bits_by_count, bits_by_sum
from dither.curator import Curator
from dither.errors import InvalidParameter, OutOfBudget
from dither.mechanisms import DiscreteLaplace
from dither.mechanisms.base import Floats
from dither.numeric import Number, positive_int, probability
from dither.pictures import EXACT, FAINT, LINE, MORE, PRIVATE
from dither.privacy import Guarantee
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
YES = 0.5
SWEEP = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
TIMES = (1, 4, 16, 64, 256, 1024, 4096)
EVERYONE = "SELECT COUNT(*) AS n FROM members WHERE yes"
# So many parliaments are asked about by seat: one alone would leave 5% to chance.
HOUSES = 10


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
    weight = (salaries.log_of_difference(seen - 1, noise) - salaries.log_of_difference(seen, noise)).sum(axis=-1)
    return np.asarray(expit(math.log(belief) - math.log1p(-belief) + weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A made-up parliament: who sits where, how they voted in secret, what they earn."""

    member: npt.NDArray[np.int64]
    yes: Bits
    salary: npt.NDArray[np.int64]

    @classmethod
    def made_up(cls, members: int, maker: np.random.Generator) -> House:
        """Votes are fair coins, salaries lognormal on multiples of the step; seats are numbered."""
        salary = salaries.draw_salaries(members, maker)
        member = 1000 + maker.permutation(9 * members)[:members].astype(np.int64)
        return cls(member=member, yes=maker.random(members) < YES, salary=salary)

    def table(self) -> pa.Table:
        """As it is in the database."""
        seats = np.arange(1, self.member.size + 1)
        columns = {"member": self.member, "seat": seats, "yes": self.yes, "salary": self.salary}
        return pa.table({name: pa.array(values) for name, values in columns.items()})

    def policy(self) -> str:
        """What is public about it."""
        return TABLES.format(members=self.member.size, largest=salaries.LARGEST, step=salaries.STEP)


def _but(member: int) -> str:
    return f"{EVERYONE} AND member <> {member}"


def _exactly(ask: Ask, house: House, watch: Watch) -> tuple[float, float]:
    """Both attacks on everybody, one after the other: the shares of votes and of salaries found."""
    votes, earned = [], []
    means = "SELECT COUNT(*) AS n, AVG(salary) AS mean FROM members"
    all_yes, everyone = column(ask(EVERYONE), "n")[0], ask(means)
    before = int(column(everyone, "n")[0]), float(column(everyone, "mean")[0])
    for place, member in enumerate(house.member):
        if place % 32 == 0:
            watch(place / house.member.size, "subtracting exact answers")
        votes.append(float(posterior_of_bit([all_yes - column(ask(_but(member)), "n")[0]])))
        left = ask(f"{means} WHERE member <> {member}")
        after = int(column(left, "n")[0]), float(column(left, "mean")[0])
        earned.append(salaries.salary_from_averages(before, after))
    return float(np.mean((np.array(votes) > 0.5) == house.yes)), salaries.share_found(np.array(earned), house.salary)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BySeat:
    """Shares of votes found with a group for each seat, by ε: from counts of yeses, and from sums of ±1."""

    counts: dict[Fraction, float]
    sums: dict[Fraction, float]
    members: int


def votes_by_seat(house: House, epsilons: Sequence[Fraction], watch: Watch = unwatched) -> BySeat:
    """Ask for one group per seat, with each ε and in both ways, each by itself: an attacker gets one of the answers."""
    ways = (bits_by_count, bits_by_sum)
    found: tuple[dict[Fraction, float], dict[Fraction, float]] = ({}, {})
    # a whole number, which a policy states exactly; each answer is charged to it
    budget = Fraction(math.ceil(len(ways) * sum(epsilons)))
    with curated_database("members", house.table(), tables=house.policy(), epsilon=budget) as curator:
        for place, epsilon in enumerate(epsilons):
            watch(place / len(epsilons), "one group for each seat")
            for shares, ask in zip(found, ways, strict=True):
                beliefs = ask(curator, table="members", key="seat", bit="yes", epsilon=epsilon, prior=YES)
                shares[epsilon] = float(np.mean((beliefs > 0.5) == house.yes))
    return BySeat(counts=found[0], sums=found[1], members=house.yes.size)


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

    Questions by seat are asked about ten such parliaments, so that chance moves their figures less.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        members: How many seats the parliament has.
        epsilon: The budget of each private attack.
        pairs: How many times the two questions are reworded.
        worlds: In how many made-up worlds the textbook attack is repeated.
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
    several = House.made_up(HOUSES * members, maker)
    by_seat = votes_by_seat(several, sorted({*map(as_budget, SWEEP), budget}), part_of(watch, 0.4, 0.7))
    watch(0.7, "one group for each seat and band of salaries")
    with curated_database("members", several.table(), tables=several.policy(), epsilon=budget) as curator:
        bands = salaries.guesses_by_band(salaries.evidence_by_band(curator, several.member.size, epsilon=budget))
    watch(0.77, "adding up salaries with each member and without")
    sums = salaries.guesses_by_sums(several.salary, noise)
    reworded, unlimited = [], []
    for place, times in enumerate(TIMES):
        watch(0.8 + 0.2 * place / len(TIMES), "averaging noise, with a budget and without")
        reworded.append(found_by_differencing(DiscreteLaplace(2 * times / budget), times, worlds=worlds, maker=maker))
        unlimited.append(found_by_differencing(DiscreteLaplace(2 / budget), times, worlds=worlds, maker=maker))
    textbook = found_by_differencing(refusal.noise, refusal.pairs, worlds=10 * worlds, maker=maker)
    watch(1.0, "done")
    earned = tuple(salaries.share_found(guesses, several.salary) for guesses in (bands, sums))
    scores = _scores(budget, exact, by_seat, (textbook, 10 * worlds), earned, refusal)
    return Outcome(
        attack="differencing",
        scores=scores,
        summary=_summary(refusal, budget, scores, by_seat.members),
        draw=lambda figure: _draw(figure, budget, reworded, unlimited, by_seat),
        size=(9.5, 4.4),
    )


def _scores(
    epsilon: Fraction,
    exact: tuple[float, float],
    by_seat: BySeat,
    textbook: tuple[float, int],
    earned: tuple[float, ...],
    refusal: Refusal,
) -> tuple[Score, ...]:
    cost, certain = f"ε = {float(epsilon):g}", Published("certainty", "Dwork & Roth 2014, section 1.1")
    by_count, by_sum = best_accuracy(YES, Guarantee(epsilon)), best_accuracy_of_value(YES, epsilon)
    # what the attacker knows beforehand: the laws from which votes and salaries are drawn
    vote, salary = max(YES, 1 - YES), float(salaries.Salaries.prior().best_guess()[1])
    most = min(1.0, math.exp(epsilon) * salary)

    def among(share: float, people: int) -> str:
        return f"{people:,} members, ±{100 * chance_error(share, people):.1f}% by chance"

    def votes(how: str, share: float, detail: str) -> Score:
        what = f"votes found from {how}"
        return Score(release=ReleaseKind.PRIVATE, what=what, value=share, guessing=vote, detail=detail)

    def pay(how: str, share: float, detail: str) -> Score:
        what = f"salaries found (±5%) from {how}"
        return Score(release=ReleaseKind.PRIVATE, what=what, value=share, guessing=salary, detail=detail)

    seats = by_seat.members
    return (
        replace(votes("two exact counts", exact[0], ""), release=ReleaseKind.UNPROTECTED, published=certain),
        replace(pay("two exact averages", exact[1], ""), release=ReleaseKind.UNPROTECTED),
        votes(
            f"one sum per seat (yes 1, no −1), {cost}",
            by_seat.sums[epsilon],
            f"{among(by_sum, seats)}; on average no question exceeds {100 * by_sum:.1f}%",
        ),
        votes(
            f"one count of yeses per seat, {cost}",
            by_seat.counts[epsilon],
            f"{among(by_count, seats)}; on average counts of yeses don't exceed {100 * by_count:.1f}%",
        ),
        votes(
            f"{refusal.pairs} reworded pairs of counts, {cost} in all",
            textbook[0],
            f"then the budget refuses; {among(*textbook)}",
        ),
        pay(
            f"one group per seat and band, {cost}",
            earned[0],
            f"{among(earned[0], seats)}; on average nobody exceeds e^ε times guessing, {100 * most:.1f}%",
        ),
        pay(f"two sums, {cost} in all", earned[1], among(earned[1], seats)),
    )


def _summary(refusal: Refusal, epsilon: Fraction, scores: Sequence[Score], members: int) -> str:
    most = best_accuracy_of_value(YES, epsilon)
    return (
        f"Exact answers gave everybody away. The curator gave the same number, free, to {refusal.repeats} repeats of a "
        f"question; {refusal.pairs} rewordings of both questions used up its budget of ε = {float(epsilon):g}, and the "
        f"next was refused: {100 * scores[4].value:.1f}% of the votes were found, where a coin finds 50%. The best "
        f"attack doesn't subtract: it asks for one sum per seat, and found {100 * scores[2].value:.1f}% "
        f"(±{100 * chance_error(most, members):.1f}% by chance). With ε = {float(epsilon):g} for a member's presence, "
        f"nobody finds more than {100 * most:.1f}% on average."
    )


def _draw(
    figure: Figure,
    epsilon: Fraction,
    reworded: Sequence[float],
    unlimited: Sequence[float],
    by_seat: BySeat,
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
    places = [float(one) for one in by_seat.sums]
    right.plot(fine, 100 * (1 - np.exp(-fine) / 2), color=PRIVATE, lw=1, label=r"bound $1-e^{-\varepsilon}/2$")
    right.plot(places, [100 * v for v in by_seat.sums.values()], "o", color=PRIVATE, label="a sum of ±1 per seat")
    right.plot(fine, 100 * expit(fine), color=LINE, lw=1, label=r"bound $e^\varepsilon/(1+e^\varepsilon)$")
    right.plot(places, [100 * v for v in by_seat.counts.values()], "s", color=LINE, ms=4, label="a count per seat")
    right.axhline(50, color=FAINT, ls="--")
    right.set(xscale="log", xlabel="budget ε", title="One group per seat")
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
