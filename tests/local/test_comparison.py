"""The list of protocols, trials on made-up people, and the table of all."""

import numpy as np
import pytest

from dither.errors import InvalidParameter
from dither.local.clients.base import PROTOCOLS as NAMES
from dither.local.core.protocol import protocol_of
from dither.local.frequency.kary import Kary
from dither.local.frequency.unary import Unary
from dither.local.lab.catalogue import PROTOCOLS, Purpose, Wanted, known_protocol
from dither.local.lab.comparison import HEADINGS, central_epsilon, compare
from dither.local.lab.simulation import simulate, zipf_shares
from support.sizes import at_night


def test_every_protocol_that_can_be_described_is_listed_but_several_attributes():
    made = {known.make(Wanted.of(1, domain=4)).name for known in PROTOCOLS.values()}
    assert made == set(NAMES) - {"attributes"}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_is_made_keeps_its_epsilon_and_comes_back_from_its_description(name):
    made = PROTOCOLS[name].make(Wanted.of("3/2", domain=5))
    assert 1.49 < made.loss().pure() <= 1.5
    assert protocol_of(made.describe()) == made


def test_labels_bounds_and_permanent_noise_are_passed_on():
    wanted = Wanted(epsilon=1, domain=("no", "yes"), bounds=(0, 24), permanent=3, length=16)
    assert known_protocol("oue").make(wanted) == Unary.for_epsilon(["no", "yes"], 1)
    assert known_protocol("laplace").make(wanted).bounds == (0, 24)
    assert known_protocol("rappor").make(wanted).permanent_loss().pure() == pytest.approx(3)
    assert known_protocol("heavy").make(wanted).length == 16
    with pytest.raises(InvalidParameter, match="did you mean hadamard"):
        known_protocol("hadamar")


@pytest.mark.parametrize(
    # test_fragments.py finds words by day
    "name",
    [pytest.param(name, marks=[at_night] if name == "fragments" else []) for name in PROTOCOLS],
)
def test_trials_find_what_is_there(name):
    users = 4_000 if PROTOCOLS[name].purpose is Purpose.VECTOR else 20_000
    tried = simulate(PROTOCOLS[name], Wanted.of(4, domain=10), users=users, seed=3, confidence=1 - 1e-9)
    assert tried.people == users
    assert tried.inside == len(tried.labels)
    assert len(tried.labels) == len(tried.truth) == len(tried.values) == len(tried.intervals)
    assert tried.seconds > 0
    if tried.labels:
        assert tried.measured < 0.1
    if PROTOCOLS[name].purpose is not Purpose.DISCOVERY:
        assert tried.labels


def test_the_people_are_those_of_the_seed_and_the_reports_are_fresh():
    first, second = (simulate(PROTOCOLS["ranges"], Wanted.of(1, domain=8), 2000, seed=5) for _ in range(2))
    assert (first.truth == second.truth).all()
    assert (first.values != second.values).any()


@pytest.mark.parametrize("name", ["kary", "oue", "olh", "hadamard", "rappor", "hcms"])
def test_measured_errors_are_those_of_theory(name):
    """The mean of 500 squares is within 50% of their variance: chances of 1e-12 above and less below (χ²)."""
    ratios = []
    for seed in range(5):
        tried = simulate(PROTOCOLS[name], Wanted.of(1, domain=100), 5_000, seed=seed)
        ratios.append((tried.measured / tried.theory) ** 2)
    assert 0.5 < np.mean(ratios) < 1.5


def test_a_theory_that_is_off_would_be_noticed():
    """The mutant: a standard error that is a third too small has ratios beyond what is allowed above."""
    tried = simulate(PROTOCOLS["oue"], Wanted.of(1, domain=1000), 5_000)
    assert (tried.measured / (tried.theory / 1.5)) ** 2 > 1.5


def test_zipf_shares_fall_and_sum_to_one():
    shares = zipf_shares(100)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(2 * shares[1]) == pytest.approx(100 * shares[99])


def test_the_table_has_a_row_for_each_and_its_numbers_agree():
    table = compare(2, domain=6, users=3_000, names=["kary", "olh", "piecewise"])
    assert [row.name for row in table.rows] == ["kary", "olh", "piecewise"]
    for row in table.rows:
        assert row.epsilon <= 2
        assert 0 < row.shuffled < row.epsilon
        assert row.theory > 0
        assert row.users_per_second > 0
        assert len(row.cells()) == len(HEADINGS)
    assert table.rows[0].report_bytes == 9 + 1
    assert table.rows[0].shuffled == central_epsilon(Kary.for_epsilon(6, 2), 3_000)
    page = table.markdown().splitlines()
    assert page[0] == "| " + " | ".join(HEADINGS) + " |"
    assert [line for line in page if "**" in line] == [
        f"| **{purpose.value}** |" + " |" * 7 for purpose in (Purpose.SHARES, Purpose.MEAN)
    ]
    assert all(line.count("|") == len(HEADINGS) + 1 for line in page)
    assert "3,000 made-up people" in table.sentence


def test_the_watch_is_told_about_every_protocol():
    seen = []
    compare(1, domain=3, users=500, names=["kary", "oue"], watch=lambda share, doing: seen.append((share, doing)))
    assert [doing for share, doing in seen] == ["k-ary response", "unary, optimised"]
    assert [share for share, _ in seen] == [0.0, 0.5]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: compare(0), "epsilon must be greater than 0"),
        (lambda: compare(1, domain=1), "domain must be a whole number of at least 2"),
        (lambda: compare(1, names=["nothing"]), "there is no protocol"),
        (lambda: simulate(PROTOCOLS["kary"], Wanted.of(1), 1), "users must be a whole number of at least 2"),
        (lambda: Wanted.of(-1), "epsilon must be greater than 0"),
        (
            lambda: simulate(PROTOCOLS["rappor"], Wanted.of(3, domain=20_000), 1_000),
            "more than RAPPOR tells apart all at once",
        ),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InvalidParameter, match=told):
        make()
