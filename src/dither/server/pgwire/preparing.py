"""Statements that are prepared and given values, by the protocol or by PREPARE and EXECUTE: what both ways share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from dither.errors import Refused
from dither.query.schema import Schema
from dither.server.pgwire.errors import failure
from dither.server.pgwire.guessing import guess_types
from dither.server.pgwire.options import Options
from dither.server.pgwire.parameters import BoundText, bind_text, placeholders
from dither.server.pgwire.portals import Prepared
from dither.server.pgwire.questions import DependsOnValues, Questions, refused_in
from dither.server.pgwire.statements import Statement
from dither.server.pgwire.types import Column
from dither.server.pgwire.values import NAMES as TYPE_NAMES
from dither.server.pgwire.values import InvalidValue, read_value
from dither.server.problems import ServerRefusal

LONGEST_AT_ONCE = 5000


class Preparing:
    """Prepares the questions of one session; free, and refused here if they can't be asked.

    Long texts are read one at a time, when it is their ``turn``.
    """

    def __init__(self, questions: Questions, schema: Schema, turn: asyncio.Lock) -> None:
        self._questions, self._schema, self._turn = questions, schema, turn

    async def prepared(self, statement: Statement, declared: Sequence[int], options: Options) -> Prepared:
        """A question with the types of its parameters."""
        found = await self._typed(statement, tuple(declared))
        # PostgreSQL finds what is wrong with a statement here, and some clients can't take it later
        with contextlib.suppress(DependsOnValues):
            await self.columns(found, options)
        return found

    async def columns(self, prepared: Prepared, options: Options) -> tuple[Column, ...]:
        """The columns of the answer, whatever the values will be."""
        return await self._questions.describe(prepared.statement, options, places=prepared.places, kinds=prepared.types)

    async def _typed(self, statement: Statement, declared: tuple[int, ...]) -> Prepared:
        """The statement with the types of its parameters, guessed where the client didn't say."""
        text = statement.question
        places = placeholders(text)
        if not places and not declared:
            return Prepared(statement=statement)
        try:
            if len(text) <= LONGEST_AT_ONCE:
                kinds = guess_types(text, places, declared, self._schema)
            else:
                async with self._turn:
                    kinds = await asyncio.to_thread(guess_types, text, places, declared, self._schema)
        except (Refused, ServerRefusal) as error:
            raise refused_in(statement, error) from None
        for number, oid in enumerate(kinds, 1):
            if oid not in TYPE_NAMES:
                raise InvalidValue(number, "0A000", f"has a type (oid {oid}) that questions can't use")
        return Prepared(statement=statement, places=places, types=kinds)


def bound_to(
    prepared: Prepared, given: Sequence[bytes | None], formats: Sequence[int] = (), *, sqlstate: str = "08P01"
) -> BoundText:
    """The question with these values in place; ``sqlstate`` is of the error if there are too many or too few."""
    if len(given) != len(prepared.types):
        raise failure(sqlstate, f"there are {len(given)} values for {len(prepared.types)} parameters")
    if not prepared.places:
        return BoundText(text=prepared.statement.question)
    forms = formats if len(formats) > 1 else (tuple(formats) or (0,)) * len(given)
    values = [
        read_value(raw, oid, form=form, number=number)
        for number, (raw, oid, form) in enumerate(zip(given, prepared.types, forms, strict=True), 1)
    ]
    return bind_text(prepared.statement.question, values, prepared.places)
