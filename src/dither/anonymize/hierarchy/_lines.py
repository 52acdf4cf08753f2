"""The lines of a hierarchy that is a table: made automatically, checked, and put in order."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.table.values import ANYTHING, kind_of, numbers, plain
from dither.errors import InvalidParameter
from dither.numeric import positive_int


def automatic_lines(values: Any, counts: Any, fanout: int) -> list[tuple[str, ...]]:
    """The lines of a hierarchy in which neighbouring groups merge, ``fanout`` at a time, until one is left.

    Numbers, dates and times merge with their neighbours and are printed as intervals; others are taken from the rarest
    up, so that rare values merge with rare ones, and are printed as sets. The last group becomes ``*``.
    """
    positive_int(fanout, "fanout", least=2)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    weights = np.ones(len(array)) if counts is None else np.asarray(counts, np.float64)
    if weights.shape != (len(array),) or not (weights >= 0).all():
        raise InvalidParameter("counts must be one number of at least 0 for each value")
    present = np.flatnonzero(~np.asarray(array.is_null()))
    if not present.size:
        raise InvalidParameter("an automatic hierarchy needs at least one value that isn't missing")
    array, weights = array.take(present), weights[present]
    kind = kind_of(array.type, "values")
    texts: list[str] = plain(array).to_pylist()
    if len(set(texts)) != len(texts):
        raise InvalidParameter("an automatic hierarchy needs distinct values, and their counts beside them")
    order = np.argsort(numbers(array, kind) if kind.on_a_line else weights, kind="stable")
    texts, weights = [texts[place] for place in order], weights[order]
    lines: list[tuple[str, ...]] = [(text,) for text in texts]
    # groups are stretches of the order: the place where each begins
    starts = np.arange(len(texts))
    while starts.size > 1:
        starts = _merged(starts, weights, fanout)
        ends = np.append(starts[1:], len(texts))
        labels = [
            _label(texts[first:end], on_a_line=kind.on_a_line) if starts.size > 1 else ANYTHING
            for first, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        group = np.repeat(np.arange(starts.size), ends - starts)
        lines = [(*line, labels[place]) for line, place in zip(lines, group.tolist(), strict=True)]
    return lines


def _merged(starts: Any, weights: Any, fanout: int) -> Any:
    """Fewer groups: at most ``fanout`` neighbours become one, light ones first to reach an equal share."""
    total = np.add.reduceat(weights, starts)
    target = weights.sum() / max(1, math.ceil(starts.size / fanout))
    kept, members, weight = [int(starts[0])], 1, float(total[0])
    for start, more in zip(starts[1:].tolist(), total[1:].tolist(), strict=True):
        if members >= fanout or (weight + more > 1.5 * target and members > 1):
            kept.append(start)
            members, weight = 1, more
        else:
            members, weight = members + 1, weight + more
    return np.array(kept)


def _label(texts: Sequence[str], *, on_a_line: bool) -> str:
    if len(texts) == 1:
        return texts[0]
    if on_a_line:
        return f"{texts[0]}–{texts[-1]}"
    return "{" + ", ".join(_quoted(text) for text in sorted(texts)) + "}"


def _quoted(text: str) -> str:
    """A member of a printed set, in quotes where it could be misread."""
    plain_enough = text and text == text.strip() and text != "NULL" and not any(mark in text for mark in '*{},"–')
    return text if plain_enough else json.dumps(text, ensure_ascii=False)


def expect_tree(lines: Sequence[Sequence[str]], where: str) -> None:
    """Every value has a label at every level, and groups only merge."""
    if not lines:
        raise InvalidParameter(f"{where} has no lines: it needs one for each value, from level 0 to the top")
    _expect_even(lines, where)
    _expect_labels(lines, where)
    _expect_no_contradiction(lines, where)


def _expect_even(lines: Sequence[Sequence[str]], where: str) -> None:
    width = len(lines[0])
    for number, line in enumerate(lines, 1):
        if len(line) != width or not line:
            value = f" ({line[0]!r})" if line else ""
            raise InvalidParameter(
                f"{where}: line {number}{value} has {len(line)} fields and the first has {width}: every value needs a "
                "label at every level, and a field that contains the separator needs quotes"
            )
        if not all(isinstance(label, str) for label in line):
            raise InvalidParameter(
                f"{where}: line {number} ({line[0]!r}) must be texts, the value's own included: Hierarchy.from_mapping "
                "takes values of other types"
            )


def _expect_labels(lines: Sequence[Sequence[str]], where: str) -> None:
    """An empty label reads as a missing value, so it may stand for nothing else."""
    for number, line in enumerate(lines, 1):
        if line[0] and not all(line):
            level = line.index("")
            raise InvalidParameter(
                f"{where}: line {number} ({line[0]!r}) has no label at level {level}: an empty one would read as a "
                "missing value; write one, and see that lines don't end in a separator"
            )
    if not lines[0][-1] and len(lines[0]) > 1:
        raise InvalidParameter(f"{where}: the last level needs a label for everything, such as {ANYTHING!r}")


def _expect_no_contradiction(lines: Sequence[Sequence[str]], where: str) -> None:
    """Groups only merge: the label at one level decides the label at the next."""
    for level in range(len(lines[0]) - 1):
        above: dict[str, Sequence[str]] = {}
        for line in lines:
            other = above.setdefault(line[level], line)
            if other[level + 1] == line[level + 1]:
                continue
            if level == 0:
                raise InvalidParameter(
                    f"{where}: the value {line[0]!r} has two lines that say different things: leave one"
                )
            raise InvalidParameter(
                f"{where}: {other[0]!r} and {line[0]!r} are both {line[level]!r} at level {level}, but at level "
                f"{level + 1} one is {other[level + 1]!r} and the other {line[level + 1]!r}: groups may only merge"
            )


def expect_no_star(lines: Sequence[Sequence[str]], where: str) -> None:
    """A last level that is ``*`` for some values only is a mistake, mostly a line with the names of the columns."""
    starred = [line[-1] == ANYTHING for line in lines]
    if len(lines[0]) == 1 or not any(starred):
        return
    number = starred.index(False)
    value, label = lines[number][0], lines[number][-1]
    hint = "; if it has the names of the columns, say header=True or remove it" if number == 0 else ""
    raise InvalidParameter(
        f"{where}: line {number + 1} ({value!r}) ends in {label!r} and others in {ANYTHING!r}: the last level must be "
        f"one label for everything{hint}"
    )


def nested(lines: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """The lines in an order in which every group of every level is one stretch, groups as they first appear."""
    first: list[dict[str, int]] = [{} for _ in lines[0]]
    for number, line in enumerate(lines):
        for seen, label in zip(first, line, strict=True):
            seen.setdefault(label, number)
    return tuple(
        sorted(lines, key=lambda line: [seen[label] for seen, label in zip(first[::-1], line[::-1], strict=True)])
    )


def text_of(value: Any) -> str:
    """The text of a value as a line has it; empty for a missing one."""
    if value is None:
        return ""
    text: str | None = plain(pa.array([value])).to_pylist()[0]
    return "" if text is None else text
