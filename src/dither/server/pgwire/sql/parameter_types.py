"""Types of parameters that a client left open: guessed from what they are compared with.

Drivers write a value in the type that they are told here. A wrong guess changes no answer: the value then can't be
written or the question is refused, free of charge, and the type can be given by hand (``$1::date``).

Every part of a question is looked at once, however many parameters are beside it and however often it is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlglot import exp

from dither.errors import Refused
from dither.query.refusals import line_and_column
from dither.query.schema import Schema
from dither.query.sql.parse import PrivacyClause, parse
from dither.server.pgwire.protocol import types
from dither.server.pgwire.sql.parameters import Placeholder, fill, misplaced
from dither.server.problems import ServerProblem, ServerRefusal

_STAND_IN = "dither_parameter_"
_MOST_STEPS_EACH = 2
_SPLIT = "Split it into named subqueries (WITH … AS)"
_CASTS = {
    **dict.fromkeys((exp.DType.INT, exp.DType.BIGINT, exp.DType.SMALLINT, exp.DType.TINYINT), types.INT8),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE), types.FLOAT8),
    exp.DType.DECIMAL: types.NUMERIC,
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), types.TEXT),
    exp.DType.BOOLEAN: types.BOOL,
    exp.DType.DATE: types.DATE,
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME), types.TIMESTAMP),
}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Pow)
_NUMBERS = (types.INT8, types.FLOAT8)
_WHOLE_CALLS = {
    *("count", "length", "year", "month", "day", "quarter", "week", "hour", "minute", "second", "position", "strpos"),
    *("day_of_week", "day_of_year", "dayofweek", "dayofyear", "approx_count_distinct", "date_part", "count_distinct"),
}
_LIKE_ARGUMENTS = {"min", "max", "abs", "coalesce", "ifnull", "nullif", "greatest", "least"}
_TRUNCATIONS = ("date_trunc", "datetrunc")
_WITH_NUMBERS = ("round", "substring", "substr", "left", "right")
_NUMBER_CALLS = {"sum", "avg", "mean", "median", "stddev", "variance", "var_pop", "var_samp", "stddev_pop", "quantile"}


def guess_types(text: str, places: Sequence[Placeholder], declared: Sequence[int], schema: Schema) -> tuple[int, ...]:
    """The type of each parameter: as declared, else guessed, else text.

    Refused if a placeholder stands where no value can be: as a name, a table or a part of a date; and, as PostgreSQL
    does, if the numbers of parameters leave one out of which nothing is known.
    """
    if any(text[place.end : place.end + 1].isalnum() or text[place.end : place.end + 1] == "_" for place in places):
        raise misplaced()
    count = max([place.number for place in places] + [len(declared)], default=0)
    named = {place.number for place in places} - {0}
    if count > len(declared) + len(named):
        raise _unknown(next(number for number in range(len(declared) + 1, count) if number not in named))
    found = [declared[index] if index < len(declared) else 0 for index in range(count)]
    found = [0 if oid == types.UNKNOWN else oid for oid in found]
    if places:
        try:
            guesses = _guesses(text, places, schema)
        except RecursionError:
            raise Refused("the question is nested too deeply", code="too_deep", hint=_SPLIT) from None
        found = [oid or guesses.get(index + 1, types.TEXT) for index, oid in enumerate(found)]
    return tuple(oid or types.TEXT for oid in found)


def _guesses(text: str, places: Sequence[Placeholder], schema: Schema) -> dict[int, int]:
    # a name of its own for each in the tree
    bound, _ = fill(text, places, lambda place: (f"{_STAND_IN}{place.number}",))
    try:
        tree, _explain = parse(bound.text)
    except Refused as error:
        origin = bound.origin(error.position)
        if origin is not None:
            error.position = line_and_column(text, origin)
        raise
    names = _Names(tree, schema)
    nodes = [node for node in tree.find_all(exp.Column) if _number(node) is not None]
    if len(nodes) != len(places):
        raise misplaced()
    result: dict[int, int] = {}
    for node in nodes:
        number = _number(node)
        if number is not None and number not in result and (oid := _of_place(node, names)) is not None:
            result[number] = oid
    return result


class _Names:
    """What the columns of the question's tables are, by their names alone; None where tables differ.

    Raises RecursionError where expressions are nested too deeply, or take more steps than a question's size asks for.
    """

    def __init__(self, tree: exp.Expr, schema: Schema) -> None:
        self._types: dict[str, int | None] = {}
        self._options: set[int] = set()
        self._aliases: dict[str, exp.Expr] = {}
        named: set[str] = set()
        # parents come before their children
        nodes = list(tree.walk())
        for node in nodes:
            if isinstance(node, exp.PropertyEQ | exp.Kwarg) or id(node.parent) in self._options:
                self._options.add(id(node))
            if isinstance(node, exp.Table):
                named.add(node.name.lower())
            elif isinstance(node, exp.Alias):
                self._aliases[node.alias.lower()] = node.this
        for name, table in schema.tables.items():
            if name.lower() not in named:
                continue
            for column, facts in table.columns.items():
                oid = types.OF_KIND[facts.kind]
                known = self._types.setdefault(column.lower(), oid)
                if known != oid:
                    self._types[column.lower()] = None
        self._left = _MOST_STEPS_EACH * len(nodes)
        # by identity: the tree is there as long as they are, and to compare trees takes as long as they are large
        self._found: dict[int, int | None] = {}
        self._parts: dict[int, list[tuple[exp.Expr, int]]] = {}
        for node in reversed(nodes):
            # from below, so that long sums don't count as deep
            if isinstance(node, (exp.Paren, exp.Neg, *_ARITHMETIC)):
                self.of(node)

    def within_options(self, node: exp.Expr) -> bool:
        """Whether it is one of an aggregate's own options, or in one."""
        return id(node) in self._options

    def beside(self, node: exp.Expr, parent: exp.Expr) -> int | None:
        """The type of the first other part of the parent that shows one."""
        if id(parent) not in self._parts:
            # two are enough: one of them is another
            typed = ((each, oid) for each in parent.iter_expressions() if (oid := self.of(each)) is not None)
            self._parts[id(parent)] = list(itertools.islice(typed, 2))
        return next((oid for each, oid in self._parts[id(parent)] if each is not node), None)

    def of(self, node: object) -> int | None:
        """The type of an expression, as far as it shows."""
        if id(node) not in self._found:
            self._left -= 1
            if self._left < 0:
                raise RecursionError
            # an alias that refers to itself has no type
            self._found[id(node)] = None
            self._found[id(node)] = self._of(node)
        return self._found[id(node)]

    def _of(self, node: object) -> int | None:
        if isinstance(node, exp.Paren | exp.Neg):
            return self.of(node.this)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return None
            return types.INT8 if str(node.this).isdecimal() else types.FLOAT8
        if isinstance(node, exp.Cast | exp.TryCast):
            return _cast(node)
        if isinstance(node, exp.Extract):
            return types.INT8
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        if isinstance(node, _ARITHMETIC):
            sides = (self.of(node.this), self.of(node.expression))
            temporal = next((each for each in sides if each in (types.DATE, types.TIMESTAMP)), None)
            both = types.FLOAT8 if types.FLOAT8 in sides or isinstance(node, exp.Div) else types.INT8
            return temporal or (both if set(sides) & set(_NUMBERS) else None)
        return self._column(node) if isinstance(node, exp.Column) else None

    def _column(self, node: exp.Column) -> int | None:
        name = node.name.lower()
        if name in self._types:
            return self._types[name]
        return self.of(self._aliases[name]) if name in self._aliases else None

    def _call(self, node: exp.Anonymous) -> int | None:
        name = str(node.this).lower()
        if name in _WHOLE_CALLS:
            return types.INT8
        if name in _NUMBER_CALLS:
            return types.FLOAT8
        if name in ("lower", "upper", "trim", "substring", "concat", "replace"):
            return types.TEXT
        if name in _LIKE_ARGUMENTS:
            return next((oid for oid in map(self.of, node.expressions) if oid is not None), None)
        return self.of(node.expressions[1]) if name in _TRUNCATIONS and len(node.expressions) > 1 else None


