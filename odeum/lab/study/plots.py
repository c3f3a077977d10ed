"""Learning curves with bands over seeds, and quality against size and compute: png, svg, and the csv behind each.

Colours are Okabe and Ito's, safe for colour-blind eyes, and never alone: past six, lines are dashed and markers
hollow, and names stand beside the data. The baseline is drawn in ink. Value axes and cost axes are
logarithmic when they span more than a decade; the step and time axes of a learning curve stay linear, for
the end of training is what matters there.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from odeum.lab.study.prose import Scale
from odeum.lab.study.records import ComparisonRecord, RunRecord
from odeum.lab.study.row import Row
from odeum.lab.study.statistics import summarise
from odeum.lab.study.svg import GRID, INK, PALETTE, STYLE, PlotStyle, Series, lines, looks, points, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Figure:
    """A drawn plot: DIR/<name>.png, .svg and .csv."""

    name: str
    title: str
    caption: str
    svg: Path


def draw(comparison: ComparisonRecord, rows: Sequence[Row], directory: str | Path) -> list[Figure]:
    """Draw whatever the runs hold data for."""
    folder = Path(directory)
    metric, scale = comparison.metric, Scale.of(rows)
    measured = any(
        metric in record for run in comparison.runs for record in run.curve if record.get("split") == "valid"
    )
    value = metric if measured else "loss"
    factor = scale.factor if measured else 1.0
    unit = f" ({scale.unit.strip()})" if scale.unit else ""
    way = "" if comparison.higher_is_better else ", lower is better"
    label = f"valid {value}{unit}{way}" if measured else "valid loss, lower is better"
    band = "The band is ± one standard deviation over seeds; a steep beginning is cut off."
    unit_of_time, seconds = _clock(comparison)
    out = []
    for key, name, axis, size in (
        ("step", "steps", "optimizer steps", 1.0),
        ("seconds", "time", f"{unit_of_time} of training", seconds),
    ):
        curves = [_curve(comparison, arch, key, size, value, factor) for arch in comparison.architectures]
        found = [curve for curve in curves if curve]
        title = f"Learning curves over {name}"
        out += _plot(comparison, found, folder / f"curves-{name}", title, band, axis, label, lines)
    bars = (
        "Bars are ± one standard deviation over seeds; points of equal cost are drawn side by side. The dotted line is "
        "the front: the best mean that each cost buys."
    )
    with_front = partial(points, higher_is_better=comparison.higher_is_better)
    label = f"{comparison.split} {metric}{unit}{way}"
    for name, axis, cost in (
        ("parameters", "parameters", lambda row: row.parameters),
        ("time", "milliseconds of a step", lambda row: None if row.step_seconds is None else 1e3 * row.step_seconds),
        ("compute", "multiply–adds of training", lambda row: row.training_macs),
    ):
        found = [point for row in rows if (point := _point(row, cost(row), scale.factor))]
        title = f"Quality against {name}"
        out += _plot(comparison, found, folder / f"quality-{name}", title, bars, axis, label, with_front)
    return out


def inline(figure: Figure) -> str:
    """The svg for a web page: its own ids, the page's colours and font, no fixed size."""
    text = figure.svg.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{figure.name}-', text)
    text = re.sub(r"url\(#", f"url(#{figure.name}-", text)
    text = re.sub(r'href="#', f'href="#{figure.name}-', text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--font)", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    text = text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
    for i, colour in enumerate(PALETTE):
        text = text.replace(colour, f"var(--s{i})")
    return text.replace("<svg", f'<svg role="img" aria-label="{figure.title}" stroke-linejoin="round"', 1)


def _clock(comparison: ComparisonRecord) -> tuple[str, float]:
    """Seconds, minutes or hours: whichever the longest run is told in."""
    longest = max((float(r.get("seconds") or 0) for run in comparison.runs for r in run.curve), default=0.0)
    return ("hours", 3600.0) if longest > 7200 else ("minutes", 60.0) if longest > 300 else ("seconds", 1.0)


def _curve(comparison: ComparisonRecord, name: str, key: str, size: float, value: str, factor: float) -> Series | None:
    """Mean and spread over the seeds: at equal steps, or where the steps differ, while all of them were running."""
    runs = comparison.finished(name) or comparison.of(name)
    curves = [points for run in runs if (points := _measured(run, key, value))]
    if not curves:
        return None
    if len({tuple(x for x, _ in _measured(run, "step", value)) for run in runs}) == 1:
        grid = [sum(xs) / len(curves) for xs in zip(*([x for x, _ in c] for c in curves), strict=False)]
        values = [list(ys) for ys in zip(*([y for _, y in c] for c in curves), strict=False)]
    else:
        start, end = max(c[0][0] for c in curves), min(c[-1][0] for c in curves)
        grid = sorted({x for c in curves for x, _ in c if start <= x <= end})
        values = [[_at(c, x) for c in curves] for x in grid]
    summaries = [s for ys in values if (s := summarise(factor * y for y in ys))]
    means, spreads = [s.mean for s in summaries], [s.spread for s in summaries]
    return Series(name, [x / size for x in grid], means, spreads, len(curves)) if grid else None


def _measured(run: RunRecord, key: str, value: str) -> list[tuple[float, float]]:
    points = [(r.get(key), r.get(value)) for r in run.curve if r.get("split") == "valid"]
    numbers = [(float(x), float(y)) for x, y in points if isinstance(x, int | float) and isinstance(y, int | float)]
    return sorted((x, y) for x, y in numbers if abs(y) < float("inf"))


def _at(curve: list[tuple[float, float]], x: float) -> float:
    """Linear between two evaluations."""
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x0 <= x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return curve[-1][1]


def _point(row: Row, cost: float | None, factor: float) -> Series | None:
    if row.score is None or not cost:
        return None
    spread = None if row.score.spread is None else factor * row.score.spread
    return Series(row.architecture, [float(cost)], [factor * row.score.mean], [spread], row.score.n)


def _plot(
    comparison: ComparisonRecord,
    series: list[Series],
    path: Path,
    title: str,
    caption: str,
    xlabel: str,
    ylabel: str,
    draw: Callable[[Axes, Sequence[Series], dict[str, PlotStyle]], None],
) -> list[Figure]:
    """One figure and its files; nothing if there is nothing to draw."""
    if not series:
        return []
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    path.parent.mkdir(parents=True, exist_ok=True)
    longest = max(len(short(item.name)) for item in series)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(6.4, 4.1))
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0.115, 0.13, (0.875 - 0.0118 * longest) / 1.1, 0.84))
        draw(axes, series, looks(comparison))
        axes.set_xlabel(xlabel, parse_math=False)
        axes.set_ylabel(ylabel, parse_math=False)
        # squeezing a fifth more out of the bytes takes as long as drawing them
        canvas.savefig(path.with_suffix(".png"), dpi=160, pil_kwargs={"compress_level": 3})
        canvas.savefig(path.with_suffix(".svg"), transparent=True, metadata={"Date": None})
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["architecture", xlabel, ylabel, "spread", "seeds"])
        for item in series:
            for x, mean, spread in zip(item.x, item.mean, item.spread, strict=True):
                writer.writerow([item.name, x, mean, "" if spread is None else spread, item.seeds])
    return [Figure(path.name, title, caption, path.with_suffix(".svg"))]
