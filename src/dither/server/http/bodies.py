"""What clients send: the JSON bodies of requests, read strictly, so that a misspelt option is never overlooked."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import Request

from dither.curator import Terms
from dither.errors import did_you_mean
from dither.server.problems import ServerProblem, ServerRefusal
from dither.server.service import AskedQuestion

LONGEST_SQL = 200_000
LONGEST_WHY = 1000
JSON = "application/json"

_TEXT_NUMBER = r"^([0-9]{1,40}|[0-9]{0,40}\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?$|^[0-9]{1,40}/[1-9][0-9]{0,39}$"
ExactNumber: TypeAlias = (
    Annotated[int, Field(strict=True, gt=0, le=10**30)]
    | Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
    | Annotated[str, StringConstraints(strict=True, pattern=_TEXT_NUMBER)]
)
A_NUMBER = 'a number above 0, such as 0.1, or a text such as "0.1" or "1/3"'


class Body(BaseModel):
    """A JSON object with these fields and no others; the description of a field says what is expected there."""

    # what clients say isn't kept: the library would remember thousands of short texts for as long as the process lives
    model_config = ConfigDict(extra="forbid", frozen=True, cache_strings="keys")


class Question(Body):
    """A question and everything that changes its price.

    Numbers are exact: the number 0.1 and the text "0.1" both mean one tenth.
    """

    sql: str = Field(
        min_length=1, max_length=LONGEST_SQL, strict=True, description="the question: a text with one SELECT"
    )
    epsilon: ExactNumber | None = Field(
        default=None, description=f"how much to spend: {A_NUMBER}; without it and error, the policy's default"
    )
    error: ExactNumber | dict[str, ExactNumber] | None = Field(
        default=None,
        description=f"the error to reach with the smallest ε: {A_NUMBER}; or an object from columns to such numbers",
    )
    weights: dict[str, ExactNumber] = Field(
        default={}, description=f"the shares of columns relative to each other: an object from columns to {A_NUMBER}"
    )
    confidence: ExactNumber = Field(
        default="0.95", description='how sure intervals are: a number between 0 and 1, such as 0.95 or "0.95"'
    )

    def wanted(self) -> AskedQuestion:
        """The question as the service takes it."""
        terms = Terms.of(epsilon=self.epsilon, error=self.error, weights=self.weights, confidence=self.confidence)
        return AskedQuestion(sql=self.sql, terms=terms)


class QuestionRequest(Question):
    """A question that needs the owner's approval, and why it is asked."""

    why: str = Field(max_length=LONGEST_WHY, strict=True, description="why it is asked: a text for the owner")


class BudgetRequest(Body):
    """A wish for a larger budget, and why."""

    epsilon: ExactNumber = Field(description=f"by how much the budget is to be raised: {A_NUMBER}")
    why: str = Field(max_length=LONGEST_WHY, strict=True, description="what it is for: a text for the owner")


class Decision(Body):
    """What the owner says to a request."""

    approve: bool = Field(strict=True, description="true to approve, false to refuse")
    why: str = Field(default="", max_length=LONGEST_WHY, strict=True, description="a text for the analyst")


B = TypeVar("B", bound=Body)


async def read_body(request: Request, model: type[B]) -> B:
    """The body of a request; refuses what isn't JSON of this form, without repeating any of it."""
    sent = request.headers.get("content-type", "")
    if sent != JSON and sent.partition(";")[0].strip().lower() != JSON:
        hint = "Send it with Content-Type: application/json."
        raise ServerRefusal(ServerProblem(code="not_json", status=415, title="the body must be JSON", hint=hint))
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as problem:
        refusal = ServerRefusal(_invalid(problem, model))
    # outside of the handler, so that the error that quotes the body isn't kept as its context
    raise refusal


def _invalid(problem: ValidationError, model: type[Body]) -> ServerProblem:
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        hint = "Send one JSON object, in UTF-8."
        return ServerProblem(code="not_json", title="the body isn't well-formed JSON", hint=hint)
    fields = model.model_fields
    known = "Fields are: " + ", ".join(fields) + "."
    place = first["loc"][0] if first["loc"] else None
    if first["type"] == "missing":
        hint = f"It is {fields[str(place)].description}."
        return ServerProblem(code="invalid", title=f"the field {place} is missing", hint=hint)
    # nothing that was sent is repeated, but a misspelt field is told by the one that it resembles
    meant = did_you_mean(place, fields) if isinstance(place, str) else None
    if isinstance(place, str) and place in fields:
        title = f"the field {place} isn't as expected: {fields[place].description}"
    elif first["type"] == "extra_forbidden" and meant is not None:
        title = f"there is a field that isn't known: did you mean {meant}?"
    else:
        title = "the body has to be an object with the known fields and no others"
    return ServerProblem(code="invalid", title=title, hint=known)


__all__ = ["BudgetRequest", "Decision", "Question", "QuestionRequest", "read_body"]
