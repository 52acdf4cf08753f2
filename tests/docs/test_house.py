"""Rules of the house that no linter knows: lengths, proof notes, complete lists, links that resolve."""

import ast
import inspect
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import dither
from dither.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 800
MOST_MODULES = 14
CATALOGUES = {"mechanisms", "cli", "attacks", "local/clients"}
MECHANISMS = ROOT / "src" / "dither" / "mechanisms"
# Modules that aren't mechanisms, and modules that share a note with another one.
NO_NOTE = {"__init__", "base", "grid"}
SHARED_NOTE = {
    "kary_response": "randomized_response",
    "response_estimates": "randomized_response",
    "response_surveys": "randomized_response",
}
PARTS = ("**Claim.**", "**Preconditions.**", "**Why.**", "**What machines change.**", "**What would break it.**")
WORDS = {
    *("unit", "adjacency", "contribution", "bounds", "plan", "sensitivity", "mechanism", "scale", "loss"),
    *("guarantee", "budget", "ledger", "receipt", "release", "answer", "error", "refuse"),
}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def read(*parts):
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def markdown():
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_no_file_is_too_long(folder):
    lengths = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / folder).rglob("*.py")}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


@pytest.mark.parametrize("module", sorted(p.stem for p in MECHANISMS.glob("*.py") if p.stem not in NO_NOTE))
def test_every_mechanism_has_a_proof_note(module):
    note = MECHANISMS / f"{SHARED_NOTE.get(module, module)}.md"
    assert note.exists(), f"{module}.py needs {note.name}"
    text = note.read_text(encoding="utf-8")
    places = [text.find(part) for part in PARTS]
    assert -1 not in places, f"{note.name} lacks {PARTS[places.index(-1)]}"
    assert places == sorted(places), f"the parts of {note.name} are out of order"


