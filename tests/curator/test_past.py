"""What was paid for can be listed and read again, free: one's own; everybody's for the owner, or where all share."""

import dataclasses
import hashlib
import json
from fractions import Fraction

import pytest

from dither.curator import OWNER, AnswerPage, Curator, Terms
from dither.curator.past import log as past
from dither.curator.past.log import PastQuestions
from dither.curator.past.records import open_ledger
from dither.curator.past.spending import MOST_POINTS
from dither.errors import Failed, InvalidParameter, OutOfBudget, Refused
from dither.ledger import Account, EntryKind, Limit
from dither.privacy import ZcdpLoss

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
SHARED = "share_answers = true"


def counting(number):
    return f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number}"


def entries(made):
    return len(list(made.ledger.entries()))


def numbers(page):
    return [item.number for item in page.items]


def refused(work):
    with pytest.raises(Refused) as problem:
        work()
    return problem.value


# ---------------------------------------------------------------- lists


def test_an_analyst_lists_their_own_newest_first(opened):
    made = opened()
    for number in range(3):
        made.curator.sql(counting(number), epsilon="1/2", analyst="ana")
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    page = made.curator.answers("ana")
    assert [item.sql for item in page.items] == [counting(2), counting(1), counting(0)]
    assert all(item.mine and item.answered and item.who == "ana" for item in page.items)
    assert {item.epsilon for item in page.items} == {"0.5"}
    assert page.items[0].cost == made.curator.price(counting(2), epsilon="1/2").booked
    assert page.next is None
    assert [(item.sql, item.who) for item in made.curator.answers("bob").items] == [(COUNTS, "bob")]


def test_a_list_tells_exactly_with_what_the_same_is_free(opened):
    """The ε of a list is rounded for people; what it was asked with isn't, and says nothing about the data."""
    made = opened()
    terms = [{"epsilon": "1/3"}, {"error": "101/2"}, {"epsilon": "1/7", "weights": {"n": 2}, "confidence": "9/10"}]
    for number, given in enumerate(terms):
        made.curator.sql(counting(number), analyst="ana", **given)
    spent = made.curator.budget("ana")
    for past_question in made.curator.answers("ana").items:
        assert set(past_question.asked) == {"epsilon", "error", "weights", "confidence"}
        again = made.curator.price(past_question.sql, analyst="ana", **past_question.asked)
        assert again.free
        assert made.curator.past(past_question.number, analyst="ana").asked == past_question.asked
    assert made.curator.budget("ana") == spent


