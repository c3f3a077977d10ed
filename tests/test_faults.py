"""A small part of `script/faults`; the whole of it is run by hand, and its table stands in docs/guarantees.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("family", ["NaN", "finished run"])
def test_nothing_is_lost_and_nothing_silent(family: str) -> None:
    done = subprocess.run(
        [ROOT / "script" / "faults", "--quick", "--only", family], capture_output=True, text=True, check=False
    )
    tried, *rest = map(int, re.findall(r"\| (\d+) (?=\|)", done.stdout.splitlines()[-1]))
    assert done.returncode == 0 and tried > 0 and rest == [tried, 0, 0], done.stdout + done.stderr


def test_the_page_shows_no_loss() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) > 10
    for name, tried, survived, lost, silent in rows:
        assert (int(survived), int(lost), int(silent)) == (int(tried), 0, 0), name
