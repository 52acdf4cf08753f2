"""The table of statistical tests is complete, and its margins are wide enough."""

import ast
import csv
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
ALPHA, LARGEST_MISS = 1e-9, 1e-6
# six standard deviations are a chance of 1e-9; below 1e-6 even if the mean is off by one of them
MARGIN, RUNS = 6.0, 50
# a chance of 1e-6, beside the luck of the runs that told the mean by a law
ENOUGH = 4.8
# Rows whose mutants have a law of their own, and the test that works out the chance to miss them.
EXACT = {
    "tests/curator/test_accuracy.py::test_counts_and_sums_err_exactly_as_predicted": (
        "tests/curator/test_accuracy.py::test_quieter_noise_is_hardly_ever_missed"
    )
}
BY_SEED = {"tests/noise/test_laws.py::test_few_draws_take_the_same_steps_whatever_they_are"}
# α by its name, quantiles and tails of counts, limits in standard deviations, and chances of 1e-9 in words
COMPARED = re.compile(
    r"(?:statistics\.alpha|\bALPHA)\b|\benough\(|\bbinom\.(?:isf|ppf|sf|cdf)\(|\bstandard (?:error|deviation)s?\b"
    r"|\b6\.2 \*|\b[678] (?:\* sigma\b|/ math\.sqrt\()|(?:\bchances?\b|α)[^\n]*\b1e-9\b"
)
# Nothing is drawn, or what is drawn is the same in every run: no chance is involved.
NO_CHANCE = {
    "tests/attacks/test_detection.py::test_the_error_of_detection_is_that_of_repeated_runs",
    "tests/attacks/test_differencing.py::test_without_a_budget_averaging_finds_the_bit_and_with_one_it_does_not",
    "tests/curator/test_accuracy.py::test_quieter_noise_is_hardly_ever_missed",
    "tests/curator/test_run.py::test_equal_rows_have_a_chance_each",
    "tests/docs/test_local_and_central_page.py::test_what_is_measured_is_what_theory_says",
    "tests/local/test_rappor_decoding.py::test_more_candidates_than_bits_are_picked_by_half_of_the_cohorts",
    "tests/local/test_shuffle.py::test_many_users_with_a_third_law_against_chance",
    "tests/server/test_soak.py::test_what_can_not_be_told_is_a_fault",
    "tests/query/test_estimates.py::test_ratios_of_coarse_noise_are_covered_too",
    "tests/query/test_estimates.py::test_sums_of_three_coarse_noises_are_covered_too",
}
# Other statistics than a p-value, with the law of each under its mutant; margins are beyond the 6 of α.
ELSEWHERE = {
    "tests/attacks/test_ratings.py::test_the_whole_attack": "its docstring: over 20 standard deviations",
    "tests/audit/test_lower_bound.py::test_bounds_are_wrong_no_more_often_than_stated": (
        "test_an_auditor_that_certifies_on_the_draws_that_chose_is_caught"
    ),
    "tests/audit/test_lower_bound.py::test_an_auditor_that_certifies_on_the_draws_that_chose_is_caught": (
        "binomial: 120 of 120 in each of 6 runs, where 36 pass; of a share of 9 in 10 less than 1e-50 would"
    ),
    "tests/audit/test_lower_bound.py::test_normal_bounds_are_wrong_no_more_often_than_stated": (
        "binomial: bounds that are wrong in half of 150 runs pass, as 41 of them may, with a chance of 1e-8"
    ),
    "tests/audit/test_zoo.py::test_how_short_a_scale_is": (
        "normal: a scale that is 2 % off is 6.6 standard errors beyond the limit, which is six away"
    ),
    "tests/audit/test_zoo.py::test_false_alarms_are_as_rare_as_stated": (
        "binomial: 65 % of 100 where 32 pass: a chance of 1e-11 to miss the hasty auditor"
    ),
    "tests/curator/test_past.py::test_receipt_numbers_are_random": (
        "binomial: bits of which seven in ten are ones are 13 standard deviations beyond the limit, which is eight away"
    ),
    "tests/curator/test_shown_groups.py::test_groups_are_shown_as_often_as_predicted": (
        "binomial: the mutant shows 9 % of 300 where 87 % pass, and none of 60"
    ),
    "tests/local/test_comparison.py::test_a_theory_that_is_off_would_be_noticed": (
        "χ² of 1,000 squares: 2/3 of their mean is 7.5 standard deviations away"
    ),
    "tests/local/test_heavy_hitters.py::test_frequent_numbers_are_found_among_many": (
        "no mutant: what is told of each value is at a confidence of 0.999999, by bounds that are wider than need be"
    ),
    "tests/local/test_rappor.py::test_instantaneous_noise_is_fresh_and_permanent_noise_is_not": (
        "binomial: one of 512 bits of 240 reports is on the wrong side with a chance of 4e-14; fresh permanent noise, "
        "the fault, leaves every bit near the middle"
    ),
    "tests/local/test_sketch_reading.py::test_error_over_a_large_domain_is_within_five_per_cent_of_theory": (
        "normal: a theory that is 10 % off is seven standard errors beyond the limit, which is seven away"
    ),
    "tests/local/test_vectors.py::test_clients_and_aggregate_meet": (
        "normal: two coordinates that are taken for each other (22 for 0.75) are 9.7 standard deviations beyond"
    ),
    "tests/noise/test_release.py::test_the_error_of_an_average_is_as_predicted_at_the_end_of_its_bounds": (
        "binomial: 10 % of the scale are 10 standard errors beyond what passes"
    ),
    "tests/query/test_auto_bounds.py::test_a_single_unit_changes_what_is_found_no_more_than_the_loss_allows": (
        "binomial: noise of half the scale is 8.6 standard errors or more beyond the limit; right noise stays 8 away"
    ),
    "tests/mechanisms/test_noise_mechanisms.py::test_precision_attack_sees_nothing": (
        "binomial: a low bit that is 0 in 57 % is 7.9 standard errors beyond the limit, which is 6.3 away"
    ),
    "tests/mechanisms/test_tree_counter.py::test_sessions_have_the_stated_error": (
        "by the kurtosis of sums: variances of two and of four draws are 9 and 6 of their deviations beyond the limit"
    ),
    "tests/ways_in/test_channels.py::test_c17_answers_are_not_clamped_to_the_truth": (
        "binomial: 1.3e-10 for right noise; answers that are clamped to the truth have none on one side"
    ),
    "tests/ways_in/test_channels.py::test_c22_suppression_is_noisy_and_paid": (
        "binomial with α = 1e-9; a count that decides shows all groups of one size or none"
    ),
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
    "tests/noise/test_coverage.py::test_answers_about_units_by_group_cover": (
        "binomial: bars of three quarters cover at most 96.9 % of 10,000 where 98.3 % pass, eight standard errors"
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
    "tests/noise/test_quantile_intervals.py::test_a_fault_of_one_and_a_half_hundredths_is_caught": "the law itself",
    "tests/noise/test_quantile_intervals.py::test_each_end_misses_no_more_often_than_stated": (
        "test_a_fault_of_one_and_a_half_hundredths_is_caught"
    ),
    "tests/noise/test_quantile_intervals.py::test_ends_that_take_less_noise_into_account_are_noticed": (
        "binomial: of two sides, of which one has half of the draws or more, 5.9 % of 20,000 where 3.2 % pass: 16 "
        "standard errors"
    ),
    "tests/noise/test_quantile_intervals.py::test_a_release_counts_around_its_draws_alone": "its mutant isn't drawn",
    "tests/noise/test_laws.py::test_moments": "normal: the mutants are moved by 12.6 standard errors or more",
    "tests/noise/test_release.py::test_errors_are_as_predicted": "binomial: 5 % of the scale are 20 standard errors",
    "tests/mechanisms/test_conformance.py::test_cheaper_mutants_fail": "test_cheaper_mutants_are_hardly_ever_missed",
    "tests/mechanisms/test_subsampled.py::test_scaled_error_covers": "binomial: 2600 of 3000 where 403 are allowed",
    "tests/mechanisms/test_tree_counter.py::test_error_is_the_quantile": "binomial: 12,600 of 10^5, 10,574 allowed",
}
# what a clock says, and how long something says that it took; an ``own_clock`` is none
CLOCK = re.compile(
    r"\btime\.(?:monotonic|perf_counter|process_time|thread_time|time)(?:_ns)?\(\)|(?<!own_)\bclock\.now\(\)|\.seconds\b"
)


@pytest.fixture(scope="module")
def table():
    with (HERE / "table.csv").open(encoding="utf-8", newline="") as lines:
        return {row["test"]: row for row in csv.DictReader(lines)}


@cache
def functions(path):
    """Names and texts of a file's tests."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    return [
        (
            f"tests/{path.relative_to(TESTS).as_posix()}::{node.name}",
            "\n".join(lines[node.lineno - 1 : node.end_lineno]),
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


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
    assert len(compares) > 100
    assert compares - set(table) - set(ELSEWHERE) - BY_SEED - NO_CHANCE == set(), (
        "run python tests/power/measure.py on these"
    )


def test_the_table_names_tests_that_exist(table):
    known = {name for path in TESTS.rglob("test_*.py") for name, _ in functions(path)}
    assert {*table, *ELSEWHERE, *BY_SEED, *NO_CHANCE, *EXACT, *EXACT.values()} - known == set()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("assert p > ALPHA", True),
        ("most = stats.binom.isf(1e-9, 100, 0.1)", True),
        ("least, most = stats.binom.ppf([0.5e-9, 1 - 0.5e-9], groups, chance)", True),
        ("# within 8 standard deviations", True),
        ("assert abs(a - b) < 6.2 * error", True),
        ("assert far < 7 * sigma", True),
        ("slack = 7 / math.sqrt(trials)", True),
        ("# so few on one side have a chance below 1e-9", True),
        ("assert a == pytest.approx(b, rel=1e-9)", False),
        ("law = stats.binom.pmf(np.arange(n), n, p)", False),
    ],
)
def test_what_a_statistical_test_looks_like(text, seen):
    assert bool(COMPARED.search(text)) is seen


def test_every_mutant_has_a_margin_and_every_test_a_fault(table):
    assert {
        name: row["margin"] for name, row in table.items() if row["mutants"] != "0" and float(row["margin"]) < MARGIN
    } == {}
    assert [name for name, row in table.items() if row["mutants"] != "0" and not row["fault"]] == []


def test_the_table_says_where_each_deviation_is_from(table):
    """By its law √2, which Pearson's statistic and counts don't exceed, or by fifty runs.

    Where few runs tell by the law, their mean may have been lucky by six deviations of it: that is allowed for.
    """
    for name, row in table.items():
        few = row["mutants"] != "0" and int(row["runs"]) < 5
        assert row["deviation by"] == ("" if row["mutants"] == "0" else "law" if few else "runs"), name
        assert not few or row["deviation"] == "1.41", name
        if row["mutants"] != "0" and name not in EXACT:
            least = ENOUGH + MARGIN / int(row["runs"]) ** 0.5
            assert (float(row["margin"]) >= least) if few else (int(row["runs"]) >= RUNS), name


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
        # most files tell no time
        if CLOCK.search(text := path.read_text(encoding="utf-8"))
        for line in clocked(ast.parse(text))
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
