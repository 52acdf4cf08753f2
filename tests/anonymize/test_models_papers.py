"""Every model against its paper, written down once more here from rows and fractions; above all exactly at the limit.

Machanavajjhala et al. 2007 (l-diversity), Li, Li & Venkatasubramanian 2007 (t-closeness), Brickell & Shmatikov 2008
(δ-disclosure), Cao & Karras 2012 (β-likeness), Sweeney 2002 (k-anonymity, k-map). Nothing is taken from
``dither.anonymize.verifier.definitions``: the verifier is compared as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, strategies as st

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import Encoded, encode
from dither.anonymize.hierarchy.hierarchies import TableHierarchy
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.table.classes import Classes
from dither.anonymize.verifier.definitions import satisfies
from dither.errors import InvalidParameter
from support.sizes import examples

# level by level, the group of each value; values in the order that the ordered distance goes by
ORDER = ("low", "mid", "high", "top")
LINES = [("low", "few", "*"), ("mid", "few", "*"), ("high", "many", "*"), ("top", "many", "*")]
COLUMN = Attribute(name="s", role=Role.SENSITIVE, order=ORDER, hierarchy=TableHierarchy.of(LINES))
HEIGHT = 2
TINY = Fraction(1, 10**15)

Value = str | None
Rows = list[tuple[int, Value]]


def members(rows: Rows) -> dict[int, list[Value]]:
    found: dict[int, list[Value]] = {}
    for number, value in rows:
        if number >= 0:
            found.setdefault(number, []).append(value)
    return found


def groups(value: Value) -> tuple[str | None, str | None, str]:
    return next(((a, b, c) for a, b, c in LINES if a == value), (None, None, "*"))


def share(values: Sequence[Value]) -> dict[Value, Fraction]:
    return {value: Fraction(count, len(values)) for value, count in Counter(values).items()}


def equal(p: dict[Value, Fraction], q: dict[Value, Fraction]) -> Fraction:
    """What has to move is what the two don't share."""
    return 1 - sum((min(p.get(value, Fraction(0)), q[value]) for value in q), Fraction(0))


def ordered(p: dict[Value, Fraction], q: dict[Value, Fraction]) -> Fraction:
    """From left to right: the first of what is left of one goes to the first of what is left of the other."""
    places = [value for value in (*ORDER, None) if value in q]
    have = [p.get(value, Fraction(0)) for value in places]
    want = [q[value] for value in places]
    cost, i, j = Fraction(0), 0, 0
    while i < len(places) and j < len(places):
        moved = min(have[i], want[j])
        cost += moved * abs(i - j)
        have[i] -= moved
        want[j] -= moved
        i, j = i + (not have[i]), j + (not want[j])
    return cost / max(1, len(places) - 1)


def hierarchical(p: dict[Value, Fraction], q: dict[Value, Fraction]) -> Fraction:
    """From the leaves up: what fits within a group moves there, and only the rest goes higher."""
    have = {value: p.get(value, Fraction(0)) for value in q}
    want = dict(q)
    cost = Fraction(0)
    for level in range(HEIGHT + 1):
        for group in {groups(value)[level] for value in q}:
            inside = [value for value in q if groups(value)[level] == group]
            for a in inside:
                for b in inside:
                    moved = min(have[a], want[b])
                    have[a] -= moved
                    want[b] -= moved
                    cost += moved * Fraction(level, HEIGHT)
    assert not any(have.values())
    return cost


FAR: dict[Distance, Callable[[dict[Value, Fraction], dict[Value, Fraction]], Fraction]] = {
    Distance.EQUAL: equal,
    Distance.ORDERED: ordered,
    Distance.HIERARCHICAL: hierarchical,
}


