"""The report of a ladder: gains and trends over its sizes as one table, one picture and one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError
from odeum.lab.study import plots, report
from odeum.lab.study.drawings import css_colour, lane, reach
from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.grid import Column, Grid, markdown, rendered
from odeum.lab.study.judge import WORSE
from odeum.lab.study.ladder import FIT_FROM, TREND_MARGIN, Gain, Rung, Trend, fit, gains, trends
from odeum.lab.study.page import picture_lane, render
from odeum.lab.study.prose import NONE, Scale, count, duration, listing, percent, verdict
from odeum.lab.study.runs import KEPT_RUNS, without_local_paths, without_option
from odeum.lab.study.sentences import at_lower_rates, warnings
from odeum.lab.study.sizes import LADDER, folder_of, ladder_epochs, ladder_sizes
from odeum.lab.study.tuning import FEWEST
from odeum.storage import read_json, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Ladder:
    """The findings at each size, the gains and the trends."""

    directory: Path
    data: str
    sizes: tuple[str, ...]
    """sizes that have runs, from small to large"""
    missing: tuple[str, ...]
    findings: tuple[Findings, ...]
    gains: Mapping[tuple[str, int], Gain]
    """gains by architecture and index of the size"""
    trends: Mapping[str, Trend]
    epochs: Mapping[str, float]
    """passes of the baseline over the training data, by size"""
    problem: str | None = None
    """why there are no gains"""

    @property
    def baseline(self) -> str:
        return self.findings[-1].study.reference

    @property
    def labels(self) -> list[str]:
        """The architectures without the baseline."""
        return [label for label in self.findings[-1].study.labels if label != self.baseline]

    def row(self, label: str, place: int) -> Row | None:
        return next((row for row in self.findings[place].rows if row.architecture == label), None)


def ladder_metric(findings: Findings) -> str:
    """Gains of a perplexity are those of the loss, its logarithm, whose curve over cost is the simpler one."""
    name = findings.study.metric.name
    return "loss" if name == "perplexity" else name


def read_ladder(directory: str | Path) -> Ladder:
    """Write the report of each size and read its findings; no model is loaded."""
    root = Path(directory)
    names = ladder_sizes(root)
    here = [name for name in names if _has_runs(folder_of(root, name))]
    if not here:
        raise OdeumError(f"'{root}' holds a ladder without runs; the command in {root / LADDER} trains it")
    compared = tuple(report.write(folder_of(root, name)).findings for name in here)
    missing = tuple(name for name in names if name not in here)
    data = str(read_json(root / LADDER).get("data") or compared[0].study.data)
    known: Mapping[tuple[str, int], Gain] = {}
    words: Mapping[str, Trend] = {}
    problem = None
    try:
        rungs = [_rung(name, each) for name, each in zip(here, compared, strict=True)]
        baseline, higher = compared[-1].study.reference, compared[-1].study.metric.higher_is_better
        error = min(each.study.error for each in compared)
        known, words = gains(rungs, baseline, higher, error), trends(rungs, baseline, higher, error)
    except OdeumError as error:
        problem = str(error)
    return Ladder(root, data, tuple(here), missing, compared, known, words, ladder_epochs(root), problem)


def _has_runs(folder: Path) -> bool:
    return (folder / KEPT_RUNS).is_file() or any(folder.glob("*/seed-*"))


def _rung(name: str, findings: Findings) -> Rung:
    base = findings.row(findings.study.reference)
    if not base.seconds:
        raise OdeumError(f"the baseline has no finished run at size {name}")
    scores = {label: row for label, row in findings.results.scores(ladder_metric(findings)).items() if row}
    macs = {row.architecture: row.training_macs for row in findings.rows if row.training_macs}
    return Rung(name, base.seconds, scores, macs)


# words and numbers


def gain_text(gain: Gain | None, compute: bool = False) -> str:
    """1.12× [1.05, 1.20], or undecided."""
    if gain is None or gain.log is None:
        return "undecided"
    shift = gain.compute if compute else 0.0
    middle = f"{math.exp(gain.log + shift):.2f}×"
    if gain.low is None or gain.high is None:
        return f"undecided ({middle})"
    return f"{middle} [{math.exp(gain.low + shift):.2f}, {math.exp(gain.high + shift):.2f}]"


def trend_text(trend: Trend | None) -> str:
    """holds: ×1.02 [0.97, 1.08]."""
    if trend is None:
        return "undecided"
    if trend.change is None or trend.low is None or trend.high is None:
        return trend.word
    return f"{trend.word}: ×{math.exp(trend.change):.2f} [{math.exp(trend.low):.2f}, {math.exp(trend.high):.2f}]"


def headline(ladder: Ladder) -> str:
    """The decision at the largest size, how the gain changes with size, and the next command with its time."""
    return " ".join(filter(None, (_decision(ladder), _next(ladder))))


def _next(ladder: Ladder) -> str:
    """The command that continues; or twice the seeds, where something is undecided; or the ladder with tuned rates."""
    study, command = ladder.findings[-1].study, ladder.findings[-1].study.command
    if not command or study.seeds is None:
        return ""
    rows = [row for each in ladder.findings for row in each.rows]
    seconds = math.fsum((row.seconds or 0.0) for row in rows)
    plain = without_option(command, "seeds")
    anew = f"{without_local_paths(plain)} --seeds {study.seeds} --out NEW"
    words = {trend.word for trend in ladder.trends.values()}
    if ladder.missing or any(row.unfinished or not row.seeds for row in rows):
        return f"Next: `{command}` (continues; about {duration(_left(ladder))} of training)."
    seeds = study.seeds.limit
    if study.tuning is None:
        next_command, cost = f"{anew} --tune {FEWEST}", (FEWEST + seeds) * seconds
    elif any(row.diverged for row in rows):
        worst = next(each for each in ladder.findings if any(row.diverged for row in each.rows))
        next_command = at_lower_rates(worst, f"{without_local_paths(plain)} --out NEW", seeds)
        cost = (study.tuning.tuning.runs + seeds) * seconds
    elif "undecided" in words or not words:
        more = f"auto:{2 * seeds} --out NEW" if study.seeds.auto else str(2 * seeds)
        next_command = f"{without_local_paths(plain) if study.seeds.auto else plain} --seeds {more}"
        cost = (2 * seeds + study.tuning.tuning.runs if study.seeds.auto else seeds) * seconds
    else:  # one size more, above these
        rungs = [_runs_of_a_seed(each) for each in ladder.findings]
        sizes = ",".join([*ladder.sizes, _beyond(ladder.sizes)])
        next_command = f"{without_option(anew, 'sizes')} --sizes {sizes}"
        cost = (study.tuning.tuning.runs + seeds) * (sum(rungs) + rungs[-1] ** 2 / (rungs[-2] or 1.0))
    return f"Next: `{next_command}` (about {duration(cost)} of training)."


def _runs_of_a_seed(findings: Findings) -> float:
    return math.fsum(row.seconds or 0.0 for row in findings.rows)


def _beyond(sizes: Sequence[str]) -> str:
    """The size that is larger than the largest as that is than the one before, at the same width per head."""
    (width, depth), (last_width, last_depth) = (map(int, size.split("x")) for size in sizes[-2:])
    return f"{2 * last_width - width}x{max(2 * last_depth - depth, last_depth + (last_width == width))}"


def _left(ladder: Ladder) -> float:
    """Seconds of the runs that are missing, from those that are there; a missing size takes as much as its
    neighbours suggest."""
    known = [_runs_of_a_seed(each) for each in ladder.findings]
    growth = known[-1] / known[-2] if len(known) > 1 and known[-2] > 0 else 1.0
    left = 0.0
    for each, seconds in zip(ladder.findings, known, strict=True):
        seeds = each.study.seeds.limit if each.study.seeds else 1
        have = max((len(row.seeds) for row in each.rows), default=0)
        if not have:
            continue
        missing = sum(max(seeds - len(row.seeds), 0) for row in each.rows if not row.diverged)
        left += missing * seconds / max(sum(bool(row.seeds) for row in each.rows), 1)
    study = ladder.findings[-1].study
    runs = (study.seeds.limit if study.seeds else 1) + (study.tuning.tuning.runs if study.tuning else 0)
    return left + runs * math.fsum(known[-1] * growth ** (i + 1) for i in range(len(ladder.missing)))


def _decision(ladder: Ladder) -> str:
    last, base = len(ladder.sizes) - 1, ladder.baseline
    largest = ladder.sizes[last]
    if ladder.problem or ladder.missing:
        why = f"sizes are missing ({', '.join(ladder.missing)})" if ladder.missing else ladder.problem
        return f"No gains on {ladder.data} yet: {why}."
    faster: list[tuple[float, str]] = []
    slower, unsure = [], []
    for label in ladder.labels:
        gain, row = ladder.gains.get((label, last)), ladder.row(label, last)
        if gain is None or gain.low is None or gain.high is None or gain.low <= 0 <= gain.high:
            # worse at equal time needs more time, even where it is undecided how much
            (slower if row and row.verdict in WORSE else unsure).append(label)
        elif gain.low > 0:
            faster.append((gain.log or 0.0, label))
        else:
            slower.append(label)
    behind = f" {listing(slower)} {'needs' if len(slower) == 1 else 'need'} more time than `{base}`." if slower else ""
    still = f" Undecided: {listing(unsure)}." if unsure else ""
    if faster:
        _, best = max(faster)
        word = ladder.trends[best].word if best in ladder.trends else "undecided"
        with_size = (
            "whether its gain changes with size is undecided" if word == "undecided" else f"its gain {word} with size"
        )
        others = [name for _, name in faster if name != best]
        also = f" {listing(others)} also {'needs' if len(others) == 1 else 'need'} less time." if others else ""
        return (
            f"Use `{best}` on {ladder.data}: at {largest} the baseline `{base}` needs "
            f"{gain_text(ladder.gains[best, last])} its time for the same {ladder_metric(ladder.findings[last])}; "
            f"{with_size}.{also}{still}"
        )
    if slower and not unsure:
        return f"Keep `{base}` on {ladder.data}: at {largest}{behind or ' nothing else is worth its cost.'}"
    return f"Undecided on {ladder.data} between {listing([base, *unsure])} at {largest}.{behind}"


def ladder_grid(ladder: Ladder) -> Grid:
    """One line per architecture and size."""
    lines = []
    for label in ladder.labels:
        for place, size in enumerate(ladder.sizes):
            row = ladder.row(label, place)
            if row is None:
                continue
            scale = Scale.of(ladder.findings[place].rows)
            gain = ladder.gains.get((label, place))
            last = place == len(ladder.sizes) - 1
            lines.append(
                [
                    label,
                    size,
                    scale.summary(row.score),
                    scale.difference(row),
                    verdict(row),
                    gain_text(gain),
                    gain_text(gain, compute=True),
                    trend_text(ladder.trends.get(label)) if last else "",
                ]
            )
    study = ladder.findings[-1].study
    heads = ("architecture", "size", f"{ladder.findings[-1].results.split} {study.metric.name}")
    more = (f"difference to {ladder.baseline}", "verdict", "gain in time", "gain in compute", "trend with size")
    return Grid.of((*heads, *more), lines, (0, 1, 4, 7))


def sizes_grid(ladder: Ladder) -> Grid:
    """One line per size: what a run of the baseline is."""
    bases = [each.row(each.study.reference) for each in ladder.findings]
    scores = [Scale.of(each.rows).summary(row.score) for each, row in zip(ladder.findings, bases, strict=True)]
    return Grid(
        [
            Column("size", ladder.sizes, words=True),
            Column("parameters", [count(row.parameters) for row in bases]),
            Column("steps", [NONE if row.steps is None else f"{row.steps:.0f}" for row in bases]),
            Column(
                "epochs", [f"{ladder.epochs[size]:.3g}" if size in ladder.epochs else NONE for size in ladder.sizes]
            ),
            Column("time of a run", [duration(row.seconds) for row in bases]),
            Column("training MACs", [count(row.training_macs) for row in bases]),
            Column(f"{ladder.baseline}: {bases[-1].metric}", scores),
            Column("seeds", [str(len(row.seeds)) for row in bases]),
        ]
    )


def records(ladder: Ladder) -> list[dict[str, Any]]:
    """Plain values for csv and json: one per architecture and size."""
    out = []
    for label in ladder.labels:
        trend = ladder.trends.get(label)
        for place, size in enumerate(ladder.sizes):
            row, gain = ladder.row(label, place), ladder.gains.get((label, place))
            if row is None:
                continue
            flat = row.as_dict()
            keys = ("difference", "difference_low", "difference_high", "margin", "verdict", "seeds", "training_macs")
            out.append(
                {
                    "architecture": label,
                    "size": size,
                    **{key: flat[key] for key in keys},
                    "log_gain": gain.log if gain else None,
                    "log_gain_low": gain.low if gain else None,
                    "log_gain_high": gain.high if gain else None,
                    "log_compute_ratio": gain.compute if gain else None,
                    "problem": (gain.problem if gain else ladder.problem) or "",
                    "trend": trend.word if trend else "undecided",
                    "trend_change": trend.change if trend else None,
                    "trend_low": trend.low if trend else None,
                    "trend_high": trend.high if trend else None,
                }
            )
    return out


def ladder_table(ladder: Ladder, form: str = "text") -> str:
    return rendered(form, [ladder_grid(ladder), sizes_grid(ladder)], records(ladder))


def notes(ladder: Ladder) -> list[str]:
    """Notes on the meaning and the limits of gains and trends."""
    margin, error = f"×{math.exp(TREND_MARGIN):.2f}", min(each.study.error for each in ladder.findings)
    out = [
        f"A size such as {ladder.sizes[-1]} is width x depth.",
        f"The gain in time is the factor of time that the baseline `{ladder.baseline}` would need more to reach the "
        "architecture's value, from the local slope of its own curve over the logarithm of cost; the gain in compute "
        f"counts MACs instead of seconds. Intervals are Fieller's, at {percent(1 - error)} for all architectures of "
        "one size together.",
        "The trend is the factor by which the gain changes from the smallest to the largest size: it grows or shrinks "
        f"if its interval leaves out 1, holds if the interval lies between 1/{margin[1:]} and {margin[1:]}, and is "
        "undecided otherwise or where a gain is undecided.",
        "Each size trains for the same number of examples per parameter of the baseline. On a small data set the "
        "epochs grow with the size, so size and repetition are confounded.",
        "The trend describes these sizes; it does not predict larger ones.",
    ]
    problems = {
        f"{label} at {ladder.sizes[place]}: {gain.problem}"
        for (label, place), gain in ladder.gains.items()
        if gain.problem
    }
    return [*out, *(f"Undecided gain of {text}." for text in sorted(problems))]


# picture and page


def gain_picture(ladder: Ladder) -> dict[str, Any] | None:
    """Each architecture's gain in time at each size with its interval; right is better. None without gains."""
    if not ladder.gains:
        return None
    known = [gain for gain in ladder.gains.values() if gain.log is not None]
    styles = plots.styles(ladder.findings[-1])
    ends = [x for gain in known for x in (gain.low, gain.high) if x is not None]
    far = reach([gain.log or 0.0 for gain in known if gain.decided], ends)
    lanes = []
    for label in ladder.labels:
        word = ladder.trends[label].word if label in ladder.trends else "undecided"
        change = "trend undecided" if word == "undecided" else f"gain {word}"
        lanes.append({**picture_lane(label, styles[label], "", change, ""), "group": True})
        for place, size in enumerate(ladder.sizes):
            gain = ladder.gains.get((label, place))
            span = (gain.low, gain.high) if gain and gain.low is not None and gain.high is not None else None
            middle = gain.log if gain and span else None
            drawing = lane(middle, span, far, css_colour(styles[label]))
            row = ladder.row(label, place)
            word, text = (verdict(row) if row else "no run yet"), f"gain {gain_text(gain)}"
            lanes.append({**picture_lane(size, styles[label], drawing, word, text), "key": ""})
    axis = [f"{math.exp(-far):.2g}× ← slower", "1×", f"faster → {math.exp(far):.2g}×"]
    title = f"Equivalent gain in training time over {ladder.baseline}, at each size"
    note = (
        f"Verdicts compare at equal training time. A gain of 2× means that {ladder.baseline} needs twice the time for "
        f"the same {ladder_metric(ladder.findings[-1])}. A bar is its interval, an arrow one that continues; "
        "without a bar the gain is undecided. A size is width x depth."
    )
    return {"title": title, "lanes": lanes, "axis": axis, "note": note}


