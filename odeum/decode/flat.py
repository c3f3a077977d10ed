"""Decoding without module calls: fields, the stack and the language model on one new position per row.

For a few rows the arithmetic of a layer takes some microseconds, and the calls of its modules take more. At batch 1
this decodes 2.5 to 3 times as fast as `generate` of transformers; the modules themselves reach 1.4 to 1.5 times, and
1.4 to 1.8 times if each `forward` is called without its hooks. A flat field computes what its field computes
(`reference`), without gradients and dropout, from the same weights and the same cache, so a pass may switch between
them at any token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from odeum.fields.algebra import Increment, PeriNorm, PostNorm, PreNorm, Scaled, StochasticDepth, Sum
from odeum.fields.attention import CrossAttention, SelfAttention, attend, rotate
from odeum.fields.base import Context, Field, Source, fast_modules
from odeum.fields.cache import Cache
from odeum.fields.feedforward import FeedForward
from odeum.fields.transevolve.block import Anchored
from odeum.fields.transevolve.evolved_attention import EvolvedAttention
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, LieTrotter, RungeKutta
from odeum.kernels.attention import attention
from odeum.kernels.autograd import plain_autograd
from odeum.looping import Looped
from odeum.models.language import LanguageModel, token_positions

Evaluate = Callable[[float, Tensor, Context], Tensor]
Map = Callable[[Tensor], Tensor]
Maps = Callable[[nn.Module], Map]
"""how the linear maps and norms of a field are computed"""


def reference(field: Field) -> Evaluate:
    """Return the plain evaluation of a field: the field itself."""
    return field


def flat_map(module: nn.Module) -> Map:
    """Return a linear map or a norm as a function of its current weights; other modules unchanged."""
    weights: Any = module._parameters
    if type(module) is nn.Linear:
        return lambda x: nn.functional.linear(x, weights["weight"], weights["bias"])
    if type(module) is nn.LayerNorm:
        shape, eps = module.normalized_shape, module.eps
        return lambda x: torch.layer_norm(x, shape, weights["weight"], weights["bias"], eps)
    if type(module) is nn.RMSNorm:
        shape, small = module.normalized_shape, module.eps
        return lambda x: torch.rms_norm(x, shape, weights["weight"], small)
    return module


class FlatField:
    """The interface of a field that methods use. Not a module: it refers to a field and owns no weights."""

    training = False

    def __init__(self, field: Field, maps: Maps = flat_map) -> None:
        self.field = field
        terms = field.terms
        self.terms = (self,) if terms == (field,) else tuple(FlatField(term, maps) for term in terms)
        self.evaluate = _sum(self.terms) if type(field) is Sum else flat(field, maps)
        self.projects, self.project, self.observe = field.projects, _projection(field, maps), field.observe

    def __call__(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.evaluate(t, x, context)

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """The modules of the field."""
        return self.field.named_modules()


def flat(field: Field, maps: Maps) -> Evaluate:
    """Return the field as a function of (t, x, context) with x of [batch, 1, width]; `reference` for other fields."""
    make = _MAKERS.get(type(field))
    return reference(field) if make is None else make(field, maps)


def is_flat(field: Field) -> bool:
    """Whether every part has a flat evaluation."""
    return type(field) in _MAKERS and all(is_flat(part) for part in _fields_within(field))


def _fields_within(module: nn.Module) -> Iterator[Field]:
    for part in module.children():
        if isinstance(part, Field):
            yield part
        else:
            yield from _fields_within(part)


def _sum(terms: tuple[FlatField, ...]) -> Evaluate:
    first, *rest = (term.evaluate for term in terms)

    def evaluate(t: float, x: Tensor, context: Context) -> Tensor:
        total = first(t, x, context)
        for term in rest:
            total = total + term(t, x, context)
        return total

    return evaluate


def _projection(field: Field, maps: Maps) -> Map:
    if type(field) is not PostNorm:
        return field.project
    norm, inner = maps(field.norm), _projection(field.field, maps)
    return lambda x: norm(inner(x))


def _self_attention(field: SelfAttention, maps: Maps) -> Evaluate:
    qkv, out, heads, sizes, shared = maps(field.qkv), maps(field.out), field.heads, field.sizes, field.shared
    norms = None if field.q_norm is None or field.k_norm is None else (maps(field.q_norm), maps(field.k_norm))

    def evaluate(t: float, x: Tensor, context: Context) -> Tensor:
        source, rows = context.own, x.shape[0]
        if source.past is not None or x.dim() == 4 or field.joint_norm:
            return field(t, x, context)
        if shared == 1:
            projected = qkv(x).view(rows, 3, heads, 1, -1)
            if norms is None and source.cache is not None:
                if source.rotary is not None:  # queries and keys in one call
                    both = projected.narrow(1, 0, 2)
                    both.copy_(rotate(both.flatten(1, 2), source.rotary).view_as(both))
                k, v = source.cache.extend_together(projected.narrow(1, 1, 2))
                return out(_attend(projected.select(1, 0), k, v, source).reshape(rows, 1, sizes[0]))
            q, k, v = projected.unbind(1)
        else:
            parts = zip(qkv(x).split(sizes, dim=-1), field.counts, strict=True)
            q, k, v = (part.reshape(rows, count, 1, -1) for part, count in parts)
        if norms is not None:
            q, k = norms[0](q), norms[1](k)
        if source.rotary is not None:
            q, k = rotate(q, source.rotary), rotate(k, source.rotary)
        if source.cache is not None:
            k, v = source.cache.extend(k, v)
        if shared > 1:
            k, v = (y.repeat_interleave(shared, dim=1) for y in (k, v))
        return out(_attend(q, k, v, source).reshape(rows, 1, sizes[0]))

    return evaluate


def _cross_attention(field: CrossAttention, maps: Maps) -> Evaluate:
    query, out, heads = maps(field.q), maps(field.out), field.heads

    def evaluate(t: float, x: Tensor, context: Context) -> Tensor:
        source = context.other
        if source.cache is None or source.memory is None:
            return field(t, x, context)
        memory, beams = source.memory, source.cache.beams
        k, v = source.cache.constant(lambda: field.keys_values(memory))
        if beams == 1:
            return out(_attend(query(x).view(x.shape[0], heads, 1, -1), k, v, source).reshape(x.shape))
        # Rows that read the same memory are so many queries of one.
        q = query(x).view(-1, beams, heads, x.shape[-1] // heads).transpose(1, 2)
        mask = None if source.mask is None else source.mask[::beams]
        seen = _attend(q, k[::beams], v[::beams], source._replace(mask=mask))
        return out(seen.transpose(1, 2).reshape(x.shape))

    return evaluate


def _attend(q: Tensor, k: Tensor, v: Tensor, source: Source) -> Tensor:
    if source.mask is not None:
        return attend(q, k, v, source)
    return attention(q, k, v, None, False)  # the newest position sees all


def _evolved(field: EvolvedAttention, maps: Maps) -> Evaluate:
    out, heads, time_width = maps(field.out), field.heads, field.time_width

    def evaluate(t: float, x: Tensor, context: Context) -> Tensor:
        source = context.own
        anchor = source.anchor
        if source.cache is None or anchor is None or anchor.drift.time is not None:
            return field(t, x, context)
        new = anchor.drift.new.view(-1, heads, 1, time_width)
        b = (new * field.depth_vector(t).to(new.dtype).unsqueeze(1)).sum(-1, keepdim=True)
        v, past = source.cache.extend(x.view(x.shape[0], heads, 1, -1), b)
        return out(anchor.act(past.squeeze(-1), v, source))

    return evaluate


def _feed_forward(field: FeedForward, maps: Maps) -> Evaluate:
    up, down, activation = maps(field.up), maps(field.down), field.activation
    if field.gated:

        def gated(t: float, x: Tensor, context: Context) -> Tensor:
            gate, h = up(x).chunk(2, dim=-1)
            return down(activation(gate) * h)

        return gated
    if activation is nn.functional.relu and type(field.up) is nn.Linear:
        return lambda t, x, context: down(up(x).relu_())
    return lambda t, x, context: down(activation(up(x)))


def _pre_norm(field: PreNorm, maps: Maps) -> Evaluate:
    norm, inner = maps(field.norm), flat(field.field, maps)
    return lambda t, x, context: inner(t, norm(x), context)


def _peri_norm(field: PeriNorm, maps: Maps) -> Evaluate:
    before, inner, after = maps(field.inner), flat(field.field, maps), maps(field.outer)
    return lambda t, x, context: after(inner(t, before(x), context))


def _scaled(field: Scaled, maps: Maps) -> Evaluate:
    factor, inner = field.factor, flat(field.field, maps)
    return lambda t, x, context: factor * inner(t, x, context)


def _inner(field: PostNorm | StochasticDepth, maps: Maps) -> Evaluate:
    return flat(field.field, maps)


def _increment(field: Increment, maps: Maps) -> Evaluate:
    method, inner = field.method, FlatField(field.field, maps)
    return lambda t, x, context: method.step(inner, t, 1.0, x, context) - x  # ty: ignore[invalid-argument-type]


_MAKERS: dict[type[Field], Callable[[Any, Maps], Evaluate]] = {
    SelfAttention: _self_attention,
    CrossAttention: _cross_attention,
    EvolvedAttention: _evolved,
    FeedForward: _feed_forward,
    Sum: lambda field, maps: FlatField(field, maps).evaluate,
    PreNorm: _pre_norm,
    PeriNorm: _peri_norm,
    PostNorm: _inner,
    Scaled: _scaled,
    StochasticDepth: _inner,
    Increment: _increment,
}


# the stack

Pass = Callable[[Tensor, Context], Tensor]
FlatLayer = Callable[[Tensor, Context, float], Tensor]
_training = attrgetter("training")


class FlatStack:
    """Runs a stack on one new position per row, with caches; all other passes run the stack itself.

    The caches are those that the stack fills, so each token may take either way. Hooks and training mode that are set
    during a generation take effect from the next token on. If all passes are made in one call, and the `whole` model
    runs no code of its own, the modules are checked once, and `maps` may assume that weights do not change.
    """

    def __init__(self, stack: nn.Module, whole: nn.Module | None = None, maps: Maps = flat_map) -> None:
        self.stack, self.maps = stack, maps
        everything = [] if whole is None else fast_modules(whole)
        known = whole is not None and is_unmodified(everything)
        self.alone, self.looked = known and not any(_all_hooks(everything)), False
        self._look(known)

    def _look(self, known: bool = False) -> None:
        self.parts = fast_modules(self.stack)
        self.hooks = _all_hooks(self.parts)
        maps = self.maps if self.alone else flat_map
        self.run = _flat_stack(self.stack, maps) if known or is_unmodified(self.parts) else None

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if not self.alone and fast_modules(self.stack) != self.parts:  # a module has been replaced since the last token
            self._look()
        if self.run is None or x.shape[1] != 1 or context.own.cache is None or not self.has_no_hooks():
            return self.stack(x, context)
        return self.run(x, context)

    def has_no_hooks(self) -> bool:
        """Whether no hook is registered, no part is in training mode, and no gradient is recorded."""
        if torch.is_grad_enabled() or not plain_autograd() or nn.modules.module._has_any_global_hook():
            return False
        if not (self.alone and self.looked):
            self.looked = not any(self.hooks) and not any(map(_training, self.parts))
        return self.looked


def is_unmodified(parts: Iterable[nn.Module]) -> bool:
    """Whether every part has a class of Odeum or torch and is not wrapped, compiled, patched or sharded."""
    return all(
        type(part).__module__.partition(".")[0] in ("odeum", "torch")
        and "forward" not in part.__dict__
        and part._compiled_call_impl is None
        and all(type(weight) is nn.Parameter for weight in part._parameters.values() if weight is not None)
        and all(type(buffer) is Tensor for buffer in part._buffers.values() if buffer is not None)
        for part in parts
    )


def _all_hooks(parts: Iterable[nn.Module]) -> list[Any]:
    """The hook dictionaries of every part."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [part.__dict__[kind] for part in parts for kind in kinds]


