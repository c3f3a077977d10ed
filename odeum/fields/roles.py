"""Weights by role: names that do not depend on how a layer is stepped, wrapped or recomputed.

    stack.flows.0.field.fields.attention.field.qkv.weight    where torch finds it (`state_dict`)
    stack.layers.0.attention.qkv.weight                      its role (the files of a run)

Torch's names stay torch's, so that everything that works by them goes on to work. Whatever reads weights asks `find`,
which knows a weight by either name and by torch's name in another architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor, nn

WRAPPER_NAMES = frozenset(
    {
        *("field", "fields", "solver", "method", "part", "body"),
        *("_orig_mod", "_checkpoint_wrapped_module"),  # torch.compile's and torch's checkpointing
    }
)
"""path components that do not belong to a weight's role"""


def role(path: str) -> str:
    """Returns the role of a weight from its state_dict name in any architecture."""
    return ".".join("layers" if step == "flows" else step for step in path.split(".") if step not in WRAPPER_NAMES)


def role_names(module: nn.Module) -> dict[str, str]:
    """Returns the role of each parameter and buffer by its state_dict name; the name itself if roles collide."""
    paths = [path for path, _ in _stored(module)]
    count = Counter(map(role, paths))
    return {path: role(path) if count[role(path)] == 1 else path for path in paths}


def by_role(module: nn.Module) -> dict[str, Tensor]:
    """Returns every parameter and stored buffer by role."""
    names = role_names(module)
    return {names[path]: tensor for path, tensor in _stored(module)}


def find(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Returns the state_dict name in this module for each role or state_dict name; unknown names map to themselves."""
    names = list(names)
    names_by_path = role_names(module)
    known = {name: path for path, name in names_by_path.items()}
    taken = names_by_path.keys() & set(names)
    result: dict[str, str] = {}
    for name in names:
        path = name if name in names_by_path else known.get(name, known.get(role(name), name))
        if name not in names_by_path and path in taken:  # a second name for the same weight stays unknown
            path = name
        taken.add(path)
        result[name] = path
    return result


def _stored(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the entries of `state_dict()` without building one."""
    for path, part in module.named_modules(remove_duplicate=False):
        buffers = {k: v for k, v in part._buffers.items() if k not in part._non_persistent_buffers_set}
        for name, tensor in {**part._parameters, **buffers}.items():
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor
