"""The normal form of a private aggregation: part of the key under which the ledger finds an answer again.

Spelling vanishes (aliases, layout, letter case, the order of conditions, projections in between); meaning doesn't.
Columns are written as what they are computed from, down to the columns of tables; every name and literal is preceded
by its length, and every operator is in parentheses, so two different meanings can't share a text. The form is
permanent: a change of it forgets stored answers, so it starts with a version. A stored answer is a table of keys and
aggregates, so two texts with the same form must find their columns at the same places of it: ``arranged``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dither.errors import Refused
from dither.query.kinds import Call, Column, Expression, Facts, Kind, Literal, Value, canonical, columns, substitute
from dither.query.plan.plan import (
    Aggregate,
    Aggregation,
    Argument,
    BoundQuestion,
    Distinct,
    FilterRows,
    Gridded,
    InnerAggregate,
    JoinKind,
    JoinRows,
    Key,
    Ordering,
    PerUnit,
    Project,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
)
from dither.query.refusals import spend

# How many parts one expression, and all that are written out, may have.
LONGEST_EXPRESSION, LONGEST_QUESTION = 100_000, 300_000
_SYMMETRIC = {"equal", "not_equal", "distinct_from", "add", "multiply"}
_SETS = {"greatest", "least"}
_MIRRORED = {"greater": "less", "greater_equal": "less_equal"}
_COMPARED = {"equal", "not_equal", "less", "less_equal", "distinct_from", "in"}
_OPPOSITE = {"equal": "not_equal", "not_equal": "equal", "is_null": "is_not_null", "is_not_null": "is_null"}
# Every kind has a total order on every engine: NaN is the largest double and equals itself.
_NEGATED = {"less": "less_equal", "less_equal": "less"}
# Up to here every whole number is a double of its own.
_EXACT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """The text of an aggregation, and the order of keys and aggregates in which it lists them: positions in it."""

    text: str
    keys: tuple[int, ...]
    aggregates: tuple[int, ...]

    @classmethod
    def of(cls, aggregation: Aggregation) -> Canonical:
        """Both at once: it takes a while to write everything out."""
        form, keys, aggregates = _forms(aggregation)
        return cls(
            text=_written(aggregation, form, keys, aggregates),
            keys=tuple(sorted(range(len(keys)), key=lambda i: keys[i])),
            aggregates=tuple(sorted(range(len(aggregates)), key=lambda i: aggregates[i])),
        )


def canonical_aggregation(aggregation: Aggregation) -> str:
    """The text of an aggregation: two that share it ask the same of the same rows, under the same contribution."""
    return Canonical.of(aggregation).text


def _written(aggregation: Aggregation, form: str, keys: list[str], aggregates: list[str]) -> str:
    scaled = " scaled" if aggregation.scaled else ""
    contribution = f"(contribution {aggregation.units} {aggregation.groups} {aggregation.rows}{scaled})"
    tables = " ".join(sorted(_name(table) for table in aggregation.tables))
    chosen = "discover" if aggregation.discover else "public"
    return (
        f"(aggregation-1 {form} (keys {chosen} {' '.join(sorted(keys))}) (aggregates {' '.join(sorted(aggregates))}) "
        f"{contribution} (tables {tables}))"
    )


def normal(expression: Expression) -> Expression:
    """The expression with operands in a fixed order and equal spellings made one; the value is always the same."""
    return _Forms().of(expression)


class _Forms:
    """Normal forms and their texts, each made once.

    Columns that are computed from columns share what they are computed from: written out, an expression may be a
    million times as large as in memory.
    """

    def __init__(self) -> None:
        # by identity, with the expression beside each so that no identity is given out again
        self._made: dict[int, tuple[Expression, Expression]] = {}
        self._texts: dict[int, tuple[Expression, str]] = {}
        self._sizes: dict[int, tuple[Expression, int]] = {}
        self._shown = 0

    def shown(self, expression: Expression) -> str:
        """The text of the normal form; Refused where all texts together would be beyond reason."""
        self._shown += self.size(expression)
        if self._shown > LONGEST_QUESTION:
            raise _too_long()
        return self._text(self.of(expression))

    def size(self, expression: Expression) -> int:
        """How many parts the expression has when it is written out."""
        known = self._sizes.get(id(expression))
        if known is not None:
            return known[1]
        size = 1
        if isinstance(expression, Call):
            size += sum(self.size(argument) for argument in expression.arguments)
        self._sizes[id(expression)] = (expression, size)
        return size

    def of(self, expression: Expression) -> Expression:
        """The normal form."""
        if not isinstance(expression, Call):
            return expression
        known = self._made.get(id(expression))
        if known is None:
            known = self._made[id(expression)] = (expression, self._normal(expression))
        return known[1]

    def _normal(self, expression: Call) -> Expression:
        if expression.function in ("and", "or"):
            return self._logic(expression)
        name, arguments = expression.function, [self.of(argument) for argument in expression.arguments]
        if name in _MIRRORED:
            name, arguments = _MIRRORED[name], arguments[::-1]
        if name in _COMPARED and any(a.kind is Kind.DOUBLE and not _constant(a) for a in arguments):
            arguments = [_whole(argument) for argument in arguments]
        if name == "in":
            values = self._ordered(arguments[1:])
            if len(values) > 1:
                return Call(name, (arguments[0], *values), expression.kind)
            name, arguments = "equal", [arguments[0], values[0]]
        if name == "not" and isinstance(arguments[0], Call):
            inner = arguments[0]
            if inner.function == "not":
                return inner.arguments[0]
            if inner.function in _OPPOSITE:
                return Call(_OPPOSITE[inner.function], inner.arguments, expression.kind)
            if inner.function in _NEGATED:
                return Call(_NEGATED[inner.function], inner.arguments[::-1], expression.kind)
        if name in _SETS:
            arguments = self._ordered(arguments)
        elif name in _SYMMETRIC:
            arguments = sorted(arguments, key=self._sort_key)
        return Call(name, tuple(arguments), expression.kind)

    def _logic(self, expression: Call) -> Expression:
        """AND and OR are associative, commutative and idempotent in three-valued logic: all operands, ordered once."""
        name, seen = expression.function, set[int]()
        found: list[Expression] = []
        waiting: list[Expression] = [expression]
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, Call) and part.function == name:
                waiting += part.arguments
            else:
                found += _operands(self.of(part), name)
        operands = self._ordered(found)
        return operands[0] if len(operands) == 1 else Call(name, tuple(operands), expression.kind)

    def _ordered(self, expressions: Iterable[Expression]) -> list[Expression]:
        """Each once: equal texts of one kind are equal expressions."""
        different = {self._sort_key(expression): expression for expression in expressions}
        return [different[key] for key in sorted(different)]

    def _sort_key(self, expression: Expression) -> tuple[str, str]:
        return self._text(expression), expression.kind.value

    def _text(self, expression: Expression) -> str:
        if not isinstance(expression, Call):
            return canonical(expression)
        known = self._texts.get(id(expression))
        if known is None:
            known = self._texts[id(expression)] = (expression, canonical(expression, self._text))
        return known[1]


def _too_long() -> Refused:
    return Refused(
        "the expressions of this question become too long when they are written out",
        code="too_long",
        hint="Use each computed column less often.",
    )


def _constant(expression: Expression) -> bool:
    return isinstance(expression, Literal) or (
        isinstance(expression, Call) and expression.function == "to_double" and _constant(expression.arguments[0])
    )


def _whole(expression: Expression) -> Expression:
    """A whole number as an integer: compared with doubles, 20, 20.0 and CAST(20 AS DOUBLE) are one number."""
    if isinstance(expression, Call) and expression.function == "to_double" and _constant(expression):
        inner = expression.arguments[0]
        exact = isinstance(inner, Literal) and type(inner.value) is int and abs(inner.value) <= _EXACT
        return inner if exact else expression
    if isinstance(expression, Literal) and isinstance(expression.value, float):
        value = expression.value
        return Literal(int(value), Kind.INTEGER) if abs(value) <= _EXACT and value.is_integer() else expression
    return expression


def _operands(expression: Expression, name: str) -> tuple[Expression, ...]:
    return expression.arguments if isinstance(expression, Call) and expression.function == name else (expression,)


def _name(text: str) -> str:
    return f"{len(text)}'{text}'"


@dataclass(slots=True)
class _NormalRelation:
    """A relation's normal form: its source, the conditions on its rows, and what its columns are computed from."""

    source: str
    conditions: frozenset[str]
    columns: dict[str, Expression]

    @property
    def text(self) -> str:
        if not self.conditions:
            return self.source
        return f"(filter {self.source} {' '.join(sorted(self.conditions))})"


