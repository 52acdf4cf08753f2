"""The documentation can't rot: every snippet, every command and every example is run, and what they show is compared.

The blocks of a page are run in their order, in one temporary directory. ``…`` stands for any characters; alone on a
line, for any lines. Noise is never compared.

- In a ```python block a comment ``# → value`` states what the statement before it shows: the repr of an expression, or
  one printed line each. What has no such comment is only run.
- In a ```console block ``$ dither …`` is run as it is installed, in a process of its own that has loaded nothing of
  dither, at night in a new interpreter; lines that begin with ``> `` go on with a command. What is shown below is
  compared, blanks apart, and where nothing is shown the command is only run. Numbers and bars in lines with `` ± `` are
  noise. A command must succeed, unless it shows ``dither: …`` or ``error: …``: then it must fail with status 1.
- A ```toml block that begins with ``# dither.toml`` is written to that file, in place of what was there.
- A script beside a page can be imported by its blocks, as by somebody who starts Python in that folder.
- A page that says `dither demo --keep shop` in its prose, but not in a console, begins in the directory that it leaves.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import dither as dp
from support.sizes import NIGHTLY, at_night

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Libraries that only some pages use: `make oracles` runs those, in an environment that has them.
OTHERS = ("opendp", "diffprivlib", "dp_accounting")
OTHERS_USED = re.compile(rf"^(?:import|from) ({'|'.join(OTHERS)})\b", re.MULTILINE)
PICTURE = ROOT / "docs" / "concepts" / "composition.svg"
FENCE = re.compile(r"^```(python|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"#\s*→\s?(.*?)\s*$")
FAILS = re.compile(r"^(dither|error): ", re.MULTILINE)
POLICY_FILE = "dither.toml"
LEAVES_A_SHOP = "dither demo --keep shop"


def blocks(document):
    """The blocks of a file by language, moved to the lines where they stand, so that a traceback points there."""
    text = document.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield found.group(1), "\n" * text.count("\n", 0, found.start(2)) + found.group(2)


def matches(expected, shown):
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, shown, re.DOTALL) is not None


def run_block(source, name, namespace):
    """Run a block statement by statement and compare what its comments state."""
    lines = source.splitlines()
    statements = ast.parse(source, name).body
    ends = [statement.lineno - 1 for statement in statements[1:]] + [len(lines)]
    for statement, end in zip(statements, ends, strict=True):
        comments = (SHOWN.search(line) for line in lines[statement.lineno - 1 : end])
        expected = [found.group(1) for found in comments if found]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = None
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), name, "eval"), namespace)
            else:
                exec(compile(ast.Module([statement], []), name, "exec"), namespace)
        if expected:
            shown = [repr(value)] if value is not None else printed.getvalue().splitlines()
            assert len(shown) == len(expected), f"{name}:{statement.lineno} shows {shown}, stated {expected}"
            for one, stated in zip(shown, expected, strict=True):
                assert matches(stated, one), f"{name}:{statement.lineno} shows {one}, stated {stated}"


def commands(source):
    """The commands of a console block, each with its line and the lines that it shows."""
    found = []
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][2]:
            found[-1][1].append(line[2:])
        elif found:
            found[-1][2].append(line)
        else:
            assert not line.strip(), "a console block begins with a command"
    return [(number, "\n".join(text), "\n".join(shown).strip()) for number, text, shown in found]


@pytest.fixture
def dither(fresh, installed):
    """``dither(…)`` is the command, as it is typed; ``dither(…, program=…)`` a Python file, as a reader runs it."""

    def anew(*arguments, program=None):
        if program is None:
            return installed.run(*arguments, stderr=subprocess.STDOUT)
        command = [sys.executable, *map(str, (program, *arguments))]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "encoding": "utf-8"}
        done = subprocess.run(command, check=False, env=installed.environment(), **options)
        return SimpleNamespace(status=done.returncode, out=done.stdout)

    return anew if NIGHTLY else partial(fresh, together=True)


def execute(text, dither):
    """Run one command where we are; its status and all that it wrote."""
    name, *arguments = shlex.split(text, comments=True)
    if name in ("cd", "mkdir"):
        getattr(os, {"cd": "chdir"}.get(name, name))(*arguments)
        return 0, ""
    assert name == "dither", f"only dither, cd and mkdir are run; got {name}"
    done = dither(*arguments)
    return done.status, done.out


def shows(expected, output):
    """Whether the output is what the page shows, blanks apart; see above."""
    parts = []
    for line in expected.splitlines():
        text = " ".join(line.split())
        noisy = " ± " in text
        for piece in re.split(r"(…|[█▒]+|-?\d[\d,]*(?:\.\d+)?)", text):
            if piece == "…":
                parts.append(".*" if text == "…" else "[^\n]*?")
            elif noisy and re.match(r"[█▒]", piece):
                parts.append("[█▒]+")
            elif noisy and re.match(r"-?\d", piece):
                parts.append(r"-?\d[\d,]*(?:\.\d+)?")
            else:
                parts.append(re.escape(piece).replace("\\ ", r"\s+"))
        parts.append(r"\s*")
    lines = "\n".join(" ".join(line.split()) for line in output.splitlines())
    return re.fullmatch("".join(parts), lines.strip(), re.DOTALL) is not None


def run_console(source, name, dither):
    for number, text, expected in commands(source):
        status, output = execute(text, dither)
        wanted = 1 if FAILS.search(expected) else 0
        assert status == wanted, f"{name}:{number} ended with {status}, not {wanted}:\n{output}"
        assert not expected or shows(expected, output), f"{name}:{number} shows\n{output}\nstated\n{expected}"


# Pages of attacks that take seconds, and that tests/attacks runs by day.
ATTACKS = ("differencing", "genomes", "inversion", "linkage", "membership", "ratings", "reconstruction")
LONG = ("docs/guides/survey.md", *(f"docs/guides/attacks/{name}.md" for name in ATTACKS))


def documents_to_run():
    """All of them; those that use other libraries, and those that take long, are marked."""
    for document in DOCUMENTS:
        uses_others = OTHERS_USED.search(document.read_text(encoding="utf-8"))
        marks = [pytest.mark.oracle] if uses_others else []
        if document.relative_to(ROOT).as_posix() in LONG:
            marks.append(at_night)
        yield pytest.param(document, marks=marks)


@pytest.fixture
def away(tmp_path, monkeypatch):
    """An empty directory to be in, nothing of the user's in reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def sure_audits(monkeypatch):
    """Audits in Python blocks may say 99%: here what is right is called wrong once in a billion runs at most."""
    bound = import_module("dither.audit.lower_bound")
    failure = bound.failure_probability
    monkeypatch.setattr(bound, "failure_probability", lambda confidence: failure(confidence) / 10**7)


