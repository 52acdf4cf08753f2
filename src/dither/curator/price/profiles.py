"""Profiles that were paid for: found in the ledger, and public for this version of the data, whoever paid.

Only the owner buys one, or an analyst with the owner's approval, so that it is the owner who makes it public. From then
on prices, notes and bounds may depend on it: on what it says, and not on who paid, or how much is left to anybody.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from dither.brief import brief
from dither.curator.answers.release import Released, Stored
from dither.ledger import Account, Entry, EntryKind, Ledger
from dither.privacy import PrivacyLoss
from dither.query.aggregates.spread import standard_deviation
from dither.query.plan.canonical import canonical_aggregation
from dither.query.plan.plan import Aggregation
from dither.query.plan.profile import LOWER_ENDS, profile_of, within
from dither.query.price.noise import Priced
from dither.query.price.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProfile:
    """A profile that everybody may use: its text, the ε that it cost, when that was, and what it says.

    ``number`` is the receipt's; ``order`` its place in the log, for the owner's side alone.
    """

    sql: str
    epsilon: str
    at: str
    number: str
    profile: Profile
    form: str
    order: int

    __repr__ = brief


def name_of_form(aggregation: Aggregation) -> str:
    """The short name of what is profiled, in the note of a charge: by its normal form."""
    return hashlib.sha256(canonical_aggregation(aggregation).encode()).hexdigest()


class Profiles:
    """The profiles in one ledger of one policy and one version of the data."""

    def __init__(self, ledger: Ledger, *, policy: str, version: str) -> None:
        self._ledger, self._policy, self._version = ledger, policy, version
        self._lock = threading.Lock()
        self._seen: object | None = None
        self._last = 0
        self._charged: dict[str, Entry] = {}
        self._known: list[KnownProfile] = []

    def known(self) -> tuple[KnownProfile, ...]:
        """All of them, in the order in which they were paid for."""
        with self._lock:
            version = self._ledger.version()
            if version is None or version != self._seen:
                for entry in self._ledger.entries(after=self._last):
                    self._last = entry.seq
                    self._take(entry)
                self._seen = version
            return tuple(self._known)

    def of(self, aggregation: Aggregation) -> list[KnownProfile]:
        """The profiles of the rows that a question reads, the most exact first."""
        return self._of_form(name_of_form(profile_of(aggregation.relation, aggregation.tables)))

    def around(self, aggregation: Aggregation) -> list[KnownProfile]:
        """The profiles of all rows of which those are some, the most exact first: there a unit has no fewer."""
        wider = within(aggregation.relation)
        return [] if wider is None else self._of_form(name_of_form(profile_of(wider, aggregation.tables)))

    def no_worse(self, priced: Priced) -> KnownProfile | None:
        """A known profile of the same rows with no more noise than this one would have."""
        found = next(iter(self._of_form(name_of_form(priced.aggregation))), None)
        if found is None or standard_deviation(found.profile.noise) > standard_deviation(priced.noise[0]):
            return None
        return found

    def _of_form(self, form: str) -> list[KnownProfile]:
        those = [one for one in self.known() if one.form == form]
        return sorted(those, key=lambda one: (standard_deviation(one.profile.noise), one.order))

    def _take(self, entry: Entry) -> None:
        body = entry.body
        if entry.kind is EntryKind.RESERVE:
            note = body.get("note")
            if isinstance(note, dict) and self._ours(note):
                self._charged.setdefault(body["key"], entry)
        elif entry.kind is EntryKind.ANSWER and body["key"] in self._charged:
            self._known += self._read(self._charged[body["key"]])

    def _ours(self, note: dict[str, object]) -> bool:
        """Of this policy and of the data as it is: of other data a profile says nothing."""
        asked = note.get("asked")
        version = asked.get("version") if isinstance(asked, dict) else None
        return "profile" in note and note.get("policy") == self._policy and version == self._version

    def _read(self, entry: Entry) -> Iterator[KnownProfile]:
        body = entry.body
        # the payer's own question again, which charges nothing
        found = self._ledger.reserve(
            key=body["key"],
            account=Account(tuple(body["path"])),
            loss=PrivacyLoss.from_json(body["loss"]),
            note={},
        )
        released = None if found.answer is None else Stored.unseal(found.answer).released
        if found.answer is None:
            self._ledger.give_up(found)
        if released is None:
            return
        table = Released.from_bytes(released)
        counts = tuple(int(count) for count in table.cells[0])
        if len(counts) != len(LOWER_ENDS):
            return
        note = body["note"]
        yield KnownProfile(
            sql=str(note["sql"]),
            epsilon=str(note["epsilon"]),
            at=entry.at,
            number=str(body["number"]),
            profile=Profile(counts=counts, noise=table.noise[0]),
            form=str(note["profile"]),
            order=entry.seq,
        )
