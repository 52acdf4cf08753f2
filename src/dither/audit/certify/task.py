"""What is to be audited, and what was found: the values that the steps of an audit hand to each other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.audit.claims import Claim
from dither.audit.counting import Enclosure
from dither.audit.drawing import clock
from dither.audit.drawing.draws import Batched, Draws
from dither.audit.outputs.layout import Columns
from dither.audit.result import Sketch
from dither.progress import Watch

PROBED = 256
# A column by itself tells streams apart where a chance repetition of all its probed values is less likely than e^-14.
TELLING = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One audit: a mechanism on two inputs, what is claimed, how sure to be, and until when."""

    mechanism: Batched
    pair: tuple[Any, Any]
    delta: float
    failure: float
    claim: Claim | None
    workers: int
    watch: Watch
    start: float
    until: float
    stop: bool

    @property
    def left(self) -> float:
        """Seconds until the budget is used up."""
        return max(0.0, self.until - clock.now())

    def draws(self) -> tuple[Draws, Draws]:
        """Where outputs on both inputs come from."""
        return Draws(self.mechanism, self.pair[0], "x"), Draws(self.mechanism, self.pair[1], "x_neighbour")

    def tell(self, doing: str) -> None:
        """Say how far the audit is, by the clock."""
        passed = clock.now() - self.start
        self.watch(min(0.99, passed / max(self.until - self.start, 1e-9)), doing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """What one look at one event says; all findings of an audit hold together."""

    epsilon: float
    refutes: bool
    event: str
    first: bool
    p: Enclosure
    q: Enclosure
    draws: int
    sketch: Callable[[], Sketch | None]


NOTHING = Certified(
    epsilon=0.0,
    refutes=False,
    event="none was counted in time",
    first=True,
    p=Enclosure(0.0, 1.0),
    q=Enclosure(0.0, 1.0),
    draws=0,
    sketch=lambda: None,
)


def best_of(findings: list[Certified]) -> Certified:
    """The finding to report: one that refutes the claim if there is one, and of those the largest bound."""
    return max(findings, key=lambda finding: (finding.refutes, finding.epsilon, finding.draws), default=NOTHING)


def probed(each: float) -> int:
    """How many draws tell streams apart: enough, but no more than a fifth of a second's worth."""
    return max(4, min(PROBED, math.floor(0.2 / max(each, 1e-9))))


def fingerprints(columns: Columns) -> frozenset[bytes]:
    """What gives a random stream away: all next outputs together, and each column that varies enough by itself.

    A single column counts too, for a mechanism may take part of its noise from a generator that was seeded anew and
    part from one that was not.
    """
    numbers = {name: np.nan_to_num(column, nan=0.0) for name, column in columns.numbers.items()}
    everything = {**numbers, **columns.kinds}
    marks = {b"all" + _digest(b"".join(column.tobytes() for column in everything.values()))}
    for name, column in everything.items():
        counts = np.unique(column, return_counts=True)[1]
        repeated = float((counts / columns.size) @ (counts / columns.size))
        varied = counts.size >= min(16, columns.size)
        if varied or -columns.size * math.log(repeated) > TELLING:
            marks.add(name.encode("utf-8", "surrogatepass") + _digest(column.tobytes()))
    return frozenset(marks)


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()
