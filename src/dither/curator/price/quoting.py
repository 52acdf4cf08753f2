"""Quotes: a price in words, with what an analyst may know of the budget; and which questions wait for the owner."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from dither.curator.answers.shape import choice_note
from dither.curator.charging import Accounts, Exchange
from dither.curator.price.pricing import Prepared, aggregates_of
from dither.curator.price.quote import Quote, QuotedColumn
from dither.curator.who import Asker
from dither.errors import Refused
from dither.ledger import Amount, Currency, Ledger, Limit
from dither.ledger.amount import MAIN_UNITS
from dither.policy.policy import Policy
from dither.privacy import PrivacyLoss, ZcdpLoss
from dither.query.aggregates.predicted import Unknown
from dither.query.kinds import Column, columns
from dither.query.plan.plan import Aggregation, BoundQuestion, Function
from dither.query.price.noise import GAUSSIAN_95, LAPLACE_95, Priced
from dither.query.sql.grouping import one_row_each

LISTED = "free: the groups are public, and nothing is asked of the data"
Approved: TypeAlias = Callable[[str, str], bool]


class Quoting:
    """What analysts are told about prices under one policy."""

    def __init__(
        self,
        policy: Policy,
        exchange: Exchange,
        ledger: Ledger,
        accounts: Accounts,
        approved: Approved = lambda _key, _analyst: False,
    ) -> None:
        self.policy = policy
        self._exchange, self._ledger, self._accounts, self._approved = exchange, ledger, accounts, approved
        self.asker = accounts.asker

    def expect_approved(self, prepared: Prepared) -> None:
        """Refuse a question that has to wait for the owner; nothing was charged yet."""
        above = prepared.who.approval_above
        if above is not None and self.waits(prepared):
            hint = "Request it from the owner, or ask with a smaller ε or a larger error."
            raise _needs_approval(f"ε = {prepared.epsilon:.4g}", above, hint)

    def waits(self, prepared: Prepared) -> bool:
        """Whether a question is above the price, not paid for by this analyst and not approved for them."""
        above, key, account = prepared.who.approval_above, prepared.key, prepared.who.account
        # costs are rounded up, so that what asks for exactly this much costs a little more
        if (
            above is None
            or Fraction(prepared.epsilon) <= above * (1 + Fraction(1, 10**9))
            or self._ledger.paid(key, account)
        ):
            return False
        return not self._approved(key, account.path[-1])

    def check_computation(self, loss: PrivacyLoss, key: str, who: Asker) -> None:
        """Refused if the loss is more than one question of this analyst may cost, or needs the owner's approval."""
        amount = Amount.of(loss, self._exchange.currency, self._exchange.sums[:2])
        limit = self._of_one(who.most_epsilon, amount)
        if not limit.allows(amount):
            raise Refused(
                f"this would cost {amount.in_words(self._exchange.currency)} and a question may cost at most "
                f"{limit.after(Amount()).in_words(self._exchange.currency)}",
                code="epsilon_too_large",
                hint="Give the computation more noise, or have the owner raise max_epsilon_per_query.",
            )
        if self.policy.budget.noise == "laplace" and amount.others == (None,):
            raise Refused(
                "the policy allows Laplace noise only, and this computation loses no ε of its own",
                code="noise_not_allowed",
                hint="Give the computation a loss with an ε, or have the owner allow Gaussian noise.",
            )
        above = who.approval_above
        if above is None or self._of_one(above, amount).allows(amount):
            return
        if not self._ledger.paid(key, who.account):
            raise _needs_approval(
                amount.in_words(self._exchange.currency),
                above,
                "Give the computation more noise, or have the owner run it.",
            )

    def _of_one(self, epsilon: Fraction, amount: Amount) -> Limit:
        """The most that one question of ε may cost: the ρ that it buys, or that ε itself."""
        allowed = self._exchange.for_question(epsilon, self.policy.budget.delta_per_query, discover=amount.delta > 0)
        if self._exchange.currency is Currency.ZCDP:
            return Limit.zcdp(allowed.main, allowed.delta, (int(epsilon * MAIN_UNITS),))
        return Limit.pure(allowed.main)

    def quote(self, prepared: Prepared) -> Quote:
        """A price in words, with what is left now; reads the ledger, and no data."""
        question, priced, who = prepared.question, prepared.priced, prepared.who
        amount = self._ledger.price(prepared.loss)
        aggregation = question.aggregation
        free = question.listing or self._ledger.paid(prepared.key, who.account)
        room = None if question.listing else self._accounts.room(amount, who)
        notes = tuple(f"bounds of {table}.{column} are searched for first" for table, column in prepared.searched)
        return Quote(
            epsilon=prepared.epsilon,
            delta=prepared.delta,
            charge=amount.in_words(self._exchange.currency),
            booked=self._exchange.in_words(amount),
            free=free,
            fits=free or self._accounts.fits(amount, prepared.key, who),
            left=self._accounts.left(who),
            groups=_groups_in_words(aggregation, priced),
            unit=self._unit(aggregation),
            columns=_quoted(prepared),
            confidence=float(prepared.terms.confidence),
            notes=(*notes, *self._of_noise(prepared, amount), *self.notes(question)),
            key=prepared.key,
            priced=priced,
            shape=question.shape,
            explains=question.explain,
            more=None if room is None else room[0],
            share=None if room is None else 0.0 if free else room[1],
            needs_approval=not free and self.waits(prepared),
        )

    def _of_noise(self, prepared: Prepared, amount: Amount) -> tuple[str, ...]:
        """Where the law of the noise was chosen: which it is, what that closes, and what is left after it."""
        law = prepared.settled.terms.noise
        if law is None or self._ledger.paid(prepared.key, prepared.who.account):
            return ()
        if None in amount.others:
            closed = "it closes the sum of ε for good, for you and for everybody together"
            return (f"{law.capitalize()} noise, as {self._chosen_by(prepared)}: {closed}",)
        text = f"{law.capitalize()} noise, as {self._chosen_by(prepared)}: it leaves the sum of ε open"
        rough = ZcdpLoss(_ten_times_rougher(prepared), self.policy.schema.adjacency)
        room = self._accounts.room_after(amount, amount, prepared.who)
        other = self._accounts.room_after(amount, self._ledger.price(rough), prepared.who)
        if room is None or other is None:
            return (text,)
        rougher = f", or {other:,} ten times as rough with Gaussian noise" if self.policy.budget.noise == "any" else ""
        return (f"{text}; after it there is room for about {room:,} more like it{rougher}",)

    def _chosen_by(self, prepared: Prepared) -> str:
        asked = prepared.terms.noise or prepared.question.options.noise
        return "the question asks" if asked is not None else "the policy says"

    def notes(self, question: BoundQuestion) -> tuple[str, ...]:
        """What goes with an answer in words: what bounding may leave out, and that noise chose its rows."""
        if question.listing:
            return (LISTED,)
        return (*self.cut(question.aggregation), *self._means(question.aggregation), *choice_note(question.shape))

    def _means(self, aggregation: Aggregation) -> tuple[str, ...]:
        """Which of the two means an average is, where they differ; of the other, that it is there."""
        if aggregation.units == "row" or one_row_each(aggregation.relation):
            return ()
        asked = {aggregate.function for aggregate in aggregation.aggregates}
        unit = self.policy.schema.tables[aggregation.tables[0]].unit_column
        notes = []
        if Function.AVG in asked:  # it names the other one too
            notes.append(
                f"AVG is the mean over rows; AVG_PER_UNIT that of each {unit}'s own mean, and cuts off no rows"
            )
        elif Function.AVG_PER_UNIT in asked:
            notes.append(f"AVG_PER_UNIT is the mean of each {unit}'s own mean; AVG that over rows")
        return tuple(notes)

    def nothing_shown(self, priced: Priced) -> tuple[str, ...]:
        """What to do where no group was large enough; nothing where groups are public, which are always shown."""
        if priced.selection is None:
            return ()
        aggregation, enough = priced.aggregation, priced.selection.enough
        who = "rows"
        if aggregation.units == "column":
            who = f"people ({self.policy.schema.tables[aggregation.tables[0]].unit_column})"
        ways = "group by coarser keys, ask with a larger ε, or have the owner list the values (in = [...])"
        bounds = "or state bounds of dates and numbers, which makes their groups public"
        return (f"no group reached about {enough:,} {who}, from where groups are shown: {ways}, {bounds}",)

    def cut(self, aggregation: Aggregation) -> tuple[str, ...]:
        """What bounding may leave out, in words: no error bar speaks of it. Nothing where nothing can be cut."""
        if aggregation.units == "row" or one_row_each(aggregation.relation):
            return ()
        parts = []
        if any(aggregate.function is not Function.COUNT_UNITS for aggregate in aggregation.aggregates):
            parts.append(f"as at most {_counted(aggregation.rows, 'row')}" + (" in each" if aggregation.keys else ""))
        if aggregation.keys:
            parts.append(f"{'of' if parts else 'in'} at most {_counted(aggregation.groups, 'group')}")
        if not parts:
            return ()
        text = f"{self._who(aggregation)} counts {' '.join(parts)}"
        return (f"{text}; what that cuts off isn't in the error",)

    def _who(self, aggregation: Aggregation) -> str:
        if aggregation.units == "row":
            return "each row"
        return f"each {self.policy.schema.tables[aggregation.tables[0]].unit_column}"

    def _unit(self, aggregation: Aggregation) -> str:
        tables = [self.policy.schema.tables[name] for name in aggregation.tables]
        names = ", ".join(table.name for table in tables)
        return f"{self._who(aggregation)} of {names}, against {self.policy.schema.adjacency.sentence}"


