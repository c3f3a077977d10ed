"""docs/results.md and the README: what they say of the papers is written from kept results; a test compares them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from odeum.errors import OdeumError
from odeum.lab.papers import TABLES
from odeum.lab.papers.judging import ClaimResult, TableResult, read_results
from odeum.lab.papers.picture import claims_picture
from odeum.lab.papers.printing import claim_grid, cost_claim_grid, print_table
from odeum.lab.papers.store import Store, results_home
from odeum.lab.study.metric import metric_named
from odeum.storage import write_bytes

BEGIN = "<!-- written by script/results from results/tables: change the recipes or the runs, not this -->"
END = "<!-- the end of what script/results writes -->"
PICTURE = "claims.svg"


def all_results(store: Store) -> list[TableResult]:
    """Every table at the scale of a laptop."""
    return [read_results(table, "laptop", store) for table in TABLES.values()]


def results_text(results: Sequence[TableResult]) -> str:
    """The claims of all tables first, then each table."""
    claimed = [result for result in results if result.claims]
    told = [found.opinion for result in claimed for found in result.claims]
    counts = ", ".join(f"{told.count(word)} {word}" for word in dict.fromkeys(sorted(told)))
    runs = len({(found.recipe.key, seed) for result in results for found in result.rows for seed in found.runs})
    parts = [
        f"{len(told)} claims: {counts}; {runs} runs. A verdict speaks of this scale alone.\n",
        f"![every claim with its interval]({PICTURE})\n",
    ]
    for result in claimed:
        grid = claim_grid(result, result.claims)
        parts.append(f"`{result.table.name}`:\n\n{grid.markdown()}")
        if result.costs:
            parts.append(cost_claim_grid(result).markdown())
    for result in results:
        ran = {found.row.name for found in result.rows if found.runs}
        if ran:
            parts.append(f"### `odeum table {result.table.name}`\n\n{print_table(result, 'md', ran, claims=False)}")
    return "\n".join(parts)


def short_text(results: Sequence[TableResult], told: int = 3) -> str:
    """For the README: how many claims hold here, and those that are decided most clearly."""
    found = [(result, claim) for result in results for claim in result.claims]
    opinions = [claim.opinion for _, claim in found]
    phrases = (("agrees", "agree"), ("disagrees", "disagree"), ("not resolved", "not resolved"), ("not run", "not run"))
    counts = ", ".join(f"{opinions.count(o)} {text}" for o, text in phrases if o in opinions)
    lines = [
        f"![every claim with its interval](docs/{PICTURE})",
        f"The two papers' claims, tried on a laptop's scale ([docs/results.md](docs/results.md)): {counts}. Clearest:",
    ]
    decided = [(result, claim) for result, claim in found if claim.opinion in ("agrees", "disagrees")]
    for result, claim in sorted(decided, key=lambda pair: _clarity(pair[1]), reverse=True)[:told]:
        text, verdict, ours, paper, _ = claim_grid(result, [claim]).lines[0]
        unit = "points" if metric_named(result.table.metric).share else result.table.metric
        lines.append(f"- {text} (`{result.table.name}`): **{verdict}**, {ours} {unit}; paper {paper}")
    return "\n".join(lines) + "\n"


def _clarity(found: ClaimResult) -> float:
    """Half-widths of its interval between a difference and zero."""
    difference = found.difference
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
    results = all_results(store)
    write_bytes(readme, with_results(readme.read_text(encoding="utf-8"), short_text(results)).encode())
    write_bytes(page, with_results(page.read_text(encoding="utf-8"), results_text(results)).encode())
    write_bytes(page.with_name(PICTURE), claims_picture(results).encode())


if __name__ == "__main__":
    write_document(Path(sys.argv[1]), Path(sys.argv[2]), Store(results_home()))
