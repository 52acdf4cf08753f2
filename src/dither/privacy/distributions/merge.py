"""A bound from below: outcomes merged until every merged outcome has a likelihood ratio on the lattice.

Merging outcomes is post-processing, so the merged pair is never further apart than the true one. Let cell i hold the
outcomes whose loss lies between the lattice points i and i+1, with masses p, q. Lattice point i takes a share b of
the cell above it (whose ratio is too high by B = p − e^{e_i}·q) and a share a of the cell below it (too low by
A = e^{e_i}·q − p), such that a·A = b·B = w: then the ratio of what it took is exactly e^{e_i}. All of a cell is
used if w_i/B_i + w_{i+1}/A_{i+1} = 1: a recurrence, run from both ends to where the mass is. What the meeting of the
two leaves over is rounded down, so the bound is valid whatever w is; a good offset of the lattice leaves next to
nothing over, and then the error is of second order in the step, like that of the polygon from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.privacy.curve import Array, Cells, Curve, Direction
from dither.privacy.distributions.lattice import LARGEST_REACH, Lattice

# point masses this close to a lattice point (relative to the step) count as lying on it
ON_LATTICE = 1e-9
SECANT_STEPS = 4


@dataclass(frozen=True, slots=True)
class _Merged:
    lattice: Lattice
    mismatch: float
    left_over: float


def lower(loss: Curve, direction: Direction, step: float, tail: float) -> Lattice | None:
    """A distribution on offset + step·ℤ dominated by the loss, or None where its cells aren't known."""
    low = -min(loss.reach(tail, direction.reversed), LARGEST_REACH)
    high = min(loss.reach(tail, direction), LARGEST_REACH)
    index = np.arange(math.floor(low / step + ON_LATTICE) - 1, math.ceil(high / step - ON_LATTICE) + 2)

    def at(offset: float) -> _Merged | None:
        edges = np.asarray(step * index + offset, dtype=np.float64)
        cells = loss.cells(edges, direction)
        return None if cells is None else _merge(cells, edges, int(index[0]), step, offset)

    first = at(0.0)
    if first is None:
        return None
    if first.left_over < 1e-9:
        return first.lattice
    # The mismatch where the recurrences meet is nearly a sinusoid of the offset: two looks tell about where its zeros
    # are, and a few secant steps find one.
    second = at(step / 4)
    assert second is not None
    best = min(first, second, key=lambda m: m.left_over)
    phase = (math.atan2(-first.mismatch, second.mismatch) / (2 * math.pi)) % 0.5
    known = [(0.0, first.mismatch), (0.25, second.mismatch)]
    share = phase
    for _ in range(SECANT_STEPS):
        tried = at(share * step)
        assert tried is not None
        best = min(best, tried, key=lambda m: m.left_over)
        known.append((share, tried.mismatch))
        (x0, y0), (x1, y1) = sorted(known, key=lambda point: abs(point[1]))[:2]
        share = x0 - y0 * (x1 - x0) / (y1 - y0) if y1 != y0 else x0
        if best.left_over < 2e-5 or not -0.5 <= share <= 1.0:
            break
    return best.lattice


