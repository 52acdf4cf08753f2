"""Post-processing of shares: the projection by its definition, and what each rule promises."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.errors import InvalidData, InvalidParameter
from dither.local.core.consistent import Consistency, make_consistent, project_to_simplex

VALUES = st.lists(st.floats(-3, 3), min_size=1, max_size=12).map(np.array)


@given(VALUES)
def test_the_projection_is_the_nearest(values):
    """A point of a convex set is the nearest one if and only if no vertex lies at an acute angle behind it."""
    found = project_to_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-12)
    for vertex in np.eye(values.size):
        assert (values - found) @ (vertex - found) <= 1e-9


@given(VALUES)
def test_one_number_is_taken_from_all_that_remain(values):
    found = project_to_simplex(values)
    taken = (values - found)[found > 1e-9]
    assert np.ptp(taken) < 1e-9


def test_shares_stay_as_they_are():
    assert np.allclose(project_to_simplex(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])


@given(VALUES, st.floats(0, 1))
def test_cutting(values, threshold):
    cut = make_consistent(values, Consistency.BASE_CUT, threshold=threshold)
    assert ((cut == 0) | (cut == values)).all()
    assert (cut[cut > 0] > threshold).all()
    clipped = make_consistent(values, Consistency.CLIP)
    assert clipped.min() >= 0
    assert clipped.max() <= 1


def test_rules_say_what_they_do():
    assert len({rule.sentence for rule in Consistency}) == len(Consistency)


def test_mistakes():
    with pytest.raises(InvalidParameter, match="threshold"):
        make_consistent(np.array([0.5, 0.5]), Consistency.BASE_CUT)
    for wrong in (np.array([]), np.array([[0.5]]), np.array([np.nan, 1]), np.array([np.inf])):
        with pytest.raises(InvalidData):
            make_consistent(wrong, Consistency.NORM_SUB)


def test_it_lowers_the_error_of_rare_values():
    rng = np.random.default_rng(1)
    truth = np.array([0.5, 0.3, 0.2] + [0.0] * 97)
    noisy = truth + rng.normal(0, 0.05, (300, 100))
    projected = np.array([project_to_simplex(row) for row in noisy])
    assert ((projected - truth) ** 2).mean() < 0.4 * ((noisy - truth) ** 2).mean()
