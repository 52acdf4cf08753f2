"""The crew: new questions in processes of their own, which charge one ledger and lose nothing when they die."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from dither.curator import Curator, Terms
from dither.errors import Failed, InvalidPolicy, LedgerUncertain, OutOfBudget, Refused, SourceError
from dither.policy import Policy
from dither.server.auth.identity import Identity, Scope
from dither.server.auth.tokens import TokenFile
from dither.server.limits import ServerLimits
from dither.server.run import Address, access_path, running
from dither.server.service import AskedQuestion, Service
from dither.server.workers.frames import LENGTH, framed
from dither.server.workers.pool import WorkerPool
from dither.server.workers.worker import _answer
from support.sizes import at_night

ANA = Identity(analyst="ana", scope=Scope.ASK, token="1")
BOB = Identity(analyst="bob", scope=Scope.ASK, token="2")
COUNT = "SELECT COUNT(*) AS n FROM orders"


def question(number: int) -> AskedQuestion:
    return AskedQuestion(
        sql=f"SELECT COUNT(*) AS n FROM orders WHERE amount < {number + 1}", terms=Terms.of(epsilon="0.01")
    )


def processes(crew: WorkerPool) -> list[subprocess.Popen[bytes]]:
    return [member.process for member in crew._members]


@at_night
def test_many_questions_at_once_are_charged_once_each(shop, with_crew):
    async def story(service, crew):
        wanted = [question(number % 8) for number in range(40)]
        answers = await asyncio.gather(*(service.ask(ANA, one) for one in wanted))
        # the curator of this process answered none of them, and delivers all of them again
        again = [service.curator.analyst("ana").remembered(one.sql, one.terms) for one in wanted]
        return answers, again, service.curator.ledger.balance(service.curator._vault.accounts.account("ana")).spent.main

    answers, again, spent = with_crew(shop, story, size=2)
    receipts = {answer.receipt.number for answer in answers}
    assert len(receipts) == 8
    assert sum(answer.cost.charged for answer in answers) == 8
    assert spent == sum({a.receipt.number: a.receipt.amount.main for a in answers}.values())
    assert all(first.table == second.table for first, second in zip(answers, again, strict=True))
    with Curator.open(shop / "dither.toml") as curator:
        # verify raises where the replay disagrees with the balances
        curator.verify()
        assert {past.number for past in curator.answers().items} == receipts


@pytest.mark.nightly
def test_refusals_keep_their_place_and_hint(shop, with_crew):
    async def story(service, _):
        with pytest.raises(Refused) as refused:
            await service.ask(ANA, AskedQuestion(sql="SELECT secret FROM orders", terms=Terms.of(epsilon="0.1")))
        with pytest.raises(Refused) as unknown:
            await service.ask(replace(ANA, analyst="nobody"), question(1))
        await service.ask(BOB, AskedQuestion(sql=COUNT, terms=Terms.of(epsilon="0.5")))
        with pytest.raises(OutOfBudget, match="left"):
            await service.ask(BOB, AskedQuestion(sql=COUNT, terms=Terms.of(epsilon="0.4")))
        return refused.value, unknown.value

    with Curator.open(shop / "dither.toml") as curator, pytest.raises(Refused) as here:
        curator.sql("SELECT secret FROM orders", epsilon="0.1", analyst="ana")
    refused, unknown = with_crew(shop, story)
    assert (str(refused), refused.code, refused.hint) == (str(here.value), here.value.code, here.value.hint)
    assert refused.position == here.value.position == (1, 8)
    assert unknown.code == "unknown_analyst"
    with Curator.open(shop / "dither.toml") as curator:
        assert len(curator.answers().items) == 1


def test_a_member_that_dies_takes_nothing_with_it(shop, with_crew):
    async def story(service, crew):
        (process,) = processes(crew)
        before = await service.ask(ANA, question(1))
        # stopped, so that it has the question and can't answer
        process.send_signal(signal.SIGSTOP)
        asked = asyncio.create_task(service.ask(ANA, question(2)))
        while not crew._members[0].waiting:
            await asyncio.sleep(0.01)
        process.kill()
        with pytest.raises(LedgerUncertain, match="ask the same again"):
            await asked
        # meanwhile the server's own curator answers; then there is another member
        assert not crew.ready
        after = await service.ask(ANA, question(2))
        while not crew.ready:
            await asyncio.sleep(0.02)
        (other,) = processes(crew)
        later = await service.ask(ANA, question(3))
        assert service.gauges == {"under_way": 0, "crew_ready": 1, "crew_restarts": 1}
        return process.returncode, other.pid != process.pid, crew.restarts, before, after, later

    code, another, restarts, *answers = with_crew(shop, story)
    assert (code, another, restarts) == (-signal.SIGKILL, True, 1)
    assert all(answer.cost.charged for answer in answers)
    with Curator.open(shop / "dither.toml") as curator:
        curator.verify()
        assert len(curator.answers().items) == 3


@pytest.mark.nightly
def test_members_leave_with_the_server_and_survive_the_terminal(shop, with_crew):
    async def story(service, crew):
        found = processes(crew)
        for process in found:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        answer = await service.ask(ANA, question(1))
        return found, [process.poll() for process in found], answer

    found, alive, answer = with_crew(shop, story, size=2)
    assert alive == [None, None]
    assert answer.cost.charged
    assert [process.returncode for process in found] == [0, 0]


def test_members_leave_when_the_server_dies(shop):
    # a server that can't say goodbye: its end of the socket is closed by the system
    script = (
        "import asyncio, os, sys\n"
        "from dither.policy import Policy\n"
        "from dither.server.workers.pool import WorkerPool\n"
        "async def main():\n"
        "    crew = WorkerPool(Policy.load(sys.argv[1]), size=1, threads=1)\n"
        "    await crew.start()\n"
        "    print(crew._members[0].process.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, str(shop / "dither.toml")]
    died = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    member = int(died.stdout)
    for _ in range(1000):
        try:
            os.kill(member, 0)
        except ProcessLookupError:
            break
        if Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("the member is still there")


@at_night
def test_what_can_not_be_opened_is_said_and_nobody_is_left(shop):
    policy = Policy.load(shop / "dither.toml")
    (shop / "shop.duckdb").unlink()

    async def story():
        crew = WorkerPool(policy, size=2, threads=1)
        with pytest.raises(SourceError):
            await crew.start()
        return crew.ready

    assert asyncio.run(story()) == 0


def test_a_server_with_more_processes(shop):
    policy = Policy.load(shop / "dither.toml")
    with TokenFile.open(access_path(policy)) as tokens:
        token = tokens.create("ana", Scope.ASK)[1]

    async def story():
        limits = ServerLimits(processes=1)
        async with (
            running(policy, Address(port=0, pg_port=None), limits=limits) as server,
            httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client,
        ):
            body = {"sql": COUNT, "epsilon": "0.1"}
            first = await client.post(f"{server.url}/v1/ask", json=body)
            again = await client.post(f"{server.url}/v1/ask", json=body)
            return first, again

    first, again = asyncio.run(story())
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.headers["dither-receipt"] == again.headers["dither-receipt"]
    assert first.json()["rows"] == again.json()["rows"]
    assert (first.json()["cost"]["charged"], again.json()["cost"]["charged"]) == (True, False)


@pytest.mark.parametrize(
    "problem",
    [
        Refused("no", code="nothing", hint="Ask otherwise.", position=(2, 3)),
        Failed("ab12"),
        Failed("ab12", final=True),
        OutOfBudget("spent"),
        InvalidPolicy(["one thing", "another"]),
    ],
)
def test_errors_are_the_same_in_another_process(problem):
    copied = pickle.loads(pickle.dumps(problem))
    assert type(copied) is type(problem)
    assert str(copied) == str(problem)
    assert copied.__dict__ == problem.__dict__


def test_policies_are_the_same_in_another_process(shop):
    policy = Policy.load(shop / "dither.toml")
    copied = pickle.loads(pickle.dumps(policy))
    assert copied == policy
    assert copied.source == policy.source
    assert copied.fingerprint() == policy.fingerprint()
    changed = replace(policy, budget=replace(policy.budget, epsilon_budget=policy.budget.epsilon_budget * 2))
    with pytest.raises(TypeError, match="isn't what its file says"):
        pickle.dumps(changed)


@pytest.mark.nightly
def test_a_member_without_a_sign_of_life_is_replaced(shop, monkeypatch, with_crew):
    monkeypatch.setattr("dither.server.workers.pool.HEARTBEAT", 0.2)

    async def story(service, crew):
        (process,) = processes(crew)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(LedgerUncertain, match="ask the same again"):
            await service.ask(ANA, question(1))
        # from here on members may be as slow as this machine
        monkeypatch.setattr("dither.server.workers.pool.HEARTBEAT", 10.0)
        while not crew.ready:
            await asyncio.sleep(0.02)
        return process.returncode, await service.ask(ANA, question(1)), service.under_way

    code, answer, under_way = with_crew(shop, story)
    assert (code, under_way) == (-signal.SIGKILL, 0)
    assert answer.cost.charged


@pytest.mark.nightly
def test_a_member_that_answers_nothing_for_long_lives_on(shop, monkeypatch, with_crew):
    monkeypatch.setattr("dither.server.workers.pool.HEARTBEAT", 0.2)

    async def story(service, crew):
        # more pulses than may be missed: each is answered
        await asyncio.sleep(8 * 0.2)
        return crew.restarts, crew.ready, await service.ask(ANA, question(1))

    restarts, ready, answer = with_crew(shop, story)
    assert (restarts, ready) == (0, 1)
    assert answer.cost.charged


@pytest.mark.nightly
def test_what_a_member_says_that_can_not_be_read_keeps_nobody_waiting(shop, with_crew):
    async def story(service, crew):
        (member,) = crew._members
        asked = asyncio.create_task(service.ask(ANA, question(1)))
        while not member.waiting:
            await asyncio.sleep(0)
        # an answer to something that nobody asked, before the member's own
        member.reader.feed_data(framed((10**6, None)))
        with pytest.raises(LedgerUncertain):
            await asked
        while not crew.ready:
            await asyncio.sleep(0.02)
        return await service.ask(ANA, question(1)), crew.restarts

    answer, restarts = with_crew(shop, story)
    assert restarts == 1
    assert answer.receipt is not None


class Unsendable(OutOfBudget):
    def __reduce__(self):
        raise TypeError("never")


@pytest.mark.parametrize("problem", [Unsendable("no"), SystemExit("quotes data"), ZeroDivisionError("quotes data")])
def test_whoever_waits_is_told_whatever_a_question_ends_in(problem):
    sent = []

    class Broken:
        broken = False

        def sql(self, *_, **__):
            raise problem

    class Link:
        def send(self, body):
            sent.append(pickle.loads(body[LENGTH.size :]))

    _answer(Link(), Broken(), 7, "ana", question(1))
    ((number, outcome),) = sent
    assert (number, type(outcome)) == (7, RuntimeError)
    assert "quotes" not in str(outcome)


@at_night
def test_members_have_the_data_that_the_server_has(shop):
    async def story():
        with Curator.open(shop / "dither.toml") as curator:
            crew = WorkerPool(curator.policy, size=1, threads=1, version=curator.version)
            await crew.start()
            service = Service(curator, crew=crew)
            try:
                await service.ask(ANA, question(1))
                os.utime(shop / "shop.duckdb", ns=(1, 1))
                (process,) = processes(crew)
                process.kill()
                while crew.ready:
                    await asyncio.sleep(0.01)
                # a member that starts now would open other data, under a question's other name: another charge
                with pytest.raises(SourceError, match="isn't what was opened before"):
                    await crew._begin()
                with pytest.raises(Refused, match="the data isn't open"):
                    await service.ask(ANA, question(2))
            finally:
                service.close()
                await crew.stop()
            return len(curator.answers().items)

    assert asyncio.run(story()) == 1


@pytest.mark.nightly
def test_what_the_owner_decides_reaches_all_processes(shop_with, with_crew):
    async def story(service, crew):
        async def everyone(first: int, epsilon: str):
            asked = [
                member.ask(
                    next(crew._numbers), ("bob", replace(question(first + place), terms=Terms.of(epsilon=epsilon)))
                )
                for place, member in enumerate(crew._members)
            ]
            return await asyncio.gather(*asked, return_exceptions=True)

        owner = service.curator
        assert all(answer.cost.charged for answer in await everyone(0, "0.3"))
        assert [type(found) for found in await everyone(2, "0.39")] == [OutOfBudget] * 2
        assert {found.code for found in await everyone(4, "0.45")} == {"needs_approval"}
        owner.decide(owner.request_budget("bob", epsilon=5).number, approve=True)
        for place in (4, 5):
            wanted = replace(question(place), terms=Terms.of(epsilon="0.45"))
            asked = owner.analyst("bob").request_question(wanted.sql, wanted.terms)
            owner.decide(asked.number, approve=True)
        return [*await everyone(2, "0.39"), *await everyone(4, "0.45")]

    answers = with_crew(shop_with(more="needs_approval_above = 0.4"), story, size=2)
    assert [answer.cost.charged for answer in answers] == [True] * 4


@pytest.mark.nightly
def test_who_has_lost_its_socket_is_not_asked(shop, with_crew):
    async def story(service, crew):
        (member,) = crew._members
        # known to the transport and not yet to the keeper, which has had no turn
        member.writer.transport.abort()
        answer = await service.ask(ANA, question(1))
        return answer, member.waiting

    answer, waiting = with_crew(shop, story)
    assert answer.cost.charged
    assert waiting == {}
