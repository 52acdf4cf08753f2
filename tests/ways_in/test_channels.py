"""What is not the answer: time, charges, quotes, descriptions, refusals, state. None of it may know the data."""

import contextlib
import time

import pytest
from scipy import stats

from dither.curator import answer_time
from dither.errors import DitherError, LedgerError, Refused

# An exact count that can't be mistaken for anything else.
MANY = 73
QUESTIONS = [
    "SELECT COUNT(*) AS n FROM orders",
    "SELECT city, AVG(amount) AS m, COUNT(DISTINCT user_id) AS u FROM orders GROUP BY city",
    "SELECT MEDIAN(quantity) AS q FROM orders WHERE remark LIKE 'f%'",
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product",
    (
        "SELECT SUM(t, contribution_bounds_per_row => (0, 50)) AS s FROM (SELECT user_id, SUM(amount) "
        "AS t FROM orders GROUP BY user_id)"
    ),
]
ZCDP = {"delta_budget": "1e-6", "epsilon_budget": "300"}


def tables(make):
    """Neighbours of one another, and tables that could not be further apart."""
    crowd = make.crowd(MANY)
    return [crowd, [*crowd, make.order(9999, amount=1e9, product="unheard of")], []]


@pytest.fixture(scope="module")
def neighbours(make, tmp_path_factory):
    """Two shops of which nothing is ever answered: one has a single order more than nothing."""
    places = [make.write_shop(tmp_path_factory.mktemp("still"), rows) for rows in ([], make.crowd(1))]
    shops = [make.open_shop(place) for place in places]
    yield shops
    for one in shops:
        one.close()


@pytest.mark.parametrize("settings", [{}, ZCDP], ids=["pure", "zcdp"])
def test_c6_price_and_charge_are_functions_of_the_question(shop, make, settings):
    """C6: the same quote, word for word, and the same entry in the ledger, for neighbours and for no data at all."""
    seen = []
    for rows in tables(make):
        one = shop(rows, **settings)
        told = []
        for sql in QUESTIONS:
            try:
                quote = one.curator.price(sql, epsilon=1, analyst="ana")
                answer = one.curator.sql(sql, epsilon=1, analyst="ana")
                # its name is keyed by each ledger's own secret
                told.append((str(quote), answer.cost, answer.receipt.amount, answer.receipt.loss.to_json()))
            except Refused as problem:
                told.append(str(problem))
        seen.append((told, one.spent(), [str(line) for line in one.curator.budget("ana")]))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM budget",
        "SELECT * FROM ledger",
        "SELECT COUNT(*) FROM main.entries",
        "SELECT current_setting('threads')",
        "SELECT getvariable('x') FROM orders",
        "SELECT COUNT(*) FROM orders WHERE amount > getvariable('x')",
        "SET VARIABLE x = 1",
        "SET threads = 1",
        "RESET threads",
        "PRAGMA database_size",
        "CALL pragma_version()",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO orders SELECT * FROM orders",
        "UPDATE orders SET amount = 1",
        "DELETE FROM orders",
        "DROP TABLE orders",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "EXPLAIN SELECT COUNT(*) FROM orders",
        "EXPLAIN ANALYZE SELECT COUNT(*) FROM orders",
        "SUMMARIZE orders",
        "DESCRIBE orders",
        "SHOW TABLES",
        "SELECT COUNT(*) FROM duckdb_tables()",
        "SELECT estimated_size FROM duckdb_tables",
        "SELECT COUNT(*) FROM pragma_storage_info('orders')",
        "SELECT COUNT(*) FROM information_schema.tables",
        "SELECT COUNT(*) FROM orders; SELECT COUNT(*) FROM orders",
        "WITH x AS (INSERT INTO orders VALUES (1) RETURNING *) SELECT COUNT(*) FROM x",
    ],
)
def test_c6_c17_c23_no_text_reads_or_writes_anything_but_declared_tables(neighbours, text):
    """C6, C17, C23: budgets, settings, catalogues, statistics and undeclared tables don't exist for a question."""
    refusals = []
    for one in neighbours:
        with pytest.raises(Refused) as refused:
            one.curator.sql(text, epsilon=1, analyst="ana")
        refusals.append((refused.value.code, str(refused.value)))
        assert one.engine.seen == []
        assert set(one.spent().values()) == {(0, 0)}
    assert refusals[0] == refusals[1]


