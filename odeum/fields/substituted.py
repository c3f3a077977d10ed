"""A module evaluated with other weights, without writing into it: threads, hooks and `state_dict` see it unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from odeum.errors import OdeumError

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
REWEIGHTING = (BasePruningMethod, SpectralNorm, WeightNorm)
"""hooks of torch that make a weight from other tensors before each call of its module"""


def effective_weights(module: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    """Return the weights by name as the modules inside compute with them: pruned, normed or parametrized ones too."""
    weights: dict[str, Tensor] = {name: weight for name, weight in module._parameters.items() if weight is not None}
    parametrized = parametrize.is_parametrized(module)
    if parametrized:
        parametrized_names: Any = module.parametrizations
        weights |= {name: getattr(module, name) for name in parametrized_names}
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, REWEIGHTING):
            name: str = hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name
            weights = {key: w for key, w in weights.items() if key not in _sources(name)}
            weights[name] = _reweighted(module, hook, name)
    out = {prefix + name: weight for name, weight in weights.items()}
    for name, child in module._modules.items():
        if child is not None and not (parametrized and name == "parametrizations"):
            out |= effective_weights(child, f"{prefix}{name}.")
    return out


def substituted(module: nn.Module, weights: Mapping[str, Tensor], identity: nn.Module, prefix: str = "") -> nn.Module:
    """Return a copy of the module tree that computes with these weights.

    Buffers, settings and hooks are those of the module. Dropout masks are drawn in the name of `identity`, a tree of
    the same structure, so that every copy finds the masks that another one drew. A module whose `forward` has been
    replaced is refused, because the replacement reads the weights of the module.
    """
    if "forward" in module.__dict__:
        raise OdeumError(
            f"the forward of '{prefix.removesuffix('.') or type(module).__name__}' ({type(module).__name__}) has been "
            "replaced, as by the hooks of accelerate, and would read the stored weights instead of those at time t; "
            "remove the replacement (accelerate.hooks.remove_hook_from_module), or convert the model to one whose "
            "weights do not depend on time first (odeum convert)"
        )
    plain: Any = type(module)
    hidden: set[str] = set()
    if parametrize.is_parametrized(module):
        plain, hidden = plain.__bases__[0], {"parametrizations"}
    copy = plain.__new__(plain)
    state = copy.__dict__
    state.update(module.__dict__, _compiled_call_impl=None)  # a compiled call has the module's weights
    for kind in HOOKS:
        if hooks := state[kind]:
            state[kind] = {
                key: _bound_to(module, hook) for key, hook in hooks.items() if not isinstance(hook, REWEIGHTING)
            }
    names = {name[len(prefix) :] for name in weights if name.startswith(prefix)}
    here = {name: weights[prefix + name] for name in names if "." not in name}
    for name in here:
        state.pop(name, None)  # a weight that a hook had made
    state["_parameters"] = {**{name: None for name, w in module._parameters.items() if w is None}, **here}
    state["_modules"] = {
        name: child and substituted(child, weights, identity._modules[name] or child, f"{prefix}{name}.")
        for name, child in module._modules.items()
        if name not in hidden
    }
    state["stands_for"] = identity
    return copy


def _sources(name: str) -> tuple[str, ...]:
    """The parameters from which hooks make a weight."""
    return (name, f"{name}_orig", f"{name}_g", f"{name}_v")


def _reweighted(module: nn.Module, hook: Any, name: str) -> Tensor:
    copy = nn.Module()
    copy.__dict__.update(module.__dict__)  # hooks set the weight as an attribute, here of the copy
    hook(copy, ())
    return copy.__dict__[name]


def _bound_to(module: nn.Module, hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, called with the module that it was registered on."""
    return lambda _, *args: hook(module, *args)
