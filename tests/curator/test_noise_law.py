"""Which law the noise of a question has: by what the question and the policy say, and never by what was spent."""

import contextlib
import re
from fractions import Fraction

import pytest

from dither import DiscreteGaussian, Sensitivity
from dither.curator import Terms
from dither.curator.epsilon_to_currency import Exchange
from dither.errors import InvalidParameter, OutOfBudget, Refused
from dither.ledger import Account
from dither.mechanisms import DiscreteLaplace
from dither.query.price.noise import GAUSSIAN_95, LAPLACE_95

COUNT = "SELECT COUNT(*) AS n FROM orders"
QUESTIONS = {
    "count": COUNT,
    "by public keys": "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city",
    "discovered keys": "SELECT item, COUNT(*) AS n FROM orders GROUP BY item",
    "bounds to be found": "SELECT AVG(rating) AS m FROM orders",
    "bounds and keys": "SELECT item, SUM(stars) AS s FROM orders GROUP BY item",
    "choices": "SELECT MEDIAN(pieces) AS m, MODE(pieces) AS o FROM orders",
    "moments": "SELECT VARIANCE(amount) AS v, CORR(amount, pieces) AS c FROM orders",
}


def with_option(sql, law):
    return sql.replace("SELECT ", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (noise = '{law}') ", 1)


def epsilon_sum(made, *path):
    return made.ledger.balance(Account(("shop", *path))).spent.others[0]


# ---------------------------------------------------------------- what a question asks for


@pytest.mark.parametrize("name", QUESTIONS)
def test_laplace_noise_costs_the_epsilon_that_is_asked_and_leaves_that_sum_open(opened, name):
    made, sql = opened(), QUESTIONS[name]
    quote = made.curator.price(sql, epsilon="1/2", noise="laplace", analyst="ana")
    assert quote.epsilon == 0.5
    assert (quote.delta > 0) == ("keys" in name and "public" not in name)
    answer = made.curator.sql(sql, epsilon="1/2", noise="laplace", analyst="ana")
    assert answer.cost.charged
    spent = made.ledger.balance(Account(("shop",))).spent
    assert 0 < spent.others[0] <= 5 * 10**11
    assert spent.delta <= 10**18 * Fraction(quote.delta) * (1 + Fraction(1, 10**9))
    assert None not in spent.others
    assert made.curator.budget("ana")[0].epsilon_spent <= 0.5
    made.curator.verify()


def test_the_option_and_the_argument_ask_the_same(opened):
    made = opened()
    first = made.curator.sql(with_option(COUNT, "laplace"), epsilon="1/2", analyst="ana")
    for sql, noise in [
        (COUNT, "laplace"),
        (with_option(COUNT, "LAPLACE"), None),
        (with_option(COUNT, "laplace"), "laplace"),
    ]:
        again = made.curator.sql(sql, epsilon="1/2", noise=noise, analyst="ana")
        assert not again.cost.charged
        assert again.receipt.number == first.receipt.number
    # with the noise that it had before there was a choice it is another question, and the same whether that is said
    other = made.curator.sql(COUNT, epsilon="1/2", analyst="ana")
    assert other.cost.charged
    assert not made.curator.sql(COUNT, epsilon="1/2", noise="gaussian", analyst="ana").cost.charged
    assert epsilon_sum(made) is None


def test_a_laplace_count_errs_a_third_of_a_gaussian_one(opened):
    made = opened()
    laplace = made.curator.price(COUNT, epsilon=1, noise="laplace").columns[0].half_width
    gaussian = made.curator.price(COUNT, epsilon=1).columns[0].half_width
    # a customer has four rows
    assert laplace == DiscreteLaplace(4).error(confidence=0.95)
    assert gaussian > 3 * laplace
    cost = made.curator.price(COUNT, error=laplace, noise="laplace")
    # the error is a whole number, which a little less reaches too
    assert 0.9 < cost.epsilon <= 1
    assert cost.epsilon < made.curator.price(COUNT, error=laplace).epsilon / 2


def test_what_was_asked_can_be_asked_again_from_the_list(opened):
    made = opened()
    made.curator.sql(COUNT, epsilon="1/2", noise="laplace", analyst="ana")
    made.curator.sql(COUNT, epsilon="1/2", analyst="ana")
    plain, chosen = made.curator.answers("ana").items
    assert (chosen.asked["noise"], "noise" in plain.asked) == ("laplace", False)
    for past in (plain, chosen):
        terms = {name: value for name, value in past.asked.items() if value}
        assert not made.curator.sql(past.sql, analyst="ana", **terms).cost.charged
        assert made.curator.answer(past.number, analyst="ana").receipt.number == past.number


def test_terms_name_the_noise_only_where_it_was_chosen():
    assert "noise" not in Terms.of(epsilon=1).to_json()
    chosen = Terms.of(epsilon=1, noise="laplace")
    assert Terms.from_json(chosen.to_json()) == chosen != Terms.of(epsilon=1)
    assert chosen.signature != Terms.of(epsilon=1).signature
    with pytest.raises(InvalidParameter, match="laplace"):
        Terms.of(noise="normal")


@pytest.mark.parametrize(
    ("sql", "noise", "code"),
    [(with_option(COUNT, "laplace"), "gaussian", "noise_conflict"), (with_option(COUNT, "normal"), None, "options")],
)
def test_what_contradicts_itself_is_refused(opened, sql, noise, code):
    with pytest.raises(Refused) as refused:
        opened().curator.price(sql, epsilon="1/2", noise=noise)
    assert refused.value.code == code


def test_a_pure_budget_has_laplace_noise_in_any_case(opened):
    made = opened(delta="0")
    made.curator.sql(COUNT, epsilon="1/2", analyst="ana")
    assert not made.curator.sql(COUNT, epsilon="1/2", noise="laplace", analyst="ana").cost.charged
    with pytest.raises(Refused) as refused:
        made.curator.price(COUNT, epsilon="1/2", noise="gaussian")
    assert refused.value.code == "noise_not_allowed"


def test_keys_can_not_be_discovered_without_gaussian_noise_for_next_to_nothing(opened):
    made = opened()
    with pytest.raises(Refused) as refused:
        made.curator.price(QUESTIONS["discovered keys"], epsilon="1/300", noise="laplace")
    assert refused.value.code == "epsilon_too_small"
    made.curator.price(QUESTIONS["discovered keys"], epsilon="1/300")


# ---------------------------------------------------------------- what the policy says


@pytest.mark.parametrize("name", QUESTIONS)
def test_where_the_policy_allows_laplace_noise_only_the_sum_of_epsilon_stays_open(opened, name):
    made = opened(more='noise = "laplace"')
    made.curator.sql(QUESTIONS[name], epsilon="1/2", analyst="ana")
    assert epsilon_sum(made) is not None
    with pytest.raises(Refused) as refused:
        made.curator.sql(QUESTIONS[name], epsilon="1/2", noise="gaussian", analyst="ana")
    assert refused.value.code == "noise_not_allowed"
    assert "Laplace noise only" in str(refused.value)


class Noisy:
    """A computation with Gaussian noise."""

    table, columns, rows = "orders", ("pieces",), 1

    def loss(self):
        return DiscreteGaussian(20).loss(Sensitivity.l2(1))

    def key(self):
        return "noisy"

    def release(self, table):
        return {"rows": 0}


def test_where_the_policy_allows_laplace_noise_only_computations_need_an_epsilon(opened):
    made = opened(more='noise = "laplace"')
    with pytest.raises(Refused) as refused:
        made.curator.run(Noisy())
    assert refused.value.code == "noise_not_allowed"
    assert made.ledger.balance(Account(("shop",))) is None
    opened().curator.run(Noisy())


def test_where_the_policy_allows_gaussian_noise_only_laplace_is_refused(opened):
    made = opened(more='noise = "gaussian"')
    with pytest.raises(Refused) as refused:
        made.curator.price(COUNT, epsilon="1/2", noise="laplace")
    assert refused.value.code == "noise_not_allowed"
    assert (
        made.curator.price(COUNT, epsilon="1/2").key == made.curator.price(COUNT, epsilon="1/2", noise="gaussian").key
    )


def threshold(budget):
    """N·G up to which Laplace noise errs less: (1.96·ε_B / 3.0·μ_B)², where μ_B² = 2ρ_B is what Gaussian noise has."""
    rho = Fraction(Exchange(Fraction(1, 10**6)).limit(Fraction(budget)).main, 10**12)
    return (GAUSSIAN_95 / LAPLACE_95 * budget) ** 2 / float(2 * rho)


@pytest.mark.parametrize("budget", [1, 3, 10])
def test_the_number_of_questions_decides(opened, budget):
    """A customer counts in two cities: N questions of two groups."""
    by_city = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
    most = threshold(budget)
    for sql, groups in [(COUNT, 1), (by_city, 2)]:
        for count, law in [(int(most / groups), "Laplace"), (int(most / groups) + 1, "Gaussian")]:
            made = opened(budget=str(budget), most=str(budget), more=f"questions = {count}")
            quote = made.curator.price(sql, epsilon="1/10")
            assert law in quote.columns[-1].mechanism, (sql, count)
            assert quote.notes[0].startswith(f"{law} noise, as the policy says")


def test_the_law_does_not_depend_on_what_was_spent(opened):
    made = opened(budget="3", most="3", more="questions = 5")
    asked = [(sql, made.curator.price(sql, epsilon="1/10", analyst="ana")) for sql in QUESTIONS.values()]
    # more than the dataset has left, so that the last one is refused
    with contextlib.suppress(OutOfBudget):
        for place in range(50):
            made.curator.sql(f"{COUNT} WHERE pieces > {place / 7}", epsilon="1/2", noise="gaussian")
    assert made.curator.budget()[0].share > 0.9
    for sql, before in asked:
        after = made.curator.price(sql, epsilon="1/10", analyst="ana")
        assert (after.key, after.columns, after.notes) == (before.key, before.columns, before.notes)


def test_what_was_answered_stays_the_answer_when_the_policy_chooses_anew(opened):
    first = opened()
    answer = first.curator.sql(COUNT, epsilon="1/2", analyst="ana")
    later = opened(ledger=first.ledger, more="questions = 3")
    assert later.curator.answer(answer.receipt.number, analyst="ana").receipt.number == answer.receipt.number
    assert later.curator.price(COUNT, epsilon="1/2", noise="gaussian", analyst="ana").free
    assert not later.curator.price(COUNT, epsilon="1/2", analyst="ana").free


# ---------------------------------------------------------------- what a quote says


def test_a_quote_says_which_law_what_it_closes_and_what_is_left(opened):
    made = opened(budget="3", most="3")
    precise = made.curator.price(COUNT, epsilon=1, noise="laplace")
    (note,) = [note for note in precise.notes if "noise" in note]
    assert note.startswith(
        "Laplace noise, as the question asks: it leaves the sum of ε open; after it there is room for"
    )
    assert "about 2 more like it, or " in note
    assert "ten times as rough with Gaussian noise" in note
    told = int(re.search(r"or (\d+) ten times as rough", note)[1])
    after = opened(budget="3", most="3")
    after.curator.sql(COUNT, epsilon=1, noise="laplace")
    rough = after.curator.price(COUNT, error=10 * precise.error["n"], noise="gaussian")
    assert 0.9 * told < rough.more < 1.1 * told
    assert after.curator.price(f"{COUNT} WHERE pieces > 1", epsilon=1, noise="laplace").more == 2
    gaussian = made.curator.price(COUNT, epsilon=1, noise="gaussian")
    assert "closes the sum of ε for good, for you and for everybody together" in gaussian.notes[0]
    assert not any("the sum of ε" in note for note in made.curator.price(COUNT, epsilon=1).notes)
    for place in range(3):
        made.curator.sql(f"{COUNT} WHERE pieces > {place}", epsilon=1, noise="laplace")
    with pytest.raises(OutOfBudget):
        made.curator.sql(COUNT, epsilon=1, noise="laplace")
