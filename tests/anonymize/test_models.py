"""The privacy models: cases from the papers by hand, and every vectorised check against plain definitions."""

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    Overall,
    RecursiveDiversity,
    TCloseness,
    model_from_json,
)
from dither.anonymize.table.classes import Classes, Histogram
from dither.anonymize.verifier.definitions import satisfies
from dither.errors import InvalidParameter
from support.sizes import examples

THOUSANDS = list(range(3, 12))
TREE = (
    (0, 1, 2, 3, 4, 5, 6),
    (0, 0, 1, 1, 2, 2, 2),
    (0, 0, 0, 0, 1, 1, 1),
    (0, 0, 0, 0, 0, 0, 0),
)


def histogram(tables):
    """A histogram of classes given by lists of counts."""
    of_row, codes = [], []
    for number, counts in enumerate(tables):
        for code, count in enumerate(counts):
            of_row += [number] * count
            codes += [code] * count
    width = max(map(len, tables))
    return Histogram.of(np.array(of_row, np.int64), np.array(codes, np.int64), number=len(tables), size=width)


def checked(model, tables, whole=None, levels=None):
    whole = np.sum(tables, axis=0) if whole is None else np.array(whole)
    overall = Overall(name="s", counts=whole.astype(np.int64), levels=levels)
    sizes = np.array([sum(counts) for counts in tables], np.int64)
    return model.check(sizes, histogram(tables), overall).tolist()


def column(values, **more):
    return encode(pa.table({"s": values}), Attribute(name="s", role=Role.SENSITIVE, **more))


def test_k_anonymity_counts_rows():
    classes = Classes.of(np.array([0, 0, 0, 1, 1, -1, 2]))
    assert classes.sizes.tolist() == [3, 2, 1]
    assert classes.suppressed == 1
    assert KAnonymity(2).holds(classes).tolist() == [True, True, False]
    assert KAnonymity(1).holds(classes).all()


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "3", None])
def test_k_must_be_a_whole_number(bad):
    with pytest.raises(InvalidParameter, match="k must be a whole number of at least 1"):
        KAnonymity(bad)


def test_distinct_diversity():
    assert checked(DistinctDiversity(2, "s"), [[3, 0, 0], [2, 1, 0], [1, 1, 1]]) == [False, True, True]
    assert checked(DistinctDiversity(3, "s"), [[3, 0, 0], [2, 1, 0], [1, 1, 1]]) == [False, False, True]


def test_entropy_diversity_holds_with_equality():
    """log l is reached by l equally frequent values, which floats would deny for some l."""
    for number in range(1, 60):
        for times in (1, 3, 7):
            assert checked(EntropyDiversity(number, "s"), [[times] * number]) == [True]
            assert checked(EntropyDiversity(Fraction(number * 10**6 + 1, 10**6), "s"), [[times] * number]) == [False]


def test_entropy_diversity_by_hand():
    """Counts 2, 1, 1 have the entropy 1.5·ln 2 = ln 2^1.5 = ln 2.828…"""
    assert checked(EntropyDiversity("2.8284", "s"), [[2, 1, 1]]) == [True]
    assert checked(EntropyDiversity("2.8285", "s"), [[2, 1, 1]]) == [False]
    assert checked(EntropyDiversity(2, "s"), [[2, 1, 1], [9, 1, 0]]) == [True, False]


def test_entropy_in_doubt_fails():
    """A class too large for integers, a hair from the limit: 2^40 more would be needed to tell, so it fails."""
    sizes = np.array([2 * 10**9 + 1], np.int64)
    found = Histogram(
        starts=np.array([0, 2]), codes=np.array([0, 1], np.int32), counts=np.array([10**9, 10**9 + 1]), size=2
    )
    assert EntropyDiversity(2, "s").check(sizes, found).tolist() == [False]


def test_recursive_diversity_by_hand():
    """r₁ < c·(r_l + … + r_m) is strict: 4 < 2·2 is false."""
    assert checked(RecursiveDiversity(2, 2, "s"), [[4, 1, 1, 0], [4, 1, 1, 1], [5, 1, 1, 1]]) == [False, True, True]
    assert checked(RecursiveDiversity(2, 2, "s"), [[6, 1, 1, 1]]) == [False]
    assert checked(RecursiveDiversity(3, 3, "s"), [[4, 3, 1, 1], [6, 3, 1, 1], [9, 9, 0, 0]]) == [True, False, False]
    assert checked(RecursiveDiversity("0.5", 2, "s"), [[1, 1, 1, 1], [1, 1, 0, 0]]) == [True, False]


