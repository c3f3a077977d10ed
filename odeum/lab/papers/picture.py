"""All claims in one picture: our interval and the paper's difference on one axis, counted in margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from odeum.lab.papers.base import PaperTable
from odeum.lab.papers.judging import ClaimResult, TableResult

REACH = 12.0
"""margins on either side of zero; what lies beyond is an arrow"""
TEXT, PLOT, LINE, TOP = 470, 330, 24, 44
"""pixels: of the words, of the axis, of a line, of what stands above the lines"""
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


def marks_of(results: Sequence[TableResult]) -> list[ClaimMark]:
    """Of every claim that has an interval."""
    return [mark for result in results for found in result.claims if (mark := _mark(result.table, found))]


def _mark(table: PaperTable, found: ClaimResult) -> ClaimMark | None:
    difference = found.difference
    if difference is None or difference.low is None or difference.high is None or found.early or not found.margin:
        return None
    sign = 1 if table.judged.higher_is_better else -1
    low, high = sorted((sign * difference.low / found.margin, sign * difference.high / found.margin))
    published, second = table.published(found.claim), table.row(found.claim.second).paper.get(table.metric)
    paper = None
    if published is not None and second is not None:
        paper = sign * published / table.margin.size(second)
    text = f"{table.name.partition('/')[2]}: {found.claim.text}"
    return ClaimMark(text, found.opinion, sign * difference.mean / found.margin, low, high, paper)


def claims_picture(results: Sequence[TableResult]) -> str:
    """An SVG that needs nothing around it: readable on light and dark paper alike."""
    marks = marks_of(results)
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
