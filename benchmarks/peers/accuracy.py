"""What answers of peers have in common: rows by group, clamped, and where what was found is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LOW, HIGH = 0.0, 100.0


class Rows:
    """The rows of each group, clamped, and their exact counts and sums."""

    def __init__(self, path: str, keys: int) -> None:
        with np.load(path) as held:
            codes, amounts = held["codes"], np.clip(held["amounts"], LOW, HIGH)
        self.keys = keys
        self.amounts = amounts
        self.counts = np.bincount(codes, minlength=keys)
        self.sums = np.bincount(codes, weights=amounts, minlength=keys)
        self._ordered = amounts[np.argsort(codes, kind="stable")]
        self._ends = np.concatenate([[0], np.cumsum(self.counts)])

    def of(self, key: int) -> np.ndarray:
        return self._ordered[self._ends[key] : self._ends[key + 1]]


def answering(kinds: dict[str, Callable[..., dict[int, list[float]]]]) -> Callable[..., Callable[[], float]]:
    """The work of a peer: 1.0 if it answers this kind of question, which it then writes to a file."""

    def accuracy(kind: str, rows_of: str, answer: str, keys: int, **terms: Any) -> Callable[[], float]:
        def asked() -> float:
            if kind not in kinds:
                return 0.0
            found = kinds[kind](Rows(rows_of, keys), **terms)
            Path(answer).write_text(json.dumps({str(key): value for key, value in found.items()}))
            return 1.0

        return asked

    return accuracy
