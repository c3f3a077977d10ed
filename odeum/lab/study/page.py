"""The pages of a comparison, a paper's table, several comparisons: one HTML shell in `templates/`, all escaped."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from odeum.errors import notice
from odeum.lab.study import plots
from odeum.lab.study.drawings import claims_picture, css_colour, key, lane, reach
from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.grid import Column, Grid
from odeum.lab.study.prose import NONE, Scale, verdict
from odeum.lab.study.runs import RunRecord
from odeum.lab.study.sentences import decision, differing, notes, warnings
from odeum.lab.study.statistics import mean_ranks
from odeum.lab.study.tables import (
    claim_grid,
    comparison_grid,
    cost_claim_grid,
    other_figures,
    paper_notes,
    row_grid,
    tuning_grid,
)
from odeum.lab.train.rundir import RunDir, integer

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_CLASSES = 20
"""classes of a confusion matrix that a page has room for"""


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader("odeum.lab.study"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "commands": lambda text: Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))),
        "marked": lambda text: Markup(re.sub(r"`([^`]*)`", r"<strong>\1</strong>", str(escape(text)))),
        "breakable": lambda name: Markup(re.sub("([:,=])", r"\1<wbr>", str(escape(name)))),
        "interval": lambda text: Markup(re.sub(r" (\[.*\]|± \S+)$", r" <small>\1</small>", str(escape(text)))),
        "unbroken": lambda text: Markup(str(escape(text)).replace(" seeds)", "&nbsp;seeds)")),
        "inline": lambda figure: Markup(plots.inline(figure)),
    }
    return environment


def render(template: str, **values: Any) -> str:
    """A page from a template and the values that it shows."""
    return _environment().get_template(template).render(values)


def comparison_page(findings: Findings, figures: Sequence[plots.Figure]) -> str:
    """report.html of a comparison."""
    study, results = findings.study, findings.results
    command = study.command or next((run.info["command"] for run in results.runs if run.info.get("command")), None)
    # The looks of --seeds auto are planned once: a larger limit would be another promise.
    added = "architectures" if study.seeds and study.seeds.auto else "seeds or architectures"
    return render(
        "comparison.html",
        **_summary(findings),
        more=other_figures(findings.rows),
        title=f"Which layer is worth it on {study.data}?",
        judged=f"{results.split} {study.metric.name}",
        judged_valid=f"Validation {study.tuned_by.name}{' (%)' if study.tuned_by.share else ''}",
        every_run=_every_run(findings),
        tuning=tuning_grid(findings),
        figures=figures,
        confusion=_confusion(findings),
        equations=[row for row in findings.rows if row.equation],
        facts=_facts(findings),
        notes=notes(findings),
        command=command,
        added=added,
    )


def table_page(findings: Findings, figures: Sequence[plots.Figure]) -> str:
    """report.html of a paper's table."""
    from markupsafe import Markup

    study = findings.study
    opinions = [claim.opinion for claim in findings.claims]
    return render(
        "table.html",
        title=study.title,
        name=study.name,
        scale=study.scale,
        counts=", ".join(f"{opinions.count(word)} {word}" for word in dict.fromkeys(opinions)),
        picture=Markup(claims_picture([findings])),
        claims=claim_grid(findings, findings.claims),
        costs=cost_claim_grid(findings) if findings.costs else None,
        rows=row_grid(findings, study.labels),
        figures=figures,
        notes=paper_notes(findings),
    )


def overall_ranks(compared: Sequence[Findings]) -> dict[str, float]:
    """The mean rank of each row that all comparisons have, the best first; empty for a single row."""
    tables = [{row.architecture: row.score.mean for row in each.rows if row.score} for each in compared]
    ranks = mean_ranks(tables, [each.study.metric.higher_is_better for each in compared])
    return ranks if len(ranks) > 1 else {}


def overview_page(compared: Sequence[Findings], path: Path) -> str:
    """A page of several comparisons at `path`, with a link to the page of each."""
    data = [each.study.data for each in compared]
    names = [
        name if data.count(name) == 1 else f"{name} ({each.results.directory.name})"
        for name, each in zip(data, compared, strict=True)
    ]
    ranks = overall_ranks(compared)
    links = [quote(os.path.relpath(each.results.directory / "report.html", path.parent)) for each in compared]
    return render(
        "overview.html",
        title=f"Which layer is worth it? {len(compared)} comparisons",
        answer=_overall_answer(ranks),
        ranking=_ranking(ranks, names, compared) if ranks else None,
        comparisons=[
            {**_summary(each), "name": name, "link": link}
            for each, name, link in zip(compared, names, links, strict=True)
        ],
    )


