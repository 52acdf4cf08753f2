"""The salt of a charge: it decides which rows of a unit count where it has more than may; nobody can foresee it."""

from __future__ import annotations

import secrets

BYTES = 16


def new_salt() -> bytes:
    """A fresh one for each charge, from the operating system's secure source: what it decides isn't used twice."""
    return secrets.token_bytes(BYTES)
