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
from typing import TYPE_CHECKING, Any

from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.prose import Scale, count
from odeum.lab.study.runs import Results, RunRecord
from odeum.lab.study.statistics import summarise
from odeum.lab.study.tuning import TuningResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, GRID = "#1b1f24", "#d5d9de"
LONGEST_NAME = 26
"""characters of a name beside a plot"""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = "osD^vP*X<>hd"
DASHES = ("-", (0, (4, 1.6)), (0, (1, 1.4)))
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "odeum",
}


@dataclass(frozen=True)
class Series:
    """One row in one plot; a point is a curve of length one."""

    name: str
    x: list[float]
    mean: list[float]
    spread: list[float | None]
    seeds: int


@dataclass(frozen=True)
class PlotStyle:
    """The style of a row in every plot."""

    colour: str
    line: Any
    marker: str
    filled: bool


def styles(findings: Findings) -> dict[str, PlotStyle]:
    """The style of each row: the baseline, if there is one, in ink, the others in the study's order.

    Rows of a paper's table without runs are not drawn and have no style.
    """
    study, results = findings.study, findings.results
    out = {} if study.baseline is None else {study.baseline: PlotStyle(INK, "-", MARKERS[0], True)}
    drawn = [label for label in study.labels if not study.is_table or results.of(label)]
    for i, name in enumerate(name for name in drawn if name != study.baseline):
        turn = i // len(PALETTE)
        marker = MARKERS[(i + 1) % len(MARKERS)]
        out[name] = PlotStyle(PALETTE[i % len(PALETTE)], DASHES[turn % len(DASHES)], marker, turn % 2 == 0)
    return out


@dataclass(frozen=True)
class Figure:
    """A drawn plot: DIR/<name>.png, .svg and .csv."""

    name: str
    title: str
    caption: str
    svg: Path


def draw(findings: Findings, directory: str | Path) -> list[Figure]:
    """Draw the plots for which the runs have data."""
    folder = Path(directory)
    results, rows = findings.results, [row for row in findings.rows if findings.results.of(row.architecture)]
    study, metric, scale = findings.study, findings.study.metric.name, Scale.of(findings.rows)
    styled = styles(findings)
    measured = any(metric in record for run in results.runs for record in run.curve if record.get("split") == "valid")
    value = metric if measured else "loss"
    factor = scale.factor if measured else 1.0
    unit = f" ({scale.unit.strip()})" if scale.unit else ""
    way = "" if study.metric.higher_is_better else ", lower is better"
    label = f"valid {value}{unit}{way}" if measured else "valid loss, lower is better"
    band = "The band is ± one standard deviation over seeds; a steep beginning is cut off."
    unit_of_time, seconds = _clock(results)
    out = []
    for key, name, axis, size in (
        ("step", "steps", "optimizer steps", 1.0),
        ("seconds", "time", f"{unit_of_time} of training", seconds),
    ):
        curves = [_curve(results, label, key, size, value, factor) for label in study.labels]
        drawn = [curve for curve in curves if curve]
        title = f"Learning curves over {name}"
        out += plot(styled, drawn, folder / f"curves-{name}", title, band, axis, label, lines)
    if study.tuning is not None and study.tuning.tuning.grid:
        by, name = study.tuned_by, study.tuning.tuning.settings[0].replace("_", " ")
        factor, percent = (100.0, " (%)") if by.share else (1.0, "")
        drawn = [curve for name in study.labels if (curve := _tuning_curve(study.tuning, name, factor))]
        caption = "One run per point, on the validation part; diverged runs are left out."
        better = "" if by.higher_is_better else ", lower is better"
        title, way_of = f"Tuning: {by.name} over {name}", f"valid {by.name}{percent}{better}"
        out += plot(styled, drawn, folder / "tuning", title, caption, name, way_of, rates)
    bars = (
        "Bars are ± one standard deviation over seeds; points of equal cost are drawn side by side. The dotted line is "
        "the front: the best mean that each cost buys."
    )
    with_front = partial(points, higher_is_better=study.metric.higher_is_better)
    label = f"{results.split} {metric}{unit}{way}"
    for name, axis, cost in (
        ("parameters", "parameters", lambda row: row.parameters),
        ("time", "milliseconds of a step", lambda row: None if row.step_seconds is None else 1e3 * row.step_seconds),
        ("compute", "training MACs", lambda row: row.training_macs),
    ):
        drawn = [point for row in rows if (point := _point(row, cost(row), scale.factor))]
        title = f"Quality against {name}"
        out += plot(styled, drawn, folder / f"quality-{name}", title, bars, axis, label, with_front)
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