def test_a_note_without_terms_has_none_to_tell(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    entry = next(entry for entry in made.ledger.entries() if entry.kind is EntryKind.RESERVE)
    for form in (None, "text", {"epsilon": "1/2"}):
        note = {**entry.body["note"], "asked": form}
        db = past.sqlite3.connect(":memory:")
        db.executescript(past.TABLES)
        made.curator._vault.past._take(db, dataclasses.replace(entry, body={**entry.body, "note": note}), {})
        (asked,) = db.execute("SELECT asked FROM charge").fetchone()
        db.close()
        assert json.loads(asked) == ({"epsilon": "1/2"} if isinstance(form, dict) else {})


def test_a_record_of_limits_says_what_they_are(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    (limits,) = [record for record in made.curator.records() if record.what == "limits"]
    for line in made.curator.budget():
        if line.epsilon_budget is not None:
            assert f"{line.account.split('/')[-1]}: at most ε = {line.epsilon_budget:.4g}" in limits.question
    (charge,) = [record for record in made.curator.records() if record.what == "reserve"]
    assert charge.epsilon == "0.5"


def test_the_owner_lists_everybody_s_with_names(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    made.curator.sql(counting(1), epsilon="1/4")
    made.curator.sql(COUNTS, epsilon="1/4", analyst="ana")
    assert [(item.who, item.mine) for item in made.curator.answers().items] == [
        ("ana", False),
        ("owner", True),
        ("bob", False),
    ]


def test_pages_fit_together_and_are_searched(opened):
    made = opened(budget="1000")
    for number in range(7):
        made.curator.sql(counting(number), epsilon="1/2", analyst="ana")
        made.curator.sql(counting(number), epsilon="1/100", analyst="bob")
    whole = numbers(made.curator.answers("ana"))
    found, before = [], None
    while True:
        page = made.curator.answers("ana", before=before, count=3)
        found += numbers(page)
        before = page.next
        if before is None:
            break
    assert found == whole
    assert len(set(found)) == 7
    assert [item.sql for item in made.curator.answers("ana", search="PIECES > 3").items] == [counting(3)]
    assert made.curator.answers("ana", search="%").items == ()
    assert refused(lambda: made.curator.answers("ana", before="0" * 16)).code == "unknown_receipt"
    for count in (0, -1, 501):
        with pytest.raises(InvalidParameter):
            made.curator.answers("ana", count=count)


def test_a_page_does_not_begin_at_another_s_receipt(opened):
    made = opened()
    theirs = made.curator.sql(COUNTS, epsilon="1/4", analyst="bob").receipt.number
    made.curator.sql(COUNTS, epsilon="1/4", analyst="ana")
    unknown = refused(lambda: made.curator.answers("ana", before="0123456789abcdef"))
    assert str(refused(lambda: made.curator.answers("ana", before=theirs))) == str(unknown)


def test_what_failed_is_listed_and_runs_when_it_is_asked_for(opened):
    made = opened()
    made.engine.fails_with = RuntimeError("secret")
    with pytest.raises(Failed) as failed:
        made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    (item,) = made.curator.answers("ana").items
    assert (item.number, item.answered) == (failed.value.receipt, False)
    # nobody else can have it run by its number, the owner neither
    assert refused(lambda: made.curator.answer(item.number)).code == "not_answered"
    made.engine.fails_with = None
    before = made.curator.budget("ana")
    again = made.curator.answer(item.number, analyst="ana")
    assert not again.cost.charged
    assert made.curator.budget("ana") == before
    assert made.curator.answers("ana").items[0].answered
    assert made.curator.sql(COUNTS, epsilon="1/2", analyst="ana").table.equals(again.table)


def test_what_failed_on_earlier_data_is_not_run_on_later_data(opened, ledger_of, policy_of):
    ledger = ledger_of(policy_of())
    made = opened(ledger=ledger, version="1")
    made.engine.fails_with = RuntimeError("no")
    with pytest.raises(Failed) as failed:
        made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")
    later = opened(ledger=ledger, version="2")
    assert refused(lambda: later.curator.answer(failed.value.receipt, analyst="ana")).code == "answer_outdated"
    assert later.engine.runs == 0


def test_computations_are_no_answers_but_are_in_the_history(opened):
    class Rows:
        table, columns, rows = "orders", ("pieces",), 4

        def loss(self):
            from dither.privacy import ZcdpLoss

            return ZcdpLoss(Fraction(1, 100))

        def key(self):
            return "nothing"

        def release(self, table):
            return 1

    made = opened()
    made.curator.run(Rows(), analyst="ana")
    assert made.curator.answers("ana").items == ()
    assert len(made.curator.history("ana")) == 1
    number = next(e.body["number"] for e in made.ledger.entries() if e.kind is EntryKind.RESERVE)
    assert refused(lambda: made.curator.answer(number, analyst="ana")).code == "unknown_receipt"


# ---------------------------------------------------------------- one answer again


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (COUNTS, {"epsilon": 0.3}),
        (COUNTS + " ORDER BY n DESC LIMIT 2", {"epsilon": "1/3", "confidence": "0.9"}),
        ("SELECT COUNT(*) AS n, SUM(pieces) AS s FROM orders", {"error": {"n": 100}}),
        ("SELECT COUNT(*) AS n, SUM(pieces) AS s FROM orders", {"error": 500, "confidence": "1/2"}),
        ("SELECT COUNT(*) AS n, SUM(pieces) AS s FROM orders", {"epsilon": 1, "weights": {"s": 3}}),
        ("SELECT AVG(rating) AS m FROM orders", {"epsilon": 2}),
        ("SELECT item, COUNT(*) AS n FROM orders GROUP BY item", {"epsilon": 3}),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, delta = 1e-9) COUNT(*) AS n FROM orders", {}),
        (COUNTS, {}),
    ],
)
@pytest.mark.parametrize("later", [{}, {"more": "default_epsilon = 0.7\ndelta_per_query = 1e-7", "most": "1"}])
def test_an_answer_comes_back_as_it_was_even_under_other_limits(opened, ledger_of, policy_of, sql, options, later):
    ledger = ledger_of(policy_of())
    made = opened(ledger=ledger, more="default_epsilon = 0.25", most="10")
    first = made.curator.sql(sql, analyst="ana", **options)
    spent, size, runs = made.curator.budget("ana"), entries(made), made.engine.runs
    other = opened(ledger=ledger, **({"more": "default_epsilon = 0.25"} | later))
    for reader, curator in (("ana", made.curator), ("ana", other.curator), (OWNER, other.curator)):
        again = curator.answer(first.receipt.number, analyst=reader)
        assert again.table.equals(first.table)
        assert again.table.schema.equals(first.table.schema)
        assert str(again.bars) == str(first.bars)
        assert (again.confidence, again.notes, again.receipt) == (first.confidence, first.notes, first.receipt)
        assert (again.cost.epsilon, again.cost.charged) == (first.cost.epsilon, False)
    assert made.curator.budget("ana") == spent
    assert (entries(made), made.engine.runs, other.engine.runs) == (size, runs, 0)


