"""The tables of a study: a comparison's rows; a paper's rows, claims and costs. All are printed by `Grid`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.grid import Column, Grid, markdown, rendered
from odeum.lab.study.judge import ClaimResult, CostResult
from odeum.lab.study.metric import metric_named
from odeum.lab.study.prose import NONE, Scale, count, duration, memory, step_time, verdict
from odeum.lab.study.tuning import Choice, Tuning, spell_point
from odeum.lab.train.settings import Training

# a comparison


def table(rows: Sequence[Row], form: str = "text", width: int | None = None) -> str:
    """A comparison as text (of the terminal's width), Markdown, CSV or JSON; the last two hold unscaled numbers."""
    return rendered(form, [comparison_grid(rows)], [row.as_dict() for row in rows], width=width)


def comparison_grid(rows: Sequence[Row]) -> Grid:
    """One line per row, at most eight columns: the result and its uncertainty."""
    scale = Scale.of(rows)
    split = rows[0].split if rows else "test"
    parameters = [count(row.parameters) for row in rows]
    pairings = [ratio_of_variance(row.pairing) for row in rows]
    return Grid(
        [
            _names(rows),
            _scores(rows, split, scale),
            *_compared(rows, scale),
            Column("step time", [step_time(row) for row in rows]),
            *([Column("parameters", parameters)] if len({*parameters}) > 1 else []),
            *([Column("pairing", pairings)] if {*pairings} != {NONE} else []),
            Column("seeds", [seeds(row) for row in rows]),
        ]
    )


def other_figures(rows: Sequence[Row]) -> Grid:
    """The columns that `comparison_grid` leaves out."""
    scale = Scale.of(rows)
    split = rows[0].split if rows else "test"
    other = "valid" if split == "test" else "test"
    known = [_scores(rows, other, scale)] if any(row.test if other == "test" else row.valid for row in rows) else []
    if unjudged := next((row.other[0] for row in rows if row.other), None):
        known.append(Column(f"{unjudged} difference (not judged)", [not_judged(row) for row in rows]))
    if any("macro_f1" in row.beside for row in rows):
        f1 = [row.beside.get("macro_f1") for row in rows]
        known.append(Column("macro-F1 (%)", [NONE if x is None else f"{100 * x.mean:.1f}" for x in f1]))
    return Grid(
        [
            _names(rows),
            *known,
            Column("time per step", [duration(row.step_seconds) for row in rows]),
            Column("steps", [NONE if row.steps is None else f"{row.steps:.0f}" for row in rows]),
            Column("time of a run", [duration(row.seconds) for row in rows]),
            Column("parameters", [count(row.parameters) for row in rows]),
            Column("MACs per example", [count(row.macs) for row in rows]),
            Column("training MACs", [count(row.training_macs) for row in rows]),
            Column("evaluations", [count(row.evaluations) for row in rows]),
            Column("peak memory", [memory(row.peak_memory) for row in rows]),
        ]
    )


def _names(rows: Sequence[Row]) -> Column:
    return Column("architecture", [row.architecture for row in rows], words=True)


def _scores(rows: Sequence[Row], split: str, scale: Scale) -> Column:
    unit = f" ({scale.unit.strip()})" if scale.unit else ""
    cells = [scale.summary(row.test if split == "test" else row.valid) for row in rows]
    return Column(f"{split} {rows[0].metric if rows else 'metric'}{unit}", cells)


def ratio_of_variance(pairing: float | None) -> str:
    """Ratio of variances as text: 0.23."""
    return NONE if pairing is None else f"{pairing:.2f}"


def tuning_grid(findings: Findings) -> Grid | None:
    """One line per row: the curve over the tuned setting, the choice, its sensitivity, its cost; none without tuning.

    Of several settings, whose points are no curve, only the chosen one is shown.
    """
    study = findings.study
    results = study.tuning
    if results is None or not results.values:
        return None
    tuning, metric = results.tuning, study.tuned_by
    labels = [label for label in study.labels if label in results.values]
    choices = [results.choice(label, metric.higher_is_better) for label in labels]
    points = sorted({point for label in labels for point in results.values[label]}) if tuning.grid else []
    factor = 100.0 if metric.share else 1.0

    def value(x: float | None) -> str:
        return NONE if x is None else "diverged" if not math.isfinite(x) else f"{factor * x:.4g}"

    def change(choice: Choice | None, side: int) -> str:
        x = choice.sensitivity()[side] if choice else None
        return NONE if x is None else "diverged" if not math.isfinite(x) else f"{factor * x:+.2g}".replace("-", "−")

    sides = [Column(f"at {word} the best", [change(choice, side) for choice in choices])
             for side, word in enumerate(("half", "twice"))]  # fmt: skip
    return Grid(
        [
            Column("architecture", labels, words=True),
            *(
                Column(f"{point[0]:g}", [value(results.values[label].get(point)) for label in labels])
                for point in points
            ),
            Column("chosen", [spell_point(tuning.settings, c.point) if c else "none" for c in choices], words=True),
            Column("optimum", [_optimum(tuning, choice) for choice in choices], words=True),
            *([] if points else [Column(f"valid {metric.name}", [value(c.value if c else None) for c in choices])]),
            *(sides if points else []),
            Column("runs", [str(len(results.values[label])) for label in labels]),
            Column("cost", [duration(results.seconds.get(label)) for label in labels]),
        ]
    )


def _optimum(tuning: Tuning, choice: Choice | None) -> str:
    if choice is None:
        return "diverged everywhere"
    if not tuning.grid:
        return f"best of {tuning.runs} points"
    return "resolved" if choice.resolved else "unresolved"


def _compared(rows: Sequence[Row], scale: Scale) -> list[Column]:
    """Differences to a baseline, or letters where there is none."""
    base = next((row.architecture for row in rows if row.is_baseline), None)
    if base is None and any(row.group for row in rows):
        return [Column("group", [row.group or NONE for row in rows], words=True)]
    unit = f" ({scale.points.strip()})" if scale.points else ""
    return [
        Column(f"difference to {base or 'baseline'}{unit}", [scale.difference(row) for row in rows]),
        Column("verdict", [verdict(row) for row in rows], words=True, verdicts=True, essential=True),
    ]


def not_judged(row: Row) -> str:
    """−0.012 [−0.031, +0.007] of the metric that does not decide."""
    if row.other is None:
        return NONE
    name, difference = row.other
    share = metric_named(name).share
    spread = (difference.spread or 0.0) * (100 if share else 1)
    digits = min(max(-math.floor(math.log10(spread)), 1), 4) if spread else 2
    return Scale(100.0 if share else 1.0, digits, "", "").interval(difference.mean, difference.low, difference.high)


def seeds(row: Row) -> str:
    """The number of seeds, with diverged and unfinished ones."""
    text = str(len(row.seeds))
    if row.diverged:
        text += f" ({len(row.diverged)} diverged)"
    return text + (f" + {len(row.unfinished)} unfinished" if row.unfinished else "")


# a paper's table

DEFAULT_RATE = Training().learning_rate
"""of recipes that record only what differs from the defaults"""


def paper_table(findings: Findings, form: str = "text", shown: Collection[str] | None = None) -> str:
    """The rows to show and the claims about them; CSV holds the rows alone, JSON everything."""
    study = findings.study
    labels = [label for label in study.labels if shown is None or label in shown]
    shown_claims = [each for each in findings.claims if {*each.claim.pair} <= {*labels}]
    content = {
        "table": study.name,
        "scale": study.scale,
        "rows": [_plain_row(findings, name) for name in labels],
        "claims": [_plain_claim(findings, each) for each in shown_claims],
        "costs": [_plain_cost(each) for each in findings.costs],
    }
    title, notes = f"{study.title} ({study.scale} scale)", paper_notes(findings)
    if form == "md":
        title, notes = f"**{markdown(title)}**", [f"- {markdown(note)}" for note in notes]
    parts: list[Grid | str] = [f"{title}\n"]
    if study.is_trained and labels:
        parts.append(row_grid(findings, labels))
    if shown_claims:
        parts.append(claim_grid(findings, shown_claims))
    if findings.costs:
        parts.append(cost_claim_grid(findings))
    records = [_spreadsheet_row(findings, label) for label in labels]
    return rendered(form, [*parts, "".join(f"{note}\n" for note in notes)], records, content, indent=1)


def row_grid(findings: Findings, labels: Sequence[str]) -> Grid:
    """One line per row: the published figures and ours."""
    study, results = findings.study, findings.results
    measured = [(findings.results.split, study.metric.name), *study.beside]
    rows = [study.row(label) for label in labels]
    columns = [
        Column("row", [f"{row.label}{' (control)' if row.control else ''}" for row in rows], words=True),
        Column("architecture", [row.architecture for row in rows], words=True),
    ]
    for split, metric in measured:
        scale = scale_of(findings, split, metric)
        if any(metric in row.published for row in rows):  # else none of the paper's figures could be read
            figures = [row.published.get(metric) for row in rows]
            cells = [NONE if x is None else f"{x * scale.factor:g}" for x in figures]
            columns.append(Column(f"paper: {_head(metric)}", cells))
        cells = [_score(findings, label, split, metric, scale) for label in labels]
        columns.append(Column(f"ours: {split} {_head(metric)}", cells))
    training = [
        next((x for run in results.of(label) if (x := run.measured("macs")) is not None), None) for label in labels
    ]
    return Grid(
        [
            *columns,
            Column("seeds", [str(len(results.of(label))) for label in labels]),
            Column("rate", [_rate(findings, label) for label in labels]),
            Column("parameters", [count(results.fact(label, "parameters")) for label in labels]),
            Column("multiply–adds", [count(results.fact(label, "macs")) for label in labels]),
            Column("of training", [count(x) for x in training]),
        ]
    )


def _rate(findings: Findings, label: str) -> str:
    """The peak learning rate of the row's runs; in brackets if it is the setting's, not tuned."""
    for run in findings.results.of(label):
        rate = ((run.result or {}).get("identity") or {}).get("training", {}).get("learning_rate", DEFAULT_RATE)
        return f"{rate:g}" if label in findings.study.tunings else f"({rate:g})"
    return NONE


def claim_grid(findings: Findings, claims: Sequence[ClaimResult]) -> Grid:
    """One line per claim."""
    study = findings.study
    scale = scale_of(findings, findings.results.split, study.metric.name)
    unit = f" ({scale.points.strip()})" if scale.points else ""
    lines = []
    for each in claims:
        claim, difference = each.claim, each.difference
        published = study.published(claim)
        ours = NONE
        if difference is not None and math.isfinite(difference.mean):
            ends = (None, None) if each.early else (difference.low, difference.high)
            ours = scale.interval(difference.mean, *ends)
        lines.append(
            [
                claim.text,
                opinion(each),
                ours,
                NONE if published is None else scale.number(published, signed=True),
                f"{claim.first} − {claim.second}",
            ]
        )
    return Grid.of(("claim", "verdict", f"ours{unit}", f"paper{unit}", "difference"), lines, (0, 1, 4))


def cost_claim_grid(findings: Findings) -> Grid:
    """One line per claim about costs."""
    pace = findings.study.pace or {}
    lines = []
    for each in findings.costs:
        claim, ratio = each.claim, each.ratio
        ours = NONE if ratio is None else f"{ratio.middle:.2f}×"
        if ratio is not None and claim.quantity == "step":
            ours += f" [{ratio.low:.2f}, {ratio.high:.2f}]"
            first, second = (pace[label].memory for label in (claim.first, claim.second))
            ours += f", memory {first / second:.2f}×" if first and second else ""
        what = "parameters" if claim.quantity == "parameters" else "time of a step"
        lines.append(
            [claim.text, each.opinion, ours, f"≤ {claim.at_most:.2f}×", f"{what}: {claim.first} / {claim.second}"]
        )
    return Grid.of(("claim", "verdict", "ours", "claimed", "ratio"), lines, (0, 1, 4))


def opinion(claim: ClaimResult) -> str:
    """The opinion on a claim and, if it is not resolved, what it would take."""
    if claim.opinion != "not resolved":
        return claim.opinion
    if claim.difference is not None and claim.difference.problem == "diverged":
        return "not resolved: a run diverged"
    if claim.early and claim.difference is not None:
        return f"not resolved: {claim.difference.n} of the {claim.first_look} seeds of the first look"
    if claim.more is None:
        return "not resolved: over a thousand more seeds, or a longer training"
    return f"not resolved: about {claim.more} more seed{'' if claim.more == 1 else 's'}"


def scale_of(findings: Findings, split: str, metric: str) -> Scale:
    """The format of a metric: one digit of the smallest spread, as in `compare`."""
    share = metric_named(metric).share
    factor = 100.0 if share else 1.0
    summaries = [findings.results.summary(label, split, metric) for label in findings.study.labels]
    spreads = [factor * s.spread for s in summaries if s is not None and s.spread]
    decimals = min(max(-math.floor(math.log10(min(spreads))), 1), 3) if spreads else 2
    return Scale(factor, decimals, " %" if share else "", " points" if share else "")


def paper_notes(findings: Findings) -> list[str]:
    """Notes below a table: scale, margin, looks, missing runs, how to continue."""
    study, results = findings.study, findings.results
    lines = list(study.notes)
    if study.claims and study.seeds is not None:
        way = "higher" if study.metric.higher_is_better else "lower"
        looks = ", ".join(str(look.seeds) for look in study.seeds.looks)
        lines.append(
            f"Judged by the {results.split} {study.metric.name} ({way} is better), paired by seed, with a margin of "
            f"{study.metric.spell_margin(study.margin)}; the intervals of the {len(study.claims)} claims hold together "
            f"at 95 % over looks after {looks} seeds."
        )
    if study.tunings:
        tried, done = next(iter(study.tunings.values())).runs, study.tuning.values if study.tuning else ()
        lines.append(
            f"Each row with a claim tries at least {tried} learning rates with a separate seed, chosen on the "
            f"validation part; tuned so far: {len(done)} of {len(study.tunings)} rows. Rates in brackets are the "
            "recipe's."
        )
    diverged = [f"{label} ({n})" for label in study.labels if (n := _failed(findings, label))]
    if diverged:
        lines.append(f"Diverged runs: {', '.join(diverged)}.")
    missing = [label for label in study.labels if not results.of(label)]
    if missing and study.is_trained:
        lines.append("No runs yet." if len(missing) == len(study.labels) else f"Not run: {', '.join(missing)}.")
    dates = sorted(str(run.info.get("date"))[:10] for run in results.runs)
    if dates:
        lines.append(f"Runs of {dates[0]}{'' if dates[0] == dates[-1] else f' to {dates[-1]}'}.")
    scale = "" if study.scale == "laptop" else f" --scale {study.scale}"
    lines.append(f"Next: odeum table {study.name}{scale} {'--seeds auto' if study.is_trained else '--pace'}")
    return lines


def _failed(findings: Findings, label: str) -> int:
    return sum(bool((run.result or {}).get("failed")) for run in findings.results.of(label))


def _head(metric: str) -> str:
    return f"{metric} (%)" if metric_named(metric).share else metric


def _score(findings: Findings, label: str, split: str, metric: str, scale: Scale) -> str:
    if not findings.results.of(label):
        return "not run"
    failed = _failed(findings, label)
    return scale.summary(findings.results.summary(label, split, metric)) + (f", {failed} diverged" if failed else "")


def _plain_row(findings: Findings, label: str) -> dict[str, Any]:
    study, results = findings.study, findings.results
    row, split, metric = study.row(label), results.split, study.metric.name
    summary = results.summary(label, split, metric)
    parameters, macs = (results.fact(label, name) for name in ("parameters", "macs"))
    return {
        "row": label,
        "architecture": row.architecture,
        "recipe": row.key,
        "control": row.control,
        "paper": dict(row.published),
        "metric": f"{split} {metric}",
        "mean": summary.mean if summary else None,
        "spread": summary.spread if summary else None,
        "scores": {str(seed): x for seed, x in results.scores(metric)[label].items() if math.isfinite(x)},
        "beside": {
            f"{part} {name}": s.mean for part, name in study.beside if (s := results.summary(label, part, name))
        },
        "diverged": _failed(findings, label),
        "parameters": None if parameters is None else float(parameters),
        "macs": None if macs is None else float(macs),
    }


def _spreadsheet_row(findings: Findings, label: str) -> Mapping[str, Any]:
    """The row flattened: the paper's figure of the metric, the number of seeds, other metrics in words."""
    row = _plain_row(findings, label)
    paper = row["paper"].get(findings.study.metric.name)
    beside = "; ".join(f"{name} {value:.6g}" for name, value in row["beside"].items())
    flat = row | {"paper": paper, "scores": len(row["scores"]), "beside": beside}
    return {"seeds" if key == "scores" else key: value for key, value in flat.items()}


def _plain_cost(each: CostResult) -> dict[str, Any]:
    claim, ratio = each.claim, each.ratio
    return {
        "claim": claim.text,
        "first": claim.first,
        "second": claim.second,
        "quantity": claim.quantity,
        "at_most": claim.at_most,
        "ratio": ratio.middle if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": each.opinion,
    }


def _plain_claim(findings: Findings, each: ClaimResult) -> dict[str, Any]:
    claim, difference = each.claim, each.difference
    return {
        "claim": claim.text,
        "first": claim.first,
        "second": claim.second,
        "kind": claim.kind,
        "paper": findings.study.published(claim),
        "difference": difference.mean if difference and math.isfinite(difference.mean) else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "level": difference.level if difference else None,
        "seeds": difference.n if difference else 0,
        "margin": each.margin,
        "verdict": each.opinion,
        "more_seeds": each.more,
    }
