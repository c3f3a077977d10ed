"""The weights of one architecture in another: what is kept, made of others, or new; and how far it moves."""

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
"""which of the layers that become one gives its weights"""


class Conversion(NamedTuple):
    """A model of the new architecture, and where each of its weights comes from."""

    model: OdeumModel
    kept: list[str]
    made: list[str]
    """of several weights, or of a part of one"""
    new: list[str]


def convert(source: OdeumModel, architecture: Architecture, choice: str = "mean") -> Conversion:
    """The same settings under another architecture, with weights by role.

    Layers that share weights get the mean of those that act at their depths (or the first, or the last); a feed-forward
    becomes the two halves of a macaron layer, and back; a norm before both branches becomes one of each. Weights over
    time get those of the layers that a knot stands for, or of all; knots or layers made of such weights get them
    as they are at their own time.
    """
    choose(choice, CHOICES, "choice of layers")
    needed = 4.0 * describe(architecture, source.settings, detail=False)["parameters"]
    check_memory(needed, available_memory(), source.settings, f"a model of {spell(architecture)}")
    target = assemble(architecture, source.settings)
    assert isinstance(target, OdeumModel)
    theirs = {name: value.detach() for name, value in by_role(source).items()}
    names, own = role_names(target), target.state_dict()
    found: dict[str, Tensor] = {}
    kept, made = [], []
    for path, value in own.items():
        role = names[path]
        given, exact = _value(role, theirs, source, target, choice)
        if given is None or given.shape != value.shape:
            continue
        found[path] = given
        (kept if exact else made).append(role)
    if not found:
        raise OdeumError("no weight of the run has a place in this architecture")
    target.load_state_dict({**own, **found})
    return Conversion(target.eval(), kept, made, [names[path] for path in own if path not in found])


def _value(
    role: str, theirs: dict[str, Tensor], source: OdeumModel, target: OdeumModel, choice: str
) -> tuple[Tensor | None, bool]:
    """The weight for a role, and whether it is one that the source has."""
    match = LAYER.match(role)
    if match is None:
        return theirs.get(role), True
    stack, index, rest = match[1], int(match[2]), match[3]
    before, after = getattr(source, stack), getattr(target, stack)
    if not isinstance(before, Stack) or not isinstance(after, Stack):
        return theirs.get(role), True
    basis = _basis(before)
    if basis is not None and (isinstance(basis, Knots) or type(basis) is not type(_basis(after))):
        return _at_times(basis, index, rest, (source, f"{stack}.layers.0."), after, choice)
    if len(before.schedule) == len(after.schedule):
        acts = [depth for depth, own in enumerate(after.schedule) if own == index]
    elif (timed := _over_time(after, rest, len(before.schedule))) is not None:
        acts, rest = timed
    else:
        return theirs.get(role), True
    layers = list(dict.fromkeys(before.schedule[depth] for depth in acts))
    layers = layers[:1] if choice == "first" else layers[-1:] if choice == "last" else layers
    values = [_of_layer(f"{stack}.layers.{layer}.", rest, theirs) for layer in layers]
    if not values or any(value is None for value, _ in values):
        return None, False
    tensors = [value for value, _ in values if value is not None]
    if not tensors[0].is_floating_point():
        return tensors[0], True
    exact = len(tensors) == 1 and values[0][1]
    return (tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean(dim=0)), exact


def _over_time(stack: Stack, rest: str, depth: int) -> tuple[list[int], str] | None:
    """The layers that a weight of one field over the whole depth is made of, and its name in each; or none is."""
    flow = stack.flows[0]
    if len(stack.flows) > 1 or not isinstance(flow, Flow) or flow.duration != depth:
        return None
    knot, basis = KNOT.fullmatch(rest), _basis(stack)
    if knot is None or basis is None:
        return list(range(depth)), rest  # whose norms alone know the time
    return basis.layers(int(knot[2]), depth), knot[1] + knot[3]


def _basis(stack: Stack) -> Basis | None:
    """That of the weights over time, if one field goes over the whole depth."""
    found = [part for part in stack.modules() if isinstance(part, Basis)]
    return found[0] if found and len(stack.flows) == 1 else None


