"""PROFILE over PostgreSQL's protocol: the owner's to buy, public then; analysts are told what to do."""

import pytest

from dither.curator import Curator
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from support import raw_client as raw


@pytest.fixture
def served(tmp_path):
    path = raw.make_shop(tmp_path)
    with Curator.open(path) as curator, TokenFile.open(tmp_path / "shop.access") as access:
        service = raw.CountingService(curator)
        try:
            with raw.serving(service, access) as server:
                server.tokens = {name: access.create(name, Scope.ASK)[1] for name in ("ana", "bob")}
                server.curator = curator
                yield server
        finally:
            service.close()


def test_a_profile_is_asked_for_like_a_question(served):
    client = raw.RawClient(served.port)
    try:
        client.sign_in("ana", served.tokens["ana"])
        assert not raw.errors(client.simple("SET dp.epsilon = 0.1"))
        for text in ("PROFILE orders", "profile public.orders WHERE amount > 3"):
            (error,) = raw.errors(client.simple(text))
            assert "short name is needs_approval." in error["D"]
        known = served.curator.profile("orders", epsilon=0.5)
        shown = client.simple("PROFILE orders")
        assert not raw.errors(shown)
        assert [int(row[2]) for row in raw.rows(shown)] == known.table.column("units").to_pylist()
        for text in ("PROFILE orders GROUP BY city", "PROFILE nothing"):
            assert raw.errors(client.simple(text))
    finally:
        client.socket.close()
