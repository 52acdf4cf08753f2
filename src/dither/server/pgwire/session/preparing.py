"""Statements that are prepared and given values, by the protocol or by PREPARE and EXECUTE: what both ways share."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from dither.errors import Refused
from dither.query.schema import Schema
from dither.query.sql.parse import LONGEST
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.protocol.values import NAMES as TYPE_NAMES, InvalidValue, Parameter, read_value
from dither.server.pgwire.session.portals import PreparedStatement
from dither.server.pgwire.session.questions import DependsOnValues, Questions, refused_in
from dither.server.pgwire.sql.commands import CopyOut
from dither.server.pgwire.sql.parameter_types import guess_types
from dither.server.pgwire.sql.parameters import BoundText, Placeholder, bind_text, literal, placeholders
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.pgwire.sql.routing import Statement
from dither.server.pgwire.sql.settings import QuestionOptions
from dither.server.problems import ServerRefusal

# Values are put into so many characters at once, which takes less than a millisecond; into more beside the event loop.
LONGEST_AT_ONCE = 500


class Preparing:
    """Prepares the questions of one session; free, and refused here if they can't be asked."""

    def __init__(self, questions: Questions, schema: Schema, reading: AnalystReading) -> None:
        self._questions, self._schema, self._reading = questions, schema, reading

    async def prepared(
        self, statement: Statement, declared: Sequence[int], options: QuestionOptions
    ) -> PreparedStatement:
        """A question with the types of its parameters."""
        found = await self._typed(statement, tuple(declared))
        # PostgreSQL finds what is wrong with a statement here, and some clients can't take it later
        with contextlib.suppress(DependsOnValues):
            columns = await self._questions.columns_of_any(found, options)
            if isinstance(statement.detail, CopyOut):
                # COPY can't be described, so its column types are fixed here, by those of the parameters
                found.told.columns = columns
        return found

    async def _typed(self, statement: Statement, declared: tuple[int, ...]) -> PreparedStatement:
        """The statement with the types of its parameters, guessed where the client didn't say."""
        text = statement.question
        if "$" not in text and not declared:
            return PreparedStatement(statement=statement)

        def guess() -> tuple[tuple[Placeholder, ...], tuple[int, ...]]:
            places = placeholders(text)
            return places, guess_types(text, places, declared, self._schema)

        try:
            places, kinds = await self._reading.types_of(text, declared, guess)
        except (Refused, ServerRefusal) as error:
            raise refused_in(statement, error) from None
        for number, oid in enumerate(kinds, 1):
            if oid not in TYPE_NAMES:
                raise InvalidValue(number, "0A000", f"has a type (oid {oid}) that questions can't use")
        return PreparedStatement(statement=statement, places=places, types=kinds)

    async def bound(
        self,
        prepared: PreparedStatement,
        given: Sequence[bytes | None],
        formats: Sequence[int] = (),
        *,
        sqlstate: str = "08P01",
    ) -> BoundText:
        """The question with these values in place, as ``bound_to`` has it; beside the event loop if they are long."""
        size = len(prepared.statement.question) + sum(len(each) for each in given if each is not None)
        if not prepared.places or size <= LONGEST_AT_ONCE:
            return bound_to(prepared, given, formats, sqlstate=sqlstate)
        return await self._reading.beside(size, bound_to, prepared, given, formats, sqlstate=sqlstate)


def bound_to(
    prepared: PreparedStatement, given: Sequence[bytes | None], formats: Sequence[int] = (), *, sqlstate: str = "08P01"
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
    _expect_short(prepared, values)
    return bind_text(prepared.statement.question, values, prepared.places)


def _expect_short(prepared: PreparedStatement, values: Sequence[Parameter]) -> None:
    """Refuse what the curator would for its length, before it is made: a value may stand in thousands of places."""
    sizes = [sum(map(len, literal(value))) for value in values]
    length = len(prepared.statement.question)
    length += sum(sizes[place.number - 1] for place in prepared.places if 0 < place.number <= len(sizes))
    if length > LONGEST:
        reason = f"a question may have at most {LONGEST} characters"
        raise Refused(reason, code="too_long", hint="Ask in several questions")
