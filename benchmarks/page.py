"""The tables of docs/performance.md, from the files in benchmarks/results: a table is never written by hand.

python benchmarks/page.py            # script/bench calls it at its end
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
BUSY = 0.25
"""cores kept busy by other processes above which a measurement is to be made again"""


def render(page: str, results: Path = HERE / "results") -> str:
    """The page with each block `<!-- NAME -->` … `<!-- end -->` made anew."""

    def block(found: re.Match[str]) -> str:
        file = results / f"{found[1]}.json"
        text = f"Not measured yet: `script/bench {found[1]}`."
        if file.exists():
            text = "\n".join(table(json.loads(file.read_text())))
        return f"<!-- {found[1]} -->\n{text}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", block, page, flags=re.S)


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """A record as lines of Markdown."""
    if "ratios" in found:
        names = list(dict.fromkeys(name for row in found["ratios"].values() for name in row))
        yield from _grid(names, found["ratios"], 2)
    elif "slopes" in found:
        yield from _grid(list(next(iter(found["slopes"].values()))), found["slopes"], 2)
    elif "rows" in found:
        yield from _rows({"": found})
    else:
        yield from _rows(found["tables"])
    if "memory" in found:
        yield ""
        yield from _grid(list(next(iter(found["memory"].values()))), found["memory"], 0)
    others = found.get("machine", {}).get("others")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    busy = "" if others is None else f", others kept {others:g} cores busy"
    yield f"\n`{found['command']}`, {found['date']}, {found.get('threads', 1)} thread{busy}; {versions}."
    if others is not None and others > BUSY:
        yield "\n**To be measured again**: the machine was busy with other work."


def _grid(columns: list[str], lines: Mapping[str, Mapping[str, float]], digits: int) -> Iterator[str]:
    yield f"| | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for name, row in lines.items():
        cells = (f"{row[column]:.{digits}f}" if column in row else "–" for column in columns)
        yield f"| {name} | {' | '.join(cells)} |"


def _rows(tables: Mapping[str, Any]) -> Iterator[str]:
    yield "| | | ms | ratio | least to most |"
    yield "|---|---|---|---|---|"
    for title, found in tables.items():
        for name, row in found.get("rows", found).items():
            around = f"{row['least']:.2f} – {row['most']:.2f}" if "least" in row else ""
            yield f"| {title} | {name} | {row['milliseconds']:.3g} | {row['ratio']:.2f} | {around} |"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
