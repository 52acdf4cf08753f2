"""The drawn tree of errors is the tree of classes, wherever they stand."""

import ast
import re
from pathlib import Path

import dither
from dither import errors

SOURCE = Path(dither.__file__).parent


def drawn():
    """{class: (parent, other bases)} of the picture in the docstring."""
    found, above = {}, []
    for line in errors.__doc__.splitlines():
        branch = re.fullmatch(r"    ((?:│   |    )*)(?:[├└]── )?(\w+)(?:\(([\w, ]+)\))?(?:  +(\S.*))?", line)
        if branch is None or ("──" not in line and found):
            continue
        depth = 0 if "──" not in line else len(branch[1]) // 4 + 1
        above[depth:] = [branch[2]]
        found[branch[2]] = (above[depth - 1] if depth else None, branch[3])
    return found


def written():
    """The same of all classes of the package that are DitherErrors; read, not imported, so that no extra is needed."""
    classes = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                classes.setdefault((path.relative_to(SOURCE).as_posix(), node.name), bases)
    tree, grown = {"DitherError": (None, None)}, True
    while grown:
        grown = False
        for (_, name), bases in classes.items():
            if name not in tree and bases and bases[0] in tree:
                tree[name], grown = (bases[0], ", ".join(bases[1:]) or None), True
    return tree


def test_the_drawn_tree_is_the_class_tree():
    assert len(drawn()) > 20
    assert drawn() == written()
