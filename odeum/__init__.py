"""Odeum: a transformer layer is one step of a numerical integrator.

Names are loaded when first used, so that the command line answers before torch is imported.
"""

# Not `signal`, which imports `enum`, and nothing of `__future__`: a Ctrl-C may come while they are read.
import _signal  # ty: ignore[import-not-found]
import sys

# In the command, Ctrl-C during the imports ends the process without a traceback; `lab.cli.main` installs the handler.
_IS_COMMAND = " -m odeum " in f" {' '.join(sys.orig_argv[:6])} " or sys.argv[0].endswith("/odeum")
if _IS_COMMAND and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # what editors and type checkers see; the table below is what happens
    from odeum.architectures.continuous import Continuous as Continuous
    from odeum.architectures.layered import Layered as Layered
    from odeum.architectures.ode_transformer import OdeTransformer as OdeTransformer
    from odeum.architectures.parts import terms as terms
    from odeum.architectures.sandwich import Sandwich as Sandwich
    from odeum.architectures.stepped import Place as Place
    from odeum.architectures.stepped import Stepped as Stepped
    from odeum.architectures.transevolve import Evolved as Evolved
    from odeum.errors import OdeumError as OdeumError
    from odeum.fields import Context as Context
    from odeum.fields import Field as Field
    from odeum.fields import Scaled as Scaled
    from odeum.fields import Source as Source
    from odeum.fields import Sum as Sum
    from odeum.flow import Flow as Flow
    from odeum.flow import Stack as Stack
    from odeum.flow import set_solver as set_solver
    from odeum.flow import set_steps as set_steps
    from odeum.inspection import inspect as inspect
    from odeum.integrators import Method as Method
    from odeum.lab.tasks.run import Run as Run
    from odeum.lab.tasks.run import load as load
    from odeum.looping import set_progress as set_progress
    from odeum.looping import set_repeats as set_repeats
    from odeum.models import Decoder as Decoder
    from odeum.models import Encoder as Encoder
    from odeum.models import build as build
    from odeum.models.settings import Classification as Classification
    from odeum.models.settings import Language as Language
    from odeum.models.settings import Shape as Shape
    from odeum.models.settings import Translation as Translation
    from odeum.models.settings import Vision as Vision
    from odeum.registry import register as register
    from odeum.registry.names import Architecture as Architecture
    from odeum.registry.options import Range as Range
    from odeum.tableaux import Tableau as Tableau

_HOMES = {
    "odeum.registry": ["register"],
    "odeum.errors": ["OdeumError"],
    "odeum.registry.names": ["Architecture"],
    "odeum.architectures.continuous": ["Continuous"],
    "odeum.architectures.layered": ["Layered"],
    "odeum.architectures.ode_transformer": ["OdeTransformer"],
    "odeum.architectures.sandwich": ["Sandwich"],
    "odeum.architectures.stepped": ["Place", "Stepped"],
    "odeum.architectures.transevolve": ["Evolved"],
    "odeum.registry.options": ["Range"],
    "odeum.models.settings": ["Classification", "Language", "Shape", "Translation", "Vision"],
    "odeum.tableaux": ["Tableau"],
    "odeum.fields": ["Context", "Field", "Scaled", "Source", "Sum"],
    "odeum.integrators": ["Method"],
    "odeum.architectures.parts": ["terms"],
    "odeum.flow": ["Flow", "Stack", "set_solver", "set_steps"],
    "odeum.inspection": ["inspect"],
    "odeum.looping": ["set_progress", "set_repeats"],
    "odeum.models": ["Decoder", "Encoder", "build"],
    "odeum.lab.tasks.run": ["Run", "load"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("odeum.integrators", "odeum.tableaux", "odeum.fields", "odeum.models", "odeum.decode", "odeum.lab.tasks")
__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "register":  # a module, which is an attribute of its package only after it was imported
        return import_module("odeum.registry.register")
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'odeum' has no attribute '{name}'{_hint(name)}")


@cache  # resolving annotations looks up the same names repeatedly
def _hint(name: str) -> str:
    """The end of an error message: the module that holds the name, if one does."""
    # `from odeum import lab` looks here first, and importing a missing name must not import torch
    if name.startswith("_") or find_spec(f"odeum.{name}") is not None:
        return ""
    room = next((room for room in _ROOMS if _names(room, name)), None)
    return f"; it is in {room}: `from {room} import {name}`" if room else ""


def _names(room: str, name: str) -> bool:
    """Whether the text of a module names this; without importing it."""
    spec = find_spec(room)
    text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return re.search(rf'^(class |def )?{name}\b|"{name}"', text, re.MULTILINE) is not None


def __dir__() -> list[str]:
    return __all__


import_module("odeum.architectures")  # at the end: the built-in architectures register as plugins do
