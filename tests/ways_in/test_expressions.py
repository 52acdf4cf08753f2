"""Expressions that fail only if somebody is in the data: no error, no difference in charge, nothing in any text."""

import logging
import traceback

import duckdb
import pytest

from dither.cli.main import main
from dither.errors import DitherError, Failed, Refused
from support.sizes import some

SECRET = "secret-7391"
# Expressions that have a value for everybody in the crowd and none for the odd row.
ODD = {"amount": 13.0, "quantity": 2**63 - 1, "remark": SECRET, "day": "9999-12-31"}
FAILING = [
    "1 / (amount - 13)",
    "100 // (13 - CAST(amount AS INTEGER))",
    "100 % (13 - CAST(amount AS INTEGER))",
    "sqrt(12 - amount)",
    "ln(13 - amount)",
    "log10(13 - amount)",
    "log2(13 - amount)",
    "quantity * 1000000",
    "quantity + 1000000",
    "-2 - quantity",
    "CAST(CASE WHEN amount = 13 THEN remark ELSE '1' END AS INTEGER)",
    "CAST(CASE WHEN amount = 13 THEN remark ELSE '1.5' END AS DOUBLE)",
    "CAST(CASE WHEN amount = 13 THEN remark ELSE '2024-01-01' END AS DATE)",
    "CAST(CASE WHEN amount = 13 THEN remark ELSE '2024-01-01 10:00:00' END AS TIMESTAMP)",
    "CAST(CASE WHEN amount = 13 THEN remark ELSE 'true' END AS BOOLEAN)",
    "CAST(CASE WHEN amount = 13 THEN 1e300 ELSE 1 END AS INTEGER)",
    "day + INTERVAL 100 YEAR",
    "day + INTERVAL 1 DAY",
    "CAST(quantity * 1.0 AS INTEGER) * 10000000000",
]
# Doubles that overflow without an error: infinite or NaN for the odd row, a number for the crowd.
OVERFLOWING = ["power(quantity, 1000)", "exp(amount * amount * amount)", "exp(amount * amount * amount) * 0"]
# What would let an analyst raise an error on purpose, or steer by patterns that can be wrong.
NEVER = [
    "error(remark)",
    "regexp_matches(remark, '(')",
    "chr(-1)",
    "factorial(quantity)",
    "strptime(remark, '%Y')",
    "make_date(quantity, 1, 1)",
    "json_extract(remark, '$')",
    "remark[0]",
    "repeat(remark, 1000000000)",
    "amount::UTINYINT::VARCHAR || getenv('HOME')",
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory, make):
    """The same shop without and with the odd row."""
    crowd = make.crowd()
    shops = []
    for name, rows in (("without", crowd), ("with", [*crowd, make.order(99, **ODD)])):
        directory = make.write_shop(tmp_path_factory.mktemp(name), rows, quantities=f"[{-(2**63)}, {2**63 - 1}]")
        shops.append(make.open_shop(directory))
    yield shops
    for one in shops:
        one.close()


def behaviour(shop, sql, **asked):
    """Everything that can be seen from outside, but for the noise."""
    before = shop.spent()
    try:
        quote = shop.curator.price(sql, epsilon=1, **asked)
        answer = shop.curator.sql(sql, epsilon=1, **asked)
        seen = (quote.charge, quote.epsilon, answer.table.schema, answer.table.num_rows, answer.cost.epsilon)
    except DitherError as problem:
        seen = (type(problem).__name__, str(problem))
    after = shop.spent()
    return seen, {name: after[name][0] - before.get(name, (0, 0))[0] for name in after}


@pytest.mark.parametrize("expression", FAILING)
def test_c10_an_expression_that_fails_for_one_row(pair, expression):
    """C10: the odd row's value is NULL; answer, charge and errors are those of the shop without it."""
    without, with_odd = pair
    kept = f"SELECT COUNT(*) AS n FROM orders WHERE ({expression}) IS NOT NULL"
    assert behaviour(without, kept) == behaviour(with_odd, kept)
    kept = kept.replace("COUNT(*)", "COUNT(user_id)")
    assert without.measured(kept) == with_odd.measured(kept) == [([], [[30]], [], [])]


