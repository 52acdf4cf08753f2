"""Everything that was paid for already: free to read again, to draw otherwise and to download."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Response
from starlette.datastructures import URL

from dither.curator import Answer, Curator, Past
from dither.drawings.panels import ChartKind
from dither.errors import InvalidParameter
from dither.server.auth.identity import Scope
from dither.server.web._notebook import notebook
from dither.server.web.answer_view import KINDS, shown_answer
from dither.server.web.links import ask_link
from dither.server.web.web_session import Visit
from dither.server.wire.answers import answer_to_arrow, answer_to_csv

T = TypeVar("T")
PAGE = 25
LONGEST_SEARCH = 200
FILES: dict[str, tuple[Callable[[Answer], bytes], str]] = {
    "csv": (answer_to_csv, "text/csv; charset=utf-8"),
    "arrow": (answer_to_arrow, "application/vnd.apache.arrow.stream"),
}


async def listed(visit: Visit) -> Response:
    """The list, newest first; with a search, those whose text holds it."""
    search = visit.request.query_params.get("search", "")[:LONGEST_SEARCH]
    before = visit.request.query_params.get("before") or None
    who = visit.analyst
    page = await visit.do(
        Scope.ASK,
        "answers",
        lambda curator: curator.answers(who, search=search, before=before, count=PAGE),
    )
    template = "_answers.html" if visit.partly else "answers.html"
    shared = visit.service.curator.policy.budget.share_answers
    return visit.page(template, found=page, search=search, shared=shared, first=before is None)


async def shown(visit: Visit) -> Response:
    """One answer, on a page of its own."""
    return await _shown(visit, None)


async def chart(visit: Visit) -> Response:
    """The same answer, drawn otherwise."""
    wanted = visit.request.query_params.get("kind", "")
    kind = next((known for known in KINDS if known == wanted), None)
    if kind is None:
        raise InvalidParameter(f"expected one of {', '.join(KINDS)}")
    if not visit.partly:
        return await _shown(visit, kind)
    answer = await _of(visit, _answer)
    return visit.page("_drawing.html", answer=answer, kind=kind)


async def download(visit: Visit) -> Response:
    """The answer as a file: CSV, Arrow, or a notebook that asks for it again."""
    number, form = visit.request.path_params["number"], visit.request.query_params.get("form", "")
    if form in FILES:
        write, media = FILES[form]
        content = await _of(visit, lambda curator, *given: write(_answer(curator, *given)))
    elif form == "ipynb":
        media = "application/x-ipynb+json"
        base = URL(scope=visit.request.scope).replace(path="", query="", fragment="")
        content = notebook(str(base), number, (await _of(visit, _question)).sql)
    else:
        raise InvalidParameter("expected csv, arrow or ipynb")
    # receipt numbers are hexadecimal, so nothing is lost here, and nothing else comes into the header
    safe = "".join(letter for letter in number if letter.isascii() and letter.isalnum())
    headers = {"Content-Disposition": f'attachment; filename="answer-{safe}.{form}"'}
    return Response(content, media_type=media, headers=headers)


async def _shown(visit: Visit, kind: ChartKind | None) -> Response:
    answer, past = await _of(visit, lambda curator, *given: (_answer(curator, *given), _question(curator, *given)))
    again = ask_link(past.sql, past.asked, past.epsilon)
    return visit.page("answer.html", sql=past.sql, again=again, **shown_answer(answer, kind=kind))


async def _of(visit: Visit, work: Callable[[Curator, str, str], T]) -> T:
    """Something of the answer of this address, in a thread; refused alike if there is none or it is another's."""
    number, who = visit.request.path_params["number"], visit.analyst
    return await visit.do(Scope.ASK, "answer", lambda curator: work(curator, number, who))


def _answer(curator: Curator, number: str, who: str) -> Answer:
    return curator.answer(number, analyst=who)


def _question(curator: Curator, number: str, who: str) -> Past:
    return curator.past(number, analyst=who)
