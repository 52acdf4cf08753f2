"""Which columns of a table single people out, and what somebody who knows them could do.

Whoever knows a few values of somebody finds their row if no other row has the same. ``risk`` counts that for every
combination of columns up to a size. What it finds are facts about the owner's data, exact and without noise: a report
is for the owner alone. It claims no privacy, and a small risk in it is none that is proven: who knows what is a guess.
One row is taken for one person; somebody with ten equal rows looks like ten people who are alike.

Example:
    >>> people = pa.table({"sex": ["f", "f", "m", "m"], "age": [31, 47, 31, 31]})
    >>> report = risk(people)
    >>> [(found.columns, found.unique, found.smallest) for found in report.combinations]
    [(('sex', 'age'), 2, 1), (('age',), 1, 1), (('sex',), 0, 2)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.risks.attackers import exposure, known_columns
from dither.anonymize.risks.combinations import (
    Combination,
    Search,
    codes_of,
    number_of_combinations,
    unwrapped,
)
from dither.anonymize.risks.report import ColumnRisk, Notice, RiskReport
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import Codes
from dither.errors import InvalidData
from dither.numeric import positive_int
from dither.progress import Watch, unwatched

# A column that singles out this share of the rows by itself is as good as a name.
NEAR_IDENTIFIER = 0.95
MOSTLY_ALONE = 0.5
LIMIT = 2_000


def risk(
    data: Any,
    columns: Sequence[str] | None = None,
    most: int = 3,
    *,
    k: int = 10,
    population: Any = None,
    limit: int = LIMIT,
    watch: Watch = unwatched,
) -> RiskReport:
    """Count how many rows every combination of up to ``most`` columns singles out, and rank the columns by it.

    Missing values are a value of their own. The report holds exact facts about the data: it is for its owner alone.

    Args:
        data: Anything that ``as_table`` reads.
        columns: Those that somebody might know; all that have plain values if none are named.
        most: The largest number of columns to combine.
        k: A class with fewer rows is called small.
        population: A table of everybody with the same columns, for the journalist's and the marketer's risk.
        limit: With more combinations than this, large ones are searched among the most telling columns only, and the
            notes say so.
        watch: Called with the share that is done and a few words; it may raise to stop.

    Raises:
        InvalidData: If the table has no rows.
        InvalidParameter: If a column isn't there, or holds lists or records.
    """
    table = as_table(data)
    size, small, most_searched = positive_int(most, "most"), positive_int(k, "k"), positive_int(limit, "limit")
    if not table.num_rows:
        raise InvalidData("the table has no rows: there is nobody to be at risk")
    notes: list[str] = []
    names = known_columns(table, columns, notes)
    coded = [codes_of(table.column(name)) for name in names]
    alone = [_alone(name, codes, values, small) for name, (codes, values) in zip(names, coded, strict=True)]
    notices = [_notice(found) for found in alone]
    found: dict[tuple[int, ...], Combination] = {(place,): each for place, each in enumerate(alone)}
    combined = [place for place, notice in enumerate(notices) if notice is None]
    whole = _search(names, coded, combined, size, small, most_searched, found, notes, watch)
    ranked = _ranked(table, names, coded, alone, notices, found, whole)
    every = sorted(found.items(), key=lambda item: (-item[1].unique, -item[1].classes, len(item[0]), item[0]))
    combinations = tuple(each for _, each in every)
    known = names if columns is not None else list(_worst(combinations, notices, names).columns)
    return RiskReport(
        rows=table.num_rows,
        k=small,
        most=size,
        columns=tuple(ranked),
        combinations=combinations,
        exposure=exposure(table, known, k=small, population=population),
        notes=tuple(notes),
    )


def _alone(name: str, codes: Codes, values: int, k: int) -> Combination:
    sizes = np.bincount(codes, minlength=values)
    return Combination(
        columns=(name,),
        rows=codes.size,
        classes=values,
        unique=int(np.count_nonzero(sizes == 1)),
        smallest=int(sizes.min()),
        small=int(sizes[sizes < k].sum()),
    )


def _notice(alone: Combination) -> Notice | None:
    if alone.unique_share >= NEAR_IDENTIFIER:
        return Notice.IDENTIFIER
    return Notice.CONSTANT if alone.classes == 1 else None


def _search(
    names: Sequence[str],
    coded: Sequence[tuple[Codes, int]],
    combined: list[int],
    most: int,
    k: int,
    limit: int,
    found: dict[tuple[int, ...], Combination],
    notes: list[str],
    watch: Watch,
) -> int:
    """Fill ``found``: in one go if all combinations are to be searched, otherwise size by size among fewer columns.

    Returns the size up to which every combination was counted.
    """
    if not combined:
        return 1
    most = min(most, len(combined))
    rounds = _rounds(len(combined), most, limit)
    total, done = sum(number_of_combinations(among, size) for size, among in rounds), 0

    def counted() -> None:
        nonlocal done
        done += 1
        watch(min(1.0, done / total), f"{len(found):,} combinations of columns")

    search = Search(names, coded, k, counted, found)
    among = combined
    for size, fits in rounds:
        if fits < len(among):
            gains = _gains(found, len(coded[0][0]))
            among = sorted(among, key=lambda place: -gains.get(place, 0.0))[:fits]
            notes.append(
                f"combinations of {size} columns were searched among the {fits} most telling columns only, of "
                f"{len(combined)}: there are more than {limit:,} in all"
            )
        search.run(among, size)
    searched = max((size for size, _ in rounds), default=1)
    if searched < most:
        notes.append(
            f"combinations of {searched + 1} columns or more weren't searched: limit allows for {limit:,} in all"
        )
    whole = max((size for size, fits in rounds if fits == len(combined)), default=1)
    if 1 < whole < searched:
        notes.append(f"columns are ranked by combinations of up to {whole}, which all were searched")
    elif whole < searched:
        notes.append("columns are ranked by what they tell alone, since not all were combined")
    return whole


def _rounds(columns: int, most: int, limit: int) -> list[tuple[int, int]]:
    """Up to which size to search among how many columns: in one go, or else size by size among as many as fit."""
    if number_of_combinations(columns, most) <= limit:
        return [(most, columns)]
    rounds: list[tuple[int, int]] = []
    for size in range(2, most + 1):
        columns = next((n for n in range(columns, size - 1, -1) if number_of_combinations(n, size) <= limit), 0)
        if not columns:
            break
        rounds.append((size, columns))
    return rounds


def _gains(found: dict[tuple[int, ...], Combination], rows: int) -> dict[int, float]:
    """For each column the mean growth of the expected share that knowing it besides others brings."""
    sums: dict[int, list[float]] = {}
    for places, combination in found.items():
        for place in places:
            others = tuple(other for other in places if other != place)
            before = found[others].expected if others in found else 1 / rows if not others else None
            if before is not None:
                sums.setdefault(place, []).append(combination.expected - before)
    return {place: math.fsum(each) / len(each) for place, each in sums.items()}


def _ranked(
    table: pa.Table,
    names: Sequence[str],
    coded: Sequence[tuple[Codes, int]],
    alone: Sequence[Combination],
    notices: Sequence[Notice | None],
    found: dict[tuple[int, ...], Combination],
    whole: int,
) -> list[ColumnRisk]:
    # columns that are in more combinations than others would be ranked by other ones
    fair = {places: each for places, each in found.items() if len(places) <= whole}
    gains = _gains(fair, table.num_rows)
    ranked = []
    for place, name in enumerate(names):
        notice, by = notices[place], None
        if notice is None:
            by = _determined_by(place, alone, found)
            notice = None if by is None else Notice.DETERMINED
        combined = notices[place] is None
        ranked.append(
            ColumnRisk(
                name=name,
                distinct=alone[place].classes,
                missing=_missing(table.column(name)),
                bits=_bits(coded[place][0]),
                alone=alone[place],
                gain=gains.get(place) if combined else None,
                notice=notice,
                determined_by=None if by is None else names[by],
            )
        )
    order = {Notice.IDENTIFIER: 0, None: 1, Notice.DETERMINED: 1, Notice.CONSTANT: 2}
    return sorted(ranked, key=lambda each: (order[each.notice], -(each.gain or 0.0), -each.distinct))


def _determined_by(place: int, alone: Sequence[Combination], found: dict[tuple[int, ...], Combination]) -> int | None:
    """Another column that tells this one's value in every row; of two that tell each other, the first stays.

    A column that leaves most people alone tells everything else as a matter of course, and isn't counted.
    """
    for (first, *rest), pair in found.items():
        if len(rest) != 1 or place not in (first, rest[0]):
            continue
        other = rest[0] if first == place else first
        if alone[other].unique_share > MOSTLY_ALONE:
            continue
        if pair.classes == alone[other].classes and (alone[other].classes > alone[place].classes or other < place):
            return other
    return None


def _worst(combinations: Sequence[Combination], notices: Sequence[Notice | None], names: Sequence[str]) -> Combination:
    """The combination that tells most apart and has no near-identifier in it, if there is one."""
    names_like = {name for name, notice in zip(names, notices, strict=True) if notice is Notice.IDENTIFIER}
    others = [each for each in combinations if not names_like.intersection(each.columns)]
    return (others or list(combinations))[0]


def _missing(column: pa.ChunkedArray[Any]) -> int:
    column = unwrapped(column)
    if pa.types.is_floating(column.type):
        values = column.to_numpy()
        return int(np.isnan(values.astype(np.float64, copy=False)).sum())
    return int(column.null_count)


def _bits(codes: Codes) -> float:
    sizes = np.bincount(codes)
    shares = sizes[sizes > 0] / codes.size
    return float(-(shares * np.log2(shares)).sum()) + 0.0