@pytest.mark.parametrize(
    "expression", [e for e in (*OVERFLOWING, *FAILING) if "day +" not in e and "AS DATE" not in e and "AS T" not in e]
)
@pytest.mark.parametrize("place", ["aggregate", "CASE", "WHERE"])
def test_c10_wherever_the_expression_stands(pair, expression, place):
    """C10: the same where it is summed, ranked or compared; one more person moves nothing but their own part."""
    number = f"CASE WHEN {expression} THEN 1 ELSE 0 END" if "BOOLEAN" in expression else expression
    if place == "WHERE":
        sql = f"SELECT COUNT(*) AS n FROM orders WHERE ({number}) > 0 OR ({number}) <= 0"
    elif place == "CASE":
        sql = f"SELECT COUNT(*) AS n FROM orders GROUP BY CASE WHEN ({number}) < 3 THEN 'low' ELSE 'other' END"
    else:
        clamped = f"LEAST(GREATEST(CAST({number} AS DOUBLE), 0), 10)"
        aggregates = ", ".join(f"{name}({clamped})" for name in ("SUM", "AVG", "MEDIAN", "VAR_SAMP"))
        sql = f"SELECT {aggregates} FROM orders WHERE ({number}) IS NOT NULL"
    seen = [behaviour(shop, sql) for shop in pair]
    assert seen[0] == seen[1]
    assert seen[0][0][0] != "Failed"
    assert all(spent == 10**12 for name, spent in seen[0][1].items() if name in ("shop", "shop/owner"))


@pytest.mark.parametrize("expression", NEVER)
def test_c10_c24_functions_that_raise_or_have_effects_are_refused(pair, expression):
    """C10, C24: no such function exists for analysts; nothing is charged and the refusal is the same for both shops."""
    seen = [behaviour(shop, f"SELECT COUNT(*) AS n FROM orders WHERE ({expression}) IS NOT NULL") for shop in pair]
    assert seen[0] == seen[1]
    assert seen[0][0][0] == "Refused"
    assert not any(seen[0][1].values())


@pytest.mark.parametrize(
    "constant",
    [
        "1 / 0",
        "1 // 0",
        "1 % 0",
        "CAST('x' AS INTEGER)",
        "sqrt(-1)",
        "ln(0)",
        "9223372036854775807 + 1",
        "DATE '9999-12-31' + INTERVAL 1 DAY",
    ],
)
@pytest.mark.parametrize("rows", [0, 5])
def test_c10_constants_that_fail(shop, make, constant, rows):
    """C10: an engine that folds constants fails only if a row is read; here an empty table behaves like a full one."""
    one = shop(make.crowd(rows))
    sql = f"SELECT COUNT(*) AS n FROM orders WHERE ({constant}) IS NOT NULL"
    assert one.measured(sql) == [([], [[0]], [], [])]


@pytest.mark.parametrize(
    "after",
    [
        "n / 0",
        "sqrt(-n)",
        "CAST('x' || n AS INTEGER)",
        "CAST(n AS INTEGER) // 0",
        "exp(n * 1000)",
        "DATE '9999-12-31' + INTERVAL (n) DAY",
    ],
)
def test_c10_post_processing_does_not_fail_either(pair, after):
    """C10: after the charge an error would lose the answer that was paid for."""
    for shop in pair:
        try:
            answer = shop.curator.sql(f"SELECT {after} AS x FROM (SELECT COUNT(*) AS n FROM orders) AS t", epsilon=1)
        except Refused:
            continue
        assert answer.table.num_rows == 1


class Broken:
    """An engine that fails with a message that quotes data, as engines do."""

    def __init__(self, engine):
        self.engine = engine

    def run(self, measurement, *, salt):
        raise duckdb.ConversionException(f"could not convert string '{SECRET}' to INT64")

    def __getattr__(self, name):
        return getattr(self.engine, name)


