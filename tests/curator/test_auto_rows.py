"""``max_rows_contributed = "auto"``: a bound on rows that a profile chooses, or a search of the question's own."""

from fractions import Fraction

import numpy as np
import pytest

from dither import DiscreteGaussian, DiscreteLaplace
from dither.curator.answers.release import Stored
from dither.engines.base import EngineFailure
from dither.errors import Failed, InvalidPolicy, Refused
from dither.ledger import Account, Currency
from dither.policy import Policy
from dither.privacy import Adjacency
from dither.query.plan.profile import LOWER_ENDS
from dither.query.price.noise import QueryBudget, price
from dither.query.sql import bind

from .conftest import UNITS, policy_text

AUTO = 'privacy_unit_column = "customer"\nmax_rows_contributed = "auto"'
TWO = 'privacy_unit_column = "customer"\nmax_rows_contributed = 2'
PURE = {"delta": "0", "unit": AUTO}
COUNT = "SELECT COUNT(*) AS n FROM orders"
QUESTIONS = {
    "count": COUNT,
    "sum": "SELECT SUM(amount) AS s FROM orders",
    "several": "SELECT COUNT(*) AS n, AVG(amount) AS a, MEDIAN(pieces) AS m, COUNT(DISTINCT item) AS i FROM orders",
    "filtered": COUNT + " WHERE pieces > 2",
    "bounds to be found": "SELECT AVG(rating) AS m FROM orders",
    "choices alone": "SELECT MODE(pieces) AS o FROM orders",
}


def with_rows(sql, rows):
    return sql.replace("SELECT ", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = {rows}) ", 1)


@pytest.fixture(autouse=True)
def _exact_profiles(monkeypatch):
    """Profiles without noise, so that it is known which bound they choose; noise chooses a larger one now and then.

    What noise does to the choice is in tests/laws/test_auto_rows.py, its law in tests/curator/test_profiles.py.
    """
    for mechanism in (DiscreteLaplace, DiscreteGaussian):
        release = mechanism.release

        def exactly(self, values, release=release, **more):
            return np.array(values) if len(values) == len(LOWER_ENDS) else release(self, values, **more)

        monkeypatch.setattr(mechanism, "release", exactly)


def spent(made):
    return made.ledger.balance(Account(("shop",))).spent


def stored(made, answer):
    return Stored.unseal(
        made.curator._vault.charging.stored(
            key=made.curator._vault.past.charge(answer.receipt.number).key,
            account=Account(("shop", "owner")),
            loss=answer.receipt.loss,
        ).answer
    )


# ---------------------------------------------------------------- with a profile


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_profile_chooses_the_bound_and_all_of_the_budget_is_in_the_noise(opened, name):
    made, sql = opened(**PURE), QUESTIONS[name]
    where = sql.partition(" WHERE ")[2]
    made.curator.profile("orders", epsilon=5, where=where)
    # all 600 are seen in the bin of 3 to 4 (with WHERE in some more), and nobody beyond
    quote = made.curator.price(sql, epsilon="1/2")
    known = made.curator.price(with_rows(sql, 4), epsilon="1/2")
    assert quote.priced.noise == known.priced.noise
    # the very question that states the bound
    assert quote.key == known.key
    assert made.curator.sql(sql, epsilon="1/2").cost.charged
    assert not made.curator.sql(with_rows(sql, 4), epsilon="1/2").cost.charged
    assert spent(made).main == 55 * 10**11
    made.curator.verify()


def test_an_option_chooses_it_within_what_the_policy_allows(opened):
    made = opened(delta="0", unit=TWO)
    made.curator.profile("orders", epsilon=5)
    quote = made.curator.price(with_rows(COUNT, "'auto'"), epsilon="1/2")
    # all have four rows, and the owner allows two
    assert quote.priced.noise == (DiscreteLaplace(4),)
    assert opened(delta="0").curator.price(COUNT, epsilon="1/2").priced.noise == (DiscreteLaplace(8),)


def test_under_auto_a_question_may_state_a_bound(opened):
    made = opened(**PURE)
    assert made.curator.price(with_rows(COUNT, 7), epsilon="1/2").priced.noise == (DiscreteLaplace(14),)
    with pytest.raises(Refused) as caught:
        made.curator.price(with_rows(COUNT, 16_385), epsilon="1/2")
    assert caught.value.code == "options"


