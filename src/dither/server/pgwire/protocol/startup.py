"""The beginning of a connection: TLS, the version, signing in. Nothing is told before the sign-in."""

from __future__ import annotations

import re
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dither.server.auth.identity import Identity
from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.protocol import messages
from dither.server.pgwire.protocol.connection import Wire
from dither.server.pgwire.protocol.errors import fatal
from dither.server.pgwire.protocol.messages import ProtocolError
from dither.server.pgwire.protocol.scram import MECHANISM, Scram

MAJOR = 3
MOST_REQUESTS = 4
LONGEST_NAME = 200
_ENCODINGS = {"utf8", "utf-8", "unicode", "sql_ascii", ""}
_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z0-9_.-]+)=(?P<value>(?:\\.|\S)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelKey:
    """What was sent to a client so that it can stop waiting by another connection."""

    process: int
    secret: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Somebody who signed in, and the settings that they began with."""

    identity: Identity
    settings: Mapping[str, str]


async def begin(
    wire: Wire,
    access: TokenFile,
    *,
    tls: ssl.SSLContext | None,
    require_tls: bool,
    expect_room: Callable[[], None] = lambda: None,
    databases: Sequence[str] = (),
) -> SignedIn | CancelKey:
    """Lead a connection up to a sign-in, or to a request to cancel; raises if it comes to neither.

    ``databases`` are the names under which a client may ask for the one that there is; none are all.
    ``expect_room`` raises if there is no place for another client. It is called after the startup message: a client
    that asked for encryption waits for one letter, and would take an error in its stead for a broken protocol.
    """
    code, body = await _after_requests(wire, tls)
    if code == messages.CANCEL_REQUEST:
        if len(body) != 8:
            raise ProtocolError("a request to cancel has 16 bytes")
        process, secret = struct.unpack("!iI", body)
        return CancelKey(process=process, secret=secret)
    if code >> 16 != MAJOR:
        raise fatal("0A000", "unsupported frontend protocol: this server speaks version 3")
    expect_room()
    if require_tls and not wire.encrypted:
        raise fatal("28000", "this server wants TLS", hint="Connect with sslmode=require, or better verify-full.")
    settings = messages.read_startup(body)
    unknown = [name for name in settings if name.startswith("_pq_.")]
    if code & 0xFFFF or unknown:
        wire.send(messages.negotiate_version(unknown))
    if settings.get("replication", "off").lower() not in ("off", "false", "no", "0"):
        raise fatal("0A000", "there is nothing to replicate here")
    _expect_utf8(settings)
    name = settings.get("user", "")
    if not 0 < len(name) <= LONGEST_NAME:
        raise fatal("28000", "a user name is needed", hint="It is the analyst's name; the password is their token.")
    identity = await _sign_in(wire, access, name)
    if databases and settings.get("database") and settings["database"] not in databases:
        raise fatal("3D000", "there is no database of this name", hint=f"This server has one: {databases[0]}.")
    return SignedIn(identity=identity, settings=_with_options(settings))


async def _after_requests(wire: Wire, tls: ssl.SSLContext | None) -> tuple[int, bytes]:
    """The first message that isn't a question about encryption; those are answered."""
    for _ in range(MOST_REQUESTS):
        code, body = await wire.read_first()
        if code not in (messages.SSL_REQUEST, messages.GSSENC_REQUEST):
            return code, body
        if body or wire.encrypted:
            raise ProtocolError("encryption was asked for in a wrong way")
        if code == messages.SSL_REQUEST and tls is not None:
            wire.send(b"S")
            await wire.flush()
            await wire.encrypt(tls)
        else:
            wire.send(b"N")
            await wire.flush()
    raise ProtocolError("encryption was asked for too often")


def _expect_utf8(settings: Mapping[str, str]) -> None:
    encoding = settings.get("client_encoding", "").strip("'\" ").lower()
    if encoding not in _ENCODINGS:
        raise fatal("22023", "this server speaks UTF-8 alone", hint="Set client_encoding to UTF8.")


def _with_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with those of ``options`` (``-c dp.epsilon=0.1``) among them."""
    found = {name: value for name, value in settings.items() if name != "options"}
    for option in _OPTION.finditer(settings.get("options", "")):
        found[option["name"].replace("-", "_")] = re.sub(r"\\(.)", r"\1", option["value"])
    return found


async def _sign_in(wire: Wire, access: TokenFile, name: str) -> Identity:
    wire.send(messages.sasl(10, MECHANISM.encode() + b"\0\0"))
    await wire.flush()
    mechanism, first = messages.read_sasl_first(await wire.read_password())
    if mechanism != MECHANISM:
        raise fatal("28000", f"this server signs in by {MECHANISM} alone")
    exchange = Scram(access.challenge(name))
    if first is None:
        # allowed by RFC 4422: the server asks for it by an empty challenge
        wire.send(messages.sasl(11, b""))
        await wire.flush()
        first = await wire.read_password()
    wire.send(messages.sasl(11, exchange.first(first)))
    await wire.flush()
    signature = exchange.final(await wire.read_password())
    if signature is None or exchange.identity is None:
        raise fatal(
            "28P01",
            "password authentication failed",
            hint="The user is the analyst's name, the password a token (dither token create NAME).",
        )
    wire.send(messages.sasl(12, signature) + messages.AUTHENTICATION_OK)
    return exchange.identity
