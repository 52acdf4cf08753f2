"""What a computation would cost: every way in which it can be booked, what each closes, and what each leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dither.brief import brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """One way to book a computation's loss, taken by ``run(…, delta=)`` with this ``delta``.

    With ``delta`` 0 it is booked on its own sums: its ε, its ρ and its Rényi divergences, each where it has one. With
    another δ it is read off its exact curve, as (ε, δ): δ is given away, and all sums are those of what loses ε.

    ``epsilon`` and ``rho`` are what is added to these sums, None where there is nothing to add, which closes the sum
    for good; ``given`` is the δ that is given away. ``closes`` are the sums that it closes for good, ``fills`` those of
    which it takes more than there ever was, so that nothing fits by them unless the cap is raised, and ``open`` those
    in which something is left after it: ε, ρ, and D(4) … for Rényi divergences. ``fits``, ``more``, ``share``, ``open``
    and ``left`` speak of the account that the analyst may know, as in a quote of a question: whether it fits in there,
    how many fit (this one included), which share of the budget one takes, and what is left after it. ``free`` says
    that it was paid for in this way before.
    """

    delta: float
    epsilon: float | None
    rho: float | None
    given: float
    charge: str
    closes: tuple[str, ...]
    fills: tuple[str, ...]
    open: tuple[str, ...]
    fits: bool
    free: bool
    more: int | None
    share: float | None
    left: str
    key: str

    __repr__ = brief

    @property
    def way(self) -> str:
        """How it is booked, in words."""
        return f"from its curve at δ = {self.delta:.2g}" if self.delta else "on its own sums"

    def __str__(self) -> str:
        parts = [f"{self.charge}{' (already paid for: free)' if self.free else ''}"]
        if self.closes:
            parts.append(f"closes {_named(self.closes)} for good, for you and for everybody together")
        if self.fills:
            parts.append(f"takes more than all of {_named(self.fills)}")
        parts.append(f"leaves {_named(self.open)} open" if self.open else "leaves no sum open")
        parts.append(f"then {self.left}" if self.fits else "doesn't fit in the budget")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationQuote:
    """What a computation would cost, and how it can be booked; of its stated loss and public facts alone, and free.

    ``epsilon`` is what it loses by itself at ``delta``, the policy's δ of a question, by the best proven reading: its
    exact curve's. ``bookings`` are the ways in which it can be booked, ``booking`` is the one that is taken.
    ``needs_approval`` says that the owner has to run it.
    """

    epsilon: float
    delta: float
    bookings: tuple[Booking, ...]
    booking: Booking
    left: str
    needs_approval: bool

    __repr__ = brief

    def __str__(self) -> str:
        price = f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:.2g}" if self.delta else "")
        lines = [f"cost      {price}, by itself", f"left      {self.left}"]
        lines += [f"{'taken' if one is self.booking else 'or   '}     {one.way}: {one}" for one in self.bookings]
        if self.needs_approval:
            lines.append("refused   the owner of the data must run this")
        return "\n".join(lines)


def _named(sums: Sequence[str]) -> str:
    """Sums in words, orders together.

    Example:
        >>> _named(("ε", "ρ", "D(4)", "D(6)")), _named(("D(8)",))
        ('the sums of ε, ρ and Rényi divergences of order 4, 6', 'the sum of Rényi divergences of order 8')
    """
    orders = [one[2:-1] for one in sums if one.startswith("D(")]
    named = [one for one in sums if not one.startswith("D(")]
    named += [f"Rényi divergences of order {', '.join(orders)}"] if orders else []
    text = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"the sum{'s' if len(sums) > 1 else ''} of {text}"
