"""Privacy loss: one hockey-stick curve per mechanism, every other view derived from it.

For neighbours x, x' a mechanism has two output laws. A *dominating pair* (P, Q) is at least as far apart as any
of them in every hockey-stick divergence H(ε) = sup_S P(S) − e^ε·Q(S) (Zhu, Dong & Wang 2022). The curve ε ↦ H(ε)
over all real ε says everything about the pair, and the curves of adaptively composed mechanisms are those of the
product pairs. So a loss states its curve, and composition, repetition, groups and sampling are written once.

Two are here that are stated by their guarantee alone, with the worst curve that it allows: ε, and (ε, δ); for ρ see
``zcdp``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, down, fraction_down, fraction_up, positive_int, smallest_true, up
from dither.numeric.rounding import SLACK
from dither.privacy.curve import REACHES, ROUNDING, Array, Cells, Direction, at_least_nothing, mirrored
from dither.privacy.distributions.pld import Pld
from dither.privacy.kinds import KINDS
from dither.privacy.renyi import pure_gaussian, pure_kl, pure_renyi, pure_zcdp, renyi_epsilon
from dither.privacy.unit import Adjacency

Json: TypeAlias = dict[str, Any]

JSON_VERSION = 1
# Losses above this are worthless as promises; the search for ε stops there and answers infinity.
LARGEST_EPSILON = 1e5


class PrivacyLoss(ABC):
    """How far apart the outputs of two neighbours can be. Only ``profile`` is required.

    Every view is an upper bound unless its name says otherwise; infinity is a legal loss, NaN never.
    """

    __slots__ = ()
    kind: ClassVar[str] = ""
    _kinds: ClassVar[dict[str, type[PrivacyLoss]]] = {}
    adjacency: Adjacency

    def __init_subclass__(cls, *, kind: str = "", **extra: Any) -> None:
        """A subclass names its permanent JSON kind: ``class MyLoss(PrivacyLoss, kind="mine")``."""
        super().__init_subclass__(**extra)
        # dataclass(slots=True) makes the class a second time, without the keyword: it takes the first one's place
        kind = kind or cls.__dict__.get("kind", "")
        if kind:
            home, registered = f"{cls.__module__}:{cls.__qualname__}", PrivacyLoss._kinds.get(kind)
            # a kind of the table is taken whether or not its module was loaded yet
            if KINDS.get(kind, home) != home:
                raise InvalidParameter(f"the loss kind {kind!r} is taken by {KINDS[kind]}")
            if registered is not None and registered.__qualname__ != cls.__qualname__:
                raise InvalidParameter(f"the loss kind {kind!r} is taken by {registered.__qualname__}")
            cls.kind = kind
            PrivacyLoss._kinds[kind] = cls

    # ------------------------------------------------------------------ what a mechanism states

    @abstractmethod
    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """H(ε) = sup_S P(S) − e^ε·Q(S) for every real ε of the array, rounded up.

        Args:
            epsilon: Where, also below 0.
            direction: From which neighbour the output came.
        """

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The same curve from below.

        A curve in closed form is exact up to its rounding, and needs nothing more than this. Where ``profile`` is more
        than that above the curve (a polygon, a sum that was cut off, another loss's bound), and in every loss that is
        made of others, state it: a transformed upper bound is no lower bound.

        Args:
            epsilon: Where, also below 0.
            direction: From which neighbour the output came.
        """
        beyond = epsilon + np.abs(epsilon) * ROUNDING
        known = np.nan_to_num(self.profile(beyond, direction), nan=0.0) * (1 - ROUNDING) - self.allowance
        return at_least_nothing(known, epsilon)

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same curve."""
        return False

    @property
    def tight(self) -> bool:
        """Whether the curve is that of a real pair, and not merely a bound that another view may beat."""
        return True

    def pure(self) -> float:
        """The smallest known ε with δ = 0, or infinity."""
        return math.inf

    def pure_exactly(self) -> Fraction:
        """The pure ε as an exact number, for adding up; only where ``pure`` is finite."""
        return Fraction(self.pure())

    def zcdp_exactly(self) -> Fraction:
        """ρ as an exact number, for adding up; only where ``zcdp`` is finite."""
        return Fraction(self.zcdp())

    def renyi(self, order: float) -> float:
        """An upper bound of the Rényi divergence of this order (> 1), for both directions.

        Args:
            order: Above 1.
        """
        return pure_renyi(self.pure(), order)

    def zcdp(self) -> float:
        """The smallest known ρ with D_α ≤ ρα for all α > 1, or infinity."""
        return pure_zcdp(self.pure())

    def approximate_zcdp(self) -> tuple[float, float]:
        """(ρ, δ) such that this is δ-approximately ρ-zCDP; δ is zero unless something can be given away."""
        return self.zcdp(), 0.0

    def decomposed(self) -> tuple[PrivacyLoss, Fraction]:
        """(loss, δ): the laws of neighbours are mixtures, in parts 1 − δ and δ, and the first parts have this loss.

        Sums that are kept side by side are all read off the first part, so that δ is given away once. Where nothing
        is known to be given away this is the loss itself, and δ is zero.
        """
        return self, Fraction(0)

    def kl(self) -> float:
        """An upper bound of the expected loss E_P[L], for both directions."""
        return min(pure_kl(self.pure()), self.zcdp())

    def gaussian(self) -> float:
        """The smallest known μ such that telling neighbours apart is no easier than N(0,1) from N(μ,1)."""
        return pure_gaussian(self.pure())

    def cells(self, edges: Array, direction: Direction) -> Cells | None:  # noqa: ARG002
        """Masses of the loss between edges, where they are known to full relative accuracy.

        Optional: with it the lower bound of a composition is much tighter.

        Args:
            edges: In ascending order.
            direction: From which neighbour the output came.

        Returns:
            Masses under P and under Q, or None where they aren't known.
        """
        return None

    @classmethod
    def merge(cls, parts: list[tuple[PrivacyLoss, int]]) -> list[tuple[PrivacyLoss, int]]:
        """Composed losses of one class, with a closed form if there is one (Gaussians merge into one).

        Args:
            parts: Losses of this class, each with how often it is run.

        Returns:
            As few such pairs as there is a closed form for.
        """
        return parts

    def grouped(self, size: int) -> PrivacyLoss:
        """The loss towards ``size`` units together.

        Args:
            size: How many units are in the group.
        """
        k = positive_int(size, "size")
        several: PrivacyLoss = self if k == 1 else class_of("grouped")(self, k, self.adjacency)
        return several

    def parameters(self) -> Json:
        """The fields of the permanent JSON form, exact numbers as strings; by default those of the dataclass.

        Forms are permanent: a field that is renamed needs both of these methods.
        """
        parts = {stored: getattr(self, name) for name, stored, _ in _stored_fields(type(self))}
        base = {"loss": parts.pop("loss").to_json()} if "loss" in parts else {}
        return {name: str(part) if isinstance(part, Fraction) else part for name, part in parts.items()} | base

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse of ``parameters``.

        Args:
            parameters: What ``parameters`` wrote.
        """
        given = [read(parameters[name], name) for _, name, read in _stored_fields(cls)]
        # every loss takes its own fields in their order, and then the adjacency
        make: Callable[..., Self] = cls
        return make(*given, Adjacency(parameters["adjacency"]))

    # ------------------------------------------------------------------ what follows for all

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that have to be looked at."""
        return (Direction.REMOVE,) if self.symmetric else (Direction.REMOVE, Direction.ADD)

    def delta(self, epsilon: Number) -> float:
        """An upper bound of the smallest δ for which this is (ε, δ)-private.

        Args:
            epsilon: Where the curve is read.
        """
        value = fraction_down(as_fraction(epsilon, "epsilon"))
        if value >= self.pure():
            return 0.0
        return min(1.0, max(0.0, self._worst(value)))

    def epsilon(self, delta: Number) -> float:
        """An upper bound of the smallest ε ≥ 0 for which this is (ε, δ)-private.

        Args:
            delta: At least 0 and below 1.

        Example:
            >>> from dither.privacy import PureLoss
            >>> PureLoss(1).epsilon(delta=0)
            1.0
        """
        exact = checked_delta(delta)
        rounded = fraction_down(exact)
        return self.pure() if rounded == 0 else self._epsilon_up(rounded)

    def epsilon_bounds(self, delta: Number) -> tuple[float, float]:
        """(low, high) with low ≤ ε(δ) ≤ high, for the loss as it is stated.

        A loss whose curve is exact (Laplace, Gaussian, randomised response and what is composed or sampled from
        them) has its true ε in between; a curve that is itself a bound brackets that bound.

        Args:
            delta: At least 0 and below 1.
        """
        exact = checked_delta(delta)
        high = self.epsilon(exact)
        rounded = fraction_down(exact)
        if exact == 0:
            return min(self._pure_down(), high), high
        if rounded == 0 or high in (0.0, math.inf):
            return 0.0, high
        return min(self._epsilon_down(rounded), high), high

    def pld(self, direction: Direction = Direction.REMOVE, step: float | None = None) -> Pld:
        """The privacy loss distribution on a grid, rounded towards more loss.

        Args:
            direction: From which neighbour the output came.
            step: The distance of two points of the grid; one that is fine enough by default.
        """
        return Pld.of(self, direction, step)

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        return _composed([(self, 1), (other, 1)])

    def __rmul__(self, times: int) -> PrivacyLoss:
        if isinstance(times, bool) or not isinstance(times, int | np.integer):
            return NotImplemented
        return _composed([(self, int(times))])

    __mul__ = __rmul__

    def __radd__(self, other: object) -> PrivacyLoss:
        # lets sum(losses) work, which starts from 0
        return self if other == 0 else NotImplemented

    def to_json(self) -> Json:
        """The permanent form that the ledger stores.

        Example:
            >>> from dither.privacy import PureLoss
            >>> PureLoss("1/2").to_json()
            {'version': 1, 'kind': 'pure', 'adjacency': 'add_remove', 'epsilon': '1/2'}
        """
        return {"version": JSON_VERSION, "kind": self.kind, "adjacency": self.adjacency.value, **self.parameters()}

    @staticmethod
    def from_json(form: object) -> PrivacyLoss:
        """The loss that ``to_json`` wrote, by this or an earlier version.

        Args:
            form: As ``to_json`` wrote it.
        """
        if not isinstance(form, dict) or form.get("version") != JSON_VERSION:
            raise InvalidParameter(f"expected the JSON form of a loss, version {JSON_VERSION}; got {form!r}")
        known = PrivacyLoss._class_of(str(form.get("kind")))
        try:
            return known.from_parameters(form)
        except InvalidParameter:
            raise
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as problem:
            raise InvalidParameter(
                f"the JSON form of a {known.kind!r} loss lacks or garbles a field: {problem}"
            ) from problem

    @staticmethod
    def _class_of(kind: str) -> type[PrivacyLoss]:
        """The class of a kind: dither's own by the table, another's if it was defined in this process."""
        if kind in KINDS:
            listed: type[PrivacyLoss] = class_of(kind)
            return listed
        if kind not in PrivacyLoss._kinds:
            raise InvalidParameter(
                f"unknown kind of loss {kind!r}. If a later version of dither wrote it, update dither; if it is a "
                f"class of your own, import its module first. Known: {', '.join(sorted({*KINDS, *PrivacyLoss._kinds}))}"
            )
        return PrivacyLoss._kinds[kind]

    # ------------------------------------------------------------------ searching the curve

    def _epsilon_up(self, delta: float) -> float:
        pure = self.pure()
        limit = pure if math.isfinite(pure) else LARGEST_EPSILON
        if limit != pure and self._worst(limit) > delta:
            return renyi_epsilon(self.renyi, delta)
        found = smallest_true(lambda e: self._worst(e) <= delta, 0.0, limit, relative=1e-14)
        return found if found == limit else up(found, 2.0**-50)

    def _epsilon_down(self, delta: float) -> float:
        """A lower bound for the exact δ that was rounded down to ``delta``: an ε at which the curve is surely above.

        The point that is returned has been tested, so nothing rests on how the bound runs between points.
        """
        above = math.nextafter(delta, 1.0)
        low, high = 0.0, self._epsilon_up(delta)
        if not math.isfinite(high):
            return 0.0
        while high - low > 1e-13 * high:
            points = np.linspace(low, high, 33)
            curve = np.maximum.reduce([self.profile_down(points, way) for way in self.directions])
            sure = np.flatnonzero(curve >= above)
            if not sure.size or points[1] == low:
                break
            last = int(sure[-1])
            low, high = float(points[last]), float(points[min(last + 1, 32)])
        return low

    def _pure_down(self) -> float:
        """The pure ε from below, for a loss whose pure ε is exact up to its rounding."""
        return down(self.pure(), ROUNDING)

    @property
    def allowance(self) -> float:
        """By how much the curve may overstate δ, besides a share of 2^-36 of it."""
        return 0.0

    def _worst(self, epsilon: float) -> float:
        """The larger of both directions; what is no number counts as everything."""
        point = np.array([epsilon])
        values = [float(self.profile(point, d)[0]) for d in self.directions]
        return 1.0 if any(math.isnan(value) for value in values) else max(values)

    def reach(self, tail: float, direction: Direction) -> float:
        """An ε at which the curve of this direction has fallen to ``tail``, or is as low as it gets up to e^600.

        Args:
            tail: How low the curve is to be.
            direction: From which neighbour the output came.
        """
        pure = self.pure()
        if pure <= 1.0:
            return pure
        curve = self.profile(REACHES, direction)
        # a curve that never falls to zero (something may be given away) is followed to within a millionth of its end
        low = np.flatnonzero(curve <= max(tail, float(curve[-1]) * (1 + 1e-6)))
        return min(pure, float(REACHES[low[0]]))


@cache
def _stored_fields(loss: type[PrivacyLoss]) -> tuple[tuple[str, str, Callable[[Any, str], Any]], ...]:
    """Of each field its name, its name in the JSON form, and how it is read; the loss this is made of is "loss"."""
    found: list[tuple[str, str, Callable[[Any, str], Any]]] = []
    for field in fields(cast("Any", loss)):
        if field.type in ("PrivacyLoss", PrivacyLoss):
            found.append((field.name, "loss", lambda form, _: PrivacyLoss.from_json(form)))
        elif field.name != "adjacency":
            read = (lambda number, _: int(number)) if field.type in ("int", int) else as_fraction
            found.append((field.name, field.name.removeprefix("exact_"), read))
    return tuple(found)


def expect_loss(value: object) -> None:
    """Raise unless it is a PrivacyLoss; usually a mechanism was passed in its place."""
    if not isinstance(value, PrivacyLoss):
        raise InvalidParameter(
            f"expected a loss, such as Laplace(scale=2).loss(Sensitivity.l1(1)); got {type(value).__name__}"
        )


def _composed(parts: list[tuple[PrivacyLoss, int]]) -> PrivacyLoss:
    together: PrivacyLoss = class_of("composed").of(parts)
    return together


def checked_delta(delta: Number) -> Fraction:
    """A δ that a loss may be read at."""
    exact = as_fraction(delta, "delta")
    if not 0 <= exact < 1:
        raise InvalidParameter(f"delta must be at least 0 and below 1; got {delta!r}")
    return exact


def class_of(kind: str) -> Any:
    """The class of a kind of the table of kinds, loaded if need be."""
    module, _, name = KINDS[kind].partition(":")
    return getattr(import_module(module), name)


def randomized_response_profile(pure: float, epsilon: Array) -> Array:
    """The curve of binary randomised response: (e^ε₀ − e^ε)₊ / (e^ε₀ + 1) for ε ≥ 0."""
    gap = np.minimum(np.abs(epsilon) - pure, 0.0)
    return mirrored(np.asarray(-np.expm1(gap) / (1 + math.exp(-pure)) * (1 + SLACK)), epsilon)


def randomized_response_cells(pure: float, edges: Array) -> Cells:
    """Two point masses: e^ε/(1+e^ε) at ε, the rest at −ε."""
    nothing = np.zeros(edges.size - 1)
    high = 1 / (1 + math.exp(-pure))
    return Cells(nothing, nothing, 0.0, np.array([pure, -pure]), np.array([high, math.exp(-pure) * high]), 4e-16)


def nonnegative(value: Number, name: str) -> Fraction:
    """An exact loss parameter; zero is the loss of an answer that doesn't depend on the data."""
    exact = as_fraction(value, name)
    if exact < 0:
        raise InvalidParameter(f"{name} must not be negative; got {value!r}")
    return exact


