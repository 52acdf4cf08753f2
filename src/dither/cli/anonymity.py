"""What was typed about columns and models, as the configuration of an anonymisation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dither.errors import InvalidParameter

if TYPE_CHECKING:
    from dither.anonymize.configuration import Configuration
    from dither.anonymize.hierarchy.hierarchies import Hierarchy
    from dither.anonymize.models.catalogue import Model

Quasi = Annotated[
    list[str],
    typer.Option("--quasi", metavar="COLUMNS", help="What others may know of a person, as age,postcode,sex."),
]
Sensitive = Annotated[
    list[str] | None,
    typer.Option("--sensitive", metavar="COLUMNS", help="What nobody should learn of a person; kept as it is."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COLUMNS", help="Harmless columns to keep. Those named nowhere are removed."),
]
K = Annotated[int | None, typer.Option("--k", metavar="NUMBER", min=1, help="Rows that must look alike, such as 10.")]
Diversity = Annotated[
    list[str] | None,
    typer.Option(
        "--l-diversity",
        metavar="[COLUMN=]L",
        help="Sensitive values in each class: 3 distinct ones, entropy:3, or recursive:C:L. For all sensitive columns "
        "unless one is named.",
    ),
]
Closeness = Annotated[
    list[str] | None,
    typer.Option(
        "--t-closeness",
        metavar="[COLUMN=]T",
        help="How far a class may be from the whole table: 0.2, ordered:0.2 or hierarchical:0.2.",
    ),
]
Disclosure = Annotated[
    list[str] | None,
    typer.Option("--delta-disclosure", metavar="[COLUMN=]DELTA", help="Bound on |log(share in class / share in all)|."),
]
Likeness = Annotated[
    list[str] | None,
    typer.Option("--beta-likeness", metavar="[COLUMN=]BETA", help="How much more frequent a value may be in a class."),
]
Suppress = Annotated[
    str, typer.Option("--suppress", metavar="SHARE", help="The most rows that may be left out, as 5% or 0.05.")
]
Hierarchies = Annotated[
    Path | None,
    typer.Option(
        "--hierarchies",
        metavar="DIRECTORY",
        help="Hierarchies as in ARX, lines of value;group;…: age.csv or any_hierarchy_age.csv.",
    ),
]


def listed(values: Sequence[str] | None) -> list[str]:
    """Column names, separated by commas or given one by one."""
    return [name.strip() for value in values or [] for name in value.split(",") if name.strip()]


def share(text: str) -> Fraction:
    """A share as people write it: 5% or 0.05."""
    from dither.numeric import as_fraction

    number = text.strip()
    if number.endswith("%"):
        return as_fraction(number[:-1].strip(), "--suppress") / 100
    return as_fraction(number, "--suppress")


def of_columns(folder: Path | None, columns: Sequence[str]) -> dict[str, Hierarchy | None]:
    """The hierarchies that a directory has for these columns."""
    from dither.anonymize.hierarchy.hierarchies import hierarchies_in

    if folder is None:
        return dict.fromkeys(columns)
    if not folder.is_dir():
        raise InvalidParameter(f"--hierarchies takes a directory of CSV files; {str(folder)!r} isn't one")
    found = hierarchies_in(folder, columns)
    if not found:
        raise InvalidParameter(
            f"{str(folder)!r} has no hierarchy for {', '.join(columns)}: name the files after columns, as age.csv"
        )
    return {name: found.get(name) for name in columns}


def models(
    sensitive: Sequence[str],
    diversity: Sequence[str] | None,
    closeness: Sequence[str] | None,
    disclosure: Sequence[str] | None,
    likeness: Sequence[str] | None,
) -> list[Model]:
    """The models about sensitive columns."""
    from dither.anonymize.models.catalogue import BetaLikeness, DeltaDisclosure

    found = [_diverse(text, name) for text, name in _for_columns(diversity, sensitive, "--l-diversity")]
    found += [_close(text, name) for text, name in _for_columns(closeness, sensitive, "--t-closeness")]
    found += [DeltaDisclosure(text, name) for text, name in _for_columns(disclosure, sensitive, "--delta-disclosure")]
    found += [BetaLikeness(text, name) for text, name in _for_columns(likeness, sensitive, "--beta-likeness")]
    return found


def configured(
    table: object,
    *,
    quasi: Sequence[str],
    sensitive: Sequence[str] | None,
    keep: Sequence[str] | None,
    k: int | None,
    hierarchies: Path | None,
    suppress: str,
    diversity: Sequence[str] | None,
    closeness: Sequence[str] | None,
    disclosure: Sequence[str] | None,
    likeness: Sequence[str] | None,
) -> Configuration:
    """The configuration of what was typed, checked against a table if there is one."""
    from dither.anonymize.configuration import Configuration

    secret = listed(sensitive)
    wanted = models(secret, diversity, closeness, disclosure, likeness)
    if k is None and not wanted:
        raise InvalidParameter("say what the release must satisfy: --k 10, or --l-diversity, --t-closeness, …")
    by_hierarchy = any("hierarchical:" in text for text in closeness or [])
    return Configuration.of(
        table,
        quasi=of_columns(hierarchies, listed(quasi)),
        sensitive=of_columns(hierarchies if by_hierarchy else None, secret),
        insensitive=listed(keep),
        k=k,
        models=wanted,
        suppression=share(suppress),
    )


def _for_columns(values: Sequence[str] | None, sensitive: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Each value with the column it is for; without a name, with every sensitive column."""
    pairs: list[tuple[str, str]] = []
    for value in values or []:
        name, equals, text = value.rpartition("=")
        if equals:
            pairs.append((text, name))
            continue
        if not sensitive:
            raise InvalidParameter(f"{option} is about sensitive columns: name them with --sensitive")
        pairs += [(text, column) for column in sensitive]
    return pairs


def _diverse(text: str, column: str) -> Model:
    from dither.anonymize.models.catalogue import DistinctDiversity, EntropyDiversity, RecursiveDiversity

    kind, *numbers = text.split(":")
    if kind == "entropy" and len(numbers) == 1:
        return EntropyDiversity(numbers[0], column)
    if kind == "recursive" and len(numbers) == 2:
        return RecursiveDiversity(numbers[0], _whole(numbers[1]), column)
    if kind == "distinct" and len(numbers) == 1:
        return DistinctDiversity(_whole(numbers[0]), column)
    if not numbers:
        return DistinctDiversity(_whole(kind), column)
    raise InvalidParameter(f"--l-diversity takes 3, entropy:3 or recursive:2:3 (c, then l); got {text!r}")


def _close(text: str, column: str) -> Model:
    from dither.anonymize.models.catalogue import Distance, TCloseness

    kind, colon, number = text.rpartition(":")
    if not colon:
        return TCloseness(number, column)
    try:
        return TCloseness(number, column, Distance(kind))
    except ValueError as problem:
        if isinstance(problem, InvalidParameter):
            raise
        kinds = ", ".join(f"{each.value}:0.2" for each in Distance)
        raise InvalidParameter(f"--t-closeness takes 0.2, {kinds}; got {text!r}") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidParameter(f"--l-diversity takes a whole number of values; got {text!r}") from None
