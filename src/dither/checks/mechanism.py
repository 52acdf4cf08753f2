"""check_mechanism: does a mechanism keep the promises that its loss and its error make?

The suite treats the mechanism as a user would: it asks for the cost, for the error, and for releases. Statistical
checks run at α = 1e-9 each, once; a right mechanism fails one in a thousand million runs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dither.checks.statistics import chi_square, chi_square_counts, largest_gap, proportion_at_most, serial_dependence
from dither.errors import ConformanceFailed, InvalidParameter, InvalidSensitivity
from dither.mechanisms.base import FiniteLaw, Floats, NoiseMechanism, RealLaw
from dither.privacy import Direction, PrivacyLoss, Sensitivity
from dither.privacy.renyi import epsilon_of_order

ALPHA = 1e-9
DELTAS = (1e-3, 1e-6, 1e-10)
ORDERS = (1.5, 2.0, 4.0, 16.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what it looked at, whether it held, and the smallest fault it would have noticed."""

    check: str
    passed: bool
    detail: str
    smallest_fault: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one mechanism; false if any failed."""

    mechanism: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return all(finding.passed for finding in self.findings)

    def __str__(self) -> str:
        rows = [f"{self.mechanism}"]
        rows += [f"  {'ok    ' if f.passed else 'FAILED'} {f.check}: {f.detail}" for f in self.findings]
        return "\n".join(rows)

    def told(self, *, raises: bool) -> Report:
        """The report; with ``raises``, ConformanceFailed in its place if a check failed."""
        if raises and not self.passed:
            raise ConformanceFailed(str(self))
        return self


def check_mechanism(
    mechanism: Any,
    *,
    sensitivity: Sensitivity | None = None,
    pair: tuple[Any, Any] | None = None,
    draws: int = 2_000_000,
    raises: bool = True,
) -> Report:
    """Hold a mechanism to the contract; raises ConformanceFailed with all that failed.

    A mechanism has ``loss(sensitivity)`` (or ``loss()``) and ``release(exact)``; optionally ``error(confidence)``,
    ``law(exact)`` with the closed form of its output, ``worst_pair(sensitivity)``, and a ``scale`` field. What isn't
    there isn't checked, and the report says so.

    Args:
        mechanism: What to check.
        sensitivity: What its loss is asked with; else the first of l1(1), l2(1) and l∞(1) that it takes.
        pair: Two neighbouring exact answers to release; else its ``worst_pair``.
        draws: How many releases of each: the more, the smaller the faults that are noticed.
        raises: Whether a failed check raises; else the report alone says so.

    Raises:
        ConformanceFailed: If a check fails, or what is needed to run it isn't there.

    Example:
        >>> from dither.mechanisms import Laplace
        >>> check_mechanism(Laplace(scale=2)).passed
        True
    """
    stated = _sensitivity(mechanism) if sensitivity is None else sensitivity
    loss = _loss(mechanism, stated)
    findings: list[Finding] = [*_views(loss), _json(loss), *_monotone(mechanism, stated)]
    exact, neighbour = pair if pair is not None else _pair(mechanism, stated)
    outputs, others = _draw(mechanism, exact, draws), _draw(mechanism, neighbour, draws)
    closed_form = _law(mechanism, exact, outputs)
    if outputs.dtype.kind not in "biuf":
        # labels: which comes first doesn't matter, so number them
        _, numbers = np.unique(np.concatenate([outputs, others]), return_inverse=True)
        outputs, others = numbers[: outputs.size], numbers[outputs.size :]
    findings += [_neighbours(loss, outputs, others), *closed_form]
    findings += _error(mechanism, exact, outputs)
    findings.append(_fresh(outputs))
    if isinstance(mechanism, NoiseMechanism):
        findings += _scalars(mechanism, exact)
    return Report(repr(mechanism), tuple(findings)).told(raises=raises)


# ------------------------------------------------------------------ what is checked on


def _sensitivity(mechanism: Any) -> Sensitivity | None:
    """The first of l1(1), l2(1), l∞(1) that the mechanism takes; None if its loss takes no sensitivity."""
    for candidate in (Sensitivity.l1(1), Sensitivity.l2(1), Sensitivity.linf(1)):
        try:
            mechanism.loss(candidate)
        except InvalidSensitivity:
            continue
        except (TypeError, InvalidParameter):
            return None  # its cost doesn't depend on a sensitivity that the caller states
        return candidate
    try:
        mechanism.loss()
    except TypeError:
        raise ConformanceFailed(
            "the mechanism takes none of Sensitivity.l1(1), .l2(1), .linf(1): pass sensitivity=…"
        ) from None
    return None


def _loss(mechanism: Any, sensitivity: Sensitivity | None) -> PrivacyLoss:
    loss = mechanism.loss() if sensitivity is None else mechanism.loss(sensitivity)
    if not isinstance(loss, PrivacyLoss):
        raise ConformanceFailed(f"loss must return a PrivacyLoss; got {type(loss).__name__}")
    return loss


def _pair(mechanism: Any, sensitivity: Sensitivity | None) -> tuple[Any, Any]:
    worst = getattr(mechanism, "worst_pair", None)
    if worst is not None:
        found: tuple[Any, Any] = worst() if sensitivity is None else worst(sensitivity)
        return found
    if sensitivity is None:
        raise ConformanceFailed("the mechanism has no worst_pair(): pass pair=(exact, neighbour)")
    return 0.0, float(sensitivity.bound)


def _draw(mechanism: Any, exact: Any, draws: int) -> np.ndarray[Any, Any]:
    """Many releases of one exact answer; noise mechanisms take them as an array, others one by one."""
    if isinstance(mechanism, NoiseMechanism):
        kind = np.int64 if isinstance(exact, int) else np.float64
        return np.asarray(mechanism.release(np.full(draws, exact, dtype=kind)))
    return np.array([mechanism.release(exact) for _ in range(min(draws, 40_000))])


# ------------------------------------------------------------------ the checks


def _views(loss: PrivacyLoss) -> list[Finding]:
    problems: list[str] = []
    pure = loss.pure()
    grid = np.linspace(0.0, min(pure, loss.epsilon(1e-9) + 1e-9, 50.0), 40)
    for direction in loss.directions:
        curve = loss.profile(grid, direction)
        if np.any(np.isnan(curve)) or np.any(np.diff(curve) > 1e-9 * (1 + curve[:-1])):
            problems.append("the curve rises or is not a number")
        odds = np.exp(grid)
        slopes = np.diff(curve) / np.diff(odds)
        if loss.tight and np.any(np.diff(slopes) < -1e-6 * (1e-6 + np.abs(slopes[:-1]))):
            problems.append("the curve is not convex in e^ε")
        back = loss.profile(-grid, direction.reversed)
        if np.any(np.abs(back - (-np.expm1(-grid) + np.exp(-grid) * curve)) > 1e-6):
            problems.append("the two directions contradict each other")
    if pure < math.inf and loss.delta(Fraction(pure)) > 0:
        problems.append("δ at the pure ε is not zero")
    for delta in DELTAS:
        epsilon = loss.epsilon(delta)
        if epsilon > pure or (0 < epsilon < math.inf and loss.delta(Fraction(epsilon)) > delta * (1 + 1e-6)):
            problems.append(f"ε({delta:g}) doesn't belong to that δ")
        problems.extend(
            f"the Rényi view of order {order:g} promises more than the curve at δ = {delta:g}"
            for order in ORDERS
            if loss.tight and epsilon_of_order(loss.renyi(order), order, delta) < epsilon * (1 - 1e-6) - 1e-9
        )
    if any(loss.renyi(order) > order * loss.zcdp() * (1 + 1e-9) + 1e-12 for order in ORDERS):
        problems.append("the zCDP view is below a Rényi view")
    if loss.kl() > loss.renyi(1.01) * (1 + 1e-3) + 1e-9:
        problems.append("the expected loss exceeds the Rényi view near order 1")
    if loss.tight and pure < 20 and loss.kl() < loss.pld(Direction.REMOVE).mean() * (1 - 1e-2) - 1e-6:
        problems.append("the expected loss is below the mean of the loss distribution")
    return [
        Finding(
            "views agree",
            not problems,
            "; ".join(dict.fromkeys(problems)) or f"pure {pure:.6g}, ε(1e-6) {loss.epsilon(1e-6):.6g}",
            "a view that is a millionth too low",
        )
    ]


def _json(loss: PrivacyLoss) -> Finding:
    try:
        again = PrivacyLoss.from_json(json.loads(json.dumps(loss.to_json())))
        same = again == loss and again.epsilon(1e-6) == loss.epsilon(1e-6)
        detail = loss.kind if same else "the loss that comes back is another one"
    except (ValueError, TypeError) as problem:
        same, detail = False, f"doesn't survive: {problem}"
    return Finding("JSON round trip", same, detail)


def _monotone(mechanism: Any, sensitivity: Sensitivity | None) -> list[Finding]:
    scale = getattr(mechanism, "scale", None)
    if scale is None or sensitivity is None:
        return []
    problems: list[str] = []
    base = mechanism.loss(sensitivity)
    try:
        noisier = _rescaled(mechanism, scale * Fraction(11, 10))
    except TypeError:
        return [
            Finding("more noise never costs more", passed=True, detail="not checked: can't be made with another scale")
        ]
    wider = Sensitivity(sensitivity.norm, 2 * sensitivity.bound, sensitivity.adjacency, sensitivity.groups)
    for delta in (0, *DELTAS):
        if noisier.loss(sensitivity).epsilon(delta) > base.epsilon(delta) * (1 + 1e-12):
            problems.append(f"more noise costs more at δ = {delta:g}")
        if mechanism.loss(wider).epsilon(delta) < base.epsilon(delta) * (1 - 1e-12):
            problems.append(f"more sensitivity costs less at δ = {delta:g}")
    problems.extend(
        f"more noise costs more at order {order:g}"
        for order in ORDERS
        if noisier.loss(sensitivity).renyi(order) > base.renyi(order) * (1 + 1e-9)
    )
    return [Finding("more noise never costs more", not problems, "; ".join(problems) or "nor does less sensitivity")]


def _rescaled(mechanism: Any, scale: Fraction) -> Any:
    """The same mechanism with another scale: a dataclass keeps its other public fields."""
    make: Callable[..., Any] = type(mechanism)
    names = [f.name for f in dataclasses.fields(mechanism)] if dataclasses.is_dataclass(mechanism) else []
    kept = {name: getattr(mechanism, name) for name in names if not name.startswith("_")}
    return make(**{**kept, "scale": scale})


def _neighbours(loss: PrivacyLoss, outputs: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> Finding:
    marks = [loss.epsilon(delta) for delta in (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 3e-3, 1e-3, 1e-4, 1e-6, 1e-9)]
    epsilons = np.unique([0.0, *(epsilon for epsilon in (*marks, loss.pure()) if epsilon < 50)])
    known = {float(e): loss.delta(Fraction(float(e))) for e in epsilons}
    excess, witness = largest_gap(outputs, others, lambda e: known[e], epsilons, ALPHA)
    return Finding(
        "neighbours stay within the curve",
        excess <= 0,
        f"{witness}: {'exceeds δ by at least' if excess > 0 else 'within δ by'} {abs(excess):.3g}",
        "noise 3% too small (two million draws, ε around 1)",
    )


def _law(mechanism: Any, exact: Any, outputs: np.ndarray[Any, Any]) -> list[Finding]:
    try:
        law = mechanism.law(exact) if hasattr(mechanism, "law") else None
    except InvalidParameter:  # too long to be listed
        law = None
    if law is None:
        return [Finding("noise has its closed form", passed=True, detail="not checked: the mechanism states none")]
    if isinstance(law, FiniteLaw):
        outcomes = range(law.probabilities.size) if law.outcomes is None else law.outcomes
        place = {outcome: i for i, outcome in enumerate(outcomes)}
        counted = np.bincount([place[y] for y in outputs.tolist()], minlength=len(place)).astype(np.float64)
        p = chi_square_counts(counted, law.probabilities)
        return [Finding("choices have their closed form", p > ALPHA, f"χ² p = {p:.3g}", "a probability 3% off")]
    assert isinstance(law, RealLaw)
    p = chi_square(outputs.astype(np.float64), law.cdf)
    found = [Finding("noise has its closed form", p > ALPHA, f"χ² p = {p:.3g}", "a scale 1% off (two million draws)")]
    return [*found, _moments(law, outputs.astype(np.float64))]


def _moments(law: RealLaw, outputs: Floats) -> Finding:
    """First and second moment of the draws' probability transform: the one sees shifts, the other scales."""
    low, high = law.cdf(np.nextafter(outputs, -np.inf)), law.cdf(outputs)
    middle = (low + high) / 2  # the mid-distribution function is centred for discrete laws too
    n = outputs.size
    shift = (float(middle.mean()) - 0.5) * math.sqrt(12 * n)
    # E(2u − 1)² = (1 − Σp³)/3, where Σp³ = E[p²] is zero for continuous laws; its variance is at most 4/45
    square = float(((2 * middle - 1) ** 2).mean()) - (1 - float(((high - low) ** 2).mean())) / 3
    width = square * math.sqrt(n / (4 / 45))
    return Finding(
        "noise has its moments",
        abs(shift) < 6.2 and abs(width) < 6.2 * 1.5,
        f"centre {shift:+.2f}, width {width:+.2f} standard errors",
        "a shift of half a per cent or a scale 1% off (two million draws)",
    )


