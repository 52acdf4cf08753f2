"""The page on which questions are asked: prices while one types, and answers."""

from __future__ import annotations

import math
from typing import Any

from fastapi import Response

from dither.curator import OWNER, BudgetLine, Quote, Terms
from dither.errors import DitherError, Failed, InvalidParameter, OutOfBudget, Refused
from dither.privacy import Guarantee
from dither.server.auth.identity import Scope
from dither.server.problems import ServerProblem, ServerRefusal, problem_of
from dither.server.service import AskedQuestion
from dither.server.web.answer_view import shown_answer
from dither.server.web.facts import shown_table
from dither.server.web.guarantee_in_words import meaning_of
from dither.server.web.links import ask_link
from dither.server.web.predicted_errors import rounded_up, shown_error
from dither.server.web.web_session import Visit

DEFAULT_AMOUNT = "0.1"
NOT_AGREED = ServerProblem(
    code="not_agreed",
    title="the button didn't state the price of this question",
    hint="It was changed, or its price has. Look at the price and press the button again.",
)
MOST_AROUND = 120


async def ask(visit: Visit) -> Response:
    """The editor, with the tables beside it."""
    visit.service.admit(visit.identity, Scope.PRICE)
    if visit.analyst != OWNER:
        # a name that the policy doesn't know can do nothing here: that is said at once
        visit.service.curator.policy.analyst(visit.analyst)
    given = visit.request.query_params
    mode = "error" if "error" in given else "epsilon"
    amount = given.get(mode) or DEFAULT_AMOUNT
    return _editor(visit, sql=given.get("sql") or _first_question(visit), mode=mode, amount=amount)


async def price(visit: Visit) -> Response:
    """What the question in the editor would cost; free, and called while one types."""
    if not visit.form.get("sql", "").strip():
        return _priced(visit, "_nothing.html", line=await _line(visit))
    try:
        quote = await visit.service.price(visit.identity, _wanted(visit))
        shown = await _shown_price(visit, quote)
    except (DitherError, ServerRefusal, TimeoutError) as error:
        refusal = _refusal(visit, error, asked=False)
        return _priced(visit, "_unpriced.html", line=await _line(visit), **refusal)
    return _priced(visit, "_price.html", **shown)


async def _shown_price(visit: Visit, quote: Quote) -> dict[str, Any]:
    """What the template of a price needs; ``price`` is what the button states and the form sends back."""
    line, meaning = _told(await visit.service.budget(visit.identity)), None
    if 0 < quote.epsilon < math.inf:
        guarantee = Guarantee(epsilon=quote.epsilon, delta=quote.delta)
        meaning = meaning_of(guarantee, visit.service.curator.policy.schema.adjacency)
    noisy = [column for column in quote.columns if column.mechanism]
    halves = [column.half_width for column in noisy if column.half_width]
    return {
        "quote": quote,
        "price": _stated(quote),
        "line": line,
        "meaning": meaning,
        "errors": [shown_error(column) for column in noisy],
        # one error is asked for all columns: the widest is reached for about this price
        "widest": rounded_up(max(halves)) if len(halves) == len(noisy) and halves else "",
    }


def _told(lines: tuple[BudgetLine, ...]) -> BudgetLine | None:
    """The account whose balance this user sees."""
    return next((line for line in lines if line.told), None)


async def _line(visit: Visit) -> BudgetLine | None:
    """What is left, beside what has no price yet; nothing for who may not even know that."""
    try:
        return _told(await visit.service.budget(visit.identity))
    except (DitherError, ServerRefusal, TimeoutError):
        return None


def _stated(quote: Quote) -> str:
    """The price as the button states it."""
    return "free" if quote.free or quote.explains else f"ε = {quote.epsilon:.4g}"


async def run(visit: Visit) -> Response:
    """Ask the question in the editor, for the price that the pressed button stated: for another it isn't asked."""
    try:
        visit.service.admit(visit.identity, Scope.ASK)
        wanted = _wanted(visit)
        quote = await visit.service.price(visit.identity, wanted)
        stated = _stated(quote)
        if stated not in ("free", visit.form.get("agreed", "")):
            refusal = _refusal(visit, ServerRefusal(NOT_AGREED), asked=True)
            if visit.partly:
                return visit.page("_refused.html", **refusal)
            shown = await _shown_price(visit, quote)
            parts = {"price_part": "_price.html", "answer_part": "_refused.html"}
            return _again(visit, status=NOT_AGREED.status, **parts, **refusal, **shown)
        answer = await visit.service.ask(visit.identity, wanted)
    except (DitherError, ServerRefusal, TimeoutError) as error:
        refusal = _refusal(visit, error, asked=True)
        if visit.partly:
            return visit.page("_refused.html", **refusal)
        return _again(visit, status=refusal["problem"].status, answer_part="_refused.html", **refusal)
    template = "_answer.html" if visit.partly else "answer.html"
    again = ask_link(wanted.sql, wanted.terms.to_json())
    return visit.page(template, sql=wanted.sql, again=again, **shown_answer(answer))


