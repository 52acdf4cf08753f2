"""Noise that tells nothing but its sum with the truth: its support, its scale, its source, and no second look at it."""

import os
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.curator.answers.release import release
from dither.errors import InvalidParameter, LedgerError, OutOfBudget, Refused
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace

ALPHA = 1e-9
SUM = "SELECT SUM(amount) AS s FROM orders"
CONFIGURATIONS = [
    ("laplace", {}),
    ("gaussian", {"delta_budget": "1e-6", "epsilon_budget": "400"}),
]


def asked_often(one, sql, times, *, epsilon=1.0):
    """Answers to the same aggregation with ε that differ in the ninth digit, so that each is drawn anew."""
    return [one.curator.sql(sql, epsilon=Fraction(epsilon) + Fraction(n, 10**9)).to_pylist() for n in range(times)]


@pytest.mark.parametrize(("law", "settings"), CONFIGURATIONS)
def test_c1_c2_c3_every_answer_lies_on_a_public_grid(shop, make, law, settings):
    """C1, C2, C3: answers for neighbours are multiples of the same step, which the policy states."""
    sql = "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city"
    step = Fraction(1, 2)
    parts = {}
    for name, extra in (("without", []), ("with", [make.order(99, amount=33.3)])):
        one = shop([*make.crowd(amount=10.1), *extra], **settings)
        priced = one.curator.price(sql, epsilon=1).priced
        assert {type(noise) for noise in priced.noise} <= {DiscreteLaplace, DiscreteGaussian}
        rows = [row for answer in asked_often(one, sql, 16) for row in answer]
        assert all(isinstance(row["n"], int) for row in rows)
        assert all(Fraction(row["s"]) % step == 0 for row in rows)
        # every residue is reached from both: the low bits carry nothing
        parts[name] = {Fraction(row["s"]) % (2 * step) for row in rows}
    assert parts["without"] == parts["with"] == {Fraction(0), step}
    kinds = {DiscreteLaplace: "laplace", DiscreteGaussian: "gaussian"}
    assert law in {kinds[type(noise)] for noise in priced.noise} or law == "gaussian"


def test_c3_gaussian_noise_is_discrete_too(shop, make):
    """C3: where many groups make Gaussian noise the better one, it is drawn on the grid as well."""
    settings = {
        "delta_budget": "1e-6",
        "epsilon_budget": "400",
        "cities": str([f"c{n}" for n in range(40)]),
        "unit": 'privacy_unit_column = "user_id"\nmax_groups_contributed = 40',
    }
    one = shop([make.order(n, city=f"c{n % 40}") for n in range(80)], **settings)
    sql = "SELECT city, SUM(amount) AS s FROM orders GROUP BY city"
    assert {type(noise) for noise in one.curator.price(sql, epsilon=1).priced.noise} == {DiscreteGaussian}
    values = [row["s"] for answer in asked_often(one, sql, 3) for row in answer]
    assert all(Fraction(value) % Fraction(1, 2) == 0 for value in values)
    assert len(set(values)) > 60


def test_c1_the_grid_test_notices_continuous_noise():
    """C1: what the test above would see of textbook noise."""
    value = 303.0 + np.random.default_rng(1).laplace(0.0, 100.0)
    assert Fraction(value) % Fraction(1, 2) != 0


@pytest.mark.parametrize(
    "sql",
    [
        SUM,
        "SELECT AVG(amount) AS m FROM orders",
        "SELECT city, COUNT(*) AS n FROM orders GROUP BY city",
        "SELECT MEDIAN(quantity) AS q FROM orders",
    ],
)
def test_c21_the_scale_of_noise_is_public(shop, make, sql):
    """C21: the same noise, loss and stated error for an empty, a small and an extreme table."""
    tables = [[], make.crowd(3), [make.order(1, amount=1e300, quantity=2**62)] * 50]
    seen = []
    for rows in tables:
        one = shop(rows)
        priced = one.curator.price(sql, epsilon=1).priced
        one.curator.sql(sql, epsilon=1)
        assert one.engine.seen[0][0] == priced.measurement
        seen.append((priced.noise, priced.choosers, priced.loss.to_json(), priced.errors()))
    assert seen[0] == seen[1] == seen[2]


