"""Quotes: a price in words, with what an analyst may know of the budget; and which questions wait for the owner."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from dither.curator.answers.post_processing import choice_note
from dither.curator.charging import Accounts
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.price.pricing import Prepared, aggregates_of
from dither.curator.price.profiles import Profiles
from dither.curator.price.quote import Quote, QuotedColumn
from dither.errors import Refused
from dither.ledger import Amount, Ledger
from dither.policy.policy import Policy
from dither.privacy import ZcdpLoss
from dither.query.aggregates.base import Unknown
from dither.query.kinds import Column, columns
from dither.query.measure.measures import UnitBound, contribution, one_row_each
from dither.query.plan.plan import COUNTED_ONCE, Aggregation, BoundQuestion, Function
from dither.query.price.noise import GAUSSIAN_95, LAPLACE_95, Priced
from dither.query.price.profile import CONFIDENCE, SURE

LISTED = "free: the groups are public, and nothing is asked of the data"
SEARCHES_ROWS = (
    "a fifth of it goes into finding a bound on rows first, with whatever else is searched for; a profile would spare "
    "that, once and for all questions (dither profile)"
)
Approved: TypeAlias = Callable[[str, str], bool]


class Quoting:
    """What analysts are told about prices under one policy."""

    def __init__(
        self,
        policy: Policy,
        exchange: Exchange,
        ledger: Ledger,
        accounts: Accounts,
        profiles: Profiles,
        approved: Approved = lambda _key, _analyst: False,
    ) -> None:
        self.policy = policy
        self._exchange, self._ledger, self._accounts, self._approved = exchange, ledger, accounts, approved
        self._profiles = profiles
        self.asker = accounts.asker

    def expect_approved(self, prepared: Prepared) -> None:
        """Refuse a question that has to wait for the owner; nothing was charged yet."""
        above = prepared.who.approval_above
        if prepared.question.profile and self.waits(prepared):
            raise Refused(
                "everybody may know a profile once it was paid for, so the owner of the data must approve it first",
                code="needs_approval",
                hint="Request it from the owner, or have the owner buy it: dither profile.",
            )
        if above is not None and self.waits(prepared):
            hint = "Request it from the owner, or ask with a smaller ε or a larger error."
            raise _needs_approval(f"ε = {prepared.epsilon:.4g}", above, hint)

    def waits(self, prepared: Prepared) -> bool:
        """Whether a question is above the price, not paid for by this analyst and not approved for them.

        A profile is above it at every price: what it says is public afterwards.
        """
        above, key, account = prepared.who.approval_above, prepared.key, prepared.who.account
        if prepared.question.profile and not prepared.who.owner:
            above = Fraction(0)
            if self.known(prepared):
                return False
        # costs are rounded up, so that what asks for exactly this much costs a little more
        if (
            above is None
            or Fraction(prepared.epsilon) <= above * (1 + Fraction(1, 10**9))
            or self._ledger.paid(key, account)
        ):
            return False
        return not self._approved(key, account.path[-1])

    def known(self, prepared: Prepared) -> bool:
        """Whether it asks for a profile that is known at least as exactly: then it is free, whoever paid."""
        return prepared.question.profile and self._profiles.no_worse(prepared.priced) is not None

    def quote(self, prepared: Prepared) -> Quote:
        """A price in words, with what is left now; reads the ledger, and no data."""
        question, priced, who = prepared.question, prepared.priced, prepared.who
        amount = self._ledger.price(prepared.loss)
        aggregation = question.aggregation
        free = question.listing or self._ledger.paid(prepared.key, who.account) or self.known(prepared)
        room = None if question.listing else self._accounts.room(amount, who)
        notes = tuple(f"bounds of {table}.{column} are searched for first" for table, column in prepared.searched)
        if prepared.rows_budget is not None:
            notes = (*notes, SEARCHES_ROWS)
        return Quote(
            epsilon=prepared.epsilon,
            delta=prepared.delta,
            charge=amount.in_words(self._exchange.currency),
            booked=self._exchange.in_words(amount),
            free=free,
            fits=free or self._accounts.fits(amount, prepared.key, who),
            left=self._accounts.left(who),
            groups=_groups_in_words(aggregation, priced, one_each=self._one_each(aggregation)),
            unit=self._unit(aggregation),
            columns=_quoted(prepared),
            confidence=float(prepared.terms.confidence),
            notes=(*notes, *self._of_noise(prepared, amount), *self._said(prepared), *self._too_many(question)),
            key=prepared.key,
            priced=priced,
            shape=question.shape,
            explains=question.explain,
            more=None if room is None else room[0],
            share=None if room is None else 0.0 if free else room[1],
            needs_approval=not free and self.waits(prepared),
        )

    def _said(self, prepared: Prepared) -> tuple[str, ...]:
        """The notes of the answer, but for those on a bound that isn't found yet."""
        if prepared.rows_budget is not None:
            return choice_note(prepared.question.shape)
        return self.notes(prepared.question)

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
        return (
            *self.cut(question.aggregation, chosen=question.auto),
            *self._means(question.aggregation),
            *choice_note(question.shape),
        )

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

    def cut(self, aggregation: Aggregation, *, chosen: bool = False) -> tuple[str, ...]:
        """What bounding may leave out, in words: no error bar speaks of it. Nothing where nothing can be cut.

        Where the policy says that no unit has more than is counted, that is said: it is believed in the words alone.
        """
        if aggregation.units == "row" or one_row_each(aggregation.relation):
            return ()
        if aggregation.scaled:
            rows = _counted(aggregation.rows, "row")
            text = f"{self._who(aggregation)} counts as at most {rows} in all groups together, scaled down in each"
            return (f"{text}; what that cuts off isn't in the error", *self._units_cut(aggregation, chosen=chosen))
        known, size = self._contribution(aggregation), _public_size(aggregation)
        parts, whole = [], True
        if any(aggregate.function not in COUNTED_ONCE for aggregate in aggregation.aggregates):
            whole = _none_beyond(known.most_rows, aggregation.rows)
            rows = f"as at most {_counted(aggregation.rows, 'row')}{_multiplied(known, aggregation.rows)}"
            parts.append(rows + (" in each" if aggregation.keys else ""))
        if aggregation.keys:
            few = _none_beyond(size, aggregation.groups) or _none_beyond(known.most_groups, aggregation.groups)
            whole = whole and few
            parts.append(f"{'of' if parts else 'in'} at most {_counted(aggregation.groups, 'group')}")
        if not parts:
            return ()
        text = f"{self._who(aggregation)} counts {' '.join(parts)}"
        if whole:
            return (f"{text}; the policy says that none has more, and what is beyond would be cut off",)
        return (f"{text}; what that cuts off isn't in the error", *self._units_cut(aggregation, chosen=chosen))

    def _units_cut(self, aggregation: Aggregation, *, chosen: bool) -> tuple[str, ...]:
        """How many units a bound on rows cuts, by a profile of these rows; not where there are groups."""
        known = [] if aggregation.keys and not aggregation.scaled else self._profiles.of(aggregation)
        if not known:
            return ()
        found, profile, unit = known[0], known[0].profile, self._units_of(aggregation)
        # where it chose the bound, any of its statements may have been picked for its noise
        beyond = profile.beyond(aggregation.rows, confidence=SURE if chosen else CONFIDENCE)
        share = f"about {beyond.units:,} ± {math.ceil(beyond.error):,} of {profile.units:,} {unit}"
        return (f"{share} have more than {_counted(beyond.rows, 'row')} (from the profile of {found.at[:10]})",)

    def _units_of(self, aggregation: Aggregation) -> str:
        return f"people ({self.policy.schema.tables[aggregation.tables[0]].unit_column})"

    def _too_many(self, question: BoundQuestion) -> tuple[str, ...]:
        """Before anything is paid, a word about public groups of which a unit may be in more than it counts in."""
        aggregation, size = question.aggregation, _public_size(question.aggregation)
        if size is None or question.listing or aggregation.scaled or aggregation.units == "row":
            return ()
        if one_row_each(aggregation.relation):
            return ()
        most = self._contribution(aggregation).most_groups
        if min(size, size if most is None else most) <= aggregation.groups:
            return ()
        text = (
            f"there are {size:,} public groups, and {self._who(aggregation)} counts in at most {aggregation.groups:,}"
        )
        return (f"{text}: coarser groups would cut less",)

    def _contribution(self, aggregation: Aggregation) -> UnitBound:
        keys = [key.expression for key in aggregation.keys]
        return contribution(aggregation.relation, self.policy.schema.tables, keys)

    def _one_each(self, aggregation: Aggregation) -> bool:
        return aggregation.units == "row" or self._contribution(aggregation).one_each

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
    aggregation = prepared.question.aggregation
    epsilon, groups = Fraction(prepared.epsilon), 1 if aggregation.scaled else aggregation.groups
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
        elif prepared.searched or prepared.rows_budget is not None:
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


def _none_beyond(most: int | None, counted: int) -> bool:
    return most is not None and most <= counted


def _public_size(aggregation: Aggregation) -> int | None:
    """How many groups there are, if all of them are public."""
    if aggregation.discover:
        return None
    return math.prod(len(key.values or ()) for key in aggregation.keys)


def _multiplied(known: UnitBound, rows: int) -> str:
    """The limits that a join multiplies, where there are several."""
    if len(known.factors) < 2:
        return ""
    numbers = " × ".join(f"{factor.rows:,} of {factor.table}" for factor in known.factors)
    return f" ({numbers})" if known.limit_rows == rows else f" ({numbers} would be {known.limit_rows:,})"


def _groups_in_words(aggregation: Aggregation, priced: Priced, *, one_each: bool) -> str:
    if not aggregation.keys:
        return "none: one row"
    size = _public_size(aggregation)
    if size is not None:
        return f"{size:,} public, all of them answer"
    return f"discovered: {priced.selection_in_words(one_each=one_each)}"
