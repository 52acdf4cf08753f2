"""Filters and odometers: spending that stays valid when every parameter is chosen after seeing earlier answers.

Numerical composition (PLD) needs its parameters fixed beforehand: an analyst who picks the next ε by the last answer
can exceed it. The currencies here are the ones whose sums are proven to be filters. A filter refuses a spend that
would exceed its budget, and refusing changes nothing; an odometer says what has been spent so far.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from dither.errors import IncompatibleLosses, InvalidParameter, OutOfBudget
from dither.numeric import Number, as_fraction, fraction_down, fraction_up, positive, up
from dither.privacy.loss import PrivacyLoss, checked_delta
from dither.privacy.renyi import ORDERS
from dither.privacy.unit import Adjacency
from dither.privacy.zcdp import zcdp_epsilon, zcdp_tail

FILTER_ORDERS = tuple(float(order) for order in ORDERS if 2 <= order <= 512)


class _Spending:
    """One adjacency for all that is spent."""

    def __init__(self, adjacency: Adjacency) -> None:
        self.adjacency = adjacency

    def _same_adjacency(self, loss: PrivacyLoss) -> None:
        if loss.adjacency is not self.adjacency:
            raise IncompatibleLosses(
                f"this budget is kept for {self.adjacency.value}; the loss is stated for {loss.adjacency.value}"
            )


class Filter(_Spending, ABC):
    """A budget that can't be overspent, even if parameters are chosen adaptively."""

    @abstractmethod
    def fits(self, loss: PrivacyLoss) -> bool:
        """Whether this loss could still be spent; asking is free."""

    @abstractmethod
    def _book(self, loss: PrivacyLoss) -> None: ...

    @abstractmethod
    def _left(self) -> str: ...

    def spend(self, loss: PrivacyLoss) -> None:
        """Book the loss before the data is read; raises OutOfBudget and changes nothing if it doesn't fit."""
        self._same_adjacency(loss)
        if not self.fits(loss):
            raise OutOfBudget(f"this release doesn't fit in the budget: {self._left()} is left; nothing was spent")
        self._book(loss)


