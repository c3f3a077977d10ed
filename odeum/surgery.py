"""Edits of the depth of a trained model: skip, repeat, share, average, run in parallel, another solver.

`edits(model)` lists the candidates that a model admits, `apply(model, edit)` returns the edited model. An edited model
shares its weights with the original (averaged layers have new ones), so a sweep over many edits costs no memory.
`settings_of` says how the edit is written as an architecture, if it can be.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from odeum.architectures.layered import Layered
from odeum.architectures.parts import make_method
from odeum.architectures.stepped import Stepped
from odeum.errors import OdeumError
from odeum.fields.base import Context, projects_anywhere
from odeum.flow import Flow, Stack, set_solver, set_steps
from odeum.hooks import in_this_thread
from odeum.integrators import FixedSteps
from odeum.models.base import OdeumModel
from odeum.models.settings import Model, Translation
from odeum.registry.names import Architecture
from odeum.registry.spelling import label, parse, spell

Kind = Literal["skip", "repeat", "share", "average", "parallel", "solver"]
KINDS: tuple[Kind, ...] = get_args(Kind)
METHOD_NAMES = ("lie-trotter", "strang", "strang-midpoint", "euler", "midpoint", "heun", "rk4")
"""methods to try, besides the model's own"""
STEPS = (1, 2)
"""steps per layer to try"""
LONGEST_REPEAT = 4
"""layers of a repeated span, besides the whole depth"""
MIN_RESCALED = 6
"""depth from which a single shared layer is also tried with steps of another length"""


class Average(NamedTuple):
    """A layer with the mean of the weights of two layers."""

    first: int
    second: int


class Parallel(NamedTuple):
    """Two layers that read the same state and whose changes are added."""

    first: int
    second: int


class Stepping(NamedTuple):
    """How a layer is integrated, where an edit changes it."""

    method: str | None = None
    """method of the layer (None: unchanged)"""
    steps: int = 1
    length: float = 1.0
    """length of the interval, as a multiple of the layer's own"""


class Place(NamedTuple):
    """One depth of a stack: the index of its stored weights, or two of them joined, and its integration."""

    layer: int | Average | Parallel
    stepping: Stepping | None = None


@dataclass(frozen=True)
class Edit:
    """One change of a model's depth. Layers are numbered by depth from 0, in the model as it is."""

    kind: Kind
    stack: str
    """name of the stack in the model: stack, or encoder and decoder"""
    first: int
    last: int
    """index of the last layer that changes"""
    places: tuple[Place, ...]
    """the layers at each depth after the edit"""
    label: str

    @property
    def key(self) -> str:
        """The same for edits that make the same model."""
        return f"{self.stack} {[tuple(place) for place in self.places]}"


@dataclass(frozen=True)
class Cost:
    """The cost of one pass of a model."""

    evaluations: int
    """evaluations of self-attention"""
    parameters: int
    depth: int
    """layers that must be evaluated one after the other"""

    def within(self, other: Cost) -> bool:
        """Whether no part of this cost is larger than that of the other."""
        return (
            self.evaluations <= other.evaluations and self.parameters <= other.parameters and self.depth <= other.depth
        )


