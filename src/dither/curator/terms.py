"""What is asked for besides the text of the question; the same for Python, HTTP, PostgreSQL and the page."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dither.errors import InvalidParameter
from dither.numeric import DEFAULT_CONFIDENCE, Number, as_fraction, positive
from dither.privacy import Json
from dither.query.plan.plan import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How much to spend or which error to reach, how to divide it, how sure intervals are to be, and the law of noise.

    ``noise`` is None where the policy chooses.

    Example:
        >>> Terms.of(epsilon=0.5) == Terms.of(epsilon="1/2"), Terms.of().confidence
        (True, Fraction(19, 20))
    """

    epsilon: Fraction | None = None
    error: Mapping[str, Fraction] | Fraction | None = None
    weights: Mapping[str, Fraction] = field(default_factory=dict)
    confidence: Fraction = DEFAULT_CONFIDENCE
    noise: Law | None = None

    @classmethod
    def of(
        cls,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
        noise: str | None = None,
    ) -> Terms:
        """Checked values of what people and clients write."""
        if noise not in (None, "laplace", "gaussian"):
            raise InvalidParameter(f'noise must be "laplace" or "gaussian"; got {noise!r}')
        if epsilon is not None and error is not None:
            raise InvalidParameter("give epsilon or error, not both: the error decides how much ε is needed")
        exact: Mapping[str, Fraction] | Fraction | None = None
        if isinstance(error, Mapping):
            exact = {name: positive(value, f"error of {name}") for name, value in error.items()}
        elif error is not None:
            exact = positive(error, "error")
        sure = as_fraction(confidence, "confidence")
        if not 0 < sure < 1:
            raise InvalidParameter(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
        return cls(
            epsilon=None if epsilon is None else positive(epsilon, "epsilon"),
            error=exact,
            weights={name: positive(value, f"weight of {name}") for name, value in (weights or {}).items()},
            confidence=sure,
            noise=noise,  # type: ignore[arg-type] # one of the two
        )

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """All of it, to look things up by: equal where the same was asked."""
        error = tuple(sorted(self.error.items())) if isinstance(self.error, Mapping) else self.error
        return self.epsilon, error, tuple(sorted(self.weights.items())), self.confidence, self.noise

    def to_json(self) -> Json:
        """The exact form: what a note needs so that the same can be asked again. Noise is named if it was chosen."""
        error = self.error
        form: Json = {
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "error": {name: str(half) for name, half in error.items()}
            if isinstance(error, Mapping)
            else None
            if error is None
            else str(error),
            "weights": {name: str(weight) for name, weight in self.weights.items()},
            "confidence": str(self.confidence),
        }
        return form if self.noise is None else {**form, "noise": self.noise}

    @classmethod
    def from_json(cls, form: Json) -> Terms:
        """The inverse of ``to_json``."""
        named = {name: form[name] for name in ("epsilon", "error", "weights", "confidence")}
        return cls.of(**named, noise=form.get("noise"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Everything on which a question was answered, besides its text: what to ask for to get the same answer again.

    ``terms`` has the ε that was taken where none was given, ``delta`` is the question's own, ``version`` the data's.
    ``rows`` is the bound on rows that a profile chose; None where it is stated, or searched for by the question itself.
    """

    terms: Terms
    delta: Fraction
    version: str
    rows: int | None = None

    def to_json(self) -> Json:
        """The form in the note of a charge."""
        form: Json = {**self.terms.to_json(), "delta": str(self.delta), "version": self.version}
        return form if self.rows is None else {**form, "rows": self.rows}

    @classmethod
    def from_json(cls, form: Json) -> Settled:
        """The inverse of ``to_json``."""
        return cls(
            terms=Terms.from_json(form),
            delta=Fraction(form["delta"]),
            version=str(form["version"]),
            rows=None if form.get("rows") is None else int(form["rows"]),
        )
