"""The run of a question after its charge: exact cells from the engine, noise, and the bytes that the ledger keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from dither.curator.answer_time import UnderWay
from dither.curator.answers.in_memory_cache import Memory
from dither.curator.answers.release import Stored, release
from dither.curator.charging import LOG, cause_of
from dither.curator.computation import Computation, encode
from dither.curator.price.pricing import KEPT, LONGEST_KEPT, Place, Prepared, Pricing
from dither.curator.salt import new_salt
from dither.engines import Engine, EngineBroken
from dither.errors import Refused, SourceError
from dither.policy.policy import Policy
from dither.query.kinds import NOTHING, Column, Interval
from dither.query.measure.measures import Measured, Measurement
from dither.query.plan.plan import PlanField, Scan
from dither.query.price.auto_bounds import bounds_from, price_search, search_measurement
from dither.query.price.noise import Priced, QueryBudget
from dither.query.price.profile import Profile
from dither.query.schema import Schema


def find_bounds(
    engine: Engine, schema: Schema, places: tuple[Place, ...], budget: QueryBudget, salt: bytes
) -> dict[Place, Interval]:
    """Search each column's bounds with ``budget`` for each."""
    found = {}
    for table_name, column_name in places:
        table = schema.tables[table_name]
        kind = table.columns[column_name].kind
        scan = Scan(
            table=table_name,
            private=True,
            unit_column=table.unit_column,
            columns=(("c0", column_name),),
            fields=(PlanField(name="c0", kind=kind, facts=NOTHING),),
        )
        units: OneOf["row", "column"] = "row" if table.unit_column is None else "column"
        rows = 1 if units == "row" or table.auto_rows else min(table.rows, table.most_rows or table.rows)
        measurement = search_measurement(scan, Column("c0", kind), units, rows)
        mechanism = price_search(budget, rows, schema.adjacency)
        found[table_name, column_name] = bounds_from(mechanism, engine.run(measurement, salt=salt))
    return found


# ---------------------------------------------------------------------------------------------- the run


MOST_BYTES = 64 * 2**20
# so that what a server holds is reached in minutes, and doesn't grow for hours: as many as texts that are kept bound
MOST_QUESTIONS = KEPT
# Characters of the fingerprint that is kept with each answer.
FINGERPRINT = 16
# what the objects around the numbers take, about; then for each character of the text and each public value of a key
OVERHEAD, EACH_CHARACTER, EACH_VALUE = 4000, 40, 100


