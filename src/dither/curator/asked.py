"""What an analyst asks for besides the text of the question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How much to spend or which error to reach, how to divide it, and who asks."""

    epsilon: Fraction | None
    error: Mapping[str, Fraction] | Fraction | None
    weights: Mapping[str, Fraction]
    confidence: Fraction
    analyst: str

    @classmethod
    def of(
        cls,
        *,
        epsilon: Number | None,
        error: Number | Mapping[str, Number] | None,
        weights: Mapping[str, Number] | None,
        confidence: Number,
        analyst: str,
    ) -> Asked:
        """Checked values."""
        if epsilon is not None and error is not None:
            raise InvalidParameter("give epsilon or error, not both: the error decides how much ε is needed")
        wanted: Mapping[str, Fraction] | Fraction | None = None
        if isinstance(error, Mapping):
            wanted = {name: positive(value, f"error of {name}") for name, value in error.items()}
        elif error is not None:
            wanted = positive(error, "error")
        exact = as_fraction(confidence, "confidence")
        if not 0 < exact < 1:
            raise InvalidParameter(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
        return cls(
            epsilon=None if epsilon is None else positive(epsilon, "epsilon"),
            error=wanted,
            weights={name: positive(value, f"weight of {name}") for name, value in (weights or {}).items()},
            confidence=exact,
            analyst=analyst,
        )
