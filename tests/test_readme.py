"""The code in the README, and on the pages of the documentation, runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registries import kept_registries

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(place, code) of each block; the blocks of a page follow one another, so each brings those before it."""
    found = []
    for page in PAGES:
        before = ""
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 2
            found.append((f"{page.name}:{line}", before + match.group(1)))
            before += match.group(1)
    return found


BLOCKS = blocks()


@pytest.mark.parametrize("code", [code for _, code in BLOCKS], ids=[place for place, _ in BLOCKS])
def test_the_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kept_registries():
        exec(compile(code, "README", "exec", dont_inherit=True), {"__name__": "readme"})


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.name} points to {target}, which is not there"