def _flat_stack(stack: nn.Module, maps: Maps) -> Pass | None:
    """The layers in sequence; None for a stack with another order of evaluation."""
    if not isinstance(stack, Stack) or type(stack) not in (Stack, Looped):
        return None
    flats = {flow: _flat_layer(flow, maps) for flow in stack.flows}
    norm = (lambda x: x) if stack.norm is None else maps(stack.norm)
    if isinstance(stack, Looped):

        def call(flow: nn.Module, x: Tensor, context: Context, time: float) -> Tensor:
            return flats[flow](x, context, time)

        def looping(x: Tensor, context: Context) -> Tensor:
            for state, _, _ in stack._walk(x, context, leave=True, call=call):
                x = state
            return norm(x)

        return looping
    if any(getattr(flow, "stateful_method", None) for flow in flats):

        def carrying(x: Tensor, context: Context) -> Tensor:
            for flow, time, here in stack._carrying(context):
                x = flats[flow](x, here, time)
            return norm(x)

        return carrying
    layers = [(flats[flow], time) for flow, time in stack.timed()]

    def run(x: Tensor, context: Context) -> Tensor:
        for layer, time in layers:
            x = layer(x, context, time)
        return norm(x)

    return run


def _flat_flow(flow: Flow, field: FlatField) -> FlatLayer:
    """A layer with any method over a flat field."""
    return lambda x, context, time: flow.integrate(field, x, context, time)  # ty: ignore[invalid-argument-type]