def test_c23_a_table_the_policy_does_not_name_is_unknown(shop, make):
    """C23: fail closed. The same refusal whether the table exists or not, and for a column that isn't declared."""
    import duckdb

    one = shop(make.crowd())
    one.close()
    with duckdb.connect(one.directory / "shop.duckdb") as database:
        database.execute("CREATE TABLE salaries (user_id BIGINT, pay DOUBLE)")
        database.execute("ALTER TABLE orders ADD COLUMN iban VARCHAR")
        database.execute("CREATE VIEW everything AS SELECT * FROM orders")
    again = make.open_shop(one.directory)
    try:
        for there, missing in (("salaries", "celeries"), ("everything", "anything")):
            told = []
            for name in (there, missing):
                with pytest.raises(Refused) as refused:
                    again.curator.sql(f"SELECT COUNT(*) FROM {name}", epsilon=1)
                told.append(str(refused.value).replace(name, "…"))
            assert told[0] == told[1]
        for name in ("iban", "iwan"):
            with pytest.raises(Refused) as refused:
                again.curator.sql(f"SELECT COUNT(*) FROM orders WHERE {name} IS NULL", epsilon=1)
            assert refused.value.code == "unknown_column"
        assert again.engine.seen == []
    finally:
        again.close()


def test_c17_no_exact_count_is_shown_anywhere(shop, make, forked):
    """C17: not in quotes, EXPLAIN, errors, the command line's check, price, budget and ledger."""
    one = shop(make.crowd(MANY), **ZCDP)
    shown = []
    for sql in QUESTIONS:
        shown.append(str(one.curator.price(sql, epsilon=1)))
        shown.append(str(one.curator.sql(f"EXPLAIN PRIVACY {sql}", epsilon=1).to_pylist()))
        shown.append(repr(one.curator.price(sql, epsilon=1)))
    for wrong in (
        "SELECT amount FROM orders",
        "SELECT MAX(amount) FROM orders",
        "SELECT COUNT(*) FROM orders LIMIT 'x'",
    ):
        with pytest.raises(DitherError) as problem:
            one.curator.sql(wrong, epsilon=1)
        shown.append(str(problem.value))
    assert one.engine.seen == []
    one.close()
    for command in (
        ["check"],
        ["price", QUESTIONS[0], "-e", "1"],
        ["budget"],
        ["ledger", "list"],
        ["ledger", "verify"],
    ):
        done = forked(*command, "-p", one.policy)
        assert done.status == 0, done.err
        shown += [done.out, done.err]
    keys = {"".join(c for c in text if c.isdigit() or c in " .\n,=(") for text in shown}
    words = {word.strip(".,=()") for text in keys for word in text.split()}
    assert str(MANY) not in words


def test_c17_answers_are_not_clamped_to_the_truth(shop, make):
    """C17: noise goes both ways; a COUNT is above the truth about as often as below it."""
    one = shop(make.crowd(MANY), unit='privacy_unit_column = "user_id"')
    found = [one.curator.sql(QUESTIONS[0], epsilon=0.2 + n / 10**6).scalar() for n in range(60)]
    above, below = sum(n > MANY for n in found), sum(n < MANY for n in found)
    # each side has a probability of 0.45; so few on one side have a chance below 1e-9
    assert min(above, below) >= 5


