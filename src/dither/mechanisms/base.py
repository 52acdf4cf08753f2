"""The contract of every mechanism, and the checks on what comes in."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source as Source
from dither.errors import InvalidData, InvalidParameter, NotPrivate
from dither.numeric import Number, as_fraction
from dither.privacy import PrivacyLoss, Sensitivity

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
SMALLEST_FAILURE = 1e-290


@dataclass(frozen=True, slots=True)
class RealLaw:
    """The closed form of a released number's law: its distribution function, Pr[released ≤ x]."""

    cdf: Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class FiniteLaw:
    """The closed form of a choice: the probability of each outcome, which is its index unless outcomes are listed."""

    probabilities: Floats
    outcomes: Sequence[Any] | None = None


class NoiseMechanism(ABC):
    """Adds noise of a stated size to an exact answer; the cost follows from the size.

    A subclass is a frozen, slotted dataclass whose first field is ``scale``.
    """

    __slots__ = ()

    @abstractmethod
    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """What one release costs, before any data is touched.

        Args:
            sensitivity: How far one unit moves the exact answer.
        """

    @abstractmethod
    def error(self, confidence: Number = 0.95) -> float:
        """The absolute error that one coordinate doesn't exceed with this confidence.

        Args:
            confidence: How sure it is, between 0 and 1.
        """

    @abstractmethod
    def release(self, exact: Any) -> Any:
        """The answer plus noise; scalars and arrays.

        Args:
            exact: The exact answer: a number or an array.
        """

    def law(self, exact: float) -> RealLaw | None:  # noqa: ARG002
        """The closed form of what ``release(exact)`` gives for a number, where one is known.

        Args:
            exact: The exact answer.
        """
        return None

    def worst_pair(self, sensitivity: Sensitivity) -> tuple[Any, Any]:
        """Exact answers of two neighbours, as far apart as the sensitivity allows.

        Args:
            sensitivity: How far one unit moves the exact answer.
        """
        return 0.0, float(sensitivity.bound)


class Session:
    """Secret state that answers one stream of questions; it can't be copied, stored or used after a fork.

    Two copies would answer twice from noise that was paid for once.
    """

    __slots__ = ("_lock", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise NotPrivate("this session belongs to the process that started it: a copy would reuse its noise")

    def _no_copy(self, *_: object) -> NoReturn:
        raise NotPrivate(f"a {type(self).__name__} holds secret noise that is good for one stream: start another one")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _no_copy


def failure_probability(confidence: Number) -> float:
    """1 − confidence, rounded down, for a confidence strictly between 0 and 1."""
    exact = as_fraction(confidence, "confidence")
    if not 0 < exact < 1:
        raise InvalidParameter(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
    failure = float(1 - exact) * (1 - 2.0**-52)
    if failure < SMALLEST_FAILURE:
        raise InvalidParameter(f"confidence must be at most 1 − {SMALLEST_FAILURE:g}")
    return failure


def per_coordinate(failure: float, coordinates: int) -> float:
    """The failure each of several independent coordinates may have so that all hold together: 1 − (1−β)^{1/k}."""
    return failure if coordinates == 1 else -math.expm1(math.log1p(-failure) / coordinates)


def finite_floats(exact: Any, what: str = "answer") -> Floats:
    """``exact`` as float64, refused unless every entry is a finite number. Whole numbers are clamped to ±2^53.

    Clamping moves no two neighbours apart; rounding a larger whole number to a float could.
    """
    array = _plain_array(exact, what)
    if array.dtype.kind in "iu":
        return np.asarray(np.clip(array, -(2**53), 2**53), dtype=np.float64)
    if array.dtype.kind == "O" and all(type(v) in (int, float) for v in array.flat):
        values = np.array([min(max(v, -(2**53)), 2**53) if type(v) is int else v for v in array.flat], dtype=np.float64)
        values = values.reshape(array.shape)
    elif array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        values = array.astype(np.float64, copy=False)
    else:
        raise InvalidData(
            f"the {what} must be a float, a whole number or an array of those; got {array.dtype} (numbers of a wider "
            "type would be rounded, which can move neighbours apart: convert them, and state the sensitivity of floats)"
        )
    # a sum is finite only if everything in it is; where it isn't, look closer (it may just have overflowed)
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not math.isfinite(values.sum())
    if suspicious and not np.isfinite(values).all():
        raise InvalidData(f"the {what} must be finite; nothing was drawn")
    return values


def _plain_array(exact: Any, what: str) -> npt.NDArray[Any]:
    """An ordinary array; a masked one is refused, since what it hides would be released."""
    if isinstance(exact, np.ma.MaskedArray):
        raise InvalidData(f"the {what} must not be a masked array: fill it with a fixed value first")
    try:
        return np.asarray(exact)
    except (ValueError, TypeError, OverflowError):
        # not chained: the cause would show the data
        raise InvalidData(f"the {what} must be a number or an array of numbers") from None


def whole_numbers(exact: Any, what: str = "answer") -> Ints:
    """``exact`` as int64, refused unless it holds whole numbers; clamped to ±2^62, which moves no neighbours apart."""
    array = _plain_array(exact, what)
    if array.size == 0 and array.dtype.kind in "iufO":
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iuO" or array.dtype.kind == "b":
        raise InvalidData(
            f"the {what} must be a whole number or an integer array; got {array.dtype} "
            "(for real-valued answers use Laplace or Gaussian)"
        )
    if array.dtype.kind == "O" and not all(isinstance(v, int) and not isinstance(v, bool) for v in array.flat):
        raise InvalidData(f"the {what} must be a whole number or an integer array")
    bound = 2**62
    if array.dtype.kind == "O":
        clamped = [min(max(int(v), -bound), bound) for v in array.flat]
        return np.asarray(clamped, dtype=np.int64).reshape(array.shape)
    if array.dtype == np.uint64:
        return np.asarray(np.minimum(array, np.uint64(bound)), dtype=np.int64)
    return np.clip(np.asarray(array, dtype=np.int64), -bound, bound)


class Sampler(Protocol):
    """Exact whole-number noise."""

    def into(self, out: Ints, source: Source = SYSTEM) -> None:
        """Fill an array with draws."""
        ...

    def one(self, source: Source = SYSTEM) -> int:
        """One draw."""
        ...


def release_whole(exact: Any, sampler: Sampler, source: Source) -> int | Ints:
    """A whole number or an integer array plus noise.

    Arrays hold numbers within ±2^62; noise beyond that (e^-64 at the largest scale) saturates, so that sums fit.
    """
    if type(exact) is int:
        return exact + sampler.one(source)
    values = whole_numbers(exact)
    if values.ndim == 0:
        return int(values) + sampler.one(source)
    noise = np.empty(values.size, dtype=np.int64)
    sampler.into(noise, source)
    if values.size and (noise.max() >= 2**62 or noise.min() < -(2**62)):
        np.clip(noise, -(2**62), 2**62 - 1, out=noise)
    return np.asarray(values + noise.reshape(values.shape))
