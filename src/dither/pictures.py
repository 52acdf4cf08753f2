"""Pictures in one style, as SVG or PNG files: drawn with matplotlib, which is optional and loaded when first needed.

The same numbers give the same SVG, byte for byte, so that pictures can live beside the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dither.errors import InvalidParameter, MissingLibrary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Readable for people who can't tell red from green (Okabe & Ito 2008).
EXACT = "#D55E00"
PRIVATE = "#0072B2"
LINE = "#333333"
FAINT = "#999999"
MORE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

# Names inside an SVG, and where they are used.
ID = re.compile(r'\bid="([^"]+)"')
REFERENCE = re.compile(r'(xlink:href="#|href="#|url\(#)([^")]+)')

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "dither",
}


@contextmanager
def picture(path: Path, *, width: float = 7.0, height: float = 4.0) -> Iterator[Figure]:
    """A figure to draw on, in inches; saved at ``path`` (.svg or .png) when the block ends without an error.

    Raises MissingLibrary where matplotlib isn't installed.
    """
    if path.suffix not in (".svg", ".png"):
        raise InvalidParameter(f"a picture is saved as .svg or .png; got {path.name!r}")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibrary("pictures need matplotlib: pip install 'dither[plots]'") from None
    with mpl.rc_context(STYLE):
        # a Figure of its own, without pyplot: nothing global changes and no window opens
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        metadata = {"Date": None} if path.suffix == ".svg" else None
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=metadata)


def inlined(path: Path, prefix: str) -> str:
    """A saved SVG as part of an HTML page; its names get a prefix, since a page has each name once."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = ID.sub(lambda found: f'id="{prefix}.{found[1]}"', text)
    return REFERENCE.sub(lambda found: f"{found[1]}{prefix}.{found[2]}", text)
