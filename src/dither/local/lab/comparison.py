"""All protocols on one made-up population: what they cost, send and get wrong, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dither.local.clients.wire import HEADER
from dither.local.core.protocol import Protocol
from dither.local.lab.catalogue import PROTOCOLS, Purpose, Wanted, known_protocol
from dither.local.lab.simulation import simulate
from dither.local.shuffling.shuffle import shuffled
from dither.numeric import Number, positive, positive_int
from dither.progress import Watch, part_of, unwatched

DELTA = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRow:
    """One protocol.

    ``epsilon`` is the local ε of a report, ``shuffled`` the central one at δ when only shuffled reports are seen.
    ``report_bytes`` counts the whole report. ``theory`` and ``measured`` are standard errors of a share, or of a mean;
    None where none is stated, or nothing was found.
    """

    name: str
    title: str
    purpose: Purpose
    about: str
    epsilon: float
    shuffled: float
    report_bytes: int
    theory: float | None
    measured: float | None
    users_per_second: float

    def cells(self) -> tuple[str, ...]:
        """As texts, in the order of HEADINGS."""
        return tuple(write(self) for write in COLUMNS.values())


COLUMNS: dict[str, Callable[[ProtocolRow], str]] = {
    "protocol": lambda row: row.name,
    "ε": lambda row: f"{row.epsilon:.4g}",
    "ε shuffled": lambda row: f"{row.shuffled:.3g}",
    "bytes": lambda row: str(row.report_bytes),
    "error, theory": lambda row: "" if row.theory is None else f"{row.theory:.2g}",
    "measured": lambda row: "" if row.measured is None else f"{row.measured:.2g}",
    "users/s": lambda row: f"{row.users_per_second:.1e}",
    "what it is for": lambda row: f"{row.title}: {row.about}",
}
HEADINGS = tuple(COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolTable:
    """The table, and what it was made with."""

    rows: tuple[ProtocolRow, ...]
    domain: int
    users: int
    delta: float

    @property
    def sentence(self) -> str:
        """What was done."""
        return (
            f"{self.users:,} made-up people each, {self.domain} values by Zipf's law (numbers between 0 and 1, vectors "
            f"of up to 16); errors are standard errors of a share or a mean; ε shuffled at δ = {self.delta:g}"
        )

    def markdown(self) -> str:
        """For a page: one table, a line for each purpose."""
        lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
        for purpose in Purpose:
            rows = [row for row in self.rows if row.purpose is purpose]
            if rows:
                lines.append(f"| **{purpose.value}** |" + " |" * (len(HEADINGS) - 1))
                lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
        return "\n".join(lines)


def compare(
    epsilon: Number = 1,
    *,
    domain: int = 100,
    users: int = 100_000,
    delta: float = DELTA,
    names: Iterable[str] | None = None,
    seed: int = 0,
    watch: Watch = unwatched,
) -> ProtocolTable:
    """Try all protocols (or some, by ``names``) at the same ε on as many made-up people.

    Example:
        >>> table = compare(2, domain=4, users=1000, names=["kary", "one-bit"])
        >>> [(row.name, row.report_bytes, row.epsilon <= 2) for row in table.rows]
        [('kary', 10, True), ('one-bit', 10, True)]
    """
    wanted = Wanted.of(positive(epsilon, "epsilon"), positive_int(domain, "domain", least=2))
    chosen = [known_protocol(name) for name in (PROTOCOLS if names is None else names)]
    rows = []
    for place, known in enumerate(chosen):
        step = part_of(watch, place / len(chosen), (place + 1) / len(chosen))
        step(0.0, known.title)
        tried = simulate(known, wanted, users, seed=seed)
        rows.append(
            ProtocolRow(
                name=known.name,
                title=known.title,
                purpose=known.purpose,
                about=known.about,
                epsilon=tried.protocol.loss().pure(),
                shuffled=central_epsilon(tried.protocol, users, delta),
                report_bytes=HEADER + tried.protocol.width,
                theory=tried.theory,
                measured=tried.measured,
                users_per_second=users / tried.seconds,
            )
        )
    return ProtocolTable(rows=tuple(rows), domain=domain, users=users, delta=delta)


def central_epsilon(protocol: Protocol, users: int, delta: float = DELTA) -> float:
    """The ε at ``delta`` of one report among those of ``users`` people, if only shuffled reports are seen."""
    return shuffled(protocol, users).epsilon(delta)
