"""How much one unit adds to an answer: what the policy's limits cut it to, and what public facts say it has.

A join of two private relations gives a unit every pair of its rows, so the limits of both are multiplied; a relation
with one row for each unit leaves those of the other as they are, and so does one in which units are only looked up.
Facts make the bound smaller where a unit can't have more: from unique keys, from public values, from joins on them.

Whatever comes out here is enforced by the engine after the last join, and the noise is made for it: a limit that is too
small, or a fact that is wrong, cuts rows off. Privacy rests on none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from dither.query.kinds import Call, Column, Expression, columns
from dither.query.plan.plan import (
    Distinct,
    FilterRows,
    JoinKind,
    JoinRows,
    PerUnit,
    Project,
    Relation,
    Scan,
    Union,
    Window,
)
from dither.query.schema import TableFacts, most_of

# so many unique keys of a join are followed; more would only make a bound smaller
MOST_KEYS = 16
ONE: frozenset[str] = frozenset()
"""The unique key of a relation with one row for each unit: there is nothing besides the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A table whose limits bound an answer: a unit counts in so many groups and as so many rows in each."""

    table: str
    groups: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The most that one unit adds to an answer: groups, and rows in each of them.

    ``factors`` are the tables whose limits were multiplied. ``most_rows`` is the most that a unit can have in one group
    as far as public facts say, ``most_groups`` in how many groups it can be; None where they say nothing. Of the bounds
    without facts, ``limit_groups`` and ``limit_rows`` are what a question may state at most.
    """

    groups: int
    rows: int
    limit_groups: int
    limit_rows: int
    factors: tuple[Factor, ...]
    most_groups: int | None
    most_rows: int | None

    @property
    def one_each(self) -> bool:
        """Whether a unit has at most one row: then it is in one group, and nothing is lost by that bound."""
        return self.most_groups == 1 and self.most_rows == 1


def contribution(
    relation: Relation, tables: Mapping[str, TableFacts], keys: Collection[Expression] = ()
) -> Contribution:
    """What one unit adds to groups by these keys of a private relation whose units are ids.

    Args:
        relation: Read by the aggregation.
        tables: The tables of the schema, by name.
        keys: The group keys, over columns of the relation.

    Returns:
        The bound; unchanged by which keys' values are public.
    """
    grouped = frozenset(name for key in keys for name in columns(key))
    known, facts = _limits(relation, grouped, tables), _facts(relation, tables)
    limit_groups = _limits(relation, frozenset(each.name for each in relation.fields), tables).groups
    most_groups = _fewer(facts.most, known.most_groups)
    plain = {key.name for key in keys if isinstance(key, Column)}
    found = [most_of(key, plain, facts.sizes) for key in facts.unique]
    most_rows = min((most for most in (*found, facts.most) if most is not None), default=None)
    return Contribution(
        groups=_least(known.groups, most_groups),
        rows=_least(known.rows, most_rows),
        limit_groups=limit_groups,
        limit_rows=known.rows,
        factors=known.factors,
        most_groups=most_groups,
        most_rows=most_rows,
    )


def one_row_each(relation: Relation) -> bool:
    """Whether a unit has at most one row by the form of the question alone, whatever the policy says."""
    if isinstance(relation, PerUnit):
        units = {field.name for field in relation.input.fields if field.unit}
        return all(isinstance(key, Column) and key.name in units for key in relation.keys)
    if isinstance(relation, Distinct) and all(field.unit for field in relation.fields):
        return True
    if isinstance(relation, FilterRows | Project | Distinct | Window):
        return one_row_each(relation.input)
    if isinstance(relation, JoinRows):
        copied = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
        return one_row_each(relation.left) and (not copied or (relation.on_unit and one_row_each(relation.right)))
    return False


def _least(limit: int, most: int | None) -> int:
    return limit if most is None else min(limit, most)


def _fewer(one: int | None, other: int | None) -> int | None:
    return other if one is None else _least(one, other)


