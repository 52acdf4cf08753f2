"""What each account may spend and what each analyst is told: their own budget, and nothing of anybody else's."""

import dataclasses
import hashlib
import json
import os
from fractions import Fraction

import pytest

from dither.curator import Curator, PublicReceipt, drafts
from dither.curator.charging import Accounts
from dither.curator.epsilon_to_currency import Exchange
from dither.errors import OutOfBudget, Refused
from dither.ledger import Account, Amount, Limit
from dither.privacy import PureLoss
from dither.privacy.zcdp import zcdp_epsilon

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
PER_PERSON = (
    "SELECT AVG(p, contribution_bounds_per_row => (0, 9)) AS m "
    "FROM (SELECT customer, SUM(pieces) AS p FROM orders GROUP BY customer)"
)
ITEMS = "SELECT item, COUNT(*) AS n FROM orders GROUP BY item"


def counting(number):
    return f"SELECT COUNT(*) AS n FROM orders WHERE pieces > {number}"


# ---------------------------------------------------------------- caps


def test_an_analyst_s_delta_bounds_their_keys_and_how_their_rho_is_read(opened):
    made = opened(more="[analysts.eve]\nepsilon_budget = 2\ndelta_budget = 1e-9")
    made.curator.sql(COUNTS, epsilon="1/2", analyst="eve")
    limit = made.ledger.balance(Account(("shop", "eve"))).limit
    whole = Exchange(Fraction(1, 10**6))
    assert limit == whole.limit(Fraction(2), Fraction(1, 10**9))
    assert limit.delta == 10**9 // 2
    assert limit.main < whole.limit(Fraction(2)).main
    (line,) = made.curator.budget("eve")
    assert line.delta == 1e-9
    assert {line.account: line.delta for line in made.curator.budget()} == {
        "shop": 1e-6, "shop/ana": 1e-6, "shop/bob": 1e-6, "shop/eve": 1e-9,
    }  # fmt: skip
    # the same ρ is a larger ε at a smaller δ, and the whole cap reads as the ε that the policy states
    spent = made.ledger.balance(Account(("shop", "eve"))).spent
    assert line.epsilon_spent == whole.epsilon_so_far(spent, Fraction(1, 10**9)) > whole.epsilon_so_far(spent)
    assert zcdp_epsilon(limit.main / 10**12, 0.9 * 1e-9 / 2) <= 2
    # keys for 1e-9 / 2 at 5e-9 a question: not even one
    with pytest.raises(OutOfBudget, match="discovering keys"):
        made.curator.sql(ITEMS, epsilon="1/10", analyst="eve")
    made.curator.sql(ITEMS, epsilon="1/10", analyst="ana")


def test_what_was_spent_is_read_at_the_delta_that_was_stated_then(opened):
    """A δ that is changed after answers were seen may have been chosen by them: it is no δ fixed beforehand."""
    made = opened(more="[analysts.eve]\nepsilon_budget = 2")
    for analyst in ("ana", "eve", "bob"):
        made.curator.sql(counting(1), epsilon="1/4", analyst=analyst)
    policy, before = made.curator.policy, {who: made.curator.guarantee(who) for who in ("owner", "ana", "eve", "bob")}
    for stated in ("1/100", "1/1000000000"):
        budget = dataclasses.replace(policy.budget, delta_budget=Fraction(stated))
        with_delta = dataclasses.replace(policy, budget=budget)
        later = Accounts(with_delta, Exchange(Fraction(stated), made.ledger.sums), made.ledger)
        for who, then in before.items():
            now = later.guarantee(later.asker(who))
            assert now.delta == then.delta, who
            # the cap of another δ isn't read for it
            assert now.epsilon >= then.epsilon, who
        assert {line.delta for line in later.lines(later.asker("owner"))} == {1e-6}
        # whoever has spent nothing yet is told the δ of today
        assert later.line(Account(("shop", "zoe")), Amount()).delta == float(Fraction(stated))


def test_only_a_question_states_the_limits(opened):
    made = opened(budget="1", most="1")
    entries = len(list(made.ledger.entries()))
    made.curator.price(COUNTS, epsilon=1)
    assert [line.account for line in made.curator.budget()] == ["shop", "shop/ana", "shop/bob"]
    assert made.curator.budget()[0].share == 0
    assert len(list(made.ledger.entries())) == entries
    made.curator.sql(COUNTS, epsilon="1/2")
    assert made.ledger.balance(Account(("shop",))).limit == Exchange(Fraction(1, 10**6)).limit(Fraction(1))


