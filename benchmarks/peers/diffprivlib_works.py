"""What diffprivlib is asked for."""

from collections.abc import Callable

from accuracy import HIGH, LOW, Rows, answering
from diffprivlib import tools
from diffprivlib.mechanisms import GaussianDiscrete, Geometric


def draws(family: str, scale: int, n: int) -> Callable[[], object]:
    """Scalar releases by the mechanism of the same law (Laplace: geometric)."""
    if family == "laplace":
        mechanism = Geometric(epsilon=1 / scale, sensitivity=1)
    else:
        # its scale follows from epsilon and delta by a search; the speed hardly depends on it
        mechanism = GaussianDiscrete(epsilon=min(0.9, 4 / scale), delta=1e-4, sensitivity=1)
    return lambda: [mechanism.randomise(0) for _ in range(n)]


# ---------------------------------------------------------------------------------------------- accuracy


def _mean(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    """It knows one row of one group for each unit; for more ε is divided by what a unit may add."""
    del delta
    each = epsilon / 2 / (groups * rows)
    return {
        key: [
            float(tools.sum(found.of(key), epsilon=each, bounds=(LOW, HIGH))),
            float(tools.mean(found.of(key), epsilon=each, bounds=(LOW, HIGH))),
        ]
        for key in range(found.keys)
    }


def _sum(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    each = epsilon / (groups * rows)
    return {key: [float(tools.sum(found.of(key), epsilon=each, bounds=(LOW, HIGH)))] for key in range(found.keys)}


def _deviation(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del groups, rows, delta
    return {0: [float(tools.std(found.of(0), epsilon=epsilon, bounds=(LOW, HIGH)))]}


# its counts are cut off at the number of rows it is given, which would have to be public: none is asked for
accuracy = answering({"mean": _mean, "sum": _sum, "deviation": _deviation})
