"""The figure of the README is drawn from the run in examples/digits-run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent


def numbers(svg: str) -> np.ndarray:
    """All coordinates of the lines and points."""
    parts = re.findall(r'd="([^"]+)"', svg) + re.findall(r'<use[^>]* x="[^"]+" y="[^"]+"', svg)
    return np.array([float(x) for part in parts for x in re.findall(r"-?\d+\.\d+", part)])


def test_the_figure_is_that_of_the_run(tmp_path: Path) -> None:
    words = [sys.executable, ROOT / "script" / "figure.py", ROOT / "examples" / "digits-run", tmp_path / "paths.svg"]
    subprocess.run(words, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    drawn, kept = (numbers(path.read_text()) for path in (tmp_path / "paths.svg", ROOT / "docs" / "paths.svg"))
    assert len(drawn) == len(kept) > 500
    np.testing.assert_allclose(drawn, kept, atol=0.2)  # points of a page; processors round differently
