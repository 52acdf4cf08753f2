"""Prices and answers over HTTP, and what was answered before."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from dither.server.auth.identity import Scope
from dither.server.http.bodies import Question
from dither.server.http.dispatch import QUESTION, Direct, Who, answers_of, problems, replies, service_of
from dither.server.http.formats import MediaType, expect_format, json_response
from dither.server.wire.forms import AnswerForm, AnswerPageForm, QuoteForm

MOST_ANSWERS = 200


def _string(**more: object) -> dict[str, object]:
    return {"type": "string", **more}


ABOUT_CSV = "The table with a header; a noisy column n has its interval in n_low and n_high."
ABOUT_ARROW = "The table; everything else is JSON in the schema's metadata under the key dither."
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer, in the format that Accept prefers.",
        "model": AnswerForm,
        "content": {
            MediaType.CSV.value: {"schema": _string(description=ABOUT_CSV)},
            MediaType.ARROW.value: {"schema": _string(format="binary", description=ABOUT_ARROW)},
        },
        "headers": {
            "Dither-Receipt": {
                "description": "The number of the receipt; not there where nothing was ever charged.",
                "schema": _string(),
            },
            "Dither-Older-Than-Data": {
                "description": "There, and true, if the data has changed since this was answered.",
                "schema": _string(enum=["true"]),
            },
        },
    }
}
Number = Annotated[
    str,
    Path(min_length=1, max_length=100, pattern="^[A-Za-z0-9_-]+$", description="The number of a receipt."),
]
direct = APIRouter(prefix="/v1", tags=["questions"], route_class=Direct)
plain = APIRouter(prefix="/v1", tags=["questions"])


@direct.post("/ask", summary="Ask a question", responses={**ANSWER, **problems(*QUESTION, 406)})
async def ask(request: Request, who: Who, body: Question) -> Response:
    """Answer a question, with error bars and a receipt.

    The same question again is answered from the record and costs nothing, so a request may be repeated without fear. A
    client that goes away doesn't stop its question.
    """
    wanted = expect_format(request.headers.get("accept", ""))
    answer = await service_of(request).ask(who, body.wanted())
    return await answers_of(request).response(answer, wanted)


@direct.post("/price", summary="What a question would cost", responses=replies(QuoteForm, *QUESTION))
async def price(request: Request, who: Who, body: Question) -> Response:
    """Price a question: its cost, the error of every column, what would be left. Free; reads no data."""
    return json_response(QuoteForm.of(await service_of(request).price(who, body.wanted())))


@plain.get("/answers", summary="What was answered before", responses=replies(AnswerPageForm, 404))
async def answers(
    request: Request,
    who: Who,
    search: Annotated[str, Query(max_length=1000, description="Only questions that hold this text.")] = "",
    before: Annotated[
        str | None, Query(min_length=1, max_length=100, description="The `next` of the page before.")
    ] = None,
    count: Annotated[int, Query(ge=1, le=MOST_ANSWERS, description="How many to list.")] = 50,
) -> Response:
    """List what was paid for, newest first; everything listed can be read again for free."""
    page = await service_of(request).do(
        who,
        Scope.ASK,
        "answers",
        lambda curator: curator.answers(who.analyst, search=search, before=before, count=count),
    )
    return json_response(AnswerPageForm.of(page))


@plain.get("/answers/{number}", summary="An answer again", responses={**ANSWER, **problems(400, 404, 406, 409, 410)})
async def answer(request: Request, who: Who, number: Number) -> Response:
    """Give an answer that was paid for once more; free. A number of somebody else is as one that doesn't exist."""
    wanted = expect_format(request.headers.get("accept", ""))
    found = await service_of(request).do(
        who, Scope.ASK, "answer", lambda curator: curator.answer(number, analyst=who.analyst)
    )
    return await answers_of(request).response(found, wanted)
