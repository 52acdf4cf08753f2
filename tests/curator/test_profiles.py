"""Profiles: bought once, by the owner or with the owner's word; from then on public, whoever paid."""

import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dither import DiscreteLaplace, Sensitivity
from dither.curator import Curator
from dither.curator.past.records import open_ledger
from dither.engines.base import EngineFailure
from dither.errors import Failed, OutOfBudget, Refused
from dither.ledger import Account, EntryKind
from dither.mechanisms import DiscreteGaussian
from dither.policy import Policy
from dither.query.plan.profile import LOWER_ENDS, UPPER_ENDS
from dither.query.price.profile import Profile

from .conftest import UNITS, policy_text

PURE = {"delta": "0"}
COUNT = "SELECT COUNT(*) AS n FROM orders"


def charges(made):
    return sum(entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE) for entry in made.ledger.entries())


def spent(made, *path):
    return made.ledger.balance(Account(("shop", *path)))


# ---------------------------------------------------------------- what is released


@pytest.mark.parametrize(("adjacency", "shift"), [("add_remove", 1), ("replace", 2)])
def test_a_profile_costs_one_histogram_and_its_noise_is_that_of_one_count(opened, adjacency, shift):
    made = opened(**PURE, adjacency=adjacency)
    quote = made.curator.price("PROFILE orders", epsilon="1/2")
    # one unit is in one bin; where one takes another's place two bins move by 1
    assert quote.priced.noise == (DiscreteLaplace(2 * shift),)
    assert quote.priced.loss == DiscreteLaplace(2 * shift).loss(Sensitivity.l1(shift, adjacency=quote.priced.adjacency))
    assert quote.priced.loss.pure() == 0.5
    answer = made.curator.profile("orders", epsilon="1/2")
    assert answer.cost.epsilon == 0.5
    assert spent(made).spent.main == 5 * 10**11
    assert answer.receipt.number in {entry.body.get("number") for entry in made.ledger.entries()}
    made.curator.verify()


def test_bins_are_fixed_and_everybody_is_in_one(opened):
    made = opened(**PURE)
    table = made.curator.profile("orders", epsilon=5).table
    assert table.column("rows_from").to_pylist() == [1, 2, 3, 5, 9, *(2**n + 1 for n in range(4, 15))]
    assert table.column("rows_to").to_pylist() == [*(2**n for n in range(15)), None]
    units = dict(zip(table.column("rows_from").to_pylist(), table.column("units").to_pylist(), strict=True))
    # all of them have four rows; noise of scale 1/5 is below 20 but for a chance of e^-100
    assert abs(units.pop(3) - UNITS) < 20
    assert all(abs(count) < 20 for count in units.values())


def test_noise_is_fresh_in_every_bin_and_of_the_law_that_was_priced(opened, monkeypatch):
    drawn = []
    release = DiscreteLaplace.release

    def watched(self, values, **more):
        drawn.append((self, np.array(values)))
        return release(self, values, **more)

    monkeypatch.setattr(DiscreteLaplace, "release", watched)
    made = opened(**PURE)
    made.curator.profile("orders", epsilon="1/2")
    ((mechanism, exact),) = drawn
    assert mechanism == DiscreteLaplace(2)
    assert exact.tolist() == [UNITS if low == 3 else 0 for low in LOWER_ENDS]


def test_where_the_budget_has_a_delta_the_law_is_chosen_as_for_questions(opened):
    made = opened()
    assert isinstance(made.curator.price("PROFILE orders", epsilon=1).priced.noise[0], DiscreteGaussian)
    made.curator.profile("orders", epsilon=1, noise="laplace")
    assert spent(made).spent.others[0] == 10**12
    gaussian_only = opened(more='noise = "gaussian"')
    with pytest.raises(Refused) as caught:
        gaussian_only.curator.profile("orders", epsilon=1, noise="laplace")
    assert caught.value.code == "noise_not_allowed"


# ---------------------------------------------------------------- never bought twice


