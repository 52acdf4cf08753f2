"""Price: a budget becomes mechanisms, their loss, and the errors to expect; all of it before any data is read.

The budget is divided by weight over aggregates (and the selection of keys, which weighs 1); an aggregate divides its
share equally over the cells it is read off; a cell that several aggregates share gets what all of them give it. See
docs/decisions/0011-noise-of-a-query.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from dither.brief import brief
from dither.errors import InvalidParameter, NotPrivate, Refused
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace, GaussianThreshold
from dither.numeric import DEFAULT_CONFIDENCE, Number, as_fraction, fraction_down, largest_true
from dither.privacy import Adjacency, PrivacyLoss, PureLoss, ZcdpLoss, compose
from dither.privacy.renyi import pure_zcdp
from dither.query.aggregates.base import AggregateChoice, Chooser, Mechanisms, Prediction, Recipe
from dither.query.aggregates.bases import ways
from dither.query.aggregates.catalogue import Lowered, lower
from dither.query.aggregates.spread import Noise, quantile_of_sum
from dither.query.aggregates.vicinity import SHARE
from dither.query.measure.measures import (
    MARGIN,
    Measurement,
    Reach,
    basis_reach,
    choice_reach,
    expect_scale,
    short_up,
    sqrt_up,
)
from dither.query.plan.plan import Aggregation
from dither.query.price.key_selection import KeySelection, select_keys, select_keys_without_gaussian

BudgetKind: TypeAlias = Literal["pure", "approximate", "zcdp"]

# |z| at which a normal and a Laplace law of unit scale leave 5% outside.
GAUSSIAN_95, LAPLACE_95 = 1.959963984540054, 2.995732273553991
# Budgets are searched in these units, up to a million.
UNITS = 10**9
MOST_UNITS = 10**15
# A way to measure several aggregates together is taken if none of them errs more, but for so much (in logarithms), and
# if all of them gain so much.
MOST_LOST, LEAST_GAIN = 0.005, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBudget:
    """What one question may cost: ε or ρ for everything, and δ for keys that must be discovered.

    A pure one has no such keys; an approximate one has ε for what is left when δ is given away.
    """

    kind: BudgetKind
    main: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.kind not in ("pure", "approximate", "zcdp"):
            raise InvalidParameter(f'kind must be "pure", "approximate" or "zcdp"; got {self.kind!r}')
        object.__setattr__(self, "main", as_fraction(self.main, "main"))
        object.__setattr__(self, "delta", as_fraction(self.delta, "delta"))
        if self.main <= 0:
            raise InvalidParameter(f"a budget must be greater than 0; got {self.main}")
        if not 0 <= self.delta < 1:
            raise InvalidParameter(f"delta must be at least 0 and below 1; got {self.delta}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A question with its mechanisms, one for each cell and choice, and what all of them cost together.

    ``reaches`` go with ``noise``, ``losses`` with the blocks of cells, ``choice_losses`` with ``choosers``, and
    ``nearby_losses`` with the noise of what is counted around choices.
    """

    aggregation: Aggregation
    budget: QueryBudget
    adjacency: Adjacency
    lowered: Lowered
    noise: tuple[Noise, ...]
    reaches: tuple[Reach, ...]
    losses: tuple[PrivacyLoss, ...]
    choosers: tuple[Chooser, ...]
    choice_losses: tuple[PrivacyLoss, ...]
    nearby: tuple[Noise, ...]
    nearby_losses: tuple[PrivacyLoss, ...]
    selection: KeySelection | None
    loss: PrivacyLoss

    __repr__ = brief

    @property
    def measurement(self) -> Measurement:
        """What the engine is asked to compute."""
        return self.lowered.measurement

    def errors(self, confidence: Number = DEFAULT_CONFIDENCE) -> tuple[Prediction, ...]:
        """The error of each aggregate in each group that is to be expected at this confidence."""
        by, exact = self._by, as_fraction(confidence, "confidence")
        return tuple(recipe.error(by, exact) for recipe in self.lowered.recipes)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What each aggregate is released by, in words."""
        return tuple(recipe.mechanism(self._by) for recipe in self.lowered.recipes)

    @property
    def _by(self) -> Mechanisms:
        return Mechanisms(noise=self.noise, choices=self.lowered.choices, choosers=self.choosers, nearby=self.nearby)

    def selection_in_words(self, *, one_each: bool = False) -> str:
        """Which groups are shown, by the units that are in them; ``one_each`` says that a unit is in one at most."""
        if self.selection is None:
            return "all groups are public and are shown"
        who = "rows" if self.aggregation.units == "row" else "units"
        enough = f"a group of {self.selection.enough:,} or more {who} is shown 19 times in 20"
        kept = self.measurement.most_groups
        if who == "rows" or one_each or kept is None:
            return enough
        # how many groups units are in is no public fact: a prediction for some numbers of them
        needed = [(held, self.selection.enough_of(kept, held)) for held in self._held(kept)]
        many = ", ".join(f"{units:,} if each is in {held:,}" for held, units in needed)
        return (
            f"{enough} if each of them is in at most {kept:,} group{'' if kept == 1 else 's'}. A unit in more counts "
            f"in {kept:,} of them, drawn at random, so that more units are needed: {many}"
        )

    def _held(self, kept: int) -> list[int]:
        """Numbers of groups that a unit may be in: twice what it keeps, and all groups there can be, or ten times."""
        keys = self.aggregation.keys
        possible = [len(key.values) for key in keys if key.values is not None]
        most = math.prod(possible) if len(possible) == len(keys) else 10 * kept
        return sorted({min(2 * kept, most), most})


@dataclass(frozen=True, slots=True)
class _Shares:
    cells: tuple[Fraction, ...]
    choices: tuple[Fraction, ...]
    selection: Fraction


def price(aggregation: Aggregation, budget: QueryBudget, adjacency: Adjacency) -> Priced:
    """The mechanisms that a budget pays for.

    Guarantee: everything that is released about the measured cells is private as ``Priced.loss`` states, and its pure
        ε, or its ρ and δ, are no more than the budget's.
    """
    _check_discovery(aggregation, budget.kind, budget.delta)
    lowered = _Ways(aggregation, adjacency).best(budget)
    shares = _shares(lowered, aggregation, budget)
    reaches = lowered.reaches(adjacency)
    noise = tuple(_noises(reaches, shares.cells, budget.kind).values())
    losses = tuple(_cell_loss(reaches[block[0]], noise[block[0]]) for block in lowered.blocks)
    chosen = [
        _chooser(choice, share, lowered, budget.kind, adjacency)
        for choice, share in zip(lowered.choices, _of_draws(lowered, shares.choices), strict=True)
    ]
    selection = None
    if lowered.units is not None:
        select = select_keys if budget.kind == "zcdp" else select_keys_without_gaussian
        selection = select(shares.selection, budget.delta, lowered.span.groups, adjacency)
    gaussian = any(isinstance(each, DiscreteGaussian) for each in noise)
    gaussian = gaussian or (selection is not None and isinstance(selection.mechanism, GaussianThreshold))
    nearby, nearby_losses = _nearby(lowered, shares, budget.kind, adjacency, gaussian=gaussian)
    parts = [*losses, *(loss for _, loss in chosen), *nearby_losses, *([selection.loss] if selection else [])]
    total = compose([(part, 1) for part in parts]) if parts else PureLoss(0, adjacency)
    _check_within(total, budget)
    return Priced(
        aggregation=aggregation,
        budget=budget,
        adjacency=adjacency,
        lowered=lowered,
        noise=noise,
        reaches=reaches,
        losses=losses,
        choosers=tuple(chooser for chooser, _ in chosen),
        choice_losses=tuple(loss for _, loss in chosen),
        nearby=nearby,
        nearby_losses=nearby_losses,
        selection=selection,
        loss=total,
    )


def price_for_error(
    aggregation: Aggregation,
    targets: Mapping[int, Fraction],
    *,
    kind: BudgetKind,
    delta: Fraction,
    adjacency: Adjacency,
    confidence: Number = DEFAULT_CONFIDENCE,
) -> Priced:
    """The smallest budget, to a millionth of it, with which no aggregate's error exceeds its target.

    ``targets`` gives half widths by the place of the aggregate. Refused for aggregates whose error depends on the data.
    """
    _check_discovery(aggregation, kind, delta)
    found = _Ways(aggregation, adjacency)
    wanted = _wanted(found.lowered(()), targets)
    exact = as_fraction(confidence, "confidence")

    def meets(units: int) -> bool:
        budget = QueryBudget(kind=kind, main=Fraction(units, UNITS), delta=delta)
        try:
            lowered = found.best(budget)
            shares = _shares(lowered, aggregation, budget)
            needed = {cell for index in wanted for cell in lowered.recipes[index].cells}
            noise = _noises(lowered.reaches(adjacency), shares.cells, kind, only=needed)
        except Refused:  # too little for any noise that fits 64 bits
            return False
        return all(_meets(lowered.recipes[index], noise, most, exact) for index, most in wanted.items())

    return price(
        aggregation,
        QueryBudget(kind=kind, main=Fraction(_least_units(meets), UNITS), delta=delta),
        adjacency,
    )


def _wanted(lowered: Lowered, targets: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """The largest error of each aggregate, refused for those whose error depends on the data."""
    for index, half_width in targets.items():
        if not 0 <= index < len(lowered.recipes) or half_width <= 0:
            raise InvalidParameter("targets must be positive half widths by the place of an aggregate")
        if lowered.recipes[index].linear is None:
            raise Refused(
                "the error of averages, variances, correlations, quantiles and modes depends on the data",
                code="error_unknown",
                hint="Ask with epsilon, or for the error of a COUNT or SUM.",
            )
    return dict(targets)


def _meets(recipe: Recipe, noise: Mapping[int, Noise], most: Fraction, confidence: Fraction) -> bool:
    """Whether a count or a sum errs by no more; exactly, where it is a multiple of one cell."""
    assert recipe.linear is not None
    weights, _ = recipe.linear
    if len(weights) == 1:
        ((cell, step),) = weights
        return Fraction(noise[cell].error(confidence)) <= most / step
    return quantile_of_sum([(float(weight), noise[cell]) for cell, weight in weights], confidence) <= most


def _least_units(meets: Callable[[int], bool]) -> int:
    """The smallest number of units at which a test that turns true once holds, to a millionth of itself."""
    if not meets(MOST_UNITS):
        raise Refused(
            "no budget reaches an error as small as that",
            code="error_unreachable",
            hint="Ask for a larger error.",
        )
    low, high = 0, MOST_UNITS
    while high - low > max(1, high // 10**6):
        # halve in the exponent while the ends are far apart
        middle = math.isqrt(max(low, 1) * high) if high > 4 * max(low, 1) else (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


class _Ways:
    """The ways in which a question can be measured, each lowered once, and the best of them for a budget."""

    def __init__(self, aggregation: Aggregation, adjacency: Adjacency) -> None:
        self._aggregation, self._adjacency = aggregation, adjacency
        self._known: dict[tuple[tuple[int, int], ...], Lowered] = {}
        self._apart = lower(aggregation)
        # counts of all rows have nothing to share
        self._alternatives = ways(aggregation) if any(each.arguments for each in aggregation.aggregates) else ()

    def lowered(self, taken: tuple[tuple[int, int], ...]) -> Lowered:
        """With these alternatives, by argument and place; everything else is measured apart."""
        if not taken:
            return self._apart
        if taken not in self._known:
            chosen = [way for argument, place in taken for way in self._alternatives[argument][place]]
            self._known[taken] = lower(self._aggregation, chosen)
        return self._known[taken]

    def best(self, budget: QueryBudget) -> Lowered:
        """The way that errs least over all aggregates, of those by which none errs more than if measured apart.

        Argument by argument; errors are compared at 95%, for data all over the bounds (``Recipe.spreads``). Nothing but
        public facts is known here, and so is what is chosen.
        """
        if not self._alternatives:
            return self._apart
        apart, least = self.spreads(self._apart, budget), -LEAST_GAIN
        taken: tuple[tuple[int, int], ...] = ()
        for argument, alternatives in enumerate(self._alternatives):
            found = [(*taken, (argument, place)) for place in range(len(alternatives))]
            gains = [_gain(self.spreads(self.lowered(each), budget), apart) for each in found]
            best = min(range(len(found)), key=gains.__getitem__)
            if gains[best] < least:
                taken, least = found[best], gains[best] - LEAST_GAIN
        return self.lowered(taken)

    def spreads(self, lowered: Lowered, budget: QueryBudget) -> list[tuple[float, ...]]:
        """Those of every aggregate for this budget."""
        shares = _shares(lowered, self._aggregation, budget)
        noise = tuple(_noises(lowered.reaches(self._adjacency), shares.cells, budget.kind).values())
        by = Mechanisms(noise=noise, choices=lowered.choices, choosers=())
        return [recipe.spreads(by) for recipe in lowered.recipes]


def _gain(spreads: Sequence[tuple[float, ...]], apart: Sequence[tuple[float, ...]]) -> float:
    """The logarithm of all aggregates' errors over those if measured apart; infinite if one grows."""
    pairs = [pair for one, other in zip(spreads, apart, strict=True) for pair in zip(one, other, strict=True)]
    if any(math.log(a) - math.log(b) > MOST_LOST for a, b in pairs):
        return math.inf
    return _mean_logarithm(spreads, apart)