@dataclass(frozen=True, slots=True)
class PureLoss(PrivacyLoss, kind="pure"):
    """ε-privacy and nothing more is known.

    Guarantee: the curve of binary randomised response dominates every ε-private mechanism
        (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> (PureLoss(1) + PureLoss("1/2")).pure()
        1.5
    """

    exact_epsilon: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # both directions have one curve

    def __init__(self, epsilon: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        object.__setattr__(self, "exact_epsilon", nonnegative(epsilon, "epsilon"))
        object.__setattr__(self, "adjacency", adjacency)

    def pure_exactly(self) -> Fraction:
        """As it was stated."""
        return self.exact_epsilon

    def pure(self) -> float:
        """ε itself."""
        return fraction_up(self.exact_epsilon)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The curve of randomised response."""
        return randomized_response_profile(self.pure(), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """Two point masses."""
        return randomized_response_cells(self.pure(), edges)

    def grouped(self, size: int) -> PureLoss:
        """Pure losses multiply by the size of the group."""
        return PureLoss(positive_int(size, "size") * self.exact_epsilon, self.adjacency)


@dataclass(frozen=True, slots=True)
class ApproximateLoss(PrivacyLoss, kind="approximate"):
    """(ε, δ)-privacy and nothing more is known.

    Guarantee: with probability δ the output gives everything away, otherwise it is randomised response; that
        dominates every (ε, δ)-private mechanism (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> loss = ApproximateLoss(1, "1/1000000")
        >>> loss.epsilon(delta=1e-6), loss.pure()
        (1.0, inf)
    """

    exact_epsilon: Fraction
    exact_delta: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # both directions have one curve

    def __init__(self, epsilon: Number, delta: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        exact = as_fraction(delta, "delta")
        if not 0 <= exact <= 1:
            raise InvalidParameter(f"delta must lie between 0 and 1; got {delta!r}")
        object.__setattr__(self, "exact_epsilon", nonnegative(epsilon, "epsilon"))
        object.__setattr__(self, "exact_delta", exact)
        object.__setattr__(self, "adjacency", adjacency)

    def pure(self) -> float:
        """ε if δ is zero, else infinity."""
        return fraction_up(self.exact_epsilon) if self.exact_delta == 0 else math.inf

    def approximate_zcdp(self) -> tuple[float, float]:
        """But for probability δ this is ε-private (Bun & Steinke 2016, Lemma 8.8 with the tight ρ of ε)."""
        return pure_zcdp(fraction_up(self.exact_epsilon)), fraction_up(self.exact_delta)

    def decomposed(self) -> tuple[PrivacyLoss, Fraction]:
        """But for probability δ this is ε-private (Kairouz, Oh & Viswanath 2015)."""
        return PureLoss(self.exact_epsilon, self.adjacency), self.exact_delta

    def epsilon(self, delta: Number) -> float:
        """At the stated δ exactly the stated ε: no search, no rounding."""
        if as_fraction(delta, "delta") == self.exact_delta:
            return fraction_up(self.exact_epsilon)
        return PrivacyLoss.epsilon(self, delta)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """δ + (1−δ) times the curve of randomised response."""
        delta = fraction_up(self.exact_delta)
        positive = randomized_response_profile(fraction_up(self.exact_epsilon), np.abs(epsilon))
        return mirrored(delta + (1 - delta) * positive, epsilon)

    def grouped(self, size: int) -> ApproximateLoss:
        """(kε, δ·(e^{kε}−1)/(e^ε−1)), the standard group bound."""
        k = positive_int(size, "size")
        if k == 1:
            return self
        epsilon = fraction_up(self.exact_epsilon)
        if self.exact_delta == 0 or k * epsilon > 700:
            # e^700 times any δ worth stating is more than 1
            return ApproximateLoss(k * self.exact_epsilon, 0 if self.exact_delta == 0 else 1, self.adjacency)
        growth = float(k) if epsilon == 0 else up(math.expm1(k * epsilon) / math.expm1(epsilon))
        grown = min(Fraction(1), self.exact_delta * Fraction(up(growth)))
        return ApproximateLoss(k * self.exact_epsilon, grown, self.adjacency)
