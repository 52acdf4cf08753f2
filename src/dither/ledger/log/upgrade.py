"""From format 1 to format 2: the log stays as it is, the tables beside it are made anew from a replay, and sealed.

All of the reading's δ belonged to ρ in format 1, and answers may have been seen since; so an upgraded ledger keeps the
sums of ρ, at the whole share, and of ε, which needs none, and has no Rényi orders.
"""

from __future__ import annotations

import json
import sqlite3

from dither.errors import LedgerMismatch
from dither.ledger.amount import Units, units_to_json
from dither.ledger.entry import EntryKind, Opening
from dither.ledger.head import HeadMark
from dither.ledger.log import format1
from dither.ledger.log.replay import Replay, booked_to_json, expect_sound, replayed
from dither.ledger.store.charge_or_replay import Books
from dither.ledger.store.schema import create
from dither.privacy.unit import Unit

_OLD = ("payment", "question", "account", "entry")


def upgrade(
    db: sqlite3.Connection, opening: Opening, head: HeadMark | None, *, units: Units | None, token: str
) -> Books:
    """Make format 2 out of format 1 inside the caller's transaction; everything is verified first.

    ``units`` are the owner's word that all units which charges were made for name the same people as these; without it
    a ledger in which a table's unit was changed is refused.
    """
    expect_sound(db)
    replay = replayed(db, opening, head)
    format1.expect_tables(db, replay.accounts.values(), replay.questions.values(), replay.seq)
    bound = _bound(replay) if units is None else {**_bound(replay, {**units}), **units}
    for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    for table in _OLD:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    create(db)
    db.execute("DROP TRIGGER entry_follows_the_last")  # looks for the last entry each time
    db.execute("INSERT INTO entry SELECT seq, at, kind, body, previous, hash FROM old_entry ORDER BY seq")
    books = Books(db, opening, token=token, alive=lambda other: other == token)
    answers = "SELECT answer FROM old_question WHERE key = ?"
    books.fill(
        replay.accounts.values(),
        ((row, db.execute(answers, (row.key,)).fetchone()[0]) for row in replay.questions.values()),
    )
    for table in _OLD:
        db.execute(f"DROP TABLE old_{table}")
    db.execute(_trigger("entry_follows_the_last"))
    balances = [[list(balance.account.path), balance.spent.to_json()] for balance in replay.balances()]
    body = {
        "units": units_to_json(bound),
        "rebound": units is not None,
        # the opening of format 1 doesn't name them
        "sums": [one.to_json() for one in opening.sums],
        "others": booked_to_json(replay.booked),
        "balances": balances,
    }
    books.append(EntryKind.UPGRADED, body, units=bound)
    return books


def _bound(replay: Replay, word: Units | None = None) -> Units:
    """The units that the charges of format 1 state, table by table."""
    found: dict[str, tuple[Unit, int]] = {}
    for (table, form), seq in replay.stated_units.items():
        unit = Unit.from_json(json.loads(form))
        known = found.setdefault(table, (unit, seq))
        if known[0] != unit and (word is None or table not in word):
            raise LedgerMismatch(
                f"the unit of table {table!r} was changed under this ledger: entry {known[1]} was charged for "
                f"{known[0]}, entry {seq} for {unit}, and the sums hold for neither of them alone. If both name the "
                "same people, say so: dither ledger upgrade --rebind. If not, keep this file to read it, and begin a "
                "new ledger (`ledger` in [source]) whose budget leaves out what they may have lost here"
            )
    return {table: unit for table, (unit, _) in found.items()}


def _trigger(name: str) -> str:
    fresh = sqlite3.connect(":memory:")
    try:
        create(fresh)
        (text,) = fresh.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        return str(text)
    finally:
        fresh.close()