def _mean_logarithm(spreads: Sequence[tuple[float, ...]], others: Sequence[tuple[float, ...]]) -> float:
    """The sum over aggregates of the mean logarithm of the ratio of errors."""
    both = [list(zip(one, other, strict=True)) for one, other in zip(spreads, others, strict=True)]
    return sum(sum(math.log(a) - math.log(b) for a, b in pairs) / len(pairs) for pairs in both if pairs)


def _check_discovery(aggregation: Aggregation, kind: BudgetKind, delta: Fraction) -> None:
    if aggregation.discover and (kind == "pure" or delta == 0):
        raise Refused(
            "the keys of this question come from the data, and showing them needs a δ that this budget doesn't have",
            code="keys_need_delta",
            hint="Group by keys with public values, or have the owner declare in = [...] for the column, or give a δ.",
        )


def _shares(lowered: Lowered, aggregation: Aggregation, budget: QueryBudget) -> _Shares:
    """Who gets how much; exact, and no more than the budget in all."""
    cells = [Fraction(0)] * len(lowered.cells)
    choices = [Fraction(0)] * len(lowered.choices)
    main = budget.main * (MARGIN if budget.kind == "zcdp" else 1)
    recipes = zip(lowered.recipes, aggregation.aggregates, strict=True)
    paying = [(recipe, a.weight) for recipe, a in recipes if recipe.cells or recipe.choices]
    if any(weight <= 0 for _, weight in paying):
        raise InvalidParameter("the weight of an aggregate must be greater than 0")
    weights = sum((weight for _, weight in paying), Fraction(lowered.units is not None))
    for recipe, weight in paying:
        blocks = lowered.blocks_of(recipe)
        each = main * weight / weights / (len(blocks) + len(recipe.choices))
        for cell in itertools.chain(*blocks):
            cells[cell] += each
        for choice in recipe.choices:
            choices[choice] += each
    selection = main / weights if lowered.units is not None else Fraction(0)
    return _Shares(tuple(cells), tuple(choices), selection)


