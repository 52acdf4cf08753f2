"""How responses are written: which format a client accepts, and answers in each of them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from enum import StrEnum
from functools import lru_cache

import orjson
from starlette.responses import Response

from dither.curator import Answer
from dither.server.problems import ServerProblem, ServerRefusal
from dither.server.wire.answers import answer_to_arrow, answer_to_csv, lasting_form
from dither.server.wire.forms import CostForm

# Encoding more cells than this takes milliseconds, so it isn't done where all connections wait for it.
MOST_CELLS_AT_ONCE = 5_000
LONGEST_ACCEPT = 1000
LARGEST_KEPT = 256 * 2**10
MOST_KEPT = 16 * 2**20
# an entry holds its answer, which takes several times as much as a short encoded text
MOST_ANSWERS_KEPT = 1024


class MediaType(StrEnum):
    """The media types in which answers are given; the first is for clients that take anything."""

    JSON = "application/json"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


CONTENT_TYPES = {each: each.value for each in MediaType} | {MediaType.CSV: "text/csv; charset=utf-8; header=present"}
NOT_ACCEPTABLE = ServerProblem(
    code="not_acceptable",
    title="answers aren't given in any of the accepted formats",
    hint="Accept one of: " + ", ".join(MediaType) + ".",
)


@lru_cache(maxsize=256)
def format_for(accept: str) -> MediaType | None:
    """The format that an Accept header prefers (RFC 9110, 12.5.1); None if none is accepted.

    Example:
        >>> format_for(""), format_for("text/*;q=0.5, application/json;q=0.4")
        (<MediaType.JSON: 'application/json'>, <MediaType.CSV: 'text/csv'>)
        >>> format_for("image/png") is None
        True
    """
    if not accept.strip():
        return MediaType.JSON
    ranges = [_range(part) for part in accept.split(",") if part.strip()]
    best, chosen = 0.0, None
    for known in MediaType:
        group = known.partition("/")[0]
        # the most specific range that names a type decides
        named = [[q for name, q in ranges if name == wanted] for wanted in (known.value, f"{group}/*", "*/*")]
        quality = next((max(found) for found in named if found), 0.0)
        if quality > best:
            best, chosen = quality, known
    return chosen


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = float(parameter[2:])
            except ValueError:
                return name, 0.0
            return name, quality if 0 <= quality <= 1 else 0.0
    return name, 1.0


def expect_format(accept: str) -> MediaType:
    """The format that an Accept header prefers; refuses if there is none."""
    # cut, so that what is remembered of headers stays small
    found = format_for(accept[:LONGEST_ACCEPT])
    if found is None:
        raise ServerRefusal(NOT_ACCEPTABLE)
    return found


def json_response(form: object) -> Response:
    """A form as JSON."""
    return Response(orjson.dumps(form), media_type="application/json")


class EncodedAnswers:
    """The encoded parts of answers that don't change, for those that are given again and again.

    Bounded, the least recently used go first. An entry holds its answer, so that no other table can get the identity
    by which it is found.
    """

    def __init__(self, *, largest: int = LARGEST_KEPT, most: int = MOST_KEPT, answers: int = MOST_ANSWERS_KEPT) -> None:
        self._largest, self._most, self._answers, self._size = largest, most, answers, 0
        self._kept: OrderedDict[int, tuple[Answer, bytes]] = OrderedDict()

    def get(self, answer: Answer) -> bytes | None:
        """What was kept for the same table, intervals and receipt."""
        found = self._kept.get(id(answer.table))
        if found is None or not _same(found[0], answer):
            return None
        self._kept.move_to_end(id(answer.table))
        return found[1]

    def keep(self, answer: Answer, encoded: bytes) -> None:
        """Keep it unless it is too large."""
        if len(encoded) > self._largest:
            return
        old = self._kept.pop(id(answer.table), None)
        self._size += len(encoded) - (len(old[1]) if old else 0)
        self._kept[id(answer.table)] = (answer, encoded)
        while self._size > self._most or len(self._kept) > self._answers:
            _, (_, gone) = self._kept.popitem(last=False)
            self._size -= len(gone)

    def __len__(self) -> int:
        return len(self._kept)


def _same(kept: Answer, answer: Answer) -> bool:
    return (
        kept.table is answer.table
        and kept.bars is answer.bars
        and kept.receipt is answer.receipt
        and kept.confidence == answer.confidence
        and kept.notes == answer.notes
    )


class Answers:
    """Writes answers in the format that a client accepts."""

    def __init__(self) -> None:
        self.kept = EncodedAnswers()

    async def response(self, answer: Answer, wanted: MediaType) -> Response:
        """The answer as a response; large ones are encoded in a thread."""
        if wanted is MediaType.JSON:
            body = await self._json(answer)
        else:
            encode = answer_to_csv if wanted is MediaType.CSV else answer_to_arrow
            body = encode(answer) if _small(answer) else await asyncio.to_thread(encode, answer)
        headers = {"Content-Type": CONTENT_TYPES[wanted], "Vary": "Accept"}
        if answer.receipt is not None:
            headers["Dither-Receipt"] = answer.receipt.number
        if answer.older_than_data:
            # a table has no place for notes
            headers["Dither-Older-Than-Data"] = "true"
        return Response(body, headers=headers)

    async def _json(self, answer: Answer) -> bytes:
        lasting = self.kept.get(answer)
        if lasting is None:
            lasting = _lasting(answer) if _small(answer) else await asyncio.to_thread(_lasting, answer)
            self.kept.keep(answer, lasting)
        # two objects put together: both have fields, so a comma stands where the braces were
        return b'{"cost":' + orjson.dumps(CostForm.of(answer.cost)) + b"," + lasting[1:]


def _lasting(answer: Answer) -> bytes:
    return orjson.dumps(lasting_form(answer))


def _small(answer: Answer) -> bool:
    return answer.table.num_rows * answer.table.num_columns <= MOST_CELLS_AT_ONCE