class _Normaliser:
    """Numbers the parts of a plan in the order in which they are met, so that the plan's own names don't matter."""

    def __init__(self) -> None:
        self._parts = 0
        self._forms = _Forms()

    def rows(self, relation: Relation) -> _NormalRelation:
        if isinstance(relation, Scan):
            return self._scan(relation)
        if isinstance(relation, FilterRows):
            inner = self.rows(relation.input)
            return _NormalRelation(
                inner.source, inner.conditions | self._conditions(relation.predicate, inner), inner.columns
            )
        if isinstance(relation, Project):
            inner = self.rows(relation.input)
            outputs = zip(relation.fields, relation.expressions, strict=True)
            columns = {field.name: self._bounded(_resolved(expression, inner)) for field, expression in outputs}
            return _NormalRelation(inner.source, inner.conditions, columns)
        if isinstance(relation, JoinRows):
            return self._join(relation)
        if isinstance(relation, Union):
            return self._union(relation)
        if isinstance(relation, Distinct):
            inner = self.rows(relation.input)
            listed = " ".join(sorted({self._shown(column) for column in inner.columns.values()}))
            return _NormalRelation(f"(distinct {inner.text} ({listed}))", frozenset(), inner.columns)
        if isinstance(relation, PerUnit):
            return self._per_unit(relation)
        return self._window(relation)

    def _bounded(self, expression: Expression) -> Expression:
        """The expression, unless its text would grow beyond reason: each level of subqueries may double it."""
        if self._forms.size(expression) > LONGEST_EXPRESSION:
            raise _too_long()
        return expression

    def shown(self, expression: Expression, rows: _NormalRelation) -> str:
        """The text of an expression over these rows."""
        return self._shown(self._bounded(_resolved(expression, rows)))

    def _shown(self, expression: Expression) -> str:
        return self._forms.shown(expression)

    def _part(self, letter: str) -> str:
        self._parts += 1
        return f"{letter}{self._parts - 1}"

    def _scan(self, relation: Scan) -> _NormalRelation:
        part = self._part("t")
        kinds = {field.name: field.kind for field in relation.fields}
        columns: dict[str, Expression] = {
            name: Column(f"{part}.{_name(column)}", kinds[name]) for name, column in relation.columns
        }
        unit = (
            "public" if not relation.private else "row" if relation.unit_column is None else _name(relation.unit_column)
        )
        return _NormalRelation(f"(scan {part} {_name(relation.table)} {unit})", frozenset(), columns)

    def _conditions(self, predicate: Expression, rows: _NormalRelation) -> frozenset[str]:
        whole = self._forms.of(self._bounded(_resolved(predicate, rows)))
        return frozenset(self._shown(part) for part in _operands(whole, "and"))

    def _join(self, relation: JoinRows) -> _NormalRelation:
        left, right = self.rows(relation.left), self.rows(relation.right)
        both = _NormalRelation("", frozenset(), left.columns | right.columns)
        on = "" if relation.condition is None else " ".join(sorted(self._conditions(relation.condition, both)))
        kind = f"{relation.kind.value}-{'unit' if relation.on_unit else 'public'}"
        source = f"(join {kind} {left.text} {right.text} ({on}))"
        columns = dict(left.columns)
        if relation.kind is JoinKind.LEFT:
            # where nothing matches these are NULL, whatever they were computed from
            part = self._part("j")
            columns |= {name: Column(f"({part} {self._shown(c)})", c.kind) for name, c in right.columns.items()}
        elif relation.kind is JoinKind.INNER:
            columns |= right.columns
        return _NormalRelation(source, frozenset(), columns)

    def _union(self, relation: Union) -> _NormalRelation:
        parts = []
        for each in relation.inputs:
            rows = self.rows(each)
            listed = " ".join(self._shown(rows.columns[field.name]) for field in each.fields)
            parts.append(f"({rows.text} ({listed}))")
        part = self._part("u")
        columns: dict[str, Expression] = {
            field.name: Column(f"{part}.{index}", field.kind) for index, field in enumerate(relation.fields)
        }
        return _NormalRelation(f"(union {part} {' '.join(parts)})", frozenset(), columns)

    def _per_unit(self, relation: PerUnit) -> _NormalRelation:
        inner = self.rows(relation.input)
        part = self._part("p")
        keys = [_resolved(key, inner) for key in relation.keys]
        units = [field.unit for field in relation.fields[: len(keys)]]
        listed = " ".join(sorted({self._shown(key) for key, unit in zip(keys, units, strict=True) if not unit}))
        columns: dict[str, Expression] = {field.name: key for field, key in zip(relation.fields, keys, strict=False)}
        for field, aggregate in zip(relation.fields[len(keys) :], relation.aggregates, strict=True):
            columns[field.name] = Column(f"({part} {self._inner(aggregate, inner)})", field.kind)
        return _NormalRelation(f"(per-unit {part} {inner.text} ({listed}))", frozenset(), columns)

    def _window(self, relation: Window) -> _NormalRelation:
        inner = self.rows(relation.input)
        part = self._part("w")
        # rows that the order leaves tied are ordered by all columns of the input, one after the other
        ties = " ".join(self._shown(inner.columns[field.name]) for field in relation.input.fields)
        columns = dict(inner.columns)
        for field, item in zip(relation.fields[len(relation.input.fields) :], relation.items, strict=True):
            columns[field.name] = Column(f"({part} {self._windowed(item, inner)})", field.kind)
        return _NormalRelation(f"(window {part} {inner.text} ({ties}))", frozenset(), columns)

    # ------------------------------------------------------------------ what is computed from rows

    def _inner(self, aggregate: InnerAggregate, rows: _NormalRelation) -> str:
        argument = "*" if aggregate.argument is None else self.shown(aggregate.argument, rows)
        return f"{aggregate.function.value} {argument} {_grid(aggregate.grid)}"

    def _windowed(self, item: Windowed, rows: _NormalRelation) -> str:
        argument = "-" if item.argument is None else self.shown(item.argument, rows)
        aggregate = "-" if item.aggregate is None else f"({self._inner(item.aggregate, rows)})"
        partition = " ".join(sorted({self.shown(part, rows) for part in item.partition}))
        order = " ".join(self._ordering(each, rows) for each in item.order)
        return f"{item.function} {argument} {aggregate} {item.offset} ({partition}) ({order})"

    def _ordering(self, each: Ordering, rows: _NormalRelation) -> str:
        ends = f"{'down' if each.descending else 'up'}-{'first' if each.nulls_first else 'last'}"
        return f"({ends} {self.shown(each.expression, rows)})"

    def key(self, key: Key, rows: _NormalRelation) -> str:
        """The text of a group key."""
        values = "-" if key.values is None else _listed(key.values, key.kind)
        return f"({self.shown(key.expression, rows)} ({values}))"

    def aggregate(self, aggregate: Aggregate, rows: _NormalRelation) -> str:
        """The text of an aggregate."""
        arguments = " ".join(self._argument(argument, rows) for argument in aggregate.arguments)
        per_group = "-" if aggregate.per_group is None else f"{aggregate.per_group[0]}:{aggregate.per_group[1]}"
        quantile = "-" if aggregate.quantile is None else str(aggregate.quantile)
        return f"({aggregate.function.value} ({arguments}) {per_group} {quantile} {aggregate.weight})"

    def _argument(self, argument: Argument, rows: _NormalRelation) -> str:
        kind = argument.expression.kind
        return f"({self.shown(argument.expression, rows)} {_facts(argument.facts, kind)})"


