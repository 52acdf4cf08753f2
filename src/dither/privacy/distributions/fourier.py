"""Certified composition on a lattice: what the Fourier transform does to the sum, and how wrong it can be.

The lattice masses are tilted by e^{θ·loss} so that the region which decides δ holds most of the mass (the saddle
point), transformed, raised to their powers, multiplied, and transformed back. Four errors enter; each is bounded and
added to (or taken from) δ:

- round-off of the transforms: relative ℓ2 error c·u·log₂N (Higham 2002, Theorem 24.2), times the number of steps;
- frequencies left out because their product is below a floor;
- wrap-around: the tilted mass outside the window, by Chernoff's bound with the lattice's own moment function;
- round-off of the final sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.numeric import down as down_by, up as up_by
from dither.privacy.curve import Array
from dither.privacy.distributions.lattice import Lattice

Complex = npt.NDArray[np.complex128]

UNIT = 2.0**-53
# Higham's constant for radix 2 is about 7; mixed radices and real transforms get twice that and a little.
FFT_CONSTANT = 16.0
# Left-out frequencies: under a tilt δ needs relative accuracy only, without one it is small next to 1.
TILTED_FLOOR, PLAIN_FLOOR = -20.0, -32.0
# Mass outside the window, on each side, as a power of e; again relative under a tilt.
TILTED_WINDOW, PLAIN_WINDOW = 25.0, 36.0
LARGEST_TRANSFORM = 1 << 24
FAR = 45.0
# up to this ε a loss of 600 may be read as infinite in a bound from below
NEAR = 500.0
# e to this power is a float, and so is its inverse
LARGEST_EXPONENT = 690.0
# neighbouring lattice points may differ by this factor in the exponent, which floats can bear
LARGEST_TILT = 2.0
# so many of the widest items are transformed whole; the others only where something is left
LEADERS = 8
LARGEST_COLUMN = 1 << 14
LARGEST_BLOCK = 4_000_000

Items = Sequence[tuple[Lattice, int]]


class TooFineError(ArithmeticError):
    """The composed distribution is too wide for the lattice: other views have to do."""


class _Block:
    """Lattices side by side over one range of indices, one column each, ready for tilting."""

    def __init__(self, items: Items) -> None:
        self.step = items[0][0].step
        first = min(lattice.first for lattice, _ in items)
        last = max(lattice.first + lattice.masses.size for lattice, _ in items)
        self.index = np.arange(first, last)
        self.points = self.step * self.index
        self.masses = np.zeros((self.index.size, len(items)))
        for column, (lattice, _) in enumerate(items):
            start = lattice.first - first
            self.masses[start : start + lattice.masses.size, column] = lattice.masses
        used = np.flatnonzero(self.masses.any(axis=1))
        kept = slice(int(used[0]), int(used[-1]) + 1)
        self.index, self.points, self.masses = self.index[kept], self.points[kept], self.masses[kept]
        self.counts = np.array([count for _, count in items], dtype=np.float64)
        edges = [(lattice.first, lattice.first + lattice.masses.size - 1) for lattice, _ in items]
        self.ends = self.step * np.array(edges, dtype=np.float64)

    @property
    def largest_tilt(self) -> float:
        """Beyond it a short column beside a long one would vanish."""
        if self.counts.size == 1:
            return LARGEST_TILT / self.step
        return min(LARGEST_TILT / self.step, 600.0 / max(float(np.ptp(self.points)), self.step))

    def _weights(self, theta: float) -> tuple[Array, float]:
        # Masses are at least 1e-280 or zero, so what e^{θz} loses by underflow is nothing next to what remains.
        exponent = theta * self.points
        top = float(exponent.max())
        return np.exp(exponent - top), top

    def _sums(self, weights: Array) -> Array:
        """Weighted sums of every column, one row for each row of weights."""
        # one column is summed here: waking the threads of a matrix product for it would take longer than the sum
        if self.counts.size == 1:
            return np.asarray((weights * self.masses[:, 0]).sum(axis=1)[:, None])
        return np.asarray(weights @ self.masses)

    def cumulants(self, theta: float) -> tuple[Array, Array, Array]:
        """Log moment, mean and variance of every tilted column, times its count, without offsets."""
        weight, top = self._weights(theta)
        first = weight * self.points
        powers = self._sums(np.stack([weight, first, first * self.points]))
        mean = powers[1] / powers[0]
        variance = np.maximum(powers[2] / powers[0] - mean**2, 0.0)
        return self.counts * (top + np.log(powers[0])), self.counts * mean, self.counts * variance

    def log_moment(self, theta: float) -> float:
        """An upper bound of the log moments' sum, exact unless a column underflows."""
        weight, top = self._weights(theta)
        sums = self._sums(weight[None, :])[0]
        simple = (theta * self.ends).max(axis=1) + np.log(self.masses.sum(axis=0))
        with np.errstate(divide="ignore"):
            logs = np.where(sums > 1e-280, top + np.log(sums), simple)
        return float((self.counts * logs).sum())

    def tilted(self, theta: float) -> Array:
        masses = self.masses * self._weights(theta)[0][:, None]
        return np.asarray(masses / masses.sum(axis=0))


