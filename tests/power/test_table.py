"""The table of statistical tests is complete, and its margins are wide enough."""

import ast
import csv
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
ALPHA, LARGEST_MISS = 1e-9, 1e-6
# six standard deviations are a chance of 1e-9; below 1e-6 even if the mean is off by one of them
MARGIN = 6.0
BY_SEED = {"tests/noise/test_laws.py::test_few_draws_take_the_same_steps_whatever_they_are"}
COMPARED = re.compile(r"(?:statistics\.alpha|\bALPHA)\b|\benough\(")
# Other statistics than a p-value, with the law of each under its mutant; margins are beyond the 6 of α.
ELSEWHERE = {
    "tests/curator/test_differencing.py::test_the_best_threshold_attack_is_bounded_by_epsilon": (
        "that of test_a_curator_with_too_little_noise_is_caught"
    ),
    "tests/curator/test_differencing.py::test_what_is_released_by_the_curator_itself_is_bounded_too": (
        "that of test_a_curator_with_too_little_noise_is_caught"
    ),
    "tests/local/test_ranges.py::test_distribution_functions_are_unbiased": "drawn from a seed: the same in every run",
    "tests/local/test_sketch_reading.py::test_unbiased_with_the_stated_variance_over_hash_functions": (
        "both mutants are 12 of their standard deviations or more beyond their limits, seen in 20 runs"
    ),
    "tests/noise/test_coverage.py::test_a_fault_of_two_hundredths_is_caught": "the law itself",
    "tests/noise/test_coverage.py::test_every_form_covers_at_its_stated_rate": (
        "test_a_fault_of_two_hundredths_is_caught"
    ),
    "tests/noise/test_coverage.py::test_chosen_rows_hold": "test_a_fault_of_two_hundredths_is_caught",
    "tests/noise/test_coverage.py::test_values_that_noise_did_not_hide_hold": (
        "test_values_that_noise_did_not_hide_as_if_nobody_had_chosen_failed"
    ),
    "tests/noise/test_coverage.py::test_values_that_noise_did_not_hide_as_if_nobody_had_chosen_failed": (
        "binomial: 30 % of 150 where 82 % pass, 13 standard errors"
    ),
    "tests/noise/test_coverage.py::test_narrower_bars_are_noticed": (
        "binomial: 98.1 % of 40,000 where 98.7 % pass, nine standard errors"
    ),
    "tests/noise/test_coverage.py::test_simulated_intervals_of_expressions_failed": (
        "binomial: 53 % of 2000 where 90 % pass"
    ),
    "tests/noise/test_coverage.py::test_first_order_intervals_of_variances_failed": (
        "binomial: 92.4 % of 20,000 where 94.1 % pass"
    ),
    "tests/noise/test_coverage.py::test_chosen_rows_as_if_nobody_had_chosen_failed": (
        "binomial: 88 % of 20,000 where 94.1 % pass"
    ),
    "tests/noise/test_coverage.py::test_asked_and_charged_they_cover_too": "its mutant isn't drawn",
    "tests/noise/test_laws.py::test_moments": "normal: the mutants are moved by 12.6 standard errors or more",
    "tests/noise/test_release.py::test_errors_are_as_predicted": "binomial: 5 % of the scale are 20 standard errors",
    "tests/unit/test_conformance.py::test_cheaper_mutants_fail": "test_cheaper_mutants_are_hardly_ever_missed",
    "tests/unit/test_subsampled.py::test_scaled_error_covers": "binomial: 2600 of 3000 where 403 are allowed",
    "tests/unit/test_tree_counter.py::test_error_is_the_quantile": "binomial: 12,600 of 10^5 where 10,574 are allowed",
}
# what a clock says, and how long something says that it took; an ``own_clock`` is none
CLOCK = re.compile(
    r"\btime\.(?:monotonic|perf_counter|process_time|thread_time|time)(?:_ns)?\(\)|(?<!own_)\bclock\.now\(\)|\.seconds\b"
)


@pytest.fixture(scope="module")
def table():
    with (HERE / "table.csv").open(encoding="utf-8", newline="") as lines:
        return {row["test"]: row for row in csv.DictReader(lines)}


def functions(path):
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            name = f"tests/{path.relative_to(TESTS).as_posix()}::{node.name}"
            yield name, "\n".join(lines[node.lineno - 1 : node.end_lineno])


def test_every_test_that_compares_a_p_value_is_in_the_table(table):
    """As far as its text tells: it names α, and draws without a seed."""
    compares = {
        name
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.parent != HERE
        for name, text in functions(path)
        # a seed says the same in every run
        if COMPARED.search(text) and "InsecureSeededSource" not in text
    }
    assert len(compares) > 80
    assert compares - set(table) - set(ELSEWHERE) - BY_SEED == set(), "run python tests/power/measure.py on these"


def test_the_table_names_tests_that_exist(table):
    known = {name for path in TESTS.rglob("test_*.py") for name, _ in functions(path)}
    assert {*table, *ELSEWHERE} - known == set()


def test_every_mutant_has_a_margin_and_every_test_a_fault(table):
    assert {
        name: row["margin"] for name, row in table.items() if row["mutants"] != "0" and float(row["margin"]) < MARGIN
    } == {}
    assert [name for name, row in table.items() if row["mutants"] != "0" and not row["fault"]] == []


def test_one_run_of_all_is_hardly_ever_wrong(table):
    """So many p-values at 1e-9 each, and mutants that are missed no more often than the weakest of their test."""
    p_values = sum(int(row["p-values"]) for row in table.values())
    missed = sum(int(row["mutants"]) * float(row["missed"] or 0) for row in table.values())
    assert p_values * ALPHA + missed < LARGEST_MISS


def clocked(tree):
    """Lines of assertions that what a clock says is below something, directly or by a name that holds it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        held = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and CLOCK.search(ast.unparse(node.value))
            for target in node.targets
            if isinstance(target, ast.Name)
        }

        def told(side, held=held):
            names = {name.id for name in ast.walk(side) if isinstance(name, ast.Name)}
            return bool(held & names or CLOCK.search(ast.unparse(side)))

        for node in ast.walk(function):
            for each in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
                if isinstance(each, ast.Compare):
                    sides = [each.left, *each.comparators]
                    for sign, left, right in zip(each.ops, sides, sides[1:], strict=False):
                        smaller = left if isinstance(sign, ast.Lt | ast.LtE) else right
                        if isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and told(smaller):
                            yield node.lineno


def test_no_test_asserts_on_a_clock():
    """That a step was waited for (at least so long) is no matter of what else the machine does."""
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        for line in clocked(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()
    mutants = (
        "assert time.time() - a < 5",
        "t = time.monotonic() - a\n    assert t < 5",
        "assert 5 > time.time() - a",
        "assert clock.now() - a < 1.7",
        "a = clock.now()\n    assert f(a) - a <= 1.7",
        "assert found.seconds < 3",
        "assert 3 >= found.seconds",
    )
    right = ("assert own_clock.passed < 2", "assert found.seconds >= 0.1", "assert found.seconds == own_clock.passed")
    seen = [bool(list(clocked(ast.parse(f"def f(a):\n    {text}")))) for text in (*mutants, *right)]
    assert seen == [True] * len(mutants) + [False] * len(right)
