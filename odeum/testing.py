"""The contract that every architecture keeps, for the tests of a plugin; implemented in `odeum.lab.testing`."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("odeum.lab.testing"), name)