def test_whoever_asks_again_gets_the_same_at_no_cost(opened):
    made = opened(**PURE)
    first = made.curator.profile("orders", epsilon="1/2")
    before, runs = charges(made), made.engine.runs
    for analyst, epsilon, text in [
        ("owner", "1/2", "PROFILE orders"),
        ("ana", "1/2", 'profile "orders";'),
        ("ana", "1/4", "PROFILE Orders AS o"),
        ("bob", "0.01", " PROFILE orders"),
    ]:
        quote = made.curator.price(text, epsilon=epsilon, analyst=analyst)
        again = made.curator.sql(text, epsilon=epsilon, analyst=analyst)
        assert not again.cost.charged
        assert quote.free
        assert again.table.equals(first.table)
    assert (charges(made), made.engine.runs) == (before, runs)


def test_conditions_are_compared_by_their_normal_form(opened):
    made = opened(**PURE)
    first = made.curator.profile("orders", epsilon="1/2", where="amount > 3 AND city = 'Bern'")
    for text in ("'Bern' = city AND NOT (3 >= amount)", "orders.city = 'Bern' AND 3.0 < amount"):
        again = made.curator.profile("orders", epsilon="1/2", where=text, analyst="ana")
        assert again.table.equals(first.table)
        assert not again.cost.charged
    assert made.curator.profile("orders", epsilon="1/2", where="amount > 4 AND city = 'Bern'").cost.charged
    assert made.curator.profile("orders", epsilon="1/2").cost.charged
    assert [one.sql for one in made.curator.profiles()] == [
        "PROFILE \"orders\" WHERE amount > 3 AND city = 'Bern'",
        "PROFILE \"orders\" WHERE amount > 4 AND city = 'Bern'",
        'PROFILE "orders"',
    ]


def test_a_more_exact_one_can_be_bought_and_is_used_then(opened):
    made = opened(**PURE)
    made.curator.profile("orders", epsilon="1/10")
    assert made.curator.profile("orders", epsilon=1).cost.charged
    assert not made.curator.profile("orders", epsilon="1/2").cost.charged
    note = made.curator.price(COUNT, epsilon=1).notes[-1]
    best = max(made.curator.profiles(), key=lambda one: float(one.epsilon))
    assert f"± {int(np.ceil(best.profile.beyond(4).error))} " in note


def test_it_is_remembered_in_fresh_processes(shop, tmp_path):
    text = policy_text(delta="0").replace('name = "shop"', f'name = "shop"\nledger = "{tmp_path / "ledger"}"')
    text = text.replace('database = "shop.duckdb"', f'database = "{shop / "shop.duckdb"}"')
    (tmp_path / "dither.toml").write_text(text, encoding="utf-8")
    with Curator.open(tmp_path / "dither.toml") as curator:
        first = curator.profile("orders", epsilon=1)
    script = (
        "import sys; from dither.curator import Curator\n"
        "with Curator.open(sys.argv[1]) as curator:\n"
        "    answer = curator.profile('orders', epsilon=1, analyst='ana')\n"
        "    (known,) = curator.profiles()\n"
        "    print(answer.cost.charged, answer.table.column('units').to_pylist() == list(known.profile.counts))\n"
        "    print(answer.table.column('units').to_pylist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "dither.toml")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False True", str(first.table.column("units").to_pylist())]
    policy = Policy.load(tmp_path / "dither.toml")
    with open_ledger(policy) as book:
        assert sum(entry.kind is EntryKind.RESERVE for entry in book.entries()) == 1


def test_of_another_version_of_the_data_nothing_is_known(opened, ledger_of, policy_of):
    book = ledger_of(policy_of(**PURE))
    first = opened(**PURE, ledger=book)
    first.curator.profile("orders", epsilon=1)
    assert len(first.curator.profiles()) == 1
    second = opened(**PURE, ledger=book, version="2")
    assert second.curator.profiles() == ()
    assert len(second.curator.price(COUNT, epsilon=1).notes) == 1
    assert second.curator.profile("orders", epsilon="1/2").cost.charged
    # nor under a policy that reads the rows in another way
    other = opened(**PURE, ledger=book, unit='privacy_unit_column = "customer"\nmax_rows_contributed = 3')
    assert other.curator.profiles() == ()


