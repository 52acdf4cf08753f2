"""Approvals and budget requests: one question for one analyst, raised caps that last, and no way around a budget."""

import dataclasses
import stat
import subprocess
import sys
import textwrap
import threading
from fractions import Fraction

import pytest

from dither.curator import OWNER, Curator, RequestKind, RequestState
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.requests import LONGEST_WHY, MOST_WAITING, Requests
from dither.errors import InvalidParameter, LedgerError, OutOfBudget, Refused
from dither.ledger import Account, EntryKind
from dither.privacy import ZcdpLoss

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
WAITS = "needs_approval_above = 0.1"


def counting(number):
    return f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number}"


def refused(work):
    with pytest.raises(Refused) as problem:
        work()
    return problem.value


def entries(made):
    return len(list(made.ledger.entries()))


@pytest.fixture
def on_disk(policy_of, tmp_path):
    """Open the shop with its ledger in a file: ``on_disk(more=…)``, as often as a test likes."""

    def make(**settings):
        policy = policy_of(**settings)
        source = dataclasses.replace(policy.source, ledger=tmp_path / "l", ledger_head=tmp_path / "h")
        return Curator.open(dataclasses.replace(policy, source=source))

    return make


# ---------------------------------------------------------------- questions above a price


def test_a_dear_question_waits_and_nothing_is_charged(opened):
    made = opened(more=WAITS)
    size = entries(made)
    for options in ({"epsilon": "0.2"}, {"error": 200}):
        quote = made.curator.price(counting(1), analyst="bob", **options)
        assert quote.needs_approval
        problem = refused(lambda o=options: made.curator.sql(counting(1), analyst="bob", **o))
        assert problem.code == "needs_approval"
        assert "0.1" in problem.reason
        assert problem.hint
    assert (entries(made), made.engine.runs) == (size, 0)


def test_up_to_the_price_and_for_the_owner_nothing_waits(opened):
    made = opened(more=WAITS)
    assert not made.curator.price(COUNTS, epsilon="0.1", analyst="bob").needs_approval
    made.curator.sql(COUNTS, epsilon="0.1", analyst="bob")
    assert not made.curator.price(COUNTS, epsilon=3).needs_approval
    made.curator.sql(COUNTS, epsilon=3)
    # what explains costs nothing
    made.curator.sql(f"EXPLAIN PRIVACY {COUNTS}", epsilon="0.2", analyst="bob")


def test_an_analyst_s_own_price_goes_before_the_dataset_s(opened, policy_of):
    eve = "[analysts.eve]\nepsilon_budget = 2\nneeds_approval_above = 1"
    made = opened(more=f"{WAITS}\n{eve}")
    made.curator.sql(COUNTS, epsilon="0.9", analyst="eve")
    assert refused(lambda: made.curator.sql(COUNTS, epsilon="1.1", analyst="eve")).code == "needs_approval"
    assert policy_of(more=f"{WAITS}\n{eve}").analyst("ana").needs_approval_above == Fraction(1, 10)
    assert policy_of(more=f'{WAITS}\nanalysts = "any"').analyst("zoe").needs_approval_above == Fraction(1, 10)
    assert policy_of().analyst("ana").needs_approval_above is None


def test_an_approved_question_is_asked_and_then_free(opened):
    made = opened(more=WAITS)
    asked = made.curator.request_question(COUNTS, epsilon="0.2", analyst="bob", why="for the report")
    assert (asked.analyst, asked.kind, asked.sql, asked.epsilon, asked.why, asked.state, asked.answer_why) == (
        "bob", RequestKind.QUESTION, COUNTS, "0.2", "for the report", RequestState.WAITING, "",
    )  # fmt: skip
    assert refused(lambda: made.curator.sql(COUNTS, epsilon="0.2", analyst="bob")).code == "needs_approval"
    decided = made.curator.decide(asked.number, approve=True, why="fine")
    assert (decided.state, decided.answer_why, decided.number) == (RequestState.APPROVED, "fine", asked.number)
    assert not made.curator.price(COUNTS, epsilon="0.2", analyst="bob").needs_approval
    assert made.curator.sql(COUNTS, epsilon="0.2", analyst="bob").cost.charged
    assert not made.curator.sql(COUNTS, epsilon="0.2", analyst="bob").cost.charged
    assert not made.curator.price(COUNTS, epsilon="0.2", analyst="bob").needs_approval