def draw(ladder: Ladder, folder: Path) -> list[plots.Figure]:
    """The value of each architecture over the time of a run; from five sizes on with a fit to the baseline's."""
    findings = ladder.findings
    study, name, split = findings[-1].study, ladder_metric(findings[-1]), findings[-1].results.split
    higher, series = study.metric.higher_is_better, []
    for label in study.labels:
        rows = [ladder.row(label, place) for place in range(len(ladder.sizes))]
        means = [each.results.summary(label, split, name) for each in findings]
        known = [(row.seconds, mean) for row, mean in zip(rows, means, strict=True) if row and row.seconds and mean]
        if known:
            values, spreads = [mean.mean for _, mean in known], [mean.spread for _, mean in known]
            series.append(plots.Series(label, [x for x, _ in known], values, spreads, known[-1][1].n))
    base = next((item for item in series if item.name == ladder.baseline), None)
    curve = None
    if base and len(base.x) == len(findings) >= FIT_FROM:
        curve = fit(base.x, [-x if higher else x for x in base.mean])

    def paint(axes: Axes, drawn: Sequence[plots.Series], look: dict[str, plots.PlotStyle]) -> None:
        if curve and base:
            xs = [base.x[0] * (4 * base.x[-1] / base.x[0]) ** (i / 40) for i in range(41)]
            ys = [(-1 if higher else 1) * curve(x) for x in xs]
            axes.plot(xs, ys, color=plots.INK, linestyle=(0, (4, 2)), linewidth=1.2)
        plots.rates(axes, drawn, look)

    caption = "Means over seeds at each size, against the measured training time of a run."
    if curve:
        caption += " Dashed: E + A·C^−α of the baseline, up to four times beyond the largest size. Not a result."
    title, axis = f"{split.capitalize()} {name} over training time", "seconds of a run"
    return plots.plot(plots.styles(findings[-1]), series, folder / "curve", title, caption, axis, name, paint)


