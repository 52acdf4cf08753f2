"""A small made-up shop behind a server: its curator, tokens for several people, and everything in a directory."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from dither.curator import Curator, Policy
from dither.server.crew import Crew
from dither.server.identity import Scope
from dither.server.run import access_path
from dither.server.service import Service
from dither.server.settings import Limits
from dither.server.tokens import TokenFile

# for tests that aren't about the number of requests: a fast machine mustn't meet that limit
ROOMY = Limits(rate=1e6, burst=10**6)

POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = {budget}
delta_budget = 1e-6
max_epsilon_per_query = 1
default_epsilon = 0.1
{more}

[analysts.ana]
epsilon_budget = {ana}

[analysts.bob]
epsilon_budget = 0.5

[analysts.looker]
epsilon_budget = 1

[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 2
max_rows_contributed = 3

[tables.orders.columns]
customer = {{ type = "integer" }}
city = {{ type = "text", in = ["Basel", "Bern", "Zug"] }}
product = {{ type = "text" }}
day = {{ type = "date" }}
amount = {{ type = "double", between = [0, 50], step = 0.5 }}
secret = {{ type = "text", hidden = true }}

[tables.cities]
public = true
unique = [["city"]]

[tables.cities.columns]
city = {{ type = "text" }}
canton = {{ type = "text" }}
"""
ORDERS = """
CREATE TABLE orders AS SELECT
    (i % 400)::BIGINT AS customer,
    ['Basel', 'Bern', 'Zug'][1 + i % 3] AS city,
    'article ' || (i % 7) AS product,
    DATE '2025-01-01' + (i % 365)::INT AS day,
    ((i * 7) % 100) / 2.0 AS amount,
    'never shown' AS secret
FROM range(1200) AS t(i)
"""
CITIES = (
    "CREATE TABLE cities AS SELECT * FROM (VALUES ('Basel', 'BS'), ('Bern', 'BE'), ('Zug', 'ZG')) AS t(city, canton)"
)


def make_shop(directory: Path, *, more: str = "", budget: float = 100, ana: float = 50) -> Path:
    """Write the shop's data and policy into a directory; ``more`` are further lines of its [budget]."""
    with duckdb.connect(str(directory / "shop.duckdb")) as database:
        database.execute(ORDERS)
        database.execute(CITIES)
    path = directory / "dither.toml"
    path.write_text(POLICY.format(more=more, budget=budget, ana=ana), encoding="utf-8")
    return path


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
                crew = Crew(curator.policy, size=size, threads=4, version=curator.version)
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
