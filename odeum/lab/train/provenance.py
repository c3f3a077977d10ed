"""Versions and revision that a result depends on besides its settings."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

import odeum
from odeum import draws
from odeum.kernels.matmul import backend_name


def versions() -> dict[str, str]:
    """The versions and hardware properties that a result depends on."""
    import platform

    out = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "odeum": odeum.__version__,  # of the running code; an installed copy may be older
        "vectors": torch.backends.cpu.get_cpu_capability(),  # wider vectors change the order of sums
        "products": backend_name(),  # so does another matmul backend
        "draws": draws.SCHEME,  # how a seed determines the initial weights
    }
    return out | _packages()


@cache  # parsing the metadata of a package takes milliseconds
def _packages() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    out = {}
    for name in ("numpy", "tokenizers", "sacrebleu"):
        with suppress(PackageNotFoundError):
            out[name] = version(name)
    return out


def checkout() -> Path | None:
    """Returns the root of the checkout that Odeum runs from; None for an installed package."""
    root = Path(odeum.__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


@cache  # the code of a process does not change, and starting git for each short run is slow
def git_revision() -> str | None:
    """The git revision of Odeum's checkout, `-dirty` if it was modified; None for an installed package."""
    import subprocess

    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
