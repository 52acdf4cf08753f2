"""Measurements as SQL: keys, values on their grids, the bound on each unit, totals.

The order of steps is what privacy rests on: every unit's rows are folded into one row per group; groups whose keys
aren't public are left out; of the others the unit keeps so many; what it adds to each is capped; only then units are
added up. Nothing after the fold looks at more than one unit until the last step.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dither.engines.relations import UNIT, Dialect, Relations, Select, closed, names_in
from dither.errors import InvalidParameter
from dither.query.kinds import Expression, Kind
from dither.query.measure.measures import Cap, Measurement, Total
from dither.query.plan.plan import Gridded, Key

LARGEST_CELL = 2**62
# A limit that nothing reaches keeps optimisers from testing keys row by row before they group, which costs more than
# all the rest, and from giving up grouping before a join.
_FENCE = f"LIMIT {2**62}"

KEPT = "_kept"
"""The name under which an engine puts the rows that units keep."""


@dataclass(frozen=True, slots=True)
class Steps:
    """One or two queries. Where units have to choose, the engine runs ``units`` first, a row for each unit and group.

    It keeps for each unit (column ``u``) the ``groups`` rows with the smallest ``_h``, ties by the keys, and puts them
    where ``final`` reads them as ``_kept``.
    """

    units: str | None
    final: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an engine lists values of a unit within a group.

    Both make from rows with unit, keys and a column ``v`` a relation with a row for each unit and group, in which ``l``
    is a list: for ``bins`` a sample of the rows' values, at most so many, for ``values`` all different ones; a list
    with one NULL where there is nothing. Arguments: rows, columns of unit and keys; for ``bins`` how many, salt.
    """

    bins: Callable[[str, Sequence[str], int, int], str]
    values: Callable[[str, Sequence[str]], str]
    unnest: Callable[[str], str]


def salt_number(salt: bytes, purpose: str) -> int:
    """64 bits of the salt, different ones for each purpose."""
    return int.from_bytes(hashlib.blake2b(salt, digest_size=8, person=purpose.encode()).digest(), "big")