def test_one_question_looks_up_few_balances(opened, monkeypatch):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/2", analyst="ana")

    def all_of_them():
        raise AssertionError("the balances of everybody, for one question")

    monkeypatch.setattr(made.ledger, "balances", all_of_them)
    made.curator.sql(counting(1), epsilon="1/2", analyst="ana")
    made.curator.price(counting(2), epsilon="1/2", analyst="ana")
    made.curator.budget("ana")


# ---------------------------------------------------------------- what others do can't be seen


def told(curator, **asked):
    """Everything that ana can read without paying."""
    quotes = [curator.price(counting(7), epsilon=epsilon, analyst="ana") for epsilon in ("0.01", "1", "3", "4.9")]
    return [(q.fits, q.left, str(q)) for q in quotes], curator.budget("ana")


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_prices_and_budgets_say_nothing_about_others(opened, delta):
    quiet, busy = opened(budget="5", delta=delta), opened(budget="5", delta=delta)
    for number in range(3):
        busy.curator.sql(counting(number), epsilon="1.5")
    before = told(busy.curator)
    assert told(quiet.curator) == before
    # the question itself, asked by another before
    busy.curator.sql(counting(7), epsilon="1/100")
    assert told(busy.curator) == before


def test_a_name_without_a_cap_sees_its_own_spending_only(opened):
    made = opened(more='analysts = "any"')
    made.curator.sql(COUNTS, epsilon=1, analyst="bert")
    (line,) = made.curator.budget("carl")
    assert (line.account, line.epsilon_spent, line.epsilon_budget, line.share) == ("shop/carl", 0.0, None, None)
    assert "not capped" in str(line)
    answer = made.curator.sql(counting(3), epsilon=1, analyst="carl")
    assert "not capped" in answer.cost.left
    assert "of 10" not in answer.cost.left
    assert made.curator.price(counting(4), epsilon=1, analyst="carl").fits


def test_the_owner_sees_the_dataset(opened):
    made = opened(budget="1", most="1", delta="0")
    made.curator.sql(COUNTS, epsilon="3/4", analyst="ana")
    quote = made.curator.price(counting(1), epsilon="1/2")
    assert not quote.fits
    assert "0.75 spent of 1" in quote.left
    assert made.curator.price(counting(1), epsilon="1/4").fits


def until_refused(ask):
    """The refusal of the first question that can't be paid for."""
    for number in range(20):
        try:
            ask(number)
        except OutOfBudget as problem:
            return problem
    return pytest.fail("the budget has no end")


def test_out_of_budget_is_told_in_epsilon_with_what_to_do(opened):
    made = opened(budget="1", most="1")
    made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    own = until_refused(lambda n: made.curator.sql(counting(n), epsilon="1/4", analyst="bob"))
    assert "ε = 0.25" in str(own)
    assert "of 0.5" in str(own)
    assert "smaller ε" in str(own)
    assert "owner" in str(own)
    whole = until_refused(lambda n: made.curator.sql(counting(n + 0.5), epsilon=1, analyst="ana"))
    for problem in (own, whole):
        assert "Nothing was spent" in str(problem)


def test_of_the_dataset_s_budget_an_analyst_learns_only_that_it_does_not_allow_more(opened):
    made = opened(budget="1", most="1", delta="0")
    made.curator.sql(COUNTS, epsilon="0.8765")
    with pytest.raises(OutOfBudget) as problem:
        made.curator.sql(counting(1), epsilon="1/2", analyst="ana")
    assert "dataset's budget" in str(problem.value)
    assert "8765" not in str(problem.value)
    assert "0.12" not in str(problem.value)


# ---------------------------------------------------------------- several sums


@dataclasses.dataclass
class Stated:
    """A computation that states this loss, and does nothing."""

    name: str
    stated: object
    table: str = "orders"
    columns: tuple = ("pieces",)
    rows: int = 1

    def loss(self):
        return self.stated

    def key(self):
        return self.name

    def release(self, table):
        return {"rows": 0}


