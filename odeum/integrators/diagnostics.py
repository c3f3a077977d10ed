"""Measurements of a forward or backward pass, stored outside the modules: a pass changes no attribute of a model."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

T = TypeVar("T")


class Diagnostic(Generic[T]):
    """The newest value that was measured for a module, read as one of its attributes.

    It is neither copied nor saved with the module. A tensor is stored as it is, so that measuring does not wait for the
    device, and becomes a number when it is read.
    """

    def __init__(self, default: T) -> None:
        self.default = default
        self.values: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()

    def __get__(self, module: nn.Module | None, owner: type) -> T:
        value = self.default if module is None else self.values.get(module, self.default)
        if isinstance(value, Tensor):
            return self.default if value.is_meta else float(value)  # ty: ignore[invalid-return-type]
        return value

    def __set__(self, module: nn.Module, value: Any) -> None:
        self.values[module] = value
