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
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


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
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == set(
        re.findall(r"\]\(docs/(\w+\.md)\)", (ROOT / "README.md").read_text())
    )