def test_an_account_is_told_the_sum_that_leaves_most(opened):
    """ε = 1 fits three times in 3 by the sum of ε; each takes more than twice the ρ that there is."""
    made = opened(budget="3", most="3")
    shop = Account(("shop",))
    price = made.curator.price(counting(1), epsilon="1/10", analyst="ana")
    for place in range(3):
        made.curator.run(Stated(f"precise {place}", PureLoss(1)), analyst="ana")
        line = made.curator.budget()[0]
        assert line.share == pytest.approx((place + 1) / 3)
        assert line.epsilon_spent == made.curator.guarantee().epsilon <= 3
        left = made.curator.price(counting(1), epsilon="1/10", analyst="ana")
        # Gaussian noise, which has no ε, fits by an order after the first, and not at all after the last
        assert left.fits == (left.more > 0) == (place < 2)
        assert left.more < price.more
    assert made.curator.budget()[0].epsilon_spent == 3
    balance = made.ledger.balance(shop)
    assert balance.spent.main > balance.limit.main
    assert balance.remaining.others[0] == 0
    with pytest.raises(OutOfBudget, match=r"\(0% of the budget is left\)"):
        made.curator.sql(counting(1), epsilon="1/10", analyst="ana")
    with pytest.raises(OutOfBudget):
        made.curator.run(Stated("one more", PureLoss("1/10")), analyst="ana")
    made.curator.verify()


def test_a_quote_counts_what_it_closes(opened):
    """The first Gaussian noise closes the sum of ε, which left most: what is left then is what an order leaves."""
    made = opened(budget="10", most="3")
    fresh = made.curator.price(counting(1), epsilon="1/20").share
    made.curator.run(Stated("precise", PureLoss(1)))
    before = made.curator.budget()[0].share
    quote = made.curator.price(counting(1), epsilon="1/20")
    assert before == pytest.approx(1 / 10)
    assert quote.share > 5 * fresh
    made.curator.sql(counting(1), epsilon="1/20")
    assert made.curator.budget()[0].share == pytest.approx(before + quote.share)
    assert made.curator.price(counting(2), epsilon="1/20").more == quote.more - 1


# ---------------------------------------------------------------- receipts and names


def test_a_receipt_tells_nothing_about_the_ledger(opened):
    made = opened()
    receipts = [made.curator.sql(counting(n), epsilon="1/2", analyst="ana").receipt for n in range(2)]
    fields = {field.name for field in dataclasses.fields(PublicReceipt)}
    assert fields == {"number", "at", "account", "amount", "amount_in_words", "loss"}
    assert receipts[0].account == "shop/ana"
    assert receipts[0].number != receipts[1].number
    assert receipts[0].amount == receipts[1].amount == made.ledger.find(
        made.curator.price(counting(0), epsilon="1/2").key
    ).amount  # fmt: skip


CSV = """
[source]
files = { orders = "orders.csv" }
name = "shop"
ledger_head = "shop.head"
[budget]
epsilon_budget = 3
analysts = "any"
[tables.orders]
private = true
privacy_unit_column = "uid"
[tables.orders.columns]
uid = { type = "integer" }
"""


def test_the_size_of_the_data_can_not_be_guessed_from_a_key(tmp_path):
    (tmp_path / "orders.csv").write_text("uid\n" + "\n".join(map(str, range(100))) + "\n")
    os.utime(tmp_path / "orders.csv", (1_760_000_000, 1_760_000_000))
    (tmp_path / "dither.toml").write_text(CSV)
    with Curator.open(tmp_path / "dither.toml") as curator:
        sql = "SELECT COUNT(*) AS n FROM orders"
        key = curator.price(sql, epsilon=1).key
        assert key == curator.price(sql, epsilon=1).key
        # whoever knows the policy, the code and even the exact version computes everything but the ledger's secret
        pricing = curator._vault.pricing
        seen = []
        pricing_named = pricing._named

        def named(what, version):
            parts = [*what, "shop", version, curator.policy.fingerprint()]
            seen.append(hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest())
            return pricing_named(what, version)

        pricing._named = named
        # another name, so that the price isn't one that was kept
        assert curator.price(sql, epsilon=1, analyst="bert").key == key
        assert seen[0] != key
        answer = curator.sql(sql, epsilon=1)
        secret = next(iter(curator.ledger.entries())).body["ledger"]
        assert secret not in str(answer) + answer._repr_html_() + str(answer.receipt) + key
    # the same name for the life of the ledger, and another in another ledger
    with Curator.open(tmp_path / "dither.toml") as curator:
        assert curator.price(sql, epsilon=1).key == key
        assert not curator.sql(sql, epsilon=1).cost.charged
    (tmp_path / "dither.toml").write_text(
        CSV.replace("[budget]", 'ledger = "other.ledger"\n[budget]').replace("shop.head", "other.head")
    )
    with Curator.open(tmp_path / "dither.toml") as curator:
        assert curator.price(sql, epsilon=1).key != key


