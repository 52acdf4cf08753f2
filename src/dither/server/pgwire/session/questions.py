"""Questions of one session on their way to the curator: described for free, asked once, and never refunded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dither.curator import Answer, Quote
from dither.drawings.texts import number
from dither.errors import Refused
from dither.server.auth.identity import Identity
from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.errors import HowAsked, WireError, WireReport, place_of, told
from dither.server.pgwire.session.portals import PreparedStatement
from dither.server.pgwire.sql.parameters import BoundText, bind_text, made_up
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.pgwire.sql.routing import Statement
from dither.server.pgwire.sql.settings import QuestionOptions
from dither.server.problems import ServerProblem, ServerRefusal
from dither.server.service import Service

T = TypeVar("T")
_NINE_DIGITS = Context(prec=9)
CANCELLED = ServerProblem(
    code="cancelled",
    title="waiting was cancelled by the client",
    hint="The question may go on and be charged. Ask the same again: it isn't charged twice.",
)


class DependsOnValues(WireError):  # noqa: N818
    """A question that can't be described with made-up values; with its own it may be."""


class Questions:
    """Prices and asks for one client, and stops waiting when it cancels."""

    def __init__(self, service: Service, who: Identity, reading: AnalystReading) -> None:
        self._service, self._who, self._reading = service, who, reading
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def columns(
        self, statement: Statement, options: QuestionOptions, bound: BoundText
    ) -> tuple[types.WireColumn, ...]:
        """The columns of the answer to a question with its values. Never asks."""
        return await self._reading.columns_of(bound.text, (), lambda: self._priced(statement, options, bound))

    async def columns_of_any(
        self, prepared: PreparedStatement, options: QuestionOptions
    ) -> tuple[types.WireColumn, ...]:
        """The columns of the answer, whatever the values will be: they are made up. Never asks."""
        statement = prepared.statement
        if not prepared.places:
            return await self.columns(statement, options, BoundText(text=statement.question))
        price = partial(self._priced_with_any, prepared, options)
        return await self._reading.columns_of(statement.question, prepared.types, price)

    async def _priced_with_any(
        self, prepared: PreparedStatement, options: QuestionOptions
    ) -> tuple[types.WireColumn, ...]:
        statement = prepared.statement
        problems: list[WireError] = []
        for values in made_up(prepared.types):
            try:
                # beside the event loop: the text may be long
                bound = await asyncio.to_thread(bind_text, statement.question, values, prepared.places)
                return await self._priced(statement, options, bound)
            except WireError as error:
                problems.append(error)
        # the last has no values at all, and NULL is often refused for itself
        if any(each.report != problems[0].report for each in problems[:-1]):
            raise DependsOnValues(problems[0].report)
        raise problems[0]

    async def _priced(
        self, statement: Statement, options: QuestionOptions, bound: BoundText
    ) -> tuple[types.WireColumn, ...]:
        quote = await self._price(statement, options, bound)
        return types.columns_of(await asyncio.to_thread(lambda: quote.schema))

    async def _price(self, statement: Statement, options: QuestionOptions, bound: BoundText) -> Quote:
        work = self._service.price(self._who, options.wanted(bound.text))
        return await self._placed(statement, options, bound, work)

    async def explain(self, statement: Statement, options: QuestionOptions, bound: BoundText) -> Quote | None:
        """What EXPLAIN PRIVACY tells, by its price alone; None if the text is a question after all."""
        quote = await self._price(statement, options, bound)
        return quote if quote.explains else None

    async def ask(self, statement: Statement, options: QuestionOptions, bound: BoundText) -> Answer:
        """The answer; the one place of this protocol in which anything is charged."""
        work = self._service.ask(self._who, options.wanted(bound.text))
        return await self._placed(statement, options, bound, work)

    async def _placed(
        self, statement: Statement, options: QuestionOptions, bound: BoundText, work: Coroutine[Any, Any, T]
    ) -> T:
        """Do the work; its errors get their place in the client's message."""
        try:
            return await self.waited(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told what may be told
            problem = error
        asking = HowAsked(for_error=options.terms.error is not None, most=self._most())
        raise WireError(told(problem, offset_in_message(problem, statement, bound), asking))

    def _most(self) -> Fraction | None:
        try:
            return self._service.curator.most_epsilon(self._who.analyst)
        except Refused:
            return None

    def default_epsilon(self) -> Fraction | None:
        """What a question is asked with that says neither ε nor an error; None if it is refused."""
        default, most = self._service.curator.policy.budget.default_epsilon, self._most()
        return None if default is None or most is None else min(default, most)

    async def waited(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the work, unless the client cancels."""
        self._cancelled = False
        task = asyncio.ensure_future(work)
        self._waiting = task
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if not self._cancelled or (own is not None and own.cancelling()):
                raise
        finally:
            self._waiting = None
        raise ServerRefusal(CANCELLED)

    def cancel(self) -> None:
        """The client doesn't want to wait any longer; a question that was begun goes on."""
        if self._waiting is not None:
            self._cancelled = True
            self._waiting.cancel()


def offset_in_message(error: BaseException, statement: Statement, bound: BoundText) -> int | None:
    """Where in the client's message an error of a question is, in characters from 0."""
    origin = bound.origin(place_of(error))
    return None if origin is None else statement.question_offset + origin


def refused_in(statement: Statement, error: Refused | ServerRefusal) -> WireError:
    """A refusal of a question whose values aren't known yet, with its place in the message."""
    return WireError(told(error, offset_in_message(error, statement, BoundText(text=statement.question))))


def explained(quote: Quote) -> pa.Table:
    """The quote as a table of rows, its ε as people write it."""
    table = quote.to_arrow()
    place = table.schema.get_field_index("epsilon")
    shown = pa.array([shown_epsilon(quote.epsilon)] * table.num_rows, pa.float64())
    return table.set_column(place, table.schema.field(place), shown)


def shown_epsilon(epsilon: float) -> float:
    """An ε with nine digits, rounded up: budgets round down, so a question costs a trillionth less than was asked for.

    Example:
        >>> shown_epsilon(0.049999999999994785), shown_epsilon(0.1), shown_epsilon(0.1234567891)
        (0.05, 0.1, 0.12345679)
    """
    if not 0 < epsilon < math.inf:
        return epsilon
    exact = Decimal(epsilon)
    nearest = float(_NINE_DIGITS.plus(exact))
    # a decimal that isn't a float was rounded up to the next one: 0.3 to 0.30000000000000004
    if nearest in (epsilon, math.nextafter(epsilon, 0)):
        return nearest
    return float(Context(prec=9, rounding=ROUND_CEILING).plus(exact))


def beside(quote: Quote) -> WireReport:
    """What EXPLAIN PRIVACY tells beside its rows: which groups are shown, and what bounding leaves out."""
    detail = "\n".join(quote.notes)
    return WireReport(severity="NOTICE", sqlstate="00000", title=f"groups: {quote.groups}", detail=detail)


def paid(answer: Answer) -> WireReport | None:
    """What a client is told of an answer's price; nothing for what isn't a question."""
    if answer.receipt is None:
        if not answer.notes:
            return None
        detail = "\n".join(answer.notes)
        return WireReport(severity="NOTICE", sqlstate="00000", title=f"cost: {answer.cost}", detail=detail)
    detail = "\n".join([*_errors(answer), *answer.notes, f"Receipt {answer.receipt.number}."])
    return WireReport(
        severity="NOTICE", sqlstate="00000", title=f"cost: {answer.cost}; {answer.cost.left}", detail=detail
    )


def _errors(answer: Answer) -> list[str]:
    """How far off values may be: PostgreSQL has no place for that beside a value."""
    halves = {name: half[np.isfinite(half)] for name, half in answer.error.items()}
    told = []
    for name, half in halves.items():
        if half.size:
            least, most = float(half.min()), float(half.max())
            same = number(least) == number(most)
            told.append(f"{name} ± {number(most)}" if same else f"{name} ± {number(least)} to {number(most)}")
    if not told:
        return []
    first = next(iter(halves))
    columns = f"DP_INTERVAL_LOW({first}), DP_INTERVAL_HIGH({first})"
    return [f"Errors at {100 * answer.confidence:g}%: {', '.join(told)}; as columns: {columns}."]