# ---------------------------------------------------------------- who may buy one, and whom it concerns


def test_an_analyst_needs_the_owners_word_at_every_price(opened):
    made = opened(**PURE)
    assert made.curator.price("PROFILE orders", epsilon="0.01", analyst="ana").needs_approval
    with pytest.raises(Refused) as caught:
        made.curator.sql("PROFILE orders", epsilon="0.01", analyst="ana")
    assert caught.value.code == "needs_approval"
    assert charges(made) == 0
    request = made.curator.request_question("PROFILE orders", epsilon="0.01", analyst="ana", why="to bound well")
    made.curator.decide(request.number, approve=True)
    # for that analyst, and that price
    for analyst, epsilon in (("bob", "0.01"), ("ana", "0.02")):
        with pytest.raises(Refused) as caught:
            made.curator.profile("orders", epsilon=epsilon, analyst=analyst)
        assert caught.value.code == "needs_approval"
    assert made.curator.profile("orders", epsilon="0.01", analyst="ana").cost.charged
    assert spent(made, "ana").spent.main == 10**10
    # public now
    assert not made.curator.profile("orders", epsilon="0.01", analyst="bob").cost.charged
    assert spent(made, "bob") is None or spent(made, "bob").spent.main == 0


def test_of_who_paid_nothing_can_be_told(opened):
    """Prices, noise and notes of a third are the same whoever bought the profile."""
    told = []
    for buyer in ("owner", "ana"):
        made = opened(**PURE)
        if buyer != "owner":
            request = made.curator.request_question("PROFILE orders", epsilon="1/2", analyst=buyer)
            made.curator.decide(request.number, approve=True)
        made.curator.profile("orders", epsilon="1/2", analyst=buyer)
        quote = made.curator.price(COUNT, epsilon="1/4", analyst="bob")
        known = made.curator.profile("orders", epsilon="1/4", analyst="bob")
        told.append((quote.epsilon, quote.left, quote.priced.noise, len(quote.notes), known.receipt.account))
    assert told[0] == told[1]


def test_a_profile_changes_no_price_and_no_noise_of_what_states_its_bounds(opened):
    made = opened(**PURE)
    before = made.curator.price(COUNT, epsilon="1/4", analyst="ana")
    made.curator.profile("orders", epsilon="1/2")
    after = made.curator.price(COUNT, epsilon="1/4", analyst="ana")
    assert (before.key, before.priced.noise, before.epsilon, before.left) == (
        after.key,
        after.priced.noise,
        after.epsilon,
        after.left,
    )
    assert after.notes[:-1] == before.notes


# ---------------------------------------------------------------- what goes wrong


def test_what_failed_is_not_known_and_is_answered_when_asked_again_at_no_cost(opened):
    made = opened(**PURE)
    made.engine.fails_with = EngineFailure("row 7 is broken")
    with pytest.raises(Failed):
        made.curator.profile("orders", epsilon=1)
    assert made.curator.profiles() == ()
    assert len(made.curator.price(COUNT, epsilon=1).notes) == 1
    made.engine.fails_with = None
    assert not made.curator.profile("orders", epsilon=1).cost.charged
    assert len(made.curator.profiles()) == 1
    assert spent(made).spent.main == 10**12


def test_it_must_fit_in_the_budget(opened):
    made = opened(**PURE, budget="1", most="1")
    made.curator.sql(COUNT, epsilon="3/4")
    with pytest.raises(OutOfBudget):
        made.curator.profile("orders", epsilon="1/2")
    assert made.curator.profiles() == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("PROFILE", "profile"),
        ("PROFILE orders GROUP BY city", "profile"),
        ("PROFILE orders ORDER BY city", "profile"),
        ("PROFILE orders LIMIT 3", "profile"),
        ("PROFILE orders UNION ALL SELECT 1", "profile"),
        ("PROFILE (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer)", "profile"),
        ("PROFILE nothing", "unknown_table"),
        ("PROFILE orders WHERE note = 'x'", "hidden_column"),
        ("PROFILE orders; SELECT 1", "statement"),
        ("SELECT * FROM (PROFILE orders)", "unsupported"),
    ],
)
def test_what_has_no_profile_is_refused(opened, text, code):
    with pytest.raises(Refused) as caught:
        opened().curator.sql(text, epsilon=1)
    assert caught.value.code == code


