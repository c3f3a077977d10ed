"""The code in the README, and on the pages of the documentation, runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registries import kept_registries
from test_imports import LEVEL

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


CODED = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", CODED, ids=lambda page: page.name)
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page follow one another; an error shows the page's own line."""
    monkeypatch.chdir(tmp_path)
    text, space = page.read_text(), {"__name__": "page"}
    with kept_registries():
        for match in BLOCK.finditer(text):
            above = "\n" * (text[: match.start()].count("\n") + 1)
            exec(compile(above + match.group(1), str(page), "exec", dont_inherit=True), space)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


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
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == set(
        re.findall(r"\]\(docs/(\w+\.md)\)", (ROOT / "README.md").read_text())
    )