class CellsSql:
    """The queries of one measurement: groups with their totals, and one more for each histogram or distinct count."""

    def __init__(self, relations: Relations, sampling: Sampling, measurement: Measurement, salt: bytes) -> None:
        if measurement.groups < 1 or measurement.rows < 1:
            raise InvalidParameter("a unit must be allowed at least one group and one row in it")
        self._dialect: Dialect = relations.dialect
        self._sampling, self._measurement, self._salt = sampling, measurement, salt
        self._relations = relations
        self._by_unit = measurement.units == "column"
        self._keys = [f"_k{i}" for i in range(len(measurement.keys))]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the keys in every result."""
        return tuple(self._keys)

    @property
    def most_groups(self) -> int | None:
        """How many groups a unit keeps; None where it can't have more than that many anyway."""
        return self._measurement.most_groups

    # ------------------------------------------------------------------ totals

    def totals(self) -> Steps:
        """Keys, then a column ``_t0``, ``_t1``, … for each total, in ascending order of the keys."""
        parts, columns = _parts(self._measurement.totals, self._dialect)
        if not self._by_unit:
            return Steps(None, self._by_public_key(columns, parts))
        rows = self._keyed(columns, public=False)
        partials = dict(partial for part in parts for partial in part.partials())
        grouped = replace(rows, columns=_only(rows.columns, [UNIT, *self._keys]) | partials)
        by = ", ".join(rows.columns[name] for name in (UNIT, *self._keys))
        where = self._where(self._r_keys)
        units = closed(f"{grouped.sql} GROUP BY {by}{f' {_FENCE}' if where else ''}", grouped.columns)
        capped = {part.name: part.capped(self._measurement.rows) for part in parts}
        cells = {part.name: part.of_units() for part in parts}
        return self._steps(replace(units, where=where), capped, lambda kept: self._by_key(kept, cells))

    def _steps(self, units: Select, payload: Mapping[str, str], final: Callable[[Select], str]) -> Steps:
        """Units choose their groups where they may have too many."""
        keys = _only(units.columns, self._keys)
        names = [*keys, *payload]
        if self.most_groups is None:
            return Steps(None, final(replace(units, columns={**keys, **payload}).nested()))
        own = _only(units.columns, [UNIT]) | keys
        rank = {"_h": self._dialect.rank(salt_number(self._salt, "groups"), list(own.values()))}
        kept = Select(relation=f"{KEPT} AS r", columns={name: f"r.{name}" for name in names})
        return Steps(replace(units, columns={**own, **rank, **payload}).sql, final(kept))

    def _by_public_key(self, columns: Sequence[_Column], parts: Sequence[_Part]) -> str:
        """Totals of rows: where no unit chooses between groups, those of other keys can be left out at the end."""
        cells = {part.name: part.of_rows() for part in parts}
        rows, where = self._keyed(columns, public=False), self._where(self._r_keys)
        if not where:
            return self._by_key(rows, cells)
        grouped = closed(f"{self._grouped(rows, cells)} {_FENCE}", [*self._keys, *cells])
        return f"{replace(grouped, where=where).sql} ORDER BY {self._order}"

    def _by_key(self, rows: Select, cells: Mapping[str, str]) -> str:
        order = f" ORDER BY {', '.join(f'{rows.columns[key]} ASC NULLS LAST' for key in self._keys)}"
        limit = "" if self._keys or cells else " LIMIT 1"
        return f"{self._grouped(rows, cells)}{order if self._keys else limit}"

    def _grouped(self, rows: Select, cells: Mapping[str, str]) -> str:
        keys = _only(rows.columns, self._keys)
        by = f" GROUP BY {', '.join(keys.values())}" if keys else ""
        return f"{replace(rows, columns={**keys, **cells}).sql}{by}"

    @property
    def _r_keys(self) -> list[str]:
        return [f"r.{key}" for key in self._keys]

    @property
    def _order(self) -> str:
        return ", ".join(f"{key} ASC NULLS LAST" for key in self._r_keys)

    # ------------------------------------------------------------------ bins and distinct values

    def bins(self, place: int) -> Steps:
        """Number of the group (from 0, in the order of ``totals``), bin (NULL: nothing there), count."""
        grid = self._measurement.bins[place].grid
        column = _Column("v", (grid.expression,), lambda x: self._dialect.grid(x, grid.expression.kind, grid))
        return self._sampled(column, self._sampling.bins, f"bins {place}", self._counted)

    def values_of_units(self, place: int) -> str:
        """Without keys: the unit and bin of every row that has one, for engines that sample better than their SQL."""
        grid = self._measurement.bins[place].grid
        column = _Column("v", (grid.expression,), lambda x: self._dialect.grid(x, grid.expression.kind, grid))
        rows = self._keyed([column])
        return replace(rows, where=(*rows.where, f"{rows.columns['v']} IS NOT NULL")).sql

    def rank_of_units(self, place: int) -> str:
        """The salted hash of a unit ``r.u`` that starts its sample."""
        return self._dialect.rank(salt_number(self._salt, f"bins {place}"), [f"r.{UNIT}"])

    def _counted(self, rows: Select) -> str:
        own = _only(rows.columns, [*self._keys, "v"])
        counted = f"{replace(rows, columns=own | {'n': 'count(*)'}).sql} GROUP BY {', '.join(own.values())}"
        group = f"dense_rank() OVER (ORDER BY {self._order}) - 1" if self._keys else "0"
        return f"SELECT CAST({group} AS BIGINT) AS g, CAST(r.v AS BIGINT) AS v, r.n FROM ({counted}) AS r ORDER BY g, v"

    def distinct(self, place: int) -> Steps:
        """Where rows are units: a number ``n`` for each group, in the order of ``totals``."""
        rows = self._keyed([self._value(place)])
        return Steps(None, self._by_key(rows, {"n": f"count(DISTINCT {rows.columns['v']})"}))

    def vouched(self, place: int, most: int) -> Steps:
        """Which units have which values, but for values that a unit is left for, whatever the others are handed.

        A row with the number ``g`` of each group and how many such values ``n`` it has; and for every other value a row
        with its group, without ``n``, for each unit ``o`` that has it. Of V values the others fill at most
        ⌊(V − 1)/most⌋ units: a value that more units have can be taken away, and the largest matching is smaller by
        one then. This goes on from the value that most units have, and where it ends no other can be taken.
        """
        rows = self._keyed([self._value(place)])

        def final(kept: Select) -> str:
            keys = ", ".join(f"r.{key}" for key in self._keys)
            number = f"dense_rank() OVER (ORDER BY {self._order}) - 1" if keys else "0"
            listed = f", {keys}" if keys else ""
            same = " AND ".join(f"r.{key} IS NOT DISTINCT FROM k.{key}" for key in self._keys) or "TRUE"
            return (
                f"WITH p AS MATERIALIZED (SELECT DISTINCT r.o, r.v{listed} FROM ({kept.sql}) AS r), "
                f"k AS MATERIALIZED (SELECT CAST({number} AS BIGINT) AS g{listed} FROM (SELECT DISTINCT "
                f"{keys or '1 AS _one'} FROM p AS r) AS r), "
                f"e AS MATERIALIZED (SELECT k.g, r.o, r.v FROM p AS r JOIN k ON {same} WHERE r.v IS NOT NULL), "
                "d AS (SELECT g, v, count(*) AS c, row_number() OVER (PARTITION BY g ORDER BY count(*) DESC, v) AS a, "
                "count(*) OVER (PARTITION BY g) AS s FROM e GROUP BY g, v), "
                f"f AS MATERIALIZED (SELECT g, v, a, s, min(a) FILTER (WHERE c <= (s - a) // {most}) "
                "OVER (PARTITION BY g) AS b FROM d) "
                "SELECT k.g, CAST(coalesce(max(f.b) - 1, max(f.s), 0) AS BIGINT) AS n, NULL AS o, NULL AS v "
                "FROM k LEFT JOIN f ON f.g = k.g GROUP BY k.g UNION ALL "
                "SELECT e.g, NULL AS n, e.o, e.v FROM e JOIN f ON f.g = e.g AND f.v = e.v WHERE f.a >= f.b"
            )

        if self.most_groups is None:
            named = {key: rows.columns[key] for key in self._keys} | {"o": rows.columns[UNIT], "v": rows.columns["v"]}
            return Steps(None, final(replace(rows, columns=named)))
        own = [f"r.{UNIT}", *self._r_keys]
        units = closed(self._sampling.values(rows.sql, own), [UNIT, *self._keys, "l"])

        def unnested(kept: Select) -> str:
            columns = _only(kept.columns, [*self._keys, "o"]) | {"v": self._sampling.unnest(kept.columns["l"])}
            return final(replace(kept, columns=columns).nested())

        return self._steps(units, _only(units.columns, ["l"]) | {"o": units.columns[UNIT]}, unnested)

    def _value(self, place: int) -> _Column:
        expression = self._measurement.distinct[place].expression
        return _Column("v", (expression,), lambda x: self._dialect.plain(x, expression.kind))

    def _sampled(
        self,
        column: _Column,
        sample: Callable[[str, Sequence[str], int, int], str],
        purpose: str,
        final: Callable[[Select], str],
    ) -> Steps:
        rows = self._keyed([column])
        if not self._by_unit:
            return Steps(None, final(rows))
        salt = salt_number(self._salt, purpose)
        own = [f"r.{UNIT}", *self._r_keys]
        units = closed(sample(rows.sql, own, self._measurement.rows, salt), [UNIT, *self._keys, "l"])

        def unnested(kept: Select) -> str:
            columns = _only(kept.columns, self._keys) | {"v": self._sampling.unnest(kept.columns["l"])}
            return final(replace(kept, columns=columns).nested())

        return self._steps(units, _only(units.columns, ["l"]), unnested)

    # ------------------------------------------------------------------ rows with keys and values

    def _keyed(self, columns: Sequence[_Column], *, public: bool = True) -> Select:
        """Unit, keys and columns of every row, or of those whose keys are public ones where keys are.

        All of them have plain names.
        """
        keys = self._measurement.keys
        needed = tuple(dict.fromkeys(e for column in columns for e in column.expressions))
        relation = self._measurement.relation
        used = names_in([*(key.expression for key in keys), *needed])
        rendered = self._relations.render(relation, used).named()
        if not rendered.private or self._by_unit != (rendered.unit_type is not None):
            raise InvalidParameter("a measurement needs a private relation whose rows belong to the stated units")
        scope = rendered.scope(relation.fields)
        raw = {
            name: self._dialect.expression(key.expression, scope) for name, key in zip(self._keys, keys, strict=True)
        }
        raw |= {f"_x{i}": self._dialect.expression(e, scope) for i, e in enumerate(needed)}
        below = replace(rendered.select, columns=rendered.unit | raw).named()
        place = {expression: below.columns[f"_x{i}"] for i, expression in enumerate(needed)}
        listed = _only(below.columns, rendered.unit)
        for name, key in zip(self._keys, keys, strict=True):
            listed[name] = self._dialect.plain(below.columns[name], key.kind)
        for column in columns:
            listed[column.name] = column.make(*(place[e] for e in column.expressions))
        where = self._where([below.columns[name] for name in self._keys]) if public else ()
        return replace(below, columns=listed, where=(*below.where, *where)).named()

    def _where(self, names: Sequence[str]) -> tuple[str, ...]:
        pairs = zip(self._measurement.keys, names, strict=True)
        return tuple(f"({self._public(key, name)})" for key, name in pairs if key.values is not None)

    def _public(self, key: Key, sql: str) -> str:
        assert key.values is not None
        texts = [self._dialect.literal(value, key.kind) for value in key.values if value is not None]
        known = f"{sql} IN ({', '.join(texts)})" if texts else "FALSE"
        return f"{known} OR {sql} IS NULL" if None in key.values else known


