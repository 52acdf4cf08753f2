"""Draws docs/concepts/composition.svg: why a hundred releases cost far less than a hundred times one.

The picture is written as plain SVG, without a plotting library. Run it with another path to write it elsewhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dither as dp
from dither.entropy import InsecureSeededSource
from dither.privacy import PureLoss, advanced_composition, basic_composition, optimal_composition

EPSILON, DELTA = 0.1, 1e-6
PATHS, STEPS, RELEASES = 60, 400, 1000
HOME = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "composition.svg"
WIDTH, HEIGHT = 980, 515
INK, GREY, LIGHT = "#222222", "#6b6b6b", "#e3e3e3"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Axes with a frame: data in, SVG out."""

    left: float
    x_end: float
    y_low: float
    y_high: float
    top: float = 52.0
    width: float = 400.0
    height: float = 310.0

    def x(self, value: float) -> float:
        return self.left + self.width * value / self.x_end

    def y(self, value: float) -> float:
        return self.top + self.height * (self.y_high - value) / (self.y_high - self.y_low)

    def line(self, points: Points, colour: str, *, width: float = 2.0, dash: str = "", opacity: float = 1.0) -> str:
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
            f' stroke-opacity="{opacity}" stroke-linejoin="round"{dashed} clip-path="url(#{self.clip})"/>'
        )

    def area(self, upper: Points, lower: Points, colour: str) -> str:
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in [*upper, *reversed(lower)])
        return f'<polygon points="{path}" fill="{colour}" fill-opacity="0.16" clip-path="url(#{self.clip})"/>'

    @property
    def clip(self) -> str:
        return f"panel{self.left:.0f}"

    def frame(self, title: str, x_name: str, y_name: str, x_ticks: Iterable[int], y_ticks: Iterable[int]) -> list[str]:
        bottom, middle = self.top + self.height, self.left + self.width / 2
        out = [
            f'<clipPath id="{self.clip}">{box(self.left, self.top, self.width, self.height, "none")}</clipPath>',
            text(self.left, self.top - 16, title, size=15, weight="bold"),
            text(middle, bottom + 42, x_name, anchor="middle"),
            f'<g transform="translate({self.left - 40:.0f} {self.top + self.height / 2:.0f}) rotate(-90)">'
            + text(0, 0, y_name, anchor="middle")
            + "</g>",
        ]
        for tick in y_ticks:
            out.append(rule(self.left, self.y(tick), self.left + self.width, self.y(tick), LIGHT))
            out.append(text(self.left - 8, self.y(tick) + 4, str(tick).replace("-", "−"), anchor="end"))
        for tick in x_ticks:
            out.append(rule(self.x(tick), bottom, self.x(tick), bottom + 5, GREY))
            out.append(text(self.x(tick), bottom + 20, f"{tick:,}".replace(",", " "), anchor="middle"))
        out.append(rule(self.left, self.top, self.left, bottom, GREY))
        out.append(rule(self.left, bottom, self.left + self.width, bottom, GREY))
        return out


def box(x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"'
        f' fill-opacity="{opacity}"/>'
    )


def rule(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="1"/>'


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
        f' fill="{INK}">{words}</text>'
    )


def legend(panel: Panel, entries: Sequence[tuple[str, str, str]]) -> list[str]:
    """Rows of (kind, colour, words) below a panel; the kind is ``line``, a dash pattern, or ``area``."""
    x, y = panel.left, panel.top + panel.height + 58
    out = []
    for place, (kind, colour, words) in enumerate(entries):
        middle = y + 15 + 20 * place
        if kind == "area":
            out.append(box(x + 9, middle - 6, 26, 12, colour, opacity=0.2))
        else:
            dashed = "" if kind == "line" else f' stroke-dasharray="{kind}"'
            out.append(
                f'<line x1="{x + 9:.1f}" y1="{middle:.1f}" x2="{x + 35:.1f}" y2="{middle:.1f}" stroke="{colour}"'
                f' stroke-width="2.2"{dashed}/>'
            )
        out.append(text(x + 43, middle + 4, words))
    return out


def paths() -> list[list[tuple[float, float]]]:
    """Summed losses of randomised responses: a true answer adds ε, a lie takes ε away.

    Drawn from a seed, so that the picture is the same every time; real answers never come from a seeded source.
    """
    response = dp.RandomizedResponse.for_epsilon(EPSILON)
    source = InsecureSeededSource(2026)
    kept = response.release(np.ones((PATHS, STEPS), dtype=np.int64), source=source)
    sums = np.cumsum(np.where(kept == 1, EPSILON, -EPSILON), axis=1)
    every = 4
    return [[(0.0, 0.0), *((k + 1.0, float(path[k])) for k in range(every - 1, STEPS, every))] for path in sums]