def test_a_room_holds_what_knows_each_other():
    """About a dozen modules; a catalogue has one file for one thing, and may be longer."""
    sizes = {
        str(folder.relative_to(ROOT / "src" / "dither")): sum(p.name != "__init__.py" for p in folder.glob("*.py"))
        for folder in (ROOT / "src" / "dither").rglob("*")
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert set(sizes) > CATALOGUES
    assert {room: size for room, size in sizes.items() if size > MOST_MODULES and room not in CATALOGUES} == {}


def test_a_class_name_has_one_meaning():
    met = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                met[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(met) > 800
    assert {name: places for name, places in met.items() if len(places) > 1} == {}


def test_no_proof_note_is_left_over():
    modules = {p.stem for p in MECHANISMS.glob("*.py")}
    assert {p.stem for p in MECHANISMS.glob("*.md")} <= modules
    assert set(SHARED_NOTE) <= modules


def test_the_reference_lists_the_public_names_and_nothing_else():
    listed = re.findall(r"^\| \[`dp\.(\w+)`\]\(", read("docs", "reference.md"), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(dither.__all__)


def functions_of(name, found, *, whole):
    """A public function, or the methods of a public class with its bases, each with those that it overrides."""
    if inspect.ismodule(found) and whole:
        for inner in getattr(found, "__all__", ()):
            yield from functions_of(f"{name}.{inner}", getattr(found, inner), whole=False)
    elif inspect.isfunction(found):
        yield name, [found]
    elif inspect.isclass(found) and whole:
        for method in sorted({m for base in found.__mro__ if base.__module__.startswith("dither") for m in vars(base)}):
            kin = [vars(base)[method] for base in found.__mro__ if method in vars(base)]
            plain = [getattr(one, "__func__", one) for one in kin]
            if not method.startswith("_") and inspect.isfunction(plain[0]):
                yield f"{name}.{method}", plain


def test_public_functions_tell_their_arguments():
    """Each by itself, or as what it overrides, where the parameters are the same."""
    untold = {}
    for public in dither.__all__:
        for name, (function, *overridden) in functions_of(f"dp.{public}", getattr(dither, public), whole=True):
            wanted = set(inspect.signature(function).parameters) - {"self", "cls"}
            for one in (function, *overridden):
                told = (inspect.getdoc(one) or "").partition("Args:")[2]
                if wanted <= set(re.findall(r"^ +\*{0,2}(\w+):", told, re.MULTILINE)):
                    break
            else:
                untold[name] = sorted(wanted)
    assert untold == {}


def test_every_decision_is_listed():
    records = {p.name for p in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", read("docs", "decisions", "README.md"))
    assert set(listed) == records
    assert listed == sorted(listed)
    for record in records:
        text = read("docs", "decisions", record)
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Why", "Consequences")), record


def test_every_word_is_in_the_glossary():
    defined = re.findall(r"^\*\*(\w+)\*\*", read("docs", "glossary.md"), re.MULTILINE)
    assert len(defined) == len(set(defined)), "one meaning each"
    assert set(defined) >= WORDS


@pytest.mark.parametrize("document", markdown(), ids=name_of)
def test_links_resolve(document):
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    for found in LINK.finditer(text):
        target = found.group(1) or found.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (document.parent / path).resolve() if path else document
        assert goal.exists(), f"{name_of(document)} links to {target}"
        assert goal.is_relative_to(ROOT), f"{name_of(document)} links out of the repository: {target}"
        if anchor and goal.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", goal.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in anchors, f"{name_of(document)} links to {target}"


def test_the_index_reaches_every_page():
    """From docs/README.md, or from the index of a folder that is linked there."""
    linked, todo = set(), [ROOT / "docs" / "README.md"]
    while todo:
        index = todo.pop()
        targets = re.findall(r"\]\(([^)#]+\.md)\)", index.read_text(encoding="utf-8"))
        found = {(index.parent / target).resolve() for target in targets} - linked
        linked |= found
        todo += [page for page in found if page.name == "README.md" and page.is_relative_to(ROOT / "docs")]
    pages = {p for p in (ROOT / "docs").rglob("*.md") if p != ROOT / "docs" / "README.md"}
    assert pages - linked == set()


def test_set_up_is_two_commands():
    shell = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    commands = [line.split("#")[0].strip() for block in shell for line in block.splitlines() if line.strip()]
    assert commands == ["make demo", "make test"]
    assert "pip install" not in read("README.md")
    assert "make test" in read(".ci", "run").splitlines()


def test_every_command_is_on_the_front_page():
    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    line = re.search(r"^\| command line \| (.*) \|$", read("README.md"), re.MULTILINE).group(1)
    assert set(re.findall(r"`(?:dither )?(\w+)`", line)) == commands


def test_the_suites_that_the_reference_names_exist():
    line = next(line for line in read("docs", "reference.md").splitlines() if "`dp.checks`" in line)
    named = re.findall(r"`(check_\w+)`", line)
    assert set(named) == {name for name in dither.checks.__all__ if name.startswith("check_")}


def test_the_changelog_starts_with_privacy():
    text = read("CHANGELOG.md")
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    section = text.split(f"## {version}", 1)[1].split("\n## ", 1)[0]
    heads = re.findall(r"^### (\w+)", section, re.MULTILINE)
    assert heads[0] == "Privacy"
    assert version == dither.__version__


def test_work_of_others_is_named_with_its_licence():
    ours = {"dither.css", "dither.js", "dither.svg"}
    static = ROOT / "src" / "dither" / "server" / "web" / "static"
    others = {path for path in static.iterdir() if path.name not in ours}
    assert others
    notice = read("NOTICE")
    for path in others:
        assert re.search(rf"{re.escape(name_of(path))}\).*?\(SPDX: \w", notice, re.DOTALL), path.name
    assert tomllib.loads(read("pyproject.toml"))["project"]["license-files"] == ["LICENSE", "NOTICE"]