def _of_draws(lowered: Lowered, shares: Sequence[Fraction]) -> list[Fraction]:
    """What choices have for themselves: a part of that of quantiles goes to what is counted around them."""
    shown = {choice for vicinity in lowered.vicinities for choice in vicinity.choices}
    return [share * (1 - SHARE) if place in shown else share for place, share in enumerate(shares)]


def _nearby(
    lowered: Lowered, shares: _Shares, kind: BudgetKind, adjacency: Adjacency, *, gaussian: bool
) -> tuple[tuple[Noise, ...], tuple[PrivacyLoss, ...]]:
    """The noise of what is counted around choices, and what it costs.

    A row is in one bin, so that all bins of a group move by no more than a unit has rows. The noise is Gaussian only
    where the question has such noise anyway: an interval alone must not close the sum of ε.
    """
    reach = basis_reach(2, lowered.measurement.rows, lowered.span, adjacency)
    parts = [SHARE * sum(shares.choices[choice] for choice in each.choices) for each in lowered.vicinities]
    noise = tuple(_noises([reach] * len(parts), parts, kind, gaussian=gaussian).values())
    return noise, tuple(_cell_loss(reach, each) for each in noise)


def _noises(
    reaches: Sequence[Reach],
    shares: Sequence[Fraction],
    kind: BudgetKind,
    only: set[int] | None = None,
    *,
    gaussian: bool | None = None,
) -> dict[int, Noise]:
    """The noise of each cell (or of some): in zCDP all Gaussian or all Laplace, whichever errs less or is wanted."""
    if gaussian is None:
        gaussian = kind == "zcdp" and _gaussian_errs_less(reaches, shares)
    noise: dict[int, Noise] = {}
    for index, (reach, share) in enumerate(zip(reaches, shares, strict=True)):
        if only is not None and index not in only:
            continue
        if gaussian:
            noise[index] = DiscreteGaussian(expect_scale(sqrt_up(reach.l2_squared / (2 * share))))
        else:
            epsilon = _laplace_epsilon(share) if kind == "zcdp" else share
            noise[index] = DiscreteLaplace(expect_scale(short_up(reach.l1 / epsilon)))
    return noise


