"""Draws what ARCHITECTURE.md shows of the code: the tree of packages, and the layers as a picture.

    python docs/architecture.py

Both follow from the code: the first lines of the packages' docstrings, and import-linter's contract in pyproject.toml.
A test compares them, so that neither can fall behind.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dither"
PAGE = ROOT / "ARCHITECTURE.md"
PICTURE = ROOT / "docs" / "pictures" / "layers.svg"
BEGIN, END = "<!-- tree: docs/architecture.py -->\n```\n", "```\n<!-- end of tree -->"
# Not needed in order to understand an answer: only their own commands and the conformance suites import them.
WALLED = {"local", "anonymize", "audit", "attacks"}
WIDTH, ROW, GAP = 720, 34, 10


def first_line(package: Path) -> str:
    """What a package is for, in a line."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


def packages(folder: Path) -> list[Path]:
    """The packages directly below a folder."""
    return sorted(place.parent for place in folder.glob("*/__init__.py"))


def tree(folder: Path = SOURCE, depth: int = 0) -> str:
    """All packages, each with its line."""
    lines = []
    for package in packages(folder):
        name = "  " * depth + package.name + "/"
        lines.append(f"{name:<22} {first_line(package)}\n" + tree(package, depth + 1))
    return "".join(lines)


def layers() -> list[list[str]]:
    """The layers of the contract, top to bottom; names in parentheses are rooms that are planned."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    stated = next(contract for contract in contracts if contract["type"] == "layers" and contract.get("exhaustive"))
    return [[name.strip() for name in layer.split("|")] for layer in stated["layers"]]


def room(name: str, left: float, top: int, width: float) -> str:
    """One package: dashed if it is planned, in another colour if it stands behind the wall."""
    bare = name.strip("()")
    planned = name != bare
    fill = "#ffffff" if planned else "#f3e3c3" if bare in WALLED else "#dbe7f3"
    ink, dashes = ("#6b7c8f", ' stroke-dasharray="4 3"') if planned else ("#1c2733", "")
    box = f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW}" rx="5" fill="{fill}" stroke="#6b7c8f"'
    return f"""{box}{dashes}/>
<text x="{left + width / 2:.1f}" y="{top + ROW / 2 + 5:.0f}" fill="{ink}">{escape(bare)}</text>"""


def picture() -> str:
    """The layers as SVG: each may import what is below it, and nothing beside or above it."""
    rows = layers()
    height = len(rows) * (ROW + GAP) + GAP
    rooms = []
    for number, names in enumerate(rows):
        width = (WIDTH - GAP * (len(names) + 1)) / len(names)
        top = GAP + number * (ROW + GAP)
        rooms += [room(name, GAP + place * (width + GAP), top, width) for place, name in enumerate(names)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
    return "\n".join(
        [
            head + 'font-family="sans-serif" font-size="14" text-anchor="middle">',
            "<title>Layers of dither: each imports only what is below it</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *rooms,
            "</svg>",
            "",
        ]
    )


def page(text: str) -> str:
    """The page with the tree as it is now."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + tree() + END, text, flags=re.DOTALL)


def main() -> None:
    """Write both."""
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
