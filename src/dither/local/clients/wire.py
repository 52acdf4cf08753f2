"""The wire format of reports: what one person sends, and why something that arrives isn't a report.

A report is bytes: the version (one byte, 1), the fingerprint of the collection that it belongs to (eight bytes), and a
payload of the length that the protocol fixes. Every report of a collection has the same length, so that length says
nothing. As text, for forms, JSON and log lines, it is the same in base64url without padding. This module needs nothing
but Python.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from dither.errors import InvalidParameter

Json: TypeAlias = dict[str, Any]

VERSION = 1
FINGERPRINT = 8
HEADER = 1 + FINGERPRINT


class Dropped(Enum):
    """Why something that arrived isn't counted; the aggregate goes on without it."""

    NOT_A_REPORT = "not a report: not bytes of a report, nor its base64url text"
    VERSION = "a report of another version of the wire format"
    OTHER_COLLECTION = "a report of another collection: its protocol or parameters differ"
    LENGTH = "a payload of the wrong length"
    OUT_OF_RANGE = "a payload that no client of this protocol sends"


def canonical(description: Mapping[str, Any]) -> bytes:
    """The one text of a collection's description, from which its fingerprint is made."""
    try:
        text = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidParameter("a description is plain JSON: texts, whole numbers, lists, objects") from None
    return text.encode()


def fingerprint(description: Mapping[str, Any]) -> bytes:
    """Eight bytes that name a collection: its protocol with all its parameters."""
    return hashlib.blake2b(canonical(description), digest_size=FINGERPRINT, person=b"dither-local").digest()


def pack(print_of_collection: bytes, payload: bytes) -> bytes:
    """A report as bytes."""
    return bytes([VERSION]) + print_of_collection + payload


def to_text(report: bytes) -> str:
    """A report as text."""
    return base64.urlsafe_b64encode(report).rstrip(b"=").decode()


def from_text(text: str) -> bytes | None:
    """The bytes of a report's text; None if it is no such text."""
    data = text.strip().encode(errors="replace")
    try:
        found = base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # one report has one text: trailing bits that decode to nothing would give it others
    return found if to_text(found).encode() == data else None


def unpack(report: object, print_of_collection: bytes, width: int) -> bytes | Dropped:
    """The payload of what arrived, bytes or text; or why it isn't a report of this collection."""
    found = from_text(report) if isinstance(report, str) else report
    if not isinstance(found, bytes | bytearray | memoryview):
        return Dropped.NOT_A_REPORT
    data = bytes(found)
    if not data:
        return Dropped.NOT_A_REPORT
    if data[0] != VERSION:
        return Dropped.VERSION
    if data[1:HEADER] != print_of_collection:
        return Dropped.OTHER_COLLECTION
    return data[HEADER:] if len(data) == HEADER + width else Dropped.LENGTH
