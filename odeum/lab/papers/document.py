"""Writes the parts of docs/results.md, docs/protocol.md and the README that report on the papers, from kept results.

A test compares the pages with the kept results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from odeum.errors import OdeumError
from odeum.lab.papers import TABLES
from odeum.lab.papers.plan import BUDGET, plan, plan_grid
from odeum.lab.study.drawings import claims_picture, marks_of
from odeum.lab.study.findings import Findings
from odeum.lab.study.judge import CostResult, Opinion
from odeum.lab.study.runs import Store, kept_results
from odeum.lab.study.tables import claim_grid, paper_table, tuning_grid
from odeum.storage import write_bytes

BEGIN = "<!-- written by script/results from results/tables: change the recipes or the runs, not this -->"
END = "<!-- the end of what script/results writes -->"
PICTURE = "claims.svg"
COUNTED: dict[Opinion, str] = {
    "agrees": "confirmed",
    "disagrees": "contradicted",
    "practically equal": "practically equal",
    "not resolved": "undecided",
    "not run": "not run",
}
"""verdicts on claims, and what a count of them is called"""


class Part(NamedTuple):
    """One claim that answers a question: the difference of two rows of a table."""

    where: str
    table: str
    first: str
    second: str


QUESTIONS: dict[str, tuple[Part, ...]] = {
    "Is the parallel layer better than the sequential one?": (
        Part("images", "zhong2022/table1", "parallel", "sequential"),
        Part("translation without dropout", "zhong2022/table3", "parallel-0", "sequential-0"),
        Part("language without dropout", "zhong2022/table4", "parallel-0", "sequential-0"),
    ),
    "Is RK4 better than Euler?": (Part("images", "zhong2022/table1", "rk4", "parallel"),),
    "Does the parallel layer with shared weights still beat the sequential one?": (
        Part("half of the weights", "zhong2022/table1", "parallel-6", "sequential"),
        Part("a third of them", "zhong2022/table1", "parallel-4", "sequential"),
    ),
    "Does dropout harm the parallel layer?": (
        Part("images", "zhong2022/table2", "parallel", "parallel-dropout"),
        Part("language", "zhong2022/table4", "parallel-0", "parallel-0.1"),
    ),
    "Is a norm before each branch the best placement?": (
        Part("against one shared norm", "zhong2022/figure2", "separate", "shared"),
        Part("against a norm after the sum", "zhong2022/figure2", "separate", "post-sum"),
    ),
    "Does TransEvolve beat the Transformer on texts?": (
        Part("AG News", "dutta2021/classification", "ag-full-1", "ag-transformer"),
        Part("IMDB", "dutta2021/classification", "imdb-full-1", "imdb-transformer"),
        Part("ListOps", "dutta2021/long", "listops-full-1", "listops-transformer"),
    ),
    "Does TransEvolve keep the Transformer's quality in translation?": (
        Part("English to German", "dutta2021/translation", "de-full-1", "de-transformer"),
    ),
    "Does the parallel layer's gain grow with size?": (
        Part("32 wide", "zhong2022/ladder", "parallel-small", "sequential-small"),
        Part("48 wide", "zhong2022/table1", "parallel", "sequential"),
        Part("64 wide", "zhong2022/ladder", "parallel-large", "sequential-large"),
    ),
    "Does the gain of RK4 grow with size?": (
        Part("32 wide", "zhong2022/ladder", "rk4-small", "parallel-small"),
        Part("48 wide", "zhong2022/table1", "rk4", "parallel"),
        Part("64 wide", "zhong2022/ladder", "rk4-large", "parallel-large"),
    ),
    "Does the parallel layer with half of the weights gain with size?": (
        Part("32 wide", "zhong2022/ladder", "parallel-6-small", "sequential-small"),
        Part("48 wide", "zhong2022/table1", "parallel-6", "sequential"),
        Part("64 wide", "zhong2022/ladder", "parallel-6-large", "sequential-large"),
    ),
    "Does TransEvolve's gain on AG News grow with size?": (
        Part("32 wide", "dutta2021/ladder", "full-1-small", "transformer-small"),
        Part("64 wide", "dutta2021/classification", "ag-full-1", "ag-transformer"),
        Part("128 wide", "dutta2021/ladder", "full-1-large", "transformer-large"),
    ),
}
"""the main questions of the papers"""
SPEED_QUESTION = "Does TransEvolve train three times as fast?"


def all_results(store: Store) -> list[Findings]:
    """Every table at the scale of a laptop."""
    return [table.findings("laptop", store) for table in TABLES.values()]


def answers(tables: Sequence[Findings]) -> list[str]:
    """One paragraph per question."""
    by_name = {table.study.name: table for table in tables}
    out = []
    for question, parts in QUESTIONS.items():
        replies = [f"{part.where}: {_answer(by_name[part.table], (part.first, part.second))}" for part in parts]
        out.append(f"- **{question}** {_capital('; '.join(replies))}.")
    speeds = [each for table in tables for each in table.costs if each.claim.quantity == "step"]
    if timed := [each for each in speeds if each.ratio is not None and each.claim.at_most < 1]:
        out.append(f"- **{SPEED_QUESTION}** {_speeds(timed)}")
    return out


def _answer(findings: Findings, pair: tuple[str, str]) -> str:
    """A claim's verdict in words, with its interval."""
    claim = next(each for each in findings.claims if each.claim.pair == pair)
    difference = claim.difference
    if difference is None or claim.opinion == "not run":
        return "not run yet"
    unit = "points" if findings.study.metric.share else f"of {findings.study.metric.name}"
    ours = claim_grid(findings, [claim]).lines[0][2]
    seeds = f"{difference.n} seed{'' if difference.n == 1 else 's'}"
    words = {"agrees": "yes", "disagrees": "no", "practically equal": "practically equal", "not resolved": "undecided"}
    return f"{words[claim.opinion]}, {ours} {unit} after {seeds}"