def _clock(results: Results) -> tuple[str, float]:
    """The unit of time for the longest run, and its seconds."""
    longest = max((float(r.get("seconds") or 0) for run in results.runs for r in run.curve), default=0.0)
    return ("hours", 3600.0) if longest > 7200 else ("minutes", 60.0) if longest > 300 else ("seconds", 1.0)


def _curve(results: Results, name: str, key: str, size: float, value: str, factor: float) -> Series | None:
    """Mean and spread over the seeds: at equal steps, or where the steps differ, while all of them were running."""
    runs = results.finished(name) or results.of(name)
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


def _tuning_curve(results: TuningResults, name: str, factor: float) -> Series | None:
    values = {point[0]: x for point, x in sorted((results.values.get(name) or {}).items()) if abs(x) < float("inf")}
    means = [factor * x for x in values.values()]
    return Series(name, list(values), means, [None] * len(values), 1) if values else None


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


def plot(
    styled: dict[str, PlotStyle],
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
        draw(axes, series, styled)
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


# painting


def lines(axes: Axes, series: Sequence[Series], look: dict[str, PlotStyle]) -> None:
    """Means with bands; the steep beginning of a run is cut off so that its end can be seen."""
    for item in series:
        style = look[item.name]
        width = 2.2 if style.colour == INK else 1.8
        axes.plot(item.x, item.mean, color=style.colour, linestyle=style.line, linewidth=width, solid_capstyle="round")
        axes.plot(item.x[-1:], item.mean[-1:], **_marker(style))
        if all(s is not None for s in item.spread):
            low = [m - (s or 0.0) for m, s in zip(item.mean, item.spread, strict=True)]
            high = [m + (s or 0.0) for m, s in zip(item.mean, item.spread, strict=True)]
            axes.fill_between(item.x, low, high, color=style.colour, alpha=0.14, linewidth=0)
    tails = [list(zip(item.mean, item.spread, strict=True))[len(item.mean) // 4 :] for item in series]
    later = [mean for tail in tails for mean, _ in tail]
    edges = [mean + sign * (spread or 0.0) for tail in tails for mean, spread in tail for sign in (-1, 1)]
    _scale_axis(axes, "y", later)
    _scale_axis(axes, "x", [0.0, *(x for item in series for x in item.x)])
    axes.margins(x=0.02)
    axes.autoscale_view()
    _cut(axes, edges if axes.get_yscale() == "linear" else later)
    _name(axes, series, look)


def rates(axes: Axes, series: Sequence[Series], look: dict[str, PlotStyle]) -> None:
    """Values over a setting on a logarithmic axis."""
    for item in series:
        style = look[item.name]
        axes.plot(item.x, item.mean, color=style.colour, linestyle=style.line, linewidth=1.8)
        axes.plot(item.x, item.mean, **_marker(style))
    ticks = sorted({x for item in series for x in item.x})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()
    _scale_axis(axes, "y", [x for item in series for x in item.mean])
    _name(axes, series, look)


def front(series: Sequence[Series], higher_is_better: bool) -> list[Series]:
    """The Pareto front: rows that no other row beats in quality and cost, the cheapest first."""
    sign = -1 if higher_is_better else 1

    def beats(a: Series, b: Series) -> bool:
        ours, theirs = (a.x[0], sign * a.mean[0]), (b.x[0], sign * b.mean[0])
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]

    best = [item for item in series if not any(beats(other, item) for other in series)]
    return sorted(best, key=lambda item: item.x[0])


def points(
    axes: Axes, series: Sequence[Series], look: dict[str, PlotStyle], higher_is_better: bool | None = None
) -> None:
    """One point per row, with its spread; points of equal cost stand side by side.

    Where it is known which way is better, a line joins the front: the best mean that each cost buys.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = axes.get_figure()
    assert figure is not None
    _scale_axis(axes, "x", [item.x[0] for item in series])
    _scale_axis(axes, "y", [item.mean[0] for item in series])
    for item in series:
        x, mean, spread = item.x[0], item.mean[0], item.spread[0] or 0.0
        near = [other.name for other in series if abs(other.x[0] / x - 1) < 0.02]
        aside = 10 * (near.index(item.name) - (len(near) - 1) / 2)
        shift = axes.transData + ScaledTranslation(aside / 72, 0, figure.dpi_scale_trans)
        axes.plot([x, x], [mean - spread, mean + spread], color=look[item.name].colour, linewidth=1.3, transform=shift)
        axes.plot([x], [mean], transform=shift, **_marker(look[item.name]))
        axes.update_datalim([(x, mean - spread), (x, mean + spread)])
    axes.margins(0.12)
    axes.autoscale_view()
    best = [] if higher_is_better is None else front(series, higher_is_better)
    if len({item.mean[0] for item in best}) > 1:  # more cost that buys nothing is no front
        _draw_front(axes, best)
    _name(axes, series, look)


def _draw_front(axes: Axes, best: Sequence[Series]) -> None:
    """Draws the front as stairs from the cheapest row to the edge."""
    end = axes.get_xlim()[1]
    steps = [*(item.x[0] for item in best), end], [*(item.mean[0] for item in best), best[-1].mean[0]]
    axes.step(*steps, where="post", color=INK, linewidth=1.2, linestyle=(0, (2, 2)), alpha=0.7, zorder=1)
    axes.set_xlim(right=end)


def _marker(style: PlotStyle) -> dict[str, Any]:
    face = style.colour if style.filled else "none"
    return {"color": style.colour, "marker": style.marker, "markerfacecolor": face, "markersize": 6.5, "linestyle": ""}


def _cut(axes: Axes, later: Sequence[float]) -> None:
    """Limits around the values after the first quarter of each run, on whichever side training starts."""
    bottom, top = axes.get_ylim()
    low, high = min(later), max(later)
    if axes.get_yscale() == "log":
        air = (high / low) ** 0.08
        axes.set_ylim(max(bottom, low / air), min(top, high * air))
    elif high > low:
        air = 0.08 * (high - low)
        axes.set_ylim(max(bottom, low - air), min(top, high + air))


def _scale_axis(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Uses a logarithmic axis if the values span more than a decade, and ticks such as 20 k."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if min(values) > 0 and max(values) / min(values) > 10:
        axes.set(**{f"{which}scale": "log"})
        wide = max(values) / min(values) > 300
        axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    elif which == "x" and 0 < max(values) - min(values) < 0.05 * max(values):
        axes.set_xlim(0.9 * min(values), 1.1 * max(values))  # else all ticks would read alike
    if axis.get_scale() == "log" or max(map(abs, values)) >= 1000:
        axis.set_major_formatter(lambda value, _: tick(value))


def tick(value: float) -> str:
    """The label of a tick: 2 k, not 2.00 k."""
    number, _, letter = count(float(f"{value:.6g}")).partition(" ")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {letter}".strip()


def _name(axes: Axes, series: Sequence[Series], look: dict[str, PlotStyle]) -> None:
    """Names right of the axes in the order of their data, at its height where there is room."""
    placed = []
    for item in series:
        x, y = axes.transAxes.inverted().transform(axes.transData.transform((item.x[-1], item.mean[-1])))
        placed.append((float(y), float(x), item))
    placed.sort(key=lambda place: place[0])
    heights = spread_apart([y for y, _, _ in placed], 0.062)
    anywhere: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    for height, (y, x, item) in zip(heights, placed, strict=True):
        style = look[item.name]
        if len(item.x) > 1:
            axes.plot([1.03, 1.08], [height] * 2, color=style.colour, linestyle=style.line, linewidth=1.8, **anywhere)
            if x > 0.95:
                axes.plot([x, 1.03], [y, height], color=style.colour, linewidth=0.6, alpha=0.6, **anywhere)
        axes.plot([1.055], [height], **_marker(style), **anywhere)
        axes.text(1.1, height, short(item.name), transform=axes.transAxes, va="center", fontsize=9.5, parse_math=False)


def short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved as little as is needed to be `gap` apart and, if there is room, within [0, 1]."""
    out = list(heights)
    for _ in range(200):
        moved = False
        for i in range(len(out) - 1):
            lack = gap - (out[i + 1] - out[i])
            if lack > 1e-6:
                out[i] -= lack / 2
                out[i + 1] += lack / 2
                moved = True
        if len(out) * gap <= 1:
            out[0] = max(out[0], 0.02)
            out[-1] = min(out[-1], 0.98)
        if not moved:
            break
    return out
