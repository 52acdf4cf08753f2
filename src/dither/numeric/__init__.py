"""Numbers that round the safe way: exact fractions, directed rounding, monotone search."""

from dither.numeric.rounding import (
    DEFAULT_CONFIDENCE,
    Number,
    as_fraction,
    ceil_div,
    down,
    exp_up,
    fraction_down,
    fraction_up,
    log_up,
    positive,
    positive_int,
    probability,
    up,
)
from dither.numeric.search import largest_true, smallest_true

__all__ = [
    "DEFAULT_CONFIDENCE",
    "Number",
    "as_fraction",
    "ceil_div",
    "down",
    "exp_up",
    "fraction_down",
    "fraction_up",
    "largest_true",
    "log_up",
    "positive",
    "positive_int",
    "probability",
    "smallest_true",
    "up",
]
