"""Profiles: how many units have how many rows of a relation, as a question like any other.

A unit is in one bin, whatever it has, so that it moves one count by 1: which is what makes a profile cheap, and its
price that of one histogram. The bins are fixed: 1, 2, 3 to 4, 5 to 8, … rows, and one for all above.
"""

from __future__ import annotations

from dither.query.kinds import NOTHING, Call, Column, Expression, Kind, Literal
from dither.query.plan.plan import (
    Aggregate,
    Aggregation,
    Distinct,
    FilterRows,
    Function,
    Inner,
    InnerAggregate,
    JoinKind,
    JoinRows,
    Key,
    Output,
    PerUnit,
    PlanField,
    Project,
    Relation,
    Shape,
    Window,
)

# the last bin but one ends at 2 to this; one more takes whatever is above, so that no unit is left out
LARGEST_POWER = 14
UPPER_ENDS = tuple(1 << power for power in range(LARGEST_POWER + 1))
LOWER_ENDS = (1, *(end + 1 for end in UPPER_ENDS))
# the largest bound on rows that a profile can choose
MOST_CHOSEN = UPPER_ENDS[-1]
_ROWS = "rows_of_unit"


def profile_of(relation: Relation, tables: tuple[str, ...]) -> Aggregation:
    """The number of units in each bin, by the rows that each has in the relation; the key is the lowest of the bin."""
    rows = Column(_ROWS, Kind.INTEGER)
    each = PerUnit(
        input=relation,
        keys=(),
        aggregates=(InnerAggregate(function=Inner.COUNT, argument=None),),
        fields=(PlanField(name=_ROWS, kind=Kind.INTEGER, facts=NOTHING),),
    )
    parts: list[Expression] = []
    for low, high in zip(LOWER_ENDS, UPPER_ENDS, strict=False):
        parts += [Call("less_equal", (rows, _whole(high)), Kind.BOOLEAN), _whole(low)]
    place = Call("case", (*parts, _whole(LOWER_ENDS[-1])), Kind.INTEGER)
    return Aggregation(
        relation=each,
        units="column",
        keys=(Key(expression=place, kind=Kind.INTEGER, values=LOWER_ENDS),),
        aggregates=(Aggregate(function=Function.COUNT_UNITS),),
        groups=1,
        rows=1,
        discover=False,
        tables=tables,
    )


def profile_shape() -> Shape:
    """The columns that are shown: the ends of each bin, NULL where it has none, and the units in it."""
    low = Column("k0", Kind.INTEGER)
    twice = Call("multiply", (_whole(2), Call("subtract", (low, _whole(1)), Kind.INTEGER)), Kind.INTEGER)
    ends = (
        *(Call("equal", (low, _whole(1)), Kind.BOOLEAN), _whole(1)),
        *(Call("equal", (low, _whole(LOWER_ENDS[-1])), Kind.BOOLEAN), Literal(None, Kind.INTEGER)),
        twice,
    )
    return Shape(
        outputs=(
            Output(name="rows_from", expression=low),
            Output(name="rows_to", expression=Call("case", ends, Kind.INTEGER)),
            Output(name="units", expression=Column("a0", Kind.INTEGER)),
        )
    )


def within(relation: Relation) -> Relation | None:
    """A relation without conditions of which a unit has no fewer rows than of this one; None where there is none.

    Whatever bounds its units bounds these.
    """
    found: Relation = relation
    while isinstance(found, FilterRows | Project | Distinct | Window | PerUnit | JoinRows):
        if isinstance(found, JoinRows):
            if found.kind not in (JoinKind.SEMI, JoinKind.ANTI):
                return None
            found = found.left
        else:
            found = found.input
    return found


def _whole(number: int) -> Literal:
    return Literal(number, Kind.INTEGER)