async def request_approval(visit: Visit) -> Response:
    """Ask the owner to allow the question in the editor."""
    why = visit.form.get("why", "")
    request = await visit.service.request_question(visit.identity, _wanted(visit), why=why)
    return visit.requested(request)


def _editor(
    visit: Visit,
    *,
    sql: str,
    mode: str,
    amount: str,
    price_part: str | None = None,
    answer_part: str | None = None,
    status: int = 200,
    **context: Any,
) -> Response:
    """The whole page, with what is in the editor and what came of it."""
    tables = [shown_table(table) for table in visit.service.curator.policy.schema.tables.values()]
    parts = {"price_part": price_part, "answer_part": answer_part, "tables": tables, "quiet": False}
    return visit.page("ask.html", status=status, sql=sql, mode=mode, amount=amount, **parts, **context)


def _again(visit: Visit, **context: Any) -> Response:
    """The page as it was sent, for those without a script."""
    form = visit.form
    mode = "error" if form.get("mode") == "error" else "epsilon"
    return _editor(visit, sql=form.get("sql", ""), mode=mode, amount=form.get("amount", ""), **context)


def _priced(visit: Visit, part: str, **context: Any) -> Response:
    if not visit.partly:
        return _again(visit, price_part=part, **context)
    # after an answer its cost is being read out, which the price must not interrupt
    return visit.page(part, quiet=bool(visit.form.get("quiet")), **context)


def _refusal(visit: Visit, error: BaseException, *, asked: bool) -> dict[str, Any]:
    """What is said about a question without an answer; ``asked`` tells the question itself from its price."""
    problem = problem_of(error)
    return {
        "problem": problem,
        "excerpt": _excerpt(visit.form.get("sql", ""), problem),
        "what": _what(error, asked=asked),
        "asked": asked,
        "needs_approval": isinstance(error, Refused) and error.code == "needs_approval",
    }


def _what(error: BaseException, *, asked: bool) -> str:
    """In which way a question wasn't answered: what may have been charged is never called free."""
    if not asked:
        # nobody pressed anything: what is half typed isn't refused
        of_text = isinstance(error, Refused) and not error.code.startswith("epsilon")
        return "Not yet a question" if of_text else "No price yet"
    if isinstance(error, OutOfBudget):
        return "Not in the budget, nothing was charged"
    if isinstance(error, Refused | InvalidParameter | ServerRefusal):
        return "Refused, free of charge"
    return "Charged, but not answered" if isinstance(error, Failed) else "Not answered"


def _wanted(visit: Visit) -> AskedQuestion:
    """The question as the form has it."""
    amount = visit.amount("amount") or None
    mode = visit.form.get("mode", "epsilon")
    if mode not in ("epsilon", "error"):
        raise InvalidParameter("a question is asked for an ε or for an error")
    if mode == "error" and amount is None:
        raise InvalidParameter("write which error you want, such as 100")
    terms = Terms.of(error=amount) if mode == "error" else Terms.of(epsilon=amount)
    return AskedQuestion(sql=visit.form.get("sql", ""), terms=terms)


def _excerpt(sql: str, problem: ServerProblem) -> dict[str, object] | None:
    """The line of a question in which something is wrong, cut at the place."""
    if problem.position is None:
        return None
    line, column = problem.position
    lines = sql.split("\n")
    if not 1 <= line <= len(lines):
        return None
    text, place = lines[line - 1], max(0, column - 1)
    end = place
    while end < len(text) and (text[end].isalnum() or text[end] in "_."):
        end += 1
    end = max(end, place + 1)
    before, after = text[:place], text[end:]
    if len(before) > MOST_AROUND:
        before = "…" + before[-MOST_AROUND:]
    if len(after) > MOST_AROUND:
        after = after[:MOST_AROUND] + "…"
    return {"line": line, "before": before, "there": text[place:end][:MOST_AROUND] or "␣", "after": after}


def _first_question(visit: Visit) -> str:
    """A question to begin with: counts of the first private table, by its first column with public values."""
    for name, table in visit.service.curator.policy.schema.tables.items():
        if table.private:
            key = next((c.name for c in table.columns.values() if c.keys and not c.hidden), None)
            table_name = name if name.isidentifier() else '"' + name.replace('"', '""') + '"'
            if key is None:
                return f"SELECT COUNT(*) AS n\nFROM {table_name}"
            column = key if key.isidentifier() else '"' + key.replace('"', '""') + '"'
            return f"SELECT {column}, COUNT(*) AS n\nFROM {table_name}\nGROUP BY {column}"
    return ""