def test_an_approval_is_for_one_question_and_one_analyst(opened):
    made = opened(more=WAITS)
    number = made.curator.request_question(counting(1), epsilon="0.2", analyst="bob", why="").number
    made.curator.decide(number, approve=True)
    for sql, epsilon, analyst in (
        (counting(2), "0.2", "bob"),
        (counting(1), "0.21", "bob"),
        (counting(1), "0.2", "ana"),
    ):
        asking = {"epsilon": epsilon, "analyst": analyst}
        assert refused(lambda s=sql, a=asking: made.curator.sql(s, **a)).code == "needs_approval"
    # another text of the same computation is the same question
    made.curator.sql(counting(1).replace(" AS n", " AS how_many"), epsilon="0.2", analyst="bob")


def test_a_refused_question_stays_refused_and_may_be_asked_for_again(opened):
    made = opened(more=WAITS)
    ask = {"epsilon": "0.2", "analyst": "bob", "why": "please"}
    first = made.curator.request_question(COUNTS, **ask)
    assert made.curator.request_question(COUNTS, **ask) == first
    assert made.curator.decide(first.number, approve=False, why="no").state is RequestState.REFUSED
    assert made.curator.decide(first.number, approve=False, why="really").answer_why == "no"
    assert refused(lambda: made.curator.decide(first.number, approve=True)).code == "already_decided"
    assert refused(lambda: made.curator.sql(COUNTS, epsilon="0.2", analyst="bob")).code == "needs_approval"
    second = made.curator.request_question(COUNTS, **ask)
    assert second.number != first.number
    assert [one.number for one in made.curator.requests("bob")] == [second.number, first.number]
    assert made.curator.requests("bob", waiting_only=True) == (second,)


def test_who_asks_for_what_needs_no_approval_is_told(opened):
    made = opened(more=WAITS)
    asking = {"analyst": "bob", "why": ""}
    assert refused(lambda: made.curator.request_question(COUNTS, epsilon="0.1", **asking)).code == "no_approval_needed"
    explain = f"EXPLAIN PRIVACY {COUNTS}"
    assert refused(lambda: made.curator.request_question(explain, epsilon="0.2", **asking)).code == "no_approval_needed"
    owner = refused(lambda: made.curator.request_question(COUNTS, epsilon="0.2", analyst=OWNER, why=""))
    assert owner.code == "no_approval_needed"
    assert refused(lambda: made.curator.request_question("SELECT 1", epsilon="0.2", **asking)).code == "public_only"
    assert refused(lambda: made.curator.requests("carl")).code == "unknown_analyst"
    assert made.curator.requests() == ()


def test_a_computation_above_the_price_is_no_way_around(opened):
    class Dear:
        table, columns, rows = "orders", ("pieces",), 4

        def __init__(self, rho):
            self.rho = rho

        def loss(self):
            return ZcdpLoss(self.rho)

        def key(self):
            return f"dear {self.rho}"

        def release(self, table):
            return 1

    made = opened(more=WAITS)
    most = Exchange(Fraction(1, 10**6)).for_question(Fraction(1, 10), Fraction(1, 10**8), discover=False).main
    cheap = most * 99 / 100
    assert made.curator.run(Dear(cheap), analyst="ana") == 1
    assert refused(lambda: made.curator.run(Dear(2 * cheap), analyst="ana")).code == "needs_approval"
    assert made.curator.run(Dear(2 * cheap)) == 1
    assert made.engine.runs == 2


def test_statistical_queries_wait_too(opened):
    made = opened(more=WAITS)
    asking = {"tolerance": "0.3", "count_epsilon": "0.2", "analyst": "bob"}
    problem = refused(lambda: made.curator.statistical_query("orders", "pieces > 3", **asking))
    assert problem.code == "needs_approval"


# ---------------------------------------------------------------- more budget


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_granted_budget_raises_the_analyst_s_cap_alone(opened, delta):
    made = opened(budget="1", most="1", delta=delta)
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    before = made.ledger.balance(Account(("shop",))).limit
    asked = made.curator.request_budget("bob", epsilon="0.25", why="one more")
    assert (asked.kind, asked.sql, asked.epsilon) == (RequestKind.BUDGET, "", "0.25")
    assert made.curator.budget("bob")[0].epsilon_budget == 0.5
    made.curator.decide(asked.number, approve=True)
    (line,) = made.curator.budget("bob")
    assert line.epsilon_budget == 0.75
    assert "of 0.75" in str(line)
    rates = Exchange(Fraction(delta) if delta == "0" else Fraction(1, 10**6))
    # stated in the ledger at once, and the dataset's cap is what it was
    assert made.curator.budget()[0].epsilon_budget == 1.0
    assert made.ledger.balance(Account(("shop", "bob"))).limit == rates.limit(Fraction(3, 4))
    assert made.ledger.balance(Account(("shop",))).limit == before == rates.limit(Fraction(1))
    stated = [entry.body["limits"] for entry in made.ledger.entries() if entry.kind is EntryKind.LIMITS]
    assert [[one["account"] for one in each] for each in stated][-1] == [["shop", "bob"]]
    # twice decided is once granted
    made.curator.decide(asked.number, approve=True)
    assert made.curator.budget("bob")[0].epsilon_budget == 0.75
    made.ledger.verify()


