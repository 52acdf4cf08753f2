"""Search over a monotone predicate, returning the end that is safe."""

from __future__ import annotations

import math
from collections.abc import Callable

from dither.errors import InvalidParameter


def smallest_true(
    holds: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-12, absolute: float = 0.0
) -> float:
    """The smallest point at which a predicate that turns true once is *known* to hold.

    ``holds(high)`` must be true; the returned point has been tested and holds, and the predicate
    fails (or was never needed) within the tolerance below it.

    Example:
        >>> x = smallest_true(lambda x: x * x >= 2, 1.0, 2.0)
        >>> x * x >= 2, abs(x - 2**0.5) < 1e-11
        (True, True)
    """
    if not low <= high:
        raise InvalidParameter(f"the interval to search is empty: [{low}, {high}]")
    if holds(low):
        return low
    if low == 0 and absolute == 0:
        # come down by orders of magnitude first, so that a tiny answer is found to its own precision
        while high > 1e-300 and holds(high / 1024):
            high /= 1024
        low = high / 1024
    while high - low > max(absolute, relative * max(abs(low), abs(high))):
        middle = _middle(low, high)
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def largest_true(
    holds: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-12, absolute: float = 0.0
) -> float:
    """The largest point at which a predicate that turns false once is known to hold; ``holds(low)`` is true."""
    return -smallest_true(lambda x: holds(-x), -high, -low, relative=relative, absolute=absolute)


def _middle(low: float, high: float) -> float:
    """Halve in the exponent while the ends are orders of magnitude apart, linearly after that."""
    if low > 0 and high > 4 * low:
        return math.sqrt(low) * math.sqrt(high)
    if high < 0 and low < 4 * high:
        return -math.sqrt(-low) * math.sqrt(-high)
    return low + (high - low) / 2