def _overall_answer(ranks: Mapping[str, float]) -> str:
    """A rank has no interval, so it is an order and no verdict."""
    if not ranks:
        return "No two architectures are in all of these comparisons, so there is no order over all of them."
    best = [name for name, rank in ranks.items() if rank == min(ranks.values())]
    names = " and ".join(f"`{name}`" for name in best)
    return (
        f"{names} {'has' if len(best) == 1 else 'have'} the best mean rank; the verdicts of each comparison are below."
    )


def _ranking(ranks: Mapping[str, float], names: Sequence[str], compared: Sequence[Findings]) -> Grid:
    """Mean ranks and the verdict of each comparison."""
    verdicts = [Column(name, [each.row(label).verdict for label in ranks], words=True)
                for name, each in zip(names, compared, strict=True)]  # fmt: skip
    ordered = [
        Column("Architecture", list(ranks), words=True),
        Column("Mean rank", [f"{x:.2f}" for x in ranks.values()]),
    ]
    return Grid([*ordered, *verdicts])


# the parts of a comparison


def _summary(findings: Findings) -> dict[str, Any]:
    from markupsafe import Markup

    styles = plots.styles(findings)
    answer, following = decision(findings)
    return {
        "headline": answer,
        "following": following,
        "warnings": warnings(findings),
        "picture": difference_picture(findings),
        "results": comparison_grid(findings.rows),
        "keys": [Markup(key(styles[row.architecture])) for row in findings.rows],
    }


def difference_picture(findings: Findings) -> dict[str, Any] | None:
    """Each row's difference to the baseline with its interval; right is better. None without a baseline."""
    study, rows = findings.study, [row for row in findings.rows if row.difference and not row.is_baseline]
    known = [row.difference.mean for row in rows if row.difference and math.isfinite(row.difference.mean)]
    if not known:
        return None
    scale, styles, sign = Scale.of(findings.rows), plots.styles(findings), 1 if study.metric.higher_is_better else -1
    far = reach(known, [end for row in rows for end in row.ends or ()])
    lanes = []
    for row in rows:
        mean = row.difference.mean if row.difference and math.isfinite(row.difference.mean) else None
        ends = None if row.ends is None else (sign * row.ends[0], sign * row.ends[1])
        seeds = [sign * x for x in _by_seed(findings, row)]
        style = styles[row.architecture]
        drawing = lane(None if mean is None else sign * mean, ends, far, css_colour(style), row.margin or 0.0, seeds)
        lanes.append(picture_lane(row.architecture, style, drawing, verdict(row), scale.difference(row)))
    unit = f", in {scale.points.strip()}" if scale.points else ""
    title = f"Difference in {findings.results.split} {study.metric.name} to {study.baseline}{unit}"
    axis = [f"{scale.number(-sign * far, True)} ← worse", "0", f"better → {scale.number(sign * far, True)}"]
    margin = rows[0].margin_text
    note = (
        f"A bar is the interval of a difference. Grey: within {margin} of {study.baseline}, practically equal. A small "
        "dot is one seed; an arrow marks an interval that extends beyond the axis."
    )
    return {"title": title, "lanes": lanes, "axis": axis, "note": note}


def picture_lane(name: str, style: plots.PlotStyle, drawing: str, word: str, text: str) -> dict[str, Any]:
    """A line of a picture: its key and name, the drawing, the word and the numbers."""
    from markupsafe import Markup

    return {"key": Markup(key(style)), "name": name, "drawing": Markup(drawing), "word": word, "text": text}


def _by_seed(findings: Findings, row: Row) -> list[float]:
    """The differences behind the mean, one per shared seed."""
    scores = findings.results.scores(row.metric)
    ours, base = scores.get(row.architecture, {}), scores.get(findings.study.baseline or "", {})
    return [ours[seed] - base[seed] for seed in sorted(ours.keys() & base.keys())]


def _every_run(findings: Findings) -> Grid:
    """The numbers behind the means."""
    study, results, scale = findings.study, findings.results, Scale.of(findings.rows)
    numbers = sorted({run.seed for run in results.runs})

    def cell(label: str, seed: int) -> str:
        run = next((run for run in results.of(label) if run.seed == seed), None)
        value = run.score(results.split, study.metric.name) if run else None
        return scale.number(value) if value is not None else "unfinished" if run else NONE

    columns = [Column(f"seed {seed}", [cell(label, seed) for label in study.labels]) for seed in numbers]
    return Grid([Column("Architecture", study.labels, words=True), *columns])