def test_a_grant_lets_exactly_that_much_more_through_and_the_dataset_binds(opened):
    made = opened(budget="1", most="1", delta="0")
    made.curator.sql(counting(0), epsilon="1/4", analyst="bob")
    made.curator.sql(counting(1), epsilon="1/4", analyst="bob")
    with pytest.raises(OutOfBudget):
        made.curator.sql(counting(2), epsilon="1/8", analyst="bob")
    for _ in range(2):
        made.curator.decide(made.curator.request_budget("bob", epsilon=5, why="").number, approve=True)
    made.curator.sql(counting(2), epsilon="1/4", analyst="bob")
    made.curator.sql(counting(3), epsilon="1/4", analyst="bob")
    with pytest.raises(OutOfBudget, match="all analysts share"):
        made.curator.sql(counting(4), epsilon="1/100", analyst="bob")
    assert made.ledger.balance(Account(("shop",))).spent.main == 10**12


def test_a_refused_budget_changes_nothing(opened):
    made = opened()
    number = made.curator.request_budget("bob", epsilon=1, why="").number
    size, before = entries(made), made.curator.budget()
    made.curator.decide(number, approve=False)
    assert (entries(made), made.curator.budget()) == (size, before)


def test_budget_requests_that_make_no_sense_are_refused_clearly(opened):
    made = opened(more='analysts = "any"')
    assert refused(lambda: made.curator.request_budget("zoe", epsilon=1, why="")).code == "no_budget_to_raise"
    assert refused(lambda: made.curator.request_budget(OWNER, epsilon=1, why="")).code == "no_approval_needed"
    for epsilon in (0, -1, "nan", 10**6):
        with pytest.raises(InvalidParameter):
            made.curator.request_budget("bob", epsilon=epsilon, why="")
    assert made.curator.requests() == ()
    assert refused(lambda: made.curator.decide("nothing", approve=True)).code == "unknown_request"
    made.curator.request_budget("bob", epsilon=1, why="")
    assert refused(lambda: made.curator.decide("nothing", approve=True)).code == "unknown_request"


def test_requests_are_bounded_in_number_and_length(opened):
    made = opened()
    with pytest.raises(InvalidParameter):
        made.curator.request_budget("bob", epsilon=1, why="x" * (LONGEST_WHY + 1))
    for _ in range(MOST_WAITING):
        made.curator.request_budget("bob", epsilon=1, why="x" * LONGEST_WHY)
    assert refused(lambda: made.curator.request_budget("bob", epsilon=1, why="")).code == "too_many_requests"
    # others aren't held up, and a decision makes room
    made.curator.request_budget("ana", epsilon=1, why="a\x1b[2Jb")
    assert made.curator.requests("ana")[0].why == "a [2Jb"
    made.curator.decide(made.curator.requests("bob")[0].number, approve=False)
    made.curator.request_budget("bob", epsilon=1, why="")
    assert len(made.curator.requests("bob", waiting_only=True)) == MOST_WAITING


def test_an_analyst_sees_their_own_requests_and_the_owner_all(opened):
    made = opened()
    for name in ("ana", "bob", "ana"):
        made.curator.request_budget(name, epsilon=1, why=name)
    assert [one.why for one in made.curator.requests("ana")] == ["ana", "ana"]
    assert [one.why for one in made.curator.requests("bob")] == ["bob"]
    assert [one.why for one in made.curator.requests()] == ["ana", "bob", "ana"]


# ---------------------------------------------------------------- the file