def _gaussian_errs_less(reaches: Sequence[Reach], shares: Sequence[Fraction]) -> bool:
    """Whether Gaussian noise errs no more than Laplace noise at 95%, over all cells.

    The ε that Laplace noise would have is computed to the last bit only where it decides: what stands in for it is
    within 1e-8 of it.
    """
    if not all(map(float, shares)):  # so small that no float holds it: noise of either law is refused
        return True
    rough = sum(_advantage(r, rho, _near_laplace_epsilon(float(rho))) for r, rho in zip(reaches, shares, strict=True))
    if abs(rough) > 1e-6 * len(reaches):
        return rough > 0
    return sum(_advantage(r, rho, _laplace_epsilon(rho)) for r, rho in zip(reaches, shares, strict=True)) >= 0


def laplace_errs_less(aggregation: Aggregation, *, epsilon: Fraction, rho: Fraction, adjacency: Adjacency) -> bool:
    """Whether a question errs less with Laplace noise for ε than with Gaussian noise for ρ, over all it asks.

    At 95%, each read in the way that is best for its law. For one cell that a unit moves in G groups:
    3.0·G/ε ≤ 1.96·√(G/2ρ).
    """
    found_ways = _Ways(aggregation, adjacency)
    lowered = found_ways.lowered(())
    whole = _shares(lowered, aggregation, QueryBudget(kind="pure", main=Fraction(1)))
    budgets = QueryBudget(kind="pure", main=epsilon), QueryBudget(kind="zcdp", main=rho)
    laplace, gaussian = (found_ways.spreads(found_ways.best(budget), budget) for budget in budgets)
    found = _mean_logarithm(laplace, gaussian)
    for choice, share in zip(lowered.choices, whole.choices, strict=True):
        rows = lowered.measurement.rows
        reach_of_choice = choice_reach(choice.alone(rows), Fraction(2 * rows), lowered.span, adjacency)
        other = math.log(reach_of_choice.squares) / 2 - math.log(8 * rho * share) / 2
        found += math.log(reach_of_choice.total) - math.log(epsilon * share) - other
    return found <= 0


