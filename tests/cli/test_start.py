"""How a command starts: with what it needs and no more, and an interrupt on the way ends it without a trace."""

import ast
import importlib
import pickle
import pydoc
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import ModuleType

import pytest

import dither
from dither.cli import main as command
from dither.cli.commands import SUMMARIES, app, loaded

SRC = Path(dither.__file__).parents[1]
HEAVY = ("numpy", "scipy", "pyarrow", "duckdb", "sqlglot", "pandas", "fastapi", "matplotlib", "asyncio")
LAZY = ("", ".audit", ".checks", ".curator", ".engines", ".ledger", ".local", ".mechanisms", ".privacy")


def loaded_by(script, *arguments, cwd=None):
    """What of the heavy libraries a process has loaded when it ends."""
    script += f"\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=cwd, check=True
    )
    return set(done.stderr.splitlines()[-1].split()), done.stdout


def typed(*arguments, cwd=None):
    return loaded_by("import sys; from dither.cli.main import main; main()", *arguments, cwd=cwd)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["ask", "--help"], ["serve", "--help"], ["nothing"]])
def test_what_is_only_said_loads_no_library(arguments):
    heavy, said = typed(*arguments)
    assert heavy == set()
    assert said.startswith(("dither 0.", "Usage: ")) or arguments == ["nothing"]


def test_tokens_and_records_need_neither_engine_nor_mechanisms(shop):
    heavy, said = typed("token", "create", "ana", cwd=shop)
    assert heavy <= {"numpy"}
    assert said.startswith("dither_")
    for arguments in (["token", "list"], ["ledger", "list"]):
        heavy, said = typed(*arguments, cwd=shop)
        assert heavy <= {"numpy"}, arguments
        assert "ana" in said or "nothing was asked yet" in said


@pytest.mark.parametrize("package", LAZY)
def test_a_package_loads_nothing_until_a_name_of_it_is_used(package):
    heavy, _ = loaded_by(f"import dither{package}")
    # audits of functions are measured with numpy and scipy, whatever is asked of them
    assert heavy <= ({"numpy", "scipy"} if package == ".audit" else set())


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(f"dither{package}")
    star = {}
    exec(f"from dither{package} import *", star)
    assert set(star) - {"__builtins__"} == set(module.__all__)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert star[name] is getattr(module, name)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        module.nothing_of_this_name  # noqa: B018
    with pytest.raises(ImportError, match="nothing_of_this_name"):
        exec(f"from dither{package} import nothing_of_this_name")


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_what_is_loaded_later(package):
    """Each name of the stub is the object of that name in the module that the stub takes it from."""
    module = importlib.import_module(f"dither{package}")
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {a.name: line.module for line in stub.body if isinstance(line, ast.ImportFrom) for a in line.names}
    assert homes.keys() == set(module.__all__)
    for name, home in homes.items():
        if home is None:
            assert getattr(module, name) is importlib.import_module(f"{module.__name__}.{name}")
        else:
            assert getattr(module, name) is getattr(importlib.import_module(f"{module.__name__}.{home}"), name)


@pytest.mark.parametrize("package", LAZY)
def test_no_module_takes_the_place_of_a_name(package):
    """A submodule of the same name stands there once it is loaded, unless the name was bound after it."""
    module = importlib.import_module(f"dither{package}")
    folder = Path(module.__file__).parent
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = {a.name for line in stub.body if isinstance(line, ast.ImportFrom) and line.module for a in line.names}
    for name in names:
        if (folder / f"{name}.py").exists() or (folder / name).is_dir():
            assert not isinstance(vars(module)[name], ModuleType), "bind it in __init__.py"


def test_names_can_be_read_about_and_pickled():
    page = pydoc.render_doc(dither, renderer=pydoc.plaintext)
    assert "budget that can't be overspent" in page
    for one in (dither.Laplace, dither.Curator, dither.Guarantee, dither.compose):
        assert pickle.loads(pickle.dumps(one)) is one


def test_threads_that_begin_together_get_the_same_names():
    script = """
import threading, dither
names = ("Curator", "Policy", "Laplace", "Guarantee", "Answer", "compose", "SparseVector", "Quote")
begin, found = threading.Barrier(len(names)), []
def get(name):
    begin.wait()
    found.append((name, getattr(dither, name)))
threads = [threading.Thread(target=get, args=(name,)) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == len(names) and all(getattr(dither, name) is one for name, one in found), found
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_library_that_is_missing_is_named():
    script = """
import sys
sys.modules["sqlglot"] = None
try:
    from dither import Curator
except ImportError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "sqlglot" in done.stdout


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_list_says_what_each_command_says_of_itself(name):
    listed = {one.name: one.help for one in app.registered_commands}
    assert loaded(name).get_short_help_str(200) == listed[name]


def test_every_module_with_a_command_is_listed():
    modules = {}
    for path in (SRC / "dither" / "cli").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
        made |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if path.stem in made or "app" in made:
            modules[path.stem] = path
    assert set(modules) - {"commands", "main", "progress_bar", "read_only_curator"} == set(SUMMARIES)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent")
@pytest.mark.parametrize("library", ["typer", "numpy", "sqlglot", "duckdb"])
def test_an_interrupt_while_libraries_are_loaded_ends_the_command(shop, library):
    """Whichever is being loaded when it comes."""
    script = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {library!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from dither.cli.main import main
sys.exit(main())
"""
    command = [sys.executable, "-c", script, "price", "SELECT COUNT(*) AS n FROM orders"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shop, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "dither: stopped\n")


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="interrupts reach the main thread"
)
def test_an_interrupt_that_a_callback_swallows_is_raised_again(monkeypatch, capfd):
    class Loading:
        pass

    def run(_):
        module = Loading()
        kept = weakref.ref(module, lambda _: signal.raise_signal(signal.SIGINT))
        del module
        assert kept() is None
        threading.Event().wait(60)
        return 0

    monkeypatch.setattr(command, "_run", run)
    assert command.main(["check"]) == command.STOPPED
    assert capfd.readouterr().err == "dither: stopped\n"


def test_answers_load_nothing_that_opening_did_not(shop):
    """Or the first answer of a server would be slow, and what isn't installed would be missed after the charge."""
    # pyarrow looks for pandas when it first converts a column; `dither serve` lets it do so before it listens
    script = """
import sys
class NoPandas:
    def find_spec(self, name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
from dither import Curator
with Curator.open("dither.toml") as curator:
    before = set(sys.modules)
    curator.price("SELECT COUNT(*) AS n FROM orders", error=90)
    for sql in (
        "SELECT city, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY city",
        "SELECT MEDIAN(amount) AS middle FROM orders",
        "SELECT amount, COUNT(*) AS n FROM orders GROUP BY amount",
        "SELECT COUNT(DISTINCT customer) AS customers, STDDEV(amount) AS spread FROM orders",
    ):
        answer = curator.sql(sql, epsilon="0.2")
        answer.table.to_pylist(), str(answer)
    curator.budget(), curator.records(count=5)
    print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=shop)
    assert [name for name in done.stdout.split() if name.partition(".")[0] in ("dither", *HEAVY)] == []