def test_an_answer_on_earlier_data_is_kept_and_a_changed_table_is_not_mistaken(opened, ledger_of, policy_of):
    ledger = ledger_of(policy_of())
    first = opened(ledger=ledger, version="1").curator.sql(COUNTS, epsilon=1, analyst="ana")
    later = opened(ledger=ledger, version="2").curator
    assert later.answer(first.receipt.number, analyst="ana").table.equals(first.table)
    assert not later.price(COUNTS, epsilon=1, analyst="ana").free
    unit = 'privacy_unit_column = "customer"\nmax_groups_contributed = 1\nmax_rows_contributed = 4'
    problem = refused(lambda: opened(ledger=ledger, unit=unit).curator.answer(first.receipt.number, analyst="ana"))
    assert problem.code == "answer_outdated"


@pytest.mark.parametrize("note", [{}, {"asked": 3}, {"asked": {"epsilon": "1"}}, {"asked": {"epsilon": "x"}}])
def test_a_receipt_of_an_earlier_version_is_listed_and_refused_clearly(opened, monkeypatch, note):
    made = opened()
    whole = made.curator._vault.charging.note
    monkeypatch.setattr(
        made.curator._vault.charging,
        "note",
        lambda analyst, **about: {**whole(analyst, **{**about, "asked": None}), **note},
    )
    number = made.curator.sql(COUNTS, epsilon="1/2", analyst="ana").receipt.number
    assert numbers(made.curator.answers("ana")) == [number]
    problem = refused(lambda: made.curator.answer(number, analyst="ana"))
    assert problem.code == "answer_outdated"
    assert "Ask the question again" in problem.hint


def test_the_note_says_exactly_what_was_asked(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon=0.1, analyst="ana", weights={"n": 2}, confidence=0.9)
    note = next(entry.body["note"] for entry in made.ledger.entries() if entry.kind is EntryKind.RESERVE)
    assert note["asked"] == {
        "epsilon": "1/10",
        "error": None,
        "weights": {"n": "2"},
        "confidence": "9/10",
        "delta": "1/100000000",
        "version": "1",
    }


# ---------------------------------------------------------------- what others do can't be seen