def logarithm(value: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        return (Decimal(value.numerator) / Decimal(value.denominator)).ln()


def below(left: Decimal, right: Fraction) -> bool:
    with localcontext() as context:
        context.prec = 80
        return left < Decimal(right.numerator) / Decimal(right.denominator)


def good(model: Model, values: list[Value], whole: list[Value]) -> bool:
    """Whether one class satisfies a model, by its paper."""
    n, counts = len(values), sorted(Counter(values).values(), reverse=True)
    p, q = share(values), share(whole)
    if isinstance(model, KAnonymity):
        return n >= model.k
    if isinstance(model, DistinctDiversity):
        return len(counts) >= model.l
    if isinstance(model, EntropyDiversity):
        # H ≥ log l, without logarithms: Π (n/c)^c ≥ l^n
        return math.prod(Fraction(n, count) ** count for count in counts) >= model.l**n
    if isinstance(model, RecursiveDiversity):
        return counts[0] < model.c * sum(counts[model.l - 1 :])
    if isinstance(model, TCloseness):
        return FAR[model.distance](p, q) <= model.t
    if isinstance(model, DeltaDisclosure):
        asked = [value for value in q if value in p or not model.ignore_absent]
        return all(value in p and below(abs(logarithm(p[value] / q[value])), model.delta) for value in asked)
    assert isinstance(model, BetaLikeness)
    gains = {value: (p[value] - q[value]) / q[value] for value in p if p[value] > q[value]}
    return all(
        gain <= model.beta and not (model.enhanced and below(-logarithm(q[value]), gain))
        for value, gain in gains.items()
    )


def encoded(rows: Rows) -> tuple[Classes, Encoded]:
    table = pa.table({"s": pa.array([value for _, value in rows], pa.string())})
    number = 1 + max(number for number, _ in rows)
    return Classes.of(np.array([number for number, _ in rows]), number), encode(table, COLUMN)


def agrees(model: Model, rows: Rows) -> list[bool]:
    """What the model says of each class that has rows: the same as the paper, and as the verifier's definition."""
    classes, column = encoded(rows)
    whole = [value for _, value in rows]
    found = model.holds(classes, column if model.sensitive else None).tolist()
    places = [value for value in (*ORDER, None) if value in set(whole)]
    overall = [whole.count(value) for value in places]
    levels = [[_number(level, groups(value)[level]) for value in places] for level in range(HEIGHT + 1)]
    said = []
    for number, values in sorted(members(rows).items()):
        counts = {places.index(value): count for value, count in Counter(values).items()}
        assert found[number] == good(model, values, whole), model.sentence()
        assert found[number] == satisfies(model, len(values), counts, overall, levels), model.sentence()
        said.append(found[number])
    return said


def _number(level: int, label: str | None) -> int:
    labels = list(dict.fromkeys(line[level] for line in LINES))
    return len(labels) if label is None else labels.index(label)


# class −1 is suppressed, and None a missing value
tables = st.lists(st.tuples(st.integers(-1, 3), st.sampled_from([*ORDER, None])), min_size=1, max_size=30).filter(
    lambda rows: any(number >= 0 for number, _ in rows)
)
numbers = st.fractions(Fraction(1, 20), 4, max_denominator=20)


def kinds(number: Fraction, least: int) -> list[Model]:
    part = min(Fraction(1), number / 4)
    return [
        KAnonymity(least),
        DistinctDiversity(least, "s"),
        EntropyDiversity(max(Fraction(1), number), "s"),
        EntropyDiversity(least, "s"),
        RecursiveDiversity(number, least, "s"),
        *(TCloseness(part, "s", distance) for distance in Distance),
        *(DeltaDisclosure(number, "s", ignore_absent=flag) for flag in (False, True)),
        *(BetaLikeness(number, "s", enhanced=flag) for flag in (False, True)),
    ]


@examples(20, 60)
@given(tables, numbers, st.integers(1, 5))
def test_models_are_those_of_the_papers(rows: Rows, number: Fraction, least: int) -> None:
    for model in kinds(number, least):
        agrees(model, rows)


@examples(20, 60)
@given(tables, st.sampled_from(list(Distance)), st.data())
def test_a_class_as_far_as_t_is_close_enough_and_no_farther(
    rows: Rows, distance: Distance, data: st.DataObject
) -> None:
    number = data.draw(st.sampled_from(sorted(members(rows))))
    t = FAR[distance](share(members(rows)[number]), share([value for _, value in rows]))
    place = sorted(members(rows)).index(number)
    assert agrees(TCloseness(t, "s", distance), rows)[place]
    if t:
        assert not agrees(TCloseness(t - min(t, TINY), "s", distance), rows)[place]


@examples(20, 60)
@given(tables, st.data())
def test_a_gain_of_beta_is_allowed_and_no_more(rows: Rows, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(sorted(members(rows))))
    p, q = share(members(rows)[number]), share([value for _, value in rows])
    most = max((p[value] - q[value]) / q[value] for value in p)
    assume(most > TINY)
    place = sorted(members(rows)).index(number)
    assert agrees(BetaLikeness(most, "s"), rows)[place]
    assert not agrees(BetaLikeness(most - TINY, "s"), rows)[place]


@examples(20, 60)
@given(tables, st.integers(1, 4), st.data())
def test_c_times_the_tail_is_not_yet_more_than_the_most_frequent(rows: Rows, least: int, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(sorted(members(rows))))
    counts = sorted(Counter(members(rows)[number]).values(), reverse=True)
    tail = sum(counts[least - 1 :])
    assume(tail)
    place = sorted(members(rows)).index(number)
    assert not agrees(RecursiveDiversity(Fraction(counts[0], tail), least, "s"), rows)[place]
    assert agrees(RecursiveDiversity(Fraction(counts[0], tail) + TINY, least, "s"), rows)[place]


@examples(40, 100)
@given(st.integers(1, 4), st.integers(1, 400))
def test_l_values_alike_reach_an_entropy_of_log_l_and_nothing_above(least: int, times: int) -> None:
    rows: Rows = [(0, value) for value in ORDER[:least] for _ in range(times)]
    assert agrees(EntropyDiversity(least, "s"), rows) == [True]
    assert agrees(EntropyDiversity(least + TINY, "s"), rows) == [False]
    # (1/2, 1/4, 1/4) has exactly the entropy log √8, which no l is; 2√2 lies between these two
    halves: Rows = [(0, "low")] * 2 * times + [(0, "mid")] * times + [(0, "top")] * times
    assert agrees(EntropyDiversity("2.828427124746", "s"), halves) == [True]
    assert agrees(EntropyDiversity("2.828427124747", "s"), halves) == [False]


def test_shares_that_lie_beside_the_limits_of_logarithms() -> None:
    # p/q = 2 on both sides of e^δ, and 1/2 on both sides of e^−δ
    rows: Rows = [(0, "low")] * 2 + [(0, "top")] + [(1, "low")] + [(1, "top")] * 5
    # class 0: low 2/3 against 1/3, top 1/3 against 2/3; class 1: low 1/6 against 1/3
    assert agrees(DeltaDisclosure("0.6931471806", "s"), rows) == [True, True]
    assert agrees(DeltaDisclosure("0.6931471805", "s"), rows) == [False, False]
    # q = 1/2: at most 1 − ln ½ = 1.693147… times as frequent
    total = 10**6
    for times, fine in ((846_573, True), (846_574, False)):
        large: Rows = [(0, "low")] * times + [(0, "top")] * (total - times)
        large += [(1, "top")] * times + [(1, "low")] * (total - times)
        classes, column = encoded(large)
        assert BetaLikeness(5, "s", enhanced=True).holds(classes, column).tolist() == [fine, fine]
        assert BetaLikeness(5, "s").holds(classes, column).all()


def test_one_value_only() -> None:
    rows: Rows = [(0, "low")] * 3 + [(1, "low")] * 2
    for fine in (
        DistinctDiversity(1, "s"),
        EntropyDiversity(1, "s"),
        RecursiveDiversity(2, 1, "s"),
        *(TCloseness(0, "s", distance) for distance in Distance),
        DeltaDisclosure("0.001", "s"),
        BetaLikeness("0.001", "s"),
        BetaLikeness("0.001", "s", enhanced=True),
    ):
        assert agrees(fine, rows) == [True, True], fine
    for bad in (DistinctDiversity(2, "s"), EntropyDiversity("1.001", "s"), RecursiveDiversity(1, 1, "s")):
        assert agrees(bad, rows) == [False, False], bad


def test_a_missing_value_is_a_value() -> None:
    rows: Rows = [(0, "low"), (0, None), (1, None), (1, None)]
    assert agrees(DistinctDiversity(2, "s"), rows) == [True, False]
    assert agrees(EntropyDiversity(2, "s"), rows) == [True, False]
    # low and missing are a step of the order apart, and meet at the top of the hierarchy
    assert agrees(TCloseness("1/4", "s", Distance.ORDERED), rows) == [True, True]
    assert agrees(TCloseness("0.249", "s", Distance.HIERARCHICAL), rows) == [False, False]


def test_suppressed_rows_belong_to_the_table_that_classes_are_compared_with() -> None:
    kept: Rows = [(0, "low"), (0, "top")]
    assert agrees(TCloseness(0, "s"), kept) == [True]
    assert agrees(TCloseness(0, "s"), [*kept, (-1, "low")]) == [False]
    assert agrees(DeltaDisclosure(1, "s"), [*kept, (-1, "mid")]) == [False]


def test_each_of_several_sensitive_columns_is_asked() -> None:
    table = pa.table({"age": [30, 30, 40, 40], "ill": ["a", "b", "a", "b"], "wage": [1, 1, 1, 2]})
    models = (DistinctDiversity(2, "ill"), DistinctDiversity(2, "wage"))
    asked = Configuration.of(table, quasi=["age"], sensitive=["ill", "wage"], models=models)
    classes = Classes.of(np.array([0, 0, 1, 1]))
    for model, expected in zip(asked.models, ([True, True], [False, True]), strict=True):
        assert model.holds(classes, encode(table, asked.attribute(str(model.sensitive)))).tolist() == expected
    with pytest.raises(InvalidParameter, match="checking it needs the column 'wage'"):
        models[1].holds(classes, encode(table, asked.attribute("ill")))


@examples(20, 40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=25),
    st.integers(1, 4),
)
def test_k_map_counts_people_who_share_a_combination_of_the_class(
    sample: list[tuple[int, str]], people: list[tuple[int, str]], k: int
) -> None:
    """One class for each letter; only combinations that the class has are counted, so at most those who fit it."""
    table = pa.table({"age": [age for age, _ in sample], "sex": [sex for _, sex in sample]})
    population = pa.table(
        {
            "age": pa.array([age for age, _ in people], pa.int64()),
            "sex": pa.array([sex for _, sex in people], pa.string()),
        }
    )
    letters = sorted({sex for _, sex in sample})
    classes = Classes.of(np.array([letters.index(sex) for _, sex in sample]))
    model = KMap(k, population)
    found = model.holds(classes, population=model.of_rows(table, ["age", "sex"])).tolist()
    exact = [sum(one in set(sample) and one[1] == letter for one in people) for letter in letters]
    fitting = [sum(one[1] == letter for one in people) for letter in letters]
    assert found == [number >= k for number in exact]
    assert all(not holds or number >= k for holds, number in zip(found, fitting, strict=True))


