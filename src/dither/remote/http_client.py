"""Ask a server of dither from Python, as if the curator were here.

The standard library does the talking. Connections are kept and shared between threads; certificates are checked; no
redirect is followed, since the token would go with it. A request that finds its kept connection dropped is sent once
more: the server never charges the same question twice. A wish for more budget would be two wishes, and isn't.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from dither.curator import Answer, AnswerPage, BudgetLine, Quote, Record, Request, Spending, Verified
from dither.errors import DitherError, Failed, InvalidParameter, LedgerBusy, OutOfBudget, Refused
from dither.numeric import DEFAULT_CONFIDENCE, Number, as_fraction
from dither.privacy import Guarantee, Json
from dither.remote import reading

ARROW = "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"
JSON = "application/json"
TEXT = "text/plain"
MOST_KEPT = 8
# what a connection raises that the server closed while nothing was under way on it
DROPPED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


class ServerError(DitherError, ConnectionError):
    """The server can't be reached, or gave no usable reply. A question that was sent may have been charged.

    Asking the same again is never charged twice.
    """


class Unreachable(ServerError):  # noqa: N818
    """No connection to the server could be made, or it broke."""


class TookTooLong(ServerError, TimeoutError):  # noqa: N818
    """The answer didn't come in time; the question goes on. Ask the same again later: it isn't charged twice."""


def client(
    url: str,
    token: str,
    *,
    timeout: float = 70.0,
    certificates: str | Path | None = None,
    insecure: bool = False,
) -> HttpClient:
    """A client for a server that ``dither serve`` runs, to be closed after use.

    Args:
        url: The server's address, such as ``https://data.example.org``; a path in it is put before every request's.
        token: What the owner of the data gave you; it says who asks and what may be asked.
        timeout: Seconds to wait for a reply. The server goes on after that, and the same question isn't charged twice.
        certificates: A PEM file of authorities to trust in place of the system's.
        insecure: Send the token without TLS to another machine, where something else protects the way there.

    Raises:
        InvalidParameter: If the address or the token can't be one, or the token would travel in clear.

    Example:
        >>> with client("https://data.example.org", token) as shop:  # doctest: +SKIP
        ...     print(shop.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=0.5))
    """
    return HttpClient(url, token, timeout=timeout, certificates=certificates, insecure=insecure)


class HttpClient:
    """A server's curator at a distance: what has the curator's names takes and returns what the curator's does.

    The token says who asks, so nothing here takes an ``analyst``. Errors are the curator's too: Refused, OutOfBudget,
    InvalidParameter, Failed. Safe to use from several threads.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float, certificates: str | Path | None, insecure: bool
    ) -> None:
        parts = _split(url)
        self._secure, self._prefix = parts.scheme == "https", parts.path.rstrip("/")
        host = parts.hostname
        assert host is not None
        self._host, self._port = host, parts.port
        if not self._secure and not insecure and not is_loopback(host):
            raise InvalidParameter(
                f"the token would travel in clear to {host}: use https://, or say insecure=True if something else "
                "protects the way there"
            )
        if not token or len(token) > 512 or not token.isascii() or any(letter <= " " for letter in token):
            raise InvalidParameter("the token must be the text that the owner of the data gave you, without blanks")
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "dither"}
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=certificates) if self._secure else None
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    # ------------------------------------------------------------------ questions

    def price(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
    ) -> Quote:
        """What a question would cost, the error of every column, and what would be left; free, reads no data.

        Args:
            sql: The question.
            epsilon: How much ε to spend; without it and ``error``, the policy's default.
            error: The half-width to reach with the smallest ε, for all noisy columns or by column.
            weights: Shares of ε of the noisy columns, relative to each other.
            confidence: How sure intervals are, above 0 and below 1; it doesn't change what an ε buys.

        Raises:
            Refused: If the question can't be asked, for public reasons.
            ServerError: If the server can't be reached, or its reply can't be read.
        """
        body = _question(sql, epsilon=epsilon, error=error, weights=weights, confidence=confidence)
        return reading.quote(self._json("POST", "/v1/price", body))

    def sql(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
    ) -> Answer:
        """Answer a question. A question that was asked before is answered from the record, free.

        Args:
            sql: The question.
            epsilon: As for ``price``.
            error: As for ``price``.
            weights: As for ``price``.
            confidence: As for ``price``.

        Raises:
            Refused: If it can't be asked, for public reasons; nothing is charged.
            OutOfBudget: If it costs more than is left; nothing is charged.
            Failed: If it went wrong after the charge; has the number of the receipt.
            TookTooLong: If no reply came in time. Ask the same again: it isn't charged twice.
        """
        body = _question(sql, epsilon=epsilon, error=error, weights=weights, confidence=confidence)
        return reading.answer(self._request("POST", "/v1/ask", accept=ARROW, body=body))

    # ------------------------------------------------------------------ what is known

    def budget(self) -> tuple[BudgetLine, ...]:
        """What was spent and what is left: every account for the owner, their own for an analyst."""
        return reading.read_all(BudgetLine, self._json("GET", "/v1/budget"))

    def answers(self, *, search: str = "", before: str | None = None, count: int = 50) -> AnswerPage:
        """What was paid for, newest first; free.

        Args:
            search: Only questions that hold this text.
            before: The ``next`` of the page before.
            count: How many to list, at most 200.
        """
        wanted = {"search": search, "count": str(count)} | ({} if before is None else {"before": before})
        return reading.page(self._json("GET", f"/v1/answers?{urlencode(wanted)}"))

    def answer(self, number: str) -> Answer:
        """The answer of a receipt once more; free."""
        return reading.answer(self._request("GET", f"/v1/answers/{quote(number, safe='')}", accept=ARROW))

    def history(self) -> tuple[Spending, ...]:
        """How spending grew: of every account for the owner, of their own for an analyst."""
        return reading.read_all(Spending, self._json("GET", "/v1/history"))

    def guarantee(self) -> Guarantee:
        """What the answers so far can tell about one person: those that the analyst paid for; all, for the owner."""
        return reading.guarantee(self._json("GET", "/v1/guarantee"))

    def schema(self) -> Json:
        """The public facts: tables, columns, who is protected, what is declared about values."""
        facts: Json = self._json("GET", "/v1/schema")
        return facts

    def whoami(self) -> Json:
        """Whose token this is: ``analyst``, under which name it asks, and ``scope``, what it allows."""
        known: Json = self._json("GET", "/v1/whoami")
        return known

    # ------------------------------------------------------------------ what the owner is asked for

    def request_question(
        self,
        sql: str,
        *,
        why: str = "",
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
    ) -> Request:
        """Ask the owner to approve a question that costs more than may be asked without; free.

        Args:
            sql: The question; approved is this text on these terms, and no other.
            why: A text for the owner.
            epsilon: As for ``price``.
            error: As for ``price``.
            weights: As for ``price``.
            confidence: As for ``price``.
        """
        body = _question(sql, epsilon=epsilon, error=error, weights=weights, confidence=confidence)
        return reading.request(self._json("POST", "/v1/requests/question", {**body, "why": why}))

    def request_budget(self, epsilon: Number, *, why: str = "") -> Request:
        """Ask the owner to raise one's own budget by ``epsilon``."""
        body = {"epsilon": _text(epsilon, "epsilon"), "why": why}
        return reading.request(self._json("POST", "/v1/requests/budget", body, again=_LOOK))

    def requests(self, *, waiting_only: bool = False) -> tuple[Request, ...]:
        """What was asked of the owner, newest first: everybody's for the owner, their own for an analyst."""
        found = self._json("GET", f"/v1/requests?waiting={str(waiting_only).lower()}")
        return tuple(reading.request(form) for form in found)

    # ------------------------------------------------------------------ for the owner's token alone

    def decide(self, number: str, *, approve: bool, why: str = "") -> Request:
        """Approve or refuse a request. A budget that is raised stays so."""
        path = f"/v1/requests/{quote(number, safe='')}/decision"
        return reading.request(self._json("POST", path, {"approve": approve, "why": why}))

    def records(self, *, count: int = 50, before: int | None = None) -> tuple[Record, ...]:
        """The entries of the ledger, newest first; ``before`` is the number of an entry."""
        wanted = {"count": count} | ({} if before is None else {"before": before})
        return reading.read_all(Record, self._json("GET", f"/v1/ledger?{urlencode(wanted)}"))

    def verify(self) -> Verified:
        """Replay the whole ledger on the server."""
        return reading.verified(self._json("POST", "/v1/ledger/verify"))

    def metrics(self) -> str:
        """Counts and times of the server's requests, in Prometheus's text format."""
        return self._request("GET", "/metrics", accept=TEXT).decode()

    # ------------------------------------------------------------------ connections

    def close(self) -> None:
        """Close the connections. Idempotent."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()

    def __repr__(self) -> str:
        scheme = "https" if self._secure else "http"
        port = "" if self._port is None else f":{self._port}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"<dither client of {scheme}://{host}{port}{self._prefix}>"

    def _json(self, method: str, path: str, body: Json | None = None, *, again: str | None = None) -> Any:
        data = self._request(method, path, accept=JSON, body=body, again=again)
        try:
            return json.loads(data)
        except ValueError:
            raise ServerError(_NOT_DITHER) from None

    def _request(
        self, method: str, path: str, *, accept: str, body: Json | None = None, again: str | None = None
    ) -> bytes:
        """The reply. What must not be sent twice brings ``again``: what to do where it isn't known to have arrived."""
        headers = {**self._headers, "Accept": accept}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), JSON
        # on a new connection nothing is lost because it was kept for too long
        connection, kept = self._connection(new=again is not None)
        while True:
            try:
                status, kind, reply = self._exchange(connection, method, path, data, headers, again or _AGAIN)
                break
            except DROPPED as problem:
                connection.close()
                if not kept:
                    raise Unreachable(
                        f"the server closed the connection without a reply; {again or _AGAIN}"
                    ) from problem
                # the server let go of a connection that it had kept: once more, on a new one
                connection, kept = self._new(), False
            except BaseException:
                connection.close()
                raise
        self._give_back(connection)
        if status == 200:
            if kind != accept:
                raise ServerError(_NOT_DITHER)
            return reply
        raise _error(status, kind, reply)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
        again: str,
    ) -> tuple[int, str, bytes]:
        try:
            connection.request(method, self._prefix + path, body=data, headers=headers)
            response = connection.getresponse()
            reply = response.read()
        except DROPPED:
            raise
        except TimeoutError as problem:
            raise TookTooLong(f"no reply within {self._timeout:g} s; the server goes on: {again}") from problem
        except ssl.SSLError as problem:
            raise Unreachable(f"no trusted connection to {self._host}: {problem.reason or 'TLS failed'}") from problem
        except OSError as problem:
            raise Unreachable(
                f"{self._host} can't be reached: {problem.strerror or type(problem).__name__}"
            ) from problem
        except http.client.IncompleteRead as problem:
            raise Unreachable(f"the connection broke during the reply; {again}") from problem
        except http.client.HTTPException as problem:
            raise ServerError(_NOT_DITHER) from problem
        return response.status, (response.getheader("Content-Type") or "").partition(";")[0].strip(), reply

    def _connection(self, *, new: bool) -> tuple[http.client.HTTPConnection, bool]:
        """A connection that nobody else uses, and whether it was used before."""
        with self._lock:
            if self._closed:
                raise InvalidParameter("this client was closed: make another with dither.client")
            if self._idle and not new:
                return self._idle.pop(), True
        return self._new(), False

    def _new(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            # the library itself lets go of its socket where the reply says that this was the last one
            if not self._closed and connection.sock is not None and len(self._idle) < MOST_KEPT:
                self._idle.append(connection)
                return
        connection.close()


_AGAIN = "ask the same again, it isn't charged twice"
_LOOK = "look at requests() before you send it again"
_NOT_DITHER = "the reply isn't one of a server of dither: is the address right?"


def _question(
    sql: str,
    *,
    epsilon: Number | None,
    error: Number | Mapping[str, Number] | None,
    weights: Mapping[str, Number] | None,
    confidence: Number,
) -> Json:
    """The body of a question. Numbers are sent as the texts of exact fractions."""
    if not isinstance(sql, str):
        raise InvalidParameter(f"the question must be a text; got {type(sql).__name__}")
    body: Json = {"sql": sql, "confidence": _text(confidence, "confidence")}
    if epsilon is not None:
        body["epsilon"] = _text(epsilon, "epsilon")
    if isinstance(error, Mapping):
        body["error"] = {name: _text(value, f"error of {name}") for name, value in error.items()}
    elif error is not None:
        body["error"] = _text(error, "error")
    if weights:
        body["weights"] = {name: _text(value, f"weight of {name}") for name, value in weights.items()}
    return body


def _text(value: Number, name: str) -> str:
    exact = as_fraction(value, name)
    if exact <= 0:
        raise InvalidParameter(f"{name} must be greater than 0; got {value!r}")
    return str(exact)


def _split(url: str) -> Any:
    parts = urlsplit(url)
    try:
        # reading the port checks it
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidParameter("the address of a server looks like https://data.example.org or http://127.0.0.1:8765")
    return parts


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant by this name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _error(status: int, kind: str, reply: bytes) -> Exception:
    """The error that the server's reply stands for."""
    try:
        form = json.loads(reply) if kind == PROBLEM else None
    except ValueError:
        form = None
    if not isinstance(form, dict) or not isinstance(form.get("code"), str):
        if 300 <= status < 400:
            return ServerError(
                "the server sends its clients elsewhere, and the token isn't sent there: use that address"
            )
        return ServerError(f"{_NOT_DITHER} (status {status})")
    code, title, hint = form["code"], str(form.get("title", "")), str(form.get("hint", ""))
    if code == "out_of_budget":
        return OutOfBudget(title)
    if code == "invalid":
        return InvalidParameter(f"{title}. {hint}" if hint else title)
    if code in ("failed", "failed_for_good"):
        return Failed(str(form.get("receipt", "")), final=code == "failed_for_good")
    if code == "ledger_busy":
        return LedgerBusy(f"{title}. {hint}")
    if code == "took_too_long":
        return TookTooLong(f"{title}. {hint}")
    if status >= 500:
        return ServerError(f"{title}. {hint}")
    place = form.get("position")
    position = (place["line"], place["column"]) if isinstance(place, dict) else None
    return Refused(title, code=code, hint=hint, position=position)
