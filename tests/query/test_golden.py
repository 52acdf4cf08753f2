"""What is kept for ever: normal forms, by which paid answers are found again, and recipes, by which they are read.

``golden/questions.json`` has, for each question of the accept corpus and of the audit's suite, its normal form, the
JSON form of its recipes, and the errors that its price tells. A change of a form forgets what was paid for: it needs a
new version beside the old one, never a new file. Another recipe may come to answer new questions better; those that
were ever stored are read for ever: ``golden/recipes.json`` has a recipe of every kind with every kind of value in it,
and nothing is taken from it. Questions that are read otherwise since are in ``golden/read_anew.json`` as they are read
now; what was paid for before is found by the reading of before, which is in ``questions.json`` still.
``PYTHONPATH=tests python tests/query/test_golden.py`` adds what is new.
"""

import datetime as dt
import json
from fractions import Fraction
from pathlib import Path

import pytest

from dither.audit.suite.questions import QUESTIONS, shop
from dither.errors import Refused
from dither.privacy import Adjacency
from dither.query.aggregates.base import ChosenValue, Constant, Linear
from dither.query.aggregates.bernstein import BernsteinMean, BernsteinMoments, Combined
from dither.query.aggregates.catalogue import from_json, to_json
from dither.query.aggregates.count import Different
from dither.query.aggregates.mean import Centred, Ends, Mean, UnitEnds
from dither.query.aggregates.moments import MomentsRecipe, Product
from dither.query.aggregates.quantile import Located
from dither.query.kinds import Kind
from dither.query.plan.canonical import arranged
from dither.query.plan.plan import Function
from dither.query.price.noise import QueryBudget, price
from dither.query.sql import bind_with_form
from support.schemas import SHOP

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
CORPUS = HERE.parent / "sql"

F = Fraction
X, Y = Centred(cell=0, step=F(1, 3), offset=-7), Centred(cell=2, step=F(2), offset=0)
XX, YY, XY = (Product(cell=3 + i, area=F(1, 9), centres=(F(i), F(-1, 3))) for i in range(3))
RECIPES = [
    Constant(F(5, 2)),
    Constant(F(0), whole=True),
    Linear(cell=0, step=F(1), whole=True),
    Linear(cell=7, step=F(1, 100), whole=False),
    Mean(count=1, x=X, low=F(-5), high=F(7, 2)),
    *(
        MomentsRecipe(function=function, count=1, x=X, y=None, xx=XX, yy=None, xy=None, half_x=F(3), half_y=F(3))
        for function in (Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP)
    ),
    *(
        MomentsRecipe(function=function, count=1, x=X, y=Y, xx=None, yy=None, xy=XY, half_x=F(3), half_y=F(1, 7))
        for function in (Function.COVAR_POP, Function.COVAR_SAMP)
    ),
    MomentsRecipe(function=Function.CORR, count=1, x=X, y=Y, xx=XX, yy=YY, xy=XY, half_x=F(3), half_y=F(1, 7)),
    ChosenValue(choice=0),
    ChosenValue(choice=3, values=(False, True), kind=Kind.BOOLEAN),
    ChosenValue(choice=1, values=(-1, 2**40), kind=Kind.INTEGER),
    ChosenValue(choice=1, values=(0.1, 1e300, F(1, 3)), kind=Kind.DOUBLE),
    ChosenValue(choice=1, values=("", "Zürich", '"quoted"'), kind=Kind.TEXT),
    ChosenValue(choice=1, values=(dt.date(2024, 2, 29),), kind=Kind.DATE),
    ChosenValue(choice=1, values=(dt.datetime.fromisoformat("2024-02-29T23:59:59.000005"),), kind=Kind.TIMESTAMP),
    Ends(above=0, below=3, step=F(1, 3), first=-7, size=2**40, low=F(-7, 3), high=F(2**40 - 7, 3)),
    Combined(weights=((0, F(1, 20)), (1, F(-3, 7))), whole=False),
    Combined(weights=((2, F(1)),), whole=True),
    BernsteinMean(parts=(2, 3, 4), unit=F(2**30, 3), first=F(-1), width=F(5, 2), low=F(-1), high=F(3, 2)),
    *(
        BernsteinMoments(function=function, parts=(0, 1, 2), unit=F(400), width_x=F(20), width_y=F(20))
        for function in (Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP)
    ),
    BernsteinMoments(function=Function.COVAR_POP, parts=(0, 1, 2, 3), unit=F(7), width_x=F(1), width_y=F(1, 3)),
    BernsteinMoments(function=Function.CORR, parts=tuple(range(9)), unit=F(7), width_x=F(1), width_y=F(1, 3)),
    UnitEnds(above=0, below=3, step=F(1, 3), first=-7, size=2**40, low=F(-7, 3), high=F(2**40 - 7, 3)),
    Different(cell=2, most=None),
    Different(cell=0, most=5),
    Located(choice=1, nearby=0, quantile=F(9, 10), step=F(1, 100), first=-7),
]


def _asked():
    """Each question's text with the tables it is about."""
    for path in sorted((CORPUS / "accept").glob("*.sql")):
        for part in path.read_text(encoding="utf-8").split("\n----\n"):
            yield part.strip("\n").partition("\n")[2], SHOP
    for question in QUESTIONS:
        yield question.sql, shop(question.currency).schema


def _found(text, schema, *, former=False):
    question, form = bind_with_form(text, schema)
    if former:
        question, form = arranged(question.former)
    found = {"sql": text, "adjacency": schema.adjacency.value, "form": form}
    outputs = [[output.name, output.expression.kind.value] for output in question.shape.outputs]
    found["outputs"] = outputs
    for kind in ("pure", "zcdp"):
        delta = F(1, 10**6) if kind == "zcdp" else F(0)
        try:
            priced = price(question.aggregation, QueryBudget(kind=kind, main=F(1), delta=delta), Adjacency.ADD_REMOVE)
        except Refused as refusal:
            found[kind] = [refusal.code, str(refusal)]
        else:
            found["recipes"] = [to_json(recipe) for recipe in priced.lowered.recipes]
            found[kind] = [[str(e), by] for e, by in zip(priced.errors(), priced.mechanisms, strict=True)]
    return found


def _read(name):
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def _by_text(found):
    return {(each["sql"], each["adjacency"]): each for each in found}


def test_forms_and_recipes_of_questions_are_those_of_before():
    kept, anew = (_by_text(_read(name)) for name in ("questions.json", "read_anew.json"))
    for text, schema in _asked():
        found, first = _found(text, schema), kept.pop((text, schema.adjacency.value))
        if found != first:
            assert _found(text, schema, former=True) == first, text
            assert found == anew.pop((text, schema.adjacency.value)), text
    assert not kept, "golden questions are never taken away"
    assert not anew


@pytest.mark.parametrize("place", range(len(RECIPES)))
def test_recipes_are_written_and_read_as_before(place):
    form = _read("recipes.json")[place]
    assert json.dumps(to_json(RECIPES[place]), sort_keys=True) == json.dumps(form, sort_keys=True)
    assert from_json(form) == RECIPES[place]
    assert type(from_json(form)) is type(RECIPES[place])


def _write(name, content):
    (GOLDEN / name).write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    asked, kept = _by_text(_found(*each) for each in _asked()), _by_text(_read("questions.json"))
    _write("questions.json", [kept.get(key, found) for key, found in asked.items()])
    _write("read_anew.json", [found for key, found in asked.items() if found != kept.get(key, found)])
    _write("recipes.json", [to_json(recipe) for recipe in RECIPES])
