"""docs/results.md and the README: what they say of the papers is written from kept results; a test compares them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from odeum.errors import OdeumError
from odeum.lab.papers import TABLES
from odeum.lab.study.drawings import claims_picture
from odeum.lab.study.findings import Findings
from odeum.lab.study.judge import ClaimResult
from odeum.lab.study.runs import Store, kept_results
from odeum.lab.study.tables import claim_grid, cost_claim_grid, paper_table
from odeum.storage import write_bytes

BEGIN = "<!-- written by script/results from results/tables: change the recipes or the runs, not this -->"
END = "<!-- the end of what script/results writes -->"
PICTURE = "claims.svg"


def all_results(store: Store) -> list[Findings]:
    """Every table at the scale of a laptop."""
    return [table.findings("laptop", store) for table in TABLES.values()]


def results_text(tables: Sequence[Findings]) -> str:
    """The claims of all tables first, then each table."""
    claimed = [table for table in tables if table.claims]
    opinions = [claim.opinion for table in claimed for claim in table.claims]
    counts = ", ".join(f"{opinions.count(word)} {word}" for word in dict.fromkeys(sorted(opinions)))
    runs = len({(table.study.row(run.row).key, run.seed) for table in tables for run in table.results.runs})
    parts = [
        f"{len(opinions)} claims: {counts}; {runs} runs. A verdict speaks of this scale alone.\n",
        f"![every claim with its interval]({PICTURE})\n",
    ]
    for table in claimed:
        parts.append(f"`{table.study.name}`:\n\n{claim_grid(table, table.claims).markdown()}")
        if table.costs:
            parts.append(cost_claim_grid(table).markdown())
    for table in tables:
        if ran := {run.row for run in table.results.runs}:
            parts.append(f"### `odeum table {table.study.name}`\n\n{paper_table(table, 'md', ran, claims=False)}")
    return "\n".join(parts)


def short_text(tables: Sequence[Findings], shown: int = 3) -> str:
    """For the README: how many claims hold here, and those that are decided most clearly."""
    claims = [(table, claim) for table in tables for claim in table.claims]
    opinions = [claim.opinion for _, claim in claims]
    phrases = (("agrees", "agree"), ("disagrees", "disagree"), ("not resolved", "not resolved"), ("not run", "not run"))
    counts = ", ".join(f"{opinions.count(o)} {text}" for o, text in phrases if o in opinions)
    lines = [
        f"![every claim with its interval](docs/{PICTURE})",
        f"The two papers' claims, tried on a laptop's scale ([docs/results.md](docs/results.md)): {counts}. Clearest:",
    ]
    decided = [(table, claim) for table, claim in claims if claim.settled]
    for table, claim in sorted(decided, key=lambda pair: _clarity(pair[1]), reverse=True)[:shown]:
        text, verdict, ours, paper, _ = claim_grid(table, [claim]).lines[0]
        unit = "points" if table.study.metric.share else table.study.metric.name
        lines.append(f"- {text} (`{table.study.name}`): **{verdict}**, {ours} {unit}; paper {paper}")
    return "\n".join(lines) + "\n"


def _clarity(claim: ClaimResult) -> float:
    """Widths of its interval between a difference and zero."""
    difference = claim.difference
    if difference is None or difference.low is None or difference.high is None:
        return 0.0
    return abs(difference.mean) / max(difference.high - difference.low, 1e-12)


def with_results(page: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise OdeumError(f"the page has no place for the tables: it needs the lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def write_document(page: Path, readme: Path, store: Store) -> None:
    """Write the page, the picture beside it and the README's few lines."""
    tables = all_results(store)
    write_bytes(readme, with_results(readme.read_text(encoding="utf-8"), short_text(tables)).encode())
    write_bytes(page, with_results(page.read_text(encoding="utf-8"), results_text(tables)).encode())
    write_bytes(page.with_name(PICTURE), claims_picture(tables).encode())


if __name__ == "__main__":
    write_document(Path(sys.argv[1]), Path(sys.argv[2]), kept_results())
