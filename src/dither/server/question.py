"""A question with everything that changes its price, on its way from a protocol to the curator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dither.curator import Terms
from dither.numeric import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question with everything that changes its price: what a client sends."""

    sql: str
    epsilon: Number | None = None
    error: Number | Mapping[str, Number] | None = None
    weights: Mapping[str, Number] = field(default_factory=dict)
    confidence: Number = Fraction(19, 20)

    @property
    def asked(self) -> dict[str, Any]:
        """Everything but the text, under the names of the curator's parameters."""
        return {
            "epsilon": self.epsilon,
            "error": self.error,
            "weights": self.weights,
            "confidence": self.confidence,
        }

    @property
    def terms(self) -> Terms:
        """Everything but the text, checked."""
        return Terms.of(**self.asked)
