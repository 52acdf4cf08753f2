"""What the server and its workers say to each other: pickled objects, each behind its length."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass

from dither.policy import Policy

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first thing that a member is told: what to open, and how many questions to work on at once.

    ``version`` is the fingerprint of the data that the server opened, if a member must have the same; ``sharing`` how
    many curators share the machine's memory.
    """

    policy: Policy
    version: str | None
    threads: int
    sharing: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat: the server sends it, and the member sends it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A line for the server's log."""

    name: str
    level: int
    text: str


def framed(said: object) -> bytes:
    """An object as it is sent."""
    body = pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