def _confusion(findings: Findings) -> dict[str, Any] | None:
    """The confusion matrix of the best row, summed over its seeds; none if its runs have none."""
    done = [row for row in findings.rows if row.score]
    sign = 1 if findings.study.metric.higher_is_better else -1
    best = max(done, key=lambda row: sign * row.score.mean if row.score else 0.0, default=None)
    if best is None:
        return None
    matrices = [matrix for run in findings.results.finished(best.architecture) if (matrix := _matrix(run))]
    if not matrices or any(classes != matrices[0][0] for classes, _ in matrices):
        return None
    classes = matrices[0][0]
    size = range(len(classes))
    total = [[sum(counts[i][j] for _, counts in matrices) for j in size] for i in size]
    lines = []
    for i, counts in enumerate(total):
        shares = [round(100 * x / sum(counts)) if sum(counts) else 0 for x in counts]
        colours = ["--s2" if i == j else "--s1" for j in size]
        cells = [
            {"count": x, "share": f"{0.7 * share:.0f}", "colour": colour}
            for x, share, colour in zip(counts, shares, colours, strict=True)
        ]
        lines.append((classes[i], cells))
    return {"row": best.architecture, "classes": classes, "lines": lines, "runs": len(matrices)}


def _matrix(run: RunRecord) -> tuple[list[str], list[list[int]]] | None:
    """The confusion matrix of a run, if it is a square of counts that fits on a page."""
    problems: list[str] = []
    content = RunDir(run.path).read("confusion.json", problems) or {}
    if content and content.get("run_id") != run.info.get("run_id"):
        problems.append(f"'{run.path / 'confusion.json'}' is of another run than run.json beside it; it is left out")
        content = {}
    for sentence in problems:
        notice(sentence)
    classes, counts = content.get("classes"), content.get("counts")
    if not isinstance(classes, list) or not isinstance(counts, list) or not 0 < len(classes) <= MOST_CLASSES:
        return None
    square = [[integer(x) for x in line] if isinstance(line, list) else [] for line in counts]
    if len(square) != len(classes) or any(len(line) != len(classes) or None in line for line in square):
        return None
    return [str(name) for name in classes], [[x or 0 for x in line] for line in square]


def _facts(findings: Findings) -> dict[str, str]:
    """Settings that are equal in all runs; warnings name those that differ."""
    study, results = findings.study, findings.results
    infos = [run.info for run in results.runs if run.info]
    if not infos:
        return {}
    first = infos[0]
    mark = f"fingerprint {first['fingerprint']}" if first.get("fingerprint") else ""
    way = "higher" if study.metric.higher_is_better else "lower"
    dates = sorted(str(info["date"]) for info in infos if info.get("date"))
    settled = {
        "Data": " · ".join(filter(None, (study.data, str(first.get("kind") or ""), mark))),
        "Judged by": f"{study.metric.name} on the {results.split} part, {way} is better; "
        f"smallest relevant difference: {study.metric.spell_margin(study.margin)}",
        "Recipe": _settings([info.get("training") for info in infos]),
        "Model": _settings([info.get("model") for info in infos]),
        "Seeds": ", ".join(map(str, sorted({run.seed for run in results.runs}))),
        "Device": ", ".join(dict.fromkeys(_device(info) for info in infos if info.get("device"))),
        "Versions": _settings([info.get("versions") for info in infos]),
        "Source": str(first.get("git") or ""),
        "Dates": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
    }
    return {name: value for name, value in settled.items() if value}


def _device(info: Mapping[str, Any]) -> str:
    threads, processes = info.get("threads"), info.get("processes") or 1
    parts = [str(info["device"]), f"{threads} thread{'' if threads == 1 else 's'}" if threads else ""]
    return ", ".join(filter(None, [*parts, f"{processes} processes" if processes != 1 else ""]))


def _settings(records: Sequence[Any]) -> str:
    """`batch_size 64, epochs 10.0`: the settings in one line, with all values of those that differ."""
    dicts = [item for item in records if isinstance(item, dict)]
    varied = differing(dicts)
    pairs = [
        f"{name.replace('_', ' ')} {' or '.join(varied[name]) if name in varied else value}"
        for name, value in (dicts[0] if dicts else {}).items()
        if name in varied or value not in (None, False, "")
    ]
    return ", ".join(pairs)