def _ten_times_rougher(prepared: Prepared) -> Fraction:
    """About the ρ of the same question with Gaussian noise and ten times the error: of one cell in each group."""
    epsilon, groups = Fraction(prepared.epsilon), prepared.question.aggregation.groups
    return (Fraction(GAUSSIAN_95) * epsilon / (10 * Fraction(LAPLACE_95))) ** 2 / (2 * groups)


def _quoted(prepared: Prepared) -> tuple[QuotedColumn, ...]:
    """The columns of the answer, with the errors to expect."""
    errors, mechanisms = prepared.priced.errors(prepared.terms.confidence), prepared.priced.mechanisms
    quoted = []
    for output in prepared.question.shape.outputs:
        used = aggregates_of(columns(output.expression))
        if not used:
            quoted.append(QuotedColumn(name=output.name, error="", half_width=None, mechanism=""))
            continue
        error = errors[used[0]]
        if not isinstance(output.expression, Column):
            error = Unknown("computed from the noisy values")
        elif "." in output.expression.name:
            error = Unknown("the end of an interval")
        elif prepared.searched:
            error = Unknown("known once bounds are found")
        quoted.append(
            QuotedColumn(
                name=output.name,
                error=str(error),
                half_width=error.half_width,
                mechanism=", ".join(dict.fromkeys(mechanisms[i] for i in used)),
                predicted=error,
            )
        )
    return tuple(quoted)


def _needs_approval(cost: str, above: Fraction, hint: str) -> Refused:
    """A question that waits for the owner; nothing was charged."""
    return Refused(
        f"this costs {cost}, and above ε = {float(above):g} the owner of the data must approve a question first",
        code="needs_approval",
        hint=hint,
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _groups_in_words(aggregation: Aggregation, priced: Priced) -> str:
    if not aggregation.keys:
        return "none: one row"
    if not aggregation.discover:
        size = math.prod(len(key.values or ()) for key in aggregation.keys)
        return f"{size:,} public, all of them answer"
    return f"discovered: {priced.selection_in_words(one_each=one_row_each(aggregation.relation))}"
