"""Hooks on modules: whether there are any, and hooks that see only the calls of their own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook


def runs_its_class_alone(module: nn.Module) -> bool:
    """Return whether a call of the module runs the `forward` of its class and nothing else: no hook, no replacement."""
    return "forward" not in module.__dict__ and not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _has_any_global_hook()
    )


def in_this_thread(hook: Callable[..., Any], otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return the hook, called in this thread alone; calls in other threads go to `otherwise`, or do nothing.

    A measurement sets hooks on a module that another thread may be running at the same time.
    """
    owner = threading.get_ident()

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            return hook(*args, **kwargs)
        return None if otherwise is None else otherwise(*args, **kwargs)

    return call