def test_what_was_paid_for_stays_free_when_a_better_profile_is_known(opened, monkeypatch):
    made = opened(**PURE)
    noise = iter([(-2, -1, UNITS, *[0] * 12, 400), (0, 0, UNITS, *[0] * 13)])
    release = DiscreteLaplace.release

    def chosen(self, values, **more):
        return next(noise) if len(values) == 16 else release(self, values, **more)

    with monkeypatch.context() as patched:
        patched.setattr(DiscreteLaplace, "release", chosen)
        made.curator.profile("orders", epsilon="1/10")
        first = made.curator.sql(COUNT, epsilon="1/2")
        assert "16,384 rows" in first.notes[0]
        made.curator.profile("orders", epsilon=1)
    again = made.curator.sql(COUNT, epsilon="1/2")
    assert not again.cost.charged
    assert again.table.equals(first.table)
    assert made.curator.answer(first.receipt.number).table.equals(first.table)
    # who hasn't paid gets the better one
    other = made.curator.sql(COUNT, epsilon="1/2", analyst="ana")
    assert other.cost.charged
    assert "at most 4 rows" in other.notes[0]


def test_who_paid_for_the_profile_makes_no_difference(opened):
    prices = []
    for buyer in ("owner", "ana"):
        made = opened(**PURE)
        if buyer == "ana":
            request = made.curator.request_question("PROFILE orders", epsilon=5, analyst="ana")
            made.curator.decide(request.number, approve=True)
        made.curator.profile("orders", epsilon=5, analyst=buyer)
        quote = made.curator.price(COUNT, epsilon="1/4", analyst="bob")
        prices.append((quote.epsilon, quote.priced.noise, quote.left, quote.share))
    assert prices[0] == prices[1]


def test_units_cut_are_stated_so_that_all_statements_hold_together(opened):
    """The profile chose the bound, perhaps for its noise."""
    made = opened(**PURE)
    made.curator.profile("orders", epsilon=1)
    chosen, stated = (made.curator.price(sql, epsilon=1).notes[-1] for sql in (COUNT, with_rows(COUNT, 4)))
    assert "more than 4 rows" in chosen
    assert int(chosen.split("± ")[1].split()[0]) > 1.3 * int(stated.split("± ")[1].split()[0])


# ---------------------------------------------------------------- without one


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("law", ["pure", "laplace", "gaussian"])
def test_without_a_profile_a_fifth_is_spent_on_a_search_and_it_says_so(opened, name, law):
    made = opened(**PURE) if law == "pure" else opened(unit=AUTO)
    noise = None if law == "pure" else law
    sql = QUESTIONS[name]
    quote = made.curator.price(sql, epsilon=5, noise=noise)
    assert any("a fifth of it" in note for note in quote.notes)
    assert not any("at most" in note for note in quote.notes)
    answer = made.curator.sql(sql, epsilon=5, noise=noise)
    found = stored(made, answer).rows
    assert answer.cost.epsilon == quote.epsilon <= 5
    assert f"at most {found:,} row" in " ".join(answer.notes)
    assert found == 4
    # what is drawn costs no more than what is charged, in the currency of the sum that it is charged on
    amount = spent(made)
    assert amount.main > 0
    again = made.curator.sql(sql, epsilon=5, noise=noise)
    assert not again.cost.charged
    assert again.table.equals(answer.table)
    assert made.curator.answer(answer.receipt.number).table.equals(answer.table)
    made.curator.verify()


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("name", QUESTIONS)
def test_search_and_answer_together_cost_no_more_than_was_charged(opened, kind, adjacency, name):
    made = opened(delta="0" if kind == "pure" else "1e-6", unit=AUTO, adjacency=adjacency.value)
    vault = made.curator._vault
    prepared = vault.quoting and made.curator.analyst("ana")._prepare(QUESTIONS[name], terms(1))
    profile = vault.pricing.row_profile(prepared)
    currency = Currency.PURE if kind == "pure" else Currency.ZCDP
    charged = made.ledger.price(prepared.loss)
    for rows in (1, 4, 16_384):
        answered = vault.pricing.with_rows(prepared, rows)
        together = made.ledger.price(profile.loss) + made.ledger.price(answered.priced.loss)
        if prepared.searched:
            # the bounds of a column have as much as the profile
            assert prepared.search_budget == prepared.rows_budget
            together += made.ledger.price(profile.loss)
        assert together.main <= charged.main + 3, (currency, rows)
    part = prepared.rows_budget.main * (1 + bool(prepared.searched)) / Fraction(1, 5)
    assert part == prepared.priced.budget.main / Fraction(4, 5)


def terms(epsilon):
    from dither.curator import Terms

    return Terms.of(epsilon=epsilon)


