"""Questions that were charged under keys of version 1 are found by the exact terms in their notes.

Such a key held the ρ that an ε buys, found by a search in floating point: with another mathematical library the same
question has another one. So it isn't computed again. The note of every charge says what was asked, and on which
terms; whatever has the same terms, the same policy and the same canonical form is the same question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dither.curator.terms import Settled
from dither.ledger import Kind, Ledger
from dither.ledger.entry import canonical
from dither.privacy import Json


class OldKeys:
    """The keys of version 1 in one ledger, by the keys that the same questions have now.

    ``key_of`` gives the present key of a text asked on these terms, or None where it can't be asked any more.
    """

    def __init__(self, ledger: Ledger, policy: str, key_of: Callable[[str, Settled], str | None]) -> None:
        self._ledger, self._policy, self._key_of = ledger, policy, key_of
        self._lock = threading.Lock()
        self._by_terms: dict[str, list[tuple[str, str, Settled]]] | None = None
        self._present: dict[str, str | None] = {}

    def find(self, key: str, terms: Settled) -> str | None:
        """The old key of the question that has this key now, if it was charged under one."""
        with self._lock:
            if self._by_terms is None:
                self._by_terms = self._read()
            for sql, old, asked in self._by_terms.get(_bucket(terms.to_json()), ()):
                if old not in self._present:
                    self._present[old] = self._key_of(sql, asked)
                if self._present[old] == key:
                    return old
        return None

    def _read(self) -> dict[str, list[tuple[str, str, Settled]]]:
        """Everything up to the upgrade; a ledger that began in format 2 has no such keys."""
        found: dict[str, list[tuple[str, str, Settled]]] = {}
        for entry in self._ledger.entries():
            if entry.kind is Kind.UPGRADED or (entry.kind is Kind.OPENED and entry.body.get("format") != 1):
                break
            note = entry.body.get("note")
            if entry.kind is not Kind.RESERVE or not isinstance(note, dict) or note.get("policy") != self._policy:
                continue
            sql, form = note.get("sql"), note.get("asked")
            if isinstance(sql, str) and isinstance(form, dict):
                terms = Settled.from_json(form)
                found.setdefault(_bucket(form), []).append((sql, entry.body["key"], terms))
        return found


def _bucket(form: Json) -> str:
    """What must be equal to the letter; the rest is compared by the present key, which knows equal spellings.

    An error may be stated by the name of a column or for all, and δ is no term where pure ε adds up.
    """
    return canonical([form["epsilon"], form["error"] is None, form["version"]])
