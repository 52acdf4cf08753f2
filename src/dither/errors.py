"""Every error that dither raises on purpose.

::

    DitherError
    ├── InvalidParameter(ValueError)     a value that can't be right: says what was expected
    │   ├── InvalidSensitivity           a sensitivity in a norm or adjacency the mechanism can't use
    │   └── InvalidData                  an answer or score that isn't a finite number of the right shape
    ├── IncompatibleLosses(ValueError)   losses stated for different adjacencies were combined
    ├── NotPrivate(ValueError)           a request that no amount of noise could make private
    ├── OutOfBudget                      a filter refused; nothing was spent
    └── ConformanceFailed(AssertionError)  a mechanism broke its contract (raised by dither.checks)

Messages are built from parameters, which are public; they never contain a data value.
"""

from __future__ import annotations


class DitherError(Exception):
    """The root: ``except dither.DitherError`` catches everything dither raises on purpose."""


class InvalidParameter(DitherError, ValueError):  # noqa: N818
    """A parameter is outside what makes sense; the message says what was expected."""


class InvalidSensitivity(InvalidParameter):
    """A sensitivity in a norm, granularity or adjacency that this mechanism can't use."""


class InvalidData(InvalidParameter):
    """An exact answer or score is not a finite number or has the wrong shape; nothing was drawn."""


class IncompatibleLosses(DitherError, ValueError):  # noqa: N818
    """Losses stated for different adjacencies can't be added."""


class NotPrivate(DitherError, ValueError):  # noqa: N818
    """The request can't be met by any amount of noise."""


class OutOfBudget(DitherError):  # noqa: N818
    """A filter refused a spend that would exceed its budget; its state did not change."""


class ConformanceFailed(DitherError, AssertionError):  # noqa: N818
    """A mechanism broke its contract; the message lists every check that failed."""
