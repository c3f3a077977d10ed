"""The code in the README, and on the pages of the documentation, runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from registries import kept_registries
from test_imports import LEVEL

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON_OR_SHELL = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_SHELL = re.compile(r"tutorial-\w+|quickstart|choosing-architecture")
"""pages whose shell commands run too"""


CODED = [page for page in PAGES if BLOCK.search(page.read_text()) or IN_SHELL.fullmatch(page.stem)]


@pytest.mark.parametrize("page", CODED, ids=lambda page: page.name)
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page follow one another; an error shows the page's own line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text, space = page.read_text(), {"__name__": "page"}
    with kept_registries():
        for match in PYTHON_OR_SHELL.finditer(text):
            language, code = match.groups()
            if language == "python":
                above = "\n" * (text[: match.start()].count("\n") + 1)
                exec(compile(above + code, str(page), "exec", dont_inherit=True), space)
            elif IN_SHELL.fullmatch(page.stem):
                run_in_shell(code, tmp_path)


def run_in_shell(code: str, folder: Path) -> None:
    """Each command of a block, with `odeum` as the code under test."""
    command = f'odeum() {{ {shlex.quote(sys.executable)} -m odeum "$@"; }}\nset -e\n{code}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_page_of_decisions_is_narrow_and_has_ten() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert not [line for line in page.splitlines() if len(line) > 100]
    decisions = page.partition("## Ten design decisions")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. \*\*", decisions, re.MULTILINE) == [str(number) for number in range(1, 11)]


def test_the_reading_path_is_as_long_as_the_pages_say() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (\d+) \|", page, re.MULTILINE)
    lines = {name: len((ROOT / "odeum" / name).read_text().splitlines()) for name, _ in rows}
    assert len(rows) == 9
    for name, count in rows:
        assert abs(lines[name] - int(count)) <= max(10, 0.15 * lines[name]), f"{name} has {lines[name]} lines"
    readme = (ROOT / "README.md").read_text()
    (total,) = re.findall(r"about ([\d,]+) lines", readme)
    assert f"about {total} lines" in page and abs(sum(lines.values()) - int(total.replace(",", ""))) < 150
    path = [name.removesuffix(".py") for name, _ in rows]
    (sentence,) = re.findall(r"^`tableaux` → .*?: about", readme, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`([\w/]+)`", sentence) == path


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.name} points to {target}, which is not there"


def rooms(page: str) -> list[str]:
    """What the map of a page names, in its order."""
    return re.findall(r"^odeum/(\w+(?:\.py|/))  ", (ROOT / page).read_text(), re.MULTILINE)


def test_the_maps_match_the_tree() -> None:
    tree = [path for path in (ROOT / "odeum").iterdir() if not path.name.startswith("__")]
    files = [path.name for path in tree if path.suffix == ".py"]
    folders = [f"{path.name}/" for path in tree if path.is_dir() and any(path.glob("*.py"))]
    named = rooms("docs/architecture.md")
    assert sorted(named) == sorted(files + folders)
    levels = [LEVEL[name.removesuffix(".py").rstrip("/")] for name in named]
    assert levels == sorted(levels), "the map should follow the order of the imports"
    assert set(rooms("README.md")) <= set(named)
