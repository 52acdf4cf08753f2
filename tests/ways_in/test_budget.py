"""The budget under attack: many at once, old copies, edited policies. It never gives more than it has."""

import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from dither.errors import DitherError, LedgerMismatch, LedgerRolledBack, OutOfBudget, Refused
from support.sizes import short_or_full

COUNT = "SELECT COUNT(*) AS n FROM orders"
STORM = textwrap.dedent(
    """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    from dither import Curator
    from dither.errors import OutOfBudget
    policy, worker, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def ask(number):
        sql = f"SELECT COUNT(*) AS n FROM orders WHERE quantity <> {1000 * worker + number}"
        try:
            return int(curator.sql(sql, epsilon="0.1", analyst="ana").cost.charged)
        except OutOfBudget:
            return 0

    with Curator.open(policy) as curator, ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(ask, range(requests))), flush=True)
    """
)


def test_c26_a_thousand_at_once_for_a_budget_of_ten(shop, make):
    """C26: two processes of eight threads, a thousand different questions, a budget for ten: ten answers.

    By day two hundred questions.
    """
    each = str(short_or_full(100, 500))
    one = shop(make.crowd(), epsilon_budget="1")
    one.close()
    # the last bit of the dataset's budget is not the analyst's: both are full after ten
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", STORM, str(one.policy), str(number), each],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    ended = [worker.communicate(timeout=300) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    assert sum(int(out) for out, _ in ended) == 10
    again = make.open_shop(one.directory)
    try:
        assert again.spent() == {"shop": (10**12, 0), "shop/ana": (10**12, 0), "shop/bob": (0, 0)}
        kinds = [entry.kind.value for entry in again.curator.ledger.entries()]
        assert kinds.count("answer") == 10
        assert again.curator.ledger.verify().balances == again.curator.ledger.balances()
    finally:
        again.close()


def test_c26_the_same_question_at_once_is_charged_once(shop, make):
    """C26, C20: forty threads with one question: one charge, one answer for all."""
    one = shop(make.crowd(), epsilon_budget="1")
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: one.curator.sql(COUNT, epsilon=1, analyst="ana"), range(40)))
    assert len({answer.scalar() for answer in answers}) == 1
    assert sum(answer.cost.charged for answer in answers) == 1
    assert one.spent()["shop"] == (10**12, 0)
    assert len(one.engine.seen) == 1


def test_c26_answers_are_not_mixed_up(shop, make):
    """C26: many threads with different questions: each gets the answer to its own."""
    rows = [make.order(100 * place + n, quantity=place) for place in range(12) for n in range(place + 1)]
    one = shop(rows)

    def ask(place):
        answer = one.curator.sql(f"SELECT {COUNT[7:]} WHERE quantity = {place}", epsilon=make.LOUD / 10)
        return answer.scalar()

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == list(range(1, 13))


def test_an_old_copy_of_the_ledger_is_refused(shop, make):
    """Besides: restoring a backup of the ledger does not restore the budget; nothing can be asked from it."""
    one = shop(make.crowd(), epsilon_budget="2")
    one.curator.sql(COUNT, epsilon=1)
    one.close()
    ledger = one.directory / "shop.ledger"
    backup = shutil.copy(ledger, one.directory / "backup")
    second = make.open_shop(one.directory)
    second.curator.sql(COUNT + " WHERE amount > 1", epsilon=1)
    second.close()
    for leftover in one.directory.glob("shop.ledger-*"):
        leftover.unlink()
    shutil.copy(backup, ledger)
    with pytest.raises(LedgerRolledBack):
        make.open_shop(one.directory)


def test_a_ledger_that_was_removed_is_noticed(shop, make):
    """Besides: without its ledger, but with the head that knew of it, a dataset starts no new budget."""
    one = shop(make.crowd(), epsilon_budget="2")
    one.curator.sql(COUNT, epsilon=1)
    one.close()
    for part in [path for path in one.directory.glob("shop.ledger*") if path.is_file()]:
        part.unlink()
    with pytest.raises(DitherError) as refused:
        make.open_shop(one.directory)
    assert "ledger" in str(refused.value)


def edited(make, one, *changes):
    """The shop under a changed policy."""
    one.close()
    text = one.policy.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    one.policy.write_text(text)
    return make.open_shop(one.directory)


