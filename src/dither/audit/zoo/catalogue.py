"""All specimens, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dither.audit.zoo import choices, noise, sensitivities, sharing, sparse, surveys, training
from dither.audit.zoo.specimen import Specimen


@cache
def specimens() -> tuple[Specimen, ...]:
    """Every mechanism of the zoo, family by family, the broken ones of a family first.

    Example:
        >>> {specimen.family for specimen in broken()} <= {specimen.family for specimen in right()}
        True
    """
    files = (noise, surveys, choices, sensitivities, sharing, sparse, training)
    return tuple(specimen for file in files for specimen in file.specimens())


def broken() -> tuple[Specimen, ...]:
    """Those whose claim is false."""
    return tuple(specimen for specimen in specimens() if specimen.broken)


def right() -> tuple[Specimen, ...]:
    """Those whose claim holds."""
    return tuple(specimen for specimen in specimens() if not specimen.broken)


def markdown() -> str:
    """Two tables for the documentation: what is wrong with the broken ones, and the right ones beside them."""
    wrong = [(f"`{s.name}`", s.mistake, s.source, s.typically, f"{s.seconds:g} s") for s in broken()]
    sound = [(f"`{s.name}`", s.family, s.source, s.remark) for s in right()]
    return "\n".join(
        [
            *_table(("mechanism", "mistake", "source", "typically caught by", "within"), wrong),
            "",
            *_table(("right twin", "family", "source", "remark"), sound),
        ]
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
