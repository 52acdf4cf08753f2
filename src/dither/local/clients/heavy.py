"""The client of heavy hitters: the beginning of a value, of a length that is drawn, sketched.

To write such a client in another language:

- *Symbols*: a value is written as ``length`` symbols. ``values`` says how: "integers" are bits, the highest first (base
  2); "utf-8" are the bytes of the text in UTF-8, cut to ``length`` bytes and at the first zero byte, filled up with
  zeros (base 256); "letters" are the numbers of letters of ``alphabet``, as in ``clients.fragments`` (base: how many
  there are, plus 2).
- *Level*: a uniform number t below the number of levels, ``length``/``step`` rounded up. The beginning has s =
  min((t + 1)·``step``, ``length``) symbols, which as digits, the highest first, make a number.
- *Payload*: t as one byte, and the payload of the collection ``sketch`` for the text "s:h", where s is written in
  decimal and h is the number in hexadecimal, lower case, filled up with zeros to as many digits as base^s − 1 has.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, expect_fields, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.fragments import Letters, number_of, sketch_client

LARGEST_LENGTH = 1024
LARGEST_LEVELS = 256
# A decoder looks at all continuations of what it has found.
LARGEST_CHILDREN = 1 << 16


class Spelling(Enum):
    """How values are written as symbols."""

    INTEGERS = "integers"
    UTF8 = "utf-8"
    LETTERS = "letters"


class Symbols:
    """Values as sequences of ``length`` symbols below ``base``, whose beginnings are numbers."""

    def __init__(self, values: Spelling, *, length: Any, step: Any, alphabet: Any = None) -> None:
        for name, number, most in (("length", length, LARGEST_LENGTH), ("step", step, length)):
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
                raise InvalidParameter(f"{name} must be a whole number from 1 to {most}; got {number!r}")
        if (values is Spelling.LETTERS) == (alphabet is None):
            raise InvalidParameter("an alphabet is needed for values that are letters, and for no others")
        self.letters = Letters(alphabet, length) if alphabet is not None else None
        self.values, self.length, self.step = values, int(length), int(step)
        self.base: int = self.letters.base if self.letters else 2 if values is Spelling.INTEGERS else 256
        self.levels = -(-self.length // self.step)
        if self.levels > LARGEST_LEVELS or self.base**step > LARGEST_CHILDREN:
            raise InvalidParameter(
                f"there may be up to {LARGEST_LEVELS} levels, length/step, and up to {LARGEST_CHILDREN} ways to go on "
                f"at each, {self.base}^step; got {self.levels} and {self.base}^{step}"
            )
        sizes = [self.size(level) for level in range(self.levels)]
        self._after: list[int] = [self.base ** (self.length - size) for size in sizes]
        self._widths = [((self.base**size - 1).bit_length() + 3) // 4 for size in sizes]

    def number(self, value: Any) -> int:
        """The number that the symbols of a value spell; the message of the error doesn't repeat the value."""
        if self.letters:
            return number_of(self.letters.digits(value), self.base)
        if self.values is Spelling.INTEGERS:
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << self.length:
                return value
            raise InvalidData(f"the value must be a whole number below 2^{self.length}; nothing was drawn")
        try:
            text = value.encode("utf-8")[: self.length].split(b"\0", 1)[0]
        except (AttributeError, UnicodeEncodeError):
            raise InvalidData("the value must be a text that UTF-8 can write; nothing was drawn") from None
        return int.from_bytes(text.ljust(self.length, b"\0"), "big")

    def value(self, number: int) -> str | int:
        """The value that a whole sequence spells: as much of it as the collection keeps."""
        if self.values is Spelling.INTEGERS:
            return number
        if self.letters:
            return self.letters.word(self._spelled(number))
        return bytes(self._spelled(number)).rstrip(b"\0").decode("utf-8", errors="replace")

    def size(self, level: int) -> int:
        """How many symbols the beginning of a level has."""
        return min((level + 1) * self.step, self.length)

    def beginning(self, number: int, level: int) -> int:
        """The number that the first symbols spell."""
        return number // self._after[level]

    def text(self, number: int, level: int) -> str:
        """What is sketched for a beginning.

        Example:
            >>> Symbols(Spelling.INTEGERS, length=16, step=4).text(5, 1)
            '8:05'
        """
        return f"{self.size(level)}:{number:0{self._widths[level]}x}"

    def children(self, number: int | None, level: int) -> list[int]:
        """The beginnings of a level that continue one of the level before; nothing follows the end of a text."""
        size = self.size(level) - (self.size(level - 1) if level else 0)
        ways = int(self.base**size)
        start = 0 if number is None else number * ways
        if self.values is Spelling.INTEGERS:
            return list(range(start, start + ways))
        if number is not None and number % self.base == 0:
            return [start]
        return [start + way for way in range(ways) if self._ends(way, size)]

    def _ends(self, number: int, size: int) -> bool:
        """Whether nothing follows an end."""
        ended = True
        for _ in range(size):
            number, digit = divmod(number, self.base)
            if digit:
                ended = False
            elif not ended:
                return False
        return True

    def _spelled(self, number: int) -> list[int]:
        return [number // self.base**place % self.base for place in reversed(range(self.length))]


class HeavyHittersClient(Client, protocol="heavy_hitters"):
    """Sends a level, and the sketched beginning of the value."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.sketch = sketch_client(description.get("sketch"))
        if self.sketch.domain is not None:
            raise InvalidParameter("the sketch of heavy hitters must have an open domain")
        self.symbols = symbols_of(description)
        letters = ("alphabet",) if self.symbols.values is Spelling.LETTERS else ()
        expect_fields(self.description, "protocol", "values", "length", "step", "sketch", *letters)

    @property
    def width(self) -> int:
        """The level, and the payload of the sketch."""
        return 1 + self.sketch.width

    @property
    def epsilon(self) -> float:
        """That of the sketch; the level is drawn whatever the value is."""
        return self.sketch.epsilon

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The level that was drawn, and the beginning."""
        number = self.symbols.number(value)
        level = coins.below(self.symbols.levels)
        text = self.symbols.text(self.symbols.beginning(number, level), level)
        return bytes([level]) + self.sketch.payload(text, coins)


def symbols_of(description: Mapping[str, Any]) -> Symbols:
    """How a description says that values are written."""
    try:
        values = Spelling(description.get("values"))
    except ValueError:
        known = ", ".join(f'"{spelling.value}"' for spelling in Spelling)
        raise InvalidParameter(f"values must be one of {known}; got {description.get('values')!r}") from None
    length = whole(description, "length", least=1, most=LARGEST_LENGTH)
    step = whole(description, "step", least=1, most=length)
    return Symbols(values, length=length, step=step, alphabet=description.get("alphabet"))