def test_another_s_receipt_is_as_unknown_as_none(opened):
    made = opened()
    theirs = made.curator.sql(COUNTS, epsilon="1/4", analyst="bob").receipt.number
    made.engine.fails_with = AssertionError("must not run")
    size = entries(made)
    told = [refused(lambda n=n: made.curator.answer(n, analyst="ana")) for n in (theirs, "ffffffffffffffff", "", "%")]
    assert {(str(one), one.code, one.position) for one in told} == {(str(told[0]), "unknown_receipt", None)}
    assert entries(made) == size
    seen = [refused(lambda n=n: made.curator.past(n, analyst="ana")) for n in (theirs, "ffffffffffffffff", "", "%")]
    assert {(str(one), one.code) for one in seen} == {(str(told[0]), "unknown_receipt")}
    assert made.curator.past(theirs, analyst="bob") == made.curator.answers("bob").items[0]
    assert made.curator.past(theirs).who == "bob"
    assert refused(lambda: made.curator.answer(theirs, analyst="carl")).code == "unknown_analyst"


def views(curator):
    """Everything that bob can look at, times and random numbers left out."""
    page = curator.answers("bob")
    past_ones = [dataclasses.replace(item, number="", at="") for item in page.items]
    spent = [dataclasses.replace(point, at="") for point in curator.history("bob")]
    quotes = [str(curator.price(counting(n), epsilon="1/5", analyst="bob")) for n in range(3)]
    rooms = [(q.more, q.share) for q in (curator.price(counting(n), epsilon="1/5", analyst="bob") for n in range(3))]
    requests = [dataclasses.replace(one, number="", at="") for one in curator.requests("bob")]
    return (
        *(past_ones, page.next, spent, quotes, rooms, requests, curator.budget("bob"), curator.guarantee("bob")),
        curator.analyst("bob").remembered(counting(1), Terms.of(epsilon="1/5")) is None,
    )


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_nothing_that_an_analyst_sees_tells_whether_another_asked(opened, delta):
    quiet, busy = (opened(delta=delta, more="needs_approval_above = 0.2") for _ in range(2))
    for made in (quiet, busy):
        made.curator.sql(counting(0), epsilon="1/10", analyst="bob")
        made.curator.request_budget("bob", epsilon=1, why="more")
    # the other asks the same before, another question, for approval, for budget, and fails
    busy.curator.sql(counting(1), epsilon="1/5", analyst="ana")
    busy.curator.sql(counting(0), epsilon="1/10", analyst="ana")
    asked = busy.curator.request_question(counting(2), epsilon="1", analyst="ana", why="x")
    busy.curator.decide(asked.number, approve=True, why="fine")
    busy.curator.sql(counting(2), epsilon="1", analyst="ana")
    busy.curator.decide(busy.curator.request_budget("ana", epsilon=5, why="x").number, approve=True)
    busy.engine.fails_with = RuntimeError("no")
    with pytest.raises(Failed):
        busy.curator.sql(COUNTS, epsilon="1/5", analyst="ana")
    assert views(quiet.curator) == views(busy.curator)


def test_receipt_numbers_are_random(opened):
    made = opened(budget="1000")
    found = [made.curator.sql(counting(n), epsilon="1/100", analyst="ana").receipt.number for n in range(40)]
    assert len(set(found)) == 40
    assert all(len(number) == 16 and set(number) <= set("0123456789abcdef") for number in found)
    # 40 × 64 fair bits: about 1280 ones, within 8 standard deviations
    assert abs(sum(int(number, 16).bit_count() for number in found) - 1280) < 8 * 25.3
    assert sorted(found) != found


# ---------------------------------------------------------------- shared answers


def test_shared_answers_are_read_by_all_at_no_cost_and_without_names(opened):
    made = opened(more=SHARED)
    first = made.curator.sql(COUNTS, epsilon=1, analyst="ana")
    (item,) = made.curator.answers("bob").items
    assert (item.number, item.who, item.mine, item.answered) == (first.receipt.number, past.ANOTHER, False, True)
    before, size, runs = made.curator.budget(), entries(made), made.engine.runs
    # more than one question of bob's may cost: he couldn't have asked it
    assert refused(lambda: made.curator.sql(COUNTS, epsilon=1, analyst="bob")).code == "epsilon_too_large"
    read = made.curator.answer(item.number, analyst="bob")
    assert read.table.equals(first.table)
    assert (read.cost.charged, read.receipt.account) == (False, past.ANOTHER)
    assert "0 spent of 0.5" in read.cost.left
    shown = str(read) + read._repr_html_() + str(read.receipt) + str(made.curator.answers("bob"))
    assert "ana" not in shown.replace(past.ANOTHER, "")
    assert (made.curator.budget(), entries(made), made.engine.runs) == (before, size, runs)
    # reading didn't pay: asking it is still charged
    assert not made.curator.price(COUNTS, epsilon="1/5", analyst="bob").free
    assert made.curator.guarantee("bob").epsilon < Fraction(1, 10**9)


