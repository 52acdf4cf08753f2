"""A small made-up shop behind a server: its curator, tokens for several people, and everything in a directory."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dither.curator import Curator
from dither.policy import Policy
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.run import access_path
from dither.server.service import Service
from dither.server.workers.pool import WorkerPool
from support.shop import POLICY, ROOMY, make_shop


@pytest.fixture(scope="session")
def shop_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop's DuckDB file, made once."""
    directory = tmp_path_factory.mktemp("shop")
    make_shop(directory)
    return directory / "shop.duckdb"


@pytest.fixture
def shop(tmp_path: Path, shop_data: Path) -> Path:
    """A directory with the shop and its policy (dither.toml); nothing was asked yet."""
    (tmp_path / "shop.duckdb").write_bytes(shop_data.read_bytes())
    (tmp_path / "dither.toml").write_text(POLICY.format(more="", budget=100, ana=50), encoding="utf-8")
    return tmp_path


@pytest.fixture
def shop_with(shop: Path) -> Callable[..., Path]:
    """The shop with another budget or further lines in its [budget]: ``shop_with(more=…, budget=…, ana=…)``."""

    def changed(*, more: str = "", budget: float = 100, ana: float = 50) -> Path:
        (shop / "dither.toml").write_text(POLICY.format(more=more, budget=budget, ana=ana), encoding="utf-8")
        return shop

    return changed


@pytest.fixture
def curator(shop: Path) -> Iterator[Curator]:
    """The shop's curator."""
    with Curator.open(shop / "dither.toml") as opened:
        yield opened


@pytest.fixture
def access(shop: Path) -> Iterator[TokenFile]:
    """Where the shop's tokens are kept."""
    with TokenFile.open(access_path(Policy.load(shop / "dither.toml"))) as opened:
        yield opened


@pytest.fixture
def tokens(access: TokenFile) -> dict[str, str]:
    """A token for each name: ana and bob ask, looker only looks at prices, owner owns."""
    scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "looker": Scope.PRICE, "owner": Scope.OWNER}
    return {name: access.create(name, scope)[1] for name, scope in scopes.items()}


@pytest.fixture
def service(curator: Curator) -> Iterator[Service]:
    """What the protocols use."""
    made = Service(curator, ROOMY)
    yield made
    made.close()


@pytest.fixture
def with_crew():
    """Runs a story with a service whose new questions are answered by a crew."""

    def run(shop, story, *, size=1):
        async def whole():
            with Curator.open(shop / "dither.toml", sharing=size + 1) as curator:
                crew = WorkerPool(curator.policy, size=size, threads=4, version=curator.version)
                await crew.start()
                service = Service(curator, ROOMY, crew=crew)
                try:
                    return await story(service, crew)
                finally:
                    service.close()
                    await crew.stop()

        return asyncio.run(whole())

    return run


@pytest.fixture
def counting(served):
    """The service of a file's own server, having been asked nothing in this test."""
    served.service.asked.clear()
    served.service.priced.clear()
    return served.service
