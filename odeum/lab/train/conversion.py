"""Converts a model to another architecture: copied, derived and new weights, and how far the outputs deviate."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, choose
from odeum.fields.bases import Basis, Knots
from odeum.fields.hypernetwork import TimedField
from odeum.fields.roles import by_role, role_names
from odeum.flow import Flow, Stack
from odeum.models import assemble
from odeum.models.base import OdeumModel
from odeum.models.description import describe
from odeum.models.limits import available_memory, check_memory
from odeum.registry.names import Architecture
from odeum.registry.spelling import spell

LAYER = re.compile(r"(stack|encoder|decoder)\.layers\.(\d+)\.(.+)")
KNOT = re.compile(r"(.*?)knots\.(\d+)\.(.+)")
CHOICES = ("mean", "first", "last")
"""how to combine the weights of layers that become one"""


class Conversion(NamedTuple):
    """A model of the new architecture, and the origin of each of its weights."""

    model: OdeumModel
    copied: list[str]
    derived: list[str]
    """computed from several weights, or from a part of one"""
    new: list[str]


def convert(source: OdeumModel, architecture: Architecture, choice: str = "mean") -> Conversion:
    """Returns a model with the same settings and another architecture; weights are matched by role.

    Layers that share weights get the mean of those that act at their depths (or the first, or the last); a feed-forward
    becomes the two halves of a macaron layer, and back; a norm before both branches becomes one per branch. Knots of
    time-dependent weights get the weights of the layers that they stand for, or of all; knots or layers that are made
    from time-dependent weights get their values at their own time.
    """
    choose(choice, CHOICES, "choice of layers")
    needed = 4.0 * describe(architecture, source.settings, detail=False)["parameters"]
    check_memory(needed, available_memory(), source.settings, f"a model of {spell(architecture)}")
    target = assemble(architecture, source.settings)
    assert isinstance(target, OdeumModel)
    weights = {name: value.detach() for name, value in by_role(source).items()}
    names, initial = role_names(target), target.state_dict()
    matched: dict[str, Tensor] = {}
    copied, derived = [], []
    for path, value in initial.items():
        role = names[path]
        given, exact = _value(role, weights, source, target, choice)
        if given is None or given.shape != value.shape:
            continue
        matched[path] = given
        (copied if exact else derived).append(role)
    if not matched:
        raise OdeumError("no weight of the run matches a role in this architecture")
    target.load_state_dict({**initial, **matched})
    return Conversion(target.eval(), copied, derived, [names[path] for path in initial if path not in matched])


def _value(
    role: str, weights: dict[str, Tensor], source: OdeumModel, target: OdeumModel, choice: str
) -> tuple[Tensor | None, bool]:
    """Returns the weight for a role, and whether it is an exact copy of one of the source's weights."""
    match = LAYER.match(role)
    if match is None:
        return weights.get(role), True
    stack, index, rest = match[1], int(match[2]), match[3]
    before, after = getattr(source, stack), getattr(target, stack)
    if not isinstance(before, Stack) or not isinstance(after, Stack):
        return weights.get(role), True
    basis = _basis(before)
    if basis is not None and (isinstance(basis, Knots) or type(basis) is not type(_basis(after))):
        return _at_times(basis, index, rest, (source, f"{stack}.layers.0."), after, choice)
    if len(before.schedule) == len(after.schedule):
        acts = [depth for depth, layer in enumerate(after.schedule) if layer == index]
    elif (timed := _over_time(after, rest, len(before.schedule))) is not None:
        acts, rest = timed
    else:
        return weights.get(role), True
    layers = list(dict.fromkeys(before.schedule[depth] for depth in acts))
    layers = layers[:1] if choice == "first" else layers[-1:] if choice == "last" else layers
    values = [_of_layer(f"{stack}.layers.{layer}.", rest, weights) for layer in layers]
    if not values or any(value is None for value, _ in values):
        return None, False
    tensors = [value for value, _ in values if value is not None]
    if not tensors[0].is_floating_point():
        return tensors[0], True
    exact = len(tensors) == 1 and values[0][1]
    return (tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean(dim=0)), exact


def _over_time(stack: Stack, rest: str, depth: int) -> tuple[list[int], str] | None:
    """The source layers for a weight of a field that spans the whole depth, and its name in each; else None."""
    flow = stack.flows[0]
    if len(stack.flows) > 1 or not isinstance(flow, Flow) or flow.duration != depth:
        return None
    knot, basis = KNOT.fullmatch(rest), _basis(stack)
    if knot is None or basis is None:
        return list(range(depth)), rest  # only its norms depend on time
    return basis.layers(int(knot[2]), depth), knot[1] + knot[3]


def _basis(stack: Stack) -> Basis | None:
    """The basis of time-dependent weights, if one field spans the whole depth."""
    bases = [part for part in stack.modules() if isinstance(part, Basis)]
    return bases[0] if bases and len(stack.flows) == 1 else None