# ---------------------------------------------------------------------------------------------- limits of the policy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What the limits of the tables allow a unit in one relation; ``factors`` as in ``Contribution``.

    ``most_groups`` is in how many groups it can be by facts alone, None where they don't say.
    """

    groups: int
    rows: int
    factors: tuple[Factor, ...]
    most_groups: int | None = None


def _limits(relation: Relation, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """The limits for groups by columns of these names."""
    if isinstance(relation, Scan):
        table = tables[relation.table]
        factor = Factor(table=table.name, groups=table.groups, rows=table.rows)
        return _Limits(groups=table.groups, rows=table.rows, factors=(factor,), most_groups=table.most_rows)
    if isinstance(relation, JoinRows):
        return _of_join(relation, grouped, tables)
    if isinstance(relation, Union):
        return _of_union(relation, grouped, tables)
    return _limits(relation.input, _below(relation, grouped), tables)


def _of_union(union: Union, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """The strictest of all parts."""
    places = [place for place, each in enumerate(union.fields) if each.name in grouped]
    parts = [_limits(part, frozenset(part.fields[i].name for i in places), tables) for part in union.inputs]
    return _Limits(groups=min(part.groups for part in parts), rows=min(part.rows for part in parts), factors=())


def _below(relation: FilterRows | Project | Distinct | PerUnit | Window, grouped: frozenset[str]) -> frozenset[str]:
    """The columns of the input that these of the output depend on; of what is computed from several rows, all."""
    if isinstance(relation, FilterRows | Distinct):
        return grouped
    own = frozenset(each.name for each in relation.input.fields)
    if isinstance(relation, Window):
        return grouped if grouped <= own else own
    computed = relation.expressions if isinstance(relation, Project) else relation.keys
    names = (each.name for each in relation.fields)
    given = {name: columns(expression) for name, expression in zip(names, computed, strict=False)}
    return frozenset[str]().union(*(given.get(name, own) for name in grouped))


def _of_join(join: JoinRows, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    own = frozenset(each.name for each in join.left.fields)
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return _limits(join.left, grouped, tables)
    if not join.on_unit:
        if grouped <= own:
            return _limits(join.left, grouped, tables)
        # which public rows match is up to any column
        return replace(_limits(join.left, own, tables), most_groups=None)
    left = _of_side(join.left, grouped & own, tables)
    right = _of_side(join.right, grouped - own, tables)
    if join.kind is JoinKind.LEFT and join.condition is not None and right.most_groups is not None and grouped - own:
        # rows of the left that match nothing have a group of their own
        right = replace(right, groups=right.groups + 1, most_groups=right.most_groups + 1)
    factors = (*left.factors, *right.factors)
    most = None
    if left.most_groups is not None and right.most_groups is not None:
        most = left.most_groups * right.most_groups
    return _Limits(groups=left.groups * right.groups, rows=left.rows * right.rows, factors=factors, most_groups=most)


def _of_side(relation: Relation, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """What one side multiplies the other by: of which no column is a key, that is in one group."""
    found, most = _limits(relation, grouped, tables), _facts(relation, tables).most
    most_groups = _fewer(found.most_groups, most) if grouped else 1
    groups, rows = _least(found.groups, most_groups), _least(found.rows, most)
    factors = found.factors
    if most == 1:
        factors = ()
    elif len(factors) == 1:
        factors = (replace(factors[0], groups=groups, rows=rows),)
    return _Limits(groups=groups, rows=rows, factors=factors, most_groups=most_groups)


# ---------------------------------------------------------------------------------------------- facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What is known of a relation: unique keys, public sizes of columns, and the most rows of one unit.

    ``unique`` are sets of plan names of which every combination occurs once, for each unit if the relation is private.
    Names that no column has any more go on counting: they only make a bound larger.
    """

    unique: tuple[frozenset[str], ...] = ()
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    most: int | None = None