def test_what_is_known_of_all_rows_is_a_limit_for_some(opened, monkeypatch):
    made = opened(**PURE)
    made.curator.profile("orders", epsilon=5)
    release = DiscreteLaplace.release

    def many(self, values, **more):
        return [*[0] * 15, 10**6] if len(values) == 16 else release(self, values, **more)

    monkeypatch.setattr(DiscreteLaplace, "release", many)
    # without that limit it would be the largest there is
    answer = made.curator.sql(COUNT + " WHERE pieces > 2", epsilon="1/2")
    assert stored(made, answer).rows == 4


def test_after_its_search_drew_noise_a_failure_is_final(opened):
    made = opened(**PURE)
    run, asked = made.engine.run, []

    def failing(measurement, *, salt):
        asked.append(measurement)
        if len(asked) == 2:
            raise EngineFailure("a row is broken")
        return run(measurement, salt=salt)

    made.engine.run = failing
    for _ in range(2):
        with pytest.raises(Failed):
            made.curator.sql(COUNT, epsilon="1/2")
    # it isn't run again: fresh noise for the search would be another answer that nobody paid for
    assert len(asked) == 2
    assert spent(made).main == 5 * 10**11


def test_what_fails_before_any_noise_is_run_again(opened):
    made = opened(**PURE)
    made.engine.fails_with = EngineFailure("no memory")
    with pytest.raises(Failed):
        made.curator.sql(COUNT, epsilon="1/2")
    made.engine.fails_with = None
    assert not made.curator.sql(COUNT, epsilon="1/2").cost.charged


def test_it_is_the_same_in_a_fresh_curator(opened, policy_of, ledger_of):
    book = ledger_of(policy_of(**PURE))
    first = opened(**PURE, ledger=book).curator.sql(COUNT, epsilon=1)
    second = opened(**PURE, ledger=book).curator.sql(COUNT, epsilon=1)
    assert not second.cost.charged
    assert second.table.equals(first.table)
    assert second.notes == first.notes


# ---------------------------------------------------------------- what the bound does


@pytest.mark.parametrize("rows", [1, 3, 4, 16_384])
def test_a_bound_that_cuts_nothing_gives_what_plain_sql_gives(opened, data, rows):
    made = opened(**PURE)
    schema = made.policy.schema
    plain = {"COUNT(*)": UNITS * 4, "SUM(amount)": sum(data.column("amount").to_pylist())}
    for aggregate, truth in plain.items():
        asked = bind(with_rows(f"SELECT {aggregate} AS x FROM orders", rows), schema).aggregation
        assert asked.rows == rows
        priced = price(asked, QueryBudget(kind="pure", main=1), schema.adjacency)
        (exact,) = made.engine.run(priced.measurement, salt=b"a salt for everything").totals[0]
        ((_, step),) = priced.lowered.recipes[0].linear[0]
        assert exact * step == truth if rows >= 4 else exact * step < truth


# ---------------------------------------------------------------- with groups: all of a unit's rows together


BY_CITY = "SELECT city, COUNT(*) AS n, SUM(pieces) AS s, COUNT(DISTINCT customer) AS u FROM orders GROUP BY city"
WHOLE = {"delta": "0", "unit": AUTO + '\nmax_groups_contributed = "auto"'}


def test_with_groups_a_profile_bounds_all_rows_of_a_unit_together(opened):
    made = opened(**WHOLE)
    made.curator.profile("orders", epsilon=5)
    quote = made.curator.price(BY_CITY, epsilon="3/2")
    measurement = quote.priced.measurement
    # four rows each, in 64 parts of a row; eight pieces a row; each is in three groups at most
    assert [(total.high, total.fine, total.once) for total in measurement.totals] == [
        (4 * 64, 64, False),
        (3 * 64, 64, True),
        (4 * 8 * 64, 64, False),
    ]
    assert measurement.most_groups is None
    assert quote.priced.noise == tuple(DiscreteLaplace(2 * total.high) for total in measurement.totals)
    assert quote.priced.loss.pure() == 1.5
    assert "at most 4 rows in all groups together" in quote.notes[0]
    answer = made.curator.sql(BY_CITY, epsilon="3/2")
    assert answer.table.schema.field("n").type == answer.table.schema.field("s").type == "int64"
    assert made.curator.answer(answer.receipt.number).table.equals(answer.table)
    assert not made.curator.sql(BY_CITY, epsilon="3/2", analyst="owner").cost.charged


