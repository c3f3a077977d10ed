"""Kept comparisons on the page of results: each line as the report writes it from the files, by their command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_runs import digits, findings

from odeum import draws
from odeum.lab.study import report
from odeum.lab.study.runs import keep_comparison
from odeum.lab.study.tables import table
from odeum.lab.train.provenance import versions
from odeum.storage import read_json

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
KEPT = list(dict.fromkeys(re.findall(r"table by\s+`odeum report results/([\w-]+)`", PAGE)))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_there_are_kept_comparisons() -> None:
    assert "digits" in KEPT and "digits-auto" in KEPT


@pytest.mark.parametrize("name", KEPT)
def test_the_page_shows_what_the_files_say(name: str) -> None:
    place = re.search(rf"table by\s+`odeum report results/{name}`", PAGE)
    assert place is not None
    shown = re.search(r"(?:^\|.*\n)+", PAGE[place.end() :], re.MULTILINE)
    assert shown is not None
    head, _, *lines = map(cells, shown[0].splitlines())
    made = table(findings(ROOT / "results" / name).rows, "md")
    all_heads, _, *wanted = map(cells, made.splitlines())
    chosen = [all_heads.index(column) for column in head]
    assert lines == [[line[i] for i in chosen] for line in wanted]


@pytest.mark.parametrize("name", KEPT)
def test_the_page_names_the_command(name: str) -> None:
    """How many ran at once changes nothing, so it may be left out."""
    before = PAGE[: re.search(rf"table by\s+`odeum report results/{name}`", PAGE).start()]  # ty: ignore[unresolved-attribute]
    told = re.findall(r"`(odeum compare [^`]*)`", " ".join(before.split()))[-1]
    kept = read_json(ROOT / "results" / name / "comparison.json")["command"]
    assert told == re.sub(r" --jobs \S+", "", kept)


def test_the_demo_decides_with_other_vectors_too() -> None:
    page, words = " ".join(PAGE.split()), []
    for name in ("demo", "demo-avx2"):
        rows = [row for row in findings(ROOT / "results" / name).rows if row.answer]
        words.append({row.architecture: row.answer.word for row in rows if row.answer})
    assert words[0] == words[1] and sum(word != "undecided" for word in words[1].values()) >= 3
    assert "all verdicts are the same; `parallel` differs by −14.0 [−22.8, −5.1]" in page
    assert "−14.0 [−22.8, −5.1]" in (ROOT / "results" / "demo-avx2" / "table.md").read_text(encoding="utf-8")


def test_the_demo_is_the_kept_comparison() -> None:
    """The same options, three of four rows decided, and the words of the README."""
    script = (ROOT / "script" / "demo").read_text(encoding="utf-8").replace("\\\n", " ")
    run = re.search(r"odeum (compare .*) --out runs/demo", script)
    kept = read_json(ROOT / "results" / "demo" / "comparison.json")["command"]
    assert run is not None and run[1].split() == re.sub(r" --jobs \S+", "", kept).split()[1:]
    rows = {row.architecture: row for row in findings(ROOT / "results" / "demo").rows}
    assert [row.answer.word for row in rows.values() if row.answer].count("undecided") <= 1
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("sequential", "parallel"):
        assert (mean := rows[name].test) is not None and f"{mean.mean:.1f}" in readme


def test_a_damaged_line_of_kept_runs_is_reported(tmp_path: Path) -> None:
    kept = Path(shutil.copytree(ROOT / "results" / "digits", tmp_path / "digits"))
    first, *others = (kept / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (kept / "runs.jsonl").write_bytes(first.replace(b'"seed": 0', b'"seed": 9') + b"".join(others))
    comparison = findings(kept)
    assert len(comparison.results.runs) == len(others)
    assert "runs.jsonl:1' is damaged" in comparison.results.problems[0]


def test_what_is_kept_gives_the_same_table(tmp_path: Path) -> None:
    """One line per run stands for its folder, and names no place of this machine."""
    root = digits(tmp_path / "runs")
    plan = json.loads((root / "comparison.json").read_text())
    plan["command"] = "odeum compare digits --out /home/me/x --seeds 3"
    (root / "comparison.json").write_text(json.dumps(plan))
    report.write(root)
    keep_comparison(root, tmp_path / "kept")
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"comparison.json", "runs.jsonl", "table.md", "table.csv"}
    assert table(findings(tmp_path / "kept").rows, "md") == table(findings(root).rows, "md")
    assert findings(tmp_path / "kept").study.command == "odeum compare digits --seeds 3"


MARK = "*From an earlier version:*"


def quoting_sections() -> list[tuple[str, str, Path]]:
    """Sections of the documentation that quote kept results, and the files that hold their runs."""
    quotes = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for section in re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            names = set(re.findall(r"(?<!benchmarks/)(?<!examples/)results/([\w-]+)", section))
            names -= set() if "written by script/results" in section else {"tables"}
            quotes += [(f"{page.name}: {name}", section, ROOT / "results" / name) for name in sorted(names)]
    return [quote for quote in quotes if quote[2].is_dir()]


CAUSAL_MASK_IN_PRODUCT = "2026-11-19T03:47"
"""since then causal attention adds its mask within the product, where oneDNN multiplies"""


def changed_arithmetic(run: Mapping[str, Any]) -> list[str]:
    """Returns the differences between a recorded run and the current code that change bits: torch, matmuls, draws.

    The matmul backend depends on the processor, so only a missing record counts as a difference.
    """
    recorded = run.get("versions", {})
    causal = run.get("kind") in ("language", "translation") and recorded.get("products") == "oneDNN"
    release = torch.__version__.partition("+")[0]
    differences = {
        f"torch {recorded.get('torch', 'unknown')}": str(recorded.get("torch", "")).partition("+")[0] != release,
        "no recorded matmul backend": "products" not in recorded,
        f"draws {recorded.get('draws', 'by construction order')}": recorded.get("draws") != draws.SCHEME,
        "causal attention with a mask of its own": causal and run["date"] < CAUSAL_MASK_IN_PRODUCT,
    }
    return [what for what, differs in differences.items() if differs]


def recorded_runs(folder: Path) -> list[dict[str, Any]]:
    """What every kept run in a folder records of itself."""
    records = [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    records += [json.loads(path.read_text()) for path in folder.glob("run.json")]
    runs = [record.get("run", record) for record in records]
    return [run.get("facts", run) for run in runs]


@pytest.mark.parametrize(("name", "section", "folder"), quoting_sections(), ids=[q[0] for q in quoting_sections()])
def test_results_of_another_arithmetic_are_marked(name: str, section: str, folder: Path) -> None:
    """A quoted result that this code cannot repeat says so; one that it can does not."""
    runs = recorded_runs(folder)
    changed = sorted({what for run in runs for what in changed_arithmetic(run)})
    assert runs and (MARK in section) == bool(changed), (name, changed)


def test_what_changes_the_arithmetic() -> None:
    now = versions()
    assert changed_arithmetic({"versions": now}) == []
    assert changed_arithmetic({"versions": {**now, "draws": "keyed-0"}}) == ["draws keyed-0"]
    old = {"torch": "1.0", "draws": now["draws"]}
    assert changed_arithmetic({"versions": old}) == ["torch 1.0", "no recorded matmul backend"]
    causal = {"versions": {**now, "products": "oneDNN"}, "kind": "language", "date": "2026-11-18T21:43:08+00:00"}
    assert changed_arithmetic(causal) == ["causal attention with a mask of its own"]
    assert (
        changed_arithmetic({**causal, "date": "2026-11-20"}) == changed_arithmetic({**causal, "kind": "images"}) == []
    )