def test_ordered_closeness_is_the_example_of_li_et_al():
    """Salaries 3k to 11k: {3k, 4k, 5k} is 0.375 away, {6k, 8k, 11k} is 1/6."""
    salary = column(THOUSANDS)
    low = [int(value in (3, 4, 5)) for value in THOUSANDS]
    mixed = [int(value in (6, 8, 11)) for value in THOUSANDS]
    overall = Overall.of(salary)
    found = TCloseness(1, "s", Distance.ORDERED).distances(np.array([3, 3]), histogram([low, mixed]), overall)
    assert found.tolist() == [0.375, pytest.approx(1 / 6)]
    assert checked(TCloseness("1/6", "s", Distance.ORDERED), [low, mixed], [1] * 9) == [False, True]
    assert checked(TCloseness("0.1666666666", "s", Distance.ORDERED), [mixed], [1] * 9) == [False]
    assert checked(TCloseness("3/8", "s", Distance.ORDERED), [low], [1] * 9) == [True]


def test_equal_closeness_by_hand():
    assert checked(TCloseness("0.5", "s"), [[2, 0], [0, 2]]) == [True, True]
    assert checked(TCloseness("0.49", "s"), [[2, 0], [0, 2]]) == [False, False]


def test_hierarchical_closeness_by_hand():
    """Two of one leaf against an even table over (ab)(cd): ¼ moves to the sibling, ½ across the root: 1/8 + 1/2."""
    levels = tuple(np.array(level, np.int32) for level in ((0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 0, 0)))
    model = TCloseness("5/8", "s", Distance.HIERARCHICAL)
    assert checked(model, [[2, 0, 0, 0]], [1, 1, 1, 1], levels) == [True]
    assert checked(TCloseness("0.624", "s", Distance.HIERARCHICAL), [[2, 0, 0, 0]], [1, 1, 1, 1], levels) == [False]


def test_delta_disclosure_by_hand():
    """Half against a quarter is a factor of two: allowed for δ > ln 2, both ways."""
    tables = [[2, 2, 4], [1, 1, 2]]
    assert checked(DeltaDisclosure("0.01", "s"), tables) == [True, True]
    assert checked(DeltaDisclosure("0.70", "s"), [[2, 2]], [1, 3]) == [True]
    assert checked(DeltaDisclosure("0.69", "s"), [[2, 2]], [1, 3]) == [False]
    assert checked(DeltaDisclosure("0.41", "s"), [[1, 5]], [1, 3]) == [True]
    assert checked(DeltaDisclosure("0.40", "s"), [[1, 5]], [1, 3]) == [False]


def test_delta_disclosure_forbids_absent_values():
    assert checked(DeltaDisclosure(100, "s"), [[4, 0], [1, 3]]) == [False, True]
    assert checked(DeltaDisclosure(100, "s", ignore_absent=True), [[4, 0], [1, 3]]) == [True, True]


def test_delta_disclosure_that_ignores_absent_values_is_not_monotone():
    model = DeltaDisclosure("1.0", "s", ignore_absent=True)
    whole = [5, 5]
    assert not model.monotone
    assert checked(model, [[0, 9], [1, 1]], whole) == [True, True]
    assert checked(model, [[1, 10]], whole) == [False]


def test_beta_likeness_by_hand():
    """A tenth of the table may become 30% of a class for β = 2, exactly."""
    assert checked(BetaLikeness(2, "s"), [[3, 7]], [1, 9]) == [True]
    assert checked(BetaLikeness("1.999999999999999999", "s"), [[3, 7]], [1, 9]) == [False]
    assert checked(BetaLikeness(2, "s"), [[0, 10]], [1, 9]) == [True]


def test_enhanced_beta_likeness_keeps_frequent_values_from_filling_a_class():
    """Nine tenths may grow by −ln 0.9 = 10.5%, to 0.9948 of a class."""
    assert checked(BetaLikeness(2, "s"), [[0, 200]], [1, 9]) == [True]
    assert checked(BetaLikeness(2, "s", enhanced=True), [[0, 200], [1, 199], [2, 198]], [1, 9]) == [False, False, True]


