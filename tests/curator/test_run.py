"""Curator.run: computations that state their loss are charged before they see rows, of which each unit gives few."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dither import Adjacency, DiscreteGaussian, DiscreteLaplace, Sensitivity
from dither.curator import Computation
from dither.engines import DuckDBEngine
from dither.engines.reference.engine import ReferenceEngine
from dither.errors import Failed, IncompatibleLosses, InvalidParameter, OutOfBudget, Refused
from dither.ledger import Account, Amount
from dither.privacy import PureLoss
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts

SALT = bytes(range(16))


@dataclass
class PrivateMean:
    """The mean of a clamped column: a noisy sum in quarters over a noisy count, each with half of the loss."""

    table: str = "orders"
    columns: tuple[str, ...] = ("amount",)
    rows: int = 2
    most: int = 50
    epsilon: Fraction = Fraction(1, 2)
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    seen: list = field(default_factory=list, compare=False)

    def mechanisms(self):
        half = self.epsilon / 2
        return DiscreteLaplace(4 * self.most * self.rows / half), DiscreteLaplace(self.rows / half)

    def loss(self):
        sums, counts = self.mechanisms()
        return sums.loss(Sensitivity.l1(4 * self.most * self.rows, adjacency=self.adjacency)) + counts.loss(
            Sensitivity.l1(self.rows, adjacency=self.adjacency)
        )

    def key(self):
        return f"private mean of {self.columns} in quarters, at most {self.most}, ε = {self.epsilon}"

    def release(self, table):
        self.seen.append(table)
        sums, counts = self.mechanisms()
        quarters = np.clip(np.rint(4 * table.column(0).to_numpy()), 0, 4 * self.most).astype(np.int64)
        total = int(sums.release(int(quarters.sum())))
        return {"mean": total / 4 / max(1, int(counts.release(table.num_rows)))}


def spent(made, *path):
    found = made.ledger.balance(Account(path))
    return found.spent if found else Amount()


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_computation_is_charged_its_loss_once_and_answered_from_the_record(opened, delta):
    made = opened(delta=delta)
    mean = PrivateMean()
    assert isinstance(mean, Computation)
    result = made.curator.run(mean)
    assert 15 < result["mean"] < 45
    if delta == "0":
        assert spent(made, "shop").main == spent(made, "shop", "owner").main == 10**12 // 2
    assert made.curator.run(PrivateMean()) == result
    assert made.engine.runs == 1
    assert mean.seen[0].column_names == ["amount"]
    # two rows of each unit, although everybody has four
    assert mean.seen[0].num_rows == 2 * 600


def test_the_charge_is_on_record_before_the_rows_are_handed_over(opened):
    made = opened(delta="0")
    balances = []

    class Watching(PrivateMean):
        def release(self, table):
            balances.append(spent(made, "shop").main)
            return super().release(table)

    made.curator.run(Watching())
    assert balances == [10**12 // 2]


def test_another_key_parameter_table_or_data_is_another_computation(opened):
    made = opened(delta="0")
    made.curator.run(PrivateMean())
    made.curator.run(PrivateMean(rows=1))
    made.curator.run(PrivateMean(columns=("pieces",)))
    assert made.engine.runs == 3
    changed = opened(delta="0", version="2", ledger=made.ledger, engine=made.engine)
    changed.curator.run(PrivateMean())
    assert spent(made, "shop").main == 2 * 10**12


@pytest.mark.parametrize(
    ("computation", "analyst", "code"),
    [
        (PrivateMean(table="nothing"), "owner", "unknown_table"),
        (PrivateMean(columns=("nothing",)), "owner", "unknown_column"),
        (PrivateMean(columns=("note",)), "owner", "unknown_column"),
        (PrivateMean(columns=()), "owner", "unknown_column"),
        (PrivateMean(adjacency=Adjacency.REPLACE), "owner", "adjacency"),
        (PrivateMean(epsilon=Fraction(51, 10)), "owner", "epsilon_too_large"),
        (PrivateMean(epsilon=Fraction(26, 100)), "bob", "epsilon_too_large"),
        (PrivateMean(), "eve", "unknown_analyst"),
    ],
)
def test_what_may_not_run_is_refused_free(opened, computation, analyst, code):
    made = opened(delta="0")
    with pytest.raises(Refused) as refusal:
        made.curator.run(computation, analyst=analyst)
    assert (refusal.value.code, bool(refusal.value.hint)) == (code, True)
    assert made.engine.runs == 0
    assert spent(made, "shop").main == 0


def test_a_misspelt_name_is_told_the_nearest_that_is_given_out(opened):
    made = opened(delta="0")
    hints = []
    for misspelt in ({"table": "ordres"}, {"columns": ("pieecs",)}, {"columns": ("noet",)}):
        with pytest.raises(Refused) as refusal:
            made.curator.run(PrivateMean(**misspelt))
        hints.append(refusal.value.hint)
    use = "Use columns that the policy declares and doesn't hide."
    assert hints[0].startswith("Did you mean orders? Private tables are: ")
    assert hints[1:] == [f"Did you mean pieces? {use}", use]


def test_one_question_s_cap_holds_in_zcdp_too(opened):
    made = opened(most="0.5")
    rho = made.curator.price("SELECT COUNT(*) AS n FROM orders", epsilon="1/2").priced.budget.main

    class Counted(PrivateMean):
        noise = DiscreteGaussian(10)

        def loss(self):
            return self.noise.loss(Sensitivity.l2(self.rows))

        def release(self, table):
            return int(self.noise.release(table.num_rows))

    assert Counted().loss().zcdp() > rho
    with pytest.raises(Refused, match="at most ρ"):
        made.curator.run(Counted())
    quieter = Counted()
    quieter.noise = DiscreteGaussian(40)
    assert quieter.loss().zcdp() < rho
    assert abs(made.curator.run(quieter) - 1200) < 400


def test_a_loss_without_a_view_in_the_budget_s_currency_is_refused(opened):
    made = opened(delta="0")
    unlimited = PrivateMean()
    unlimited.loss = lambda: DiscreteGaussian(10).loss(Sensitivity.l2(1))
    with pytest.raises(IncompatibleLosses, match="pure ε"):
        made.curator.run(unlimited)
    assert spent(made, "shop").main == 0


def test_rows_must_be_a_whole_number(opened):
    with pytest.raises(InvalidParameter, match="rows"):
        opened(delta="0").curator.run(_without_rows())


def _without_rows():
    computation = PrivateMean()
    computation.loss = lambda: PureLoss(1)
    computation.rows = 0
    return computation


def test_out_of_budget_runs_nothing(opened):
    made = opened(delta="0", budget="0.75", most="0.75")
    made.curator.run(PrivateMean())
    with pytest.raises(OutOfBudget):
        made.curator.run(PrivateMean(rows=1))
    assert made.engine.runs == 1


def test_a_computation_that_fails_keeps_its_receipt_and_can_be_redeemed(opened):
    made = opened(delta="0")
    broken = PrivateMean()
    broken.release = lambda table: 1 / 0
    with pytest.raises(Failed) as failure:
        made.curator.run(broken)
    assert "division" not in str(failure.value)
    paid = spent(made, "shop")
    assert made.curator.run(PrivateMean())["mean"] > 0
    assert spent(made, "shop") == paid


@pytest.mark.parametrize(
    "result",
    [
        pa.table({"x": [1, 2], "y": ["a", None]}),
        np.array([[1.5, -0.0], [np.inf, 3.0]]),
        {"a": [1, 2.5, "x", None, True]},
        7,
        np.float64(2.5),
        np.int64(2),
        [np.int32(1), np.bool_(True)],
    ],
)
def test_what_is_released_comes_back_as_it_was(opened, result):
    made = opened(delta="0")
    computation = PrivateMean()
    computation.release = lambda table: result
    for _ in range(2):
        found = made.curator.run(computation)
        if isinstance(result, pa.Table):
            assert found.equals(result)
        else:
            np.testing.assert_equal(found, result)


@pytest.mark.parametrize("result", [object(), {1, 2}, np.array([object()])])
def test_what_has_no_form_is_a_failure_with_its_reason_in_the_ledger(opened, result):
    made = opened(delta="0")
    computation = PrivateMean()
    computation.release = lambda table: result
    with pytest.raises(Failed):
        made.curator.run(computation)
    (cause,) = [entry.body["cause"] for entry in made.ledger.entries() if entry.kind.value == "failed"]
    assert "a computation m" in cause


# ---------------------------------------------------------------- rows of engines


def schema_of(unit):
    columns = {
        "person": ColumnFacts(name="person", kind=Kind.INTEGER),
        "x": ColumnFacts(name="x", kind=Kind.DOUBLE),
        "t": ColumnFacts(name="t", kind=Kind.TEXT),
    }
    return Schema({"visits": TableFacts(name="visits", private=True, columns=columns, unit_column=unit)})


VISITS = pa.table(
    {
        "person": pa.array([1, 1, 1, 1, 2, None, 3, 3, 3, None], pa.int32()),
        "x": pa.array([1.0, 1.0, -0.0, 0.0, float("nan"), 5.0, None, 2.0, float("inf"), 1.0]),
        "t": ["b", "b", "a", "a", None, "z", "é", "Z", "a", "b"],
    }
)


def duckdb_of(tmp_path, table, unit, name="visits"):
    path = tmp_path / f"{name}.duckdb"
    with duckdb.connect(str(path)) as database:
        database.register("made_up", table)
        database.execute("CREATE TABLE visits AS SELECT * FROM made_up")
    return DuckDBEngine.open(path, schema_of(unit), threads=1)


def reference_of(tmp_path, table, unit, name=""):
    return ReferenceEngine({"visits": table.to_pylist()}, schema_of(unit))


def listed(table):
    return [tuple(map(repr, row.values())) for row in table.to_pylist()]


@pytest.mark.parametrize("unit", [None, "person"])
def test_rows_within_the_bound_are_all_there_in_one_order(tmp_path, unit):
    reference = ReferenceEngine({"visits": VISITS.to_pylist()}, schema_of(unit))
    wanted = reference.rows("visits", ["t", "x"], rows=10, salt=SALT)
    assert wanted.num_rows == (10 if unit is None else 8)
    with duckdb_of(tmp_path, VISITS, unit) as engine:
        found = engine.rows("visits", ["t", "x"], rows=10, salt=SALT)
    assert found.schema == wanted.schema == pa.schema([("t", pa.string()), ("x", pa.float64())])
    assert listed(found) == listed(wanted)
    shuffled = VISITS.take(np.random.default_rng(3).permutation(VISITS.num_rows))
    with duckdb_of(tmp_path, shuffled, unit, "shuffled") as engine:
        assert listed(engine.rows("visits", ["t", "x"], rows=10, salt=SALT)) == listed(wanted)


@pytest.mark.parametrize("make", [duckdb_of, reference_of])
def test_a_unit_gives_few_rows_chosen_from_its_own_alone(tmp_path, make):
    maker = np.random.default_rng(11)
    person = maker.integers(0, 30, 400)
    table = pa.table({"person": person, "x": person + maker.integers(1, 9, 400) / 10, "t": ["t"] * 400})
    engine = make(tmp_path, table, "person")
    kept = engine.rows("visits", ["person", "x"], rows=3, salt=SALT)
    own = Counter(kept.column("person").to_pylist())
    assert own == {p: min(3, n) for p, n in Counter(person.tolist()).items()}
    engine.close()
    # without one unit, all others keep exactly what they had
    smaller = make(tmp_path, table.filter(pa.array(person != 7)), "person", name="smaller")
    left = smaller.rows("visits", ["person", "x"], rows=3, salt=SALT)
    assert listed(left) == [row for row in listed(kept) if row[0] != "7"]
    other = smaller.rows("visits", ["person", "x"], rows=3, salt=SALT[::-1])
    smaller.close()
    assert listed(other) != listed(left)


@pytest.mark.parametrize("make", [duckdb_of, reference_of])
def test_equal_rows_have_a_chance_each(tmp_path, make):
    """Nine rows of ten say 1.0: whether the odd one is kept is a matter of one tenth, not of one half."""
    units = 2000
    person, x = np.repeat(np.arange(units), 10), np.tile([2.0] + [1.0] * 9, units)
    table = pa.table({"person": person, "x": x, "t": ["t"] * 10 * units})
    engine = make(tmp_path, table, "person")
    kept = engine.rows("visits", ["x"], rows=1, salt=SALT).column("x").to_numpy()
    engine.close()
    assert kept.size == units
    odd = int((kept == 2.0).sum())
    # binomial(2000, 1/10): seven standard deviations
    assert abs(odd - 200) < 7 * np.sqrt(180)


def test_what_is_no_private_table_or_column_has_no_rows(tmp_path):
    with duckdb_of(tmp_path, VISITS, "person") as engine:
        for table, columns in (("nothing", ["x"]), ("visits", []), ("visits", ["x", "x"]), ("visits", ["y"])):
            with pytest.raises(InvalidParameter):
                engine.rows(table, columns, rows=1, salt=SALT)
        with pytest.raises(InvalidParameter, match="rows"):
            engine.rows("visits", ["x"], rows=0, salt=SALT)
        with pytest.raises(InvalidParameter, match="salt"):
            engine.rows("visits", ["x"], rows=1, salt=b"short")