def _speeds(timed: Sequence[CostResult]) -> str:
    ratios = [each.ratio.middle for each in timed if each.ratio is not None]
    agreed = sum(each.opinion == "agrees" for each in timed)
    return (
        f"{agreed or 'None'} of {len(timed)} measurements agree{'s' if agreed == 1 else ''}: a training step takes "
        f"{min(ratios):.2f} to {max(ratios):.2f} times as long as the Transformer's."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def counts(tables: Sequence[Findings]) -> str:
    """71 claims: 1 confirmed, 8 contradicted, 62 not run."""
    opinions = [claim.opinion for table in tables for claim in table.claims]
    opinions += [cost.opinion for table in tables for cost in table.costs]
    known = ", ".join(f"{opinions.count(word)} {name}" for word, name in COUNTED.items() if word in opinions)
    return f"{len(opinions)} claims: {known}"


def results_text(tables: Sequence[Findings]) -> str:
    """Answers first, then the picture, the plan and each table with its claims, rates and seeds."""
    runs = len({(table.study.row(run.row).key, run.seed) for table in tables for run in table.results.runs})
    parts = [
        "\n".join(answers(tables)) + "\n",
        f"The two papers make {counts(tables)}, after {runs} evaluation run{'' if runs == 1 else 's'}. Verdicts hold "
        "for this scale only.\n",
    ]
    if marks_of(tables):
        parts.append(f"![every claim with its interval]({PICTURE})\n")
    for table in tables:
        ran = {run.row for run in table.results.runs}
        parts.append(f"### `odeum table {table.study.name}`\n")
        if not ran and not any(cost.ratio for cost in table.costs) and table.study.tuning is None:
            regimes = [note for note in table.study.notes if note.startswith("Regime:")]
            parts.append(f"**{table.study.title}**: not run yet. {' '.join(regimes)}\n")
            continue
        parts.append(paper_table(table, "md", ran))
        if tuning := tuning_grid(table):
            parts.append(f"Tuning (validation part, a seed that no evaluation uses):\n\n{tuning.markdown()}")
    return "\n".join(parts)


def plan_text(store: Store) -> str:
    """For docs/protocol.md: planned and used core-hours per table and per row."""
    rows = plan(store)
    return (
        f"Budget: {BUDGET:g} core-hours on an idle core.\n\n"
        f"{plan_grid(rows).markdown()}\nRow by row:\n\n{plan_grid(rows, by_row=True).markdown()}"
    )


def short_text(tables: Sequence[Findings]) -> str:
    """For the README: the picture and two sentences."""
    lines = [f"![every claim with its interval](docs/{PICTURE})\n"] if marks_of(tables) else []
    first = next((line for line in answers(tables) if re.search(r" after \d+ seed", line)), None)
    lines.append(
        f"The two papers make {counts(tables)} so far. All runs are at laptop scale with equally tuned learning rates; "
        "[docs/results.md](docs/results.md) has the answers and every table."
    )
    if first is not None:
        lines.append(first.removeprefix("- "))
    return "\n".join(lines) + "\n"


def with_results(page: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise OdeumError(f"the page has no markers for the tables; add the lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def documents(root: Path, store: Store) -> dict[Path, str]:
    """The content of each page; the picture is empty if no claim has an interval yet."""
    tables = all_results(store)
    texts = {
        root / "README.md": short_text(tables),
        root / "docs" / "results.md": results_text(tables),
        root / "docs" / "protocol.md": plan_text(store),
    }
    pages = {path: with_results(path.read_text(encoding="utf-8"), text) for path, text in texts.items()}
    return {**pages, root / "docs" / PICTURE: claims_picture(tables) if marks_of(tables) else ""}


def write_documents(root: Path, store: Store) -> None:
    """Write the pages and the picture."""
    for path, text in documents(root, store).items():
        if text:
            write_bytes(path, text.encode())
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    write_documents(Path(sys.argv[1]), kept_results())