class Beside(nn.Module):
    """Layers that read the same state: x + Σ (layer(x) − x). An element of a stack."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        super().__init__()
        self.flows = nn.ModuleList(flows)

    @property
    def duration(self) -> float:
        """Time that passes in one of the layers."""
        return max(flow.duration for flow in self.layers)

    @property
    def layers(self) -> list[Flow]:
        """The layers, typed."""
        return list(self.flows)  # ty: ignore[invalid-return-type]

    def forward(self, x: Tensor, context: Context | None = None, t0: float = 0.0) -> Tensor:
        out = x
        for flow in self.layers:
            out = out + (flow(x, context, t0) - x)
        return out


# which models


def stacks_of(model: nn.Module) -> dict[str, Stack]:
    """The stacks whose depth can be edited, by name; raises `OdeumError` if the model has none."""
    stacks = {name: part for name, part in model.named_children() if isinstance(part, Stack)}
    if not stacks:
        raise OdeumError(f"a {type(model).__name__} has no stack of layers, so there is no depth to edit")
    architecture = getattr(model, "architecture", None)
    what = type(model).__name__ if architecture is None else label(architecture)
    for stack in stacks.values():
        if type(stack) is not Stack:
            raise OdeumError(
                f"{what} repeats a core, and its depth is the number of repeats; compare numbers of repeats with "
                "`odeum evaluate RUN --repeats N` instead"
            )
        for flow in stack.flows:
            if not isinstance(flow, Flow):
                raise OdeumError(
                    f"{what} consists of blocks ({type(flow).__name__}) that compute attention once for several "
                    "steps, so a layer cannot be removed or repeated alone; surgery needs a sequence of single layers"
                )
            if flow.stateful_method is not None:
                raise OdeumError(
                    f"{what} passes a state ({flow.stateful_method.history}) from layer to layer, so a layer is not a "
                    "function of its input alone and cannot be removed or repeated; surgery is for one-step methods"
                )
    return stacks


def over_time(stack: Stack) -> bool:
    """Whether one flow covers all layers, because its weights depend on time."""
    flow = stack.flows[0]
    return len(stack.schedule) == 1 and isinstance(flow, Flow) and flow.duration > 1.5 * flow.layer


def depth_of(stack: Stack) -> int:
    """The number of layers that act one after the other."""
    if not over_time(stack):
        return len(stack.schedule)
    flow: Any = stack.flows[0]
    return round(flow.duration / flow.layer)


# candidates


def edits(
    model: nn.Module, kinds: Iterable[Kind] = KINDS, layers: tuple[int, int] | None = None
) -> tuple[list[Edit], dict[str, str]]:
    """All candidates without duplicates, and what is refused with its reason.

    `layers` restricts the edits to layers from the first to the last, of every stack.
    """
    out: dict[str, Edit] = {}
    refused: dict[str, str] = {}
    chosen = tuple(kinds)
    for name, stack in stacks_of(model).items():
        low, high = check_layers(name, stack, layers)
        unchanged = tuple(Place(index) for index in stack.schedule)
        maker = _Candidates(model, name, stack, low, high, refused)
        for kind in chosen:
            for edit in maker.of(kind):
                if edit.places != unchanged:
                    out.setdefault(edit.key, edit)
    return list(out.values()), refused


def check_layers(name: str, stack: Stack, layers: tuple[int, int] | None) -> tuple[int, int]:
    """The first and the last layer to edit (default: all); raises `OdeumError` if the stack does not have them."""
    depth = depth_of(stack)
    low, high = (0, depth - 1) if layers is None else layers
    if not 0 <= low <= high < depth:
        raise OdeumError(f"--layers {low}-{high} is out of range: the {name} has layers 0 to {depth - 1}")
    return low, high


class _Candidates:
    """The candidates of one stack."""

    def __init__(self, model: nn.Module, name: str, stack: Stack, low: int, high: int, refused: dict[str, str]) -> None:
        self.model, self.name, self.stack, self.low, self.high, self.refused = model, name, stack, low, high, refused
        self.order = stack.schedule
        self.flows: list[Flow] = list(stack.flows)  # ty: ignore[invalid-assignment]
        self.prefix = "" if name in ("stack", "layers") else f"{name}: "

    def of(self, kind: Kind) -> Iterator[Edit]:
        """Candidates of one kind; of a field over time only other solvers."""
        if over_time(self.stack) and kind != "solver":
            self.refused[kind] = "the weights depend on time, so there are no single layers; only solvers are tried"
            return iter(())
        return getattr(self, f"_{kind}")()

    def _edit(self, kind: Kind, first: int, last: int, places: Iterable[Place], label: str) -> Edit:
        return Edit(kind, self.name, first, last, tuple(places), self.prefix + label)

    def _spans(self, longest: int) -> Iterator[tuple[int, int]]:
        """First and last layer of each span."""
        for length in range(1, min(longest, self.high - self.low + 1) + 1):
            for first in range(self.low, self.high - length + 2):
                yield first, first + length - 1

    def _neighbours(self) -> Iterator[tuple[int, int, int]]:
        """A layer and the weights that act there and in the next one, where these differ."""
        for i in range(self.low, self.high):
            if self.order[i] != self.order[i + 1]:
                yield i, self.order[i], self.order[i + 1]

    @property
    def places(self) -> list[Place]:
        """The unedited places."""
        return [Place(index) for index in self.order]

    def _skip(self) -> Iterator[Edit]:
        depth = len(self.order)
        longest = min(depth - 1, max(1, 2 * depth // 3 if len(self.flows) == 1 else depth // 2))
        for first, last in self._spans(longest):
            rest = self.places[:first] + self.places[last + 1 :]
            label = f"skip {_span(first, last)}"
            if len(self.flows) == 1:
                label = f"{len(rest)} instead of {depth} layers"
            yield self._edit("skip", first, last, rest, label)

    def _repeat(self) -> Iterator[Edit]:
        whole = (self.low, self.high)
        for first, last in dict.fromkeys((*self._spans(LONGEST_REPEAT), whole)):
            places = self.places[: last + 1] + self.places[first:]
            label = f"repeat {_span(first, last)}"
            if len(self.flows) == 1:
                label = f"{len(places)} instead of {len(self.order)} layers"
            yield self._edit("repeat", first, last, places, label)

    def _share(self) -> Iterator[Edit]:
        for i, a, b in self._neighbours():
            for place, source, index in ((i, i + 1, b), (i + 1, i, a)):
                places = self.places
                places[place] = Place(index)
                yield self._edit("share", i, i + 1, places, f"layer {place} with the weights of {source}")

    def _average(self) -> Iterator[Edit]:
        for i, a, b in self._neighbours():
            shapes = [{n: p.shape for n, p in self.flows[k].state_dict().items()} for k in (a, b)]
            if shapes[0] == shapes[1]:
                places = self.places
                places[i] = places[i + 1] = Place(Average(a, b))
                yield self._edit("average", i, i + 1, places, f"layers {i} and {i + 1} with their mean weights")

    def _parallel(self) -> Iterator[Edit]:
        for i in range(self.low, self.high):
            a, b = self.order[i], self.order[i + 1]
            if any(projects_anywhere(self.flows[k].field) for k in (a, b)):
                self.refused["parallel"] = (
                    "a layer that ends in a norm replaces its state, so the changes of two layers cannot be added"
                )
                return
            places = [*self.places[:i], Place(Parallel(a, b)), *self.places[i + 2 :]]
            yield self._edit("parallel", i, i + 1, places, f"layers {i} and {i + 1} in parallel")

    def _solver(self) -> Iterator[Edit]:
        method_now = getattr(getattr(self.model, "architecture", None), "method", None)
        steps_per_layer = getattr(getattr(self.model, "architecture", None), "steps", 1)
        tried = [(None, 2 * steps_per_layer)]
        tried += [(name, steps) for name in METHOD_NAMES for steps in STEPS if name != method_now]
        if len(self.flows) == 1 and not over_time(self.stack):
            yield from self._rescaled()
        for method, steps in tried:
            if (method or "more steps") in self.refused:
                continue
            if reason := self._refusal(Stepping(method, steps)):
                self.refused[method or "more steps"] = reason
                continue
            for first, last in self._parts(method, steps):
                places = self.places
                stop = len(places) if over_time(self.stack) else last + 1
                for i in range(first, stop):
                    places[i] = places[i]._replace(stepping=Stepping(method, steps))
                count = f"{steps} step{'' if steps == 1 else 's'}"
                where = "" if last - first + 1 == depth_of(self.stack) else f" in {_span(first, last)}"
                yield self._edit(
                    "solver", first, last, places, f"{method or method_now or 'own method'}, {count} per layer{where}"
                )

    def _parts(self, method: str | None, steps: int) -> list[tuple[int, int]]:
        """The whole depth; one step of another method, or more of the same, also in each third of it."""
        whole = (self.low, self.high)
        count = self.high - self.low + 1
        if over_time(self.stack):
            return [(0, depth_of(self.stack) - 1)]
        if len(self.flows) == 1 or count < 3 or (method is not None and steps > 1):
            return [whole]
        ends = [self.low + count * k // 3 for k in range(4)]
        return [whole, *((a, b - 1) for a, b in itertools.pairwise(ends))]

    def _rescaled(self) -> Iterator[Edit]:
        """One layer at every depth: other numbers of steps over the same interval."""
        depth, architecture = len(self.order), getattr(self.model, "architecture", None)
        if depth < MIN_RESCALED or not isinstance(architecture, Layered) or architecture.steps != 1:
            return
        for count in sorted({depth * k // 6 for k in (3, 4, 5, 8, 12)}):
            stepping = Stepping(None, 1, depth / count)
            label = f"{count} steps over the interval of {depth} layers"
            yield self._edit("solver", 0, depth - 1, [Place(self.order[0], stepping)] * count, label)

    def _refusal(self, stepping: Stepping) -> str | None:
        try:
            for flow in self.flows:
                _restepped(flow, stepping)
        except OdeumError as error:
            return str(error)
        return None


def _span(first: int, last: int) -> str:
    return f"layer {first}" if first == last else f"layers {first}–{last}"


# the edited model


def apply(model: nn.Module, edit: Edit | None) -> Any:
    """The edited model. It shares weights with the original, which does not change; None is the model as it is.

    Layers are renumbered in the order in which they first act, as `schedule=` numbers them.
    """
    new = _sharing_weights(model)
    if edit is None:
        return new
    stack: Any = getattr(new, edit.stack)
    flows: list[Flow] = list(stack.flows)
    made: dict[Place, nn.Module] = {}
    for place in edit.places:
        if place not in made:
            made[place] = _layer(flows, place)
    numbers = {place: number for number, place in enumerate(made)}
    stack.flows, stack.schedule = nn.ModuleList(made.values()), tuple(numbers[place] for place in edit.places)
    return new.eval()


def _layer(flows: Sequence[Flow], place: Place) -> nn.Module:
    match place.layer:
        case Parallel(first, second):
            return Beside([flows[first], _sharing_weights(flows[second])])
        case Average(first, second):
            return _mean(flows[first], flows[second])
        case index:
            return flows[index] if place.stepping is None else _restepped(flows[index], place.stepping)


def _mean(first: Flow, second: Flow) -> Flow:
    new, other = copy.deepcopy(first), second.state_dict()
    with torch.no_grad():
        for name, value in new.state_dict().items():
            if value.is_floating_point():
                value.add_(other[name]).div_(2)
    return new


def _restepped(flow: Flow, stepping: Stepping) -> Flow:
    new = _sharing_weights(flow)
    if stepping.method is not None:
        set_solver(new, FixedSteps(make_method(stepping.method)), keep_gradient=False)
    if stepping.length != 1.0:
        new.t1 = new.t0 + flow.duration * stepping.length
        new.layer = new.duration
    set_steps(new, stepping.steps)
    return new


def _sharing_weights(module: Any) -> Any:
    """A copy of the modules with the same parameters and buffers."""
    memo = {id(tensor): tensor for tensor in itertools.chain(module.parameters(), module.buffers())}
    return copy.deepcopy(module, memo)


def cost_of(model: nn.Module) -> Cost:
    """Evaluations, parameters and depth of a model, on its smallest example."""
    depth = sum(depth_of(stack) for _, stack in model.named_children() if isinstance(stack, Stack))
    return Cost(count_evaluations(model), sum(p.numel() for p in model.parameters()), depth)


def count_evaluations(model: Any) -> int:
    """The number of evaluations of self-attention in one pass."""
    calls: list[int] = []
    hooks = [
        part.register_forward_pre_hook(in_this_thread(lambda *_: calls.append(1)))
        for part in model.modules()
        if getattr(part, "role", None) == "attention" and isinstance(part, nn.Module)
    ]
    example = {name: x[:, :2] if x.dim() == 2 else x for name, x in model.example("cpu").items()}
    device = next(model.parameters()).device
    with torch.no_grad():
        model(**{name: x.to(device) for name, x in example.items()})
    for hook in hooks:
        hook.remove()
    return len(calls)


# the edited model as a run


def settings_of(model: OdeumModel, edit: Edit) -> tuple[Architecture, Model]:
    """The settings and the architecture of the edited model; raises `OdeumError` if no architecture names it."""
    settings = model.settings
    own = getattr(settings, "decoder", None)
    in_decoder = edit.stack == "decoder"
    architecture = parse(own) if in_decoder and own is not None else model.architecture
    if not isinstance(architecture, Stepped):
        raise OdeumError(f"'{edit.label}' cannot be saved: {spell(architecture)} has no schedule of layers")
    if edit.kind == "parallel":
        raise OdeumError(f"'{edit.label}' cannot be saved: no architecture can run two layers in parallel")
    architecture, depth = _edited(architecture, edit, over_time(getattr(model, edit.stack)))
    if not isinstance(settings, Translation):
        return architecture, replace(settings, depth=depth)
    decoder_depth = settings.decoder_depth or settings.depth
    if in_decoder:
        return model.architecture, replace(settings, decoder=spell(architecture), decoder_depth=depth)
    decoder = spell(model.architecture) if settings.decoder is None else settings.decoder
    return architecture, replace(settings, depth=depth, decoder=decoder, decoder_depth=decoder_depth)


def not_saved(model: OdeumModel, edit: Edit) -> str | None:
    """Why no architecture names the edited model; None if one does."""
    try:
        settings_of(model, edit)
    except OdeumError as error:
        return str(error)
    return None


def _edited(architecture: Stepped, edit: Edit, whole: bool) -> tuple[Stepped, int]:
    steppings = {place.stepping for place in edit.places}
    if len(steppings) > 1:
        raise OdeumError(f"'{edit.label}' cannot be saved: an architecture has one solver for all its layers")
    (stepping,) = steppings
    depth = len(edit.places)
    if stepping is not None:
        architecture = replace(architecture, method=stepping.method or architecture.method, steps=stepping.steps)
        if stepping.length != 1.0:
            assert isinstance(architecture, Layered)
            architecture = replace(architecture, interval=architecture.interval * stepping.length)
    if whole:
        return architecture, edit.last + 1
    numbers = {place: number for number, place in enumerate(dict.fromkeys(edit.places))}
    order = tuple(numbers[place] for place in edit.places)
    if _order(architecture, depth) == order:
        return architecture, depth
    plain = replace(architecture, independent=None, sharing="sequence", schedule=None)
    if _order(plain, depth) == order:
        return plain, depth
    return replace(plain, schedule=_schedule(order)), depth


def _order(architecture: Stepped, depth: int) -> tuple[int, ...] | None:
    try:
        return architecture._layer_order(depth)
    except OdeumError:
        return None


def _schedule(order: Sequence[int]) -> str:
    """(0, 1, 2, 1, 2, 3) -> 0-2/1-3, as `odeum.schedules.explicit` reads it."""
    spans: list[list[int]] = []
    for index in order:
        if spans and spans[-1][-1] + 1 == index:
            spans[-1].append(index)
        else:
            spans.append([index])
    return "/".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
