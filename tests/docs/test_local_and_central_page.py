"""Local against central: the table says what theory says, both sides cost the same, and the picture is drawn."""

import importlib.util
import math
import re
from pathlib import Path

import numpy as np
import pytest

from dither.entropy import InsecureSeededSource

PEOPLE = (100, 400, 1600)
CONCEPTS = Path(__file__).resolve().parents[2] / "docs" / "concepts"
PICTURE = CONCEPTS / "local-and-central.svg"
SPEC = importlib.util.spec_from_file_location("local_and_central", CONCEPTS / "local_and_central.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)
Task, Trust, compare = script.Task, script.Trust, script.compare


@pytest.fixture(scope="module")
def table():
    return compare("1/2", PEOPLE, trials=400, source=InsecureSeededSource(7))


def test_both_sides_cost_the_same(table):
    assert len(table.rows) == 15
    assert all(0.5 * (1 - 1e-6) <= row.epsilon <= 0.5 for row in table.rows)


def test_errors_are_those_of_the_formulas(table):
    """Variance 2B²/(ε²n) against 2B²/(ε²n²), for B = 1 and ε = 1/2."""
    for row in table.of(Task.MEAN, Trust.CENTRAL):
        assert row.theory == pytest.approx(math.sqrt(8) / row.people, rel=1e-12)
    noise = [row for row in table.of(Task.MEAN, Trust.LOCAL) if row.method == "Laplace noise"]
    for row in noise:
        assert row.theory == pytest.approx(math.sqrt(8 / row.people), rel=1e-12)
    better = [row for row in table.of(Task.MEAN, Trust.LOCAL) if row.method == "one bit"]
    assert [row.people for row in better] == list(PEOPLE)
    assert all(row.theory < other.theory for row, other in zip(better, noise, strict=True))
    decay = math.exp(-0.25)
    for row in table.of(Task.HISTOGRAM, Trust.CENTRAL):
        assert row.theory == pytest.approx(math.sqrt(2 * decay) / (1 - decay) / row.people, rel=1e-12)


def test_the_gap_grows_with_the_square_root_of_people(table):
    for task in Task:
        local, central = table.of(task, Trust.LOCAL)[:3], table.of(task, Trust.CENTRAL)
        ratios = [one.theory / other.theory / math.sqrt(one.people) for one, other in zip(local, central, strict=True)]
        assert ratios == pytest.approx([ratios[0]] * 3, rel=0.02)


def test_what_is_measured_is_what_theory_says(table):
    """400 runs: the standard error of a root mean square is at most 5.6% (Laplace noise, of kurtosis 6)."""
    for row in table.rows:
        assert row.measured == pytest.approx(row.theory, rel=0.34)
    logs = np.array([math.log(row.measured / row.theory) for row in table.rows])
    assert abs(logs.mean()) < 0.06


def test_it_prints_and_draws(table, tmp_path):
    lines = str(table).splitlines()
    assert len(lines) == 16
    assert lines[0].split() == ["task", "trust", "method", "people", "theory", "measured"]
    for name in ("a.svg", "b.svg", "c.png"):
        table.draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


POINT = r"(-?[\d.]+) (-?[\d.]+)"


def lines(picture):
    """The polylines of four points in a picture: one for each method, in widths and heights of the frame it is in.

    Where a frame stands depends on how large the letters beside it are, of which versions of matplotlib differ.
    """
    frame, found = None, []
    for path in re.finditer(r'd="M ' + r" *\nL ".join([POINT] * 4) + r' *\n(z *\n)?"', picture):
        *numbers, closed = path.groups()
        points = np.array(numbers, dtype=float).reshape(4, 2)
        if closed:
            frame = points.min(axis=0), np.ptp(points, axis=0)
        else:
            found.append((points - frame[0]) / frame[1])
    return np.array(found)


def test_the_picture_in_the_documentation_shows_theory(tmp_path):
    """Redrawn from a single run, the lines are where they were; only dots may move."""
    compare(1, trials=1).draw(tmp_path / "again.svg")
    old, new = (lines(path.read_text(encoding="utf-8")) for path in (PICTURE, tmp_path / "again.svg"))
    assert old.shape == (5, 4, 2)
    assert old.min() > 0
    assert old.max() < 1
    # the file has six digits after the point
    assert np.abs(old - new).max() < 1e-6
