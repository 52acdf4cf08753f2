"""What a curator holds for one policy: its data, its budget, and the parts that see to an answer."""

from __future__ import annotations

from dither.curator.answer_time import UnderWay
from dither.curator.answers.in_memory_cache import delivered
from dither.curator.charging import Accounts, Charging
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.execution import Execution
from dither.curator.past.log import PastQuestions
from dither.curator.price.bookings import Bookings
from dither.curator.price.pricing import Pricing
from dither.curator.price.profiles import Profiles
from dither.curator.price.quoting import Quoting
from dither.curator.requests import Requests, requests_beside
from dither.engines import Engine
from dither.errors import LedgerMismatch
from dither.ledger import Ledger
from dither.policy.policy import Policy


class Vault:
    """The parts of a curator; each knows those above it in the list of imports, and none knows who asks."""

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        exchange = Exchange(policy.budget.delta_budget, ledger.sums)
        if (ledger.currency, ledger.adjacency) != (exchange.currency, policy.schema.adjacency):
            raise LedgerMismatch(
                f"the ledger adds {ledger.currency.value} for {ledger.adjacency.value}; the policy needs "
                f"{exchange.currency.value} for {policy.schema.adjacency.value}"
            )
        self.policy, self.engine, self.ledger = policy, engine, ledger
        self.expect_bound()
        opened = engine.version()
        version = policy.source.version or opened
        self.running = UnderWay(float(policy.budget.round_answer_time_up_to))
        self.protected = {"units": policy.unit_statement(), "policy": policy.fingerprint()}
        self.requests = Requests(requests_beside(ledger))
        self.accounts = Accounts(policy, exchange, ledger, self.requests.granted)
        self.charging = Charging(ledger, self.accounts, policy.units(), self.running, protected=self.protected)
        self.profiles = Profiles(ledger, policy=policy.fingerprint(), version=version)
        self.pricing = Pricing(policy, exchange, ledger, version=version, profiles=self.profiles)
        self.quoting = Quoting(policy, exchange, ledger, self.accounts, self.profiles, self.requests.approved)
        self.bookings = Bookings(policy, exchange, ledger, self.accounts, self.pricing)
        self.execution = Execution(policy, engine, self.pricing, self.running, opened=opened)
        self.past = PastQuestions(ledger, exchange)
        self.memory = delivered()

    def expect_bound(self) -> None:
        """Another process may have begun the ledger since, for other units: their spending isn't told for these."""
        self.ledger.bind(self.policy.units(), note=False)

    def close(self) -> None:
        """Release the data and the ledger; questions that run in other threads are stopped and waited for."""
        try:
            self.running.finish(self.engine.interrupt)
        finally:
            self.memory.forget()
            self.execution.forget()
            self.past.close()
            self.requests.close()
            try:
                self.engine.close()
            finally:
                self.ledger.close()
