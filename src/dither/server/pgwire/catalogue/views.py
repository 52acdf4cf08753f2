"""The views dp.budget and dp.ledger: what they show is put into the looker's own connection before they are read.

The shadow PostgreSQL holds none of it: a view unfolds a setting of the connection, and each connection has one analyst.
"""

from __future__ import annotations

import json
from typing import Any

from dither.curator import Curator
from dither.server.auth.identity import Identity, Scope
from dither.server.pgwire.catalogue.shadow import ShadowConnection
from dither.server.pgwire.catalogue.shadow_schema import MOST_RECEIPTS, VIEW_SETTINGS, literal
from dither.server.pgwire.sql.lexer import Unclosed, words
from dither.server.service import Service

MOST_CHARACTERS = 1_000_000
_PAGE = 100
# columns of the views, and the fields of the curator's records that they show
_BUDGET = ("account", "epsilon_spent", "epsilon_budget", "share", "delta")
_RECEIPT = ("number", "at", "who", "sql", "epsilon", "cost")
# EXECUTE runs what PREPARE said before
_NAMES = ("budget", "ledger", "execute")


def mentions_views(sql: str) -> bool:
    """Whether a statement may read a view whose rows the server puts there, under whatever search path."""
    if not any(name in sql.lower() for name in _NAMES):
        return False
    try:
        found = words(sql)
    except Unclosed:
        return False
    return found[0].keyword == "EXECUTE" or any(word.is_name and word.value.lower() in _NAMES for word in found)


async def fill(connection: ShadowConnection, service: Service, who: Identity, sql: str) -> None:
    """Give the views of this connection their rows, if the statement may read them; free, and reads no data.

    It may be called before a simple query, and between the messages of the extended protocol.
    """
    if connection.status == b"E" or not mentions_views(sql):
        return
    rows = await service.do(who, Scope.PRICE, "views", lambda curator: _rows(curator, who))
    for view, found in rows.items():
        text = literal(json.dumps(found, ensure_ascii=True))
        await connection.put(f"SET {VIEW_SETTINGS}.{view} = {text}")


def _rows(curator: Curator, who: Identity) -> dict[str, list[dict[str, Any]]]:
    lines = curator.budget(who.analyst)
    budget = [{"share_used" if name == "share" else name: getattr(line, name) for name in _BUDGET} for line in lines]
    # what was asked is for those who may ask, as over HTTP and on the page
    return {"budget": budget, "ledger": _receipts(curator, who.analyst) if who.allows(Scope.ASK) else []}


def _receipts(curator: Curator, analyst: str) -> list[dict[str, Any]]:
    """The newest receipts, as many as fit."""
    found: list[dict[str, Any]] = []
    room = MOST_CHARACTERS
    before: str | None = None
    while True:
        page = curator.answers(analyst, before=before, count=_PAGE)
        for past in page.items:
            room -= len(past.sql)
            if len(found) == MOST_RECEIPTS or room < 0:
                return found
            found.append({name: getattr(past, name) for name in _RECEIPT})
        if page.next is None:
            return found
        before = page.next