def _only(columns: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: columns[name] for name in names}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column computed from expressions: ``make`` takes the plain names under which they are at hand."""

    name: str
    expressions: tuple[Expression, ...]
    make: Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One total on its way: a value of each row, a partial sum of a unit in a group, what the cap leaves of it.

    ``column`` is where the row's value is, NULL for rows that don't count; None: every row counts as 1. ``shift`` is
    still to be taken off it: once per sum, as count · shift, it costs nothing. ``least`` and ``most`` are the ends of
    one row's value after that. A unit of whose rows none counts adds nothing, whatever ``low`` is.
    """

    total: Total
    dialect: Dialect
    name: str
    column: str | None
    shift: int
    least: int
    most: int

    def __post_init__(self) -> None:
        if self.total.low > self.total.high:
            raise InvalidParameter("a total needs low ≤ high")
        if max(abs(self.total.low), abs(self.total.high)) > LARGEST_CELL:
            raise InvalidParameter("the part of one unit in a total must stay within 2^62")
        if self.total.divisor != 1 and (self.total.divisor < 1 or len(self.total.factors) < 2 or self.least < 0):
            raise InvalidParameter("only products of several factors that aren't negative are divided")

    def of_rows(self) -> str:
        """The cell, where each row is a unit."""
        low, high, divisor = self.total.low, self.total.high, self.total.divisor
        if not self.total.factors:
            one = max(low, min(high, 1))
            return self._count if one == 1 else self._whole(f"CAST({self._count} AS {self.dialect.wide}) * ({one})")
        if divisor == 1 and low <= self.least and self.most <= high:
            return self._whole(self._sum)
        value = f"CAST(r.{self.column} AS {self.dialect.wide}) - ({self.shift})"
        if divisor != 1:
            # nothing is negative here and nothing was shifted: in 64 bits, where they hold it, that is much quicker
            value = f"r.{self.column} // {divisor}"
            if low <= self.least // divisor and self.most // divisor <= high:
                return self._whole(f"sum({value})")
        return self._whole(f"sum({clamped(value, low, high)})")

    @property
    def _sum(self) -> str:
        shift = f" - CAST({self._count} AS {self.dialect.wide}) * ({self.shift})" if self.shift else ""
        return f"sum(r.{self.column}){shift}"

    def partials(self) -> tuple[tuple[str, str], ...]:
        """What is kept of a unit's rows in a group: names and SQL."""
        count = (self._counter, self._count)
        if not self.total.factors:
            return (count,)
        summed = (self.name, self._sum)
        return (summed, count) if self.total.cap.averages else (summed,)

    @property
    def _count(self) -> str:
        return "count(*)" if self.column is None else f"count(r.{self.column})"

    @property
    def _counter(self) -> str:
        return f"_n{self.column or ''}"

    def capped(self, rows: int) -> str:
        """What the unit adds to the group, from its partial sums."""
        if self.total.cap is Cap.SCALE:
            return self._scaled()
        low, high, rows = self.total.low, self.total.high, self.total.cap.rows(rows)
        averaged = self.total.cap.averages
        width = "INTEGER" if max(abs(low), abs(high)) < 2**31 else "BIGINT"
        if not self.total.factors and low <= 0 <= high:
            # a count is never NULL nor negative
            most = min(high, rows) if averaged else high
            return f"CAST(least(r.{self._counter}, {most}) AS {width})"
        value = given = f"r.{self.name}" if self.total.factors else f"r.{self._counter}"
        if self.total.factors and averaged:
            # ⌊s·rows/n⌋ = ⌊(s − n·least)·rows/n⌋ + least·rows divides a number that isn't negative, so that it doesn't
            # matter whether the engine rounds towards zero or down
            number = f"CAST(r.{self._counter} AS {self.dialect.wide})"
            mean = f"(({value} - {number} * ({self.least})) * {rows}) // {number} + ({self.least * rows})"
            value = f"CASE WHEN r.{self._counter} > {rows} THEN {mean} ELSE {value} END"
        elif averaged:
            value = f"least({value}, {rows})"
        if self.total.divisor != 1:
            value = f"({value}) // {self.total.divisor}"
        if not self.total.factors:
            value = given = f"NULLIF({value}, 0)"
        return f"CAST({clamped(value, low, high, given)} AS {width})"

    def _scaled(self) -> str:
        """What the unit adds to the group, where its parts in all groups are bounded together.

        Both products are of numbers below 2^63 and 2^31, and all that is divided isn't negative, so that it doesn't
        matter whether the engine rounds towards zero or down.
        """
        most, wide = max(-self.total.low, self.total.high), self.dialect.wide
        plain = f"r.{self.name}" if self.total.factors else f"r.{self._counter}"
        value = f"CAST({f'least({plain}, 1)' if self.total.once else plain} AS {wide})"
        size = f"sum(abs({value})) OVER (PARTITION BY r.{UNIT})"
        cut = f"(abs({value}) * {most}) // ({size})"
        signed = f"CASE WHEN {value} < 0 THEN -({cut}) ELSE {cut} END"
        whole = f"({size}) * {self.total.fine} <= {most}"
        return f"CAST(CASE WHEN {whole} THEN {value} * {self.total.fine} ELSE {signed} END AS BIGINT)"

    def of_units(self) -> str:
        """The cell, from what units add."""
        return self._whole(f"sum(r.{self.name})")

    def _whole(self, summed: str) -> str:
        wide = self.dialect.wide
        low, high = f"CAST(-{LARGEST_CELL} AS {wide})", f"CAST({LARGEST_CELL} AS {wide})"
        return f"CAST(least(greatest(coalesce({summed}, 0), {low}), {high}) AS BIGINT)"