def _resolved(expression: Expression, rows: _NormalRelation) -> Expression:
    """The expression over what the columns are computed from."""
    if isinstance(expression, Column):
        return rows.columns[expression.name]
    if isinstance(expression, Call):
        arguments = tuple(_resolved(argument, rows) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.kind)
    return expression


def _grid(grid: Gridded | None) -> str:
    return "-" if grid is None else f"(grid {grid.step} {grid.low} {grid.high} {grid.offset})"


def _forms(aggregation: Aggregation) -> tuple[str, list[str], list[str]]:
    made = _Normaliser()
    rows = made.rows(aggregation.relation)
    keys = [made.key(key, rows) for key in aggregation.keys]
    aggregates = [made.aggregate(aggregate, rows) for aggregate in aggregation.aggregates]
    return rows.text, keys, aggregates


def _facts(facts: Facts, kind: Kind) -> str:
    bounds = "-" if facts.bounds is None else f"{_exact(facts.bounds.low)}:{_exact(facts.bounds.high)}"
    keys = "-" if facts.keys is None else _listed(facts.keys, kind)
    auto = " ".join(sorted(f"{_name(table)}.{_name(column)}" for table, column in facts.auto))
    return f"(facts {bounds} {facts.step or '-'} ({keys}) ({auto}))"


