"""The documentation can't rot: every snippet and every example is run, and what they show is compared.

In a ```python block a comment ``# → value`` states what the statement before it shows: the repr of an expression, or
one printed line each. ``…`` stands for any characters. Noise is never compared: what has no such comment is only run.
"""

import ast
import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PICTURE = ROOT / "docs" / "concepts" / "composition.svg"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"#\s*→\s?(.*?)\s*$")


def blocks(document):
    """The python blocks of a file, moved to the lines where they stand, so that a traceback points there."""
    text = document.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield "\n" * text.count("\n", 0, found.start(1)) + found.group(1)


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_snippets_run_and_show_what_they_say(document):
    namespace = {"__name__": f"snippets_of_{document.stem}"}
    for source in blocks(document):
        run_block(source, str(document.relative_to(ROOT)), namespace)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_snippets_are_written_the_one_way(document):
    for source in blocks(document):
        assert ">>>" not in source, "snippets are code to copy, without prompts"
        assert not re.search(r"#\s*(->|=>)", source), "shown values are marked with →"


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name != "composition_picture.py"], ids=lambda e: e.name)
def test_examples_run(example):
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_picture_is_the_one_that_the_script_draws(tmp_path):
    drawn = tmp_path / "composition.svg"
    script = ROOT / "examples" / "composition_picture.py"
    done = subprocess.run([sys.executable, str(script), str(drawn)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
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
