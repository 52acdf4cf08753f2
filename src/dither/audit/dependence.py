"""Whether outputs look as if they came one without regard to the other, as every count of them supposes."""

from __future__ import annotations

import math

import numpy as np

from dither.audit.outputs import Columns, whole_codes
from dither.errors import InvalidData

# A fair mechanism is refused about as often as a normal variable is eight standard deviations off: never.
STANDARD_ERRORS = 8.0


def expect_independent(columns: Columns) -> None:
    """Refuse outputs that repeat the one before more often than they repeat one long ago: noise that is used twice.

    If outputs are independent, two neighbours in a sample are equal as often as two that lie far apart. Each of the two
    shares has a variance of at most 3s/n, where s is the chance of a repetition, since pairs that overlap have a part
    in common (Σp³ ≤ Σp²).
    """
    codes = whole_codes(columns)
    n = codes.size
    if n < 4:
        return
    after = float(np.mean(codes[1:] == codes[:-1]))
    apart = float(np.mean(codes[n // 2 :] == codes[: n - n // 2]))
    if after - apart > STANDARD_ERRORS * math.sqrt(6 * max(after, apart) / n):
        raise InvalidData(
            "outputs repeat the one before more often than chance allows, so noise is used more than once and draws "
            "aren't independent: let one output hold all that is released with the same noise, and audit that"
        )
