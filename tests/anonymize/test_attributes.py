"""Configurations: what they accept, and what they say when they don't."""

from fractions import Fraction

import pyarrow as pa
import pytest

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import Distance, DistinctDiversity, KAnonymity, TCloseness
from dither.errors import InvalidParameter

TABLE = pa.table(
    {
        "name": ["A", "B", "C"],
        "age": [30, 40, 50],
        "sex": ["f", "m", "f"],
        "ill": ["flu", "cold", "flu"],
        "wage": [1.0, 2.0, 3.0],
        "tags": [[1], [2], [3]],
    }
)


def test_forgotten_columns_are_removed():
    found = Configuration.of(TABLE, quasi=["age", "sex"], sensitive=["ill"], k=2)
    assert {attribute.name: attribute.role for attribute in found.attributes} == {
        "name": Role.IDENTIFYING,
        "age": Role.QUASI,
        "sex": Role.QUASI,
        "ill": Role.SENSITIVE,
        "wage": Role.IDENTIFYING,
        "tags": Role.IDENTIFYING,
    }
    assert [attribute.name for attribute in found.attributes] == TABLE.column_names
    assert found.models == (KAnonymity(2),)
    assert found.least == 2


def test_everything_that_can_be_said():
    ages = Hierarchy.intervals((10, 20))
    found = Configuration.of(
        TABLE,
        quasi={"age": ages, "sex": None},
        sensitive=[Attribute(name="ill", role=Role.SENSITIVE, order=("cold", "flu"))],
        identifying=["name"],
        insensitive=["wage", "tags"],
        k=2,
        models=(DistinctDiversity(3, "ill"), TCloseness("0.4", "ill", Distance.ORDERED)),
        weights={"age": 2.0},
        suppression="5/100",
    )
    assert found.attribute("age").hierarchy is ages
    assert (found.attribute("age").weight, found.attribute("sex").weight) == (2.0, 1.0)
    assert found.suppression == Fraction(1, 20)
    assert found.least == 3
    assert [attribute.name for attribute in found.insensitive] == ["wage", "tags"]
    assert [attribute.name for attribute in found.identifying] == ["name"]


def test_weights_reach_attributes_too():
    age = Attribute(name="age", role=Role.QUASI, kind=AxisKind.CATEGORY)
    found = Configuration.of(TABLE, quasi=[age], k=2, weights={"age": 0})
    assert (found.attribute("age").weight, found.attribute("age").kind) == (0, AxisKind.CATEGORY)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"quasi": ["age", "size"], "k": 2}, "no column 'size'; the table has 'name', 'age'"),
        ({"quasi": ["age"], "sensitive": ["age"], "k": 2}, "one role; these have several: 'age'"),
        ({"quasi": ["age", "age"], "k": 2}, "several: 'age'"),
        ({"quasi": "age", "k": 2}, r"list of column names, not one text: \['age'\]"),
        ({"quasi": [], "k": 2}, "at least one column must be quasi-identifying"),
        ({"quasi": ["age"]}, "at least one model is needed"),
        ({"quasi": ["age"], "k": 0}, "k must be a whole number of at least 1"),
        ({"quasi": ["age"], "k": 1}, "k = 1 protects nobody"),
        ({"quasi": ["age"], "k": 4}, "every class needs at least 4 rows, and the table has 3"),
        ({"quasi": ["age"], "k": 2, "suppression": "1.5"}, "suppression must lie between 0 and 1"),
        ({"quasi": ["age"], "k": 2, "suppression": -1}, "suppression must lie"),
        ({"quasi": ["age"], "k": 2, "weights": {"sex": 1}}, "weights are for quasi-identifying columns.*'sex'"),
        ({"quasi": ["age"], "k": 2, "weights": {"age": -1}}, "weight of 'age'"),
        ({"quasi": ["age"], "k": 2, "weights": {"age": float("nan")}}, "weight of 'age'"),
        (
            {"quasi": ["age"], "k": 2, "weights": {"age": "2"}},
            "weight of 'age' must be a number of at least 0",
        ),
        ({"quasi": ["age"], "models": KAnonymity(2)}, r"models must be a list: \[KAnonymity\(k=2\)\]"),
        ({"quasi": ["age"], "models": ["k=2"]}, "at least one model is needed, such as k=10"),
        (
            {"quasi": ["age"], "sensitive": ["ill"], "models": (DistinctDiversity(1, "ill"), TCloseness(1, "ill"))},
            r"every table satisfies that \(distinct l-diversity: .*\), so nobody is protected: use a k of at least 2",
        ),
        ({"quasi": ["age"], "models": (DistinctDiversity(2, "ill"),)}, "not among the sensitive columns"),
        ({"quasi": {"age": "file.csv"}, "k": 2}, "must be a Hierarchy, such as"),
        ({"quasi": [Attribute(name="age", role=Role.SENSITIVE)], "k": 2}, "listed as quasi but its role is sensitive"),
        ({"quasi": ["tags"], "k": 2}, "column 'tags' has the type list"),
        (
            {"quasi": ["age"], "sensitive": ["ill"], "models": (TCloseness("0.1", "ill", Distance.ORDERED),)},
            "needs numbers, dates or an order of 'ill'",
        ),
        (
            {"quasi": ["age"], "sensitive": ["ill"], "models": (TCloseness("0.1", "ill", Distance.HIERARCHICAL),)},
            "needs a hierarchy of 'ill'",
        ),
        ({"quasi": ["age"], "sensitive": ["tags"], "models": (DistinctDiversity(2, "tags"),)}, "type list"),
    ],
)
def test_configurations_that_make_no_sense(words, message):
    with pytest.raises(InvalidParameter, match=message):
        Configuration.of(TABLE, **words)


def test_k_of_one_is_fine_beside_another_model():
    found = Configuration.of(TABLE, quasi=["age"], sensitive=["ill"], k=1, models=(DistinctDiversity(2, "ill"),))
    assert found.least == 2


def test_kept_columns_may_be_of_any_type():
    Configuration.of(TABLE, quasi=["age"], sensitive=["tags"], k=3)


def test_empty_tables():
    with pytest.raises(InvalidParameter, match="the table is empty"):
        Configuration.of(TABLE.slice(0, 0), quasi=["age"], k=2)


def test_without_a_table_only_itself_is_checked():
    found = Configuration.of(quasi=["anything"], k=1000)
    assert [attribute.name for attribute in found.attributes] == ["anything"]
    with pytest.raises(InvalidParameter, match="several: 'a'"):
        Configuration.of(quasi=["a"], sensitive=["a"], k=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"name": "", "role": Role.QUASI}, "needs the name"),
        ({"name": "a", "role": "quasi"}, "must be a Role"),
        ({"name": "a", "role": Role.QUASI, "kind": "number"}, "must be an AxisKind"),
        ({"name": "a", "role": Role.IDENTIFYING, "hierarchy": Hierarchy.prefixes(5)}, "use a hierarchy"),
        ({"name": "a", "role": Role.QUASI, "order": ()}, "tuple of its values"),
        ({"name": "a", "role": Role.QUASI, "order": ("x", None)}, "tuple of its values"),
        ({"name": "a", "role": Role.QUASI, "order": ("x", "x")}, "names a value twice"),
        ({"name": "a", "role": Role.QUASI, "order": ("x",), "kind": AxisKind.NUMBER}, "must be ORDERED"),
    ],
)
def test_attributes_that_make_no_sense(words, message):
    with pytest.raises(InvalidParameter, match=message):
        Attribute(**words)
