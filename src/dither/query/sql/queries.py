"""Queries of the text become relations in which every row has one unit, or the one private aggregation.

A SELECT over private rows either keeps the unit (a relation again), or aggregates over units: then it is the private
aggregation, and queries around it can only post-process what it releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dither.errors import Refused
from dither.query.expressions.calendar_keys import undated, united
from dither.query.expressions.functions import Typed, adapt, apply, common_kind, literal
from dither.query.kinds import Column, Kind
from dither.query.plan.canonical import arranged
from dither.query.plan.plan import (
    BoundQuestion,
    Distinct,
    FilterRows,
    Output,
    PerUnit,
    PlanField,
    Project,
    Relation,
    Scan,
    Shape,
    Union,
    Window,
)
from dither.query.refusals import limited, only, placed, refused
from dither.query.schema import Schema, TableFacts
from dither.query.sql.aggregates import aggregate_call, has_aggregate, has_window
from dither.query.sql.grouping import NamedColumn, PostProcessing, ReleasedColumns, grouped, label_of
from dither.query.sql.joins import check_units, joined, kept_if_in
from dither.query.sql.names import (
    NamedSource,
    Rows,
    Visible,
    find_column,
    find_table,
    folded,
    names_column,
    relabelled,
    same_name,
    unknown_alias,
)
from dither.query.sql.narrowed_keys import narrowed
from dither.query.sql.parse import expect_known, parse
from dither.query.sql.per_unit import Windows
from dither.query.sql.scalars import Scalars, balanced, column_facts, flattened, typed

MOST_SCANS = 64
_SELECT = (
    *("expressions", "hint", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows"),
    *("order", "limit", "offset", "with_"),
)


def bind(text: str, schema: Schema) -> BoundQuestion:
    """The question that an analyst's text asks about the tables of the schema; ``Refused`` if it can't be answered.

    Same texts give same questions, whatever the data: nothing is read, and every refusal depends on the text and the
    public facts alone.
    """
    return bind_with_form(text, schema)[0]


def bind_with_form(text: str, schema: Schema) -> tuple[BoundQuestion, str]:
    """The question, and the canonical form of its aggregation (``query.canonical``)."""
    code = "syntax"
    try:
        with limited():
            return _with_form(text, schema)
    except Refused:
        raise
    except RecursionError:
        code = "too_deep"
    except Exception:  # noqa: BLE001, S110 - catch-all; tests call _bound, which has none
        pass
    if code == "too_deep":
        raise refused(code, "the question is nested too deeply", "Split it into named subqueries (WITH … AS)")
    raise refused(
        code,
        "the text can't be understood",
        "Write one SELECT with aggregates, as in SELECT city, COUNT(*) FROM orders GROUP BY city",
    )


def _bound(text: str, schema: Schema) -> BoundQuestion:
    return _with_form(text, schema)[0]


def _with_form(text: str, schema: Schema) -> tuple[BoundQuestion, str]:
    query, explain = parse(text)
    question = Queries(text, schema).question(query, explain=explain)
    expect_known(query, text)
    return arranged(question)


@dataclass(frozen=True, slots=True)
class _Cte:
    """A named subquery and the names that it can see itself."""

    node: exp.CTE
    known: Mapping[str, _Cte]


class Queries:
    """Binds one question; gives out the plan's names, so each part of a plan has its own."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text, self.schema = text, schema
        self._names = 0
        self._scans = 0
        self._origins: dict[str, tuple[str, str]] = {}

    def question(self, node: exp.Query, *, explain: bool) -> BoundQuestion:
        """The whole question."""
        result = self._query(node, {}, outermost=True)
        if isinstance(result, Rows):
            raise self._rows_shown(result)
        names: dict[str, int] = {}
        outputs = []
        for named in result.outputs:
            label, count = named.label, names.get(named.label, 0) + 1
            names[label] = count
            while count > 1 and f"{label}_{count}" in names:
                count += 1
            unique = label if count == 1 else f"{label}_{count}"
            names.setdefault(unique, 1)
            outputs.append(Output(name=unique, expression=named.value.expression))
        shape = Shape(
            outputs=tuple(outputs), having=result.having, order=result.order, limit=result.limit, offset=result.offset
        )
        aggregation, former = result.aggregation, result.former
        question = BoundQuestion(
            aggregation=aggregation,
            shape=shape,
            options=result.options,
            explain=explain,
            listing=not aggregation.aggregates and not aggregation.discover,
            profile=result.profile,
            auto=result.auto,
        )
        if former is None:
            return question
        listing = not former.aggregates and not former.discover
        return replace(question, former=replace(question, aggregation=former, listing=listing))

    def _rows_shown(self, rows: Rows) -> Refused:
        if not rows.private:
            hint = "Ask about a private one: what is public needs no noise"
            return refused("public_only", "the question reads no private table", hint)
        if _is_per_unit(rows.relation):
            hint = "Aggregate over the units: SELECT AVG(t) FROM (…), or leave the unit out of GROUP BY"
            return refused("unit_shown", "the answer would have a row for each unit", hint)
        return refused("rows_shown", "rows of private tables can't be shown", "Ask for aggregates: COUNT, SUM, AVG, …")

    def fresh(self) -> str:
        """A name that the plan hasn't used."""
        self._names += 1
        return f"c{self._names - 1}"

    def origin(self, name: str) -> tuple[str, str] | None:
        """The table and column of the schema that a name of the plan reads, where it is one."""
        return self._origins.get(name)

    def scalars(self, rows: Rows) -> Scalars:
        """For expressions over the columns of single rows."""
        return Scalars(self.text, column=lambda node: typed(find_column(node, rows.sources)), special=_no_aggregate)

    # queries

    def _query(
        self, node: exp.Expr, known: Mapping[str, _Cte], *, outermost: bool = False, as_set: bool = False
    ) -> Rows | ReleasedColumns:
        try:
            known = self._with(node.args.get("with_"), known)
            if isinstance(node, exp.Subquery):
                only(node, "this", "alias", "with_")
                return self._query(node.this, known, outermost=outermost, as_set=as_set)
            if isinstance(node, exp.Select):
                return self._select(node, known, outermost=outermost, as_set=as_set)
            if isinstance(node, exp.SetOperation):
                return self._union(node, known)
            raise refused("unsupported", "this kind of query isn't supported")
        except Refused as error:
            raise placed(error, node, self.text) from None

    def _with(self, node: exp.Expr | None, known: Mapping[str, _Cte]) -> Mapping[str, _Cte]:
        if node is None:
            return known
        if node.args.get("recursive"):
            raise refused("unsupported", "recursive queries aren't supported")
        only(node, "expressions")
        result = dict(known)
        for cte in node.expressions:
            if not isinstance(cte, exp.CTE):
                raise refused("unsupported", "only named subqueries can stand after WITH")
            only(cte, "this", "alias", "materialized")
            result[cte.alias] = _Cte(cte, dict(result))
        return result

    def _union(self, node: exp.SetOperation, known: Mapping[str, _Cte]) -> Rows:
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            raise refused("union", "UNION ALL is the only set operation", "Use IN (SELECT …) or UNION ALL")
        if node.args.get("limit") is not None or node.args.get("offset") is not None:
            raise refused("limit", "LIMIT would choose among private rows", "Aggregate first")
        only(node, "this", "expression", "distinct", "with_", "order")
        left, right = (self._query(part, known) for part in (node.this, node.expression))
        if not isinstance(left, Rows) or not isinstance(right, Rows):
            raise refused("second_aggregation", "two private aggregations can't be one question", "Ask them separately")
        if not left.private or not right.private:
            raise refused("union", "both parts of a UNION ALL must be private", "Rows of a public table have no unit")
        check_units(left, right)
        twice = {table.name for table in left.tables} & {table.name for table in right.tables}
        if left.units == "row" and twice:
            raise refused("row_level", "a row, which is the protected unit, would count twice", "Read each table once")
        return self._stacked(left, right)

    def _stacked(self, left: Rows, right: Rows) -> Rows:
        columns = [[v for source in rows.sources for v in source.columns] for rows in (left, right)]
        if len(columns[0]) != len(columns[1]):
            raise refused("union", "the parts of a UNION ALL need equally many columns")
        fields: list[PlanField] = []
        expressions: tuple[list[Typed], list[Typed]] = ([], [])
        for a, b in zip(*columns, strict=True):
            if a.field is None or b.field is None:
                raise refused("hidden_column", "the owner hides a column of this UNION ALL", "Name its columns")
            pair = typed(a.field), typed(b.field)
            kind = common_kind(pair)
            adapted = [adapt(each, kind) for each in pair] if kind is not None else [None, None]
            if kind is None or adapted[0] is None or adapted[1] is None:
                raise refused("union", "columns of a UNION ALL must have the same types", "Convert them with CAST")
            known = [Typed(each.expression, undated(each.facts)) for each in (adapted[0], adapted[1])]
            facts = apply("case", (literal(True, Kind.BOOLEAN), *known)).facts  # noqa: FBT003
            facts = united(adapted[0].facts, adapted[1].facts, facts)
            unit = a.field.unit and b.field.unit
            fields.append(PlanField(name=self.fresh(), kind=kind, facts=facts, unit=unit))
            expressions[0].append(adapted[0])
            expressions[1].append(adapted[1])
        inputs = []
        for rows, values in zip((left, right), expressions, strict=True):
            own = tuple(replace(f, name=self.fresh(), facts=v.facts) for f, v in zip(fields, values, strict=True))
            outs = tuple(value.expression for value in values)
            inputs.append(Project(input=rows.relation, expressions=outs, fields=own))
        labels = [visible.label for visible in columns[0]]
        visible = tuple(Visible(label=label, field=f) for label, f in zip(labels, fields, strict=True))
        return Rows(
            relation=Union(inputs=tuple(inputs), fields=tuple(fields)),
            sources=(NamedSource(alias="", columns=visible),),
            units=left.units,
            tables=(*left.tables, *right.tables),
        )

    # FROM

    def _from(
        self, node: exp.Select, known: Mapping[str, _Cte], where: Sequence[exp.Expr]
    ) -> tuple[Rows | ReleasedColumns, str]:
        clause = node.args.get("from_")
        if clause is None:
            raise refused("public_only", "the question reads no private table", "Add FROM")
        only(clause, "this")
        result, alias = self._source(clause.this, known)
        for join in node.args.get("joins") or []:
            try:
                right, _ = self._source(join.this, known)
                if isinstance(result, ReleasedColumns) or isinstance(right, ReleasedColumns):
                    raise refused("second_aggregation", "released numbers can't be joined", "Ask them separately")
                result = joined(result, right, join, where, self.scalars)
            except Refused as error:
                raise placed(error, join, self.text) from None
        return result, alias

    def _source(self, node: exp.Expr, known: Mapping[str, _Cte]) -> tuple[Rows | ReleasedColumns, str]:
        self._scans += 1
        if self._scans > MOST_SCANS:
            raise refused("too_long", f"a question may read at most {MOST_SCANS} tables and subqueries")
        alias = node.args.get("alias")
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias", "with_")
            return self._named(self._query(node.this, known), alias, "")
        if not isinstance(node, exp.Table):
            hint = "Name a table of the policy, or write a subquery"
            raise placed(refused("table_function", "only tables and subqueries can be read", hint), node, self.text)
        try:
            only(node, "this", "db", "catalog", "alias")
            cte = self._cte(node, known)
            if cte is not None:
                inner = self._query(cte.node.this, cte.known)
                own, _ = self._named(inner, cte.node.args.get("alias"), cte.node.alias)
                return self._named(own, alias, cte.node.alias)
            table = find_table(node, self.schema)
        except Refused as error:
            raise placed(error, node, self.text) from None
        return self._named(self._scan(table), alias, table.name.rpartition(".")[2])

    def _cte(self, node: exp.Table, known: Mapping[str, _Cte]) -> _Cte | None:
        if node.args.get("db") is not None or not isinstance(node.this, exp.Identifier):
            return None
        for name, cte in list(known.items())[::-1]:
            identifier = cte.node.args["alias"].this
            quoted = identifier.args.get("quoted") and node.this.args.get("quoted")
            if (name == node.this.this) if quoted else same_name(node.this, name):
                return cte
        return None

    def _named(
        self, inner: Rows | ReleasedColumns, alias: exp.TableAlias | None, name: str
    ) -> tuple[Rows | ReleasedColumns, str]:
        if alias is not None:
            only(alias, "this", "columns")
        label = str(alias.this.this) if alias is not None and alias.this is not None else name
        if isinstance(inner, Rows):
            return relabelled(inner, alias, name), label
        given = [] if alias is None else alias.args.get("columns") or []
        if len(given) > len(inner.outputs):
            raise refused("unknown_column", "more column names are given than there are columns")
        renamed = [replace(output, label=str(i.name)) for output, i in zip(inner.outputs, given, strict=False)]
        return replace(inner, outputs=(*renamed, *inner.outputs[len(given) :])), label

    def _scan(self, table: TableFacts) -> Rows:
        fields, pairs, visible = [], [], []
        for column in table.columns.values():
            if column.hidden:
                visible.append(Visible(label=column.name, field=None))
                continue
            unit = table.private and column.name == table.unit_column
            field = PlanField(name=self.fresh(), kind=column.kind, facts=column_facts(table, column), unit=unit)
            self._origins[field.name] = (table.name, column.name)
            fields.append(field)
            pairs.append((field.name, column.name))
            visible.append(Visible(label=column.name, field=field))
        names = {column: name for name, column in pairs}
        unique = tuple(frozenset(names[c] for c in key) for key in table.unique if key and set(key) <= names.keys())
        relation = Scan(
            table=table.name,
            private=table.private,
            unit_column=table.unit_column if table.private else None,
            columns=tuple(pairs),
            fields=tuple(fields),
        )
        units = None if not table.private else "row" if table.unit_column is None else "column"
        return Rows(
            relation=relation,
            sources=(NamedSource(alias=table.name, columns=tuple(visible)),),
            units=units,  # type: ignore[arg-type]
            tables=(table,) if table.private else (),
            unique=() if table.private else unique,
        )

    # SELECT

    def _select(
        self, node: exp.Select, known: Mapping[str, _Cte], *, outermost: bool, as_set: bool
    ) -> Rows | ReleasedColumns:
        only(node, *_SELECT)
        where = node.args.get("where")
        conditions = [] if where is None else flattened(where.this, exp.And)
        source, alias = self._from(node, known, conditions)
        if isinstance(source, ReleasedColumns):
            return PostProcessing(self.text, source, alias).apply(node)
        if has_aggregate(where):
            raise refused("aggregate", "an aggregate can't stand in WHERE", "Use HAVING")
        rows = self._where(source, conditions, known)
        distinct = node.args.get("distinct")
        if distinct is not None:
            only(distinct)
        aggregates = any(has_aggregate(item) for item in node.expressions) or has_aggregate(node.args.get("having"))
        if aggregates or node.args.get("group") is not None or node.args.get("having") is not None:
            if distinct is not None:
                raise refused("unsupported", "DISTINCT with aggregates isn't supported", "Groups are distinct already")
            return grouped(self, rows, node)
        if outermost and distinct is not None and rows.private and not any(map(has_window, node.expressions)):
            return grouped(self, rows, node)
        return self._rows(rows, node, as_set=as_set)

    def _where(self, rows: Rows, conditions: Sequence[exp.Expr], known: Mapping[str, _Cte]) -> Rows:
        scalars = self.scalars(rows)
        plain, lookups = [], []
        for part in conditions:
            inner, negated = (part.this, True) if isinstance(part, exp.Not) else (part, False)
            while isinstance(inner, exp.Paren):
                inner = inner.this
            if isinstance(inner, exp.In) and inner.args.get("query") is not None:
                lookups.append((inner, negated))
            else:
                plain.append(scalars.predicate(part))
        if plain:
            rows = replace(rows, relation=FilterRows(input=rows.relation, predicate=balanced("and", plain).expression))
            rows = narrowed(rows, plain)
        for inner, negated in lookups:
            try:
                rows = self._lookup(rows, inner, scalars, known, negated=negated)
            except Refused as error:
                raise placed(error, inner, self.text) from None
        return rows

    def _lookup(self, rows: Rows, node: exp.In, scalars: Scalars, known: Mapping[str, _Cte], *, negated: bool) -> Rows:
        only(node, "this", "query")
        if not rows.private:
            raise refused("subquery", "IN with a subquery isn't supported over public tables")
        self._scans += 1
        if self._scans > MOST_SCANS:
            raise refused("too_long", f"a question may read at most {MOST_SCANS} tables and subqueries")
        right = self._query(node.args["query"], known, as_set=True)
        if isinstance(right, ReleasedColumns):
            hint = "Ask them separately; for units write unit IN (SELECT unit FROM …)"
            raise refused("second_aggregation", "a private aggregation can't be looked up", hint)
        return kept_if_in(rows, scalars.bind(node.this), right, negated=negated)

    def _rows(self, rows: Rows, node: exp.Select, *, as_set: bool) -> Rows:
        """A SELECT without aggregates: rows in, rows out, each with its unit."""
        if node.args.get("hint") is not None:
            hint = "Write the clause after the SELECT that aggregates"
            raise refused("options", "the privacy clause belongs to the aggregation", hint)
        if node.args.get("limit") is not None or node.args.get("offset") is not None:
            raise refused("limit", "LIMIT would choose among rows", "Aggregate first; then LIMIT is free")
        rows, values, labels = self._select_list(rows, node)
        distinct = node.args.get("distinct") is not None
        if distinct and not rows.private and not as_set:
            raise refused("unsupported", "DISTINCT isn't supported on public tables")
        if distinct and rows.units == "row":
            hint = "GROUP BY answers which values there are"
            raise refused("row_level", "DISTINCT would make one row of several protected ones", hint)
        units = rows.unit_names
        fields, visible = [], []
        passed: dict[str, str] = {}
        for value, label in zip(values, labels, strict=True):
            plain = value.expression.name if isinstance(value.expression, Column) else ""
            field = PlanField(name=self.fresh(), kind=value.kind, facts=value.facts, unit=plain in units)
            if plain in self._origins:
                self._origins[field.name] = self._origins[plain]
            if plain:
                passed.setdefault(plain, field.name)
            fields.append(field)
            visible.append(Visible(label=label, field=field))
        project = Project(
            input=rows.relation, expressions=tuple(value.expression for value in values), fields=tuple(fields)
        )
        unique = tuple(frozenset(passed[n] for n in key) for key in rows.unique if key <= passed.keys())
        return replace(
            rows,
            relation=Distinct(input=project) if distinct and rows.private else project,
            sources=(NamedSource(alias="", columns=tuple(visible)),),
            unique=unique,
        )

    def _select_list(self, rows: Rows, node: exp.Select) -> tuple[Rows, list[Typed], list[str]]:
        windows = self._windows(rows, node)
        scalars = Scalars(
            self.text,
            column=lambda column: typed(find_column(column, rows.sources)),
            special=lambda part: windows.column(part) if isinstance(part, exp.Window) else _no_aggregate(part),
        )
        values: list[Typed] = []
        labels: list[str] = []
        for position, item in enumerate(node.expressions):
            star = star_columns(item, rows.sources)
            if star is not None:
                values += [typed(field) for _, field in star]
                labels += [label for label, _ in star]
                continue
            value = scalars.bind(item.this if isinstance(item, exp.Alias) else item)
            values.append(value)
            known = [NamedColumn(label=v.label, value=value) for source in rows.sources for v in source.columns]
            labels.append(label_of(item, position, known))
        qualify = node.args.get("qualify")
        condition = None if qualify is None else self._qualify(qualify, rows, windows, values, labels)
        relation = rows.relation
        if windows.items:
            if rows.units != "column":
                hint = "Windows need a privacy unit column to stay within"
                raise refused("window", "a window would reach over several units", hint)
            fields = (*relation.fields, *windows.fields)
            relation = Window(input=relation, items=tuple(windows.items), fields=fields)
        if condition is not None:
            relation = FilterRows(input=relation, predicate=condition.expression)
        return replace(rows, relation=relation), values, labels

    def _windows(self, rows: Rows, node: exp.Select) -> Windows:
        named = {}
        for window in node.args.get("windows") or []:
            if isinstance(window, exp.Window) and isinstance(window.this, exp.Identifier):
                named[folded(window.this.name)] = window
        return Windows(scalars=self.scalars(rows), units=rows.unit_names, fresh=self.fresh, named=named)

    def _qualify(
        self, node: exp.Expr, rows: Rows, windows: Windows, values: Sequence[Typed], labels: Sequence[str]
    ) -> Typed:
        def column(part: exp.Column) -> Typed:
            own = None
            if part.args.get("table") is None:
                own = next((v for v, label in zip(values, labels, strict=True) if same_name(part.this, label)), None)
            if own is not None and not names_column(part, rows.sources):
                return own
            try:
                return typed(find_column(part, rows.sources))
            except Refused:
                if own is None:
                    raise
                return own

        def special(part: exp.Expr) -> Typed | None:
            return windows.column(part) if isinstance(part, exp.Window) else _no_aggregate(part)

        return Scalars(self.text, column=column, special=special).predicate(node.this)


