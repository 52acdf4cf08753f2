"""The lowest versions that pyproject.toml allows, as requirements for pip.

Usage: python tests/lowest.py         what the whole suite needs: every bound as a pin, and the tools of the tests
       python tests/lowest.py --few   what `make lowest-few` needs: the hard dependencies and what runs tests

``make lowest`` and ``make lowest-few`` install what this prints, so the bounds stand in one place. Under DITHER_LOWEST
(``all`` or ``hard``) tests/docs/test_versions.py sees to it that these versions are what is running.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("server", "pgwire", "plots", "search")
"""What users install; the rest is for working on dither itself."""
RUNNERS = ("hypothesis", "pytest", "pytest-xdist")
# Tools that read the source, which is the same with every version.
READERS = {"import-linter", "mypy", "pandas-stubs", "pyarrow-stubs", "ruff", "scipy-stubs"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,.-]+\])?(?P<bounds>[^;]*)(?P<marker>;.*)?")
_LOWER = re.compile(r">=\s*([\w.]+)")


def project() -> dict[str, object]:
    """The table of that name in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def taken_apart(requirement: str) -> tuple[str, str, str, str]:
    """Name, extras, bounds and marker."""
    found = _REQUIREMENT.fullmatch(requirement)
    assert found is not None, requirement
    return found["name"].lower(), found["extras"] or "", found["bounds"].strip(), found["marker"] or ""


def stated(*, hard: bool) -> list[str]:
    """The requirements of users, as they are written."""
    extras = [] if hard else [each for name in EXTRAS for each in project()["optional-dependencies"][name]]
    return [*project()["dependencies"], *extras]


def lower_bound(bounds: str) -> str | None:
    """The version after >=."""
    found = _LOWER.search(bounds)
    return found[1] if found else None


def lowest(*, hard: bool = False) -> dict[str, str]:
    """The lowest version of each requirement, by name."""
    parts = (taken_apart(requirement) for requirement in stated(hard=hard))
    return {name: lower_bound(bounds) or "" for name, _, bounds, _ in parts}


def requirements(*, few: bool = False) -> list[str]:
    """Lines for pip."""
    parts = [taken_apart(requirement) for requirement in stated(hard=few)]
    pins = [f"{name}{extras}=={lower_bound(bounds)}{marker}" for name, extras, bounds, marker in parts]
    dev = project()["optional-dependencies"]["dev"]
    return [*pins, *(each for each in dev if (taken_apart(each)[0] in RUNNERS if few else _is_tool(each)))]


def _is_tool(requirement: str) -> bool:
    name, *_ = taken_apart(requirement)
    return name not in {"dither", *READERS, *lowest()}


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(few="--few" in sys.argv[1:])) + "\n")
