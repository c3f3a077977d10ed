"""Every fast path states its plain formula first, under one name; other tests compare the two."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import odeum.kernels

RULES = {"odeum.kernels.autograd", "odeum.kernels.matmul"}
"""modules that choose and support the fast paths"""
FAST = sorted({f"odeum.kernels.{module.name}" for module in pkgutil.iter_modules(odeum.kernels.__path__)} - RULES)


@pytest.mark.parametrize("name", [*FAST, "odeum.decode.flat"])
def test_the_reference_comes_before_the_classes_that_compute_it_faster(name: str) -> None:
    module = importlib.import_module(name)
    assert callable(module.reference)
    first_class = None
    for node in ast.parse(Path(module.__file__ or "").read_text()).body:
        if isinstance(node, ast.ClassDef) and first_class is None:
            first_class = node.lineno
        defined = [node.name] if isinstance(node, ast.FunctionDef) else []
        defined += [t.id for t in node.targets if isinstance(t, ast.Name)] if isinstance(node, ast.Assign) else []
        if "reference" in defined:
            assert first_class is None
            return
    raise AssertionError("`reference` is not defined in this file")
