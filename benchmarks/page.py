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
     ("tables", "10000 words", "rows", "parallel", "ratio"), "at least", 1.5),
    ("… with 32,000 words", "language", ("tables", "32000 words", "rows", "parallel", "ratio"), "at least", 1.7),
    ("its memory with 50,000 words, times less", "language",
     ("memory", "parallel", "times less than the reference"), "at least", 4.0),
    ("a language model's step in bf16, 128 wide: GPT-NeoX autocast / `parallel`", "precision",
     ("tables", "language, 128 wide", "rows", "parallel, bf16", "ratio"), "at least", 1.8),
    ("… 512 wide", "precision", ("tables", "language, 512 wide", "rows", "parallel, bf16", "ratio"), "at least", 1.3),
    ("a ViT's step, 65 tokens: timm / `sequential`", "vision",
     ("tables", "65 tokens", "rows", "sequential", "ratio"), "at least", 1.5),
    ("… 197 tokens", "vision", ("tables", "197 tokens", "rows", "sequential", "ratio"), "at least", 1.15),
    ("a ViT's step in bf16, 65 tokens: timm autocast / `sequential`", "precision",
     ("tables", "images, 65 tokens", "rows", "sequential, bf16", "ratio"), "at least", 1.6),
    ("… 197 tokens", "precision",
     ("tables", "images, 197 tokens", "rows", "sequential, bf16", "ratio"), "at least", 1.4),
    ("an encoder's step, 128 tokens: `nn.TransformerEncoder` / `sequential`", "precision",
     ("tables", "encoder, 128 tokens", "rows", "sequential", "ratio"), "at least", 1.1),
    ("… 512 tokens", "precision", ("tables", "encoder, 512 tokens", "rows", "sequential", "ratio"), "at least", 1.1),
    ("TransEvolve's step by MKL, 512 to 4096 tokens, the worst: `nn.TransformerEncoder` / `transevolve`", "transevolve",
     ("exact, dropout 0.0", "*", "shared, products by MKL / nn.TransformerEncoderLayer"), "at least", 1.4),
    ("bf16 over fp32, `parallel`, 128 wide", "precision",
     ("ratios", "language, 128 wide", "parallel"), "at least", 1.6),
    ("two threads over one, `parallel`, 128 wide", "threads",
     ("ratios", "language, parallel", "2 threads over 1"), "at least", 1.7),
    ("greedy decoding, batch 1: `generate` / `parallel`", "decode",
     ("tables", "batch 1", "rows", "parallel", "ratio"), "at least", 2.3),
    ("… batch 16: CTranslate2 / `parallel`", "decode",
     ("tables", "batch 16", "rows", "parallel / ctranslate2", "ratio"), "at least", 0.95),
    ("beam of 4, 8 sources: CTranslate2 / `post-norm`", "beam",
     ("rows", "post-norm / ctranslate2", "ratio"), "at least", 0.9),
    ("RK4 / Euler, training, the worst of the sizes", "solvers",
     ("ratios", "*", "rk4 / euler, training"), "at most", 4.05),
    ("recomputing / keeping, the worst", "solvers",
     ("ratios", "*", "checkpointed / backprop, euler"), "at most", 1.4),
    ("bare loop / `odeum train`, the worst of the sets", "loop",
     ("ratios", "*", "bare loop / odeum train"), "at least", 0.97),
    ("first step of digits, in `import torch`", "startup",
     ("ratios", "first step of odeum train digits", "in `import torch`"), "at most", 2.1),
)  # fmt: skip
"""what is asked of each question: the file, where in it (`*` for the worst of all, `A / B` for a
quotient), and the bar"""


def wanted(results: Path) -> Iterator[str]:
    """Which bars hold, by the files."""
    yield "| | asked | measured | |"
    yield "|---|---|---|---|"
    for what, name, path, side, bar in WANTED:
        file = results / f"{name}.json"
        record = json.loads(file.read_text()) if file.exists() else {}
        values = _found(record, path)
        if not values:
            yield f"| {what} | {side} {bar:g} | not yet | |"
            continue
        value = (min if side == "at least" else max)(values)
        holds = value >= bar if side == "at least" else value <= bar
        busy = (record.get("machine", {}).get("others") or 0.0) > BUSY
        verdict = ("holds" if holds else "**does not hold**") + ", busy machine" * busy
        yield f"| {what} | {side} {bar:g} | {value:.2f} | {verdict} |"


def _found(record: Any, path: tuple[str, ...]) -> list[float]:
    """The values at a path, or none where a peer was not measured."""
    if not path:
        return [record]
    key, *rest = path
    if key == "*":
        return [value for part in record.values() for value in _found(part, tuple(rest))]
    if key not in record and " / " in key:
        ours, theirs = (_found(record, (name, *rest)) for name in key.split(" / "))
        return [a / b for a, b in zip(ours, theirs, strict=False)]
    return _found(record[key], tuple(rest)) if key in record else []


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
    if "rows" in found or "tables" in found:
        yield from _rows(found.get("tables", {"": found}))
    for name, digits in (("ratios", 2), ("slopes", 2), ("memory", 0)):
        if name in found:
            yield from [""] * ("tables" in found)
            columns = list(dict.fromkeys(column for row in found[name].values() for column in row))
            yield from _grid(columns, found[name], digits)
    machine = found.get("machine", {})
    others, vectors = machine.get("others"), f", {machine['vectors']}" if "vectors" in machine else ""
    if machine.get("products") == "oneDNN":
        vectors += ", products by oneDNN"
    if machine.get("processor", "x86_64") != "x86_64":
        vectors = f", {machine['processor']}{vectors}"
    if machine.get("settings") == "both" and not {"precision", "threads"} & set(found["command"].split()):
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