def _listed(values: Sequence[Value], kind: Kind) -> str:
    spend(len(values))
    return " ".join(canonical(Literal(value, kind)) for value in values)


def _exact(number: Fraction) -> str:
    return str(number)


def arranged(question: BoundQuestion) -> tuple[BoundQuestion, str]:
    """The same question with keys and aggregates in canonical order, and its canonical form, which has no other."""
    aggregation, shape = question.aggregation, question.shape
    form = Canonical.of(aggregation)
    keys, aggregates = form.keys, form.aggregates
    if keys == tuple(range(len(keys))) and aggregates == tuple(range(len(aggregates))):
        return question, form.text
    names = {f"k{old}": f"k{new}" for new, old in enumerate(keys)}
    names |= {f"a{old}": f"a{new}" for new, old in enumerate(aggregates)}

    def renamed(expression: Expression) -> Expression:
        kinds = _kinds(expression)
        replacements: dict[str, Expression] = {}
        for name in columns(expression):
            stem, dot, end = name.partition(".")
            replacements[name] = Column(names[stem] + dot + end, kinds[name])
        return substitute(expression, replacements)

    ordered = replace(
        question,
        aggregation=replace(
            aggregation,
            keys=tuple(aggregation.keys[i] for i in keys),
            aggregates=tuple(aggregation.aggregates[i] for i in aggregates),
        ),
        shape=replace(
            shape,
            outputs=tuple(replace(output, expression=renamed(output.expression)) for output in shape.outputs),
            having=None if shape.having is None else renamed(shape.having),
            order=tuple(replace(each, expression=renamed(each.expression)) for each in shape.order),
        ),
    )
    return ordered, form.text


def _kinds(expression: Expression) -> dict[str, Kind]:
    if isinstance(expression, Column):
        return {expression.name: expression.kind}
    result: dict[str, Kind] = {}
    for argument in getattr(expression, "arguments", ()):
        result |= _kinds(argument)
    return result
