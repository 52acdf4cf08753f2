"""Project files laid out as ARX writes them, down to tabs, escapes, Java's numbers and the serialised parts beside.

Which members there are and how they are spelt follows ``WorkerSave``, ``XMLWriter`` and ``Vocabulary_V2`` of ARX 3.x;
the contents are made up. No file that ARX itself wrote is at hand.
"""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from dither.anonymize.arx import read_project
from dither.anonymize.attributes import Kind, Role
from dither.anonymize.lattice import full_domain
from dither.anonymize.models import Distance, DistinctDiversity, TCloseness
from dither.anonymize.verify import verify
from dither.errors import InvalidParameter, SourceError

# what Java's serialisation begins with
OBJECT = b"\xac\xed\x00\x05sr\x00\x01x"
TOWNS = ["Köln", "Bonn", "Kiel; the port", 'The "Hague"']
ROWS = [
    (f"{number}", f"{20 + number % 4}", TOWNS[number % 4 // 2], ("low", "mid", "high", "NULL")[number % 4], "x\ny")
    for number in range(48)
]


def quoted(field: str, mark: str = ";") -> str:
    """As the CSV writer of ARX does: quotes only where they must be, doubled inside."""
    if mark in field or "\n" in field or field.startswith('"'):
        return '"' + field.replace('"', '""') + '"'
    return field


def lines(rows: list[tuple[str, ...]], mark: str = ";") -> str:
    return "".join(mark.join(quoted(field, mark) for field in row) + "\n" for row in rows)


def xml(name: str, *children: tuple[str, object], depth: int = 0) -> str:
    """Elements one below the other, a tab for each depth; what isn't ASCII as a number."""
    inside = ""
    for child, value in children:
        if isinstance(value, list):
            inside += xml(child, *value, depth=depth + 1)
        else:
            text = escape(str(value), {'"': "&quot;", "'": "&apos;"}).encode("ascii", "xmlcharrefreplace").decode()
            inside += "\t" * (depth + 1) + f"<{child}>{text}</{child}>\n"
    return "\t" * depth + f"<{name}>\n{inside}" + "\t" * depth + f"</{name}>\n"


def column(name: str, role: str, datatype: str = "String", *more: tuple[str, object]) -> tuple[str, object]:
    return ("assigment", [("name", name), ("type", f"{role}_ATTRIBUTE"), ("datatype", datatype), *more])


def levels(name: str, least: object = "All", most: object = "All") -> list[tuple[str, object]]:
    return [("ref", f"hierarchies/{name}.csv"), ("min", least), ("max", most)]


def members(*, mark: str = ";", outliers: str = "0.04", hierarchies: str = "utf-8") -> dict[str, bytes]:
    ages = [(str(age), f"[{age // 2 * 2}, {age // 2 * 2 + 2}[", "*") for age in range(20, 24)]
    towns = [(town, "Rhine" if place < 2 else "sea") for place, town in enumerate(TOWNS)]
    definition = xml(
        "definition",
        column("no", "IDENTIFYING", "Integer"),
        column("age", "QUASI_IDENTIFYING", "Integer", ("format", "#,##0"), ("locale", "EN"), *levels("age", 1)),
        column(" town & country", "QUASI_IDENTIFYING", "String", *levels(" town & country")),
        column("grade", "SENSITIVE", "Ordinal", ("format", "low\nmid\nhigh"), ("responseVariable", "true")),
        column("note", "INSENSITIVE"),
    )
    config = xml(
        "config",
        ("suppressTuplesInNonAnonymousOutput", "true"),
        ("suppressedAttributeTypes", [("type", "QUASI_IDENTIFYING_ATTRIBUTE")]),
        ("practicalMonotonicity", "false"),
        ("relativeMaxOutliers", outliers),
        ("metric", "Loss"),
        (
            "attributeWeights",
            [
                ("attributeWeight", [("attribute", "age"), ("weight", "0.25")]),
                ("attributeWeight", [("attribute", " town & country"), ("weight", "1.0")]),
            ],
        ),
        ("criteria", [("criterion", "2-anonymity"), ("criterion", "ordered-0.4-closeness for attribute 'grade'")]),
    )
    project = xml(
        "project",
        ("name", "a study"),
        ("separator", mark),
        ("escape", '"'),
        ("quote", '"'),
        ("linebreak", "UNIX"),
        ("locale", "EN"),
    )
    header = ("no", "age", " town & country", "grade", "note")
    return {
        "metadata.xml": xml("metadata", ("version", "3.9.1"), ("vocabulary", "2.0")).encode(),
        "project.dat": OBJECT,
        "project.xml": project.encode(),
        "data/input.csv": lines([header, *ROWS], mark).encode(),
        "input/config.dat": OBJECT,
        "input/config.xml": config.encode(),
        "input/definition.xml": definition.encode(),
        "input/hierarchies/age.csv": lines(ages, mark).encode(hierarchies),
        "input/hierarchies/ town & country.csv": lines(towns, mark).encode(hierarchies),
    }


def saved(place: Path, parts: dict[str, bytes]) -> Path:
    path = place / "study.deid"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("mark", [";", ",", "\t", "|"])
def test_a_project_as_arx_lays_it_out(tmp_path: Path, mark: str) -> None:
    project = read_project(saved(tmp_path, members(mark=mark)))
    assert [(one.name, one.role, one.weight, one.order) for one in project.attributes] == [
        ("no", Role.IDENTIFYING, 1.0, None),
        ("age", Role.QUASI, 0.25, None),
        (" town & country", Role.QUASI, 1.0, None),
        ("grade", Role.SENSITIVE, 1.0, ("low", "mid", "high")),
        ("note", Role.INSENSITIVE, 1.0, None),
    ]
    assert project.suppression == Fraction(1, 25)
    assert project.criteria == ("2-anonymity", "ordered-0.4-closeness for attribute 'grade'")
    assert project.table.num_rows == len(ROWS)
    assert set(project.table.column(" town & country").to_pylist()) == set(TOWNS[:2])
    assert set(project.table.column("note").to_pylist()) == {"x\ny"}
    # NULL is a missing value of a column that has an order
    assert set(project.table.column("grade").to_pylist()) == {"low", "mid", "high", None}
    # two groups are left at ARX's highest level of towns; * is ours, and above what "All" meant
    assert project.levels == {"age": (1, 2), " town & country": (0, 1)}
    closeness = TCloseness("0.5", "grade", Distance.ORDERED)
    asked = project.configuration(k=2, models=[DistinctDiversity(2, "grade"), closeness])
    release = full_domain(project.table, asked, levels=project.levels)
    assert set(release.table.column("age").to_pylist()) <= {"[20, 22[", "[22, 24[", "*"}
    assert verify(release.table, asked, project.table).good
    assert asked.attribute("grade").kind in (None, Kind.ORDERED)


def test_a_column_without_generalisation_stays_at_its_values(tmp_path: Path) -> None:
    """For a quasi-identifier without a hierarchy ARX writes one of level 0 alone."""
    parts = members()
    parts["input/hierarchies/age.csv"] = lines([(str(age),) for age in range(20, 24)]).encode()
    parts["input/definition.xml"] = parts["input/definition.xml"].replace(b"<min>1</min>", b"<min>All</min>")
    assert read_project(saved(tmp_path, parts)).levels["age"] == (0, 0)


def test_line_breaks_within_values_are_no_ends_of_rows(tmp_path: Path) -> None:
    """The table is read in blocks of a megabyte, which mustn't end inside a quoted value."""
    parts = members()
    long = "x\n" * 2000
    rows = [(*row[:4], long) for row in ROWS * 12]
    parts["data/input.csv"] = lines([("no", "age", " town & country", "grade", "note"), *rows]).encode()
    assert len(parts["data/input.csv"]) > 2 << 20
    assert read_project(saved(tmp_path, parts)).table.column("note").to_pylist() == [long] * len(rows)


def test_hierarchies_in_the_encoding_of_the_machine(tmp_path: Path) -> None:
    path = saved(tmp_path, members(hierarchies="cp1252"))
    with pytest.raises(SourceError, match=r"country\.csv' is not UTF-8; .* such as encoding='cp1252'"):
        read_project(path)
    towns = read_project(path, encoding="cp1252").attributes[2].hierarchy
    assert towns is not None
    assert towns.unknown(read_project(path, encoding="cp1252").table.column(2).combine_chunks()) == []
    for wrong in ("ascii", "no-such-encoding"):
        with pytest.raises(SourceError, match=f"can't be read as '{wrong}'"):
            read_project(path, encoding=wrong)


@pytest.mark.parametrize(
    ("written", "share"), [("1.0E-4", Fraction(1, 10**4)), ("1.0", Fraction(1)), ("0.0", Fraction(0))]
)
def test_limits_as_java_writes_them(tmp_path: Path, written: str, share: Fraction) -> None:
    assert read_project(saved(tmp_path, members(outliers=written))).suppression == share


@pytest.mark.parametrize(
    ("member", "old", "new", "message"),
    [
        ("project.xml", b"<separator>;", b"<separator>;;", r"separator must be one character; got ';;'"),
        ("project.xml", b"<separator>;", b"<separator>\n", r"separator must be one character"),
        (
            "input/definition.xml",
            b"<min>1<",
            b"<min>low<",
            r"<min> of the column 'age' must be .* got 'low'",
        ),
        ("input/definition.xml", b"assigment", b"assignment", r"the definition names no column"),
        ("data/input.csv", b"0;20;", b"0;20;;;;", r"'data/input\.csv' can't be read as a table"),
    ],
)
def test_what_arx_never_writes_is_named(tmp_path: Path, member: str, old: bytes, new: bytes, message: str) -> None:
    parts = members()
    assert old in parts[member]
    parts[member] = parts[member].replace(old, new)
    with pytest.raises(SourceError, match=message):
        read_project(saved(tmp_path, parts))


def test_bad_limits_and_hierarchies_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="relativeMaxOutliers"):
        read_project(saved(tmp_path, members(outliers="many")))
    parts = members()
    parts["input/hierarchies/age.csv"] = b"20;a;*\n21;a;x\n"
    with pytest.raises(InvalidParameter, match=r"the hierarchy of 'age': '20' and '21' are both 'a' at level 1"):
        read_project(saved(tmp_path, parts))


def test_a_damaged_archive_is_no_project(tmp_path: Path) -> None:
    path = saved(tmp_path, members())
    content = bytearray(path.read_bytes())
    start = content.index(b"project.xml") + len(b"project.xml")
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(bytes(content))
    with pytest.raises(SourceError, match=r"must be a \.deid file"):
        read_project(path)