def test_with_groups_it_is_off_by_its_noise_where_nothing_is_cut(opened, data):
    made = opened(**WHOLE, budget="100")
    made.curator.profile("orders", epsilon=5)
    answer = made.curator.sql(BY_CITY, epsilon=5)
    rows = answer.table.to_pylist()
    for name, truth in (("n", UNITS // 3 * 4), ("u", UNITS // 3)):
        for row, half in zip(rows, answer.error[name], strict=True):
            # ten times the error at 95% is a chance below e^-30
            assert abs(row[name] - truth) <= 10 * half
    low, high = answer.interval("n")
    assert all(float(end).is_integer() for end in (*low, *high))
    assert (low <= answer.table.column("n").to_numpy()).all()
    assert (high >= answer.table.column("n").to_numpy()).all()


def test_with_groups_a_question_searches_too(opened):
    made = opened(**WHOLE)
    answer = made.curator.sql(BY_CITY, epsilon=5)
    assert stored(made, answer).rows == 4
    assert "at most 4 rows in all groups together" in answer.notes[0]
    assert made.curator.answer(answer.receipt.number).table.equals(answer.table)
    made.curator.verify()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT item, COUNT(*) AS n FROM orders GROUP BY item",
        "SELECT city, AVG(amount) AS a FROM orders GROUP BY city",
        "SELECT city, COUNT(*, contribution_bounds_per_group => (0, 2)) AS n FROM orders GROUP BY city",
        "SELECT city, MEDIAN(pieces) AS m FROM orders GROUP BY city",
        with_rows("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", 3),
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2) city, SUM(1) FROM orders GROUP BY city",
    ],
)
def test_with_groups_what_cant_be_scaled_is_refused_and_says_what_to_write(opened, sql):
    made = opened(unit=WHOLE["unit"])
    with pytest.raises(Refused) as caught:
        made.curator.sql(sql, epsilon=1)
    assert caught.value.code == "auto"
    assert "tate" in caught.value.hint
    stated = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2, max_rows_contributed = 4) "
    plain = sql.replace("WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2) ", "")
    plain = plain.replace("WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 3) ", "")
    quote = made.curator.price(plain.replace("SELECT ", stated, 1), epsilon=1)
    assert quote.priced.measurement.groups == 2


def test_groups_can_be_auto_only_where_rows_are(shop):
    unit = 'privacy_unit_column = "customer"\nmax_rows_contributed = 3\nmax_groups_contributed = "auto"'
    with pytest.raises(InvalidPolicy, match="max_rows_contributed"):
        Policy.parse(policy_text(unit=unit), base=shop)


# ---------------------------------------------------------------- what it can't be


@pytest.mark.parametrize(
    ("sql", "more", "code"),
    [
        ("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", {"epsilon": 1}, "auto"),
        (COUNT, {"error": 100}, "error_unknown"),
        (with_rows(COUNT, "'much'"), {"epsilon": 1}, "options"),
        (with_rows(COUNT, "auto"), {"epsilon": 1}, "options"),
    ],
)
def test_what_it_cant_be_is_refused_before_anything_is_charged(opened, sql, more, code):
    made = opened(**PURE)
    with pytest.raises(Refused) as caught:
        made.curator.sql(sql, **more)
    assert caught.value.code == code
    assert caught.value.hint
    assert made.ledger.balance(Account(("shop",))) is None or not spent(made).main


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(DISTINCT customer) AS n FROM orders",
        "SELECT city, COUNT(DISTINCT customer) AS n FROM orders GROUP BY city",
        "SELECT COUNT(*) AS m FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer)",
    ],
)
def test_where_rows_dont_matter_nothing_is_searched_for(opened, sql):
    made = opened(**PURE)
    quote = made.curator.price(sql, epsilon=1)
    assert not any("a fifth" in note for note in quote.notes)


@pytest.mark.parametrize("written", ['"Auto"', '"much"', "0", "true", "1.5", '["auto"]'])
def test_a_policy_that_says_something_else_is_refused(shop, written):
    unit = f'privacy_unit_column = "customer"\nmax_rows_contributed = {written}'
    with pytest.raises(InvalidPolicy, match="auto"):
        Policy.parse(policy_text(unit=unit), base=shop)


def test_policies_without_it_are_what_they_were(policy_of):
    fingerprints = {policy_of(unit=unit).fingerprint() for unit in (AUTO, TWO, TWO.replace("2", "16_384"))}
    assert len(fingerprints) == 3
    assert policy_of(unit=AUTO).schema.tables["orders"].auto_rows