def test_grants_and_approvals_last_and_a_lost_file_only_takes_them_away(on_disk, tmp_path):
    with on_disk(more=WAITS) as curator:
        assert not (tmp_path / "l.requests").exists()
        assert curator.requests() == ()
        assert not (tmp_path / "l.requests").exists()
        curator.decide(curator.request_budget("bob", epsilon="0.3", why="").number, approve=True)
        number = curator.request_question(COUNTS, epsilon="0.2", analyst="bob", why="").number
        curator.decide(number, approve=True)
    assert stat.S_IMODE((tmp_path / "l.requests").stat().st_mode) == 0o600
    limit = Exchange(Fraction(1, 10**6)).limit
    with on_disk(more=WAITS) as curator:
        assert curator.budget("bob")[0].epsilon_budget == 0.8
        curator.sql(COUNTS, epsilon="0.2", analyst="bob")
        assert curator.ledger.balance(Account(("shop", "bob"))).limit == limit(Fraction(8, 10))
    for path in tmp_path.glob("l.requests*"):
        path.unlink()
    with on_disk(more=WAITS) as curator:
        assert curator.budget("bob")[0].epsilon_budget == 0.5
        assert refused(lambda: curator.sql(counting(1), epsilon="0.2", analyst="bob")).code == "needs_approval"
        curator.sql(counting(1), epsilon="0.05", analyst="bob")
        assert curator.ledger.balance(Account(("shop", "bob"))).limit == limit(Fraction(5, 10))
        curator.verify()


def test_a_grant_by_another_process_reaches_one_that_is_open(on_disk):
    with on_disk() as one, on_disk() as two:
        one.sql(COUNTS, epsilon="0.1", analyst="bob")
        two.decide(two.request_budget("bob", epsilon="0.5", why="").number, approve=True)
        assert one.budget("bob")[0].epsilon_budget == 1.0
        # each states the caps as they are when it charges, whoever opened first
        one.sql(counting(1), epsilon="0.1", analyst="bob")
        two.sql(counting(2), epsilon="0.1", analyst="bob")
        limit = Exchange(Fraction(1, 10**6)).limit(Fraction(1))
        assert one.ledger.balance(Account(("shop", "bob"))).limit == limit


def test_a_damaged_file_of_requests_is_said_and_nothing_is_charged(on_disk, tmp_path):
    (tmp_path / "l.requests").write_bytes(b"this is no database, but it is long enough to be looked at" * 100)
    with on_disk() as curator:
        size = len(list(curator.ledger.entries()))
        with pytest.raises(LedgerError, match="requests"):
            curator.sql(COUNTS, epsilon="0.1", analyst="bob")
        assert len(list(curator.ledger.entries())) == size


def test_what_was_granted_survives_a_kill(tmp_path):
    program = textwrap.dedent(
        """
        import os, pathlib, signal, sys
        from dither.curator import RequestKind
        from dither.curator.requests import Requests
        requests = Requests(pathlib.Path(sys.argv[1]))
        for place in range(3):
            made = requests.ask(
                analyst="bob", kind=RequestKind.BUDGET, key="", sql="", asked="", epsilon="1/3", why=str(place)
            )
            requests.decide(made.number, approve=True, why="")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "r")], check=False, timeout=60)
    assert ended.returncode == -9
    requests = Requests(tmp_path / "r")
    assert requests.granted() == {"bob": Fraction(1)}
    requests.close()


def test_many_threads_and_two_holders_lose_nothing(tmp_path):
    holders = [Requests(tmp_path / "r") for _ in range(2)]
    problems = []

    def work(place):
        try:
            for _ in range(5):
                made = holders[place % 2].ask(
                    analyst=f"a{place}", kind=RequestKind.BUDGET, key="", sql="", asked="", epsilon="1/7", why=""
                )
                holders[(place + 1) % 2].decide(made.number, approve=True, why="")
                holders[place % 2].granted()
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    for holder in holders:
        assert holder.granted() == {f"a{place}": Fraction(5, 7) for place in range(8)}
        holder.close()
        holder.close()
        with pytest.raises(LedgerError):
            holder.granted()


def test_a_cap_that_was_stated_late_by_another_process_stands_in_nobody_s_way(on_disk):
    with on_disk(delta="0") as one, on_disk(delta="0") as other:
        late = other._vault.accounts.limits()
        for epsilon in ("0.25", "0.2"):
            one.sql(COUNTS, epsilon=epsilon, analyst="bob")
        one.decide(one.request_budget("bob", epsilon="0.5").number, approve=True)
        # read before the owner decided, written after
        other.ledger.set_limits(late)
        assert one.sql(COUNTS, epsilon="0.24", analyst="bob").cost.charged
        assert other.sql(COUNTS, epsilon="0.23", analyst="bob").cost.charged
        with pytest.raises(OutOfBudget, match="spent of 1 "):
            one.sql(COUNTS, epsilon="0.22", analyst="bob")
        one.verify()