def test_where_rows_are_protected_there_is_none(opened):
    with pytest.raises(Refused) as caught:
        opened(unit='privacy_unit = "row"').curator.profile("orders", epsilon=1)
    assert caught.value.code == "profile"


def test_an_answer_of_a_receipt_is_the_profile_again(opened):
    made = opened(**PURE)
    first = made.curator.profile("orders", epsilon=1)
    assert made.curator.answer(first.receipt.number).table.equals(first.table)
    (past,) = made.curator.answers().items
    assert past.sql == 'PROFILE "orders"'


# ---------------------------------------------------------------- what it says of bounds


@pytest.mark.parametrize("sql", [COUNT, "SELECT SUM(amount) AS s FROM orders"])
def test_an_answer_says_how_many_units_are_cut(opened, sql):
    made = opened(**PURE, unit='privacy_unit_column = "customer"\nmax_rows_contributed = 2')
    made.curator.profile("orders", epsilon=5)
    known = made.curator.profiles()[0].profile
    assert abs(known.beyond(2).units - UNITS) <= 30
    said = f"about {known.beyond(2).units} ± {int(np.ceil(known.beyond(2).error))} of {known.units} people (customer)"
    for notes in (made.curator.price(sql, epsilon=1).notes, made.curator.sql(sql, epsilon=1, analyst="ana").notes):
        assert said in notes[-1]
        assert "more than 2 rows" in notes[-1]


def test_of_other_rows_and_of_groups_it_says_nothing(opened):
    made = opened(**PURE, unit='privacy_unit_column = "customer"\nmax_rows_contributed = 2')
    made.curator.profile("orders", epsilon=1)
    for sql in (COUNT + " WHERE amount > 3", "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"):
        assert not any("about" in note for note in made.curator.price(sql, epsilon=1).notes)
    assert made.curator.price("SELECT COUNT(DISTINCT customer) AS n FROM orders", epsilon=1).notes == ()


def test_beyond_counts_every_unit_above_an_end_of_a_bin():
    rows = Counter({1: 5, 2: 7, 3: 1, 4: 2, 5: 3, 1000: 4, 16_384: 1, 16_385: 1, 10**9: 2})
    bins = Counter()
    for many, units in rows.items():
        bins[max(place for place, low in enumerate(LOWER_ENDS) if low <= many)] += units
    profile = Profile(counts=tuple(bins[place] for place in range(len(LOWER_ENDS))), noise=DiscreteLaplace(1))
    for bound in (1, 2, 3, 4, 5, 100, 1024, 16_000, 16_384, 10**6):
        found = profile.beyond(bound)
        assert found.rows == next((end for end in UPPER_ENDS if end >= bound), UPPER_ENDS[-1])
        assert found.units == sum(units for many, units in rows.items() if many > found.rows)


@pytest.mark.parametrize("scale", [Fraction(1, 5), 1, 2, 10])
@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_what_is_stated_beside_it_covers(law, scale):
    """The sum of so many noises, exactly, stays within what is stated at 95%."""
    noise = law(scale)
    reach = int(60 * float(scale)) + 3
    steps = np.arange(-reach, reach + 1)
    scaled = np.abs(steps) / float(scale)
    one = np.exp(-scaled if law is DiscreteLaplace else -(scaled**2) / 2)
    one /= one.sum()
    profile, summed = Profile(counts=(0,) * len(LOWER_ENDS), noise=noise), np.array([1.0])
    for place in range(len(UPPER_ENDS) - 1, -1, -1):
        summed = np.convolve(summed, one)
        middle = len(summed) // 2
        within = int(profile.beyond(UPPER_ENDS[place]).error)
        assert summed[max(0, middle - within) : middle + within + 1].sum() >= 0.95