@pytest.mark.usefixtures("away", "audits_by_processor_time", "sure_audits")
@pytest.mark.parametrize("document", list(documents_to_run()), ids=lambda path: str(path.relative_to(ROOT)))
def test_snippets_run_and_show_what_they_say(document, dither, monkeypatch):
    monkeypatch.syspath_prepend(document.parent)
    name = str(document.relative_to(ROOT))
    namespace = {"__name__": f"snippets_of_{document.stem}"}
    text = document.read_text(encoding="utf-8")
    if LEAVES_A_SHOP in text and f"$ {LEAVES_A_SHOP}" not in text:
        run_console(f"$ {LEAVES_A_SHOP}\n$ cd shop", name, dither)
    for language, source in blocks(document):
        for library in OTHERS_USED.findall(source):
            pytest.importorskip(library)
        if language == "python":
            run_block(source, name, namespace)
        elif language == "console":
            run_console(source, name, dither)
        elif source.lstrip().startswith(f"# {POLICY_FILE}\n"):
            Path(POLICY_FILE).write_text(source.lstrip(), encoding="utf-8")
    for value in namespace.values():
        if isinstance(value, dp.Curator):
            value.close()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_snippets_are_written_the_one_way(document):
    for _, source in blocks(document):
        assert ">>>" not in source, "snippets are code to copy, without prompts"
        assert not re.search(r"#\s*(->|=>)", source), "shown values are marked with →"


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name != "composition_picture.py"], ids=lambda e: e.name)
def test_examples_run(example, dither, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = dither(program=example)
    assert done.status == 0, done.out
    assert done.out.strip()


def test_the_picture_is_the_one_that_the_script_draws(tmp_path, dither):
    drawn = tmp_path / "composition.svg"
    script = ROOT / "examples" / "composition_picture.py"
    done = dither(drawn, program=script)
    assert done.status == 0, done.out
    assert done.out.strip()
    old, new = (path.read_text(encoding="utf-8") for path in (PICTURE, drawn))
    number = re.compile(r"-?\d+\.\d+")
    assert number.split(old) == number.split(new)
    places = zip(number.findall(old), number.findall(new), strict=True)
    # half a pixel: other versions of numpy and scipy may round the last digit otherwise
    assert all(abs(float(a) - float(b)) < 0.5 for a, b in places)


def test_the_runner_notices_a_wrong_value():
    run_block("1 / 4  # → 0.25\nprint('a')  # → a\n(1 / 3, 2)  # → (0.33…, 2)", "right", {})
    run_block("for i in range(2):\n    print(i)\n# → 0\n# → 1", "right", {})
    for wrong in ("1 / 4  # → 0.26", "print('a')  # → b", "x = 1  # → 1", "1 / 3  # → 0.34…"):
        with pytest.raises(AssertionError):
            run_block(wrong, "wrong", {})


@pytest.mark.usefixtures("away")
def test_the_runner_notices_a_wrong_command_or_output(dither):
    run_console("$ mkdir new\n$ cd new\n$ dither budget\ndither: dither.toml: this file …", "right", dither)
    run_console("$ dither price 'SELECT\n> 1'\ndither: …\n…", "right", dither)
    for wrong in (
        "$ dither budget",
        "$ dither budget\nall is well",
        "$ dither budget\ndither: all is well",
        "$ dither demo --keep .\ndither: …",
        "$ rm -r /",
        "output without a command",
    ):
        with pytest.raises(AssertionError):
            run_console(wrong, "wrong", dither)


def test_noise_is_not_compared_and_everything_else_is():
    output = "city             n\nBern  12,345 ± 6  █████▒▒\ncost ε = 0.5\nthe end\n"
    for right in (
        "city n\nBern 1 ± 2.5 █▒\ncost ε = 0.5\nthe end",
        "city   n\n…\nthe end",
        "…\ncost ε = …\n…",
        "city n\nBern …\ncost …\nthe …",
    ):
        assert shows(right, output), right
    for wrong in (
        "city n\nBasel 1 ± 2.5 █▒\ncost ε = 0.5\nthe end",
        "city n\nBern 1 ± 2.5 █▒\ncost ε = 0.6\nthe end",
        "city n\nBern …\ncost …",
        "city n\nBern … the end",
    ):
        assert not shows(wrong, output), wrong
