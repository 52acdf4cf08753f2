"""What diffprivlib is asked for."""

from collections.abc import Callable

from diffprivlib.mechanisms import GaussianDiscrete, Geometric


def draws(family: str, scale: int, n: int) -> Callable[[], object]:
    """Scalar releases by the mechanism of the same law (Laplace: geometric)."""
    if family == "laplace":
        mechanism = Geometric(epsilon=1 / scale, sensitivity=1)
    else:
        # its scale follows from epsilon and delta by a search; the speed hardly depends on it
        mechanism = GaussianDiscrete(epsilon=min(0.9, 4 / scale), delta=1e-4, sensitivity=1)
    return lambda: [mechanism.randomise(0) for _ in range(n)]
