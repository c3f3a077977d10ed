"""Tasks: data, loss, metric and defaults. Each kind of task is a folder here and one line below; no torch.

Task classes and the functions that open tasks are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odeum.lab.tasks.classification import CLASSIFICATION
from odeum.lab.tasks.images import IMAGES
from odeum.lab.tasks.kind import DATA_SETS, KINDS, Kind, PredictOption, add_kind
from odeum.lab.tasks.language import LANGUAGE
from odeum.lab.tasks.listops import LISTOPS
from odeum.lab.tasks.masked import MASKED
from odeum.lab.tasks.regression import IMAGE_REGRESSION, REGRESSION
from odeum.lab.tasks.translation import TRANSLATION

if TYPE_CHECKING:
    from odeum.lab.tasks.base import Task
    from odeum.lab.tasks.opening import load_task, make_options, open_task, reopen_task

__all__ = [
    "DATA_SETS",
    "KINDS",
    "Kind",
    "PredictOption",
    "Task",
    "add_kind",
    "load_task",
    "make_options",
    "open_task",
    "reopen_task",
]

# the last is asked first whether the files at a path are of its kind
for _kind in (MASKED, LANGUAGE, CLASSIFICATION, LISTOPS, TRANSLATION, IMAGES, REGRESSION, IMAGE_REGRESSION):
    add_kind(_kind)


def __getattr__(name: str) -> Any:
    if name == "Task":
        return import_module("odeum.lab.tasks.base").Task
    if name in __all__:
        return getattr(import_module("odeum.lab.tasks.opening"), name)
    raise AttributeError(f"module 'odeum.lab.tasks' has no attribute '{name}'")