def _one_step(flow: Flow, field: FlatField) -> FlatLayer | None:
    """A layer that is one Euler step of length one, of the whole field or term by term; None for other layers.

    Such layers skip what other methods need (intervals, stages, masks), which takes longer than a small term. A layer
    whose method is changed later is evaluated by `_flat_flow`.
    """
    solver, any_method = flow.solver, _flat_flow(flow, field)
    method = getattr(solver, "method", None)
    if type(solver) is not FixedSteps or flow.duration != 1.0 or not is_flat(flow.field):
        return None
    if type(method) is LieTrotter and _is_euler(method.part):
        stages: Any = method.stages(field)
    elif _is_euler(method):
        stages = [(field, 0.0, 1.0)]
    else:
        return None
    if any(share != 1.0 for _, _, share in stages):
        return None
    terms = [(term.evaluate, term.project if term.projects else None, start) for term, start, _ in stages]

    parts, inner = flow._modules, solver._modules  # looked at in each pass, and a module is slow to be asked

    def step(x: Tensor, context: Context, time: float) -> Tensor:
        cache, other, noise, carry = context.own.cache, context.other.cache, context.noise, context.carry
        same = parts["solver"] is solver and inner["method"] is method and solver.steps == 1 and solver.moved is None
        # Before the first pass, a flow asks its field whether it knows its past.
        begun = cache is not None and cache.length and (other is None or other.length)
        if not (same and begun) or noise is not None or carry is not None:
            return any_method(x, context, time)
        cache.enter(solver)
        if other is not None:
            other.enter(solver)
        for evaluate, project, start in terms:
            x = x + evaluate(time + start, x, context)
            if project is not None:
                x = project(x)
        return x

    return step