@pytest.mark.parametrize(
    "change",
    [
        ("between = [0, 100]", "between = [0, 200]"),
        ('in = ["Bern", "Lyon", "Oslo"]', 'in = ["Bern", "Lyon", "Oslo", "Rome"]'),
        ("max_rows_contributed = 3", "max_rows_contributed = 300"),
        ('version = "1"', 'version = "2"'),
    ],
    ids=lambda change: change[1],
)
def test_a_policy_edited_after_spending_resets_nothing(shop, make, change):
    """Besides: wider bounds, other keys, other data: spending stays, and every question is a new one."""
    one = shop(make.crowd(), epsilon_budget="2")
    key = one.curator.price(COUNT, epsilon=1).key
    one.curator.sql(COUNT, epsilon=1)
    two = edited(make, one, change)
    try:
        assert two.spent()["shop"] == (10**12, 0)
        quote = two.curator.price(COUNT, epsilon=1)
        assert quote.key != key
        assert not quote.free
        assert two.curator.sql(COUNT, epsilon=1).cost.charged
        with pytest.raises(OutOfBudget):
            two.curator.sql(COUNT + " WHERE amount > 1", epsilon="0.001")
        notes = [entry.body["note"] for entry in two.curator.ledger.entries() if entry.body.get("note")]
        assert len({note["policy"] for note in notes}) == (1 if "version" in change[0] else 2)
    finally:
        two.close()


@pytest.mark.parametrize(
    "change",
    [
        ('adjacency = "add_remove"', 'adjacency = "replace"'),
        ("delta_budget = 0\n", "delta_budget = 1e-6\n"),
        (
            'privacy_unit_column = "user_id"\nmax_groups_contributed = 2\nmax_rows_contributed = 3',
            'privacy_unit = "row"',
        ),
        ('privacy_unit_column = "user_id"', 'privacy_unit_column = "quantity"'),
        ('name = "shop"', 'name = "other"\nledger = "shop.ledger"'),
    ],
    ids=["adjacency", "currency", "level of unit", "unit", "name"],
)
def test_a_ledger_is_kept_for_one_meaning(shop, make, change):
    """Besides: losses for another adjacency, currency or unit can't be added, so the ledger is refused."""
    one = shop(make.crowd(), epsilon_budget="2")
    one.curator.sql(COUNT, epsilon=1)
    with pytest.raises(LedgerMismatch):
        edited(make, one, change)


def test_a_budget_can_be_raised_and_lowered_and_spending_stays(shop, make):
    """Besides: budgets are the owner's to change; a lower one lets nothing more through, and frees nothing."""
    one = shop(make.crowd(), epsilon_budget="2")
    one.curator.sql(COUNT, epsilon=1)
    lower = edited(make, one, ("epsilon_budget = 2", "epsilon_budget = 0.5"))
    with pytest.raises((OutOfBudget, Refused)):
        lower.curator.sql(COUNT + " WHERE amount > 1", epsilon="0.001")
    higher = edited(make, lower, ("epsilon_budget = 0.5", "epsilon_budget = 1.5"))
    try:
        assert higher.spent()["shop"] == (10**12, 0)
        assert higher.curator.sql(COUNT, epsilon=1).cost.charged is False
        higher.curator.sql(COUNT + " WHERE amount > 1", epsilon="0.5")
        with pytest.raises(OutOfBudget):
            higher.curator.sql(COUNT + " WHERE amount > 2", epsilon="1e-12")
    finally:
        higher.close()


def test_data_that_changed_makes_questions_new(shop, make):
    """C20: without a stated version, other files are another version: no stale answer, and no free second draw."""
    import duckdb

    one = shop(make.crowd(), epsilon_budget="2")
    one = edited(make, one, ('version = "1"\n', ""))
    one.curator.sql(COUNT, epsilon=1)
    assert one.curator.sql(COUNT, epsilon=1).cost.charged is False
    one.close()
    with duckdb.connect(one.directory / "shop.duckdb") as database:
        database.execute("DELETE FROM orders WHERE user_id = 1")
    two = make.open_shop(one.directory)
    try:
        assert two.curator.sql(COUNT, epsilon=1).cost.charged
        with pytest.raises(OutOfBudget):
            two.curator.sql(COUNT + " WHERE amount > 1", epsilon="0.001")
    finally:
        two.close()
