"""SQL of any engine: a dialect, and relations of a plan as nested SELECTs in which the unit's id travels along.

Everything that reaches an engine is generated here and in sql.py from the plan. Names are quoted, literals are written
by kind, and no text of an analyst is ever copied outside of a quoted literal.

Every level refers to the one below through an alias, and every column by an alias and a quoted name, so no name of a
plan can be mistaken for another. A level is left out where it would only rename columns, and columns that nothing
above reads aren't listed: engines plan each level and column anew for every question. Nothing is rendered that would
mix rows of different units: such a plan is refused here too, although the front door never makes one.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal as OneOf, TypeAlias

from dither.errors import InvalidParameter
from dither.query.kinds import Call, Column, Expression, Kind, Literal, Value, columns as columns_of
from dither.query.plan.plan import (
    Distinct,
    FilterRows,
    Gridded,
    Inner,
    InnerAggregate,
    JoinKind,
    JoinRows,
    PerUnit,
    PlanField,
    Project,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
)

INT64_LOW, INT64_HIGH = -(2**63), 2**63 - 1

Template: TypeAlias = Callable[[Call, Sequence[str]], str]
"""Makes the SQL of a call from the call itself (for kinds and literal arguments) and its arguments' SQL.

A template writes each argument once, so that nested calls stay linear in length, and its result can't raise.
"""


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    if "\0" in name:
        raise InvalidParameter("a name of a table or column must not contain a NUL character")
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text in single quotes."""
    if "\0" in text:
        raise InvalidParameter("a text in a question must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameter("a text in a question must be valid Unicode") from None
    return "'" + text.replace("'", "''") + "'"


def text_of(value: Value, kind: Kind) -> str:
    """A value that isn't NULL as the text that engines read back as exactly that value."""
    match kind, value:
        case Kind.BOOLEAN, bool():
            return "true" if value else "false"
        case Kind.INTEGER, int() if not isinstance(value, bool) and INT64_LOW <= value <= INT64_HIGH:
            return str(value)
        case Kind.DOUBLE, int() | float() | Fraction() if not isinstance(value, bool):
            number = float(value)
            return repr(number) if math.isfinite(number) else str(number)
        case Kind.TEXT, str():
            return value
        case Kind.TIMESTAMP, dt.datetime() if value.tzinfo is None:
            return value.isoformat(sep=" ")
        case Kind.TIMESTAMP, dt.date() if not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day).isoformat(sep=" ")  # noqa: DTZ001
        case Kind.DATE, dt.date() if not isinstance(value, dt.datetime):
            return value.isoformat()
    raise InvalidParameter(f"a literal of kind {kind.value} can't be a {type(value).__name__} or is out of range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one engine writes what all of them share.

    ``grid`` makes an integer expression from the SQL of a number, its kind and the grid. ``rank`` makes a hash of good
    quality from a salt and columns. ``wide`` is an integer type in which no sum overflows, and ``whole`` casts such an
    integer to 64 bits, with NULL where it doesn't fit.
    """

    name: str
    types: Mapping[Kind, str]
    functions: Mapping[str, Template]
    grid: Callable[[str, Kind, Gridded], str]
    rank: Callable[[int, Sequence[str]], str]
    whole: Callable[[str], str]
    wide: str

    def literal(self, value: Value, kind: Kind) -> str:
        """A typed constant."""
        if value is None:
            return f"CAST(NULL AS {self.types[kind]})"
        text = text_literal(text_of(value, kind))
        return text if kind is Kind.TEXT else f"CAST({text} AS {self.types[kind]})"

    def expression(self, expression: Expression, scope: Mapping[str, str]) -> str:
        """The SQL of an expression; ``scope`` has the qualified name of each column."""
        if isinstance(expression, Column):
            if expression.name not in scope:
                raise InvalidParameter(f"the relation has no column {expression.name}")
            return scope[expression.name]
        if isinstance(expression, Literal):
            return self.literal(expression.value, expression.kind)
        template = self.functions.get(expression.function)
        if template is None:
            raise InvalidParameter(f"{self.name} has no function {expression.function}")
        return template(expression, [self.expression(argument, scope) for argument in expression.arguments])

    def widen(self, sql: str, kind: Kind, to: Kind) -> str:
        """The same value in a kind that holds it: integers as doubles, dates as timestamps."""
        if kind is to:
            return sql
        if (kind, to) in ((Kind.INTEGER, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP)):
            return f"CAST({sql} AS {self.types[to]})"
        raise InvalidParameter(f"a {kind.value} can't be used where a {to.value} is needed")

    def plain(self, sql: str, kind: Kind) -> str:
        """A double in the one form that equal values share: −0 is 0, and there is one NaN; ``sql`` is a plain name.

        Engines group equal doubles but return the form of whichever row came first.
        """
        if kind is not Kind.DOUBLE:
            return sql
        nan = self.literal(math.nan, kind)
        return f"CASE WHEN isnan({sql}) THEN {nan} ELSE {sql} + {self.literal(0.0, kind)} END"


def common_kind(expressions: Sequence[Expression]) -> Kind:
    """The kind in which expressions are compared: doubles where integers are mixed in, timestamps for dates."""
    kinds = {expression.kind for expression in expressions}
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {Kind.INTEGER, Kind.DOUBLE}:
        return Kind.DOUBLE
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        return Kind.TIMESTAMP
    raise InvalidParameter(f"values of kinds {', '.join(sorted(kind.value for kind in kinds))} can't be mixed")


def literal_argument(call: Call, place: int, kind: Kind) -> Value:
    """The constant at a place where only a constant is allowed; None is NULL."""
    argument = call.arguments[place]
    if not isinstance(argument, Literal) or (argument.kind is not kind and argument.value is not None):
        raise InvalidParameter(f"argument {place + 1} of {call.function} must be a {kind.value} literal")
    return argument.value


# ---------------------------------------------------------------------------------------------- relations


UNIT = "u"
_TIED = ("row_number", "lag", "lead", "first_value")
# a column of a relation, and nothing that is computed
_PLAIN = re.compile(r'[lr]\.(?:"(?:[^"]|"")*"|[a-z0-9_]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table as an engine has it: what to select from, and each column in its kind, read from the alias ``r``.

    ``unit`` is the id of the unit (NULL where it is missing) and ``unit_type`` its type in the engine. ``rows`` says
    about how many rows there are, where the catalogue does; it decides how a result is fetched, and nothing else.
    """

    relation: str
    private: bool
    columns: Mapping[str, str]
    unit_column: str | None = None
    unit: str | None = None
    unit_type: str | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A SELECT to which more can be added: rows of ``relation`` that pass all of ``where``, and columns by name.

    ``relation`` is what follows FROM, with the alias ``r`` (``l`` and ``r`` for a join). ``columns`` has the SQL of
    each column over it by its name in SQL; the unit's id is the column ``u``.
    """

    relation: str
    columns: Mapping[str, str]
    where: tuple[str, ...] = ()

    @property
    def rows(self) -> str:
        """The rows, without the columns: what follows the list of a SELECT."""
        return f"FROM {self.relation}{' WHERE ' + ' AND '.join(self.where) if self.where else ''}"

    @property
    def listed(self) -> str:
        """The list of a SELECT. A relation may have no columns at all: COUNT(*) needs none."""
        return ", ".join(f"{sql} AS {name}" for name, sql in self.columns.items()) or "1 AS _one"

    @property
    def sql(self) -> str:
        """The whole SELECT."""
        return f"SELECT {self.listed} {self.rows}"

    def nested(self) -> Select:
        """The same rows and columns from a level further up, where each column is a plain name."""
        return closed(self.sql, self.columns)

    def named(self) -> Select:
        """The same where every column is a plain name, which can be written several times at no cost."""
        return self if all(_PLAIN.fullmatch(sql) for sql in self.columns.values()) else self.nested()


def closed(sql: str, names: Iterable[str]) -> Select:
    """All columns of a query to which no condition can be added, such as one that groups."""
    return Select(relation=f"({sql}) AS r", columns={name: f"r.{name}" for name in names})


@dataclass(frozen=True, slots=True)
class Rendered:
    """A relation; ``unit_type`` is None where rows carry no unit's id."""

    select: Select
    private: bool
    unit_type: str | None

    @property
    def unit(self) -> dict[str, str]:
        """The column of the unit's id, where there is one."""
        return {UNIT: self.select.columns[UNIT]} if self.unit_type else {}

    def named(self) -> Rendered:
        """The same where every column is a plain name."""
        return replace(self, select=self.select.named())

    def scope(self, fields: Iterable[PlanField]) -> dict[str, str]:
        """The SQL of those of the fields that were asked for."""
        columns = self.select.columns
        pairs = ((field.name, columns.get(quoted(field.name))) for field in fields)
        return {name: sql for name, sql in pairs if sql is not None}


@dataclass(frozen=True, slots=True)
class Relations:
    """Makes SQL of relations over the sources of one engine."""

    dialect: Dialect
    sources: Mapping[str, TableSource]
    units: OneOf["row", "column"]

    def render(self, relation: Relation, used: frozenset[str]) -> Rendered:
        """The SELECT of a relation: the unit's id, if any, then those of its fields that are used, by name."""
        for field in relation.fields:
            column(field.name)  # refused also where nothing reads it
        match relation:
            case Scan():
                return self._scan(relation, used)
            case FilterRows():
                inner = self.render(relation.input, used | names_in([relation.predicate])).named()
                predicate = self.dialect.expression(relation.predicate, inner.scope(relation.input.fields))
                columns = inner.unit | _kept(inner, relation.fields, used)
                select = replace(inner.select, columns=columns, where=(*inner.select.where, f"({predicate})"))
                return replace(inner, select=select)
            case Project():
                return self._project(relation, used)
            case JoinRows():
                return self._join(relation, used)
            case Union():
                return self._union(relation, used)
            case Distinct():
                # which rows are equal depends on every column
                inner = self._of_units(relation.input, _all(relation.input))
                sql = f"SELECT DISTINCT {inner.select.listed} {inner.select.rows}"
                return replace(inner, select=closed(sql, inner.select.columns))
            case PerUnit():
                return self._per_unit(relation, used)
            case Window():
                return self._window(relation)

    def _of_units(self, relation: Relation, used: frozenset[str]) -> Rendered:
        """A relation whose rows may be combined within a unit."""
        inner = self.render(relation, used)
        if inner.private and inner.unit_type is None:
            raise InvalidParameter("where every row is a unit of its own, rows can't be combined before aggregation")
        return inner

    def _scan(self, scan: Scan, used: frozenset[str]) -> Rendered:
        source = self.sources.get(scan.table)
        if source is None or source.private != scan.private:
            raise InvalidParameter(f"table {scan.table} is not a {'private' if scan.private else 'public'} table here")
        relation = f"{source.relation} AS r"
        columns = {column(name): source.columns[original] for name, original in scan.columns if name in used}
        if not scan.private or self.units == "row":
            return Rendered(Select(relation=relation, columns=columns), scan.private, None)
        if scan.unit_column is None or scan.unit_column != source.unit_column or source.unit is None:
            raise InvalidParameter(f"table {scan.table} has no unit column {scan.unit_column}")
        # rows with a NULL unit id belong to no unit, so no bound would hold for them
        known = (f"{source.unit} IS NOT NULL",)
        select = Select(relation=relation, columns={UNIT: source.unit} | columns, where=known)
        return Rendered(select, scan.private, source.unit_type)

    def _project(self, node: Project, used: frozenset[str]) -> Rendered:
        pairs = [(e, field) for e, field in zip(node.expressions, node.fields, strict=True) if field.name in used]
        inner = self.render(node.input, names_in(e for e, _ in pairs)).named()
        scope = inner.scope(node.input.fields)
        columns = inner.unit | {
            column(field.name): self.dialect.widen(self.dialect.expression(e, scope), e.kind, field.kind)
            for e, field in pairs
        }
        return replace(inner, select=replace(inner.select, columns=columns))

    def _join(self, join: JoinRows, used: frozenset[str]) -> Rendered:
        needed = used if join.condition is None else used | names_in([join.condition])
        left, right = self.render(join.left, needed), self.render(join.right, needed)
        if join.on_unit and not (left.unit_type and right.unit_type):
            raise InvalidParameter("private relations are joined within a unit, and here rows carry none")
        if not join.on_unit and right.private:
            raise InvalidParameter("the right side of a join must be public, or joined on the unit")
        names = scope(join.left.fields, "l") | scope(join.right.fields, "r")
        if len(names) < len(join.left.fields) + len(join.right.fields):
            raise InvalidParameter("both sides of a join must have different names")
        conditions = [self.dialect.expression(join.condition, names)] if join.condition is not None else []
        if join.on_unit:
            same = left.unit_type == right.unit_type
            texts = [f"{side}.{UNIT}" if same else f"CAST({side}.{UNIT} AS {self._text})" for side in "lr"]
            conditions.insert(0, f"{texts[0]} = {texts[1]}")
        on = " AND ".join(conditions) or "TRUE"
        columns = {UNIT: f"l.{UNIT}"} if left.unit_type else {}
        columns |= {column(field.name): names[field.name] for field in join.fields if field.name in used}
        relation = f"({left.select.sql}) AS l"
        if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
            word = "EXISTS" if join.kind is JoinKind.SEMI else "NOT EXISTS"
            found = f"{word} (SELECT 1 FROM ({right.select.sql}) AS r WHERE {on})"
            # closed, so that no condition stands beside a subquery
            select = Select(relation=relation, columns=columns, where=(found,)).nested()
        else:
            word = "JOIN" if join.kind is JoinKind.INNER else "LEFT JOIN"
            select = Select(relation=f"{relation} {word} ({right.select.sql}) AS r ON {on}", columns=columns)
        return Rendered(select, left.private, left.unit_type)

    @property
    def _text(self) -> str:
        return self.dialect.types[Kind.TEXT]

    def _union(self, union: Union, used: frozenset[str]) -> Rendered:
        if any(len(given.fields) != len(union.fields) for given in union.inputs):
            raise InvalidParameter("all relations of a union must have as many columns")
        places = [place for place, field in enumerate(union.fields) if field.name in used]
        inputs = [
            self.render(given, frozenset(given.fields[place].name for place in places)).named()
            for given in union.inputs
        ]
        if len({rendered.private for rendered in inputs}) != 1:
            raise InvalidParameter("private and public relations can't be put in one union")
        types = {rendered.unit_type for rendered in inputs}
        unit_type = types.pop() if len(types) == 1 else self._text
        parts = []
        for rendered, given in zip(inputs, union.inputs, strict=True):
            columns = {name: f"CAST({sql} AS {unit_type})" for name, sql in rendered.unit.items()}
            scope = rendered.scope(given.fields)
            for place in places:
                field, own = union.fields[place], given.fields[place]
                columns[column(field.name)] = self.dialect.widen(scope[own.name], own.kind, field.kind)
            parts.append(replace(rendered.select, columns=columns))
        select = closed(" UNION ALL ".join(part.sql for part in parts), parts[0].columns)
        return Rendered(select, inputs[0].private, unit_type if inputs[0].unit_type else None)

    def _per_unit(self, node: PerUnit, used: frozenset[str]) -> Rendered:
        fields = node.fields[len(node.keys) :]
        wanted = [
            (i, aggregate, field)
            for i, (aggregate, field) in enumerate(zip(node.aggregates, fields, strict=True))
            if field.name in used
        ]
        arguments = {f"_x{i}": a.argument for i, a, _ in wanted if a.argument is not None}
        inner = self._of_units(node.input, names_in([*node.keys, *arguments.values()])).named()
        scope = inner.scope(node.input.fields)
        made = {f"_p{i}": key for i, key in enumerate(node.keys)} | arguments
        values = {name: self.dialect.expression(expression, scope) for name, expression in made.items()}
        rows = replace(inner.select, columns=inner.unit | values).named()
        groups = [rows.columns[name] for name in (*inner.unit, *(f"_p{i}" for i in range(len(node.keys))))]
        columns = {name: rows.columns[name] for name in inner.unit}
        for i, field in enumerate(node.fields[: len(node.keys)]):
            columns[column(field.name)] = rows.columns[f"_p{i}"]
        for i, aggregate, field in wanted:
            columns[column(field.name)] = self.aggregate(aggregate, rows.columns.get(f"_x{i}", ""), field.kind)
        by = f" GROUP BY {', '.join(groups)}" if groups else " HAVING count(*) > 0"
        return replace(inner, select=closed(f"{replace(rows, columns=columns).sql}{by}", columns))

    def aggregate(self, aggregate: InnerAggregate, sql: str, kind: Kind, over: str = "") -> str:
        """An aggregate over rows of one unit: exact, so independent of their order.

        Sums and means are missing where the exact sum of grid values needs more than 64 bits.
        """
        given, gridded = aggregate.argument, aggregate.grid
        if given is None:
            if aggregate.function is not Inner.COUNT:
                raise InvalidParameter(f"{aggregate.function.value} needs an argument")
            return f"count(*){over}"
        match aggregate.function:
            case Inner.COUNT:
                return f"count({sql}){over}"
            case Inner.COUNT_DISTINCT:
                return f"count(DISTINCT {self.dialect.plain(sql, given.kind)}){over}"
            case Inner.MIN | Inner.MAX:
                return f"{aggregate.function.value}({sql}){over}"
        if gridded is None and given.kind is not Kind.INTEGER:
            raise InvalidParameter(
                "sums and means of doubles need a grid: without one they depend on the order of rows"
            )
        if gridded is not None and gridded.offset:
            raise InvalidParameter("the grid of a sum within a unit has no offset")
        value = sql if gridded is None else self.dialect.grid(sql, given.kind, gridded)
        step = Fraction(1) if gridded is None else gridded.step
        exact = f"sum({value}){over}"
        if kind is Kind.INTEGER and aggregate.function is Inner.SUM:
            if step.denominator != 1:
                raise InvalidParameter("the grid of an integer sum needs a whole step")
            if step == 1:
                return self.dialect.whole(exact)
            # 64 bits times at most 2^64 can't overflow 128; a whole number times 2^64 or more fits 64 bits only if 0
            factor = min(step.numerator, 2**64)
            return self.dialect.whole(f"CAST({self.dialect.whole(exact)} AS {self.dialect.wide}) * {factor}")
        total = f"CAST({self.dialect.whole(exact)} AS {self.dialect.types[Kind.DOUBLE]})"
        if step.numerator != 1:
            total = f"{total} * {self.dialect.literal(step.numerator, Kind.DOUBLE)}"
        if step.denominator != 1:
            total = f"{total} / {self.dialect.literal(step.denominator, Kind.DOUBLE)}"
        if aggregate.function is Inner.SUM:
            return f"({total})"
        # a sum over no rows is NULL already, so the count is never zero where it is used
        return f"(({total}) / CAST(NULLIF(count({value}){over}, 0) AS {self.dialect.types[Kind.DOUBLE]}))"

    def _window(self, node: Window) -> Rendered:
        # ties are broken by every column
        inner = self._of_units(node.input, _all(node.input)).named()
        scope = inner.scope(node.input.fields)
        kept = [column(field.name) for field in node.input.fields]
        values = inner.unit | {name: inner.select.columns[name] for name in kept}
        made = {}
        for i, (item, field) in enumerate(zip(node.items, node.fields[len(kept) :], strict=True)):
            argument = item.aggregate.argument if item.aggregate is not None else item.argument
            parts = [(f"_x{i}", argument)] if argument is not None else []
            parts += [(f"_p{i}_{j}", expression) for j, expression in enumerate(item.partition)]
            parts += [(f"_o{i}_{j}", ordering.expression) for j, ordering in enumerate(item.order)]
            values |= {name: self.dialect.expression(expression, scope) for name, expression in parts}
            over = self._over(item, i, [f"r.{UNIT}"] if inner.unit_type else [], node.input.fields)
            made[column(field.name)] = self._windowed(item, i, field.kind, over)
        rows = replace(inner.select, columns=values).nested()
        columns = {name: rows.columns[name] for name in (*inner.unit, *kept)} | made
        return replace(inner, select=closed(replace(rows, columns=columns).sql, columns))

    def _over(self, item: Windowed, i: int, unit: list[str], fields: Sequence[PlanField]) -> str:
        partition = [*unit, *(f"r._p{i}_{j}" for j in range(len(item.partition)))]
        order = [
            f"r._o{i}_{j} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
            for j, o in enumerate(item.order)
        ]
        if item.function in _TIED:
            order += [f"r.{quoted(field.name)} ASC NULLS LAST" for field in fields]
        by = f"PARTITION BY {', '.join(partition)}" if partition else ""
        return f" OVER ({by}{' ORDER BY ' + ', '.join(order) if order else ''})"

    def _windowed(self, item: Windowed, i: int, kind: Kind, over: str) -> str:
        match item.function:
            case "row_number" | "rank" | "dense_rank":
                return f"{item.function}(){over}"
            case "lag" | "lead":
                return f"{item.function}(r._x{i}, {item.offset:d}){over}"
            case "first_value":
                return f"first_value(r._x{i}){over}"
            case "aggregate":
                if item.aggregate is None:
                    raise InvalidParameter("an aggregate over a window has to be stated")
                return self.aggregate(item.aggregate, f"r._x{i}", kind, over)


def column(name: str) -> str:
    """The quoted name of a field, which can't be the unit's nor one that is made up here."""
    if name.lower() == UNIT or name.startswith("_"):
        raise InvalidParameter(f"a column of a plan can't be called {name}")
    return quoted(name)


def scope(fields: Sequence[PlanField], alias: str = "r") -> dict[str, str]:
    """The qualified names of fields."""
    return {field.name: f"{alias}.{quoted(field.name)}" for field in fields}


def names_in(expressions: Iterable[Expression]) -> frozenset[str]:
    """The columns that expressions read."""
    return frozenset(name for expression in expressions for name in columns_of(expression))


def _all(relation: Relation) -> frozenset[str]:
    return frozenset(field.name for field in relation.fields)


def _kept(inner: Rendered, fields: Sequence[PlanField], used: frozenset[str]) -> dict[str, str]:
    names = (column(field.name) for field in fields if field.name in used)
    return {name: inner.select.columns[name] for name in names}