def _is_per_unit(relation: Relation) -> bool:
    """Whether a relation has been grouped by the unit last."""
    while isinstance(relation, Project | FilterRows):
        relation = relation.input
    return isinstance(relation, PerUnit)


def _no_aggregate(node: exp.Expr) -> Typed | None:
    if isinstance(node, exp.Window):
        raise refused("window", "a window can't stand here", "Use it in the select list of a subquery")
    call = aggregate_call(node)
    if call is not None:
        hint = "Aggregate in a subquery that groups by the unit, or use HAVING"
        raise refused("aggregate", f"{call.spelling.upper()} can't stand here", hint)
    return None


def star_columns(item: exp.Expr, sources: Sequence[NamedSource]) -> list[tuple[str, PlanField]] | None:
    """The columns that * or t.* stands for, without hidden ones; None if the item isn't a star."""
    star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
    if not isinstance(star, exp.Star):
        return None
    only(star)
    table = item.args.get("table") if isinstance(item, exp.Column) else None
    among = [source for source in sources if table is None or same_name(table, source.alias)]
    if not among:
        raise unknown_alias(table.name if table else "", [source.alias for source in sources])
    return [
        (visible.label, visible.field)
        for source in among
        for visible in source.columns
        if visible.field is not None and not (table is None and visible.shadowed)
    ]