def _at_times(
    basis: Basis, index: int, rest: str, source: tuple[OdeumModel, str], after: Stack, choice: str
) -> tuple[Tensor | None, bool]:
    """A weight over time as it is when a knot, or the layers that share it, will act; and whether it is one of them."""
    depth, own, other = round(basis.t1 - basis.t0), KNOT.fullmatch(rest), _basis(after)
    order = getattr(after, "once", after.schedule)  # of a loop, as if it acted once
    begin = 0.5 if basis.stepwise else 0.0  # a layer acts from its begin on; a piece is told by the middle
    if own is not None and isinstance(other, Knots):
        times = [other.time(int(own[2]))]
    elif own is not None and own[2] != "0":
        times = []  # what a network of the time adds
    elif len(order) == depth:
        times = [layer + begin for layer, which in enumerate(order) if which == index]
    else:
        times = [layer + begin for layer in range(depth)] if len(after.flows) == 1 else []
    found = _timed_weight(*source, rest if own is None else own[1] + own[3])
    if found is None or not times:
        return None, False
    field, name = found
    times = times[:1] if choice == "first" else times[-1:] if choice == "last" else times
    with torch.no_grad():
        values = [field.weights(time)[name].clone() for time in times]
    exact = len(times) == 1 and isinstance(basis, Knots) and len(basis.numbers(times[0])) == 1
    return (values[0] if len(values) == 1 else torch.stack(values).mean(dim=0)), exact


def _timed_weight(source: OdeumModel, prefix: str, plain: str) -> tuple[TimedField, str] | None:
    """The field over time that has a weight, and its name there."""
    for path, role in role_names(source).items():
        knot = KNOT.fullmatch(role.removeprefix(prefix))
        if knot is not None and knot[2] == "0" and knot[1] + knot[3] == plain:
            place, _, name = path.partition(".knots.0.")
            field = source.get_submodule(place)
            return (field, name) if isinstance(field, TimedField) else None
    return None


def _of_layer(prefix: str, rest: str, theirs: dict[str, Tensor]) -> tuple[Tensor | None, bool]:
    if prefix + rest in theirs:
        return theirs[prefix + rest], True
    if half := re.fullmatch(r"feedforward_(in|out)\.(.+)", rest):
        return _half(theirs.get(f"{prefix}feedforward.{half[2]}"), half[2], half[1] == "out", theirs, prefix), False
    if whole := re.fullmatch(r"feedforward\.(.+)", rest):
        pair = [theirs.get(f"{prefix}feedforward_{side}.{whole[1]}") for side in ("in", "out")]
        return _joined(pair, whole[1], theirs.get(f"{prefix}feedforward_in.down.weight")), False
    if norm := re.fullmatch(r"norm\.(.+)", rest):  # one norm of both branches
        pair = [theirs.get(f"{prefix}{branch}.norm.{norm[1]}") for branch in ("attention", "feedforward")]
        return (None if None in pair else torch.stack(pair).mean(dim=0)), False  # ty: ignore[invalid-argument-type]
    if norm := re.fullmatch(r"(?:attention|feedforward|feedforward_in|feedforward_out)\.norm\.(.+)", rest):
        return theirs.get(f"{prefix}norm.{norm[1]}"), False
    return None, False


def _half(whole: Tensor | None, name: str, last: bool, theirs: dict[str, Tensor], prefix: str) -> Tensor | None:
    """Half of the hidden features; each half is halved by its step, so what comes out of it is doubled."""
    if whole is None or name.startswith("norm"):
        return whole
    if name == "down.bias":
        return whole
    hidden = theirs[f"{prefix}feedforward.down.weight"].shape[1]
    if name == "down.weight":
        return 2.0 * whole.chunk(2, dim=1)[last]
    gated = whole.shape[0] == 2 * hidden
    parts = whole.chunk(2) if gated else (whole,)
    return torch.cat([part.chunk(2)[last] for part in parts])


def _joined(pair: list[Tensor | None], name: str, down: Tensor | None) -> Tensor | None:
    """Both halves of the hidden features, after each other; of gated ones all gates stand before what they gate."""
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


class Moved(NamedTuple):
    """How far states and logits are from the source's, relative to their size."""

    layers: list[float]
    logits: float


def moved(source: OdeumModel, target: OdeumModel, seed: int = 0) -> Moved:
    """On random input of the models' own shape, states after each layer side by side where there are as many."""
    random = torch.Generator().manual_seed(seed)
    example: dict[str, Any] = {}
    for name, x in source.example("cpu", batch=2).items():
        if x.is_floating_point():
            example[name] = torch.randn(x.shape, generator=random)
        else:
            most = getattr(source.settings, "vocabulary", 2)
            example[name] = torch.randint(most, (2, min(32, x.shape[1])), generator=random)
    with torch.no_grad():
        (states, logits), (others, found) = (_states(model, example) for model in (source, target))
    pairs = zip(states, others, strict=True) if len(states) == len(others) else ()
    return Moved([float((b - a).norm() / a.norm()) for a, b in pairs], float((found - logits).norm() / logits.norm()))


def _states(model: OdeumModel, example: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    stack: nn.Module = next(part for part in model.children() if isinstance(part, Stack))
    seen: list[Any] = []
    hook = stack.register_forward_pre_hook(lambda _, args: seen.append(args))
    logits = model(**example).logits
    hook.remove()
    assert isinstance(stack, Stack) and logits is not None
    return list(stack.trajectory(*seen[0]))[1:], logits