def _advantage(reach: Reach, rho: Fraction, epsilon: float | Fraction) -> float:
    """The logarithm of the ratio of errors at 95%: positive where Gaussian noise errs less than Laplace noise."""
    gaussian = math.log(GAUSSIAN_95) + (math.log(reach.l2_squared) - math.log(2 * rho)) / 2
    return math.log(LAPLACE_95) + math.log(reach.l1) - math.log(epsilon) - gaussian


def _near_laplace_epsilon(rho: float) -> float:
    """What ``_laplace_epsilon`` looks for, x·tanh(x/2) = ρ, by Newton's steps from a little above it."""
    x = rho + math.sqrt(2 * rho)
    for _ in range(8):
        slope = math.tanh(x / 2)
        step = (x * slope - rho) / (slope + x * (1 - slope * slope) / 2)
        x -= step
        if abs(step) < 1e-9 * x:
            break
    return x


def _laplace_epsilon(rho: Fraction) -> Fraction:
    """The largest ε (to a billionth) for which ε-privacy implies ρ-zCDP."""
    most = fraction_down(rho)
    return Fraction(largest_true(lambda e: pure_zcdp(e) <= most, 0.0, 2 * most + 2 * math.sqrt(most), relative=1e-9))


def _cell_loss(reach: Reach, mechanism: Noise) -> PrivacyLoss:
    if isinstance(mechanism, DiscreteGaussian):
        return reach.gaussian_loss(mechanism)
    return reach.laplace_loss(mechanism)


