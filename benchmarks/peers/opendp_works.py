"""What OpenDP is asked for."""

from collections.abc import Callable

import opendp.prelude as dp

dp.enable_features("contrib")


def draws(family: str, scale: int, n: int) -> Callable[[], object]:
    """A vector release of zeros by the exact integer mechanism."""
    distance = dp.l1_distance(T=int) if family == "laplace" else dp.l2_distance(T=float)
    space = dp.vector_domain(dp.atom_domain(T=int)), distance
    make = dp.m.make_laplace if family == "laplace" else dp.m.make_gaussian
    mechanism = make(*space, scale=float(scale))
    zeros = [0] * n
    return lambda: mechanism(zeros)