def test_what_another_paid_for_and_has_no_answer_is_not_run_by_its_number(opened):
    made = opened(more=SHARED)
    made.engine.fails_with = RuntimeError("no")
    with pytest.raises(Failed) as failed:
        made.curator.sql(COUNTS, epsilon="1/5", analyst="ana")
    made.engine.fails_with = None
    runs = made.engine.runs
    assert refused(lambda: made.curator.answer(failed.value.receipt, analyst="bob")).code == "not_answered"
    assert made.engine.runs == runs


def test_sharing_is_off_unless_the_policy_says_so(opened, policy_of):
    assert not policy_of().budget.share_answers
    assert policy_of(more=SHARED).budget.share_answers
    assert policy_of(more=SHARED).fingerprint() == policy_of().fingerprint()
    assert policy_of(more="needs_approval_above = 0.1").fingerprint() == policy_of().fingerprint()
    assert opened(more="share_answers = false").curator.answers("bob") == AnswerPage(items=(), next=None)


# ---------------------------------------------------------------- history, guarantee, records


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_history_adds_up_to_the_balance(opened, delta):
    made = opened(delta=delta)
    for number in range(4):
        made.curator.sql(counting(number), epsilon="1/10", analyst="bob" if number % 2 else "ana")
    made.curator.sql(counting(0), epsilon="1/10", analyst="bob")
    points = made.curator.history()
    last = {point.account: point for point in points}
    for line in made.curator.budget():
        if line.account in last:
            assert (last[line.account].epsilon_spent, last[line.account].share) == (line.epsilon_spent, line.share)
    assert [point.account for point in points] == ["shop"] * 4 + ["shop/ana"] * 2 + ["shop/bob"] * 3
    for account in last:
        spent = [point.epsilon_spent for point in points if point.account == account]
        assert spent == sorted(spent)
    assert made.curator.history("bob") == tuple(point for point in points if point.account == "shop/bob")
    assert refused(lambda: made.curator.history("carl")).code == "unknown_analyst"


def test_long_histories_are_thinned_with_both_ends(opened):
    made = opened(budget="100000", most="100000")
    loss, shop, ana = ZcdpLoss("1/1000"), Account(("shop",)), Account(("shop", "ana"))
    made.ledger.set_limits({shop: Limit.zcdp(1000)})

    def ask(first, last):
        for number in range(first, last):
            key = hashlib.sha256(str(number).encode()).hexdigest()
            made.ledger.reserve(key=key, account=ana, loss=loss, note={"sql": "SELECT 1"})

    ask(0, MOST_POINTS)
    whole = made.curator.history("ana")
    assert len(whole) == MOST_POINTS
    assert whole[-1].epsilon_spent == made.curator.budget("ana")[0].epsilon_spent
    ask(MOST_POINTS, 777)
    points = made.curator.history("ana")
    assert len(points) == MOST_POINTS
    assert points[0] == whole[0]
    assert points[-1].epsilon_spent == made.curator.budget("ana")[0].epsilon_spent > whole[-1].epsilon_spent
    assert len(made.curator.history()) == 2 * MOST_POINTS


