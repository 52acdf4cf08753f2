"""A score learned from all numbers of an output at once, for what no single number shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dither.audit.outputs import Columns
from dither.mechanisms.base import Floats

# With no more numbers than this, products of two are looked at as well.
MOST_PAIRED = 6
MOST_DRAWS = 20_000
PIECE = 512


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Logistic regression on all numbers of the output, their sizes, and products of two where there are few."""

    columns: tuple[str, ...]
    centre: Floats
    spread: Floats
    weights: Floats
    products: bool
    gaps: bool

    @classmethod
    def fitted(cls, names: tuple[str, ...], first: Columns, second: Columns) -> Learned:
        """By Newton's method with a small ridge, on at most 20,000 draws of each input."""
        rows = [np.column_stack([sample.numbers[name][:MOST_DRAWS] for name in names]) for sample in (first, second)]
        both = np.where(np.isfinite(np.concatenate(rows)), np.concatenate(rows), np.nan)
        known = np.isfinite(both).any(axis=0)
        both[:, ~known] = 0.0
        centre, spread = np.nanmedian(both, axis=0), np.nanstd(both, axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        products, gaps = len(names) <= MOST_PAIRED, not bool(np.isfinite(both).all())
        model = cls(names, centre, spread, np.array([]), products, gaps)
        design = np.concatenate([model._features(part) for part in rows])
        truth = np.concatenate([np.ones(len(rows[0])), np.zeros(len(rows[1]))])
        weights = np.zeros(design.shape[1])
        # where the inputs can be told apart without error there is no end, and a few steps find the direction
        for _ in range(12):
            chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
            curve = _squares(design, chance * (1 - chance)) + 1e-2 * np.eye(weights.size)
            step = np.linalg.solve(curve, design.T @ (truth - chance) - 1e-2 * weights)
            weights = weights + step
            if np.abs(step).max() < 1e-4:
                break
        return cls(names, centre, spread, weights, products, gaps)

    def _features(self, rows: Floats) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip((rows - self.centre) / self.spread, -8.0, 8.0)
        missing = np.isnan(scaled)
        scaled = np.where(missing, 0.0, scaled)
        parts = [np.ones((len(rows), 1)), scaled, np.abs(scaled)]
        if self.gaps:
            parts.append(missing.astype(np.float64))
        if self.products:
            width = scaled.shape[1]
            parts += [scaled[:, [i]] * scaled[:, [j]] for i in range(width) for j in range(i)]
        return np.concatenate(parts, axis=1)

    def of(self, columns: Columns) -> Floats:
        """The logarithm of the odds."""
        return np.asarray(self._features(np.column_stack([columns.numbers[n] for n in self.columns])) @ self.weights)

    def _words(self) -> str:
        width = len(self.columns)
        weight = np.abs(self.weights[1 : 1 + width]) + np.abs(self.weights[1 + width : 1 + 2 * width])
        most = ", ".join(self.columns[i] for i in np.argsort(-weight)[:3])
        return f"a learned score of {width} numbers (mostly {most})"

    def above(self, cut: float) -> str:
        """In terms of the score."""
        return f"{self._words()} is at least {cut:.4g}"

    def below(self, cut: float) -> str:
        """In terms of the score."""
        return f"{self._words()} is below {cut:.4g}"

    @property
    def axis(self) -> None:
        """Many columns."""
        return None


def _squares(design: Floats, weights: Floats) -> Floats:
    """The sum of the outer squares of all rows, each with its weight.

    In short pieces: a longer product is shared among threads, and on a busy machine all wait for the slowest.
    """
    weighted, width = design * weights[:, None], design.shape[1]
    whole = len(design) // PIECE * PIECE
    left, right = (rows[:whole].reshape(-1, PIECE, width) for rows in (weighted, design))
    return np.asarray((left.transpose(0, 2, 1) @ right).sum(axis=0) + weighted[whole:].T @ design[whole:])
