"""timm for the tests that need it: beside a torch without CUDA it loads once torchvision's operators are declared."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

if importlib.util.find_spec("torchvision") and torch.version.cuda is None:
    # PyPI's torchvision is built for CUDA; transformers stumbles over it too, so this comes with the import
    OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def timm_or_skip() -> Any:
    """The module; a test without it is skipped."""
    return pytest.importorskip("timm", reason="the extra 'timm' is not installed (it brings torchvision)")
