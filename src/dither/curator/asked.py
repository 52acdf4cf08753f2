"""What an analyst asks for besides the text of the question."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, positive
from dither.privacy import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Everything on which a question was answered, besides its text: what to ask for to get the same answer again.

    ``asked`` has the ε that was taken where none was given, ``delta`` the question's own, ``version`` the data's.
    """

    asked: Asked
    delta: Fraction
    version: str

    def to_json(self) -> Json:
        """The form in the note of a charge."""
        return {**self.asked.to_json(), "delta": str(self.delta), "version": self.version}

    @classmethod
    def from_json(cls, form: Json, analyst: str) -> Terms:
        """The inverse of ``to_json``."""
        asked = Asked.from_json(form, analyst)
        return cls(asked=asked, delta=Fraction(form["delta"]), version=str(form["version"]))


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

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """All of it, to look things up by: equal where the same was asked by the same name."""
        error = tuple(sorted(self.error.items())) if isinstance(self.error, Mapping) else self.error
        return self.epsilon, error, tuple(sorted(self.weights.items())), self.confidence, self.analyst

    def to_json(self) -> Json:
        """Everything but who asked, exactly: what a note needs so that the same can be asked again."""
        error = self.error
        return {
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "error": {name: str(half) for name, half in error.items()}
            if isinstance(error, Mapping)
            else None
            if error is None
            else str(error),
            "weights": {name: str(weight) for name, weight in self.weights.items()},
            "confidence": str(self.confidence),
        }

    @classmethod
    def from_json(cls, form: Json, analyst: str) -> Asked:
        """The inverse of ``to_json``."""
        return cls.of(
            epsilon=form["epsilon"],
            error=form["error"],
            weights=form["weights"],
            confidence=form["confidence"],
            analyst=analyst,
        )
