"""HTML pages that need nothing else: the skeleton, the rules and the table that reports share."""

from __future__ import annotations

import html
from collections.abc import Sequence

STYLE = """
:root { color-scheme: light dark; --text: #222; --page: #fff; --line: #ddd; --faint: #666; --warm: #D55E00;
  --warmer: #FFF6F0; --bar: #0072B2; --held: #0072B2; --broken: #B34700; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e4e4; --page: #191919; --line: #444; --faint: #aaa;
  --warmer: #33241a; --bar: #4aa3df; --held: #4aa3df; --broken: #ff9a5c; }
  svg { background: #fff; padding: .4rem; border-radius: 6px; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 0 auto; padding: 1rem;
  max-width: 46rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; } p { margin: .5rem 0; }
svg { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .7rem 0; }
th, td { text-align: left; padding: .35rem .5rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } tr.next td { border-top: 2px solid var(--faint); }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.small { font-size: .85rem; } .faint { color: var(--faint); }
"""


def page(title: str, body: Sequence[str], *, style: str) -> str:
    """A whole page; ``style`` are the rules of this page alone, ``body`` is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], groups: Sequence[int] = ()) -> str:
    """A table with titles and classes of its columns, and cells that are HTML already; a line where a group begins.

    Example:
        >>> table([("city", ""), ("people", "n")], [("Bern", "12")])
        '<table><thead><tr><th>city</th><th class="n">people</th></tr></thead><tbody><tr><td>Bern</td>...</table>'
    """
    classes = [f' class="{kind}"' if kind else "" for _, kind in head]
    lines = ["<table><thead><tr>"]
    lines += [f"<th{kind}>{html.escape(title)}</th>" for (title, _), kind in zip(head, classes, strict=True)]
    lines.append("</tr></thead><tbody>")
    for place, row in enumerate(rows):
        begins = ' class="next"' if place > 0 and len(groups) > 0 and groups[place] != groups[place - 1] else ""
        cells = (f"<td{kind}>{text}</td>" for text, kind in zip(row, classes, strict=True))
        lines.append(f"<tr{begins}>{''.join(cells)}</tr>")
    return "".join(lines) + "</tbody></table>"
