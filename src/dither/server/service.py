"""What every protocol uses: the curator behind scopes, rate limits and a bounded number of workers.

A question that was begun is never stopped because its asker went away: its charge is on disk, and its answer is kept
for the next request of the same question.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from dither.curator import OWNER, Answer, BudgetLine, Curator, Quote, Request
from dither.numeric import Number
from dither.server.auth.identity import Identity, Scope
from dither.server.limits import ServerLimits
from dither.server.observe.metrics import Metrics
from dither.server.problems import ServerRefusal, busy, forbidden, problem_of, too_many
from dither.server.question import AskedQuestion
from dither.server.traffic.connection_slots import ConnectionPlaces
from dither.server.traffic.fair_scheduler import Turns, Worked
from dither.server.traffic.rate_limit import CHARACTERS_EACH, Rate
from dither.server.workers.pool import WorkerPool

T = TypeVar("T")
LOG = logging.getLogger("dither.server")


class Service:
    """One curator for all protocols: checks what a token allows, limits the load, and runs questions in threads."""

    def __init__(self, curator: Curator, limits: ServerLimits | None = None, *, crew: WorkerPool | None = None) -> None:
        self.curator = curator
        self._crew = crew
        self.limits = limits or ServerLimits()
        self.metrics = Metrics()
        self.places: dict[str, ConnectionPlaces] = {}
        self._rate = Rate(rate=self.limits.rate, burst=self.limits.burst)
        # in milliseconds of a processor
        self._work = Rate(rate=1000 * self.limits.work, burst=round(1000 * self.limits.work_at_once))
        self._pool = ThreadPoolExecutor(self.limits.workers, thread_name_prefix="dither-question")
        self._under_way = 0
        self._turns = Turns(self.limits.workers)
        self._crew_turns = Turns(self.limits.workers * max(1, self.limits.processes))

    # ------------------------------------------------------------------ questions

    async def price(self, who: Identity, wanted: AskedQuestion) -> Quote:
        """The price of a question; free, reads no data."""
        self.admit(who, Scope.PRICE, wanted.sql)
        return await self._run(who, "price", lambda: self.curator.analyst(who.analyst).price(wanted.sql, wanted.terms))

    async def ask(self, who: Identity, wanted: AskedQuestion) -> Answer:
        """The answer to a question, from the record if it was asked before."""
        self.admit(who, Scope.ASK, wanted.sql)
        known = self.curator.analyst(who.analyst).remembered(wanted.sql, wanted.terms)
        if known is not None:
            self.metrics.count("ask", "repeated")
            return known
        answer = await self._by_crew(who, wanted)
        if answer is None:
            answer = await self._run(
                who, "ask", lambda: self.curator.analyst(who.analyst).sql(wanted.sql, wanted.terms)
            )
        self.metrics.count("ask", "charged" if answer.cost.charged else "repeated")
        return answer

    async def do(self, who: Identity, scope: Scope, what: str, work: Callable[[Curator], T]) -> T:
        """Anything else that is asked of the curator, for those whose token allows it; ``what`` names it in metrics."""
        self.admit(who, scope)
        return await self._run(who, what, lambda: work(self.curator))

    async def budget(self, who: Identity) -> tuple[BudgetLine, ...]:
        """Every account for the owner; for an analyst their own."""
        return await self.do(who, Scope.PRICE, "budget", lambda curator: curator.budget(who.analyst))

    async def request_question(self, who: Identity, wanted: AskedQuestion, *, why: str) -> Request:
        """Ask the owner to approve a question that costs more than may be asked without; charges nothing."""

        def made(curator: Curator) -> Request:
            return curator.analyst(who.analyst).request_question(wanted.sql, wanted.terms, why=why)

        return await self.do(who, Scope.ASK, "request", made)

    async def request_budget(self, who: Identity, epsilon: Number, *, why: str) -> Request:
        """Ask the owner for more budget."""

        def made(curator: Curator) -> Request:
            return curator.request_budget(who.analyst, epsilon=epsilon, why=why)

        return await self.do(who, Scope.ASK, "request", made)

    # ------------------------------------------------------------------ who and how much

    def admit(self, who: Identity, wanted: Scope, text: str = "") -> None:
        """Refuse what the token doesn't allow, and who asks too often; long texts count more."""
        if not who.allows(wanted) or (wanted is Scope.OWNER and who.analyst != OWNER):
            raise forbidden(wanted.value)
        wait = self._work.wait(who.analyst) or self._rate.wait(who.analyst, len(text) // CHARACTERS_EACH)
        if wait:
            self.metrics.count("rate", "refused")
            raise too_many(wait)

    async def _by_crew(self, who: Identity, wanted: AskedQuestion) -> Answer | None:
        """The answer of another process; None where there is none to ask."""
        if self._crew is None or not self._crew.ready:
            return None
        self._expect_room(who, "ask", self._crew_turns)
        answer = await self._awaited("ask", self._crew_turns.take(who.analyst, partial(self._crew_asked, who, wanted)))
        if answer is None:
            return None
        self.curator.analyst(who.analyst).remember(wanted.sql, wanted.terms, answer)
        return answer

    async def _crew_asked(self, who: Identity, wanted: AskedQuestion, worked: Worked) -> Answer | None:
        assert self._crew is not None
        began = time.monotonic()
        try:
            future = self._crew.ask(who.analyst, wanted)
            return None if future is None else await future
        finally:
            worked.seconds = time.monotonic() - began

    async def _run(self, who: Identity, what: str, work: Callable[[], T]) -> T:
        self._expect_room(who, what, self._turns)

        def measured(worked: Worked) -> T:
            began = time.thread_time()
            try:
                return work()
            finally:
                worked.seconds = time.thread_time() - began
                self._work.spend(who.analyst, 1000 * worked.seconds)

        def start(worked: Worked) -> asyncio.Future[T]:
            return asyncio.get_running_loop().run_in_executor(self._pool, measured, worked)

        return await self._awaited(what, self._turns.take(who.analyst, start))

    def _expect_room(self, who: Identity, what: str, turns: Turns) -> None:
        # three quarters at most for one analyst, so that others find room
        of_one = turns.under_way(who.analyst) >= self.limits.waiting - self.limits.waiting // 4
        if of_one or self._under_way >= self.limits.waiting:
            self.metrics.count(what, "busy")
            raise busy()

    async def _awaited(self, what: str, future: asyncio.Future[T]) -> T:
        self._under_way += 1
        began = time.monotonic()
        future.add_done_callback(lambda done: self._ended(what, began, done))
        # shielded: a timeout or a cancelled wait doesn't stop the question
        return await asyncio.wait_for(asyncio.shield(future), self.limits.patience)

    def _ended(self, what: str, began: float, done: asyncio.Future[T]) -> None:
        self._under_way -= 1
        problem = None if done.cancelled() else done.exception()
        outcome = "done" if problem is None else problem_of(problem).code
        self.metrics.observe(what, outcome, time.monotonic() - began)
        if problem is not None and problem_of(problem).status >= 500:
            # its text may quote data or name files: the kind alone is logged; the cause of a failure is in the ledger
            LOG.error("%s ended in %s", what, type(problem).__name__)

    @property
    def under_way(self) -> int:
        """How many requests are worked on or wait."""
        return self._under_way

    @property
    def gauges(self) -> dict[str, float]:
        """What metrics say of this moment."""
        now: dict[str, float] = {"under_way": self._under_way}
        if self._crew is not None:
            now |= {"crew_ready": self._crew.ready, "crew_restarts": self._crew.restarts}
        for protocol, places in self.places.items():
            now |= {f"{protocol}_strangers": places.strangers, f"{protocol}_signed_in": places.signed_in}
        return now

    def close(self) -> None:
        """Shut the thread pool down once its work is done; the curator isn't closed here."""
        self._pool.shutdown(wait=True, cancel_futures=True)


__all__ = ["AskedQuestion", "ServerRefusal", "Service"]
