"""The privacy clause of a question: WITH DIFFERENTIAL_PRIVACY OPTIONS (…), checked against the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from sqlglot import exp

from dither.query.aggregates.catalogue import MOST_GROUPS
from dither.query.kinds import Auto
from dither.query.measure.measures import UnitBound
from dither.query.plan.plan import Law, Options
from dither.query.plan.profile import MOST_CHOSEN
from dither.query.refusals import name_shown, only, refused
from dither.query.schema import TableFacts
from dither.query.sql.constants import exact_number
from dither.query.sql.names import folded, same_name
from dither.query.sql.parse import PrivacyClause

NAMES = (
    "epsilon",
    "delta",
    "max_groups_contributed",
    "max_rows_contributed",
    "group_selection_strategy",
    "privacy_unit_column",
    "noise",
)


class Selection(Enum):
    """How the question wants its groups chosen."""

    LAPLACE_THRESHOLD = "laplace_threshold"
    PUBLIC_GROUPS = "public_groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """The options of a question; None where it says nothing."""

    options: Options
    groups: int | Auto | None = None
    rows: int | Auto | None = None
    selection: Selection | None = None


NOTHING_STATED = Clause(options=Options())


def clause(node: exp.Expr, tables: Sequence[TableFacts], known: UnitBound | None) -> Clause:
    """The options that a privacy clause states, checked against the tables that the question reads.

    ``known`` has the limits on what a unit adds; None where each row is a unit.
    """
    if not isinstance(node, PrivacyClause):
        raise refused("unsupported", "hints aren't supported")
    only(node, "expressions")
    given: dict[str, exp.Expr] = {}
    for option in node.expressions:
        if not isinstance(option, exp.EQ) or not isinstance(option.this, exp.Column):
            raise refused("options", "an option is written name = value", f"Options are {', '.join(NAMES)}")
        only(option.this, "this")
        name = folded(option.this.name)
        if name not in NAMES:
            raise refused("options", f"there is no option {name_shown(name)}", f"Options are {', '.join(NAMES)}")
        if name in given:
            raise refused("options", f"{name} is given twice")
        given[name] = option.expression
    epsilon, delta = _positive(given, "epsilon"), _positive(given, "delta")
    if delta is not None and delta >= 1:
        raise refused("options", "delta must be below 1")
    if "privacy_unit_column" in given:
        _check_unit(given["privacy_unit_column"], tables)
    most = min(table.groups for table in tables), min(table.rows for table in tables)
    if known is not None:
        most = known.limit_groups, known.limit_rows
    if any(table.auto_groups for table in tables):
        # as many as there can be
        most = MOST_GROUPS, most[1]
    if any(table.auto_rows for table in tables):
        most = most[0], min(most[1], MOST_CHOSEN)
    return Clause(
        options=Options(epsilon=epsilon, delta=delta, noise=_noise(given.get("noise"))),
        groups=_auto_or_at_most(given, "max_groups_contributed", most[0]),
        rows=_auto_or_at_most(given, "max_rows_contributed", most[1]),
        selection=_selection(given.get("group_selection_strategy")),
    )


def _positive(given: dict[str, exp.Expr], name: str) -> Fraction | None:
    if name not in given:
        return None
    value = exact_number(given[name])
    if value is None or value <= 0:
        raise refused("options", f"{name} must be a number above 0")
    return value


def _at_most(given: dict[str, exp.Expr], name: str, most: int) -> int | None:
    if name not in given:
        return None
    value = exact_number(given[name])
    if value is None or value.denominator != 1 or value < 1:
        raise refused("options", f"{name} must be a whole number from 1")
    if value > most:
        raise refused("options", f"the policy allows {name} up to {most}", "Ask for fewer, or leave it out")
    return int(value)


def _auto_or_at_most(given: dict[str, exp.Expr], name: str, most: int) -> int | Auto | None:
    node = given.get(name)
    if isinstance(node, exp.Literal) and node.is_string and folded(node.name) == Auto.AUTO.value:
        return Auto.AUTO
    if node is not None and exact_number(node) is None:
        hint = f"Write {name} = 20, or 'auto' where a profile is to choose it"
        raise refused("options", f"{name} must be a whole number from 1, or 'auto'", hint)
    return _at_most(given, name, most)


def _selection(node: exp.Expr | None) -> Selection | None:
    if node is None:
        return None
    name = folded(node.name)
    for selection in Selection:
        if name == selection.value:
            return selection
    raise refused("options", "group_selection_strategy is LAPLACE_THRESHOLD or PUBLIC_GROUPS")


def _noise(node: exp.Expr | None) -> Law | None:
    if node is None:
        return None
    name = folded(node.name)
    if name == "laplace":
        return "laplace"
    if name == "gaussian":
        return "gaussian"
    raise refused("options", "there is no such noise", "Options are noise = 'laplace' and noise = 'gaussian'")


def _check_unit(node: exp.Expr, tables: Sequence[TableFacts]) -> None:
    identifier = node.this if isinstance(node, exp.Column) else None
    units = {table.unit_column for table in tables if table.unit_column is not None}
    plain = node.args.get("table") is None
    if isinstance(identifier, exp.Identifier) and plain and any(same_name(identifier, unit) for unit in units):
        return
    declared = sorted(units)
    hint = f"The policy's unit is {', '.join(declared)}" if declared else "The policy protects each row; leave it out"
    raise refused("options", "privacy_unit_column isn't the unit of the policy", hint)