def _unknown(number: int) -> ServerRefusal:
    title = f"could not determine data type of parameter ${number}"
    hint = "Number parameters $1, $2 and so on, and leave none out."
    return ServerRefusal(ServerProblem(code="parameter", sqlstate="42P18", title=title, hint=hint))


def _number(node: exp.Column) -> int | None:
    name = node.name if node.args.get("table") is None else ""
    return int(name.removeprefix(_STAND_IN)) if name.startswith(_STAND_IN) else None


def _of_place(node: exp.Expr, names: _Names) -> int | None:
    """The type that fits where a parameter stands."""
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Limit | exp.Offset | exp.Interval):
        return types.INT8
    if isinstance(parent, exp.Cast | exp.TryCast):
        return _cast(parent)
    if isinstance(parent, exp.And | exp.Or | exp.Not | exp.Where | exp.Having):
        return types.BOOL
    if isinstance(parent, exp.Anonymous):
        return _argument(node, parent, names)
    if isinstance(parent, exp.Substring):
        return types.TEXT if node is parent.this else types.INT8
    if isinstance(parent, exp.EQ) and isinstance(parent.parent, PrivacyClause):
        return types.INT8 if parent.this.name.lower().startswith("max_") else types.FLOAT8
    if parent is not None and names.within_options(parent):
        # an aggregate's own bounds or weight
        return types.FLOAT8
    if isinstance(parent, (*_COMPARED, *_ARITHMETIC)):
        found = names.beside(node, parent)
        if found in (types.DATE, types.TIMESTAMP) and isinstance(parent, _ARITHMETIC):
            return types.INT8
        return found
    return None


def _argument(node: exp.Expr, call: exp.Anonymous, names: _Names) -> int | None:
    """The type of an argument: fixed by the function, or that of the other arguments."""
    name = str(call.this).lower()
    if "quantile" in name or name.startswith(("percentile", "approx_percentile")):
        return types.FLOAT8
    if name in _WITH_NUMBERS and node is not call.expressions[0]:
        return types.INT8
    return names.of(call) if name in _LIKE_ARGUMENTS else None


def _cast(node: exp.Expr) -> int | None:
    target = node.args.get("to")
    return _CASTS.get(target.this) if isinstance(target, exp.DataType) and isinstance(target.this, exp.DType) else None
