"""Which sums a ledger keeps side by side, and how much of the reading's δ belongs to each.

Every charge is booked on all of them. Each is a filter of its own for adaptively chosen questions: sums of ε need no δ
(Rogers, Roth, Ullman & Vadhan 2016), sums of ρ and of Rényi divergences at a fixed order are read as ε at their share
of δ (Feldman & Zrnic 2021; Whitehouse, Ramdas, Rogers & Wu 2023). The shares add up to one, and are fixed with the
first entry: whoever could change them after answers were seen could count one δ twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.privacy import Json, PrivacyLoss

# Enough for budgets of ε = 1 to 10 (4 to 24), and for small beginnings of them (48, 96).
ORDERS = (4, 6, 8, 11, 16, 24, 48, 96)
SHARE_OF_RHO = Fraction(9, 10)


class Quantity(Enum):
    """What is added up."""

    EPSILON = "epsilon"
    RHO = "rho"
    RENYI = "renyi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One quantity, and the share of the reading's δ at which its sum is read as ε."""

    quantity: Quantity
    share: Fraction
    order: int | None = None

    def __post_init__(self) -> None:
        if (self.quantity is Quantity.RENYI) != (self.order is not None) or not 0 <= self.share <= 1:
            raise InvalidParameter("a sum has a share of at most 1, and an order just where it adds Rényi divergences")
        if self.order is not None and self.order <= 1:
            raise InvalidParameter("a Rényi order is above 1")

    def of(self, loss: PrivacyLoss) -> Fraction | None:
        """What a loss adds to the sum, exactly or rounded up; None where it has no such view."""
        if self.order is not None:
            divergence = loss.renyi(self.order)
            return Fraction(divergence) if math.isfinite(divergence) else None
        if self.quantity is Quantity.RHO:
            return loss.zcdp_exactly() if math.isfinite(loss.zcdp()) else None
        return loss.pure_exactly() if math.isfinite(loss.pure()) else None

    def to_json(self) -> Json:
        """The permanent form in the first entry."""
        form: Json = {"quantity": self.quantity.value, "share": str(self.share)}
        return form if self.order is None else {**form, "order": self.order}

    @classmethod
    def from_json(cls, form: Json) -> Sum:
        """The inverse of ``to_json``."""
        return cls(quantity=Quantity(form["quantity"]), share=Fraction(form["share"]), order=form.get("order"))


PURE_SUMS = (Sum(quantity=Quantity.EPSILON, share=Fraction(0)),)
# What a ledger of format 1 added: all of the reading's δ belongs to ρ, so none is left for orders.
FIRST_ZCDP_SUMS = (Sum(quantity=Quantity.RHO, share=Fraction(1)), Sum(quantity=Quantity.EPSILON, share=Fraction(0)))
# The first decides what fits.
ZCDP_SUMS = (
    Sum(quantity=Quantity.RHO, share=SHARE_OF_RHO),
    Sum(quantity=Quantity.EPSILON, share=Fraction(0)),
    *(Sum(quantity=Quantity.RENYI, share=(1 - SHARE_OF_RHO) / len(ORDERS), order=order) for order in ORDERS),
)
