"""Lower bounds on ε from outputs alone: what a mechanism really loses, at least, whatever it claims.

Three samples that share no draw: one fits scores of outputs, one chooses an event (a score above or below a cut) and
under which input it is more likely, and one counts how often the event happens. Only the last one makes the bound, by
exact binomial intervals, so anything may be tried in the first two. lower_bound.md has the theorem.

Some violations no sample can show. With the classical constant σ = √(2 ln(1.25/δ))/ε at ε = 12 and δ = 1e-5 the true
δ is 5.9e-5. The event that shows it best has probability 1.6e-4 on one input and 5.9e-10 on the other, and exact
intervals that tell 1.6e-4 from e^12·5.9e-10 + 1e-5 need between 3e10 and 1e11 draws of each. ``assuming=NORMAL`` goes
there: two means and a variance are known to a thousandth after a few million draws, and tails follow from them.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, TypeAlias

from dither.audit.certify.by_normal_law import by_normal_law
from dither.audit.certify.by_sampling import by_sampling
from dither.audit.certify.task import Task, best_of
from dither.audit.claims import Claim, Claimable, claim_of
from dither.audit.drawing import clock
from dither.audit.drawing.draws import Batched, batched, cores
from dither.audit.result import Assumption, LowerBound, Sketch, Verdict
from dither.errors import InvalidParameter
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, as_fraction, fraction_up, positive_int
from dither.privacy import PrivacyLoss, Sensitivity
from dither.progress import Watch, unwatched

__all__ = ["Assumption", "Budget", "LowerBound", "Sketch", "Verdict", "lower_bound"]

Budget: TypeAlias = "str | float | timedelta"

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
WRITTEN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*")


def lower_bound(
    mechanism: Any,
    x: Any,
    x_neighbour: Any,
    *,
    delta: Number = 0,
    confidence: Number = 0.99,
    budget: Budget = "60s",
    claim: Claimable | Claim | None = None,
    sensitivity: Sensitivity | None = None,
    assuming: Assumption | None = None,
    workers: int | None = None,
    watch: Watch = unwatched,
    stop_when_broken: bool = True,
) -> LowerBound:
    """A lower bound on the ε of a mechanism for two neighbouring inputs, and whether it refutes the claim.

    Guarantee: with probability ``confidence`` all that the result says is right; lower_bound.md.
    Assumes: outputs are drawn independently of each other.

    Args:
        mechanism: A function of the input, an object with ``release(input)``, or ``Batched``.
        x: One input.
        x_neighbour: One of its neighbours; whether it is one isn't checked.
        delta: The δ at which the bound on ε is stated, from 0 to below 1.
        confidence: The probability with which the whole result is right.
        budget: Wall-clock time: "60s", "5m", seconds or a timedelta.
        claim: A loss, a guarantee or a pure ε; else what the mechanism's own ``loss`` says.
        sensitivity: What that ``loss`` is asked with, if it takes one.
        assuming: ``Assumption.NORMAL`` reaches events that no sample does; the result then rests on it.
        workers: How many processes count at once: one for each processor where draws are known to be independent in
            each, else one.
        watch: Called with the share that is done and a few words; it may raise to stop.
        stop_when_broken: Whether to end once the claim is refuted; else the bound goes on growing.

    Raises:
        InvalidParameter: If an argument makes no sense, or both ``claim`` and ``sensitivity`` are given.
        InvalidData: If outputs plainly depend on each other, aren't what is assumed, or the mechanism fails.

    Example:
        >>> import numpy as np
        >>> answers = Batched(lambda x, n: np.random.default_rng().random(n) < (0.9 if x else 0.1))
        >>> found = lower_bound(answers, True, False, claim=1, budget="2s", confidence=0.999999)
        >>> found.verdict, bool(1 < found.epsilon <= np.log(9))
        (<Verdict.BROKEN: 'the claim is false'>, True)
    """
    start = clock.now()
    drawn = batched(mechanism)
    if assuming is not None and not isinstance(assuming, Assumption):
        raise InvalidParameter(f"assuming must be Assumption.NORMAL or None; got {assuming!r}")
    task = Task(
        mechanism=drawn,
        pair=(x, x_neighbour),
        delta=_delta_up(delta),
        failure=failure_probability(confidence),
        claim=claimed(mechanism, claim, sensitivity),
        workers=_processes(workers, drawn),
        watch=watch,
        start=start,
        until=start + seconds_of(budget),
        stop=stop_when_broken,
    )
    findings = by_sampling(task) if assuming is None else by_normal_law(task)
    best = best_of(findings)
    watch(1.0, "done")
    return LowerBound(
        epsilon=best.epsilon,
        delta=float(as_fraction(delta)),
        confidence=float(as_fraction(confidence)),
        verdict=Verdict.UNCLAIMED if task.claim is None else Verdict.BROKEN if best.refutes else Verdict.HELD,
        claim=task.claim,
        event=best.event,
        more_likely="x" if best.first else "x_neighbour",
        p=(best.p.low, best.p.high),
        q=(best.q.low, best.q.high),
        draws=best.draws,
        seconds=clock.now() - start,
        pair=task.pair,
        sketch=best.sketch(),
        assumption=assuming,
    )


def seconds_of(budget: Budget) -> float:
    """A time budget in seconds, from how people write it.

    Example:
        >>> seconds_of("90s"), seconds_of("1.5m"), seconds_of(10), seconds_of(timedelta(minutes=2))
        (90.0, 90.0, 10.0, 120.0)
        >>> seconds_of("60x")
        Traceback (most recent call last):
        dither.errors.InvalidParameter: budget must be a time such as "60s", "5m" or a number of seconds; got '60x'
    """
    seconds = math.nan
    if isinstance(budget, timedelta):
        seconds = budget.total_seconds()
    elif isinstance(budget, str):
        found = WRITTEN.fullmatch(budget)
        if found is not None and (found.group(2) or "s") in UNITS:
            seconds = float(found.group(1)) * UNITS[found.group(2) or "s"]
    else:
        seconds = fraction_up(as_fraction(budget, "budget"))
    if not 0 < seconds < math.inf:
        raise InvalidParameter(f'budget must be a time such as "60s", "5m" or a number of seconds; got {budget!r}')
    return seconds


def claimed(mechanism: Any, claim: Claimable | Claim | None, sensitivity: Sensitivity | None) -> Claim | None:
    """The claim to test: the one given, or what the mechanism says about itself."""
    if claim is not None:
        if sensitivity is not None:
            raise InvalidParameter(
                "give a claim, or the sensitivity from which the mechanism computes its loss, not both"
            )
        return claim_of(claim)
    states = getattr(mechanism, "loss", None)
    if not callable(states) or isinstance(mechanism, Batched):
        if sensitivity is not None:
            raise InvalidParameter("this mechanism has no loss(sensitivity): give a claim instead of a sensitivity")
        return None
    try:
        loss = states() if sensitivity is None else states(sensitivity)
    except TypeError:
        raise InvalidParameter(
            "the mechanism's loss needs a sensitivity: pass sensitivity=Sensitivity.l1(…) or another norm, or a claim"
            if sensitivity is None
            else "the mechanism's loss takes no sensitivity: leave it out, or give a claim"
        ) from None
    return claim_of(loss) if isinstance(loss, PrivacyLoss) else None


def _delta_up(delta: Number) -> float:
    """δ as a float that is no less: a larger δ leaves a smaller ε."""
    exact = as_fraction(delta, "delta")
    if not 0 <= exact < 1:
        raise InvalidParameter(f"delta must be at least 0 and below 1; got {delta!r}")
    return fraction_up(exact)


def _processes(workers: int | None, mechanism: Batched) -> int:
    if workers is not None:
        return positive_int(workers, "workers")
    return cores() if mechanism.copies else 1
