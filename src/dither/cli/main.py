"""The ``dither`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dither import __version__
from dither.cli import demo
from dither.errors import DitherError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 for an error that is explained, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="dither", description="Differential privacy with proven losses.")
    parser.add_argument("--version", action="version", version=f"dither {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    demo.register(commands)
    chosen = parser.parse_args(arguments)
    try:
        chosen.run(chosen)
    except DitherError as problem:
        print(f"dither: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dither: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
