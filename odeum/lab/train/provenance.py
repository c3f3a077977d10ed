"""What a result depends on besides its settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

import odeum
from odeum import draws
from odeum.kernels.matmul import backend_name


def versions() -> dict[str, str]:
    """What a result depends on besides the code."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    out = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "odeum": odeum.__version__,  # of the code that runs: what is installed beside it may be an older copy
        "vectors": torch.backends.cpu.get_cpu_capability(),  # longer ones add up in another order
        "products": backend_name(),  # as does another library
        "draws": draws.SCHEME,  # which numbers a seed gives the initial weights
    }
    for name in ("numpy", "tokenizers", "sacrebleu"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def changed_arithmetic(recorded: Mapping[str, str]) -> list[str]:
    """What a run's recorded versions differ in from this code, as far as it changes bits: torch, matmuls, draws.

    Matmul backends depend on the processor: here it counts whether one was recorded at all.
    """
    release = torch.__version__.partition("+")[0]
    differences = {
        f"torch {recorded.get('torch', 'unknown')}": str(recorded.get("torch", "")).partition("+")[0] != release,
        "no recorded matmul backend": "products" not in recorded,
        f"draws {recorded.get('draws', 'by construction order')}": recorded.get("draws") != draws.SCHEME,
    }
    return [what for what, differs in differences.items() if differs]


def checkout() -> Path | None:
    """Return the root of the checkout that Odeum runs from; None for an installed package."""
    root = Path(odeum.__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


@cache  # a process runs one state of the code, and many short runs would each start git
def git_revision() -> str | None:
    """Of the library's own checkout, with a mark if it was changed; None for an installed package."""
    import subprocess

    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    try:
        run = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(run, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
