"""Small drawings inside the results table: the interval of a difference, and the key to the plots."""

from __future__ import annotations

from collections.abc import Sequence

from odeum.lab.study.row import Row
from odeum.lab.study.svg import INK, PALETTE, PlotStyle

WIDTH, HEIGHT = 150, 22


def forest(row: Row, rows: Sequence[Row], look: PlotStyle, seeds: Sequence[float] = ()) -> str:
    """The difference and its interval on an axis that all rows share; right is better, whatever the metric;
    the band is the margin, and a small dot is the difference in one seed."""
    middle, y = WIDTH / 2, HEIGHT / 2
    zero = f'<line x1="{middle}" x2="{middle}" y1="0" y2="{HEIGHT}" stroke="var(--soft)" stroke-width="1"/>'
    found, ends, colour = row.difference, row.ends, css_colour(look)
    place = _scale(rows, 1 if row.higher_is_better else -1)
    margin = max((other.margin or 0.0 for other in rows), default=0.0)
    left, right = sorted((place(-margin), place(margin)))
    marks = (
        f'<rect class="margin" x="{left:.1f}" y="0" width="{right - left:.1f}" height="{HEIGHT}"/>' if margin else ""
    )
    marks += zero
    if row.is_baseline:
        marks += f'<circle cx="{middle}" cy="{y}" r="3.5" fill="{colour}"/>'
    elif found and found.mean == found.mean:
        if ends is not None:
            left, right = sorted(map(place, ends))
            marks += f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
            marks += _arrow(left, 2, 6, y, colour) + _arrow(right, WIDTH - 2, WIDTH - 6, y, colour)
        dots = (place(value) for value in seeds if value == value)
        marks += "".join(f'<circle class="seed" cx="{x:.1f}" cy="{HEIGHT - 4}" r="1.8" fill="{colour}"/>' for x in dots)
        marks += f'<circle cx="{place(found.mean):.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
    return f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{marks}</svg>'


def reach(rows: Sequence[Row]) -> float:
    """What the axis goes to on either side: room for every interval, unless one is so wide that it would hide the
    others: then it is cut at an arrow."""
    found = [row.difference for row in rows if row.difference and row.difference.mean == row.difference.mean]
    means = max((abs(f.mean) for f in found), default=0.0)
    ends = max((abs(end) for row in rows for end in row.ends or ()), default=0.0)
    return max(min(ends, 4 * means) if means else ends, means * 1.1) or 1.0


def _scale(rows: Sequence[Row], sign: int):
    most, half = reach(rows), WIDTH / 2 - 8
    return lambda value: WIDTH / 2 + min(max(sign * value / most, -1 - 6 / half), 1 + 6 / half) * half


def _arrow(at: float, tip: float, back: float, y: float, colour: str) -> str:
    if abs(at - tip) > 0.1:
        return ""
    return f'<path d="M{back} {y - 4} L{tip} {y} L{back} {y + 4}" fill="none" stroke="{colour}" stroke-width="2"/>'


def key(look: PlotStyle) -> str:
    """The line and marker of the plots, so that the table is their legend too."""
    colour = css_colour(look)
    dash = "" if look.line == "-" else ' stroke-dasharray="5 3"'
    fill = colour if look.filled else "var(--card)"
    return (
        f'<svg class="key" viewBox="0 0 26 14" aria-hidden="true"><line x1="1" x2="25" y1="7" y2="7" stroke="{colour}" '
        f'stroke-width="2.4"{dash}/>{_shape(look.marker, colour, fill)}</svg>'
    )


def _shape(marker: str, colour: str, fill: str) -> str:
    paths = {
        "s": "M9 3h8v8h-8z",
        "D": "M13 1.8l5.2 5.2-5.2 5.2-5.2-5.2z",
        "d": "M13 1.5l3.6 5.5-3.6 5.5-3.6-5.5z",
        "^": "M13 2l5 9h-10z",
        "v": "M13 12l5-9h-10z",
        "<": "M8 7l9-5v10z",
        ">": "M18 7l-9-5v10z",
        "P": "M11 2h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
        "X": "M9.5 2l3.5 3 3.5-3 1.5 1.5-3 3.5 3 3.5-1.5 1.5-3.5-3-3.5 3-1.5-1.5 3-3.5-3-3.5z",
        "*": "M13 1l1.7 4h4.3l-3.4 2.7 1.3 4.3-3.9-2.6-3.9 2.6 1.3-4.3-3.4-2.7h4.3z",
        "h": "M13 2l4.4 2.5v5l-4.4 2.5-4.4-2.5v-5z",
    }
    style = f'fill="{fill}" stroke="{colour}" stroke-width="1.5"'
    if marker in paths:
        return f'<path d="{paths[marker]}" {style}/>'
    return f'<circle cx="13" cy="7" r="4.2" {style}/>'


def css_colour(look: PlotStyle) -> str:
    """The page's variable for a plot's colour: it has a light and a dark value."""
    return "var(--ink)" if look.colour == INK else f"var(--s{PALETTE.index(look.colour)})"
