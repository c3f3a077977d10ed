"""A wheel of the checkout, installed into a directory of its own, works outside of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import odeum

ROOT = Path(__file__).parents[3]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def installed(place: Path) -> Path:
    """A directory into which a wheel was installed that was built from a copy of the tracked sources."""
    source = place / "source"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "odeum", source / "odeum", ignore=skipped)
    shutil.copytree(ROOT / "results" / "tables", source / "results" / "tables")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place / "dist"), str(source)]
    subprocess.run([*PIP, *build], check=True, capture_output=True, text=True)
    (wheel,) = (place / "dist").glob("odeum-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {path.relative_to(source).as_posix() for path in (source / "odeum").rglob("*") if path.is_file()}
    assert inside <= names
    assert {f"odeum/results/{path.name}" for path in (ROOT / "results" / "tables").iterdir()} <= names
    target = place / "installed"
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(target), str(wheel)], check=True, capture_output=True)
    return target


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None and first[1] == odeum.__version__


@pytest.mark.timeout(300)
def test_a_wheel_works_outside_of_the_repository(tmp_path: Path) -> None:
    target = installed(tmp_path)
    place = tmp_path / "elsewhere"
    place.mkdir()

    def run(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(target), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, *command], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert run("-c", "import odeum; print(odeum.__file__)").strip() == str(target / "odeum" / "__init__.py")
    table = run("-m", "odeum", "table", "zhong2022/table1")
    kept = (ROOT / "tests" / "golden" / "table-zhong2022-table1.text").read_text(encoding="utf-8")
    assert [line.rstrip() for line in table.splitlines()] == kept.splitlines()
    compare = ["compare", "digits", "--architectures", "sequential,parallel", "--seeds", "1", "--train.steps", "20"]
    run("-m", "odeum", *compare, "--quiet", "--jobs", "1")
    (page,) = place.rglob("report.html")
    assert "<table" in page.read_text(encoding="utf-8")
