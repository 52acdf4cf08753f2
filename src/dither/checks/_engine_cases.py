"""The measurements on which engines are checked: every function, every relation, every cap."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import Any

from dither.checks.engine_tables import DA, HIGHEST, INF, LOWEST, NAN, TS, B, D, I, T, field, scan
from dither.query.kinds import Call, Column, Expression, Kind, Literal
from dither.query.measure.measures import Bins, Cap, DistinctValues, Measurement, Total
from dither.query.plan import plan

VISITS, PEOPLE, PLACES = scan('vis"its'), scan("people", prefix="d"), scan("places", prefix="e")
NOTES, NOTHING_AT_ALL = scan("notes"), scan("nothing")
WHO, PLACE, N, X, OK, DAY, AT = (Column(f"c{i}", kind) for i, kind in enumerate((I, T, I, D, B, DA, TS)))
LISTED = ("", "east", "north", "o'neil", 'say "hi"', "south", "west", None)


def lit(value: Any, kind: Kind) -> Literal:
    """A constant."""
    return Literal(value, kind)


def call(function: str, kind: Kind, *arguments: Expression) -> Call:
    """A call."""
    return Call(function, arguments, kind)


UP_TO_NINE = Bins(grid=plan.Gridded(expression=Column("c2", D), step=Fraction(1), low=0, high=9))
COUNT = Total(factors=(), present=(), low=0, high=3, cap=Cap.CLAMP)
UNITS_ONLY = Total(factors=(), present=(), low=0, high=1, cap=Cap.CLAMP)
FINE = plan.Gridded(expression=X, step=Fraction(1, 1024), low=-2048, high=102400)
CENTRED = plan.Gridded(expression=X, step=Fraction(1, 100), low=-400, high=10000, offset=4800)
WHOLE = plan.Gridded(expression=N, step=Fraction(1), low=-10, high=10)
COARSE = plan.Gridded(expression=N, step=Fraction(3, 2), low=-(2**28), high=2**28)
HUGE_DOUBLE = plan.Gridded(expression=call("to_double", D, N), step=Fraction(1), low=LOWEST + 1, high=HIGHEST)
HUGE = plan.Gridded(expression=N, step=Fraction(1), low=LOWEST + 1, high=HIGHEST)
SUM = Total(factors=(FINE,), present=(), low=-4096, high=204800, cap=Cap.CLAMP)
MEAN = Total(factors=(CENTRED,), present=(N,), low=-10400, high=10400, cap=Cap.MEAN)
UNIT_MEAN = Total(factors=(CENTRED,), present=(), low=-5200, high=5200, cap=Cap.UNIT_MEAN)
COUNT_MEAN = Total(factors=(), present=(X, N), low=0, high=2, cap=Cap.MEAN)
SQUARE = Total(factors=(WHOLE, WHOLE), present=(), low=0, high=150, cap=Cap.CLAMP)
PRODUCT = Total(factors=(CENTRED, WHOLE), present=(DAY,), low=-(2**17), high=2**17, cap=Cap.MEAN)
ABOVE = Total(factors=(WHOLE,), present=(X,), low=2, high=8, cap=Cap.CLAMP)
WIDE = Total(factors=(COARSE,), present=(), low=-(2**29), high=2**29, cap=Cap.MEAN)
WIDEST = Total(factors=(HUGE,), present=(), low=-(2**57), high=2**57, cap=Cap.CLAMP)
WIDEST_DOUBLE = Total(factors=(HUGE_DOUBLE,), present=(), low=-(2**57), high=2**57, cap=Cap.MEAN)
SCALED = Total(factors=(), present=(X,), low=0, high=80, cap=Cap.SCALE, fine=16)
SCALED_SUM = Total(factors=(FINE,), present=(), low=-4096, high=4096, cap=Cap.SCALE)
SCALED_WIDE = Total(factors=(HUGE,), present=(), low=-(2**30), high=2**30, cap=Cap.SCALE)
SCALED_ONCE = Total(factors=(), present=(), low=0, high=40, cap=Cap.SCALE, fine=32, once=True)
ALL_SCALED = (SCALED, SCALED_SUM, SCALED_WIDE, SCALED_ONCE)
UP = plan.Gridded(expression=X, step=Fraction(1, 100), low=-400, high=10000, offset=-400)
DOWN = plan.Gridded(expression=X, step=Fraction(1, 100), low=-400, high=10000, down=True)
LEFT = plan.Gridded(expression=N, step=Fraction(1), low=-10, high=10, down=True)
DIVIDED = Total(factors=(UP, UP, DOWN), present=(DAY,), low=0, high=2 * 10**6, cap=Cap.MEAN, divisor=10**5)
SHORTENED = Total(factors=(DOWN, LEFT), present=(), low=0, high=30, cap=Cap.CLAMP, divisor=999)
FROM_ABOVE = Total(factors=(LEFT,), present=(), low=0, high=25, cap=Cap.MEAN)
ALL_TOTALS = (
    DIVIDED,
    SHORTENED,
    FROM_ABOVE,
    WIDEST_DOUBLE,
    COUNT,
    UNITS_ONLY,
    SUM,
    MEAN,
    UNIT_MEAN,
    COUNT_MEAN,
    SQUARE,
    PRODUCT,
    ABOVE,
    WIDE,
    WIDEST,
)


def key(expression: Expression, values: tuple[Any, ...] | None = None) -> plan.Key:
    """A group key, public if it has values."""
    return plan.Key(expression=expression, kind=expression.kind, values=values)


def measure(relation: plan.Relation, keys: tuple[plan.Key, ...] = (), **changes: Any) -> Measurement:
    """A measurement of units, with two groups of two rows each where nothing else is said."""
    settings: dict[str, Any] = {"units": "column", "groups": 2, "rows": 2, "totals": (COUNT,)} | changes
    return Measurement(relation=relation, keys=keys, **settings)


def _aggregate(
    function: plan.Inner, argument: Expression | None = None, grid: plan.Gridded | None = None
) -> plan.InnerAggregate:
    return plan.InnerAggregate(function=function, argument=argument, grid=grid)


def _window(function: Any, argument: Expression | None = None, **changes: Any) -> plan.Windowed:
    settings: dict[str, Any] = {"aggregate": None, "offset": 1, "partition": (), "order": ()} | changes
    return plan.Windowed(function=function, argument=argument, **settings)


_INNER = (
    (_aggregate(plan.Inner.COUNT), I),
    (_aggregate(plan.Inner.COUNT, X), I),
    (_aggregate(plan.Inner.COUNT_DISTINCT, X), I),
    (_aggregate(plan.Inner.SUM, N), I),
    (_aggregate(plan.Inner.SUM, X, FINE), D),
    (_aggregate(plan.Inner.AVG, X, FINE), D),
    (_aggregate(plan.Inner.AVG, N), D),
    (_aggregate(plan.Inner.SUM, N, plan.Gridded(expression=N, step=Fraction(5), low=-10, high=10)), I),
    (_aggregate(plan.Inner.MIN, X), D),
    (_aggregate(plan.Inner.MAX, X), D),
    (_aggregate(plan.Inner.MAX, PLACE), T),
    (_aggregate(plan.Inner.MIN, DAY), DA),
)


def _per_unit(keys: tuple[Expression, ...]) -> plan.PerUnit:
    fields = [field(f"g{i}", expression.kind) for i, expression in enumerate(keys)]
    fields += [field(f"a{i}", kind) for i, (_, kind) in enumerate(_INNER)]
    return plan.PerUnit(input=VISITS, keys=keys, aggregates=tuple(a for a, _ in _INNER), fields=tuple(fields))


def _windows() -> plan.Window:
    by_x = (plan.Ordering(expression=X, descending=True, nulls_first=True),)
    by_day = (plan.Ordering(expression=DAY), plan.Ordering(expression=N, descending=True))
    items = (
        (_window("row_number"), I),
        (_window("row_number", order=by_x, partition=(OK,)), I),
        (_window("rank", order=by_x), I),
        (_window("dense_rank", order=by_day), I),
        (_window("lag", PLACE, order=by_day), T),
        (_window("lead", X, order=by_x, offset=2), D),
        (_window("first_value", N, order=by_day), I),
        (_window("aggregate", aggregate=_aggregate(plan.Inner.SUM, N)), I),
        (_window("aggregate", aggregate=_aggregate(plan.Inner.AVG, X, FINE), order=by_day), D),
        (_window("aggregate", aggregate=_aggregate(plan.Inner.COUNT_DISTINCT, X), order=by_x), I),
        (_window("aggregate", aggregate=_aggregate(plan.Inner.MAX, PLACE), partition=(DAY,)), T),
    )
    fields = tuple(field(f"w{i}", kind) for i, (_, kind) in enumerate(items))
    return plan.Window(input=VISITS, items=tuple(item for item, _ in items), fields=VISITS.fields + fields)


def relations() -> dict[str, Measurement]:
    """Every relation and cap, with keys that tell most rows apart."""
    place = key(PLACE, LISTED)
    at_place = call("equal", B, PLACE, Column("e0", T))
    windows, per_unit, per_place = _windows(), _per_unit(()), _per_unit((PLACE,))
    doubled = plan.Project(
        input=VISITS,
        expressions=(PLACE, call("multiply", D, X, lit(2.0, D)), N),
        fields=(field("c1", T), field("c3", D), field("c2", D)),
    )
    above = plan.FilterRows(input=VISITS, predicate=call("greater", B, X, lit(0.0, D)))
    union = plan.Union(inputs=(doubled, doubled), fields=(field("c1", T), field("c3", D), field("c9", D)))
    joins = {
        f"{kind.value} join {name}": measure(
            plan.JoinRows(left=VISITS, right=right, kind=kind, on_unit=on_unit, condition=condition),
            (key(PLACE),) if kind in (plan.JoinKind.SEMI, plan.JoinKind.ANTI) else (key(PLACE), key(column)),
            groups=100,
            totals=(COUNT, SUM),
        )
        for kind in plan.JoinKind
        for name, right, column, on_unit, condition in (
            ("on the unit", PEOPLE, Column("d1", T), True, None),
            ("on the unit and more", PEOPLE, Column("d1", T), True, call("less", B, N, Column("d2", I))),
            ("with a public table", PLACES, Column("e1", T), False, at_place),
        )
    }
    return {
        "nothing at all": measure(NOTHING_AT_ALL),
        "nothing at all, by key": measure(
            NOTHING_AT_ALL,
            (key(Column("c1", T)),),
            bins=(UP_TO_NINE,),
            distinct=(DistinctValues(expression=Column("c2", D)),),
        ),
        "all totals": measure(VISITS, totals=ALL_TOTALS),
        "all totals by public key, every group kept": measure(VISITS, (place,), groups=8, totals=ALL_TOTALS),
        "all totals by public key": measure(VISITS, (place,), totals=ALL_TOTALS),
        "all totals by public key, one group": measure(VISITS, (place,), groups=1, rows=1, totals=ALL_TOTALS),
        "all totals by discovered key": measure(VISITS, (key(PLACE),), groups=3, totals=ALL_TOTALS),
        "scaled totals by public key": measure(VISITS, (place,), groups=8, rows=5, totals=(COUNT, *ALL_SCALED)),
        "totals by two keys": measure(VISITS, (place, key(OK)), groups=3, totals=(COUNT, SUM)),
        "by doubles": measure(VISITS, (key(X, (-0.0, 0.5, NAN, INF, None)),), groups=2, totals=(COUNT, SQUARE)),
        "by dates": measure(VISITS, (key(DAY),), groups=2),
        "by timestamps": measure(VISITS, (key(AT),), groups=2),
        "by integers": measure(VISITS, (key(N, (HIGHEST, 7, LOWEST)),), groups=2),
        "bins": measure(VISITS, totals=(), bins=(Bins(grid=WHOLE), Bins(grid=CENTRED))),
        "bins by key": measure(VISITS, (place,), rows=1, bins=(Bins(grid=WHOLE),)),
        "bins by key, all groups": measure(VISITS, (place,), groups=8, rows=3, bins=(Bins(grid=CENTRED),)),
        "distinct values": measure(VISITS, rows=3, distinct=(DistinctValues(expression=X),)),
        "distinct texts by key": measure(VISITS, (key(OK),), groups=1, distinct=(DistinctValues(expression=PLACE),)),
        "units that are texts": measure(NOTES, (key(Column("c1", T)),), groups=3, bins=(UP_TO_NINE,)),
        "bins of units that are texts": measure(
            NOTES,
            totals=(),
            bins=(UP_TO_NINE,),
        ),
        "filter": measure(above, (place,), groups=8, totals=(COUNT, SUM)),
        "project": measure(doubled, (key(Column("c3", D)),), groups=100),
        "union": measure(union, (key(Column("c9", D)),), groups=100, rows=4),
        "distinct rows": measure(plan.Distinct(input=VISITS), (place,), groups=8, totals=(COUNT, SUM)),
        "per unit and place": measure(
            per_place, tuple(key(Column(f.name, f.kind)) for f in per_place.fields), groups=100
        ),
        "per unit": measure(per_unit, (key(Column("a4", D)), key(Column("a3", I))), groups=1),
        "windows": measure(
            windows, (place, *(key(Column(f.name, f.kind)) for f in windows.fields[len(VISITS.fields) :])), groups=100
        ),
        **joins,
    }


def of_rows() -> dict[str, Measurement]:
    """Measurements in which every row is a unit."""
    place = key(PLACE, LISTED)
    joined = plan.JoinRows(
        left=VISITS,
        right=PLACES,
        kind=plan.JoinKind.SEMI,
        on_unit=False,
        condition=call("equal", B, PLACE, Column("e0", T)),
    )
    return {
        "rows": measure(VISITS, units="row", totals=ALL_TOTALS),
        "rows by key": measure(VISITS, (place,), units="row", totals=ALL_TOTALS),
        "rows by discovered key": measure(VISITS, (key(X), key(OK)), units="row", totals=(COUNT, SUM)),
        "bins of rows": measure(VISITS, (place,), units="row", bins=(Bins(grid=CENTRED),)),
        "distinct values of rows": measure(VISITS, (place,), units="row", distinct=(DistinctValues(expression=X),)),
        "rows of a join": measure(joined, (place,), units="row", totals=(COUNT, SUM)),
    }


def functions() -> dict[str, Call]:
    """Calls of every function, on columns that hold every sort of value."""
    one, zero, two = lit(1, I), lit(0, I), lit(2.0, D)
    region = Column("c1", T)
    result: list[Call] = []
    for name in ("add", "subtract", "multiply"):
        result += [call(name, I, N, N), call(name, I, N, lit(-1, I)), call(name, D, X, X), call(name, D, X, N)]
    for name in ("negate", "abs", "floor", "ceil", "trunc"):
        result += [call(name, I, N), call(name, D, X)]
    result += [call("divide", D, a, b) for a in (X, N) for b in (X, N)]
    result += [call(n, I, N, b) for n in ("integer_divide", "modulo") for b in (N, lit(-2, I), lit(-1, I), zero)]
    result += [call("power", D, a, b) for a, b in ((X, X), (X, lit(0.5, D)), (N, lit(-1, I)), (lit(-2.0, D), N))]
    result += [call(n, D, a) for n in ("sqrt", "exp", "ln", "log10", "log2") for a in (X, N)]
    result += [call("round", D, X), call("round", I, N)]
    result += [call("round", k, a, lit(d, I)) for k, a in ((D, X), (I, N)) for d in (-2, -1, 0, 1, 15)]
    result += [call("sign", I, X), call("sign", I, N), call("is_nan", B, X)]
    result += [call(n, D, X, two, lit(NAN, D)) for n in ("greatest", "least")]
    result += [call(n, k, a, b) for n in ("greatest", "least") for k, a, b in ((T, PLACE, lit("m", T)), (I, N, one))]
    comparisons = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "distinct_from")
    noon = lit(dt.datetime(2024, 1, 1), TS)  # noqa: DTZ001
    pairs = [*((X, other) for other in (lit(NAN, D), lit(0.0, D), N)), *((N, other) for other in (one, lit(None, I)))]
    pairs += [(PLACE, lit("north", T)), (DAY, AT), (DAY, noon), (OK, OK)]
    result += [call(name, B, a, b) for name in comparisons for a, b in pairs]
    result += [
        call("in", B, X, lit(NAN, D), lit(-0.0, D)),
        call("in", B, PLACE, lit("o'neil", T), lit(None, T)),
        call("in", B, N, lit(HIGHEST, I), lit(LOWEST, I), one),
        call("is_null", B, X),
        call("is_not_null", B, PLACE),
        call("and", B, OK, call("is_nan", B, X)),
        call("or", B, OK, call("is_nan", B, X)),
        call("not", B, OK),
        call("case", D, OK, X, call("is_nan", B, X), two, lit(None, D)),
        call("coalesce", D, X, two),
        call("coalesce", T, PLACE, lit("", T)),
        call("nullif", D, X, lit(0.0, D)),
        call("nullif", T, PLACE, lit("north", T)),
    ]
    result += [call(name, T, region) for name in ("lower", "upper", "trim", "ltrim", "rtrim")]
    spaced = call("concat", T, lit("  É", T), region, lit(" \t ", T))
    result += [call(name, T, spaced) for name in ("lower", "upper", "trim", "ltrim", "rtrim")]
    result += [call("length", I, spaced), call("concat", T, region, region, region)]
    result += [
        call("substring", T, spaced, lit(a, I), lit(b, I)) for a, b in ((1, 3), (3, 2**31 - 1), (1000, 1), (2, 0))
    ]
    result += [call(name, T, spaced, lit(n, I)) for name in ("left", "right") for n in (0, 2, 2**31 - 1)]
    result += [
        call("replace", T, region, lit(a, T), lit(b, T)) for a, b in (("o", "ö"), ("", "x"), ("'", "''"), ("t", ""))
    ]
    texts = ("", "o", "'", '"', "th", "É")
    result += [call(n, B, spaced, lit(t, T)) for n in ("starts_with", "ends_with", "contains") for t in texts]
    patterns = ("%", "", "n%", "%o%", "_orth", "o'n__l", "%\\%", "NORTH", "%É%", "[n]%", "%.*%")
    result += [call(n, B, region, lit(p, T)) for n in ("like", "ilike") for p in patterns]
    result += [call("position", I, lit(t, T), spaced) for t in texts]
    parts = ("year", "quarter", "month", "day", "day_of_week", "day_of_year", "week")
    result += [call(name, I, when) for name in parts for when in (DAY, AT)]
    result += [call(name, I, AT) for name in ("hour", "minute", "second")]
    days, clocks = ("year", "quarter", "month", "week", "day"), ("hour", "minute")
    result += [call("date_trunc", when.kind, lit(u, T), when) for u in days for when in (DAY, AT)]
    result += [call("date_trunc", TS, lit(u, T), when) for u in clocks for when in (DAY, AT)]
    amounts = (one, lit(-13, I), N, lit(HIGHEST, I))
    result += [call("date_add", w.kind, w, n, lit(u, T)) for u in days for w in (DAY, AT) for n in amounts]
    result += [call("date_add", TS, w, n, lit(u, T)) for u in (*clocks, "second") for w in (DAY, AT) for n in amounts]
    result += [
        call("date_diff", I, lit(u, T), a, b)
        for u in (*days, *clocks, "second")
        for a, b in ((DAY, AT), (AT, noon), (lit(dt.date(2024, 1, 7), DA), DAY))
    ]
    written = call("to_text", T, X)
    forms = ["", " 12 ", "+7", "1_000", "1e3", "0x10", "12.5", ".5", "nan", "inf", "1e999", "TRUE", "t", "yes"]
    forms += ["infinity", "é", "12\n"]
    forms += [str(HIGHEST), str(HIGHEST + 1), "2024-02-29", "2023-02-29", "2024-1-5", "0000-01-01", "10000-01-01"]
    forms += ["2024-02-29 12:30", "2024-02-29 12:30:61", "2024-02-29 23:59:59.5", "2024-02-29T24:00"]
    for name, kind in (("to_boolean", B), ("to_integer", I), ("to_double", D), ("to_date", DA), ("to_timestamp", TS)):
        result += [call(name, kind, call("concat", T, call("left", T, region, zero), lit(form, T))) for form in forms]
        result += [call(name, kind, region)]
    result += [call("to_boolean", B, N), call("to_boolean", B, OK), call("to_integer", I, X), call("to_integer", I, OK)]
    result += [*(call("to_double", D, value) for value in (N, OK, written)), call("to_integer", I, written)]
    result += [call("to_text", T, column) for column in (N, X, OK, DAY, AT, PLACE)]
    result += [call(name, kind, when) for name, kind in (("to_date", DA), ("to_timestamp", TS)) for when in (AT, DAY)]
    return {f"{i} {expression.function}": expression for i, expression in enumerate(result)}
