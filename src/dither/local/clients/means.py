"""Clients that report a number within public bounds.

Every one first puts the number on a public grid: of the two points around it one is drawn, the nearer with the larger
probability, so that the mean stays what it is. Then it randomises the point. A payload is the number of an output, the
lowest byte first. To write such a client in another language, draw what the docstrings of the ``respond`` methods say.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, bytes_for, epsilon_up, fraction, whole
from dither.local.clients.coins import SYSTEM, Coins

LARGEST_STEPS = 2**16
# Powers of the decay up to this one are needed as fractions.
LARGEST_LAPLACE_STEPS = 2**10
LARGEST_POWER = 2**19
# No exponents: a short text could spell a number of a billion digits.
PLAIN_NUMBER = re.compile(r"-?[0-9]{1,400}(/[0-9]{1,400})?")


class Bounds:
    """The least and the largest value that counts; what lies outside is clamped."""

    def __init__(self, given: Any) -> None:
        ends = [_exact(text) for text in given] if isinstance(given, list | tuple) and len(given) == 2 else []
        low, high = ends if len(ends) == 2 else (None, None)
        if low is None or high is None or not low < high:
            raise InvalidParameter(
                'bounds must be two numbers, the lower one first, written as texts such as "0" and "5/2"'
            )
        self.low, self.high = low, high

    def position(self, value: Any) -> Fraction:
        """Where a value lies between the bounds, from 0 to 1; the message of the error doesn't repeat it."""
        if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
            if value >= self.high:
                return Fraction(1)
            if value <= self.low:
                return Fraction(0)
            if value == value:  # NaN doesn't equal itself
                return (Fraction(value) - self.low) / (self.high - self.low)
        raise InvalidData("the value must be an int, a float or a Fraction, and not NaN; nothing was drawn")

    def to_json(self) -> list[str]:
        """As they stand in a description."""
        return [str(self.low), str(self.high)]


def _exact(text: Any) -> Fraction | None:
    try:
        exact = Fraction(text) if isinstance(text, str) and PLAIN_NUMBER.fullmatch(text) else None
    except ZeroDivisionError:
        return None
    # one number has one text: "-0" and "2/4" would make the same collection another
    return exact if str(exact) == text else None


def on_grid(position: Fraction, steps: int, coins: Coins) -> int:
    """One of the two points around a position, such that their mean is the position."""
    below, rest = divmod(position * steps, 1)
    return int(below) + coins.chance(rest)


class NumberClient(Client):
    """Puts a number on the grid and randomises the point."""

    bounds: Bounds
    steps: int
    outputs: int

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.bounds = Bounds(description.get("bounds"))

    @abstractmethod
    def respond(self, point: int, coins: Coins) -> int:
        """The output for a point of the grid."""

    @property
    def width(self) -> int:
        """As many bytes as the largest output needs."""
        return bytes_for(self.outputs)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The number of the output."""
        return self.output(self.bounds.position(value), coins).to_bytes(self.width, "little")

    def output(self, position: Fraction, coins: Coins) -> int:
        """The output for a position between the bounds, from 0 to 1."""
        return self.respond(on_grid(position, self.steps, coins), coins)


class OneBitMeanClient(NumberClient, protocol="one_bit_mean", fields=("bounds", "keep")):
    """Rounds the number to one of the bounds and tells which, truthfully with probability ``keep``."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.keep = fraction(description, "keep")
        check_bit(self.keep)
        self.steps, self.outputs = 1, 2

    @property
    def epsilon(self) -> float:
        """The true bound against the other."""
        return epsilon_up(self.keep / (1 - self.keep))

    def respond(self, point: int, coins: Coins) -> int:
        """The point with probability ``keep``, else the other one."""
        return point ^ (not coins.chance(self.keep))