def clamped(sql: str, low: int, high: int, given: str | None = None) -> str:
    """A number cut to bounds, and NULL where it is NULL: least and greatest alone would make a bound of it.

    ``given`` is NULL where the number is, and shorter to compute.
    """
    return f"CASE WHEN {given or sql} IS NOT NULL THEN least(greatest({sql}, {low}), {high}) END"


def _parts(totals: Sequence[Total], dialect: Dialect) -> tuple[list[_Part], list[_Column]]:
    """All totals and the columns of row values that they need; a count of the rows of a sum reads the sum's column."""
    places: dict[tuple[tuple[Gridded, ...], frozenset[Expression]], str] = {}
    columns: list[_Column] = []
    parts: dict[int, _Part] = {}
    # sums first, so that counts find them
    for i, total in sorted(enumerate(totals), key=lambda pair: not pair[1].factors):
        factors, shift = total.factors, 0
        least, most = _range(factors)
        if len(factors) == 1 and not factors[0].down:
            factors, shift = (replace(factors[0], offset=0),), factors[0].offset
        expressions = tuple(dict.fromkeys(factor.expression for factor in factors))
        others = tuple(e for e in dict.fromkeys(total.present) if e not in expressions)
        presence = frozenset((*expressions, *others))
        place = places.get((factors, presence)) if factors else _same_rows(places, presence)
        if place is None and presence:
            place = places[factors, presence] = f"_v{i}"
            columns.append(_Column(place, (*expressions, *others), _row_value(factors, expressions, others, dialect)))
        parts[i] = _Part(total=total, dialect=dialect, name=f"_t{i}", column=place, shift=shift, least=least, most=most)
    return [parts[i] for i in range(len(totals))], columns


