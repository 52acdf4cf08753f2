"""Budgets as SVG text: a meter for what is used up, and steps for what was left over time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from html import escape
from typing import Protocol

from dither.drawings.svg_axes import FILL, Scale
from dither.numeric.rounding import SMALLEST, percent

# Between stripes in the colour of the text: against the bar and its track each has a contrast of 3, in light and dark.
PENDING, OVER = "#c2630d", "#c2362b"
METER, LEAST_SEEN = (240, 12), 5.0
# Where the area of a burn-down begins, how high it is, and its width before it is stretched to that of the page.
BURN_TOP, BURN_HEIGHT, BURN_WIDTH, BURN_EDGE = 28, 92, 1000, 50


class Spent(Protocol):
    """A point of a burn-down: when, whose account, and which share of its budget was used up."""

    @property
    def at(self) -> str:
        """The time, ISO 8601."""

    @property
    def account(self) -> str:
        """The account's path."""

    @property
    def share(self) -> float | None:
        """The share of the budget that was used up; None without a budget."""


def burn_down(history: Sequence[Spent]) -> str:
    """What is left of each budget over time, one drawing for each account; empty if nothing was spent.

    It is as wide as the page: on a narrow one the latest steps are still there, and texts keep their size.
    """
    accounts: dict[str, list[Spent]] = {}
    for point in history:
        if point.share is not None:
            accounts.setdefault(point.account, []).append(point)
    return "\n".join(_burning(account, points) for account, points in accounts.items())


def meter(share: float, pending: float = 0.0) -> str:
    """A budget as a bar: the used part full, what a question would take hatched, the rest empty.

    A question that takes little is still seen. For one that takes more than is left, the rest has another colour, and
    a line below says how much is missing.
    """
    width, height = METER
    used = min(1.0, max(0.0, share))
    left = 1.0 - used
    over = pending > left + 1e-9
    told = f"{percent(used)} of the budget is used up"
    if pending > 0:
        told += f"; this question would take {percent(pending)}" + (", which is more than is left" if over else "")
    parts = [
        (
            f'<svg class="meter{" over" if over else ""}" viewBox="0 0 {width} {height + 16 if over else height}" '
            f'role="img" aria-label="{escape(told)}">'
        ),
        f"<title>{escape(told)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{FILL}" fill-opacity="0.15"/>',
        f'<rect class="used" width="{width * used:.2f}" height="{height}" rx="6" fill="{FILL}"/>',
    ]
    if pending > 0:
        more = max(width * min(left, pending), LEAST_SEEN)
        place = f'x="{min(width * used, width - more):.2f}" width="{more:.2f}" height="{height}"'
        if over:
            start = min(width * used, width - more)
            parts.append(f'<rect class="pending" {place} fill="{OVER}"/>')
            # between two colours that not everybody can tell apart
            parts.append(f'<rect x="{start:.2f}" width="1.5" height="{height}" fill="currentColor"/>')
            parts.append(
                f'<text x="0" y="{height + 13}" font-family="system-ui, sans-serif" font-size="12" '
                f'fill="currentColor">{escape(_missing(left, pending))}</text>'
            )
        else:
            # only where it is used: an id may be on a page once
            parts.append(
                '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
                f'patternTransform="rotate(45)"><rect width="5" height="5" fill="{PENDING}"/>'
                '<rect width="1.7" height="5" fill="currentColor"/></pattern></defs>'
                f'<rect class="pending" {place} fill="url(#hatch)"/>'
            )
    return "".join(parts) + "</svg>"


def _missing(left: float, pending: float) -> str:
    if left < SMALLEST:
        return "nothing is left" if left <= 0 else "next to nothing is left"
    times = pending / left
    return f"needs {times:,.0f}× what is left" if times >= 10 else f"needs {times:.2g}× what is left"


def _burning(account: str, points: Sequence[Spent]) -> str:
    times = [dt.datetime.fromisoformat(point.at).timestamp() for point in points]
    left = [max(0.0, 1.0 - (point.share or 0.0)) for point in points]
    bottom = BURN_TOP + BURN_HEIGHT
    # the first and the last step stay clear of the edges; one alone is in the middle
    across = Scale(times[0], times[-1], BURN_EDGE, BURN_WIDTH - BURN_EDGE)
    down = Scale(0.0, 1.0, BURN_HEIGHT, 0.0)
    path = f"M0,{down(1.0):.1f}" + "".join(
        f"H{across(time):.1f}V{down(rest):.1f}" for time, rest in zip(times, left, strict=True)
    )
    told = f"{account}: {percent(left[-1])} of the budget is left"
    parts = [
        (
            f'<svg class="chart burn" width="100%" height="{bottom + 22}" role="img" aria-label="{escape(told)}" '
            'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        ),
        f"<title>{escape(told)}</title>",
        (
            # what is left comes first: a long name may leave the drawing
            f'<text x="0" y="14"><tspan font-weight="600">{percent(left[-1])} left</tspan>'
            f'<tspan dx="8" fill-opacity="0.7">{escape(account)}</tspan></text>'
        ),
        # only what is inside is stretched; its lines keep their width
        (
            f'<svg y="{BURN_TOP}" width="100%" height="{BURN_HEIGHT}" viewBox="0 0 {BURN_WIDTH} {BURN_HEIGHT}" '
            f'preserveAspectRatio="none" overflow="visible" role="img" aria-label="{escape(told)}">'
        ),
        f'<path d="{path}H{BURN_WIDTH}V{BURN_HEIGHT}H0Z" fill="{FILL}" fill-opacity="0.18"/>',
        (
            f'<path class="left" d="{path}H{BURN_WIDTH}" fill="none" stroke="{FILL}" stroke-width="2" '
            'vector-effect="non-scaling-stroke"/>'
        ),
        "</svg>",
    ]
    for part, below in ((0.0, -4), (0.5, -4), (1.0, 13)):
        y = BURN_TOP + down(part)
        parts.append(
            f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="4" y="{y + below:.1f}" fill-opacity="0.8">{percent(part)}</text>'
        )
    first, last = (escape(f"{point.at[:16].replace('T', ' ')} UTC") for point in (points[0], points[-1]))
    ends = [("start", "0", first), ("end", "100%", last)] if first != last else [("middle", "50%", first)]
    for anchor, x, shown in ends:
        parts.append(f'<text x="{x}" y="{bottom + 17}" text-anchor="{anchor}" fill-opacity="0.7">{shown}</text>')
    return "".join(parts) + "</svg>"
