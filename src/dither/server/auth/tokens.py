"""Tokens in a small file beside the ledger: made here, shown once, kept as hashes.

A token is 32 random bytes, so a plain SHA-256 of it can't be searched; for PostgreSQL clients, which must not send
their password, a SCRAM verifier is kept besides (RFC 5802, RFC 7677). What the file holds isn't enough to sign in.
Other processes (``dither token revoke``) may change the file at any time; a change holds at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dither.curator import OWNER
from dither.errors import DitherError, InvalidParameter
from dither.server.auth.identity import Identity, Scope, ScramChallenge, Verifier, WebSession

if TYPE_CHECKING:
    from dither.policy import Policy

PREFIX = "dither_"
ITERATIONS = 4096
SESSION_SECONDS = 12 * 3600
LONGEST_DAYS = 3650
LONGEST_NAME = 200
APPLICATION_ID = 0x64697461
FORMAT = 1
SCHEMA = f"""
CREATE TABLE token (
    number TEXT PRIMARY KEY, analyst TEXT NOT NULL, scope TEXT NOT NULL, note TEXT NOT NULL, hash BLOB NOT NULL UNIQUE,
    stored_key BLOB NOT NULL, server_key BLOB NOT NULL, made REAL NOT NULL, expires REAL, revoked REAL
) STRICT;
CREATE TABLE session (
    hash BLOB PRIMARY KEY, token TEXT NOT NULL REFERENCES token (number), expires REAL NOT NULL
) STRICT;
CREATE TABLE secret (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""


def access_path(policy: Policy) -> Path:
    """Where the tokens of a policy are kept: beside its ledger."""
    ledger = policy.source.ledger
    return ledger.with_name(ledger.name + ".access")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as its owner may list it: everything but the secret."""

    number: str
    analyst: str
    scope: Scope
    note: str
    made: str
    expires: str | None
    valid: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """What is held in memory of a token."""

    verifier: Verifier
    expires: float | None

    def valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class TokenFile:
    """The tokens of one server; other processes may change them at any time.

    Example:
        >>> import tempfile
        >>> directory = tempfile.TemporaryDirectory()
        >>> with TokenFile.open(Path(directory.name) / "shop.access") as tokens:
        ...     token, secret = tokens.create("ana", Scope.ASK, days=90)
        ...     tokens.identify(secret).analyst, tokens.identify(secret + "x")
        ('ana', None)
        >>> directory.cleanup()
    """

    def __init__(self, db: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._db, self._clock = db, clock
        self._lock = threading.RLock()
        self._seen = -1
        self._by_hash: dict[bytes, _Known] = {}
        self._by_number: dict[str, _Known] = {}
        self._secret = bytes(db.execute("SELECT value FROM secret WHERE name = 'salt'").fetchone()[0])

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], float] = time.time) -> Self:
        """Open the file, made if it isn't there; only its owner can read it."""
        place = Path(path)
        if not place.parent.is_dir():
            raise DitherError(f"there is no directory {place.parent} to keep tokens in: make it first")
        try:
            # made before SQLite does, so that nobody else can ever open it
            os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))
            db = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=30.0)
        except (OSError, sqlite3.Error) as problem:
            raise DitherError(f"{place} can't be opened to keep tokens in") from problem
        try:
            _prepare(db)
            return cls(db, clock)
        except sqlite3.Error as problem:
            db.close()
            raise DitherError(f"{place} holds no tokens of dither: give them a file of their own") from problem
        except BaseException:
            db.close()
            raise

    # ------------------------------------------------------------------ making and listing

    def create(
        self, analyst: str, scope: Scope = Scope.ASK, *, days: float | None = 90, note: str = ""
    ) -> tuple[Token, str]:
        """A new token and its secret, which is nowhere kept: show it once."""
        name = _name(analyst)
        if (scope is Scope.OWNER) != (name == OWNER):
            raise InvalidParameter(
                f'the scope "owner" is for the name "{OWNER}", and that name has no other scope; '
                f"analysts have the scopes price or ask"
            )
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise InvalidParameter(f"a token is valid for more than 0 and at most {LONGEST_DAYS} days; got {days}")
        if len(note) > LONGEST_NAME or not note.isprintable():
            raise InvalidParameter(f"a note is a line of at most {LONGEST_NAME} characters")
        secret = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        number, now = secrets.token_hex(4), self._clock()
        expires = None if days is None else now + days * 86400
        stored, server = scram_keys(secret, self._salt(name), ITERATIONS)
        row = (number, name, scope.value, note, _hash(secret), stored, server, now, expires, None)
        with self._writing() as db:
            db.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return self._listed((number, name, scope.value, note, now, expires, None), now), secret

    def list(self) -> tuple[Token, ...]:
        """Every token that was ever made, the newest first."""
        sql = "SELECT number, analyst, scope, note, made, expires, revoked FROM token ORDER BY made DESC, number"
        with self._lock:
            rows = self._db.execute(sql).fetchall()
        return tuple(self._listed(row, self._clock()) for row in rows)

    def revoke(self, number: str) -> Token:
        """Make a token worthless, from now on and everywhere. Idempotent."""
        with self._writing() as db:
            db.execute("UPDATE token SET revoked = ? WHERE number = ? AND revoked IS NULL", (self._clock(), number))
            db.execute("DELETE FROM session WHERE token = ?", (number,))
        found = next((token for token in self.list() if token.number == number), None)
        if found is None:
            raise InvalidParameter(f"there is no token {number!r}: `dither token list` shows their numbers")
        return found

    # ------------------------------------------------------------------ the contract

    def identify(self, token: str) -> Identity | None:
        """Whose token this is; None if it is unknown, revoked or expired."""
        with self._lock:
            self._refresh()
            found = self._by_hash.get(_hash(token))
            return found.verifier.identity if found is not None and found.valid(self._clock()) else None

    def challenge(self, analyst: str) -> ScramChallenge:
        """What SCRAM needs for this name, known or not."""
        name = unicodedata.normalize("NFC", analyst)
        with self._lock:
            self._refresh()
            now = self._clock()
            valid = [known.verifier for known in self._by_hash.values() if known.valid(now)]
        verifiers = tuple(verifier for verifier in valid if verifier.identity.analyst == name)
        return ScramChallenge(salt=self._salt(name), iterations=ITERATIONS, verifiers=verifiers)

    def sign_in(self, token: str) -> tuple[str, WebSession] | None:
        """A new session and the secret for its cookie; None if the token isn't valid."""
        identity = self.identify(token)
        if identity is None:
            return None
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._writing() as db:
            db.execute("DELETE FROM session WHERE expires < ?", (now,))
            db.execute("INSERT INTO session VALUES (?, ?, ?)", (_hash(cookie), identity.token, now + SESSION_SECONDS))
        return cookie, WebSession(identity=identity, csrf=self._csrf(cookie))

    def session(self, cookie: str) -> WebSession | None:
        """The session of a cookie; None if it is unknown, ended or expired, or its token isn't valid any more."""
        with self._lock:
            self._refresh()
            row = self._db.execute("SELECT token, expires FROM session WHERE hash = ?", (_hash(cookie),)).fetchone()
            now = self._clock()
            if row is None or row[1] < now:
                return None
            known = self._by_number.get(row[0])
            if known is None or not known.valid(now):
                return None
        return WebSession(identity=known.verifier.identity, csrf=self._csrf(cookie))

    def sign_out(self, cookie: str) -> None:
        """End a session. Idempotent."""
        with self._writing() as db:
            db.execute("DELETE FROM session WHERE hash = ?", (_hash(cookie),))

    def has_owner(self) -> bool:
        """Whether somebody holds a valid token of the owner."""
        return any(token.valid and token.scope is Scope.OWNER for token in self.list())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()

    # ------------------------------------------------------------------ inside

    def _refresh(self) -> None:
        """Read the tokens again if another process changed the file; own changes say so themselves."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version == self._seen:
            return
        rows = self._db.execute(
            "SELECT number, analyst, scope, hash, stored_key, server_key, expires FROM token WHERE revoked IS NULL"
        ).fetchall()
        self._by_hash, self._by_number = {}, {}
        for number, analyst, scope, digest, stored, server, expires in rows:
            identity = Identity(analyst=analyst, scope=Scope(scope), token=number)
            verifier = Verifier(stored_key=bytes(stored), server_key=bytes(server), identity=identity)
            self._by_hash[bytes(digest)] = self._by_number[number] = _Known(verifier, expires)
        self._seen = version

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            finally:
                self._seen = -1

    def _salt(self, name: str) -> bytes:
        # by a secret, not random: so names without tokens have one too, the same each time
        return hmac.digest(self._secret, b"salt:" + name.encode(), "sha256")[:16]

    def _csrf(self, cookie: str) -> str:
        return hmac.digest(self._secret, b"csrf:" + cookie.encode(), "sha256").hex()

    @staticmethod
    def _listed(row: tuple[str, str, str, str, float, float | None, float | None], now: float) -> Token:
        number, analyst, scope, note, made, expires, revoked = row
        return Token(
            number=number,
            analyst=analyst,
            scope=Scope(scope),
            note=note,
            made=_day(made),
            expires=None if expires is None else _day(expires),
            valid=revoked is None and (expires is None or now < expires),
        )


def scram_keys(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of RFC 5802, section 3, with SHA-256."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256")


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        (objects,) = db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
        if objects == 0:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT INTO secret VALUES ('salt', ?)", (secrets.token_bytes(32),))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise sqlite3.DatabaseError("another application's file")
    if db.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        raise sqlite3.DatabaseError("another version")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _name(analyst: str) -> str:
    name = unicodedata.normalize("NFC", analyst)
    if not 0 < len(name) <= LONGEST_NAME or name != name.strip() or not name.isprintable() or "/" in name:
        raise InvalidParameter(
            f'a token is for a name of 1 to {LONGEST_NAME} printable characters, without "/" and blanks around it'
        )
    return name


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