def test_limits_are_said_wrongly() -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: TCloseness(-1, "s"), "t must"),
        (lambda: TCloseness("1.01", "s"), "t must"),
        (lambda: TCloseness("nan", "s"), "t must"),
        (lambda: EntropyDiversity("0.99", "s"), "l must be at least 1"),
        (lambda: DistinctDiversity(0, "s"), "l must"),
        (lambda: RecursiveDiversity(0, 2, "s"), "c must"),
        (lambda: RecursiveDiversity(2, 0, "s"), "l must"),
        (lambda: DeltaDisclosure(0, "s"), "delta must"),
        (lambda: BetaLikeness(-1, "s"), "beta must"),
        (lambda: KAnonymity(0), "k must"),
    ]
    for make, message in wrong:
        with pytest.raises(InvalidParameter, match=message):
            make()


def test_models_that_ask_nothing_are_known_and_refused_alone() -> None:
    nothing: list[Model] = [
        KAnonymity(1),
        DistinctDiversity(1, "s"),
        EntropyDiversity(1, "s"),
        RecursiveDiversity(2, 1, "s"),
        TCloseness(1, "s"),
    ]
    rows: Rows = [(0, "low"), (1, "mid"), (1, None), (2, "top")]
    for model in nothing:
        assert model.asks_nothing
        assert agrees(model, rows) == [True, True, True]
        with pytest.raises(InvalidParameter, match=r"protects nobody|nobody is protected"):
            Configuration.of(quasi=["age"], sensitive=["s"], models=[model])
    Configuration.of(quasi=["age"], sensitive=["s"], models=[*nothing, KAnonymity(2)])
    assert not any(model.asks_nothing for model in kinds(Fraction(2), 2))
