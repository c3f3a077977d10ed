"""Odeum: a transformer layer is one step of a numerical integrator.

Names are loaded when first used, so that the command line answers before torch is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "odeum.errors": ["OdeumError"],
    "odeum.settings.architecture": [
        "Architecture",
        "Continuous",
        "Evolved",
        "Layered",
        "OdeTransformer",
        "Sandwich",
        "Stepped",
    ],
    "odeum.settings.checks": ["Range"],
    "odeum.settings.model": ["Classification", "Language", "Shape", "Translation", "Vision"],
    "odeum.tableaux": ["Tableau"],
    "odeum.fields": ["Context", "Field", "Scaled", "Source", "Sum"],
    "odeum.integrators": ["Method"],
    "odeum.architectures": ["terms"],
    "odeum.flow": ["Flow", "Stack", "set_solver", "set_steps"],
    "odeum.models": ["Decoder", "Encoder", "build"],
    "odeum.tasks.run": ["load"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'odeum' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__


import_module("odeum.builtin")  # after the version and the doors: our own names come through them