@pytest.mark.parametrize(
    "text", [QUESTIONS[0], "SELECT amount FROM orders", "SELECT COUNT(*) AS n FROM orders WHERE amount > 3"]
)
def test_c5_answers_and_refusals_leave_at_multiples_of_the_step(shop, make, monkeypatch, text):
    """C5: how long the engine took is not seen; also for what is refused or comes from the record."""
    step = 0.25
    one = shop(make.crowd(), step=str(step))
    clock, slept = [0.0], []
    monkeypatch.setattr("dither.curator.answer_time.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "dither.curator.answer_time.time.sleep", lambda seconds: (slept.append(seconds), pass_time(seconds))
    )

    def pass_time(seconds):
        clock[0] += seconds

    run = one.engine.run

    def slowly(measurement, *, salt):
        pass_time(delays[len(slept)])
        return run(measurement, salt=salt)

    one.engine.run = slowly
    delays = (0.001, 0.2, 0.26, 1.7)
    for place in range(len(delays)):
        began = clock[0]
        with contextlib.suppress(Refused):
            one.curator.sql(text, epsilon=1 + place)
        took = clock[0] - began
        assert took / step == pytest.approx(round(took / step), abs=1e-9)
        assert took > 0
    assert len(slept) == 4


def test_c5_the_step_is_really_waited_for(shop, make):
    """C5: on the real clock, an answer from the record takes as long as a fresh one."""
    one = shop(make.crowd(), step="0.5")
    for _ in range(2):
        began = time.monotonic()
        one.curator.sql(QUESTIONS[0], epsilon=1)
        assert time.monotonic() - began >= 0.5


def test_c5_rounding_holds_for_failures_and_for_computations(shop, make, monkeypatch):
    """C5: whatever reads data waits: a failure, and a computation that is handed the table."""
    one = shop(make.crowd(), step="0.25")
    waited = []
    monkeypatch.setattr(answer_time.UnderWay, "_wait", lambda self, started: waited.append(started))

    class Mean:
        table, columns, rows = "orders", ("amount",), 3

        def loss(self):
            from dither.privacy import PureLoss

            return PureLoss(1)

        def key(self):
            return "mean"

        def release(self, table):
            raise ValueError("secret")

    with pytest.raises(DitherError):
        one.curator.run(Mean())
    one.engine.run = None
    with pytest.raises(DitherError):
        one.curator.sql(QUESTIONS[0], epsilon=1)
    assert len(waited) == 2


def test_c22_suppression_is_noisy_and_paid(shop, make):
    """C22: whether a group is shown is drawn, not decided by a count: groups of one size meet both fates."""
    settings = {"delta_budget": "0.2", "epsilon_budget": "40", "unit": 'privacy_unit_column = "user_id"'}
    selection = shop([], **settings).curator.price(QUESTIONS[3], epsilon=1).priced.selection
    size = min(range(1, selection.enough + 1), key=lambda n: abs(selection.mechanism.keep_probability(n) - 0.5))
    chance, groups = float(selection.mechanism.keep_probability(size)), 200
    one = shop([make.order(100 * p + n, product=f"p{p}") for p in range(groups) for n in range(size)], **settings)
    shown = one.curator.sql(QUESTIONS[3], epsilon=1).table.num_rows
    least, most = stats.binom.ppf([0.5e-9, 1 - 0.5e-9], groups, chance)
    assert 0 < least <= shown <= most < groups
    assert one.spent()["shop"][1] > 0


def test_a_forgotten_analyst_is_refused(shop, make):
    """C6: a new name is not a new budget."""
    one = shop(make.crowd(), epsilon_budget="2")
    with pytest.raises(Refused) as refused:
        one.curator.sql(QUESTIONS[0], epsilon=1, analyst="eve")
    assert refused.value.code == "unknown_analyst"
    one.close()
    text = one.policy.read_text().replace("adjacency", 'analysts = "any"\nadjacency')
    one.policy.write_text(text)
    again = make.open_shop(one.directory)
    try:
        answered = 0
        for number in range(5):
            try:
                again.curator.sql(
                    f"SELECT COUNT(*) FROM orders WHERE amount > {number}", epsilon=1, analyst=f"eve{number}"
                )
                answered += 1
            except (DitherError, LedgerError):
                pass
        assert answered == 2
    finally:
        again.close()
