"""Relations of a plan as SQL: nested SELECTs in which the unit's id travels along in a column of its own.

Every level names its columns anew and refers to the level below through an alias, so no name of a plan can be
mistaken for another. Nothing is rendered that would mix rows of different units: such a plan is refused here too,
although the front door never makes one.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal as OneOf

from dither.engines.dialect import Dialect, quoted
from dither.errors import InvalidParameter
from dither.query.kinds import Kind
from dither.query.plan import (
    Distinct,
    Field,
    Filter,
    Inner,
    InnerAggregate,
    Join,
    JoinKind,
    PerUnit,
    Project,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
)

UNIT = "u"
_TIED = ("row_number", "lag", "lead", "first_value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table as an engine has it: what to select from, and each column in its kind, read from the alias ``r``.

    ``unit`` is the id of the unit (NULL where it is missing) and ``unit_type`` its type in the engine.
    """

    relation: str
    private: bool
    columns: Mapping[str, str]
    unit_column: str | None = None
    unit: str | None = None
    unit_type: str | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """A SELECT; ``unit_type`` is None where rows carry no unit's id."""

    sql: str
    private: bool
    unit_type: str | None


@dataclass(frozen=True, slots=True)
class Relations:
    """Makes SQL of relations over the sources of one engine."""

    dialect: Dialect
    sources: Mapping[str, Source]
    units: OneOf["row", "column"]

    def render(self, relation: Relation) -> Rendered:
        """The SELECT of a relation: the unit's id, if any, then its fields by name."""
        match relation:
            case Scan():
                return self._scan(relation)
            case Filter():
                inner = self.render(relation.input)
                predicate = self.dialect.expression(relation.predicate, scope(relation.input.fields))
                columns = [f"r.{quoted(field.name)}" for field in relation.fields]
                return self._select(inner, columns, relation.fields, f" WHERE {predicate}")
            case Project():
                inner, names = self.render(relation.input), scope(relation.input.fields)
                pairs = zip(relation.expressions, relation.fields, strict=True)
                columns = [self.dialect.widen(self.dialect.expression(e, names), e.kind, f.kind) for e, f in pairs]
                return self._select(inner, columns, relation.fields)
            case Join():
                return self._join(relation)
            case Union():
                return self._union(relation)
            case Distinct():
                inner = self._of_units(relation.input)
                columns = [f"r.{quoted(field.name)}" for field in relation.fields]
                rendered = self._select(inner, columns, relation.fields)
                return Rendered(f"SELECT DISTINCT{rendered.sql[6:]}", inner.private, inner.unit_type)
            case PerUnit():
                return self._per_unit(relation)
            case Window():
                return self._window(relation)

    def _of_units(self, relation: Relation) -> Rendered:
        """A relation whose rows may be combined within a unit."""
        inner = self.render(relation)
        if inner.private and inner.unit_type is None:
            raise InvalidParameter("where every row is a unit of its own, rows can't be combined before aggregation")
        return inner

    def _select(self, inner: Rendered, columns: Sequence[str], fields: Sequence[Field], after: str = "") -> Rendered:
        named = [f"{sql} AS {column(field.name)}" for sql, field in zip(columns, fields, strict=True)]
        unit = [f"r.{UNIT}"] if inner.unit_type else []
        # a relation may have no columns at all: COUNT(*) needs none
        listed = ", ".join([*unit, *named]) or "1 AS _one"
        return Rendered(f"SELECT {listed} FROM ({inner.sql}) AS r{after}", inner.private, inner.unit_type)

    def _scan(self, scan: Scan) -> Rendered:
        source = self.sources.get(scan.table)
        if source is None or source.private != scan.private:
            raise InvalidParameter(f"table {scan.table} is not a {'private' if scan.private else 'public'} table here")
        columns = [f"{source.columns[original]} AS {column(name)}" for name, original in scan.columns]
        if not scan.private or self.units == "row":
            listed = ", ".join(columns) or "1 AS _one"
            return Rendered(f"SELECT {listed} FROM {source.relation} AS r", scan.private, None)
        if scan.unit_column is None or scan.unit_column != source.unit_column or source.unit is None:
            raise InvalidParameter(f"table {scan.table} has no unit column {scan.unit_column}")
        listed = ", ".join([f"{source.unit} AS {UNIT}", *columns])
        # rows of nobody belong to no unit, so no bound would hold for them
        sql = f"SELECT {listed} FROM {source.relation} AS r WHERE {source.unit} IS NOT NULL"
        return Rendered(sql, scan.private, source.unit_type)

    def _join(self, join: Join) -> Rendered:
        left, right = self.render(join.left), self.render(join.right)
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
        unit = [f"l.{UNIT}"] if left.unit_type else []
        columns = [*unit, *(f"{names[field.name]} AS {column(field.name)}" for field in join.fields)]
        listed = ", ".join(columns) or "1 AS _one"
        if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
            word = "EXISTS" if join.kind is JoinKind.SEMI else "NOT EXISTS"
            sql = f"SELECT {listed} FROM ({left.sql}) AS l WHERE {word} (SELECT 1 FROM ({right.sql}) AS r WHERE {on})"
        else:
            word = "JOIN" if join.kind is JoinKind.INNER else "LEFT JOIN"
            sql = f"SELECT {listed} FROM ({left.sql}) AS l {word} ({right.sql}) AS r ON {on}"
        return Rendered(sql, left.private, left.unit_type)

    @property
    def _text(self) -> str:
        return self.dialect.types[Kind.TEXT]

    def _union(self, union: Union) -> Rendered:
        inputs = [self.render(relation) for relation in union.inputs]
        if len({rendered.private for rendered in inputs}) != 1:
            raise InvalidParameter("private and public relations can't be put in one union")
        types = {rendered.unit_type for rendered in inputs}
        unit_type = types.pop() if len(types) == 1 else self._text
        parts = []
        for rendered, relation in zip(inputs, union.inputs, strict=True):
            unit = [f"CAST(r.{UNIT} AS {unit_type}) AS {UNIT}"] if rendered.unit_type else []
            pairs = zip(relation.fields, union.fields, strict=True)
            columns = [
                f"{self.dialect.widen(f'r.{quoted(given.name)}', given.kind, field.kind)} AS {column(field.name)}"
                for given, field in pairs
            ]
            parts.append(f"SELECT {', '.join([*unit, *columns]) or '1 AS _one'} FROM ({rendered.sql}) AS r")
        return Rendered(" UNION ALL ".join(parts), inputs[0].private, unit_type if inputs[0].unit_type else None)

    def _per_unit(self, node: PerUnit) -> Rendered:
        inner, names = self._of_units(node.input), scope(node.input.fields)
        keys = [f"{self.dialect.expression(key, names)} AS _p{i}" for i, key in enumerate(node.keys)]
        arguments = [
            f"{self.dialect.expression(a.argument, names)} AS _x{i}"
            for i, a in enumerate(node.aggregates)
            if a.argument is not None
        ]
        unit = [f"r.{UNIT}"] if inner.unit_type else []
        values = f"SELECT {', '.join([*unit, *keys, *arguments]) or '1 AS _one'} FROM ({inner.sql}) AS r"
        fields = node.fields[len(node.keys) :]
        columns = [f"r._p{i} AS {column(field.name)}" for i, field in enumerate(node.fields[: len(node.keys)])]
        columns += [
            f"{self.aggregate(aggregate, f'r._x{i}', field.kind)} AS {column(field.name)}"
            for i, (aggregate, field) in enumerate(zip(node.aggregates, fields, strict=True))
        ]
        groups = [*unit, *(f"r._p{i}" for i in range(len(node.keys)))]
        by = f" GROUP BY {', '.join(groups)}" if groups else " HAVING count(*) > 0"
        sql = f"SELECT {', '.join([*unit, *columns])} FROM ({values}) AS r{by}"
        return Rendered(sql, inner.private, inner.unit_type)

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
        inner, names = self._of_units(node.input), scope(node.input.fields)
        unit = [f"r.{UNIT}"] if inner.unit_type else []
        kept = [f"r.{quoted(field.name)} AS {column(field.name)}" for field in node.input.fields]
        values, columns = [], []
        for i, (item, field) in enumerate(zip(node.items, node.fields[len(node.input.fields) :], strict=True)):
            argument = item.aggregate.argument if item.aggregate is not None else item.argument
            parts = [(f"_x{i}", argument)] if argument is not None else []
            parts += [(f"_p{i}_{j}", expression) for j, expression in enumerate(item.partition)]
            parts += [(f"_o{i}_{j}", ordering.expression) for j, ordering in enumerate(item.order)]
            values += [f"{self.dialect.expression(expression, names)} AS {name}" for name, expression in parts]
            over = self._over(item, i, unit, node.input.fields)
            columns.append(f"{self._windowed(item, i, field.kind, over)} AS {column(field.name)}")
        below = f"SELECT {', '.join([*unit, *kept, *values]) or '1 AS _one'} FROM ({inner.sql}) AS r"
        return Rendered(
            f"SELECT {', '.join([*unit, *kept, *columns])} FROM ({below}) AS r", inner.private, inner.unit_type
        )

    def _over(self, item: Windowed, i: int, unit: list[str], fields: Sequence[Field]) -> str:
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


def scope(fields: Sequence[Field], alias: str = "r") -> dict[str, str]:
    """The qualified names of fields."""
    return {field.name: f"{alias}.{quoted(field.name)}" for field in fields}
