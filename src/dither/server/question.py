"""A question with its terms, on its way from a protocol to the curator."""

from __future__ import annotations

from dataclasses import dataclass

from dither.curator import Terms

AS_USUAL = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question with everything that changes its price: what a client sends."""

    sql: str
    terms: Terms = AS_USUAL