class PureFilter(Filter):
    """Pure losses add up to at most ε.

    Guarantee: for adaptively chosen ε_i the stopped composition is ε-private (Rogers, Roth, Ullman & Vadhan 2016,
        Theorem 3.4 with δ = 0).

    Example:
        >>> from dither.privacy import PureLoss
        >>> budget = PureFilter(epsilon=1)
        >>> budget.spend(PureLoss("0.7")); budget.fits(PureLoss("0.4")), budget.remaining
        (False, Fraction(3, 10))
    """

    def __init__(self, epsilon: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        super().__init__(adjacency)
        self.budget = positive(epsilon, "epsilon")
        self.spent = Fraction(0)

    @property
    def remaining(self) -> Fraction:
        """What can still be spent."""
        return self.budget - self.spent

    def fits(self, loss: PrivacyLoss) -> bool:
        """Whether ε is still there."""
        return math.isfinite(loss.pure()) and self.spent + loss.pure_exactly() <= self.budget

    def _book(self, loss: PrivacyLoss) -> None:
        self.spent += loss.pure_exactly()

    def _left(self) -> str:
        return f"ε = {float(self.remaining):g}"


class ZcdpFilter(Filter):
    """zCDP parameters add up to at most ρ, and the δ of approximate releases to at most δ.

    Guarantee: for adaptively chosen (ρ_i, δ_i) the stopped composition is δ-approximately ρ-zCDP (Feldman & Zrnic 2021,
        Theorem 3.1, at every order; Whitehouse, Ramdas, Rogers & Wu 2023, Theorem 1, for the approximate form).

    Example:
        >>> from dither.privacy import ZcdpLoss
        >>> budget = ZcdpFilter(rho=0.5)
        >>> budget.spend(ZcdpLoss("0.3")); budget.remaining
        Fraction(1, 5)
    """

    def __init__(self, rho: Number, delta: Number = 0, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        super().__init__(adjacency)
        self.budget = positive(rho, "rho")
        self.delta_budget = checked_delta(delta)
        self.spent = Fraction(0)
        self.delta_spent = Fraction(0)

    @property
    def remaining(self) -> Fraction:
        """What can still be spent of ρ."""
        return self.budget - self.spent

    def fits(self, loss: PrivacyLoss) -> bool:
        """Whether both ρ and δ are still there."""
        rho, delta = _approximate(loss)
        return rho is not None and self.spent + rho <= self.budget and self.delta_spent + delta <= self.delta_budget

    def _book(self, loss: PrivacyLoss) -> None:
        rho, delta = _approximate(loss)
        assert rho is not None
        self.spent += rho
        self.delta_spent += delta

    def _left(self) -> str:
        return f"ρ = {float(self.remaining):g}, δ = {float(self.delta_budget - self.delta_spent):g}"

    def epsilon(self, delta: Number) -> float:
        """The whole budget as ε, where ``delta`` pays for the conversion on top of the approximate releases' own."""
        rest = as_fraction(delta, "delta") - self.delta_budget
        if rest <= 0:
            return math.inf
        return zcdp_epsilon(fraction_up(self.budget), float(rest))


def _approximate(loss: PrivacyLoss) -> tuple[Fraction | None, Fraction]:
    """(ρ, δ), exactly as stated where the loss is plain zCDP; ρ is None where it has no such view."""
    if math.isfinite(loss.zcdp()):
        return loss.zcdp_exactly(), Fraction(0)
    rho, delta = loss.approximate_zcdp()
    return (Fraction(rho) if math.isfinite(rho) else None), Fraction(delta)


class _ByOrder(_Spending):
    """Rényi divergences added up at several orders, each of which gets an equal part of δ."""

    orders: tuple[float, ...]
    spent: tuple[float, ...]
    delta: float

    def __init__(
        self, delta: Number, orders: Sequence[float] = FILTER_ORDERS, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> None:
        super().__init__(adjacency)
        if not orders or any(order <= 1 for order in orders):
            raise InvalidParameter("orders must be a non-empty sequence of numbers above 1")
        self.delta = _delta_above_zero(delta)
        self.orders = tuple(float(order) for order in orders)
        self.spent = tuple(0.0 for _ in self.orders)

    def _after(self, loss: PrivacyLoss) -> tuple[float, ...]:
        return tuple(up(s + loss.renyi(order), 2.0**-50) for s, order in zip(self.spent, self.orders, strict=True))

    def _tolls(self) -> tuple[float, ...]:
        """What the part of δ adds at each order: ln(m/δ)/(α−1)."""
        return tuple(up(math.log(len(self.orders) / self.delta) / (order - 1)) for order in self.orders)


class RenyiFilter(Filter, _ByOrder):
    """Rényi divergences add up, at several orders, to at most what (ε, δ) allows.

    Guarantee: e^{(α−1)(L_t − Σ D_i(α))} is a supermartingale for adaptively chosen losses, for every order (Feldman &
        Zrnic 2021; Lécuyer 2021). If at some order the sum stays below ε − ln(m/δ)/(α−1), the loss exceeds ε there
        with probability at most δ/m; over m orders the chances add up to δ.

    Example:
        >>> from dither.privacy import ZcdpLoss
        >>> budget = RenyiFilter(epsilon=3, delta=1e-6)
        >>> budget.spend(ZcdpLoss("0.01")); budget.fits(ZcdpLoss(10))
        False
    """

    def __init__(
        self,
        epsilon: Number,
        delta: Number,
        orders: Sequence[float] = FILTER_ORDERS,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
    ) -> None:
        _ByOrder.__init__(self, delta, orders, adjacency)
        self.epsilon = float(positive(epsilon, "epsilon"))
        self.budgets = tuple(self.epsilon - toll for toll in self._tolls())

    def fits(self, loss: PrivacyLoss) -> bool:
        """Whether some order still has room."""
        return any(after <= budget for after, budget in zip(self._after(loss), self.budgets, strict=True))

    def _book(self, loss: PrivacyLoss) -> None:
        self.spent = self._after(loss)

    def _left(self) -> str:
        room = max(b - s for b, s in zip(self.budgets, self.spent, strict=True))
        return f"a Rényi divergence of {max(room, 0.0):g}"


def _delta_above_zero(delta: Number) -> float:
    given = float(positive(delta, "delta"))
    if given >= 1:
        raise InvalidParameter(f"delta must be below 1; got {delta!r}")
    return given


class _Odometer(_Spending, ABC):
    """Adds up one view of every loss, exactly."""

    def __init__(self, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        super().__init__(adjacency)
        self.spent = Fraction(0)

    @abstractmethod
    def _cost(self, loss: PrivacyLoss) -> Fraction: ...

    def record(self, loss: PrivacyLoss) -> None:
        """Add a loss; one that is infinite in this view can't be measured."""
        self._same_adjacency(loss)
        self.spent += self._cost(loss)


class PureOdometer(_Odometer):
    """What has been spent, in ε, at any moment.

    Guarantee: the running sum bounds the loss at all times at once, whatever was chosen adaptively
        (Rogers, Roth, Ullman & Vadhan 2016).
    """

    def _cost(self, loss: PrivacyLoss) -> Fraction:
        if math.isinf(loss.pure()):
            raise IncompatibleLosses("this loss has no pure ε: use ZcdpOdometer")
        return loss.pure_exactly()

    def epsilon(self) -> float:
        """The ε spent so far."""
        return fraction_up(self.spent)


class ZcdpOdometer(_Odometer):
    """What has been spent, as an ε that holds at all times at once but for probability δ.

    Guarantee: for each of the levels ρ_j = first·ratio^j the composition stopped at ρ_j is ρ_j-zCDP (Feldman & Zrnic
        2021), so its loss exceeds ρ_j + 2√(ρ_j ln(1/δ_j)) with probability at most δ_j = 6δ/(π(j+1))²; the δ_j
        add up to δ, so all levels hold together.

    Example:
        >>> from dither.privacy import ZcdpLoss
        >>> meter = ZcdpOdometer(delta=1e-6)
        >>> meter.record(ZcdpLoss("0.1")); 2 < meter.epsilon() < 3.5
        True
    """

    def __init__(
        self, delta: Number, first: Number = Fraction(1, 1000), adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> None:
        super().__init__(adjacency)
        self.delta = _delta_above_zero(delta)
        self.first = positive(first, "first")
        self.ratio = Fraction(6, 5)

    def _cost(self, loss: PrivacyLoss) -> Fraction:
        if math.isinf(loss.zcdp()):
            raise IncompatibleLosses("this loss has no zCDP view")
        return loss.zcdp_exactly()

    def epsilon(self) -> float:
        """The ε of the first level that covers what was spent."""
        if self.spent == 0:
            return 0.0
        level, covered = 0, self.first
        while covered < self.spent:
            level, covered = level + 1, covered * self.ratio
        share = self.delta * 6 / (math.pi * (level + 1)) ** 2
        return zcdp_tail(fraction_up(covered), share)


class RenyiOdometer(_ByOrder):
    """What has been spent, as an ε that holds at all times at once but for probability δ, through several orders.

    Guarantee: e^{(α−1)(L_t − Σ D_i(α))} is a supermartingale that starts at 1, for adaptively chosen losses (Feldman &
        Zrnic 2021), so by Ville's inequality L_t ≤ Σ D_i(α) + ln(m/δ)/(α−1) at all times but for probability δ/m; over
        m orders the chances add up to δ, and the smallest of the m bounds holds.

    Example:
        >>> from dither.privacy import ZcdpLoss
        >>> meter = RenyiOdometer(delta=1e-6)
        >>> meter.record(ZcdpLoss("0.1")); 2 < meter.epsilon() < 3.5
        True
    """

    def record(self, loss: PrivacyLoss) -> None:
        """Add a loss."""
        self._same_adjacency(loss)
        after = self._after(loss)
        if all(math.isinf(total) for total in after):
            raise IncompatibleLosses("this loss has no Rényi view")
        self.spent = after

    def epsilon(self) -> float:
        """The smallest of the bounds of all orders."""
        if not any(self.spent):
            return 0.0
        return min(up(s + toll) for s, toll in zip(self.spent, self._tolls(), strict=True))


# ρ at which spending is read by levels: each level's ε holds for all who stop below it
FIRST_LEVEL, LEVEL_RATIO, LEVELS = Fraction(1, 4096), Fraction(27, 25), 128
LEVELS_PART = Fraction(3, 4)


def zcdp_epsilon_so_far(rho: Fraction, delta: Fraction) -> float:
    """What ρ was spent by now, as an ε that may be read at any moment, for a δ of its own.

    Guarantee: as ``epsilon_so_far``, where each of the levels ρ_j, fixed beforehand, has a part of δ: below it the
        composition is ρ_j-zCDP (Feldman & Zrnic 2021), so (ε_j, δ_j)-private. Three quarters of δ go to 128 levels in
        equal parts, the rest to levels above that double.

    Example:
        >>> reading = zcdp_epsilon_so_far(Fraction(1, 10), Fraction(1, 10**6))
        >>> zcdp_epsilon(0.1, 1e-6) < reading < 1.35 * zcdp_epsilon(0.1, 1e-6)
        True
    """
    if rho == 0:
        return 0.0
    level, part = FIRST_LEVEL, delta * LEVELS_PART / LEVELS
    for _ in range(LEVELS):
        if rho <= level:
            return zcdp_epsilon(fraction_up(level), fraction_down(part))
        level *= LEVEL_RATIO
    part = delta * (1 - LEVELS_PART) / 2
    while rho > level:
        level, part = 2 * level, part / 2
    return zcdp_epsilon(fraction_up(level), fraction_down(part))
