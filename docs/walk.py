"""Prints the files of src/dither that one question passes through, in the order in which they are first entered.

    python docs/walk.py

The question is a first one, of the demo shop: a file counts if ``curator.sql(…)`` calls a function of it before the
answer is back. What runs because a module is imported doesn't count.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import dither as dp
from dither.cli.shop import POLICY, make_shop

SOURCE = f"{Path(dp.__file__).resolve().parent}/"
QUESTION = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
IMPORTS = "<frozen importlib._bootstrap>"


def walk(question: str = QUESTION) -> dict[str, list[str]]:
    """The files in their order, and the functions of each."""
    files: dict[str, list[str]] = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or of_import(frame):
            return
        functions = files.setdefault(code.co_filename.removeprefix(SOURCE), [])
        if code.co_qualname not in functions:
            functions.append(code.co_qualname)

    with TemporaryDirectory() as place:
        make_shop(Path(place))
        policy = Path(place, "dither.toml")
        # the ledger's head stays here too, so that nothing is left behind in the user's directories
        policy.write_text(POLICY.replace("[source]", '[source]\nledger_head = "shop.head"'), encoding="utf-8")
        with dp.Curator.open(policy) as curator:
            threading.setprofile(called)
            sys.setprofile(called)
            try:
                curator.sql(question, epsilon=0.5)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return files


def of_import(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the import of a module."""
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None


def main() -> None:
    """Print the walk, and how long it is."""
    files = walk()
    for number, (file, functions) in enumerate(files.items(), 1):
        print(f"{number:>3}  {file}  {functions[0]}" + (f" and {len(functions) - 1} more" if functions[1:] else ""))
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions")


if __name__ == "__main__":
    main()