def _facts(relation: Relation, tables: Mapping[str, TableFacts]) -> _Facts:
    if one_row_each(relation):
        return _Facts(unique=(ONE,), most=1)
    if isinstance(relation, Scan):
        return _of_scan(relation, tables[relation.table])
    if isinstance(relation, JoinRows):
        return _joined(relation, tables)
    if isinstance(relation, Union):
        parts = [_facts(part, tables).most for part in relation.inputs]
        return _Facts(most=None if None in parts else sum(part for part in parts if part is not None))
    below = _facts(relation.input, tables)
    if isinstance(relation, Project):
        return _renamed(relation, below)
    if isinstance(relation, PerUnit):
        return _Facts(most=below.most)
    return below


def _of_scan(scan: Scan, table: TableFacts) -> _Facts:
    names = {column: name for name, column in scan.columns}
    # a hidden column has no name in the plan, but it is one
    hidden = f"{scan.columns[0][0] if scan.columns else ''}.{scan.table}"
    given = {table.unit_column} if scan.private else set()
    unique = tuple(
        frozenset(names.get(column, f"{hidden}.{column}") for column in key if column not in given)
        for key in table.unique
    )
    sizes = {names.get(column, f"{hidden}.{column}"): facts.domain for column, facts in table.columns.items()}
    most = table.most_rows if scan.private else None
    return _Facts(unique=(ONE,) if most == 1 else unique[:MOST_KEYS], sizes=sizes, most=most)


def _renamed(relation: Project, below: _Facts) -> _Facts:
    passed: dict[str, str] = {}
    for each, expression in zip(relation.fields, relation.expressions, strict=True):
        if isinstance(expression, Column):
            passed.setdefault(expression.name, each.name)
    unique = tuple(frozenset(passed.get(name, name) for name in key) for key in below.unique)
    return replace(
        below, unique=unique, sizes={**below.sizes, **{passed[n]: below.sizes[n] for n in passed if n in below.sizes}}
    )


def _joined(join: JoinRows, tables: Mapping[str, TableFacts]) -> _Facts:
    left = _facts(join.left, tables)
    if join.kind is JoinKind.ANTI:
        return left
    right = _facts(join.right, tables)
    equal = _equal(join)
    sizes = {**right.sizes, **left.sizes}
    if join.kind is not JoinKind.LEFT:
        # values that are equal have the fewer of both sides
        for here, there in equal:
            known = [size for size in (left.sizes.get(here), right.sizes.get(there)) if size is not None]
            if known:
                sizes[here] = sizes[there] = min(known)
    if join.kind is JoinKind.SEMI:
        return replace(left, sizes=sizes)
    if not join.on_unit:
        covered = {there for _, there in equal}
        if any(key <= covered for key in right.unique):
            unique = left.unique
            if join.kind is JoinKind.INNER:
                # the public column tells rows apart as well as the one that it equals
                also = (key - {here} | {there} for key in left.unique for here, there in equal if here in key)
                unique = tuple(dict.fromkeys((*unique, *also)))[:MOST_KEYS]
            return replace(left, unique=unique, sizes=sizes)
        return _Facts(unique=_pairs(left, right), sizes=sizes)
    most = None if left.most is None or right.most is None else left.most * right.most
    return _Facts(unique=_pairs(left, right), sizes=sizes, most=most)


def _pairs(left: _Facts, right: _Facts) -> tuple[frozenset[str], ...]:
    return tuple(dict.fromkeys(a | b for a, b in product(left.unique, right.unique)))[:MOST_KEYS]


def _equal(join: JoinRows) -> list[tuple[str, str]]:
    """Columns of the left that the condition makes equal to columns of the right, of one kind."""
    own, other = ({each.name for each in side.fields} for side in (join.left, join.right))
    found = []
    for part in _parts(join.condition):
        if not isinstance(part, Call) or part.function != "equal":
            continue
        a, b = part.arguments
        for here, there in ((a, b), (b, a)):
            both = isinstance(here, Column) and isinstance(there, Column) and here.kind is there.kind
            if both and here.name in own and there.name in other:  # type: ignore[union-attr]
                found.append((here.name, there.name))  # type: ignore[union-attr]
    return found


def _parts(condition: Expression | None) -> list[Expression]:
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in _parts(argument)]
    return [] if condition is None else [condition]
