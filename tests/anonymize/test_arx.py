"""Folders of hierarchies and project files, as ARX names and lays them out; the files here are made up."""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path

import pytest

from dither.anonymize.arx import hierarchies_in, read_project
from dither.anonymize.attributes import Role
from dither.anonymize.lattice import full_domain
from dither.anonymize.verify import verify
from dither.errors import InvalidParameter, SourceError

AGES = "".join(f"{age};{age // 10 * 10}-{age // 10 * 10 + 9};*\n" for age in range(20, 40))
SEXES = "f;*\nm;*\n"
ROWS = [(20 + number % 20, "fm"[number % 2], ("flu", "cold", "gout")[number % 3]) for number in range(60)]
INPUT = "name;age;sex;ill\n" + "".join(f"p{place};{age};{sex};{ill}\n" for place, (age, sex, ill) in enumerate(ROWS))
DEFINITION = """<definition>
  <assigment><name>name</name><type>IDENTIFYING_ATTRIBUTE</type><datatype>String</datatype></assigment>
  <assigment><name>age</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>Integer</datatype>
    <ref>hierarchies/age.csv</ref><min>1</min><max>All</max></assigment>
  <assigment><name>sex</name><type>QUASI_IDENTIFYING_ATTRIBUTE</type><datatype>String</datatype>
    <ref>hierarchies/sex.csv</ref><min>All</min><max>1</max></assigment>
  <assigment><name>ill</name><type>SENSITIVE_ATTRIBUTE</type><datatype>String</datatype></assigment>
</definition>"""
CONFIG = """<config>
  <relativeMaxOutliers>0.05</relativeMaxOutliers>
  <attributeWeights><attributeWeight><attribute>age</attribute><weight>0.75</weight></attributeWeight></attributeWeights>
  <criteria><criterion>5-anonymity</criterion><criterion>distinct-2-diversity</criterion></criteria>
</config>"""
PARTS = {
    "project.xml": "<project><name>p</name><separator>;</separator></project>",
    "input/config.xml": CONFIG,
    "input/definition.xml": DEFINITION,
    "input/hierarchies/age.csv": AGES,
    "input/hierarchies/sex.csv": SEXES,
    "data/input.csv": INPUT,
}


def saved(place: Path, parts: dict[str, str]) -> Path:
    path = place / "study.deid"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


def test_project_is_read_and_released(tmp_path: Path) -> None:
    project = read_project(saved(tmp_path, PARTS))
    assert [(one.name, one.role, one.weight) for one in project.attributes] == [
        ("name", Role.IDENTIFYING, 1.0),
        ("age", Role.QUASI, 0.75),
        ("sex", Role.QUASI, 0.5),
        ("ill", Role.SENSITIVE, 1.0),
    ]
    assert project.levels == {"age": (1, 2), "sex": (0, 1)}
    assert project.suppression == Fraction(1, 20)
    assert project.criteria == ("5-anonymity", "distinct-2-diversity")
    assert project.table.num_rows == 60
    configuration = project.configuration(k=5)
    release = full_domain(project.table, configuration, levels=project.levels)
    assert set(release.table.column("age").to_pylist()) == {"20-29", "30-39"}
    assert set(release.table.column("sex").to_pylist()) == {"f", "m"}
    assert release.table.column_names == ["age", "sex", "ill"]
    assert verify(release.table, configuration, project.table).good
    with pytest.raises(InvalidParameter, match="at least one model"):
        project.configuration()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("input/definition.xml", None, "it has no 'input/definition.xml'"),
        ("data/input.csv", None, "it has no 'data/input.csv'"),
        ("input/config.xml", "<config>", "not well-formed XML"),
        ("input/config.xml", '<!DOCTYPE x [<!ENTITY a "aa">]><config>&a;</config>', "declares entities"),
        ("input/config.xml", CONFIG.replace("0.75", "much"), "weight is not a number"),
        ("input/definition.xml", DEFINITION.replace("SENSITIVE_ATTRIBUTE", "SECRET"), "a type that is known"),
        ("input/hierarchies/age.csv", 'a;"b', "can't be read as a hierarchy"),
    ],
)
def test_what_is_no_project_is_refused(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    parts = {**PARTS, name: text} if text is not None else {key: one for key, one in PARTS.items() if key != name}
    with pytest.raises(SourceError, match=message):
        read_project(saved(tmp_path, parts))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.deid").write_text("no archive")
    for path in (tmp_path / "x.deid", tmp_path / "none.deid"):
        with pytest.raises(SourceError, match=r"must be a \.deid file"):
            read_project(path)


def test_hierarchies_of_a_folder_by_name(tmp_path: Path) -> None:
    (tmp_path / "adult_hierarchy_age.csv").write_text(AGES)
    (tmp_path / "sex.csv").write_text(SEXES)
    (tmp_path / "marriage.csv").write_text(SEXES)
    found = hierarchies_in(tmp_path, ["age", "sex", "ill"])
    assert {name: one.height for name, one in found.items()} == {"age": 2, "sex": 1}
    # the file of another column that ends alike is not this one's
    (tmp_path / "other_hierarchy_page.csv").write_text(SEXES)
    assert set(hierarchies_in(tmp_path, ["age"])) == {"age"}
    (tmp_path / "age.csv").write_text(AGES)
    with pytest.raises(
        InvalidParameter, match=r"several hierarchies for 'age': adult_hierarchy_age\.csv, age\.csv; leave one"
    ):
        hierarchies_in(tmp_path, ["age"])
    with pytest.raises(SourceError, match="is not a folder"):
        hierarchies_in(tmp_path / "none", ["age"])
