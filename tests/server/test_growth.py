"""A server keeps nothing of what it is asked, beyond caches with a bound: the objects of its process are counted."""

import asyncio
import functools
import gc
import itertools
import weakref
from collections import Counter

import httpx

from dither.curator.answers.in_memory_cache import Memory
from dither.server.app import make_app
from dither.server.http.formats import EncodedAnswers
from dither.server.service import Service
from support.shop import ROOMY

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
# caches that keep so few are full after the first of as many stretches of so many rounds
FEW, STRETCHES, ROUNDS = 4, 3, 5


class Leaked:
    """What the test itself keeps of each round, to see that it is seen."""


def keep_few():
    """Caches keep few entries from now on, so that they are full soon."""
    for one in gc.get_objects():
        if isinstance(one, Memory):
            one._entries = FEW
        elif isinstance(one, EncodedAnswers):
            one._answers = FEW


def objects():
    """How many there are of each class, besides those in caches of functions with a bound.

    Weak references hold nothing, and tables of dead ones are tidied up at any time.
    """
    for one in gc.get_objects():
        if isinstance(one, functools._lru_cache_wrapper) and one.cache_info().maxsize is not None:
            one.cache_clear()
    gc.collect()
    return Counter(type(one) for one in gc.get_objects() if type(one) is not weakref.ref)


async def one_round(client, cookie, number):
    """A request of each kind, most of them with what nobody has sent before."""
    below = f"amount < 40.{number:04d}"
    for statuses, form in (
        ({200}, {"sql": CITIES, "epsilon": "0.1"}),
        ({200}, {"sql": CITIES, "epsilon": f"0.01{number:04d}"}),
        ({200}, {"sql": f"SELECT COUNT(*) AS n FROM orders WHERE {below}", "epsilon": "0.01"}),
        ({200}, {"sql": f"SELECT city, COUNT(*) AS n FROM orders WHERE {below} GROUP BY city", "epsilon": "0.01"}),
        ({400, 422}, {"sql": f"SELECT amount FROM orders WHERE {below}"}),
        ({400, 422}, {"sql": f"SELECT COUNT(* FROM orders{number}"}),
        ({400, 422}, {"sql": CITIES, "epsilon": f"{10**9 + number}"}),
    ):
        for path in ("/v1/price", "/v1/ask"):
            assert (await client.post(path, json=form)).status_code in statuses
    for path in ("/ask", "/answers", "/budget", "/data"):
        page = await client.get(path, headers={"Cookie": cookie, "Authorization": ""})
        assert page.status_code == 200
    for path in (f"/nowhere/{number}", "/v1/budget"):
        stranger = await client.get(path, headers={"Authorization": f"Bearer dither_{number}"})
        assert stranger.status_code in {401, 404}
    for path in ("/v1/budget", "/v1/answers?count=5", "/v1/schema"):
        assert (await client.get(path)).status_code == 200


def test_nothing_is_kept_of_requests(curator, access, tokens):
    async def grown():
        service = Service(curator, ROOMY)
        app = make_app(service, access)
        cookie, _ = access.sign_in(tokens["ana"])
        head = {"Authorization": f"Bearer {tokens['ana']}", "Accept": "application/json"}
        leaked, counted = [], []
        keep_few()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop", headers=head) as client:
            for number in range(STRETCHES * ROUNDS):
                await one_round(client, f"dither_session={cookie}", number)
                leaked.append(Leaked())
                if (number + 1) % ROUNDS == 0:
                    counted.append(objects())
        service.close()
        return [after - before for before, after in itertools.pairwise(counted)]

    # what grows by less than one in a round, or not in every stretch, isn't kept of requests
    more = [{kind for kind, number in each.items() if number >= ROUNDS} for each in asyncio.run(grown())]
    assert set.intersection(*more) == {Leaked}
