"""How a plot is painted: one look for each architecture, names beside the data, logarithms where they help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odeum.lab.study.prose import count
from odeum.lab.study.records import ComparisonRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, GRID = "#1b1f24", "#d5d9de"
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
    """One architecture in one plot; a point is a curve of length one."""

    name: str
    x: list[float]
    mean: list[float]
    spread: list[float | None]
    seeds: int


@dataclass(frozen=True)
class PlotStyle:
    """How an architecture is drawn, in every plot alike."""

    colour: str
    line: Any
    marker: str
    filled: bool


def looks(comparison: ComparisonRecord) -> dict[str, PlotStyle]:
    """The baseline, if there is one, in ink, the others in the comparison's order."""
    out = {} if comparison.baseline is None else {comparison.baseline: PlotStyle(INK, "-", MARKERS[0], True)}
    for i, name in enumerate(name for name in comparison.architectures if name != comparison.baseline):
        turn = i // len(PALETTE)
        marker = MARKERS[(i + 1) % len(MARKERS)]
        out[name] = PlotStyle(PALETTE[i % len(PALETTE)], DASHES[turn % len(DASHES)], marker, turn % 2 == 0)
    return out


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


def front(series: Sequence[Series], higher_is_better: bool) -> list[Series]:
    """Those that no other one beats (at least as good, at most as dear, and not equal in both), the cheapest first."""
    sign = -1 if higher_is_better else 1

    def beats(a: Series, b: Series) -> bool:
        ours, theirs = (a.x[0], sign * a.mean[0]), (b.x[0], sign * b.mean[0])
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]

    kept = [item for item in series if not any(beats(other, item) for other in series)]
    return sorted(kept, key=lambda item: item.x[0])


def points(
    axes: Axes, series: Sequence[Series], look: dict[str, PlotStyle], higher_is_better: bool | None = None
) -> None:
    """One point an architecture, with its spread; points of equal cost stand side by side.

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
    """Stairs from the cheapest to the edge: what was bought once is had at every higher cost."""
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
    """A logarithm where the values span more than a decade; 20 k rather than 2e4 in both cases."""
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
    """2 k, not 2.00 k; no rounding error of a tick's place."""
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


def short(name: str, longest: int = 26) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


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