def _error(mechanism: Any, exact: Any, outputs: np.ndarray[Any, Any]) -> list[Finding]:
    if not isinstance(mechanism, NoiseMechanism):
        return []
    problems = []
    distance = np.abs(outputs.astype(np.float64) - float(exact))
    for confidence in (0.5, 0.9, 0.99):
        bound = mechanism.error(confidence)
        beyond = int((distance > bound).sum())
        if proportion_at_most(beyond, distance.size, 1 - confidence) < ALPHA:
            problems.append(f"error({confidence:g}) is exceeded by {beyond / distance.size:.4f} of the releases")
    return [
        Finding("errors hold at their confidence", not problems, "; ".join(problems) or "50%, 90%, 99%", "3% too small")
    ]


def _fresh(outputs: np.ndarray[Any, Any]) -> Finding:
    p = serial_dependence(outputs.astype(np.float64))
    return Finding("every draw is fresh", p > ALPHA, f"serial correlation p = {p:.3g}", "one draw in ten used twice")


def _scalars(mechanism: NoiseMechanism, exact: Any) -> list[Finding]:
    outputs = np.array([mechanism.release(exact) for _ in range(20_000)], dtype=np.float64)
    findings = [_fresh(outputs)]
    law: Callable[[Any], Any] | None = getattr(mechanism, "law", None)
    known = law(exact) if law is not None else None
    if isinstance(known, RealLaw):
        p = chi_square(outputs, known.cdf, cells=60)
        findings.append(Finding("noise has its closed form", p > ALPHA, f"χ² p = {p:.3g}", "a scale 10% off"))
    return [Finding(f"{f.check} (one at a time)", f.passed, f.detail, f.smallest_fault) for f in findings]
