"""Weights by their role: names that do not depend on how a layer is stepped, wrapped or recomputed.

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
"""steps on the way to a weight that say nothing of its role"""


def role(path: str) -> str:
    """The role in torch's name for a weight, of whichever architecture."""
    return ".".join("layers" if step == "flows" else step for step in path.split(".") if step not in WRAPPER_NAMES)


def role_names(module: nn.Module) -> dict[str, str]:
    """From torch's name for each weight and stored buffer to its role, where that is the role of one alone."""
    paths = [path for path, _ in _stored(module)]
    count = Counter(map(role, paths))
    return {path: role(path) if count[role(path)] == 1 else path for path in paths}


def by_role(module: nn.Module) -> dict[str, Tensor]:
    """Every weight and stored buffer of a stack, or of a whole model, under the name of its role."""
    names = role_names(module)
    return {names[path]: tensor for path, tensor in _stored(module)}


def find(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Torch's name in this module for each of the names, which may be of any kind; what is not found stays itself."""
    names = list(names)
    own = role_names(module)
    known = {name: path for path, name in own.items()}
    taken = own.keys() & set(names)
    found: dict[str, str] = {}
    for name in names:
        path = name if name in own else known.get(name, known.get(role(name), name))
        if name not in own and path in taken:  # said twice: the second is nobody's
            path = name
        taken.add(path)
        found[name] = path
    return found


def _stored(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a state_dict holds, without asking for one."""
    for path, part in module.named_modules(remove_duplicate=False):
        buffers = {k: v for k, v in part._buffers.items() if k not in part._non_persistent_buffers_set}
        for name, tensor in {**part._parameters, **buffers}.items():
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor
