"""Python files that are no modules of a package: benchmarks, examples and plugins."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def load_script(path: Path | str, name: str = "") -> Any:
    """The module of a file, given relative to the repository; `name` defaults to that of the file."""
    path = ROOT / path
    spec = importlib.util.spec_from_file_location(name or f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
