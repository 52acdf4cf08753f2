"""How the loss of a computation is booked: on its own sums, or from its exact curve as (ε, δ).

A sampled training run may lose ε = 2.12 at δ = 1e-6, and have no ε of its own and a ρ of 500: on its own sums it would
close that of ε, and take all of ρ, for everybody. But every (ε, δ) on its curve is a decomposition too: the laws of
neighbours are mixtures, in parts 1 − δ and δ, whose first parts lose ε (Kairouz, Oh & Viswanath 2015). Booked so, δ is
given away once, and every sum is that of the first part: ε, and the ρ and the Rényi divergences of randomised response.
All sums speak of one decomposition, since the proof of the filter takes what is given away off once for all of them.

Which way is taken is stated by whoever runs it, or follows from public facts: never from what others have spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dither.curator.asker import Asker
from dither.curator.charging import Accounts
from dither.curator.computation import Computation, expect_runnable
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.price.computation_quote import Booking, ComputationQuote
from dither.curator.price.pricing import ROUNDING, Pricing
from dither.errors import IncompatibleLosses, InvalidParameter, Refused
from dither.ledger import Amount, Currency, Ledger, Limit, Quantity
from dither.ledger.amount import DELTA_UNITS, MAIN_UNITS
from dither.numeric import Number, as_fraction, ceil_div
from dither.policy.file_schema import SMALLEST_DELTA
from dither.policy.policy import Policy
from dither.privacy import ApproximateLoss, Json, PrivacyLoss

# An ε that is read off a curve is rounded up to this, so that platforms that differ in its last places charge the same.
STEPS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """A computation as it goes to the ledger: under which name, with which loss, and what else is noted."""

    key: str
    loss: PrivacyLoss
    note: Mapping[str, Json] = field(default_factory=dict)


class Bookings:
    """Prices computations under one policy."""

    def __init__(
        self, policy: Policy, exchange: Exchange, ledger: Ledger, accounts: Accounts, pricing: Pricing
    ) -> None:
        self._policy, self._exchange, self._ledger = policy, exchange, ledger
        self._accounts, self._pricing = accounts, pricing

    def chosen(self, computation: Computation, delta: Number | None, who: Asker) -> Booked:
        """The booking at this δ, or the usual one; Refused, free, for what may not run.

        Args:
            computation: With the loss that it states.
            delta: 0 for its own sums, another for its curve there.
            who: Who would pay.
        """
        loss = self._stated(computation)
        at = self._default(loss) if delta is None else self._asked(delta)
        booked = self._booked(computation, loss, at)
        self._expect_allowed(loss, booked, who)
        if self._waits(loss, booked, who):
            above = who.approval_above
            raise Refused(
                f"this costs {self._in_words(loss)}, and above ε = {float(above or 0):g} the owner of the data must "
                "approve a question first",
                code="needs_approval",
                hint="Give the computation more noise, or have the owner run it.",
            )
        return booked

    def quote(self, computation: Computation, delta: Number | None, who: Asker) -> ComputationQuote:
        """Every way to book it, and the one that is taken; Refused where ``chosen`` is, but for the owner's approval.

        Args:
            computation: With the loss that it states.
            delta: As for ``chosen``.
            who: Who would pay.
        """
        loss = self._stated(computation)
        usual = self._default(loss) if delta is None else self._asked(delta)
        taken = self._booked(computation, loss, usual)
        self._expect_allowed(loss, taken, who)
        found: dict[Fraction, Booking] = {}
        for at in sorted({Fraction(0), usual, self._delta}):
            try:
                booked = self._booked(computation, loss, at)
                self._expect_law(booked)
            except (Refused, IncompatibleLosses):
                continue
            found[at] = self._booking(booked, at, who)
        return ComputationQuote(
            epsilon=self._reading(loss),
            delta=float(self._delta),
            bookings=tuple(found.values()),
            booking=found[usual],
            left=self._accounts.left(who),
            needs_approval=self._waits(loss, taken, who),
        )

    # ------------------------------------------------------------------ which booking

    def _stated(self, computation: Computation) -> PrivacyLoss:
        loss = computation.loss()
        expect_runnable(computation, loss, self._policy.schema)
        return loss

    @property
    def _delta(self) -> Fraction:
        """The δ of one question; 0 where the budget has none."""
        return Fraction(0) if self._pure else self._policy.budget.delta_per_query

    @property
    def _pure(self) -> bool:
        return self._exchange.currency is Currency.PURE

    def _default(self, loss: PrivacyLoss) -> Fraction:
        """Its own sums, where its ε or ρ is what the policy lets one question cost; else its curve at that δ."""
        own = self._own(loss)
        if self._pure or (own is not None and self._of_one(self._policy.budget.max_epsilon_per_query, own).allows(own)):
            return Fraction(0)
        return self._delta

    def _asked(self, delta: Number) -> Fraction:
        """The δ that was asked for, if a question may give away so much."""
        exact = as_fraction(delta, "delta")
        if not 0 <= exact < 1:
            raise InvalidParameter(f"delta must be at least 0 and below 1; got {delta!r}")
        if exact > self._delta:
            raise Refused(
                f"the computation is to be booked at δ = {float(exact):.3g}, and "
                + ("this budget has no δ" if self._pure else f"the policy allows {float(self._delta):.3g} a question"),
                code="delta_too_large",
                hint="Leave delta out, take 0 for its own sums, or have the owner raise delta_per_query.",
            )
        if 0 < exact < SMALLEST_DELTA:
            raise Refused(
                "a δ above 0 must be at least 2e-18", code="delta_too_small", hint="Take delta=0, or a larger one."
            )
        return exact

    def _booked(self, computation: Computation, loss: PrivacyLoss, delta: Fraction) -> Booked:
        """The booking at this δ."""
        if not delta:
            return Booked(key=self._pricing.key_of_computation(computation, loss), loss=loss)
        epsilon = loss.epsilon(delta)
        if math.isinf(epsilon):
            raise Refused(
                f"the computation's loss has no ε at δ = {float(delta):.3g}",
                code="no_epsilon",
                hint="Book it at a larger delta, or on its own sums with delta=0.",
            )
        exact = Fraction(epsilon)
        rounded = Fraction(ceil_div(exact.numerator * STEPS, exact.denominator), STEPS)
        if math.isfinite(loss.pure()):
            rounded = min(rounded, loss.pure_exactly())
        return Booked(
            key=self._pricing.key_of_computation(computation, loss, delta=delta),
            loss=ApproximateLoss(rounded, delta, loss.adjacency),
            # the ledger adds up what is booked; what was stated is kept beside it
            note={"stated": loss.to_json()},
        )

    # ------------------------------------------------------------------ what may run

    def _own(self, loss: PrivacyLoss) -> Amount | None:
        """What its own sums of ε and ρ are; None where it has neither."""
        if self._pure:
            return Amount.of(loss, Currency.PURE)
        try:
            return Amount.of(loss, Currency.ZCDP, self._exchange.sums[:2])
        except IncompatibleLosses:
            return None

    def _reading(self, loss: PrivacyLoss) -> float:
        """Its ε by itself, at the δ of a question: the exact curve is the best of all proven readings."""
        return loss.pure() if self._pure else min(loss.pure(), loss.epsilon(self._delta))

    def _within(self, loss: PrivacyLoss, epsilon: Fraction) -> bool:
        """Whether it loses no more than a question of ε: by its ε, by the ρ that this buys, or by its curve."""
        own = self._own(loss)
        if own is not None and self._of_one(epsilon, own).allows(own):
            return True
        reading = self._reading(loss)
        return not self._pure and math.isfinite(reading) and Fraction(reading) <= epsilon * ROUNDING

    def _of_one(self, epsilon: Fraction, amount: Amount) -> Limit:
        """The most that one question of ε may cost: the ρ that it buys, or that ε itself."""
        allowed = self._exchange.for_question(epsilon, self._policy.budget.delta_per_query, discover=amount.delta > 0)
        if self._pure:
            return Limit.pure(allowed.main)
        return Limit.zcdp(allowed.main, allowed.delta, (int(epsilon * MAIN_UNITS),))

    def _in_words(self, loss: PrivacyLoss) -> str:
        own = self._own(loss)
        told = [] if own is None else [own.in_words(self._exchange.currency)]
        return ", or ".join([*told, *([] if self._pure else [f"ε = {self._reading(loss):.4g} by its curve"])])

    def _expect_allowed(self, loss: PrivacyLoss, booked: Booked, who: Asker) -> None:
        """Refused if the loss is more than one question of this analyst may cost, or the policy wants an ε booked."""
        if not self._within(loss, who.most_epsilon):
            own = self._own(loss)
            most = self._of_one(who.most_epsilon, own or Amount()).after(Amount())
            raise Refused(
                f"this would cost {self._in_words(loss)} and a question may cost at most "
                f"{most.in_words(self._exchange.currency)}"
                + ("" if self._pure else f", or ε = {float(who.most_epsilon):g}"),
                code="epsilon_too_large",
                hint="Give the computation more noise, or have the owner raise max_epsilon_per_query.",
            )
        self._expect_law(booked)

    def _expect_law(self, booked: Booked) -> None:
        """Refused if it would close the sum of ε where the policy allows Laplace noise alone, to keep that open."""
        if self._policy.budget.noise == "laplace" and math.isinf(booked.loss.decomposed()[0].pure()):
            raise Refused(
                "the policy allows Laplace noise only, and this computation loses no ε of its own",
                code="noise_not_allowed",
                hint="Give the computation a loss with an ε, book it from its curve "
                f"(delta={float(self._delta):.3g}), or have the owner allow Gaussian noise.",
            )

    def _waits(self, loss: PrivacyLoss, booked: Booked, who: Asker) -> bool:
        """Whether the owner has to run it: above the price of approval, and not paid for by this analyst."""
        above = who.approval_above
        return above is not None and not self._within(loss, above) and not self._ledger.paid(booked.key, who.account)

    # ------------------------------------------------------------------ what it does

    def _booking(self, booked: Booked, delta: Fraction, who: Asker) -> Booking:
        """One booking with what it closes and leaves, of the account that the analyst may know."""
        amount, limit = self._ledger.price(booked.loss), self._accounts.limits().get(who.told)
        parts = self._by_sum(amount)
        most = dict.fromkeys(parts) if limit is None else self._by_sum(limit)
        free = self._ledger.paid(booked.key, who.account)
        left, after = self._accounts.left_after(Amount() if free else amount, who)
        room = self._accounts.room(amount, who)
        # in a small budget some orders have room for nothing from the beginning
        closes = tuple(one for one, units in parts.items() if units is None and most[one] != 0)
        return Booking(
            delta=float(delta),
            epsilon=_plain(parts.get("ε")),
            rho=_plain(parts.get("ρ")),
            given=float(Fraction(amount.delta, DELTA_UNITS)),
            charge=self._charge(amount, closes),
            closes=closes,
            fills=tuple(one for one, units in parts.items() if most[one] and _above(units, most[one])),
            open=tuple(one for one, units in self._by_sum(after).items() if units or (limit is None and units == 0)),
            fits=free or self._accounts.fits(amount, booked.key, who),
            free=free,
            more=None if room is None else room[0],
            share=None if room is None else 0.0 if free else room[1],
            left=left,
            key=booked.key,
        )

    def _by_sum(self, units: Amount | Limit) -> dict[str, int | None]:
        """Units by what is added up; what a limit doesn't name has room for nothing."""
        named = (units.main, *units.others)
        missing = (0,) * (len(self._exchange.sums) - len(named))
        return {one.symbol: part for one, part in zip(self._exchange.sums, (*named, *missing), strict=True)}

    def _charge(self, amount: Amount, closes: tuple[str, ...]) -> str:
        """What is added, in words: ε first, which is what it is known by."""
        if self._pure:
            return amount.in_words(Currency.PURE)
        place = next((i for i, one in enumerate(self._exchange.sums) if one.quantity is Quantity.EPSILON), 0)
        told = [amount.of_sum_in_words(place, self._exchange.sums)] if "ε" not in closes else []
        return " and ".join([*told, amount.main_in_words(Currency.ZCDP)])


def _above(units: int | None, most: int | None) -> bool:
    return units is not None and most is not None and units > most


def _plain(units: int | None) -> float | None:
    """Units of a sum as a number, for people."""
    return None if units is None else units / MAIN_UNITS
