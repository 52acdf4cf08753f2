"""What the ledger keeps under a question, as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dither.query.kinds import Interval

HEADER = 4
LONGEST_CAUSE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the ledger keeps under a question: the bounds that were found, and what was released under them.

    ``released`` is None where something went wrong after noise had been drawn for the bounds: whether it does may
    depend on that noise, so that another try would be another answer that nobody paid for. Then there is no answer, for
    ever, and ``cause`` says why, to the owner. ``data`` is the fingerprint of the data that was read; None in answers
    that were stored before it was kept.
    """

    bounds: Mapping[tuple[str, str], Interval]
    released: bytes | None
    cause: str = ""
    data: str | None = None
    rows: int | None = None

    def seal(self) -> bytes:
        """The permanent form: a header in JSON, then the released bytes."""
        found = [[*place, str(b.low), str(b.high)] for place, b in self.bounds.items()]
        form: dict[str, Any] = {
            "bounds": found,
            "answered": self.released is not None,
            "cause": self.cause[:LONGEST_CAUSE],
        }
        if self.data is not None:
            form["data"] = self.data
        if self.rows is not None:
            form["rows"] = self.rows
        header = json.dumps(form).encode()
        return len(header).to_bytes(HEADER, "big") + header + (self.released or b"")

    @classmethod
    def unseal(cls, stored: bytes) -> Stored:
        """The inverse of ``seal``."""
        size = int.from_bytes(stored[:HEADER], "big")
        form = json.loads(stored[HEADER : HEADER + size])
        bounds = {(t, c): Interval(Fraction(low), Fraction(high)) for t, c, low, high in form["bounds"]}
        released = stored[HEADER + size :] if form["answered"] else None
        return cls(bounds=bounds, released=released, cause=form["cause"], data=form.get("data"), rows=form.get("rows"))
