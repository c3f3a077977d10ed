"""A table for people: the paper's column beside ours, then each claim with its difference and its verdict."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from odeum.lab.papers.base import PaperTable, TableRow
from odeum.lab.papers.grid import Grid
from odeum.lab.papers.judging import ClaimResult, CostResult, RowResult, TableResult
from odeum.lab.study.formats import markdown
from odeum.lab.study.metric import metric_named
from odeum.lab.study.prose import NONE, Scale, count
from odeum.lab.terminal import to_json


def list_tables(tables: Sequence[PaperTable]) -> str:
    """Names, rows and claims."""
    lines = []
    for table in tables:
        lines += [f"{table.name}: {table.title}", f"  scales: {', '.join(table.scales)}"]
        lines.append(f"  rows: {', '.join(row.name for row in table.rows if not row.control)}")
        if controls := [row.name for row in table.rows if row.control]:
            lines.append(f"  controls: {', '.join(controls)}")
        lines += [f"  claim: {claim.text} ({claim.first}, {claim.second})" for claim in table.claims]
    return "".join(f"{line}\n" for line in lines)


def print_table(
    result: TableResult, form: str = "text", shown: Collection[str] | None = None, claims: bool = True
) -> str:
    """The rows that are to be shown, and the claims about them; csv holds the rows alone, json everything."""
    table = result.table
    names = [row.name for row in table.rows if shown is None or row.name in shown]
    told = [found for found in result.claims if claims and {*found.claim.pair} <= {*names}]
    rows = [result.of(name) for name in names]
    if form == "json":
        content = {"table": table.name, "scale": result.scale, "rows": [_plain_row(result, row) for row in rows]}
        content["claims"] = [_plain_claim(result, found) for found in told]
        content["costs"] = [_plain_cost(found) for found in result.costs]
        return to_json(content, indent=1) + "\n"
    if form == "csv":
        return _numbers(result, rows).csv()
    parts = [row_grid(result, rows), *([claim_grid(result, told)] if told else [])]
    if claims and result.costs:
        parts.append(cost_claim_grid(result))
    title = f"{table.title} ({result.scale} scale)"
    if form == "md":
        notes = "".join(f"- {markdown(note)}\n" for note in remarks(result))
        return f"**{markdown(title)}**\n\n" + "\n".join(part.markdown() for part in parts) + f"\n{notes}"
    return f"{title}\n\n" + "\n".join(part.text() for part in parts) + "\n" + "".join(f"{n}\n" for n in remarks(result))


def _numbers(result: TableResult, rows: Sequence[RowResult]) -> Grid:
    """For a spreadsheet: unscaled."""
    plain = [_plain_row(result, row) for row in rows]
    flat = [
        {
            **row,
            "paper": row["paper"].get(result.table.metric),
            "scores": len(row["scores"]),
            "beside": "; ".join(f"{name} {value:.6g}" for name, value in row["beside"].items()),
        }
        for row in plain
    ]
    heads = tuple("seeds" if key == "scores" else key for key in flat[0]) if flat else ()
    return Grid(heads, [["" if value is None else str(value) for value in row.values()] for row in flat])


def row_grid(result: TableResult, rows: Sequence[RowResult]) -> Grid:
    """A line a row."""
    table = result.table
    columns = [(table.split, table.metric), *table.beside]
    heads = ["row", "architecture"]
    for split, metric in columns:
        heads += [f"paper: {_head(metric)}", f"ours: {split} {_head(metric)}"]
    lines = []
    for found in rows:
        cells = [_name(found.row), found.recipe.name]
        for split, metric in columns:
            scale = scale_of(result, split, metric)
            published = found.row.paper.get(metric)
            cells += [
                NONE if published is None else f"{published * scale.factor:g}",
                _score(found, split, metric, scale),
            ]
        cells += [str(len(found.runs)), count(found.fact("parameters")), count(found.fact("macs")), _training(found)]
        lines.append(cells)
    if not any(cell != NONE for line in lines for cell in line[2:3]):  # nothing that could be read is printed there
        heads = [head for head in heads if not head.startswith("paper")]
        lines = [[*line[:2], *line[3 : 2 + 2 * len(columns) : 2], *line[2 + 2 * len(columns) :]] for line in lines]
    return Grid((*heads, "seeds", "parameters", "multiply–adds", "of training"), lines, (0, 1))


def claim_grid(result: TableResult, claims: Sequence[ClaimResult]) -> Grid:
    """A line a claim."""
    scale = scale_of(result, result.table.split, result.table.metric)
    unit = f" ({scale.points.strip()})" if scale.points else ""
    lines = []
    for found in claims:
        claim, difference = found.claim, found.difference
        published = result.table.published(claim)
        ours = NONE
        if difference is not None and math.isfinite(difference.mean):
            ends = (None, None) if found.early else (difference.low, difference.high)
            ours = scale.interval(difference.mean, *ends)
        lines.append(
            [
                f"{claim.text}{' (our question)' if claim.ours else ''}",
                verdict_text(found),
                ours,
                NONE if published is None else scale.number(published, signed=True),
                f"{claim.first} − {claim.second}",
            ]
        )
    return Grid(("claim", "verdict", f"ours{unit}", f"paper{unit}", "difference"), lines, (0, 1, 4))


def cost_claim_grid(result: TableResult) -> Grid:
    """A line a claim about costs."""
    lines = []
    for found in result.costs:
        claim, ratio = found.claim, found.ratio
        ours = NONE if ratio is None else f"{ratio.middle:.2f}×"
        if ratio is not None and claim.quantity == "step":
            ours += f" [{ratio.low:.2f}, {ratio.high:.2f}]"
            first, second = (result.paces[name].memory for name in (claim.first, claim.second))
            ours += f", memory {first / second:.2f}×" if first and second else ""
        what = "parameters" if claim.quantity == "parameters" else "time of a step"
        lines.append(
            [claim.text, found.opinion, ours, f"≤ {claim.at_most:.2f}×", f"{what}: {claim.first} / {claim.second}"]
        )
    return Grid(("claim", "verdict", "ours", "claimed", "ratio"), lines, (0, 1, 4))


def verdict_text(found: ClaimResult) -> str:
    """The word and, of what is not resolved, what it would take."""
    if found.opinion != "not resolved":
        return found.opinion
    if found.difference is not None and found.difference.problem == "diverged":
        return "not resolved: a run diverged"
    if found.early and found.difference is not None:
        return f"not resolved: {found.difference.n} of the {found.first_look} seeds of the first look"
    more = "over a thousand more seeds, or a longer training" if found.more is None else _seeds(found.more)
    return f"not resolved: {more}"


def _seeds(more: int) -> str:
    return f"about {more} more seed{'' if more == 1 else 's'}"


def scale_of(result: TableResult, split: str, metric: str) -> Scale:
    """How the figures of a metric are written: one digit of the smallest spread, as `compare` does."""
    share = metric_named(metric).share
    factor = 100.0 if share else 1.0
    summaries = [found.summary(split, metric) for found in result.rows]
    spreads = [factor * s.spread for s in summaries if s is not None and s.spread]
    decimals = min(max(-math.floor(math.log10(min(spreads))), 1), 3) if spreads else 2
    return Scale(factor, decimals, " %" if share else "", " points" if share else "")


def remarks(result: TableResult) -> list[str]:
    """What a reader must know: scale, margin, looks, what was not run, how to go on."""
    table = result.table
    looks = ", ".join(str(look.seeds) for look in table.seeds.looks)
    ours = dict.fromkeys(note for setting in table.scales[result.scale].values() for note in setting.ours)
    lines = [*table.notes, *(f"Ours: {note}." for note in ours)]
    if table.claims:
        way = "higher" if table.judged.higher_is_better else "lower"
        lines.append(
            f"Judged by the {table.split} {table.metric} ({way} is better), paired by seed; a difference matters from "
            f"{table.judged.spell_margin(table.margin)} on; the intervals of the {len(table.claims)} claims hold "
            f"together at 95 % over looks after {looks} seeds."
        )
    diverged = [f"{found.row.name} ({found.diverged})" for found in result.rows if found.diverged]
    if diverged:
        lines.append(f"Diverged runs: {', '.join(diverged)}.")
    missing = [found.row.name for found in result.rows if not found.runs]
    if missing:
        lines.append(f"Not run: {', '.join(missing)}.")
    dates = sorted(str(run.fact("date"))[:10] for found in result.rows for run in found.runs.values())
    if dates:
        lines.append(f"Runs of {dates[0]}{'' if dates[0] == dates[-1] else f' to {dates[-1]}'}.")
    scale = "" if result.scale == "laptop" else f" --scale {result.scale}"
    lines.append(f"To go on: odeum table {table.name}{scale} --seeds auto")
    return lines


def _name(row: TableRow) -> str:
    return f"{row.name}{' (control)' if row.control else ''}"


def _head(metric: str) -> str:
    return f"{metric} (%)" if metric_named(metric).share else metric


def _score(found: RowResult, split: str, metric: str, scale: Scale) -> str:
    if not found.runs:
        return "not run"
    return scale.summary(found.summary(split, metric)) + (f", {found.diverged} diverged" if found.diverged else "")


def _training(found: RowResult) -> str:
    values = [run.content.get("macs") for run in found.runs.values()]
    return count(next((float(value) for value in values if isinstance(value, int | float)), None))


def _plain_row(result: TableResult, found: RowResult) -> dict[str, Any]:
    table = result.table
    summary = found.summary(table.split, table.metric)
    return {
        "row": found.row.name,
        "architecture": found.recipe.name,
        "recipe": table.spec(found.row, result.scale).key,
        "control": found.row.control,
        "paper": dict(found.row.paper),
        "metric": f"{table.split} {table.metric}",
        "mean": summary.mean if summary else None,
        "spread": summary.spread if summary else None,
        "scores": {str(seed): x for seed, x in found.scores(table.split, table.metric).items() if math.isfinite(x)},
        "beside": {
            f"{split} {metric}": s.mean for split, metric in table.beside if (s := found.summary(split, metric))
        },
        "diverged": found.diverged,
        "parameters": found.fact("parameters"),
        "macs": found.fact("macs"),
    }


def _plain_cost(found: CostResult) -> dict[str, Any]:
    claim, ratio = found.claim, found.ratio
    return {
        "claim": claim.text,
        "first": claim.first,
        "second": claim.second,
        "quantity": claim.quantity,
        "at_most": claim.at_most,
        "ratio": ratio.middle if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": found.opinion,
    }


def _plain_claim(result: TableResult, found: ClaimResult) -> dict[str, Any]:
    difference = found.difference
    return {
        "claim": found.claim.text,
        "first": found.claim.first,
        "second": found.claim.second,
        "kind": found.claim.kind,
        "ours": found.claim.ours,
        "paper": result.table.published(found.claim),
        "difference": difference.mean if difference and math.isfinite(difference.mean) else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "level": difference.level if difference else None,
        "seeds": difference.n if difference else 0,
        "margin": found.margin,
        "verdict": found.opinion,
        "more_seeds": found.more,
    }