def _blocks(items: Items) -> list[_Block]:
    """The widest items alone, for a transform each; the others together, as matrices of bounded size."""
    wide = sorted(items, key=lambda item: -item[1] * item[0].moments()[1])
    alone = [item for i, item in enumerate(wide) if i < LEADERS or item[0].masses.size > LARGEST_COLUMN]
    rest = [item for i, item in enumerate(wide) if i >= LEADERS and item[0].masses.size <= LARGEST_COLUMN]
    blocks = [_Block([item]) for item in alone]
    rest.sort(key=lambda item: item[0].masses.size)
    start = 0
    for end in range(1, len(rest) + 1):
        if end == len(rest) or (end + 1 - start) * rest[end][0].masses.size > LARGEST_BLOCK:
            blocks.append(_Block(rest[start:end]))
            start = end
    return blocks


@dataclass(frozen=True, slots=True)
class Composition:
    """The composed δ-curve near one tilt: δ(ε) = value ± error at ε = origin + step·i."""

    epsilons: Array
    value: Array
    error: Array
    p_above: Array
    q_above: Array
    scale: float
    infinite: float
    surely_infinite: float
    shift: float

    def epsilon_up(self, delta: float) -> float | None:
        """The smallest ε whose δ surely is at most ``delta``.

        None if it lies below this curve's window; infinity if it may lie above, as not even the last point is sure.
        """
        target = delta - self.infinite
        over = np.flatnonzero(self.value + self.error > target)
        if not over.size:
            return None
        if over[-1] == self.epsilons.size - 1:
            return math.inf
        return self._inside(int(over[-1]), target - float(self.error[over[-1]]))

    def epsilon_down(self, delta: float) -> float | None:
        """The largest ε whose δ surely is above ``delta``; None if it lies below this curve's window."""
        target = delta - self.surely_infinite
        over = np.flatnonzero(self.value - self.error > target)
        if not over.size or self.epsilons[over[-1]] > self._known_to:
            return None
        return down_by(self._inside(int(over[-1]), target + float(self.error[over[-1]]))) - self.shift

    def delta_down(self, epsilon: Array) -> Array:
        """δ from below at every ε; below the window that of its first point, since δ falls."""
        asked = np.maximum(epsilon + self.shift, self.epsilons[0])
        j = np.clip(np.searchsorted(self.epsilons, asked, side="right") - 1, 0, self.epsilons.size - 1)
        beyond = np.exp(np.clip(asked - self.epsilons[j], 0.0, 50.0)) * (1 + 1e-12)
        value = self.scale * (self.p_above[j] * (1 - 1e-12) - beyond * self.q_above[j]) - beyond * self.error[j]
        value = np.where(j == self.epsilons.size - 1, 0.0, value)
        return np.where(asked > self._known_to, 0.0, np.maximum(value, 0.0) + self.surely_infinite)

    @property
    def _known_to(self) -> float:
        return NEAR if self.surely_infinite else math.inf

    def delta_up(self, epsilon: Array) -> Array:
        """δ from above at every ε; below the window by its largest slope in e^ε, which is that of Q's whole mass."""
        place = np.searchsorted(self.epsilons, epsilon, side="right") - 1
        j = np.clip(place, 0, self.epsilons.size - 1)
        beyond = np.clip(epsilon - self.epsilons[j], 0.0, 50.0)
        value = self.scale * (self.p_above[j] - np.exp(beyond) * self.q_above[j])
        # above the window only what the error already accounts for is left
        value = np.where(j == self.epsilons.size - 1, 0.0, value)
        known = np.maximum(value, 0.0) + self.error[j] + self.infinite
        start = float(self.epsilons[0])
        # e^start − e^ε, and more than enough where that is no float
        rise = -np.expm1(np.minimum(epsilon - start, 0.0)) * math.exp(min(start, 700.0)) * (1 + 1e-6)
        known = known + np.where(place < 0, rise, 0.0)
        return np.fmin(known * (1 + 1e-12), 1.0)

    def _inside(self, j: int, target: float) -> float:
        """Where the polygon between lattice points j and j+1, linear in e^ε, takes the value ``target``."""
        low = float(self.epsilons[j])
        if j + 1 >= self.epsilons.size:
            return low  # only a bound from below asks for the last point
        high = float(self.epsilons[j + 1])
        # p_above and q_above are relative to the point j: δ = scale·(p − e^{ε−ε_j}·q)
        ratio = (float(self.p_above[j]) - target / self.scale) / max(float(self.q_above[j]), 1e-300)
        return min(max(low + math.log(ratio), low), high) if ratio > 0 else low


