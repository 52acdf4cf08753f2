"""What ARX users bring along: a folder of hierarchies, or a whole project file, as a configuration.

A project (``.deid``) is a ZIP file. From it are read the table, what each column is, its hierarchy, the lowest and
highest level that were allowed, weights and the suppression limit. Privacy models are not: ARX keeps them as text for
people and as serialised Java objects, and a model that was misread would be worse than none. ``Project.criteria`` has
the texts; say them again as models.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.csv as arrow_csv

from dither.anonymize.attributes import Attribute, Configuration, Role
from dither.anonymize.hierarchies import Hierarchy, TableHierarchy
from dither.anonymize.models import KAnonymity, Model
from dither.errors import InvalidParameter, SourceError
from dither.numeric import probability

_ROLES = {
    "IDENTIFYING_ATTRIBUTE": Role.IDENTIFYING,
    "QUASI_IDENTIFYING_ATTRIBUTE": Role.QUASI,
    "SENSITIVE_ATTRIBUTE": Role.SENSITIVE,
    "INSENSITIVE_ATTRIBUTE": Role.INSENSITIVE,
}


def hierarchies_in(folder: str | Path, columns: Iterable[str], *, separator: str = ";") -> dict[str, Hierarchy]:
    """The hierarchies that a folder has for some columns; a column without a file is left out.

    The file of a column ``age`` is ``age.csv``, ``hierarchy_age.csv`` or ``…_hierarchy_age.csv``, as ARX's examples
    are named.
    """
    place = Path(folder)
    if not place.is_dir():
        raise SourceError(f"{str(folder)!r} is not a folder of hierarchies")
    files = sorted(place.glob("*.csv"))
    found: dict[str, Hierarchy] = {}
    for column in columns:
        named = re.compile(rf"((.*_)?hierarchy_)?{re.escape(column)}\.csv", re.DOTALL)
        fitting = [file for file in files if named.fullmatch(file.name)]
        if len(fitting) > 1:
            names = ", ".join(repr(file.name) for file in fitting)
            raise InvalidParameter(f"several files could be the hierarchy of {column!r}: {names}; leave one")
        if fitting:
            found[column] = Hierarchy.from_csv(fitting[0], separator)
    return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Project:
    """What was read from an ARX project; ``configuration(k=5)`` makes it one of ours.

    ``levels`` is what :func:`dither.anonymize.lattice.full_domain` takes, ``criteria`` the models in ARX's words.
    """

    table: pa.Table = field(repr=False)
    attributes: tuple[Attribute, ...]
    levels: dict[str, tuple[int, int]]
    suppression: Fraction
    criteria: tuple[str, ...]

    def configuration(self, *, k: int | None = None, models: Iterable[Model] = ()) -> Configuration:
        """The configuration with models, which have to be said again, checked against the table."""
        wanted = tuple(models) if k is None else (KAnonymity(k), *models)
        found = Configuration(self.attributes, wanted, self.suppression)
        found.check(self.table)
        return found


def read_project(path: str | Path) -> Project:
    """The project in a ``.deid`` file that ARX saved."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, str(path)).project()
    except (OSError, zipfile.BadZipFile):
        raise SourceError(f"{str(path)!r} can't be read as an ARX project: it must be a .deid file") from None


class _Reader:
    """One project file, open."""

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self.archive, self.path = archive, path
        self.separator = self._text(self._xml("project.xml"), "separator", strip=False) or ";"

    def project(self) -> Project:
        """Everything that is understood of it."""
        config = self._xml("input/config.xml")
        definition = self._xml("input/definition.xml")
        weights = {self._text(one, "attribute"): self._weight(one) for one in config.iter("attributeWeight")}
        attributes, levels, as_text = [], {}, []
        for one in definition.iter("assigment"):
            name, role = self._text(one, "name"), _ROLES.get(self._text(one, "type"))
            if not name or role is None:
                raise SourceError(f"{self.path!r}: the definition has a column without a name or a type that is known")
            hierarchy = self._hierarchy(name) if role in (Role.QUASI, Role.SENSITIVE) else None
            quasi = role is Role.QUASI
            # ARX's weights lie between 0 and 1, and 0.5 is what nobody changed
            weight = weights.get(name, 0.5) if quasi else 1.0
            attributes.append(Attribute(name=name, role=role, hierarchy=hierarchy, weight=weight))
            if hierarchy is not None or self._text(one, "datatype") == "String":
                as_text.append(name)
            if quasi and hierarchy is not None:
                low, high = self._text(one, "min"), self._text(one, "max")
                levels[name] = (int(low) if low.isdigit() else 0, int(high) if high.isdigit() else hierarchy.height)
        return Project(
            table=self._table(as_text),
            attributes=tuple(attributes),
            levels=levels,
            suppression=probability(self._text(config, "relativeMaxOutliers") or 0, "relativeMaxOutliers"),
            criteria=tuple((one.text or "").strip() for one in config.iter("criterion")),
        )

    def _read(self, name: str) -> bytes:
        try:
            return self.archive.read(name)
        except KeyError:
            raise SourceError(f"{self.path!r} is no ARX project that is understood: it has no {name!r}") from None

    def _xml(self, name: str) -> ET.Element:
        content = self._read(name)
        # entities could make a small file huge, and ARX writes none
        if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            raise SourceError(f"{self.path!r}: {name!r} declares entities, which an ARX project doesn't")
        try:
            return ET.fromstring(content)  # noqa: S314 - without entities
        except ET.ParseError:
            raise SourceError(f"{self.path!r}: {name!r} is not well-formed XML") from None

    @staticmethod
    def _text(element: ET.Element, name: str, *, strip: bool = True) -> str:
        found = element.findtext(name) or ""
        return found.strip() if strip else found

    def _weight(self, element: ET.Element) -> float:
        try:
            return float(self._text(element, "weight"))
        except ValueError:
            raise SourceError(f"{self.path!r}: an attribute weight is not a number") from None

    def _hierarchy(self, column: str) -> Hierarchy | None:
        name = f"input/hierarchies/{column}.csv"
        if name not in self.archive.namelist():
            return None
        try:
            text = self._read(name).decode("utf-8-sig")
            lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, strict=True))
        except (UnicodeDecodeError, csv.Error):
            raise SourceError(f"{self.path!r}: {name!r} can't be read as a hierarchy") from None
        return TableHierarchy.of([line for line in lines if line], name)

    def _table(self, as_text: list[str]) -> pa.Table:
        parse = arrow_csv.ParseOptions(delimiter=self.separator)
        kinds: Any = dict.fromkeys(as_text, pa.string())
        try:
            return arrow_csv.read_csv(
                io.BytesIO(self._read("data/input.csv")),
                parse_options=parse,
                convert_options=arrow_csv.ConvertOptions(column_types=kinds),
            )
        except pa.ArrowException:
            raise SourceError(f"{self.path!r}: 'data/input.csv' can't be read as a table") from None
