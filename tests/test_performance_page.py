"""docs/performance.md says what the files in benchmarks/results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripts import load_script

ROOT = Path(__file__).parent.parent


def test_the_page_is_made_of_the_files() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert load_script("benchmarks/page.py").render(text) == text
    names = set(re.findall(r"<!-- (\w+) -->\n", text)) - {"end", "wanted"}
    assert len(names) >= 7 and all((ROOT / "benchmarks" / f"{name}.py").exists() for name in names)


def test_a_new_file_changes_the_page_and_a_busy_machine_is_told(tmp_path: Path) -> None:
    found = {
        "rows": {"ours": {"milliseconds": 2.0, "ratio": 1.5, "least": 1.25, "most": 1.75}},
        "machine": {"others": 0.9},
        "versions": {"torch": "2"},
        "date": "2026-01-01",
        "command": "script/bench beam",
    }
    (tmp_path / "beam.json").write_text(json.dumps(found))
    made = load_script("benchmarks/page.py").render(
        "<!-- beam -->\nold\n<!-- end -->\n<!-- vision -->\n<!-- end -->", tmp_path
    )
    assert "| ours | 2 | 1.50 | 1.25 – 1.75 |" in made and "To be measured again" in made and "old" not in made
    assert "Not measured yet: `script/bench vision`" in made


def test_what_is_asked_and_does_not_hold_is_said(tmp_path: Path) -> None:
    rows = {"small": {"rk4 / euler, training": 4.0}, "large": {"rk4 / euler, training": 4.1}}
    for row in rows.values():
        row["checkpointed / backprop, euler"] = 1.3
    (tmp_path / "solvers.json").write_text(json.dumps({"ratios": rows}))
    (tmp_path / "loop.json").write_text(
        json.dumps({"ratios": {"digits": {"bare loop / odeum train": 0.98}}, "machine": {"others": 1.9}})
    )
    made = load_script("benchmarks/page.py").render("<!-- wanted -->\n<!-- end -->", tmp_path).splitlines()
    assert next(line for line in made if "RK4" in line).endswith("| at most 4.05 | 4.10 | **does not hold** |")
    assert next(line for line in made if "recomputing" in line).endswith("| at most 1.4 | 1.30 | holds |")
    assert next(line for line in made if "timm" in line).endswith("| not yet | |")
    assert next(line for line in made if "bare loop" in line).endswith("| at least 0.97 | 0.98 | holds, busy machine |")
