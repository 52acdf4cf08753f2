"""What an audit found: a bound that can be published, the event that shows it, and the verdict on the claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.audit.claims import Claim
from dither.mechanisms.base import Floats


class Assumption(Enum):
    """What an audit may take for granted about outputs, to speak of events that no sample reaches."""

    NORMAL = "outputs are normal, with one variance for both inputs"


class Verdict(Enum):
    """What the audit says about the claim."""

    BROKEN = "the claim is false"
    HELD = "no contradiction found"
    UNCLAIMED = "nothing was claimed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sketch:
    """Two histograms for a plot: how often the output (or a score of it) fell between edges under each input.

    ``inside`` says which bars belong to the event; ``cut`` is where the event begins or ends, if it is a half line.
    Made of the draws that chose the event, not of those that certify it.
    """

    label: str
    edges: Floats
    x: Floats
    x_neighbour: Floats
    inside: npt.NDArray[np.bool_]
    cut: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LowerBound:
    """A lower bound on ε: with ``confidence``, the mechanism is not (ε′, delta)-private for any ε′ below ``epsilon``.

    Guarantee: see lower_bound.md. All that is said here (bound, both intervals, a verdict that the claim is false) is
        right at once with probability ``confidence``, if draws are independent.

    ``event`` happens with a probability within ``p`` under the input named by ``more_likely``, within ``q`` under the
    other one. ``draws`` are the outputs that were counted for this, of both inputs together.
    """

    epsilon: float
    delta: float
    confidence: float
    verdict: Verdict
    claim: Claim | None
    event: str
    more_likely: str
    p: tuple[float, float]
    q: tuple[float, float]
    draws: int
    seconds: float
    pair: tuple[Any, Any]
    sketch: Sketch | None
    assumption: Assumption | None = None

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.verdict is Verdict.BROKEN

    @property
    def caveats(self) -> list[str]:
        """What the bound rests on besides independent draws, in a sentence; nothing without an assumption."""
        return [] if self.assumption is None else [f"This rests on an assumption: {self.assumption.value}."]

    def __str__(self) -> str:
        other = "x" if self.more_likely == "x_neighbour" else "x_neighbour"
        found = f"ε ≥ {_down_to_text(self.epsilon)} at δ = {self.delta:g} with confidence {_percent(self.confidence)}"
        claimed = "" if self.claim is None else f"; claimed: {self.claim}"
        chances = f"{_between(self.p)} under {self.more_likely}, {_between(self.q)} under {other}"
        lines = (
            f"{self.verdict.value[0].upper()}{self.verdict.value[1:]}. {found}{claimed}.",
            f"Event: {self.event}. Its probability is {chances}.",
            f"{self.draws:,} draws counted, {self.seconds:.1f} s in all.",
            *self.caveats,
        )
        return "\n".join(lines)


def _down_to_text(epsilon: float) -> str:
    """Four digits after the point, rounded down: what is printed is a bound too."""
    return f"{math.floor(epsilon * 1e4) / 1e4:.4f}" if math.isfinite(epsilon) else "∞"


def _percent(confidence: float) -> str:
    failure = 1 - confidence
    return f"{100 * confidence:.6g}%" if failure > 1e-7 else f"1 − {failure:.2g}"


def _between(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"between {low:.4g} and {high:.4g}"
