"""Small drawings in SVG: the interval of a difference, the key to the plots, and all claims of papers on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from odeum.lab.study.design import Study
from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.judge import ClaimResult
from odeum.lab.study.plots import INK, PALETTE, PlotStyle

WIDTH, HEIGHT = 150, 22


def forest(row: Row, rows: Sequence[Row], look: PlotStyle, seeds: Sequence[float] = ()) -> str:
    """The difference and its interval on an axis that all rows share; right is better, whatever the metric;
    the band is the margin, and a small dot is the difference in one seed."""
    middle, y = WIDTH / 2, HEIGHT / 2
    zero = f'<line x1="{middle}" x2="{middle}" y1="0" y2="{HEIGHT}" stroke="var(--soft)" stroke-width="1"/>'
    difference, ends, colour = row.difference, row.ends, css_colour(look)
    place = _scale(rows, 1 if row.higher_is_better else -1)
    margin = max((other.margin or 0.0 for other in rows), default=0.0)
    left, right = sorted((place(-margin), place(margin)))
    marks = (
        f'<rect class="margin" x="{left:.1f}" y="0" width="{right - left:.1f}" height="{HEIGHT}"/>' if margin else ""
    )
    marks += zero
    if row.is_baseline:
        marks += f'<circle cx="{middle}" cy="{y}" r="3.5" fill="{colour}"/>'
    elif difference and difference.mean == difference.mean:
        if ends is not None:
            left, right = sorted(map(place, ends))
            marks += f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
            marks += _arrow(left, 2, 6, y, colour) + _arrow(right, WIDTH - 2, WIDTH - 6, y, colour)
        dots = (place(value) for value in seeds if value == value)
        marks += "".join(f'<circle class="seed" cx="{x:.1f}" cy="{HEIGHT - 4}" r="1.8" fill="{colour}"/>' for x in dots)
        marks += f'<circle cx="{place(difference.mean):.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
    return f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{marks}</svg>'


def reach(rows: Sequence[Row]) -> float:
    """The end of the axis on either side: room for every interval, unless one is so wide that it would hide the others,
    which is then cut off with an arrow."""
    known = [row.difference.mean for row in rows if row.difference and row.difference.mean == row.difference.mean]
    means = max(map(abs, known), default=0.0)
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


# all claims of papers

REACH = 12.0
"""margins on either side of zero; longer intervals end in an arrow"""
TEXT, PLOT, LINE, TOP = 470, 330, 24, 44
"""pixels: width of the text, width of the axis, height of a line, height of the head"""
OPINION_COLOURS = {"agrees": "#009e73", "disagrees": "#d55e00", "not resolved": "#6e7781"}


@dataclass(frozen=True)
class ClaimMark:
    """A claim on the axis: in margins, to the right where it holds."""

    text: str
    opinion: str
    mean: float
    low: float
    high: float
    paper: float | None


def marks_of(tables: Sequence[Findings]) -> list[ClaimMark]:
    """The marks of all claims that have an interval."""
    return [mark for each in tables for claim in each.claims if (mark := _mark(each.study, claim))]


def _mark(study: Study, result: ClaimResult) -> ClaimMark | None:
    difference = result.difference
    if difference is None or difference.low is None or difference.high is None or result.early or not result.margin:
        return None
    sign = 1 if study.metric.higher_is_better else -1
    low, high = sorted((sign * difference.low / result.margin, sign * difference.high / result.margin))
    published = study.published(result.claim)
    second = study.row(result.claim.second).published.get(study.metric.name)
    paper = None
    if published is not None and second is not None:
        paper = sign * published / study.margin.size(second)
    text = f"{study.name.partition('/')[2]}: {result.claim.text}"
    return ClaimMark(text, result.opinion, sign * difference.mean / result.margin, low, high, paper)


def claims_picture(tables: Sequence[Findings]) -> str:
    """An SVG that needs nothing around it: readable on light and dark paper alike."""
    marks = marks_of(tables)
    height = TOP + LINE * len(marks) + 34
    zero = _place(0.0)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {TEXT + PLOT + 20} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Claims and what was found">',
        f'<rect width="100%" height="{height}" fill="#ffffff"/>',
        f'<rect x="{_place(-1):.1f}" y="{TOP - 6}" width="{_place(1) - _place(-1):.1f}" '
        f'height="{height - TOP - 20}" fill="#eef0f3"/>',
        f'<line x1="{zero}" x2="{zero}" y1="{TOP - 6}" y2="{height - 26}" stroke="#1b1f24"/>',
        f'<text x="{zero}" y="{TOP - 24}" text-anchor="middle" fill="#1b1f24">← against the claim · for it →</text>',
    ]
    for place, mark in enumerate(marks):
        body.append(_line(mark, TOP + LINE * place + LINE / 2))
    for tick in (-10, -5, 0, 5, 10):
        x = f"{_place(tick):.1f}"
        body.append(f'<text x="{x}" y="{height - 10}" text-anchor="middle" fill="#57606a" font-size="12">{tick}</text>')
    opinions = " · ".join(f'<tspan fill="{colour}">{word}</tspan>' for word, colour in OPINION_COLOURS.items())
    body.append(f'<text x="12" y="{TOP - 24}">{opinions}</text>')
    key = "line: our interval; ring: paper; in margins (1 point or 1 %)"
    body.append(f'<text x="12" y="{height - 10}" fill="#57606a" font-size="12">{key}</text>')
    return "\n".join([*body, "</svg>"]) + "\n"


def _line(mark: ClaimMark, y: float) -> str:
    colour = OPINION_COLOURS[mark.opinion]
    ends = _place(mark.low), _place(mark.high)
    parts = [
        f'<text x="12" y="{y + 4:.1f}" fill="#1b1f24">{escape(mark.text)}</text>',
        f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2.5"/>',
        f'<circle cx="{_place(mark.mean):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>',
    ]
    for end, value, way in ((ends[0], mark.low, -1), (ends[1], mark.high, 1)):
        if abs(value) > REACH and math.copysign(1, value) == way:
            back = end - 5 * way
            parts.append(
                f'<path d="M{back:.1f} {y - 4:.1f} L{end:.1f} {y:.1f} L{back:.1f} {y + 4:.1f}" fill="none" '
                f'stroke="{colour}" stroke-width="2"/>'
            )
    if mark.paper is not None:
        ring = _place(mark.paper)
        parts.append(f'<circle cx="{ring:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="#1b1f24" stroke-width="1.4"/>')
        if abs(mark.paper) > REACH:
            side = math.copysign(9, mark.paper)
            parts.append(
                f'<text x="{ring - side:.1f}" y="{y + 4:.1f}" text-anchor="{"end" if side > 0 else "start"}" '
                f'fill="#57606a" font-size="11">{mark.paper:.0f}</text>'
            )
    return "".join(parts)


def _place(margins: float) -> float:
    return TEXT + PLOT / 2 + min(max(margins / REACH, -1.0), 1.0) * (PLOT / 2 - 8)
