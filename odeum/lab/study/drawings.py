"""Small drawings in SVG: intervals on one axis, the key to the plots, and all claims of papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from odeum.lab.study.design import Study
from odeum.lab.study.findings import Findings
from odeum.lab.study.judge import ClaimResult, Opinion
from odeum.lab.study.plots import INK, PALETTE, PlotStyle


def reach(means: Sequence[float], ends: Sequence[float]) -> float:
    """The end of an axis on either side of zero: room for every interval, unless one is so wide that it would hide the
    others, which is then cut off with an arrow."""
    widest, most = max(map(abs, ends), default=0.0), max(map(abs, means), default=0.0)
    return max(min(widest, 4 * most) if most else widest, most * 1.1) or 1.0


def lane(
    mean: float | None,
    ends: tuple[float, float] | None,
    far: float,
    colour: str,
    margin: float = 0.0,
    seeds: Sequence[float] = (),
) -> str:
    """A value with its interval on an axis from −far to far, as wide as its place; right is better.

    The band is the margin; a small dot is one seed; an arrow is an interval that goes on.
    """

    def place(value: float) -> str:
        return f"{50 + 48 * min(max(value / far, -1.0), 1.0):.2f}%"

    marks = ""
    if margin:
        width = 96 * min(margin / far, 1.0)
        marks = f'<rect class="margin" x="{50 - width / 2:.2f}%" y="0" width="{width:.2f}%" height="100%"/>'
    marks += '<line x1="50%" x2="50%" y1="0" y2="100%" stroke="var(--soft)" stroke-width="1"/>'
    if ends is not None:
        low, high = sorted(ends)
        stroke = f'stroke="{colour}" stroke-width="3"'
        marks += f'<line x1="{place(low)}" x2="{place(high)}" y1="50%" y2="50%" {stroke}/>'
        for beyond, at, anchor, sign in ((low < -far, "0", "start", "◂"), (high > far, "100%", "end", "▸")):
            if beyond:
                marks += f'<text x="{at}" y="50%" dy=".36em" text-anchor="{anchor}" fill="{colour}">{sign}</text>'
    dots = (place(value) for value in seeds if value == value)
    marks += "".join(f'<circle class="seed" cx="{x}" cy="82%" r="2" fill="{colour}"/>' for x in dots)
    if mean is not None:
        marks += f'<circle cx="{place(mean)}" cy="50%" r="5" fill="{colour}"/>'
    return f'<svg class="lane" width="100%" height="26" aria-hidden="true">{marks}</svg>'


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
OPINION_COLOURS: dict[Opinion, str] = {
    "agrees": "#009e73",
    "disagrees": "#d55e00",
    "practically equal": "#0072b2",
    "not resolved": "#6e7781",
}


@dataclass(frozen=True)
class ClaimMark:
    """A claim on the axis: in margins, to the right where it holds."""

    text: str
    opinion: Opinion
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
    """A standalone SVG that is readable on light and dark backgrounds."""
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