def test_an_interrupt_while_the_log_is_read_counts_nothing_twice(opened, monkeypatch):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/4", analyst="ana")
    first = made.curator.history()
    made.curator.sql(counting(1), epsilon="1/4", analyst="ana")
    take = PastQuestions._take

    def interrupted(self, *given):
        take(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PastQuestions, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.curator.history()
    points = made.curator.history()
    assert len(points) == 2 * len(first)
    assert points[1].epsilon_spent == made.curator.budget()[0].epsilon_spent


def test_the_guarantee_is_of_what_was_spent(opened):
    pure = opened(delta="0")
    assert pure.curator.guarantee().posterior("1/10")[1] < 0.1000001
    pure.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    assert pure.curator.guarantee("bob").epsilon == Fraction(1, 4)
    assert (pure.curator.guarantee("bob").delta, pure.curator.guarantee("ana").epsilon) == (0, Fraction(1, 10**12))
    both = opened()
    both.curator.sql("SELECT item, COUNT(*) AS n FROM orders GROUP BY item", epsilon=1, analyst="ana")
    found = both.curator.guarantee()
    spent = both.ledger.balance(Account(("shop",))).spent
    assert found.delta == Fraction(1, 2 * 10**6) + Fraction(spent.delta, 10**18)
    assert float(found.epsilon) == both.curator.budget()[0].epsilon_spent
    assert "suspicion" in found.sentence(prior="1/10")
    assert both.curator.guarantee("bob").delta == 0


@pytest.mark.parametrize("changed", ["1.1", "0.99"])
def test_a_cap_that_answers_may_have_chosen_lowers_no_reading(opened, changed):
    made = opened(budget="1", most="0.9")
    for epsilon in ("0.9", "0.3"):
        made.curator.sql(COUNTS, epsilon=epsilon, analyst="ana")
    told = made.curator.guarantee()
    assert told.epsilon == 1, "the cap, which stands since the start"
    later = opened(budget=changed, most="0.9", ledger=made.ledger)
    alone = later.curator.guarantee()
    assert 1.01 < alone.epsilon < 1.3
    assert alone.delta == told.delta
    # stated in the ledger with the next charge, and for good
    later.curator.sql(COUNTS, epsilon="0.01", analyst="ana")
    again = opened(budget="1", most="0.9", ledger=made.ledger).curator
    assert again.guarantee().epsilon >= alone.epsilon
    assert again.budget()[0].epsilon_spent == float(again.guarantee().epsilon)
    assert again.history()[-1].epsilon_spent <= float(again.guarantee().epsilon)


def test_records_are_paged_newest_first(opened):
    made = opened()
    for number in range(3):
        made.curator.sql(counting(number), epsilon="1/10", analyst="ana")
    everything = made.curator.records(count=100)
    assert [record.number for record in everything] == list(range(9, 0, -1))
    first = made.curator.records(count=3)
    rest = made.curator.records(count=3, before=first[-1].number)
    assert (*first, *rest) == everything[:6]
    assert made.curator.records(count=3, before=2) == everything[-1:]
    assert made.curator.records(count=3, before=1) == ()
    assert made.curator.verify().entries == 9


def test_the_index_follows_other_processes_and_survives_a_restart(policy_of, shop, tmp_path):
    policy = dataclasses.replace(
        policy_of(), source=dataclasses.replace(policy_of().source, ledger=tmp_path / "l", ledger_head=tmp_path / "h")
    )
    with Curator.open(policy) as one, Curator.open(policy) as two:
        assert two.answers("ana").items == ()
        number = one.sql(COUNTS, epsilon="1/2", analyst="ana").receipt.number
        assert numbers(two.answers("ana")) == [number]
        assert two.answer(number, analyst="ana").table.equals(one.answer(number, analyst="ana").table)
        assert two.analyst("ana").remembered(COUNTS, Terms.of(epsilon="1/2")) is None
    with Curator.open(policy) as three:
        assert numbers(three.answers("ana")) == [number]
    with open_ledger(policy) as book:
        assert book.verify().entries == 5


def test_the_budget_still_binds_who_reads_again(opened):
    made = opened(budget="1", most="1", delta="0")
    first = made.curator.sql(COUNTS, epsilon=1, analyst="ana")
    with pytest.raises(OutOfBudget):
        made.curator.sql(counting(1), epsilon=1, analyst="ana")
    assert made.curator.answer(first.receipt.number, analyst="ana").table.equals(first.table)
