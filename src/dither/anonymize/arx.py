"""What ARX users bring along: a folder of hierarchies, or a whole project file, as a configuration.

A project (``.deid``) is a ZIP file. From it are read the table, what each column is, the order of its values, its
hierarchy, the lowest and highest level that were allowed, weights and the suppression limit. Privacy models are not:
ARX keeps them as text for people and as serialised Java objects, and a model that was misread would be worse than none.
``Project.criteria`` has the texts; say them again as models. Neither are the quality model, a research subset and
microaggregation: a column that was to be averaged is generalised here.

The format follows the classes that write it in ARX's sources (``WorkerSave``, ``XMLWriter`` and ``Vocabulary_V2`` in
``org.deidentifier.arx.gui.worker``, ``CSVDataOutput`` in ``org.deidentifier.arx.io``; versions 3.0 to 3.9), and was not
tried on a file that ARX itself wrote. Where the two tools differ:

* ARX prints suppressed rows as ``*`` and keeps them; here they are left out. The limit is the same share of rows,
  rounded down, but reckoned exactly.
* A hierarchy whose last level has several groups gets ``*`` above it, as everywhere here; "All" levels still end where
  ARX's do.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.compute as pc
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
_MISSING = "NULL"


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
            names = ", ".join(file.name for file in fitting)
            raise InvalidParameter(f"{str(folder)!r} has several hierarchies for {column!r}: {names}; leave one")
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


def read_project(path: str | Path, *, encoding: str | None = None) -> Project:
    """The project in a ``.deid`` file that ARX saved.

    ARX writes hierarchies in the encoding of the machine it runs on; ``encoding`` says which one that was where it
    wasn't UTF-8, such as ``"cp1252"`` on Windows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, str(path), encoding).project()
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise SourceError(f"{str(path)!r} can't be read as an ARX project: it must be a .deid file") from None


class _Reader:
    """One project file, open."""

    def __init__(self, archive: zipfile.ZipFile, path: str, encoding: str | None) -> None:
        self.archive, self.path, self.encoding = archive, path, encoding
        self.separator = self._text(self._xml("project.xml"), "separator") or ";"
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise SourceError(f"{self.path!r}: the separator must be one character; got {self.separator!r}")

    def project(self) -> Project:
        """Everything that is understood of it."""
        config = self._xml("input/config.xml")
        definition = self._xml("input/definition.xml")
        weights = {self._text(one, "attribute"): self._weight(one) for one in config.iter("attributeWeight")}
        attributes, levels, as_text = [], {}, []
        # the vocabulary spells it so
        for one in definition.iter("assigment"):
            name, role = self._text(one, "name"), _ROLES.get(self._text(one, "type").strip())
            if not name or role is None:
                raise SourceError(f"{self.path!r}: the definition has a column without a name or a type that is known")
            quasi = role is Role.QUASI
            lines = self._lines(name) if role in (Role.QUASI, Role.SENSITIVE) else []
            hierarchy = TableHierarchy.of(lines, f"the hierarchy of {name!r}") if lines else None
            # ARX's weights lie between 0 and 1, and 0.5 is what nobody changed
            weight = weights.get(name, 0.5) if quasi else 1.0
            order = self._order(one)
            attributes.append(Attribute(name=name, role=role, hierarchy=hierarchy, weight=weight, order=order))
            if hierarchy is not None or order or self._text(one, "datatype").strip() == "String":
                as_text.append(name)
            if quasi and lines:
                # what ARX calls the height: a level above it may be one of ours
                levels[name] = (self._level(one, "min", 0), self._level(one, "max", len(lines[0]) - 1))
        if not attributes:
            raise SourceError(f"{self.path!r}: the definition names no column")
        limit = self._text(config, "relativeMaxOutliers").strip() or 0
        return Project(
            table=self._table(as_text, {one.name for one in attributes if one.order}),
            attributes=tuple(attributes),
            levels=levels,
            suppression=probability(limit, "relativeMaxOutliers"),
            criteria=tuple((one.text or "").strip() for one in config.iter("criterion")),
        )

    def _read(self, name: str) -> bytes:
        try:
            return self.archive.read(name)
        except KeyError:
            raise SourceError(f"{self.path!r} is no ARX project that is understood: it has no {name!r}") from None

    def _decoded(self, name: str) -> str:
        """The text of a member: UTF-8 if it is that, as newer versions write the table, else the encoding given."""
        content = self._read(name)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if self.encoding is None:
                raise SourceError(
                    f"{self.path!r}: {name!r} is not UTF-8; ARX wrote it in the encoding of the machine it ran on: say "
                    "which, such as encoding='cp1252'"
                ) from None
        try:
            return content.decode(self.encoding)
        except (UnicodeDecodeError, LookupError):
            raise SourceError(f"{self.path!r}: {name!r} can't be read as {self.encoding!r}") from None

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
    def _text(element: ET.Element, name: str) -> str:
        """The text of a child as it stands: names of columns may begin with a space."""
        return element.findtext(name) or ""

    def _weight(self, element: ET.Element) -> float:
        try:
            return float(self._text(element, "weight"))
        except ValueError:
            raise SourceError(f"{self.path!r}: an attribute weight is not a number") from None

    def _level(self, element: ET.Element, name: str, everything: int) -> int:
        """A level, where "All" leaves it open."""
        text = self._text(element, name).strip()
        if text in ("", "All"):
            return everything
        if not text.isdecimal():
            raise SourceError(
                f"{self.path!r}: <{name}> of the column {self._text(element, 'name')!r} must be a level or 'All'; got "
                f"{text!r}"
            )
        return int(text)

    def _order(self, element: ET.Element) -> tuple[str, ...] | None:
        """The values of an ordinal column, which ARX keeps as the lines of its format; none if it goes by alphabet."""
        if self._text(element, "datatype").strip() not in ("Ordinal", "OrderedString"):
            return None
        listed = [line for line in self._text(element, "format").splitlines() if line]
        return tuple(dict.fromkeys(listed)) if listed and listed != ["Default"] else None

    def _lines(self, column: str) -> list[list[str]]:
        """The lines of a column's hierarchy, none if it has none."""
        name = f"input/hierarchies/{column}.csv"
        if name not in self.archive.namelist():
            return []
        try:
            text = io.StringIO(self._decoded(name), newline="")
            return [line for line in csv.reader(text, delimiter=self.separator, strict=True) if line]
        except csv.Error:
            raise SourceError(f"{self.path!r}: {name!r} can't be read as a hierarchy") from None

    def _table(self, as_text: list[str], ordered: set[str]) -> pa.Table:
        kinds: Any = dict.fromkeys(as_text, pa.string())
        try:
            table = arrow_csv.read_csv(
                io.BytesIO(self._decoded("data/input.csv").encode()),
                parse_options=arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(column_types=kinds),
            )
        except pa.ArrowException:
            raise SourceError(f"{self.path!r}: 'data/input.csv' can't be read as a table") from None
        for place, name in enumerate(table.column_names):
            if name in ordered:
                # NULL is ARX's missing value, and no order lists it
                column: Any = table.column(place)
                known = pc.if_else(pc.equal(column, pa.scalar(_MISSING)), pa.scalar(None, pa.string()), column)
                table = table.set_column(place, name, known)
        return table
