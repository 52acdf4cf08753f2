"""Pictures of a report: the two histograms of an audit with the event's cut, and lower bounds against the ε line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dither.audit.result import Sketch
from dither.audit.suite.run import Part, Row
from dither.mechanisms.base import Floats
from dither.pictures import EXACT, FAINT, LINE, PRIVATE, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A broken claim may be off by any factor; bars end here, and say so.
FURTHEST = 2.5
HEIGHT_OF_A_ROW = 0.24
SIDES = ("x", "its neighbour")
COLOURS = (PRIVATE, EXACT)
# Up to so many values are drawn one by one.
MOST_BARS = 45


@contextmanager
def _small_picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A picture whose letters are text and not outlines: a report has a hundred of them on one page."""
    with picture(path, width=width, height=height) as figure:
        from matplotlib import rcParams

        rcParams["svg.fonttype"] = "none"  # until the picture is saved, when its own settings end
        # letters may be wider where the page is read
        figure.set_layout_engine("constrained", w_pad=0.12)
        yield figure


def draw_histograms(sketch: Sketch, path: Path) -> None:
    """How often the output, or a score of it, fell where under both inputs; the event is shaded."""
    with _small_picture(path, 5.2, 2.2) as figure:
        axes = figure.add_subplot()
        shares = [counts / max(1.0, float(counts.sum())) for counts in (sketch.x, sketch.x_neighbour)]
        occupied = np.flatnonzero((shares[0] > 0) | (shares[1] > 0))
        if 0 < occupied.size <= MOST_BARS and occupied.size < sketch.x.size:
            _separate_bars(axes, sketch, shares, occupied)
        else:
            for share, colour, name in zip(shares, COLOURS, SIDES, strict=True):
                axes.stairs(share, sketch.edges, color=colour, fill=True, alpha=0.25)
                axes.stairs(share, sketch.edges, color=colour, linewidth=1.2, label=name)
            _shade(axes, sketch.edges, sketch.inside)
            axes.set_xlim(float(sketch.edges[0]), float(sketch.edges[-1]))
            if sketch.cut is not None and sketch.edges[0] <= sketch.cut <= sketch.edges[-1]:
                axes.axvline(sketch.cut, color=LINE, linestyle="--", linewidth=1)
        tallest = max(float(share.max(initial=0.0)) for share in shares)
        axes.set_ylim(0, 1.25 * tallest or 1.0)
        axes.set_xlabel(sketch.label)
        axes.set_ylabel("share of draws")
        axes.locator_params(axis="y", nbins=4)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(-4, 6), useMathText=True)
        axes.legend(loc="upper center", ncols=2, fontsize=8, handlelength=1.2, borderaxespad=0.1)


def _separate_bars(axes: Axes, sketch: Sketch, shares: list[Floats], occupied: npt.NDArray[np.int64]) -> None:
    """Outputs that take few values: two bars side by side at each."""
    centres = (sketch.edges[:-1] + sketch.edges[1:]) / 2
    gap = float(np.diff(centres[occupied]).min(initial=np.inf))
    gap = gap if np.isfinite(gap) else float(sketch.edges[-1] - sketch.edges[0])
    for share, colour, name, side in zip(shares, COLOURS, SIDES, (-0.2, 0.2), strict=True):
        axes.bar(centres[occupied] + side * gap, share[occupied], width=0.38 * gap, color=colour, label=name)
    # bands from middle to middle, so that those of neighbouring values meet
    middles = (centres[occupied][:-1] + centres[occupied][1:]) / 2
    ends = np.concatenate([[centres[occupied[0]] - gap / 2], middles, [centres[occupied[-1]] + gap / 2]])
    _shade(axes, ends, sketch.inside[occupied])
    axes.set_xlim(float(ends[0]), float(ends[-1]))


def _shade(axes: Axes, edges: Floats, inside: npt.NDArray[np.bool_]) -> None:
    """A grey band behind what belongs to the event; neighbouring parts are one band."""
    turns = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
    for start, end in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
        axes.axvspan(float(edges[start]), float(edges[end]), color=FAINT, alpha=0.2, linewidth=0)


def draw_bounds(rows: Sequence[Row], path: Path) -> None:
    """For each row the lower bound as a share of the claimed ε: what is right stays left of the line at 100%."""
    height = 0.9 + HEIGHT_OF_A_ROW * len(rows)
    with _small_picture(path, 7.0, height) as figure:
        axes = figure.add_subplot()
        places = np.arange(len(rows))
        shares = [min(row.share, FURTHEST) for row in rows]
        colours = [EXACT if row.broken else PRIVATE for row in rows]
        axes.barh(places, shares, color=colours, height=0.62)
        for place, row, share in zip(places.tolist(), rows, shares, strict=True):
            told = f"ε ≥ {row.bound.epsilon:.3g}" + (" →" if row.share > FURTHEST else "")
            inside = share > 0.6
            axes.annotate(
                told,
                (share, place),
                xytext=(-4 if inside else 4, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                fontsize=7,
                color="white" if inside else LINE,
            )
        axes.axvline(1.0, color=LINE, linewidth=1.2)
        axes.set_yticks(places, [row.name for row in rows], fontsize=7.5)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, FURTHEST if any(row.broken for row in rows) else 1.35)
        axes.set_xticks([0, 0.5, 1.0, *([1.5, 2.0, 2.5] if any(row.broken for row in rows) else [])])
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("lower bound on ε, as a share of the claimed ε (the line)")


def by_part(rows: Sequence[Row]) -> dict[Part, list[Row]]:
    """The rows of each part that has any."""
    found = {part: [row for row in rows if row.part is part] for part in Part}
    return {part: some for part, some in found.items() if some}