def _at_times(
    basis: Basis, index: int, rest: str, source: tuple[OdeumModel, str], after: Stack, choice: str
) -> tuple[Tensor | None, bool]:
    """A time-dependent weight at the times when the target's knot or layers act, and whether it is an exact copy."""
    depth, knot, target_basis = round(basis.t1 - basis.t0), KNOT.fullmatch(rest), _basis(after)
    order = getattr(after, "once", after.schedule)  # of a loop: a single pass
    begin = 0.5 if basis.stepwise else 0.0  # a layer starts at its left edge; a constant piece is named by its middle
    if knot is not None and isinstance(target_basis, Knots):
        times = [target_basis.time(int(knot[2]))]
    elif knot is not None and knot[2] != "0":
        times = []  # added by a network of time
    elif len(order) == depth:
        times = [layer + begin for layer, which in enumerate(order) if which == index]
    else:
        times = [layer + begin for layer in range(depth)] if len(after.flows) == 1 else []
    timed = _timed_weight(*source, rest if knot is None else knot[1] + knot[3])
    if timed is None or not times:
        return None, False
    field, name = timed
    times = times[:1] if choice == "first" else times[-1:] if choice == "last" else times
    with torch.no_grad():
        values = [field.weights(time)[name].clone() for time in times]
    exact = len(times) == 1 and isinstance(basis, Knots) and len(basis.numbers(times[0])) == 1
    return (values[0] if len(values) == 1 else torch.stack(values).mean(dim=0)), exact


def _timed_weight(source: OdeumModel, prefix: str, plain: str) -> tuple[TimedField, str] | None:
    """The time-dependent field that holds a weight, and the weight's name in it."""
    for path, role in role_names(source).items():
        knot = KNOT.fullmatch(role.removeprefix(prefix))
        if knot is not None and knot[2] == "0" and knot[1] + knot[3] == plain:
            place, _, name = path.partition(".knots.0.")
            field = source.get_submodule(place)
            return (field, name) if isinstance(field, TimedField) else None
    return None


def _of_layer(prefix: str, rest: str, weights: dict[str, Tensor]) -> tuple[Tensor | None, bool]:
    if prefix + rest in weights:
        return weights[prefix + rest], True
    if half := re.fullmatch(r"feedforward_(in|out)\.(.+)", rest):
        return _half(weights.get(f"{prefix}feedforward.{half[2]}"), half[2], half[1] == "out", weights, prefix), False
    if full := re.fullmatch(r"feedforward\.(.+)", rest):
        pair = [weights.get(f"{prefix}feedforward_{side}.{full[1]}") for side in ("in", "out")]
        return _joined(pair, full[1], weights.get(f"{prefix}feedforward_in.down.weight")), False
    if norm := re.fullmatch(r"norm\.(.+)", rest):  # one norm of both branches
        pair = [weights.get(f"{prefix}{branch}.norm.{norm[1]}") for branch in ("attention", "feedforward")]
        return (None if None in pair else torch.stack(pair).mean(dim=0)), False  # ty: ignore[invalid-argument-type]
    if norm := re.fullmatch(r"(?:attention|feedforward|feedforward_in|feedforward_out)\.norm\.(.+)", rest):
        return weights.get(f"{prefix}norm.{norm[1]}"), False
    return None, False


def _half(weight: Tensor | None, name: str, last: bool, weights: dict[str, Tensor], prefix: str) -> Tensor | None:
    """Half of the hidden features. Each half is scaled by ½ in its step, so its output weights are doubled."""
    if weight is None or name.startswith("norm"):
        return weight
    if name == "down.bias":
        return weight
    hidden = weights[f"{prefix}feedforward.down.weight"].shape[1]
    if name == "down.weight":
        return 2.0 * weight.chunk(2, dim=1)[last]
    gated = weight.shape[0] == 2 * hidden
    parts = weight.chunk(2) if gated else (weight,)
    return torch.cat([part.chunk(2)[last] for part in parts])


def _joined(pair: list[Tensor | None], name: str, down: Tensor | None) -> Tensor | None:
    """Both halves of the hidden features, concatenated; with gating, all gates come before the gated values."""
    first, last = pair
    if first is None or last is None or down is None:
        return None
    if name == "down.weight":
        return 0.5 * torch.cat((first, last), dim=1)
    if name.startswith(("norm", "down")):
        return 0.5 * (first + last)
    gated = first.shape[0] == 2 * down.shape[1]
    halves = (half.chunk(2) if gated else (half,) for half in (first, last))
    return torch.cat([part for both in zip(*halves, strict=True) for part in both])


class Deviation(NamedTuple):
    """Relative distance of states and logits from those of the source model."""

    layers: list[float]
    logits: float


def deviation(source: OdeumModel, target: OdeumModel) -> Deviation:
    """Compare two models on random input; states are compared per layer if both have the same number of layers."""
    random = torch.Generator().manual_seed(0)
    example: dict[str, Any] = {}
    for name, x in source.example("cpu", batch=2).items():
        if x.is_floating_point():
            example[name] = torch.randn(x.shape, generator=random)
        else:
            most = getattr(source.settings, "vocabulary", 2)
            example[name] = torch.randint(most, (2, min(32, x.shape[1])), generator=random)
    with torch.no_grad():
        (states, logits), (new_states, new_logits) = (_states(model, example) for model in (source, target))
    pairs = zip(states, new_states, strict=True) if len(states) == len(new_states) else ()
    layers = [float((b - a).norm() / a.norm()) for a, b in pairs]
    return Deviation(layers, float((new_logits - logits).norm() / logits.norm()))


def _states(model: OdeumModel, example: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    stack: nn.Module = next(part for part in model.children() if isinstance(part, Stack))
    seen: list[Any] = []
    hook = stack.register_forward_pre_hook(lambda _, args: seen.append(args))
    logits = model(**example).logits
    hook.remove()
    assert isinstance(stack, Stack) and logits is not None
    return list(stack.trajectory(*seen[0]))[1:], logits