def composed(items: Items, theta: float) -> Composition:
    """Compose the items exactly but for bounded errors, seen through the tilt θ ≥ 0."""
    from scipy import fft  # slow to import, and few losses need it

    step = items[0][0].step
    blocks = _blocks(items)
    log_moment, mean, variance = _total(blocks, theta)
    offset = math.fsum(count * lattice.offset for lattice, count in items)
    deviation = math.sqrt(max(variance, step * step))
    margin = TILTED_WINDOW if theta > 0 else PLAIN_WINDOW
    above = _window(blocks, theta, log_moment, mean, deviation, margin, side=+1)
    below = _window(blocks, theta, log_moment, mean, deviation, margin, side=-1)
    lowest = math.floor((mean - below) / step)
    size = fft.next_fast_len(int((above + below) / step) + 4, real=True)
    if size > LARGEST_TRANSFORM:
        raise TooFineError
    floor = TILTED_FLOOR if theta > 0 else PLAIN_FLOOR
    live, log_spectrum, relative_error = _spectrum(blocks, theta, size, floor)
    spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
    spectrum[live] = np.exp(log_spectrum + (2j * math.pi / size) * ((lowest % size) * live % size))
    masses = fft.irfft(spectrum, size)
    norm = math.sqrt(2 * float((np.abs(spectrum) ** 2).sum()))
    drift = math.sqrt(2 * float(((np.abs(spectrum[live]) * relative_error) ** 2).sum()))
    l2_error = (FFT_CONSTANT * UNIT * math.log2(size) * norm + drift) / math.sqrt(size) + math.exp(floor)

    # losses relative to the tilted mean; only the part from which δ can be read with this tilt
    start = max(0, int((mean - (2 / theta if theta > 0 else below)) / step) - lowest)
    start = min(max(start, int((mean - LARGEST_EXPONENT) / step) - lowest), size - 2)
    if step * (lowest + size) - mean > LARGEST_EXPONENT and theta * LARGEST_EXPONENT < FAR:
        raise TooFineError
    # further up the tilt leaves next to nothing of the mass: at most e^-FAR in all, which the error includes
    stop = size if theta == 0 else min(size, start + 2 + int(FAR / (theta * step)))
    place = np.asarray(step * (lowest + np.arange(start, stop)) - mean, dtype=np.float64)
    weighted = masses[start:stop] * np.exp(-theta * place)
    beyond = 0.0 if stop == size else math.exp(-theta * float(place[-1]))
    # sums over losses strictly above each point, the second one times e^{ε_j}: both stay in range
    p_above = np.append(np.cumsum(weighted[::-1])[::-1][1:], 0.0)
    q_above = np.exp(place) * np.append(np.cumsum((weighted * np.exp(-place))[::-1])[::-1][1:], 0.0)
    scale = math.exp(min(log_moment - theta * mean, 700.0))
    terms = np.arange(place.size)[::-1] + 1.0
    if theta > 0:
        terms = np.minimum(terms, 1 / -math.expm1(-2 * theta * step))
    # every tilted mass is e^{log mass + θz} in floats, and the number of items is how often that is multiplied
    widest = max(float(np.abs(block.ends).max()) for block in blocks)
    rounding = sum(count for _, count in items) * (2 * theta * widest + 16) * UNIT
    sums_error = (place.size * 2 * UNIT + rounding) * (np.abs(p_above) + np.abs(q_above))
    wrapped = l2_error * np.sqrt(terms) + 2 * math.exp(-margin)
    error = scale * (np.exp(-theta * place) * wrapped + sums_error + beyond)
    return Composition(
        epsilons=place + mean + offset,
        value=scale * (p_above - q_above),
        error=error * (1 + 1e-9),
        p_above=p_above,
        q_above=q_above,
        scale=scale,
        infinite=infinite_mass(items),
        surely_infinite=_surely_infinite(items),
        shift=math.fsum(count * lattice.shift for lattice, count in items),
    )


