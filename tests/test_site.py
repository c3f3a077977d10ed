"""The documentation site is built whole, where its tools are installed (`script/setup docs`)."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed; script/setup docs installs it")
def test_the_site_is_built_and_its_links_lead_somewhere() -> None:
    done = subprocess.run([sys.executable, "script/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "links and API pages checked" in done.stdout
