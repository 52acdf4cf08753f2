"""Every argument of every kind of node that the front door accepts: those that are read, and those that are refused.

The parser is third-party, and its trees change: NOT LIKE was NOT of a LIKE, and became a LIKE with a mark. A mark that
nobody reads would change what a question means in silence, so a tree is accepted only if all that is set in it stands
in ``READ``. A test holds both tables together with the installed parser: an argument in neither of them is news.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from dither.errors import Refused
from dither.query.refusals import only, placed, refused
from dither.query.sql.parser.parse import PrivacyClause

_BINARY = ("this", "expression")
_ONE = ("this",)
_LIST = ("expressions",)
_QUERY = (
    *("cluster", "connect", "distribute", "for_", "format", "laterals", "locks", "match", "options", "pivots"),
    *("prewhere", "sample", "settings", "sort"),
)
_CLAUSES = ("group", "having", "joins", "limit", "offset", "qualify", "where", "windows")

READ: Mapping[type[exp.Expr], tuple[str, ...]] = MappingProxyType(
    {
        # queries
        exp.Select: (
            *("expressions", "hint", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows"),
            *("order", "limit", "offset", "with_"),
        ),
        # the order of a set has no influence on what is made of it
        exp.Union: ("this", "expression", "distinct", "order", "with_"),
        exp.Subquery: ("this", "alias", "with_"),
        exp.With: _LIST,
        # materialized is about how, not what
        exp.CTE: ("this", "alias", "materialized"),
        PrivacyClause: _LIST,
        exp.From: _ONE,
        exp.Join: ("this", "side", "kind", "on", "using"),
        exp.Table: ("this", "db", "catalog", "alias"),
        exp.TableAlias: ("this", "columns"),
        exp.Where: _ONE,
        exp.Group: ("expressions", "all"),
        exp.Having: _ONE,
        exp.Qualify: _ONE,
        exp.Order: _LIST,
        exp.Ordered: ("this", "desc", "nulls_first"),
        exp.Limit: ("expression",),
        exp.Offset: ("expression",),
        exp.Distinct: _LIST,
        exp.Star: (),
        # names and constants
        exp.Alias: ("this", "alias"),
        exp.Column: ("this", "table"),
        exp.Identifier: ("this", "quoted"),
        exp.Var: _ONE,
        exp.Literal: ("this", "is_string"),
        exp.Boolean: _ONE,
        exp.Null: (),
        exp.Array: _LIST,
        exp.Tuple: _LIST,
        exp.Interval: ("this", "unit"),
        exp.DataType: ("this", "expressions", "nested"),
        exp.DataTypeParam: _ONE,
        # expressions
        exp.Paren: _ONE,
        exp.Not: _ONE,
        exp.Neg: _ONE,
        **dict.fromkeys((exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow), _BINARY),
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _BINARY),
        # what the parser notes about its dialect, whose meaning isn't ours: / is always of doubles, NULL if undefined
        exp.Div: (*_BINARY, "typed", "safe"),
        exp.DPipe: (*_BINARY, "safe"),
        **dict.fromkeys((exp.Like, exp.ILike, exp.Is), (*_BINARY, "negate")),
        exp.Between: ("this", "low", "high"),
        exp.In: ("this", "expressions", "query"),
        exp.Case: ("this", "ifs", "default"),
        exp.If: ("this", "true"),
        **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to", "safe", "requires_string")),
        exp.Extract: _BINARY,
        exp.Trim: ("this", "position"),
        exp.Substring: ("this", "start", "length"),
        exp.StrPosition: ("this", "substr"),
        exp.Anonymous: ("this", "expressions"),
        exp.Kwarg: _BINARY,
        exp.PropertyEQ: _BINARY,
        exp.Filter: _BINARY,
        exp.WithinGroup: _BINARY,
        exp.Window: ("this", "partition_by", "order", "alias", "over"),
    }
)
"""What the binder reads of each kind of node, and what changes nothing."""

REFUSED: Mapping[type[exp.Expr], tuple[str, ...]] = MappingProxyType(
    {
        exp.Select: (*_QUERY, "exclude", "into", "kind", "operation_modifiers"),
        exp.Union: (*_QUERY, *_CLAUSES, "by_name", "kind", "on", "side"),
        exp.Subquery: (*_QUERY, *_CLAUSES, "order"),
        exp.With: ("cycle", "recursive", "search", "udfs"),
        exp.CTE: ("key_expressions", "scalar"),
        exp.Join: ("directed", "expressions", "global_", "hint", "match_condition", "method", "nearest", "pivots"),
        exp.Table: (
            *("changes", "format", "hints", "indexed", "joins", "laterals", "only", "ordinality", "partition"),
            *("pattern", "pivots", "rows_from", "sample", "system_time", "version", "when"),
        ),
        exp.Group: ("cube", "grouping_sets", "rollup", "totals"),
        exp.Order: ("siblings", "this"),
        exp.Ordered: ("with_fill",),
        exp.Limit: ("expressions", "limit_options", "offset", "this"),
        exp.Offset: ("expressions", "this"),
        exp.Distinct: ("on",),
        exp.Star: ("except_", "ilike", "rename", "replace"),
        exp.Column: ("db", "catalog", "join_mark", "shadow"),
        exp.Identifier: ("global_", "temporary"),
        exp.Array: ("bracket_notation", "struct_name_inheritance", "value_constructor"),
        exp.Interval: ("fraction_in_string",),
        exp.DataType: ("collate", "kind", "nullable", "values"),
        exp.DataTypeParam: ("expression",),
        exp.Between: ("symmetric",),
        exp.In: ("field", "is_global", "unnest"),
        exp.If: ("false",),
        exp.Cast: ("action", "default", "format"),
        exp.TryCast: ("action", "default", "format", "null_on_text_overflow", "probe_date_format"),
        exp.Trim: ("collation", "expression"),
        exp.Substring: ("zero_start",),
        exp.StrPosition: ("clamp_position", "occurrence", "position"),
        exp.Window: ("first", "spec"),
    }
)
"""What is known and isn't answered; it is listed only so that a test can tell it from what is new."""


def expect_known(tree: exp.Expr, text: str) -> None:
    """Refuse a tree in which anything is set that nobody reads; asked last, since the binder's refusals say more."""
    for node in tree.walk():
        known = READ.get(type(node))
        try:
            if known is None:
                raise refused(
                    "unsupported",
                    "this kind of expression isn't supported",
                    "use columns, functions and aggregates that the documentation of SQL lists",
                )
            only(node, *known)
        except Refused as error:
            raise placed(error, node, text) from None