class Execution:
    """Runs questions that were charged, on data that must stay as it was when it was opened."""

    def __init__(self, policy: Policy, engine: Engine, pricing: Pricing, running: UnderWay, *, opened: str) -> None:
        self._policy, self._engine, self._pricing, self.opened = policy, engine, pricing, opened
        self._running = running
        self._cells = KeptCells()
        self.broken = False

    @property
    def changed(self) -> bool:
        """Whether the data isn't what was opened any more."""
        return self._engine.version() != self.opened

    @property
    def data(self) -> str:
        """Which data is open, as it is remembered with answers: apart from the version, which the owner may fix."""
        return hashlib.sha256(f"data of an answer: {self.opened}".encode()).hexdigest()[:FINGERPRINT]

    def older(self, data: str | None) -> bool | None:
        """Whether an answer was made of other data than is open now; None where it isn't known of what."""
        return None if data is None else data != self.data

    def expect_ready(self) -> None:
        """Before a charge: what can't be run isn't charged for."""
        if self.broken:
            raise SourceError(
                "the database can't be used since an error inside of it; nothing is answered from it, and nothing was "
                "charged: open the policy again"
            )
        self.expect_same_data()

    @contextmanager
    def _used(self) -> Iterator[Engine]:
        """The engine, for what was charged; notices if it can't run anything after that."""
        try:
            yield self._engine
        except EngineBroken:
            self.broken = True
            raise

    def expect_same_data(self) -> None:
        """Files are read with the layout that they had when they were opened, and answers are named by their version.

        So a change is noticed before anything is charged, and again before anything is released. What is in the new
        files has no part in what is said: nobody has looked at them yet.
        """
        if self.changed:
            raise not_open()

    def run(self, prepared: Prepared) -> bytes:
        """Run and add noise; the bytes to record. The receipt is on disk; from here on nothing is refunded."""
        return self._stored(prepared).seal()

    def compute(self, computation: Computation) -> bytes:
        """Hand the rows over that a computation was charged for; what it released, as bytes to record."""
        columns, salt = tuple(computation.columns), new_salt()
        with self._used() as engine:
            rows = engine.rows(computation.table, columns, rows=computation.rows, salt=salt)
        self.expect_same_data()
        return encode(computation.release(rows), self.data)

    def _stored(self, prepared: Prepared) -> Stored:
        salt = new_salt()
        if prepared.search_budget is None and prepared.rows_budget is None:
            return Stored(bounds={}, released=self._released(prepared, prepared.priced, salt), data=self.data)
        found: dict[Place, Interval] = {}
        rows: int | None = None
        with self._used() as engine:
            # all exact numbers first: what fails then has nothing to do with noise
            profile = None
            if prepared.rows_budget is not None:
                wanted = self._pricing.row_profile(prepared)
                profile = wanted, engine.run(wanted.measurement, salt=salt)
            if prepared.search_budget is not None:
                found = find_bounds(engine, self._policy.schema, prepared.searched, prepared.search_budget, salt)
        try:
            if profile is not None:
                noisy = release(*profile)
                seen = Profile(counts=tuple(map(int, noisy.cells[0])), noise=noisy.noise[0])
                prepared = self._pricing.on_rows(prepared, seen)
                rows = prepared.question.aggregation.rows
            bounds, priced = (found, prepared.priced) if not found else self._pricing.on_found(prepared, found)
            released = self._released(prepared, priced, salt)
            return Stored(bounds=bounds, released=released, data=self.data, rows=rows)
        except Exception as problem:
            # What fails now may have failed because of the noise in the bounds. Run again at no cost, it would show
            # fresh noise each time: so this is the answer. Closing and changed files have nothing to do with noise.
            if self._running.closing or self.changed:
                raise
            kind, cause = type(problem).__name__, cause_of(problem)
        # behind the except block: logging prints what it was called in when a log can't be written
        LOG.error("a question has no answer after its bounds were found: %s", kind)
        return Stored(bounds=found, released=None, cause=cause, data=self.data, rows=rows)

    def _released(self, prepared: Prepared, priced: Priced, salt: bytes) -> bytes:
        # by analyst, so that the time of an answer doesn't tell what others asked
        name, sql, wanted = prepared.who.name, prepared.sql, priced.measurement
        # every question has its own salt, so what a salt decides isn't used twice
        measured = None if wanted.chooses else self._cells.get(name, sql, wanted)
        if measured is not None:
            self.expect_same_data()
        else:
            with self._used() as engine:
                measured = engine.run(wanted, salt=salt)
            self.expect_same_data()
            if not wanted.chooses:
                self._cells.keep(name, sql, wanted, measured)
        return release(priced, measured).to_bytes()

    def forget(self) -> None:
        """Forget all exact cells."""
        self._cells.memory.forget()


def not_open() -> Refused:
    """What everybody is told whose question is about files that the owner hasn't opened as they are now."""
    return Refused(
        "the data isn't open: its files changed since they were opened",
        code="not_open",
        hint="The owner has to open the policy again, which looks at the new files and accepts them.",
    )


class KeptCells:
    """Exact cells of the questions run last: the same again with more ε needs only fresh noise, not another pass.

    Only cells that are the same for every salt are put here, so that answers are as if the data had been read again.
    """

    def __init__(self, *, size: int = MOST_BYTES, most: int = MOST_QUESTIONS) -> None:
        self.memory = Memory[tuple[str, Measurement, Measured]](most, room=size, size=lambda kept: _size(*kept))

    def get(self, analyst: str, sql: str, wanted: Measurement) -> Measured | None:
        """The cells of this measurement, if they were those of this analyst's last question of this text."""
        _, known, measured = self.memory.get(analyst, sql) or (sql, None, None)
        # one text has another measurement once other bounds were found for it
        return measured if known == wanted else None

    def keep(self, analyst: str, sql: str, wanted: Measurement, measured: Measured) -> None:
        """Remember cells, unless they are many or the text is long."""
        if len(sql) > LONGEST_KEPT:
            return
        for array in _arrays(measured):
            # whoever asks again gets these very numbers
            array.flags.writeable = False
        self.memory.keep(analyst, sql, (sql, wanted, measured))


def _arrays(measured: Measured) -> list[npt.NDArray[np.int64]]:
    bins = [array for found in measured.bins for array in (found.group, found.bin, found.count)]
    return [*measured.totals, *measured.distinct, *bins]


def _size(sql: str, wanted: Measurement, measured: Measured) -> int:
    values = sum(len(key.values) for key in wanted.keys if key.values is not None)
    around = OVERHEAD + EACH_CHARACTER * len(sql) + EACH_VALUE * values
    return around + measured.keys.nbytes + sum(array.nbytes for array in _arrays(measured))
