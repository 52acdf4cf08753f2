"""All that a tree can say is read or refused, with the lowest and the newest parser alike."""

from functools import cache

import pytest
from sqlglot import exp

from dither.errors import Refused
from dither.query.sql.parse import READ, REFUSED, ProfileClause, expect_known, parse
from dither.query.sql.queries import Queries, _bound
from support.schemas import SHOP

from .test_corpora import corpus

TEXTS = [parameter.values[1] for parameter in corpus("accept")]

# What may be left out of a tree without a change: words that say how, and what the parser notes about its dialect.
HARMLESS = {
    (exp.CTE, "materialized"),
    (exp.Cast, "safe"),
    (exp.Cast, "requires_string"),
    (exp.TryCast, "safe"),
    (exp.TryCast, "requires_string"),
    (exp.DPipe, "safe"),
    (exp.Div, "safe"),
    (exp.Div, "typed"),
    (exp.Union, "distinct"),
    (exp.Union, "order"),
    (exp.Window, "over"),
    # read, to refuse other values or to tell apart what this schema hasn't got
    (exp.Join, "kind"),
    (exp.DataType, "nested"),
    (exp.Identifier, "quoted"),
}


@cache
def trees():
    return [(text, parse(text)[0]) for text in TEXTS]


def bound(tree, text=""):
    question = Queries(text, SHOP).question(tree, explain=False)
    expect_known(tree, text)
    return question


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_the_parser_has_no_argument_that_nobody_has_read_about(kind):
    known = {*READ[kind], *REFUSED.get(kind, ())}
    assert set(kind.arg_types) <= known, "read it in the binder or list it in REFUSED"
    assert not set(READ[kind]) & set(REFUSED.get(kind, ()))


def test_what_is_refused_belongs_to_nodes_that_are_read():
    assert set(REFUSED) <= set(READ)


def test_what_is_read_has_an_influence():
    """Each argument is taken out of some question, which becomes another one or none."""
    seen, read = set(), set()
    for text, tree in trees():
        whole = bound(tree, text)
        for place, node in enumerate(list(tree.walk())):
            given = {(type(node), name) for name, value in node.args.items() if value not in (None, False, [], "")}
            seen |= given
            for kind, name in given - read - HARMLESS:
                changed = tree.copy()
                list(changed.walk())[place].args.pop(name)
                try:
                    same = bound(changed) == whole
                except (Refused, AttributeError, TypeError, KeyError, ValueError):
                    same = False
                if not same:
                    read.add((kind, name))
    assert seen - read <= HARMLESS
    assert {kind for kind, _ in seen} | {exp.Star, exp.Null, ProfileClause} == set(READ)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_what_is_set_and_not_read_is_refused(kind):
    text, tree = next((text, tree.copy()) for text, tree in trees() if tree.find(kind) is not None)
    node = tree.find(kind)
    bound(tree)
    for name in (*REFUSED.get(kind, ()), "news"):
        given = node.args.get(name)
        node.args[name] = exp.Var(this="x")
        with pytest.raises(Refused) as refusal:
            expect_known(tree, text)
        assert refusal.value.code == "unsupported"
        node.args[name] = given
    expect_known(tree, text)


def test_a_kind_of_node_that_isnt_listed_is_refused():
    class News(exp.Paren):
        pass

    tree, _ = parse("SELECT COUNT(*) FROM orders WHERE (amount > 3)")
    bound(tree)
    paren = tree.find(exp.Paren)
    paren.replace(News(this=paren.this))
    with pytest.raises(Refused):
        expect_known(tree, "")


def test_a_mark_is_refused_at_the_door(monkeypatch):
    """The check is part of binding, not only of these tests."""
    monkeypatch.setattr("dither.query.sql.parse.READ", {**READ, exp.Where: ()})
    with pytest.raises(Refused, match="THIS"):
        _bound("SELECT COUNT(*) FROM orders WHERE amount > 3", SHOP)


# ------------------------------------------------------------------ both forms of NOT

PAIRS = [
    ("product NOT LIKE 'a%'", "NOT (product LIKE 'a%')"),
    ("product !~~ 'a%'", "NOT (product LIKE 'a%')"),
    ("product NOT ILIKE 'a%'", "NOT (product ILIKE 'a%')"),
    ("product !~~* 'a%'", "NOT (product ILIKE 'a%')"),
    ("product IS NOT NULL", "NOT (product IS NULL)"),
    ("coupon IS NOT TRUE", "NOT (coupon IS TRUE)"),
]


def as_mark(tree):
    """The tree as newer parsers make it: a mark on the comparison instead of NOT around it."""
    changed = tree.copy()
    for node in list(changed.find_all(exp.Not)):
        inner = node.this.unnest()
        if isinstance(inner, exp.Like | exp.ILike | exp.Is):
            inner.args["negate"] = True
            node.replace(inner)
    return changed


def as_not(tree):
    """The tree as older parsers make it."""
    changed = tree.copy()
    for node in list(changed.find_all(exp.Like, exp.ILike, exp.Is)):
        if node.args.pop("negate", None):
            node.replace(exp.Not(this=node.copy()))
    return changed


@pytest.mark.parametrize(("written", "meant"), PAIRS)
def test_a_mark_means_not(written, meant):
    given, other = (parse(f"SELECT COUNT(*) FROM orders WHERE {condition}")[0] for condition in (written, meant))
    marked, around = as_mark(given), as_not(given)
    assert "negate" in repr(marked)
    assert "negate" not in repr(around)
    found = [bound(tree).aggregation.relation.predicate for tree in (given, marked, around)]
    assert found[0] == found[1] == found[2]
    assert found[0].function in ("not", "is_not_null")
    positive = other.find(exp.Not).this.unnest()
    positive.args.pop("negate", None)
    plain = parse("SELECT COUNT(*) FROM orders WHERE coupon")[0]
    plain.args["where"].args["this"] = positive
    assert bound(plain).aggregation.relation.predicate != found[0]


def test_a_mark_under_not_is_taken_twice():
    tree = parse("SELECT COUNT(*) FROM orders WHERE NOT (product IS NULL)")[0]
    tree.find(exp.Is).args["negate"] = True
    predicate = bound(tree).aggregation.relation.predicate
    assert (predicate.function, predicate.arguments[0].function) == ("not", "is_not_null")
