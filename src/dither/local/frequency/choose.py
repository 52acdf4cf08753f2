"""Which frequency oracle to take: by variance, then by the size of reports, then by the work of counting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import FrequencyOracle, checked_domain
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.mechanisms.response_estimates import Target, share_variance
from dither.numeric import Number, as_fraction, positive, positive_int

MAKERS: dict[str, Callable[[Any, Number], FrequencyOracle]] = {
    "k-ary response": Kary.for_epsilon,
    "unary, symmetric": Unary.symmetric,
    "unary, optimised": Unary.for_epsilon,
    "local hashing": LocalHashing.for_epsilon,
    "subset selection": SubsetSelection.for_epsilon,
    "Hadamard response": HadamardResponse.for_epsilon,
    "projective geometry": ProjectiveResponse.for_epsilon,
}
# A report costs its sender a message anyway; payloads below this are as good as empty.
SMALL_REPORT = 16
# Bits or hashes that are counted in about a second.
QUICK_WORK = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One oracle of the table.

    ``variance`` is that of a value that is as common as the average one; ``width`` is in bytes for each report;
    ``work`` is how many things are counted to read all reports.
    """

    name: str
    oracle: FrequencyOracle
    variance: float
    width: int
    work: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleChoice:
    """The oracle that was chosen, why, and the table that it was chosen from, the smallest variance first."""

    best: FrequencyOracle
    why: str
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        rows = [f"{'oracle':<20} {'standard error':>14} {'bytes':>8} {'work':>9}"]
        rows += [
            f"{c.name:<20} {c.variance**0.5:>14.3g} {c.width:>8} {c.work:>9.1e}{' *' if c.oracle is self.best else ''}"
            for c in self.candidates
        ]
        return "\n".join([*rows, self.why])


def best_oracle(epsilon: Number, domain: Any, n: int = 1_000_000, *, tolerance: Number = "1/20") -> OracleChoice:
    """The oracle for ``n`` reports at ``epsilon``, with the table of all.

    Whatever has a variance within ``tolerance`` of the smallest counts as equally exact; of those the one with the
    shortest reports is taken, where fewer than 16 bytes make no difference, then the one that is counted with the least
    work.

    Args:
        epsilon: Largest ε that one report may cost (REPLACE).
        domain: Public list of values: their number, or labels.
        n: Number of reports that are expected; decides about the work of counting only.
        tolerance: Variances within this share of the smallest count as equal.

    Example:
        >>> best_oracle(1, ["no", "yes"]).best
        Kary(domain=('no', 'yes'), keep=...)
        >>> choice = best_oracle(1, 10_000)
        >>> type(choice.best).__name__, choice.best.width
        ('ProjectiveResponse', 2)
    """
    exact, count, spare = positive(epsilon, "epsilon"), positive_int(n, "n"), as_fraction(tolerance, "tolerance")
    if spare < 0:
        raise InvalidParameter(f"tolerance must be at least 0; got {tolerance!r}")
    size = checked_domain(domain).size
    found = []
    for name, make in MAKERS.items():
        try:
            oracle = make(domain, exact)
        except InvalidParameter:
            continue  # too large for this one's memory or hash
        variance = float(share_variance(count, Fraction(1, size), oracle.hit, oracle.miss, Target.POPULATION))
        found.append(
            Candidate(name=name, oracle=oracle, variance=variance, width=oracle.width, work=_work(oracle, count))
        )
    found.sort(key=lambda c: c.variance)
    least = found[0].variance
    close = [c for c in found if c.variance <= least * float(1 + spare)]
    best = min(close, key=lambda c: (max(c.width, SMALL_REPORT), max(c.work, QUICK_WORK), c.variance))
    return OracleChoice(best=best.oracle, why=_why(best, found[0], close), candidates=tuple(found))


def _work(oracle: FrequencyOracle, n: int) -> int:
    """How many hashes, bits or numbers are looked at: all values for each report, unless a report is one number."""
    if isinstance(oracle, LocalHashing):
        return n * oracle.size
    if isinstance(oracle, Unary | SubsetSelection):
        return n * oracle.size // 8
    return n + oracle.size


def _why(best: Candidate, least: Candidate, close: list[Candidate]) -> str:
    if best is least:
        return f"{best.name} has the smallest variance, and its reports are of {best.width} bytes"
    return (
        f"{best.name}: its variance is within {100 * (best.variance / least.variance - 1):.1f}% of the smallest "
        f"({least.name}), and of the {len(close)} that are it has the shortest reports and the least work"
    )
