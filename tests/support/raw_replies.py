"""What the shadow PostgreSQL says, taken apart: rows, command tags and errors of raw messages."""

from collections import namedtuple

from dither.server.auth.identity import Identity, Scope

ANA = Identity(analyst="ana", scope=Scope.ASK, token="t1")
Said = namedtuple("Said", "rows tags sqlstate text")


def message(kind, body=b""):
    return kind + (len(body) + 4).to_bytes(4) + body


def said(reply):
    """The rows, command tags and error of raw messages."""
    rows, tags, sqlstate, text = [], [], None, ""
    at, raw = 0, reply.messages
    while at < len(raw):
        kind, size = raw[at : at + 1], int.from_bytes(raw[at + 1 : at + 5])
        body = raw[at + 5 : at + 1 + size]
        at += 1 + size
        if kind == b"D":
            rows.append(fields(body))
        elif kind == b"C":
            tags.append(body[:-1].decode())
        elif kind == b"E":
            parts = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
            sqlstate, text = parts[b"C"], parts[b"M"]
    assert reply.failed == (sqlstate is not None)
    return Said(rows, tags, sqlstate, text)


def fields(body):
    found, at = [], 2
    for _ in range(int.from_bytes(body[:2])):
        size = int.from_bytes(body[at : at + 4], signed=True)
        at += 4
        found.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return tuple(found)