def _chooser(
    choice: AggregateChoice, share: Fraction, lowered: Lowered, kind: BudgetKind, adjacency: Adjacency
) -> tuple[Chooser, PrivacyLoss]:
    """The mechanism of one choice in every group, and what it costs for a unit in several of them.

    Under replace two kinds of movement may both be extreme, so only the budget's own view is stated.
    """
    rows, pure = lowered.measurement.rows, kind != "zcdp"
    alone = choice.alone(rows)
    reach = choice_reach(alone, Fraction(2 * rows), lowered.span, adjacency)
    scale = reach.total / share if pure else sqrt_up(reach.squares / (8 * share))
    scale = expect_scale(short_up(scale))
    chooser = choice.chooser(scale, pure=pure)
    if adjacency is Adjacency.ADD_REMOVE:
        return chooser, compose([(choice.loss(alone / scale, pure=pure), lowered.span.groups)])
    if pure:
        return chooser, PureLoss(reach.total / scale, adjacency)
    return chooser, ZcdpLoss(reach.squares / (8 * scale**2), adjacency)


def _check_within(loss: PrivacyLoss, budget: QueryBudget) -> None:
    """The last word before a price leaves: what is charged is no more than what was allowed."""
    if budget.kind == "pure":
        within = math.isfinite(loss.pure()) and loss.pure_exactly() <= budget.main
    elif budget.kind == "approximate":
        left, given = loss.decomposed()
        within = math.isfinite(left.pure()) and left.pure_exactly() <= budget.main and given <= budget.delta
    elif math.isfinite(loss.zcdp()):
        within = loss.zcdp_exactly() <= budget.main
    else:
        rho, delta = loss.approximate_zcdp()
        within = rho <= budget.main and delta <= budget.delta
    if not within:
        raise NotPrivate(
            "the mechanisms of this question cost more than its budget: a fault in dither, please report it"
        )
