"""Random questions, each written twice: for dither, and as plain SQL that clamps where dither clamps.

What both have in common is the text of scalar expressions, conditions and FROM clauses, which must mean the same on
both sides. Aggregates are written by two hands: nothing here reads a plan, a grid or a range that dither derives.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from .tables import DAYS, LISTED, MOMENTS, ROWS

B, I, D, T = "boolean", "integer", "double", "text"  # noqa: E741


@dataclass(frozen=True)
class Number:
    """An expression; its kind; the step and bounds of all its values, where there are any.

    ``clamp`` says that the owner's bounds are narrower than the values, so that plain SQL must clamp by itself.
    """

    text: str
    kind: str = I
    low: float | None = None
    high: float | None = None
    step: Fraction | None = Fraction(1)
    clamp: bool = False

    @property
    def size(self):
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Check:
    """How one column is compared: ``law`` is exact, near, quantile or mode; ``slack`` what near means.

    Where it is ``by_rows``, it is that of ROWS rows of a unit: joins multiply them, and the grid is so much coarser.
    """

    name: str
    law: str
    slack: float = 0.0
    share: Fraction = Fraction(1, 2)
    empty: str = "zero"
    by_rows: bool = False

    def holds(self, value, truth, rows=ROWS):
        if isinstance(truth, list):
            truth = [one for one in truth if one is not None]
        if truth is None or truth == []:
            # an empty group: counts and sums are 0, everything else tells nothing
            return value == 0 if self.empty == "zero" else True
        if self.law == "quantile":
            below = sum(one < value - self.slack for one in truth)
            upto = sum(one <= value + self.slack for one in truth)
            return below <= self.share * len(truth) <= upto
        if self.law == "mode":
            return truth.count(value) == max(map(truth.count, truth))
        if self.law == "exact":
            return value == truth
        # sums of doubles are rounded in their last digits, in another way by DuckDB
        slack = self.slack * max(1, rows / ROWS) if self.by_rows else self.slack
        return math.isclose(value, truth, rel_tol=1e-9, abs_tol=slack + 1e-9)


@dataclass(frozen=True)
class Asked:
    """The same question twice; ``keys`` are the public values of each key, or None where they are discovered."""

    sql: str
    plain: str
    keys: tuple
    checks: tuple
    filtered: bool = False


# ------------------------------------------------------------------ scalars

_CENT, _QUARTER = Fraction(1, 100), Fraction(1, 4)
# of columns whose values keep to their bounds, or that clamp themselves; {a} is the alias of the table
NUMBERS = (
    Number("{a}i", I, -20, 20),
    Number("{a}j", I, 0, 1000, Fraction(5)),
    Number("{a}h", I, 0, 24),
    Number("{a}h * 60", I, 0, 1440, Fraction(60)),
    Number("{a}j / 10", D, 0, 100, Fraction(1, 2)),
    Number("{a}i * 3 - 7", I, -67, 53),
    Number("{a}i + {a}j", I, -20, 1020),
    Number("{a}i - {a}h", I, -44, 20),
    Number("-{a}i", I, -20, 20),
    Number("abs({a}i)", I, 0, 20),
    Number("{a}h // 5", I, 0, 4),
    Number("{a}i % 7", I, -6, 6),
    Number("greatest({a}i, 3)", I, 3, 20),
    Number("least({a}x, 2.5)", D, -10, 2.5, _CENT),
    Number("coalesce({a}h, 7)", I, 0, 24),
    Number("nullif({a}h, 3)", I, 0, 24),
    Number("CASE WHEN {a}b THEN {a}h ELSE -1 END", I, -1, 24),
    Number("CASE WHEN {a}i > 3 THEN {a}x WHEN {a}i < -3 THEN 0.5 END", D, -10, 10, _CENT),
    Number("if({a}b, {a}j, 0)", I, 0, 1000, Fraction(5)),
    Number("CAST({a}b AS INTEGER)", I, 0, 1),
    Number("sign({a}i)", I, -1, 1),
    Number("month({a}d)", I, 1, 12),
    Number("isodow({a}d)", I, 1, 7),
    Number("hour({a}s)", I, 0, 23),
    Number("{a}x", D, -10, 10, _CENT),
    Number("{a}x * 2", D, -20, 20, _CENT),
    Number("{a}x * 0.1", D, -1, 1, Fraction(1, 1000)),
    # the double 3 * 0.1 is a little above the step that it is meant to be
    Number("({a}h + 3) * 0.1", D, 0.3, 2.7, Fraction(1, 10)),
    Number("{a}x + {a}i", D, -30, 30, _CENT),
    Number("{a}x - 0.25", D, -10.25, 9.75, _CENT),
    Number("{a}x / 4", D, -2.5, 2.5, Fraction(1, 400)),
    Number("round({a}x, 1)", D, -10, 10, Fraction(1, 10)),
    Number("floor({a}x)", D, -10, 10),
    Number("ceil({a}x)", D, -10, 10),
    Number("trunc({a}x)", D, -10, 10),
    Number("round({a}j, -1)", I, 0, 1000, Fraction(10)),
    Number("CAST({a}x AS INTEGER)", I, -10, 10),
    Number("{a}y", D, 0, 8, None),
    Number("{a}y * {a}y", D, 0, 64, None),
    Number("sqrt({a}h)", D, 0, 5, None),
    Number("{a}y ^ 2", D, 0, 64, None),
    Number("{a}m", D, 0, 500, _CENT),
    Number("{a}m * {a}h", D, 0, 12_000, _CENT),
    Number("{a}z", D, -1, 5, _QUARTER, clamp=True),
    Number("least(greatest({a}w, -3), 7.5)", D, -3, 7.5, None),
    Number("least(greatest({a}n, -100), 300)", I, -100, 300),
)
# of which nothing is known: the question states bounds
UNBOUNDED = (
    Number("{a}w", D, step=None),
    Number("{a}n"),
    Number("length({a}g)"),
    Number("date_diff('day', DATE '2024-01-01', {a}d)"),
    Number("{a}n // 60 * 60", I, step=None),
    Number("{a}w * 2", D, step=None),
    Number("{a}id % 97"),
)
PAIRS = (
    *((0, 100), (0, 50), (0, 7), (-7, 13), (3, 9), (-9, -2), (0.5, 7.25), (2.5, 2.75), (-33.3, 12.34)),
    *((-1_000_000, 1_000_000), (0, 0.1), (1, 1_000_007), (-0.001, 61)),
)
CONDITIONS = (
    *("{a}i > 3", "{a}i <= -3", "{a}x < 2.5", "{a}x >= 0.29", "{a}h BETWEEN 5 AND 12", "{a}b", "NOT {a}b"),
    *("{a}g IS NULL", "{a}g IS NOT NULL", "{a}k = 'O''Brien'", "{a}k <> 'Bern'", "{a}g IN ('', ' ', 'É')"),
    *("{a}i NOT IN (1, 2, 3)", "{a}g LIKE '%a%'", "{a}g ILIKE 'é%'", "{a}w > 10", "isnan({a}w)"),
    *("isnan({a}x)", "{a}d >= DATE '2024-01-31'", "{a}d < '2024-02-01'", "{a}s > TIMESTAMP '2024-02-28 12:00:00'"),
    *("{a}i IS DISTINCT FROM {a}h", "{a}b IS NOT TRUE", "length({a}g) > 2", "{a}x + {a}i > 0", "{a}n < 0"),
    *("{a}m > 100", "{a}m = 0 OR {a}h % 2 = 1", "{a}y * 2 > 5", "{a}i / 3 > 1", "coalesce({a}i, 0) = 0"),
    *("year({a}d) = 2024", "starts_with({a}g, 'B')", "{a}w <> 7.25", "lower({a}g) = 'é'", "{a}g <> 'x;--'"),
)
# what is within the bounds of d and s
_DAYS = tuple(DAYS[0] + timedelta(days=n) for n in range((DAYS[1] - DAYS[0]).days + 1))
_MONTHS = sorted({day.replace(day=1) for day in _DAYS})
_HOURS = tuple(MOMENTS[0] + timedelta(hours=n) for n in range(int((MOMENTS[1] - MOMENTS[0]) / timedelta(hours=1)) + 1))
_DATES = tuple(sorted({hour.date() for hour in _HOURS}))
# a midnight is a day, whatever it was cut to
_HOURS = tuple(hour if hour.hour else hour.date() for hour in _HOURS)
# text; its values, where they are public
KEYS = (
    ("{a}k", LISTED),
    ("{a}k", LISTED),
    ("{a}b", (True, False)),
    ("{a}g", None),
    ("{a}i // 5", tuple(range(-4, 5))),
    ("{a}h", tuple(range(25))),
    ("{a}i % 3", (-2, -1, 0, 1, 2)),
    ("upper({a}k)", None),
    ("coalesce({a}k, '?')", ("?", *LISTED)),
    ("CASE WHEN {a}x > 0 THEN 'above' WHEN {a}x <= 0 THEN 'below' END", ("above", "below", None)),
    ("month({a}d)", (1, 12)),
    ("date_trunc('month', {a}d)", tuple(_MONTHS)),
    ("{a}d", _DAYS),
    ("{a}g || '!'", None),
    ("{a}x", tuple(n / 100 for n in range(-1000, 1001))),
    ("{a}w", None),
    ("{a}n", None),
    ("left({a}g, 1)", None),
    ("{a}i > {a}h", (True, False)),
    ("floor({a}x)", tuple(map(float, range(-10, 11)))),
    ("year({a}d) * 100 + month({a}d)", tuple(day.year * 100 + day.month for day in _MONTHS)),
    ("hour({a}s)", tuple(range(24))),
    ("CAST({a}s AS DATE)", _DATES),
    ("date_trunc('hour', {a}s)", _HOURS),
)
# the values beside a key that isn't public: only what doesn't follow from a calendar or a step
BESIDE = {
    "month({a}d)": tuple(range(1, 13)),
    **dict.fromkeys(("date_trunc('month', {a}d)", "{a}d", "{a}x", "year({a}d) * 100 + month({a}d)")),
    **dict.fromkeys(("CAST({a}s AS DATE)", "date_trunc('hour', {a}s)")),
}


def _listed(keys):
    """The public values of each key; as many as there are only if all keys are public."""
    if all(values is not None for _, values in keys):
        return tuple(values for _, values in keys)
    return tuple(BESIDE.get(text, values) for text, values in keys)


def clean(text, kind):
    """NaN is missing for every aggregate."""
    return f"nullif(CAST({text} AS DOUBLE), CAST('nan' AS DOUBLE))" if kind == D else f"({text})"


def clamped(text, kind, low, high):
    """A number between two ends, NULL where it is missing."""
    value = clean(text, kind)
    ends = [f"CAST('{end}' AS DOUBLE)" if kind == D or end != int(end) else str(int(end)) for end in (low, high)]
    return f"CASE WHEN {value} IS NOT NULL THEN least(greatest({value}, {ends[0]}), {ends[1]}) END"


class Asking:
    """One question about a FROM clause whose columns are those of a table, under an alias."""

    def __init__(self, random):
        self.random = random

    def _pick(self, choices):
        return self.random.choice(choices)

    def condition(self, alias):
        one = self._pick(CONDITIONS).format(a=alias)
        if self.random.random() < 0.35:
            one = f"({one}) {self._pick(('AND', 'OR'))} NOT ({self._pick(CONDITIONS).format(a=alias)})"
        return one

    # aggregates: (dither's text, plain text, check)

    def aggregate(self, alias, unit):
        form = self._pick(
            (
                *("count", "count", "present", "distinct", "if", "sum", "sum", "sum", "sum", "avg", "avg"),
                *("spread", "pair", "quantile", "quantile", "mode", "units" if unit else "count"),
            )
        )
        found = getattr(self, f"_{form}")(alias)
        if self.random.random() < 0.2:
            over = f" FILTER (WHERE {self.condition(alias)})"
            return f"{found[0]}{over}", f"{found[1]}{over}", found[2]
        return found

    def _count(self, _):
        return "COUNT(*)", "count(*)", Check("count", "exact")

    def _units(self, alias):
        return f"COUNT(DISTINCT {alias}u)", f"count(DISTINCT {alias}u)", Check("units", "exact")

    def _present(self, alias):
        number = self._pick((*NUMBERS, *UNBOUNDED))
        text, kind = (number.text.format(a=alias), number.kind)
        if self.random.random() < 0.4:
            text, kind = self._pick((f"{alias}g", f"{alias}d", f"{alias}b", f"nullif({alias}g, '')")), T
        return f"COUNT({text})", f"count({clean(text, kind)})", Check("present", "exact")

    def _distinct(self, alias):
        text = self._pick(("{a}g", "{a}k", "{a}i", "{a}x", "{a}w", "{a}d", "{a}n % 7", "lower({a}g)", "{a}b", "{a}s"))
        text = text.format(a=alias)
        return f"COUNT(DISTINCT {text})", f"count(DISTINCT {text})", Check("distinct", "exact")

    def _if(self, alias):
        text = self.condition(alias)
        form = self._pick(("COUNT_IF({})", "SUM({})"))
        return form.format(text), f"count(CASE WHEN {text} THEN 1 END)", Check("if", "exact")

    def number(self, alias):
        """A number, the named argument that bounds it, and the same number clamped in plain SQL."""
        number = self._pick((*NUMBERS, *UNBOUNDED, *UNBOUNDED[:2]))
        text = number.text.format(a=alias)
        named = ""
        if number.low is None or self.random.random() < 0.35:
            fitting = [p for p in PAIRS if number.low is None or (number.low <= p[0] and p[1] <= number.high)]
            if fitting:
                low, high = self._pick(fitting)
                named = f", contribution_bounds_per_row => ({low}, {high})"
                number = Number(text, number.kind, low, high, number.step, clamp=True)
        plain = clamped(text, number.kind, number.low, number.high) if number.clamp else clean(text, number.kind)
        return number, text, named, plain

    def _sum(self, alias):
        number, text, named, plain = self.number(alias)
        whole = number.kind == I and all(float(end).is_integer() for end in (number.low, number.high))
        law = "exact" if whole and number.size / (number.step or 1) * ROWS < 2**30 else "near"
        # without a step each value is rounded to one of 2^30 / ROWS steps, two to the side of a power of two
        fine = number.step is not None and number.size / number.step * ROWS * 1000 < 2**30
        slack = 0.0 if fine else 300 * 2 * number.size * ROWS / 2**30
        return f"SUM({text}{named})", f"sum({plain})", Check(f"sum {law}", law, slack, by_rows=True)

    def _avg(self, alias):
        number, text, named, plain = self.number(alias)
        if self.random.random() < 0.1:
            return f"AVG({alias}b)", f"avg(CAST({alias}b AS INTEGER))", Check("avg", "near", empty="any")
        return (
            f"AVG({text}{named})",
            f"avg({plain})",
            Check("avg", "near", 2 * number.size * ROWS / 2**30, empty="any", by_rows=True),
        )

    def _spread(self, alias):
        number, text, named, plain = self.number(alias)
        name = self._pick(("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"))
        # products of centred values are on a grid of about √(2^30 / ROWS) steps: a few thousand
        area = (number.high - number.low) ** 2
        slack = math.sqrt(area / 1000) if "STD" in name else area / 1000
        # of one row DuckDB says NULL, dither what the bounds allow
        return f"{name}({text}{named})", f"{name}({plain})", Check("spread", "near", slack, empty="any")

    def _pair(self, alias):
        left, right = (self._pick(NUMBERS[:30]) for _ in range(2))
        texts = [one.text.format(a=alias) for one in (left, right)]
        plain = ", ".join(clean(text, one.kind) for text, one in zip(texts, (left, right), strict=True))
        name = self._pick(("COVAR_POP", "COVAR_SAMP"))
        area = (left.high - left.low) * (right.high - right.low)
        return f"{name}({', '.join(texts)})", f"{name}({plain})", Check("pair", "near", area / 500, empty="any")

    def _quantile(self, alias):
        number, text, named, plain = self.number(alias)
        share = self._pick((Fraction(1, 2), Fraction(9, 10), Fraction(1, 4)))
        if share == Fraction(1, 2) and self.random.random() < 0.5:
            sql = f"MEDIAN({text}{named})"
        else:
            sql = f"QUANTILE_CONT({text}, {float(share)}{named})"
        fine = number.step is not None and (number.high - number.low) / number.step < 2**10
        slack = 1e-9 if fine else (number.high - number.low) / 2**15
        return sql, f"list({plain})", Check("quantile", "quantile", slack, share, empty="any")

    def _mode(self, alias):
        text, values = self._pick((("{a}k", LISTED), ("{a}b", (True, False)), ("{a}h", range(25))))
        text = text.format(a=alias)
        among = f"({text}) IN ({', '.join(_literal(value) for value in values)})"
        return f"MODE({text})", f"list(CASE WHEN {among} THEN {text} END)", Check("mode", "mode", empty="any")

    # where rows come from

    def source(self):
        """A FROM clause, the alias of the columns, and whether rows belong to units."""
        form = self._pick(
            ("t", "t", "t", "r", "join", "left", "public", "union", "window", "lookup", "with", "distinct")
        )
        if form in ("t", "r"):
            return f"FROM {form} AS a", "a.", form == "t"
        inner = self.condition("")
        if form == "join":
            return f"FROM t AS a JOIN (SELECT u, i AS o FROM v WHERE {inner}) AS c ON a.u = c.u", "a.", True
        if form == "left":
            return f"FROM t AS a LEFT JOIN (SELECT u, g AS o FROM v WHERE {inner}) AS c ON a.u = c.u", "a.", True
        if form == "public":
            kind, table = self._pick((("JOIN", "t"), ("LEFT JOIN", "t"), ("JOIN", "r"), ("LEFT JOIN", "r")))
            return f"FROM {table} AS a {kind} p AS c ON a.g = c.g", "a.", table == "t"
        if form == "union":
            return f"FROM (SELECT * FROM t WHERE {inner} UNION ALL SELECT * FROM v) AS a", "a.", True
        if form == "window":
            rank = f"row_number() OVER (PARTITION BY u ORDER BY {self._pick(('d', 'i DESC', 'g'))}, id)"
            return f"FROM (SELECT * FROM (SELECT *, {rank} AS place FROM t) WHERE place <= 2) AS a", "a.", True
        if form == "lookup":
            word = self._pick(("IN", "NOT IN"))
            return f"FROM (SELECT * FROM t WHERE u {word} (SELECT u FROM v WHERE {inner})) AS a", "a.", True
        if form == "with":
            return f"FROM (WITH few AS (SELECT * FROM t WHERE {inner}) SELECT * FROM few WHERE id > 5) AS a", "a.", True
        return "FROM (SELECT DISTINCT * FROM t) AS a", "a.", True

    def question(self):
        """The whole of it, twice."""
        if self.random.random() < 0.12:
            return self._per_group()
        if self.random.random() < 0.12:
            return self._per_unit()
        text, alias, unit = self.source()
        keys = [self._pick(KEYS) for _ in range(self._pick((0, 1, 1, 1, 2)))]
        return self._asked(text, alias, unit, keys)

    def _asked(self, text, alias, unit, keys):
        texts = [key.format(a=alias) for key, _ in keys]
        listed = [self.aggregate(alias, unit) for _ in range(self._pick((1, 2, 2, 3)))]
        where = f" WHERE {self.condition(alias)}" if self.random.random() < 0.4 else ""
        group = f" GROUP BY {', '.join(texts)}" if keys else ""
        having = f" HAVING COUNT(*) > {self._pick((1, 2, 5))}" if keys and self.random.random() < 0.15 else ""
        sides = [
            f"SELECT {', '.join([*texts, *(one[side] for one in listed)])} {text}{where}{group}{having}"
            for side in (0, 1)
        ]
        return Asked(
            sides[0],
            sides[1],
            _listed(keys),
            tuple(one[2] for one in listed),
            filtered=bool(having or where or text != f"FROM {text.split()[1]} AS a"),
        )

    def _per_group(self):
        """What one unit adds to a group is clamped."""
        number = self._pick([one for one in NUMBERS if one.step is not None and not one.clamp])
        value = number.text.format(a="")
        key, values = self._pick(KEYS[:5])
        key = key.format(a="")
        low, high = self._pick(((0, 100), (-5, 30), (0.5, 7.25), (0, 50), (1, 2), (-20, -3)))
        summed = f"SUM({value}, contribution_bounds_per_group => ({low}, {high}))"
        sql = f"SELECT {key}, {summed}, COUNT(*) FROM t GROUP BY {key}"
        inner = (
            f"SELECT u, {key} AS key, sum({clean(value, number.kind)}) AS part, count(*) AS n FROM t GROUP BY u, {key}"
        )
        part = f"CASE WHEN part IS NOT NULL THEN least(greatest(CAST(part AS DOUBLE), {low}), {high}) END"
        plain = f"SELECT key, sum({part}), sum(n) FROM ({inner}) GROUP BY key"
        return Asked(sql, plain, (values,), (Check("per group", "near"), Check("count", "exact")))

    def _per_unit(self):
        """A row for each unit first."""
        value = self._pick(
            (
                "SUM(h)",
                "SUM((h + 3) * 0.1)",
                "SUM(y)",
                "AVG(y)",
                "COUNT(*)",
                "MAX(i)",
                "MIN(x)",
                "COUNT(DISTINCT g)",
                "COUNT(b)",
            )
        )
        more = self._pick(("", ", k"))
        having = self._pick(("", " HAVING COUNT(*) > 1"))
        inner = f"SELECT u{more}, {value} AS o FROM t WHERE {self.condition('')} GROUP BY u{more}{having}"
        low, high = self._pick(((0, 100), (0, 50), (0.5, 7.25), (-7, 13)))
        kind = D if any(part in value for part in ("y", "x", ".")) else I
        key = more[2:]
        head, group = (f"{key}, ", f" GROUP BY {key}") if key else ("", "")
        sql = (
            f"SELECT {head}SUM(o, contribution_bounds_per_row => ({low}, {high})), COUNT(*) FROM ({inner}) AS q{group}"
        )
        plain = f"SELECT {head}sum({clamped('o', kind, low, high)}), count(*) FROM ({inner}) AS q{group}"
        return Asked(sql, plain, (LISTED,) if key else (), (Check("per unit", "near", 1e-4), Check("count", "exact")))


def _literal(value):
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def question(random):
    """A random question."""
    return Asking(random).question()
