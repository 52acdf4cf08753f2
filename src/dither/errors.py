"""Every error that dither raises on purpose.

::

    DitherError
    ├── InvalidParameter(ValueError)     a value that can't be right: says what was expected
    │   ├── InvalidSensitivity           a sensitivity in a norm or adjacency the mechanism can't use
    │   └── InvalidData                  an answer or score that isn't a finite number of the right shape
    ├── IncompatibleLosses(ValueError)   losses stated for different adjacencies were combined
    ├── NotPrivate(ValueError)           a request that no amount of noise could make private
    ├── OutOfBudget                      a filter or ledger refused; nothing was spent
    ├── Refused(ValueError)              a question that can't be answered: before the charge, for public reasons only
    ├── Failed                           something went wrong after the charge: a receipt for the analyst
    ├── InvalidPolicy(ValueError)        the owner's file is wrong or incomplete: every problem with its line
    ├── LedgerError                      the ledger can't be used; nothing was charged by the call that raised
    │   ├── LedgerBusy                   another process holds it or works on the same question: ask again
    │   ├── LedgerUncertain              it isn't known whether this call charged; the same question is then free
    │   ├── LedgerCorrupt                its records contradict each other
    │   ├── LedgerRolledBack             it is older than what is known to have been written
    │   ├── LedgerMismatch               it was kept for another currency or another privacy unit
    │   └── LedgerOutdated               it has the format of an earlier version: upgrade it first
    ├── SourceError                      the owner's data can't be opened: a missing file, an unknown table
    │   └── NotAccepted                  new files of which more would be left out than the policy allows
    ├── MissingLibrary(ImportError)      an optional part needs a library that isn't installed: says which
    ├── ServerError(ConnectionError)     a server gave no usable reply (raised by dither.client, like its kinds)
    │   ├── Unreachable                  no connection could be made, or it broke
    │   └── TookTooLong(TimeoutError)    the answer didn't come in time: ask the same again, it isn't charged twice
    ├── ShadowFailed                     the PostgreSQL that tells clients about the tables doesn't start (dither serve)
    └── ConformanceFailed(AssertionError)  a mechanism, engine or ledger broke its contract (raised by dither.checks)

Messages are built from parameters, which are public; they never contain a data value.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_COMPARED = 60
MOST_COMPARED = 1000


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
    """A filter or ledger refused a spend that would exceed its budget; its state did not change."""


class Refused(DitherError, ValueError):  # noqa: N818
    """A question that can't be answered privately, or at all; free of charge, and for public reasons only.

    ``code`` is the permanent short name of the reason, ``hint`` says what to do instead, ``position`` is the place in
    the question: (line, column), both from 1.
    """

    def __init__(self, reason: str, *, code: str, hint: str = "", position: tuple[int, int] | None = None) -> None:
        self.reason, self.code, self.hint, self.position = reason, code, hint, position
        super().__init__(reason)

    def __reduce__(self) -> tuple[object, ...]:
        # exceptions are copied and sent between processes by their arguments, which take no keywords
        return _refused, (type(self), self.reason, self.code, self.hint, self.position)

    def __str__(self) -> str:
        place = f" (line {self.position[0]}, column {self.position[1]})" if self.position else ""
        return f"{self.reason}{place}" + (f". {self.hint}" if self.hint else "")


class Failed(DitherError):  # noqa: N818
    """Something went wrong after the charge: the analyst learns the receipt, the owner finds the cause in the log.

    The receipt stays spent; asking the same question again uses it and costs nothing more. ``final`` says that asking
    again brings nothing: part of the noise had been drawn, so that another try would be another answer.
    """

    def __init__(self, receipt: str, *, final: bool = False) -> None:
        self.receipt, self.final = receipt, final
        again = "ask it again at no further cost, and give the receipt to the owner of the data if it keeps failing"
        if final:
            again = "the same question will have no answer: ask another, and give the receipt to the owner of the data"
        super().__init__(f"the question was charged (receipt {receipt}) but could not be answered; {again}")

    def __reduce__(self) -> tuple[object, ...]:
        return _failed, (type(self), self.receipt, self.final)


class InvalidPolicy(DitherError, ValueError):  # noqa: N818
    """The owner's file is wrong or incomplete; ``problems`` lists every one with its place and what to write."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class LedgerError(DitherError):
    """The ledger can't be used as asked; the call that raised this charged nothing (but see LedgerUncertain)."""


class LedgerBusy(LedgerError):  # noqa: N818
    """Another process holds the ledger, or works on the same question: ask again later."""


class LedgerUncertain(LedgerError):  # noqa: N818
    """The ledger could not say whether the call charged: nothing was released, and no question is charged twice.

    Ask the same again: if it was charged, that costs nothing more.
    """


class LedgerCorrupt(LedgerError):  # noqa: N818
    """The ledger's records contradict each other, or the file is damaged."""


class LedgerRolledBack(LedgerError):  # noqa: N818
    """The ledger is older than what is known to have been written: an old copy was put in its place."""


class LedgerMismatch(LedgerError):  # noqa: N818
    """The ledger was kept for another currency, adjacency or privacy unit than the policy now states."""


class LedgerOutdated(LedgerError):  # noqa: N818
    """The ledger has the format of an earlier version: it can be read and verified, and be upgraded on request."""


class SourceError(DitherError):
    """The owner's data can't be opened as stated: a missing file, an unknown table or column."""


class MissingLibrary(DitherError, ImportError):  # noqa: N818
    """An optional part of dither needs a library that isn't installed; the message says how to get it."""


class ConformanceFailed(DitherError, AssertionError):  # noqa: N818
    """A mechanism, engine or ledger broke its contract; the message lists every check that failed."""


def _refused(kind: type[Refused], reason: str, code: str, hint: str, position: tuple[int, int] | None) -> Refused:
    return kind(reason, code=code, hint=hint, position=position)


def _failed(kind: type[Failed], receipt: str, final: bool) -> Failed:  # noqa: FBT001 - as pickle calls it
    return kind(receipt, final=final)


def near_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names that resemble one which isn't known, nearest first.

    The work is bounded, whatever anybody wrote: of each name the first 60 characters are compared, and of known names
    those of the same letters, in any case, and the first 1000.

    Args:
        name: What was written.
        known: What could have been: only names that whoever wrote it may learn.
        most: How many to find.

    Returns:
        At most so many, as they are spelt in ``known``.
    """
    from difflib import get_close_matches  # here: everybody imports this module, and few misspell

    choices: dict[str, str] = {}
    for choice in known:
        choices.setdefault(choice[:LONGEST_COMPARED].casefold(), choice)
    written = name[:LONGEST_COMPARED].casefold()
    same = [choices[written]] if written in choices else []
    compared = [choice for choice in list(choices)[:MOST_COMPARED] if choice != written]
    near = [choices[choice] for choice in get_close_matches(written, compared, n=most)]
    return [*same, *near][:most]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if one resembles what was written.

    Example:
        >>> did_you_mean("ratng", ["city", "Rating"])
        'Rating'
    """
    near = near_names(name, known, most=1)
    return near[0] if near else None
