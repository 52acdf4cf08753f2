"""Questions: random SQL over a world's tables, from everything that docs/sql.md lists.

Most of it is supported; what isn't is refused, which costs nothing. Some joins are written although they must be
refused: a rule that lets them through would show in the cells.
"""

from dataclasses import dataclass

from dither.query.kinds import Kind

B, I, D, T, DATE, TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP  # noqa: E741

# Arguments: I, D, N (either), T, B, A (date), S (timestamp), W (either); K is any one kind, the same in a template.
TEMPLATES = {
    B: (
        *("{N} = {N}", "{I} <> {I}", "{N} < {N}", "{D} <= {D}", "{T} > {T}", "{A} >= {W}", "{K} IS DISTINCT FROM {K}"),
        *("{I} IN (1, 2, 3)", "{T} NOT IN ('a', '')", "{K} IS NULL", "{K} IS NOT NULL", "{B} AND {B}", "{B} OR {B}"),
        *("NOT {B}", "isnan({D})", "starts_with({T}, 'a')", "ends_with({T}, {T})", "contains({T}, 'b')"),
        *("{T} LIKE '%a_'", "{T} LIKE '\\'", "{T} ILIKE 'A%'", "CAST({I} AS BOOLEAN)", "CAST({T} AS BOOLEAN)"),
        *("{B} IS TRUE", "{A} < '2024-02-01'", "{S} BETWEEN '2023-01-01' AND '2024-12-31 10:00:00'"),
        *("{D} NOT BETWEEN 0 AND 1", "if({B}, {B}, {B})", "{T} IS NOT DISTINCT FROM {T}"),
    ),
    I: (
        *("{I} + {I}", "{I} - {I}", "{I} * {I}", "-{I}", "abs({I})", "{I} // {I}", "{I} % {I}", "sign({N})"),
        *("greatest({I}, {I}, 3)", "least({I}, {I})", "coalesce({I}, {I})", "nullif({I}, {I})", "length({T})"),
        *("CASE WHEN {B} THEN {I} ELSE {I} END", "CASE WHEN {B} THEN {I} END", "CASE {I} WHEN 1 THEN 5 ELSE 6 END"),
        *("position('a' IN {T})", "year({W})", "quarter({W})", "month({W})", "day({W})", "isodow({W})"),
        *("dayofyear({W})", "week({W})", "hour({S})", "minute({S})", "second({S})", "EXTRACT(month FROM {W})"),
        *("date_diff('day', {A}, {W})", "date_diff('second', {S}, {S})", "date_diff('week', {W}, {A})"),
        *("CAST({D} AS INTEGER)", "CAST({T} AS BIGINT)", "CAST({B} AS INTEGER)", "round({I}, -1)", "floor({I})"),
        *("date_diff('month', {W}, {W})", "mod({I}, 3)", "9223372036854775807", "{I} * 4611686018427387904"),
    ),
    D: (
        *(
            "{D} + {N}",
            "{N} - {D}",
            "{D} * {D}",
            "-{D}",
            "abs({D})",
            "{N} / {N}",
            "{D} ^ {I}",
            "pow({N}, 2)",
            "sqrt({N})",
        ),
        *("exp({N})", "ln({N})", "log10({N})", "log2({D})", "floor({D})", "ceil({D})", "trunc({D})", "round({D})"),
        *("round({D}, 2)", "round({D}, -3)", "greatest({D}, 0.5)", "least({D}, {D})", "coalesce({D}, 0.0)"),
        *("nullif({D}, {D})", "CASE WHEN {B} THEN {D} ELSE {N} END", "CAST({I} AS DOUBLE)", "CAST({T} AS DOUBLE)"),
        *("CAST({D} AS DECIMAL(10, 2))", "CAST({T} AS FLOAT)", "floor({D} / 10) * 10"),
    ),
    T: (
        *("lower({T})", "upper({T})", "trim({T})", "ltrim({T})", "rtrim({T})", "substring({T}, 1, 1)", "left({T}, 2)"),
        *("right({T}, 1)", "{T} || {T}", "concat({T}, 'z')", "replace({T}, 'a', '')", "coalesce({T}, '?')"),
        *("nullif({T}, '')", "CASE WHEN {B} THEN {T} ELSE 'other' END", "CAST({K} AS VARCHAR)", "greatest({T}, 'b')"),
        *("CASE WHEN {B} THEN 'high' ELSE 'low' END", "least({T}, {T})", "CAST({D} AS VARCHAR)"),
    ),
    DATE: (
        *("date_trunc('month', {A})", "date_trunc('week', {A})", "date_trunc('quarter', {A})", "{A} + INTERVAL 3 DAY"),
        *("{A} - INTERVAL 1 MONTH", "{A} + INTERVAL 9000 YEAR", "CAST({S} AS DATE)", "CAST({T} AS DATE)"),
        *("coalesce({A}, DATE '2024-01-31')", "greatest({A}, {A})", "CASE WHEN {B} THEN {A} END", "nullif({A}, {A})"),
    ),
    TS: (
        *("date_trunc('hour', {S})", "date_trunc('year', {S})", "{S} + INTERVAL 90 MINUTE", "{A} + INTERVAL 5 HOUR"),
        *("{S} - INTERVAL 20000 WEEK", "CAST({A} AS TIMESTAMP)", "CAST({T} AS TIMESTAMP)", "least({S}, {S})"),
        *("CASE WHEN {B} THEN {S} ELSE {S} END", "coalesce({S}, {S})", "date_trunc('minute', {S})"),
    ),
}
LITERALS = {
    B: ("TRUE", "FALSE"),
    I: ("0", "1", "2", "7", "-3", "9223372036854775807"),
    D: ("0.0", "0.5", "-1.5", "1e300", "100.0"),
    T: ("'a'", "''", "'O''Brien'", "'é'"),
    DATE: ("DATE '2024-01-31'", "DATE '9999-12-31'"),
    TS: ("TIMESTAMP '2024-01-31 10:00:00'", "TIMESTAMP '0001-01-01 00:00:00'"),
}
_SLOTS = {"I": (I,), "D": (D,), "N": (I, D), "T": (T,), "B": (B,), "A": (DATE,), "S": (TS,), "W": (DATE, TS)}
_ALL = (B, I, D, T, DATE, TS)