def _is_euler(method: object) -> bool:
    return type(method) is RungeKutta and method.single


def _flat_layer(layer: nn.Module, maps: Maps) -> FlatLayer:
    if type(layer) is Flow:
        field = FlatField(layer.field, maps)
        return _one_step(layer, field) or _flat_flow(layer, field)
    body = _flat_stack(layer.body, maps) if type(layer) is Anchored and isinstance(layer.body, nn.Module) else None
    if body is None:
        return layer
    block: Any = layer
    norm = (lambda x: x) if block.norm is None else maps(block.norm)
    return lambda x, context, time: norm(body(x, block.anchor(x, context)))


# the language model


class FlatTokens:
    """Computes `LanguageModel.hidden` for [batch, 1] tokens that follow the cache, without padding.

    The model must not change until the last token: positions and embeddings are looked up once.
    """

    def __init__(self, model: LanguageModel, run: FlatStack, cache: Cache) -> None:
        self.run, self.cache, self.positions = run, cache, model.positions
        self.embed = model.embedding.forward
        self.added = model.positions.added(next(model.embedding.parameters()).new_empty(0, model.settings.width))
        self.context = Context(own=Source(causal=True, cache=cache))

    def __call__(self, tokens: Tensor) -> Tensor:
        cache, context, past = self.cache, self.context, self.cache.length
        x = self.embed(tokens)
        if self.added is not None:
            x = x + self.added[past]
        elif (rotary := self.positions.rotary(token_positions(tokens, None, past))) is not None:
            context = context._replace(own=context.own._replace(rotary=rotary))
        cache.begin()
        x = self.run(x, context)
        cache.advance(1)
        return x