def walks() -> list[str]:
    panel = Panel(left=70, x_end=STEPS, y_low=-6, y_high=15)
    drift = EPSILON * math.tanh(EPSILON / 2)
    counts = [STEPS * i / 100 for i in range(101)]

    def curve(height: Callable[[float], float]) -> Points:
        return [(k, height(k)) for k in counts]

    upper = curve(lambda k: k * drift + 2 * EPSILON * math.sqrt(k))
    lower = curve(lambda k: k * drift - 2 * EPSILON * math.sqrt(k))
    azuma = curve(lambda k: k * drift + EPSILON * math.sqrt(2 * k * math.log(1 / DELTA)))
    return [
        *panel.frame(
            f"(a) {PATHS} runs of randomised response",
            f"releases k, ε = {EPSILON:g} each",
            "summed privacy loss",
            range(0, STEPS + 1, 100),
            range(-6, 16, 3),
        ),
        panel.area(upper, lower, BLUE),
        *(panel.line(path, BLUE, width=0.7, opacity=0.35) for path in paths()),
        panel.line(curve(lambda k: k * drift), INK, dash="6 4"),
        panel.line(azuma, ORANGE, width=2.4),
        panel.line([(0, 0), (STEPS, STEPS * EPSILON)], GREY, dash="2 3"),
        *legend(
            panel,
            [
                ("2 3", GREY, "worst case: every loss is ε (basic composition)"),
                ("line", ORANGE, "mean + ε√(2k·ln(1/δ)): exceeded with probability &lt; 10⁻⁶"),
                ("6 4", INK, "mean of the sum: k·ε·tanh(ε/2)"),
                ("area", BLUE, "mean ± 2ε√k: about 19 of 20 runs at any k"),
            ],
        ),
    ]


def theorems() -> tuple[list[str], list[tuple[int, float, float, float, float]]]:
    panel = Panel(left=560, x_end=RELEASES, y_low=0, y_high=32)
    counts = [1, 5, *range(10, 100, 10), *range(100, RELEASES + 1, 50)]
    laplace = dp.Laplace(scale=1 / EPSILON).loss(dp.Sensitivity.l1(1))
    rows = [
        (
            k,
            basic_composition(EPSILON, k)[0],
            advanced_composition(EPSILON, k, slack=DELTA)[0],
            optimal_composition(EPSILON, k, target_delta=DELTA),
            (k * laplace).epsilon(delta=DELTA),
        )
        for k in counts
    ]
    # the optimal theorem is what the loss algebra computes, if nothing but ε is known
    low, high = (RELEASES * PureLoss(EPSILON)).epsilon_bounds(delta=DELTA)
    if not low <= rows[-1][3] <= high:
        raise SystemExit(f"the theorem says {rows[-1][3]}, the algebra between {low} and {high}")
    columns = [[(float(row[0]), float(row[i])) for row in rows] for i in range(1, 5)]
    styles = [(GREY, "2 3"), (ORANGE, ""), (BLUE, ""), (GREEN, "7 4")]
    drawn = [
        panel.line(points, colour, dash=dash, width=2.2) for points, (colour, dash) in zip(columns, styles, strict=True)
    ]
    out = [
        *panel.frame(
            "(b) ε of k releases together, δ = 10⁻⁶",
            f"releases k, ε = {EPSILON:g} each",
            "ε",
            range(0, RELEASES + 1, 200),
            range(0, 33, 8),
        ),
        *drawn,
        *legend(
            panel,
            [
                ("2 3", GREY, "basic composition: k·ε"),
                ("line", ORANGE, "advanced composition"),
                ("line", BLUE, "optimal composition = exact for randomised response"),
                ("7 4", GREEN, "exact for Laplace noise"),
            ],
        ),
    ]
    return out, [row for row in rows if row[0] in (1, 10, 100, 500, 1000)]


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HOME
    right, rows = theorems()
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif">',
        "<title>Why advanced composition works</title>",
        box(0, 0, WIDTH, HEIGHT, "#ffffff"),
        *walks(),
        *right,
        "</svg>",
    ]
    target.write_text("\n".join(body) + "\n", encoding="utf-8")
    print(f"{'k':>5} {'basic':>9} {'advanced':>9} {'optimal':>9} {'Laplace':>9}")
    for k, *values in rows:
        print(f"{k:>5} " + " ".join(f"{value:>9.4f}" for value in values))


if __name__ == "__main__":
    main()