# ---------------------------------------------------------------- words


def test_the_charge_is_worded_so_that_no_delta_is_taken_for_another(opened):
    made = opened()
    public, discovered = (str(made.curator.price(sql, epsilon=1)) for sql in (COUNTS, ITEMS))
    assert "cost      ε = 1, δ = 1e-08 (charged as ρ = 0.0" in public
    assert "δ = 0" not in public
    assert "and δ = 4.8e-09 for discovering keys)" in discovered
    pure = str(opened(delta="0").curator.price(COUNTS, epsilon=1))
    assert "cost      ε = 1 (charged as ε = 1)" in pure


@pytest.mark.parametrize(
    ("sql", "note"),
    [
        (COUNTS, "each customer counts as at most 4 rows in each of at most 2 groups"),
        ("SELECT AVG(amount) AS m FROM orders", "each customer counts as at most 4 rows;"),
        ("SELECT city, COUNT(DISTINCT customer) AS n FROM orders GROUP BY city", "counts in at most 2 groups"),
        ("SELECT COUNT(DISTINCT customer) AS n FROM orders", None),
        (PER_PERSON, None),
    ],
)
def test_what_bounding_leaves_out_is_said_before_and_after(opened, sql, note):
    made = opened()
    quote, answer = made.curator.price(sql, epsilon=1), made.curator.sql(sql, epsilon=1)
    # before paying also that a customer may be in more groups than count
    many = ("there are 3 public groups, and each customer counts in at most 2: coarser groups would cut less",)
    assert quote.notes == (*answer.notes, *(many if "GROUP BY city" in sql and note is not None else ()))
    if note is None:
        assert answer.notes == ()
        return
    said, *others = answer.notes
    both = "AVG is the mean over rows; AVG_PER_UNIT that of each customer's own mean, and cuts off no rows"
    assert others == ([both] if "AVG" in sql else [])
    assert note in said
    assert "cuts off" in said
    assert "error" in said
    for shown in (str(quote), str(answer), answer._repr_html_().replace("&#x27;", "'")):
        assert said in shown


def test_where_rows_are_units_nothing_is_left_out(opened):
    made = opened(unit='privacy_unit = "row"')
    assert made.curator.sql(COUNTS, epsilon=1).notes == ()


@pytest.mark.parametrize(
    ("options", "code"),
    [("epsilon = 1, delta = 1e-400", "delta_too_small"), ("epsilon = 1, delta = 1e-30", "delta_too_small")],
)
def test_numbers_too_small_for_any_price_are_refused(opened, options, code):
    with pytest.raises(Refused) as refusal:
        opened().curator.price(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({options}) COUNT(*) AS n FROM orders")
    assert refusal.value.code == code
    assert refusal.value.hint


@pytest.mark.parametrize("epsilon", ["1e-9", "1e-300", "1e-390"])
def test_an_epsilon_that_buys_nothing_is_refused_with_a_hint(opened, epsilon):
    made = opened()
    with pytest.raises(Refused) as refusal:
        made.curator.sql(COUNTS, epsilon=epsilon)
    assert refusal.value.code in ("epsilon_too_small", "budget_too_small")
    assert refusal.value.hint
    assert made.engine.runs == 0


def test_a_cap_beside_any_name_is_warned_of(shop, tmp_path):
    text = (
        f'[source]\ndatabase = "{shop / "shop.duckdb"}"\nname = "shop"\n[budget]\nepsilon_budget = 3\n'
        'analysts = "any"\n{}'
        '[tables.orders]\nprivate = true\nprivacy_unit_column = "customer"\n'
        '[tables.orders.columns]\ncustomer = {{ type = "integer" }}\n'
    )
    found = []
    for sections in ("", "[analysts.ana]\nepsilon_budget = 1\n"):
        (tmp_path / "dither.toml").write_text(text.format(sections))
        found.append(" ".join(str(one) for one in drafts.check(tmp_path / "dither.toml")))
    assert "keep to their names" not in found[0]
    assert "keep to their names" in found[1]


def test_limits_are_rounded_down_at_any_delta():
    rates = Exchange(Fraction(1, 10**6))
    assert rates.limit(Fraction(1), Fraction(1, 10**9)).main < rates.limit(Fraction(1)).main
    assert Exchange(Fraction(0)).limit(Fraction(1), Fraction(0)) == Limit.pure(1)