def _same_rows(
    places: Mapping[tuple[tuple[Gridded, ...], frozenset[Expression]], str], presence: frozenset[Expression]
) -> str | None:
    return next((place for (_, rows), place in places.items() if rows == presence), None)


def _range(factors: Sequence[Gridded]) -> tuple[int, int]:
    """The smallest and largest product."""
    low, high = 1, 1
    for factor in factors:
        ends = [a * b for a, b in product((low, high), factor.ends)]
        low, high = min(ends), max(ends)
    if max(abs(low), abs(high)) >= 2**80:
        raise InvalidParameter("a product of factors must stay below 2^80, so that no sum of it overflows")
    return low, high


def _row_value(
    factors: tuple[Gridded, ...], expressions: tuple[Expression, ...], others: tuple[Expression, ...], dialect: Dialect
) -> Callable[..., str]:
    """The SQL of the product of the factors, NULL where one of them or of the others is missing."""
    low, high = _range(factors)
    wide = "BIGINT" if max(abs(low), abs(high)) < 2**63 else dialect.wide

    def make(*names: str) -> str:
        place = dict(zip((*expressions, *others), names, strict=True))
        values = [dialect.grid(place[f.expression], f.expression.kind, f) for f in factors]
        value = values[0] if len(values) == 1 else " * ".join(f"CAST({v} AS {wide})" for v in values) or "1"
        known = [f"NOT isnan({place[e]})" if e.kind is Kind.DOUBLE else f"{place[e]} IS NOT NULL" for e in others]
        return f"CASE WHEN {' AND '.join(known)} THEN {value} END" if known else value

    return make
