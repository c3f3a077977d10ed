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


WANTED: tuple[tuple[str, str, tuple[str, ...], str, float], ...] = (
    ("a language model's step, 10,000 words: GPT-NeoX / `parallel`", "language",
     ("tables", "10000 words", "rows", "parallel", "ratio"), "at least", 1.15),
    ("… with 32,000 words", "language", ("tables", "32000 words", "rows", "parallel", "ratio"), "at least", 1.15),
    ("its memory with 50,000 words, times less", "language",
     ("memory", "parallel", "times less than the reference"), "at least", 4.0),
    ("greedy decoding, batch 1: `generate` / `parallel`", "decode",
     ("tables", "batch 1", "rows", "parallel", "ratio"), "at least", 2.3),
    ("… batch 16", "decode", ("tables", "batch 16", "rows", "parallel", "ratio"), "at least", 1.6),
    ("beam of 4: Marian / `post-norm`", "beam", ("rows", "post-norm", "ratio"), "at least", 1.6),
    ("a ViT's step, 65 tokens: timm / `sequential`", "vision",
     ("tables", "65 tokens", "rows", "sequential", "ratio"), "at least", 0.97),
    ("… 197 tokens", "vision", ("tables", "197 tokens", "rows", "sequential", "ratio"), "at least", 0.97),
    ("RK4 / Euler, training, the worst of the sizes", "solvers",
     ("ratios", "*", "rk4 / euler, training"), "at most", 4.05),
    ("recomputing / keeping, the worst", "solvers",
     ("ratios", "*", "checkpointed / backprop, euler"), "at most", 1.4),
    ("bare loop / `odeum train`, the worst of the sets", "loop",
     ("ratios", "*", "bare loop / odeum train"), "at least", 0.97),
    ("first step of digits, in `import torch`", "startup",
     ("ratios", "first step of odeum train digits", "in `import torch`"), "at most", 2.1),
)  # fmt: skip
"""what is asked of each question: the file, where in it (* for the worst of all), and the bar"""


def wanted(results: Path) -> Iterator[str]:
    """Which bars hold, by the files."""
    yield "| | asked | measured | |"
    yield "|---|---|---|---|"
    for what, name, path, side, bar in WANTED:
        file = results / f"{name}.json"
        if not file.exists():
            yield f"| {what} | {side} {bar:g} | not yet | |"
            continue
        worst = min if side == "at least" else max
        value = worst(_found(json.loads(file.read_text()), path))
        holds = value >= bar if side == "at least" else value <= bar
        yield f"| {what} | {side} {bar:g} | {value:.2f} | {'holds' if holds else '**does not hold**'} |"


def _found(found: Any, path: tuple[str, ...]) -> list[float]:
    for i, key in enumerate(path):
        if key == "*":
            return [value for part in found.values() for value in _found(part, path[i + 1 :])]
        found = found[key]
    return [found]


def render(page: str, results: Path = HERE / "results") -> str:
    """The page with each block `<!-- NAME -->` … `<!-- end -->` made anew."""

    def block(found: re.Match[str]) -> str:
        if found[1] == "wanted":
            return "\n".join(("<!-- wanted -->", *wanted(results), "<!-- end -->"))
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
    machine = found.get("machine", {})
    others, vectors = machine.get("others"), f", {machine['vectors']}" if "vectors" in machine else ""
    if machine.get("products") == "oneDNN":
        vectors += ", products by oneDNN"
    if machine.get("processor", "x86_64") != "x86_64":
        vectors = f", {machine['processor']}{vectors}"
    if machine.get("settings") == "both":
        vectors += ", each contestant under both matmul settings"
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    busy = "" if others is None else f", others kept {others:g} cores busy"
    yield f"\n`{found['command']}`, {found['date']}, {found.get('threads', 1)} thread{vectors}{busy}; {versions}."
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