def _merge(cells: Cells, edges: Array, first: int, step: float, offset: float) -> _Merged:
    p, q = cells.p, cells.q
    grown = np.exp(edges)
    above = np.maximum(p - grown[:-1] * q, 0.0)  # B of cell i, seen from lattice point i
    below = np.maximum(grown[1:] * q - p, 0.0)  # A of cell i, seen from lattice point i+1
    shares, mismatch = _recurrence(p, above, below)
    # shares[i] is w at lattice point i; turn it into the share of each cell, never more than the whole
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(above > 0, shares[:-1] / above, 0.0)
        down = np.where(below > 0, shares[1:] / below, 0.0)
    excess = np.maximum(up + down, 1.0)
    shrink = np.ones(edges.size)
    shrink[:-1] = np.maximum(shrink[:-1], excess)
    shrink[1:] = np.maximum(shrink[1:], excess)
    up, down = up / shrink[:-1], down / shrink[1:]
    rest = np.clip(1.0 - up - down, 0.0, 1.0)
    merged = np.zeros(edges.size)
    merged[:-1] = up * p
    merged[1:] += down * p
    # A and B are differences of inexact numbers, so the ratio of what was merged is only nearly e^{edge}:
    # read the losses lower by the largest relative deviation.
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong = np.zeros(edges.size)
        wrong[:-1] += up * (cells.relative * (p + grown[:-1] * q) + 4e-16 * p)
        wrong[1:] += down * (cells.relative * (p + grown[1:] * q) + 4e-16 * p)
        balance = np.zeros(edges.size)
        balance[:-1] += up * above
        balance[1:] -= down * below
        deviation = np.where(merged > 0, (wrong + np.abs(balance)) / merged, 0.0)
    # a lattice point that took too inexact a mixture gives it back, to be rounded down
    poor = deviation > 1e-9
    up[poor[:-1]] = 0.0
    down[poor[1:]] = 0.0
    rest = np.clip(1.0 - up - down, 0.0, 1.0) * (1 - 4e-16)
    masses = np.zeros(edges.size)
    masses[:-1] = (up + rest) * p
    masses[1:] += down * p
    masses[-1] += cells.p_above
    shift = float(np.max(deviation[~poor], initial=0.0)) * 2
    atoms = np.floor((cells.atom_losses - edges[0]) / step + ON_LATTICE).astype(int)
    inside = (atoms >= 0) & (cells.atom_masses > 0)
    np.add.at(masses, np.minimum(atoms[inside], masses.size - 1), cells.atom_masses[inside])
    left_over = float((rest * p).sum() + cells.atom_masses[~_near(cells.atom_losses, edges[0], step)].sum())
    if inside.any():
        shift += 2 * ON_LATTICE * step
    lattice = Lattice(step=step, first=first, masses=masses * (1 - cells.relative), offset=offset, shift=shift)
    return _Merged(lattice, mismatch, left_over)


def _near(losses: Array, origin: float, step: float) -> npt.NDArray[np.bool_]:
    place = (losses - origin) / step
    return np.asarray(np.abs(place - np.rint(place)) < 2 * ON_LATTICE)


def _recurrence(p: Array, above: Array, below: Array) -> tuple[Array, float]:
    """W at the lattice points: from the left up to the mode, from the right down to it, as cumulative sums."""
    n = p.size
    known = (above > 0) & (below > 0) & (p > 1e-250)
    ratio = np.clip(np.where(known, below / np.where(above > 0, above, 1.0), 1.0), 1e-3, 1e3)
    growth = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    sign = 1 - 2.0 * (np.arange(n + 1) & 1)
    mode = int(np.argmax(p))
    meet = mode + 1
    factor = np.exp(np.clip(growth - growth[mode], -300, 300))
    w = np.zeros(n + 1)
    with np.errstate(all="ignore"):
        # w_{i+1} = A_i − (A_i/B_i)·w_i from w_0 = 0, and w_i = B_i − (B_i/A_i)·w_{i+1} from w_n = 0
        rising = np.cumsum(sign[1:meet] * below[: meet - 1] / factor[1:meet])
        w[1:meet] = sign[1:meet] * factor[1:meet] * rising
        falling = np.cumsum((sign[meet:n] * above[meet:n] / factor[meet:n])[::-1])[::-1]
        w[meet:n] = sign[meet:n] * factor[meet:n] * falling
    w = np.where(np.isfinite(w), w, 0.0)
    w[0] = w[n] = 0.0
    gap = 1 - w[meet - 1] / max(above[mode], 1e-300) - w[meet] / max(below[mode], 1e-300)
    mismatch = float(sign[mode] * p[mode] * gap)
    w[1:n] = np.clip(w[1:n], 0.0, np.minimum(above[1:], below[:-1]))
    return w, mismatch if math.isfinite(mismatch) else 0.0
