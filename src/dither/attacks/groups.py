"""Groups of one: the strongest question to ask a curator about everybody's secret bit.

An attacker who may group by a column that names people (a seat, a flat) needs no subsets and no differences: everybody
is a group, groups are disjoint, and so the whole budget goes into each. Two such questions matter:

- *How many yeses?* A yes against no row at all: one step of ADD_REMOVE, and its noise reaches what one step allows,
  e^ε/(1+e^ε) for a fair bit.
- *The sum of 1 for a yes and −1 for a no.* It costs the same, because a person who is added or removed moves it by 1;
  but a yes and a no are 2 apart. Of those who are known to be in the data it tells more: for a fair bit
  1 − e^−ε/2, which is the most that two steps allow (``best_accuracy_of_value``).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dither.attacks.bayes import posterior
from dither.attacks.databases import ATTACKER, column, noise_of
from dither.curator import Curator
from dither.mechanisms.base import Floats

COUNT = "SELECT {key}, COUNT(*) AS n FROM {table} WHERE {bit} GROUP BY {key}"
SIGNED = "SELECT {key}, SUM(CASE WHEN {bit} THEN 1 ELSE -1 END) AS n FROM {table} GROUP BY {key}"


def bits_by_count(curator: Curator, *, table: str, key: str, bit: str, epsilon: Fraction, prior: float) -> Floats:
    """What to believe of everybody's bit, in the order of ``key``, after a count of the bits of each."""
    return _beliefs(curator, COUNT.format(table=table, key=key, bit=bit), key, epsilon, prior, truths=(0, 1))


def bits_by_sum(curator: Curator, *, table: str, key: str, bit: str, epsilon: Fraction, prior: float) -> Floats:
    """The same after a sum of 1 for a set bit and −1 for another: no question that costs ε tells more of a fair bit."""
    return _beliefs(curator, SIGNED.format(table=table, key=key, bit=bit), key, epsilon, prior, truths=(-1, 1))


def _beliefs(
    curator: Curator, sql: str, key: str, epsilon: Fraction, prior: float, *, truths: tuple[int, int]
) -> Floats:
    noise = noise_of(curator, sql, epsilon)
    answer = curator.sql(sql, epsilon=epsilon, analyst=ATTACKER).table
    order = np.argsort(column(answer, key))
    return posterior(noise, column(answer, "n")[order], prior=prior, truths=truths)
