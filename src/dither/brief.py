"""Texts for people: short ones of large values, so that a console or a log stays readable, and harmless ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from enum import Enum
from itertools import islice
from typing import Any, Self

# So many items of a collection, so many characters of a value, and of a whole object.
ITEMS = 5
LONGEST_VALUE = 300
LONGEST = 1500


class SentenceEnum(Enum):
    """An enumeration whose members say what they mean: ``NAME = value, sentence``. The value alone is stored.

    Example:
        >>> class Side(SentenceEnum):
        ...     LEFT = "left", "the side of the heart"
        >>> Side("left"), Side.LEFT.value, Side.LEFT.sentence
        (<Side.LEFT: 'left'>, 'left', 'the side of the heart')
    """

    _value_: str
    sentence: str

    def __new__(cls, value: Any, sentence: str = "") -> Self:
        """A member; type checkers take a look-up by value for a call of this."""
        made = object.__new__(cls)
        made._value_, made.sentence = value, sentence
        return made


def brief(self: Any) -> str:
    """The usual repr of a dataclass, with long values cut; for a class body: ``__repr__ = brief``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Survey:
        ...     labels: tuple
        ...     keep: float
        ...     __repr__ = brief
        >>> Survey(("a", "b"), 0.5), Survey(tuple(range(1000)), 0.5)
        (Survey(labels=('a', 'b'), keep=0.5), Survey(labels=(0, 1, 2, 3, 4, … 995 more), keep=0.5))
    """
    parts = (f"{field.name}={shortly(getattr(self, field.name))}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({_cut(', '.join(parts), LONGEST)})"


def shortly(value: Any) -> str:
    """The repr of one value: a few items of a collection, the first characters of anything else."""
    # what has items of its own kind, and isn't a plain collection, knows best how to show itself
    if type(value) in (tuple, list, dict, set, frozenset) or isinstance(value, Mapping):
        return _cut(_few(value), LONGEST_VALUE)
    return _cut(repr(value), LONGEST_VALUE)


def _few(value: Mapping[Any, Any] | Sequence[Any] | Set[Any]) -> str:
    left = len(value) - ITEMS
    more = [f"… {left:,} more"] if left > 0 else []
    if isinstance(value, Mapping):
        some = [f"{shortly(key)}: {shortly(item)}" for key, item in islice(value.items(), ITEMS)]
        return f"{{{', '.join([*some, *more])}}}"
    some = [shortly(item) for item in islice(value, ITEMS)]
    if isinstance(value, tuple):
        return f"({', '.join([*some, *more])}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join([*some, *more])}]"
    return f"{type(value).__name__}({', '.join([*some, *more])})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def printable(text: str) -> str:
    r"""A text without what would steer the terminal that shows it: names, keys and reports may say anything.

    Example:
        >>> printable("Zürich"), printable("\x1b[2J")
        ('Zürich', '�[2J')
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
