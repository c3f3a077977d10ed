"""Recorded output of the committed results and of every architecture; a refactoring must not change it.

`python -m tests.test_golden` writes the files again after a deliberate change.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from odeum.lab.cli import main
from odeum.registry.names import ARCHITECTURES, Registry

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
COMPARISONS = ("digits", "digits-auto", "digits-macs", "listops-linear")
TABLES = (
    *("zhong2022/table1", "zhong2022/table2", "zhong2022/table3", "zhong2022/table4", "zhong2022/figure2"),
    *("dutta2021/classification", "dutta2021/long", "dutta2021/translation", "dutta2021/speed"),
    *("zhong2022/ladder", "dutta2021/ladder"),
)


def builtin(registry: Registry) -> list[str]:
    return [name for name, entry in registry.entries.items() if entry.module.startswith("odeum.")]


def commands() -> dict[str, list[str]]:
    """The command for each golden file."""
    out: dict[str, list[str]] = {}
    for name in TABLES:
        stem = name.replace("/", "-")
        out[f"table-{stem}.json"] = ["table", name, "--format", "json"]
        out[f"table-{stem}.text"] = ["table", name]
    for name in builtin(ARCHITECTURES):
        out[f"describe-{name}.json"] = ["describe", name, "--format", "json"]
    return out


def output(words: list[str]) -> str:
    """What the command prints, with measured digits that differ between processors rounded."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(words) in (0, None)
    printed = text.getvalue()
    if words[-1] == "json":
        return json.dumps(_rounded(json.loads(printed)), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE)


def report_files(name: str) -> dict[str, str]:
    """The table in every form and the headline of a committed comparison, reported from a copy of it."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(ROOT / "results" / name, Path(place) / name))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            made = {f"report-{name}.json": output(["report", str(copy), "--format", "json"])}
        made[f"report-{name}.headline"] = said.getvalue().partition("\nreport: ")[0] + "\n"
        for form in ("csv", "md"):
            made[f"report-{name}.{form}"] = (copy / f"table.{form}").read_text(encoding="utf-8")
    return made


def _rounded(value: object) -> object:
    """Nine digits: scipy's quantiles differ in the last bits between processors."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", commands())
def test_output_is_unchanged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    check(name, output(commands()[name]))


@pytest.mark.parametrize("name", COMPARISONS)
def test_reports_are_unchanged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for file, made in report_files(name).items():
        check(file, made)


def check(name: str, made: str) -> None:
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert made == golden, "\n".join(difflib.unified_diff(golden.splitlines(), made.splitlines(), lineterm="", n=0))


if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    GOLDEN.mkdir(exist_ok=True)
    for file, text in {
        **{file: output(words) for file, words in commands().items()},
        **{file: text for name in COMPARISONS for file, text in report_files(name).items()},
    }.items():
        (GOLDEN / file).write_text(text, encoding="utf-8")
