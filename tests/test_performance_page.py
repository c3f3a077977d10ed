"""docs/performance.md says what the files in benchmarks/results say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def page_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_of_the_files() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert page_module().render(text) == text
    names = set(re.findall(r"<!-- (\w+) -->\n", text)) - {"end"}
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
    made = page_module().render("<!-- beam -->\nold\n<!-- end -->\n<!-- vision -->\n<!-- end -->", tmp_path)
    assert "| ours | 2 | 1.50 | 1.25 – 1.75 |" in made and "To be measured again" in made and "old" not in made
    assert "Not measured yet: `script/bench vision`" in made
