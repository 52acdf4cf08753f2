"""What python-dp (PyDP, Google's building blocks) is asked for."""

from accuracy import HIGH, LOW, Rows, answering
from pydp.algorithms.laplacian import BoundedMean, BoundedStandardDeviation, BoundedSum, Count
from pydp.algorithms.partition_selection import create_partition_strategy


def _terms(groups: int, rows: int) -> dict[str, object]:
    return {"l0_sensitivity": groups, "linf_sensitivity": rows, "dtype": "float"}


def _bounded(kind: type, found: Rows, key: int, epsilon: float, groups: int, rows: int) -> float:
    made = kind(epsilon=epsilon, delta=0, lower_bound=LOW, upper_bound=HIGH, **_terms(groups, rows))
    return float(made.quick_result(found.of(key).tolist()))


def _counted(found: Rows, key: int, epsilon: float, groups: int, rows: int) -> float:
    made = Count(epsilon=epsilon, l0_sensitivity=groups, linf_sensitivity=rows, dtype="int")
    return float(made.quick_result([1] * int(found.counts[key])))


def _mean(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    kinds = (BoundedSum, BoundedMean)
    return {key: [_bounded(kind, found, key, epsilon / 2, groups, rows) for kind in kinds] for key in range(found.keys)}


def _three(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    """Sum and count, of which the mean is the quotient: better than three answers of a third each."""
    del delta
    answered = {}
    for key in range(found.keys):
        total = _bounded(BoundedSum, found, key, epsilon / 2, groups, rows)
        count = _counted(found, key, epsilon / 2, groups, rows)
        answered[key] = [total, total / max(count, 1.0), count]
    return answered


def _count(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    return {key: [_counted(found, key, epsilon, groups, rows)] for key in range(found.keys)}


def _sum(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    return {key: [_bounded(BoundedSum, found, key, epsilon, groups, rows)] for key in range(found.keys)}


def _deviation(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    return {0: [_bounded(BoundedStandardDeviation, found, 0, epsilon, groups, rows)]}


def _discovered(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    """A key is kept by half of ε, and told with a count of the other half."""
    keeps = create_partition_strategy("truncated_geometric", epsilon / 2, delta, groups)
    kept = (key for key in range(found.keys) if keeps.should_keep(int(found.counts[key])))
    return {key: [_counted(found, key, epsilon / 2, groups, rows)] for key in kept}


accuracy = answering(
    {
        "mean": _mean,
        "three": _three,
        "count": _count,
        "sum": _sum,
        "deviation": _deviation,
        "discovered": _discovered,
    }
)