def test_c29_a_black_box_sees_no_more_than_was_charged(shop, make):
    """C29: half-lines of a count, with and without one person, as they are measured and released; a mutant is caught.

    Clopper–Pearson bounds at α. The mutant is a unit that counts twice.
    """
    times, epsilon = 4_000, 1.0
    sql = "SELECT COUNT(*) AS n FROM orders"
    rows = make.crowd(20)
    tables = {"without": rows, "with": [*rows, make.order(99)], "mutant": [*rows, make.order(98), make.order(99)]}
    draws = {}
    for name, some in tables.items():
        one = shop(some, unit='privacy_unit_column = "user_id"')
        priced = one.curator.price(sql, epsilon=epsilon).priced
        measured = one.engine.run(priced.measurement, salt=bytes(16))
        draws[name] = np.array([release(priced, measured).cells[0][0] for _ in range(times)])

    def surely(first, second):
        """The largest ε that the draws prove, over half-lines."""
        found = 0.0
        for cut in range(10, 40):
            high, low = int((first >= cut).sum()), int((second >= cut).sum())
            if high:
                least = stats.beta.ppf(ALPHA, high, times - high + 1)
                most = stats.beta.ppf(1 - ALPHA, low + 1, times - low)
                found = max(found, float(np.log(least / most)))
        return found

    assert surely(draws["with"], draws["without"]) <= epsilon
    assert surely(draws["mutant"], draws["without"]) > epsilon


def test_c19_no_seed_can_be_set(shop, make, monkeypatch):
    """C19: no argument, option, variable or generator of the process makes noise repeat."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("DITHER_SEED", "1")
    drawn = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002 (the attack)
        one = shop(make.crowd())
        drawn.append([answer[0]["s"] for answer in asked_often(one, SUM, 6)])
    assert drawn[0] != drawn[1]
    one = shop(make.crowd())
    with pytest.raises(TypeError):
        one.curator.sql(SUM, epsilon=1, seed=7)
    for text in (
        "SELECT setseed(0.5)",
        "SET seed = 1",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (seed = 7) COUNT(*) FROM orders",
    ):
        with pytest.raises(Refused):
            one.curator.sql(text, epsilon=1)


FORKS = textwrap.dedent(
    """
    import os, sys
    from dither import Curator
    from dither.errors import LedgerError, SourceError
    sql = "SELECT SUM(amount) AS s FROM orders"
    curator = Curator.open(sys.argv[1])
    curator.sql(sql, epsilon=1)
    pid = os.fork()
    try:
        curator.sql(sql, epsilon=1.5)
        print("parent answered" if pid else "child answered", flush=True)
    except (LedgerError, SourceError):
        print("parent refused" if pid else "child refused", flush=True)
    if pid:
        os.waitpid(pid, 0)
        curator.close()
    else:
        os._exit(0)
    """
)
WORKERS = textwrap.dedent(
    """
    import os
    from dither import Laplace
    mechanism = Laplace(10**6)
    mechanism.release(0)
    child = os.fork()
    drawn = [float(mechanism.release(0)) for _ in range(200)]
    if child:
        os.waitpid(child, 0)
    print(drawn, flush=True)
    os._exit(0)
    """
)


def started(script, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_c19_a_forked_curator_cannot_charge_or_answer(shop, make):
    """C19: engine and ledger refuse in the child before any data is read or charged; the parent goes on."""
    one = shop(make.crowd())
    one.close()
    assert sorted(started(FORKS, str(one.policy))) == ["child refused", "parent answered"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_c19_two_forked_workers_never_repeat_noise():
    """C19: pools of noise drawn ahead are emptied by a fork."""
    first, second = (set(eval(line)) for line in started(WORKERS))
    assert len(first) == len(second) == 200
    assert not first & second


def test_c20_the_same_question_is_the_same_answer_and_free(shop, make):
    """C20: also under another alias, order or case; noise can't be averaged away."""
    one = shop(make.crowd(), epsilon_budget="10")
    sql = "SELECT city, COUNT(*) AS n FROM orders WHERE amount > 1 AND quantity < 9 GROUP BY city"
    first = one.curator.sql(sql, epsilon=1)
    spent = one.spent()
    same = [
        sql,
        sql.lower().replace("bern", "Bern"),
        "SELECT city AS c, COUNT(*) AS m FROM orders WHERE quantity < 9 AND amount > 1 GROUP BY 1 ORDER BY 2 DESC",
        "SELECT o.city, COUNT(*) FROM orders AS o WHERE (amount > 1) AND (quantity < 9) GROUP BY ALL",
    ]
    for text in same:
        again = one.curator.sql(text, epsilon=1)
        assert again.cost.charged is False
        names = again.table.column_names
        assert {row[names[0]]: row[names[1]] for row in again.to_pylist()} == {
            row["city"]: row["n"] for row in first.to_pylist()
        }
    assert one.spent() == spent
    # a question that differs is charged, and so is the same question on other data
    for text in (
        sql.replace("> 1", "> 1.5"),
        sql.replace("COUNT(*)", "COUNT(amount)"),
        sql.replace("amount > 1 AND", ""),
    ):
        assert one.curator.sql(text, epsilon=1).cost.charged
    assert one.spent()["shop"][0] == 4 * 10**12