def infinite_mass(items: Items) -> float:
    """The mass of "some item is infinite"; an item's masses may sum to slightly more than one after its lift."""
    total = survive = 0.0
    for lattice, count in items:
        whole = float(lattice.masses.sum()) + lattice.infinite
        if lattice.infinite >= whole:
            return 1.0
        total += count * math.log(whole)
        survive += count * math.log1p(-lattice.infinite / whole)
    return min(1.0, up_by(-math.expm1(survive) * math.exp(min(max(total, 0.0), 700.0)), 2.0**-40))


def _surely_infinite(items: Items) -> float:
    """The mass of "some item is infinite" from below, whatever the items' other masses sum to.

    A bound from below may only know that the loss is at least 600 (``lattice.under``). Read as infinite that overstates
    δ(ε) by a share of e^(ε−600), as the Q-masses of the other items sum to at most 1: nothing for ε up to ``NEAR``.
    """
    survive = math.fsum(count * math.log1p(-min(lattice.infinite, 1 - UNIT)) for lattice, count in items)
    return -math.expm1(survive) * (1 - 2.0**-40)


def _window(
    blocks: list[_Block], theta: float, log_moment: float, mean: float, deviation: float, margin: float, *, side: int
) -> float:
    """How far from the mean the tilted sum stays but for mass e^-margin (Chernoff), or its support ends."""
    column = 1 if side > 0 else 0
    edge = math.fsum(float((block.counts * block.ends[:, column]).sum()) for block in blocks)
    best = max(side * (edge - mean), 0.0) + blocks[0].step
    base = math.sqrt(2 * margin) / deviation
    for factor in (1.0, 0.75, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.02, 0.01):
        rate = base * factor
        moved = math.fsum(block.log_moment(theta + side * rate) for block in blocks)
        reach = (moved - log_moment + margin) / rate - side * mean
        if reach < best:
            best = reach
        elif factor < 0.5:
            break
    return max(best, 2 * blocks[0].step)


