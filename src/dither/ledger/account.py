"""Accounts: a tree of budgets, the dataset at the root and analysts or projects below it."""

from __future__ import annotations

from dataclasses import dataclass

from dither.errors import InvalidParameter
from dither.privacy.unit import account_name

DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a path of names from the dataset down.

    Whoever asks pays from every account on the path, so a limit on the dataset binds all analysts together.

    Example:
        >>> print(Account(("shop", "ana"))), [str(a) for a in Account(("shop", "ana")).lineage]
        shop/ana
        (None, ['shop', 'shop/ana'])
    """

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        path: object = self.path
        if not isinstance(path, tuple | list) or not 1 <= len(path) <= DEEPEST:
            raise InvalidParameter(f'an account is a tuple of 1 to {DEEPEST} names, such as ("shop", "ana")')
        # two spellings of one accented letter must not be two budgets
        object.__setattr__(self, "path", tuple(account_name(name) for name in path))

    @property
    def lineage(self) -> tuple[Account, ...]:
        """Every account that pays when this one asks, the dataset first."""
        above = (Account(self.path[:depth]) for depth in range(1, len(self.path)))
        return (*above, self)

    def __str__(self) -> str:
        return "/".join(self.path)
