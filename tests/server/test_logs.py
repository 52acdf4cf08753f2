"""Logs: JSON lines that say what happened, and nothing of what was asked or answered."""

import io
import json
import logging

import httpx
import pytest

from dither.server.app import make_app
from dither.server.observe.logs import JsonLines, RequestLog, writing_logs


@pytest.fixture
def log():
    stream = io.StringIO()
    with writing_logs(stream):
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_own_records_are_written_with_their_fields(log):
    logging.getLogger("dither.server").info("started", extra={"fields": {"port": 1}})
    (line,) = log()
    assert (line["event"], line["from"], line["level"], line["port"]) == ("started", "dither.server", "info", 1)


def test_what_libraries_say_is_not_quoted(log):
    logging.getLogger("asyncio").info("GET /?secret=4711")
    logging.getLogger("asyncio").warning("bad request: value 4711")
    (line,) = log()
    assert line["event"] == "a library reported a problem"
    assert "4711" not in json.dumps(line)


def test_strangers_can_not_fill_the_log(log):
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert log() == []
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    assert [line["event"] for line in log()] == ["a library reported a problem"]


def test_of_an_exception_the_kind_alone_is_written(log):
    try:
        int("value 4711")
    except ValueError:
        logging.getLogger("dither.server").exception("it went wrong")
    (line,) = log()
    assert line["kind"] == "ValueError"
    assert "4711" not in json.dumps(line)


class Closed(io.StringIO):
    def write(self, _text):
        raise ValueError("I/O operation on closed file")


def test_a_log_that_can_not_be_written_is_left_out(capfd):
    with writing_logs(Closed()):
        try:
            int("value 4711")
        except ValueError:
            logging.getLogger("dither.server").exception("it went wrong")
    assert "".join(capfd.readouterr()) == ""


def test_logging_is_as_before_afterwards():
    root, own = logging.getLogger(), logging.getLogger("dither")
    before = root.level, own.level, list(root.handlers)
    with pytest.raises(KeyError), writing_logs(io.StringIO()):
        raise KeyError
    assert (root.level, own.level, list(root.handlers)) == before


def test_one_record_is_one_line():
    record = logging.LogRecord("dither", logging.INFO, "", 0, "two\nlines", (), None)
    assert "\n" not in JsonLines().format(record)


@pytest.mark.anyio
async def test_requests_are_logged_without_what_they_hold(log, service, access, tokens):
    app = RequestLog(make_app(service, access))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        head = {"Authorization": f"Bearer {tokens['ana']}"}
        body = {"sql": "SELECT COUNT(*) AS n4711 FROM orders", "epsilon": 0.1}
        assert (await client.post("/v1/ask", json=body, headers=head)).status_code == 200
        await client.get("/v1/answers?search=n4711", headers=head)
        await client.get("/n4711/nowhere")
    lines = [line for line in log() if line["event"] == "request"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/v1/ask", 200),
        ("GET", "/v1/answers", 200),
        ("GET", "unknown", 404),
    ]
    everything = json.dumps(log())
    assert "4711" not in everything
    assert tokens["ana"] not in everything


@pytest.fixture
def anyio_backend():
    return "asyncio"