class LaplaceMeanClient(NumberClient, protocol="laplace_mean", fields=("bounds", "steps", "decay")):
    """Adds two-sided geometric noise, Pr[z] ∝ decay^|z|, to the point; outputs beyond the grid become its ends."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.steps = whole(description, "steps", least=1, most=LARGEST_LAPLACE_STEPS)
        self.decay = fraction(description, "decay")
        check_decay(self.decay, self.steps)
        self.outputs = self.steps + 1
        self.down, self.far, self.bits = geometric_coins(self.decay, self.steps)

    @property
    def epsilon(self) -> float:
        """The two ends of the grid: as many factors of 1/decay as there are steps."""
        return epsilon_up(1 / self.decay, self.steps)

    def respond(self, point: int, coins: Coins) -> int:
        """The noise is g or, with probability decay/(1+decay), −1−g, where Pr[g] ∝ decay^g for g ≥ 0.

        The binary digits of g are independent: digit i is 1 with probability p/(1+p), p = decay^(2^i). Where g isn't
        below 2^digits ≥ steps, which has probability decay^(2^digits), any g will do: the output is an end.
        """
        down, far = coins.chance(self.down), coins.chance(self.far)
        noise = sum(coins.chance(p) << place for place, p in enumerate(self.bits)) + (far << len(self.bits))
        return min(self.steps, max(0, point + (-1 - noise if down else noise)))


class PiecewiseMeanClient(NumberClient, protocol="piecewise_mean", fields=("bounds", "steps", "window", "keep")):
    """Names a cell: with probability ``keep`` one of the ``window`` cells that begin at the point, else any other."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.steps = whole(description, "steps", least=1, most=LARGEST_STEPS)
        self.window = whole(description, "window", least=1, most=LARGEST_STEPS)
        self.keep = fraction(description, "keep")
        check_window(self.keep, self.steps, self.window)
        self.outputs = self.steps + self.window

    @property
    def epsilon(self) -> float:
        """A cell of the window against one outside."""
        return epsilon_up(window_odds(self.keep, self.steps, self.window))

    def respond(self, point: int, coins: Coins) -> int:
        """There are steps + window cells, so as many lie outside of the window as there are steps."""
        return window_response(point, self.steps, self.window, self.keep, coins)


class HybridMeanClient(
    NumberClient, protocol="hybrid_mean", fields=("bounds", "steps", "window", "keep", "bit_keep", "share")
):
    """Names a cell like the piecewise client with probability ``share``, else sends one bit; and tells which."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.steps = whole(description, "steps", least=1, most=LARGEST_STEPS)
        self.window = whole(description, "window", least=1, most=LARGEST_STEPS)
        self.keep, self.bit_keep = fraction(description, "keep"), fraction(description, "bit_keep")
        self.share = fraction(description, "share")
        check_window(self.keep, self.steps, self.window)
        check_bit(self.bit_keep, "bit_keep")
        check_share(self.share)
        self.outputs = self.steps + self.window + 2

    @property
    def epsilon(self) -> float:
        """That of the part with the larger; which one is drawn says nothing about the number."""
        return epsilon_up(max(window_odds(self.keep, self.steps, self.window), self.bit_keep / (1 - self.bit_keep)))

    def respond(self, point: int, coins: Coins) -> int:
        """Cells come first; the last two outputs are the bit. Both are drawn, so that time doesn't tell which."""
        piecewise = coins.chance(self.share)
        cell = window_response(point, self.steps, self.window, self.keep, coins)
        bit = on_grid(Fraction(point, self.steps), 1, coins) ^ (not coins.chance(self.bit_keep))
        return cell if piecewise else self.steps + self.window + bit


def window_response(point: int, steps: int, window: int, keep: Fraction, coins: Coins) -> int:
    """A cell of the window that begins at the point, or one outside."""
    inside = coins.chance(keep)
    # both are drawn, so that time doesn't tell which it was
    near, other = coins.below(window), coins.below(steps)
    return point + near if inside else other + window * (other >= point)


def window_odds(keep: Fraction, steps: int, window: int) -> Fraction:
    """How many times likelier a cell is where the window holds it."""
    return keep * steps / ((1 - keep) * window)


def geometric_coins(decay: Fraction, steps: int) -> tuple[Fraction, Fraction, tuple[Fraction, ...]]:
    """The probabilities of a negative noise, of one beyond the digits, and of each digit."""
    digits = (steps - 1).bit_length()
    powers = [decay ** (1 << place) for place in range(digits + 1)]
    return decay / (1 + decay), powers[-1], tuple(p / (1 + p) for p in powers[:-1])


def check_bit(keep: Fraction, name: str = "keep") -> None:
    """Refuse a collection that asks for an honest answer."""
    if not Fraction(1, 2) < keep < 1:
        raise InvalidParameter(f"{name} must lie above 1/2 and below 1: an honest answer isn't private")


def check_decay(decay: Fraction, steps: int) -> None:
    """Refuse noise that hides nothing, and fractions that would keep a device busy for minutes."""
    if not 0 < decay < 1:
        raise InvalidParameter("decay must lie above 0 (without noise nothing is private) and below 1")
    if steps * decay.denominator.bit_length() > LARGEST_POWER:
        raise InvalidParameter(f"decay^steps must have at most {LARGEST_POWER} binary digits: use a shorter decay")


def check_window(keep: Fraction, steps: int, window: int) -> None:
    """Refuse a window that tells everything or nothing."""
    if not Fraction(window, steps + window) < keep < 1:
        raise InvalidParameter(
            f"keep must lie above {window}/{steps + window}, the window's part of all cells, and below 1: an honest "
            "answer isn't private"
        )


def check_share(share: Fraction) -> None:
    """Refuse what is no mixture."""
    if not 0 < share < 1:
        raise InvalidParameter("share must lie above 0 and below 1: otherwise it is one of the two by itself")