def test_c20_another_analyst_pays_and_sees_the_same_answer(shop, make):
    """C20: two analysts together hold one noisy answer, not two to average."""
    one = shop(make.crowd())
    first = one.curator.sql(SUM, epsilon=1, analyst="ana")
    second = one.curator.sql(SUM, epsilon=1, analyst="bob")
    assert first.scalar() == second.scalar()
    assert one.spent() == {"shop": (10**12, 0), "shop/ana": (10**12, 0), "shop/bob": (10**12, 0)}


def test_c20_an_exhausted_budget_refuses_for_nothing(shop, make):
    """C20: the refusal costs nothing, reads nothing and is the same for every table."""
    texts = set()
    for rows in ([], make.crowd(), [make.order(99, amount=1e300)]):
        one = shop(rows, epsilon_budget="1")
        one.curator.sql(SUM, epsilon=1)
        spent, seen = one.spent(), len(one.engine.seen)
        with pytest.raises(OutOfBudget) as refused:
            one.curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon="0.000001")
        texts.add(str(refused.value))
        assert (one.spent(), len(one.engine.seen)) == (spent, seen)
        # what was paid for stays free
        assert one.curator.sql(SUM, epsilon=1).cost.charged is False
    assert len(texts) == 1


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1e999", "x"])
def test_c20_no_price_below_zero(shop, make, epsilon):
    """C20: an ε that isn't a positive number is refused before any charge."""
    one = shop(make.crowd(3))
    with pytest.raises((InvalidParameter, Refused, OutOfBudget)):
        one.curator.sql(SUM, epsilon=epsilon)
    assert one.spent()["shop"] == (0, 0)
    assert one.engine.seen == []


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from dither import Curator
    from dither.engines import DuckDBEngine
    run = DuckDBEngine.run
    def killed(self, measurement, *, salt):
        if sys.argv[2] == "after":
            run(self, measurement, salt=salt)
        os.kill(os.getpid(), signal.SIGKILL)
    DuckDBEngine.run = killed
    Curator.open(sys.argv[1]).sql("SELECT SUM(amount) AS s FROM orders", epsilon=1)
    """
)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_c26_a_killed_question_stays_charged(shop, make, moment, fresh, tmp_path):
    """C26: the debit is on disk before data is read; the same question redeems it, once."""
    one = shop(make.crowd())
    one.close()
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    assert fresh(one.policy, moment, program=tmp_path / "killed.py").status == -signal.SIGKILL
    again = make.open_shop(one.directory)
    try:
        assert again.spent()["shop"] == (10**12, 0)
        assert again.curator.sql(SUM, epsilon=1).cost.charged is False
        assert again.spent()["shop"] == (10**12, 0)
        assert again.curator.ledger.verify().entries > 0
    finally:
        again.close()


def test_a_closed_ledger_answers_nothing(shop, make):
    """C20: without the ledger there is no answer."""
    one = shop(make.crowd())
    one.curator.ledger.close()
    with pytest.raises(LedgerError):
        one.curator.sql(SUM, epsilon=1)
    assert one.engine.seen == []