def test_c11_no_message_of_the_engine_reaches_an_analyst(shop, caplog):
    """C11: neither in the error, nor in its traceback, nor in what the ledger notes beside the charge."""
    one = shop([])
    one.curator._vault.execution._engine = Broken(one.engine)
    with caplog.at_level(logging.DEBUG), pytest.raises(Failed) as caught:
        one.curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon=1, analyst="ana")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(caught.value.args)
    assert caught.value.receipt
    notes = [entry.body.get("note") for entry in one.curator.ledger.entries()]
    assert any(notes)
    assert SECRET not in str(notes)
    # what says the cause is the owner's alone: the owner's log and the ledger's record of the failure
    assert {record.name for record in caplog.records if SECRET in (record.exc_text or "") + record.getMessage()} <= {
        "dither.curator"
    }
    assert [e.kind.value for e in one.curator.ledger.entries() if SECRET in str(e.body)] == ["failed"]


def test_c11_failing_costs_the_same_and_is_redeemed_once(shop):
    """C11, C20: no refund after a failure, which may depend on the data; the same question uses the receipt."""
    one = shop([])
    healthy = one.curator._vault.execution._engine
    one.curator._vault.execution._engine = Broken(one.engine)
    sql = "SELECT COUNT(*) AS n FROM orders"
    with pytest.raises(Failed):
        one.curator.sql(sql, epsilon=1, analyst="ana")
    spent = one.spent()
    assert spent["shop"] == spent["shop/ana"] == (10**12, 0)
    one.curator._vault.execution._engine = healthy
    assert one.curator.sql(sql, epsilon=1, analyst="ana").cost.charged is False
    assert one.spent() == spent


def test_c11_the_command_line_shows_no_data_in_errors(shop, capfd, monkeypatch):
    """C11: a failure on the command line shows the receipt and not the cause."""
    one = shop([])
    one.close()
    from dither.engines import DuckDBEngine

    monkeypatch.setattr(DuckDBEngine, "run", Broken.run)
    monkeypatch.setattr(logging.lastResort, "level", logging.CRITICAL + 1)
    assert main(["ask", "SELECT COUNT(*) AS n FROM orders", "-e", "1", "-p", str(one.policy), "--as", "ana"]) == 1
    shown = "".join(capfd.readouterr())
    assert "receipt" in shown
    assert SECRET not in shown


POISONS = ["nan", "inf", "-inf", "1.7976931348623157e308", "-0.0", None]


# by day each poison under one kind of unit, and the largest under both
@pytest.mark.parametrize(
    ("poison", "unit"), some([(poison, unit) for unit in ("row", "column") for poison in [*POISONS, "inf"]], 2)
)
def test_c12_one_poisoned_row_moves_a_sum_by_its_bound_at_most(shop, make, poison, unit):
    """C12: NaN counts as missing, infinities and huge numbers are clamped."""
    kind = {} if unit == "column" else {"unit": 'privacy_unit = "row"'}
    usual = make.crowd(20)
    clean, dirty = shop(usual, **kind), shop([*usual, make.order(99, amount=poison)], **kind)
    sql = "SELECT SUM(amount) AS s FROM orders"
    before, after = (one.measured(sql)[0][1][0][0] for one in (clean, dirty))
    assert before == 20 * 20  # in halves
    assert after - before == {"inf": 200, "1.7976931348623157e308": 200}.get(poison, 0)
    several = "SELECT AVG(amount), STDDEV(amount), MEDIAN(amount), SUM(amount * 2 - 1) FROM orders"
    values = dirty.curator.sql(several, epsilon=1).to_pylist()[0].values()
    assert all(value is not None and abs(value) < 10**6 for value in values)


def test_c12_a_poisoned_row_stays_in_its_own_group(shop, make):
    """C12: nothing of a NaN row gets into another group's cell."""
    usual = [make.order(number, city=city) for number, city in enumerate(["Bern", "Lyon"] * 10)]
    one = shop([*usual, make.order(99, amount=float("nan"))])
    keys, totals, *_ = one.measured("SELECT city, SUM(amount) AS s FROM orders GROUP BY city")[0]
    assert keys == [{"k0": "Bern"}, {"k0": "Lyon"}]
    assert totals[0] == [200, 200]