def test_a_class_with_a_value_that_the_table_lacks_fails():
    for model in (TCloseness("0.1", "s"), DeltaDisclosure(9, "s"), BetaLikeness(9, "s")):
        assert checked(model, [[1, 1]], [2, 0]) == [False]
        assert not satisfies(model, 2, {0: 1, 1: 1}, [2, 0], None)


def test_huge_counts_are_compared_exactly():
    """N·n beyond 64 bits: one row in 10^12 too many is noticed."""
    total = 4 * 10**12
    overall = Overall(name="s", counts=np.array([total // 2, total // 2]))
    for extra, fine in ((0, True), (1, False)):
        sizes = np.array([2 * 10**12 + extra])
        found = Histogram(
            starts=np.array([0, 2]),
            codes=np.array([0, 1], np.int32),
            counts=np.array([15 * 10**11 + extra, 5 * 10**11]),
            size=2,
        )
        for distance in (Distance.EQUAL, Distance.ORDERED):
            assert TCloseness("0.25", "s", distance).check(sizes, found, overall).tolist() == [fine]
        assert BetaLikeness("0.5", "s").check(sizes, found, overall).tolist() == [fine]


counts = st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7).filter(any), min_size=1, max_size=5)
rates = st.fractions(Fraction(1, 10), 4, max_denominator=10)


def all_models(rate, least):
    share = min(Fraction(1), rate / 4)
    yield KAnonymity(least)
    yield DistinctDiversity(least, "s")
    yield EntropyDiversity(max(Fraction(1), rate), "s")
    yield EntropyDiversity(least, "s")
    yield RecursiveDiversity(rate, least, "s")
    for distance in Distance:
        yield TCloseness(share, "s", distance)
    for flag in (False, True):
        yield DeltaDisclosure(rate, "s", ignore_absent=flag)
        yield BetaLikeness(rate, "s", enhanced=flag)


@examples(20, 60)
@given(counts, rates, st.integers(1, 5))
def test_every_check_agrees_with_the_definition(tables, rate, least):
    whole = np.sum(tables, axis=0).tolist()
    levels = tuple(np.array(level, np.int32) for level in TREE)
    for model in all_models(rate, least):
        expected = [satisfies(model, sum(row), {c: n for c, n in enumerate(row) if n}, whole, TREE) for row in tables]
        assert checked(model, tables, whole, levels) == expected, model


@examples(20, 60)
@given(counts, rates, st.integers(1, 5))
def test_monotone_models_survive_merging(tables, rate, least):
    levels = tuple(np.array(level, np.int32) for level in TREE)
    whole = np.sum(tables, axis=0)
    for model in all_models(rate, least):
        if not model.monotone:
            continue
        good = [row for row, holds in zip(tables, checked(model, tables, whole, levels), strict=True) if holds]
        pairs = [np.add(a, b).tolist() for a, b in itertools.combinations(good, 2)]
        if pairs:
            assert all(checked(model, pairs, whole, levels)), model


@settings(max_examples=20)
@given(counts, st.sampled_from(list(Distance)))
def test_distances_are_earth_mover_distances(tables, distance):
    """Against the linear programme that defines them."""
    whole = np.sum(tables, axis=0)
    levels = tuple(np.array(level, np.int32) for level in TREE)
    overall = Overall(name="s", counts=whole, levels=levels)
    sizes = np.array([sum(row) for row in tables])
    found = TCloseness(1, "s", distance).distances(sizes, histogram(tables), overall)
    ground = np.zeros((7, 7))
    for i, j in itertools.product(range(7), repeat=2):
        if distance is Distance.EQUAL:
            ground[i, j] = i != j
        elif distance is Distance.ORDERED:
            ground[i, j] = abs(i - j) / 6
        else:
            ground[i, j] = next(h for h in range(4) if TREE[h][i] == TREE[h][j]) / 3
    for row, value in zip(tables, found, strict=True):
        assert value == pytest.approx(_transport(np.array(row) / sum(row), whole / whole.sum(), ground), abs=1e-9)


def _transport(p, q, ground):
    m = len(p)
    out = np.kron(np.eye(m), np.ones(m))
    into = np.kron(np.ones(m), np.eye(m))
    return linprog(ground.ravel(), A_eq=np.vstack((out, into)), b_eq=np.concatenate((p, q))).fun


@examples(40, 100)
@given(st.lists(st.integers(-1, 4), max_size=40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_histograms_count_and_merge(of_row, size, chance):
    rows = np.array(of_row, np.int32)
    codes = np.array([chance.randrange(size) for _ in of_row], np.int32)
    found = Histogram.of(rows, codes, number=5, size=size)
    dense = np.zeros((5, size), int)
    for row, code in zip(of_row, codes.tolist(), strict=True):
        if row >= 0:
            dense[row, code] += 1
    assert _dense(found).tolist() == dense.tolist()
    into = np.array([0, 1, 0, -1, 1])
    merged = np.array([dense[0] + dense[2], dense[1] + dense[4]])
    assert _dense(found.merged(into, 2)).tolist() == merged.tolist()
    groups = np.arange(size, dtype=np.int32) % 2
    recoded = np.stack([dense[:, groups == g].sum(axis=1) for g in (0, 1)], axis=1)
    assert _dense(found.recoded(groups, 2)).tolist() == recoded.tolist()


def test_histograms_too_large_to_be_dense():
    rows, codes = np.array([0, 90_000, 90_000, 5]), np.array([999, 3, 3, 0])
    found = Histogram.of(rows, codes, number=100_000, size=1000)
    assert (found.class_of_entry.tolist(), found.codes.tolist()) == ([0, 5, 90_000], [999, 0, 3])
    assert found.counts.tolist() == [1, 1, 2]
    into = np.zeros(100_000, np.int64)
    assert found.merged(into, 100_000).counts.tolist() == [1, 2, 1]
    turned = found.recoded(np.arange(1000, dtype=np.int32)[::-1], 1000)
    assert turned.codes.tolist() == [0, 999, 996]


def _dense(found):
    dense = np.zeros((found.number, found.size), int)
    dense[found.class_of_entry, found.codes] = found.counts
    return dense


def test_no_classes_at_all():
    none = Histogram.of(np.zeros(0, np.int32), np.zeros(0, np.int32), number=0, size=3)
    overall = Overall(name="s", counts=np.array([1, 1, 1]), levels=(np.arange(3), np.zeros(3, np.int64)))
    for model in all_models(Fraction(1), 2):
        assert model.check(np.zeros(0, np.int64), none, overall).size == 0


def test_whole_tables_through_holds():
    ill = column(["flu", "flu", "cold", None, "cold", "flu"])
    classes = Classes.of(np.array([0, 0, 0, 1, 1, 1]))
    assert DistinctDiversity(3, "s").holds(classes, ill).tolist() == [False, True]
    assert TCloseness("1/6", "s").holds(classes, ill).tolist() == [True, True]
    assert TCloseness("1/7", "s").holds(classes, ill).tolist() == [False, False]
    tree = column(["a", "b"], hierarchy=Hierarchy.from_mapping({"a": "x", "b": "x", "c": "y"}))
    assert TCloseness("1/4", "s", Distance.HIERARCHICAL).holds(Classes.of(np.array([0, 1])), tree).all()


def test_suppressed_rows_count_for_the_whole_table():
    ill = column(["flu", "flu", "cold", "cold"])
    assert TCloseness(0, "s").holds(Classes.of(np.array([0, -1, 0, -1])), ill).tolist() == [True]
    assert TCloseness(0, "s").holds(Classes.of(np.array([0, 0, -1, -1])), ill).tolist() == [False]


def test_checks_say_what_they_lack():
    classes = Classes.of(np.array([0, 0]))
    with pytest.raises(InvalidParameter, match="needs the column 's'"):
        DistinctDiversity(2, "s").holds(classes)
    with pytest.raises(InvalidParameter, match="counts of 's' in each class"):
        DistinctDiversity(2, "s").check(classes.sizes)
    with pytest.raises(InvalidParameter, match="in the whole table"):
        TCloseness("0.1", "s").check(classes.sizes, histogram([[1, 1]]))
    with pytest.raises(InvalidParameter, match=r"needs numbers, dates or an order of 's'"):
        TCloseness("0.1", "s", Distance.ORDERED).holds(classes, column(["a", "b"]))
    with pytest.raises(InvalidParameter, match="needs a hierarchy of 's'"):
        TCloseness("0.1", "s", Distance.HIERARCHICAL).holds(classes, column(["a", "b"]))
    ordered = column(["a", "b"], kind=AxisKind.ORDERED, order=("b", "a"))
    assert TCloseness("0.1", "s", Distance.ORDERED).holds(classes, ordered).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TCloseness("1.1", "s"),
        lambda: TCloseness(-1, "s"),
        lambda: TCloseness("0.1", "s", "ordered"),
        lambda: EntropyDiversity("0.9", "s"),
        lambda: DistinctDiversity(0, "s"),
        lambda: RecursiveDiversity(0, 2, "s"),
        lambda: RecursiveDiversity(1, 0, "s"),
        lambda: DeltaDisclosure(0, "s"),
        lambda: BetaLikeness(float("nan"), "s"),
    ],
)
def test_parameters_that_make_no_sense(make):
    with pytest.raises(InvalidParameter):
        make()


def test_models_come_back_from_json():
    for model in all_models(Fraction(5, 4), 3):
        assert model_from_json(model.to_json()) == model
        assert model.sentence()
        assert model.needs() >= 1
    with pytest.raises(InvalidParameter, match="model must be one of"):
        model_from_json({"model": "x"})
    with pytest.raises(InvalidParameter, match="other parameters"):
        model_from_json({"model": "k-anonymity", "l": 3})


def test_needs_is_a_lower_bound():
    """No class below ``needs()`` satisfies the model, whatever is in it."""
    for model in all_models(Fraction(5, 2), 4):
        for size in range(1, model.needs()):
            assert not any(checked(model, [[1] * size + [0] * (7 - size)], [1] * 7, tuple(map(np.array, TREE))))


def test_k_map_counts_people_of_the_population():
    people = pa.table({"age": [30, 30, 31, 40, 40, 40, None], "sex": ["f"] * 7})
    sample = pa.table({"age": pa.array([30, 31, 40, 50, None, 30], pa.int32()), "sex": ["f"] * 6})
    model = KMap(3, people)
    carried = model.of_rows(sample, ["age", "sex"])
    assert carried.tolist() == [2, 1, 3, 0, 1, 0]
    classes = Classes.of(np.array([0, 0, 1, 2, 2, 0]))
    assert model.holds(classes, population=carried).tolist() == [True, True, False]
    listed = KMap(3, pa.table({"age": [30, 40], "sex": ["f", "f"], "n": [7, 2]}), count="n")
    assert listed.of_rows(sample, ["age", "sex"]).tolist() == [7, 0, 2, 0, 0, 0]
    assert model_from_json(model.to_json(), population=people).k == 3


def test_k_map_says_what_is_wrong():
    people = pa.table({"age": [30], "n": [-1]})
    with pytest.raises(InvalidParameter, match="no column 'm'"):
        KMap(2, people, count="m")
    with pytest.raises(InvalidParameter, match="whole numbers of people"):
        KMap(2, people, count="n")
    with pytest.raises(InvalidParameter, match="population has no column 'sex'"):
        KMap(2, people).of_rows(pa.table({"sex": ["f"]}), ["sex"])
    with pytest.raises(InvalidParameter, match="needs the people"):
        KMap(2, people).holds(Classes.of(np.array([0])))


def test_classes_are_consistent():
    with pytest.raises(InvalidParameter, match="beyond the 2"):
        Classes.of(np.array([0, 5]), 2)
    with pytest.raises(InvalidParameter, match="add up"):
        Classes(np.array([0, 0, -1]), np.array([3]))
    with pytest.raises(InvalidParameter, match="whole numbers"):
        Classes(np.array([0.0]), np.array([1]))
    assert Classes.of(np.array([], np.int64)).number == 0
    assert Classes.of(np.array([2, 2]), 4).sizes.tolist() == [0, 0, 2, 0]
    assert Classes.of(np.array([1, 0, 1, -1])).sums(np.array([5, 1, 2, 9])).tolist() == [1, 7]