@dataclass(frozen=True)
class Col:
    """A column in scope: how it is written, its kind, whether it is the unit's id."""

    text: str
    kind: Kind
    unit: bool = False


class Asking:
    """Writes one question."""

    def __init__(self, random, world):
        self.random, self.world = random, world
        self.private = [name for name, facts in world.schema.tables.items() if facts.private]
        self.public = [name for name, facts in world.schema.tables.items() if not facts.private]
        self.count = 0
        self.named = []

    # expressions

    def fresh(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def expression(self, kind, scope, depth=2):
        """A text of this kind."""
        random = self.random
        own = [col.text for col in scope if col.kind is kind and not (col.unit and random.random() < 0.9)]
        if own and (depth == 0 or random.random() < 0.5):
            return random.choice(own)
        if depth == 0 or random.random() < 0.04:
            return random.choice(LITERALS[kind])
        template = random.choice(TEMPLATES[kind])
        any_kind = random.choice(_ALL)
        parts = template.split("{")
        text = parts[0]
        for part in parts[1:]:
            slot, rest = part[0], part[2:]
            wanted = any_kind if slot == "K" else random.choice(_SLOTS[slot])
            text += self.expression(wanted, scope, depth - 1) + rest
        return f"({text})"

    def predicate(self, scope):
        return self.expression(B, scope, self.random.choice((1, 2)))

    # relations

    def source(self, depth):
        """What stands after FROM, and its columns."""
        random = self.random
        text, scope = self.item(depth)
        for _ in range(random.choice((0, 0, 0, 1, 1, 2)) if depth else 0):
            text, scope = self.joined(text, scope, depth - 1)
        return text, scope

    def item(self, depth):
        alias = self.fresh("a")
        if depth == 0 or self.random.random() < 0.35:
            if self.named and self.random.random() < 0.4:
                name, columns = self.random.choice(self.named)
                return f"{name} AS {alias}", [Col(f"{alias}.{c.text}", c.kind, c.unit) for c in columns]
            return self.table(self.random.choice(self.private), alias)
        text, columns = self.subquery(depth - 1)
        return f"({text}) AS {alias}", [Col(f"{alias}.{c.text}", c.kind, c.unit) for c in columns]

    def table(self, name, alias):
        facts = self.world.schema.tables[name]
        columns = [Col(f"{alias}.{c.name}", c.kind, c.name == facts.unit_column) for c in facts.columns.values()]
        return f"{name} AS {alias}", columns

    def joined(self, text, scope, depth):
        random = self.random
        units = [col for col in scope if col.unit]
        word = random.choice(("JOIN", "JOIN", "LEFT JOIN"))
        if self.public and (not units or random.random() < 0.5):
            other, columns = self.table(random.choice(self.public), self.fresh("a"))
            conditions = self.matches(scope, columns) or [self.predicate(scope + columns)]
            if random.random() < 0.1 and word == "JOIN" and self.world.by_unit:
                return f"{text} CROSS JOIN {other}", scope + columns
            return f"{text} {word} {other} ON {' AND '.join(conditions)}", scope + columns
        other, columns = self.item(depth)
        owners = [col for col in columns if col.unit]
        if not units or not owners:
            return text, scope
        conditions = [f"{random.choice(units).text} = {owners[0].text}"]
        if random.random() < 0.3:
            conditions += self.matches(scope, columns)
        columns = [Col(c.text, c.kind, c.unit and word == "JOIN") for c in columns]
        return f"{text} {word} {other} ON {' AND '.join(conditions)}", scope + columns

    def matches(self, left, right):
        """An equality of columns with the same name, and perhaps more."""
        random = self.random
        last = {col.text.rpartition(".")[2]: col for col in left}
        found = [f"{last[n].text} = {c.text}" for c in right if (n := c.text.rpartition(".")[2]) in last and n == "k"]
        if random.random() < 0.3:
            found.append(self.predicate(left + right))
        return found

    def subquery(self, depth):
        """A SELECT whose rows keep their units, and its columns."""
        random = self.random
        choices = ["project", "project", "filter"]
        if self.world.by_unit:
            choices += ["distinct", "per_unit", "per_unit", "window", "window", "union"]
        elif len(self.private) > 1:
            choices += ["union"]
        return getattr(self, "_" + random.choice(choices))(depth)

    def _columns(self, scope, count):
        """Texts and columns of a select list, the unit among them mostly."""
        random = self.random
        texts, columns = [], []
        units = [col for col in scope if col.unit]
        if units and random.random() < 0.9:
            name = self.fresh("c")
            texts.append(f"{units[0].text} AS {name}")
            columns.append(Col(name, units[0].kind, True))
        for _ in range(count):
            kind, name = random.choice((*_ALL, I, D, T)), self.fresh("c")
            name = "k" if kind is T and "k" not in [c.text for c in columns] else name
            texts.append(f"{self.expression(kind, scope, random.choice((0, 0, 1, 2)))} AS {name}")
            columns.append(Col(name, kind))
        return texts, columns

    def _where(self, scope):
        random = self.random
        conditions = [self.predicate(scope)] if random.random() < 0.2 else []
        if random.random() < 0.07:
            conditions += self.lookup(scope)
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def lookup(self, scope):
        random = self.random
        units = [col for col in scope if col.unit]
        word = random.choice(("IN", "NOT IN"))
        if self.public and (not units or random.random() < 0.5):
            return [f"{self.expression(T, scope, 1)} {word} (SELECT k FROM {random.choice(self.public)})"]
        if not units:
            return []
        text, columns = self.item(0)
        own = [col.text for col in columns if col.unit]
        return [f"{units[0].text} {word} (SELECT {own[0]} FROM {text}{self._where(columns)})"] if own else []

    def _project(self, depth, word="SELECT"):
        text, scope = self.source(depth)
        texts, columns = self._columns(scope, self.random.choice((2, 3, 4)))
        return f"{word} {', '.join(texts)} FROM {text}{self._where(scope)}", columns

    def _filter(self, depth):
        text, scope = self.item(0)
        if any("." in col.text.partition(".")[2] for col in scope):
            return self._project(depth)
        columns = [Col(col.text.partition(".")[2], col.kind, col.unit) for col in scope]
        return f"SELECT * FROM {text} WHERE {self.predicate(scope)}", columns

    def _distinct(self, depth):
        return self._project(depth, "SELECT DISTINCT")

    def _per_unit(self, depth):
        random = self.random
        text, scope = self.source(depth)
        units = [col for col in scope if col.unit]
        if not units:
            return self._project(depth)
        unit, name = units[0], self.fresh("c")
        texts, columns, keys = [f"{unit.text} AS {name}"], [Col(name, unit.kind, True)], [unit.text]
        for _ in range(random.choice((0, 0, 1))):
            kind, name = random.choice((T, I, D, B, DATE)), self.fresh("c")
            key = self.expression(kind, [c for c in scope if not c.unit], random.choice((0, 1)))
            if key in LITERALS[kind]:
                continue
            texts.append(f"{key} AS {name}")
            keys.append(key)
            columns.append(Col(name, kind))
        for _ in range(random.choice((1, 2, 3))):
            aggregate, kind = self.inner(scope)
            name = self.fresh("c")
            texts.append(f"{aggregate} AS {name}")
            columns.append(Col(name, kind))
        having = f" HAVING {self.inner(scope)[0]} IS NOT NULL" if random.random() < 0.2 else ""
        return f"SELECT {', '.join(texts)} FROM {text}{self._where(scope)} GROUP BY {', '.join(keys)}{having}", columns

    def inner(self, scope):
        random = self.random
        chosen = random.choice(("count", "count", "sum", "sum", "sum", "avg", "extreme", "extreme", "distinct", "if"))
        extra = f" FILTER (WHERE {self.predicate(scope)})" if random.random() < 0.15 else ""
        if chosen == "count":
            return random.choice(("COUNT(*)", f"COUNT({self.expression(random.choice(_ALL), scope, 1)})")) + extra, I
        if chosen == "if":
            return f"COUNT_IF({self.predicate(scope)})", I
        if chosen == "distinct":
            return f"COUNT(DISTINCT {self.expression(random.choice(_ALL), scope, 1)}){extra}", I
        if chosen == "extreme":
            kind = random.choice(_ALL)
            return f"{random.choice(('MIN', 'MAX'))}({self.expression(kind, scope, 1)}){extra}", kind
        kind = random.choice((I, D, D))
        value = self.expression(kind, scope, random.choice((0, 0, 1)))
        if random.random() < 0.7:
            low, high = random.choice((("0", "100"), ("-1", "1"), ("0.1", "7.5"), ("-1000000", "1e15")))
            value = f"LEAST(GREATEST({value}, {low}), {high})"
            kind = D if "." in low + high or "e" in high else kind
        if chosen == "avg":
            return f"AVG({value}){extra}", D
        return f"SUM({value}){extra}", kind

    def _window(self, depth):
        random = self.random
        text, scope = self.source(depth)
        units = [col for col in scope if col.unit]
        if not units:
            return self._project(depth)
        texts, columns = self._columns(scope, 2)
        windows = []
        for _ in range(random.choice((1, 2))):
            over = f"PARTITION BY {units[0].text}"
            if random.random() < 0.3:
                over += f", {self.expression(random.choice((T, B)), scope, 1)}"
            way = random.choice(("", " DESC", " ASC NULLS FIRST"))
            order = f" ORDER BY {self.expression(random.choice(_ALL), [c for c in scope if not c.unit], 0)}{way}"
            chosen = random.choice(("row_number", "row_number", "rank", "dense_rank", "lag", "first_value", "inner"))
            kind = I
            if chosen == "inner":
                call, kind = self.inner(scope)
                order = order if random.random() < 0.5 else ""
            elif chosen in ("lag", "first_value"):
                kind = random.choice(_ALL)
                value = self.expression(kind, scope, 1)
                offset = random.choice(("", ", 2"))
                call = (
                    f"first_value({value})" if chosen != "lag" else f"{random.choice(('lag', 'lead'))}({value}{offset})"
                )
            else:
                call = f"{chosen}()"
            windows.append((f"{call} OVER ({over}{order})", kind))
        for window, kind in windows:
            name = self.fresh("c")
            texts.append(f"{window} AS {name}")
            columns.append(Col(name, kind))
        qualify = ""
        if random.random() < 0.3:
            ranked = f"row_number() OVER (PARTITION BY {units[0].text} ORDER BY {self.expression(T, scope, 0)})"
            qualify = f" QUALIFY {ranked} <= {random.choice((1, 2))}"
        return f"SELECT {', '.join(texts)} FROM {text}{self._where(scope)}{qualify}", columns

    def _union(self, depth):
        random = self.random
        kinds = [random.choice((I, D, T, DATE)) for _ in range(2)]
        names = [self.fresh("c") for _ in range(3)]
        sides = []
        for side in range(2):
            if self.world.by_unit:
                text, scope = self.item(0)
            else:
                text, scope = self.table(self.private[side], self.fresh("a"))
            units = [col for col in scope if col.unit]
            if self.world.by_unit and not units:
                return self._project(depth)
            own = [D if kind is I and side and random.random() < 0.3 else kind for kind in kinds]
            listed = [f"{self.expression(kind, scope, 1)} AS {name}" for kind, name in zip(own, names[1:], strict=True)]
            listed = [f"{units[0].text} AS {names[0]}", *listed] if units else listed
            sides.append(f"SELECT {', '.join(listed)} FROM {text}{self._where(scope)}")
        unit = [Col(names[0], units[0].kind, True)] if units else []
        columns = [Col(name, kind) for name, kind in zip(names[1:], kinds, strict=True)]
        return " UNION ALL ".join(sides), unit + columns

    # the question

    def aggregate(self, scope):
        random = self.random
        chosen = random.choice(
            (
                *(
                    "count",
                    "count",
                    "units",
                    "distinct",
                    "distinct",
                    "sum",
                    "sum",
                    "sum",
                    "avg",
                    "avg",
                    "moment",
                    "pair",
                ),
                *("quantile", "quantile", "mode"),
            )
        )
        extra = f" FILTER (WHERE {self.predicate(scope)})" if random.random() < 0.15 else ""
        weight = ", weight => 2" if random.random() < 0.05 else ""
        if chosen == "count":
            within = random.choice(("", "", ", contribution_bounds_per_group => (0, 1)"))
            return (
                f"COUNT({random.choice(('*', self.expression(random.choice(_ALL), scope, 1)))}{within}{weight}){extra}"
            )
        if chosen == "units":
            units = [col.text for col in scope if col.unit]
            if units:
                return f"COUNT(DISTINCT {units[0]}){extra}"
            chosen = "distinct"
        if chosen == "distinct":
            return f"COUNT(DISTINCT {self.expression(random.choice(_ALL), scope, random.choice((0, 1)))}){extra}"
        if chosen == "mode":
            return f"MODE({self.expression(random.choice((T, B, I)), scope, 1)}){extra}"
        value, bounds = self.number(scope)
        if chosen == "pair":
            name = random.choice(("COVAR_POP", "COVAR_SAMP", "CORR"))
            return f"{name}({value}, {self.number(scope, clamped=True)[0]}){extra}"
        if chosen == "quantile":
            form = random.choice(("MEDIAN({0}{1})", "QUANTILE_CONT({0}, [0.25, 0.9]{1})"))
            return form.format(value, bounds.replace("per_group", "per_row")) + extra
        names = {
            "sum": ("SUM",),
            "avg": ("AVG", "AVG_PER_UNIT"),
            "moment": ("VAR_SAMP", "VAR_POP", "STDDEV", "STDDEV_POP"),
        }[chosen]
        return f"{random.choice(names)}({value}{bounds}{weight}){extra}"

    def number(self, scope, *, clamped=False):
        """A number and, where nothing bounds it, the bounds of the call."""
        random = self.random
        kind = random.choice((I, D))
        value = self.expression(kind, scope, random.choice((0, 0, 1, 2)))
        if clamped or random.random() < 0.4:
            low, high = random.choice((("0", "100"), ("-2", "3"), ("0.25", "0.75"), ("5", "9"), ("-9", "-5")))
            return f"LEAST(GREATEST({value}, {low}), {high})", ""
        way = random.choice(("per_row", "per_row", "per_group"))
        pair = random.choice(("(0, 10)", "(-3, 3)", "(2, 7)", "(-1e9, 5)"))
        return value, random.choice(("", f", contribution_bounds_{way} => {pair}"))

    def question(self):
        """The whole text."""
        random = self.random
        named = []
        for _ in range(random.choice((0, 0, 0, 0, 0, 1, 2))):
            name = self.fresh("w")
            text, columns = self.subquery(random.choice((0, 1)))
            named.append(f"{name} AS ({text})")
            self.named.append((name, columns))
        text, scope = self.source(random.choice((0, 0, 1, 1, 1, 2)))
        keys = []
        for _ in range(random.choice((0, 0, 1, 1, 1, 2))):
            kind = random.choice((T, T, I, I, D, B, DATE, TS))
            key = self.expression(kind, [c for c in scope if not c.unit], random.choice((0, 0, 0, 1, 2)))
            if key not in LITERALS[kind]:
                keys.append(key)
        listed = [*keys, *(self.aggregate(scope) for _ in range(random.choice((1, 1, 1, 2, 2, 3))))]
        options = []
        if random.random() < 0.15:
            options.append("max_groups_contributed = 1")
        if random.random() < 0.1:
            options.append("max_rows_contributed = 1")
        if random.random() < 0.1:
            options.append("group_selection_strategy = LAPLACE_THRESHOLD")
        clause = f"WITH DIFFERENTIAL_PRIVACY OPTIONS({', '.join(options)}) " if options else ""
        heads = f"WITH {', '.join(named)} " if named else ""
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"{heads}SELECT {clause}{', '.join(listed)} FROM {text}{self._where(scope)}{group}"


# Shapes that broke other systems, or that only one rule holds together: {t} and {s} are private tables with units {u}
# and {v}, {p} a public one.
BY_UNIT = (
    "SELECT c, COUNT(*) FROM (SELECT {u}, SUM(LEAST(GREATEST(x, 0), 100)) AS c FROM {t} GROUP BY {u}) GROUP BY c",
    "SELECT COUNT(DISTINCT c) FROM (SELECT {u}, k, AVG(LEAST(GREATEST(x, -1), 1)) AS c FROM {t} GROUP BY {u}, k)",
    "SELECT c, COUNT(*) FROM (SELECT SUM(LEAST(GREATEST(x, 0.1), 7)) OVER (PARTITION BY {u}) AS c FROM {t}) GROUP BY c",
    "SELECT COUNT(*) FROM (SELECT DISTINCT i FROM {t})",
    "SELECT COUNT(i) FROM (SELECT i FROM {t} QUALIFY row_number() OVER (PARTITION BY {u} ORDER BY k) = 1) AS q",
    "SELECT c, COUNT(*) FROM (SELECT lag(i) OVER (PARTITION BY {u} ORDER BY k) AS c FROM {t}) GROUP BY c",
    "SELECT k, i, COUNT(*), COUNT(DISTINCT x) FROM {t} GROUP BY k, i",
    "SELECT COUNT(*), COUNT(i), COUNT(DISTINCT {u}), COUNT(DISTINCT i) FROM {t}",
    "SELECT i, MEDIAN(LEAST(GREATEST(x, 0), 9)), COUNT(DISTINCT {u}) FROM {t} GROUP BY i",
    "SELECT COUNT(*) FROM {t} WHERE {u} NOT IN (SELECT {v} FROM {s} WHERE i > 1)",
    "SELECT b.k, AVG(LEAST(GREATEST(a.x, -2), 3)) FROM {t} AS a LEFT JOIN {s} AS b ON a.{u} = b.{v} GROUP BY b.k",
    "SELECT COUNT(*) FROM {t} AS a JOIN {s} AS b ON a.{u} = b.{v} AND a.i = b.i",
    "SELECT k, CORR(LEAST(GREATEST(x, -2), 3), LEAST(GREATEST(i, -9), 5)) FROM {t} GROUP BY k",
    "SELECT x, COUNT(*), SUM(LEAST(GREATEST(x, -2), 3)) FROM {t} GROUP BY x",
    "SELECT COUNT(*) FROM {t} WHERE x > 60",
    "SELECT i // 2, COUNT(*), COUNT(DISTINCT position('a' IN k)) FROM {t} GROUP BY i // 2",
)
BY_ROW = (
    "SELECT COUNT(*), COUNT(DISTINCT b.i) FROM {t} AS a JOIN {p} AS b ON a.k = b.k",
    "SELECT b.i, COUNT(*) FROM {t} AS a LEFT JOIN {p} AS b ON a.k = b.k GROUP BY b.i",
    "SELECT k, SUM(LEAST(GREATEST(x, -9), 5)), MEDIAN(LEAST(GREATEST(x, 0), 9)) FROM {t} GROUP BY k",
    "SELECT i, SUM(i, contribution_bounds_per_row => (3, 5)), AVG(LEAST(GREATEST(x, 0), 1)) FROM {t} GROUP BY i",
    "SELECT x, COUNT(*), COUNT(DISTINCT k) FROM {t} GROUP BY x",
    "SELECT COUNT(*) FROM {t} WHERE x > 60",
    "SELECT COUNT(*) FROM {t} WHERE k NOT IN (SELECT k FROM {p})",
)


def directed(random, world):
    """One of the shapes above, about this world's tables."""
    private = [facts for facts in world.schema.tables.values() if facts.private]
    public = [name for name, facts in world.schema.tables.items() if not facts.private]
    t, s = random.choice(private), random.choice(private)
    shape = random.choice(BY_UNIT if world.by_unit else BY_ROW)
    if "{p}" in shape and not public:
        return None
    return shape.format(t=t.name, s=s.name, u=t.unit_column, v=s.unit_column, p=random.choice(public or [""]))


def question(random, world):
    """A random question about a world's tables."""
    shaped = directed(random, world) if random.random() < 0.3 else None
    return Asking(random, world).question() if shaped is None else shaped