def write(directory: str | Path) -> tuple[Ladder, Path]:
    """Write report.html, ladder.md, ladder.csv and plots/ of a ladder, and the report of each size."""
    ladder = read_ladder(directory)
    root = ladder.directory
    figures = draw(ladder, root / "plots") if not ladder.problem else []
    doubts = [
        f"{size}: {text}" for size, each in zip(ladder.sizes, ladder.findings, strict=True) for text in warnings(each)
    ]
    remarks = "".join(f"- {markdown(text)}\n" for text in [*doubts, *notes(ladder)])
    answer = headline(ladder)
    write_bytes(root / "ladder.md", f"{markdown(answer)}\n\n{ladder_table(ladder, 'md')}\n{remarks}".encode())
    write_bytes(root / "ladder.csv", ladder_table(ladder, "csv").encode())
    page = render(
        "ladder.html",
        title=f"Which layer is worth it on {ladder.data}, and does it stay so with size?",
        headline=_decision(ladder),
        following=_next(ladder),
        picture=gain_picture(ladder),
        warnings=doubts,
        figures=figures,
        results=ladder_grid(ladder),
        sizes=sizes_grid(ladder),
        links=[(size, f"{folder_of(Path(), size).as_posix()}/report.html") for size in ladder.sizes],
        notes=notes(ladder),
        command=ladder.findings[-1].study.command,
    )
    write_bytes(root / "report.html", page.encode(errors="replace"))
    return ladder, root / "report.html"