def _spectrum(
    blocks: list[_Block], theta: float, size: int, floor: float
) -> tuple[npt.NDArray[np.intp], Complex, Array]:
    """Live frequencies, the log of the product there, and a bound of its relative error."""
    from scipy import fft

    live = np.arange(size // 2 + 1)
    product = np.zeros(live.size, dtype=np.complex128)
    error, most = np.zeros(live.size), np.zeros(live.size)
    for block in blocks:
        masses = block.tilted(theta)
        if masses.shape[1] == 1:
            wrapped = np.bincount(block.index % size, weights=masses[:, 0], minlength=size)
            values = fft.rfft(wrapped)[live][:, None]
            absolute = FFT_CONSTANT * UNIT * math.log2(size) * math.sqrt(size * float((masses**2).sum()))
        else:
            values = _direct(block.index, masses, live, size)
            absolute = (8 + block.index.size) * UNIT
        magnitude = np.abs(values)
        # dropped is what surely is below the floor, whatever the round-off did
        most = most + np.log(magnitude + absolute) @ block.counts
        keep = (most > floor) & (magnitude.min(axis=1) > 0)
        most = most[keep]
        live, values, magnitude = live[keep], values[keep], magnitude[keep]
        product = product[keep] + np.log(values) @ block.counts
        error = error[keep] + (absolute / magnitude + 8 * UNIT) @ block.counts
    return live, product, np.expm1(np.minimum(error, 50.0))


def _direct(index: npt.NDArray[np.int64], masses: Array, live: npt.NDArray[np.intp], size: int) -> Complex:
    """The transforms of many short columns at a few frequencies; the phase is reduced in integers."""
    out = np.empty((live.size, masses.shape[1]), dtype=np.complex128)
    rows = max(1, 2_000_000 // index.size)
    for start in range(0, live.size, rows):
        turns = (live[start : start + rows, None] * (index % size)[None, :]) % size
        angles = (-2 * math.pi / size) * turns
        out[start : start + rows].real = np.cos(angles) @ masses
        out[start : start + rows].imag = np.sin(angles) @ masses
    return out


def tilt_for_delta(items: Items, delta: float) -> float:
    """The saddle point: the tilt whose mean is about the ε with δ(ε) = ``delta``."""
    blocks = _blocks(items)
    goal = math.log(delta)

    def excess(theta: float) -> float:
        moment, mean, variance = _total(blocks, theta)
        spread = 0.5 * math.log(2 * math.pi * max(variance, 1e-30))
        return moment - theta * mean - math.log(theta * (1 + theta)) - spread - goal

    variance = _total(blocks, 0.0)[2]
    start = max(1e-3, math.sqrt(2 * max(-goal, 0.5) / max(variance, 1e-12)))
    return _crossing(excess, start, min(block.largest_tilt for block in blocks))


def tilt_for_epsilon(items: Items, epsilon: float) -> float:
    """The tilt that moves the mean to ``epsilon``; zero if the mean is beyond already."""
    blocks = _blocks(items)
    goal = epsilon - math.fsum(count * lattice.offset for lattice, count in items)
    _, mean, variance = _total(blocks, 0.0)
    if mean >= goal:
        return 0.0
    start = max(1e-6, (goal - mean) / max(variance, 1e-12))
    limit = min(block.largest_tilt for block in blocks)
    return _crossing(lambda theta: goal - _total(blocks, theta)[1], start, limit)


def _total(blocks: list[_Block], theta: float) -> tuple[float, float, float]:
    """Log moment, mean and variance of the whole tilted sum, without offsets."""
    sums = [[float(part.sum()) for part in block.cumulants(theta)] for block in blocks]
    moment, mean, variance = (math.fsum(column) for column in zip(*sums, strict=True))
    return moment, mean, variance


def _crossing(excess: Callable[[float], float], start: float, limit: float) -> float:
    """About where a decreasing function of θ > 0 crosses zero; a few per cent are enough, any tilt is valid."""
    low = high = min(start, limit)
    if excess(high) > 0:
        while high < limit:
            low, high = high, min(high * 1.6, limit)
            if excess(high) <= 0:
                break
    else:
        while low > 1e-9:
            low, high = low / 1.6, low
            if excess(low) > 0:
                break
    for _ in range(6):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return math.sqrt(low * high)
